#!/usr/bin/env python3
"""Live readers: how late a reader has a value, how fast a frame, and what readers cost the writer. Beside it ADIOS2's SST.

A plain netCDF4 program writes frames under `advectio run`, uncompressed. Readers in Python (`advectio.frames`) are on its
node (they map the stage), on its node over TCP, or in another network namespace over TCP (this takes root and `ip`; what
is made is removed at the end). With ADIOS2's Python package installed (`pip install adios2`) the same arrays go through
its SST engine (data transport WAN, which is TCP) to as many readers.

    latency    from the writer's return (sync; end_step) until a small field is in Python
    first      the same, from the begin of the put
    whole      from the begin of the put until the last reader has the whole frame in arrays of numpy's own memory
    copy       how fast it comes there; all readers together, from the first's small field to the last's end
    look       whole frame summed; in place where the reader sees the stage, else what was copied
    put        the writer in put and sync (put and end_step)
    CPU        seconds for each frame: of the writer in the put; of the server, file included (SST: of the writer after the
               put); of all readers together in a copy, and in a look

By default SST sends all data to one reader, or few, before anybody asks; `whole` is what tells the methods apart then. "on
demand" is the same without that (SpeculativePreloadMode). SST writes no file; Advectio writes one meanwhile. So that no disk is measured, it is made in /dev/shm. Methods are
interleaved. The first two frames of each run are left out. Writer and readers go in step (`--free`: they do not, and the next
put comes while readers read; look at `put` then).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measuring import environment
from readers_programs import MB_WHOLE, frame_bytes
from rich.console import Console
from rich.table import Table

PROGRAMS = Path(__file__).resolve().parent / "readers_programs.py"
SECONDS_MAX = 300.0
WARM_S = 3.0  # until the stage of whole frames is warm, before the first put
LEFT_OUT = 2  # frames of each run: memory is touched for the first time
# The readers' arrays are made of memory that they keep: the first touch of memory would be all there is to see, in a virtual
# machine most of all.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**50), "MALLOC_TOP_PAD_": str(2**26)}


@dataclass(frozen=True)
class Case:
    kind: str  # "netcdf": Advectio; "sst"
    where: str  # "": no reader; "mapped", "loopback", "namespace"
    readers: int
    on_demand: bool = False  # of SST

    @property
    def name(self) -> str:
        method = "Advectio" if self.kind == "netcdf" else "SST on demand" if self.on_demand else "SST"
        return f"{method}{', ' + self.where if self.where else ''}"


CASES = [
    Case("netcdf", "", 0),
    *(Case("netcdf", where, n) for where in ("mapped", "loopback", "namespace") for n in (1, 4)),
    Case("sst", "", 0),
    *(Case("sst", where, n) for where in ("loopback", "namespace") for n in (1, 4)),
    *(Case("sst", where, n, on_demand=True) for where in ("loopback", "namespace") for n in (1, 4)),
]


@dataclass(frozen=True)
class Network:
    """Another network namespace, and a pair of interfaces to it."""

    name: str
    ours: str  # the interface here
    theirs: str
    address: str

    @property
    def enter(self) -> list[str]:
        return ["ip", "netns", "exec", self.name]


@contextlib.contextmanager
def network() -> Iterator[Network | None]:
    """None where it cannot be made."""
    name = f"advb{os.getpid() % 100000}"
    net = f"10.{90 + os.getpid() % 100}.{os.getpid() // 256 % 256}"
    found = Network(name, f"{name}a", f"{name}b", f"{net}.1")
    commands = [
        f"ip netns add {name}",
        f"ip link add {found.ours} type veth peer name {found.theirs} netns {name}",
        f"ip addr add {net}.1/24 dev {found.ours}",
        f"ip link set {found.ours} up",
        f"ip netns exec {name} ip addr add {net}.2/24 dev {found.theirs}",
        f"ip netns exec {name} ip link set {found.theirs} up",
        f"ip netns exec {name} ip link set lo up",
    ]
    if shutil.which("ip") is None or os.geteuid() != 0:
        yield None
        return
    try:
        made = all(subprocess.run(c.split(), capture_output=True, check=False).returncode == 0 for c in commands)
        yield found if made else None
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", found.ours], capture_output=True, check=False)


class Failed(Exception):
    """A run; the text says what its programs said."""


@dataclass
class Run:
    """What the programs of one run have said of its frames, but of the first ones."""

    writer: list[dict[str, Any]]
    readers: list[list[dict[str, Any]]]
    load: float


@dataclass
class Programs:
    directory: Path
    started: list[tuple[subprocess.Popen[bytes], Path]] = field(default_factory=list)

    def start(self, words: list[str], **more: str) -> subprocess.Popen[bytes]:
        said = self.directory / f"said.{len(self.started)}"
        with said.open("wb") as out:
            process = subprocess.Popen(
                words, cwd=self.directory, env=environment() | more, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        self.started.append((process, said))
        return process

    def said(self, number: int) -> str:
        return self.started[number][1].read_text(errors="replace")

    def lines(self, number: int) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.said(number).splitlines() if line.startswith('{"frame"')]

    def must_run(self) -> None:
        for number, (process, _) in enumerate(self.started):
            if process.poll() not in (None, 0):
                raise Failed(f"{' '.join(map(str, process.args))}: exit code {process.returncode}\n{self.said(number)[-2000:]}")  # type: ignore[arg-type]

    def wait(self, until: float) -> None:
        while any(process.poll() is None for process, _ in self.started):
            self.must_run()
            if time.monotonic() > until:
                raise Failed("ran too long\n" + "\n".join(self.said(n)[-500:] for n in range(len(self.started))))
            time.sleep(0.05)
        self.must_run()

    def stop(self) -> None:
        for process, _ in self.started:
            if process.poll() is None:
                process.terminate()
        for process, _ in self.started:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def children(pid: int) -> list[int]:
    out = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            out += [int(word) for word in (task / "children").read_text().split()]
    return out


def server_of(pid: int) -> int:
    """The server below a process."""
    above = [pid]
    for parent in above:
        for child in children(parent):
            if Path(f"/proc/{child}/comm").read_text().startswith("advectiod"):
                return child
            above.append(child)
    raise Failed("there is no server")


def one(case: Case, options: argparse.Namespace, net: Network | None) -> Run:
    """Runs it once."""
    load = os.getloadavg()[0]
    directory = Path(tempfile.mkdtemp(prefix="bench-readers-", dir=options.directory))
    programs = Programs(directory)
    python = [sys.executable, str(PROGRAMS)]
    step = "free" if options.free else "in-step"
    write = [str(n) for n in (options.frames, options.frame_mb, case.readers, options.pause)]
    words = [*python, "write", case.kind, *write, step]
    where, enter, interface, more = "", [], {}, KEEP_MEMORY
    run_dir = directory / "run"
    try:
        if case.kind == "netcdf":
            mib = frame_bytes(options.frame_mb) / 2**20
            host = net.address if case.where == "namespace" and net else "127.0.0.1"
            listen = f"readers: {{listen: ['tcp:{host}:0']}}\n" if case.where in ("loopback", "namespace") else ""
            config = directory / "bench.yaml"
            config.write_text(
                f"stage: {{segment_bytes: {options.segment}, bytes_max: {6 * mib + 256:.0f}MiB, warm_bytes: {options.warm * mib:.0f}MiB}}\n"
                f"datasets: [{{match: '*', codec: none}}]\n{listen}"
            )
            advectio = str(Path(sys.executable).parent / "advectio")
            words = [advectio, "run", "--quiet", "--run-dir", str(run_dir), "--config", str(config), "--", *words]
            where = str(run_dir) if case.where == "mapped" else str(directory / "advectio.contact")
        elif case.where:
            where = net.theirs if case.where == "namespace" and net else "lo"
            interface = {"BENCH_INTERFACE": net.ours if case.where == "namespace" and net else "lo"}
            if case.on_demand:
                interface["BENCH_ON_DEMAND"] = "1"
            more = KEEP_MEMORY | ({"BENCH_ON_DEMAND": "1"} if case.on_demand else {})
        if case.where == "namespace" and net:
            enter = net.enter
        until = time.monotonic() + SECONDS_MAX
        writer = programs.start(words, **interface)
        while '{"begins"' not in programs.said(0):
            programs.must_run()
            if time.monotonic() > until:
                raise Failed("the writer does not begin")
            time.sleep(0.02)
        for reader in range(case.readers):
            numbers = [str(n) for n in (reader, options.frames, options.frame_mb)]
            programs.start([*enter, *python, "read", case.kind, where, *numbers], **more)
        if case.kind == "netcdf":
            time.sleep(0.5 + WARM_S * min(1.0, options.frame_mb / MB_WHOLE))
            (directory / "server~").write_text(str(server_of(writer.pid)))
            (directory / "server~").rename(directory / "server")
        programs.wait(until)
        said = [programs.lines(n)[LEFT_OUT:] for n in range(len(programs.started))]
        return Run(said[0], said[1:], load)
    finally:
        programs.stop()
        shutil.rmtree(directory, ignore_errors=True)


def figures(runs: list[Run], size: int) -> dict[str, Any]:
    """Medians over all frames of all runs."""

    def middle(values: list[float], digits: int = 1) -> float | None:
        return round(statistics.median(values), digits) if values else None

    latency, first, whole = [], [], []
    speed: dict[str, list[float]] = {"copy": [], "look": []}
    reader_cpu: dict[str, list[float]] = {"copy": [], "look": []}
    views = 0
    for run in runs:
        for at, w in enumerate(run.writer):
            theirs = [reader[at] for reader in run.readers]
            if not theirs:
                continue
            latency += [1e3 * (r["first"] - w["ended"]) for r in theirs]
            first += [1e3 * (r["first"] - w["began"]) for r in theirs]
            took = max(r["ended"] for r in theirs) - min(r["first"] for r in theirs)
            way = theirs[0]["way"]
            if way == "copy":
                whole.append(1e3 * (max(r["ended"] for r in theirs) - w["began"]))
            speed[way].append(len(theirs) * size / took / 1e6)
            reader_cpu[way].append(sum(r["read_cpu_s"] for r in theirs))
            views = max(views, *(r["views"] for r in theirs))
    put = [w for run in runs for w in run.writer]
    return {
        "latency_ms": middle(latency),
        "latency_max_ms": round(max(latency), 1) if latency else None,
        "first_ms": middle(first),
        "whole_ms": middle(whole),
        "copy_mb_s": middle(speed["copy"], 0),
        "look_mb_s": middle(speed["look"], 0),
        "put_ms": middle([1e3 * (w["ended"] - w["began"]) for w in put]),
        "put_least_ms": round(min(1e3 * (w["ended"] - w["began"]) for w in put), 1),
        "put_cpu_s": middle([w["put_cpu_s"] for w in put], 3),
        "server_cpu_s": middle([w["server_cpu_s"] + w["later_cpu_s"] for w in put], 3),
        "copy_cpu_s": middle(reader_cpu["copy"], 3),
        "look_cpu_s": middle(reader_cpu["look"], 3),
        "fields_seen_in_place": views,
        "load": middle([run.load for run in runs]),
    }


COLUMNS = {
    "latency_ms": "latency, ms",
    "latency_max_ms": "max",
    "first_ms": "first, ms",
    "whole_ms": "whole, ms",
    "copy_mb_s": "copy, MB/s",
    "look_mb_s": "look, MB/s",
    "put_ms": "put, ms",
    "put_least_ms": "least",
    "put_cpu_s": "CPU: put",
    "server_cpu_s": "server",
    "copy_cpu_s": "copy",
    "look_cpu_s": "look",
    "fields_seen_in_place": "in place",
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0], epilog="Medians. Read the docstring for what is measured."
    )
    parser.add_argument(
        "--frame-mb", type=float, default=MB_WHOLE, metavar="MB", help=f"at most, a frame (default {MB_WHOLE:.0f}: 642)"
    )
    parser.add_argument("--frames", type=int, default=6, help="of each run, more than 3 (default 6)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each method runs (default 3)")
    parser.add_argument("--pause", type=float, default=0.7, metavar="S", help="of the writer behind each frame (default 0.7)")
    parser.add_argument("--free", action="store_true", help="the writer does not wait for readers")
    parser.add_argument("--warm", type=float, default=2.3, metavar="N", help="frames that the stage has room for (default 2.3)")
    parser.add_argument("--segment", default="2MiB", metavar="SIZE", help="stage.segment_bytes (default 2MiB)")
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"), help="where files are made (default /dev/shm)")
    parser.add_argument("--only", metavar="TEXT", help="methods whose name has this in it")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table, with what was said of each frame")
    return parser.parse_args()


def main() -> int:
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started and made is ended and removed
    notes = Console(stderr=True, highlight=False)
    cases = [case for case in CASES if (options.only or "") in case.name]
    runs: dict[Case, list[Run]] = {case: [] for case in cases}
    if importlib.util.find_spec("adios2") is None:
        notes.print("SST is left out: pip install adios2")
        runs = {case: [] for case in runs if case.kind != "sst"}
    good = True
    with network() as net:
        if net is None:
            notes.print("no second namespace: that takes root and ip")
            runs = {case: [] for case in runs if case.where != "namespace"}
        for turn, case in [(turn, case) for turn in range(options.rounds) for case in runs]:
            notes.print(f"{turn + 1} of {options.rounds}: {case.name}, {case.readers} readers", style="dim")
            try:
                runs[case].append(one(case, options, net))
            except (Failed, OSError) as failed:
                notes.print(f"failed: {failed}", style="red")
                good = False
            except (KeyboardInterrupt, SystemExit):
                notes.print("stopped: this is what there is", style="red")
                break
    size = frame_bytes(options.frame_mb)
    found = [
        {"method": case.name, "readers": case.readers, **figures(its, size), "runs": [vars(run) for run in its]}
        for case, its in runs.items()
        if its
    ]
    if options.json:
        print(
            json.dumps({"frame_bytes": size, "in_step": not options.free, "cores": os.cpu_count(), "methods": found}, indent=2)
        )
        return 0 if good else 1
    table = Table(title=f"frames of {size / 1e6:.0f} MB", title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("method", "readers", *COLUMNS.values()):
        table.add_column(heading, justify="left" if heading == "method" else "right", no_wrap=True)
    for row in found:
        cells = ["" if row[key] is None else f"{row[key]:.0f}" if "mb_s" in key else str(row[key]) for key in COLUMNS]
        table.add_row(str(row["method"]), str(row["readers"]), *cells)
    Console(highlight=False, width=max(180, Console().width)).print(table)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
