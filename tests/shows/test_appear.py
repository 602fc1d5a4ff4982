"""When others see a file by its name: `appear: frame`, `complete`, `create`."""

import ctypes
import json
import os
import signal
import struct
import subprocess
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from running import PYTHON, ROOT, Advectio, run_plainly
from test_crashes import kill_run, server_of

PROGRAM = ROOT / "tests" / "shows" / "programs" / "appearing.py"
SEEN = {
    "there": True, "size": 0, "by a child": True, "not to be created again": True, "not to be made": True, "mode": "0o640",
    "listed": ["a.nc"], "listed by a shell": ["a.nc"],
}  # fmt: skip
COMPLETE = "datasets: [{match: '*', appear: complete, promise: visible}]\n"
PLAIN_FRAME = "datasets: [{match: '*', appear: frame}]\n"
FRAME = "datasets: [{match: '*', appear: frame, promise: visible}]\n"


@pytest.fixture
def output(tmp_path: Path) -> Path:
    (tmp_path / "output").mkdir()
    return tmp_path / "output"


def assert_whole(path: Path, frames: int = 3) -> None:
    with netCDF4.Dataset(path) as file:
        assert len(file.dimensions["t"]) >= frames
        for frame in range(frames):
            np.testing.assert_array_equal(file["v"][frame], np.random.default_rng(frame).random(10_000))


def visible(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if not name.startswith("."))


def assert_alone(directory: Path, *names: str) -> None:
    assert [n for n in os.listdir(directory) if n not in ("on", "further")] == list(names), "and nothing hidden"


def start(advectio: Advectio, output: Path, *words: str, config: str = PLAIN_FRAME, old: bool = True):
    if old:
        (output / "a.nc").write_text("of before\n")
    running = advectio.start([PYTHON, PROGRAM, *words], output, config)
    running.wait_for(lambda: running.lines, "the file was created")
    return running


def go_on(running, output: Path):
    (output / "on").touch()
    return running.finish()


def test_a_name_shows_nothing_before_a_frame(advectio: Advectio, output: Path):
    running = start(advectio, output, old=False)
    assert visible(output) == []
    assert json.loads(running.lines[0]) == SEEN
    assert go_on(running, output).code == 0
    assert_whole(output / "a.nc")
    assert_alone(output, "a.nc")


def test_the_program_sees_the_same_plainly(output: Path):
    result = run_plainly([PYTHON, PROGRAM], output)
    seen = json.loads(result.stdout.splitlines()[0])
    # HDF5 writes its first bytes early, and locks the file that it writes.
    assert seen | {"size": 0, "by a child": True} == SEEN


def test_a_file_that_is_replaced_stays_until_the_first_frame(advectio: Advectio, output: Path):
    running = start(advectio, output, "frames", config=FRAME)
    assert (output / "a.nc").read_text() == "of before\n"
    (output / "on").touch()
    running.wait_for(lambda: len(running.lines) > 1, "the first frame was synced")
    assert_whole(output / "a.nc", 1)
    (output / "further").touch()
    assert running.finish().code == 0
    assert_whole(output / "a.nc")
    assert os.stat(output / "a.nc").st_mode & 0o777 == 0o640
    assert_alone(output, "a.nc")


def test_a_name_that_shows_a_complete_file(advectio: Advectio, output: Path):
    running = start(advectio, output, "frames", config=COMPLETE)
    (output / "on").touch()
    running.wait_for(lambda: len(running.lines) > 1, "the first frame was synced")
    assert (output / "a.nc").read_text() == "of before\n"
    (output / "further").touch()
    assert running.finish().code == 0
    assert_whole(output / "a.nc")
    assert_alone(output, "a.nc")


def test_by_default_a_name_shows_nothing_before_a_frame(advectio: Advectio, output: Path):
    running = start(advectio, output, config="", old=False)
    assert visible(output) == []
    assert go_on(running, output).code == 0
    assert_whole(output / "a.nc")


def test_a_name_that_is_there_from_the_start(advectio: Advectio, output: Path):
    running = start(advectio, output, config="datasets: [{match: '*', appear: create}]\n")
    assert (output / "a.nc").read_bytes() == b""
    assert go_on(running, output).code == 0
    assert_whole(output / "a.nc")


@pytest.mark.parametrize("kind", ["symbolic link", "hard link"])
def test_a_file_that_others_reach_by_another_way_is_emptied_in_place(advectio: Advectio, output: Path, kind: str):
    (output / "other.nc").write_text("of before\n")
    (os.symlink if kind == "symbolic link" else os.link)(output / "other.nc", output / "a.nc")
    running = start(advectio, output, old=False)
    assert (output / "other.nc").read_bytes() == b""
    assert go_on(running, output).code == 0
    assert os.path.samefile(output / "a.nc", output / "other.nc")
    assert_whole(output / "other.nc")


def test_a_file_that_is_replaced_is_listed_once(advectio: Advectio, output: Path):
    running = start(advectio, output)
    assert json.loads(running.lines[0])["listed"] == ["a.nc"]
    assert go_on(running, output).code == 0


@pytest.mark.parametrize("config", [PLAIN_FRAME, COMPLETE], ids=["frame", "complete"])
def test_the_program_moves_the_directory_of_a_file_without_a_name(advectio: Advectio, output: Path, config: str):
    running = start(advectio, output, "below", "move", config=config, old=False)
    assert json.loads(running.lines[0])["moved"] == [False, True]
    assert visible(output / "e") == []
    assert go_on(running, output).code == 0
    assert_whole(output / "e" / "a.nc")
    assert_alone(output / "e", "a.nc")


def test_somebody_else_moves_the_directory_of_a_file_without_a_name(advectio: Advectio, output: Path):
    running = start(advectio, output, "below", "frames", config=COMPLETE, old=False)
    (output / "on").touch()
    running.wait_for(lambda: len(running.lines) > 1, "the first frame was synced")
    (output / "d").rename(output / "e")
    (output / "further").touch()
    assert running.finish().code == 0
    assert_whole(output / "e" / "a.nc")
    assert_alone(output / "e", "a.nc")


def test_a_file_is_renamed_before_it_has_a_frame(advectio: Advectio, output: Path):
    running = start(advectio, output, "rename")
    assert json.loads(running.lines[0])["renamed"] == [False, True]
    assert visible(output) == []
    assert go_on(running, output).code == 0
    assert_whole(output / "b.nc")
    assert_alone(output, "b.nc")


def test_a_file_is_removed_before_it_has_a_frame(advectio: Advectio, output: Path):
    running = start(advectio, output, "remove")
    assert json.loads(running.lines[0])["removed"] and visible(output) == []
    result = go_on(running, output)
    assert result.code == 0 and result.dataset("a.nc")["state"] == "removed"
    assert_alone(output)


def test_a_file_that_the_library_goes_on_with_has_its_name_at_once(advectio: Advectio, output: Path):
    running = start(advectio, output, "hand-over")
    assert go_on(running, output).code == 0
    assert_whole(output / "a.nc")
    with netCDF4.Dataset(output / "a.nc") as file:
        assert list(file.cmptypes) == ["wind"]
    assert_alone(output, "a.nc")


@pytest.mark.parametrize("config", [FRAME, COMPLETE], ids=["frame", "complete"])
@pytest.mark.parametrize("synced", [False, True], ids=["nothing", "a-frame"])
def test_all_are_killed(advectio: Advectio, output: Path, config: str, synced: bool):
    running = start(advectio, output, "frames", config=config)
    if synced:
        (output / "on").touch()
        running.wait_for(lambda: len(running.lines) > 1, "the first frame was synced")
    kill_run(running, advectio.run_dirs[-1])
    if not synced or config == COMPLETE:
        assert (output / "a.nc").read_text() == "of before\n"
    advectio.recover_all()
    if synced:
        assert_whole(output / "a.nc", 1)
    else:
        assert (output / "a.nc").read_text() == "of before\n", "nothing was synced"
    assert_alone(output, "a.nc")


def test_the_server_dies_before_the_name_is_there(advectio: Advectio, output: Path):
    running = start(advectio, output, "frames", config=COMPLETE)
    for pid in server_of(running, advectio.run_dirs[-1]):
        os.kill(pid, signal.SIGKILL)
    (output / "on").touch()
    (output / "further").touch()
    assert running.finish().code == 0
    assert_whole(output / "a.nc")
    assert_alone(output, "a.nc")


def test_what_a_dead_run_has_left_is_no_obstacle(advectio: Advectio, output: Path):
    running = start(advectio, output, old=False)
    kill_run(running, advectio.run_dirs[-1])
    assert visible(output) == []
    again = advectio.start([PYTHON, PROGRAM], output, PLAIN_FRAME)
    again.wait_for(lambda: again.lines, "the file was created")
    assert go_on(again, output).code == 0
    assert_whole(output / "a.nc")
    advectio.recover_all()
    assert_whole(output / "a.nc")
    assert_alone(output, "a.nc")


EVENTS = {0x100: "create", 0x80: "moved", 0x8: "written"}


class Watched:
    """What a watcher of a directory sees (inotify(7)): names, with IN_CREATE, IN_MOVED_TO, IN_CLOSE_WRITE."""

    def __init__(self, directory: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        assert libc.inotify_add_watch(self.fd, os.fsencode(directory), sum(EVENTS)) >= 0

    def end(self) -> list[str]:
        said = b""
        try:
            while part := os.read(self.fd, 1 << 16):
                said += part
        except BlockingIOError:
            pass
        os.close(self.fd)
        seen = []
        while said:
            _, mask, _, length = struct.unpack_from("iIII", said)
            name = said[16 : 16 + length].rstrip(b"\0").decode()
            said = said[16 + length :]
            if name == "a.nc" and mask in EVENTS:
                seen.append(EVENTS[mask])
        return seen


@pytest.mark.parametrize("appear", ["frame", "complete", "create"])
@pytest.mark.parametrize("old", [False, True], ids=["new", "replaced"])
def test_a_watcher_sees_a_file_created_and_written_once(advectio: Advectio, output: Path, appear: str, old: bool):
    if old:
        (output / "a.nc").write_text("of before\n")
    watched = Watched(output)
    (output / "on").touch()
    result = advectio.run([PYTHON, PROGRAM], output, f"datasets: [{{match: '*', appear: {appear}}}]\n")
    assert result.code == 0, result.said
    begins = "create" if not old else "moved"
    assert watched.end() == (["written"] if old and appear == "create" else [begins, "written"])


READ = """
import sys, xarray
ds = xarray.open_dataset("a.nc", engine="advectio", run=sys.argv[1])
print(ds.sizes["t"], float(ds.v[0].sum()))
"""


def test_a_live_reader_reads_a_file_that_has_no_name_yet(advectio: Advectio, output: Path):
    running = start(advectio, output, "frames", config=COMPLETE)
    (output / "on").touch()
    running.wait_for(lambda: len(running.lines) > 1, "the first frame was synced")
    said = run_plainly([PYTHON, "-c", READ, str(advectio.run_dirs[-1])], output)
    assert said.stdout.split() == ["1", str(np.random.default_rng(0).random(10_000).sum())], said.said
    (output / "further").touch()
    assert running.finish().code == 0


def test_wait_for_a_file_that_has_no_name_yet(advectio: Advectio, output: Path):
    running = start(advectio, output)
    waiting = subprocess.Popen(
        [os.fspath(advectio.command), "wait", "a.nc", "--timeout", "100s"], cwd=output, stderr=subprocess.PIPE, text=True
    )
    assert "waiting for" in waiting.stderr.readline(), "the file that is there is not the one"
    assert go_on(running, output).code == 0
    assert waiting.wait() == 0
