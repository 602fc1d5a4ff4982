"""Advectio carries the output of weather, climate and ocean models out of the model.

Importing this package starts nothing. The command line is ``advectio``; see ``advectio --help``.
"""

from importlib.metadata import PackageNotFoundError, version


def _version() -> str:
    try:
        return version("advectio")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "unknown"


__version__ = _version()
__all__ = ["__version__"]
