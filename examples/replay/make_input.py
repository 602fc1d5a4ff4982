#!/usr/bin/env python3
"""Make a small WRF-like history file, so that replay has an input where no real model output is at hand.

    make_input.py OUTPUT [--size NXxNYxNZ] [--frames N]

An idealised storm drifting over a plain: 24 variables on WRF's staggered grid with WRF's attributes, chunks and deflate,
smooth and plausible in size, so that it compresses about as real output does. Deterministic: the same arguments give the
same values.
"""

from __future__ import annotations

import argparse
import sys
from datetime import datetime, timedelta
from pathlib import Path

import netCDF4
import numpy as np

WEST_EAST, SOUTH_NORTH, BOTTOM_TOP = "west_east", "south_north", "bottom_top"
GRAVITY, BASE_TEMPERATURE, BASE_PRESSURE, SCALE_HEIGHT = 9.81, 300.0, 1.0e5, 8.0e3
MINUTES = 10

# name: stagger, levels (3-D) or not, units, description
VARIABLES = {
    "XLAT": ("", False, "degree_north", "LATITUDE, SOUTH IS NEGATIVE"),
    "XLONG": ("", False, "degree_east", "LONGITUDE, WEST IS NEGATIVE"),
    "LU_INDEX": ("", False, "", "LAND USE CATEGORY"),
    "U": ("X", True, "m s-1", "x-wind component"),
    "V": ("Y", True, "m s-1", "y-wind component"),
    "W": ("Z", True, "m s-1", "z-wind component"),
    "PH": ("Z", True, "m2 s-2", "perturbation geopotential"),
    "PHB": ("Z", True, "m2 s-2", "base-state geopotential"),
    "T": ("", True, "K", "perturbation potential temperature theta-t0"),
    "P": ("", True, "Pa", "perturbation pressure"),
    "PB": ("", True, "Pa", "BASE STATE PRESSURE"),
    "QVAPOR": ("", True, "kg kg-1", "Water vapor mixing ratio"),
    "QCLOUD": ("", True, "kg kg-1", "Cloud water mixing ratio"),
    "QRAIN": ("", True, "kg kg-1", "Rain water mixing ratio"),
    "MU": ("", False, "Pa", "perturbation dry air mass in column"),
    "T2": ("", False, "K", "TEMP at 2 M"),
    "U10": ("", False, "m s-1", "U at 10 M"),
    "V10": ("", False, "m s-1", "V at 10 M"),
    "RAINNC": ("", False, "mm", "ACCUMULATED TOTAL GRID SCALE PRECIPITATION"),
    "XLAND": ("", False, "", "LAND MASK (1 FOR LAND, 2 FOR WATER)"),
}


class Storm:
    """The atmosphere at one time, at any set of points."""

    def __init__(self, nx: int, ny: int, nz: int, time: int):
        self.nx, self.ny, self.nz, self.time = nx, ny, nz, time
        # Turbulence: many waves with fixed random phases, weaker the shorter they are.
        self.waves = np.random.default_rng(20240511).uniform(0, 2 * np.pi, (60, 3))

    def place(self, stagger: str, levels: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x = np.arange(self.nx + (stagger == "X")) - (0.5 if stagger == "X" else 0.0)
        y = np.arange(self.ny + (stagger == "Y")) - (0.5 if stagger == "Y" else 0.0)
        z = (np.arange(self.nz + 1) if stagger == "Z" else np.arange(self.nz) + 0.5) if levels else np.zeros(1)
        return x[None, None, :] / self.nx, y[None, :, None] / self.ny, z[:, None, None] / self.nz

    def turbulence(self, x: np.ndarray, y: np.ndarray, z: np.ndarray, seed: int) -> np.ndarray:
        # sin(a + b) = sin a cos b + cos a sin b: horizontal and vertical parts apart, so the sum is a matrix product.
        k = 1.0 + 0.7 * np.arange(len(self.waves))[:, None, None]
        direction, first, second = (self.waves[:, i, None, None] for i in range(3))
        plane = k * (np.cos(direction) * x[0] + np.sin(direction) * y[0]) * 6.0 + first + seed + 0.4 * self.time + second
        column = 3.0 * np.atleast_1d(z[:, 0, 0])[:, None]
        weight = k[:, 0, 0] ** -1.3
        return np.tensordot(np.cos(column) * weight, np.sin(plane), 1) + np.tensordot(np.sin(column) * weight, np.cos(plane), 1)

    def core(self, x: np.ndarray, y: np.ndarray, z: np.ndarray, width: float) -> np.ndarray:
        x0, y0 = 0.45 + 0.03 * self.time, 0.5 + 0.02 * self.time
        return np.exp(-(((x - x0) / width) ** 2 + ((y - y0) / width) ** 2)) * np.sin(np.pi * np.clip(z, 0.0, 1.0) ** 0.8)

    def values(self, name: str) -> np.ndarray:
        stagger, levels, _, _ = VARIABLES[name]
        x, y, z = self.place(stagger, levels)
        height = z * 2.0e4
        core, eddies = self.core(x, y, z, 0.12), self.turbulence(x, y, z, sum(map(ord, name)))
        near = self.core(x, y, np.full_like(z, 0.5), 0.2)
        shear = 25.0 * np.tanh(height / 4.0e3)
        cloud = np.clip(core - 0.25, 0.0, None)
        shape = np.broadcast_shapes(x.shape, y.shape, z.shape)
        result = {
            "XLAT": lambda: 35.0 + 5.0 * y + 0.0 * x,
            "XLONG": lambda: -98.0 + 6.0 * x + 0.0 * y,
            "LU_INDEX": lambda: np.floor(8.0 + 3.0 * self.turbulence(x, y, 0 * z, 1) / 2.0),
            "U": lambda: shear - 8.0 + 12.0 * core + 0.6 * eddies,
            "V": lambda: 4.0 * np.exp(-height / 6.0e3) - 9.0 * core + 0.6 * eddies,
            "W": lambda: 35.0 * core**2 + 0.2 * eddies * np.sin(np.pi * z),
            "PH": lambda: 400.0 * core + 20.0 * eddies * z,
            "PHB": lambda: GRAVITY * height + 0.0 * x + 0.0 * y,
            "T": lambda: 4.0e-3 * height + 60.0 * z**3 + 6.0 * core + 0.15 * eddies,
            "P": lambda: -300.0 * core + 15.0 * eddies * np.exp(-height / SCALE_HEIGHT),
            "PB": lambda: BASE_PRESSURE * np.exp(-height / SCALE_HEIGHT) + 0.0 * x + 0.0 * y,
            "QVAPOR": lambda: 1.4e-2 * np.exp(-height / 2.5e3) * (1.0 + 0.02 * eddies + 0.2 * core),
            "QCLOUD": lambda: np.where(cloud > 0, 4.0e-3 * cloud * (1.0 + 0.1 * eddies), 0.0),
            "QRAIN": lambda: np.where(cloud > 0.1, 6.0e-3 * (cloud - 0.1) * (1.0 + 0.1 * eddies), 0.0),
            "MU": lambda: -250.0 * near + 10.0 * eddies,
            "T2": lambda: BASE_TEMPERATURE - 5.0 * near + 0.3 * eddies,
            "U10": lambda: -6.0 + 10.0 * near + 0.4 * eddies,
            "V10": lambda: 3.0 - 8.0 * near + 0.4 * eddies,
            "RAINNC": lambda: np.where(near > 0.4, 20.0 * (near - 0.4) * (self.time + 1), 0.0),
            "XLAND": lambda: np.where(x + 0.05 * np.sin(20.0 * y) > 0.8, 2.0, 1.0),
        }[name]()
        return np.broadcast_to(result, shape).astype(np.float32)


def dimensions_of(stagger: str, levels: bool) -> tuple[str, ...]:
    names = [
        BOTTOM_TOP + ("_stag" if stagger == "Z" else ""),
        SOUTH_NORTH + ("_stag" if stagger == "Y" else ""),
        WEST_EAST + ("_stag" if stagger == "X" else ""),
    ]
    return ("Time", *names[0 if levels else 1 :])


def define(file: netCDF4.Dataset, nx: int, ny: int, nz: int) -> None:
    lengths = {WEST_EAST: nx, SOUTH_NORTH: ny, BOTTOM_TOP: nz}
    file.createDimension("Time", None)
    file.createDimension("DateStrLen", 19)
    file.createVariable("Times", "S1", ("Time", "DateStrLen"))
    for name, length in lengths.items():
        file.createDimension(name, length)
    for name, length in lengths.items():
        file.createDimension(name + "_stag", length + 1)
    for name, (stagger, levels, units, description) in VARIABLES.items():
        dimensions = dimensions_of(stagger, levels)
        sizes = [file.dimensions[d].size for d in dimensions]
        chunks = [1, *sizes[1:-2], (sizes[-2] + 1) // 2, (sizes[-1] + 1) // 2]
        variable = file.createVariable(name, "f4", dimensions, zlib=True, complevel=2, shuffle=True, chunksizes=chunks)
        attributes = {
            "FieldType": np.int32(104),
            "MemoryOrder": "XYZ" if levels else "XY ",
            "description": description,
            "units": units or "\0",
            "stagger": stagger or "\0",
            "coordinates": "XLONG XLAT XTIME",
        }
        variable.setncatts(attributes)
    for name, kind, field_type, units in (
        ("XTIME", "f4", 104, "minutes since 2024-05-11 12:00:00"),
        ("ITIMESTEP", "i4", 106, "\0"),
        ("P_TOP", "f4", 104, "Pa"),
    ):
        variable = file.createVariable(name, kind, ("Time",))
        variable.setncatts(
            {"FieldType": np.int32(field_type), "MemoryOrder": "0  ", "description": name, "units": units, "stagger": "\0"}
        )
    file.setncatts({"TITLE": " OUTPUT FROM A MADE-UP STORM", "START_DATE": "2024-05-11_12:00:00"})
    for axis, length in (("WEST-EAST", nx), ("SOUTH-NORTH", ny), ("BOTTOM-TOP", nz)):
        file.setncattr(f"{axis}_GRID_DIMENSION", np.int32(length + 1))
    file.setncatts(
        {"DX": np.float32(1000), "DY": np.float32(1000), "GRIDTYPE": "C", "MP_PHYSICS": np.int32(6), "DT": np.float32(6)}
    )
    for axis, length in (("WEST-EAST", nx), ("SOUTH-NORTH", ny), ("BOTTOM-TOP", nz)):
        for end, value in (("START", 1), ("END", length)):
            file.setncattr(f"{axis}_PATCH_{end}_UNSTAG", np.int32(value))
            file.setncattr(f"{axis}_PATCH_{end}_STAG", np.int32(value + (end == "END")))
    file.setncatts({"GRID_ID": np.int32(1), "MAP_PROJ": np.int32(1), "MMINLU": "USGS", "NUM_LAND_CAT": np.int32(24)})


def make(path: Path, nx: int, ny: int, nz: int, frames: int) -> None:
    with netCDF4.Dataset(path, "w", format="NETCDF4") as file:
        define(file, nx, ny, nz)
        begin = datetime(2024, 5, 11, 12)
        for time in range(frames):
            storm = Storm(nx, ny, nz, time)
            now = begin + timedelta(minutes=MINUTES * time)
            file["Times"][time] = netCDF4.stringtochar(np.array([now.strftime("%Y-%m-%d_%H:%M:%S")], "S19"))[0]
            for name in VARIABLES:
                values = storm.values(name)
                file[name][time] = values if values.ndim == file[name].ndim - 1 and VARIABLES[name][1] else values[0]
            file["XTIME"][time] = MINUTES * time
            file["ITIMESTEP"][time] = 100 * time
            file["P_TOP"][time] = 5000.0


def size(text: str) -> tuple[int, int, int]:
    nx, ny, nz = (int(part) for part in text.split("x"))
    if min(nx, ny, nz) < 4:
        raise ValueError
    return nx, ny, nz


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Makes a small WRF-like history file: an idealised storm on WRF's staggered grid."
    )
    parser.add_argument("output", type=Path)
    parser.add_argument("--size", type=size, default=(42, 42, 20), metavar="NXxNYxNZ", help="default 42x42x20")
    parser.add_argument("--frames", type=int, default=2, help="output times (default 2)")
    arguments = parser.parse_args()
    make(arguments.output, *arguments.size, arguments.frames)
    return 0


if __name__ == "__main__":
    sys.exit(main())
