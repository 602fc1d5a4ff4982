"""Talking to a server: one JSON object a line over the unix socket in the run directory. Light: no third-party imports."""

import json
import os
import socket
from typing import Any, Literal, NotRequired, TypedDict

from advectio import places


class Spread(TypedDict):
    """Over frames. None in place of it: there is no frame yet."""

    median: float | None
    max: float | None


class ServerStatus(TypedDict):
    threads: int
    memory_bytes: int
    memory_peak_bytes: int
    encode_cpu_s: float
    drain_max: NotRequired[int | None]  # bytes a second; of several servers the sum
    held_back_s: NotRequired[float]  # by that
    chunks_by_others: NotRequired[int]  # several nodes: compressed by another than the owner of the file
    chunks_for_others: NotRequired[int]  # the same as those who did it have counted
    restarts: NotRequired[int]  # known to who restarts it


class StageStatus(TypedDict):
    directory: str
    bytes_max: int
    bytes_allocated: int
    bytes_allocated_peak: int
    backlog_bytes: int
    backlog_peak_bytes: int
    spill_bytes_max: int
    spill_bytes: int
    spilled_bytes: int  # in all
    waits: int
    wait_s: float


class NodeStatus(TypedDict):
    node: int
    name: str
    pid: int
    backlog_bytes: int
    bytes_max: int


class WriterStatus(TypedDict):
    rank: int
    pid: int
    host: str
    alive: bool
    command: str


class DatasetStatus(TypedDict):
    path: str
    format: str
    state: str
    writer: str
    tiles: NotRequired[int | None]  # of split output, that became this file
    frames_synced: int
    frames_visible: int
    frames_durable: int
    frames_dropped: int  # left out, as the stage was full
    promise: str
    bytes_put: int
    bytes_written: int
    ratio: float | None
    stall_s: Spread | None
    to_visible_s: Spread | None
    to_durable_s: Spread | None
    drain_bytes_per_s: float | None
    error: str | None
    node: NotRequired[str]  # the owner's name, where there are several servers


class Status(TypedDict):
    version: str
    run_dir: str
    pid: int
    uptime_s: float
    final: bool
    server: ServerStatus
    stage: StageStatus
    writers: list[WriterStatus]
    datasets: list[DatasetStatus]
    errors: list[str]
    left: NotRequired[bool]  # final: what is not in its file waits in the stage
    nodes: NotRequired[list[NodeStatus]]  # of several servers, which the rest speaks of as one
    # Added by the command line, about the whole run.
    command: NotRequired[list[str]]
    exit_code: NotRequired[int | None]
    io_nodes: NotRequired[int]
    run_s: NotRequired[float]
    drain_wait_s: NotRequired[float]
    stage_out: NotRequired[dict[str, Any]]  # files, bytes, failed: what the config's stage.out has come to


class NoServer(Exception):
    """Nobody answers in the run directory."""


def connect_in(directory: str, name: str, timeout: float | None) -> socket.socket:
    """Connect to a socket in a directory. By way of the directory's descriptor: a socket's path has at most 107 bytes, and
    run directories on scratch file systems are longer."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.settimeout(timeout)
    try:
        fd = os.open(directory, os.O_PATH | os.O_DIRECTORY)
        try:
            link.connect(f"/proc/self/fd/{fd}/{name}")
        finally:
            os.close(fd)
    except OSError:
        link.close()
        raise
    return link


def secret_of(directory: str) -> str:
    """What the server wants to be shown with each request: that we can read its run directory."""
    try:
        with open(os.path.join(directory, "secret"), encoding="ascii") as file:
            return file.read()
    except (OSError, ValueError):
        return ""


class Connection:
    """One connection to a server. Requests are answered in their order."""

    def __init__(self, run_directory: str, timeout: float | None = 10.0) -> None:
        places.must_be_ours(run_directory)
        try:
            self._link = connect_in(places.control_directory(run_directory), "socket", timeout)
        except OSError as error:
            raise NoServer(f"no server answers in {run_directory}: {error.strerror or error}") from error
        self._rest = b""
        self._secret = secret_of(places.control_directory(run_directory))

    def fileno(self) -> int:
        return self._link.fileno()

    def close(self) -> None:
        self._link.close()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, request: dict[str, Any]) -> None:
        try:
            self._link.sendall(json.dumps(request | {"secret": self._secret}).encode() + b"\n")
        except OSError as error:
            raise NoServer(f"the server has gone: {error.strerror or error}") from error

    def receive(self) -> dict[str, Any]:
        while b"\n" not in self._rest:
            try:
                more = self._link.recv(1 << 16)
            except OSError as error:
                raise NoServer(f"the server does not answer: {error.strerror or error}") from error
            if not more:
                raise NoServer("the server has gone")
            self._rest += more
        line, self._rest = self._rest.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, do: str) -> Status:
        self.send({"do": do})
        return as_status(self.receive())


def as_status(answer: dict[str, Any]) -> Status:
    if "error" in answer and "datasets" not in answer:
        raise NoServer(f"the server answers: {answer['error']}")
    return answer  # type: ignore[return-value]


def status_of(run_directory: str, timeout: float = 5.0) -> Status:
    with Connection(run_directory, timeout) as connection:
        return connection.ask("status")


def spread_of(dataset: DatasetStatus, key: Literal["stall_s", "to_visible_s", "to_durable_s"]) -> Spread:
    return dataset[key] or {"median": None, "max": None}


def incomplete(status: Status) -> list[DatasetStatus]:
    return [d for d in status["datasets"] if d["state"] == "failed" or d["error"]]
