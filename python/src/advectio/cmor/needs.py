"""Packages that only ``cmor`` needs. `import advectio` never brings them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from advectio.errors import UserError

_NAMES = {"yaml": "PyYAML"}


def needed(module: str) -> Any:
    """The module, or one line that says what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        missing = _NAMES.get(module, module)
        raise UserError(
            f"outputs with cmor need the Python package {missing}, which is not here ({error}): pip install 'advectio[cmor]'"
        ) from error
