!> A small weather model: storms in three dimensions, written as WRF writes them.
program squall
  use, intrinsic :: iso_c_binding, only: c_char, c_int, c_null_char
  use, intrinsic :: iso_fortran_env, only: output_unit, error_unit
  use mpi_f08, only: MPI_IN_PLACE, MPI_MAX, MPI_REAL, MPI_COMM_WORLD, MPI_Allreduce, MPI_Barrier, MPI_Comm_rank, MPI_Finalize, &
    MPI_Init, MPI_Wtime
  use squall_cases, only: build_base_state, build_initial_state
  use squall_constants, only: wp, dp
  use squall_diagnostics, only: allocate_diagnostics, diagnose_frame, forget_extremes, track_extremes, rainnc
  use squall_domain, only: comm, decompose, rank, ranks
  use squall_dynamics, only: advance_flow, courant_number, prepare_dynamics
  use squall_history, only: close_stream, date_at, open_stream, stream, write_frame, write_report
  use squall_microphysics, only: kessler
  use squall_restart, only: read_restart
  use squall_settings, only: read_settings, case, nx, ny, nz, dt, sound_steps, boundaries, viscosity, damping_depth, &
    damping_rate, ranks_x, ranks_y, minutes, history_minutes, restart_minutes, frames_per_file, io, deflate, output, restart, &
    report, quiet
  use squall_state, only: allocate_state, exchange_state, rho, th, qv, qc, qr
  implicit none

  !> Beyond this the scheme is unstable for certain, and the numbers mean nothing any more.
  real(wp), parameter :: courant_max = 2.5_wp
  type(stream) :: history, restarts
  real(dp) :: began, step_began
  integer :: step, first_step, last_step

  call MPI_Init()
  began = MPI_Wtime()
  call set_up()
  first_step = 0
  if (restart == '') then
    call build_initial_state()
    call forget_extremes()
  else
    call read_restart(trim(restart), first_step)
    call exchange_state()
  end if
  last_step = nint(minutes*60.0_wp/dt)
  if (rank == 0) write (output_unit, '(3a, i0, 2(a, i0), a, i0, 2a)') 'squall: ', trim(case), ', ', nx, ' x ', ny, ' x ', nz, &
    ' cells on ', ranks, ' ranks, output ', trim(io)

  if (restart == '') call write_output(0)
  do step = first_step + 1, last_step
    step_began = MPI_Wtime()
    call advance_flow()
    call kessler(dt, rho, th, qv, qc, qr, rainnc)
    call exchange_state()
    call track_extremes()
    call stop_if_unstable()
    if (rank == 0 .and. .not. quiet) write (output_unit, '(3a, f10.5, a)') 'Timing for main: time ', &
      date_at(step*real(dt, dp)), ' on domain   1:', MPI_Wtime() - step_began, ' elapsed seconds'
    call write_output(step)
  end do
  call close_stream(history)
  call close_stream(restarts)

  call MPI_Barrier(comm)
  if (report /= '') call write_report(trim(report), MPI_Wtime() - began, last_step - first_step)
  if (rank == 0) write (output_unit, '(a, f10.2, a)') 'squall: total', MPI_Wtime() - began, ' s'
  if (rank == 0) write (output_unit, '(a)') 'squall: SUCCESS COMPLETE'
  call MPI_Finalize()

contains

  subroutine set_up()
    character(len=:), allocatable :: message
    logical :: help_wanted

    call read_settings(message, help_wanted)
    if (message == '' .and. .not. help_wanted) call decompose(nx, ny, nz, boundaries == 'periodic', [ranks_x, ranks_y], message)
    if (help_wanted) call print_help()
    if (message /= '') call stop_all(message, 2)
    if (help_wanted) call stop_all('', 0)

    call make_directory(trim(output))
    call allocate_state()
    call build_base_state()
    call allocate_diagnostics()
    call prepare_dynamics(dt, sound_steps, viscosity, damping_depth, damping_rate)
    call open_stream(history, 'history', trim(output), trim(io), nint(history_minutes*60.0_wp/dt), frames_per_file, deflate)
    call open_stream(restarts, 'restart', trim(output), trim(io), nint(restart_minutes*60.0_wp/dt), 1, deflate)
  end subroutine set_up

  subroutine write_output(step)
    integer, intent(in) :: step

    if (history%every > 0) then
      if (mod(step, history%every) == 0) then
        call diagnose_frame(real(step, wp)*dt/60.0_wp)
        call write_frame(history, step, dt)
        call forget_extremes()
      end if
    end if
    if (restarts%every > 0 .and. step > 0) then
      if (mod(step, restarts%every) == 0) call write_frame(restarts, step, dt)
    end if
  end subroutine write_output

  subroutine stop_if_unstable()
    real(wp) :: worst, mine
    character(len=200) :: text
    integer :: place(3)

    call courant_number(mine, place)
    worst = mine
    call MPI_Allreduce(MPI_IN_PLACE, worst, 1, MPI_REAL, MPI_MAX, comm)
    if (worst <= courant_max) return
    if (mine == worst) then
      write (text, '(3a, es9.2, a, 2(i0, ", "), i0, a)') 'CFL blow-up at ', date_at(step*real(dt, dp)), ': Courant number ', &
        worst, ' in cell (', place, '); try a shorter --dt'
      write (error_unit, '(2a)') 'squall: error: ', trim(text)
      flush (error_unit)
    end if
    ! What was written so far is good: leave the files well-formed.
    call close_stream(history)
    call stop_all('', 3)
  end subroutine stop_if_unstable

  !> The same end for every rank; the first says why.
  subroutine stop_all(message, code)
    character(len=*), intent(in) :: message
    integer, intent(in) :: code
    integer :: me

    call MPI_Comm_rank(MPI_COMM_WORLD, me)
    if (me == 0 .and. message /= '') write (error_unit, '(2a)') 'squall: error: ', message
    flush (error_unit)
    flush (output_unit)
    call MPI_Barrier(MPI_COMM_WORLD)
    call MPI_Finalize()
    if (code == 0) stop
    if (code == 2) stop 2, quiet=.true.
    stop 3, quiet=.true.
  end subroutine stop_all

  subroutine make_directory(path)
    character(len=*), intent(in) :: path
    interface
      integer(c_int) function mkdir(path, mode) bind(c)
        import :: c_char, c_int
        character(kind=c_char), intent(in) :: path(*)
        integer(c_int), value :: mode
      end function mkdir
    end interface
    integer(c_int) :: ignored

    ! If it cannot be made, creating the first file says so better.
    if (rank == 0) ignored = mkdir(path//c_null_char, int(o'777', c_int))
    call MPI_Barrier(comm)
  end subroutine make_directory

  subroutine print_help()
    integer :: me

    call MPI_Comm_rank(MPI_COMM_WORLD, me)
    if (me /= 0) return
    write (output_unit, '(a)') &
      'usage: mpirun -n RANKS squall [--NAME VALUE]...', &
      '', &
      '  --case NAME            supercell (default), density-current, thermal, rest', &
      '  --nx --ny --nz N       cells;  --dx METRES (x and y), --ztop METRES (the lid), --dt SECONDS', &
      '  --minutes M            model time at the end', &
      '  --history-minutes M    between frames of history (0: none); --frames-per-file N', &
      '  --restart-minutes M    between restart files (0: none, the default)', &
      '  --restart FILE         go on from it (of parts FILE_0000, FILE_0001, ... name FILE)', &
      '  --io METHOD            serial (default): rank 0 writes all; split: every rank a file; pnetcdf and', &
      '                         pnetcdf-nonblocking: all ranks one classic file', &
      '  --deflate N            0 (not compressed) to 9; default 2', &
      '  --output DIR           for the files; made if missing', &
      '  --report FILE          seconds blocked in output, per frame, as JSON', &
      '  --boundaries KIND      open or periodic', &
      '  --hodograph KIND       straight (default) or quarter;  --shear M/S over the lowest 6 km', &
      '  --vapour-max KG/KG     of the boundary layer;  --bubble KELVIN', &
      '  --viscosity M2/S       constant; negative: Smagorinsky', &
      '  --damping-depth METRES --damping-rate 1/S   of the layer below the lid', &
      '  --sound-steps N        in a step;  --ranks-x --ranks-y N   decomposition', &
      '  --seed N               of random noise in the first state; 0: none', &
      '  --namelist FILE        default squall.nml where it exists: &squall nx = 80, io = ''split'' /', &
      '  --quiet                no line per step'
  end subroutine print_help
end program squall
