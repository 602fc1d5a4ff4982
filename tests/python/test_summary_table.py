"""The table at the end of a run: the same on a terminal and in a job's log."""

import subprocess
import sys

from advectio.summary import footer_of, lines_of, table_of
from fake_installation import dataset
from rich.console import Console
from test_commands import final

STATUS = {
    "datasets": [
        dataset("/out/wrfout_d01"),
        dataset("/out/" + "a" * 80, state="failed", error="No space left on device", frames_dropped=2),
        dataset("/out/empty", stall_s=None, to_visible_s=None, to_durable_s=None, bytes_written=0),
    ]
}


def rendered(status):
    console = Console(width=200, highlight=False)
    with console.capture() as capture:
        console.print(table_of(status))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_a_log_gets_the_table_of_a_terminal():
    assert lines_of(STATUS) == rendered(STATUS)
    assert " ".join(lines_of(STATUS)[1].split()) == "wrfout_d01 3 3.00 GB 3.00 31.0 ms 200 ms 1.50 s 1.75 s"


def test_a_log_gets_the_groups_of_a_terminal():
    many = {"datasets": [dataset(f"/out/file{letter}_{n:04}") for letter in "abcdefghijklmnop" for n in range(2)]}
    assert [line.split() for line in lines_of(many)] == [line.split() for line in rendered(many)]
    assert "… and " in lines_of(many)[-1]


def test_a_further_output_has_a_row_of_its_own():
    files = [dataset(f"/out/wrfout_d01_2026-01-{n:02}_00:00:00") for n in range(1, 12)]
    small = [dataset(d["path"].replace("/out/", "/out/small/"), output_of=d["path"], stall_s=None) for d in files]
    away = [dataset(d["path"].replace("/out/", "/archive/"), output_of=d["path"], stall_s=None) for d in files]
    names = [line.split()[0] for line in lines_of({"datasets": files + small + away})[1:]]
    assert names == ["wrfout_d01_*", "small/wrfout_d01_*", "/archive/wrfout_d01_*"]


def test_a_log_needs_nothing_that_draws(fake):
    fake.tell(datasets=[dataset()])
    code = (
        "import sys; sys.argv[1:] = ['run', '--', 'true']\nfrom advectio.__main__ import main\n"
        "try: main()\nexcept SystemExit as end: assert not end.code\n"
        "print([m for m in ('rich', 'dataclasses', 'statistics') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=fake.env, cwd=fake.work, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert "advectio: 1 dataset, complete; command " in done.stderr


def test_the_footer_tells_of_a_sprint_that_took_a_while():
    status = final()
    status["server"] |= {"sprint_threads": 64, "sprint_s": 12.34}
    assert "at the end 12.3 s with 64 threads" in footer_of(status)
    status["server"]["sprint_s"] = 0.9
    assert "at the end" not in footer_of(status)
