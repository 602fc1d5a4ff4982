"""What is on the disk of a set of files (sets.py). Beside its link lies a directory ``.LINK.sets`` with the record, its lock, and a
directory for each whole set. That has hard links to the files: one that is made anew or removed leaves the set as it is.

All runs that have part in the set share the record, on whatever node. Each change is made under the lock: first the record, then
the link, then what is to go. What a death leaves undone, the next change does.
"""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from typing import NamedTuple, NotRequired, TypedDict

from advectio.errors import UserError, say
from advectio.protocol import MissingPart

VERSION = 1
RECORD, LOCK, NEW, NEW_LINK = ".record.json", ".lock", ".new", ".link"
PREVIOUS = 2  # whole sets that are remembered where nothing is to be removed: the newest, and the one before
HALF_MAX = 32


class Rule(NamedTuple):
    """One of the config's ``sets``."""

    name: str
    match: list[str]
    link: str  # absolute
    pointer: str | None
    keep: int | None
    members: list[str]


class RecordedPart(TypedDict):
    """A file of a set that is not whole."""

    member: str
    match: str
    path: str
    inode: int
    created: str  # by its program, UTC
    run: str
    id: str
    state: str  # begun, complete, durable


class RecordedHalf(TypedDict):
    instant: str
    parts: list[RecordedPart]


class RecordedFile(TypedDict):
    member: str
    path: str
    name: str  # in the set's directory
    inode: int
    size: int
    modified_ns: int
    id: str


class RecordedSet(TypedDict):
    """A whole one."""

    instant: str
    created: str  # its last file
    directory: str  # beside the record
    files: list[RecordedFile]


class RecordedRun(TypedDict):
    """One whose files count."""

    run: str
    host: str
    member: str
    left: NotRequired[bool]  # it has ended well, and `advectio drain` writes the rest


class SetRecord(TypedDict):
    version: int
    set: str
    members: dict[str, list[str]]  # patterns of each
    runs: list[RecordedRun]
    half: list[RecordedHalf]
    whole: list[RecordedSet]  # the newest is the last


def created(half: RecordedHalf) -> str:
    """When its last file was. That is the order of sets, whenever they are complete: a server that takes up what another has left
    tells of files in any order."""
    return max(part["created"] for part in half["parts"])


def ids(record: SetRecord) -> set[str]:
    return {p["id"] for h in record["half"] for p in h["parts"]} | {f["id"] for w in record["whole"] for f in w["files"]}


def part_of(record: SetRecord, key: str) -> RecordedPart | None:
    return next((p for h in record["half"] for p in h["parts"] if p["id"] == key), None)


def drop(record: SetRecord, goes: Callable[[RecordedPart], bool]) -> None:
    for half in record["half"]:
        half["parts"] = [p for p in half["parts"] if not goes(p)]
    record["half"] = [h for h in record["half"] if h["parts"]]


def missing(record: SetRecord, half: RecordedHalf, members: list[str]) -> list[MissingPart]:
    found: list[MissingPart] = []
    for member in members or [""]:
        patterns = record["members"].get(member)
        if patterns is None:
            found.append({"member": member, "match": None, "path": None})
        for match in patterns or []:
            part = next((p for p in half["parts"] if p["member"] == member and p["match"] == match), None)
            if part is None or part["state"] != "durable":
                found.append({"member": member, "match": match, "path": part["path"] if part else None})
    return found


def inode_of(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def force_names(directory: str) -> None:
    """To the disk."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Place:
    """Where a set is kept."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.directory = os.path.join(os.path.dirname(rule.link), f".{os.path.basename(rule.link)}.sets")
        self._said: set[str] = set()

    def warn(self, text: str) -> None:
        """Once."""
        if text not in self._said:
            self._said.add(text)
            say("warning", f"set {self.rule.name}: {text}")

    def check(self) -> None:
        """Before anything is begun. Raises UserError."""
        where = f"set {self.rule.name}"
        for path in [self.rule.link, *([self.rule.pointer] if self.rule.pointer else [])]:
            directory = os.path.dirname(path)
            if not os.path.isdir(directory):
                raise UserError(f"{where}: {path}: {directory} is not a directory")
            if not os.access(directory, os.W_OK | os.X_OK):
                raise UserError(f"{where}: {path}: you may not write in {directory}")
        if self.rule.pointer and os.path.isdir(self.rule.pointer):
            raise UserError(f"{where}: pointer {self.rule.pointer} is a directory")
        self._check_link()
        self.read()

    def _check_link(self) -> None:
        link = self.rule.link
        if not os.path.lexists(link):
            return
        where = f"set {self.rule.name}: {link}"
        if not os.path.islink(link):
            raise UserError(f"{where} is there and no symbolic link; remove it, or name another link")
        if os.path.dirname(os.readlink(link)) != os.path.basename(self.directory):
            raise UserError(
                f"{where} leads to {os.readlink(link)}, which Advectio has not made; remove it, or name another link"
            )

    def read(self) -> SetRecord:
        """It may change at once, outside of a turn."""
        name, path = self.rule.name, os.path.join(self.directory, RECORD)
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                found = json.load(file)
        except FileNotFoundError:
            return {"version": VERSION, "set": name, "members": {}, "runs": [], "half": [], "whole": []}
        except OSError as error:
            raise UserError(f"set {name}: {path}: {error.strerror}") from error
        except ValueError:
            raise UserError(f"set {name}: {path} is no record; remove {self.directory} to begin anew") from None
        if not isinstance(found, dict) or found.get("version") != VERSION:
            raise UserError(f"set {name}: {path} was made by another version of Advectio; remove {self.directory}")
        if found["set"] != name:
            raise UserError(f"set {name}: {self.rule.link} is the link of set {found['set']}; name another one")
        record: SetRecord = found  # type: ignore[assignment]
        return record

    @contextlib.contextmanager
    def turn(self) -> Iterator[SetRecord]:
        """One at a time changes the record. What follows from the change is done at the end. Raises UserError."""
        fd = -1
        try:
            os.makedirs(self.directory, exist_ok=True)
            fd = os.open(os.path.join(self.directory, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            fcntl.flock(fd, fcntl.LOCK_EX)
            record = self.read()
            yield record
            self._settle(record)
        except OSError as error:
            raise UserError(f"set {self.rule.name}: {error.filename or self.directory}: {error.strerror}") from error
        finally:
            if fd >= 0:
                os.close(fd)

    def forget_linked(self, record: SetRecord, path: str) -> None:
        """Of sets without hard links that which had the file of that name, which is made anew."""
        for whole in list(record["whole"]):
            names = [f["name"] for f in whole["files"] if f["path"] == path]
            if any(os.path.islink(os.path.join(self.directory, whole["directory"], name)) for name in names):
                record["whole"].remove(whole)

    def _settle(self, record: SetRecord) -> None:
        for half in sorted(record["half"], key=created):
            if not missing(record, half, self.rule.members):
                record["half"].remove(half)
                self._complete(record, half)
        record["half"] = sorted(record["half"], key=created)[-HALF_MAX:]
        self._forget_bad(record)
        old = record["whole"][: -(self.rule.keep or PREVIOUS)]
        self._save(record)
        self._lead(record["whole"][-1] if record["whole"] else None)
        if self.rule.keep:
            for whole in old:
                self._remove_files(whole)
        if old:
            record["whole"] = record["whole"][len(old) :]
            self._save(record)
        self._clear(record)

    def _forget_bad(self, record: SetRecord) -> None:
        """Sets that are not whole any more, and those of which a newer one has the same instant."""
        for whole in list(record["whole"]):
            if bad := self._what_is_wrong(whole):
                record["whole"].remove(whole)
                self.warn(f"{whole['instant']} is not whole any more: {bad}")
        newest = {w["instant"]: w for w in record["whole"]}
        record["whole"] = [w for w in record["whole"] if newest[w["instant"]] is w]

    def _what_is_wrong(self, whole: RecordedSet) -> str:
        for file in whole["files"]:
            path = os.path.join(self.directory, whole["directory"], file["name"])
            try:
                about = os.stat(path)
            except OSError as error:
                return f"{path}: {error.strerror}"
            if (about.st_ino, about.st_size) != (file["inode"], file["size"]):
                return f"{file['path']} has been written over"
        return ""

    def _complete(self, record: SetRecord, half: RecordedHalf) -> None:
        """Makes its directory, and puts it into the record."""
        making = os.path.join(self.directory, NEW)
        shutil.rmtree(making, ignore_errors=True)
        os.mkdir(making)
        files = self._take_parts(half, making)
        if not files:
            shutil.rmtree(making, ignore_errors=True)
            return
        name = half["instant"] if not half["instant"].startswith(".") else f"_{half['instant']}"
        if any(w["directory"] == name for w in record["whole"]):
            name = f"{name}.{created(half)}"
        there = os.path.join(self.directory, name)
        shutil.rmtree(there, ignore_errors=True)  # of a death before the record had it
        os.rename(making, there)
        force_names(self.directory)
        record["whole"].append({"instant": half["instant"], "created": created(half), "directory": name, "files": files})
        record["whole"].sort(key=lambda w: w["created"])

    def _take_parts(self, half: RecordedHalf, making: str) -> list[RecordedFile]:
        """Empty: it is not whole, which is said."""
        files: list[RecordedFile] = []
        for part in sorted(half["parts"], key=lambda p: (p["member"], p["match"])):
            name = os.path.join(part["member"], os.path.basename(part["path"]))
            there = os.path.join(making, name)
            os.makedirs(os.path.dirname(there), exist_ok=True)
            if wrong := self._take(part, there):
                self.warn(f"{half['instant']} is not whole: {wrong}")
                return []
            about = os.stat(there)
            files.append(
                {
                    "member": part["member"],
                    "path": part["path"],
                    "name": name,
                    "inode": part["inode"],
                    "size": about.st_size,
                    "modified_ns": about.st_mtime_ns,
                    "id": part["id"],
                }
            )
        for directory in {os.path.dirname(os.path.join(making, f["name"])) for f in files} | {making}:
            force_names(directory)
        return files

    def _take(self, part: RecordedPart, there: str) -> str:
        """The part as a file of a set's directory. Returns what is wrong; empty: nothing."""
        try:
            os.link(part["path"], there)
        except FileExistsError:
            return f"two of its files are called {os.path.basename(there)}"
        except FileNotFoundError:
            return f"{part['path']} has been removed"
        except OSError as error:
            self.warn(
                f"{part['path']} cannot have a hard link in {self.directory} ({error.strerror}): the set has a symbolic link in "
                "its place, and lasts until the file is removed or made anew"
            )
            os.symlink(part["path"], there)
        return "" if inode_of(there) == part["inode"] else f"{part['path']} is another file by now"

    def _lead(self, newest: RecordedSet | None) -> None:
        """The link and the pointer to it."""
        self._check_link()
        link, pointer = self.rule.link, self.rule.pointer
        if newest is None:
            for name in (link, pointer):
                if name and os.path.lexists(name):
                    os.unlink(name)
            return
        target = os.path.join(os.path.basename(self.directory), newest["directory"])
        if not os.path.islink(link) or os.readlink(link) != target:
            made = os.path.join(self.directory, NEW_LINK)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(made)
            os.symlink(target, made)
            os.replace(made, link)
            force_names(os.path.dirname(link))
        lines = "".join(os.path.join(self.directory, newest["directory"], f["name"]) + "\n" for f in newest["files"])
        if pointer and _text_of(pointer) != lines:
            _write(pointer, lines)

    def _remove_files(self, whole: RecordedSet) -> None:
        """Of a set that is older than those to be kept. A file that was made anew under the name is another one; it may have the
        inode of the one before."""
        for file in whole["files"]:
            with contextlib.suppress(FileNotFoundError):
                about = os.stat(file["path"])
                known = (file["inode"], file["size"], file["modified_ns"])
                if (about.st_ino, about.st_size, about.st_mtime_ns) == known:
                    os.unlink(file["path"])

    def _clear(self, record: SetRecord) -> None:
        """Directories of sets that are none any more."""
        for name in set(os.listdir(self.directory)) - {w["directory"] for w in record["whole"]}:
            path = os.path.join(self.directory, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)

    def _save(self, record: SetRecord) -> None:
        _write(os.path.join(self.directory, RECORD), json.dumps(record, indent=1) + "\n")


def _text_of(path: str) -> str | None:
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()
    return None


def _write(path: str, text: str) -> None:
    """In place of what is there, at once or not at all."""
    temporary = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.new")
    with open(temporary, "w", encoding="utf-8", errors="surrogateescape") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    os.replace(temporary, path)
    force_names(os.path.dirname(path))
