!> What is to be run: defaults of the case, then the namelist file, then the command line.
!>
!> Every variable of the namelist is also a flag: `--history-minutes 5` is `history_minutes = 5`.
module squall_settings
  use squall_constants, only: wp
  implicit none
  private
  public :: read_settings

  integer, parameter :: text_length = 512, word_length = 32

  character(len=word_length), protected, public :: case = 'supercell'  !! supercell | density-current | thermal | rest
  integer, protected, public :: nx, ny, nz                   !! cells
  real(wp), protected, public :: dx                          !! m, in x and y
  real(wp), protected, public :: ztop                        !! m, height of the lid
  real(wp), protected, public :: dt                          !! s
  integer, protected, public :: sound_steps = 0              !! acoustic steps in one step; 0: as many as sound needs
  character(len=word_length), protected, public :: boundaries = 'open'         !! open | periodic
  character(len=word_length), protected, public :: hodograph = 'straight'      !! straight | quarter
  real(wp), protected, public :: shear = 32.0_wp             !! m s-1, wind change over the lowest 6 km
  real(wp), protected, public :: vapour_max = 0.014_wp       !! kg kg-1, mixing ratio of the boundary layer
  real(wp), protected, public :: bubble = 3.0_wp             !! K, excess of the initial thermal
  real(wp), protected, public :: viscosity = -1.0_wp         !! m2 s-1, constant; negative: Smagorinsky's
  real(wp), protected, public :: damping_depth = 5000.0_wp   !! m below the lid
  real(wp), protected, public :: damping_rate = 0.2_wp       !! s-1
  integer, protected, public :: seed = 0                     !! of random noise in the lowest kilometre; 0: none
  integer, protected, public :: ranks_x = 0, ranks_y = 0     !! decomposition; 0: chosen
  real(wp), protected, public :: minutes                     !! model time at the end of the run
  real(wp), protected, public :: history_minutes             !! 0: no history
  real(wp), protected, public :: restart_minutes = 0.0_wp    !! 0: no restart files
  integer, protected, public :: frames_per_file = 1          !! of history
  character(len=word_length), protected, public :: io = 'serial'
  integer, protected, public :: deflate = 2                  !! 0: not compressed
  character(len=text_length), protected, public :: output = '.'                !! directory of the files
  character(len=text_length), protected, public :: restart = ''                !! file to start from
  character(len=text_length), protected, public :: report = ''                 !! JSON file for timings
  logical, protected, public :: quiet = .false.

  namelist /squall/ case, nx, ny, nz, dx, ztop, dt, sound_steps, boundaries, hodograph, shear, vapour_max, bubble, &
    viscosity, damping_depth, damping_rate, seed, ranks_x, ranks_y, minutes, history_minutes, restart_minutes, &
    frames_per_file, io, deflate, output, restart, report, quiet

contains

  !> `message` is empty if all is well; `help_wanted` if there is nothing to run.
  subroutine read_settings(message, help_wanted)
    character(len=:), allocatable, intent(out) :: message
    logical, intent(out) :: help_wanted
    character(len=text_length) :: file
    integer :: pass

    message = ''
    help_wanted = .false.
    file = 'squall.nml'
    ! The first pass is there to find the case, whose defaults must lie under everything said.
    do pass = 1, 2
      call set_case_defaults()
      call read_file(trim(file), message)
      if (message == '') call read_flags(file, message, help_wanted)
      if (message /= '' .or. help_wanted) return
    end do
    call check(message)
  end subroutine read_settings

  subroutine set_case_defaults()
    select case (case)
    case ('density-current')
      nx = 512; ny = 1; nz = 64; dx = 100.0_wp; ztop = 6400.0_wp; dt = 2.0_wp
      minutes = 15.0_wp; history_minutes = 5.0_wp
      boundaries = 'periodic'; viscosity = 75.0_wp; damping_depth = 0.0_wp
    case ('thermal')
      nx = 200; ny = 1; nz = 100; dx = 100.0_wp; ztop = 10000.0_wp; dt = 2.0_wp
      minutes = 1000.0_wp/60.0_wp; history_minutes = minutes
      boundaries = 'periodic'; viscosity = 0.0_wp; damping_depth = 0.0_wp
    case ('rest')
      nx = 24; ny = 24; nz = 40; dx = 2000.0_wp; ztop = 20000.0_wp; dt = 10.0_wp
      minutes = 10.0_wp; history_minutes = 10.0_wp
    case default
      nx = 80; ny = 80; nz = 40; dx = 2000.0_wp; ztop = 20000.0_wp; dt = 10.0_wp
      minutes = 90.0_wp; history_minutes = 10.0_wp
    end select
  end subroutine set_case_defaults

  subroutine read_file(file, message)
    character(len=*), intent(in) :: file
    character(len=:), allocatable, intent(inout) :: message
    character(len=text_length) :: reason
    integer :: unit, status
    logical :: exists

    inquire (file=file, exist=exists)
    if (.not. exists .and. file == 'squall.nml') return
    open (newunit=unit, file=file, status='old', action='read', iostat=status, iomsg=reason)
    if (status == 0) then
      read (unit, nml=squall, iostat=status, iomsg=reason)
      close (unit)
    end if
    if (status /= 0) message = file//': '//trim(reason)
  end subroutine read_file

  subroutine read_flags(file, message, help_wanted)
    character(len=*), intent(inout) :: file
    character(len=:), allocatable, intent(inout) :: message
    logical, intent(inout) :: help_wanted
    character(len=text_length) :: flag, value, reason
    character(len=2*text_length + 40) :: group
    integer :: n, i, status

    n = 1
    do while (n <= command_argument_count())
      call get_command_argument(n, flag)
      value = ''
      if (n < command_argument_count()) call get_command_argument(n + 1, value)
      select case (flag)
      case ('--help', '-h')
        help_wanted = .true.
        return
      case ('--quiet')
        quiet = .true.
        n = n + 1
        cycle
      case ('--namelist')
        file = value
        call read_file(trim(file), message)
        if (message /= '') return
        n = n + 2
        cycle
      case ('--case', '--boundaries', '--hodograph', '--io', '--output', '--restart', '--report')
        value = "'"//trim(value)//"'"
      end select
      if (flag(1:2) /= '--' .or. n == command_argument_count()) then
        message = 'cannot make sense of "'//trim(flag)//'"; see --help'
        return
      end if
      do i = 3, len_trim(flag)
        if (flag(i:i) == '-') flag(i:i) = '_'
      end do
      group = '&squall '//trim(flag(3:))//' = '//trim(value)//' /'
      read (group, nml=squall, iostat=status, iomsg=reason)
      if (status /= 0) then
        message = 'cannot make sense of "--'//trim(flag(3:))//' '//trim(value)//'"; see --help'
        return
      end if
      n = n + 2
    end do
  end subroutine read_flags

  subroutine check(message)
    character(len=:), allocatable, intent(inout) :: message
    real(wp) :: intervals(2)

    intervals = [history_minutes, restart_minutes]
    select case (case)
    case ('supercell', 'density-current', 'thermal', 'rest')
    case default
      message = 'no case "'//trim(case)//'": supercell, density-current, thermal or rest'
    end select
    if (all(boundaries /= ['open    ', 'periodic'])) message = 'boundaries are open or periodic'
    if (all(hodograph /= ['straight', 'quarter '])) message = 'hodographs are straight or quarter'
    if (min(nx, ny) < 1 .or. nz < 4 .or. min(dx, dt, ztop) <= 0.0_wp) &
      message = 'nx, ny, dx, dt and ztop must be positive, nz at least 4'
    if (minutes < 0.0_wp .or. minutes > 43200.0_wp) message = 'minutes must be from 0 to 43200 (30 days)'
    if (frames_per_file < 1) message = 'frames_per_file must be at least 1'
    if (deflate < 0 .or. deflate > 9) message = 'deflate must be from 0 to 9'
    if (any(intervals < 0.0_wp) .or. any(abs(intervals*60.0_wp/dt - nint(intervals*60.0_wp/dt)) > 1.0e-3_wp)) &
      message = 'history_minutes and restart_minutes must be whole numbers of steps'
  end subroutine check
end module squall_settings
