!> The grid, the patch of it this rank computes, and the exchange of halos.
!>
!> Arrays are (i, k, j): i fastest, so that inner loops run along rows, and k before j, so that a row of columns stays
!> in the cache. Global indices are used throughout. Cell i lies between the faces i and i+1.
module squall_domain
  use mpi_f08, only: MPI_Comm, MPI_COMM_WORLD, MPI_PROC_NULL, MPI_REAL, MPI_Request, MPI_STATUSES_IGNORE, &
    MPI_Comm_rank, MPI_Comm_size, MPI_Irecv, MPI_Isend, MPI_Waitall
  use squall_constants, only: wp
  implicit none
  private
  public :: decompose, exchange, new_field, patch_box, patch_range

  integer, parameter, public :: halo = 4

  type(MPI_Comm), protected, public :: comm
  integer, protected, public :: rank, ranks
  integer, protected, public :: grid_size(3)             !! cells in x, y, z
  integer, protected, public :: layout(2)                !! ranks in x and y
  integer, protected, public :: is, ie, js, je, nk       !! cells of this patch
  integer, protected, public :: ims, ime, jms, jme       !! the same with halos
  logical, protected, public :: periodic
  logical, protected, public :: open_west, open_east, open_south, open_north  !! sides of this patch

  !> A part of the grid: its first and last cells, and its last faces where a field is staggered.
  type, public :: box
    integer :: first(3), last(3), last_staggered(3)
  end type box

  !> One array of an exchange. Faces in x ('X') and y ('Y') end one further than cells (' ').
  type, public :: halo_field
    real(wp), pointer, contiguous :: values(:, :, :)
    character(len=1) :: stagger = ' '
  end type halo_field

  integer :: position(2), neighbours(4)                  !! west, east, south, north
  real(wp), allocatable, asynchronous :: send_low(:), send_high(:), recv_low(:), recv_high(:)

contains

  !> Divides the grid among all ranks; `message` says why if it cannot.
  subroutine decompose(nx, ny, nz, periodic_sides, layout_wanted, message)
    integer, intent(in) :: nx, ny, nz, layout_wanted(2)
    logical, intent(in) :: periodic_sides
    character(len=:), allocatable, intent(out) :: message
    type(box) :: patch
    integer :: px, best, length

    message = ''
    comm = MPI_COMM_WORLD
    call MPI_Comm_rank(comm, rank)
    call MPI_Comm_size(comm, ranks)
    grid_size = [nx, ny, nz]
    nk = nz
    periodic = periodic_sides
    layout = layout_wanted
    if (all(layout == 0)) then
      best = huge(best)
      do px = 1, ranks
        if (mod(ranks, px) /= 0 .or. .not. fits(nx, px) .or. .not. fits(ny, ranks/px)) cycle
        length = (nx + px - 1)/px + (ny + ranks/px - 1)/(ranks/px)
        if (length >= best) cycle
        best = length
        layout = [px, ranks/px]
      end do
    end if
    if (product(layout) /= ranks .or. .not. fits(nx, layout(1)) .or. .not. fits(ny, layout(2))) then
      message = 'this grid cannot be divided so: the product of ranks_x and ranks_y must be the number of ranks, '// &
        'and a divided side must leave each at least 4 cells'
      return
    end if

    position = [mod(rank, layout(1)), rank/layout(1)]
    patch = patch_box(rank)
    is = patch%first(1); ie = patch%last(1)
    js = patch%first(2); je = patch%last(2)
    ims = is - halo; ime = ie + halo
    jms = js - halo; jme = je + halo
    open_west = .not. periodic .and. is == 1
    open_east = .not. periodic .and. ie == nx
    open_south = .not. periodic .and. js == 1
    open_north = .not. periodic .and. je == ny
    neighbours = [neighbour(1, -1), neighbour(1, 1), neighbour(2, -1), neighbour(2, 1)]
  end subroutine decompose

  pure logical function fits(cells, parts)
    integer, intent(in) :: cells, parts
    fits = parts == 1 .or. cells/max(parts, 1) >= halo
  end function fits

  integer function neighbour(axis, step)
    integer, intent(in) :: axis, step
    integer :: at(2)

    at = position
    at(axis) = at(axis) + step
    if (periodic) at(axis) = modulo(at(axis), layout(axis))
    neighbour = MPI_PROC_NULL
    if (at(axis) >= 0 .and. at(axis) < layout(axis)) neighbour = at(2)*layout(1) + at(1)
  end function neighbour

  !> The patch of any rank; rank -1 is the whole grid.
  pure type(box) function patch_box(of_rank) result(patch)
    integer, intent(in) :: of_rank
    integer :: axis, at(2)

    patch%first = 1
    patch%last = grid_size
    if (of_rank >= 0) then
      at = [mod(of_rank, layout(1)), of_rank/layout(1)]
      do axis = 1, 2
        patch%first(axis) = at(axis)*grid_size(axis)/layout(axis) + 1
        patch%last(axis) = (at(axis) + 1)*grid_size(axis)/layout(axis)
      end do
    end if
    ! The last patch also has the face which closes the grid.
    patch%last_staggered = merge(patch%last + 1, patch%last, patch%last == grid_size)
  end function patch_box

  !> First and last indices, in x, y and z, of a field with this stagger and memory order ('XYZ', 'XY ', 'Z  ') in a box.
  pure subroutine patch_range(within, stagger, order, first, last)
    type(box), intent(in) :: within
    character(len=*), intent(in) :: stagger, order
    integer, intent(out) :: first(3), last(3)
    integer :: axis

    first = within%first
    last = within%last
    axis = index('XYZ', stagger)
    if (axis > 0 .and. stagger /= '') last(axis) = within%last_staggered(axis)
    if (index(order, 'X') == 0) last(1:2) = first(1:2)
    if (index(order, 'Z') == 0) last(3) = first(3)
  end subroutine patch_range

  subroutine new_field(field, levels)
    real(wp), pointer, contiguous, intent(out) :: field(:, :, :)
    integer, intent(in) :: levels
    allocate (field(ims:ime, levels, jms:jme), source=0.0_wp)
  end subroutine new_field

  !> Fills `width` halo cells of each field from the neighbours. Open sides get what lies at the edge (no gradient).
  subroutine exchange(fields, width)
    type(halo_field), intent(in) :: fields(:)
    integer, intent(in) :: width

    ! An open north side has a last row of faces, which no exchange in y will bring.
    call exchange_axis(fields, width, 1, is, ie, js, merge(je + 1, je, open_north))
    ! Rows with their new ends, which brings the corners along.
    call exchange_axis(fields, width, 2, is - width, ie + width, js, je)
  end subroutine exchange

  subroutine exchange_axis(fields, width, axis, i1, i2, j1, j2)
    type(halo_field), intent(in) :: fields(:)
    integer, intent(in) :: width, axis, i1, i2, j1, j2
    integer :: low, high, lo, hi, f, n, m, last
    type(MPI_Request) :: requests(4)

    low = neighbours(2*axis - 1)
    high = neighbours(2*axis)
    lo = merge(is, js, axis == 1)
    hi = merge(ie, je, axis == 1)

    if (layout(axis) == 1 .and. periodic) then
      ! Element by element, as a side of the grid may be narrower than the halo (two-dimensional cases).
      do f = 1, size(fields)
        do m = 1, width
          call copy_line(fields(f)%values, axis, lo + modulo(-m, hi - lo + 1), lo - m)
          call copy_line(fields(f)%values, axis, lo + modulo(m - 1, hi - lo + 1), hi + m)
        end do
      end do
      return
    end if

    n = 0
    do f = 1, size(fields)
      n = n + width*size(fields(f)%values, 2)*merge(j2 - j1 + 1, i2 - i1 + 1, axis == 1)
    end do
    call make_room(n)
    call MPI_Irecv(recv_low, n, MPI_REAL, low, 1, comm, requests(1))
    call MPI_Irecv(recv_high, n, MPI_REAL, high, 2, comm, requests(2))
    if (low /= MPI_PROC_NULL) call copy_lines(lo, lo + width - 1, send_low, packing=.true.)
    if (high /= MPI_PROC_NULL) call copy_lines(hi - width + 1, hi, send_high, packing=.true.)
    call MPI_Isend(send_low, n, MPI_REAL, low, 2, comm, requests(3))
    call MPI_Isend(send_high, n, MPI_REAL, high, 1, comm, requests(4))
    call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE)
    if (low /= MPI_PROC_NULL) call copy_lines(lo - width, lo - 1, recv_low, packing=.false.)
    if (high /= MPI_PROC_NULL) call copy_lines(hi + 1, hi + width, recv_high, packing=.false.)

    do f = 1, size(fields)
      last = hi
      if (fields(f)%stagger == 'XY'(axis:axis)) last = hi + 1
      do m = 1, width
        if (low == MPI_PROC_NULL) call copy_line(fields(f)%values, axis, lo, lo - m)
        if (high == MPI_PROC_NULL .and. hi + m > last) call copy_line(fields(f)%values, axis, last, hi + m)
      end do
    end do
  contains

    !> Lines `from` to `to` across the axis, to the buffer or out of it.
    subroutine copy_lines(from, to, buffer, packing)
      integer, intent(in) :: from, to
      real(wp), intent(inout) :: buffer(:)
      logical, intent(in) :: packing
      integer :: a, b, j, k, at

      a = merge(from, i1, axis == 1)
      b = merge(to, i2, axis == 1)
      at = 0
      do f = 1, size(fields)
        do j = merge(j1, from, axis == 1), merge(j2, to, axis == 1)
          do k = 1, size(fields(f)%values, 2)
            if (packing) buffer(at + 1:at + b - a + 1) = fields(f)%values(a:b, k, j)
            if (.not. packing) fields(f)%values(a:b, k, j) = buffer(at + 1:at + b - a + 1)
            at = at + b - a + 1
          end do
        end do
      end do
    end subroutine copy_lines
  end subroutine exchange_axis

  subroutine make_room(n)
    integer, intent(in) :: n

    if (allocated(send_low)) then
      if (size(send_low) >= n) return
      deallocate (send_low, send_high, recv_low, recv_high)
    end if
    allocate (send_low(n), send_high(n), recv_low(n), recv_high(n))
  end subroutine make_room

  subroutine copy_line(values, axis, from, to)
    real(wp), intent(inout) :: values(ims:, :, jms:)
    integer, intent(in) :: axis, from, to

    if (axis == 1) then
      values(to, :, :) = values(from, :, :)
    else
      values(:, :, to) = values(:, :, from)
    end if
  end subroutine copy_line
end module squall_domain
