"""Packages that only pictures need. `import advectio` never brings them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from advectio.errors import UserError

# By module: what pip calls it.
_NAMES = {"yaml": "PyYAML", "netCDF4": "netCDF4", "matplotlib": "matplotlib", "xarray": "xarray", "PIL": "pillow"}
INSTALL = "pip install 'advectio[plot]'"


def needed(module: str) -> Any:
    """The module, or one line that says what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        missing = _NAMES.get(module, module)
        raise UserError(f"pictures need the Python package {missing}, which is not here ({error}): {INSTALL}", 2) from error
