"""A package that is missing: one line says which, for what, and what to install."""

from __future__ import annotations

import sys

import advectio
import pytest
from advectio import needs
from advectio.errors import UserError


@pytest.mark.parametrize(
    ("needed", "module", "text"),
    [
        (needs.for_cmor, "yaml", r"outputs with cmor need the Python package PyYAML.*pip install 'advectio\[cmor\]'"),
        (needs.for_pictures, "PIL", r"pictures need the Python package pillow.*pip install 'advectio\[plot\]'"),
        (needs.for_frames, "xarray", r"live frames need the Python package xarray.*pip install 'advectio\[live\]'"),
    ],
)
def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, needed, module, text):
    assert needed("json").dumps(1) == "1"
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=text):
        needed(module)


def test_frames_say_it_before_they_wait_for_a_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(UserError, match=r"pip install 'advectio\[live\]'"):
        next(advectio.frames("wrfout*", run="/nowhere"))
