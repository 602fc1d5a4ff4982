"""What runs by seed have in common: how they fail, and how many of them are worked off."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "shows"))

from running import ROOT

BUILD = ROOT / "build" / "release"
COMMAND = Path(os.environ.get("ADVECTIO_COMMAND", ROOT / ".venv" / "bin" / "advectio"))


class Wrong(AssertionError):
    """Something is not as promised."""


def must(holds: object, what: str) -> None:
    if not holds:
        raise Wrong(what)


def left_beside(output: Path, program_was_killed: bool) -> list[Path]:
    """Hidden files. A program that is killed may leave the empty file that nc_create has made, and Open MPI's lock of a file that it
    was reading (docs/limitations.md)."""
    hidden = sorted(p for p in output.rglob(".*advectio*") if not p.is_dir() or not any(p.iterdir()))
    if not program_was_killed:
        return hidden
    return [p for p in hidden if p.suffix != ".lock" and not (p.suffix == ".file" and p.stat().st_size == 0)]


def parser(doc: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=doc.splitlines()[0])
    made.add_argument("--seed", type=int, help="that one alone")
    made.add_argument("--first", type=int, default=0, help="the first")
    made.add_argument("--runs", type=int, default=10)
    made.add_argument("--jobs", type=int, default=2)
    made.add_argument("--seed-verbose", action="store_true", help="a line for each seed")
    return made


def _work(name: str, seeds: Iterator[int], run: Callable[[int], str], verbose: bool) -> int:
    failed = 0
    for seed in seeds:
        try:
            said = run(seed)
            if verbose:
                print(said, flush=True)
        except Wrong as error:
            failed += 1
            print(f"{name}: FAILED\n{error}", file=sys.stderr, flush=True)
    return min(failed, 100)


def work_off(name: str, options: argparse.Namespace, prepare: Callable[[Path, bool], Callable[[int], str]]) -> int:
    """``prepare(scratch, verbose)`` returns what one seed does. Its result is a line; it raises Wrong. Returns the exit code."""
    if options.seed is not None:
        options.first, options.runs, options.jobs, options.seed_verbose = options.seed, 1, 1, True
    scratch = Path(tempfile.mkdtemp(prefix=f"{name.replace('_', '-')}-"))
    run = prepare(scratch, options.seed_verbose)
    workers = []
    began = time.monotonic()
    for worker in range(options.jobs):
        pid = os.fork()
        if pid == 0:
            seeds = iter(range(options.first + worker, options.first + options.runs, options.jobs))
            os._exit(_work(name, seeds, run, options.seed_verbose))
        workers.append(pid)
    failed = sum(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in workers)
    print(
        f"{name}: {options.runs} runs from seed {options.first}, {failed} failed, {time.monotonic() - began:.0f} s",
        flush=True,
    )
    if not failed:
        shutil.rmtree(scratch)
    return 1 if failed else 0
