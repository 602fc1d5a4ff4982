"""The dashboard's server: one process on loopback, everything below a path that begins with a random token.

| path | answer |
|---|---|
| ``/TOKEN/`` | the page |
| ``events`` | SSE: the state as JSON, whenever it changes. Who reads slowly gets the newest one only |
| ``streams/NAME`` | fields, frames and whether there are coastlines |
| ``streams/NAME/coast`` | lines in index space |
| ``streams/NAME/field`` | one plane for the screen, binary (`fields.packed`) |
| ``streams/NAME/value`` | the exact value at a point, where it lies |
| ``streams/NAME/series`` | the values at a point, frame by frame |
| ``streams/NAME/profile`` | the values at a point, level by level |
| ``streams/NAME/stats`` | min, mean, max of a field |
| ``zarr/NAME/KEY`` | all frames of the stream as a Zarr group (`virtual_zarr`) |

Whatever cannot be given is answered by a status and one line for people.
"""

import asyncio
import contextlib
import gzip
import json
import math
import secrets
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from importlib import resources
from typing import Any

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from advectio.errors import UserError, say
from advectio.view import Address, Options, fields, progress, sources, virtual_zarr
from advectio.view.frames import Frame, Frames, Gone, Plane, Stream, stream_name

HEARTBEAT_S = 2.0  # also how often the run's progress is asked for
SIDE_MAX = 8192
TYPES = {"html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def serve(options: Options) -> int:
    """Until Ctrl-C."""
    pattern = options.files[0] if options.files else ""
    if options.live:
        if len(options.files) != 1:
            raise UserError("--live takes one pattern, in quotes: advectio view --live 'wrfout_d01*'")
        if options.run is not None and options.contact is not None:
            raise UserError("either --run, of this node, or --contact, of another one; not both")
        frames = Frames(keep=2)
        follow = (lambda: sources.live(pattern, options.run, options.contact)), True
        source: sources.Source = sources.Run(pattern, options.run, options.contact)
    else:
        if options.run is not None or options.contact is not None:
            given = "--contact" if options.run is None else "--run"
            raise UserError(f"{given} names the run that --live follows; give --live too")
        files = sources.existing(options.files)
        frames = Frames(keep=None)
        follow = (lambda: sources.replay(files, options.pace_s)), False
        source = sources.Files(files)
    listener = _listen(options.port)
    token = secrets.token_urlsafe(24)
    port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}/{token}/"
    dashboard = Dashboard(frames, live=options.live, source=source, run=options.run)
    config = uvicorn.Config(
        dashboard.app(token), log_level="error", access_log=False, lifespan="off", timeout_graceful_shutdown=2, ws="none"
    )
    server = _Server(config, dashboard.closing)
    threading.Thread(target=frames.follow, args=follow, daemon=True).start()
    if options.as_json:
        address: Address = {"url": url, "token": token, "port": port}
        print(json.dumps(address), flush=True)
    else:
        print(url, flush=True)
        say("", "the dashboard is at this address until Ctrl-C; from another machine: "
            f"ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}")  # fmt: skip
    if options.open_browser:
        webbrowser.open(url)
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])
    return 0


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(64)
    except OSError as error:
        raise UserError(f"cannot listen on port {port}: {error.strerror}; without --port a free one is taken") from error
    return listener


class _Server(uvicorn.Server):
    """Ends the event streams first, which would never end by themselves."""

    def __init__(self, config: uvicorn.Config, closing: threading.Event) -> None:
        super().__init__(config)
        self._closing = closing

    def handle_exit(self, sig: int, frame: Any) -> None:
        self._closing.set()
        super().handle_exit(sig, frame)


class _Token:
    """Lets requests through whose path begins with the token. The rest learn nothing."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        first = scope.get("path", "/").split("/", 2)[1] if scope["type"] == "http" else ""
        if scope["type"] == "http" and secrets.compare_digest(first.encode("utf-8", "replace"), self._token):
            await self._app(scope, receive, send)
            return
        text = "the address lacks its token: take the whole line that advectio view has printed\n"
        await PlainTextResponse(text, 401, HEADERS)(scope, receive, send)


class Dashboard:
    def __init__(self, frames: Frames, live: bool, source: sources.Source | None = None, run: str | None = None) -> None:
        self.frames = frames
        self._run_directory = run
        self._groups = virtual_zarr.Groups(source or sources.Files([]), stream_name)
        self.closing = threading.Event()
        self._live = live
        self._run: dict[str, Any] | None = None
        self._run_asked = 0.0

    def app(self, token: str) -> ASGIApp:
        inner = [
            Route("/", self._page),
            Route("/page/{name}", self._page),
            Route("/events", self._events),
            Route("/streams/{stream}", self._answer(self._stream)),
            Route("/streams/{stream}/coast", self._answer(self._coast)),
            Route("/streams/{stream}/field", self._answer(self._field)),
            Route("/streams/{stream}/value", self._answer(self._value)),
            Route("/streams/{stream}/series", self._answer(self._series)),
            Route("/streams/{stream}/profile", self._answer(self._profile)),
            Route("/streams/{stream}/stats", self._answer(self._stats)),
            Route("/zarr/{stream}/{key:path}", self._zarr),
        ]
        return _Token(Starlette(routes=[Mount(f"/{token}", routes=inner)]), token)

    # ---- the page ----

    async def _page(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        file = resources.files("advectio.view").joinpath("page", name)
        if "/" in name or not file.is_file():
            return PlainTextResponse(f"there is no {name}\n", 404, HEADERS)
        return Response(file.read_bytes(), media_type=TYPES.get(name.rsplit(".", 1)[-1]), headers=HEADERS)

    # ---- events ----

    async def _events(self, request: Request) -> Response:
        return StreamingResponse(self._event_stream(), media_type="text/event-stream", headers=HEADERS)

    async def _event_stream(self) -> AsyncIterator[str]:
        """The newest state, whenever the browser has taken the one before: what came between is left out."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(changed.set)

        self.frames.listeners.add(tell)
        try:
            yield "retry: 1000\n\n"
            while not self.closing.is_set():
                changed.clear()
                await self._ask_run()
                yield f"event: state\ndata: {json.dumps(self.state())}\n\n"
                until = time.monotonic() + HEARTBEAT_S
                while not changed.is_set() and not self.closing.is_set() and time.monotonic() < until:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(changed.wait(), 0.2)
            yield "event: bye\ndata: {}\n\n"
        finally:
            self.frames.listeners.discard(tell)

    def state(self) -> dict[str, Any]:
        now = time.monotonic()
        streams = []
        for stream in list(self.frames.streams.values()):
            arrivals = list(stream.arrivals)
            rate = (
                (len(arrivals) - 1) / (arrivals[-1] - arrivals[0]) if len(arrivals) > 1 and arrivals[-1] > arrivals[0] else None
            )
            streams.append(
                {
                    "name": stream.name,
                    "seen": stream.seen,
                    "latest": stream.frames[-1].summary(),
                    "per_minute": rate and rate * 60,
                    "since_s": now - arrivals[-1],
                    "fields": len(stream.fields),
                }
            )
        return {"state": self.frames.state, "why": self.frames.why, "live": self._live, "streams": streams, "run": self._run}

    async def _ask_run(self) -> None:
        if not self._live or time.monotonic() - self._run_asked < HEARTBEAT_S:
            return
        self._run_asked = time.monotonic()
        paths = [stream.frames[-1].source for stream in list(self.frames.streams.values())]
        self._run = await run_in_threadpool(progress.of_run, paths, self._run_directory)

    # ---- answers; each runs in a thread ----

    def _answer(
        self, make: Callable[[Stream, Mapping[str, str]], Response | dict[str, Any] | list[Any]]
    ) -> Callable[[Request], Awaitable[Response]]:
        def answer(name: str, query: Mapping[str, str]) -> Response:
            try:
                made = make(self.frames.stream(name), query)
            except Gone as error:
                return PlainTextResponse(f"{error}\n", 404, HEADERS)
            except KeyError as error:
                return PlainTextResponse(f"{error.args[0]} is missing in the request\n", 400, HEADERS)
            except ValueError as error:
                return PlainTextResponse(f"{error}\n", 400, HEADERS)
            except (OSError, RuntimeError, UserError) as error:
                return PlainTextResponse(f"cannot be read: {error}\n", 502, HEADERS)
            return made if isinstance(made, Response) else JSONResponse(made, headers=HEADERS)

        async def answered(request: Request) -> Response:
            return await run_in_threadpool(answer, request.path_params["stream"], request.query_params)

        return answered

    async def _zarr(self, request: Request) -> Response:
        stream, key = request.path_params["stream"], request.path_params["key"]

        def answer() -> Response:
            try:
                found = virtual_zarr.answer(self._groups, stream, key)
            except virtual_zarr.NoGroup as error:
                return PlainTextResponse(f"{error}\n", 409, HEADERS)
            except (OSError, RuntimeError, UserError) as error:
                return PlainTextResponse(f"cannot be read: {error}\n", 502, HEADERS)
            if found is None:
                return PlainTextResponse(f"there is no {key} of {stream}\n", 404, HEADERS)
            body, is_json = found
            return Response(body, media_type="application/json" if is_json else "application/octet-stream", headers=HEADERS)

        return await run_in_threadpool(answer)

    def _stream(self, stream: Stream, query: Mapping[str, str]) -> dict[str, Any]:
        return {
            "name": stream.name,
            "fields": stream.fields,
            "frames": [frame.summary() | {"kept": frame.dataset is not None} for frame in list(stream.frames)],
            "positions": list(stream.positions[0].shape) if stream.positions else None,
        }

    def _coast(self, stream: Stream, query: Mapping[str, str]) -> list[Any]:
        return [np.round(line, 2).reshape(-1).tolist() for line in stream.coasts]

    def _frame_and_plane(self, stream: Stream, query: Mapping[str, str]) -> tuple[Frame, Plane]:
        at = tuple(int(i) for i in query.get("at", "").split(",") if i)
        cut = query.get("cut", "map")
        if cut not in fields.CUTS[:3]:
            raise ValueError(f"cut is one of {', '.join(fields.CUTS[:3])}; not {cut}")
        return self.frames.frame(stream, query.get("frame", "latest")), Plane(query["variable"], at, cut)

    def _field(self, stream: Stream, query: Mapping[str, str]) -> Response:
        began = time.perf_counter()
        frame, key = self._frame_and_plane(stream, query)
        plane = self.frames.plane(stream, frame, key)
        read_s = time.perf_counter() - began
        whole = fields.spread(plane)
        box = [int(i) for i in query["box"].split(",")] if query.get("box") else [0, 0, plane.shape[1], plane.shape[0]]
        x0, y0, x1, y1 = max(0, box[0]), max(0, box[1]), min(plane.shape[1], box[2]), min(plane.shape[0], box[3])
        if x0 >= x1 or y0 >= y1:
            raise ValueError(f"the box {query['box']} lies outside of {plane.shape[1]} × {plane.shape[0]} cells")
        width, height = (max(1, min(SIDE_MAX, int(query.get(side, SIDE_MAX)))) for side in ("width", "height"))
        bits = 8 if query.get("bits") == "8" else 16
        how = query.get("pool", "auto")
        if how not in ("auto", "mean", "max", "min", "nearest"):
            raise ValueError(f"pool is one of auto, mean, max, min, nearest; not {how}")
        if how == "auto":
            how = fields.usual_pooling(plane, frame.dataset is not None and fields.is_category(frame.dataset, key[0]))
        factors = max(1, math.ceil((y1 - y0) / height)), max(1, math.ceil((x1 - x0) / width))
        if key.cut == "map":
            factors = (max(factors), max(factors))  # cells stay square
        pooled = fields.pool(plane[y0:y1, x0:x1], factors, how)
        low, high = (whole.low, whole.high) if whole.low == whole.low else (0.0, 0.0)
        values = fields.quantise(pooled, low, high, bits)
        header = {
            "frame": frame.summary(),
            "variable": key[0],
            "shape": list(values.shape),
            "box": [x0, y0, x1, y1],
            "factors": list(factors),
            "pool": how,
            "bits": bits,
            "low": low,
            "high": high,
            "mean": _number(whole.mean),
            "most": [_number(end) for end in fields.most(plane)],
            "missing": whole.missing,
            "cells": plane.size,
            "read_s": round(read_s, 4),
            "server_s": round(time.perf_counter() - began, 4),
        }
        body = fields.packed(header, values)
        headers = dict(HEADERS)
        if bits == 8:  # asked for on slow lines
            body, headers["Content-Encoding"] = gzip.compress(body, 1), "gzip"
        return Response(body, media_type="application/octet-stream", headers=headers)

    def _point(self, query: Mapping[str, str]) -> tuple[int, int]:
        y, x = int(query["y"]), int(query["x"])
        if y < 0 or x < 0:
            raise ValueError("x and y count from 0")
        return y, x

    def _value(self, stream: Stream, query: Mapping[str, str]) -> dict[str, Any]:
        frame, key = self._frame_and_plane(stream, query)
        y, x = self._point(query)
        plane = self.frames.plane(stream, frame, key)
        if y >= plane.shape[0] or x >= plane.shape[1]:
            raise ValueError(f"x {x}, y {y} lies outside of {plane.shape[1]} × {plane.shape[0]} cells")
        return {"value": _number(float(plane[y, x])), "x": x, "y": y, "frame": frame.number, **_place(stream, key, y, x)}

    def _series(self, stream: Stream, query: Mapping[str, str]) -> dict[str, Any]:
        _, key = self._frame_and_plane(stream, query)
        y, x = self._point(query)
        known = next((f for f in stream.fields if f["name"] == key[0]), None)
        if known is None:
            raise Gone(f"{key[0]} is not in {stream.name}")
        rows, columns = _sizes(known, key.cut)
        if y >= rows or x >= columns:
            raise ValueError(f"x {x}, y {y} lies outside of {columns} × {rows} cells")
        return {"values": self.frames.series(stream, key, y, x)}

    def _profile(self, stream: Stream, query: Mapping[str, str]) -> dict[str, Any]:
        frame, key = self._frame_and_plane(stream, query)
        y, x = self._point(query)
        values = self.frames.profile(frame, Plane(key.name, (*key.at, y, x), "profile"))
        return {"values": [_number(float(value)) for value in values], "x": x, "y": y, "frame": frame.number}

    def _stats(self, stream: Stream, query: Mapping[str, str]) -> dict[str, Any]:
        """Of the plane, or (``whole=1``) of all levels, one plane after the other."""
        frame, (name, at, _) = self._frame_and_plane(stream, query)
        if query.get("whole") != "1" or frame.dataset is None or name not in frame.dataset.variables:
            found = [fields.spread(self.frames.plane(stream, frame, Plane(name, at)))]
            cells = self.frames.plane(stream, frame, Plane(name, at)).size
        else:
            shape = fields.shape(frame.dataset.variables[name])
            found = [fields.spread(fields.read(frame.dataset, name, tuple(i))) for i in np.ndindex(shape[:-2])]
            cells = shape[-1] * shape[-2]
        there = [(s, cells - s.missing) for s in found if s.missing < cells]
        count = sum(n for _, n in there)
        return {
            "variable": name,
            "frame": frame.number,
            "min": _number(min((s.low for s, _ in there), default=math.nan)),
            "mean": _number(sum(s.mean * n for s, n in there) / count if count else math.nan),
            "max": _number(max((s.high for s, _ in there), default=math.nan)),
            "missing": cells * len(found) - count,
            "cells": cells * len(found),
        }


def _sizes(known: dict[str, Any], cut: str) -> tuple[int, int]:
    """Rows and columns of a plane of a field."""
    ny, nx = known["shape"]
    if cut == "map":
        return ny, nx
    levels = next((level["size"] for level in reversed(known["levels"]) if level["size"] > 1), 0)
    return levels, nx if cut == "row" else ny


def _place(stream: Stream, plane: Plane, y: int, x: int) -> dict[str, float | None]:
    """Latitude and longitude of a cell of a plane."""
    known = next((f for f in stream.fields if f["name"] == plane.name), None)
    if stream.positions is None or known is None:
        return {"lat": None, "lon": None}
    if plane.cut == "row":
        y = plane.at[-1]
    elif plane.cut == "column":
        y, x = x, plane.at[-1]
    lat, lon = stream.positions
    # Staggered grids have a row or column more.
    if abs(lat.shape[0] - known["shape"][0]) > 1 or abs(lat.shape[1] - known["shape"][1]) > 1:
        return {"lat": None, "lon": None}
    j, i = min(y, lat.shape[0] - 1), min(x, lat.shape[1] - 1)
    return {"lat": float(lat[j, i]), "lon": (float(lon[j, i]) + 180) % 360 - 180}


def _number(value: float) -> float | None:
    """JSON has no NaN."""
    return value if math.isfinite(value) else None


if __name__ == "__main__":  # for work on the page
    sys.exit(serve(Options(sys.argv[1:])))
