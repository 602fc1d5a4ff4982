"""Series as they are, in `convert` and `process`: restarts that repeat times, files out of order, times that count from different
dates, attributes that differ; beside xarray and cdo."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr
from running import Result, run_plainly
from test_process import done, process, values, worker  # noqa: F401

Call = Callable[..., Result]


def write(
    path: Path,
    hours: list[float],
    *,
    value: float = 0,
    units: str = "hours since 2000-01-01",
    kind: str = "f8",
    calendar: str | None = "standard",
    bounds: bool = False,
    per_hour: float = 1,
    **attributes: object,
) -> Path:
    """Records of a small field: its numbers are `value` and the hour since 2000."""
    with netCDF4.Dataset(path, "w") as file:
        for name, length in (("time", None), ("y", 3), ("x", 4), ("bnds", 2)):
            file.createDimension(name, length)
        time = file.createVariable("time", kind, ("time",))
        time.units = units
        if calendar:
            time.calendar = calendar
        offset = cast_hours(units)
        time[:] = (np.array(hours) - offset) * per_hour
        if bounds:
            time.bounds = "time_bnds"
            both = file.createVariable("time_bnds", kind, ("time", "bnds"))
            both[:] = (np.array(hours)[:, None] + [-1, 0] - offset) * per_hour
        file.createVariable("lat", "f4", ("y",))[:] = [10, 20, 30]
        t = file.createVariable("t", "f4", ("time", "y", "x"), zlib=True, chunksizes=(1, 3, 4))
        t.setncatts({"units": "K", "long_name": "temperature", **attributes})
        t[:] = value + np.array(hours)[:, None, None] + np.arange(12).reshape(3, 4) / 100
    return path


def cast_hours(units: str) -> float:
    """Of the date since which it counts, from 2000-01-01 on."""
    date = netCDF4.num2date(0, units, "proleptic_gregorian")
    return float(netCDF4.date2num(date, "hours since 2000-01-01", "proleptic_gregorian"))


@pytest.fixture(params=["convert", "process"])
def together(
    request: pytest.FixtureRequest,
    call: Call,
    process: Call,  # noqa: F811
    tmp_path: Path,
) -> Callable[..., tuple[Result, Path]]:
    """Files as one, by either command."""

    def run(*files: Path, overlap: str | None = None) -> tuple[Result, Path]:
        if request.param == "convert":
            result = call("convert", *files, "all.nc", *(["--overlap", overlap] if overlap else []))
            return result, tmp_path / "all.nc"
        (tmp_path / "rules.yaml").write_text("outputs: [{path: all.nc}]\n" + (f"overlap: {overlap}\n" if overlap else ""))
        return call("process", *files, "-c", "rules.yaml", "-o", "out"), tmp_path / "out" / "all.nc"

    return run


def made(answer: tuple[Result, Path]) -> tuple[xr.Dataset, str]:
    result, path = answer
    assert result.code == 0, result.said
    with xr.open_dataset(path, decode_times=xr.coders.CFDatetimeCoder(use_cftime=True)) as data:
        data.load()
    path.rename(path.with_name("made.nc"))
    return data, result.stdout


def refused(answer: tuple[Result, Path]) -> str:
    result, path = answer
    assert result.code == 2 and not path.exists(), result.said
    assert len(result.stderr.splitlines()) == 1, result.said
    return result.stderr


def expected(*paths: Path) -> list[xr.Dataset]:
    coder = xr.coders.CFDatetimeCoder(use_cftime=True)
    return [xr.load_dataset(path, decode_times=coder) for path in paths]


@pytest.mark.parametrize("overlap", ["first", "last"])
def test_a_restart_repeats_times(together: Callable[..., Any], tmp_path: Path, overlap: str):
    a = write(tmp_path / "a.nc", [*range(11)])
    # Three-hourly from hour 6 on: its own trajectory, of which hours 7 and 8 are no part.
    b = write(tmp_path / "b.nc", [6, 9, 12, 15], value=500)
    line = refused(together(a, b))
    assert "b.nc begins at 2000-01-01 06:00:00, and" in line and "a.nc has records until 2000-01-01 10:00:00" in line
    assert "overlap" in line and "leave one of them out" in line, line
    got, said = made(together(b, a, overlap=overlap))
    one, other = expected(a, b)
    if overlap == "last":
        parts = [one.isel(time=slice(0, 6)), other]
        assert f"overlap: last: 5 records of {a} are left out for those of {b}" in said, said
    else:
        parts = [one, other.isel(time=slice(2, None))]
        assert f"overlap: first: 2 records of {b} are left out for those of {a}" in said, said
    wanted = xr.concat([part[["t"]] for part in parts], "time")
    xr.testing.assert_equal(got[["t"]].drop_vars("lat", errors="ignore"), wanted.drop_vars("lat", errors="ignore"))


def test_a_file_within_another_counts_in_its_span(together: Callable[..., Any], tmp_path: Path):
    a, b = write(tmp_path / "a.nc", [*range(10)]), write(tmp_path / "b.nc", [4, 5, 6], value=500)
    got, _ = made(together(a, b, overlap="last"))
    hours = np.arange(10)
    np.testing.assert_array_equal(got.t[:, 0, 0], np.where((hours >= 4) & (hours <= 6), 500 + hours, hours))
    got, said = made(together(a, b, overlap="first"))
    np.testing.assert_array_equal(got.t[:, 0, 0], hours)
    assert f"overlap: first: 3 records of {b} are left out" in said


def test_records_out_of_order_are_sorted(together: Callable[..., Any], tool: Callable[[str], str], tmp_path: Path):
    a, b = write(tmp_path / "a.nc", [4, 1, 0, 3]), write(tmp_path / "b.nc", [2, 7, 6, 5], value=500)
    got, said = made(together(a, b))
    assert f"{a} and 1 more: their records are taken in the order of their times" in said, said
    assert f"the times of {a} and {b} lie among each other, and are put in order" in said, said
    wanted = xr.concat([part[["t"]] for part in expected(a, b)], "time").sortby("time")
    xr.testing.assert_equal(got[["t"]], wanted)
    # cdo sorts whole files, and what it is given has to be in order.
    for name in "ab":
        run_plainly([tool("cdo"), "-s", "-f", "nc4", "sorttimestamp", f"{name}.nc", f"sorted_{name}.nc"], tmp_path)
    cdo = run_plainly([tool("cdo"), "-s", "-f", "nc4", "mergetime", "sorted_a.nc", "sorted_b.nc", "cdo.nc"], tmp_path)
    assert cdo.code == 0, cdo.said
    np.testing.assert_array_equal(got.t, values(tmp_path / "cdo.nc", "t"))


@pytest.mark.parametrize("overlap", ["first", "last"])
def test_one_file_may_repeat_its_times(call: Call, process: Call, tmp_path: Path, overlap: str):  # noqa: F811
    """A restart that was appended to the file. Alone, convert copies it as it is, and process refuses it."""
    hours = [0, 1, 2, 3, 2, 3, 4]
    path = write(tmp_path / "a.nc", hours)
    with netCDF4.Dataset(path, "a") as file:
        file["t"][:] = np.arange(7.0)[:, None, None]
    kept = [0, 1, 2, 3, 6] if overlap == "first" else [0, 1, 4, 5, 6]
    done(call("convert", path, "all.nc", "--overlap", overlap))
    assert values(tmp_path / "all.nc", "t")[:, 0, 0].tolist() == kept
    assert values(tmp_path / "all.nc", "time").tolist() == [0, 1, 2, 3, 4]
    done(call("convert", path, "same.nc"))
    assert values(tmp_path / "same.nc", "time").tolist() == hours
    result = process("path: m.nc, mean: all", path)
    assert result.code == 2 and f"{path}: records 2 and 4 have the same time, 2000-01-01 02:00:00" in result.stderr
    (tmp_path / "rules.yaml").write_text(f"overlap: {overlap}\noutputs: [{{path: m.nc, mean: all}}]\n")
    result = done(call("process", path, "-c", "rules.yaml", "-o", "out"))
    assert f"overlap: {overlap}: 2 records with the time of another are left out, in {path}" in result.stdout
    assert values(tmp_path / "out" / "m.nc", "t")[0, 0, 0] == pytest.approx(np.mean(kept))


@pytest.mark.parametrize("kind", ["f8", "i4"])
def test_times_count_from_the_first_files_date(together: Callable[..., Any], tmp_path: Path, kind: str):
    a = write(tmp_path / "a.nc", [1, 2, 3], kind=kind, bounds=True)
    b = write(tmp_path / "b.nc", [26, 27], kind=kind, bounds=True, units="minutes since 2000-01-02", per_hour=60)
    c = write(tmp_path / "c.nc", [49, 50], kind=kind, bounds=True, units="seconds since 1970-01-01", per_hour=3600)
    got, said = made(together(a, b, c))
    wanted = xr.concat([part[["t"]] for part in expected(a, b, c)], "time")
    xr.testing.assert_equal(got[["t"]], wanted)
    (path,) = tmp_path.rglob("made.nc")
    with netCDF4.Dataset(path) as file:
        assert file["time"].units == "hours since 2000-01-01"
        assert file["time"][:].tolist() == [1, 2, 3, 26, 27, 49, 50]
        bounds = file[file["time"].bounds]
        assert bounds[:].tolist() == [[h - 1, h] for h in (1, 2, 3, 26, 27, 49, 50)]
    if path.parent == tmp_path:  # of convert; times of process are always its own
        assert f"time of {b} and 1 more is counted again in 'hours since 2000-01-01'" in said, said


def test_parts_of_a_series_that_was_counted_again(call: Call, tmp_path: Path):
    """Records that are chosen, and a file of stores."""
    a = write(tmp_path / "a.nc", [1, 2, 3])
    b = write(tmp_path / "b.nc", [26, 27], units="days since 2000-01-02", per_hour=1 / 24)
    done(call("convert", a, b, "part.zarr", "--records", "1::2", "--chunks", "time=2"))
    with xr.open_dataset(tmp_path / "part.zarr", engine="zarr", decode_times=False) as data:
        assert data.time.values.tolist() == [2, 26]
        np.testing.assert_array_equal(data.t[:, 0, 0], [2, 26])


def test_times_that_the_type_cannot_hold_are_refused(call: Call, tmp_path: Path):
    a = write(tmp_path / "a.nc", [0, 24], kind="i4", units="days since 2000-01-01", per_hour=1 / 24)
    b = write(tmp_path / "b.nc", [50], kind="i4")
    line = refused((call("convert", a, b, "all.nc"), tmp_path / "all.nc"))
    assert f"{b}: its time 2000-01-03 02:00:00 has no value in 'days since 2000-01-01', as {a} counts" in line


def test_calendars_of_the_same_dates_are_one(together: Callable[..., Any], tmp_path: Path):
    a = write(tmp_path / "a.nc", [1, 2])
    others = [
        write(tmp_path / "b.nc", [3], calendar="gregorian"),
        write(tmp_path / "c.nc", [4], calendar="proleptic_gregorian"),
        write(tmp_path / "d.nc", [5], calendar=None),
    ]
    got, said = made(together(a, *others))
    assert got.t[:, 0, 0].values.tolist() == [1, 2, 3, 4, 5]
    assert "the calendar proleptic_gregorian has the same dates here as standard, which is taken" in said, said
    old = [
        write(tmp_path / f"{name}.nc", [hour], calendar=calendar)
        for name, hour, calendar in (("e", -4_400_000, "standard"), ("f", -4_399_000, "proleptic_gregorian"))
    ]
    line = refused(together(*old))
    assert "has another calendar (" in line and "their dates are not the same: leave one of them out" in line, line
    line = refused(together(a, write(tmp_path / "g.nc", [99], calendar="noleap")))
    assert "has another calendar (" in line and "(noleap)" in line and "(standard)" in line, line
    assert str(a) in line and str(tmp_path / "g.nc") in line, line


def test_what_does_not_change_values_is_taken_and_said(together: Callable[..., Any], tmp_path: Path):
    a = write(tmp_path / "a.nc", [1, 2], actual_range=[1.0, 2.11])
    with netCDF4.Dataset(a, "a") as file:
        file["t"].units = "m s-1"
    b = write(tmp_path / "b.nc", [3], long_name="air temperature", actual_range=[3.0, 3.11], comment="new")
    with netCDF4.Dataset(b, "a") as file:
        file["t"].units = "m/s"
    got, said = made(together(a, b))
    assert f"attributes differ, those of {a} are taken: t (comment, long_name, units)" in said, said
    assert "attributes differ, and are left out: t (actual_range)" in said, said
    assert got.t.long_name == "temperature" and got.t.units == "m s-1" and "actual_range" not in got.t.attrs
    assert got.t[:, 0, 0].values.tolist() == [1, 2, 3]


def test_what_would_change_values_is_refused(together: Callable[..., Any], tmp_path: Path):
    a = write(tmp_path / "a.nc", [1, 2])
    for name, attribute, value in (("b.nc", "units", "degC"), ("c.nc", "cell_methods", "time: mean")):
        other = write(tmp_path / name, [3])
        with netCDF4.Dataset(other, "a") as file:
            file["t"].setncattr(attribute, value)
        line = refused(together(a, other))
        assert f"{other}: attribute {attribute} of t is not that of {a}: '{value}' in place of" in line, line
        assert "leave the file out, or change" in line, line


def test_a_mistyped_overlap_is_said(call: Call, tmp_path: Path):
    a, b = write(tmp_path / "a.nc", [1, 2]), write(tmp_path / "b.nc", [2, 3])
    result = call("convert", a, b, "all.nc", "--overlap", "lst")
    assert result.code == 2 and "--overlap: 'lst' is none of first, last" in result.stderr, result.said
    for rules, said in (
        ("overlap: newest\noutputs: [{path: a.nc}]", "rules.yaml:1: overlap: 'newest' is none of: first, last"),
        ("outputs: [{path: a.nc}]\noverlaps: last", "rules.yaml:2: unknown key overlaps; did you mean overlap?"),
        ("outputs: [{path: a.nc, overlap: last}]", "rules.yaml:1: outputs[0]: unknown key overlap"),
    ):
        (tmp_path / "rules.yaml").write_text(rules + "\n")
        result = call("process", a, b, "-c", "rules.yaml", "-o", "out")
        assert result.code == 2 and said in result.stderr, result.said


def test_notes_are_in_json(call: Call, tmp_path: Path):
    a, b = write(tmp_path / "a.nc", [1, 2]), write(tmp_path / "b.nc", [2, 3])
    said = json.loads(call("convert", a, b, "all.nc", "--overlap", "last", "--json").stdout)
    assert said["notes"] == [f"overlap: last: 1 record of {a} is left out for those of {b}"]
