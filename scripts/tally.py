"""Add up JUnit reports (ctest, pytest): each failed test with the end of what it printed, each
flaky test, then one closing line.

A test that failed in a report and passed in an --again report is flaky. It counts as passed.
Exit code 1 when a test failed, or a report is missing.

usage: tally.py [--again REPORT]... [--flaky LIST.md] REPORT...
"""

import argparse
import datetime
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

SHOWN_LINES = 25

Case = ElementTree.Element


def cases_of(report: str) -> list[Case]:
    return list(ElementTree.parse(report).iter("testcase"))


def name_of(case: Case) -> str:
    return f"{case.get('classname', '')} {case.get('name', '')}".strip()


def has_failed(case: Case) -> bool:
    return case.find("failure") is not None or case.find("error") is not None


def was_skipped(case: Case) -> bool:
    return case.find("skipped") is not None or case.get("status") in ("notrun", "disabled")


def show(what: str, case: Case, report: str) -> None:
    print(f"{what}: {name_of(case)} ({report})")
    for child in case:  # pytest: failure and error; ctest: what the test printed
        if child.tag in ("failure", "error", "system-out"):
            lines = ((child.get("message") or "") + "\n" + (child.text or "")).strip().splitlines()
            for line in lines[-SHOWN_LINES:]:
                print(f"    {line[:300]}")


def passed_again(reports: list[str]) -> set[str]:
    """The tests that passed in all of these reports in which they ran."""
    good: set[str] = set()
    bad: set[str] = set()
    for report in reports:
        try:
            cases = cases_of(report)
        except (OSError, ElementTree.ParseError):
            continue  # nothing passed there
        for case in cases:
            (bad if has_failed(case) or was_skipped(case) else good).add(name_of(case))
    return good - bad


def note(flaky: list[str], path: Path) -> None:
    """Add a line for each to a list that people mend from."""
    with path.open("a") as file:
        for name in flaky:
            file.write(f"* {datetime.date.today().isoformat()} `{name}`\n")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--again", action="append", default=[], metavar="REPORT", help="of a second run of what failed")
    parser.add_argument("--flaky", type=Path, metavar="LIST.md", help="gets a line for each flaky test")
    parser.add_argument("reports", nargs="+", metavar="REPORT")
    asked = parser.parse_args(arguments)

    second_chance = passed_again(asked.again)
    passed = failed = skipped = 0
    flaky = []
    for report in asked.reports:
        try:
            cases = cases_of(report)
        except (OSError, ElementTree.ParseError) as error:
            print(f"{report}: {error}", file=sys.stderr)
            failed += 1  # tests that never ran are no success
            continue
        for case in cases:
            if has_failed(case) and name_of(case) in second_chance:
                passed += 1
                flaky.append(name_of(case))
                show("flaky", case, report)
            elif has_failed(case):
                failed += 1
                show("failed", case, report)
            elif was_skipped(case):
                skipped += 1
            else:
                passed += 1
    if asked.flaky and flaky:
        note(flaky, asked.flaky)
    if flaky:
        print(f"flaky: {len(flaky)}, passed when run again alone")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
