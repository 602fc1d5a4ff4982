"""``advectio check``: a config held against the machine and the run, before the job is queued."""

import json
import os
import resource
import shutil
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console

from advectio import installation, launching, places, transferring
from advectio.errors import UserError
from advectio.limits import limits_in_the_way
from advectio.quantities import rate_text, size_text
from advectio.reading import read_config, settings
from advectio.summary import counted

_PROBE_BYTES = 128 << 20


@dataclass
class Finding:
    level: str  # ok, warning, error
    what: str
    advice: str = ""


@dataclass(frozen=True)
class Question:
    """What the user says about the run."""

    config: str | None = None
    output: str | None = None
    frame_bytes: int | None = None
    frame_interval_s: float | None = None
    ranks: int | None = None
    nodes: int = 1
    io_nodes: int = 0

    @property
    def ranks_here(self) -> int | None:
        """On the node that has most of them."""
        return None if self.ranks is None else -(-self.ranks // max(self.nodes - self.io_nodes, 1))


@dataclass
class Check:
    question: Question
    findings: list[Finding] = field(default_factory=list)

    def ok(self, what: str) -> None:
        self.findings.append(Finding("ok", what))

    def warning(self, what: str, advice: str) -> None:
        self.findings.append(Finding("warning", what, advice))

    def error(self, what: str, advice: str) -> None:
        self.findings.append(Finding("error", what, advice))

    def run(self) -> list[Finding]:
        installed = self._programs()
        if installed is None:
            return self.findings
        config = places.config_file(self.question.config)
        try:
            raw = read_config(installed.server, config)
        except UserError as error:
            self.error(str(error), "correct the config; `advectio config example` shows every key")
            return self.findings
        self.ok(f"config: {config or 'none, all defaults'}")
        stage = settings(raw, os.getcwd()).stage_directory
        cap = self._stage(raw, stage)
        if cap is not None:
            self._frame(raw, cap)
            self._ranks(raw, cap)
        self._nodes(installed, stage)
        self._limits()
        self._output()
        self._transfers(raw)
        return self.findings

    def _programs(self) -> installation.Installation | None:
        try:
            installed = installation.find()
        except UserError as error:
            self.error(str(error), "install Advectio, or point ADVECTIO_PREFIX at it")
            return None
        # The loader only warns when it cannot preload, and the model then runs without us.
        true = shutil.which("true") or "/bin/true"
        done = subprocess.run(
            [true],
            env=os.environ | {"LD_PRELOAD": installation.preload(installed, None)},
            capture_output=True,
            text=True,
            check=False,
        )
        if "cannot be preloaded" in done.stderr or done.returncode != 0:
            self.error(
                f"{installed.netcdf} cannot be preloaded: {done.stderr.strip()}",
                "a library it needs (netCDF?) is not found; see `ldd` on it",
            )
        else:
            self.ok(f"programs: {installed.server}, {installed.netcdf}")
        return installed

    def _stage(self, raw: dict[str, Any], stage: str) -> int | None:
        """The cap, where there is one to reckon with."""
        if not os.path.isdir(stage):
            self.error(f"stage.directory {stage} is not a directory", "make it, or set stage.directory to one that is there")
            return None
        if not _writable(stage):
            self.error(f"stage.directory {stage} is not writable", "set stage.directory to a place of yours")
            return None
        try:
            places.make_private(places.user_directory(stage))
        except UserError as error:
            self.error(str(error), "remove it, or set stage.directory to a place of yours")
            return None
        here = raw["here"]
        if here.get("stage_error"):
            self.error(here["stage_error"], "free memory there, or set stage.directory to a disk")
            return None
        cap = int(here["stage_bytes_max"])
        space = os.statvfs(stage)
        free, size = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
        self.ok(f"stage: {stage}, {size_text(free)} free of {size_text(size)}; at most {size_text(cap)} will be staged")
        if cap > free:
            self.error(
                f"stage.bytes_max is {size_text(cap)}, but only {size_text(free)} are free in {stage}",
                "make it smaller, free space there, or set stage.directory to a disk",
            )
        if places.filesystem(stage) == "tmpfs" and cap > here["memory_bytes"] // 2:
            self.warning(
                f"the stage may take {size_text(cap)} of {size_text(here['memory_bytes'])} memory on this node",
                "leave the model enough, or set stage.directory to a disk",
            )
        if os.path.realpath(stage) == "/dev/shm" and size < 1 << 30:
            self.warning(
                f"/dev/shm has only {size_text(size)}",
                "in a container give it more (docker run --shm-size=8g), or set stage.directory to a disk",
            )
        self._spill(raw)
        left = [d for d in places.runs() if not _answers(d)]
        if left:
            self.warning(
                f"{len(left)} run directories are left from earlier runs: {', '.join(left[:3])}",
                "`advectio recover DIR` finishes each and frees its space",
            )
        return cap

    def _spill(self, raw: dict[str, Any]) -> None:
        spill = settings(raw, os.getcwd()).spill_directory
        if spill is None:
            return
        if not os.path.isdir(spill) or not _writable(spill):
            self.error(f"stage.spill {spill} is not a directory that can be written in", "make it, or name another one")
            return
        space = os.statvfs(spill)
        self.ok(f"spill: {spill}, {size_text(space.f_bavail * space.f_frsize)} free")
        if places.filesystem(spill) in ("tmpfs", "ramfs"):
            self.warning(f"stage.spill {spill} is memory, which the stage could take as well", "name a directory on a disk")

    def _frame(self, raw: dict[str, Any], cap: int) -> None:
        frame = self.question.frame_bytes
        if frame is None:
            return
        if frame > cap:
            self.error(
                f"a frame of {size_text(frame)} does not fit the stage ({size_text(cap)})",
                f"set stage.bytes_max to {size_text(2 * frame)} or more (room for two frames), or set stage.directory to a disk",
            )
        elif 2 * frame > cap:
            self.warning(
                f"the stage ({size_text(cap)}) holds one frame of {size_text(frame)}, not two",
                "the model will wait when a frame comes before the last one is written; two frames need stage.bytes_max "
                f"{size_text(2 * frame)}",
            )
        else:
            self.ok(f"frame: {size_text(frame)}; the stage holds {cap // frame} of them")
        warm = min(_number(raw, "stage.warm_bytes"), cap)
        if warm < frame <= cap:
            self.warning(
                f"{size_text(warm)} of the stage are touched before the first frame of {size_text(frame)} comes",
                f"the rest costs the model time in that frame: set stage.warm_bytes to {size_text(frame)}",
            )

    def _ranks(self, raw: dict[str, Any], cap: int) -> None:
        ranks = self.question.ranks_here
        if ranks is None:
            return
        segment = _number(raw, "stage.segment_bytes")
        if ranks * segment > cap:
            fitting = max(cap // ranks // 4096 * 4096, 0)
            self.error(
                f"{ranks} writing ranks on this node each hold a segment of {size_text(segment)}: more than the stage ({size_text(cap)})",
                f"set stage.segment_bytes to {fitting >> 20}MiB or less"
                if fitting >= 1 << 20
                else "set stage.bytes_max higher, or stage.directory to a disk",
            )
        else:
            self.ok(f"ranks: {ranks} on this node, {size_text(ranks * segment)} of segments when all of them write")

    def _nodes(self, installed: installation.Installation, stage: str) -> None:
        nodes, io_nodes = self.question.nodes, self.question.io_nodes
        model = nodes - io_nodes
        if model < 1:
            self.error(f"{io_nodes} I/O nodes of {nodes} nodes leave none for the model", "give the nodes of the whole job")
            return
        if nodes == 1:
            return
        if self.question.ranks is not None and self.question.ranks < model:
            self.error(
                f"{self.question.ranks} ranks are fewer than {model} nodes", "give the ranks of the whole job, or fewer nodes"
            )
        alone = "a file that ranks of several nodes write together (PnetCDF, parallel netCDF-4) is left to its library"
        if installed.mpi_server is None:
            self.warning(
                f"{installation.NO_MPI_SERVER}; {alone}",
                "files that one rank writes are carried with `mpirun … advectio exec ./model`",
            )
            return
        try:
            mpirun = launching.launcher()
        except UserError as error:
            self.warning(f"{error}; {alone}", "files that one rank writes are carried with `mpirun … advectio exec ./model`")
            return
        dedicated = f", {io_nodes} of them without ranks of the model" if io_nodes else ""
        self.ok(f"{nodes} nodes: a server on each{dedicated}, {installed.mpi_server}, started by {mpirun}")
        kind = places.shared_filesystem(stage)
        if kind:
            self.error(
                f"stage.directory {stage} is {kind}, the same on all nodes", "set it to a place that each node has for itself"
            )
        frame = self.question.frame_bytes
        if frame:
            away = frame * (nodes - 1) // nodes if io_nodes == 0 else frame
            self.ok(f"network: up to {size_text(away)} of a frame go to the server that writes its file")

    def _transfers(self, raw: dict[str, Any]) -> None:
        """What stage.in and stage.out match now. For what comes of the run there is nothing to see yet."""
        for which in ("in", "out"):
            try:
                wanted = transferring.rules(raw, which, os.getcwd())
            except UserError as error:
                self.error(str(error), "set it, or write the path itself")
                continue
            if not wanted:
                continue
            found = transferring.plan(wanted)
            for name, why in found.failed.items() if which == "in" else ():
                self.error(f"stage.in: {name}: {why}", "the run would not start: correct the pattern, or make the file")
            lacking = transferring.shortage(found)
            if lacking:
                self.error(f"stage.{which}: {lacking}", "free space there, or copy less")
            else:
                self.ok(f"stage.{which}: {counted(len(found.copies), 'file')}, {size_text(found.bytes)}")
            for to in sorted({rule.to for rule in wanted}):
                there = transferring.existing(to)
                if not _writable(there):
                    self.error(f"stage.{which}: {there} is not writable", "choose another directory")

    def _limits(self) -> None:
        for what, advice in limits_in_the_way(self.question.frame_bytes):
            self.warning(what, advice)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 256 + 8 * (self.question.ranks_here or 0)
        if soft == resource.RLIM_INFINITY or soft >= wanted:
            self.ok(f"open files: {'no limit' if soft == resource.RLIM_INFINITY else soft}")
        else:
            can = (
                "" if hard == resource.RLIM_INFINITY or hard >= wanted else " (the hard limit is lower: ask the administrators)"
            )
            self.warning(f"only {soft} open files are allowed; {wanted} may be needed", f"ulimit -n {wanted}{can}")

    def _output(self) -> None:
        output = os.path.abspath(self.question.output or ".")
        if not os.path.isdir(output):
            self.error(f"output directory {output} is not there", "make it before the run")
            return
        if not _writable(output):
            self.error(f"output directory {output} is not writable", "choose another one")
            return
        space = os.statvfs(output)
        free = space.f_bavail * space.f_frsize
        frame = self.question.frame_bytes
        if frame and free < frame:
            self.error(f"only {size_text(free)} are free in {output}, less than one frame", "free space there")
        else:
            many = f", {free // frame} frames as they are put" if frame else ""
            self.ok(f"output: {output}, {size_text(free)} free{many}")
        if not _links(output):
            self.error(
                f"{output} is on a file system without hard links",
                "Advectio keeps a hard link to a file under way; write to another file system, or set capture: false",
            )
        interval = self.question.frame_interval_s
        if frame and interval:
            self._rate(output, frame / interval)

    def _rate(self, output: str, needed: float) -> None:
        """Compression only makes less of it, so a disk that can take the raw bytes can take the run."""
        measured = _write_rate(output)
        if measured is None:
            self.warning(f"the speed of {output} could not be measured", "is there space left?")
        elif measured < needed:
            self.warning(
                f"{output} takes {rate_text(measured)}, and the run makes {rate_text(needed)} uncompressed",
                "unless compression makes up for it the backlog grows until the model waits: choose a codec, or write less often",
            )
        else:
            self.ok(f"rate: the run makes {rate_text(needed)}, {output} takes {rate_text(measured)}")


def _number(raw: dict[str, Any], key: str) -> int:
    return next(int(v["number"]) for v in raw["values"] if v["key"] == key)


def _answers(directory: str) -> bool:
    from advectio.protocol import NoServer, status_of

    try:
        status_of(directory, 2.0)
    except NoServer:
        return False
    return True


def _writable(directory: str) -> bool:
    """Tried, not asked: access() knows nothing of read-only mounts under root, quotas and network file systems."""
    try:
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".advectio-check-"):
            return True
    except OSError:
        return False


def _links(directory: str) -> bool:
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".advectio-check-") as file:
        second = file.name + "-link"
        try:
            os.link(file.name, second)
        except OSError:
            return False
        os.unlink(second)
        return True


def _write_rate(directory: str) -> float | None:
    block = os.urandom(1 << 20)
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            began = time.monotonic()
            for _ in range(_PROBE_BYTES // len(block)):
                file.write(block)
            file.flush()
            os.fdatasync(file.fileno())
            return _PROBE_BYTES / (time.monotonic() - began)
    except OSError:
        return None


def show(findings: list[Finding], as_json: bool) -> int:
    errors = sum(f.level == "error" for f in findings)
    warnings = sum(f.level == "warning" for f in findings)
    if as_json:
        print(json.dumps({"findings": [asdict(f) for f in findings], "errors": errors, "warnings": warnings}, indent=2))
        return 1 if errors else 0
    out = Console(highlight=False, soft_wrap=True)
    marks = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "red")}
    for finding in findings:
        mark, style = marks[finding.level]
        out.print(f"[{style}]{mark}[/] ", end="")
        out.print(finding.what, markup=False)
        if finding.advice:
            out.print(f"  → {finding.advice}", style=style, markup=False)
    if errors or warnings:
        out.print(f"{errors} errors, {warnings} warnings", style="bold red" if errors else "bold yellow")
    else:
        out.print("nothing stands in the way", style="bold green")
    return 1 if errors else 0
