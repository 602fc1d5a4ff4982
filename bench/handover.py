#!/usr/bin/env python3
"""How late another program has what one has written: as a file in /dev/shm, coupled (a file in memory), or as a live frame.

    .venv/bin/python bench/handover.py [--megabytes 300] [--frames 8] [--rounds 3] [--json FILE]

A netCDF4-python program writes one field to a new file and closes it; another reads all of it into memory that it keeps. They
go in step. Methods are interleaved; the first frame of each run is left out; medians are printed.

    put      open, define, put and close of the writer
    open     from the return of its close until the reader has a dataset
    whole    from the return of its close until the reader has all values
    total    from the begin of the put until then
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from measuring import environment

ADVECTIO = Path(__file__).resolve().parents[1] / ".venv/bin/advectio"
METHODS = ("file", "coupled", "live")
FORMATS = ("NETCDF4", "NETCDF3_64BIT_OFFSET")
SECONDS_MAX = 120.0
# The reader's array is not of new memory in each frame: see readers.py.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**50), "MALLOC_TOP_PAD_": str(2**26)}


def await_path(path: Path) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not path.exists():
        if time.monotonic() > deadline:
            raise SystemExit(f"the other program has not made {path}")
        time.sleep(0.001)


def say(path: Path, text: str) -> None:
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


def write(method: str, data: Path, signals: Path, file_format: Any, frames: int, shape: tuple[int, ...]) -> None:
    import netCDF4

    field = np.random.default_rng(1).random(shape, dtype=np.float32)
    if method != "live":  # there `advectio run` waits for the reader
        await_path(signals / "reader.ready")
    for i in range(frames):
        began = time.monotonic()
        with netCDF4.Dataset(data / f"x.{i}.nc", "w", format=file_format) as ds:
            ds.createDimension("t", None)
            for name, length in zip("zyx", shape, strict=True):
                ds.createDimension(name, length)
            ds.createVariable("T", "f4", ("t", *"zyx"))[0] = field
        say(signals / f"{i}.written", f"{began} {time.monotonic()}")
        await_path(signals / f"{i}.read")
        time.sleep(0.3)  # the server comes to rest


def datasets(method: str, data: Path, signals: Path, frames: int) -> Iterator[Any]:
    if method == "live":
        import advectio

        yield from itertools.islice(advectio.frames(data / "x.*.nc", wait=SECONDS_MAX), frames)
        return
    import netCDF4

    say(signals / "reader.ready", "")
    for i in range(frames):
        if method == "file":
            await_path(signals / f"{i}.written")
        with netCDF4.Dataset(data / f"x.{i}.nc") as ds:
            ds.set_auto_mask(False)
            yield ds


def read(method: str, data: Path, signals: Path, frames: int, shape: tuple[int, ...]) -> None:
    into = np.zeros(shape, np.float32)
    times = []
    for i, ds in enumerate(datasets(method, data, signals, frames)):
        opened = time.monotonic()
        into[:] = ds["T"][0] if method != "live" else ds["T"].values.reshape(shape)
        whole = time.monotonic()
        await_path(signals / f"{i}.written")
        began, ended = map(float, (signals / f"{i}.written").read_text().split())
        times.append({"put": ended - began, "open": opened - ended, "whole": whole - ended, "total": whole - began})
        say(signals / f"{i}.read", "")
    if not np.array_equal(into, np.random.default_rng(1).random(shape, dtype=np.float32)):
        raise SystemExit(f"{method}: the values are not those that were written")
    print(json.dumps(times))


def one(method: str, file_format: str, frames: int, shape: tuple[int, ...]) -> list[dict[str, float]]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as where, tempfile.TemporaryDirectory() as run:
        (Path(run) / "config.yaml").write_text('couple: [{match: "x.*.nc", from: a, to: b}]\n')

        def start(name: str) -> subprocess.Popen[bytes]:
            program = [sys.executable, __file__, f"--{'write' if name == 'a' else 'read'}", method, where, run, file_format]
            program += [str(frames), *map(str, shape)]
            under = [str(ADVECTIO), "run", "--quiet"]
            coupled = [*under, "--config", f"{run}/config.yaml", "--workflow", f"{run}/w", "--as", name, "--"]
            beside = [*under, "--wait-for-readers", "1", "--"] if name == "a" else []
            words = {"file": [], "coupled": coupled, "live": beside}[method]
            given = dict(environment(), **KEEP_MEMORY)
            return subprocess.Popen([*words, *program], env=given, cwd=where, stdout=subprocess.PIPE)

        both = [start("a"), start("b")]
        try:
            said = both[1].communicate(timeout=SECONDS_MAX)[0]
            if any(p.wait(SECONDS_MAX) for p in both):
                raise SystemExit(f"{method}, {file_format}: a program has failed")
        finally:
            for p in both:
                if p.poll() is None:
                    p.terminate()
        return json.loads(said)[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=300, help="of a frame (default 300)")
    parser.add_argument("--frames", type=int, default=8, help="of each run (default 8)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="all times, into this file")
    options = parser.parse_args()
    shape = (options.megabytes, 500, 500)
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for _ in range(options.rounds):
        for file_format in FORMATS:
            for method in METHODS:
                found.setdefault((file_format, method), []).extend(one(method, file_format, options.frames, shape))
    print(f"{options.megabytes} MB, {options.rounds} x {options.frames - 1} frames, medians in ms")
    print(f"{'':21}  method    " + "".join(f"{name:>8}" for name in ("put", "open", "whole", "total")))
    for (file_format, method), times in found.items():
        figures = [1e3 * statistics.median(t[name] for t in times) for name in ("put", "open", "whole", "total")]
        print(f"{file_format:21}  {method:10}" + "".join(f"{x:8.0f}" for x in figures))
    if options.json:
        options.json.write_text(json.dumps([{"format": f, "method": m, "times": t} for (f, m), t in found.items()]))


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[:1] in (["--write"], ["--read"]):
        _, method, data, signals, file_format, frames, *lengths = words
        shape = tuple(map(int, lengths))
        if words[0] == "--write":
            write(method, Path(data), Path(signals), file_format, int(frames), shape)
        else:
            read(method, Path(data), Path(signals), int(frames), shape)
    else:
        main()
