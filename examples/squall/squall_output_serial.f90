!> `--io serial`, WRF's io_form 2: every field is gathered on rank 0, which alone writes.
module squall_output_serial
  use mpi_f08, only: MPI_REAL, MPI_Gatherv
  use squall_constants, only: wp
  use squall_domain, only: comm, rank, ranks, patch_box, patch_range
  use squall_fields, only: field, file_attributes, take_patch
  use squall_netcdf, only: netcdf_file
  use squall_output, only: output_method
  implicit none
  private

  type, extends(output_method), public :: serial_output
    type(netcdf_file), private :: file
  contains
    procedure :: open, write, close => close_file
  end type serial_output

contains

  subroutine open(self, path, fields, deflate, restart_step)
    class(serial_output), intent(inout) :: self
    character(len=*), intent(in) :: path
    type(field), intent(in) :: fields(:)
    integer, intent(in) :: deflate, restart_step
    if (rank == 0) &
      call self%file%create(path, fields, patch_box(-1), file_attributes(patch_box(-1), restart_step), deflate)
  end subroutine open

  subroutine write(self, date, fields)
    class(serial_output), intent(inout) :: self
    character(len=*), intent(in) :: date
    type(field), intent(in) :: fields(:)
    real(wp), allocatable :: whole(:, :, :)
    integer :: n

    if (rank == 0) call self%file%begin_frame(date)
    do n = 1, size(fields)
      call gather(fields(n), whole)
      if (rank == 0) call self%file%put(n, fields(n), whole)
    end do
    if (rank == 0) call self%file%end_frame()
  end subroutine write

  subroutine close_file(self)
    class(serial_output), intent(inout) :: self
    if (rank == 0) call self%file%close()
  end subroutine close_file

  !> `whole` is of use on rank 0 only.
  subroutine gather(from, whole)
    type(field), intent(in) :: from
    real(wp), allocatable, intent(out) :: whole(:, :, :)
    real(wp), allocatable :: block(:, :, :), received(:)
    integer :: first(3), last(3), counts(0:ranks - 1), offsets(0:ranks), r

    offsets(0) = 0
    do r = 0, ranks - 1
      call patch_range(patch_box(r), from%stagger, from%order, first, last)
      counts(r) = product(last - first + 1)
      ! What does not extend in the horizontal is the same everywhere: rank 0 has it.
      if (r > 0 .and. from%order(1:1) /= 'X') counts(r) = 0
      offsets(r + 1) = offsets(r) + counts(r)
    end do
    call take_patch(from, patch_box(rank), block)
    allocate (received(merge(offsets(ranks), 0, rank == 0)))
    call MPI_Gatherv(block, counts(rank), MPI_REAL, received, counts, offsets, MPI_REAL, 0, comm)
    if (rank /= 0) return

    call patch_range(patch_box(-1), from%stagger, from%order, first, last)
    allocate (whole(first(1):last(1), first(2):last(2), first(3):last(3)))
    do r = 0, ranks - 1
      if (counts(r) == 0) cycle
      call patch_range(patch_box(r), from%stagger, from%order, first, last)
      whole(first(1):last(1), first(2):last(2), first(3):last(3)) = &
        reshape(received(offsets(r) + 1:offsets(r + 1)), last - first + 1)
    end do
  end subroutine gather
end module squall_output_serial
