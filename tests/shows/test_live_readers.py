"""Live readers, as a user has them: `advectio.frames` and the engine, beside a run."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import advectio
import netCDF4
import numpy as np
import pytest
import xarray as xr
from advectio.awaiting import subscribed
from advectio.errors import UserError
from advectio.live import engine, find
from advectio.live.stream import Node, stream
from advectio.protocol import status_of
from conftest import Pair
from running import ROOT, Running
from test_crashes import kill_server

sys.path.append(str(ROOT / "tests" / "readers"))
import plain_reader

WRITER = Path(__file__).parent / "programs" / "live" / "writer.py"
LISTEN = "readers: {listen: ['tcp:127.0.0.1:0']}\n"


def value(frame: int) -> np.ndarray[Any, Any]:
    """What live/writer.py puts into Q."""
    return frame * 1000.0 + np.arange(3 * 20 * 30).reshape(3, 20, 30)


class Collected(threading.Thread):
    """A reader in a thread: what it saw of each frame."""

    begun: ClassVar[list[Collected]] = []

    def __init__(self, run: str | None, take: Callable[[xr.Dataset], Any], match: Any = "out*.nc", **options: Any) -> None:
        super().__init__(daemon=True)
        self.seen: list[Any] = []
        self.error: BaseException | None = None
        self._each = lambda: advectio.frames(match, run=run, **options)
        self._take = take
        Collected.begun.append(self)
        self.start()

    def run(self) -> None:
        try:
            for ds in self._each():
                self.seen.append(self._take(ds))
        except BaseException as error:
            self.error = error

    def end(self) -> list[Any]:
        self.join(60)
        assert not self.is_alive(), f"still reading after {len(self.seen)} frames"
        if self.error:
            raise self.error
        return self.seen


def numbered(ds: xr.Dataset) -> int:
    k = int(ds.encoding["advectio_frame"])
    np.testing.assert_array_equal(ds.Q[0].values, value(k))
    assert float(ds.T2[0, 0, 0]) == k
    assert int(ds.HGT.sum()) == 600 * 599 // 2
    return k


@pytest.fixture
def start(pair: Pair) -> Iterator[Callable[..., tuple[Running, str]]]:
    Collected.begun.clear()

    def begin(*words: Any, config: str = "") -> tuple[Running, str]:
        running = pair.advectio.start([sys.executable, WRITER, *map(str, words)], pair.carried, config)
        running.wait_for(lambda: any("begins" in line for line in running.lines), "it had begun")
        return running, os.fspath(pair.advectio.run_dirs[-1])

    yield begin


def go_in(directory: Path) -> None:
    (directory / "go").touch()


def go(pair: Pair) -> None:
    go_in(pair.carried)


def go_when_subscribed(pair: Pair, others: int = 0) -> None:
    """The program writes when all readers are there that still live."""
    until = time.monotonic() + 120
    while subscribed(status_of(os.fspath(pair.advectio.run_dirs[-1]), 60.0)) < others + sum(
        reader.is_alive() for reader in Collected.begun
    ):
        assert time.monotonic() < until, "not all readers have subscribed"
        time.sleep(0.01)
    go(pair)


def wait_for_frames(running: Running, pair: Pair, frames: int) -> None:
    """The program has synced so many frames, and holds its file open; the server knows of all of them."""
    path, run = os.fspath(pair.carried / "out.nc"), os.fspath(pair.advectio.run_dirs[-1])

    def there() -> bool:
        try:
            found = engine.snapshot(path, run) if any("holds" in line for line in running.lines) else None
        except UserError:  # the server has read nothing of it yet
            return False
        return found is not None and found.sizes["Time"] == frames

    running.wait_for(there, f"the server knew {frames} frames")


def test_a_reader_gets_every_frame_with_its_values(start: Any, pair: Pair):
    running, run = start("out.nc", 6, 0.05)
    reader = Collected(run, numbered)
    go_when_subscribed(pair)
    assert running.finish().code == 0
    assert reader.end() == list(range(6))


def test_frames_in_memory_are_not_rounded_and_those_in_the_file_are(start: Any, pair: Pair):
    running, run = start("out.nc", 3, 0, "--hold", config="datasets: [{match: 'out*', round: {Q: 2}}]\n")
    reader = Collected(run, lambda ds: (numbered(ds), [name for name in ds.Q.attrs if "Quantize" in name]))
    go_when_subscribed(pair)
    running.wait_for(lambda: len(reader.seen) == 3 or not reader.is_alive(), "all frames were read")
    (pair.carried / "end").touch()
    assert running.finish().code == 0
    assert reader.end() == [(k, []) for k in range(3)]
    with netCDF4.Dataset(pair.carried / "out.nc") as file:
        assert file["Q"].getncattr("_QuantizeBitRoundNumberOfSignificantBits") == 2
        assert not np.array_equal(file["Q"][1], value(1))


def test_a_reader_that_waits_long_enough_for_a_frame_ends(start: Any, pair: Pair):
    running, run = start("out.nc", 2, 0.05)
    assert Collected(run, numbered, idle=0.1).end() == []
    go(pair)  # the run has not ended: it waits for this
    assert running.finish().code == 0


@pytest.mark.parametrize("policy", ["wait", "latest", "drop-oldest"])
def test_a_slow_reader_gets_what_its_policy_says(start: Any, pair: Pair, policy: str):
    running, run = start("out.nc", 20, 0.01)

    def slowly(ds: xr.Dataset) -> int:
        time.sleep(0.1)
        return numbered(ds)

    reader = Collected(run, slowly, policy=policy, depth=3)
    go_when_subscribed(pair)
    assert running.finish().code == 0
    seen = reader.end()
    assert seen == sorted(set(seen)) and seen[-1] == 19
    assert (len(seen) == 20) == (policy == "wait")


@pytest.mark.parametrize("config", ["", "datasets: [{match: '*', format: zarr}]\n"], ids=["file", "Zarr store"])
def test_who_joins_late_gets_what_it_asks_of_the_past(start: Any, pair: Pair, config: str):
    running, run = start("out.nc", 12, 0.1, config=config)
    go(pair)
    running.wait_for(lambda: sum("synced" in line for line in running.lines) >= 6, "six frames were synced")
    reader = Collected(run, numbered, history=4)
    assert running.finish().code == 0
    seen = reader.end()
    assert seen == list(range(seen[0], 12)) and 1 <= seen[0] <= 6


@pytest.mark.parametrize("again", [False, True], ids=["", "its first name is that of another file"])
def test_frames_of_a_file_that_was_renamed_are_found(start: Any, pair: Pair, again: bool):
    """Its frames come from the file: they are of before."""
    running, run = start("out.nc", 12, 0, "--hold")
    go(pair)
    wait_for_frames(running, pair, 12)
    (pair.carried / "out.nc").rename(pair.carried / "final.nc")
    if again:
        with netCDF4.Dataset(pair.carried / "out.nc", "w") as other:
            other.createDimension("Time", 0)
    reader = Collected(run, numbered, history=12)
    running.wait_for(lambda: len(reader.seen) >= 6 or not reader.is_alive(), "half of them were read")
    (pair.carried / "end").touch()
    assert running.finish().code == 0
    assert reader.end() == list(range(12))


RENAMING = """
import os, sys
import numpy as np
import netCDF4
for step in range(3):
    with netCDF4.Dataset(f"step{step}.nc.tmp", "w") as f:
        f.createDimension("time", None)
        v = f.createVariable("v", "f8", ("time",))
        for k in range(4):
            v[k] = 10 * step + k
            f.sync()
    os.rename(f"step{step}.nc.tmp", f"step{step}.nc")
"""


@pytest.mark.parametrize(("match", "ending"), [("step*.nc", ".nc"), ("step*", ".nc.tmp"), ("step*.tmp", ".nc.tmp")])
def test_a_pattern_matches_the_name_to_which_a_model_renames_its_file(pair: Pair, tmp_path: Path, match: str, ending: str):
    program = f"""
import advectio, sys
for ds in advectio.frames({match!r}, run="RUN", wait=60):
    print(float(ds.v.values.ravel()[-1]), ds.encoding["source"].endswith({ending!r}), flush=True)
"""
    run = pair.advectio.new_run_dir()
    program = program.replace("RUN", str(run))
    reader = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    options = ["--wait-for-readers", "1"]
    running = pair.advectio.start([sys.executable, "-c", RENAMING], pair.carried, run_dir=run, options=options)
    assert running.finish().code == 0, running.said
    said, _ = reader.communicate(timeout=60)
    assert said.splitlines() == [f"{10.0 * step + k} True" for step in range(3) for k in range(4)]


@pytest.mark.parametrize("kills", [1, 3])
def test_no_frame_is_missed_or_comes_twice_when_the_server_is_killed(start: Any, pair: Pair, kills: int):
    running, run = start("out.nc", 40, 0.05)
    reader = Collected(run, numbered)
    go_when_subscribed(pair)
    for n in range(kills):
        running.wait_for(lambda n=n: sum("synced" in line for line in running.lines) >= 5 + 8 * n, "some were synced")
        kill_server(running, pair.advectio.run_dirs[-1])
    assert running.finish().code == 0
    assert reader.end() == list(range(40))


def test_readers_that_are_killed_or_stopped_harm_nobody(start: Any, pair: Pair):
    running, run = start("out.nc", 30, 0.05)
    program = f"import advectio\nfor ds in advectio.frames('out*.nc', run={run!r}): ds.Q[0].values; print('read', flush=True)"
    others = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    reader = Collected(run, numbered)
    go_when_subscribed(pair, len(others))
    for other, sign in zip(others, (signal.SIGKILL, signal.SIGSTOP), strict=True):
        assert other.stdout is not None and other.stdout.readline() == "read\n"
        other.send_signal(sign)
    try:
        result = running.finish()
        assert result.code == 0
        assert reader.end() == list(range(30))
        assert result.summary["stage"]["waits"] == 0
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_an_array_is_a_view_of_the_stage_and_stays_as_it_is(start: Any, pair: Pair):
    running, run = start("out.nc", 40, 0.02)
    kept: list[np.ndarray[Any, Any]] = []

    def keep_some(ds: xr.Dataset) -> int:
        if len(kept) < 3:
            array = ds.Q.variable._data.array  # as the backend gives it
            kept.append(array[xr.core.indexing.BasicIndexer((0, slice(None), slice(None), slice(None)))])
        return numbered(ds)

    reader = Collected(run, keep_some)
    go_when_subscribed(pair)
    assert running.finish().code == 0
    assert reader.end() == list(range(40))
    for k, array in enumerate(kept):
        assert not array.flags.writeable and not array.flags.owndata
        with pytest.raises(ValueError):
            array.setflags(write=True)
        np.testing.assert_array_equal(array, value(k))


def test_arrays_of_before_the_kill_of_a_server_stay_as_they_are(start: Any, pair: Pair):
    config = "stage: {bytes_max: 8MiB, segment_bytes: 1MiB, warm_bytes: 1MiB}\n"
    running, run = start("out.nc", 150, 0.01, "--levels", 40, "--deflate", config=config)
    kept: list[tuple[int, np.ndarray[Any, Any]]] = []

    def keep_some(ds: xr.Dataset) -> int:
        k = int(ds.encoding["advectio_frame"])
        array = ds.Q.variable._data.array  # as the backend gives it
        if len(kept) < 8:
            kept.append((k, array[xr.core.indexing.BasicIndexer((0, slice(None), slice(None), slice(None)))]))
        return k

    reader = Collected(run, keep_some, decode=False)
    go_when_subscribed(pair)
    for after in (3, 6):
        running.wait_for(lambda after=after: sum("synced" in line for line in running.lines) >= after, "some were synced")
        kill_server(running, pair.advectio.run_dirs[-1])
    assert running.finish().code == 0
    assert reader.end() == list(range(150))
    for k, array in kept:
        np.testing.assert_array_equal(array, k * 1000.0 + np.arange(40 * 600.0).reshape(40, 20, 30))


def test_a_reader_that_has_taken_no_frame_yet_misses_none_when_the_server_is_killed(start: Any, pair: Pair):
    running, run = start("out.nc", 8, 0.05)
    reader = stream("out*.nc", run=run)
    threading.Timer(0.3, go, [pair]).start()
    first = next(reader)  # subscribed before the program wrote
    node = Node(lambda: find.connect_node(run), {"match": ["out*.nc"], "policy": "wait"}, lambda: not os.path.exists(run))
    behind = node._last
    running.wait_for(lambda: sum("synced" in line for line in running.lines) >= 4, "four were synced")
    kill_server(running, pair.advectio.run_dirs[-1])
    seen = []
    while not node.ended or node._rest:
        if (frame := node.next(1.0)) is not None:
            seen.append(frame.number)
    assert first.number == 0 and behind is not None
    assert seen == list(range(behind, 8))
    assert running.finish().code == 0


def test_readers_get_the_last_frames_also_of_a_server_that_dies_at_the_end(start: Any, pair: Pair):
    running, run = start("out.nc", 12, 0.01, "--hold", 12)

    def slowly(ds: xr.Dataset) -> int:
        time.sleep(0.05)
        return numbered(ds)

    readers = [Collected(run, slowly) for _ in range(2)]
    go_when_subscribed(pair)
    running.wait_for(lambda: any("holds" in line for line in running.lines), "all frames were synced")
    kill_server(running, pair.advectio.run_dirs[-1])
    (pair.carried / "end").touch()
    assert running.finish().code == 0
    assert [r.end() for r in readers] == [list(range(12))] * 2


def test_a_frame_that_was_closed_says_so(start: Any, pair: Pair):
    # Until the reader has closed it: what has not been read at the end of the run is read from the file.
    running, run = start("out.nc", 2, 0.01, "--hold")

    def close_first(ds: xr.Dataset) -> str:
        ds.close()
        with pytest.raises(UserError) as error:
            ds.Q.values  # noqa: B018
        (pair.carried / "end").touch()
        return str(error.value)

    reader = Collected(run, close_first)
    go_when_subscribed(pair)
    assert running.finish().code == 0
    assert reader.end()[0] == f"frame 0 of {pair.carried / 'out.nc'} was closed"


def test_workers_of_a_group_share_the_frames(start: Any, pair: Pair):
    running, run = start("out.nc", 20, 0.02)
    workers = [Collected(run, numbered, group="farm") for _ in range(2)]
    go_when_subscribed(pair)
    assert running.finish().code == 0
    seen = [w.end() for w in workers]
    assert set(seen[0]).isdisjoint(seen[1])
    assert sorted(seen[0] + seen[1]) == list(range(20))


def test_several_files_each_with_its_frames(start: Any, pair: Pair):
    running, run = start("out_{}.nc", 9, 0.01, "--per-file", 3)
    reader = Collected(run, lambda ds: (Path(ds.encoding["source"]).name, numbered_in(ds)))
    go_when_subscribed(pair)
    assert running.finish().code == 0
    assert reader.end() == [(f"out_{f}.nc", k) for f in range(3) for k in range(3)]


def numbered_in(ds: xr.Dataset) -> int:
    assert ds.Q[0].values.shape == (3, 20, 30)
    return int(ds.encoding["advectio_frame"])


def test_only_the_variables_that_are_wanted_and_their_coordinates(start: Any, pair: Pair):
    running, run = start("out.nc", 1, 0.01)
    reader = Collected(run, lambda ds: sorted(ds.variables), variables=["T2"])
    wrong = Collected(run, numbered, variables=["T22"])
    go_when_subscribed(pair)
    assert running.finish().code == 0
    assert reader.end() == [["T2", "Time", "Times"]]
    with pytest.raises(UserError, match="there is no variable T22; is T2 meant"):
        wrong.end()


def test_times_are_decoded_and_dask_may_be_used(start: Any, pair: Pair):
    pytest.importorskip("dask", reason="dask is not installed")
    running, run = start("out.nc", 2, 0.01)
    reader = Collected(run, lambda ds: (str(ds.Time.values[0]), float(ds.Q.mean().compute())), chunks={})
    go_when_subscribed(pair)
    assert running.finish().code == 0
    seen = reader.end()
    assert seen[1] == ("2005-08-28T00:01:00.000000000", float(value(1).mean()))


def test_frames_come_to_async_programs(start: Any, pair: Pair):
    running, run = start("out.nc", 5, 0.05)

    async def read() -> list[int]:
        return [numbered(ds) async for ds in advectio.aframes("out*.nc", run=run)]

    threading.Timer(0.5, go, [pair]).start()
    assert asyncio.run(read()) == list(range(5))
    assert running.finish().code == 0


def test_the_engine_opens_a_file_in_flight_as_far_as_it_was_synced(start: Any, pair: Pair):
    running, _ = start("out.nc", 4, 0.05, "--hold", 4)
    go(pair)
    wait_for_frames(running, pair, 4)
    with xr.open_dataset(pair.carried / "out.nc", engine="advectio") as ds:
        assert ds.sizes["Time"] == 4
        for k in range(4):
            np.testing.assert_array_equal(ds.Q[k].values, value(k))
        np.testing.assert_array_equal(ds.Q[::-2, 1, 3:5].values, np.stack([value(k)[1, 3:5] for k in (3, 1)]))
        assert int(ds.HGT.sum()) == 600 * 599 // 2
        assert str(ds.T2.attrs["units"]) == "K"
    (pair.carried / "end").touch()
    assert running.finish().code == 0
    with xr.open_dataset(pair.carried / "out.nc", engine="advectio") as ds:
        assert ds.sizes["Time"] == 4


def test_processes_of_dask_get_what_is_in_flight(start: Any, pair: Pair):
    pytest.importorskip("dask", reason="dask is not installed")
    running, run = start("out.nc", 3, 0.05, "--hold")
    go(pair)
    wait_for_frames(running, pair, 3)
    path = pair.carried / "out.nc"
    ds = next(advectio.frames("out.nc", run=run, history=1, chunks={}))
    with xr.open_dataset(path, engine="advectio", run=run, chunks={}) as snapshot:
        for there, mean in ((ds.Q, value(2).mean()), (snapshot.Q, value(1).mean())):
            assert float(there.mean().compute(scheduler="processes", num_workers=1)) == mean
        assert list(pickle.loads(pickle.dumps(snapshot)).T2[:, 0, 0].values) == [0, 1, 2]
        (pair.carried / "end").touch()
        assert running.finish().code == 0
        complete = pickle.dumps(snapshot.Q.variable)
        assert len(complete) < value(0).nbytes, "the values of a file that is complete were sent along"
        np.testing.assert_array_equal(pickle.loads(complete)[1].values, value(1))


def test_a_reader_written_from_the_protocol_alone_gets_the_values_over_tcp(start: Any, pair: Pair):
    running, _ = start("out.nc", 5, 0.05, config=LISTEN)
    frames = plain_reader.Frames(plain_reader.Connection(os.fspath(pair.carried / "advectio.contact")), "out*.nc")
    go(pair)
    seen = []
    for frame in frames:
        q = frames.read(frame, "Q")
        assert q.values == list(value(frame["number"]).ravel())
        assert q.start == [frame["number"], 0, 0, 0] and q.count == [1, 3, 20, 30]
        assert b"".join(frames.read(frame, "Times").values).startswith(b"2005-08-28_00:0")
        assert frames.read(frame, "HGT").values == list(range(600))
        seen.append(frame["number"])
    assert seen == list(range(5))
    assert running.finish().code == 0


def test_a_reader_that_has_only_the_contact_file_gets_every_frame(start: Any, pair: Pair):
    running, _ = start("out.nc", 10, 0.02, config=LISTEN)
    contact = os.fspath(pair.carried / "advectio.contact")
    reader = Collected(None, numbered, contact=contact)
    go_when_subscribed(pair)
    assert running.finish().code == 0
    assert reader.end() == list(range(10))
    assert not os.path.exists(contact)


def test_a_reader_elsewhere_still_has_the_last_frame_when_there_is_no_other(start: Any, pair: Pair):
    """It has it while it asks for the next one, as a loop does."""
    running, run = start("out.nc", 3, 0.02, config=LISTEN)
    contact = os.fspath(pair.carried / "advectio.contact")

    def last_frame() -> int:
        last = -1
        for ds in advectio.frames("out*.nc", contact=contact):
            last = numbered(ds)
        assert subscribed(status_of(run, 60.0)) == 1, "the run waits for those that have frames of it"
        return last

    with concurrent.futures.ThreadPoolExecutor() as pool:
        last = pool.submit(last_frame)
        while subscribed(status_of(run, 60.0)) < 1:
            assert not last.done()
            time.sleep(0.01)
        go(pair)
        assert last.result(60) == 2
    assert running.finish().code == 0


FIRST_FRAMES = """
import advectio, gc, sys
from advectio.protocol import status_of
frames = advectio.frames("out*.nc", run=sys.argv[1])
for _ in range(3):
    ds = next(frames)
    ds.T2.values
del ds
gc.collect()
print([reader["frames_held"] for reader in status_of(sys.argv[1], 60.0)["readers"]["connected"]])
"""


def test_no_frame_is_held_that_a_program_has_let_go(start: Any, pair: Pair):
    """Also not the first one, with which the program imports what xarray needs."""
    running, run = start("out.nc", 3, 0.02, "--hold")
    reader = subprocess.Popen([sys.executable, "-c", FIRST_FRAMES, run], stdout=subprocess.PIPE, text=True)
    while subscribed(status_of(run, 60.0)) < 1:
        assert reader.poll() is None
        time.sleep(0.01)
    go(pair)
    assert reader.communicate(timeout=60)[0] == "[1]\n", "the generator has the last one until it is asked for the next"
    (pair.carried / "end").touch()
    assert running.finish().code == 0


def test_elsewhere_the_engine_and_the_commands_need_only_the_contact_file(
    start: Any, pair: Pair, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Of another node: the runs of this one are not there."""
    for package in ("starlette", "uvicorn", "matplotlib"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    running, _ = start("out.nc", 4, 0.05, "--hold", config=LISTEN)
    contact = os.fspath(pair.carried / "advectio.contact")
    monkeypatch.setattr(find.places, "runs", list)
    words = [sys.executable, "-m", "advectio"]
    options = ["--live", "out*.nc", "--contact", contact]
    plot = subprocess.Popen(
        [*words, "plot", *options, "--policy", "wait", "--map", "T2,file={frame}.png", "-o", tmp_path / "p"]
    )
    view = subprocess.Popen([*words, "view", *options, "--json"], stdout=subprocess.PIPE, text=True)
    try:
        assert view.stdout is not None
        url = json.loads(view.stdout.readline())["url"]
        go_when_subscribed(pair, 2)
        wait_for_frames(running, pair, 4)
        with xr.open_dataset(pair.carried / "out.nc", engine="advectio", contact=contact) as ds:
            np.testing.assert_array_equal(ds.Q[3].values, value(3))
        with urllib.request.urlopen(url + "zarr/out.nc/.zmetadata") as answer:
            assert json.load(answer)["metadata"]["Q/.zarray"]["shape"] == [4, 3, 20, 30]
        with urllib.request.urlopen(url + "zarr/out.nc/Q/3.0.0.0") as answer:
            np.testing.assert_array_equal(np.frombuffer(answer.read()).reshape(3, 20, 30), value(3))
        running.wait_for(lambda: (tmp_path / "p" / "3.png").exists(), "there was a picture of each frame")
        (pair.carried / "end").touch()
        assert running.finish().code == 0
        assert plot.wait(60) == 0
        assert sorted(p.name for p in (tmp_path / "p").iterdir()) == [f"{k}.png" for k in range(4)]
    finally:
        view.send_signal(signal.SIGINT)
        view.communicate(timeout=60)
        plot.kill()
        plot.wait()


def test_values_come_over_ucx_where_a_reader_wants_that(start: Any, pair: Pair):
    running, _ = start("out.nc", 6, 0.05, config=LISTEN)
    reader = Collected(None, numbered, contact=os.fspath(pair.carried / "advectio.contact"), transport="ucx")
    go_when_subscribed(pair)
    assert running.finish().code == 0
    try:
        assert reader.end() == list(range(6))
    except UserError as error:
        if "UCX" not in str(error) and "libucp" not in str(error):
            raise
        pytest.skip(str(error))


def test_a_stale_contact_file_is_said_to_be_stale(tmp_path: Path):
    contact = tmp_path / "advectio.contact"
    contact.write_text(
        json.dumps({"nodes": [{"addresses": ["tcp:127.0.0.1:1"], "secret": "x", "host": "here", "run_dir": "/gone", "pid": 1}]})
    )
    with pytest.raises(UserError, match="is stale: the run on here that wrote it does not answer"):
        next(advectio.frames("*", contact=os.fspath(contact)))
    contact.unlink()
    with pytest.raises(UserError, match=r"advectio\.contact: No such file or directory"):
        next(advectio.frames("*", contact=os.fspath(contact), wait=0))
    contact.write_text("{}")
    with pytest.raises(UserError, match="is no contact file of a run"):
        next(advectio.frames("*", contact=os.fspath(contact)))


def test_without_a_run_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(find.places, "runs", list)
    with pytest.raises(UserError, match=r"no run of yours is under way on this node\. Start one with `advectio run`"):
        next(advectio.frames("*", wait=0))
    with pytest.raises(UserError, match="transport='rdma': there are 'tcp' and 'ucx'"):
        next(advectio.frames("*", transport="rdma"))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="either run=, of this node, or contact=, of another one"):
        next(advectio.frames("*", run="/dev/shm/x", contact="advectio.contact"))
    with pytest.raises(UserError, match="there are 'wait', 'drop-oldest' and 'latest'"):
        next(advectio.frames("*", policy="newest"))  # type: ignore[arg-type]


def test_a_reader_elsewhere_may_come_before_its_run(pair: Pair):
    Collected.begun.clear()
    contact = pair.carried / "advectio.contact"
    reader = Collected(None, numbered, contact=os.fspath(contact), wait=60)
    running = pair.advectio.start([sys.executable, WRITER, "out.nc", "3", "0.05"], pair.carried, LISTEN)
    running.wait_for(lambda: any("begins" in line for line in running.lines), "it had begun")
    go_when_subscribed(pair)
    assert running.finish().code == 0
    assert reader.end() == [0, 1, 2]


@pytest.mark.parametrize("called", ["out.nc", "./out.nc"])
def test_a_file_is_found_by_its_path_however_the_program_calls_it(start: Any, pair: Pair, called: str):
    running, run = start(called, 4, 0.05, "--hold")
    reader = Collected(run, numbered, match=pair.carried / "out*.nc")
    go_when_subscribed(pair)
    wait_for_frames(running, pair, 4)
    found = engine.snapshot(os.fspath(pair.carried / "out.nc"), run)
    assert found is not None and found.sizes["Time"] == 4
    (pair.carried / "end").touch()
    assert running.finish().code == 0
    assert reader.end() == [0, 1, 2, 3]


@pytest.mark.parametrize("called", ["../{here}/out.nc", "{link}/out.nc"])
def test_a_snapshot_is_found_by_any_path_of_the_file(start: Any, pair: Pair, tmp_path: Path, called: str):
    (tmp_path / "link").symlink_to(pair.carried)
    running, run = start(called.format(here=pair.carried.name, link=tmp_path / "link"), 2, 0.05, "--hold")
    go(pair)
    wait_for_frames(running, pair, 2)
    found = engine.snapshot(os.fspath(pair.carried / "out.nc"), run)
    assert found is not None and float(found.T2[1, 0, 0]) == 1
    (pair.carried / "end").touch()
    assert running.finish().code == 0


@pytest.mark.parametrize("the_other", ["ends", "goes on"])
def test_a_run_above_is_not_taken_for_the_one_that_is_meant(pair: Pair, monkeypatch: pytest.MonkeyPatch, the_other: str):
    runs: list[str] = []  # those of this test alone
    monkeypatch.setattr(find.places, "runs", lambda: list(runs))

    def begin(directory: Path) -> Running:
        directory.mkdir()
        running = pair.advectio.start([sys.executable, WRITER, "out.nc", "3", "0.05"], directory)
        running.wait_for(lambda: any("begins" in line for line in running.lines), "it had begun")
        runs.append(os.path.realpath(pair.advectio.run_dirs[-1]))
        return running

    def wait_for_reader(running: Running, run: str) -> None:
        running.wait_for(lambda: subscribed(status_of(run, 60.0)) == 1, "the reader had subscribed")

    Collected.begun.clear()
    other = begin(pair.carried / "job")
    reader = Collected(None, numbered, match=pair.carried / "job" / "here" / "out*.nc")
    wait_for_reader(other, runs[0])
    if the_other == "ends":
        go_in(pair.carried / "job")
        assert other.finish().code == 0
        runs.clear()
    meant = begin(pair.carried / "job" / "here")
    wait_for_reader(meant, runs[-1])
    go_in(pair.carried / "job" / "here")
    assert meant.finish().code == 0
    assert reader.end() == [0, 1, 2]
    if the_other == "goes on":
        go_in(pair.carried / "job")
        assert other.finish().code == 0


def test_a_pattern_that_no_file_has_had_is_said(start: Any, pair: Pair, monkeypatch: pytest.MonkeyPatch):
    running, run = start("out.nc", 2, 0)
    monkeypatch.setattr(find.places, "runs", lambda: [run] if os.path.exists(run) else [])
    monkeypatch.chdir(pair.carried)
    reader = Collected(None, numbered, match="wrfoout*", wait=2)
    go_when_subscribed(pair)
    assert running.finish().code == 0
    with pytest.raises(
        UserError, match=r"the run that was started in .* has ended, and none of its files was called wrfoout\*"
    ):
        reader.end()


def test_nothing_is_imported_or_started_by_the_package():
    program = "import sys, threading, advectio; print(threading.active_count(), [m for m in ('numpy', 'xarray', 'ctypes') if m in sys.modules])"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said == "1 []\n"


@pytest.mark.parametrize(
    ("io", "ranks", "config"),
    [
        ("serial", 1, ""),
        ("pnetcdf", 3, ""),
        ("netcdf4-parallel", 3, ""),
        ("split", 4, "datasets: [{match: '*', join: true}]\n"),
    ],
)
def test_fields_of_many_ranks_are_those_of_the_file(
    request: pytest.FixtureRequest, made: Path, pair: Pair, io: str, ranks: int, config: str
):
    launch: list[str | Path] = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
    program = request.getfixturevalue("replay_mpi" if io == "netcdf4-parallel" else "replay")
    command = [*launch, program, "--io", io, "--frames", "6", "--frames-per-file", "3", "--compute", "0.2", made]
    running = pair.advectio.start(command, pair.carried, config)
    running.wait_for(lambda: pair.advectio.run_dirs, "there was a run directory")
    kept = []

    def take(ds: xr.Dataset) -> None:
        kept.append(
            (ds.encoding["source"], ds.encoding["advectio_frame"], {n: v.values.copy() for n, v in ds.variables.items()})
        )

    reader = Collected(os.fspath(pair.advectio.run_dirs[-1]), take, match="*", history=100, decode=False)
    assert running.finish().code == 0, running.said
    reader.end()
    assert len(kept) == 6
    for path, number, values in kept:
        with netCDF4.Dataset(path) as file:
            file.set_auto_mask(False)
            file.set_auto_chartostring(False)
            for name, v in file.variables.items():
                there = v[...]
                axis = next((i for i, d in enumerate(v.dimensions) if file.dimensions[d].isunlimited()), None)
                if axis is not None:
                    there = np.take(there, [number], axis=axis)
                assert values[name].tobytes() == there.tobytes(), f"{name} of frame {number} of {path}"
