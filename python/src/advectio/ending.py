"""How a run ends, whoever has kept its server: ``advectio run``, or the keeper of ``advectio exec``. Light."""

import contextlib
import json
import os
import stat
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from advectio import places
from advectio.errors import say
from advectio.protocol import CommandsRun, DatasetStatus, Made, SetReport, Status, incomplete
from advectio.quantities import size_text
from advectio.server import Server

if TYPE_CHECKING:
    from advectio import transferring

EXIT_INCOMPLETE = 3
LEFT = 3  # advectiod's exit code when it has left what is not written, safe in the stage
SINCE_RESTART = "since the server was restarted; a new server does not list files that were complete before"
_NOT_THE_SERVERS = ("keeper", places.PROCESSED_FILE)
_OURS = ("keeper", places.CONFIG_FILE, places.SERVERS_FILE, places.PROCESSED_FILE, "advectiod.log")


class Run(NamedTuple):
    """What is known of a run whose command has ended. ``None``: not known."""

    command: Sequence[str]
    exit_code: int | None
    called: bool | None  # has a program called netCDF with our library before it?
    inner: str | None  # the run directory of a run that was started inside it
    config: dict[str, Any]  # as advectiod has read it


class Over(NamedTuple):
    """What `advectio run` knows when command and drain are over."""

    run: Run
    run_s: float
    drain_s: float
    interrupted: bool
    given_up: bool  # the server, before the command ended
    out: "transferring.Outcome | None"
    made: "list[Made] | None" = None  # outputs by operators; None: there are none, or recover is to make them
    commands: "CommandsRun | None" = None  # for events; None: there are none
    sets: "list[SetReport] | None" = None


class Ending(NamedTuple):
    """What has become of the server after its drain."""

    failed: list[DatasetStatus]
    server_code: int | None  # None: it had to be stopped

    @property
    def complete(self) -> bool:
        return not self.failed and self.server_code == 0


def of_server(server: Server, final: Status) -> Ending:
    """Let it end by itself, which it has said that it does."""
    code = server.wait(None if final.get("left") else 30.0)
    if code is None:
        say("warning", "the server has finished but does not end; stopping it")
        server.stop()
    if code is not None and code < 0 and final.get("clean"):
        # Killed when there was nothing left to do but to remove its directory.
        take_stage_away(server.run_directory)
        code = 0
    final["server"]["restarts"] = server.restarts
    return Ending(incomplete(final), code)


def explain(final: Status, run: Run) -> None:
    """Into the summary: what the config says of no dataset, and why there is none at all."""
    if run.config.get("datasets"):
        from advectio import rules

        # The server reads a copy in the run directory.
        known_as = run.config["datasets"][0]["origin"].rpartition(":")[0]
        for name in final["config_names"]:
            name["origin"] = f"{known_as}:{name['origin'].rpartition(':')[2]}"
        if final["server"].get("restarts"):
            # A new server knows nothing of the datasets that were complete before it.
            final["unmatched_rules"] = []
            final["config_names"] = [name for name in final["config_names"] if name["found"]]
        else:
            final["unmatched_rules"] = rules.unmatched(run.config, final)
        final["not_readable"] = rules.not_readable(run.config, final)
    else:
        final["unmatched_rules"], final["not_readable"] = [], []
    note_changed(final)
    if not final["datasets"]:
        if final["server"].get("restarts") and run.called is not False and not run.inner:
            final["why_no_dataset"] = SINCE_RESTART
            return
        from advectio import nothing

        final["why_no_dataset"] = nothing.reason(run)


def note_changed(final: Status) -> None:
    """Into the summary: files that have grown since they were complete. A program has opened them again for writing, and that
    goes by the library. Of a file that was made anew there is a later dataset."""
    for d in {d["path"]: d for d in final["datasets"]}.values():
        if d["state"] != "finished" or d.get("in_place_of"):
            continue
        with contextlib.suppress(OSError):
            about = os.stat(d["path"])
            if stat.S_ISREG(about.st_mode) and about.st_size > d["bytes_written"]:
                d["bytes_by_library"] = about.st_size - d["bytes_written"]


def say_changed(final: Status) -> None:
    grown = [d for d in final["datasets"] if d.get("bytes_by_library")]
    if not grown:
        return
    names = ", ".join(os.path.basename(d["path"]) for d in grown[:3]) + (", …" if len(grown) > 3 else "")
    size = size_text(sum(d["bytes_by_library"] for d in grown))
    files = "1 file has" if len(grown) == 1 else f"{len(grown)} files have"
    say(
        "",
        f"{files} grown by {size} after completion ({names}): the library wrote that, as it does where a program opens a file "
        "again for writing, and where a dataset cannot be carried",
    )


def no_dataset(final: Status) -> str:
    """As a sentence."""
    why = final["why_no_dataset"]
    return f"no dataset was captured{' ' if why == SINCE_RESTART else ': '}{why}"


def say_unmatched(final: Status) -> None:
    """What of the config was in vain, or makes files that somebody cannot read."""
    if not final["datasets"] or not (
        final.get("unmatched_rules") or final.get("not_readable") or any(not n["found"] for n in final["config_names"])
    ):
        return
    from advectio import rules

    for entry in final.get("not_readable", []):
        say("warning", rules.not_readable_sentence(entry))
    for line in rules.names_sentences(final["config_names"]):
        say("", line)
    if final.get("unmatched_rules"):
        say("", rules.sentence(final["unmatched_rules"]))


def say_unfinished(ending: Ending, final: Status, run_directory: str) -> None:
    failed = ending.failed
    what = "; ".join(f"{d['path']}: {d['error'] or d['state']}" for d in failed[:3]) or f"exit code {ending.server_code}"
    more = f" and {len(failed) - 3} more" if len(failed) > 3 else ""
    say(
        "error",
        f"{len(failed) or 'some'} of {len(final['datasets'])} datasets could not be finished ({what}{more}); what is staged is in "
        f"{run_directory}, and `advectio recover {run_directory}` finishes it once the cause is gone",
    )


def write_summary(path: str, final: Status, name: str) -> None:
    """``name``: how the user knows the file."""
    try:
        with open(path, "w", encoding="utf-8") as out:
            json.dump(final, out, indent=2)
            out.write("\n")
    except OSError as error:
        say("error", f"{name}: {error.strerror}")


def take_stage_away(run_directory: str) -> None:
    """What a server has left of it that was killed at its very end."""
    import shutil

    with contextlib.suppress(OSError):
        for entry in os.scandir(run_directory):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif entry.name not in _NOT_THE_SERVERS:
                os.unlink(entry.path)


def take_away(run_directory: str) -> None:
    """What is left of a run directory when all is written."""
    places.remove_events(run_directory)
    for name in _NOT_THE_SERVERS:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(run_directory, name))
    places.remove(run_directory)


def forget(run_directory: str) -> None:
    """Take back what was made for a run that has not begun. Nothing is staged then."""
    places.remove_events(run_directory)
    directories = places.node_directories(run_directory)
    if directories != [run_directory]:
        import shutil

        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)
    for name in _OURS:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(run_directory, name))
    places.remove(run_directory)
