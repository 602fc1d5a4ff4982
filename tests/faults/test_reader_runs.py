"""Some seeds of reader_runs.py; `make soak` runs more of them."""

from pathlib import Path

import pytest
import reader_runs


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reader_runs.make_input(tmp_path_factory.mktemp("made"))


@pytest.mark.parametrize("seed", range(100, 110))
def test_no_reader_harms_the_run_or_another_reader(seed: int, made: Path, tmp_path: Path):
    reader_runs.run(seed, tmp_path, made)


def test_nothing_of_the_server_grows_with_the_frames_of_readers(tmp_path: Path):
    reader_runs.watch(120, tmp_path)
