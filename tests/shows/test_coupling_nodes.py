"""Programs on two hosts (two_hosts.py) with one workflow: what one has written the other reads, over the network alone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from advectio.workflow import WorkflowStatus
from conftest import built
from running import PYTHON, Advectio, Running, output_files, processes, run_plainly
from shapes import must_fit
from test_coupling import ANALYSIS, FORECAST, READER, WRITER, bad, child_of, expected, good, rule
from two_hosts import HERE, Host

Words = Sequence[str | Path]
SECONDS_MAX = 60.0


class Site:
    """One of the two hosts, as programs are started on it."""

    def __init__(self, advectio: Advectio, host: Host | None):
        self.advectio, self.host = advectio, host
        self.name = host.name if host else HERE
        self.root = Path(f"/proc/{host.pid}/root") if host else Path("/")

    def advectiods(self) -> list[int]:
        return self.host.pids("advectiod") if self.host else processes_here("advectiod")

    def received(self) -> int:
        """Bytes that have come over its network."""
        net = Path(f"/proc/{self.host.pid if self.host else os.getpid()}/net/dev").read_text()
        return sum(int(line.partition(":")[2].split()[0]) for line in net.splitlines()[2:] if "lo:" not in line)


def processes_here(name: str) -> list[int]:
    space = os.readlink("/proc/self/ns/pid")
    found = []
    for pid in processes(name):
        try:
            if os.readlink(f"/proc/{pid}/ns/pid") == space:
                found.append(pid)
        except OSError:
            continue
    return found


def command_of(pid: int) -> list[bytes]:
    """The words of its command; none where the process has gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


class Nodes:
    """A workflow whose programs are on this host and on the other."""

    def __init__(self, here: Site, there: Site, at: Path):
        self.here, self.there = here, there
        self.directory = at / "workflow"
        self.work = at / "work"
        self.work.mkdir()
        assert there.host is not None
        self.network = there.host.network
        self.memory: Path | None = None

    def config(self, *rules: str, wait_max: str = "2min", restart_max: str = "1s") -> str:
        workflow = f"workflow: {{listen: ['tcp:{self.network}:0'], wait_max: {wait_max}, restart_max: {restart_max}}}\n"
        return f"{workflow}couple:\n{''.join(rules or (rule(),))}"

    def start(self, site: Site, name: str, command: Words, config: str | None = None, nodes: str | None = None) -> Running:
        options = ["--workflow", self.directory, "--as", name]
        running = site.advectio.start(command, self.work, config or self.config(), options=options, nodes=nodes)
        running.wait_for(self.find_memory, "the program came to the workflow")
        return running

    def find_memory(self) -> Path | None:
        if self.memory is None:
            try:
                identity = json.loads((self.directory / "advectio.workflow").read_text())["id"]
            except (OSError, ValueError):
                return None
            self.memory = Path(f"/dev/shm/advectio-{os.getuid()}/.workflow-{identity}")
        return self.memory

    def memory_of(self, site: Site) -> Path:
        assert self.memory is not None
        return site.root / self.memory.relative_to("/")

    def status(self, site: Site) -> dict[str, Any]:
        done = site.advectio.call("status", "--workflow", self.directory, "--json")
        assert done.code == 0, done.said
        told: dict[str, Any] = json.loads(done.stdout)
        must_fit(told, WorkflowStatus)
        return told

    def node_of(self, site: Site) -> dict[str, Any]:
        """What its server says of it."""
        (own,) = [n for n in self.status(site)["nodes"] if n["state"] == "here"]
        assert own["host"] == site.name
        return dict(own)

    def server_of(self, site: Site) -> int:
        """Its server's pid, as this host numbers it."""
        memory = os.fspath(self.memory).encode()

        def is_it(pid: int) -> bool:
            words = command_of(pid)
            return len(words) > 1 and words[1] == b"workflow" and memory in words

        found = wait_for(lambda: [pid for pid in site.advectiods() if is_it(pid)], f"{site.name} had a server")
        assert len(found) == 1
        return int(found[0])

    def assert_gone(self) -> None:
        """On both, soon after the last program has left."""
        wait_for(lambda: not self.left(), "all was gone", self.left)

    def left(self) -> list[str]:
        tops = [self.memory_of(self.here), self.memory_of(self.there)]
        below = [
            os.path.join(at, name)
            for top in [*tops, self.directory]
            for at, dirs, names in os.walk(top)
            for name in dirs + names
        ]
        return [os.fspath(top) for top in tops if top.exists()] + below


def wait_for(what: Callable[[], Any], described: str, about: Callable[[], object] = lambda: "") -> Any:
    until = time.monotonic() + SECONDS_MAX
    while not (found := what()):
        assert time.monotonic() < until, f"not {described} after {SECONDS_MAX} s: {about()}"
        time.sleep(0.02)
    return found


@pytest.fixture
def nodes(advectio: Advectio, host: Host, tmp_path: Path) -> Iterator[Nodes]:
    command = tmp_path / "advectio-there"
    enter = f"exec nsenter -t {host.pid} -n -u -m -i -p --"
    command.write_text(f'#!/bin/sh\n{enter} sh -c \'cd "$0" && exec "$@"\' "$PWD" {advectio.command} "$@"\n')
    command.chmod(0o755)
    scratch = tmp_path / "there"
    scratch.mkdir()
    there = Advectio(command, scratch, Path("/dev/shm"))
    made = Nodes(Site(advectio, None), Site(there, host), tmp_path)
    yield made
    there.clean()
    advectio.clean()
    if made.memory is None:
        return
    try:
        for _ in range(100):  # servers of runs that were killed live on until all is written
            if not made.left() or not (made.directory / "advectio.workflow").exists():
                break
            for site in (advectio, there):
                site.call("status", "--workflow", made.directory, "--end")
            time.sleep(0.1)
    finally:
        for site in (made.here, made.there):
            for pid in site.advectiods():
                if os.fspath(made.memory).encode() in command_of(pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            subprocess.run(["rm", "-rf", made.memory_of(site)], check=False)


def waits(nodes: Nodes, site: Site, name: str) -> Callable[[], bool]:
    return lambda: any(w["name"] == name for w in nodes.status(site)["waits"])


def stay(nodes: Nodes, site: Site, name: str = "c", config: str | None = None) -> Running:
    """A program that lives until the file `over` is there."""
    return nodes.start(site, name, ["sh", "-c", "while [ ! -e over ]; do sleep 0.05; done"], config)


def leave(nodes: Nodes, *staying: Running) -> None:
    (nodes.work / "over").touch()
    for running in staying:
        good(running)


def knows(nodes: Nodes, site: Site, name: str) -> Callable[[], bool]:
    """It knows that program, and that it lives."""
    return lambda: any(p["name"] == name and p["alive"] for p in nodes.status(site)["programs"])


def has_ended(nodes: Nodes, site: Site, name: str) -> bool:
    """As that node knows."""
    return any(p["name"] == name and p["exit_code"] == 0 for p in nodes.status(site)["programs"])


@pytest.mark.parametrize("first", ["writer", "reader"])
def test_what_one_node_writes_another_reads(nodes: Nodes, tmp_path: Path, first: str):
    plain = tmp_path / "plain"
    plain.mkdir()
    write = [*WRITER, "out.nc", "300", "0"]
    assert run_plainly(write, plain).code == 0
    wanted = run_plainly([*READER, "out.nc"], plain)
    assert wanted.code == 0
    size = (plain / "out.nc").stat().st_size
    staying = stay(nodes, nodes.there)
    before = nodes.there.received()
    if first == "writer":
        good(nodes.start(nodes.here, "a", write))
        got = good(nodes.start(nodes.there, "b", [*READER, "out.nc"]))
    else:
        reading = nodes.start(nodes.there, "b", [*READER, "out.nc"])
        wait_for(waits(nodes, nodes.there, "b"), "the reader waited")
        good(nodes.start(nodes.here, "a", write))
        got = good(reading)
    assert got.stdout == wanted.stdout
    assert output_files(nodes.work) == []
    # The bytes have come over the network, into that node's own memory, once.
    (state,) = nodes.status(nodes.there)["files"]
    assert state["bytes"] > 0.9 * size and state["node"] is None
    fetched = (nodes.memory_of(nodes.there) / ("files" + state["path"]) / "000001.a").stat().st_size
    assert nodes.node_of(nodes.there)["bytes_fetched"] == fetched
    assert nodes.there.received() - before > fetched
    again = good(nodes.start(nodes.there, "b", [*READER, "out.nc"]))
    assert again.stdout == wanted.stdout
    assert nodes.node_of(nodes.there)["bytes_fetched"] == fetched
    shown = nodes.there.advectio.call("status", "--workflow", nodes.directory)
    assert HERE in shown.stdout and nodes.there.name in shown.stdout, shown.said
    leave(nodes, staying)
    nodes.assert_gone()


@pytest.mark.parametrize("mode", ["memory", "memory+file", "file"])
def test_an_ensemble_on_two_nodes_and_its_analysis_cycle_in_place(nodes: Nodes, mode: str):
    members, cycles = 3, 4
    config = nodes.config(
        rule("hist.{member}.nc", "fc-{member}", "letkf", f", mode: {mode}"),
        rule("hist.{member}.nc", "letkf", "fc-{member}", f", mode: {mode}"),
    )
    names = [f"hist.{m}.nc" for m in range(members)]
    running = [nodes.start(nodes.there, "letkf", [*ANALYSIS, str(cycles), *names], config)]
    for m, name in enumerate(names):
        site = nodes.there if m == 1 else nodes.here
        running.append(nodes.start(site, f"fc-{m}", [*FORECAST, name, str(m), str(cycles)], config))
    results = [good(r) for r in running]
    for got, wanted in zip(results[1:], expected(members, cycles), strict=True):
        assert np.array_equal(np.array(got.stdout.split(), dtype="f8"), wanted), got.said
    assert output_files(nodes.work) == ([] if mode == "memory" else names)
    nodes.assert_gone()


@pytest.mark.parametrize(("writers", "readers"), [(2, 1), (1, 3), (3, 2)])
def test_ranks_of_one_node_write_by_pnetcdf_and_those_of_another_read(
    nodes: Nodes, families: Path, replay: Path, made: Path, tmp_path: Path, writers: int, readers: int
):
    plain = tmp_path / "plain"
    plain.mkdir()
    write = ["mpirun", "-n", str(writers), replay, "--io", "pnetcdf", "--frames", "2", "--frames-per-file", "2", made]
    assert run_plainly(write, plain).code == 0
    names = output_files(plain)
    config = nodes.config(rule("wrfout*"))
    read: Words = ["mpirun", "-n", str(readers), built(replay, "pnetcdf_read_all"), *names]
    wanted = run_plainly(read, plain)
    assert wanted.code == 0, wanted.said
    reading = nodes.start(nodes.there, "b", read, config)
    writing = nodes.start(nodes.here, "a", write, config)
    got = good(reading)
    good(writing)
    assert sorted(got.stdout.splitlines()) == sorted(wanted.stdout.splitlines())
    assert output_files(nodes.work) == []
    nodes.assert_gone()


def test_the_tiles_of_a_models_ranks_are_read_on_another_node(nodes: Nodes, made: Path, replay: Path, tmp_path: Path):
    plain = tmp_path / "plain"
    plain.mkdir()
    write = ["mpirun", "-n", "4", replay, "--io", "split", "--frames", "2", "--frames-per-file", "1", made]
    assert run_plainly(write, plain).code == 0
    names = output_files(plain)
    assert len(names) == 8
    config = nodes.config(rule("wrfout*"))
    wanted = run_plainly([*READER, *names], plain)
    reading = nodes.start(nodes.there, "b", [*READER, *names], config)
    good(nodes.start(nodes.here, "a", write, config))
    got = good(reading)
    assert got.stdout == wanted.stdout
    nodes.assert_gone()


def test_a_frame_is_read_elsewhere_as_soon_as_it_is_synced(nodes: Nodes):
    config = nodes.config(rule(more=", when: sync"))
    writing = nodes.start(nodes.here, "a", [*WRITER, "out.nc", "3", "3600"], config)
    writing.wait_for(lambda: "frame 0\n" in writing.lines, "a frame was synced")
    got = good(nodes.start(nodes.there, "b", [*READER, "out.nc"], config))
    assert "'time': 1" in got.stdout, got.said
    os.kill(child_of(writing), signal.SIGKILL)
    bad(writing)


def test_a_file_that_a_reader_elsewhere_removes_is_gone_on_both_nodes(nodes: Nodes):
    staying = stay(nodes, nodes.here)
    good(nodes.start(nodes.here, "a", [*WRITER, "out.nc", "3", "0"]))
    good(nodes.start(nodes.there, "b", ["sh", "-c", "cat out.nc > copy; rm out.nc"]))
    wait_for(lambda: not list(nodes.memory_of(nodes.here).rglob("000001.a")), "it was gone here")
    assert not list(nodes.memory_of(nodes.there).rglob("000001.a"))
    assert run_plainly([*READER, "copy"], nodes.work).code == 0
    leave(nodes, staying)
    nodes.assert_gone()


def test_with_keep_read_memory_of_both_nodes_is_free_when_it_has_been_read(nodes: Nodes):
    config = nodes.config(rule(more=", keep: read"))
    staying = stay(nodes, nodes.here, config=config)
    good(nodes.start(nodes.here, "a", [*WRITER, "out.nc", "3", "0"], config))
    assert list(nodes.memory_of(nodes.here).rglob("000001.a"))
    good(nodes.start(nodes.there, "b", [*READER, "out.nc"], config))
    wait_for(lambda: not list(nodes.memory_of(nodes.here).rglob("000001.a")), "it was gone here")
    assert not list(nodes.memory_of(nodes.there).rglob("000001.a"))
    leave(nodes, staying)
    nodes.assert_gone()


def test_what_nobody_has_read_is_kept_and_can_be_removed_from_the_other_node(nodes: Nodes):
    staying = stay(nodes, nodes.there)
    result = good(nodes.start(nodes.here, "a", [*WRITER, "out.nc", "1"]))
    # Only a program that knows that it is the last one says it.
    wait_for(lambda: has_ended(nodes, nodes.there, "a"), "the other node knew that a has ended")
    leave(nodes, staying)
    said = "".join(staying.errors) + result.stderr
    assert "keeps 1 file" in said and "--end` removes" in said, said
    shown = nodes.there.advectio.call("status", "--workflow", nodes.directory)
    assert "not read by b yet" in shown.stdout and f"in the memory of {HERE}" in shown.stdout, shown.said
    ended = nodes.there.advectio.call("status", "--workflow", nodes.directory, "--end")
    assert ended.code == 0, ended.said
    nodes.assert_gone()


# --- how it ends when something is wrong --------------------------------------------------------------------------------


def test_a_partner_elsewhere_that_has_failed_is_named(nodes: Nodes):
    staying = [stay(nodes, nodes.there), stay(nodes, nodes.here, "d")]
    bad(nodes.start(nodes.here, "a", ["sh", "-c", "exit 7"]))
    reading = nodes.start(nodes.there, "b", [*READER, "out.nc"])
    bad(reading, "a has ended (exit code 7) without having completed it", "Owner died")
    leave(nodes, *staying)
    nodes.assert_gone()


def test_a_partner_elsewhere_that_is_killed_as_a_whole_is_named(nodes: Nodes):
    """The command, `advectio run`, and its server: its node's own server sees it."""
    staying = [stay(nodes, nodes.there), stay(nodes, nodes.here, "d")]
    writing = nodes.start(nodes.here, "a", [*WRITER, "out.nc", "3", "3600"])
    writing.wait_for(lambda: "frame 0\n" in writing.lines, "a frame was synced")
    reading = nodes.start(nodes.there, "b", [*READER, "out.nc"])
    wait_for(waits(nodes, nodes.there, "b"), "the reader waited")
    servers, command = writing.pids("advectiod"), child_of(writing)
    for pid in (writing.process.pid, command, *servers):
        os.kill(pid, signal.SIGKILL)
    bad(reading, "b: wait for", "a has died without having completed it", "Owner died")
    writing.process.wait()
    leave(nodes, *staying)
    nodes.assert_gone()
    nodes.here.advectio.recover_all()


def test_a_node_that_is_gone_is_seen_by_its_silence(nodes: Nodes):
    """Its server is stopped: no connection ends."""
    staying = stay(nodes, nodes.there)
    writing = nodes.start(nodes.here, "a", [*WRITER, "out.nc", "3", "3600"])
    writing.wait_for(lambda: "frame 0\n" in writing.lines, "a frame was synced")
    reading = nodes.start(nodes.there, "b", [*READER, "out.nc"])
    wait_for(waits(nodes, nodes.there, "b"), "the reader waited")
    wait_for(knows(nodes, nodes.there, "a"), "the other node knew the writer")
    server = nodes.server_of(nodes.here)
    os.kill(server, signal.SIGSTOP)
    try:
        bad(reading, "a has died without having completed it", "Owner died")
        lost = [n for n in nodes.status(nodes.there)["nodes"] if n["state"] == "lost"]
        assert [n["host"] for n in lost] == [HERE]
    finally:
        os.kill(server, signal.SIGCONT)
    # When it is heard of again, its programs live again.
    wait_for(knows(nodes, nodes.there, "a"), "it was there again")
    os.kill(child_of(writing), signal.SIGKILL)
    bad(writing)
    leave(nodes, staying)


def test_a_version_whose_node_has_gone_is_an_error_that_names_both(nodes: Nodes):
    staying = stay(nodes, nodes.there)
    good(nodes.start(nodes.here, "a", [*WRITER, "out.nc", "3"]))
    wait_for(lambda: nodes.status(nodes.there)["files"][0]["node"], "the other node knew the file")
    os.kill(nodes.server_of(nodes.here), signal.SIGKILL)  # no program lives there that would start another
    reading = nodes.start(nodes.there, "b", [*READER, "out.nc"])
    bad(
        reading,
        f"b: wait for {nodes.work}/out.nc from a: its version 1: is in the memory of node {HERE}, which is not there any more",
        f"node {nodes.there.name} cannot fetch it",
        "Owner died",
    )
    leave(nodes, staying)
    wait_for(lambda: not nodes.memory_of(nodes.there).exists(), "the other node had ended")


@pytest.mark.parametrize("site", ["here", "there"])
def test_a_node_whose_server_is_killed_gets_another_and_loses_nothing(nodes: Nodes, tmp_path: Path, site: str):
    plain = tmp_path / "plain"
    plain.mkdir()
    assert run_plainly([*WRITER, "out.nc", "8"], plain).code == 0
    wanted = run_plainly([*READER, "out.nc"], plain)
    patient = nodes.config(restart_max="1min")  # as long as another server may take to come on a busy machine
    reading = nodes.start(nodes.there, "b", [*READER, "out.nc"], patient)
    writing = nodes.start(nodes.here, "a", [*WRITER, "out.nc", "8", "0.4"], patient)
    writing.wait_for(lambda: "frame 1\n" in writing.lines, "a frame was synced")
    os.kill(nodes.server_of(getattr(nodes, site)), signal.SIGKILL)
    got = good(reading)
    assert got.stdout == wanted.stdout
    good(writing)
    nodes.assert_gone()


def test_a_file_for_which_the_readers_node_has_no_room_is_an_error(nodes: Nodes):
    assert nodes.there.host is not None
    staying = [stay(nodes, nodes.there), stay(nodes, nodes.here, "d")]
    good(nodes.start(nodes.here, "a", [*WRITER, "out.nc", "300"]))
    shm = nodes.there.root / "dev" / "shm"
    filling = shm / "filling"
    reading = nodes.start(
        nodes.there, "b", ["sh", "-c", f"while [ ! -e go ]; do sleep 0.05; done; exec {PYTHON} {READER[1]} out.nc"]
    )
    time.sleep(1.0)  # its server makes memory ready
    free = os.statvfs(shm)
    with filling.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - (1 << 20))
    try:
        (nodes.work / "go").touch()
        bad(
            reading,
            f"b: wait for {nodes.work}/out.nc from a: its version 1: is in the memory of node {HERE}",
            f"that of node {nodes.there.name} has no room for its 3.6 MB",
            "No space left on device",
        )
        assert not list(nodes.memory_of(nodes.there).rglob("coming.*"))
        assert not list(nodes.memory_of(nodes.there).rglob("wanted.*")) and not list(
            nodes.memory_of(nodes.there).rglob("refused.*")
        )
    finally:
        filling.unlink()
    assert good(nodes.start(nodes.there, "b", [*READER, "out.nc"])).stdout
    leave(nodes, *staying)
    nodes.assert_gone()


def test_without_listen_a_program_of_another_node_is_refused(nodes: Nodes):
    config = nodes.config().replace("listen: ", "name: x, listen: ").replace(f"listen: ['tcp:{nodes.network}:0'], ", "")
    staying = stay(nodes, nodes.here, config=config)
    other = nodes.there.advectio.start(
        [*READER, "out.nc"], nodes.work, config, options=["--workflow", nodes.directory, "--as", "b"]
    )
    result = other.finish()
    assert result.code == 2, result.said
    assert f"is of node {HERE} alone, and this is node {nodes.there.name}: set workflow.listen" in result.stderr, result.said
    mixed = nodes.there.advectio.start(
        [*READER, "out.nc"], nodes.work, nodes.config(), options=["--workflow", nodes.directory, "--as", "b"]
    ).finish()
    assert mixed.code == 2 and "the config must be the same for all of them" in mixed.stderr, mixed.said
    leave(nodes, staying)


def test_an_address_that_is_not_there_is_refused_before_the_program_starts(nodes: Nodes):
    def logs() -> set[Path]:  # in the memory of workflows
        return set(Path(f"/dev/shm/advectio-{os.getuid()}").glob(".workflow-*/log"))

    before = logs()
    config = nodes.config().replace(nodes.network, "203.0.113.0/24")
    running = nodes.here.advectio.start(
        ["touch", "started"], nodes.work, config, options=["--workflow", nodes.directory, "--as", "a"]
    )
    result = running.finish()
    assert result.code == 2 and "workflow.listen" in result.stderr and "203.0.113.0/24" in result.stderr, result.said
    assert not (nodes.work / "started").exists()
    assert not list(nodes.directory.rglob("*")), "a workflow to which nobody has come"
    assert not any("203.0.113.0/24" in log.read_text() for log in logs() - before), "its memory"


def test_who_does_not_know_the_secret_gets_nothing(nodes: Nodes):
    import socket
    import struct

    staying = stay(nodes, nodes.here)
    good(nodes.start(nodes.here, "a", [*WRITER, "out.nc", "3"]))
    (contact,) = [json.loads(p.read_text()) for p in (nodes.directory / "advectio.nodes").iterdir()]
    assert (nodes.directory / "advectio.nodes").stat().st_mode & 0o077 == 0
    _, host, port = contact["addresses"][0].split(":")
    for request in (
        {"do": "watch", "secret": "0" * 32},
        {"do": "fetch", "path": f"{nodes.work}/out.nc", "version": "000001.a"},
    ):
        with socket.create_connection((host, int(port)), 10) as link:
            head = json.dumps(request).encode()
            link.sendall(b"ADVR" + struct.pack("<IQ", len(head), 0) + head)
            answer = b""
            while piece := link.recv(65536):
                answer += piece
        assert b"show the secret" in answer and len(answer) < 200, answer[:200]
    leave(nodes, staying)
