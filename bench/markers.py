#!/usr/bin/env python3
"""The cost of markers, events and `appear` for a model that writes as UFS does: one file a step, `log.fNNN` after each close.

    .venv/bin/python bench/markers.py [--repeat 5] [--ranks 1 4] [--target-mb 60] [--frames 6] [--io serial]
        [--ways "all, frame"] [--json FILE]

Ways to run the same program, one after the other in each round: without output, plainly, and under Advectio with another config
each. A figure is the median of the rounds; the net cost is what output adds to the model's run. A ratio is taken within a round,
to Advectio without markers, events and `appear`; its spread is the least and the most of the rounds. Needs no netCDF module
of Python.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import MeasureError, measure
from rich.console import Console
from rich.table import Table

from bench import ROOT, find_inputs

RUN_SECONDS_MAX = 300.0
REPLAY = ROOT / "build/release/examples/replay/replay"
ADVECTIO = ROOT / ".venv/bin/advectio"


@dataclass(frozen=True)
class Way:
    name: str
    config: str | None  # None: not under Advectio
    writes: bool = True


def config(markers: bool, events: bool, appear: str) -> str:
    lines = ["" if markers else "markers: none", "events: run.events" if events else ""]
    return "\n".join([*filter(None, lines), f"datasets: [{{match: '*', appear: {appear}}}]\n"])


BASE = Way("none of it", config(False, False, "create"))
WAYS = [
    Way("no output", None, writes=False),
    Way("library", None),
    BASE,
    Way("markers", config(True, False, "create")),
    Way("events", config(False, True, "create")),
    Way("appear: frame", config(False, False, "frame")),
    Way("appear: complete", config(False, False, "complete")),
    Way("all, frame", config(True, True, "frame")),
    Way("all, complete", config(True, True, "complete")),
]


def command(way: Way, ranks: int, options: argparse.Namespace, inputs: list[Path], compute: list[str]) -> list[str]:
    words = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), str(REPLAY)]
    words += ["--target-mb", str(options.target_mb), "--frames", str(options.frames), "--frames-per-file", "1", *compute]
    words += [
        "--io",
        options.io if way.writes else "none",
        "--marker",
        "log.f<n>",
        "--report",
        "report.json",
        *map(str, inputs),
    ]
    if way.config is None:
        return words
    Path("advectio.yaml").write_text(way.config)
    return [str(ADVECTIO), "run", "--quiet", "--json", "summary.json", "--config", "advectio.yaml", "--", *words]


def run(way: Way, ranks: int, options: argparse.Namespace, inputs: list[Path], compute: list[str]) -> dict[str, float]:
    """One run in the current directory, which is emptied first."""
    for path in Path.cwd().iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    os.sync()  # what the run before has left to write must not fall into this one
    began = time.time()
    measured = measure(command(way, ranks, options, inputs, compute), Path.cwd(), RUN_SECONDS_MAX)
    report: dict[str, Any] = json.loads(Path("report.json").read_text())
    frames = report["frames"]
    found = {
        "stall_s": statistics.median(frame["blocked_s"]["max"] for frame in frames),
        "marker_s": statistics.median(frame["marker_s"] for frame in frames),
        "run_s": report["run_s"],  # the model's loop
        "whole_s": measured.ended_at - began,  # from the command's begin to its return
        "cpu_s": measured.cpu_s,
        "compute_work": report["compute_work"],
        "markers_held": 0,
    }
    there = sum((Path.cwd() / f"log.f{n:03}").exists() for n in range(options.frames))
    if there != (options.frames if way.writes else 0):
        raise MeasureError(f"{way.name}: {there} of {options.frames} markers are there")
    if way.config is not None:
        summary = json.loads(Path("summary.json").read_text())
        if summary["errors"] or any(d["state"] != "finished" for d in summary["datasets"]):
            raise MeasureError(f"{way.name}: not everything was written: {summary['errors']}")
        found["markers_held"] = summary["markers_held"]
        if ("events:" in way.config) != Path("run.events").exists():
            raise MeasureError(f"{way.name}: the events are not as asked")
    return found


def ratios(found: dict[str, list[dict[str, float]]], way: Way, key: str) -> list[float]:
    """Of the rounds, to the run with none of it in the same round."""
    return [own[key] / base[key] for own, base in zip(found[way.name], found[BASE.name], strict=True)]


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})" if values else "-"


def chosen(options: argparse.Namespace) -> list[Way]:
    return [way for way in WAYS if not options.ways or way.name in (WAYS[0].name, BASE.name, *options.ways)]


def table(ranks: int, options: argparse.Namespace, found: dict[str, list[dict[str, float]]]) -> Table:
    shown = Table(title=f"{ranks} ranks, --io {options.io}, {options.frames} files, {len(found[BASE.name])} rounds")
    for column in (
        "",
        "stall",
        "ratio",
        "net cost a file",
        "model's run",
        "ratio",
        "whole run",
        "ratio",
        "CPU, ratio",
        "marker",
        "held",
    ):
        shown.add_column(column, justify="left" if not column else "right", no_wrap=True)
    for way in chosen(options):
        rows = found[way.name]
        median = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        without = found["no output"]
        net = statistics.median(o["run_s"] - w["run_s"] for o, w in zip(rows, without, strict=True)) / options.frames
        shown.add_row(
            way.name,
            f"{median['stall_s'] * 1000:.1f} ms" if way.writes else "",
            spread(ratios(found, way, "stall_s")) if way.writes else "",
            f"{net * 1000:.0f} ms" if way.writes else "",
            f"{median['run_s']:.2f} s",
            spread(ratios(found, way, "run_s")),
            f"{median['whole_s']:.2f} s",
            spread(ratios(found, way, "whole_s")),
            spread(ratios(found, way, "cpu_s")),
            f"{median['marker_s'] * 1e6:.0f} µs" if way.writes else "",
            f"{median['markers_held']:.0f}" if way.config else "",
        )
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, help="rounds (default 5)")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 4], help="(default 1 4)")
    parser.add_argument("--frames", type=int, default=6, help="files, one a step (default 6)")
    parser.add_argument("--target-mb", type=float, default=60, help="of a file before compression (default 60)")
    parser.add_argument("--compute", type=float, default=0.5, help="seconds between files (default 0.5)")
    parser.add_argument("--io", default="serial", help="of replay: serial (default), split, pnetcdf")
    names = ", ".join(f'"{way.name}"' for way in WAYS)
    parser.add_argument(
        "--ways",
        nargs="+",
        metavar="WAY",
        choices=[way.name for way in WAYS],
        help=f"some of {names} (default all; the first and third always)",
    )
    parser.add_argument("--output", type=Path, help="a directory for the files, which are removed (default: below build)")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args()
    json_file = options.json.resolve() if options.json else None
    place = Path(tempfile.mkdtemp(prefix="bench-markers-", dir=options.output or ROOT / "build"))
    console = Console(width=max(190, Console().width))
    every: dict[str, Any] = {}
    try:
        inputs, said = find_inputs(place, 10)
        console.print(f"{said}; at least {options.target_mb:.0f} MB a file before compression, {os.cpu_count()} cores")
        (place / "run").mkdir()
        os.chdir(place / "run")
        for ranks in options.ranks:
            work = int(run(WAYS[0], ranks, options, inputs, ["--compute", str(options.compute)])["compute_work"])
            compute = ["--compute-work", str(max(1, work))]
            run(BASE, ranks, options, inputs, compute)  # the first run of a machine is slower, and is not counted
            ways = chosen(options)
            found: dict[str, list[dict[str, float]]] = {way.name: [] for way in ways}
            for number in range(options.repeat):
                for way in [*ways[number % len(ways) :], *ways[: number % len(ways)]]:
                    found[way.name].append(run(way, ranks, options, inputs, compute))
            console.print(table(ranks, options, found))
            every[str(ranks)] = found
            if json_file:
                json_file.write_text(json.dumps(every, indent=2) + "\n")
    except (MeasureError, subprocess.CalledProcessError) as error:
        console.print(f"markers: {error}", style="red")
        return 1
    finally:
        os.chdir(ROOT)
        shutil.rmtree(place, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
