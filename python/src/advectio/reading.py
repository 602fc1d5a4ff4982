"""The config, parsed by advectiod, so that there is one parser. Light: used on the way to the start of a model."""

import os
import subprocess
from collections.abc import Sequence
from typing import Any, NamedTuple

from advectio import installation, places
from advectio.errors import UserError


class Settings(NamedTuple):
    """What the command line needs of the config."""

    stage_directory: str
    stage_origin: str | None  # FILE:LINE; None: the default
    spill_directory: str | None
    restarts_max: int
    drain_later: bool
    raw: dict[str, Any]


class Reading:
    """``advectiod config`` under way. A bad config ends in ``result``, with advectiod's own line."""

    def __init__(self, server: str, config: str | None, like: Sequence[str] = ()) -> None:
        self._server = server
        command = [server, "config", "--json"] + (["--config", config] if config else [])
        command += [word for file in like for word in ("--like", file)]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        except OSError as error:
            raise UserError(f"cannot start {server}: {error.strerror}") from error

    def result(self) -> dict[str, Any]:
        import json

        told, complaint = self._process.communicate()
        code = self._process.returncode
        if code != 0:
            lines = [line.removeprefix("advectiod: ").removeprefix("error: ") for line in complaint.splitlines() if line]
            raise UserError(lines[0] if lines else f"{self._server} config ended with code {code}")
        parsed: dict[str, Any] = json.loads(told)
        return parsed


def read_config(server: str, config: str | None, like: Sequence[str] = ()) -> dict[str, Any]:
    """``like``: files of an earlier run, against which names and patterns of the config are held."""
    return Reading(server, config, like).result()


def begin_early(config: str | None) -> Reading | None:
    """Where something is in the way, whoever needs the config finds it again, and says it in its turn."""
    try:
        return Reading(installation.find().server, places.config_file(config))
    except (UserError, FileNotFoundError):  # the latter: the current directory has been removed
        return None


def settings(raw: dict[str, Any], directory: str) -> Settings:
    import json

    values = {entry["key"]: entry["value"] for entry in raw["values"]}

    def path(key: str) -> str | None:
        value: str = values.get(key, "null")
        if value.startswith('"'):  # values are written as YAML, and a YAML double-quoted text is nearly JSON
            value = json.loads(value)
        elif value == "null":
            return None
        return os.path.join(directory, value)

    return Settings(
        path("stage.directory") or "",
        next((e["origin"] for e in raw["values"] if e["key"] == "stage.directory" and e["origin"] != "default"), None),
        path("stage.spill"),
        int(values["server.restarts_max"]),
        values.get("stage.drain") == "later",
        raw,
    )
