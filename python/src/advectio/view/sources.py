"""Where frames come from: each source is a generator of one lazy ``xarray.Dataset`` per frame.

``encoding["source"]`` is the path of the model's file, ``encoding["advectio_frame"]`` counts from 0 in each file.
"""

import contextlib
import glob
import os
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

import xarray as xr

from advectio import open_files
from advectio.errors import UserError

TIME_DIMENSIONS = ("Time", "time", "time_counter")


def existing(patterns: Sequence[str]) -> list[str]:
    """The files that the patterns name, in the order of their names, each once."""
    found: list[str] = []
    for pattern in patterns:
        matches = [pattern] if os.path.exists(pattern) else sorted(glob.glob(os.path.expanduser(pattern)))
        if not matches:
            raise UserError(f"{pattern}: no such file; of a run under way say --live")
        found += matches
    return list(dict.fromkeys(found))


def replay(files: Sequence[str], pace_s: float) -> Iterator[xr.Dataset]:
    """Each record of each file, one every ``pace_s`` seconds, as if a model wrote them now."""
    first = True
    for path in files:
        try:
            whole = xr.decode_cf(open_files.opened(path), decode_times=False, decode_coords=False)
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read: {error}") from error
        dimension = time_dimension(whole)
        for record in range(whole.sizes[dimension] if dimension else 1):
            if not first:
                time.sleep(pace_s)
            first = False
            frame = whole.isel({dimension: record}) if dimension else whole
            frame.encoding = {"source": os.path.abspath(path), "advectio_frame": record}
            yield frame


def live(pattern: str, run: str | None = None, contact: str | None = None) -> Iterator[xr.Dataset]:
    """The frames of a running model, the newest first: what comes too fast is passed over."""
    import advectio

    for frame in advectio.frames(pattern, policy="latest", run=run, contact=contact):
        dimension = time_dimension(frame)
        chosen = frame.isel({dimension: -1}) if dimension else frame
        chosen.encoding = dict(frame.encoding)
        yield chosen


class Source(Protocol):
    """Whole files, undecoded, for `virtual_zarr`."""

    def files(self) -> list[str]:
        """In the order in which they were begun."""

    def open(self, path: str) -> xr.Dataset | None:
        """As far as it has been synced; None: nothing of it has."""


class Files:
    def __init__(self, files: Sequence[str]) -> None:
        self._files = [os.path.abspath(path) for path in files]

    def files(self) -> list[str]:
        return self._files

    def open(self, path: str) -> xr.Dataset | None:
        return _as_it_is(path)


class Run:
    """Files of the run under way that match, and of the run that was."""

    def __init__(self, pattern: str, run: str | None = None, contact: str | None = None) -> None:
        self._pattern, self._run, self._contact = pattern, run, contact
        self._known: dict[str, bool] = {}  # by path: it is complete

    def files(self) -> list[str]:
        from advectio.live import find

        patterns = find.patterns(self._pattern)
        try:
            run = self._run if self._run or self._contact else find.run_of(patterns, 0)
            servers = list(find.servers(run, self._contact))
        except UserError:  # it is over
            self._known = dict.fromkeys(self._known, True)
            return list(self._known)
        for client in servers:
            with contextlib.suppress(UserError):
                for d in client.ask("list", match=patterns)["datasets"]:
                    if d["frames"] > 0 and not (d["over"] and d["visible"] == 0):
                        self._known[d["path"]] = d["over"]
                client.close()
        return list(self._known)

    def open(self, path: str) -> xr.Dataset | None:
        from advectio.live import datasets, engine

        snapshot = None if self._known.get(path) else engine.snapshot(path, self._run, self._contact)
        return _as_it_is(datasets.on_disk(path)) if snapshot is None else snapshot


def _as_it_is(path: str) -> xr.Dataset:
    from advectio.live import datasets

    found = open_files.opened(path, datasets._engine(path))
    if os.path.isdir(path):
        found.encoding["unlimited_dims"] = datasets._unlimited_in_store(path)
    return found


def time_dimension(dataset: xr.Dataset) -> str | None:
    unlimited = [str(name) for name in dataset.encoding.get("unlimited_dims") or ()]
    for name in (*TIME_DIMENSIONS, *unlimited):
        if dataset.sizes.get(name, 0) > 0:
            return name
    return None
