"""The command line. Each command is a few lines here; the work is in the modules it calls, and each command imports its own:
all of them take longer than the shorter commands."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from inspect import getdoc
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import advectio
from advectio import quantities
from advectio.errors import AlreadySaid, UserError, say
from advectio.run_line import Options

if TYPE_CHECKING:
    from rich.table import Table

    from advectio import installation, launching


class _PlainFlags:
    """Help pages: no type behind an argument or an option that takes no value, and the examples as they are, each on lines of its own."""

    epilog: str | None

    def get_params(self, ctx: Any) -> list[Any]:
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for option in found:
            if getattr(option, "is_flag", False) and option.metavar is None:
                option.metavar = ""
            if getattr(option, "param_type_name", "") == "argument" and option.metavar:
                # Our names say already what may be left out or repeated; Typers differ in what they put around them.
                option.get_usage_pieces = lambda _ctx, name=option.metavar: [name]
                option.display_type_rich = lambda **_: None
        return found

    def format_help(self, ctx: Any, formatter: Any) -> None:
        examples, self.epilog = self.epilog, None
        super().format_help(ctx, formatter)  # type: ignore[misc]
        self.epilog = examples
        if examples:
            from rich.console import Console

            out = Console(highlight=False)
            for line in examples.splitlines():
                style = "dim" if line.startswith("   #") else "cyan" if line.startswith("   ") else "bold"
                out.print(line, style=style, markup=False, soft_wrap=True)
            out.print()


class _Command(_PlainFlags, TyperCommand):
    pass


class _Group(_PlainFlags, TyperGroup):
    pass


app = typer.Typer(
    name="advectio",
    cls=_Group,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Writes the output of weather, climate and ocean models while the model computes on. The files are ordinary "
    "netCDF, and the model stays as it is.",
    epilog=" Begin with:  advectio run -- mpirun -n 4 ./wrf.exe",
)
config_app = typer.Typer(cls=_Group, no_args_is_help=True, help="Show the configuration in force, or an example of one.")
app.add_typer(config_app, name="config")

ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The config (default: $ADVECTIO_CONFIG, else ./advectio.yaml where there is one).",
    ),
]
NodesOption = Annotated[
    str | None,
    typer.Option(
        "--nodes",
        metavar="HOST,HOST…",
        help="The nodes of the run (default: what the command's mpirun or the batch system says). Each gets a server.",
    ),
]
IoNodesOption = Annotated[
    int, typer.Option("--io-nodes", metavar="K", min=0, help="The last K of the nodes have no ranks of the model.")
]
SimulateOption = Annotated[
    str | None,
    typer.Option(
        "--simulate-nodes", metavar="N,N…", help="Try several nodes on one machine: the ranks of each, 0 for an I/O node."
    ),
]
LiveRunOption = Annotated[
    str | None,
    typer.Option(
        "--run", metavar="DIR", help="--live: the run directory, where several runs are under way.", show_default=False
    ),
]
LiveContactOption = Annotated[
    str | None,
    typer.Option(
        "--contact",
        metavar="FILE",
        help="--live: the contact file of a run on another node (the config's readers.listen).",
        show_default=False,
    ),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]


Examples = Sequence[tuple[str, str]]


def _command(
    to: typer.Typer,
    name: str | None = None,
    *,
    examples: Examples,
    kind: type[TyperCommand] = _Command,
    first_word_ends: bool = False,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command whose help is its docstring. ``first_word_ends``: what follows the first word that is no option is the
    command's that it starts."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        # Lines of a docstring end where the source does, those of a help page at the terminal's width.
        paragraphs = (getdoc(function) or "").split("\n\n")
        return to.command(
            name,
            cls=kind,
            help="\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs),
            epilog=_shown(examples),
            context_settings={"allow_interspersed_args": not first_word_ends},
        )(function)

    return decorate


def _shown(examples: Examples) -> str:
    lines = [" Examples"]
    for command, what in examples:
        lines += [f"   # {what}", f"   {command}"]
    return "\n".join(lines)


def _parsed(parse: Callable[[str], Any], option: str, text: str | None) -> Any:
    if text is None:
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise UserError(f"{option}: {error}") from error


def _version(wanted: bool) -> None:
    if wanted:
        print(f"advectio {advectio.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    pass


class _BeforeACommand(_Command):
    """Says where the options of the command go, to whom an option is unknown that is like none of ours."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            option = getattr(error, "option_name", None)
            if option and not getattr(error, "possibilities", None):
                error.message = (  # type: ignore[attr-defined]
                    f"No such option: {option}. Put -- before the command, and its own options behind it: "
                    f"advectio {ctx.info_name} -- mpirun -n 4 ./wrf.exe"
                )
            raise


@_command(
    app,
    kind=_BeforeACommand,
    first_word_ends=True,
    examples=(
        ("advectio run -- mpirun -n 4 ./wrf.exe", "a model"),
        ("advectio run --json summary.json -- ./run_wps.sh", "a script; the summary to a file"),
        ("advectio run -c fast.yaml -- ncks -O in.nc out.nc", "any netCDF program"),
        ("advectio run --wait-for-readers 1 -- mpirun -n 4 ./wrf.exe", "a live reader gets every frame from the first"),
        ("advectio run --nodes a,b,c --io-nodes 1 -- mpirun -H a:32,b:32 ./wrf.exe", "three nodes, one for output only"),
        ("advectio run --simulate-nodes 2,2,0 -- mpirun -n 4 ./wrf.exe", "the same on one machine, to try it"),
        ("advectio run --workflow DIR --as scale -- ./scale-rm", "its files are another program's input, in memory"),
    ),
)
def run(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND…", help="What to run, as on the shell.", show_default=False)
    ],
    config: ConfigOption = None,
    run_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Run directory (default: a new one below stage.directory).")
    ] = None,
    json_file: Annotated[str | None, typer.Option("--json", metavar="FILE", help="Write the summary there as JSON.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No summary; only what goes wrong.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say what is started, and list every dataset.")] = False,
    nodes: NodesOption = None,
    io_nodes: IoNodesOption = 0,
    simulate_nodes: SimulateOption = None,
    drain_later: Annotated[
        bool,
        typer.Option(
            "--drain-later", help="End with the command; what is not written waits on the stage's disk for `advectio drain`."
        ),
    ] = False,
    wait_for_readers: Annotated[
        int, typer.Option(metavar="N", min=0, help="Start the command when N live readers have subscribed.")
    ] = 0,
    readers_within: Annotated[int, typer.Option(metavar="SECONDS", min=0, help="Give up after that time (exit code 2).")] = 60,
    workflow: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Directory shared by programs that read each other's files (config: couple)."),
    ] = None,
    program: Annotated[str | None, typer.Option("--as", metavar="NAME", help="Name of this program in the workflow.")] = None,
) -> None:
    """Run a command, and write its netCDF output beside it.

    Advectio starts a server on each node of the run, and then the command with a preloaded library. When the command has
    ended, the server writes the rest of its output. The summary is on stderr; stdout is the command's alone.

    Exit code: the command's (128 + n when signal n ended it); 3 when the command succeeded but a dataset could not be
    finished; 2 when the config or the stage is wrong; 127 when there is no such command.
    """
    from advectio import run as running

    options = Options(
        command, config, run_dir, json_file, quiet, verbose, nodes, io_nodes, simulate_nodes, drain_later,
        wait_for_readers, readers_within, workflow, program,
    )  # fmt: skip
    raise typer.Exit(running.run(options))


@_command(
    app,
    "exec",
    first_word_ends=True,
    examples=(
        ("mpirun -n 64 advectio exec ./wrf.exe", "each rank becomes the model"),
        ("srun advectio exec ./wrf.exe", "the same in Slurm"),
    ),
)
def exec_(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND…", help="The model.", show_default=False)],
    config: ConfigOption = None,
) -> None:
    """Become one rank of a parallel job (behind mpirun or srun).

    The ranks of a job share one server per node. The first rank starts it. It ends when the last rank has ended and all
    output is written. It leaves advectio-summary.json in the directory where the job was started.
    """
    from advectio import rank

    rank.become(command, config)


@_command(app, examples=(("advectio status --watch", "live, all runs of yours on this node"),))
def status(
    run_dir: Annotated[str | None, typer.Argument(metavar="[RUN_DIR]", help="One run (default: all of yours here).")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on showing until Ctrl-C.")] = False,
    workflow: Annotated[
        str | None, typer.Option(metavar="DIR", help="A workflow: its programs, who waits for whom, its files in memory.")
    ] = None,
    end: Annotated[bool, typer.Option("--end", help="With --workflow: remove what its programs have left in memory.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show runs that are under way on this node: datasets, frames, backlog, rates."""
    if workflow:
        from advectio import workflow as workflows

        raise typer.Exit(workflows.show(workflow, as_json, end))
    if end:
        raise UserError("--end is of a workflow: add --workflow DIR")
    from advectio import watching

    raise typer.Exit(watching.show(run_dir or os.environ.get("ADVECTIO_RUN"), watch, as_json))


@_command(
    app,
    kind=_BeforeACommand,
    first_word_ends=True,
    examples=(
        ("advectio check", "config, stage, limits and this directory"),
        ("advectio check -- mpirun -n 4 ./wrf.exe", "also: which netCDF the program has, and is it reached there"),
        ("advectio check --like wrfout_d01_2024-05-11_12:00:00", "do patterns and names of the config fit such a file"),
        ("advectio check --frame-bytes 1.2GiB --frame-interval 5min --ranks 64 --output /scratch/run", "a certain run"),
    ),
)
def check(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND…]", help="The command of the run; its program is looked into.", show_default=False),
    ] = None,
    config: ConfigOption = None,
    frame_bytes: Annotated[str | None, typer.Option(metavar="SIZE", help="Bytes of one output time.")] = None,
    frame_interval: Annotated[
        str | None, typer.Option(metavar="TIME", help="Wall-clock time between two of them; the disk is measured then.")
    ] = None,
    output: Annotated[str | None, typer.Option(metavar="DIR", help="Where the files go (default: here).")] = None,
    ranks: Annotated[int | None, typer.Option(metavar="N", min=1, help="Ranks of the job that write files.")] = None,
    nodes: Annotated[int, typer.Option(metavar="N", min=1, help="Nodes of the run.")] = 1,
    io_nodes: IoNodesOption = 0,
    like: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="A file of an earlier run: names the rules that have no effect on it. May be given again.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Find out before the job what would fail in it: config, stage, limits, output directory, frame size.

    With a COMMAND it looks into its programs, and runs none: static or dynamic, which netCDF, PnetCDF, HDF5 and MPI they
    get here, and whether Advectio reaches their calls.

    Exit code 1 when something would fail. Warnings leave it 0.
    """
    from advectio import checking

    question = checking.Question(
        config,
        output,
        _parsed(quantities.parse_size, "--frame-bytes", frame_bytes),
        _parsed(quantities.parse_duration, "--frame-interval", frame_interval),
        ranks,
        nodes,
        io_nodes,
        command or (),
        like or (),
    )
    raise typer.Exit(checking.show(checking.Check(question), as_json))


@_command(
    app,
    "link-flags",
    examples=(
        ("advectio link-flags > advectio.link", "then: mpif90 -o wrf.exe … -Wl,@advectio.link … -lnetcdff -lnetcdf"),
        ("advectio check -- ./wrf.exe", "did it work"),
    ),
)
def link_flags() -> None:
    """Print the linker options for a program that has netCDF or PnetCDF linked into it (libnetcdf.a).

    Write them to a file, and add -Wl,@FILE anywhere on the linker's command line. The program must be dynamic: link it
    without -static. docs/linking.md says what was tried.
    """
    from advectio import installation
    from advectio import link_flags as flags

    for line in flags.lines(installation.find()):
        print(line)


@_command(config_app, "explain", examples=(("advectio config explain -c advectio.yaml", "of that file, with all defaults"),))
def config_explain(config: ConfigOption = None, as_json: JsonFlag = False) -> None:
    """Every key with its value, where it is set, and what it means."""
    from rich.console import Console

    from advectio import installation, places, rules, tables
    from advectio.reading import read_config

    parsed = read_config(installation.find().server, places.config_file(config))
    if as_json:
        print(json.dumps(parsed, indent=2))
        return
    out = Console(highlight=False)
    if not sys.stdout.isatty():
        out = Console(highlight=False, width=160)
    table = tables.plain()
    for heading in ("key", "value", "from", "what"):
        table.add_column(heading, no_wrap=heading != "what")
    for entry in parsed["values"]:
        _explain_row(table, entry["key"], entry)
    for number, rule in enumerate(parsed["datasets"]):
        table.add_section()
        table.add_row(f"datasets[{number}].match", rule["match"], rule["origin"], "")
        for entry in rule["values"]:
            _explain_row(table, f"datasets[{number}].{entry['key']}", entry)
    out.print(table)
    for number, rule in enumerate(parsed["datasets"]):
        for output in rule["processed"]:
            what = f"datasets[{number}].outputs[{output['number']}], by operators ({output['origin']}): {output['text']}"
            out.print(what, markup=False, soft_wrap=True)
    for unreadable in parsed["not_readable"]:
        out.print(f"! {rules.not_readable_sentence(unreadable)}", style="yellow", markup=False, soft_wrap=True)


def _explain_row(table: "Table", key: str, entry: dict[str, str]) -> None:
    table.add_row(key, entry["value"], entry["origin"], entry["doc"], style="dim" if entry["origin"] == "default" else None)


@_command(config_app, "example", examples=(("advectio config example > advectio.yaml", "a file to begin from"),))
def config_example() -> None:
    """Print a commented advectio.yaml with every key at its default."""
    from advectio import installation

    done = subprocess.run([installation.find().server, "config", "--example"], check=False)
    raise typer.Exit(done.returncode)


@_command(
    app,
    examples=(
        ("advectio wait wrfout_d01_2024-05-11_12:00:00 && rsync wrfout_d01_2024-05-11_12:00:00 archive:", "then it is whole"),
        ("advectio wait 'wrfout_d01_*' --frames 3", "three frames of it can be read"),
        ("advectio wait restart.nc --for durable --timeout 10min || exit 1", "it survives a loss of power"),
        ("advectio wait hist.nc --contact advectio.contact", "of a run on another node (readers.listen)"),
    ),
)
def wait(
    paths: Annotated[list[str], typer.Argument(metavar="PATH…", help="Files, or patterns in quotes.", show_default=False)],
    wanted: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="visible|complete|durable",
            help="visible: its frames can be read; complete: it is closed and whole; durable: and on the disk "
            "(default: complete; with --frames visible).",
            show_default=False,
            autocompletion=lambda: ["visible", "complete", "durable"],
        ),
    ] = None,
    frames: Annotated[
        int | None, typer.Option("--frames", metavar="N", min=1, help="So many frames at least.", show_default=False)
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(
            "--timeout", metavar="TIME", help="Give up after that, such as 10min (default: never).", show_default=False
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            "--run",
            metavar="DIR",
            help="The run directory (default: that of the script, else all runs here).",
            show_default=False,
        ),
    ] = None,
    contact: Annotated[
        str | None,
        typer.Option(
            "--contact",
            metavar="FILE",
            help="The contact file of a run on another node (default: advectio.contact beside the file).",
            show_default=False,
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Wait until files of a run are complete, in a script inside or outside of it.

    It may be called before the run begins, and before the file is there. All files must be so; of a pattern, at least one,
    and all that match by then. A file that is there and of no run counts as complete.

    Exit code 0 when it is so; 3 when it will not be (the run has ended without it, it has failed, or was removed); 124 after
    --timeout, as with timeout(1); 2 when the arguments are wrong.
    """
    from advectio import await_files

    chosen = wanted or ("visible" if frames else "complete")
    if chosen not in await_files.FOR:
        raise UserError(f"--for: {chosen} is none of {', '.join(await_files.FOR)}")
    if run and contact:
        raise UserError("--run and --contact exclude each other")
    seconds = _parsed(quantities.parse_duration, "--timeout", timeout)
    raise typer.Exit(await_files.wait(await_files.Options(paths, chosen, frames, seconds, run, contact, as_json)))


@_command(
    app,
    examples=(
        ("advectio events --follow", "the run under way on this node"),
        ("advectio events --follow run.events --json", "a line of JSON for each, from the file of the config's events"),
    ),
)
def events(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE|RUN_DIR]", help="A file of events, or a run directory (default: the run here).", show_default=False
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends; wait for it to begin.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the lines of JSON.")] = False,
) -> None:
    """Show what becomes of a run's files: begun, frame, complete, durable, failed, removed.

    docs/operations.md has the keys, and the config's on: a command for each event.
    """
    from advectio import events as of_runs

    raise typer.Exit(of_runs.show(source, follow, as_json))


@_command(app, examples=(("advectio recover /dev/shm/advectio-1000/20260101-120000-4711", "one run that a crash has left"),))
def recover(
    directory: Annotated[
        str,
        typer.Argument(
            metavar="DIR", help="A run directory that was left behind; advectio status lists them.", show_default=False
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Finish the files of a run whose server has gone: after a crash, or a full disk.

    It writes every synced frame from the run directory, and then removes the directory. For each dataset it tells how far
    it had got, how far it is now, and what it drops and why.

    Exit code 1 when something could not be finished (a line says what; the directory stays), 2 when DIR is no run directory
    or another server has it, 4 when DIR does not exist.
    """
    from advectio import recovering

    raise typer.Exit(recovering.recover(directory, dry_run, as_json))


@_command(
    app,
    examples=(
        ("advectio drain /local/nvme/advectio-1000/20260101-120000-4711", "one run"),
        ("advectio drain /local/nvme", "all runs of yours below that stage.directory"),
    ),
)
def drain(
    directories: Annotated[
        list[str], typer.Argument(metavar="DIR…", help="Run directories, or a stage.directory.", show_default=False)
    ],
    as_json: JsonFlag = False,
) -> None:
    """Write what `advectio run --drain-later` has left, in any job that sees the stage's disk.

    You may interrupt it (Ctrl-C, kill -9) and call it again. The run's own config holds, with server.drain_max. It refuses
    a run whose programs or server are alive.

    Exit code 1 when something could not be finished (it stays), 2 when DIR is refused, 4 when DIR does not exist, 130 when
    interrupted.
    """
    from advectio import draining

    raise typer.Exit(draining.drain(directories, as_json))


@_command(
    app,
    examples=(
        ("advectio inspect /dev/shm/advectio-1000/20260101-120000-4711", "who wrote, what is staged, how far it has got"),
        ("advectio inspect DIR --verify", "and is every byte what was written"),
    ),
)
def inspect(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="A run directory, live or left behind.", show_default=False)],
    records: Annotated[bool, typer.Option("--records", help="List every record, and check it.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Check every block against its CRC.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Tell what a run directory holds, and change nothing. The run may be under way.

    It lists the processes that wrote, with their journals and any damage, and the datasets in flight: what is synced,
    visible, durable and staged.

    Exit code 1 when something is damaged, 2 when DIR is no run directory.
    """
    from advectio import inspecting

    raise typer.Exit(inspecting.inspect(directory, records, verify, as_json))


@_command(
    app,
    examples=(
        ("advectio join wrfout_d01_2024-05-11_12:00:00_0000 -o wrfout_d01_2024-05-11_12:00:00", "one tile stands for all"),
        ("advectio join 'wrfout_*_0000' -o whole/", "every file of a split run, by its own name"),
        ("advectio join history.pe*.nc -o history.nc --rule 'codec: zstd, level: 3'", "SCALE, stored another way"),
    ),
)
def join(
    tiles: Annotated[
        list[str],
        typer.Argument(
            metavar="TILE…",
            help="Tiles, patterns, or one tile of each file to be made: its siblings are found.",
            show_default=False,
        ),
    ],
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE|DIR", help="The file to make; for several, a directory (DIR/ makes it)."),
    ],
    config: ConfigOption = None,
    rule: Annotated[
        str | None,
        typer.Option(
            "--rule", "-r", metavar="KEYS", help="Keys of a dataset rule, as in advectio.yaml: 'codec: zstd, level: 3'."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace FILE where it is there already.")] = False,
    take_first: Annotated[
        bool,
        typer.Option("--take-first", help="Where tiles disagree about what none of them owns, take the first one's values."),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Make one file of split output (WRF's io_form 102, SCALE, NEMO, FMS, MITgcm, DALES), as one process would have written it.

    The attributes of each tile say where it lies, or its coordinates. Halos are dropped and staggered edges kept. Chunks, compression and format
    stay as the model asked, unless the config or --rule says otherwise. FILE appears when it is complete.

    It refuses missing tiles (one line names the part of the domain), tiles of different runs or times, and files that are
    no tiles.

    Exit code 2 when the tiles or the arguments are wrong, 1 when reading or writing has failed.
    """
    from advectio import joining

    raise typer.Exit(joining.join(joining.Options(tiles, output, config, rule, force, take_first, as_json)))


@_command(
    app,
    examples=(
        ("advectio process 'wrfout_d01_*' -c rules.yaml -o means/", "what the rules above say of all these files"),
        ("advectio process era5.nc -c rules.yaml -o . --json", "numbers for a script"),
        ("advectio process 'wrfout_d01_*' -c rules.yaml -o means/ --keep", "go on after an interruption"),
        (
            "advectio process 'wrfout_d01_*' -c advectio.yaml --keep",
            "what the run's config has under outputs, beside the files",
        ),
        ("advectio process 'wrfout_d01_*' -c rules.yaml -o means/ --follow &", "while the run goes on that is begun next"),
    ),
)
def process(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE…", help="NetCDF files of one grid, or patterns; their records are one series.", show_default=False
        ),
    ],
    rules: Annotated[
        str, typer.Option("--config", "-c", metavar="FILE", help="The rules: what is made of the files; or a run's config.")
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Where the rules' paths begin; not with a config.", show_default=False
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace outputs that are there already.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave outputs that are there already; make the others.")] = False,
    memory: Annotated[
        str, typer.Option("--memory", metavar="SIZE", help="Memory for values that are read and not yet written.")
    ] = "512MiB",
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", metavar="N", min=1, help="Cores to use (default: all).", show_default=False),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Files of a run that goes on: an output is made as soon as its files are complete.")
    ] = False,
    run: Annotated[
        str | None,
        typer.Option(
            "--run", metavar="DIR", help="With --follow: the run directory, where several runs go on.", show_default=False
        ),
    ] = None,
    within: Annotated[
        float, typer.Option("--within", metavar="SECONDS", min=0, help="With --follow: wait so long for the run to begin.")
    ] = 60.0,
    as_json: JsonFlag = False,
) -> None:
    """Make statistics along time, levels and expressions of files that exist, in parallel and in bounded memory.

    The rules are a YAML file, with a line for each output:

    outputs:

    - {path: "daily/{name}", variables: [T2, U10, V10], mean: 1d}

    - {path: "max/{name}", variables: [T2], max: 6h}

    - {path: weekly.nc, time: [{mean: 1d}, {minimum: 1w}], codec: zstd}

    - {path: levels.nc, variables: [T, U], levels: {pressure: [850, 500 hPa], preset: wrf}}

    - {path: wind.nc, expressions: {speed: "hypot(U10, V10)"}, max: 6h}

    - {path: weather.nc, variables: [T2, slp, rh2, umet10, vmet10], cf: true}

    - {path: stations.nc, variables: [T2, wspd10], points: {Zurich: [47.38, 8.54]}}

    - {path: "monthly/{time}.nc", variables: [T2], mean: 1d, split: 1mo}

    Statistics are mean, min, max, sum, difference and point; windows are 30min, 6h, 1d, 1w, 1mo, 1y or all. {name} is the
    name of the first file. Files are stored as the input is, unless the rule says otherwise. docs/process.md has it all.

    Everything that can be wrong with rules and files is found before anything is written. An output appears when it is
    complete.

    Exit code 2 when the rules, the files or the arguments are wrong, 1 when reading or writing has failed.
    """
    from advectio import processing

    options = processing.Options(files, rules, output, force, keep, memory, jobs, as_json)
    if follow:
        from advectio import following

        raise typer.Exit(following.follow(options, run, within))
    raise typer.Exit(processing.process(options))


@_command(
    app,
    examples=(
        ("advectio convert wrfout_d01_2005-08-28_00:00:00 wrfout.zarr", "netCDF to Zarr"),
        ("advectio convert wrfout.zarr wrfout.nc", "and back: the same values and attributes"),
        ("advectio convert forecast.grib forecast.nc", "GRIB to netCDF; several files become one series"),
        ("advectio convert 'wrfout_d01_*' rain.nc -v 'RAIN*,T2' --codec deflate", "some variables of all files, as one series"),
        ("advectio convert 'wrfout_d01_*_00??' whole.nc", "split files become one"),
        ("advectio convert run.nc points.zarr --chunks Time=1000,y=20,x=20 --codec zstd --level 3", "chunks for time series"),
        ("advectio convert 'wrfout_d01_*' by_variable/ --split-by variable", "one file for each variable, over all times"),
        ("advectio convert run.nc day.nc --times 2005-08-28", "one day; --records 0:24 does it by number"),
        ("advectio convert run.nc old.nc --to classic", "for programs that read netCDF-3 only"),
    ),
)
def convert(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="SRC… DST",
            help="Files (netCDF, GRIB), Zarr stores, BP files or patterns in quotes; the last name is what is made.",
            show_default=False,
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="zarr, netcdf4, netcdf4-classic, classic, cdf2, cdf5 or bp5 (default: DST.zarr is Zarr, DST.bp BP5, else as SRC).",
            show_default=False,
            autocompletion=lambda: ["zarr", "netcdf4", "netcdf4-classic", "classic", "cdf2", "cdf5", "bp5"],
        ),
    ] = None,
    variables: Annotated[
        list[str] | None,
        typer.Option("--variables", "-v", metavar="NAME,…", help="Only these, or patterns, with their coordinates."),
    ] = None,
    records: Annotated[
        str | None, typer.Option("--records", metavar="SLICE", help="Only these records, as a Python slice: 0:24, ::4, -1.")
    ] = None,
    times: Annotated[
        str | None,
        typer.Option("--times", metavar="FROM..TO", help="Only records of these times: 2005-08-28..2005-08-29T06:00."),
    ] = None,
    along: Annotated[
        str | None,
        typer.Option("--along", metavar="DIM", help="The dimension along which files follow each other (default: time)."),
    ] = None,
    overlap: Annotated[
        str | None,
        typer.Option(
            "--overlap",
            metavar="first|last",
            help="Whose records count where files have the same times: those of the file that begins first, or last.",
            autocompletion=lambda: ["first", "last"],
        ),
    ] = None,
    split_by: Annotated[
        str | None,
        typer.Option(
            "--split-by",
            metavar="variable",
            help="A file for each variable, with its coordinates: DST/NAME.nc, or DST with {variable} in it.",
            autocompletion=lambda: ["variable"],
        ),
    ] = None,
    codec: Annotated[
        str | None,
        typer.Option(
            "--codec",
            metavar="NAME",
            help="deflate, zstd, lz4, blosc-zstd, blosc-lz4, szip or none (default: as SRC).",
            show_default=False,
            autocompletion=lambda: ["deflate", "zstd", "lz4", "blosc-zstd", "blosc-lz4", "szip", "none"],
        ),
    ] = None,
    level: Annotated[int | None, typer.Option("--level", metavar="N", help="Of the codec.", show_default=False)] = None,
    chunks: Annotated[
        str | None, typer.Option("--chunks", metavar="DIM=N,…", help="Chunk lengths; those not named stay as they are.")
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option("--rule", "-r", metavar="KEYS", help="Further keys of a dataset rule: 'round: {T2: 12}'."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace DST where it is there already.")] = False,
    take_first: Annotated[
        bool,
        typer.Option("--take-first", help="Where files disagree about what all of them hold, take the first one's values."),
    ] = False,
    memory: Annotated[
        str, typer.Option("--memory", metavar="SIZE", help="Memory for values that are read and not yet written.")
    ] = "256MiB",
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", metavar="N", min=1, help="Cores to use (default: all).", show_default=False),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Convert files: netCDF to Zarr or BP5 and back, GRIB to netCDF, split files to one, other chunks and codecs, some variables or times.

    It reads netCDF (all formats), Zarr version 3, BP files of ADIOS2 and GRIB, in parallel and in bounded memory. Values and attributes stay the same.
    Chunks and compression stay as they are, unless an option says otherwise. docs/convert.md has it all.

    Several files are one series: they follow each other along time, in the order of their times. Tiles of split output are
    joined. Files of different grids, with the same times (--overlap) or other units are refused. What does not change values
    (long names, dates from which times count) may differ, and a line says what was taken.

    Everything that can be wrong with files and options is found before anything is written. DST appears when it is complete.

    Exit code 2 when the files or the arguments are wrong, 1 when reading or writing has failed.
    """
    from advectio import converting

    names = [name for text in variables or [] for name in text.split(",") if name]
    raise typer.Exit(
        converting.convert(
            converting.Options(
                paths,
                to,
                names,
                records,
                times,
                along,
                overlap,
                split_by,
                codec,
                level,
                chunks,
                rule,
                force,
                take_first,
                memory,
                jobs,
                as_json,
            )
        )
    )


@_command(
    app,
    examples=(
        ("advectio plot wrfout_d01* --map T2 --section QVAPOR,y=40 --series T2@24,30 -o plots/", "a PNG of each frame"),
        ("advectio plot wrfout_d01* --map 'wind10 = hypot(U10, V10),units=kt' --animate gif", "a derived field, as a film too"),
        ("advectio plot wrfout_d01* --map REFL_10CM,level=max,range=5:75 --map T,level=850hPa", "levels"),
        ("advectio plot recipe.yaml wrfout_d01*", "several plots, kept in a file: docs/plotting.md"),
        ("advectio plot --live 'wrfout_d01*' --map T2", "each frame of the running model, when it comes"),
        ("advectio plot --live 'wrfout_d01*' --contact advectio.contact --map T2", "of a run on another node"),
    ),
)
def plot(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RECIPE.yaml] [FILE…]", help="Files of the model, or patterns; before them a recipe.", show_default=False
        ),
    ] = None,
    maps: Annotated[
        list[str] | None,
        typer.Option(
            "--map", metavar="FIELD[,KEY=VALUE…]", help="A map of each frame. May be given again.", show_default=False
        ),
    ] = None,
    sections: Annotated[
        list[str] | None,
        typer.Option(
            "--section",
            metavar="FIELD,y=N|x=N",
            help="A vertical section along a row (y=) or column (x=) of the grid, or from=LAT/LON,to=LAT/LON.",
            show_default=False,
        ),
    ] = None,
    series: Annotated[
        list[str] | None,
        typer.Option(
            "--series",
            metavar="FIELD@x,y",
            help="A graph over time, at a point of the grid, @lat=25.5,lon=-90, or @mean, @min, @max of the domain.",
            show_default=False,
        ),
    ] = None,
    live: Annotated[
        str | None,
        typer.Option("--live", metavar="PATTERN", help="Frames of the running model's files that match, as they come."),
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            metavar="latest|wait|drop-oldest",
            help="--live, when drawing is slower than the model: skip to the latest frame, hold frames, or drop the oldest.",
        ),
    ] = "latest",
    run: LiveRunOption = None,
    contact: LiveContactOption = None,
    frames_max: Annotated[
        int | None, typer.Option("--frames", metavar="N", min=1, help="--live: end after N frames (default: with the run).")
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="DIR", help="Directory of the pictures (default: plots).")
    ] = None,
    animate: Annotated[
        str | None, typer.Option(metavar="gif|mp4", help="Also make a film of each map and section; mp4 needs ffmpeg.")
    ] = None,
    fps: Annotated[float | None, typer.Option(metavar="N", min=0.1, max=60, help="Frames a second of it (default: 4).")] = None,
    dpi: Annotated[int | None, typer.Option(metavar="N", min=30, max=600, help="Dots per inch (default: 110).")] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", metavar="N", min=1, help="Processes that draw (default: one a core).")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Draw maps, vertical sections and time series of fields as PNG, of files or of the model while it runs.

    A FIELD is a variable of the file, or a named expression: 'wind10 = hypot(U10, V10)'. Keys may follow it:
    level (0 is the lowest; 850hPa, 3km, max, min, mean), range=LOW:HIGH, units, colour_map, levels=1:5:10, contours=FIELD,
    wind=U10/V10, top=KM of a section, name, title, file. Without range the colours are those of all frames together.

    Coastlines need no download. A PNG appears when it is whole.

    Exit code 2 when the arguments, the recipe or a field are wrong, 1 when reading or writing has failed.
    """
    from advectio import plotting

    for option, value, known in (
        ("--animate", animate, ("gif", "mp4")),
        ("--policy", policy, ("latest", "wait", "drop-oldest")),
    ):
        if value is not None and value not in known:
            raise UserError(f"{option}: {value} is none of {', '.join(known)}")
    options = plotting.Options(
        files or (),
        maps or (),
        sections or (),
        series or (),
        live,
        policy,
        run,
        contact,
        frames_max,
        output,
        animate,
        fps,
        jobs,
        dpi,
        as_json,
    )
    raise typer.Exit(plotting.plot(options))


@_command(
    app,
    examples=(
        ("advectio view 'wrfout_d01*'", "files: every record of them, one a second"),
        ("advectio view --live 'wrfout_d01*'", "the run under way on this node"),
        ("advectio view --live 'wrfout_d01*' --contact advectio.contact", "a run on another node"),
        ("advectio view --pace 0s history.nc --open", "all at once, and the browser with it"),
    ),
)
def view(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="Files or patterns in quotes.", show_default=False)],
    live: Annotated[bool, typer.Option("--live", help="FILE is the pattern of a dataset of a run under way.")] = False,
    run: LiveRunOption = None,
    contact: LiveContactOption = None,
    pace: Annotated[str, typer.Option(metavar="TIME", help="Of files: time between two records.")] = "1s",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="Port (default: one that is free).")] = 0,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print address, token and port as JSON once it listens.")] = False,
) -> None:
    """Show fields of files or of a running model in the browser: map, time series, min / mean / max.

    It prints an address with a random token, and listens on this machine only (127.0.0.1). For another machine it prints an
    ssh -L line. Any number of browsers may look. Ctrl-C ends it.

    It needs pip install 'advectio\\[view]'. docs/view.md shows what the page can do.
    """
    from advectio import view as dashboard

    seconds = _parsed(quantities.parse_duration, "--pace", pace)
    options = dashboard.Options(files, live, run, contact, seconds, port, open_browser, as_json)
    raise typer.Exit(dashboard.show(options))


@_command(
    app,
    examples=(
        ('eval "$(advectio env --run-dir DIR)"', "in a script whose launcher drops the environment"),
        ("advectio env --run-dir DIR --nodes a,b", "also: how servers are started on both by hand"),
    ),
)
def env(
    run_dir: Annotated[str | None, typer.Option(metavar="DIR", help="Also name a run that is under way.")] = None,
    nodes: NodesOption = None,
    io_nodes: IoNodesOption = 0,
    simulate_nodes: SimulateOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the lines that a batch script needs to preload the library by itself.

    Without a run (ADVECTIO_RUN), or without a server in it, the library passes every call on to netCDF. stderr says what is
    missing. With several nodes the lines also make Open MPI pass the variables on, and a comment has the command that starts
    the servers.
    """
    from advectio import installation
    from advectio import run as running

    installed = installation.find()
    variables = {"LD_PRELOAD": installation.preload(installed, os.environ.get("LD_PRELOAD"))}
    run_directory = os.path.abspath(run_dir) if run_dir else os.environ.get("ADVECTIO_RUN")
    if run_directory:
        variables["ADVECTIO_RUN"] = run_directory
    job = running.servers_of(Options([], nodes=nodes, io_nodes=io_nodes, simulate_nodes=simulate_nodes), installed)
    comments = _servers_by_hand(job, installed, run_directory, variables) if job else []
    if not job:
        _say_what_is_missing(installed, run_directory)
    if as_json:
        print(json.dumps(variables, indent=2))
        return
    for name, value in variables.items():
        print(f"export {name}={shlex.quote(value)}")
    for line in comments:
        print(f"# {line}")


def _say_what_is_missing(installed: "installation.Installation", run_directory: str | None) -> None:
    from advectio import places
    from advectio.protocol import answers

    if run_directory is None:
        say(
            "warning",
            "ADVECTIO_RUN is missing, and without it every call is passed on to netCDF: start the command by `advectio run`, "
            "or name a run with --run-dir DIR",
        )
    elif not answers(run_directory):
        config = places.config_file(None)
        serve = [installed.server, "serve", "--run-dir", run_directory, "--exit-when-idle", "60"]
        serve += ["--config", os.path.abspath(config)] if config else []
        say(
            "warning",
            f"no server answers in {run_directory}, and without one every call is passed on to netCDF: before the model, "
            f"start `{shlex.join(serve)} &`; it ends when nobody has written for 60 s",
        )


def _servers_by_hand(
    job: "launching.Job", installed: "installation.Installation", run_directory: str | None, variables: dict[str, str]
) -> list[str]:
    """Comments; and what several nodes add to the variables."""
    from advectio import launching, places

    variables["ADVECTIO_SERVERS"] = str(job.nodes.number)
    names = list(variables)
    if job.nodes.variable:
        variables["ADVECTIO_NODES"] = job.nodes.variable
    else:
        launching.into_list(variables, names, os.environ)
    serve = [installed.mpi_server or "", "serve", "--run-dir", run_directory or "DIR", "--io-nodes", str(job.nodes.io_nodes)]
    config = places.config_file(None)
    serve += ["--exit-when-idle", "60", *(["--config", os.path.abspath(config)] if config else [])]
    return [
        "Before the model, one server on each node (DIR: the same path on all, each node's own, e.g. in /dev/shm):",
        "  " + launching.shell_line(job.prefix(os.environ), job.additions(os.environ), serve) + " &",
        "Behind the model, until all is written (the servers end when nobody has written for 60 s):",
        "  wait",
    ]


def main() -> None:
    try:
        app(prog_name="advectio")
    except AlreadySaid as error:
        sys.exit(error.exit_code)
    except UserError as error:
        say("error", str(error))
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of our stdout has seen enough (`| head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(0)
