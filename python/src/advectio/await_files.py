"""``advectio wait``: until files are visible, complete or on the disk. What a run says in its events decides; of a run on another
node its live readers' server; of a file of no run the file itself."""

import contextlib
import fnmatch
import functools
import glob
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypedDict

from advectio import places
from advectio.errors import UserError, say
from advectio.events import GONE_S, Event, Followed, Told, is_locked
from advectio.protocol import NoServer, status_of

REACHED, NEVER, TIMEOUT, INTERRUPTED = 0, 3, 124, 130
FOR = ("visible", "complete", "durable")
SILENT_S = 2.0
LOOK_S = 0.1  # for runs that have begun, and for files
ASK_S = 0.5  # a server on another node
CONTACT = "advectio.contact"
_MARK_AT = 1 << 62  # the lock of a run on a file that it writes, see src/server/PROTOCOL.md


class Options(NamedTuple):
    paths: Sequence[str]
    wanted: str = "complete"
    frames: int | None = None
    timeout_s: float | None = None
    run: str | None = None
    contact: str | None = None
    as_json: bool = False


class WaitedFile(TypedDict):
    path: str  # as it was asked for
    reached: bool
    state: str  # missing, open, complete, failed, removed, dropped
    frames_visible: int | None  # None: not known
    frames_durable: int | None
    known_by: str | None  # events, contact, marker, file
    why: str | None  # it will not be, or what is waited for


class Waited(TypedDict):
    """The object that ``wait --json`` prints."""

    wanted: str
    frames: int | None
    reached: bool
    timed_out: bool
    files: list[WaitedFile]


@dataclass
class Known:
    """A file, as its run tells of it."""

    path: str
    inode: int = 0
    in_place_of: str = ""
    visible: int = 0
    durable: int = 0
    all_durable: bool = False
    state: str = "open"
    error: str = ""
    by: str = "events"


@dataclass
class Run:
    """A run on this node."""

    events: Followed
    files: dict[str, Known] = field(default_factory=dict)  # by id, in the order of their beginnings
    over: bool = False
    _next: float = 0.0

    def look(self) -> None:
        over = self.events.over
        for event in self.events.read():
            self._note(event)
        if self._several and not over and time.monotonic() >= self._next:
            self._next = time.monotonic() + ASK_S
            self._ask()
        self.over = over or self.events.has_ended

    @functools.cached_property
    def _several(self) -> bool:
        """Other nodes write files, too, and this one's server may know of them."""
        said = places.servers_of(self.events.directory)
        return bool(said and said["simulated"] is None and len(said["hosts"]) > 1)

    def _ask(self) -> None:
        with contextlib.suppress(NoServer, UserError):
            for number, d in enumerate(status_of(self.events.directory, 5.0)["datasets"]):
                state = {"finished": "complete", "removed": "removed", "dropped": "dropped"}.get(d["state"], "open")
                durable = state == "complete" and d["frames_durable"] >= d["frames_visible"] > 0
                self.files[f"status {number}"] = Known(
                    d["path"],
                    0,
                    d.get("in_place_of") or "",
                    d["frames_visible"],
                    d["frames_durable"],
                    durable,
                    state,
                    d["error"] or "",
                )

    def _note(self, event: Event) -> None:
        if "id" not in event or "path" not in event:
            return
        known = self.files.setdefault(f"{event.get('node', '')} {event['id']}", Known(event["path"]))
        known.inode = event.get("inode", known.inode)
        known.in_place_of = event.get("in_place_of", known.in_place_of)
        what = event["event"]
        if what == "frame":
            known.visible = max(known.visible, event.get("frame", -1) + 1)
        if what == "durable":
            known.durable = max(known.durable, event.get("frames", 0))
            known.all_durable = event.get("complete", False)
        if what in ("complete", "removed", "dropped"):
            known.state = what
            known.visible = event.get("frames", known.visible)
        if what in ("failed", "frame", "complete"):
            known.error = event.get("error", "")  # whatever comes behind a failure has mended it


class Contact:
    """The servers of a run on another node, asked now and then."""

    def __init__(self, path: str, match: Sequence[str]) -> None:
        self.path = path
        self.files: list[Known] = []
        self.begun = False
        self.over = False
        self._match = match
        self._clients: list[Any] = []
        self._next = 0.0
        self._heard = time.monotonic()

    def look(self) -> None:
        if self.over or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + ASK_S
        if not os.path.exists(self.path):  # a server that ends takes it away
            self.over = self.begun
            return
        from advectio.live import find

        try:
            if not self._clients:
                self._clients = [find.connect_contact(self.path, node=n) for n in range(len(find.read_contact(self.path)))]
            listed = [d for client in self._clients for d in client.ask("list", match=self._match)["datasets"]]
        except UserError:
            for client in self._clients:
                client.close()
            self._clients = []
            self.over = self.begun and time.monotonic() - self._heard > GONE_S
            return
        self._heard = time.monotonic()
        self.begun = True
        self.files = [_listed(d) for d in listed]


def _listed(dataset: dict[str, Any]) -> Known:
    state = "open" if not dataset["over"] else "complete" if dataset["visible"] else "removed"
    return Known(
        dataset["path"],
        visible=dataset["visible"],
        durable=dataset.get("durable", 0),
        all_durable=dataset.get("all_durable", False),
        state=state,
        by="contact",
    )


class Wanted:
    """One of the paths, or a pattern."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.path = _by_its_directory(os.path.abspath(text))
        self.is_pattern = glob.has_magic(text) and not os.path.lexists(text)

    def matches(self, known: Known) -> bool:
        return any(self._is_named(name) for name in (known.path, known.in_place_of) if name) or self._is_renamed(known)

    def _is_named(self, name: str) -> bool:
        # The directory is compared last: that of another run may be on a disk that does not answer.
        mine, its = os.path.basename(self.path), os.path.basename(name)
        if not (fnmatch.fnmatchcase(its, mine) if self.is_pattern else its == mine):
            return False
        path = _by_its_directory(name)
        if not self.is_pattern:
            return path == self.path
        names, patterns = path.split(os.sep), self.path.split(os.sep)
        return len(names) == len(patterns) and all(map(fnmatch.fnmatchcase, names, patterns))

    def _is_renamed(self, known: Known) -> bool:
        """The program has given the file another name in its directory."""
        if not known.inode or not any(_inode_of(path) == known.inode for path in self.there()):
            return False
        return os.path.dirname(_by_its_directory(known.path)) == os.path.dirname(self.path)

    def there(self) -> list[str]:
        """Files of that name."""
        return sorted(glob.glob(self.path)) if self.is_pattern else [self.path] * os.path.lexists(self.path)


def _by_its_directory(path: str) -> str:
    """As all names of a directory lead to it; a program may have said ``./a.nc``."""
    directory, name = os.path.split(path)
    return os.path.join(os.path.realpath(directory), name)


def _inode_of(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


class Waiting:
    """Knows runs and files, and decides for each path."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._wanted = [Wanted(text) for text in options.paths]
        inside = os.environ.get("ADVECTIO_RUN")
        self._only = os.path.abspath(options.run) if options.run else None
        self._own = os.path.realpath(inside) if inside and places.is_run(inside) else None
        self._runs: dict[str, Run] = {}
        self._told = Told()
        with contextlib.suppress(OSError):
            if os.path.isdir(places.user_directory()):
                self._told.watch(places.user_directory())
        match = [
            name
            for w in self._wanted
            for name in (w.path, os.path.join(os.path.dirname(w.path), ".", os.path.basename(w.path)))
        ]
        self._contacts = [Contact(path, match) for path in self._contact_files()]

    def _contact_files(self) -> list[str]:
        if self._options.contact:
            return [self._options.contact]
        if self._only or self._own:
            return []
        return sorted({os.path.join(os.path.dirname(w.path), CONTACT) for w in self._wanted})

    def look(self) -> list[WaitedFile]:
        for directory in self._directories():
            if directory not in self._runs:
                with contextlib.suppress(OSError, UserError):
                    run = Run(Followed(directory))
                    for file in run.events.files:
                        self._told.watch(file.path)
                    self._runs[directory] = run
        for run in self._runs.values():
            run.look()
        if self._options.contact or not any(not run.over for run in self._runs.values()):
            for contact in self._contacts:
                contact.look()
        return [self._judge(wanted) for wanted in self._wanted]

    def _directories(self) -> list[str]:
        """Of runs on this node."""
        if self._options.contact:
            return []
        if self._only:
            return [self._only]
        found = places.runs()
        return found if self._own is None or self._own in found else [self._own, *found]

    def pause(self) -> None:
        self._told.wait(LOOK_S)

    def _judge(self, wanted: Wanted) -> WaitedFile:
        found: dict[str, tuple[Known, bool, bool]] = {}  # by path: of several datasets of one name the latest
        for run in self._runs.values():
            for known in run.files.values():
                if wanted.matches(known):
                    found[known.path] = (known, run.over, run.events.complete)
        for contact in self._contacts:
            for known in contact.files:
                if wanted.matches(known):
                    found[known.path] = (known, contact.over, False)
        if not found:
            return self._judge_file(wanted)
        told = [self._judge_known(wanted, *about) for about in found.values()]
        return next((t for t in told if t["why"] and not t["reached"]), None) or next(
            (t for t in told if not t["reached"]), told[0]
        )

    def _judge_known(self, wanted: Wanted, known: Known, over: bool, all_written: bool) -> WaitedFile:
        state = known.state
        ended = over and state == "open" and (known.by == "contact" or all_written)
        if ended and os.path.exists(known.path) and not in_flight(known.path):
            state = "complete"  # its server has gone, and left nothing of it in flight
        told = _told(wanted.text, state, known.by, known.visible, known.durable)
        enough = self._options.frames is None or known.visible >= self._options.frames
        visible = known.visible >= (self._options.frames or 1) or (state == "complete" and enough)
        durable = known.all_durable and enough if self._options.frames is None else known.durable >= self._options.frames
        told["reached"] = {"visible": visible, "complete": state == "complete" and enough, "durable": durable}[
            self._options.wanted
        ]
        if told["reached"]:
            return told
        if state in ("removed", "dropped"):
            told["why"] = "it was removed before it was complete" if state == "removed" else "nothing of it was ever synced"
        elif state == "complete" and not enough:
            told["why"] = f"it is complete with {known.visible} of {self._options.frames} frames"
        elif state == "complete" and known.error:
            told["why"] = known.error
        elif over and state == "complete":
            told["why"] = "it is complete, but the run has ended and has not said that it is on the disk (durable: false?)"
        elif over:
            told["state"] = "failed"
            cause = f": {known.error}" if known.error else ""
            hint = "" if all_written else "; advectio recover (or drain) finishes it"
            told["why"] = f"the run has ended, and it is not complete{cause}{hint}"
        return told

    def _judge_file(self, wanted: Wanted) -> WaitedFile:
        """No run has told of it."""
        meant = [
            run
            for run in self._runs.values()
            if run.events.directory in (self._only, self._own)
            or (run.events.was_served and _is_near(run.events.started_in, wanted.path))
        ]
        told = _told(wanted.text, "missing", None, None, None)
        if any(_is_marker(run.events.directory, wanted.path) for run in meant):
            told["state"], told["known_by"], told["reached"] = "complete", "marker", self._options.frames is None
            return told
        if any(not run.over for run in meant) or (self._options.run and not meant):
            return told
        contacts = [c for c in self._contacts if c.begun]
        if any(not c.over for c in contacts) or (self._options.contact and not contacts):
            return told
        there = wanted.there()
        if there and not any(in_flight(path) for path in there):
            told["state"], told["known_by"] = "complete", "file"
            told["reached"] = self._options.frames is None
            if not told["reached"]:
                told["why"] = "no run tells of it, so that its frames cannot be counted; leave out --frames"
        elif there:
            told["state"] = "open"
        elif meant or contacts:
            told["why"] = "the run has ended without it"
        return told


def _told(path: str, state: str, by: str | None, visible: int | None, durable: int | None) -> WaitedFile:
    return {
        "path": path,
        "reached": False,
        "state": state,
        "frames_visible": visible,
        "frames_durable": durable,
        "known_by": by,
        "why": None,
    }


def _is_marker(run: str, path: str) -> bool:
    """By its own name, which it gets when all is complete that was closed before it. A program of the run is told that it is
    there sooner, but lists its directory as others do."""
    with contextlib.suppress(OSError):
        with open(os.path.join(places.control_directory(run), "markers.conf"), encoding="utf-8", errors="replace") as patterns:
            names = [pattern.rstrip("\n") for pattern in patterns]
        directory, name = os.path.split(path)
        return any(fnmatch.fnmatchcase(path if "/" in p else name, p) for p in names) and name in os.listdir(directory)
    return False


def _is_near(started_in: str, path: str) -> bool:
    """A run started in the directory of the file, above or below it, may write it."""
    directory = os.path.dirname(path)
    return bool(started_in) and os.path.commonpath([directory, started_in]) in (directory, started_in)


def in_flight(path: str) -> bool:
    """A run on whatever node still writes it, as the file itself shows: the run has a lock on it, and a hard link to it."""
    try:
        state = os.stat(path)
    except OSError:
        return False
    if os.path.isdir(path):
        return False
    return is_locked(path, _MARK_AT, 1) or (state.st_nlink > 1 and any(i == state.st_ino for i in _hard_links(path)))


def _hard_links(path: str) -> Iterator[int]:
    directory = os.path.dirname(os.path.realpath(path))
    while True:
        for links in glob.glob(os.path.join(directory, ".advectio-*")):
            with contextlib.suppress(OSError):
                yield from (entry.inode() for entry in os.scandir(links))
        if directory == os.path.dirname(directory):
            return
        directory = os.path.dirname(directory)


def wait(options: Options) -> int:
    """Exit code."""
    waiting = Waiting(options)
    began = time.monotonic()
    said: set[str] = set()
    try:
        while True:
            files = waiting.look()
            waited = time.monotonic() - began
            if all(f["reached"] for f in files):
                return _end(options, files, REACHED)
            if any(f["why"] for f in files):
                return _end(options, files, NEVER)
            if options.timeout_s is not None and waited >= options.timeout_s:
                return _end(options, files, TIMEOUT)
            if waited > SILENT_S:
                _say_once(said, options, files)
            waiting.pause()
    except KeyboardInterrupt:
        return INTERRUPTED


def _say_once(said: set[str], options: Options, files: Sequence[WaitedFile]) -> None:
    if not said:
        missing = [f for f in files if not f["reached"]]
        first = missing[0]
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        frames = "" if options.frames is None else f", {options.frames} frames"
        so_far = "not begun" if first["state"] == "missing" else f"{first['frames_visible'] or 0} frames visible"
        say("", f"waiting for {first['path']}{more} ({options.wanted}{frames}; now: {so_far})")
    said.add("")


def _end(options: Options, files: list[WaitedFile], code: int) -> int:
    if options.as_json:
        told: Waited = {
            "wanted": options.wanted,
            "frames": options.frames,
            "reached": code == REACHED,
            "timed_out": code == TIMEOUT,
            "files": files,
        }
        print(json.dumps(told, indent=2))
    for f in files:
        if code == NEVER and f["why"]:
            say("error", f"{f['path']} will not be {options.wanted}: {f['why']}")
        if code == TIMEOUT and not f["reached"]:
            say("error", f"{f['path']} is not {options.wanted} after {options.timeout_s:g} s (state: {f['state']})")
    return code
