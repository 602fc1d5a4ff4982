#!/usr/bin/env python3
"""Temperature and simulated reflectivity over the domain, of the files of a run that is over.

after.py squall_d01_* pictures        # or wrfout_d01_*
"""

import os
import sys

import matplotlib.pyplot as plt
import xarray as xr
from advectio.decoding import decode
from advectio.pictures.looks import palette


def frames(paths):
    for path in paths:
        with xr.open_dataset(path, decode_cf=False) as ds:
            for record in range(ds.sizes["Time"]):
                yield decode(ds.isel(Time=[record]))


*source, output = sys.argv[1:]
os.makedirs(output, exist_ok=True)
RADAR = palette("radar").with_extremes(under="white")  # one colour for each 5 dBZ
for ds in frames(source):
    frame = ds.isel(Time=0)
    name = str(frame.Time.dt.strftime("%Y-%m-%d_%H%M%S").item()).zfill(17)
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    warm = left.pcolormesh(frame["T2"] - 273.15, cmap="RdYlBu_r")
    echo = right.pcolormesh(frame["REFL_10CM"].max("bottom_top"), cmap=RADAR, vmin=5, vmax=75)
    figure.colorbar(warm, ax=left, label="°C")
    figure.colorbar(echo, ax=right, label="dBZ", extend="both")
    left.set_title(f"temperature, {name}", loc="left")
    right.set_title("highest reflectivity of the column", loc="left")
    for axes in (left, right):
        axes.set_aspect("equal")
    figure.savefig(f"{output}/{name}.part", format="png", dpi=110)
    os.replace(f"{output}/{name}.part", f"{output}/{name}.png")  # who looks sees whole pictures
    plt.close(figure)
