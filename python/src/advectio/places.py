"""Run directories: where they are made, and which of this user are there. Light: also used in front of every rank."""

import contextlib
import os
import stat

from advectio.errors import UserError

CONFIG_FILE = "advectio.yaml"


def config_file(option: str | None) -> str | None:
    """The config that holds: the one named, else ADVECTIO_CONFIG, else ./advectio.yaml where there is one."""
    if option:
        return option
    named = os.environ.get("ADVECTIO_CONFIG")
    if named:
        return named
    return CONFIG_FILE if os.path.isfile(CONFIG_FILE) else None


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


def make_run_directory(stage: str, run_id: str) -> str:
    """A new run directory below ``stage``. One elsewhere than in /dev/shm gets a link there, so that ``advectio status``
    finds it without knowing the config."""
    if not os.path.isdir(stage):
        raise UserError(f"stage.directory {stage} is not a directory")
    parent = user_directory(stage)
    make_private(parent)
    path = os.path.join(parent, run_id)
    try:
        os.mkdir(path, 0o700)
    except OSError as error:
        raise UserError(f"cannot make the run directory {path}: {error.strerror}") from error
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


def remove(run_directory: str) -> None:
    """An empty run directory, and the link to it. The user's directory above stays: another run may be about to use it."""
    with contextlib.suppress(OSError):
        os.rmdir(run_directory)
    link = os.path.join(user_directory(), os.path.basename(run_directory))
    if os.path.islink(link) and not os.path.exists(link):
        with contextlib.suppress(OSError):
            os.unlink(link)


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
        if os.path.isdir(path):
            found.append((os.stat(path).st_mtime, os.path.realpath(path)))
    return [path for _, path in sorted(found, reverse=True)]
