"""Memory of ranks, server and stage stays within the configured caps, as the system counts it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from conftest import Pair
from running import Running, allocated, memory, run_plainly
from test_crashes import server_of

MIB = 2**20
CONFIG = "stage: {bytes_max: 48MiB, segment_bytes: 4MiB, warm_bytes: 16MiB}\nserver: {memory_max: 32MiB, threads: 2}\n"
STAGE_MAX, SERVER_MAX = 48 * MIB, 32 * MIB
# Program text, libraries' own data, thread stacks, HDF5's metadata: not what the caps are about, but bounded too.
SERVER_BASE, RANK_BASE, CONTROL_BASE = 96 * MIB, 32 * MIB, 2 * MIB


class Peaks:
    def __init__(self) -> None:
        self.server_private = self.rank_private = self.stage = self.samples = 0

    def take(self, running: Running, run_dir: Path) -> None:
        for pid in server_of(running, run_dir):
            self.server_private = max(self.server_private, memory(pid).get("RssAnon", 0))
        for pid in running.pids("replay"):
            self.rank_private = max(self.rank_private, memory(pid).get("RssAnon", 0))
        self.stage = max(self.stage, allocated(run_dir))
        self.samples += 1


def plain_peak(command: list[str | Path], pair: Pair) -> int:
    running = Running([str(word) for word in command], pair.plain, None, pair.plain / "no-summary")
    peak = 0

    def ended() -> bool:
        nonlocal peak
        peak = max(peak, memory(running.process.pid).get("RssAnon", 0))
        return running.process.poll() is not None

    running.wait_for(ended, "the program ended")
    assert running.process.returncode == 0, running.said
    return peak


@pytest.mark.parametrize("deflate, format", [("asked", "asked"), ("none", "asked"), ("none", "cdf5")])
def test_memory_stays_within_the_caps(made: Path, replay: Path, pair: Pair, deflate: str, format: str):
    command: list[str | Path] = [replay, "--tile", "4x4", "--frames", "8", "--frames-per-file", "4"]
    command += ["--deflate", deflate, "--format", format, made]
    alone = plain_peak(command, pair)
    running = pair.advectio.start(command, pair.carried, CONFIG)
    run_dir = pair.advectio.run_dirs[-1]
    peaks = Peaks()

    def ended() -> bool:
        peaks.take(running, run_dir)
        return running.process.poll() is not None

    running.wait_for(ended, "the run ended")
    result = running.finish()
    assert result.code == 0, result.said
    assert peaks.samples > 20 and peaks.server_private > 0 and peaks.rank_private > 0
    assert result.summary["datasets"][0]["bytes_put"] > 2 * STAGE_MAX, "too little data for this test to mean anything"
    assert peaks.stage <= STAGE_MAX + CONTROL_BASE
    assert peaks.server_private <= SERVER_MAX + SERVER_BASE
    assert peaks.rank_private <= alone + RANK_BASE
    assert result.summary["server"]["memory_peak_bytes"] <= SERVER_MAX + SERVER_BASE
    assert result.summary["stage"]["bytes_allocated_peak"] <= STAGE_MAX
    pair.assert_same(at_least=2)


def test_many_frames_do_not_make_memory_grow(made: Path, replay: Path, pair: Pair):
    """A long run: what server and rank hold after 200 frames in 100 files is what they held after 40."""
    command: list[str | Path] = [replay, "--frames", "200", "--frames-per-file", "2", made]
    running = pair.advectio.start(command, pair.carried, CONFIG)
    run_dir = pair.advectio.run_dirs[-1]

    def peaks_until(frames: int) -> Peaks:
        peaks = Peaks()

        def there() -> bool:
            peaks.take(running, run_dir)
            return running.frames() >= frames

        running.wait_for(there, f"{frames} frames were written")
        return peaks

    early = peaks_until(80)
    late = peaks_until(200)
    result = running.finish()
    assert result.code == 0, result.said
    assert late.server_private <= early.server_private + 16 * MIB
    assert late.rank_private <= early.rank_private + 16 * MIB
    assert run_plainly(command, pair.plain).code == 0
    pair.assert_same(at_least=100)


def test_a_rank_holds_ready_what_its_next_frame_takes(made: Path, replay: Path, pair: Pair):
    """However many files there were before: what it has beyond that other ranks miss."""
    command: list[str | Path] = [replay, "--frames", "16", "--frames-per-file", "1", "--target-mb", "8"]
    command += ["--compute", "0.05", made]
    running = pair.advectio.start(command, pair.carried, "stage: {segment_bytes: 1MiB, warm_bytes: 64MiB}\n")
    run_dir = pair.advectio.run_dirs[-1]
    held = 0

    def ended() -> bool:
        nonlocal held
        with suppress(FileNotFoundError):  # a journal that goes
            held = max(held, sum(1 for _ in run_dir.glob("journals/*/ahead-*")))
        return running.process.poll() is not None

    running.wait_for(ended, "the run ended")
    result = running.finish()
    assert result.code == 0, result.said
    frame = max(d["bytes_put"] for d in result.summary["datasets"])
    assert frame / MIB - 1 <= held <= frame / MIB + 1
