#!/usr/bin/env python3
"""Read made-up Zarr stores with zarr-python and xarray, and hold them against the netCDF files of the same values.

Usage: check_zarr.py TEST_PROGRAM
Has TEST_PROGRAM (test_sinks) write its stores, each beside what the netCDF library makes of the same blocks.
Exit code 77 where the packages are missing.
"""

import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

try:
    import netCDF4
    import numpy as np
    import xarray as xr
    import zarr
    from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ZstdCodec  # noqa: F401
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)


def plain(value: Any) -> Any:
    """An attribute as JSON keeps it. netCDF4 gives no string for a null pointer."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list):
        return [plain(x) for x in value] if len(value) != 1 else plain(value[0])
    return "" if value is None else value


def texts(values: np.ndarray) -> np.ndarray:
    return np.asarray(["" if x is None else str(x) for x in np.asarray(values, object).ravel()], object)


def is_simple(variable: netCDF4.Variable) -> bool:
    """netCDF-C 4.9 reads wrong values of others, where they are shorter than the dimension."""
    return not any(d.isunlimited() for d in variable.get_dims()[1:])


def raw_differences(store: Path, file: Path, counted: list[int]) -> list[str]:
    """In words, of what zarr-python finds. `counted`: values that are equal, and all, are added to it."""
    found = []
    arrays = zarr.open_group(store, mode="r")
    with netCDF4.Dataset(file) as nc:
        nc.set_auto_maskandscale(False)
        nc.set_auto_chartostring(False)
        if set(arrays) != set(nc.variables):
            return [f"{sorted(arrays)} are not {sorted(nc.variables)}"]
        for name, variable in nc.variables.items():
            got, expected = np.asarray(arrays[name][...]), np.asarray(variable[...])
            if variable.dtype is str:
                if not np.array_equal(texts(got), texts(expected)):
                    found.append(f"{name}: strings differ")
                continue
            if got.dtype.newbyteorder("=") != expected.dtype.newbyteorder("=") or got.shape != expected.shape:
                found.append(f"{name}: {got.dtype} {got.shape} is not {expected.dtype} {expected.shape}")
                continue
            if not is_simple(variable):
                continue
            # What nobody has put is undefined in a file without fill; a Zarr array always has a fill value.
            unput = got == np.asarray(arrays[name].fill_value, got.dtype)
            counted[0] += int(np.sum(got == expected))
            counted[1] += got.size
            if not np.all((got == expected) | unput):
                found.append(f"{name}: values differ")
    return found


def decoded_differences(store: Path, file: Path) -> list[str] | None:
    """The same of what xarray makes of both. None: of the netCDF file it makes nothing."""
    found = []
    with netCDF4.Dataset(file) as nc:
        # xarray itself has no variables with one dimension twice.
        twice = [n for n, v in nc.variables.items() if len(set(v.dimensions)) < len(v.dimensions)]
        compared = {n for n, v in nc.variables.items() if v.dtype is not str and is_simple(v) and "_FillValue" in v.ncattrs()}
    try:
        theirs = xr.open_dataset(file, engine="netcdf4", drop_variables=twice)
    except ValueError:
        return None
    with theirs, xr.open_zarr(store, chunks=None, drop_variables=twice) as ours:
        if set(ours.variables) != set(theirs.variables):
            return [f"{sorted(ours.variables)} are not {sorted(theirs.variables)}"]
        if {k: plain(v) for k, v in ours.attrs.items()} != {k: plain(v) for k, v in theirs.attrs.items()}:
            found.append(f"global attributes: {ours.attrs} are not {theirs.attrs}")
        for name, b in theirs.variables.items():
            a = ours.variables[name]
            if a.dims != b.dims or a.shape != b.shape:
                found.append(f"{name}: {a.dims} {a.shape} is not {b.dims} {b.shape}")
                continue
            attributes = [{k: plain(v) for k, v in x.attrs.items()} for x in (a, b)]
            if attributes[0] != attributes[1]:
                found.append(f"{name}: {attributes[0]} is not {attributes[1]}")
            if name not in compared:
                continue
            if a.dtype.kind != b.dtype.kind:
                found.append(f"{name}: decoded, {a.dtype} is not {b.dtype}")
            elif not np.array_equal(a.values, b.values, equal_nan=a.dtype.kind == "f"):
                found.append(f"{name}: decoded values differ")
    return found


def main() -> int:
    program = sys.argv[1]
    warnings.simplefilter("ignore")  # xarray, of dimensions that come twice
    wrong = 0
    counted = [0, 0]
    with tempfile.TemporaryDirectory(prefix="advectio-zarr-") as directory:
        env = dict(os.environ, ADVECTIO_ZARR_FILES=directory)
        test = "Sinks/EverySink.MakesOfAnyDecompositionWhatNetcdfMakesOfTheSame/zarr"
        subprocess.run([program, f"--gtest_filter={test}"], env=env, check=True, stdout=subprocess.DEVNULL)
        stores = sorted(Path(directory).glob("*.zarr"))
        if not stores:
            print("no stores were written")
            return 1
        decoded = 0
        for store in stores:
            file = store.with_suffix(".nc")
            found = raw_differences(store, file, counted)
            of_xarray = decoded_differences(store, file)
            decoded += of_xarray is not None
            for what in found + (of_xarray or []):
                print(f"{store.name}: {what}")
                wrong += 1
        print(
            f"{len(stores)} stores, {decoded} of them also by xarray: {wrong} differences; "
            f"{counted[0]} of {counted[1]} values are equal"
        )
    enough = 2 * decoded > len(stores) and 2 * counted[0] > counted[1]
    return 1 if wrong or not enough else 0


if __name__ == "__main__":
    sys.exit(main())
