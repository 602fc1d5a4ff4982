#!/usr/bin/env python3
"""Runs whose program opens its files again for each output time, by seed; the server, the program or all of them are killed.

    .venv/bin/python tests/faults/reopen_runs.py --seed 7                    that case again, with what was said
    .venv/bin/python tests/faults/reopen_runs.py --first 1 --runs 200 --jobs 2
    .venv/bin/python tests/faults/reopen_runs.py --together --first 1 --runs 200    the program is two to four ranks

A seed gives the program, its files and their formats, how slow the disk is, and when whom SIGKILL strikes. The moments are times,
so a seed repeats the case, not the very instruction.

The program looks at the length of each file that it opens, and reads back what it has put. Afterwards, and after `recover` where
the run has left its directory, each file holds whole frames: exactly what it held after one of them. That is none before the last
of which the program has heard that it was synced. In the classic formats a record that was put again may have values of both.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import marker_runs
import netCDF4
import numpy as np
import reopen_program
import seeds
from running import descendants, environment
from seeds import COMMAND, must

PROGRAM = Path(reopen_program.__file__)
TOGETHER = seeds.BUILD / "tests" / "faults" / "reopen_together"
ENDS_S = 300.0


@dataclass(frozen=True)
class Case:
    seed: int
    steps: int
    slow: bool  # the disk
    promise: str
    strikes: tuple[tuple[float, str], ...]  # seconds after the first file; whom
    ranks: int = 0  # that open files together; 0: one process

    @classmethod
    def of(cls, seed: int, together: bool) -> Case:
        chance = random.Random(f"reopen {seed}")
        steps = chance.randint(3, 15)
        all_of = ["server", "server", "program", "all", *(["rank"] if together else [])]
        whom = [chance.choice(all_of) for _ in range(chance.choice([0, 1, 1, 2, 3]))]
        strikes = tuple(sorted((chance.uniform(0, 0.08 * steps), who) for who in whom))
        slow, promise = chance.random() < 0.4, chance.choice(["staged", "staged", "visible", "durable"])
        return cls(seed, steps, slow, promise, strikes, chance.randint(2, 4) if together else 0)

    @property
    def config(self) -> str:
        limit = "server: {drain_max: 4MB}\n" if self.slow else ""
        return f"stage: {{warm_bytes: 16MiB}}\n{limit}datasets: [{{match: '*', promise: {self.promise}}}]\n"

    def command(self, place: Path) -> list[object]:
        if not self.ranks:
            return [sys.executable, PROGRAM, self.seed, self.steps]
        (place / "plan").write_text("\n".join(plan(self.seed, self.steps)) + "\n")
        return ["mpirun", "-n", self.ranks, TOGETHER, place / "plan"]

    def values(self, name: str, frame: int) -> np.ndarray:
        if not self.ranks:
            return reopen_program.values(self.seed, name, frame)
        return np.arange(reopen_program.X) + frame * 1e6 + 0.125 * int(name[1 : name.index("-")])


def plan(seed: int, steps: int) -> list[str]:
    """What the ranks do together (reopen_together.c)."""
    chance = random.Random(f"together {seed}")
    files = [_Planned(number, chance) for number in range(chance.randint(1, 4))]
    lines: list[str] = []
    for _ in range(steps):
        for file in files:
            lines += file.step()
        lines.append(f"sleep {chance.choice([0, 0, 20, 100])}")
    return lines + [line for file in files if file.is_open for line in file.close()]


@dataclass
class _Planned:
    number: int
    chance: random.Random
    frames: int = 0
    at: dict[int, int] = field(default_factory=dict)  # by record: the frame that has put it last
    is_open: bool = False
    is_there: bool = False

    def close(self) -> list[str]:
        self.is_open = False
        return [f"close {self.number} {self.frames}"]

    def open(self) -> list[str]:
        self.is_open = True
        if self.is_there:
            return [f"open {self.number} {len(self.at)}"]
        self.is_there = True
        made = [f"create {self.number} {self.chance.choice([1, 2, 4, 4, 5])} {self.chance.randint(0, 1)}"]
        return [*made, *self.close(), *self.open()] if self.chance.random() < 0.3 else made

    def step(self) -> list[str]:
        lines = [] if self.is_open else self.open()
        synced = self.frames
        for _ in range(self.chance.choice([0, 1, 1, 1, 2])):
            if self.at and synced == self.frames and self.chance.random() < 0.2:
                record = self.chance.choice(sorted(self.at))
                lines.append(f"read {self.number} {record} {self.at[record]}")
            self.frames += 1
            again = self.at and self.chance.random() < 0.2
            record = self.chance.choice(sorted(self.at)) if again else len(self.at)
            self.at[record] = self.frames
            lines.append(f"put {self.number} {record} {self.frames}")
            if self.chance.random() < 0.5:
                synced = self.frames
                lines.append(f"sync {self.number} {synced}")
        return lines if self.chance.random() < 0.25 else lines + self.close()


@dataclass
class Told:
    """The words of the program about one file."""

    records: list[int] = field(default_factory=list)  # the one that each frame has put
    synced: int = 0

    def after(self, frames: int) -> dict[int, int]:
        """By record: the frame that has put it last."""
        return {record: number for number, record in enumerate(self.records[:frames], 1)}


def told(output: Path) -> dict[str, Told]:
    found: dict[str, Told] = {}
    said = output / "said"
    for line in said.read_text().splitlines() if said.exists() else []:
        one = json.loads(line)
        of = found.setdefault(one["file"], Told())
        if "frame" in one:
            of.records.append(one["record"])
        of.synced = one.get("synced", of.synced)
    return found


def netcdf_format(path: Path) -> str:
    with netCDF4.Dataset(path) as file:
        return str(file.data_model)


def holds(case: Case, path: Path, v: np.ndarray, numbers: list[int], of: Told, frames: int) -> bool:
    """Exactly what it held after so many frames."""
    state = of.after(frames)
    if sorted(state) != list(range(len(numbers))):
        return False
    classic = netcdf_format(path).startswith("NETCDF3")
    for record, number in state.items():
        again = [n for n, r in enumerate(of.records, 1) if r == record and n > number]  # not committed
        allowed = [case.values(path.name, n) for n in [number, *(again if classic else [])]]
        if numbers[record] not in [number, *(again if classic else [])]:
            return False
        if not np.all(np.any([v[record] == values for values in allowed], axis=0)):
            return False
    return True


def check(case: Case, output: Path) -> int:
    left = seeds.left_beside(output, program_was_killed=any(who != "server" for _, who in case.strikes))
    must(not left, f"left: {left}")
    frames = 0
    for name, of in told(output).items():
        path = output / name
        if not path.exists():
            must(of.synced == 0, f"{name} is not there, and {of.synced} frames were synced")
            continue
        with netCDF4.Dataset(path) as file:
            v, numbers = np.ma.getdata(file["v"][:]), file["frame"][:].tolist()
        fits = [n for n in range(of.synced, len(of.records) + 1) if holds(case, path, v, numbers, of, n)]
        must(bool(fits), f"{path} has the frames {numbers}; synced: {of.synced}, put: {of.records}")
        frames += of.synced
    return frames


def run(seed: int, scratch: Path, together: bool = False) -> str:
    case = Case.of(seed, together)
    place = scratch / str(seed)
    output, run_dir = place / "output", Path(f"/dev/shm/advectio-reopen-{os.getpid()}-{seed}")
    output.mkdir(parents=True)
    try:
        said = _run(case, place, output, run_dir)
    finally:
        shutil.rmtree(run_dir, ignore_errors=True)
    shutil.rmtree(place)
    return said


def _run(case: Case, place: Path, output: Path, run_dir: Path) -> str:
    (place / "advectio.yaml").write_text(case.config)
    words = [COMMAND, "run", "-q", "--json", place / "summary.json", "--run-dir", run_dir, "--config", place / "advectio.yaml"]
    words += ["--", *case.command(place)]
    with (place / "said.txt").open("w") as log:
        process = subprocess.Popen([str(w) for w in words], cwd=output, env=environment(), stdout=log, stderr=log, text=True)
        try:
            all_struck = marker_runs.strike(case, process, run_dir, output, TOGETHER if case.ranks else PROGRAM)
            code = process.wait(ENDS_S)
        finally:
            for pid in descendants(process.pid, None):
                os.kill(pid, signal.SIGKILL)
            process.kill()
    struck = {whom for _, whom in case.strikes} if process.returncode else set()
    text = f"{case}\n{(place / 'said.txt').read_text()}"
    recovered = ""
    if run_dir.exists():
        must(all_struck or code != 0, f"the run has left its directory\n{text}")
        done = subprocess.run([COMMAND, "recover", run_dir], env=environment(), capture_output=True, text=True, timeout=ENDS_S)
        must(done.returncode == 0, f"recover: {done.returncode}\n{done.stderr}\n{text}")
        recovered = ", recovered"
    else:
        must(code == 0 or bool(struck & {"program", "rank", "all"}), f"exit code {code}\n{text}")
    frames = check(case, output)
    by_library = 0
    if (place / "summary.json").exists():
        rows = json.loads((place / "summary.json").read_text())["datasets"]
        by_library = sum(bool(d.get("bytes_by_library")) for d in rows)
        must(bool(case.strikes) or by_library == 0, f"the library has written {by_library} files\n{text}")
    return f"{case.seed}: {frames} frames, code {code}{recovered}{f', {by_library} by the library' if by_library else ''}"


def prepare(together: bool) -> Callable[[Path, bool], Callable[[int], str]]:
    return lambda scratch, verbose: lambda seed: run(seed, scratch, together)


if __name__ == "__main__":
    asked = seeds.parser(__doc__ or "")
    asked.add_argument("--together", action="store_true", help="ranks open the files together")
    options = asked.parse_args()
    sys.exit(seeds.work_off("reopen_runs", options, prepare(options.together)))
