"""What people use for WRF's files goes on with what decode() gives."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")
xr = pytest.importorskip("xarray")
pytest.importorskip("netCDF4")

from advectio.decoding import decode  # noqa: E402
from made_up import THREE, real, wrf  # noqa: E402


def test_xwrf():
    pytest.importorskip("xwrf", reason="needs the Python package xwrf")
    ds = decode(wrf(THREE)).xwrf.postprocess()
    assert {"air_pressure", "geopotential_height"} <= set(ds.data_vars)
    assert (ds.Time.values == decode(wrf(THREE)).Time.values).all()
    assert float(ds.x[1] - ds.x[0]) == 10000 and "wrf_projection" in ds
    assert ds.xwrf.destagger().U.shape == (3, 6, 10, 12)


def test_xwrf_gives_the_same_as_without_decode():
    pytest.importorskip("xwrf", reason="needs the Python package xwrf")
    with xr.open_dataset(real("wrf/wrfout_d01_wrf381_4times.nc")) as plain:
        expected = plain.xwrf.postprocess()
        xr.testing.assert_identical(decode(plain).xwrf.postprocess(), expected)
    with xr.open_dataset(real("wrf471/serial/wrfout_d01_4frames.nc"), decode_cf=False) as ideal:
        assert "air_pressure" in decode(ideal).xwrf.postprocess()


def test_metpy():
    calc = pytest.importorskip("metpy.calc", reason="needs the Python package MetPy")
    ds = decode(wrf())
    speed = calc.wind_speed(ds.U10.metpy.quantify(), ds.V10.metpy.quantify())
    assert float(speed[0, 0, 0]) == 5 and str(speed.metpy.units) == "meter / second"
    potential = calc.potential_temperature(ds.PSFC.metpy.quantify(), ds.T2.metpy.quantify())
    assert potential.dims == ("Time", "south_north", "west_east")
    assert ds.T2.metpy.time.values[0] == np.datetime64("2005-08-28T12:00:00")


def test_metpy_behind_xwrf_knows_the_projection():
    pytest.importorskip("xwrf", reason="needs the Python package xwrf")
    pytest.importorskip("metpy", reason="needs the Python package MetPy")
    ds = decode(wrf()).xwrf.postprocess().metpy.parse_cf()
    assert ds.T2.metpy.crs["grid_mapping_name"] == "lambert_conformal_conic"


def test_wrf_python():
    tools = pytest.importorskip("wrf", reason="needs the Python package wrf-python (conda; PyPI has no wheel of it)")
    ds = decode(wrf())
    heights = xr.DataArray(np.arange(6.0)[:, None, None] * np.ones((6, 10, 12)), dims=ds.QVAPOR.dims[1:])
    assert tools.interplevel(ds.QVAPOR[0], heights, 2.5).shape == (10, 12)
