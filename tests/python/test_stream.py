"""How a reader takes the end of a server, of made-up ones."""

import pytest
from advectio.live.client import Ended, Gone
from advectio.live.stream import Node

WAIT = {"match": ["*"], "policy": "wait"}


class Server:
    """Answers the first requests, then is gone. `said`: its last word."""

    def __init__(self, *answers, said=None):
        self.answers, self.said, self.asked = list(answers), said, []

    @property
    def alive(self):
        return bool(self.answers)

    def ask(self, do, **keys):
        self.asked.append((do, keys))
        if not self.answers:
            raise Gone("the connection has broken")
        return self.answers.pop(0)

    def end(self, wait):
        return self.said

    def done(self, frame):
        pass


def subscribed(after):
    return {"subscription": 1, "after": after}


def node(*servers, over=False):
    left = iter(servers)
    return Node(lambda: next(left), WAIT, lambda: over)


def test_who_comes_as_the_run_ends_is_told_so():
    with pytest.raises(Ended, match=r"the run has ended, before this reader had subscribed"):
        node(Server(said={"frames": []}), over=True)


def test_a_run_that_is_gone_without_a_last_word_was_stopped():
    with pytest.raises(Gone, match="without a word"):
        node(Server(), over=True)


def test_a_reader_goes_on_at_the_next_server_behind_the_frame_that_it_has_had():
    frame = {"frame": {"frame": 8, "path": "a.nc", "number": 7, "in_memory": False}}
    second = Server(subscribed(8), {"timeout": True})
    n = node(Server(subscribed(7), frame), second)
    assert n.next(0).number == 7
    assert n.next(0) is None
    assert n.next(0) is None
    assert [do for do, _ in second.asked] == ["subscribe", "next"]
    assert second.asked[0][1]["after"] == 8


def test_what_was_left_comes_with_the_last_word():
    rest = [
        {"subscription": 1, "frame": 9, "path": "a.nc", "number": 8},
        {"subscription": 2, "frame": 9, "path": "b.nc", "number": 0},
    ]
    n = node(Server(subscribed(0), {"end": True}, said={"frames": rest}))
    assert [n.next(0).path, n.next(0), n.ended] == ["a.nc", None, True]
