#!/usr/bin/env python3
"""An ensemble of forecasts and a Kalman filter in turn, by files on the disk, by files in memory, and coupled by Advectio.

The same experiment each way; the results are compared bit for bit, then drawn. Run by `make demo-cycle`.
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
from pathlib import Path

import netCDF4
import pictures
from cycling import ROOT, CycleError, Experiment, Timing
from rich.console import Console
from rich.table import Table

WAYS = {"disk": "files on the disk", "memory": "files in /dev/shm", "coupled": "coupled by Advectio"}


def seconds(values: list[float]) -> str:
    return f"{statistics.median(values):.3f} s"


def timing_table(timings: dict[str, Timing], cycles: int) -> Table:
    table = Table(title="measured in this run; medians of a cycle, of the slowest process", title_justify="left")
    table.add_column("")
    for way in timings:
        table.add_column(WAYS[way], justify="right")
    for program in ("forecast", "filter"):
        table.add_row(
            f"{program}: reading and writing", *(seconds([s.read + s.write for s in t.of(program)]) for t in timings.values())
        )
        table.add_row(
            "… opening, waits for the other program included",
            *(seconds([s.open for s in t.of(program)]) for t in timings.values()),
        )
    table.add_section()
    table.add_row("a cycle, starts of programs included", *(f"{t.wall_s / cycles:.3f} s" for t in timings.values()))
    return table


def can_couple(advectio: Path) -> bool:
    """Whether the command knows workflows."""
    if not advectio.exists():
        return False
    helped = subprocess.run(
        [str(advectio), "run", "--help"], capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"}, check=False
    )
    return "--workflow" in helped.stdout


def show(console: Console, experiment: Experiment, ways: list[str]) -> int:
    advectio = Path(os.environ.get("ADVECTIO_COMMAND", ROOT / ".venv/bin/advectio"))
    for path in (experiment.programs / "forecast", experiment.programs / "filter"):
        if not path.exists():
            raise CycleError(f"{path} is not there; `make build` makes it")
    if shutil.which("mpirun") is None:
        raise CycleError("mpirun is not installed")
    if "coupled" in ways and not can_couple(advectio):
        raise CycleError(f"{advectio} cannot couple programs; --ways disk memory leaves that out")
    shutil.rmtree(experiment.directory, ignore_errors=True)
    experiment.directory.mkdir(parents=True)
    console.print(
        f"{experiment.members} forecasts of a small weather model ({experiment.nx}×{experiment.ny} columns, 2 layers) and a Kalman filter, "
        f"{experiment.cycles} cycles of {experiment.hours:g} hours. The programs know nothing of Advectio. {os.cpu_count()} cores.\n"
    )
    with console.status("") as status:
        experiment.make_ready(status.update)
        status.update("the ensemble without assimilation")
        free = experiment.free()
        timings: dict[str, Timing] = {}
        results: dict[str, Path] = {}
        with tempfile.TemporaryDirectory(prefix="advectio-cycle-", dir="/dev/shm" if "memory" in ways else None) as memory:
            for way in ways:
                results[way] = Path(memory) / "files" if way == "memory" else experiment.directory / way
                status.update(f"cycles: {WAYS[way]}")
                if way == "coupled":
                    timings[way] = experiment.coupled(results[way], advectio)
                else:
                    timings[way] = experiment.by_files(
                        results[way],
                        lambda cycle, way=way: status.update(f"cycles: {WAYS[way]}, {cycle} of {experiment.cycles}"),
                    )
            status.update("comparing bit for bit, and errors")
            first = results[ways[0]]
            differences, compared = [], 0
            for other in ways[1:]:
                found, count = experiment.different(first, results[other])
                differences += found
                compared += count
            errors = experiment.errors(first, free)
            states = [
                ("nature", experiment.state(experiment.directory / "nature", experiment.cycles, "restart.truth")),
                ("no assimilation: mean of the ensemble", experiment.mean_and_spread(free, experiment.cycles)[0]),
                ("analysis: mean of the ensemble (green: stations)", experiment.state(first, experiment.cycles, "mean")),
            ]
        status.update("drawing")
        drawn = [experiment.directory / "errors.png", experiment.directory / "maps.png"]
        pictures.errors(errors, experiment.hours, drawn[0])
        with netCDF4.Dataset(experiment.directory / "observations" / "0001" / "observations.nc") as file:
            stations = (file["x"][:].data / 1e3, file["y"][:].data / 1e3)
        title = f"Day {experiment.cycles * experiment.hours / 24:g}: vorticity, wind and thickness of the upper layer"
        pictures.maps(states, stations, experiment.dx_km, title, drawn[1])
    last = {
        name: {what: statistics.mean(v[what] for v in values[len(values) // 2 :]) for what in values[0]}
        for name, values in errors.items()
    }
    table = Table(title="distance from nature, mean of the second half", title_justify="left")
    for heading in ("", "wind", "interface"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, off in last.items():
        table.add_row(pictures.TITLES[name], f"{off['wind']:.2f} m/s", f"{off['interface']:.0f} m")
    console.print(table)
    console.print(timing_table(timings, experiment.cycles))
    result = {
        "errors": errors,
        "wall_s": {way: t.wall_s for way, t in timings.items()},
        "spent": {way: [vars(s) for s in t.spent] for way, t in timings.items()},
        "compared": compared,
        "differences": differences,
    }
    (experiment.directory / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    if differences:
        console.print(f"[bold red]The results differ[/] in {len(differences)} places:")
        for line in differences[:10]:
            console.print(f"  {line}", markup=False)
        return 1
    if len(ways) > 1:
        console.print(
            f"[bold green]The results are equal[/], bit for bit, {' and '.join(WAYS[w] for w in ways)}: {compared / 1e6:.1f} million values."
        )
    for path in drawn:
        console.print(f"  {path}", soft_wrap=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--members", type=int, default=Experiment.members, help="of the ensemble (default %(default)s)")
    parser.add_argument("--cycles", type=int, default=Experiment.cycles, help="(default %(default)s)")
    parser.add_argument("--nx", type=int, default=Experiment.nx, help="cells along the channel (default %(default)s)")
    parser.add_argument("--ny", type=int, default=Experiment.ny, help="cells across (default %(default)s)")
    parser.add_argument("--dx", type=float, default=Experiment.dx_km, help="their size, km (default %(default)s)")
    parser.add_argument("--days", type=float, default=Experiment.days, help="of the long run before (default %(default)s)")
    parser.add_argument("--stations", type=int, default=Experiment.stations, help="(default %(default)s)")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS), help="(default: all)")
    parser.add_argument(
        "--output", type=Path, default=ROOT / "cycle-output", help="where everything goes (default cycle-output)"
    )
    options = parser.parse_args()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)
    experiment = Experiment(
        options.output.resolve(), members=options.members, cycles=options.cycles, nx=options.nx, ny=options.ny, dx_km=options.dx,
        days=options.days, stations=options.stations,
    )  # fmt: skip
    try:
        return show(console, experiment, options.ways)
    except CycleError as error:
        console.print(f"cycle: {error}", style="red", markup=False, soft_wrap=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
