"""``advectio status``: the runs of this user on this node, once or live."""

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import TypedDict

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from advectio import places, processed, tables
from advectio.errors import UserError
from advectio.protocol import NoServer, Status, spread_of, status_of
from advectio.quantities import config_size_text, rate_text, size_text, time_text
from advectio.summary import counted

DATASETS_MAX = 20


class Unserved(TypedDict):
    """What `status --json` prints of a run directory without a server."""

    run_dir: str
    server: None


def show(run_directory: str | None, watch: bool, as_json: bool) -> int:
    if as_json:
        directories = _directories(run_directory)
        found = [_try_status(d) or {"run_dir": d, "server": None} for d in directories]
        print(json.dumps(found[0] if run_directory else found, indent=2))
        return 0
    out = Console(highlight=False)
    if not sys.stdout.isatty():
        out = Console(highlight=False, width=max(140, out.width))
    view = View()
    if not watch:
        out.print(view.draw(_directories(run_directory)))
        return 0
    from rich.live import Live

    with Live(console=out, auto_refresh=False, transient=False) as live:
        try:
            while True:
                directories = [run_directory] if run_directory else places.runs()
                live.update(view.draw(directories), refresh=True)
                if run_directory and not os.path.isdir(run_directory):
                    return 0  # over, and all is written
                time.sleep(0.5)
        except KeyboardInterrupt:
            return 0


def _directories(run_directory: str | None) -> Sequence[str]:
    if run_directory is None:
        return places.runs()
    if not os.path.isdir(run_directory):
        raise UserError(f"{run_directory} is not a run directory (a run that is complete leaves none behind)", 1)
    if not places.is_run(run_directory) and _try_status(run_directory) is None:
        raise UserError(f"{run_directory} is not the run directory of a run (there is no control page)", 1)
    return [os.path.abspath(run_directory)]


def _try_status(directory: str) -> Status | None:
    try:
        status = status_of(directory)
    except NoServer:
        return None
    if left := processed.left_in(directory):
        status["processed"] = left["made"]
    return status


class View:
    """Remembers the last state of each run, for the rates between two looks."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, int, int]] = {}

    def draw(self, directories: Sequence[str]) -> Group:
        parts: list[Text | Table] = []
        for directory in directories:
            status = _try_status(directory)
            if parts:
                parts.append(Text())
            if status is None:
                parts.append(Text(directory, style="bold"))
                parts.append(Text(f"no server; `advectio recover {directory}` finishes what is staged there", style="yellow"))
                continue
            parts.append(self._headline(directory, status))
            if status["datasets"]:
                parts.append(self._table(status))
            parts.extend(Text(line) for line in processed.lines_of(status.get("processed", [])))
            parts.extend(Text(text, style="red") for text in status["errors"])
        if not parts:
            parts.append(Text("no run of yours on this node"))
        return Group(*parts)

    def _headline(self, directory: str, status: Status) -> Text:
        stage = status["stage"]
        put = sum(d["bytes_put"] for d in status["datasets"])
        written = sum(d["bytes_written"] for d in status["datasets"])
        alive = sum(w["alive"] for w in status["writers"])
        now = time.monotonic()
        line = Text(directory, style="bold")
        line.append(
            f"\nserver {status['pid']}, up {time_text(status['uptime_s'])}, {size_text(status['server']['memory_bytes'])} memory · "
            f"{counted(alive, 'writer')} · backlog {size_text(stage['backlog_bytes'])} (peak {size_text(stage['backlog_peak_bytes'])}) "
            f"of {config_size_text(stage['bytes_max'])} · stage: {size_text(stage['bytes_held'])} held, {size_text(stage['bytes_warm'])} "
            f"warm (peak {size_text(stage['bytes_allocated_peak'])})",
            style="not bold",
        )
        if stage["spill_bytes"]:
            line.append(f" · {size_text(stage['spill_bytes'])} spilled to disk", style="not bold yellow")
        limit = status["server"].get("drain_max")
        if limit:
            held = time_text(status["server"].get("held_back_s", 0.0))
            line.append(f" · writes at most {rate_text(limit)}, held back {held}", style="not bold")
        if stage["waits"]:
            line.append(f" · {stage['waits']} stage waits, {time_text(stage['wait_s'])}", style="not bold yellow")
        for node in status.get("nodes", []):
            line.append(
                f"\n  {node['name']}: server {node['pid']}, backlog {size_text(node['backlog_bytes'])} of {config_size_text(node['bytes_max'])}",
                style="not bold",
            )
        last = self._last.get(directory)
        if last and now > last[0]:
            seconds = now - last[0]
            line.append(
                f"\nin {rate_text((put - last[1]) / seconds)} · out {rate_text((written - last[2]) / seconds)}",
                style="not bold",
            )
        self._last[directory] = (now, put, written)
        return line

    @staticmethod
    def _table(status: Status) -> Table:
        table = tables.of_datasets(("synced", "visible", "durable", "put", "written", "to visible"), "state")
        datasets = status["datasets"]
        if len(datasets) > DATASETS_MAX:
            table.add_row(f"… {len(datasets) - DATASETS_MAX} earlier ones", style="dim")
        for d in datasets[-DATASETS_MAX:]:
            table.add_row(
                os.path.basename(d["path"]),
                str(d["frames_synced"]),
                str(d["frames_visible"]),
                str(d["frames_durable"]),
                size_text(d["bytes_put"]),
                size_text(d["bytes_written"]),
                time_text(spread_of(d, "to_visible_s")["median"]),
                d["error"] or d["state"] + (f", {d['frames_dropped']} frames left out" if d["frames_dropped"] else ""),
                style="red" if d["error"] else None,
            )
        return table
