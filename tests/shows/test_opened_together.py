"""Ranks that open a file for writing together: the same answers and the same file with and without Advectio."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Pair, built
from running import run_plainly
from same import assert_same

STEPS = {
    "append": ["append", "append"],
    "rewrite": ["rewrite", "append", "rewrite"],
    "define": ["define", "append", "define"],
    "read": ["read", "append", "read"],
    "alone": ["append", "alone", "append"],
    "nothing": ["nothing", "append"],
    "look": ["look", "append", "look"],
    "numbers": ["numbers", "append", "numbers"],
    "modes": ["modes", "append", "modes-of-others"],
}
NO_FRAME = {"nothing", "look", "numbers", "modes", "modes-of-others"}


def program(replay: Path, format: int, ranks: int, *steps: str) -> list[str | Path]:
    return ["mpirun", "-n", str(ranks), built(replay, "pnetcdf_opened_again"), str(format), "out.nc", *steps]


def assert_same_answers(pair: Pair, ranks: int) -> None:
    for rank in range(ranks):
        plain, carried = ((d / f"out.nc.{rank}").read_text() for d in (pair.plain, pair.carried))
        assert plain == carried and "ok" in plain, f"rank {rank}"


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("steps", STEPS)
def test_a_file_of_the_run_is_opened_again(replay: Path, pair: Pair, steps: str, ranks: int):
    result = pair.run(program(replay, 2, ranks, "make", *STEPS[steps]))
    assert_same_answers(pair, ranks)
    assert_same(pair.plain / "out.nc", pair.carried / "out.nc")
    # The last opening adds frames, unless the library did it.
    assert steps in NO_FRAME or (steps, ranks) == ("alone", 3) or result.dataset("out.nc")["frames_visible"] >= 3


@pytest.mark.parametrize("format", [1, 2, 5])
def test_a_file_of_an_earlier_run_is_opened(replay: Path, pair: Pair, format: int):
    for directory in (pair.plain, pair.carried):
        made = run_plainly(program(replay, format, 2, "make"), directory)
        assert made.code == 0, made.said
    before = (pair.carried / "out.nc").stat().st_mtime_ns
    pair.run(program(replay, format, 2, "look"))
    assert (pair.carried / "out.nc").stat().st_mtime_ns == before, "the file has been written"
    result = pair.run(program(replay, format, 2, "read", "append", "define", "rewrite"))
    assert_same_answers(pair, 2)
    assert_same(pair.plain / "out.nc", pair.carried / "out.nc")
    assert result.dataset("out.nc")["frames_visible"] >= 4


def test_a_file_that_the_server_cannot_go_on_with_is_the_librarys(replay: Path, pair: Pair):
    for directory in (pair.plain, pair.carried):
        assert run_plainly(program(replay, 2, 2, "make"), directory).code == 0
    result = pair.run(program(replay, 2, 2, "append"), "datasets: [{match: '*', format: netcdf4}]", datasets=0)
    assert_same_answers(pair, 2)
    assert_same(pair.plain / "out.nc", pair.carried / "out.nc")
    assert "the config asks for another format" in result.said
