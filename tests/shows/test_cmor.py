"""Outputs with `cmor`: what a MIP's tables want of a file, judged by CMOR itself and compliance-checker, where they are."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
from advectio.cmor import writing
from running import Result, environment, run_plainly
from test_process import done, write_rules
from toy_mip import CV, write_dataset, write_mip

Shared = Callable[[str], Path]
LAMBERT, MOVING = "wrf/wrf_d01_allvars_cropped.nc", "wrf/wrfout_d01_wrf381_4times.nc"
EACH_FILE = {"tracking_id", "creation_date"}
PLACE = "TOYMIP/Toy-1/r1i2p3f4"


def cmor(table: str, keys: str, more: str = "") -> str:
    return f"cmor: {{tables: tables, table: {table}, dataset: dataset.json, version: v20260101{more}}}, {keys}"


@pytest.fixture
def process(call: Callable[..., Result], tmp_path: Path) -> Callable[..., Result]:
    """Rules beside the toy MIP; outputs are below out/."""
    write_mip(tmp_path)

    def run(rules: str | list[str], *words: str | Path, to: str = "out") -> Result:
        write_rules(tmp_path, rules)
        return call("process", *words, "-c", "rules.yaml", "-o", to)

    return run


@pytest.fixture
def refused(process: Callable[..., Result], tmp_path: Path) -> Callable[..., str]:
    def run(rules: str | list[str], *words: str | Path) -> str:
        result = process(rules, *words)
        assert result.code == 2, result.said
        assert not (tmp_path / "out").exists(), "nothing is written"
        return result.stderr

    return run


@pytest.fixture
def globe(tmp_path: Path) -> Path:
    """Two months of daily fields of the whole earth, as no MIP wants them: from the north southwards, from -180 on, pressure in hPa
    and rising, temperature in degC, one more level."""
    path = tmp_path / "globe.nc"
    with netCDF4.Dataset(path, "w") as file:
        for name, length in (("time", None), ("lev", 4), ("y", 6), ("x", 8)):
            file.createDimension(name, length)
        for name, kind, units, values in (
            ("time", "time", "hours since 2001-01-01", 24.0 * np.arange(59) + 12),
            ("lev", "air_pressure", "hPa", np.array([500.0, 700, 850, 925])),
            ("y", "latitude", "degrees_north", np.arange(75.0, -90, -30)),
            ("x", "longitude", "degrees_east", np.arange(-180.0, 180, 45)),
        ):
            variable = file.createVariable(name, "f8", (name,))
            variable.units, variable.standard_name = units, kind
            variable[:] = values
        file["time"].calendar = "noleap"
        day, lev, y, x = np.ogrid[:59, :4, :6, :8]
        t = file.createVariable("T", "f4", ("time", "lev", "y", "x"), fill_value=-99)
        t.units = "degC"
        t[:] = (day + 10.0 * lev + 100 * y + 0.5 * x).astype("f4")
        t[:, 3, 2, 2] = np.ma.masked
        t[:, 1, 2, 2] = np.ma.masked
        olr = file.createVariable("olr", "f4", ("time", "y", "x"))
        olr.units = "W m-2"
        olr[:] = -(200 + day[:, 0] + y[:, 0] + x[:, 0])
    return path


def test_wrf_leaves_as_the_tables_want(shared: Shared, process: Callable[..., Result], tmp_path: Path):
    source = shared(LAMBERT)
    rules = [
        cmor("Tmon", "variables: {tas: T2, ta: tk, ta700: tk, ps: PSFC}, levels: {preset: wrf}, mean: 1mo"),
        cmor(
            "TOY_Tmon.json",
            "variables: {pr: {formula: (RAINNC + RAINC) / 10800, units: kg m-2 s-1}}, time: [{difference: 3h}, {mean: 1mo}]",
        ),
        cmor("Thour", "variables: {ps: PSFC}", ', time_units: "days since 2000-01-01"'),
        cmor("Tfx", "variables: {orog: HGT}"),
    ]
    result = json.loads(done(process(rules, source, "--json")).stdout)
    made = {Path(output["path"]).relative_to("out").as_posix(): output for output in result["outputs"]}
    month = "Toy-1_r1i2p3f4_200509-200509.nc"
    assert list(made) == [
        *(f"{PLACE}/Tmon/{name}/v20260101/{name}_Tmon_{month}" for name in ("tas", "ta", "ta700", "ps", "pr")),
        f"{PLACE}/Thour/ps/v20260101/ps_Thour_Toy-1_r1i2p3f4_200509210000-200509210900.nc",
        f"{PLACE}/Tfx/orog/v20260101/orog_Tfx_Toy-1_r1i2p3f4.nc",
    ]
    assert [output["records"] for output in made.values()] == [1, 1, 1, 1, 1, 4, 1]
    assert sorted(path.name for path in tmp_path.glob("out/*")) == ["TOYMIP"], "nothing else is left"
    files = {path.split("/")[3] + path.split("/")[4]: netCDF4.Dataset(tmp_path / "out" / path) for path in made}
    with netCDF4.Dataset(source) as given:
        tas = files["Tmontas"]["tas"]
        assert (tas.dimensions, tas.dtype, tas.units, tas.cell_methods) == (("time", "y", "x"), "f4", "K", "area: time: mean")
        assert (tas.missing_value, tas._FillValue) == (np.float32(1e20), np.float32(1e20))
        assert (tas.coordinates, tas.grid_mapping, tas.cell_measures) == ("height latitude longitude", "crs", "area: areatoy")
        # The first sample is midnight, which belongs to that day's month: only September is there.
        np.testing.assert_allclose(tas[0], given["T2"][:].mean(axis=0), rtol=1e-6)
        height = files["Tmontas"]["height"]
        assert (height[...], height.units, height.positive, height.dimensions) == (2.0, "m", "up", ())
        np.testing.assert_allclose(files["Tmonps"]["ps"][0], given["PSFC"][:].mean(axis=0) / 100, rtol=1e-6)
        rain = (given["RAINNC"][-1] + given["RAINC"][-1] - given["RAINNC"][0] - given["RAINC"][0]) / (9 * 3600)
        np.testing.assert_allclose(files["Tmonpr"]["pr"][0], rain, atol=1e-9)
        np.testing.assert_array_equal(files["Tfxorog"]["orog"][:], given["HGT"][:])
        np.testing.assert_array_equal(files["Thourps"]["ps"][:], given["PSFC"][:])
        time = files["Thourps"]["time"]
        assert time.units == "days since 2000-01-01" and "bounds" not in time.ncattrs()
        np.testing.assert_allclose(time[:], 2090 + np.arange(4) / 8)  # 2005-09-21
        time = files["Tmontas"]["time"]
        assert (time.units, time.calendar, time.bounds) == ("days since 1850-01-01", "standard", "time_bnds")
        days = netCDF4.date2num(netCDF4.num2date([243, 273], "days since 2005-01-01"), time.units)
        np.testing.assert_allclose(files["Tmontas"]["time_bnds"][0], days)
    ta = files["Tmonta"]["ta"]
    assert ta.dimensions == ("time", "plev", "y", "x") and list(files["Tmonta"]["plev"][:]) == [85000, 70000, 50000]
    np.testing.assert_array_equal(files["Tmonta700"]["ta700"][:], ta[:, 1])
    assert files["Tmonta700"]["ta700"].coordinates == "plev latitude longitude" and files["Tmonta700"]["plev"][...] == 70000
    x = files["Tmontas"]["x"]
    assert (x.units, x.axis, x.long_name) == ("m", "X", "x of toys") and np.ptp(np.diff(x[:])) < 1e-6
    np.testing.assert_allclose(files["Tmontas"]["x_bnds"][:, 1] - x[:], 15000)
    attributes = {name: files["Tmontas"].getncattr(name) for name in files["Tmontas"].ncattrs()}
    assert set(CV["required_global_attributes"]) <= set(attributes)
    assert attributes["variant_label"] == "r1i2p3f4" and attributes["source"] == "Toy 1 (2026)"
    assert (attributes["institution"], attributes["experiment"]) == ("Institute of Nowhere", "a short run")
    assert attributes["realization_index"] == 1 and attributes["branch_time_in_child"] == 0.5
    assert re.fullmatch(r"hdl:00\.00000/[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f-]{21}", attributes["tracking_id"])
    assert len({file.tracking_id for file in files.values()}) == len(files)
    assert attributes["external_variables"] == "areatoy" and "outpath" not in attributes and "#note" not in attributes
    for file in files.values():
        assert file.data_model == "NETCDF4_CLASSIC"
        file.close()
    compliant([tmp_path / "out" / path for path in made])


def compliant(paths: list[Path], version: str = "1.7") -> None:
    if importlib.util.find_spec("compliance_checker") is None:
        return
    for path in paths:
        report = run_plainly([Path(sys.executable).parent / "compliance-checker", f"--test=cf:{version}", path], path.parent)
        assert "All tests passed!" in report.stdout, report.said


def only(directory: Path, name: str) -> Path:
    found = list(directory.rglob(f"{name}_*.nc"))
    assert len(found) == 1, found
    return found[0]


def test_axes_are_turned_as_the_tables_want(globe: Path, process: Callable[..., Result], tmp_path: Path):
    write_dataset(tmp_path, calendar="365_day")
    rule = cmor("Tmon", "variables: {ta: T, rlut: {formula: olr, positive: down}}, mean: 1mo, split: 1mo")
    done(process(rule, globe))
    paths = sorted((tmp_path / "out").rglob("ta_*.nc"))
    assert [path.name[-16:-3] for path in paths] == ["200101-200101", "200102-200102"]
    with netCDF4.Dataset(globe) as given, netCDF4.Dataset(paths[1]) as file:
        assert list(file["lat"][:]) == [-75, -45, -15, 15, 45, 75] and list(file["lon"][:]) == list(range(0, 360, 45))
        assert file["lat_bnds"][0].tolist() == [-90, -60] and file["lon_bnds"][0].tolist() == [-22.5, 22.5]
        assert list(file["plev"][:]) == [85000, 70000, 50000] and file["plev"].units == "Pa"
        ours = np.roll(given["T"][31:, [2, 1, 0], ::-1].mean(axis=0) + 273.15, -4, axis=-1)
        np.testing.assert_allclose(file["ta"][0], ours, rtol=1e-6)
        assert file["ta"][0].mask.sum() == 1 and np.ma.getdata(file["ta"][0])[1, 3, 6] == np.float32(1e20)
        assert file["time"].calendar == "365_day" and file["time_bnds"][0].tolist() == [151 * 365 + 31, 151 * 365 + 59]
    with netCDF4.Dataset(sorted((tmp_path / "out").rglob("rlut_*.nc"))[0]) as file:
        assert file["rlut"].positive == "up" and file["rlut"][:].min() > 200
    compliant(paths)


def test_a_region_keeps_its_order_and_lies_in_the_tables_range(globe: Path, process: Callable[..., Result], tmp_path: Path):
    write_dataset(tmp_path, calendar="noleap")
    rule = cmor("Tmon", "variables: {ta: T}, mean: 1mo, region: {lon: [-100, -40], lat: [0, 90]}")
    done(process(rule, globe))
    with netCDF4.Dataset(only(tmp_path / "out", "ta")) as file:
        assert list(file["lon"][:]) == [270, 315] and list(file["lat"][:]) == [15, 45, 75]


def test_a_region_across_the_meridian_is_not_torn(globe: Path, process: Callable[..., Result], tmp_path: Path):
    write_dataset(tmp_path, calendar="noleap")
    said = done(process(cmor("Tmon", "variables: {ta: T}, mean: 1mo, region: {lon: [-60, 60]}"), globe)).stderr
    assert "rules.yaml:2: ta: longitude goes from -45 to 45; the table wants 0.0 to 360.0" in said
    with netCDF4.Dataset(only(tmp_path / "out", "ta")) as file:
        assert list(file["lon"][:]) == [-45, 0, 45]


def test_newer_conventions_want_to_know_more_of_units(shared: Shared, process: Callable[..., Result], tmp_path: Path):
    table = tmp_path / "tables" / "TOY_Tmon.json"
    table.write_text(table.read_text().replace("CF-1.7", "CF-1.11"))
    done(process(cmor("Tmon", "variables: {tas: T2, ps: PSFC}, mean: 1mo"), shared(LAMBERT)))
    tas, ps = (only(tmp_path / "out", name) for name in ("tas", "ps"))
    with netCDF4.Dataset(tas) as file:
        assert file["tas"].units_metadata == "temperature: on_scale" and file["time"].units_metadata == "leap_seconds: none"
    with netCDF4.Dataset(ps) as file:
        assert "units_metadata" not in file["ps"].ncattrs()
    compliant([tas, ps], "1.11")


def test_values_beyond_the_tables_limits_are_said(shared: Shared, process: Callable[..., Result]):
    rule = cmor("Tmon", "variables: {tas: {formula: T2 + 60, units: K}}, mean: 1mo")
    said = done(process(rule, shared(LAMBERT))).stderr
    assert re.search(r"rules\.yaml:2: tas: \d+ values are above valid_max 330; the greatest is \d", said), said


def test_daily_maxima_are_averaged(globe: Path, process: Callable[..., Result], tmp_path: Path):
    write_dataset(tmp_path, calendar="noleap")
    rule = cmor("Tmon", "variables: {tasmax: {formula: 'maximum(T, lev)', units: degC}}, time: [{max: 1d}, {mean: 1mo}]")
    done(process(rule, globe))
    with netCDF4.Dataset(only(tmp_path / "out", "tasmax")) as file, netCDF4.Dataset(globe) as given:
        ours = np.roll(given["T"][:31].max(axis=1).mean(axis=0)[::-1], -4, axis=-1) + 273.15
        np.testing.assert_allclose(file["tasmax"][0], ours, rtol=1e-6)


def contents(path: Path) -> dict[str, object]:
    """All of a file but what is never twice the same."""
    with netCDF4.Dataset(path) as file:
        found: dict[str, object] = {name: file.getncattr(name) for name in file.ncattrs() if name not in EACH_FILE}
        for name, variable in file.variables.items():
            variable.set_auto_mask(False)
            found[f"{name}()"] = (variable.dimensions, variable[...].tobytes(), str(variable.__dict__))
        return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_interrupted_is_completed(
    shared: Shared, process: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
):
    rule = cmor("Tmon", "variables: {tas: T2, ps: PSFC}, mean: 1mo")
    source = shared(LAMBERT)
    done(process(rule, source, to="whole"))
    first, second = (only(tmp_path / "whole", name).relative_to(tmp_path / "whole") for name in ("tas", "ps"))
    copy = writing._copy

    def interrupted(made: netCDF4.Variable, *rest: Any) -> None:
        if made.name == "PSFC":
            os.kill(os.getpid(), number)
        copy(made, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(writing, "_copy", interrupted)
        result = process(rule, source)
    assert result.code == 130 and "interrupted; files that were complete are there (--keep" in result.stderr, result.said
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == [tmp_path / "out" / first]
    assert list((tmp_path / "out").rglob(".*")) == [], "nothing half is left"
    kept = (tmp_path / "out" / first).read_bytes()
    said = process(rule, source)
    assert said.code == 2 and f"out/{first} is there already; --force replaces it, --keep leaves it" in said.stderr, said.said
    result = json.loads(done(process(rule, source, "--keep", "--json")).stdout)
    assert [output["kept"] for output in result["outputs"]] == [True, False]
    assert (tmp_path / "out" / first).read_bytes() == kept
    for path in (first, second):
        assert contents(tmp_path / "out" / path) == contents(tmp_path / "whole" / path)
    before = (tmp_path / "out" / second).read_bytes()
    done(process(rule, source, "--force"))
    assert (tmp_path / "out" / second).read_bytes() != before, "each file has its own tracking_id"
    assert contents(tmp_path / "out" / second) == contents(tmp_path / "whole" / second)


def test_fixed_fields_may_have_formulas_and_files_without_times(process: Callable[..., Result], tmp_path: Path):
    """A height of the surface in geopotential, in a file that says no time at all."""
    phis = np.random.default_rng(1).uniform(0, 40000, (4, 8))
    with netCDF4.Dataset(tmp_path / "fixed.nc", "w") as file:
        for name, standard_name, units, at in (
            ("lat", "latitude", "degrees_north", np.linspace(-67.5, 67.5, 4)),
            ("lon", "longitude", "degrees_east", np.arange(8) * 45.0),
        ):
            file.createDimension(name, len(at))
            variable = file.createVariable(name, "f8", (name,))
            variable.units, variable.standard_name = units, standard_name
            variable[:] = at
        variable = file.createVariable("PHIS", "f8", ("lat", "lon"))
        variable.units = "m2 s-2"
        variable[:] = phis
    done(process(cmor("Tfx", 'variables: {orog: {formula: "PHIS / 9.80665", units: m}}'), tmp_path / "fixed.nc"))
    (made,) = (tmp_path / "out").rglob("*.nc")
    with netCDF4.Dataset(made) as file:
        assert "time" not in file.variables and file["orog"].units == "m"
        np.testing.assert_allclose(file["orog"][:], phis / 9.80665, rtol=1e-6)


def test_what_the_table_wants_and_the_rule_lacks_is_said_first(shared: Shared, refused: Callable[..., str]):
    source = shared(LAMBERT)
    month = "mean: 1mo"
    wrong = {
        f"variables: {{tass: T2}}, {month}": "rules.yaml:2: TOY_Tmon.json has no variable tass; did you mean tas?",
        f"variables: {{tas: T3}}, {month}": "rules.yaml:2: variable T3 is not in the files",
        f"variables: {{tas: PSFC}}, {month}": "rules.yaml:2: units: PSFC: 'Pa' cannot become 'K'",
        f"variables: {{pr: RAINNC + RAINC}}, {month}": "rules.yaml:2: units: pr: 'mm' cannot become 'kg m-2 s-1'",
        "variables: {tas: T2}, mean: 1d": "tas: the table's frequency is mon, the rule's mean is of 1d; write mean: 1mo",
        "variables: {tas: T2}, max: 1mo": "cell_methods want time: mean, the rule says maximum: 1mo; write mean: 1mo",
        "variables: {tas: T2}": "cell_methods want time: mean, the rule has no statistic; write mean: 1mo",
        f"variables: {{tasmax: T2}}, {month}": "want maximum within days; write time: [{max: 1d}, {mean: 1mo}]",
        f"variables: {{ta: tk}}, {month}": "ta: the table wants the dimension plev3t, but there is none of air_pressure; levels: {preset",
        f"variables: {{ta700: tk}}, {month}": "ta700: the table wants the dimension p700, but nothing tells that it is at 70000 Pa",
        f"variables: {{tas: tk}}, {month}": "tas: tk has the dimension bottom_top, and the table has time height2m latitude longitude",
        f"variables: {{rlut: OLR}}, {month}": "rlut: the table counts it positive up; say how OLR does: {formula: OLR, positive: up}",
        f"variables: {{cl: CLDFRA}}, {month}": "cl: the table wants the model's levels (alevel), which cmor does not write",
        f"variables: {{tasclim: T2}}, {month}": "tasclim: the table wants a climatology (monC), which cmor does not make",
        f"variables: {{tas: T2}}, path: a.nc, {month}": "path does not go with cmor: the templates",
        f"variables: {{tas: T2}}, units: {{T2: K}}, {month}": "units does not go with cmor: results have the units of the table",
        "variables: {tas: T2}, meen: 1mo": "meen does not go with cmor; did you mean mean?",
        f"variables: {{ta: tk}}, levels: {{pressure: [1 hPa]}}, {month}": "levels: the table says which; leave pressure out",
        f"variables: {{tas: {{formule: T2}}}}, {month}": "tas: a variable or a formula is wanted",
        month: "variables is missing; a map is wanted, like {tas: T2}",
    }
    for keys, said in wrong.items():
        assert said in refused(cmor("Tmon", keys), source), keys
    other = {
        cmor("Tmonth", "variables: {tas: T2}"): "rules.yaml:2: cmor: tables has no table Tmonth; did you mean Tmon?",
        cmor(
            "Thour", "variables: {ps: PSFC}, point: 1h"
        ): "the table's frequency is 3hrPt, the rule's point is of 1h; write point: 3h",
        cmor(
            "Tfx", f"variables: {{orog: HGT}}, {month}"
        ): "orog: the table has it without time; give it a rule of its own, without",
        cmor("Tmon", f"variables: {{tas: T2}}, {month}", ", tabel: x"): "cmor: unknown key tabel; did you mean table?",
        cmor("Tmon", f"variables: {{tas: T2}}, {month}", ", time_units: hours since 2000-01-01"): "time_units: days are wanted",
        "cmor: {tables: tables, table: Tmon}, variables: {tas: T2}": "cmor: dataset is missing",
    }
    for rule, said in other.items():
        assert said in refused(rule, source), rule
    mixed = [cmor("Tmon", f"variables: {{tas: T2}}, {month}"), "path: a.nc, variables: [T2]"]
    assert "rules.yaml:3: outputs with cmor and without are in files of their own" in refused(mixed, source)
    rule = cmor("Tmon", f"variables: {{tas: T2}}, {month}")
    assert "tas_Tmon_Toy-1_r1i2p3f4_TIMES.nc is that of rules.yaml:2, too" in refused([rule, rule], source)
    assert "outputs with cmor, which are made of files that are complete: leave out --follow" in refused(
        rule, source, "--follow"
    )


def test_a_grid_that_moves_is_refused(shared: Shared, refused: Callable[..., str]):
    rule = cmor("Tmon", "variables: {tas: T2}, mean: 1mo")
    assert "tas: XLAT changes with time, and cmor writes no grids that move" in refused(rule, shared(MOVING))


def test_records_of_another_frequency_are_refused(globe: Path, refused: Callable[..., str], tmp_path: Path):
    write_dataset(tmp_path, calendar="noleap")
    rule = cmor("Thour", "variables: {ps: {formula: olr * 0 + 1, units: Pa}}")
    assert "the table's frequency is 3hrPt, and records are 24 h apart; point: WINDOW" in refused(rule, globe)


def test_what_the_cv_requires_is_said_first(shared: Shared, refused: Callable[..., str], tmp_path: Path):
    rule = cmor("Tmon", "variables: {tas: T2}, mean: 1mo")
    wrong: list[tuple[dict[str, object], str]] = [
        (
            {"nominal_resolution": None, "license": None},
            "dataset.json lacks nominal_resolution, license, which TOY_CV.json requires",
        ),
        ({"nominal_resolution": "11 km"}, "nominal_resolution: '11 km' is not what TOY_CV.json wants: 10 km or 100 km"),
        ({"source_id": "Toy-2"}, "dataset.json: source_id: 'Toy-2' is not in TOY_CV.json; did you mean Toy-1?"),
        ({"activity_id": "Games"}, "activity_id of experiment_id play is Toys, this is 'Games'"),
        ({"source_type": "AOGCM"}, "source_type: the experiment play wants AGCM, this is 'AOGCM'"),
        ({"license": "mine"}, "license: 'mine' is not what TOY_CV.json wants"),
        ({"realization_index": "one"}, "variant_label: 'ronei2p3f4' is not what TOY_CV.json wants"),
        ({"output_path_template": "<mip_era><nobody>"}, "output_path_template: <nobody> has no value"),
        ({"calendar": "360_day"}, "tas: the calendar of the files is proleptic_gregorian, that of dataset.json is 360_day"),
    ]
    for changes, said in wrong:
        write_dataset(tmp_path, **changes)
        assert said in refused(rule, shared(LAMBERT)), changes


def test_templates_of_the_cv_hold_where_the_dataset_has_none(shared: Shared, process: Callable[..., Result], tmp_path: Path):
    drs = {
        "directory_path_template": "<mip_era>/<source_id>/<member_id>/<version>",
        "filename_template": "<variable_id>_<table_id>[_<nobody>][_<time_range>].nc",
    }
    (tmp_path / "tables" / "TOY_CV.json").write_text(json.dumps({"CV": {**CV, "DRS": drs}}))
    write_dataset(tmp_path, output_path_template=None, output_file_template=None)
    rules = [cmor("Tmon", "variables: {tas: T2}, mean: 1mo"), cmor("Tfx", "variables: {orog: HGT}")]
    done(process(rules, shared(LAMBERT)))
    found = sorted(path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.nc"))
    assert found == [f"{PLACE}/v20260101/orog_Tfx.nc", f"{PLACE}/v20260101/tas_Tmon_200509-200509.nc"]


# CMOR of Debian 12 wants names that its NumPy has no more, and the library of UUIDs, with which it is not linked.
ORACLE = """
import sys, numpy as np
for name, kind in dict(float=float, int=int, str=str, bool=bool, object=object, unicode=str).items():
    np.__dict__.setdefault(name, kind)
import cmor
given = np.load(sys.argv[1])
cmor.setup(inpath="tables", netcdf_file_action=cmor.CMOR_REPLACE, logfile="cmor.log")
cmor.dataset_json("dataset.json")
grids = cmor.load_table("TOY_grids.json")
axes, plane = [], None
if "x" in given:
    rows, columns = (cmor.axis(n, units="m", coord_vals=given[n], cell_bounds=given[n + "_bnds"]) for n in "yx")
    plane = cmor.grid([rows, columns], latitude=given["latitude"], longitude=given["longitude"])
cmor.set_table(cmor.load_table(f"TOY_{given['table']}.json"))
if "time_bnds" in given:
    units = str(given["time_units"])
    axes.append(cmor.axis("time", units=units, coord_vals=given["time"], cell_bounds=given["time_bnds"]))
if "plev" in given and given["plev"].ndim:
    axes.append(cmor.axis("plev3t", units="Pa", coord_vals=given["plev"]))
if plane is not None:
    axes.append(plane)
else:
    for name, units in (("latitude", "degrees_north"), ("longitude", "degrees_east")):
        short = name[:3]
        axes.append(cmor.axis(name, units=units, coord_vals=given[short], cell_bounds=given[short + "_bnds"]))
made = cmor.variable(str(given["name"]), units=str(given["units"]), axis_ids=axes, missing_value=1e20)
cmor.write(made, given["values"])
print(cmor.close(made, file_name=True))
"""
DIFFERS = {*EACH_FILE, "history", "cmor_version", "version"}


@pytest.fixture(scope="session")
def oracle() -> list[str]:
    """A Python with CMOR, and what goes before it."""
    path = os.environ.get("ADVECTIO_CMOR_PATH")  # where it is, if the system's Python does not find it by itself
    environ = ["env", "LD_PRELOAD=libuuid.so.1", *([f"PYTHONPATH={path}"] if path else [])]
    command = ["/usr/bin/python3"]
    try:
        there = (
            subprocess.run([*environ, *command, "-c", "import cmor"], capture_output=True, timeout=60, check=False).returncode
            == 0
        )
    except OSError:
        there = False
    if not there:
        pytest.skip("CMOR is not here (Debian: python3-cmor)")
    return [*environ, *command]


def differences(ours: Path, theirs: Path) -> list[str]:
    with netCDF4.Dataset(ours) as a, netCDF4.Dataset(theirs) as b:

        def attributes(of: netCDF4.Dataset | netCDF4.Variable) -> dict[str, object]:
            return {name: of.getncattr(name) for name in of.ncattrs() if name not in DIFFERS}

        found = [f"global {name}" for name in attributes(a).keys() ^ attributes(b).keys()]
        found += [f"global {n}" for n, v in attributes(a).items() if n in b.ncattrs() and v != b.getncattr(n)]
        # CMOR is told of no projection here, and gives fixed latitudes missing values.
        extra = {"crs"}
        found += [f"variable {name}" for name in (a.variables.keys() ^ b.variables.keys()) - extra]
        for name in a.variables.keys() & b.variables.keys():
            mine, other = attributes(a[name]), attributes(b[name])
            mine.pop("grid_mapping", None)
            for key in ("missing_value", "_FillValue") if name in ("latitude", "longitude") else ():
                other.pop(key, None)
            if mine != other:
                found.append(f"{name}: {mine} and {other}")
            same = (
                np.ma.allequal(a[name][...], b[name][...])
                and (np.ma.getmaskarray(a[name][...]) == np.ma.getmaskarray(b[name][...])).all()
            )
            if a[name].dimensions != b[name].dimensions or a[name].dtype != b[name].dtype or not same:
                found.append(f"{name}: shape or values")
        return found


def test_it_is_what_cmor_makes(shared: Shared, globe: Path, process: Callable[..., Result], oracle: list[str], tmp_path: Path):
    rules = [
        cmor("Tmon", "variables: {tas: T2, ta: tk, ps: PSFC}, levels: {preset: wrf}, mean: 1mo"),
        cmor("Tfx", "variables: {orog: HGT}"),
    ]
    done(process(rules, shared(LAMBERT)))
    write_dataset(tmp_path, calendar="noleap")
    done(process(cmor("Tmon", "variables: {ta: T}, mean: 1mo"), globe, to="globe"))
    paths = dict.fromkeys(sorted((tmp_path / "out").rglob("*.nc")), "standard")
    paths |= dict.fromkeys(sorted((tmp_path / "globe").rglob("*.nc")), "noleap")
    assert len(paths) == 5
    for path, calendar in paths.items():
        write_dataset(tmp_path, calendar=calendar)
        with netCDF4.Dataset(path) as file:
            name = file.variable_id
            arrays = {n: np.ma.filled(v[...], 1e20) for n, v in file.variables.items() if n not in ("crs", name)}
            arrays |= {"time_units": file["time"].units} if "time" in arrays else {}
            values = np.ma.filled(file[name][...], np.float32(1e20))
            if calendar == "noleap":
                # As the input has them: CMOR turns them, too.
                arrays["lat"], arrays["lat_bnds"] = arrays["lat"][::-1], arrays["lat_bnds"][::-1, ::-1]
                west = np.where(arrays["lon"] >= 180, 360, 0)
                arrays["lon"], arrays["lon_bnds"] = arrays["lon"] - west, arrays["lon_bnds"] - west[:, None]
                arrays["lon"], arrays["lon_bnds"] = (np.roll(arrays[key], 4, axis=0) for key in ("lon", "lon_bnds"))
                values = np.roll(values[:, :, ::-1], 4, axis=-1)
            np.savez(tmp_path / "in.npz", name=name, table=file.table_id, units=file[name].units, values=values, **arrays)
        (tmp_path / "oracle").mkdir(exist_ok=True)
        theirs = subprocess.run(
            [*oracle, "-c", ORACLE, "in.npz"],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert theirs.returncode == 0, theirs.stderr + (tmp_path / "cmor.log").read_text()
        made = tmp_path / theirs.stdout.split()[-1]
        root = tmp_path / ("out" if calendar == "standard" else "globe")
        version = re.compile(r"/v\d+/")
        assert version.sub("/", f"/{path.relative_to(root)}") == version.sub("/", f"/{made.relative_to(tmp_path / 'oracle')}")
        assert differences(path, made) == [], path
