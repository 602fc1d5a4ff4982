"""Signals taken one by one, at a place of our choosing, with the knowledge of who sent them."""

import signal
from types import TracebackType

# What a batch system or a user sends to a job. SIGCHLD only wakes us.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
TOLD = (*ENDING, signal.SIGUSR1, signal.SIGUSR2)
_SI_KERNEL = 0x80


def name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def of_exit_code(code: int) -> int | None:
    """The signal that a shell or an mpirun means by that exit code; None: it is an exit code like any other."""
    return code - 128 if code - 128 in signal.valid_signals() else None


class Signals:
    """Blocks the signals while it is entered; ``take`` returns the next one that is to be passed on."""

    def __enter__(self) -> "Signals":
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, (*TOLD, signal.SIGCHLD))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        while signal.sigtimedwait(TOLD, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def take(self, seconds: float = 0.0) -> signal.struct_siginfo | None:
        """The next signal, or None after that time or when a child has ended."""
        got = signal.sigtimedwait((*TOLD, signal.SIGCHLD), seconds)
        return None if got is None or got.si_signo == signal.SIGCHLD else got

    def interrupted(self) -> int | None:
        """Has somebody asked for the end?"""
        got = signal.sigtimedwait(ENDING, 0)
        return None if got is None else got.si_signo

    @staticmethod
    def from_terminal(got: signal.struct_siginfo) -> bool:
        """The terminal sends to the whole foreground group: the model has got it already. A second one would make some
        launchers give up in the middle of their own clean-up."""
        return got.si_code == _SI_KERNEL

    @staticmethod
    def released() -> None:
        """For a child, before it becomes another program: with nothing blocked."""
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
