"""The file of one variable: netCDF-4 classic, time unlimited, shuffle and deflate."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from advectio.cmor.attributes import Attributes
from advectio.cmor.layout import Axis, Layout
from advectio.cmor.rule import Rule, Wanted
from advectio.cmor.tables import Entry, number

_TYPES = {"real": "f4", "double": "f8", "integer": "i4", "float": "f4", "": "f4"}
_TIMES_CHUNK = 512
_MISSING, _INT_MISSING = "1e20", "-999"  # CMOR's, where the header says nothing


@dataclass
class Seen:
    """Of the values, to be held against the table's limits. Missing ones do not count."""

    below: int = 0
    above: int = 0
    least: float = np.inf
    most: float = -np.inf
    count: int = 0
    total: float = 0.0  # of absolute values


@contextlib.contextmanager
def whole(path: str) -> Iterator[str]:
    """A path beside ``path``. What is there in the end is synced and takes its name; after an error there is nothing."""
    directory, name = os.path.split(path)
    os.makedirs(directory or ".", exist_ok=True)
    beside = os.path.join(directory, f".{name}.advectio-process")
    try:
        yield beside
        with open(beside, "rb") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
        place = os.open(directory or ".", os.O_RDONLY)
        try:
            os.fsync(place)
        finally:
            os.close(place)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)


def write(made: str, path: str, rule: Rule, wanted: Wanted, layout: Layout, attributes: Attributes) -> list[str]:
    """Of what advectiod has made, a record in memory at a time. Returns warnings: values beyond the
    table's limits."""
    import netCDF4

    with netCDF4.Dataset(made) as source, netCDF4.Dataset(path, "w", format="NETCDF4_CLASSIC") as out:
        out.setncatts(attributes)
        dimensions: list[str] = []
        if layout.time is not None:
            out.createDimension(layout.time.name, None)
            dimensions.append(layout.time.name)
        for axis in layout.axes:
            out.createDimension(axis.name, len(axis.values))
            dimensions.append(axis.name)
        own = source[wanted.source]
        if layout.time is not None:
            _coordinate(
                out, layout.time, {"calendar": layout.calendar, **_of_units(attributes, source[str(layout.time.source)])}
            )
        for axis in (*layout.axes, *layout.scalars):
            _coordinate(out, axis, {})
        variable = _variable(out, rule, wanted, layout, dimensions)
        variable.setncatts(_of_units(attributes, own))
        seen = Seen()
        _copy(own, variable, layout, wanted.entry, seen)
        return _warnings(wanted, seen)


def _of_units(attributes: Attributes, made: Any) -> dict[str, str]:
    """What CF wants to know of units from 1.11 on; older conventions do not know the attribute."""
    version = re.search(r"CF-1\.(\d+)", str(attributes.get("Conventions", "")))
    known = version is not None and int(version[1]) >= 11 and "units_metadata" in made.ncattrs()
    return {"units_metadata": made.units_metadata} if known else {}


def _set(variable: Any, entry: Entry, names: tuple[str, ...]) -> None:
    for name in names:
        if entry.get(name) not in (None, ""):
            variable.setncattr(name, str(entry[name]))


def _coordinate(out: Any, axis: Axis, more: dict[str, str]) -> None:
    """The values at once: they are small."""
    kind = _TYPES.get(str(axis.entry.get("type", "double")), "f8")
    time = axis.entry.get("axis") == "T"
    dimensions = (axis.name,) if axis.source is not None and np.ndim(axis.values) else ()
    if "bnds" not in out.dimensions and axis.bounds is not None:
        out.createDimension("bnds", 2)
    chunks: dict[str, Any] = {"chunksizes": (_TIMES_CHUNK,)} if time else {}
    variable = out.createVariable(axis.name, kind, dimensions, fill_value=False, **chunks)
    if axis.bounds is not None:
        name = f"{axis.name}_bnds"
        variable.bounds = name
        chunks = {"chunksizes": (_TIMES_CHUNK, 2)} if time else {}
        out.createVariable(name, kind, (*dimensions, "bnds"), fill_value=False, zlib=bool(dimensions), complevel=1, **chunks)[
            :
        ] = axis.bounds
    _set(variable, axis.entry, ("units", "axis", "positive", "long_name", "standard_name"))
    variable.setncatts(more)
    variable[:] = axis.values


def _variable(out: Any, rule: Rule, wanted: Wanted, layout: Layout, dimensions: list[str]) -> Any:
    entry = wanted.entry
    kind = _TYPES.get(str(entry.get("type", "real")), "f4")
    header = rule.tables.header
    fill = np.array(
        header.get("int_missing_value") or _INT_MISSING if kind == "i4" else header.get("missing_value") or _MISSING
    )
    missing = fill.astype("f8").astype(kind)
    coordinates = [scalar.name for scalar in layout.scalars]
    if layout.points is not None:
        plane = dimensions[-2:]
        for name, points, values in (layout.points.latitude, layout.points.longitude):
            variable = out.createVariable(
                name, _TYPES.get(str(points.get("type", "")), "f4"), plane, fill_value=False, zlib=True, complevel=1
            )
            _set(variable, points, ("standard_name", "long_name", "units"))
            variable[:] = values
            coordinates.append(name)
        if layout.points.mapping is not None:
            mapping = dict(layout.points.mapping)
            out.createVariable(mapping.pop("name"), "i4", (), fill_value=False).setncatts(mapping)
    lengths = [1 if layout.time is not None and d == layout.time.name else len(out.dimensions[d]) for d in dimensions]
    storage = {"zlib": True, "complevel": 1, "shuffle": True, "chunksizes": lengths} if dimensions else {}
    name = str(entry.get("out_name") or wanted.name)
    variable = out.createVariable(name, kind, dimensions, fill_value=missing, **storage)
    _set(variable, entry, ("standard_name", "long_name", "comment", "units", "cell_methods"))
    if not str(entry.get("cell_measures", "")).startswith("--"):
        _set(variable, entry, ("cell_measures",))
    _set(variable, entry, ("positive", "flag_meanings"))
    if entry.get("flag_values"):
        flags = entry["flag_values"]
        variable.flag_values = np.array(flags.split() if isinstance(flags, str) else flags).astype(kind)
    variable.missing_value = missing
    if coordinates:
        variable.coordinates = " ".join(coordinates)
    if layout.points is not None and layout.points.mapping is not None:
        variable.grid_mapping = layout.points.mapping["name"]
    return variable


def _copy(source: Any, variable: Any, layout: Layout, entry: Entry, seen: Seen) -> None:
    """Record by record, in the order of the table's axes."""
    time = layout.time.source if layout.time is not None else None
    # A variable without time may still be made with one: its first record.
    leading = source.dimensions[0] if source.dimensions and source.dimensions[0] not in _sources(layout) else None
    axes = [axis for axis in layout.axes if axis.source is not None]
    picked = {axis.source: axis.order for axis in layout.scalars if axis.source is not None}
    rest = [d for d in source.dimensions if d not in (time, leading)]
    least, most = number(entry.get("valid_min")), number(entry.get("valid_max"))
    records = source.shape[0] if time is not None else 1
    for record in range(records):
        values = np.ma.asarray(source[record] if time is not None or leading is not None else source[:])
        names = list(rest)
        for name, order in picked.items():
            values = np.ma.take(values, int(order[0]), axis=names.index(str(name)))
            names.remove(str(name))
        values = values.transpose([names.index(str(axis.source)) for axis in axes])
        for position, axis in enumerate(axes):
            if axis.order is not None:
                values = np.ma.take(values, axis.order, axis=position)
        values = np.ma.masked_invalid(values) if values.dtype.kind == "f" else values
        _see(values.compressed(), least, most, seen)
        if time is not None:
            variable[record] = values
        else:
            variable[...] = values


def _sources(layout: Layout) -> set[str | None]:
    return {axis.source for axis in (*layout.axes, *layout.scalars, *([layout.time] if layout.time else []))}


def _see(values: Any, least: float | None, most: float | None, seen: Seen) -> None:
    if not len(values):
        return
    seen.least, seen.most = min(seen.least, float(values.min())), max(seen.most, float(values.max()))
    seen.below += int((values < least).sum()) if least is not None else 0
    seen.above += int((values > most).sum()) if most is not None else 0
    seen.count += len(values)
    seen.total += float(np.abs(values.astype("f8")).sum())


def _warnings(wanted: Wanted, seen: Seen) -> list[str]:
    name, entry, found = wanted.name, wanted.entry, []
    at = f"{wanted.origin}: {name}"
    if not seen.count:
        return [f"{at}: all values are missing"]
    if seen.below:
        found.append(f"{at}: {seen.below} values are below valid_min {entry['valid_min']}; the least is {seen.least:g}")
    if seen.above:
        found.append(f"{at}: {seen.above} values are above valid_max {entry['valid_max']}; the greatest is {seen.most:g}")
    mean = seen.total / seen.count
    least, most = number(entry.get("ok_min_mean_abs")), number(entry.get("ok_max_mean_abs"))
    if (least is not None and mean < least) or (most is not None and mean > most):
        found.append(f"{at}: the mean of absolute values is {mean:g}; the table finds {least} to {most} right")
    return found
