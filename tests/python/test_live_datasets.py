"""Frames as datasets, of a made-up server."""

import base64
import fcntl
import gc
import os
import pickle

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


def opened_for(path):
    about = os.stat(path)
    return datasets._open.get((about.st_dev, about.st_ino))


def test_a_file_is_opened_once_for_many_variables_and_closed_with_the_last_frame(tmp_path, monkeypatch):
    path = tmp_path / "a.nc"
    history(path, 0)
    opened = []
    real = xr.open_dataset
    monkeypatch.setattr(datasets.xr, "open_dataset", lambda *a, **k: opened.append(1) or real(*a, **k))
    first, second = in_file(path, 0), in_file(path, 1)
    assert values(first) == values(second) == list(range(20))
    assert len(opened) == 1
    del first
    gc.collect()
    assert opened_for(path)
    del second
    gc.collect()
    assert not opened_for(path)
    descriptors = [f"/proc/self/fd/{d}" for d in os.listdir("/proc/self/fd")]
    assert str(path) not in [os.readlink(d) for d in descriptors if os.path.islink(d)]


def test_a_frame_that_is_read_from_a_file_does_not_keep_its_program_from_writing_it(tmp_path):
    path = tmp_path / "a.nc"
    history(path, 0)
    found = in_file(path, 0)
    assert values(found) == list(range(20))
    with open(path, "rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert opened_for(path)


def test_a_file_that_has_changed_is_opened_again(tmp_path):
    path = tmp_path / "a.nc"
    history(path, 0)
    first = in_file(path, 0)
    assert values(first)[0] == 0
    history(tmp_path / "next.nc", 100)
    os.replace(tmp_path / "next.nc", path)
    assert values(in_file(path, 0))[0] == 100
    assert values(first)[0] == 100
    commits = iter([2, 2, 4, 4])  # before and after: a look at the names, and one at a value
    opened = opened_for(path)
    found = in_file(path, 0, lambda path: next(commits))
    assert float(found.V0.values[0, 0]) == 100
    assert opened_for(path) is not opened


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
