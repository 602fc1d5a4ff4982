"""Two datasets whose frames end at chosen moments. The test lets it go on by making the files `go`, which holds the version of
the stage, and `end`."""

import time
from pathlib import Path

import netCDF4
import numpy as np

KINDS = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")


def wait_for(name: str) -> str:
    until = time.monotonic() + 180  # where the test has failed meanwhile
    while not Path(name).exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    return Path(name).read_text()


print("started", flush=True)
version = wait_for("go")

random = np.random.default_rng(7)
kinds = netCDF4.Dataset("kinds.nc", "w")
kinds.createDimension("t", None)
kinds.createDimension("y", 3)
kinds.createDimension("x", 5)
kinds.title = "every kind"
kinds.setncattr_string("names", ["a", "größer", ""])
kinds.numbers = np.array([1.5, -2.5])
for kind in KINDS:
    values = (random.normal(size=(4, 3, 5)) * 100).astype(kind)
    whole = kinds.createVariable(f"{kind}_records", kind, ("t", "y", "x"), zlib=True, chunksizes=(1, 3, 5))
    whole[0:2] = values[0:2]
    whole.setncattr("units", "m s-1")
    whole.setncattr("limits", np.array([1, 2], kind))
    kinds.createVariable(f"{kind}_big", kind, ("y", "x"), endian="big")[:] = values[2]
    kinds.createVariable(f"{kind}_part", kind, ("t", "y", "x"), fill_value=7)[1, 1:3, ::2] = values[1, 1:3, ::2]
    kinds.createVariable(f"{kind}_unfilled", kind, ("y", "x"), fill_value=False)[:] = values[3]
    kinds.createVariable(f"{kind}_never", kind, ("y", "x"))
    kinds.createVariable(f"{kind}_scalar", kind, ())[...] = 3
letters = kinds.createVariable("letters", "S1", ("t", "x"))
letters[0] = np.frombuffer(b"hello", "S1")
kinds.createVariable("texts", str, ("y",))[:] = np.array(["", "日本", "x" * 300], object)
kinds.createVariable("texts_of_records", str, ("t",))[1] = "second"
kinds.createVariable("strided", "f4", ("t", "y", "x"))[0:4:3, ::2, 1::3] = random.normal(size=(2, 2, 2))
if version >= "4":
    kinds.createVariable("long", str, ())[...] = "long " * 300_000  # longer than a segment
kinds.sync()
for kind in KINDS:
    kinds[f"{kind}_records"][3] = np.full((3, 5), 9, kind)  # record 2 is never put
kinds.sync()

# Longer than a segment of 1 MiB, so that it is cut.
classic = netCDF4.Dataset("classic.nc", "w", format="NETCDF3_64BIT_DATA")
classic.createDimension("time", None)
classic.createDimension("x", 150_000)
classic.createVariable("v", "f8", ("time", "x"))
classic.createVariable("n", "i4", ("time",))
classic["v"][0] = np.arange(150_000) * 0.25
classic["n"][0] = 1
classic.sync()
classic["n"][1] = 2
print("written", flush=True)

wait_for("end")
classic["v"][1] = np.arange(150_000) * -0.5
classic.close()
kinds.close()
