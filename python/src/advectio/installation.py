"""Where the server and the preload library are. Light: also used in front of every rank."""

import os
import sys
from dataclasses import dataclass

from advectio.errors import UserError

SERVER = "advectiod"
LIBRARY = "libadvectio_netcdf.so"

# Below a place, first as installed, then as in a CMake build directory.
_SERVER_AT = ("bin/" + SERVER, "src/apps/advectiod/" + SERVER)
_LIBRARY_AT = ("lib/" + LIBRARY, "lib64/" + LIBRARY, "src/capture/netcdf/" + LIBRARY, "src/capture/" + LIBRARY)


@dataclass(frozen=True)
class Installation:
    server: str
    library: str


def places() -> list[str]:
    """Where we look, in this order. ``ADVECTIO_PREFIX`` is meant: where it is set nothing else counts."""
    prefix = os.environ.get("ADVECTIO_PREFIX")
    if prefix:
        return [os.path.abspath(prefix)]
    package = os.path.dirname(os.path.abspath(__file__))
    found = [package, sys.prefix]
    source = os.path.normpath(os.path.join(package, "..", "..", ".."))
    if os.path.isfile(os.path.join(source, "CMakePresets.json")):
        found.append(os.path.join(source, "build", "release"))
    return found


def _first(place: str, names: tuple[str, ...]) -> str | None:
    for name in names:
        path = os.path.join(place, name)
        if os.path.isfile(path):
            return path
    return None


def find() -> Installation:
    """The first place that holds both; they belong together, so they are never mixed from two places."""
    for place in places():
        server = _first(place, _SERVER_AT)
        library = _first(place, _LIBRARY_AT)
        if server and library:
            return Installation(server, library)
    raise UserError(
        f"{SERVER} and {LIBRARY} are not there; looked in: "
        + ", ".join(places())
        + " (build them with `make build`, or set ADVECTIO_PREFIX)"
    )


def preload(library: str, already: str | None) -> str:
    """LD_PRELOAD with our library in front; once, however deep runs are nested."""
    rest = [entry for entry in (already or "").replace(":", " ").split() if os.path.basename(entry) != LIBRARY]
    return ":".join([library, *rest])
