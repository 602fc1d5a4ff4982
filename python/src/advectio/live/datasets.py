"""A frame as an ``xarray.Dataset``: lazy, and without a copy where values lie in the stage in one piece."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import xarray as xr
from xarray.backends.common import BackendArray
from xarray.core import indexing

from advectio import open_files
from advectio.errors import UserError
from advectio.live.client import Gone, LetGo
from advectio.live.stream import Frame

_DTYPES = {
    "byte": "i1", "char": "S1", "short": "<i2", "int": "<i4", "float": "<f4", "double": "<f8", "ubyte": "u1",
    "ushort": "<u2", "uint": "<u4", "int64": "<i8", "uint64": "<u8", "string": "O",
}  # fmt: skip
TIMES = ("Times", "XTIME", "xtime")
_OPEN_AGAIN_S = 60.0

# With its first variable xarray imports dask. Seen without this line: two frames stayed held as long as the reader lived, with it
# one. The likely reason, not looked into: dask keeps the traceback of a package that it has not found, and that the frame.
xr.Variable((), 0.0)


def dtype_of(kind: str) -> np.dtype[Any]:
    return np.dtype(_DTYPES[kind])


def attributes(listed: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """As netCDF4-python gives them: text as str, one number as a scalar, several as an array."""
    out: dict[str, Any] = {}
    for a in listed:
        if a["type"] == "string":
            texts = ["" if s is None else base64.b64decode(s).decode(errors="replace") for s in a["strings"]]
            out[a["name"]] = texts[0] if len(texts) == 1 else texts
            continue
        raw = base64.b64decode(a["bytes"])
        if a["type"] == "char":
            out[a["name"]] = raw.decode(errors="replace").rstrip("\0")
        else:
            values = np.frombuffer(raw, dtype_of(a["type"]))
            out[a["name"]] = values[0] if values.size == 1 else values
    return out


class FieldArray(BackendArray):
    """One variable of one frame. Any thread may read. Where the server has gone meanwhile, the file has it."""

    def __init__(
        self, frame: Frame, variable: int, dtype: np.dtype[Any], offset: Sequence[int], shape: Sequence[int], in_file: FileArray
    ) -> None:
        self.frame, self.variable, self.dtype = frame, variable, dtype
        self.offset, self.shape, self.in_file = tuple(offset), tuple(shape), in_file

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process (a worker of dask) gets the values: it has no connection to the run."""
        return _values, (self._read(tuple(slice(None) for _ in self.shape)),)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self._read)

    def _read(self, key: tuple[int | slice, ...]) -> np.ndarray[Any, Any]:
        frame = self.frame
        frame.must_be_open()
        assert frame.client is not None
        start, count, stride, after = [], [], [], []
        for index, length, offset in zip(key, self.shape, self.offset, strict=True):
            if isinstance(index, slice):
                chosen = range(length)[index]
                forward = chosen if chosen.step > 0 else chosen[::-1]
                start.append(offset + (forward.start if len(forward) else 0))
                count.append(len(forward))
                stride.append(forward.step if len(forward) > 1 else 1)
                after.append(slice(None) if chosen.step > 0 else slice(None, None, -1))
            else:
                start.append(offset + int(index) + (length if index < 0 else 0))
                count.append(1)
                stride.append(1)
                after.append(0)  # type: ignore[arg-type]
        strides = stride if any(s != 1 for s in stride) else None
        order = frame.about["frame"]
        try:
            if self.dtype.kind == "O":
                values = frame.client.strings(order, self.variable, start, count, strides)
            else:
                values = frame.client.read(frame, order, self.variable, start, count, strides, self.dtype)
        except Gone:
            return self.in_file.read_key(key)
        return values[tuple(after)]


class FileArray(BackendArray):
    """A variable of a file that the server may be writing: read between two of its commits."""

    def __init__(
        self, file: InFile, name: str, dtype: np.dtype[Any], shape: Sequence[int], axis: int | None, first: int
    ) -> None:
        self.file, self.name, self.dtype, self.shape = file, name, dtype, tuple(shape)
        self.axis, self.first = axis, first

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process reads a file that is complete. Of one that is being written it gets the values."""
        if self.file.commit(self.file.path) is None:
            its = (self.file.path, self.file.inode)
            return _of_complete_file, (its, self.name, self.dtype, self.shape, self.axis, self.first)
        return _values, (self.read_key(tuple(slice(None) for _ in self.shape)),)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self.read_key)

    def read_key(self, key: tuple[int | slice, ...]) -> np.ndarray[Any, Any]:
        where = list(key)
        needed = 0
        if self.axis is not None:
            index = key[self.axis]
            if isinstance(index, slice):
                chosen = range(self.shape[self.axis])[index]
                end: int | None = self.first + chosen.stop
                where[self.axis] = slice(self.first + chosen.start, end if end is not None and end >= 0 else None, chosen.step)
                needed = self.first + max(chosen[0], chosen[-1]) + 1 if len(chosen) else 0
            else:
                where[self.axis] = self.first + int(index) + (self.shape[self.axis] if index < 0 else 0)
                needed = int(where[self.axis]) + 1  # type: ignore[arg-type]

        def look(ds: xr.Dataset) -> Any:
            v = ds.variables[self.name]
            if self.axis is not None and v.shape[self.axis] < needed:
                raise IndexError(f"{self.name} has {v.shape[self.axis]} records, and {needed} are wanted")
            return np.asarray(v[tuple(where)].values)

        return np.asarray(self.file.read(look))


def _values(values: np.ndarray[Any, Any]) -> indexing.NumpyIndexingAdapter:
    return indexing.NumpyIndexingAdapter(values)  # type: ignore[no-untyped-call]


def _of_complete_file(its: tuple[str, int | None], *rest: Any) -> FileArray:
    return FileArray(InFile(its[0], _complete, its[1]), *rest)


def _complete(path: str) -> None:
    return None


class _OpenFile:
    """A file that the frames read of share: to open one of two hundred variables takes longer than to read one. It is closed with
    the last of them, or when it has changed: HDF5 would go on with what it knows of it."""

    def __init__(self, path: str, state: object) -> None:
        self.state = state
        self.file = open_files.File(xr.open_dataset(path, decode_cf=False, cache=False, engine=_engine(path)))
        if os.path.isdir(path):
            self.file.raw.encoding["unlimited_dims"] = _unlimited_in_store(path)
        else:
            _unlock(path)


def _unlock(path: str) -> None:
    """HDF5 locks what it reads, and a program could not write its file again as long as somebody reads a frame."""
    about = os.stat(path)
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(int(descriptor)), about):
                fcntl.flock(int(descriptor), fcntl.LOCK_UN)


_open: weakref.WeakValueDictionary[tuple[int, int], _OpenFile] = weakref.WeakValueDictionary()  # by device and inode


class InFile:
    """A file that a server may be writing. ``commit``: how many commits it has begun and ended; odd while one is under way,
    None when the file is complete. ``inode``: of the file, by which it is found where the program has renamed it."""

    def __init__(self, path: str, commit: Callable[[str], int | None], inode: int | None = None) -> None:
        self.path, self.commit, self.inode = path, commit, inode
        self._open: _OpenFile | None = None

    def _look(self, commit: int | None, look: Callable[[xr.Dataset], Any]) -> Any:
        with open_files.alone():
            path = on_disk(self.path, self.inode)
            about = os.stat(os.path.join(path, "zarr.json") if os.path.isdir(path) else path)
            key, state = (about.st_dev, about.st_ino), (commit, about.st_mtime_ns, about.st_size)
            opened = _open.get(key)
            if opened is not None and opened.state != state:
                opened.file.raw.close()
                opened = None
            if opened is None:
                opened = _open[key] = _OpenFile(path, state)
            self._open = opened
            try:
                return look(opened.file.raw)
            except BaseException:
                _open.pop(key, None)
                opened.file.raw.close()
                raise

    def read(self, look: Callable[[xr.Dataset], Any]) -> Any:
        until = time.monotonic() + _OPEN_AGAIN_S
        while True:
            before = self.commit(self.path)
            if before is None or before % 2 == 0:
                try:
                    found = self._look(before, look)
                    if before is None or self.commit(self.path) == before:
                        return found
                except (OSError, KeyError, IndexError, RuntimeError, ValueError) as error:
                    if before is None or time.monotonic() > until:
                        raise UserError(f"{self.path}: {error}") from error
            if time.monotonic() > until:
                raise UserError(f"{self.path} changes faster than it can be read")
            time.sleep(0.01)


def on_disk(path: str, inode: int | None = None) -> str:
    """Where the file is that a program wrote as `path`: there, or the Zarr store in its place (format: zarr). Where the program
    has renamed it since, within its directory, `inode` finds it."""
    if inode is not None and (renamed := _renamed(path, inode)):
        return renamed
    store = path.removesuffix(".nc").removesuffix(".zarr") + ".zarr"
    written = os.path.isfile(path) and os.path.getsize(path) > 0
    bp = path.removesuffix(".nc").removesuffix(".bp") + ".bp"
    if not written and os.path.exists(os.path.join(bp, "advectio.json")):
        raise UserError(f"{bp} is read by ADIOS2; Advectio's readers get the frames that are still in the stage")
    return store if not written and os.path.exists(os.path.join(store, "zarr.json")) else path


def _renamed(path: str, inode: int) -> str | None:
    """None: the file is where it was, or not to be found. Hidden names are the server's own, until the file is complete; but a new
    file may have only a hidden one (`appear: complete`)."""
    with contextlib.suppress(OSError):
        if os.stat(path).st_ino == inode:
            return None
    with contextlib.suppress(OSError), os.scandir(os.path.dirname(path) or ".") as entries:
        for entry in entries:
            is_hidden = entry.name.startswith(".") and not entry.name.endswith(".file")
            if not is_hidden and entry.inode() == inode and entry.is_file():
                return entry.path
    return None


def _unlimited_in_store(store: str) -> set[str]:
    """Zarr itself knows nothing of them. Of a store that somebody else has written: none."""
    with open(os.path.join(store, "zarr.json"), "rb") as file:
        root = json.load(file)
    return set(root.get("consolidated_metadata", {}).get("unlimited_dimensions", []))


def _engine(path: str) -> str:
    """An engine that reads the file as it is, whatever is installed."""
    import importlib.util

    if os.path.isdir(path):
        if importlib.util.find_spec("zarr"):
            return "zarr"
        raise UserError("to read Zarr stores: pip install zarr")
    with open(path, "rb") as file:
        classic = file.read(4) in (b"CDF\1", b"CDF\2")
    if importlib.util.find_spec("netCDF4"):
        return "netcdf4"
    if classic and importlib.util.find_spec("scipy"):
        return "scipy"
    if importlib.util.find_spec("h5netcdf"):
        return "h5netcdf"
    raise UserError("to read files: pip install netCDF4 (or h5netcdf)")


def _wanted(
    names: Sequence[str], chosen: Sequence[str] | None, about: Callable[[str], tuple[Sequence[str], dict[str, Any]]]
) -> set[str]:
    """The variables asked for, and what says when and where their values are."""
    if chosen is None:
        return set(names)
    missing = [name for name in chosen if name not in names]
    if missing:
        import difflib

        near = difflib.get_close_matches(missing[0], names, 1)
        raise UserError(f"there is no variable {missing[0]}" + (f"; is {near[0]} meant?" if near else ""))
    keep = set(chosen) | {t for t in TIMES if t in names}
    for name in list(chosen):
        dims, attrs = about(name)
        keep |= {d for d in dims if d in names}
        keep |= {c for c in str(attrs.get("coordinates", "")).split() if c in names}
        # WRF's own, where files name no coordinates.
        keep |= {c for c in ("XLAT", "XLONG") if c in names}
    return keep


def records_of(frame: Frame) -> tuple[int, int]:
    """First record of the frame and the one behind its last. A server that does not know says nothing: then each frame is a
    record."""
    known = frame.about.get("records")
    return (int(known[0]), int(known[1])) if known else (frame.number, frame.number + 1)


def in_memory(frame: Frame, chosen: Sequence[str] | None) -> xr.Dataset:
    """The frame as the stage has it. What it lacks of variables without records is in the file."""
    schema = frame.schema
    assert schema is not None and frame.client is not None
    dims, variables = schema["dimensions"], schema["variables"]
    here = {f["variable"]: f for f in frame.about["fields"]}
    ranges: dict[int, tuple[int, int]] = {}
    for number, f in here.items():
        for i, d in enumerate(variables[number]["dimensions"]):
            if dims[d]["unlimited"]:
                first, end = f["start"][i], f["start"][i] + f["count"][i]
                old = ranges.get(d, (first, end))
                ranges[d] = (min(old[0], first), max(old[1], end))
    by_name = {v["name"]: v for v in variables}
    keep = _wanted(
        list(by_name),
        chosen,
        lambda n: ([dims[d]["name"] for d in by_name[n]["dimensions"]], attributes(by_name[n]["attributes"])),
    )
    file = InFile(frame.path, frame.commit, frame.about.get("inode"))
    out: dict[str, xr.Variable] = {}
    for number, v in enumerate(variables):
        if v["name"] not in keep:
            continue
        offset, shape = [], []
        for d in v["dimensions"]:
            first, end = ranges.get(d, (0, 0)) if dims[d]["unlimited"] else (0, dims[d]["length"])
            offset.append(first)
            shape.append(end - first)
        names = [dims[d]["name"] for d in v["dimensions"]]
        dtype = dtype_of(v["type"])
        axis = next((i for i, d in enumerate(v["dimensions"]) if dims[d]["unlimited"]), None)
        in_file = FileArray(file, v["name"], dtype, shape, axis, offset[axis] if axis is not None else 0)
        array: BackendArray = in_file
        if number in here or axis is not None:
            array = FieldArray(frame, number, dtype, offset, shape, in_file)
        data = indexing.LazilyIndexedArray(array)
        encoding = {"preferred_chunks": dict(zip(names, v["chunks"], strict=True))} if v.get("chunks") else {}
        out[v["name"]] = xr.Variable(names, data, attributes(v["attributes"]), encoding)
    ds = xr.Dataset(out, attrs=attributes(schema["attributes"]))
    ds.encoding["unlimited_dims"] = {d["name"] for d in dims if d["unlimited"]}
    ds.set_close(frame.close)
    return ds


def from_file(frame: Frame, chosen: Sequence[str] | None) -> xr.Dataset:
    """The same frame out of its file."""
    file = InFile(frame.path, frame.commit, frame.about.get("inode"))

    def look(ds: xr.Dataset) -> Any:
        unlimited = ds.encoding.get("unlimited_dims", set())
        return (
            {name: (v.dims, v.dtype, v.shape, dict(v.attrs)) for name, v in ds.variables.items()},
            dict(ds.attrs),
            set(unlimited),
        )

    about, attrs, unlimited = file.read(look)
    first, end = records_of(frame)
    keep = _wanted(list(about), chosen, lambda n: (about[n][0], about[n][3]))
    out = {}
    for name, (dims, dtype, shape, its) in about.items():
        if name not in keep:
            continue
        axis = next((i for i, d in enumerate(dims) if d in unlimited), None)
        lengths = list(shape)
        if axis is not None:
            lengths[axis] = max(0, min(end, shape[axis]) - first)
        array = FileArray(file, name, dtype, lengths, axis, first)
        out[name] = xr.Variable(dims, indexing.LazilyIndexedArray(array), its)
    found = xr.Dataset(out, attrs=attrs)
    found.encoding["unlimited_dims"] = unlimited
    return found


def dataset(frame: Frame, chosen: Sequence[str] | None, decode: bool) -> xr.Dataset:
    ds = in_memory(frame, chosen) if frame.client is not None else from_file(frame, chosen)
    ds.encoding["source"] = frame.path
    ds.encoding["advectio_frame"] = frame.number
    if not decode:
        return ds
    from advectio.decoding import decode as decoded

    try:
        out = decoded(ds)
    except LetGo as error:
        raise UserError(f"frame {frame.number} of {frame.path}: {error}") from error
    out.encoding.update(ds.encoding)
    out.set_close(ds._close)
    return out
