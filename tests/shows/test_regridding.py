"""Other horizontal grids by weights that exist: `advectio process` beside cdo's remap."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from running import Result, run_plainly
from test_process import done, refused, values, worker  # noqa: F401  (fixtures)

Shared = Callable[[str], Path]
WRF = "wrf/wrfout_d01_wrf381_4times.nc"


@pytest.fixture(scope="module")
def globe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four records of a global field of three levels, with a hole in one; a mask without time; rows of 4 degrees."""
    path = tmp_path_factory.mktemp("regridding") / "globe.nc"
    with netCDF4.Dataset(path, "w") as file:
        for name, length in (("time", None), ("lev", 3), ("lat", 45), ("lon", 90)):
            file.createDimension(name, length)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "hours since 2001-01-01"
        time[:] = 6.0 * np.arange(4)
        for name, units, at in (
            ("lat", "degrees_north", np.linspace(-88, 88, 45)),
            ("lon", "degrees_east", 4.0 * np.arange(90)),
        ):
            variable = file.createVariable(name, "f8", (name,))
            variable.units = units
            variable[:] = at
        random = np.random.default_rng(1)
        t = file.createVariable("T", "f4", ("time", "lev", "lat", "lon"), zlib=True, chunksizes=(2, 2, 20, 90))
        t.units = "K"
        t[:] = 250 + random.normal(0, 20, (4, 3, 45, 90))
        mask = file.createVariable("M", "f4", ("lat", "lon"))
        mask[:] = random.random((45, 90))
        file.createVariable("zonal", "f4", ("time", "lat"))[:] = random.random((4, 45))
        file.createVariable("profile", "f4", ("time", "lev"))[:] = random.random((4, 3))
    return path


@pytest.fixture
def cdo(tool: Callable[[str], str], tmp_path: Path) -> Callable[..., Path]:
    def run(*words: str | Path, to: str) -> Path:
        made = run_plainly([tool("cdo"), "-s", "-f", "nc4", *words, to], tmp_path)
        assert made.code == 0, made.said
        return tmp_path / to

    return run


def test_it_is_what_cdo_makes(globe: Path, worker: Callable[..., Result], cdo: Callable[..., Path], tmp_path: Path):  # noqa: F811
    grids = {"genbil": "r72x36", "gencon": "r20x10", "gennn": "r50x25"}
    for operator, grid in grids.items():
        cdo(f"-{operator},{grid}", "-selname,T", globe, to=f"{operator}.weights.nc")
    rules = [f"path: {operator}.nc, regrid: {operator}.weights.nc" for operator in grids]
    rules += ["path: daily.nc, variables: [T], regrid: gencon.weights.nc, mean: 1d, closed: left"]
    rules += ['path: made.nc, expressions: {X: "mean(T, lev) - 273.15"}, regrid: genbil.weights.nc']
    done(worker(rules, globe))
    out = tmp_path / "out"
    for operator, grid in grids.items():
        theirs = cdo(f"-remap,{grid},{operator}.weights.nc", "-selname,T,M", globe, to=f"{operator}.nc")
        for name in ("T", "M"):
            np.testing.assert_array_equal(values(out / f"{operator}.nc", name), values(theirs, name), err_msg=operator)
        for name in ("lat", "lon"):
            np.testing.assert_allclose(values(out / f"{operator}.nc", name), values(theirs, name), rtol=1e-12)
    np.testing.assert_array_max_ulp(
        values(out / "daily.nc", "T").astype("f4"),
        values(cdo("-daymean", "gencon.nc", to="daily.nc"), "T").astype("f4"),
        maxulp=4,  # cdo rounds to float32 in between
    )
    with netCDF4.Dataset(out / "genbil.nc") as file:
        assert file["T"].dimensions == ("time", "lev", "lat", "lon") and file["M"].dimensions == ("lat", "lon")
        assert file["T"].regridding == "weights of genbil.weights.nc (Bilinear remapping)" and file["T"].units == "K"
        assert (file["lat"].standard_name, file["lon"].units) == ("latitude", "degrees_east")
        assert file["T"].filters()["zlib"] and file["T"].chunking() == [2, 2, 36, 72]
        assert "zonal" not in file.variables and "profile" in file.variables
    with netCDF4.Dataset(out / "made.nc") as file:
        assert file["X"].shape == (4, 36, 72)


def test_wrf_comes_to_a_regular_grid(shared: Shared, worker: Callable[..., Result], cdo: Callable[..., Path], tmp_path: Path):  # noqa: F811
    source = shared(WRF)
    (tmp_path / "grid.txt").write_text(
        "gridtype = lonlat\nxsize = 40\nysize = 30\nxfirst = -92\nxinc = 0.12\nyfirst = 21.5\nyinc = 0.15\n"
    )
    cdo("-genbil,grid.txt", "-selname,T2", source, to="weights.nc")
    theirs = values(cdo("-remap,grid.txt,weights.nc", "-selname,T2,U10", source, to="cdo.nc"), "T2")
    rules = [
        "path: a.nc, variables: [T2, umet10, HGT], regrid: weights.nc",
        "path: b.nc, variables: [U, tk], levels: {pressure: [900 hPa], preset: wrf}, regrid: weights.nc, mean: all",
    ]
    with netCDF4.Dataset(source) as file:
        if "COSALPHA" not in file.variables:
            rules[0] = rules[0].replace("umet10, ", "")
    done(worker(rules, source))
    ours = values(tmp_path / "out" / "a.nc", "T2")
    np.testing.assert_array_equal(ours, theirs)
    assert np.isnan(ours).any() and np.isfinite(ours).any(), "some of the grid lies outside of the domain"
    with netCDF4.Dataset(tmp_path / "out" / "a.nc") as file:
        assert file["T2"].dimensions == ("Time", "lat", "lon") and "XLAT" not in file.variables
        assert "coordinates" not in file["T2"].ncattrs() and "stagger" not in file["T2"].ncattrs()
    with netCDF4.Dataset(tmp_path / "out" / "b.nc") as file:
        assert file["U"].dimensions == ("Time", "plev", "lat", "lon") and np.ma.count(file["U"][:]) > 0


def as_esmf(scrip: Path, to: Path, grid: bool) -> None:
    with netCDF4.Dataset(scrip) as source, netCDF4.Dataset(to, "w") as file:
        file.createDimension("n_s", len(source.dimensions["num_links"]))
        for name, old in (("S", "remap_matrix"), ("row", "dst_address"), ("col", "src_address")):
            data = source[old][...].reshape(-1)
            file.createVariable(name, data.dtype, ("n_s",))[:] = data
        if not grid:
            return
        file.createDimension("n_a", len(source.dimensions["src_grid_size"]))
        file.createDimension("n_b", len(source.dimensions["dst_grid_size"]))
        file.createDimension("rank", 2)
        for name in ("src_grid_dims", "dst_grid_dims"):
            file.createVariable(name, "i4", ("rank",))[:] = source[name][:]
        for name, old in (("yc_b", "dst_grid_center_lat"), ("xc_b", "dst_grid_center_lon")):
            variable = file.createVariable(name, "f8", ("n_b",))
            variable.units = "degrees"
            variable[:] = np.round(np.rad2deg(source[old][:]), 9)


def test_weights_of_esmf_and_of_xesmf_give_the_same(
    globe: Path,
    worker: Callable[..., Result],  # noqa: F811
    cdo: Callable[..., Path],
    tmp_path: Path,
):
    cdo("-genbil,r72x36", "-selname,T", globe, to="scrip.nc")
    as_esmf(tmp_path / "scrip.nc", tmp_path / "esmf.nc", grid=True)
    as_esmf(tmp_path / "scrip.nc", tmp_path / "xesmf.nc", grid=False)
    cdo("-topo,r72x36", to="grid.nc")
    rules = ["scrip.nc", "esmf.nc", "{weights: xesmf.nc, grid: grid.nc}"]
    done(worker([f"path: {i}.nc, variables: [T], regrid: {rule}" for i, rule in enumerate(rules)], globe))
    for name in ("T", "lat", "lon"):
        first, *others = (values(tmp_path / "out" / f"{i}.nc", name) for i in range(3))
        for other in others:
            np.testing.assert_array_equal(other, first)


def test_places_have_the_values_of_their_cells(shared: Shared, worker: Callable[..., Result], tmp_path: Path):  # noqa: F811
    source = shared(WRF)
    places = {"Here": (23.5, -90.0), "Là-bas": (22.1, 271.8), "Edge": (21.81, -91.65)}
    lines = "".join(f"{name}, {lat}, {lon}  # a place\n" for name, (lat, lon) in places.items())
    (tmp_path / "stations.csv").write_text(f"name, lat, lon\n\n{lines}")
    inline = ", ".join(f'"{name}": [{lat}, {lon}]' for name, (lat, lon) in places.items())
    done(
        worker(
            [
                "path: a.nc, variables: [T2, U10], points: stations.csv",
                f"path: b.nc, variables: [T, tk], points: {{{inline}}}",
                f"path: c.nc, variables: [T2, T], points: {{{inline}}}, mean: all",
            ],
            source,
        )
    )
    lat, lon = (np.deg2rad(values(source, name)[0]) for name in ("XLAT", "XLONG"))
    cells = []
    for north, east in np.deg2rad(list(places.values())):
        half = np.sin((lat - north) / 2) ** 2 + np.cos(lat) * np.cos(north) * np.sin((lon - east) / 2) ** 2
        cells.append(np.unravel_index(int(np.argmin(half)), lat.shape))
    y, x = (np.array(axis) for axis in zip(*cells, strict=True))
    for file, name in (("a", "T2"), ("a", "U10"), ("b", "T")):
        np.testing.assert_array_equal(values(tmp_path / "out" / f"{file}.nc", name), values(source, name)[..., y, x])
    np.testing.assert_allclose(
        values(tmp_path / "out" / "c.nc", "T2")[0], values(source, "T2")[:, y, x].mean(axis=0), rtol=1e-6
    )
    with netCDF4.Dataset(tmp_path / "out" / "a.nc") as file:
        assert list(file["station_name"][:]) == list(places)
        assert file.featureType == "timeSeries" and file["T2"].coordinates == "lat lon station_name"
        assert file["T2"].dimensions == ("Time", "station") and "XLAT" not in file.variables
        np.testing.assert_array_equal(file["lon"][:], [east for _, east in places.values()])
    with netCDF4.Dataset(tmp_path / "out" / "b.nc") as file:
        assert file.featureType == "timeSeriesProfile"
    with netCDF4.Dataset(tmp_path / "out" / "c.nc") as file:
        assert "featureType" not in file.ncattrs(), "series and profiles"


def test_places_that_cannot_be(shared: Shared, refused: Callable[..., str], tmp_path: Path):  # noqa: F811
    (tmp_path / "bad.csv").write_text("A, 23, -90\nB, 23\n")
    (tmp_path / "none.csv").write_text("# nothing\n")
    wrong = {
        "points: {Oslo: [59.9, 10.7]}": "Oslo (lat 59.9, lon 10.7) lies outside of the grid: the nearest cell (lat ",
        "points: {A: [23]}": "places are wanted, like {Zurich: [47.38, 8.54]}",
        "points: {A: [95, 0]}": "A: latitude (-90 to 90) and longitude in degrees are wanted, this is 95, 0",
        "points: bad.csv": "bad.csv, line 2: name, latitude and longitude are wanted",
        "points: none.csv": "none.csv has no places",
        "points: gone.csv": "gone.csv",
        "points: {A: [23, -90]}, regrid: w.nc": "regrid and points: one of them an output",
        "points: {A: [23, -90]}, variables: [U]": "no variable of this output is on the grid",
    }
    for rule, said in wrong.items():
        keys = rule if "variables" in rule else f"variables: [T2], {rule}"
        line = refused(f"path: a.nc, {keys}", shared(WRF))
        assert "rules.yaml:2: " in line and said in line, line


def test_rules_that_cannot_be(
    globe: Path,
    refused: Callable[..., str],  # noqa: F811
    cdo: Callable[..., Path],
):
    cdo("-genbil,r10x5", "-selname,T", globe, to="w.nc")
    cdo("-genbil,r10x5", "-topo,r20x10", to="other.nc")
    wrong = {
        "regrid: none.nc": "regrid: open none.nc",
        "regrid: {weights: w.nc, missing_max: 1}": "missing_max: a share from 0 to less than 1 is wanted",
        "regrid: {wights: w.nc}": "unknown key wights; known: weights, grid, missing_max",
        "regrid: []": "a file of weights is wanted",
        f"regrid: {globe}": "has no weights: neither ESMF's S, row and col nor SCRIP's",
        "variables: [T], regrid: other.nc": "no variable of this output is on the grid of the weights (10 x 20 cells)",
        "variables: [T, zonal], regrid: w.nc": "variable zonal has only a part of the grid's dimensions",
    }
    for rule, said in wrong.items():
        line = refused(f"path: a.nc, {rule}", globe)
        assert "rules.yaml:2: " in line and said in line, line
