"""What `advectio inspect` and `recover --dry-run` tell of a run that was killed is what `recover` then does."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from advectio import inspecting, recovering
from conftest import Pair
from running import run_plainly
from shapes import must_fit
from test_crashes import FOREVER, kill_all, records, synced_frames

# Slow files, so that there is something staged when everything is killed.
SLOW = 'server: {threads: 1, restarts_max: 0}\ndatasets: [{match: "*", codec: deflate, deflate: libdeflate, level: 9}]\n'


@pytest.fixture
def config() -> str:
    return SLOW


@pytest.fixture
def killed(made: Path, replay: Path, pair: Pair, config: str) -> tuple[Path, dict[str, int]]:
    """The run directory, and how many frames the program had synced of which file."""
    run_dir = pair.advectio.new_run_dir()
    running = pair.advectio.start([replay, "--tile", "3x3", made, *FOREVER], pair.carried, config, run_dir)
    running.wait_for(lambda: running.frames() >= 6, "6 frames were written")
    kill_all(running, run_dir)
    return run_dir, synced_frames(running.lines)


def picture(directory: Path) -> dict[str, Any]:
    """Every name with its bytes and the time of its last change."""
    return {
        str(path.relative_to(directory)): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(directory.rglob("*"))
        if not path.is_socket()
    }


def test_a_killed_run_is_told_of_and_recovered_as_told(pair: Pair, killed: tuple[Path, dict[str, int]]):
    run_dir, synced = killed
    before = picture(run_dir), picture(pair.carried)
    looked = pair.advectio.call("inspect", run_dir, "--verify", "--json")
    assert looked.code == 0, looked.said
    survey = json.loads(looked.stdout)
    must_fit(survey, inspecting.Survey)
    (journal,) = survey["journals"]
    assert not survey["served"] and journal["alive"] is False and journal["damage"] is None
    assert journal["payloads_checked"] == sum(journal["records"].values()) > 0
    in_flight = {Path(d["path"]).name: d for d in survey["datasets"]}
    assert in_flight, looked.said
    for name, d in in_flight.items():
        assert synced.get(name, 0) <= d["frames_synced"] <= synced.get(name, 0) + 1
        assert d["frames_visible"] + d["frames_staged"] == d["frames_synced"]
    assert sum(d["frames_staged"] for d in in_flight.values()) > 0, "nothing was staged: this test means nothing"

    listed = pair.advectio.call("inspect", run_dir, "--records", "--json").stdout.splitlines()
    sequences = [json.loads(line)["record"]["sequence"] for line in listed[:-1]]
    assert sequences == list(range(journal["first_sequence"], journal["last_sequence"] + 1))

    dry = pair.advectio.call("recover", "--dry-run", "--json", run_dir)
    assert dry.code == 0, dry.said
    assert (picture(run_dir), picture(pair.carried)) == before, "who only looks changes nothing"

    recovered = pair.advectio.call("recover", run_dir, "--json", directory=pair.carried)
    assert recovered.code == 0, recovered.said
    must_fit(json.loads(dry.stdout), recovering.DryRecovery)
    must_fit(json.loads(recovered.stdout), recovering.Recovery)
    told = {r["path"]: r for r in json.loads(dry.stdout)["recovered"]}
    for r in json.loads(recovered.stdout)["recovered"]:
        name = Path(r["path"]).name
        assert r["before"] == told[r["path"]]["before"]
        assert r["dropped"] == told[r["path"]]["dropped"]
        if r["state"] == "finished":
            frames = in_flight[name]["frames_synced"]
            assert r["after"] == {"frames_synced": frames, "frames_visible": frames, "frames_durable": frames}
            assert records(pair.carried / name) == frames
    again = pair.advectio.call("recover", run_dir)
    assert again.code == 4, again.said


def test_where_the_directory_of_the_output_is_not_there_the_stage_is_kept(pair: Pair, killed: tuple[Path, dict[str, int]]):
    """As where its file system is not mounted."""
    run_dir, synced = killed
    away = pair.carried.with_name("away")
    pair.carried.rename(away)
    before = picture(run_dir)
    for there in (False, True):
        if there:
            pair.carried.mkdir()
        dry = pair.advectio.call("recover", "--dry-run", run_dir)
        assert dry.code == 1 and "neither the file nor the directory that held it is there" in dry.stderr, dry.said
        assert picture(run_dir) == before
        recovered = pair.advectio.call("recover", run_dir)
        assert recovered.code == 1 and "is its file system mounted?" in recovered.stderr, recovered.said
        assert "complete" not in recovered.stderr and run_dir.exists(), recovered.said
        assert not there or not list(pair.carried.iterdir())
        before = picture(run_dir)
    pair.carried.rmdir()
    away.rename(pair.carried)
    recovered = pair.advectio.call("recover", run_dir)
    assert recovered.code == 0, recovered.said
    for name, frames in synced.items():
        assert records(pair.carried / name) >= frames


@pytest.mark.parametrize("config", [SLOW.replace("match: ", "appear: create, match: ")], ids=[""])
def test_a_file_that_has_been_removed_is_an_error_of_recover(pair: Pair, killed: tuple[Path, dict[str, int]]):
    run_dir, _ = killed
    in_flight = [Path(d["path"]) for d in inspecting.surveys(str(run_dir))[0]["datasets"] if d["frames_synced"] > 0]
    assert in_flight
    for path in in_flight:
        path.unlink()
    dry = pair.advectio.call("recover", "--dry-run", run_dir)
    assert dry.code == 1 and f"{in_flight[0]}: dropped: its file has been removed" in dry.stderr, dry.said
    recovered = pair.advectio.call("recover", run_dir)
    assert recovered.code == 1 and f"{in_flight[0]}: dropped: its file has been removed" in recovered.stderr, recovered.said
    assert f"{len(in_flight)} removed; {run_dir} is removed" in recovered.stderr.replace("datasets ", "").replace(
        "dataset ", ""
    )
    assert not run_dir.exists() and not any(path.exists() for path in in_flight)


def test_damage_in_a_segment_is_found(pair: Pair, killed: tuple[Path, dict[str, int]]):
    run_dir, _ = killed
    segment = max(run_dir.glob("journals/*/0*-s*"), key=lambda path: path.name)
    whole = bytearray(segment.read_bytes())
    whole[4096 + 64 + 1] ^= 1  # of the first record's description
    segment.write_bytes(whole)
    looked = pair.advectio.call("inspect", run_dir)
    assert looked.code == 1, looked.said
    assert f"{segment.name} at byte 4096: the record's description is damaged" in looked.stdout
    assert pair.advectio.call("recover", "--dry-run", run_dir).code == 1


def test_a_run_under_way_is_told_of_and_not_disturbed(made: Path, replay: Path, pair: Pair):
    running = pair.advectio.start([replay, "--tile", "2x2", made, *FOREVER], pair.carried)
    run_dir = pair.advectio.run_dirs[-1]
    running.wait_for(lambda: running.frames() >= 2, "2 frames were written")
    looked = pair.advectio.call("inspect", run_dir, "--verify", "--json")
    assert looked.code == 0, looked.said
    survey = json.loads(looked.stdout)
    assert survey["served"] and survey["journals"][0]["alive"]
    # By itself it is quick enough to meet segments that are given back under its eyes.
    advectiod = replay.parents[2] / "src" / "apps" / "advectiod" / "advectiod"
    for _ in range(15):
        done = run_plainly([advectiod, "inspect", run_dir, "--verify"], pair.plain)
        assert done.code == 0, done.said
    running.kill("replay")
    result = running.finish()
    assert result.code == 128 + signal.SIGKILL, result.said
    assert not run_dir.exists()
    for name, frames in synced_frames(running.lines).items():
        assert frames <= records(pair.carried / name) <= frames + 1


def test_a_killed_run_of_several_nodes_is_told_of_node_by_node(made: Path, replay: Path, pair: Pair):
    command: list[str | Path] = ["mpirun", "-n", "2", replay, "--io", "split", made, *FOREVER]
    run_dir = pair.advectio.new_run_dir()
    config = "server: {threads: 1, restarts_max: 0}\n"
    running = pair.advectio.start(command, pair.carried, config, run_dir, nodes="1,1")
    running.wait_for(lambda: running.frames() >= 4, "4 frames were written")
    servers = running.pids("advectiod_mpi")
    if not servers:
        pytest.skip("no advectiod_mpi here")
    for pid in [*servers, *running.pids("replay")]:
        os.kill(pid, signal.SIGKILL)
    assert running.finish().code != 0

    looked = pair.advectio.call("inspect", run_dir, "--json")
    assert looked.code == 0, looked.said
    nodes = json.loads(looked.stdout)["nodes"]
    assert [survey["node"] for survey in nodes] == ["n0", "n1"]
    assert all(survey["journals"] for survey in nodes)
    before = picture(run_dir), picture(pair.carried)
    dry = pair.advectio.call("recover", "--dry-run", "--json", run_dir)
    assert dry.code == 0, dry.said
    assert (picture(run_dir), picture(pair.carried)) == before

    recovered = pair.advectio.call("recover", run_dir, "--json", directory=pair.carried)
    assert recovered.code == 0, recovered.said
    told = {r["path"]: r["before"] for r in json.loads(dry.stdout)["recovered"]}
    found = json.loads(recovered.stdout)["recovered"]
    assert {r["path"] for r in found} == set(told)
    for r in found:
        assert r["before"] == told[r["path"]]
        if r["state"] == "finished":
            assert records(Path(r["path"])) == r["after"]["frames_visible"] >= r["before"]["frames_visible"]
