"""Random conversations with the netCDF library: the same answers and the same files with a server as without.

tests/capture/netcdf/interposer_test.cpp runs the narrower ones, without a server.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from conftest import Pair
from running import run_plainly

CLASSIC, OFFSET64, NETCDF4, CLASSIC_MODEL, CDF5 = 1, 2, 3, 4, 5

EACH_SEED = """
for seed in $(seq "$1" "$2"); do
  mkdir $seed && cd $seed
  "$0" $seed $3 out.nc 1000 wide > ../$seed.out 2> /dev/null
  echo "exit $?" >> ../$seed.out
  cd ..
done
"""


def programs(replay: Path) -> tuple[Path, Path]:
    directory = replay.parents[2] / "tests" / "capture" / "netcdf"
    both = directory / "netcdf_random_calls", directory / "netcdf_compare_directories"
    for program in both:
        if not program.exists():
            pytest.skip(f"{program.name} was not built")
    return both


@pytest.mark.parametrize("file_format", [CLASSIC, OFFSET64, NETCDF4, CLASSIC_MODEL, CDF5])
def test_wide_conversations_give_the_same_answers_and_leave_the_same_files(replay: Path, pair: Pair, file_format: int):
    # ADVECTIO_SEEDS: how many; ADVECTIO_FIRST_SEED: beginning with that one.
    first = int(os.environ.get("ADVECTIO_FIRST_SEED", "0"))
    last = first + int(os.environ.get("ADVECTIO_SEEDS", "8")) - 1
    random_calls, compare = programs(replay)
    command: list[str | Path] = ["sh", "-c", EACH_SEED, random_calls, str(first), str(last), str(file_format)]
    plain = run_plainly(command, pair.plain)
    carried = pair.advectio.start(command, pair.carried).finish()
    assert plain.code == carried.code == 0, f"{plain.said}\n{carried.said}"
    assert not pair.advectio.run_dirs[-1].exists(), "something is left in the stage"
    wrong = []
    for seed in range(first, last + 1):
        ours, theirs = ((d / f"{seed}.out").read_text(errors="replace").splitlines() for d in (pair.carried, pair.plain))
        at = next((i for i, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b), None)
        if at is not None or len(ours) != len(theirs):
            at = min(len(ours), len(theirs)) if at is None else at
            wrong.append(f"seed {seed}: {theirs[at : at + 1]} / {ours[at : at + 1]}, after {theirs[max(0, at - 2) : at]}")
            continue
        done = subprocess.run(
            [compare, pair.plain / str(seed), pair.carried / str(seed)], capture_output=True, text=True, errors="replace"
        )
        if done.returncode != 0:
            wrong.append(f"seed {seed}: {done.stdout or done.stderr}")
    assert not wrong, f"{len(wrong)} of {last - first + 1}\n" + "\n".join(wrong)
