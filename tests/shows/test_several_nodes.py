"""Parallel programs on several nodes, simulated on this one: a server on each, and the same files."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Pair
from running import PYTHON, Result, Running, output_files, run_plainly
from same import assert_same
from test_crashes import assert_beginning_is_same, records, synced_frames
from test_parallel_netcdf import answers
from test_pnetcdf import assert_same_answers, assert_that_a_killed_rank_loses_no_frame_that_all_had_synced, ranks_of

Source = Callable[[str], Path]

# Ranks of each node; 0: one for output only.
TWO, FOUR, WITH_IO, ONLY_IO = "2,1", "1,2,1,3", "2,2,0", "3,0,0"
REAL = "wrf471/serial/wrfout_d01_4frames.nc"


@pytest.fixture(autouse=True)
def several_servers(replay: Path) -> None:
    if not (replay.parents[2] / "src" / "apps" / "advectiod" / "advectiod_mpi").exists():
        pytest.skip("advectiod_mpi is not built: no MPI here")


def ranks_in(nodes: str) -> int:
    return sum(map(int, nodes.split(",")))


def launch(nodes: str) -> list[str | Path]:
    return list(ranks_of(ranks_in(nodes)))


@pytest.mark.parametrize(
    ("name", "io", "nodes"),
    [
        ("made", "pnetcdf", TWO),
        ("made", "pnetcdf", FOUR),
        ("made", "pnetcdf-nonblocking", FOUR),
        ("made", "pnetcdf-nonblocking", WITH_IO),
        ("made", "pnetcdf", ONLY_IO),
        (REAL, "pnetcdf", "2,2,2,0"),
        (REAL, "pnetcdf-nonblocking", TWO),
    ],
)
def test_ranks_of_several_nodes_write_one_file_by_pnetcdf(
    source: Source, replay: Path, pair: Pair, name: str, io: str, nodes: str
):
    frames = ["--frames", "5", "--frames-per-file", "2"]
    result = pair.run([*launch(nodes), replay, "--io", io, *frames, source(name)], datasets=3, nodes=nodes)
    pair.assert_same(at_least=3)
    assert [d["frames_durable"] for d in sorted(result.summary["datasets"], key=lambda d: d["path"])] == [2, 2, 1]
    names = [n["name"] for n in result.summary["nodes"]]
    assert len(names) == len(nodes.split(","))
    owners = {d["node"] for d in result.summary["datasets"]}
    # Files go to the nodes in turn: to those that are there for it, or to all of them.
    assert owners == set(names[-nodes.split(",").count("0") :] if "0" in nodes else names[:3])


@pytest.mark.parametrize(("name", "nodes"), [("made", TWO), (REAL, WITH_IO)])
def test_ranks_of_several_nodes_write_one_file_by_netcdf4(
    source: Source,
    replay_mpi: Path,
    pair: Pair,
    name: str,
    nodes: str,
):
    frames = ["--frames", "4", "--frames-per-file", "2", "--deflate", "1"]
    pair.run([*launch(nodes), replay_mpi, "--io", "netcdf4-parallel", *frames, source(name)], datasets=2, nodes=nodes)
    pair.assert_same(at_least=2)


@pytest.mark.parametrize("nodes", ["1,2,1", WITH_IO])
def test_every_family_gives_the_same_answers_on_several_nodes(families: Path, pair: Pair, nodes: str):
    pair.run([*launch(nodes), families, "5", "out.nc"], datasets=2, nodes=nodes)
    assert_same_answers(pair, ranks_in(nodes), 1000)
    for name in ("out.nc", "modes.nc"):
        assert_same(pair.plain / name, pair.carried / name)


@pytest.mark.parametrize(("how", "nodes"), [("netcdf4", "1,1"), ("fortran", WITH_IO)])
def test_every_call_of_parallel_netcdf4_gives_the_same_answers_on_several_nodes(
    calls: Path,
    pair: Pair,
    how: str,
    nodes: str,
):
    pair.run([*launch(nodes), calls, how, "out.nc"], datasets=1, nodes=nodes)
    assert answers(pair.plain, ranks_in(nodes)) == answers(pair.carried, ranks_in(nodes))
    assert_same(pair.plain / "out.nc", pair.carried / "out.nc")


@pytest.mark.parametrize("io", ["serial", "split"])
def test_what_single_ranks_write_goes_to_the_nodes_for_output(made: Path, replay: Path, pair: Pair, io: str):
    frames = ["--frames", "5", "--frames-per-file", "2"]
    result = pair.run([*launch("2,1,0,0"), replay, "--io", io, *frames, made], nodes="2,1,0,0")
    pair.assert_same(at_least=3)
    assert {d["node"] for d in result.summary["datasets"]} == {"io0", "io1"}


def test_what_single_ranks_write_stays_on_their_node_where_none_is_for_output(made: Path, replay: Path, pair: Pair):
    result = pair.run([*launch("1,2"), replay, "--io", "split", made], datasets=3, nodes="1,2")
    pair.assert_same(at_least=3)
    assert sorted(d["node"] for d in result.summary["datasets"]) == ["n0", "n1", "n1"]


@pytest.mark.parametrize("nodes", ["1,1", "1,1,0"])
def test_a_rank_that_opens_what_another_node_has_in_flight_waits_for_what_was_synced(pair: Pair, nodes: str):
    # What takes a while: the reader would find less without waiting.
    config = 'server: {threads: 1}\ndatasets: [{match: "*", codec: deflate, deflate: libdeflate, level: 12}]\n'
    command = [*ranks_of(2), PYTHON, Path(__file__).parent / "programs" / "ranks" / "two_nodes.py", "out.nc"]
    result = pair.advectio.run(command, pair.carried, config, datasets=1, nodes=nodes)
    assert [line for line in result.stdout.splitlines() if line.startswith("frames")] == ["frames 1", "frames 2", "frames 3"]


@pytest.mark.parametrize(("io", "nodes"), [("pnetcdf", "2,2"), ("pnetcdf-nonblocking", "2,2,0")])
def test_stages_smaller_than_a_frame_are_enough(made: Path, replay: Path, pair: Pair, io: str, nodes: str):
    config = "stage: {bytes_max: 36MiB, segment_bytes: 2MiB, wait_max: 30s}\n"
    command = [*launch(nodes), replay, "--io", io, "--tile", "4x4", "--frames", "3", made]
    result = pair.run(command, config, nodes=nodes)
    assert result.summary["datasets"][0]["bytes_put"] > 36 * 2**20, "too little data for this test to mean anything"
    pair.assert_same()


def compressed_slowly(replay_mpi: Path, pair: Pair, made: Path, nodes: str) -> Result:
    config = 'server: {threads: 1}\ndatasets: [{match: "*", deflate: libdeflate}]\n'
    io = ["--io", "netcdf4-parallel", "--tile", "4x4", "--frames", "1", "--deflate", "4"]
    result = pair.run([*launch(nodes), replay_mpi, *io, made], config, nodes=nodes)
    pair.assert_same()
    return result


@pytest.mark.parametrize("nodes", ["2,2", "2,1,0,0"])
def test_nodes_help_the_owner_of_a_file_to_compress_it(made: Path, replay_mpi: Path, pair: Pair, nodes: str):
    result = compressed_slowly(replay_mpi, pair, made, nodes)
    server = result.summary["server"]
    assert server["chunks_by_others"] == server["chunks_for_others"] > 0
    assert f"{server['chunks_by_others']} chunks compressed by other nodes" in " ".join(result.said.split())


def test_nobody_helps_the_only_node_that_is_for_output(made: Path, replay_mpi: Path, pair: Pair):
    assert compressed_slowly(replay_mpi, pair, made, "2,1,0").summary["server"]["chunks_by_others"] == 0


def server_of_node(running: Running, number: int) -> list[int]:
    found = []
    for pid in running.pids("advectiod_mpi"):
        try:
            words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"OMPI_COMM_WORLD_RANK={number}".encode() in words:
            found.append(pid)
    return found


def kill_a_server(running: Running, number: int, but: int = 0) -> int:
    """That of the node of that number; its death ends the others. `but`: the one that was killed before."""
    (pid,) = running.wait_for(
        lambda: [pid for pid in server_of_node(running, number) if pid != but], f"there was a server of node {number}"
    )
    os.kill(pid, signal.SIGKILL)
    return int(pid)


@pytest.mark.parametrize(("io", "victim"), [("pnetcdf", 0), ("pnetcdf-nonblocking", 1), ("pnetcdf", 2), ("serial", 2)])
def test_kill_of_one_server_of_several_loses_nothing(made: Path, replay: Path, pair: Pair, io: str, victim: int):
    frames = ["--frames", "10", "--frames-per-file", "3"]
    base: list[str | Path] = [*launch(WITH_IO), replay, "--io", io, *frames]
    plain = run_plainly([*base, made], pair.plain)
    assert plain.code == 0, plain.said
    running = pair.advectio.start([*base, "--compute", "0.2", made], pair.carried, nodes=WITH_IO)
    killed = 0
    for frame in (2, 5):
        running.wait_for(lambda n=frame: running.frames() >= n, f"{frame} frames were written")
        killed = kill_a_server(running, victim, killed)
    result = running.finish()
    assert result.code == 0, result.said
    assert result.summary["server"]["restarts"] == 2, result.said
    pair.assert_same(at_least=4)
    assert not pair.advectio.run_dirs[-1].exists()


def test_what_all_servers_left_is_finished_by_recover(made: Path, replay: Path, pair: Pair):
    config = "server: {restarts_max: 0}\n"
    base: list[str | Path] = [*launch(WITH_IO), replay, "--io", "pnetcdf"]
    running = pair.advectio.start(
        [*base, "--frames", "100000", "--frames-per-file", "3", "--compute", "0.05", made], pair.carried, config, nodes=WITH_IO
    )
    running.wait_for(lambda: running.frames() >= 7, "7 frames were written")
    kill_a_server(running, 2)
    running.wait_for(lambda: any("not started again" in line for line in running.errors), "the servers were given up")
    running.kill("replay")
    assert running.finish().code != 0
    run_dir = pair.advectio.run_dirs[-1]
    assert run_dir.exists()
    done = pair.advectio.call("recover", run_dir, directory=pair.carried)
    assert done.code == 0, done.said
    assert not run_dir.exists()
    said = sum(synced_frames(running.lines).values())
    names = output_files(pair.carried)
    held = sum(records(pair.carried / file) for file in names)
    assert said - 1 <= held <= said + 1, f"{said} frames were synced, the files have {held}"
    plain = run_plainly([*base, "--frames", str(held + 4), "--frames-per-file", "3", made], pair.plain)
    assert plain.code == 0, plain.said
    for file in names:
        assert_beginning_is_same(pair.plain / file, pair.carried / file)


@pytest.mark.parametrize("victim", [0, 3])
def test_kill_of_a_rank_keeps_every_frame_that_all_had_synced(made: Path, replay: Path, pair: Pair, victim: int):
    base: list[str | Path] = [*launch(WITH_IO), replay, "--io", "pnetcdf", made]
    assert_that_a_killed_rank_loses_no_frame_that_all_had_synced(pair, base, "replay", victim, WITH_IO)
