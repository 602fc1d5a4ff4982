"""The words behind `advectio run` are read twice: quickly here, and by the library that makes the help pages."""

import pytest
import typer
from advectio import cli, run_line
from advectio.run_line import Options

# By the names that cli.py gives its parameters.
FIELDS = {"run_dir": "run_directory"}


def read_by_typer(words):
    """Its options, as cli.run would get them."""
    context = typer.main.get_command(cli.app).commands["run"].make_context("run", list(words))
    told = {FIELDS.get(name, name): value for name, value in context.params.items()}
    return Options(**told | {"command": list(told["command"])})


def test_both_know_the_same_options():
    command = typer.main.get_command(cli.app).commands["run"]
    options = {name: p for p in command.params for name in p.opts if name.startswith("-")}
    flags = {name: FIELDS.get(p.name, p.name) for name, p in options.items() if p.is_flag and name != "--help"}
    with_value = {name: FIELDS.get(p.name, p.name) for name, p in options.items() if not p.is_flag}
    assert flags == run_line.FLAGS
    assert with_value == run_line.WITH_VALUE


@pytest.mark.parametrize(
    "line",
    [
        "true",
        "-- true",
        "-q -- ./wrf.exe -n 3 --json --help -- x",
        "--quiet --verbose --drain-later wrf --quiet",
        "-c a.yaml -- wrf",
        "--config=a.yaml --run-dir=/x --json - wrf",
        "--config a.yaml --config b.yaml wrf",
        "--config= wrf",
        "--config --quiet wrf",
        "--nodes a,b --io-nodes 1 -- wrf",
        "--simulate-nodes 2,0 --io-nodes=1 wrf",
        "--wait-for-readers 2 --readers-within=5 wrf",
        "-- --help",
        "-- -- wrf",
    ],
)
def test_both_read_the_same(line):
    assert run_line.read(line.split()) == read_by_typer(line.split())


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--",
        "--help",
        "-n 4 wrf",
        "--confg a wrf",
        "-qv wrf",
        "-ca.yaml wrf",
        "--quiet=1 wrf",
        "--io-nodes -1 wrf",
        "--wait-for-readers many wrf",
        "--config",
    ],
)
def test_what_is_not_plain_is_left_to_the_help_pages(line):
    assert run_line.read(line.split()) is None
