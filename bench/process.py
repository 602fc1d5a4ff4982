#!/usr/bin/env python3
"""`advectio process` beside cdo and xarray with dask, side by side in one run: time, CPU time, memory and the values.

    bench/process.py wrfout_d01_a wrfout_d01_b --records 648 --rounds 2     # 10 GB of WRF's 140 x 140 x 40
    bench/process.py wrfout_d01_a --cases "daily mean" "levels" --tools ours cdo

Records of real files of WRF are written in turn, hour by hour, each a little larger, with WRF's chunks, shuffle and deflate 2.
U and V are taken to mass points, and the grid gets regular longitudes and latitudes, so that cdo has a zonal mean and weights
of it. Rounds interleave the tools: of what is printed, the ratios mean something on a busy machine; seconds do not. The input
is read from the page cache where it fits. No output waits for the disk.

Memory is the largest sum of the proportional set sizes of a tool's processes: a page that two share counts once.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
from measuring import measure_mapped

ROOT = Path(__file__).resolve().parents[1]
ADVECTIO = ROOT / ".venv" / "bin" / "advectio"
FIELDS = ["T", "U", "V", "QVAPOR"]
PRESSURE = "P_HYD"  # whole pressure, as cdo wants it
LEVELS_PA = [85000, 50000, 25000]
DEGREES = 0.01  # between two points
DEFLATE = 2  # WRF's own


@dataclass
class Case:
    """What each tool is asked for, and by how much of a variable's largest value its result may differ from ours."""

    ours: str  # keys of the rule
    cdo: list[str]
    differ: dict[str, float]


# Ours and cdo add up in double and round once: half a unit in the last place each. dask's means are of float32.
# Of levels the tools have other formulas: two weights in double in ours and cdo, a slope in float32 in NumPy.
FLOAT32 = 2.0**-24
CASES = {
    "daily mean": Case("mean: 1d, closed: left", ["-daymean"], {"cdo": 2 * FLOAT32, "xarray": 24 * FLOAT32}),
    "daily max": Case("max: 1d, closed: left", ["-daymax"], {"cdo": 0, "xarray": 0}),
    "zonal mean": Case(
        "expressions: {" + ", ".join(f'{name}: "mean({name}, west_east)"' for name in FIELDS) + "}",
        ["-zonmean", f"-selname,{','.join(FIELDS)}"],
        {"cdo": 2 * FLOAT32, "xarray": 24 * FLOAT32},
    ),
    "levels": Case(
        f"variables: [{', '.join(FIELDS)}], "
        f"levels: {{pressure: [{', '.join(map(str, LEVELS_PA))} Pa], coordinate: {PRESSURE}, method: linear}}",
        [f"-selname,{','.join(FIELDS)}", f"-ap2pl,{','.join(map(str, LEVELS_PA))}", "-invertlev"],
        {"cdo": 4 * FLOAT32, "xarray": 16 * FLOAT32},
    ),
    "remapping": Case(
        f"variables: [{', '.join(FIELDS)}], regrid: weights.nc",
        ["-remap,target.txt,weights.nc", f"-selname,{','.join(FIELDS)}"],
        {"cdo": 0, "xarray": 2 * FLOAT32},
    ),
}


def made(sources: list[Path], records: int, path: Path) -> float:
    """Writes the input; returns megabytes of values."""
    values: dict[str, list[np.ndarray]] = {name: [] for name in [*FIELDS, PRESSURE]}
    for source in sources:
        with netCDF4.Dataset(source) as given:
            given.set_auto_mask(False)
            chunks, attributes = given["T"].chunking(), {name: dict(given[name].__dict__) for name in values}
            for name, fields in values.items():
                for field in given[name][...]:
                    for axis, dimension in enumerate(given[name].dimensions[1:]):
                        if dimension.endswith("_stag"):
                            low, high = (np.take(field, range(k, field.shape[axis] - 1 + k), axis) for k in (0, 1))
                            field = (low + high) / np.float32(2)
                    fields.append(field)
    shape = values["T"][0].shape
    with netCDF4.Dataset(path, "w") as file:
        for dimension, length in zip(("time", "bottom_top", "south_north", "west_east"), (None, *shape), strict=True):
            file.createDimension(dimension, length)
        for dimension, length, unit in (("south_north", shape[1], "degrees_north"), ("west_east", shape[2], "degrees_east")):
            axis = file.createVariable(dimension, "f8", (dimension,))
            axis.units, axis[:] = unit, DEGREES * (np.arange(length) + 0.5)
        level = file.createVariable("bottom_top", "f8", ("bottom_top",))
        level.standard_name, level.long_name = "height", "generalized_height"  # so that cdo takes it for model levels
        level[:] = np.arange(1, shape[0] + 1)
        hours = file.createVariable("time", "f8", ("time",))
        hours.units, hours.calendar = "hours since 2001-01-01 00:00:00", "standard"
        for name in values:
            variable = file.createVariable(
                name, "f4", tuple(file.dimensions), zlib=True, complevel=DEFLATE, shuffle=True, chunksizes=chunks
            )
            variable.units = attributes[name]["units"]
        file[PRESSURE].standard_name = "air_pressure"
        for record in range(records):
            hours[record] = record
            for name, fields in values.items():
                more = 5e-5 if name == PRESSURE else 2e-4  # of itself in an hour
                file[name][record] = fields[record % len(fields)] * np.float32(1 + more * record)
    return len(values) * 4 * int(np.prod(shape)) * records / 1e6


def weights(directory: Path, path: Path) -> None:
    """To half of the points along each axis, by cdo."""
    with netCDF4.Dataset(path) as file:
        sizes = {axis: len(file.dimensions[name]) // 2 for axis, name in (("x", "west_east"), ("y", "south_north"))}
    lines = ["gridtype = lonlat"]
    for axis, size in sizes.items():
        lines += [f"{axis}size = {size}", f"{axis}first = {2 * DEGREES}", f"{axis}inc = {1.9 * DEGREES}"]
    (directory / "target.txt").write_text("\n".join(lines) + "\n")
    command = ["cdo", "-s", "genbil,target.txt", "-seltimestep,1", "-selname,T", path, "weights.nc"]
    subprocess.run(command, cwd=directory, check=True, stdout=subprocess.DEVNULL)


def by_xarray(case: str) -> None:
    """In the directory of in.nc, as one writes it who knows xarray and dask: chunks of a day, threads, lazily to the end."""
    import scipy.sparse
    import xarray as xr

    def at_levels(values: np.ndarray, pressure: np.ndarray) -> np.ndarray:
        """[..., level], linear in pressure, which falls along the last axis. Missing outside."""
        result = np.full((*values.shape[:-1], len(LEVELS_PA)), np.nan, values.dtype)
        for k, level in enumerate(LEVELS_PA):
            above = np.argmax(pressure < level, axis=-1)  # 0: none, or all
            upper, lower = above[..., None], np.maximum(above - 1, 0)[..., None]
            p0, p1 = (np.take_along_axis(pressure, at, -1)[..., 0] for at in (lower, upper))
            x0, x1 = (np.take_along_axis(values, at, -1)[..., 0] for at in (lower, upper))
            with np.errstate(invalid="ignore", divide="ignore"):
                result[..., k] = np.where(above > 0, x0 + (x1 - x0) * ((level - p0) / (p1 - p0)), np.nan)
        return result

    whole_planes = {"south_north": -1, "west_east": -1} if case == "remapping" else {}
    given = xr.open_dataset("in.nc", chunks={"time": 24, **whole_planes})
    fields = given[FIELDS]
    if case == "daily mean":
        result = given.resample(time="1D").mean()
    elif case == "daily max":
        result = given.resample(time="1D").max()
    elif case == "zonal mean":
        result = fields.mean("west_east")
    elif case == "levels":
        result = xr.apply_ufunc(
            at_levels,
            fields,
            given[PRESSURE],
            input_core_dims=[["bottom_top"]] * 2,
            output_core_dims=[["plev"]],
            dask="parallelized",
            output_dtypes=["f4"],
            dask_gufunc_kwargs={"output_sizes": {"plev": len(LEVELS_PA)}},
        ).transpose("time", "plev", ...)
    else:
        with xr.open_dataset("weights.nc") as file:
            shape = file["dst_grid_dims"].values[::-1]
            matrix = scipy.sparse.csr_matrix(
                (file["remap_matrix"].values[:, 0], (file["dst_address"].values - 1, file["src_address"].values - 1)),
                shape=(int(np.prod(shape)), int(np.prod(file["src_grid_dims"].values))),
            )

        def remapped(values: np.ndarray) -> np.ndarray:
            flat = values.reshape(-1, matrix.shape[1])
            return (matrix @ flat.T).T.reshape(*values.shape[:-2], *shape).astype("f4")

        result = xr.apply_ufunc(
            remapped,
            fields,
            input_core_dims=[["south_north", "west_east"]],
            output_core_dims=[["lat", "lon"]],
            dask="parallelized",
            output_dtypes=["f4"],
            dask_gufunc_kwargs={"output_sizes": {"lat": int(shape[0]), "lon": int(shape[1])}},
        )
    for variable in result.variables.values():
        variable.encoding = {}
    stored: dict[str, Any] = {"zlib": True, "complevel": DEFLATE, "shuffle": True}
    result.to_netcdf(
        "xarray.nc",
        encoding={
            name: {**stored, "chunksizes": (1, *field.shape[1:])} for name, field in result.data_vars.items() if field.ndim > 1
        },
    )


def difference(ours: Path, theirs: Path, names: list[str]) -> float:
    """The largest, as a share of the variable's largest value; infinite where one has a value and the other none."""
    most = 0.0
    with netCDF4.Dataset(ours) as one, netCDF4.Dataset(theirs) as other:
        for name in names:
            largest, apart = 0.0, 0.0
            for record in range(len(one[name])):
                a, b = (np.ma.filled(file[name][record], np.nan).astype("f8").squeeze() for file in (one, other))
                if a.shape != b.shape or (np.isnan(a) != np.isnan(b)).any() or len(one[name]) != len(other[name]):
                    return np.inf
                largest = max(largest, float(np.nanmax(np.abs(a))))
                apart = max(apart, float(np.nanmax(np.abs(a - b))))
            most = max(most, apart / largest)
    return most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path, nargs="+", help="files of WRF's real output, on one grid")
    parser.add_argument("--records", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--tools", nargs="+", choices=("ours", "cdo", "xarray"), default=["ours", "cdo", "xarray"])
    parser.add_argument("--memory", default="512MiB", help="`--memory` of advectio process")
    parser.add_argument("--scratch", type=Path, help="a directory with room for input and outputs (default: of the system)")
    parser.add_argument("--input", type=Path, help="the input of an earlier run, made anew where it is not there; it stays")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    wrong = []
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        directory = Path(scratch)
        given = options.input or directory / "made.nc"
        if not given.exists():
            began = time.monotonic()
            size = made(options.sources, options.records, given.with_suffix(".part"))
            given.with_suffix(".part").rename(given)
            print(f"{size:.0f} MB of values, {given.stat().st_size / 1e6:.0f} MB, made in {time.monotonic() - began:.0f} s")
        (directory / "in.nc").symlink_to(given.resolve())
        weights(directory, given)
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
        print(f"{'':12} {'':7} {'s':>7} {'CPU s':>7} {'MiB':>6} {'s / ours':>9} {'CPU / ours':>10} {'differs':>9}", flush=True)
        for name in options.cases:
            case = CASES[name]
            (directory / "rules.yaml").write_text(f"outputs: [{{path: ours.nc, durable: false, {case.ours}}}]\n")
            process = [ADVECTIO, "process", "-c", "rules.yaml", "-o", ".", "--force", "--memory", options.memory, "in.nc"]
            commands: dict[str, list[str | Path]] = {
                "ours": process,
                "cdo": ["cdo", "-s", "-f", "nc4", "-z", f"zip_{DEFLATE}", *case.cdo, "in.nc", "cdo.nc"],
                "xarray": [sys.executable, Path(__file__).resolve(), "--by-xarray", name],
            }
            rounds = [
                {tool: measure_mapped(commands[tool], directory) for tool in options.tools} for _ in range(options.rounds)
            ]
            middle = {
                tool: {key: statistics.median(one[tool][key] for one in rounds) for key in rounds[0][tool]}
                for tool in options.tools
            }
            names = FIELDS if name in ("zonal mean", "levels", "remapping") else [*FIELDS, PRESSURE]
            differ = {
                tool: difference(directory / "ours.nc", directory / f"{tool}.nc", names)
                for tool in options.tools
                if tool != "ours" and "ours" in options.tools
            }
            for tool, spent in middle.items():
                first = middle.get("ours", spent)
                print(
                    f"{name:12} {tool:7} {spent['seconds']:7.1f} {spent['cpu_seconds']:7.1f} {spent['memory_mib']:6.0f}"
                    f" {spent['seconds'] / first['seconds']:9.2f} {spent['cpu_seconds'] / first['cpu_seconds']:10.2f}"
                    f" {differ.get(tool, 0):9.1e}",
                    flush=True,
                )
            wrong += [f"{name}: {tool} differs by {by}" for tool, by in differ.items() if by > case.differ[tool]]
            results[name] = {"rounds": rounds, "differ": differ}
        print(f"load {os.getloadavg()[0]:.1f}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--by-xarray"]:
        by_xarray(sys.argv[2])
    else:
        main()
