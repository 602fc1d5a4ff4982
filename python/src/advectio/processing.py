"""``advectio process``: further files of files, by the rules that ``outputs`` of a dataset will have. Names and patterns of
files are resolved here; what is in them, and whether the rules fit, is advectiod's to say."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict, cast

from advectio import installation
from advectio.errors import UserError, say
from advectio.protocol import ProcessedOutput
from advectio.quantities import rate_text, size_text, time_text
from advectio.summary import counted
from advectio.worker import INTERRUPTED, View, datasets, run_worker


class Processed(TypedDict):
    """What `process --json` prints."""

    files: int
    records: int
    first: str
    last: str
    notes: list[str]
    outputs: list[ProcessedOutput]
    seconds: float


@dataclass(frozen=True)
class Options:
    files: Sequence[str]
    rules: str  # or a config
    output: str | None  # None: of a config, whose outputs are beside the files
    force: bool = False
    keep: bool = False
    memory: str = "512MiB"
    jobs: int | None = None
    as_json: bool = False


def command(options: Options) -> list[str]:
    """Of advectiod; the names of the files go to its stdin."""
    if options.force and options.keep:
        raise UserError("--force replaces outputs that are there, --keep leaves them: say one of the two")
    if options.output is None:
        raise UserError("--output is missing: where the rules' paths begin")
    words = [installation.find().server, "process", "--rules", options.rules, "--output", options.output]
    words += ["--memory", options.memory] + (["--jobs", str(options.jobs)] if options.jobs else [])
    return words + ["--force"] * options.force + ["--keep"] * options.keep


def has_cmor(path: str) -> bool:
    """Rules with ``cmor``, which advectiod does not know. Of a file that cannot be read it says why."""
    try:
        with open(path, encoding="utf-8") as file:
            return any(re.search(r"(^|[\s{,\"'-])cmor[\"']?\s*:", line.partition("#")[0]) for line in file)
    except (OSError, ValueError):
        return False


def is_config(path: str) -> bool:
    """Rules have `outputs` alone, and a config has `datasets`. Of a file that cannot be read advectiod says why."""
    try:
        with open(path, encoding="utf-8") as file:
            return re.search(r"^[\"']?datasets[\"']?\s*:", file.read(), re.MULTILINE) is not None
    except (OSError, ValueError):
        return False


def process(options: Options) -> int:
    if is_config(options.rules):
        from advectio import processed

        return processed.by_config(options)
    if has_cmor(options.rules):
        from advectio.cmor import making

        return making.process(options)
    worker = command(options)
    files = datasets(options.files, "wrfout_d01_*")
    with View(shown=not options.as_json and sys.stderr.isatty()) as view:
        view.begin(counted(len(files), "file"))
        ended = run_worker(worker, files, view.update)
    if ended.code == INTERRUPTED:
        say("error", "interrupted; outputs that were complete are there (--keep goes on after them)")
        return ended.code
    if ended.result is None:
        say("error", ended.error)
        return ended.code
    result = cast(Processed, ended.result)
    if options.as_json:
        print_json(result)
    else:
        show(result)
    return 0


def print_json(processed: object) -> None:
    print(json.dumps(processed, indent=2))


def show_output(output: ProcessedOutput) -> None:
    from rich.console import Console

    out = Console(highlight=False, soft_wrap=True)
    what = counted(output["variables"], "variable")
    what += f", {counted(output['records'], 'record')}" if output["records"] else ""
    end = "was there already" if output["kept"] else f"{size_text(output['bytes_written'])} written"
    out.print(f"{output['path']}: {what}; {end}", markup=False)
    if output["left_out"]:
        out.print(f"  without {', '.join(output['left_out'])}: text, or a part of the old grid", markup=False)


def show(processed: Processed) -> None:
    from rich.console import Console

    out = Console(highlight=False, soft_wrap=True)
    read = sum(output["bytes_read"] for output in processed["outputs"])
    for output in processed["outputs"]:
        show_output(output)
    for note in processed["notes"]:
        out.print(f"  {note}", markup=False)
    seconds = processed["seconds"]
    records = f", {counted(processed['records'], 'record')}" if processed["records"] else ""
    span = f" from {processed['first']} to {processed['last']}" if processed["first"] else " without times"
    out.print(
        f"{counted(processed['files'], 'file')}{records}{span}; "
        f"{size_text(read)} read in {time_text(seconds)} ({rate_text(read / max(seconds, 1e-3))})",
        markup=False,
    )
