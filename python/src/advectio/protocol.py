"""Talking to a server: one JSON object a line over the unix socket in the run directory. Light: no third-party imports."""

import json
import os
import socket
from typing import Any, Literal, NotRequired, TypedDict

from advectio import places
from advectio.errors import UserError


class Spread(TypedDict):
    """Over frames. None in place of it: there is no frame yet."""

    median: float | None
    max: float | None


class ServerStatus(TypedDict):
    threads: int  # while programs compute
    sprint_threads: int  # once they have ended; 0: no more than ever
    sprint_s: float  # for how long
    memory_bytes: int
    memory_peak_bytes: int
    cpu_s: float
    encode_cpu_s: float
    layouts_bytes: NotRequired[int]  # memory of lists of boxes that are kept for the next put
    drain_max: int | None  # bytes a second; of several servers the sum
    held_back_s: float  # by that
    chunks_by_others: NotRequired[int]  # several nodes: compressed by another than the owner of the file
    chunks_for_others: NotRequired[int]  # the same as those who did it have counted
    restarts: NotRequired[int]  # known to who restarts it


class StageStatus(TypedDict):
    directory: str
    bytes_max: int
    bytes_allocated: int  # memory of the stage: held and warm
    bytes_allocated_peak: int
    bytes_held: int  # segments with records in them
    bytes_warm: int  # segments that are free and touched
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
    memory_peak_bytes: int


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
    tiles: int | None  # of split output, that became this file
    output_of: NotRequired[str | None]  # the dataset of which it is a further file (the config's outputs)
    in_place_of: NotRequired[str | None]  # the program's file, where this is in its place (format: zarr, bp5, sst)
    frames_synced: int
    frames_visible: int
    frames_durable: int
    frames_dropped: int  # left out, as the stage was full
    promise: str
    bytes_put: int
    bytes_written: int
    bytes_by_library: NotRequired[int]  # by which the file has grown since; added by the command line
    ratio: float | None
    stall_s: Spread | None
    to_visible_s: Spread | None
    to_durable_s: Spread | None
    drain_bytes_per_s: float | None
    error: str | None
    node: NotRequired[str]  # the owner's name, where there are several servers


class ProcessedOutput(TypedDict):
    """A file that operators have made."""

    path: str
    format: str
    variables: int
    records: int
    bytes_read: int
    bytes_written: int
    kept: bool
    left_out: list[str]


class Made(TypedDict):
    """What has become of an output of the config with operators, in one directory."""

    dataset: int  # number of its rule in the config
    number: int  # in that rule's outputs
    path: str  # as the config has it
    origin: str  # FILE:LINE
    directory: str  # of the program's files, where a relative path begins
    state: str  # waiting, complete, failed
    error: str | None
    files: list[str]  # of which it is made
    outputs: list[ProcessedOutput]


class NotTransferred(TypedDict):
    file: str  # or the pattern
    error: str


class Transferred(TypedDict):
    files: int
    bytes: int
    failed: list[NotTransferred]


class CommandsRun(TypedDict):
    """Commands of the config's `on`: how many were run, and failed."""

    run: int
    failed: int  # of those


class MissingPart(TypedDict):
    """A file that a set lacks, or whose being on the disk is not known."""

    member: str  # empty: the set has none
    match: str | None  # None: the program has not been run with this set
    path: str | None  # None: it has not been begun


class HalfSet(TypedDict):
    instant: str
    missing: list[MissingPart]


class SetReport(TypedDict):
    """One of the config's `sets`."""

    name: str
    link: str
    newest: str | None  # instant of the newest whole one
    files: list[str]  # of that, as the link has them
    half: list[HalfSet]  # in which this run has part


class UnmatchedRule(TypedDict):
    """A rule of the config that no dataset of the run has matched."""

    match: str
    origin: str  # FILE:LINE


class ConfigName(TypedDict):
    """A name in `round` or `chunks` of a rule that fits a dataset."""

    key: str  # round or chunks
    name: str  # of a variable (or a pattern), of a dimension
    origin: str  # FILE:LINE
    found: bool  # a dataset has it


class NotReadable(TypedDict):
    """A rule by which files are stored as somebody who reads them cannot decode."""

    match: str
    origin: str  # FILE:LINE
    codec: str
    programs: list[str]  # of the config's readers.programs


class SubscriptionStatus(TypedDict):
    match: list[str]
    policy: str
    group: str | None
    waiting: int  # frames


class ReaderStatus(TypedDict):
    name: str
    address: str
    reader: str | None  # all its connections say the same; None: this is the only one
    servers: int  # to which it connects
    node: NotRequired[str]  # of several: the name of this connection's
    subscriptions: list[SubscriptionStatus]
    frames_held: int
    bytes_held: int  # in memory
    frames_taken: int
    frames_left_out: int
    bytes_sent: int  # over the connection, not mapped


class ReadersStatus(TypedDict):
    connected: list[ReaderStatus]
    bytes_held: int  # of frames that are in their files


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
    config_names: list[ConfigName]
    errors: list[str]
    markers_held: NotRequired[int]  # names held back until the files before them were complete; with those that still are
    markers_waiting: NotRequired[list[str]]  # paths of those that still are
    clean: bool  # final: all is in its file, and the run directory goes
    left: bool  # final: what is not in its file waits in the stage
    nodes: NotRequired[list[NodeStatus]]  # of several servers, which the rest speaks of as one
    readers: NotRequired[ReadersStatus]
    # Added by the command line, about the whole run.
    command: NotRequired[list[str]]
    exit_code: NotRequired[int | None]
    io_nodes: NotRequired[int]
    run_s: NotRequired[float]
    drain_wait_s: NotRequired[float]
    unmatched_rules: NotRequired[list[UnmatchedRule]]
    not_readable: NotRequired[list[NotReadable]]  # of rules that some dataset follows
    why_no_dataset: NotRequired[str]  # where there is none
    stage_out: NotRequired[Transferred]  # what the config's stage.out has come to
    processed: NotRequired[list[Made]]  # where the config has outputs with operators
    on: NotRequired[CommandsRun]  # where the config has commands for events
    sets: NotRequired[list[SetReport]]  # where the config has sets


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


def answers(run_directory: str) -> bool:
    """Is there a server in it?"""
    try:
        status_of(run_directory, 2.0)
    except (NoServer, UserError):
        return False
    return True


def spread_of(dataset: DatasetStatus, key: Literal["stall_s", "to_visible_s", "to_durable_s"]) -> Spread:
    return dataset[key] or {"median": None, "max": None}


def is_incomplete(dataset: DatasetStatus) -> bool:
    """Something of it that was synced is in no file. Of one that is removed, somebody has wanted that."""
    lost = dataset["state"] == "dropped" and dataset["frames_synced"] > 0
    return dataset["state"] == "failed" or lost or bool(dataset["error"])


def incomplete(status: Status) -> list[DatasetStatus]:
    return [d for d in status["datasets"] if is_incomplete(d)]
