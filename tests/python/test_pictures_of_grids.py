"""`advectio plot` of files that are not WRF's: levels by their axis, sections the right way up, CF's grid mappings."""

from __future__ import annotations

import json

import pytest

np = pytest.importorskip("numpy")
xr = pytest.importorskip("xarray")
pytest.importorskip("matplotlib")

from advectio import plotting  # noqa: E402
from advectio.errors import UserError  # noqa: E402
from advectio.pictures import drawing, grids, recipes, values  # noqa: E402
from advectio.pictures.frames import Frame  # noqa: E402

LAT, LON = np.arange(60.0, -61, -20), np.arange(0.0, 360, 45)


def on_levels(name: str, levels, units: str, **attrs):
    """t [level][lat][lon], its value is the number of the level; latitudes from north to south, as of ERA5."""
    number = np.arange(len(levels), dtype="f4")[None, :, None, None] + np.zeros((1, len(levels), len(LAT), len(LON)), "f4")
    return xr.Dataset(
        {"t": (("time", name, "lat", "lon"), number, {"units": "K", "long_name": "Temperature"})},
        coords={
            "time": ("time", [0.0], {"units": "hours since 2020-01-01"}),
            name: (name, np.asarray(levels), {"units": units, **attrs}),
            "lat": ("lat", LAT, {"units": "degrees_north"}),
            "lon": ("lon", LON, {"units": "degrees_east"}),
        },
    )


def a_map(ds, text: str) -> values.Map:
    return values.map_of(recipes.of_option("map", text), Frame.of(ds))


def a_section(ds, text: str) -> values.Section:
    return values.section_of(recipes.of_option("section", text), Frame.of(ds))


# --- levels ----------------------------------------------------------------------------------------------------------------

PRESSURES = ("level", [500, 850, 1000], "millibars")
CHOSEN = [
    # axis, the key, number of the level, what the title says
    (PRESSURES, "", 0, "500 hPa"),
    (PRESSURES, ",level=1", 1, "850 hPa"),
    (PRESSURES, ",level=850 hPa", 1, "850 hPa"),
    (PRESSURES, ",level=850hPa", 1, "850 hPa"),
    (PRESSURES, ",level=85000 Pa", 1, "850 hPa"),
    (PRESSURES, ",level=850", 1, "850 hPa"),
    (("plev", [50000.0, 85000.0], "Pa"), "", 0, "500 hPa"),
    (("plev", [50000.0, 85000.0], "Pa"), ",level=850 mb", 1, "850 hPa"),
    (("height", [10.0, 100.0, 2000.0], "m"), ",level=100 m", 1, "100 m"),
    (("height", [10.0, 100.0, 2000.0], "m"), ",level=2 km", 2, "2000 m"),
    (("height", [10.0, 100.0, 2000.0], "m"), ",level=100", 1, "100 m"),
    (("height", [0.5, 1.5], "km"), ",level=1500m", 1, "1.5 km"),
    (("depth", [0.5, 50.0, 4000.0], "m"), "", 0, "depth 0.5 m"),
    (("depth", [0.5, 50.0, 4000.0], "m"), ",level=0.5", 0, "depth 0.5 m"),
    (("depth", [0.5, 50.0, 4000.0], "m"), ",level=4km", 2, "depth 4000 m"),
    (("theta", [300.0, 350.0], "K"), ",level=350 K", 1, "350 K"),
    (("lev", [1, 2, 3], "1"), ",level=1", 1, "level 1 (2)"),
]


@pytest.mark.parametrize(("axis", "key", "number", "said"), CHOSEN, ids=[f"{case[0][0]}{case[1]}" for case in CHOSEN])
def test_a_level_is_chosen_and_named_by_the_files_own_axis(axis, key, number, said):
    shown = a_map(on_levels(*axis), "t" + key)
    assert (set(shown.values.flat), shown.level) == ({number}, said)


def test_between_levels_the_value_lies_between():
    ds = on_levels("height", [0.0, 1000.0], "m")
    assert a_map(ds, "t,level=250m").values == pytest.approx(0.25 + 0 * a_map(ds, "t").values)
    ocean = on_levels("depth", [0.0, 1000.0], "m", positive="down")
    below = a_map(ocean, "t,level=250 m")
    assert below.level == "depth 250 m" and below.values[0, 0] == pytest.approx(0.25)


def test_a_level_of_the_file_is_there_where_the_next_one_is_missing():
    ds = on_levels(*PRESSURES)
    ds["t"][0, 2] = np.nan  # below the ground
    assert (a_map(ds, "t,level=850 hPa").values == 1).all()


@pytest.mark.parametrize(
    ("key", "words"),
    [("level=700", "or by level: 500, 850, 1000 hPa"), ("level=3 km", "its levels are in hPa"), ("level=300 K", "levels in K")],
)
def test_a_level_that_is_not_there_is_refused_with_those_that_are(key, words):
    with pytest.raises(UserError, match=words):
        a_map(on_levels(*PRESSURES), f"t,{key}")


def test_the_one_level_of_a_field_is_named():
    ds = on_levels(*PRESSURES).isel(level=1)
    assert a_map(ds, "t").level == "850 hPa" == a_map(ds, "t,level=850 hPa").level
    with pytest.raises(UserError, match="no levels but 850 hPa"):
        a_map(ds, "t,level=500 hPa")


def test_hybrid_levels_are_found_by_the_pressure_that_their_formula_gives():
    ds = on_levels("lev", [200.0, 500.0, 990.0], "hPa", positive="down", formula_terms="a: hyam b: hybm p0: P0 ps: PS",
                   standard_name="atmosphere_hybrid_sigma_pressure_coordinate")  # fmt: skip
    ds["hyam"], ds["hybm"] = ("lev", [0.2, 0.3, 0.0]), ("lev", [0.0, 0.2, 0.99])
    ds["P0"], ds["PS"] = ((), 1e5, {"units": "Pa"}), (("time", "lat", "lon"), np.full((1, 7, 8), 6e4, "f4"), {"units": "Pa"})
    # Over a mountain of 600 hPa the levels lie at 200, 420 and 594 hPa.
    assert a_map(ds, "t,level=420 hPa").values[0, 0] == pytest.approx(1, abs=1e-5)
    assert np.isnan(a_map(ds, "t,level=850 hPa").values).all()
    section = a_section(ds, "t,y=2")
    assert section.up[:, 0] == pytest.approx([200, 420, 594]) and section.upside_down
    with pytest.raises(UserError, match="needs the pressure"):
        a_map(ds.drop_vars("PS"), "t,level=420 hPa")


# --- sections ---------------------------------------------------------------------------------------------------------------


def drawn_upwards(ds, tmp_path, monkeypatch) -> bool:
    """The first level is drawn below the last one."""
    from matplotlib.figure import Figure

    seen = []
    monkeypatch.setattr(Figure, "savefig", lambda self, to, **_: (seen.append(self.axes[0].get_ylim()), open(to, "w").close()))
    drawing.draw(recipes.of_option("section", "t,y=2"), Frame.of(ds), str(tmp_path / "a.png"))
    section = a_section(ds, "t,y=2")
    bottom, top = seen[0]
    return bool((section.up[-1, 0] - section.up[0, 0]) * (top - bottom) > 0)


HYBRID = {"standard_name": "atmosphere_hybrid_sigma_pressure_coordinate"}


@pytest.mark.parametrize(
    ("name", "levels", "units", "attrs", "upwards"),
    [
        ("level", [500, 850], "hPa", {}, False),
        ("level", [850, 500], "hPa", {}, True),
        ("plev", [85000.0, 50000.0], "Pa", {"positive": "up"}, True),
        ("depth", [5.0, 4000.0], "m", {"positive": "down"}, False),
        ("deptht", [5.0, 400.0], "m", {}, False),
        ("z", [-4000.0, -5.0], "m", {"positive": "up"}, True),
        ("height", [10.0, 9000.0], "m", {"positive": "up"}, True),
        ("height", [9000.0, 10.0], "m", {"positive": "up"}, False),
        ("lev", [0.1, 0.99], "1", {"standard_name": "atmosphere_sigma_coordinate"}, False),
        ("lev", [200.0, 990.0], "hPa", {"positive": "down", **HYBRID}, False),
        ("lev", [990.0, 200.0], "hPa", {"positive": "down", **HYBRID}, True),
        ("s_rho", [-0.9, -0.1], "1", {"positive": "up", "standard_name": "ocean_s_coordinate_g2"}, True),
        ("layer", [1, 2], "1", {"positive": "down"}, False),
        ("nothing", [1, 2], "1", {}, True),
    ],
)
def test_sections_are_the_right_way_up(name, levels, units, attrs, upwards, tmp_path, monkeypatch):
    assert drawn_upwards(on_levels(name, levels, units, **attrs), tmp_path, monkeypatch) == upwards


def test_a_section_goes_from_south_to_north_also_in_files_from_the_north():
    ds = on_levels(*PRESSURES)
    ds["t"][:] = ds.lat.values[None, None, :, None]
    section = a_section(ds, "t,x=1")
    assert section.along.values.tolist() == LAT[::-1].tolist() == section.values[0].tolist()
    assert section.where == "60.00°S 45.00°E to 60.00°N 45.00°E"


def test_so_does_one_of_a_grid_that_has_its_places_in_two_dimensions(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    ds = on_levels(*PRESSURES)
    lat, lon = np.meshgrid(LAT, LON, indexing="ij")
    ds = ds.drop_vars(["lat", "lon"]).rename(lat="y", lon="x")
    ds["lat"], ds["lon"] = (("y", "x"), lat, {"units": "degrees_north"}), (("y", "x"), lon, {"units": "degrees_east"})
    ds["t"][:] = lat
    section = a_section(ds, "t,x=1")
    assert section.values[0].tolist() == LAT[::-1].tolist() and section.along.values.tolist() == [6, 5, 4, 3, 2, 1, 0]
    seen = []
    monkeypatch.setattr(Figure, "savefig", lambda self, to, **_: (seen.append(self.axes[0].get_xlim()), open(to, "w").close()))
    drawing.draw(recipes.of_option("section", "t,x=1"), Frame.of(ds), str(tmp_path / "a.png"))
    assert seen == [(6, 0)], "the last row of the file, the southern one, is on the left"


# --- grid mappings ----------------------------------------------------------------------------------------------------------

SPHERE = {"earth_radius": 6371229.0}
MAPPINGS = {
    # attributes, x and y, and where the last point of them is on the earth (by Snyder's formulas, unless said otherwise)
    "lambert_conformal_conic": (
        {"standard_parallel": [38.5, 38.5], "longitude_of_central_meridian": 262.5, "latitude_of_projection_origin": 38.5, **SPHERE},
        ([0.0, 500e3], [0.0, 300e3]), (41.051365, -91.539317),
    ),
    "polar_stereographic": (
        {"straight_vertical_longitude_from_pole": -45.0, "latitude_of_projection_origin": 90.0, "standard_parallel": 70.0,
         "semi_major_axis": 6378273.0, "inverse_flattening": 298.279411123064},
        ([0.0, -3850000.0], [0.0, 5850000.0]), (30.9807, 168.35),  # the corner of NSIDC's grid, as its page has it
    ),
    "mercator": (
        {"standard_parallel": 20.0, "longitude_of_projection_origin": -160.0, **SPHERE},
        ([0.0, 1e6], [0.0, 2e6]), (18.793707, -150.429963),
    ),
    "rotated_latitude_longitude": (
        {"grid_north_pole_latitude": 39.25, "grid_north_pole_longitude": -162.0},
        ([0.0, -28.375], [0.0, -23.375]), (21.99, -10.06),  # the corner of EURO-CORDEX, as its list of domains has it
    ),
}  # fmt: skip


def mapped(kind: str, attrs, x, y):
    units = "degrees" if kind.startswith("rotated") else "m"
    return xr.Dataset(
        {
            "t": (("time", "y", "x"), np.zeros((1, len(y), len(x))), {"units": "K", "grid_mapping": "crs"}),
            "crs": ((), np.int32(0), {"grid_mapping_name": kind, **attrs}),
        },
        coords={"time": ("time", [0.0], {"units": "days since 2020-01-01"}), "x": ("x", x, {"units": units}), "y": ("y", y, {"units": units})},
    )  # fmt: skip


@pytest.mark.parametrize("kind", MAPPINGS)
def test_points_of_a_grid_mapping_lie_where_they_are_on_the_earth(kind):
    pytest.importorskip("cartopy")
    attrs, (x, y), (lat, lon) = MAPPINGS[kind]
    ds = mapped(kind, attrs, x, y)
    place = a_map(ds, "t").place
    assert place is not None
    assert (place[0][1, 1], (place[1][1, 1] + 180) % 360 - 180) == (pytest.approx(lat, abs=0.01), pytest.approx(lon, abs=0.01))


@pytest.mark.parametrize("kind", MAPPINGS)
def test_a_map_is_drawn_in_its_own_projection(kind):
    ccrs = pytest.importorskip("cartopy.crs")
    attrs, (x, y), _ = MAPPINGS[kind]
    ds = mapped(kind, attrs, x, y)
    lat, lon = a_map(ds, "t").place
    crs = grids.projection({}, lat, lon, grids.grid_mapping(ds, ("y", "x")))
    points = crs.transform_points(ccrs.PlateCarree(globe=crs.globe), lon, lat)
    # x and y of the file are those of the picture: its grid is straight there.
    assert points[..., 0] == pytest.approx(np.meshgrid(x, y)[0], abs=1e-6 * np.ptp(x))
    assert points[..., 1] == pytest.approx(np.meshgrid(x, y)[1], abs=1e-6 * np.ptp(y))


def test_kilometres_and_a_list_of_coordinates_in_the_attribute():
    pytest.importorskip("cartopy")
    attrs, (x, y), (lat, _) = MAPPINGS["lambert_conformal_conic"]
    ds = mapped("lambert_conformal_conic", attrs, np.asarray(x) / 1000, np.asarray(y) / 1000)
    for name in "xy":
        ds[name].attrs["units"] = "km"
    ds["t"].attrs["grid_mapping"] = "crs: x y"
    assert a_map(ds, "t").place[0][1, 1] == pytest.approx(lat, abs=1e-4)


@pytest.mark.parametrize("change", [{"grid_mapping_name": "unheard_of"}, {"standard_parallel": "north"}])
def test_a_mapping_that_is_not_known_leaves_the_plain_axes(change):
    pytest.importorskip("cartopy")
    attrs, (x, y), _ = MAPPINGS["lambert_conformal_conic"]
    ds = mapped("lambert_conformal_conic", attrs, x, y)
    ds["crs"].attrs.update(change)
    assert a_map(ds, "t").place is None


def test_plain_latitude_and_longitude_stay_so():
    ccrs = pytest.importorskip("cartopy.crs")
    ds = on_levels(*PRESSURES)
    ds["t"].attrs["grid_mapping"] = "crs"
    ds["crs"] = ((), 0, {"grid_mapping_name": "latitude_longitude", "semi_major_axis": 6378137.0, "inverse_flattening": 298.25})
    lat, lon = a_map(ds, "t").place
    assert isinstance(grids.projection({}, lat, lon, grids.grid_mapping(ds, ("lat", "lon"))), ccrs.PlateCarree)


def test_eastward_winds_point_to_the_east_on_any_grid(monkeypatch, tmp_path):
    """Around the pole east is at a right angle to the line from the pole; winds along the grid go along the picture."""
    pytest.importorskip("cartopy")
    from matplotlib.axes import Axes

    attrs, _, _ = MAPPINGS["polar_stereographic"]
    x = np.linspace(-3e6, 3e6, 12)
    ds = mapped("polar_stereographic", attrs, x, x[::-1])
    for name in "uv":
        ds[name] = ds.t.dims, np.full(ds.t.shape, float(name == "u")), {"units": "m s-1", "grid_mapping": "crs"}
    seen = []
    original = Axes.quiver
    monkeypatch.setattr(Axes, "quiver", lambda self, *a, **o: seen.append(a) or original(self, *a, **o))
    plot = recipes.of_option("map", "t,wind=u/v")
    drawing.draw(plot, Frame.of(ds), str(tmp_path / "a.png"))
    along_grid = seen.pop()
    assert along_grid[2] == pytest.approx(1 + 0 * along_grid[2]) and along_grid[3] == pytest.approx(0 * along_grid[3], abs=1e-6)
    ds["u"].attrs["standard_name"], ds["v"].attrs["standard_name"] = "eastward_wind", "northward_wind"
    drawing.draw(plot, Frame.of(ds), str(tmp_path / "b.png"))
    px, py, u, v = seen.pop()
    assert px * u + py * v == pytest.approx(0 * px, abs=1e-2 * 4e6), "at a right angle"
    assert (px * v - py * u > 0).all() and np.hypot(u, v) == pytest.approx(1 + 0 * u), "against the clock, seen from above"


# --- titles -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", ["short", "a long name of a field that takes nearly the whole width of the picture, and more"]
)
def test_titles_are_whole(words, tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    ds = on_levels(*PRESSURES).drop_vars(["lat", "lon"])
    ds["t"].attrs["long_name"] = words
    seen = []

    def measured(self, to, **_):
        self.canvas.draw()
        titles = [title for title in (self.axes[0]._left_title, self.axes[0]._right_title) if title.get_text()]
        seen.append((max(title.get_window_extent().y1 for title in titles), self.bbox.y1))
        open(to, "w").close()

    monkeypatch.setattr(Figure, "savefig", measured)
    for square in (ds.isel(lon=slice(0, 7)), ds):
        drawing.draw(recipes.of_option("map", "t"), Frame.of(square), str(tmp_path / "a.png"))
    assert all(top <= height for top, height in seen), seen


# --- series -----------------------------------------------------------------------------------------------------------------


def test_a_statistic_of_the_domain_is_of_all_levels():
    ds = on_levels(*PRESSURES)
    for at, level, value in (("max", "", 2), ("min", "", 0), ("mean", "", 1), ("max", ",level=1", 1), ("1,1", "", 0)):
        assert values.series_of(recipes.of_option("series", f"t{level}@{at}"), Frame.of(ds))[1] == [pytest.approx(value)]


def test_the_title_of_a_series_says_of_which_levels():
    ds = on_levels(*PRESSURES)
    for text, said in (("t@max", "all levels"), ("t@1,1", "500 hPa"), ("t,level=1@max", "850 hPa")):
        assert values.series_level_text(recipes.of_option("series", text), Frame.of(ds).ds.t, ds) == said


def test_metgrids_pressure_has_no_unit_and_is_in_pascals():
    ds = on_levels("num_metgrid_levels", [0, 1], "1").drop_vars("num_metgrid_levels")
    ds["PRES"] = ds.t.dims, np.broadcast_to(np.array([90000.0, 80000.0])[None, :, None, None], ds.t.shape), {"units": ""}
    assert a_map(ds, "t,level=850 hPa").values[0, 0] == pytest.approx(np.log(900 / 850) / np.log(900 / 800))


def test_a_zarr_store_is_drawn_as_a_file_is(tmp_path, capsys):
    pytest.importorskip("zarr")
    on_levels(*PRESSURES).to_zarr(tmp_path / "era.zarr", zarr_format=3, consolidated=False)
    options = plotting.Options(
        [str(tmp_path / "era.zarr")], ["t,level=850 hPa"], output=str(tmp_path), jobs=1, dpi=50, as_json=True
    )
    assert plotting.plot(options) == 0
    (picture,) = json.loads(capsys.readouterr().out)["pictures"]
    assert (picture["minimum"], picture["time"]) == (1, "2020-01-01T00:00:00")
