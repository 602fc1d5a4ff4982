"""`advectio plot`: which pictures are made, and what is seen in them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
xr = pytest.importorskip("xarray")
image = pytest.importorskip("PIL.Image")
pytest.importorskip("netCDF4")
pytest.importorskip("matplotlib")

import advectio  # noqa: E402
from advectio import plotting  # noqa: E402
from advectio.decoding import decode  # noqa: E402
from advectio.errors import UserError  # noqa: E402
from advectio.pictures import coastlines, drawing, grids, looks, recipes, values  # noqa: E402
from advectio.pictures.frames import Frame  # noqa: E402
from forked import PICTURES, forks  # noqa: E402
from made_up import THREE, real, wrf, wrf_file  # noqa: E402
from shapes import must_fit  # noqa: E402
from xarray.backends import BackendArray  # noqa: E402
from xarray.core import indexing  # noqa: E402


@pytest.fixture
def wrfout(tmp_path) -> Path:
    return wrf_file(tmp_path / "wrfout_d01", THREE)


def drawn(tmp_path: Path, capsys, *files: object, **options) -> plotting.Pictures:
    """What `plot --json` gives; one process, small pictures."""
    options = {"jobs": 1, "dpi": 50, "output": str(tmp_path / "out"), **options}
    assert plotting.plot(plotting.Options(files=[str(f) for f in files], as_json=True, **options)) == 0
    found = json.loads(capsys.readouterr().out.strip().splitlines()[-1] if options.get("live") else capsys.readouterr().out)
    must_fit(found, plotting.Pictures)
    return found


def pixels(path: str | Path) -> np.ndarray:
    return np.asarray(image.open(path).convert("RGB")).astype(int)


def test_a_picture_of_each_frame_named_by_domain_plot_and_time(wrfout, tmp_path, capsys):
    found = drawn(tmp_path, capsys, wrfout, maps=["T2"], sections=["QVAPOR,y=4"], series=["T2@3,4"])
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == sorted(
        [f"d01_{plot}_2005-08-28_{hour}0000.png" for plot in ("T2", "QVAPOR_y4") for hour in (12, 13, 14)]
        + ["d01_T2_x3_y4.png"]
    )
    assert sorted(Path(p["path"]).name for p in found["pictures"]) == names and found["frames"] == 3
    first = found["pictures"][0]
    assert (first["time"], first["units"], first["field"], first["frame"]) == ("2005-08-28T12:00:00", "°C", "T2", 0)
    assert first["maximum"] == pytest.approx(26.85, abs=0.01)
    maps = [p["path"] for p in found["pictures"] if p["name"] == "T2"]
    assert len({image.open(path).size for path in maps}) == 1


def test_pixels_differ_where_the_field_does_and_nowhere_else(wrfout, tmp_path, capsys):
    drawn(tmp_path, capsys, wrfout, maps=["T2,title={name},file={frame}.png", "U10,title=x,file=u{frame}.png"])
    degrees = np.floor(wrf(THREE).T2.values - 273.15)  # the colours have steps of one degree

    def differing(name: str, other: str) -> int:
        different = (pixels(tmp_path / "out" / name) != pixels(tmp_path / "out" / other)).any(axis=2)
        height = len(different)
        return int(different[int(0.06 * height) : int(0.95 * height)].sum())  # without the lines of time and numbers

    a_cell = [differing("0.png", f"{n}.png") / (degrees[0] != degrees[n]).sum() for n in (1, 2)]
    assert a_cell[0] == pytest.approx(a_cell[1], rel=0.03) and a_cell[0] > 300, "pixels of a cell"
    assert differing("u0.png", "u2.png") == 0, "the wind is the same at all times"


def test_the_hot_spot_is_red_where_it_is(tmp_path):
    frame = Frame.of(wrf())
    drawing.draw(recipes.of_option("map", "T2,title=x"), frame, str(tmp_path / "a.png"))
    shown = pixels(tmp_path / "a.png")
    red = (shown[..., 0] > 140) & (shown[..., 1] < 60) & (shown[..., 2] < 70)
    rows, columns = np.nonzero(red[:, : int(0.8 * shown.shape[1])])  # without the colour bar
    assert 0.2 < columns.mean() / shown.shape[1] < 0.4 and 0.4 < rows.mean() / shown.shape[0] < 0.7


def test_colours_are_those_of_all_frames_unless_a_range_is_given(wrfout, tmp_path, capsys, monkeypatch):
    seen = []
    original = drawing.scale_of
    monkeypatch.setattr(drawing, "scale_of", lambda *a: seen.append(original(*a)) or seen[-1])
    drawn(tmp_path, capsys, wrfout, maps=["U10 = U10 * T2 / 290,name=a", "T2,range=10:30,name=b"])
    assert seen[0] == seen[2] == seen[4] and seen[1] == seen[3] == seen[5]
    assert (seen[1].levels[0], seen[1].levels[-1], seen[1].extend) == (10, 30, "neither")
    with_arrow = drawing.scale_of(recipes.of_option("map", "T2,range=10:20"), looks.look_of("T2", "K"), 5, 30)
    assert with_arrow.extend == "both"


def test_the_same_with_several_processes(wrfout, tmp_path, capsys):
    alone = drawn(tmp_path, capsys, wrfout, maps=["T2"], output=str(tmp_path / "one"))
    several = drawn(tmp_path, capsys, wrfout, maps=["T2"], output=str(tmp_path / "two"), jobs=2)
    for a, b in zip(alone["pictures"], several["pictures"], strict=True):
        assert (pixels(a["path"]) == pixels(b["path"])).all()


def test_only_whole_pictures_are_seen(wrfout, tmp_path, capsys, monkeypatch):
    from matplotlib.figure import Figure

    original, shown = Figure.savefig, []

    def watched(self, to, **options):
        shown.append((Path(to).name, sorted(p.name for p in Path(to).parent.glob("*.png"))))
        original(self, to, **options)

    monkeypatch.setattr(Figure, "savefig", watched)
    drawn(tmp_path, capsys, wrfout, maps=["T2,file={frame}.png"])
    assert [names for _, names in shown] == [[], ["0.png"], ["0.png", "1.png"]]
    assert all(name.startswith(".") and name.endswith(".part") for name, _ in shown)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["0.png", "1.png", "2.png"]


def test_a_full_disk_leaves_no_half_picture(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    def fails(self, to, **options):
        Path(to).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", fails)
    with pytest.raises(UserError, match="No space left"):
        drawing.draw(recipes.of_option("map", "T2"), Frame.of(wrf()), str(tmp_path / "a.png"))
    assert list(tmp_path.iterdir()) == []


def test_two_domains_do_not_overwrite_each_other(tmp_path, capsys):
    first, second = wrf_file(tmp_path / "wrfout_d01"), tmp_path / "wrfout_d02"
    ds = wrf()
    ds.attrs["GRID_ID"] = 2
    ds.drop_vars("Times").assign(Times=("Time", np.array(["2005-08-28_12:00:00"], "S19"))).to_netcdf(
        second, unlimited_dims=["Time"]
    )
    assert len(drawn(tmp_path, capsys, first, second, maps=["T2"])["pictures"]) == 2
    with pytest.raises(UserError, match=r"\{source\} or \{frame\}"):
        drawn(tmp_path, capsys, first, shutil.copy(first, tmp_path / "copy"), maps=["T2"])


def test_a_film_has_all_frames(wrfout, tmp_path, capsys):
    found = drawn(tmp_path, capsys, wrfout, maps=["T2"], animate="gif", fps=2)
    film = found["pictures"][-1]
    with image.open(film["path"]) as gif:
        assert (film["kind"], film["frames"], gif.n_frames, gif.info["duration"]) == ("animation", 3, 3, 500)
    assert [p.name for p in (tmp_path / "out").iterdir() if p.name.startswith(".")] == []


def test_mp4_by_ffmpeg_and_a_gif_with_a_word_where_it_is_missing(wrfout, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(plotting, "_ffmpeg", lambda: None)
    plotting.plot(plotting.Options([str(wrfout)], ["T2"], animate="mp4", output=str(tmp_path / "out"), jobs=1, dpi=50))
    assert "ffmpeg is not found" in capsys.readouterr().err and (tmp_path / "out" / "d01_T2.gif").exists()
    ffmpeg = tmp_path / "ffmpeg"
    ffmpeg.write_text('#!/bin/sh\nfor last; do :; done\nls "$(dirname "$last")"/*.png | wc -l > "$last"\n')
    ffmpeg.chmod(0o755)
    monkeypatch.setattr(plotting, "_ffmpeg", lambda: str(ffmpeg))
    drawn(tmp_path, capsys, wrfout, maps=["T2"], animate="mp4")
    assert (tmp_path / "out" / "d01_T2.mp4").read_text().strip() == "3"


def test_a_real_ffmpeg_makes_an_mp4(wrfout, tmp_path, capsys):
    if plotting._ffmpeg() is None:
        pytest.skip("needs ffmpeg, or the Python package imageio-ffmpeg")
    drawn(tmp_path, capsys, wrfout, maps=["T2"], animate="mp4")
    assert (tmp_path / "out" / "d01_T2.mp4").read_bytes()[4:8] == b"ftyp"


# --- live -----------------------------------------------------------------------------------------------------------------


def live_frames(*times: str):
    """Datasets as live readers give them."""
    whole = wrf(times)
    for number in range(len(times)):
        ds = decode(whole.isel(Time=[number]))
        ds.encoding.update(source="/run/wrfout_d01", advectio_frame=number)
        yield ds


def test_live_each_picture_is_there_before_the_next_frame_comes(tmp_path, capsys, monkeypatch):
    there = []

    def frames(pattern, **options):
        assert (pattern, options["policy"]) == ("wrfout_d01*", "wait")
        for ds in live_frames(*THREE):
            yield ds
            there.append(sorted(p.name for p in (tmp_path / "out").iterdir()))

    monkeypatch.setattr(advectio, "frames", frames, raising=False)
    found = drawn(
        tmp_path,
        capsys,
        live="wrfout_d01*",
        policy="wait",
        maps=["T2,file={frame}.png"],
        series=["T2@3,4,file=s.png"],
        animate="gif",
    )
    assert there == [["0.png", "s.png"], ["0.png", "1.png", "s.png"], ["0.png", "1.png", "2.png", "s.png"]]
    series = next(p for p in found["pictures"] if p["kind"] == "series")
    assert series["frames"] == 3 and found["frames"] == 3
    assert image.open(tmp_path / "out" / "d01_T2.gif").n_frames == 3


def test_live_is_the_same_picture_as_from_the_file(wrfout, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(advectio, "frames", lambda *_, **__: live_frames(*THREE), raising=False)
    drawn(tmp_path, capsys, live="*", maps=["T2,range=15:30,file={frame}.png"], output=str(tmp_path / "live"))
    drawn(tmp_path, capsys, wrfout, maps=["T2,range=15:30,file={frame}.png"], output=str(tmp_path / "after"))
    for number in range(3):
        assert (pixels(tmp_path / "live" / f"{number}.png") == pixels(tmp_path / "after" / f"{number}.png")).all()


def test_live_ends_after_so_many_frames_and_on_ctrl_c_with_its_films(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(advectio, "frames", lambda *_, **__: live_frames(*THREE), raising=False)
    assert drawn(tmp_path, capsys, live="*", maps=["T2"], frames_max=2)["frames"] == 2

    def interrupted(*_, **__):
        yield from live_frames(*THREE[:2])
        raise KeyboardInterrupt

    monkeypatch.setattr(advectio, "frames", interrupted, raising=False)
    options = plotting.Options(live="*", maps=["T2"], animate="gif", output=str(tmp_path / "c"), dpi=50)
    assert plotting.plot(options) == plotting.INTERRUPTED
    assert image.open(tmp_path / "c" / "d01_T2.gif").n_frames == 2


def test_live_a_frame_that_was_let_go_is_left_out_with_a_word(tmp_path, capsys, monkeypatch):
    class Gone(BackendArray):
        shape, dtype = (1, 10, 12), np.dtype("f4")

        def __getitem__(self, key):
            raise OSError("frame 1 of wrfout_d01 has been let go")

    def frames(*_, **__):
        for number, ds in enumerate(live_frames(*THREE)):
            if number == 1:
                ds["T2"] = xr.Variable(ds.T2.dims, indexing.LazilyIndexedArray(Gone()), ds.T2.attrs)
            yield ds

    monkeypatch.setattr(advectio, "frames", frames, raising=False)
    options = plotting.Options(live="*", maps=["T2,file={frame}.png"], output=str(tmp_path / "out"), dpi=50)
    assert plotting.plot(options) == 0
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["0.png", "2.png"]
    assert "a frame is left out: frame 1 of wrfout_d01 has been let go" in capsys.readouterr().err


def test_a_damaged_file_is_one_line(tmp_path):
    path = tmp_path / "wrfout"
    ds = wrf(nx=60, ny=60)
    ds["noise"] = (ds.T2.dims, np.random.default_rng(1).normal(size=ds.T2.shape).astype("f4"))
    ds.drop_vars("Times").to_netcdf(
        path, encoding={"noise": {"fletcher32": True, "chunksizes": (1, 60, 60)}}, unlimited_dims=["Time"]
    )
    whole = path.read_bytes()
    at = whole.find(ds.noise.values.tobytes()[:40])
    assert at > 0, "where the chunk of noise lies in the file"
    path.write_bytes(whole[:at] + b"\xff" * 200 + whole[at + 200 :])
    with pytest.raises(UserError, match="wrfout: cannot be read: ") as caught:
        plotting.plot(plotting.Options([str(path)], ["noise"], output=str(tmp_path / "o"), jobs=1))
    assert caught.value.exit_code == 1


# --- what is shown ---------------------------------------------------------------------------------------------------------


def shown(kind: str, text: str, **options):
    return {"map": values.map_of, "section": values.section_of, "series": values.series_of}[kind](
        recipes.of_option(kind, text), Frame.of(wrf(**options))
    )


def test_levels():
    ds = decode(wrf())
    np.testing.assert_allclose(shown("map", "QVAPOR").values, ds.QVAPOR[0, 0] * 1000)
    np.testing.assert_allclose(shown("map", "QVAPOR,level=max").values, ds.QVAPOR[0].max("bottom_top") * 1000)
    # Levels of the made-up file: 1000, 880, 760 hPa, … at 0.5, 1.5, 2.5 km.
    np.testing.assert_allclose(shown("map", "QVAPOR,level=880hPa").values, ds.QVAPOR[0, 1] * 1000, rtol=1e-5)
    np.testing.assert_allclose(shown("map", "QVAPOR,level=2km").values, 500 * (ds.QVAPOR[0, 1] + ds.QVAPOR[0, 2]), rtol=1e-5)
    assert np.isnan(shown("map", "QVAPOR,level=100m").values).all()
    assert shown("map", "W,level=3km").values == pytest.approx(float(ds.W[0, 3, 0, 0]), rel=1e-4)


def test_a_section_is_in_kilometres_above_the_sea():
    section = shown("section", "QVAPOR,y=4")
    assert section.up[1:, 0] == pytest.approx([0.5, 1.5, 2.5, 3.5, 4.5, 5.5], rel=1e-5) and section.ground == pytest.approx(
        [0] * 12
    )
    assert section.along.values[0] == -55 and section.values.shape == (7, 12)
    assert section.values[1].argmax() == 3 == section.values[0].argmax()


def test_a_section_along_a_line_of_places():
    section = shown("section", "QVAPOR,from=25.36/-90,to=25.36/-88.9")
    np.testing.assert_allclose(section.values, shown("section", "QVAPOR,y=4").values, rtol=1e-6)
    assert section.along.values[-1] == pytest.approx(1.1 * 111.2 * np.cos(np.deg2rad(25.36)), rel=0.01)


def test_series_of_points_and_of_the_domain():
    ds = decode(wrf())
    assert shown("series", "T2@3,4")[1] == [pytest.approx(26.85, abs=1e-3)]
    assert shown("series", "T2@lat=25.36,lon=-89.7")[1] == [pytest.approx(26.85, abs=1e-3)]
    assert shown("series", "T2@mean")[1] == [pytest.approx(float(ds.T2.mean()) - 273.15, abs=1e-3)]


WRONG = {
    ("map", "T22"): "there is no field T22; did you mean T2?",
    ("map", "Times"): "holds no numbers",
    ("map", "XTIME"): "holds no numbers",
    ("map", "QVAPOR,level=9"): "level 9 of QVAPOR, which has 6: 0 to 5",
    ("map", "T2,level=3"): "T2 has no levels",
    ("map", "T2,units=hPa"): "is in K, and cannot be shown in hPa",
    ("section", "T2,y=3"): "a section needs levels",
    ("section", "QVAPOR,y=30"): "y=30, and QVAPOR has 10 points there: 0 to 9",
    ("section", "QVAPOR,from=50/-90,to=26/-89"): "lies outside of the domain",
    ("series", "T2@30,4"): "lies outside of T2, which has 12 by 10 points",
}


@pytest.mark.parametrize("what", WRONG, ids=" ".join)
def test_what_cannot_be_shown_is_said_with_the_option(what):
    with pytest.raises(UserError) as caught:
        shown(*what)
    assert WRONG[what] in str(caught.value) and str(caught.value).startswith(f"--{what[0]} '{what[1]}'")


def test_times_in_titles():
    frame = Frame.of(wrf(THREE).isel(Time=[1]))
    assert frame.time_text == "2005-08-28 13:00 (+1 h)"
    ideal = Frame.of(wrf(("0001-01-01_00:00:00", "0001-01-01_00:20:00"), ideal=True).isel(Time=[1]))
    assert ideal.time_text == "0001-01-01 00:20 (+0:20 h)"
    assert drawing.file_name(recipes.of_option("map", "T2"), ideal) == "d01_T2_0001-01-01_002000.png"
    assert drawing.file_name(recipes.of_option("map", "T2,file={source}_{time:%H}h.png"), frame) == "_13h.png"


def test_an_idealised_run_has_kilometres_instead_of_a_place():
    assert shown("map", "T2").place is not None
    assert shown("map", "T2", ideal=True).place is None


def test_longitudes_go_on_over_the_date_line():
    ds = wrf()
    ds["XLONG"] = (ds.XLONG + 269.5 + 180) % 360 - 180
    _, longitude = grids.places(decode(ds), ("south_north", "west_east"))
    assert np.diff(longitude, axis=1) == pytest.approx(0.1, abs=1e-3)


# --- maps -----------------------------------------------------------------------------------------------------------------


def test_coastlines_are_there_without_a_download():
    gulf = (-98.0, -80.0, 18.0, 31.0)
    coasts = coastlines.lines_within(gulf, borders=False)
    galveston = min(float(np.hypot(line[:, 0] + 94.8, line[:, 1] - 29.3).min()) for line in coasts)
    assert galveston < 0.3, "degrees from the coast of Texas"
    assert coastlines.lines_within(gulf, borders=True)
    assert coastlines.lines_within((-150.0, -149.0, 30.0, 31.0), borders=False) == [], "open sea"
    pacific = coastlines.lines_within((177.0, 183.0, -20.0, -15.0), borders=False)
    assert pacific and all(line[:, 0].max() >= 177 for line in pacific)
    for line in coastlines.lines_within((-360, 360, -90, 90), borders=False):
        on_seam = (np.abs(line[:, 0]) % 360 > 179.99) & (np.abs(line[:, 0]) % 360 < 180.01)
        assert not (on_seam[:-1] & on_seam[1:]).any(), "the cut of the map is no coast"


def test_a_coast_is_drawn_with_cartopy_and_without(tmp_path, monkeypatch):
    ds = wrf(nx=30, ny=30)
    ds["XLAT"], ds["XLONG"] = ds.XLAT + 3.5, ds.XLONG - 1.0  # Louisiana
    ds["T2"] = 0 * ds.T2 + 290
    frame = Frame.of(ds)
    plot = recipes.of_option("map", "T2,title=x")
    ways = [False] + ([True] if drawing.cartopy_there() else [])
    for way in ways:
        monkeypatch.setattr(drawing, "cartopy_there", lambda way=way: way)
        drawing.draw(plot, frame, str(tmp_path / "with.png"))
        with monkeypatch.context() as bare:
            bare.setattr(coastlines, "lines_within", lambda *_, **__: [])
            drawing.draw(plot, frame, str(tmp_path / "without.png"))
        assert (pixels(tmp_path / "with.png") != pixels(tmp_path / "without.png")).any(axis=2).sum() > 200


def world_of(west: float, pressure_units: str = "hPa") -> xr.Dataset:
    """Uniform fields of the whole world, from north to south, and levels of pressure from the top down."""
    latitude, longitude = np.arange(90.0, -91, -5), west + np.arange(0.0, 360, 5)
    levels = np.array([500.0, 850.0]) * (100 if pressure_units == "Pa" else 1)
    t = np.array([260.0, 290.0])[None, :, None, None] + np.zeros((1, 2, latitude.size, longitude.size))
    return xr.Dataset(
        {"t": (("time", "level", "latitude", "longitude"), t, {"units": "K"})},
        coords={
            "time": ("time", [0.0], {"units": "hours since 2000-01-01"}),
            "level": ("level", levels, {"units": pressure_units}),
            "latitude": ("latitude", latitude, {"units": "degrees_north"}),
            "longitude": ("longitude", longitude, {"units": "degrees_east"}),
        },
    )


@pytest.mark.parametrize("west", [0, -180])
def test_no_coast_goes_across_a_map_of_the_world(west, tmp_path, monkeypatch):
    if not drawing.cartopy_there():
        pytest.skip("no Cartopy here")
    plot = recipes.of_option("map", "t,title=x")
    drawing.draw(plot, Frame.of(world_of(west)), str(tmp_path / "world.png"))
    with_coasts = pixels(tmp_path / "world.png")
    monkeypatch.setattr(coastlines, "lines_within", lambda *_, **__: [])
    drawing.draw(plot, Frame.of(world_of(west)), str(tmp_path / "bare.png"))
    drawn_over = (with_coasts != pixels(tmp_path / "bare.png")).any(axis=2)
    assert 0.1 < drawn_over.mean(axis=1).max() < 0.75, "Antarctica is the longest coast, and no line goes from edge to edge"


@pytest.mark.parametrize("units", ["hPa", "millibars", "Pa"])
def test_high_pressure_is_at_the_bottom_of_a_section(units):
    frame = Frame.of(world_of(0, units))
    section = values.section_of(recipes.of_option("section", "t,y=9"), frame)
    assert section.upside_down and section.up_label == "pressure (hPa)"
    assert section.up[:, 0].tolist() == [500, 850] and section.values[:, 0].tolist() == [260, 290]
    between = values.map_of(recipes.of_option("map", "t,level=850hPa"), frame)
    assert between.values == pytest.approx(290)


def test_what_counts_downwards_is_drawn_so():
    ds = world_of(0).rename(level="layer").assign_coords(layer=("layer", [1.0, 2.0], {"positive": "down"}))
    assert values.section_of(recipes.of_option("section", "t,y=9"), Frame.of(ds)).upside_down


def test_it_is_said_once_that_cartopy_is_missing(wrfout, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(drawing, "cartopy_there", lambda: False)
    options = plotting.Options([str(wrfout)], ["T2", "U10"], output=str(tmp_path / "o"), jobs=1, dpi=50)
    assert plotting.plot(options) == 0
    assert capsys.readouterr().err.count("Cartopy is not installed") == 1


@pytest.mark.parametrize("kind", [1, 2, 3, 6])
def test_projections_of_wrf_give_a_regular_grid(kind):
    ccrs = pytest.importorskip("cartopy.crs")
    ds = wrf()
    ds.attrs["MAP_PROJ"] = kind
    latitude, longitude = grids.places(decode(ds), ("south_north", "west_east"))
    projection = grids.projection(ds.attrs, latitude, longitude)
    assert projection.x_limits[0] < projection.x_limits[1]
    points = projection.transform_points(ccrs.PlateCarree(globe=projection.globe), longitude, latitude)
    assert np.isfinite(points[..., :2]).all()


def test_a_real_lambert_grid_is_regular_in_its_projection():
    ccrs = pytest.importorskip("cartopy.crs")
    with xr.open_dataset(real("wrf/wrf_tip_d1.nc"), decode_cf=False) as raw:
        ds = decode(raw)
        latitude, longitude = grids.places(ds, ("south_north", "west_east"))
        points = grids.projection(ds.attrs, latitude, longitude).transform_points(
            ccrs.PlateCarree(globe=grids.projection(ds.attrs, latitude, longitude).globe), longitude, latitude
        )
    assert np.diff(points[..., 0], axis=1) == pytest.approx(30000, rel=1e-3)
    assert np.diff(points[..., 1], axis=0) == pytest.approx(30000, rel=1e-3)


def test_arrows_point_where_the_wind_goes():
    import matplotlib.pyplot as plt

    _, axes = plt.subplots()
    one, none = np.ones((3, 3)), np.zeros((3, 3))
    x, y = np.meshgrid(np.arange(3.0), np.arange(3.0))
    turned = drawing._turned(axes, one, none, -y, x)  # a grid turned by 90 degrees
    np.testing.assert_allclose(turned[0], 0, atol=1e-12)
    np.testing.assert_allclose(turned[1], 1)
    plt.close("all")


@pytest.mark.parametrize("wind", ["uniform", "a jet"])
def test_usual_arrows_of_one_row_stay_apart(wind, tmp_path, monkeypatch):
    from matplotlib.axes import Axes

    original, seen = Axes.quiver, []

    def watched(axes, x, y, u, v, **options):
        seen.append((x, u, options["scale"]))
        return original(axes, x, y, u, v, **options)

    monkeypatch.setattr(Axes, "quiver", watched)
    ds = wrf(nx=80, ny=80, ideal=True)
    ds["U10"][:] = 14.7
    ds["V10"][:] = 0
    if wind == "a jet":
        ds["U10"][:, 30:32] = 60
    drawing.draw(recipes.of_option("map", "T2,wind=U10/V10"), Frame.of(ds), str(tmp_path / "a.png"))
    ((x, u, scale),) = seen
    usual = np.median(u) / scale  # of the width of the map, as matplotlib has it
    assert 0.5 / x.shape[1] < usual < 1 / x.shape[1]


@pytest.mark.parametrize("field", ["W", "column_max(W)"])
def test_no_line_wanders_where_nothing_goes_up(field, tmp_path, monkeypatch):
    from matplotlib.axes import Axes

    original, seen = Axes.contour, []

    def watched(axes, *arguments, **options):
        seen.extend(options["levels"])
        return original(axes, *arguments, **options)

    monkeypatch.setattr(Axes, "contour", watched)
    ds = wrf(nx=40, ny=40, ideal=True)
    shape = [ds.sizes[d] for d in ("Time", "bottom_top_stag", "south_north", "west_east")]
    noise = np.random.default_rng(1).normal(0, 1e-3, shape).astype("f4")
    noise[:, :4, 20:24, 20:24] = 30
    ds["W"] = (("Time", "bottom_top_stag", "south_north", "west_east"), noise, {"units": "m s-1"})
    plot = recipes.of_option("map", f"T2,contours={field}")
    drawing.draw(plot, Frame.of(ds), str(tmp_path / "a.png"))
    assert len(seen) > 2 and 0 not in seen


# --- palettes --------------------------------------------------------------------------------------------------------------


def lightness(colours: np.ndarray) -> np.ndarray:
    """L* of CIELAB."""
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    y = linear @ [0.2126, 0.7152, 0.0722]
    return np.where(y > 0.008856, 116 * np.cbrt(y) - 16, 903.3 * y)


@pytest.mark.parametrize("name", sorted({look.colour_map for _, look in looks._KNOWN} - {"radar"} | {looks.Look().colour_map}))
def test_default_palettes_can_be_read_by_lightness_alone(name):
    steps = np.sign(np.round(np.diff(lightness(looks.palette(name)(np.linspace(0, 1, 24))[:, :3])), 2))
    turns = int((np.diff(steps[steps != 0]) != 0).sum())
    assert turns <= 1, "lightness goes one way, or both ways from the middle"
    if turns == 1:
        turn = int(np.flatnonzero(np.diff(steps[steps != 0]))[0])
        assert 9 <= turn <= 13 and steps[0] > 0, "the middle is the lightest"


def test_a_palette_that_is_not_there_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean radar"):
        looks.palette("radr")
    assert looks.palette("radar").N == 14


def test_nothing_has_the_middle_colour_of_a_symmetric_field():
    levels = looks.nice_levels(-3, 20, looks.look_of("W", "m s-1"))
    assert levels[0] == -levels[-1] and 0 not in levels


def test_a_known_name_with_another_unit_keeps_no_steps():
    assert looks.look_of("REFL_10CM", "dBZ").levels is not None
    assert looks.look_of("REFL_10CM", "mm6 m-3").levels is None


# --- the command -----------------------------------------------------------------------------------------------------------


def command(*arguments: object, cwd: Path) -> subprocess.CompletedProcess:
    return forks(PICTURES).run(["plot", *map(str, arguments)], env=os.environ, cwd=cwd, timeout_s=120)


def test_the_command_with_a_recipe(wrfout, tmp_path):
    (tmp_path / "r.yaml").write_text("plots:\n  - {kind: map, field: T2, file: 'a/{frame}.png', dpi: 50}\n")
    done = command("r.yaml", wrfout, "--map", "U10", "-o", "o", "-j", 1, "--dpi", 40, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "map T2: 3 pictures, 16.85 to 26.85 °C: o/a/0.png" in done.stdout and "6 pictures of 3 frames in o" in done.stdout
    assert image.open(tmp_path / "o" / "a" / "2.png").width == 320


MISTAKES = {
    ("--map", "T2"): "of which files?",
    ("{f}",): "nothing to draw",
    ("{f}", "--map", "T3", "-j", "1"): "did you mean T2?",
    ("absent*", "--map", "T2"): "absent*: there is no such file, and none matches",
    ("{d}", "--map", "T2"): "is a directory",
    ("{t}", "--map", "T2"): "is no netCDF file",
    ("{f}", "--map", "T2", "--map", "T2"): "there is a plot T2 already",
    ("{f}", "--map", "T2", "--live", "x"): "not both",
    ("--live", "x", "--map", "T2", "--policy", "newest"): "--policy: newest",
    ("{f}", "--map", "T2", "--contact", "advectio.contact"): "--contact names the run that --live follows",
    ("--live", "x", "--map", "T2", "--run", "r", "--contact", "c"): "either run=, of this node, or contact=, of another one",
    ("absent.yaml",): "absent.yaml: No such file",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_mistakes_are_one_line(wrfout, tmp_path, arguments):
    (tmp_path / "text").write_text("hello")
    places = {"f": wrfout, "d": tmp_path, "t": tmp_path / "text"}
    done = command(*(each.format(**places) for each in arguments), cwd=tmp_path)
    lines = [line for line in done.stderr.splitlines() if "warning" not in line]
    assert done.returncode in (1, 2) and not done.stdout, done.stderr
    assert len(lines) == 1 and lines[0].startswith("advectio: error: ") and MISTAKES[arguments] in lines[0], done.stderr
    assert not (tmp_path / "plots").exists()


@pytest.mark.parametrize("missing", ["matplotlib", "xarray", "yaml"])
def test_a_missing_package_is_one_line_that_says_what_to_install(wrfout, tmp_path, missing):
    (tmp_path / "r.yaml").write_text("plots: [{kind: map, field: T2}]\n")
    code = f"import sys; sys.modules[{missing!r}] = None; sys.argv = ['advectio', 'plot', 'r.yaml', {str(wrfout)!r}]\nfrom advectio.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "pip install 'advectio[plot]'" in done.stderr, done.stderr


def test_import_and_help_bring_no_packages_of_pictures():
    code = (
        "import sys, advectio, advectio.cli, advectio.plotting, advectio.decoding\n"
        "heavy = {'numpy', 'xarray', 'matplotlib', 'yaml', 'netCDF4', 'cartopy', 'PIL'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- real output ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("wrf/wrfout_d01_wrf381_4times.nc", {"maps": ["T2,wind=U10/V10", "QVAPOR,level=850hPa,contours=PSFC"], "sections": ["W,y=20"]}),
        ("wrf/wrf_d01_allvars_cropped.nc", {"sections": ["T,x=5", "U,y=4"], "series": ["T2@lat=30,lon=87"]}),
        ("wrf471/serial/wrfout_d01_4frames.nc", {"maps": ["W,level=10", "v = destagger(V),level=3km"], "series": ["W@max,level=max"]}),
        ("metgrid/met_em.d01.2005-08-28_12_00_00.nc", {"maps": ["TT,level=4"], "sections": ["RH,y=20"]}),
        ("scale/history.pe000000.nc", {"sections": ["QHYD,x=0,top=15"], "series": ["QHYD@max,level=max"]}),
        ("nemo/mesh_mask.nc", {"maps": ["gdept_0,level=2"], "sections": ["gdept_0,y=10"]}),
    ],
)  # fmt: skip
def test_real_output_is_drawn(name, options, tmp_path, capsys):
    found = drawn(tmp_path, capsys, real(name), **options)
    assert len(found["pictures"]) >= found["frames"]
    for picture in found["pictures"]:
        assert len(np.unique(pixels(picture["path"]).reshape(-1, 3), axis=0)) > 10, picture["path"]


def test_a_map_of_one_row_says_what_to_do_instead(tmp_path, capsys):
    with pytest.raises(UserError, match="--section PT,x=0"):
        drawn(tmp_path, capsys, real("scale/history.pe000000.nc"), maps=["PT"])


def test_the_page_has_every_key_and_every_function():
    from advectio.pictures.expressions import FUNCTIONS

    page = (Path(__file__).parents[2] / "docs" / "plotting.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    for key in (*recipes.PLOT_KEYS, *recipes.RECIPE_KEYS):
        assert any(f"`{key}`" in row.split("|")[1] for row in rows), key
    words = set(page.replace("`", " ").replace("(", " ").split())
    assert set(FUNCTIONS) <= words, set(FUNCTIONS) - words
    assert set(recipes.PLACEHOLDERS) <= words


def test_the_example_after_the_run_draws_each_frame(tmp_path):
    ds = wrf(THREE).rename(QVAPOR="REFL_10CM")
    ds = ds.drop_vars("Times").assign(Times=("Time", np.array(THREE, "S19")))
    ds.to_netcdf(tmp_path / "squall_d01", unlimited_dims=["Time"])
    example = Path(__file__).parents[2] / "examples" / "insitu" / "after.py"
    subprocess.run([sys.executable, str(example), "squall_d01", "out"], cwd=tmp_path, check=True, timeout=120)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [f"2005-08-28_{hour}0000.png" for hour in (12, 13, 14)]


def test_the_examples_differ_in_where_the_frames_come_from_only(tmp_path, monkeypatch):
    folder = Path(__file__).parents[2] / "examples" / "insitu"
    monkeypatch.setattr(advectio, "frames", lambda pattern, policy: live_frames(*THREE[:2]), raising=False)
    monkeypatch.setattr(sys, "argv", ["live.py", "squall_d01*", str(tmp_path / "out")])
    source = (folder / "live.py").read_text().replace("REFL_10CM", "QVAPOR")
    exec(compile(source, "live.py", "exec"), {"__name__": "__main__"})
    assert len(list((tmp_path / "out").iterdir())) == 2
    body = [(folder / name).read_text().partition("frame = ")[2].splitlines()[1:] for name in ("after.py", "live.py")]
    assert body[0] == body[1] and len(body[0]) > 12
