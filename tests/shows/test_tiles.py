"""`join: true`: what the ranks write as tiles is one file on the way out, the one that a single process writes."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import netCDF4
import pytest
from conftest import Pair
from running import Advectio, Result, output_files, run_plainly
from same import File, assert_same, differences
from test_crashes import assert_beginning_is_same, kill_all, kill_server, records, synced_frames
from test_join import HISTORY, RESTART, tiles_of
from test_join import LATER as LATER_NAME
from test_several_nodes import kill_a_server

Source = Callable[[str], Path]

JOIN = 'datasets: [{match: "*", join: true}]\n'
LATER = "wrf471/serial/wrfout_d01_0001-01-01_00:30:00"


def ranks_of(count: int) -> list[str]:
    return ["mpirun", "-n", str(count)]


@pytest.fixture
def write_joined(replay: Path, pair: Pair) -> Callable[..., Result]:
    """`replay` serially and plainly, and split under `join: true`: the same files with the same values and attributes."""

    def run(source: Path, ranks: int, *options: str, config: str = "", files: int = 1, nodes: str | None = None) -> Result:
        assert run_plainly([replay, *options, source], pair.plain).code == 0
        command = [*ranks_of(ranks), replay, "--io", "split", *options, source]
        result = pair.advectio.run(command, pair.carried, JOIN + config, datasets=files, nodes=nodes)
        assert_as_serial(pair, files)
        assert [d["tiles"] for d in result.summary["datasets"]] == [ranks] * files
        return result

    return run


def assert_as_serial(pair: Pair, files: int, *, storage: bool = True) -> None:
    assert len(output_files(pair.plain)) == files
    assert output_files(pair.carried) == output_files(pair.plain)
    for name in output_files(pair.plain):
        changed = differences(pair.plain / name, pair.carried / name, storage=storage)
        assert [line for line in changed if not line.startswith("attribute NTASKS")] == []


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 12])
@pytest.mark.parametrize("name", ["made", LATER])
def test_any_number_of_ranks_is_the_serial_file(source: Source, write_joined: Callable[..., Result], name: str, ranks: int):
    write_joined(source(name), ranks)


def test_several_frames_and_files(source: Source, write_joined: Callable[..., Result]):
    result = write_joined(source("made"), 4, "--frames", "8", "--frames-per-file", "3", files=3)
    assert [d["frames_durable"] for d in result.summary["datasets"]] == [3, 3, 2]


def test_real_frames(source: Source, write_joined: Callable[..., Result]):
    write_joined(source("wrf471/serial/wrfout_d01_4frames.nc"), 6, "--frames", "5", "--frames-per-file", "3", files=2)


def test_it_is_stored_as_the_rule_says(made: Path, replay: Path, pair: Pair):
    assert run_plainly([replay, made], pair.plain).code == 0
    config = 'datasets: [{match: "*_0*", join: true, codec: zstd}]\n'
    pair.advectio.run([*ranks_of(4), replay, "--io", "split", made], pair.carried, config, datasets=1)
    (name,) = output_files(pair.carried)
    changed = differences(pair.plain / name, pair.carried / name)
    assert [line for line in changed if not line.startswith("attribute NTASKS")] == []
    with File(pair.carried / name) as file:
        t = next(v for v in range(file.var_count()) if file.var(v)[0] == "T")
        assert 32015 in [identifier for identifier, _ in file.storage(t)["filters"]]  # type: ignore[attr-defined]


def test_classic_tiles_are_a_classic_file(source: Source, write_joined: Callable[..., Result]):
    write_joined(source("made"), 4, "--format", "cdf5", "--frames", "3", "--frames-per-file", "3")


def test_files_are_complete_when_the_program_has_ended(made: Path, replay: Path, pair: Pair, tool: Callable[[str], str]):
    """A script goes on with the whole as soon as the model is through."""
    assert run_plainly([replay, "--frames", "3", "--frames-per-file", "3", made], pair.plain).code == 0
    (name,) = output_files(pair.plain)
    script = pair.advectio.scratch / "job.sh"
    command = f"{replay} --io split --frames 3 --frames-per-file 3 {made}"
    script.write_text(f"mpirun -n 4 {command} > /dev/null && ls {name} && {tool('ncdump')} -h {name} > header.txt\n")
    pair.advectio.run(["sh", script], pair.carried, JOIN, datasets=1)
    header = (pair.carried / "header.txt").read_text()
    (pair.carried / "header.txt").unlink()
    assert "Time = UNLIMITED ; // (3 currently)" in header
    assert_as_serial(pair, 1)


def test_a_file_that_is_written_again_is_the_later_one(made: Path, replay: Path, pair: Pair):
    assert run_plainly([replay, "--frames", "2", "--frames-per-file", "2", made], pair.plain).code == 0
    script = pair.advectio.scratch / "job.sh"
    run = f"{replay} --io split {made} > /dev/null"
    again = "--frames 2 --frames-per-file 2"
    script.write_text(f"mpirun -n 3 {run} && mpirun -n 4 {run} {again}\n")
    pair.advectio.run(["sh", script], pair.carried, JOIN, datasets=2)
    assert_as_serial(pair, 1)


def test_a_model_goes_on_from_the_restart_that_its_tiles_became(replay: Path, pair: Pair):
    """Squall, serially and split over 3 × 2 ranks of unequal patches: history of two frames a file, and restarts."""
    squall = replay.parents[1] / "squall" / "squall"
    if not squall.exists():
        pytest.skip(f"{squall} is not built")
    flags = [
        "--quiet",
        "--nx",
        "26",
        "--ny",
        "21",
        "--nz",
        "20",
        "--hodograph",
        "quarter",
        "--bubble",
        "7",
        "--minutes",
        "4",
        "--history-minutes",
        "1",
        "--restart-minutes",
        "2",
        "--frames-per-file",
        "2",
    ]
    command = [squall, *flags, "--output", "."]
    assert run_plainly(command, pair.plain).code == 0
    split = ["--io", "split", "--ranks-x", "3", "--ranks-y", "2"]
    pair.advectio.run([*ranks_of(6), *command, *split], pair.carried, JOIN, datasets=5)
    assert_as_serial(pair, 5, storage=False)  # it halves chunks of 21 points to 10, join to 11
    restart, last = "squallrst_d01_0001-01-01_00:02:00", "squallrst_d01_0001-01-01_00:04:00"
    again = [*flags, "--restart", pair.carried / restart, "--output", "again"]
    assert run_plainly([*ranks_of(2), squall, *again], pair.advectio.scratch).code == 0
    changed = differences(pair.plain / last, pair.advectio.scratch / "again" / last)
    assert [line for line in changed if not line.startswith("attribute NTASKS")] == []


# ---- what dies ----

FOREVER = ["--frames", "100000", "--frames-per-file", "4", "--compute", "0.05"]


def assert_beginnings_are_serial(replay: Path, made: Path, pair: Pair, names: list[str]) -> int:
    """Each file that was left holds what the serial program writes first. How many frames there are in all."""
    held = [records(pair.carried / name) for name in names]
    assert all(count > 0 for count in held)
    plain = [replay, made, "--frames", str(4 * len(names) + 4), "--frames-per-file", "4"]
    assert run_plainly(plain, pair.plain).code == 0
    for name in names:
        assert_beginning_is_same(pair.plain / name, pair.carried / name)
    return sum(held)


@pytest.mark.parametrize("victim", [0, 2])
def test_kill_of_a_rank_keeps_every_frame_that_all_had_synced(made: Path, replay: Path, pair: Pair, victim: int):
    running = pair.advectio.start([*ranks_of(3), replay, "--io", "split", made, *FOREVER], pair.carried, JOIN)
    running.wait_for(lambda: running.frames() >= 6, "6 frames were written")
    os.kill(running.pids("replay")[victim], signal.SIGKILL)
    result = running.finish()
    assert result.code != 0, result.said
    said = sum(synced_frames(running.lines).values())
    tiles = [name for name in output_files(pair.carried) if re.search(r"_\d{4}$", name)]
    assert tiles == [], result.said
    held = assert_beginnings_are_serial(replay, made, pair, output_files(pair.carried))
    assert said - 1 <= held <= said + 1, f"{said} frames were synced, the files have {held}\n{result.said}"
    assert not pair.advectio.run_dirs[-1].exists()


@pytest.mark.parametrize("first", [1, 3, 6])
@pytest.mark.parametrize("format", ["asked", "classic"])
def test_kill_of_the_server_loses_nothing(made: Path, replay: Path, pair: Pair, first: int, format: str):
    options = ["--format", format, "--frames", "24", "--frames-per-file", "8", made]
    assert run_plainly([replay, *options], pair.plain).code == 0
    command = [*ranks_of(3), replay, "--io", "split", *options, "--compute", "0.05"]
    running = pair.advectio.start(command, pair.carried, JOIN)
    for frames in (first, first + 5):
        running.wait_for(lambda frames=frames: running.frames() >= frames, f"{frames} frames were written")
        kill_server(running, pair.advectio.run_dirs[-1])
    result = running.finish()
    assert result.code == 0, result.said
    assert result.summary["server"]["restarts"] == 2, result.said
    assert_as_serial(pair, 3)
    assert not list(pair.carried.rglob(".*advectio*"))


def test_kill_of_all_is_finished_by_recover(made: Path, replay: Path, pair: Pair):
    run_dir = pair.advectio.new_run_dir()
    command = [*ranks_of(3), replay, "--io", "split", made, *FOREVER]
    running = pair.advectio.start(command, pair.carried, JOIN + "server: {restarts_max: 0}\n", run_dir)
    running.wait_for(lambda: running.frames() >= 6, "6 frames were written")
    kill_all(running, run_dir)
    recovered = pair.advectio.call("recover", run_dir, directory=pair.carried)
    assert recovered.code == 0, recovered.said
    said = sum(synced_frames(running.lines).values())
    held = assert_beginnings_are_serial(replay, made, pair, output_files(pair.carried))
    assert said - 1 <= held <= said + 1, f"{said} frames were synced, the files have {held}\n{recovered.said}"
    assert not list(pair.carried.rglob(".*advectio*")) and not run_dir.exists()


# ---- on several nodes ----


@pytest.mark.parametrize(("name", "nodes"), [("made", "2,2"), ("made", "1,2,1,0,0"), (LATER, "2,1,0")])
def test_tiles_of_several_nodes_are_the_serial_file(source: Source, write_joined: Callable[..., Result], name: str, nodes: str):
    ranks = sum(map(int, nodes.split(",")))
    options = ["--frames", "8", "--frames-per-file", "3"] if name == "made" else []
    result = write_joined(source(name), ranks, *options, files=3 if options else 1, nodes=nodes)
    owners = {d["node"] for d in result.summary["datasets"]}
    assert owners <= ({"io", "io0", "io1"} if "0" in nodes else {"n0", "n1"})


def test_kill_of_a_server_of_several_loses_nothing_of_the_tiles(made: Path, replay: Path, pair: Pair):
    options: list[str | Path] = ["--frames", "12", "--frames-per-file", "4", made]
    assert run_plainly([replay, *options], pair.plain).code == 0
    command = [*ranks_of(4), replay, "--io", "split", *options, "--compute", "0.2"]
    running = pair.advectio.start(command, pair.carried, JOIN, nodes="2,2,0")
    killed = 0
    for frames, node in ((2, 2), (6, 0)):
        running.wait_for(lambda frames=frames: running.frames() >= frames, f"{frames} frames were written")
        killed = kill_a_server(running, node, killed)
    result = running.finish()
    assert result.code == 0, result.said
    assert_as_serial(pair, 3)
    assert not pair.advectio.run_dirs[-1].exists()


def test_tiles_of_several_nodes_that_do_not_cover_are_files_of_their_own(
    shared: Source, pair: Pair, tool: Callable[[str], str]
):
    first = shared(f"wrf471/split4/{RESTART}_0000")
    rank = "000$OMPI_COMM_WORLD_RANK"
    script = f"{tool('nccopy')} {first.parent}/{RESTART}_{rank} {RESTART}_{rank}"
    result = pair.run([*ranks_of(3), "sh", "-c", script], JOIN, datasets=3, nodes="1,1,1")
    assert_files_of_their_own(pair, [f"{RESTART}_000{n}" for n in range(3)])
    assert len([line for line in result.stderr.splitlines() if "files of their own" in line]) == 1, result.said


# ---- what does not fit ----


def test_a_stage_smaller_than_a_frame_loses_nothing(made: Path, replay: Path, pair: Pair):
    """Where it is full before every rank has begun its tile, the tiles are files of their own."""
    options = ["--tile", "4x4", "--frames", "6", "--frames-per-file", "2", made]
    assert run_plainly([replay, *options], pair.plain).code == 0
    config = JOIN + "stage: {bytes_max: 12MiB, segment_bytes: 1MiB, warm_bytes: 2MiB}\n"
    running = pair.advectio.start([*ranks_of(4), replay, "--io", "split", *options], pair.carried, config)
    result = running.finish()
    assert result.code == 0, result.said
    frame = sum(d["bytes_put"] for d in result.summary["datasets"]) / 6
    assert frame > 12 * 2**20, "a frame must be larger than the stage for this test to mean anything"
    assert result.summary["stage"]["waits"] > 0
    for name in output_files(pair.plain):
        tiles = sorted(pair.carried.glob(f"{name}_*"))
        assert len(tiles) in (0, 4), result.said
        if tiles:
            assert f"{pair.carried / name}: the stage is full" in result.stderr, result.said
            assert pair.advectio.call("join", *tiles, "-o", pair.carried / name).code == 0
        for tile in tiles:
            tile.unlink()
    assert_as_serial(pair, 3)


def test_a_full_disk_is_an_error_at_sync_and_recover_finishes(
    made: Path, replay: Path, pair: Pair, small_disk: Callable[[str], Path]
):
    disk = small_disk("12m")
    options = ["--deflate", "none", "--frames-per-file", "100", made]
    command = [*ranks_of(3), replay, "--io", "split", *options, "--frames", "100", "--compute", "0.1"]
    running = pair.advectio.start(command, disk, JOIN)
    result = running.finish()
    run_dir = pair.advectio.run_dirs[-1]
    assert result.code != 0, result.said
    assert "No space left on device" in result.stderr, result.said
    said = sum(synced_frames(running.lines).values())
    assert 2 < said < 100, result.said
    assert pair.advectio.call("recover", run_dir, directory=disk).code == 1
    small_disk("1g")
    recovered = pair.advectio.call("recover", run_dir, directory=disk)
    assert recovered.code == 0, recovered.said
    (name,) = output_files(disk)
    held = records(disk / name)
    assert said - 1 <= held <= said + 1
    assert run_plainly([replay, *options, "--frames", str(held)], pair.plain).code == 0
    changed = differences(pair.plain / name, disk / name)
    assert [line for line in changed if not line.startswith("attribute NTASKS")] == []


# ---- tiles of other models, one program each ----


@pytest.fixture
def write_tiles(pair: Pair, tool: Callable[[str], str]) -> Callable[..., Result]:
    """Each tile by a process of its own, one after the other or all at once; plainly and under `join: true`."""

    def write(tiles: dict[str, Path], *, at_once: bool = False, datasets: int = 1) -> Result:
        script = pair.advectio.scratch / "job.sh"
        lines = [f"{tool('nccopy')} {tile} {name} {'&' if at_once else ''}" for name, tile in tiles.items()]
        script.write_text("\n".join([*lines, "wait"]) + "\n")
        assert run_plainly(["sh", script], pair.plain).code == 0
        return pair.advectio.run(["sh", script], pair.carried, JOIN, datasets=datasets)

    return write


def assert_files_of_their_own(pair: Pair, names: list[str]) -> None:
    assert output_files(pair.carried) == sorted(names)
    for name in names:
        assert_same(pair.plain / name, pair.carried / name)


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    "first, whole",
    [
        ("nemo/mesh_mask_0000.nc", "mesh_mask.nc"),
        ("scale/history.pe000000.nc", "history.nc"),
        ("scale/init_00000101-000000.000.pe000000.nc", "init_00000101-000000.000.nc"),
        (f"wrf471/split4/{RESTART}_0000", RESTART),
    ],
)
def test_what_other_programs_write_is_what_join_makes(
    shared: Source, write_tiles: Callable[..., Result], pair: Pair, first: str, whole: str, at_once: bool
):
    tiles = {tile.name: tile for tile in tiles_of(shared, first)}
    result = write_tiles(tiles, at_once=at_once)
    assert result.summary["datasets"][0]["tiles"] == len(tiles)
    assert output_files(pair.carried) == [whole], result.said
    joined = pair.advectio.call("join", *(pair.plain / name for name in tiles), "-o", pair.plain / whole)
    assert joined.code == 0, joined.said
    assert_same(pair.plain / whole, pair.carried / whole)


def test_tiles_that_do_not_cover_are_files_of_their_own(shared: Source, write_tiles: Callable[..., Result], pair: Pair):
    tiles = {tile.name: tile for tile in tiles_of(shared, "nemo/mesh_mask_0000.nc")[1:]}
    result = write_tiles(tiles, datasets=3)
    assert_files_of_their_own(pair, list(tiles))
    said = [line for line in result.stderr.splitlines() if "mesh_mask.nc: " in line]
    assert len(said) == 1 and "missing of 4 tiles: number 0" in said[0] and "files of their own" in said[0], result.said


def test_tiles_that_disagree_are_files_of_their_own(shared: Source, write_tiles: Callable[..., Result], pair: Pair):
    """Of two output times: nothing but the time says so."""
    now, later = (tiles_of(shared, f"wrf471/split4/{name}_0000") for name in (HISTORY, LATER_NAME))
    tiles = {f"out_{n:04d}": tile for n, tile in enumerate([now[0], *later[1:]])}
    result = write_tiles(tiles, datasets=4)
    assert_files_of_their_own(pair, list(tiles))
    assert "disagree about Times, which is neither's own" in result.stderr, result.said


def test_what_is_no_tile_is_written_as_it_is(
    made: Path, write_tiles: Callable[..., Result], pair: Pair, tool: Callable[[str], str]
):
    placeless = pair.advectio.scratch / "placeless.nc"
    with netCDF4.Dataset(placeless, "w") as file:
        file.createDimension("x", 5)
        file.createVariable("v", "f4", ("x",))[:] = range(5)
    files = {"plain.nc": placeless, "other.nc": placeless, "mask_0000": placeless}
    result = write_tiles(files, datasets=3)
    assert_files_of_their_own(pair, list(files))
    assert result.stderr.count(": not named like a tile") == 1, result.said
    assert "mask_0000 does not say where in the domain it lies" in result.stderr, result.said


def test_a_tile_under_way_is_not_opened(shared: Source, advectio: Advectio, tool: Callable[[str], str], tmp_path: Path):
    """It says why, and nobody waits for ever."""
    tiles = tiles_of(shared, "nemo/mesh_mask_0000.nc")
    work = tmp_path / "work"
    work.mkdir()
    script = tmp_path / "job.sh"
    copy, dump = tool("nccopy"), tool("ncdump")
    lines = [f"{copy} {tile} {tile.name}" for tile in tiles]
    lines.insert(2, f"{dump} -h {tiles[0].name}; echo ncdump says $?")
    script.write_text("\n".join(lines))
    result = advectio.run(["sh", script], work, JOIN, datasets=1)
    assert "ncdump says 1" in result.stdout, result.said
    assert "is a tile that becomes one file with others" in result.stderr, result.said
    assert_same(shared("nemo/mesh_mask.nc"), work / "mesh_mask.nc")
