"""The instruments themselves: replay writes what the models wrote, and same.py sees every kind of difference."""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from running import Advectio, run_plainly
from same import assert_same, differences, nc

Shared = Callable[[str], Path]


def replayed(replay: Path, directory: Path, *arguments: str | Path, ranks: int = 1) -> list[Path]:
    mpirun = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
    done = run_plainly([*mpirun, replay, *arguments], directory)
    assert done.code == 0, done.said
    return sorted(p for p in directory.iterdir() if p.suffix != ".json")


SERIAL = ["wrfout_d01_0001-01-01_00:20:00", "wrfout_d01_0001-01-01_00:30:00", "wrfrst_d01_0001-01-01_00:20:00"]


@pytest.mark.parametrize("name", [*SERIAL, "wrfout_d01_4frames.nc"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_replay_writes_a_file_of_wrf_again_bit_for_bit(shared: Shared, replay: Path, tmp_path: Path, name: str, ranks: int):
    original = shared(f"wrf471/serial/{name}")
    (written,) = replayed(replay, tmp_path, original, ranks=ranks)
    assert_same(original, written, storage=True)


@pytest.mark.parametrize("name, ranks", [*((name, 4) for name in SERIAL), (SERIAL[1], 6)])
def test_replay_split_is_what_wrf_wrote_split(shared: Shared, replay: Path, tmp_path: Path, name: str, ranks: int):
    originals = [shared(f"wrf471/split{ranks}/{name}_{r:04d}") for r in range(ranks)]
    written = replayed(replay, tmp_path, "--io", "split", shared(f"wrf471/serial/{name}"), ranks=ranks)
    assert [p.name for p in written] == [p.name for p in originals]
    for original, copy in zip(originals, written, strict=True):
        assert_same(original, copy, storage=True)


def test_replay_writes_pnetcdf_and_metgrid_files_again(shared: Shared, replay: Path, tmp_path: Path):
    for name in ("wrf471/pnetcdf/wrfout_d01_0001-01-01_00_30_00", "metgrid/met_em.d01.2005-08-28_12_00_00.nc"):
        directory = tmp_path / Path(name).parent.name
        directory.mkdir()
        (written,) = replayed(replay, directory, shared(name))
        assert_same(shared(name), written)


def test_replay_writes_files_of_scale_again(shared: Shared, replay: Path, tmp_path: Path):
    for base in ("history", "init_00000101-000000.000"):
        originals = [shared(f"scale/{base}.pe{r:06d}.nc") for r in range(2)]
        directory = tmp_path / base
        directory.mkdir()
        written = replayed(replay, directory, "--order", "scale", *originals, ranks=2)
        for original, copy in zip(originals, written, strict=True):
            found = list(differences(original, copy, storage=True))
            # netCDF-C 4.8, which wrote the originals, garbled fill values given as doubles for floats.
            assert not [line for line in found if ": fill (off, value) " not in line], found


@pytest.mark.parametrize("io", ["serial", "split"])
def test_tiled_frames_are_continuous_differ_and_do_not_depend_on_the_ranks(made: Path, replay: Path, tmp_path: Path, io: str):
    one, four = tmp_path / "one", tmp_path / "four"
    one.mkdir(), four.mkdir()
    options = ["--tile", "3x2", "--frames", "5", "--frames-per-file", "5"]
    (whole,) = replayed(replay, one, *options, made)
    written = replayed(replay, four, *options, "--io", io, made, ranks=4)
    if io == "serial":
        assert_same(whole, written[0])
    else:
        assert_joined(whole, written)
    with netCDF4.Dataset(whole) as file:
        assert (len(file.dimensions["west_east"]), len(file.dimensions["south_north_stag"])) == (3 * 42, 2 * 42 + 1)
        assert file.getncattr("WEST-EAST_GRID_DIMENSION") == 3 * 42 + 1
        dates = [bytes(file["Times"][t].compressed()).decode() for t in range(5)]
        assert dates == sorted(set(dates))
        theta = file["T"][:, 3]
        tiles = [theta[t, 42 * j : 42 * j + 42, 42 * i : 42 * i + 42] for t in range(5) for j in range(2) for i in range(3)]
        for a in range(len(tiles)):
            for b in range(a):
                for other in (tiles[b], tiles[b][::-1], tiles[b][:, ::-1], tiles[b][::-1, ::-1]):
                    assert np.count_nonzero(tiles[a] == other) < 0.5 * tiles[a].size
        steps = np.abs(np.diff(np.asarray(theta[0]), axis=1))
        assert steps[:, 41::42].max() <= 3 * np.delete(steps, [41, 83], axis=1).max()


def assert_joined(whole: Path, parts: list[Path]) -> None:
    with netCDF4.Dataset(whole) as file:
        for part in parts:
            with netCDF4.Dataset(part) as piece:
                place = {}
                for axis, name in (("WEST-EAST", "west_east"), ("SOUTH-NORTH", "south_north")):
                    for end, dimension in (("UNSTAG", name), ("STAG", name + "_stag")):
                        first, last = (piece.getncattr(f"{axis}_PATCH_{which}_{end}") for which in ("START", "END"))
                        place[dimension] = slice(first - 1, last)
                for name, variable in piece.variables.items():
                    box = tuple(place.get(d, slice(None)) for d in variable.dimensions)
                    assert file[name][box].tobytes() == variable[:].tobytes(), f"{name} of {part.name}"


def test_report_says_what_was_measured(made: Path, replay: Path, tmp_path: Path):
    replayed(
        replay, tmp_path, "--frames", "3", "--frames-per-file", "2", "--compute", "0.05", "--report", "r.json", made, ranks=2
    )
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["ranks"] == 2 and len(report["frames"]) == 3 and len(report["files"]) == 2
    assert report["memcpy"]["bytes"] == report["frame_bytes"] > 1e6
    assert 0 < report["memcpy"]["median_s"] < 1
    assert [f["closed_at"] is not None for f in report["frames"]] == [False, True, True]
    for frame in report["frames"]:
        assert frame["bytes"] == report["frame_bytes"]
        assert 0 < frame["blocked_s"]["rank0"] == frame["blocked_s"]["max"] <= frame["output_s"]["rank0"]
        assert frame["output_cpu_s"] > 0
        assert report["started_at"] < frame["synced_at"] < report["ended_at"]


def test_replay_makes_a_marker_when_all_ranks_have_closed_a_file(made: Path, replay: Path, tmp_path: Path):
    words = ["--frames", "3", "--frames-per-file", "2", "--io", "split", "--marker", "log.f<n>", "--report", "r.json"]
    replayed(replay, tmp_path, *words, made, ranks=2)
    report = json.loads((tmp_path / "r.json").read_text())
    assert [f["marker_s"] > 0 for f in report["frames"]] == [False, True, True]
    assert sorted(path.name for path in tmp_path.glob("log.*")) == ["log.f000", "log.f001"]
    assert (tmp_path / "log.f001").read_text().strip() in report["files"]


@pytest.mark.parametrize("arguments", [["--bogus"], ["--tile", "3"], ["--frames", "0"], ["--deflate", "11"], []])
def test_replay_refuses_what_it_does_not_understand(replay: Path, made: Path, tmp_path: Path, arguments: list[str]):
    done = run_plainly([replay, *arguments, *([made] if arguments else [])], tmp_path)
    assert done.code == 2 and len(done.stderr.splitlines()) == 1, done.said


def changed(original: Path, copy: Path, change: Callable[[netCDF4.Dataset], None]) -> list[str]:
    shutil.copy(original, copy)
    with netCDF4.Dataset(copy, "a") as file:
        file.set_auto_maskandscale(False)
        change(file)
    return list(differences(original, copy, storage=True))


def one_bit(file: netCDF4.Dataset) -> None:
    values = file["T"][1, 7].view(np.uint32)
    values[5, 6] ^= 1
    file["T"][1, 7] = values.view(np.float32)


CHANGES: dict[str, tuple[Callable[[netCDF4.Dataset], object], str]] = {
    "one bit of one value": (one_bit, "values of T: 1 of"),
    "one more frame": (lambda f: f["XTIME"].__setitem__(2, 20.0), "dimensions"),
    "text of an attribute": (lambda f: f["T"].setncattr("units", "k"), "attribute units of T"),
    "type of an attribute": (lambda f: f.setncattr("DX", np.float64(1000)), "attribute DX of the file: type"),
    "an attribute more": (lambda f: f.setncattr("extra", 1), "extra ['extra']"),
    "an attribute less": (lambda f: f["W"].delncattr("stagger"), "missing ['stagger']"),
    "a variable more": (lambda f: f.createVariable("more", "f4", ("Time",)), "variables: "),
    "a variable's name": (lambda f: f.renameVariable("U10", "U11"), "U10 / U11"),
    "a dimension's name": (lambda f: f.renameDimension("DateStrLen", "Letters"), "dimensions"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_same_sees(made: Path, tmp_path: Path, what: str):
    change, expected = CHANGES[what]
    found = changed(made, tmp_path / "copy.nc", lambda file: change(file) and None)
    assert any(expected in line for line in found), found


def test_same_sees_a_nul_at_the_end_of_an_attribute(made: Path, tmp_path: Path):
    copy = tmp_path / "copy.nc"
    shutil.copy(made, copy)
    ncid = ctypes.c_int()
    assert nc().nc_open(bytes(copy), 1, ctypes.byref(ncid)) == 0
    assert nc().nc_put_att_text(ncid, -1, b"GRIDTYPE", ctypes.c_size_t(2), b"C\0") == 0
    assert nc().nc_close(ncid) == 0
    assert "attribute GRIDTYPE of the file: b'C' / b'C\\x00'" in list(differences(made, copy))


def small(path: Path, format: str = "NETCDF4", value: float = np.nan, unlimited: bool = False, **storage: object) -> Path:
    with netCDF4.Dataset(path, "w", format=format) as file:
        file.createDimension("x", None if unlimited else 100)
        file.createVariable("v", ">f4" if storage.get("endian") == "big" else "f4", ("x",), **storage)[:] = np.full(
            100, value, np.float32
        )
    return path


def test_same_takes_nan_for_equal_only_bit_for_bit(tmp_path: Path):
    other_nan = np.array([0x7FC00001], np.uint32).view(np.float32)[0]
    a = small(tmp_path / "a.nc")
    assert list(differences(a, small(tmp_path / "b.nc"), storage=True)) == []
    assert "100 of 100" in next(iter(differences(a, small(tmp_path / "c.nc", value=other_nan))))


@pytest.mark.parametrize(
    "storage",
    [
        {"zlib": True},
        {"zlib": True, "complevel": 7},
        {"zlib": True, "shuffle": False},
        {"fletcher32": True},
        {"chunksizes": (10,)},
        {"endian": "big"},
        {"compression": "zstd"},
        {"fill_value": 7.0},
    ],
    ids=str,
)
def test_same_sees_another_storage(tmp_path: Path, storage: dict[str, object]):
    a, b = small(tmp_path / "a.nc", value=1.0), small(tmp_path / "b.nc", value=1.0, **storage)
    assert list(differences(a, b, storage=True))
    if "fill_value" not in storage:
        assert list(differences(a, b)) == []


def test_same_sees_format_and_unlimited_dimensions(tmp_path: Path):
    a = small(tmp_path / "a.nc")
    assert "dimensions" in next(iter(differences(a, small(tmp_path / "b.nc", unlimited=True))))
    formats = ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA", "NETCDF4_CLASSIC"]
    for other in formats:
        assert next(iter(differences(a, small(tmp_path / "c.nc", format=other)))).startswith("format")


def test_what_a_failed_test_has_started_ends_with_it(advectio: Advectio, tmp_path: Path):
    running = advectio.start([sys.executable, "-u", "-c", "import os, time; print(os.getpid()); time.sleep(600)"], tmp_path)
    running.wait_for(lambda: running.lines, "the program said its pid")
    program = os.pidfd_open(int(running.lines[0]))
    advectio.clean()
    ended, _, _ = select.select([program], [], [], 20.0)
    os.close(program)
    assert ended, "the program goes on without its run"
