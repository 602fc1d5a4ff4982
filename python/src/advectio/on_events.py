"""What happens at events: the commands of the config's ``on``, and its ``sets``. Commands run beside the command of ``advectio
run``: some at a time, those of one file one after the other, without the libraries that carry output. ``recover`` and ``drain`` do
what is left."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any, NamedTuple, TypeVar

from advectio import places, sets
from advectio.errors import UserError, say
from advectio.events import Event, Followed, Lines, Told, is_locked
from advectio.protocol import CommandsRun, SetReport
from advectio.sets import Keeper
from advectio.signals import Signals

LAST_LINES = 3
Result = TypeVar("Result")
NOT_THEIRS = ("LD_PRELOAD", "ADVECTIO_RUN", "ADVECTIO_WORKFLOW", "ADVECTIO_SERVERS", "ADVECTIO_NODES")


class Settings(NamedTuple):
    commands: dict[str, list[str]]  # event → words
    at_once: int
    timeout_s: float
    events: str | None  # the file of events, where the config names one


def settings(raw: dict[str, Any], directory: str) -> Settings | None:
    """``raw``: what advectiod has read of the config. None: it has neither commands nor sets."""
    on = raw.get("on", {})
    if not on.get("commands") and not raw.get("sets"):
        return None
    told = next((e["value"] for e in raw["values"] if e["key"] == "events" and e["value"] != "null"), None)
    if told and told.startswith('"'):
        told = json.loads(told)
    commands = {event: shlex.split(command) for event, command in on["commands"].items()}
    return Settings(commands, on["at_once"], on["timeout_s"], os.path.join(directory, told) if told else None)


def several_nodes_need_a_file(wanted: Settings) -> None:
    """Before the model starts."""
    if not wanted.events:
        raise UserError(
            f"{'on' if wanted.commands else 'sets'}: this run has several nodes, and their events come together in a file alone; "
            "set events: FILE on a file system that all nodes see"
        )


def words_of(command: list[str], event: Event) -> list[str]:
    """Filled in after splitting, so that a blank in a name does not split it again."""
    path = event.get("path", "")
    known = {"{path}": path, "{name}": os.path.basename(path), "{frame}": str(event.get("frame", ""))}
    filled = []
    for word in command:
        out, rest = "", word
        while rest:  # once, from the left: what has been filled in is not looked at
            at, name = min(((rest.find(n), n) for n in known if n in rest), default=(-1, ""))
            if at < 0:
                break
            out, rest = out + rest[:at] + known[name], rest[at + len(name) :]
        filled.append(out + rest)
    return filled


@dataclass
class _Running:
    words: list[str]
    event: Event
    process: "subprocess.Popen[bytes]"
    output: IO[bytes]
    until: float
    killed: bool = False


@dataclass
class _Due:
    """An event with a command, until that is done."""

    event: Event
    file: str
    start: int  # of its line there


@dataclass
class _Queue:
    """Of one file."""

    due: deque[_Due] = field(default_factory=deque)
    running: _Running | None = None


class Commands:
    """Follows the events of a run on a thread of its own, until ``end``."""

    def __init__(
        self, wanted: Settings, run_directory: str, directory: str, several: bool = False, keepers: Sequence[Keeper] = ()
    ) -> None:
        """``directory``: where the commands are started. ``several``: nodes, whose events are in the config's file."""
        self.run = 0
        self.failed = 0
        self.has_commands = bool(wanted.commands)
        self._keepers = keepers
        self._said: set[str] = set()
        self._wanted = wanted
        self._directory = directory
        self._places = os.path.join(run_directory, places.ON_FILE)
        self._run_directory = run_directory
        self._done_to = self._saved()
        self._read_to: dict[str, int] = {}
        self._queues: dict[str, _Queue] = {}
        self._ending = threading.Event()
        self._giving_up = threading.Event()
        self._told = Told()
        self._source: Followed | Lines | None = None
        if several and wanted.events:
            start = os.path.getsize(wanted.events) if os.path.exists(wanted.events) else 0
            with open(wanted.events, "a", encoding="utf-8"):
                pass
            self._source = Lines(wanted.events, self._done_to.get(wanted.events, start))
            self._told.watch(wanted.events)
        else:
            self._open()
        self._thread = threading.Thread(target=self._follow, name="on", daemon=True)
        self._thread.start()

    def _open(self) -> None:
        """Of several servers one may still begin when the first answers."""
        with contextlib.suppress(FileNotFoundError):
            self._source = Followed(self._run_directory, self._done_to)
            for file in self._source.files:
                self._told.watch(file.path)

    def _saved(self) -> dict[str, int]:
        with contextlib.suppress(OSError, ValueError), open(self._places, encoding="utf-8") as file:
            return {str(k): int(v) for k, v in json.load(file).items()}
        return {}

    def _follow(self) -> None:
        last = False
        while True:
            ending = self._ending.is_set()
            if self._read():
                self._save()
            moved = self._look()
            for keeper in self._keepers:
                self._in_set(keeper.look)
            if self._giving_up.is_set():
                self._kill_all()
            if ending and last and not any(q.due or q.running for q in self._queues.values()):
                break
            last = ending  # all has been read that was there when the end was asked for
            if self._source is None:
                time.sleep(0.02)
            elif not moved:
                self._told.wait(0.05 if any(q.running for q in self._queues.values()) else 0.2)
        self._told.close()

    def _read(self) -> bool:
        """True where some were of a set."""
        if self._source is None:
            self._open()
        if self._source is None:
            return False
        of_sets = False
        if isinstance(self._source, Followed):
            new = self._source.read_places()
        else:
            new = [(self._source.path, end, e) for end, e in self._source.read() if e["run"] == self._run_directory]
        for file, end, event in new:
            start = self._read_to.get(file, self._done_to.get(file, 0))
            self._read_to[file] = end
            for keeper in self._keepers:
                of_sets = bool(self._in_set(partial(keeper.note, event))) or of_sets
            if self._command_of(event):
                key = f"{event.get('node', '')} {event.get('id', '')}"
                self._queues.setdefault(key, _Queue()).due.append(_Due(event, file, start))
        return of_sets

    def _in_set(self, do: Callable[[], Result]) -> Result | None:
        """What cannot be done is said once; the run goes on."""
        try:
            return do()
        except UserError as error:
            if str(error) not in self._said:
                self._said.add(str(error))
                say("warning", str(error))
        return None

    def _command_of(self, event: Event) -> list[str] | None:
        # A file is durable when all of it is: what comes before speaks of its frames.
        if event["event"] == "durable" and not event.get("complete"):
            return None
        return self._wanted.commands.get(event["event"])

    def _look(self) -> bool:
        """Ends what has ended, and begins what may."""
        moved = False
        for key, queue in list(self._queues.items()):
            if queue.running and self._has_ended(queue.running):
                queue.running = None
                queue.due.popleft()
                moved = True
            if not queue.due:
                del self._queues[key]
        if moved:
            self._save()
        running = sum(q.running is not None for q in self._queues.values())
        for queue in self._queues.values():
            if running >= self._wanted.at_once or self._giving_up.is_set():
                break
            if queue.running is None:
                queue.running = self._begin(queue.due[0].event)
                if queue.running is None:
                    queue.due.popleft()
                moved = True
                running += queue.running is not None
        for key in [key for key, queue in self._queues.items() if not queue.due]:
            del self._queues[key]
        return moved

    def _save(self) -> None:
        """For a recovery: behind here something is left to be done."""
        if self._giving_up.is_set():
            return
        for file, end in self._read_to.items():
            self._done_to[file] = min(
                (due.start for queue in self._queues.values() for due in queue.due if due.file == file), default=end
            )
        temporary = f"{self._places}.new"
        with contextlib.suppress(OSError):
            with open(temporary, "w", encoding="utf-8", opener=places.private) as out:
                json.dump(self._done_to, out)
            os.replace(temporary, self._places)

    def _begin(self, event: Event) -> _Running | None:
        words = words_of(self._command_of(event) or [], event)
        self.run += 1
        output = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            process = subprocess.Popen(
                words,
                cwd=self._directory,
                env={name: value for name, value in os.environ.items() if name not in NOT_THEIRS},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the model
                preexec_fn=Signals.released,
            )
        except OSError as error:
            self.failed += 1
            say("warning", f"on {event['event']}: {words[0]}: {error.strerror} (for {event.get('path', '')})")
            return None
        return _Running(words, event, process, output, time.monotonic() + self._wanted.timeout_s)

    def _has_ended(self, running: _Running) -> bool:
        code = running.process.poll()
        if code is None:
            if time.monotonic() > running.until:
                self._kill(running)
            return False
        if code != 0 or running.killed:
            self.failed += 1
            how = f"exit code {code}" if code >= 0 else f"signal {-code}"
            if running.killed:
                how = f"killed after {self._wanted.timeout_s:g} s (on: timeout)" if not self._giving_up.is_set() else "killed"
            running.output.seek(0)
            lines = running.output.read()[-4096:].decode(errors="replace").strip().splitlines()[-LAST_LINES:]
            said = f": {' | '.join(lines)}" if lines else ""
            say("warning", f"on {running.event['event']}: `{shlex.join(running.words)}`: {how}{said}")
        running.output.close()
        return True

    def _kill(self, running: _Running) -> None:
        running.killed = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.process.pid, signal.SIGKILL)

    def _kill_all(self) -> None:
        for queue in self._queues.values():
            if queue.running:
                self._kill(queue.running)
                while len(queue.due) > 1:
                    queue.due.pop()
            else:
                queue.due.clear()

    def end(self, go_on: Callable[[], bool] = lambda: True) -> CommandsRun:
        """No more events come. Waits for the commands, as long as ``go_on`` says so, and at most ``on.timeout``."""
        self._ending.set()
        until = time.monotonic() + self._wanted.timeout_s
        while self._thread.is_alive():
            self._thread.join(0.05)
            if self._giving_up.is_set() or not self._thread.is_alive():
                continue
            late = time.monotonic() > until
            if late or not go_on():
                left = sum(len(q.due) for q in list(self._queues.values()))
                why = f"were not done {self._wanted.timeout_s:g} s after the run (on: timeout)" if late else "are left out"
                say("warning", f"on: {left} command{'s' * (left != 1)} {why}")
                self._giving_up.set()
        if not places.is_run(self._run_directory):
            # The servers have taken their directory away, perhaps just before the places were saved.
            for name in (self._places, f"{self._places}.new"):
                with contextlib.suppress(OSError):
                    os.unlink(name)
            with contextlib.suppress(OSError):
                os.rmdir(self._run_directory)
        return {"run": self.run, "failed": self.failed}

    def end_sets(self, over: bool, well: bool, left: bool = False) -> list[SetReport]:
        """Behind ``end``; as `Keeper.end`."""
        reports = (self._in_set(partial(keeper.end, over, well, left)) for keeper in self._keepers)
        return [report for report in reports if report]


class Left(NamedTuple):
    """What the config of a run that is to be finished has for its events."""

    wanted: Settings
    keepers: list[Keeper]
    directory: str
    several: bool


def _left(run_directory: str) -> Left | None:
    """By the copy of its config."""
    from advectio import installation, nodes
    from advectio.reading import read_config

    several = nodes.of_run(run_directory)
    kept = several[1] if several else os.path.join(run_directory, places.CONFIG_FILE)
    if not kept or not os.path.isfile(kept):
        return None
    with open(kept, encoding="utf-8", errors="replace") as file:
        if not any(_may_be_here(line) for line in file):
            return None
    directory = _started_in(run_directory)
    raw = read_config(installation.find().server, kept)
    wanted = settings(raw, directory)
    if not wanted:
        return None
    apart = several is not None and several[0].simulated is None
    return Left(wanted, sets.keepers(raw, directory, run_directory, ""), directory, apart)


def _may_be_here(line: str) -> bool:
    return line.startswith("{") or line.lstrip("\"'").startswith(("on", "sets"))


def of_left_run(run_directory: str) -> Commands | None:
    """To be begun before a server takes it up."""
    if any(is_locked(os.path.join(node, "server.lock")) for node in places.node_directories(run_directory)):
        return None  # the run is under way, and has its own
    left = _left(run_directory)
    if left is None:
        return None
    try:
        keepers = [keeper for keeper in left.keepers if keeper.take_up()]
        for keeper in left.keepers:
            if keeper not in keepers:
                say("warning", f"set {keeper.rule.name}: a later run has begun; files of this one are in no set")
        return Commands(left.wanted, run_directory, left.directory, left.several, keepers)
    except (OSError, UserError) as error:
        say("warning", f"on, sets: nothing is done at its events: {error}")
        return None


def sets_of_left_run(run_directory: str) -> list[SetReport]:
    """Without any change."""
    left = _left(run_directory)
    return [keeper.report() for keeper in left.keepers] if left else []


def _started_in(run_directory: str) -> str:
    with contextlib.suppress(OSError, UserError):
        followed = Followed(run_directory)
        followed.read()
        followed.close()
        if os.path.isdir(followed.started_in):
            return followed.started_in
    return os.getcwd()
