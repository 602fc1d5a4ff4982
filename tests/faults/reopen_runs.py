#!/usr/bin/env python3
"""Runs whose program opens its files again for each output time, by seed; the server, the program or all of them are killed.

    .venv/bin/python tests/faults/reopen_runs.py --seed 7                    that case again, with what was said
    .venv/bin/python tests/faults/reopen_runs.py --first 1 --runs 200 --jobs 2

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
ENDS_S = 300.0


@dataclass(frozen=True)
class Case:
    seed: int
    steps: int
    slow: bool  # the disk
    promise: str
    strikes: tuple[tuple[float, str], ...]  # seconds after the first file; whom

    @classmethod
    def of(cls, seed: int) -> Case:
        chance = random.Random(f"reopen {seed}")
        steps = chance.randint(3, 15)
        whom = [chance.choice(["server", "server", "program", "all"]) for _ in range(chance.choice([0, 1, 1, 2, 3]))]
        strikes = tuple(sorted((chance.uniform(0, 0.08 * steps), who) for who in whom))
        return cls(seed, steps, chance.random() < 0.4, chance.choice(["staged", "staged", "visible", "durable"]), strikes)

    @property
    def config(self) -> str:
        limit = "server: {drain_max: 4MB}\n" if self.slow else ""
        return f"stage: {{warm_bytes: 16MiB}}\n{limit}datasets: [{{match: '*', promise: {self.promise}}}]\n"


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


def holds(seed: int, path: Path, v: np.ndarray, numbers: list[int], of: Told, frames: int) -> bool:
    """Exactly what it held after so many frames."""
    state = of.after(frames)
    if sorted(state) != list(range(len(numbers))):
        return False
    classic = "NETCDF3" in path.name
    for record, number in state.items():
        again = [n for n, r in enumerate(of.records, 1) if r == record and n > number]  # not committed
        allowed = [reopen_program.values(seed, path.name, n) for n in [number, *(again if classic else [])]]
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
        fits = [n for n in range(of.synced, len(of.records) + 1) if holds(case.seed, path, v, numbers, of, n)]
        must(bool(fits), f"{path} has the frames {numbers}; synced: {of.synced}, put: {of.records}")
        frames += of.synced
    return frames


def run(seed: int, scratch: Path) -> str:
    case = Case.of(seed)
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
    words += ["--", sys.executable, PROGRAM, case.seed, case.steps]
    with (place / "said.txt").open("w") as log:
        process = subprocess.Popen([str(w) for w in words], cwd=output, env=environment(), stdout=log, stderr=log, text=True)
        try:
            all_struck = marker_runs.strike(case, process, run_dir, output, PROGRAM)
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
        must(code == 0 or bool(struck & {"program", "all"}), f"exit code {code}\n{text}")
    frames = check(case, output)
    by_library = 0
    if (place / "summary.json").exists():
        rows = json.loads((place / "summary.json").read_text())["datasets"]
        by_library = sum(bool(d.get("bytes_by_library")) for d in rows)
        must(bool(case.strikes) or by_library == 0, f"the library has written {by_library} files\n{text}")
    return f"{case.seed}: {frames} frames, code {code}{recovered}{f', {by_library} by the library' if by_library else ''}"


def prepare(scratch: Path, verbose: bool) -> Callable[[int], str]:
    return lambda seed: run(seed, scratch)


if __name__ == "__main__":
    sys.exit(seeds.work_off("reopen_runs", seeds.parser(__doc__ or "").parse_args(), prepare))
