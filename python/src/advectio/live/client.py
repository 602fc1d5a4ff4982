"""The C++ client by ctypes: one connection to one server. Calls may come from any thread."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from advectio import installation
from advectio.errors import UserError

if TYPE_CHECKING:
    import numpy as np

_ROOM = 2048  # for the text of an error
_U64 = ctypes.c_uint64
_VERSION = 2  # of the library's functions, as src/readers/c_client.cpp has it


class Gone(UserError):
    """The server has ended, the connection has broken, or no answer has come in time."""


class Ended(Gone):
    """The run has ended, as it should."""


class LetGo(UserError):
    """The frame is not held any more: its values can be had from the file, if at all."""


@functools.cache
def _library() -> ctypes.CDLL:
    path = installation.readers_library()
    lib = ctypes.CDLL(path)
    version = getattr(lib, "advectio_reader_version", None)
    if version is None or version() != _VERSION:
        raise UserError(f"{path} is of another version of Advectio than this package; build or install both together")
    text, size, many = ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(_U64)
    part = [ctypes.c_void_p, _U64, ctypes.c_uint32, many, many, many, size]
    for name, result, arguments in (
        ("connect", ctypes.c_void_p, [text, text, text, ctypes.c_int, ctypes.c_int, text, size]),
        ("close", None, [ctypes.c_void_p]),
        ("server", ctypes.c_void_p, [ctypes.c_void_p]),
        ("free", None, [ctypes.c_void_p]),
        ("ask", ctypes.c_void_p, [ctypes.c_void_p, text, text, size]),
        ("read", ctypes.c_int, [*part, ctypes.c_void_p, _U64, text, size]),
        ("read_strings", ctypes.c_void_p, [*part, many, text, size]),
        ("view", ctypes.c_int, [*part, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_void_p), text, size]),
        ("let_view_go", None, [ctypes.c_void_p]),
        ("done", None, [ctypes.c_void_p, _U64]),
        ("end", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int]),
        ("gone", ctypes.c_int, [ctypes.c_void_p]),
    ):
        function = getattr(lib, "advectio_reader_" + name)
        function.restype = result
        function.argtypes = arguments
    return lib


def _error(buffer: ctypes.Array[ctypes.c_char]) -> UserError:
    code, _, text = buffer.value.decode(errors="replace").partition(": ")
    if code in ("gone", "io", "timeout"):
        return Gone(text)
    return LetGo(text) if code == "not_found" else UserError(text)


class Client:
    """One connection. ``close`` ends it, and lets go of all frames."""

    def __init__(self, address: str, secret: str, name: str, timeout_s: float = 5.0, by_ucx: bool = False) -> None:
        self._lib = _library()
        error = ctypes.create_string_buffer(_ROOM)
        handle = self._lib.advectio_reader_connect(
            os.fsencode(address), secret.encode(), name.encode(), int(timeout_s * 1000), int(by_ucx), error, _ROOM
        )
        if not handle:
            raise _error(error)
        self._handle = handle
        self._close = weakref.finalize(self, self._lib.advectio_reader_close, handle)
        self.server: dict[str, Any] = self._take(self._lib.advectio_reader_server(handle))

    def _take(self, memory: int | None) -> Any:
        if not memory:
            return None
        try:
            return json.loads(ctypes.string_at(memory))
        finally:
            self._lib.advectio_reader_free(memory)

    def close(self) -> None:
        self._close()

    @property
    def alive(self) -> bool:
        return self._close.alive and not self._lib.advectio_reader_gone(self._handle)

    def ask(self, do: str, **keys: Any) -> dict[str, Any]:
        """One request of PROTOCOL.md. Blocks until the answer is there."""
        self._must_be_open()
        error = ctypes.create_string_buffer(_ROOM)
        reply = self._take(self._lib.advectio_reader_ask(self._handle, json.dumps({"do": do, **keys}).encode(), error, _ROOM))
        if reply is None:
            raise _error(error)
        return dict(reply)

    def _must_be_open(self) -> None:
        if not self._close.alive:
            raise Gone("the connection is closed")

    @staticmethod
    def _part(start: Sequence[int], count: Sequence[int], stride: Sequence[int] | None) -> tuple[Any, ...]:
        many = _U64 * len(start)
        return many(*start), many(*count), many(*stride) if stride else None, len(start)

    def read(
        self,
        keep: object,
        frame: int,
        variable: int,
        start: Sequence[int],
        count: Sequence[int],
        stride: Sequence[int] | None,
        dtype: np.dtype[Any],
    ) -> np.ndarray[Any, Any]:
        """Values as an array of the shape ``count``: a read-only view of the stage where they lie in one piece, else a copy.

        A view keeps ``keep`` alive.
        """
        import numpy as np

        self._must_be_open()
        error = ctypes.create_string_buffer(_ROOM)
        part = self._part(start, count, stride)
        data, view = ctypes.c_void_p(), ctypes.c_void_p()
        if self._lib.advectio_reader_view(self._handle, frame, variable, *part, data, view, error, _ROOM):
            raise _error(error)
        if data.value:
            size = dtype.itemsize
            for n in count:
                size *= n
            memory = (ctypes.c_char * size).from_address(data.value)
            weakref.finalize(memory, _let_go, self._lib.advectio_reader_let_view_go, view.value, keep)
            return np.frombuffer(memoryview(memory).toreadonly(), dtype=dtype).reshape(count)
        out = np.empty(count, dtype=dtype)
        if self._lib.advectio_reader_read(
            self._handle, frame, variable, *part, out.ctypes.data_as(ctypes.c_void_p), out.nbytes, error, _ROOM
        ):
            raise _error(error)
        return out

    def strings(
        self, frame: int, variable: int, start: Sequence[int], count: Sequence[int], stride: Sequence[int] | None
    ) -> np.ndarray[Any, Any]:
        import numpy as np

        self._must_be_open()
        error = ctypes.create_string_buffer(_ROOM)
        length = _U64()
        memory = self._lib.advectio_reader_read_strings(
            self._handle, frame, variable, *self._part(start, count, stride), length, error, _ROOM
        )
        if not memory:
            raise _error(error)
        try:
            raw = ctypes.string_at(memory, length.value)
        finally:
            self._lib.advectio_reader_free(memory)
        out, at = [], 0
        while at < len(raw):
            n = int.from_bytes(raw[at : at + 4], "little")
            at += 4
            null = n == 0xFFFFFFFF
            out.append("" if null else raw[at : at + n].decode(errors="replace"))
            at += 0 if null else n
        array = np.empty(len(out), dtype=object)
        array[:] = out
        return array.reshape(count)

    def done(self, frame: int) -> None:
        if self._close.alive:
            with contextlib.suppress(Exception):
                self._lib.advectio_reader_done(self._handle, frame)

    def end(self, wait: bool) -> dict[str, Any] | None:
        """The server's last word; None: it has not ended, or has gone without one."""
        self._must_be_open()
        said = self._take(self._lib.advectio_reader_end(self._handle, int(wait)))
        return None if said is None else dict(said)


def _let_go(let_view_go: Callable[[int | None], None], view: int | None, keep: object) -> None:
    """A view has ended. ``keep``, the frame, has lived until here."""
    let_view_go(view)
    del keep
