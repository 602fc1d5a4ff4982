"""`advectio run --wait-for-readers`: the program starts when they have subscribed."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import advectio
from conftest import Pair
from running import Running

WRITER = Path(__file__).parent / "programs" / "live" / "writer.py"
FRAMES = 6


def begin(pair: Pair, *options: str, nodes: str | None = None) -> tuple[Running, str]:
    """The writer waits for nothing: whoever is not there when it starts misses frames."""
    (pair.carried / "go").touch()
    words = [sys.executable, WRITER, "out.nc", str(FRAMES), "0"]
    return pair.advectio.start(words, pair.carried, options=options, nodes=nodes), os.fspath(pair.advectio.run_dirs[-1])


class Reader(threading.Thread):
    def __init__(self, run: str) -> None:
        super().__init__(daemon=True)
        self._run, self.seen = run, []
        self.start()

    def run(self) -> None:
        for ds in advectio.frames("out*.nc", run=self._run):
            self.seen.append((int(ds.encoding["advectio_frame"]), float(ds.T2[0, 0, 0])))

    def end(self) -> list[tuple[int, float]]:
        self.join(60)
        assert not self.is_alive()
        return self.seen


def all_frames() -> list[tuple[int, float]]:
    return [(k, float(k)) for k in range(FRAMES)]


def test_the_program_starts_when_the_readers_are_there_and_they_get_every_frame(pair: Pair):
    running, run = begin(pair, "--wait-for-readers", "2")
    running.wait_for(lambda: any("waiting up to 60 s for 2 live readers" in e for e in running.errors), "it waited")
    first = Reader(run)
    running.wait_for(lambda: any("1 of 2 live readers subscribed" in e for e in running.errors), "it saw one reader")
    assert not running.lines, "the program has started with one reader of two"
    second = Reader(run)
    result = running.finish()
    assert result.code == 0, result.said
    assert first.end() == second.end() == all_frames()
    assert f"2 of 2 live readers subscribed: pid {os.getpid()} (out*.nc), pid {os.getpid()} (out*.nc)" in result.stderr


def test_a_reader_of_several_servers_counts_once(pair: Pair):
    running, run = begin(pair, "--wait-for-readers", "2", nodes="1,0")
    readers = [Reader(run)]
    running.wait_for(lambda: any("1 of 2 live readers subscribed" in e for e in running.errors), "it counted them as one")
    assert not running.lines, "one reader was taken for two"
    readers.append(Reader(run))
    result = running.finish()
    assert result.code == 0, result.said
    assert [reader.end() for reader in readers] == [all_frames()] * 2


def test_where_they_do_not_come_the_program_is_not_started(pair: Pair):
    running, run = begin(pair, "--wait-for-readers", "1", "--readers-within", "1")
    result = running.finish()
    assert result.code == 2
    assert "error: 0 of 1 live readers had subscribed after 1 s; the command was not started. Start the" in result.stderr
    assert not result.stdout and not list(pair.carried.glob("out*"))
    assert not os.path.exists(run)


def test_who_interrupts_the_waiting_starts_nothing(pair: Pair):
    running, run = begin(pair, "--wait-for-readers", "1")
    running.wait_for(lambda: any("waiting up to" in e for e in running.errors), "it waited")
    running.process.send_signal(signal.SIGINT)
    result = running.finish()
    assert result.code == 130, result.said
    assert not result.stdout and not os.path.exists(run)


def test_a_server_that_dies_while_readers_are_waited_for_is_replaced(pair: Pair):
    running, run = begin(pair, "--wait-for-readers", "2")
    running.wait_for(lambda: any("waiting up to" in e for e in running.errors), "it waited")
    readers = [Reader(run)]
    running.wait_for(lambda: any("1 of 2 live readers subscribed" in e for e in running.errors), "it saw one reader")
    running.kill("advectiod")
    running.wait_for(lambda: any("restarted (1 of at most" in e for e in running.errors), "the server was replaced")
    readers.append(Reader(run))
    result = running.finish()
    assert result.code == 0, result.said
    assert [reader.end() for reader in readers] == [all_frames()] * 2
