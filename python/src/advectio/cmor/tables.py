"""A MIP's tables as CMOR has them: JSON files of variables, coordinates, grids, and controlled vocabularies (CV)."""

from __future__ import annotations

import difflib
import glob
import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from advectio.errors import UserError
from advectio.json_file import read_map

Entry = dict[str, Any]


def nearest(name: str, known: list[str]) -> str:
    """``; did you mean X?``, or nothing."""
    lower = {word.lower(): word for word in known}
    found = difflib.get_close_matches(name.lower(), list(lower), n=1)
    return f"; did you mean {lower[found[0]]}?" if found else ""


def numbers(values: Any) -> list[float]:
    """Of ``requested``, ``value`` and bounds: a list, or text with blanks; text and numbers alike."""
    words = values.split() if isinstance(values, str) else values if isinstance(values, list) else [values]
    return [float(word) for word in words if word != ""]


def number(value: Any) -> float | None:
    """Of ``valid_min`` and the like; "" is none."""
    found = numbers(value if value is not None else "")
    return found[0] if found else None


@dataclass(frozen=True)
class Tables:
    """The files that a rule and its dataset name. ``origin``: of the rule, for errors."""

    origin: str
    directory: str
    table_path: str
    cv_path: str
    coordinate_path: str
    grids_path: str | None

    @classmethod
    def find(cls, origin: str, directory: str, table: str, dataset: Entry) -> Tables:
        def one(said: Any, ends: str, what: str) -> str | None:
            if said:
                return os.path.join(directory, str(said))
            found = sorted(glob.glob(os.path.join(glob.escape(directory), f"*{ends}.json")))
            if len(found) > 1:
                raise UserError(f"{origin}: {directory} has {len(found)} files *{ends}.json; say {what}")
            return found[0] if found else None

        if not os.path.isdir(directory):
            raise UserError(f"{origin}: cmor: tables: {directory} is no directory")
        candidates = [os.path.join(directory, name) for name in (table, f"{table}.json")]
        path = next((name for name in candidates if os.path.isfile(name)), None) or one(None, f"_{table}", "its whole name")
        if path is None:
            known = sorted(name.removesuffix(".json") for name in os.listdir(directory) if name.endswith(".json"))
            near = nearest(table, known + [name.rpartition("_")[2] for name in known])
            raise UserError(f"{origin}: cmor: {directory} has no table {table}{near}")
        cv = one(dataset.get("_controlled_vocabulary_file"), "_CV", "_controlled_vocabulary_file in the dataset's JSON")
        axes = one(dataset.get("_AXIS_ENTRY_FILE"), "_coordinate", "_AXIS_ENTRY_FILE in the dataset's JSON")
        for name, key in ((cv, "_controlled_vocabulary_file"), (axes, "_AXIS_ENTRY_FILE")):
            if name is None:
                raise UserError(f"{origin}: cmor: {directory} lacks the file that {key} of the dataset's JSON names")
        assert cv and axes
        grids = one(dataset.get("_grids_file"), "_grids", "_grids_file in the dataset's JSON")
        return cls(origin, directory, path, cv, axes, grids)

    def _part(self, path: str, key: str) -> Entry:
        found = read_map(path, self.origin).get(key)
        if not isinstance(found, dict):
            raise UserError(f"{self.origin}: {path} has no {key}, as CMOR's tables have it")
        return found

    @cached_property
    def header(self) -> Entry:
        return self._part(self.table_path, "Header")

    @cached_property
    def variables(self) -> dict[str, Entry]:
        return self._part(self.table_path, "variable_entry")

    @cached_property
    def cv(self) -> Entry:
        return self._part(self.cv_path, "CV")

    @cached_property
    def axes(self) -> dict[str, Entry]:
        own = read_map(self.table_path, self.origin).get("axis_entry", {})
        return {**self._part(self.coordinate_path, "axis_entry"), **own}

    @cached_property
    def grid_axes(self) -> dict[str, Entry]:
        return self._part(self.grids_path, "axis_entry") if self.grids_path else {}

    @cached_property
    def grid_variables(self) -> dict[str, Entry]:
        return read_map(self.grids_path, self.origin).get("variable_entry", {}) if self.grids_path else {}

    @property
    def table_id(self) -> str:
        return str(self.header.get("table_id", "")).removeprefix("Table ").strip()

    @property
    def name(self) -> str:
        return os.path.basename(self.table_path)

    @cached_property
    def cv_md5(self) -> str:
        with open(self.cv_path, "rb") as file:
            return hashlib.md5(file.read(), usedforsecurity=False).hexdigest()

    def variable(self, name: str, origin: str) -> Entry:
        if name not in self.variables:
            raise UserError(f"{origin}: {self.name} has no variable {name}{nearest(name, list(self.variables))}")
        # Tables of one frequency may say it in their header.
        return {"frequency": self.header.get("frequency", ""), **self.variables[name]}

    def dimensions(self, variable: Entry) -> list[str]:
        """In the order of the table: the first changes fastest."""
        found = variable.get("dimensions", "")
        return found.split() if isinstance(found, str) else list(found)

    def axis(self, dimension: str, origin: str) -> Entry:
        generic = str(self.header.get("generic_levels", "")).split()
        if dimension in generic or dimension in ("alevel", "alevhalf", "olevel", "olevhalf"):
            raise UserError(f"{origin}: the table wants the model's levels ({dimension}), which cmor does not write")
        if dimension not in self.axes:
            raise UserError(f"{origin}: the dimension {dimension} is not in {os.path.basename(self.coordinate_path)}")
        return self.axes[dimension]

    def axes_of(self, variable: Entry, origin: str) -> dict[str, Entry]:
        """In the order of a netCDF file: the last changes fastest, time comes first."""
        found = {name: self.axis(name, origin) for name in reversed(self.dimensions(variable))}
        return dict(sorted(found.items(), key=lambda item: item[1].get("axis") != "T"))
