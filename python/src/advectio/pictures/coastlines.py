"""Coasts and borders that need no download: Natural Earth at 1:50 million, in the package (scripts/make_coastlines.py)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_FILE = Path(__file__).with_name("coastlines.npz")


@cache
def world() -> tuple[Sequence[np.ndarray], Sequence[bool]]:
    """Lines, [point][longitude, latitude] in degrees; and which are borders."""
    import numpy as np

    with np.load(_FILE) as file:
        ends = np.cumsum(file["lengths"])[:-1]
        arcs = np.split(file["steps"], ends)
        lines: list[np.ndarray] = []
        borders: list[bool] = []
        for arc, border in zip(arcs, file["border"].tolist(), strict=True):
            line = np.cumsum(arc, axis=0) * file["scale"] + file["translate"]
            # Where the map of the world is cut there is no coast: the date line, the pole.
            cut = (np.abs(line[:, 0]) > 179.99) | (line[:, 1] < -89.9)
            seams = np.flatnonzero(cut[:-1] & cut[1:]) + 1
            pieces = [piece for piece in np.split(line, seams) if len(piece) > 1]
            lines += pieces
            borders += [border] * len(pieces)
        return lines, borders


def lines_within(box: tuple[float, float, float, float], borders: bool) -> list[np.ndarray]:
    """Coasts, or borders, that touch (west, east, south, north); longitudes are those of the box, also beyond ±180."""
    import numpy as np

    west, east, south, north = box
    lines, are_borders = world()
    found = []
    for line, is_border in zip(lines, are_borders, strict=True):
        if is_border != borders or line[:, 1].max() < south or line[:, 1].min() > north:
            continue
        for turn in (-360.0, 0.0, 360.0):
            if line[:, 0].max() + turn >= west and line[:, 0].min() + turn <= east:
                found.append(line + np.asarray([turn, 0.0]))
    return found
