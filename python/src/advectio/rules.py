"""The dataset rules of a config, held against what a run has written. Light: not on the way to the start of a model, but on
the way to its end."""

import ctypes
import os
from typing import Any

from advectio.protocol import ConfigName, DatasetStatus, NotReadable, Status, UnmatchedRule


def matches(pattern: str, path: str) -> bool:
    """As src/config/glob.cpp does, by the same function: a pattern with a / is held against the absolute path, any other
    against the name of the file."""
    text = path if "/" in pattern else path.rpartition("/")[2]
    return bool(ctypes.CDLL(None).fnmatch(os.fsencode(pattern), os.fsencode(text), 0) == 0)


def _says(rule: dict[str, Any], key: str, value: str) -> bool:
    return any(entry["key"] == key and entry["value"] == value for entry in rule["values"])


def _name(dataset: DatasetStatus) -> str:
    """As the program calls it."""
    return dataset.get("in_place_of") or dataset["path"]


def unmatched(config: dict[str, Any], final: Status) -> list[UnmatchedRule]:
    """Rules that no dataset of the run fits. Not among them: what is left to the netCDF library (capture: false), of whose
    files nothing is known, and what was joined (join: true), which fits the tiles, not their one file."""
    paths = [_name(dataset) for dataset in final["datasets"] if not dataset.get("output_of")]
    joined = any(dataset.get("tiles") for dataset in final["datasets"])
    found: list[UnmatchedRule] = []
    for rule in config.get("datasets", []):
        if _says(rule, "capture", "false") or (joined and _says(rule, "join", "true")):
            continue
        if not any(matches(rule["match"], path) for path in paths):
            found.append({"match": rule["match"], "origin": rule["origin"]})
    return found


def sentence(rules: list[UnmatchedRule]) -> str:
    named = ", ".join(f'"{rule["match"]}" ({rule["origin"]})' for rule in rules)
    return f"no dataset matched {named}"


def names_sentences(names: list[ConfigName], *, who: str = "no dataset has") -> list[str]:
    """Of `round` and `chunks`: what nobody has."""
    kinds = {"round": "a floating-point variable", "chunks": "a dimension"}
    lines = []
    for key, kind in kinds.items():
        missing = [f'"{name["name"]}" ({name["origin"]})' for name in names if name["key"] == key and not name["found"]]
        if missing:
            lines.append(f"{key}: {who} {kind} {', '.join(missing)}")
    return lines


def not_readable(config: dict[str, Any], final: Status) -> list[NotReadable]:
    """Those of the config's rules that a dataset of the run follows."""
    wanted = config.get("not_readable", [])
    if not wanted:
        return []
    joined = any(dataset.get("tiles") for dataset in final["datasets"])
    followed: set[tuple[str, str]] = set()  # match and origin
    for dataset in final["datasets"]:
        if dataset.get("output_of"):
            continue
        last: dict[str, tuple[str, str]] = {}
        for rule in config["datasets"]:
            if matches(rule["match"], _name(dataset)) or (joined and _says(rule, "join", "true")):
                last |= {entry["key"]: (rule["match"], entry["origin"]) for entry in rule["values"]}
        own = ("codec", "shuffle") if dataset["format"].startswith("netCDF-4") else ()
        followed |= {last[key] for key in (*own, "outputs") if key in last}
    return [entry for entry in wanted if (entry["match"], entry["origin"]) in followed]


_PROGRAMS = {
    "netcdf": "this machine's netCDF (ncdump, NCO, CDO)",
    "netcdf4-python": "the netCDF4 wheel of Python",
    "every-netcdf": "every netCDF",
}


def not_readable_sentence(entry: NotReadable) -> str:
    named = ", ".join(_PROGRAMS.get(program, program) for program in entry["programs"])
    return (
        f'{entry["codec"]} of "{entry["match"]}" ({entry["origin"]}) cannot be read by {named}; deflate can '
        "(readers.programs names who reads the files)"
    )
