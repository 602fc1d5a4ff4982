"""Are the files what they should be: the same from any number of ranks, whole or split, broken off or not?"""

import json
import os
import pathlib

import netCDF4
import numpy as np
import pytest

SHARED = pathlib.Path(os.environ.get("ADVECTIO_SHARED", pathlib.Path(__file__).resolve().parents[3] / "shared"))
# Nothing symmetric, patches of unequal size, rain within a few minutes.
STORM = ("--nx", 26, "--ny", 21, "--nz", 20, "--hodograph", "quarter", "--bubble", 7, "--seed", 11)
TWENTY = (*STORM, "--minutes", 20, "--history-minutes", 10, "--restart-minutes", 10)


@pytest.fixture(scope="session")
def serial(squall):
    return squall(1, *TWENTY)


@pytest.fixture(scope="session")
def split(squall):
    return squall(6, *TWENTY, "--io", "split", "--ranks-x", 3, "--ranks-y", 2)


@pytest.mark.parametrize("ranks", [2, 3, 4, 6])
def test_any_number_of_ranks_gives_the_same_bits(squall, serial, assert_same_files, read, ranks):
    assert read(serial / "squall_d01_0001-01-01_00:20:00", "RAINNC").max() > 0, "the storm is worth comparing"
    assert_same_files(serial, squall(ranks, *TWENTY), at_least=5)


def test_any_number_of_ranks_gives_the_same_bits_between_periodic_sides(squall, assert_same_files):
    flags = (*STORM, "--boundaries", "periodic", "--minutes", 5, "--history-minutes", 5, "--restart-minutes", 5)
    assert_same_files(squall(1, *flags), squall(6, *flags), at_least=3)


def join(parts):
    """The fields of split files, placed as their attributes say, and how often each value was given."""
    whole, seen = {}, {}
    for path in parts:
        with netCDF4.Dataset(path) as data:
            data.set_auto_maskandscale(False)
            for name, variable in data.variables.items():
                shape, place = [], []
                for dimension, length in zip(variable.dimensions, variable.shape, strict=False):
                    base = dimension.removesuffix("_stag")
                    stag = base != dimension
                    if base not in ("west_east", "south_north", "bottom_top"):
                        shape.append(length)
                        place.append(slice(None))
                        continue
                    key = base.upper().replace("_", "-")
                    end = "STAG" if stag else "UNSTAG"
                    start, stop = data.getncattr(f"{key}_PATCH_START_{end}"), data.getncattr(f"{key}_PATCH_END_{end}")
                    assert stop - start + 1 == length
                    shape.append(data.getncattr(f"{key}_GRID_DIMENSION") - (not stag))
                    place.append(slice(start - 1, stop))
                whole.setdefault(name, np.zeros(shape, variable.dtype))[tuple(place)] = variable[:]
                seen.setdefault(name, np.zeros(shape, int))[tuple(place)] += 1
    return whole, seen


@pytest.mark.parametrize("name", ["squall_d01_0001-01-01_00:20:00", "squallrst_d01_0001-01-01_00:10:00"])
def test_the_parts_of_a_split_file_make_the_serial_one(serial, split, read, name):
    parts = sorted(split.glob(name + "_*"))
    assert [p.name[-4:] for p in parts] == ["0000", "0001", "0002", "0003", "0004", "0005"]
    whole, seen = join(parts)
    expected = read(serial / name)
    assert whole.keys() == expected.keys()
    for variable, values in expected.items():
        if values.ndim >= 3:
            assert (seen[variable] == 1).all(), f"{variable}: every value has one owner"
        assert whole[variable].tobytes() == values.tobytes(), variable


@pytest.mark.parametrize("method", ["pnetcdf", "pnetcdf-nonblocking"])
def test_what_all_ranks_write_together_is_the_serial_file(squall, serial, assert_same_files, method):
    together = squall(6, *TWENTY, "--io", method, "--ranks-x", 3, "--ranks-y", 2)
    assert_same_files(serial, together, at_least=5)
    name = "squall_d01_0001-01-01_00:20:00"
    assert (together / name).read_bytes().startswith(b"CDF\2")
    with netCDF4.Dataset(serial / name) as one, netCDF4.Dataset(together / name) as other:
        for attribute in one.ncattrs():
            if not attribute.startswith("NTASKS"):
                assert np.array_equal(one.getncattr(attribute), other.getncattr(attribute)), attribute
        for variable in one.variables:
            assert one[variable].__dict__ == other[variable].__dict__, variable


@pytest.mark.parametrize("source, ranks", [("serial", 3), ("split", 2)])
def test_a_run_taken_up_again_is_the_unbroken_one(squall, serial, assert_same_files, request, source, ranks):
    start = request.getfixturevalue(source) / "squallrst_d01_0001-01-01_00:10:00"
    again = squall(ranks, *TWENTY, "--restart", start)
    assert sorted(p.name[-8:] for p in again.iterdir()) == ["00:20:00", "00:20:00"], "only what comes after"
    assert_same_files(serial, again, at_least=2)


def test_frames_of_one_file_are_those_of_many(squall, serial, read):
    file = squall(2, *STORM, "--minutes", 20, "--history-minutes", 10, "--frames-per-file", 3, "--deflate", 0)
    [path] = file.iterdir()
    many = [read(serial / f"squall_d01_0001-01-01_00:{m}:00") for m in ("00", "10", "20")]
    one = read(path)
    for name, values in one.items():
        assert len(values) == 3
        assert values.tobytes() == b"".join(frame[name].tobytes() for frame in many), name
    assert [b"".join(t).decode() for t in one["Times"]] == [f"0001-01-01_00:{m}:00" for m in ("00", "10", "20")]


def test_files_are_compressed_and_chunked_as_asked(serial):
    with netCDF4.Dataset(serial / "squall_d01_0001-01-01_00:20:00") as data:
        assert data.data_model == "NETCDF4"
        filters = data["U"].filters()
        assert (filters["zlib"], filters["shuffle"], filters["complevel"]) == (True, True, 2)
        assert data["U"].chunking() == [1, 20, 10, 13]
        assert not data["ZNU"].filters()["zlib"]


def test_files_describe_themselves_as_those_of_wrf_do(serial):
    reference = SHARED / "data/wrf471/serial/wrfout_d01_0001-01-01_00:20:00"
    if not reference.exists():
        pytest.skip(f"no real WRF file: {reference}")
    compared = 0
    with netCDF4.Dataset(reference) as wrf, netCDF4.Dataset(serial / "squall_d01_0001-01-01_00:20:00") as ours:
        for name, theirs in wrf.variables.items():
            if name not in ours.variables:
                continue
            mine = ours[name]
            assert (mine.dtype, mine.dimensions) == (theirs.dtype, theirs.dimensions), name
            assert mine.ncattrs() == theirs.ncattrs(), name
            for attribute in ("FieldType", "MemoryOrder", "units", "stagger", "coordinates"):
                if attribute in theirs.ncattrs():
                    assert mine.getncattr(attribute) == theirs.getncattr(attribute), f"{name}:{attribute}"
            compared += 1
        attributes = set(wrf.ncattrs())
        for name in ours.ncattrs():
            if name.startswith("SQUALL") or name.startswith("TRUELAT"):
                continue
            assert name in attributes, name
            assert type(ours.getncattr(name)) is type(wrf.getncattr(name)), name
    assert compared >= 30


def test_a_blow_up_is_named_and_ends_every_rank(launch, tmp_path):
    flags = ("--nx", 26, "--ny", 21, "--nz", 40, "--dt", 60, "--minutes", 60, "--bubble", 15, "--output", tmp_path)
    done = launch(3, *flags, wrapper=("sh", "-c", '"$0" "$@"; echo "a rank ended with $?"'))
    assert done.stdout.count("a rank ended with 3") == 3, done.stdout + done.stderr
    assert "CFL blow-up at 0001-01-01_00:" in done.stderr and "Courant number" in done.stderr
    assert "SUCCESS" not in done.stdout
    assert launch(3, *flags).returncode != 0


@pytest.mark.parametrize(
    "flags, complaint",
    [
        (("--no-such-thing", 3), '"--no_such_thing 3"'),
        (("--nx", "many"), '"--nx many"'),
        (("--case", "hurricane"), 'no case "hurricane"'),
        (("--nx", 6, "--ny", 6, "--ranks-x", 2), "divided"),
        (("--history-minutes", 0.13), "whole numbers of steps"),
        (("--io", "telepathy"), 'no way "telepathy"'),
        (("--restart", "nowhere"), "nowhere: no such restart"),
        (("--namelist", "nowhere.nml"), "nowhere.nml"),
    ],
)
def test_what_cannot_be_done_is_said(launch, tmp_path, flags, complaint):
    done = launch(2, "--output", tmp_path, *flags)
    assert done.returncode != 0
    assert complaint in done.stderr


def test_a_restart_of_another_grid_is_refused(launch, serial, tmp_path):
    done = launch(
        1, "--nx", 30, "--ny", 21, "--nz", 20, "--output", tmp_path, "--restart", serial / "squallrst_d01_0001-01-01_00:10:00"
    )
    assert done.returncode != 0
    assert "another grid" in done.stderr


def test_a_namelist_is_obeyed_and_flags_come_first(squall, tmp_path):
    namelist = tmp_path / "storm.nml"
    namelist.write_text("&squall\n  nx = 12, ny = 10, nz = 8\n  minutes = 1, history_minutes = 1\n  io = 'split'\n/\n")
    run = squall(1, "--namelist", namelist, "--io", "serial", "--ny", 11)
    with netCDF4.Dataset(run / "squall_d01_0001-01-01_00:01:00") as data:
        assert [len(data.dimensions[d]) for d in ("west_east", "south_north", "bottom_top")] == [12, 11, 8]


def test_the_log_and_the_report_say_what_output_cost(launch, tmp_path):
    report = tmp_path / "report.json"
    done = launch(2, *STORM, "--minutes", 2, "--history-minutes", 1, "--output", tmp_path / "new", "--report", report)
    assert done.returncode == 0, done.stderr
    told = json.loads(report.read_text())
    assert told["ranks"] == 2 and told["steps"] == 12 and told["grid"] == [26, 21, 20]
    assert [f["file"][-8:] for f in told["frames"]] == ["00:00:00", "00:01:00", "00:02:00"]
    assert 0 < sum(f["blocked_s"] for f in told["frames"]) < told["total_s"]
    for frame in told["frames"]:
        assert f"Timing for Writing {frame['file']} for domain        1:" in done.stdout
