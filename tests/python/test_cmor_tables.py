"""What `cmor` reads of a MIP's tables: cell methods, patterns, templates, frequencies."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import cftime
import pytest
from advectio import processing
from advectio.cmor import attributes, making
from advectio.cmor.layout import Layout
from advectio.cmor.rule import Rule, Step, Wanted, interval_days, time_methods
from advectio.cmor.tables import nearest, number, numbers
from advectio.errors import UserError

RULE = cast(Rule, SimpleNamespace(dataset_path="dataset.json"))


@pytest.mark.parametrize(
    "said, found",
    [
        ("area: time: mean", [("mean", "")]),
        ("time: mean", [("mean", "")]),
        ("area: mean time: point", [("point", "")]),
        ("area: mean where land time: mean", [("mean", "")]),
        ("area: mean time: maximum within days time: mean over days", [("maximum", "within days"), ("mean", "over days")]),
        ("area: time: mean (comment: of time: all)", [("mean", "")]),
        ("area: sum", []),
        ("", []),
    ],
)
def test_methods_along_time(said: str, found: list[tuple[str, str]]):
    assert time_methods(said) == found


@pytest.mark.parametrize(
    "basic, fits, not_",
    [
        ("^r[[:digit:]]\\{1,\\}i[[:digit:]]\\{1,\\}$", ["r1i12"], ["r1i", "x1i1", "r1i1p1"]),
        ("hdl:21.14100/.*", ["hdl:21.14100/abc"], ["hdl:21.14103/abc"]),
        ("^by .* (as in this file)\\.$", ["by me (as in this file)."], ["by me as in this file."]),
        (
            "^CF-1.7 CMIP-6.[0-2]\\( UGRID-1.0\\)\\{0,\\}$",
            ["CF-1.7 CMIP-6.2", "CF-1.7 CMIP-6.0 UGRID-1.0"],
            ["CF-1.7 CMIP-6.3"],
        ),
        ("a+[]x]", ["a+]", "a+x"], ["aa]"]),
    ],
)
def test_basic_regular_expressions(basic: str, fits: list[str], not_: list[str]):
    pattern = attributes.pattern_of(basic)
    assert [text for text in fits + not_ if re.fullmatch(pattern, text)] == fits


def test_templates():
    values = {"a": "A", "b": "B", "activity_id": "One Two", "empty": ""}

    def fill(template: str, separator: str = "_") -> str:
        return attributes.fill(template, values, separator, RULE, "template")

    assert fill("<a><b>") == "A_B" and fill("<a><b>", "/") == "A/B" and fill("<a>/x-<b >.nc") == "A/x-B.nc"
    assert fill("<a><_empty><b>") == "A_B" and fill("<a><_b>") == "A_B" and fill("<a>[_<nobody>][-<b>]") == "A-B"
    assert fill("<activity_id>") == "One"
    with pytest.raises(UserError, match=r"dataset\.json: template: <nobody> has no value: <a><nobody>"):
        fill("<a><nobody>")
    values["a"] = "../up"
    with pytest.raises(UserError, match=r"<a> is '\.\./up', which cannot be in a file's name"):
        fill("<a>")


@pytest.mark.parametrize(
    "frequency, text",
    [
        ("yr", "1999-2001"),
        ("mon", "199912-200101"),
        ("day", "19991231-20010102"),
        ("6hr", "199912312359-200101020300"),
        ("3hrPt", "199912312359-200101020300"),
        ("subhrPt", "19991231235930-20010102030000"),
    ],
)
def test_the_time_range_is_as_exact_as_the_frequency(frequency: str, text: str):
    dates = (cftime.DatetimeNoLeap(1999, 12, 31, 23, 59, 30), cftime.DatetimeNoLeap(2001, 1, 2, 2, 59, 59, 999_900))
    wanted = Wanted("x", {"frequency": frequency}, {"time": {"axis": "T"}}, "x", None, False, "rules.yaml:2")
    assert making.time_range(wanted, Layout(None, [], [], None, dates=dates)) == text


def test_frequencies_and_windows():
    assert Step("mean", "24h").length == Step("mean", "1d").length and Step("mean", "12mo").length == Step("mean", "1y").length
    assert Step("mean", "1mo").length != Step("mean", "30d").length and Step("mean", "all").length is None
    assert interval_days("6hrPt") == (0.25, 0.25) and interval_days("mon") == (28, 31) and interval_days("subhrPt") is None


def test_numbers_of_the_tables():
    assert numbers(["85000.", "500"]) == [85000, 500] == numbers("85000. 500") and numbers("") == [] and number("") is None
    assert number("-90.0") == -90 and number(2) == 2 and nearest("TAS", ["tas", "pr"]) == "; did you mean tas?"


@pytest.mark.parametrize(
    "text, there",
    [
        ("outputs:\n  - cmor: {tables: t}\n", True),
        ("outputs:\n  - {variables: {tas: T2}, cmor: {}}\n", True),
        ('outputs: [{"cmor": {}}]', True),
        ("outputs:\n  - {path: a.nc}  # no cmor: here\n", False),
        ("outputs:\n  - {path: cmor.nc, mean: 1d}\n", False),
    ],
)
def test_rules_with_cmor_are_known(tmp_path: Path, text: str, there: bool):
    (tmp_path / "rules.yaml").write_text(text)
    assert processing.has_cmor(str(tmp_path / "rules.yaml")) is there
