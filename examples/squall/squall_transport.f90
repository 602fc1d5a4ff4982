!> Finite volumes: fluxes of advection and diffusion through the faces of cells, and what they change.
!>
!> Everything here serves any control volume: for a scalar the faces are those of its cells; for u the volumes are
!> shifted half a cell in x, and their mass fluxes are the cells' averaged in x (`average`), likewise for v and w.
module squall_transport
  use squall_constants, only: wp
  use squall_domain, only: is, ie, js, je, ims, ime, jms, jme
  use squall_state, only: rdx, rdz
  implicit none
  private
  public :: average, advective_fluxes, limit_outflow, outflow_scale, divergence, diffuse

contains

  !> b at i lies between a at i-1 and i (axis 1), likewise in y and z; at the ends of z b is zero.
  subroutine average(axis, a, b)
    integer, intent(in) :: axis
    real(wp), contiguous, intent(in) :: a(ims:, :, jms:)
    real(wp), contiguous, intent(inout) :: b(ims:, :, jms:)
    integer :: j, k

    select case (axis)
    case (1)
      do j = jms, jme
        do k = 1, size(a, 2)
          b(ims + 1:ime, k, j) = 0.5_wp*(a(ims:ime - 1, k, j) + a(ims + 1:ime, k, j))
        end do
      end do
    case (2)
      do j = jms + 1, jme
        do k = 1, size(a, 2)
          b(:, k, j) = 0.5_wp*(a(:, k, j - 1) + a(:, k, j))
        end do
      end do
    case (3)
      do j = jms, jme
        b(:, 1, j) = 0.0_wp
        do k = 2, size(a, 2)
          b(:, k, j) = 0.5_wp*(a(:, k - 1, j) + a(:, k, j))
        end do
        b(:, size(a, 2) + 1:, j) = 0.0_wp
      end do
    end select
  end subroutine average

  !> Fluxes of phi carried by the mass fluxes mx, my, mz: of fifth order in the horizontal, of third in the vertical, both
  !> leaning upwind (Wicker and Skamarock 2002). `extra` more volumes are served beyond the patch at its high ends.
  subroutine advective_fluxes(phi, mx, my, mz, levels, extra, fx, fy, fz)
    real(wp), contiguous, intent(in), dimension(ims:, :, jms:) :: phi, mx, my, mz
    integer, intent(in) :: levels, extra
    real(wp), contiguous, intent(inout), dimension(ims:, :, jms:) :: fx, fy, fz
    integer :: i, j, k

    do j = js, je + extra
      do k = 1, levels
        do i = is, ie + extra + 1
          fx(i, k, j) = upwind5(mx(i, k, j), phi(i - 3, k, j), phi(i - 2, k, j), phi(i - 1, k, j), phi(i, k, j), &
            phi(i + 1, k, j), phi(i + 2, k, j))
        end do
      end do
      fz(:, 1, j) = 0.0_wp
      fz(:, levels + 1, j) = 0.0_wp
      do k = 2, levels
        if (k == 2 .or. k == levels) then
          do i = is, ie + extra
            fz(i, k, j) = mz(i, k, j)*0.5_wp*(phi(i, k - 1, j) + phi(i, k, j))
          end do
        else
          do i = is, ie + extra
            fz(i, k, j) = upwind3(mz(i, k, j), phi(i, k - 2, j), phi(i, k - 1, j), phi(i, k, j), phi(i, k + 1, j))
          end do
        end if
      end do
    end do
    do j = js, je + extra + 1
      do k = 1, levels
        do i = is, ie + extra
          fy(i, k, j) = upwind5(my(i, k, j), phi(i, k, j - 3), phi(i, k, j - 2), phi(i, k, j - 1), phi(i, k, j), &
            phi(i, k, j + 1), phi(i, k, j + 2))
        end do
      end do
    end do
  end subroutine advective_fluxes

  elemental real(wp) function upwind5(m, a, b, c, d, e, f)
    real(wp), intent(in) :: m, a, b, c, d, e, f   !! the face lies between c and d
    upwind5 = m*((37.0_wp/60.0_wp)*(d + c) - (8.0_wp/60.0_wp)*(e + b) + (1.0_wp/60.0_wp)*(f + a)) &
      - abs(m)*((10.0_wp/60.0_wp)*(d - c) - (5.0_wp/60.0_wp)*(e - b) + (1.0_wp/60.0_wp)*(f - a))
  end function upwind5

  elemental real(wp) function upwind3(m, a, b, c, d)
    real(wp), intent(in) :: m, a, b, c, d         !! the face lies between b and c
    upwind3 = m*((7.0_wp/12.0_wp)*(c + b) - (1.0_wp/12.0_wp)*(d + a)) &
      - abs(m)*((3.0_wp/12.0_wp)*(c - b) - (1.0_wp/12.0_wp)*(d - a))
  end function upwind3

  !> The share of the outgoing fluxes which each cell can pay from what it holds (kg m-3), after Skamarock (2006).
  subroutine outflow_scale(held, dt, fx, fy, fz, levels, scale)
    real(wp), contiguous, intent(in), dimension(ims:, :, jms:) :: held, fx, fy, fz
    real(wp), intent(in) :: dt
    integer, intent(in) :: levels
    real(wp), contiguous, intent(inout) :: scale(ims:, :, jms:)
    real(wp) :: outflow
    integer :: i, j, k

    do j = js, je
      do k = 1, levels
        do i = is, ie
          outflow = rdx*((max(fx(i + 1, k, j), 0.0_wp) + max(-fx(i, k, j), 0.0_wp)) &
            + (max(fy(i, k, j + 1), 0.0_wp) + max(-fy(i, k, j), 0.0_wp))) &
            + rdz*(max(fz(i, k + 1, j), 0.0_wp) + max(-fz(i, k, j), 0.0_wp))
          scale(i, k, j) = max(0.0_wp, min(1.0_wp, held(i, k, j)/(dt*outflow + tiny(dt))))
        end do
      end do
    end do
  end subroutine outflow_scale

  subroutine limit_outflow(scale, levels, fx, fy, fz)
    real(wp), contiguous, intent(in) :: scale(ims:, :, jms:)
    integer, intent(in) :: levels
    real(wp), contiguous, intent(inout), dimension(ims:, :, jms:) :: fx, fy, fz
    integer :: i, j, k

    do j = js, je + 1
      do k = 1, levels
        do i = is, ie + 1
          fx(i, k, j) = fx(i, k, j)*merge(scale(i - 1, k, j), scale(i, k, j), fx(i, k, j) > 0.0_wp)
          fy(i, k, j) = fy(i, k, j)*merge(scale(i, k, j - 1), scale(i, k, j), fy(i, k, j) > 0.0_wp)
          if (k > 1) fz(i, k, j) = fz(i, k, j)*merge(scale(i, k - 1, j), scale(i, k, j), fz(i, k, j) > 0.0_wp)
        end do
      end do
    end do
  end subroutine limit_outflow

  !> tend = forcing - div f
  subroutine divergence(fx, fy, fz, forcing, levels, extra, tend)
    real(wp), contiguous, intent(in), dimension(ims:, :, jms:) :: fx, fy, fz, forcing
    integer, intent(in) :: levels, extra
    real(wp), contiguous, intent(inout) :: tend(ims:, :, jms:)
    integer :: i, j, k

    do j = js, je + extra
      do k = 1, levels
        do i = is, ie + extra
          tend(i, k, j) = forcing(i, k, j) - (rdx*((fx(i + 1, k, j) - fx(i, k, j)) + (fy(i, k, j + 1) - fy(i, k, j))) &
            + rdz*(fz(i, k + 1, j) - fz(i, k, j)))
        end do
      end do
    end do
  end subroutine divergence

  !> tend = div(factor g grad(phi - base)), g on the faces of phi's volumes; nothing passes bottom and lid.
  subroutine diffuse(phi, base, factor, gx, gy, gz, levels, extra, tend)
    real(wp), contiguous, intent(in), dimension(ims:, :, jms:) :: phi, gx, gy, gz
    real(wp), intent(in) :: base(:), factor
    integer, intent(in) :: levels, extra
    real(wp), contiguous, intent(inout) :: tend(ims:, :, jms:)
    real(wp) :: flux(ims:ime, levels + 1)
    integer :: i, j, k

    flux = 0.0_wp
    do j = js, je + extra
      do k = 2, levels
        do i = is, ie + extra
          flux(i, k) = rdz*gz(i, k, j)*((phi(i, k, j) - phi(i, k - 1, j)) - (base(k) - base(k - 1)))
        end do
      end do
      do k = 1, levels
        do i = is, ie + extra
          tend(i, k, j) = factor*(rdx**2*( &
            (gx(i + 1, k, j)*(phi(i + 1, k, j) - phi(i, k, j)) - gx(i, k, j)*(phi(i, k, j) - phi(i - 1, k, j))) + &
            (gy(i, k, j + 1)*(phi(i, k, j + 1) - phi(i, k, j)) - gy(i, k, j)*(phi(i, k, j) - phi(i, k, j - 1)))) &
            + rdz*(flux(i, k + 1) - flux(i, k)))
        end do
      end do
    end do
  end subroutine diffuse
end module squall_transport
