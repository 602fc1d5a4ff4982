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


# --- which way up, and sections ----------------------------------------------------------------------------------------------


def on_levels(lat, levels=(1000.0, 500.0), **attrs):
    """t [level][lat][lon]: 100 for each level, 10 for each row, 1 for each column of the file."""
    z, y, x = np.meshgrid(np.arange(len(levels)), np.arange(len(lat)), np.arange(4), indexing="ij")
    return xr.Dataset(
        {"t": (("lev", "lat", "lon"), (100 * z + 10 * y + x).astype("f4"), {"units": "K"})},
        coords={
            "lev": ("lev", np.asarray(levels), attrs or {"units": "hPa"}),
            "lat": ("lat", np.asarray(lat), {"units": "degrees_north"}),
            "lon": ("lon", [0.0, 90, 180, 270], {"units": "degrees_east"}),
        },
    )


NORTH_FIRST, SOUTH_FIRST = (60.0, 0.0, -60.0), (-60.0, 0.0, 60.0)


def described(dataset, name: str = "t"):
    return next(field for field in fields.describe(dataset, coasts.positions(dataset)) if field["name"] == name)


def test_a_map_has_north_at_the_top_whichever_way_the_file_goes():
    assert described(on_levels(NORTH_FIRST))["cuts"]["map"] == {"down": True, "mirrored": False, "stretched": False}
    assert described(on_levels(SOUTH_FIRST))["cuts"]["map"] == {"down": False, "mirrored": False, "stretched": False}
    westwards = on_levels(SOUTH_FIRST).assign_coords(lon=("lon", [270.0, 180, 90, 0], {"units": "degrees_east"}))
    assert described(westwards)["cuts"]["map"] == {"down": False, "mirrored": True, "stretched": False}


@pytest.mark.parametrize("down", [True, False])
def test_so_has_a_grid_whose_latitudes_have_two_dimensions(down):
    y, x = np.mgrid[0:6, 0:8].astype(float)
    lat = 30 + (5 - y if down else y) + 0.1 * x
    dataset = xr.Dataset(
        {
            "t": (("y", "x"), y),
            "lat": (("y", "x"), lat, {"units": "degrees_north"}),
            "lon": (("y", "x"), x, {"units": "degrees_east"}),
        }
    )
    assert described(dataset)["cuts"]["map"]["down"] == down


def test_rows_of_a_projection_from_the_north():
    y = xr.Variable("y", [3e6, 0.0, -3e6], {"units": "m", "standard_name": "projection_y_coordinate"})
    dataset = xr.Dataset({"t": (("y", "x"), np.zeros((3, 3)))}, coords={"y": y, "x": ("x", [0.0, 1.0, 2.0])})
    assert described(dataset)["cuts"]["map"] == {"down": True, "mirrored": False, "stretched": False}
    assert described(dataset.isel(y=slice(None, None, -1)))["cuts"]["map"]["down"] is False


@pytest.mark.parametrize(
    ("levels", "attrs", "down"),
    [
        ((1000.0, 500.0), {"units": "hPa"}, False),
        ((500.0, 1000.0), {"units": "hPa"}, True),
        ((5.0, 4000.0), {"units": "m", "positive": "down"}, True),
        ((10.0, 9000.0), {"units": "m"}, False),
        ((0.1, 0.99), {"units": "1", "standard_name": "atmosphere_sigma_coordinate"}, True),
    ],
)
def test_sections_are_the_right_way_up_and_go_from_south_to_north(levels, attrs, down):
    found = described(on_levels(NORTH_FIRST, levels, **attrs))
    assert found["cuts"]["row"] == {"down": down, "mirrored": False, "stretched": True}
    assert found["cuts"]["column"] == {"down": down, "mirrored": True, "stretched": True}
    assert found["levels"][0]["down"] == down


def test_a_field_of_levels_and_one_row_is_a_section_too():
    found = described(on_levels(NORTH_FIRST, (500.0, 1000.0)).isel(lat=0))
    assert found["cuts"] == {"map": {"down": True, "mirrored": False, "stretched": True}}


def test_planes_of_sections_and_profiles():
    dataset = on_levels(NORTH_FIRST)
    values = dataset.t.values
    assert fields.shape(dataset.t.variable, "row") == (3, 2, 4) and fields.shape(dataset.t.variable, "column") == (4, 2, 3)
    assert np.array_equal(fields.read(dataset, "t", (1,), "row"), values[:, 1, :])
    assert np.array_equal(fields.read(dataset, "t", (3,), "column"), values[:, :, 3])
    assert np.array_equal(fields.read(dataset, "t", (1, 3), "profile"), values[:, 1, 3])
    assert fields.read(dataset, "t", (1, 0, 3), "row") == values[0, 1, 3]
    assert fields.read(dataset, "t", (3, 0, 1), "column") == values[0, 1, 3]


def test_the_levels_lie_before_rows_and_columns_also_of_members_and_of_other_orders():
    members = on_levels(NORTH_FIRST).expand_dims(member=5)
    assert np.array_equal(fields.read(members, "t", (4, 1), "row"), members.t.values[4, :, 1, :])
    turned = on_levels(NORTH_FIRST).transpose("lon", "lev", "lat")  # whatever the order is, the last two are the map
    assert np.array_equal(fields.read(turned, "t", (2,), "column"), turned.t.values[:, :, 2])


def test_a_field_without_levels_has_no_section():
    dataset = on_levels(NORTH_FIRST).isel(lev=0)
    assert list(described(dataset)["cuts"]) == ["map"]
    with pytest.raises(ValueError, match="has no levels"):
        fields.read(dataset, "t", (0,), "row")


def test_levels_are_named_by_the_files_axis():
    assert described(on_levels(NORTH_FIRST))["levels"][0]["texts"] == ["1000 hPa", "500 hPa"]
    ocean = on_levels(NORTH_FIRST, (5.0, 40.0), units="m", positive="down")
    assert described(ocean)["levels"][0]["texts"] == ["depth 5 m", "depth 40 m"]
    assert "texts" not in described(on_levels(NORTH_FIRST).drop_vars("lev"))["levels"][0]


def test_reflectivity_has_the_usual_colours():
    dataset = xr.Dataset({"REFL_10CM": (("y", "x"), np.zeros((2, 2)), {"units": "dBZ"}), "T2": (("y", "x"), np.zeros((2, 2)))})
    assert described(dataset, "REFL_10CM")["usual"] == {"palette": "radar", "low": 5, "high": 75}
    assert described(dataset, "T2")["usual"] is None


def test_most_values_lie_between_two_percentiles():
    values = np.linspace(0, 100, 10201, dtype="f4").reshape(101, 101)
    values[0, :3] = np.nan, 1e6, -1e6
    assert fields.most(values) == (pytest.approx(2, abs=0.1), pytest.approx(98, abs=0.1))
    assert np.isnan(fields.most(np.full((2, 2), np.nan))).all()


def test_blocks_need_not_be_square():
    values = np.arange(24.0).reshape(4, 6)
    assert np.array_equal(fields.pool(values, (1, 3), "mean"), values.reshape(4, 2, 3).mean(2))
    assert np.array_equal(fields.pool(values, (4, 1), "max"), values.max(0, keepdims=True))
    assert np.array_equal(fields.pool(values, (1, 2), "nearest"), values[:, 1::2])


def test_places_of_a_file_that_has_only_its_projection():
    pytest.importorskip("cartopy")
    attrs = {
        "grid_mapping_name": "rotated_latitude_longitude",
        "grid_north_pole_latitude": 39.25,
        "grid_north_pole_longitude": -162.0,
    }
    dataset = xr.Dataset(
        {"t": (("rlat", "rlon"), np.zeros((2, 2)), {"grid_mapping": "crs"}), "crs": ((), 0, attrs)},
        coords={"rlat": ("rlat", [-23.375, 0.0], {"units": "degrees"}), "rlon": ("rlon", [-28.375, 0.0], {"units": "degrees"})},
    )
    lat, lon = coasts.positions(dataset)
    assert (lat[0, 0], lon[0, 0]) == (pytest.approx(21.99, abs=0.01), pytest.approx(-10.06, abs=0.01))


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
