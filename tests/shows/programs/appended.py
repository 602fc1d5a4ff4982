"""Files to which xarray and particle models append: xarray's mode="a", and records along the last dimension."""

import netCDF4
import numpy as np
import xarray as xr

PARTICLES = 40


def by_xarray() -> None:
    first = xr.Dataset({"t2": (("time", "x"), np.full((2, 30), 280.0))}, coords={"time": [0, 6]})
    first.to_netcdf("xarray.nc", unlimited_dims=["time"])
    for step in range(3):
        more = xr.Dataset({f"field{step}": (("time", "x"), np.arange(60.0).reshape(2, 30) + step)})
        more.to_netcdf("xarray.nc", mode="a")
    first.assign(t2=first.t2 + 1).to_netcdf("xarray.nc", mode="a")  # written over
    with xr.open_dataset("xarray.nc") as found:
        print(sorted(found.data_vars), float(found.t2.sum()))


def by_particles() -> None:
    """OpenDrift's way: trajectory × time, opened for each buffer of output times."""
    with netCDF4.Dataset("particles.nc", "w") as file:
        file.createDimension("trajectory", PARTICLES)
        file.createDimension("time", None)
        file.createVariable("time", "f8", ("time",))
        for name in ("lon", "lat"):
            file.createVariable(name, "f4", ("trajectory", "time"), fill_value=np.nan, zlib=True)
    for begin in range(0, 9, 3):
        with netCDF4.Dataset("particles.nc", "a") as file:
            file["time"][begin : begin + 3] = np.arange(begin, begin + 3)
            for k, name in enumerate(("lon", "lat")):
                file[name][:, begin : begin + 3] = np.arange(PARTICLES * 3).reshape(PARTICLES, 3) + 100 * k + begin
            file.steps_exported = begin + 3
        with netCDF4.Dataset("particles.nc") as file:
            print(len(file.dimensions["time"]), float(file["lon"][:].sum()), file.steps_exported)


by_xarray()
by_particles()
