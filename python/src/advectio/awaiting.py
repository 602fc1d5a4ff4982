"""``advectio run --wait-for-readers``: the command starts when live readers have subscribed."""

import time
from collections import Counter

from advectio.errors import AlreadySaid, UserError, say
from advectio.protocol import Connection, NoServer, ReaderStatus, Status
from advectio.server import Server
from advectio.signals import Signals

LOOK_S = 0.02


def subscribed(status: Status) -> int:
    """How many readers get every frame from here on."""
    return len(subscribers(status))


def subscribers(status: Status) -> list[str]:
    """Readers that get every frame from here on: of each its name, and the patterns of the files that it wants. One that
    connects to several servers counts when it has subscribed at all."""
    connections = [r for r in status.get("readers", {"connected": []})["connected"] if r["subscriptions"]]
    times = Counter(_name(r) for r in connections)
    there = {_name(r): _text(r) for r in connections if times[_name(r)] >= r["servers"]}
    return sorted(there.values())


def _text(reader: ReaderStatus) -> str:
    patterns = [m for s in reader["subscriptions"] for m in s["match"]]
    return f"{reader['name']} ({', '.join(dict.fromkeys(patterns)) or 'all files'})"


def _name(reader: ReaderStatus) -> str:
    return reader["reader"] or f"{reader['address']} {reader['name']}"


def readers(server: Server, number: int, within_s: float, signals: Signals, *, quiet: bool) -> None:
    """Errors: UserError where they have not come in that time, or there is no server any more."""
    until = time.monotonic() + within_s
    there: list[str] = []
    said = -1
    while True:
        try:
            with Connection(server.run_directory, 5.0) as connection:
                there = subscribers(connection.ask("status"))
        except NoServer:
            server.watch()
        if server.given_up:
            raise AlreadySaid(2)
        if len(there) >= number:
            if not quiet:
                say("", f"{len(there)} of {_counted(number)} subscribed: {', '.join(there)}")
            return
        caught = signals.interrupted()
        if caught is not None:
            raise AlreadySaid(128 + caught)
        if time.monotonic() >= until:
            raise UserError(
                f"{len(there)} of {number} live readers had subscribed after {within_s:g} s; the command was not started. Start the "
                "readers first or at the same time, give them longer (--readers-within), or wait for fewer (--wait-for-readers)"
            )
        if not quiet and said < 0:
            say("", f"waiting up to {within_s:g} s for {_counted(number)} to subscribe; run directory {server.run_directory}")
        if not quiet and len(there) != max(said, 0):
            say("", f"{len(there)} of {_counted(number)} subscribed: {', '.join(there)}")
        said = len(there)
        time.sleep(LOOK_S)


def _counted(number: int) -> str:
    return "1 live reader" if number == 1 else f"{number} live readers"
