#!/usr/bin/env python3
"""Are two netCDF files the same? Every dimension, variable, attribute and value, bit for bit.

    same.py A B [--storage] [--quiet]

Compares through netCDF-C itself (the library that the netCDF4 package brings along), so that types, lengths and exact
bytes of attributes are seen as a C program sees them; Python's own view of netCDF drops trailing NULs, for one.
`--storage` also compares how netCDF-4 variables are stored: contiguous or chunked, chunk lengths, filters with their
parameters, byte order. Values are read in pieces of a few MB, so files of any size can be compared.

Exit code: 0 same, 1 different (each difference is one line), 2 a file cannot be read.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import math
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

NC_NOERR, NC_GLOBAL, NC_CHAR, NC_STRING, NC_MAX_ATOMIC, NC_ENOTNC4 = 0, -1, 2, 12, 12, -111
NAME_MAX = 256
PIECE_BYTES = 8 << 20
FORMATS = {1: "classic", 2: "64-bit offset", 3: "netCDF-4", 4: "netCDF-4 classic model", 5: "CDF-5"}
TYPES = {1: "byte", 2: "char", 3: "short", 4: "int", 5: "float", 6: "double", 7: "ubyte", 8: "ushort", 9: "uint",
         10: "int64", 11: "uint64", 12: "string"}  # fmt: skip
SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 4, 10: 8, 11: 8}


class NetcdfError(Exception):
    pass


def _library() -> ctypes.CDLL:
    """The netCDF-C library that the netCDF4 package has loaded: it reads every filter that the wheel does."""
    import netCDF4  # noqa: F401  (loads the library, and tells it where its filters are)

    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.split(maxsplit=5)[-1].strip()
            if os.path.basename(path).startswith("libnetcdf") and ".so" in path:
                return ctypes.CDLL(path)
    raise NetcdfError("the netCDF4 package is there, but the netCDF-C library behind it cannot be found")


_nc: ctypes.CDLL | None = None


def nc() -> ctypes.CDLL:
    global _nc
    if _nc is None:
        _nc = _library()
        _nc.nc_strerror.restype = ctypes.c_char_p
    return _nc


def _check(status: int, what: str) -> None:
    if status != NC_NOERR:
        raise NetcdfError(f"{what}: {nc().nc_strerror(status).decode()}")


def _type_name(kind: int) -> str:
    return TYPES.get(kind, f"user-defined type {kind}")


class File:
    """A netCDF file, read-only, as netCDF-C tells it."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = os.fspath(path)
        identifier = ctypes.c_int()
        _check(nc().nc_open(os.fsencode(self.path), 0, ctypes.byref(identifier)), f"cannot open {self.path}")
        self.id = identifier.value

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        nc().nc_close(self.id)

    def _int(self, function: str, *arguments: object) -> int:
        value = ctypes.c_int()
        _check(getattr(nc(), function)(self.id, *arguments, ctypes.byref(value)), f"{function} in {self.path}")
        return value.value

    @property
    def format(self) -> str:
        return FORMATS.get(self._int("nc_inq_format"), "another format")

    @property
    def hdf5(self) -> bool:
        return self.format.startswith("netCDF-4")

    def groups(self) -> int:
        if not self.hdf5:
            return 0
        count = ctypes.c_int()
        _check(nc().nc_inq_grps(self.id, ctypes.byref(count), None), f"inq_grps in {self.path}")
        return count.value

    def dims(self) -> list[tuple[str, int, bool]]:
        """Name, length and whether it is unlimited, in the order of their numbers."""
        count = ctypes.c_int()
        unlimited = (ctypes.c_int * 1024)()
        _check(nc().nc_inq_unlimdims(self.id, ctypes.byref(count), unlimited), f"inq_unlimdims in {self.path}")
        endless = set(unlimited[: count.value])
        result = []
        for d in range(self._int("nc_inq_ndims")):
            name, length = ctypes.create_string_buffer(NAME_MAX + 1), ctypes.c_size_t()
            _check(nc().nc_inq_dim(self.id, d, name, ctypes.byref(length)), f"inq_dim in {self.path}")
            result.append((name.value.decode(), length.value, d in endless))
        return result

    def var_count(self) -> int:
        return self._int("nc_inq_nvars")

    def var(self, v: int) -> tuple[str, int, tuple[int, ...], int]:
        """Name, type, numbers of its dimensions, number of attributes."""
        count = ctypes.c_int()
        _check(nc().nc_inq_varndims(self.id, v, ctypes.byref(count)), f"inq_varndims in {self.path}")
        name, kind, atts = ctypes.create_string_buffer(NAME_MAX + 1), ctypes.c_int(), ctypes.c_int()
        dims = (ctypes.c_int * max(count.value, 1))()
        _check(
            nc().nc_inq_var(self.id, v, name, ctypes.byref(kind), None, dims, ctypes.byref(atts)),
            f"inq_var in {self.path}",
        )
        return name.value.decode(), kind.value, tuple(dims[: count.value]), atts.value

    def atts(self, v: int) -> list[tuple[str, int, object]]:
        """Name, type and exact value (bytes; for strings a tuple of bytes) of a variable's or (−1) the file's attributes."""
        count = self._int("nc_inq_varnatts", v) if v != NC_GLOBAL else self._int("nc_inq_natts")
        result: list[tuple[str, int, object]] = []
        for a in range(count):
            name, kind, length = ctypes.create_string_buffer(NAME_MAX + 1), ctypes.c_int(), ctypes.c_size_t()
            _check(nc().nc_inq_attname(self.id, v, a, name), f"inq_attname in {self.path}")
            what = f"attribute {name.value.decode()} in {self.path}"
            _check(nc().nc_inq_att(self.id, v, name, ctypes.byref(kind), ctypes.byref(length)), what)
            value: object
            if kind.value == NC_STRING:
                strings = (ctypes.c_char_p * max(length.value, 1))()
                _check(nc().nc_get_att(self.id, v, name, strings), what)
                value = tuple(strings[i] for i in range(length.value))
                nc().nc_free_string(length, strings)
            elif kind.value > NC_MAX_ATOMIC:
                raise NetcdfError(f"{what} has a user-defined type, which same.py does not compare")
            else:
                data = ctypes.create_string_buffer(max(length.value * SIZES[kind.value], 1))
                _check(nc().nc_get_att(self.id, v, name, data), what)
                value = data.raw[: length.value * SIZES[kind.value]]
            result.append((name.value.decode(), kind.value, value))
        return result

    def fill(self, v: int) -> tuple[int, bytes]:
        """Whether filling is off, and the fill value's bytes."""
        name, kind, _, _ = self.var(v)
        off = ctypes.c_int()
        if kind == NC_STRING:
            return 0, b""
        value = ctypes.create_string_buffer(SIZES[kind])
        _check(nc().nc_inq_var_fill(self.id, v, ctypes.byref(off), value), f"fill of {name} in {self.path}")
        # Classic files do not keep the mode; what the library answers then is of the open, not of the file.
        return (off.value, b"" if off.value else value.raw) if self.hdf5 else (0, value.raw)

    def storage(self, v: int) -> dict[str, object]:
        """Layout, chunk lengths, filters with parameters, byte order; netCDF-4 only."""
        name, _, dims, _ = self.var(v)
        layout, endian, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
        chunks = (ctypes.c_size_t * max(len(dims), 1))()
        what = f"storage of {name} in {self.path}"
        _check(nc().nc_inq_var_chunking(self.id, v, ctypes.byref(layout), chunks), what)
        _check(nc().nc_inq_var_endian(self.id, v, ctypes.byref(endian)), what)
        filters = []
        _check(nc().nc_inq_var_filter_ids(self.id, v, ctypes.byref(count), None), what)
        identifiers = (ctypes.c_uint * max(count.value, 1))()
        _check(nc().nc_inq_var_filter_ids(self.id, v, ctypes.byref(count), identifiers), what)
        for identifier in identifiers[: count.value]:
            length = ctypes.c_size_t()
            _check(nc().nc_inq_var_filter_info(self.id, v, identifier, ctypes.byref(length), None), what)
            parameters = (ctypes.c_uint * max(length.value, 1))()
            _check(nc().nc_inq_var_filter_info(self.id, v, identifier, ctypes.byref(length), parameters), what)
            filters.append((identifier, tuple(parameters[: length.value])))
        shape = {0: "chunked", 1: "contiguous", 2: "compact"}.get(layout.value, str(layout.value))
        return {
            "layout": shape,
            "chunks": tuple(chunks[: len(dims)]) if layout.value == 0 else (),
            "filters": tuple(filters),
            "byte order": endian.value,
        }

    def read(self, v: int, start: tuple[int, ...], count: tuple[int, ...]) -> object:
        """A block: its bytes as an array of uint8 with a last axis of the element size; strings as a list of bytes."""
        name, kind, _, _ = self.var(v)
        starts = (ctypes.c_size_t * max(len(start), 1))(*start)
        counts = (ctypes.c_size_t * max(len(count), 1))(*count)
        elements = math.prod(count)
        what = f"values of {name} in {self.path}"
        if kind == NC_STRING:
            strings = (ctypes.c_char_p * max(elements, 1))()
            _check(nc().nc_get_vara(self.id, v, starts, counts, strings), what)
            texts = [strings[i] for i in range(elements)]
            nc().nc_free_string(ctypes.c_size_t(elements), strings)
            return texts
        if kind > NC_MAX_ATOMIC:
            raise NetcdfError(f"{what} are of a user-defined type, which same.py does not compare")
        data = np.empty((elements, SIZES[kind]), np.uint8)
        _check(nc().nc_get_vara(self.id, v, starts, counts, data.ctypes.data_as(ctypes.c_void_p)), what)
        return data


def pieces(shape: tuple[int, ...], element: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Boxes of at most PIECE_BYTES that cover the shape, in order."""
    if 0 in shape:
        return
    count = list(shape)
    for d in range(len(shape)):
        while math.prod(count) * element > PIECE_BYTES and count[d] > 1:
            count[d] = (count[d] + 1) // 2
    for start in itertools.product(*(range(0, length, step) for length, step in zip(shape, count, strict=True))):
        yield start, tuple(min(c, n - s) for c, n, s in zip(count, shape, start, strict=True))


def _shown(kind: int, value: object) -> str:
    text = (repr(value) if kind == NC_CHAR else value.hex(" ", SIZES[kind])) if isinstance(value, bytes) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _attribute_differences(of: str, a: list[tuple[str, int, object]], b: list[tuple[str, int, object]]) -> Iterator[str]:
    if [x[0] for x in a] != [x[0] for x in b]:
        missing = [x[0] for x in a if x[0] not in {y[0] for y in b}]
        extra = [x[0] for x in b if x[0] not in {y[0] for y in a}]
        if missing or extra:
            yield f"attributes of {of}: missing {missing}, extra {extra}"
        else:
            yield f"attributes of {of}: another order"
    others = {x[0]: x for x in b}
    for name, kind, value in a:
        if name not in others:
            continue
        _, other_kind, other = others[name]
        if kind != other_kind:
            yield f"attribute {name} of {of}: type {_type_name(kind)} / {_type_name(other_kind)}"
        elif value != other:
            yield f"attribute {name} of {of}: {_shown(kind, value)} / {_shown(kind, other)}"


def _value_difference(a: File, b: File, v: int, name: str, kind: int, shape: tuple[int, ...]) -> Iterator[str]:
    different, first = 0, ""
    for start, count in pieces(shape, SIZES.get(kind, 16)):
        one, other = a.read(v, start, count), b.read(v, start, count)
        if isinstance(one, np.ndarray):
            wrong = np.flatnonzero((one != other).any(axis=1))
        else:
            wrong = np.array([i for i, (x, y) in enumerate(zip(one, other, strict=True)) if x != y], int)  # type: ignore[call-overload]
        if len(wrong) and not first:
            at = tuple(int(s + i) for s, i in zip(start, np.unravel_index(wrong[0], count or (1,)), strict=False))
            values = [
                x[wrong[0]].tobytes().hex() if isinstance(x, np.ndarray) else repr(x[wrong[0]])  # type: ignore[index]
                for x in (one, other)
            ]
            first = f"first at {list(at)}: {values[0]} / {values[1]}"
        different += len(wrong)
    if different:
        yield f"values of {name}: {different} of {math.prod(shape)} differ, {first}"


def differences(first: str | os.PathLike[str], second: str | os.PathLike[str], storage: bool = False) -> Iterator[str]:
    """Each difference as one line. Raises NetcdfError when a file cannot be read."""
    with File(first) as a, File(second) as b:
        if a.format != b.format:
            yield f"format: {a.format} / {b.format}"
        if a.groups() or b.groups():
            raise NetcdfError("same.py does not compare groups")
        a_dims, b_dims = a.dims(), b.dims()
        if a_dims != b_dims:
            shown = [
                f"{x[0]} = {x[1]}{' unlimited' if x[2] else ''} / {y[0]} = {y[1]}{' unlimited' if y[2] else ''}"
                for x, y in zip(a_dims, b_dims, strict=False)
                if x != y
            ]
            yield f"dimensions ({len(a_dims)} / {len(b_dims)}): {'; '.join(shown)}"
        yield from _attribute_differences("the file", a.atts(NC_GLOBAL), b.atts(NC_GLOBAL))
        if a.var_count() != b.var_count():
            yield f"variables: {a.var_count()} / {b.var_count()}"
        for v in range(min(a.var_count(), b.var_count())):
            (name, kind, dims, _), (other_name, other_kind, other_dims, _) = a.var(v), b.var(v)
            if name != other_name:
                yield f"variable {v}: {name} / {other_name}"
                continue
            yield from _attribute_differences(name, a.atts(v), b.atts(v))
            if kind != other_kind:
                yield f"{name}: type {_type_name(kind)} / {_type_name(other_kind)}"
                continue
            if a.fill(v) != b.fill(v):
                yield f"{name}: fill (off, value) {a.fill(v)} / {b.fill(v)}"
            shape = tuple(a_dims[d][1] for d in dims)
            other_shape = tuple(b_dims[d][1] for d in other_dims)
            if dims != other_dims or shape != other_shape:
                yield f"{name}: shape {list(shape)} / {list(other_shape)}, dimensions {dims} / {other_dims}"
                continue
            if storage and a.hdf5 and b.hdf5:
                one, other = a.storage(v), b.storage(v)
                for key in one:
                    if one[key] != other[key]:
                        yield f"{name}: {key} {one[key]} / {other[key]}"
            yield from _value_difference(a, b, v, name, kind, shape)


def assert_same(first: str | os.PathLike[str], second: str | os.PathLike[str], storage: bool = True) -> None:
    found = list(differences(first, second, storage))
    assert not found, f"{first} and {second} differ:\n  " + "\n  ".join(found[:20])


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Compares two netCDF files: dimensions, variables, attributes and values, bit for bit."
    )
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--storage", action="store_true", help="also layout, chunks, filters and byte order")
    parser.add_argument("--quiet", action="store_true", help="no output, only the exit code")
    arguments = parser.parse_args()
    found = 0
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        for line in differences(arguments.first, arguments.second, arguments.storage):
            found += 1
            if not arguments.quiet:
                print(line)
    except NetcdfError as error:
        print(f"same.py: {error}", file=sys.stderr)
        return 2
    if found == 0 and not arguments.quiet:
        print("same")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
