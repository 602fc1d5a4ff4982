"""Sets of files that are complete together (the config's ``sets``): one of each pattern, of one instant, of all members. A run
follows its events, and notes in the set's record (set_record.py) which files are on the disk."""

import json
import os
import re
import socket
import time
from collections.abc import Collection
from typing import Any

from advectio import places
from advectio.errors import UserError
from advectio.events import Event, is_locked
from advectio.protocol import HalfSet, MissingPart, SetReport
from advectio.set_record import (
    Place,
    RecordedPart,
    RecordedRun,
    Rule,
    SetRecord,
    drop,
    force_names,
    ids,
    inode_of,
    missing,
    part_of,
)

LATE_S = 10.0  # a file that is complete, and of which no server says by then that it is on the disk, is forced there here


def rules(raw: dict[str, Any], directory: str) -> list[Rule]:
    """``raw``: what advectiod has read of the config."""

    def absolute(path: str) -> str:
        return os.path.abspath(os.path.join(directory, path))

    return [
        Rule(s["name"], s["match"], absolute(s["link"]), s["pointer"] and absolute(s["pointer"]), s["keep"], s["members"])
        for s in raw.get("sets", [])
    ]


def keepers(raw: dict[str, Any], directory: str, run_directory: str, member: str) -> "list[Keeper]":
    return [Keeper(rule, run_directory, member) for rule in rules(raw, directory)]


def member_of(raw: dict[str, Any], option: str | None) -> str:
    """Name of this program, where sets have members. Refuses what does not fit."""
    named = next((e["value"] for e in raw["values"] if e["key"] == "workflow.name" and e["value"] != "null"), "")
    name = option or (json.loads(named) if named.startswith('"') else named)
    for s in raw.get("sets", []):
        if not s["members"]:
            continue
        listed = ", ".join(s["members"])
        if not name:
            raise UserError(f"{s['origin']}: set {s['name']} has members ({listed}): say which one this run is, --as NAME")
        if name not in s["members"]:
            raise UserError(f"{s['origin']}: --as {name}: set {s['name']} has no such member; they are {listed}")
    return name


def instant_of(pattern: str, path: str) -> str | None:
    """The text in the place of {instant}; None: the file does not match."""
    before, after = pattern.split("{instant}")
    text = path if "/" in pattern else os.path.basename(path)
    found = re.fullmatch(f"{_regex(before)}(?P<instant>[^/]+){_regex(after)}", text, re.DOTALL)
    return found["instant"] if found else None


_WORD = re.compile(r"\\(?P<plain>.)|\[(?P<not>[!^]?)(?P<set>\]?[^]]*)\]|(?P<any>[*?])|(?P<other>.)", re.DOTALL)


def _regex(pattern: str) -> str:
    """Of a pattern of fnmatch(3), whose backslash Python's `fnmatch` does not know."""
    out = ""
    for word in _WORD.finditer(pattern):
        if word["any"]:
            out += ".*" if word["any"] == "*" else "."
        elif word["set"] is not None:
            chars = re.sub(r"([\\\[\]^&~|])", r"\\\1", word["set"])
            out += f"[{'^' if word['not'] else ''}{chars}]"
        else:
            out += re.escape(word["plain"] or word["other"])
    return out


class Keeper:
    """One set, as one run has part in it."""

    def __init__(self, rule: Rule, run_directory: str, member: str = "") -> None:
        self.rule = rule
        self._place = Place(rule)
        self._run = os.path.abspath(run_directory)
        self._member = member if rule.members else ""
        self._late: dict[str, float] = {}  # id → when it was complete
        self._incomplete: set[str] = set()  # ids of files in which frames are missing

    def check(self) -> None:
        """Before anything is begun. Raises UserError."""
        self._place.check()

    def begin(self) -> None:
        """Before the model starts. Files that an earlier run of this program has left of sets that are not whole count no more:
        this one writes them anew. Raises UserError."""
        with self._place.turn() as record:
            of_member = [r for r in record["runs"] if r["member"] == self._member]
            over = [r for r in of_member if r["run"] == self._run or not _goes_on(r)]
            for r in of_member:
                if r not in over and not r.get("left"):
                    self._place.warn(f"another run of it is under way ({r['run']}); files of both are in it")
            record["runs"] = [r for r in record["runs"] if r not in over]
            runs = {r["run"] for r in over}
            drop(record, lambda p: p["member"] == self._member and p["run"] in runs)
            record["runs"].append({"run": self._run, "host": socket.gethostname(), "member": self._member})
            record["members"][self._member] = self.rule.match

    def take_up(self) -> bool:
        """For recover and drain. False: the record knows nothing of the run."""
        of_run = [r for r in self._place.read()["runs"] if r["run"] == self._run]
        if of_run:
            self._member = of_run[0]["member"]
        return bool(of_run)

    def note(self, event: Event) -> bool:
        """True where the event was of the set. Raises UserError."""
        if "path" not in event or "id" not in event:
            return False
        match, instant = self._matched(event["path"])
        if instant is None:
            return False
        what, key = event["event"], f"{event.get('node', '')}{event['id']}"
        if what == "begun":
            self._begin_part(event, match, instant, key)
        elif what == "left_out":
            self._incomplete.add(key)
        elif what == "complete":
            self._complete_part(event, key)
        elif what == "durable" and event.get("complete"):
            self._end_part(key, durable=True)
        elif what in ("removed", "dropped"):
            self._end_part(key, durable=False)
        elif what == "failed":
            self._fail_part(key)
        return True

    def look(self) -> None:
        """Now and then. Raises UserError."""
        now = time.monotonic()
        for key in [key for key, since in self._late.items() if now - since > LATE_S]:
            self._force(key)

    def end(self, over: bool, well: bool, left: bool = False) -> SetReport:
        """All events have been noted. ``over``: nothing of the run comes any more, and what it lacks it lacks for good. ``well``:
        its program has ended as it should, so that its files still count when the next one begins. ``left``: `advectio drain`
        writes the rest. Raises UserError."""
        for part in (p for h in self._place.read()["half"] for p in h["parts"]):
            if part["run"] == self._run and part["state"] == "complete":
                self._force(part["id"])
        with self._place.turn() as record:
            halves = self._halves(record, only_mine=True)
            if over:
                self._give_up(record)
            for r in [r for r in record["runs"] if r["run"] == self._run]:
                if left:
                    r["left"] = True
                elif over and (well or r.get("left")):
                    record["runs"].remove(r)
        return self._report(record, halves)

    def report(self) -> SetReport:
        """Of now, without any change."""
        record = self._place.read()
        return self._report(record, self._halves(record, only_mine=False))

    def _matched(self, path: str) -> tuple[str, str | None]:
        for match in self.rule.match:
            instant = instant_of(match, path)
            if instant is not None:
                return match, instant
        return "", None

    def _begin_part(self, event: Event, match: str, instant: str, key: str) -> None:
        with self._place.turn() as record:
            if not self._counts(record) or key in ids(record):
                return
            self._place.forget_linked(record, event["path"])
            half = next((h for h in record["half"] if h["instant"] == instant), None)
            if half is None:
                half = {"instant": instant, "parts": []}
                record["half"].append(half)
            for p in [p for p in half["parts"] if p["member"] == self._member]:
                if p["match"] == match and p["run"] == self._run and p["path"] != event["path"]:
                    self._place.warn(f"{p['path']} and {event['path']} both match {match}; only the latter is in the set")
                if p["match"] == match or p["run"] != self._run:
                    half["parts"].remove(p)
            half["parts"].append(
                {
                    "member": self._member,
                    "match": match,
                    "path": event["path"],
                    "inode": event.get("inode", 0),
                    "created": event.get("created", ""),
                    "run": self._run,
                    "id": key,
                    "state": "begun",
                }
            )

    def _counts(self, record: SetRecord) -> bool:
        if any(r["run"] == self._run for r in record["runs"]):
            return True
        self._place.warn("a later run of this program has begun; the files of this one are in no set")
        return False

    def _complete_part(self, event: Event, key: str) -> None:
        is_store = "in_place_of" in event
        if is_store:
            self._place.warn(f"{event['path']} is a directory; a set has files only")
        with self._place.turn() as record:
            part = part_of(record, key)
            if part is None:
                return
            whole = event.get("closed") and key not in self._incomplete and not is_store
            if whole and inode_of(part["path"]) == part["inode"]:
                part["state"] = "complete"
                self._late[key] = time.monotonic()
                return
            if whole:
                self._place.warn(f"{part['path']} is not there any more, and is in no set: it has been renamed or removed")
            drop(record, lambda p: p["id"] == key)

    def _end_part(self, key: str, durable: bool) -> None:
        with self._place.turn() as record:
            part = part_of(record, key)
            if durable and part and part["state"] == "complete":
                part["state"] = "durable"
            if not durable:
                drop(record, lambda p: p["id"] == key)
        self._late.pop(key, None)

    def _fail_part(self, key: str) -> None:
        """One that is not complete is tried again. One that is complete the disk has refused."""
        with self._place.turn() as record:
            drop(record, lambda p: p["id"] == key and p["state"] == "complete")

    def _force(self, key: str) -> None:
        """To the disk: the server that has completed the file has died before it could say that it is there."""
        part = part_of(self._place.read(), key)
        self._late.pop(key, None)
        if part:
            self._end_part(key, durable=self._is_forced(part))

    def _is_forced(self, part: RecordedPart) -> bool:
        try:
            fd = os.open(part["path"], os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
                is_same = os.fstat(fd).st_ino == part["inode"]
            finally:
                os.close(fd)
            force_names(os.path.dirname(part["path"]))
        except OSError as error:
            self._place.warn(f"{part['path']}: {error.strerror}")
            return False
        return is_same

    def _give_up(self, record: SetRecord) -> None:
        """Of a set in which something of this run is missing, the run writes no more."""
        for half in record["half"]:
            mine = [p for p in half["parts"] if p["run"] == self._run]
            if sum(p["state"] == "durable" for p in mine) < len(self.rule.match):
                half["parts"] = [p for p in half["parts"] if p["run"] != self._run]
        record["half"] = [h for h in record["half"] if h["parts"]]

    def _halves(self, record: SetRecord, only_mine: bool) -> list[HalfSet]:
        return [
            {"instant": h["instant"], "missing": missing(record, h, self.rule.members)}
            for h in record["half"]
            if not only_mine or any(p["run"] == self._run for p in h["parts"])
        ]

    def _report(self, record: SetRecord, halves: list[HalfSet]) -> SetReport:
        newest = record["whole"][-1] if record["whole"] else None
        place = os.path.join(self._place.directory, newest["directory"]) if newest else ""
        return {
            "name": self.rule.name,
            "link": self.rule.link,
            "newest": newest["instant"] if newest else None,
            "files": [os.path.join(place, f["name"]) for f in newest["files"]] if newest else [],
            "half": halves,
        }


def _goes_on(run: RecordedRun) -> bool:
    """Something of it may still come."""
    if run.get("left"):
        return os.path.isdir(run["run"])
    if run["host"] != socket.gethostname():
        return False
    return any(is_locked(os.path.join(node, "server.lock")) for node in places.node_directories(run["run"]))


def lines_of(report: SetReport, staged: Collection[str] = ()) -> list[str]:
    """For people. ``staged``: files of which all is in the stage."""
    newest = report["newest"]
    told = [f"set {report['name']}: the newest whole one is {newest}" if newest else f"set {report['name']}: none is whole"]
    for half in report["half"]:
        lacks = ", ".join(_part_text(p, staged) for p in half["missing"])
        told.append(f"set {report['name']}: {half['instant']} is half; it lacks {lacks}")
    return told


def _part_text(part: MissingPart, staged: Collection[str]) -> str:
    member = f" of {part['member']}" if part["member"] else ""
    if part["match"] is None:
        return f"all{member}"
    there = " (all of it is in the stage)" if part["path"] in staged else ""
    return f"{os.path.basename(part['path']) if part['path'] else part['match']}{member}{there}"
