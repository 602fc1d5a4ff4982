!> Warm rain after Kessler (1969), in the form and with the constants of Klemp and Wilhelmson (1978): vapour, cloud water
!> which moves with the air, rain which falls through it. At fixed density, so that no water is made or lost.
module squall_microphysics
  use squall_constants, only: wp, cp, latent_heat, r_dry, vapour_ratio
  use squall_domain, only: is, ie, js, je, ims, jms, nk
  use squall_state, only: rho_b, th_b, p_b, dz, rdz, pressure_excess
  implicit none
  private
  public :: kessler, saturation

contains

  !> Saturation mixing ratio over water at p (Pa) and t (K), after Tetens.
  elemental real(wp) function saturation(p, t)
    real(wp), intent(in) :: p, t
    saturation = 380.0_wp/p*exp(17.27_wp*(t - 273.0_wp)/(t - 36.0_wp))
  end function saturation

  !> One step of dt seconds. `fallen` gathers what reaches the ground, kg m-2 or mm.
  subroutine kessler(dt, rho, th, qv, qc, qr, fallen)
    real(wp), intent(in) :: dt
    real(wp), contiguous, intent(in) :: rho(ims:, :, jms:)
    real(wp), contiguous, intent(inout), dimension(ims:, :, jms:) :: th, qv, qc, qr, fallen
    real(wp) :: density, before, heat, pressure, exner, t, saturated, slope, change, rained, evaporated, r
    integer :: i, j, k

    do j = js, je
      call fall(dt, rho(:, :, j), qr(:, :, j), fallen(:, 1, j))
      do k = 1, nk
        do i = is, ie
          if (qv(i, k, j) + qc(i, k, j) + qr(i, k, j) <= 0.0_wp) cycle
          density = rho_b(k) + rho(i, k, j)
          before = (th_b(k) + th(i, k, j))/density/(1.0_wp + vapour_ratio*qv(i, k, j))    ! theta
          pressure = p_b(k)*(1.0_wp + pressure_excess(th(i, k, j)/th_b(k)))
          exner = pressure/(r_dry*(th_b(k) + th(i, k, j)))
          t = before*exner
          saturated = saturation(pressure, t)
          slope = 1.0_wp + saturated*4093.0_wp*latent_heat/(cp*(t - 36.0_wp)**2)

          rained = 0.0_wp
          if (qc(i, k, j) > 0.0_wp) then
            rained = qc(i, k, j) - dt*1.0e-3_wp*max(qc(i, k, j) - 1.0e-3_wp, 0.0_wp)
            if (qr(i, k, j) > 0.0_wp) rained = rained/(1.0_wp + dt*2.2_wp*qr(i, k, j)**0.875_wp)
            rained = qc(i, k, j) - max(rained, 0.0_wp)
          end if
          change = max((qv(i, k, j) - saturated)/slope, -(qc(i, k, j) - rained))         ! vapour which condenses
          evaporated = 0.0_wp
          if (qr(i, k, j) > 0.0_wp .and. qv(i, k, j) - change < saturated) then
            r = 1.0e-3_wp*density*qr(i, k, j)
            evaporated = dt*(1.0_wp - qv(i, k, j)/saturated)*(1.6_wp + 124.9_wp*r**0.2046_wp)*r**0.525_wp &
              /(1.0e-3_wp*density*(5.4e5_wp + 2.55e8_wp/(pressure*saturated)))
            evaporated = max(0.0_wp, min(evaporated, qr(i, k, j), (saturated - qv(i, k, j))/slope + change))
          end if

          change = change - evaporated
          if (change == 0.0_wp .and. rained == 0.0_wp) cycle
          heat = latent_heat/(cp*exner)*change
          th(i, k, j) = th(i, k, j) + density*(heat*(1.0_wp + vapour_ratio*(qv(i, k, j) - change)) &
            - before*vapour_ratio*change)
          qv(i, k, j) = qv(i, k, j) - change
          qc(i, k, j) = max(qc(i, k, j) - rained + (change + evaporated), 0.0_wp)
          qr(i, k, j) = qr(i, k, j) + rained - evaporated
        end do
      end do
    end do
  end subroutine kessler

  !> Rain falls through one row of columns.
  subroutine fall(dt, rho, qr, fallen)
    real(wp), intent(in) :: dt
    real(wp), intent(in) :: rho(ims:, :)
    real(wp), intent(inout) :: qr(ims:, :), fallen(ims:)
    real(wp) :: flux(is:ie, nk + 1), density, speed, tau
    integer :: i, k, n, parts

    if (maxval(qr(is:ie, :)) <= 0.0_wp) return
    parts = max(1, ceiling(dt*15.0_wp*rdz))
    tau = dt/real(parts, wp)
    flux(:, nk + 1) = 0.0_wp
    do n = 1, parts
      do k = 1, nk
        do i = is, ie
          flux(i, k) = 0.0_wp
          if (qr(i, k) <= 1.0e-9_wp) cycle
          density = rho_b(k) + rho(i, k)
          speed = 36.34_wp*(1.0e-3_wp*density*qr(i, k))**0.1346_wp*sqrt(rho_b(1)/density)
          flux(i, k) = density*qr(i, k)*min(speed, dz/tau)
        end do
      end do
      do k = 1, nk
        do i = is, ie
          qr(i, k) = max(0.0_wp, qr(i, k) + tau*rdz*(flux(i, k + 1) - flux(i, k))/(rho_b(k) + rho(i, k)))
        end do
      end do
      fallen(is:ie) = fallen(is:ie) + tau*flux(:, 1)
    end do
  end subroutine fall
end module squall_microphysics
