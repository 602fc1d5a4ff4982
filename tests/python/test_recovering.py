"""What ``advectio recover`` says in the end."""

from pathlib import Path

import pytest
from advectio import recovering
from advectio.protocol import Status


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (["open", "finished"], "1 dataset could not be finished"),
        (["failed", "closed", "dropped"], "2 datasets could not be finished"),
        (["finished"], "not all of it could be finished"),
    ],
)
def test_what_stays_is_counted(states: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = [recovering.Recovered(f"{state}.nc", None, 0, None, state, None, None) for state in states]
    recovering._show(str(tmp_path), found, Status(errors=[]), [], [])  # type: ignore[typeddict-item]
    assert f"advectio: {said}; what is staged stays in" in capsys.readouterr().err
