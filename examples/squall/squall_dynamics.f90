!> One step of the flow: a Runge-Kutta scheme of three stages for what is slow, with short steps for sound inside each,
!> explicit in the horizontal and implicit in the vertical (Wicker and Skamarock 2002; Klemp, Skamarock and Dudhia 2007).
!> Names: `_t` is the state at the beginning of the step, `d…` the departure from the state the stage began with, `s_…` the
!> slow tendency, `f_…` what is held through the step (mixing).
module squall_dynamics
  use squall_constants, only: wp, gravity, pi
  use squall_domain, only: is, ie, js, je, ims, ime, jms, nk, halo_field, exchange, new_field, open_west, open_east, &
    open_south, open_north
  use squall_state, only: ru, rv, rw, rho, th, qv, qc, qr, u, v, w, theta, pp, pq, qt, rho_b, theta_b, qv_b, u_b, v_b, dz, &
    rdx, rdz, exchange_state
  use squall_transport, only: average, advective_fluxes, limit_outflow, outflow_scale, divergence, diffuse
  use squall_turbulence, only: eddy_viscosity, prandtl
  implicit none
  private
  public :: prepare_dynamics, advance_flow, courant_number

  real(wp), parameter :: off_centre = 0.1_wp                       !! of the implicit vertical scheme, damps sound
  real(wp), parameter :: ahead = 0.5_wp*(1.0_wp + off_centre), behind = 0.5_wp*(1.0_wp - off_centre)
  real(wp), parameter :: divergence_damping = 0.1_wp
  real(wp), parameter :: gravity_wave_speed = 30.0_wp              !! m s-1, at which waves leave through open sides
  real(wp), parameter :: sound_speed = 350.0_wp

  real(wp), pointer, contiguous, dimension(:, :, :) :: ru_t, rv_t, rw_t, rho_t, th_t, qv_t, qc_t, qr_t, &
    du, dv, dw, drho, dth, dp, su, sv, sw, srho, sth, fu, fv, fw, fth, fqv, fqc, fqr, &
    mean_u, mean_v, mean_w, bx, by, bz, held, none, mx, my, mz, fx, fy, fz, scale_v, scale_c, scale_r
  real(wp), allocatable :: damping(:), no_base(:)
  real(wp) :: dt, constant_viscosity
  integer :: sound_steps

contains

  subroutine prepare_dynamics(step_s, sound_steps_wanted, viscosity, damping_depth, damping_rate)
    real(wp), intent(in) :: step_s, viscosity, damping_depth, damping_rate
    integer, intent(in) :: sound_steps_wanted
    real(wp) :: top, z
    integer :: k

    dt = step_s
    constant_viscosity = viscosity
    sound_steps = sound_steps_wanted
    if (sound_steps < 1) sound_steps = 2*max(2, ceiling(0.8_wp*sound_speed*dt*rdx))
    allocate (damping(nk + 1), no_base(nk + 1), source=0.0_wp)
    top = nk*dz
    do k = 1, nk + 1
      z = (k - 1)*dz
      if (z > top - damping_depth) &
        damping(k) = damping_rate*sin(0.5_wp*pi*(1.0_wp - (top - z)/damping_depth))**2
    end do
    call new_field(ru_t, nk); call new_field(rv_t, nk); call new_field(rw_t, nk + 1)
    call new_field(rho_t, nk); call new_field(th_t, nk)
    call new_field(qv_t, nk); call new_field(qc_t, nk); call new_field(qr_t, nk)
    call new_field(du, nk); call new_field(dv, nk); call new_field(dw, nk + 1)
    call new_field(drho, nk); call new_field(dth, nk); call new_field(dp, nk)
    call new_field(su, nk); call new_field(sv, nk); call new_field(sw, nk + 1)
    call new_field(srho, nk); call new_field(sth, nk)
    call new_field(fu, nk); call new_field(fv, nk); call new_field(fw, nk + 1)
    call new_field(fth, nk); call new_field(fqv, nk); call new_field(fqc, nk); call new_field(fqr, nk)
    call new_field(mean_u, nk); call new_field(mean_v, nk); call new_field(mean_w, nk + 1)
    call new_field(bx, nk); call new_field(by, nk); call new_field(bz, nk + 1)
    call new_field(held, nk); call new_field(none, nk + 1)
    call new_field(mx, nk + 2); call new_field(my, nk + 2); call new_field(mz, nk + 2)
    call new_field(fx, nk + 2); call new_field(fy, nk + 2); call new_field(fz, nk + 2)
    call new_field(scale_v, nk); call new_field(scale_c, nk); call new_field(scale_r, nk)
  end subroutine prepare_dynamics

  !> Steps the whole state but for microphysics; leaves halos and diagnosed fields to be renewed.
  subroutine advance_flow()
    real(wp) :: stage_s
    integer :: stage, short_steps

    ru_t = ru; rv_t = rv; rw_t = rw; rho_t = rho; th_t = th; qv_t = qv; qc_t = qc; qr_t = qr
    call mixing()
    do stage = 1, 3
      stage_s = dt/real(4 - stage, wp)
      short_steps = max(1, (sound_steps + 3 - stage)/(4 - stage))
      call slow_tendencies()
      call sound(stage_s, short_steps)
      call transport_water(stage_s, limited=stage == 3)
      if (stage < 3) call exchange_state()
    end do
  end subroutine advance_flow

  !> The largest number of cells crossed in a step, and where. A value which is no number counts as huge.
  subroutine courant_number(worst, place)
    real(wp), intent(out) :: worst
    integer, intent(out) :: place(3)
    real(wp) :: here, row_worst, dx_dz
    integer :: i, j, k

    worst = 0.0_wp
    place = 0
    dx_dz = rdz/rdx
    do j = js, je
      do k = 1, nk
        row_worst = 0.0_wp
        do i = is, ie
          here = dt*(rdx*(abs(u(i, k, j)) + abs(v(i, k, j))) + rdz*abs(w(i, k, j)))
          row_worst = max(row_worst, merge(here, huge(here), here < huge(here)))
        end do
        if (row_worst > worst) then
          worst = row_worst
          place = [is - 1 + maxloc(abs(u(is:ie, k, j)) + abs(v(is:ie, k, j)) + dx_dz*abs(w(is:ie, k, j)), 1), j, k]
        end if
      end do
    end do
  end subroutine courant_number

  subroutine mixing()
    integer :: axis

    if (constant_viscosity == 0.0_wp) return
    ! dp and dth are free here: density times viscosity, horizontal and vertical.
    call eddy_viscosity(constant_viscosity, dt, u, v, w, theta, qc, rho, dp, dth)
    do axis = 0, 3
      call average(1, dp, fx)
      call average(2, dp, fy)
      call average(3, dth, fz)
      if (axis == 0) then
        call diffuse_scalars(merge(1.0_wp, 1.0_wp/prandtl, constant_viscosity > 0.0_wp))
        cycle
      end if
      call average(axis, fx, mx)
      call average(axis, fy, my)
      call average(axis, fz, mz)
      if (axis == 1) call diffuse(u, u_b, 1.0_wp, mx, my, mz, nk, 1, fu)
      if (axis == 2) call diffuse(v, v_b, 1.0_wp, mx, my, mz, nk, 1, fv)
      if (axis == 3) call diffuse(w, no_base, 1.0_wp, mx, my, mz, nk, 0, fw)
    end do
  end subroutine mixing

  subroutine diffuse_scalars(factor)
    real(wp), intent(in) :: factor
    call diffuse(theta, theta_b, factor, fx, fy, fz, nk, 0, fth)
    call diffuse(qv, qv_b, factor, fx, fy, fz, nk, 0, fqv)
    call diffuse(qc, no_base, factor, fx, fy, fz, nk, 0, fqc)
    call diffuse(qr, no_base, factor, fx, fy, fz, nk, 0, fqr)
  end subroutine diffuse_scalars

  subroutine slow_tendencies()
    call advect(1, u, 1, fu, su)
    call advect(2, v, 1, fv, sv)
    call advect(3, w, 0, fw, sw)
    call advective_fluxes(theta, ru, rv, rw, nk, 0, fx, fy, fz)
    call divergence(fx, fy, fz, fth, nk, 0, sth)
    call divergence(ru, rv, rw, none, nk, 0, srho)
    call add_forces(pp, rho, qt, su, sv, sw, bx, by, bz)
    call radiate(ru, rv, u, v, su, sv, bx, by)
  end subroutine slow_tendencies

  subroutine advect(axis, phi, extra, forcing, tend)
    integer, intent(in) :: axis, extra
    real(wp), contiguous, intent(in), dimension(ims:, :, jms:) :: phi, forcing
    real(wp), contiguous, intent(inout) :: tend(ims:, :, jms:)
    integer :: levels

    levels = size(phi, 2)
    call average(axis, ru, mx)
    call average(axis, rv, my)
    call average(axis, rw, mz)
    call advective_fluxes(phi, mx, my, mz, levels, extra, fx, fy, fz)
    call divergence(fx, fy, fz, forcing, levels, extra, tend)
  end subroutine advect

  !> Pressure gradient and buoyancy; b is rho_d over the density of air with all its water.
  subroutine add_forces(pp, rho, qt, su, sv, sw, bx, by, bz)
    real(wp), contiguous, intent(in), dimension(ims:, :, jms:) :: pp, rho, qt
    real(wp), contiguous, intent(inout), dimension(ims:, :, jms:) :: su, sv, sw, bx, by, bz
    real(wp) :: heavy(ims:ime, nk)
    integer :: i, j, k

    do j = js, je + 1
      do k = 1, nk
        do i = is, ie + 1
          bx(i, k, j) = 1.0_wp/(1.0_wp + 0.5_wp*(qt(i - 1, k, j) + qt(i, k, j)))
          by(i, k, j) = 1.0_wp/(1.0_wp + 0.5_wp*(qt(i, k, j - 1) + qt(i, k, j)))
          su(i, k, j) = su(i, k, j) - bx(i, k, j)*rdx*(pp(i, k, j) - pp(i - 1, k, j))
          sv(i, k, j) = sv(i, k, j) - by(i, k, j)*rdx*(pp(i, k, j) - pp(i, k, j - 1))
          heavy(i, k) = rho(i, k, j)*(1.0_wp + qt(i, k, j)) + rho_b(k)*(qt(i, k, j) - qv_b(k))
        end do
        if (k == 1) cycle
        do i = is, ie
          bz(i, k, j) = 1.0_wp/(1.0_wp + 0.5_wp*(qt(i, k - 1, j) + qt(i, k, j)))
          sw(i, k, j) = sw(i, k, j) - bz(i, k, j)*(rdz*(pp(i, k, j) - pp(i, k - 1, j)) &
            + 0.5_wp*gravity*(heavy(i, k - 1) + heavy(i, k)))
        end do
      end do
    end do
  end subroutine add_forces

  !> Open sides: the wind through the edge changes only by what is carried out at its speed plus that of gravity waves
  !> (Klemp and Wilhelmson 1978). With b = 0 sound leaves these faces alone.
  subroutine radiate(ru, rv, u, v, su, sv, bx, by)
    real(wp), contiguous, intent(in), dimension(ims:, :, jms:) :: ru, rv, u, v
    real(wp), contiguous, intent(inout), dimension(ims:, :, jms:) :: su, sv, bx, by
    real(wp), parameter :: c = gravity_wave_speed

    if (open_west) then
      su(is, :, :) = -min(u(is, :, :) - c, 0.0_wp)*rdx*(ru(is + 1, :, :) - ru(is, :, :))
      bx(is, :, :) = 0.0_wp
    end if
    if (open_east) then
      su(ie + 1, :, :) = -max(u(ie + 1, :, :) + c, 0.0_wp)*rdx*(ru(ie + 1, :, :) - ru(ie, :, :))
      bx(ie + 1, :, :) = 0.0_wp
    end if
    if (open_south) then
      sv(:, :, js) = -min(v(:, :, js) - c, 0.0_wp)*rdx*(rv(:, :, js + 1) - rv(:, :, js))
      by(:, :, js) = 0.0_wp
    end if
    if (open_north) then
      sv(:, :, je + 1) = -max(v(:, :, je + 1) + c, 0.0_wp)*rdx*(rv(:, :, je + 1) - rv(:, :, je))
      by(:, :, je + 1) = 0.0_wp
    end if
  end subroutine radiate

  !> From the state of the beginning over stage_s seconds, in n short steps.
  subroutine sound(stage_s, n)
    real(wp), intent(in) :: stage_s
    integer, intent(in) :: n
    real(wp) :: tau, share
    integer :: step

    tau = stage_s/real(n, wp)
    share = 1.0_wp/real(n, wp)
    du = ru_t - ru; dv = rv_t - rv; dw = rw_t - rw; drho = rho_t - rho; dth = th_t - th
    dp = pq*dth
    mean_u = ru; mean_v = rv; mean_w = rw
    do step = 1, n
      call push_horizontally(tau, share, su, sv, bx, by, dp, du, dv, mean_u, mean_v)
      call push_vertically(tau, share, du, dv, theta, pq, srho, sth, sw, bz, rw, dw, drho, dth, dp, mean_w)
      if (step < n) call exchange([halo_field(dp)], 1)
    end do
    ru = ru + du; rv = rv + dv; rw = rw + dw; rho = rho + drho; th = th + dth
  end subroutine sound

  subroutine push_horizontally(tau, share, su, sv, bx, by, dp, du, dv, mean_u, mean_v)
    real(wp), intent(in) :: tau, share
    real(wp), contiguous, intent(in), dimension(ims:, :, jms:) :: su, sv, bx, by, dp
    real(wp), contiguous, intent(inout), dimension(ims:, :, jms:) :: du, dv, mean_u, mean_v
    integer :: i, j, k

    ! The first face of the next patch is computed here too, from the same numbers: cheaper than a message.
    do j = js, je + 1
      do k = 1, nk
        do i = is, ie + 1
          du(i, k, j) = du(i, k, j) + tau*(su(i, k, j) - bx(i, k, j)*rdx*(dp(i, k, j) - dp(i - 1, k, j)))
          dv(i, k, j) = dv(i, k, j) + tau*(sv(i, k, j) - by(i, k, j)*rdx*(dp(i, k, j) - dp(i, k, j - 1)))
          mean_u(i, k, j) = mean_u(i, k, j) + share*du(i, k, j)
          mean_v(i, k, j) = mean_v(i, k, j) + share*dv(i, k, j)
        end do
      end do
    end do
  end subroutine push_horizontally

  !> Column by column: the new rw'' by a tridiagonal system, then density and rho_d theta_m.
  subroutine push_vertically(tau, share, du, dv, theta, pq, srho, sth, sw, bz, rw, dw, drho, dth, dp, mean_w)
    real(wp), intent(in) :: tau, share
    real(wp), contiguous, intent(in), dimension(ims:, :, jms:) :: du, dv, theta, pq, srho, sth, sw, bz, rw
    real(wp), contiguous, intent(inout), dimension(ims:, :, jms:) :: dw, drho, dth, dp, mean_w
    real(wp), dimension(is:ie, nk + 1) :: theta_z, rho_e, th_e, p_e, upper, new
    real(wp) :: lower, pivot, right, s, g, half, tau_z
    integer :: i, j, k

    tau_z = tau*ahead*rdz
    g = 0.5_wp*gravity*tau*ahead
    half = 0.5_wp*rdx
    theta_z(:, 1) = 0.0_wp
    theta_z(:, nk + 1) = 0.0_wp
    upper(:, 1) = 0.0_wp
    new(:, 1) = 0.0_wp
    new(:, nk + 1) = 0.0_wp
    do j = js, je
      do k = 2, nk
        do i = is, ie
          theta_z(i, k) = 0.5_wp*(theta(i, k - 1, j) + theta(i, k, j))
        end do
      end do
      do k = 1, nk
        do i = is, ie
          rho_e(i, k) = drho(i, k, j) + tau*(srho(i, k, j) &
            - rdx*((du(i + 1, k, j) - du(i, k, j)) + (dv(i, k, j + 1) - dv(i, k, j))) &
            - behind*rdz*(dw(i, k + 1, j) - dw(i, k, j)))
          th_e(i, k) = dth(i, k, j) + tau*(sth(i, k, j) &
            - half*((du(i + 1, k, j)*(theta(i, k, j) + theta(i + 1, k, j)) - du(i, k, j)*(theta(i - 1, k, j) + theta(i, k, j))) &
            + (dv(i, k, j + 1)*(theta(i, k, j) + theta(i, k, j + 1)) - dv(i, k, j)*(theta(i, k, j - 1) + theta(i, k, j)))) &
            - behind*rdz*(theta_z(i, k + 1)*dw(i, k + 1, j) - theta_z(i, k)*dw(i, k, j)))
          p_e(i, k) = pq(i, k, j)*(ahead*th_e(i, k) + behind*dth(i, k, j))
        end do
      end do
      do k = 2, nk
        do i = is, ie
          s = tau_z**2*bz(i, k, j)
          lower = g*tau_z - s*pq(i, k - 1, j)*theta_z(i, k - 1)
          pivot = 1.0_wp/(1.0_wp + s*theta_z(i, k)*(pq(i, k - 1, j) + pq(i, k, j)) - lower*upper(i, k - 1))
          right = dw(i, k, j) + tau*(sw(i, k, j) - bz(i, k, j)*rdz*(p_e(i, k) - p_e(i, k - 1)) &
            - 0.5_wp*gravity*(ahead*(rho_e(i, k - 1) + rho_e(i, k)) + behind*(drho(i, k - 1, j) + drho(i, k, j))))
          upper(i, k) = (-g*tau_z - s*pq(i, k, j)*theta_z(i, k + 1))*pivot
          new(i, k) = (right - lower*new(i, k - 1))*pivot
        end do
      end do
      do k = nk, 2, -1
        do i = is, ie
          new(i, k) = new(i, k) - upper(i, k)*new(i, k + 1)
        end do
      end do
      ! The sponge below the lid works on the whole of w (Klemp, Dudhia and Hassiotis 2008).
      do k = 2, nk
        do i = is, ie
          new(i, k) = (new(i, k) - tau*damping(k)*rw(i, k, j))/(1.0_wp + tau*damping(k))
          mean_w(i, k, j) = mean_w(i, k, j) + share*(ahead*new(i, k) + behind*dw(i, k, j))
          dw(i, k, j) = new(i, k)
        end do
      end do
      do k = 1, nk
        do i = is, ie
          s = pq(i, k, j)*dth(i, k, j)
          drho(i, k, j) = rho_e(i, k) - tau_z*(new(i, k + 1) - new(i, k))
          dth(i, k, j) = th_e(i, k) - tau_z*(theta_z(i, k + 1)*new(i, k + 1) - theta_z(i, k)*new(i, k))
          ! Pressure looked at a little ahead of its time damps sound (Skamarock and Klemp 1992).
          dp(i, k, j) = pq(i, k, j)*dth(i, k, j)
          dp(i, k, j) = dp(i, k, j) + divergence_damping*(dp(i, k, j) - s)
        end do
      end do
    end do
  end subroutine push_vertically

  !> Water goes with the mean mass fluxes of the short steps, so that what is uniform stays so, and nothing is lost.
  subroutine transport_water(stage_s, limited)
    real(wp), intent(in) :: stage_s
    logical, intent(in) :: limited

    if (limited) then
      ! Scales of all three first: one message, not three.
      call find_scale(qv, qv_t, fqv, scale_v)
      call find_scale(qc, qc_t, fqc, scale_c)
      call find_scale(qr, qr_t, fqr, scale_r)
      call exchange([halo_field(scale_v), halo_field(scale_c), halo_field(scale_r)], 1)
    end if
    call transport(qv, qv_t, fqv, scale_v)
    call transport(qc, qc_t, fqc, scale_c)
    call transport(qr, qr_t, fqr, scale_r)
  contains

    subroutine find_scale(q, q_t, forcing, scale)
      real(wp), contiguous, intent(in), dimension(ims:, :, jms:) :: q, q_t, forcing
      real(wp), contiguous, intent(inout) :: scale(ims:, :, jms:)

      call advective_fluxes(q, mean_u, mean_v, mean_w, nk, 0, fx, fy, fz)
      call hold(q_t, rho_t, forcing, stage_s, held)
      call outflow_scale(held, stage_s, fx, fy, fz, nk, scale)
    end subroutine find_scale

    subroutine transport(q, q_t, forcing, scale)
      real(wp), contiguous, intent(inout) :: q(ims:, :, jms:)
      real(wp), contiguous, intent(in), dimension(ims:, :, jms:) :: q_t, forcing, scale
      integer :: j, k

      call advective_fluxes(q, mean_u, mean_v, mean_w, nk, 0, fx, fy, fz)
      if (limited) call limit_outflow(scale, nk, fx, fy, fz)
      call divergence(fx, fy, fz, forcing, nk, 0, dp)
      do j = js, je
        do k = 1, nk
          ! As a change of q_t, so that rounding leaves alone what does not change.
          q(is:ie, k, j) = q_t(is:ie, k, j) + (stage_s*dp(is:ie, k, j) - q_t(is:ie, k, j)*(rho(is:ie, k, j) &
            - rho_t(is:ie, k, j)))/(rho_b(k) + rho(is:ie, k, j))
          if (limited) q(is:ie, k, j) = max(q(is:ie, k, j), 0.0_wp)   ! rounding may leave a trace below
        end do
      end do
    end subroutine transport
  end subroutine transport_water

  !> What a cell has of q before transport, kg m-3.
  subroutine hold(q, rho, forcing, dt, held)
    real(wp), contiguous, intent(in), dimension(ims:, :, jms:) :: q, rho, forcing
    real(wp), intent(in) :: dt
    real(wp), contiguous, intent(inout) :: held(ims:, :, jms:)
    integer :: j, k

    do j = js, je
      do k = 1, nk
        held(is:ie, k, j) = (rho_b(k) + rho(is:ie, k, j))*q(is:ie, k, j) + dt*forcing(is:ie, k, j)
      end do
    end do
  end subroutine hold
end module squall_dynamics
