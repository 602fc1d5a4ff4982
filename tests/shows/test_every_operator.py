"""Of each operator of `advectio process`: the same bits however its input is cut, stored, ordered and read; and when it has been
interrupted and is run again."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
from running import ROOT, environment, output_files, run_plainly
from same import assert_same
from test_process import write_rules

Shared = Callable[[str], Path]
WRF = "wrf/wrfout_d01_wrf381_4times.nc"
RECORDS = 14  # of three hours, from noon on
WINDOWS = "mean: 6h", "min: 9h", "max: 1d", "sum: 9h", "difference: 6h", "point: 12h", "mean: all, min_count: 15"
SURFACE = "variables: [T2, U10, RAINNC]"

# By their pages in docs/operators: rules but for `path`.
RULES: dict[str, list[str]] = {
    "time": [
        *(f"{SURFACE}, {window}" for window in WINDOWS),
        f"{SURFACE}, time: [{{mean: 6h}}, {{max: 1d}}, {{sum: all}}]",
        f"{SURFACE}, mean: 9h, closed: left, split: 1d",
    ],
    "levels": [
        "variables: [T, U, W], levels: {pressure: [900, 700, 310 hPa], preset: wrf}",
        "variables: [QVAPOR], levels: {height: [100, 1500 m], preset: wrf, below: nearest}, mean: 9h",
        "variables: [T, QVAPOR], levels: {pressure: [850, 400 hPa], coordinate: P + PB, method: log}, max: all",
    ],
    "expressions": [
        "expressions: {speed: 'hypot(destagger(U), destagger(V))', warm: 'T2 > 300 ? T2 - 300 : 0'}, max: 12h",
        "expressions: {zonal: 'mean(T, west_east)', above: 'T - mean(T, south_north, west_east)', top: 'maximum(W, bottom_top_stag)'}",
    ],
    "wrf": ["variables: [slp, rh2, td2, wspd10, pw, tk, z], mean: 9h", "variables: [slp, rh, tv, wspd]"],
    "cells": [
        "variables: [T, U, T2], region: {lon: [-90, -88.5], lat: [23, 24.5]}, mean: 9h",
        "variables: [T, V, T2], subset: {bottom_top: '1::3', west_east: '3:-4', south_north: '0:-1:2'}",
        *(
            f"variables: [T2, QVAPOR, U], coarsen: {{south_north: 5, west_east: 7, method: {m}}}"
            for m in ("mean", "max", "min")
        ),
        *(f"variables: [T2, PH], coarsen: {{south_north: 5, west_east: 7, method: {m}}}, sum: 6h" for m in ("sum", "first")),
    ],
    "regridding": [
        "variables: [T, T2], regrid: weights.nc, mean: 9h",
        "variables: [Q2], regrid: {weights: weights.nc, missing_max: 0.4}",
        "variables: [T, slp, wspd10], points: {A: [23.5, -90], B: [25, -88.2]}",
    ],
    "units": ["variables: [T2, PSFC, RAINNC], units: {T2: degC, PSFC: hPa, RAINNC: kg m-2}, mean: 6h"],
    "cf": ["variables: [T2, T, slp], cf: true, max: 9h"],
    "storing": ["variables: [T2, W], round: {'*': 9}, codec: zstd, level: 3", "variables: [T2], format: classic, mean: 6h"],
}
LINES = [
    f"path: '{page}{n}/{{time}}.nc', {rule}" if "split" in rule else f"path: {page}{n}.nc, {rule}"
    for page, rules in RULES.items()
    for n, rule in enumerate(rules)
]


def test_no_operator_is_left_out():
    pages = {page.stem for page in (ROOT / "docs" / "operators").glob("*.md")}
    assert pages - {"cmor"} == set(RULES) - {"storing"}, "cmor: test_cmor.py"


def written(path: Path, given: Path, records: range, chance: random.Random | None) -> Path:
    """Those of RECORDS records that are made of the given file's, with missing values; stored as chance wants."""
    form = chance.choice(["NETCDF4", "NETCDF4", "NETCDF4_CLASSIC", "NETCDF3_64BIT_OFFSET"]) if chance else "NETCDF4"
    with netCDF4.Dataset(given) as source, netCDF4.Dataset(path, "w", format=form) as file:
        source.set_auto_mask(False)
        file.setncatts({name: source.getncattr(name) for name in source.ncattrs()})
        for name, dimension in source.dimensions.items():
            records_too = None if not chance or chance.random() < 0.7 else len(records)
            file.createDimension(name, records_too if name == "Time" else len(dimension))
        for name, variable in source.variables.items():
            if name == "XTIME":
                continue
            stored: dict[str, Any] = {}
            if chance and "NETCDF4" in form and variable.dimensions != ("Time", "DateStrLen"):
                sizes = (len(records), *variable.shape[1:])
                stored = {
                    "chunksizes": [chance.randint(1, size) for size in sizes],
                    "zlib": chance.random() < 0.6,
                    "shuffle": chance.random() < 0.5,
                    "fletcher32": chance.random() < 0.3,
                }
                if form == "NETCDF4" and chance.random() < 0.2:
                    stored["endian"] = "big"
            fill = np.float32(-999) if name in ("T2", "Q2", "QVAPOR") else None
            kind = variable.dtype.newbyteorder(">") if stored.get("endian") == "big" else variable.dtype
            made = file.createVariable(name, kind, variable.dimensions, fill_value=fill, **stored)
            made.setncatts({key: variable.getncattr(key) for key in variable.ncattrs() if key != "_FillValue"})
            made.set_auto_mask(False)
            for at, record in enumerate(records):
                if name == "Times":
                    text = f"2005-08-{28 + (12 + 3 * record) // 24:02d}_{(12 + 3 * record) % 24:02d}:00:00"
                    made[at] = np.frombuffer(text.encode(), "S1")
                    continue
                values = variable[record % 4]
                if name in ("T", "T2", "U10", "RAINNC", "W", "QVAPOR"):
                    values = values * np.float32(1 + record / 300)
                if fill is not None:
                    values.reshape(-1)[record :: 97 + record] = fill
                made[at] = values
    return path


@pytest.fixture(scope="module")
def whole(shared: Shared, replay: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory: rules.yaml, weights.nc, what it is made of in one file, and `whole` made of that."""
    directory = tmp_path_factory.mktemp("every")
    written(directory / "all.nc", shared(WRF), range(RECORDS), None)
    chance = np.random.default_rng(3)
    with netCDF4.Dataset(directory / "weights.nc", "w") as file:
        for name, size in (("n_a", 48 * 48), ("n_b", 35), ("n_s", 350), ("src_grid_rank", 2), ("dst_grid_rank", 2)):
            file.createDimension(name, size)
        for name, kind, dimension, values in (
            ("src_grid_dims", "i4", "src_grid_rank", [48, 48]),
            ("dst_grid_dims", "i4", "dst_grid_rank", [7, 5]),
            ("yc_b", "f8", "n_b", np.repeat(np.linspace(22, 25, 5), 7)),
            ("xc_b", "f8", "n_b", np.tile(np.linspace(-91, -88, 7), 5)),
            ("S", "f8", "n_s", chance.random(350) / 10),
            ("row", "i4", "n_s", chance.permutation(np.repeat(np.arange(35), 10)) + 1),
            ("col", "i4", "n_s", chance.integers(1, 48 * 48 + 1, 350)),
        ):
            variable = file.createVariable(name, kind, (dimension,))
            variable[:] = values
            if name in ("yc_b", "xc_b"):
                variable.units = "degrees"
    write_rules(directory, LINES)
    done = run_plainly([*command(replay), "--output", "whole", "--jobs", "1", "all.nc"], directory)
    assert done.code == 0, done.said
    assert len(output_files(directory / "whole")) == len(LINES) + 2
    yield directory


def same_values(first: Path, second: Path) -> None:
    """Bit for bit. An output is stored as its first input file: maybe in another byte order."""
    with netCDF4.Dataset(first) as one, netCDF4.Dataset(second) as other:
        assert list(one.variables) == list(other.variables)
        for name, variable in one.variables.items():
            assert variable.__dict__ == other[name].__dict__, f"{second}: {name}"
            for file in (one, other):
                file[name].set_auto_mask(False)
            a, b = (np.ascontiguousarray(v[...], v.dtype.newbyteorder("=")) for v in (variable, other[name]))
            assert a.tobytes() == b.tobytes(), f"{second}: {name}"


def command(replay: Path) -> list[str | Path]:
    return [replay.parents[2] / "src" / "apps" / "advectiod" / "advectiod", "process", "--rules", "rules.yaml"]


@pytest.mark.parametrize("seed", range(6))
def test_any_files_storage_order_and_cores_give_the_same_bits(
    whole: Path, shared: Shared, replay: Path, tmp_path: Path, seed: int
):
    chance = random.Random(seed)
    cuts = [0, *sorted(chance.sample(range(1, RECORDS), chance.randint(0, 4))), RECORDS]
    parts = [
        written(tmp_path / f"{n}.nc", shared(WRF), range(first, last), chance)
        for n, (first, last) in enumerate(itertools.pairwise(cuts))
    ]
    chance.shuffle(parts)
    memory = chance.choice(["16MiB", "64MiB", "512MiB"])
    made = run_plainly(
        [*command(replay), "--output", tmp_path / "out", "--jobs", str(chance.randint(1, 3)), "--memory", memory, *parts], whole
    )
    assert made.code == 0, made.said
    assert output_files(tmp_path / "out") == output_files(whole / "whole")
    for name in output_files(whole / "whole"):
        same_values(whole / "whole" / name, tmp_path / "out" / name)


@pytest.mark.parametrize("seed", range(3))
def test_interrupted_and_run_again_each_is_equal(whole: Path, replay: Path, tmp_path: Path, seed: int):
    """Killed at several moments, each one some lines after the last; what is there is whole, and --keep makes the rest."""
    chance = random.Random(seed)
    again = [*command(replay), "--output", tmp_path / "out", "--keep", "all.nc"]
    for how in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        begun = subprocess.Popen(again, cwd=whole, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        assert begun.stdout
        for _ in range(chance.randint(1, 25)):
            begun.stdout.readline()
        begun.send_signal(how)
        begun.communicate()
        for there in (tmp_path / "out").rglob("*.nc"):
            if not there.name.startswith("."):
                assert_same(whole / "whole" / there.relative_to(tmp_path / "out"), there)
    done = run_plainly(again, whole)
    assert done.code == 0, done.said
    names = output_files(whole / "whole")
    assert output_files(tmp_path / "out") == names and not list((tmp_path / "out").rglob(".*advectio*"))
    for name in names:
        assert_same(whole / "whole" / name, tmp_path / "out" / name)
