"""A file that several processes of a run open for writing, and classic files of others."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest
from conftest import Pair
from running import Result, run_plainly

PROGRAM = Path(__file__).with_name("two_writers.py")
FORMATS = ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"]
IN_TURN = "a:create a:record a:close b:open b:record b:close a:open a:record a:close b:open b:put=2 b:record b:close"


def command(name: str, format: str, turns: str) -> list[str | Path]:
    return [sys.executable, PROGRAM, name, format, *turns.split()]


@pytest.mark.parametrize("format", FORMATS)
def test_two_processes_may_write_a_classic_file_in_turn(pair: Pair, format: str):
    result = pair.run(command("out.nc", format, IN_TURN))
    assert result.stdout == "", result.said
    assert result.dataset("out.nc")["frames_visible"] >= 1
    pair.assert_same()


@pytest.mark.parametrize("format", FORMATS[:2])
def test_the_second_process_waits_for_the_first_and_says_so(pair: Pair, format: str):
    """The library lets both write at once."""
    turns = "a:create a:put=0 a:sync b:{} b:put=4 a:put=2 a:close b:close"
    plain = run_plainly(command("out.nc", format, turns.format("open")), pair.plain)
    assert plain.code == 0, plain.said
    result = pair.advectio.run(
        command("out.nc", format, "a:create a:put=0 a:sync b:wait a:put=2 a:close b:put=4 b:close"), pair.carried
    )
    assert (result.code, result.stdout) == (0, ""), result.said
    assert "this process waits until process" in result.stderr
    pair.assert_same()


def test_a_netcdf4_file_that_another_process_has_open_is_refused_at_once(pair: Pair):
    words = command("out.nc", "NETCDF4", "a:create a:put=0 a:sync b:open a:put=2 a:close b:open b:put=4 b:close")
    result = pair.run(words)
    assert result.stdout == "b: open: PermissionError\n", result.said
    assert "out.nc is open for writing in process" in result.stderr
    pair.assert_same()


def change_a_file_of_others(pair: Pair, format: str, turns: str, datasets: int | None = None, **environment: str) -> Result:
    for directory in (pair.plain, pair.carried):
        made = run_plainly(command("out.nc", format, "a:create a:put=0 a:record a:close"), directory)
        assert made.code == 0, made.said
    words = ["env", *(f"{k}={v}" for k, v in environment.items()), *command("out.nc", format, turns)]
    result = pair.run(words, datasets=datasets)
    assert result.stdout == "", result.said
    pair.assert_same()
    return result


@pytest.mark.parametrize("format", FORMATS)
def test_a_classic_file_of_others_is_carried(pair: Pair, format: str):
    result = change_a_file_of_others(pair, format, "a:open a:put=2 a:record a:sync a:record a:close")
    assert result.dataset("out.nc")["frames_visible"] >= 2


def test_a_classic_file_of_others_is_not_carried_by_one_of_several_ranks(pair: Pair):
    """They may have it open together."""
    turns = "a:open a:put=2 a:record a:close"
    change_a_file_of_others(pair, FORMATS[0], turns, 0, OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="2")


@pytest.mark.parametrize("turns", ["a:open a:put=2 a:redef a:record a:close", "a:open a:record a:close a:open a:redef a:close"])
def test_definitions_of_a_classic_file_of_others_are_the_librarys(pair: Pair, turns: str):
    result = change_a_file_of_others(pair, FORMATS[1], turns)
    assert "only the netCDF library can change its definitions" in result.stderr


def test_a_classic_file_that_somebody_has_open_for_writing_is_the_librarys(pair: Pair):
    with contextlib.ExitStack() as stack:
        for directory in (pair.plain, pair.carried):
            made = run_plainly(command("out.nc", FORMATS[0], "a:create a:put=0 a:record a:close"), directory)
            assert made.code == 0, made.said
            stack.enter_context((directory / "out.nc").open("r+b"))
        result = pair.run(command("out.nc", FORMATS[0], "a:open a:put=2 a:record a:close"), datasets=0)
        assert result.stdout == "", result.said
    pair.assert_same()


@pytest.mark.parametrize("format", FORMATS[:2])
def test_processes_that_open_a_classic_file_at_the_same_time_write_one_after_the_other(pair: Pair, format: str):
    """All that each of them has put is there."""
    result = change_a_file_of_others(pair, format, " ".join(["abcd:own"] * 8))
    assert result.dataset("out.nc")["frames_visible"] >= 1


def test_a_process_that_waits_opens_the_file_after_the_library_has(pair: Pair):
    """The first one hands it over in the midst."""
    turns = "a:create a:put=0 a:record a:close"
    for directory in (pair.plain, pair.carried):
        assert run_plainly(command("out.nc", FORMATS[0], turns), directory).code == 0
    plain = run_plainly(command("out.nc", FORMATS[0], "a:open a:put=2 a:redef a:close"), pair.plain)
    assert plain.code == 0, plain.said
    turns = "a:open a:put=2 b:wait a:redef a:close b:close"
    result = pair.advectio.run(command("out.nc", FORMATS[0], turns), pair.carried)
    assert (result.code, result.stdout) == (0, ""), result.said
    assert "only the netCDF library can change its definitions" in result.stderr
    pair.assert_same()
