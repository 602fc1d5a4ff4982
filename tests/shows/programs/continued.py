"""Files of an earlier run, or of another process, that are opened for writing: `make`, then `change STEP`."""

import sys

import netCDF4
import numpy as np

FORMATS = ("NETCDF4", "NETCDF4_CLASSIC", "NETCDF3_CLASSIC")
N = 300


def values(step: int, what: float = 0.0) -> np.ndarray:
    return np.arange(N, dtype="f4") * 0.5 + step + what


def make(name: str, kind: str) -> None:
    with netCDF4.Dataset(name, "w", format=kind) as file:
        file.title = "of others"
        file.numbers = np.array([1, 2, 3], "i2")
        file.createDimension("t", None)
        file.createDimension("x", N)
        file.createDimension("y", 3)
        file.createVariable("t", "f8", ("t",)).units = "hours since 2000-01-01"
        file.createVariable("x", "f4", ("x",))[:] = values(0)
        compressed = kind.startswith("NETCDF4")
        file.createVariable("v", "f4", ("t", "x"), zlib=compressed, complevel=4, shuffle=True, fletcher32=compressed)
        file.createVariable("w", "i2", ("t", "y", "x"), fill_value=-7).long_name = "with a fill value"
        file.createVariable("y", "S1", ("y", "x"))  # no coordinate, though it has the name of a dimension
        file.createVariable("flag", "i1", ())
        file.createVariable("big", ">f8" if compressed else "f8", ("t",), endian="big" if compressed else "native")
        if kind == "NETCDF4":
            file.createVariable("words", str, ("y",))[1] = "two"
            file.createVariable("many", "u8", ("x",), contiguous=True)[:] = np.arange(N)
        append(file, 0)


def append(file: netCDF4.Dataset, step: int) -> None:
    file["t"][step] = step * 6
    file["v"][step] = values(step)
    file["w"][step, 1, 10:20] = step
    file["big"][step] = step / 3


def change(name: str, step: int) -> None:
    with netCDF4.Dataset(name, "a") as file:
        print(name, file.data_model, {d: len(v) for d, v in file.dimensions.items()}, list(file.variables), file.ncattrs())
        print(file["v"][:, 5].tolist(), file["v"].filters(), file["w"]._FillValue, file.title)
        append(file, step)
        file.sync()
        print(file["t"][:].tolist(), float(file["v"][step].sum()), file["w"][step, 1, 8:12].tolist())
        if step == 2:
            file["v"][0] = values(0, 100.0)  # an old record
            file["x"][::2] = -1
            file.history = "changed twice"
            file["v"].units = "m"
        if step == 3:
            file.createDimension("z", 2)
            file.createVariable("late", "f8", ("t", "z"))[3] = [1, 2]
            file.renameVariable("flag", "sign")
            if "words" in file.variables:
                file["words"][2] = "three"


def looked_at(name: str) -> None:
    """Opened for writing, and changed in nothing."""
    with netCDF4.Dataset(name, "a") as file:
        print(name, file["v"][:, 7].tolist())


for kind in FORMATS:
    if sys.argv[1] == "make":
        make(f"{kind}.nc", kind)
    elif sys.argv[1] == "look":
        looked_at(f"{kind}.nc")
    else:
        change(f"{kind}.nc", int(sys.argv[2]))
