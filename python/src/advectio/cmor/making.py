"""``advectio process`` with rules of ``cmor``: what each variable needs is made by advectiod, in a directory that goes in the end, and
written as the tables want it."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from advectio import installation
from advectio.cmor import attributes, rule
from advectio.cmor.layout import Layout, find
from advectio.cmor.rule import Rule, Wanted
from advectio.errors import UserError, say
from advectio.needs import for_cmor
from advectio.protocol import ProcessedOutput
from advectio.worker import INTERRUPTED, View, datasets, run_worker

if TYPE_CHECKING:
    from advectio import processing

SCRATCH = ".advectio-cmor-"  # below the output directory


class _Interrupted(Exception):
    """The worker was."""


def _end(*_: object) -> None:
    raise KeyboardInterrupt


class _Maker:
    def __init__(self, options: processing.Options, files: Sequence[str], scratch: str, view: View) -> None:
        self.options, self.files, self.scratch, self.view = options, files, scratch, view
        self.report: dict[str, Any] = {}
        self.outputs: list[ProcessedOutput] = []
        self.notes: dict[str, None] = {}  # what files do not have in common; each once, in order
        self.seconds = 0.0

    def advectiod(self, rule: Rule, wanted: Wanted, number: int, files: Sequence[str], *, trial: bool) -> list[ProcessedOutput]:
        """What it has made below the scratch directory, in the order of time."""
        rules = os.path.join(self.scratch, "rules.yaml")
        with open(rules, "w", encoding="utf-8") as file:
            file.write(rule.advectiod(wanted, number, trial=trial))
        options = self.options
        words = [installation.find().server, "process", "--rules", rules, "--output", self.scratch, "--force"]
        words += ["--memory", options.memory, *(["--jobs", str(options.jobs)] if options.jobs else [])]
        self.view.begin(wanted.name)
        ended = run_worker(words, files, self.view.update)
        if ended.code == INTERRUPTED:
            raise _Interrupted
        if ended.result is None:
            said = ended.error.replace(rules, options.rules).replace(f"cmor_{wanted.name}", wanted.name)
            raise UserError(said, ended.code)
        if not trial:
            self.report = ended.result
            self.notes |= dict.fromkeys(ended.result["notes"])
        self.seconds += ended.result["seconds"]
        return cast(list[ProcessedOutput], ended.result["outputs"])

    def try_(self, rule: Rule, wanted: Wanted, number: int) -> None:
        """Of one file, without statistics: do the files have what the table wants?"""
        for output in self.advectiod(rule, wanted, number, self.files[:1], trial=True):
            # Records of one file without statistics have no bounds.
            find(rule, wanted, output["path"], trial=True)
            os.unlink(output["path"])

    def make(self, rule: Rule, wanted: Wanted, number: int, version: str) -> None:
        general = attributes.of(rule, wanted)
        files = self.files[:1] if wanted.fixed else self.files
        for made in self.advectiod(rule, wanted, number, files, trial=False):
            layout = find(rule, wanted, made["path"])
            place = attributes.place(rule, general, time_range(wanted, layout), version)
            self.outputs.append(self.write(rule, wanted, layout, general, made, os.path.join(str(self.options.output), place)))
            os.unlink(made["path"])

    def write(
        self, rule: Rule, wanted: Wanted, layout: Layout, general: attributes.Attributes, made: ProcessedOutput, path: str
    ) -> ProcessedOutput:
        from advectio.cmor.writing import whole, write

        kept = os.path.exists(path) and self.options.keep
        if os.path.exists(path) and not kept and not self.options.force:
            raise UserError(f"{path} is there already; --force replaces it, --keep leaves it")
        if any(output["path"] == path for output in self.outputs):
            raise UserError(f"{wanted.origin}: {wanted.name}: {path} has been made by this command already")
        if not kept:
            with whole(path) as beside:
                warnings = write(made["path"], beside, rule, wanted, layout, general | attributes.of_this_file(rule))
            for warning in (*layout.warnings, *warnings):
                say("warning", warning)
        return {
            **made,
            "path": path,
            "format": "netCDF-4 classic model",
            "variables": 1,
            "records": 1 if wanted.fixed else made["records"],
            "kept": kept,
            "bytes_written": 0 if kept else os.path.getsize(path),
            "left_out": [],
        }


def time_range(wanted: Wanted, layout: Layout) -> str | None:
    """First and last time, as exact as the frequency wants: 200001-200012. None: no time."""
    if layout.dates is None or wanted.fixed:
        return None
    frequency = wanted.frequency.removesuffix("Pt")
    parts = {"yr": 1, "dec": 1, "mon": 2, "day": 3, "subhr": 6}.get(frequency, 5)

    def text(date: Any) -> str:
        date += datetime.timedelta(microseconds=500_000)  # to the second
        numbers = (date.month, date.day, date.hour, date.minute, date.second)
        return f"{date.year:04d}" + "".join(f"{number:02d}" for number in numbers[: parts - 1])

    return "-".join(map(text, layout.dates))


def process(options: processing.Options) -> int:
    """Exit code. Files, rules, tables and attributes are checked before anything is read."""
    from advectio import processing

    if options.output is None:
        raise UserError("--output is missing: where the directories of the MIP begin")
    if options.force and options.keep:
        raise UserError("--force replaces outputs that are there, --keep leaves them: say one of the two")
    for module in ("numpy", "netCDF4", "yaml"):
        for_cmor(module)
    rules = rule.read(options.rules)
    today = datetime.datetime.now(datetime.UTC).strftime("v%Y%m%d")
    wanted = [(each, variable) for each in rules for variable in each.variables]
    places: dict[str, Wanted] = {}
    for each, variable in wanted:
        general = attributes.of(each, variable)
        place = attributes.place(each, general, None if variable.fixed else "TIMES", each.version or today)
        if place in places:
            raise UserError(f"{variable.origin}: {variable.name}: {place} is that of {places[place].origin}, too")
        places[place] = variable
    files = datasets(options.files, "wrfout_d01_*")
    there = os.path.isdir(options.output)
    os.makedirs(options.output, exist_ok=True)
    scratch = tempfile.mkdtemp(prefix=SCRATCH, dir=options.output)
    before = signal.signal(signal.SIGTERM, _end)
    try:
        with View(shown=not options.as_json and sys.stderr.isatty()) as view:
            maker = _Maker(options, files, scratch, view)
            for number, (each, variable) in enumerate(wanted):
                maker.try_(each, variable, number)
            for number, (each, variable) in enumerate(wanted):
                maker.make(each, variable, number, each.version or today)
    except (_Interrupted, KeyboardInterrupt):
        say("error", "interrupted; files that were complete are there (--keep leaves them and makes the rest)")
        return INTERRUPTED
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        signal.signal(signal.SIGTERM, before)
        if not there and not os.listdir(options.output):
            os.rmdir(options.output)
    made = {"notes": list(maker.notes), "outputs": maker.outputs, "seconds": round(maker.seconds, 3)}
    result = cast(processing.Processed, maker.report | made)
    if options.as_json:
        print(json.dumps(result, indent=2))
    else:
        processing.show(result)
    return 0
