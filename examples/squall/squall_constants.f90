!> Kinds and physical constants.
module squall_constants
  use, intrinsic :: iso_fortran_env, only: real32, real64
  implicit none
  private

  integer, parameter, public :: wp = real32            !! the model's reals, in memory and in its files
  integer, parameter, public :: dp = real64            !! for the initial sounding and for clocks

  real(wp), parameter, public :: gravity = 9.81_wp      !! m s-2
  real(wp), parameter, public :: r_dry = 287.0_wp       !! J kg-1 K-1
  real(wp), parameter, public :: r_vapour = 461.6_wp
  real(wp), parameter, public :: cp = 1004.5_wp
  real(wp), parameter, public :: cv = cp - r_dry
  real(wp), parameter, public :: latent_heat = 2.5e6_wp !! J kg-1
  real(wp), parameter, public :: p_ref = 1.0e5_wp       !! Pa
  real(wp), parameter, public :: t_ref = 300.0_wp       !! K, what WRF subtracts from theta
  real(wp), parameter, public :: vapour_ratio = r_vapour/r_dry
  real(wp), parameter, public :: heat_ratio = cp/cv
  real(wp), parameter, public :: pi = 3.14159265358979_wp
end module squall_constants
