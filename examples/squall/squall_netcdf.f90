!> One netCDF-4 file in the manner of WRF: its order of calls, its dimensions, chunks, attributes and frames.
!>
!> A frame is one output time: `begin_frame` writes `Times`, `put` one field, `end_frame` syncs. Nothing here knows of ranks;
!> who owns a file and which part of the grid is in it is said by `patch`.
module squall_netcdf
  use netcdf, only: nf90_create, nf90_open, nf90_close, nf90_redef, nf90_enddef, nf90_sync, nf90_set_fill, nf90_def_dim, &
    nf90_inq_dimid, nf90_def_var, nf90_def_var_chunking, nf90_def_var_deflate, nf90_inq_varid, nf90_put_att, nf90_get_att, &
    nf90_put_var, nf90_get_var, nf90_strerror, nf90_noerr, nf90_netcdf4, nf90_nowrite, nf90_nofill, nf90_global, nf90_real, &
    nf90_char, nf90_unlimited, nf90_chunked
  use netcdf_nf_interfaces, only: nf_put_att_text, nf_put_vara_text
  use squall_constants, only: wp
  use squall_domain, only: box
  use squall_failure, only: fail
  use squall_fields, only: field, attribute, coordinates, file_dimensions
  implicit none
  private

  integer, parameter :: real_field = 104, date_length = 19

  type, public :: netcdf_file
    integer, private :: id = -1, frame = 0
    character(len=:), allocatable :: path
    integer, allocatable, private :: variables(:)
  contains
    procedure :: create, begin_frame, put, end_frame, close => close_file
    procedure :: open, get_attribute, get
  end type netcdf_file

contains

  subroutine create(self, path, fields, patch, attributes, deflate)
    class(netcdf_file), intent(inout) :: self
    character(len=*), intent(in) :: path
    type(field), intent(in) :: fields(:)
    type(box), intent(in) :: patch
    type(attribute), intent(in) :: attributes(:)
    integer, intent(in) :: deflate
    integer :: n, old_mode, time_id, length_id, times

    self%path = path
    self%frame = 0
    call check(self, nf90_create(path, nf90_netcdf4, self%id), 'create')
    call check(self, nf90_def_dim(self%id, 'Time', nf90_unlimited, time_id), 'define Time')
    call check(self, nf90_def_dim(self%id, 'DateStrLen', date_length, length_id), 'define DateStrLen')
    call check(self, nf90_def_var(self%id, 'Times', nf90_char, [length_id, time_id], times), 'define Times')
    if (allocated(self%variables)) deallocate (self%variables)
    allocate (self%variables(0:size(fields)))
    self%variables(0) = times
    do n = 1, size(fields)
      self%variables(n) = define(self, fields(n), patch, time_id, deflate)
    end do
    ! Every value will be written: no need to write fill values first.
    call check(self, nf90_set_fill(self%id, nf90_nofill, old_mode), 'set fill mode')
    call check(self, nf90_enddef(self%id), 'leave define mode')
    do n = 1, size(attributes)
      call check(self, nf90_redef(self%id), 'enter define mode')
      associate (a => attributes(n))
        select case (a%kind)
        case ('t')
          call put_text(self, nf90_global, trim(a%name), trim(a%text))
        case ('i')
          call check(self, nf90_put_att(self%id, nf90_global, trim(a%name), nint(a%number)), 'write '//a%name)
        case default
          call check(self, nf90_put_att(self%id, nf90_global, trim(a%name), a%number), 'write '//a%name)
        end select
      end associate
      call check(self, nf90_enddef(self%id), 'leave define mode')
    end do
  end subroutine create

  integer function define(self, what, patch, time_id, deflate) result(variable)
    class(netcdf_file), intent(inout) :: self
    type(field), intent(in) :: what
    type(box), intent(in) :: patch
    integer, intent(in) :: time_id, deflate
    character(len=16), allocatable :: names(:)
    integer, allocatable :: axes(:), lengths(:)
    integer :: dimensions(4), chunks(4), n

    call file_dimensions(what, patch, axes, names, lengths)
    do n = 1, size(axes)
      dimensions(n) = dimension_id(self, trim(names(n)), lengths(n))
      chunks(n) = lengths(n)
      if (axes(n) < 3) chunks(n) = max(1, lengths(n)/2)      ! four chunks to a level
    end do
    n = size(axes)
    dimensions(n + 1) = time_id
    chunks(n + 1) = 1
    call check(self, nf90_def_var(self%id, trim(what%name), nf90_real, dimensions(:n + 1), variable), 'define '//what%name)
    if (n > 1) then
      call check(self, nf90_def_var_chunking(self%id, variable, nf90_chunked, chunks(:n + 1)), 'chunk '//what%name)
      if (deflate > 0) call check(self, nf90_def_var_deflate(self%id, variable, 1, 1, deflate), 'compress '//what%name)
    end if
    call check(self, nf90_put_att(self%id, variable, 'FieldType', real_field), 'describe '//what%name)
    call put_text(self, variable, 'MemoryOrder', what%order)
    call put_text(self, variable, 'description', trim(what%description))
    call put_text(self, variable, 'units', trim(what%units))
    call put_text(self, variable, 'stagger', trim(what%stagger))
    if (n > 1) call put_text(self, variable, 'coordinates', coordinates(what))
  end function define

  !> With its trailing blanks, which nf90_put_att would cut off ('XY '), and an empty text as one NUL, as WRF does.
  subroutine put_text(self, variable, name, value)
    class(netcdf_file), intent(inout) :: self
    integer, intent(in) :: variable
    character(len=*), intent(in) :: name, value
    character(len=:), allocatable :: text

    text = value
    if (len(value) == 0) text = char(0)
    call check(self, nf_put_att_text(self%id, variable, name, len(text), text), 'write '//name)
  end subroutine put_text

  integer function dimension_id(self, name, length)
    class(netcdf_file), intent(inout) :: self
    character(len=*), intent(in) :: name
    integer, intent(in) :: length

    if (nf90_inq_dimid(self%id, name, dimension_id) == nf90_noerr) return
    call check(self, nf90_def_dim(self%id, name, length, dimension_id), 'define '//name)
  end function dimension_id

  subroutine begin_frame(self, date)
    class(netcdf_file), intent(inout) :: self
    character(len=*), intent(in) :: date
    self%frame = self%frame + 1
    call check(self, nf_put_vara_text(self%id, self%variables(0), [1, self%frame], [date_length, 1], date), 'write Times')
  end subroutine begin_frame

  !> All of field number n that is in this file, x fastest.
  subroutine put(self, n, what, block)
    class(netcdf_file), intent(inout) :: self
    integer, intent(in) :: n
    type(field), intent(in) :: what
    real(wp), contiguous, intent(in) :: block(:, :, :)
    integer :: status

    select case (what%order)
    case ('XYZ')
      status = nf90_put_var(self%id, self%variables(n), block, start=[1, 1, 1, self%frame], count=[shape(block), 1])
    case ('XY ')
      status = nf90_put_var(self%id, self%variables(n), block(:, :, 1), start=[1, 1, self%frame], &
        count=[size(block, 1), size(block, 2), 1])
    case ('Z  ')
      status = nf90_put_var(self%id, self%variables(n), block(1, 1, :), start=[1, self%frame], count=[size(block, 3), 1])
    case default
      status = nf90_put_var(self%id, self%variables(n), block(1, 1, :), start=[self%frame], count=[1])
    end select
    call check(self, status, 'write '//what%name)
  end subroutine put

  subroutine end_frame(self)
    class(netcdf_file), intent(inout) :: self
    call check(self, nf90_sync(self%id), 'sync')
  end subroutine end_frame

  subroutine close_file(self)
    class(netcdf_file), intent(inout) :: self
    call check(self, nf90_close(self%id), 'close')
  end subroutine close_file

  subroutine open(self, path)
    class(netcdf_file), intent(inout) :: self
    character(len=*), intent(in) :: path
    self%path = path
    call check(self, nf90_open(path, nf90_nowrite, self%id), 'open')
  end subroutine open

  integer function get_attribute(self, name)
    class(netcdf_file), intent(inout) :: self
    character(len=*), intent(in) :: name
    call check(self, nf90_get_att(self%id, nf90_global, name, get_attribute), 'read '//name)
  end function get_attribute

  !> A block of the first frame which begins at `start` (counted in the file).
  subroutine get(self, what, start, block)
    class(netcdf_file), intent(inout) :: self
    type(field), intent(in) :: what
    integer, intent(in) :: start(3)
    real(wp), contiguous, intent(out) :: block(:, :, :)
    integer :: variable, status

    call check(self, nf90_inq_varid(self%id, trim(what%name), variable), 'find '//what%name)
    if (what%order == 'XYZ') then
      status = nf90_get_var(self%id, variable, block, start=[start, 1], count=[shape(block), 1])
    else
      status = nf90_get_var(self%id, variable, block(:, :, 1), start=[start(:2), 1], count=[size(block, 1), size(block, 2), 1])
    end if
    call check(self, status, 'read '//what%name)
  end subroutine get

  subroutine check(self, status, doing)
    class(netcdf_file), intent(in) :: self
    integer, intent(in) :: status
    character(len=*), intent(in) :: doing
    if (status /= nf90_noerr) call fail(self%path//': cannot '//trim(doing)//': '//trim(nf90_strerror(status)))
  end subroutine check
end module squall_netcdf
