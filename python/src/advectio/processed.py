"""Outputs of the config that operators make, by ``advectiod process``: of a run's files as they become complete, of the rest when
the run has ended, and of what ``recover`` and ``drain`` have completed. As ``python -m advectio.processed`` it is the process
beside a run that does so; see ``Beside``."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, cast

from advectio import installation, places, rules
from advectio.config_json import OperatorOutput
from advectio.errors import UserError, say
from advectio.protocol import DatasetStatus, Made, NoServer, ProcessedOutput, Status, status_of
from advectio.quantities import size_text
from advectio.server import end_with_parent
from advectio.signals import Signals
from advectio.summary import counted
from advectio.worker import INTERRUPTED, View, datasets, run_worker

if TYPE_CHECKING:
    from advectio import processing

LOOK_S = 1.0
SHARE = 0.05  # of the time goes into looking
NICE = 19  # the model goes first
STATE_FILE = places.PROCESSED_FILE


class Left(TypedDict):
    """``STATE_FILE`` in a run directory."""

    config: str  # its text
    called: str  # the config's name
    directory: str  # where the run was started
    began: float  # seconds since 1970
    datasets: list[dict[str, Any]]  # the config's rules
    made: list[Made]


def wanted(config: dict[str, Any]) -> list[OperatorOutput]:
    return [output for rule in config.get("datasets", []) for output in rule.get("processed", [])]


def rules_for(datasets: Sequence[dict[str, Any]], name: str) -> list[tuple[int, OperatorOutput]]:
    """Of a file that the program calls by that path: what the last rule with `outputs` says, as of every key."""
    found: list[tuple[int, OperatorOutput]] = []
    for number, rule in enumerate(datasets):
        if any(value["key"] == "outputs" for value in rule["values"]) and rules.matches(rule["match"], name):
            found = [(number, output) for output in rule["processed"]]
    return found


def _at(path: str) -> str:
    """By the one name that it has here: a program may have called it ./NAME."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


class Maker:
    """The outputs of files, by the rules that their names match. Files of one rule and one directory are one series."""

    def __init__(
        self, config: str, called: str, directory: str, datasets: list[dict[str, Any]], options: Sequence[str] = ("--force",)
    ) -> None:
        self._server = installation.find().server
        self._config = config
        self._called = called
        self._directory = directory
        self._datasets = datasets
        self._options = list(options)
        self.jobs: int | None = None  # all cores
        self.code = 0  # of the worst worker
        self.began = time.time()
        self.made: dict[tuple[int, int, str], Made] = {}
        self._looked_at: dict[tuple[int, int, str], int] = {}
        self._written: dict[str, int] = {}  # how often a program of the run has made that file
        self._lacking: set[tuple[int, int, str]] = set()
        self.tell: Callable[[str, int, int], None] = lambda path, done, of: None

    def _series(self, name: str, path: str) -> Iterable[tuple[tuple[int, int, str], Made]]:
        for dataset, rule in rules_for(self._datasets, name):
            key = (dataset, rule["number"], os.path.dirname(path))
            if key not in self.made:
                self.made[key] = {
                    "dataset": dataset,
                    "number": rule["number"],
                    "path": rule["path"],
                    "origin": rule["origin"],
                    "directory": key[2],
                    "state": "waiting",
                    "error": None,
                    "files": [],
                    "outputs": [],
                }
            yield key, self.made[key]

    def add(self, name: str, path: str) -> bool:
        """A file that is complete, and how the program calls it. Is it new?"""
        path = _at(path)
        new = False
        for _, series in self._series(name, path):
            if path not in series["files"]:
                series["files"].append(path)
                new = True
        return new

    def see(self, status: Status) -> bool:
        """What of a run is complete. Is there something new?"""
        latest: dict[str, DatasetStatus] = {}
        times: dict[str, int] = {}
        for dataset in status["datasets"]:
            if not dataset.get("output_of") and dataset["state"] not in ("dropped", "removed"):
                path = _at(dataset["path"])
                latest[path] = dataset
                times[path] = times.get(path, 0) + 1
        new = False
        for path, dataset in latest.items():
            name = dataset.get("in_place_of") or dataset["path"]
            if times[path] > self._written.get(path, 0):
                if path in self._written:
                    self.written_again(path)
                self._written[path] = times[path]
            if dataset["state"] == "finished" and not dataset["error"]:
                new = self.add(name, path) or new
            elif status["final"]:
                self._lacking |= {key for key, _ in self._series(name, path)}
        return new

    def written_again(self, path: str) -> None:
        """What has been made of a file is no longer right."""
        for key, series in self.made.items():
            if path in series["files"]:
                series["files"].remove(path)
                series["outputs"] = []
                self._looked_at.pop(key, None)

    def find(self) -> None:
        """Files of the run of which no server can tell any more: as new as the run, where its other files are."""
        outputs = {output["path"] for series in self.made.values() for output in series["outputs"]}
        for directory in {os.path.realpath(self._directory), *(series["directory"] for series in self.made.values())}:
            with contextlib.suppress(OSError):
                entries = [e for e in os.scandir(directory) if e.stat().st_mtime >= self.began]
                further = {path for entry in entries for path in self._further(entry.path)}
                for entry in entries:
                    name = entry.path.removesuffix(".zarr") if entry.is_dir() else entry.path
                    whole = os.path.exists(os.path.join(entry.path, "zarr.json")) if entry.is_dir() else entry.stat().st_size
                    if whole and not entry.name.startswith(".") and entry.path not in outputs | further:
                        self.add(name, entry.path)

    def _further(self, path: str) -> Iterable[str]:
        """Where the outputs of a file would be."""
        for rule in self._datasets:
            if rules.matches(rule["match"], path):
                for template in [*rule["outputs"], *(output["path"] for output in rule["processed"])]:
                    yield os.path.join(os.path.dirname(path), template.replace("{name}", os.path.basename(path)))

    def make(self, *, last: bool) -> int:
        """What can be made and is not there; in the end (``last``) all. How many outputs have been made."""
        before = self._count()
        for key, series in self.made.items():
            rule = next(r for r in self._datasets[key[0]]["processed"] if r["number"] == key[1])
            all_there = last and key not in self._lacking
            looked_at = self._looked_at.get(key, 0)
            # Without `split` there is one output, of all files: the first tells whether the rule fits.
            if not all_there and (looked_at == len(series["files"]) or (looked_at and not rule["split"])):
                continue
            if series["files"]:
                self._looked_at[key] = len(series["files"])
                self._make(key, series, all_there=all_there, last=last)
        return self._count() - before

    def _count(self) -> int:
        return sum(len(series["outputs"]) for series in self.made.values())

    def _make(self, key: tuple[int, int, str], series: Made, *, all_there: bool, last: bool) -> None:
        known = {output["path"]: output for output in series["outputs"]}
        with tempfile.NamedTemporaryFile("w", prefix="advectio-kept-", suffix=".txt") as kept:
            kept.write("".join(f"{path}\n" for path in known))
            kept.flush()
            command = [self._server, "process", "--config", self._config, "--called", self._called]
            command += ["--dataset", str(key[0]), "--number", str(key[1]), "--output", series["directory"]]
            command += ["--kept", kept.name, *self._options, *([] if all_there else ["--complete"])]
            command += ["--jobs", str(self.jobs)] if self.jobs else []
            ended = run_worker(command, series["files"], lambda done, of: self.tell(series["path"], done, of), self._directory)
        if ended.result is None:
            if ended.code == INTERRUPTED:
                raise KeyboardInterrupt
            self._fails(series, ended.error, ended.code, last=last)
            return
        series["error"] = None
        for output in cast(list[ProcessedOutput], ended.result["outputs"]):
            if output["path"] not in known or not output["kept"]:
                known[output["path"]] = output
        series["outputs"] = list(known.values())
        for other in self.made.values():
            twice = known.keys() & {output["path"] for output in other["outputs"]} if other is not series else set()
            if twice:
                path = min(twice)
                self._fails(series, f"{series['origin']}: {path} is an output of {other['origin']}, too", 2, last=last)
                return
        if all_there:
            series["state"] = "complete"

    def _fails(self, series: Made, error: str, code: int, *, last: bool) -> None:
        if "a series" in error:
            error += " (all files of a rule in one directory are one series: WRF's nests have a rule each)"
        if not last and series["error"] != error:
            say("warning", f"{error}; this output ({series['path']}) is tried again when the run has ended")
        self.code = max(self.code, code)
        series["error"] = error
        series["state"] = "failed" if last else "waiting"

    @property
    def report(self) -> list[Made]:
        return list(self.made.values())

    def left(self, config: str) -> Left:
        return {
            "config": config,
            "called": self._called,
            "directory": self._directory,
            "began": self.began,
            "datasets": self._datasets,
            "made": self.report,
        }


def save(left: Left, run_directory: str) -> None:
    """Over the old one at once. Nothing is saved where the run directory has gone."""
    path = os.path.join(run_directory, STATE_FILE)
    with contextlib.suppress(FileNotFoundError):
        with open(path + ".new", "w", encoding="utf-8", opener=places.private) as out:
            json.dump(left, out)
        os.replace(path + ".new", path)


@contextlib.contextmanager
def maker_of(left: Left) -> Iterator[Maker]:
    """That goes on where the other has stopped. The config is its own: the server removes that of the run when it ends."""
    with tempfile.NamedTemporaryFile("w", prefix="advectio-config-", suffix=".yaml") as config:
        config.write(left["config"])
        config.flush()
        maker = Maker(config.name, left["called"], left["directory"], left["datasets"])
        maker.began = left["began"]
        for made in left["made"]:
            maker.made[made["dataset"], made["number"], made["directory"]] = {**made, "state": "waiting", "error": None}
        yield maker


def left_in(run_directory: str) -> Left | None:
    """What a run has left to be made."""
    try:
        with open(os.path.join(run_directory, STATE_FILE), encoding="utf-8") as file:
            left: Left = json.load(file)
            return left
    except (OSError, ValueError):
        return None


def not_made(left: Left, final: Status) -> list[Made]:
    """Of a run whose files are complete, where the process beside it was interrupted or has died."""
    with maker_of(left) as maker:
        maker.see(final)
        return [{**series, "state": "failed"} for series in maker.report]


def complete(left: Left, run_directory: str, result: Status | None) -> list[Made]:
    """After a recovery: all that is not there yet. ``result``: what it says of the run's files."""
    with maker_of(left) as maker:
        if result:
            for dataset in result["datasets"]:
                maker.written_again(_at(dataset["path"]))
            maker.see(result)
        maker.find()
        maker.make(last=True)
    if result and result["datasets"] and places.is_run(run_directory):
        save(maker.left(left["config"]), run_directory)
    else:
        forget(run_directory)
    return maker.report


def forget(run_directory: str) -> None:
    for name in (STATE_FILE, STATE_FILE + ".new"):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(run_directory, name))


def failed(made: Iterable[Made]) -> list[Made]:
    return [series for series in made if series["state"] != "complete"]


def lines_of(made: Sequence[Made]) -> list[str]:
    """For people, after the table of datasets."""
    lines = []
    for series in made:
        outputs = series["outputs"]
        written = sum(output["bytes_written"] for output in outputs)
        of = f"{counted(len(outputs), 'output')} of {counted(len(series['files']), 'file')}"
        where = os.path.join(series["directory"], series["path"])
        state = (
            "" if series["state"] == "complete" else f"; {series['state']}{': ' + series['error'] if series['error'] else ''}"
        )
        lines.append(f"{where} ({series['origin']}): {of}, {size_text(written)}{state}")
    return lines


def say_failed(made: Sequence[Made], called: str) -> None:
    """Of a run whose files are complete. ``called``: the config."""
    for series in failed(made):
        what = series["error"] or f"{os.path.join(series['directory'], series['path'])} was not made"
        say("error", f"{what}; once the cause is gone, `advectio process FILES -c {called} --keep` makes it of the run's files")


def by_config(options: "processing.Options") -> int:
    """``advectio process`` with a config: what ``advectio run`` makes with it, of files that exist."""
    from advectio import processing
    from advectio.reading import read_config

    if options.output is not None:
        raise UserError("--output is for a file of rules; the outputs of a config begin beside the files that they are made of")
    if options.force and options.keep:
        raise UserError("--force replaces outputs that are there, --keep leaves them: say one of the two")
    raw = read_config(installation.find().server, options.rules)
    if not wanted(raw):
        raise UserError(f"{options.rules} has no output with an operator, such as mean: 1d")
    words = ["--memory", options.memory, *["--force"] * options.force, *["--keep"] * options.keep]
    maker = Maker(options.rules, options.rules, os.getcwd(), raw["datasets"], words)
    maker.jobs = options.jobs
    others = []
    for path in datasets(options.files, "wrfout_d01_*"):
        path = _at(os.path.abspath(path))
        if not maker.add(path.removesuffix(".zarr") if os.path.isdir(path) else path, path):
            others.append(path)
    if not maker.made:
        raise UserError(f"no output of {options.rules} with an operator is of these files")
    if others:
        say("warning", f"{counted(len(others), 'file')} not used, as no such output is of them: {', '.join(others[:3])}")
    with View(shown=not options.as_json and sys.stderr.isatty()) as view:

        def tell(path: str, done: int, of: int) -> None:
            if done == 0:
                view.begin(path)
            view.update(done, of)

        maker.tell = tell
        try:
            maker.make(last=True)
        except KeyboardInterrupt:
            say("error", "interrupted; outputs that were complete are there (--keep goes on after them)")
            return INTERRUPTED
    if options.as_json:
        processing.print_json({"processed": maker.report})
    else:
        for output in (output for series in maker.report for output in series["outputs"]):
            processing.show_output(output)
    for series in failed(maker.report):
        say("error", series["error"] or f"{series['path']} was not made")
    return maker.code


class Beside:
    """The process beside a run. The model never waits for it; it is killed when we die, and what is complete stays."""

    def __init__(
        self, run_directory: str, config: str, called: str, directory: str, datasets: list[dict[str, Any]], began: float
    ) -> None:
        """``config``: the copy that holds for the run, which the user knows as ``called``. ``began``: when the model started."""
        with open(config, encoding="utf-8") as file:
            text = file.read()
        # Before anything else: whatever dies from here on, `recover` knows what was to be made.
        self.begun: Left = {
            "config": text,
            "called": called,
            "directory": directory,
            "began": began,
            "datasets": datasets,
            "made": [],
        }
        save(self.begun, run_directory)
        parent = os.getpid()

        def prepare() -> None:
            os.nice(NICE)
            Signals.released()
            end_with_parent(signal.SIGTERM, parent)

        self._process = subprocess.Popen(
            [sys.executable, "-m", "advectio.processed", run_directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=prepare,
        )
        self._said: dict[str, Any] = {}
        self.progress: tuple[str, int, int] | None = None
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _tell(self, what: object) -> None:
        """It may be busy: we do not wait until it listens."""

        def write() -> None:
            assert self._process.stdin
            with contextlib.suppress(OSError):
                self._process.stdin.write(json.dumps(what).encode() + b"\n")
                self._process.stdin.flush()

        threading.Thread(target=write, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            said = json.loads(line)
            if "of" in said:
                self.progress = (said["path"], said["done"], said["of"])
            else:
                self._said |= said

    def end(self, final: Status, tick: Callable[[], bool]) -> list[Made] | None:
        """The run's files are complete, as ``final`` says. Waits for the outputs; ``tick`` is called meanwhile, and returns False
        to stop that. None: they are not all there, for whatever reason."""
        self._tell({"final": final})
        while self._listener.is_alive():
            self._listener.join(0.2)
            if self._listener.is_alive() and not tick():
                self.stop()
                return None
        self._process.wait()
        made: list[Made] | None = self._said.get("made")
        return made

    def stop(self) -> None:
        """At once. What is complete stays, and what it knows is in the run directory."""
        self._process.terminate()
        self._process.wait()


def _lines(timeout_s: float, rest: bytearray) -> str | None:
    """The next line from stdin; "" at its end, None where none has come in that time."""
    until = time.monotonic() + timeout_s
    while b"\n" not in rest:
        if not select.select([0], [], [], max(0.0, until - time.monotonic()))[0]:
            return None
        more = os.read(0, 1 << 16)
        if not more:
            return ""
        rest += more
    line, _, after = bytes(rest).partition(b"\n")
    rest[:] = after
    return line.decode() + "\n"


def _print(said: dict[str, Any]) -> None:
    print(json.dumps(said), flush=True)


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    try:
        return _main()
    except KeyboardInterrupt:
        return INTERRUPTED


def _main() -> int:
    run_directory = sys.argv[1]
    signal.signal(signal.SIGTERM, _interrupted)  # so that a worker is told
    left = left_in(run_directory)
    if left is None:
        return 1
    with maker_of(left) as maker:
        return _beside(maker, run_directory, left["config"])


def _beside(maker: Maker, run_directory: str, config: str) -> int:
    maker.jobs = 1
    rest = bytearray()
    pause = LOOK_S
    while True:
        line = _lines(pause, rest)
        if line == "":
            return 1
        if line:
            break
        began = time.monotonic()
        try:
            status = status_of(run_directory, 10.0)
        except (NoServer, UserError):
            continue  # another server will take its place
        looked_s = time.monotonic() - began
        if maker.see(status):
            made = maker.make(last=False)
            looked_s = time.monotonic() - began if made == 0 else looked_s
            save(maker.left(config), run_directory)
        pause = max(LOOK_S, looked_s / SHARE)
    final: Status = json.loads(line)["final"]
    maker.jobs = None
    maker.tell = lambda path, done, of: _print({"path": path, "done": done, "of": of})
    maker.see(final)
    if final["server"].get("restarts"):
        maker.find()  # the server knows nothing of files that were complete before it
    save(maker.left(config), run_directory)
    maker.make(last=True)
    save(maker.left(config), run_directory)
    _print({"made": maker.report})
    return 0


if __name__ == "__main__":
    sys.exit(main())
