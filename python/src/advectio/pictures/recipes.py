"""What is to be drawn: YAML, or the options of `advectio plot`, → immutable plots. Errors name file, line and key."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

from advectio.errors import UserError
from advectio.pictures.expressions import Expression, WrongExpression

KINDS = ("map", "section", "series")
ANIMATIONS = ("gif", "mp4")
STATISTICS = ("mean", "min", "max")
DOTS_MAX = 600  # per inch
# What title and file may name in braces.
PLACEHOLDERS = ("name", "field", "label", "units", "level", "time", "lead", "frame", "domain", "source", "kind")


@dataclass(frozen=True)
class Level:
    """One level by its index or its coordinate, a height or pressure to interpolate to, or a statistic of the column."""

    index: int | None = None  # of no such level: the value of the levels' coordinate
    value: float | None = None
    units: str = ""  # km, hPa, or the unit of the levels' coordinate; "": in whichever it is
    statistic: str | None = None

    def __str__(self) -> str:
        if self.index is not None:
            return str(self.index)
        if self.statistic is not None or self.value is None:
            return self.statistic or ""
        if self.units == "km" and abs(self.value) < 1:
            return f"{self.value * 1000:g} m"
        return f"{self.value:g} {self.units}".rstrip()


class Percentiles(tuple[float, float]):
    """Ends of the colours that leave out the few lowest and highest values."""


@dataclass(frozen=True)
class At:
    """A point by its indices or its place, or a statistic over the domain."""

    x: int | None = None
    y: int | None = None
    lat: float | None = None
    lon: float | None = None
    statistic: str | None = None

    def __str__(self) -> str:
        if self.statistic:
            return f"domain {self.statistic}"
        if self.lat is not None and self.lon is not None:
            return place_text(self.lat, self.lon)
        return f"x={self.x}, y={self.y}"


@dataclass(frozen=True)
class Contours:
    expression: Expression
    every: float | None = None
    units: str | None = None


@dataclass(frozen=True)
class Wind:
    u: Expression
    v: Expression


@dataclass(frozen=True)
class Plot:
    kind: str
    field: Expression
    origin: str  # "recipe.yaml:4", or the option
    name: str = ""
    level: Level | None = None
    x: int | None = None
    y: int | None = None
    start: tuple[float, float] | None = None  # latitude, longitude
    end: tuple[float, float] | None = None
    top: float | None = None  # km
    at: Sequence[At] = ()
    range: tuple[float, float] | None = None
    levels: Sequence[float] | None = None
    colour_map: str | None = None
    units: str | None = None
    title: str | None = None
    file: str | None = None
    contours: Contours | None = None
    wind: Wind | None = None
    animate: str | None = None
    dpi: int = 110

    @property
    def fixed(self) -> bool:
        """The colours do not depend on the values."""
        return self.levels is not None or (self.range is not None and not isinstance(self.range, Percentiles))


@dataclass(frozen=True)
class Recipe:
    plots: Sequence[Plot]
    files: Sequence[str] = ()
    live: str | None = None
    output: str | None = None
    fps: float | None = None
    jobs: int | None = None


class _Wrong(ValueError):
    pass


def place_text(lat: float, lon: float) -> str:
    east = (lon + 180) % 360 - 180
    return f"{abs(lat):.2f}°{'N' if lat >= 0 else 'S'} {abs(east):.2f}°{'E' if east >= 0 else 'W'}"


# --- values of keys -----------------------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if isinstance(value, dict | list) or value is None or value == "":
        raise _Wrong("is no text")
    return str(value)


def _one_of(choices: Sequence[str]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in choices:
            near = get_close_matches(str(value), choices, 1, 0.5)
            raise _Wrong(f"is {value}; " + (f"did you mean {near[0]}?" if near else f"one of {', '.join(choices)}"))
        return str(value)

    return read


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _Wrong("is no number")
    try:
        found = float(value)
    except ValueError as error:
        raise _Wrong(f"is '{value}', no number") from error
    if found != found or found in (float("inf"), float("-inf")):
        raise _Wrong(f"is '{value}', no number")
    return found


def _whole(least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        found = _number(value)
        if found != int(found) or not least <= found <= most:
            raise _Wrong(f"is {value}; a whole number from {least} to {most}")
        return int(found)

    return read


_index = _whole(0, 10**9)


def _positive(value: Any) -> float:
    found = _number(value)
    if found <= 0:
        raise _Wrong(f"is {value}; a number above zero")
    return found


def _pair(value: Any) -> tuple[float, float]:
    """[a, b], or a:b as in options."""
    parts = value if isinstance(value, list) else str(value).split(":")
    if len(parts) != 2:
        raise _Wrong(f"is {value}; two numbers: [0, 20], as an option 0:20")
    return _number(parts[0]), _number(parts[1])


def _range(value: Any) -> tuple[float, float]:
    """[10, 30], or [2%, 98%] of the values."""
    parts = value if isinstance(value, list) else str(value).split(":")
    if len(parts) == 2 and all(str(part).strip().endswith("%") for part in parts):
        low, high = (_number(str(part).strip().removesuffix("%")) for part in parts)
        if not 0 <= low < high <= 100:
            raise _Wrong(f"is {value}; from a lower to a higher percentile, 2%:98%")
        return Percentiles((low, high))
    low, high = _pair(value)
    if not low < high:
        raise _Wrong(f"is {value}; from low to high")
    return low, high


def _place(value: Any) -> tuple[float, float]:
    """[latitude, longitude], or lat/lon as in options."""
    parts = value if isinstance(value, list) else str(value).split("/")
    if len(parts) != 2:
        raise _Wrong(f"is {value}; latitude and longitude: [25.5, -90], as an option 25.5/-90")
    lat, lon = _number(parts[0]), _number(parts[1])
    if not -90 <= lat <= 90 or not -360 <= lon <= 360:
        raise _Wrong(f"is {value}; latitude -90 to 90, longitude -360 to 360")
    return lat, lon


def _levels(value: Any) -> tuple[float, ...]:
    parts = value if isinstance(value, list) else str(value).split(":")
    found = tuple(_number(part) for part in parts)
    if len(found) < 2 or any(a >= b for a, b in pairwise(found)):
        raise _Wrong(f"is {value}; two or more rising numbers: [1, 5, 10], as an option 1:5:10")
    return found


def _level(value: Any) -> Level:
    text = str(value).strip()
    if text in STATISTICS:
        return Level(statistic=text)
    match = re.fullmatch(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([^\W\d]\S*(?: \S+)*|%|°\w*)?", text)
    if match and not match[2]:
        return Level(index=int(match[1])) if re.fullmatch(r"\d+", match[1]) else Level(value=_number(match[1]))
    if match:
        known = {
            "hPa": (1, "hPa"),
            "mb": (1, "hPa"),
            "mbar": (1, "hPa"),
            "Pa": (0.01, "hPa"),
            "km": (1, "km"),
            "m": (0.001, "km"),
        }
        factor, units = known.get(match[2], (1, match[2]))
        return Level(value=_number(match[1]) * factor, units=units)
    raise _Wrong(f"is '{value}'; an index from the bottom (0), 850 hPa, 3 km, or max, min, mean of the column")


def _expression(value: Any) -> Expression:
    try:
        return Expression.parse(_text(value))
    except WrongExpression as error:
        raise _Wrong(f"is wrong: {error}") from error


def _at(value: Any) -> tuple[At, ...]:
    """[x, y], {x:, y:}, {lat:, lon:}, mean, min, max; or a list of those."""
    if isinstance(value, list) and not (len(value) == 2 and all(isinstance(each, int | float) for each in value)):
        return tuple(one for each in value for one in _at(each))
    if isinstance(value, list):
        return (At(x=_index(value[0]), y=_index(value[1])),)
    if isinstance(value, dict):
        if value.keys() == {"x", "y"}:
            return (At(x=_index(value["x"]), y=_index(value["y"])),)
        if value.keys() == {"lat", "lon"}:
            lat, lon = _place([value["lat"], value["lon"]])
            return (At(lat=lat, lon=lon),)
    if value in STATISTICS:
        return (At(statistic=value),)
    raise _Wrong(f"is {value}; a point [x, y] or {{lat: 25.5, lon: -90}}, or one of {', '.join(STATISTICS)}")


def _contours(value: Any) -> Contours:
    if isinstance(value, str):
        return Contours(_expression(value))
    if isinstance(value, dict) and "field" in value and value.keys() <= {"field", "every", "units"}:
        every = _positive(value["every"]) if "every" in value else None
        return Contours(_expression(value["field"]), every, _text(value["units"]) if "units" in value else None)
    raise _Wrong("is a field, or {field: PSFC, every: 4, units: hPa}")


def _wind(value: Any) -> Wind:
    parts = value if isinstance(value, list) else str(value).split("/")
    if len(parts) != 2:
        raise _Wrong(f"is {value}; both components: [U10, V10], as an option U10/V10")
    return Wind(_expression(parts[0]), _expression(parts[1]))


def _template(value: Any) -> str:
    text = _text(value)
    try:
        parsed = list(string.Formatter().parse(text))
    except ValueError as error:
        raise _Wrong(f"is '{text}': {error}") from error
    for _, name, specification, conversion in parsed:
        if name is None:
            continue
        if name not in PLACEHOLDERS:
            near = get_close_matches(name, PLACEHOLDERS, 1, 0.5)
            raise _Wrong(
                f"names {{{name}}}; " + (f"did you mean {{{near[0]}}}?" if near else f"known: {', '.join(PLACEHOLDERS)}")
            )
        if conversion or "{" in (specification or ""):
            raise _Wrong(f"has more in {{{name}}} than a format")
    return text


def _file_template(value: Any) -> str:
    text = _template(value)
    if not text.endswith(".png"):
        raise _Wrong(f"is '{text}'; a name that ends in .png")
    if text.startswith("/") or ".." in text.split("/"):
        raise _Wrong(f"is '{text}'; a name below the output directory")
    return text


def _colour_map(value: Any) -> str:
    from advectio.pictures import looks

    name = _text(value)
    try:
        looks.palette(name)
    except ValueError as error:
        raise _Wrong(f"is wrong: {error}") from error
    return name


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(_text(each) for each in value) if isinstance(value, list) else (_text(value),)


@dataclass(frozen=True)
class Key:
    read: Callable[[Any], Any]
    what: str
    kinds: Sequence[str] = KINDS
    into: str = ""


_PICTURES = ("map", "section")
PLOT_KEYS: Mapping[str, Key] = {
    "kind": Key(_one_of(KINDS), "map, section or series"),
    "field": Key(_expression, "a field of the file, or `name = expression`"),
    "name": Key(_text, "what the plot is called, in file names too"),
    "level": Key(_level, "0 (the lowest), 850 hPa, 3 km, max, min, mean", ("map", "series")),
    "x": Key(_index, "a section from south to north, at this index", ("section",)),
    "y": Key(_index, "a section from west to east, at this index", ("section",)),
    "from": Key(_place, "where a section begins: [latitude, longitude]", ("section",), "start"),
    "to": Key(_place, "where it ends", ("section",), "end"),
    "top": Key(_positive, "height of a section's upper edge, km", ("section",)),
    "at": Key(_at, "points of a series, or mean, min, max of the domain", ("series",)),
    "range": Key(_range, "lowest and highest value shown; 2%:98% leaves out the few that lie far away"),
    "levels": Key(_levels, "steps of the colours", _PICTURES),
    "colour_map": Key(_colour_map, "one of matplotlib's, or radar", _PICTURES),
    "units": Key(_text, "the unit shown, e.g. degC, hPa, kt"),
    "title": Key(_template, "template of the title"),
    "file": Key(_file_template, "template of the file's name"),
    "contours": Key(_contours, "a second field, as lines", _PICTURES),
    "wind": Key(_wind, "arrows: [U10, V10]", ("map",)),
    "animate": Key(_one_of(ANIMATIONS), "gif or mp4: the frames as a film", _PICTURES),
    "dpi": Key(_whole(30, DOTS_MAX), "dots per inch"),
}
RECIPE_KEYS: Mapping[str, Key] = {
    "files": Key(_texts, "files or patterns, where the command line names none"),
    "live": Key(_text, "pattern of the running model's files"),
    "output": Key(_text, "directory of the pictures"),
    "fps": Key(_positive, "frames a second of animations"),
    "jobs": Key(_whole(1, 1024), "processes that draw"),
    "defaults": Key(lambda value: value, "keys for all plots that do not say otherwise"),
    "plots": Key(lambda value: value, "the plots"),
}


# --- a plot, from keys ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Entry:
    origin: str
    value: Any


def _plot(entries: Mapping[str, _Entry], origin: str) -> Plot:
    """Of keys with where they stand; each is known to be a key of plots."""
    for needed in ("kind", "field"):
        if needed not in entries:
            raise UserError(f"{origin}: this plot has no {needed}")
    read: dict[str, Any] = {}
    kind = _read("kind", entries["kind"])
    for name, entry in entries.items():
        key = PLOT_KEYS[name]
        if kind not in key.kinds:
            raise UserError(f"{entry.origin}: {name} is a key of a {' or '.join(key.kinds)}, and this is a {kind}")
        read[key.into or name] = _read(name, entry)
    plot = Plot(origin=origin, **read)
    _check_whole(plot)
    return plot if plot.name else _named(plot)


def _read(name: str, entry: _Entry) -> Any:
    try:
        return PLOT_KEYS[name].read(entry.value)
    except _Wrong as error:
        raise UserError(f"{entry.origin}: {name} {error}") from error


def _check_whole(plot: Plot) -> None:
    line = plot.start is not None or plot.end is not None
    if plot.kind == "section":
        if line and (plot.start is None or plot.end is None):
            raise UserError(f"{plot.origin}: a section along a line has both from and to")
        if (plot.x is not None) + (plot.y is not None) + line != 1:
            raise UserError(f"{plot.origin}: a section has one of x, y, or from and to")
    if plot.kind == "series" and isinstance(plot.range, Percentiles):
        raise UserError(f"{plot.origin}: the range of a series is two numbers, not percentiles")
    if plot.kind == "series" and not plot.at:
        raise UserError(f"{plot.origin}: a series has no at: a point [x, y] or {{lat: …, lon: …}}, or mean, min, max")


def _named(plot: Plot) -> Plot:
    parts = [plot.field.name]
    if plot.level is not None:
        parts.append(
            f"level{plot.level}".replace(" ", "") if plot.level.index is not None else str(plot.level).replace(" ", "")
        )
    parts += [f"{axis}{value}" for axis, value in (("x", plot.x), ("y", plot.y)) if value is not None]
    if plot.start is not None:
        parts.append("line")
    if plot.kind == "series":
        first = plot.at[0]
        parts.append(first.statistic or ("point" if len(plot.at) == 1 and first.x is None else f"x{first.x}_y{first.y}"))
    return replace(plot, name="_".join(parts))


def unique(plots: Sequence[Plot]) -> None:
    """Raises UserError where two plots would have the same files."""
    seen: dict[tuple[str, str | None], Plot] = {}
    for plot in plots:
        key = (plot.name, plot.file)
        if key in seen:
            raise UserError(f"{plot.origin}: there is a plot {plot.name} already ({seen[key].origin}); give this one a name")
        seen[key] = plot


# --- options -------------------------------------------------------------------------------------------------------------


def split_outside(text: str, at: str = ",") -> list[str]:
    """At commas that are in no brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += character in "([{"
        depth -= character in ")]}"
        if character == at and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def of_option(kind: str, text: str, defaults: Mapping[str, Any] | None = None) -> Plot:
    """--map T2,level=3,range=0:20 · --section QVAPOR,y=40 · --series T2@24,30"""
    origin = f"--{kind} '{text}'"
    first, at, rest = (*text.partition("@"),) if kind == "series" else (text, "", "")
    head, *options = split_outside(first)
    entries = {"kind": _Entry(origin, kind), "field": _Entry(origin, head)}
    points: dict[str, Any] = {}
    loose: list[str] = []
    for part in options + (split_outside(rest) if at else []):
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals:
            loose.append(part)
        elif kind == "series" and key in ("x", "y", "lat", "lon"):
            points[key] = _number_of(origin, key, value)
        elif key not in PLOT_KEYS or key in ("kind", "field"):
            raise UserError(f"{origin}: unknown key {key}{_advice(key, _keys_of(kind))}")
        else:
            entries[key] = _Entry(origin, value.strip())
    if kind == "series" and (points or loose):
        wanted: Any = points or (loose[0] if len(loose) == 1 else [_number_of(origin, "at", part) for part in loose])
        entries["at"] = _Entry(origin, wanted)
    elif loose:
        raise UserError(f"{origin}: '{loose[0]}' is no key=value")
    for key, value in (defaults or {}).items():
        if kind in PLOT_KEYS[key].kinds:
            entries.setdefault(key, _Entry(origin, value))
    return _plot(entries, origin)


def _number_of(origin: str, key: str, text: str) -> float:
    try:
        found = _number(text.strip())
    except _Wrong as error:
        raise UserError(f"{origin}: {key} {error}") from error
    return int(found) if found == int(found) else found


def _keys_of(kind: str) -> list[str]:
    return [name for name, key in PLOT_KEYS.items() if kind in key.kinds and name not in ("kind", "field")]


def _advice(key: str, known: Sequence[str]) -> str:
    other = {"cmap": "colour_map", "color_map": "colour_map", "colors": "colour_map", "colormap": "colour_map", "type": "kind",
             "variable": "field", "var": "field", "z": "level", "vmin": "range", "vmax": "range", "out": "output"}  # fmt: skip
    near = [other[key]] if other.get(key) in known else get_close_matches(key, known, 1, 0.5)
    return f"; did you mean {near[0]}?" if near else f"; known here: {', '.join(known)}"


# --- YAML ----------------------------------------------------------------------------------------------------------------


def read(path: str) -> Recipe:
    """Raises UserError: one line with the file, the line and what is wrong there."""
    from advectio.needs import for_pictures

    yaml = for_pictures("yaml")
    try:
        with open(path, encoding="utf-8") as file:
            root = yaml.compose(file, Loader=yaml.SafeLoader)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is no UTF-8 text") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else path
        raise UserError(f"{where}: no YAML: {getattr(error, 'problem', None) or error}") from error
    if root is None:
        raise UserError(f"{path}: is empty; begin with `plots:`")
    return _Reader(path, yaml).recipe(root)


@dataclass(frozen=True)
class _Reader:
    path: str
    yaml: Any

    def recipe(self, root: Any) -> Recipe:
        entries = dict(self._pairs(root, RECIPE_KEYS, "the recipe", ""))
        defaults = dict(self._pairs(entries["defaults"], PLOT_KEYS, "defaults", "defaults.")) if "defaults" in entries else {}
        for name in ("kind", "field", "name"):
            if name in defaults:
                raise UserError(f"{self._origin(defaults[name])}: {name} is each plot's own, not one of the defaults")
        if "plots" not in entries:
            raise UserError(f"{self._origin(root)}: there are no plots")
        node = entries.pop("plots")
        if not isinstance(node, self.yaml.SequenceNode) or not node.value:
            raise UserError(f"{self._origin(node)}: plots is a list, each item of it a plot")
        plots = [self._plot(each, number, defaults) for number, each in enumerate(node.value)]
        unique(plots)
        entries.pop("defaults", None)
        values: dict[str, Any] = {}
        for name, each in entries.items():
            try:
                values[name] = RECIPE_KEYS[name].read(self._value(each))
            except _Wrong as error:
                raise UserError(f"{self._origin(each)}: {name} {error}") from error
        return Recipe(tuple(plots), **values)

    def _plot(self, node: Any, number: int, defaults: Mapping[str, Any]) -> Plot:
        nodes = dict(self._pairs(node, PLOT_KEYS, f"plots[{number}]", f"plots[{number}]."))
        entries = {name: _Entry(self._origin(each), self._value(each)) for name, each in nodes.items()}
        kind = entries["kind"].value if "kind" in entries else None
        for name, each in defaults.items():
            if name not in entries and kind in PLOT_KEYS[name].kinds:
                entries[name] = _Entry(self._origin(each), self._value(each))
        return _plot(entries, self._origin(node))

    def _pairs(self, node: Any, known: Mapping[str, Key], what: str, prefix: str) -> Iterator[tuple[str, Any]]:
        if not isinstance(node, self.yaml.MappingNode):
            raise UserError(f"{self._origin(node)}: {what} has keys and values, like `{next(iter(known))}: …`")
        seen = set()
        for key_node, value_node in node.value:
            key = str(key_node.value)
            if key not in known:
                advice = _advice(key, list(known))
                raise UserError(f"{self._origin(key_node)}: unknown key {prefix}{key}{advice}")
            if key in seen:
                raise UserError(f"{self._origin(key_node)}: {prefix}{key} is there twice")
            seen.add(key)
            yield key, value_node

    def _origin(self, node: Any) -> str:
        return f"{self.path}:{node.start_mark.line + 1}"

    def _value(self, node: Any) -> Any:
        if isinstance(node, self.yaml.ScalarNode) and node.tag.endswith(":bool"):
            return node.value  # no key is yes or no, and NO is a gas
        constructor = self.yaml.constructor.SafeConstructor()
        try:
            return constructor.construct_document(node)
        except self.yaml.YAMLError as error:
            raise UserError(f"{self._origin(node)}: no YAML: {getattr(error, 'problem', None) or error}") from error
