"""What `make test` says in the end: flaky tests apart from failed ones."""

import subprocess
import sys
from pathlib import Path

TALLY = Path(__file__).parents[2] / "scripts" / "tally.py"


def report(path: Path, **results: str) -> Path:
    body = "".join(
        f'<testcase classname="suite" name="{name}">{f"<{result}/>" if result != "passed" else ""}</testcase>'
        for name, result in results.items()
    )
    path.write_text(f"<testsuites><testsuite>{body}</testsuite></testsuites>")
    return path


def tally(*words: str | Path) -> tuple[int, list[str]]:
    done = subprocess.run([sys.executable, TALLY, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


def test_all_reports_are_added_up(tmp_path: Path):
    first = report(tmp_path / "first", a="passed", b="skipped")
    code, said = tally(first, report(tmp_path / "second", c="passed"))
    assert code == 0
    assert said == ["2 passed, 0 failed, 1 skipped"]


def test_a_failed_test_is_named(tmp_path: Path):
    code, said = tally(report(tmp_path / "first", a="passed", b="failure", c="error"))
    assert code == 1
    assert [line.split(" (")[0] for line in said] == ["failed: suite b", "failed: suite c", "1 passed, 2 failed, 0 skipped"]


def test_what_passes_again_is_flaky_and_listed(tmp_path: Path):
    first = report(tmp_path / "first", a="passed", b="failure", c="failure")
    again = report(tmp_path / "again", b="passed", c="failure")
    code, said = tally("--again", again, "--flaky", tmp_path / "flaky.md", first)
    assert code == 1
    assert said[0].startswith("flaky: suite b") and said[1].startswith("failed: suite c")
    assert said[2:] == ["flaky: 1, passed when run again alone", "2 passed, 1 failed, 0 skipped"]
    assert (tmp_path / "flaky.md").read_text().endswith(" `suite b`\n")


def test_what_is_skipped_the_second_time_has_failed(tmp_path: Path):
    first, again = report(tmp_path / "first", a="failure"), report(tmp_path / "again", a="skipped")
    assert tally("--again", again, first)[0] == 1


def test_a_report_that_is_missing_is_a_failure(tmp_path: Path):
    code, said = tally(tmp_path / "none")
    assert (code, said) == (1, ["0 passed, 1 failed, 0 skipped"])
