"""The table's axes, found in what advectiod has made of a variable."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from advectio.cmor.rule import Rule, Wanted, interval_days
from advectio.cmor.tables import Entry, number, numbers
from advectio.errors import UserError

# To the unit of a table. Values of variables are converted by advectiod.
_FACTORS = {("hPa", "Pa"): 100.0, ("mb", "Pa"): 100.0, ("millibar", "Pa"): 100.0, ("kPa", "Pa"): 1000.0, ("km", "m"): 1000.0}
_GREGORIAN = ("standard", "gregorian", "proleptic_gregorian")
_ALIASES = {"gregorian": "standard", "365_day": "noleap", "366_day": "all_leap"}
Array = Any  # of numpy


@dataclass(eq=False)
class Axis:
    """A coordinate of the file. ``source``: a dimension of what was made; None: a scalar. ``order``: its cells, in the file's order;
    None: as they are."""

    name: str
    entry: Entry
    values: Array
    bounds: Array = None  # or none
    source: str | None = None
    order: Array = None


@dataclass
class Points:
    """Latitudes and longitudes of two dimensions, with their attributes, and the projection of these."""

    latitude: tuple[str, Entry, Array]
    longitude: tuple[str, Entry, Array]
    mapping: dict[str, Any] | None


@dataclass
class Layout:
    time: Axis | None
    axes: list[Axis]  # of dimensions after time, in the order of the file
    scalars: list[Axis]  # `source` is set where one of a dimension is taken
    points: Points | None
    calendar: str = ""
    dates: tuple[Any, Any] | None = None  # first and last time, as dates
    warnings: list[str] = field(default_factory=list)


def _attribute(variable: Any, name: str) -> str:
    return str(getattr(variable, name, "")).strip()


def _is(variable: Any, standard_name: str) -> bool:
    units = {"latitude": "degrees_north", "longitude": "degrees_east"}.get(standard_name)
    return _attribute(variable, "standard_name") == standard_name or (
        units is not None and _attribute(variable, "units") == units
    )


def midway(values: Array) -> Array:
    """Bounds half-way between neighbours; n × 2."""
    if len(values) == 1:
        return np.array([[values[0], values[0]]])
    edges = np.concatenate(
        [[1.5 * values[0] - 0.5 * values[1]], (values[1:] + values[:-1]) / 2, [1.5 * values[-1] - 0.5 * values[-2]]]
    )
    return np.stack([edges[:-1], edges[1:]], axis=1)


def _plain(values: Any) -> Array:
    return np.ma.filled(np.ma.asarray(values).astype("f8"), np.nan)


class _Finder:
    def __init__(self, rule: Rule, wanted: Wanted, file: Any, trial: bool) -> None:
        self.rule, self.wanted, self.file, self.trial = rule, wanted, file, trial
        self.variable = file[wanted.source]
        self.at = f"{wanted.origin}: {wanted.name}"
        self.left = list(self.variable.dimensions)
        self.layout = Layout(None, [], [], None)

    def coordinate(self, dimension: str) -> Any | None:
        found = self.file.variables.get(dimension)
        return found if found is not None and found.dimensions == (dimension,) else None

    def take(self, test: Any) -> str | None:
        """The first dimension that is left and whose coordinate passes."""
        for dimension in self.left:
            coordinate = self.coordinate(dimension)
            if coordinate is not None and test(coordinate):
                self.left.remove(dimension)
                return str(dimension)
        return None

    def lacks(self, name: str, what: str) -> UserError:
        dimensions = ", ".join(self.variable.dimensions) or "none"
        return UserError(f"{self.at}: the table wants the dimension {name}, but {what}; {self.wanted.formula} has {dimensions}")

    def time_dimension(self) -> str | None:
        return self.take(lambda c: _attribute(c, "standard_name") == "time" or " since " in _attribute(c, "units"))

    def find(self) -> Layout:
        dimension = self.time_dimension()
        looked = False
        for name, entry in self.wanted.axes.items():
            if entry.get("axis") == "T":
                if dimension is None:
                    raise self.lacks(name, "it has no time")
                self.time(name, entry, dimension)
            elif entry.get("standard_name") in ("latitude", "longitude") and not entry.get("value"):
                if not looked:
                    self.curvilinear(name)
                    looked = True
                if self.layout.points is None:
                    self.one_row(name, entry)
            else:
                self.other(name, entry)
        if self.layout.points is not None:
            # The plane comes last, rows before columns.
            plane = [axis for axis in self.layout.axes if axis.entry.get("axis") in ("X", "Y")]
            self.layout.axes = [axis for axis in self.layout.axes if axis not in plane] + plane
        if self.left:
            raise UserError(
                f"{self.at}: {self.wanted.formula} has the dimension {self.left[0]}, and the table has {' '.join(self.wanted.axes)}"
            )
        if dimension is not None and self.wanted.fixed:
            self.must_not_change(self.variable, self.wanted.formula)
        return self.layout

    def time(self, name: str, entry: Entry, dimension: str) -> None:
        import cftime

        source = self.file[dimension]
        calendar = _attribute(source, "calendar") or "standard"
        target = str(self.rule.dataset.get("calendar") or calendar)
        values = _plain(source[:])
        if not len(values):
            raise UserError(f"{self.at}: there is no record in the files")
        dates = cftime.num2date([values[0], values[-1]], source.units, calendar=calendar)
        same = _ALIASES.get(calendar, calendar) == _ALIASES.get(target, target)
        if not same and not (calendar in _GREGORIAN and target in _GREGORIAN and dates[0].year > 1582):
            raise UserError(f"{self.at}: the calendar of the files is {calendar}, that of {self.rule.dataset_path} is {target}")
        days = {"day": 1, "hour": 24, "minute": 1440, "second": 86400}
        unit = source.units.split()[0].rstrip("s")
        if unit not in days:
            raise UserError(f"{self.at}: times in '{source.units}' are not understood")
        zero = cftime.num2date(0, source.units, calendar=calendar, only_use_cftime_datetimes=True)
        # In the calendar of the source: from its zero to ours.
        shift = float(cftime.date2num(zero, self.rule.time_units, calendar=calendar))
        bounds = self.file.variables.get(_attribute(source, "bounds"))
        # Statistics make bounds, and there are none in a trial.
        must = entry.get("must_have_bounds") == "yes" and not (self.trial and self.rule.steps)
        if must and bounds is None:
            raise self.lacks(name, "with bounds, and the times of the files have none")
        self.layout.time = Axis(
            str(entry.get("out_name") or name),
            {**entry, "units": self.rule.time_units},
            values / days[unit] + shift,
            _plain(bounds[:]) / days[unit] + shift if must else None,
            dimension,
        )
        self.layout.calendar = target
        self.layout.dates = (dates[0], dates[1])
        if not self.rule.steps:
            self.interval(self.layout.time.values)

    def interval(self, days: Array) -> None:
        allowed = interval_days(self.wanted.frequency)
        steps = np.diff(days)
        if allowed and len(steps) and (steps.min() < allowed[0] - 1e-4 or steps.max() > allowed[1] + 1e-4):
            least, most = (f"{24 * step:g}" for step in (steps.min(), steps.max()))
            raise UserError(
                f"{self.at}: the table's frequency is {self.wanted.frequency}, and records are "
                f"{least if least == most else f'{least} to {most}'} h apart; point: WINDOW takes one of each window"
            )

    def range_of(self, name: str, entry: Entry, values: Array) -> None:
        least, most = number(entry.get("valid_min")), number(entry.get("valid_max"))
        if (least is not None and values.min() < least - 1e-6) or (most is not None and values.max() > most + 1e-6):
            said = f"{values.min():g} to {values.max():g}; the table wants {least} to {most}"
            self.layout.warnings.append(f"{self.at}: {name} goes from {said}")

    def one_row(self, name: str, entry: Entry) -> None:
        """Latitudes or longitudes that are a dimension."""
        kind = str(entry["standard_name"])
        dimension = self.take(lambda c: _is(c, kind))
        if dimension is None:
            raise self.lacks(name, f"there is none of {kind}s")
        source = self.coordinate(dimension)
        values = _plain(source[:])  # type: ignore[index]
        given = self.file.variables.get(_attribute(source, "bounds"))
        bounds = _plain(given[:]) if given is not None and given.ndim == 2 else midway(values)
        order = np.arange(len(values))
        if kind == "latitude":
            bounds = np.clip(bounds, -90, 90)
        else:
            least = number(entry.get("valid_min"))
            if least is not None:
                whole = abs(abs(bounds[-1, 1] - bounds[0, 0]) - 360) < 1e-3
                if whole:
                    # All around: each where it belongs.
                    turns = np.floor((values - least) / 360) * 360
                    values, bounds = values - turns, bounds - turns[:, None]
                    order = np.argsort(values, kind="stable")
                elif values.max() < least or (values.min() < least and values.max() + 360 <= least + 360 + 1e-6):
                    values, bounds = values + 360, bounds + 360
        rising = entry.get("stored_direction", "increasing") != "decreasing"
        values_then = values[order]
        if len(values_then) > 1 and (values_then[-1] > values_then[0]) != rising:
            order = order[::-1]
        self.range_of(name, entry, values)
        bounds = np.sort(bounds[order], axis=1)
        self.layout.axes.append(
            Axis(
                str(entry.get("out_name") or name),
                entry,
                values[order],
                bounds if entry.get("must_have_bounds") == "yes" else None,
                dimension,
                None if (order == np.arange(len(order))).all() else order,
            )
        )

    def curvilinear(self, name: str) -> None:
        """Latitudes and longitudes of two dimensions, of which neither is a dimension, where there are such."""
        names = _attribute(self.variable, "coordinates").split() or list(self.file.variables)
        found: dict[str, Any] = {}
        for kind in ("latitude", "longitude"):
            for candidate in names:
                variable = self.file.variables.get(candidate)
                if variable is not None and _is(variable, kind) and len(self.horizontal(variable)) == 2:
                    found.setdefault(kind, variable)
        if len(found) < 2 or self.horizontal(found["latitude"]) != self.horizontal(found["longitude"]):
            return
        plane = self.horizontal(found["latitude"])
        if [dimension for dimension in self.left if dimension in plane] != plane:
            raise self.lacks(name, f"the latitudes are on {', '.join(plane)}")
        for letter, dimension in zip("YX", plane, strict=True):
            self.left.remove(dimension)
            self.layout.axes.append(self.plane_axis(letter, dimension))
        points: list[tuple[str, Entry, Array]] = []
        for kind, variable in found.items():
            values = self.must_not_change(variable, variable.name)
            entry = next((e for e in self.rule.tables.grid_variables.values() if e.get("standard_name") == kind), {})
            least = number(entry.get("valid_min"))
            if kind == "longitude" and least is not None:
                values = np.where(values < least, values + 360, values)
            units = "degrees_north" if kind == "latitude" else "degrees_east"
            points.append(
                (
                    str(entry.get("out_name") or kind),
                    {"standard_name": kind, "long_name": kind, "units": units, **entry},
                    values,
                )
            )
        mapping = self.file.variables.get(_attribute(self.variable, "grid_mapping"))
        attributes = {"name": mapping.name, **mapping.__dict__} if mapping is not None else None
        self.layout.points = Points(points[0], points[1], attributes)

    def horizontal(self, variable: Any) -> list[str]:
        return [d for d in variable.dimensions if d in self.left]

    def must_not_change(self, variable: Any, name: str) -> Array:
        """The first record of what may have a time dimension, and must not change along it."""
        plane = [d for d in variable.dimensions if not self.is_time(d)]
        if len(plane) == len(variable.dimensions):
            return _plain(variable[:])
        first = _plain(variable[0])
        for record in range(1, len(variable)):
            if not np.array_equal(first, _plain(variable[record]), equal_nan=True):
                what = "cmor writes no grids that move" if name != self.wanted.formula else "the table has it without time"
                raise UserError(f"{self.at}: {name} changes with time, and {what}")
        return first

    def is_time(self, dimension: str) -> bool:
        coordinate = self.coordinate(dimension)
        return coordinate is not None and " since " in _attribute(coordinate, "units")

    def plane_axis(self, letter: str, dimension: str) -> Axis:
        source = self.coordinate(dimension)
        kinds = {"Y": ("projection_y_coordinate", "grid_latitude"), "X": ("projection_x_coordinate", "grid_longitude")}[letter]
        tables = self.rule.tables.grid_axes
        if source is None or _attribute(source, "standard_name") not in kinds:
            index = "j_index" if letter == "Y" else "i_index"
            entry = {"long_name": "cell index along " + ("second" if letter == "Y" else "first") + " dimension", "units": "1"}
            entry = {**entry, **tables.get(index, {}), "axis": letter, "type": "integer"}
            return Axis(str(entry.get("out_name") or index[0]), entry, np.arange(self.length(dimension)), None, dimension)
        kind, units = _attribute(source, "standard_name"), _attribute(source, "units")
        found = {key: e for key, e in tables.items() if e.get("standard_name") == kind and e.get("units") == units}
        short = {kinds[0]: letter.lower(), "grid_latitude": "rlat", "grid_longitude": "rlon"}[kind]
        key, entry = next(iter(found.items()), (short, {}))
        entry = {"standard_name": kind, "units": units, "long_name": kind.replace("_", " "), **entry, "axis": letter}
        values = _plain(source[:])
        return Axis(str(entry.get("out_name") or key), entry, values, midway(values), dimension)

    def length(self, dimension: str) -> int:
        return len(self.file.dimensions[dimension])

    def other(self, name: str, entry: Entry) -> None:
        """Levels and the like; and scalars, such as the height of 2 m."""
        standard, out_name = str(entry.get("standard_name", "")), str(entry.get("out_name") or name)
        if entry.get("type") == "character":
            raise UserError(f"{self.at}: the table wants the dimension {name}, which is of text and not written by cmor")

        def fits(c: Any) -> bool:
            return bool(standard and _attribute(c, "standard_name") == standard) or c.name == out_name

        single = entry.get("value") not in (None, "")
        dimension = self.take(fits)
        wants = numbers(entry["value"] if single else entry.get("requested") or "")
        if dimension is None:
            if not single:
                hint = "; levels: {preset: wrf} brings WRF's levels to pressure" if standard == "air_pressure" else ""
                raise self.lacks(name, f"there is none of {standard or out_name}{hint}")
            if standard == "air_pressure":
                raise self.lacks(name, f"nothing tells that it is at {wants[0]:g} {entry.get('units')}; say levels")
            edges = numbers(entry.get("bounds_values") or "")
            self.layout.scalars.append(Axis(out_name, entry, np.array(wants[0]), np.array(edges) if edges else None))
            return
        source = self.coordinate(dimension)
        values = _plain(source[:]) * self.factor(name, _attribute(source, "units"), str(entry.get("units", "")))  # type: ignore[index]
        order = np.arange(len(values))
        if wants:
            tolerance = float(number(entry.get("tolerance")) or 1e-3)
            close = [np.flatnonzero(np.abs(values - want) <= tolerance * max(abs(want), 1e-30)) for want in wants]
            for want, found in zip(wants, close, strict=True):
                if not len(found):
                    raise self.lacks(name, f"the level {want:g} {entry.get('units')} is not in the files")
            order = np.array([found[0] for found in close])
            values_out = np.array(wants)
        else:
            values_out = values
        direction = str(entry.get("stored_direction", ""))
        rising = {"increasing": True, "decreasing": False}.get(direction)
        if rising is not None and len(values_out) > 1 and bool(values_out[-1] > values_out[0]) != rising:
            order, values_out = order[::-1], values_out[::-1]
        if single:
            self.layout.scalars.append(Axis(out_name, entry, np.array(wants[0]), None, dimension, order))
            return
        self.range_of(name, entry, values_out)
        bounds: Array = None
        if entry.get("must_have_bounds") == "yes":
            given = numbers(entry.get("requested_bounds") or "")
            own = self.file.variables.get(_attribute(source, "bounds"))
            if len(given) == 2 * len(values_out):
                bounds = np.array(given).reshape(-1, 2)
            elif own is not None:
                bounds = _plain(own[:])[order]
            else:
                bounds = midway(values_out)
        self.layout.axes.append(Axis(out_name, entry, values_out, bounds, dimension, order))

    def factor(self, name: str, units: str, wanted: str) -> float:
        if units == wanted or not wanted:
            return 1.0
        if (units, wanted) in _FACTORS:
            return _FACTORS[units, wanted]
        raise UserError(f"{self.at}: the coordinate for {name} is in '{units}', the table wants '{wanted}'")


def find(rule: Rule, wanted: Wanted, path: str, *, trial: bool = False) -> Layout:
    """Of a file that advectiod has made; ``trial``: without statistics. Error: what the table wants, and the file lacks."""
    import netCDF4

    with netCDF4.Dataset(path) as file:
        return _Finder(rule, wanted, file, trial).find()
