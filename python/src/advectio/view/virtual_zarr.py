"""The frames of a stream as a Zarr group (format 2) that is nowhere stored: ``xr.open_zarr(URL)`` reads a run under way.

Metadata are made of the files' schemas, chunks of the values, when they are asked for: out of the stage as long as a frame
is in no file, else out of the file. A chunk of a variable with records is one record (a part of it where it is large), so
that a chunk never changes while the group grows. Nothing is compressed.
"""

import base64
import json
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from advectio.errors import UserError
from advectio.view.sources import Source

CHUNK_BYTES_MAX = 64 << 20
HELD_S = 10.0  # without a request; then the frames' memory is let go

Key = tuple[int, ...]


class NoGroup(Exception):
    """The files are not one group. The text is for people."""


@dataclass
class Variable:
    name: str
    dims: tuple[str, ...]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    record_axis: int | None
    attrs: dict[str, Any]

    def zarray(self) -> dict[str, Any]:
        fill = self.attrs.get("_FillValue")
        return {
            "zarr_format": 2,
            "shape": list(self.shape),
            "chunks": list(self.chunks),
            "dtype": "|O" if self.dtype.kind == "O" else self.dtype.str,
            "compressor": None,
            "fill_value": None if fill is None else _fill(fill, self.dtype),
            "order": "C",
            "filters": [{"id": "vlen-utf8"}] if self.dtype.kind == "O" else None,
        }

    def zattrs(self) -> dict[str, Any]:
        kept = {name: _plain(value) for name, value in self.attrs.items() if name != "_FillValue"}
        return kept | {"_ARRAY_DIMENSIONS": list(self.dims)}


class Group:
    """One state of a stream: what its files held when it was made. Records that come later are in a later one."""

    def __init__(self, files: Sequence[tuple[str, xr.Dataset]]) -> None:
        self._files = files
        newest = files[-1][1]
        self.attrs = {str(name): _plain(value) for name, value in newest.attrs.items()}
        records = {str(d) for _, ds in files for d in ds.encoding.get("unlimited_dims", ())}
        self._first = [0]  # record of each file, and the one behind the last
        for _, ds in files:
            self._first.append(self._first[-1] + max((ds.sizes[d] for d in records if d in ds.sizes), default=0))
        self.variables = {str(name): self._variable(str(name), records) for name in newest.variables}

    def _variable(self, name: str, records: set[str]) -> Variable:
        v = self._files[-1][1].variables[name]
        dims = tuple(map(str, v.dims))
        axis = next((i for i, d in enumerate(dims) if d in records), None)
        if axis is None:
            return Variable(name, dims, v.dtype, v.shape, _chunks(v.shape, v.dtype, None), None, dict(v.attrs))
        for path, ds in self._files:
            other = ds.variables.get(name)
            if other is None:
                raise NoGroup(f"{path} has no {name}: files that differ are not one group")
            if other.dims != v.dims or other.dtype != v.dtype or _without(other.shape, axis) != _without(v.shape, axis):
                raise NoGroup(f"{name} of {path} differs from that of {self._files[-1][0]}: they are not one group")
        shape = (*v.shape[:axis], self._first[-1], *v.shape[axis + 1 :])
        return Variable(name, dims, v.dtype, shape, _chunks(shape, v.dtype, axis), axis, dict(v.attrs))

    def metadata(self, key: str) -> dict[str, Any] | None:
        """None: there is no such key."""
        if key == ".zgroup":
            return {"zarr_format": 2}
        if key == ".zattrs":
            return self.attrs
        if key == ".zmetadata":
            every: dict[str, Any] = {".zgroup": {"zarr_format": 2}, ".zattrs": self.attrs}
            for name, v in self.variables.items():
                every |= {f"{name}/.zarray": v.zarray(), f"{name}/.zattrs": v.zattrs()}
            return {"zarr_consolidated_format": 1, "metadata": every}
        name, _, kind = key.rpartition("/")
        if name not in self.variables or kind not in (".zarray", ".zattrs"):
            return None
        return self.variables[name].zarray() if kind == ".zarray" else self.variables[name].zattrs()

    def chunk(self, name: str, key: Key) -> bytes:
        v = self.variables[name]
        if len(key) != len(v.shape) or any(k * c >= max(n, 1) for k, c, n in zip(key, v.chunks, v.shape, strict=True)):
            raise NoGroup(f"{name} has no chunk {'.'.join(map(str, key))}: its shape is {v.shape}, of chunks {v.chunks}")
        where = [slice(k * c, min((k + 1) * c, n)) for k, c, n in zip(key, v.chunks, v.shape, strict=True)]
        ds = self._files[0][1] if len(self._files) and name in self._files[0][1].variables else self._files[-1][1]
        if v.record_axis is not None:
            record = where[v.record_axis].start
            file = next(i for i, first in enumerate(self._first[1:]) if record < first)
            ds = self._files[file][1]
            at = record - self._first[file]
            where[v.record_axis] = slice(at, at + 1)
        values = np.asarray(ds.variables[name][tuple(where)].values, dtype=v.dtype)
        if values.shape != v.chunks:  # at an edge; a chunk is always whole
            whole = np.zeros(v.chunks, v.dtype) if v.dtype.kind != "O" else np.full(v.chunks, "", v.dtype)
            whole[tuple(slice(0, n) for n in values.shape)] = values
            values = whole
        if v.dtype.kind == "O":
            texts = [str(text).encode() for text in values.ravel()]
            return struct.pack("<I", len(texts)) + b"".join(struct.pack("<I", len(t)) + t for t in texts)
        return values.tobytes()


class Groups:
    """The newest state of each stream. Any thread may ask."""

    def __init__(self, source: Source, stream_of: Callable[[str], str]) -> None:
        self._source, self._stream_of = source, stream_of
        self._lock = threading.Lock()
        self._groups: dict[str, Group] = {}
        self._used = 0.0
        self._timer: threading.Timer | None = None

    def get(self, stream: str, newest: bool) -> Group | None:
        """``newest``: with all that has been synced by now. None: there are no files of that stream."""
        with self._lock:
            self._used = time.monotonic()
            if newest or stream not in self._groups:
                files = [
                    (path, ds)
                    for path in self._source.files()
                    if self._stream_of(path) == stream and (ds := self._source.open(path)) is not None
                ]
                if not files:
                    return None
                self._groups[stream] = Group(files)
                if self._timer is None:
                    self._let_go_later(HELD_S)
            return self._groups[stream]

    def _let_go_later(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._let_go)
        self._timer.daemon = True
        self._timer.start()

    def _let_go(self) -> None:
        with self._lock:
            self._timer = None
            left = self._used + HELD_S - time.monotonic()
            if left > 0:
                self._let_go_later(left)
            else:
                self._groups.clear()


def answer(groups: Groups, stream: str, key: str) -> tuple[bytes, bool] | None:
    """What is stored under that key, and whether it is JSON. None: nothing is, which for a reader of Zarr is no error."""
    name, _, last = key.rpartition("/")
    group = groups.get(stream, newest=key == ".zmetadata")
    if group is None:
        return None
    if last.startswith(".z"):
        found = group.metadata(key)
        return None if found is None else (json.dumps(found).encode(), True)
    if name not in group.variables or not all(part.isdigit() for part in last.split(".")):
        return None
    at: Key = tuple(int(part) for part in last.split(".")) if group.variables[name].shape else ()
    try:
        return group.chunk(name, at), False
    except (KeyError, IndexError) as error:
        raise UserError(f"{name} of {stream}: {error}") from error


def _chunks(shape: Sequence[int], dtype: np.dtype[Any], record_axis: int | None) -> tuple[int, ...]:
    """Whole, but for the records; what is larger than ``CHUNK_BYTES_MAX`` is cut along its first dimensions."""
    chunks = [1 if i == record_axis else max(1, n) for i, n in enumerate(shape)]
    for i in range(len(chunks)):
        bytes_all = int(np.prod(chunks, dtype=np.int64)) * dtype.itemsize
        if bytes_all > CHUNK_BYTES_MAX:
            chunks[i] = max(1, chunks[i] * CHUNK_BYTES_MAX // bytes_all)
    return tuple(chunks)


def _without(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _fill(value: Any, dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "S":
        return base64.b64encode(value if isinstance(value, bytes) else str(value).encode()).decode()
    value = _plain(np.asarray(value).reshape(-1)[0])
    if isinstance(value, float) and not np.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value
