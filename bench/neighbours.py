#!/usr/bin/env python3
"""How late is a small file while a large one beside it is compressed?

    .venv/bin/python bench/neighbours.py [--repeat 3] [--levels 9 19] [--before BUILD] [--megabytes 64] [--json FILE]

One program writes a frame of A.nc (zstd of that level), then 40 frames of 4 kB of B.nc, 50 ms apart. The same
without A is the measure. Each round runs every case once. `visible` is the time from B's sync until readers of
the file find the frame; `live` the time over which a live reader of B gets the 40 frames; `promise` the time
that a sync of B takes the program where its rule says `promise: visible`. `--before`: the build directory of
another commit, run in turns with this one. Needs a writer of netCDF: netCDF4 of Python.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import ROOT

ADVECTIO = ROOT / ".venv/bin/advectio"
FRAMES = 40
RUN_SECONDS_MAX = 300.0

PROGRAM = """
import sys, time
import netCDF4, numpy
with_a, megabytes = sys.argv[1] == "1", int(sys.argv[2])
n = megabytes << 18
a, b = netCDF4.Dataset("A.nc", "w"), netCDF4.Dataset("B.nc", "w")
for file, length in ((a, n), (b, 1000)):
    file.createDimension("t", None)
    file.createDimension("x", length)
big = a.createVariable("A", "f4", ("t", "x"), chunksizes=(1, 1 << 18))
small = b.createVariable("B", "f4", ("t", "x"), chunksizes=(1, 1000))
b.sync()
if with_a:
    big[0] = numpy.random.default_rng(1).integers(0, 4096, n).astype("f4") * 1e-3
    a.sync()
stalls = []
for i in range(%d):
    begin = time.monotonic()
    small[i] = numpy.full(1000, i, "f4")
    b.sync()
    stalls.append(time.monotonic() - begin)
    time.sleep(0.05)
b.close()
a.close()
print(sorted(stalls)[len(stalls) // 2], max(stalls))
"""

READER = """
import time
import advectio
times = []
for frame in advectio.frames("B.nc", idle=100):
    times.append(time.monotonic())
    if len(times) == %d:
        break
print(times[-1] - times[0])
"""


def run(build: Path, directory: Path, level: int, with_a: bool, promise: bool, megabytes: int) -> dict[str, float]:
    """One run of the program; seconds."""
    rule_b = ", promise: visible" if promise else ""
    config = f"datasets:\n  - {{match: A.nc, codec: zstd, level: {level}}}\n  - {{match: B.nc{rule_b}}}\n"
    (directory / "advectio.yaml").write_text(config)
    summary = directory / "run.json"
    environment = os.environ | {"ADVECTIO_PREFIX": str(build)}
    reader = [] if promise else ["--wait-for-readers", "1"]
    program = [sys.executable, "-c", PROGRAM % FRAMES, str(int(with_a)), str(megabytes)]
    writing = subprocess.Popen(
        [ADVECTIO, "run", "--quiet", *reader, "--json", summary, "--", *program],
        cwd=directory, env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    live = ""
    if not promise:
        time.sleep(1)
        live = subprocess.run(
            [sys.executable, "-c", READER % FRAMES], cwd=directory, env=environment, capture_output=True, text=True,
            timeout=RUN_SECONDS_MAX, check=True,
        ).stdout  # fmt: skip
    said, _ = writing.communicate(timeout=RUN_SECONDS_MAX)
    if writing.returncode != 0:
        sys.exit(f"exit code {writing.returncode}: {said}")
    stall, stall_max = map(float, said.split())
    row = next(d for d in json.loads(summary.read_text())["datasets"] if d["path"].endswith("B.nc"))
    figures = {"visible": row["to_visible_s"]["median"], "visible, longest": row["to_visible_s"]["max"]}
    if promise:
        return {"promise": stall, "promise, longest": stall_max}
    return figures | {"live": float(live)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--levels", type=int, nargs="+", default=[9, 19])
    parser.add_argument("--before", type=Path, help="build directory of another commit")
    parser.add_argument("--megabytes", type=int, default=64, help="of A's frame")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    builds = {"now": ROOT / "build/release"} | ({"before": options.before.resolve()} if options.before else {})
    cases = [("B alone", options.levels[0], False), *((f"behind A, zstd {n}", n, True) for n in options.levels)]
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for _ in range(options.repeat):
        for case, level, with_a in cases:
            for name, build in builds.items():
                for promise in (False, True):
                    with tempfile.TemporaryDirectory(prefix="advectio-neighbours-") as directory:
                        got = run(build, Path(directory), level, with_a, promise, options.megabytes)
                    for key, value in got.items():
                        found.setdefault((case, name), {}).setdefault(key, []).append(value)
    keys = list(next(iter(found.values())))
    table = Table("case", "commit", *keys)
    for (case, name), values in found.items():
        table.add_row(case, name, *(f"{statistics.median(values[k]) * 1000:.1f} ms" for k in keys))
    Console(width=160).print(table)
    if options.json:
        options.json.write_text(json.dumps([{"case": c, "commit": n, **v} for (c, n), v in found.items()], indent=1))


if __name__ == "__main__":
    main()
