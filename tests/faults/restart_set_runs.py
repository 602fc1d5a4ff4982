#!/usr/bin/env python3
"""Two coupled programs that write restarts and go on from `latest`, the link of their set, each time something was killed, by seed.

    .venv/bin/python tests/faults/restart_set_runs.py --seed 7                    that case again, with what was said
    .venv/bin/python tests/faults/restart_set_runs.py --first 1 --runs 100 --jobs 2

A seed gives how many restarts are written, how many sets are kept, how slow the disk is, and when whom SIGKILL strikes: a program, a
server, all of one program's run, or all of both. What is left is recovered, by chance after a `recover` that was killed, too. Then
both programs go on from what the link names. The moments are times, so a seed repeats the case, not the very instruction.

Somebody outside reads what the link names, all the time: all files are there, whole, of one instant and of one attempt. When a run
and its `recover` are over, the link names an instant that is not older than the newest that both programs had closed.
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
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import restart_set_program
import seeds
from marker_runs import words_of
from restart_set_program import FILES
from running import descendants, environment
from seeds import COMMAND, Wrong, must

PROGRAM = Path(restart_set_program.__file__)
ENDS_S = 300.0
WHOM = ("program", "server", "server", "run", "all", "all")


@dataclass(frozen=True)
class Case:
    seed: int
    last: int  # instant
    keep: int | None
    slow: bool  # the disk
    strikes: tuple[tuple[float, str, str], ...]  # of one attempt each: seconds for each step that is left; whom; which program
    recover_struck: tuple[float | None, ...]

    @classmethod
    def of(cls, seed: int) -> Case:
        chance = random.Random(f"sets {seed}")
        last = chance.randint(4, 10)
        number = chance.choice([0, 1, 2, 2, 3, 4])
        strikes = tuple((chance.uniform(0, 0.07), chance.choice(WHOM), chance.choice(list(FILES))) for _ in range(number))
        struck = tuple(chance.uniform(0.05, 0.5) if chance.random() < 0.25 else None for _ in range(number))
        return cls(seed, last, chance.choice([None, 1, 2, 3]), chance.random() < 0.4, strikes, struck)

    def config(self, member: str) -> str:
        match = ", ".join(f'"{name}_{{instant}}"' for name in FILES[member])
        keep = f", keep: {self.keep}" if self.keep else ""
        limit = "server: {drain_max: 4MB}\n" if self.slow else ""
        sets = f"sets: [{{name: restart, match: [{match}], link: latest, members: [atm, ocn]{keep}}}]\n"
        return f"stage: {{warm_bytes: 16MiB}}\n{limit}{sets}"


def look(case: Case, output: Path) -> int:
    """The instant of what the link names; 0: there is no link. Raises what is wrong with it."""
    try:
        directory = output / os.readlink(output / "latest")
    except FileNotFoundError:
        return 0
    names = sorted(p.relative_to(directory).as_posix() for p in directory.rglob("*") if p.is_file())
    instants = {int(name.rpartition("_")[2]) for name in names}
    wanted = sorted(f"{member}/{name}" for member, files in FILES.items() for name in files)
    must([name.rpartition("_")[0] for name in names] == wanted, f"{directory} has {names}")
    must(len(instants) == 1, f"{directory} has several instants: {names}")
    (instant,) = instants
    attempts = {restart_set_program.check(case.seed, directory / name, instant) for name in names}
    must(len(attempts) == 1, f"{directory} has files of several attempts: {attempts}")
    return instant


class Watcher(threading.Thread):
    """Looks at the link all the time. A set may go while it is read, when the link has left it."""

    def __init__(self, case: Case, output: Path) -> None:
        super().__init__(daemon=True)
        self._case, self._output = case, output
        self._over = threading.Event()
        self.looks = 0
        self.wrong = ""
        self.start()

    def run(self) -> None:
        while not self._over.wait(0.005) and not self.wrong:
            before = self._where()
            try:
                look(self._case, self._output)
                self.looks += 1
            except Exception as error:  # whatever it is, the link must have gone on
                if before == self._where():
                    self.wrong = f"seen outside at {before}: {type(error).__name__}: {error}"

    def _where(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return os.readlink(self._output / "latest")
        return ""

    def stop(self) -> None:
        self._over.set()
        self.join()

    def end(self) -> None:
        self.stop()
        must(not self.wrong, self.wrong)
        must(self.looks > 0, "nobody has looked")


class Attempt:
    """Both programs, each in a run of its own."""

    def __init__(self, case: Case, place: Path, number: int, start: str) -> None:
        self.case, self.place, self.output, self.number = case, place, place / "output", number
        self.runs: dict[str, subprocess.Popen[str]] = {}
        self.directories = {m: Path(f"/dev/shm/advectio-sets-{os.getpid()}-{case.seed}-{m}-{number}") for m in FILES}
        for member in FILES:
            config = place / f"{member}.yaml"
            config.write_text(case.config(member))
            words = [COMMAND, "run", "--run-dir", self.directories[member], "--config", config, "--as", member, "--"]
            words += [sys.executable, PROGRAM, case.seed, member, number, start, case.last]
            with (place / "said.txt").open("a") as log:
                self.runs[member] = subprocess.Popen(
                    [str(w) for w in words], cwd=self.output, env=environment(), stdout=log, stderr=log, text=True
                )

    def pids(self, member: str, whom: str) -> Iterator[int]:
        mine = {pid: words for pid in descendants(self.runs[member].pid, None) if (words := words_of(pid))}
        if whom == "run":
            yield from (self.runs[member].pid, *mine)
        for pid, words in mine.items():
            is_server = words[0].endswith("advectiod") and "config" not in words
            if (whom == "server" and is_server) or (whom == "program" and str(PROGRAM) in words and not is_server):
                yield pid

    def kill(self, member: str, whom: str) -> None:
        for pid in list(self.pids(member, whom)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def strike(self, at: float, whom: str, member: str) -> None:
        until = time.monotonic() + ENDS_S
        steps = [self.output / f"step-{self.number}-{self.first}-{m}" for m in FILES]
        while not all(step.exists() for step in steps) and time.monotonic() < until:
            if any(run.poll() is not None for run in self.runs.values()):
                return
            time.sleep(0.005)
        time.sleep(at * (self.case.last - self.first + 2))
        if whom == "server":
            self.kill(member, "server")
            return
        for other in FILES if whom == "all" else [member]:
            self.kill(other, "program" if whom == "program" else "run")
        for other in FILES:  # which waits for the one that was struck
            self.kill(other, "program")

    first = 1

    def end(self) -> None:
        for member, run in self.runs.items():
            try:
                run.wait(ENDS_S)
            except subprocess.TimeoutExpired:
                raise Wrong(f"{member} does not end") from None

    def recover(self, struck_after: float | None) -> None:
        for member, directory in self.directories.items():
            if struck_after is not None and directory.exists():
                dying = subprocess.Popen(
                    [COMMAND, "recover", directory], env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                with contextlib.suppress(subprocess.TimeoutExpired):
                    dying.wait(struck_after)
                for pid in [dying.pid, *descendants(dying.pid, None)]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                dying.wait()
            if not directory.exists():
                continue
            done = subprocess.run(
                [COMMAND, "recover", directory], env=environment(), capture_output=True, text=True, timeout=ENDS_S
            )
            with (self.place / "said.txt").open("a") as log:
                log.write(done.stderr)
            must(done.returncode == 0 and not directory.exists(), f"recover of {member}: {done.returncode}\n{done.stderr}")

    def stop(self) -> None:
        for member in self.runs:
            self.kill(member, "run")
        for directory in self.directories.values():
            shutil.rmtree(directory, ignore_errors=True)


def closed_by_all(output: Path, attempt: int) -> int:
    """The newest instant of the attempt that both programs had closed."""
    said = output / "said"
    lines = [json.loads(line) for line in said.read_text().splitlines()] if said.exists() else []
    newest = [max((x["instant"] for x in lines if x["attempt"] == attempt and x["member"] == m), default=0) for m in FILES]
    return min(newest)


def run(seed: int, scratch: Path) -> str:
    case = Case.of(seed)
    place = scratch / str(seed)
    (place / "output").mkdir(parents=True)
    watcher = Watcher(case, place / "output")
    try:
        told = _run(case, place, place / "output")
        watcher.end()
        check_end(case, place / "output")
    except (Wrong, restart_set_program.NotWhole) as error:
        watcher.stop()
        raise Wrong(f"{case}\n{error}\n{(place / 'said.txt').read_text()}") from error
    shutil.rmtree(place)
    return f"{seed}: {told}, {watcher.looks} looks"


def _run(case: Case, place: Path, output: Path) -> str:
    began_at = []
    for number, strike in enumerate([*case.strikes, None]):
        link = output / "latest"
        start = os.path.realpath(link) if link.exists() else "none"
        before = look(case, output)
        began_at.append(before)
        attempt = Attempt(case, place, number, start)
        attempt.first = before + 1
        try:
            if strike:
                attempt.strike(*strike)
            attempt.end()
            attempt.recover(case.recover_struck[number] if strike else None)
        finally:
            attempt.stop()
        newest, closed = look(case, output), closed_by_all(output, number)
        must(
            newest >= max(before, closed),
            f"attempt {number}: the link names {newest}; both had closed {closed}, before {before}",
        )
    must(newest == case.last, f"the link names {newest} in the end, not {case.last}")
    return f"{len(case.strikes)} strikes, from {began_at} to {newest}"


def check_end(case: Case, output: Path) -> None:
    must(not list(output.rglob(".advectio*")), f"left: {sorted(map(str, output.rglob('.advectio*')))}")
    kept = range(max(1, case.last - (case.keep or case.last) + 1), case.last + 1)
    for files in FILES.values():
        for name in files:
            for instant in kept:
                restart_set_program.check(case.seed, output / f"{name}_{instant:04}", instant)
            if case.keep and not case.strikes:
                must(len(list(output.glob(f"{name}_*"))) == len(kept), f"{name}: more than the newest {case.keep} are there")
    sets = [p for p in (output / ".latest.sets").iterdir() if p.is_dir()]
    must(len(sets) == min(case.last, case.keep or 2), f"kept: {sets}")


def prepare(scratch: Path, verbose: bool) -> Callable[[int], str]:
    return lambda seed: run(seed, scratch)


if __name__ == "__main__":
    sys.exit(seeds.work_off("restart_set_runs", seeds.parser(__doc__ or "").parse_args(), prepare))
