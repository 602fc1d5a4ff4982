!> What is looked at but never stepped: reflectivity, updraft helicity, extremes since the last history frame, and what
!> WRF's tools expect to find near the ground.
module squall_diagnostics
  use squall_constants, only: wp, gravity, r_dry, t_ref, vapour_ratio, pi
  use squall_domain, only: is, ie, js, je, ims, jms, nk, new_field, grid_size
  use squall_state, only: u, v, w, theta, pp, rho, qv, qr, qt, rho_b, th_b, th, p_b, dz, rdx
  implicit none
  private
  public :: allocate_diagnostics, track_extremes, forget_extremes, diagnose_frame

  !> Kept through restarts.
  real(wp), pointer, contiguous, dimension(:, :, :), public :: rainnc, up_heli_max, w_up_max, w_dn_max, wspd10max
  !> Made anew for each frame.
  real(wp), pointer, contiguous, dimension(:, :, :), public :: t, alt, refl_10cm, refd_com, psfc, t2, th2, q2, u10, &
    v10, xtime
  !> Fixed.
  real(wp), pointer, contiguous, dimension(:, :, :), public :: xlat, xlong, xlat_u, xlong_u, xlat_v, xlong_v, znu, &
    znw, ph, phb, pb, zero, one, p_top

contains

  subroutine allocate_diagnostics()
    real(wp), parameter :: degrees = 1.0_wp/111177.0_wp   !! of latitude in a metre
    integer :: i, j, k

    call new_field(rainnc, 1); call new_field(up_heli_max, 1); call new_field(wspd10max, 1)
    call new_field(w_up_max, 1); call new_field(w_dn_max, 1)
    call new_field(t, nk); call new_field(alt, nk); call new_field(refl_10cm, nk); call new_field(refd_com, 1)
    call new_field(psfc, 1); call new_field(t2, 1); call new_field(th2, 1); call new_field(q2, 1)
    call new_field(u10, 1); call new_field(v10, 1); call new_field(xtime, 1)
    call new_field(xlat, 1); call new_field(xlong, 1); call new_field(xlat_u, 1); call new_field(xlong_u, 1)
    call new_field(xlat_v, 1); call new_field(xlong_v, 1); call new_field(zero, 1); call new_field(one, 1)
    call new_field(znu, nk); call new_field(znw, nk + 1); call new_field(ph, nk + 1); call new_field(phb, nk + 1)
    call new_field(pb, nk); call new_field(p_top, 1)
    one = 1.0_wp
    p_top = p_b(nk) - 0.5_wp*dz*gravity*rho_b(nk)
    ! A plane laid on the equator, its middle at 0 N 0 E.
    do i = ims, ubound(xlong, 1)
      xlong(i, 1, :) = degrees/rdx*0.5_wp*real(2*i - 1 - grid_size(1), wp)
      xlong_u(i, 1, :) = degrees/rdx*0.5_wp*real(2*i - 2 - grid_size(1), wp)
    end do
    do j = jms, ubound(xlat, 3)
      xlat(:, 1, j) = degrees/rdx*0.5_wp*real(2*j - 1 - grid_size(2), wp)
      xlat_v(:, 1, j) = degrees/rdx*0.5_wp*real(2*j - 2 - grid_size(2), wp)
    end do
    xlat_u = xlat
    xlong_v = xlong
    do k = 1, nk
      znu(:, k, :) = 1.0_wp - (k - 0.5_wp)/real(nk, wp)
      pb(:, k, :) = p_b(k)
    end do
    do k = 1, nk + 1
      znw(:, k, :) = 1.0_wp - real(k - 1, wp)/real(nk, wp)
      phb(:, k, :) = gravity*dz*real(k - 1, wp)
    end do
  end subroutine allocate_diagnostics

  subroutine forget_extremes()
    up_heli_max = 0.0_wp
    w_up_max = 0.0_wp
    w_dn_max = 0.0_wp
    wspd10max = 0.0_wp
  end subroutine forget_extremes

  !> To be called once a step.
  subroutine track_extremes()
    real(wp) :: helicity(is:ie), spin
    integer :: i, j, k

    do j = js, je
      helicity = 0.0_wp
      do k = 1, nk
        do i = is, ie
          w_up_max(i, 1, j) = max(w_up_max(i, 1, j), w(i, k, j))
          w_dn_max(i, 1, j) = min(w_dn_max(i, 1, j), w(i, k, j))
        end do
        ! Vertical velocity times vertical vorticity, from 2 to 5 km above the ground.
        if ((k - 0.5_wp)*dz < 2000.0_wp .or. (k - 0.5_wp)*dz > 5000.0_wp) cycle
        do i = is, ie
          spin = 0.25_wp*rdx*(((v(i + 1, k, j) + v(i + 1, k, j + 1)) - (v(i - 1, k, j) + v(i - 1, k, j + 1))) &
            - ((u(i, k, j + 1) + u(i + 1, k, j + 1)) - (u(i, k, j - 1) + u(i + 1, k, j - 1))))
          helicity(i) = helicity(i) + dz*max(0.5_wp*(w(i, k, j) + w(i, k + 1, j)), 0.0_wp)*spin
        end do
      end do
      do i = is, ie
        up_heli_max(i, 1, j) = max(up_heli_max(i, 1, j), helicity(i))
        wspd10max(i, 1, j) = max(wspd10max(i, 1, j), &
          sqrt((0.5_wp*(u(i, 1, j) + u(i + 1, 1, j)))**2 + (0.5_wp*(v(i, 1, j) + v(i, 1, j + 1)))**2))
      end do
    end do
  end subroutine track_extremes

  subroutine diagnose_frame(minutes)
    real(wp), intent(in) :: minutes
    real(wp) :: density
    integer :: i, j, k

    xtime = minutes
    do j = js, je
      do k = 1, nk
        do i = is, ie
          density = rho_b(k) + rho(i, k, j)
          alt(i, k, j) = 1.0_wp/density
          t(i, k, j) = theta(i, k, j)/(1.0_wp + vapour_ratio*qv(i, k, j)) - t_ref
          refl_10cm(i, k, j) = reflectivity(density*qr(i, k, j))
        end do
      end do
      do i = is, ie
        refd_com(i, 1, j) = maxval(refl_10cm(i, :, j))
        psfc(i, 1, j) = p_b(1) + pp(i, 1, j) + 0.5_wp*dz*gravity*(rho_b(1) + rho(i, 1, j))*(1.0_wp + qt(i, 1, j))
        th2(i, 1, j) = t(i, 1, j) + t_ref
        t2(i, 1, j) = th2(i, 1, j)*(p_b(1) + pp(i, 1, j))/(r_dry*(th_b(1) + th(i, 1, j)))
        q2(i, 1, j) = qv(i, 1, j)
        u10(i, 1, j) = 0.5_wp*(u(i, 1, j) + u(i + 1, 1, j))
        v10(i, 1, j) = 0.5_wp*(v(i, 1, j) + v(i, 1, j + 1))
      end do
    end do
  end subroutine diagnose_frame

  !> dBZ of rain with Marshall and Palmer's (1948) drop sizes; -35 where there is none.
  elemental real(wp) function reflectivity(rain)
    real(wp), intent(in) :: rain                               !! kg m-3
    real(wp), parameter :: intercept = 8.0e6_wp, water = 1000.0_wp
    real(wp) :: scale

    reflectivity = -35.0_wp
    if (rain <= 1.0e-9_wp) return
    scale = (rain/(pi*water*intercept))**0.25_wp               ! m, the inverse of the slope
    reflectivity = max(-35.0_wp, 10.0_wp*log10(720.0_wp*intercept*1.0e18_wp*scale**7))
  end function reflectivity
end module squall_diagnostics
