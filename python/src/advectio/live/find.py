"""Which run a file belongs to, and how to connect to its servers."""

from __future__ import annotations

import contextlib
import glob
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

from advectio import places
from advectio.errors import UserError
from advectio.json_file import read_map
from advectio.live.client import Client, Gone

CONTACT = "advectio.contact"
Run = tuple[str, str]  # its directory, and the directory where it was started


def pattern(match: str | os.PathLike[str]) -> str:
    """Of a file's name, or with a slash of its absolute path."""
    text = os.fspath(match)
    return os.path.join(os.path.realpath(os.path.dirname(text)), os.path.basename(text)) if "/" in text else text


def patterns(match: str | os.PathLike[str]) -> list[str]:
    """As the server compares them, which knows a path as the program has called it: `./a.nc` has a dot in it."""
    whole = pattern(match)
    return [whole, os.path.join(os.path.dirname(whole), ".", os.path.basename(whole))] if "/" in whole else [whole]


def name() -> str:
    return f"pid {os.getpid()}"


def _secret(node: str) -> str:
    try:
        with open(os.path.join(node, "secret"), encoding="ascii") as file:
            return file.read()
    except OSError as error:
        raise Gone(f"{node}: {error.strerror}") from error


def connect_node(node: str, timeout_s: float = 5.0) -> Client:
    """The server that has this stage. Raises Gone where it does not answer."""
    places.must_be_ours(node)
    return Client(f"unix:{node}/readers", _secret(node), name(), timeout_s)


def nodes_of(run: str) -> list[str]:
    if not places.is_run(run):
        raise UserError(f"{run} is not the run directory of a run (there is no control page)")
    return places.node_directories(run)


def begun(run: str, wait_s: float) -> str:
    """The run directory, as soon as its servers answer."""
    until = time.monotonic() + wait_s
    while True:
        try:
            for node in nodes_of(run):
                connect_node(node).close()
            return run
        except UserError:
            if time.monotonic() >= until:
                raise
        time.sleep(0.1)


def read_contact(path: str) -> list[dict[str, Any]]:
    """The run's servers, by node, as one of them has written them for readers elsewhere (the config's ``readers.contact``)."""
    contact = read_map(path, "contact file of a run")
    wanted = {"addresses": list, "secret": str, "host": str, "run_dir": str}
    nodes = contact.get("nodes")
    if not isinstance(nodes, list) or not nodes:
        raise UserError(f"{path} is no contact file of a run")
    for node in nodes:
        if not isinstance(node, dict) or any(not isinstance(node.get(key), kind) for key, kind in wanted.items()):
            raise UserError(f"{path} is no contact file of a run")
    return nodes


def connect_contact(path: str, by_ucx: bool = False, timeout_s: float = 5.0, node: int = 0) -> Client:
    """To the server of one node."""
    nodes = read_contact(path)
    if node >= len(nodes):
        raise UserError(f"{path} is of another run now, with {len(nodes)} servers")
    contact = nodes[node]
    last: UserError | None = None
    for address in contact["addresses"]:
        # Listening everywhere: the run's host has a name.
        for everywhere in ("0.0.0.0", "[::]"):
            address = address.replace(f"tcp:{everywhere}:", f"tcp:{contact['host']}:")
        try:
            client = Client(address, contact["secret"], f"{os.uname().nodename} {name()}", timeout_s, by_ucx)
        except UserError as error:
            last = error
            if not isinstance(error, Gone):
                raise
            continue
        if client.server.get("run_dir") != contact["run_dir"] or client.server.get("pid") != contact.get("pid"):
            client.close()
            last = UserError("another run listens there now")
            continue
        return client
    raise Gone(f"{path} is stale: the run on {contact['host']} that wrote it does not answer ({last})")


def servers(run: str | None, contact: str | None) -> Iterator[Client]:
    """Connections to all servers of a run: the one named, or that of a contact file; else of every run of this user on this node.
    Raises UserError where one that is named does not answer."""
    if contact is not None:
        for node in range(len(read_contact(contact))):
            yield connect_contact(contact, node=node)
    elif run is not None:
        for directory in nodes_of(os.path.abspath(run)):
            yield connect_node(directory)
    else:
        for found, _ in live_runs():
            for directory in places.node_directories(found):
                with contextlib.suppress(UserError):
                    yield connect_node(directory)


def live_runs() -> list[Run]:
    """Run directories of this user on this node whose servers answer, and where each was started."""
    found = []
    for run in places.runs():
        with contextlib.suppress(UserError):
            client = connect_node(nodes_of(run)[0])
            found.append((run, str(client.server.get("directory", ""))))
            client.close()
    return found


def run_of(match: Sequence[str], wait_s: float) -> str:
    """The run that writes files of these patterns: started in their directory, else above or below it. It may still begin."""
    until = time.monotonic() + wait_s
    while True:
        runs = live_runs()
        meant = _meant(runs, match)
        if len(meant) == 1:
            return meant[0][0]
        if time.monotonic() >= until:
            raise _not_found(meant, runs, match)
        time.sleep(0.2)


def _not_found(meant: Sequence[Run], runs: Sequence[Run], match: Sequence[str]) -> UserError:
    listed = "".join(f"\n  {run}  started in {where}" for run, where in meant or runs)
    if meant:
        return UserError(f"{len(meant)} runs are under way; say which one with run= (--run of a command):{listed}")
    if runs:
        where = " or ".join(sorted({_directory(p) for p in match}))
        return UserError(
            f"no run was started in {where}, nor above or below it. To follow a run that was started elsewhere, name it with run= "
            f"(--run of a command):{listed}"
        )
    return UserError(
        "no run of yours is under way on this node. Start one with `advectio run`; on another node name its "
        f"contact file (contact={CONTACT!r}, --contact of a command; see the config's readers.listen)"
    )


def nearer_than(run: str, match: Sequence[str]) -> bool:
    """Has another run been started meanwhile that is meant by these patterns, and not this one?"""
    if len(places.runs()) < 2:
        return False
    meant = [directory for directory, _ in _meant(live_runs(), match)]
    return len(meant) == 1 and meant != [run]


def _meant(runs: Sequence[Run], match: Sequence[str]) -> list[Run]:
    """Those started in the directory of a pattern (in ours, where it has none). There is none: those above it and below it."""
    directories = {_directory(p) for p in match}
    there = [r for r in runs if r[1] in directories]
    return there or [r for r in runs if r[1] and any(os.path.commonpath([d, r[1]]) in (d, r[1]) for d in directories)]


def _directory(match: str) -> str:
    if "/" not in match:
        return os.getcwd()
    directory = os.path.dirname(match)
    while glob.has_magic(directory):
        directory = os.path.dirname(directory)
    return directory
