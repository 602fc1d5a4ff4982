"""Where the server and the preload libraries are. Light: also used in front of every rank."""

import glob
import os
import re
import sys
from typing import NamedTuple

from advectio.errors import UserError

SERVER = "advectiod"
MPI_SERVER = "advectiod_mpi"  # where MPI was there when it was built: one server per node, for runs on several
NETCDF = "libadvectio_netcdf.so"
PNETCDF = "libadvectio_pnetcdf.so"  # where PnetCDF was there when it was built; does nothing in programs without it
READERS = "libadvectio_readers.so"  # the client of live readers
ADIOS2 = "ADVECTIO_ADIOS2"  # where servers find ADIOS2 (format: bp5 or sst)
ECCODES = "ADVECTIO_ECCODES"  # where `convert` and `process` find ecCodes (GRIB files)

# Below a place, first as installed, then as in a CMake build directory.
_SERVER_AT = ("bin/" + SERVER, "src/apps/advectiod/" + SERVER)
_MPI_SERVER_AT = ("bin/" + MPI_SERVER, "src/apps/advectiod/" + MPI_SERVER)
_NETCDF_AT = ("lib/" + NETCDF, "lib64/" + NETCDF, "src/capture/netcdf/" + NETCDF, "src/capture/" + NETCDF)
_PNETCDF_AT = ("lib/" + PNETCDF, "lib64/" + PNETCDF, "src/capture/pnetcdf/" + PNETCDF)
_READERS_AT = ("lib/" + READERS, "lib64/" + READERS, "src/readers/" + READERS)

_SANITIZER = re.compile(r"lib(asan|hwasan|tsan|lsan|ubsan|clang_rt\.)")

NO_MPI_SERVER = (
    f"{MPI_SERVER}, which serves several nodes, is not there: build Advectio where MPI is found (Debian: libopenmpi-dev)"
)


class Installation(NamedTuple):
    server: str
    netcdf: str
    pnetcdf: str | None = None
    mpi_server: str | None = None


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
        netcdf = _first(place, _NETCDF_AT)
        if server and netcdf:
            _name_wheel(ADIOS2, "adios2", "libadios2_c.so")
            _name_wheel(ECCODES, "eccodeslib/lib64", "libeccodes.so")
            _name_wheel(ECCODES, "eccodes.libs", "libeccodes-*.so*")  # what wheels of eccodes before 2.40 bring
            return Installation(server, netcdf, _first(place, _PNETCDF_AT), _first(place, _MPI_SERVER_AT))
    raise UserError(
        f"{SERVER} and {NETCDF} are not there; looked in: "
        + ", ".join(places())
        + " (build them with `make build`, or set ADVECTIO_PREFIX)"
    )


def _name_wheel(variable: str, folder: str, library: str) -> None:
    """The library in a wheel of this Python, where it has one and nobody has named another. It is not imported."""
    for place in sys.path if variable not in os.environ else []:
        for found in glob.glob(os.path.join(glob.escape(os.path.abspath(place)), folder, library)):
            os.environ[variable] = found
            return


def readers_library() -> str:
    for place in places():
        if found := _first(place, _READERS_AT):
            return found
    raise UserError(
        f"{READERS} is not there; looked in: {', '.join(places())} (build it with `make build`, or set ADVECTIO_PREFIX)"
    )


def preload(installed: Installation, already: str | None) -> str:
    """LD_PRELOAD with our libraries in front; once, however deep runs are nested. Before them only what refuses to come later."""
    ours = [installed.netcdf, *([installed.pnetcdf] if installed.pnetcdf else [])]
    entries = (already or "").replace(":", " ").split()
    others = [entry for entry in entries if os.path.basename(entry) not in (NETCDF, PNETCDF)]
    first = [entry for entry in others if _SANITIZER.match(os.path.basename(entry))]
    return ":".join([*first, *ours, *(entry for entry in others if entry not in first)])
