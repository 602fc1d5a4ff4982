"""The one exception of the command line: something that the user can act on, said in one line."""

import sys


class UserError(Exception):
    """A failure with its exit code. Caught once, at the end of each command, and printed as one line."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class AlreadySaid(UserError):
    """A failure that has already been reported on stderr (by advectiod); only the exit code is left to pass on."""

    def __init__(self, exit_code: int) -> None:
        super().__init__("", exit_code)


def say(level: str, text: str) -> None:
    """One line on stderr; stdout belongs to the model."""
    print(f"advectio: {level}: {text}" if level else f"advectio: {text}", file=sys.stderr, flush=True)
