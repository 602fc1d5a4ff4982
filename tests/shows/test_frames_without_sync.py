"""WRF never syncs with io_form 11 and 13, nor do its quilt servers: a frame ends where the next record begins."""

from __future__ import annotations

import os
from pathlib import Path

import advectio
import pytest
from conftest import Pair
from running import run_plainly
from same import assert_same
from test_crashes import assert_beginning_is_same, kill_all, records

METHODS = ["serial", "pnetcdf", "pnetcdf-nonblocking", "netcdf4-parallel"]
FRAMES = 6


def command(replay: Path, made: Path, io: str) -> list[str | Path]:
    ranks: list[str | Path] = ["mpirun", "-n", "2"]
    return [*ranks, replay, "--io", io, "--no-sync", "--output", "out.nc", "--frames-per-file", "1000", made]


@pytest.mark.parametrize("io", METHODS)
def test_each_output_time_is_a_frame_and_no_value_changes(made: Path, replay: Path, pair: Pair, io: str):
    base = [*command(replay, made, io), "--frames", str(FRAMES)]
    (dataset,) = pair.run(base, datasets=1).summary["datasets"]
    assert dataset["frames_visible"] == FRAMES
    assert_same(pair.plain / "out.nc", pair.carried / "out.nc")


@pytest.mark.parametrize("io", METHODS)
def test_what_has_been_put_before_everything_was_killed_is_recovered(made: Path, replay: Path, pair: Pair, io: str):
    run_dir = pair.advectio.new_run_dir()
    base = command(replay, made, io)
    running = pair.advectio.start(
        [*base, "--frames", "100000", "--compute", "0.05"], pair.carried, "server: {restarts_max: 0}\n", run_dir
    )
    running.wait_for(lambda: running.frames() >= FRAMES, f"{FRAMES} frames were put")
    kill_all(running, run_dir)
    put = running.frames()
    recovered = pair.advectio.call("recover", run_dir, directory=pair.carried)
    assert recovered.code == 0, recovered.said
    kept = records(pair.carried / "out.nc")
    assert put - 1 <= kept <= put + 1, f"{put} frames were put, the file has {kept}"
    plain = run_plainly([*base, "--frames", str(kept + 1)], pair.plain)
    assert plain.code == 0, plain.said
    assert_beginning_is_same(pair.plain / "out.nc", pair.carried / "out.nc")


@pytest.mark.parametrize("io", METHODS)
def test_a_live_reader_gets_each_frame_while_the_file_is_open(made: Path, replay: Path, pair: Pair, io: str):
    running = pair.advectio.start([*command(replay, made, io), "--frames", "100000", "--compute", "0.05"], pair.carried)
    running.wait_for(lambda: running.frames() >= 1, "a frame was put")
    seen: list[int] = []
    for ds in advectio.frames("out.nc", run=os.fspath(pair.advectio.run_dirs[-1])):
        seen.append(int(ds.encoding["advectio_frame"]))
        if len(seen) == 4:
            break
    assert seen == list(range(seen[0], seen[0] + 4))
    running.kill("replay")
    running.finish()


def test_a_rule_says_that_only_a_sync_ends_a_frame(made: Path, replay: Path, pair: Pair):
    base = [*command(replay, made, "pnetcdf"), "--frames", str(FRAMES)]
    (dataset,) = pair.run(base, "datasets: [{match: '*', frames: sync}]\n", datasets=1).summary["datasets"]
    assert dataset["frames_visible"] == 1
