"""Which connections to a run's servers are readers that have subscribed."""

from typing import Any

from advectio.awaiting import subscribed, subscribers


def connection(reader: str | None, servers: int = 1, subscriptions: int = 1, address: str = "") -> dict[str, Any]:
    wants = [{"match": ["wrfout_d01*"]}] * subscriptions
    return {"reader": reader, "servers": servers, "subscriptions": wants, "address": address, "name": "python"}


def count(*connections: dict[str, Any]) -> int:
    return subscribed({"readers": {"connected": list(connections)}})  # type: ignore[typeddict-item,misc]


def test_a_reader_of_several_servers_is_one_and_only_when_all_its_connections_are_there():
    assert count(connection("r", 2)) == 0
    assert count(connection("r", 2), connection("r", 2, 0)) == 0
    assert count(connection("r", 2), connection("r", 2)) == 1
    assert count(connection("r", 2), connection("r", 2), connection("s", 1)) == 2


def test_readers_without_a_name_of_their_own_are_told_apart_by_address():
    assert count(connection(None, address="a"), connection(None, address="b")) == 2
    assert count(connection(None, subscriptions=0)) == 0
    assert subscribed({}) == 0  # type: ignore[typeddict-item]


def test_each_is_named_with_the_files_that_it_wants():
    everything = connection("t")
    everything["subscriptions"] = [{"match": []}]
    all_of_them = [connection("r", 2), connection("r", 2), everything]
    assert subscribers({"readers": {"connected": all_of_them}}) == [  # type: ignore[typeddict-item]
        "python (all files)",
        "python (wrfout_d01*)",
    ]
