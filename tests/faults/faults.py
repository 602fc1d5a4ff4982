#!/usr/bin/env python3
"""A run in which something is killed at a moment that chance chooses, and what must be there afterwards.

    .venv/bin/python tests/faults/faults.py --seed 7            that very run again
    .venv/bin/python tests/faults/faults.py --minutes 10        one seed after the other, from a random one

A seed gives the program (serial, split or PnetCDF), its ranks, format and compression, how small the stage is,
on how many simulated nodes it runs, who is killed and when. The moment is a time, so a seed repeats the case but not the
very instruction.
Afterwards every file is held against what the program writes without Advectio, and against the frames that it has said were
synced. The checker reads files through netCDF-C only.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "shows"))

from running import ROOT, Advectio, Result, Running, environment, output_files, run_plainly
from seeds import left_beside
from test_crashes import assert_beginning_is_same, records, synced_frames

REPLAY = Path(os.environ.get("ADVECTIO_REPLAY", ROOT / "build" / "release" / "examples" / "replay" / "replay"))
COMMAND = Path(os.environ.get("ADVECTIO_COMMAND", ROOT / ".venv" / "bin" / "advectio"))
SERVERS = ("advectiod", "advectiod_mpi")
SEVERAL_SERVERS = REPLAY.parents[2] / "src" / "apps" / "advectiod" / "advectiod_mpi"  # not there without MPI
FRAMES = 16  # of a run whose program is left alone
MPI = ("mpirun", "--oversubscribe", "--bind-to", "none", "-n")
GENTLY = "command (SIGTERM)"
ENDS_S = 60.0  # what is left of a run whose command was killed has ended by then


@dataclass(frozen=True)
class Case:
    """What one seed stands for."""

    seed: int
    io: str
    ranks: int
    nodes: str | None
    format: str
    deflate: str
    frames_per_file: int
    small_stage: bool
    victims: tuple[str, ...]  # of rank, ranks, server, command, command (SIGTERM); one after the other
    moments_s: tuple[float, ...]  # after the first frame, and after the one before
    restarts_max: int
    recoveries_killed_s: tuple[float, ...]  # `advectio recover` is killed so long after its start, before one is let alone

    @classmethod
    def of(cls, seed: int) -> Case:
        chance = random.Random(seed)
        io = chance.choice(["serial", "split", "pnetcdf", "pnetcdf-nonblocking"])
        ranks = 1 if io == "serial" else chance.randint(2, 4)
        nodes = None
        if io != "serial" and chance.random() < 0.3:
            nodes = f"{ranks - 1},1" + chance.choice(["", ",0"])
        if not SEVERAL_SERVERS.exists():
            nodes = None
        victims = chance.choice(
            [
                ("rank",),
                ("ranks",),
                ("server",),
                ("server", "server"),
                ("server", "rank"),
                ("ranks", "server"),
                ("rank", "server"),
                ("command",),
                ("server", "command"),
                (GENTLY,),
            ]
        )
        return cls(
            seed=seed,
            io=io,
            ranks=ranks,
            nodes=nodes,
            format=chance.choice(["asked", "classic"]) if io in ("serial", "split") else "asked",
            deflate=chance.choice(["asked", "none", "4"]) if io in ("serial", "split") else "asked",
            frames_per_file=chance.randint(1, 6),
            small_stage=chance.random() < 0.3,
            victims=victims,
            moments_s=tuple(chance.uniform(0, 0.6) for _ in victims),
            restarts_max=chance.choice([0, 5]),
            recoveries_killed_s=tuple(chance.uniform(0.05, 0.5) for _ in range(chance.choice([0, 1, 3]))),
        )

    @property
    def ends_well(self) -> bool:
        """Nobody but servers is killed, and they are restarted."""
        return set(self.victims) == {"server"} and self.restarts_max > 0

    @property
    def config(self) -> str:
        stage = "{bytes_max: 16MiB, segment_bytes: 1MiB, warm_bytes: 2MiB}" if self.small_stage else "{}"
        return f"server: {{restarts_max: {self.restarts_max}}}\nstage: {stage}\n".replace("stage: {}\n", "")

    def program(self, made: Path, frames: int) -> list[str | Path]:
        words: list[str | Path] = [*MPI, str(self.ranks)] if self.ranks > 1 else []
        words += [REPLAY, "--frames", str(frames), "--frames-per-file", str(self.frames_per_file)]
        if self.io != "serial":
            words += ["--io", self.io]
        else:
            words += ["--deflate", self.deflate]
        if self.format != "asked":
            words += ["--format", self.format]
        return [*words, made]


def kill(running: Running, victim: str, chance: random.Random) -> None:
    """Whoever is there; a program that has just ended needs no killing."""
    if victim in ("command", GENTLY):
        running.process.send_signal(signal.SIGKILL if victim == "command" else signal.SIGTERM)
        return
    names = SERVERS if victim == "server" else ("replay",)
    pids = [pid for name in names for pid in running.pids(name)]
    if not pids:
        return
    for pid in pids if victim == "ranks" else [chance.choice(pids)]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def await_end(pids: list[int], what: str) -> None:
    until = time.monotonic() + ENDS_S
    while left := [pid for pid in pids if lives(pid)]:
        assert time.monotonic() < until, f"{what}: still there after {ENDS_S:.0f} s: {left}"
        time.sleep(0.05)


def end_without_command(case: Case, family: dict[str, list[int]]) -> None:
    """`advectio run` is no more: its server finishes what is there when the program, which goes on for a while, has ended."""
    time.sleep(0.3)
    for pid in family["replay"]:
        if lives(pid):
            os.kill(pid, signal.SIGKILL)
    await_end([pid for pids in family.values() for pid in pids], f"after the death of the command: {case}")


def run(case: Case, made: Path, directory: Path) -> None:
    """Raises AssertionError, with the case, when something is not as promised."""
    advectio = Advectio(COMMAND, directory, Path("/dev/shm"))
    for name in ("plain", "carried"):
        (directory / name).mkdir()
    try:
        check(case, made, advectio, directory)
    except AssertionError as error:
        raise AssertionError(f"{case}\nagain: tests/faults/faults.py --seed {case.seed}\n{error}") from error
    finally:
        advectio.clean()


def check(case: Case, made: Path, advectio: Advectio, directory: Path) -> None:
    carried = directory / "carried"
    chance = random.Random(case.seed + 1)
    frames = FRAMES if case.ends_well else 100_000
    command = [*case.program(made, frames), "--compute", "0.03"]
    running = advectio.start(command, carried, case.config, nodes=case.nodes)
    running.wait_for(lambda: running.frames() >= 1, "a frame was written")
    family: dict[str, list[int]] = {}
    for victim, moment in zip(case.victims, case.moments_s, strict=True):
        time.sleep(moment)
        if victim == "command":
            family = {name: running.pids(name) for name in ("replay", *SERVERS)}
        kill(running, victim, chance)
    if "command" in case.victims:
        running.process.wait()
        end_without_command(case, family)
    if not case.ends_well and running.process.poll() is None and not {"rank", "ranks"} & set(case.victims):
        time.sleep(0.3)  # the program goes on into a stage that nobody empties
        kill(running, "ranks", chance)
    result = running.finish()
    recover(case, advectio, carried, result)
    compare(case, made, directory, running, result)


def recover(case: Case, advectio: Advectio, carried: Path, result: Result) -> None:
    run_dir = advectio.run_dirs[-1]
    if case.ends_well:
        assert result.code == 0, result.said
        assert not run_dir.exists(), f"{run_dir} is left behind\n{result.said}"
    for moment in case.recoveries_killed_s:
        if run_dir.exists() and not case.ends_well:
            recover_and_kill(advectio, run_dir, carried, moment)
    recovered = ""
    if run_dir.exists():
        done = advectio.call("recover", run_dir, directory=carried)
        recovered = done.said
        assert done.code == 0, f"{done.said}\nafter\n{result.said}"
        assert not run_dir.exists(), f"{run_dir} is left behind\n{done.said}"
    left = [path.name for path in left_beside(carried, program_was_killed=not case.ends_well)]
    if case.nodes and "command" in case.victims:  # it is the command that removes its copy of the config
        left = [name for name in left if not name.endswith(".yaml")]
    assert not left, f"left beside the output: {left}\n{recovered}\nafter\n{result.said}"


def recover_and_kill(advectio: Advectio, run_dir: Path, directory: Path, moment_s: float) -> None:
    """What it has started goes on, and ends by itself."""
    words = [os.fspath(advectio.command), "recover", os.fspath(run_dir)]
    process = subprocess.Popen(words, cwd=directory, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(moment_s)
    process.kill()
    process.wait()
    until = time.monotonic() + ENDS_S
    while left := concerned_with(run_dir):
        assert time.monotonic() < until, f"after the death of `advectio recover` still there after {ENDS_S:.0f} s: {left}"
        time.sleep(0.05)


def concerned_with(run_dir: Path) -> list[int]:
    """Processes that were started for it."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.fsencode(run_dir) in (entry / "cmdline").read_bytes() and lives(int(entry.name)):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def compare(case: Case, made: Path, directory: Path, running: Running, result: Result) -> None:
    plain, carried = directory / "plain", directory / "carried"
    synced = synced_frames(running.lines)  # as rank 0 has said
    names = [name for name in output_files(carried) if (carried / name).stat().st_size > 0]
    holds = {name: records(carried / name) for name in names}
    done = run_plainly(case.program(made, sum(synced.values()) + 4 * case.frames_per_file), plain)
    assert done.code == 0, done.said
    for name in names:
        assert_beginning_is_same(plain / name, carried / name)
    if case.ends_well:
        assert sum(synced.values()) == FRAMES, result.said
    # A rank says a frame when its own sync has returned: where ranks write together the others may not have come so far.
    slack = 0 if case.io in ("serial", "split") or case.ends_well else 1
    for name, count in synced.items():
        last = name == list(synced)[-1]
        least = count - (slack if last else 0)
        assert holds.get(name, 0) >= least, f"{name}: {count} frames were synced, it holds {holds.get(name, 0)}\n{result.said}"


def make_input(directory: Path) -> Path:
    path = directory / "wrfout_d01_made"
    subprocess.run([sys.executable, ROOT / "examples" / "replay" / "make_input.py", path], check=True, env=environment())
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, help="the first, or only one (default: by chance)")
    parser.add_argument("--minutes", type=float, default=0, help="go on with the next seeds for so long")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    until = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="faults-") as scratch:
        made = make_input(Path(scratch))
        while True:
            with tempfile.TemporaryDirectory(prefix=f"seed-{seed}-", dir=scratch) as directory:
                case = Case.of(seed)
                print(case, flush=True)
                try:
                    run(case, made, Path(directory))
                except AssertionError as error:
                    print(f"faults: FAILED\n{error}", file=sys.stderr)
                    return 1
            seed += 1
            if time.monotonic() >= until:
                return 0


if __name__ == "__main__":
    sys.exit(main())
