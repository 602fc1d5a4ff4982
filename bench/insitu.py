#!/usr/bin/env python3
"""Time until all pictures of a storm are there: drawn after the run from its files, or live while it runs.

    .venv/bin/python bench/insitu.py [--minutes 20] [--rounds 3] [--json FILE]

Both draw every frame with examples/insitu: after.py from the files of a plain run, live.py (every frame) beside `advectio run`.
The model has one rank, so that a core is left for the pictures. Rounds are interleaved; medians are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "bench"))

from measuring import environment  # noqa: E402

SQUALL = ROOT / "build/release/examples/squall/squall"
ADVECTIO = ROOT / ".venv/bin/advectio"
INSITU = ROOT / "examples/insitu"


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def one(live: bool, minutes: float, nx: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        where = Path(name)
        model = ["mpirun", "--bind-to", "none", "-n", "1", str(SQUALL), "--nx", str(nx), "--ny", str(nx)]
        model += ["--minutes", str(minutes), "--history-minutes", "1"]
        env = environment() | {"OPENBLAS_NUM_THREADS": "1"}
        began, used = time.monotonic(), cpu()
        if live:
            reader = subprocess.Popen(
                [sys.executable, INSITU / "live.py", "squall_d01_*", "pictures"],
                cwd=where,
                env=env | {"ADVECTIO_INSITU_POLICY": "wait"},
            )
            subprocess.run(
                [ADVECTIO, "run", "--quiet", "--wait-for-readers", "1", "--", *model],
                cwd=where,
                env=env,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            run_s = time.monotonic() - began
            assert reader.wait(600) == 0
        else:
            subprocess.run(model, cwd=where, env=env, check=True, stdout=subprocess.DEVNULL)
            run_s = time.monotonic() - began
            subprocess.run(
                [sys.executable, INSITU / "after.py", *sorted(where.glob("squall_d01_*")), "pictures"],
                cwd=where,
                env=env,
                check=True,
            )
        total = time.monotonic() - began
        drawn = len(list(where.glob("pictures/*.png")))
        assert drawn == int(minutes) + 1, f"{drawn} pictures"
        return {"run_s": run_s, "all_pictures_s": total, "cpu_s": cpu() - used, "pictures": drawn}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20, help="of the storm, a frame each (default 20)")
    parser.add_argument("--nx", type=int, default=96, help="points of a side (default 96)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {"after": [], "live": []}
    for _ in range(options.rounds):
        for name, rows in found.items():
            rows.append(one(name == "live", options.minutes, options.nx))
            print(name, json.dumps(rows[-1]), flush=True)
    middle = {name: {key: statistics.median(row[key] for row in rows) for key in rows[0]} for name, rows in found.items()}
    print(f"{'':8}{'run':>10}{'all pictures':>16}{'CPU':>10}")
    for name, row in middle.items():
        print(f"{name:8}{row['run_s']:>8.1f} s{row['all_pictures_s']:>14.1f} s{row['cpu_s']:>8.1f} s")
    print(f"live / after: {middle['live']['all_pictures_s'] / middle['after']['all_pictures_s']:.2f}; {os.cpu_count()} cores")
    if options.json:
        options.json.write_text(json.dumps({"rounds": found, "median": middle}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
