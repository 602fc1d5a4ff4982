"""Outputs with ``cmor`` of a file of rules, and the rules of advectiod that make their variables."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from advectio.cmor.tables import Entry, Tables, nearest, numbers
from advectio.errors import UserError
from advectio.json_file import read_map

STATISTICS = {
    "mean": "mean",
    "min": "minimum",
    "minimum": "minimum",
    "max": "maximum",
    "maximum": "maximum",
    "sum": "sum",
    "difference": "difference",
    "point": "point",
}
_SPACE = ("region", "subset", "coarsen", "regrid")  # handed on as they are
_TIME = (*STATISTICS, "time", "min_count", "closed")
_KEYS = ("cmor", "variables", "levels", "split", *_SPACE, *_TIME)
_CMOR_KEYS = ("tables", "table", "dataset", "version", "time_units")
_VARIABLE_KEYS = ("formula", "units", "positive")
_FROM_THE_TABLE = {
    "path": "the templates of the dataset's JSON or of the CV name the files",
    "units": "results have the units of the table",
    "cf": "cmor always writes CF metadata",
    "expressions": "formulas stand in variables: {pr: {formula: ..., units: ...}}",
    "points": "stations are not written by cmor",
    "format": "cmor writes netCDF-4 classic",
}
# Minutes, or months.
_FREQUENCIES = {
    "subhr": None,
    "30min": (30, 0),
    "1hr": (60, 0),
    "3hr": (180, 0),
    "6hr": (360, 0),
    "12hr": (720, 0),
    "day": (1440, 0),
    "mon": (0, 1),
    "yr": (0, 12),
    "dec": (0, 120),
}
_UNITS = {"min": (1, 0), "h": (60, 0), "d": (1440, 0), "w": (10080, 0), "mo": (0, 1), "y": (0, 12)}
Length = tuple[float, float]  # minutes, months: one of them is 0


@dataclass(frozen=True)
class Step:
    statistic: str
    window: str

    @property
    def length(self) -> Length | None:
        """None: of the whole series, or not understood, which advectiod says."""
        match = re.fullmatch(r"(\d+(?:\.\d*)?)?(min|h|d|w|mo|y)", self.window)
        if not match:
            return None
        count, unit = float(match[1] or 1), _UNITS[match[2]]
        return unit[0] * count, unit[1] * count


@dataclass(frozen=True)
class Wanted:
    """One variable of an output."""

    name: str  # in the table
    entry: Entry
    axes: dict[str, Entry]  # in the order of a file
    formula: str
    units: str | None
    flipped: bool  # the table counts it positive the other way
    origin: str

    @property
    def source(self) -> str:
        """What advectiod calls it."""
        return self.formula if self.plain else f"cmor_{self.name}"

    @property
    def plain(self) -> bool:
        return self.units is None and not self.flipped and re.fullmatch(r"[A-Za-z_]\w*", self.formula) is not None

    @property
    def fixed(self) -> bool:
        return not any(axis.get("axis") == "T" for axis in self.axes.values())

    @property
    def frequency(self) -> str:
        return str(self.entry.get("frequency", ""))


@dataclass(frozen=True)
class Rule:
    origin: str
    line: int
    tables: Tables
    dataset: Entry  # CMOR's JSON of the dataset
    dataset_path: str
    version: str | None
    time_units: str
    keys: dict[str, Any]  # of space and time, as they stand there
    levels: dict[str, Any] | None
    split: str | None
    overlap: str | None  # of the files
    steps: list[Step]
    variables: list[Wanted] = field(default_factory=list)

    def advectiod(self, wanted: Wanted, number: int, *, trial: bool) -> str:
        """Rules with the one output that makes the variable, on the line of the rule. ``trial``: without statistics."""
        output: dict[str, Any] = {"path": f"{number}.nc", "codec": "deflate", "format": "netcdf4"}
        if wanted.plain:
            output["variables"] = [wanted.source]
        else:
            formula = f"-({wanted.formula})" if wanted.flipped else wanted.formula
            output["expressions"] = {wanted.source: {"formula": formula, **({"units": wanted.units} if wanted.units else {})}}
        output["units"] = {wanted.source: str(wanted.entry.get("units") or "1")}
        output |= {key: self.keys[key] for key in _SPACE if key in self.keys}
        if not trial and not wanted.fixed:
            output |= {key: self.keys[key] for key in _TIME if key in self.keys}
            if self.split:
                output |= {"split": self.split, "path": f"{number}-{{time}}.nc"}
        pressure = next((axis for axis in wanted.axes.values() if axis.get("standard_name") == "air_pressure"), None)
        if self.levels is not None and pressure:
            levels = numbers(pressure.get("requested") or pressure.get("value"))
            words = [f"{level:.10g}" for level in levels]
            output["levels"] = {**self.levels, "pressure": [*words[:-1], f"{words[-1]} {pressure.get('units', 'Pa')}"]}
        # `cf` is no text for advectiod.
        text = json.dumps(output)[:-1] + ', "cf": true}'
        return "\n" * (self.line - 1) + "outputs: [" + text + "]\n" + (f"overlap: {self.overlap}\n" if self.overlap else "")


class _Yaml:
    """Scalars as text, and where keys stand."""

    def __init__(self, path: str) -> None:
        from advectio.needs import for_cmor

        yaml = for_cmor("yaml")
        try:
            with open(path, encoding="utf-8") as file:
                self._loader = yaml.BaseLoader(file.read())
            self.root = self._loader.get_single_node()
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from None
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            raise UserError(f"{path}:{mark.line + 1 if mark else 1}: not YAML: {getattr(error, 'problem', error)}") from None
        self._path = path

    def at(self, node: Any) -> str:
        return f"{self._path}:{node.start_mark.line + 1}"

    def value(self, node: Any) -> Any:
        return self._loader.construct_object(node, deep=True)

    def items(self, node: Any, what: str) -> dict[str, tuple[Any, Any]]:
        """Of a map: key → its node and the value's."""
        if node is None or node.id != "mapping":
            raise UserError(f"{self.at(node) if node else self._path}: {what}: a map is wanted")
        found: dict[str, tuple[Any, Any]] = {}
        for key, value in node.value:
            if key.value in found:
                raise UserError(f"{self.at(key)}: {what}: {key.value} is there twice")
            found[key.value] = (key, value)
        return found


def read(path: str) -> list[Rule]:
    """All of them. Error: what is wrong, with file and line; nothing of the data has been looked at."""
    yaml = _Yaml(path)
    top = yaml.items(yaml.root, "rules")
    overlap = yaml.value(top.pop("overlap")[1]) if "overlap" in top else None
    if overlap not in (None, "first", "last"):
        raise UserError(f"{path}:1: overlap: '{overlap}' is none of: first, last")
    if list(top) != ["outputs"] or top["outputs"][1].id != "sequence" or not top["outputs"][1].value:
        raise UserError(f"{path}:1: outputs: a list of rules is wanted, and nothing else but overlap")
    found = []
    for node in top["outputs"][1].value:
        items = yaml.items(node, "outputs")
        if "cmor" not in items:
            raise UserError(f"{yaml.at(node)}: outputs with cmor and without are in files of their own; this one has no cmor")
        found.append(_rule(yaml, node, items, overlap))
    return found


def _rule(yaml: _Yaml, node: Any, items: dict[str, tuple[Any, Any]], overlap: str | None) -> Rule:
    for key, (at, _) in items.items():
        if key in _FROM_THE_TABLE:
            raise UserError(f"{yaml.at(at)}: {key} does not go with cmor: {_FROM_THE_TABLE[key]}")
        if key not in _KEYS:
            raise UserError(f"{yaml.at(at)}: {key} does not go with cmor{nearest(key, list(_KEYS))}")
    said = yaml.items(items["cmor"][1], "cmor")
    for key, (at, value) in said.items():
        if key not in _CMOR_KEYS:
            raise UserError(f"{yaml.at(at)}: cmor: unknown key {key}{nearest(key, list(_CMOR_KEYS))}")
        if value.id != "scalar" or not value.value:
            raise UserError(f"{yaml.at(at)}: cmor: {key}: a text is wanted")
    words: dict[str, str] = {key: value.value for key, (_, value) in said.items()}
    origin = yaml.at(node)
    for key in ("tables", "table", "dataset"):
        if key not in words:
            raise UserError(
                f"{origin}: cmor: {key} is missing; {{tables: DIRECTORY, table: NAME, dataset: FILE.json}} is wanted"
            )
    version = words.get("version")
    if version is not None and not re.fullmatch(r"v\d{8}|v\d+", version):
        raise UserError(f"{yaml.at(said['version'][0])}: cmor: version: a day is wanted, like v20261127")
    time_units = words.get("time_units", "days since 1850-01-01")
    if not re.fullmatch(r"days since \d{1,4}-\d{1,2}-\d{1,2}([ T][\d:]+Z?)?", time_units):
        raise UserError(f"{yaml.at(said['time_units'][0])}: cmor: time_units: days are wanted, like days since 1850-01-01")
    dataset = {key: value for key, value in read_map(words["dataset"], f"{origin}: cmor: dataset").items() if key[:1] != "#"}
    tables = Tables.find(origin, words["tables"], words["table"], dataset)
    levels = None
    if "levels" in items:
        levels = {key: yaml.value(value) for key, (_, value) in yaml.items(items["levels"][1], "levels").items()}
        for key in ("pressure", "height"):
            if key in levels:
                raise UserError(f"{yaml.at(items['levels'][0])}: levels: the table says which; leave {key} out")
    if "variables" not in items:
        raise UserError(f"{origin}: variables is missing; a map is wanted, like {{tas: T2}}")
    rule = Rule(
        origin,
        node.start_mark.line + 1,
        tables,
        dataset,
        words["dataset"],
        version,
        time_units,
        {key: yaml.value(items[key][1]) for key in (*_SPACE, *_TIME) if key in items},
        levels,
        yaml.value(items["split"][1]) if "split" in items else None,
        overlap,
        _steps(yaml, origin, items),
    )
    for name, (at, value) in yaml.items(items["variables"][1], "variables").items():
        wanted = _wanted(yaml, tables, name, at, value)
        _check_time(rule, wanted)
        rule.variables.append(wanted)
    if not rule.variables:
        raise UserError(f"{origin}: variables: none is named")
    return rule


def _steps(yaml: _Yaml, origin: str, items: dict[str, tuple[Any, Any]]) -> list[Step]:
    own = [key for key in STATISTICS if key in items]
    if len(own) + ("time" in items) > 1:
        raise UserError(f"{origin}: one statistic is wanted, or time with a list; there are {', '.join(own)}")
    if own:
        return [Step(STATISTICS[own[0]], str(yaml.value(items[own[0]][1])))]
    steps = yaml.value(items["time"][1]) if "time" in items else []
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise UserError(f"{yaml.at(items['time'][0])}: time: a list of statistics is wanted, like [{{max: 1d}}, {{mean: 1mo}}]")
    return [Step(STATISTICS[key], str(step[key])) for step in steps for key in step if key in STATISTICS]


def _wanted(yaml: _Yaml, tables: Tables, name: str, at: Any, node: Any) -> Wanted:
    origin = yaml.at(at)
    entry = tables.variable(name, origin)
    said = {"formula": yaml.value(node)} if node.id == "scalar" else yaml.value(node)
    if not isinstance(said, dict) or not said.get("formula"):
        raise UserError(f"{origin}: {name}: a variable or a formula is wanted, or {{formula: ..., units: ..., positive: up}}")
    for key in said:
        if key not in _VARIABLE_KEYS:
            raise UserError(f"{origin}: {name}: unknown key {key}{nearest(key, list(_VARIABLE_KEYS))}")
    wants, has = str(entry.get("positive") or ""), said.get("positive")
    if has not in (None, "up", "down"):
        raise UserError(f"{origin}: {name}: positive: up or down is wanted, this is '{has}'")
    if wants and has is None:
        raise UserError(
            f"{origin}: {name}: the table counts it positive {wants}; say how {said['formula']} does: "
            f"{{formula: {said['formula']}, positive: {wants}}}, or the other, which changes the sign"
        )
    axes = tables.axes_of(entry, f"{origin}: {name}")
    return Wanted(name, entry, axes, said["formula"].strip(), said.get("units"), bool(wants) and has != wants, origin)


def time_methods(cell_methods: str) -> list[tuple[str, str]]:
    """What was done along time, in order: the method, and ``within days`` or the like."""
    found: list[tuple[str, str]] = []
    names: list[str] = []
    open_ = False
    for word in re.sub(r"\([^)]*\)", " ", cell_methods).split():
        if word.endswith(":"):
            names = [word[:-1]] if open_ or not names else [*names, word[:-1]]
            open_ = False
        elif not open_:
            open_ = True
            if "time" in names:
                found.append((word, ""))
        elif "time" in names:
            found[-1] = (found[-1][0], f"{found[-1][1]} {word}".strip())
    return found


def _check_time(rule: Rule, wanted: Wanted) -> None:
    """The rule's statistics against the table's frequency and cell_methods."""
    at, frequency = f"{wanted.origin}: {wanted.name}", wanted.frequency
    if wanted.fixed:
        if rule.steps:
            raise UserError(
                f"{at}: the table has it without time; give it a rule of its own, without {rule.steps[-1].statistic}"
            )
        return
    time = next(axis for axis in wanted.axes.values() if axis.get("axis") == "T")
    if time.get("climatology") == "yes" or frequency.endswith(("C", "CM")):
        raise UserError(f"{at}: the table wants a climatology ({frequency}), which cmor does not make")
    last = rule.steps[-1] if rule.steps else None
    methods = time_methods(str(wanted.entry.get("cell_methods", "")))
    made = "point" if last is None else "sum" if last.statistic == "difference" else last.statistic
    window = _window(frequency)
    if methods:
        method, qualifier = methods[-1]
        if made != method:
            says = f"the rule says {last.statistic}: {last.window}" if last else "the rule has no statistic"
            raise UserError(f"{at}: the table's cell_methods want time: {method}, {says}; write {_example(method, window)}")
        first = methods[0]
        if qualifier.startswith("over") and "within days" in first[1]:
            before = [step.statistic for step in rule.steps[:-1] if step.length == (1440, 0)]
            if first[0] not in before:
                short = {"maximum": "max", "minimum": "min"}.get(first[0], first[0])
                raise UserError(
                    f"{at}: the table's cell_methods want {first[0]} within days; write time: "
                    f"[{{{short}: 1d}}, {{{method}: {window or '...'}}}]"
                )
    elif time.get("must_have_bounds") == "yes" and made == "point":
        raise UserError(f"{at}: the table wants time with bounds; write {_example('mean', window)}")
    if last and window and last.length != Step("", window).length:
        raise UserError(
            f"{at}: the table's frequency is {frequency}, the rule's {last.statistic} is of {last.window}; "
            f"write {_example(last.statistic, window)}"
        )
    if frequency and not window and not frequency.startswith("subhr"):
        raise UserError(f"{at}: the table's frequency {frequency} is not known here")


def _window(frequency: str) -> str | None:
    length = _FREQUENCIES.get(frequency.removesuffix("Pt"))
    if length is None:
        return None
    if length[1]:
        return f"{length[1]}mo" if length[1] < 12 else f"{length[1] // 12}y"
    return "1d" if length[0] == 1440 else f"{length[0] // 60}h" if length[0] >= 60 else f"{length[0]}min"


def _example(method: str, window: str | None) -> str:
    short = {"maximum": "max", "minimum": "min"}.get(method, method)
    return f"{short}: {window or 'WINDOW'}"


def interval_days(frequency: str) -> tuple[float, float] | None:
    """The least and the most days between two records; None: any."""
    length = _FREQUENCIES.get(frequency.removesuffix("Pt"))
    if length is None:
        return None
    if length[1]:
        return 28.0 * length[1], 31.0 * length[1]
    return length[0] / 1440, length[0] / 1440
