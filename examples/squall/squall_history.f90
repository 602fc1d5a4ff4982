!> When to write what: streams of frames (history, restarts), their files' names, and how long the model waited for them.
module squall_history
  use, intrinsic :: iso_fortran_env, only: output_unit
  use mpi_f08, only: MPI_DOUBLE_PRECISION, MPI_IN_PLACE, MPI_MAX, MPI_Allreduce, MPI_Wtime
  use squall_constants, only: wp, dp
  use squall_domain, only: comm, rank, ranks, grid_size, layout
  use squall_failure, only: fail
  use squall_fields, only: field, history_fields, restart_fields
  use squall_output, only: output_method
  use squall_output_pnetcdf, only: pnetcdf_output
  use squall_output_serial, only: serial_output
  use squall_output_split, only: split_output
  implicit none
  private
  public :: open_stream, write_frame, close_stream, date_at, write_report

  type, public :: stream
    integer :: every = 0                                  !! steps; 0: never
    character(len=:), allocatable, private :: prefix
    type(field), allocatable, private :: fields(:)
    class(output_method), allocatable, private :: method
    logical, private :: is_restart = .false., is_open = .false.
    integer, private :: frames_per_file = 1, frames = 0, deflate = 0
  end type stream

  type :: waiting
    character(len=128) :: file
    character(len=7) :: kind
    real(dp) :: model_s, blocked_s
  end type waiting
  type(waiting), allocatable :: waits(:)

contains

  subroutine open_stream(self, kind, directory, method, every, frames_per_file, deflate)
    type(stream), intent(out) :: self
    character(len=*), intent(in) :: kind                  !! 'history' or 'restart'
    character(len=*), intent(in) :: directory, method
    integer, intent(in) :: every, frames_per_file, deflate

    self%every = every
    self%frames_per_file = frames_per_file
    self%deflate = deflate
    self%is_restart = kind == 'restart'
    if (self%is_restart) then
      self%prefix = directory//'/squallrst_d01_'
      self%fields = restart_fields()
    else
      self%prefix = directory//'/squall_d01_'
      self%fields = history_fields()
    end if
    select case (method)
    case ('serial')
      allocate (serial_output :: self%method)
    case ('split')
      allocate (split_output :: self%method)
    case ('pnetcdf', 'pnetcdf-nonblocking')
      allocate (self%method, source=pnetcdf_output(posts=method /= 'pnetcdf'))
    case default
      call fail('no way "'//method//'" to write: serial, split, pnetcdf or pnetcdf-nonblocking')
    end select
    if (.not. allocated(waits)) allocate (waits(0))
  end subroutine open_stream

  !> Collective. The state's frame at this step; returns when the netCDF library has taken it.
  subroutine write_frame(self, step, dt)
    type(stream), intent(inout) :: self
    integer, intent(in) :: step
    real(wp), intent(in) :: dt
    character(len=:), allocatable :: path
    real(dp) :: began

    began = MPI_Wtime()
    path = self%prefix//date_at(step*real(dt, dp))
    if (.not. self%is_open) then
      call self%method%open(path, self%fields, self%deflate, merge(step, -1, self%is_restart))
      self%is_open = .true.
      self%frames = 0
    end if
    call self%method%write(date_at(step*real(dt, dp)), self%fields)
    self%frames = self%frames + 1
    if (self%frames == self%frames_per_file) call close_stream(self)
    path = path(index(path, '/', back=.true.) + 1:)
    waits = [waits, waiting(path, merge('restart', 'history', self%is_restart), step*real(dt, dp), MPI_Wtime() - began)]
    if (rank == 0) write (output_unit, '(3a, f10.5, a)') 'Timing for Writing ', path, ' for domain        1:', &
      waits(size(waits))%blocked_s, ' elapsed seconds'
  end subroutine write_frame

  subroutine close_stream(self)
    type(stream), intent(inout) :: self
    if (self%is_open) call self%method%close()
    self%is_open = .false.
  end subroutine close_stream

  !> WRF's way to write a time, for the first month of the year 1. Fractions of a second are left out.
  pure function date_at(seconds) result(date)
    real(dp), intent(in) :: seconds
    character(len=19) :: date
    integer :: whole

    whole = int(seconds + 1.0e-3_dp)
    write (date, '("0001-01-", i2.2, "_", i2.2, 2(":", i2.2))') 1 + whole/86400, mod(whole/3600, 24), mod(whole/60, 60), &
      mod(whole, 60)
  end function date_at

  !> JSON: what each frame cost the rank that waited longest, and the run as a whole.
  subroutine write_report(file, total_s, steps)
    character(len=*), intent(in) :: file
    real(dp), intent(in) :: total_s
    integer, intent(in) :: steps
    real(dp), allocatable :: blocked(:)
    integer :: unit, n, status

    blocked = [waits%blocked_s, total_s]
    call MPI_Allreduce(MPI_IN_PLACE, blocked, size(blocked), MPI_DOUBLE_PRECISION, MPI_MAX, comm)
    if (rank /= 0) return
    open (newunit=unit, file=file, status='replace', action='write', iostat=status)
    if (status /= 0) call fail('cannot write the report '//file)
    write (unit, '(a, i0, a, 2(i0, a), 3(i0, a), i0, a)') '{"ranks": ', ranks, ', "layout": [', layout(1), ', ', layout(2), &
      '], "grid": [', grid_size(1), ', ', grid_size(2), ', ', grid_size(3), '], "steps": ', steps, ','
    write (unit, '(2(a, f14.6), a)') ' "total_s": ', blocked(size(blocked)), ', "blocked_s": ', sum(blocked(:size(waits))), ','
    write (unit, '(a)') ' "frames": ['
    do n = 1, size(waits)
      write (unit, '(5a, f12.3, a, f14.6, 2a)') '  {"file": "', trim(waits(n)%file), '", "kind": "', waits(n)%kind, &
        '", "model_s": ', waits(n)%model_s, ', "blocked_s": ', blocked(n), '}', merge(',', ' ', n < size(waits))
    end do
    write (unit, '(a)') ' ]}'
    close (unit)
  end subroutine write_report
end module squall_history
