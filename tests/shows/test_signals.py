"""Signals to each process of a run, and to all of them at once, as a batch system sends them at its time limit."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from conftest import Pair
from running import Result, Running, descendants, run_plainly
from test_crashes import FOREVER, assert_beginning_is_same, records, server_of, synced_frames

TERM, INT, HUP, USR1, USR2, KILL = (getattr(signal, f"SIG{name}") for name in ("TERM", "INT", "HUP", "USR1", "USR2", "KILL"))


def begin(made: Path, replay: Path, pair: Pair, nodes: str | None = None) -> Running:
    """A model of two ranks behind mpirun, each with files of its own."""
    command = ["mpirun", "-n", "2", replay, "--io", "split", made, *FOREVER]
    running = pair.advectio.start(command, pair.carried, "", nodes=nodes)
    running.wait_for(lambda: running.frames() >= 6, "6 frames were written")
    return running


def of(running: Running, who: str, run_dir: Path) -> list[int]:
    mpirun = running.pids("mpirun") or running.pids("prterun")  # Open MPI 5's becomes prterun
    return {
        "advectio run": [running.process.pid],
        "server": server_of(running, run_dir),
        "mpirun": mpirun,
        "rank": running.pids("replay")[:1],
        "all": [running.process.pid, *running.pids("replay"), *server_of(running, run_dir), *mpirun],
    }[who]


def assert_nothing_lost(result: Result, running: Running, made: Path, replay: Path, pair: Pair) -> None:
    """Files, words and summary say the same."""
    assert result.code not in (0, 3), result.said
    assert not re.search(r"is lost|removed under|Traceback|error:.*dataset", result.stderr), result.said
    assert result.summary["exit_code"] == result.code, result.said
    synced = synced_frames(running.lines)  # as rank 0 says
    if result.summary["server"]["restarts"] == 0:
        listed = {Path(d["path"]).name: d for d in result.summary["datasets"]}
        for name, frames in synced.items():
            assert listed[name]["state"] == "finished" and listed[name]["frames_visible"] >= frames, result.said
    assert not pair.advectio.run_dirs[-1].exists()
    assert all(records(pair.carried / name) >= frames for name, frames in synced.items())
    begun = sorted(pair.carried.glob("*_0000"))  # a rank may have gone on for a while, and nobody heard what it said
    plain = ["mpirun", "-n", "2", replay, "--io", "split", made, "--frames-per-file", "4", "--frames", str(4 * len(begun))]
    done = run_plainly(plain, pair.plain)
    assert done.code == 0, done.said
    for path in begun:
        assert_beginning_is_same(pair.plain / path.name, path)


@pytest.mark.parametrize(
    ("who", "number"),
    [
        *(("all", n) for n in (TERM, INT, HUP, USR1, USR2)),
        *(("server", n) for n in (TERM, INT, HUP, USR1, USR2, KILL)),
        *(("mpirun", n) for n in (TERM, INT, HUP, USR1, KILL)),
        *(("rank", n) for n in (TERM, INT, HUP, USR1, KILL)),
        *(("advectio run", n) for n in (TERM, INT, HUP, USR1, USR2)),
    ],
    ids=lambda value: value.name if isinstance(value, signal.Signals) else value,
)
def test_all_that_was_synced_is_in_files_and_in_the_summary(
    made: Path, replay: Path, pair: Pair, who: str, number: signal.Signals
):
    running = begin(made, replay, pair)
    run_dir = pair.advectio.run_dirs[-1]
    for pid in of(running, who, run_dir):
        os.kill(pid, number)
    if who == "server":
        frames = running.frames()
        running.wait_for(lambda: running.frames() >= frames + 4, "the model went on")
        running.kill("replay")
    result = running.finish()
    assert result.summary["server"]["restarts"] == (1 if (who, number) == ("server", KILL) else 0), result.said
    assert_nothing_lost(result, running, made, replay, pair)


@pytest.mark.parametrize("number", [TERM, USR1], ids=["SIGTERM", "SIGUSR1"])
def test_the_same_where_several_nodes_have_servers(made: Path, replay: Path, pair: Pair, number: signal.Signals):
    """Open MPI's mpirun, which has started them, ends them."""
    running = begin(made, replay, pair, nodes="1,1")
    pids = [running.process.pid, *descendants(running.process.pid, None)]
    for pid in pids:
        os.kill(pid, number)
    assert_nothing_lost(running.finish(), running, made, replay, pair)
