"""Add up JUnit reports (ctest, pytest) into one closing line. Exit code 1 when something failed.

usage: tally.py [--steps PASSED FAILED] REPORT...
"""

import sys
import xml.etree.ElementTree as ElementTree


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
            elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
                skipped += 1
            else:
                passed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
