"""The config's ``stage.in`` and ``stage.out``: files and directory trees that are copied before the command starts and after it
has ended. What is copied appears under its name as a whole or not at all."""

import contextlib
import errno
import glob
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from advectio.errors import UserError
from advectio.protocol import Transferred
from advectio.quantities import size_text
from advectio.worker import View

_BLOCK = 8 << 20
_OWN_NAMES = re.compile(r"\..*\.advectio-.*")  # hard links of files in flight, and our own unfinished copies


@dataclass(frozen=True)
class Rule:
    """One entry of the config. A relative pattern or directory begins where ``advectio run`` was started."""

    source: str
    to: str

    def within(self, directory: str) -> "Rule":
        return Rule(*(os.path.join(directory, _expanded(text)) for text in (self.source, self.to)))


@dataclass(frozen=True)
class Copy:
    source: str
    target: str
    bytes: int


@dataclass
class Plan:
    copies: list[Copy] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # file or pattern: why

    @property
    def bytes(self) -> int:
        return sum(c.bytes for c in self.copies)


@dataclass
class Outcome:
    files: int = 0
    bytes: int = 0
    failed: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> Transferred:
        return {
            "files": self.files,
            "bytes": self.bytes,
            "failed": [{"file": name, "error": why} for name, why in self.failed.items()],
        }


def rules(raw: dict[str, Any], which: str, directory: str) -> list[Rule]:
    """``which``: in or out. ``raw``: what advectiod has read of the config."""
    found = raw.get("transfers", {}).get(which, [])
    return [Rule(entry["from"], entry["to"]).within(directory) for entry in found]


def _expanded(text: str) -> str:
    done = os.path.expanduser(os.path.expandvars(text))
    if "$" in done:
        raise UserError(f"stage.in, stage.out: {text}: no such environment variable")
    return done


def plan(wanted: Sequence[Rule], skip: Collection[str] = ()) -> Plan:
    """What the patterns match now. ``skip``: real paths that must not be copied yet."""
    result = Plan()
    targets: dict[str, str] = {}
    for rule in wanted:
        matching = sorted(glob.glob(rule.source, recursive=True))
        if not matching:
            result.failed[rule.source] = "matches nothing"
        for match in matching:
            for source, name in _files_of(match, result.failed):
                target = os.path.join(rule.to, name)
                if os.path.realpath(source) in skip:
                    result.failed[source] = "is not complete: it waits in Advectio's stage"
                elif target in targets:
                    result.failed[source] = f"would become {target}, as {targets[target]} does"
                elif _same_file(source, target):
                    result.failed[source] = "would be copied onto itself"
                else:
                    targets[target] = source
                    result.copies.append(Copy(source, target, os.stat(source).st_size))
    return result


def _same_file(a: str, b: str) -> bool:
    try:
        return os.path.samefile(a, b)
    except OSError:
        return False


def _files_of(match: str, failed: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The file itself, or all files of the tree, by their names below ``to``. Symbolic links are followed."""
    top = os.path.basename(os.path.abspath(match))
    if not os.path.isdir(match):
        if _readable_file(match, failed):
            yield match, top
        return
    seen = {os.path.realpath(match)}
    for path, directories, names in os.walk(match, followlinks=True):
        inner = [(name, os.path.realpath(os.path.join(path, name))) for name in sorted(directories)]
        directories[:] = [name for name, real in inner if real not in seen]  # a link to above would go on for ever
        seen.update(real for _, real in inner)
        below = os.path.join(top, os.path.relpath(path, match))
        for name in sorted(names):
            if not _OWN_NAMES.fullmatch(name) and _readable_file(os.path.join(path, name), failed):
                yield os.path.join(path, name), os.path.normpath(os.path.join(below, name))


def _readable_file(path: str, failed: dict[str, str]) -> bool:
    try:
        found = os.stat(path)
    except OSError as error:
        failed[path] = str(error.strerror)
        return False
    if not stat.S_ISREG(found.st_mode):
        failed[path] = "is neither a file nor a directory"
        return False
    return True


def shortage(wanted: Plan) -> str | None:
    """What of it would not fit where it is to go."""
    needed: dict[int, int] = {}
    places: dict[int, str] = {}
    for copy in wanted.copies:
        there = existing(os.path.dirname(copy.target))
        device = os.stat(there).st_dev
        places.setdefault(device, there)
        with contextlib.suppress(OSError):
            if _is_done(os.stat(copy.source), os.stat(copy.target)):
                continue
        needed[device] = needed.get(device, 0) + copy.bytes
    for device, count in needed.items():
        space = os.statvfs(places[device])
        free = space.f_bavail * space.f_frsize
        if count > free:
            return f"{size_text(count)} are to be copied to {places[device]}, where {size_text(free)} are free"
    return None


def existing(directory: str) -> str:
    while not os.path.isdir(directory) and directory != os.path.dirname(directory):
        directory = os.path.dirname(directory)
    return directory


def stage_in(wanted: Sequence[Rule], shown: bool) -> Outcome:
    """All of it, or an error before the command starts."""
    found = plan(wanted)
    if found.failed:
        raise UserError("; ".join(f"stage.in: {name}: {why}" for name, why in list(found.failed.items())[:3]))
    lacking = shortage(found)
    if lacking:
        raise UserError(f"stage.in: {lacking}")
    try:
        done = _copy_all(found, "copying in", shown, durable=False, interrupted=lambda: False)
    except KeyboardInterrupt:
        raise UserError("interrupted while copying in (stage.in); the command was not started", 130) from None
    if done.failed:
        raise UserError("; ".join(f"stage.in: {name}: {why}" for name, why in list(done.failed.items())[:3]))
    return done


def stage_out(wanted: Sequence[Rule], skip: Collection[str], shown: bool, interrupted: Callable[[], bool]) -> Outcome:
    """As much of it as can be: what fails does not stop the rest."""
    found = plan(wanted, skip)
    return _copy_all(found, "copying out", shown, durable=True, interrupted=interrupted)


def _copy_all(wanted: Plan, title: str, shown: bool, *, durable: bool, interrupted: Callable[[], bool]) -> Outcome:
    result = Outcome(failed=dict(wanted.failed))
    directories: set[str] = set()
    with View(shown and wanted.bytes > 64 << 20) as view:
        view.begin(title)
        stopped = False
        for copy in wanted.copies:
            stopped = stopped or interrupted()
            if stopped:
                result.failed[copy.source] = "not copied: interrupted"
                continue
            before = result.bytes

            def progress(done: int, before: int = before) -> None:
                view.update(before + done, wanted.bytes)

            try:
                _copy(copy, durable, progress)
            except OSError as error:
                result.failed[copy.source] = _why(error, copy)
                continue
            result.files += 1
            result.bytes += copy.bytes
            directories.add(os.path.dirname(copy.target))
    for directory in directories if durable else ():
        _sync_directory(directory)
    return result


def _why(error: OSError, copy: Copy) -> str:
    text = str(error.strerror or error)
    return text if error.filename in (None, copy.source) else f"{error.filename}: {text}"


def _is_done(source: os.stat_result, target: os.stat_result) -> bool:
    return source.st_size == target.st_size and source.st_mtime_ns == target.st_mtime_ns


def _copy(copy: Copy, durable: bool, progress: Callable[[int], None]) -> None:
    directory, name = os.path.split(copy.target)
    os.makedirs(directory, exist_ok=True)
    with open(copy.source, "rb") as source:
        before = os.fstat(source.fileno())
        with contextlib.suppress(FileNotFoundError):
            there = os.stat(copy.target)
            if _is_done(before, there):
                return
            if there.st_mtime_ns > before.st_mtime_ns:
                raise OSError(errno.EEXIST, "is there already, newer than what would replace it; it is kept", copy.target)
        hidden = os.path.join(directory, f".{name}.advectio-{os.getpid()}")
        try:
            with open(os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IMODE(before.st_mode)), "wb") as target:
                count = 0
                while block := source.read(_BLOCK):
                    target.write(block)
                    count += len(block)
                    progress(count)
                    if count > before.st_size:
                        break  # it grows; perhaps as fast as we read
                target.flush()
                after = os.fstat(source.fileno())
                if count != before.st_size or (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
                    raise OSError(errno.EBUSY, "was changed while it was copied", copy.source)
                if durable:
                    os.fsync(target.fileno())
            os.utime(hidden, ns=(before.st_atime_ns, before.st_mtime_ns))
            if os.stat(hidden).st_size != before.st_size:
                raise OSError(errno.EIO, "has not the size of what was copied", copy.target)
            os.replace(hidden, copy.target)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(hidden)
            raise


def _sync_directory(directory: str) -> None:
    with contextlib.suppress(OSError):  # not every file system can; the files themselves are synced
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
