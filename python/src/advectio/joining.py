"""``advectio join``: one file of the tiles of a split one. Which files belong together is found here, by their names; whether
they do, and where each lies, is advectiod's to say, from their attributes."""

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypedDict, cast

from advectio import installation, places
from advectio.errors import UserError, say
from advectio.quantities import rate_text, size_text, time_text
from advectio.summary import counted
from advectio.worker import INTERRUPTED, Outcome, View, matching, run_worker

# How tiles are named, and what is left of the name for the whole: WRF, SCALE, NEMO.
_NAMES = (
    (re.compile(r"(?P<base>.+)_\d{4,5}"), ""),
    (re.compile(r"(?P<base>.+)\.pe\d{6,}\.nc"), ".nc"),
    (re.compile(r"(?P<base>.+)_\d{4,}\.nc"), ".nc"),
)


class Joined(TypedDict):
    output: str
    model: str
    format: str
    tiles: int
    variables: int
    frames: int
    bytes: int
    bytes_written: int
    land_points: int
    disagreements: list[str]
    seconds: float


class Failed(TypedDict):
    output: str
    error: str


class Result(TypedDict):
    """What `join --json` prints."""

    joined: list[Joined]
    failed: list[Failed]


@dataclass(frozen=True)
class Options:
    tiles: Sequence[str]
    output: str
    config: str | None = None
    rule: str | None = None
    force: bool = False
    take_first: bool = False
    as_json: bool = False


def whole_name(path: str) -> str | None:
    """The name of the file that a tile of this name is a part of; None: it is not named like a tile."""
    for pattern, ending in _NAMES:
        match = pattern.fullmatch(os.path.basename(path))
        if match:
            return match["base"] + ending
    return None


def families(names: Sequence[str]) -> dict[str, list[str]]:
    """What belongs together, by the name of the whole. One tile alone stands for all of its family."""
    found: dict[tuple[str, str], list[str]] = {}
    unnamed: list[str] = []
    for path in _expanded(names):
        whole = whole_name(path)
        if whole is None:
            unnamed.append(path)
        else:
            found.setdefault((os.path.dirname(path), whole), []).append(path)
    if unnamed:  # names that say nothing: whoever gives them knows that they belong together
        everything = unnamed + [path for members in found.values() for path in members]
        return {os.path.basename(unnamed[0]) if len(everything) == 1 else "joined.nc": everything}
    result: dict[str, list[str]] = {}
    for (directory, whole), members in sorted(found.items()):
        if whole in result:
            raise UserError(f"tiles of {whole} are in several directories, {directory or '.'} is one; join them one at a time")
        result[whole] = sorted(members) if len(members) > 1 else _siblings(directory, whole)
    return result


def _expanded(names: Sequence[str]) -> Iterator[str]:
    for name in names:
        if os.path.isdir(name):
            raise UserError(f"{name} is a directory; name its tiles, e.g. '{os.path.join(name, '*_0000')}'")
        yield from matching(name)


def _siblings(directory: str, whole: str) -> list[str]:
    return sorted(os.path.join(directory, name) for name in os.listdir(directory or ".") if whole_name(name) == whole)


def output_paths(wholes: Sequence[str], output: str) -> list[str]:
    """Where each goes: into a directory by its own name, or the one to the file named."""
    if output.endswith(os.sep):
        try:
            os.makedirs(output, exist_ok=True)
        except OSError as error:
            raise UserError(f"{output}: {error.strerror}") from error
    if os.path.isdir(output):
        return [os.path.join(output, whole) for whole in wholes]
    if len(wholes) > 1:
        raise UserError(
            f"these are tiles of {len(wholes)} files ({wholes[0]}, {wholes[1]}, …): --output must be a directory for them "
            f"(with a / at its end it is made), not {output}"
        )
    return [output]


def join(options: Options) -> int:
    wanted = families(options.tiles)
    outputs = output_paths(list(wanted), options.output)
    server = installation.find().server
    joined: list[Joined] = []
    failed: list[Failed] = []
    worst = 0
    with View(shown=not options.as_json and sys.stderr.isatty()) as view:
        for output, tiles in zip(outputs, wanted.values(), strict=True):
            view.begin(os.path.basename(output), "opening tiles")
            ended = _one(server, options, tiles, output, view)
            if ended.result is not None:
                joined.append(cast(Joined, ended.result))
                continue
            error = "interrupted; it is not written" if ended.code == INTERRUPTED else ended.error
            worst = max(worst, ended.code)
            failed.append({"output": output, "error": error})
            say("error", error if len(outputs) == 1 else f"{output}: {error}")
            if ended.code == INTERRUPTED:
                break
    if options.as_json:
        print(json.dumps({"joined": joined, "failed": failed}, indent=2))
    else:
        _show(joined)
    return worst


def _one(server: str, options: Options, tiles: Sequence[str], output: str, view: View) -> Outcome:
    config = places.config_file(options.config)
    command = [server, "join", "--output", output]
    command += (["--config", config] if config else []) + (["--rule", options.rule] if options.rule else [])
    command += ["--force"] * options.force + ["--take-first"] * options.take_first
    return run_worker(command, tiles, view.update)


def _show(joined: Sequence[Joined]) -> None:
    from rich.console import Console

    out = Console(highlight=False, soft_wrap=True)
    for j in joined:
        frames = f", {counted(j['frames'], 'frame')}" if j["frames"] else ""
        out.print(
            f"{j['output']}: {counted(j['tiles'], 'tile')} of {j['model']}, {counted(j['variables'], 'variable')}{frames}; "
            f"{size_text(j['bytes'])} in {time_text(j['seconds'])} ({rate_text(j['bytes'] / max(j['seconds'], 1e-3))}), "
            f"{size_text(j['bytes_written'])} written",
            markup=False,
        )
        if j["land_points"]:
            out.print(f"  {j['land_points']} points are in no tile (land that NEMO leaves out): they hold the fill value")
        if j["disagreements"]:
            out.print(f"  tiles disagree, the first one's values are taken: {', '.join(j['disagreements'])}", markup=False)
