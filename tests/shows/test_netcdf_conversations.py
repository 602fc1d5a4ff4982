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

# $1: each of them; the program with its arguments follows, where NAME stands for one.
EACH = """
names=$1
shift
for name in $names; do
  mkdir $name && cd $name
  $(echo "$@" | sed "s,NAME,$name,") > ../$name.out 2> /dev/null
  echo "exit $?" >> ../$name.out
  cd ..
done
"""


def program(replay: Path, name: str) -> Path:
    path = replay.parents[2] / "tests" / "capture" / "netcdf" / name
    if not path.exists():
        pytest.skip(f"{name} was not built")
    return path


def differing(replay: Path, pair: Pair, names: list[str], conversation: list[str | Path]) -> list[str]:
    """How each of the conversations differs that does, with and without Advectio."""
    command: list[str | Path] = ["sh", "-c", EACH, "sh", " ".join(names), *conversation]
    plain = run_plainly(command, pair.plain)
    carried = pair.advectio.start(command, pair.carried).finish()
    assert plain.code == carried.code == 0, f"{plain.said}\n{carried.said}"
    assert not pair.advectio.run_dirs[-1].exists(), "something is left in the stage"
    compare = program(replay, "netcdf_compare_directories")
    wrong = []
    crashes = 0  # of the library: nothing is to be compared then
    for name in names:
        ours, theirs = ((d / f"{name}.out").read_text(errors="replace").splitlines() for d in (pair.carried, pair.plain))
        if theirs[-1] != "exit 0":
            crashes += 1
            continue
        at = next((i for i, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b), None)
        if at is not None or len(ours) != len(theirs):
            at = min(len(ours), len(theirs)) if at is None else at
            wrong.append(f"{name}: {theirs[at : at + 1]} / {ours[at : at + 1]}, after {theirs[max(0, at - 2) : at]}")
            continue
        done = subprocess.run(
            [compare, pair.plain / name, pair.carried / name], capture_output=True, text=True, errors="replace"
        )
        if done.returncode < 0:
            crashes += 1
        elif done.returncode != 0:
            wrong.append(f"{name}: {done.stdout or done.stderr}")
    assert crashes <= 1 + len(names) // 50
    return wrong


@pytest.mark.parametrize("file_format", [CLASSIC, OFFSET64, NETCDF4, CLASSIC_MODEL, CDF5])
def test_wide_conversations_give_the_same_answers_and_leave_the_same_files(replay: Path, pair: Pair, file_format: int):
    # ADVECTIO_SEEDS: how many; ADVECTIO_FIRST_SEED: beginning with that one.
    first = int(os.environ.get("ADVECTIO_FIRST_SEED", "0"))
    last = first + int(os.environ.get("ADVECTIO_SEEDS", "8")) - 1
    seeds = [str(seed) for seed in range(first, last + 1)]
    conversation = [program(replay, "netcdf_random_calls"), "NAME", str(file_format), "out.nc", "1000", "wide"]
    wrong = differing(replay, pair, seeds, conversation)
    assert not wrong, f"{len(wrong)} of {len(seeds)}\n" + "\n".join(wrong)


@pytest.mark.parametrize("file_format", [CLASSIC, OFFSET64, NETCDF4, CLASSIC_MODEL, CDF5])
def test_chosen_conversations_give_the_same_answers_and_leave_the_same_files(replay: Path, pair: Pair, file_format: int):
    calls = program(replay, "netcdf_chosen_calls")
    names = subprocess.run([calls], capture_output=True, text=True, check=True).stdout.split()
    assert len(names) > 20
    wrong = differing(replay, pair, names, [calls, "NAME", str(file_format)])
    assert not wrong, "\n".join(wrong)
