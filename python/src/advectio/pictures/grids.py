"""Where the points of a field lie: which of its dimensions is which, latitude and longitude, height, pressure, projection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from advectio.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

GRAVITY = 9.81  # as WRF has it
EARTH_RADIUS_M = 6370000.0  # of WRF's sphere

_RECORDS = ("Time", "time", "ocean_time", "time_counter", "t")
_LATITUDES = ("degree_north", "degrees_north", "degree_N", "degrees_N", "degreeN", "degreesN")
_LONGITUDES = ("degree_east", "degrees_east", "degree_E", "degrees_E", "degreeE", "degreesE")
_LATITUDE_NAMES = ("XLAT", "XLAT_M", "CLAT", "XLAT_U", "XLAT_V", "lat", "latitude", "nav_lat", "gphit", "lat_rho")
_LONGITUDE_NAMES = ("XLONG", "XLONG_M", "CLONG", "XLONG_U", "XLONG_V", "lon", "longitude", "nav_lon", "glamt", "lon_rho")


def record_dimension(ds: xr.Dataset) -> str | None:
    """Along which the frames of a file follow each other."""
    unlimited = [str(d) for d in ds.encoding.get("unlimited_dims", ()) if d in ds.dims]
    for name in _RECORDS:
        if name in ds.dims:
            return name
    return unlimited[0] if len(unlimited) == 1 else None


def _without_record(field: xr.DataArray) -> list[str]:
    return [str(d) for d in field.dims if d not in _RECORDS]


def horizontal_dimensions(field: xr.DataArray) -> tuple[str, str] | None:
    """y and x: the last two, as models write them."""
    dims = _without_record(field)
    if "nCells" in dims or "nEdges" in dims or "nVertices" in dims:
        raise UserError(f"{field.name} is on an unstructured mesh ({', '.join(dims)}): such maps are not drawn")
    return (dims[-2], dims[-1]) if len(dims) >= 2 else None


def vertical_dimension(field: xr.DataArray) -> str | None:
    dims = _without_record(field)
    return dims[-3] if len(dims) >= 3 else None


def one_frame(field: xr.DataArray) -> xr.DataArray:
    """Without its record dimension, whose length is one."""
    records = [d for d in field.dims if d in _RECORDS]
    return field.isel(dict.fromkeys(records, 0), drop=True)


def places(ds: xr.Dataset, dims: tuple[str, str]) -> tuple[np.ndarray, np.ndarray] | None:
    """Latitude and longitude of each point, [y][x]; None where the file has none, or they are the same everywhere."""
    import numpy as np

    latitude = _coordinate(ds, dims, _LATITUDE_NAMES, _LATITUDES, "latitude")
    longitude = _coordinate(ds, dims, _LONGITUDE_NAMES, _LONGITUDES, "longitude")
    if int(ds.attrs.get("MAP_PROJ", 1)) == 0:
        return None
    if latitude is None or longitude is None:
        found = places_by_mapping(ds, dims)
        if found is None:
            return None
        latitude, longitude = found
    if latitude.ndim == 1 and longitude.ndim == 1:
        longitude, latitude = np.meshgrid(longitude, latitude)
    if latitude.shape != longitude.shape or latitude.ndim != 2:
        return None
    finite = np.isfinite(latitude).all() and np.isfinite(longitude).all()
    if not finite or (np.ptp(latitude) == 0 and np.ptp(longitude) == 0):
        return None
    # Over the date line longitudes go on, so that neighbours are near.
    return latitude, np.rad2deg(np.unwrap(np.unwrap(np.deg2rad(longitude), axis=1), axis=0))


def _coordinate(
    ds: xr.Dataset, dims: tuple[str, str], names: Sequence[str], units: Sequence[str], standard_name: str
) -> np.ndarray | None:
    import numpy as np

    def fits(variable: Any) -> bool:
        own = tuple(d for d in variable.dims if d not in _RECORDS)
        return own == dims or (len(own) == 1 and own[0] == dims[0 if standard_name == "latitude" else 1])

    def says(variable: Any) -> bool:
        return variable.attrs.get("standard_name") == standard_name or variable.attrs.get("units") in units

    candidates = [name for name in names if name in ds.variables and fits(ds.variables[name])]
    candidates += [name for name in (*ds.coords, *ds.data_vars) if says(ds.variables[name]) and fits(ds.variables[name])]
    if not candidates:
        return None
    return np.asarray(one_frame(ds[candidates[0]]).values, dtype=float)


def grid_mapping(ds: xr.Dataset, dims: tuple[str, str]) -> dict[str, Any] | None:
    """Attributes of CF's `grid_mapping` of the fields on these points; None where there is none."""
    for variable in ds.variables.values():
        text = str(variable.attrs.get("grid_mapping") or variable.encoding.get("grid_mapping") or "")
        name = text.split(":")[0].split(" ")[0]
        if name in ds.variables and tuple(map(str, variable.dims[-2:])) == dims:
            attrs = {str(key): value for key, value in ds.variables[name].attrs.items()}
            if attrs.get("grid_mapping_name"):
                return attrs
    return None


def places_by_mapping(ds: xr.Dataset, dims: tuple[str, str]) -> tuple[np.ndarray, np.ndarray] | None:
    """Latitude and longitude of x and y of a projection. Needs Cartopy."""
    import numpy as np

    mapping = grid_mapping(ds, dims)
    if mapping is None or any(dim not in ds.variables or ds.variables[dim].dims != (dim,) for dim in dims):
        return None
    try:
        import cartopy.crs as ccrs
    except ImportError:
        return None
    crs = projection_of(mapping)
    if crs is None or crs == "degrees":
        return None
    y, x = (
        np.asarray(ds.variables[dim].values, dtype=float) * (1000.0 if ds.variables[dim].attrs.get("units") == "km" else 1.0)
        for dim in dims
    )
    points = ccrs.PlateCarree(globe=crs.globe).transform_points(crs, *np.meshgrid(x, y))
    return points[..., 1], points[..., 0]


def spacing_km(ds: xr.Dataset) -> tuple[float, float] | None:
    """Of the grid's points along y and x, where the file tells it."""
    if "DX" in ds.attrs and "DY" in ds.attrs:
        return float(ds.attrs["DY"]) / 1000, float(ds.attrs["DX"]) / 1000
    return None


@dataclass(frozen=True)
class Axis:
    """What is written beside a picture, and where each point lies on it."""

    values: np.ndarray
    label: str
    upside_down: bool = False


def plain_axis(ds: xr.Dataset, dim: str, number: int) -> Axis:
    """Kilometres from the middle where the spacing is known, the file's coordinate where it has one, else indices."""
    import numpy as np

    name = dim.split("_")[0]
    spacing = spacing_km(ds)
    if spacing is not None and name in ("south", "west"):
        step = spacing[0 if name == "south" else 1]
        words = "south to north" if name == "south" else "west to east"
        return Axis((np.arange(number) + 0.5 - number / 2) * step, f"{words} (km)")
    if dim in ds.coords and ds[dim].dims == (dim,) and ds[dim].dtype.kind in "fiu":
        units = str(ds[dim].attrs.get("units", ""))
        values = np.asarray(ds[dim].values, dtype=float)
        if units == "m" and np.ptp(values) >= 5000:
            return Axis(values / 1000, f"{dim} (km)")
        return Axis(values, f"{dim} ({units})" if units not in ("", "1") else dim)
    return Axis(np.arange(number, dtype=float), f"{dim} (index)")


@dataclass(frozen=True)
class LevelAxis:
    """The file's coordinate of a field's levels, one value a level."""

    values: np.ndarray
    name: str
    units: str  # as in the file
    down: bool  # grows downwards: depth, pressure, `positive: down`
    formula: bool  # the values only name the levels: hybrid levels, sigma
    vertical: bool  # by its attributes

    @property
    def first_is_top(self) -> bool:
        """The first level lies above the last one."""
        return self.down == bool(self.values[-1] > self.values[0])

    @property
    def hpa(self) -> np.ndarray | None:
        factor = _HPA.get(self.units)
        return None if factor is None or self.formula else self.values * factor

    @property
    def km(self) -> np.ndarray | None:
        factor = _KM.get(self.units)
        return None if factor is None or self.formula else self.values * factor


_VERTICAL = frozenset(("air_pressure", "height", "altitude", "depth", "model_level_number"))
_HPA = dict.fromkeys(("hPa", "mbar", "mb", "millibar", "millibars", "hectopascal", "hectopascals"), 1.0) | {
    "Pa": 0.01, "pascal": 0.01, "pascals": 0.01, "Pascal": 0.01, "Pascals": 0.01, "kPa": 10.0, "bar": 1000.0, "dbar": 100.0,
}  # fmt: skip
_KM = dict.fromkeys(("m", "meter", "meters", "metre", "metres"), 0.001) | dict.fromkeys(("km", "kilometer", "kilometers"), 1.0)


def level_axis(ds: xr.Dataset, dim: str | None) -> LevelAxis | None:
    """Of the dimension of levels: the variable of its name, else one along it that is vertical by its attributes."""
    if dim is None:
        return None
    names = [dim] if dim in ds.variables else []
    names += [str(name) for name in ds.variables if name != dim and _vertical(ds.variables[name])]
    for name in names:
        if ds.variables[name].dims == (dim,) and ds.variables[name].dtype.kind in "fiu":
            return axis_of(name, ds.variables[name])
    return None


def axis_of(name: str, variable: Any) -> LevelAxis:
    import numpy as np

    attrs = variable.attrs
    units = str(attrs.get("units", "")).strip()
    standard = str(attrs.get("standard_name", ""))
    positive = str(attrs.get("positive", "")).lower()
    formula = "formula_terms" in attrs or standard.startswith(("atmosphere_", "ocean_"))
    down = units in _HPA or standard == "depth" or "depth" in name.lower() or name == "nav_lev"
    down = down or ("sigma" in standard and standard.startswith("atmosphere_"))
    if positive and units not in _HPA:  # pressure falls upwards, whatever the attribute says
        down = positive == "down"
    return LevelAxis(np.atleast_1d(np.asarray(variable.values, dtype=float)), name, units, down, formula, _vertical(variable))


def _vertical(variable: Any) -> bool:
    attrs = variable.attrs
    return (
        variable.ndim <= 1
        and variable.dtype.kind in "fiu"
        and (
            str(attrs.get("axis", "")).upper() == "Z"
            or str(attrs.get("positive", "")).lower() in ("up", "down")
            or attrs.get("standard_name") in _VERTICAL
            or str(attrs.get("units", "")) in _HPA
        )
    )


def heights_km(ds: xr.Dataset, field: xr.DataArray) -> np.ndarray | None:
    """Of each point of a field with levels, [z][y][x] or [z], above the sea; None where the file does not tell."""
    import numpy as np

    dim = vertical_dimension(field)
    if {"PH", "PHB"} <= set(ds.variables):
        from advectio.pictures.expressions import destaggered

        total = one_frame(ds["PH"] + ds["PHB"]) / GRAVITY / 1000
        if dim == "bottom_top":
            total = destaggered(total)
        found = total.values
        # Of a field on the sides of cells: the height at the cells beside, at the edge that of the last.
        for axis, name in enumerate(horizontal_dimensions(field) or ()):
            if name.endswith("_stag"):
                found = _between(found, axis + 1)
        return found if dim in ("bottom_top", "bottom_top_stag") and found.ndim == 3 else None
    if "GHT" in ds.variables and one_frame(ds["GHT"]).dims == one_frame(field).dims:
        return np.asarray(one_frame(ds["GHT"]).values) / 1000
    for name in ("height", "altitude", "z", "geopotential_height"):
        if name in ds.variables and one_frame(ds[name]).dims == one_frame(field).dims and ds[name].attrs.get("units") == "m":
            return np.asarray(one_frame(ds[name]).values) / 1000
    levels = level_axis(ds, dim)
    return levels.km if levels is not None and not levels.down else None


def _between(values: np.ndarray, axis: int) -> np.ndarray:
    """On the sides of cells, of the values in them."""
    import numpy as np

    first, last = np.take(values, [0], axis), np.take(values, [-1], axis)
    result: np.ndarray = 0.5 * (np.concatenate([first, values], axis) + np.concatenate([values, last], axis))
    return result


def pressures_hpa(ds: xr.Dataset, field: xr.DataArray) -> np.ndarray | None:
    """Of each point, [z][y][x]; None where the file does not tell."""
    import numpy as np

    dims = horizontal_dimensions(field) or ()
    if {"P", "PB"} <= set(ds.variables) and vertical_dimension(field) == "bottom_top":
        found = np.asarray(one_frame(ds["P"] + ds["PB"]).values) / 100
        for axis, name in enumerate(dims):
            if name.endswith("_stag"):
                found = _between(found, axis + 1)
        return found
    for name in ("PRES", "pressure", "air_pressure"):
        if name in ds.variables and one_frame(ds[name]).dims == one_frame(field).dims:
            units = str(ds[name].attrs.get("units", "")).strip()
            factor = 0.01 if name == "PRES" and not units else _HPA.get(units)  # METGRID writes no unit
            return None if factor is None else np.asarray(one_frame(ds[name]).values) * factor
    levels = level_axis(ds, vertical_dimension(field))
    if levels is None:
        return None
    if levels.formula:
        return _hybrid_pressures(ds, levels, field)
    return None if levels.hpa is None else np.broadcast_to(levels.hpa[:, None, None], one_frame(field).shape)


def _hybrid_pressures(ds: xr.Dataset, axis: LevelAxis, field: xr.DataArray) -> np.ndarray | None:
    """By CF's `formula_terms` of hybrid and sigma levels: a p0 + b ps, ap + b ps, ptop + sigma (ps - ptop)."""
    import numpy as np

    text = str(ds.variables[axis.name].attrs.get("formula_terms", ""))
    parts = text.replace(":", " ").split()
    terms = dict(zip(parts[::2], parts[1::2], strict=False))
    if any(name not in ds.variables for name in terms.values()):
        return None
    one = {term: one_frame(ds[name]) for term, name in terms.items()}
    scale = {term: _HPA.get(str(value.attrs.get("units"))) for term, value in one.items()}
    shape = one_frame(field)

    def hpa(term: str) -> Any:
        factor = scale[term]
        return None if factor is None else one[term].astype("float64") * factor

    if {"a", "b", "p0", "ps"} <= set(one) and None not in (scale["p0"], scale["ps"]):
        found = one["a"] * hpa("p0") + one["b"] * hpa("ps")
    elif {"ap", "b", "ps"} <= set(one) and None not in (scale["ap"], scale["ps"]):
        found = hpa("ap") + one["b"] * hpa("ps")
    elif {"sigma", "ps", "ptop"} <= set(one) and None not in (scale["ps"], scale["ptop"]):
        found = hpa("ptop") + one["sigma"] * (hpa("ps") - hpa("ptop"))
    else:
        return None
    if set(found.dims) != set(shape.dims):
        return None
    return np.asarray(found.transpose(*shape.dims).values)


def interpolated(values: np.ndarray, where: np.ndarray, wanted: float) -> np.ndarray:
    """Each column's value where `where` (monotonous in z) is `wanted`, linear between its levels; NaN outside of them."""
    import numpy as np

    if where.ndim == 1:
        where = where[:, None, None]
    where = np.broadcast_to(where, values.shape)
    if values.shape[0] < 2:
        return np.full(values.shape[1:], np.nan)
    low, high = where[:-1], where[1:]
    within = ((low <= wanted) & (wanted <= high)) | ((high <= wanted) & (wanted <= low))
    layer = within.argmax(axis=0)[None]
    a, b = (np.take_along_axis(each, layer, 0)[0] for each in (low, high))
    u, v = (np.take_along_axis(each, layer, 0)[0] for each in (values[:-1], values[1:]))
    with np.errstate(invalid="ignore", divide="ignore"):
        weight = np.where(a == b, 0.0, (wanted - a) / (b - a))
    return np.where(within.any(axis=0), u + weight * (v - u), np.nan)


def along_line(values: np.ndarray, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The last two dimensions at fractional indices, bilinear."""
    import numpy as np

    ny, nx = values.shape[-2:]
    y0, x0 = np.clip(np.floor(y).astype(int), 0, max(ny - 2, 0)), np.clip(np.floor(x).astype(int), 0, max(nx - 2, 0))
    y1, x1 = np.minimum(y0 + 1, ny - 1), np.minimum(x0 + 1, nx - 1)
    fy, fx = y - y0, x - x0
    south = values[..., y0, x0] * (1 - fx) + values[..., y0, x1] * fx
    north = values[..., y1, x0] * (1 - fx) + values[..., y1, x1] * fx
    result: np.ndarray = south * (1 - fy) + north * fy
    return result


def nearest_point(latitude: np.ndarray, longitude: np.ndarray, wanted: tuple[float, float]) -> tuple[int, int]:
    """y and x of the point nearest to a latitude and longitude. Raises UserError where that lies outside."""
    import numpy as np

    lat, lon = wanted
    east = (longitude - lon + 180) % 360 - 180
    distance = np.hypot(latitude - lat, east * np.cos(np.deg2rad(lat)))
    y, x = (int(i) for i in np.unravel_index(int(np.argmin(distance)), distance.shape))
    # As far as neighbours are from each other, and no more.
    steps = [np.hypot(np.diff(latitude, axis=axis), np.diff(longitude, axis=axis)) for axis in (0, 1)]
    step = max(float(each.max()) for each in steps if each.size)
    if distance[y, x] > max(step, 1e-3):
        raise UserError(
            f"{lat:g}, {lon:g} lies outside of the domain: latitude {latitude.min():.2f} to {latitude.max():.2f}, "
            f"longitude {longitude.min():.2f} to {longitude.max():.2f}"
        )
    return y, x


def kilometres(latitude: np.ndarray, longitude: np.ndarray) -> np.ndarray:
    """From the first point along the line through all of them."""
    import numpy as np

    phi, lam = np.deg2rad(latitude), np.deg2rad(longitude)
    half = np.sin(np.diff(phi) / 2) ** 2 + np.cos(phi[:-1]) * np.cos(phi[1:]) * np.sin(np.diff(lam) / 2) ** 2
    steps = 2 * EARTH_RADIUS_M / 1000 * np.arcsin(np.sqrt(half))
    return np.concatenate([[0.0], np.cumsum(steps)])


def _globe(mapping: dict[str, Any]) -> Any:
    """The earth of a grid mapping: a sphere or an ellipsoid; WGS 84 where it does not tell."""
    import cartopy.crs as ccrs

    def number(name: str) -> float | None:
        return float(mapping[name]) if name in mapping else None

    radius = number("earth_radius")
    if radius is not None:
        return ccrs.Globe(ellipse=None, semimajor_axis=radius, semiminor_axis=radius)
    major = number("semi_major_axis")
    if major is None:
        return ccrs.Globe()
    minor, flattening = number("semi_minor_axis"), number("inverse_flattening")
    if minor is None and not flattening:  # 0 stands for a sphere
        minor = major
    return ccrs.Globe(
        ellipse=None, semimajor_axis=major, semiminor_axis=minor, inverse_flattening=None if minor is not None else flattening
    )


def projection_of(mapping: dict[str, Any]) -> Any:
    """Cartopy's, of the attributes of CF's grid mapping; "degrees" for plain latitude and longitude; None for one that is
    not known here, or lacks a parameter. In degrees (rotated pole) or metres, as CF's x and y."""
    import cartopy.crs as ccrs
    import numpy as np

    def number(*names: str, default: float | None = None) -> float:
        for name in names:
            if name in mapping:
                return float(np.atleast_1d(mapping[name])[0])
        if default is None:
            raise KeyError(names[0])
        return default

    def parallels() -> list[float]:
        return sorted(float(each) for each in np.atleast_1d(mapping["standard_parallel"]))

    globe = _globe(mapping)
    false = {"false_easting": number("false_easting", default=0), "false_northing": number("false_northing", default=0)}
    try:
        match mapping["grid_mapping_name"]:
            case "latitude_longitude":
                return "degrees"
            case "rotated_latitude_longitude":
                return ccrs.RotatedPole(
                    pole_longitude=number("grid_north_pole_longitude"),
                    pole_latitude=number("grid_north_pole_latitude"),
                    central_rotated_longitude=number("north_pole_grid_longitude", default=0),
                    globe=globe,
                )
            case "lambert_conformal_conic":
                return ccrs.LambertConformal(
                    central_longitude=number("longitude_of_central_meridian"),
                    central_latitude=number("latitude_of_projection_origin"),
                    standard_parallels=parallels(),
                    globe=globe,
                    cutoff=-30 if parallels()[0] >= 0 else 30,
                    **false,
                )
            case "albers_conical_equal_area":
                return ccrs.AlbersEqualArea(
                    central_longitude=number("longitude_of_central_meridian"),
                    central_latitude=number("latitude_of_projection_origin"),
                    standard_parallels=parallels(),
                    globe=globe,
                    **false,
                )
            case "polar_stereographic":
                pole = number("latitude_of_projection_origin", default=90)
                scale = (
                    {"scale_factor": number("scale_factor_at_projection_origin")} if "standard_parallel" not in mapping else {}
                )
                return ccrs.Stereographic(
                    central_latitude=90.0 if pole >= 0 else -90.0,
                    central_longitude=number("straight_vertical_longitude_from_pole", "longitude_of_projection_origin"),
                    true_scale_latitude=None if scale else number("standard_parallel"),
                    globe=globe,
                    **scale,
                    **false,
                )
            case "stereographic":
                return ccrs.Stereographic(
                    central_latitude=number("latitude_of_projection_origin"),
                    central_longitude=number("longitude_of_projection_origin"),
                    scale_factor=number("scale_factor_at_projection_origin", default=1),
                    globe=globe,
                    **false,
                )
            case "mercator":
                scale = (
                    {"scale_factor": number("scale_factor_at_projection_origin")}
                    if "standard_parallel" not in mapping and "scale_factor_at_projection_origin" in mapping
                    else {"latitude_true_scale": number("standard_parallel", default=0)}
                )
                return ccrs.Mercator(
                    central_longitude=number("longitude_of_projection_origin", default=0), globe=globe, **scale, **false
                )
            case "transverse_mercator":
                return ccrs.TransverseMercator(
                    central_longitude=number("longitude_of_central_meridian", "longitude_of_projection_origin"),
                    central_latitude=number("latitude_of_projection_origin", default=0),
                    scale_factor=number("scale_factor_at_central_meridian", default=1),
                    globe=globe,
                    **false,
                )
            case "lambert_azimuthal_equal_area":
                return ccrs.LambertAzimuthalEqualArea(
                    central_longitude=number("longitude_of_projection_origin"),
                    central_latitude=number("latitude_of_projection_origin"),
                    globe=globe,
                    **false,
                )
    except (KeyError, TypeError, ValueError):
        return None
    return None


def projection(
    attrs: dict[Any, Any], latitude: np.ndarray, longitude: np.ndarray, mapping: dict[str, Any] | None = None
) -> Any:
    """Cartopy's: of CF's grid mapping where there is one, else of WRF's attributes, else plain latitude and longitude."""
    import cartopy.crs as ccrs

    told = projection_of(mapping) if mapping is not None else None
    if told is not None and told != "degrees":
        return told

    globe = ccrs.Globe(ellipse=None, semimajor_axis=EARTH_RADIUS_M, semiminor_axis=EARTH_RADIUS_M)
    kind = int(attrs.get("MAP_PROJ", -1))
    middle = round(float(longitude.mean()), 2)
    if kind == 1:
        parallels = sorted({float(attrs["TRUELAT1"]), float(attrs["TRUELAT2"])})
        return ccrs.LambertConformal(
            central_longitude=float(attrs["STAND_LON"]),
            central_latitude=float(attrs.get("MOAD_CEN_LAT", attrs.get("CEN_LAT", latitude.mean()))),
            standard_parallels=parallels,
            globe=globe,
            cutoff=-30 if parallels[0] >= 0 else 30,
        )
    if kind == 2:
        first = float(attrs["TRUELAT1"])
        return ccrs.Stereographic(
            central_latitude=90.0 if first >= 0 else -90.0,
            central_longitude=float(attrs["STAND_LON"]),
            true_scale_latitude=first,
            globe=globe,
        )
    if kind == 3:
        return ccrs.Mercator(central_longitude=middle, latitude_true_scale=float(attrs["TRUELAT1"]), globe=globe)
    return ccrs.PlateCarree(central_longitude=middle, globe=globe)
