!> The one way to stop everything at once.
module squall_failure
  use, intrinsic :: iso_fortran_env, only: error_unit
  use mpi_f08, only: MPI_COMM_WORLD, MPI_Abort
  implicit none
  private
  public :: fail

contains

  subroutine fail(message)
    character(len=*), intent(in) :: message
    write (error_unit, '(2a)') 'squall: error: ', message
    flush (error_unit)
    call MPI_Abort(MPI_COMM_WORLD, 1)
  end subroutine fail
end module squall_failure
