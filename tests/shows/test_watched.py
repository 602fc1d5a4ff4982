"""Readers of all policies beside real WRF output: one is killed, one is stopped, and the others get every frame that is due."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import watched
from conftest import Pair

FRAMES, PER_FILE = 12, 4
READERS_BYTES_MAX = 4 << 20  # of which a frame has 3 to 8 MB
CONFIG = "readers: {memory_max: 4MiB}\n"


@pytest.mark.parametrize("ranks", [2])
def test_readers_get_what_is_due_whatever_becomes_of_others(
    shared: Callable[[str], Path], replay: Path, pair: Pair, ranks: int
):
    source = shared("wrf471/serial/wrfout_d01_4frames.nc")
    program = ["mpirun", "-n", str(ranks), replay, "--frames", str(FRAMES), "--frames-per-file", str(PER_FILE)]
    running = pair.advectio.start(
        [*program, "--compute", "0.4", source],
        pair.carried,
        CONFIG,
        options=("--wait-for-readers", "5", "--readers-within", "120"),
    )
    running.wait_for(lambda: any("waiting up to" in e for e in running.errors), "it waited for readers")
    run = os.fspath(pair.advectio.run_dirs[-1])
    every = watched.Reader(run, "wait")
    newest = watched.Reader(run, "drop-oldest", pause_s=1.0)
    one = watched.Reader(run, "latest", "screens", pause_s=0.5)
    killed = watched.Reader(run, "latest", "screens")
    stopped = watched.Reader(run, "wait")
    readers = [every, newest, one, killed, stopped]
    watch = watched.Watch(run)
    try:
        watch.start()
        watched.trouble(killed, stopped, running.wait_for, 2.0)
        result = running.finish()
        watch.gone = True
        assert result.code == 0, result.said
        for reader in (every, newest, one, stopped):
            assert reader.end() == 0
    finally:
        watch.gone = True
        for reader in readers:
            reader.stop()
    files = sorted(p.name for p in pair.carried.glob("wrfout*"))
    all_frames = [(name, k) for name in files for k in range(PER_FILE)]
    assert len(all_frames) == FRAMES
    assert every.frames == stopped.frames == all_frames
    assert newest.frames == sorted(set(newest.frames)) and newest.frames[-1] == all_frames[-1]
    assert len(newest.frames) < FRAMES, "it is slower than the model"
    assert one.frames[-1] == all_frames[-1] and len(set(one.frames)) == len(one.frames)
    wrong, compared = watched.differences(pair.carried, readers)
    assert not wrong, "\n".join(wrong)
    assert compared > FRAMES * 100
    # The model has not waited, and memory was within its bounds.
    assert result.summary["stage"]["waits"] == 0
    frame = max(d["bytes_put"] / d["frames_synced"] for d in result.summary["datasets"])
    assert watch.looks > 0 and watch.frames_held <= 8
    assert watch.readers_bytes <= READERS_BYTES_MAX + 8 * len(readers) * frame
    assert watch.stage_bytes <= result.summary["stage"]["bytes_max"]
