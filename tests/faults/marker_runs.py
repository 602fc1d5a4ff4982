#!/usr/bin/env python3
"""Runs whose program makes files and markers, and renames files, with a job outside that copies them as soon as they appear, by seed.

    .venv/bin/python tests/faults/marker_runs.py --seed 7                    that case again, with what was said
    .venv/bin/python tests/faults/marker_runs.py --first 1 --runs 200 --jobs 2

A seed gives the program, its files and markers, how slow or small the disk is, and when whom SIGKILL strikes: the server, the
program, or all of them. The moments are times, so a seed repeats the case, not the very instruction.

The job copies what a marker names, what has been renamed to its final name (by its name, and at IN_MOVED_TO), each file that
was written and closed (IN_CLOSE_WRITE), and each file whose size has stood still for a while. With `appear: complete` it copies
each file that has a name. A name without a byte is a failure, but for `create`. Where root runs this, the job is another user's.

Afterwards:
  * each copy is the finished file, byte for byte, and has the values that the program has put if it had closed it. With `frame`
    and `create` a copy made because the size had not changed may be another: the report counts them;
  * each marker that the program has made is there, with its text, and no hidden name is left.
Where the disk was full, that holds after room was made and `advectio recover`; before it no marker is there whose files are not.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import marker_program
import netCDF4
import numpy as np
import seeds
from running import descendants, environment
from seeds import COMMAND, must

PROGRAM = Path(marker_program.__file__)
ENDS_S = 300.0
MARKERS = ("log.f", ".done", ".ok", ".ready")
NOBODY = 65534
NO_VALUES = ("written ", "named ", "still ")  # copies of files of which the program may not have closed the last


@dataclass(frozen=True)
class Case:
    seed: int
    steps: int
    ranks: int
    deflate: bool
    slow: bool  # the disk
    full: bool
    appear: str
    strikes: tuple[tuple[float, str], ...]  # seconds after the first file; whom

    @classmethod
    def of(cls, seed: int, may_mount: bool) -> Case:
        chance = random.Random(f"markers {seed}")
        steps = chance.randint(2, 8)
        slow = chance.random() < 0.4
        full = may_mount and chance.random() < 0.2
        whom = [chance.choice(["server", "server", "program", "all"]) for _ in range(chance.choice([0, 1, 1, 2]))]
        if full:
            whom = []
        strikes = tuple(sorted((chance.uniform(0, 0.25 * steps), who) for who in whom))
        ranks, deflate = chance.randint(1, 3), chance.random() < 0.5
        appear = chance.choice(["frame", "frame", "complete", "create"])
        return cls(seed, steps, ranks, deflate, slow, full, appear, strikes)

    @property
    def config(self) -> str:
        limit = "server: {drain_max: 2MB}\n" if self.slow else ""
        return f"stage: {{warm_bytes: 16MiB}}\n{limit}datasets: [{{match: '*', appear: {self.appear}}}]\n"


class Watcher:
    """A job outside the run: a process that knows nothing of it. It ends when `over` is there and it has looked once more."""

    CODE = """
import ctypes, json, os, shutil, struct, sys, time
output, copies, appear, user = sys.argv[1:5]
if user != "-":
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))
libc = ctypes.CDLL(None)
told = libc.inotify_init1(os.O_NONBLOCK)
WRITTEN, MOVED_TO = 0x8, 0x80  # IN_CLOSE_WRITE, IN_MOVED_TO
assert libc.inotify_add_watch(told, output.encode(), WRITTEN | MOVED_TO) >= 0
seen = set()
sizes = {}  # of a name: its size, and since when
def copy(kind, name):
    os.makedirs(copies + "/" + kind + " " + name, exist_ok=True)
    shutil.copyfile(output + "/" + name, copies + "/" + kind + " " + name + "/" + name)
def copy_told():
    try:
        said = os.read(told, 1 << 20)
    except BlockingIOError:
        return
    while said:
        _, mask, _, length = struct.unpack_from("iIII", said)
        name = said[16 : 16 + length].rstrip(b"\\0").decode()
        said = said[16 + length :]
        if name.startswith("hist.") and mask & WRITTEN:
            copy("written", name)
        if name.startswith("final.") and name.endswith(".nc") and mask & MOVED_TO:
            copy("moved", name)
def copy_still():
    for name in os.listdir(output):
        if name.startswith(("hist.", "final.")) and name.endswith(".nc"):
            try:
                size = os.path.getsize(output + "/" + name)
            except FileNotFoundError:  # nothing of it was synced: it was removed
                continue
            before, since, copied = sizes.get(name, (-1, 0, False))
            if size != before:
                sizes[name] = (size, time.monotonic(), False)
            elif not copied and time.monotonic() - since > 0.1:
                sizes[name] = (size, since, True)
                copy("still", name)
while True:
    over = os.path.exists(copies + "/over")
    copy_told()
    copy_still()
    for name in sorted(set(os.listdir(output)) - seen):
        if name.startswith("hist."):
            seen.add(name)
            if appear != "create" and os.path.getsize(output + "/" + name) == 0:
                sys.exit(name + " is empty")
            if appear == "complete":
                copy("named", name)
    for name in sorted(set(os.listdir(output)) - seen):
        if name.startswith("final.") and name.endswith(".nc"):
            seen.add(name)
            os.mkdir(copies + "/" + name)
            shutil.copyfile(output + "/" + name, copies + "/" + name + "/" + name)
        if not (name.startswith("log.f") or name.endswith((".done", ".ok", ".ready"))):
            continue
        text = open(output + "/" + name).read()
        if not text.endswith("\\n"):
            continue
        seen.add(name)
        os.mkdir(copies + "/" + name)
        for file in json.loads(text)["files"]:
            shutil.copyfile(output + "/" + file, copies + "/" + name + "/" + file)
    if over:
        break
    time.sleep(0.001)
"""

    def __init__(self, output: Path, copies: Path, appear: str) -> None:
        self.copies = copies
        outside = {k: v for k, v in environment().items() if k != "LD_PRELOAD"}
        user = "-"
        if os.geteuid() == 0 and all(path.stat().st_mode & 0o001 for path in [output, *output.parents]):
            os.chown(copies, NOBODY, NOBODY)
            user = str(NOBODY)
        words = [sys.executable, "-c", self.CODE, str(output), str(copies), appear, user]
        self.process = subprocess.Popen(words, env=outside, stderr=subprocess.PIPE, text=True)

    def end(self) -> None:
        (self.copies / "over").touch()
        _, said = self.process.communicate(timeout=ENDS_S)
        must(self.process.returncode == 0, f"the job outside has failed: {said}")


def made(output: Path) -> list[dict[str, str]]:
    said = output / "said"
    return [json.loads(line) for line in said.read_text().splitlines()] if said.exists() else []


def markers_in(output: Path) -> list[str]:
    return [name for name in os.listdir(output) if name.startswith("log.f") or name.endswith(MARKERS[1:])]


def check_values(case: Case, path: Path) -> None:
    _, rank, step, _ = path.name.split(".")
    frames = marker_program.frames_of(case.seed, int(rank), int(step))
    with netCDF4.Dataset(path) as file:
        must(len(file.dimensions["t"]) == frames, f"{path} has {len(file.dimensions['t'])} frames, not {frames}")
        for frame in range(frames):
            put = marker_program.values(case.seed, int(rank), int(step), frame)
            must(np.array_equal(file["v"][frame], put), f"{path}: frame {frame} is not what was put")


def check(case: Case, output: Path, copies: Path) -> int:
    """Returns the number of copies at a size that stood still that were not the finished file."""
    unfinished = 0
    for one in made(output):
        path = output / one["marker"]
        must(path.exists(), f"{path.name} was made, and is not there")
        must(path.read_text() == one["text"], f"{path.name} has another text")
    left = seeds.left_beside(output, program_was_killed=any(who != "server" for _, who in case.strikes))
    must(not left, f"left: {left}")
    for copy in sorted(copies.glob("*/*.nc")):
        if not copy.parent.name.startswith(NO_VALUES):
            check_values(case, copy)
        finished = output / copy.name
        same = finished.exists() and copy.read_bytes() == finished.read_bytes()
        if case.appear != "complete" and copy.parent.name.startswith("still hist."):
            unfinished += not same
        else:
            must(same, f"{copy} differs from the finished file")
    return unfinished


class Struck(Protocol):
    @property
    def strikes(self) -> tuple[tuple[float, str], ...]: ...


def strike(case: Struck, process: subprocess.Popen[str], run_dir: Path, output: Path, program: Path = PROGRAM) -> bool:
    """True: all were struck."""
    while process.poll() is None and not list(output.glob("*.nc*")):
        time.sleep(0.005)
    began = time.monotonic()
    for at, whom in case.strikes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, began + at - time.monotonic()))
        if process.poll() is not None:
            return False
        mine = {pid: words for pid in descendants(process.pid, None) if (words := words_of(pid))}
        servers = [pid for pid, words in mine.items() if words[0].endswith("advectiod") and str(run_dir) in words]
        programs = [pid for pid, words in mine.items() if str(program) in words]
        ranks = [pid for pid in programs if mine[pid][0] == str(program)]
        hit = (
            [process.pid, *mine]
            if whom == "all"
            else servers
            if whom == "server"
            else ranks[-1:]
            if whom == "rank"
            else programs
        )
        for pid in hit:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if whom == "all":
            return True
    return False


def words_of(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    return []


def run(seed: int, scratch: Path, may_mount: bool) -> str:
    case = Case.of(seed, may_mount)
    place = scratch / str(seed)
    output, copies, run_dir = place / "output", place / "copies", Path(f"/dev/shm/advectio-markers-{os.getpid()}-{seed}")
    for path in (output, copies):
        path.mkdir(parents=True)
    if case.full:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1200k", "tmpfs", output], check=True)
    try:
        said = _run(case, place, output, copies, run_dir)
    finally:
        (copies / "over").touch()  # of a run that has failed
        if case.full:
            subprocess.run(["umount", "-l", output], check=True)
        shutil.rmtree(run_dir, ignore_errors=True)
    shutil.rmtree(place)
    return said


def _run(case: Case, place: Path, output: Path, copies: Path, run_dir: Path) -> str:
    (place / "advectio.yaml").write_text(case.config)
    words = [COMMAND, "run", "-q", "--run-dir", run_dir, "--config", place / "advectio.yaml", "--"]
    words += [sys.executable, PROGRAM, case.seed, case.steps, case.ranks, int(case.deflate)]
    with (place / "said.txt").open("w") as log:
        process = subprocess.Popen([str(w) for w in words], cwd=output, env=environment(), stdout=log, stderr=log, text=True)
        watcher = Watcher(output, copies, case.appear)
        try:
            all_struck = strike(case, process, run_dir, output)
            code = process.wait(ENDS_S)
        finally:
            for pid in descendants(process.pid, None):
                os.kill(pid, signal.SIGKILL)
            process.kill()
    struck = {whom for _, whom in case.strikes} if process.returncode else set()
    text = f"{case}\n{(place / 'said.txt').read_text()}"
    recovered = ""
    if run_dir.exists():
        must(all_struck or case.full or code != 0, f"the run has left its directory\n{text}")
        if case.full:
            must(code != 0, f"exit code {code} with a full disk\n{text}")
            for name in markers_in(output):
                for file in json.loads((output / name).read_text())["files"]:
                    check_values(case, output / file)
            subprocess.run(["mount", "-o", "remount,size=100m", output], check=True)
        left = sorted(str(p.relative_to(run_dir)) for p in run_dir.rglob("*"))
        done = subprocess.run([COMMAND, "recover", run_dir], env=environment(), capture_output=True, text=True, timeout=ENDS_S)
        must(done.returncode == 0, f"recover: {done.returncode}\n{done.stderr}\n{left}\n{text}")
        recovered = ", recovered"
    else:
        must(code == 0 or struck & {"program", "all"}, f"exit code {code}\n{text}")
    watcher.end()
    unfinished = check(case, output, copies)
    copied = len(list(copies.glob("*/*.nc")))
    said = f"{copied} copies, {unfinished} at a size that grew"
    return f"{case.seed}: {len(made(output))} markers, {said}, code {code}{recovered}"


def prepare(scratch: Path, verbose: bool) -> Callable[[int], str]:
    scratch.chmod(0o711)  # for the other user
    return lambda seed: run(seed, scratch, os.geteuid() == 0)


if __name__ == "__main__":
    sys.exit(seeds.work_off("marker_runs", seeds.parser(__doc__ or "").parse_args(), prepare))
