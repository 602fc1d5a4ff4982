"""One plane of a field, made ready for a screen: read, pooled to the screen's resolution, quantised.

Arrays are [y, x], row 0 is the southern one (index 0). A missing value is NaN until it is quantised, and 0 from then on.
"""

import json
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

Floats = npt.NDArray[np.floating[Any]]
MISSING = 1e30  # larger ones are fill values that no attribute names; WRF, NEMO and SCALE use 1e20 to 1e37


def _order(variable: xr.Variable) -> list[int]:
    """Its dimensions, those of the plane last: the last two that are longer than 1. A section of one row is a plane too."""
    plane = [d for d in range(variable.ndim) if variable.shape[d] > 1][-2:]
    return [d for d in range(variable.ndim) if d not in plane] + plane


def shape(variable: xr.Variable) -> tuple[int, ...]:
    """Levels first, then the rows and columns of a plane."""
    return tuple(variable.shape[d] for d in _order(variable))


def describe(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """The fields that can be drawn: numbers with at least two dimensions longer than 1."""
    found = []
    for name, variable in dataset.variables.items():
        sizes = shape(variable)
        if variable.dtype.kind not in "fiub" or len(sizes) < 2 or min(sizes[-2:]) < 2:
            continue
        if str(name).endswith(("_bnds", "_bounds")):
            continue
        attributes = variable.attrs
        title = attributes.get("description") or attributes.get("long_name") or attributes.get("standard_name") or ""
        dims = [str(variable.dims[d]) for d in _order(variable)]
        found.append(
            {
                "name": str(name),
                "title": str(title).strip(),
                "units": str(attributes.get("units", "")).strip(),
                "shape": list(sizes[-2:]),
                "dims": dims[-2:],
                "levels": [_level(dataset, dim, size) for dim, size in zip(dims[:-2], sizes, strict=False)],
            }
        )
    # Places last: they are there to be looked up, not to be looked at.
    return sorted(found, key=lambda field: str(field["units"]).lower().startswith(("degree_", "degrees_")))


def _level(dataset: xr.Dataset, dim: str, size: int) -> dict[str, Any]:
    level: dict[str, Any] = {"name": dim, "size": size}
    if dim in dataset.variables and dataset.variables[dim].ndim == 1 and dataset.variables[dim].dtype.kind in "fiu":
        level["values"] = [float(v) for v in dataset.variables[dim].values]
        level["units"] = str(dataset.variables[dim].attrs.get("units", ""))
    return level


def read(dataset: xr.Dataset, name: str, at: tuple[int, ...]) -> Floats:
    """The plane of a field at these indices of its levels; with the indices of a row and a column too, the value there.
    Blocks while it is read."""
    variable = dataset.variables[name]
    index: list[int | slice] = [slice(None)] * variable.ndim
    for dimension, i in zip(_order(variable), at, strict=False):
        index[dimension] = i
    values = np.asarray(variable[tuple(index)].values)
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


def pool(plane: Floats, factor: int, how: str) -> Floats:
    """Blocks of ``factor`` × ``factor`` cells become one; those at the end may be smaller. Missing cells do not count."""
    if factor <= 1:
        return plane
    if how == "nearest":
        return plane[factor // 2 :: factor, factor // 2 :: factor] if min(plane.shape) > factor // 2 else plane[:1, :1]
    rows, columns = (-(-n // factor) for n in plane.shape)
    if (rows * factor, columns * factor) != plane.shape:
        plane = np.pad(
            plane, [(0, rows * factor - plane.shape[0]), (0, columns * factor - plane.shape[1])], constant_values=np.nan
        )
    cells = [plane[i::factor, j::factor] for i in range(factor) for j in range(factor)]
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
