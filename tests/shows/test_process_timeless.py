"""`advectio process` of files that say no times: masks, climatologies, geo_em; beside NumPy and cdo."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from running import Result, run_plainly
from test_process import done, process, refused, values, worker  # noqa: F401

ROWS, COLUMNS = 4, 8


def begin(path: Path, dimensions: dict[str, int | None]) -> netCDF4.Dataset:
    file = netCDF4.Dataset(path, "w")
    for name, length in {**dimensions, "lat": ROWS, "lon": COLUMNS}.items():
        file.createDimension(name, length)
    for name, units, standard_name, at in (
        ("lat", "degrees_north", "latitude", np.linspace(-60, 60, ROWS)),
        ("lon", "degrees_east", "longitude", np.arange(COLUMNS) * 45.0),
    ):
        variable = file.createVariable(name, "f8", (name,))
        variable.units, variable.standard_name = units, standard_name
        variable[:] = at
    return file


def heights() -> np.ndarray:
    out = np.random.default_rng(1).uniform(0, 4000, (ROWS, COLUMNS)).astype("f4")
    out[1, 2] = np.nan
    return out


@pytest.fixture
def mask(tmp_path: Path) -> Path:
    with begin(tmp_path / "mask.nc", {}) as file:
        file.createVariable("land", "i1", ("lat", "lon"))[:] = np.arange(32).reshape(ROWS, COLUMNS) % 3 == 0
        orog = file.createVariable("orog", "f4", ("lat", "lon"), fill_value=-1)
        orog.units = "m"
        orog[:] = np.ma.masked_invalid(heights())
    return tmp_path / "mask.nc"


@pytest.fixture
def months(tmp_path: Path) -> Path:
    """A climatology: its twelve records count months, which no calendar fixes."""
    with begin(tmp_path / "months.nc", {"time": None}) as file:
        time = file.createVariable("time", "f8", ("time",))
        time.units = "months since 1955-01-01"
        time[:] = np.arange(12) + 0.5
        sst = file.createVariable("sst", "f4", ("time", "lat", "lon"))
        sst.units = "degC"
        sst[:] = np.random.default_rng(2).uniform(0, 30, (12, ROWS, COLUMNS))
    return tmp_path / "months.nc"


def test_a_mask_goes_through_all_that_needs_no_time(
    mask: Path,
    process: Callable[..., Result],  # noqa: F811
    tmp_path: Path,
):
    result = done(
        process(
            [
                'path: a.nc, variables: [orog], expressions: {high: {formula: "land * orog / 1000", units: km}}',
                "path: r.nc, region: {lon: [80, 230], lat: [-30, 90]}, units: {orog: km}",
                "path: c.nc, variables: [orog], coarsen: {lat: 2, lon: 4}",
                "path: p.nc, variables: [orog], points: {here: [21, 92]}",
                "path: m.nc, variables: [orog], expressions: {zonal: 'mean(orog, lon)'}, subset: {lat: '1:3'}",
            ],
            mask,
        )
    )
    assert "1 file without times" in result.stdout and "record" not in result.stdout, result.stdout
    h, land = heights().astype("f8"), np.arange(32).reshape(ROWS, COLUMNS) % 3 == 0
    out = tmp_path / "out"
    np.testing.assert_allclose(values(out / "a.nc", "high"), land * h / 1000, rtol=1e-6, equal_nan=True)
    np.testing.assert_array_equal(values(out / "a.nc", "orog"), h)
    np.testing.assert_allclose(values(out / "r.nc", "orog"), h[1:, 2:6] / 1000, rtol=1e-6, equal_nan=True)
    with np.errstate(invalid="ignore"):
        blocks = np.nanmean(h.reshape(2, 2, 2, 4), axis=(1, 3))
    np.testing.assert_allclose(values(out / "c.nc", "orog"), blocks, rtol=1e-6)
    assert values(out / "p.nc", "orog") == pytest.approx([h[2, 2]])
    np.testing.assert_allclose(values(out / "m.nc", "zonal"), np.nanmean(h[1:3], axis=1), rtol=1e-6)
    for path in out.iterdir():
        with netCDF4.Dataset(path) as file:
            assert not {"time", "Time"} & {*file.variables, *file.dimensions}


def test_records_of_a_climatology_stay_what_they_are(
    months: Path,
    process: Callable[..., Result],  # noqa: F811
    tool: Callable[[str], str],
    tmp_path: Path,
):
    done(
        process(
            [
                'path: k.nc, expressions: {k: {formula: "sst + 273.15", units: K}}',
                "path: z.nc, expressions: {zonal: 'mean(sst, lon)'}",
            ],
            months,
        )
    )
    with netCDF4.Dataset(tmp_path / "out" / "k.nc") as file:
        assert file["time"].units == "months since 1955-01-01" and file["time"][:].tolist() == [n + 0.5 for n in range(12)]
        assert file["k"].shape == (12, ROWS, COLUMNS) and file.dimensions["time"].isunlimited()
    for name, operator, variable in (("k", "addc,273.15", "k"), ("z", "zonmean", "zonal")):
        cdo = run_plainly([tool("cdo"), "-s", "-f", "nc4", operator, "months.nc", "cdo.nc"], tmp_path)
        assert cdo.code == 0, cdo.said
        theirs = values(tmp_path / "cdo.nc", "sst")
        np.testing.assert_allclose(values(tmp_path / "out" / f"{name}.nc", variable), theirs.squeeze(), rtol=1e-6)


def test_geo_em_and_a_dimension_of_months(process: Callable[..., Result], tmp_path: Path):  # noqa: F811
    """WRF's geogrid writes a date of zeros; a climatology may have a dimension that is no time at all."""
    field = np.random.default_rng(3).random((1, 4, 8)).astype("f4")
    with netCDF4.Dataset(tmp_path / "geo_em.nc", "w") as file:
        for name, length in (("Time", None), ("DateStrLen", 19), ("south_north", 4), ("west_east", 8)):
            file.createDimension(name, length)
        file.createVariable("Times", "S1", ("Time", "DateStrLen"))[0] = np.array(list("0000-00-00_00:00:00"), "S1")
        hgt = file.createVariable("HGT_M", "f4", ("Time", "south_north", "west_east"))
        hgt.units = "meters MSL"
        hgt[:] = field
    with netCDF4.Dataset(tmp_path / "by_month.nc", "w") as file:
        for name, length in (("month", 12), ("y", 8)):
            file.createDimension(name, length)
        file.createVariable("lai", "f4", ("month", "y"))[:] = np.arange(96.0).reshape(12, 8)
    result = done(process(["path: '{name}', expressions: {feet: 'HGT_M / 0.3048'}", "path: whole.nc"], "geo_em.nc"))
    assert "without Times" in result.stdout
    np.testing.assert_allclose(values(tmp_path / "out" / "geo_em.nc", "feet"), field / 0.3048, rtol=1e-6)
    done(process("path: '{name}', expressions: {year: 'mean(lai, month)'}", "by_month.nc"))
    np.testing.assert_array_equal(values(tmp_path / "out" / "by_month.nc", "year"), np.arange(96.0).reshape(12, 8).mean(axis=0))


def test_what_takes_times_is_refused(mask: Path, months: Path, refused: Callable[..., str]):  # noqa: F811
    no_time = "has no time axis: neither a variable with units like"
    wrong = {
        ("mean: 1d", mask): f"rules.yaml:2: mean takes the times of records: {mask}: {no_time}",
        ("path: 'a{time}.nc', split: 1mo", mask): f"rules.yaml:2: split takes the times of records: {mask}: {no_time}",
        ("time: [{max: 1y}]", months): "rules.yaml:2: maximum takes the times of records",
        ("variables: [orgo]", mask): "rules.yaml:2: variable orgo is not in the files; did you mean orog?",
    }
    for (keys, path), said in wrong.items():
        line = refused(keys if "path" in keys else f"path: a.nc, {keys}", path)
        assert said in line, line
    assert "a month has no fixed length" in refused("path: a.nc, mean: all", months)
    line = refused("path: a.nc", mask, months)
    assert f"{mask}: {no_time}" in line and "any other file is processed alone" in line, line


def test_levels_of_a_climatology(process: Callable[..., Result], tmp_path: Path):  # noqa: F811
    """Neither the pressure nor the field changes with time."""
    p = np.linspace(20000, 100000, 6)[:, None, None] * np.linspace(0.9, 1, 32).reshape(ROWS, COLUMNS)
    t = np.random.default_rng(4).uniform(200, 300, (6, ROWS, COLUMNS))
    with begin(tmp_path / "clim.nc", {"lev": 6}) as file:
        for name, units, field in (("p", "Pa", p), ("t", "K", t)):
            variable = file.createVariable(name, "f8", ("lev", "lat", "lon"))
            variable.units = units
            variable[:] = field
    done(process("path: a.nc, variables: [t], levels: {pressure: [500, 300 hPa], coordinate: p}", "clim.nc"))
    expected = np.empty((2, ROWS, COLUMNS))
    for y, x in np.ndindex(ROWS, COLUMNS):
        expected[:, y, x] = np.interp(np.log([50000, 30000]), np.log(p[:, y, x]), t[:, y, x])
    np.testing.assert_allclose(values(tmp_path / "out" / "a.nc", "t"), expected, rtol=1e-12)
