"""What a run comes to, as a table; and the bar while it drains."""

import os
import re
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NamedTuple

from advectio import tables
from advectio.protocol import DatasetStatus, Status, incomplete, is_incomplete, spread_of
from advectio.quantities import config_size_text, rate_text, size_text, time_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

# Rich is imported where a terminal is to be drawn on: a job's log needs none of it, and `advectio run` would end later.

ROWS_MAX = 12
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T_ ]?\d{2}(?:[:_.-]?\d{2}){0,2})?|\d{8}(?:[T_]\d{4,6})?")


def median(values: list[float]) -> float:
    """Of at least one. The module statistics takes longer to import than all of this to show."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def console() -> "Console":
    """On stderr. Where that is no terminal there is no width to keep to, and a table must not be cut at 80."""
    from rich.console import Console

    found = Console(stderr=True, highlight=False)
    if not sys.stderr.isatty():
        found = Console(stderr=True, highlight=False, width=max(140, found.width))
    return found


class Row:
    """One line of the table: a dataset, or several whose names differ only in a date or a number."""

    def __init__(self, name: str, members: list[DatasetStatus]) -> None:
        self.name = name
        self.members = members

    def total(self, key: str) -> float:
        return float(sum(m[key] for m in self.members))  # type: ignore[literal-required]

    @property
    def ratio(self) -> float | None:
        written = self.total("bytes_written")
        return self.total("bytes_put") / written if written else None

    def median(self, key: Literal["stall_s", "to_visible_s", "to_durable_s"]) -> float | None:
        """Of one dataset its own median over frames; of several the median of those."""
        values = [v for m in self.members if (v := spread_of(m, key)["median"]) is not None]
        return median(values) if values else None

    def largest(self, key: Literal["stall_s", "to_visible_s", "to_durable_s"]) -> float | None:
        values = [v for m in self.members if (v := spread_of(m, key)["max"]) is not None]
        return max(values) if values else None

    @property
    def is_by_library(self) -> bool:
        """Nothing of it came by us: it was opened again for writing before the first frame."""
        return all(m.get("bytes_by_library") and not m["frames_synced"] for m in self.members)

    @property
    def state(self) -> str:
        states = sorted({m["state"] for m in self.members})
        return ", ".join(states)


def _name_of(dataset: DatasetStatus) -> str:
    """The file's name. A further output is named from where the program's own file is: it may have the same name."""
    path, of = dataset["path"], dataset.get("output_of")
    if not of:
        return os.path.basename(path)
    return os.path.relpath(path, os.path.dirname(of)) if path.startswith(os.path.dirname(of) + "/") else path


def rows_of(datasets: list[DatasetStatus], everything: bool) -> tuple[list[Row], int]:
    """At most ROWS_MAX rows, and how many were left out: each dataset, else grouped by date, else by any number, else the
    last of those."""
    names = [_name_of(d) for d in datasets]
    if everything or len(datasets) <= ROWS_MAX:
        return [Row(name, [d]) for name, d in zip(names, datasets, strict=True)], 0
    groups: list[Row] = []
    for pattern in (_DATE, re.compile(r"\d+")):
        by_name: dict[str, Row] = {}
        names = [pattern.sub("*", name) for name in names]
        for name, dataset in zip(names, datasets, strict=True):
            by_name.setdefault(name, Row(name, [])).members.append(dataset)
        groups = list(by_name.values())
        if len(groups) <= ROWS_MAX:
            return groups, 0
    return groups[-ROWS_MAX:], len(groups) - ROWS_MAX


class Cells(NamedTuple):
    """What stands in the table. The first and the last column are text, the others numbers."""

    headings: list[str]
    rows: list[tuple[list[str], bool]]  # true: not complete
    left_out: str | None


def cells_of(status: Status, everything: bool) -> Cells:
    rows, left_out = rows_of(status["datasets"], everything)
    grouped = any(len(row.members) > 1 for row in rows)
    headings = ["dataset", *(["files"] if grouped else [])]
    headings += ["frames", "put", "ratio", "stall", "max", "to visible", "to durable", ""]
    found = Cells(headings, [], f"… and {left_out} more (--verbose or --json shows all)" if left_out else None)
    for row in rows:
        ratio = f"{row.ratio:.2f}" if row.ratio else "–"
        cells = [row.name] + ([str(len(row.members))] if grouped else [])
        cells += [
            f"{row.total('frames_synced'):.0f}",
            size_text(row.total("bytes_put")),
            ratio,
            time_text(row.median("stall_s")),
            time_text(row.largest("stall_s")),
            time_text(row.median("to_visible_s")),
            time_text(row.median("to_durable_s")),
            "written by the library" if row.is_by_library else "" if row.state == "finished" else row.state,
        ]
        if row.total("frames_dropped"):
            cells[-1] = ", ".join(filter(None, [cells[-1], f"{counted(int(row.total('frames_dropped')), 'frame')} left out"]))
        found.rows.append((cells, incomplete_row(row)))
    return found


def table_of(status: Status, everything: bool = False) -> "Table":
    cells = cells_of(status, everything)
    table = tables.of_datasets(cells.headings[1:-1], cells.headings[-1], cut=True)
    for row, failed in cells.rows:
        table.add_row(*row, style="red" if failed else None)
    if cells.left_out:
        table.add_row(cells.left_out, style="dim")
    return table


def lines_of(status: Status, everything: bool = False) -> list[str]:
    """The same table as lines of text."""
    cells = cells_of(status, everything)
    rows = [cells.headings, *(row for row, _ in cells.rows)]
    rows = [[name if len(name) <= tables.NAME_MAX else name[: tables.NAME_MAX - 1] + "…", *rest] for name, *rest in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *numbers, last in rows:
        numbers = [number.rjust(width) for number, width in zip(numbers, widths[1:-1], strict=True)]
        lines.append("  ".join([name.ljust(widths[0]), *numbers, last]).rstrip())
    return lines + ([cells.left_out] if cells.left_out else [])


def counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def incomplete_row(row: Row) -> bool:
    return any(is_incomplete(m) for m in row.members)


def footer_of(status: Status) -> str:
    stage, server = status["stage"], status["server"]
    rates = [d["drain_bytes_per_s"] for d in status["datasets"] if d["drain_bytes_per_s"]]
    drained = rate_text(median(rates)) if rates else "–"
    waits = counted(stage["waits"], "stage wait")
    if stage["waits"]:
        waits += f" ({time_text(stage['wait_s'])})"
    if stage["spilled_bytes"]:
        waits += f" · spilled {size_text(stage['spilled_bytes'])}"
    if server.get("drain_max"):
        drained += f" (at most {rate_text(server['drain_max'] or 0)}, held back {time_text(server.get('held_back_s', 0.0))})"
    parts = [
        f"backlog peak {size_text(stage['backlog_peak_bytes'])}, stage peak {size_text(stage['bytes_allocated_peak'])} "
        f"of {config_size_text(stage['bytes_max'])}",
        f"drain {drained}",
        waits,
        f"server memory peak {size_text(server['memory_peak_bytes'])}, {time_text(server['encode_cpu_s'])} CPU in codecs",
    ]
    if server.get("sprint_s", 0) > 1:
        parts.append(f"at the end {time_text(server['sprint_s'])} with {counted(server['sprint_threads'], 'thread')}")
    if helped := server.get("chunks_by_others"):
        parts.append(f"{counted(helped, 'chunk')} compressed by other nodes")
    if held := status.get("markers_held"):
        waiting = status.get("markers_waiting", [])
        parts.append(f"{counted(held, 'name')} held back" + (f", {len(waiting)} still" if waiting else ""))
    restarts = server.get("restarts", 0)
    if restarts:
        parts.append(f"{counted(restarts, 'server restart')} (files that were complete before are not in the table)")
    return " · ".join(parts)


def servers_of(status: Status) -> str | None:
    nodes = status.get("nodes", [])
    dedicated = status.get("io_nodes", 0)
    if not nodes:
        return None
    return f"{counted(len(nodes), 'server')}: {', '.join(n['name'] for n in nodes)}" + (
        f" (the last {dedicated} dedicated to output)" if dedicated else ""
    )


def made_lines(status: Status) -> list[str]:
    """Of outputs by operators."""
    if not status.get("processed"):
        return []
    from advectio import processed

    return processed.lines_of(status["processed"])


def _state_of(status: Status, failed: int) -> str:
    """Like "complete", or "3 complete, 1 removed": a file that its program has removed is not complete."""
    if failed:
        return f"{failed} not finished"
    if status.get("left"):
        return "not all of it written yet"
    without = [(sum(d["state"] == state for d in status["datasets"]), state) for state in ("dropped", "removed")]
    whole = len(status["datasets"]) - sum(number for number, _ in without)
    if whole == len(status["datasets"]):
        return "complete"
    return ", ".join(f"{number} {state}" for number, state in [(whole, "complete"), *without] if number)


def show(status: Status, everything: bool = False) -> None:
    """On stderr. ``status`` has a dataset."""
    failed = incomplete(status)
    line = f"advectio: {counted(len(status['datasets']), 'dataset')}, {_state_of(status, len(failed))}"
    if "run_s" in status and "drain_wait_s" in status:
        line += f"; command {time_text(status['run_s'])}, then {time_text(status['drain_wait_s'])} to the last byte"
    servers = servers_of(status)
    wrong = [f"{dataset['path']}: {dataset['error'] or dataset['state']}" for dataset in failed] + status["errors"]
    made = made_lines(status)
    if not sys.stderr.isatty():
        lines = [line, *lines_of(status, everything), footer_of(status), *([servers] if servers else []), *made, *wrong]
        print("\n".join(lines), file=sys.stderr, flush=True)
        return
    out = console()
    out.print(line, style="bold red" if failed else "bold")
    out.print(table_of(status, everything))
    out.print(footer_of(status), style="dim")
    if servers:
        out.print(servers, style="dim", soft_wrap=True)
    for text in made:
        out.print(text, markup=False, soft_wrap=True)
    for text in wrong:
        out.print(text, style="red", markup=False)


class DrainProgress:
    """The backlog shrinking, on a terminal. No thread of its own: drawn when ``update`` is called."""

    def __init__(self, shown: bool) -> None:
        self._shown = shown
        self._progress: Progress | None = None
        self._most = 0
        self._began = time.monotonic()

    def __enter__(self) -> "DrainProgress":
        if self._shown:
            # The terminal gets a table at the end, if no bar: imported while the server drains.
            import rich.console
            import rich.table  # noqa: F401
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()

    def update(self, status: Status) -> None:
        left = status["stage"]["backlog_bytes"]
        self._most = max(self._most, left)
        # Nothing to see in a drain that is over at once.
        if not self._shown or self._most == 0 or time.monotonic() - self._began < 0.5:
            return
        if self._progress is None:
            from rich.progress import BarColumn, Progress, TextColumn

            self._progress = Progress(
                TextColumn("advectio: writing what is left"),
                BarColumn(),
                TextColumn("{task.fields[left]}"),
                console=console(),
                auto_refresh=False,
                transient=True,
            )
            self._progress.start()
            self._progress.add_task("", total=None, left="")
        self._progress.update(
            self._progress.task_ids[0],
            total=self._most,
            completed=self._most - left,
            left=size_text(left),
            refresh=True,
        )
