"""Every opening of a file, every look into it and its closing happen under one lock, whoever asks."""

import gc
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest

for package in ("xarray", "netCDF4", "starlette", "uvicorn"):
    pytest.importorskip(package, reason=f"{package} is not installed")
import netCDF4  # noqa: E402
import uvicorn  # noqa: E402
import xarray as xr  # noqa: E402
from advectio import open_files  # noqa: E402
from advectio.live import datasets  # noqa: E402
from advectio.live.stream import Frame  # noqa: E402
from advectio.pictures import frames as pictures  # noqa: E402
from advectio.view import sources  # noqa: E402
from advectio.view.frames import Frames, Plane  # noqa: E402
from advectio.view.server import Dashboard, _listen, _Server  # noqa: E402

FILES, FIELDS, TOKEN = 8, 5, "token"


class Lock:
    """Knows who has it."""

    def __init__(self):
        self._lock, self.owner = threading.Lock(), None

    def acquire(self, blocking=True):
        taken = self._lock.acquire(blocking=blocking)
        if taken:
            self.owner = threading.get_ident()
        return taken

    def release(self):
        self.owner = None
        self._lock.release()

    def __enter__(self):
        self.acquire()

    def __exit__(self, *_):
        self.release()


class Watch:
    """What netCDF4 was asked for: all, and by a thread that had not the lock."""

    def __init__(self):
        self.lock, self.asked, self.without = Lock(), set(), []

    def note(self, what):
        self.asked.add(what)
        if self.lock.owner != threading.get_ident():
            self.without.append((what, threading.current_thread().name))


@pytest.fixture
def paths(tmp_path):
    made = []
    for k in range(FILES):
        made.append(str(tmp_path / f"wrfout_d01_2001-01-01_{k:02}:00:00"))
        dims = ("Time", "y", "x")
        ds = xr.Dataset({f"v{i}": (dims, np.full((1, 6, 7), 10.0 * k + i, "f4"), {"units": "K"}) for i in range(FIELDS)})
        ds["XLAT"] = (dims[1:], 40 + np.arange(42.0).reshape(6, 7))
        ds["XLONG"] = (dims[1:], np.arange(42.0).reshape(6, 7))
        ds["Times"] = (("Time",), np.array([f"2001-01-01_{k:02}:00:00".encode()]))
        ds.to_netcdf(made[-1], unlimited_dims=["Time"])
    return made


@pytest.fixture
def watch(monkeypatch, paths):  # once the files are made
    made, real = Watch(), netCDF4.Dataset

    class Watched:
        def __init__(self, *args, **more):
            made.note("open")
            self._real = real(*args, **more)

        def __getattr__(self, name):  # `variables` before each reading of values
            made.note(name)
            return getattr(self._real, name)

    monkeypatch.setattr(open_files, "_lock", made.lock)
    monkeypatch.setattr(netCDF4, "Dataset", Watched)
    return made


def test_six_browsers_and_a_reader_of_zarr_ask_while_files_come(watch, paths):
    frames = Frames(keep=None)
    dashboard = Dashboard(frames, live=False, source=sources.Files(paths))
    listener = _listen(0)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}/{TOKEN}/"
    server = _Server(uvicorn.Config(dashboard.app(TOKEN), log_level="error", lifespan="off"), dashboard.closing)
    asked, wrong = threading.Barrier(7), []

    def slowly():
        """Each file comes while the browsers ask."""
        for frame in sources.replay(paths, 0):
            yield frame
            asked.wait(60)

    def ask(path, *expected):
        try:
            with urllib.request.urlopen(address + path, timeout=60) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            wrong.append((path, error.code, error.read()))

    def browser(number):
        for k in range(FILES):
            asked.wait(60)
            for i in range(FIELDS):
                ask(f"streams/wrfout_d01/field?variable=v{i}&at=&frame={(k + number) % (k + 1)}")
            ask(f"streams/wrfout_d01/stats?variable=v{number % FIELDS}&at=&frame=latest&whole=1")
            ask(f"streams/wrfout_d01/series?variable=v0&at=&frame=latest&x={number}&y={k % 6}")
            ask("zarr/wrfout_d01/.zmetadata" if number == 0 else f"zarr/wrfout_d01/v1/{k}.0.0")

    threads = [threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="server")]
    browsers = [threading.Thread(target=browser, args=(n,), name=f"browser {n}") for n in range(6)]
    threads += [threading.Thread(target=frames.follow, args=(slowly, False), name="follow"), *browsers]
    for thread in threads:
        thread.start()
    for thread in threads[1:]:
        thread.join(120)
    dashboard._groups._used = -1e9
    dashboard._groups._let_go()  # of its own accord after some seconds, in a thread of its own
    gc.collect()
    server.handle_exit(15, None)
    threads[0].join(20)
    assert (frames.state, wrong) == ("ended", [])
    assert frames.plane(frames.streams["wrfout_d01"], frames.streams["wrfout_d01"].frames[3], Plane("v2", ())).max() == 32
    assert {"open", "variables", "close"} <= watch.asked
    assert watch.without == []


def test_frames_that_are_in_files_are_read_and_closed_under_the_lock(watch, paths):
    found = datasets.from_file(Frame({"path": paths[1], "number": 0}, None, None, lambda path: None), None)
    assert float(found.v3.values[0, 0, 0]) == 13
    del found
    gc.collect()
    assert {"open", "variables", "close"} <= watch.asked
    assert watch.without == []


def test_what_is_drawn_is_read_under_the_lock(watch, paths):
    assert [record.index for record in pictures.records_of(paths)] == [0] * FILES
    with pictures.opened(paths[2]) as ds:
        assert float(ds.v4.values.max()) == 24 and ds.encoding["unlimited_dims"] == {"Time"}
    assert {"open", "variables", "close"} <= watch.asked
    assert watch.without == []


def test_a_file_that_nobody_refers_to_is_closed_by_the_one_who_has_the_lock(watch, paths):
    ds = open_files.opened(paths[0])
    part = ds.v1[0, 2:4]
    del ds
    gc.collect()
    assert "close" not in watch.asked  # the part still reads of it
    assert part.values.tolist() == [[1.0] * 7] * 2
    with open_files.alone():
        del part
        gc.collect()
        assert "close" not in watch.asked
    assert "close" in watch.asked
    assert watch.without == []


def test_a_file_opened_so_is_the_same_as_xarray_opens_it(paths):
    with xr.open_dataset(paths[3], decode_cf=False) as real, open_files.opened(paths[3]) as ours:
        xr.testing.assert_identical(ours, real)
        assert list(ours.variables) == list(real.variables) and ours.encoding == real.encoding
        assert all(ours[name].encoding == real[name].encoding for name in real.variables)
        some = {"Time": 0, "y": slice(None, None, -2), "x": [5, 1]}
        xr.testing.assert_identical(ours.isel(some), real.isel(some))
