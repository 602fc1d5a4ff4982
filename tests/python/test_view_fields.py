"""advectio view: planes read, pooled and quantised, held against numpy; coastlines in index space."""

import numpy as np
import pytest

xr = pytest.importorskip("xarray", reason="xarray is not installed")
from advectio.view import coasts, fields  # noqa: E402
from advectio.view.frames import model_time, stream_name  # noqa: E402


@pytest.fixture
def plane():
    values = np.random.default_rng(4).normal(280, 15, (37, 53)).astype(np.float32)
    values[5:9, 20:30] = np.nan
    return values


@pytest.mark.parametrize("bits", [8, 16])
def test_quantised_values_lie_within_half_a_step(plane, bits):
    low, high = float(np.nanmin(plane)), float(np.nanmax(plane))
    body = fields.packed(
        {"shape": list(plane.shape), "low": low, "high": high, "bits": bits}, fields.quantise(plane, low, high, bits)
    )
    _, again = fields.unpacked(body)
    assert np.array_equal(np.isnan(again), np.isnan(plane))
    step = (high - low) / (2**bits - 2)
    assert np.nanmax(np.abs(again - plane)) <= 0.51 * step
    assert np.nanmin(again) == pytest.approx(low) and np.nanmax(again) == pytest.approx(high)


@pytest.mark.parametrize("values", [np.full((4, 5), 3.0, np.float32), np.full((4, 5), np.nan, np.float32)])
def test_a_field_of_one_value_or_of_none_can_be_quantised(values):
    low = 3.0 if values[0, 0] == 3.0 else 0.0
    assert set(fields.quantise(values, low, low, 16).flat) == {1 if low else 0}


def test_a_small_range_of_large_values_keeps_its_steps():
    values = (1e5 + np.linspace(0, 1, 400)).reshape(20, 20)
    quantised = fields.quantise(values, 1e5, 1e5 + 1, 16).astype(float)
    assert np.abs((quantised - 1) / 65534 - (values - 1e5)).max() < 1e-5


@pytest.mark.parametrize("factor", [2, 3, 7])
@pytest.mark.parametrize(("how", "numpy"), [("mean", np.nanmean), ("max", np.nanmax), ("min", np.nanmin)])
@pytest.mark.filterwarnings("ignore:.*[Ee]mpty slice", "ignore:All-NaN")
def test_pooled_blocks_are_those_of_numpy(plane, factor, how, numpy):
    pooled = fields.pool(plane, factor, how)
    ny, nx = plane.shape
    expected = [[numpy(plane[y : y + factor, x : x + factor]) for x in range(0, nx, factor)] for y in range(0, ny, factor)]
    assert np.allclose(pooled, expected, equal_nan=True, rtol=1e-6)


def test_rain_keeps_its_peaks_and_categories_their_numbers():
    rain = np.zeros((60, 60), np.float32)
    rain[31, 17] = 90
    assert fields.usual_pooling(rain, False) == "max"
    assert fields.usual_pooling(np.random.default_rng(1).normal(size=(60, 60)), False) == "mean"
    land = np.random.default_rng(1).choice([2.0, 17.0], (60, 60))
    assert fields.usual_pooling(land, True) == "nearest"
    assert set(fields.pool(land, 4, "nearest").flat) <= {2.0, 17.0}


def test_the_spread_leaves_out_what_is_missing(plane):
    found = fields.spread(plane)
    assert found.missing == 40
    assert found.low == np.nanmin(plane) and found.high == np.nanmax(plane)
    assert found.mean == pytest.approx(np.nanmean(plane, dtype=float))


def test_a_plane_has_the_last_two_dimensions_longer_than_one():
    values = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4, 1)
    dataset = xr.Dataset(
        {"T": (("time", "z", "y", "x"), values), "one": ("z", np.zeros(3)), "z_bnds": (("z", "nv"), np.zeros((3, 2)))}
    )
    (only,) = fields.describe(dataset)
    assert only["shape"] == [3, 4] and [level["size"] for level in only["levels"]] == [2, 1]
    assert np.array_equal(fields.read(dataset, "T", (1, 0)), values[1, :, :, 0])
    assert fields.read(dataset, "T", (1, 0, 2, 3)) == values[1, 2, 3, 0]


def test_fill_values_that_no_attribute_names_are_missing():
    dataset = xr.Dataset({"T": (("y", "x"), np.array([[1, 9.96921e36], [2, 1e30]], np.float32))})
    assert np.array_equal(np.isnan(fields.read(dataset, "T", ())), [[False, True], [False, True]])


def test_coasts_of_a_regular_grid_lie_where_its_degrees_are():
    lat, lon = np.meshgrid(np.arange(35, 60, 0.25), np.arange(-12, 20, 0.25), indexing="ij")
    points = np.concatenate(coasts.lines(lat, lon))
    degrees = (-12 + (points[:, 0] - 0.5) * 0.25, 35 + (points[:, 1] - 0.5) * 0.25)
    # Land's End: the coast comes to 50.07° N, 5.72° W.
    assert np.hypot(degrees[0] + 5.72, degrees[1] - 50.07).min() < 0.1


def test_coasts_follow_a_grid_that_is_turned():
    """The same place on the earth, whatever the indices are that lead to it."""
    y, x = np.mgrid[0:120, 0:160].astype(float)
    lat = 40 + 0.08 * y + 0.05 * x
    lon = 0 + 0.11 * x - 0.06 * y
    points = np.concatenate(coasts.lines(lat, lon)) - 0.5
    found = np.stack([0.11 * points[:, 0] - 0.06 * points[:, 1], 40 + 0.08 * points[:, 1] + 0.05 * points[:, 0]], axis=1)
    world, _ = coasts._world()
    degrees = np.stack([np.degrees(np.arctan2(world[:, 1], world[:, 0])), np.degrees(np.arcsin(world[:, 2]))], axis=1)
    inside = found[(points > 1).all(1) & (points < (158, 118)).all(1)]
    assert len(inside) > 500
    for place in inside[:: len(inside) // 50]:
        assert np.hypot(*(degrees - place).T).min() < 0.01


def test_a_grid_across_the_date_line_has_its_coasts():
    lat, lon = np.meshgrid(np.arange(-50, -30, 0.25), np.arange(165, 190, 0.25), indexing="ij")
    points = np.concatenate(coasts.lines(lat, (lon + 180) % 360 - 180))
    east = 165 + (points[:, 0] - 0.5) * 0.25
    assert 178.4 < east[(points[:, 1] > 40) & (points[:, 1] < 56)].max() < 178.7  # East Cape of New Zealand


def test_an_idealised_run_has_no_positions():
    zeros = np.zeros((5, 6), np.float32)
    assert coasts.positions(xr.Dataset({"XLAT": (("y", "x"), zeros), "XLONG": (("y", "x"), zeros)})) is None


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/a/wrfout_d01_2024-05-11_12:00:00", "wrfout_d01"),
        ("wrfout_d02_0001-01-01_00_20_00", "wrfout_d02"),
        ("history.pe000000.nc", "history.pe000000.nc"),
        ("met_em.d01.2005-08-28_12_00_00.nc", "met_em.d01.nc"),
        ("2024-05-11", "2024-05-11"),
    ],
)
def test_files_that_differ_in_their_date_are_one_stream(path, name):
    assert stream_name(path) == name


def test_model_times_are_read_however_they_are_written():
    def of(**variables):
        return model_time(xr.Dataset(variables))

    assert of(Times=((), b"0001-01-01_00:20:00")) == ("0001-01-01 00:20:00", -62135595600000.0)
    assert of(time=((), 6.0, {"units": "hours since 2000-01-01"})) == ("2000-01-01 06:00:00", 946706400000.0)
    assert of(time=((), np.datetime64("2000-01-01T06", "ns"))) == ("2000-01-01 06:00:00", 946706400000.0)
    assert of(time=((), 90.0, {"units": "s"})) == ("90 s", None)
    assert of(time_counter=((), 0.0)) == ("", None)
    assert of(T=((), 1.0)) == ("", None)
