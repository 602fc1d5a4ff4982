"""Every link in a Markdown page leads to a file that git keeps, and to a heading that is there."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def without_code(text: str) -> str:
    """The page without its code, in which brackets are no links and `#` is no heading."""
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "``", text)


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.DOTALL | re.MULTILINE)
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.*?) *$", text, flags=re.MULTILINE):
        heading = LINK.sub(lambda link: link.group().partition("](")[0][1:], heading)
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        again = 0
        while (anchor if not again else f"{anchor}-{again}") in found:
            again += 1
        found.add(anchor if not again else f"{anchor}-{again}")
    return found


def faults(page: Path, kept: set[Path]) -> list[str]:
    """What is wrong with the links of a page; `kept` are the files of git and their directories."""
    wrong = []
    for link in LINK.findall(without_code(page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if target not in kept:
            wrong.append(f"{link}: no such file")
        elif anchor and anchor not in anchors(target.read_text()):
            wrong.append(f"{link}: no such heading")
    return wrong


def test_links_lead_somewhere() -> None:
    # Also what is not committed yet, so that a new page and the link to it can be checked together.
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode != 0:
        pytest.skip("not a clone")
    files = {ROOT / name for name in listed.stdout.split("\0") if name}
    files = {file for file in files if file.is_file()}
    kept = files | {folder for file in files for folder in file.parents}
    pages = sorted(file for file in files if file.suffix == ".md")
    assert len(pages) > 50
    wrong = [f"{page.relative_to(ROOT)}: {fault}" for page in pages for fault in faults(page, kept)]
    assert not wrong, "\n".join(wrong)


def test_finds_links_that_lead_nowhere(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    other = tmp_path / "other.md"
    page.write_text(
        "# A `page`, of two\n[a](#a-page-of-two) [b](other.md#twice-1) [c](other.md#thrice) [d](gone.md)\n"
        "`[e](gone.md)` [f](https://example.org/gone.md) [g](#in-code)\n```\n# In code\n[h](gone.md)\n```\n"
    )
    other.write_text("## Twice\n## [Twice](page.md)\n")
    assert faults(page, {page, other}) == [
        "other.md#thrice: no such heading",
        "gone.md: no such file",
        "#in-code: no such heading",
    ]
