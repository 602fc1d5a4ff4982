"""Some seeds of faults.py; `make soak` runs as many as there is time for."""

from pathlib import Path

import faults
import many_frames
import pytest


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return faults.make_input(tmp_path_factory.mktemp("made"))


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_killed_what_was_synced_is_there(seed: int, made: Path, tmp_path: Path):
    faults.run(faults.Case.of(seed), made, tmp_path)


def test_nothing_grows_with_the_number_of_frames(tmp_path: Path):
    many_frames.run(12000, 8, tmp_path)
