"""`cf: true`: what the CF conventions want of a file, judged by pyproj and, where it is installed, compliance-checker."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from running import Result
from test_process import done, refused, worker  # noqa: F401  (fixtures)

Shared = Callable[[str], Path]
LAMBERT, MERCATOR = "wrf/wrf_d01_allvars_cropped.nc", "wrf/wrfout_d01_wrf381_4times.nc"


@pytest.mark.parametrize("name, mapping", [(LAMBERT, "lambert_conformal_conic"), (MERCATOR, "mercator")])
def test_wrf_leaves_as_cf(shared: Shared, worker: Callable[..., Result], tmp_path: Path, name: str, mapping: str):  # noqa: F811
    pyproj = pytest.importorskip("pyproj")
    done(
        worker(
            [
                "path: a.nc, variables: [T2, PSFC, HGT, slp, RAINNC], mean: 6h, cf: true",
                "path: b.nc, variables: [U, tk], levels: {pressure: [850, 500 hPa], preset: wrf}, cf: true",
                "path: plain.nc, variables: [T2, HGT]",
            ],
            shared(name),
        )
    )
    with netCDF4.Dataset(tmp_path / "out" / "a.nc") as file, netCDF4.Dataset(tmp_path / "out" / "plain.nc") as plain:
        crs = file["crs"]
        assert crs.grid_mapping_name == mapping and file.Conventions == "CF-1.11" and "WRF" in file.title
        projection = pyproj.CRS.from_cf({key: crs.getncattr(key) for key in crs.ncattrs()})
        to_plane = pyproj.Transformer.from_crs(projection.geodetic_crs, projection, always_xy=True)
        shape = len(file["south_north"]), len(file["west_east"])
        lat, lon = (np.asarray(file[name][...]).reshape(-1, *shape)[0] for name in ("XLAT", "XLONG"))
        # Latitudes are float32: a metre.
        np.testing.assert_allclose(
            to_plane.transform(lon, lat), np.meshgrid(file["west_east"][:], file["south_north"][:]), atol=5
        )
        assert file["west_east"].standard_name == "projection_x_coordinate" and file["west_east"].units == "m"
        t2 = file["T2"]
        assert (t2.standard_name, t2.grid_mapping, t2.units) == ("air_temperature", "crs", "K")
        assert t2.long_name == t2.description and set(t2.coordinates.split()) == {"XLAT", "XLONG"}
        assert (file["XLAT"].standard_name, file["XLAT"].units) == ("latitude", "degrees_north")
        assert "grid_mapping" not in file["XLAT"].ncattrs() and not any("-" in key for key in file.ncattrs())
        assert (
            np.asarray(file["HGT"][...]).reshape(-1, *shape)[0] == np.asarray(plain["HGT"][...]).reshape(-1, *shape)[0]
        ).all()
        assert "Conventions" not in plain.ncattrs() and "crs" not in plain.variables
    if mapping != "mercator":  # compliance-checker 6.1 wants each letter of an attribute's name as an attribute
        check_by_compliance_checker(tmp_path / "out" / "a.nc", tmp_path / "out" / "b.nc")


def check_by_compliance_checker(*outputs: Path) -> None:
    """Where it is installed: beside Python, or as ADVECTIO_COMPLIANCE_CHECKER."""
    checker = os.environ.get("ADVECTIO_COMPLIANCE_CHECKER", "")
    if not checker and importlib.util.find_spec("compliance_checker") is not None:
        checker = str(Path(sys.executable).parent / "compliance-checker")
    if not checker:
        return
    for output in outputs:
        report = subprocess.run(
            [checker, "--test=cf:1.11", output],
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert "Errors" not in report.stdout and "All tests passed!" in report.stdout, report.stdout


def test_levels_leave_as_cf_and_nothing_of_the_model_s_grid_stays(
    shared: Shared,
    worker: Callable[..., Result],  # noqa: F811
    tmp_path: Path,
):
    done(
        worker(
            [
                "path: p.nc, variables: [tk, U, V, W, height_agl, z, T2, LAI], "
                "levels: {pressure: [850, 500 hPa], preset: wrf}, cf: true",
                "path: sea.nc, variables: [tk, U], levels: {height: [500, 1500 m], preset: wrf}, cf: true",
                "path: ground.nc, variables: [tk, U], levels: {height: [100, 500 m], preset: wrf, coordinate: height_agl}, "
                "cf: true",
                "path: plain.nc, variables: [U, V], levels: {height: [500, 1500 m], preset: wrf}",
            ],
            shared(LAMBERT),
        )
    )
    out = tmp_path / "out"
    with netCDF4.Dataset(out / "p.nc") as file:
        assert file["U"].dimensions == ("Time", "plev", "south_north", "west_east")
        assert file["height_agl"].positive == "up" and file["height_agl"].standard_name == "height"
        assert file["LAI"].units == "1"
    with netCDF4.Dataset(out / "sea.nc") as file, netCDF4.Dataset(out / "ground.nc") as ground:
        above_sea = file["geopotential_height"]
        assert (above_sea.standard_name, above_sea.positive, above_sea.axis) == ("geopotential_height", "up", "Z")
        assert file["tk"].dimensions[1] == "geopotential_height"
        assert (ground["height"].standard_name, ground["height"].positive) == ("height", "up")
        assert above_sea[:].tolist() == [500, 1500] and ground["height"][:].tolist() == [100, 500]
    with netCDF4.Dataset(out / "plain.nc") as file:
        assert file["U"].dimensions[1] == "height" and file["height"].standard_name == "geopotential_height"
    for path in out.iterdir():
        with netCDF4.Dataset(path) as file:
            left = [name for name in (*file.dimensions, *file.variables) if name.endswith(("_stag", "_U", "_V", "bottom_top"))]
            assert not left, (path, left)
    check_by_compliance_checker(*(out / name for name in ("p.nc", "sea.nc", "ground.nc")))


def test_cf_is_true_or_false(shared: Shared, refused: Callable[..., str]):  # noqa: F811
    assert "cf: true or false is wanted, this is 'maybe'" in refused("path: a.nc, cf: maybe", shared(MERCATOR))
