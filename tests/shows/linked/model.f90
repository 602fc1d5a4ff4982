! The same by netCDF-Fortran.
program model
  use netcdf, only: nf90_close, nf90_create, nf90_def_dim, nf90_def_var, nf90_enddef, nf90_put_att, &
                    nf90_put_var, nf90_strerror, nf90_sync, NF90_CLOBBER, NF90_FLOAT, NF90_NETCDF4, &
                    NF90_NOERR, NF90_UNLIMITED
  implicit none
  integer, parameter :: nx = 100, frames = 3
  integer :: file, time, x, variable, frame, i

  call must(nf90_create("out.nc", ior(NF90_NETCDF4, NF90_CLOBBER), file))
  call must(nf90_def_dim(file, "time", NF90_UNLIMITED, time))
  call must(nf90_def_dim(file, "x", nx, x))
  call must(nf90_def_var(file, "T2", NF90_FLOAT, [x, time], variable))
  call must(nf90_put_att(file, variable, "units", "K"))
  call must(nf90_enddef(file))
  do frame = 1, frames
    call must(nf90_put_var(file, variable, [(real(1000 * frame + i), i = 1, nx)], start=[1, frame], count=[nx, 1]))
    call must(nf90_sync(file))
  end do
  call must(nf90_close(file))

contains

  subroutine must(code)
    integer, intent(in) :: code
    if (code == NF90_NOERR) return
    print "(2a)", "model: ", trim(nf90_strerror(code))
    error stop
  end subroutine must

end program model
