"""Two hosts: this one, and one made of namespaces with a network, a name, processes and a /dev/shm of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from running import processes

HERE = os.uname().nodename


@dataclass
class Host:
    """The other one."""

    name: str
    pid: int  # of a process in it
    environment: dict[str, str]
    network: str  # in which both have an address
    third: list[str]  # what starts a program on a third one, of which only the network is its own

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
    third = f"{name}c"
    net = f"10.{90 + os.getpid() % 100}.{os.getpid() // 256 % 256}"
    bridge = f"{name}a"
    inside = f"hostname {name}; mount -t tmpfs -o size=2g tmpfs /dev/shm; echo ready; exec sleep 3600"
    commands = [
        f"{ip} link add {bridge} type bridge",
        f"{ip} addr add {net}.1/24 dev {bridge}",
        f"{ip} link set {bridge} up",
    ]
    for number, other in enumerate((name, third), 2):
        ours, theirs = f"{name}v{number}", f"{name}w{number}"
        commands += [
            f"{ip} netns add {other}",
            f"{ip} link add {ours} type veth peer name {theirs} netns {other}",
            f"{ip} link set {ours} master {bridge} up",
            f"{ip} netns exec {other} {ip} addr add {net}.{number}/24 dev {theirs}",
            f"{ip} netns exec {other} {ip} link set {theirs} up",
            f"{ip} netns exec {other} {ip} link set lo up",
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
            "PRTE_MCA_plm_ssh_agent": os.fspath(agent),
            "OMPI_MCA_oob_tcp_if_include": f"{net}.0/24",
            "OMPI_MCA_btl_tcp_if_include": f"{net}.0/24",
        }
        yield Host(name, pid, environment, f"{net}.0/24", [ip, "netns", "exec", third])
    finally:
        if process is not None:
            process.kill()
            process.wait()
        for other in (name, third):
            subprocess.run([ip, "netns", "del", other], capture_output=True, check=False)
        subprocess.run([ip, "link", "del", bridge], capture_output=True, check=False)
