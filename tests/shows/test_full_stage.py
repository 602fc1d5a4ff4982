"""A program that writes much more than the stage holds, by each of the policies, and the memory that this takes.

ADVECTIO_FULL_STAGE=20 makes the stage 256 MiB and writes 3 GB: `make soak` does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from conftest import Pair
from running import Result, allocated, output_files, run_plainly
from test_memory import Peaks, plain_peak

SCALE = int(os.environ.get("ADVECTIO_FULL_STAGE", "1"))
MIB = 2**20
STAGE_MAX = 64 * MIB if SCALE < 4 else 256 * MIB
SERVER_MAX = 32 * MIB
# Program text, libraries' own data, thread stacks, HDF5's metadata: not what the caps are about, but bounded too.
SERVER_BASE, RANK_BASE, CONTROL_BASE = 96 * MIB, 32 * MIB, 2 * MIB
FRAMES = 6 * SCALE
# However busy the machine: the program is faster than what may be written.
SLOWER = ", drain_max: 24MiB" if SCALE < 4 else ""


@pytest.fixture
def filled(made: Path, replay: Path, pair: Pair, tmp_path: Path) -> Callable[[str], tuple[Result, Peaks]]:
    """`replay` serially into a server that may use one thread to deflate: far slower than the program."""

    def run(full: str) -> tuple[Result, Peaks]:
        spill = tmp_path / "spill"
        spill.mkdir()
        command: list[str | Path] = [
            replay,
            "--tile",
            "4x4",
            "--frames",
            str(FRAMES),
            "--frames-per-file",
            str(FRAMES // 2),
            made,
        ]
        alone = plain_peak(command, pair)
        config = (
            f"stage: {{bytes_max: {STAGE_MAX}B, segment_bytes: 4MiB, warm_bytes: 16MiB, spill: {spill}}}\n"
            f"server: {{memory_max: {SERVER_MAX}B, threads: 1{SLOWER}}}\n"
            f'datasets: [{{match: "*", full: {full}, codec: deflate, deflate: libdeflate, level: 4}}]\n'
        )
        running = pair.advectio.start(command, pair.carried, config)
        peaks, spilled = Peaks(), 0
        run_dir = pair.advectio.run_dirs[-1]

        def ended() -> bool:
            nonlocal spilled
            peaks.take(running, run_dir)
            spilled = max(spilled, allocated(spill))
            return running.process.poll() is not None

        running.wait_for(ended, "the run ended", timeout_s=1800)
        result = running.finish()
        assert result.code == 0, result.said
        stage = result.summary["stage"]
        if full != "drop-frame":
            assert sum(d["bytes_put"] for d in result.summary["datasets"]) > 2 * STAGE_MAX
        assert peaks.stage <= STAGE_MAX + CONTROL_BASE
        assert stage["bytes_allocated_peak"] <= STAGE_MAX
        assert peaks.server_private <= SERVER_MAX + SERVER_BASE
        assert peaks.rank_private <= alone + RANK_BASE
        assert spilled <= stage["spill_bytes_max"]
        assert not list(spill.iterdir()), "something is left of what has spilled"
        figures = {
            "full": full,
            "put_mb": sum(d["bytes_put"] for d in result.summary["datasets"]) // 10**6,
            "frames_left_out": sum(d["frames_dropped"] for d in result.summary["datasets"]),
            "spilled_mb": stage["spilled_bytes"] // 10**6,
            "spill_peak_mb": spilled // 10**6,
            "stage_peak_mb": peaks.stage // 10**6,
            "server_private_mb": peaks.server_private // 10**6,
            "rank_private_mb": peaks.rank_private // 10**6,
            "rank_private_plain_mb": alone // 10**6,
            "waited_s": round(stage["wait_s"], 2),
            "command_s": round(result.summary["run_s"], 2),
        }
        print(json.dumps(figures))
        return result, peaks

    return run


def test_wait_loses_nothing(filled: Callable[[str], tuple[Result, Peaks]], pair: Pair):
    result, _ = filled("wait")
    assert result.summary["stage"]["waits"] > 0
    assert result.summary["stage"]["spilled_bytes"] == 0
    pair.assert_same(at_least=2, storage=False)


def test_spill_loses_nothing(filled: Callable[[str], tuple[Result, Peaks]], pair: Pair):
    result, _ = filled("auto")
    assert result.summary["stage"]["spilled_bytes"] > 0
    pair.assert_same(at_least=2, storage=False)


def test_drop_frame_leaves_out_whole_frames_and_says_which(filled: Callable[[str], tuple[Result, Peaks]], pair: Pair):
    result, _ = filled("drop-frame")
    dropped = sum(d["frames_dropped"] for d in result.summary["datasets"])
    assert 0 < dropped < FRAMES
    said = [line for line in result.stderr.splitlines() if "is left out: the stage is full" in line]
    assert len(said) == dropped, result.said
    assert result.summary["stage"]["spilled_bytes"] == 0
    missing = 0
    for name in output_files(pair.carried):
        with netCDF4.Dataset(pair.plain / name) as plain, netCDF4.Dataset(pair.carried / name) as carried:
            carried.set_auto_mask(False)
            plain.set_auto_mask(False)
            for record in range(carried.dimensions["Time"].size):
                left_out = any(f"{name}: frame {record + 1} is left out" in line for line in said)
                missing += left_out
                same = [np.array_equal(v[record], carried[n][record]) for n, v in plain.variables.items()]
                assert all(same) or (left_out and not any(same)), f"{name}, frame {record + 1}"
        missing += len(plain_records(pair, name)) - len(plain_records(pair, name, carried=True))
    whole = [n for n in output_files(pair.plain) if n not in output_files(pair.carried)]
    missing += sum(len(plain_records(pair, n)) for n in whole)
    assert missing == dropped


def plain_records(pair: Pair, name: str, carried: bool = False) -> range:
    with netCDF4.Dataset((pair.carried if carried else pair.plain) / name) as file:
        return range(file.dimensions["Time"].size)


def test_what_is_promised_to_be_durable_is_never_left_out(made: Path, replay: Path, pair: Pair):
    command: list[str | Path] = [replay, "--tile", "4x4", "--frames", "4", "--frames-per-file", "2", made]
    assert run_plainly(command, pair.plain).code == 0
    config = (
        "stage: {bytes_max: 16MiB, segment_bytes: 4MiB, warm_bytes: 8MiB}\n"
        'datasets: [{match: "*", full: drop-frame}, {match: "wrfout*", promise: durable}]\n'
    )
    result = pair.advectio.run(command, pair.carried, config, datasets=2)
    assert [d["frames_dropped"] for d in result.summary["datasets"]] == [0, 0]
    assert [d["promise"] for d in result.summary["datasets"]] == ["durable", "durable"]
    assert all(d["frames_durable"] == 2 for d in result.summary["datasets"])
    assert "wait" in result.stderr
    pair.assert_same(at_least=2, storage=False)


@pytest.mark.parametrize("promise", ["visible", "durable"])
@pytest.mark.parametrize("nodes", [None, "1,2"])
def test_promises_of_ranks_that_write_together(made: Path, replay: Path, pair: Pair, promise: str, nodes: str | None):
    command: list[str | Path] = [replay, "--frames", "6", "--frames-per-file", "3"]
    assert run_plainly([*command, made], pair.plain).code == 0
    together = ["mpirun", "-n", "3", *command, "--io", "pnetcdf", made]
    config = f'datasets: [{{match: "*", promise: {promise}}}]\n'
    result = pair.advectio.run(together, pair.carried, config, datasets=2, nodes=nodes)
    assert [d["promise"] for d in result.summary["datasets"]] == [promise] * 2
