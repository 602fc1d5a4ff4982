"""Keeps the server of a job whose ranks were started by ``advectio exec``, for as long as there are ranks.

Started by the first rank, as ``python -m advectio.keeper REQUEST``. Prints the run directory on stdout when the server
answers. Ranks hold a connection to the socket ``keeper`` in the run directory; when none has been held for a while, and no
process writes any more, the job's lock file is removed (under its lock, so that no rank can join in between), the server
drains, and the summary is written.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any

from advectio import ending, places, traces
from advectio.errors import AlreadySaid, UserError, say
from advectio.protocol import NoServer, Status, status_of
from advectio.quantities import size_text
from advectio.rank import lock_path, locked
from advectio.reading import read_config, settings
from advectio.server import Server
from advectio.summary import counted

# From the last rank's end to the drain: between the programs of a job script that are ranks of the same launch.
IDLE_S = float(os.environ.get("ADVECTIO_KEEPER_IDLE_S", "3"))
# Until the first rank must have come.
GRACE_S = 60.0

# Open MPI's name for the number of nodes ended with version 4; these pairs tell it of 5 and of Hydra.
_RANKS_HERE_AND_IN_ALL = (("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"), ("MPI_LOCALNRANKS", "PMI_SIZE"))


def has_other_nodes(environment: Mapping[str, str]) -> bool:
    """Does the job of this rank run on several nodes? All of them write a summary into one directory."""
    if any(environment.get(name, "1") not in ("", "0", "1") for name in ("SLURM_NNODES", "OMPI_MCA_orte_num_nodes")):
        return True
    return any(
        environment[here] != environment[all_ranks]
        for here, all_ranks in _RANKS_HERE_AND_IN_ALL
        if here in environment and all_ranks in environment
    )


class Keeper:
    def __init__(self, request: dict[str, Any]) -> None:
        self._job = str(request["job"])
        self._directory = str(request["directory"])
        executable = str(request["server"])
        self._config = read_config(executable, request["config"])
        self._command: list[str] = request["command"]
        wanted = settings(self._config, self._directory)
        self._run = places.make_run_directory(wanted.stage_directory, f"{self._job}-{os.getpid()}", wanted.stage_origin)
        self._server = Server(executable, self._run, request["config"], self._directory, wanted.restarts_max)
        self._ranks: list[socket.socket] = []
        self._ending = False

    def keep(self) -> int:
        if any(rule.get("processed") for rule in self._config["datasets"]):
            say(
                "warning",
                "outputs with operators are not made under `advectio exec`; `advectio process FILES -c CONFIG` makes them when the "
                "run has ended",
            )
        if self._config.get("on", {}).get("commands"):
            say(
                "warning",
                "commands of the config's `on` are not run under `advectio exec`; the config's `events` tells the same",
            )
        if self._config.get("sets"):
            say(
                "warning", "sets are not kept under `advectio exec`: their links do not move; start the model by `advectio run`"
            )
        signal.signal(signal.SIGTERM, self._end)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)  # they are for the ranks
        self._listener = self._listen()
        try:
            self._server.start()
        except UserError:
            ending.forget(self._run)
            raise
        traces.begin(self._run)
        print(self._run, flush=True)
        # The first rank waits for the end of our stdout.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)

        self._until_idle()
        self._called = traces.called_netcdf(self._run, whole=self._server.restarts == 0)
        self._inner = traces.inner_run(self._run)
        final = self._server.drain(lambda _: True)
        return self._report(final)

    def _end(self, *_: object) -> None:
        self._ending = True

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Relative to a descriptor: the path may be longer than a socket's may be.
        fd = os.open(self._run, os.O_PATH | os.O_DIRECTORY)
        listener.bind(f"/proc/self/fd/{fd}/keeper")
        os.close(fd)
        os.chmod(os.path.join(self._run, "keeper"), 0o600)
        listener.listen(4096)
        listener.setblocking(False)
        return listener

    def _until_idle(self) -> None:
        last_busy = time.monotonic()
        idle = GRACE_S
        while True:
            self._server.watch()
            select.select([self._listener, *self._ranks] if len(self._ranks) < 900 else [self._listener], [], [], 0.25)
            if self._welcome() or self._look_at_ranks():
                idle = IDLE_S
                last_busy = time.monotonic()
            if not self._ending and time.monotonic() - last_busy < idle:
                continue
            if not self._ending and self._writers():
                last_busy = time.monotonic()
                continue
            with contextlib.suppress(FileNotFoundError), locked(lock_path(self._job)):
                # Nobody can join while we hold the lock; who has joined before is in the listener's queue.
                if self._welcome() and not self._ending:
                    last_busy = time.monotonic()
                    continue
                os.unlink(lock_path(self._job))
            self._listener.close()
            return

    def _welcome(self) -> bool:
        came = False
        while True:
            try:
                rank, _ = self._listener.accept()
            except OSError:
                return came
            rank.setblocking(False)
            self._ranks.append(rank)
            came = True

    def _look_at_ranks(self) -> bool:
        """Forget the ranks that have gone; are there others?"""
        there = []
        for rank in self._ranks:
            try:
                gone = rank.recv(16) == b""
            except BlockingIOError:
                gone = False
            except OSError:
                gone = True
            if gone:
                rank.close()
            else:
                there.append(rank)
        self._ranks = there
        return bool(there)

    def _writers(self) -> bool:
        """Is there a process that writes, although no rank is there? One that a rank has started and left behind."""
        try:
            return any(w["alive"] for w in status_of(self._run)["writers"])
        except NoServer:
            return False

    def _report(self, final: Status | None) -> int:
        if final is None:
            return ending.EXIT_INCOMPLETE
        ended = ending.of_server(self._server, final)
        ending.explain(final, ending.Run(self._command, None, self._called, self._inner, self._config))
        name = f"advectio-summary.{socket.gethostname()}.json" if has_other_nodes(os.environ) else "advectio-summary.json"
        path = os.path.join(self._directory, name)
        ending.write_summary(path, final, path)
        if not ended.complete:
            ending.say_unfinished(ended, final, self._run)
            return ending.EXIT_INCOMPLETE
        ending.take_away(self._run)
        if not final["datasets"]:
            say("", ending.no_dataset(final))
            return 0
        ending.say_changed(final)
        ending.say_unmatched(final)
        put = sum(d["bytes_put"] for d in final["datasets"])
        written = sum(d["bytes_written"] for d in final["datasets"])
        complete = counted(len(final["datasets"]), "dataset")
        say("", f"{complete} complete, {size_text(put)} put, {size_text(written)} written; see {name}")
        return 0


def main() -> int:
    try:
        return Keeper(json.loads(sys.argv[1])).keep()
    except AlreadySaid as error:
        return error.exit_code
    except UserError as error:
        say("error", str(error))
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
