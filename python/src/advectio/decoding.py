"""``decode``: what a model's file means by its times and places, said in xarray's way. Nothing is loaded but the times."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

# Where WRF (and METGRID, GEOGRID) keep the place of a point. Older files do not name them in `coordinates`.
_PLACES = frozenset(
    f"{name}{grid}" for name in ("XLAT", "XLONG") for grid in ("", "_M", "_U", "_V", "_C")
) | {"CLAT", "CLONG"}  # fmt: skip

# Times as text: WRF's, and MPAS'.
_TIME_TEXTS = ("Times", "xtime")
_TIME = "Time"


def decode(ds: xr.Dataset) -> xr.Dataset:
    """The dataset with its times and places decoded; what it lacks, it goes on lacking.

    CF     as `xarray.decode_cf`. A time that cannot be decoded stays as it is.
    Time   datetime64 along WRF's and MPAS' dimension `Time`, as an index, from `Times` (or `xtime`), else from `XTIME`.
    XTIME  a datetime64 coordinate as well, also where the file does not say since when its minutes count.
    Places `XLAT`, `XLONG`, those of the staggered grids, and METGRID's are coordinates.

    The result is lazy where the dataset is: only texts and numbers of times are read. Decoding twice changes nothing.
    Needs xarray; a dataset of any model may be given.
    """
    encoding = dict(ds.encoding)
    ds = _decode_cf(ds)
    ds = ds.set_coords([name for name in ds.data_vars if name in _PLACES])
    ds = _decode_times(ds)
    ds.encoding = {**encoding, **ds.encoding}
    return ds


def _decode_cf(ds: xr.Dataset) -> xr.Dataset:
    import xarray as xr

    with _quiet():
        try:
            return xr.decode_cf(ds)
        except (ValueError, OverflowError):
            return xr.decode_cf(ds, decode_times={str(name): _time_decodes(ds, name) for name in ds.variables})


def _time_decodes(ds: xr.Dataset, name: Hashable) -> bool:
    import xarray as xr

    alone = xr.Dataset({name: ds.variables[name]})
    try:
        xr.decode_cf(alone, decode_coords=False)
    except (ValueError, OverflowError):
        return False
    return True


def _decode_times(ds: xr.Dataset) -> xr.Dataset:
    import xarray as xr

    if _TIME not in ds.dims:
        return ds
    text = next((ds.variables[name] for name in _TIME_TEXTS if _is_text_of_times(ds, name)), None)
    times = _parsed(text.values) if text is not None else None
    if "XTIME" in ds.variables and ds["XTIME"].dims in ((), (_TIME,)):
        ds = ds.set_coords("XTIME")
    if "XTIME" in ds.coords and ds["XTIME"].dims == (_TIME,):
        times = _as_datetime64(ds["XTIME"]) if times is None else times
        if times is not None and ds["XTIME"].dtype.kind != "M":
            attrs = {key: value for key, value in ds["XTIME"].attrs.items() if key not in ("units", "calendar")}
            ds = ds.assign_coords(XTIME=xr.Variable((_TIME,), times, attrs))
    if times is not None and _TIME not in ds.variables:
        ds = ds.assign_coords({_TIME: xr.Variable((_TIME,), times, {"long_name": "Time", "standard_name": "time"})})
    return ds


def _is_text_of_times(ds: xr.Dataset, name: str) -> bool:
    return name in ds.variables and ds[name].dims == (_TIME,) and ds[name].dtype.kind in "SUOT"


def _as_datetime64(times: xr.DataArray) -> np.ndarray | None:
    with _quiet():
        values: np.ndarray = times.values
    if values.dtype.kind == "M":
        return values
    if values.dtype.kind == "O" and all(hasattr(each, "isoformat") for each in values):  # cftime
        return _parsed([each.isoformat() for each in values])
    return None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """xarray warns of years that nanoseconds do not reach. Idealised runs begin in year 1."""
    import xarray as xr

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", xr.SerializationWarning)
        yield


def _parsed(texts: Any) -> np.ndarray | None:
    """`2005-08-28_00:00:00`, one each; None where any is no time (a record that was never written, another calendar)."""
    import numpy as np

    found = []
    for text in texts:
        plain = (text.decode("ascii", "replace") if isinstance(text, bytes) else str(text)).strip("\0 ")
        try:
            found.append(np.datetime64(plain.replace("_", "T", 1), "s"))
        except ValueError:
            return None
    times = np.asarray(found, dtype="datetime64[s]")
    if np.isnat(times).any():
        return None
    # What xarray, pandas and xWRF expect, where it reaches so far.
    first, last = np.datetime64("1678-01-01", "s"), np.datetime64("2262-01-01", "s")
    within = times.size == 0 or bool((times >= first).all() and (times <= last).all())
    return times.astype("datetime64[ns]") if within else times
