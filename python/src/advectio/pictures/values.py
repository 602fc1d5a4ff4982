"""What a plot shows of a frame: numbers in the unit they are shown in, with their axes. No drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from advectio.errors import UserError
from advectio.pictures import grids, looks
from advectio.pictures.expressions import Expression, WrongExpression
from advectio.pictures.frames import Frame
from advectio.pictures.grids import Axis
from advectio.pictures.recipes import At, Level, Plot, place_text

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr


@dataclass(frozen=True)
class Field:
    """Values without record dimension, and what is written about them."""

    array: xr.DataArray
    name: str
    label: str
    units: str
    look: looks.Look


@dataclass(frozen=True)
class Map:
    field: Field
    values: np.ndarray  # [y][x]
    dims: tuple[str, str]
    place: tuple[np.ndarray, np.ndarray] | None
    level: str


@dataclass(frozen=True)
class Section:
    field: Field
    values: np.ndarray  # [z][s]
    along: Axis
    up: np.ndarray  # [z][s]
    up_label: str
    upside_down: bool
    ground: np.ndarray | None  # [s]
    where: str


def field_of(expression: Expression, frame: Frame, plot: Plot, units: str | None = None) -> Field:
    """In the unit asked for, else in the one that is usual for such a field."""
    try:
        array = grids.one_frame(expression.evaluate(frame.ds))
    except WrongExpression as error:
        raise UserError(f"{plot.origin}: {error} (in {frame.source or 'this frame'})") from error
    if array.dtype.kind not in "fiub":
        raise UserError(f"{plot.origin}: {expression.name} holds no numbers, but {array.dtype}")
    have = looks.spelled(str(array.attrs.get("units", "")))
    look = looks.look_of(expression.name, have, str(array.attrs.get("standard_name", "")))
    label = str(array.attrs.get("long_name") or array.attrs.get("description") or array.attrs.get("standard_name") or "")
    label = _readable(label) or expression.name
    wanted = units or plot.units
    if wanted is not None:
        changed = looks.converted(array.astype("float64"), have, wanted)
        if changed is None and have:
            known = looks.known_conversions(have)
            raise UserError(
                f"{plot.origin}: {expression.name} is in {have}, and cannot be shown in {wanted}"
                + (f"; known: {', '.join(known)}" if known else "")
            )
        if looks.spelled(wanted) != look.units:
            look = _without_steps(look)
        return Field(array if changed is None else changed, expression.name, label, looks.spelled(wanted), look)
    usual = looks.converted(array.astype("float64"), have, look.units) if look.units else None
    if usual is not None and look.units is not None:
        return Field(usual, expression.name, label, look.units, look)
    return Field(array.astype("float64"), expression.name, label, have, look)


def _without_steps(look: looks.Look) -> looks.Look:
    return replace(look, levels=None)


_WORDS = {"TEMP": "temperature", "POT": "potential", "SFC": "surface", "M": "m", "PRES": "pressure", "HGT": "height",
          "QV": "water vapour"}  # fmt: skip


def _readable(label: str) -> str:
    """WRF writes `TEMP at 2 M` and `BASE STATE PRESSURE`: its short forms in full, words in capitals in small letters."""
    words = []
    for word in label.replace("lamda", "λ").split():
        if word in _WORDS:
            words.append(_WORDS[word])
        else:
            words.append(word.lower() if word.isalpha() and word.isupper() and len(word) > 1 else word)
    return " ".join(words)


def axis_text(axis: grids.LevelAxis, index: int) -> str:
    """A level by its coordinate: `500 hPa`, `10 m`, `depth 5 m`; `level 3 (0.98)` where the number only names it."""
    value, units = float(axis.values[index]), looks.spelled(axis.units)
    if axis.hpa is not None:
        return f"{axis.hpa[index]:g} hPa"
    plain = units in ("", "1") or axis.formula
    text = f"{value:g}" if units in ("", "1") else f"{value:g} {units}"
    if plain:
        return f"level {index}" if value == index else f"level {index} ({text})"
    return f"depth {text}" if axis.km is not None and axis.down else text


def level_text(level: Level | None, array: xr.DataArray, ds: xr.Dataset) -> str:
    """Which level of a field with levels is shown; of a field with one level that its coordinates tell: that one."""
    dim = grids.vertical_dimension(array)
    if dim is None:
        return _only_level(array)
    if level is not None and level.statistic is not None:
        return {"max": "highest", "min": "lowest", "mean": "mean"}[level.statistic] + " of the column"
    axis = grids.level_axis(ds, dim)
    index = 0 if level is None else _index(level, axis, array.sizes[dim])
    if index is None:
        return f"depth {level}" if level is not None and level.units == "km" and axis is not None and axis.down else str(level)
    if axis is None or index >= len(axis.values):
        return f"level {index}" + (" (lowest)" if index == 0 and dim.startswith("bottom_top") else "")
    return axis_text(axis, index)


def _only_level(array: xr.DataArray) -> str:
    for name, coordinate in array.coords.items():
        if coordinate.ndim == 0 and grids._vertical(coordinate):
            return axis_text(grids.axis_of(str(name), coordinate.variable), 0)
    return ""


def _index(level: Level, axis: grids.LevelAxis | None, size: int) -> int | None:
    """The level that is meant, where it is one of the file's: by its index, or because the axis has just this value."""
    if level.index is not None and level.index < size:
        return level.index
    wanted = level.index if level.index is not None else level.value
    if axis is None or wanted is None:
        return None
    values = _on_axis(level, axis)
    if values is None:
        return None
    near = _where_close(values, wanted)
    return near[0] if near else None


def _where_close(values: np.ndarray, wanted: float) -> list[int]:
    import numpy as np

    return [int(i) for i in np.flatnonzero(np.isclose(values, wanted, rtol=1e-5, atol=1e-9))]


def _on_axis(level: Level, axis: grids.LevelAxis) -> np.ndarray | None:
    """The axis in the unit of the level that is asked for; None where that unit is none of its."""
    if not level.units:
        return axis.values
    if level.units == "hPa":
        return axis.hpa
    if level.units == "km":
        return axis.km
    return axis.values if looks.spelled(axis.units) == looks.spelled(level.units) else None


def _level(field: Field, level: Level | None, frame: Frame, plot: Plot) -> tuple[np.ndarray, str]:
    """One value for each horizontal point; and which level that is."""
    import numpy as np

    array = field.array
    dim = grids.vertical_dimension(array)
    if dim is None:
        only = _only_level(array)
        if level is not None and level.index != 0 and str(level) != only.removeprefix("depth "):
            raise UserError(f"{plot.origin}: {field.name} has no levels" + (f" but {only}" if only else ""))
        return np.asarray(array.values, dtype=float), only
    if array.ndim > 3:
        raise UserError(
            f"{plot.origin}: {field.name} has the dimensions {', '.join(map(str, array.dims))}: more than levels, y and x"
        )
    text = level_text(level, array, frame.ds)
    if level is not None and level.statistic is not None:
        reduce: Any = {"max": np.nanmax, "min": np.nanmin, "mean": np.nanmean}[level.statistic]
        return np.asarray(reduce(array.values, axis=0), dtype=float), text
    axis = grids.level_axis(frame.ds, dim)
    index = 0 if level is None else _index(level, axis, array.sizes[dim])
    if index is not None:
        return np.asarray(array.isel({dim: index}).values, dtype=float), text
    assert level is not None
    if level.index is not None or not level.units:
        raise UserError(_no_such_level(level, axis, field, array.sizes[dim], plot))
    assert level.value is not None
    where: np.ndarray | None
    if level.units == "hPa":
        where = grids.pressures_hpa(frame.ds, array)
    elif level.units == "km":
        where = grids.heights_km(frame.ds, array)
        if where is None and axis is not None:
            where = axis.km  # depth
    else:
        where = _on_axis(level, axis) if axis is not None else None
    if where is None:
        what = {"hPa": "pressure (P and PB)", "km": "height (PH and PHB)"}.get(level.units, f"levels in {level.units}")
        have = (
            f"; its levels are in {looks.spelled(axis.units)}" if axis is not None and axis.units and not axis.formula else ""
        )
        raise UserError(f"{plot.origin}: {level} needs the {what} of {field.name}, which this file does not have{have}")
    if level.units == "hPa":
        return grids.interpolated(array.values, np.log(where), float(np.log(level.value))), text
    return grids.interpolated(array.values, where, level.value), text


def _no_such_level(level: Level, axis: grids.LevelAxis | None, field: Field, size: int, plot: Plot) -> str:
    text = f"{plot.origin}: level {level} of {field.name}, which has {size}: 0 to {size - 1}"
    if axis is None:
        return text
    units = looks.spelled(axis.units)
    shown = ", ".join(f"{value:g}" for value in axis.values[:12]) + (", …" if size > 12 else "")
    return f"{text}, or by {axis.name}: {shown}" + (f" {units}" if units not in ("", "1") else "")


def map_of(plot: Plot, frame: Frame, expression: Expression | None = None, units: str | None = None) -> Map:
    field = field_of(expression or plot.field, frame, plot, units)
    dims = grids.horizontal_dimensions(field.array)
    if dims is None:
        raise UserError(
            f"{plot.origin}: {field.name} has the dimensions ({', '.join(map(str, field.array.dims))}): no map can be drawn"
        )
    values, level = _level(field, plot.level, frame, plot)
    for axis, dim in enumerate(dims):
        if values.shape[axis] < 2:
            side = "x" if axis == 1 else "y"
            raise UserError(
                f"{plot.origin}: {field.name} has one point along {dim}: draw a section, --section {field.name},{side}=0"
            )
    return Map(field, values, dims, grids.places(frame.ds, dims), level)


def section_of(plot: Plot, frame: Frame, expression: Expression | None = None, units: str | None = None) -> Section:
    import numpy as np

    field = field_of(expression or plot.field, frame, plot, units)
    array = field.array
    dims = grids.horizontal_dimensions(array)
    up_dim = grids.vertical_dimension(array)
    if dims is None or up_dim is None or array.ndim != 3:
        raise UserError(
            f"{plot.origin}: {field.name} has the dimensions ({', '.join(map(str, array.dims))}); a section needs levels, y and x"
        )
    ny, nx = array.sizes[dims[0]], array.sizes[dims[1]]
    place = grids.places(frame.ds, dims)
    heights = grids.heights_km(frame.ds, array)
    axis_up = grids.level_axis(frame.ds, up_dim)
    if heights is not None and heights.ndim == 3 and heights.shape != array.shape:
        heights = None
    if plot.start is not None and plot.end is not None:
        if place is None:
            raise UserError(
                f"{plot.origin}: from and to need latitude and longitude, and this grid has no place on the earth; give x or y"
            )
        ends = [_nearest(place, each, plot) for each in (plot.start, plot.end)]
        number = max(2, round(max(abs(ends[0][0] - ends[1][0]), abs(ends[0][1] - ends[1][1]))) + 1)
        if ends[0] == ends[1]:
            raise UserError(f"{plot.origin}: from and to are the same point of the grid")
        y, x = (np.linspace(ends[0][axis], ends[1][axis], number) for axis in (0, 1))
        latitude, longitude = (grids.along_line(each, y, x) for each in place)
        along = Axis(grids.kilometres(latitude, longitude), "km along the line")
        where = f"{place_text(latitude[0], longitude[0])} to {place_text(latitude[-1], longitude[-1])}"
    else:
        axis, index = ("y", plot.y) if plot.y is not None else ("x", plot.x)
        count = ny if axis == "y" else nx
        assert index is not None
        if index >= count:
            raise UserError(f"{plot.origin}: {axis}={index}, and {field.name} has {count} points there: 0 to {count - 1}")
        number = nx if axis == "y" else ny
        steps = np.arange(number, dtype=float)
        y, x = (np.full(number, float(index)), steps) if axis == "y" else (steps, np.full(number, float(index)))
        along = grids.plain_axis(frame.ds, dims[1] if axis == "y" else dims[0], number)
        if _northwards_is_back(along, place if axis == "x" else None, y, x):
            # The file goes from north to south, or from east to west; the picture does not.
            along = replace(along, values=along.values[::-1])
            y, x = y[::-1], x[::-1]
        where = f"{axis}={index}"
        if place is not None:
            latitude, longitude = (grids.along_line(each, y, x) for each in place)
            where = f"{place_text(latitude[0], longitude[0])} to {place_text(latitude[-1], longitude[-1])}"
        if number < 2:
            raise UserError(f"{plot.origin}: {field.name} has one point along this section; give the other of x and y")
    values = grids.along_line(np.asarray(array.values, dtype=float), y, x)
    ground = None
    if heights is not None:
        up = grids.along_line(heights, y, x) if heights.ndim == 3 else np.repeat(heights[:, None], len(along.values), 1)
        ground = _ground(frame, dims, y, x)
        if ground is not None and (ground < up[0]).all():
            # The lowest level stands for what lies between it and the ground.
            up, values = np.concatenate([ground[None], up]), np.concatenate([values[:1], values])
        return Section(field, values, along, up, "height (km)", False, ground, where)
    pressure = grids.pressures_hpa(frame.ds, array)
    if pressure is not None and pressure.shape == array.shape:
        return Section(field, values, along, grids.along_line(pressure, y, x), "pressure (hPa)", True, None, where)
    if axis_up is None or axis_up.formula:
        # Levels by their numbers. The first is the lowest, unless the axis says that they go down.
        levels, label = np.arange(array.sizes[up_dim], dtype=float), f"{up_dim} (index)"
        down = axis_up is not None and axis_up.first_is_top
    else:
        km = axis_up.km
        long = km is not None and float(np.ptp(km)) >= 5
        levels = km if km is not None and long else axis_up.values
        units = "km" if long else looks.spelled(axis_up.units)
        label, down = f"{axis_up.name} ({units})" if units not in ("", "1") else axis_up.name, axis_up.down
    up = np.repeat(levels[:, None], len(along.values), 1)
    return Section(field, values, along, up, label, down, None, where)


def _northwards_is_back(along: Axis, place: tuple[np.ndarray, np.ndarray] | None, y: np.ndarray, x: np.ndarray) -> bool:
    """The section's last point lies in the south, or in the west, of its first one: by its axis, else by the places."""
    if len(along.values) < 2:
        return False
    if along.values[0] > along.values[-1]:
        return True
    if place is None or not along.label.endswith("(index)"):
        return False
    latitude = grids.along_line(place[0], y, x)
    return bool(latitude[0] > latitude[-1])


def _ground(frame: Frame, dims: tuple[str, str], y: np.ndarray, x: np.ndarray) -> np.ndarray | None:
    """Height of the ground along a section, km; None where the file does not tell."""
    for name in ("HGT", "HGT_M", "topo"):
        if name in frame.ds.variables:
            height = grids.one_frame(frame.ds[name])
            if height.dims == dims:
                return grids.along_line(height.values / 1000.0, y, x)
    return None


def series_of(plot: Plot, frame: Frame) -> tuple[Field, list[float]]:
    """One value for each of the plot's points."""
    import numpy as np

    field = field_of(plot.field, frame, plot)
    dims = grids.horizontal_dimensions(field.array) if field.array.ndim >= 2 else None
    if dims is None:
        if field.array.ndim == 0:
            return field, [float(field.array.values)] * len(plot.at)
        raise UserError(
            f"{plot.origin}: {field.name} has the dimensions ({', '.join(map(str, field.array.dims))}); a series needs y and x"
        )
    found = []
    for at in plot.at:
        if at.statistic is not None:
            whole = plot.level is None and grids.vertical_dimension(field.array) is not None
            values = np.asarray(field.array.values, dtype=float) if whole else _level(field, plot.level, frame, plot)[0]
            reduce: Any = {"mean": np.nanmean, "min": np.nanmin, "max": np.nanmax}[at.statistic]
            found.append(float(reduce(values)))
        else:
            values = _level(field, plot.level, frame, plot)[0]
            y, x = _point(at, plot, frame, dims, values.shape, field.name)
            found.append(float(values[y, x]))
    return field, found


def series_level_text(plot: Plot, array: xr.DataArray, ds: xr.Dataset) -> str:
    """Statistics of the domain are those of all levels, unless one is asked for; a point has the first one."""
    if plot.level is not None or grids.vertical_dimension(array) is None:
        return level_text(plot.level, array, ds)
    points = [at for at in plot.at if at.statistic is None]
    if not points:
        return "all levels"
    first = level_text(None, array, ds)
    return first if len(points) == len(plot.at) else f"points: {first}, domain: all levels"


def _nearest(place: tuple[np.ndarray, np.ndarray], wanted: tuple[float, float], plot: Plot) -> tuple[int, int]:
    try:
        return grids.nearest_point(*place, wanted)
    except UserError as error:
        raise UserError(f"{plot.origin}: {error}") from error


def _point(at: At, plot: Plot, frame: Frame, dims: tuple[str, str], shape: tuple[int, ...], name: str) -> tuple[int, int]:
    if at.lat is not None and at.lon is not None:
        place = grids.places(frame.ds, dims)
        if place is None:
            raise UserError(f"{plot.origin}: this grid has no place on the earth; give x and y")
        return _nearest(place, (at.lat, at.lon), plot)
    assert at.x is not None and at.y is not None
    if at.x >= shape[1] or at.y >= shape[0]:
        raise UserError(f"{plot.origin}: x={at.x}, y={at.y} lies outside of {name}, which has {shape[1]} by {shape[0]} points")
    return at.y, at.x


QUANTILES = 101
SAMPLES_MAX = 50 * QUANTILES  # of a live run; older ones are thinned


@dataclass(frozen=True)
class Spread:
    """Of the finite values that pictures show: lowest, highest, and quantiles. NaN and none where there is no value."""

    low: float
    high: float
    sample: Sequence[float] = ()

    def also(self, other: Spread) -> Spread:
        """Of both; each frame counts as much as another."""
        known = [each for each in (self, other) if each.low == each.low]
        if not known:
            return self
        sample = [value for each in known for value in each.sample]
        if len(sample) > SAMPLES_MAX:
            sample = sorted(sample)[::2]
        return Spread(min(each.low for each in known), max(each.high for each in known), sample)


def spread_of(shown: np.ndarray) -> Spread:
    import numpy as np

    finite = shown[np.isfinite(shown)]
    if not finite.size:
        return Spread(float("nan"), float("nan"))
    sample = np.quantile(finite, np.linspace(0, 1, QUANTILES))
    return Spread(float(sample[0]), float(sample[-1]), sample.tolist())


def spread(plot: Plot, frame: Frame) -> Spread:
    """Of what the picture would show."""
    return spread_of(map_of(plot, frame).values if plot.kind == "map" else _shown(section_of(plot, frame), plot))


def _shown(section: Section, plot: Plot) -> np.ndarray:
    import numpy as np

    if plot.top is None or section.upside_down:
        return section.values
    return np.where(section.up <= plot.top, section.values, np.nan)
