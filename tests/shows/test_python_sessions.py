"""Python programs that write with netCDF4 and xarray, look at their files by other means and remove them at once."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from conftest import Pair, output_files
from running import PYTHON, run_plainly

SESSION = Path(__file__).parent / "sessions" / "many_files.py"
HANDED_OVER = Path(__file__).parent / "sessions" / "handed_over.py"


def netcdf(path: Path) -> Any:
    import netCDF4

    return netCDF4.Dataset(path)


def test_a_session_sees_and_leaves_what_it_would_without_advectio(pair: Pair):
    pytest.importorskip("xarray")
    pytest.importorskip("h5py")
    command: list[str | Path] = [PYTHON, SESSION, "6"]
    plain = run_plainly(command, pair.plain)
    assert plain.code == 0, plain.said
    result = pair.advectio.start(command, pair.carried).finish()
    assert result.code == 0, result.said
    assert result.stdout == plain.stdout
    # One that was removed before it was complete is dropped.
    assert {d["state"] for d in result.summary["datasets"]} <= {"finished", "removed"}
    assert not any(d["error"] for d in result.summary["datasets"])
    assert not pair.advectio.run_dirs[-1].exists()
    pair.assert_same(attribute_order=False)
    assert not list(pair.carried.rglob(".advectio-*"))


@pytest.mark.parametrize("what", ["nothing", "renamed", "removed"])
def test_a_file_with_values_is_handed_over_wherever_it_is_now(pair: Pair, what: str):
    pytest.importorskip("netCDF4")
    command: list[str | Path] = [PYTHON, HANDED_OVER, what]
    plain = run_plainly(command, pair.plain)
    result = pair.advectio.start(command, pair.carried).finish()
    assert (result.code, result.stdout) == (plain.code, plain.stdout), result.said
    assert "the netCDF library writes this file from here on" in result.said
    files = output_files(pair.plain)
    assert files == output_files(pair.carried)
    assert len(files) == (0 if what == "removed" else 1)
    for name in files:
        ours, theirs = pair.carried / name, pair.plain / name
        assert contents(ours) == contents(theirs)
        assert ours.stat().st_mode == theirs.stat().st_mode


def contents(path: Path) -> list[Any]:
    with netcdf(path) as file:
        return [list(file.groups), file["v"][:].tolist(), file["g/w"][...].tolist()]


def test_a_file_that_cannot_be_found_is_not_handed_over_and_stays_complete(pair: Pair):
    pytest.importorskip("netCDF4")
    result = pair.advectio.start([PYTHON, HANDED_OVER, "moved"], pair.carried).finish()
    assert result.code == 3, result.said
    assert "moved to another directory" in result.said
    with netcdf(pair.carried / "below" / "out.nc") as file:
        assert file["v"][:].tolist() == list(range(2_000_000))


def test_a_process_that_dies_in_a_hand_over_leaves_the_file_complete(pair: Pair):
    pytest.importorskip("netCDF4")
    result = pair.advectio.start([PYTHON, HANDED_OVER, "killed"], pair.carried).finish()
    assert result.code == 128 + signal.SIGXFSZ, result.said
    with netcdf(pair.carried / "out.nc") as file:
        assert file["v"][:].tolist() == list(range(2_000_000))
        assert not file.groups
