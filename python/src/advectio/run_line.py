"""The words behind ``advectio run``, read without the library that makes the help pages.

cli.py handles the rest (``--help``, an unknown option, no command): it knows the same options and reports
the error. A test compares the two.
"""

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple


class Options(NamedTuple):
    command: Sequence[str]
    config: str | None = None
    run_directory: str | None = None
    json_file: str | None = None
    quiet: bool = False
    verbose: bool = False
    nodes: str | None = None
    io_nodes: int = 0
    simulate_nodes: str | None = None
    drain_later: bool = False
    wait_for_readers: int = 0
    readers_within: int = 60  # seconds
    workflow: str | None = None
    program: str | None = None


WITH_VALUE = {
    "--config": "config",
    "-c": "config",
    "--run-dir": "run_directory",
    "--json": "json_file",
    "--nodes": "nodes",
    "--io-nodes": "io_nodes",
    "--simulate-nodes": "simulate_nodes",
    "--wait-for-readers": "wait_for_readers",
    "--readers-within": "readers_within",
    "--workflow": "workflow",
    "--as": "program",
}
NUMBERS = ("io_nodes", "wait_for_readers", "readers_within")
FLAGS = {"--quiet": "quiet", "-q": "quiet", "--verbose": "verbose", "-v": "verbose", "--drain-later": "drain_later"}


def read(words: Sequence[str]) -> Options | None:
    """None: cli.py must answer."""
    told: dict[str, Any] = {}
    rest = list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if word in FLAGS:
            told[FLAGS[word]] = True
        elif name in WITH_VALUE and (equals or rest) and (name.startswith("--") or not equals):
            told[WITH_VALUE[name]] = value if equals else rest.pop(0)
        else:
            return None
    numbers = {name: told[name] for name in NUMBERS if name in told}
    if not rest or not all(number.isascii() and number.isdigit() for number in numbers.values()):
        return None
    return Options(rest, **told | {name: int(number) for name, number in numbers.items()})


def run(options: Options) -> int:
    """What cli.py does around a command, for this one."""
    from advectio.errors import AlreadySaid, UserError, say

    try:
        # The config is parsed by a process of its own, while this one imports the rest.
        from advectio import reading

        begun = reading.begin_early(options.config)
        from advectio import run as running

        return running.run(options, begun)
    except AlreadySaid as error:
        return error.exit_code
    except UserError as error:
        say("error", str(error))
        return error.exit_code
    except KeyboardInterrupt:  # before there is a run; in it, signals are taken one by one
        print("Aborted.", file=sys.stderr)
        return 1
