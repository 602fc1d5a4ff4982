"""Coastlines in index space: where the coasts and borders of Natural Earth run between a grid's cells.

A curvilinear grid gives latitude and longitude by index; the inverse is found by Newton's method on the unit sphere, where
neither the date line nor a pole is special.
"""

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from advectio.pictures import grids
from advectio.pictures.coastlines import world

Floats = npt.NDArray[np.float64]
NAMES = (("XLAT", "XLONG"), ("XLAT_M", "XLONG_M"), ("lat", "lon"), ("latitude", "longitude"), ("nav_lat", "nav_lon"))
COARSE = 24  # nodes a side among which the first guess is looked for
STEPS = 8


def positions(dataset: xr.Dataset) -> tuple[Floats, Floats] | None:
    """Latitude and longitude of the cells, [y, x] in degrees; None where the data has none, or the same one everywhere."""
    names = [pair for pair in NAMES if all(name in dataset.variables for name in pair)]
    names += [pair for pair in [_by_units(dataset)] if pair]
    for latitude, longitude in names:
        lat, lon = (np.asarray(dataset.variables[n].values, np.float64) for n in (latitude, longitude))
        if lat.ndim == 3:  # of a file that repeats them in every record
            lat, lon = lat[0], lon[0]
        if lat.ndim == 1 and lon.ndim == 1:
            lat, lon = (np.ascontiguousarray(a) for a in np.meshgrid(lat, lon, indexing="ij"))
        if lat.ndim != 2 or lat.shape != lon.shape or min(lat.shape) < 2:
            continue
        if np.abs(lat).max() <= 90.5 and np.ptp(lat) > 1e-6 and np.ptp(lon) > 1e-6:  # no in idealised runs: all zero
            return lat, lon
    return _by_mapping(dataset)


def _by_mapping(dataset: xr.Dataset) -> tuple[Floats, Floats] | None:
    """Of a file that has its places as x and y of CF's `grid_mapping` only. Needs Cartopy."""
    for variable in dataset.variables.values():
        if "grid_mapping" in variable.attrs and variable.ndim >= 2:
            found = grids.places_by_mapping(dataset, (str(variable.dims[-2]), str(variable.dims[-1])))
            if found is not None and np.isfinite(found).all():
                return found
    return None


def _by_units(dataset: xr.Dataset) -> tuple[str, str] | None:
    found: dict[str, str] = {}
    for name, variable in dataset.variables.items():
        units = str(variable.attrs.get("units", "")).lower().replace("degrees", "degree")
        if units in ("degree_north", "degree_east") and variable.ndim in (1, 2):
            found.setdefault(units, str(name))
    return (found["degree_north"], found["degree_east"]) if len(found) == 2 else None


def lines(lat: Floats, lon: Floats) -> list[Floats]:
    """The lines [[x, y], …] that cross the grid; cell (0, 0) has its centre at (0.5, 0.5)."""
    grid = _on_sphere(lat, lon)
    coasts, ends = _world()
    # Only what lies within the circle around the grid, and a little more.
    middle = grid.mean(axis=(0, 1))
    middle /= np.linalg.norm(middle) or 1.0
    near = coasts @ middle >= (grid @ middle).min() - 0.02
    chosen = np.flatnonzero(near)
    if not len(chosen):
        return []
    found = _indices(grid, coasts[chosen])
    rows, columns = lat.shape
    margin = 0.5
    inside = (found[:, 0] > -margin - 1) & (found[:, 0] < columns - 1 + margin + 1)
    inside &= (found[:, 1] > -margin - 1) & (found[:, 1] < rows - 1 + margin + 1)
    chosen, found = chosen[inside], found[inside] + 0.5
    # A line is broken where points are missing, where a line of the map ends, and at the seam of a globe.
    line = np.searchsorted(ends, chosen, side="right")
    breaks = (
        (np.diff(chosen) != 1) | (np.diff(line) != 0) | (np.abs(np.diff(found, axis=0)).max(axis=1) > max(rows, columns) / 4)
    )
    return [piece for piece in np.split(found, np.flatnonzero(breaks) + 1) if len(piece) > 1]


def _indices(grid: Floats, points: Floats) -> Floats:
    """(x, y) of each point, as indices of nodes; NaN where Newton's method does not end at the point."""
    rows, columns = grid.shape[:2]
    at_y = np.linspace(0, rows - 1, min(rows, COARSE)).round().astype(int)
    at_x = np.linspace(0, columns - 1, min(columns, COARSE)).round().astype(int)
    coarse = grid[np.ix_(at_y, at_x)].reshape(-1, 3)
    nearest = np.concatenate([(part @ coarse.T).argmax(axis=1) for part in np.array_split(points, len(points) // 4096 + 1)])
    y, x = at_y[nearest // len(at_x)].astype(float), at_x[nearest % len(at_x)].astype(float)
    for _ in range(STEPS):
        here, along_x, along_y = _surface(grid, x, y)
        miss = points - here
        # Least squares in two unknowns: the normal equations, by hand.
        a, b, c = (along_x * along_x).sum(1), (along_x * along_y).sum(1), (along_y * along_y).sum(1)
        p, q = (along_x * miss).sum(1), (along_y * miss).sum(1)
        determinant = a * c - b * b
        determinant[determinant == 0] = np.inf
        x = np.clip(x + (c * p - b * q) / determinant, -3, columns + 2)
        y = np.clip(y + (a * q - b * p) / determinant, -3, rows + 2)
    here, along_x, along_y = _surface(grid, x, y)
    cell = np.sqrt(np.maximum((along_x**2).sum(1), (along_y**2).sum(1)))
    hit = np.linalg.norm(points - here, axis=1) < cell
    return np.where(hit[:, None], np.stack([x, y], axis=1), np.nan)


def _surface(grid: Floats, x: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
    """Bilinear in the cell at (x, y), beyond the edge as in the last cell: the position, and its change along x and y."""
    rows, columns = grid.shape[:2]
    i, j = np.clip(np.floor(x), 0, columns - 2).astype(int), np.clip(np.floor(y), 0, rows - 2).astype(int)
    s, t = (x - i)[:, None], (y - j)[:, None]
    sw, se, nw, ne = grid[j, i], grid[j, i + 1], grid[j + 1, i], grid[j + 1, i + 1]
    along_x = (se - sw) * (1 - t) + (ne - nw) * t
    along_y = (nw - sw) * (1 - s) + (ne - se) * s
    return sw + (se - sw) * s + ((nw - sw) + (ne - nw - se + sw) * s) * t, along_x, along_y


def _on_sphere(lat: Floats, lon: Floats) -> Floats:
    phi, lam = np.radians(lat), np.radians(lon)
    return np.stack([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)], axis=-1)


@functools.cache
def _world() -> tuple[Floats, npt.NDArray[Any]]:
    """All coasts and borders as points on the unit sphere, and where each line ends."""
    all_lines, _ = world()
    degrees = np.concatenate(all_lines)
    return _on_sphere(degrees[:, 1], degrees[:, 0]), np.cumsum([len(line) for line in all_lines])
