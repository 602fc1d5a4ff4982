"""One picture of one frame. Written under another name and renamed, so that who looks sees whole pictures."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from advectio.errors import UserError
from advectio.needs import for_pictures
from advectio.pictures import coastlines, grids, looks, values
from advectio.pictures.frames import Frame, Moment
from advectio.pictures.recipes import Percentiles, Plot

if TYPE_CHECKING:
    import datetime

    import numpy as np

WIDTH_INCHES = 8.0
# Okabe and Ito's: told apart by the colour-blind too.
LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
ARROWS_ACROSS = 22


@dataclass(frozen=True)
class Drawn:
    """What is in a picture."""

    path: str
    minimum: float
    maximum: float
    units: str


@dataclass(frozen=True)
class Scale:
    """Steps of the colours."""

    levels: Sequence[float]
    extend: str  # neither, min, max, both

    @property
    def even(self) -> bool:
        steps = [b - a for a, b in pairwise(self.levels)]
        return max(steps) < 2.5 * min(steps)  # about zero, which has no step of its own, one is twice as wide


def scale_of(plot: Plot, look: looks.Look, low: float, high: float, sample: Sequence[float] = ()) -> Scale:
    """Of a plot whose values go from low to high over all frames it is drawn for. `sample`: some of them, from all frames."""
    import numpy as np

    if isinstance(plot.range, Percentiles):
        ends = np.percentile(sample, plot.range) if len(sample) else [low, high]
        levels = looks.nice_levels(float(ends[0]), float(ends[1]), look)
    elif plot.levels is not None:
        levels = np.asarray(plot.levels, dtype=float)
    elif plot.range is not None:
        levels = looks.nice_levels(*plot.range, looks.Look())
        # Round numbers within, and the ends as they were asked for.
        inner = levels[(levels > plot.range[0]) & (levels < plot.range[1])]
        levels = np.concatenate([[plot.range[0]], inner, [plot.range[1]]])
    elif look.levels is not None:
        levels = np.asarray(look.levels, dtype=float)
    else:
        levels = looks.nice_levels(low, high, look, sample=sample)
    below, above = low < levels[0] and not look.hide_below, high > levels[-1]
    return Scale(levels.tolist(), {(0, 0): "neither", (1, 0): "min", (0, 1): "max", (1, 1): "both"}[int(below), int(above)])


def _colours(plot: Plot, look: looks.Look, scale: Scale) -> tuple[Any, Any]:
    from matplotlib.colors import BoundaryNorm, ListedColormap

    base = looks.palette(plot.colour_map or look.colour_map)
    below, above = scale.extend in ("min", "both"), scale.extend in ("max", "both")
    bands = len(scale.levels) - 1
    total = bands + below + above
    # The palest of a palette is hard to see on white, where the field begins at nothing.
    first = 0.08 if look.hide_below else 0.0
    if look.spans is not None and plot.colour_map in (None, look.colour_map):
        return _colours_by_value(looks.OWN_PALETTES[look.colour_map], look.spans, scale)
    colours = [base(first + (1 - first) * (i / max(total - 1, 1))) for i in range(total)]
    colour_map = ListedColormap(colours[below : below + bands]).with_extremes(
        under=(1, 1, 1, 0) if look.hide_below else colours[0], over=colours[-1]
    )
    return colour_map, BoundaryNorm(scale.levels, bands)


def _colours_by_value(palette: Sequence[str], spans: tuple[float, float], scale: Scale) -> tuple[Any, Any]:
    """35 dBZ is yellow, whatever the range is."""
    from matplotlib.colors import BoundaryNorm, ListedColormap

    def colour(value: float) -> str:
        place = (value - spans[0]) / (spans[1] - spans[0]) * len(palette)
        return palette[min(len(palette) - 1, max(0, int(place)))]

    bands = [colour((a + b) / 2) for a, b in pairwise(scale.levels)]
    colour_map = ListedColormap(bands).with_extremes(under=(1, 1, 1, 0), over=colour(scale.levels[-1]))
    return colour_map, BoundaryNorm(scale.levels, len(bands))


def save(figure: Any, path: str, dpi: int) -> None:
    """Whole, or not at all."""
    directory, name = os.path.split(path)
    os.makedirs(directory or ".", exist_ok=True)
    partial = os.path.join(directory, f".{name}.{os.getpid()}.part")
    try:
        figure.savefig(partial, format="png", dpi=dpi)
        os.replace(partial, path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}", 1) from error
    finally:
        if os.path.exists(partial):
            os.unlink(partial)


def _plain() -> Any:
    """Matplotlib's own axes: what is drawn is projected already, and Cartopy would do it again, cell by cell (a minute)."""
    from matplotlib.axes import Axes

    return Axes


def _figure(height: float, width: float = WIDTH_INCHES) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def names_of(plot: Plot, frame: Frame, label: str, units: str, level: str, default_time: str) -> dict[str, Any]:
    """What a template may name."""
    return {
        "name": plot.name, "field": plot.field.name, "label": label, "units": units, "level": level, "kind": plot.kind,
        "time": Moment(frame.when, default_time) if frame.when else f"frame{frame.number:04d}",
        "lead": frame.lead_text, "frame": frame.number, "domain": frame.domain, "source": frame.stem,
    }  # fmt: skip


def file_name(plot: Plot, frame: Frame) -> str:
    names = names_of(plot, frame, "", "", str(plot.level or ""), "%Y-%m-%d_%H%M%S")
    if plot.file is not None:
        return _filled(plot, "file", plot.file, names)
    parts = [frame.domain, plot.name] + ([] if plot.kind == "series" else [f"{names['time']}"])
    return "_".join(part for part in parts if part) + ".png"


def _filled(plot: Plot, key: str, template: str, names: dict[str, Any]) -> str:
    try:
        return template.format_map(names)
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{plot.origin}: {key} '{template}': {error}") from error


def _titles(axes: Any, plot: Plot, frame: Frame, field: values.Field, level: str) -> None:
    parts = [field.label] + ([level] if level else [])
    left = ", ".join(parts)
    if plot.title is not None:
        left = _filled(plot, "title", plot.title, names_of(plot, frame, field.label, field.units, level, "%Y-%m-%d %H:%M"))
    right = "" if plot.title is not None and ("{time" in plot.title or "{lead" in plot.title) else frame.time_text
    # Both titles are on one line where they fit, else the right one is above.
    two_lines = len(left) + len(right) > 72 and bool(right)
    axes.set_title(f"{right}\n{left}" if two_lines else left, loc="left", fontsize=10.5)
    if not two_lines:
        axes.set_title(right, loc="right", fontsize=10.5)
    # An axes of equal scales is moved after its titles have been given their room: they would be cut.
    axes.figure.get_layout_engine().set(h_pad=0.2 if two_lines else 0.09)


def _footer(figure: Any, frame: Frame, shown: np.ndarray, units: str, note: str = "") -> tuple[float, float]:
    import numpy as np

    finite = shown[np.isfinite(shown)]
    if not finite.size:
        low = high = float("nan")
        text = "no value anywhere"
    else:
        low, high = float(finite.min()) + 0.0, float(finite.max()) + 0.0  # no -0
        text = f"min {low:.4g} · mean {float(finite.mean()):.4g} · max {high:.4g} {units}"
    source = os.path.basename(frame.source)
    figure.supxlabel(
        " · ".join(part for part in (text, note, source) if part), fontsize=7.5, color="#555555", x=0.01, ha="left"
    )
    return low, high


def _scale_notes(plot: Plot, field: values.Field, scale: Scale) -> list[str]:
    if isinstance(plot.range, Percentiles):
        return [f"colours: percentiles {plot.range[0]:g} to {plot.range[1]:g}"]
    ours = plot.levels is None and plot.range is None and field.look.levels is None
    return [] if scale.even or not ours else ["steps are finer where most values lie"]


def _colour_bar(figure: Any, axes: Any, drawn: Any, scale: Scale, field: values.Field, horizontal: bool) -> None:
    bar = figure.colorbar(
        drawn,
        ax=axes,
        extend=scale.extend,
        orientation="horizontal" if horizontal else "vertical",
        shrink=0.9,
        aspect=38 if horizontal else 28,
        pad=0.02,
    )
    every = max(1, -(-len(scale.levels) // 16))
    ticks = scale.levels[::every]
    bar.set_ticks(ticks, labels=[f"{tick:.6g}" for tick in ticks])
    bar.ax.tick_params(labelsize=8.5)
    bar.set_label(field.units or field.name, fontsize=9.5)


def _contours(axes: Any, plot: Plot, x: Any, y: Any, shown: np.ndarray, units: str) -> str:
    """Lines of the second field; what they are, for the foot of the picture."""
    import numpy as np
    from matplotlib.patheffects import Normal, Stroke

    assert plot.contours is not None
    finite = shown[np.isfinite(shown)]
    name = plot.contours.expression.name
    look = looks.look_of(re.sub(r"^column_(max|min|mean)_", "", name), units)
    if not finite.size:
        return ""
    every = plot.contours.every
    if every is None:
        levels = looks.nice_levels(float(finite.min()), float(finite.max()), looks.Look(), 8)
        every = float(levels[1] - levels[0])
    else:
        first = np.floor(finite.min() / every)
        number = int(np.ceil(finite.max() / every) - first) + 1
        if number > 200:
            raise UserError(f"{plot.origin}: contours every {every:g} {units} would be {number} lines")
        levels = (first + np.arange(number)) * every
    if look.symmetric:
        levels = levels[levels != 0]  # where nothing is, its line only wanders
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the field is the same everywhere: no lines
        lines = _plain().contour(axes, x, y, shown, levels=levels, colors="#111111", linewidths=1.0, zorder=4)
    labels = axes.clabel(lines, fontsize=7, fmt="%g")
    halo = [Stroke(linewidth=2.4, foreground="white"), Normal()]  # dark lines are seen on dark colours too
    lines.set_path_effects(halo)
    for label in labels:
        label.set_path_effects(halo)
    return f"lines: {name} every {every:g} {units}".rstrip()


# --- maps -----------------------------------------------------------------------------------------------------------------


def cartopy_there() -> bool:
    try:
        import cartopy.crs  # noqa: F401
    except ImportError:
        return False
    return True


def draw_map(plot: Plot, frame: Frame, shown: values.Map, scale: Scale, path: str) -> Drawn:
    import numpy as np

    if shown.place is None:
        x = grids.plain_axis(frame.ds, shown.dims[1], shown.values.shape[1])
        y = grids.plain_axis(frame.ds, shown.dims[0], shown.values.shape[0])
        grid_x, grid_y = np.meshgrid(x.values, y.values)
        figure, axes, horizontal = _plain_axes(x, y)
    elif cartopy_there():
        figure, axes, horizontal, grid_x, grid_y = _projected_axes(frame, shown.dims, *shown.place)
    else:
        figure, axes, horizontal, grid_x, grid_y = _degree_axes(*shown.place)
    colour_map, norm = _colours(plot, shown.field.look, scale)
    drawn = _plain().pcolormesh(
        axes,
        grid_x,
        grid_y,
        np.ma.masked_invalid(shown.values),
        cmap=colour_map,
        norm=norm,
        shading="nearest",
        rasterized=True,
        zorder=1,
    )
    notes = _scale_notes(plot, shown.field, scale)
    if plot.contours is not None:
        second = _second_map(plot, frame)
        if second.values.shape != shown.values.shape:
            raise UserError(
                f"{plot.origin}: {second.field.name} lies on other points than {shown.field.name}; write destagger(…)"
            )
        notes.append(_contours(axes, plot, grid_x, grid_y, second.values, second.field.units))
    if plot.wind is not None:
        notes.append(_arrows(axes, plot, frame, shown, grid_x, grid_y))
    _titles(axes, plot, frame, shown.field, shown.level)
    _colour_bar(figure, axes, drawn, scale, shown.field, horizontal)
    low, high = _footer(figure, frame, shown.values, shown.field.units, " · ".join(note for note in notes if note))
    save(figure, path, plot.dpi)
    return Drawn(path, low, high, shown.field.units)


def _second_map(plot: Plot, frame: Frame) -> values.Map:
    assert plot.contours is not None
    field = values.field_of(plot.contours.expression, frame, replace(plot, units=None), plot.contours.units)
    level = plot.level if grids.vertical_dimension(field.array) is not None else None
    return values.map_of(replace(plot, units=None, level=level), frame, plot.contours.expression, plot.contours.units)


def _arrows(axes: Any, plot: Plot, frame: Frame, shown: values.Map, grid_x: np.ndarray, grid_y: np.ndarray) -> str:
    import numpy as np
    from matplotlib.patheffects import Normal, Stroke

    from advectio.pictures.expressions import destaggered

    assert plot.wind is not None
    parts = []
    along_meridians = False
    for each in (plot.wind.u, plot.wind.v):
        bare = replace(plot, units=None)
        field = values.field_of(each, frame, bare, None)
        field = replace(field, array=destaggered(field.array))
        level = plot.level if grids.vertical_dimension(field.array) is not None else None
        parts.append(values._level(field, level, frame, bare)[0])
        along_meridians = str(field.array.attrs.get("standard_name", "")).startswith(("eastward", "northward"))
    u, v = parts
    if u.shape != shown.values.shape or v.shape != shown.values.shape:
        raise UserError(f"{plot.origin}: {plot.wind.u.name} and {plot.wind.v.name} lie on other points than {shown.field.name}")
    if along_meridians and shown.place is not None:
        u, v = _from_east_and_north(axes, u, v, *shown.place)
    else:
        u, v = _turned(axes, u, v, grid_x, grid_y)
    step = max(1, round(max(u.shape) / ARROWS_ACROSS))
    cut = (slice(step // 2, None, step), slice(step // 2, None, step))
    speed = np.hypot(u, v)
    if not np.nanmax(speed, initial=0.0) > 0:
        return f"no wind in {plot.wind.u.name}, {plot.wind.v.name}"
    usual = float(np.nanpercentile(speed, 95))
    reference = next((r for r in (0.5, 1, 2, 3, 5, 8, 10, 15, 20, 25, 30, 40, 50, 60, 80) if r >= usual), 100.0)
    # An arrow of the reference is a little shorter than a step: those of one row stay apart.
    quiver = _plain().quiver(
        axes,
        grid_x[cut], grid_y[cut], u[cut], v[cut], scale=reference * max(u.shape) / step / 0.9, width=0.0022,
        color="#111111", pivot="middle", zorder=5,
    )  # fmt: skip
    quiver.set_path_effects([Stroke(linewidth=1.6, foreground="white"), Normal()])
    axes.quiverkey(quiver, 0.96, -0.045, reference, f"{reference:g} {field.units}", labelpos="W", fontproperties={"size": 8})
    return f"arrows: {plot.wind.u.name}, {plot.wind.v.name}"


def _turned(axes: Any, u: np.ndarray, v: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Components along the grid, as models have them, as components along the edges of the picture."""
    import numpy as np

    aspect = axes.get_aspect()
    stretch = aspect if isinstance(aspect, float) else 1.0
    along_x, along_y = np.gradient(x, axis=1), np.gradient(y, axis=1) * stretch
    up_x, up_y = np.gradient(x, axis=0), np.gradient(y, axis=0) * stretch
    across, up = np.hypot(along_x, along_y), np.hypot(up_x, up_y)
    return u * along_x / across + v * up_x / up, u * along_y / across + v * up_y / up


def _from_east_and_north(
    axes: Any, u: np.ndarray, v: np.ndarray, latitude: np.ndarray, longitude: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same of components that CF calls eastward and northward, whatever the grid is."""
    import numpy as np

    if not hasattr(axes, "projection"):
        return u, v  # the edges are meridians and parallels
    import cartopy.crs as ccrs

    degrees = ccrs.PlateCarree(globe=axes.projection.globe)
    step = np.where(latitude > 0, -1e-3, 1e-3)  # away from the pole

    def place(lon: np.ndarray, lat: np.ndarray) -> np.ndarray:
        found: np.ndarray = axes.projection.transform_points(degrees, lon, lat)[..., :2]
        return found

    here = place(longitude, latitude)
    east = place(longitude + 1e-3, latitude) - here
    north = (place(longitude, latitude + step) - here) * np.sign(step)[..., None]
    east, north = (each / np.maximum(np.hypot(each[..., 0], each[..., 1]), 1e-30)[..., None] for each in (east, north))
    return u * east[..., 0] + v * north[..., 0], u * east[..., 1] + v * north[..., 1]


def _size(width: float, height: float) -> tuple[float, bool]:
    """Inches high, and whether the colour bar lies below: a wide map has it there."""
    ratio = height / width
    if ratio < 0.62:
        return min(9.0, max(3.6, (WIDTH_INCHES - 1.0) * ratio + 2.0)), True
    return min(10.0, max(4.0, (WIDTH_INCHES - 1.8) * ratio + 1.2)), False


def _plain_axes(x: grids.Axis, y: grids.Axis) -> tuple[Any, Any, bool]:
    import numpy as np

    across, up = float(np.ptp(x.values)) or 1.0, float(np.ptp(y.values)) or 1.0
    same = x.label.endswith("(km)") == y.label.endswith("(km)") and 0.2 < up / across < 5
    height, horizontal = _size(across, up if same else 0.7 * across)
    figure = _figure(height)
    axes = figure.add_subplot()
    if same:
        axes.set_aspect("equal")
    axes.set_xlabel(x.label, fontsize=9)
    axes.set_ylabel(y.label, fontsize=9)
    axes.tick_params(labelsize=8.5)
    return figure, axes, horizontal


def _degree_axes(latitude: np.ndarray, longitude: np.ndarray) -> tuple[Any, Any, bool, np.ndarray, np.ndarray]:
    """Without Cartopy: longitude and latitude as they are, stretched so that a circle looks like one in the middle."""
    import numpy as np
    from matplotlib.collections import LineCollection

    squeeze = 1 / max(0.2, float(np.cos(np.deg2rad(latitude.mean()))))
    height, horizontal = _size(float(np.ptp(longitude)), float(np.ptp(latitude)) * squeeze)
    figure = _figure(height)
    axes = figure.add_subplot()
    axes.set_aspect(squeeze)
    box = (float(longitude.min()), float(longitude.max()), float(latitude.min()), float(latitude.max()))
    for borders in (True, False):
        axes.add_collection(LineCollection(coastlines.lines_within(box, borders), **_line_style(borders)), autolim=False)
    axes.set_xlim(box[0], box[1])
    axes.set_ylim(box[2], box[3])
    axes.grid(color="#888888", linewidth=0.4, linestyle=":", zorder=3)
    axes.xaxis.set_major_formatter(lambda value, _: _degrees((value + 180) % 360 - 180, "E", "W"))
    axes.yaxis.set_major_formatter(lambda value, _: _degrees(value, "N", "S"))
    axes.tick_params(labelsize=8.5)
    return figure, axes, horizontal, longitude, latitude


def _degrees(value: float, positive: str, negative: str) -> str:
    return f"{abs(value):g}°{positive if value > 0 else negative if value < 0 else ''}"


def _line_style(borders: bool) -> dict[str, Any]:
    if borders:
        return {"colors": "#444444", "linewidths": 0.5, "linestyles": "--", "zorder": 3}
    return {"colors": "#111111", "linewidths": 0.9, "zorder": 3}


def _projected_axes(
    frame: Frame, dims: tuple[str, str], latitude: np.ndarray, longitude: np.ndarray
) -> tuple[Any, Any, bool, np.ndarray, np.ndarray]:
    import cartopy.crs as ccrs
    import numpy as np
    from matplotlib.collections import LineCollection

    projection = grids.projection(frame.ds.attrs, latitude, longitude, grids.grid_mapping(frame.ds, dims))
    degrees = ccrs.PlateCarree(globe=projection.globe)

    def projected(lon: np.ndarray, lat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        points = projection.transform_points(degrees, lon, lat)
        return points[..., 0], points[..., 1]

    x, y = projected(longitude, latitude)
    left, right, bottom, top = float(x.min()), float(x.max()), float(y.min()), float(y.max())
    # Half a cell more on each side.
    pad_x, pad_y = (right - left) / max(1, x.shape[1] - 1) / 2, (top - bottom) / max(1, x.shape[0] - 1) / 2
    height, horizontal = _size(right - left, top - bottom)
    figure = _figure(height)
    axes = figure.add_subplot(projection=projection)
    axes.set_xlim(left - pad_x, right + pad_x)
    axes.set_ylim(bottom - pad_y, top + pad_y)
    box = (float(longitude.min()) - 2, float(longitude.max()) + 2, float(latitude.min()) - 2, float(latitude.max()) + 2)
    far = 2 * max(right - left, top - bottom)
    world = projection.x_limits[1] - projection.x_limits[0]
    for borders in (True, False):
        lines = []
        for line in coastlines.lines_within(box, borders):
            points = np.column_stack(projected(line[:, 0], line[:, 1]))
            near = (np.abs(points[:, 0] - (left + right) / 2) < far) & (np.abs(points[:, 1] - (bottom + top) / 2) < far)
            points[~near] = np.nan
            # A line that leaves the map on one side comes back on the other.
            jumps = np.flatnonzero(np.abs(np.diff(points[:, 0])) > world / 2) + 1
            lines.append(np.insert(points, jumps, np.nan, axis=0))
        axes.add_collection(LineCollection(lines, transform=axes.transData, **_line_style(borders)), autolim=False)
    grid = axes.gridlines(
        crs=degrees,
        draw_labels={"bottom": "x", "left": "y"},
        x_inline=False,
        y_inline=False,
        color="#777777",
        linewidth=0.4,
        linestyle=":",
        zorder=3,
    )
    grid.xlabel_style = grid.ylabel_style = {"size": 8.5}
    grid.rotate_labels = False
    return figure, axes, horizontal, x, y


# --- sections -------------------------------------------------------------------------------------------------------------


def draw_section(plot: Plot, frame: Frame, shown: values.Section, scale: Scale, path: str) -> Drawn:
    import numpy as np

    figure = _figure(4.6, 9.0)
    axes = figure.add_subplot()
    colour_map, norm = _colours(plot, shown.field.look, scale)
    along = np.broadcast_to(shown.along.values, shown.values.shape)
    drawn = axes.contourf(
        along,
        shown.up,
        np.ma.masked_invalid(shown.values),
        levels=scale.levels,
        cmap=colour_map,
        norm=norm,
        extend=scale.extend,
    )
    notes = _scale_notes(plot, shown.field, scale)
    if plot.contours is not None:
        bare = replace(plot, units=None)
        second = values.section_of(bare, frame, plot.contours.expression, plot.contours.units)
        if second.values.shape[1] != shown.values.shape[1]:
            raise UserError(
                f"{plot.origin}: {second.field.name} lies on other points than {shown.field.name}; write destagger(…)"
            )
        notes.append(
            _contours(
                axes, plot, np.broadcast_to(second.along.values, second.up.shape), second.up, second.values, second.field.units
            )
        )
    if shown.ground is not None:
        axes.fill_between(
            shown.along.values, min(0.0, float(shown.ground.min())), shown.ground, color="#8c8279", zorder=4, linewidth=0
        )
        axes.set_ylim(bottom=min(0.0, float(shown.ground.min())))
    if plot.top is not None and not shown.upside_down:
        axes.set_ylim(top=min(plot.top, float(np.nanmax(shown.up))))
    else:
        axes.set_ylim(top=float(np.nanmax(shown.up)))
    if shown.upside_down:
        axes.set_ylim(float(np.nanmax(shown.up)), float(np.nanmin(shown.up)))
    axes.set_xlim(float(shown.along.values[0]), float(shown.along.values[-1]))
    axes.set_xlabel(f"{shown.along.label}, {shown.where}", fontsize=9)
    axes.set_ylabel(shown.up_label, fontsize=9)
    axes.tick_params(labelsize=8.5)
    _titles(axes, plot, frame, shown.field, "")
    _colour_bar(figure, axes, drawn, scale, shown.field, horizontal=False)
    seen = values._shown(shown, plot)
    low, high = _footer(figure, frame, seen, shown.field.units, " · ".join(note for note in notes if note))
    save(figure, path, plot.dpi)
    return Drawn(path, low, high, shown.field.units)


# --- series ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """Of a series: one frame."""

    when: datetime.datetime | None
    lead_s: float | None
    number: int
    values: Sequence[float]


def draw_series(plot: Plot, field: values.Field, points: Sequence[Point], last: Frame, path: str) -> Drawn:
    import numpy as np
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    figure = _figure(4.0, 9.0)
    axes = figure.add_subplot()
    real = all(point.when is not None and point.when.year > 1677 for point in points)
    leads = all(point.lead_s is not None for point in points)
    if real:
        x: Any = np.asarray([np.datetime64(point.when) for point in points])
        locator = AutoDateLocator(minticks=2, maxticks=9)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        axes.set_xlabel("time (UTC)", fontsize=9)
    elif leads:
        minutes = np.asarray([float(point.lead_s or 0) / 60 for point in points])
        long = float(minutes.max()) > 360
        x = minutes / 60 if long else minutes
        axes.set_xlabel(f"{'hours' if long else 'minutes'} since the start of the run", fontsize=9)
    else:
        x = np.arange(len(points))
        axes.set_xlabel("frame", fontsize=9)
    table = np.asarray([point.values for point in points], dtype=float)
    for column, at in enumerate(plot.at):
        style = {"color": LINES[column % len(LINES)], "marker": MARKERS[column % len(MARKERS)]}
        axes.plot(x, table[:, column], label=str(at), markersize=4, linewidth=1.6, **style)
    if real and len(points) == 1:  # a running model's first frame: an hour around it
        axes.set_xlim(x[0] - np.timedelta64(30, "m"), x[0] + np.timedelta64(30, "m"))
    if plot.range is not None:
        axes.set_ylim(*plot.range)
    axes.grid(color="#cccccc", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_ylabel(field.units or field.name, fontsize=9.5)
    axes.tick_params(labelsize=8.5)
    axes.legend(fontsize=8.5, frameon=False)
    _titles(axes, plot, last, field, values.series_level_text(plot, field.array, last.ds))
    low, high = _footer(figure, last, table, field.units)
    save(figure, path, plot.dpi)
    return Drawn(path, low, high, field.units)


DRAWERS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "map": (values.map_of, draw_map),
    "section": (values.section_of, draw_section),
}


def look_for(plot: Plot, frame: Frame) -> looks.Look:
    return values.field_of(plot.field, frame, plot).look


def draw(plot: Plot, frame: Frame, path: str, seen: values.Spread | None = None) -> Drawn:
    """A map or a section. `seen`: the values of all frames it is drawn for; default: of this one."""
    for_pictures("matplotlib")
    prepare, drawer = DRAWERS[plot.kind]
    shown = prepare(plot, frame)
    if seen is None or seen.low != seen.low:
        seen = values.spread_of(shown.values)
    scale = scale_of(plot, shown.field.look, seen.low, seen.high, seen.sample)
    return drawer(plot, frame, shown, scale, path)  # type: ignore[no-any-return]
