"""``advectio check``: a config held against the machine and the run, before the job is queued."""

import json
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypedDict

from advectio import (
    commands,
    installation,
    launching,
    linking,
    nothing,
    places,
    processed,
    rules,
    staging,
    transferring,
    workflow,
)
from advectio.errors import UserError
from advectio.limits import limits_in_the_way
from advectio.protocol import answers
from advectio.quantities import config_size_text, rate_text, size_text
from advectio.reading import read_config, settings
from advectio.summary import counted

_PROBE_BYTES = 128 << 20


@dataclass
class Finding:
    level: str  # ok, warning, error
    what: str
    advice: str = ""


class FindingReport(TypedDict):
    level: str  # ok, warning, error
    what: str
    advice: str  # empty where nothing is to be done


class Report(TypedDict):
    """What `check --json` prints."""

    findings: list[FindingReport]
    errors: int
    warnings: int
    programs: list[linking.ProgramReport]  # of the command that was named


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
    command: Sequence[str] = ()
    like: Sequence[str] = ()

    @property
    def ranks_here(self) -> int | None:
        """On the node that has most of them."""
        return None if self.ranks is None else -(-self.ranks // max(self.nodes - self.io_nodes, 1))


@dataclass
class Check:
    question: Question
    findings: list[Finding] = field(default_factory=list)
    programs: list[linking.Program] = field(default_factory=list)

    def ok(self, what: str) -> None:
        self.findings.append(Finding("ok", what))

    def warning(self, what: str, advice: str) -> None:
        self.findings.append(Finding("warning", what, advice))

    def error(self, what: str, advice: str) -> None:
        self.findings.append(Finding("error", what, advice))

    def run(self) -> list[Finding]:
        installed = self._programs()
        if installed is not None:
            self._surroundings(installed)
            self._command(installed)
        return self.findings

    def _surroundings(self, installed: installation.Installation) -> None:
        config = places.config_file(self.question.config)
        try:
            raw = read_config(installed.server, config)
        except UserError as error:
            self.error(str(error), "correct the config; `advectio config example` shows every key")
            return
        self.ok(f"config: {config or 'none, all defaults'}")
        look_alike = places.look_alike(config)
        if look_alike:
            self.warning(f"{look_alike} is not read", places.NAME_OF_CONFIG)
        self._processed(raw)
        for entry in raw["not_readable"]:
            self.warning(rules.not_readable_sentence(entry), "docs/performance.md has who reads which codec")
        if self.question.like:
            self._like(installed, config)
        stage = settings(raw, os.getcwd()).stage_directory
        cap = self._stage(raw, stage)
        if cap is not None:
            self._frame(raw, cap)
            self._ranks(raw, cap)
        self._nodes(installed, stage)
        self._limits()
        self._output()
        self._transfers(raw)
        self._couple(raw)

    def _couple(self, raw: dict[str, Any]) -> None:
        rules = raw.get("couple", [])
        if not rules:
            return
        value = next((e["value"] for e in raw["values"] if e["key"] == "workflow.name"), "null")
        found = workflow.doubts(raw, None if value == "null" else value.strip('"'))
        for doubt in found:
            self.warning(f"couple: {doubt.what}", doubt.advice)
        if not found:
            names = sorted({n for r in rules for n in (*r["from"], *r["to"])})
            self.ok(f"couple: {counted(len(rules), 'rule')} for {', '.join(names)}")

    def _processed(self, raw: dict[str, Any]) -> None:
        """Outputs with operators. The rules themselves have been read with the config."""
        found = processed.wanted(raw)
        if not found:
            return
        self.ok(f"outputs by operators: {', '.join(output['path'] for output in found)}")

    def _like(self, installed: installation.Installation, config: str | None) -> None:
        """Rules and names of the config, held against files of an earlier run."""
        try:
            held = read_config(installed.server, config, self.question.like)["like"]
        except UserError as error:
            self.error(f"--like: {error}", "name files that an earlier run has written")
            return
        advice = "correct the name; as it is, that part of the config has no effect on such files"
        doubts = rules.names_sentences(held["config_names"], who="none of the files of --like has")
        for rule in held["unmatched_rules"]:
            doubts.append(f'no file of --like matches "{rule["match"]}" ({rule["origin"]})')
        for doubt in doubts:
            self.warning(doubt, advice)
        if not doubts:
            self.ok(f"rules: each fits {counted(len(self.question.like), 'file')} of --like, with all its names")

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

    def _command(self, installed: installation.Installation) -> None:
        """Does what we preload reach the program? The verdict comes last."""
        command = self.question.command
        if not command:
            return
        try:
            commands.find(command[0])
        except UserError as error:
            self.error(str(error), "name the command as `advectio run` will get it")
            return
        dropped = nothing.drops_the_environment(command)
        if dropped and "setuid" not in dropped:
            self.warning(
                f"{dropped}: LD_PRELOAD and ADVECTIO_RUN do not reach the program",
                "pass both on (`advectio env` prints them), or begin the program with `advectio exec`",
            )
        self.programs = linking.programs_behind(command, installed)
        if not self.programs:
            self.error(f"no program is found behind {command[0]}", "name it as it is called there, by its path")
        for program in self.programs:
            self.ok(f"{program.path}: {program.description}")
            self.findings += [Finding("warning", doubt.what, doubt.advice) for doubt in program.doubts]
        judged = [program for program in self.programs if program.kind != "script"]
        for program in judged:
            self.findings.append(Finding(program.level, f"{program.path}: {program.verdict}", program.remedy))
        if self.programs and not judged:
            self.warning(
                f"{self.programs[-1].path}: a script that names no program by a path",
                "look into the program that it starts: advectio check -- PROGRAM",
            )

    def _stage(self, raw: dict[str, Any], stage: str) -> int | None:
        """The cap, where there is one to reckon with."""
        missing = list(staging.directories(raw, stage, settings(raw, os.getcwd()).spill_directory))
        self.findings += [Finding(trouble.level, trouble.what, trouble.advice) for trouble in missing]
        if staging.is_missing(stage):
            return None
        where = staging.named(raw, "stage.directory")
        if not _writable(stage):
            self.error(f"{where} {stage} is not writable", "set stage.directory to a place of yours")
            return None
        try:
            places.make_private(places.user_directory(stage))
        except UserError as error:
            self.error(f"{where} {stage}: {error}", "remove it, or set stage.directory to a place of yours")
            return None
        here = raw["here"]
        if here.get("stage_error"):
            self.error(here["stage_error"], "free memory there, or set stage.directory to a disk")
            return None
        cap = int(here["stage_bytes_max"])
        space = os.statvfs(stage)
        free, size = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
        too_large = list(staging.cap(raw, stage))
        if not any(trouble.level == "error" for trouble in too_large):
            self.ok(
                f"stage: {stage}, {size_text(free)} free of {size_text(size)}; at most {config_size_text(cap)} will be staged"
            )
        self.findings += [Finding(trouble.level, trouble.what, trouble.advice) for trouble in too_large]
        if places.filesystem(stage) == "tmpfs" and here["memory_bytes"] // 2 < cap <= here["memory_bytes"]:
            self.warning(
                f"the stage may take {config_size_text(cap)} of {size_text(here['memory_bytes'])} memory on this node",
                "leave the model enough, or set stage.directory to a disk",
            )
        if os.path.realpath(stage) == "/dev/shm" and size < 1 << 30:
            self.warning(
                f"/dev/shm has only {size_text(size)}",
                "in a container give it more (docker run --shm-size=8g), or set stage.directory to a disk",
            )
        self._spill(raw)
        left = [d for d in places.runs() if not answers(d)]
        if left:
            self.warning(
                f"{'1 run directory is' if len(left) == 1 else f'{len(left)} run directories are'} left from earlier runs: "
                f"{', '.join(left[:3])}",
                "`advectio recover DIR` finishes each and frees its space",
            )
        return cap

    def _spill(self, raw: dict[str, Any]) -> None:
        spill = settings(raw, os.getcwd()).spill_directory
        if spill is None or staging.is_missing(spill):
            return
        where = staging.named(raw, "stage.spill")
        if not _writable(spill):
            self.error(f"{where} {spill} is not writable", "name a directory of yours")
            return
        space = os.statvfs(spill)
        self.ok(f"spill: {spill}, {size_text(space.f_bavail * space.f_frsize)} free")
        if places.filesystem(spill) in ("tmpfs", "ramfs"):
            self.warning(f"{where} {spill} is memory, which the stage could take as well", "name a directory on a disk")

    def _frame(self, raw: dict[str, Any], cap: int) -> None:
        frame = self.question.frame_bytes
        if frame is None:
            return
        if frame > cap:
            self.error(
                f"a frame of {config_size_text(frame)} does not fit the stage ({config_size_text(cap)})",
                f"set stage.bytes_max to {config_size_text(2 * frame)} or more (room for two frames), or set stage.directory to a disk",
            )
        elif 2 * frame > cap:
            self.warning(
                f"the stage ({config_size_text(cap)}) holds one frame of {config_size_text(frame)}, not two",
                "the model will wait when a frame comes before the last one is written; two frames need stage.bytes_max "
                f"{config_size_text(2 * frame)}",
            )
        else:
            self.ok(f"frame: {config_size_text(frame)}; the stage holds {cap // frame} of them")
        warm = min(_number(raw, "stage.warm_bytes"), cap)
        if warm < frame <= cap:
            self.warning(
                f"{config_size_text(warm)} of the stage are touched before the first frame of {config_size_text(frame)} comes",
                f"the rest costs the model time in that frame: set stage.warm_bytes to {config_size_text(frame)}",
            )

    def _ranks(self, raw: dict[str, Any], cap: int) -> None:
        ranks = self.question.ranks_here
        if ranks is None:
            return
        segment = int(raw["here"]["segment_bytes"])
        if ranks * segment > cap:
            self.error(
                f"{ranks} writing ranks on this node each hold a segment of {config_size_text(segment)}: more than the stage "
                f"({config_size_text(cap)})",
                f"set stage.bytes_max to {config_size_text(4 * ranks * segment)} or more, or stage.directory to a disk",
            )
            return
        self.ok(f"ranks: {ranks} on this node, each with a segment of {config_size_text(segment)} under way and one ready")
        self._memory(raw, cap, ranks, segment)

    def _memory(self, raw: dict[str, Any], cap: int, ranks: int, segment: int) -> None:
        """What the node needs beside the model. docs/performance.md has what was measured."""
        frame = self.question.frame_bytes
        if frame is None:
            return
        stage = stage_memory(frame, ranks, segment, min(_number(raw, "stage.warm_bytes"), cap))
        server = SERVER_BYTES + _number(raw, "server.memory_max")
        self.ok(
            f"memory: about {size_text(min(stage, cap))} of stage and up to {size_text(server)} for the server, as long as a "
            f"frame is written before the next one comes; at most {config_size_text(cap)} of stage otherwise"
        )

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


SERVER_BYTES = 60_000_000  # without chunks that are being compressed
_FREE_BYTES = 64 << 20  # of segments that the server keeps free for what comes next


def stage_memory(frame: int, ranks: int, segment: int, warm: int) -> int:
    """Memory of a stage that holds one frame: each rank has a segment under way and one ready."""
    return max(warm, frame + 2 * ranks * segment) + min(warm // 4, _FREE_BYTES)


def _number(raw: dict[str, Any], key: str) -> int:
    return next(int(v["number"]) for v in raw["values"] if v["key"] == key)


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
        linked, itself = os.stat(second), os.stat(file.name)
        os.unlink(second)
        return os.path.samestat(linked, itself) and linked.st_nlink == 2


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


def show(check: Check, as_json: bool) -> int:
    findings = check.run()
    errors = sum(f.level == "error" for f in findings)
    warnings = sum(f.level == "warning" for f in findings)
    if as_json:
        report = {
            "findings": [asdict(f) for f in findings],
            "errors": errors,
            "warnings": warnings,
            "programs": [program.report() for program in check.programs],
        }
        print(json.dumps(report, indent=2))
        return 1 if errors else 0
    from rich.console import Console

    out = Console(highlight=False, soft_wrap=True)
    marks = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "red")}
    for finding in findings:
        mark, style = marks[finding.level]
        out.print(f"[{style}]{mark}[/] ", end="")
        out.print(finding.what, markup=False)
        if finding.advice:
            out.print(f"  → {finding.advice}", style=style, markup=False)
    if errors or warnings:
        out.print(f"{counted(errors, 'error')}, {counted(warnings, 'warning')}", style="bold red" if errors else "bold yellow")
    else:
        out.print("nothing stands in the way", style="bold green")
    return 1 if errors else 0
