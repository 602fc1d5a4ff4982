"""``advectio run``: a command, with its output carried by a server of its own."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from advectio import installation, limits, places
from advectio import nodes as on_nodes
from advectio.errors import UserError, say
from advectio.protocol import Status, incomplete
from advectio.quantities import size_text
from advectio.reading import Reading, Settings, settings
from advectio.run_line import Options
from advectio.server import Server
from advectio.signals import Signals, name_of, of_exit_code

if TYPE_CHECKING:
    from advectio import launching, summary, transferring

# The model starts when this module is imported.
# Functions that few runs call import what they need themselves.

EXIT_INCOMPLETE = 3
LEFT = 3  # advectiod's exit code when it has left what is not written, safe in the stage


def run(options: Options, begun: Reading | None = None) -> int:
    """``begun``: the config is already being read."""
    # Everything that can be wrong is found before the model starts; what is said twice is said once, here.
    command = list(options.command)
    executable = find_command(command[0])
    installed = installation.find()
    directory = os.getcwd()
    config = places.config_file(options.config)
    wanted = settings((begun or Reading(installed.server, config)).result(), directory)
    say_nested()
    if not options.run_directory:
        say_small_stage(wanted)
    writable_target(options.json_file)
    say_limits()
    job = servers_of(options, installed)
    if job and job.nodes.simulated is None:
        node_local(os.path.dirname(os.path.abspath(options.run_directory)) if options.run_directory else wanted.stage_directory)

    later = options.drain_later or wanted.drain_later
    if later:
        may_be_left(
            os.path.dirname(os.path.abspath(options.run_directory)) if options.run_directory else wanted.stage_directory, job
        )

    transfers_out, transfers_in = transfers(wanted.raw, directory)
    if transfers_in:
        from advectio import transferring

        transferring.stage_in(transfers_in, shown=not options.quiet and sys.stderr.isatty())

    if options.run_directory:
        run_directory = os.path.abspath(options.run_directory)
        take_directory(run_directory)
        places.remember(run_directory)
    else:
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        run_directory = places.make_run_directory(wanted.stage_directory, name, wanted.stage_origin)

    with Signals() as signals:
        served_by = installed.mpi_server if job and installed.mpi_server else installed.server
        server = Server(served_by, run_directory, config, directory, wanted.restarts_max, job, later)
        try:
            server.start(signals.interrupted)
        except UserError:
            server.forget()
            forget(run_directory)
            raise
        if options.verbose:
            where = f" on {', '.join(job.nodes.hosts)}" if job else ""
            say("", f"run directory {run_directory}, server {server.pid}{where}, config {config or 'none: all defaults'}")

        began = time.monotonic()
        environment, command = for_the_ranks(installed, run_directory, job, command)
        try:
            child = subprocess.Popen(command, executable=executable, env=environment, preexec_fn=Signals.released)
        except OSError as error:
            server.stop()
            server.forget()
            forget(run_directory)
            raise UserError(f"cannot start {command[0]}: {error.strerror}", 126) from error
        ended = wait_for(child, server, signals)
        code = ended if ended >= 0 else 128 - ended  # as a shell tells it
        run_s = time.monotonic() - began
        by_signal = how_ended(ended)
        if by_signal and not options.quiet:
            say("warning", f"{command[0]} {by_signal}; completing what it has synced")

        began = time.monotonic()
        final = drain(server, signals, options, "leave" if later else "drain")
        drain_s = time.monotonic() - began
        interrupted = final is None and not server.given_up
        out = stage_out(transfers_out, run_directory, final, signals, options) if transfers_out else None

    finished = finish(options, server, run_directory, final, code, run_s, drain_s, interrupted, out)
    return finished or (EXIT_INCOMPLETE if out and out.failed else 0)


def transfers(raw: dict[str, Any], directory: str) -> "tuple[list[transferring.Rule], list[transferring.Rule]]":
    """The config's stage.out and stage.in."""
    if not any(raw.get("transfers", {}).values()):
        return [], []
    from advectio import transferring

    return transferring.rules(raw, "out", directory), transferring.rules(raw, "in", directory)


def stage_out(
    wanted: "Sequence[transferring.Rule]", run_directory: str, final: Status | None, signals: Signals, options: Options
) -> "transferring.Outcome":
    """Whatever became of the command and of its datasets: those that are not complete are told apart."""
    from advectio import inspecting, summary, transferring

    unfinished: set[str] = set()
    if final is None or final.get("left") or incomplete(final):
        with contextlib.suppress(UserError):
            for survey in inspecting.surveys(run_directory):
                unfinished |= {os.path.realpath(d[name]) for d in survey.get("datasets", []) for name in ("path", "link")}
    done = transferring.stage_out(
        wanted, unfinished, not options.quiet and sys.stderr.isatty(), lambda: signals.interrupted() is not None
    )
    for name, why in done.failed.items():
        say("error", f"stage.out: {name}: {why}")
    if options.verbose:
        say("", f"stage.out: {summary.counted(done.files, 'file')}, {size_text(done.bytes)} copied")
    return done


def say_nested() -> None:
    outer = os.environ.get("ADVECTIO_RUN")
    if outer and places.is_run(outer):
        say("warning", f"this run is inside the one of {outer}, which gets nothing of it: one `advectio run` is enough")


def say_small_stage(wanted: Settings) -> None:
    here = wanted.raw["here"]
    cap, free = here.get("stage_bytes_max"), here.get("stage_free_bytes")
    if cap and free is not None and cap > free:
        say(
            "warning",
            f"stage.bytes_max is {size_text(cap)}, but only {size_text(free)} are free in {wanted.stage_directory}: "
            "the stage is full when they are used up",
        )


def say_limits() -> None:
    few = limits.few_files()
    for what, advice in [*limits.limits_in_the_way(), *([few] if few else [])]:
        say("warning", f"{what}: {advice}")


def servers_of(options: Options, installed: installation.Installation) -> "launching.Job | None":
    """The job of servers where the run has several nodes. What was asked for must be possible; what was only found may not."""
    asked = bool(options.nodes or options.simulate_nodes or options.io_nodes)
    if options.nodes and options.simulate_nodes:
        raise UserError("--nodes and --simulate-nodes exclude each other")
    try:
        nodes = wanted_nodes(options)
        if nodes is None:
            return None
        if installed.mpi_server is None:
            raise UserError(installation.NO_MPI_SERVER)
        from advectio import launching

        return launching.Job(launching.launcher(), nodes)
    except UserError as error:
        if asked:
            raise
        say("warning", f"{error}; only this node has a server: on others output goes through the model's own library")
        return None


def wanted_nodes(options: Options) -> on_nodes.Nodes | None:
    if options.simulate_nodes:
        nodes = on_nodes.simulated(options.simulate_nodes)
        if options.io_nodes not in (0, nodes.io_nodes):
            raise UserError(
                f"--io-nodes {options.io_nodes}, but --simulate-nodes {options.simulate_nodes} has {nodes.io_nodes}"
            )
        return nodes
    if options.nodes:
        nodes = on_nodes.named(options.nodes, options.io_nodes)
        return nodes if nodes.number > 1 else None
    found = on_nodes.found(options.command, options.io_nodes)
    if found is None and options.io_nodes:
        raise UserError("--io-nodes needs several nodes, and only one was found; name them: --nodes HOST,HOST")
    return found


def node_local(stage: str) -> None:
    kind = places.shared_filesystem(stage)
    if kind:
        raise UserError(
            f"{stage} is {kind}, the same on all nodes; with several, each needs a stage of its own (stage.directory)"
        )


def for_the_ranks(
    installed: installation.Installation, run_directory: str, job: "launching.Job | None", command: list[str]
) -> tuple[dict[str, str], list[str]]:
    """The environment of the command, and the command: with several nodes its mpirun may have to be told to pass it on."""
    ours = {
        "ADVECTIO_RUN": run_directory,
        "LD_PRELOAD": installation.preload(installed, os.environ.get("LD_PRELOAD")),
    }
    if job:
        # That ranks on other nodes have our libraries loaded, too, and a server: all of them must know it alike.
        ours["ADVECTIO_SERVERS"] = str(job.nodes.number)
    if job and job.nodes.variable:
        ours["ADVECTIO_NODES"] = job.nodes.variable
    environment = os.environ | ours
    if job:
        from advectio import launching

        command, warning = launching.tell_all_ranks(command, job.nodes, environment, list(ours))
        if warning:
            say("warning", warning)
    return environment, command


def find_command(name: str) -> str:
    """As a shell finds it, with a shell's exit codes."""
    for directory in [""] if os.sep in name else os.get_exec_path():
        found = os.path.join(directory, name)
        if os.path.isfile(found) and os.access(found, os.X_OK):
            return found
    if os.sep in name and os.path.isfile(name):
        raise UserError(f"{name} cannot be executed (permission)", 126)
    quoted = f"; a command and its arguments are several words: advectio run -- {name}" if len(name.split()) > 1 else ""
    raise UserError(f"{name}: command not found{quoted}", 127)


def writable_target(json_file: str | None) -> None:
    """Hours later is too late to find out that the summary cannot be written."""
    if json_file in (None, "-"):
        return
    parent = os.path.dirname(os.path.abspath(str(json_file)))
    if not os.path.isdir(parent):
        raise UserError(f"--json {json_file}: {parent} is not a directory")


def take_directory(path: str) -> None:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    except OSError as error:
        raise UserError(f"--run-dir {path}: {error.strerror}") from error
    if os.path.isdir(path) and os.listdir(path):  # looked at before its mode is changed
        if places.is_run(path):
            raise UserError(
                f"--run-dir {path} is not empty; if it is left from another run, `advectio recover {path}` finishes that"
            )
        raise UserError(f"--run-dir {path} is not empty, and no run directory; name one that is not there yet")
    places.make_private(path)


def forget(run_directory: str) -> None:
    """Take back what we made for a run that has not begun. Nothing is staged then."""
    directories = places.node_directories(run_directory)
    if directories != [run_directory]:
        import shutil

        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)
    for name in (places.CONFIG_FILE, places.SERVERS_FILE, "advectiod.log"):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(run_directory, name))
    places.remove(run_directory)


def wait_for(child: subprocess.Popen[bytes], server: Server, signals: Signals) -> int:
    """Until the command has ended; its exit code, or the signal that ended it as a negative number."""
    while True:
        code = child.poll()
        if code is not None:
            return code
        server.watch()
        got = signals.take(0.5)
        if got is not None and not signals.from_terminal(got):
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(got.si_signo)


def how_ended(ended: int) -> str | None:
    """Of a command that a signal has ended, or whose exit code says so of what it started."""
    if ended < 0:
        return f"was ended by {name_of(-ended)}"
    number = of_exit_code(ended)
    return f"has ended with exit code {ended}, which stands for {name_of(number)}" if number else None


def may_be_left(stage: str, job: "launching.Job | None") -> None:
    kind = places.in_memory(stage)
    if kind:
        raise UserError(
            f"--drain-later: the stage in {stage} is in memory ({kind}), where it would not outlive the node's restart and keep its "
            "memory from others until then; set stage.directory to a disk"
        )
    if job:
        raise UserError("--drain-later is for runs with one server, this one has several nodes")


def drain(server: Server, signals: Signals, options: Options, do: str = "drain") -> Status | None:
    """Wait until everything is in its file, or safe in the stage. The first signal only tells what is going on, the next one
    ends the waiting."""
    warned = False
    asked_at = time.monotonic()
    named_writers = False
    with contextlib.ExitStack() as shown:
        progress: summary.DrainProgress | None = None

        def meanwhile() -> None:
            """What is to be shown at the end takes time to import, and the server is at work."""
            nonlocal progress
            if options.quiet or progress or not has_captured(server.run_directory):
                return
            from advectio import summary

            progress = shown.enter_context(summary.DrainProgress(shown=sys.stderr.isatty()))

        def tick(status: Status | None) -> bool:
            nonlocal warned, named_writers
            if status is not None:
                if progress:
                    progress.update(status)
                alive = [w for w in status["writers"] if w["alive"]]
                if alive and not named_writers and time.monotonic() - asked_at > 5 and not options.quiet:
                    named_writers = True
                    names = ", ".join(f"{w['command']} ({w['pid']})" for w in alive[:5])
                    say("", f"waiting for processes that still write: {names}")
            if signals.interrupted() is None:
                return True
            if warned:
                return False
            warned = True
            say("", "output is still being written; once more to stop waiting for it (it goes on without us)")
            return True

        return server.drain(tick, do=do, meanwhile=meanwhile)


def has_captured(run_directory: str) -> bool:
    """On this node. A process that writes has a journal there, until all of it is in the files."""
    with contextlib.suppress(OSError):
        return bool(os.listdir(os.path.join(places.control_directory(run_directory), "journals")))
    return False


def finish(
    options: Options,
    server: Server,
    run_directory: str,
    final: Status | None,
    code: int,
    run_s: float,
    drain_s: float,
    interrupted: bool,
    out: "transferring.Outcome | None" = None,
) -> int:
    if interrupted:
        say("warning", f"not waiting any longer; `advectio status {run_directory}` shows how the rest is written")
        return code or 128 + signal.SIGINT
    if final is None:
        return code or EXIT_INCOMPLETE  # `watch` has said it
    server_code = server.wait(None if final.get("left") else 30.0)
    if server_code is None:
        say("warning", "the server has finished but does not end; stopping it")
        server.stop()
    final["server"]["restarts"] = server.restarts
    final["command"] = list(options.command)
    final["exit_code"] = code
    final["run_s"] = round(run_s, 3)
    final["drain_wait_s"] = round(drain_s, 3)
    if server.job:
        final["io_nodes"] = server.job.nodes.io_nodes
    if out:
        final["stage_out"] = out.as_json()

    write_json(options.json_file, final)
    if not options.quiet:
        show(final, options.verbose)
    failed = incomplete(final)
    if not failed and server_code == 0:
        server.forget()
        places.remove(run_directory)
        return code
    server.note()
    if server_code == LEFT:
        leave(run_directory, options.command, code)
        if not failed:
            return code
    what = "; ".join(f"{d['path']}: {d['error'] or d['state']}" for d in failed[:3]) or f"exit code {server_code}"
    more = f" and {len(failed) - 3} more" if len(failed) > 3 else ""
    say(
        "error",
        f"{len(failed) or 'some'} of {len(final['datasets'])} datasets could not be finished ({what}{more}); what is staged is in "
        f"{run_directory}, and `advectio recover {run_directory}` finishes it once the cause is gone",
    )
    return code or EXIT_INCOMPLETE


def show(final: Status, everything: bool) -> None:
    if not final["datasets"]:
        say("", "no dataset was captured (did the command write any netCDF?)")
        return
    from advectio import summary

    summary.show(final, everything)


def leave(run_directory: str, command: Sequence[str], code: int) -> None:
    """The server has ended and the stage is on its disk."""
    from advectio import draining, inspecting, summary

    draining.Left(socket.gethostname(), time.strftime("%Y-%m-%d %H:%M:%S"), list(command)).save(run_directory)
    waiting = inspecting.surveys(run_directory)
    datasets = [d for survey in waiting for d in survey["datasets"]]
    staged = sum(d["bytes_staged"] for d in datasets)
    say(
        "",
        f"{summary.counted(len(datasets), 'dataset')} ({size_text(staged)}) wait in {run_directory}; "
        f"`advectio drain {run_directory}` writes them to their files",
    )


def write_json(json_file: str | None, final: Status) -> None:
    if json_file is None:
        return
    text = json.dumps(final, indent=2) + "\n"
    if json_file == "-":
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:  # its reader has seen enough (`| head`)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return
    try:
        with open(json_file, "w", encoding="utf-8") as out:
            out.write(text)
    except OSError as error:
        say("error", f"--json {json_file}: {error.strerror}")
