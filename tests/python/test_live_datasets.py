"""Frames as datasets, of a made-up server."""

import base64
import os
import pickle
import time

import numpy as np
import pytest

xr = pytest.importorskip("xarray")
pytest.importorskip("netCDF4")

from advectio.errors import UserError  # noqa: E402
from advectio.live import datasets, engine  # noqa: E402
from advectio.live.stream import Frame  # noqa: E402

SCHEMA = {
    "format": "netCDF-4",
    "dimensions": [{"name": "Time", "length": 0, "unlimited": True}, {"name": "x", "length": 3, "unlimited": False}],
    "variables": [
        {
            "name": "T",
            "type": "float",
            "dimensions": [0, 1],
            "fill": "",
            "attributes": [{"name": "units", "type": "char", "count": 1, "bytes": base64.b64encode(b"K").decode()}],
        },
        {"name": "HGT", "type": "int", "dimensions": [1], "fill": "", "attributes": []},
    ],
    "attributes": [],
}


class Server:
    """Gives the frame's number as the value of T."""

    def read(self, keep, frame, variable, start, count, stride, dtype):
        return np.full(count, start[0] if variable == 0 else 7, dtype)

    def done(self, frame):
        pass


def in_memory(number):
    fields = [{"variable": 0, "start": [number, 0], "count": [1, 3]}, {"variable": 1, "start": [0], "count": [3]}]
    about = {"frame": number + 1, "path": "a.nc", "number": number, "in_memory": True, "fields": fields}
    return datasets.in_memory(Frame(about, Server(), SCHEMA), None)


def test_the_record_dimension_is_known_of_a_frame_in_memory():
    assert in_memory(0).encoding["unlimited_dims"] == {"Time"}


@pytest.mark.parametrize("frames", [1, 2, 3])
def test_frames_of_one_record_each_are_joined_to_as_many_records(frames):
    ds = engine._joined([in_memory(k) for k in range(frames)])
    assert dict(ds.sizes) == {"Time": frames, "x": 3}
    assert ds.T.values.tolist() == [[k] * 3 for k in range(frames)]
    assert ds.HGT.values.tolist() == [7, 7, 7]
    assert ds.encoding["unlimited_dims"] == {"Time"}


def history(path, value):
    ds = xr.Dataset({f"V{k}": (("Time", "x"), np.full((2, 3), value + k)) for k in range(20)})
    ds.to_netcdf(path, unlimited_dims=["Time"])


def in_file(path, number, commit=lambda path: None):
    return datasets.from_file(Frame({"path": str(path), "number": number}, None, None, commit), None)


def values(ds):
    return [float(v.values[0, 0]) for v in ds.variables.values()]


def test_a_file_is_opened_once_for_many_variables_and_not_kept_open(tmp_path, monkeypatch):
    path = tmp_path / "a.nc"
    history(path, 0)
    opened = []
    real = xr.open_dataset
    monkeypatch.setattr(datasets, "_OPEN_S", 5.0)  # no machine is as slow
    monkeypatch.setattr(datasets.xr, "open_dataset", lambda *a, **k: opened.append(real(*a, **k)) or opened[-1])
    assert values(in_file(path, 0)) == values(in_file(path, 1)) == list(range(20))
    assert len(opened) == 1
    until = time.monotonic() + 60
    while datasets._open_files._files and time.monotonic() < until:
        time.sleep(0.05)
    assert not datasets._open_files._files


def test_a_file_that_has_changed_is_opened_again(tmp_path):
    path = tmp_path / "a.nc"
    history(path, 0)
    assert values(in_file(path, 0))[0] == 0
    history(tmp_path / "next.nc", 100)
    os.replace(tmp_path / "next.nc", path)
    assert values(in_file(path, 0))[0] == 100
    commits = iter([2, 2, 4, 4])  # before and after: a look at the names, and one at a value
    opened = datasets._open_files._files[str(path)][0]
    found = in_file(path, 0, lambda path: next(commits))
    assert float(found.V0.values[0, 0]) == 100
    assert datasets._open_files._files[str(path)][0] is not opened


def test_a_file_that_was_renamed_is_found_in_its_directory(tmp_path):
    path = tmp_path / "a.nc.tmp"
    history(path, 0)
    inode = path.stat().st_ino
    frame = Frame({"path": str(path), "number": 1, "inode": inode}, None, None, lambda path: None)
    os.link(path, tmp_path / ".hidden")
    os.rename(path, tmp_path / "a.nc")
    assert values(datasets.from_file(frame, None)) == list(range(20))
    history(path, 100)  # the next file is written by the same name
    assert values(datasets.from_file(frame, None)) == list(range(20))
    assert values(pickle.loads(pickle.dumps(datasets.from_file(frame, None)))) == list(range(20))
    (tmp_path / "a.nc").unlink()
    path.unlink()
    with pytest.raises(UserError, match=r"a\.nc\.tmp: .*No such file"):
        datasets.from_file(frame, None)
