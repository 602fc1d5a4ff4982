"""``advectio plot``: pictures of chosen fields, of files or of the running model. What is drawn is in `pictures/`."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, cast

from advectio.errors import UserError, say
from advectio.needs import for_pictures
from advectio.pictures import recipes
from advectio.pictures.frames import Frame, Record, expanded, frame_at, opened, reading, records_of
from advectio.pictures.recipes import Plot, Recipe
from advectio.quantities import time_text
from advectio.summary import console, counted

if TYPE_CHECKING:
    from advectio.pictures.drawing import Drawn, Point
    from advectio.pictures.values import Spread

INTERRUPTED = 130
OUTPUT = "plots"
FPS = 4.0


class Picture(TypedDict):
    path: str
    kind: str
    name: str
    field: str
    units: str
    minimum: float | None
    maximum: float | None
    frames: int
    time: NotRequired[str]
    source: NotRequired[str]
    frame: NotRequired[int]


class Pictures(TypedDict):
    """What `plot --json` prints; `--live` prints each picture before, on a line of its own."""

    pictures: list[Picture]
    frames: int
    seconds: float


@dataclass(frozen=True)
class Options:
    files: Sequence[str] = ()
    maps: Sequence[str] = ()
    sections: Sequence[str] = ()
    series: Sequence[str] = ()
    live: str | None = None
    policy: str = "latest"
    run: str | None = None
    contact: str | None = None
    frames_max: int | None = None
    output: str | None = None
    animate: str | None = None
    fps: float | None = None
    jobs: int | None = None
    dpi: int | None = None
    as_json: bool = False


def plot(options: Options) -> int:
    """Exit code 0 when every picture is there. Raises UserError."""
    recipe = _recipe(options)
    for module in ("matplotlib", "xarray"):
        for_pictures(module)
    import matplotlib

    matplotlib.use("Agg")
    _say_what_is_missing(recipe)
    output = options.output or recipe.output or OUTPUT
    began = time.monotonic()
    with _Progress(shown=not options.as_json and sys.stderr.isatty()) as progress:
        try:
            if recipe.live is not None:
                session = _live(recipe, output, options, progress)
            else:
                session = _from_files(recipe, output, progress)
        except KeyboardInterrupt:
            say("error", "interrupted; the pictures that are there are whole")
            return INTERRUPTED
    result: Pictures = {
        "pictures": session.pictures,
        "frames": session.frames,
        "seconds": round(time.monotonic() - began, 3),
    }
    if options.as_json:
        print(json.dumps(result, indent=None if recipe.live else 2))
    else:
        _show(result, output)
    return INTERRUPTED if session.interrupted else 0


def _recipe(options: Options) -> Recipe:
    """Of the YAML file, where one is given, with the options on top of it."""
    yamls = [name for name in options.files if name.endswith((".yaml", ".yml"))]
    files = [name for name in options.files if name not in yamls]
    if len(yamls) > 1:
        raise UserError(f"two recipes, {yamls[0]} and {yamls[1]}; give one")
    defaults: dict[str, Any] = {}
    if options.animate is not None:
        defaults["animate"] = options.animate
    if options.dpi is not None:
        defaults["dpi"] = options.dpi
    given = [("map", text) for text in options.maps]
    given += [("section", text) for text in options.sections] + [("series", text) for text in options.series]
    plots = [recipes.of_option(kind, text, defaults) for kind, text in given]
    recipe = recipes.read(yamls[0]) if yamls else Recipe(())
    if options.animate is not None:
        recipe = replace(
            recipe,
            plots=[p if p.kind == "series" or p.animate else replace(p, animate=options.animate) for p in recipe.plots],
        )
    if options.dpi is not None:
        recipe = replace(recipe, plots=[replace(p, dpi=options.dpi) for p in recipe.plots])
    recipe = replace(recipe, plots=[*recipe.plots, *plots])
    if not recipe.plots:
        raise UserError("nothing to draw: give --map FIELD, --section FIELD,y=N, --series FIELD@x,y or a recipe.yaml")
    recipes.unique(recipe.plots)
    if options.live is not None:
        recipe = replace(recipe, live=options.live, files=())
    if files:
        recipe = replace(recipe, live=recipe.live if options.live is not None else None, files=files)
    if recipe.live is not None and files:
        raise UserError(f"either files ({files[0]}) or --live; not both")
    if recipe.live is None and not recipe.files:
        raise UserError("of which files? give them before the options, or --live PATTERN for the model that runs")
    if recipe.live is None and (options.run is not None or options.contact is not None):
        option = "--contact" if options.run is None else "--run"
        raise UserError(f"{option} names the run that --live follows; give --live PATTERN too")
    return replace(recipe, fps=options.fps or recipe.fps or FPS, jobs=options.jobs or recipe.jobs)


def _say_what_is_missing(recipe: Recipe) -> None:
    from advectio.pictures.drawing import cartopy_there

    if any(p.kind == "map" for p in recipe.plots) and not cartopy_there():
        say("warning", "Cartopy is not installed: maps are drawn on plain latitude and longitude (pip install cartopy)")
    if any(p.animate == "mp4" for p in recipe.plots) and _ffmpeg() is None:
        say("warning", "ffmpeg is not found: animations become GIF files instead of MP4 (pip install imageio-ffmpeg)")


class _Progress:
    """The bar on a terminal; nothing elsewhere."""

    def __init__(self, shown: bool) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = (
            Progress(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
                console=console(), transient=True,
            )
            if shown
            else None
        )  # fmt: skip
        self._task: Any = None

    def __enter__(self) -> _Progress:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def begin(self, what: str, total: int | None) -> None:
        if self._bar:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(what, total=total)

    def step(self) -> None:
        if self._bar and self._task is not None:
            self._bar.advance(self._task)


@dataclass
class _Session:
    """What has been drawn so far."""

    output: str
    fps: float
    pictures: list[Picture] = field(default_factory=list)
    frames: int = 0
    interrupted: bool = False
    films: dict[str, list[str]] = field(default_factory=dict)  # pictures of each animation, by the name of the plot

    def path(self, p: Plot, frame: Frame) -> str:
        from advectio.pictures.drawing import file_name

        return os.path.join(self.output, file_name(p, frame))

    def add(self, p: Plot, drawn: Drawn, frame: Frame | None, frames: int = 1) -> Picture:
        picture: Picture = {
            "path": drawn.path, "kind": p.kind, "name": p.name, "field": p.field.text, "units": drawn.units,
            "minimum": _finite(drawn.minimum), "maximum": _finite(drawn.maximum), "frames": frames,
        }  # fmt: skip
        if frame is not None:
            picture["source"], picture["frame"] = frame.source, frame.number
            if frame.when is not None:
                picture["time"] = frame.when.isoformat()
        # A series is drawn anew with each frame of a running model.
        self.pictures = [each for each in self.pictures if each["path"] != drawn.path] + [picture]
        return picture

    def animations(self, plots: Sequence[Plot]) -> None:
        for p in plots:
            for domain, paths in self._by_domain(p).items():
                if p.animate is None or not paths:
                    continue
                stem = os.path.join(self.output, "_".join(part for part in (domain, p.name) if part))
                path = animated(paths, stem, p.animate, self.fps)
                units = next(each["units"] for each in self.pictures if each["path"] == paths[0])
                ranges = [each for each in self.pictures if each["path"] in paths]
                low = min((each["minimum"] for each in ranges if each["minimum"] is not None), default=None)
                high = max((each["maximum"] for each in ranges if each["maximum"] is not None), default=None)
                self.pictures.append(
                    {
                        "path": path, "kind": "animation", "name": p.name, "field": p.field.text, "units": units,
                        "minimum": low, "maximum": high, "frames": len(paths),
                    }
                )  # fmt: skip

    def _by_domain(self, p: Plot) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for entry in self.films.get(p.name, []):
            domain, _, path = entry.partition("\0")
            if path not in found.setdefault(domain, []):
                found[domain].append(path)
        return found

    def film(self, p: Plot, frame: Frame, path: str) -> None:
        if p.animate is not None:
            self.films.setdefault(p.name, []).append(f"{frame.domain}\0{path}")


def _finite(value: float) -> float | None:
    return value if abs(value) != float("inf") and value == value else None


# --- from files -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Seen:
    """What a look at one frame has found: the paths of its pictures, and the values they would show."""

    paths: Sequence[str]
    ranges: Sequence[Spread | None]
    series: Sequence[tuple[Point, str] | None]
    domain: str


def _from_files(recipe: Recipe, output: str, progress: _Progress) -> _Session:
    records = list(records_of(expanded(recipe.files)))
    if not records:
        raise UserError(f"there are no records in {', '.join(recipe.files)}", 1)
    session = _Session(output, recipe.fps or FPS, frames=len(records))
    jobs = min(recipe.jobs or os.cpu_count() or 1, len(records))
    with _pool(jobs) as work:
        progress.begin("reading", len(records))
        looks = list(work(_look, [(record, recipe.plots) for record in records], progress.step))
        paths = _paths(recipe.plots, records, looks, session)
        ranges = [_together([seen.ranges[i] for seen in looks]) for i in range(len(recipe.plots))]
        progress.begin("drawing", len(records))
        tasks = [
            (record, [(p, paths[number][i], ranges[i]) for i, p in enumerate(recipe.plots) if p.kind != "series"])
            for number, record in enumerate(records)
        ]
        for drawn, frame in work(_draw, tasks, progress.step):
            for p, one in drawn:
                session.add(p, one, frame)
                session.film(p, frame, one.path)
    _draw_series(recipe.plots, records, looks, session)
    if any(p.animate for p in recipe.plots):
        progress.begin("animating", None)
        session.animations(recipe.plots)
    return session


def _look(record: Record, plots: Sequence[Plot]) -> _Seen:
    from advectio.pictures import drawing, values

    with opened(record.path) as ds, reading(record.path):
        frame = frame_at(ds, record)
        paths: list[str] = []
        ranges: list[Spread | None] = []
        series: list[tuple[Point, str] | None] = []
        for p in plots:
            paths.append(drawing.file_name(p, frame))
            if p.kind == "series":
                series.append((_point(p, frame), paths[-1]))
                ranges.append(None)
            else:
                series.append(None)
                ranges.append(None if p.fixed else values.spread(p, frame))
        return _Seen(paths, ranges, series, frame.domain)


def _point(p: Plot, frame: Frame) -> Point:
    from advectio.pictures import drawing, values

    lead = frame.lead.total_seconds() if frame.lead is not None else None
    return drawing.Point(frame.when, lead, frame.number, values.series_of(p, frame)[1])


def _together(spreads: Sequence[Spread | None]) -> Spread | None:
    known = [each for each in spreads if each is not None]
    return reduce(lambda a, b: a.also(b), known) if known else None


def _paths(plots: Sequence[Plot], records: Sequence[Record], looks: Sequence[_Seen], session: _Session) -> list[list[str]]:
    """Where each picture goes. Refused before anything is drawn: two pictures of one name."""
    taken: dict[str, Record] = {}
    for record, seen in zip(records, looks, strict=True):
        for p, name in zip(plots, seen.paths, strict=True):
            if p.kind == "series":
                continue
            if name in taken:
                other = taken[name]
                raise UserError(
                    f"{p.origin}: {name} would be the picture of two frames, {other.path} [{other.number}] and {record.path} "
                    f"[{record.number}]; have {{source}} or {{frame}} in `file`"
                )
            taken[name] = record
    return [[os.path.join(session.output, name) for name in seen.paths] for seen in looks]


def _draw(record: Record, wanted: Sequence[tuple[Plot, str, Spread | None]]) -> tuple[list[tuple[Plot, Drawn]], Frame]:
    from advectio.pictures import drawing

    with opened(record.path) as ds, reading(record.path):
        frame = frame_at(ds, record)
        drawn = [(p, drawing.draw(p, frame, path, seen)) for p, path, seen in wanted]
        # The frame goes back to the process that asked: without its data.
        return drawn, replace(frame, ds=for_pictures("xarray").Dataset(attrs=frame.ds.attrs))


def _draw_series(plots: Sequence[Plot], records: Sequence[Record], looks: Sequence[_Seen], session: _Session) -> None:
    from advectio.pictures import drawing, values

    for i, p in enumerate(plots):
        if p.kind != "series":
            continue
        by_path: dict[str, list[int]] = {}
        for number, seen in enumerate(looks):
            by_path.setdefault(seen.paths[i], []).append(number)
        for name, numbers in by_path.items():
            points = [found[0] for number in numbers if (found := looks[number].series[i]) is not None]
            if all(point.when is not None for point in points):
                points.sort(key=_when)
            with opened(records[numbers[-1]].path) as ds:
                last = frame_at(ds, records[numbers[-1]])
                described = values.series_of(p, last)[0]
                drawn = drawing.draw_series(p, described, points, last, os.path.join(session.output, name))
                session.add(p, drawn, None, len(points))


def _when(point: Point) -> datetime.datetime:
    assert point.when is not None
    return point.when


Work = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]], Callable[[], None]], Iterator[Any]]


@contextlib.contextmanager
def _pool(jobs: int) -> Iterator[Work]:
    """Calls a function with each of the arguments, in their order: here, or in so many processes."""
    if jobs == 1:

        def here(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], done: Callable[[], None]) -> Iterator[Any]:
            for arguments in calls:
                yield function(*arguments)
                done()

        yield here
        return
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    # Not by fork: netCDF, HDF5 and the progress bar have locks and threads.
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))

    def there(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], done: Callable[[], None]) -> Iterator[Any]:
        waiting = [pool.submit(function, *arguments) for arguments in calls]
        try:
            for each in waiting:
                yield each.result()
                done()
        except BrokenProcessPool as error:
            raise UserError("a process that draws has died (memory?); try --jobs 1", 1) from error

    try:
        yield there
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


# --- live -----------------------------------------------------------------------------------------------------------------


def _live(recipe: Recipe, output: str, options: Options, progress: _Progress) -> _Session:
    """Each frame as it comes. Colours of a field whose range nobody gave become wider as its values do."""
    from advectio import frames
    from advectio.live.client import LetGo
    from advectio.live.stream import Policy

    session = _Session(output, recipe.fps or FPS)
    ranges: dict[tuple[str, str], Spread] = {}
    series: dict[str, list[Point]] = {}
    progress.begin("frames", options.frames_max)
    try:
        policy = cast(Policy, options.policy)
        for ds in frames(recipe.live or "*", policy=policy, run=options.run, contact=options.contact):
            try:
                frame = Frame.of(ds)
                for p in recipe.plots:
                    picture = _draw_live(p, frame, session, ranges, series)
                    if options.as_json:
                        print(json.dumps({"picture": picture}), flush=True)
            except (OSError, RuntimeError, LetGo) as error:
                # Drawing was slower than the model, and the frame has been let go: the next one is as good.
                say("warning", f"a frame is left out: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
                continue
            session.frames += 1
            progress.step()
            if options.frames_max is not None and session.frames >= options.frames_max:
                break
    except KeyboardInterrupt:
        session.interrupted = True  # the usual end of watching: films are made all the same
    session.animations(recipe.plots)
    return session


def _draw_live(
    p: Plot,
    frame: Frame,
    session: _Session,
    ranges: dict[tuple[str, str], Spread],
    series: dict[str, list[Point]],
) -> Picture:
    from advectio.pictures import drawing, values

    path = session.path(p, frame)
    if p.kind == "series":
        points = series.setdefault(path, [])
        points.append(_point(p, frame))
        drawn = drawing.draw_series(p, values.series_of(p, frame)[0], points, frame, path)
        return session.add(p, drawn, None, len(points))
    key = (p.name, frame.domain)
    if not p.fixed:
        seen = _together([ranges.get(key), values.spread(p, frame)])
        if seen is not None:
            ranges[key] = seen
    drawn = drawing.draw(p, frame, path, ranges.get(key))
    session.film(p, frame, path)
    return session.add(p, drawn, frame)


# --- animations -----------------------------------------------------------------------------------------------------------


def _ffmpeg() -> str | None:
    found = shutil.which("ffmpeg")
    if found is None:
        try:
            import imageio_ffmpeg

            found = str(imageio_ffmpeg.get_ffmpeg_exe())
        except (ImportError, RuntimeError):
            return None
    return found


def animated(pictures: Sequence[str], stem: str, kind: str, fps: float) -> str:
    """One film of the pictures, in their order; its path. MP4 needs ffmpeg, and is a GIF without it."""
    ffmpeg = _ffmpeg() if kind == "mp4" else None
    path = f"{stem}.{'mp4' if ffmpeg else 'gif'}"
    with tempfile.TemporaryDirectory(prefix=".film-", dir=os.path.dirname(path) or ".") as scratch:
        partial = os.path.join(scratch, os.path.basename(path))
        if ffmpeg:
            _mp4(ffmpeg, pictures, scratch, partial, fps)
        else:
            _gif(pictures, partial, fps)
        os.replace(partial, path)
    return path


def _gif(pictures: Sequence[str], to: str, fps: float) -> None:
    image = for_pictures("PIL.Image")
    films = []
    size = None
    for name in pictures:
        with image.open(name) as opened_picture:
            one = opened_picture.convert("RGB")
        size = size or one.size
        films.append((one if one.size == size else one.resize(size)).quantize(255))
    films[0].save(to, format="GIF", save_all=True, append_images=films[1:], duration=round(1000 / fps), loop=0)


def _mp4(ffmpeg: str, pictures: Sequence[str], scratch: str, to: str, fps: float) -> None:
    for number, name in enumerate(pictures):
        os.symlink(os.path.abspath(name), os.path.join(scratch, f"{number:06d}.png"))
    command = [ffmpeg, "-y", "-loglevel", "error", "-framerate", f"{fps:g}", "-i", os.path.join(scratch, "%06d.png")]
    # Players want even sides and 4:2:0.
    command += ["-vf", "scale=trunc(iw/2)*2:trunc(ih/2)*2", "-pix_fmt", "yuv420p", "-movflags", "+faststart", to]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise UserError(f"ffmpeg could not make {os.path.basename(to)}: {lines[-1] if lines else done.returncode}", 1)


def _show(result: Pictures, output: str) -> None:
    from rich.console import Console

    out = Console(highlight=False, soft_wrap=True)
    by_name: dict[tuple[str, str], list[Picture]] = {}
    for picture in result["pictures"]:
        by_name.setdefault((picture["kind"], picture["name"]), []).append(picture)
    for (kind, name), pictures in by_name.items():
        lows = [p["minimum"] for p in pictures if p["minimum"] is not None]
        highs = [p["maximum"] for p in pictures if p["maximum"] is not None]
        values = f"{min(lows):.4g} to {max(highs):.4g} {pictures[0]['units']}".rstrip() if lows else "no values"
        where = (
            pictures[0]["path"] if len(pictures) == 1 else f"{pictures[0]['path']} … {os.path.basename(pictures[-1]['path'])}"
        )
        out.print(f"{kind} {name}: {counted(len(pictures), 'picture')}, {values}: {where}", markup=False)
    out.print(
        f"{counted(len(result['pictures']), 'picture')} of {counted(result['frames'], 'frame')} in {output}, "
        f"{time_text(result['seconds'])}",
        markup=False,
    )
