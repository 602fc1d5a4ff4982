"""One of the two programs of restart_set_runs.py: goes on from a set, and writes a restart after each step.

Usage: restart_set_program.py SEED MEMBER ATTEMPT SET LAST. SET is the directory of the set to begin with, or `none`. Each instant
comes into `said`, a line each, when its files are closed. Programs are coupled: each waits for the other before a step.
"""

import json
import os
import random
import sys
import threading
import time
from pathlib import Path

import netCDF4
import numpy as np

ONE_AT_A_TIME = threading.Lock()  # HDF5 knows no threads
FILES = {"atm": ("rst_d01", "rst_d02"), "ocn": ("sea",)}


class NotWhole(Exception):
    """A file that is not as one of its instant was written."""


def values(seed: int, name: str, instant: int, frame: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.random.default_rng([seed, *name.encode(), instant, frame]).random(20_000)


def frames_of(seed: int, name: str, instant: int) -> int:
    return random.Random(f"{seed} {name} {instant}").choice([1, 1, 2])


def write(seed: int, name: str, instant: int, attempt: int, chance: random.Random) -> None:
    kind = chance.choice(["NETCDF4", "NETCDF4", "NETCDF3_64BIT_OFFSET"])
    with netCDF4.Dataset(f"{name}_{instant:04}", "w", format=kind) as file:
        file.attempt = attempt
        file.createDimension("t", None)
        file.createDimension("x", 20_000)
        v = file.createVariable("v", "f8", ("t", "x"), zlib=kind == "NETCDF4")
        for frame in range(frames_of(seed, name, instant)):
            v[frame] = values(seed, name, instant, frame)
            if chance.random() < 0.5:
                file.sync()
            time.sleep(chance.choice([0, 0, 0.01]))


def check(seed: int, path: Path, instant: int) -> int:
    """Its attempt. Raises NotWhole, or what netCDF raises."""
    name = path.name.rpartition("_")[0]
    with ONE_AT_A_TIME, netCDF4.Dataset(path) as file:
        frames = frames_of(seed, name, instant)
        if len(file.dimensions["t"]) != frames:
            raise NotWhole(f"{path} has {len(file.dimensions['t'])} frames, not {frames}")
        for frame in range(frames):
            if not np.array_equal(file["v"][frame], values(seed, name, instant, frame)):
                raise NotWhole(f"{path}: frame {frame} is not what was written")
        return int(file.attempt)


def main() -> None:
    seed, member, attempt, start, last = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
    chance = random.Random(f"{seed} {member} {attempt}")
    first = 1
    if start != "none":
        files = sorted((Path(start) / member).iterdir())
        first = int(files[0].name.rpartition("_")[2]) + 1
        for path in files:
            check(seed, path, first - 1)
    said = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    other = "ocn" if member == "atm" else "atm"
    for instant in range(first, last + 1):
        Path(f"step-{attempt}-{instant}-{member}").touch()
        while not os.path.exists(f"step-{attempt}-{instant}-{other}"):
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.05))
        for name in FILES[member]:
            write(seed, name, instant, attempt, chance)
        os.write(said, (json.dumps({"attempt": attempt, "member": member, "instant": instant}) + "\n").encode())


if __name__ == "__main__":
    main()
