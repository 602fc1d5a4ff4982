"""Levels by the formula that a file has for its own ones: `preset: hybrid` beside MetPy, NumPy and cdo."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from running import Result, run_plainly
from test_process import done, process, refused, values, worker  # noqa: F401

LEVELS, ROWS, COLUMNS = 8, 5, 6
WANTED = np.array([85000.0, 50000.0, 30000.0])
RULE = "levels: {pressure: [850, 500, 300 hPa], preset: hybrid"


def interfaces() -> tuple[np.ndarray, np.ndarray]:
    """a (in Pa) and b of half levels, from the top down, as such models have them."""
    eta = np.linspace(0, 1, LEVELS + 1)
    b = eta**1.8
    return 1e5 * (0.9 * eta - 0.9 * b + 0.002 * (1 - eta)), b


def full(half: np.ndarray) -> np.ndarray:
    return (half[1:] + half[:-1]) / 2


def begin(path: Path, levels: dict[str, int]) -> netCDF4.Dataset:
    file = netCDF4.Dataset(path, "w")
    for name, length in {"time": None, **levels, "lat": ROWS, "lon": COLUMNS}.items():
        file.createDimension(name, length)
    time = file.createVariable("time", "f8", ("time",))
    time.units, time.calendar = "days since 2000-01-01", "standard"
    time[:] = [0.5, 1.5]
    for name, units, standard_name, at in (
        ("lat", "degrees_north", "latitude", np.linspace(-80, 80, ROWS)),
        ("lon", "degrees_east", "longitude", np.arange(COLUMNS) * 60.0),
    ):
        variable = file.createVariable(name, "f8", (name,))
        variable.units, variable.standard_name = units, standard_name
        variable[:] = at
    return file


def put(file: netCDF4.Dataset, name: str, dimensions: tuple[str, ...], field: object, **attributes: str) -> None:
    variable = file.createVariable(name, "f4" if len(dimensions) > 2 else "f8", dimensions)
    variable.setncatts(attributes)
    variable[...] = field


def surface() -> np.ndarray:
    return np.random.default_rng(1).uniform(7e4, 1.02e5, (2, ROWS, COLUMNS)).astype("f4")


def field(levels: int) -> np.ndarray:
    return np.random.default_rng(levels).uniform(200, 300, (2, levels, ROWS, COLUMNS)).astype("f4")


def pressure(a: np.ndarray, b: np.ndarray, ps: np.ndarray) -> np.ndarray:
    return a[:, None, None] + b[:, None, None] * ps[:, None].astype("f8")


def interpolated(p: np.ndarray, x: np.ndarray, levels: np.ndarray, log: bool) -> np.ndarray:
    """By NumPy, column by column."""
    out = np.full((len(p), len(levels), ROWS, COLUMNS), np.nan)
    to, of = (np.log(levels), np.log(p)) if log else (levels, p)
    for record, y, column in np.ndindex(len(p), ROWS, COLUMNS):
        out[record, :, y, column] = np.interp(to, of[record, :, y, column], x[record, :, y, column], left=np.nan, right=np.nan)
    return out


@pytest.fixture
def cam(tmp_path: Path) -> Path:
    """As CAM writes it: a * p0 + b * ps, layers and interfaces."""
    a, b = interfaces()
    path = tmp_path / "cam.nc"
    with begin(path, {"lev": LEVELS, "ilev": LEVELS + 1}) as file:
        put(file, "P0", (), 1e5, units="Pa")
        for name, letter, of_a, of_b in (("lev", "m", full(a), full(b)), ("ilev", "i", a, b)):
            put(
                file,
                name,
                (name,),
                (of_a + of_b * 1e5) / 100,
                units="hPa",
                positive="down",
                standard_name="atmosphere_hybrid_sigma_pressure_coordinate",
                formula_terms=f"a: hya{letter} b: hyb{letter} p0: P0 ps: PS",
            )
            put(file, f"hya{letter}", (name,), of_a / 1e5)
            put(file, f"hyb{letter}", (name,), of_b)
        put(file, "PS", ("time", "lat", "lon"), surface(), units="Pa")
        put(file, "T", ("time", "lev", "lat", "lon"), field(LEVELS), units="K")
        put(file, "OMEGA", ("time", "ilev", "lat", "lon"), field(LEVELS + 1), units="Pa s-1")
    return path


@pytest.mark.filterwarnings("ignore:Interpolation point out of data bounds")
def test_hybrid_levels_of_cam_are_those_of_metpy(
    cam: Path,
    process: Callable[..., Result],  # noqa: F811
    tmp_path: Path,
):
    interpolate = pytest.importorskip("metpy.interpolate")
    done(process([f"path: a.nc, {RULE}}}, variables: [T, OMEGA, PS]", f"path: m.nc, {RULE}, method: linear}}, mean: all"], cam))
    a, b = interfaces()
    for name, of_a, of_b, levels in (("T", full(a), full(b), LEVELS), ("OMEGA", a, b, LEVELS + 1)):
        p = pressure(of_a, of_b, surface())
        expected = interpolate.log_interpolate_1d(WANTED, p, field(levels).astype("f8"), axis=1)
        assert 0.5 < np.isfinite(expected).mean() < 1, "some levels are below the ground"
        made = values(tmp_path / "out" / "a.nc", name)
        np.testing.assert_allclose(made, expected, rtol=1e-6, equal_nan=True)
    with netCDF4.Dataset(tmp_path / "out" / "a.nc") as file:
        assert file["T"].dimensions == ("time", "plev", "lat", "lon") and file["plev"].units == "hPa"
        assert "hyam * P0 + hybm * PS" in file["T"].vertical_interpolation
        assert "hyai * P0 + hybi * PS" in file["OMEGA"].vertical_interpolation
        assert not {"lev", "ilev"} & {*file.variables, *file.dimensions}, "levels that are no longer there"
    linear = interpolated(pressure(full(a), full(b), surface()), field(LEVELS), WANTED, log=False)
    there = np.isfinite(linear).sum(axis=0)
    mean = np.where(there > 0, np.nansum(linear, axis=0) / np.maximum(there, 1), np.nan)
    np.testing.assert_allclose(values(tmp_path / "out" / "m.nc", "T")[0], mean, rtol=1e-6, equal_nan=True)


def test_levels_of_cf_are_those_of_cdo(
    process: Callable[..., Result],  # noqa: F811
    tool: Callable[[str], str],
    tmp_path: Path,
):
    """ap + b * ps, with bounds, as CMIP's files have it; cdo wants to know the half levels."""
    a, b = interfaces()
    terms = {"standard_name": "atmosphere_hybrid_sigma_pressure_coordinate", "units": "1"}
    with begin(tmp_path / "cf.nc", {"lev": LEVELS, "bnds": 2}) as file:
        put(file, "lev", ("lev",), full(a) / 1e5 + full(b), **terms, axis="Z", positive="down")
        file["lev"].setncatts({"formula_terms": "ap: ap b: b ps: ps", "bounds": "lev_bnds"})
        put(file, "lev_bnds", ("lev", "bnds"), np.stack([a / 1e5 + b] * 2, 1)[:-1], **terms)
        file["lev_bnds"].formula_terms = "ap: ap_bnds b: b_bnds ps: ps"
        for name, units, half in (("ap", "Pa", a), ("b", "1", b)):
            put(file, name, ("lev",), full(half), units=units)
            put(file, f"{name}_bnds", ("lev", "bnds"), np.stack([half[:-1], half[1:]], 1), units=units)
        put(file, "ps", ("time", "lat", "lon"), surface(), units="Pa", standard_name="surface_air_pressure")
        put(file, "ta", ("time", "lev", "lat", "lon"), field(LEVELS), units="K")
    done(process(f"path: a.nc, {RULE}, method: linear}}, variables: [ta]", "cf.nc"))
    cdo = run_plainly([tool("cdo"), "-s", "-f", "nc4", "ml2pl,85000,50000,30000", "cf.nc", "cdo.nc"], tmp_path)
    assert cdo.code == 0, cdo.said
    theirs = values(tmp_path / "cdo.nc", "ta")
    assert 0.5 < np.isfinite(theirs).mean() < 1
    ours = values(tmp_path / "out" / "a.nc", "ta")
    np.testing.assert_allclose(ours, np.where(np.isfinite(ours), theirs, np.nan), rtol=1e-6, equal_nan=True)
    # Below the lowest level's middle, and above the ground, cdo takes its value.
    lowest, ground = pressure(full(a), full(b), surface())[:, -1:], surface()[:, None]
    between = (WANTED[:, None, None] > lowest) & (WANTED[:, None, None] < ground)
    np.testing.assert_array_equal(np.isfinite(theirs) & ~np.isfinite(ours), between)


@pytest.mark.parametrize("logarithm", [False, True], ids=["sp", "lnsp"])
def test_levels_of_echam_and_the_ifs_have_coefficients_of_their_own_dimension(
    process: Callable[..., Result],  # noqa: F811
    tmp_path: Path,
    logarithm: bool,
):
    """As cdo writes them: hyam(nhym) beside lev, and a surface's pressure that the formula may call otherwise."""
    a, b = interfaces()
    with begin(tmp_path / "echam.nc", {"lev": LEVELS, "nhym": LEVELS}) as file:
        put(file, "lev", ("lev",), np.arange(LEVELS) + 1, standard_name="hybrid_sigma_pressure", units="level")
        file["lev"].formula_terms = "ap: hyam b: hybm ps: aps"
        put(file, "hyam", ("nhym",), full(a), units="Pa")
        put(file, "hybm", ("nhym",), full(b), units="1")
        if logarithm:
            put(file, "lnsp", ("time", "lat", "lon"), np.log(surface()), units="~")
        else:
            put(file, "sp", ("time", "lat", "lon"), surface(), units="Pa")
        put(file, "t", ("time", "lev", "lat", "lon"), field(LEVELS), units="K")
    done(process(f"path: a.nc, {RULE}}}, variables: [t]", "echam.nc"))
    ps = np.exp(np.log(surface()).astype("f8")) if logarithm else surface()
    expected = interpolated(pressure(full(a), full(b), ps), field(LEVELS), WANTED, log=True)
    np.testing.assert_allclose(values(tmp_path / "out" / "a.nc", "t"), expected, rtol=1e-6, equal_nan=True)


def test_a_coordinate_has_units_and_may_be_an_expression_of_the_rule(
    cam: Path,
    process: Callable[..., Result],  # noqa: F811
    tmp_path: Path,
):
    """Operands are repeated by the names of their dimensions: ps * b has the levels first, as T has them."""
    done(
        process(
            [
                f"path: a.nc, {RULE}}}, variables: [T]",
                'path: b.nc, variables: [T], expressions: {p: {formula: "PS * hybm + hyam * P0", units: Pa}}, '
                "levels: {pressure: [850, 500, 300 hPa], coordinate: p}",
                "path: c.nc, variables: [T], levels: {pressure: [850, 500, 300 hPa], "
                'coordinate: {formula: "10 * hyam * P0 / 10 + hybm * PS", units: Pa}}',
                'path: d.nc, expressions: {p: "hybm * PS"}',
            ],
            cam,
        )
    )
    first = values(tmp_path / "out" / "a.nc", "T")
    for name in ("b.nc", "c.nc"):
        np.testing.assert_allclose(values(tmp_path / "out" / name, "T"), first, rtol=1e-6, equal_nan=True)
    _, b = interfaces()
    np.testing.assert_allclose(values(tmp_path / "out" / "d.nc", "p"), full(b)[:, None, None] * surface()[:, None], rtol=1e-6)


def test_formulas_that_files_do_not_have(cam: Path, refused: Callable[..., str], tmp_path: Path):  # noqa: F811
    def variant(name: str, change: Callable[[netCDF4.Dataset], None]) -> Path:
        path = tmp_path / name
        path.write_bytes(cam.read_bytes())
        with netCDF4.Dataset(path, "a") as file:
            change(file)
        return path

    subprocess.run(["ncks", "-O", "-C", "-x", "-v", "PS", cam, "no_ps.nc"], check=True, cwd=tmp_path)
    hpa = variant("hpa.nc", lambda file: file["PS"].setncattr("units", "hPa"))
    bare = variant("bare.nc", lambda file: [file.renameVariable(f"hy{c}{k}", f"{c}{k}") for c in "ab" for k in "mi"])
    rule = f"path: a.nc, variables: [T], {RULE}}}"
    for path, said in (
        (
            tmp_path / "no_ps.nc",
            "lev needs the surface's pressure: PS, which is not in the files",
        ),
        (hpa, "the formula of lev adds P0 in 'Pa' and PS in 'hPa'"),
        (bare, "the formula of lev needs its term a: hyam, which is not in the files"),
    ):
        line = refused(rule, path)
        assert "rules.yaml:2: levels: " in line and said in line, line
    for keys, said in (
        ("pressure: [850 hPa], preset: hybird", "preset: 'hybird' is none of: wrf, hybrid"),
        ("pressure: [850 hPa], presett: hybrid", "unknown key presett; did you mean preset?"),
        ("pressure: [850 hPa], preset: hybrid, coordinate: PS", "leave coordinate or preset out"),
        ("height: [850 m], preset: hybrid", "the files have no levels of hybrid height"),
        ('pressure: [850 hPa], coordinate: {formula: "hybm * PS", unit: Pa}', "coordinate: unknown key unit; known: formula"),
        ('pressure: [850 hPa], coordinate: "hybm ^ 2 * hyam"', "has no known units, and the levels are in hPa; say them as"),
        ('pressure: [850 hPa], coordinate: "hybi * hybm"', "dimensions (lev) and (ilev) do not fit; no variable of the files"),
    ):
        line = refused(f"path: a.nc, variables: [T], levels: {{{keys}}}", cam)
        assert "rules.yaml:2: " in line and said in line, line
