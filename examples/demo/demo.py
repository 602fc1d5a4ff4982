#!/usr/bin/env python3
"""The same model output, written plainly and under `advectio run`, side by side.

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "shows"))

from same import NC_GLOBAL, File, NetcdfError, differences  # noqa: E402

GIB = 2**30
MB = 1e6
WARM_SECONDS_MAX = 30.0
MPI_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class DemoError(Exception):
    pass


@dataclass
class Side:
    """One of the two runs."""

    title: str
    directory: Path
    report: dict[str, Any] = field(default_factory=dict)
    output_s: list[float] = field(default_factory=list)  # as the program prints them, for the live table
    state: str = "waiting"
    durable_s: float = 0.0

    @property
    def stalls(self) -> list[float]:
        return [frame["blocked_s"]["max"] for frame in self.report["frames"]]

    @property
    def files(self) -> list[Path]:
        return [self.directory / name for name in self.report["files"]]

    @property
    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self.files)


def environment() -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if k not in ("ADVECTIO_RUN", "ADVECTIO_CONFIG", "LD_PRELOAD")}
    return clean | MPI_ENVIRONMENT


def required(path: Path, target: str) -> Path:
    if not path.exists():
        raise DemoError(f"{path} is not there; `make {target}` makes it")
    return path


def find_inputs(console: Console, output: Path) -> tuple[list[Path], str]:
    """Real output of WRF where it is at hand, else a file of our own."""
    shared = Path(os.environ.get("ADVECTIO_SHARED", ROOT.parent / "shared"))
    storm = sorted((shared / "data" / "wrf471" / "storm141").glob("wrfout_d01_*"))
    if storm:
        return storm, f"real output of WRF 4.7.1, a mature storm ({len(storm)} output times)"
    made = output / "input" / "wrfout_d01_made"
    made.parent.mkdir(exist_ok=True)
    with console.status("no real model output at hand: making a storm"):
        script = ROOT / "examples" / "replay" / "make_input.py"
        subprocess.run([sys.executable, script, made, "--size", "140x140x40"], check=True)
    return [made], "a made-up storm of the project's own (no real output of WRF at hand)"


def memory_info(key: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    return 0


def require_space(output: Path, bytes_needed: float) -> None:
    free = shutil.disk_usage(output).free
    if free < bytes_needed:
        raise DemoError(
            f"the demo needs up to {bytes_needed / 1e9:.1f} GB of disk in {output}, {free / 1e9:.1f} GB are free; "
            "--target-mb or --frames make it smaller"
        )
    memory = memory_info("MemAvailable")
    if memory < bytes_needed / 2:
        raise DemoError(
            f"the demo needs up to {bytes_needed / 2e9:.1f} GB of memory, {memory / 1e9:.1f} GB are available; "
            "--target-mb or --frames make it smaller"
        )


@contextmanager
def warm_memory(console: Console, directory: Path) -> Iterator[float]:
    """Fill free memory with page cache, so that neither run pays for pages which the machine under a virtual machine has
    taken back: the first touch of such a page costs several times a copy into it. Reading a hole does it without disk."""
    hole = directory / ".warm"
    begin, warmed = time.monotonic(), 0
    piece = bytearray(8 * 2**20)
    try:
        with hole.open("wb+", buffering=0) as file, console.status("warming memory") as status:
            # A hole's end is never reached: free memory or time is over before.
            file.truncate(memory_info("MemTotal"))
            while memory_info("MemFree") > 1.5 * GIB and time.monotonic() - begin < WARM_SECONDS_MAX:
                if not file.readinto(piece):
                    break
                warmed += len(piece)
                status.update(f"warming memory: {warmed / GIB:.1f} GiB touched")
        yield warmed
    finally:
        hole.unlink(missing_ok=True)


def live_table(sides: list[Side], frames: int, dates: list[str]) -> Table:
    table = Table(title="seconds the program says it spent writing each frame", title_justify="left")
    table.add_column("frame")
    for side in sides:
        table.add_column(side.title, justify="right")
    for frame in range(frames):
        cells = [f"{side.output_s[frame]:.3f}" if frame < len(side.output_s) else "" for side in sides]
        table.add_row(dates[frame] if frame < len(dates) else str(frame + 1), *cells)
    table.add_section()
    table.add_row("", *(Text(side.state, style="dim") for side in sides))
    return table


def run(side: Side, command: list[str | Path], changed: Callable[[], None]) -> float:
    """Runs to the end; the wall clock when it returned."""
    side.state = "running"
    changed()
    process = subprocess.Popen(
        [os.fspath(word) for word in command],
        cwd=side.directory,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=(side.directory / "stderr.txt").open("w"),
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("Timing for Writing"):
            side.output_s.append(float(line.split(":")[-1].split()[0]))
            changed()
    code = process.wait()
    ended = time.time()
    if code != 0:
        said = (side.directory / "stderr.txt").read_text().strip()
        raise DemoError(f"{side.title}: exit code {code}\n{said}")
    side.report = json.loads((side.directory / "report.json").read_text())
    return ended


def make_durable(paths: list[Path]) -> float:
    """fsync, as a careful program would; the wall clock when all of it had reached the disk."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    return time.time()


def compare(pair: tuple[str, str]) -> tuple[list[str], dict[str, int]]:
    """Differences of two files, and how much was compared."""
    first, second = pair
    found = list(differences(first, second, storage=True))
    with File(first) as file:
        counts = {"variables": file.var_count(), "attributes": len(file.atts(NC_GLOBAL)), "values": 0}
        lengths = [length for _, length, _ in file.dims()]
        for v in range(file.var_count()):
            counts["attributes"] += len(file.atts(v))
            count = 1
            for d in file.var(v)[2]:
                count *= lengths[d]
            counts["values"] += count
    return found, counts


def compare_all(console: Console, plain: Side, carried: Side) -> tuple[list[str], dict[str, int]]:
    found: list[str] = []
    if plain.report["files"] != carried.report["files"]:
        found.append(f"files: {plain.report['files']} / {carried.report['files']}")
    total = {"variables": 0, "attributes": 0, "values": 0}
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


def seconds(value: float) -> str:
    return f"{value * 1000:.1f} ms" if value < 0.1 else f"{value:.2f} s"


def result_table(plain: Side, carried: Side) -> Table:
    memcpy = [side.report["memcpy"]["median_s"] for side in (plain, carried)]
    table = Table(title="measured in this run", title_justify="left")
    table.add_column("")
    for title in (plain.title, carried.title):
        table.add_column(title, justify="right")
    table.add_column("", justify="right")

    def row(name: str, values: tuple[float, float], show: Callable[[float], str], factor: str = "{:.2f} ×") -> None:
        ratio = values[0] / values[1] if values[1] else 0.0
        table.add_row(name, *(show(v) for v in values), factor.format(ratio) if factor else "")

    medians = (statistics.median(plain.stalls), statistics.median(carried.stalls))
    row("stall per frame, median", medians, seconds, "{:.0f} × less")
    row("stall per frame, max", (max(plain.stalls), max(carried.stalls)), seconds, "{:.0f} × less")
    row("one memcpy of a frame, warm", (memcpy[0], memcpy[1]), seconds, "")
    table.add_row("stall / memcpy", *(f"{m / c:.2f}" for m, c in zip(medians, memcpy, strict=True)), "")
    table.add_section()
    row("run time of the model", (plain.report["run_s"], carried.report["run_s"]), seconds)
    row("all files complete and on disk after", (plain.durable_s, carried.durable_s), seconds)
    row("size of the files", (plain.bytes / MB, carried.bytes / MB), lambda v: f"{v:.0f} MB", "")
    return table


def demo(console: Console, options: argparse.Namespace) -> int:
    replay = required(Path(os.environ.get("ADVECTIO_REPLAY", ROOT / "build/release/examples/replay/replay")), "build")
    advectio = required(Path(os.environ.get("ADVECTIO_COMMAND", ROOT / ".venv/bin/advectio")), "build")
    if shutil.which("mpirun") is None:
        raise DemoError("mpirun is not installed")
    output: Path = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    plain, carried = Side("plain netCDF", output / "plain"), Side("under Advectio", output / "advectio")
    for side in (plain, carried):
        shutil.rmtree(side.directory, ignore_errors=True)
        side.directory.mkdir()
    # Before compression, twice over; the tiling overshoots its target by less than half.
    require_space(output, 2 * 1.5 * options.target_mb * MB * options.frames)
    inputs, described = find_inputs(console, output)
    console.print(f"Input: {described}, tiled to at least {options.target_mb:.0f} MB a frame.")
    console.print(
        f"A program that knows nothing of Advectio writes {options.frames} frames from {options.ranks} ranks with WRF's order "
        f"of calls (gathered to one rank, deflate and shuffle as WRF asks for) and computes between them; on "
        f"{os.cpu_count()} cores.\n"
    )
    words: list[str | Path] = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(options.ranks), replay]
    words += ["--target-mb", str(options.target_mb), "--frames", str(options.frames), "--frames-per-file", "2"]
    words += ["--report", "report.json"]

    with warm_memory(console, output) as warmed:
        console.print(f"Memory warmed: {warmed / GIB:.1f} GiB.\n", style="dim")
        with Live(console=console, auto_refresh=False) as live:
            dates: list[str] = []

            def changed() -> None:
                live.update(live_table([plain, carried], options.frames, dates), refresh=True)

            ended = run(plain, [*words, "--compute", str(options.compute), *inputs], changed)
            plain.state = "fsync"
            changed()
            plain.durable_s = make_durable(plain.files) - plain.report["started_at"]
            plain.state = f"on disk after {plain.durable_s:.1f} s"
            dates = [frame["date"] for frame in plain.report["frames"]]
            work = ["--compute-work", str(max(plain.report["compute_work"], 1))]
            summary = carried.directory / "summary.json"
            wrapped = [advectio, "run", "--quiet", "--json", summary, "--", *words, *work, *inputs]
            ended = run(carried, wrapped, changed)
            # `advectio run` returns when everything is durable.
            carried.durable_s = ended - carried.report["started_at"]
            carried.state = f"on disk after {carried.durable_s:.1f} s"
            changed()

    found, compared = compare_all(console, plain, carried)
    console.print()
    console.print(result_table(plain, carried))
    frame_mb = plain.report["frame_bytes"] / MB
    told = json.loads(summary.read_text())
    console.print(
        f"{frame_mb:.0f} MB a frame. Stall: time inside netCDF calls, by the program's own clock. On disk: fsync included, from "
        f"the first step of the model. Peak of staged output {told['stage']['backlog_peak_bytes'] / MB:.0f} MB, of the server's "
        f"buffers {told['server']['memory_peak_bytes'] / MB:.0f} MB.",
        style="dim",
    )
    result = {
        "frame_bytes": plain.report["frame_bytes"],
        "stall_s": {"plain": plain.stalls, "advectio": carried.stalls},
        "memcpy_s": {"plain": plain.report["memcpy"], "advectio": carried.report["memcpy"]},
        "run_s": {"plain": plain.report["run_s"], "advectio": carried.report["run_s"]},
        "durable_s": {"plain": plain.durable_s, "advectio": carried.durable_s},
        "bytes": {"plain": plain.bytes, "advectio": carried.bytes},
        "warmed_bytes": warmed,
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
        f"[bold green]The files are equal[/], bit for bit: {len(plain.files)} files, {compared['variables']} variables, "
        f"{compared['attributes']} attributes, {compared['values'] / 1e6:.0f} million values, and how they are stored."
    )
    console.print(f"Files and numbers are in {output}.", style="dim", soft_wrap=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Model output written plainly and under `advectio run`, side by side.")
    parser.add_argument("--frames", type=int, default=6, help="output times (default 6)")
    parser.add_argument("--ranks", type=int, default=4, help="MPI ranks (default 4)")
    parser.add_argument("--target-mb", type=float, default=300.0, help="at least so many MB a frame (default 300)")
    parser.add_argument("--compute", type=float, default=2.0, help="seconds of computing before each frame (default 2)")
    parser.add_argument("--output", type=Path, default=ROOT / "demo-output", help="where the files go (default demo-output)")
    options = parser.parse_args()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)
    try:
        return demo(console, options)
    except (DemoError, NetcdfError) as error:
        console.print(f"demo: {error}", style="red", markup=False, soft_wrap=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
