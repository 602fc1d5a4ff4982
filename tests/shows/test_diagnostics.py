"""What WRF does not write and its users ask for, and reductions: `advectio process` beside MetPy, xwrf, cdo and NumPy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from running import Result, run_plainly
from test_process import done, refused, values, worker  # noqa: F401  (fixtures)

Shared = Callable[[str], Path]
# A cut of a domain with mountains, on a Lambert projection.
WRF = "wrf/wrf_d01_allvars_cropped.nc"
FRAMES = "wrf471/serial/wrfout_d01_4frames.nc"
NAMES = (
    "p pressure theta tk tc geopt z height_agl rh td rh2 td2 ua va wa umet vmet umet10 vmet10 wspd wdir wspd10 wdir10 slp tv pw"
)


def sea_level_pressure(p: np.ndarray, t: np.ndarray, q: np.ndarray, z: np.ndarray) -> np.ndarray:
    """wrf-python's, in Pa, of one column."""
    above = p[0] - 10000
    high = int(np.argmax(p < above))
    low, high = high - 1, min(high, len(p) - 2)
    virtual = t * (1 + 0.608 * q)
    weight = np.log(above / p[high]) * np.log(p[low] / p[high])
    there = virtual[high] - (virtual[high] - virtual[low]) * weight
    surface = there * (p[0] / above) ** (0.0065 * 287 / 9.81)
    sea = there + 0.0065 * (z[high] - (z[high] - z[low]) * weight)
    limit = 273.16 + 17.5
    sea = limit if surface <= limit <= sea else limit - 0.005 * (surface - limit) ** 2
    return p[0] * np.exp(2 * 9.81 * z[0] / (287 * (sea + surface)))


def test_diagnostics_of_wrf_are_those_of_metpy_and_xwrf(shared: Shared, worker: Callable[..., Result], tmp_path: Path):  # noqa: F811
    pytest.importorskip("xwrf")
    xarray = pytest.importorskip("xarray")
    calc = pytest.importorskip("metpy.calc")
    units = pytest.importorskip("metpy.units").units
    source = shared(WRF)
    done(worker(f"path: a.nc, variables: [T2, {', '.join(NAMES.split())}]", source))
    made = {name: values(tmp_path / "out" / "a.nc", name) for name in NAMES.split()}
    given = {name: values(source, name) for name in ("P", "PB", "T", "QVAPOR", "PSFC", "Q2", "T2", "HGT", "PH", "PHB")}

    wrf = xarray.open_dataset(source).xwrf.postprocess().xwrf.destagger()
    for ours, theirs in {
        "p": "air_pressure",
        "theta": "air_potential_temperature",
        "geopt": "geopotential",
        "z": "geopotential_height",
        "umet": "wind_east",
        "vmet": "wind_north",
        "umet10": "wind_east_10",
        "vmet10": "wind_north_10",
    }.items():
        # xwrf computes in float32: neighbours of a float32 where terms cancel are far apart.
        scale = np.abs(made[ours]).max()
        np.testing.assert_allclose(made[ours], wrf[theirs].values, rtol=1e-6, atol=2e-7 * scale, err_msg=ours)
    np.testing.assert_array_equal(made["ua"], wrf["U"].values)

    pressure = given["P"] + given["PB"]
    temperature = calc.temperature_from_potential_temperature(pressure * units.Pa, (given["T"] + 300) * units.K).m
    np.testing.assert_allclose(made["tk"], temperature, rtol=2e-6)  # R/c_p is 0.2857 there too, to 6 digits
    np.testing.assert_allclose(made["tc"] + 273.15, made["tk"], atol=2e-5)
    np.testing.assert_allclose(made["pressure"] * 100, made["p"], rtol=1e-7)
    np.testing.assert_allclose(made["height_agl"], made["z"] - given["HGT"], atol=2e-3)
    wind = calc.wind_direction(made["umet"] * units("m/s"), made["vmet"] * units("m/s")).m % 360
    np.testing.assert_allclose((made["wdir"] - wind + 180) % 360, 180, atol=1e-3)
    np.testing.assert_allclose(made["wspd10"], np.hypot(made["umet10"], made["vmet10"]), rtol=1e-5)
    np.testing.assert_allclose(made["wspd"], np.hypot(made["ua"], made["va"]), rtol=1e-6)

    # MetPy's dew point is Bolton's, too; its saturation of newer versions is not, and differs by 2 % where it is cold.
    q = np.maximum(given["QVAPOR"], 0)
    moist = made["td"] > -80  # where the vapour's pressure is above the least one
    dew = calc.dewpoint(calc.vapor_pressure(pressure * units.Pa, q * units("kg/kg"))).m
    np.testing.assert_allclose(made["td"][moist], dew[moist], atol=0.01)
    saturation = 6.112 * np.exp(17.67 * (made["tk"] - 273.15) / (made["tk"] - 29.65))
    humidity = 100 * q / (0.622 * saturation / (pressure / 100 - 0.378 * saturation))
    np.testing.assert_allclose(made["rh"], np.clip(humidity, 0, 100), atol=1e-3)
    saturation = 6.112 * np.exp(17.67 * (given["T2"] - 273.15) / (given["T2"] - 29.65))
    humidity = 100 * given["Q2"] / (0.622 * saturation / (given["PSFC"] / 100 - 0.378 * saturation))
    np.testing.assert_allclose(made["rh2"], np.clip(humidity, 0, 100), atol=1e-3)

    thick = np.diff(given["PH"] + given["PHB"], axis=1) / 9.81
    column = (given["QVAPOR"] * pressure / (287 * made["tv"]) * thick).sum(axis=1)
    np.testing.assert_allclose(made["pw"], column, rtol=1e-6)
    expected = np.empty_like(made["slp"])
    for record, y, x in np.ndindex(expected.shape):
        at = (record, slice(None), y, x)
        expected[record, y, x] = sea_level_pressure(pressure[at], made["tk"][at], q[at], made["z"][at]) / 100
    np.testing.assert_allclose(made["slp"], expected, rtol=1e-6)
    assert given["HGT"].max() > 300, "there are mountains"

    with netCDF4.Dataset(tmp_path / "out" / "a.nc") as file:
        slp = file["slp"]
        assert (slp.units, slp.standard_name) == ("hPa", "air_pressure_at_mean_sea_level")
        assert slp.dimensions == ("Time", "south_north", "west_east") and "P" not in file.variables
        assert file["umet"].dimensions == ("Time", "bottom_top", "south_north", "west_east")


def test_diagnostics_go_into_expressions_levels_and_statistics(shared: Shared, worker: Callable[..., Result], tmp_path: Path):  # noqa: F811
    source = shared(FRAMES)
    rules = [
        'path: a.nc, variables: [slp], expressions: {depth: {formula: "slp - mean(slp, south_north, west_east)"}}, min: all',
        "path: b.nc, variables: [rh, wspd], levels: {pressure: [850, 500 hPa], preset: wrf}, mean: all",
        "path: c.nc, variables: [rh, wspd, slp]",
    ]
    done(worker(rules, source))
    out = tmp_path / "out"
    slp = values(out / "c.nc", "slp")
    np.testing.assert_array_equal(values(out / "a.nc", "slp")[0], slp.min(axis=0))
    depth = (slp - slp.mean(axis=(1, 2), keepdims=True)).min(axis=0)
    np.testing.assert_allclose(values(out / "a.nc", "depth")[0], depth, atol=2e-4)
    with netCDF4.Dataset(out / "b.nc") as file:
        assert file["rh"].dimensions == ("Time", "plev", "south_north", "west_east") and file["rh"].shape[:2] == (1, 2)
        assert file["rh"].cell_methods.startswith("Time: mean")


def test_reductions_are_those_of_cdo_and_numpy(
    shared: Shared,
    worker: Callable[..., Result],  # noqa: F811
    tool: Callable[[str], str],
    tmp_path: Path,
):
    source = shared(FRAMES)
    cdo = {
        "fldmin": "minimum(T2, south_north, west_east)",
        "fldmax": "maximum(T2, south_north, west_east)",
    }
    done(
        worker(
            [
                *(f'path: {name}.nc, expressions: {{X: "{text}"}}' for name, text in cdo.items()),
                'path: zonal.nc, expressions: {X: "mean(T, west_east)", N: "sum(T > 0, west_east)"}',
                'path: column.nc, expressions: {X: "maximum(W, bottom_top_stag)"}',
            ],
            source,
        )
    )
    for operator in ("fldmin", "fldmax"):
        plain = run_plainly([tool("cdo"), "-s", operator, "-selname,T2", source, "cdo.nc"], tmp_path)
        assert plain.code == 0, plain.said
        np.testing.assert_array_equal(
            values(tmp_path / "out" / f"{operator}.nc", "X"), values(tmp_path / "cdo.nc", "T2").reshape(-1)
        )
    np.testing.assert_array_equal(values(tmp_path / "out" / "column.nc", "X"), values(source, "W").max(axis=1))
    t = values(source, "T")
    # NumPy adds pairwise.
    np.testing.assert_allclose(values(tmp_path / "out" / "zonal.nc", "X"), t.mean(axis=3), rtol=1e-6, atol=1e-5)
    np.testing.assert_array_equal(values(tmp_path / "out" / "zonal.nc", "N"), (t > 0).sum(axis=3))
    with netCDF4.Dataset(tmp_path / "out" / "zonal.nc") as file:
        assert file["X"].dimensions == ("Time", "bottom_top", "south_north") and file["X"].filters()["zlib"]


def test_diagnostics_that_cannot_be(shared: Shared, refused: Callable[..., str]):  # noqa: F811
    wrong = {
        "variables: [mdbz]": "mdbz = 'maximum(REFL_10CM, bottom_top)': variable REFL_10CM is not in the files",
        "variables: [umet1]": "variable umet1 is not in the files; did you mean umet",
        'expressions: {x: "mean(T2, bottom_top)"}': "'bottom_top' is no dimension of it; it has south_north, west_east",
    }
    for rule, said in wrong.items():
        line = refused(f"path: a.nc, {rule}", shared(FRAMES))
        assert "rules.yaml:2: " in line and said in line, line
