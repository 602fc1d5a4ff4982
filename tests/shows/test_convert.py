"""`advectio convert`: files of real models in another format and back, parts of them, other chunks; judged by netCDF's own
library, xarray and zarr-python."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
from running import Advectio, Result, environment, run_plainly
from same import assert_same, differences

zarr = pytest.importorskip("zarr", minversion="3.1")

Shared = Callable[[str], Path]
Convert = Callable[..., Result]
FRAMES = "wrf471/serial/wrfout_d01_4frames.nc"
FILES = [FRAMES, "wrf/wrf_cropped.nc", "metgrid/met_em.d01.2005-08-28_12_00_00.nc", "nemo/mesh_mask.nc"]


def series(directory: Path, files: int = 3, **attributes: str) -> list[Path]:
    """Files of one grid that follow each other: two records each, with a grid that does not change."""
    paths = []
    for number in range(files):
        path = directory / f"part{number}.nc"
        with netCDF4.Dataset(path, "w") as ds:
            ds.createDimension("time", None)
            ds.createDimension("y", 6)
            ds.createDimension("x", 5)
            time = ds.createVariable("time", "f8", ("time",))
            time.units = "hours since 2000-01-01"
            ds.createVariable("lat", "f4", ("y", "x"))[:] = np.arange(30).reshape(6, 5)
            t = ds.createVariable("t", "f4", ("time", "y", "x"), zlib=True, chunksizes=(1, 6, 5))
            t.setncatts({"units": "K", "coordinates": "lat"} | attributes)
            time[:] = [2 * number, 2 * number + 1]
            t[:] = 100 * number + np.arange(60).reshape(2, 6, 5)
        paths.append(path)
    return paths


def values(path: Path, name: str) -> np.ndarray:
    with netCDF4.Dataset(path) as ds:
        ds.set_auto_maskandscale(False)
        return np.asarray(ds[name][...])


# ---- formats ----


@pytest.mark.parametrize("name", FILES)
def test_netcdf_to_zarr_and_back_is_the_same_file(shared: Shared, convert: Convert, tmp_path: Path, name: str):
    source = shared(name)
    convert(source, "there.zarr")
    convert("there.zarr", "back.nc")
    # Every file comes back as netCDF-4.
    assert [line for line in differences(source, tmp_path / "back.nc") if not line.startswith("format")] == []


def test_what_xarray_finds_in_the_store_is_what_it_finds_in_the_file(shared: Shared, convert: Convert, tmp_path: Path):
    convert(shared(FRAMES), "there.zarr")
    with xr.open_zarr(tmp_path / "there.zarr", chunks=None) as ours, xr.open_dataset(shared(FRAMES)) as theirs:
        xr.testing.assert_equal(ours.load(), theirs.load())
        assert set(ours.attrs) == set(theirs.attrs)
    assert sorted(zarr.open_group(tmp_path / "there.zarr", mode="r")) == sorted(theirs.variables)


@pytest.mark.parametrize("sharded", [False, True])
def test_what_xarray_writes_is_what_netcdf_gets(convert: Convert, tmp_path: Path, sharded: bool):
    random = np.random.default_rng(1)
    ds = xr.Dataset(
        {
            "t": (("time", "y", "x"), random.normal(size=(4, 30, 40)).astype("f4"), {"units": "K"}),
            "p": (("time", "y", "x"), random.integers(-9, 9, (4, 30, 40)).astype("i2"), {"flag": [1, 2], "scale": 0.5}),
            "wet": (("y", "x"), random.random((30, 40)) > 0.5),
            "big": (("y",), np.arange(30).astype(">f8")),
            "one": ((), np.int64(7)),
        },
        coords={
            "time": np.array(["2000-01-01", "2000-01-02", "2000-01-03", "2000-01-04"], "M8[ns]"),
            "station": (("y",), np.array([f"név {i}" for i in range(30)])),
        },
        attrs={"title": "by xarray", "version": 3, "dt": 0.25},
    )
    ds["t"][1, 2:5] = np.nan
    encoding = {"t": {"chunks": (1, 10, 20), "_FillValue": np.float32(-9e9)}, "p": {"chunks": (2, 30, 40)}}
    if sharded:
        encoding["t"] |= {"shards": (2, 30, 40)}
    blosc = zarr.codecs.BloscCodec(cname="lz4", shuffle="bitshuffle")
    encoding["p"] |= {"compressors": [blosc]}
    encoding["big"] = {"compressors": [zarr.codecs.GzipCodec(level=1)]}
    ds.to_zarr(tmp_path / "theirs.zarr", zarr_format=3, encoding=encoding, consolidated=sharded)
    convert("theirs.zarr", "ours.nc")
    with xr.open_zarr(tmp_path / "theirs.zarr", chunks=None) as expected, xr.open_dataset(tmp_path / "ours.nc") as got:
        xr.testing.assert_equal(got.load(), expected.load())
        assert got.attrs == expected.attrs
        assert got["t"].attrs == {"units": "K"} and list(got["p"].attrs["flag"]) == [1, 2]
        assert got["t"].encoding["chunksizes"] == (1, 10, 20)
    # And once more as a store, whatever codecs it had.
    convert("theirs.zarr", "ours.zarr", "--chunks", "y=7")
    with (
        xr.open_zarr(tmp_path / "theirs.zarr", chunks=None) as expected,
        xr.open_zarr(tmp_path / "ours.zarr", chunks=None) as got,
    ):
        xr.testing.assert_equal(got.load(), expected.load())


def test_numbers_that_json_has_not_are_read_as_python_writes_them(convert: Convert, tmp_path: Path):
    odd = {"missing_value": np.float32("nan"), "_FillValue": np.float32("nan")}
    text = 'NaN, "-Infinity" \\ NaN'
    ds = xr.Dataset({"t": (("x",), np.array([1, np.nan], "f4"), {"note": text})}, attrs={"range": [-np.inf, np.inf]})
    ds["t"].encoding = odd
    ds.to_zarr(tmp_path / "theirs.zarr", zarr_format=3)
    assert re.search(r"[:\[] *(NaN|-Infinity)", (tmp_path / "theirs.zarr" / "zarr.json").read_text())
    convert("theirs.zarr", "ours.nc")
    with netCDF4.Dataset(tmp_path / "ours.nc") as file:
        file.set_auto_mask(False)
        assert np.array_equal(file["t"][:], np.array([1, np.nan], "f4"), equal_nan=True)
        assert np.isnan(file["t"].missing_value) and file["t"].note == text
        assert file.range.tolist() == [-np.inf, np.inf]


@pytest.mark.parametrize("to", ["classic", "cdf2", "cdf5", "netcdf4-classic"])
def test_classic_formats_and_back(shared: Shared, convert: Convert, tmp_path: Path, to: str):
    source = shared("wrf/wrf_cropped.nc")
    convert(source, "classic.nc", "--to", to)
    convert("classic.nc", "again.nc", "--to", "netcdf4")
    for path in ("classic.nc", "again.nc"):
        assert [line for line in differences(source, tmp_path / path) if not line.startswith("format")] == []
    kind = run_plainly(["ncdump", "-k", "classic.nc"], tmp_path).stdout.strip()
    assert kind == {
        "classic": "classic",
        "cdf2": "64-bit offset",
        "cdf5": "cdf5",
        "netcdf4-classic": "netCDF-4 classic model",
    }.get(to)


# ---- several files ----


def test_split_files_become_one(shared: Shared, convert: Convert, tmp_path: Path):
    first = shared("wrf471/split4/wrfout_d01_0001-01-01_00:20:00_0000")
    tiles = sorted(p for p in first.parent.iterdir() if p.name.startswith("wrfout"))
    assert len(tiles) == 8  # of two times
    said = json.loads(convert(*tiles, "whole.nc", "--json").stdout)
    assert (said["tiles"], said["model"], said["outputs"][0]["records"]) == (8, "WRF", 2)
    for number, name in enumerate(("wrfout_d01_0001-01-01_00:20:00", "wrfout_d01_0001-01-01_00:30:00")):
        with netCDF4.Dataset(shared(f"wrf471/serial/{name}")) as serial, netCDF4.Dataset(tmp_path / "whole.nc") as whole:
            for ds in (serial, whole):
                ds.set_auto_maskandscale(False)
            assert list(serial.variables) == list(whole.variables)
            for variable in serial.variables.values():
                got = whole[variable.name][...]
                assert np.asarray(variable[...][0]).tobytes() == np.asarray(got[number]).tobytes(), variable.name


def test_tiles_are_what_join_makes_of_them(shared: Shared, convert: Convert, call: Callable[..., Result], tmp_path: Path):
    for tiles in (
        sorted(shared("scale/history.pe000000.nc").parent.glob("history.pe*.nc")),
        sorted(p for p in shared("nemo/mesh_mask_0000.nc").parent.glob("mesh_mask_*.nc")),
    ):
        convert(*tiles, "converted.nc", "--force")
        joined = call("join", *tiles, "-o", "joined.nc", "--force")
        assert joined.code == 0, joined.said
        assert_same(tmp_path / "joined.nc", tmp_path / "converted.nc")
        convert(*tiles, "converted.zarr", "--force")
        convert("converted.zarr", "back.nc", "--force")
        found = differences(tmp_path / "joined.nc", tmp_path / "back.nc")
        assert [line for line in found if not line.startswith("format")] == []


def test_files_follow_each_other_in_the_order_of_their_times(convert: Convert, tmp_path: Path):
    paths = series(tmp_path)
    said = json.loads(convert(paths[2], paths[0], paths[1], "all.nc", "--json").stdout)
    assert (said["files"], said["first"], said["last"]) == (3, "2000-01-01 00:00:00", "2000-01-01 05:00:00")
    assert list(values(tmp_path / "all.nc", "time")) == [0, 1, 2, 3, 4, 5]
    assert np.array_equal(values(tmp_path / "all.nc", "t"), np.concatenate([values(p, "t") for p in paths]))
    with (
        xr.open_mfdataset(paths, combine="by_coords", data_vars="minimal") as expected,
        xr.open_dataset(tmp_path / "all.nc") as got,
    ):
        xr.testing.assert_equal(got, expected)
    # Of stores, too.
    for path in paths:
        convert(path, path.with_suffix(".zarr"))
    convert("part*.zarr", "stores.nc")
    assert_same(tmp_path / "all.nc", tmp_path / "stores.nc", storage=False)


# ---- parts ----


def test_variables_come_with_their_coordinates(shared: Shared, convert: Convert, tmp_path: Path):
    convert(shared(FRAMES), "some.nc", "-v", "T2,Q*", "--records", "1:4:2")
    with xr.open_dataset(tmp_path / "some.nc") as got, xr.open_dataset(shared(FRAMES)) as whole:
        named = [n for n in whole.variables if n == "T2" or n.startswith("Q")]
        assert set(got.variables) == {*named, "Times", "XLAT", "XLONG", "XTIME"}
        assert got.attrs.keys() == whole.attrs.keys()
        for name in got.variables:
            assert np.array_equal(got[name], whole[name].isel(Time=[1, 3])), name


def test_levels_come_with_the_terms_of_their_formula_and_nothing_is_named_that_is_not_there(convert: Convert, tmp_path: Path):
    rng = np.random.default_rng(3)
    levels = {
        "standard_name": "atmosphere_hybrid_sigma_pressure_coordinate", "formula_terms": "ap: ap b: b ps: ps", "units": "1",
    }  # fmt: skip
    named = {"coordinates": "height", "ancillary_variables": "ta_flag", "cell_measures": "area: areacella"}
    whole = xr.Dataset(
        {
            "ta": (("time", "lev", "x"), rng.random((2, 3, 4)), named),
            "ta_flag": (("time", "lev", "x"), np.ones((2, 3, 4), "i1")),
            "ps": (("time", "x"), 1e5 + rng.random((2, 4)), {"units": "Pa"}),
            "ap": ("lev", [0.0, 1e3, 5e3], {"units": "Pa"}),
            "b": ("lev", [1.0, 0.5, 0.0]),
            "height": ((), 2.0),
        },
        coords={"time": ("time", [0.0, 1.0], {"units": "days since 2000-01-01"}), "lev": ("lev", [1.0, 0.5, 0.1], levels)},
    )
    whole.to_netcdf(tmp_path / "whole.nc", unlimited_dims=["time"])
    convert("whole.nc", "some.nc", "-v", "ta")
    with xr.open_dataset(tmp_path / "some.nc", decode_cf=False) as got:
        assert set(got.variables) == {"time", "lev", "ta", "ps", "ap", "b", "height"}
        assert got["lev"].attrs["formula_terms"] == "ap: ap b: b ps: ps"
        assert {"coordinates"} == set(named) & set(got["ta"].attrs)
        for name in got.variables:
            assert np.array_equal(got[name], whole[name]), name
    # Without a choice nothing is changed: what the file says of other files, it goes on saying.
    convert("whole.nc", "all.nc")
    with xr.open_dataset(tmp_path / "all.nc", decode_cf=False) as got:
        assert {key: got["ta"].attrs[key] for key in named} == named


def test_times_are_chosen_by_date(convert: Convert, tmp_path: Path):
    paths = series(tmp_path)
    convert(*paths, "some.nc", "--times", "2000-01-01T01..2000-01-01T03:30")
    assert list(values(tmp_path / "some.nc", "time")) == [1, 2, 3]
    assert np.array_equal(values(tmp_path / "some.nc", "t"), np.concatenate([values(p, "t") for p in paths])[1:4])
    convert(*paths, "day.nc", "--times", "2000-01-01")
    assert len(values(tmp_path / "day.nc", "time")) == 6
    convert(*paths, "last.nc", "--records", "-1")
    assert list(values(tmp_path / "last.nc", "time")) == [5]


def test_a_file_for_each_variable(convert: Convert, tmp_path: Path):
    paths = series(tmp_path)
    said = json.loads(convert(*paths, "by/", "--split-by", "variable", "--json").stdout)
    assert [Path(o["path"]).name for o in said["outputs"]] == ["t.nc"]  # lat belongs to it
    with netCDF4.Dataset(tmp_path / "by" / "t.nc") as ds:
        assert list(ds.variables) == ["time", "lat", "t"] and len(ds.dimensions["time"]) == 6
    convert(*paths, "{variable}_all.zarr", "--split-by", "variable", "-v", "t,lat")
    assert sorted(p.name for p in tmp_path.glob("*_all.zarr")) == ["lat_all.zarr", "t_all.zarr"]
    assert zarr.open_group(tmp_path / "t_all.zarr", mode="r")["t"].shape == (6, 6, 5)


# ---- storage ----


def test_other_chunks_and_codecs(shared: Shared, convert: Convert, tmp_path: Path):
    source = shared(FRAMES)
    convert(source, "points.nc", "--chunks", "Time=4,south_north=5,west_east=7", "--codec", "deflate", "--level", "3")
    assert list(differences(source, tmp_path / "points.nc")) == []
    said = run_plainly(["ncdump", "-hs", "points.nc"], tmp_path).stdout
    with netCDF4.Dataset(tmp_path / "points.nc") as ds:
        assert ds["T2"].chunking() == [4, 5, 7]
    for expected in ("T2:_ChunkSizes = 4, 5, 7 ;", "T2:_DeflateLevel = 3 ;", 'T2:_Shuffle = "true" ;'):
        assert expected in said, expected
    convert("points.nc", "plain.nc", "--codec", "none")
    assert "_DeflateLevel" not in run_plainly(["ncdump", "-hs", "plain.nc"], tmp_path).stdout
    assert list(differences(source, tmp_path / "plain.nc")) == []
    convert("points.nc", "points.zarr", "--codec", "zstd", "--rule", "round: {T: 8}")
    codec = zarr.open_group(tmp_path / "points.zarr", mode="r")["T2"].metadata.to_dict()["codecs"][0]["configuration"]
    assert codec["chunk_shape"] == (4, 5, 7) and codec["codecs"][1]["configuration"]["cname"] == "zstd"
    with xr.open_zarr(tmp_path / "points.zarr", chunks=None) as got, xr.open_dataset(source) as whole:
        assert not np.array_equal(got["T"], whole["T"]) and np.allclose(got["T"], whole["T"], rtol=2**-8)


def streams(path: Path, name: str) -> dict[tuple[int, ...], tuple[int, bytes]]:
    """The chunks of a variable as they lie in the file."""
    with h5py.File(path) as file:
        dataset = file[name].id
        places = [dataset.get_chunk_info(i).chunk_offset for i in range(dataset.get_num_chunks())]
        return {place: dataset.read_direct_chunk(place) for place in places}


def packed(path: Path, records: int, first: int = 0, level: int = 9) -> None:
    """Of streams that Advectio would make otherwise (zlib), with all that chunks can be."""
    random = np.random.default_rng(first)
    with netCDF4.Dataset(path, "w") as ds:
        for name, length in (("time", None), ("y", 50), ("x", 70)):
            ds.createDimension(name, length)
        time = ds.createVariable("time", "f8", ("time",))
        time.units = "hours since 2000-01-01"
        time[:] = first + np.arange(records)
        how = {"zlib": True, "complevel": level}
        field = np.cumsum(random.normal(size=(records, 50, 70)), axis=2).round(2)
        ds.createVariable("whole", "f4", ("time", "y", "x"), chunksizes=(1, 50, 70), **how)[:] = field
        ds.createVariable("cut", "f8", ("time", "y", "x"), chunksizes=(1, 16, 16), fletcher32=True, **how)[:] = field
        ds.createVariable("two", "i4", ("time", "y", "x"), chunksizes=(2, 50, 70), shuffle=False, **how)[:] = field
        ds.createVariable("big", ">i2", ("y", "x"), chunksizes=(20, 70), endian="big", **how)[:] = np.arange(3500).reshape(
            50, 70
        )
        ds.createVariable("text", "S1", ("y",), chunksizes=(25,), **how)[:] = np.full(50, b"q")
        holes = ds.createVariable("holes", "f4", ("time", "y", "x"), chunksizes=(1, 50, 70), **how)
        holes[records - 1] = field[0]


def test_chunks_that_stay_as_they_are_are_copied(convert: Convert, tmp_path: Path):
    packed(tmp_path / "in.nc", 5)
    convert("in.nc", "out.nc")
    assert_same(tmp_path / "in.nc", tmp_path / "out.nc")
    for name in ("whole", "cut", "two", "big", "text"):
        assert streams(tmp_path / "in.nc", name) == streams(tmp_path / "out.nc", name), name
    # One that was never written: its values are, as they were always.
    assert np.array_equal(values(tmp_path / "in.nc", "holes"), values(tmp_path / "out.nc", "holes"))
    # A codec that is named, and is the same.
    convert("in.nc", "zstd.nc", "--codec", "zstd")
    convert("zstd.nc", "again.nc", "--codec", "zstd")
    assert streams(tmp_path / "zstd.nc", "whole") == streams(tmp_path / "again.nc", "whole")


def test_chunks_of_a_series_are_copied_where_they_begin_a_chunk(convert: Convert, tmp_path: Path):
    for number, first in enumerate((0, 3, 7)):
        packed(tmp_path / f"part{number}.nc", 4 if number == 1 else 3, first)
    convert("part*.nc", "all.nc", "--records", "1:")
    parts = [tmp_path / f"part{n}.nc" for n in range(3)]
    for name in ("whole", "cut", "two"):
        expected = np.concatenate([values(p, name) for p in parts])[1:]
        assert np.array_equal(values(tmp_path / "all.nc", name), expected), name
    made = streams(tmp_path / "all.nc", "whole")
    assert [made[n, 0, 0] for n in range(9)] == [
        streams(p, "whole")[n, 0, 0] for p, count in zip(parts, (3, 4, 3), strict=True) for n in range(count)
    ][1:]
    # A record behind the end of what was chosen is not in the last chunk: a longer file would show it.
    convert("part1.nc", "cut.nc", "--records", ":3")
    with netCDF4.Dataset(tmp_path / "cut.nc", "a") as ds:
        ds["time"][3] = 9
        assert np.ma.getmaskarray(ds["two"][3]).all()


@pytest.mark.parametrize(
    ("level", "other"),
    [
        (1, ["--codec", "deflate", "--level", "1"]),
        (9, ["--codec", "deflate"]),
        (9, ["--rule", "deflate: libdeflate"]),
        (9, ["--rule", "round: {whole: 5}"]),
    ],
)
def test_what_asks_for_other_streams_gets_them(convert: Convert, tmp_path: Path, level: int, other: list[str]):
    packed(tmp_path / "in.nc", 2, level=level)
    convert("in.nc", "out.nc", *other)
    assert streams(tmp_path / "in.nc", "whole") != streams(tmp_path / "out.nc", "whole")
    if "round" not in other[1]:
        assert list(differences(tmp_path / "in.nc", tmp_path / "out.nc")) == []


def big(path: Path, megabytes: int) -> None:
    """Of values that compress well, a record for each megabyte."""
    with netCDF4.Dataset(path, "w") as ds:
        for name, length in (("time", None), ("y", 512), ("x", 512)):
            ds.createDimension(name, length)
        t = ds.createVariable("t", "f4", ("time", "y", "x"), zlib=True, complevel=1, chunksizes=(1, 512, 512))
        record = np.zeros((512, 512), "f4")
        for number in range(megabytes):
            record[:, :] = number
            t[number] = record


def assert_little_memory(convert: Convert, tmp_path: Path, megabytes: int) -> None:
    big(tmp_path / "big.nc", megabytes)
    for name, more in (("same.nc", []), ("points.zarr", ["--chunks", "time=32,y=64,x=64"])):
        said = json.loads(convert("big.nc", name, "--memory", "16MiB", "--jobs", "2", "--json", *more).stdout)
        assert said["outputs"][0]["bytes"] == megabytes << 20
        # The programs and libraries themselves take some 50 MB.
        assert said["memory_peak"] < 100 << 20, name
    convert("points.zarr", "back.nc", "--memory", "16MiB")
    for name in ("same.nc", "back.nc"):
        with netCDF4.Dataset(tmp_path / name) as ds:
            assert np.array_equal(ds["t"][:, 7, 9], np.arange(megabytes)), name


def test_memory_is_bounded(convert: Convert, tmp_path: Path):
    assert_little_memory(convert, tmp_path, 160)


def test_memory_is_bounded_whatever_the_size(convert: Convert, tmp_path: Path):
    assert_little_memory(convert, tmp_path, 512)


# ---- interruptions and mistakes ----


def server_of(advectio: Advectio) -> str:
    code = "from advectio import installation; print(installation.find().server)"
    done = run_plainly([advectio.command.with_name("python"), "-c", code], advectio.scratch)
    assert done.code == 0, done.said
    return done.stdout.strip()


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("name", ["out.nc", "out.zarr"])
def test_an_interruption_leaves_nothing_at_its_path(advectio: Advectio, convert: Convert, tmp_path: Path, by: int, name: str):
    big(tmp_path / "big.nc", 48)
    command = [server_of(advectio), "convert", "--output", name, "--memory", "16MiB", "--jobs", "1"]
    if name.endswith("zarr"):
        command += ["--to", "zarr"]
    worker = subprocess.Popen(
        [*command, "big.nc"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    assert worker.stdout
    worker.stdout.readline()  # a part is done, and more is to come
    worker.send_signal(by)
    _, errors = worker.communicate(timeout=60)
    assert worker.returncode == (1 if by == signal.SIGINT else -by), errors
    assert not (tmp_path / name).exists()
    left = [p.name for p in tmp_path.iterdir() if "advectio-convert" in p.name]
    assert left if by == signal.SIGKILL else not left
    # What a killed one has left is in nobody's way.
    convert("big.nc", name)
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "advectio") == ["big.nc", name]


def test_what_is_there_is_replaced_only_when_asked(convert: Convert, refused: Callable[..., str], tmp_path: Path):
    one, other = series(tmp_path, 2)
    for name in ("out.nc", "out.zarr"):
        convert(one, name)
        assert f"{name} is there already; --force" in refused(other, name)
        convert(other, name, "--force")
    convert("out.zarr", "back.nc")
    assert_same(tmp_path / "out.nc", tmp_path / "back.nc", storage=False)
    assert list(values(tmp_path / "back.nc", "time")) == [2, 3]
    (tmp_path / "mine.zarr").mkdir()
    assert "mine.zarr is a directory, and neither a Zarr store nor a BP file" in refused(one, "mine.zarr", "--force")
    assert "out.zarr is a directory" in refused(one, "out.zarr", "--force", "--to", "netcdf4")
    assert "part0.nc is one of the sources" in refused(one, "part0.nc", "--force")


def test_mistakes_have_a_line_each(shared: Shared, refused: Callable[..., str], tmp_path: Path):
    one, other = series(tmp_path, 2)
    assert "variable tt is not in the files; did you mean t?" in refused(one, "out.nc", "-v", "tt")
    assert "nothing.nc: there is no such file" in refused("nothing.nc", "out.nc")
    assert "the last name is what is made" in refused(one)
    assert "'zar' is none of zarr, netcdf4" in refused(one, "out", "--to", "zar")
    assert "--records: '5' is not among the 2 records" in refused(one, "out.nc", "--records", "5")
    assert "--records: '1-2' is no slice" in refused(one, "out.nc", "--records", "1-2")
    assert "no record is in 1999-01-01..1999-02-01; the files have 2000-01-01" in refused(
        one, "out.nc", "--times", "1999-01-01..1999-02-01"
    )
    assert "'noon' is no date" in refused(one, "out.nc", "--times", "noon")
    assert "'y' is not DIMENSION=LENGTH" in refused(one, "out.nc", "--chunks", "y")
    assert "the files have no dimension tine; did you mean time?" in refused(one, "out.nc", "--chunks", "tine=1")
    assert "unknown key" in refused(one, "out.nc", "--rule", "codeck: zstd")
    assert "has no dimension z (--along)" in refused(one, other, "out.nc", "--along", "z")
    assert "is too little; the least is 16MiB" in refused(one, "out.nc", "--memory", "1MiB")
    # Files that do not belong together.
    (tmp_path / "more").mkdir()
    (same_times,) = series(tmp_path / "more", 1)
    assert "begins at 2000-01-01 00:00:00, and" in refused(one, same_times, "out.nc")
    (tmp_path / "units").mkdir()
    celsius = series(tmp_path / "units", 2, units="degC")[1]
    assert "attribute units of t is not that of" in refused(one, celsius, "out.nc")
    with netCDF4.Dataset(celsius, "a") as ds:
        ds["t"].units = "K"
        ds["lat"][0, 0] = 7
    assert "disagree about lat, which all of them hold" in refused(one, celsius, "out.nc")
    tile = shared("scale/history.pe000000.nc")
    assert "history.pe000000.nc is one tile of a split file: name all of them" in refused(tile, "out.nc")
    # What a format cannot hold.
    with netCDF4.Dataset(tmp_path / "texts.nc", "w") as ds:
        ds.createDimension("x", 2)
        ds.createVariable("names", str, ("x",))
    assert "variable names is of type string, which a classic file cannot hold" in refused(
        "texts.nc", "out.nc", "--to", "classic"
    )
    zarr.create_group(tmp_path / "two.zarr", zarr_format=2)
    assert "is a Zarr store of version 2, and only version 3 is read" in refused("two.zarr", "out.nc")
    group = zarr.create_group(tmp_path / "complex.zarr")
    group.create_array("z", shape=(2,), dtype="complex64")
    assert "complex.zarr: array z: the data type complex64" in refused("complex.zarr", "out.nc")
    (tmp_path / "empty").mkdir()
    assert "empty is a directory, and neither a Zarr store nor a BP file" in refused("empty", "out.nc")


def test_take_first_settles_what_disagrees(convert: Convert, tmp_path: Path):
    one, other = series(tmp_path, 2)
    with netCDF4.Dataset(other, "a") as ds:
        ds["lat"][0, 0] = 7
    said = json.loads(convert(one, other, "out.nc", "--take-first", "--json").stdout)
    assert said["disagreements"] == ["lat"]
    assert np.array_equal(values(tmp_path / "out.nc", "lat"), values(one, "lat"))


def test_a_damaged_chunk_is_an_error(convert: Convert, call: Callable[..., Result], tmp_path: Path):
    convert(series(tmp_path, 1)[0], "out.zarr")
    shard = next((tmp_path / "out.zarr" / "t").glob("c.*"))
    data = bytearray(shard.read_bytes())
    data[-5] ^= 0xFF
    shard.write_bytes(data)
    result = call("convert", "out.zarr", "out.nc")
    assert result.code != 0 and "out.zarr: array t: a chunk in" in result.stderr, result.said
    assert not os.path.exists(tmp_path / "out.nc")


def test_process_reads_and_makes_stores_too(convert: Convert, call: Callable[..., Result], tmp_path: Path):
    paths = series(tmp_path)
    (tmp_path / "rules.yaml").write_text("outputs: [{path: mean.nc, mean: all}, {path: mean.zarr, mean: all, format: zarr}]\n")
    for path in paths:
        convert(path, path.with_suffix(".zarr"), "--codec", "zstd")
    for directory, pattern in (("a", "part*.nc"), ("b", "part*.zarr")):
        done = call("process", pattern, "-c", "rules.yaml", "-o", directory)
        assert done.code == 0, done.said
        convert(f"{directory}/mean.zarr", f"{directory}/back.nc")
    for name in ("b/mean.nc", "a/back.nc", "b/back.nc"):
        assert list(differences(tmp_path / "a" / "mean.nc", tmp_path / name)) == []
    with netCDF4.Dataset(tmp_path / "b" / "mean.nc") as ds:
        assert ds["t"].filters()["zlib"]  # which any program reads
