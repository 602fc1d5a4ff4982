"""What a process cannot have more of: it goes on without, or gets an error. Memory: interposer_test.cpp."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Pair
from running import run_plainly
from same import assert_same


@pytest.mark.parametrize("format", ["1", "3"])
def test_a_program_that_may_have_no_thread_writes_the_same(replay: Path, pair: Pair, format: str):
    folder = replay.parents[2] / "tests" / "capture" / "netcdf"
    command: list[str | Path] = [folder / "netcdf_chosen_calls", "netcdf_2_on_netcdf_3", format]
    plain = run_plainly(command, pair.plain)
    assert plain.code == 0, plain.said
    without = [
        "sh",
        "-c",
        'LD_PRELOAD="$LD_PRELOAD:$0" RUNS_OUT_THREADS=netcdf_chosen exec "$@"',
        folder / "libnetcdf_runs_out.so",
    ]
    carried = pair.advectio.run([*without, *command], pair.carried)
    assert "runs out: threads" in carried.stderr, carried.said
    assert plain.stdout == carried.stdout
    assert_same(pair.plain / "out.nc", pair.carried / "out.nc")
