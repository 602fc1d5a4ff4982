"""``advectio process``: further files of files, by the rules that ``outputs`` of a dataset will have. Names and patterns of
files are resolved here; what is in them, and whether the rules fit, is advectiod's to say."""

import contextlib
import glob
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from advectio import installation
from advectio.errors import UserError, say
from advectio.quantities import rate_text, size_text, time_text
from advectio.server import ended_how
from advectio.summary import console, counted

INTERRUPTED = 128 + signal.SIGINT


class ProcessedOutput(TypedDict):
    path: str
    format: str
    variables: int
    records: int
    bytes_read: int
    bytes_written: int
    kept: bool
    left_out: list[str]


class Processed(TypedDict):
    """What `process --json` prints."""

    files: int
    records: int
    first: str
    last: str
    outputs: list[ProcessedOutput]
    seconds: float


@dataclass(frozen=True)
class Options:
    files: Sequence[str]
    rules: str
    output: str
    force: bool = False
    keep: bool = False
    memory: str = "512MiB"
    jobs: int | None = None
    as_json: bool = False


def expanded(names: Sequence[str]) -> list[str]:
    """Files as named, and those that match a quoted pattern, each once."""
    found: dict[str, None] = {}
    for name in names:
        if os.path.isdir(name):
            raise UserError(f"{name} is a directory; name its files, e.g. '{os.path.join(name, 'wrfout_d01_*')}'")
        if os.path.exists(name):
            found[name] = None
        elif glob.has_magic(name) and (matching := sorted(glob.glob(name))):
            found.update(dict.fromkeys(path for path in matching if not os.path.isdir(path)))
        else:
            raise UserError(f"{name}: there is no such file" + (", and none matches" if glob.has_magic(name) else ""))
    return list(found)


def process(options: Options) -> int:
    if options.force and options.keep:
        raise UserError("--force replaces outputs that are there, --keep leaves them: say one of the two")
    files = expanded(options.files)
    command = [installation.find().server, "process", "--rules", options.rules, "--output", options.output]
    command += ["--memory", options.memory] + (["--jobs", str(options.jobs)] if options.jobs else [])
    command += ["--force"] * options.force + ["--keep"] * options.keep + ["-"]
    shown = not options.as_json and sys.stderr.isatty()
    began = time.monotonic()
    code, result, error = _work(command, files, shown)
    if result is None:
        say("error", error)
        return code
    result["seconds"] = round(time.monotonic() - began, 3)
    processed = cast(Processed, result)
    if options.as_json:
        print(json.dumps(processed, indent=2))
    else:
        _show(processed)
    return 0


def _work(command: Sequence[str], files: Sequence[str], shown: bool) -> tuple[int, dict[str, Any] | None, str]:
    """Exit code, what came of it, and else why not."""
    # Within `advectio run`, the worker's own files are not to be carried.
    environment = {name: value for name, value in os.environ.items() if name != "ADVECTIO_RUN"}
    worker = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert worker.stdin and worker.stdout and worker.stderr
    result: dict[str, Any] | None = None
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[sizes]}"),
        TimeRemainingColumn(),
        console=console(),
        transient=True,
        disable=not shown,
    )
    with bar:
        task = bar.add_task(counted(len(files), "file"), total=None, sizes="opening files")
        try:
            with contextlib.suppress(BrokenPipeError), worker.stdin:
                worker.stdin.write("".join(f"{path}\n" for path in files))
            for line in worker.stdout:
                said = json.loads(line)
                result = said.get("result", result)
                if "done" in said:
                    sizes = f"{size_text(said['done'])} of {size_text(said['of'])}"
                    bar.update(task, total=said["of"], completed=said["done"], sizes=sizes)
            errors = worker.stderr.read()
            code = worker.wait()
        except KeyboardInterrupt:
            worker.terminate()
            worker.wait()
            return INTERRUPTED, None, "interrupted; outputs that were complete are there (--keep goes on after them)"
    if code == 0 and result is not None:
        return 0, result, ""
    lines = errors.strip().splitlines()
    text = lines[0].removeprefix("advectiod: error: ") if lines else f"advectiod process: {ended_how(code)}"
    return code if code > 0 else 1, None, text


def _show(processed: Processed) -> None:
    out = Console(highlight=False, soft_wrap=True)
    read = 0
    for output in processed["outputs"]:
        read += output["bytes_read"]
        what = f"{counted(output['variables'], 'variable')}, {counted(output['records'], 'record')}"
        end = "was there already" if output["kept"] else f"{size_text(output['bytes_written'])} written"
        out.print(f"{output['path']}: {what}; {end}", markup=False)
        if output["left_out"]:
            out.print(f"  without {', '.join(output['left_out'])}: text, or a part of the old grid", markup=False)
    seconds = processed["seconds"]
    out.print(
        f"{counted(processed['files'], 'file')}, {counted(processed['records'], 'record')} from {processed['first']} to "
        f"{processed['last']}; {size_text(read)} read in {time_text(seconds)} ({rate_text(read / max(seconds, 1e-3))})",
        markup=False,
    )
