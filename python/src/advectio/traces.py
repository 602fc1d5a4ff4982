"""What a run leaves in its run directory besides output: has a program called netCDF, was another run started inside it?
Light: it is on the way to the start of a model."""

import contextlib
import os

from advectio import places

_TOLD = "capture.conf"  # of the config, for the ranks: a process reads it at its first call of netCDF (journal/SPEC.md)


def begin(run_directory: str) -> None:
    """Before the command starts. The time of access becomes one that the kernel replaces at the next read."""
    for directory in places.node_directories(run_directory):
        path = os.path.join(directory, _TOLD)
        with contextlib.suppress(OSError):
            os.utime(path, ns=(0, os.stat(path).st_mtime_ns))


def called_netcdf(run_directory: str, *, whole: bool) -> bool | None:
    """``whole``: all of the run can be seen from here, and its server was never restarted. None: not to be told."""
    known = whole
    for directory in places.node_directories(run_directory):
        try:
            read_at = os.stat(os.path.join(directory, _TOLD)).st_atime_ns
            keeps_times = not (os.statvfs(directory).f_flag & os.ST_NOATIME or places.shared_filesystem(directory))
        except OSError:
            return None
        if read_at > 0:
            return True
        known = known and keeps_times
    return False if known else None


def note_inner(outer: str, run_directory: str) -> None:
    """For the outer run, which gets no output and is to say why."""
    with (
        contextlib.suppress(OSError),
        open(os.path.join(outer, places.INNER_FILE), "w", encoding="utf-8", opener=places.private) as out,
    ):
        out.write(run_directory)


def inner_run(run_directory: str) -> str | None:
    """The run directory of the last run that was started inside this one."""
    try:
        with open(os.path.join(run_directory, places.INNER_FILE), encoding="utf-8") as file:
            return file.read() or None
    except (OSError, ValueError):
        return None
