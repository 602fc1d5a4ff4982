!> The atmosphere at rest or in uniform flow, and what is put into it to make it move.
module squall_cases
  use, intrinsic :: iso_fortran_env, only: int64
  use squall_constants, only: wp, dp, gravity, r_dry, cp, p_ref, vapour_ratio, pi
  use squall_domain, only: is, ie, js, je, nk, grid_size
  use squall_state, only: ru, rv, rho, th, qv, rho_b, th_b, theta_b, p_b, qv_b, u_b, v_b, dz, rdx, rdz, frame_u, frame_v, &
    exchange_state
  use squall_microphysics, only: saturation
  use squall_settings, only: case, dx, ztop, hodograph, shear, vapour_max, bubble, seed
  implicit none
  private
  public :: build_base_state, build_initial_state

contains

  !> The same on every rank, and nothing but a function of the settings: restarts build it anew.
  subroutine build_base_state()
    integer, parameter :: parts = 50
    real(dp) :: exner, z, layer, theta, q
    integer :: k, n

    dz = ztop/real(nk, wp)
    rdz = 1.0_wp/dz
    rdx = 1.0_wp/dx
    exner = 1.0_dp
    layer = real(dz, dp)/(2*parts)
    do k = 1, nk
      ! Hydrostatic balance, integrated upward finely: to the centre of the level, then on to its top.
      do n = 1, 2*parts
        z = (k - 1)*real(dz, dp) + (n - 0.5_dp)*layer
        call sounding(z, exner, theta, q)
        exner = exner - layer*gravity/(cp*theta*(1.0_dp + vapour_ratio*q)/(1.0_dp + q))
        if (n /= parts) cycle
        z = (k - 0.5_dp)*real(dz, dp)
        call sounding(z, exner, theta, q)
        p_b(k) = real(p_ref*exner**real(cp/r_dry, dp), wp)
        qv_b(k) = real(q, wp)
        theta_b(k) = real(theta*(1.0_dp + vapour_ratio*q), wp)
        rho_b(k) = real(p_ref*exner**real(cp/r_dry - 1.0_wp, dp)/(r_dry*theta*(1.0_dp + vapour_ratio*q)), wp)
        th_b(k) = rho_b(k)*theta_b(k)
        call wind(real(z, wp), u_b(k), v_b(k))
      end do
    end do
    if (case == 'supercell') call follow_the_storm()
  end subroutine build_base_state

  !> Potential temperature and vapour mixing ratio at height z.
  subroutine sounding(z, exner, theta, q)
    real(dp), intent(in) :: z, exner
    real(dp), intent(out) :: theta, q
    real(dp), parameter :: z_tropopause = 12000.0_dp, theta_tropopause = 343.0_dp, t_tropopause = 213.0_dp
    real(dp) :: humidity

    theta = 300.0_dp
    q = 0.0_dp
    select case (case)
    case ('supercell', 'rest')   ! Weisman and Klemp (1982)
      if (z <= z_tropopause) then
        theta = 300.0_dp + (theta_tropopause - 300.0_dp)*(z/z_tropopause)**1.25_dp
        humidity = 1.0_dp - 0.75_dp*(z/z_tropopause)**1.25_dp
      else
        theta = theta_tropopause*exp(gravity*(z - z_tropopause)/(cp*t_tropopause))
        humidity = 0.25_dp
      end if
      q = min(real(vapour_max, dp), humidity*saturation(real(p_ref*exner**real(cp/r_dry, dp), wp), real(theta*exner, wp)))
    end select
  end subroutine sounding

  subroutine wind(z, u, v)
    real(wp), intent(in) :: z
    real(wp), intent(out) :: u, v
    real(wp), parameter :: turned_below = 2000.0_wp, sheared_below = 6000.0_wp
    real(wp) :: radius, angle

    u = 0.0_wp
    v = 0.0_wp
    if (case /= 'supercell') return
    if (hodograph == 'straight') then
      u = shear*min(z/sheared_below, 1.0_wp)
      return
    end if
    ! A quarter of a circle up to 2 km, straight on from there to 6 km (Weisman and Klemp 1984); `shear` is its length.
    radius = shear*(turned_below/sheared_below)/(0.5_wp*pi)
    angle = 0.5_wp*pi*min(z/turned_below, 1.0_wp)
    u = radius*(1.0_wp - cos(angle)) + shear*min(max(z - turned_below, 0.0_wp), sheared_below - turned_below)/sheared_below
    v = radius*sin(angle)
  end subroutine wind

  !> The grid moves with the mean wind of the lowest 6 km, and so stays with what grows there.
  subroutine follow_the_storm()
    integer :: n

    n = min(nk, max(1, nint(6000.0_wp*rdz)))
    frame_u = sum(u_b(1:n))/real(n, wp)
    frame_v = sum(v_b(1:n))/real(n, wp)
    u_b = u_b - frame_u
    v_b = v_b - frame_v
  end subroutine follow_the_storm

  subroutine build_initial_state()
    real(wp) :: theta_m, excess
    integer :: i, j, k

    do j = js, je
      do k = 1, nk
        do i = is, ie
          excess = theta_excess(i, j, k)
          qv(i, k, j) = qv_b(k)
          ! Pressure is left alone: warm air is thin air.
          theta_m = theta_b(k) + excess*(1.0_wp + vapour_ratio*qv_b(k))
          rho(i, k, j) = 0.0_wp
          if (excess /= 0.0_wp) rho(i, k, j) = -rho_b(k)*(theta_m - theta_b(k))/theta_m
          th(i, k, j) = 0.0_wp
        end do
      end do
    end do
    call exchange_state()
    do j = js, je + 1
      do k = 1, nk
        do i = is, ie + 1
          ru(i, k, j) = u_b(k)*(rho_b(k) + 0.5_wp*(rho(i - 1, k, j) + rho(i, k, j)))
          rv(i, k, j) = v_b(k)*(rho_b(k) + 0.5_wp*(rho(i, k, j - 1) + rho(i, k, j)))
        end do
      end do
    end do
    call exchange_state()
  end subroutine build_initial_state

  real(wp) function theta_excess(i, j, k)
    integer, intent(in) :: i, j, k
    real(wp) :: x, y, z, distance

    ! From the middle of the grid, in a way that gives the same numbers on both sides of it.
    x = real(2*i - 1 - grid_size(1), wp)*0.5_wp*dx
    y = real(2*j - 1 - grid_size(2), wp)*0.5_wp*dx
    z = (real(k, wp) - 0.5_wp)*dz
    theta_excess = 0.0_wp
    select case (case)
    case ('supercell')             ! Weisman and Klemp (1982)
      distance = sqrt((x**2 + y**2)/10000.0_wp**2 + ((z - 1400.0_wp)/1400.0_wp)**2)
      if (distance < 1.0_wp) theta_excess = bubble*cos(0.5_wp*pi*distance)**2
    case ('density-current')       ! Straka et al. (1993): 15 K of temperature, so more of theta
      distance = sqrt((x/4000.0_wp)**2 + ((z - 3000.0_wp)/2000.0_wp)**2)
      if (distance < 1.0_wp) theta_excess = -7.5_wp*(cos(pi*distance) + 1.0_wp)/(p_b(k)/p_ref)**(r_dry/cp)
    case ('thermal')               ! Bryan and Fritsch (2002), the dry one
      distance = sqrt((x/2000.0_wp)**2 + ((z - 2000.0_wp)/2000.0_wp)**2)
      if (distance < 1.0_wp) theta_excess = 2.0_wp*cos(0.5_wp*pi*distance)**2
    end select
    if (seed /= 0 .and. z < 1000.0_wp) theta_excess = theta_excess + 0.2_wp*(noise(i, j, k) - 0.5_wp)
  end function theta_excess

  !> In [0, 1), from the seed and the cell, so that no number of ranks changes it.
  real(wp) function noise(i, j, k)
    integer, intent(in) :: i, j, k
    integer(int64), parameter :: modulus = 2147483647_int64
    integer(int64) :: n
    integer :: round

    n = modulo(int(seed, int64)*7919_int64 + int(k, int64)*1000003_int64 + int(j, int64)*10007_int64 + int(i, int64), modulus)
    do round = 1, 8
      n = modulo(n*48271_int64 + 11_int64, modulus)
    end do
    noise = real(modulo(n, 65536_int64), wp)/65536.0_wp
  end function noise
end module squall_cases
