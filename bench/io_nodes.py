#!/usr/bin/env python3
"""One large file of many frames, written by one I/O node and by two, which help each other to compress it.

The nodes are simulated on this machine and their servers have one thread each, so that it shows whether two share the
work, not how fast real nodes are.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from measuring import environment
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
REPLAY = ROOT / "build/release/examples/replay/replay_netcdf_mpi"
CODECS = {"deflate (ISA-L)": "", "deflate (libdeflate)": ", deflate: libdeflate", "zstd": ", codec: zstd"}
SECONDS_MAX = 600


def run(directory: Path, source: Path, rule: str, io_nodes: int, options: argparse.Namespace) -> dict[str, float]:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    os.sync()
    config = directory / "advectio.yaml"
    config.write_text(f'server: {{threads: 1}}\nstage: {{bytes_max: 12GiB}}\ndatasets: [{{match: "*"{rule}}}]\n')
    words = [str(Path(sys.executable).parent / "advectio"), "run", "--quiet", "--json", "summary.json", "--config", str(config)]
    words += ["--simulate-nodes", "2" + ",0" * io_nodes, "--", "mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2"]
    words += [str(REPLAY), "--io", "netcdf4-parallel", "--deflate", "1", "--target-mb", str(options.target_mb)]
    frames = str(options.frames)
    words += ["--frames", frames, "--frames-per-file", frames, str(source)]
    subprocess.run(words, cwd=directory, env=environment(), check=True, capture_output=True, timeout=SECONDS_MAX)
    summary = json.loads((directory / "summary.json").read_text())
    (dataset,) = summary["datasets"]
    if dataset["frames_durable"] != options.frames:
        raise SystemExit(f"{directory}: {dataset['frames_durable']} of {options.frames} frames are durable")
    return {
        "run": summary["run_s"] + summary["drain_wait_s"],
        "durable": dataset["to_durable_s"]["median"],
        "helped": summary["server"].get("chunks_by_others", 0),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0],
        epilog="run: seconds until all is durable. to durable: from the sync of a frame, median of the frames. chunks: compressed by the "
        "other I/O node. Runs are interleaved; medians.",
    )
    parser.add_argument("input", type=Path, help="a file of WRF output")
    parser.add_argument("--target-mb", type=float, default=300.0, help="at least so many MB a frame (default 300)")
    parser.add_argument("--frames", type=int, default=6, help="all in one file (default 6)")
    parser.add_argument("--repeat", type=int, default=3, help="how often each runs (default 3)")
    parser.add_argument("--output", type=Path, default=ROOT / "bench-output" / "io-nodes")
    options = parser.parse_args()
    if not REPLAY.exists():
        parser.error(f"{REPLAY} is not built; `make build` builds it where there is a netCDF library with MPI")
    source = options.input.resolve()
    samples: dict[tuple[str, int], list[dict[str, float]]] = {}
    console = Console()
    for turn in range(options.repeat):
        for codec, rule in CODECS.items():
            for io_nodes in (1, 2):
                console.print(f"{turn + 1} of {options.repeat}: {codec}, {io_nodes} I/O nodes", style="dim")
                sample = run(options.output / "runs", source, rule, io_nodes, options)
                samples.setdefault((codec, io_nodes), []).append(sample)
    table = Table(title=f"{options.frames} frames in one file, at least {options.target_mb:.0f} MB each", title_justify="left")
    for i, heading in enumerate(["", "I/O nodes", "run", "to durable", "chunks"]):
        table.add_column(heading, justify="right" if i else "left")
    for (codec, io_nodes), found in samples.items():
        middle = {key: statistics.median(s[key] for s in found) for key in found[0]}
        cells = [f"{middle['run']:.1f} s", f"{middle['durable']:.2f} s", f"{middle['helped']:.0f}"]
        table.add_row(codec, str(io_nodes), *cells)
    console.print(table)
    (options.output / "samples.json").write_text(
        json.dumps([{"codec": c, "io_nodes": n, "runs": r} for (c, n), r in samples.items()])
    )
    shutil.rmtree(options.output / "runs", ignore_errors=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
