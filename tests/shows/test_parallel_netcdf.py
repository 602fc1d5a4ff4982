"""Parallel programs that write one file together by parallel netCDF-4: the same with and without Advectio."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Pair
from running import output_files, run_plainly
from same import assert_same
from test_crashes import kill_server
from test_pnetcdf import assert_that_a_killed_rank_loses_no_frame_that_all_had_synced, ranks_of

Source = Callable[[str], Path]

REAL = "wrf471/serial/wrfout_d01_4frames.nc"
IO = ["--io", "netcdf4-parallel"]


def answers(directory: Path, ranks: int, name: str = "out.nc") -> list[list[str]]:
    return [(directory / f"{name}.{rank}").read_text().splitlines() for rank in range(ranks)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("how", ["netcdf4", "classic-model", "fortran"])
def test_every_call_gives_the_same_answers_and_the_same_file(calls: Path, pair: Pair, how: str, ranks: int):
    pair.run([*ranks_of(ranks), calls, how, "out.nc"], datasets=1)
    plain, carried = (answers(directory, ranks) for directory in (pair.plain, pair.carried))
    assert all(len(lines) > 150 for lines in plain)
    assert plain == carried
    assert any("Attempt to extend dataset during NC_INDEPENDENT" in line for line in carried[0])
    assert_same(pair.plain / "out.nc", pair.carried / "out.nc")


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("how", ["wrong-alone", "wrong-alone-classic-model"])
def test_a_wrong_call_of_one_rank_is_answered_without_the_others(calls: Path, pair: Pair, how: str, ranks: int):
    pair.run([*ranks_of(ranks), calls, how, "out.nc"], datasets=1)
    plain, carried = (answers(directory, ranks) for directory in (pair.plain, pair.carried))
    assert all(sum(not line.endswith(": ok") for line in lines) > 25 for lines in plain)
    assert plain == carried
    assert_same(pair.plain / "out.nc", pair.carried / "out.nc")


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("how", ["append", "append-classic-model"])
def test_a_finished_file_is_opened_again_and_made_longer(calls: Path, pair: Pair, how: str, ranks: int):
    result = pair.run([*ranks_of(ranks), calls, how, "out.nc"], datasets=1)
    assert result.dataset("out.nc")["frames_visible"] >= 3, "each opening has a frame"
    plain, carried = (answers(directory, ranks) for directory in (pair.plain, pair.carried))
    assert sum("nc_open_par(path, NC_WRITE" in line for line in plain[0]) == 2
    assert plain == carried
    assert_same(pair.plain / "out.nc", pair.carried / "out.nc")


def test_parts_of_the_ranks_write_files_of_their_own_at_the_same_time(calls: Path, pair: Pair):
    pair.run([*ranks_of(4), calls, "communicators", "out.nc"], datasets=12)
    assert answers(pair.plain, 4) == answers(pair.carried, 4)
    pair.assert_same(at_least=11)


def test_ranks_on_other_nodes_that_may_not_be_preloaded_leave_all_to_the_library(calls: Path, pair: Pair):
    assert run_plainly([*ranks_of(3), calls, "netcdf4", "out.nc"], pair.plain).code == 0
    # As Open MPI tells a rank that one of three is elsewhere, where its launcher has not taken the environment. One program
    # for all: Open MPI 5.0.7's mpirun crashes by itself on `A : B`.
    here = "export OMPI_COMM_WORLD_LOCAL_SIZE=2; "
    there = '[ "$OMPI_COMM_WORLD_RANK" != 2 ] || unset LD_PRELOAD ADVECTIO_RUN; '
    command = [*ranks_of(3), "sh", "-c", here + there + 'exec "$0" "$@"', calls, "netcdf4", "out.nc"]
    result = pair.advectio.run(command, pair.carried, datasets=0)
    assert result.stderr.count("out.nc goes through the netCDF library as usual: there are ranks on other nodes") == 1
    assert answers(pair.plain, 3) == answers(pair.carried, 3)
    assert_same(pair.plain / "out.nc", pair.carried / "out.nc")


def test_a_stage_smaller_than_what_others_put_while_rank_0_does_nothing_is_enough(calls: Path, pair: Pair):
    config = "stage: {bytes_max: 16MiB, segment_bytes: 1MiB, wait_max: 15s}\n"
    result = pair.run([*ranks_of(3), calls, "idle-root", "out.nc"], config, datasets=1)
    assert result.summary["datasets"][0]["bytes_put"] == 2**26 == 4 * result.summary["stage"]["bytes_max"]
    assert answers(pair.plain, 3) == answers(pair.carried, 3)
    assert_same(pair.plain / "out.nc", pair.carried / "out.nc")


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("unlimited", "a second unlimited dimension that several ranks extend"),
        ("group", "a group"),
        ("group-after-enddef", "a group"),
    ],
)
def test_what_cannot_be_carried_is_the_library_s_and_said_once(calls: Path, pair: Pair, how: str, why: str):
    result = pair.run([*ranks_of(3), calls, how, "out.nc"])
    assert result.stderr.count(f"out.nc: {why} cannot be carried") == 1, result.said
    assert answers(pair.plain, 3) == answers(pair.carried, 3)
    if how == "unlimited":
        assert_same(pair.plain / "out.nc", pair.carried / "out.nc")


def test_what_can_no_longer_be_handed_over_is_refused_on_all_ranks(calls: Path, pair: Pair):
    assert run_plainly([*ranks_of(3), calls, "netcdf4", "out.nc"], pair.plain).code == 0
    result = pair.advectio.run([*ranks_of(3), calls, "late-group", "out.nc"], pair.carried, datasets=1)
    assert result.stderr.count("out.nc: a group cannot be carried; it is refused") == 1, result.said
    for lines in answers(pair.carried, 3):
        (refused,) = [line for line in lines if "nc_def_grp" in line]
        assert "not turned on when netCDF was built" in refused
    assert_same(pair.plain / "out.nc", pair.carried / "out.nc")


@pytest.mark.parametrize("deflate", ["asked", "none"])
@pytest.mark.parametrize(("name", "ranks"), [("made", 3), *((REAL, n) for n in (1, 2, 3, 4, 7, 12))])
def test_replay_of_wrf_is_the_same(
    source: Source, replay: Path, replay_mpi: Path, pair: Pair, tmp_path: Path, name: str, deflate: str, ranks: int
):
    options = ["--deflate", deflate, source(name)]
    result = pair.run([*ranks_of(ranks), replay_mpi, *IO, *options], datasets=1)
    pair.assert_same()
    (dataset,) = result.summary["datasets"]
    assert dataset["frames_synced"] == dataset["frames_durable"] >= 2
    # And what one rank writes by the serial library.
    serial = tmp_path / "serial"
    serial.mkdir()
    assert run_plainly([replay, *options], serial).code == 0
    (alone,), (together,) = output_files(serial), output_files(pair.carried)
    assert_same(serial / alone, pair.carried / together)


def test_several_frames_and_files_are_the_same(made: Path, replay_mpi: Path, pair: Pair):
    result = pair.run([*ranks_of(3), replay_mpi, *IO, "--frames", "7", "--frames-per-file", "3", made], datasets=3)
    pair.assert_same(at_least=3)
    assert [d["frames_synced"] for d in result.summary["datasets"]] == [3, 3, 1]


def test_a_stage_smaller_than_a_frame_is_enough(made: Path, replay_mpi: Path, pair: Pair):
    config = "stage: {bytes_max: 24MiB, segment_bytes: 2MiB}\n"
    command = [*ranks_of(3), replay_mpi, *IO, "--deflate", "none", "--tile", "4x4", "--frames", "3", made]
    result = pair.run(command, config)
    assert result.summary["datasets"][0]["bytes_put"] > 24 * 2**20, "too little data for this test to mean anything"
    pair.assert_same()


def test_ranks_under_exec_are_the_same(made: Path, replay_mpi: Path, pair: Pair):
    program = [replay_mpi, *IO, made]
    assert run_plainly([*ranks_of(2), *program], pair.plain).code == 0
    forget = ["env", "-u", "LD_PRELOAD"]
    command = pair.advectio.command
    pair.advectio.run([*ranks_of(2), *forget, command, "exec", "--", *program], pair.carried, datasets=1)
    pair.assert_same()


@pytest.mark.parametrize("victim", [0, 2])
def test_kill_of_one_rank_keeps_every_frame_that_all_had_synced(made: Path, replay_mpi: Path, pair: Pair, victim: int):
    base: list[str | Path] = [*ranks_of(3), replay_mpi, *IO, made]
    assert_that_a_killed_rank_loses_no_frame_that_all_had_synced(pair, base, replay_mpi.name, victim)


def test_kill_of_the_server_loses_nothing(made: Path, replay_mpi: Path, pair: Pair):
    command: list[str | Path] = [*ranks_of(3), replay_mpi, *IO, "--frames", "12", "--frames-per-file", "5", made]
    assert run_plainly(command, pair.plain).code == 0
    running = pair.advectio.start([*command, "--compute", "0.05"], pair.carried)
    running.wait_for(lambda: running.frames() >= 4, "4 frames were written")
    kill_server(running, pair.advectio.run_dirs[-1])
    result = running.finish()
    assert result.code == 0, result.said
    assert result.summary["server"]["restarts"] == 1, result.said
    pair.assert_same(at_least=3)


def test_open_waits_no_longer_than_asked_for_a_server_that_has_gone(calls: Path, pair: Pair):
    config = "stage: {wait_max: 1s}\nserver: {restarts_max: 0}\n"
    running = pair.advectio.start([*ranks_of(2), calls, "pause", "out.nc"], pair.carried, config)
    running.wait_for((pair.carried / "out.nc.paused").exists, "the first frame was synced")
    kill_server(running, pair.advectio.run_dirs[-1])
    (pair.carried / "out.nc.go").touch()
    result = running.finish()
    for lines in answers(pair.carried, 2):
        (opened,) = [line for line in lines if "nc_open_par" in line]
        assert opened.endswith("Connection timed out"), lines
    assert "out.nc: the server has gone" in result.stderr, result.said
    # What was put is staged all the same.
    recovered = pair.advectio.call("recover", pair.advectio.run_dirs[-1], directory=pair.carried)
    assert recovered.code == 0, recovered.said
    (pair.plain / "out.nc.go").touch()
    assert run_plainly([*ranks_of(2), calls, "pause", "out.nc"], pair.plain).code == 0
    assert_same(pair.plain / "out.nc", pair.carried / "out.nc")
