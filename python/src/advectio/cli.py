"""The command line. Each command is a few lines here; the work is in the modules it calls."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperCommand

import advectio
from advectio import checking, draining, inspecting, installation, joining, launching, places, quantities, recovering, watching
from advectio import run as running
from advectio.errors import AlreadySaid, UserError, say
from advectio.reading import read_config
from advectio.run_line import Options

app = typer.Typer(
    name="advectio",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Carries the output of weather, climate and ocean models out of the model: the model goes on computing while "
    "ordinary netCDF files are written beside it. No change to the model is needed.",
    epilog="Begin with:  [bold]advectio run -- mpirun -n 4 ./wrf.exe[/]",
)
config_app = typer.Typer(no_args_is_help=True, help="Show the configuration in force, or an example of one.")
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
        "--simulate-nodes", metavar="N,N…", help="To try it on one machine: the ranks of each made-up node, 0 for an I/O node."
    ),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]


def _examples(*lines: tuple[str, str]) -> str:
    """For the end of a help page. One paragraph each: help texts are re-flowed within a paragraph."""
    return "\n\n".join(["[bold]Examples[/]", *(f"[cyan]{command}[/]  {what}" for command, what in lines)])


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


class _BeforeACommand(TyperCommand):
    """Says where the options of the command go, to whom an option is unknown that is like none of ours."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            option = getattr(error, "option_name", None)
            if option and not getattr(error, "possibilities", None):
                error.message = (  # type: ignore[attr-defined]
                    f"No such option: {option}. What belongs to the command goes behind it, and -- before it: "
                    f"advectio {ctx.info_name} -- mpirun -n 4 ./wrf.exe"
                )
            raise


@app.command(
    cls=_BeforeACommand,
    context_settings={"allow_interspersed_args": False},
    epilog=_examples(
        ("advectio run -- mpirun -n 4 ./wrf.exe", "a model"),
        ("advectio run --json summary.json -- ./run_wps.sh", "a script; the summary to a file"),
        ("advectio run -c fast.yaml -- ncks -O in.nc out.nc", "any netCDF program"),
        ("advectio run --nodes a,b,c --io-nodes 1 -- mpirun -H a:32,b:32 ./wrf.exe", "three nodes, one for output only"),
        ("advectio run --simulate-nodes 2,2,0 -- mpirun -n 4 ./wrf.exe", "the same on one machine, to try it"),
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
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the summary there as JSON (-: to stdout, at the end).")
    ] = None,
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
) -> None:
    """Run a command with its netCDF output carried by Advectio.

    A server is started on this node, or on each node of the run, the command runs with the library preloaded, and when it
    has ended the rest of its output is written and a summary is printed on stderr. stdout is the command's alone.

    Exit code: the command's (128 + n when signal n ended it); 3 when the command succeeded but a dataset could not be
    finished; 2 when the config or the stage is not right; 127 when there is no such command.
    """
    options = Options(command, config, run_dir, json_file, quiet, verbose, nodes, io_nodes, simulate_nodes, drain_later)
    raise typer.Exit(running.run(options))


@app.command(
    "exec",
    context_settings={"allow_interspersed_args": False},
    epilog=_examples(("mpirun -n 64 advectio exec ./wrf.exe", ""), ("srun advectio exec ./wrf.exe", "")),
)
def exec_(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND…", help="The model.", show_default=False)],
    config: ConfigOption = None,
) -> None:
    """Become one rank of a parallel job (behind mpirun or srun).

    The ranks of a job share one server per node: the first rank starts it, and it ends when the last rank has gone and all
    is written. advectio-summary.json is then in the directory where the job was started.
    """
    from advectio import rank

    rank.become(command, config)


@app.command(epilog=_examples(("advectio status --watch", "live, all runs of yours on this node")))
def status(
    run_dir: Annotated[str | None, typer.Argument(metavar="[RUN_DIR]", help="One run (default: all of yours here).")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on showing until Ctrl-C.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show runs that are under way on this node: datasets, frames, backlog, rates."""
    raise typer.Exit(watching.show(run_dir or os.environ.get("ADVECTIO_RUN"), watch, as_json))


@app.command(
    epilog=_examples(
        ("advectio check", "config, stage, limits and this directory"),
        ("advectio check --frame-bytes 1.2GiB --frame-interval 5min --ranks 64 --output /scratch/run", "a certain run"),
    )
)
def check(
    config: ConfigOption = None,
    frame_bytes: Annotated[str | None, typer.Option(metavar="SIZE", help="Bytes of one output time.")] = None,
    frame_interval: Annotated[
        str | None, typer.Option(metavar="TIME", help="Wall-clock time between two of them; the disk is measured then.")
    ] = None,
    output: Annotated[str | None, typer.Option(metavar="DIR", help="Where the files go (default: here).")] = None,
    ranks: Annotated[int | None, typer.Option(metavar="N", min=1, help="Ranks of the job that write files.")] = None,
    nodes: Annotated[int, typer.Option(metavar="N", min=1, help="Nodes of the run.")] = 1,
    io_nodes: IoNodesOption = 0,
    as_json: JsonFlag = False,
) -> None:
    """Find out before the job what would fail in it: config, stage, limits, output directory, frame size.

    Exit code 1 when something would fail; warnings leave it 0.
    """
    question = checking.Question(
        config,
        output,
        _parsed(quantities.parse_size, "--frame-bytes", frame_bytes),
        _parsed(quantities.parse_duration, "--frame-interval", frame_interval),
        ranks,
        nodes,
        io_nodes,
    )
    raise typer.Exit(checking.show(checking.Check(question).run(), as_json))


@config_app.command("explain", epilog=_examples(("advectio config explain -c advectio.yaml", "")))
def config_explain(config: ConfigOption = None, as_json: JsonFlag = False) -> None:
    """Every key with its value, where it is set, and what it means."""
    parsed = read_config(installation.find().server, places.config_file(config))
    if as_json:
        print(json.dumps(parsed, indent=2))
        return
    out = Console(highlight=False)
    if not sys.stdout.isatty():
        out = Console(highlight=False, width=160)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
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


def _explain_row(table: Table, key: str, entry: dict[str, str]) -> None:
    table.add_row(key, entry["value"], entry["origin"], entry["doc"], style="dim" if entry["origin"] == "default" else None)


@config_app.command("example", epilog=_examples(("advectio config example > advectio.yaml", "a file to begin from")))
def config_example() -> None:
    """Print a commented advectio.yaml with every key at its default."""
    done = subprocess.run([installation.find().server, "config", "--example"], check=False)
    raise typer.Exit(done.returncode)


@app.command(epilog=_examples(("advectio recover /dev/shm/advectio-1000/20260101-120000-4711", "")))
def recover(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="A run directory that was left behind.", show_default=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Finish the files of a run whose server has gone: after a crash, a full disk, a lost node that is back.

    Everything that was synced is written from what is staged in the run directory; it is removed when all is done. For each
    dataset is told how far it had got and how far it is now, and what is dropped, and why.
    Exit code 1 when something could not be finished (it is said what; the directory stays), 2 when DIR is no run directory,
    4 when it is not there (any more).
    """
    raise typer.Exit(recovering.recover(directory, dry_run, as_json))


@app.command(
    epilog=_examples(
        ("advectio drain /local/nvme/advectio-1000/20260101-120000-4711", "one run"),
        ("advectio drain /local/nvme", "all runs of yours below that stage.directory"),
    )
)
def drain(
    directories: Annotated[
        list[str], typer.Argument(metavar="DIR…", help="Run directories, or a stage.directory.", show_default=False)
    ],
    as_json: JsonFlag = False,
) -> None:
    """Write what `advectio run --drain-later` has left: in another job, wherever the stage's disk can be seen.

    May be interrupted (Ctrl-C, kill -9) and called again. The run's config holds, server.drain_max too. Refused while
    programs or the server of the run live.
    Exit code 1 when something could not be finished (it stays), 2 when DIR is refused, 4 when it is not there (any more),
    130 when interrupted.
    """
    raise typer.Exit(draining.drain(directories, as_json))


@app.command(
    epilog=_examples(
        ("advectio inspect /dev/shm/advectio-1000/20260101-120000-4711", "who wrote, what is staged, how far it has got"),
        ("advectio inspect DIR --verify", "and is every byte what was written"),
    )
)
def inspect(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="A run directory, live or left behind.", show_default=False)],
    records: Annotated[bool, typer.Option("--records", help="List every record, and check it.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Check every block against its CRC.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Tell what a run directory holds, and change nothing: a run under way is not disturbed.

    The processes that wrote, their journals and where one is damaged; for each dataset in flight what is synced, visible,
    durable and staged. Exit code 1 when something is damaged, 2 when DIR is no run directory.
    """
    raise typer.Exit(inspecting.inspect(directory, records, verify, as_json))


@app.command(
    epilog=_examples(
        ("advectio join wrfout_d01_2024-05-11_12:00:00_0000 -o wrfout_d01_2024-05-11_12:00:00", "one tile stands for all"),
        ("advectio join 'wrfout_*_0000' -o whole/", "every file of a split run, by its own name"),
        ("advectio join history.pe*.nc -o history.nc --rule 'codec: zstd, level: 3'", "SCALE, stored another way"),
    )
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
    """Make one file of split output (WRF's io_form 102, SCALE, NEMO): as one process would have written it.

    Where a tile lies is read from its attributes; halos are dropped, staggered edges kept, and the attributes of place become
    those of the whole. Chunks, compression and format stay as the model asked, unless the config or --rule says otherwise.
    FILE is there only when it is complete. Refused with one line: a missing tile (it says which part of the domain), tiles of
    different runs or times, files that are no tiles.

    Exit code: 2 when the tiles or the arguments are not right, 1 when reading or writing has failed.
    """
    raise typer.Exit(joining.join(joining.Options(tiles, output, config, rule, force, take_first, as_json)))


@app.command(
    epilog=_examples(
        ('eval "$(advectio env --run-dir DIR)"', "in a script whose launcher drops the environment"),
        ("advectio env --run-dir DIR --nodes a,b", "also: how servers are started on both by hand"),
    )
)
def env(
    run_dir: Annotated[str | None, typer.Option(metavar="DIR", help="Also name a run that is under way.")] = None,
    nodes: NodesOption = None,
    io_nodes: IoNodesOption = 0,
    simulate_nodes: SimulateOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the lines that a batch script needs to preload the library by itself.

    Without a run (ADVECTIO_RUN) the library passes every call on to netCDF, and says so once. With several nodes the lines
    also tell Open MPI to pass the variables on, and a comment has the command that starts the servers by hand.
    """
    installed = installation.find()
    variables = {"LD_PRELOAD": installation.preload(installed, os.environ.get("LD_PRELOAD"))}
    run_directory = os.path.abspath(run_dir) if run_dir else os.environ.get("ADVECTIO_RUN")
    if run_directory:
        variables["ADVECTIO_RUN"] = run_directory
    job = running.servers_of(Options([], nodes=nodes, io_nodes=io_nodes, simulate_nodes=simulate_nodes), installed)
    comments = _servers_by_hand(job, installed, run_directory, variables) if job else []
    if as_json:
        print(json.dumps(variables, indent=2))
        return
    for name, value in variables.items():
        print(f"export {name}={shlex.quote(value)}")
    for line in comments:
        print(f"# {line}")


def _servers_by_hand(
    job: launching.Job, installed: installation.Installation, run_directory: str | None, variables: dict[str, str]
) -> list[str]:
    """Comments; and what several nodes add to the variables."""
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
        app()
    except AlreadySaid as error:
        sys.exit(error.exit_code)
    except UserError as error:
        say("error", str(error))
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of our stdout has seen enough (`| head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(0)
