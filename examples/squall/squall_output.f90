!> What the model asks of a way to write files: three verbs, each called by all ranks alike.
!>
!> A new way is a new extension of `output_method` in a file of its own, and a line in `squall_history`.
module squall_output
  use squall_fields, only: field
  implicit none
  private

  type, abstract, public :: output_method
  contains
    procedure(open_file), deferred :: open
    procedure(write_frame), deferred :: write
    procedure(close_file), deferred :: close
  end type output_method

  abstract interface
    !> A new file for frames of these fields. `restart_step` is the step a restart file holds, negative for history.
    subroutine open_file(self, path, fields, deflate, restart_step)
      import :: output_method, field
      class(output_method), intent(inout) :: self
      character(len=*), intent(in) :: path
      type(field), intent(in) :: fields(:)
      integer, intent(in) :: deflate, restart_step
    end subroutine open_file

    !> One more frame: this rank's patch of every field. The model may change the fields once this returns.
    subroutine write_frame(self, date, fields)
      import :: output_method, field
      class(output_method), intent(inout) :: self
      character(len=*), intent(in) :: date
      type(field), intent(in) :: fields(:)
    end subroutine write_frame

    subroutine close_file(self)
      import :: output_method
      class(output_method), intent(inout) :: self
    end subroutine close_file
  end interface
end module squall_output
