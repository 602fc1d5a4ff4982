"""Files that are opened again for writing: new records, old ones rewritten, read back, new definitions, abandoned."""

import contextlib
import os
import sys

import netCDF4
import numpy as np

FORMATS = ("NETCDF4", "NETCDF4_CLASSIC", "NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA")
N = 300


def values(step: int, what: float = 0.0) -> np.ndarray:
    return np.arange(N, dtype="f4") * 0.5 + step + what


def create(name: str, kind: str, fill: bool = True) -> None:
    with netCDF4.Dataset(name, "w", format=kind) as file:
        if not fill:
            file.set_fill_off()
        file.title = "opened again"
        file.createDimension("t", None)
        file.createDimension("x", N)
        file.createVariable("time", "f8", ("t",)).units = "hours since 2000-01-01"
        file.createVariable("x", "f4", ("x",))[:] = values(0)
        file.createVariable("v", "f4", ("t", "x"), zlib=kind.startswith("NETCDF4"))
        file.createVariable("w", "i2", ("t", "x"), fill_value=-7)
        file.createVariable("flag", "i1", ())


def append(file: netCDF4.Dataset, step: int) -> None:
    print(file.filepath(), len(file.dimensions["t"]), file["v"].shape, file.data_model)
    file["time"][step] = step * 6
    file["v"][step] = values(step)
    if step % 2 == 0:
        file["w"][step, 10:20] = step


def by_turns(kind: str) -> None:
    """CM1: created with its first record, then opened for each."""
    name = f"turns-{kind}.nc"
    create(name, kind)
    for step in range(5):
        with netCDF4.Dataset(name, "a") as file:
            append(file, step)
            if step == 3:
                file["v"][1] = values(1, 100.0)  # an old record
                file["flag"][...] = 3


def kept_open(kind: str) -> None:
    """FESOM2: the header is closed, then the file stays open, and the time is read."""
    name = f"kept-{kind}.nc"
    create(name, kind)
    with netCDF4.Dataset(name, "r+") as file:
        for step in range(4):
            append(file, step)
            file.sync()
            print(file["time"][:].tolist(), float(file["v"][step // 2].sum()), file["w"][step, 8:12].tolist())


def looked_at(kind: str) -> None:
    """Opened and changed in nothing; read between; another program's view of it."""
    name = f"looked-{kind}.nc"
    create(name, kind)
    for step in range(3):
        netCDF4.Dataset(name, "a").close()
        with netCDF4.Dataset(name, "a") as file:
            append(file, step)
            print(file["v"][: step + 1, 5].tolist(), file.title, file["time"].units)
        with netCDF4.Dataset(name) as file:
            print(file["v"].shape, float(file["v"][-1].mean()))


def defined_later(kind: str) -> None:
    """New dimensions, variables and attributes; one is renamed."""
    name = f"defined-{kind}.nc"
    create(name, kind)
    with netCDF4.Dataset(name, "a") as file:
        append(file, 0)
        file.history = "opened once"
        file["v"].units = "m"
        file.createDimension("y", 4)
        late = file.createVariable("late", "f8", ("t", "y"))
        late[0] = [1, 2, 3, 4]
    with netCDF4.Dataset(name, "a") as file:
        append(file, 1)
        file.renameVariable("late", "later")
        file.history = "opened twice"
        file["later"][1] = [5, 6, 7, 8]
        file.createVariable("fixed", "i4", ("x",))
    with netCDF4.Dataset(name, "a") as file:
        print(file.history, list(file.variables), file["later"][:].tolist())
        with contextlib.suppress(KeyError):
            file.renameVariable("nothing", "something")


def not_filled(kind: str) -> None:
    name = f"unfilled-{kind}.nc"
    create(name, kind, fill=False)
    with netCDF4.Dataset(name, "a") as file:
        for variable in ("v", "w"):
            file[variable][0] = np.ones(N)
        file["time"][0], file["flag"][...] = 0, 1
    with netCDF4.Dataset(name, "a") as file:
        append(file, 2)  # record 1 is filled, as the mode is that of the file that was opened


def others_between() -> None:
    """The library's default format is that of the file that was created last."""
    for kind in FORMATS:
        create(f"between-{kind}.nc", kind)
    for step in range(2):
        for kind in FORMATS:
            with netCDF4.Dataset(f"between-{kind}.nc", "a") as file:
                append(file, step)


def handed_over() -> None:
    """The library goes on with all that was put, if something cannot be carried."""
    create("groups.nc", "NETCDF4")
    for step in range(2):
        with netCDF4.Dataset("groups.nc", "a") as file:
            append(file, step)
    with netCDF4.Dataset("groups.nc", "a") as file:
        append(file, 2)
        file.createGroup("more").createVariable("u", "f4", ("x",))[:] = values(9)
        append(file, 3)
    with netCDF4.Dataset("groups.nc", "a") as file:
        append(file, 4)
        print(list(file.groups), file["more/u"][:].sum(), file["v"][:].tobytes().hex()[-80:], file["w"][:].sum())
    os.remove("groups.nc")  # the comparison of files knows no groups


def twice_at_once() -> None:
    create("twice.nc", "NETCDF3_CLASSIC")
    with netCDF4.Dataset("twice.nc", "a") as one:
        append(one, 0)
        one.sync()
        with netCDF4.Dataset("twice.nc", "a") as other:
            append(other, 1)
        one.sync()
        append(one, 2)


def wrong() -> None:
    create("shared.nc", "NETCDF4")
    for name, mode in (("none.nc", "r+"), ("sub/none.nc", "a"), ("shared.nc", "x"), (sys.argv[0], "a")):
        try:
            netCDF4.Dataset(name, mode).close()
            print(name, mode, "opened")
        except (OSError, RuntimeError) as error:
            print(name.rsplit("/", 1)[-1], mode, type(error).__name__, getattr(error, "errno", None))
    with netCDF4.Dataset("shared.nc", "as") as file:
        append(file, 0)


for each in FORMATS:
    for do in (by_turns, kept_open, looked_at, defined_later):
        do(each)
    if each.startswith("NETCDF3"):  # of netCDF-4 what is not filled is anything
        not_filled(each)
others_between()
handed_over()
twice_at_once()
wrong()
