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

# How tiles are named, and the name of the whole: WRF, SCALE, NEMO, FMS, MITgcm, DALES (two ways).
_MITGCM = re.compile(r"(?P<base>.+)\.t\d{3,}\.nc")
_NAMES = (
    (re.compile(r"(?P<base>.+)_\d{4,5}"), r"\g<base>"),
    (re.compile(r"(?P<base>.+)\.pe\d{6,}\.nc"), r"\g<base>.nc"),
    (re.compile(r"(?P<base>.+)_\d{4,}\.nc"), r"\g<base>.nc"),
    (re.compile(r"(?P<base>.+\.nc)\.\d{4,}"), r"\g<base>"),
    (_MITGCM, r"\g<base>.nc"),
    (re.compile(r"(?P<base>.+)\.\d{3}\.\d{3}\.(?P<run>\d{3})\.nc"), r"\g<base>.\g<run>.nc"),
    (re.compile(r"(?P<base>.+)\.x\d{3}y\d{3}\.(?P<run>\d{3})\.nc"), r"\g<base>.\g<run>.nc"),
)
# Each process of MITgcm may have a directory of its own.
_DIRECTORY = re.compile(r"(?P<base>mnc.*_)\d{4}")


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
    for pattern, whole in _NAMES:
        match = pattern.fullmatch(os.path.basename(path))
        if match:
            return match.expand(whole)
    return None


def _home(path: str) -> str:
    """The directory that tiles of one file share, without the number that a process of MITgcm has in it."""
    directory = os.path.dirname(path)
    match = _DIRECTORY.fullmatch(os.path.basename(directory)) if _MITGCM.fullmatch(os.path.basename(path)) else None
    return os.path.join(os.path.dirname(directory), match["base"]) if match else directory


def _directories(home: str) -> list[str]:
    """The directories that have this home."""
    parent, base = os.path.split(home)
    if not re.fullmatch("mnc.*_", base):
        return [home]
    numbered = [
        os.path.join(parent, name)
        for name in os.listdir(parent or ".")
        if (match := _DIRECTORY.fullmatch(name)) and match["base"] == base
    ]
    return sorted(numbered) or [home]


def families(names: Sequence[str]) -> dict[str, list[str]]:
    """What belongs together, by the name of the whole. One tile alone stands for all of its family."""
    found: dict[tuple[str, str], list[str]] = {}
    unnamed: list[str] = []
    for path in _expanded(names):
        whole = whole_name(path)
        if whole is None:
            unnamed.append(path)
        else:
            found.setdefault((_home(path), whole), []).append(path)
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


def _siblings(home: str, whole: str) -> list[str]:
    return sorted(
        os.path.join(directory, name)
        for directory in _directories(home)
        for name in os.listdir(directory or ".")
        if whole_name(name) == whole
    )


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


def _by(model: str) -> str:
    return "placed by their coordinates" if model == "coordinates" else f"of {model}"


def _show(joined: Sequence[Joined]) -> None:
    from rich.console import Console

    out = Console(highlight=False, soft_wrap=True)
    for j in joined:
        frames = f", {counted(j['frames'], 'frame')}" if j["frames"] else ""
        out.print(
            f"{j['output']}: {counted(j['tiles'], 'tile')} {_by(j['model'])}, {counted(j['variables'], 'variable')}{frames}; "
            f"{size_text(j['bytes'])} in {time_text(j['seconds'])} ({rate_text(j['bytes'] / max(j['seconds'], 1e-3))}), "
            f"{size_text(j['bytes_written'])} written",
            markup=False,
        )
        if j["land_points"]:
            out.print(
                f"  {j['land_points']} points are in no tile (land that {j['model']} leaves out): they hold the fill value"
            )
        if j["disagreements"]:
            out.print(f"  tiles disagree, the first one's values are taken: {', '.join(j['disagreements'])}", markup=False)
