"""many_files.py N: what a Python session does with netCDF files, N times: write, look, read back, append, remove.

Prints everything it sees but sizes, which are the writer's choice.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import xarray as xr


def look(path: Path) -> None:
    """The file by other means than netCDF, each of which may be the first to look."""
    with path.open("rb") as file:
        start = file.read(4)
        rest = file.read()
    print(path.name, start, os.stat(path).st_size == len(start) + len(rest), os.stat(path).st_nlink)
    print(sorted(os.listdir(path.parent)))


def with_netcdf4(path: Path, turn: int) -> None:
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("t", None)
        file.createDimension("x", 50)
        values = file.createVariable("v", "f4", ("t", "x"), zlib=True)
        for t in range(3):
            values[t] = np.arange(50) * turn + t
    order = turn % 4
    if order == 0:
        look(path)
    elif order == 1:
        with h5py.File(path) as file:
            print(file["v"].shape, float(file["v"][()].sum()))
    elif order == 2:
        with netCDF4.Dataset(path) as file:
            print(file["v"][:].sum())
    else:
        copy = path.with_name("copy.nc")
        shutil.copyfile(path, copy)
        with netCDF4.Dataset(copy) as file:
            print(file["v"].shape)
    with netCDF4.Dataset(path, "a") as file:
        file["v"][3] = -1.0
        file.note = "appended"
    look(path)
    with xr.open_dataset(path) as dataset:
        print(dataset["v"].sizes, float(dataset["v"].sum()), dataset.attrs)


def with_xarray(directory: Path, turn: int) -> None:
    dataset = xr.Dataset(
        {"t2m": (("time", "y", "x"), np.full((2, 3, 4), float(turn)))}, coords={"time": [1, 2]}, attrs={"turn": turn}
    )
    for engine, name in (("netcdf4", "a.nc"), ("h5netcdf", "b.nc"), ("scipy", "c.nc"), (None, "d.nc")):
        if engine == "scipy":
            dataset.to_netcdf(directory / name, format="NETCDF3_64BIT")
        else:
            dataset.to_netcdf(directory / name, engine=engine)
        with xr.open_dataset(directory / name) as read:
            print(name, read.equals(dataset), read.attrs["turn"])
    os.replace(directory / "a.nc", directory / "renamed.nc")
    with xr.open_dataset(directory / "renamed.nc") as read:
        print(read.equals(dataset))


def main() -> None:
    kept = Path("kept")
    for turn in range(int(sys.argv[1])):
        with tempfile.TemporaryDirectory(dir=".") as scratch:
            with_netcdf4(Path(scratch) / "x.nc", turn)
            with_xarray(Path(scratch), turn)
        kept.mkdir()
        with_netcdf4(kept / "y.nc", turn)
        with_xarray(kept, turn)
        # Written last, and removed before anybody has looked.
        with netCDF4.Dataset(kept / "z.nc", "w") as file:
            file.createDimension("x", 100000)
            file.createVariable("v", "f8", ("x",))[:] = turn
        if turn % 2:
            shutil.rmtree(kept)
        else:
            print(subprocess.run(["sh", "-c", "ls -A kept; rm -r kept"], capture_output=True, text=True, check=False))
    with_netcdf4(Path("last.nc"), 1)
    print(sorted(os.listdir(".")))


main()
