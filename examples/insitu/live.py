#!/usr/bin/env python3
"""Temperature and simulated reflectivity over the domain, while the model runs: each frame when it comes.

live.py 'squall_d01_*' pictures       # or 'wrfout_d01_*'; beside:

    advectio run --wait-for-readers 1 -- mpirun -n 4 squall
"""

import os
import sys

import advectio
import matplotlib.pyplot as plt
from advectio.decoding import decode
from advectio.pictures.looks import palette

source, output = sys.argv[1:]
os.makedirs(output, exist_ok=True)
policy = os.environ.get("ADVECTIO_INSITU_POLICY", "latest")  # "wait": a picture of every frame
RADAR = palette("radar").with_extremes(under="white")  # one colour for each 5 dBZ
for ds in advectio.frames(source, policy=policy):
    frame = decode(ds).isel(Time=0)
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
