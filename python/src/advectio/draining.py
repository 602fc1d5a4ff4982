"""``advectio drain``: what runs have left in their stage with --drain-later, written out, with a bar. The work is that of
``advectio recover``; here is what is different: it goes on where it was interrupted, shows how far it is, and touches nothing
that may still be in use."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from advectio import inspecting, on_events, places, processed, recovering
from advectio.errors import AlreadySaid, UserError, say
from advectio.inspecting import Survey
from advectio.protocol import NoServer, Status, status_of
from advectio.server import end_with_parent
from advectio.worker import INTERRUPTED, View


@dataclass(frozen=True)
class Left:
    """Written into the run directory by the ``advectio run`` that has left it: nothing of the run lives any more, wherever it
    is looked at from."""

    host: str
    ended: str
    command: list[str]

    def save(self, run_directory: str) -> None:
        path = os.path.join(run_directory, places.LEFT_FILE)
        with open(path, "w", encoding="utf-8") as out:
            json.dump({"host": self.host, "ended": self.ended, "command": self.command}, out, indent=2)
            out.write("\n")
            out.flush()
            os.fsync(out.fileno())
        directory = os.open(run_directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def drain(directories: Sequence[str], as_json: bool) -> int:
    worst = 0
    done: list[dict[str, Any]] = []
    runs = list(_runs(directories))
    for number, run in enumerate(runs, 1):
        try:
            code, found = _drain(run, f"draining {number}/{len(runs)}", as_json)
            done += found
        except AlreadySaid as error:
            code = error.exit_code
        except UserError as error:
            say("error", str(error))
            code = error.exit_code
        if code == INTERRUPTED:
            worst = code
            break
        worst = max(worst, code)
    if as_json:
        print(json.dumps(done, indent=2))
    return worst


def _runs(directories: Sequence[str]) -> Iterator[str]:
    """The run directories that are meant; of a stage all of this user's."""
    for directory in directories:
        if not os.path.lexists(directory) or _is_run(directory):
            yield directory
            continue
        for parent in (places.user_directory(directory), directory):
            with contextlib.suppress(OSError):
                runs = [os.path.join(parent, name) for name in sorted(os.listdir(parent))]
                if any(_is_run(run) for run in runs):
                    yield from (run for run in runs if _is_run(run))
                    break
        else:
            if os.path.isdir(places.user_directory(directory)):
                say("", f"{directory}: no run of yours is left there")
                continue
            raise UserError(f"{directory} is neither a run directory nor a stage.directory that holds one")


def _is_run(directory: str) -> bool:
    names = ("control", places.SERVERS_FILE, places.PROCESSED_FILE, places.EVENTS_FILE)
    return any(os.path.exists(os.path.join(directory, name)) for name in names)


def _drain(run: str, title: str, as_json: bool) -> tuple[int, list[dict[str, Any]]]:
    if recovering.gone(run):
        return recovering.EXIT_GONE, []
    if os.stat(run).st_uid != os.geteuid():
        raise UserError(f"{run} belongs to another user (uid {os.stat(run).st_uid})")
    if events_left := recovering.only_events(run, False, as_json):
        return 0, [dict(events_left)]
    left = processed.left_in(run)
    if left and not places.is_run(run):
        code, only = recovering.only_outputs(run, left, False)
        if not as_json:
            recovering.tell_of_outputs(only["processed"])
        return code, [dict(only)]
    before = inspecting.surveys(run)
    _must_have_ended(run, before)
    commands = on_events.of_left_run(run)
    code, result = _finish(run, before, title, shown=not as_json and sys.stderr.isatty())
    if commands:
        recovering.end_commands(commands, result)
    if result is None:
        say("", f"interrupted; what is not written stays in {run}, `advectio drain {run}` goes on")
        return code, []
    code = code or recovering.code_of(before, result)
    made = processed.complete(left, run, result) if left else None
    recovering.settle(run, code)
    told = recovering.present(run, before, result, as_json)
    if left and made is not None:
        told["processed"] = made
        if not as_json:
            recovering.tell_of_outputs(made)
        code = code or recovering.code_of_outputs(made, left)
    return code, [told]


def _must_have_ended(run: str, surveys: Sequence[Survey]) -> None:
    left = os.path.exists(os.path.join(run, places.LEFT_FILE))
    for survey in surveys:
        if survey.get("served"):
            raise UserError(f"{run} is served by process {survey['server_pid']}: its run is still under way")
        for j in survey.get("journals", []):
            who = f"{os.path.basename(j['command'].split(' ')[0])} ({j['pid']}) on {j['host']}"
            if j["alive"]:
                raise UserError(f"{run} is still in use by {who}; drain it when that has ended")
            if j["alive"] is None and not left:
                raise UserError(
                    f"{run} was written by {who}, and did not end with --drain-later: whether its programs still run cannot be "
                    f"seen from here; drain it on that host, or, when you know that they have ended, `advectio recover {run}`"
                )


def _finish(run: str, before: Sequence[Survey], title: str, shown: bool) -> tuple[int, Status | None]:
    command = recovering.command_for(run)
    total = sum(d["bytes_staged"] + d["bytes_unsynced"] for s in before for d in s.get("datasets", []))
    worker = subprocess.Popen(
        command.words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env=command.environment,
        start_new_session=True,  # Ctrl-C is ours to tell it of
        preexec_fn=_dies_with_us(os.getpid()),
    )
    try:
        with View(shown) as view:
            view.begin(title)
            while True:
                try:
                    said, _ = worker.communicate(timeout=0.2)
                    break
                except subprocess.TimeoutExpired:
                    with contextlib.suppress(NoServer):
                        status = status_of(run, 1.0)
                        view.update(min(sum(d["bytes_put"] for d in status["datasets"]), total), total)
    except KeyboardInterrupt:
        _end(worker)
        return INTERRUPTED, None
    except BaseException:
        _end(worker)
        raise
    return worker.returncode, recovering.answer(command, worker.returncode, said)


def _dies_with_us(parent: int) -> Callable[[], None]:
    """Who kills us wants the drain to end, and must be able to begin it again."""

    def prepare() -> None:
        end_with_parent(signal.SIGKILL, parent)

    return prepare


def _end(worker: "subprocess.Popen[str]") -> None:
    """At once: what it has not committed, the next one writes again."""
    worker.send_signal(signal.SIGINT)
    deadline = time.monotonic() + 5.0
    while worker.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    if worker.poll() is None:
        worker.kill()
    worker.wait()
