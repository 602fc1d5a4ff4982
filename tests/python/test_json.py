"""What the commands give as JSON is what docs/json.md says, and what the types in the package say."""

import json
import re
from pathlib import Path

import advectio
import pytest
from advectio import (
    await_files,
    checking,
    config_json,
    converting,
    events,
    inspecting,
    joining,
    linking,
    plotting,
    processing,
    protocol,
    recovering,
    set_record,
    view,
    watching,
    workflow,
)
from fake_installation import dataset, rule, survey_of_dataset, survey_of_journal
from shapes import heading, in_words, keys_of, must_fit
from test_commands import final

DOCUMENT = Path(__file__).parents[2] / "docs" / "json.md"
SHAPES = [
    protocol.Status, protocol.ServerStatus, protocol.StageStatus, protocol.WriterStatus, protocol.DatasetStatus,
    protocol.Spread, protocol.NodeStatus, protocol.UnmatchedRule, protocol.ConfigName, protocol.NotReadable, protocol.Transferred, protocol.NotTransferred,
    protocol.CommandsRun, protocol.SetReport, protocol.HalfSet, protocol.MissingPart, config_json.EventCommands, config_json.RestartSet, events.Event, await_files.Waited, await_files.WaitedFile,
    protocol.ReadersStatus, protocol.ReaderStatus, protocol.SubscriptionStatus,
    watching.Unserved, checking.Report, checking.FindingReport, linking.ProgramReport, linking.LinkedLibrary, config_json.Config, config_json.Value, config_json.Rule, config_json.OperatorOutput, config_json.CoupleRule,
    config_json.Transfers, config_json.Transfer, config_json.Here, config_json.Like, inspecting.Survey, inspecting.SurveyOfNodes,
    inspecting.JournalSurvey, inspecting.Damage, inspecting.DatasetSurvey, inspecting.RecordLine, inspecting.Record,
    set_record.SetRecord, set_record.RecordedRun, set_record.RecordedHalf, set_record.RecordedPart, set_record.RecordedSet, set_record.RecordedFile,
    recovering.Recovery, recovering.DryRecovery, recovering.RecoveredReport, recovering.ReachedReport, recovering.Writer,
    joining.Result, joining.Joined, joining.Failed, processing.Processed, protocol.ProcessedOutput, protocol.Made, converting.Converted, converting.ConvertedOutput, plotting.Pictures, plotting.Picture,
    view.Address, workflow.WorkflowStatus, workflow.WorkflowNode, workflow.WorkflowProgram, workflow.WorkflowWait, workflow.WorkflowFile,
]  # fmt: skip


def sections() -> dict[str, dict[str, str]]:
    """By heading: the keys of its table with their types."""
    found: dict[str, dict[str, str]] = {}
    title = ""
    for line in DOCUMENT.read_text().splitlines():
        if line.startswith("### "):
            title = line.removeprefix("### ")
            found[title] = {}
        elif title and (row := re.fullmatch(r"\| `(\w+)` \| (.*?) \| .*\|", line)):
            found[title][row[1]] = row[2]
    return found


def test_every_type_has_its_section_and_every_section_its_type():
    assert set(sections()) == {heading(shape) for shape in SHAPES}


@pytest.mark.parametrize("shape", SHAPES, ids=heading)
def test_the_page_says_what_the_types_say(shape):
    more_than = keys_of(protocol.Status) if shape is recovering.Recovery else {}
    said = {
        key: in_words(kind) + ("" if always else ", not always")
        for key, (kind, always) in keys_of(shape).items()
        if key not in more_than
    }
    assert sections()[heading(shape)] == said


def test_status_and_summary(fake):
    names = [{"key": "round", "name": "T", "origin": "advectio.yaml:3", "found": True}]
    fake.tell(datasets=[dataset()], rules=[rule("x")], config_names=names)
    assert fake.run("run", "--json", "s.json", "--", *fake.command("status", "--json")).returncode == 0
    must_fit(json.loads((fake.work / "s.json").read_text()), protocol.Status)
    inside = fake.run("run", "-q", "--", *fake.command("status", "--json"))
    must_fit(json.loads(inside.stdout), protocol.Status)
    left = fake.directory / "left"
    left.mkdir()
    (left / "control").touch()
    must_fit(json.loads(fake.run("status", "--json", left).stdout), watching.Unserved)


def test_a_summary_is_loaded(fake):
    fake.tell(datasets=[dataset()])
    fake.run("run", "-q", "--json", "s.json", "--", "true")
    summary = advectio.load_summary(fake.work / "s.json")
    assert summary["datasets"][0]["frames_visible"] == 3
    assert advectio.Summary is protocol.Status


@pytest.mark.parametrize("text", ["[]", "{}", '{"datasets": []}', "not JSON"])
def test_what_is_no_summary_is_a_value_error(tmp_path, text):
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(ValueError):
        advectio.load_summary(tmp_path / "s.json")
    with pytest.raises(FileNotFoundError):
        advectio.load_summary(str(tmp_path / "absent.json"))


def test_check_and_config(fake):
    fake.tell(rules=[rule("wrf*", codec="zstd")])
    must_fit(json.loads(fake.run("check", "--json").stdout), checking.Report)
    looked_into = json.loads(fake.run("check", "--json", "--", "env", "A=b", "cat").stdout)
    must_fit(looked_into, checking.Report)
    assert [program["kind"] for program in looked_into["programs"]] == ["dynamic"]
    must_fit(json.loads(fake.run("config", "explain", "--json").stdout), config_json.Config)
    unmatched = {"match": "x", "origin": "advectio.yaml:3"}
    fake.tell(like={"unmatched_rules": [unmatched], "config_names": []})
    must_fit(json.loads(fake.run("check", "--like", "a.nc", "--json").stdout), checking.Report)


def test_inspect_and_recover(fake):
    left = fake.directory / "left"
    left.mkdir()
    record = {"journal": "0-1-x", "sequence": 5, "type": "put", "dataset": 1, "collective_index": 0, "flags": 0, "bytes": 77,
              "time_s": 0.25, "crc_ok": False}  # fmt: skip
    fake.tell(
        inspect={"journals": [survey_of_journal(alive=True)], "datasets": [survey_of_dataset(bytes_unsynced=500)]},
        records=[record],
        recover=final(),
    )
    must_fit(json.loads(fake.run("inspect", "--json", left).stdout), inspecting.Survey)
    must_fit(json.loads(fake.run("inspect", "--records", "--json", left).stdout.splitlines()[0]), inspecting.RecordLine)
    must_fit(json.loads(fake.run("recover", "--dry-run", "--json", left).stdout), recovering.DryRecovery)
    must_fit(json.loads(fake.run("recover", "--json", left).stdout), recovering.Recovery)


def test_what_does_not_fit_is_named():
    with pytest.raises(AssertionError) as caught:
        must_fit(dataset(frames_synced="3", more=1, error=2), protocol.DatasetStatus)
    assert str(caught.value).splitlines()[:3] == [
        ".more is not in DatasetStatus",
        ".frames_synced: '3' is no int",
        ".error: 2 is no str",
    ]
