"""``advectio process --follow``: outputs of a run's files, each as soon as the files that it needs are complete. What is made is
what ``advectio process`` makes of all files when the run is over."""

import contextlib
import glob
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

from advectio import processing
from advectio.errors import UserError, say
from advectio.live import datasets, find
from advectio.live.stream import stream
from advectio.protocol import ProcessedOutput
from advectio.summary import counted
from advectio.worker import INTERRUPTED, run_worker

LOOK_S = 1.0
NICE = 10  # the model goes first


class Files(threading.Thread):
    """The files of a run that match, as their first frames come. ``ended``: no more will."""

    def __init__(self, match: list[str], run: str | None, within_s: float) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.error: UserError | None = None
        self._arguments: dict[str, Any] = {"run": run, "wait_s": within_s, "history": 2**31 - 1, "first_run": True}
        self._match = match
        self._open: dict[str, Callable[[str], int | None]] = {}
        self._lock = threading.Lock()
        self.start()

    def run(self) -> None:
        try:
            for frame in stream(self._match, **self._arguments):
                with self._lock:
                    self._open.setdefault(frame.path, frame.commit)
                frame._done()
        except UserError as error:
            self.error = error
        finally:
            self.ended.set()

    def complete(self) -> list[str]:
        """Those that have become complete since the last call."""
        over = self.ended.is_set() and self.error is None
        with self._lock:
            ready = [path for path, commit in self._open.items() if over or commit(path) is None]
            for path in ready:
                del self._open[path]
        return ready


def follow(options: processing.Options, run: str | None, within_s: float) -> int:
    """Until the run has ended. Exit code as `process`."""
    if processing.is_config(options.rules):
        raise UserError(f"{options.rules} is a config: `advectio run` makes its outputs while it runs, without --follow")
    if processing.has_cmor(options.rules):
        raise UserError(f"{options.rules} has outputs with cmor, which are made of files that are complete: leave out --follow")
    match = [find.pattern(name) for name in options.files]
    os.nice(NICE)
    files: list[str] = []
    made = Made(options)
    since = time.time()
    coming = Files(match, run, within_s)
    with _until_told() as told:
        while not coming.ended.is_set() and not told.is_set():
            if new := coming.complete():
                files += [_at(path) for path in new]
                if code := made.of(files, last=False):
                    return code
            told.wait(LOOK_S)
        if told.is_set():
            say("error", "interrupted; outputs that were complete are there")
            return INTERRUPTED
        if coming.error:
            raise (
                coming.error
                if not files
                else UserError(
                    f"{coming.error}; outputs of complete files are there. When `advectio recover` has finished the run's files, "
                    "`advectio process --keep` makes the rest",
                    1,
                )
            )
        files += [_at(path) for path in coming.complete()]
        files = list(dict.fromkeys(files + _written_since(match, since)))
        if not files:
            raise UserError(f"the run has ended, and has written no file that matches {', '.join(options.files)}")
        return made.of(files, last=True) or made.tell()


class Made:
    """What there is so far."""

    def __init__(self, options: processing.Options) -> None:
        self._options = options
        self._outputs: dict[str, ProcessedOutput] = {}
        self._result: dict[str, Any] | None = None

    def of(self, files: list[str], *, last: bool) -> int:
        """What can be made of the files and is not there. 0, or the exit code of what has failed."""
        with tempfile.NamedTemporaryFile("w", prefix="advectio-follow-", suffix=".txt") as kept:
            kept.write("".join(f"{path}\n" for path in self._outputs))
            kept.flush()
            command = processing.command(self._options) + ["--kept", kept.name] + ([] if last else ["--complete"])
            ended = run_worker(command, files, lambda done, of: None)
        if ended.result is None:
            say("error", "interrupted; outputs that were complete are there" if ended.code == INTERRUPTED else ended.error)
            return ended.code
        self._result = ended.result
        for output in cast(processing.Processed, ended.result)["outputs"]:
            known = output["path"] in self._outputs
            if known and output["kept"]:
                continue
            self._outputs[output["path"]] = output
            if not self._options.as_json:
                processing.show_output(output)
                sys.stdout.flush()
        return 0

    def tell(self) -> int:
        assert self._result
        if self._options.as_json:
            processing.print_json({**self._result, "outputs": list(self._outputs.values())})
        else:
            say("", f"the run has ended; {counted(len(self._outputs), 'output')} of {counted(self._result['files'], 'file')}")
        return 0


def _at(path: str) -> str:
    """Where a file of the run is, by the one name that it has here: a program may have called it ./NAME."""
    return os.path.realpath(datasets.on_disk(path))


def _written_since(match: list[str], since: float) -> list[str]:
    """A file may have come and gone between two looks at the end of the run."""
    found = []
    for pattern in match:
        for path in sorted(glob.glob(pattern)):
            path = os.path.realpath(path)
            with contextlib.suppress(OSError):
                if os.path.isfile(path) and os.path.getsize(path) > 0 and os.path.getmtime(path) >= since:
                    found.append(path)
    return found


@contextlib.contextmanager
def _until_told() -> Iterator[threading.Event]:
    """Set by SIGINT and SIGTERM."""
    told = threading.Event()
    before = {number: signal.signal(number, lambda *_: told.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
