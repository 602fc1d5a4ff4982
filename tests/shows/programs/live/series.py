"""Writes files of one series, a record a minute: series.py NAME FILES RECORDS HOLD_AFTER

NAME has {} for the number of the file. Begins once the file `go` is there, and waits for `more` after so many files.
"""

import os
import sys
import time

import netCDF4
import numpy as np

name, files, records, hold_after = sys.argv[1], *map(int, sys.argv[2:5])


def wait_for(flag: str) -> None:
    while not os.path.exists(flag):
        time.sleep(0.01)


print("begins", flush=True)
wait_for("go")
for number in range(files):
    if number == hold_after:
        print("holds", flush=True)
        wait_for("more")
    with netCDF4.Dataset(name.format(number), "w") as d:
        for dim, length in (("Time", None), ("DateStrLen", 19), ("y", 8), ("x", 10)):
            d.createDimension(dim, length)
        times = d.createVariable("Times", "S1", ("Time", "DateStrLen"))
        t2 = d.createVariable("T2", "f4", ("Time", "y", "x"), zlib=True)
        for k in range(records):
            minute = number * records + k
            times[k] = np.array(list(f"2005-08-28_{minute // 60:02d}:{minute % 60:02d}:00"), "S1")
            t2[k] = 280 + np.sin(minute) + np.arange(80).reshape(8, 10) / 7
            d.sync()
