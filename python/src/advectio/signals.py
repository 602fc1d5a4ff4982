"""Signals taken one by one, at a place of our choosing, with the knowledge of who sent them."""

import contextlib
import ctypes
import os
import select
import signal
import struct
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import NamedTuple

# What a batch system or a user sends to a job. SIGCHLD only wakes us.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
TOLD = (*ENDING, signal.SIGUSR1, signal.SIGUSR2)
JOB_CONTROL = (signal.SIGTSTP, signal.SIGCONT)
_SI_KERNEL = 0x80
_SIGSET_BYTES = 128
_SIGINFO = struct.Struct("=Iii")  # the beginning of signalfd_siginfo: number, errno, code
_SIGINFO_BYTES = 128


def name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def of_exit_code(code: int) -> int | None:
    """The signal that a shell or an mpirun means by that exit code; None: it is an exit code like any other."""
    return code - 128 if code - 128 in signal.valid_signals() else None


class Caught(NamedTuple):
    number: int
    code: int  # SI_USER and the like

    @property
    def from_terminal(self) -> bool:
        """The terminal sends to the whole foreground group: the model has got it already. A second one would make some
        launchers give up in the middle of their own clean-up."""
        return self.code == _SI_KERNEL


class _Pending:
    """Signals that are blocked, read from a descriptor.

    Not by ``signal.sigtimedwait``: after SIGSTOP and SIGCONT it may return a signal that nobody has sent (CPython gives back
    memory that was never filled where the time is up at the interruption).
    """

    def __init__(self, numbers: Iterable[int]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        wanted = ctypes.create_string_buffer(_SIGSET_BYTES)
        libc.sigemptyset(wanted)
        for number in numbers:
            libc.sigaddset(wanted, int(number))
        self._fd: int = libc.signalfd(-1, wanted, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            code = ctypes.get_errno()
            raise OSError(code, f"signalfd: {os.strerror(code)}")
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def close(self) -> None:
        os.close(self._fd)

    def take(self, seconds: float = 0.0) -> Caught | None:
        """The next one; None: there is none in that time."""
        if not self._poll.poll(seconds * 1000):
            return None
        try:
            number, _, code = _SIGINFO.unpack_from(os.read(self._fd, _SIGINFO_BYTES))
        except BlockingIOError:
            return None  # a SIGCONT that came between has taken a SIGTSTP away
        return Caught(number, code)


class Signals:
    """Blocks the signals while it is entered; ``take`` returns the next one that is to be passed on."""

    def __enter__(self) -> "Signals":
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, (*TOLD, signal.SIGCHLD))
        self._all = _Pending((*TOLD, *JOB_CONTROL, signal.SIGCHLD))
        self._ending = _Pending(ENDING)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        while self._all.take() is not None:
            pass
        self._all.close()
        self._ending.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def take(self, seconds: float = 0.0) -> Caught | None:
        """The next signal, or None after that time or when a child has ended."""
        got = self._all.take(seconds)
        return None if got is None or got.number == signal.SIGCHLD else got

    def interrupted(self) -> int | None:
        """Has somebody asked for the end?"""
        got = self._ending.take()
        return None if got is None else got.number

    @contextlib.contextmanager
    def with_job_control(self) -> Iterator[None]:
        """``take`` returns SIGTSTP and SIGCONT, too. Whoever takes SIGTSTP calls ``suspend``."""
        signal.pthread_sigmask(signal.SIG_BLOCK, JOB_CONTROL)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, JOB_CONTROL)

    @staticmethod
    def suspend() -> None:
        """Do what SIGTSTP does to a program that does not handle it: stop until SIGCONT, where somebody could send that (not in
        an orphaned process group)."""
        if signal.SIGCONT in signal.sigpending():
            return  # a SIGTSTP now would take it away
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTSTP])
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTSTP])

    @staticmethod
    def released() -> None:
        """For a child, before it becomes another program: with nothing blocked."""
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
