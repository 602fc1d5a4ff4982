"""Writes frames whose values tell their number, once the file `go` is there.

writer.py NAME FRAMES PAUSE_S [--per-file N] [--levels N] [--format F] [--deflate] [--hold]

NAME may have {} for the number of the file. Frames of a file without --per-file: all.
"""

import os
import sys
import time

import netCDF4
import numpy as np

name, frames, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])


def option(name: str, default: str) -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


per_file = int(option("--per-file", str(frames)))
levels = int(option("--levels", "3"))
deflate = "--deflate" in sys.argv
file_format = option("--format", "NETCDF4")
packs = file_format == "NETCDF4"


def wait_for(flag: str) -> None:
    while not os.path.exists(flag):
        time.sleep(0.01)


def create(path: str) -> netCDF4.Dataset:
    d = netCDF4.Dataset(path, "w", format=file_format)
    d.createDimension("Time", None)
    d.createDimension("DateStrLen", 19)
    for dim, length in (("z", levels), ("y", 20), ("x", 30)):
        d.createDimension(dim, length)
    d.createVariable("Times", "S1", ("Time", "DateStrLen"))
    d.createVariable("T2", "f4", ("Time", "y", "x"), zlib=packs).units = "K"
    d.createVariable("Q", "f8", ("Time", "z", "y", "x"), zlib=packs and deflate)
    d.createVariable("HGT", "i4", ("y", "x"))[:] = np.arange(600).reshape(20, 30)
    d.TITLE = "OUTPUT FROM WRF"
    return d


print("begins", flush=True)
wait_for("go")
for k in range(frames):
    number = k % per_file
    if number == 0:
        d = create(name.format(k // per_file))
    d["Times"][number] = np.array(list(f"2005-08-28_{number // 60:02d}:{number % 60:02d}:00"), "S1")
    d["T2"][number] = number
    d["Q"][number] = number * 1000.0 + np.arange(levels * 600.0).reshape(levels, 20, 30)
    d.sync()
    print("synced", k, flush=True)
    time.sleep(pause)
    if number == per_file - 1:
        if "--hold" in sys.argv:
            print("holds", flush=True)
            wait_for("end")
        d.close()
