"""Limits of the shell that are in the way of a run."""

import resource

import pytest
from advectio import limits, places
from advectio.errors import UserError


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    allowed: dict[int, int] = {}
    monkeypatch.setattr(resource, "getrlimit", lambda what: (allowed.get(what, resource.RLIM_INFINITY),) * 2)
    return allowed


def test_without_limits_nothing_is_said(shell: dict[int, int]):
    assert not limits.limits_in_the_way()
    assert limits.few_files() is None


@pytest.mark.parametrize(
    ("what", "value", "advice"),
    [(resource.RLIMIT_FSIZE, 1 << 30, "ulimit -f unlimited"), (resource.RLIMIT_AS, 1 << 30, "ulimit -v unlimited")],
)
def test_each_limit_is_said_with_what_to_do(shell: dict[int, int], what: int, value: int, advice: str):
    shell[what] = value
    [(said, todo)] = limits.limits_in_the_way()
    assert "1.07 GB" in said
    assert todo == advice


def test_too_few_open_files_are_said(shell: dict[int, int]):
    shell[resource.RLIMIT_NOFILE] = 64
    assert limits.few_files() == ("only 64 open files are allowed", "ulimit -n 1024")


def test_a_directory_that_others_may_write_is_not_ours(tmp_path):
    places.must_be_ours(str(tmp_path))
    places.must_be_ours(str(tmp_path / "not there"))
    tmp_path.chmod(0o720)
    with pytest.raises(UserError, match="is not the run directory of a run"):
        places.must_be_ours(str(tmp_path))
    (tmp_path / "control").touch()
    with pytest.raises(UserError, match=r"can be written by others, and is left alone$"):
        places.must_be_ours(str(tmp_path))
