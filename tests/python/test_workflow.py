"""The files of a workflow, as `advectio run` and `advectio status` see them."""

from __future__ import annotations

from pathlib import Path

import pytest
from advectio import workflow


def test_what_another_program_removes_meanwhile_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    directory = tmp_path / "files" / "home" / "out.nc"
    directory.mkdir(parents=True)
    (directory / "1.w0").write_bytes(b"x" * 10)
    listed = ["1.w0", "open.r0,1-2.3", "read.r0", "2.w0"]  # all but the first are gone
    monkeypatch.setattr(workflow, "version_directories", lambda memory: [("/home/out.nc", str(directory), listed)])
    monkeypatch.setattr("os.path.lexists", lambda path: True)  # they went between two looks
    (file,) = workflow.files(str(tmp_path))
    assert (file["bytes"], file["version"], file["node"]) == (10, 2, None)
