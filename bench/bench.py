#!/usr/bin/env python3
"""Methods of output against each other: the same model output, written by each in turn, several times over.

Every number printed is measured in this run. Run by `make bench`; `bench.py --help` tells what can be chosen.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measuring import (
    GIB,
    REWARM_SECONDS_MAX,
    WARM_SECONDS_MAX,
    Measured,
    MeasureError,
    WarmMemory,
    environment,
    make_durable,
    measure,
)
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "shows"))

from same import NetcdfError, differences  # noqa: E402

MB = 1e6
RUN_SECONDS_MAX = 600.0


@dataclass(frozen=True)
class Method:
    """A way to write. `replay`: its options; `rule`: what the config says of all datasets, None: not under Advectio;
    `mpi`: options of mpirun; `joined_after`: its tiles are made one file by `advectio join`."""

    name: str
    replay: tuple[str, ...] = ()
    rule: str | None = None
    mpi: tuple[str, ...] = ()
    joined_after: bool = False

    @property
    def joined(self) -> bool:
        """One file is left of the tiles."""
        return self.joined_after or "join: true" in (self.rule or "")

    @property
    def carried(self) -> bool:
        return self.rule is not None

    @property
    def program(self) -> Path:
        """The same program, linked to the one netCDF or the other."""
        name = "replay_netcdf_mpi" if "netcdf4-parallel" in self.replay else "replay"
        return ROOT / "build/release/examples/replay" / name


NO_OUTPUT = Method("no output", ("--io", "none"))
RAW = Method("write() by each rank", ("--io", "raw"))
REFERENCE = Method("serial netCDF-4, shuffle + deflate")
PARALLEL = ("--io", "netcdf4-parallel")
PNETCDF, NONBLOCKING = ("--io", "pnetcdf"), ("--io", "pnetcdf-nonblocking")
# Open MPI has two implementations of MPI-IO.
ROMIO, OMPIO = ("--mca", "io", "romio321"), ("--mca", "io", "ompio")
METHODS = [
    NO_OUTPUT,
    RAW,
    REFERENCE,
    Method("serial netCDF-4", ("--deflate", "none")),
    Method("serial classic", ("--deflate", "none", "--format", "64bit-offset")),
    Method("split netCDF-4, shuffle + deflate", ("--io", "split")),
    Method("split netCDF-4", ("--io", "split", "--deflate", "none")),
    Method("Advectio, deflate (ISA-L)", (), ""),
    Method("Advectio, deflate (libdeflate)", (), "codec: deflate, deflate: libdeflate"),
    Method("Advectio, zstd", (), "codec: zstd"),
    Method("Advectio, lz4", (), "codec: lz4"),
    Method("Advectio, blosc-lz4", (), "codec: blosc-lz4"),
    Method("Advectio, blosc-zstd", (), "codec: blosc-zstd"),
    Method("Advectio, szip", (), "codec: szip"),
    Method("Advectio, uncompressed", (), "codec: none"),
    Method("Advectio, split, deflate (ISA-L)", ("--io", "split"), ""),
    Method("Advectio, split, uncompressed", ("--io", "split"), "codec: none"),
    Method("split, then advectio join", ("--io", "split"), joined_after=True),
    Method("Advectio, tiles joined on the way, deflate (ISA-L)", ("--io", "split"), "join: true"),
    Method("parallel netCDF-4, shuffle + deflate", PARALLEL),
    Method("parallel netCDF-4", (*PARALLEL, "--deflate", "none")),
    Method("Advectio, parallel netCDF-4, deflate (ISA-L)", PARALLEL, ""),
    Method("PnetCDF, collective (romio)", PNETCDF, mpi=ROMIO),
    Method("PnetCDF, collective (ompio)", PNETCDF, mpi=OMPIO),
    Method("PnetCDF, non-blocking (romio)", NONBLOCKING, mpi=ROMIO),
    Method("PnetCDF, non-blocking (ompio)", NONBLOCKING, mpi=OMPIO),
    Method("Advectio, PnetCDF collective, as asked", PNETCDF, ""),
    Method("Advectio, PnetCDF collective, deflate (ISA-L)", PNETCDF, "format: netcdf4, codec: deflate, shuffle: byte"),
    Method("Advectio, PnetCDF non-blocking, as asked", NONBLOCKING, ""),
    Method("Advectio, PnetCDF non-blocking, deflate (ISA-L)", NONBLOCKING, "format: netcdf4, codec: deflate, shuffle: byte"),
]


@dataclass(frozen=True)
class Layout:
    """How many ranks, and where they may run."""

    spare: str
    cores: str  # as taskset names them
    ranks: int

    @property
    def name(self) -> str:
        return f"{self.spare}-{self.ranks}"

    @property
    def said(self) -> str:
        return {"none": "no core to spare", "one": "one core to spare"}[self.spare] + f", {self.ranks} ranks"


@dataclass
class Sample:
    """One run of one method."""

    stalls: list[float]  # a frame: the rank that was longest inside the output library
    outputs: list[float]  # a frame: the same, with gathering
    output_cpu: list[float]  # a frame: the ranks' CPU time in that, all together
    run_s: float  # the model's loop
    durable_s: float  # from the loop's begin until all is fsynced
    readable: list[float]  # a frame: from the begin of its output until the file holds it
    memcpy_s: float
    bytes: int
    cpu_s: float
    memory_peak: int
    stage_peak: int = 0  # most that the stage has held, free segments among it
    waits: int = 0  # of writers, for a segment


@dataclass
class Result:
    method: Method
    samples: list[Sample] = field(default_factory=list)

    def median(self, value: str) -> float:
        return statistics.median(getattr(s, value) for s in self.samples)

    def frames(self, value: str) -> list[float]:
        return [v for s in self.samples for v in getattr(s, value)]


@dataclass
class Bench:
    options: argparse.Namespace
    inputs: list[Path]
    output: Path
    advectio: Path
    warm: WarmMemory
    checked: dict[str, str] = field(default_factory=dict)

    def command(self, method: Method, layout: Layout, frames: int, compute: list[str], directory: Path) -> list[str]:
        words = ["taskset", "-c", layout.cores, "mpirun", "--oversubscribe", "--bind-to", "none"]
        words += [*method.mpi, "-n", str(layout.ranks), str(method.program), "--target-mb", str(self.options.target_mb)]
        words += ["--frames", str(frames), "--frames-per-file", "1", "--report", "report.json", *compute, *method.replay]
        words += [str(path) for path in self.inputs]
        if method.rule is None:
            return words
        config = directory / "advectio.yaml"
        rule = f", {method.rule}" if method.rule else ""
        # All defaults, but for what the options say: measured is what a user gets.
        warm = f"stage: {{warm_bytes: {self.options.warm_mb:.0f}MB}}\n" if self.options.warm_mb is not None else ""
        config.write_text(f"{warm}datasets:\n  - {{match: '*'{rule}}}\n")
        return [str(self.advectio), "run", "--quiet", "--json", "summary.json", "--config", str(config), "--", *words]

    def fresh(self, name: str) -> Path:
        directory = self.output / "runs" / name
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        # What earlier runs have left to write must not fall into this one, nor the memory they have given back.
        os.sync()
        if self.options.warm:
            self.warm.fill(REWARM_SECONDS_MAX)
        return directory

    def calibrate(self, layout: Layout) -> int:
        """The work that takes the ranks --compute seconds where they may run."""
        directory = self.fresh("calibration")
        compute = ["--compute", str(self.options.compute)]
        measure(self.command(NO_OUTPUT, layout, 1, compute, directory), directory, RUN_SECONDS_MAX)
        return max(1, int(json.loads((directory / "report.json").read_text())["compute_work"]))

    def run(self, method: Method, layout: Layout, work: int) -> Sample:
        directory = self.fresh("carried" if method.carried else "plain")
        compute = ["--compute-work", str(work)]
        measured = measure(self.command(method, layout, self.options.frames, compute, directory), directory, RUN_SECONDS_MAX)
        report = json.loads((directory / "report.json").read_text())
        return self.sample(method, directory, report, measured)

    def sample(self, method: Method, directory: Path, report: dict[str, Any], measured: Measured) -> Sample:
        files = [directory / name for name in report["files"]]
        if method.joined:
            files = sorted({path.with_name(re.sub(r"_\d{4}$", "", path.name)) for path in files})
        if method.joined_after:
            words = [str(self.advectio), "join", *(f"{path}_0000" for path in files), "-o", str(directory)]
            subprocess.run(words, check=True, capture_output=True)
        outputs = [frame["output_s"]["max"] for frame in report["frames"]]
        if method.carried:
            summary = json.loads((directory / "summary.json").read_text())
            if summary["errors"] or any(d["frames_durable"] != d["frames_synced"] for d in summary["datasets"]):
                raise MeasureError(f"{method.name}: not everything was written: {summary['errors']}")
            if len(summary["datasets"]) != len(files):
                raise MeasureError(f"{method.name}: {len(summary['datasets'])} of {len(files)} files were carried")
            # `advectio run` returns when all is durable.
            durable_at = measured.ended_at
            visible = [d["to_visible_s"]["median"] for d in summary["datasets"]]
            readable = [statistics.median(outputs) + v for v in visible]
            stage_peak, waits = summary["stage"]["bytes_allocated_peak"], summary["stage"]["waits"]
        else:
            durable_at = make_durable(files)
            stage_peak = waits = 0
            # Of what is joined after the run nothing can be read before.
            readable = [durable_at - report["ended_at"]] * len(outputs) if method.joined_after else outputs
        return Sample(
            stalls=[frame["blocked_s"]["max"] for frame in report["frames"]],
            outputs=outputs,
            output_cpu=[frame["output_cpu_s"] for frame in report["frames"]],
            run_s=report["run_s"],
            durable_s=durable_at - report["started_at"],
            readable=readable,
            memcpy_s=report["memcpy"]["median_s"],
            bytes=sum(path.stat().st_size for path in files),
            cpu_s=measured.cpu_s,
            memory_peak=measured.memory_peak,
            stage_peak=stage_peak,
            waits=waits,
        )

    def check(self, method: Method) -> None:
        """The carried files of the run just made against those of the reference, kept from its own run."""
        kept = self.output / "runs" / "kept"
        if method == REFERENCE:
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(self.output / "runs" / "plain", kept)
        if not method.carried or "split" in method.name or not kept.exists():
            return
        name = max(path.name for path in kept.glob("wrfout*"))
        try:
            found = list(differences(kept / name, self.output / "runs" / "carried" / name))
            # What is written through PnetCDF is a classic file when nothing else is asked for.
            found = [one for one in found if not one.startswith("format: ")]
            self.checked[method.name] = "equal" if not found else f"{len(found)} differences, first: {found[0]}"
        except NetcdfError as error:
            self.checked[method.name] = f"not compared: the system's netCDF cannot read it ({error})"


def find_inputs(output: Path, storm_minutes: int) -> tuple[list[Path], str]:
    """Real output of WRF where it is at hand, else a file of our own."""
    shared = Path(os.environ.get("ADVECTIO_SHARED", ROOT.parent / "shared"))
    storm = sorted((shared / "data" / "wrf471" / "storm141").glob("wrfout_d01_*"))
    if storm:
        return storm, "WRF 4.7.1, a mature storm (141×141×41)"
    squall = ROOT / "build/release/examples/squall/squall"
    made = output / "input"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    words = [
        "mpirun",
        "--oversubscribe",
        "--bind-to",
        "none",
        "-n",
        "2",
        str(squall),
        "--nx",
        "100",
        "--ny",
        "100",
        "--minutes",
        str(storm_minutes),
    ]
    words += ["--history-minutes", str(storm_minutes // 2), "--quiet"]
    subprocess.run(words, cwd=made, env=environment(), check=True, stdout=subprocess.DEVNULL)
    return sorted(made.glob("squall_d01_*"))[1:], "squall's own storm (100×100×40): no output of WRF is at hand"


def seconds(value: float) -> str:
    return f"{value * 1000:.1f} ms" if abs(value) < 0.1 else f"{value:.2f} s"


@dataclass
class Row:
    """What the table tells of a method; seconds are a frame's."""

    name: str
    stall: float
    stall_max: float
    ranks_cpu: float
    net: float
    readable: float
    durable: float
    megabytes: float
    cpu: float
    memory: float
    stage: float
    waits: float


def rows(results: list[Result], frames: int) -> tuple[list[Row], float]:
    """And the time of one memcpy of a frame."""
    base = next(r for r in results if r.method == NO_OUTPUT)
    base_run, base_cpu = base.median("run_s"), base.median("cpu_s")
    memcpy = statistics.median(s.memcpy_s for r in results for s in r.samples if r.method == REFERENCE)
    table = []
    for r in results:
        if r.method == NO_OUTPUT:
            continue
        table.append(
            Row(
                r.method.name,
                statistics.median(r.frames("stalls")),
                max(r.frames("stalls")),
                statistics.median(r.frames("output_cpu")),
                (r.median("run_s") - base_run) / frames,
                statistics.median(r.frames("readable")),
                (r.median("durable_s") - base_run) / frames,
                r.median("bytes") / frames / MB,
                (r.median("cpu_s") - base_cpu) / frames,
                max(s.memory_peak for s in r.samples) / MB,
                max(s.stage_peak for s in r.samples) / MB,
                max(s.waits for s in r.samples),
            )
        )
    return table, memcpy


HEADINGS = [
    "",
    "stall",
    "max",
    "ranks' CPU",
    "net cost",
    "readable",
    "durable",
    "MB",
    "CPU s",
    "memory MB",
    "stage MB",
    "waits",
]


def cells(row: Row) -> list[str]:
    times = [seconds(v) for v in (row.stall, row.stall_max, row.ranks_cpu, row.net, row.readable, row.durable)]
    ours = [f"{row.stage:.0f}", f"{row.waits:.0f}"] if row.stage else ["", ""]
    return [row.name, *times, f"{row.megabytes:.0f}", f"{row.cpu:.2f}", f"{row.memory:.0f}", *ours]


def show(console: Console, table: list[Row], memcpy: float, title: str) -> None:
    shown = Table(title=title, title_justify="left")
    for i, heading in enumerate(HEADINGS):
        shown.add_column(heading, justify="right" if i else "left", no_wrap=True)
    shown.add_row("one memcpy, warm", seconds(memcpy), style="dim")
    for row in table:
        if row.name in (REFERENCE.name, "Advectio, deflate (ISA-L)"):
            shown.add_section()
        shown.add_row(*cells(row))
    console.print(shown)


def goals(table: list[Row], memcpy: float) -> list[tuple[str, float, str, bool]]:
    """What was promised: name, figure, bound, kept."""
    by = {row.name: row for row in table}
    ours, plain = by.get("Advectio, deflate (ISA-L)"), by.get(REFERENCE.name)
    parallel = by.get("Advectio, PnetCDF collective, deflate (ISA-L)")
    parallel4, carried4 = by.get("parallel netCDF-4, shuffle + deflate"), by.get("Advectio, parallel netCDF-4, deflate (ISA-L)")
    pnetcdf = [row for row in table if row.name.startswith("PnetCDF")]
    none, raw = by.get("Advectio, split, uncompressed"), by.get(RAW.name)
    found: list[tuple[str, float, str, bool]] = []
    if ours:
        found.append(("stall / memcpy", ours.stall / memcpy, "≤ 1.3", ours.stall <= 1.3 * memcpy))
    if ours and plain:
        for what, mine, other, least in (
            ("stall", ours.stall, plain.stall, 100),
            ("net cost", ours.net, plain.net, 10),
            ("to durable", ours.durable, plain.durable, 8),
        ):
            ratio = other / mine if mine > 0 else float("inf")
            found.append((f"{what}: deflate by the library / Advectio", ratio, f"≥ {least}", ratio >= least))
        size = ours.megabytes / plain.megabytes
        found.append(("size: Advectio / deflate by the library", size, "≤ 1.05", size <= 1.05))
    if parallel and pnetcdf:
        ratio = min(row.stall for row in pnetcdf) / parallel.stall
        found.append(("stall: the best PnetCDF / Advectio", ratio, "≥ 20", ratio >= 20))
        ratio = min(row.durable for row in pnetcdf) / parallel.durable
        found.append(("to durable: the best PnetCDF, uncompressed / Advectio, compressed", ratio, "≥ 1", ratio >= 1))
    if parallel4 and carried4:
        ratio = parallel4.stall / carried4.stall
        found.append(("stall: parallel netCDF-4 with deflate / Advectio", ratio, "≥ 100", ratio >= 100))
    if none and raw:
        ratio = none.net / raw.net if raw.net > 0 else float("inf")
        found.append(("net cost, uncompressed: Advectio (split) / write() by each rank", ratio, "≤ 1", none.net <= raw.net))
    return found


def markdown(table: list[Row], memcpy: float, title: str) -> str:
    lines = [f"### {title}", "", "| " + " | ".join(HEADINGS) + " |", "|---|" + "---:|" * (len(HEADINGS) - 1)]
    lines.append("| one memcpy, warm | " + seconds(memcpy) + " |" + " |" * (len(HEADINGS) - 2))
    lines += ["| " + " | ".join(cells(row)) + " |" for row in table]
    lines += ["", "| | measured | wanted | |", "|---|---:|---:|---|"]
    lines += [
        f"| {name} | {value:.2f} | {bound} | {'kept' if ok else '**missed**'} |"
        for name, value, bound, ok in goals(table, memcpy)
    ]
    return "\n".join(lines) + "\n"


def plot(table: list[Row], memcpy: float, title: str, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = [
        ("stall", "stall a frame (s)"),
        ("net", "net cost a frame (s)"),
        ("durable", "to durable, a frame (s)"),
        ("megabytes", "MB a frame"),
    ]
    figure, axes = plt.subplots(1, 4, figsize=(16, 0.9 + 0.34 * len(table)), sharey=True, constrained_layout=True)
    names = [row.name for row in table]
    colours = ["#1b6ca8" if n.startswith("Advectio") else "#9a9a9a" if n == RAW.name else "#d1813c" for n in names]
    for axis, (key, label) in zip(axes, panels, strict=True):
        values = [getattr(row, key) for row in table]
        drawn = [max(v, 0.0) for v in values]
        axis.barh(names, drawn, color=colours)
        axis.set_xlabel(label)
        axis.grid(axis="x", alpha=0.3)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
        if key != "megabytes":
            axis.set_xscale("log")
            axis.set_xlim(left=min(memcpy, *(v for v in drawn if v > 0)) / 2, right=max(drawn) * 4)
        else:
            axis.set_xlim(right=max(drawn) * 1.2)
        for i, v in enumerate(values):
            axis.annotate(
                f"{v:.0f}" if key == "megabytes" else seconds(v),
                (max(drawn[i], axis.get_xlim()[0]), i),
                (3, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
    axes[0].axvline(memcpy, color="black", linewidth=1, linestyle="--")
    axes[0].annotate("one memcpy", (memcpy, -0.9), (3, 0), textcoords="offset points", fontsize=8, annotation_clip=False)
    axes[0].invert_yaxis()
    figure.suptitle(title, x=0.01, ha="left")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def machine() -> str:
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return f"{model}, {os.cpu_count()} cores"


def bench(console: Console, options: argparse.Namespace) -> int:
    advectio = ROOT / ".venv/bin/advectio"
    chosen = [m for m in METHODS if m in (NO_OUTPUT, REFERENCE) or any(fnmatch.fnmatch(m.name, p) for p in options.methods)]
    for path in (*{m.program for m in chosen}, advectio):
        if not path.exists():
            raise MeasureError(f"{path} is not there; `make build` makes it")
    output: Path = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    needed = 4 * options.target_mb * 1.5 * MB * options.frames
    if shutil.disk_usage(output).free < needed:
        raise MeasureError(f"the benchmark needs up to {needed / 1e9:.0f} GB of disk in {output}; --target-mb makes it smaller")
    cores = sorted(os.sched_getaffinity(0))
    usable = {"none": cores, "one": cores[:-1]}
    layouts = [
        Layout(spare, ",".join(map(str, usable[spare])), ranks)
        for spare in options.spare
        for ranks in options.ranks
        if usable[spare]
    ]
    inputs, described = find_inputs(output, options.storm_minutes)
    console.print(
        f"Input: {described}, tiled to at least {options.target_mb:.0f} MB a frame; {options.frames} frames, one in a file, from "
        f"{' / '.join(map(str, options.ranks))} ranks, about {options.compute:.1f} s of computing before each; {options.repeat} times, methods interleaved. {machine()}."
    )
    suite = Bench(options, inputs, output, advectio, WarmMemory(output))
    results = {layout.name: [Result(m) for m in chosen] for layout in layouts}
    with console.status("warming memory") as status:
        said = lambda n: status.update(f"warming memory: {n / GIB:.1f} GiB")  # noqa: E731
        warmed = suite.warm.fill(WARM_SECONDS_MAX, said) if options.warm else 0
    measured = output / "samples.jsonl"
    measured.unlink(missing_ok=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(layouts) * options.repeat * len(chosen))
        try:
            for layout in layouts:
                work = suite.calibrate(layout)
                for repetition in range(options.repeat):
                    for result in results[layout.name]:
                        progress.update(task, description=f"{layout.said}, {result.method.name}")
                        sample = suite.run(result.method, layout, work)
                        result.samples.append(sample)
                        with measured.open("a") as lines:
                            print(
                                json.dumps(
                                    {"spare": layout.spare, "ranks": layout.ranks, "method": result.method.name} | vars(sample)
                                ),
                                file=lines,
                            )
                        if repetition == 0 and layout == layouts[0] and options.check:
                            suite.check(result.method)
                        progress.advance(task)
        except KeyboardInterrupt:
            console.print("Interrupted: what follows is what has been measured until now.", style="red")
    for name, found in results.items():
        results[name] = [r for r in found if r.samples]
    layouts = [layout for layout in layouts if {NO_OUTPUT, REFERENCE} <= {r.method for r in results[layout.name]}]
    shutil.rmtree(output / "runs", ignore_errors=True)

    date = time.strftime("%Y-%m-%d")
    report: dict[str, Any] = {
        "date": date,
        "machine": machine(),
        "input": described,
        "options": {k: str(v) if isinstance(v, Path) else v for k, v in vars(options).items()},
        "warmed_bytes": warmed,
        "compared_with_plain": suite.checked,
        "layouts": {},
    }
    texts = []
    for layout in layouts:
        table, memcpy = rows(results[layout.name], options.frames)
        title = f"{layout.said} on {len(layout.cores.split(','))} of {len(cores)} cores"
        show(console, table, memcpy, title)
        for name, value, bound, ok in goals(table, memcpy):
            console.print(
                f"  [{'green' if ok else 'red'}]{'kept' if ok else 'missed'}[/]  {name}: {value:.2f} (wanted {bound})"
            )
        texts.append(markdown(table, memcpy, title))
        plot(table, memcpy, f"{described}, {title}", output / f"bench-{layout.name}.png")
        report["layouts"][layout.name] = {
            "memcpy_s": memcpy,
            "table": [vars(row) for row in table],
            "samples": {r.method.name: [vars(s) for s in r.samples] for r in results[layout.name]},
        }
    wrong = {name: said for name, said in suite.checked.items() if "differences" in said}
    for name, said in suite.checked.items():
        console.print(
            f"  last file of {name} and of plain netCDF: {said}", style="red" if name in wrong else "dim", markup=False
        )
    (output / "result.json").write_text(json.dumps(report, indent=2) + "\n")
    (output / "table.md").write_text("\n".join(texts))
    console.print(f"Table, numbers and plots are in {output}.", soft_wrap=True)
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Methods of output against each other, measured in one run. Each run's numbers are kept in samples.jsonl as they come; "
        "Ctrl-C ends with the table of what there is.",
        epilog="stall: the longest any rank is inside the output library, a frame (gathering is not in it). ranks' CPU: what all ranks "
        "together compute in their output, gathering in it, a frame. net cost: run time added, a "
        "frame. readable: from the begin of a frame's output until the file holds it. durable: time until everything is fsynced, "
        "less the run without output, a frame. CPU s: added, a frame, all processes. memory: peak of all processes' own, and the stage. stage: the most "
        "that the stage has held, what was free in it too. waits: how often a rank has waited for room in it.",
    )
    parser.add_argument("--frames", type=int, default=4, help="output times (default 4)")
    parser.add_argument("--ranks", type=int, nargs="+", default=[4], help="MPI ranks, one or several numbers (default 4)")
    parser.add_argument("--repeat", type=int, default=3, help="how often each method runs (default 3)")
    parser.add_argument("--target-mb", type=float, default=600.0, help="at least so many MB a frame (default 600)")
    parser.add_argument("--compute", type=float, default=2.0, help="seconds of computing before each frame (default 2)")
    parser.add_argument(
        "--methods", nargs="+", default=["*"], metavar="PATTERN", help="which methods (default all), as 'Advectio*'"
    )
    parser.add_argument("--spare", nargs="+", choices=["none", "one"], default=["none", "one"], help="cores left to the server")
    parser.add_argument(
        "--storm-minutes",
        type=int,
        default=60,
        help="age of squall's own storm, where no output of WRF is at hand (default 60)",
    )
    parser.add_argument("--warm-mb", type=float, help="stage.warm_bytes in the config (default: not set)")
    parser.add_argument("--no-check", dest="check", action="store_false", help="do not compare files")
    parser.add_argument("--no-warm", dest="warm", action="store_false", help="do not fill free memory before each run")
    parser.add_argument(
        "--output", type=Path, default=ROOT / "bench-output", help="where everything goes (default bench-output)"
    )
    options = parser.parse_args()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    try:
        return bench(console, options)
    except (MeasureError, subprocess.CalledProcessError) as error:
        console.print(f"bench: {error}", style="red", markup=False, soft_wrap=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
