#!/usr/bin/env python3
"""Runs with live readers that join, stall, die, lie and come back, and with servers that are killed, by seed.

    .venv/bin/python tests/faults/reader_runs.py --seed 7                    that case again, with what was said
    .venv/bin/python tests/faults/reader_runs.py --first 1 --runs 200 --jobs 2

A seed gives the program and its files, the config, one to five readers, and when whom SIGKILL or SIGSTOP strikes. The moments
are times, so a seed repeats the case, not the very instruction.

Afterwards:
  * the run has ended with code 0, its files are right, and nothing of it is left behind;
  * each reader that lived has had the frames that its policy promises, with the values of the file;
  * the program has never waited for room in a stage that is large.
What a failed run leaves is kept, and its directory named.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "shows"))

import advectio
import netCDF4
import numpy as np
import seeds
from advectio.errors import UserError
from running import ROOT, descendants, environment, output_files
from seeds import BUILD, COMMAND, Wrong, must

REPLAY = Path(os.environ.get("ADVECTIO_REPLAY", BUILD / "examples" / "replay" / "replay"))
WRITER = ROOT / "tests" / "shows" / "programs" / "live" / "writer.py"
MPI = ("mpirun", "--oversubscribe", "--bind-to", "none", "-n")
SERVERS = ("advectiod", "advectiod_mpi")
ENDS_S = 300.0  # a run that has not ended by then hangs: it computes for less than two seconds, but others may use the machine
READS_ON_S = 300.0  # so long after the run its readers may read files
ALL = 1_000_000
LIVING = ("well", "slow", "late", "back", "holder")  # nobody strikes them


@dataclass(frozen=True)
class Reader:
    kind: str  # of LIVING, or killed, stopped, liar, stranger
    policy: str
    depth: int
    history: int
    group: str | None
    pause_s: float  # between two frames
    begins_s: float  # after the first frame; below 0: before it
    moment_s: float  # after that: when it is struck
    by_contact: bool

    @classmethod
    def of(cls, chance: random.Random, tcp: bool, early: bool, writes_s: float) -> Reader:
        kind = chance.choice(
            ["well"] * 5 + ["slow"] * 2 + ["late"] * 2 + ["back", "holder", "killed", "stopped", "liar", "liar", "stranger"]
        )
        policy = chance.choice(["wait", "wait", "wait", "drop-oldest", "latest"])
        group = chance.choice([None, None, None, "farm"]) if kind != "back" and kind != "holder" else None
        history = chance.choice([0, 0, 3, ALL])
        begins = chance.uniform(0.0, 0.8) * writes_s
        if group:  # its subscription is made by the first of them
            policy, history = "wait", ALL
        return cls(
            kind=kind,
            policy=policy,
            depth=chance.randint(1, 4),
            history=history,
            group=group,
            pause_s=chance.uniform(0.01, 0.12) if kind == "slow" else 0.0,
            begins_s=-1.0 if early and kind != "late" else begins,
            moment_s=chance.uniform(0.0, 0.9) * writes_s,
            by_contact=tcp and chance.random() < 0.6,
        )


@dataclass(frozen=True)
class Case:
    """What one seed stands for."""

    seed: int
    io: str  # python: live/writer.py; else as replay names it
    ranks: int
    joined: bool
    frames: int
    per_file: int
    pause_s: float
    levels: int
    deflate: bool
    format: str
    small_stage: bool
    memory_max: str
    tcp: bool
    readers: tuple[Reader, ...]
    kills_s: tuple[float, ...]  # of the server, after the program has begun to write; negative: so long after it has ended

    @classmethod
    def of(cls, seed: int) -> Case:
        chance = random.Random(f"readers {seed}")
        io = chance.choice(["python"] * 6 + ["serial", "split", "split", "pnetcdf"])
        joined = io == "split" and chance.random() < 0.6
        tcp = chance.random() < 0.25
        frames = chance.randint(6, 24) if io == "python" else chance.randint(4, 10)
        pause = chance.choice([0.0, 0.02, 0.04, 0.06]) if io == "python" else 0.12
        writes_s = frames * (pause + 0.01)
        readers = tuple(Reader.of(chance, tcp, io == "python", writes_s) for _ in range(chance.randint(1, 5)))
        kills = chance.choice([0, 0, 0, 1, 1, 2, 3])
        return cls(
            seed=seed,
            io=io,
            ranks=1 if io in ("python", "serial") else chance.randint(2, 3),
            joined=joined,
            frames=frames,
            per_file=chance.choice([frames, frames, chance.randint(1, frames)]),
            pause_s=pause,
            levels=chance.choice([3, 3, 40, 200]),
            deflate=chance.random() < 0.4,
            format=chance.choice(["NETCDF4"] * 3 + ["NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"]),
            small_stage=chance.random() < 0.3,
            memory_max=chance.choice(["auto", "auto", "1MiB"]),
            tcp=tcp,
            readers=readers,
            kills_s=tuple(
                -chance.uniform(0, 0.1) if chance.random() < 0.25 else chance.uniform(0, writes_s) for _ in range(kills)
            ),
        )

    @property
    def config(self) -> str:
        stage = "{bytes_max: 8MiB, segment_bytes: 1MiB, warm_bytes: 2MiB}" if self.small_stage else "{warm_bytes: 32MiB}"
        readers = [f"memory_max: {self.memory_max}"] if self.memory_max != "auto" else []
        readers += ["listen: ['tcp:127.0.0.1:0']"] if self.tcp else []
        lines = [f"stage: {stage}", f"readers: {{{', '.join(readers)}}}"] if readers else [f"stage: {stage}"]
        lines += ["datasets: [{match: '*', join: true}]"] if self.joined else []
        return "\n".join(lines) + "\n"

    @property
    def is_gentle(self) -> bool:
        return not self.kills_s

    def program(self, made: Path) -> list[str]:
        if self.io == "python":
            words = [sys.executable, WRITER, "out_{}.nc", self.frames, self.pause_s, "--per-file", self.per_file]
            words += ["--levels", self.levels, "--format", self.format, *(["--deflate"] if self.deflate else [])]
        else:
            words = [*MPI, self.ranks] if self.ranks > 1 else []
            words += [REPLAY, "--io", self.io, "--frames", self.frames, "--frames-per-file", self.per_file]
            words += ["--compute", self.pause_s, made]
        return [str(word) for word in words]


# What is in a file: of each record, of each variable, a checksum. A reader says the same of what it gets.

Sums = dict[str, int]


def checksum(values: np.ndarray[Any, Any]) -> int:
    return zlib.crc32(np.ascontiguousarray(values).tobytes())


def records_in(path: Path) -> list[Sums]:
    with netCDF4.Dataset(path) as file:
        file.set_auto_mask(False)
        file.set_auto_chartostring(False)
        lengths = [len(d) for d in file.dimensions.values() if d.isunlimited()]
        out: list[Sums] = [{} for _ in range(lengths[0] if lengths else 1)]
        for name, v in file.variables.items():
            axis = next((i for i, d in enumerate(v.dimensions) if file.dimensions[d].isunlimited()), None)
            values = v[...]
            for k, sums in enumerate(out):
                sums[name] = checksum(values if axis is None else np.take(values, [k], axis=axis))
        return out


def expected_of_python(case: Case, number: int) -> Sums:
    """What live/writer.py puts."""
    time_text = f"2005-08-28_{number // 60:02d}:{number % 60:02d}:00"
    shape = (1, case.levels, 20, 30)
    return {
        "Times": checksum(np.array([list(time_text)], "S1")),
        "T2": checksum(np.full((1, 20, 30), number, "f4")),
        "Q": checksum(number * 1000.0 + np.arange(case.levels * 600.0).reshape(shape)),
        "HGT": checksum(np.arange(600, dtype="i4").reshape(20, 30)),
    }


# Readers. Each is a process of its own, which writes down what it gets.


class Notes:
    """A line for each frame; whole, whenever its writer is killed."""

    def __init__(self, path: Path) -> None:
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def say(self, **what: Any) -> None:
        os.write(self.file, (json.dumps({**what, "at": time.monotonic()}) + "\n").encode())


def read_frames(reader: Reader, run: str, contact: str, notes: Notes, least: int | None, held: list[Any]) -> None:
    """`least`: leaves after so many. `held`: keeps all of them in it."""
    where: dict[str, Any] = {"contact": contact} if reader.by_contact else {"run": run}
    for ds in advectio.frames(
        "*",
        policy=reader.policy,  # type: ignore[arg-type]
        depth=reader.depth,
        history=reader.history,
        group=reader.group,
        decode=False,
        wait=5.0,
        **where,
    ):
        arrays = {str(name): v.values for name, v in ds.variables.items()}
        sums = {name: checksum(values) for name, values in arrays.items()}
        notes.say(file=Path(ds.encoding["source"]).name, number=ds.encoding["advectio_frame"], sums=sums)
        if reader.kind == "holder":
            held.append((ds, arrays, sums))
        del ds, arrays
        if least is not None:
            least -= 1
            if least == 0:
                break
        if reader.pause_s:
            time.sleep(reader.pause_s)


def be_reader(reader: Reader, run: str, contact: str, notes: Notes) -> None:
    held: list[Any] = []
    chance = random.Random(repr(reader))
    if reader.kind == "back":
        read_frames(reader, run, contact, notes, chance.randint(1, 3), held)
        notes.say(left=True)
        gc.collect()
        time.sleep(chance.uniform(0, 0.3))
    read_frames(reader, run, contact, notes, None, held)
    for _, arrays, sums in held:
        if {name: checksum(values) for name, values in arrays.items()} != sums:
            notes.say(error="values that were held have changed")
    notes.say(end=True)


class Wire:
    """Bytes of the protocol, right or wrong."""

    def __init__(self, run: str, timeout_s: float = 2.0) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout_s)
        self.socket.connect(f"{run}/readers")
        self.secret = Path(run, "secret").read_text()
        self.id = 0

    def send(self, do: str, **keys: Any) -> None:
        self.id += 1
        head = json.dumps({"id": self.id, "do": do, **keys}).encode()
        self.socket.sendall(struct.pack("<4sIQ", b"ADVR", len(head), 0) + head)

    def _exactly(self, n: int) -> bytes:
        data = b""
        while len(data) < n:
            part = self.socket.recv(min(n - len(data), 1 << 20))
            if not part:
                raise EOFError
            data += part
        return data

    def take(self) -> dict[str, Any]:
        _, head_bytes, data_bytes = struct.unpack("<4sIQ", self._exactly(16))
        head: dict[str, Any] = json.loads(self._exactly(head_bytes))
        self._exactly(data_bytes)
        return head

    def ask(self, do: str, **keys: Any) -> dict[str, Any]:
        self.send(do, **keys)
        while (answer := self.take())["id"] != self.id:
            pass
        return answer

    def hello(self, name: str) -> None:
        self.ask("hello", protocol=1, secret=self.secret, name=name)


def any_number(chance: random.Random) -> Any:
    return chance.choice([0, 1, 2, 3, 7, 8, 20, 30, 63, 65, 2**31, 2**32, 2**63, 2**64 - 1, -1, 1.5, "x", None, [1], True])


def any_request(chance: random.Random) -> tuple[str, dict[str, Any]]:
    """Well formed, and often nonsense."""

    def some() -> int:
        return chance.choice([0, 1, 2, 3, 4, 5, 9, 2**32 - 1])

    def box() -> list[Any]:
        return [chance.choice([0, 0, 1, 1, 3, 20, 30, 2**63, 2**64 - 1]) for _ in range(chance.randint(0, 5))]

    do = chance.choice(
        ["list", "subscribe", "next", "next", "next", "schema", "read", "read", "map", "map", "done", "status", "dance"]
    )
    keys: dict[str, Any] = {
        "list": lambda: {"match": [chance.choice(["*", "", "[", "/x/*", "a" * 9000])]},
        "subscribe": lambda: {
            "match": [chance.choice(["*", "*", "[a", "\\"])] * chance.choice([1, 1, 64, 65]),
            "policy": chance.choice(["wait", "latest", "drop-oldest", "all"]),
            "depth": chance.choice([0, 1, 3, 2**20, 2**21]),
            "history": chance.choice([0, 5, 2**64 - 1]),
            "group": chance.choice(["", "lies"]),
            **({"after": chance.choice([0, 1, 2**63, 2**64 - 1])} if chance.random() < 0.5 else {}),
        },
        "next": lambda: {"subscription": chance.choice([1, 1, 2, some()]), "wait_ms": chance.choice([0, 5, 1000, 3_600_000])},
        "schema": lambda: {"schema": some()},
        "read": lambda: {"frame": some(), "variable": some(), "start": box(), "count": box(), "stride": box()},
        "map": lambda: {"frame": some(), "variables": [some() for _ in range(chance.randint(0, 6))], "from": some()},
        "done": lambda: {"frame": some()},
        "status": dict,
        "dance": dict,
    }[do]()
    if do == "read" and chance.random() < 0.7:  # of the writer's file
        variable = chance.randint(0, 3)
        rank = (2, 3, 4, 2)[variable]
        keys = {"frame": some(), "variable": variable, "start": [0] * rank, "count": [1] * rank}
        keys["count"][-1] = chance.choice([1, 5, 19, 30, 31])
        if chance.random() < 0.3:
            keys["stride"] = [chance.choice([0, 1, 2, 2**63]) for _ in range(rank)]
    if keys and chance.random() < 0.1:
        keys[chance.choice(list(keys))] = any_number(chance)
    return do, keys


def lie(run: str, chance: random.Random) -> str:
    """One connection's worth of lies."""
    wire = Wire(run)
    how = chance.choice(["noise", "half", "no secret", "wrong secret", "requests", "requests", "requests", "deaf", "silent"])
    if how == "noise":
        wire.socket.sendall(chance.randbytes(chance.randint(1, 5000)))
    elif how == "half":
        wire.socket.sendall((struct.pack("<4sIQ", b"ADVR", chance.choice([40, 2**20]), 0) + b'{"id":')[: chance.randint(1, 22)])
        time.sleep(chance.choice([0.0, 0.2, 60.0]))
    elif how == "no secret":
        wire.send(*["subscribe"], match=["*"])
        wire.take()
    elif how == "wrong secret":
        wire.ask("hello", protocol=1, secret=chance.choice(["", "x", wire.secret[:-1], wire.secret + "0"]), name="liar")
        wire.send("list")
        wire.take()
    elif how == "silent":
        time.sleep(chance.choice([0.1, 60.0]))
    elif how == "deaf":  # asks without end, and never listens
        wire.hello("deaf")
        wire.ask("subscribe", match=["*"], history=ALL)
        wire.socket.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            for _ in range(5000):
                wire.send("next", subscription=1, wait_ms=0)
                wire.send("read", frame=1, variable=2, start=[0, 0, 0, 0], count=[1, 3, 20, 30])
                wire.send("status")
        time.sleep(chance.choice([0.1, 60.0]))
    else:
        wire.hello("liar")
        for _ in range(chance.randint(5, 200)):
            do, keys = any_request(chance)
            wire.send(do, **keys)
            if chance.random() < 0.1:
                time.sleep(0.01)
            if do != "next" or keys.get("wait_ms") == 0:
                with contextlib.suppress(TimeoutError):
                    wire.socket.settimeout(0.02)
                    wire.take()
                wire.socket.settimeout(2.0)
        if chance.random() < 0.3:
            time.sleep(60.0)
    return how


def be_liar(reader: Reader, run: str, notes: Notes) -> None:
    chance = random.Random(repr(reader))
    while True:
        try:
            notes.say(lies=lie(run, chance))
        except (OSError, EOFError, ValueError, struct.error) as error:
            notes.say(lies=repr(error))
            if not os.path.exists(run):
                return
        time.sleep(0.01)


# The run.


@dataclass
class Beside:
    """A reader under way."""

    plan: Reader
    notes: Path
    pid: int = 0
    code: int | None = None
    lines: list[dict[str, Any]] = field(default_factory=list)

    def start(self, run: str, contact: str) -> None:
        pid = os.fork()
        if pid:
            self.pid = pid
            return
        code = 1
        try:
            errors = os.open(self.notes.with_suffix(".err"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(errors, 2)
            notes = Notes(self.notes)
            notes.say(begins=True)
            try:
                if self.plan.kind in ("liar", "stranger"):
                    be_liar(self.plan, run, notes)
                else:
                    be_reader(self.plan, run, contact, notes)
                code = 0
            except UserError as error:
                notes.say(error=str(error))
                traceback.print_exc()
        except BaseException:
            traceback.print_exc()
            with contextlib.suppress(BaseException):
                notes.say(error=traceback.format_exc())
        finally:
            os._exit(code)

    def strike(self, sign: int) -> None:
        if self.pid and self.code is None:
            os.kill(self.pid, sign)

    def has_ended(self) -> bool:
        if self.pid and self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return not self.pid or self.code is not None

    def gather(self) -> None:
        if self.notes.exists():
            self.lines = [json.loads(line) for line in self.notes.read_text().splitlines()]

    @property
    def frames(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if "sums" in line]

    @property
    def errors(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if "error" in line]


@dataclass
class Watched:
    """What is known of a run when it has ended."""

    directory: Path
    run_dir: Path
    code: int = 0
    seconds: float = 0.0
    program_over: float = 0.0
    killed: int = 0
    summary: dict[str, Any] = field(default_factory=dict)

    def said(self) -> str:
        return "".join(f"--- {n}\n{(self.directory / n).read_text(errors='replace')[-4000:]}" for n in ("stdout", "stderr"))


def started(case: Case, path: Path) -> int:
    """Frames that the program has synced."""
    word = "synced" if case.io == "python" else "Timing for Writing"
    return path.read_text(errors="replace").count(word)


def await_subscriptions(run: str, readers: list[Beside], until: float) -> None:
    wire = Wire(run)
    wire.hello("watcher")
    while True:
        names = {r["name"].split()[-1] for r in wire.ask("status")["readers"] if r["subscriptions"]}
        missing = [r for r in readers if str(r.pid) not in names]
        if not missing:
            return
        gone = [r.plan for r in missing if r.has_ended()]
        must(not gone and time.monotonic() < until, f"readers that cannot subscribe: {gone or missing}, there are {names}")
        time.sleep(0.005)


def where_threads_are(pids: list[int]) -> str:
    out = []
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*"):
            with contextlib.suppress(OSError):
                out.append(f"{pid}/{task.name} {(task / 'comm').read_text().strip()} {(task / 'wchan').read_text()}")
    return "\n".join(out)


def carry(
    case: Case,
    directory: Path,
    made: Path,
    readers: list[Beside],
    look: Callable[[subprocess.Popen[bytes]], object] = lambda process: None,
) -> Watched:
    """One run with its readers, to the end of all. `look`: now and then."""
    carried = directory / "carried"
    carried.mkdir()
    run_dir = Path("/dev/shm") / f"advectio-readers-{os.getpid()}-{case.seed}"
    watched = Watched(directory, run_dir)
    (directory / "config.yaml").write_text(case.config)
    summary = directory / "summary.json"
    words = [COMMAND, "run", "--run-dir", run_dir, "--json", summary, "--config", directory / "config.yaml", "--"]
    with open(directory / "stdout", "w") as out, open(directory / "stderr", "w") as err:
        process = subprocess.Popen(
            [*map(str, words), *case.program(made)],
            cwd=carried,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
    began = time.monotonic()
    until = began + ENDS_S
    run, contact = str(run_dir), str(carried / "advectio.contact")
    try:
        needed = Path(contact) if case.tcp else run_dir / "readers"
        while not needed.exists():
            must(process.poll() is None, "the run has ended before it began")
            must(time.monotonic() < until, "no server")
            time.sleep(0.005)
        early = [r for r in readers if r.plan.begins_s < 0]
        for r in early:
            r.start(run, contact)
        await_subscriptions(run, [r for r in early if r.plan.kind not in ("liar", "stranger")], until)
        (carried / "go").touch()
        steer(case, process, readers, watched, run, contact, until, look)
        watched.seconds = time.monotonic() - began
        watched.code = process.returncode
        still = time.monotonic() + READS_ON_S
        for r in readers:
            if r.plan.kind not in LIVING:
                r.strike(signal.SIGKILL)
        while left := [r.plan for r in readers if not r.has_ended()]:
            must(time.monotonic() < still, f"readers that do not end: {left}")
            time.sleep(0.01)
    finally:
        for r in readers:
            if not r.has_ended():
                r.strike(signal.SIGKILL)
                os.waitpid(r.pid, 0)
                r.code = -signal.SIGKILL
            r.gather()
        if process.poll() is None:
            for name in ("replay", *SERVERS):
                for pid in descendants(process.pid, name):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            process.kill()
            process.wait()
    if summary.exists():
        watched.summary = json.loads(summary.read_text())
    return watched


def steer(
    case: Case,
    process: subprocess.Popen[bytes],
    readers: list[Beside],
    watched: Watched,
    run: str,
    contact: str,
    until: float,
    look: Callable[[subprocess.Popen[bytes]], object],
) -> None:
    """Until the run has ended: strikes whom the case names, when it does."""
    stdout = watched.directory / "stdout"
    while started(case, stdout) == 0 and process.poll() is None:
        must(time.monotonic() < until, "no frame was written")
        time.sleep(0.005)
    begins = time.monotonic()
    todo: list[tuple[float, Callable[[], object]]] = []

    def kill_server() -> None:
        for name in SERVERS:
            for pid in descendants(process.pid, name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    watched.killed += 1

    for r in readers:
        if r.plan.begins_s >= 0:
            todo.append((r.plan.begins_s, lambda r=r: r.start(run, contact)))
        if r.plan.kind in ("killed", "stopped"):
            sign = signal.SIGKILL if r.plan.kind == "killed" else signal.SIGSTOP
            todo.append((max(r.plan.begins_s, 0) + r.plan.moment_s, lambda r=r, sign=sign: r.strike(sign)))
    todo += [(moment, kill_server) for moment in case.kills_s if moment >= 0]
    at_end = sorted(-moment for moment in case.kills_s if moment < 0)
    while process.poll() is None:
        now = time.monotonic()
        if not watched.program_over and started(case, stdout) >= case.frames:
            watched.program_over = now
        due = [one for one in todo if one[0] <= now - begins]
        for one in due:
            todo.remove(one)
            one[1]()
        if watched.program_over and at_end and now - watched.program_over >= at_end[0]:
            at_end.pop(0)
            kill_server()
        for r in readers:
            r.has_ended()
        look(process)
        if now > until:
            pids = [pid for name in SERVERS for pid in descendants(process.pid, name)]
            raise Wrong(f"a hang: not over after {ENDS_S:.0f} s\n{where_threads_are(pids)}")
        time.sleep(0.004)
    watched.program_over = watched.program_over or time.monotonic()


# What must be so.


def check_run(case: Case, watched: Watched, plainly: Callable[[], dict[str, list[Sums]]]) -> dict[str, list[Sums]]:
    """Its end and its files; returns what is in these."""
    must(watched.code == 0, f"exit code {watched.code}")
    carried = watched.directory / "carried"
    must(not watched.run_dir.exists(), f"{watched.run_dir} is left behind")
    left = [p.name for p in carried.rglob("*advectio*")]
    must(not left, f"left beside the output: {left}")
    must(not list(Path("/dev/shm").glob(f"*{watched.run_dir.name}*")), "left in /dev/shm")
    bad = [d for d in watched.summary.get("datasets", []) if d["state"] != "finished" or d["error"]]
    must(not bad, f"datasets that are not finished: {bad}")
    if not case.small_stage and case.is_gentle:
        waits = watched.summary["stage"]["waits"]
        must(waits == 0, f"the program has waited {waits} times for room in a large stage")
    files = {name: records_in(carried / name) for name in output_files(carried) if name != "go"}
    if case.io == "python":
        number = 0
        for f in range(-(-case.frames // case.per_file)):
            found = files.get(f"out_{f}.nc", [])
            for k in range(min(case.per_file, case.frames - number)):
                must(k < len(found), f"out_{f}.nc has {len(found)} records")
                wanted = expected_of_python(case, k)
                wrong = [name for name in wanted if found[k].get(name) != wanted[name]]
                must(not wrong, f"out_{f}.nc, record {k}: {wrong} are wrong")
                number += 1
    else:
        wanted_files = plainly()
        if case.joined:  # what is joined has no twin that is written plainly; its frames are counted
            must(sum(len(r) for r in files.values()) == case.frames, f"{ {n: len(r) for n, r in files.items()} }")
        else:
            must(files == wanted_files, f"files differ from those written plainly: {sorted(files)}, {sorted(wanted_files)}")
    return files


Taken = tuple[str, int]


def check_values(who: str, frames: list[dict[str, Any]], files: dict[str, list[Sums]]) -> list[Taken]:
    out = []
    for frame in frames:
        name, k = frame["file"], frame["number"]
        must(name in files and k < len(files[name]), f"{who}: frame {k} of {name}, which is not there")
        wrong = [v for v in files[name][k] if frame["sums"].get(v) != files[name][k][v]]
        must(not wrong, f"{who}: frame {k} of {name}: values of {wrong} are wrong")
        out.append((name, k))
    return out


def check_order(who: str, taken: list[Taken]) -> None:
    last: dict[str, int] = {}
    for name, k in taken:
        must(k > last.get(name, -1), f"{who}: frame {k} of {name} after {last.get(name)}: {taken}")
        last[name] = k


def check_reader(case: Case, r: Beside, files: dict[str, list[Sums]], watched: Watched) -> None:
    """One that lives, and is in no group."""
    who = f"reader {r.notes.stem} ({r.plan.kind}, {r.plan.policy})"
    if not r.pid:
        return  # the run was over before it came
    visits: list[list[dict[str, Any]]] = [[]]
    for line in r.lines:
        if "left" in line:
            visits.append([])
        elif "sums" in line:
            visits[-1].append(line)
    if r.errors:
        comes_then = r.plan.begins_s >= 0 or len(visits) > 1
        late = comes_then and r.errors[0]["at"] >= watched.program_over and not visits[-1]
        must(late, f"{who}: {r.errors[0]['error']}")
        return
    must(r.code == 0, f"{who}: exit code {r.code}")
    everything = {(name, k) for name, records in files.items() for k in range(len(records))}
    # Of a program that writes one file after the other.
    sequence = [(name, k) for name in sorted(files, key=lambda n: (len(n), n)) for k in range(len(files[name]))]
    for visit, frames in enumerate(visits):
        taken = check_values(who, frames, files)
        check_order(who, taken)
        whole = visit == len(visits) - 1
        one_by_one = case.io != "split" or case.joined
        if r.plan.policy == "wait":
            for name in {n for n, _ in taken}:
                ks = [k for n, k in taken if n == name]
                must(ks == list(range(ks[0], ks[0] + len(ks))), f"{who}: frames of {name} are missing: {taken}")
            if one_by_one and taken:
                first = sequence.index(taken[0])
                wanted = sequence[first:] if whole else sequence[first : first + len(taken)]
                must(taken == wanted, f"{who}: {taken} in place of {wanted}")
            if r.plan.history == ALL and whole:
                must(set(taken) == everything, f"{who}: never got {sorted(everything - set(taken))}")
        joined_early = r.plan.begins_s < 0 and r.plan.kind != "back"
        if joined_early and whole:
            if r.plan.policy == "wait":
                must(set(taken) == everything, f"{who}: never got {sorted(everything - set(taken))}")
            elif one_by_one:
                must(taken and taken[-1] == sequence[-1], f"{who}: the last frame is missing: {taken}")


def check_group(case: Case, group: list[Beside], files: dict[str, list[Sums]], watched: Watched) -> None:
    living = [r for r in group if r.plan.kind in LIVING and r.pid]
    taken: Counter[Taken] = Counter()
    for r in group:
        taken.update(check_values(f"reader {r.notes.stem} of a group", r.frames, files))
        if r in living and r.errors:
            late = r.plan.begins_s >= 0 and r.errors[0]["at"] >= watched.program_over and not r.frames
            must(late, f"reader {r.notes.stem} of a group: {r.errors[0]['error']}")
    everything = {(name, k) for name, records in files.items() for k in range(len(records))}
    stays = [r for r in living if r.plan.begins_s < 0 and not r.errors]
    if not stays:
        return
    stopped = any(r.plan.kind == "stopped" for r in group)  # what it holds it keeps to the end
    died = any(r.plan.kind == "killed" for r in group)
    missing = everything - set(taken)
    allowed = (2 if stopped else 0) + (1 if died and watched.killed else 0)
    must(len(missing) <= allowed, f"a group never got {sorted(missing)}: {[r.plan.kind for r in group]}")
    if not died and not watched.killed:
        twice = [frame for frame, n in taken.items() if n > 1]
        must(not twice, f"a group got twice {twice}")


def run(seed: int, scratch: Path, made: Path, verbose: bool = False) -> str:
    """One seed. Raises Wrong, with what differs, and leaves its directory."""
    case = Case.of(seed)
    directory = scratch / f"seed-{seed}"
    directory.mkdir()
    readers = [Beside(plan, directory / f"{k}.notes") for k, plan in enumerate(case.readers)]
    (directory / "case.json").write_text(json.dumps(asdict(case), indent=1))
    if verbose:
        print(case, flush=True)
    watched = None

    def plainly() -> dict[str, list[Sums]]:
        plain = directory / "plain"
        plain.mkdir()
        done = subprocess.run(case.program(made), cwd=plain, env=environment(), capture_output=True, text=True, timeout=120)
        must(done.returncode == 0, f"the program by itself: {done.stderr}")
        return {name: records_in(plain / name) for name in output_files(plain)}

    try:
        watched = carry(case, directory, made, readers)
        files = check_run(case, watched, plainly)
        grouped = [r for r in readers if r.plan.group and r.plan.kind not in ("liar", "stranger")]
        for r in readers:
            if r.plan.kind in LIVING and not r.plan.group:
                check_reader(case, r, files, watched)
            elif r.plan.kind in ("killed", "stopped"):
                check_values(f"reader {r.notes.stem}", r.frames, files)
        if grouped:
            check_group(case, grouped, files, watched)
    except Exception as error:
        outputs = [directory / n for n in ("stdout", "stderr")]
        said = "".join(f"--- {p.name}\n{p.read_text(errors='replace')[-3000:]}" for p in outputs if p.exists())
        what = str(error) if isinstance(error, Wrong) else traceback.format_exc()
        again = f"again: tests/faults/reader_runs.py --seed {seed}; its directory: {directory}"
        raise Wrong(f"seed {seed}: {what}\n{case}\n{again}\n{said}") from error
    finally:
        shutil.rmtree(Path("/dev/shm") / f"advectio-readers-{os.getpid()}-{seed}", ignore_errors=True)
    shutil.rmtree(directory)
    frames = sum(len(r.frames) for r in readers)
    kinds = ",".join(r.plan.kind for r in readers)
    return (
        f"seed {seed}: {watched.seconds:.1f} s, {frames} frames read, server killed {watched.killed} times, {case.io}, {kinds}"
    )


def descriptors_and_memory(pid: int) -> tuple[int, int]:
    anonymous = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    must(anonymous, f"no RssAnon of {pid}")
    return len(os.listdir(f"/proc/{pid}/fd")), int(anonymous[1]) // 1024 if anonymous else 0


def watch(frames: int, directory: Path) -> str:
    """Five readers of many frames: the server must not hold more and more for them. Raises Wrong."""
    plan = Reader("well", "wait", 2, 0, None, 0.0, -1.0, 0.0, False)
    plans = (plan, plan, replace(plan, policy="latest"), replace(plan, group="farm"), replace(plan, group="farm"))
    case = Case(0, "python", 1, False, frames, frames, 0.02, 40, False, "NETCDF4", False, "auto", False, plans, ())
    readers = [Beside(p, directory / f"{k}.notes") for k, p in enumerate(plans)]
    seen: list[tuple[int, int, int]] = []  # frames, descriptors, MB

    def look(process: subprocess.Popen[bytes]) -> None:
        count = started(case, directory / "stdout")
        if (seen and count < seen[-1][0] + frames // 20) or count >= frames:
            return
        for pid in descendants(process.pid, SERVERS[0]):
            with contextlib.suppress(OSError):
                seen.append((count, *descriptors_and_memory(pid)))

    watched = carry(case, directory, directory, readers, look)
    files = check_run(case, watched, dict)
    for r in readers[:3]:
        check_reader(case, r, files, watched)
    check_group(case, readers[3:], files, watched)
    early, late = (max(s[1:] for s in part) for part in (seen[2 : len(seen) // 2], seen[len(seen) // 2 :]))
    said = "frames, descriptors and MB of the server: " + ", ".join(f"{n}: {d}, {mb}" for n, d, mb in seen)
    must(late[0] <= early[0] + 12, f"descriptors grow: {said}")
    must(max(s[2] for s in seen[len(seen) // 2 :]) <= max(s[2] for s in seen[2 : len(seen) // 2]) + 16, f"memory grows: {said}")
    return said


def make_input(directory: Path) -> Path:
    path = directory / "wrfout_d01_made"
    subprocess.run([sys.executable, ROOT / "examples" / "replay" / "make_input.py", path], check=True, env=environment())
    return path


def main() -> int:
    parser = seeds.parser(__doc__)
    parser.add_argument("--watch", type=int, metavar="FRAMES", help="five readers of so many frames: does the server grow?")
    options = parser.parse_args()
    if options.watch:
        with tempfile.TemporaryDirectory(prefix="reader-runs-") as directory:
            print(watch(options.watch, Path(directory)))
        return 0

    def prepare(scratch: Path, verbose: bool) -> Callable[[int], str]:
        made = make_input(scratch)
        return lambda seed: run(seed, scratch, made, verbose)

    return seeds.work_off("reader_runs", options, prepare)


if __name__ == "__main__":
    sys.exit(main())
