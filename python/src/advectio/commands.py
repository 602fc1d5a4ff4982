"""The command that is to be started: where it is, or why it cannot be started and what was meant. Light: also used in front
of every rank.

The exit codes are a shell's: 127 where there is no such command, 126 where it cannot be executed.
"""

import errno
import os

from advectio.errors import UserError

# Words that a shell knows and people write in front of a model.
_OF_A_SHELL = {".", "alias", "cd", "exec", "export", "module", "set", "source", "ulimit", "umask", "unset"}


def find(name: str, ours: str = "run") -> str:
    """Its path, as a shell finds it. ``ours``: the command of Advectio that is to start it."""
    for directory in [""] if os.sep in name else os.get_exec_path():
        found = os.path.join(directory, name)
        if os.path.isfile(found) and os.access(found, os.X_OK):
            return found
    if os.sep in name and os.path.isdir(name):
        raise UserError(f"{name} is a directory; name a program in it", 126)
    if os.sep in name and os.path.isfile(name):
        import shlex

        raise UserError(f"{name} cannot be executed (permission); chmod +x {shlex.quote(name)} permits it", 126)
    hint = _what_was_meant(name, f"advectio {ours} --")
    raise UserError(f"{name}: command not found{f'; {hint}' if hint else ''}", 127)


def _what_was_meant(name: str, ours: str) -> str | None:
    before, equals, _ = name.partition("=")
    if equals and before.isidentifier():
        return f"put env before it: {ours} env NAME=VALUE COMMAND"
    if len(name.split()) > 1:
        return f"remove the quotes: {ours} {name}"
    if name in _OF_A_SHELL:
        return f"it is a word of the shell: {ours} bash -c 'COMMANDS'"
    if os.sep not in name and os.path.isfile(name):
        return f"it is in this directory: ./{name}"
    return None


def refused(name: str, error: OSError) -> UserError:
    """It was found, and the system does not start it."""
    why = f"cannot start {name}: {error.strerror}"
    if error.errno == errno.ENOEXEC:
        why += "; a script begins with a line like #!/bin/bash, and a program must be one for this machine"
    if error.errno == errno.ENOENT:
        why += "; what its first line names after #! is not there, or its loader"
    return UserError(why, 126)
