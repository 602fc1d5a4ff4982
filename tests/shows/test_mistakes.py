"""Mistakes that people make in their first hour, and what they are told. The texts are part of the contract: one line that
names the place and says what to do instead."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from advectio import load_summary, places, watching
from running import Advectio, Result, run_plainly

WIDE = {"COLUMNS": "200"}  # errors about options stand in a box as wide as the terminal
Told = Callable[..., Result]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    directory = tmp_path / "out"
    directory.mkdir()
    return directory


@pytest.fixture
def told(advectio: Advectio, out: Path) -> Told:
    """Runs `advectio` in the output directory, where the config is, if there is one."""

    def call(*words: str | Path, config: str | None = None) -> Result:
        if config is not None:
            (out / "advectio.yaml").write_text(config)
        return advectio.call(*words, directory=out, extra=WIDE)

    return call


CONFIGS = {
    "a key that is misspelt": (
        'datasets:\n  - match: "wrfout_*"\n    codek: zstd\n',
        "advectio.yaml:3: unknown key datasets[0].codek; did you mean datasets.codec?",
    ),
    "a key of a rule outside of rules": (
        "compression: zstd\n",
        "advectio.yaml:1: unknown key compression; did you mean datasets.codec? (a key of a rule, beside match)",
    ),
    "a unit that is cut short": (
        "stage:\n  bytes_max: 16G\n",
        "advectio.yaml:2: stage.bytes_max: '16G' has the unknown unit 'G'; write e.g. 4GiB "
        "(units: B, KB, MB, GB, TB, KiB, MiB, GiB, TiB)",
    ),
    "a size without a unit": (
        "stage:\n  bytes_max: 16\n",
        "advectio.yaml:2: stage.bytes_max: '16' has no unit; write e.g. 4GiB",
    ),
    "minutes as m": (
        "stage:\n  wait_max: 10m\n",
        "advectio.yaml:2: stage.wait_max: '10m' has the unknown unit 'm'; write e.g. 30s (units: ms, s, min, h)",
    ),
    "a rate where bytes a second are meant anyway": (
        "server:\n  drain_max: 200MB/s\n",
        "advectio.yaml:2: server.drain_max: '200MB/s' is a rate; write 200MB",
    ),
    "a line that is indented otherwise": (
        "stage:\n  bytes_max: 4GiB\n drain: here\n",
        "advectio.yaml:3: not YAML: end of map not found; is this line, or one above it, indented otherwise than its neighbours?",
    ),
    "a pattern without quotes": (
        "datasets:\n  - match: *wrfout\n",
        "advectio.yaml:2: not YAML: the referenced anchor is not defined; a pattern that begins with * or & stands in quotes",
    ),
    "a tab": (
        "stage:\n\tbytes_max: 4GiB\n",
        "advectio.yaml:2: not YAML: the line is indented with a tab; YAML takes blanks only",
    ),
    "one rule where a list is wanted": (
        'datasets:\n  match: "wrfout_*"\n',
        "advectio.yaml:2: datasets: a list of rules is wanted, each beginning with - match: PATTERN",
    ),
    "a codec of another program": (
        'datasets:\n  - match: "wrfout_*"\n    codec: gzip\n',
        "advectio.yaml:3: datasets[0].codec: 'gzip' is none of: asked, none, deflate, zstd, lz4, blosc-lz4, blosc-zstd, szip; "
        "gzip is deflate",
    ),
    "a level that the fast deflate does not have": (
        'datasets:\n  - match: "wrfout_*"\n    codec: deflate\n    level: 9\n',
        "advectio.yaml:4: datasets[0].level: 9 is outside 0 to 3 of deflate by isal; for higher levels say deflate: libdeflate in "
        "the same rule",
    ),
    "a stage that does not exist": (
        "stage:\n  directory: /local/nvme-of-ours\n",
        "advectio.yaml:2: stage.directory /local/nvme-of-ours does not exist; make it, or name another directory",
    ),
    "a stage that is a file": (
        "stage:\n  directory: /etc/passwd\n",
        "advectio.yaml:2: stage.directory /etc/passwd is not a directory; make it, or name another directory",
    ),
    "a disk to spill to that does not exist": (
        "stage:\n  spill: /local/nvme-of-ours\n",
        "advectio.yaml:2: stage.spill /local/nvme-of-ours does not exist; make it, or name another directory",
    ),
    "a pattern with a relative path": (
        'datasets:\n  - match: "out/s*.nc"\n',
        "advectio.yaml:2: datasets[0].match: 'out/s*.nc' can match nothing: with a / in it, it is held against the absolute path; "
        "begin it with / or */",
    ),
    "a cap smaller than two segments": (
        "stage:\n  bytes_max: 1MiB\n",
        "advectio.yaml:2: stage.bytes_max (1MiB) holds fewer than two segments of 2MiB (stage.segment_bytes, default); make "
        "stage.bytes_max at least 4MiB or stage.segment_bytes smaller",
    ),
}


@pytest.mark.parametrize("mistake", CONFIGS)
def test_a_config_is_refused_in_one_line_before_the_model_starts(told: Told, out: Path, mistake: str):
    config, said = CONFIGS[mistake]
    result = told("run", "--", "touch", "started", config=config)
    told_here = result.stderr.replace("anchor is not defined: wrfout;", "anchor is not defined;")  # yaml-cpp 0.8 names it
    assert (result.code, result.stdout, told_here) == (2, "", f"advectio: error: {said}\n")
    assert not (out / "started").exists()


def test_a_stage_in_which_nothing_can_be_made(told: Told):
    result = told("run", "--", "true", config="stage:\n  directory: /sys\n")
    assert result.code == 2
    where = f"advectio.yaml:2: stage.directory /sys: cannot make /sys/advectio-{os.getuid()}"
    assert re.fullmatch(f"advectio: error: {where}: [A-Z].*\n", result.stderr), result.said


def test_a_cap_of_more_than_there_is(told: Told, out: Path):
    said = r"advectio.yaml:1: stage.bytes_max is 900 TiB, but /dev/shm has only \S+ \wB"
    advice = "make it smaller, or set stage.directory to a larger disk"
    result = told("run", "--", "touch", "started", config="stage: {bytes_max: 900TiB}\n")
    assert result.code == 2 and not (out / "started").exists()
    assert re.fullmatch(f"advectio: error: {said}; {advice}\n", result.stderr), result.said
    result = told("check")
    assert result.code == 1
    assert re.search(f"✗ {said}\n  → {advice}\n", result.stdout), result.said
    # Runs that other tests have just killed may be there to be warned of; nothing else may.
    warnings = re.findall("^! .*", result.stdout, re.MULTILINE)
    assert all(re.match(r"! (1 run directory is|\d+ run directories are) left", line) for line in warnings), result.said
    assert re.search(r"\n1 error, [01] warnings?\n$", result.stdout), result.said


COMMANDS = {
    "a config that is not there": (
        ["run", "-c", "nope.yaml", "--", "true"], 2, "config nope.yaml: No such file or directory"
    ),
    "a command that is misspelt": (["run", "--", "mpirum", "-n", "2", "./wrf.exe"], 127, "mpirum: command not found"),
    "a whole command in quotes": (
        ["run", "--", "mpirun -n 2 ./wrf.exe"], 127,
        "mpirun -n 2 ./wrf.exe: command not found; remove the quotes: advectio run -- mpirun -n 2 ./wrf.exe",
    ),
    "a variable in front of it": (
        ["run", "--", "OMP_NUM_THREADS=4", "./wrf.exe"], 127,
        "OMP_NUM_THREADS=4: command not found; put env before it: advectio run -- env NAME=VALUE COMMAND",
    ),
    "what only a shell knows": (
        ["run", "--", "cd", "em_real"], 127,
        "cd: command not found; it is a word of the shell: advectio run -- bash -c 'COMMANDS'",
    ),
    "a program here without ./": (["run", "--", "wrf.exe"], 127, "wrf.exe: command not found; it is in this directory: ./wrf.exe"),
    "the same behind exec": (["exec", "wrf.exe"], 127, "wrf.exe: command not found; it is in this directory: ./wrf.exe"),
    "a file that may not be executed": (
        ["run", "--", "./wrf.exe"], 126, "./wrf.exe cannot be executed (permission); chmod +x ./wrf.exe permits it"
    ),
    "a directory": (["run", "--", "./em_real"], 126, "./em_real is a directory; name a program in it"),
    "a script without its first line": (
        ["run", "--", "./wps.sh"], 126,
        "cannot start ./wps.sh: Exec format error; a script begins with a line like #!/bin/bash, and a program must be one "
        "for this machine",
    ),
    "a script for a shell that is not there": (
        ["run", "--", "./ksh.sh"], 126,
        "cannot start ./ksh.sh: No such file or directory; what its first line names after #! is not there, or its loader",
    ),
    "the summary in a directory": (
        ["run", "--json", "em_real", "--", "true"], 2,
        "--json em_real: it is a directory; name a file, e.g. --json summary.json",
    ),
    "no node": (["run", "--nodes", "", "--", "true"], 2, "--nodes names no host; write e.g. --nodes node1,node2"),
    "the summary on the stdout of the model": (
        ["run", "--json", "-", "--", "true"], 2, "--json -: stdout is the command's; name a file, e.g. --json summary.json"
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", COMMANDS)
def test_a_command_line_is_refused_in_one_line(told: Told, out: Path, mistake: str):
    (out / "em_real").mkdir()
    (out / "wrf.exe").touch()
    for script, first in ("wps.sh", ""), ("ksh.sh", "#!/no/such/ksh\n"):
        (out / script).write_text(f"{first}true\n")
        (out / script).chmod(0o755)
    words, code, said = COMMANDS[mistake]
    result = told(*words)
    assert (result.code, result.stdout, result.stderr) == (code, "", f"advectio: error: {said}\n")


def test_a_config_of_another_name_is_not_read_and_named(told: Told, out: Path):
    (out / "advectio.yml").write_text("stage:\n  bytes_max: 1GiB\n")
    named = "the config is called advectio.yaml, or named by -c FILE"
    result = told("run", "--", "true")
    assert (result.code, result.stderr.splitlines()[0]) == (0, f"advectio: warning: advectio.yml is not read: {named}")
    assert f"! advectio.yml is not read\n  → {named}\n" in told("check").stdout
    result = told("run", "-c", "advectio.yml", "--", "true")
    assert "is not read" not in result.stderr, result.said


def test_a_run_that_each_rank_starts_says_where_it_belongs(told: Told, replay: Path, made: Path, advectio: Advectio, out: Path):
    ranks = run_plainly(["mpirun", "-n", "2", advectio.command, "run", "--", replay, "--io", "split", made], out)
    assert ranks.code == 0, ranks.said
    said = re.findall("^advectio: warning: .*", ranks.stderr, re.MULTILINE)
    assert said == [
        "advectio: warning: each of 2 ranks starts a run of its own, and a file that ranks write together is written by its own "
        "library; put advectio run before the launcher (advectio run -- mpirun … ./wrf.exe), or write advectio exec for it"
    ], ranks.said


OPTIONS = {
    "an option that is misspelt": (
        ["run", "--confg", "a.yaml", "true"], "No such option: --confg (Possible options: --config, --json)"
    ),
    "the options of a launcher that is left out": (
        ["run", "-n", "4", "./wrf.exe"],
        "No such option: -n. Put -- before the command, and its own options behind it: advectio run -- mpirun -n 4 ./wrf.exe",
    ),
    "a command of ours that is cut short": (["stat"], "No such command 'stat'. Did you mean 'status'?"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", OPTIONS)
def test_an_unknown_option_or_command_is_told_what_it_may_be(told: Told, mistake: str):
    words, said = OPTIONS[mistake]
    result = told(*words)
    assert result.code == 2
    assert said in result.stderr, result.said


def test_a_pattern_that_matches_nothing_is_named(told: Told, replay: Path, made: Path):
    result = told("run", "--", replay, made, config='datasets:\n  - match: "wrfuot_*"\n    codec: zstd\n')
    assert result.code == 0
    assert result.stderr.splitlines()[-1] == 'advectio: no dataset matched "wrfuot_*" (advectio.yaml:2)', result.said


NAMES = """datasets:
  - match: "wrfout_*"
    round: {NOPE: 10, T: 12, Times: 9}
    chunks: {tim: 1, bottom_top: 1}
    outputs: [{path: "small/{name}", round: {"Z*": 12}}]
"""


def test_variables_and_dimensions_that_no_dataset_has_are_named(told: Told, replay: Path, made: Path):
    result = told("run", "--", replay, made, config=NAMES)
    assert result.code == 0
    assert result.stderr.splitlines()[-2:] == [
        'advectio: round: no dataset has a floating-point variable "NOPE" (advectio.yaml:3), "Times" (advectio.yaml:3), '
        '"Z*" (advectio.yaml:5)',
        'advectio: chunks: no dataset has a dimension "tim" (advectio.yaml:4)',
    ], result.said


def test_check_warns_of_them_before_where_it_has_a_file_of_an_earlier_run(told: Told, made: Path):
    config = NAMES + '  - match: "wrfrst_*"\n    codec: none\n'
    result = told("check", "--like", made, config=config)
    advice = "  → correct the name; as it is, that part of the config has no effect on such files\n"
    assert result.code == 0
    assert (
        '! round: none of the files of --like has a floating-point variable "NOPE" (advectio.yaml:3), "Times" (advectio.yaml:3), '
        f'"Z*" (advectio.yaml:5)\n{advice}'
        f'! chunks: none of the files of --like has a dimension "tim" (advectio.yaml:4)\n{advice}'
        f'! no file of --like matches "wrfrst_*" (advectio.yaml:6)\n{advice}'
    ) in result.stdout, result.said
    result = told("check", "--like", made, config='datasets:\n  - match: "wrfout_*"\n    round: {T: 12}\n')
    assert "✓ rules: each fits 1 file of --like, with all its names\n" in result.stdout, result.said


def test_a_file_of_an_earlier_run_that_is_none(told: Told, out: Path):
    (out / "text.nc").write_text("no netCDF")
    result = told("check", "--like", "text.nc")
    assert result.code == 1
    assert re.search("✗ --like: open /.*/text.nc: NetCDF: Unknown file format\n", result.stdout), result.said


def test_a_codec_that_readers_cannot_read(told: Told, out: Path, replay: Path, made: Path):
    """Of this machine's own netCDF nothing is said here: it depends on its plugins."""
    config = """readers:
  programs: [netcdf4-python, h5py, every-netcdf, hdf5plugin]
datasets:
  - match: "*"
    codec: zstd
  - match: "wrfout_*"
    codec: lz4
  - match: "wrfrst_*"
    shuffle: bit
"""
    of_history = (
        'lz4 of "wrfout_*" (advectio.yaml:7) cannot be read by the netCDF4 wheel of Python, h5py, every netCDF; deflate can '
        "(readers.programs names who reads the files)"
    )
    result = told("run", "--json", "summary.json", "--", replay, made, config=config)
    assert [line for line in result.stderr.splitlines() if "cannot be read" in line] == [f"advectio: warning: {of_history}"]
    summary = load_summary(out / "summary.json")
    assert [(n["codec"], n["programs"]) for n in summary["not_readable"]] == [
        ("lz4", ["netcdf4-python", "h5py", "every-netcdf"])
    ]
    for command in (["check"], ["config", "explain"]):
        said = told(*command).stdout
        assert f"! {of_history}\n" in said, said
        assert '! zstd of "*" (advectio.yaml:5) cannot be read by h5py, every netCDF; ' in said, said
        assert '! shuffle: bit of "wrfrst_*" (advectio.yaml:9) cannot be read by the netCDF4 wheel of Python, h5py, ' in said, (
            said
        )


def test_a_reader_that_nobody_knows(told: Told):
    result = told("run", "--", "true", config="readers:\n  programs: [ncview]\n")
    assert (result.code, result.stderr) == (
        2,
        "advectio: error: advectio.yaml:2: readers.programs: 'ncview' is none of: netcdf, netcdf4-python, h5py, hdf5plugin, "
        "every-netcdf\n",
    )


def why(result: Result) -> str:
    """What is said where nothing was captured."""
    last = result.stderr.splitlines()[-1]
    assert last.startswith("advectio: no dataset was captured: "), result.said
    return last.removeprefix("advectio: no dataset was captured: ")


def test_a_run_inside_a_run(told: Told, advectio: Advectio, replay: Path, made: Path):
    result = told("run", "--", advectio.command, "run", "--", replay, made)
    assert result.code == 0
    assert re.match(
        r"advectio: warning: this run is inside another run of Advectio \(/dev/shm/\S+\); output goes to this one, the other "
        r"gets none of it\nadvectio: 1 dataset, complete; ",
        result.stderr,
    ), result.said
    assert re.fullmatch(r"a run inside this one took the output \(/dev/shm/\S+\); one `advectio run` is enough", why(result))


def test_a_command_that_fails(told: Told):
    result = told("run", "--", "sh", "-c", "exit 7")
    assert (result.code, why(result)) == (7, "the command failed (exit code 7)")


def test_a_static_program(told: Told, out: Path):
    built = subprocess.run(
        ["cc", "-static", "-o", out / "model", "-x", "c", "-"], input="int main(void) { return 0; }", text=True, check=False
    )
    if built.returncode != 0:
        pytest.skip("no static C library here")
    result = told("run", "--", "./model")
    assert result.code == 0
    assert why(result) == (
        "./model is a static program, and no library can be loaded before it; link it dynamically (without -static)"
    )


def test_an_environment_that_does_not_reach_the_program(told: Told):
    result = told("run", "--", "env", "-i", "ncdump", "-h", "/dev/null")
    assert why(result).startswith("the command failed"), result.said
    result = told("run", "--", "env", "-i", shutil.which("true") or "true")
    assert why(result) == "env -i drops the environment: LD_PRELOAD and ADVECTIO_RUN do not reach the program"


def test_a_config_that_leaves_everything_to_the_library(told: Told, replay: Path, made: Path):
    result = told("run", "--", replay, made, config='datasets:\n  - match: "*"\n    capture: false\n')
    assert result.code == 0
    assert why(result) == (
        'the config says capture: false for "*" (advectio.yaml:3); what it matches is written by the netCDF library itself'
    )


def test_a_command_that_only_reads(told: Told, made: Path, tool: Callable[[str], str]):
    result = told("run", "--", tool("ncdump"), "-h", made)
    assert why(result) == "the command called netCDF, but made no file with it"


def test_a_command_that_has_nothing_to_do_with_netcdf(told: Told):
    assert why(told("run", "--", "true")) == (
        "the command made no call to netCDF or PnetCDF, or LD_PRELOAD and ADVECTIO_RUN did not reach its program"
    )


def test_status_where_nothing_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(places, "runs", list)  # whatever else this user runs here
    assert watching.show(None, watch=False, as_json=False) == 0
    assert capsys.readouterr().out == "no run of yours on this node\n"


def test_join_of_what_is_no_tile(told: Told, out: Path):
    (out / "plain.nc").write_bytes(b"CDF\x01" + bytes(28))  # classic, with nothing in it
    result = told("join", "plain.nc", "-o", "whole.nc")
    assert (result.code, result.stderr) == (
        2,
        "advectio: error: plain.nc is not a tile of split output: it has none of the attributes that say where a tile lies "
        "(WRF's …_PATCH_START_…, SCALE's size_global of axes, NEMO's DOMAIN_position_first, FMS's domain_decomposition, "
        "MITgcm's tile_number), and its coordinates are held against those of no other tile\n",
    )


def test_join_where_a_tile_is_missing(
    told: Told, advectio: Advectio, replay: Path, made: Path, out: Path, tool: Callable[[str], str]
):
    split = run_plainly([tool("mpirun"), "-n", "4", replay, "--io", "split", made], out)
    assert split.code == 0, split.said
    (missing,) = out.glob("*_0001")
    missing.unlink()
    result = told("join", next(out.glob("*_0000")), "-o", "whole")
    assert result.code == 2
    assert re.fullmatch(
        r"advectio: error: a part of the domain is in no tile: south_north \d+ to \d+, west_east \d+ to \d+ \(counted from 1\)\n",
        result.stderr,
    ), result.said
    assert not (out / "whole").exists()


@pytest.mark.parametrize("command", ["inspect", "recover"])
def test_a_directory_of_everybody_gets_no_advice_to_change_its_mode(told: Told, out: Path, command: str):
    directory = out / "shared"
    directory.mkdir()
    directory.chmod(0o777)
    result = told(command, directory)
    assert (result.code, result.stderr) == (
        2, f"advectio: error: {directory} is not the run directory of a run (there is no control page)\n"
    )  # fmt: skip


def test_a_run_directory_that_holds_something_else(told: Told, out: Path):
    (out / "mine").mkdir()
    for name in ("a", "b", "c", "d"):
        (out / "mine" / name).touch()
    result = told("run", "--run-dir", "mine", "--", "true")
    assert (result.code, result.stderr) == (
        2,
        f"advectio: error: --run-dir {out}/mine is not empty: it holds a, b, c, …, which is no run of Advectio; name a directory "
        "that is not there yet\n",
    )
