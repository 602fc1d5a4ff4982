"""``advectio view``: a dashboard in the browser, of a run under way or of files.

A frame's way, module by module:

1. ``sources``  gives one lazy ``xarray.Dataset`` per frame: of a live run, or of files replayed at a pace.
2. ``frames``   keeps them: the newest ones, the planes that were looked at, the points whose series is wanted.
3. ``fields``   reads one plane of a field, pools it to the screen's resolution, quantises it to 8 or 16 bits.
4. ``coasts``   brings coastlines into the index space in which the plane is drawn.
5. ``server``   answers the browser: events by SSE, the rest by fetch. ``progress`` asks the run's server how it goes.
6. ``page/``    the page itself: plain JavaScript, no build step, nothing from elsewhere.

A slow browser never holds up anything: it is told that there is something newer, and asks for the newest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from advectio.errors import UserError


@dataclass(frozen=True)
class Options:
    files: Sequence[str]  # files or patterns; of a live run the dataset's pattern
    live: bool = False
    run: str | None = None  # of a live run: its run directory
    contact: str | None = None  # or its contact file, from another node
    pace_s: float = 1.0  # between two frames of files
    port: int = 0  # 0: a free one
    open_browser: bool = False
    as_json: bool = False


class Address(TypedDict):
    """What `view --json` prints once it listens."""

    url: str
    token: str
    port: int


def show(options: Options) -> int:
    try:
        from advectio.view import server
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("advectio"):
            raise
        raise UserError(f"advectio view needs the Python package {error.name}: pip install 'advectio[view]'") from error
    return server.serve(options)
