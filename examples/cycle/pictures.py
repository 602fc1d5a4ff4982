"""Pictures of the experiment: errors over the cycles, and maps of nature, no assimilation and the analysis."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

COLOURS = {"free": "#8c8c8c", "forecast": "#d1813c", "analysis": "#1b6ca8"}
TITLES = {"free": "no assimilation", "forecast": "forecast", "analysis": "analysis"}


def errors(found: dict[str, list[dict[str, float]]], hours: float, to: Path) -> None:
    figure, axes = plt.subplots(2, 1, figsize=(9, 6.4), sharex=True, constrained_layout=True)
    for axis, what, label in zip(axes, ("wind", "interface"), ("wind (m/s)", "height of the interface (m)"), strict=True):
        for name, values in found.items():
            days = [(n + 1) * hours / 24 for n in range(len(values))]
            axis.plot(
                days,
                [v[what] for v in values],
                color=COLOURS[name],
                marker="o",
                markersize=3.5,
                linewidth=1.8,
                label=TITLES[name],
            )
            axis.plot(days, [v[f"{what}_spread"] for v in values], color=COLOURS[name], linewidth=1, linestyle=":")
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
        axis.set_xlim(0, days[-1] * 1.01)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[0].get_legend_handles_labels()
    handles.append(plt.Line2D([], [], color="#555555", linewidth=1, linestyle=":"))
    axes[0].legend(handles, [*labels, "dotted: the ensemble's spread"], loc="center right", frameon=False, fontsize=9)
    axes[1].set_xlabel("days")
    figure.suptitle("How far the ensemble's mean is from nature (root mean square)", x=0.01, ha="left", fontsize=12)
    figure.savefig(to, dpi=120)
    plt.close(figure)


def vorticity(state: dict[str, np.ndarray], dx: float) -> np.ndarray:
    """Relative vorticity of the upper layer at the corners between cells, 1/s. The first column is the last: x is periodic."""
    u, v = state["U"][0], state["V"][0]
    corners = ((np.roll(v, -1, axis=1) - v)[:-1] - (u[1:] - u[:-1])) / dx
    return np.concatenate([corners[:, -1:], corners], axis=1)


def maps(
    states: Sequence[tuple[str, dict[str, np.ndarray]]],
    stations: tuple[np.ndarray, np.ndarray],
    dx_km: float,
    title: str,
    to: Path,
) -> None:
    """`stations`: x and y, km, drawn in the last map."""
    ny, nx = states[0][1]["H"][0].shape
    height = 7.2 * ny / nx + 0.45  # inches of a map and its title
    figure, axes = plt.subplots(len(states), 1, figsize=(9, height * len(states) + 0.7), sharex=True, constrained_layout=True)
    x, y = (np.arange(nx) + 0.5) * dx_km / 1000, (np.arange(ny) + 0.5) * dx_km / 1000
    corner_x, corner_y = np.arange(nx + 1) * dx_km / 1000, (np.arange(ny - 1) + 1) * dx_km / 1000
    most = 1e5 * float(np.percentile(np.abs(vorticity(states[0][1], dx_km * 1e3)), 99.5))
    drawn: Any = None
    for axis, (name, state) in zip(axes, states, strict=True):
        drawn = axis.pcolormesh(
            corner_x,
            corner_y,
            1e5 * vorticity(state, dx_km * 1e3),
            cmap="RdBu_r",
            vmin=-most,
            vmax=most,
            shading="gouraud",
            rasterized=True,
        )
        axis.contour(x, y, state["H"][0] / 1000, levels=np.arange(1, 12, 0.6), colors="#333333", linewidths=0.7)
        step = max(2, nx // 24)
        u, v = state["U"][0], state["V"][0]
        axis.quiver(
            x[step // 2 :: step], y[step // 2 :: step], u[step // 2 :: step, step // 2 :: step], v[step // 2 :: step, step // 2 :: step],
            color="#222222", scale=900, width=0.0016, alpha=0.75,
        )  # fmt: skip
        axis.set_aspect("equal")
        axis.set_xlim(0, nx * dx_km / 1000)
        axis.set_ylim(0, ny * dx_km / 1000)
        axis.set_ylabel("1000 km")
        axis.set_title(name, loc="left", fontsize=10)
    axes[-1].plot(stations[0] / 1000, stations[1] / 1000, linestyle="none", marker=".", markersize=3.5, color="#0a7d32")
    axes[-1].set_xlabel("1000 km")
    figure.colorbar(drawn, ax=axes, label="vorticity (10⁻⁵ s⁻¹)", shrink=0.5, aspect=30, extend="both")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    figure.savefig(to, dpi=120)
    plt.close(figure)
