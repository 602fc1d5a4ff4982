#!/usr/bin/env python3
"""Forecasts and a Kalman filter in turn: files on the disk (forced to it, and not), files in memory (/dev/shm), coupled.

The two programs of examples/cycle, for a few short cycles. By files each cycle starts both programs anew, as scripts of
SCALE-LETKF do; coupled, both run at once for all cycles.

    cycle      wall clock of a cycle, starts of programs included
    inside     by files: what both programs say they took, so without their starts; coupled: the same as `cycle`
    forecast   seconds its slowest process spent in writing and reading files
    filter     the same of the filter
    open       of the filter, in opening files; coupled, the waits for the forecast are in it
    fsync      seconds in which what both have written is forced to the disk, each before the next one starts

    cycle ÷    cycle of the first method, divided by this one's
    files ÷    the same of `forecast`, `filter` and `fsync` together

Medians of rounds (cycle, inside) and of all cycles but each run's first (the others). Methods are interleaved. But for
`fsync` files on the disk are not forced to it: they are mostly in the page cache when they are read, as in a real cycle.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "examples" / "cycle"))

from cycling import CycleError, Experiment, Timing  # noqa: E402

WAYS = {"synced": "files, fsync", "disk": "files, disk", "memory": "files, /dev/shm", "coupled": "coupled"}
COLOURS = {"synced": "#4d4d4d", "disk": "#8c8c8c", "memory": "#d1813c", "coupled": "#1b6ca8"}


def one(experiment: Experiment, way: str, directory: Path, advectio: Path) -> Timing:
    if way == "coupled":
        return experiment.coupled(directory, advectio, mode="memory")
    return experiment.by_files(directory, synced=way == "synced")


def figures(way: str, runs: list[Timing], cycles: int) -> dict[str, float]:
    def middle(program: str, of: Any) -> float:
        return statistics.median(of(s) for run in runs for s in run.of(program) if s.cycle > 1)

    walls = [run.wall_s / cycles for run in runs]
    inside = walls if way == "coupled" else [(sum(s.all for s in run.spent) + run.synced_s) / cycles for run in runs]
    return {
        "cycle": statistics.median(walls),
        "inside": statistics.median(inside),
        "forecast": middle("forecast", lambda s: s.read + s.write),
        "filter": middle("filter", lambda s: s.read + s.write),
        "open": middle("filter", lambda s: s.open),
        "fsync": statistics.median([run.synced_s / cycles for run in runs]),
    }


def picture(found: list[dict[str, Any]], to: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), constrained_layout=True)
    sizes = list(dict.fromkeys(row["case"] for row in found))
    ways = [way for way in WAYS if any(row["way"] == way for row in found)]
    for axis, what, title in zip(
        axes,
        ("cycle", "files"),
        ("a cycle, starts of programs included", "reading and writing in it, both programs"),
        strict=True,
    ):
        for n, way in enumerate(ways):
            heights = [next(row[what] for row in found if row["case"] == size and row["way"] == way) for size in sizes]
            places = np.arange(len(sizes)) + (n - (len(ways) - 1) / 2) * 0.85 / len(ways)
            bars = axis.bar(places, heights, width=0.8 / len(ways), color=COLOURS[way], label=WAYS[way])
            axis.bar_label(bars, fmt="%.2f", fontsize=7, padding=2)
        axis.set_xticks(np.arange(len(sizes)), sizes)
        axis.set_title(title, loc="left", fontsize=10)
        axis.set_ylabel("s")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False, fontsize=9)
    figure.savefig(to, dpi=120)
    plt.close(figure)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog="Read the docstring for what is measured.")
    parser.add_argument("--members", type=int, nargs="+", default=[4, 10, 20], help="of the ensembles (default 4 10 20)")
    parser.add_argument(
        "--small", type=int, nargs="*", default=[100], help="members of ensembles on a small plane (default 100)"
    )
    parser.add_argument("--cycles", type=int, default=4, help="of each run (default 4)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each method runs (default 3)")
    parser.add_argument("--nx", type=int, default=144, help="cells along the channel (default 144)")
    parser.add_argument("--ny", type=int, default=64, help="cells across (default 64)")
    parser.add_argument("--hours", type=float, default=1, help="of a cycle (default 1)")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS), help="(default: all)")
    parser.add_argument("--output", type=Path, default=ROOT / "bench-output" / "cycle", help="(default bench-output/cycle)")
    return parser.parse_args()


def main() -> int:
    options = parse()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    notes = Console(stderr=True, highlight=False)
    advectio = Path(os.environ.get("ADVECTIO_COMMAND", ROOT / ".venv/bin/advectio"))
    output = options.output.resolve()
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    cases: list[tuple[str, Experiment]] = []
    for name, sizes, nx, ny in (("members", options.members, options.nx, options.ny), ("small", options.small, 48, 24)):
        if not sizes:
            continue
        start = Experiment(
            output / name, members=max(sizes), cycles=options.cycles, hours=options.hours, nx=nx, ny=ny, dx_km=10800 / nx,
            days=10, apart=0.1, stations=100,
        )  # fmt: skip
        start.directory.mkdir()
        start.make_ready(lambda part, name=name: notes.print(f"{name}: {part}", style="dim"))
        cases += [(f"{m} {name}" if name == "members" else f"{m} small", dataclasses.replace(start, members=m)) for m in sizes]
    runs: dict[tuple[str, str], list[Timing]] = {(case, way): [] for case, _ in cases for way in options.ways}
    with tempfile.TemporaryDirectory(prefix="advectio-bench-", dir="/dev/shm") as memory:
        for turn in range(options.rounds):
            for case, experiment in cases:
                compared: list[Path] = []
                for way in options.ways:
                    notes.print(
                        f"{turn + 1} of {options.rounds}: {case}, {WAYS[way]}, load {os.getloadavg()[0]:.1f}", style="dim"
                    )
                    directory = Path(memory) / "files" if way == "memory" else output / way
                    try:
                        runs[case, way].append(one(experiment, way, directory, advectio))
                    except CycleError as error:
                        notes.print(f"failed: {error}", style="red", markup=False)
                        return 1
                    compared.append(directory)
                for other in compared[1:]:
                    different, _ = experiment.different(compared[0], other, restarts=False)
                    if different:
                        notes.print(f"{case}: not the same: {different[0]}", style="red", markup=False)
                        return 1
                for directory in compared:
                    shutil.rmtree(directory)
    found: list[dict[str, Any]] = []
    for (case, way), its in runs.items():
        row = {"case": case, "way": way, **figures(way, its, options.cycles)}
        row["files"] = row["forecast"] + row["filter"] + row["fsync"]
        row["runs"] = [{"wall_s": run.wall_s, "spent": [vars(s) for s in run.spent]} for run in its]
        found.append(row)
    table = Table(title=f"seconds; {options.cycles} cycles, {options.rounds} rounds", title_justify="left")
    for heading in ("", "method", "cycle", "inside", "forecast", "filter", "open", "fsync", "cycle ÷", "files ÷"):
        table.add_column(heading, justify="left" if heading in ("", "method") else "right", no_wrap=True)
    for row in found:
        disk = next((r for r in found if r["case"] == row["case"] and r["way"] == options.ways[0]), row)
        cells = [f"{row[key]:.3f}" for key in ("cycle", "inside", "forecast", "filter", "open", "fsync")]
        table.add_row(row["case"], WAYS[row["way"]], *cells, *(f"{disk[key] / row[key]:.2f}" for key in ("cycle", "files")))
    console.print(table)
    about = {key: value for key, value in vars(options).items() if key != "output"}
    (output / "result.json").write_text(json.dumps({"options": about, "cores": os.cpu_count(), "rows": found}, indent=2) + "\n")
    picture(found, output / "cycle.png")
    console.print(f"{output / 'result.json'}, {output / 'cycle.png'}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
