#!/usr/bin/env python3
"""Workflows whose programs come late, are killed and are misspelt, by seed.

    .venv/bin/python tests/faults/coupling_runs.py --seed 7                   that case again, with what was said
    .venv/bin/python tests/faults/coupling_runs.py --first 0 --runs 200 --jobs 2

A seed gives one workflow or two of the same names: one to four writers, one to three readers, in one direction or in a cycle;
the rules, the format, the stage, when each program comes, and when whom SIGKILL strikes. The moments are times, so a seed repeats
the case, not the very instruction. Values are functions of file, version, frame and place (coupled_program.cpp).

Afterwards:
  * all has ended, and nothing is left in memory, in the workflow directory, and beside the output;
  * nobody has read a wrong value, half of a version, or an older version after a newer one;
  * a program that needs nobody who was struck has ended well; the error of any other names it and its partner;
  * a file on the disk has the last version whose close returned.
What a failed run leaves is kept, and its directory named.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "shows"))

import seeds
from running import descendants, environment
from seeds import BUILD, COMMAND, Wrong, must

PROGRAM = Path(os.environ.get("ADVECTIO_COUPLED_PROGRAM", BUILD / "tests" / "faults" / "coupled_program"))
MPI = ("mpirun", "--oversubscribe", "--bind-to", "none", "-n")
SERVERS = ("advectiod", "advectiod_mpi")
ENDS_S = 240.0  # a workflow that has not ended by then hangs: it takes some seconds, but others may use the machine
FRAMES = 3
NEVER_CAME = 5  # exit code of the program


@dataclass(frozen=True)
class Strike:
    program: str
    victim: str  # program: the command; all: that, `advectio run` and the server; run: `advectio run`; rank; server
    moment_s: float
    after: str  # came: to the workflow; or spoke: the program's first line


@dataclass(frozen=True)
class Program:
    name: str
    steps: tuple[str, ...]
    delay_s: float
    needs: tuple[str, ...]  # whose files it reads
    io: str = "netcdf"
    ranks: int = 1


@dataclass(frozen=True)
class Case:
    """What one seed stands for."""

    seed: int
    kind: str  # one-way, again: versions without turns; cycle; apart: readers name nobody
    mode: str
    when: str
    keep: str
    format: str
    cells: int
    pause_ms: int
    small_stage: bool
    excluded: bool
    workflows: int
    rules: tuple[str, ...]
    programs: tuple[Program, ...]
    strikes: tuple[Strike, ...]
    last: dict[str, int]  # of each file, its last version

    @classmethod
    def of(cls, seed: int) -> Case:
        chance = random.Random(f"coupling {seed}")
        kind = chance.choice(["one-way", "one-way", "again", "again", "cycle", "cycle", "cycle", "apart"])
        mode = chance.choice(["memory", "memory", "memory", "memory+file", "memory+file", "file"])
        when = chance.choice(["close", "close", "sync"])
        if mode == "file":
            # A file on the disk has one version, or is handed to and fro: who has it open sees it change.
            kind = "one-way" if kind == "again" else kind
            when = "close"
        if kind == "cycle":
            when = "close"  # with sync the other side would begin with the first frame
        io = chance.choice(["netcdf"] * 4 + ["split", "pnetcdf"])
        shape = Shape(chance, kind, mode, io, chance.randint(1, 4), chance.randint(1, 3))
        strikes = [shape.strike() for _ in range(chance.choice([0, 0, 0, 1, 1, 1, 2]))]
        more = f", mode: {mode}, when: {when}"
        workflows = 2 if mode == "memory" and chance.random() < 0.25 else 1
        keep = chance.choice(["workflow", "workflow", "read"])
        return cls(
            seed=seed,
            kind=kind,
            mode=mode,
            when=when,
            keep=keep,
            format="NETCDF3_64BIT_DATA"
            if io == "pnetcdf"
            else chance.choice(["NETCDF4", "NETCDF4", "NETCDF4_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_CLASSIC"]),
            cells=chance.choice([10, 1000, 1000, 100_000, 400_000]),
            pause_ms=shape.pause_ms,
            small_stage=chance.random() < 0.3,
            excluded=workflows == 1 and chance.random() < 0.3,
            workflows=workflows,
            rules=tuple(rule.replace("}\n", f"{more}, keep: {keep}, exclude: [first.nc]}}\n") for rule in shape.rules),
            programs=tuple(shape.programs),
            strikes=tuple(strikes),
            last=shape.last,
        )

    def config(self) -> str:
        stage = "{bytes_max: 8MiB, segment_bytes: 1MiB, warm_bytes: 2MiB}" if self.small_stage else "{warm_bytes: 32MiB}"
        # Who has died ends the waits. Time ends those for names that nobody has, and for who had died
        # and left with all others before the one that waits came.
        patience = "8s" if self.kind == "apart" else "2min"
        return f"stage: {stage}\nworkflow: {{wait_max: {patience}, restart_max: 500ms}}\ncouple:\n{''.join(self.rules)}"

    def program(self, program: Program, tag: int, over: Path) -> list[str]:
        words = [*MPI, str(program.ranks)] if program.ranks > 1 else []
        words += [str(PROGRAM), "--io", program.io, "--format", self.format, "--tag", str(tag)]
        words += ["--cells", str(self.cells), "--frames", str(FRAMES), "--over", str(over)]
        first = ["read first.nc 77"] if self.excluded and program.io == "netcdf" else []
        return words + [word for step in (*first, *program.steps) for word in step.split()]

    def may_fail(self, never_began: set[str]) -> set[str]:
        """Programs that were struck, those that never began, and those that need them."""
        names = {s.program for s in self.strikes if s.victim != "server"} | never_began
        if self.kind == "apart":
            names |= {p.name for p in self.programs if p.needs}  # where time is short, so it is for all who wait
        while True:
            more = {p.name for p in self.programs if set(p.needs) & names} - names
            if not more:
                return names
            names |= more


class Shape:
    """The programs of a workflow, their files and rules."""

    def __init__(self, chance: random.Random, kind: str, mode: str, io: str, writers: int, readers: int) -> None:
        self.chance, self.kind, self.mode = chance, kind, mode
        self.programs: list[Program] = []
        self.rules: list[str] = []
        self.last: dict[str, int] = {}
        self.pause_ms = chance.choice([0, 0, 20, 100])
        self.ranks = chance.randint(2, 3) if io != "netcdf" else 1
        self.io = "pnetcdf" if io == "pnetcdf" else "netcdf"
        self.split = io == "split"
        if self.ranks > 1:
            writers, readers = min(writers, 2), min(readers, 2)
        if kind == "cycle":
            self.cycle(writers, readers)
        else:
            self.one_way(writers, readers)

    def delay_s(self) -> float:
        return self.chance.choice([0.0, 0.0, 0.3, self.chance.uniform(0, 2)])

    def files_of(self, writer: int) -> list[str]:
        return [f"out.{writer}.{rank}.nc" for rank in range(self.ranks)] if self.split else [f"out.{writer}.nc"]

    def name_in_program(self, writer: int) -> str:
        return f"out.{writer}.{{rank}}.nc" if self.split else f"out.{writer}.nc"

    def one_way(self, writers: int, readers: int) -> None:
        chance = self.chance
        versions = chance.randint(2, 6) if self.kind == "again" else 1
        files = [name for w in range(writers) for name in self.files_of(w)]
        for w in range(writers):
            name = self.name_in_program(w)
            steps = []
            for version in range(1, versions + 1):
                # In place by the writer itself: it reads nobody's, and makes the next version of its own.
                in_place = version > 1 and chance.random() < 0.3
                how = f"overwrite {name} {version - 1} {version}" if in_place else f"create {name} {version}"
                steps.append(f"{how} {self.pause_ms}")
                if chance.random() < 0.2:
                    steps.append("sleep 100")
            self.programs.append(Program(f"w{w}", tuple(steps), self.delay_s(), (), self.io, self.ranks))
            self.rules.append(f'  - {{match: "out.{w}.*", from: "w{w}", to: "r*"}}\n')
        self.last = dict.fromkeys(files, versions)
        everybody = ", ".join(f"r{r}" for r in range(readers))
        self.rules = [rule.replace('"r*"', f"[{everybody}]") for rule in self.rules]
        lost = chance.randrange(readers) if self.kind == "apart" else -1
        for r in range(readers):
            order = chance.sample(files, len(files))
            steps = []
            for name in order:
                if chance.random() < 0.3:
                    steps.append(f"sees {name}")
                again = chance.randint(0, 4)
                steps += [f"watch {name} {versions} {chance.choice([0, 5, 30])}"] + [f"read {name} {versions}"] * again
            needs = [f"w{w}" for w in range(writers)]
            if r == lost:
                steps.append("read missing.nc 1")
                needs.append("nobody")
                self.rules.append(f'  - {{match: "missing.nc", from: nobody, to: "r{r}"}}\n')
            together = self.io == "pnetcdf" and chance.random() < 0.6
            io, ranks = ("pnetcdf", chance.randint(1, 3)) if together else ("netcdf", 1)
            self.programs.append(Program(f"r{r}", tuple(steps), self.delay_s(), tuple(needs), io, ranks))

    def cycle(self, members: int, watchers: int) -> None:
        """Forecasts, and a filter that writes its analysis into their files; others look on."""
        chance = self.chance
        cycles = chance.randint(1, 4)
        files = [name for w in range(members) for name in self.files_of(w)]
        together = self.io == "pnetcdf" and chance.random() < 0.6
        names = tuple(f"w{w}" for w in range(members))
        for w in range(members):
            name, steps = self.name_in_program(w), []
            for cycle in range(cycles):
                in_place = cycle > 0 and chance.random() < 0.4
                old, new = 2 * cycle, 2 * cycle + 1
                steps.append(f"overwrite {name} {old} {new} 0" if in_place else f"create {name} {new} {self.pause_ms}")
                steps.append(f"read {name} {new + 1}")
            self.programs.append(Program(f"w{w}", tuple(steps), self.delay_s(), ("filter",), self.io, self.ranks))
        steps = []
        for cycle in range(cycles):
            for name in files:  # who opens a file for writing gets his own version: to wait, he reads it first
                looks = chance.choice(["sees", "read"])
                steps.append({"sees": "sees {name}", "read": "read {name} {old}"}[looks].format(name=name, old=2 * cycle + 1))
                steps.append(f"overwrite {name} {2 * cycle + 1} {2 * cycle + 2} {self.pause_ms // 4}")
        io, ranks = ("pnetcdf", chance.randint(1, 3)) if together else ("netcdf", 1)
        self.programs.append(Program("filter", tuple(steps), self.delay_s(), names, io, ranks))
        for w in range(members):
            self.rules.append(f'  - {{match: "out.{w}.*", from: "w{w}", to: filter}}\n')
            self.rules.append(f'  - {{match: "out.{w}.*", from: filter, to: "w{w}"}}\n')
        self.last = dict.fromkeys(files, 2 * cycles)
        if self.mode == "file":
            return
        if watchers > 1:
            everybody = ", ".join(f"r{r}" for r in range(watchers - 1))
            self.rules.append(f'  - {{match: "out.*", from: ["w*", filter], to: [{everybody}]}}\n')
        for r in range(watchers - 1):
            steps = [f"watch {name} {2 * cycles} {chance.choice([0, 10])}" for name in chance.sample(files, len(files))]
            self.programs.append(Program(f"r{r}", tuple(steps), self.delay_s(), (*names, "filter")))

    def strike(self) -> Strike:
        program = self.chance.choice(self.programs)
        victim = self.chance.choice(["program", "program", "all", "run", "server", "server", "rank"])
        return Strike(program.name, victim, self.chance.uniform(0, 0.8), self.chance.choice(["came", "spoke"]))


@dataclass
class Started:
    """`advectio run` of one program."""

    program: Program
    workflow: int
    directory: Path
    run_dir: Path
    process: subprocess.Popen[bytes] | None = None
    came: float = 0.0
    spoke: float = 0.0
    struck: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.program.name} of workflow {self.workflow}"

    @property
    def over(self) -> Path:
        """Is there when all that it needs have ended."""
        return self.directory / f"{self.program.name}.over"

    def has_ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def text(self, kind: str) -> str:
        path = self.directory / f"{self.program.name}.{kind}"
        return path.read_text(errors="replace") if path.exists() else ""

    def may_have_begun(self) -> list[tuple[str, int]]:
        """Files and versions whose creation a kill may have overtaken before the program could say so."""
        words = [step.split() for step in self.program.steps] if self.struck else []
        versions = [(w[1], int(w[3] if w[0] == "overwrite" else w[2])) for w in words if w[0] in ("create", "overwrite")]
        said = self.text("stdout").splitlines()
        return [(name, version) for name, version in versions if f"begun {name} {version}" not in said][:1]

    def start(self, case: Case, here: Path, config: Path) -> None:
        words = [COMMAND, "run", "--run-dir", self.run_dir, "--config", config, "--workflow", self.directory / "workflow"]
        words += ["--as", self.program.name, "--", *case.program(self.program, self.workflow, self.over)]
        stem = self.directory / self.program.name
        with open(f"{stem}.stdout", "w") as out, open(f"{stem}.stderr", "w") as err:
            self.process = subprocess.Popen(
                [*map(str, words)], cwd=here, env=environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )

    def pids(self, *names: str) -> list[int]:
        return [pid for name in names for pid in descendants(self.process.pid, name)] if self.process else []

    def strike(self, victim: str, chance: random.Random) -> None:
        must(self.process, "a program that has started")
        assert self.process
        programs, servers = self.pids(PROGRAM.name), self.pids(*SERVERS)
        targets = {
            "program": programs,
            "rank": [chance.choice(programs)] if programs else [],
            "server": servers,
            "run": [self.process.pid],
            "all": [self.process.pid, *programs, *servers],
        }[victim]
        if self.process.poll() is None and targets:
            self.struck.append(victim)
        for pid in targets:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def concerned_with(texts: list[str]) -> list[int]:
    """Live processes whose command line or directory has one of them."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            about = (entry / "cmdline").read_bytes().decode(errors="replace") + os.readlink(entry / "cwd")
            if any(text in about for text in texts) and (entry / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                found.append(int(entry.name))
    return found


class Run:
    """One seed, to its end."""

    def __init__(self, case: Case, directory: Path) -> None:
        self.case, self.directory = case, directory
        self.chance = random.Random(f"run {case.seed}")
        self.here = directory / "here"
        self.here.mkdir()
        self.config = directory / "advectio.yaml"
        self.config.write_text(case.config())
        (directory / "case.json").write_text(json.dumps(asdict(case), indent=1))
        self.stem = f"advectio-coupling-{os.getpid()}-{case.seed}"
        self.started: list[Started] = []
        for w in range(case.workflows):
            (directory / f"w{w}").mkdir()
            for program in case.programs:
                run_dir = Path("/dev/shm") / f"{self.stem}-{w}-{program.name}"
                self.started.append(Started(program, w, directory / f"w{w}", run_dir))
        self.memories: dict[int, Path] = {}

    def carry(self) -> None:
        if self.case.excluded:
            words = [str(PROGRAM), "--format", self.case.format, "--cells", str(self.case.cells), "--frames", str(FRAMES)]
            done = subprocess.run(
                [*words, "create", "first.nc", "77", "0"], cwd=self.here, env=environment(), capture_output=True, timeout=60
            )
            must(done.returncode == 0, f"the first analysis: {done.stderr!r}")
        began = time.monotonic()
        todo = list(self.started)
        strikes = [(s, one) for s in self.case.strikes for one in self.started if one.program.name == s.program]
        while todo or any(one.process and one.process.poll() is None for one in self.started):
            now = time.monotonic()
            for one in [one for one in todo if now - began >= one.program.delay_s]:
                todo.remove(one)
                one.start(self.case, self.here, self.config)
            for one in self.started:
                if not one.came and self.has_come(one):
                    one.came = now
                if not one.spoke and one.text("stdout"):
                    one.spoke = now
            for strike, one in list(strikes):
                since = one.came if strike.after == "came" else one.spoke
                if since and now - since >= strike.moment_s:
                    strikes.remove((strike, one))
                    one.strike(strike.victim, self.chance)
            for one in self.started:
                others = [o for o in self.started if o.workflow == one.workflow and o.program.name in one.program.needs]
                if not one.over.exists() and all(o.has_ended() for o in others) and not self.goes_on():
                    one.over.touch()
            self.find_memories()
            if now - began > ENDS_S:
                raise Wrong(f"a hang: {[o.name for o in self.started if o.process and o.process.poll() is None]} still run")
            time.sleep(0.01)
        self.find_memories()
        # Of an `advectio run` that was killed the rest goes on to its end, its program too.
        for one in self.started:
            one.over.touch()
        while left := concerned_with([self.stem, str(self.directory)]):
            must(time.monotonic() - began < ENDS_S, f"processes that do not end: {left}")
            time.sleep(0.02)

    def has_come(self, one: Started) -> bool:
        memory = self.memories.get(one.workflow)
        return memory is not None and bool(list((memory / "members").glob(f"{one.program.name},*")))

    def goes_on(self) -> bool:
        """Something lives on whose `advectio run` was killed."""
        killed = [one for one in self.started if {"run", "all"} & set(one.struck)]
        return bool(killed and concerned_with([str(one.run_dir) for one in killed]))

    def find_memories(self) -> None:
        for w in range(self.case.workflows):
            with contextlib.suppress(OSError, ValueError, KeyError):
                identity = json.loads((self.directory / f"w{w}" / "workflow" / "advectio.workflow").read_text())["id"]
                self.memories[w] = Path(f"/dev/shm/advectio-{os.getuid()}/.workflow-{identity}")

    def call(self, *words: str | Path) -> None:
        done = subprocess.run(
            [*map(str, (COMMAND, *words))], cwd=self.here, env=environment(), capture_output=True, text=True, timeout=ENDS_S
        )
        must(done.returncode == 0, f"{' '.join(map(str, words))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")

    def end(self) -> None:
        """What is over by itself leaves nothing; what was struck is finished by the user."""
        struck = any(one.struck for one in self.started) or self.case.kind == "apart"
        # With sync a reader may have had all frames before the close makes the last version.
        struck = struck or self.case.when == "sync"
        steps: list[Callable[[], None]] = []
        for one in self.started:
            if one.run_dir.exists():
                must({"run", "all"} & set(one.struck), f"{one.run_dir} of {one.name} is left behind")
                if not (one.run_dir / "control").exists():  # killed before there was anything to recover
                    shutil.rmtree(one.run_dir)
                    continue
                steps.append(lambda one=one: self.call("recover", one.run_dir))
        for w in range(self.case.workflows):
            directory = self.directory / f"w{w}" / "workflow"
            if directory.exists() and list(directory.iterdir()):
                must(struck, f"{directory} is left behind")
                steps.append(lambda directory=directory: self.call("status", "--workflow", directory, "--end"))
        self.chance.shuffle(steps)
        for step in steps:
            step()
        left = [p for m in self.memories.values() if m.exists() for p in [m, *m.rglob("*")]]
        must(not left, f"left in memory: {left}")
        left = list(Path("/dev/shm").glob(f"*{self.stem}*"))
        must(not left, f"left in /dev/shm: {left}")
        left = [p for w in range(self.case.workflows) for p in (self.directory / f"w{w}" / "workflow").rglob("*")]
        must(not left, f"left in the workflow directory: {left}")
        left = [p for p in self.here.rglob("*") if "advectio" in p.name]
        must(not left, f"left beside the output: {left}")

    def never_began(self) -> set[str]:
        """Programs whose server was killed before it could serve: `advectio run` refuses to begin."""
        return {
            one.program.name
            for one in self.started
            if "server" in one.struck and "the server ended while starting" in one.text("stderr")
        }

    def check_program(self, one: Started) -> None:
        assert one.process
        code, said = one.process.returncode, one.text("stderr")
        must("WRONG" not in said, f"{one.name}: wrong values: {said}")
        must("terminate called" not in said and "Segmentation" not in said, f"{one.name}: {said}")
        if one.program.name in self.never_began():
            return
        if one.program.name not in self.case.may_fail(self.never_began()):
            must(code == 0, f"{one.name}: exit code {code}, though nothing that it needs was struck")
        if code in (0, NEVER_CAME) or set(one.struck) - {"server"}:
            return
        # Somebody that it waited for is no more: it says so.
        mine = re.findall(rf"advectio: {re.escape(one.program.name)}: wait for (\S+) from (.*?): (.*)", said)
        must(mine, f"{one.name}: exit code {code}, and its error does not name it")
        for path, names, why in mine:
            partners = names.split(" or ")
            must(Path(path).parent == self.here, f"{one.name} waited for {path}")
            named = [p for p in partners if any(fnmatch.fnmatchcase(need, p) for need in one.program.needs)]
            must(named, f"{one.name}: {names} are not its partners {one.program.needs}")
            must("has" in why, f"{one.name}: does not say what is wrong: {why}")

    def check_disk(self) -> None:
        """What was closed is in its file."""
        files = sorted(p.name for p in self.here.iterdir() if p.name != "first.nc")
        if self.case.mode == "memory":
            must(not files, f"on the disk, though in memory alone: {files}")
            return
        latest: dict[str, dict[str, int]] = {"begun": {}, "closed": {}}
        for one in self.started:
            for line in one.text("stdout").splitlines():
                word, *rest = line.split()
                if word in latest:
                    latest[word][rest[0]] = max(latest[word].get(rest[0], 0), int(rest[1]))
            for name, version in one.may_have_begun():
                latest["begun"][name] = max(latest["begun"].get(name, 0), version)
        closed = latest["closed"]
        words = [str(PROGRAM), "--tag", "0", "--cells", str(self.case.cells), "--frames", str(FRAMES)]
        gentle = not self.case.may_fail(self.never_began())
        for name, version in closed.items():
            # Whoever creates a file anew and is killed before its first sync leaves none, as its page says.
            if name not in files and not gentle and latest["begun"].get(name, 0) > version:
                continue
            must(name in files, f"{name} is not on the disk, though version {version} was closed")
            done = subprocess.run(
                [*words, "read", name, "0"], cwd=self.here, env=environment(), capture_output=True, text=True, timeout=60
            )
            must(done.returncode == 0, f"{name} on the disk: {done.stdout}{done.stderr}")
            found, frames = map(int, done.stdout.split()[2:])
            # One that was killed while it made the next has left what it had synced, as without Advectio.
            must(
                found > version or (found == version and frames == FRAMES) or (frames == 0 and not gentle),
                f"{name}: version {found} with {frames} frames on the disk, but {version} was closed",
            )
            if gentle:
                must(found == self.case.last[name], f"{name}: version {found} on the disk at the end")

    def said(self) -> str:
        out = ""
        for one in self.started:
            code = one.process.returncode if one.process else "not started"
            out += f"--- {one.name}, struck {one.struck}, exit code {code}\n"
            out += "".join(f"  {k}| {line}\n" for k in ("stdout", "stderr") for line in one.text(k).splitlines()[-12:])
        return out

    def clean(self) -> None:
        for pid in concerned_with([self.stem, str(self.directory)]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for one in self.started:
            if one.process:
                one.process.kill()
                one.process.wait()
            shutil.rmtree(one.run_dir, ignore_errors=True)
        for memory in self.memories.values():
            shutil.rmtree(memory, ignore_errors=True)


def run(seed: int, scratch: Path, verbose: bool = False) -> str:
    """One seed. Raises Wrong, with what differs, and leaves its directory."""
    case = Case.of(seed)
    directory = scratch / f"seed-{seed}"
    directory.mkdir()
    if verbose:
        print(case, flush=True)
    began = time.monotonic()
    carried = Run(case, directory)
    try:
        carried.carry()
        for one in carried.started:
            carried.check_program(one)
        carried.end()
        carried.check_disk()
    except Exception as error:
        what = str(error) if isinstance(error, Wrong) else traceback.format_exc()
        again = f"again: tests/faults/coupling_runs.py --seed {seed}; its directory: {directory}"
        raise Wrong(f"seed {seed}: {what}\n{case}\n{again}\n{carried.said()}") from error
    finally:
        carried.clean()
    shutil.rmtree(directory)
    struck = [f"{one.program.name}: {victim}" for one in carried.started for victim in one.struck]
    return (
        f"seed {seed}: {time.monotonic() - began:.1f} s, {case.kind}, {case.mode}, {case.when}, "
        f"{case.workflows} × {len(case.programs)} programs, struck {struck}"
    )


def main() -> int:
    options = seeds.parser(__doc__).parse_args()
    return seeds.work_off("coupling_runs", options, lambda scratch, verbose: lambda seed: run(seed, scratch, verbose))


if __name__ == "__main__":
    sys.exit(main())
