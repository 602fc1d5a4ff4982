! Reads a file as Fortran models do: INQUIRE, OPEN, then netCDF. inquire FILE VARIABLE
program inquire_first
  use netcdf
  implicit none
  character(len=256) :: name, variable
  character(len=3) :: start
  logical :: there
  integer :: ncid, id, dims(nf90_max_var_dims), rank, lengths(4), d, unit
  real(8), allocatable :: values(:)

  call get_command_argument(1, name)
  call get_command_argument(2, variable)
  inquire(file=trim(name), exist=there)
  if (.not. there) error stop 'INQUIRE: the file is not there'
  open(newunit=unit, file=trim(name), status='old', action='read', access='stream', form='unformatted')
  read(unit, pos=2) start
  close(unit)
  call check(nf90_open(trim(name), nf90_nowrite, ncid))
  call check(nf90_inq_varid(ncid, trim(variable), id))
  call check(nf90_inquire_variable(ncid, id, ndims=rank, dimids=dims))
  lengths = 1
  do d = 1, rank
    call check(nf90_inquire_dimension(ncid, dims(d), len=lengths(d)))
  end do
  allocate(values(product(lengths)))
  call check(nf90_get_var(ncid, id, values, count=lengths(1:rank)))
  call check(nf90_close(ncid))
  print '(a, 1x, i0, 2(1x, es24.16))', start, size(values), sum(values), values(size(values))
contains
  subroutine check(code)
    integer, intent(in) :: code
    if (code /= nf90_noerr) error stop trim(nf90_strerror(code))
  end subroutine check
end program inquire_first
