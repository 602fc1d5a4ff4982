"""What the real programs give as JSON is what docs/json.md says (tests/python/test_json.py holds the page against the types)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from advectio import checking, config_json, inspecting, joining, load_summary, protocol, recovering
from running import Advectio, Result
from shapes import must_fit


@pytest.fixture
def out(tmp_path: Path) -> Path:
    directory = tmp_path / "out"
    directory.mkdir()
    return directory


def told(result: Result) -> object:
    assert result.stdout, result.said
    return json.loads(result.stdout)


def test_a_run_its_status_and_its_survey(advectio: Advectio, replay: Path, made: Path, out: Path):
    (out / "look.sh").write_text(
        f'"$1" "$2"\n{advectio.command} status --json "$ADVECTIO_RUN" >status.json\n'
        f'{advectio.command} inspect --json "$ADVECTIO_RUN" >survey.json\n'
        f'{advectio.command} inspect --records --json "$ADVECTIO_RUN" >records.json\n'
        f'{advectio.command} recover --dry-run --json "$ADVECTIO_RUN" >dry.json\n'
    )
    config = 'datasets: [{match: "wrfout_*", codec: zstd}, {match: "no_such_*"}]\n'
    result = advectio.run(["sh", "look.sh", replay, made], out, config)
    summary = load_summary(advectio.scratch / "summary-0.json")
    must_fit(summary, protocol.Status)
    assert [rule["match"] for rule in summary["unmatched_rules"]] == ["no_such_*"], result.said
    must_fit(json.loads((out / "status.json").read_text()), protocol.Status)
    must_fit(json.loads((out / "survey.json").read_text()), inspecting.Survey)
    must_fit(json.loads((out / "dry.json").read_text()), recovering.DryRecovery)
    *records, survey = (out / "records.json").read_text().splitlines()
    must_fit(json.loads(survey), inspecting.Survey)
    for record in records:
        must_fit(json.loads(record), inspecting.RecordLine)


def test_check_and_config(advectio: Advectio, tmp_path: Path):
    config = tmp_path / "c.yaml"
    config.write_text('stage: {in: [{from: "*", to: /tmp}]}\ndatasets: [{match: "wrfout_*", round: {T: 10}}]\n')
    with config.open("a") as more:
        more.write("couple: [{match: 'h.*', from: a, to: b, exclude: ['h.0'], variables: [T], mode: memory+file}]\n")
    must_fit(told(advectio.call("check", "--json", "--config", config, directory=tmp_path)), checking.Report)
    must_fit(told(advectio.call("config", "explain", "--json", "--config", config)), config_json.Config)


def test_a_join(advectio: Advectio, made: Path, out: Path):
    must_fit(told(advectio.call("join", "--json", made, "-o", out / "whole", directory=out)), joining.Result)


def test_several_nodes(advectio: Advectio, replay: Path, made: Path, out: Path):
    if not (replay.parents[2] / "src" / "apps" / "advectiod" / "advectiod_mpi").exists():
        pytest.skip("no advectiod_mpi: no MPI here")
    result = advectio.run([replay, made], out, nodes="1,1")
    must_fit(result.summary, protocol.Status)
