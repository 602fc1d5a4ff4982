"""WRF never syncs with io_form 11 and 13, nor do its quilt servers: a frame ends where the next record begins."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import advectio
import pytest
from conftest import Pair
from running import run_plainly
from same import assert_same
from test_crashes import assert_beginning_is_same, kill_all, records

FRAMES = 6


@pytest.fixture(params=["serial", "pnetcdf", "pnetcdf-nonblocking", "netcdf4-parallel"])
def command(request: pytest.FixtureRequest, made: Path, replay: Path) -> list[str | Path]:
    """Two ranks write all frames into one file, and never sync it."""
    program = request.getfixturevalue("replay_mpi") if request.param == "netcdf4-parallel" else replay
    return command_of(program, made, request.param)


def command_of(program: Path, made: Path, io: str) -> list[str | Path]:
    ranks: list[str | Path] = ["mpirun", "-n", "2"]
    return [*ranks, program, "--io", io, "--no-sync", "--output", "out.nc", "--frames-per-file", "1000", made]


def test_each_output_time_is_a_frame_and_no_value_changes(command: list[str | Path], pair: Pair):
    base = [*command, "--frames", str(FRAMES)]
    (dataset,) = pair.run(base, datasets=1).summary["datasets"]
    assert dataset["frames_visible"] == FRAMES
    assert_same(pair.plain / "out.nc", pair.carried / "out.nc")


def test_what_has_been_put_before_everything_was_killed_is_recovered(command: list[str | Path], pair: Pair):
    run_dir = pair.advectio.new_run_dir()
    running = pair.advectio.start(
        [*command, "--frames", "100000", "--compute", "0.05"], pair.carried, "server: {restarts_max: 0}\n", run_dir
    )
    running.wait_for(lambda: running.frames() >= FRAMES, f"{FRAMES} frames were put")
    kill_all(running, run_dir, Path(command[3]).name)
    put = running.frames()
    recovered = pair.advectio.call("recover", run_dir, directory=pair.carried)
    assert recovered.code == 0, recovered.said
    kept = records(pair.carried / "out.nc")
    assert put - 1 <= kept <= put + 1, f"{put} frames were put, the file has {kept}"
    plain = run_plainly([*command, "--frames", str(kept + 1)], pair.plain)
    assert plain.code == 0, plain.said
    assert_beginning_is_same(pair.plain / "out.nc", pair.carried / "out.nc")


def test_a_live_reader_gets_each_frame_while_the_file_is_open(command: list[str | Path], pair: Pair):
    running = pair.advectio.start([*command, "--frames", "100000", "--compute", "0.05"], pair.carried)
    running.wait_for(lambda: running.frames() >= 1, "a frame was put")
    seen: list[int] = []
    for ds in advectio.frames("out.nc", run=os.fspath(pair.advectio.run_dirs[-1])):
        seen.append(int(ds.encoding["advectio_frame"]))
        if len(seen) == 4:
            break
    assert seen == list(range(seen[0], seen[0] + 4))
    running.kill(Path(command[3]).name)
    running.finish()


def test_a_rule_says_that_only_a_sync_ends_a_frame(made: Path, replay: Path, pair: Pair):
    base = [*command_of(replay, made, "pnetcdf"), "--frames", str(FRAMES)]
    (dataset,) = pair.run(base, "datasets: [{match: '*', frames: sync}]\n", datasets=1).summary["datasets"]
    assert dataset["frames_visible"] == 1


def test_a_long_row_of_single_values_is_put_in_few_frames(pair: Pair):
    program = """
import netCDF4
with netCDF4.Dataset("out.nc", "w", format="NETCDF3_CLASSIC") as f:
    f.createDimension("time", None)
    t = f.createVariable("t", "f8", ("time",))
    for i in range(20_000):
        t[i] = 0.1 * i
"""
    (dataset,) = pair.run([sys.executable, "-c", program], datasets=1).summary["datasets"]
    assert 1000 < dataset["frames_visible"] < 10_000
    assert_same(pair.plain / "out.nc", pair.carried / "out.nc")
