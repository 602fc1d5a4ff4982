"""Why a run has carried no dataset. Imported where there is none: nothing waits for it."""

import fnmatch
import mmap
import os
import re
import shlex
import shutil
import stat
import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from advectio import commands, installation, launching
from advectio.errors import UserError
from advectio.nodes import Launch

if TYPE_CHECKING:
    from advectio.ending import Run

SHELLS = {"sh", "bash", "dash", "ksh", "zsh", "busybox"}  # they may be static, what they start need not be
_SCRIPT_BYTES = 1 << 16
# Programs that start a command without its environment, or with another loader.
_ELSEWHERE = {"ssh", "su", "sudo", "docker", "podman", "singularity", "apptainer", "chroot", "flatpak"}
_PT_INTERP = 3
_ET_EXEC, _ET_DYN = 2, 3
# In every netCDF and PnetCDF library, and in what it is linked into.
OF_NETCDF = b"NetCDF: Not a valid ID"
_LINKED_TO_US = b"__wrap_nc"  # by the options of `advectio link-flags`
RELINK = "link it with the shared library, or with the options of `advectio link-flags` (docs/linking.md)"


def reason(run: "Run") -> str:
    """The end of the sentence that begins with "no dataset was captured"."""
    if run.inner:
        return f"a run inside this one took the output ({run.inner}); one `advectio run` is enough"
    programs = [path for path in programs_of(run.command) if os.path.basename(os.path.realpath(path)) not in SHELLS]
    static = next((_static_sentence(program) for program in programs if is_static(program)), None)
    if run.exit_code:
        missing = _missing_program(run.command)
        failed = f"the command failed (exit code {run.exit_code})" + (f": {missing}" if missing else "")
        return failed + (f"; besides, {static}" if static else "")
    if static:
        return static
    if run.called:
        left = left_to_netcdf(run.config)
        if left:
            return f"{left}; what it matches is written by the netCDF library itself"
        if others := _others_that_create():
            return (
                "the command called netCDF, but Advectio saw it make no file: it made none, or by a library that is preloaded, too, "
                f"and calls netCDF itself ({', '.join(others)})"
            )
        return "the command called netCDF, but made no file with it"
    for program in programs:
        if has_netcdf_inside(program):
            return f"{program} has netCDF or PnetCDF linked into it statically; {RELINK}"
    dropped = drops_the_environment(run.command)
    if dropped:
        return f"{dropped}: LD_PRELOAD and ADVECTIO_RUN do not reach the program"
    both = "the command made no call to netCDF or PnetCDF, or LD_PRELOAD and ADVECTIO_RUN did not reach its program"
    left = left_to_netcdf(run.config)
    return f"{both}, or {left}" if left and run.called is None else both


def _missing_program(command: Sequence[str]) -> str | None:
    """What a launcher was to start and could not: it says so itself, but not always by its name."""
    launch = Launch.of(command)
    for program in launch.programs if launch and not launch.elsewhere else []:
        try:
            commands.find(program)
        except UserError as error:
            return str(error)
    return None


def _others_that_create() -> list[str]:
    """Names of other preloaded libraries that make files by netCDF: behind ours, their calls do not reach us."""
    found = []
    for path in os.environ.get("LD_PRELOAD", "").replace(":", " ").split():
        name = os.path.basename(path)
        if name not in (installation.NETCDF, installation.PNETCDF) and _has(path, rb"nc_+create|ncmpi_create"):
            found.append(name)
    return found


def _has(path: str, pattern: bytes) -> bool:
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            return re.search(pattern, text) is not None
    except (OSError, ValueError):
        return False


def _static_sentence(program: str) -> str:
    return f"{program} is a static program, and no library can be loaded before it; link it dynamically (without -static)"


def programs_of(command: Sequence[str]) -> list[str]:
    """The programs that a command line names: itself, what a launcher or a shell starts, and what a script names by a path."""
    found: list[str] = []
    for word in _words(command):
        path = _executable(word)
        if path is None or path in found:
            continue
        found.append(path)
        if script := _script(path):
            for inner in re.findall(r"[\w.+~/-]*/[\w.+-]+", script):
                there = _executable(inner)
                if there is not None and there not in found:
                    found.append(there)
    return found


def _words(command: Sequence[str]) -> Iterator[str]:
    shell = bool(command) and os.path.basename(command[0]) in SHELLS
    for at, word in enumerate(command):
        yield word
        if shell and at and command[at - 1] == "-c":
            parts = shlex.shlex(word, posix=True, punctuation_chars=True)
            parts.whitespace_split = True
            try:
                yield from list(parts)
            except ValueError:
                yield from word.split()


def _executable(word: str) -> str | None:
    path = word if os.sep in word else shutil.which(word)
    if not path or fnmatch.fnmatch(os.path.basename(path), "*.so*"):
        return None
    return path if os.path.isfile(path) and os.access(path, os.X_OK) else None


def _script(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            text = file.read(_SCRIPT_BYTES)
    except OSError:
        return None
    line, _, rest = text.partition(b"\n")
    return rest.decode(errors="replace") if line.startswith(b"#!") else None


def is_static(path: str) -> bool:
    """An ELF program that names no loader: nothing looks at LD_PRELOAD."""
    try:
        with open(path, "rb") as file:
            head = file.read(64)
            if len(head) < 52 or head[:4] != b"\x7fELF":
                return False
            order = "<" if head[5] == 1 else ">"
            wide = head[4] == 2
            kind = struct.unpack_from(order + "H", head, 16)[0]
            where = struct.unpack_from(order + ("Q" if wide else "I"), head, 32 if wide else 28)[0]
            size, number = struct.unpack_from(order + "HH", head, 54 if wide else 42)
            file.seek(where)
            table = file.read(size * number)
    except (OSError, struct.error):
        return False
    if kind not in (_ET_EXEC, _ET_DYN) or size == 0 or len(table) < size * number:
        return False
    return all(struct.unpack_from(order + "I", table, at)[0] != _PT_INTERP for at in range(0, len(table), size))


def has_netcdf_inside(path: str) -> bool:
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            return text[:4] == b"\x7fELF" and text.find(OF_NETCDF) >= 0 and text.find(_LINKED_TO_US) < 0
    except (OSError, ValueError):
        return False


def drops_the_environment(command: Sequence[str]) -> str | None:
    """Who of the command line does not pass the environment on."""
    words = list(_words(command))
    for at, word in enumerate(words):
        name = os.path.basename(word)
        following = words[at + 1] if at + 1 < len(words) else ""
        if name == "env" and (following in ("-", "--ignore-environment") or re.fullmatch(r"-[A-Za-z]*i[A-Za-z]*", following)):
            return f"env {following} drops the environment"
        if name in _ELSEWHERE and _executable(word):
            return f"{name} does not pass the environment on by itself"
        path = _executable(word)
        if path and os.stat(path).st_mode & (stat.S_ISUID | stat.S_ISGID):
            return f"{word} runs with other rights than yours (setuid), which no library is loaded before"
    launch = Launch.of(command)
    if launch and launch.keeps_variables:
        return f"{launch.path} is told which variables the ranks get"
    if any(os.path.basename(word) == "srun" for word in command) and launching.exports_nothing(command, os.environ):
        return "srun is told which variables the ranks get (--export)"
    return None


def left_to_netcdf(config: dict[str, Any]) -> str | None:
    """Which rules say capture: false."""
    rules = [
        f'"{rule["match"]}" ({entry["origin"]})'
        for rule in config.get("datasets", [])
        for entry in rule["values"]
        if entry["key"] == "capture" and entry["value"] == "false"
    ]
    return f"the config says capture: false for {', '.join(rules)}" if rules else None
