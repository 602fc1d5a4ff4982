"""``advectio recover``: a run directory that was left behind, with one server or with several."""

import json
import os
import subprocess
from collections.abc import Sequence

from advectio import installation, launching, nodes, places, summary
from advectio.errors import AlreadySaid, UserError
from advectio.protocol import Status
from advectio.server import say


def recover(directory: str, dry_run: bool, as_json: bool) -> int:
    if not os.path.isdir(directory):
        raise UserError(f"{directory} is not a directory")
    places.must_be_ours(directory)
    several = nodes.of_run(directory)
    if dry_run:
        return _dry_run(directory, several[0] if several else None, as_json)
    installed = installation.find()
    if several is None:
        kept = os.path.join(directory, places.CONFIG_FILE)
        command = [installed.server, "recover", directory, *_config(kept), "--json"]
        code, result = _finish(command, None)
    else:
        # Several write what is left as they would have: where they were.
        if installed.mpi_server is None:
            raise UserError(installation.NO_MPI_SERVER)
        where, config = several
        job = launching.Job(launching.launcher(), where)
        command = [installed.mpi_server, "recover", os.path.abspath(directory), *_config(config), "--json"]
        command += ["--io-nodes", str(where.io_nodes)]
        code, result = _finish([*job.prefix(os.environ), *command], job.environment(os.environ, directory))
        if code == 0 and config and os.path.isfile(config):
            os.unlink(config)
    places.remove(directory)
    if as_json:
        print(json.dumps(result, indent=2))
    else:
        summary.show(result, everything=True)
    return code


def _config(kept: str | None) -> list[str]:
    return ["--config", kept] if kept and os.path.isfile(kept) else []


def _finish(command: Sequence[str], environment: dict[str, str] | None) -> tuple[int, Status]:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    try:
        result: Status = json.loads(done.stdout)
    except ValueError:
        if done.returncode == 0:
            say("error", f"the answer of {command[0]} is not understood")
        elif environment is not None:
            say("error", f"the servers could not be started: {' '.join(command)} (exit code {done.returncode})")
        raise AlreadySaid(done.returncode or 1) from None
    return done.returncode, result


def _dry_run(directory: str, where: nodes.Nodes | None, as_json: bool) -> int:
    """By the plain server, node by node: it only looks."""
    server = installation.find().server
    options = ["--dry-run", *(["--json"] if as_json else [])]
    if where is None:
        return subprocess.run(
            [server, "recover", directory, *_config(os.path.join(directory, places.CONFIG_FILE)), *options],
            stdin=subprocess.DEVNULL,
            check=False,
        ).returncode
    code = 0
    told = []
    for number, name in enumerate(where.hosts):
        done = _look(server, os.path.abspath(directory), where, number, options)
        code = max(code, done.returncode)
        if as_json:
            told.append({"node": name} | (json.loads(done.stdout) if done.stdout else {"error": done.stderr.strip()}))
        else:
            print(f"{name}:\n{done.stdout}{done.stderr}", end="", flush=True)
    if as_json:
        print(json.dumps({"nodes": told}, indent=2))
    return code


def _look(
    server: str, directory: str, where: nodes.Nodes, number: int, options: list[str]
) -> "subprocess.CompletedProcess[str]":
    command = [server, "recover", directory, *options]
    environment = None
    if where.simulated is not None:
        command[2] = os.path.join(directory, where.hosts[number])
    elif number > 0:
        job = launching.Job(launching.launcher(), nodes.Nodes((where.hosts[number],)))
        command = [*job.prefix(os.environ), *command]
        environment = job.environment(os.environ, directory)
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=environment)
