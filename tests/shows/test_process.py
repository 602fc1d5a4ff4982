"""Statistics of files that exist: `advectio process` beside cdo and NumPy, on real output of WRF."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cftime
import h5py
import netCDF4
import numpy as np
import pytest
from advectio import processing
from running import Advectio, Result, environment, run_plainly
from same import assert_same
from shapes import must_fit

Shared = Callable[[str], Path]
FRAMES = "wrf471/serial/wrfout_d01_4frames.nc"
WRF = "wrf/wrfout_d01_wrf381_4times.nc"
SURFACE = ("T2", "U10", "V10", "PSFC", "Q2")


def write_rules(directory: Path, rules: str | list[str]) -> None:
    lines = [rules] if isinstance(rules, str) else rules
    (directory / "rules.yaml").write_text("outputs:\n" + "".join(f"  - {{{line}}}\n" for line in lines))


@pytest.fixture
def process(advectio: Advectio, tmp_path: Path) -> Callable[..., Result]:
    """Rules as YAML lines of `outputs`; outputs are below out/."""

    def run(rules: str | list[str], *words: str | Path) -> Result:
        write_rules(tmp_path, rules)
        return advectio.call("process", *words, "-c", "rules.yaml", "-o", "out", directory=tmp_path)

    return run


@pytest.fixture
def worker(replay: Path, tmp_path: Path) -> Callable[..., Result]:
    """The same without Python's start-up."""
    server = replay.parents[2] / "src" / "apps" / "advectiod" / "advectiod"

    def run(rules: str | list[str], *words: str | Path) -> Result:
        write_rules(tmp_path, rules)
        return run_plainly([server, "process", "--rules", "rules.yaml", "--output", "out", *words], tmp_path)

    return run


@pytest.fixture
def refused(worker: Callable[..., Result], tmp_path: Path) -> Callable[..., str]:
    """What is said of rules and files that are wrong."""

    def run(rules: str | list[str], *files: Path) -> str:
        result = worker(rules, *files)
        assert result.code == 2, result.said
        assert len(result.stderr.splitlines()) == 1, result.said
        assert not (tmp_path / "out").exists(), "nothing is written"
        return result.stderr

    return run


def done(result: Result) -> Result:
    assert result.code == 0, result.said
    return result


def values(path: Path, name: str) -> np.ndarray:
    with netCDF4.Dataset(path) as file:
        return np.ma.filled(file[name][...].astype("f8"), np.nan)


@pytest.fixture(scope="module")
def hours(shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten days of six-hourly records with a CF time axis: WRF's fields, each day a little larger."""
    path = tmp_path_factory.mktemp("process") / "hours.nc"
    with netCDF4.Dataset(shared(FRAMES)) as source, netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        for name, length in (("y", 42), ("x", 42)):
            file.createDimension(name, length)
        time = file.createVariable("time", "f8", ("time",))
        time.units, time.calendar = "hours since 2001-01-28 00:00:00", "standard"
        time[:] = 6.0 * np.arange(40)
        for name in SURFACE:
            variable = file.createVariable(name, "f4", ("time", "y", "x"), zlib=True, chunksizes=(7, 20, 42))
            variable.units = source[name].units
            variable[:] = np.concatenate([source[name][...] * np.float32(1 + day / 500) for day in range(10)])
    return path


# Both sum in double, and round to float32 in the end. cdo may add in another order: the last bit of a float32.
ULPS = 1

CDO = {
    "timmean": "mean: all",
    "timmax": "max: all",
    "timmin": "min: all",
    "timsum": "sum: all",
    "daymean": "mean: 1d, closed: left",
    "daymax": "max: 1d, closed: left",
    "monmean": "mean: 1mo, closed: left",
    # Between two of its operators cdo keeps double, too.
    "timmin -daymean": "time: [{mean: 1d, closed: left}, {min: all}]",
}


def test_it_is_what_cdo_makes(hours: Path, process: Callable[..., Result], tool: Callable[[str], str], tmp_path: Path):
    done(process([f"path: '{operator}.nc', {keys}" for operator, keys in CDO.items()], hours))
    for operator in CDO:
        first, *rest = operator.split()
        cdo = run_plainly([tool("cdo"), "-s", "-f", "nc4", f"-{first}", *rest, hours, "cdo.nc"], tmp_path)
        assert cdo.code == 0, cdo.said
        for name in SURFACE:
            ours, theirs = (
                values(path, name).astype("f4") for path in (tmp_path / "out" / f"{operator}.nc", tmp_path / "cdo.nc")
            )
            np.testing.assert_array_max_ulp(ours, theirs, maxulp=ULPS)


def test_weeks_of_daily_means_are_counted_by_their_bounds(
    process: Callable[..., Result], tool: Callable[[str], str], tmp_path: Path
):
    """Each record stands for its day, and has the time of its end, its middle or its beginning."""
    for name, at in (("end", 1.0), ("middle", 0.5), ("begin", 0.0)):
        with netCDF4.Dataset(tmp_path / f"{name}.nc", "w") as file:
            for dimension, length in (("time", None), ("bnds", 2), ("x", 3)):
                file.createDimension(dimension, length)
            time = file.createVariable("time", "f8", ("time",))
            time.units, time.calendar, time.bounds = "days since 2001-01-01", "standard", "time_bnds"
            time[:] = np.arange(21) + at
            file.createVariable("time_bnds", "f8", ("time", "bnds"))[:] = np.stack([np.arange(21), np.arange(21) + 1], 1)
            file.createVariable("t", "f4", ("time", "x"))[:] = np.random.default_rng(1).random((21, 3))
        done(process(f"path: {name}.nc, variables: [t], mean: 1w", f"{name}.nc"))
        cdo = run_plainly([tool("cdo"), "-s", "-f", "nc4", "timselmean,7", f"{name}.nc", "cdo.nc"], tmp_path)
        assert cdo.code == 0, cdo.said
        made = tmp_path / "out" / f"{name}.nc"
        np.testing.assert_array_max_ulp(
            values(made, "t").astype("f4"), values(tmp_path / "cdo.nc", "t").astype("f4").reshape(3, 3), maxulp=ULPS
        )
        with netCDF4.Dataset(made) as file:
            assert file["time_bnds"][:].tolist() == [[0, 7], [7, 14], [14, 21]]


@pytest.mark.parametrize("operator, keys", [("timmean", "mean: all"), ("timmax", "max: all")])
def test_wrf_needs_no_time_coordinate(
    shared: Shared, process: Callable[..., Result], tool: Callable[[str], str], tmp_path: Path, operator: str, keys: str
):
    source = shared(FRAMES)
    done(process(f"path: '{{name}}', variables: [T2, U, W], {keys}", source))
    ours = tmp_path / "out" / source.name
    cdo = run_plainly([tool("cdo"), "-s", operator, "-selname,T2,U,W", source, "cdo.nc"], tmp_path)
    assert cdo.code == 0, cdo.said
    for name in ("T2", "U", "W"):
        np.testing.assert_array_max_ulp(
            values(ours, name).astype("f4"), values(tmp_path / "cdo.nc", name).astype("f4"), maxulp=ULPS
        )
    with netCDF4.Dataset(ours) as file, netCDF4.Dataset(source) as given:
        time = file["Time"]
        (middle,) = netCDF4.num2date(time[:], time.units, time.calendar)
        assert (middle.year, middle.hour, middle.minute) == (1, 0, 15)
        assert time.bounds == "Time_bnds" and file["Time_bnds"][0].tolist() == [0, 30]
        assert file["T2"].cell_methods == f"Time: {'mean' if 'mean' in keys else 'maximum'} (interval: 10 min)"
        assert file["T2"].coordinates == "XLONG XLAT" and "XLONG" in file.variables and "XTIME" not in file.variables
        assert file["U"].filters() == given["U"].filters() and file["U"].chunking() == given["U"].chunking()


def copied(hours: Path, to: Path, records: slice, chunks: tuple[int, ...] | None, form: str = "NETCDF4", **stored: Any) -> Path:
    with netCDF4.Dataset(hours) as source, netCDF4.Dataset(to, "w", format=form) as file:
        for name in ("time", "y", "x"):
            file.createDimension(name, None if name == "time" else 42)
        for name in ("time", "T2", "U10", "PSFC"):
            given = source[name]
            kinds = {"chunksizes": chunks, **stored} if chunks and name != "time" else {}
            made = file.createVariable(
                name, given.dtype.newbyteorder(">" if "endian" in kinds else "="), given.dimensions, **kinds
            )
            made.setncatts({key: given.getncattr(key) for key in given.ncattrs()})
            made[:] = given[records]
    return to


def same_values(first: Path, second: Path) -> None:
    with netCDF4.Dataset(first) as one, netCDF4.Dataset(second) as other:
        assert list(one.variables) == list(other.variables)
        for name, variable in one.variables.items():
            assert variable.__dict__ == other[name].__dict__
            assert variable[...].tobytes() == other[name][...].tobytes(), name


def test_a_series_is_the_same_in_one_file_and_in_several(hours: Path, worker: Callable[..., Result], tmp_path: Path):
    cuts = [(slice(17, 40), "NETCDF4"), (slice(0, 1), "NETCDF4"), (slice(1, 17), "NETCDF3_64BIT")]
    parts = [copied(hours, tmp_path / f"part{n}.nc", cut, None, form) for n, (cut, form) in enumerate(cuts)]
    rules = ["path: mean.nc, variables: [T2], mean: 1d", "path: rain.nc, difference: 12h, variables: ['U*', PSFC]"]
    done(worker([rule.replace("path: ", "path: whole/") for rule in rules], hours))
    done(worker([rule.replace("path: ", "path: parts/") for rule in rules], *parts, "--jobs", "3", "--memory", "16MiB"))
    whole = tmp_path / "out" / "whole"
    with netCDF4.Dataset(whole / "mean.nc") as file:
        # (a, b]: the first midnight ends a day of its own.
        assert file["time_bnds"][:2].tolist() == [[-24, 0], [0, 24]]
        expected = values(hours, "T2")[1:5].sum(axis=0) / 4
        np.testing.assert_array_max_ulp(file["T2"][1].filled(), expected.astype("f4"))
    with netCDF4.Dataset(whole / "rain.nc") as file, netCDF4.Dataset(hours) as given:
        given.set_auto_mask(False)
        ends = given["PSFC"][[*range(0, 40, 2), 39]].astype("f8")  # the last window has no sample at its end
        assert (file["PSFC"][...].filled() == np.diff(ends, axis=0).astype("f4")).all()
        assert sorted(file.variables) == ["PSFC", "U10", "time", "time_bnds"]
    for name in ("mean.nc", "rain.nc"):
        same_values(whole / name, tmp_path / "out" / "parts" / name)


STORED: list[tuple[tuple[int, ...] | None, dict[str, Any]]] = [
    (None, {}),
    ((40, 42, 42), {"zlib": True}),
    ((1, 6, 6), {"zlib": True, "shuffle": False}),
    ((3, 5, 7), {}),
    ((4, 42, 10), {"zlib": True, "fletcher32": True}),
    ((4, 10, 42), {"zlib": True, "endian": "big"}),
]


@pytest.mark.parametrize("case", range(len(STORED)))
def test_any_storage_and_any_number_of_cores_give_the_same_bits(
    hours: Path, worker: Callable[..., Result], tmp_path: Path, case: int
):
    chunks, stored = STORED[case]
    rule = "path: {}, variables: [T2, U10], time: [{{mean: 12h}}, {{max: 3d}}]"
    done(worker(rule.format("given.nc"), hours, "--jobs", "2"))
    cut = copied(hours, tmp_path / "cut.nc", slice(None), chunks, **stored)
    done(worker(rule.format("cut.nc"), cut, "--jobs", str(1 + case % 3), "--memory", "16MiB"))
    same_values(tmp_path / "out" / "given.nc", tmp_path / "out" / "cut.nc")


def test_packed_values_and_missing_ones(worker: Callable[..., Result], tmp_path: Path):
    random = np.random.default_rng(7)
    packed = random.integers(-30000, 30000, (24, 5, 6)).astype("i2")
    packed[random.random(packed.shape) < 0.3] = -32768
    with netCDF4.Dataset(tmp_path / "packed.nc", "w") as file:
        for name, length in (("time", 24), ("y", 5), ("x", 6)):
            file.createDimension(name, length)
        time = file.createVariable("time", "i4", ("time",))
        time.units, time.calendar = "hours since 2000-02-28 12:00", "noleap"
        time[:] = 1 + np.arange(24)
        t = file.createVariable("t", "i2", ("time", "y", "x"), fill_value=-32768)
        t.scale_factor, t.add_offset, t.valid_range = 0.01, 273.15, np.array([-30000, 30000], "i2")
        t.set_auto_maskandscale(False)
        t[:] = packed
    done(worker(["path: mean.nc, mean: 6h, min_count: 4", "path: point.nc, point: 6h"], tmp_path / "packed.nc"))
    with netCDF4.Dataset(tmp_path / "out" / "mean.nc") as file:
        assert file["t"].dtype == "f8" and not {"scale_factor", "valid_range"} & set(file["t"].ncattrs())
        assert file["time_bnds"][:, 0].tolist() == [0, 6, 12, 18] and file["time"].calendar == "noleap"
        got = np.ma.filled(file["t"][...], np.nan)
    numbers = np.where(packed == -32768, np.nan, packed * 0.01 + 273.15).reshape(4, 6, 5, 6)
    there = np.isfinite(numbers).sum(axis=1)
    mean = np.where(there < 4, np.nan, np.nansum(numbers, axis=1) / np.maximum(there, 1))
    assert (there < 4).any() and (there >= 4).any()
    np.testing.assert_allclose(got, mean, rtol=1e-15)  # NumPy adds in pairs
    with netCDF4.Dataset(tmp_path / "out" / "point.nc") as file:
        file.set_auto_maskandscale(False)
        assert file["t"].dtype == "i2" and file["t"].scale_factor == 0.01
        assert (file["t"][...] == packed[[5, 11, 17, 23]]).all()


def small_file(path: Path, day: float, latitude: list[float], name: str = "t", **coordinates: np.ndarray) -> Path:
    with netCDF4.Dataset(path, "w") as file:
        for dimension, length in (("time", None), ("lat", len(latitude)), ("lon", 2)):
            file.createDimension(dimension, length)
        for dimension, numbers, units in (
            ("time", [day], "days since 2000-01-01"),
            ("lat", latitude, "degrees_north"),
            ("lon", [0, 90], "degrees_east"),
        ):
            file.createVariable(dimension, "f8", (dimension,))[:] = numbers
            file[dimension].units = units
        for two, numbers in coordinates.items():
            file.createVariable(two, "f8", ("lat", "lon"))[:] = numbers
        variable = file.createVariable(name, "f4", ("time", "lat", "lon"))
        variable[0] = np.repeat(np.array(latitude)[:, None], 2, 1)
        if coordinates:
            variable.coordinates = " ".join(coordinates)
    return path


def test_files_of_other_grids_are_no_series(worker: Callable[..., Result], refused: Callable[..., str], tmp_path: Path):
    south = small_file(tmp_path / "south.nc", 0.5, [60, 0, -60])
    north = small_file(tmp_path / "north.nc", 1.5, [-60, 0, 60])
    said = refused("path: mean.nc, mean: all", south, north)
    assert "north.nc: lat of variable t has not the values that it has in" in said and "south.nc" in said
    two = np.arange(6.0).reshape(3, 2)
    first = small_file(tmp_path / "first.nc", 0.5, [60, 0, -60], xlat=two)
    other = small_file(tmp_path / "other.nc", 1.5, [60, 0, -60], xlat=two[::-1])
    assert "xlat of variable t" in refused("path: mean.nc, mean: all", first, other)
    # A coordinate of nothing that is read may differ.
    with netCDF4.Dataset(other, "a") as file:
        file["t"].delncattr("coordinates")
    done(worker("path: mean.nc, mean: all", first, other))


def test_months_have_30_days_where_all_are_alike(worker: Callable[..., Result], refused: Callable[..., str], tmp_path: Path):
    """As cftime has them: months since a date, in 360_day; in no other calendar."""
    for calendar in ("360_day", "noleap"):
        with netCDF4.Dataset(tmp_path / f"{calendar}.nc", "w") as file:
            file.createDimension("time", None)
            time = file.createVariable("time", "f8", ("time",))
            time.units, time.calendar = "months since 1850-01-01", calendar
            time[:] = np.arange(24) + 0.5
            file.createVariable("t", "f8", ("time",))[:] = np.arange(24.0)
    assert "a month has no fixed length in the calendar noleap" in refused("path: m.nc, mean: 1y", tmp_path / "noleap.nc")
    done(worker(["path: year.nc, mean: 1y", "path: month.nc, mean: 1mo"], tmp_path / "360_day.nc"))
    for name, means in (("year", [5.5, 17.5]), ("month", np.arange(24.0))):
        with netCDF4.Dataset(tmp_path / "out" / f"{name}.nc") as file:
            assert file["t"][:].tolist() == pytest.approx(list(means)), name
            bounds = cftime.num2date(file["time_bnds"][:], file["time"].units, file["time"].calendar)
            assert bounds[0, 0] == cftime.Datetime360Day(1850, 1, 1)
            assert bounds[-1, 1] == cftime.Datetime360Day(1852, 1, 1)


@pytest.mark.parametrize("stored, said, meant", [("i1", "true", "u1"), ("u2", "false", "i2")])
def test_unsigned_says_what_integers_mean(worker: Callable[..., Result], tmp_path: Path, stored: str, said: str, meant: str):
    values = np.array([200, 100, 255], meant if meant == "u1" else "i2") * (1 if meant == "u1" else -1)
    with netCDF4.Dataset(tmp_path / "radar.nc", "w") as file:
        file.createDimension("time", None)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "hours since 2000-01-01"
        time[:] = [1, 2, 3]
        r = file.createVariable("r", stored, ("time",), fill_value=values.astype(meant).view(stored)[2])
        r.set_auto_maskandscale(False)
        r.setncattr("_Unsigned", said)
        r.scale_factor = np.float32(0.5)
        r[:] = values.astype(meant).view(stored)
    done(worker(["path: mean.nc, mean: all", "path: same.nc, point: 1h"], tmp_path / "radar.nc"))
    with netCDF4.Dataset(tmp_path / "out" / "mean.nc") as file:
        assert "_Unsigned" not in file["r"].ncattrs()
        assert file["r"][:].tolist() == [pytest.approx(0.5 * values[:2].astype("f8").mean())]
    with netCDF4.Dataset(tmp_path / "out" / "same.nc") as file:
        file["r"].set_auto_maskandscale(False)
        assert file["r"]._Unsigned == said and file["r"][:].view(meant).tolist() == values.tolist()


def test_a_damaged_chunk_is_an_error(hours: Path, worker: Callable[..., Result], tmp_path: Path):
    damaged = copied(hours, tmp_path / "damaged.nc", slice(None), (40, 42, 42), zlib=True)
    with h5py.File(damaged) as file:
        chunk = file["T2"].id.get_chunk_info(0)
    with damaged.open("r+b") as raw:
        raw.seek(chunk.byte_offset + chunk.size // 2)
        other = bytes(~byte & 0xFF for byte in raw.read(64))
        raw.seek(chunk.byte_offset + chunk.size // 2)
        raw.write(other)
    result = worker("path: a.nc, mean: all", damaged)
    assert result.code == 1 and "damaged.nc" in result.stderr and len(result.stderr.splitlines()) == 1, result.said
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("form", ["classic", "cdf5", "netcdf4"])
def test_the_rule_says_how_it_is_stored(hours: Path, worker: Callable[..., Result], tmp_path: Path, form: str):
    stored = f"format: {form}" + (", codec: zstd, level: 5, round: {T2: 9}" if form == "netcdf4" else "")
    done(worker(f"path: a.nc, variables: [T2], mean: 5d, {stored}", hours))
    with netCDF4.Dataset(tmp_path / "out" / "a.nc") as file:
        assert file.data_model == {"classic": "NETCDF3_CLASSIC", "cdf5": "NETCDF3_64BIT_DATA", "netcdf4": "NETCDF4"}[form]
        if form == "netcdf4":
            assert file["T2"].filters()["zstd"] and file["T2"]._QuantizeBitRoundNumberOfSignificantBits == 9
            assert (file["T2"][...].data.view("u4") & ((1 << 14) - 1) == 0).all()


def test_what_cannot_be_is_said_before_anything_is_written(
    shared: Shared, hours: Path, refused: Callable[..., str], process: Callable[..., Result], tmp_path: Path
):
    good = "path: good.nc, variables: [T2], mean: 1d"
    wrong = {
        "path: a.nc, variables: [T3], mean: 1d": "rules.yaml:3: variable T3 is not in the files; did you mean T2?",
        "path: a.nc, mean: 1x": "rules.yaml:3: outputs[1].mean: '1x' has the unknown unit 'x'",
        "path: a.nc, meen: 1d": "rules.yaml:3: outputs[1]: unknown key meen; did you mean mean?",
        "path: good.nc, mean: 1d": "rules.yaml:3: out/good.nc is the path of another output, too",
        "path: a.nc, codec: zstd, format: classic": "rules.yaml:3: outputs[1].codec: zstd cannot be",
        f"path: {hours}, mean: 1d": "is one of the input files",
    }
    for rule, said in wrong.items():
        assert said in refused([good, rule], hours), rule
    other, frames = shared(WRF), shared(FRAMES)
    assert "rules.yaml:2: difference: all records fall into one window of 1d" in refused("path: a, difference: 1d", other)
    assert "has not the type and shape" in refused("path: a, variables: [T2]", other, frames)
    again = copied(hours, tmp_path / "again.nc", slice(30, 40), None)
    assert "a series has each time once" in refused(good, hours, again)
    assert "has another calendar" in refused(good, hours, frames)
    with netCDF4.Dataset(tmp_path / "no_time.nc", "w") as file:
        file.createDimension("x", 2)
    assert "has no time axis" in refused(good, tmp_path / "no_time.nc")
    absent = process(good, tmp_path / "absent.nc")
    assert absent.code == 2 and "there is no such file" in absent.stderr and len(absent.stderr.splitlines()) == 1


def test_what_is_there_is_not_replaced_unasked(hours: Path, process: Callable[..., Result], tmp_path: Path):
    rules = ["path: one.nc, mean: 1d", "path: two.nc, max: 1d"]
    (tmp_path / "out").mkdir()
    one = tmp_path / "out" / "one.nc"
    one.write_text("mine")
    result = process(rules, hours)
    assert result.code == 2 and "is there already; --force replaces it" in result.stderr, result.said
    assert not (tmp_path / "out" / "two.nc").exists() and one.read_text() == "mine"
    kept = json.loads(done(process(rules, hours, "--keep", "--json")).stdout)
    must_fit(kept, processing.Processed)
    assert [output["kept"] for output in kept["outputs"]] == [True, False] and one.read_text() == "mine"
    done(process(rules, hours, "--force"))
    assert len(values(one, "T2")) == 11


def test_interrupted_and_run_again_it_is_equal(hours: Path, worker: Callable[..., Result], replay: Path, tmp_path: Path):
    rules = [f"path: {n}.nc, mean: {n}d, deflate: libdeflate, codec: deflate, level: 9" for n in range(1, 6)]
    done(worker(rules, hours))
    (tmp_path / "out").rename(tmp_path / "whole")
    server = replay.parents[2] / "src" / "apps" / "advectiod" / "advectiod"
    for how in (signal.SIGKILL, signal.SIGTERM):
        begun = subprocess.Popen(
            [server, "process", "--rules", "rules.yaml", "--output", "out", "--keep", hours],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )
        assert begun.stdout and begun.stdout.readline()  # it has begun
        begun.send_signal(how)
        begun.communicate()
        for there in (tmp_path / "out").glob("*.nc"):
            assert_same(tmp_path / "whole" / there.name, there)
    done(worker(rules, hours, "--keep"))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [f"{n}.nc" for n in range(1, 6)]
    for n in range(1, 6):
        assert_same(tmp_path / "whole" / f"{n}.nc", tmp_path / "out" / f"{n}.nc")


def columns(path: Path, *names: str) -> list[np.ndarray]:
    with netCDF4.Dataset(path) as file:
        file.set_auto_mask(False)
        return [file[name][...].astype("f8") for name in names]


@pytest.mark.filterwarnings("ignore:Interpolation point out of data bounds")
def test_pressure_levels_are_those_of_numpy_and_metpy(shared: Shared, process: Callable[..., Result], tmp_path: Path):
    interpolate = pytest.importorskip("metpy.interpolate")
    source = shared(WRF)
    given = "levels: {pressure: [950, 900, 700 hPa]"
    done(
        process(
            [
                f"path: wrf.nc, variables: [T, U, W, T2], {given}, preset: wrf}}",
                f"path: log.nc, variables: [T], {given}, coordinate: P + PB}}",
                f"path: u.nc, variables: [U], {given}, preset: wrf}}, max: 6h",
                "path: height.nc, variables: [T], levels: {height: [200, 1500 m], preset: wrf}, mean: all",
            ],
            source,
        )
    )
    p, pb, t, u, w, ph, phb = columns(source, "P", "PB", "T", "U", "W", "PH", "PHB")
    pressure, levels = p + pb, np.array([95000.0, 90000.0, 70000.0])

    def made(name: str, variable: str) -> np.ndarray:
        return values(tmp_path / "out" / name, variable)

    # The weights are made in another order: rounding of double, then of the output's float32.
    for name, field in {
        "T": t,
        "U": (u[..., 1:] + u[..., :-1]) / 2,
        "W": (w[:, 1:] + w[:, :-1]) / 2,
    }.items():
        expected = interpolate.interpolate_1d(levels, pressure, field, axis=1)
        assert 0.5 < np.isfinite(expected).mean() < 1
        np.testing.assert_allclose(made("wrf.nc", name), expected, rtol=1e-6, atol=1e-6, equal_nan=True)
    expected = interpolate.log_interpolate_1d(levels, pressure, t, axis=1)
    np.testing.assert_allclose(made("log.nc", "T"), expected, rtol=1e-6, atol=1e-6, equal_nan=True)
    assert (made("wrf.nc", "T") != made("log.nc", "T")).any()

    height = (ph + phb)[:, 1:] / 2 / 9.81 + (ph + phb)[:, :-1] / 2 / 9.81
    expected = np.full((4, 2, 48, 48), np.nan)
    for record, y, x in np.ndindex(4, 48, 48):
        at = height[record, :, y, x]
        expected[record, :, y, x] = np.interp([200, 1500], at, t[record, :, y, x], left=np.nan, right=np.nan)
    # A level that is below the ground at one time is missing in that sample, and the mean is that of the others.
    with np.errstate(invalid="ignore"):
        there = np.isfinite(expected).sum(axis=0)
        mean = np.where(there > 0, np.nansum(expected, axis=0) / np.maximum(there, 1), np.nan)
    np.testing.assert_allclose(made("height.nc", "T")[0], mean, rtol=1e-6, atol=1e-6, equal_nan=True)

    with netCDF4.Dataset(tmp_path / "out" / "wrf.nc") as file:
        assert file["plev"][:].tolist() == [950, 900, 700] and file["plev"].units == "hPa"
        assert file["U"].dimensions == ("Time", "plev", "south_north", "west_east")
        assert file["U"].coordinates == "XLONG XLAT"
        assert file["T"].vertical_interpolation == "linear in P + PB; below the lowest model level: missing"
        assert file["T2"].dimensions == ("Time", "south_north", "west_east") and "bottom_top" not in file.dimensions
    with netCDF4.Dataset(tmp_path / "out" / "u.nc") as file:
        assert {"XLONG", "XLAT"} == set(file["U"].coordinates.split()) <= set(file.variables)
        assert file["Time_bnds"].shape == (len(file["U"]), 2) and file["U"].shape[1:] == (3, 48, 48)


def test_expressions_are_those_of_numpy(shared: Shared, process: Callable[..., Result], tmp_path: Path):
    source = shared(WRF)
    done(
        process(
            [
                'path: a.nc, expressions: {speed: "hypot(U10, V10)", TC: {formula: T2 - 273.15, units: degC}}, max: 6h',
                'path: b.nc, expressions: {s: "hypot(destagger(U), destagger(V))"}, levels: {pressure: [850 hPa], preset: wrf}',
            ],
            source,
        )
    )
    u10, v10, t2 = columns(source, "U10", "V10", "T2")
    with netCDF4.Dataset(tmp_path / "out" / "a.nc") as file:
        file.set_auto_mask(False)
        assert (file["TC"][0] == (t2[0] - 273.15).astype("f4")).all() and file["TC"].units == "degC"
        # hypot of NumPy and of the C library may differ in the last place of a double.
        speed = np.hypot(u10, v10)
        np.testing.assert_array_max_ulp(file["speed"][1], speed[1:3].max(axis=0).astype("f4"))
        assert file["speed"].units == "m s-1" and file["speed"].expression == "hypot(U10, V10)"
        assert {"XLAT", "XLONG"} <= set(file.variables) and "U10" not in file.variables
    with netCDF4.Dataset(tmp_path / "out" / "b.nc") as file:
        assert file["s"].dimensions == ("Time", "plev", "south_north", "west_east")


def test_levels_and_expressions_that_cannot_be(shared: Shared, refused: Callable[..., str]):
    wrong = {
        'expressions: {s: "hypot(U10, V1O)"}': "s = 'hypot(U10, V1O)': variable V1O is not in the files; did you mean V10?",
        'expressions: {s: "T2 + U10"}': "+ of 'K' and 'm s-1': their units do not fit",
        'expressions: {s: "U + V"}': "do not fit; destagger(…)",
        'variables: [T2], expressions: {T2: "2 * T2"}': "T2 is the name of another variable of this output",
        "variables: [U], levels: {pressure: [850 hPa], coordinate: P + PB}": "variable U on levels of 'P + PB'",
        "variables: [T2], levels: {pressure: [850 hPa], preset: wrf}": "no variable of this output is on the levels",
        "variables: [T], levels: {pressure: [850 hPa], coordinate: T}": "'T' has the units 'K', and the levels are in hPa",
        "variables: [T], levels: {pressure: [8500 hPa], preset: wrf}": "a level lies outside of any atmosphere",
    }
    for rule, said in wrong.items():
        line = refused(f"path: a.nc, {rule}", shared(WRF))
        assert "rules.yaml:2: " in line and said in line, line
