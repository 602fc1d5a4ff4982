"""Frames, of files and of live readers alike: a dataset with one record, and what a picture says about it."""

from __future__ import annotations

import contextlib
import datetime
import glob
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from advectio.errors import UserError
from advectio.needs import for_pictures

if TYPE_CHECKING:
    import xarray as xr


class Moment:
    """A time for templates, `{time:%H:%M}`; also of the year 1, which strftime leaves without its zeros."""

    def __init__(self, when: datetime.datetime | None, default: str) -> None:
        self._when, self._default = when, default

    def __format__(self, specification: str) -> str:
        if self._when is None:
            return "?"
        text = (specification or self._default).replace("%Y", f"{self._when.year:04d}")
        return self._when.strftime(text)


@dataclass(frozen=True)
class Frame:
    """One output time of one file. `ds` is lazy, and has at most one record."""

    ds: xr.Dataset
    source: str
    number: int
    when: datetime.datetime | None = None
    elapsed: datetime.timedelta | None = None  # where the file counts its time from no date

    @staticmethod
    def of(ds: xr.Dataset, number: int | None = None) -> Frame:
        """The last record, where there are several."""
        from advectio.decoding import decode
        from advectio.pictures.grids import record_dimension

        encoding = dict(ds.encoding)
        ds = decode(ds)
        dim = record_dimension(ds)
        if dim is not None and ds.sizes[dim] > 1:
            ds = ds.isel({dim: [-1]})
        if number is None:
            number = int(encoding.get("advectio_frame", 0))
        return Frame(ds, str(encoding.get("source", "")), number, _when(ds, dim), _elapsed(ds, dim))

    @property
    def domain(self) -> str:
        """WRF's d01, d02, …; nothing elsewhere."""
        return f"d{int(self.ds.attrs['GRID_ID']):02d}" if "GRID_ID" in self.ds.attrs else ""

    @property
    def stem(self) -> str:
        return os.path.basename(self.source).removesuffix(".nc").replace(":", "")

    @property
    def lead(self) -> datetime.timedelta | None:
        """Since the model's start, where the file tells it."""
        start = str(self.ds.attrs.get("SIMULATION_START_DATE", ""))
        try:
            began = datetime.datetime.strptime(start, "%Y-%m-%d_%H:%M:%S")
        except ValueError:
            return self.elapsed
        return self.when - began if self.when is not None else self.elapsed

    @property
    def lead_text(self) -> str:
        if self.lead is None:
            return ""
        minutes = round(self.lead.total_seconds() / 60)
        hours, rest = divmod(abs(minutes), 60)
        if hours >= 240:
            return f"{'-' if minutes < 0 else '+'}{hours // 24} d" + (f" {hours % 24} h" if hours % 24 else "")
        sign = "-" if minutes < 0 else "+"
        return f"{sign}{hours} h" if rest == 0 else f"{sign}{hours}:{rest:02d} h"

    @property
    def time_text(self) -> str:
        if self.when is None:
            return self.lead_text or f"frame {self.number}"
        return f"{Moment(self.when, '%Y-%m-%d %H:%M')}" + (f" ({self.lead_text})" if self.lead_text else "")


def _when(ds: xr.Dataset, dim: str | None) -> datetime.datetime | None:
    import numpy as np

    names = [name for name in (dim, "XTIME", "time", *ds.coords) if name is not None and name in ds.variables]
    for name in names:
        variable = ds[name]
        if variable.size != 1 or variable.dims not in ((), (dim,)):
            continue
        value: Any = variable.values.reshape(-1)[0]
        if variable.dtype.kind == "M" and not np.isnat(value):
            return value.astype("datetime64[s]").item()  # type: ignore[no-any-return]
        if hasattr(value, "isoformat"):  # cftime; another calendar may have days that ours has not
            try:
                return datetime.datetime(value.year, value.month, value.day, value.hour, value.minute, value.second)
            except ValueError:
                return None
    return None


def _elapsed(ds: xr.Dataset, dim: str | None) -> datetime.timedelta | None:
    """SCALE's idealised runs: `seconds`, and no since."""
    if dim is None or dim not in ds.variables or ds[dim].size != 1 or ds[dim].dtype.kind not in "fiu":
        return None
    units = str(ds[dim].attrs.get("units", ""))
    unit = {"s": 1, "seconds": 1, "minutes": 60, "min": 60, "hours": 3600, "h": 3600, "days": 86400}.get(units)
    return datetime.timedelta(seconds=float(ds[dim].values.reshape(-1)[0]) * unit) if unit else None


@dataclass(frozen=True)
class Record:
    """Where a frame lies on the disk; small, so that it can be sent to the process that draws it."""

    path: str
    index: int | None  # None: the file has no records
    number: int


def expanded(patterns: Sequence[str]) -> list[str]:
    """Files of names and patterns, in their order, each once."""
    found: list[str] = []
    for pattern in patterns:
        if os.path.isdir(pattern) and not _is_store(pattern):
            raise UserError(f"{pattern} is a directory; name its files, e.g. '{os.path.join(pattern, 'wrfout_d01*')}'")
        matching = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern))
        if not matching:
            none = ", and none matches" if glob.has_magic(pattern) else ""
            raise UserError(f"{pattern}: there is no such file{none}")
        found += matching
    return list(dict.fromkeys(found))


def _is_store(path: str) -> bool:
    """A Zarr group: a directory that is read as one file."""
    return any(os.path.exists(os.path.join(path, name)) for name in ("zarr.json", ".zgroup", ".zmetadata"))


def opened(path: str) -> xr.Dataset:
    """Lazy and decoded. Raises UserError."""
    for_pictures("xarray")
    from advectio import open_files

    if not os.path.exists(path):
        raise UserError(f"{path}: there is no such file")
    try:
        if os.path.isdir(path):
            for_pictures("zarr")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Failed to open Zarr store with consolidated", RuntimeWarning)
            ds = open_files.opened(path, "zarr" if os.path.isdir(path) else None)
    except (OSError, RuntimeError) as error:
        raise UserError(f"{path}: cannot be read: {_first_line(error)}", 1) from error
    except ValueError as error:
        if "did not find a match" in str(error) or "found the following matches" in str(error):
            for_pictures("netCDF4")
        raise UserError(f"{path}: is no netCDF file", 1) from error
    ds.encoding["source"] = path
    return ds


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """What goes wrong in the file itself becomes a line with its name."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        raise UserError(f"{path}: cannot be read: {_first_line(error)}", 1) from error


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def records_of(paths: Sequence[str]) -> Iterator[Record]:
    from advectio.pictures.grids import record_dimension

    for path in paths:
        with opened(path) as ds:
            dim = record_dimension(ds)
            if dim is None:
                yield Record(path, None, 0)
                continue
            if ds.sizes[dim] == 0:
                continue
            for index in range(ds.sizes[dim]):
                yield Record(path, index, index)


def frame_at(ds: xr.Dataset, record: Record) -> Frame:
    """Of the opened file of the record."""
    from advectio.pictures.grids import record_dimension

    encoding = dict(ds.encoding)
    dim = record_dimension(ds)
    if record.index is not None and dim is not None:
        ds = ds.isel({dim: [record.index]})
    ds.encoding = encoding
    return Frame.of(ds, record.number)
