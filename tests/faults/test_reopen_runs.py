"""Some seeds of reopen_runs.py; `make soak` runs more of them."""

from pathlib import Path

import pytest
import reopen_runs


@pytest.mark.parametrize("seed", range(6))
def test_a_file_that_is_opened_again_holds_whole_frames_and_all_that_were_synced(seed: int, tmp_path: Path):
    reopen_runs.run(seed, tmp_path)


@pytest.mark.parametrize("seed", [3, 20, 375])
def test_the_same_where_ranks_open_it_together(seed: int, tmp_path: Path):
    reopen_runs.run(seed, tmp_path, together=True)
