"""Model output written with and without Advectio is the same: every real file, every format, every codec."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Pair
from running import run_plainly
from same import File

Source = Callable[[str], Path]

WRF = [
    "made",
    *(
        f"wrf/{name}.nc"
        for name in (
            "wrfout_d01_wrf381_4times",
            "wrf_d01_allvars_cropped",
            "wrf_mercator",
            "wrf_tip_d1",
            "wrf_tip_d2",
            "wrf_cropped",
        )
    ),
    *(
        f"wrf471/serial/{name}"
        for name in (
            "wrfout_d01_0001-01-01_00:20:00",
            "wrfout_d01_0001-01-01_00:30:00",
            "wrfrst_d01_0001-01-01_00:20:00",
            "wrfout_d01_4frames.nc",
        )
    ),
    "wrf471/pnetcdf/wrfout_d01_0001-01-01_00_30_00",
    "metgrid/met_em.d01.2005-08-28_12_00_00.nc",
]
FEW = ["made", "wrf471/serial/wrfrst_d01_0001-01-01_00:20:00", "wrf471/serial/wrfout_d01_4frames.nc"]


@pytest.mark.parametrize("name", WRF)
def test_replay_of_wrf_is_the_same(source: Source, replay: Path, pair: Pair, name: str):
    original = source(name)
    pair.run([replay, original], datasets=1)
    pair.assert_same()


@pytest.mark.parametrize("name", FEW)
def test_several_frames_and_files_are_the_same(source: Source, replay: Path, pair: Pair, name: str):
    result = pair.run([replay, "--frames", "7", "--frames-per-file", "3", source(name)], datasets=3)
    pair.assert_same(at_least=3)
    assert [d["frames_synced"] for d in result.summary["datasets"]] == [3, 3, 1]
    assert all(d["frames_durable"] == d["frames_synced"] for d in result.summary["datasets"])


STORAGE = {
    "uncompressed": ["--deflate", "none"],
    "deflate": ["--deflate", "5"],
    "netCDF-4 classic model": ["--format", "netcdf4-classic"],
    "classic": ["--format", "classic"],
    "64-bit offset": ["--format", "64bit-offset"],
    "CDF-5": ["--format", "cdf5"],
}


@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("name", FEW)
def test_every_format_and_storage_is_the_same(source: Source, replay: Path, pair: Pair, name: str, storage: str):
    pair.run([replay, *STORAGE[storage], "--frames", "3", "--frames-per-file", "3", source(name)], datasets=1)
    pair.assert_same()


CODECS = {"zstd": 32015, "blosc-lz4": 32001, "blosc-zstd": 32001, "deflate": 1, "none": None}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", FEW)
def test_another_codec_by_config_holds_the_same_values(source: Source, replay: Path, pair: Pair, name: str, codec: str):
    config = f'datasets:\n  - match: "*"\n    codec: {codec}\n'
    pair.run([replay, "--frames", "2", "--frames-per-file", "2", source(name)], config, datasets=1)
    pair.assert_same(storage=False)
    (written,) = pair.carried.iterdir()
    with File(written) as file:
        large = [v for v in range(file.var_count()) if len(file.var(v)[2]) >= 3]
        filters = [{identifier for identifier, _ in file.storage(v)["filters"]} for v in large]  # type: ignore[attr-defined]
    wanted = CODECS[codec]
    compressing = {1, 32001, 32004, 32015}
    assert large
    for found in filters:
        assert found & compressing == ({wanted} if wanted else set())


LEVELS = {
    "deflate, isal": "codec: deflate, deflate: isal, level: 3",
    "deflate, libdeflate": "codec: deflate, deflate: libdeflate, level: 12",
    "zstd": "codec: zstd, level: 19",
    "blosc-zstd": "codec: blosc-zstd, level: 9",
}


@pytest.mark.parametrize("codec", LEVELS)
def test_the_highest_level_of_a_codec_holds_the_same_values(made: Path, replay: Path, pair: Pair, codec: str):
    pair.run([replay, made], f'datasets: [{{match: "*", {LEVELS[codec]}}}]\n', datasets=1)
    pair.assert_same(storage=False)


def test_another_format_by_config_holds_the_same_values(made: Path, replay: Path, pair: Pair):
    pair.run([replay, made], 'datasets:\n  - match: "wrfout_*"\n    format: cdf5\n', datasets=1)
    plainly = pair.plain / "asked-as-cdf5"
    plainly.mkdir()
    assert run_plainly([replay, "--format", "cdf5", made], plainly).code == 0
    (written,) = pair.carried.iterdir()
    (expected,) = plainly.iterdir()
    assert expected.name == written.name
    from same import assert_same

    assert_same(expected, written)


@pytest.mark.parametrize("base", ["history", "init_00000101-000000.000"])
def test_scale_is_the_same(source: Source, replay: Path, pair: Pair, base: str):
    originals = [source(f"scale/{base}.pe{rank:06d}.nc") for rank in range(2)]
    pair.run(["mpirun", "-n", "2", replay, "--order", "scale", *originals], datasets=2)
    pair.assert_same(at_least=2)


def test_scale_going_on_in_new_files_is_the_same(source: Source, replay: Path, pair: Pair):
    original = source("scale/history.pe000000.nc")
    pair.run([replay, "--order", "scale", "--frames", "30", "--frames-per-file", "8", original], datasets=4)
    pair.assert_same(at_least=4)


def test_the_order_of_scale_with_a_made_file_is_the_same(made: Path, replay: Path, pair: Pair):
    pair.run([replay, "--order", "scale", "--frames", "4", made], datasets=2)
    pair.assert_same(at_least=2)


@pytest.mark.parametrize("name", FEW[:2])
@pytest.mark.parametrize("io, files", [("serial", 1), ("split", 4)])
def test_ranks_under_mpirun_are_the_same(source: Source, replay: Path, pair: Pair, name: str, io: str, files: int):
    command = ["mpirun", "-n", "4", replay, "--io", io, "--tile", "2x1", "--frames", "2", "--frames-per-file", "2"]
    pair.run([*command, source(name)], datasets=files)
    pair.assert_same(at_least=files)


def test_a_rank_under_exec_is_the_same(made: Path, replay: Path, pair: Pair):
    """`mpirun … advectio exec ./model`, for launchers that do not pass the environment on."""
    plain = run_plainly(["mpirun", "-n", "2", replay, "--io", "split", made], pair.plain)
    assert plain.code == 0, plain.said
    command = pair.advectio.command
    forget = ["env", "-u", "LD_PRELOAD"]
    pair.advectio.run(
        ["mpirun", "-n", "2", *forget, command, "exec", "--", replay, "--io", "split", made], pair.carried, datasets=2
    )
    pair.assert_same(at_least=2)


def test_ncdump_and_cdo_call_them_equal(source: Source, replay: Path, pair: Pair, tool: Callable[[str], str]):
    ncdump, cdo = tool("ncdump"), tool("cdo")
    pair.run([replay, "--frames", "1", source("wrf471/serial/wrfout_d01_0001-01-01_00:30:00")])
    (name,) = (p.name for p in pair.plain.iterdir())
    texts = [run_plainly([ncdump, "-s", directory / name], pair.plain).stdout for directory in (pair.plain, pair.carried)]
    special = ("_SuperblockVersion", "_NCProperties", "_IsNetcdf4")
    one, other = ([line for line in text.splitlines() if not any(s in line for s in special)] for text in texts)
    assert len(one) > 1000 and one == other
    compared = run_plainly([cdo, "-s", "diffn", pair.plain / name, pair.carried / name], pair.plain)
    assert compared.code == 0 and not compared.stdout.strip(), compared.said


def test_a_dataset_that_is_not_to_be_carried_is_left_to_netcdf(made: Path, replay: Path, pair: Pair):
    pair.run([replay, made], 'datasets:\n  - match: "wrfout_*"\n    capture: false\n', datasets=0)
    pair.assert_same()
