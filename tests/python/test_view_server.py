"""advectio view: what the server answers, held against the data it was given."""

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

for package in ("xarray", "starlette", "uvicorn"):
    pytest.importorskip(package, reason=f"{package} is not installed")
import uvicorn  # noqa: E402
import xarray as xr  # noqa: E402
from advectio.protocol import Status  # noqa: E402
from advectio.view import Address, fields, progress  # noqa: E402
from advectio.view.frames import Frames  # noqa: E402
from advectio.view.server import Dashboard, _listen, _Server  # noqa: E402
from forked import PICTURES, forks  # noqa: E402
from shapes import must_fit  # noqa: E402

TOKEN = "a-token"


def frame(number: int, **more) -> xr.Dataset:
    values = np.random.default_rng(number).normal(size=(3, 20, 30)).astype(np.float32)
    made = xr.Dataset(
        {
            "T": (("z", "y", "x"), values, {"units": "K", "description": "temperature"}),
            "RAIN": (("y", "x"), np.full((20, 30), float(number), np.float32)),
            "Times": ((), f"2024-05-11_{number % 24:02}:00:00".encode()),
            **more,
        }
    )
    made.encoding = {"source": "/data/wrfout_d01_2024-05-11_00:00:00", "advectio_frame": number}
    return made


class Served:
    def __init__(self, keep: int | None = None) -> None:
        self.frames = Frames(keep)
        self.dashboard = Dashboard(self.frames, live=False)
        listener = _listen(0)
        self.port = listener.getsockname()[1]
        config = uvicorn.Config(self.dashboard.app(TOKEN), log_level="error", lifespan="off", timeout_graceful_shutdown=2)
        self._server = _Server(config, self.dashboard.closing)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listener]})
        self._thread.start()

    def close(self) -> None:
        self._server.handle_exit(signal.SIGTERM, None)
        self._thread.join(20)
        assert not self._thread.is_alive()

    def get(self, path: str, token: str = TOKEN) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{token}/{path}", timeout=20) as answer:
            return answer.read()

    def json(self, path: str):
        return json.loads(self.get(path))

    def refused(self, path: str, token: str = TOKEN) -> tuple[int, str]:
        with pytest.raises(urllib.error.HTTPError) as caught:
            self.get(path, token)
        return caught.value.code, caught.value.read().decode()


class Events:
    """A browser that listens, and reads when it is told to."""

    def __init__(self, served: Served) -> None:
        self._link = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
        self._link.request("GET", f"/{TOKEN}/events")
        self._answer = self._link.getresponse()

    def next(self) -> dict:
        while True:
            line = self._answer.readline()
            assert line, "the stream has ended"
            if line.startswith(b"data: "):
                return json.loads(line[6:])

    def until(self, seen: int) -> dict:
        while True:
            state = self.next()
            if state["streams"] and state["streams"][0]["seen"] >= seen:
                return state

    def close(self) -> None:
        self._link.close()


@pytest.fixture
def served():
    made = Served()
    yield made
    made.close()


@pytest.mark.parametrize("path", ["", "page/app.js", "events", "streams/wrfout_d01", "streams/wrfout_d01/field?variable=T"])
@pytest.mark.parametrize("token", ["", "another", TOKEN + "x", "ä"])
def test_without_its_token_every_address_is_refused(served, path, token):
    code, words = served.refused(path, urllib.request.quote(token))
    assert code == 401 and "token" in words and TOKEN not in words


def test_the_page_and_all_that_it_names_are_files_of_the_package(served):
    page = served.get("").decode()
    assert "http" not in page.replace("http-equiv", "")
    folder = Path(fields.__file__).parent / "page"
    for file in folder.iterdir():
        assert served.get(f"page/{file.name}") == file.read_bytes()
    assert served.refused("page/none.js")[0] == 404
    assert served.refused("page/..%2Fserver.py")[0] == 404


def test_a_plane_comes_back_as_it_was_within_a_step(served):
    data = frame(0)
    served.frames.add(data)
    header, values = fields.unpacked(served.get("streams/wrfout_d01/field?variable=T&at=2"))
    real = data["T"].values[2]
    assert (
        header["low"] == real.min() and header["high"] == real.max() and header["mean"] == pytest.approx(real.mean(), abs=1e-6)
    )
    assert header["frame"]["label"] == "2024-05-11 00:00:00" and header["pool"] == "mean" and header["factors"] == [1, 1]
    assert np.abs(values - real).max() < (real.max() - real.min()) / 65534


def test_sections_profiles_and_their_places(served):
    y, x = np.mgrid[0:20, 0:30].astype(float)
    places = {"lat": (("y", "x"), 40 - y, {"units": "degrees_north"}), "lon": (("y", "x"), 350 + x, {"units": "degrees_east"})}
    data = frame(0, **places)
    served.frames.add(data)
    served.frames.add(frame(1))
    values = data["T"].values
    at = "streams/wrfout_d01"
    header, plane = fields.unpacked(served.get(f"{at}/field?variable=T&cut=row&at=7&frame=0&width=10&height=3"))
    assert header["factors"] == [1, 3] and header["box"] == [0, 0, 30, 3], "levels keep their own pixels"
    assert plane == pytest.approx(values[:, 7].reshape(3, 10, 3).mean(2), abs=1e-3)
    found = served.json(f"{at}/value?variable=T&cut=column&at=4&frame=0&y=2&x=7")
    assert (found["value"], found["lat"], found["lon"]) == (pytest.approx(float(values[2, 7, 4])), 33, -6)
    found = served.json(f"{at}/value?variable=T&cut=row&at=7&frame=0&y=2&x=4")
    assert (found["value"], found["lat"], found["lon"]) == (pytest.approx(float(values[2, 7, 4])), 33, -6)
    assert served.json(f"{at}/profile?variable=T&at=&frame=0&y=7&x=4")["values"] == pytest.approx(values[:, 7, 4].tolist())
    series = served.json(f"{at}/series?variable=T&cut=row&at=7&y=2&x=4")["values"]
    assert [v[3] for v in series] == pytest.approx([float(values[2, 7, 4]), float(frame(1)["T"].values[2, 7, 4])])
    assert served.refused(f"{at}/series?variable=T&cut=row&at=7&y=3&x=4") == (400, "x 4, y 3 lies outside of 30 × 3 cells\n")
    assert served.refused(f"{at}/field?variable=T&cut=row&at=20")[0] == 404
    assert served.refused(f"{at}/field?variable=RAIN&cut=row&at=0")[0] == 400
    assert served.refused(f"{at}/field?variable=T&cut=slice&at=0") == (400, "cut is one of map, row, column; not slice\n")


def test_a_box_is_pooled_to_the_pixels_of_the_screen(served):
    data = frame(0)
    served.frames.add(data)
    header, values = fields.unpacked(
        served.get("streams/wrfout_d01/field?variable=T&at=0&box=4,2,24,16&width=10&height=7&pool=max")
    )
    real = data["T"].values[0, 2:16, 4:24].reshape(7, 2, 10, 2).max(axis=(1, 3))
    assert header["box"] == [4, 2, 24, 16] and header["factors"] == [2, 2] and header["shape"] == [7, 10]
    assert np.abs(values - real).max() < 1e-3


def test_what_is_not_there_is_said_in_words(served):
    assert served.refused("streams/wrfout_d01") == (404, "no frame of wrfout_d01 has come yet\n")
    served.frames.add(frame(0))
    field = "streams/wrfout_d01/field?"
    assert served.refused(field + "variable=W") == (404, "W is not in frame 0 (2024-05-11 00:00:00)\n")
    assert served.refused(field + "variable=T&at=3") == (404, "T has (3,) levels of (20, 30) cells; asked for: 3\n")
    assert served.refused(field + "variable=T")[0] == 404
    assert served.refused(field + "variable=T&at=0&frame=9") == (404, "frame 9 of wrfout_d01 is no longer kept\n")
    assert served.refused(field) == (400, "variable is missing in the request\n")
    assert served.refused(field + "variable=T&at=0&box=50,0,60,10")[0] == 400
    assert served.refused("streams/wrfout_d01/value?variable=T&at=0&x=30&y=0")[0] == 400
    assert served.refused("streams/wrfout_d01/series?variable=T&at=0&x=30&y=0")[0] == 400


def test_a_point_is_exact(served):
    data = frame(0)
    served.frames.add(data)
    assert served.json("streams/wrfout_d01/value?variable=T&at=1&x=7&y=3")["value"] == float(data["T"].values[1, 3, 7])


def test_statistics_are_of_the_level_or_of_the_whole_field(served):
    data = frame(0)
    served.frames.add(data)
    whole = served.json("streams/wrfout_d01/stats?variable=T&at=1&whole=1")
    level = served.json("streams/wrfout_d01/stats?variable=T&at=1")
    for found, real in ((whole, data["T"].values), (level, data["T"].values[1])):
        assert (found["min"], found["max"], found["cells"]) == (real.min(), real.max(), real.size)
        assert found["mean"] == pytest.approx(real.mean(dtype=float))


def test_a_series_has_the_frames_kept_and_grows_with_each_that_comes(served):
    query = "streams/wrfout_d01/series?variable=RAIN&x=1&y=2"
    for number in range(3):
        served.frames.add(frame(number))
    assert [v[3] for v in served.json(query)["values"]] == [0, 1, 2]
    for number in range(3, 6):
        served.frames.add(frame(number))
    assert [(v[0], v[3]) for v in served.json(query)["values"]] == [(n, n) for n in range(6)]


def test_of_a_live_run_only_the_newest_frames_are_held_and_the_planes_that_were_seen():
    served = Served(keep=2)
    try:
        for number in range(5):
            served.frames.add(frame(number))
            if number == 1:
                served.get("streams/wrfout_d01/field?variable=RAIN")
        kept = [f["number"] for f in served.json("streams/wrfout_d01")["frames"] if f["kept"]]
        assert kept == [3, 4]
        assert served.refused("streams/wrfout_d01/field?variable=RAIN&frame=0")[0] == 404
        header, _ = fields.unpacked(served.get("streams/wrfout_d01/field?variable=RAIN&frame=1"))
        assert header["low"] == 1
        assert [v[0] for v in served.json("streams/wrfout_d01/series?variable=RAIN&x=1&y=2")["values"]] == [1, 3, 4]
    finally:
        served.close()


def test_a_browser_that_reads_late_gets_the_newest_frame_only():
    frames = Frames(keep=None)
    frames.add(frame(0))

    async def read_late() -> list[str]:
        events = Dashboard(frames, live=False)._event_stream()
        said = [await anext(events), await anext(events)]
        for number in range(1, 40):
            frames.add(frame(number))
            await asyncio.sleep(0)
        said.append(await anext(events))
        await events.aclose()
        return said

    first, last = (json.loads(event.split("data: ")[1]) for event in asyncio.run(read_late())[1:])
    assert first["streams"][0]["seen"] == 1
    assert last["streams"][0]["seen"] == 40 and last["streams"][0]["latest"]["number"] == 39
    assert not frames.listeners


def test_two_browsers_hear_of_the_same_frames_and_one_that_leaves_is_forgotten(served):
    one, two = Events(served), Events(served)
    one.next(), two.next()
    served.frames.add(frame(0))
    assert one.until(1)["streams"] and two.until(1)["streams"]
    one.close()
    until = time.monotonic() + 20
    while len(served.frames.listeners) > 1 and time.monotonic() < until:
        served.frames.add(frame(1))
        time.sleep(0.05)
    assert len(served.frames.listeners) == 1
    seen = served.frames.stream("wrfout_d01").seen
    assert two.until(seen)["streams"][0]["latest"]["number"] == seen - 1
    two.close()


def test_a_source_that_fails_is_told_and_asked_again(served, monkeypatch):
    monkeypatch.setattr("advectio.view.frames.RETRY_S", 0.01)
    turns = iter(range(3))

    def source():
        turn = next(turns)
        yield frame(turn)
        if turn < 2:
            raise RuntimeError("the server\nhas gone")

    told = []
    served.frames.listeners.add(lambda: told.append((served.frames.state, served.frames.why)))
    served.frames.follow(source, again=True)
    assert told == [("live", ""), ("reconnecting", "the server has gone")] * 2 + [("live", ""), ("ended", "")]
    assert served.frames.stream("wrfout_d01").seen == 3


def test_progress_adds_up_the_datasets_of_the_run():
    dataset = {"frames_synced": 3, "frames_visible": 2, "frames_durable": 1, "frames_dropped": 0, "error": None}
    spreads = {"stall_s": {"median": 0.1, "max": 0.4}, "to_visible_s": {"median": 1.5, "max": 2.0}}
    status: Status = {
        "run_dir": "/run",
        "datasets": [dataset | spreads, dataset | {"stall_s": None, "to_visible_s": None, "error": "disk full"}],
        "stage": {"backlog_bytes": 7, "bytes_max": 9},
        "writers": [{"alive": True}, {"alive": False}],
        "errors": [],
    }  # type: ignore[typeddict-item]
    found = progress.summary(status)
    assert (found["frames_synced"], found["frames_visible"], found["writers"]) == (6, 4, 1)
    assert (found["stall_median_s"], found["stall_max_s"], found["to_visible_s"]) == (0.1, 0.4, 1.5)
    assert found["errors"] == ["disk full"]


@pytest.fixture
def file(tmp_path) -> Path:
    pytest.importorskip("netCDF4", reason="netCDF4 is not installed")
    path = tmp_path / "wrfout_d01_2024-05-11_00:00:00"
    xr.concat([frame(n) for n in range(3)], "Time").to_netcdf(path, unlimited_dims=["Time"])
    return path


def view(*arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "advectio", "view", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_command_serves_files_until_ctrl_c_with_browsers_looking(file):
    process = view("--json", "--pace", "0s", str(file))
    try:
        said = json.loads(process.stdout.readline())
        must_fit(said, Address)
        assert said["url"] == f"http://127.0.0.1:{said['port']}/{said['token']}/"
        stream = urllib.request.urlopen(said["url"] + "events", timeout=20)
        while b'"seen": 3' not in stream.readline():
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_what_is_wrong_with_the_arguments_is_one_line(file):
    def told(*arguments: str) -> str:
        done = forks((*PICTURES, "advectio.view.server")).run(
            ["view", *arguments], env=os.environ, cwd=file.parent, timeout_s=60
        )
        assert done.returncode == 2
        return done.stderr

    assert told("no-such-file") == "advectio: error: no-such-file: no such file; of a run under way say --live\n"
    listener = _listen(0)
    port = listener.getsockname()[1]
    assert told("--port", str(port), str(file)).startswith(
        f"advectio: error: cannot listen on port {port}: Address already in use"
    )
    listener.close()
    assert "--live takes one pattern" in told("--live", "a*", "b*")
    assert (
        told("--contact", "advectio.contact", str(file))
        == "advectio: error: --contact names the run that --live follows; give --live too\n"
    )
    both = told("--live", "a*", "--run", "/dev/shm/r", "--contact", "advectio.contact")
    assert "either --run, of this node, or --contact, of another one" in both


def test_a_package_that_is_missing_is_named_with_what_installs_it(tmp_path, file):
    (tmp_path / "uvicorn.py").write_text("raise ModuleNotFoundError(\"No module named 'uvicorn'\", name='uvicorn')\n")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "advectio", "view", str(file)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "advectio: error: advectio view needs the Python package uvicorn: pip install 'advectio[view]'\n"
