"""The server process of a run: started, watched, restarted when it dies, asked to drain. Light: also used by the keeper."""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from advectio.errors import AlreadySaid, UserError, say
from advectio.places import CONFIG_FILE, SERVERS_FILE, private
from advectio.protocol import Connection, NoServer, Status, as_status
from advectio.signals import name_of, of_exit_code

if TYPE_CHECKING:
    from advectio.launching import Job
    from advectio.workflow import Member

START_TIMEOUT_S = 60.0
REFUSED = 2  # advectiod's exit code when something is wrong with its arguments, config or stage
STAGE_GONE = 4  # somebody has removed its run directory
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def end_with_parent(number: int, parent: int) -> None:
    """For a child, before it becomes another program: get that signal when its parent dies."""
    _libc.prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def ended_how(code: int, launched: bool = False) -> str:
    number = -code if code < 0 else of_exit_code(code) if launched else None
    if number is None:
        return f"exit code {code}"
    name = name_of(number)
    return name if name == f"signal {number}" else f"signal {number}, {name}"


class Server:
    """The server of one run directory; with a ``job`` the servers of all its nodes, which live and die together. Not
    thread-safe: everything happens on the caller's thread, in ``watch``."""

    def __init__(
        self,
        executable: str,
        run_directory: str,
        config: str | None,
        directory: str,
        restarts_max: int,
        job: "Job | None" = None,
        drain_later: bool = False,
        member: "Member | None" = None,
    ):
        self.run_directory = run_directory
        self.job = job
        self.restarts = 0
        self.given_up = False
        self.stage_gone = False  # nothing is left to recover
        self._restarts_max = restarts_max
        self._config = config
        self._kept = self._place_for(config, directory)
        self._command = [executable, "serve", "--run-dir", run_directory, "--directory", directory]
        if self._kept:
            self._command += ["--config", self._kept]
        self._command += ["--drain-later"] * drain_later
        self._locks = [member.lock] if member else []
        if member:
            self._command += member.arguments()
        self._environment: dict[str, str] | None = None
        if job:
            self._command = [*job.prefix(os.environ), *self._command, "--io-nodes", str(job.nodes.io_nodes)]
            self._environment = job.environment(os.environ, run_directory)
        self._process: subprocess.Popen[bytes] | None = None
        self._ready: int | None = None  # a pipe: a line when the server is ready, its end when it has gone
        self._answers_by: float | None = None  # a job that was started again, and has not answered yet

    def _place_for(self, config: str | None, directory: str) -> str | None:
        """The config is kept with the run: a restarted server must not see what somebody has edited meanwhile."""
        if not config:
            return None
        if self.job and self.job.nodes.simulated is None:
            # The run directory is each node's own; where the job was started all of them can read.
            return os.path.join(directory, f".advectio-{os.path.basename(self.run_directory)}.yaml")
        return os.path.join(self.run_directory, CONFIG_FILE)

    def note(self) -> None:
        """For who finds the run directory without us. The servers take it away with the directory when all is done."""
        if self.job and not os.path.exists(os.path.join(self.run_directory, SERVERS_FILE)):
            os.makedirs(self.run_directory, mode=0o700, exist_ok=True)
            self.job.nodes.save(self.run_directory, self._kept)

    def forget(self) -> None:
        """The copy of the config, where it is not in the run directory."""
        if self._kept and os.path.dirname(self._kept) != self.run_directory:
            with contextlib.suppress(OSError):
                os.unlink(self._kept)

    @property
    def config(self) -> str | None:
        """The copy that holds for this run."""
        return self._kept

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self, interrupted: Callable[[], int | None] = lambda: None) -> None:
        """Start, and wait until it answers. ``interrupted`` gives a signal that ends the waiting."""
        if self._config and self._kept:
            try:
                with open(self._config, "rb") as config, open(self._kept, "wb", opener=private) as kept:
                    kept.write(config.read())
            except OSError as error:
                raise UserError(f"cannot keep a copy of {self._config} as {self._kept}: {error.strerror}") from error
        self.note()
        self._spawn()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._is_ready():
            assert self._process is not None
            code = self._process.poll()
            if code is not None:
                if code > 0 if self.job is None else code == REFUSED:
                    raise AlreadySaid(2)  # it has said why, in one line
                raise UserError(f"{self._subject} ended while starting ({ended_how(code, self.job is not None)}){self._hint()}")
            caught = interrupted()
            if caught is not None:
                self.stop()
                raise AlreadySaid(128 + caught)
            if time.monotonic() > deadline:
                self.stop()
                raise UserError(f"{self._subject} does not answer after {START_TIMEOUT_S:.0f} s{self._hint()}")

    def _is_ready(self) -> bool:
        """Wait a little for it. One server says so itself; the first of a job is asked: mpirun passes no pipe on."""
        if self._ready is None:
            with contextlib.suppress(NoServer), Connection(self.run_directory, 1.0):
                return True
            time.sleep(0.005)
            return False
        if not select.select([self._ready], [], [], 0.05)[0]:
            return False
        if os.read(self._ready, 64):
            return True
        self.wait(1.0)  # the end of the pipe: it dies
        return False

    @property
    def _subject(self) -> str:
        return "the server" if self.job is None else "one of the servers"

    def _hint(self) -> str:
        """What mpirun knows it keeps for itself when it is to be quiet."""
        if self.job is None:
            return ""
        words = [word for word in self.job.prefix({}) if word != "--quiet"]
        return f"; if nothing above says why, see whether this works: {' '.join(words)} hostname"

    def _spawn(self) -> None:
        parent = os.getpid()
        # mpirun ends its processes at SIGHUP, and passes SIGUSR1 on.
        farewell = signal.SIGHUP if self.job is None else signal.SIGUSR1

        def prepare() -> None:
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            # A server whose supervisor was killed drains and ends by itself (that is what this signal asks of it), instead of
            # holding its stage for ever.
            end_with_parent(farewell, parent)

        command, theirs = self._command, None
        if self.job is None:
            if self._ready is not None:
                os.close(self._ready)
            self._ready, theirs = os.pipe()
            command = [*command, "--ready-fd", str(theirs)]
        # A session of its own: what the terminal sends to the model (Ctrl-C) must not end the server.
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno(),
                start_new_session=True,
                env=self._environment,
                preexec_fn=prepare,
                pass_fds=[*self._locks, *([] if theirs is None else [theirs])],
            )
        finally:
            if theirs is not None:
                os.close(theirs)

    def _hangs(self) -> bool:
        """The job was started again and is silent since for too long: an mpirun of which a process dies while it starts may
        wait for ever."""
        answers_by = self._answers_by
        if answers_by is None:
            return False
        with contextlib.suppress(NoServer), Connection(self.run_directory, 0.2):
            self._answers_by = None
            return False
        return time.monotonic() > answers_by

    def watch(self) -> None:
        """Restart the server when it has died. Cheap; call it often."""
        if self._process is None or self.given_up:
            return
        code = self._process.poll()
        if code is None:
            if not self._hangs():
                return
            self.stop()
            happened = f"the servers do not answer, {START_TIMEOUT_S:.0f} s after they were started again"
        else:
            happened = f"{self._subject} died ({ended_how(code, self.job is not None)})"
        if code == 0 and not os.path.isdir(self.run_directory):
            # It removes the directory when all is written. We have not asked for that end.
            self.given_up = True
            self.stage_gone = True
            say("error", f"{self._subject} has ended at somebody else's request; all that was staged by then is in its files")
            return
        if code == STAGE_GONE or not os.path.isdir(self.run_directory):
            # A new server would serve a new, empty stage, and all would seem well.
            self.given_up = True
            self.stage_gone = True
            say("error", f"{self.run_directory} has been removed under the run: what was staged there and in no file is lost")
            return
        if self.restarts >= self._restarts_max:
            self.given_up = True
            say(
                "error",
                f"{happened}; not started again: server.restarts_max is {self._restarts_max}. No output is written any more; "
                f"what is staged stays in {self.run_directory}, and `advectio recover {self.run_directory}` finishes it",
            )
            return
        self.restarts += 1
        restarted = "restarted" if self.job is None else "all are restarted"
        say("warning", f"{happened}; {restarted} ({self.restarts} of at most {self._restarts_max} times)")
        # A server that dies at once again must not use up its restarts within one hiccup of the file system.
        time.sleep(min(0.05 * 2 ** (self.restarts - 1), 2.0))
        self._spawn()
        if self.job is not None:
            self._answers_by = time.monotonic() + START_TIMEOUT_S

    def drain(
        self,
        tick: Callable[[Status | None], bool],
        interval: float = 0.2,
        do: str = "drain",
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Status | None:
        """Ask for the drain (or to ``leave`` what is not written) and wait for it, through restarts. ``tick`` gets the state
        now and then; it returns False to stop waiting. ``meanwhile`` is called while the server is at work. None: there is no
        server any more, or ``tick`` said so."""
        connection: Connection | None = None
        poller: Connection | None = None
        try:
            while True:
                try:
                    if connection is None:
                        connection = Connection(self.run_directory, 30.0)
                        self._answers_by = None
                        connection.send({"do": do})
                        meanwhile()
                    if select.select([connection], [], [], interval)[0]:
                        return as_status(connection.receive())
                except NoServer:
                    if connection:
                        connection.close()
                    connection = None
                    # Not before: a server that has answered and ended has not died.
                    self.watch()
                    if self.given_up:
                        return None
                    time.sleep(0.02)
                now: Status | None = None
                try:
                    poller = poller or Connection(self.run_directory, 5.0)
                    now = poller.ask("status")
                except NoServer:
                    if poller:
                        poller.close()
                    poller = None
                if not tick(now):
                    return None
        finally:
            for link in (connection, poller):
                if link:
                    link.close()

    def wait(self, seconds: float | None) -> int | None:
        """After a drain: let it end by itself; its exit code."""
        if self._process is None:
            return None
        until = None if seconds is None else time.monotonic() + seconds

        def left() -> float | None:
            return None if until is None else max(0.0, until - time.monotonic())

        # The end of the pipe comes at once; Popen.wait sleeps between two looks.
        while self._ready is not None and select.select([self._ready], [], [], left())[0]:
            if not os.read(self._ready, 64):
                break
        try:
            return self._process.wait(left())
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        if self.wait(5.0) is None:
            self._process.kill()
            self._process.wait()
