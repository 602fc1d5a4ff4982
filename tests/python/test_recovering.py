"""What ``advectio recover`` says in the end."""

from pathlib import Path

import pytest
from advectio import recovering
from advectio.protocol import Status, is_incomplete


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


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (["finished", "finished"], "2 datasets complete"),
        (["finished", "dropped", "removed"], "1 dataset complete, 1 dropped, 1 removed"),
        (["removed", "removed"], "2 datasets removed"),
    ],
)
def test_what_has_no_file_is_not_called_complete(
    states: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [recovering.Recovered(f"{state}.nc", None, 0, None, state, None, None) for state in states]
    gone = str(tmp_path / "run")
    recovering._show(gone, found, Status(errors=[]), [], [])  # type: ignore[typeddict-item]
    assert f"advectio: {said}; {gone} is removed" in capsys.readouterr().err


@pytest.mark.parametrize(("state", "synced", "lost"), [("dropped", 0, False), ("dropped", 2, True), ("finished", 2, False)])
def test_a_synced_frame_that_is_dropped_is_an_error(state: str, synced: int, lost: bool) -> None:
    assert is_incomplete({"state": state, "frames_synced": synced, "error": None}) == lost  # type: ignore[typeddict-item]
