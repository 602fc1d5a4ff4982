"""Where output is staged, as the config says, held against what this node has. Light: `advectio run` looks before it starts
the model, `advectio check` before the job."""

import os
from collections.abc import Iterator
from typing import Any

from advectio import places
from advectio.quantities import config_size_text, size_text


class Trouble:
    def __init__(self, level: str, what: str, advice: str) -> None:
        self.level = level  # error: a run cannot begin; warning: it may meet it later
        self.what = what
        self.advice = advice

    @property
    def line(self) -> str:
        return f"{self.what}; {self.advice}"


def entry(config: dict[str, Any], key: str) -> dict[str, Any]:
    return next((e for e in config["values"] if e["key"] == key), {})


def named(config: dict[str, Any], key: str) -> str:
    """The key, behind FILE:LINE where it is set."""
    origin = entry(config, key).get("origin", "default")
    return key if origin == "default" else f"{origin}: {key}"


def is_missing(directory: str) -> str | None:
    """Why it is not a directory."""
    if os.path.isdir(directory):
        return None
    return "is not a directory" if os.path.lexists(directory) else "does not exist"


def directories(config: dict[str, Any], stage: str | None, spill: str | None) -> Iterator[Trouble]:
    """``None``: it is not used."""
    if stage is not None and (missing := is_missing(stage)):
        yield Trouble("error", f"{named(config, 'stage.directory')} {stage} {missing}", "make it, or name another directory")
    if spill is not None and (missing := is_missing(spill)):
        yield Trouble("error", f"{named(config, 'stage.spill')} {spill} {missing}", "make it, or name another directory")


def cap(config: dict[str, Any], stage: str, *, is_configured: bool = True) -> Iterator[Trouble]:
    """``stage``: the directory in which run directories are made; ``is_configured``: it is stage.directory. Elsewhere `auto`
    comes to something else, which the server finds out."""
    wanted = entry(config, "stage.bytes_max").get("number")
    if not wanted and is_configured:
        wanted = config["here"].get("stage_bytes_max")
    if not wanted:
        return
    try:
        space = os.statvfs(stage)
    except OSError:
        return  # whoever makes the run directory says so
    size, free = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
    memory = config["here"]["memory_bytes"]
    in_memory = places.in_memory(stage) is not None
    name = f"{named(config, 'stage.bytes_max')} is {config_size_text(wanted)}"
    if size == 0:
        return  # no file system for files, such as /proc
    if wanted > size:
        yield Trouble("error", f"{name}, but {stage} has only {size_text(size)}", _ADVICE)
    elif in_memory and wanted > memory:
        yield Trouble("error", f"{name}, but this node has only {size_text(memory)} of memory", _ADVICE)
    elif wanted > free:
        yield Trouble(
            "warning",
            f"{name}, but only {size_text(free)} are free in {stage}",
            "the stage is full when they are used up: make it smaller, or free space there",
        )


_ADVICE = "make it smaller, or set stage.directory to a larger disk"
