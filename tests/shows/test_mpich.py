"""Programs linked to MPICH: nothing of ours is linked to an MPI, so theirs is the only one in the process."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Pair
from running import ROOT, run_plainly


@pytest.fixture(scope="session")
def mpich_replay(tool: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """replay built with MPICH. Debian has no PnetCDF for it, so only what writes through netCDF-C."""
    program = tmp_path_factory.mktemp("mpich") / "replay"
    sources = [s for s in (ROOT / "examples/replay").glob("*.c") if s.name != "parallel_output.c"]
    words = [tool("mpicc.mpich"), "-O1", "-std=gnu17", "-o", program, *sources, "-lnetcdf", "-lm"]
    subprocess.run(words, check=True, timeout=120)
    linked = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    assert "libmpich" in linked and "libmpi.so" not in linked
    return program


@pytest.mark.parametrize("io", ["serial", "split"])
def test_replay_built_with_mpich_is_the_same(made: Path, mpich_replay: Path, tool: Callable[[str], str], pair: Pair, io: str):
    ranks = 3
    command = [
        tool("mpirun.mpich"),
        "-n",
        str(ranks),
        mpich_replay,
        "--io",
        io,
        "--frames",
        "4",
        "--frames-per-file",
        "2",
        made,
    ]
    result = pair.run(command, datasets=2 * (ranks if io == "split" else 1))
    pair.assert_same(at_least=2)
    assert all(d["frames_synced"] == d["frames_durable"] == 2 for d in result.summary["datasets"])


def test_ranks_of_mpich_under_exec_share_a_server(made: Path, mpich_replay: Path, tool: Callable[[str], str], pair: Pair):
    """Without `advectio run`: the job is recognised by the process that MPICH starts its ranks with."""
    ranks = [tool("mpirun.mpich"), "-n", "3"]
    program = [mpich_replay, "--io", "split", made]
    assert run_plainly([*ranks, *program], pair.plain).code == 0
    done = run_plainly([*ranks, pair.advectio.command, "exec", "--", *program], pair.carried)
    assert done.code == 0, done.said
    summary = pair.carried / "advectio-summary.json"
    for _ in range(200):
        if summary.exists():
            break
        time.sleep(0.05)
    datasets = json.loads(summary.read_text())["datasets"]
    assert len(datasets) == 3 and all(d["frames_durable"] == d["frames_synced"] > 0 for d in datasets)
    summary.unlink()
    pair.assert_same(at_least=3)


def test_ranks_of_mpich_on_several_nodes_have_servers_of_open_mpi(
    made: Path, mpich_replay: Path, tool: Callable[[str], str], pair: Pair
):
    command = [tool("mpirun.mpich"), "-n", "3", mpich_replay, "--io", "split", "--frames", "4", "--frames-per-file", "2", made]
    result = pair.run(command, datasets=6, nodes="2,1,0")
    pair.assert_same(at_least=6)
    assert {d["node"] for d in result.summary["datasets"]} == {"io"}
