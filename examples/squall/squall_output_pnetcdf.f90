!> `--io pnetcdf`, WRF's io_form 11: all ranks write one classic (CDF-2) file together, every put collective.
!> `--io pnetcdf-nonblocking`, as MPAS and SCALE: puts are posted, and one wait at the end of the frame completes them.
module squall_output_pnetcdf
  use mpi_f08, only: MPI_INFO_NULL, MPI_OFFSET_KIND
  use pnetcdf, only: nf90mpi_create, nf90mpi_close, nf90mpi_enddef, nf90mpi_sync, nf90mpi_def_dim, nf90mpi_inq_dimid, &
    nf90mpi_def_var, nf90mpi_put_att, nf90mpi_put_var_all, nf90mpi_bput_var, nf90mpi_buffer_attach, nf90mpi_buffer_detach, &
    nf90mpi_wait_all, nf90mpi_strerror, nfmpi_put_att_text, nf90_noerr, nf90_64bit_offset, nf90_global, nf90_real, nf90_char, &
    nf90_unlimited, nf_req_all
  use squall_constants, only: wp
  use squall_domain, only: comm, rank, patch_box, patch_range
  use squall_failure, only: fail
  use squall_fields, only: attribute, coordinates, field, file_attributes, file_dimensions, take_patch
  use squall_output, only: output_method
  implicit none
  private

  integer, parameter :: long = MPI_OFFSET_KIND, real_field = 104
  integer(long), parameter :: one = 1, date_length = 19

  type, extends(output_method), public :: pnetcdf_output
    logical :: posts = .false.
    integer, private :: id = -1, time_id = -1, times = -1
    integer(long), private :: frame = 0
    character(len=:), allocatable, private :: path
    integer, allocatable, private :: variables(:)
  contains
    procedure :: open, write, close => close_file
  end type pnetcdf_output

contains

  subroutine open(self, path, fields, deflate, restart_step)
    class(pnetcdf_output), intent(inout) :: self
    character(len=*), intent(in) :: path
    type(field), intent(in) :: fields(:)
    integer, intent(in) :: deflate, restart_step            ! classic files are never compressed
    type(attribute), allocatable :: attributes(:)
    integer :: length_id, n

    self%path = path
    self%frame = 0
    call check(self, nf90mpi_create(comm%MPI_VAL, path, nf90_64bit_offset, MPI_INFO_NULL%MPI_VAL, self%id), 'create')
    call check(self, nf90mpi_def_dim(self%id, 'Time', int(nf90_unlimited, long), self%time_id), 'define Time')
    call check(self, nf90mpi_def_dim(self%id, 'DateStrLen', date_length, length_id), 'define DateStrLen')
    call check(self, nf90mpi_def_var(self%id, 'Times', nf90_char, [length_id, self%time_id], self%times), 'define Times')
    if (allocated(self%variables)) deallocate (self%variables)
    allocate (self%variables(size(fields)))
    do n = 1, size(fields)
      self%variables(n) = define(self, fields(n))
    end do
    attributes = file_attributes(patch_box(-1), restart_step)
    do n = 1, size(attributes)
      associate (a => attributes(n))
        select case (a%kind)
        case ('t')
          call put_text(self, nf90_global, trim(a%name), trim(a%text))
        case ('i')
          call check(self, nf90mpi_put_att(self%id, nf90_global, trim(a%name), nint(a%number)), 'write '//a%name)
        case default
          call check(self, nf90mpi_put_att(self%id, nf90_global, trim(a%name), a%number), 'write '//a%name)
        end select
      end associate
    end do
    call check(self, nf90mpi_enddef(self%id), 'leave define mode')
    if (self%posts) call check(self, nf90mpi_buffer_attach(self%id, frame_bytes(fields)), 'attach a buffer')
  end subroutine open

  integer function define(self, what) result(variable)
    class(pnetcdf_output), intent(in) :: self
    type(field), intent(in) :: what
    character(len=16), allocatable :: names(:)
    integer, allocatable :: axes(:), lengths(:)
    integer :: dimensions(4), n

    call file_dimensions(what, patch_box(-1), axes, names, lengths)
    do n = 1, size(axes)
      dimensions(n) = dimension_id(self, trim(names(n)), int(lengths(n), long))
    end do
    n = size(axes)
    dimensions(n + 1) = self%time_id
    call check(self, nf90mpi_def_var(self%id, trim(what%name), nf90_real, dimensions(:n + 1), variable), 'define '//what%name)
    call check(self, nf90mpi_put_att(self%id, variable, 'FieldType', real_field), 'describe '//what%name)
    call put_text(self, variable, 'MemoryOrder', what%order)
    call put_text(self, variable, 'description', trim(what%description))
    call put_text(self, variable, 'units', trim(what%units))
    call put_text(self, variable, 'stagger', trim(what%stagger))
    if (n > 1) call put_text(self, variable, 'coordinates', coordinates(what))
  end function define

  subroutine put_text(self, variable, name, value)
    class(pnetcdf_output), intent(in) :: self
    integer, intent(in) :: variable
    character(len=*), intent(in) :: name, value
    character(len=:), allocatable :: text

    text = value
    if (len(value) == 0) text = char(0)
    call check(self, nfmpi_put_att_text(self%id, variable, name, int(len(text), long), text), 'write '//name)
  end subroutine put_text

  integer function dimension_id(self, name, length)
    class(pnetcdf_output), intent(in) :: self
    character(len=*), intent(in) :: name
    integer(long), intent(in) :: length

    if (nf90mpi_inq_dimid(self%id, name, dimension_id) == nf90_noerr) return
    call check(self, nf90mpi_def_dim(self%id, name, length, dimension_id), 'define '//name)
  end function dimension_id

  subroutine write(self, date, fields)
    class(pnetcdf_output), intent(inout) :: self
    character(len=*), intent(in) :: date
    type(field), intent(in) :: fields(:)
    integer :: n, none(1)

    self%frame = self%frame + 1
    call check(self, nf90mpi_put_var_all(self%id, self%times, date, start=[one, self%frame], count=[date_length, one]), &
      'write Times')
    do n = 1, size(fields)
      call put(self, self%variables(n), fields(n))
    end do
    if (self%posts) call check(self, nf90mpi_wait_all(self%id, nf_req_all, none, none), 'complete the frame')
    call check(self, nf90mpi_sync(self%id), 'sync')
  end subroutine write

  !> This rank's patch. What does not extend in the horizontal is the same everywhere, and everyone puts it.
  subroutine put(self, variable, what)
    class(pnetcdf_output), intent(in) :: self
    integer, intent(in) :: variable
    type(field), intent(in) :: what
    real(wp), allocatable :: block(:, :, :)
    integer(long) :: start(4), count(4)
    integer :: axis, n, request, status

    call take_patch(what, patch_box(rank), block)
    n = 0
    do axis = 1, 3
      if (index(what%order, 'XYZ'(axis:axis)) == 0) cycle
      n = n + 1
      start(n) = lbound(block, axis)
      count(n) = size(block, axis)
    end do
    n = n + 1
    start(n) = self%frame
    count(n) = 1
    if (self%posts) then
      status = nf90mpi_bput_var(self%id, variable, block, request, start=start(:n), count=count(:n))
    else
      status = nf90mpi_put_var_all(self%id, variable, block, start=start(:n), count=count(:n))
    end if
    call check(self, status, 'write '//what%name)
  end subroutine put

  !> What this rank puts of all fields at one time.
  integer(long) function frame_bytes(fields)
    type(field), intent(in) :: fields(:)
    integer :: first(3), last(3), n

    frame_bytes = 0
    do n = 1, size(fields)
      call patch_range(patch_box(rank), fields(n)%stagger, fields(n)%order, first, last)
      frame_bytes = frame_bytes + product(int(last - first + 1, long))*(storage_size(1.0_wp)/8)
    end do
  end function frame_bytes

  subroutine close_file(self)
    class(pnetcdf_output), intent(inout) :: self
    if (self%posts) call check(self, nf90mpi_buffer_detach(self%id), 'detach the buffer')
    call check(self, nf90mpi_close(self%id), 'close')
  end subroutine close_file

  subroutine check(self, status, doing)
    class(pnetcdf_output), intent(in) :: self
    integer, intent(in) :: status
    character(len=*), intent(in) :: doing
    if (status /= nf90_noerr) call fail(self%path//': cannot '//trim(doing)//': '//trim(nf90mpi_strerror(status)))
  end subroutine check
end module squall_output_pnetcdf
