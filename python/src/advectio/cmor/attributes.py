"""Global attributes of a file, held against the controlled vocabulary (CV), and its place by the templates."""

from __future__ import annotations

import datetime
import os
import re
import uuid
from typing import Any

from advectio.cmor.rule import Rule, Wanted
from advectio.cmor.tables import Entry, nearest
from advectio.errors import UserError

# Keys of the dataset's JSON that tell CMOR what to do, and are no attributes. So are those that begin with _.
_NOT_ATTRIBUTES = (
    "outpath",
    "output_path_template",
    "output_file_template",
    "tracking_prefix",
    "calendar",
    "table_id",
    "version",
)
_PATH = (
    "<mip_era><activity_id><institution_id><source_id><experiment_id><_member_id><table_id><variable_id><grid_label><version>"
)
_FILE = "<variable_id><table_id><source_id><experiment_id><_member_id><grid_label>"
_FURTHER_INFO = "<mip_era><institution_id><source_id><experiment_id><sub_experiment_id><variant_label>"
_EACH_FILE = ("tracking_id", "creation_date")  # never twice the same
_INDICES = ("realization_index", "initialization_index", "physics_index", "forcing_index")

Attributes = dict[str, Any]


def of(rule: Rule, wanted: Wanted) -> Attributes:
    """All but ``tracking_id`` and ``creation_date``. Error: what the CV requires and nobody says, or says otherwise."""
    header, cv, data = rule.tables.header, rule.tables.cv, rule.dataset
    found: Attributes = {key: value for key, value in data.items() if key[:1] != "_" and key not in _NOT_ATTRIBUTES}
    found = {key: value for key, value in found.items() if value != ""}
    for key in ("Conventions", "data_specs_version", "mip_era", "product"):
        if header.get(key):
            found.setdefault(key, header[key])
    found["table_id"] = rule.tables.table_id
    found["variable_id"] = wanted.entry.get("out_name") or wanted.name
    found["frequency"] = wanted.frequency
    found["realm"] = wanted.entry.get("modeling_realm") or header.get("realm", "")
    # CMOR's text; the MD5 sum is that of the CV.
    found["table_info"] = f"Creation Date:({header.get('table_date', '')}) MD5:{rule.tables.cv_md5}"
    if all(index in found for index in _INDICES):
        found["variant_label"] = "".join(
            str(found[index]) if str(found[index])[:1] == letter else f"{letter}{found[index]}"
            for letter, index in zip("ripf", _INDICES, strict=True)
        )
    required = [str(key) for key in cv.get("required_global_attributes", [])]
    for key in [key for key in found if isinstance(cv.get(key), dict)]:
        _look_up(rule, found, key, cv[key], required)
    if "further_info_url" in required and "further_info_url" not in found and data.get("_cmip6_option"):
        path = fill(str(data.get("_further_info_url_tmpl", _FURTHER_INFO)), found, ".", rule, "further_info_url")
        found["further_info_url"] = path if "://" in path else f"https://furtherinfo.es-doc.org/{path}"
    source = found.get("source_id", "")
    found.setdefault("title", f"{source} output prepared for {found.get('mip_era', rule.tables.table_id)}".strip())
    measures = re.findall(r"\w+: (\w+)", str(wanted.entry.get("cell_measures", "")))
    if measures:
        found["external_variables"] = " ".join(measures)
    found["history"] = f"advectio process, rule at {rule.origin}"
    for key, value in found.items():
        _check(rule, key, value, cv.get(key))
    _check_components(rule, found)
    missing = [key for key in required if key not in found and key not in _EACH_FILE]
    if missing:
        raise UserError(
            f"{rule.dataset_path} lacks {', '.join(missing)}, which {os.path.basename(rule.tables.cv_path)} requires of every file"
        )
    return {key: _typed(key, found[key]) for key in sorted(found)}


def of_this_file(rule: Rule) -> Attributes:
    now = datetime.datetime.now(datetime.UTC)
    prefix = str(rule.dataset.get("tracking_prefix", "")).rstrip("/")
    return {
        "tracking_id": f"{prefix}/{uuid.uuid4()}" if prefix else str(uuid.uuid4()),
        "creation_date": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _typed(key: str, value: Any) -> Any:
    """As CMOR has them: indices are whole numbers, branch times are double; all else is text."""
    import numpy as np

    if key in _INDICES and str(value).isdigit():
        return np.int32(int(value))
    if key.startswith("branch_time_in_"):
        try:
            return np.float64(float(value))
        except ValueError:
            return value
    return value if isinstance(value, int | float) else " ".join(value) if isinstance(value, list) else str(value)


def _look_up(rule: Rule, found: Attributes, key: str, known: Entry, required: list[str]) -> None:
    """What the CV says with the value of an attribute: the text of an institution, the activity of an experiment."""
    said = known.get(str(found[key]))
    text = key.removesuffix("_id")
    if isinstance(said, str) and text != key and text in required:
        found[text] = said
    elif isinstance(said, dict):
        for name, value in said.items():
            if isinstance(value, str) and name in required:
                found[name] = value
            elif isinstance(value, list) and len(value) == 1 and name in required:
                found.setdefault(name, value[0])
            if isinstance(value, list) and name in found and name != key:
                words = str(found[name]).split() if name == "activity_id" else [str(found[name])]
                for word in words:
                    if value and word not in map(str, value):
                        options = " or ".join(map(str, value))
                        raise UserError(
                            f"{rule.dataset_path}: {name} of {key} {found[key]} is {options}, this is '{found[name]}'"
                        )


def _check(rule: Rule, key: str, value: Any, known: Any) -> None:
    """A map has the values, a list has them or regular expressions."""
    if not known or isinstance(known, str):
        return
    at, cv = rule.dataset_path, os.path.basename(rule.tables.cv_path)
    if isinstance(known, dict):
        words = [str(value)] if str(value) in known else str(value).split()
        for word in words or [""]:
            if word not in known:
                raise UserError(f"{at}: {key}: '{word}' is not in {cv}{nearest(word, list(known))}")
        return
    options = [str(option) for option in known]
    if not any(option == str(value) or re.fullmatch(pattern_of(option), str(value), re.DOTALL) for option in options):
        some = " or ".join(map(_short, options[:3])) + (" or others" if len(options) > 3 else "")
        raise UserError(f"{at}: {key}: '{_short(str(value))}' is not what {cv} wants: {some}")


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"


def _check_components(rule: Rule, found: Attributes) -> None:
    """The parts of a model that an experiment wants."""
    experiment = rule.tables.cv.get("experiment_id", {})
    said = experiment.get(str(found.get("experiment_id", ""))) if isinstance(experiment, dict) else None
    if not isinstance(said, dict) or "source_type" not in found:
        return
    has = str(found["source_type"]).split()
    lacking = [part for part in said.get("required_model_components", []) if part and part not in has]
    if lacking:
        raise UserError(
            f"{rule.dataset_path}: source_type: the experiment {found['experiment_id']} wants {' '.join(lacking)}, "
            f"this is '{found['source_type']}'"
        )


def pattern_of(basic: str) -> str:
    """A basic regular expression of POSIX, which the CVs have, as Python's."""
    out, at = "", 0
    while at < len(basic):
        two = basic[at : at + 2]
        if two[:1] == "\\" and len(two) == 2:
            out += two[1] if two[1] in "{}()+?|" else re.escape(two[1])
            at += 2
        elif two[:1] == "[":
            end = at + 1 + (basic[at + 1 : at + 2] == "^")
            end += basic[end : end + 1] == "]"
            while end < len(basic) and basic[end] != "]":
                end = basic.find(":]", end) + 2 if basic.startswith("[:", end) and ":]" in basic[end:] else end + 1
            inner = basic[at + 1 : end]
            for name, characters in (
                ("digit", "0-9"),
                ("alpha", "A-Za-z"),
                ("alnum", "A-Za-z0-9"),
                ("lower", "a-z"),
                ("upper", "A-Z"),
            ):
                inner = inner.replace(f"[:{name}:]", characters)
            out += f"[{inner}]"
            at = end + 1
        else:
            out += two[0] if two[0] in ".*^$" else re.escape(two[0])
            at += 1
    return out


def fill(template: str, values: Attributes, separator: str, rule: Rule, what: str) -> str:
    """``<name>`` is an attribute's value. Neighbours without text between them are separated, as CMOR does. What stands in ``[]``,
    and a name that begins with ``_``, is left out where it has no value."""

    def value(name: str) -> str | None:
        found = values.get(name)
        if name == "activity_id" and found:
            return str(found).split()[0]
        return None if found in (None, "") else str(found)

    def optional(match: re.Match[str]) -> str:
        inner = match[1]
        return inner if all(value(name.strip(" _")) for name in re.findall(r"<([^>]*)>", inner)) else ""

    text = re.sub(r"\[([^\]]*)\]", optional, template).replace("><", f">{separator}<")
    text = re.sub(
        r"([/._-]?)<_(\w+)\s*>",
        lambda match: match[1] + f"<{match[2]}>" if value(match[2]) else "",
        text,
    )

    def put(match: re.Match[str]) -> str:
        name = match[1].strip()
        found = value({"table": "table_id"}.get(name, name))
        if found is None:
            raise UserError(f"{rule.dataset_path}: {what}: <{name}> has no value: {template}")
        if separator != "." and ("/" in found or found.startswith(".")):
            raise UserError(f"{rule.dataset_path}: {what}: <{name}> is '{found}', which cannot be in a file's name")
        return found

    return re.sub(r"<([^>]*)>", put, text)


def place(rule: Rule, attributes: Attributes, time_range: str | None, version: str) -> str:
    """The path of a file, below the output directory."""
    drs = rule.tables.cv.get("DRS", {})
    data = rule.dataset
    path = str(data.get("output_path_template") or drs.get("directory_path_template") or _PATH)
    file = str(data.get("output_file_template") or drs.get("filename_template") or _FILE)
    sub, label = str(attributes.get("sub_experiment_id", "none")), attributes.get("variant_label")
    member = f"{sub}-{label}" if label and sub not in ("none", "") else label
    values = {**attributes, "member_id": member, "version": version, "time_range": time_range}
    if time_range and "<time_range>" not in file:
        file = file.removesuffix(".nc") + "_<time_range>"
    name = fill(file, values, "_", rule, "output_file_template")
    return os.path.join(fill(path, values, "/", rule, "output_path_template").strip("/"), name.removesuffix(".nc") + ".nc")
