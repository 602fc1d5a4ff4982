"""Files for several threads: one lock around every opening of a file, every look into it, and its closing.

The libraries netCDF and HDF5 are not made for threads, and netCDF4-python lets other threads run while it is in them. xarray has
a lock, but only for values: it reads the dimensions, names and attributes of a file that it opens without one. So whatever
Advectio reads of files in a process that has threads goes through `alone` or through a dataset of `opened`.
"""

from __future__ import annotations

import collections
import contextlib
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr
from xarray.backends.common import BackendArray
from xarray.core import indexing

# Not reentrant: the garbage collector may run in a thread that is in the library, and nothing may be closed there.
_lock = threading.Lock()
_let_go: collections.deque[xr.Dataset] = collections.deque()  # nobody refers to them; to be closed by who has the lock


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """No other thread of Advectio opens, reads or closes a file meanwhile. Values of `opened` are not to be read within."""
    try:
        with _lock:
            yield
    finally:
        _close_let_go()


def _close_let_go() -> None:
    # Whoever finds the lock taken leaves its file to the one that has it, who looks again after it has given it back.
    while _let_go and _lock.acquire(blocking=False):
        try:
            while _let_go:
                with contextlib.suppress(OSError, RuntimeError):
                    _let_go.popleft().close()
        finally:
            _lock.release()


def _forget(raw: xr.Dataset) -> None:
    _let_go.append(raw)
    _close_let_go()


class File:
    """An open file. The arrays of its variables hold it; with the last of them it is closed."""

    def __init__(self, raw: xr.Dataset) -> None:
        self.raw = raw
        weakref.finalize(self, _forget, raw).atexit = False

    def close(self) -> None:
        with alone():
            self.raw.close()


class _Array(BackendArray):
    """A variable of an open file. Any thread may read."""

    def __init__(self, file: File, name: Any) -> None:
        self.file, self.name = file, name
        variable = file.raw.variables[name]
        self.dtype, self.shape = variable.dtype, variable.shape

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def _read(self, key: tuple[Any, ...]) -> np.ndarray[Any, Any]:
        with alone():
            return np.asarray(self.file.raw.variables[self.name][key].values)


def opened(path: str, engine: str | None = None) -> xr.Dataset:
    """The file as it is, not decoded, its values read when they are asked for. Closed by `close`, or with its last reader."""
    with alone():
        raw = xr.open_dataset(path, decode_cf=False, cache=False, engine=engine)
    file = File(raw)
    variables = {
        # xarray has read the values of dimensions' own variables.
        name: v if isinstance(v, xr.IndexVariable)
        else xr.Variable(v.dims, indexing.LazilyIndexedArray(_Array(file, name)), v.attrs, v.encoding)
        for name, v in raw.variables.items()
    }  # fmt: skip
    found = xr.Dataset(variables, attrs=raw.attrs)
    found.encoding = dict(raw.encoding)
    found.set_close(file.close)
    return found
