#!/usr/bin/env python3
"""`advectio process` beside cdo, side by side in one run: time, CPU time, memory and the values.

    bench/process.py wrfout_d01 --variables T2,T,U,QVAPOR --records 120 --rounds 3

The records of a real file are written again and again with a CF time axis, each a little larger, compressed as WRF does
(shuffle, deflate 1). Rounds interleave the two; of what is printed the ratios mean something on a busy machine, seconds do
not. Both read files from the page cache.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import netCDF4
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
SERVER = ROOT / "build" / "release" / "src" / "apps" / "advectiod" / "advectiod"
CASES = {
    "daily mean": ("mean: 1d, closed: left", ["daymean"]),
    "mean of all": ("mean: all", ["timmean"]),
    "maximum of all": ("max: all", ["timmax"]),
}


def make(source: Path, variables: list[str], records: int, path: Path) -> float:
    """Megabytes of values."""
    size = 0.0
    with netCDF4.Dataset(source) as given, netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        time_axis = file.createVariable("time", "f8", ("time",))
        time_axis.units, time_axis.calendar = "hours since 2001-01-01 00:00:00", "standard"
        time_axis[:] = np.arange(records)
        for name in variables:
            dimensions = given[name].dimensions[1:]
            for dimension in dimensions:
                if dimension not in file.dimensions:
                    file.createDimension(dimension, len(given.dimensions[dimension]))
            values = given[name][...]
            chunks = (1, *values.shape[1:])
            made = file.createVariable(
                name, "f4", ("time", *dimensions), zlib=True, complevel=1, shuffle=True, chunksizes=chunks
            )
            for record in range(records):
                made[record] = values[record % len(values)] * np.float32(1 + record / 5000)
            size += values[0].nbytes * records / 1e6
    return size


def run(command: list[str | Path], directory: Path) -> dict[str, float]:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, cwd=directory, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": time.monotonic() - began, "cpu_seconds": cpu}


def largest_difference(ours: Path, theirs: Path, variables: list[str]) -> float:
    """In units in the last place of float32."""
    most = 0.0
    with netCDF4.Dataset(ours) as one, netCDF4.Dataset(theirs) as other:
        for name in variables:
            a, b = (np.ma.filled(file[name][...], np.nan).astype("f4") for file in (one, other))
            most = max(most, float(np.nanmax(np.abs(a.astype("f8") - b) / np.spacing(np.maximum(np.abs(a), np.abs(b))))))
    return most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="a file of real output")
    parser.add_argument("--variables", default="T2,T,U,QVAPOR")
    parser.add_argument("--records", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", default="512MiB")
    parser.add_argument("--scratch", type=Path, help="a directory with room for the input (default: of the system)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    if shutil.which("cdo") is None:
        parser.error("cdo is not installed")
    variables = options.variables.split(",")
    results = {}
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        directory = Path(scratch)
        size = make(options.source, variables, options.records, directory / "in.nc")
        stored = (directory / "in.nc").stat().st_size / 1e6
        load = os.getloadavg()[0]
        print(
            f"{size:.0f} MB of values, {stored:.0f} MB in the file, {options.records} records; {os.cpu_count()} cores, load {load:.1f}"
        )
        print(f"{'':16} {'ours s':>8} {'cdo s':>8} {'ratio':>6} {'ours CPU':>9} {'cdo CPU':>8} {'ratio':>6} {'differ':>7}")
        for case, (keys, operators) in CASES.items():
            (directory / "rules.yaml").write_text(f"outputs: [{{path: ours.nc, {keys}}}]\n")
            process = [
                SERVER,
                "process",
                "--rules",
                "rules.yaml",
                "--output",
                ".",
                "--force",
                "--memory",
                options.memory,
                "in.nc",
            ]
            cdo = ["cdo", "-s", "-f", "nc4", "-z", "zip_1", *operators, "in.nc", "cdo.nc"]
            rounds = [(run(process, directory), run(cdo, directory)) for _ in range(options.rounds)]
            ulps = largest_difference(directory / "ours.nc", directory / "cdo.nc", variables)

            def middle(which: int, key: str, rounds: list[tuple[dict[str, float], dict[str, float]]] = rounds) -> float:
                return statistics.median(both[which][key] for both in rounds)

            row = {key: (middle(0, key), middle(1, key)) for key in ("seconds", "cpu_seconds")}
            wall, spent = row["seconds"], row["cpu_seconds"]
            print(
                f"{case:16} {wall[0]:8.2f} {wall[1]:8.2f} {wall[0] / wall[1]:6.2f} {spent[0]:9.2f} {spent[1]:8.2f}"
                f" {spent[0] / spent[1]:6.2f} {ulps:5.1f} ulp"
            )
            results[case] = {"rounds": rounds, "ulps": ulps}
        print(f"most memory of one process here: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f} MiB")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
