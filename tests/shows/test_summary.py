"""What `advectio run` says about a run agrees with what the program and the file system say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import Advectio, Result


@pytest.fixture
def out(tmp_path: Path) -> Path:
    directory = tmp_path / "out"
    directory.mkdir()
    return directory


def carried(advectio: Advectio, replay: Path, out: Path, *words: str | Path) -> tuple[Result, dict[str, object]]:
    report = advectio.scratch / "report.json"
    result = advectio.run([replay, "--report", report, *words], out)
    return result, json.loads(report.read_text())


def test_bytes_and_frames_are_those_of_the_program_and_of_the_files(advectio: Advectio, replay: Path, made: Path, out: Path):
    result, report = carried(advectio, replay, out, "--tile", "2x2", "--frames", "7", "--frames-per-file", "3", made)
    frame_bytes = report["frame_bytes"]
    assert [Path(d["path"]).name for d in result.summary["datasets"]] == report["files"]
    for dataset, frames in zip(result.summary["datasets"], [3, 3, 1], strict=True):
        assert dataset["frames_synced"] == dataset["frames_visible"] == dataset["frames_durable"] == frames
        assert dataset["bytes_put"] == frames * frame_bytes
        size = Path(dataset["path"]).stat().st_size
        assert 0.8 * size <= dataset["bytes_written"] <= 1.2 * size
        assert dataset["ratio"] == pytest.approx(dataset["bytes_put"] / dataset["bytes_written"], rel=0.01)
        assert 0 < dataset["to_visible_s"]["median"] <= dataset["to_visible_s"]["max"] <= dataset["to_durable_s"]["max"]
        assert dataset["drain_bytes_per_s"] > 0
        assert dataset["error"] is None


def test_stall_is_what_the_program_was_blocked(advectio: Advectio, replay: Path, made: Path, out: Path):
    result, report = carried(advectio, replay, out, "--tile", "3x3", "--frames", "6", "--frames-per-file", "1", made)
    for dataset, frame in zip(result.summary["datasets"], report["frames"], strict=True):  # type: ignore[call-overload]
        blocked, stall = frame["blocked_s"]["rank0"], dataset["stall_s"]
        assert stall["median"] == stall["max"]
        # The program's clock runs around ours. What lies between (the calls themselves, other processes) has no bound on a busy machine.
        assert 0 < stall["max"] <= blocked + 0.001, (dataset["path"], stall, frame)


def test_every_frame_counts_for_the_median_and_the_largest_stall(advectio: Advectio, replay: Path, made: Path, out: Path):
    """The first frame of a file pays for its definition: with three frames it is the largest, and not the median."""
    result, report = carried(advectio, replay, out, "--tile", "3x3", "--frames", "9", "--frames-per-file", "3", made)
    for n, dataset in enumerate(result.summary["datasets"]):
        blocked = sorted(f["blocked_s"]["rank0"] for f in report["frames"][3 * n : 3 * n + 3])  # type: ignore[index]
        stall = dataset["stall_s"]
        # What comes after a frame's sync record, the end of nc_sync itself among it, counts for the next frame.
        assert 0 < stall["median"] < stall["max"] <= sum(blocked) + 0.001, (stall, blocked)


def test_backlog_peak_holds_at_least_a_frame(advectio: Advectio, replay: Path, made: Path, out: Path):
    """A frame is staged in a moment and committed only as a whole, so once all of it must have been waiting."""
    result, report = carried(advectio, replay, out, "--tile", "4x4", "--frames", "4", "--frames-per-file", "4", made)
    stage = result.summary["stage"]
    assert stage["backlog_bytes"] == 0
    assert 0.9 * report["frame_bytes"] <= stage["backlog_peak_bytes"] <= stage["bytes_allocated_peak"] <= stage["bytes_max"]  # type: ignore[operator]


def test_the_summary_is_printed_and_can_be_kept_quiet(advectio: Advectio, replay: Path, made: Path, out: Path):
    loud = advectio.call("run", "--", replay, made, directory=out)
    assert loud.code == 0 and "wrfout_d01_2024-05-11_12:00:00" in loud.stderr and "stall" in loud.stderr, loud.said
    assert "advectio" not in loud.stdout, loud.said
    quiet = advectio.call("run", "--quiet", "--", replay, made, directory=out)
    assert quiet.code == 0 and quiet.stderr == "", quiet.said
