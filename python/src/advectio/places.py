"""Run directories: where they are made, and which of this user are there. Light: also used in front of every rank."""

import contextlib
import ctypes
import json
import os
import stat
from typing import Any

from advectio.errors import UserError

CONFIG_FILE = "advectio.yaml"
LOOK_ALIKE = "advectio.yml"
SERVERS_FILE = "servers.json"  # of a run with several servers: where they are
INNER_FILE = "inner"  # which run was started inside this one
LEFT_FILE = "left.json"  # of a run that has ended and is to be drained later: when and where

PROCESSED_FILE = "processed.json"  # outputs that operators make: what there is of them
EVENTS_FILE = "events"
ON_FILE = "on.json"  # behind which events of each file all is done


def config_file(option: str | None) -> str | None:
    """The config that holds: the one named, else ADVECTIO_CONFIG, else ./advectio.yaml where there is one."""
    if option:
        return option
    named = os.environ.get("ADVECTIO_CONFIG")
    if named:
        return named
    return CONFIG_FILE if os.path.isfile(CONFIG_FILE) else None


NAME_OF_CONFIG = f"the config is called {CONFIG_FILE}, or named by -c FILE"


def look_alike(config: str | None) -> str | None:
    """A file here that was meant to be the config, where no config holds."""
    return LOOK_ALIKE if config is None and os.path.isfile(LOOK_ALIKE) else None


def user_directory(stage: str = "/dev/shm") -> str:
    return os.path.join(stage, f"advectio-{os.getuid()}")


def make_private(path: str) -> None:
    """Make a directory that only this user can enter. /dev/shm is everybody's: what is there already must be ours."""
    try:
        os.mkdir(path, 0o700)
        return
    except FileExistsError:
        pass
    except OSError as error:
        raise UserError(f"cannot make {path}: {error.strerror}") from error
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise UserError(f"{path} is in the way: it is not a directory")
    if found.st_uid != os.getuid():
        raise UserError(f"{path} belongs to somebody else (uid {found.st_uid}); set stage.directory to another place")
    if found.st_mode & 0o077:
        os.chmod(path, 0o700)


def private(path: str, flags: int) -> int:
    """An opener: what is made is this user's alone."""
    return os.open(path, flags, 0o600)


def is_run(directory: str) -> bool:
    """Is it the run directory of a run, live or left behind?"""
    return any(os.path.exists(os.path.join(node, "control")) for node in node_directories(directory))


def has_left_events(directory: str) -> bool:
    """Its files are complete, and nobody has looked at their events (the config's sets)."""
    return not is_run(directory) and any(os.path.exists(os.path.join(n, EVENTS_FILE)) for n in node_directories(directory))


def remove_events(run_directory: str) -> None:
    """All is done at them."""
    for node in node_directories(run_directory):
        for name in (EVENTS_FILE, ON_FILE, CONFIG_FILE):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(node, name))
        if node != run_directory:
            with contextlib.suppress(OSError):
                os.rmdir(node)


def must_be_ours(run_directory: str) -> None:
    """What is in a run directory decides what is written, and where: somebody else's is left alone."""
    try:
        found = os.stat(run_directory)
    except OSError:
        return  # whoever needs it says so
    if found.st_uid != os.geteuid():
        raise UserError(f"{run_directory} belongs to another user (uid {found.st_uid}), and is left alone")
    if stat.S_ISDIR(found.st_mode) and found.st_mode & 0o022:
        # Like /tmp: its mode is right, and no advice to change it may be given.
        if not is_run(run_directory):
            raise UserError(f"{run_directory} is not the run directory of a run (there is no control page)")
        raise UserError(f"{run_directory} can be written by others, and is left alone")


def make_run_directory(stage: str, run_id: str, origin: str | None = None) -> str:
    """A new run directory below ``stage``, which the config names at ``origin``. One elsewhere than in /dev/shm gets a link
    there, so that ``advectio status`` finds it without knowing the config."""
    where = f"{origin}: stage.directory {stage}" if origin else f"stage.directory {stage}"
    if not os.path.isdir(stage):
        raise UserError(f"{where} {'is not a directory' if os.path.lexists(stage) else 'does not exist'}")
    parent = user_directory(stage)
    path = os.path.join(parent, run_id)
    try:
        make_private(parent)
        os.mkdir(path, 0o700)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    except OSError as error:
        raise UserError(f"{where}: cannot make the run directory {path}: {error.strerror}") from error
    if os.path.realpath(stage) != os.path.realpath("/dev/shm"):
        remember(path)
    return path


def remember(run_directory: str) -> None:
    """Best effort: only ``status`` without an argument needs it."""
    with contextlib.suppress(OSError, UserError):
        make_private(user_directory())
        drop_dangling_links()
        os.symlink(os.path.abspath(run_directory), os.path.join(user_directory(), os.path.basename(run_directory)))


def drop_dangling_links() -> None:
    """Links to runs that are over and whose supervisor could not remove them."""
    for entry in os.scandir(user_directory()):
        if entry.is_symlink() and not os.path.exists(entry.path):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(entry.path)


def servers_of(run_directory: str) -> dict[str, Any] | None:
    """What nodes.py has written down about the servers of a run; None: there is one."""
    try:
        with open(os.path.join(run_directory, SERVERS_FILE), encoding="utf-8") as file:
            said: dict[str, Any] = json.load(file)
            return said
    except (OSError, ValueError):
        return None


def node_directories(run_directory: str) -> list[str]:
    """Those of them that are on this machine: the first has the socket. Of simulated nodes each has one of its own."""
    said = servers_of(run_directory)
    if said is None or said["simulated"] is None:
        return [run_directory]
    return [os.path.join(run_directory, name) for name in said["hosts"]]


def control_directory(run_directory: str) -> str:
    return node_directories(run_directory)[0]


def remove(run_directory: str) -> None:
    """An empty run directory, and the link to it. The user's directory above stays: another run may be about to use it."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(run_directory, INNER_FILE))
    with contextlib.suppress(OSError):
        left = set(os.listdir(run_directory))
        if SERVERS_FILE in left and left <= {SERVERS_FILE, CONFIG_FILE}:
            for name in left:
                os.unlink(os.path.join(run_directory, name))
    with contextlib.suppress(OSError):
        os.rmdir(run_directory)
    link = os.path.join(user_directory(), os.path.basename(run_directory))
    if os.path.islink(link) and not os.path.exists(link):
        with contextlib.suppress(OSError):
            os.unlink(link)


def filesystem(path: str) -> str:
    """Its kind, as the kernel calls it."""
    best, kind = "", ""
    real = os.path.realpath(path)
    with contextlib.suppress(OSError), open("/proc/self/mounts", encoding="utf-8", errors="replace") as mounts:
        for line in mounts:
            _, where, what, *_ = line.split()
            if (real == where or real.startswith(where.rstrip("/") + "/")) and len(where) >= len(best):
                best, kind = where, what
    return kind


_IN_MEMORY = {0x01021994: "tmpfs", 0x858458F6: "ramfs"}  # statfs(2)


def in_memory(path: str) -> str | None:
    """The kind of a file system whose files are gone when the node restarts; None: it is another one."""
    libc = ctypes.CDLL(None, use_errno=True)
    told = ctypes.create_string_buffer(256)  # struct statfs, which begins with f_type
    if libc.statfs(os.fsencode(path), told) != 0:
        raise UserError(f"{path}: {os.strerror(ctypes.get_errno())}")
    return _IN_MEMORY.get(ctypes.c_ulong.from_buffer(told).value & 0xFFFFFFFF)


# Every node sees the same files there.
_SHARED = {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "panfs", "pvfs2", "afs", "fuse.glusterfs", "fuse.sshfs"}


def shared_filesystem(path: str) -> str | None:
    kind = filesystem(path)
    return kind if kind in _SHARED else None


def runs() -> list[str]:
    """Run directories of this user on this node, the newest first."""
    parent = user_directory()
    found: list[tuple[float, str]] = []
    try:
        drop_dangling_links()
        names = os.listdir(parent)
    except OSError:
        return []
    for name in names:
        path = os.path.join(parent, name)
        if name.startswith("."):
            continue
        with contextlib.suppress(OSError):  # it has ended just now
            state = os.stat(path)
            if stat.S_ISDIR(state.st_mode):
                found.append((state.st_mtime, os.path.realpath(path)))
    return [path for _, path in sorted(found, reverse=True)]
