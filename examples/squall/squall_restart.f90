!> Going on from a restart file, whole or in parts, written by any number of ranks.
module squall_restart
  use squall_constants, only: wp
  use squall_domain, only: box, rank, patch_box, patch_range, grid_size
  use squall_failure, only: fail
  use squall_fields, only: field, restart_fields, put_patch
  use squall_netcdf, only: netcdf_file
  use squall_output_split, only: part_suffix
  implicit none
  private
  public :: read_restart

contains

  !> Fills this rank's patch of the state; returns the number of steps done before.
  subroutine read_restart(path, step)
    character(len=*), intent(in) :: path
    integer, intent(out) :: step
    type(netcdf_file) :: file
    type(field), allocatable :: fields(:)
    integer :: part, cells
    logical :: exists

    fields = restart_fields()
    cells = 0
    inquire (file=path, exist=exists)
    if (exists) then
      call read_part(path)
    else
      do part = 0, huge(part) - 1
        inquire (file=path//part_suffix(part), exist=exists)
        if (.not. exists) exit
        call read_part(path//part_suffix(part))
      end do
    end if
    associate (mine => patch_box(rank))
      if (cells /= product(mine%last - mine%first + 1)) call fail(path//': no such restart, or parts of it are missing')
    end associate
  contains

    !> A whole file says by its attributes that it is one part: the only one.
    subroutine read_part(part_path)
      character(len=*), intent(in) :: part_path
      type(box) :: mine, theirs
      real(wp), allocatable :: block(:, :, :)
      integer, dimension(3) :: first, last, their_first, their_last
      integer :: n

      call file%open(part_path)
      if (any([file%get_attribute('WEST-EAST_GRID_DIMENSION'), file%get_attribute('SOUTH-NORTH_GRID_DIMENSION'), &
        file%get_attribute('BOTTOM-TOP_GRID_DIMENSION')] /= grid_size + 1)) call fail(part_path//': is of another grid')
      step = file%get_attribute('ITIMESTEP')
      mine = patch_box(rank)
      theirs%first = [file%get_attribute('WEST-EAST_PATCH_START_UNSTAG'), file%get_attribute('SOUTH-NORTH_PATCH_START_UNSTAG'), 1]
      theirs%last = [file%get_attribute('WEST-EAST_PATCH_END_UNSTAG'), file%get_attribute('SOUTH-NORTH_PATCH_END_UNSTAG'), &
        grid_size(3)]
      theirs%last_staggered = [file%get_attribute('WEST-EAST_PATCH_END_STAG'), file%get_attribute('SOUTH-NORTH_PATCH_END_STAG'), &
        grid_size(3) + 1]
      if (all(min(mine%last, theirs%last) >= max(mine%first, theirs%first))) then
        cells = cells + product(min(mine%last, theirs%last) - max(mine%first, theirs%first) + 1)
        do n = 1, size(fields)
          call patch_range(mine, fields(n)%stagger, fields(n)%order, first, last)
          call patch_range(theirs, fields(n)%stagger, fields(n)%order, their_first, their_last)
          first = max(first, their_first)
          last = min(last, their_last)
          allocate (block(first(1):last(1), first(2):last(2), first(3):last(3)))
          call file%get(fields(n), first - their_first + 1, block)
          call put_patch(block, first, fields(n))
          deallocate (block)
        end do
      end if
      call file%close()
    end subroutine read_part
  end subroutine read_restart
end module squall_restart
