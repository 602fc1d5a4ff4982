"""Recipes: what is wrong is told in one line, with path, line and the nearest known key."""

from __future__ import annotations

import pytest

pytest.importorskip("yaml")
pytest.importorskip("matplotlib")

from advectio.errors import UserError
from advectio.pictures import recipes

PLOT = "  - kind: map\n    field: T2\n"
WRONG = {
    "an unknown key of the recipe": ("plot: []\n", "r.yaml:1: unknown key plot; did you mean plots?"),
    "an unknown key of a plot": (f"plots:\n{PLOT}    colormap: viridis\n", "r.yaml:4: unknown key plots[0].colormap; did you mean colour_map?"),
    "a key of no plot": (f"plots:\n{PLOT}    zzzzzz: 1\n", "known here: kind, field"),
    "an unknown key of the defaults": (f"defaults: {{dip: 100}}\nplots:\n{PLOT}", "r.yaml:1: unknown key defaults.dip; did you mean dpi?"),
    "a name among the defaults": (f"defaults: {{name: x}}\nplots:\n{PLOT}", "r.yaml:1: name is each plot's own"),
    "an unknown kind": ("plots:\n  - kind: maps\n    field: T2\n", "r.yaml:2: kind is maps; did you mean map?"),
    "no field": ("plots:\n  - kind: map\n", "r.yaml:2: this plot has no field"),
    "a key of another kind": (f"plots:\n{PLOT}    y: 3\n", "r.yaml:4: y is a key of a section, and this is a map"),
    "a section without a place": ("plots: [{kind: section, field: W}]\n", "one of x, y, or from and to"),
    "a section with two": ("plots: [{kind: section, field: W, x: 1, y: 2}]\n", "one of x, y, or from and to"),
    "half a line": ("plots: [{kind: section, field: W, from: [1, 2]}]\n", "both from and to"),
    "a series of nowhere": ("plots: [{kind: series, field: T2}]\n", "has no at"),
    "a wrong expression": ("plots:\n  - kind: map\n    field: w = hypot(U10)\n", "r.yaml:3: field is wrong: hypot takes 2 arguments"),
    "code": ("plots: [{kind: map, field: \"__import__('os')\"}]\n", "field is wrong"),
    "a range that falls": (f"plots:\n{PLOT}    range: [5, 1]\n", "r.yaml:4: range is [5, 1]; from low to high"),
    "a range of one number": (f"plots:\n{PLOT}    range: 5\n", "two numbers"),
    "levels that fall": (f"plots:\n{PLOT}    levels: [3, 2, 1]\n", "rising"),
    "no level": (f"plots:\n{PLOT}    level: ground\n", "r.yaml:4: level is 'ground'"),
    "an unknown colour map": (f"plots:\n{PLOT}    colour_map: virids\n", "did you mean viridis?"),
    "an unknown name in a title": (f"plots:\n{PLOT}    title: '{{tim}}'\n", "did you mean {time}?"),
    "an attribute in a title": (f"plots:\n{PLOT}    title: '{{time.__class__}}'\n", "names {time.__class__}"),
    "half a brace": (f"plots:\n{PLOT}    title: 'a {{time'\n", "title is"),
    "a picture that is no PNG": (f"plots:\n{PLOT}    file: a.jpg\n", "ends in .png"),
    "a picture outside": (f"plots:\n{PLOT}    file: ../a.png\n", "below the output directory"),
    "an unknown film": (f"plots:\n{PLOT}    animate: avi\n", "one of gif, mp4"),
    "too fine": (f"plots:\n{PLOT}    dpi: 9999\n", "from 30 to 600"),
    "no plots": ("output: x\n", "there are no plots"),
    "an empty list": ("plots: []\n", "plots is a list"),
    "two of one name": (f"plots:\n{PLOT}{PLOT}", "r.yaml:4: there is a plot T2 already (r.yaml:2)"),
    "a key twice": (f"plots:\n{PLOT}    field: T2\n", "r.yaml:4: plots[0].field is there twice"),
    "no YAML": ("plots: [\n", "no YAML"),
    "text": ("hello\n", "keys and values"),
    "nothing": ("", "is empty"),
    "no jobs": (f"jobs: 0\nplots:\n{PLOT}", "r.yaml:1: jobs is 0"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_wrong(tmp_path, monkeypatch, what):
    text, said = WRONG[what]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(UserError) as caught:
        recipes.read("r.yaml")
    assert said in str(caught.value) and str(caught.value).startswith("r.yaml")
    assert "\n" not in str(caught.value)


def test_a_recipe_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match=r"absent\.yaml: No such file"):
        recipes.read(str(tmp_path / "absent.yaml"))


def test_every_key(tmp_path):
    (tmp_path / "r.yaml").write_text("""
files: [wrfout_d01*]
output: out
fps: 2
jobs: 3
defaults: {dpi: 60, animate: gif}
plots:
  - {kind: map, field: T2, level: 850 hPa, range: [0, 20], units: degC, colour_map: radar, title: "{label} {time:%H}",
     file: "a/{name}_{time:%H}.png", contours: {field: PSFC, every: 4, units: hPa}, wind: [U10, V10], name: t}
  - {kind: section, field: W, from: [25.0, -90], to: [26, -89], top: 12, levels: [1, 2, 5], animate: mp4}
  - {kind: series, field: NO, at: [[1, 2], {lat: 25, lon: -90}, mean]}
""")
    recipe = recipes.read(str(tmp_path / "r.yaml"))
    first, second, third = recipe.plots
    assert (recipe.files, recipe.output, recipe.fps, recipe.jobs) == (("wrfout_d01*",), "out", 2, 3)
    assert first.level == recipes.Level(value=850, units="hPa") and first.range == (0, 20) and first.dpi == 60
    assert first.contours is not None and first.contours.every == 4 and first.wind is not None and first.wind.v.name == "V10"
    assert (second.start, second.end, second.top, second.levels, second.animate) == ((25, -90), (26, -89), 12, (1, 2, 5), "mp4")
    assert [str(at) for at in third.at] == ["x=1, y=2", "25.00°N 90.00°W", "domain mean"]
    assert third.field.name == "NO" and third.animate is None


def test_the_recipe_of_the_examples_is_right():
    from pathlib import Path

    recipe = recipes.read(str(Path(__file__).parents[2] / "examples" / "insitu" / "recipe.yaml"))
    assert [plot.kind for plot in recipe.plots] == ["map", "map", "map", "section", "series"]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("map", "T2", {"name": "T2"}),
        ("map", "wind10 = hypot(U10, V10),units=kt", {"name": "wind10", "units": "kt"}),
        ("map", "QVAPOR,level=850hPa,range=-1:20", {"name": "QVAPOR_850hPa", "range": (-1.0, 20.0)}),
        ("map", "W,level=3km,wind=U10/V10", {"level": recipes.Level(value=3, units="km")}),
        ("section", "QVAPOR,y=40", {"y": 40, "name": "QVAPOR_y40"}),
        ("section", "QVAPOR,from=25.5/-90,to=26/-89", {"start": (25.5, -90.0), "name": "QVAPOR_line"}),
        ("series", "T2@24,30", {"at": (recipes.At(x=24, y=30),), "name": "T2_x24_y30"}),
        ("series", "T2@lat=25.5,lon=-90", {"at": (recipes.At(lat=25.5, lon=-90),)}),
        ("series", "W@max,level=max", {"at": (recipes.At(statistic="max"),)}),
        ("series", "w = hypot(U10, V10)@3,4", {"name": "w_x3_y4"}),
    ],
)
def test_options(kind, text, expected):
    plot = recipes.of_option(kind, text)
    assert {key: getattr(plot, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("map", "T2,lvl=3", "unknown key lvl; did you mean level?"),
        ("map", "T2,cmap=viridis", "did you mean colour_map?"),
        ("map", "T2,3", "'3' is no key=value"),
        ("map", "T2,y=3", "y is a key of a section"),
        ("section", "QVAPOR", "one of x, y"),
        ("series", "T2", "has no at"),
        ("series", "T2@a,b", "no number"),
        ("series", "T2@1.5,2", "whole number"),
        ("map", "", "field is no text"),
    ],
)
def test_wrong_options(kind, text, said):
    with pytest.raises(UserError) as caught:
        recipes.of_option(kind, text)
    assert said in str(caught.value) and f"--{kind}" in str(caught.value)
