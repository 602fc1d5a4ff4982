"""Events of runs, as their servers write them: read while they come, and ``advectio events``. Light."""

import contextlib
import ctypes
import json
import os
import select
import struct
import time
from collections.abc import Iterator
from typing import NotRequired, TypedDict, cast

from advectio import places
from advectio.errors import UserError, say

GONE_S = 30.0  # a server that has died is started again sooner
LOOK_S = 0.1
_IN_MODIFY, _IN_CREATE, _IN_MOVED_TO, _IN_DELETE_SELF = 0x2, 0x100, 0x80, 0x400
_F_OFD_GETLK, _F_WRLCK, _F_UNLCK = 36, 1, 2
_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux


class Event(TypedDict):
    """One line."""

    event: str
    path: NotRequired[str]
    in_place_of: NotRequired[str]  # the program's file, where a store is in its place
    inode: NotRequired[int]
    created: NotRequired[str]  # when the program has created it
    id: NotRequired[str]  # of the file in its run: of two that had one path, one after the other, each has its own
    frame: NotRequired[int]  # from 0
    frames: NotRequired[int]
    model_time: NotRequired[str]
    bytes: NotRequired[int]
    complete: NotRequired[bool]
    closed: NotRequired[bool]  # by all that write it; false: one was killed before
    error: NotRequired[str]
    directory: NotRequired[str]  # where the run was started
    time: str
    run: str  # its run directory
    node: NotRequired[str]


BEGINS_S = 10.0  # from a run's directory to its first page


class Lines:
    """One file of events. It may go while it is read."""

    def __init__(self, path: str, start: int = 0) -> None:
        self.path = path
        self.at = start  # where the next line begins
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._fd)

    def read(self) -> list[tuple[int, Event]]:
        """New ones, each with the place behind it."""
        found: list[tuple[int, Event]] = []
        while chunk := os.pread(self._fd, 1 << 20, self.at):
            end = chunk.rfind(b"\n") + 1
            if end == 0 and len(chunk) < 1 << 20:
                break  # it is being written
            for line in chunk[: end or len(chunk)].splitlines(keepends=True):
                self.at += len(line)
                with contextlib.suppress(ValueError):
                    event = json.loads(line)
                    if isinstance(event, dict) and isinstance(event.get("event"), str):
                        found.append((self.at, cast(Event, event)))
            if len(chunk) < 1 << 20:
                break
        return found


class Told:
    """Wakes up when a file that is watched changes, and after some time in any case."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._blind = self._fd < 0

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def watch(self, path: str) -> None:
        wanted = _IN_MODIFY | _IN_CREATE | _IN_MOVED_TO | _IN_DELETE_SELF
        if self._fd >= 0 and self._libc.inotify_add_watch(self._fd, os.fsencode(path), wanted) < 0:
            self._blind = True  # the user has no more watches

    def wait(self, seconds: float) -> None:
        if self._blind:
            time.sleep(min(seconds, LOOK_S))
            return
        if select.select([self._fd], [], [], seconds)[0]:
            with contextlib.suppress(BlockingIOError):
                os.read(self._fd, 1 << 16)


def is_locked(path: str, start: int = 0, length: int = 0) -> bool:
    """Somebody else has a lock there; by the file's name alone, without waiting."""
    import fcntl

    try:
        # Not for writing: whoever watches the file would see it closed after writing.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        asked = _FLOCK.pack(_F_WRLCK, os.SEEK_SET, start, length, 0)
        return bool(_FLOCK.unpack(fcntl.fcntl(fd, _F_OFD_GETLK, asked))[0] != _F_UNLCK)
    except OSError:
        return False
    finally:
        os.close(fd)


class Followed:
    """A run's events on this machine, from its first on."""

    def __init__(self, directory: str, starts: dict[str, int] | None = None) -> None:
        """``starts``: where to begin, by the file. Raises FileNotFoundError where the run has no events (yet)."""
        places.must_be_ours(directory)
        self.directory = directory
        self.started_in = ""
        self.was_served = False  # while it has been looked at
        self.files: list[Lines] = []
        self._complete: dict[str, bool] = {}
        self._gone_since: float | None = None
        for node in places.node_directories(directory):
            path = os.path.join(node, places.EVENTS_FILE)
            self.files.append(Lines(path, (starts or {}).get(path, 0)))

    def close(self) -> None:
        for file in self.files:
            file.close()

    def read(self) -> list[Event]:
        return [event for _, _, event in self.read_places()]

    def read_places(self) -> list[tuple[str, int, Event]]:
        """With file and place behind the line."""
        found = []
        for file in self.files:
            for end, event in file.read():
                if event["event"] == "run_begun":
                    self.started_in = event.get("directory", "")
                # One that had ended goes on where a later server takes it up.
                self._complete.pop(file.path, None)
                if event["event"] == "run_ended":
                    self._complete[file.path] = event.get("complete", False)
                found.append((file.path, end, event))
        return found

    @property
    def over(self) -> bool:
        """No more events will come, as far as can be known: it has ended, or nobody has served it for a while. To be asked
        before a last ``read``."""
        served = not (self.has_ended and self.was_served) and any(
            is_locked(os.path.join(node, "server.lock")) for node in places.node_directories(self.directory)
        )
        self.was_served = self.was_served or served
        if self.has_ended or not os.path.exists(self.directory):
            return True
        if served:
            self._gone_since = None
            return False
        now = time.monotonic()
        self._gone_since = self._gone_since or now
        return now - self._gone_since > GONE_S

    @property
    def has_ended(self) -> bool:
        """It has said so, and all that it has said before has been read."""
        return len(self._complete) == len(self.files)

    @property
    def complete(self) -> bool:
        """It has ended, and all is in its files."""
        return self.has_ended and all(self._complete.values())


def show(target: str | None, follow: bool, as_json: bool) -> int:
    """``advectio events``."""
    told = Told()
    said = False
    began = time.monotonic()
    while True:
        try:
            source = _source(target)
            break
        except UserError as error:
            # The directory of a run that begins is there before it is one.
            if not follow or (target and os.path.exists(target) and time.monotonic() - began > BEGINS_S):
                raise
            if not said and time.monotonic() - began > 2:
                said = True
                say("", f"waiting for the run: {error}")
            time.sleep(2 * LOOK_S)
    try:
        for event in _events(source, follow, told):
            _print(event, as_json)
    except KeyboardInterrupt:
        return 130
    return 0


def _source(target: str | None) -> "Followed | Lines":
    if target and os.path.isfile(target):
        return Lines(target)
    run = target or os.environ.get("ADVECTIO_RUN") or _only_run()
    if not places.is_run(run):
        raise UserError(f"{run} is neither a file of events nor the run directory of a run")
    try:
        return Followed(os.path.abspath(run))
    except FileNotFoundError:
        raise UserError(f"{run} has no events yet") from None


def _only_run() -> str:
    runs = [run for run in places.runs() if places.is_run(run)]
    if len(runs) == 1:
        return runs[0]
    if not runs:
        raise UserError("no run of yours is under way on this node; name a file of events (the config's events)")
    raise UserError("several runs are there; name one of them: " + ", ".join(runs))


def _events(source: "Followed | Lines", follow: bool, told: Told) -> Iterator[Event]:
    files = source.files if isinstance(source, Followed) else [source]
    for file in files:
        told.watch(file.path)
    going: dict[str, bool] = {}  # of a file that several runs write: the nodes of the latest one
    latest = ""
    while True:
        over = source.over if isinstance(source, Followed) else bool(going) and not any(going.values())
        new = source.read() if isinstance(source, Followed) else [event for _, event in source.read()]
        for event in new:
            if event["event"] == "run_begun" and event["run"] != latest and not event.get("node"):
                going.clear()
                latest = event["run"]
            if event["event"] in ("run_begun", "run_ended"):
                going[event["run"] + event.get("node", "")] = event["event"] == "run_begun"
            yield event
        if not follow or (over and not new):
            return
        told.wait(2 * LOOK_S)


WIDTH = 10


def _print(event: Event, as_json: bool) -> None:
    print(json.dumps(event) if as_json else text_of(event), flush=True)


def text_of(event: Event) -> str:
    """For people, in columns."""
    from advectio.quantities import size_text

    words = [event["time"][11:23], event["event"].ljust(WIDTH)]
    if "path" in event:
        words.append(os.path.basename(event["path"]))
    if "frame" in event:
        words.append(f"frame {event['frame']}")
    if "frames" in event:
        words.append(f"{event['frames']} frame{'s' * (event['frames'] != 1)}")
    if "model_time" in event:
        words.append(event["model_time"])
    if "bytes" in event:
        words.append(size_text(event["bytes"]))
    if "error" in event:
        words.append(event["error"])
    if event["event"] == "run_begun":
        words.append(f"in {event.get('directory', '')}")
    if event["event"] == "run_ended":
        words.append("all is in its files" if event.get("complete") else "not all is in its files")
    if "node" in event:
        words.append(f"on {event['node']}")
    return "  ".join(words)
