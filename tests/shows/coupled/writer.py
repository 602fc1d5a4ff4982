"""Frames of a field, closed at the end or synced one by one: writer.py FILE FRAMES [PAUSE] [FORMAT]."""

import sys
import time

import netCDF4
import numpy as np

name, frames = sys.argv[1], int(sys.argv[2])
pause = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
form = sys.argv[4] if len(sys.argv) > 4 else "NETCDF4"
with netCDF4.Dataset(name, "w", format=form) as out:
    out.createDimension("time", None)
    out.createDimension("x", 1000)
    out.title = "coupled"
    field = out.createVariable("T", "f4", ("time", "x"))
    other = out.createVariable("Q", "f8", ("time", "x"))
    for frame in range(frames):
        field[frame] = np.arange(1000) + frame
        other[frame] = np.arange(1000) * 0.5 - frame
        out.sync()
        print(f"frame {frame}", flush=True)
        time.sleep(pause)
