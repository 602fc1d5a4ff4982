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
from same import assert_same

SLOW = "server: {threads: 1, drain_max: 64KiB}\n"


@pytest.fixture
def on_disk(pair: Pair) -> Iterator[Pair]:
    # Not in `tmp_path`, which may be too long for the name of a socket.
    with tempfile.TemporaryDirectory(prefix="stage-") as stage:
        if places.in_memory(stage):
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


@pytest.mark.parametrize("format", ["netcdf4", "classic"])
def test_files_are_written_no_faster_than_drain_max(made: Path, replay: Path, pair: Pair, format: str):
    command = [replay, "--format", format, "--tile", "2x2", "--frames", "2", "--frames-per-file", "2", made]
    result = pair.run(command, "server: {drain_max: 12MiB}\n", datasets=1)
    pair.assert_same()
    written = result.dataset("wrfout_d01_2024-05-11_12:00:00")["bytes_written"]
    assert written > 6 * 2**20, "too little for this test to mean anything"
    least_s = (written - 0.1 * 12 * 2**20 - block_of(format)) / (12 * 2**20)
    assert result.summary["run_s"] + result.summary["drain_wait_s"] >= least_s
    assert result.summary["server"]["drain_max"] == 12 * 2**20
    assert result.summary["server"]["held_back_s"] >= 0.5 * least_s


def block_of(format: str) -> int:
    """What may go out at once when the debt is paid: the largest block, and of HDF5 the metadata at the end."""
    return 2**20 if format == "classic" else 2 * 2**20


def test_a_model_in_a_burst_directory_gets_its_input_and_gives_its_output_back(made: Path, replay: Path, pair: Pair):
    transfers = "{in: [{from: in/*, to: burst}], out: [{from: burst/*, to: out}]}"
    (pair.carried / "in").mkdir()
    (pair.carried / "in" / made.name).write_bytes(made.read_bytes())
    script = f"cd burst && echo log > rsl.out.0000 && {replay} {made.name} && exit 9"
    running = pair.advectio.start(["sh", "-c", script], pair.carried, f"stage: {transfers}\n")
    result = running.finish()
    assert result.code == 9, result.said
    (dataset,) = result.summary["datasets"]
    name = Path(dataset["path"]).name
    assert result.summary["stage_out"]["failed"] == []
    assert sorted(p.name for p in (pair.carried / "out").iterdir()) == sorted(["rsl.out.0000", made.name, name])
    assert (pair.carried / "out" / name).read_bytes() == (pair.carried / "burst" / name).read_bytes()
    assert run_plainly([replay, made], pair.plain).code == 0
    assert_same(pair.plain / name, pair.carried / "out" / name)
