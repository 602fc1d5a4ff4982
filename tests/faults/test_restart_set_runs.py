"""Some seeds of restart_set_runs.py; `make soak` runs more of them."""

from pathlib import Path

import pytest
import restart_set_runs


@pytest.mark.parametrize("seed", [1, 7, 9, 20, 25, 30])
def test_what_the_link_names_is_always_whole_and_of_one_instant(seed: int, tmp_path: Path):
    restart_set_runs.run(seed, tmp_path)
