"""Advectio carries the output of weather, climate and ocean models out of the model.

Importing this package starts nothing. The command line is ``advectio``; see ``advectio --help``.
"""

__all__ = ["__version__"]


def __getattr__(name: str) -> str:
    # Looked up only when it is asked for: finding it takes longer than all else that `advectio run` imports.
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("advectio")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "unknown"
