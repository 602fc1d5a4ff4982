!> The model's state: what is stepped forward, what follows from it, and the horizontally uniform base they depart from.
module squall_state
  use squall_constants, only: wp, heat_ratio
  use squall_domain, only: ims, ime, jms, jme, nk, halo, halo_field, exchange, new_field
  implicit none
  private
  public :: allocate_state, exchange_state, diagnose_state, pressure_excess

  !> Stepped forward. rho_d is the density of dry air, theta_m = theta (1 + qv Rv/Rd).
  real(wp), pointer, contiguous, public :: &
    ru(:, :, :), rv(:, :, :), &   !! rho_d u, rho_d v on faces in x and y
    rw(:, :, :), &                !! rho_d w on faces in z
    rho(:, :, :), &               !! rho_d less its base
    th(:, :, :), &                !! rho_d theta_m less its base
    qv(:, :, :), qc(:, :, :), qr(:, :, :)

  !> Diagnosed after every change, halos included.
  real(wp), pointer, contiguous, public :: &
    u(:, :, :), v(:, :, :), w(:, :, :), &
    theta(:, :, :), &             !! theta_m
    pp(:, :, :), &                !! pressure less its base
    pq(:, :, :), &                !! dp/d(rho_d theta_m)
    qt(:, :, :)                   !! all water

  !> The base state, by level.
  real(wp), allocatable, public :: rho_b(:), th_b(:), theta_b(:), p_b(:), qv_b(:), u_b(:), v_b(:)
  real(wp), public :: dz, rdx, rdz
  real(wp), public :: frame_u = 0.0_wp, frame_v = 0.0_wp   !! speed of the grid over the ground

contains

  subroutine allocate_state()
    call new_field(ru, nk); call new_field(rv, nk); call new_field(rw, nk + 1)
    call new_field(rho, nk); call new_field(th, nk)
    call new_field(qv, nk); call new_field(qc, nk); call new_field(qr, nk)
    call new_field(u, nk); call new_field(v, nk); call new_field(w, nk + 1)
    call new_field(theta, nk); call new_field(pp, nk); call new_field(pq, nk); call new_field(qt, nk)
    allocate (rho_b(nk), th_b(nk), theta_b(nk), p_b(nk), qv_b(nk), u_b(nk), v_b(nk))
  end subroutine allocate_state

  !> Halos of the state, then all that is diagnosed from it.
  subroutine exchange_state()
    call exchange([halo_field(ru, 'X'), halo_field(rv, 'Y'), halo_field(rw), halo_field(rho), halo_field(th), &
      halo_field(qv), halo_field(qc), halo_field(qr)], halo)
    call diagnose_state(ru, rv, rw, rho, th, qv, qc, qr, u, v, w, theta, pp, pq, qt)
  end subroutine exchange_state

  !> (1 + x)**(cp/cv) - 1 without loss of digits: p' is small beside p. To single precision for |x| < 0.1.
  elemental real(wp) function pressure_excess(x)
    real(wp), intent(in) :: x
    real(wp), parameter :: g = heat_ratio
    pressure_excess = g*x*(1.0_wp + (g - 1.0_wp)/2.0_wp*x*(1.0_wp + (g - 2.0_wp)/3.0_wp*x*(1.0_wp + (g - 3.0_wp)/4.0_wp*x* &
      (1.0_wp + (g - 4.0_wp)/5.0_wp*x))))
  end function pressure_excess

  subroutine diagnose_state(ru, rv, rw, rho, th, qv, qc, qr, u, v, w, theta, pp, pq, qt)
    real(wp), contiguous, intent(in), dimension(ims:, :, jms:) :: ru, rv, rw, rho, th, qv, qc, qr
    real(wp), contiguous, intent(inout), dimension(ims:, :, jms:) :: u, v, w, theta, pp, pq, qt
    real(wp) :: total
    integer :: i, j, k

    do j = jms, jme
      do k = 1, nk
        do i = ims, ime
          qt(i, k, j) = qv(i, k, j) + qc(i, k, j) + qr(i, k, j)
          total = th_b(k) + th(i, k, j)
          pp(i, k, j) = p_b(k)*pressure_excess(th(i, k, j)/th_b(k))
          pq(i, k, j) = heat_ratio*(p_b(k) + pp(i, k, j))/total
          theta(i, k, j) = total/(rho_b(k) + rho(i, k, j))
        end do
        do i = ims + 1, ime
          u(i, k, j) = ru(i, k, j)/(rho_b(k) + 0.5_wp*(rho(i - 1, k, j) + rho(i, k, j)))
        end do
        if (j > jms) then
          do i = ims, ime
            v(i, k, j) = rv(i, k, j)/(rho_b(k) + 0.5_wp*(rho(i, k, j - 1) + rho(i, k, j)))
          end do
        end if
        if (k > 1) then
          do i = ims, ime
            w(i, k, j) = rw(i, k, j)/(0.5_wp*((rho_b(k - 1) + rho(i, k - 1, j)) + (rho_b(k) + rho(i, k, j))))
          end do
        end if
      end do
    end do
  end subroutine diagnose_state
end module squall_state
