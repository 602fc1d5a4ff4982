"""``advectio wait`` looks only where a file that it waits for may be."""

import os
from pathlib import Path

import pytest
from advectio.await_files import Known, Wanted


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> str:
    """A directory of another run, on a disk that does not answer."""
    directory = "/hanging"
    for call in ("realpath", "lexists"):
        real = getattr(os.path, call)

        def asked(path: str, *args: object, real=real, **more: object) -> object:
            assert not os.fspath(path).startswith(directory), f"waits for {path}"
            return real(path, *args, **more)

        monkeypatch.setattr(os.path, call, asked)
    return directory


@pytest.mark.parametrize("wanted", ["b.nc", "b*.nc"])
def test_files_of_other_names_are_not_looked_for_on_their_disk(hanging: str, tmp_path: Path, wanted: str):
    (tmp_path / "b.nc").touch()
    mine = Wanted(str(tmp_path / wanted))
    assert not mine.matches(Known(f"{hanging}/a.nc", inode=1))
    assert mine.matches(Known(str(tmp_path / "b.nc")))
    assert mine.matches(Known(str(tmp_path / "." / "b.nc")))
    assert not mine.matches(Known(str(tmp_path / "below" / "b.nc")))


def test_a_file_that_was_renamed_in_its_directory_is_found_by_its_inode(tmp_path: Path):
    (tmp_path / "b.nc").touch()
    inode = (tmp_path / "b.nc").stat().st_ino
    mine = Wanted(str(tmp_path / "b.nc"))
    assert mine.matches(Known(str(tmp_path / "b.nc.tmp"), inode=inode))
    assert not mine.matches(Known(str(tmp_path / "elsewhere" / "b.nc.tmp"), inode=inode))
    assert not mine.matches(Known(str(tmp_path / "b.nc.tmp"), inode=inode + 1))
