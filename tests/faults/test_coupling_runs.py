"""Some seeds of coupling_runs.py; `make soak` runs more of them."""

from pathlib import Path

import coupling_runs
import pytest


@pytest.mark.parametrize("seed", [5, 11, 21, 26])
def test_whoever_comes_late_or_dies_nobody_reads_what_is_wrong(seed: int, tmp_path: Path):
    coupling_runs.run(seed, tmp_path)
