"""Rank 0 writes a file, rank 1 opens it each time that a frame has been synced, and says what it finds."""

import os
import sys
import time
from pathlib import Path

import netCDF4
import numpy as np

FRAMES = 3
path = Path(sys.argv[1])
field = np.random.default_rng(7).standard_normal((FRAMES, 12, 400, 400)).astype("f4").round(2)


def synced(frame: int) -> Path:
    return path.with_name(f"synced.{frame}")


if os.environ["OMPI_COMM_WORLD_RANK"] == "0":
    with netCDF4.Dataset(path, "w") as out:
        for name, length in (("time", None), ("z", 12), ("y", 400), ("x", 400)):
            out.createDimension(name, length)
        variable = out.createVariable("t", "f4", ("time", "z", "y", "x"))
        for frame in range(FRAMES):
            variable[frame] = field[frame]
            out.sync()
            synced(frame).touch()
            while not path.with_name(f"seen.{frame}").exists():
                time.sleep(0.005)
else:
    for frame in range(FRAMES):
        while not synced(frame).exists():
            time.sleep(0.001)
        with netCDF4.Dataset(path) as file:
            held = file["t"][:]
            assert (held == field[: len(held)]).all()
            print("frames", len(held), flush=True)
        path.with_name(f"seen.{frame}").touch()
        synced(frame).unlink()
