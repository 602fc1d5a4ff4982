"""Python programs that write with netCDF4 and xarray, look at their files by other means and remove them at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Pair
from running import PYTHON, run_plainly

SESSION = Path(__file__).parent / "sessions" / "many_files.py"


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
    assert {d["state"] for d in result.summary["datasets"]} <= {"finished", "dropped"}
    assert not any(d["error"] for d in result.summary["datasets"])
    assert not pair.advectio.run_dirs[-1].exists()
    pair.assert_same(attribute_order=False)
    assert not list(pair.carried.rglob(".advectio-*"))
