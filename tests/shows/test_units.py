"""Units of results: `advectio process` beside cdo and NumPy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from running import Result
from test_process import WRF, done, hours, refused, values, worker  # noqa: F401  (fixtures)
from test_regridding import cdo  # noqa: F401  (fixture)

Shared = Callable[[str], Path]


def test_results_have_the_units_of_the_rule(
    shared: Shared,
    worker: Callable[..., Result],  # noqa: F811
    cdo: Callable[..., Path],  # noqa: F811
    tmp_path: Path,
):
    source = shared(WRF)
    rules = [
        "path: a.nc, variables: [T2, PSFC, U10, RAINNC, slp], units: {T2: degC, PSFC: hPa, U10: knot, RAINNC: kg m-2, slp: Pa}",
        "path: b.nc, variables: [T2], units: {T2: degF}, mean: all",
        "path: c.nc, variables: [T2, RAINNC], units: {T2: mK, RAINNC: inch}, difference: all",
        "path: d.nc, variables: [RAINNC, HGT], units: {RAINNC: g m-2, HGT: km}, cf: true, coarsen: {west_east: 2}",
    ]
    done(worker(rules, source))
    out = tmp_path / "out"
    theirs = cdo("-subc,273.15", "-selname,T2", source, to="t.nc")
    np.testing.assert_allclose(values(out / "a.nc", "T2"), values(theirs, "T2"), atol=2e-5)  # cdo has float32
    with netCDF4.Dataset(source) as file, netCDF4.Dataset(out / "a.nc") as made:
        given = {name: file[name][:].data.astype("f8") for name in ("T2", "PSFC", "U10", "RAINNC")}
        units = ("degC", "hPa", "knot", "kg m-2", "Pa")
        assert [made[name].units for name in ("T2", "PSFC", "U10", "RAINNC", "slp")] == list(units)
        np.testing.assert_array_max_ulp(made["T2"][:].data, (given["T2"] - 273.15).astype("f4"))
        np.testing.assert_array_max_ulp(made["PSFC"][:].data, (given["PSFC"] / 100).astype("f4"))
        np.testing.assert_array_max_ulp(made["U10"][:].data, (given["U10"] * 3600 / 1852).astype("f4"))
        np.testing.assert_array_max_ulp(made["RAINNC"][:].data, given["RAINNC"].astype("f4"))
        assert made["RAINNC"].units_conversion == "from mm, with 1000 kg m-3 of liquid water"
        assert made["slp"][:].min() > 90000 and made["T2"].dtype == "f4"
    mean = given["T2"].mean(axis=0, keepdims=True)
    np.testing.assert_allclose(values(out / "b.nc", "T2"), mean * 9 / 5 - 459.67, rtol=1e-6)
    change = given["T2"][-1:] - given["T2"][:1]
    np.testing.assert_allclose(values(out / "c.nc", "T2"), change * 1000, rtol=1e-6)
    with netCDF4.Dataset(out / "d.nc") as made:
        assert made["RAINNC"].standard_name == "stratiform_precipitation_amount" and made["HGT"].units == "km"
        expected = given["RAINNC"].reshape(4, 48, 24, 2).mean(axis=3) * 1000
        np.testing.assert_allclose(made["RAINNC"][:].data, expected, rtol=1e-6)


def test_missing_values_stay_missing(worker: Callable[..., Result], tmp_path: Path):  # noqa: F811
    with netCDF4.Dataset(tmp_path / "in.nc", "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 4)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "hours since 2001-01-01"
        time[:] = [0, 1]
        t = file.createVariable("t", "i2", ("time", "x"), fill_value=-1)
        t.units, t.scale_factor, t.valid_range = "K", 0.5, np.array([0, 900], "i2")
        t[:] = np.ma.masked_equal([[273, 0, 274, 275], [0, 0, 273.5, 280]], 0)
        still = file.createVariable("still", "f8", ("x",))
        still.units = "m2 s-2"
        still[:] = [1, 2, 3, 4]
    done(worker("path: a.nc, units: {t: celsius, still: 'kJ kg-1'}", tmp_path / "in.nc"))
    with netCDF4.Dataset(tmp_path / "out" / "a.nc") as file:
        assert file["t"][:].mask.tolist() == [[False, True, False, False], [True, True, False, False]]
        np.testing.assert_allclose(file["t"][:].compressed(), [-0.15, 0.85, 1.85, 0.35, 6.85], rtol=1e-12)
        assert file["t"].units == "celsius" and not {"scale_factor", "valid_range"} & set(file["t"].ncattrs())
        np.testing.assert_allclose(file["still"][:], [0.001, 0.002, 0.003, 0.004], rtol=1e-15)


def test_units_that_cannot_be_are_said_first(hours: Path, shared: Shared, refused: Callable[..., str]):  # noqa: F811
    wrong = {
        "units: {T2: degX}": "rules.yaml:2: units: T2: UDUNITS does not know the unit 'degX'; did you mean degC?",
        "units: {T2: Pa}": "rules.yaml:2: units: T2: 'K' cannot become 'Pa'",
        "units: {T3: degC}": "rules.yaml:2: units: T3 is no variable of this output that has units to change; did you mean T2?",
        "units: {time: days}": "rules.yaml:2: units: time is no variable of this output that has units to change",
        "units: {T2: degC}, difference: 1d": "a sum or difference in 'K' has no value in 'degC', whose zero is another",
        "units: {T2: degC}, coarsen: {x: 2, method: sum}": "a sum or difference in 'K' has no value in 'degC'",
        "units: [T2]": 'outputs[0].units: a map is wanted, like {T2: degC, RAINNC: "kg m-2"}',
        "units: {s: knot}, expressions: {s: 'U10 * V10'}": "units: s: it has no known units; of an expression say them there",
    }
    for keys, said in wrong.items():
        assert said in refused(f"path: a.nc, {keys}", hours), keys


def test_without_udunits_only_units_are_refused(
    hours: Path,  # noqa: F811
    worker: Callable[..., Result],  # noqa: F811
    refused: Callable[..., str],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
):
    (tmp_path / "libudunits2.so.0").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    said = refused("path: a.nc, units: {T2: degC}", hours)
    assert "rules.yaml:2: units: T2: UDUNITS cannot be used (" in said and "on Debian it is libudunits2-0" in said
    done(worker("path: a.nc, variables: [T2]", hours))
