!> What goes into files: every field with its name, place on the grid and words, and the attributes of a file.
module squall_fields
  use squall_constants, only: wp
  use squall_domain, only: box, grid_size, layout, ranks, patch_range
  use squall_settings, only: case, dx, dt, viscosity
  use squall_state, only: ru, rv, rw, rho, th, qv, qc, qr, u, v, w, pp, frame_u, frame_v
  use squall_diagnostics, only: rainnc, up_heli_max, w_up_max, w_dn_max, wspd10max, t, alt, refl_10cm, refd_com, psfc, t2, th2, &
    q2, u10, v10, xtime, xlat, xlong, xlat_u, xlong_u, xlat_v, xlong_v, znu, znw, ph, phb, pb, zero, one, p_top
  implicit none
  private
  public :: history_fields, restart_fields, file_attributes, file_dimensions, coordinates, take_patch, put_patch

  character(len=*), parameter, public :: start_date = '0001-01-01_00:00:00'

  type, public :: field
    character(len=16) :: name
    character(len=3) :: order            !! 'XYZ', 'XY ', 'Z  ' or '0  ': WRF's MemoryOrder
    character(len=1) :: stagger          !! 'X', 'Y', 'Z' or ' '
    character(len=40) :: units
    character(len=64) :: description
    real(wp), pointer, contiguous :: values(:, :, :) => null()   !! in the model's order, with halos
  end type field

  !> A global attribute: text if `kind` is 't', an integer if 'i', a real if 'r'.
  type, public :: attribute
    character(len=40) :: name
    character(len=1) :: kind
    character(len=64) :: text
    real(wp) :: number
  end type attribute

contains

  function history_fields() result(fields)
    type(field), allocatable :: fields(:)
    character(len=*), parameter :: lat = 'LATITUDE, SOUTH IS NEGATIVE', lon = 'LONGITUDE, WEST IS NEGATIVE'

    fields = [ &
      field('XLAT', 'XY ', ' ', 'degree_north', lat, xlat), &
      field('XLONG', 'XY ', ' ', 'degree_east', lon, xlong), &
      field('ZNU', 'Z  ', ' ', '', 'one less height over that of the lid, on mass levels', znu), &
      field('ZNW', 'Z  ', 'Z', '', 'one less height over that of the lid, on w levels', znw), &
      field('U', 'XYZ', 'X', 'm s-1', 'x-wind component', u), &
      field('V', 'XYZ', 'Y', 'm s-1', 'y-wind component', v), &
      field('W', 'XYZ', 'Z', 'm s-1', 'z-wind component', w), &
      field('PH', 'XYZ', 'Z', 'm2 s-2', 'perturbation geopotential', ph), &
      field('PHB', 'XYZ', 'Z', 'm2 s-2', 'base-state geopotential', phb), &
      field('T', 'XYZ', ' ', 'K', 'perturbation potential temperature theta-t0', t), &
      field('P', 'XYZ', ' ', 'Pa', 'perturbation pressure', pp), &
      field('PB', 'XYZ', ' ', 'Pa', 'BASE STATE PRESSURE', pb), &
      field('ALT', 'XYZ', ' ', 'm3 kg-1', 'inverse density of dry air', alt), &
      field('Q2', 'XY ', ' ', 'kg kg-1', 'QV at the lowest level', q2), &
      field('T2', 'XY ', ' ', 'K', 'TEMP at the lowest level', t2), &
      field('TH2', 'XY ', ' ', 'K', 'POT TEMP at the lowest level', th2), &
      field('PSFC', 'XY ', ' ', 'Pa', 'SFC PRESSURE', psfc), &
      field('U10', 'XY ', ' ', 'm s-1', 'U at the lowest level', u10), &
      field('V10', 'XY ', ' ', 'm s-1', 'V at the lowest level', v10), &
      field('QVAPOR', 'XYZ', ' ', 'kg kg-1', 'Water vapor mixing ratio', qv), &
      field('QCLOUD', 'XYZ', ' ', 'kg kg-1', 'Cloud water mixing ratio', qc), &
      field('QRAIN', 'XYZ', ' ', 'kg kg-1', 'Rain water mixing ratio', qr), &
      field('MAPFAC_M', 'XY ', ' ', '', 'Map scale factor on mass grid', one), &
      field('F', 'XY ', ' ', 's-1', 'Coriolis sine latitude term', zero), &
      field('SINALPHA', 'XY ', ' ', '', 'Local sine of map rotation', zero), &
      field('COSALPHA', 'XY ', ' ', '', 'Local cosine of map rotation', one), &
      field('HGT', 'XY ', ' ', 'm', 'Terrain Height', zero), &
      field('P_TOP', '0  ', ' ', 'Pa', 'PRESSURE TOP OF THE MODEL', p_top), &
      field('XTIME', '0  ', ' ', 'minutes since 0001-01-01 00:00:00', 'minutes since 0001-01-01 00:00:00', xtime), &
      field('RAINNC', 'XY ', ' ', 'mm', 'ACCUMULATED TOTAL GRID SCALE PRECIPITATION', rainnc), &
      field('REFL_10CM', 'XYZ', ' ', 'dBZ', 'Radar reflectivity (lamda = 10 cm)', refl_10cm), &
      field('REFD_COM', 'XY ', ' ', 'dBZ', 'DERIVED COMPOSITE RADAR REFLECTIVITY', refd_com), &
      field('UP_HELI_MAX', 'XY ', ' ', 'm2 s-2', 'MAX UPDRAFT HELICITY', up_heli_max), &
      field('W_UP_MAX', 'XY ', ' ', 'm s-1', 'MAX Z-WIND UPDRAFT', w_up_max), &
      field('W_DN_MAX', 'XY ', ' ', 'm s-1', 'MAX Z-WIND DOWNDRAFT', w_dn_max), &
      field('WSPD10MAX', 'XY ', ' ', 'm s-1', 'MAX WIND SPEED at the lowest level', wspd10max), &
      field('XLAT_U', 'XY ', 'X', 'degree_north', lat, xlat_u), &
      field('XLONG_U', 'XY ', 'X', 'degree_east', lon, xlong_u), &
      field('XLAT_V', 'XY ', 'Y', 'degree_north', lat, xlat_v), &
      field('XLONG_V', 'XY ', 'Y', 'degree_east', lon, xlong_v)]
  end function history_fields

  !> The whole state: nothing else, and nothing less, is needed to go on as if there had been no break.
  function restart_fields() result(fields)
    type(field), allocatable :: fields(:)

    fields = [ &
      field('RU', 'XYZ', 'X', 'kg m-2 s-1', 'x-momentum of dry air', ru), &
      field('RV', 'XYZ', 'Y', 'kg m-2 s-1', 'y-momentum of dry air', rv), &
      field('RW', 'XYZ', 'Z', 'kg m-2 s-1', 'z-momentum of dry air', rw), &
      field('RHO_P', 'XYZ', ' ', 'kg m-3', 'perturbation density of dry air', rho), &
      field('RTHM_P', 'XYZ', ' ', 'K kg m-3', 'perturbation density times moist pot. temp.', th), &
      field('QVAPOR', 'XYZ', ' ', 'kg kg-1', 'Water vapor mixing ratio', qv), &
      field('QCLOUD', 'XYZ', ' ', 'kg kg-1', 'Cloud water mixing ratio', qc), &
      field('QRAIN', 'XYZ', ' ', 'kg kg-1', 'Rain water mixing ratio', qr), &
      field('RAINNC', 'XY ', ' ', 'mm', 'ACCUMULATED TOTAL GRID SCALE PRECIPITATION', rainnc), &
      field('UP_HELI_MAX', 'XY ', ' ', 'm2 s-2', 'MAX UPDRAFT HELICITY', up_heli_max), &
      field('W_UP_MAX', 'XY ', ' ', 'm s-1', 'MAX Z-WIND UPDRAFT', w_up_max), &
      field('W_DN_MAX', 'XY ', ' ', 'm s-1', 'MAX Z-WIND DOWNDRAFT', w_dn_max), &
      field('WSPD10MAX', 'XY ', ' ', 'm s-1', 'MAX WIND SPEED at the lowest level', wspd10max)]
  end function restart_fields

  !> WRF's global attributes, as far as they have a meaning here; `patch` is the part of the grid in the file.
  function file_attributes(patch, restart_step) result(list)
    type(box), intent(in) :: patch
    integer, intent(in) :: restart_step                     !! negative: the file is no restart
    type(attribute), allocatable :: list(:)
    character(len=*), parameter :: axis_names(3) = [character(len=11) :: 'WEST-EAST', 'SOUTH-NORTH', 'BOTTOM-TOP']
    integer :: axis

    list = [text('TITLE', ' OUTPUT FROM SQUALL V1.0 MODEL'), text('START_DATE', start_date), &
      text('SIMULATION_START_DATE', start_date)]
    do axis = 1, 3
      list = [list, whole(trim(axis_names(axis))//'_GRID_DIMENSION', grid_size(axis) + 1)]
    end do
    list = [list, number('DX', dx), number('DY', dx), text('GRIDTYPE', 'C'), text('SQUALL_CASE', trim(case)), &
      number('SQUALL_FRAME_U', frame_u), number('SQUALL_FRAME_V', frame_v), number('SQUALL_VISCOSITY', viscosity), &
      whole('MP_PHYSICS', 1), number('DT', dt), whole('NTASKS_X', layout(1)), whole('NTASKS_Y', layout(2)), &
      whole('NTASKS_TOTAL', ranks), text('SIMULATION_INITIALIZATION_TYPE', 'IDEALIZED DATA')]
    do axis = 1, 3
      list = [list, &
        whole(trim(axis_names(axis))//'_PATCH_START_UNSTAG', patch%first(axis)), &
        whole(trim(axis_names(axis))//'_PATCH_END_UNSTAG', patch%last(axis)), &
        whole(trim(axis_names(axis))//'_PATCH_START_STAG', patch%first(axis)), &
        whole(trim(axis_names(axis))//'_PATCH_END_STAG', patch%last_staggered(axis))]
    end do
    list = [list, whole('GRID_ID', 1), whole('PARENT_ID', 0), whole('I_PARENT_START', 0), whole('J_PARENT_START', 0), &
      whole('PARENT_GRID_RATIO', 1), number('CEN_LAT', 0.0_wp), number('CEN_LON', 0.0_wp), number('TRUELAT1', 0.0_wp), &
      number('TRUELAT2', 0.0_wp), number('MOAD_CEN_LAT', 0.0_wp), number('STAND_LON', 0.0_wp), number('POLE_LAT', 0.0_wp), &
      number('POLE_LON', 0.0_wp), number('GMT', 0.0_wp), whole('JULYR', 1), whole('JULDAY', 1), whole('MAP_PROJ', 0), &
      text('MAP_PROJ_CHAR', 'Cartesian')]
    if (restart_step >= 0) list = [list, whole('FLAG_RESTART', 1), whole('ITIMESTEP', restart_step)]
  contains

    type(attribute) function text(name, value)
      character(len=*), intent(in) :: name, value
      text = attribute(name, 't', value, 0.0_wp)
    end function text

    type(attribute) function whole(name, value)
      character(len=*), intent(in) :: name
      integer, intent(in) :: value
      whole = attribute(name, 'i', '', real(value, wp))
    end function whole

    type(attribute) function number(name, value)
      character(len=*), intent(in) :: name
      real(wp), intent(in) :: value
      number = attribute(name, 'r', '', value)
    end function number
  end function file_attributes

  !> Names and lengths of a field's dimensions in a file of this patch, x first and without Time; `axes` are 1, 2, 3 for x, y, z.
  subroutine file_dimensions(what, patch, axes, names, lengths)
    type(field), intent(in) :: what
    type(box), intent(in) :: patch
    integer, allocatable, intent(out) :: axes(:), lengths(:)
    character(len=16), allocatable, intent(out) :: names(:)
    character(len=*), parameter :: bases(3) = [character(len=11) :: 'west_east', 'south_north', 'bottom_top']
    integer :: first(3), last(3), n

    call patch_range(patch, what%stagger, what%order, first, last)
    axes = pack([1, 2, 3], [(index(what%order, 'XYZ'(n:n)) > 0, n=1, 3)])
    lengths = last(axes) - first(axes) + 1
    allocate (names(size(axes)))
    do n = 1, size(axes)
      names(n) = trim(bases(axes(n)))//trim(merge('_stag', '     ', what%stagger == 'XYZ'(axes(n):axes(n))))
    end do
  end subroutine file_dimensions

  !> WRF's `coordinates` of a field with a horizontal extent.
  function coordinates(what) result(text)
    type(field), intent(in) :: what
    character(len=:), allocatable :: text, suffix

    suffix = ''
    if (what%stagger == 'X') suffix = '_U'
    if (what%stagger == 'Y') suffix = '_V'
    text = 'XLONG'//suffix//' XLAT'//suffix
    if (index(what%name, 'XL') /= 1) text = text//' XTIME'
  end function coordinates

  !> What a patch holds of a field, in the order of files: x fastest, then y, then z.
  subroutine take_patch(from, patch, block)
    type(field), intent(in) :: from
    type(box), intent(in) :: patch
    real(wp), allocatable, intent(inout) :: block(:, :, :)
    integer :: first(3), last(3), j, k

    call patch_range(patch, from%stagger, from%order, first, last)
    if (allocated(block)) deallocate (block)
    allocate (block(first(1):last(1), first(2):last(2), first(3):last(3)))
    do k = first(3), last(3)
      do j = first(2), last(2)
        block(:, j, k) = from%values(first(1):last(1), k, j)
      end do
    end do
  end subroutine take_patch

  !> The way back: a block of the file, which begins at `first`, into the model's array.
  subroutine put_patch(block, first, into)
    real(wp), intent(in) :: block(:, :, :)
    integer, intent(in) :: first(3)
    type(field), intent(in) :: into
    integer :: j, k

    do k = 1, size(block, 3)
      do j = 1, size(block, 2)
        into%values(first(1):first(1) + size(block, 1) - 1, first(3) + k - 1, first(2) + j - 1) = block(:, j, k)
      end do
    end do
  end subroutine put_patch
end module squall_fields
