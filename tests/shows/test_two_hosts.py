"""Two hosts: this one, and one made of namespaces with a network, a name, processes and a /dev/shm of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Pair
from running import PYTHON, Running, processes, run_plainly

HERE = os.uname().nodename


@dataclass
class Host:
    """The other one."""

    name: str
    pid: int  # of a process in it
    environment: dict[str, str]

    def pids(self, name: str) -> list[int]:
        """Of its processes of that name, as this host numbers them."""
        space = os.readlink(f"/proc/{self.pid}/ns/pid")

        def is_there(pid: int) -> bool:
            try:
                return os.readlink(f"/proc/{pid}/ns/pid") == space
            except OSError:
                return False

        return [pid for pid in processes(name) if is_there(pid)]

    def left(self) -> list[str]:
        """What is in its /dev/shm, but for what is there always."""
        shm = Path(f"/proc/{self.pid}/root/dev/shm")
        return [p.as_posix() for p in shm.rglob("*") if p.is_file()]


def tool(name: str) -> str:
    path = shutil.which(name)
    if path is None or os.geteuid() != 0:
        pytest.skip(f"a second host takes root and {name}")
    return path


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    ip, nsenter, unshare = tool("ip"), tool("nsenter"), tool("unshare")
    name = f"adv{os.getpid() % 100000}"
    net = f"10.{90 + os.getpid() % 100}.{os.getpid() // 256 % 256}"
    ours, theirs = f"{name}a", f"{name}b"
    inside = f"hostname {name}; mount -t tmpfs -o size=2g tmpfs /dev/shm; echo ready; exec sleep 3600"
    commands = [
        f"{ip} netns add {name}",
        f"{ip} link add {ours} type veth peer name {theirs} netns {name}",
        f"{ip} addr add {net}.1/24 dev {ours}",
        f"{ip} link set {ours} up",
        f"{ip} netns exec {name} {ip} addr add {net}.2/24 dev {theirs}",
        f"{ip} netns exec {name} {ip} link set {theirs} up",
        f"{ip} netns exec {name} {ip} link set lo up",
    ]
    spaces = ["--uts", "--mount", "--ipc", "--pid", "--fork", "--mount-proc", "--kill-child"]
    process = None
    try:
        for command in commands:
            done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
            if done.returncode != 0:
                pytest.skip(f"a second host cannot be made here: {command}: {done.stderr.strip()}")
        words = [ip, "netns", "exec", name, unshare, *spaces, "sh", "-c", inside]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            pytest.skip("a second host cannot be made here: no namespaces")
        pid = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
        agent = tmp_path_factory.mktemp("hosts") / "agent"
        enter = f"{nsenter} -t {pid} -n -u -m -i -p -- sh -c"
        agent.write_text(f'#!/bin/sh\n# As ssh: HOST COMMAND…\n[ "$1" = -x ] && shift\nshift\nexec {enter} "cd /; $*"\n')
        agent.chmod(0o755)
        environment = {
            "OMPI_MCA_plm_rsh_agent": os.fspath(agent),
            "OMPI_MCA_oob_tcp_if_include": f"{net}.0/24",
            "OMPI_MCA_btl_tcp_if_include": f"{net}.0/24",
        }
        yield Host(name, pid, environment)
    finally:
        if process is not None:
            process.kill()
            process.wait()
        subprocess.run([ip, "netns", "del", name], capture_output=True, check=False)
        subprocess.run([ip, "link", "del", ours], capture_output=True, check=False)


def both(host: Host, ranks: int) -> list[str]:
    return ["mpirun", "--host", f"{HERE}:{ranks},{host.name}:{ranks}", "-n", str(2 * ranks)]


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
