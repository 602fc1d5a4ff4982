"""Some seeds of marker_runs.py; `make soak` runs more of them."""

from pathlib import Path

import marker_runs
import pytest


@pytest.mark.parametrize("seed", range(100, 108))
def test_a_marker_never_comes_before_its_files_and_always_comes(seed: int, tmp_path: Path):
    marker_runs.run(seed, tmp_path, may_mount=False)
