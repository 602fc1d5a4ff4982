#!/usr/bin/env python3
"""`advectio convert` of GRIB files beside cfgrib with xarray, side by side in one run: time, CPU time, memory, every value.

    bench/grib.py                                             # four files of 1,000 messages, 0.5 degrees and O256
    bench/grib.py --cases "regular simple" --rounds 5
    bench/grib.py --steps 2 --degrees 5 --octahedral 16 --rounds 1     # small: does it work here?
    bench/grib.py --given forecast.grib                       # a file of your own: one grid, one cube of steps and levels

The files are made by ecCodes: edition 2, 16 bits, 5 quantities x 10 levels x 20 steps of smooth fields with a little noise.
Relative humidity has a bitmap at the lowest levels, as below the ground. Grids are a regular one and an octahedral reduced
Gaussian one; packing is simple or CCSDS. All tools write netCDF-4 with shuffle, deflate 1 and a chunk for each field.
Rounds interleave the tools: of what is printed, the ratios mean something on a busy machine; seconds do not. The input is read
from the page cache. No output waits for the disk.

  ours     advectio convert
  cfgrib   cfgrib and to_netcdf in one process: xarray loads a variable whole
  dask     the same with dask's threads, a step of a variable in each chunk

Then each message is decoded by ecCodes, rounded to float32, and each value in the files is compared with it, bit for bit; so
are points without a value, and the coordinates. The exit code is 1 where anything differs.

Memory is the largest sum of the proportional set sizes of a tool's processes: a page that two share counts once.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import eccodes
import netCDF4
import numpy as np
import xarray as xr
from measuring import measure_mapped

ROOT = Path(__file__).resolve().parents[1]
ADVECTIO = ROOT / ".venv" / "bin" / "advectio"
QUANTITIES = {"t": (260, 30), "u": (5, 20), "v": (0, 15), "q": (5e-3, 4e-3), "r": (50, 40)}  # middle and half of the range
WITH_BITMAP, GROUND_HPA = "r", 850  # no values below the ground, which reaches up to this level
LEVELS_HPA = [1000, 925, 850, 700, 500, 400, 300, 250, 200, 100]
HOURS = 6  # from step to step
NOISE = 2e-3  # of the range
CASES = {
    "regular simple": "grid_simple",
    "regular ccsds": "grid_ccsds",
    "octahedral simple": "grid_simple",
    "octahedral ccsds": "grid_ccsds",
}
TOOLS = ("ours", "cfgrib", "dask")
NO_VALUE = 1.7e308  # ecCodes is asked to give it for points that a bitmap leaves out


def handle_of(case: str, degrees: float, octahedral: int) -> int:
    """A message of edition 2 on the case's grid, of zeros."""
    if case.startswith("regular"):
        handle = eccodes.codes_grib_new_from_samples("regular_ll_pl_grib2")
        rows, columns = round(180 / degrees) + 1, round(360 / degrees)
        grid: dict[str, Any] = {"Ni": columns, "Nj": rows}
        grid |= {f"{axis}DirectionIncrementInDegrees": degrees for axis in "ij"}
        points, north, east = rows * columns, 90.0, 360 - degrees
    else:
        handle = eccodes.codes_grib_new_from_samples("reduced_gg_pl_32_grib2")
        half = [20 + 4 * i for i in range(octahedral)]
        in_rows = [*half, *reversed(half)]
        points = sum(in_rows)
        north = float(np.degrees(np.arcsin(np.polynomial.legendre.leggauss(2 * octahedral)[0].max())))
        east = 360 - 360 / max(in_rows)
        grid = {"Nj": 2 * octahedral, "N": octahedral, "pl": in_rows, "numberOfDataPoints": points}
    corners = zip(("First", "Last"), ((north, 0.0), (-north, east)), strict=True)
    for which, (latitude, longitude) in corners:
        grid |= {f"latitudeOf{which}GridPointInDegrees": latitude, f"longitudeOf{which}GridPointInDegrees": longitude}
    for key, value in (grid | {"dataDate": 20260131, "dataTime": 0}).items():
        eccodes.codes_set_array(handle, key, value) if isinstance(value, list) else eccodes.codes_set(handle, key, value)
    eccodes.codes_set_values(handle, np.zeros(points))
    return int(handle)


def made(case: str, options: argparse.Namespace, path: Path) -> int:
    """Writes the case's file; returns the points of its grid."""
    random = np.random.default_rng(7)
    handle = handle_of(case, options.degrees, options.octahedral)
    latitudes, longitudes = (np.radians(eccodes.codes_get_array(handle, key)) for key in ("latitudes", "longitudes"))
    waves = np.array(
        [
            np.cos(latitudes) ** min(m, 4) * np.cos(m * longitudes + m) * np.sin((m + 1) * latitudes + m / 2) / m
            for m in (1, 2, 3, 5, 8, 13, 21, 34)
        ]
    )
    noise = NOISE * random.normal(size=len(latitudes))
    ground = waves[0] > np.quantile(waves[0], 0.9)
    eccodes.codes_set(handle, "missingValue", NO_VALUE)
    with path.open("wb") as file:
        for step in range(options.steps):
            for number, (name, (middle, half)) in enumerate(QUANTITIES.items()):
                for level in LEVELS_HPA:
                    phases = np.arange(len(waves)) * (1 + 0.1 * step) + number + level / 300
                    values = middle + half * (np.cos(phases) @ waves + np.roll(noise, 7919 * step + 31 * number + level))
                    masked = name == WITH_BITMAP and level >= GROUND_HPA
                    keys = {"shortName": name, "level": level, "step": HOURS * (step + 1), "bitmapPresent": int(masked)}
                    for key, value in (keys | {"packingType": CASES[case], "bitsPerValue": 16}).items():
                        eccodes.codes_set(handle, key, value)
                    eccodes.codes_set_values(handle, np.where(ground, NO_VALUE, values) if masked else values)
                    eccodes.codes_write(handle, file)
    eccodes.codes_release(handle)
    return len(latitudes)


def by_cfgrib(tool: str) -> None:
    """In the directory of in.grib, as one writes it who knows cfgrib: no index file, since each file is converted once."""
    chunks: dict[str, Any] = {"chunks": {"step": 1}} if tool == "dask" else {}
    given = xr.open_dataset("in.grib", engine="cfgrib", backend_kwargs={"indexpath": ""}, **chunks)
    encoding = {}
    for name, field in given.data_vars.items():
        leading = [1 if d in ("time", "step", "number", "isobaricInhPa") else field.sizes[d] for d in field.dims]
        encoding[name] = {"zlib": True, "complevel": 1, "shuffle": True, "chunksizes": leading}
    given.to_netcdf(f"{tool}.nc", encoding=encoding)


def messages(path: Path) -> Iterator[tuple[str, int, int, np.ndarray, np.ndarray]]:
    """Of each: variable, level, step in hours, values as float32, and which points have one."""
    with path.open("rb") as file:
        while (handle := eccodes.codes_grib_new_from_file(file)) is not None:
            name, level, step = (eccodes.codes_get(handle, key) for key in ("cfVarName", "level", "endStep"))
            eccodes.codes_set(handle, "missingValue", NO_VALUE)
            values = eccodes.codes_get_values(handle)
            eccodes.codes_release(handle)
            there = values != NO_VALUE
            yield name, level, step, np.where(there, values, 0).astype("f4"), there


def hours_of(dataset: xr.Dataset) -> list[int]:
    return [int(x) for x in np.atleast_1d(dataset["step"].values) / np.timedelta64(1, "h")]


def wrong_fields(grib: Path, result: Path) -> tuple[int, int, int, list[str]]:
    """Messages and values that were compared, how many of these values are none, and what differs."""
    count, values_seen, none, wrong = 0, 0, 0, []
    with xr.open_dataset(result, decode_timedelta=True) as dataset:
        steps = {hours: at for at, hours in enumerate(hours_of(dataset))}
        levels = {float(level): at for at, level in enumerate(np.atleast_1d(dataset["isobaricInhPa"].values))}
    with netCDF4.Dataset(result) as file:
        file.set_auto_maskandscale(False)
        for name, level, step, values, there in messages(grib):
            variable = file[name]
            at = {"time": steps.get(step), "step": steps.get(step), "isobaricInhPa": levels.get(float(level))}
            found = variable[tuple(at.get(d, slice(None)) for d in variable.dimensions)].ravel()
            fill = variable.getncattr("_FillValue")
            has = ~np.isnan(found) if np.isnan(fill) else found != fill
            same = found.shape == values.shape and found.dtype == values.dtype and bool((has == there).all())
            if not same or (found.view("u4")[has] != values.view("u4")[has]).any():
                wrong.append(f"{result.name}: {name} at {level} hPa, {step} h")
            count, values_seen, none = count + 1, values_seen + values.size, none + int((~there).sum())
    return count, values_seen, none, wrong


def wrong_coordinates(ours: Path, theirs: Path) -> list[str]:
    """Names of coordinates and attributes in which the files differ, as each says them itself."""
    wrong = []
    with xr.open_dataset(ours, decode_timedelta=True) as one, xr.open_dataset(theirs, decode_timedelta=True) as other:
        for name in ("latitude", "longitude", "isobaricInhPa", "step"):
            a, b = (np.atleast_1d(dataset[name].values) for dataset in (one, other))
            if a.shape != b.shape or (a != b).any():
                wrong.append(f"{theirs.name}: {name}")
        # Our time is that for which fields are valid, cfgrib's that of the analysis.
        for mine, its in (("time", "valid_time"), ("forecast_reference_time", "time")):
            if (one[mine].values != np.atleast_1d(other[its].values)).any():
                wrong.append(f"{theirs.name}: {its}")
        for name in other.data_vars:
            for key in ("units", "long_name", "standard_name", "GRIB_paramId", "GRIB_shortName", "GRIB_typeOfLevel"):
                mine, its = (dataset[name].attrs.get(key, "unknown") for dataset in (one, other))
                if mine != its:
                    wrong.append(f"{theirs.name}: {key} of {name}: {mine} and {its}")
    return wrong


def bench(name: str, given: Path, directory: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Prints the case's lines."""
    link = directory / "in.grib"
    link.unlink(missing_ok=True)
    link.symlink_to(given.resolve())
    this = [sys.executable, Path(__file__).resolve(), "--by-cfgrib"]
    convert = [ADVECTIO, "convert", "in.grib", "ours.nc", "--force", "--rule", "durable: false"]
    commands = {"ours": convert, "cfgrib": [*this, "cfgrib"], "dask": [*this, "dask"]}
    rounds = []
    for _ in range(options.rounds):
        one = {}
        for tool in options.tools:
            (directory / f"{tool}.nc").unlink(missing_ok=True)
            one[tool] = measure_mapped(commands[tool], directory)
        rounds.append(one)
    wrong: list[str] = []
    for tool in options.tools:
        result = directory / f"{tool}.nc"
        middle = {key: statistics.median(one[tool][key] for one in rounds) for key in rounds[0][tool]}
        first = {key: statistics.median(one[options.tools[0]][key] for one in rounds) for key in middle}
        count, values, none, differs = wrong_fields(given, result)
        if tool != "ours" and "ours" in options.tools:
            wrong += wrong_coordinates(directory / "ours.nc", result)
        wrong += differs
        print(
            f"{name:18} {tool:7} {middle['seconds']:7.1f} {middle['cpu_seconds']:7.1f} {middle['memory_mib']:6.0f}"
            f" {result.stat().st_size / 1e6:7.0f} {middle['seconds'] / first['seconds']:9.2f}"
            f" {middle['cpu_seconds'] / first['cpu_seconds']:10.2f}"
            f"   {count - len(differs)} of {count} messages, {values:,} values, {none:,} without one",
            flush=True,
        )
    return {"rounds": rounds, "wrong": wrong}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="50 messages each (default: %(default)s)")
    parser.add_argument("--degrees", type=float, default=0.5, help="between points of the regular grid (default: %(default)s)")
    parser.add_argument("--octahedral", type=int, default=256, help="rows from a pole to the equator (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS), help="ratios are to the first")
    parser.add_argument("--given", type=Path, metavar="FILE", help="a GRIB file in place of the cases")
    parser.add_argument("--scratch", type=Path, help="a directory with room for input and outputs (default: of the system)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, ecCodes {eccodes.codes_get_api_version()}", flush=True)
    ratios = [f"{what} / {options.tools[0]}" for what in ("s", "CPU")]
    print(f"{'':18} {'':7} {'s':>7} {'CPU s':>7} {'MiB':>6} {'MB':>7} {ratios[0]:>9} {ratios[1]:>10}   as ecCodes decodes them")
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        directory = Path(scratch)
        if options.given:
            results["given"] = bench("given", options.given, directory, options)
        for name in [] if options.given else options.cases:
            path, began = directory / "made.grib", time.monotonic()
            try:
                points = made(name, options, path)
            except eccodes.CodesInternalError as error:
                print(f"{name:18} this ecCodes cannot: {error}")
                continue
            size = path.stat().st_size / 1e6
            print(f"{name:18} {points:,} points, {size:.0f} MB, made in {time.monotonic() - began:.0f} s", flush=True)
            results[name] = bench(name, path, directory, options)
    print(f"load {os.getloadavg()[0]:.1f}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))
    if wrong := [f"{name}: {what}" for name, result in results.items() for what in result["wrong"]]:
        sys.exit("\n".join(["These differ:", *wrong]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--by-cfgrib"]:
        by_cfgrib(sys.argv[2])
    else:
        main()
