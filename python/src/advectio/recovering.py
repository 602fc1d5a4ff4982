"""``advectio recover``: a run directory that was left behind, with one server or with several."""

import json
import os
import subprocess
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from advectio import inspecting, installation, launching, nodes, on_events, places, processed, sets, tables, workflow
from advectio.errors import AlreadySaid, UserError, say
from advectio.inspecting import DatasetSurvey, Survey
from advectio.protocol import DatasetStatus, Made, SetReport, Status
from advectio.quantities import size_text
from advectio.summary import console, counted

if TYPE_CHECKING:
    from rich.table import Table

EXIT_GONE = 4
UNFINISHED = ("open", "closed", "failed")  # states of what stays staged
NO_FILE = ("dropped", "removed")


@dataclass
class Reached:
    """How far a dataset has got. ``frames_durable`` None: not all that are visible, it is not known how many."""

    frames_synced: int
    frames_visible: int
    frames_durable: int | None


class Writer(TypedDict):
    pid: int
    host: str
    rank: int
    command: str


@dataclass
class Recovered:
    path: str
    before: Reached | None  # None: it has been made of others (tiles)
    bytes_staged: int
    after: Reached | None  # None: nothing has been done (yet), or it is in the file of which it is a tile
    state: str
    error: str | None
    dropped: str | None  # what of it is in no file, and why


class ReachedReport(TypedDict):
    frames_synced: int
    frames_visible: int
    frames_durable: int | None


class RecoveredReport(TypedDict):
    path: str
    before: ReachedReport | None
    bytes_staged: int
    after: ReachedReport | None
    state: str
    error: str | None
    dropped: str | None


class DryRecovery(TypedDict):
    """What `recover --dry-run --json` prints."""

    run_dir: str
    dry_run: bool
    recovered: list[RecoveredReport]
    damage: list[str]
    power_lost: bool
    alive: list[Writer]
    sets: NotRequired[list[SetReport]]  # where the config has sets
    processed: NotRequired[list[Made]]  # where the files were complete, and operators had outputs to make


class Recovery(Status):
    """What `recover --json` prints, and `drain --json` of each run."""

    recovered: list[RecoveredReport]
    damage: list[str]
    power_lost: bool
    alive: list[Writer]


def recover(directory: str, dry_run: bool, as_json: bool) -> int:
    if gone(directory):
        return EXIT_GONE
    places.must_be_ours(directory)
    events_left = only_events(directory, dry_run, as_json)
    if events_left and as_json:
        print(json.dumps(events_left, indent=2))
    if events_left:
        return 0
    left = processed.left_in(directory)
    if left and not places.is_run(directory):
        code, only = only_outputs(directory, left, dry_run)
        if as_json:
            print(json.dumps(only, indent=2))
        elif dry_run:
            named = ", ".join(output["path"] for output in processed.wanted({"datasets": left["datasets"]}))
            say("", f"its files are complete; operators have still to make of them: {named}")
        else:
            tell_of_outputs(only["processed"])
        return code
    before = inspecting.surveys(directory)
    code, result = (1 if _problems(before) or any(_in_no_file(d) for d in _datasets(before)) else 0), None
    made: list[Made] | None = None
    if not dry_run:
        if writers := [_who(journal) for journal in alive(before)]:
            say("", f"waiting for processes that still write: {', '.join(writers)}")
        commands = on_events.of_left_run(directory)
        try:
            code, result = finish(command_for(directory))
        except UserError:
            if commands:
                commands.end(lambda: False)
            raise
        if commands:
            end_commands(commands, result)
        code = code or code_of(before, result)
        made = processed.complete(left, directory, result) if left else None
        settle(directory, code)
    told = present(directory, before, result, as_json)
    if left and made is not None:
        told["processed"] = made
        if not as_json:
            tell_of_outputs(made)
        code = code or code_of_outputs(made, left)
    if as_json:
        print(json.dumps(told, indent=2))
    return code


def end_commands(commands: on_events.Commands, result: Status | None) -> None:
    """``result`` None: it was interrupted."""
    done = commands.end(lambda: result is not None)
    if result and commands.has_commands:
        result["on"] = done
    reports = commands.end_sets(over=bool(result and result.get("clean")), well=False)
    if result and reports:
        result["sets"] = reports


def code_of(before: Sequence[Survey], result: Status) -> int:
    """Frames that were synced are in no file."""
    return 1 if any(_lost(r) for r in report(before, result)) else 0


def only_events(directory: str, dry_run: bool, as_json: bool) -> DryRecovery | None:
    """Of a run whose files are complete, while nobody has noted in its sets that they are. None: there is something else to do."""
    if not places.has_left_events(directory):
        return None
    told = nothing_recovered(directory, dry_run)
    commands = None if dry_run else on_events.of_left_run(directory)
    if commands:
        commands.end()
        told["sets"] = commands.end_sets(over=True, well=False)
    else:
        told["sets"] = on_events.sets_of_left_run(directory)
    if not dry_run:
        places.remove_events(directory)
    if not as_json:
        say_sets(told["sets"])
    if processed.left_in(directory):
        return None
    if not dry_run:
        places.remove(directory)
    return told


def say_sets(reports: Sequence[SetReport], staged: Collection[str] = ()) -> None:
    for line in (line for report in reports for line in sets.lines_of(report, staged)):
        say("", line)


def nothing_recovered(directory: str, dry_run: bool) -> DryRecovery:
    return {
        "run_dir": directory,
        "dry_run": dry_run,
        "recovered": [],
        "damage": [],
        "power_lost": False,
        "alive": [],
    }


def only_outputs(directory: str, left: processed.Left, dry_run: bool) -> tuple[int, DryRecovery]:
    """Of a run whose files are complete, and of which operators have still to make something."""
    made = left["made"] if dry_run else processed.complete(left, directory, None)
    if not dry_run:
        places.remove(directory)
    told = nothing_recovered(directory, dry_run)
    told["processed"] = made
    return 0 if dry_run else code_of_outputs(made, left), told


def tell_of_outputs(made: Sequence[Made]) -> None:
    for line in processed.lines_of(made):
        say("", line)


def code_of_outputs(made: Sequence[Made], left: processed.Left) -> int:
    """Why some are not there is told."""
    processed.say_failed(made, os.path.join(left["directory"], left["called"]))
    return 1 if processed.failed(made) else 0


def present(directory: str, before: Sequence[Survey], result: Status | None, as_json: bool) -> dict[str, Any]:
    """For people on stderr; and all of it."""
    found, problems = report(before, result), _problems(before)
    lost = any(survey.get("power_lost") for survey in before)
    if not as_json:
        if lost:
            console().print(inspecting.POWER_LOST, style="yellow", soft_wrap=True)
        _show(directory, found, result, problems, before)
    told: dict[str, Any] = dict(result) if result else {"run_dir": directory, "dry_run": True}
    reports = result.get("sets", []) if result else on_events.sets_of_left_run(directory)
    if reports:
        told["sets"] = reports
    if not as_json:
        staged = {d["path"] for d in _datasets(before) if d["closed"]}
        say_sets(reports, staged if result is None else ())
    return told | {"recovered": [asdict(r) for r in found], "damage": problems, "power_lost": lost, "alive": alive(before)}


def alive(surveys: Sequence[Survey]) -> list[Writer]:
    """Processes that still write."""
    return [
        {"pid": j["pid"], "host": j["host"], "rank": j["rank"], "command": j["command"]}
        for survey in surveys
        for j in survey.get("journals", [])
        if j["alive"] and not j["mirror"]
    ]


def _who(writer: Writer) -> str:
    return f"{os.path.basename(writer['command'].split(' ')[0])} ({writer['pid']}) on {writer['host']}"


def gone(directory: str) -> bool:
    """Said, where it is so: what is complete leaves nothing behind, and to ask once more is no mistake."""
    if os.path.lexists(directory):
        return False
    say("", f"{directory} is not there: nothing is left to be written (a run that is complete leaves no directory behind)")
    return True


@dataclass
class Command:
    words: list[str]
    environment: dict[str, str] | None


def command_for(directory: str) -> Command:
    """Several servers write what is left as they would have: where they were."""
    several = nodes.of_run(directory)
    installed = installation.find()
    if several is None:
        config = os.path.join(directory, places.CONFIG_FILE)
        return Command([installed.server, "recover", directory, *_config(config), "--json"], None)
    if installed.mpi_server is None:
        raise UserError(installation.NO_MPI_SERVER)
    where, kept = several
    job = launching.Job(launching.launcher(), where)
    words = [installed.mpi_server, "recover", os.path.abspath(directory), *_config(kept), "--json"]
    words += ["--io-nodes", str(where.io_nodes)]
    return Command([*job.prefix(os.environ), *words], job.environment(os.environ, directory))


def _config(kept: str | None) -> list[str]:
    return ["--config", kept] if kept and os.path.isfile(kept) else []


def finish(command: Command) -> tuple[int, Status]:
    words, environment = command.words, command.environment
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    return done.returncode, answer(command, done.returncode, done.stdout)


def answer(command: Command, code: int, said: str) -> Status:
    try:
        result: Status = json.loads(said)
        return result
    except ValueError:
        if code == 0:
            say("error", f"the answer of {command.words[0]} is not understood")
        elif command.environment is not None:
            say("error", f"the servers could not be started: {' '.join(command.words)} (exit code {code})")
        raise AlreadySaid(code if code > 0 else 1) from None


def settle(directory: str, code: int) -> None:
    """What servers do not take away themselves."""
    if not places.is_run(directory):
        places.remove_events(directory)
    several = nodes.of_run(directory)
    if several and several[1] and code == 0 and os.path.isfile(several[1]):
        os.unlink(several[1])
    places.remove(directory)


def report(before: Sequence[Survey], result: Status | None) -> list[Recovered]:
    """Each dataset as it was found and as it is now. ``result`` None: as it would be."""
    after: defaultdict[str, list[DatasetStatus]] = defaultdict(list)
    for status in result["datasets"] if result else []:
        after[status["path"]].append(status)
    found = []
    for number, survey in enumerate(before):
        for d in survey.get("datasets", []):
            if d["owner"] is None or d["owner"] == number:  # elsewhere it only passes through
                matching = after[d["path"]]
                # A living program may still sync what it has put.
                ended = result is not None or not alive([survey])
                found.append(_recovered(d, matching.pop(0) if matching else None, result is None, ended))
    for rest in after.values():
        for status in rest:
            found.append(Recovered(status["path"], None, 0, _after(None, status), status["state"], status["error"], None))
    return found


def _datasets(surveys: Sequence[Survey]) -> Iterator[DatasetSurvey]:
    for survey in surveys:
        yield from survey.get("datasets", [])


def _in_no_file(d: DatasetSurvey) -> bool:
    """Frames of it would be lost, or stay staged, if it were finished now."""
    return d["file"] != "there" and d["frames_synced"] > 0 and not workflow.in_memory(d["path"])


def _lost(r: Recovered) -> bool:
    synced = r.before is not None and r.before.frames_synced > 0
    return r.state in NO_FILE and synced and not workflow.in_memory(r.path)


def _recovered(d: DatasetSurvey, status: DatasetStatus | None, dry: bool, ended: bool) -> Recovered:
    reached = Reached(d["frames_synced"], d["frames_visible"], d["frames_durable"])
    after = None if status is None else _after(reached, status)
    if status is not None:
        state = status["state"]
    else:
        state = d["state"] if dry else f"in {os.path.basename(d['whole'] or '')}" if d["whole"] else "finished before"
        if d["whole"] and not dry:
            state = "in the file of which it is a tile"
    error = d["error"] if status is None else status["error"]
    return Recovered(d["path"], reached, d["bytes_staged"], after, state, error, _dropped(d, after, state) if ended else None)


def _after(before: Reached | None, status: DatasetStatus) -> Reached:
    durable: int | None = status["frames_durable"]
    if before and before.frames_durable is not None:
        durable = max(durable or 0, before.frames_durable)
    elif before and not durable:
        durable = None
    return Reached(status["frames_synced"], status["frames_visible"], durable)


def _dropped(d: DatasetSurvey, after: Reached | None, state: str) -> str | None:
    if state == "failed" or (after is None and d["file"] == "away"):
        return None  # all of it stays staged
    if state == "removed" or (after is None and d["file"] == "removed"):
        return f"its file has been removed: {counted(d['frames_synced'], 'synced frame')} of it are in no file"
    if not d["closed"] and d["frames_synced"] == 0 and d["frames_visible"] == 0 and not d["tiles"]:
        return f"nothing of it was ever synced ({size_text(d['bytes_unsynced'])} put); its empty file goes"
    parts = []
    if d["frames_dropped"]:
        parts.append(
            f"{counted(d['frames_dropped'], 'frame')} that the program left out, as the stage was full (full: drop-frame)"
        )
    missing = d["frames_visible"] + d["frames_staged"] - after.frames_visible if after and d["writers"] > 1 else 0
    if missing > 0:
        parts.append(f"{counted(missing, 'frame')} that not all of its {d['writers']} writers had synced")
    if d["bytes_unsynced"]:
        parts.append(f"{size_text(d['bytes_unsynced'])} put after the last sync, before the program ended")
    return " and ".join(parts) or None


def _problems(surveys: Sequence[Survey]) -> list[str]:
    return [text for survey in surveys for text in inspecting.problems(survey)]


def _show(
    directory: str, found: Sequence[Recovered], result: Status | None, problems: Sequence[str], before: Sequence[Survey]
) -> None:
    out = console()
    if found:
        out.print(_table(found, result is None))
    for r in found:
        if r.dropped:
            out.print(f"{r.path}: dropped: {r.dropped}", style="yellow", markup=False, soft_wrap=True)
        if r.error:
            out.print(f"{r.path}: {r.error}", style="red", markup=False, soft_wrap=True)
    for text in [*problems, *(result["errors"] if result else [])]:
        out.print(text, style="red", markup=False, soft_wrap=True)
    if result is None:
        for d in _datasets(before):
            if d["file"] == "away":
                out.print(_away(d), style="red", markup=False, soft_wrap=True)
        for path in (path for survey in before for path in survey.get("markers", [])):
            out.print(f"{path} is held back; it appears when the files before it are complete", markup=False, soft_wrap=True)
        for line in _under_way(before):
            out.print(line, style="yellow", markup=False, soft_wrap=True)
    out.print(_last_line(directory, found, result), markup=False, soft_wrap=True)


def _away(d: DatasetSurvey) -> str:
    return (
        f"{d['path']}: neither the file nor the directory that held it is there: is its file system mounted? "
        "`advectio recover` would keep what is staged"
    )


def _under_way(before: Sequence[Survey]) -> Iterator[str]:
    """What of the run still lives."""
    served = [str(survey["server_pid"]) for survey in before if survey.get("served")]
    if served:
        yield f"the run is under way: process {', '.join(served)} serves it, and `advectio recover` would refuse it"
    for writer in alive(before):
        yield f"{_who(writer)} is still alive" + ("" if served else "; `advectio recover` would wait until it has ended")


def _last_line(directory: str, found: Sequence[Recovered], result: Status | None) -> str:
    if result is None:
        return f"advectio: nothing has been changed; `advectio recover {directory}` does it"
    if os.path.isdir(directory):
        left = sum(r.state in UNFINISHED for r in found)
        what = f"{counted(left, 'dataset')} could not be finished" if left else "not all of it could be finished"
        return f"advectio: {what}; what is staged stays in {directory}"
    if not found:
        return f"advectio: nothing was left in {directory}; it is removed"
    return f"advectio: {_ended(found)}; {directory} is removed"


def _ended(found: Sequence[Recovered]) -> str:
    """Like "3 datasets complete, 1 dropped"."""
    without = [(sum(r.state == state for r in found), state) for state in NO_FILE]
    whole = len(found) - sum(number for number, _ in without)
    parts = [f"{counted(whole, 'dataset')} complete"] if whole else []
    parts += [f"{number if parts else counted(number, 'dataset')} {state}" for number, state in without if number]
    return ", ".join(parts)


def _table(found: Sequence[Recovered], dry: bool) -> "Table":
    table = tables.of_datasets(("synced", "visible", "durable", "staged"), "state")
    for r in found:
        table.add_row(
            os.path.basename(r.path),
            _both(r, "frames_synced", dry),
            _both(r, "frames_visible", dry),
            _both(r, "frames_durable", dry),
            size_text(r.bytes_staged),
            r.state,
            style="red" if r.error or r.state == "failed" else None,
        )
    return table


def _both(r: Recovered, key: str, dry: bool) -> str:
    def text(reached: Reached | None) -> str:
        value = getattr(reached, key) if reached else None
        return "?" if value is None else str(value)

    if dry or r.after is None:
        return text(r.before)
    before, after = text(r.before), text(r.after)
    return after if before == after or r.before is None else f"{before} → {after}"
