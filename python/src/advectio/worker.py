"""A command of advectiod that works on files: ``join``, ``process`` and ``convert`` give it names on stdin, and it says on stdout
how far it has got and what came of it, a JSON object a line."""

import contextlib
import glob
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from advectio.errors import UserError
from advectio.quantities import size_text
from advectio.server import ended_how
from advectio.summary import console

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

INTERRUPTED = 128 + signal.SIGINT


def _bar() -> "Progress":
    # Here, as the import takes longer than a small file.
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[sizes]}"),
        TimeRemainingColumn(),
        console=console(),
        transient=True,
    )


class View:
    """The bar on a terminal; nothing elsewhere."""

    def __init__(self, shown: bool) -> None:
        self._progress = _bar() if shown else None
        self._task: TaskID | None = None

    def __enter__(self) -> "View":
        if self._progress:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress:
            self._progress.stop()

    def begin(self, name: str, what: str = "opening files") -> None:
        if self._progress:
            if self._task is not None:
                self._progress.remove_task(self._task)
            self._task = self._progress.add_task(name, total=None, sizes=what)

    def update(self, done: int, of: int) -> None:
        if self._progress and self._task is not None:
            self._progress.update(self._task, total=of, completed=done, sizes=f"{size_text(done)} of {size_text(of)}")


@dataclass(frozen=True)
class Outcome:
    """How a worker has ended. `result`: what it says it has made, with the `seconds` it took; None: `error` says why not."""

    code: int
    result: dict[str, Any] | None = None
    error: str = ""


def run_worker(
    command: Sequence[str], names: Sequence[str], progress: Callable[[int, int], None], directory: str | None = None
) -> Outcome:
    """`command`: advectiod, its command, and options. `progress` is told how many bytes of how many are done. `directory`: where
    relative paths begin; None: here."""
    # Within `advectio run`, the worker's own files are not to be carried; in a workflow they may be in memory, and found there.
    environment = dict(os.environ)
    if "ADVECTIO_WORKFLOW" not in environment:
        environment.pop("ADVECTIO_RUN", None)
    began = time.monotonic()
    worker = subprocess.Popen(
        [*command, "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=directory,
    )
    assert worker.stdin and worker.stdout and worker.stderr
    result: dict[str, Any] | None = None
    try:
        with contextlib.suppress(BrokenPipeError), worker.stdin:
            worker.stdin.write("".join(f"{name}\n" for name in names))
        for line in worker.stdout:
            said = json.loads(line)
            result = said.get("result", result)
            if "done" in said:
                progress(said["done"], said["of"])
        errors = worker.stderr.read()
        code = worker.wait()
    except KeyboardInterrupt:
        worker.terminate()
        worker.wait()
        return Outcome(INTERRUPTED)
    if code == 0 and result is not None:
        result["seconds"] = round(time.monotonic() - began, 3)
        return Outcome(0, result)
    lines = errors.strip().splitlines()
    text = lines[0].removeprefix("advectiod: error: ") if lines else f"advectiod {command[1]}: {ended_how(code)}"
    return Outcome(code if code > 0 else 1, None, text)


def matching(name: str) -> list[str]:
    """What a name on the command line means: itself, or what matches the pattern that it is. Directories come too."""
    if os.path.exists(name):
        return [name]
    if glob.has_magic(name) and (found := sorted(glob.glob(name))):
        return found
    said = f"{name}: there is no such file" + (", and none matches" if glob.has_magic(name) else "")
    from advectio.workflow import coupled_here

    if found := coupled_here(name):
        if "ADVECTIO_WORKFLOW" in os.environ:  # a program of a workflow finds a name, and no list of them
            said += f"; {found[0]} is coupled and in memory, where no pattern finds it: name each file"
        else:
            said += (
                f"; {found[0]} is coupled and in the memory of a workflow, whose programs alone find it: give them this command, "
                "advectio run --workflow DIR --as NAME -- advectio …, with NAME in `to` of the rule"
            )
    raise UserError(said)


def datasets(names: Sequence[str], example: str) -> list[str]:
    """Files, Zarr stores and BP files as named, and those that match a quoted pattern, each once. Of another directory one
    names the files; `example` shows how."""
    found: dict[str, None] = {}
    for name in names:
        for path in matching(name):
            path = path.rstrip("/") or "/"
            if not os.path.isdir(path) or _is_dataset(path):
                found[path] = None
            elif os.path.exists(name):
                raise UserError(
                    f"{path} is a directory, and neither a Zarr store nor a BP file; name its files, e.g. "
                    f"'{os.path.join(path, example)}'"
                )
    return list(found)


def _is_dataset(directory: str) -> bool:
    """A Zarr store, or a BP file of ADIOS2; a damaged one, too."""
    names = ("zarr.json", ".zgroup", ".zarray", ".zmetadata", "md.idx", "md.0")
    return any(os.path.exists(os.path.join(directory, name)) for name in names)
