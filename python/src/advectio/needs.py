"""Packages that only parts of Advectio need. `import advectio` never brings them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from advectio.errors import UserError

# By module: what pip calls it.
_NAMES = {"yaml": "PyYAML", "PIL": "pillow"}


def for_pictures(module: str) -> Any:
    """The module. Raises UserError, with one line that says what to install."""
    return _needed(module, "pictures need", "plot")


def for_cmor(module: str) -> Any:
    """The same."""
    return _needed(module, "outputs with cmor need", "cmor")


def for_frames(module: str) -> Any:
    """The same."""
    return _needed(module, "live frames need", "live")


def _needed(module: str, who: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        missing = _NAMES.get(module, module)
        raise UserError(
            f"{who} the Python package {missing}, which is not here ({error}): pip install 'advectio[{extra}]'"
        ) from error
