"""Add up JUnit reports (ctest, pytest): each failed test with the end of what it printed, then one closing line.

Exit code 1 when something failed.

usage: tally.py [--steps PASSED FAILED] REPORT...
"""

import sys
import xml.etree.ElementTree as ElementTree

SHOWN_LINES = 25


def show_failure(case: ElementTree.Element, report: str) -> None:
    print(f"failed: {case.get('classname', '')} {case.get('name', '')} ({report})")
    for child in case:  # pytest: failure and error; ctest: what the test printed
        if child.tag in ("failure", "error", "system-out"):
            lines = ((child.get("message") or "") + "\n" + (child.text or "")).strip().splitlines()
            for line in lines[-SHOWN_LINES:]:
                print(f"    {line[:300]}")


def main(reports: list[str]) -> int:
    passed = failed = skipped = 0
    if reports[:1] == ["--steps"]:
        passed, failed = int(reports[1]), int(reports[2])
        reports = reports[3:]
    for report in reports:
        try:
            cases = list(ElementTree.parse(report).iter("testcase"))
        except (OSError, ElementTree.ParseError) as error:
            print(f"{report}: {error}", file=sys.stderr)
            failed += 1  # tests that never ran are no success
            continue
        for case in cases:
            if case.find("failure") is not None or case.find("error") is not None:
                failed += 1
                show_failure(case, report)
            elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
                skipped += 1
            else:
                passed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
