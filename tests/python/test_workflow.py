"""The files of a workflow, as `advectio run` and `advectio status` see them."""

from __future__ import annotations

from pathlib import Path

import pytest
from advectio import worker, workflow
from advectio.errors import UserError


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", ["history.nc", "hist*.nc"])
def test_convert_and_process_say_where_a_coupled_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, inside: bool
):
    memory, here = tmp_path / "memory", tmp_path / "here"
    here.mkdir()
    versions = memory / ".workflow-1" / "files" / str(here).lstrip("/") / "history.nc"
    versions.mkdir(parents=True)
    (versions / "1.model").write_bytes(b"x")
    monkeypatch.setattr(workflow.places, "user_directory", lambda: str(memory))
    monkeypatch.chdir(here)
    monkeypatch.delenv("ADVECTIO_WORKFLOW", raising=False)
    if inside:
        monkeypatch.setenv("ADVECTIO_WORKFLOW", "1")
    with pytest.raises(UserError) as error:
        worker.datasets([name], "*.nc")
    said = str(error.value)
    assert said.startswith(f"{name}: there is no such file") and f"{here}/history.nc is coupled" in said
    assert ("name each file" in said) == inside and ("advectio run --workflow DIR --as NAME" in said) != inside
    with pytest.raises(UserError) as error:
        worker.datasets(["other.nc"], "*.nc")
    assert str(error.value) == "other.nc: there is no such file"


def test_what_another_program_removes_meanwhile_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    directory = tmp_path / "files" / "home" / "out.nc"
    directory.mkdir(parents=True)
    (directory / "1.w0").write_bytes(b"x" * 10)
    listed = ["1.w0", "open.r0,1-2.3", "read.r0", "2.w0"]  # all but the first are gone
    monkeypatch.setattr(workflow, "version_directories", lambda memory: [("/home/out.nc", str(directory), listed)])
    monkeypatch.setattr("os.path.lexists", lambda path: True)  # they went between two looks
    (file,) = workflow.files(str(tmp_path))
    assert (file["bytes"], file["version"], file["node"]) == (10, 2, None)
