"""``advectio link-flags``: how a program is linked that has netCDF or PnetCDF in it as a static library."""

import os

from advectio import elf, installation
from advectio.errors import UserError

# Beside each library: one of the same name for the linker. It has the names __wrap_… alone, so that the real functions come
# from the static library wherever that stands on the command line.
FOLDER = "advectio-link"


def lines(installed: installation.Installation) -> list[str]:
    """Options of ld, one a line, for a response file. docs/linking.md explains them."""
    told: list[str] = []
    links: list[str] = []
    for library in (installed.netcdf, installed.pnetcdf):
        if library is None:
            continue
        directory, name = os.path.split(os.path.realpath(library))
        stub = elf.read(os.path.join(directory, FOLDER, name))
        if stub is None:
            raise UserError(f"{os.path.join(directory, FOLDER, name)} is not there; build and install Advectio anew")
        # The program's calls go to us, and what we call is taken out of the static library.
        told += [f"--wrap={name.removeprefix('__wrap_')}" for name in sorted(stub.exported) if name.startswith("__wrap_")]
        told += [f"-u {name.removeprefix('__real_')}" for name in sorted(stub.undefined)]
        links += [os.path.dirname(stub.path) + os.sep + name]
        told += [f"-rpath {directory}"]
    # Also where the compiler drops libraries that nothing on their left needs (Ubuntu).
    return [*dict.fromkeys(told), "--push-state --no-as-needed", *links, "--pop-state"]
