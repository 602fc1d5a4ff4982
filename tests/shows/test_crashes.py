"""What is synced is kept: kill -9 of model and server, a full stage, a full disk."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

import netCDF4
import pytest
from conftest import Pair
from running import Result, Running, output_files, run_plainly
from same import File, assert_same

FOREVER = ["--frames", "100000", "--frames-per-file", "4", "--compute", "0.05"]


def records(path: Path) -> int:
    with netCDF4.Dataset(path) as file:
        return len(file.dimensions["Time"])


def written_name(line: str) -> str:
    return line.removeprefix("Timing for Writing ").split(" for domain")[0]


def assert_frames_as_plainly_written(replay: list[str | Path], pair: Pair, synced: dict[str, int]) -> None:
    """Every file is well-formed, has all frames that were synced, at most one more, and each is what the program writes
    without Advectio."""
    holds = {name: records(pair.carried / name) for name in synced}
    for name, count in synced.items():
        assert count <= holds[name] <= count + 1, f"{name}: {count} frames were synced, the file has {holds[name]}"
    total = sum(holds.values())
    done = run_plainly([*replay, "--frames", str(total)], pair.plain)
    assert done.code == 0, done.said
    for name in synced:
        assert_same(pair.plain / name, pair.carried / name)


def synced_frames(running_lines: list[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for line in running_lines:
        if line.startswith("Timing for Writing"):
            counts[written_name(line)] = counts.get(written_name(line), 0) + 1
    return counts


@pytest.mark.parametrize("frames", [1, 2, 6, 9])
@pytest.mark.parametrize("deflate", ["asked", "none"])
def test_kill_of_the_model_keeps_every_synced_frame(made: Path, replay: Path, pair: Pair, frames: int, deflate: str):
    base = [replay, "--deflate", deflate, made]
    running = pair.advectio.start([*base, *FOREVER], pair.carried)
    running.wait_for(lambda: running.frames() >= frames, f"{frames} frames were written")
    running.kill("replay")
    result = running.finish()
    assert result.code == 128 + signal.SIGKILL, result.said
    assert_frames_as_plainly_written([*base, "--frames-per-file", "4"], pair, synced_frames(running.lines))
    assert not pair.advectio.run_dirs[-1].exists()


def test_kill_of_the_model_keeps_every_synced_frame_of_a_classic_file(made: Path, replay: Path, pair: Pair):
    base = [replay, "--format", "classic", made]
    running = pair.advectio.start([*base, *FOREVER], pair.carried)
    running.wait_for(lambda: running.frames() >= 6, "6 frames were written")
    running.kill("replay")
    running.finish()
    assert_frames_as_plainly_written([*base, "--frames-per-file", "4"], pair, synced_frames(running.lines))


def test_kill_of_all_ranks_keeps_every_synced_frame_of_every_rank(made: Path, replay: Path, pair: Pair):
    base: list[str | Path] = ["mpirun", "-n", "3", replay, "--io", "split", made]
    running = pair.advectio.start([*base, *FOREVER], pair.carried)
    running.wait_for(lambda: running.frames() >= 6, "6 frames were written")
    running.kill("replay")
    result = running.finish()
    assert result.code != 0, result.said
    synced = synced_frames(running.lines)  # as rank 0 says
    assert sum(synced.values()) >= 6
    plain = [*base, "--frames-per-file", "4"]
    shortest = min(sum(records(p) for p in pair.carried.glob(f"*_{rank:04d}")) for rank in range(3))
    assert shortest >= sum(synced.values()) - 1  # the model's steps keep its ranks together
    done = run_plainly([*plain, "--frames", str(4 * len(synced) + 8)], pair.plain)
    assert done.code == 0, done.said
    for name in output_files(pair.carried):
        assert_beginning_is_same(pair.plain / name, pair.carried / name)


def assert_beginning_is_same(longer: Path, shorter: Path) -> None:
    """Each record of `shorter` is bit for bit that of `longer`."""
    with File(longer) as a, File(shorter) as b:
        dims = b.dims()
        for v in range(b.var_count()):
            name, _, of, _ = b.var(v)
            count = tuple(dims[d][1] for d in of)
            if 0 in count:
                continue
            one, other = (file.read(v, (0,) * len(count), count) for file in (a, b))
            assert (one == other).all(), f"{name} of {shorter}"  # type: ignore[attr-defined]


def server_of(running: Running, run_dir: Path) -> list[int]:
    """The server of this run: it names the run directory. It need not be a descendant."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words and words[0].endswith(b"advectiod") and os.fsencode(run_dir) in words:
                found.append(int(entry.name))
    return found


def processes_of(run_dir: Path) -> list[int]:
    """The programs of this run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"ADVECTIO_RUN=" + os.fsencode(run_dir) in variables:
                found.append(int(entry.name))
    return found


def kill_run(running: Running, run_dir: Path) -> None:
    """`advectio run`, the server and the programs."""
    os.kill(running.process.pid, signal.SIGKILL)  # it would start another server
    for pid in {*server_of(running, run_dir), *processes_of(run_dir)}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    running.process.wait()


def kill_server(running: Running, run_dir: Path) -> int:
    (pid,) = running.wait_for(lambda: server_of(running, run_dir), "there was a server")
    os.kill(pid, signal.SIGKILL)
    # Whoever kills the next must not find this one, dying.
    running.wait_for(lambda: pid not in server_of(running, run_dir), "it had gone")
    return int(pid)


def kill_all(running: Running, run_dir: Path, program: str = "replay") -> Result:
    """The server and every process of that name, and what is then said."""
    (server,) = server_of(running, run_dir)
    for pid in [server, *running.pids(program)]:
        os.kill(pid, signal.SIGKILL)
    result = running.finish()
    assert result.code != 0, result.said
    return result


@pytest.mark.parametrize("deflate", ["asked", "none"])
@pytest.mark.parametrize("format", ["asked", "classic"])
@pytest.mark.parametrize("times", [1, 3])
def test_kill_of_the_server_loses_nothing(made: Path, replay: Path, pair: Pair, deflate: str, format: str, times: int):
    command = [replay, "--deflate", deflate, "--format", format, "--frames", "24", "--frames-per-file", "5", made]
    assert run_plainly(command, pair.plain).code == 0
    running = pair.advectio.start([*command, "--compute", "0.05"], pair.carried)
    for n in range(times):
        running.wait_for(lambda n=n: running.frames() >= 3 + 5 * n, f"{3 + 5 * n} frames were written")
        kill_server(running, pair.advectio.run_dirs[-1])
    result = running.finish()
    assert result.code == 0, result.said
    assert result.summary["server"]["restarts"] == times, result.said
    pair.assert_same(at_least=5)
    assert not list(pair.carried.rglob(".*advectio*"))


def test_kill_of_the_server_after_the_model_has_ended_loses_nothing(made: Path, replay: Path, pair: Pair):
    command = [replay, "--tile", "4x4", "--frames", "4", "--frames-per-file", "4", "--deflate", "9", made]
    assert run_plainly(command, pair.plain).code == 0
    config = 'server: {threads: 1}\ndatasets: [{match: "*", codec: deflate, deflate: libdeflate, level: 9}]\n'
    running = pair.advectio.start(command, pair.carried, config)
    running.wait_for(lambda: running.frames() >= 4, "all frames were written")
    kill_server(running, pair.advectio.run_dirs[-1])
    result = running.finish()
    assert result.code == 0, result.said
    pair.assert_same(storage=False)


def test_kill_of_model_and_server_is_finished_by_recover(made: Path, replay: Path, pair: Pair):
    base = [replay, made]
    run_dir = pair.advectio.new_run_dir()
    running = pair.advectio.start([*base, *FOREVER], pair.carried, "server: {restarts_max: 0}\n", run_dir)
    running.wait_for(lambda: running.frames() >= 6, "6 frames were written")
    kill_all(running, run_dir)
    recovered = pair.advectio.call("recover", run_dir, directory=pair.carried)
    assert recovered.code == 0, recovered.said
    assert_frames_as_plainly_written([*base, "--frames-per-file", "4"], pair, synced_frames(running.lines))
    assert not list(pair.carried.rglob(".*advectio*"))


SMALL_STAGE = "stage: {bytes_max: 8MiB, segment_bytes: 1MiB, warm_bytes: 2MiB}\n"


@pytest.mark.parametrize("deflate", ["asked", "none"])
def test_a_full_stage_makes_the_model_wait_and_breaks_nothing(made: Path, replay: Path, pair: Pair, deflate: str):
    command = [replay, "--tile", "3x3", "--frames", "8", "--frames-per-file", "8", "--deflate", deflate, made]
    result = pair.run(command, SMALL_STAGE, datasets=1)
    pair.assert_same()
    stage = result.summary["stage"]
    frame = result.summary["datasets"][0]["bytes_put"] / 8
    assert frame > 1.2 * stage["bytes_max"] == 1.2 * 8 * 2**20, (
        "a frame must be larger than the stage for this test to mean anything"
    )
    assert stage["waits"] > 0
    assert stage["bytes_allocated_peak"] <= stage["bytes_max"]


def test_a_full_stage_of_several_ranks_breaks_nothing(made: Path, replay: Path, pair: Pair):
    command: list[str | Path] = [
        "mpirun",
        "-n",
        "4",
        replay,
        "--io",
        "split",
        "--tile",
        "2x2",
        "--frames",
        "4",
        "--frames-per-file",
        "2",
    ]
    result = pair.run([*command, made], SMALL_STAGE.replace("8MiB", "12MiB"), datasets=8)
    pair.assert_same(at_least=8)
    assert result.summary["stage"]["waits"] > 0


def test_a_stage_on_disk_carries_as_well(made: Path, replay: Path, pair: Pair):
    # Not in `tmp_path`, which may be too long for the name of a socket.
    with tempfile.TemporaryDirectory(prefix="stage-") as stage:
        pair.advectio.stage = Path(stage)
        pair.run([replay, "--frames", "6", "--frames-per-file", "3", made], f"stage: {{directory: {stage}}}\n", datasets=2)
    pair.assert_same(at_least=2)


@pytest.mark.parametrize("format", ["netcdf4", "classic"])
@pytest.mark.parametrize("frames_per_file", [100, 2])
def test_a_full_disk_is_an_error_at_sync_or_close_and_recover_finishes(
    made: Path, replay: Path, pair: Pair, small_disk: Callable[[str], Path], format: str, frames_per_file: int
):
    disk = small_disk("12m")
    base: list[str | Path] = [replay, "--deflate", "none", "--format", format, "--frames-per-file", str(frames_per_file), made]
    running = pair.advectio.start([*base, "--frames", "100", "--compute", "0.1"], disk)
    result = running.finish()
    run_dir = pair.advectio.run_dirs[-1]
    synced = synced_frames(running.lines)
    assert 2 < sum(synced.values()) < 100, result.said
    assert result.code == 1, result.said
    at_sync = re.search(r"replay: nc_(sync|close|create|enddef|put\w*).*: No space left on device", result.stderr)
    assert at_sync, result.said
    said = [line for line in result.stderr.splitlines() if line.startswith("advectio") and "No space left on device" in line]
    assert any(Path(name).name in line for name in synced for line in said), result.said
    log = (run_dir / "advectiod.log").read_text()
    assert "No space left on device" in log and "wrfout_d01" in log, log

    assert run_dir.exists()
    still_full = pair.advectio.call("recover", run_dir, directory=disk)
    assert still_full.code == 1, still_full.said
    assert "No space left on device" in still_full.stdout + still_full.stderr, still_full.said

    small_disk("1g")
    recovered = pair.advectio.call("recover", run_dir, directory=disk)
    assert recovered.code == 0, recovered.said
    assert not list(disk.glob(".*advectio*"))
    assert not run_dir.exists()
    pair.carried = disk
    last = list(synced)[-1]
    holds = {name: records(disk / name) for name in synced}
    assert all(holds[name] >= count for name, count in synced.items()), f"{holds} < {synced}"
    done = run_plainly([*base, "--frames", str(sum(holds.values()))], pair.plain)
    assert done.code == 0, done.said
    for name in synced:
        assert_same(pair.plain / name, disk / name)
    assert holds[last] <= synced[last] + 1


def with_decided_commit(path: Path, copy: Path) -> bool:
    """A copy of the file, with the pages of its redo file in their places (crash_safe_file.h,
    `Trailer`). False: there is no whole redo file, so no commit was being made."""
    for link in (path.parent / f".advectio-{os.getuid()}").iterdir():
        redo = Path(f"{link}-redo")
        if not link.samefile(path) or not redo.exists():
            continue
        decided = redo.read_bytes()
        if decided[-40:-32] != b"ADVREDO1":
            continue
        pages, protected_end, end, page_bytes = struct.unpack("<QQQI", decided[-32:-4])
        content = bytearray(path.read_bytes())
        for i, number in enumerate(struct.unpack_from(f"<{pages}Q", decided, pages * page_bytes)):
            at = number * page_bytes
            bytes_there = max(0, min(page_bytes, protected_end - at, end - at))
            content[at : at + bytes_there] = decided[i * page_bytes : i * page_bytes + bytes_there]
        copy.write_bytes(content)
        return True
    return False


def test_no_file_grows_beyond_what_is_committed_when_everything_is_killed(made: Path, replay: Path, pair: Pair, tmp_path: Path):
    """Nothing recovers here: what is on disk at the moment of a power cut opens, and holds only
    whole frames. Where a commit was being made, that is so with the pages of the redo file."""
    run_dir = pair.advectio.new_run_dir()
    running = pair.advectio.start([replay, made, *FOREVER], pair.carried, "server: {restarts_max: 0}\n", run_dir)
    running.wait_for(lambda: running.frames() >= 7, "7 frames were written")
    kill_all(running, run_dir)
    seen = 0
    done = run_plainly([replay, made, "--frames", "40", "--frames-per-file", "4"], pair.plain)
    assert done.code == 0, done.said

    def holds_whole_frames(path: Path, plain: Path) -> int:
        count = records(path)
        if plain.exists():
            assert_beginning_is_same(plain, path)
        return count

    for path in sorted(pair.carried.glob("wrfout*")):
        with path.open("rb") as file:
            begun = any(file.read(8))
        if not begun:
            continue  # nothing committed yet: not taken for a netCDF file by anybody
        plain = pair.plain / path.name
        try:
            seen += holds_whole_frames(path, plain)
        except (AssertionError, OSError, RuntimeError):
            copy = tmp_path / "committed.nc"
            if not with_decided_commit(path, copy):
                raise
            seen += holds_whole_frames(copy, plain)
    assert seen > 0
