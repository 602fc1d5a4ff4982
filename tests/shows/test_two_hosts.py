"""Programs on two hosts, see two_hosts.py."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
import watched
from conftest import Pair
from running import PYTHON, Running, output_files, run_plainly
from test_outputs_by_operators import assert_made, config, files_of
from two_hosts import HERE, Host


def both(host: Host, ranks: int) -> list[str]:
    # Open MPI 5 fills the first host with all ranks where it may oversubscribe.
    hosts = f"{HERE}:{ranks},{host.name}:{ranks}"
    return ["mpirun", "--host", hosts, "-n", str(2 * ranks), "--map-by", f"ppr:{ranks}:node"]


def finish(running: Running, pair: Pair, host: Host) -> dict[str, object]:
    result = running.finish()
    assert result.code == 0, result.said
    assert not pair.advectio.run_dirs[-1].exists()
    assert host.left() == []
    return result.summary


def write_plainly(pair: Pair, program: list[str | Path], ranks: int) -> None:
    done = run_plainly(["mpirun", "-n", str(ranks), *program], pair.plain)
    assert done.code == 0, done.said


def test_ranks_of_two_hosts_write_one_file_whichever_server_dies(made: Path, replay: Path, pair: Pair, host: Host):
    program: list[str | Path] = [replay, "--io", "pnetcdf-nonblocking", "--frames", "6", "--frames-per-file", "2", made]
    write_plainly(pair, program, 4)
    command = [*both(host, 2), *program, "--compute", "0.5"]
    running = pair.advectio.start(command, pair.carried, extra=host.environment)
    running.wait_for(lambda: running.frames() >= 1, "a frame was written")
    (server,) = running.wait_for(lambda: host.pids("advectiod_mpi"), "there was a server on the other host")
    os.kill(server, signal.SIGKILL)
    summary = finish(running, pair, host)
    assert summary["server"]["restarts"] == 1  # type: ignore[index]
    assert {d["node"] for d in summary["datasets"]} == {HERE, host.name}  # type: ignore[attr-defined]
    pair.assert_same(at_least=3)


def test_outputs_by_operators_are_made_of_the_files_of_both(made: Path, replay: Path, pair: Pair, host: Host):
    outputs = ['{path: "days/{time}.nc", variables: [T2], mean: 1d, split: 1d}', "{path: t2.nc, variables: [T2], max: all}"]
    program: list[str | Path] = [replay, "--io", "pnetcdf", "--frames", "6", "--frames-per-file", "2", made]
    running = pair.advectio.start([*both(host, 1), *program], pair.carried, config(outputs), extra=host.environment)
    summary = finish(running, pair, host)
    assert {d["node"] for d in summary["datasets"]} == {HERE, host.name}  # type: ignore[attr-defined]
    days = [name for name in output_files(pair.carried) if name.startswith("days/")]
    assert days
    assert_made(pair, outputs, files_of(pair), [*days, "t2.nc"])


def test_parallel_netcdf4_of_two_hosts(made: Path, replay_mpi: Path, pair: Pair, host: Host):
    program: list[str | Path] = [replay_mpi, "--io", "netcdf4-parallel", "--frames", "4", "--frames-per-file", "2", made]
    write_plainly(pair, program, 4)
    running = pair.advectio.start([*both(host, 2), *program], pair.carried, extra=host.environment)
    summary = finish(running, pair, host)
    assert len(summary["datasets"]) == 2  # type: ignore[arg-type]
    pair.assert_same(at_least=2)


def test_a_host_for_output_only_writes_it_all(made: Path, replay: Path, pair: Pair, host: Host):
    program: list[str | Path] = [replay, "--frames", "4", "--frames-per-file", "2", made]
    write_plainly(pair, program, 2)
    named = ["--nodes", f"{HERE},{host.name}", "--io-nodes", "1"]
    running = pair.advectio.start(["mpirun", "-n", "2", *program], pair.carried, extra=host.environment, options=named)
    summary = finish(running, pair, host)
    assert {d["node"] for d in summary["datasets"]} == {host.name}  # type: ignore[attr-defined]
    pair.assert_same(at_least=2)


def test_a_rank_waits_for_what_the_other_host_has_in_flight(pair: Pair, host: Host):
    config = 'server: {threads: 1}\ndatasets: [{match: "*", codec: deflate, deflate: libdeflate, level: 12}]\n'
    program = [PYTHON, Path(__file__).parent / "programs" / "ranks" / "two_nodes.py", "out.nc"]
    began = time.monotonic()
    running = pair.advectio.start([*both(host, 1), *program], pair.carried, config, extra=host.environment)
    finish(running, pair, host)
    said = [line.strip() for line in running.lines if line.startswith("frames")]
    assert said == ["frames 1", "frames 2", "frames 3"]
    assert time.monotonic() - began < 120


def test_without_servers_on_both_hosts_the_library_writes(made: Path, replay: Path, pair: Pair, host: Host):
    program: list[str | Path] = [replay, "--io", "pnetcdf", made]
    write_plainly(pair, program, 2)
    alone = ["--nodes", HERE]
    running = pair.advectio.start([*both(host, 1), *program], pair.carried, extra=host.environment, options=alone)
    summary = finish(running, pair, host)
    assert summary["datasets"] == []
    pair.assert_same(at_least=1)


@pytest.mark.parametrize("transport", ["tcp", "ucx"])
def test_a_reader_on_a_third_host_gets_the_files_of_both(made: Path, replay: Path, pair: Pair, host: Host, transport: str):
    """Each rank writes a file of its own, which its own node's server owns."""
    program = [replay, "--io", "split", "--frames", "6", "--frames-per-file", "3", "--compute", "0.2", made]
    config = f"readers: {{listen: ['tcp:{host.network}:0']}}\n"
    options = ("--wait-for-readers", "2", "--readers-within", "120")
    running = pair.advectio.start([*both(host, 1), *program], pair.carried, config, extra=host.environment, options=options)
    contact = pair.carried / "advectio.contact"
    running.wait_for(contact.exists, "all servers had said where they listen")
    nodes = json.loads(contact.read_text())["nodes"]
    assert [node["host"] for node in nodes] == [HERE, host.name]
    assert len({node["secret"] for node in nodes}) == 2
    readers = [
        watched.Reader(os.fspath(contact), "wait", prefix=host.third, transport=transport),
        watched.Reader(os.fspath(contact), "wait", pause_s=0.2),
    ]
    try:
        summary = finish(running, pair, host)
        assert [reader.end() for reader in readers] == [0, 0]
    finally:
        for reader in readers:
            reader.stop()
    assert {d["node"] for d in summary["datasets"]} == {HERE, host.name}  # type: ignore[attr-defined]
    files = sorted(p.name for p in pair.carried.glob("wrfout*"))
    assert len(files) == 4
    for reader in readers:
        assert sorted(reader.frames) == [(name, k) for name in files for k in range(3)]
    wrong, compared = watched.differences(pair.carried, readers)
    assert not wrong, "\n".join(wrong)
    assert compared > 0
    assert not contact.exists()


def test_a_reader_elsewhere_misses_nothing_when_a_server_of_two_dies(made: Path, replay: Path, pair: Pair, host: Host):
    program = [replay, "--io", "split", "--frames", "8", "--frames-per-file", "4", "--compute", "0.4", made]
    config = f"readers: {{listen: ['tcp:{host.network}:0']}}\n"
    options = ("--wait-for-readers", "1", "--readers-within", "120")
    running = pair.advectio.start([*both(host, 1), *program], pair.carried, config, extra=host.environment, options=options)
    contact = pair.carried / "advectio.contact"
    running.wait_for(contact.exists, "all servers had said where they listen")
    reader = watched.Reader(os.fspath(contact), "wait", prefix=host.third)
    try:
        running.wait_for(lambda: len(reader.seen) >= 2, "the reader had two frames")
        (server,) = host.pids("advectiod_mpi")
        os.kill(server, signal.SIGKILL)
        summary = finish(running, pair, host)
        assert reader.end() == 0
    finally:
        reader.stop()
    assert summary["server"]["restarts"] == 1  # type: ignore[index]
    files = sorted(p.name for p in pair.carried.glob("wrfout*"))
    assert sorted(reader.frames) == [(name, k) for name in files for k in range(4)]
    wrong, _ = watched.differences(pair.carried, [reader])
    assert not wrong, "\n".join(wrong)
