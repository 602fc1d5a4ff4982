"""advectio view: the frames of a stream as a Zarr group over HTTP, read by xarray and zarr as a user has them."""

import json
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest

pytest.importorskip("zarr", reason="zarr is not installed", minversion="3")
pytest.importorskip("aiohttp", reason="aiohttp is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")

import uvicorn
import xarray as xr
import zarr
from advectio.view import sources, virtual_zarr
from advectio.view.frames import Frames
from advectio.view.server import Dashboard, _listen

TOKEN = "token"


class Changing:
    """A source whose files are what the test says."""

    def __init__(self, **files):
        self.by_path = dict(files)
        self.opened = 0

    def files(self):
        return list(self.by_path)

    def open(self, path):
        self.opened += 1
        found = self.by_path[path]
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def serve():
    servers = []

    def begin(source):
        dashboard = Dashboard(Frames(keep=None), live=False, source=source)
        listener = _listen(0)
        config = uvicorn.Config(dashboard.app(TOKEN), log_level="error", lifespan="off", ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        servers.append((server, thread))
        while not server.started:
            time.sleep(0.01)
        return f"http://127.0.0.1:{listener.getsockname()[1]}/{TOKEN}/zarr"

    yield begin
    for server, thread in servers:
        server.should_exit = True
        thread.join(20)


def frames(first, end):
    """Undecoded, as of a file of WRF: packed, with missing values, characters, texts and a scalar."""
    n, rng = end - first, np.random.default_rng(first)
    times = [f"2005-08-28_{k:02d}:00:00" for k in range(first, end)]
    ds = xr.Dataset(
        {
            "T2": (
                ("Time", "y", "x"),
                rng.normal(280, 5, (n, 4, 5)).astype("f4"),
                {"units": "K", "_FillValue": np.float32(-999)},
            ),
            "Q": (("Time", "z", "y", "x"), rng.random((n, 3, 4, 5)), {"_FillValue": np.nan}),
            "packed": (("Time", "x"), rng.integers(0, 99, (n, 5)).astype("i2"), {"scale_factor": 0.5, "add_offset": 10.0}),
            "Times": (("Time", "DateStrLen"), np.array([list(t) for t in times], "S1")),
            "note": (("Time",), np.array([f"día {k}" for k in range(first, end)], object)),
            "HGT": (("y", "x"), np.arange(20, dtype="i4").reshape(4, 5), {"valid": np.array([0, 19], "i4")}),
            "P_TOP": ((), np.float32(5000), {"units": "Pa"}),
        },
        attrs={"TITLE": "OUTPUT FROM WRF", "DX": np.float32(1000), "list": np.array([1, 2], "i4")},
    )
    ds["T2"].values[0, 0, 0] = -999
    ds.encoding["unlimited_dims"] = {"Time"}
    return ds


def same(url, wanted):
    with xr.open_zarr(url) as found:
        xr.testing.assert_identical(found.load(), xr.decode_cf(wanted).load())
        for name in wanted.variables:
            if name not in ("packed", "note"):  # attributes in JSON have no float32, and zarr has texts of its own
                assert found.variables[name].dtype == xr.decode_cf(wanted).variables[name].dtype, name


def test_files_of_a_stream_are_one_group_with_all_their_records(serve):
    url = serve(
        Changing(**{"/a/wrfout_d01_2005-08-28_00:00:00": frames(0, 2), "/a/wrfout_d01_2005-08-28_02:00:00": frames(2, 5)})
    )
    same(f"{url}/wrfout_d01", xr.concat([frames(0, 2), frames(2, 5)], "Time", data_vars="minimal"))


def test_files_on_disk_are_read_as_they_are(serve, tmp_path):
    path = tmp_path / "history.nc"
    frames(0, 3).to_netcdf(path, unlimited_dims=["Time"])
    url = serve(sources.Files([str(path)]))
    with xr.open_dataset(path, decode_cf=False) as wanted:
        same(f"{url}/history.nc", wanted.load())


def test_zarr_without_xarray_reads_the_stored_bits(serve):
    url = serve(Changing(a=frames(0, 2)))
    group = zarr.open_group(f"{url}/a", mode="r")
    assert group.attrs["TITLE"] == "OUTPUT FROM WRF" and group["T2"].chunks == (1, 4, 5)
    for name in ("T2", "Q", "packed", "HGT"):
        assert np.asarray(group[name][...]).tobytes() == frames(0, 2)[name].values.tobytes()
    assert float(group["P_TOP"][...]) == 5000


def test_who_opens_again_sees_the_records_that_have_come(serve):
    source = Changing(a=frames(0, 1))
    url = serve(source)
    with xr.open_zarr(f"{url}/a") as before:
        source.by_path["a"] = frames(0, 3)
        assert before.sizes["Time"] == 1
        same(f"{url}/a", frames(0, 3))
        np.testing.assert_array_equal(before.T2.values, xr.decode_cf(frames(0, 3)).T2.values[:1])


def test_large_variables_are_cut(serve, monkeypatch):
    monkeypatch.setattr(virtual_zarr, "CHUNK_BYTES_MAX", 200)
    url = serve(Changing(a=frames(0, 2)))
    assert zarr.open_group(f"{url}/a", mode="r")["Q"].chunks == (1, 1, 4, 5)
    same(f"{url}/a", frames(0, 2))


def test_what_cannot_be_read_is_an_error_and_never_fill(serve):
    source = Changing(a=frames(0, 2))
    url = serve(source)
    with xr.open_zarr(f"{url}/a") as ds:
        source.by_path["a"] = frames(0, 1)  # a program has begun the file anew
        urllib.request.urlopen(f"{url}/a/.zmetadata").read()
        with pytest.raises(Exception, match="409"):
            ds.T2.isel(Time=1).load()
    source.by_path["a"] = OSError("the disk has gone")
    for key, code in ((".zmetadata", 502), ("T2/9.9.9", 409)):
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(f"{url}/a/{key}")
        assert error.value.code == code
    with pytest.raises(FileNotFoundError):
        xr.open_zarr(f"{url}/b")


def test_files_that_differ_are_said_to(serve):
    other = frames(2, 3).rename(T2="T3")
    url = serve(Changing(**{"/a/wrfout_d01_2005-08-28_00:00:00": frames(0, 2), "/a/wrfout_d01_2005-08-28_02:00:00": other}))
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"{url}/wrfout_d01/.zmetadata")
    assert error.value.code == 409
    assert b"has no T3: files that differ are not one group" in error.value.read()


def test_memory_is_let_go_when_nobody_asks(monkeypatch):
    monkeypatch.setattr(virtual_zarr, "HELD_S", 0.05)
    source = Changing(a=frames(0, 1))
    groups = virtual_zarr.Groups(source, lambda path: path)
    assert groups.get("a", newest=False) is groups.get("a", newest=False)
    until = time.monotonic() + 60
    while groups._groups and time.monotonic() < until:
        time.sleep(0.01)
    assert not groups._groups
    groups.get("a", newest=False)
    assert source.opened == 2


def test_without_the_token_nothing_is_given(serve):
    url = serve(Changing(a=frames(0, 1))).replace(TOKEN, "other")
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"{url}/a/.zmetadata")
    assert error.value.code == 401


def test_of_a_run_that_is_over_the_store_in_place_of_a_file_is_read(tmp_path):
    pytest.importorskip("zarr", reason="zarr is not installed")
    there = xr.Dataset({"T2": (("Time", "x"), np.arange(6.0).reshape(3, 2))})
    there.to_zarr(tmp_path / "out.zarr", zarr_format=3, consolidated=True)
    root = tmp_path / "out.zarr" / "zarr.json"
    told = json.loads(root.read_text())
    told["consolidated_metadata"]["unlimited_dimensions"] = ["Time"]  # as Advectio's sink says it
    root.write_text(json.dumps(told))
    run = sources.Run("out*.nc")
    run._known = {str(tmp_path / "out.nc"): True}
    found = run.open(str(tmp_path / "out.nc"))
    assert found.encoding["unlimited_dims"] == {"Time"}
    np.testing.assert_array_equal(found.T2.values, there.T2.values)
