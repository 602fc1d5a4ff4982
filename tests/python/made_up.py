"""Small made-up datasets, of the shapes that models write."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(os.environ.get("ADVECTIO_SHARED", Path(__file__).resolve().parents[3] / "shared"))


def real(name: str) -> Path:
    """A file of real model output, or the test skips."""
    path = SHARED / "data" / name
    if not path.exists():
        pytest.skip(f"needs real model output: {path} (ADVECTIO_SHARED)")
    return path


def wrf(
    times: tuple[str, ...] = ("2005-08-28_12:00:00",), *, nx: int = 12, ny: int = 10, nz: int = 6, ideal: bool = False
) -> Any:
    """As it lies in a wrfout file, undecoded: Lambert over the Gulf of Mexico, a warm spot that moves east."""
    import numpy as np
    import xarray as xr

    records = len(times)
    x, y = np.meshgrid(np.arange(nx), np.arange(ny))
    spot = np.stack([np.exp(-((x - 3 - 2 * n) ** 2 + (y - 4) ** 2) / 4.0) for n in range(records)])
    z = np.arange(nz + 1.0)[:, None, None] * np.ones((nz + 1, ny, nx))
    mass = ("Time", "south_north", "west_east")
    levels = ("Time", "bottom_top", "south_north", "west_east")

    def every(values: Any) -> Any:
        return np.broadcast_to(np.asarray(values, "f4"), (records, *np.shape(values))).copy()

    def field(dims: tuple[str, ...], values: Any, units: str, description: str, coordinates: str = "XLONG XLAT XTIME") -> Any:
        return xr.Variable(
            dims, np.asarray(values, "f4"), {"units": units, "description": description, "coordinates": coordinates}
        )

    pressure = 100000 - 12000 * z[:-1]
    text = np.array([list(time.encode()) for time in times], "u1").view("S1")
    start = np.datetime64(times[0].replace("_", "T"), "m")
    minutes = [float((np.datetime64(time.replace("_", "T"), "m") - start) / np.timedelta64(1, "m")) for time in times]
    ds = xr.Dataset(
        {
            "Times": (("Time", "DateStrLen"), text),
            "XTIME": ("Time", np.asarray(minutes, "f4"), {"units": f"minutes since {times[0].replace('_', ' ')}"}),
            "XLAT": (mass, every(0 * y if ideal else 25 + 0.09 * y), {"units": "degree_north"}),
            "XLONG": (mass, every(0 * x if ideal else -90 + 0.1 * x), {"units": "degree_east"}),
            "T2": field(mass, 290 + 10 * spot, "K", "TEMP at 2 M"),
            "U10": field(mass, every(3 + 0 * x), "m s-1", "U at 10 M"),
            "V10": field(mass, every(4 + 0 * x), "m s-1", "V at 10 M"),
            "HGT": field(mass, every(0 * x), "m", "Terrain Height"),
            "PSFC": field(mass, 100000 - 500 * spot, "Pa", "SFC PRESSURE"),
            "QVAPOR": field(levels, spot[:, None] * 0.02 / (1 + z[:-1]), "kg kg-1", "Water vapor mixing ratio"),
            "P": field(levels, every(0 * pressure), "Pa", "perturbation pressure"),
            "PB": field(levels, every(pressure), "Pa", "BASE STATE PRESSURE"),
            "W": field(("Time", "bottom_top_stag", *mass[1:]), every(np.sin(z)), "m s-1", "z-wind component"),
            "PH": field(("Time", "bottom_top_stag", *mass[1:]), every(0 * z), "m2 s-2", "perturbation geopotential"),
            "PHB": field(("Time", "bottom_top_stag", *mass[1:]), every(9.81 * 1000 * z), "m2 s-2", "base-state geopotential"),
            "U": field((*levels[:3], "west_east_stag"), np.ones((records, nz, ny, nx + 1)), "m s-1", "x-wind component", ""),
            "V": field((*levels[:2], "south_north_stag", "west_east"), np.ones((records, nz, ny + 1, nx)), "m s-1", "y-wind", ""),
        },
        attrs={
            "TITLE": " OUTPUT FROM WRF V4.7.1 MODEL", "MAP_PROJ": np.int32(0 if ideal else 1), "DX": np.float32(10000),
            "DY": np.float32(10000), "CEN_LAT": np.float32(25.4), "CEN_LON": np.float32(-89.4), "TRUELAT1": np.float32(20),
            "TRUELAT2": np.float32(30), "MOAD_CEN_LAT": np.float32(25.4), "STAND_LON": np.float32(-89.4), "GRID_ID": np.int32(1),
            "SIMULATION_START_DATE": times[0], "START_DATE": times[0],
        },
    )  # fmt: skip
    for name in ("U", "V"):
        del ds[name].attrs["coordinates"]
    return ds


def wrf_file(path: Path, times: tuple[str, ...] = ("2005-08-28_12:00:00",), **options: Any) -> Path:
    import numpy as np

    ds = wrf(times, **options)
    ds = ds.drop_vars("Times").assign(Times=("Time", np.array(times, "S19")))
    ds.Times.encoding["char_dim_name"] = "DateStrLen"
    ds.to_netcdf(path, unlimited_dims=["Time"], engine="netcdf4")
    return path


THREE = ("2005-08-28_12:00:00", "2005-08-28_13:00:00", "2005-08-28_14:00:00")
