#!/usr/bin/env python3
"""What readers cost a model: the stall of its frames with four live readers beside it, and without any.

    .venv/bin/python bench/beside.py WRFOUT [--megabytes 100] [--frames 12] [--rounds 3] [--stop 60] [--json FILE]

The readers: every frame; the newest two, slowly; the newest of a group of two, one of which is killed at its first frame; every
frame, but stopped (SIGSTOP) for a while. Each reads all values. What they saw is compared with the files, bit for bit. Rounds
are interleaved; medians are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "bench"), str(ROOT / "tests" / "shows")]

import watched  # noqa: E402
from measuring import environment  # noqa: E402

REPLAY = ROOT / "build/release/examples/replay/replay"
ADVECTIO = ROOT / ".venv/bin/advectio"


def one(with_readers: bool, options: argparse.Namespace, where: Path) -> dict[str, Any]:
    run = Path("/dev/shm") / f"advectio-watched-{os.getpid()}-{time.monotonic_ns()}"
    command = [ADVECTIO, "run", "--quiet", "--run-dir", run, "--json", where / "summary.json"]
    command += ["--wait-for-readers", "5", "--readers-within", "300"] if with_readers else []
    command += ["--", "mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(options.ranks), REPLAY]
    command += ["--frames", str(options.frames), "--frames-per-file", "4", "--compute", str(options.compute)]
    command += ["--target-mb", str(options.megabytes), "--report", where / "report.json", options.source.resolve()]
    model = subprocess.Popen([os.fspath(w) for w in command], cwd=where, env=environment(), stdout=subprocess.DEVNULL)

    def until(what: Callable[[], Any], described: str) -> None:
        while not what():
            if model.poll() is not None:
                raise SystemExit(f"the run has ended before {described}")
            time.sleep(0.02)

    readers: list[watched.Reader] = []
    watch = watched.Watch(os.fspath(run))
    if with_readers:
        until((run / "readers").exists, "its server listened")
        plan = [("wait", "-", 0.0), ("drop-oldest", "-", 1.0), ("latest", "screens", 0.5), ("latest", "screens", 0.0)]
        readers = [watched.Reader(os.fspath(run), *words) for words in [*plan, ("wait", "-", 0.0)]]
    watch.start()
    if with_readers:
        watched.trouble(readers[3], readers[4], until, options.stop)
    code = model.wait()
    watch.gone = True
    ended = [reader.end() for i, reader in enumerate(readers) if i != 3]
    if code or any(ended):
        raise SystemExit(f"exit codes {code} and {ended}")
    summary = json.loads((where / "summary.json").read_text())
    report = json.loads((where / "report.json").read_text())
    wrong, compared = watched.differences(where, readers)
    stalls = [frame["blocked_s"]["max"] for frame in report["frames"]]
    return {
        "stall_s": statistics.median(stalls),
        "stall_max_s": max(stalls),
        "run_s": report["run_s"],
        "frame_bytes": max(d["bytes_put"] / d["frames_synced"] for d in summary["datasets"]),
        "stage_waits": summary["stage"]["waits"],
        "stage_peak_bytes": summary["stage"]["bytes_allocated_peak"],
        "readers_peak_bytes": watch.readers_bytes,
        "frames": [len(reader.seen) for reader in readers],
        "compared": compared,
        "wrong": wrong,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="a file of WRF")
    parser.add_argument("--megabytes", type=float, default=100, help="of a frame (default 100)")
    parser.add_argument("--frames", type=int, default=12)
    parser.add_argument("--compute", type=float, default=2.0, help="seconds between frames (default 2)")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stop", type=float, default=60, help="seconds for which a reader is stopped (default 60)")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {"without": [], "with": []}
    for _ in range(options.rounds):
        for name, rows in found.items():
            with tempfile.TemporaryDirectory() as where:
                rows.append(one(name == "with", options, Path(where)))
            print(name, json.dumps(rows[-1]), flush=True)
    for key in ("stall_s", "stall_max_s", "run_s"):
        without, with_them = (statistics.median(row[key] for row in rows) for rows in found.values())
        print(f"{key:12} {without:8.3f} {with_them:8.3f}   ratio {with_them / without:.2f}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 1 if any(row["wrong"] for row in found["with"]) else 0


if __name__ == "__main__":
    sys.exit(main())
