"""Programs that fork, close descriptors, replace themselves, are stopped by a signal, look netCDF's functions up by name, or
have a file open more than once."""

from __future__ import annotations

import time
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from conftest import Pair
from running import output_files, run_plainly

FORMATS = ["NETCDF4", "NETCDF3_CLASSIC"]
RECORDS = {
    "fork-writes": 5,
    "fork-goes-on": 5,
    "fork-pool": 2,
    "close-fds": 1,
    "signal-close": 8,
    "signal-exit": 8,
    "looked-up": 3,
    "past": 3,
}
# There the netCDF library itself may lose records that were not synced, or the header.
LOST_PLAINLY = [(kind, "NETCDF3_CLASSIC") for kind in ("fork-goes-on", "signal-close", "signal-exit")]


@pytest.fixture(scope="session")
def process_program(replay: Path) -> Path:
    return replay.parents[2] / "tests" / "faults" / "process_program"


def assert_whole(path: Path, records: int) -> None:
    """As process_program.cpp puts it."""
    with netCDF4.Dataset(path) as file:
        file.set_auto_mask(False)
        wanted = 1000.0 * np.arange(records)[:, None] + np.arange(512)
        assert np.array_equal(file["t"][:], wanted)
        assert file["t"].units == "K"


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("kind", RECORDS)
def test_what_the_program_has_put_is_in_its_file(pair: Pair, process_program: Path, kind: str, format: str):
    command = [process_program, "--format", format, kind]
    result = pair.run(command, datasets=0 if kind == "past" else 2 if kind == "close-fds" else 1)
    if (kind, format) not in LOST_PLAINLY:
        pair.assert_same(storage=False)
    if kind not in ("looked-up", "past"):
        assert_whole(pair.carried / "out.nc", RECORDS[kind])
    assert result.stdout == run_plainly(command, pair.plain).stdout
    said = "the program calls its functions by addresses that it has found itself"
    assert (said in result.stderr) == (kind == "past")
    if kind == "looked-up":
        assert result.dataset("out.nc")["frames_durable"] == 3


@pytest.mark.parametrize("format", FORMATS)
def test_a_daemon_goes_on_with_what_its_parent_had_put(pair: Pair, process_program: Path, format: str):
    result = pair.advectio.run([process_program, "--format", format, "daemon"], pair.carried)
    until = time.monotonic() + 60
    while not (pair.carried / "done").exists():
        assert time.monotonic() < until, f"{output_files(pair.carried)}, {result.said}"
        time.sleep(0.02)
    assert_whole(pair.carried / "out.nc", 2)


@pytest.mark.parametrize("format", FORMATS)
def test_a_program_that_replaces_itself_appends(pair: Pair, process_program: Path, format: str):
    """Not so plainly with netCDF-4: a file that nobody has closed cannot be opened."""
    pair.advectio.run([process_program, "--format", format, "exec"], pair.carried, datasets=1)
    assert_whole(pair.carried / "out.nc", 2)


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_closed_by_a_handler_that_returns_is_whole(pair: Pair, process_program: Path, format: str):
    """Plainly the put that was interrupted may crash."""
    result = pair.advectio.run([process_program, "--format", format, "signal-returns"], pair.carried, datasets=1)
    assert result.stdout == "signal-returns: right\n"
    assert_whole(pair.carried / "out.nc", 8)


@pytest.mark.parametrize("format", FORMATS)
def test_any_call_of_the_program_sees_a_name_that_is_held_back(pair: Pair, process_program: Path, format: str):
    result = pair.run([process_program, "--format", format, "named"], datasets=24)
    assert result.stdout == "named: right\n"
    pair.assert_same(storage=False, at_least=24)


# Kind, format: what the run says of it, and how many datasets it has carried.
HANDLES = {
    ("over-reader", "NETCDF4"): ("", 1),
    ("reader-sync", "NETCDF4"): ("", 1),
    ("reader-sync", "NETCDF3_CLASSIC"): ("", 1),
    ("write-twice", "NETCDF4"): ("is opened for writing a second time", 1),
    ("write-twice", "NETCDF3_CLASSIC"): ("is opened for writing a second time", 1),
    ("leaked", "NETCDF3_CLASSIC"): ("is created again while this process has it open", 3),
    ("share", "NETCDF3_CLASSIC"): ("NC_SHARE asks that each put can be read at once", 0),
    ("create-twice", "NETCDF4"): ("out.nc is open for writing in process", 1),
    ("watched", "NETCDF4"): ("", 3),
    ("watched", "NETCDF3_CLASSIC"): ("", 3),
    ("stays-as-set", "NETCDF4"): ("", 1),
    ("stays-as-set", "NETCDF3_CLASSIC"): ("", 1),
    ("at-exit", "NETCDF3_CLASSIC"): ("", 1),
}


@pytest.mark.parametrize(("kind", "format"), HANDLES)
def test_a_file_that_is_open_more_than_once_is_as_the_library_has_it(pair: Pair, process_program: Path, kind: str, format: str):
    command = [process_program, "--format", format, kind]
    text, datasets = HANDLES[kind, format]
    # By default a new file takes the old one's place, which the reader keeps.
    result = pair.run(
        command, "datasets: [{match: '*', appear: create}]\n" if kind == "over-reader" else None, datasets=datasets
    )
    assert text in result.stderr
    for name in ("plain", "carried"):
        assert output_files(pair.plain.parent / name) == ["out.nc"]
    # The library does not close the one, and destroys the other.
    if kind not in ("leaked", "create-twice"):
        pair.assert_same(storage=False)
    else:
        assert_whole(pair.carried / "out.nc", {"leaked": 3, "create-twice": 2}[kind])
    other = pair.plain.parent / "other"
    other.mkdir()
    assert result.stdout == run_plainly(command, other).stdout


@pytest.mark.parametrize("kind", ["tool", "create-twice"])
def test_who_needs_what_its_caller_has_open_is_told_so_at_once(pair: Pair, process_program: Path, kind: str):
    """The library lets both write a classic file."""
    result = pair.advectio.run([process_program, "--format", "NETCDF3_CLASSIC", kind], pair.carried, datasets=1)
    assert "out.nc is open for writing in process" in result.stderr
    assert ": 13\n" in result.stdout
    assert_whole(pair.carried / "out.nc", 2)


def test_a_path_that_the_system_does_not_tell_is_the_librarys(pair: Pair, process_program: Path):
    result = pair.advectio.run([process_program, "deep"], pair.carried, datasets=0)
    assert result.stdout == "deep: right\n"
    assert "out.nc goes through the netCDF library as usual: create out.nc: File name too long" in result.stderr


def test_a_program_that_calls_nc__create_itself_is_carried(pair: Pair, process_program: Path):
    result = pair.run([process_program.with_name("process_program_no_pie"), "writes"], datasets=1)
    assert result.dataset("out.nc")["frames_durable"] == 1
    pair.assert_same(storage=False)
