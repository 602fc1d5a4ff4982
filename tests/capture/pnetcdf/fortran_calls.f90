! Writes a file through PnetCDF's Fortran interfaces, the new one (nf90mpi_) and the old one (nfmpi_), and says every
! answer. Run with and without Advectio its answers and its file must be the same.
!
!     mpirun -n N fortran_calls FILE.nc       answers go to FILE.nc.<rank>
program fortran_calls
  use mpi
  use pnetcdf
  implicit none
  integer, parameter :: WIDTH = 5, HEIGHT = 3, LEVELS = 4
  integer(MPI_OFFSET_KIND), parameter :: ONE = 1
  character(len=256) :: path
  character(len=12) :: number
  integer :: rank, ranks, err, answers, nc
  integer :: dim_time, dim_text, dim_x, dim_y, dim_z
  integer :: times, theta, snow, kind_of_soil, soil, level, rain

  call MPI_Init(err)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, err)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, err)
  call get_command_argument(1, path)
  write (number, '(i0)') rank
  open (newunit=answers, file=trim(path)//'.'//trim(number), status='replace', action='write')

  call define
  call put_by_new_names
  call put_by_old_names
  call put_without_waiting
  call define_more
  call read_back
  call say('close', nf90mpi_close(nc))

  close (answers)
  call MPI_Finalize(err)

contains

  subroutine say(what, code)
    character(len=*), intent(in) :: what
    integer, intent(in) :: code
    if (code == NF90_NOERR) then
      write (answers, '(a)') what//': ok'
    else
      write (answers, '(a)') what//': '//trim(nf90mpi_strerror(code))
    end if
  end subroutine say

  subroutine define
    call say('create', nf90mpi_create(MPI_COMM_WORLD, trim(path), ior(NF90_CLOBBER, NF90_64BIT_DATA), MPI_INFO_NULL, nc))
    call say('def_dim Time', nf90mpi_def_dim(nc, 'Time', int(NF90_UNLIMITED, MPI_OFFSET_KIND), dim_time))
    call say('def_dim text', nf90mpi_def_dim(nc, 'DateStrLen', 19_MPI_OFFSET_KIND, dim_text))
    call say('def_dim x', nf90mpi_def_dim(nc, 'west_east', int(WIDTH*ranks, MPI_OFFSET_KIND), dim_x))
    call say('def_dim y', nf90mpi_def_dim(nc, 'south_north', int(HEIGHT, MPI_OFFSET_KIND), dim_y))
    call say('def_dim z', nf90mpi_def_dim(nc, 'bottom_top', int(LEVELS, MPI_OFFSET_KIND), dim_z))
    call say('def_var Times', nf90mpi_def_var(nc, 'Times', NF90_CHAR, [dim_text, dim_time], times))
    call say('def_var T', nf90mpi_def_var(nc, 'T', NF90_FLOAT, [dim_x, dim_y, dim_z, dim_time], theta))
    call say('def_var SNOW', nf90mpi_def_var(nc, 'SNOW', NF90_DOUBLE, [dim_x, dim_y, dim_time], snow))
    call say('def_var ISLTYP', nf90mpi_def_var(nc, 'ISLTYP', NF90_INT, [dim_x, dim_y, dim_time], kind_of_soil))
    call say('def_var SMOIS', nf90mpi_def_var(nc, 'SMOIS', NF90_SHORT, [dim_x, dim_y], soil))
    call say('def_var ZNU', nf90mpi_def_var(nc, 'ZNU', NF90_FLOAT, [dim_z], level))
    call say('put_att text', nf90mpi_put_att(nc, theta, 'description', 'perturbation potential temperature'))
    call say('put_att real', nf90mpi_put_att(nc, theta, 'valid_range', [-50., 250.]))
    call say('put_att global', nf90mpi_put_att(nc, NF90_GLOBAL, 'GRID_ID', 1))
    call say('put_att old', nfmpi_put_att_double(nc, NF90_GLOBAL, 'DT', NF90_DOUBLE, ONE, [6.d0]))
    call say('enddef', nf90mpi_enddef(nc))
  end subroutine define

  ! The patch of this rank, different at every step.
  subroutine patch(step, values)
    integer, intent(in) :: step
    real, intent(out) :: values(WIDTH, HEIGHT, LEVELS)
    integer :: i, j, k
    do k = 1, LEVELS
      do j = 1, HEIGHT
        do i = 1, WIDTH
          values(i, j, k) = 1000*step + 100*k + 10*j + (rank*WIDTH + i)*0.25
        end do
      end do
    end do
  end subroutine patch

  function corner(dims, step) result(start)
    integer, intent(in) :: dims, step
    integer(MPI_OFFSET_KIND) :: start(dims)
    start = 1
    start(1) = rank*WIDTH + 1
    if (step > 0) start(dims) = step
  end function corner

  subroutine put_by_new_names
    real :: values(WIDTH, HEIGHT, LEVELS), layer(WIDTH, HEIGHT), half
    integer :: whole(WIDTH, HEIGHT)
    integer(2) :: strided(2, HEIGHT)
    integer(MPI_OFFSET_KIND) :: few(2), stride(2)
    call patch(1, values)
    layer = values(:, :, 2)
    whole = int(values(:, :, 1))
    strided = int(values(1:2, :, 3), 2)
    half = 0.5
    call say('put_var_all text', nf90mpi_put_var_all(nc, times, '2026-11-21_00:00:00', start=[ONE, ONE], &
                                                     count=[19_MPI_OFFSET_KIND, ONE]))
    call say('put_var_all 4-D', nf90mpi_put_var_all(nc, theta, values, start=corner(4, 1), &
                                                    count=[integer(MPI_OFFSET_KIND) :: WIDTH, HEIGHT, LEVELS, 1]))
    call say('put_var_all converted', nf90mpi_put_var_all(nc, snow, layer, start=corner(3, 1), &
                                                          count=[integer(MPI_OFFSET_KIND) :: WIDTH, HEIGHT, 1]))
    call say('put_var_all integers', nf90mpi_put_var_all(nc, kind_of_soil, whole, start=corner(3, 1), &
                                                         count=[integer(MPI_OFFSET_KIND) :: WIDTH, HEIGHT, 1]))
    call say('begin_indep_data', nf90mpi_begin_indep_data(nc))
    few = [2, HEIGHT]
    stride = [2, 1]
    call say('put_var alone, strided', nf90mpi_put_var(nc, soil, strided, start=corner(2, 0), &
                                                       count=few, stride=stride))
    if (rank == 0) call say('put_var one value', nf90mpi_put_var(nc, level, half, start=[2_MPI_OFFSET_KIND]))
    call say('end_indep_data', nf90mpi_end_indep_data(nc))
    layer = layer*1e6
    call say('out of range', nf90mpi_put_var_all(nc, soil, layer, start=corner(2, 0), &
                                                 count=[integer(MPI_OFFSET_KIND) :: WIDTH, HEIGHT]))
    call say('beyond the edge', nf90mpi_put_var_all(nc, soil, layer, &
                                                    start=[integer(MPI_OFFSET_KIND) :: WIDTH*ranks + 1, 1], &
                                                    count=[integer(MPI_OFFSET_KIND) :: WIDTH, HEIGHT]))
    call say('sync', nf90mpi_sync(nc))
  end subroutine put_by_new_names

  subroutine put_by_old_names
    real :: values(WIDTH, HEIGHT, LEVELS), column(LEVELS)
    double precision :: precise(WIDTH, HEIGHT)
    integer :: whole(WIDTH, HEIGHT)
    call patch(2, values)
    column = [1., 0.75, 0.5, 0.25]  ! the same from every rank
    precise = values(:, :, 1)
    whole = int(values(:, :, 3))
    call say('nfmpi text', nfmpi_put_vara_text_all(nc, times, [ONE, 2*ONE], [19*ONE, ONE], '2026-11-21_01:00:00'))
    call say('nfmpi real', nfmpi_put_vara_real_all(nc, theta, corner(4, 2), &
                                                   [integer(MPI_OFFSET_KIND) :: WIDTH, HEIGHT, LEVELS, 1], values))
    call say('nfmpi double', nfmpi_put_vara_double_all(nc, snow, corner(3, 2), &
                                                       [integer(MPI_OFFSET_KIND) :: WIDTH, HEIGHT, 1], precise))
    call say('nfmpi int', nfmpi_put_vara_int_all(nc, kind_of_soil, corner(3, 2), &
                                                 [integer(MPI_OFFSET_KIND) :: WIDTH, HEIGHT, 1], whole))
    call say('nfmpi flexible', nfmpi_put_vara_all(nc, level, [ONE], [LEVELS*ONE], column, LEVELS*ONE, MPI_REAL))
    call say('nfmpi sync', nfmpi_sync(nc))
  end subroutine put_by_old_names

  subroutine put_without_waiting
    real :: first(WIDTH, HEIGHT, LEVELS), second(WIDTH, HEIGHT)
    integer :: third(WIDTH, HEIGHT)  ! what is posted may not be a temporary: it is read as late as in the wait
    integer :: requests(3), statuses(3)
    call patch(3, first)
    second = first(:, :, 1)
    third = int(second)
    call say('buffer_attach', nf90mpi_buffer_attach(nc, int(2*size(first)*4, MPI_OFFSET_KIND)))
    call say('iput', nf90mpi_iput_var(nc, snow, second, requests(1), start=corner(3, 3), &
                                      count=[integer(MPI_OFFSET_KIND) :: WIDTH, HEIGHT, 1]))
    call say('bput', nf90mpi_bput_var(nc, theta, first, requests(2), start=corner(4, 3), &
                                      count=[integer(MPI_OFFSET_KIND) :: WIDTH, HEIGHT, LEVELS, 1]))
    first = -1
    call say('nfmpi iput', nfmpi_iput_vara_int(nc, kind_of_soil, corner(3, 3), &
                                               [integer(MPI_OFFSET_KIND) :: WIDTH, HEIGHT, 1], third, requests(3)))
    call say('wait_all', nf90mpi_wait_all(nc, 3, requests, statuses))
    call say('first request', statuses(1))
    call say('second request', statuses(2))
    call say('third request', statuses(3))
    call say('buffer_detach', nf90mpi_buffer_detach(nc))
    call say('sync', nf90mpi_sync(nc))
  end subroutine put_without_waiting

  subroutine define_more
    real :: layer(WIDTH, HEIGHT)
    integer :: step
    call say('redef', nf90mpi_redef(nc))
    call say('def_var again', nf90mpi_def_var(nc, 'RAINNC', NF90_FLOAT, [dim_x, dim_y, dim_time], rain))
    call say('put_att again', nf90mpi_put_att(nc, rain, 'units', 'mm'))
    call say('enddef again', nf90mpi_enddef(nc))
    do step = 1, 3
      layer = rank + 0.1*step
      call say('put_var_all again', nf90mpi_put_var_all(nc, rain, layer, start=corner(3, step), &
                                                        count=[integer(MPI_OFFSET_KIND) :: WIDTH, HEIGHT, 1]))
    end do
    call say('no such variable', nf90mpi_put_var_all(nc, 99, layer))
  end subroutine define_more

  subroutine read_back
    real :: expected(WIDTH, HEIGHT, LEVELS), values(WIDTH, HEIGHT, LEVELS)
    integer :: step
    integer(MPI_OFFSET_KIND) :: records
    call say('inquire_dimension', nf90mpi_inquire_dimension(nc, dim_time, len=records))
    write (answers, '(i0,a)') records, ' records'
    do step = 1, int(records)
      call patch(step, expected)
      call say('get_var_all', nf90mpi_get_var_all(nc, theta, values, start=corner(4, step), &
                                                  count=[integer(MPI_OFFSET_KIND) :: WIDTH, HEIGHT, LEVELS, 1]))
      write (answers, '(a,l1)') 'as it was put: ', all(values == expected)
    end do
  end subroutine read_back
end program fortran_calls
