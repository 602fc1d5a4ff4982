#!/usr/bin/env python3
"""Many small pieces of an unstructured grid, by the library and under Advectio in turn.

    .venv/bin/python bench/scattered.py [--repeat 3] [--columns 4860] [--variables 4] [--records 3] [--compute 0]
        [--decompositions round-robin curve shuffled] [--ways iput_varn bput_varn put_varn] [--formats cdf5]
        [--before BUILD] [--ranks 4] [--holes 0] [--no-fill] [--check] [--json FILE]

examples/scattered puts a piece for each run of neighbouring columns on each level. `in calls`: the time of the rank
that has spent most in output calls. `whole`: from the command's begin to its return; Advectio's file is complete then.
`server`: CPU time and memory of the server. `--check`: the program reads the file back, and compares every value;
that takes time, so `whole` then means nothing. `--ways netcdf`: netCDF-4 by all ranks, a put for each piece.
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

from bench import ROOT

ADVECTIO = ROOT / ".venv/bin/advectio"
RUN_SECONDS_MAX = 900.0


def run(build: Path | None, directory: Path, options: argparse.Namespace, case: tuple[str, str, str]) -> dict[str, float]:
    """One run. `build`: of Advectio; none: the library alone."""
    decomposition, way, file_format = case
    examples = ROOT / "build/release/examples"
    own = [examples / "scattered/scattered_netcdf_mpi"] if way == "netcdf" else [examples / "scattered/scattered", "--way", way]
    program = [
        "mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(options.ranks), *own,
        "--columns", str(options.columns), "--levels", str(options.levels), "--variables", str(options.variables),
        "--records", str(options.records), "--compute", str(options.compute), "--decomposition", decomposition,
        "--holes", str(options.holes), *([] if options.fill else ["--no-fill"]), *(["--check"] if options.check else []), "out.nc",
    ]  # fmt: skip
    summary = directory / "run.json"
    give_way = ROOT / "build/release/examples/give_way/libgive_way.so"
    given = environment() | {"LD_PRELOAD": str(give_way), "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    command: list[str | Path] = list(program)
    if build is not None:
        given["ADVECTIO_PREFIX"] = str(build)
        rule = "{match: '*'}" if file_format == "as asked" else f"{{match: '*', format: {file_format}}}"
        (directory / "advectio.yaml").write_text(f"datasets: [{rule}]\n")
        command = [ADVECTIO, "run", "--quiet", "--json", summary, "--", *program]
    os.sync()
    begin = time.monotonic()
    done = subprocess.run(command, cwd=directory, env=given, capture_output=True, text=True, timeout=RUN_SECONDS_MAX)
    whole = time.monotonic() - begin
    if done.returncode != 0:
        sys.exit(f"{case}: exit code {done.returncode}: {done.stdout}{done.stderr}")
    words = next(line for line in done.stdout.splitlines() if line.startswith("pieces")).split()
    found = {"pieces": float(words[1]), "in calls": float(words[3]), "whole": whole}
    if build is not None:
        said = json.loads(summary.read_text())
        server = said["server"]
        found |= {"server CPU": server["cpu_s"], "server MB": server["memory_peak_bytes"] / 1e6}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--columns", type=int, default=4860)
    parser.add_argument("--levels", type=int, default=72)
    parser.add_argument("--variables", type=int, default=4)
    parser.add_argument("--records", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--compute", type=float, default=0.0, help="seconds between frames")
    parser.add_argument("--decompositions", nargs="+", default=["round-robin", "curve", "shuffled"])
    parser.add_argument("--ways", nargs="+", default=["iput_varn"])
    parser.add_argument("--formats", nargs="+", default=["as asked"], help="format: in Advectio's config")
    parser.add_argument("--before", type=Path, help="build directory of another commit")
    parser.add_argument("--holes", type=int, default=0, help="every so many-th column is put by nobody")
    parser.add_argument("--no-fill", dest="fill", action="store_false", help="nor does it get the fill value")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    builds: dict[str, Path | None] = {"library": None}
    if options.before:
        builds["before"] = options.before.resolve()
    builds["Advectio"] = ROOT / "build/release"
    cases = [(d, w, f) for d in options.decompositions for w in options.ways for f in options.formats]
    found: dict[tuple[tuple[str, str, str], str], dict[str, list[float]]] = {}
    for _ in range(options.repeat):
        for case in cases:
            for name, build in builds.items():
                with tempfile.TemporaryDirectory(prefix="advectio-scattered-") as directory:
                    got = run(build, Path(directory), options, case)
                for key, value in got.items():
                    found.setdefault((case, name), {}).setdefault(key, []).append(value)
    table = Table("case", "by", "pieces", "in calls, s", "whole, s", "whole / library", "server CPU, s", "server, MB")
    for (case, name), values in found.items():
        library = found[case, "library"]["whole"]
        ratios = [mine / its for mine, its in zip(values["whole"], library, strict=True)]
        server = [f"{statistics.median(values[k]):.2f}" if k in values else "" for k in ("server CPU", "server MB")]
        table.add_row(
            " ".join(case), name, f"{values['pieces'][0]:,.0f}",
            *(f"{statistics.median(values[k]):.2f}" for k in ("in calls", "whole")),
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})", *server,
        )  # fmt: skip
    Console(width=160).print(table)
    if options.json:
        options.json.write_text(json.dumps([{"case": c, "by": n, **v} for (c, n), v in found.items()], indent=1))


if __name__ == "__main__":
    main()
