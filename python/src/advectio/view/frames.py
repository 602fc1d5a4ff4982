"""The frames seen so far. One thread adds them (`follow`), requests of browsers read them."""

import os
import re
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from advectio.errors import UserError
from advectio.view import coasts, fields, sources

KEPT_LIVE = 2  # datasets of a live run: each may hold memory of the stage
KEPT_FRAMES = 2000  # of which the page still knows the time
CACHE_BYTES = 256 << 20  # of planes that were looked at
POINTS = 64  # whose series is collected
POINT_VALUES = 20000
RETRY_S = 2.0


class Plane(NamedTuple):
    """A field's name, the indices of its leading dimensions, and what is cut out of it (`fields.CUTS`)."""

    name: str
    at: tuple[int, ...]
    cut: str = "map"


class Gone(Exception):
    """What is asked for is not (or no longer) there. The text is for people."""


@dataclass
class Frame:
    number: int  # counts from 0 in its stream
    source: str
    label: str
    time_ms: float | None  # of the model, since 1970
    dataset: xr.Dataset | None  # None: no longer kept

    def summary(self) -> dict[str, Any]:
        return {"number": self.number, "label": self.label, "time_ms": self.time_ms, "file": os.path.basename(self.source)}


@dataclass
class Point:
    """A place whose values are collected from frame to frame."""

    values: deque[tuple[int, float | None, str, float | None]] = field(default_factory=lambda: deque(maxlen=POINT_VALUES))


@dataclass
class Stream:
    """The frames of one domain: files whose names differ only in their date."""

    name: str
    fields: list[dict[str, Any]]
    frames: deque[Frame] = field(default_factory=lambda: deque(maxlen=KEPT_FRAMES))
    seen: int = 0
    arrivals: deque[float] = field(default_factory=lambda: deque(maxlen=20))
    points: "OrderedDict[tuple[Plane, int, int], Point]" = field(default_factory=OrderedDict)
    positions: tuple[Any, Any] | None = None
    coasts: list[Any] = field(default_factory=list)


class Frames:
    def __init__(self, keep: int | None, cache_bytes: int = CACHE_BYTES) -> None:
        self.streams: dict[str, Stream] = {}
        self.state, self.why = "waiting", ""  # waiting, live, ended, reconnecting
        self.listeners: set[Callable[[], None]] = set()
        self._keep = keep
        self._lock = threading.Lock()
        self._planes: OrderedDict[tuple[str, int, Plane], fields.Floats] = OrderedDict()
        self._cache_bytes = cache_bytes

    # ---- one thread adds ----

    def follow(self, source: Callable[[], Iterator[xr.Dataset]], again: bool) -> None:
        """Take all frames of a source. ``again``: where it fails, say so and begin anew (of a live run)."""
        while True:
            try:
                for dataset in source():
                    self.add(dataset)
                return self._say("ended")
            except Exception as error:  # whatever it is, the page says it, and what was seen can still be looked at
                self._say("reconnecting" if again else "failed", _one_line(error))
                if not again:
                    return None
            time.sleep(RETRY_S)

    def add(self, dataset: xr.Dataset) -> Frame:
        path = str(dataset.encoding.get("source", ""))
        name = stream_name(path)
        label, time_ms = model_time(dataset)
        stream = self.streams.get(name)
        if stream is None:
            positions = coasts.positions(dataset)
            stream = Stream(name, fields.describe(dataset, positions))
            stream.positions = positions
            stream.coasts = coasts.lines(*stream.positions) if stream.positions else []
        elif set(dataset.variables) - {f["name"] for f in stream.fields}:
            # Files of one name may hold more fields later; what went stays in the list, and is said to be missing.
            known = {f["name"]: f for f in stream.fields} | {f["name"]: f for f in fields.describe(dataset, stream.positions)}
            stream.fields = list(known.values())
        frame = Frame(stream.seen, path, label or f"frame {stream.seen}", time_ms, dataset)
        with self._lock:  # in one go, as in `series`: a point gets this frame from here or from there, never from neither
            stream.frames.append(frame)
            stream.seen += 1
            stream.arrivals.append(time.monotonic())
            self.streams[name] = stream
            points = list(stream.points.items())
            for old in list(stream.frames)[: -self._keep] if self._keep else ():
                old.dataset = None
        for (plane, y, x), point in points:
            point.values.append(self._value(frame, plane, y, x))
        self._say("live")
        return frame

    def _say(self, state: str, why: str = "") -> None:
        self.state, self.why = state, why
        for tell in list(self.listeners):
            tell()

    # ---- many read ----

    def stream(self, name: str) -> Stream:
        if name in self.streams:
            return self.streams[name]
        raise Gone(f"no frame of {name} has come yet" if name else "no frame has come yet")

    def frame(self, stream: Stream, number: str) -> Frame:
        """By its number, or "latest"."""
        with self._lock:
            if number == "latest":
                return stream.frames[-1]
            for frame in stream.frames:
                if str(frame.number) == number:
                    return frame
        raise Gone(f"frame {number} of {stream.name} is no longer kept")

    def plane(self, stream: Stream, frame: Frame, plane: Plane) -> fields.Floats:
        key = (stream.name, frame.number, plane)
        with self._lock:
            if key in self._planes:
                self._planes.move_to_end(key)
                return self._planes[key]
        values = self._read(frame, plane)
        if not values.flags.owndata:
            values = values.copy()  # an array of a live frame holds memory of the run
        with self._lock:
            self._planes[key] = values
            while len(self._planes) > 1 and sum(p.nbytes for p in self._planes.values()) > self._cache_bytes:
                self._planes.popitem(last=False)
        return values

    def series(self, stream: Stream, plane: Plane, y: int, x: int) -> list[tuple[int, float | None, str, float | None]]:
        """The values at a point, of all frames that are kept; from now on of each frame that comes."""
        key = (plane, y, x)
        with self._lock:
            point = stream.points.get(key)
            if point is not None:
                stream.points.move_to_end(key)
                return list(point.values)
            known = list(stream.frames)
            there = {number for name, number, p in self._planes if name == stream.name and p == plane}
        point = Point()
        for frame in known:
            if frame.dataset is not None or frame.number in there:
                point.values.append(self._value(frame, plane, y, x, stream))
        with self._lock:
            while len(stream.points) >= POINTS:
                stream.points.popitem(last=False)
            stream.points[key] = point
            newer = [frame for frame in stream.frames if frame.number > (known[-1].number if known else -1)]
        for frame in newer:  # came while the older ones were read
            point.values.append(self._value(frame, plane, y, x, stream))
        return sorted(point.values)

    def _value(
        self, frame: Frame, plane: Plane, y: int, x: int, stream: Stream | None = None
    ) -> tuple[int, float | None, str, float | None]:
        try:
            cached = self._planes.get((stream.name, frame.number, plane)) if stream else None
            value = float(cached[y, x] if cached is not None else self._read(frame, plane._replace(at=(*plane.at, y, x))))
        except (Gone, OSError, RuntimeError, ValueError, IndexError, UserError):
            value = float("nan")
        return frame.number, frame.time_ms, frame.label, value if np.isfinite(value) else None

    def profile(self, frame: Frame, plane: Plane) -> fields.Floats:
        """The values at all levels of a place: `plane.at` ends with its row and column."""
        return self._read(frame, plane)

    @staticmethod
    def _read(frame: Frame, plane: Plane) -> fields.Floats:
        name, at, cut = plane
        dataset = frame.dataset
        if dataset is None:
            raise Gone(f"{name} of frame {frame.number} ({frame.label}) is no longer kept")
        if name not in dataset.variables:
            raise Gone(f"{name} is not in frame {frame.number} ({frame.label})")
        shape = fields.shape(dataset.variables[name], cut)
        least = len(shape) - (1 if cut == "profile" else 2)
        if not least <= len(at) <= len(shape) or any(not 0 <= i < n for i, n in zip(at, shape, strict=False)):
            levels = ", ".join(map(str, at)) or "none"
            raise Gone(f"{name} has {shape[:least]} levels of {shape[least:]} cells; asked for: {levels}")
        return fields.read(dataset, name, at, cut)


def stream_name(path: str) -> str:
    """``wrfout_d01_2024-05-11_12:00:00`` → ``wrfout_d01``."""
    name = re.sub(r"[._-]?\d{4}-\d\d-\d\d([_T]\d\d[:_.-]?\d\d([:_.-]?\d\d)?)?", "", os.path.basename(path))
    return name or os.path.basename(path) or "frames"


def model_time(dataset: xr.Dataset) -> tuple[str, float | None]:
    """As text, and in milliseconds since 1970. ("", None) where the data says nothing that we understand."""
    if "Times" in dataset.variables:
        value = dataset["Times"].values
        if value.ndim == 0 or value.size == 1:
            text = value.reshape(-1)[0]
            text = (text.decode("ascii", "replace") if isinstance(text, bytes) else str(text)).strip("\0 ")
            try:
                return _time(np.datetime64(text.replace("_", "T", 1), "s"))
            except ValueError:
                return text, None
    for name in (*sources.TIME_DIMENSIONS, "XTIME"):
        if name not in dataset.variables or dataset[name].size != 1:
            continue
        variable = dataset[name]
        if variable.dtype.kind != "M" and " since " in str(variable.attrs.get("units", "")):
            try:
                variable = xr.decode_cf(xr.Dataset({"t": variable.variable}))["t"]
            except (ValueError, OverflowError):
                return f"{variable.values.reshape(-1)[0]:g} {variable.attrs['units']}", None
        value = variable.values.reshape(-1)[0]
        if variable.dtype.kind == "M":
            return _time(value.astype("datetime64[s]"))
        if variable.dtype.kind == "O":  # another calendar
            return str(value), None
        if variable.dtype.kind in "fi" and variable.attrs.get("units"):
            return f"{float(value):g} {variable.attrs['units']}", None
    return "", None


def _time(value: np.datetime64) -> tuple[str, float | None]:
    if np.isnat(value):
        return "", None
    return str(value).replace("T", " "), float(value.astype("datetime64[s]").astype(np.int64)) * 1000


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
