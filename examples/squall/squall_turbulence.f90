!> Eddy viscosity: constant, or after Smagorinsky (1963) and Lilly (1962): (c l)**2 times the rate of deformation, less
!> what stable stratification takes away. Horizontal and vertical mixing have lengths of their own, dx and dz.
module squall_turbulence
  use squall_constants, only: wp, gravity
  use squall_domain, only: is, ie, js, je, ims, jms, nk
  use squall_state, only: rho_b, rdx, rdz, dz
  implicit none
  private
  public :: eddy_viscosity

  real(wp), parameter, public :: prandtl = 1.0_wp/3.0_wp
  real(wp), parameter :: c_smagorinsky = 0.2_wp

contains

  !> Density times viscosity at the centres of cells, two deep into the halo.
  subroutine eddy_viscosity(constant, dt, u, v, w, theta, qc, rho, kappa_h, kappa_v)
    real(wp), intent(in) :: constant, dt
    real(wp), contiguous, intent(in), dimension(ims:, :, jms:) :: u, v, w, theta, qc, rho
    real(wp), contiguous, intent(inout), dimension(ims:, :, jms:) :: kappa_h, kappa_v
    real(wp) :: ux, vy, wz, uy, vx, uz, wx, vz, wy, deformation, stability, length_h, length_v, rise, density
    integer :: i, j, k, below, above

    length_h = (c_smagorinsky/rdx)**2
    length_v = (c_smagorinsky*dz)**2
    do j = js - 2, je + 2
      do k = 1, nk
        below = max(k - 1, 1)
        above = min(k + 1, nk)
        rise = 0.5_wp*rdz*2.0_wp/real(above - below, wp)
        do i = is - 2, ie + 2
          density = rho_b(k) + rho(i, k, j)
          if (constant >= 0.0_wp) then
            kappa_h(i, k, j) = constant*density
            kappa_v(i, k, j) = constant*density
            cycle
          end if
          ux = rdx*(u(i + 1, k, j) - u(i, k, j))
          vy = rdx*(v(i, k, j + 1) - v(i, k, j))
          wz = rdz*(w(i, k + 1, j) - w(i, k, j))
          uy = 0.25_wp*rdx*((u(i, k, j + 1) + u(i + 1, k, j + 1)) - (u(i, k, j - 1) + u(i + 1, k, j - 1)))
          vx = 0.25_wp*rdx*((v(i + 1, k, j) + v(i + 1, k, j + 1)) - (v(i - 1, k, j) + v(i - 1, k, j + 1)))
          wx = 0.25_wp*rdx*((w(i + 1, k, j) + w(i + 1, k + 1, j)) - (w(i - 1, k, j) + w(i - 1, k + 1, j)))
          wy = 0.25_wp*rdx*((w(i, k, j + 1) + w(i, k + 1, j + 1)) - (w(i, k, j - 1) + w(i, k + 1, j - 1)))
          uz = 0.5_wp*rise*((u(i, above, j) + u(i + 1, above, j)) - (u(i, below, j) + u(i + 1, below, j)))
          vz = 0.5_wp*rise*((v(i, above, j) + v(i, above, j + 1)) - (v(i, below, j) + v(i, below, j + 1)))
          deformation = 2.0_wp*((ux**2 + vy**2) + wz**2) + (uy + vx)**2 + ((uz + wx)**2 + (vz + wy)**2)
          ! Cloudy air is taken as neutral: what lifts it, condensation, is not in theta_m.
          stability = gravity*rise*(theta(i, above, j) - theta(i, below, j))/theta(i, k, j)
          if (qc(i, k, j) > 1.0e-6_wp) stability = 0.0_wp
          deformation = sqrt(max(0.0_wp, deformation - stability/prandtl))
          kappa_h(i, k, j) = density*min(length_h*deformation, 0.05_wp/(dt*rdx**2))
          kappa_v(i, k, j) = density*min(length_v*deformation, 0.05_wp/(dt*rdz**2))
        end do
      end do
    end do
  end subroutine eddy_viscosity
end module squall_turbulence
