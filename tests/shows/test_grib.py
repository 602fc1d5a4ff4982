"""`advectio convert` of GRIB files: values are what ecCodes itself decodes, datasets what cfgrib makes of them."""

from __future__ import annotations

import argparse
import ctypes.util
import importlib.util
import json
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

import netCDF4
import numpy as np
import pytest
import xarray as xr
from running import Result, run_plainly
from test_convert import Convert

eccodes = pytest.importorskip("eccodes", reason="the wheel eccodes is not installed")

Keys = dict[str, object]
LL1, LL2 = "regular_ll_pl_grib1", "regular_ll_pl_grib2"
SURFACE1, SURFACE2 = "regular_ll_sfc_grib1", "regular_ll_sfc_grib2"
RUN: Keys = {"dataDate": 20260131, "dataTime": 1200}
MEMBERS: Keys = {"productDefinitionTemplateNumber": 1, "numberOfForecastsInEnsemble": 3}
BENCH = Path(__file__).resolve().parents[2] / "bench" / "grib.py"
DIMENSIONS = {"rotated": {"y": 31, "x": 16}, "rotated in columns": {"x": 16, "y": 31}}
OCTAHEDRAL = [20 + 4 * min(i, 15 - i) for i in range(16)]
random = np.random.default_rng(7)


@contextmanager
def message(sample: str, keys: Keys, values: np.ndarray | None = None) -> Iterator[int]:
    """A handle of a small field. NaN: a point without a value."""
    handle = eccodes.codes_grib_new_from_samples(sample)
    for key, value in (RUN | keys).items():
        eccodes.codes_set_array(handle, key, value) if isinstance(value, list) else eccodes.codes_set(handle, key, value)
    if values is None:
        values = random.normal(280, 20, eccodes.codes_get(handle, "numberOfDataPoints"))
    if np.isnan(values).any():
        eccodes.codes_set(handle, "missingValue", -1e9)
        eccodes.codes_set(handle, "bitmapPresent", 1)
        values = np.where(np.isnan(values), -1e9, values)
    eccodes.codes_set_values(handle, values)
    yield handle
    eccodes.codes_release(handle)


def put(file: BinaryIO, sample: str, values: np.ndarray | None = None, **keys: object) -> None:
    with message(sample, keys, values) as handle:
        eccodes.codes_write(handle, file)


def decoded(path: Path) -> Iterator[tuple[dict[str, object], np.ndarray]]:
    """Of each message some keys, and the values as ecCodes has them; NaN where there is none."""
    with open(path, "rb") as file:
        eccodes.codes_grib_multi_support_on()
        while (handle := eccodes.codes_grib_new_from_file(file)) is not None:
            keys = {k: eccodes.codes_get(handle, k) for k in ("shortName", "level", "validityDate", "validityTime")}
            keys["number"] = eccodes.codes_get(handle, "number") if eccodes.codes_is_defined(handle, "number") else 0
            eccodes.codes_set(handle, "missingValue", -1e30)
            values = eccodes.codes_get_values(handle)
            eccodes.codes_release(handle)
            yield keys, np.where(values == -1e30, np.nan, values)
        eccodes.codes_grib_multi_support_off()


def field(ds: xr.Dataset, name: str, keys: dict[str, object], **at: object) -> np.ndarray:
    """What the dataset has for the message with these keys."""
    date, hhmm = str(keys["validityDate"]), f"{keys['validityTime']:04d}"
    one = ds[name].sel(time=f"{date[:4]}-{date[4:6]}-{date[6:]}T{hhmm[:2]}:{hhmm[2:]}")
    for dimension, key in (("isobaricInhPa", "level"), ("number", "number")):
        if dimension in one.dims:
            one = one.sel({dimension: keys[key]})
    return one.values.ravel()


def assert_every_value(path: Path, ds: xr.Dataset, names: dict[str, str]) -> int:
    count = 0
    for keys, values in decoded(path):
        found = field(ds, names[str(keys["shortName"])], keys)
        np.testing.assert_array_equal(found, values.astype(found.dtype), err_msg=str(keys))
        count += 1
    return count


# ---- values ----

# ecCodes knows no places of the first, and gives those of the others in another order than values, or for other points.
UNPLACED = ("spectral", "rows to and fro", "polar southwards")
PACKINGS: dict[str, tuple[str, Keys]] = {
    "edition 1": (LL1, {}),
    "edition 2": (LL2, {}),
    "ccsds": (LL2, {"packingType": "grid_ccsds"}),
    "complex": (LL2, {"packingType": "grid_complex_spatial_differencing"}),
    "float64": (LL2, {"packingType": "grid_ieee", "precision": 2}),
    "southwards in columns": (LL2, {"jPointsAreConsecutive": 1}),
    "rotated": ("rotated_ll_pl_grib2", {}),
    "rotated in columns": ("rotated_ll_pl_grib1", {"jPointsAreConsecutive": 1}),
    "rows to and fro": (LL2, {"alternativeRowScanning": 1}),
    "reduced": ("reduced_gg_pl_32_grib2", {}),
    "octahedral": ("reduced_gg_pl_32_grib2", {"Nj": 16, "N": 8, "pl": OCTAHEDRAL, "numberOfDataPoints": sum(OCTAHEDRAL)}),
    "polar": ("polar_stereographic_pl_grib2", {"jScansPositively": 1}),
    "spectral": ("sh_pl_grib1", {}),
    "polar southwards": ("polar_stereographic_pl_grib2", {}),
}


@pytest.mark.parametrize("name", PACKINGS)
def test_values_and_places_are_what_eccodes_decodes(convert: Convert, tmp_path: Path, name: str):
    sample, keys = PACKINGS[name]
    path = tmp_path / "in.grib"
    with open(path, "wb") as file:
        for step in (0, 6):
            for level in (1000, 500):
                with message(sample, keys | {"shortName": "t", "level": level, "step": step}) as handle:
                    eccodes.codes_write(handle, file)
                    count = eccodes.codes_get_size(handle, "values")
                    placed = name not in UNPLACED
                    if placed:
                        places = np.array([(p["lat"], p["lon"]) for p in eccodes.codes_grib_get_data(handle)])
    convert(path, "out.nc")
    with xr.open_dataset(tmp_path / "out.nc") as ds:
        assert ds["t"].dims[:2] == ("time", "isobaricInhPa")
        assert assert_every_value(path, ds, {"t": "t"}) == 4
        assert ds["t"].dtype == ("f8" if name == "float64" else "f4")
        assert ds["t"][0, 0].size == count
        if name in DIMENSIONS:
            assert list(ds["t"][0, 0].sizes.items()) == list(DIMENSIONS[name].items())
        if placed:
            latitude, longitude = xr.broadcast(ds["latitude"], ds["longitude"])
            shape = ds["t"].dims[2:]
            np.testing.assert_array_equal(latitude.transpose(*shape).values.ravel(), places[:, 0])
            np.testing.assert_array_equal(longitude.transpose(*shape).values.ravel(), places[:, 1])
        else:
            assert "latitude" not in ds.variables
            assert ds["t"].dims[2:] == ("values",)


# First and last longitude of 16 points, 2 or 22.5 degrees apart, and what the axis has.
CROSSINGS: dict[str, tuple[Keys, list[float]]] = {
    "from the west": ({"First": 330.1, "Last": 0.1}, [-29.9 + 2 * i for i in range(16)]),
    "from the east": ({"First": 14, "Last": 344, "iScansNegatively": 1}, [14.0 - 2 * i for i in range(16)]),
    "all around": (
        {"First": 100, "Last": 122.5, "iDirectionIncrementInDegrees": 22.5, "iScansNegatively": 1},
        [100 - 22.5 * i for i in range(16)],
    ),
    "in columns": ({"First": 350, "Last": 20, "jPointsAreConsecutive": 1}, [-10.0 + 2 * i for i in range(16)]),
}


@pytest.mark.parametrize("name", CROSSINGS)
def test_longitudes_that_cross_greenwich_rise_or_fall_throughout(convert: Convert, tmp_path: Path, name: str):
    keys, expected = CROSSINGS[name]
    full = {f"longitudeOf{k}GridPointInDegrees" if k in ("First", "Last") else k: v for k, v in keys.items()}
    path = tmp_path / "in.grib"
    with open(path, "wb") as file, message(LL2, full | {"shortName": "t"}) as handle:
        eccodes.codes_write(handle, file)
        places = np.array([(p["lat"], p["lon"], p["value"]) for p in eccodes.codes_grib_get_data(handle)])
    convert(path, "out.nc")
    with xr.open_dataset(tmp_path / "out.nc") as ds:
        np.testing.assert_allclose(ds["longitude"], expected, rtol=0, atol=1e-9)
        flat = ds["t"].squeeze().stack(point=ds["t"].dims[-2:])
        turns = (flat["longitude"].values - places[:, 1]) / 360
        np.testing.assert_allclose(turns, np.round(turns), rtol=0, atol=1e-11)
        np.testing.assert_array_equal(flat["latitude"], places[:, 0])
        np.testing.assert_array_equal(flat.values, places[:, 2].astype("f4"))


@pytest.mark.parametrize("packing", ["grid_simple", "grid_ccsds", "grid_complex"])
def test_points_without_a_value_hold_the_fill_value(convert: Convert, tmp_path: Path, packing: str):
    path = tmp_path / "in.grib"
    values = random.normal(size=496)
    values[40:90] = np.nan
    values[200] = 9999  # what ecCodes itself has for such points
    with open(path, "wb") as file:
        put(file, LL2, values, shortName="t", packingType=packing)
        put(file, LL2, shortName="t", level=500)
    convert(path, "out.nc")
    with xr.open_dataset(tmp_path / "out.nc") as ds:
        assert_every_value(path, ds, {"t": "t"})
        assert int(ds["t"].isnull().sum()) == 50
        assert ds["t"].encoding["_FillValue"] == np.float32(9.96921e36)


def test_fields_that_share_a_message_are_all_there(convert: Convert, tmp_path: Path):
    path = tmp_path / "in.grib"
    several = eccodes.codes_grib_multi_new()
    values = random.normal(size=496)
    values[3] = np.nan
    for name in ("u", "v"):
        with message(LL2, {"shortName": name}, values) as handle:
            eccodes.codes_grib_multi_append(handle, 4, several)
    with open(path, "wb") as file:
        eccodes.codes_grib_multi_write(several, file)
        put(file, LL2, shortName="t")
    eccodes.codes_grib_multi_release(several)
    convert(path, "out.nc")
    with xr.open_dataset(tmp_path / "out.nc") as ds:
        assert assert_every_value(path, ds, {"u": "u", "v": "v", "t": "t"}) == 3


# ---- cubes ----


def forecast(path: Path, steps: tuple[int, ...] = (0, 6, 12)) -> Path:
    with open(path, "wb") as file:
        for step in steps:
            for level in (500, 850, 1000):
                for number in (0, 1, 2):
                    put(file, LL2, **MEMBERS, shortName="t", level=level, step=step, perturbationNumber=number)
            put(file, SURFACE1, shortName="2t", step=step)
            if step > 0:
                put(file, SURFACE2, shortName="tp", stepRange=f"0-{step}")
    return path


def test_the_dataset_is_cfgribs(convert: Convert, tmp_path: Path):
    cfgrib = pytest.importorskip("cfgrib", reason="the wheel cfgrib is not installed")
    path = forecast(tmp_path / "in.grib")
    convert(path, "out.nc")
    with xr.open_dataset(tmp_path / "out.nc", decode_timedelta=True) as ours:
        assert dict(ours["t"].sizes) == {"time": 3, "number": 3, "isobaricInhPa": 3, "latitude": 31, "longitude": 16}
        seen = set()
        for theirs in cfgrib.open_datasets(str(path), backend_kwargs={"indexpath": ""}):
            for name in theirs.data_vars:
                its = theirs[name]
                expected = its.expand_dims([d for d in ("step",) if d not in its.dims])
                mine = ours[name].swap_dims(time="step").sel(step=expected["step"])
                wanted = mine.transpose(*expected.dims).reindex_like(expected["step"])
                np.testing.assert_array_equal(wanted.values, expected.values)
                for c in ("latitude", "longitude", "isobaricInhPa", "number"):
                    if c in mine.dims:
                        np.testing.assert_array_equal(mine[c], expected[c])
                np.testing.assert_array_equal(mine["time"].values, np.atleast_1d(expected["valid_time"].values))
                assert (mine["forecast_reference_time"].values == expected["time"].values).all()
                for key in ("units", "long_name", "GRIB_paramId", "GRIB_shortName", "GRIB_typeOfLevel", "GRIB_stepType"):
                    assert mine.attrs[key] == its.attrs[key], (name, key)
                seen.add(name)
    assert seen == {"t", "t2m", "tp"}


def test_an_accumulation_tells_where_it_begins_and_what_is_not_there_is_the_fill_value(
    convert: Convert,
    tmp_path: Path,
):
    convert(forecast(tmp_path / "in.grib"), "out.nc")
    with xr.open_dataset(tmp_path / "out.nc") as ds:
        assert ds["tp"].isnull().all(("latitude", "longitude")).values.tolist() == [True, False, False]
        begin = ds["tp"].coords["interval_begin"].values
        assert np.isnat(begin[0])
        assert (begin[1:] == np.datetime64("2026-01-31T12:00")).all()
        assert "interval_begin" not in ds["t"].encoding["coordinates"]


def test_several_forecasts_in_one_file_have_a_time_and_a_step(convert: Convert, tmp_path: Path):
    path = tmp_path / "in.grib"
    with open(path, "wb") as file:
        for hour in (0, 600):
            for step in (0, 6, 12):
                if (hour, step) != (600, 12):
                    put(file, LL2, shortName="t", dataTime=hour, step=step)
    convert(path, "out.nc")
    with xr.open_dataset(tmp_path / "out.nc", decode_timedelta=True) as ds:
        assert ds["t"].dims[:2] == ("time", "step")
        assert ds["time"].attrs["standard_name"] == "forecast_reference_time"
        assert (ds["valid_time"] == ds["time"] + ds["step"]).all()
        assert ds["t"].isnull().all(("latitude", "longitude")).values.tolist() == [[False] * 3, [False, False, True]]
        for number, (_, values) in enumerate(decoded(path)):
            np.testing.assert_array_equal(ds["t"].values[number // 3, number % 3].ravel(), values.astype("f4"))


def test_what_does_not_fit_one_variable_gets_a_name_of_its_own(convert: Convert, tmp_path: Path):
    path = tmp_path / "in.grib"
    height: Keys = {"typeOfLevel": "heightAboveGround"}
    with open(path, "wb") as file:
        for level in (500, 850):
            put(file, LL2, shortName="t", level=level)
        put(file, SURFACE2, shortName="t")
        put(file, SURFACE2, **height, shortName="10u")
        for level in (80, 100):
            put(file, SURFACE2, **height, shortName="r", level=level)
        put(file, LL2, shortName="q", level=500)
        put(file, "reduced_gg_pl_32_grib2", shortName="q", level=500)
        put(file, LL2, shortName="z", dataType="an")
        put(file, LL2, shortName="z", dataType="fc")
        put(file, LL2, discipline=0, parameterCategory=191, parameterNumber=251)
        for scaled in (7, 28):
            put(
                file, SURFACE2, discipline=2, parameterCategory=191, parameterNumber=250, typeOfFirstFixedSurface=106, scaleFactorOfFirstFixedSurface=2,
                scaledValueOfFirstFixedSurface=scaled, typeOfSecondFixedSurface=106, scaleFactorOfSecondFixedSurface=2,
                scaledValueOfSecondFixedSurface=2 * scaled,
            )  # fmt: skip
    convert(path, "out.nc")
    with xr.open_dataset(tmp_path / "out.nc") as ds:
        assert {"t_isobaricInhPa", "t_surface", "q_regular_ll", "q_reduced_gg", "z_an", "z_fc"} <= set(ds.data_vars)
        assert "unknown_0_191_251" in ds.data_vars
        assert ds["r"]["heightAboveGround"].values.tolist() == [80, 100]
        height_of_u = ds["u10"].coords["heightAboveGround_2"]
        assert (height_of_u.values, height_of_u.attrs["units"], height_of_u.ndim) == (10, "m", 0)
        assert ds["q_reduced_gg"].dims == ("time", "values")
        assert ds["unknown_2_191_250"]["depthBelowLandLayer"].values.tolist() == [0.07, 0.28]
        assert ds["depthBelowLandLayer_bnds"].values.tolist() == [[0.07, 0.14], [0.28, 0.56]]


def test_both_editions_in_one_file_share_a_grid_and_model_levels_keep_their_coefficients(
    convert: Convert,
    tmp_path: Path,
):
    path = tmp_path / "in.grib"
    with open(path, "wb") as file:
        for level in (1, 2, 60):
            put(file, "reduced_gg_ml_grib2", shortName="t", level=level)
            put(file, "reduced_gg_ml_grib1", shortName="q", level=level)
        put(file, "reduced_gg_sfc_grib1", shortName="2t")
        put(file, "sh_ml_grib2", shortName="vo", level=1)
    convert(path, "out.nc")
    with xr.open_dataset(tmp_path / "out.nc") as ds:
        assert ds["t"].dims == ds["q"].dims == ("time", "hybrid", "values")
        assert ds["t2m"].dims == ("time", "values")
        assert ds["vo"].dims == ("time", "values_2")
        assert ds["hybrid"].values.tolist() == [1, 2, 60]
        assert ds["vo"].coords["hybrid_2"] == 1
        assert len(ds["t"].attrs["GRIB_pv"]) == 2 * (91 + 1)
        for keys, values in decoded(path):
            name = {"2t": "t2m"}.get(str(keys["shortName"]), str(keys["shortName"]))
            one = ds[name].sel(hybrid=keys["level"]) if "hybrid" in ds[name].dims else ds[name]
            np.testing.assert_array_equal(one.values.ravel(), values.astype("f4"))


@pytest.mark.parametrize("surface", ["sp", "lnsp"])
def test_hybrid_levels_come_to_pressure_levels(convert: Convert, call: Convert, tmp_path: Path, surface: str):
    """The IFS has the coefficients of all half levels in each message, and the surface's pressure or its logarithm."""
    random = np.random.default_rng(1)
    path, sample = tmp_path / "in.grib", "reduced_gg_ml_grib2"
    with message(sample, {}, None) as handle:
        points, pv = eccodes.codes_get_size(handle, "values"), eccodes.codes_get_double_array(handle, "pv")
    ps = random.uniform(7e4, 1.02e5, points)
    numbers = range(40, 91)
    with open(path, "wb") as file:
        for level in numbers:
            put(file, sample, random.uniform(200, 300, points), shortName="t", level=level)
        if surface == "sp":
            put(file, "reduced_gg_sfc_grib2", ps, shortName="sp")
        else:
            put(file, sample, np.log(ps), shortName="lnsp", level=1)
    convert(path, "out.nc")
    a, b = np.split(pv, 2)
    at = np.array(numbers)
    with xr.open_dataset(tmp_path / "out.nc") as ds:
        np.testing.assert_allclose(ds["ap"], (a[at - 1] + a[at]) / 2, rtol=1e-12)
        np.testing.assert_allclose(ds["b"], (b[at - 1] + b[at]) / 2, rtol=1e-12)
        said = ds["hybrid"].attrs.get("formula_terms")
        assert said == ("ap: ap b: b ps: sp" if surface == "sp" else None)
        t, stored = ds["t"].values[0].astype("f8"), ds[surface].values[0].astype("f8")
        pressure = ds["ap"].values[:, None] + ds["b"].values[:, None] * (stored if surface == "sp" else np.exp(stored))
    (tmp_path / "rules.yaml").write_text(
        "outputs: [{path: a.nc, variables: [t], levels: {pressure: [850, 500 hPa], preset: hybrid}}]\n"
    )
    call("process", path, "-c", "rules.yaml", "-o", "out")
    with xr.open_dataset(tmp_path / "out" / "a.nc") as ds:
        made = ds["t"].values[0]
    expected = np.stack(
        [
            np.interp(np.log([85000, 50000]), np.log(pressure[:, point]), t[:, point], left=np.nan, right=np.nan)
            for point in range(points)
        ],
        axis=1,
    )
    assert 0.5 < np.isfinite(expected).mean() < 1
    np.testing.assert_allclose(made, expected, rtol=1e-5, equal_nan=True)


# ---- files, parts, formats ----


def test_files_of_a_step_each_are_one_series_and_parts_are_taken_as_of_any_source(
    convert: Convert,
    tmp_path: Path,
):
    steps = [forecast(tmp_path / f"f{step:03}.grib", (step,)) for step in (6, 12, 18)]
    whole = tmp_path / "whole.grib"
    whole.write_bytes(b"".join(path.read_bytes() for path in steps))
    convert(*reversed(steps), "steps.nc")
    convert(whole, "whole.nc")
    with xr.open_dataset(tmp_path / "steps.nc") as a, xr.open_dataset(tmp_path / "whole.nc") as b:
        xr.testing.assert_identical(a.load(), b.load())
    convert(*steps, "part.zarr", "-v", "t", "--times", "2026-01-31T18..2026-02-01T00", "--chunks", "time=2,latitude=7")
    with xr.open_zarr(tmp_path / "part.zarr", chunks=None) as part:
        assert set(part.data_vars) == {"t"}
        assert part["t"].encoding["chunks"] == (2, 1, 1, 7, 16)
        xr.testing.assert_equal(part["t"].load(), b["t"][:2].drop_vars("interval_begin"))
    convert(*steps, "last.nc", "--records=-1", "--to", "classic")
    with xr.open_dataset(tmp_path / "last.nc") as last:
        xr.testing.assert_equal(last["t"].load(), b["t"][2:])


HEADERS = {
    "bulletin": b"\x01\r\r\n123\r\r\nHTXA85 ECMF 311200\r\r\n",
    "long": b"a header of " + b"many words, " * 1000 + b"\n",
    "with the word": b"GRIB FILE, edition 2, of GRIB messages: GRIB\r\r\n\x01\r\r\n",
}


@pytest.mark.parametrize("header", HEADERS)
def test_headers_of_bulletins_and_padding_are_passed_over(convert: Convert, tmp_path: Path, header: str):
    plain = forecast(tmp_path / "plain.grib", (6,)).read_bytes()
    (tmp_path / "in").write_bytes(HEADERS[header] + plain + b"\0" * 100 + b"\r\r\n\x03")
    convert("in", "out.nc")
    convert("plain.grib", "plain.nc")
    with xr.open_dataset(tmp_path / "out.nc") as a, xr.open_dataset(tmp_path / "plain.nc") as b:
        xr.testing.assert_identical(a.load(), b.load())


def test_the_systems_eccodes_reads_the_same(
    convert: Convert,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    if (name := ctypes.util.find_library("eccodes")) is None:
        pytest.skip("the system has no ecCodes of its own")
    path = forecast(tmp_path / "in.grib")
    convert(path, "wheel.nc")
    monkeypatch.setenv("ADVECTIO_ECCODES", name)
    convert(path, "system.nc")
    with xr.open_dataset(tmp_path / "wheel.nc") as a, xr.open_dataset(tmp_path / "system.nc") as b:
        xr.testing.assert_identical(a.load(), b.load())


def test_a_reduced_grid_comes_to_a_regular_one_by_weights_of_cdo(
    call: Callable[..., Result],
    tool: Callable[[str], str],
    tmp_path: Path,
):
    with open(tmp_path / "in.grib", "wb") as file:
        for step in (0, 6):
            for level in (500, 850):
                put(file, "reduced_gg_pl_32_grib2", shortName="t", level=level, step=step)
    for words in (["gennn,r36x18", "in.grib", "weights.nc"], ["-b", "F32", "remap,r36x18,weights.nc", "in.grib", "theirs.nc"]):
        made = run_plainly([tool("cdo"), "-s", "-f", "nc4", *words], tmp_path)
        assert made.code == 0, made.said
    (tmp_path / "rules.yaml").write_text("outputs: [{path: ours.nc, regrid: weights.nc}]\n")
    result = call("process", "in.grib", "-c", "rules.yaml", "-o", ".")
    assert result.code == 0, result.said
    with xr.open_dataset(tmp_path / "ours.nc") as ours, xr.open_dataset(tmp_path / "theirs.nc") as theirs:
        assert ours["t"].dims == ("time", "isobaricInhPa", "lat", "lon")
        np.testing.assert_array_equal(ours["t"], theirs["t"].sel(plev=ours["isobaricInhPa"].values * 100))


# ---- what is refused ----


def test_damaged_files_are_refused_by_their_message(refused, tmp_path: Path):
    whole = forecast(tmp_path / "whole.grib", (6,)).read_bytes()
    (tmp_path / "cut.grib").write_bytes(whole[:-100])
    (tmp_path / "damaged.grib").write_bytes(whole[:-4] + b"6666")
    (tmp_path / "text.grib").write_bytes(b"GRIB is a format\n" * 9)
    (tmp_path / "other.grib").write_bytes(b"no format at all\n" * 9)
    assert "message 11 (byte " in (said := refused("cut.grib", "out.nc")) and "is cut off" in said
    assert "does not end with 7777" in refused("damaged.grib", "out.nc")
    (tmp_path / "edition.grib").write_bytes(whole[:7] + b"A" + whole[8:])
    assert "edition" in refused("edition.grib", "out.nc"), "one damaged byte does not make a header of a message"
    assert "text.grib" in refused("text.grib", "out.nc")
    assert "other.grib" in refused("other.grib", "out.nc")


def test_two_fields_that_nothing_tells_apart_are_refused(refused, tmp_path: Path):
    with open(tmp_path / "in.grib", "wb") as file:
        for level in (500, 850, 500):
            put(file, LL2, shortName="t", level=level)
    said = refused("in.grib", "out.nc")
    assert "message 1 (byte 0 of the file) and message 3 (byte " in said
    assert "t at isobaricInhPa 500, 2026-01-31 12:00:00" in said


def test_without_eccodes_a_line_says_what_to_install(refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    forecast(tmp_path / "in.grib", (6,))
    monkeypatch.setenv("ADVECTIO_ECCODES", "/nowhere")
    assert "pip install eccodeslib" in refused("in.grib", "out.nc")


def test_values_that_do_not_decode_are_an_error_and_leave_nothing(refused, tmp_path: Path):
    with open(tmp_path / "in.grib", "wb") as file:
        put(file, LL2, shortName="t")
        first = file.tell()
        put(file, LL2, shortName="t", level=500)
    data = bytearray((tmp_path / "in.grib").read_bytes())
    # Section 5 says how many values section 7 has.
    section = data.index(struct.pack(">IBI", 21, 5, 496), first)
    data[section + 5 : section + 9] = struct.pack(">I", 1496)
    (tmp_path / "in.grib").write_bytes(data)
    assert "message 2 (byte " in refused("in.grib", "out.nc", code=1)


# ---- bench/grib.py ----


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH.parent))
    spec = importlib.util.spec_from_file_location("bench_grib", BENCH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("case", ["regular simple", "octahedral ccsds"])
def test_the_benchmark_sees_a_bit_that_differs(bench: ModuleType, convert: Convert, tmp_path: Path, case: str):
    path, result = tmp_path / "in.grib", tmp_path / "out.nc"
    points = bench.made(case, argparse.Namespace(steps=2, degrees=10, octahedral=8), path)
    convert(path, result.name)
    count, values, none, wrong = bench.wrong_fields(path, result)
    assert (count, values, wrong) == (100, 100 * points, [])
    with xr.open_dataset(result) as ds:
        assert none == int(ds["r"].isnull().sum()) > 0
    with netCDF4.Dataset(result, "a") as file:
        file.set_auto_maskandscale(False)
        for name, level in (("t", 3), ("r", 0)):  # a last bit; a point without a value that has one
            field = file[name][1, level]
            place = np.unravel_index(np.argmax(field), field.shape)
            field[place] = np.nextafter(field[place], np.float32(0))
            file[name][1, level] = field
    ground = int(xr.open_dataset(result)["isobaricInhPa"][0])
    assert bench.wrong_fields(path, result)[3] == ["out.nc: t at 700 hPa, 12 h", f"out.nc: r at {ground} hPa, 12 h"]


def test_the_benchmark_compares_every_message(tmp_path: Path):
    pytest.importorskip("cfgrib", reason="the wheel cfgrib is not installed")
    small = ["--steps", "2", "--degrees", "10", "--octahedral", "8", "--rounds", "1", "--json", tmp_path / "result.json"]
    done = subprocess.run([sys.executable, BENCH, *small], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("100 of 100 messages") == 4 * 3
    result = json.loads((tmp_path / "result.json").read_text())
    assert {name: one["wrong"] for name, one in result.items()} == {
        f"{grid} {packing}": [] for grid in ("regular", "octahedral") for packing in ("simple", "ccsds")
    }
