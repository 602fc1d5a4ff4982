"""Which files belong together, by name; where the joined ones go."""

import os
from pathlib import Path

import pytest
from advectio.errors import UserError
from advectio.joining import families, output_paths, whole_name


@pytest.mark.parametrize(
    "tile, whole",
    [
        ("/out/wrfout_d01_2024-05-11_12:00:00_0007", "wrfout_d01_2024-05-11_12:00:00"),
        ("wrfrst_d02_2024-05-11_12:00:00_12345", "wrfrst_d02_2024-05-11_12:00:00"),
        ("history.pe000000.nc", "history.nc"),
        ("init_00000101-000000.000.pe000001.nc", "init_00000101-000000.000.nc"),
        ("mesh_mask_0003.nc", "mesh_mask.nc"),
        ("wrfout_d01_2024-05-11_12:00:00", None),
        ("history.nc", None),
    ],
)
def test_the_name_of_the_whole(tile: str, whole: str | None):
    assert whole_name(tile) == whole


@pytest.fixture
def split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for date in ("12", "13"):
        for rank in range(3):
            (tmp_path / f"wrfout_d01_{date}:00:00_{rank:04d}").touch()
    (tmp_path / "notes").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tiles(date: str) -> list[str]:
    return [f"wrfout_d01_{date}:00:00_{rank:04d}" for rank in range(3)]


def test_one_tile_stands_for_its_family(split: Path):
    assert families(["wrfout_d01_12:00:00_0001"]) == {"wrfout_d01_12:00:00": tiles("12")}
    there = os.path.join(split, "wrfout_d01_13:00:00_0000")
    assert families([there]) == {"wrfout_d01_13:00:00": [os.path.join(split, t) for t in tiles("13")]}


def test_several_tiles_are_exactly_those(split: Path):
    assert families(tiles("12")[:2]) == {"wrfout_d01_12:00:00": tiles("12")[:2]}


def test_a_quoted_pattern_is_expanded_and_grouped(split: Path):
    expected = {"wrfout_d01_12:00:00": tiles("12"), "wrfout_d01_13:00:00": tiles("13")}
    assert families(["wrfout_*_0000"]) == expected
    assert families(["wrfout_*"]) == expected


def test_names_that_say_nothing_are_one_family(split: Path):
    assert families(["notes", "wrfout_d01_12:00:00_0000"]) == {"joined.nc": ["notes", "wrfout_d01_12:00:00_0000"]}


@pytest.mark.parametrize("name", ["wrfout_d03_*", "wrfout_d03_12:00:00_0000"])
def test_what_is_not_there_is_said(split: Path, name: str):
    with pytest.raises(UserError, match="there is no such file"):
        families([name])


def test_several_wholes_go_into_a_directory(split: Path):
    wholes = ["a", "b"]
    with pytest.raises(UserError, match=r"tiles of 2 files .* must be a directory"):
        output_paths(wholes, "out.nc")
    assert output_paths(wholes, "new/") == ["new/a", "new/b"]
    assert (split / "new").is_dir()
    assert output_paths(["a"], "new") == ["new/a"]
    assert output_paths(["a"], "out.nc") == ["out.nc"]
