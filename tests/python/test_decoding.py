"""decode() gives times and places of WRF to xarray, reads nothing else, and leaves other models as they are."""

from __future__ import annotations

import warnings

import pytest

np = pytest.importorskip("numpy")
xr = pytest.importorskip("xarray")
pytest.importorskip("netCDF4")

from advectio.decoding import decode  # noqa: E402
from made_up import THREE, real, wrf, wrf_file  # noqa: E402
from xarray.backends import BackendArray  # noqa: E402
from xarray.core import indexing  # noqa: E402


def test_times_become_the_index_of_time_and_xtime_a_datetime():
    ds = decode(wrf(THREE))
    assert (ds.Time.values == np.array([t.replace("_", "T") for t in THREE], "datetime64[ns]")).all()
    assert "Time" in ds.indexes
    assert ds.XTIME.dtype == "datetime64[ns]" and (ds.XTIME.values == ds.Time.values).all()
    assert str(ds.sel(Time="2005-08-28T13:00").Time.values) == "2005-08-28T13:00:00.000000000"
    assert set(ds.dims) == set(wrf().dims) - {"DateStrLen"}


@pytest.mark.parametrize("kind", ["char", "bytes", "str"])
def test_times_may_be_characters_or_strings(kind):
    ds = wrf(THREE)
    if kind != "char":
        ds = ds.assign(Times=("Time", np.array(THREE, "S19" if kind == "bytes" else object))).drop_dims(
            "DateStrLen", errors="ignore"
        )
    assert decode(ds).Time.values.astype("datetime64[s]").tolist()[2].isoformat() == "2005-08-28T14:00:00"


def test_the_year_1_of_idealised_runs_is_reached():
    ds = decode(wrf(("0001-01-01_00:00:00", "0001-01-01_00:30:00"), ideal=True))
    assert str(ds.Time.values[1]) == "0001-01-01T00:30:00" == str(ds.XTIME.values[1])


def test_minutes_of_old_files_that_say_no_since_take_the_times_of_the_text():
    ds = wrf(THREE)
    ds.XTIME.attrs = {"units": "", "description": "minutes since simulation start"}
    assert decode(ds).XTIME.dtype.kind == "M"


def test_without_the_text_the_minutes_are_the_index():
    ds = decode(wrf(THREE).drop_vars("Times"))
    assert (ds.Time.values == np.array([t.replace("_", "T") for t in THREE], "datetime64[ns]")).all()
    ideal = decode(wrf(("0001-01-01_00:00:00", "0001-01-01_00:30:00"), ideal=True).drop_vars("Times"))
    assert str(ideal.Time.values[1]) == "0001-01-01T00:30:00"


@pytest.mark.parametrize("missing", ["Times", "XTIME", "XLAT", "XLONG"])
def test_what_a_dataset_lacks_it_goes_on_lacking(missing):
    ds = decode(wrf().drop_vars(missing))
    assert missing not in ds.variables
    assert "Time" in ds.coords and {"XLAT", "XLONG"} - {missing} <= set(ds.coords)


def test_a_dataset_with_neither_times_nor_places_is_as_before():
    plain = xr.Dataset({"a": ("x", [1.0, 2.0])}, attrs={"title": "plain"})
    assert decode(plain).identical(plain)
    assert decode(xr.Dataset()).identical(xr.Dataset())


@pytest.mark.parametrize("text", [b"\0" * 19, b"2005-02-30_00:00:00", b"no time at all, see"])
def test_a_text_that_is_no_time_is_left_alone(text):
    ds = wrf().drop_vars(["Times", "XTIME"]).assign(Times=("Time", np.array([text], "S19")))
    assert "Time" not in decode(ds).coords and decode(ds).Times.values[0] == np.array([text], "S19")[0]


def test_places_of_staggered_grids_are_coordinates():
    ds = wrf().assign(XLAT_U=(("Time", "south_north", "west_east_stag"), np.zeros((1, 10, 13), "f4")))
    assert "XLAT_U" in decode(ds).coords and "T2" not in decode(ds).coords


def test_decoding_twice_changes_nothing():
    once = decode(wrf(THREE))
    assert decode(once).identical(once)


def test_the_encoding_of_a_live_frame_is_kept():
    ds = wrf()
    ds.encoding.update(source="/run/wrfout_d01", advectio_frame=7)
    assert decode(ds).encoding["source"] == "/run/wrfout_d01" and decode(ds).encoding["advectio_frame"] == 7


class Counted(BackendArray):
    """A variable that tells when it is read."""

    def __init__(self, name, values, read):
        self.name, self.values, self.read = name, values, read
        self.shape, self.dtype = values.shape, values.dtype

    def __getitem__(self, key):
        self.read.append(self.name)
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self.values.__getitem__)


def test_nothing_but_times_is_read():
    read: list[str] = []
    lazy = xr.Dataset(attrs=wrf().attrs)
    for name, variable in wrf(THREE).variables.items():
        array = indexing.LazilyIndexedArray(Counted(name, variable.values, read))
        lazy[name] = xr.Variable(variable.dims, array, variable.attrs)
    ds = decode(lazy)
    assert set(read) == {"Times", "XTIME"}
    assert not ds.variables["XLAT"]._in_memory and not ds.variables["QVAPOR"]._in_memory
    assert float(ds["T2"].max()) == pytest.approx(300, abs=0.1)


def test_a_time_that_cannot_be_decoded_does_not_keep_the_others():
    ds = wrf().drop_vars("Times")
    ds["bad"] = xr.Variable("Time", np.array([1e30]), {"units": "days since 2000-01-01"})
    decoded = decode(ds)
    assert decoded.bad.dtype == float and decoded.XTIME.dtype.kind == "M" and "Time" in decoded.coords


def test_a_file_gives_the_same_decoded_or_not(tmp_path):
    path = wrf_file(tmp_path / "wrfout", THREE)
    with xr.open_dataset(path) as by_xarray, xr.open_dataset(path, decode_cf=False) as raw:
        assert decode(by_xarray).equals(decode(raw))


REAL = {
    "wrf/wrfout_d01_wrf381_4times.nc": "2005-08-28T12:00:00",
    "wrf/wrf_d01_allvars_cropped.nc": "2005-09-21T00:00:00",
    "wrf/wrf_mercator.nc": "2009-08-05T01:00:00",
    "wrf471/serial/wrfout_d01_4frames.nc": "0001-01-01T00:00:00",
    "wrf471/pnetcdf/wrfout_d01_0001-01-01_00_30_00": "0001-01-01T00:30:00",
    "metgrid/met_em.d01.2005-08-28_12_00_00.nc": "2005-08-28T12:00:00",
}


@pytest.mark.parametrize("name", REAL)
def test_real_files_of_wrf(name):
    with warnings.catch_warnings(), xr.open_dataset(real(name), decode_cf=False) as raw:
        warnings.simplefilter("error")
        ds = decode(raw)
        assert np.datetime_as_string(ds.Time.values[0].astype("datetime64[s]")) == REAL[name]
        assert {"XLAT", "XLONG"} <= set(ds.coords) or {"XLAT_M", "XLONG_M"} <= set(ds.coords)
        assert [v for v in ds.data_vars if ds.variables[v]._in_memory] == []


@pytest.mark.parametrize(
    "name", ["scale/history.pe000000.nc", "scale/init_00000101-000000.000.pe000000.nc", "nemo/mesh_mask.nc"]
)
def test_other_models_pass_unharmed(name):
    with xr.open_dataset(real(name), decode_cf=False) as raw, xr.open_dataset(real(name)) as by_xarray:
        assert decode(raw).identical(by_xarray)
