"""What is wrong with a config is said in one line, before the model starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import Advectio

WRONG = {
    "an unknown key": ("stage: {byte_max: 1GiB}\n", ["stage.byte_max", "bytes_max"]),
    "an unknown section": ("stages: {}\n", ["stages", "stage"]),
    "an unknown key of a rule": ('datasets: [{match: "*", codek: zstd}]\n', ["codek", "codec"]),
    "an unknown codec": ('datasets: [{match: "*", codec: zip}]\n', ["codec", "zip"]),
    "a size without a unit": ("stage: {bytes_max: 1000}\n", ["stage.bytes_max", "1000"]),
    "a bad unit": ("stage: {bytes_max: 4GiBs}\n", ["stage.bytes_max", "4GiBs"]),
    "a bad unit of time": ("stage: {wait_max: 4fortnights}\n", ["stage.wait_max", "4fortnights"]),
    "a stage that does not exist": ("stage: {directory: /nowhere/at/all}\n", ["/nowhere/at/all"]),
    "a stage that cannot be written": ("stage: {directory: /proc}\n", ["/proc"]),
    "a log that cannot be written": ("log: {file: /proc/advectio.log}\n", ["/proc/advectio.log"]),
    "a cap smaller than a segment": ("stage: {bytes_max: 1MiB, segment_bytes: 32MiB}\n", ["bytes_max"]),
    "a cap smaller than one record": ("stage: {bytes_max: 100B}\n", ["bytes_max"]),
    "segments of a wrong size": ("stage: {segment_bytes: 1MB}\n", ["segment_bytes"]),
    "no threads": ("server: {threads: 0}\n", ["threads"]),
    "a rule without match": ("datasets: [{codec: zstd}]\n", ["match"]),
    "too many bits": ('datasets: [{match: "*", round: {T: 60}}]\n', ["round"]),
    "no YAML": ("stage: [\n", ["yaml"]),
    "text instead of keys": ("hello\n", []),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("own_run_dir", [False, True])
def test_wrong(advectio: Advectio, tmp_path: Path, what: str, own_run_dir: bool):
    text, named = WRONG[what]
    config = tmp_path / "wrong.yaml"
    config.write_text(text)
    if own_run_dir and "stage that" in what:
        pytest.skip("stage.directory does not matter where --run-dir is given")
    options = ["--run-dir", advectio.new_run_dir()] if own_run_dir else []
    result = advectio.call("run", "--config", config, *options, "--", "touch", "started", directory=tmp_path)
    assert result.code != 0, result.said
    assert not (tmp_path / "started").exists(), "the model was started"
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1 and not result.stdout, result.said
    for word in named:
        assert word.lower() in lines[0].lower(), result.said
    for run_dir in advectio.run_dirs:
        assert not run_dir.exists()


def test_a_config_that_is_not_there(advectio: Advectio, tmp_path: Path):
    result = advectio.call("run", "--config", tmp_path / "absent.yaml", "--", "touch", "started", directory=tmp_path)
    assert result.code != 0 and not (tmp_path / "started").exists(), result.said
    assert len(result.stderr.strip().splitlines()) == 1 and "absent.yaml" in result.stderr, result.said


def test_the_config_of_the_directory_is_taken(advectio: Advectio, tmp_path: Path):
    (tmp_path / "advectio.yaml").write_text("stage: {byte_max: 1GiB}\n")
    result = advectio.call("run", "--", "touch", "started", directory=tmp_path)
    assert result.code != 0 and not (tmp_path / "started").exists(), result.said
    assert "advectio.yaml:1" in result.stderr, result.said


def test_a_command_that_is_not_there(advectio: Advectio, tmp_path: Path):
    result = advectio.call("run", "--", "no-such-model", directory=tmp_path)
    assert result.code == 127 and len(result.stderr.strip().splitlines()) == 1, result.said
