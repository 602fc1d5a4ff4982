"""A part of the cells, every n-th, blocks of them: `advectio process` beside cdo and NumPy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import netCDF4
import numpy as np
from running import Result
from test_process import FRAMES, WRF, done, hours, refused, same_values, values, worker  # noqa: F401  (fixtures)
from test_regridding import cdo, globe  # noqa: F401  (fixtures)

Shared = Callable[[str], Path]


def test_slices_are_what_cdo_makes(shared: Shared, worker: Callable[..., Result], cdo: Callable[..., Path], tmp_path: Path):  # noqa: F811
    source = shared(WRF)
    rules = [
        "path: part.nc, variables: [T2, P, U, HGT], subset: {south_north: '5:20', west_east: '10:-8'}",
        "path: thin.nc, variables: [T2], subset: {south_north: '::3', west_east: '::3'}",
        "path: mean.nc, variables: [T2], subset: {south_north: '5:20', west_east: '10:-8'}, mean: all",
    ]
    done(worker(rules, source))
    out = tmp_path / "out"
    part = cdo("-selindexbox,11,40,6,20", "-selname,T2,P", source, to="part.nc")
    for name in ("T2", "P"):
        np.testing.assert_array_equal(values(out / "part.nc", name), values(part, name), err_msg=name)
    thin = cdo("-samplegrid,3", "-selname,T2", source, to="thin.nc")
    np.testing.assert_array_equal(values(out / "thin.nc", "T2"), values(thin, "T2"))
    mean = cdo("-timmean", "-selname,T2", part, to="mean.nc")
    np.testing.assert_array_equal(values(out / "mean.nc", "T2"), values(mean, "T2"))
    with netCDF4.Dataset(source) as file, netCDF4.Dataset(out / "part.nc") as made:
        for name in ("XLAT", "HGT"):
            assert (made[name][:] == file[name][:, 5:20, 10:40]).all(), name
        for name in ("U", "XLONG_U"):
            assert (made[name][:] == file[name][..., 5:20, 10:41]).all(), f"{name}: a C grid has one point more"
        assert (made.getncattr("WEST-EAST_GRID_DIMENSION"), made.getncattr("SOUTH-NORTH_PATCH_END_UNSTAG")) == (31, 15)
        assert made.DX == file.DX and made["T2"].coordinates == "XLONG XLAT"
    with netCDF4.Dataset(source) as file, netCDF4.Dataset(out / "thin.nc") as made:
        assert made.DX == 3 * file.DX and (made["XLONG"][:] == file["XLONG"][:, ::3, ::3]).all()


def test_a_region_is_what_cdo_makes(
    globe: Path,  # noqa: F811
    shared: Shared,
    worker: Callable[..., Result],  # noqa: F811
    cdo: Callable[..., Path],  # noqa: F811
    tmp_path: Path,
):
    boxes = {"contiguous": (10, 100, -45, 30), "seam": (-30, 41, -10, 88), "again": (330, 41, -10, 88)}
    done(worker([f"path: {n}.nc, region: {{lon: [{b[0]}, {b[1]}], lat: [{b[2]}, {b[3]}]}}" for n, b in boxes.items()], globe))
    for name, (west, east, south, north) in boxes.items():
        box = f"-sellonlatbox,{west},{east if east > west else east + 360},{south},{north}"
        # cdo 2.5.1 divides by zero for the variables without longitude.
        theirs = cdo(box, "-selname,T,M", globe, to=f"{name}.nc")
        for variable in ("T", "M", "lat", "lon"):
            ours = values(tmp_path / "out" / f"{name}.nc", variable)
            if (name, variable) == ("again", "lon"):
                assert (ours == 332 + 4 * np.arange(18)).all()  # as the region has them; cdo begins at -28
                continue
            np.testing.assert_array_equal(ours, values(theirs, variable), err_msg=f"{name} {variable}")
    # Of a curvilinear grid the smallest box of its indices.
    source = shared(WRF)
    done(worker("path: wrf.nc, variables: [T2, V], region: {lon: [-90.2, -88.4], lat: [22, 24.5]}", source))
    theirs = cdo("-sellonlatbox,-90.2,-88.4,22,24.5", "-selname,T2", source, to="wrf.nc")
    np.testing.assert_array_equal(values(tmp_path / "out" / "wrf.nc", "T2"), values(theirs, "T2"))
    with netCDF4.Dataset(tmp_path / "out" / "wrf.nc") as made:
        assert made["V"].shape[2] == made["T2"].shape[1] + 1 == made.getncattr("SOUTH-NORTH_GRID_DIMENSION")


def test_blocks_are_what_cdo_makes(globe: Path, worker: Callable[..., Result], cdo: Callable[..., Path], tmp_path: Path):  # noqa: F811
    done(
        worker(
            [f"path: {method}.nc, coarsen: {{lat: 4, lon: 3, method: {method}}}" for method in ("max", "min", "sum", "mean")]
            + ["path: daily.nc, variables: [T], coarsen: {lat: 4, lon: 3}, mean: 1d, closed: left"],
            globe,
        )
    )
    out = tmp_path / "out"
    for method in ("max", "min", "sum"):  # its means have areas as weights
        theirs = cdo(f"-gridbox{method},3,4", "-selname,T,M", globe, to=f"{method}.nc")
        for name in ("T", "M"):
            np.testing.assert_array_max_ulp(
                values(out / f"{method}.nc", name).astype("f4"), values(theirs, name).astype("f4"), maxulp=1
            )
    with netCDF4.Dataset(globe) as file, netCDF4.Dataset(out / "mean.nc") as made:
        rows = [slice(n, min(n + 4, 45)) for n in range(0, 45, 4)]  # the last has one
        t = file["T"][:].astype("f8")
        expected = np.stack([t[:, :, row].reshape(4, 3, -1, 30, 3).mean(axis=(2, 4)) for row in rows], axis=2)
        np.testing.assert_array_max_ulp(made["T"][:].data, expected.astype("f4"))
        assert made["T"].cell_methods == "lat: lon: mean" and made["T"].chunking()[2:] == [12, 30]
        np.testing.assert_allclose(made["lat"][:], [file["lat"][row].mean() for row in rows])
        assert (made["lon"][:] == 4 + 12 * np.arange(30)).all() and "cell_methods" not in made["lon"].ncattrs()
    with netCDF4.Dataset(out / "max.nc") as made, netCDF4.Dataset(out / "mean.nc") as mean:
        assert made["T"].cell_methods == "lat: lon: maximum" and (made["lat"][:] == mean["lat"][:]).all()
    with netCDF4.Dataset(out / "daily.nc") as made:
        assert made["T"].cell_methods == "lat: lon: mean time: mean (interval: 6 h)"


def test_means_of_cells_of_one_size_are_what_cdo_makes(
    hours: Path,  # noqa: F811
    worker: Callable[..., Result],  # noqa: F811
    cdo: Callable[..., Path],  # noqa: F811
    tmp_path: Path,
):
    done(worker("path: mean.nc, variables: [T2], coarsen: {y: 4, x: 3}", hours))
    theirs = cdo("-gridboxmean,3,4", "-selname,T2", hours, to="mean.nc")  # 42 rows: the last block has two
    ours = values(tmp_path / "out" / "mean.nc", "T2").astype("f4")
    np.testing.assert_array_max_ulp(ours, values(theirs, "T2").astype("f4"), maxulp=1)


def test_a_part_can_be_regridded(globe: Path, worker: Callable[..., Result], cdo: Callable[..., Path], tmp_path: Path):  # noqa: F811
    part = cdo("-selindexbox,1,90,6,30", "-selname,T", globe, to="part.nc")
    cdo("-genbil,r72x36", part, to="weights.nc")
    theirs = cdo("-remap,r72x36,weights.nc", part, to="cdo.nc")
    done(worker("path: a.nc, variables: [T], subset: {lat: 5:30, lev: '1:'}, regrid: weights.nc", globe))
    np.testing.assert_array_equal(values(tmp_path / "out" / "a.nc", "T"), values(theirs, "T")[:, 1:])


def test_a_coarse_c_grid_is_one(shared: Shared, worker: Callable[..., Result], tmp_path: Path):  # noqa: F811
    source = shared(FRAMES)
    keys = "subset: {bottom_top: '0:9:2', south_north: '1:'}, coarsen: {south_north: 4, west_east: 4}"
    done(worker(f"path: a.nc, variables: [T2, P, U, V, W, HGT], {keys}", source))
    with netCDF4.Dataset(source) as file, netCDF4.Dataset(tmp_path / "out" / "a.nc") as made:
        sizes = {name: len(d) for name, d in made.dimensions.items()}
        assert sizes["west_east_stag"] == sizes["west_east"] + 1 == 12 and sizes["south_north_stag"] == sizes["south_north"] + 1
        assert sizes["bottom_top"] == 5 and sizes["bottom_top_stag"] == 6
        u = file["U"][:, 0:9:2, 1:, :][..., [*range(0, 42, 4), 42]].astype("f8")
        whole = u[:, :, :40].reshape(*u.shape[:2], 10, 4, -1).mean(axis=3)
        np.testing.assert_array_max_ulp(made["U"][:, :, :10].data, whole.astype("f4"))
        np.testing.assert_array_equal(made["U"][:, :, 10], u[:, :, 40])  # one row is left
        w = file["W"][:, 0:11:2, 1:5, :4].astype("f8").mean(axis=(2, 3))
        np.testing.assert_array_max_ulp(made["W"][:, :, 0, 0].data, w.astype("f4"))
        assert made["U"].cell_methods == "south_north: mean" and made["V"].cell_methods == "west_east: mean"
        assert made.DX == 4 * file.DX and made.getncattr("BOTTOM-TOP_GRID_DIMENSION") == 6


def test_any_storage_and_any_number_of_cores_give_the_same_bits(shared: Shared, worker: Callable[..., Result], tmp_path: Path):  # noqa: F811
    source = shared(FRAMES)
    rule = (
        "path: {}.nc, variables: [U, P, T2], expressions: {{speed: 'hypot(destagger(U), destagger(V))'}}, "
        "subset: {{west_east: '3:-4', bottom_top: '1::3'}}, coarsen: {{south_north: 5, west_east: 3}}, max: all, units: {{U: knot}}"
    )
    done(worker(rule.format("given"), source, "--jobs", "1"))
    other = tmp_path / "other.nc"
    with netCDF4.Dataset(source) as file, netCDF4.Dataset(other, "w") as made:
        made.setncatts({name: file.getncattr(name) for name in file.ncattrs()})
        for name, dimension in file.dimensions.items():
            made.createDimension(name, None if dimension.isunlimited() else len(dimension))
        for name, given in file.variables.items():
            if name not in {"Times", "XTIME", "U", "V", "P", "T2"} and not name.startswith(("XLAT", "XLONG")):
                continue
            chunks = [min(n, size) for n, size in zip((3, 7, 11, 13), given.shape, strict=False)]
            variable = made.createVariable(name, given.dtype, given.dimensions, chunksizes=chunks)
            variable.setncatts({key: given.getncattr(key) for key in given.ncattrs()})
            variable[:] = given[:]
    done(worker(rule.format("cut"), other, "--jobs", "3", "--memory", "16MiB"))
    same_values(tmp_path / "out" / "given.nc", tmp_path / "out" / "cut.nc")


def test_it_goes_with_levels_and_cf(shared: Shared, worker: Callable[..., Result], tmp_path: Path):  # noqa: F811
    source = shared(WRF)
    common = "variables: [U, tk, HGT], levels: {pressure: [900, 700 hPa], preset: wrf}, cf: true"
    done(
        worker(
            [
                f"path: whole.nc, {common}",
                f"path: part.nc, {common}, subset: {{south_north: '8:24', west_east: '4:20'}}",
                f"path: coarse.nc, {common}, coarsen: {{south_north: 3, west_east: 3}}",
            ],
            source,
        )
    )
    with (
        netCDF4.Dataset(tmp_path / "out" / "whole.nc") as whole,
        netCDF4.Dataset(tmp_path / "out" / "part.nc") as part,
        netCDF4.Dataset(tmp_path / "out" / "coarse.nc") as coarse,
    ):
        for name in ("U", "tk", "HGT", "XLAT"):
            np.testing.assert_array_equal(np.ma.filled(part[name][:], -9), np.ma.filled(whole[name][..., 8:24, 4:20], -9))
        np.testing.assert_allclose(part["west_east"][:], whole["west_east"][4:20], atol=100)
        np.testing.assert_allclose(coarse["west_east"][:], whole["west_east"][1::3], atol=1)
        blocks = whole["tk"][:].astype("f8").reshape(4, 2, 16, 3, 16, 3).mean(axis=(3, 5))
        np.testing.assert_allclose(coarse["tk"][:], blocks, rtol=1e-6)
        assert coarse["tk"].cell_methods == "south_north: west_east: mean" and coarse["tk"].grid_mapping == "crs"


def test_what_cannot_be_is_said_first(globe: Path, shared: Shared, refused: Callable[..., str]):  # noqa: F811
    wrong = {
        "subset: {lev: '5:'}": "rules.yaml:2: subset: of the 3 cells along lev none is chosen",
        "subset: {lat: 0:9}, region: {lon: [0, 9]}": "rules.yaml:2: region and subset are both of lat; one of them an output",
        "coarsen: {lon: 1}": "rules.yaml:2: outputs[0].coarsen: lon: how many cells become one, from 2, is wanted, this is '1'",
        "coarsen: {lon: 2, method: median}": "outputs[0].coarsen: method: 'median' is none of: mean, max, min, sum, first",
        "region: {lat: [30, 20]}": "rules.yaml:2: outputs[0].region: lat: the southern one stands first",
        "region: {lon: [1, 3]}": "rules.yaml:2: region: it holds no point of the grid, which has lat -88 to 88, lon 0 to 356",
        "region: {lon: [1, 9]}, points: {A: [1, 2]}": "rules.yaml:2: outputs[0]: region and points: one of them an output",
        "subset: {lon: 1:9}, points: {A: [1, 2]}": "(45 x 90 cells), of which subset leaves a part",
        "coarsen: {lon: 2}, points: {A: [1, 2]}": "rules.yaml:2: coarsen: points takes lon away; one of them an output",
    }
    for keys, said in wrong.items():
        assert said in refused(f"path: a.nc, {keys}", globe), keys
    levels = "levels: {pressure: [900 hPa], preset: wrf}"
    assert "levels takes bottom_top away" in refused(f"path: a.nc, coarsen: {{bottom_top: 2}}, {levels}", shared(WRF))


def test_bounds_and_text(worker: Callable[..., Result], tmp_path: Path):  # noqa: F811
    with netCDF4.Dataset(tmp_path / "in.nc", "w") as file:
        for name, length in (("time", None), ("x", 6), ("two", 2), ("letters", 3)):
            file.createDimension(name, length)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "hours since 2001-01-01"
        time[:] = [0, 1]
        x = file.createVariable("x", "i4", ("x",))
        x.bounds = "x_bnds"
        x[:] = 10 * np.arange(6)
        bounds = file.createVariable("x_bnds", "f4", ("x", "two"))
        bounds[:] = np.stack([10 * np.arange(6) - 5, 10 * np.arange(6) + 5], axis=1)
        file.createVariable("name", "S1", ("x", "letters"))[:] = np.array([list(f"n{n}!") for n in range(6)], "S1")
        t = file.createVariable("t", "i2", ("time", "x"))
        t.scale_factor = 0.5
        t[:] = np.arange(12).reshape(2, 6) / 2
    rules = ["path: part.nc, subset: {x: 2:5}", "path: thin.nc, subset: {x: '1::2'}", "path: coarse.nc, coarsen: {x: 4}"]
    told = done(worker(rules, tmp_path / "in.nc"))
    with netCDF4.Dataset(tmp_path / "out" / "part.nc") as file:
        assert file["x"][:].tolist() == [20, 30, 40] and file["x"].dtype == "i4"
        assert netCDF4.chartostring(file["name"][:]).tolist() == ["n2!", "n3!", "n4!"]
        assert file["x_bnds"][:, 0].tolist() == [15, 25, 35] and file["t"].dtype == "i2"
    with netCDF4.Dataset(tmp_path / "out" / "thin.nc") as file:
        assert file["x"][:].tolist() == [10, 30, 50] and file["x"].dtype == "i4" and file["x"].bounds == "x_bnds"
        assert file["x_bnds"][:, 1].tolist() == [15, 35, 55] and "name" not in file.variables
        assert file["t"].dtype == "i2" and file["t"][:].tolist() == [[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]]
    with netCDF4.Dataset(tmp_path / "out" / "coarse.nc") as file:
        assert file["x"][:].tolist() == [15, 45] and "bounds" not in file["x"].ncattrs() and "x_bnds" not in file.variables
        assert file["t"][:].tolist() == [[0.75, 2.25], [3.75, 5.25]]
    assert '"name"' in told.stdout and '"x_bnds"' in told.stdout
