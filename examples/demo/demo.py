#!/usr/bin/env python3
"""A storm, written plainly and under `advectio run`, side by side; then its pictures.

Every number printed is measured in this run. Run by `make demo`; `demo.py --help` tells what can be changed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests" / "shows"), str(ROOT / "bench")]

import pictures  # noqa: E402
from measuring import environment, make_durable  # noqa: E402
from same import NC_GLOBAL, File, NetcdfError, differences  # noqa: E402

MB = 1e6
REFRESH_SECONDS = 0.2


class DemoError(Exception):
    pass


@dataclass
class Run:
    """One of the three runs of the model."""

    title: str
    directory: Path
    wrapper: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    state: str = "waiting"
    began: float = 0.0
    seconds: float = 0.0
    model_minutes: float = 0.0
    written: list[float] = field(default_factory=list)  # seconds, as the model prints them
    report: dict[str, Any] = field(default_factory=dict)
    durable_s: float = 0.0

    @property
    def files(self) -> list[Path]:
        return sorted(self.directory.glob("squall_d01_*"))

    @property
    def waited(self) -> list[float]:
        return [frame["blocked_s"] for frame in self.report["frames"]]

    @property
    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self.files)


def minutes_of(date: str) -> float:
    """Minutes since the first day's midnight, of a date as WRF writes it."""
    day, clock = date.split("_")
    h, m, s = (int(part) for part in clock.split(":"))
    return (int(day.split("-")[2]) - 1) * 1440 + h * 60 + m + s / 60


def live_table(runs: list[Run], minutes: float) -> Group:
    table = Table(title="the same storm, three times", title_justify="left")
    table.add_column("")
    for run in runs:
        table.add_column(run.title, justify="right", min_width=18)

    def row(name: str, cell: Callable[[Run], Any]) -> None:
        table.add_row(name, *(cell(run) for run in runs))

    def elapsed(run: Run) -> str:
        return f"{run.seconds or (time.monotonic() - run.began if run.began else 0.0):.1f} s"

    row("model time", lambda run: ProgressBar(total=minutes, completed=run.model_minutes, width=18))
    row("frames written", lambda run: f"{len(run.written)}" if run.title != "no output" else "–")
    row("the model says it spent on them", lambda run: f"{sum(run.written):.2f} s" if run.title != "no output" else "–")
    row("elapsed", elapsed)
    row("", lambda run: Text(run.state, style="dim"))
    return Group(table)


def run_model(run: Run, command: list[str], changed: Callable[[], None]) -> None:
    run.state, run.began = "running", time.monotonic()
    changed()
    process = subprocess.Popen(
        [*run.wrapper, *command, *run.options],
        cwd=run.directory,
        env=environment() | {"LD_PRELOAD": str(ROOT / "build/release/examples/give_way/libgive_way.so")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=(run.directory / "stderr.txt").open("w"),
        text=True,
    )
    assert process.stdout is not None
    shown = 0.0
    for line in process.stdout:
        if line.startswith("Timing for main"):
            run.model_minutes = minutes_of(line.split()[4])
        elif line.startswith("Timing for Writing"):
            run.written.append(float(line.split(":")[-1].split()[0]))
        if time.monotonic() - shown > REFRESH_SECONDS:
            shown = time.monotonic()
            changed()
    code = process.wait()
    run.seconds = time.monotonic() - run.began
    if code != 0:
        said = (run.directory / "stderr.txt").read_text().strip()
        raise DemoError(f"{run.title}: exit code {code}\n{said}")
    run.report = json.loads((run.directory / "report.json").read_text())
    if not run.wrapper and run.files:
        run.state = "fsync"
        changed()
        make_durable(run.files)
    # `advectio run` returns when everything is durable.
    run.durable_s = time.monotonic() - run.began
    run.state = "on disk" if run.files else "done"
    changed()


def compare(pair: tuple[str, str]) -> tuple[list[str], dict[str, int]]:
    """Differences of two files, and how much was compared."""
    first, second = pair
    found = list(differences(first, second, storage=True))
    with File(first) as file:
        counts = {"files": 1, "variables": file.var_count(), "attributes": len(file.atts(NC_GLOBAL)), "values": 0}
        lengths = [length for _, length, _ in file.dims()]
        for v in range(file.var_count()):
            counts["attributes"] += len(file.atts(v))
            count = 1
            for d in file.var(v)[2]:
                count *= lengths[d]
            counts["values"] += count
    return found, counts


def compare_all(console: Console, plain: Run, carried: Run) -> tuple[list[str], dict[str, int]]:
    names = [[path.name for path in run.files] for run in (plain, carried)]
    found = [] if names[0] == names[1] else [f"files: {names[0]} / {names[1]}"]
    total = {"files": 0, "variables": 0, "attributes": 0, "values": 0}
    pairs = [(str(a), str(b)) for a, b in zip(plain.files, carried.files, strict=False)]
    with (
        console.status("comparing every variable and every attribute, bit for bit") as status,
        concurrent.futures.ProcessPoolExecutor(max_workers=os.cpu_count()) as pool,
    ):
        for done, (lines, counts) in enumerate(pool.map(compare, pairs), 1):
            found += lines
            for key, value in counts.items():
                total[key] += value
            status.update(f"comparing bit for bit: {done} of {len(pairs)} files")
    return found, total


def draw(console: Console, plain: Run, carried: Run, output: Path) -> list[Path]:
    files = carried.files
    drawn = [output / name for name in ("storm.png", "cross_section.png", "waiting.png", "storm.gif")]
    with console.status("drawing") as status:
        thirds = [files[len(files) * k // 3 - (1 if k == 3 else 0)] for k in (1, 2, 3)]
        pictures.maps(thirds, drawn[0])
        pictures.cross_section(thirds[1], drawn[1])
        minutes = [minutes_of(path.name[-19:]) for path in files]
        pictures.waiting(plain.waited, carried.waited, minutes, drawn[2])
        shown = files[:: max(1, len(files) // 45)]
        pictures.animation(shown, drawn[3], lambda n: status.update(f"drawing the animation: {n} of {len(shown)}"))
    return drawn


def watch(console: Console, command: list[str], advectio: Path, directory: Path) -> list[Path]:
    """The storm once more, for a while, with a live reader beside it that draws. Its pictures, the newest last."""
    directory.mkdir(parents=True)
    reader = subprocess.Popen(
        ["nice", sys.executable, str(ROOT / "examples/insitu/live.py"), "squall_d01_*", "pictures"],
        cwd=directory, stdout=subprocess.DEVNULL, stderr=(directory / "reader.txt").open("w"),
    )  # fmt: skip
    run = subprocess.Popen(
        [str(advectio), "run", "--quiet", "--wait-for-readers", "1", "--", *command],
        cwd=directory, env=environment() | {"LD_PRELOAD": str(ROOT / "build/release/examples/give_way/libgive_way.so")},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=(directory / "stderr.txt").open("w"),
    )  # fmt: skip
    with console.status("the same storm, watched while it runs") as status:
        while run.poll() is None:
            drawn, there = sorted(directory.glob("pictures/*.png")), len(list(directory.glob("squall_d01_*")))
            if drawn:
                status.update(f"watched while it runs: {len(drawn)} pictures, the newest {drawn[-1].name}; {there} files begun")
            time.sleep(REFRESH_SECONDS)
        during = len(list(directory.glob("pictures/*.png")))
        code = reader.wait(60)
    if run.returncode != 0 or code != 0:
        said = (directory / "stderr.txt").read_text() + (directory / "reader.txt").read_text()
        raise DemoError(f"the run that was watched: exit codes {run.returncode} and {code}\n{said.strip()}")
    drawn = sorted(directory.glob("pictures/*.png"))
    console.print(
        f"Watched while it ran (policy latest, {len(list(directory.glob('squall_d01_*')))} frames): {during} pictures were there "
        f"before the run had ended, {len(drawn)} in all, in {directory / 'pictures'}",
        soft_wrap=True,
    )
    return drawn


def seconds(value: float) -> str:
    return f"{value * 1000:.1f} ms" if abs(value) < 0.1 else f"{value:.2f} s"


def result_table(none: Run, plain: Run, carried: Run, summary: dict[str, Any]) -> Table:
    table = Table(title="measured in this run", title_justify="left")
    table.add_column("")
    for title in (plain.title, carried.title, ""):
        table.add_column(title, justify="right")

    def row(
        name: str, values: tuple[float, float], show: Callable[[float], str] = seconds, factor: str = "{:.1f} × less"
    ) -> None:
        ratio = values[0] / values[1] if values[1] > 0 else 0.0
        table.add_row(name, *(show(v) for v in values), factor.format(ratio) if factor and ratio > 0 else "")

    row("a frame kept the model waiting, median", (statistics.median(plain.waited), statistics.median(carried.waited)))
    row("… most", (max(plain.waited), max(carried.waited)))
    stalls = [d["stall_s"]["median"] for d in summary["datasets"] if d["stall_s"]]
    table.add_row("… of it inside Advectio (stall), median", "", seconds(statistics.median(stalls)), "")
    frames = len(plain.waited)
    costs = tuple((run.report["total_s"] - none.report["total_s"]) / frames for run in (plain, carried))
    row("net cost of a frame: run time added", (costs[0], costs[1]))
    table.add_section()
    row("run time of the model", (plain.report["total_s"], carried.report["total_s"]), factor="{:.2f} ×")
    row("all files complete and on disk after", (plain.durable_s, carried.durable_s), factor="{:.2f} ×")
    row("size of the files", (plain.bytes / MB, carried.bytes / MB), lambda v: f"{v:.0f} MB", "")
    return table


def demo(console: Console, options: argparse.Namespace) -> int:
    squall = Path(os.environ.get("ADVECTIO_SQUALL", ROOT / "build/release/examples/squall/squall"))
    advectio = Path(os.environ.get("ADVECTIO_COMMAND", ROOT / ".venv/bin/advectio"))
    for path in (squall, advectio):
        if not path.exists():
            raise DemoError(f"{path} is not there; `make build` makes it")
    if shutil.which("mpirun") is None:
        raise DemoError("mpirun is not installed")
    output: Path = options.output.resolve()
    summary_file = output / "advectio" / "summary.json"
    wrapper = (str(advectio), "run", "--quiet", "--json", str(summary_file), "--")
    none = Run("no output", output / "none", options=("--history-minutes", "0"))
    plain = Run("plain netCDF", output / "plain")
    carried = Run("under Advectio", output / "advectio", wrapper=wrapper)
    runs = [none, plain, carried]
    shutil.rmtree(output, ignore_errors=True)
    for run in runs:
        run.directory.mkdir(parents=True)
    # Squall's frames are about 44 bytes for each point of the grid, before compression.
    frames = int(options.minutes / options.history_minutes) + 1
    needed = 2 * 60.0 * options.nx**2 * 40 * frames
    if shutil.disk_usage(output).free < needed:
        raise DemoError(f"the demo needs up to {needed / 1e9:.1f} GB of disk in {output}; --output puts it elsewhere")
    console.print(
        f"squall, a small weather model that knows nothing of Advectio, grows a storm ({options.nx}×{options.nx}×40 points, "
        f"{options.minutes:.0f} minutes) on {options.ranks} ranks and writes it every {options.history_minutes:g} minutes as WRF would: gathered "
        f"to one rank, NetCDF-4, shuffle and deflate. {os.cpu_count()} cores.\n"
    )
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(options.ranks), str(squall)]
    command += ["--nx", str(options.nx), "--ny", str(options.nx), "--minutes", str(options.minutes), "--report", "report.json"]
    command += ["--history-minutes", str(options.history_minutes)]
    with Live(console=console, auto_refresh=False) as live:

        def changed() -> None:
            live.update(live_table(runs, options.minutes), refresh=True)

        for run in runs:
            run_model(run, command, changed)
    summary = json.loads(summary_file.read_text())
    found, compared = compare_all(console, plain, carried)
    console.print()
    console.print(result_table(none, plain, carried, summary))
    result = {
        "waited_s": {"plain": plain.waited, "advectio": carried.waited},
        "run_s": {run.title: run.report["total_s"] for run in runs},
        "durable_s": {"plain": plain.durable_s, "advectio": carried.durable_s},
        "bytes": {"plain": plain.bytes, "advectio": carried.bytes},
        "compared": compared,
        "differences": found,
    }
    (output / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    if found:
        console.print(f"[bold red]The files differ[/] in {len(found)} places:")
        for line in found[:10]:
            console.print(f"  {line}", markup=False)
        return 1
    console.print(
        f"[bold green]The files are equal[/], bit for bit: {compared['files']} files, {compared['variables']} variables, "
        f"{compared['attributes']} attributes, {compared['values'] / 1e6:.0f} million values, and how they are stored."
    )
    console.print("Pictures of the storm, from the files that Advectio wrote:")
    for path in draw(console, plain, carried, output):
        console.print(f"  {path}", soft_wrap=True)
    at = command.index("--minutes") + 1
    watched = [*command[:at], str(options.minutes / 3), *command[at + 1 :]]
    if not watch(console, watched, advectio, output / "live"):
        raise DemoError("the live reader has drawn nothing")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="A storm written plainly and under `advectio run`, and its pictures.")
    parser.add_argument("--ranks", type=int, default=4, help="MPI ranks (default 4)")
    parser.add_argument("--nx", type=int, default=80, help="points of a side, 2 km apart (default 80)")
    parser.add_argument("--minutes", type=float, default=90, help="of the storm (default 90)")
    parser.add_argument("--history-minutes", type=float, default=1, help="between frames (default 1)")
    parser.add_argument("--output", type=Path, default=ROOT / "demo-output", help="where everything goes (default demo-output)")
    options = parser.parse_args()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)
    try:
        return demo(console, options)
    except (DemoError, NetcdfError) as error:
        console.print(f"demo: {error}", style="red", markup=False, soft_wrap=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
