"""`advectio convert` with BP5 files of ADIOS2 as source and destination; judged by ADIOS2's own Python reader, netCDF's library and
xarray. Files of other writers are made by ADIOS2's Python."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr
from running import Advectio, environment
from test_bp5 import assert_file_as_file
from test_convert import FILES, FRAMES, Convert, Shared, big, series, server_of, values

adios2 = pytest.importorskip("adios2", reason="the wheel adios2 is not installed")


# ---- real files ----


REAL = [*FILES, "wrf471/serial/wrfrst_d01_0001-01-01_00:20:00"]


@pytest.mark.parametrize("name", REAL)
def test_real_files_become_bp_files_and_come_back(shared: Shared, convert: Convert, tmp_path: Path, name: str):
    source = shared(name)
    convert(source, "there.bp")
    assert_file_as_file(tmp_path / "there.bp", source)
    convert("there.bp", "back.nc")
    same_but_for_order(source, tmp_path / "back.nc")
    convert("there.bp", "there.zarr")
    convert("there.zarr", "again.nc")
    same_but_for_order(source, tmp_path / "again.nc")


def same_but_for_order(expected: Path, found: Path) -> None:
    """Names, types, values and attributes; BP files keep neither the order of attributes nor dimensions without a variable."""
    with netCDF4.Dataset(expected) as a, netCDF4.Dataset(found) as b:
        for ds in (a, b):
            ds.set_auto_maskandscale(False)
            ds.set_auto_chartostring(False)
        used = {d for v in a.variables.values() for d in v.dimensions}
        assert set(b.dimensions) == used
        for d in used:
            assert (len(a.dimensions[d]), a.dimensions[d].isunlimited()) == (
                len(b.dimensions[d]),
                b.dimensions[d].isunlimited(),
            )
        assert list(a.variables) == list(b.variables)
        same_attributes(a, b)
        for name, v in a.variables.items():
            w = b.variables[name]
            assert (v.dtype, v.dimensions) == (w.dtype, w.dimensions), name
            same_attributes(v, w)
            assert np.asarray(v[...]).tobytes() == np.asarray(w[...]).tobytes(), name


def same_attributes(a: netCDF4.Dataset | netCDF4.Variable, b: netCDF4.Dataset | netCDF4.Variable) -> None:
    assert sorted(a.ncattrs()) == sorted(b.ncattrs())
    for name in a.ncattrs():
        x, y = np.asarray(a.getncattr(name)), np.asarray(b.getncattr(name))
        # A text ends at its first NUL.
        if x.dtype.kind == "U" and x.ndim == 0:
            x = np.asarray(str(x).split("\0")[0])
            y = np.asarray(str(y))
            assert str(x) == str(y), name
        else:
            assert x.dtype == y.dtype and np.array_equal(x, y), name


@pytest.mark.parametrize("to", ["classic", "cdf5", "netcdf4-classic"])
def test_bp_files_become_netcdf_of_any_format(shared: Shared, convert: Convert, tmp_path: Path, to: str):
    convert(shared(FRAMES), "there.bp")
    convert("there.bp", "back.nc", "--to", to)
    same_but_for_order(shared(FRAMES), tmp_path / "back.nc")


@pytest.mark.parametrize(
    ("one", "all_"), [("nemo/mesh_mask_0000.nc", "mesh_mask_*.nc"), ("scale/history.pe000000.nc", "history.*")]
)
def test_tiles_become_one_bp_file(shared: Shared, convert: Convert, tmp_path: Path, one: str, all_: str):
    tiles = sorted(shared(one).parent.glob(all_))
    convert(*tiles, "whole.nc")
    convert(*tiles, "whole.bp")
    assert_file_as_file(tmp_path / "whole.bp", tmp_path / "whole.nc")
    convert("whole.bp", "back.nc")
    same_but_for_order(tmp_path / "whole.nc", tmp_path / "back.nc")


def test_a_series_of_files_is_one_of_steps(convert: Convert, tmp_path: Path):
    paths = series(tmp_path)
    convert(*paths, "all.bp")
    convert(*paths, "all.nc")
    assert_file_as_file(tmp_path / "all.bp", tmp_path / "all.nc")
    for n, path in enumerate(paths):
        convert(path, f"step{n}.bp")
    convert("step*.bp", "back.nc")
    same_but_for_order(tmp_path / "all.nc", tmp_path / "back.nc")
    convert("all.bp", "some.nc", "-v", "t", "--records", "1:4")
    assert list(values(tmp_path / "some.nc", "time")) == [1, 2, 3]


def test_each_variable_gets_a_bp_file(convert: Convert, tmp_path: Path):
    convert(series(tmp_path, 1)[0], "by", "--split-by", "variable")
    convert(series(tmp_path, 1)[0], "bp", "--split-by", "variable", "--to", "bp5")
    assert sorted(p.name for p in (tmp_path / "bp").iterdir()) == ["t.bp"]
    assert_file_as_file(tmp_path / "bp" / "t.bp", tmp_path / "by" / "t.nc")


def test_values_are_rounded_where_a_rule_asks(convert: Convert, tmp_path: Path):
    with netCDF4.Dataset(tmp_path / "one.nc", "w") as ds:
        ds.createDimension("time", None)
        ds.createDimension("x", 1000)
        ds.createVariable("t", "f4", ("time", "x"))[0] = np.linspace(1, 2, 1000)
    convert("one.nc", "one.bp", "--rule", "round: {t: 6}, durable: false")
    with adios2.FileReader(str(tmp_path / "one.bp")) as file:
        got = file.read("t")
    expected = np.linspace(1, 2, 1000, dtype="f4")
    assert not np.array_equal(got, expected) and np.allclose(got, expected, rtol=2**-6)


# ---- files of other writers ----


def test_steps_of_others_are_records(convert: Convert, tmp_path: Path):
    t, h = np.arange(24, dtype="f4").reshape(4, 2, 3), np.arange(6, dtype="i8").reshape(2, 3)
    with adios2.Stream(str(tmp_path / "theirs.bp"), "w") as stream:
        for step in range(4):
            stream.begin_step()
            if step == 0:
                stream.write("h", h, h.shape, [0, 0], h.shape)
                stream.write_attribute("title", "theirs")
                stream.write_attribute("levels", np.arange(3, dtype="f8"))
                stream.write_attribute("names", ["one", "two and more"])
            # Two blocks, as ranks write them, and of the last step only one.
            stream.write("t", t[step, :1], [2, 3], [0, 0], [1, 3])
            if step < 3:
                stream.write("t", t[step, 1:], [2, 3], [1, 0], [1, 3])
            if step == 0:
                stream.write_attribute("units", "K", "t")
            stream.write("time", float(step))
            stream.write("note", f"step {step}")
            if step % 2:
                stream.write("odd", step)
            stream.end_step()
    convert("theirs.bp", "ours.nc")
    with netCDF4.Dataset(tmp_path / "ours.nc") as ds:
        ds.set_auto_mask(False)
        assert ds.title == "theirs" and list(ds.levels) == [0, 1, 2] and ds.names == ["one", "two and more"]
        assert ds.dimensions["step"].isunlimited() and len(ds.dimensions["step"]) == 4
        assert ds["t"].dimensions == ("step", "dim_2", "dim_3") and ds["t"].units == "K"
        assert ds["h"].dimensions == ("dim_2", "dim_3") and np.array_equal(ds["h"][:], h)
        assert np.array_equal(ds["t"][:3], t[:3])
        assert np.array_equal(ds["t"][3, 0], t[3, 0])
        assert np.all(ds["t"][3, 1] == netCDF4.default_fillvals["f4"])
        assert list(ds["time"][:]) == [0, 1, 2, 3]
        assert list(ds["note"][:]) == [f"step {n}" for n in range(4)]
        # The file does not say which records are its neighbours.
        assert ds["odd"].dimensions == ("odd_steps",) and list(ds["odd"][:]) == [1, 3]


def test_names_of_dimensions_are_those_that_xarray_adios2_reads(convert: Convert, tmp_path: Path):
    with adios2.Stream(str(tmp_path / "theirs.bp"), "w") as stream:
        stream.begin_step()
        stream.write_attribute("step_dimension", "time")
        stream.write("t", np.ones((2, 3), "f4"), [2, 3], [0, 0], [2, 3])
        stream.write_attribute("dimensions", "y x", "t")
        stream.end_step()
    convert("theirs.bp", "ours.nc")
    with netCDF4.Dataset(tmp_path / "ours.nc") as ds:
        assert ds["t"].dimensions == ("time", "y", "x") and ds.dimensions["time"].isunlimited()
        assert ds.ncattrs() == [] and ds["t"].ncattrs() == []


def test_files_of_wrf_with_adios2_have_wrfs_names(convert: Convert, tmp_path: Path):
    """As WRF's io_adios2 writes it: names in Fortran's order in `Dims`, scalars of one element, times as texts."""
    times = ["2005-08-28_00:00:00", "2005-08-28_03:00:00"]
    with adios2.Stream(str(tmp_path / "wrfout_d01.bp"), "w") as stream:
        for step, time in enumerate(times):
            stream.begin_step()
            stream.write("Times", time)
            stream.write("T2", np.full((2, 3), step, "f4"), [2, 3], [0, 0], [2, 3])
            stream.write("XTIME", np.array([180 * step], "f4"), [1], [0], [1])
            if step == 0:
                stream.write_attribute("TITLE", " OUTPUT FROM WRF")
                stream.write_attribute("_DIM_west_east", np.int32(3))
                for name, dims in (("T2", ["west_east", "south_north", "Time"]), ("XTIME", ["Time"])):
                    stream.write_attribute("Dims", dims, name)
                    stream.write_attribute("MemoryOrder", "XY " if name == "T2" else "0  ", name)
                    stream.write_attribute("FieldType", np.int32(104), name)
            stream.end_step()
    convert("wrfout_d01.bp", "wrfout_d01.nc")
    with netCDF4.Dataset(tmp_path / "wrfout_d01.nc") as ds:
        assert ds.ncattrs() == ["TITLE"]
        assert ds["T2"].dimensions == ("Time", "south_north", "west_east") and ds["T2"].FieldType == 104
        assert ds["XTIME"].dimensions == ("Time",) and list(ds["XTIME"][:]) == [0, 180]
        assert ds["Times"].dimensions == ("Time", "DateStrLen")
        assert [t.tobytes().decode() for t in np.asarray(ds["Times"][:])] == times
    # And the times are known to be times.
    said = json.loads(convert("wrfout_d01.bp", "later.nc", "--times", "2005-08-28_01..", "--json").stdout)
    assert said["outputs"][0]["records"] == 1 and said["first"].startswith("2005-08-28")


def test_files_of_bp4_are_read(convert: Convert, tmp_path: Path):
    adios = adios2.Adios()
    io = adios.declare_io("four")
    io.set_engine("BP4")
    t = np.arange(12, dtype="f8").reshape(2, 6)
    with adios2.Stream(io, str(tmp_path / "four.bp"), "w") as stream:
        for step in range(2):
            stream.begin_step()
            stream.write("t", t[step], [6], [0], [6])
            stream.end_step()
    convert("four.bp", "ours.nc")
    assert np.array_equal(values(tmp_path / "ours.nc", "t"), t)


# ---- what cannot be ----


def theirs(path: Path, name: str, *arguments: object, steps: int = 1) -> str:
    with adios2.Stream(str(path), "w") as stream:
        for _ in range(steps):
            stream.begin_step()
            stream.write(name, *arguments)
            stream.end_step()
    return path.name


def test_what_netcdf_cannot_have_is_refused_by_its_name(refused: Callable[..., str], tmp_path: Path):
    complex_numbers = theirs(tmp_path / "complex.bp", "z", np.ones(3, "c8"), [3], [0], [3])
    assert "complex.bp: variable z is of a type that netCDF has not" in refused(complex_numbers, "out.nc")
    local = theirs(tmp_path / "local.bp", "particles", np.ones(3), [], [], [3])
    assert "local.bp: variable particles is a local array" in refused(local, "out.nc")
    assert "variable a/b: a name in netCDF has no '/'" in refused(theirs(tmp_path / "slash.bp", "a/b", 1.0), "out.nc")
    with adios2.Stream(str(tmp_path / "grows.bp"), "w") as stream:
        for n in (2, 3):
            stream.begin_step()
            stream.write("g", np.ones(n), [n], [0], [n])
            stream.end_step()
    assert "variable g has another shape in its step 1" in refused("grows.bp", "out.nc")


def test_what_a_bp_file_cannot_have_is_refused_by_its_name(refused: Callable[..., str], tmp_path: Path):
    with netCDF4.Dataset(tmp_path / "texts.nc", "w") as ds:
        ds.createDimension("x", 2)
        ds.createVariable("name", str, ("x",))
    assert "variable name is of type string; ADIOS2 has no arrays of strings" in refused("texts.nc", "out.bp")
    with netCDF4.Dataset(tmp_path / "none.nc", "w") as ds:
        ds.createDimension("time", None)
        ds.createVariable("t", "f4", ("time",))
    assert "variable t has no values, and a BP file does not hold such" in refused("none.nc", "out.bp")
    one = series(tmp_path, 1)[0]
    assert "chunks: a BP file has none" in refused(one, "out.bp", "--chunks", "time=2")
    assert "codec: deflate cannot be with ADIOS2" in refused(one, "out.bp", "--codec", "deflate")
    assert "sst is a stream" in refused(one, "out", "--rule", "format: sst")


def test_damaged_bp_files_are_named_before_anything_is_written(convert: Convert, refused: Callable[..., str], tmp_path: Path):
    convert(series(tmp_path, 1)[0], "whole.bp")
    for name in ("md.idx", "md.0", "data.0"):
        shutil.copytree(tmp_path / "whole.bp", tmp_path / "cut.bp")
        with (tmp_path / "cut.bp" / name).open("r+b") as file:
            file.truncate(file.seek(0, 2) - 5)
        assert f"cut.bp: {name} is cut" in refused("cut.bp", "out.nc")
        (tmp_path / "cut.bp" / name).unlink()
        assert f"cut.bp lacks {name}" in refused("cut.bp", "out.nc")
        shutil.rmtree(tmp_path / "cut.bp")


def test_without_adios2_the_error_says_what_to_do(
    convert: Convert, refused: Callable[..., str], advectio: Advectio, tmp_path: Path
):
    one = series(tmp_path, 1)[0]
    convert(one, "one.bp")
    for source, to in (("one.bp", "out.nc"), (one.name, "out.bp")):
        command = [server_of(advectio), "convert", "--output", to, *(["--to", "bp5"] if to == "out.bp" else []), source]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment({"ADVECTIO_ADIOS2": "/nowhere"}), capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 2, done.stderr
        assert "ADIOS2 is not found (/nowhere" in done.stderr and "pip install adios2" in done.stderr
        assert not (tmp_path / to).exists()


# ---- memory, interruptions ----


def test_memory_is_bounded(convert: Convert, tmp_path: Path):
    big(tmp_path / "big.nc", 160)
    for source, to in (("big.nc", "big.bp"), ("big.bp", "back.nc")):
        said = json.loads(convert(source, to, "--memory", "16MiB", "--jobs", "2", "--json").stdout)
        assert said["outputs"][0]["bytes"] == 160 << 20
        assert said["memory_peak"] < 120 << 20, to
    with netCDF4.Dataset(tmp_path / "back.nc") as ds:
        assert np.array_equal(ds["t"][:, 7, 9], np.arange(160))


def test_a_step_may_be_larger_than_the_memory(convert: Convert, tmp_path: Path):
    with netCDF4.Dataset(tmp_path / "steps.nc", "w") as ds:
        for name, length in (("time", None), ("z", 24), ("y", 512), ("x", 512)):
            ds.createDimension(name, length)
        for name in ("u", "v", "small"):
            dims = ("time", "x") if name == "small" else ("time", "z", "y", "x")
            variable = ds.createVariable(name, "f4", dims, zlib=True, complevel=1)
            for record in range(3):
                variable[record] = np.arange(np.prod(variable.shape[1:]), dtype="f4").reshape(variable.shape[1:]) + record
    said = json.loads(convert("steps.nc", "steps.bp", "--memory", "16MiB", "--json").stdout)
    assert said["memory_peak"] < 120 << 20
    assert_file_as_file(tmp_path / "steps.bp", tmp_path / "steps.nc")
    with adios2.FileReader(str(tmp_path / "steps.bp")) as file:
        assert file.num_steps() == 3
    convert("steps.bp", "back.nc", "--memory", "16MiB")
    with xr.open_dataset(tmp_path / "steps.nc") as a, xr.open_dataset(tmp_path / "back.nc") as b:
        assert a.identical(b)


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
def test_an_interruption_leaves_nothing_at_its_path(advectio: Advectio, convert: Convert, tmp_path: Path, by: int):
    big(tmp_path / "big.nc", 48)
    environment_of_adios2 = {"ADVECTIO_ADIOS2": str(Path(adios2.__file__).parent)}
    for source, to in (("big.nc", "out.bp"), ("source.bp", "out.nc")):
        command = [server_of(advectio), "convert", "--output", to, "--memory", "16MiB", "--jobs", "1"]
        command += ["--to", "bp5"] if to == "out.bp" else []
        worker = subprocess.Popen(
            [*command, source],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(environment_of_adios2),
        )
        assert worker.stdout
        worker.stdout.readline()  # a part is done, and more is to come
        worker.send_signal(by)
        _, errors = worker.communicate(timeout=60)
        assert worker.returncode == (1 if by == signal.SIGINT else -by), errors
        assert not (tmp_path / to).exists()
        left = [p.name for p in tmp_path.iterdir() if "advectio-convert" in p.name]
        assert left if by == signal.SIGKILL else not left
        # What a killed one has left is in nobody's way.
        convert(source, to)
        assert not [p.name for p in tmp_path.iterdir() if "advectio-convert" in p.name]
        if to == "out.bp":
            shutil.move(tmp_path / to, tmp_path / "source.bp")


def test_what_is_there_is_replaced_only_when_asked(convert: Convert, refused: Callable[..., str], tmp_path: Path):
    one, other = series(tmp_path, 2)
    convert(one, "out.bp")
    assert "out.bp is there already; --force" in refused(other, "out.bp")
    convert(other, "out.bp", "--force")
    convert("out.bp", "back.nc")
    assert list(values(tmp_path / "back.nc", "time")) == [2, 3]
    (tmp_path / "mine.bp").mkdir()
    assert "mine.bp is a directory, and neither a Zarr store nor a BP file" in refused(one, "mine.bp", "--force")
    assert "out.bp is one of the sources" in refused("out.bp", "out.bp", "--force")
