#!/usr/bin/env python3
"""What `advectio run` adds before a program starts and after it has ended.

A small program says when the first instruction of its main ran and when its main ended. Two times are measured from
outside: from the moment the command is given to that first instruction, and from the end of main to the moment the command
has returned. Two cases: the program writes nothing, and it writes one small netCDF file (40 kB). Each is run plainly and
under `advectio run`, in turn, so that a change of the machine's load meets all of them alike. The first run of each is not
counted: it reads programs from the disk, and Python keeps its compiled modules then.

`--command NAME=PATH` compares several installations; each must have the programs that belong to it (ADVECTIO_PREFIX is for
one only). `--seconds S` lets the program sleep first: the server then has warmed its stage, and must give it back.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measuring import environment
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/release/bench/start_up_program"
CASES = {"nothing": [], "one small file": ["small.nc"]}
SECONDS_MAX = 60


def run(prefix: list[str], words: list[str], directory: Path) -> tuple[float, float]:
    """Milliseconds from the command to main, and from the end of main to the return."""
    for old in directory.glob("*.nc"):
        old.unlink()
    told = environment()
    told.pop("PYTHONDONTWRITEBYTECODE", None)  # as users have it: modules are compiled once
    given = time.time()
    done = subprocess.run(
        [*prefix, str(PROGRAM), *words],
        cwd=directory,
        env=told,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    returned = time.time()
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(prefix)}: exit code {done.returncode}: {done.stderr.strip()}")
    began, ended = (int(word) / 1e9 for word in done.stdout.split())
    return 1e3 * (began - given), 1e3 * (returned - ended)


def summary(values: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values), 1), "min": round(min(values), 1), "max": round(max(values), 1)}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0],
        epilog="Milliseconds, median (least to most). Runs are interleaved. Read the docstring for what is measured.",
    )
    parser.add_argument("--runs", type=int, default=15, metavar="N", help="of each (default 15)")
    parser.add_argument("--seconds", type=float, default=0.0, metavar="S", help="the program sleeps so long first (default 0)")
    parser.add_argument(
        "--command",
        action="append",
        metavar="NAME=PATH",
        help="an advectio, and how to call it (default: the one beside Python)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args()


def main() -> int:
    options = parse()
    if not PROGRAM.is_file():
        raise SystemExit(f"{PROGRAM} is not there: make build")
    commands = dict(text.split("=", 1) for text in options.command or [f"advectio={Path(sys.executable).parent / 'advectio'}"])
    ways = {"plain": [], **{name: [os.path.abspath(path), "run", "--"] for name, path in commands.items()}}
    times: dict[tuple[str, str], list[tuple[float, float]]] = {(case, way): [] for case in CASES for way in ways}
    with tempfile.TemporaryDirectory(prefix="advectio-start-up-") as directory:
        for _ in range(options.runs + 1):
            for case, way in times:
                times[case, way].append(run(ways[way], [str(options.seconds), *CASES[case]], Path(directory)))
    found = [
        {
            "case": case,
            "way": way,
            "command_to_main_ms": summary([start for start, _ in values[1:]]),
            "main_to_return_ms": summary([end for _, end in values[1:]]),
        }
        for (case, way), values in times.items()
    ]
    if options.json:
        print(json.dumps({"runs": options.runs, "seconds": options.seconds, "cores": os.cpu_count(), "times": found}, indent=2))
        return 0
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading in ("writes", "run", "command to main, ms", "end of main to return, ms"):
        table.add_column(heading, justify="right" if "ms" in heading else "left", no_wrap=True)
    for row in found:
        cells = [
            f"{s['median']:.1f} ({s['min']:.1f} to {s['max']:.1f})"
            for s in (row["command_to_main_ms"], row["main_to_return_ms"])
        ]
        table.add_row(row["case"], row["way"], *cells)
    Console(highlight=False).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
