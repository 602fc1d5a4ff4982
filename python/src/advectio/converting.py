"""``advectio convert``: files in another format, stored otherwise, or parts of them. Names, patterns and the options of the
command line are put together here; what is in the files, and whether it fits, is advectiod's to say."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict, cast

from advectio import installation
from advectio.errors import UserError, say
from advectio.quantities import rate_text, size_text, time_text
from advectio.summary import counted
from advectio.worker import INTERRUPTED, View, datasets, run_worker


class ConvertedOutput(TypedDict):
    path: str
    format: str
    variables: int
    records: int
    bytes: int
    bytes_written: int


class Converted(TypedDict):
    """What `convert --json` prints."""

    outputs: list[ConvertedOutput]
    files: int
    tiles: int
    model: str
    first: str
    last: str
    land_points: int
    notes: list[str]
    disagreements: list[str]
    memory_peak: int
    seconds: float


@dataclass(frozen=True)
class Options:
    paths: Sequence[str]  # the last one is what is made
    to: str | None = None
    variables: Sequence[str] = ()
    records: str | None = None
    times: str | None = None
    along: str | None = None
    overlap: str | None = None
    split_by: str | None = None
    codec: str | None = None
    level: int | None = None
    chunks: str | None = None
    rule: str | None = None
    force: bool = False
    take_first: bool = False
    memory: str = "256MiB"
    jobs: int | None = None
    as_json: bool = False


def kind_of(output: str, to: str | None) -> str | None:
    """The format that --to or the name asks for; None: as the source, or netCDF-4 of what is not netCDF."""
    if to:
        return to
    name = output.rstrip("/")
    if name.endswith(".zarr"):
        return "zarr"
    if name.endswith((".bp", ".bp5")):
        return "bp5"
    return None


def rule_of(options: Options) -> str:
    """Keys of a dataset rule, from the options that stand for them."""
    keys = [options.rule] if options.rule else []
    if options.codec:
        keys.append(f"codec: {options.codec}")
    if options.level is not None:
        keys.append(f"level: {options.level}")
    if options.chunks:
        lengths = []
        for part in options.chunks.split(","):
            name, equals, length = part.partition("=")
            if not equals or not name.strip() or not length.strip().isdigit() or int(length) < 1:
                raise UserError(f"--chunks: '{part}' is not DIMENSION=LENGTH, as in Time=1,south_north=100")
            lengths.append(f"{json.dumps(name.strip())}: {int(length)}")
        keys.append(f"chunks: {{{', '.join(lengths)}}}")
    return ", ".join(keys)


def command_of(options: Options, server: str) -> list[str]:
    *_, output = options.paths
    if options.split_by not in (None, "variable"):
        raise UserError(f"--split-by: {options.split_by} is not known; known: variable")
    if "{variable}" in output and not options.split_by:
        raise UserError(f"{output}: {{variable}} is the name of a variable with --split-by variable")
    to = kind_of(output.replace("{variable}", "x"), options.to)
    command = [server, "convert", "--output", output]
    command += ["--split"] * bool(options.split_by) + ["--force"] * options.force + ["--take-first"] * options.take_first
    rule = rule_of(options)
    values = {
        "--to": to,
        "--rule": rule,
        "--variables": ",".join(options.variables),
        "--records": options.records,
        "--times": options.times,
        "--along": options.along,
        "--overlap": options.overlap,
        "--memory": options.memory,
        "--jobs": str(options.jobs) if options.jobs else None,
    }
    for option, value in values.items():
        command += [option, value] if value else []
    return command


def convert(options: Options) -> int:
    if len(options.paths) < 2:
        raise UserError(f"the last name is what is made: advectio convert {' '.join(options.paths)} DST")
    command = command_of(options, installation.find().server)
    files = datasets(options.paths[:-1], "*.nc")
    with View(shown=not options.as_json and sys.stderr.isatty()) as view:
        view.begin(os.path.basename(options.paths[-1].rstrip("/")))
        ended = run_worker(command, files, view.update)
    if ended.code == INTERRUPTED:
        say("error", "interrupted; what was not complete is not there")
        return ended.code
    if ended.result is None:
        say("error", ended.error)
        return ended.code
    converted = cast(Converted, ended.result)
    if options.as_json:
        print(json.dumps(converted, indent=2))
    else:
        _show(converted)
    return 0


def _show(converted: Converted) -> None:
    from rich.console import Console

    out = Console(highlight=False, soft_wrap=True)
    total = 0
    for output in converted["outputs"]:
        total += output["bytes"]
        records = f", {counted(output['records'], 'record')}" if output["records"] else ""
        out.print(
            f"{output['path']}: {output['format']}, {counted(output['variables'], 'variable')}{records}; "
            f"{size_text(output['bytes'])}, {size_text(output['bytes_written'])} written",
            markup=False,
        )
    if converted["land_points"]:
        out.print(
            f"  {converted['land_points']} points are in no tile (land that {converted['model']} leaves out): they hold the fill value"
        )
    for note in converted["notes"]:
        out.print(f"  {note}", markup=False)
    if converted["disagreements"]:
        out.print(
            f"  sources disagree, the first one's values are taken: {', '.join(converted['disagreements'])}", markup=False
        )
    tiles = f" ({counted(converted['tiles'], 'tile')} of {converted['model']})" if converted["tiles"] else ""
    span = f" from {converted['first']} to {converted['last']}" if converted["first"] else ""
    seconds = converted["seconds"]
    out.print(
        f"{counted(converted['files'], 'file')}{tiles}{span}; {size_text(total)} in {time_text(seconds)} "
        f"({rate_text(total / max(seconds, 1e-3))})",
        markup=False,
    )
