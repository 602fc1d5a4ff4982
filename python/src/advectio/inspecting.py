"""``advectio inspect``: what a run directory holds, live or left behind. Read by advectiod, which only looks; shown here."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from advectio import installation, launching, nodes, places, tables
from advectio.errors import UserError
from advectio.quantities import size_text
from advectio.server import ended_how
from advectio.summary import counted
from advectio.worker import View

if TYPE_CHECKING:
    from rich.table import Table


class Damage(TypedDict):
    segment: str
    byte: int
    reason: str


class JournalSurvey(TypedDict):
    name: str
    host: str
    pid: int
    rank: int
    command: str
    started_s: float
    alive: bool | None  # None: of another host, where its lock may not be seen from here
    mirror: bool
    segments: int
    segment_bytes: int
    records_bytes: int
    records: dict[str, int]
    first_sequence: int | None
    last_sequence: int | None
    payloads_checked: int
    payloads_wrong: int
    damage: Damage | None


class DatasetSurvey(TypedDict):
    path: str
    link: str
    format: str
    state: str
    closed: bool
    file: str  # there, removed; away: no name of it, and not the directory that held it
    error: str | None
    frames_synced: int
    frames_visible: int
    frames_durable: int | None  # None: some of those that are visible
    frames_staged: int
    bytes_put: int
    bytes_staged: int
    bytes_unsynced: int
    frames_dropped: int
    writers: int
    tiles: int | None
    whole: str | None
    owner: int | None


class Survey(TypedDict):
    """Of the stage of one node."""

    run_dir: str
    served: bool
    power_lost: bool  # of an earlier boot, and its run was under way then
    server_pid: int
    nodes: int
    segment_bytes: int
    segments_max: int
    segments_free: int
    journals: list[JournalSurvey]
    datasets: list[DatasetSurvey]
    markers: NotRequired[list[str]]  # paths of those that are held back
    errors: list[str]
    damaged: bool
    node: NotRequired[str | int]  # its number, or in a run of several nodes its name
    error: NotRequired[str]  # in place of all the rest: this node cannot be looked at


class SurveyOfNodes(TypedDict):
    """What `inspect --json` prints of a run with several nodes."""

    nodes: list[Survey]


class Record(TypedDict):
    journal: str
    sequence: int
    type: str
    dataset: int
    collective_index: int
    flags: int
    bytes: int
    time_s: float
    crc_ok: bool


class RecordLine(TypedDict):
    """What `inspect --records --json` prints of each record, on a line of its own."""

    record: Record


POWER_LOST = "of an earlier boot: the power was lost during the run, and what was not forced to the disk may be lost"

Line = Callable[[dict[str, Any]], None]


def inspect(directory: str, records: bool, verify: bool, as_json: bool) -> int:
    options = ["--records"] * records + ["--verify"] * verify
    show_record = _print_json_line if as_json else _RecordPrinter()
    with _Bar(shown=(records or verify) and not records and sys.stderr.isatty()) as bar:

        def take(line: dict[str, Any]) -> None:
            if "record" in line:
                show_record(line["record"])
            elif "done" in line:
                bar.update(line["done"], line["of"])

        found = surveys(directory, options, take)
    if as_json:
        whole: Any = found[0] if nodes.of_run(directory) is None else {"nodes": found}
        print(json.dumps(whole, indent=None if records else 2))
    else:
        for survey in found:
            _show(survey)
    return 1 if any(s.get("damaged") or "error" in s for s in found) else 0


def surveys(directory: str, options: Sequence[str] = (), take: Line = lambda _: None) -> list[Survey]:
    """Of each node of the run; ``take`` gets what is told on the way."""
    if not os.path.isdir(directory):
        raise UserError(f"{directory} is not a directory")
    several = nodes.of_run(directory)
    server = installation.find().server
    if several is None:
        survey, error = _look([server, "inspect", directory, *options], None, take)
        if survey is None:
            if not places.is_run(directory):
                error = f"{directory} is not the run directory of a run (there is no control page){_runs_inside(directory)}"
            raise UserError(error)
        return [_judged(survey)]
    found: list[Survey] = []
    for number, name in enumerate(several[0].hosts):
        command, environment = _for_node(server, os.path.abspath(directory), several[0], number)
        survey, error = _look([*command, *options], environment, take)
        if survey is not None:
            found.append({**_judged(survey), "node": name})
        else:
            found.append({"node": name, "error": error})  # type: ignore[typeddict-item]
    return found


def _runs_inside(directory: str) -> str:
    """Who names a stage.directory means one of its runs."""
    for parent in (directory, places.user_directory(directory)):
        with contextlib.suppress(OSError):
            runs = [run for name in sorted(os.listdir(parent)) if places.is_run(run := os.path.join(parent, name))]
            if runs:
                return f"; runs that are there: {', '.join(runs[:3])}" + (", …" if len(runs) > 3 else "")
    return ""


def _for_node(server: str, directory: str, where: nodes.Nodes, number: int) -> tuple[list[str], dict[str, str] | None]:
    if where.simulated is not None:
        return [server, "inspect", os.path.join(directory, where.hosts[number])], None
    command = [server, "inspect", directory]
    if number == 0:
        return command, None
    job = launching.Job(launching.launcher(), nodes.Nodes((where.hosts[number],)))
    return [*job.prefix(os.environ), *command], job.environment(os.environ, directory)


def _look(command: Sequence[str], environment: dict[str, str] | None, take: Line) -> tuple[Survey | None, str]:
    """What came of it, or why nothing did."""
    worker = subprocess.Popen(
        [*command, "--progress"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert worker.stdout and worker.stderr
    result: Survey | None = None
    try:
        for line in _objects(worker.stdout):
            result = line.get("result", result)
            if "result" not in line:
                take(line)
        said = worker.stderr.read().strip().splitlines()
        code = worker.wait()
    except BaseException:
        worker.kill()
        worker.wait()
        raise
    if result is not None:
        return result, ""
    return None, said[0].removeprefix("advectiod: error: ") if said else f"{command[0]}: {ended_how(code)}"


def _objects(lines: Iterator[str] | Any) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            found = json.loads(line)
        except ValueError:
            continue  # what a launcher has to say
        if isinstance(found, dict):
            yield found


def _judged(survey: Survey) -> Survey:
    for journal in survey["journals"]:
        if not journal["alive"] and journal["host"] and not nodes.is_here(journal["host"]):
            journal["alive"] = None
    return survey


def _print_json_line(record: dict[str, Any]) -> None:
    print(json.dumps({"record": record}))


class _RecordPrinter:
    """A line for each, as they come: there may be millions."""

    def __init__(self) -> None:
        self._journal: str | None = None

    def __call__(self, r: dict[str, Any]) -> None:
        if r["journal"] != self._journal:
            self._journal = r["journal"]
            print(f"{r['journal']}\n{'sequence':>10} {'type':<7} {'dataset':>7} {'index':>6} {'bytes':>12}  time (UTC)")
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(r["time_s"])) + f".{int(r['time_s'] % 1 * 1000):03d}"
        wrong = "" if r["crc_ok"] else "  CRC WRONG"
        print(f"{r['sequence']:>10} {r['type']:<7} {r['dataset']:>7} {r['collective_index']:>6} {r['bytes']:>12}  {at}{wrong}")


class _Bar(View):
    """Only where it takes long."""

    _AFTER_S = 0.5

    def __init__(self, shown: bool) -> None:
        super().__init__(shown)
        self._began = time.monotonic()
        self._begun = False

    def __enter__(self) -> "_Bar":
        return self

    def update(self, done: int, of: int) -> None:
        if not self._begun:
            if time.monotonic() - self._began < self._AFTER_S:
                return
            self._begun = True
            View.__enter__(self)
            self.begin("reading the stage")
        super().update(done, of)

    def __exit__(self, *_: object) -> None:
        if self._begun:
            View.__exit__(self)


def _show(survey: Survey) -> None:
    from rich.console import Console

    out = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    if "error" in survey:
        out.print(*problems(survey), style="red", markup=False, soft_wrap=True)
        return
    served = f"served by {survey['server_pid']}" if survey["served"] else "no server"
    used = sum(j["segments"] for j in survey["journals"])
    node = f"{survey['node']}: " if isinstance(survey.get("node"), str) else ""
    out.print(f"{node}{survey['run_dir']}", style="bold", markup=False, soft_wrap=True)
    out.print(
        f"{served} · {counted(used, 'segment')} of {size_text(survey['segment_bytes'])} in use, {survey['segments_free']} free, "
        f"at most {survey['segments_max']}",
        markup=False,
    )
    if survey.get("power_lost"):
        out.print(POWER_LOST, style="yellow", soft_wrap=True)
    for j in survey["journals"]:
        for line in _journal_lines(j):
            out.print(line, style="red" if j["damage"] or j["payloads_wrong"] else None, markup=False, soft_wrap=True)
    if survey["datasets"]:
        out.print(_dataset_table(survey["datasets"]))
    for path in survey.get("markers", []):
        out.print(f"{path} is held back until what was closed before it is complete", markup=False, soft_wrap=True)
    if not survey["journals"] and not survey["datasets"]:
        out.print("nothing is staged")
    for text in problems(survey):
        out.print(text, style="red", markup=False, soft_wrap=True)


def problems(survey: Survey) -> Iterator[str]:
    if "error" in survey:
        yield f"{survey.get('node')}: {survey['error']}"
        return
    yield from survey["errors"]
    for j in survey["journals"]:
        if j["damage"]:
            yield f"{j['name']}: damaged behind record {j['last_sequence'] or 0}: {j['damage']['reason']}"
        if j["payloads_wrong"]:
            yield f"{j['name']}: {j['payloads_wrong']} of {counted(j['payloads_checked'], 'payload')} are not what was written (CRC)"


def _alive(journal: JournalSurvey) -> str:
    if journal["alive"] is None:
        return "not known from here"
    return "alive" if journal["alive"] else "ended"


def _journal_lines(j: JournalSurvey) -> Iterator[str]:
    rank = "" if j["rank"] < 0 else f", rank {j['rank']}"
    state = "a mirror of another node's" if j["mirror"] else _alive(j)
    yield f"{j['name']}: {os.path.basename(j['command'].split(' ')[0])} ({j['pid']}) on {j['host']}{rank}, {state}"
    kinds = ", ".join(f"{number} {kind}" for kind, number in j["records"].items())
    records = f"records {j['first_sequence']}–{j['last_sequence']}: {kinds}" if j["last_sequence"] else "no record"
    yield f"  {counted(j['segments'], 'segment')}, {size_text(j['records_bytes'])}, {records}"


def _dataset_table(datasets: Sequence[DatasetSurvey]) -> "Table":
    table = tables.of_datasets(("synced", "visible", "durable", "staged", "unsynced"), "", whole_names=True)
    for d in datasets:
        by = f"{d['tiles']} tiles, " if d["tiles"] else f"{d['writers']} writers, " if d["writers"] > 1 else ""
        owner = "" if d["owner"] is None else f", written by node {d['owner']}"
        closed = ", closed" if d["closed"] else ""
        table.add_row(
            os.path.basename(d["path"]),
            str(d["frames_synced"]),
            str(d["frames_visible"]),
            f"< {d['frames_visible']}" if d["frames_durable"] is None else str(d["frames_durable"]),
            size_text(d["bytes_staged"]),
            size_text(d["bytes_unsynced"]),
            f"{d['format']}, {by}{d['state']}{closed}{owner}" + (f": {d['error']}" if d["error"] else ""),
            style="red" if d["error"] else None,
        )
    return table
