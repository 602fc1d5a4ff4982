"""A run that ends before its output is written, on a stage that is a disk; and who writes it then."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from advectio import places
from conftest import Pair
from running import environment, run_plainly

SLOW = "server: {threads: 1, drain_max: 64KiB}\n"


@pytest.fixture
def on_disk(pair: Pair) -> Iterator[Pair]:
    # Not in `tmp_path`, which may be too long for the name of a socket.
    with tempfile.TemporaryDirectory(prefix="stage-") as stage:
        if places.filesystem(stage) in ("tmpfs", "ramfs"):
            pytest.skip(f"{stage} is in memory: nothing can be left there")
        pair.advectio.stage = Path(stage)
        yield pair


def test_what_a_run_leaves_is_drained_though_that_is_killed_again_and_again(made: Path, replay: Path, on_disk: Pair):
    pair = on_disk
    command = [replay, "--tile", "2x2", "--frames", "6", "--frames-per-file", "3", made]
    assert run_plainly(command, pair.plain).code == 0
    running = pair.advectio.start(command, pair.carried, SLOW, options=["--drain-later"])
    run_dir = pair.advectio.run_dirs[-1]
    result = running.finish()
    assert result.code == 0, result.said
    assert f"wait in {run_dir}; `advectio drain {run_dir}` writes them" in result.stderr
    assert result.summary["left"] is True
    assert sum(d["frames_visible"] for d in result.summary["datasets"]) < 6, "all was written: this test means nothing"

    words = [os.fspath(pair.advectio.command), "drain", os.fspath(run_dir)]
    for number in (signal.SIGKILL, signal.SIGINT):
        drain = subprocess.Popen(words, cwd=pair.plain, env=environment(), stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while not (run_dir / "socket").exists():
            assert drain.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        busy = pair.advectio.call("drain", run_dir)
        assert busy.code == 2 and "is served by process" in busy.stderr, busy.said
        drain.send_signal(number)
        _, said = drain.communicate(timeout=60)
        assert drain.returncode == (-number if number == signal.SIGKILL else 130), said
        (run_dir / "socket").unlink(missing_ok=True)
        assert (run_dir / "left.json").exists()

    (run_dir / "advectio.yaml").write_text("server: {threads: 1}\n")
    drained = pair.advectio.call("drain", pair.advectio.stage)
    assert drained.code == 0, drained.said
    assert not run_dir.exists()
    assert pair.advectio.call("drain", run_dir).code == 4
    pair.assert_same(at_least=2)
    assert not list(pair.carried.rglob(".*advectio*"))


def test_a_run_under_way_is_not_drained(made: Path, replay: Path, on_disk: Pair):
    running = on_disk.advectio.start([replay, "--frames", "100000", "--compute", "0.05", made], on_disk.carried)
    run_dir = on_disk.advectio.run_dirs[-1]
    running.wait_for(lambda: running.frames() >= 1, "a frame was written")
    refused = on_disk.advectio.call("drain", run_dir)
    assert refused.code == 2, refused.said
    assert "is served by process" in refused.stderr
    running.kill("replay")
    assert running.finish().code == 128 + signal.SIGKILL
