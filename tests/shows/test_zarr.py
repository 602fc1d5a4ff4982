"""Zarr stores in place of netCDF files: what xarray and zarr-python find is what the program writes by itself."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr
from conftest import Pair
from running import run_plainly
from test_crashes import FOREVER, kill_server, synced_frames

zarr = pytest.importorskip("zarr", minversion="3.1")

ZARR = 'datasets: [{match: "*", format: zarr}]\n'
# Where a process is killed, the disk does not matter. The model does not run ahead of what readers see.
VISIBLE = 'datasets: [{match: "*", format: zarr, durable: false, promise: visible}]\n'
Source = Callable[[str], Path]


def plain(value: object) -> object:
    """An attribute, whether it is JSON's or netCDF's."""
    value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def assert_store_as_file(store: Path, file: Path, records: int | None = None) -> None:
    """`records`: how many the store has, where it has fewer than the file."""
    arrays = zarr.open_group(store, mode="r")
    with netCDF4.Dataset(file) as raw:
        raw.set_auto_maskandscale(False)
        raw.set_auto_chartostring(False)
        assert sorted(arrays) == sorted(raw.variables)
        for name, variable in raw.variables.items():
            got = np.asarray(arrays[name][...])
            expected = np.asarray(variable[...])
            if records is not None and variable.dimensions[:1] == ("Time",):
                expected = expected[:records]
            assert got.dtype == expected.dtype, name
            assert got.shape == expected.shape, name
            assert got.tobytes() == expected.tobytes(), name
            assert arrays[name].metadata.dimension_names == variable.dimensions, name
    with xr.open_zarr(store, chunks=None) as ours, xr.open_dataset(file, engine="netcdf4") as theirs:
        if records is not None:
            theirs = theirs.isel(Time=slice(records))
        assert {k: plain(v) for k, v in ours.attrs.items()} == {k: plain(v) for k, v in theirs.attrs.items()}
        assert set(ours.coords) == set(theirs.coords)
        assert dict(ours.sizes) == {
            d: n for d, n in theirs.sizes.items() if any(d in v.dims for v in theirs.variables.values())
        }
        for name, expected in theirs.variables.items():
            got = ours.variables[name]
            assert got.dtype == expected.dtype, name
            assert {k: plain(v) for k, v in got.attrs.items()} == {k: plain(v) for k, v in expected.attrs.items()}, name
            assert got.dims == expected.dims and np.array_equal(got.values, expected.values, equal_nan=got.dtype.kind == "f"), (
                name
            )


def length_of(store: Path) -> int:
    """Of Time, for a reader of now; 0: there is no store yet."""
    if not (store / "zarr.json").exists():
        return 0
    with xr.open_zarr(store, chunks=None) as ds:
        ds.load()  # every chunk that the metadata name is there
        return int(ds.sizes["Time"])


@pytest.mark.parametrize(
    ("name", "frames"), [("made", 5), ("wrf471/serial/wrfout_d01_4frames.nc", 2), ("wrf/wrf_cropped.nc", 2)]
)
def test_a_store_is_for_xarray_what_the_file_is(source: Source, replay: Path, pair: Pair, name: str, frames: int):
    command = [replay, "--frames", str(frames + 1), "--frames-per-file", str(frames), source(name)]
    result = pair.run(command, ZARR, datasets=2)
    names = sorted(p.name for p in pair.plain.iterdir())
    stores = [n.removesuffix(".nc") + ".zarr" for n in names]
    # The program's own files were placeholders.
    assert sorted(p.name for p in pair.carried.iterdir()) == stores
    assert_store_as_file(pair.carried / stores[0], pair.plain / names[0])
    for store in stores:
        row = result.dataset(store)
        assert row["format"] == "Zarr" and row["frames_durable"] == row["frames_synced"]
    # Its frames of a variable are in one shard.
    first = pair.carried / stores[0]
    with netCDF4.Dataset(pair.plain / names[0]) as ds:
        of_time = [n for n, v in ds.variables.items() if v.dimensions[:1] == ("Time",)]
    assert of_time and all(len(list((first / n).glob("c.*"))) == 1 for n in of_time)
    # Readers that do not look at the root find the same.
    alone = zarr.open_array(first / of_time[0], mode="r")
    assert alone.shape[0] == frames


def test_a_store_beside_the_file(made: Path, replay: Path, pair: Pair):
    config = 'datasets: [{match: "*", outputs: [{path: "zarr/{name}", format: zarr, codec: zstd, level: 3}]}]\n'
    pair.run([replay, "--frames", "3", "--frames-per-file", "3", made], config)
    (file,) = pair.plain.iterdir()
    store = pair.carried / "zarr" / (file.name + ".zarr")
    assert [p.name for p in store.parent.iterdir()] == [store.name]
    assert_store_as_file(store, file)
    assert_store_as_file(store, pair.carried / file.name)


@pytest.mark.parametrize(("io", "ranks"), [("split", 3), ("pnetcdf", 3)])
def test_ranks_write_one_store(made: Path, replay: Path, pair: Pair, io: str, ranks: int):
    command: list[str | Path] = [
        "mpirun",
        "-n",
        str(ranks),
        replay,
        "--io",
        io,
        "--frames",
        "3",
        "--frames-per-file",
        "3",
        made,
    ]
    config = ZARR if io == "pnetcdf" else 'datasets: [{match: "*", join: true, format: zarr}]\n'
    whole = [replay, "--frames", "3", "--frames-per-file", "3", made]
    assert run_plainly(whole, pair.plain).code == 0
    pair.advectio.run(command, pair.carried, config)
    (file,) = pair.plain.iterdir()
    (store,) = pair.carried.iterdir()
    # PnetCDF gives no meaning to a colon.
    assert store.name.replace(":", "_") == file.name.replace(":", "_") + ".zarr"
    assert_values_as(store, file)


def assert_values_as(store: Path, file: Path) -> None:
    arrays = zarr.open_group(store, mode="r")
    with netCDF4.Dataset(file) as raw:
        raw.set_auto_maskandscale(False)
        raw.set_auto_chartostring(False)
        for name, variable in raw.variables.items():
            assert np.asarray(arrays[name][...]).tobytes() == np.asarray(variable[...]).tobytes(), name


def test_killed_servers_leave_a_store_at_a_commit_and_the_next_goes_on(made: Path, replay: Path, pair: Pair):
    running = pair.advectio.start([replay, *FOREVER, "--frames-per-file", "100000", made], pair.carried, VISIBLE)
    store = running.wait_for(lambda: next(pair.carried.glob("*.zarr"), None), "there was a store")
    for at_least in (2, 6):
        # A reader of the live run finds what is committed, and never half of a frame.
        running.wait_for(lambda n=at_least: length_of(store) >= n, f"{at_least} frames are in the store")
        kill_server(running, pair.advectio.run_dirs[-1])
        assert length_of(store) >= at_least
    running.wait_for(lambda: length_of(store) >= 8, "the next server had gone on")
    running.kill("replay")
    running.finish()
    holds = length_of(store)
    assert sum(synced_frames(running.lines).values()) <= holds
    frames = [replay, "--frames", str(holds), "--frames-per-file", "100000", made]
    assert run_plainly(frames, pair.plain).code == 0
    assert_store_as_file(store, pair.plain / store.name.removesuffix(".zarr"))
    assert [p.name for p in pair.carried.iterdir()] == [store.name]
    assert not [p for p in store.rglob("*") if p.name.startswith(".") or p.name.endswith(".part")]


def test_a_killed_model_leaves_every_synced_frame(made: Path, replay: Path, pair: Pair):
    running = pair.advectio.start([replay, made, *FOREVER], pair.carried, VISIBLE)
    running.wait_for(lambda: running.frames() >= 6, "6 frames were written")
    running.kill("replay")
    running.finish()
    synced = synced_frames(running.lines)
    assert run_plainly([replay, "--frames", "40", "--frames-per-file", "4", made], pair.plain).code == 0
    for name, count in synced.items():
        store = pair.carried / (name + ".zarr")
        holds = length_of(store)
        assert count <= holds <= count + 1
        assert_store_as_file(store, pair.plain / name, holds)
    assert not [p.name for p in pair.carried.iterdir() if p.suffix != ".zarr"]


def test_a_full_disk_is_said_and_the_store_goes_on_when_there_is_room(
    made: Path, replay: Path, pair: Pair, small_disk: Callable[[str], Path]
):
    disk = small_disk("6m")
    base: list[str | Path] = [replay, "--deflate", "none", "--frames-per-file", "100", made]
    result = pair.advectio.start([*base, "--frames", "100", "--compute", "0.05"], disk, ZARR).finish()
    run_dir = pair.advectio.run_dirs[-1]
    assert result.code == 1, result.said
    said = [line for line in result.stderr.splitlines() if line.startswith("advectio") and "No space left on device" in line]
    assert any("wrfout_d01" in line for line in said), result.said
    (store,) = disk.glob("*.zarr")
    before = length_of(store)
    assert before > 0

    small_disk("1g")
    recovered = pair.advectio.call("recover", run_dir, directory=disk)
    assert recovered.code == 0, recovered.said
    holds = length_of(store)
    assert holds >= before
    assert run_plainly([*base, "--frames", str(holds)], pair.plain).code == 0
    (file,) = pair.plain.iterdir()
    assert_store_as_file(store, file)
    assert not re.search("advectio", " ".join(str(p) for p in disk.rglob("*")))


TWO_FILES = """
import netCDF4
files = [netCDF4.Dataset(name, "w") for name in ("a", "a.nc")]
for value, file in enumerate(files):
    file.createDimension("t", None)
    file.createVariable("v", "f4", ("t",))[0] = value
    file.sync()
for file in files:
    try:
        file.close()
    except (OSError, RuntimeError) as error:
        print(error)
"""


def test_of_two_files_with_one_name_for_their_stores_the_second_is_refused(pair: Pair):
    running = pair.advectio.start([sys.executable, "-c", TWO_FILES], pair.carried, ZARR)
    result = running.finish()
    assert result.code == 3, result.said
    assert "a.zarr is the store of" in result.stderr, result.said
    recovered = pair.advectio.call("recover", pair.advectio.run_dirs[-1], directory=pair.carried)
    assert recovered.code == 1 and "a.zarr is the store of" in recovered.stderr, recovered.said
    assert [p.name for p in pair.carried.iterdir() if p.suffix == ".zarr"] == ["a.zarr"]
    assert float(zarr.open_group(pair.carried / "a.zarr", mode="r")["v"][0]) == 0.0


def test_a_directory_that_is_no_store_stays(made: Path, replay: Path, pair: Pair):
    assert run_plainly([replay, "--frames", "1", made], pair.plain).code == 0
    (file,) = pair.plain.iterdir()
    mine = pair.carried / (file.name + ".zarr")
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    running = pair.advectio.start([replay, "--frames", "1", made], pair.carried, ZARR)
    result = running.finish()
    assert result.code != 0, result.said
    assert str(mine) in result.stderr and "is not emptied" in result.stderr, result.said
    assert (mine / "notes.txt").read_text() == "mine"
