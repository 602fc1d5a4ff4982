!> `--io split`, WRF's io_form 102: every rank writes its patch to a file of its own, NAME_0000, NAME_0001, …
module squall_output_split
  use squall_constants, only: wp
  use squall_domain, only: rank, patch_box
  use squall_fields, only: field, file_attributes, take_patch
  use squall_netcdf, only: netcdf_file
  use squall_output, only: output_method
  implicit none
  private
  public :: part_suffix

  type, extends(output_method), public :: split_output
    type(netcdf_file), private :: file
  contains
    procedure :: open, write, close => close_file
  end type split_output

contains

  pure function part_suffix(part) result(suffix)
    integer, intent(in) :: part
    character(len=:), allocatable :: suffix
    character(len=12) :: digits

    write (digits, '("_", i0.4)') part
    suffix = trim(digits)
  end function part_suffix

  subroutine open(self, path, fields, deflate, restart_step)
    class(split_output), intent(inout) :: self
    character(len=*), intent(in) :: path
    type(field), intent(in) :: fields(:)
    integer, intent(in) :: deflate, restart_step
    call self%file%create(path//part_suffix(rank), fields, patch_box(rank), file_attributes(patch_box(rank), restart_step), &
      deflate)
  end subroutine open

  subroutine write(self, date, fields)
    class(split_output), intent(inout) :: self
    character(len=*), intent(in) :: date
    type(field), intent(in) :: fields(:)
    real(wp), allocatable :: block(:, :, :)
    integer :: n

    call self%file%begin_frame(date)
    do n = 1, size(fields)
      call take_patch(fields(n), patch_box(rank), block)
      call self%file%put(n, fields(n), block)
    end do
    call self%file%end_frame()
  end subroutine write

  subroutine close_file(self)
    class(split_output), intent(inout) :: self
    call self%file%close()
  end subroutine close_file
end module squall_output_split
