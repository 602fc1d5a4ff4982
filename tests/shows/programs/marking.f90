! Writes a netCDF file, waits to be told, closes it, and makes markers in the ways of Fortran. It says of each whether
! INQUIRE sees it, and what it reads of it.
program marking
  use netcdf, only: nf90_clobber, nf90_close, nf90_create, nf90_def_dim, nf90_def_var, nf90_double, nf90_enddef, &
                    nf90_netcdf4, nf90_noerr, nf90_put_var, nf90_strerror
  implicit none
  integer, parameter :: n = 200000
  integer :: file, x, variable, unit, i

  call must(nf90_create("hist.nc", ior(nf90_netcdf4, nf90_clobber), file))
  call must(nf90_def_dim(file, "x", n, x))
  call must(nf90_def_var(file, "v", nf90_double, [x], variable))
  call must(nf90_enddef(file))
  call must(nf90_put_var(file, variable, [(sqrt(real(i, kind(1d0))), i = 1, n)]))
  call wait("go")
  call must(nf90_close(file))

  open(newunit=unit, file="log.f001")
  write(unit, "(a)") "step 1"
  close(unit)
  open(newunit=unit, file="log.f001", position="append", status="old")
  write(unit, "(a)") "step 2"
  close(unit)

  open(newunit=unit, file="new.done", status="new", action="write")
  write(unit, "(a)") "new"
  close(unit)

  open(newunit=unit, file="old.ok", status="replace", action="write")
  write(unit, "(a)") "replaced"
  close(unit)

  open(newunit=unit, file="stream.ready", access="stream", form="formatted")
  write(unit, "(a)") "stream"
  close(unit)

  open(newunit=unit, file="dropped.flag")
  write(unit, "(a)") "dropped"
  close(unit, status="delete")

  call say("log.f001")
  call say("new.done")
  call say("old.ok")
  call say("stream.ready")
  call say("dropped.flag")
  open(newunit=unit, file="new.done", status="new", iostat=i)
  print "(a, l1)", "refused=", i /= 0
  flush(6)
  call wait("end")

contains

  subroutine wait(pipe)  ! until there is a line in it
    character(len=*), intent(in) :: pipe
    open(newunit=unit, file=pipe, action="read")
    read(unit, *)
    close(unit)
  end subroutine wait

  subroutine say(name)
    character(len=*), intent(in) :: name
    character(len=20) :: line
    logical :: there
    integer :: lines, code

    inquire(file=name, exist=there)
    lines = 0
    line = ""
    if (there) then
      open(newunit=unit, file=name, status="old", action="read")
      do
        read(unit, "(a)", iostat=code) line
        if (code /= 0) exit
        lines = lines + 1
      end do
      backspace(unit)
      backspace(unit)
      read(unit, "(a)") line
      close(unit)
    end if
    print "(a, a, l1, 1x, i0, 1x, a)", name, "=", there, lines, trim(line)
  end subroutine say

  subroutine must(code)
    integer, intent(in) :: code
    if (code == nf90_noerr) return
    print "(2a)", "marking: ", trim(nf90_strerror(code))
    error stop
  end subroutine must

end program marking
