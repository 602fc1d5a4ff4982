"""Live readers on another node: in a network namespace of their own, which a pair of interfaces connects. And what listens."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import Pair
from running import PYTHON, Running, environment

PROGRAMS = Path(__file__).parent / "programs"
FRAMES = 12
SECONDS_MAX = 120
LISTEN = "0A"  # state in /proc/net/tcp


@dataclass
class Network:
    """Another namespace."""

    name: str
    address: str  # of this one, as seen from there

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        command = ["ip", "netns", "exec", self.name, *map(os.fspath, words)]
        return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    ip = shutil.which("ip")
    if ip is None or os.geteuid() != 0:
        pytest.skip("another namespace takes root and ip")
    name = f"advl{os.getpid() % 100000}"
    net = f"10.{90 + os.getpid() % 100}.{os.getpid() // 256 % 256}"
    ours, theirs = f"{name}a", f"{name}b"
    commands = [
        f"{ip} netns add {name}",
        f"{ip} link add {ours} type veth peer name {theirs} netns {name}",
        f"{ip} addr add {net}.1/24 dev {ours}",
        f"{ip} link set {ours} up",
        f"{ip} netns exec {name} {ip} addr add {net}.2/24 dev {theirs}",
        f"{ip} netns exec {name} {ip} link set {theirs} up",
        f"{ip} netns exec {name} {ip} link set lo up",
    ]
    try:
        for command in commands:
            done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
            if done.returncode != 0:
                pytest.skip(f"another namespace cannot be made here: {command}: {done.stderr.strip()}")
        yield Network(name, f"{net}.1")
    finally:
        subprocess.run([ip, "netns", "del", name], capture_output=True, check=False)
        subprocess.run([ip, "link", "del", ours], capture_output=True, check=False)


def sockets_of(pid: int) -> set[int]:
    """Inodes of its sockets."""
    found = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            state = fd.stat()
        except OSError:
            continue
        if stat.S_ISSOCK(state.st_mode):
            found.add(state.st_ino)
    return found


def listening(pid: int) -> set[str]:
    """TCP addresses at which a process listens, as tcp:HOST:PORT."""
    inodes, found = sockets_of(pid), set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] != LISTEN or int(words[9]) not in inodes:
                continue
            host, port = words[1].split(":")
            # Words of 32 bits in the order of this machine's bytes.
            raw = b"".join(struct.pack("=I", int(host[i : i + 8], 16)) for i in range(0, len(host), 8))
            text = socket.inet_ntop(socket.AF_INET if table == "tcp" else socket.AF_INET6, raw)
            found.add(f"tcp:{text if table == 'tcp' else f'[{text}]'}:{int(port, 16)}")
    return found


def begin(pair: Pair, config: str) -> tuple[Running, int]:
    """A run whose writer waits for `go`, and its server's pid."""
    words = [PYTHON, PROGRAMS / "live" / "writer.py", "out.nc", str(FRAMES), "0.02"]
    running = pair.advectio.start(words, pair.carried, config)
    running.wait_for(lambda: any("begins" in line for line in running.lines), "it had begun")
    (server,) = running.pids("advectiod")
    return running, server


def go(pair: Pair, running: Running) -> None:
    (pair.carried / "go").touch()
    result = running.finish()
    assert result.code == 0, result.said


def contact_of(pair: Pair) -> Path:
    return pair.carried / "advectio.contact"


def asking(*addresses: str) -> str:
    return f"readers: {{listen: [{', '.join(repr(a) for a in addresses)}]}}\n"


def read_there(network: Network, pair: Pair) -> subprocess.Popen[str]:
    """A reader that is subscribed when this returns."""
    reader = network.start(PYTHON, PROGRAMS / "live" / "reader.py", contact_of(pair))
    assert reader.stdout is not None and reader.stderr is not None
    assert reader.stdout.readline() == "subscribed\n", reader.stderr.read()
    return reader


def said_by(reader: subprocess.Popen[str]) -> list[dict[str, Any]]:
    said, errors = reader.communicate(timeout=SECONDS_MAX)
    assert reader.returncode == 0, errors
    return [json.loads(line) for line in said.splitlines()]


def test_a_reader_on_another_node_gets_every_frame_with_its_values(network: Network, pair: Pair):
    running, _ = begin(pair, asking(f"tcp:{network.address}:0"))
    readers = [read_there(network, pair) for _ in range(2)]
    try:
        go(pair, running)
        for reader in readers:
            frames = said_by(reader)
            assert [f["frame"] for f in frames] == list(range(FRAMES))
            for k, f in enumerate(frames):
                assert f["time"] == f"2005-08-28_00:{k:02d}:00"
                assert f["Q"] == [k * 1000.0, k * 1000.0 + 1799, 1800 * (k * 1000.0 + 1799 / 2)]
                assert f["T2"] == [k, k, 600 * k] and f["HGT"] == [0, 599, 600 * 599 // 2]
    finally:
        for reader in readers:
            reader.kill()
            reader.wait()
    assert not contact_of(pair).exists()


def test_the_server_listens_where_it_was_asked_to_and_nowhere_else(network: Network, pair: Pair):
    running, server = begin(pair, asking(f"tcp:{network.address}:0", "tcp:[::1]:0"))
    (contact,) = json.loads(contact_of(pair).read_text())["nodes"]
    hosts = [address.rpartition(":")[0] for address in contact["addresses"]]
    assert hosts == [f"tcp:{network.address}", "tcp:[::1]"]
    assert listening(server) == set(contact["addresses"])
    assert stat.S_IMODE(contact_of(pair).stat().st_mode) == 0o600
    go(pair, running)


def test_without_listen_the_server_has_no_tcp_port(pair: Pair):
    with socket.create_server(("127.0.0.1", 0)) as known:  # the test would see one
        assert listening(os.getpid()) == {f"tcp:127.0.0.1:{known.getsockname()[1]}"}
    running, server = begin(pair, "")
    assert listening(server) == set()
    assert not contact_of(pair).exists()
    go(pair, running)
