"""One plane of a field, made ready for a screen: read, pooled to the screen's resolution, quantised.

Arrays are [y, x] as in the file: `describe` says whether row 0 is drawn at the top (latitudes from north to south, depth). A
missing value is NaN until it is quantised, and 0 from then on.
"""

import json
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from advectio.pictures import grids, looks
from advectio.pictures.values import axis_text

Floats = npt.NDArray[np.floating[Any]]
MISSING = 1e30  # larger ones are fill values that no attribute names; WRF, NEMO and SCALE use 1e20 to 1e37


# Which plane is cut out of levels, rows and columns: a map; a section along a row, or along a column; a profile.
CUTS = ("map", "row", "column", "profile")


def _order(variable: xr.Variable, cut: str = "map") -> list[int]:
    """Its dimensions, those of the plane last. Of a map these are the last two that are longer than 1: a section of one row
    is a plane too. Of a section: levels, and row or column; of a profile the levels alone. Raises ValueError: no levels."""
    plane = [d for d in range(variable.ndim) if variable.shape[d] > 1][-2:]
    leading = [d for d in range(variable.ndim) if d not in plane]
    if cut == "map":
        return leading + plane
    levels = _levels(variable)
    if levels is None:
        raise ValueError(f"a field of the dimensions {', '.join(map(str, variable.dims))} has no levels")
    leading.remove(levels)
    row, column = plane
    return leading + {"row": [row, levels, column], "column": [column, levels, row], "profile": [row, column, levels]}[cut]


def _levels(variable: xr.Variable) -> int | None:
    """The dimension of levels: the last one longer than 1 before those of a map."""
    long = [d for d in range(variable.ndim) if variable.shape[d] > 1]
    return long[-3] if len(long) > 2 else None


def shape(variable: xr.Variable, cut: str = "map") -> tuple[int, ...]:
    """Levels first, then the rows and columns of a plane."""
    return tuple(variable.shape[d] for d in _order(variable, cut))


def describe(dataset: xr.Dataset, positions: tuple[Floats, Floats] | None = None) -> list[dict[str, Any]]:
    """The fields that can be drawn: numbers with at least two dimensions longer than 1. `positions`: latitude and longitude
    of the cells, where they are known."""
    found = []
    axes = _axes(dataset)
    for name, variable in dataset.variables.items():
        sizes = shape(variable)
        if variable.dtype.kind not in "fiub" or len(sizes) < 2 or min(sizes[-2:]) < 2:
            continue
        if str(name).endswith(("_bnds", "_bounds")):
            continue
        attributes = variable.attrs
        title = attributes.get("description") or attributes.get("long_name") or attributes.get("standard_name") or ""
        units = str(attributes.get("units", "")).strip()
        dims = [str(variable.dims[d]) for d in _order(variable)]
        cuts = ["map"] if _levels(variable) is None else ["map", "row", "column"]
        found.append(
            {
                "name": str(name),
                "title": str(title).strip(),
                "units": units,
                "shape": list(sizes[-2:]),
                "dims": dims[-2:],
                "levels": [_level(axes, dim, size) for dim, size in zip(dims[:-2], sizes, strict=False)],
                "cuts": {cut: _orientation(axes, variable, cut, positions) for cut in cuts},
                "usual": _usual(str(name), units, str(attributes.get("standard_name", ""))),
            }
        )
    # Places last: they are there to be looked up, not to be looked at.
    return sorted(found, key=lambda field: str(field["units"]).lower().startswith(("degree_", "degrees_")))


Axes = dict[str, grids.LevelAxis | None]  # by dimension


def _axes(dataset: xr.Dataset) -> Axes:
    found: Axes = {}
    for dim in map(str, dataset.sizes):
        axis = grids.level_axis(dataset, dim)
        usable = axis is not None and len(axis.values) > 1 and np.isfinite(axis.values[[0, -1]]).all()
        found[dim] = axis if usable else None
    return found


def _orientation(axes: Axes, variable: xr.Variable, cut: str, positions: tuple[Floats, Floats] | None) -> dict[str, bool]:
    """Whether row 0 of the plane is drawn at the top, column 0 on the right, and rows are levels."""
    order = _order(variable, cut)
    rows, columns = (axes[str(variable.dims[d])] for d in order[-2:])
    down = rows is not None and rows.first_is_top
    mirrored = columns is not None and bool(columns.values[-1] < columns.values[0])
    if positions is not None and cut == "map" and rows is None:
        down = _southwards(positions[0], variable.shape[order[-2]])
    if positions is not None and cut == "column" and columns is None:
        mirrored = _southwards(positions[0], variable.shape[order[-1]])
    # Levels are no squares of the earth: they fill the height.
    return {"down": down, "mirrored": mirrored, "stretched": cut != "map" or (rows is not None and rows.vertical)}


def _southwards(latitude: Floats, rows: int) -> bool:
    """Rows go from north to south. Around a pole they do neither."""
    if abs(latitude.shape[0] - rows) > 1:
        return False
    change = float(np.mean(latitude[-1] - latitude[0]))
    return change < -0.2 * float(np.ptp(latitude))


def _usual(name: str, units: str, standard_name: str) -> dict[str, Any] | None:
    """Palette and range that everybody has for such a field: those of radar displays."""
    look = looks.look_of(name, units, standard_name)
    return None if look.spans is None else {"palette": look.colour_map, "low": look.spans[0], "high": look.spans[1]}


def _level(axes: Axes, dim: str, size: int) -> dict[str, Any]:
    axis = axes[dim]
    level: dict[str, Any] = {"name": dim, "size": size, "down": axis is not None and axis.first_is_top}
    if axis is not None and len(axis.values) == size:
        level["values"] = [float(value) for value in axis.values]
        level["units"] = axis.units
        named = axis.formula or axis.units in ("", "1")  # numbers that only name the levels
        level["texts"] = [
            f"{axis.values[index]:g} {axis.units} ({index})".replace("  ", " ") if named else axis_text(axis, index)
            for index in range(size)
        ]
        level["title"] = axis.name
    return level


def read(dataset: xr.Dataset, name: str, at: tuple[int, ...], cut: str = "map") -> Floats:
    """The plane of a field at these indices of its levels; with the indices of a row and a column too, the value there.
    Blocks while it is read."""
    variable = dataset.variables[name]
    order = _order(variable, cut)
    index: list[int | slice] = [slice(None)] * variable.ndim
    for dimension, i in zip(order, at, strict=False):
        index[dimension] = i
    values = np.asarray(variable[tuple(index)].values)
    left = [dimension for dimension in order if isinstance(index[dimension], slice)]
    values = values.transpose([sorted(left).index(dimension) for dimension in left])
    if values.dtype.kind != "f":
        return values.astype(np.float32 if values.dtype.itemsize < 4 else np.float64)
    if values.size and not np.fmax.reduce(np.abs(values), axis=None) < MISSING:
        values = np.where(np.abs(values) < MISSING, values, np.nan)
    return values


def is_category(dataset: xr.Dataset, name: str) -> bool:
    """Numbers that are names (land use, masks): their mean means nothing."""
    variable = dataset.variables[name]
    stored = np.dtype(variable.encoding.get("dtype", variable.dtype))
    words = f"{variable.attrs.get('description', '')} {variable.attrs.get('long_name', '')}".lower()
    return stored.kind in "iub" or "category" in words or "flag_values" in variable.attrs


def most(plane: Floats) -> tuple[float, float]:
    """Between these lie 96 of 100 values; NaN where there are none."""
    sample = plane[:: max(1, plane.shape[0] // 256), :: max(1, plane.shape[1] // 256)]
    there = sample[np.isfinite(sample)]
    if not there.size:
        return float("nan"), float("nan")
    low, high = np.percentile(there, [2, 98])
    return float(low), float(high)


@dataclass(frozen=True)
class Spread:
    """Of the values that are there. All NaN where there is none."""

    low: float
    high: float
    mean: float
    missing: int


def spread(plane: Floats) -> Spread:
    low, high = float(np.fmin.reduce(plane, axis=None)), float(np.fmax.reduce(plane, axis=None))
    total = float(plane.sum(dtype=np.float64))
    if total == total:  # no NaN among them
        return Spread(low, high, total / plane.size, 0)
    there = ~np.isnan(plane)
    count = int(there.sum())
    mean = float(plane.sum(where=there, dtype=np.float64)) / count if count else float("nan")
    return Spread(low, high, mean, plane.size - count)


def usual_pooling(plane: Floats, category: bool) -> str:
    """``max`` where at least half of the cells have the least value: what a mean would wash out there, of rain or graupel,
    are the peaks."""
    if category:
        return "nearest"
    sample = plane[:: max(1, plane.shape[0] // 256), :: max(1, plane.shape[1] // 256)]
    least = np.fmin.reduce(sample, axis=None)
    return "max" if np.count_nonzero(sample == least) * 2 >= sample.size and np.any(sample > least) else "mean"


def pool(plane: Floats, factor: int | tuple[int, int], how: str) -> Floats:
    """Blocks of so many cells a side (rows and columns) become one; those at the end may be smaller. Missing cells do not
    count."""
    high, wide = (factor, factor) if isinstance(factor, int) else factor
    if max(high, wide) <= 1:
        return plane
    if how == "nearest":
        first = [side // 2 if size > side // 2 else 0 for size, side in zip(plane.shape, (high, wide), strict=True)]
        return plane[first[0] :: high, first[1] :: wide]
    rows, columns = -(-plane.shape[0] // high), -(-plane.shape[1] // wide)
    if (rows * high, columns * wide) != plane.shape:
        plane = np.pad(plane, [(0, rows * high - plane.shape[0]), (0, columns * wide - plane.shape[1])], constant_values=np.nan)
    cells = [plane[i::high, j::wide] for i in range(high) for j in range(wide)]
    if how in ("max", "min"):
        choose = np.fmax if how == "max" else np.fmin
        result = cells[0].copy()
        for cell in cells[1:]:
            choose(result, cell, out=result)
        return result
    total = np.zeros((rows, columns), plane.dtype)
    count = np.zeros((rows, columns), np.uint16)
    for cell in cells:
        there = cell == cell  # not NaN
        np.add(total, cell, out=total, where=there)
        count += there
    with np.errstate(invalid="ignore", divide="ignore"):
        return total / count.astype(plane.dtype)


def quantise(plane: Floats, low: float, high: float, bits: int) -> npt.NDArray[np.unsignedinteger[Any]]:
    """0: missing; 1 … 2^bits - 1: low … high, evenly. What lies outside gets the nearest end."""
    steps = (1 << bits) - 2
    scale = steps / (high - low) if high > low else 0.0
    # float32 has 24 bits: enough for 16, unless the range is a small part of the values.
    enough = plane.dtype == np.float32 and high - low > 1e-2 * max(abs(low), abs(high))
    values: Floats = plane.astype(np.float32 if enough else np.float64)
    values -= values.dtype.type(low)
    values *= values.dtype.type(scale)
    values += values.dtype.type(1.5)
    np.clip(values, 1, steps + 1.5, out=values)
    np.nan_to_num(values, copy=False, nan=0.0)
    quantised: npt.NDArray[np.unsignedinteger[Any]] = values.astype(np.uint8 if bits == 8 else "<u2")
    return quantised


def packed(header: dict[str, Any], values: npt.NDArray[Any]) -> bytes:
    """What is sent: the length of the header (4 bytes, little-endian, a multiple of 4), JSON, the values."""
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 4)
    return struct.pack("<I", len(text)) + text + values.tobytes()


def unpacked(body: bytes) -> tuple[dict[str, Any], npt.NDArray[Any]]:
    """The other way round, for tests and scripts: the header and [y, x] with NaN where a value is missing."""
    (length,) = struct.unpack_from("<I", body)
    header = json.loads(body[4 : 4 + length])
    values = np.frombuffer(body, np.uint8 if header["bits"] == 8 else "<u2", offset=4 + length).reshape(header["shape"])
    low, high = header["low"], header["high"]
    real = low + (values - 1.0) * (high - low) / ((1 << header["bits"]) - 2)
    return header, np.where(values == 0, np.nan, real)
