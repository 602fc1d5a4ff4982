"""Pictures of the storm that squall has made, drawn from its history files: maps, a cross-section, an animation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import netCDF4
import numpy as np
from matplotlib.animation import FuncAnimation, PillowWriter
from matplotlib.colors import BoundaryNorm, ListedColormap

# Reflectivity in steps of 5 dBZ, in the order of colours that radar displays use.
LEVELS = np.arange(5, 80, 5)
COLOURS = ["#9be3f0", "#4ab4e6", "#1f6fd0", "#1fa84a", "#0f7d33", "#0a5a24", "#f6e34a", "#e8b32a", "#f08a1c", "#e53b23", "#b81c1c", "#8a1010", "#d14fd1", "#7a3fb0"]  # fmt: skip
RADAR = ListedColormap(COLOURS)
RADAR.set_under((1, 1, 1, 0))
RADAR.set_over("#4a2a7a")
NORM = BoundaryNorm(LEVELS, RADAR.N)
GRAVITY = 9.81
SHOWN = 52.0  # km from the middle
CLOUD = 1e-4  # kg/kg: what counts as cloud


def minute(path: Path) -> str:
    """Hours and minutes of the run, from the date in the name."""
    return path.name[-8:-3]


def _read(path: Path, *names: str) -> dict[str, Any]:
    with netCDF4.Dataset(path) as file:
        file.set_auto_mask(False)
        found: dict[str, Any] = {name: file[name][0] for name in names}
        found["dx"] = float(file.DX) / 1000
    return found


def _axes(shape: tuple[int, ...], dx: float) -> tuple[np.ndarray, np.ndarray]:
    ny, nx = shape
    return (np.arange(nx) + 0.5 - nx / 2) * dx, (np.arange(ny) + 0.5 - ny / 2) * dx


def _map(axis: Any, path: Path) -> Any:
    f = _read(path, "REFD_COM", "W", "U10", "V10")
    x, y = _axes(f["REFD_COM"].shape, f["dx"])
    drawn = axis.pcolormesh(x, y, f["REFD_COM"], cmap=RADAR, norm=NORM, shading="nearest", rasterized=True)
    updraft = f["W"].max(axis=0)
    if updraft.max() > 5:
        axis.contour(x, y, updraft, levels=[5, 15, 25], colors="black", linewidths=0.9)
    step = max(1, round(8 / f["dx"]))
    half = step // 2
    axis.quiver(
        x[half::step], y[half::step], f["U10"][half::step, half::step], f["V10"][half::step, half::step],
        color="#555555", scale=450, width=0.0025,
    )  # fmt: skip
    axis.set_aspect("equal")
    edge = min(SHOWN, x[-1])
    axis.set_xlim(-edge, edge)
    axis.set_ylim(-edge, edge)
    axis.set_title(f"{minute(path)}   w ≤ {updraft.max():.0f} m/s", loc="left", fontsize=10)
    axis.set_xlabel("km")
    return drawn


def maps(files: Sequence[Path], to: Path) -> None:
    figure, axes = plt.subplots(1, len(files), figsize=(4.4 * len(files) + 1, 5.3), sharey=True, constrained_layout=True)
    for axis, path in zip(np.atleast_1d(axes), files, strict=True):
        drawn = _map(axis, path)
    np.atleast_1d(axes)[0].set_ylabel("km")
    figure.colorbar(drawn, ax=axes, label="composite reflectivity (dBZ)", extend="max", shrink=0.85)
    figure.suptitle(
        "A storm that splits: reflectivity, updraft (5, 15, 25 m/s), wind at the lowest level", x=0.01, ha="left", fontsize=11
    )
    figure.savefig(to, dpi=110)
    plt.close(figure)


def cross_section(path: Path, to: Path) -> None:
    f = _read(path, "REFL_10CM", "QCLOUD", "W", "PHB", "QRAIN")
    w = 0.5 * (f["W"][1:] + f["W"][:-1])
    _, row, _ = np.unravel_index(int(np.argmax(w)), w.shape)
    height = (f["PHB"] / GRAVITY / 1000).mean(axis=(1, 2))
    z = 0.5 * (height[1:] + height[:-1])
    x, y = _axes(w.shape[1:], f["dx"])
    figure, axis = plt.subplots(figsize=(9, 4.6), constrained_layout=True)
    drawn = axis.contourf(x, z, f["REFL_10CM"][:, row], levels=LEVELS, colors=COLOURS, extend="max")
    axis.contour(x, z, f["QCLOUD"][:, row], levels=[CLOUD], colors="black", linewidths=1.6)
    axis.contour(x, z, w[:, row], levels=np.arange(5, 60, 5), colors="#8a1010", linewidths=0.8)
    axis.contour(x, z, w[:, row], levels=np.arange(-30, 0, 5), colors="#1f4fa0", linewidths=0.8, linestyles="--")
    near = np.abs(x - x[int(np.argmax(w[:, row].max(axis=0)))]) < 40
    axis.set_xlim(x[near][0], x[near][-1])
    axis.set_ylim(0, min(16, z[-1]))
    axis.set_xlabel("km")
    axis.set_ylabel("height (km)")
    handles = [plt.Line2D([], [], color=c, linestyle=s) for c, s in (("black", "-"), ("#8a1010", "-"), ("#1f4fa0", "--"))]
    axis.legend(handles, ["cloud water 0.1 g/kg", "w up, every 5 m/s", "w down"], loc="upper right", fontsize=8)
    figure.colorbar(drawn, label="reflectivity (dBZ)")
    axis.set_title(
        f"{minute(path)}: west to east through the strongest updraft ({w.max():.0f} m/s), at {y[row]:+.0f} km",
        loc="left",
        fontsize=10,
    )
    figure.savefig(to, dpi=110)
    plt.close(figure)


def animation(files: Sequence[Path], to: Path, told: Callable[[int], None]) -> None:
    figure, axis = plt.subplots(figsize=(5.2, 4.6), constrained_layout=True)
    figure.colorbar(plt.cm.ScalarMappable(NORM, RADAR), ax=axis, label="composite reflectivity (dBZ)", extend="max")

    def draw(i: int) -> list[Any]:
        axis.clear()
        _map(axis, files[i])
        told(i + 1)
        return []

    FuncAnimation(figure, draw, frames=len(files), init_func=lambda: []).save(to, writer=PillowWriter(fps=6), dpi=80)
    plt.close(figure)


def waiting(plain: Sequence[float], carried: Sequence[float], minutes: Sequence[float], to: Path) -> None:
    """What each frame kept the model from computing (s), plainly and under Advectio."""
    figure, axis = plt.subplots(figsize=(9, 3.2), constrained_layout=True)
    axis.plot(minutes, plain, color="#d1813c", marker=".", label="plain netCDF")
    axis.plot(minutes, carried, color="#1b6ca8", marker=".", label="under Advectio")
    axis.set_ylim(bottom=0)
    axis.set_xlabel("minute of the storm")
    axis.set_ylabel("s a frame")
    axis.set_title("How long each frame, gathering included, kept the model from computing", loc="left", fontsize=10)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=2,
        frameon=False,
        borderaxespad=0.2,
        fontsize=9,
        handlelength=1.2,
        columnspacing=1,
    )
    figure.savefig(to, dpi=110)
    plt.close(figure)
