"""A JSON file that the user names."""

from __future__ import annotations

import json
from typing import Any

from advectio.errors import UserError


def read_map(path: str, what: str) -> dict[str, Any]:
    """The file's object. ``what`` it should be begins the error.

    Raises UserError where it cannot be read, is no JSON, or is another value than an object.
    """
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except OSError as error:
        raise UserError(f"{what}: {path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{what}: {path} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise UserError(f"{what}: {path}: a map is wanted")
    return found
