"""``advectio run``: a command, with its output carried by a server of its own."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from advectio import commands, installation, limits, places, staging, traces
from advectio import nodes as on_nodes
from advectio.errors import UserError, say
from advectio.protocol import NoServer, Status, incomplete, status_of
from advectio.quantities import size_text
from advectio.reading import Reading, Settings, settings
from advectio.run_line import Options
from advectio.server import Server
from advectio.signals import Signals, name_of, of_exit_code

if TYPE_CHECKING:
    from advectio import ending, launching, on_events, processed, sets, summary, transferring, workflow
    from advectio.protocol import CommandsRun, Made, SetReport

# The model starts when this module is imported.
# Functions that few runs call import what they need themselves.


def run(options: Options, begun: Reading | None = None) -> int:
    """``begun``: the config is already being read."""
    # Everything that can be wrong is found before the model starts; what is said twice is said once, here.
    command = list(options.command)
    executable = commands.find(command[0])
    removed = leave_removed_directory(options)
    installed = installation.find()
    directory = os.getcwd()
    config = places.config_file(options.config)
    look_alike = places.look_alike(config)
    if look_alike:
        say("warning", f"{look_alike} is not read: {places.NAME_OF_CONFIG}")
    wanted = settings((begun or Reading(installed.server, config)).result(), directory)
    stage = os.path.dirname(os.path.abspath(options.run_directory)) if options.run_directory else wanted.stage_directory
    look_at_stage(wanted, stage, is_configured=not options.run_directory)
    writable_target(options.json_file)
    say_limits(wanted.raw)
    say_where_it_stands()
    job = servers_of(options, installed)
    if job and job.nodes.simulated is None:
        node_local(stage)

    in_workflow = workflow_of(options, wanted.raw, job)
    at_events = commands_of(wanted.raw, directory, job)
    member_of_sets = sets_checked(wanted.raw, directory, options)
    later = options.drain_later or wanted.drain_later
    if later:
        may_be_left(stage, job)

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

    tell_outer(run_directory)
    member = None
    if in_workflow:
        from advectio import workflow

        member = workflow.Member(in_workflow)
    with Signals() as signals:
        served_by = installed.mpi_server if job and installed.mpi_server else installed.server
        server = Server(served_by, run_directory, config, directory, wanted.restarts_max, job, later, member)
        try:
            server.start(signals.interrupted)
        except UserError:
            forget(server)
            if member:
                member.forget()
            raise
        if options.verbose:
            where = f" on {', '.join(job.nodes.hosts)}" if job else ""
            say("", f"run directory {run_directory}, server {server.pid}{where}, config {config or 'none: all defaults'}")

        if options.wait_for_readers:
            from advectio import awaiting

            try:
                awaiting.readers(server, options.wait_for_readers, options.readers_within, signals, quiet=options.quiet)
            except UserError:
                server.stop()
                forget(server)
                raise

        try:
            keepers = sets_begun(wanted.raw, directory, run_directory, member_of_sets)
        except UserError:
            server.stop()
            forget(server)
            raise
        commands_at = follow_events(at_events, run_directory, directory, job, keepers) if at_events else None
        began, started = time.monotonic(), time.time()
        traces.begin(run_directory)
        environment, command = for_the_ranks(installed, run_directory, job, command, in_workflow)
        try:
            child = subprocess.Popen(
                command,
                executable=executable,
                env=environment,
                preexec_fn=Signals.released if removed is None else lambda: back_to(removed),
                pass_fds=[member.lock] if member else [],
            )
        except OSError as error:
            server.stop()
            forget(server)
            if member:
                member.forget()
            raise commands.refused(command[0], error) from error
        from advectio import ending  # not before the model has started

        with signals.with_job_control():  # also in threads that begin here
            beside = outputs_beside(wanted.raw, server, config, directory, started)
            ended = wait_for(child, server, signals)
        code = ended if ended >= 0 else 128 - ended  # as a shell tells it
        run_s = time.monotonic() - began
        by_signal = how_ended(ended, command)
        if by_signal and not options.quiet:
            say("warning", f"{command[0]} {by_signal}; completing what it has synced")

        here = job is None or job.nodes.simulated is not None
        called = traces.called_netcdf(run_directory, whole=here and server.restarts == 0)
        about = ending.Run(options.command, code, called, traces.inner_run(run_directory), wanted.raw)
        given_up = server.given_up
        began = time.monotonic()
        final = drain(server, signals, options, "leave" if later else "drain")
        drain_s = time.monotonic() - began
        interrupted = final is None and not server.given_up
        made = make_outputs(beside, final, signals, options, run_directory) if beside else None
        out = stage_out(transfers_out, run_directory, final, signals, options) if transfers_out else None
        commands_run = end_commands(commands_at, signals, interrupted) if commands_at else None
        set_reports = end_sets(commands_at, final, code) if commands_at else []

    over = ending.Over(about, run_s, drain_s, interrupted, given_up, out, made, commands_run, set_reports)
    finished = finish(options, server, final, over)
    if member:
        member.leave(finished)
    return finished or (ending.EXIT_INCOMPLETE if out and out.failed else 0)


def commands_of(raw: dict[str, Any], directory: str, job: "launching.Job | None") -> "on_events.Settings | None":
    if not raw.get("on", {}).get("commands") and not raw.get("sets"):
        return None
    from advectio import on_events

    found = on_events.settings(raw, directory)
    if found and job and job.nodes.simulated is None:
        on_events.several_nodes_need_a_file(found)
    return found


def sets_checked(raw: dict[str, Any], directory: str, options: Options) -> str:
    """This program's name in them."""
    if not raw.get("sets"):
        return ""
    from advectio import sets

    member = sets.member_of(raw, options.program)
    for keeper in sets.keepers(raw, directory, "", member):
        keeper.check()
    return member


def sets_begun(raw: dict[str, Any], directory: str, run_directory: str, member: str) -> "list[sets.Keeper]":
    if not raw.get("sets"):
        return []
    from advectio import sets

    keepers = sets.keepers(raw, directory, run_directory, member)
    for keeper in keepers:
        keeper.begin()
    return keepers


def end_sets(commands: "on_events.Commands", final: Status | None, code: int) -> "list[SetReport]":
    """Behind `end_commands`."""
    over = bool(final and final.get("clean"))
    return commands.end_sets(over, code == 0, bool(final and final.get("left") and code == 0))


def follow_events(
    wanted: "on_events.Settings",
    run_directory: str,
    directory: str,
    job: "launching.Job | None",
    keepers: "Sequence[sets.Keeper]",
) -> "on_events.Commands | None":
    from advectio import on_events

    try:
        several = job is not None and job.nodes.simulated is None
        return on_events.Commands(wanted, run_directory, directory, several, keepers)
    except OSError as error:
        say("warning", f"on, sets: nothing is done at events: {error.filename}: {error.strerror}")
        return None


def end_commands(commands: "on_events.Commands", signals: Signals, interrupted: bool) -> "CommandsRun":
    """As of the drain, the first signal only tells what is going on."""
    told = False

    def go_on() -> bool:
        nonlocal told
        signalled = signals.interrupted() is not None
        if interrupted or (signalled and told):
            return False
        if signalled or (not told and time.monotonic() - began > 5):
            told = True
            say("", "the run is over; commands of the config's `on` are still running; a signal stops them")
        return True

    began = time.monotonic()
    return commands.end(go_on)


def leave_removed_directory(options: Options) -> int | None:
    """The current directory may have been removed, and a command with absolute names runs all the same. A descriptor by which it
    gets back there; None: the directory is there."""
    try:
        os.getcwd()
    except FileNotFoundError:
        for name in (options.config, options.json_file, options.run_directory):
            if name and not os.path.isabs(name):
                raise UserError(f"{name}: the current directory has been removed; give an absolute name") from None
        here = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        os.chdir("/")
        return here
    return None


def back_to(directory: int) -> None:
    """For the command, before it starts."""
    os.fchdir(directory)
    Signals.released()


def workflow_of(options: Options, raw: dict[str, Any], job: "launching.Job | None") -> "workflow.Wanted | None":
    if not (options.workflow or options.program or raw.get("couple") or names_workflow(raw)):
        return None
    from advectio import workflow

    found = workflow.wanted(raw, options.workflow, options.program)
    if found and job and not found.listens:
        raise UserError(
            "this run has several nodes, and workflow.listen does not say where they find each other; set it to a network that all "
            'of them are in, such as ["tcp:10.1.0.0/16:0"], or leave out --workflow and couple'
        )
    if found and job and job.nodes.io_nodes:
        raise UserError(
            "a run with nodes for output only is in no workflow yet; leave out --io-nodes, or --workflow and couple"
        )
    if found:
        for doubt in workflow.doubts(raw, found.name):
            if doubt.what.startswith("no rule"):
                say("warning", f"{doubt.what}: {doubt.advice}")
    return found


def names_workflow(raw: dict[str, Any]) -> bool:
    return any(e["key"] in ("workflow.directory", "workflow.name") and e["value"] != "null" for e in raw["values"])


def has_operators(raw: dict[str, Any]) -> bool:
    return any(rule.get("processed") for rule in raw.get("datasets", []))


def outputs_beside(
    raw: dict[str, Any], server: Server, config: str | None, directory: str, began: float
) -> "processed.Beside | None":
    """Where outputs of the config have operators: the process that makes them. ``began``: when the model did."""
    if not has_operators(raw) or not config or not server.config:
        return None
    from advectio import processed

    return processed.Beside(server.run_directory, server.config, config, directory, raw["datasets"], began)


def make_outputs(
    beside: "processed.Beside", final: Status | None, signals: Signals, options: Options, run_directory: str
) -> "list[Made] | None":
    """The rest of them, when the run's files are complete. As of the drain, the first signal only tells what is going on."""
    from advectio import processed
    from advectio.worker import View

    if final is None or final.get("left"):
        beside.stop()
        return None
    began = time.monotonic()
    told: set[str] = set()

    def once(what: str) -> bool:
        new = what not in told
        told.add(what)
        return new

    with View(shown=not options.quiet and sys.stderr.isatty()) as view:

        def tick() -> bool:
            if signals.interrupted() is not None and not once("signal"):
                return False
            if "signal" in told and once("signal told"):
                say("", "outputs are still being made by operators; once more to stop that")
            if beside.progress and not options.quiet:
                path, done, of = beside.progress
                if once(path):
                    view.begin(path)
                view.update(done, of)
            if time.monotonic() - began > 5 and not options.quiet and once("long"):
                say("", "the files are complete; making outputs of them by operators")
            return True

        made = beside.end(final, tick)
    if made is None:
        return processed.not_made(processed.left_in(run_directory) or beside.begun, final)
    return made


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


def say_where_it_stands() -> None:
    """A run behind mpirun: each rank has one of its own, and files that ranks write together belong to none of them."""
    for rank, ranks in (
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ):
        number = os.environ.get(ranks, "")
        if not number.isdecimal() or int(number) < 2:
            continue
        if os.environ.get(rank) == "0":
            say(
                "warning",
                f"each of {number} ranks starts a run of its own, and a file that ranks write together is written by its own "
                "library; put advectio run before the launcher (advectio run -- mpirun … ./wrf.exe), or write advectio exec for it",
            )
        return


def tell_outer(run_directory: str) -> None:
    """The run that this one is inside of, if there is one."""
    outer = os.environ.get("ADVECTIO_RUN")
    if outer and places.is_run(outer):
        say(
            "warning",
            f"this run is inside another run of Advectio ({outer}); output goes to this one, the other gets none of it",
        )
        traces.note_inner(outer, run_directory)


def look_at_stage(wanted: Settings, stage: str, *, is_configured: bool) -> None:
    """What cannot be staged there is found before the model starts."""
    found = [
        *staging.directories(wanted.raw, stage if is_configured else None, wanted.spill_directory),
        *staging.cap(wanted.raw, stage, is_configured=is_configured),
    ]
    for trouble in found:
        if trouble.level == "error":
            raise UserError(trouble.line)
        say(trouble.level, trouble.line)


def say_limits(raw: dict[str, Any]) -> None:
    too_small = limits.too_small_files(int(raw["here"]["segment_bytes"]))
    if too_small:
        raise UserError(too_small)
    few = limits.few_files()
    for what, advice in [*limits.limits_in_the_way(), *([few] if few else [])]:
        say("warning", f"{what}: {advice}")


def servers_of(options: Options, installed: installation.Installation) -> "launching.Job | None":
    """The job of servers where the run has several nodes. What was asked for must be possible; what was only found may not."""
    asked = bool(options.nodes is not None or options.simulate_nodes or options.io_nodes)
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
    if options.nodes is not None:
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
    installed: installation.Installation,
    run_directory: str,
    job: "launching.Job | None",
    command: list[str],
    in_workflow: "workflow.Wanted | None" = None,
) -> tuple[dict[str, str], list[str]]:
    """The environment of the command, and the command: with several nodes its mpirun may have to be told to pass it on."""
    ours = {
        "ADVECTIO_RUN": run_directory,
        "LD_PRELOAD": installation.preload(installed, os.environ.get("LD_PRELOAD")),
    }
    if in_workflow:
        # A process that starts after the run was killed must not read a coupled file as if it were an ordinary one.
        ours["ADVECTIO_WORKFLOW"] = in_workflow.directory
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


def writable_target(json_file: str | None) -> None:
    """Hours later is too late to find out that the summary cannot be written."""
    if json_file is None:
        return
    if json_file == "-" or _is_stdout(json_file):
        raise UserError(f"--json {json_file}: stdout is the command's; name a file, e.g. --json summary.json")
    parent = os.path.dirname(os.path.abspath(str(json_file)))
    if not os.path.isdir(parent):
        raise UserError(f"--json {json_file}: {parent} is not a directory")
    if os.path.isdir(json_file):
        raise UserError(f"--json {json_file}: it is a directory; name a file, e.g. --json summary.json")
    if not os.access(json_file if os.path.exists(json_file) else parent, os.W_OK):
        raise UserError(f"--json {json_file}: you may not write there")


def _is_stdout(path: str) -> bool:
    try:
        there, ours = os.stat(path), os.fstat(1)
    except OSError:
        return False
    same = (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
    return same and os.path.realpath(path) != os.devnull


def take_directory(path: str) -> None:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    except OSError as error:
        raise UserError(f"--run-dir {path}: {error.strerror}") from error
    if os.path.isdir(path) and os.listdir(path):  # looked at before its mode is changed
        raise UserError(f"--run-dir {path} is not empty: {what_it_holds(path)}")
    places.make_private(path)


def what_it_holds(directory: str) -> str:
    """And what to do about it."""
    if not places.is_run(directory):
        names = sorted(os.listdir(directory))
        listed = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        return f"it holds {listed}, which is no run of Advectio; name a directory that is not there yet"
    try:
        server = status_of(directory, 2.0)["pid"]
    except (NoServer, UserError):
        return f"another run has left its stage there, and `advectio recover {directory}` finishes it"
    return f"another run uses it, served by process {server}; name a directory that is not there yet"


def forget(server: Server) -> None:
    """Take back what was made for a run that has not begun."""
    from advectio import ending

    server.forget()
    ending.forget(server.run_directory)


def wait_for(child: subprocess.Popen[bytes], server: Server, signals: Signals) -> int:
    """Until the command has ended; its exit code, or the signal that ended it as a negative number."""
    while True:
        code = child.poll()
        if code is not None:
            return code
        server.watch()
        got = signals.take(0.5)
        if got is None:
            continue
        if not got.from_terminal:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(got.number)
        if got.number == signal.SIGTSTP:
            signals.suspend()


def how_ended(ended: int, command: Sequence[str]) -> str | None:
    """Of a command that a signal has ended, or whose exit code says so of what it started."""
    if ended < 0:
        return f"was ended by {name_of(-ended)}"
    number = of_exit_code(ended)
    if number in (signal.SIGILL, signal.SIGTRAP) and on_nodes.Launch.of(command):
        return f"has ended with exit code {ended}"  # Open MPI's own errors have such codes, too: a program is not there
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


def finish(options: Options, server: Server, final: Status | None, over: "ending.Over") -> int:
    from advectio import ending

    run_directory, code = server.run_directory, over.run.exit_code or 0
    if over.interrupted:
        say("warning", f"not waiting any longer; `advectio status {run_directory}` shows how the rest is written")
        if over.sets:
            say("", f"sets: when it is written, `advectio recover {run_directory}` moves their links")
        return code or 128 + signal.SIGINT
    if final is None:
        if over.given_up and not server.stage_gone:
            # Said when it happened (`watch`), perhaps hours ago and above much of the command's own output.
            say(
                "error",
                f"the server was not there any more when the command ended; `advectio recover {run_directory}` writes what is staged",
            )
        return code or ending.EXIT_INCOMPLETE
    ended = ending.of_server(server, final)
    final["command"] = list(options.command)
    final["exit_code"] = code
    final["run_s"] = round(over.run_s, 3)
    final["drain_wait_s"] = round(over.drain_s, 3)
    if server.job:
        final["io_nodes"] = server.job.nodes.io_nodes
    if over.out:
        final["stage_out"] = over.out.as_json()
    if over.made is not None:
        final["processed"] = over.made
    if over.commands and over.run.config["on"]["commands"]:
        final["on"] = over.commands
    if over.sets:
        final["sets"] = over.sets
    if options.json_file or not options.quiet:
        ending.explain(final, over.run)

    if options.json_file:
        ending.write_summary(options.json_file, final, f"--json {options.json_file}")
    if not options.quiet:
        show(final, options.verbose)
        say_sets(over.sets)
    if ended.complete:
        server.forget()
        ending.take_away(run_directory)
        return code or (ending.EXIT_INCOMPLETE if outputs_lack(over.made, options) else 0)
    server.note()
    if ended.server_code == ending.LEFT:
        leave(run_directory, options.command, code)
        if not ended.failed:
            return code
    ending.say_unfinished(ended, final, run_directory)
    return code or ending.EXIT_INCOMPLETE


def outputs_lack(made: "list[Made] | None", options: Options) -> bool:
    """Said, where some could not be made."""
    if not made:
        return False
    from advectio import processed

    processed.say_failed(made, places.config_file(options.config) or "")
    return bool(processed.failed(made))


def say_sets(reports: "list[SetReport] | None") -> None:
    if not reports:
        return
    from advectio import sets

    for line in (line for report in reports for line in sets.lines_of(report)):
        say("", line)


def show(final: Status, everything: bool) -> None:
    from advectio import ending

    if not final["datasets"]:
        say("", ending.no_dataset(final))
        return
    from advectio import summary

    summary.show(final, everything)
    ending.say_changed(final)
    ending.say_unmatched(final)


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
