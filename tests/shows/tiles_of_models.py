"""Small tiles as FMS, MITgcm, DALES and SCALE write them, and the file that one process of the model would write."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np

Cut = Mapping[str, slice]  # by dimension: what of the whole


@dataclass
class Model:
    """The whole dataset. Each value is its own: no two points of a field have the same."""

    lengths: dict[str, int | None]  # of dimensions, None: unlimited, with two records
    coordinates: dict[str, Any] = field(default_factory=dict)  # by name of their dimension
    fields: dict[str, tuple[str, ...]] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)  # of createVariable
    format: str = "NETCDF4"

    def values(self, name: str) -> Any:
        shape = [self.lengths[d] or 2 for d in self.fields[name]]
        number = list(self.fields).index(name)
        return (np.arange(np.prod(shape), dtype="f8").reshape(shape) / 16 + 1000 * number).astype("f4")

    def write(self, path: Path, cut: Cut, label: Callable[[netCDF4.Dataset], None], *, stepwise: bool = False) -> Path:
        """The part `cut` of it. `label` says whose part it is. `stepwise`: each variable with its dimensions is defined,
        put and synced before the next."""
        path.parent.mkdir(exist_ok=True)
        with netCDF4.Dataset(path, "w", format=self.format) as file:
            if stepwise:
                label(file)
            names = [*self.coordinates, *self.fields]
            for name in names:
                self._define(file, name, cut)
                if stepwise:
                    self._put(file, name, cut)
                    file.sync()
            if not stepwise:
                label(file)
                for name in names:
                    self._put(file, name, cut)
        return path

    def _define(self, file: netCDF4.Dataset, name: str, cut: Cut) -> None:
        dimensions = self.fields.get(name, (name,))
        for d in dimensions:
            if d not in file.dimensions:
                part = cut.get(d)
                file.createDimension(d, part.stop - part.start if part else self.lengths[d])
        if name in self.fields:
            file.createVariable(name, "f4", dimensions, **self.options)
        else:
            file.createVariable(name, np.asarray(self.coordinates[name]).dtype, dimensions)

    def _put(self, file: netCDF4.Dataset, name: str, cut: Cut) -> None:
        whole = self.values(name) if name in self.fields else self.coordinates[name]
        file[name][:] = whole[tuple(cut.get(d, slice(None)) for d in self.fields.get(name, (name,)))]


def parts(length: int, count: int) -> list[slice]:
    """Uneven ones."""
    ends = [round(length * ((i + 1) / count) ** 1.2) for i in range(count)]
    return [slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def grid(x: Sequence[slice], y: Sequence[slice]) -> Iterator[tuple[int, int, slice, slice]]:
    """Numbers and parts in x and y, those of x fastest."""
    for (j, in_y), (i, in_x) in itertools.product(enumerate(y), enumerate(x)):
        yield i, j, in_x, in_y


# ---- FMS ----


def fms_model(nx: int, ny: int, format: str = "NETCDF4") -> Model:
    return Model(
        {"time": None, "lon": nx, "lonb": nx + 1, "lat": ny, "latb": ny + 1, "pfull": 3},
        {
            "lon": np.linspace(0, 350, nx),
            "lonb": np.linspace(-5, 355, nx + 1),
            "lat": np.sin(np.linspace(-1, 1, ny)),
            "latb": np.linspace(-90, 90, ny + 1),
            "pfull": np.array([100.0, 500.0, 900.0]),
            "time": np.array([1.0, 2.0]),
        },
        {"temp": ("time", "pfull", "lat", "lon"), "u": ("time", "lat", "lonb"), "v": ("latb", "lon"), "ps": ("lat",)},
        {"fill_value": np.float32(1e20)},
        format,
    )


def fms(directory: Path, x: Sequence[slice], y: Sequence[slice], *, files: int | None = None, format: str = "NETCDF4") -> Model:
    """NAME.nc.0000 and so on. Edges (lonb, latb) are held by both neighbours."""
    model = fms_model(x[-1].stop, y[-1].stop, format)

    def label(i: int, number: int | None, count: int, cut: Cut) -> Callable[[netCDF4.Dataset], None]:
        def put(file: netCDF4.Dataset) -> None:
            file.filename = "atmos_daily.nc" if number is None else f"atmos_daily.nc.{number:04d}"
            file.title, file.NumFilesInSet = "held_suarez", np.int32(count)
            for name, part in cut.items():
                whole = model.lengths[name]
                file[name].domain_decomposition = np.array([1, whole, part.start + 1, part.stop], "i4")
            file["lon"].edges = "lonb"

        return put

    def cut_of(in_x: slice, in_y: slice) -> Cut:
        return {
            "lon": in_x,
            "lonb": slice(in_x.start, in_x.stop + 1),
            "lat": in_y,
            "latb": slice(in_y.start, in_y.stop + 1),
        }

    count = files or len(x) * len(y)
    for i, j, in_x, in_y in grid(x, y):
        number = j * len(x) + i
        cut = cut_of(in_x, in_y)
        model.write(directory / f"atmos_daily.nc.{number:04d}", cut, label(i, number, count, cut))
    cut = cut_of(slice(0, x[-1].stop), slice(0, y[-1].stop))
    model.write(directory / "whole.nc", cut, label(0, None, 1, cut))
    return model


# ---- MITgcm ----


def mitgcm(
    directory: Path, cells: tuple[int, int], tiles: tuple[int, int], *, in_directories: bool = False, only: int | None = None
) -> Model:
    """state.0000000000.t001.nc and so on, two tiles (in y) of each process; Xwh and Ywh have halos of one cell.
    `only`: this tile and nothing else, in the order of calls that the model makes."""
    (sx, sy), (tx, ty) = cells, tiles
    nx, ny = sx * tx, sy * ty
    model = Model(
        {"T": None, "X": nx, "Xp1": nx + 1, "Y": ny, "Yp1": ny + 1, "Xwh": nx + 2, "Ywh": ny + 2, "Z": 2},
        {
            "T": np.array([0.0, 3600.0]),
            "X": np.arange(nx) * 10.0 + 5,
            "Xp1": np.arange(nx + 1) * 10.0,
            "Y": np.arange(ny) * 10.0 + 5,
            "Yp1": np.arange(ny + 1) * 10.0,
            "Z": np.array([-5.0, -15.0]),
        },
        {
            "Temp": ("T", "Z", "Y", "X"),
            "U": ("T", "Z", "Y", "Xp1"),
            "V": ("T", "Z", "Yp1", "X"),
            "vort": ("Yp1", "Xp1"),
            "gU": ("Ywh", "Xwh"),
        },
        format="NETCDF3_CLASSIC",
    )

    def label(tile: int, of: tuple[int, int], local: tuple[int, int]) -> Callable[[netCDF4.Dataset], None]:
        def put(file: netCDF4.Dataset) -> None:
            file.MITgcm_URL, file.MITgcm_mnc_ver = "http://mitgcm.org", 0.9
            numbers = {"tile_number": tile + 1, "bi": 1, "bj": 1 if of == (1, 1) else tile // of[0] % 2 + 1}
            numbers |= {"sNx": local[0], "sNy": local[1], "OLx": 1, "OLy": 1, "nSx": 1, "nSy": 1}
            numbers |= {"nPx": of[0], "nPy": of[1], "Nx": nx, "Ny": ny, "Nr": 2}
            for name, value in numbers.items():
                file.setncattr(name, np.int32(value))

        return put

    def cut_of(in_x: slice, in_y: slice) -> Cut:
        longer = lambda s, by: slice(s.start, s.stop + by)  # noqa: E731
        return {"X": in_x, "Xp1": longer(in_x, 1), "Xwh": longer(in_x, 2), "Y": in_y, "Yp1": longer(in_y, 1)} | {
            "Ywh": longer(in_y, 2)
        }

    x, y = ([slice(i * s, (i + 1) * s) for i in range(n)] for s, n in ((sx, tx), (sy, ty)))
    for i, j, in_x, in_y in grid(x, y):
        tile = j * tx + i
        if only not in (None, tile):
            continue
        home = directory / f"mnc_test_{tile // 2 + 1:04d}" if in_directories else directory
        path = home / f"state.0000000000.t{tile + 1:03d}.nc"
        model.write(path, cut_of(in_x, in_y), label(tile, (tx, ty), (sx, sy)), stepwise=only is not None)
    if only is not None:
        return model
    model.write(directory / "whole.nc", cut_of(slice(0, nx), slice(0, ny)), label(0, (1, 1), (nx, ny)))
    return model


def mitgcm_cube(directory: Path, side: int, *, blank: Sequence[int] = ()) -> list[Path]:
    """Six faces of `side` × `side` cells beside each other, each of two tiles; some of them are left out (exch2)."""
    written = []
    number = 0
    for face, half in itertools.product(range(6), range(2)):
        if 2 * face + half in blank:
            continue
        number += 1
        with netCDF4.Dataset(directory / f"grid.t{number:03d}.nc", "w", format="NETCDF3_CLASSIC") as file:
            file.MITgcm_mnc_ver = 0.9
            numbers = {"tile_number": 2 * face + half + 1, "bi": number, "bj": 1, "sNx": side, "sNy": side // 2}
            numbers |= {"OLx": 2, "OLy": 2, "nSx": 12 - len(blank), "nSy": 1, "nPx": 1, "nPy": 1}
            numbers |= {"exch2_txGlobalo": face * side + 1, "exch2_tyGlobalo": half * (side // 2) + 1}
            numbers |= {"exch2_myFace": face + 1, "exch2_tBasex": 0, "exch2_tBasey": half * (side // 2)}
            for name, value in numbers.items():
                file.setncattr(name, np.int32(value))
            file.createDimension("X", side)
            file.createDimension("Xp1", side + 1)
            file.createDimension("Y", side // 2)
            file.createVariable("X", "f8", ("X",))[:] = np.arange(side) + 1.0
            file.createVariable("Y", "f8", ("Y",))[:] = np.arange(side // 2) + half * (side // 2) + 1.0
            first = 1000.0 * face + 100 * half
            cells = np.arange(side * (side // 2)).reshape(side // 2, side)
            file.createVariable("rA", "f8", ("Y", "X"))[:] = first + cells
            edges = np.arange((side + 1) * (side // 2)).reshape(side // 2, side + 1)
            file.createVariable("dyG", "f8", ("Y", "Xp1"))[:] = first + edges
        written.append(directory / f"grid.t{number:03d}.nc")
    return written


# ---- DALES ----


def dales_model(nx: int, ny: int) -> Model:
    return Model(
        {"time": None, "xt": nx, "xm": nx, "yt": ny, "ym": ny, "zt": 3, "zm": 3},
        {
            "xt": (np.arange(nx) * 50.0 + 25).astype("f4"),
            "xm": (np.arange(nx) * 50.0).astype("f4"),
            "yt": (np.arange(ny) * 50.0 + 25).astype("f4"),
            "ym": (np.arange(ny) * 50.0).astype("f4"),
            "zt": np.array([10, 30, 50], "f4"),
            "zm": np.array([0, 20, 40], "f4"),
            "time": np.array([60, 120], "f4"),
        },
        {"u": ("time", "zt", "yt", "xm"), "v": ("time", "zt", "ym", "xt"), "w": ("time", "zm", "yt", "xt")},
        {"fill_value": np.float32(-999)},
    )


def dales(
    directory: Path,
    cells: tuple[int, int],
    processors: tuple[int, int],
    *,
    shift: Callable[[int, int], tuple[float, float]] | None = None,
) -> Model:
    """fielddump.000.001.001.nc and so on. `shift` is what is added to the coordinates of a processor."""
    (sx, sy), (px, py) = cells, processors
    model = dales_model(sx * px, sy * py)

    def label(i: int, j: int) -> Callable[[netCDF4.Dataset], None]:
        def put(file: netCDF4.Dataset) -> None:
            file.title = f"fielddump.{i:03d}.{j:03d}.001.nc".ljust(40)
            file.history, file.Source = f"Created on 20240511 at 12000{i}.{j}", "DALES 4.4"

        return put

    x, y = ([slice(i * s, (i + 1) * s) for i in range(n)] for s, n in ((sx, px), (sy, py)))
    for i, j, in_x, in_y in grid(x, y):
        cut = {"xt": in_x, "xm": in_x, "yt": in_y, "ym": in_y}
        path = model.write(directory / f"fielddump.{i:03d}.{j:03d}.001.nc", cut, label(i, j))
        if shift:
            with netCDF4.Dataset(path, "a") as file:
                for name, by in zip(("x", "y"), shift(i, j), strict=True):
                    file[f"{name}t"][:] += np.float32(by)
                    file[f"{name}m"][:] += np.float32(by)
    model.write(directory / "whole.nc", {}, label(0, 0))
    return model


# ---- SCALE ----


def scale(directory: Path, cells: tuple[int, int], processes: tuple[int, int], *, outer: int, inner: int) -> Model:
    """history.pe000000.nc and so on. `outer` points around the domain are in the file, and `inner` around each tile."""
    (sx, sy), (px, py) = cells, processes
    nx, ny = sx * px + 2 * outer, sy * py + 2 * outer
    model = Model(
        {"x": nx, "y": ny, "z": 2, "time": None},
        {"x": np.arange(nx) * 500.0, "y": np.arange(ny) * 500.0, "z": np.array([40.0, 120.0]), "time": np.array([0.0, 60.0])},
        {"DENS": ("time", "z", "y", "x"), "topo": ("y", "x")},
    )
    halo = max(outer, inner, 1)

    def part(rank: int, own: int, count: int) -> tuple[slice, tuple[int, int]]:
        before, behind = (0 if rank == 0 else inner), (0 if rank == count - 1 else inner)
        start = 0 if rank == 0 else rank * own + outer - before
        stop = (rank + 1) * own + outer + (outer if rank == count - 1 else behind)
        return slice(start, stop), (before, behind)

    def label(
        i: int, j: int, of: tuple[int, int], cut: Cut, local: dict[str, tuple[int, int]]
    ) -> Callable[[netCDF4.Dataset], None]:
        def put(file: netCDF4.Dataset) -> None:
            file.rankid = np.int32(j * of[0] + i)
            numbers = {"prc_rank_x": i, "prc_rank_y": j, "prc_num_x": of[0], "prc_num_y": of[1]}
            for name, value in numbers.items():
                file.setncattr(f"scale_cartesC_{name}", np.int32(value))
            numbers = {"imaxg": sx * px, "jmaxg": sy * py, "ihalo": halo, "jhalo": halo}
            for name, value in numbers.items():
                file.setncattr(f"scale_atmos_grid_cartesC_index_{name}", np.int32(value))
            for name, length in (("x", nx), ("y", ny)):
                file[name].size_global, file[name].start_global = np.int32(length), np.int32(cut[name].start + 1)
                file[name].halo_global = np.array([outer, outer], "i4")
                file[name].halo_local = np.array(local[name], "i4")

        return put

    for j, i in itertools.product(range(py), range(px)):
        (in_x, x), (in_y, y) = part(i, sx, px), part(j, sy, py)
        cut = {"x": in_x, "y": in_y}
        path = directory / f"history.pe{j * px + i:06d}.nc"
        model.write(path, cut, label(i, j, (px, py), cut, {"x": x, "y": y}))
    cut = {"x": slice(0, nx), "y": slice(0, ny)}
    model.write(directory / "whole.nc", cut, label(0, 0, (1, 1), cut, {"x": (0, 0), "y": (0, 0)}))
    return model
