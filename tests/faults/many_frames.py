#!/usr/bin/env python3
"""A run of many small frames, watched from outside: what it holds must not grow with their number.

    .venv/bin/python tests/faults/many_frames.py --frames 12000 --frames-per-file 8
    .venv/bin/python tests/faults/many_frames.py --frames 12000 --frames-per-file 12000 --json

Of the server and of the program: own memory (RssAnon), descriptors, threads; of the stage: files
and bytes. Each is sampled while frames are written; what the run held in the second quarter of it
is set beside the last quarter. A row for each finished file and two lines for each frame are meant
to stay.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "shows"))

from faults import COMMAND, REPLAY
from running import ROOT, Advectio, Running, allocated, environment, memory

CONFIG = "stage: {bytes_max: 8MiB, segment_bytes: 1MiB, warm_bytes: 8MiB}\nserver: {threads: 2}\n"
# By its defaults the allocator keeps freed pages for each thread. Two equal runs differ by 20 MB.
ALLOCATOR = "glibc.malloc.arena_max=1:glibc.malloc.mmap_threshold=131072:glibc.malloc.trim_threshold=131072"
# Memory: 750 files lie between the two quarters of a run of 1,500, and two equal runs differ by
# 8 MB. Stage bytes: the events and the times of frames have a line for each frame.
GROWTH_MAX = {"memory": 12 << 20, "descriptors": 2, "threads": 0, "stage files": 4, "stage bytes": 2 << 20}
LINES_OF_A_FRAME = 700  # bytes, at most


@dataclass
class Watched:
    """Samples of everything, by what it is of whom."""

    frames: list[int] = field(default_factory=list)
    of: dict[str, list[int]] = field(default_factory=dict)

    def look(self, running: Running, stage: Path) -> None:
        now = {}
        for who in ("advectiod", "replay"):
            pids = running.pids(who)
            if not pids:
                return
            held = memory(pids[0])
            try:
                now[f"{who} memory"] = held["RssAnon"]
                now[f"{who} descriptors"] = len(list(Path(f"/proc/{pids[0]}/fd").iterdir()))
                now[f"{who} threads"] = len(list(Path(f"/proc/{pids[0]}/task").iterdir()))
            except (KeyError, OSError):
                return
        now["stage files"] = sum(1 for path in stage.rglob("*") if path.is_file())
        now["stage bytes"] = allocated(stage)
        self.frames.append(running.frames())
        for what, value in now.items():
            self.of.setdefault(what, []).append(value)

    def quarters(self, frames: int) -> dict[str, tuple[int, int]]:
        """Medians over the second and over the last quarter of the frames."""

        def over(values: list[int], from_: float, to: float) -> int:
            part = [v for f, v in zip(self.frames, values, strict=True) if from_ * frames <= f <= to * frames]
            assert part, f"no sample between {from_} and {to} of the run"
            return int(statistics.median(part))

        return {what: (over(values, 0.25, 0.5), over(values, 0.75, 1.0)) for what, values in self.of.items()}


def run(frames: int, frames_per_file: int, scratch: Path, size: str = "12x10x4") -> dict[str, tuple[int, int]]:
    """Raises AssertionError when the run is not a good one, or something grows."""
    made = scratch / "wrfout_d01_small"
    subprocess.run(
        [sys.executable, ROOT / "examples" / "replay" / "make_input.py", made, "--size", size, "--frames", "4"],
        check=True,
        env=environment(),
    )
    output = scratch / "output"
    output.mkdir()
    advectio = Advectio(COMMAND, scratch, Path("/dev/shm"))
    try:
        command = [REPLAY, "--frames", str(frames), "--frames-per-file", str(frames_per_file), made]
        running = advectio.start(command, output, CONFIG, extra={"GLIBC_TUNABLES": ALLOCATOR})
        watched = Watched()
        while running.process.poll() is None:
            watched.look(running, advectio.run_dirs[-1])
            time.sleep(0.1)
        result = running.finish()
        assert result.code == 0, result.said
        held = watched.quarters(frames)
    finally:
        advectio.clean()
    for what, (early, late) in held.items():
        most = next(limit for name, limit in GROWTH_MAX.items() if what.endswith(name))
        most += frames // 2 * LINES_OF_A_FRAME if what == "stage bytes" else 0
        assert late - early <= most, f"{what} grows from {early} to {late} within {frames} frames"
    return held


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=12000)
    parser.add_argument("--frames-per-file", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="many-frames-") as scratch:
        try:
            held = run(options.frames, options.frames_per_file, Path(scratch))
        except AssertionError as error:
            print(f"many_frames: FAILED\n{error}", file=sys.stderr)
            return 1
    if options.json:
        print(json.dumps({"frames": options.frames, "frames_per_file": options.frames_per_file, "held": held}))
        return 0
    print(f"{options.frames} frames, {options.frames_per_file} in a file, {time.monotonic() - began:.0f} s")
    for what, (early, late) in held.items():
        print(f"  {what}: {early} in the second quarter, {late} in the last")
    return 0


if __name__ == "__main__":
    sys.exit(main())
