"""A run that has carried nothing says why; rules that fit nothing are named."""

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest
from advectio import nothing, rules
from fake_installation import dataset, rule

NO_CALL = "the command made no call to netCDF or PnetCDF, or LD_PRELOAD and ADVECTIO_RUN did not reach its program"
CALLS = 'cat "$ADVECTIO_RUN/capture.conf"'  # as the library does at the first call of netCDF


@pytest.fixture(scope="session")
def static_program(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("static") / "model"
    built = subprocess.run(
        ["cc", "-static", "-o", str(path), "-x", "c", "-"], input="int main(void) { return 0; }", text=True, check=False
    )
    if built.returncode != 0:
        pytest.skip("no static C library here")
    return path


def why(done) -> str:
    """What is said in the end."""
    (line,) = (line for line in done.stderr.splitlines() if "no dataset was captured" in line)
    return line.removeprefix("advectio: no dataset was captured: ")


def test_a_command_without_netcdf_or_without_our_environment(fake):
    assert why(fake.run("run", "--", "true")) == NO_CALL


def test_a_command_that_failed(fake):
    assert why(fake.run("run", "--", "sh", "-c", "exit 7")) == "the command failed (exit code 7)"


def test_a_command_that_called_netcdf_and_made_no_file(fake):
    assert why(fake.run("run", "--", "sh", "-c", CALLS)) == "the command called netCDF, but made no file with it"


def test_another_library_that_calls_netcdf_is_named(fake):
    paths = {name: fake.prefix / "lib" / f"lib{name}.so" for name in ("tracer", "other")}
    for name, path in paths.items():
        text = f'const char* const {name} = "{"nc__create" if name == "tracer" else "open"}";'
        subprocess.run(["cc", "-shared", "-fPIC", "-o", path, "-x", "c", "-"], input=text, text=True, check=True)
    preloaded = ":".join(map(str, paths.values()))
    assert why(fake.run("run", "--", "sh", "-c", CALLS, env={"LD_PRELOAD": preloaded})) == (
        "the command called netCDF, but Advectio saw it make no file: it made none, or by a library that is preloaded, too, and "
        "calls netCDF itself (libtracer.so)"
    )


def test_a_config_that_leaves_files_to_netcdf(fake):
    fake.tell(rules=[rule("*", capture="false")])
    assert why(fake.run("run", "--", "sh", "-c", CALLS)) == (
        'the config says capture: false for "*" (advectio.yaml:3); what it matches is written by the netCDF library itself'
    )
    assert why(fake.run("run", "--", "true")) == NO_CALL


@pytest.mark.parametrize("words", [["PROGRAM"], ["sh", "-c", "cd / && PROGRAM -n 3"], ["env", "A=b", "PROGRAM"], ["./job.sh"]])
def test_a_static_program_wherever_the_command_names_it(fake, static_program, words):
    fake.add_script(fake.work / "job.sh", f"{static_program} >out.log")
    command = [word.replace("PROGRAM", str(static_program)) for word in words]
    static = (
        f"{static_program} is a static program, and no library can be loaded before it; link it dynamically (without -static)"
    )
    assert why(fake.run("run", "--", *command)) == static


def test_a_static_program_that_failed(fake, static_program):
    failed = fake.run("run", "--", "sh", "-c", f"{static_program}; exit 3")
    static = (
        f"{static_program} is a static program, and no library can be loaded before it; link it dynamically (without -static)"
    )
    assert why(failed) == f"the command failed (exit code 3); besides, {static}"


def test_what_is_dynamic_is_not_called_static():
    for program in ("sh", "python3", "cc"):
        assert not any(nothing.is_static(path) for path in nothing.programs_of([program])), program
    assert not nothing.is_static("/dev/null")
    assert not nothing.is_static("/no/where")


def test_a_program_with_netcdf_inside(fake):
    program = fake.work / "model"
    program.write_bytes(Path("/bin/true").read_bytes() + b"\0NetCDF: Not a valid ID\0")
    program.chmod(0o755)
    assert why(fake.run("run", "--", "./model")) == (
        "./model has netCDF or PnetCDF linked into it statically; link it with the shared library, or with the options of "
        "`advectio link-flags` (docs/linking.md)"
    )
    with program.open("ab") as file:
        file.write(b"\0__wrap_nc_create\0")  # these options were there
    assert why(fake.run("run", "--", "./model")) == NO_CALL


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("env -i ./model", "env -i drops the environment"),
        ("mpirun -n 2 env - ./model", "env - drops the environment"),
        ("mpiexec -genvnone -n 2 ./model", "mpiexec is told which variables the ranks get"),
        ("srun --export=NONE ./model", "srun is told which variables the ranks get (--export)"),
        ("env A=b ./model", None),
        ("mpirun -n 2 ./model", None),
    ],
)
def test_who_drops_the_environment(command, said):
    assert nothing.drops_the_environment(command.split()) == said


def test_a_program_of_other_rights_is_said_to_be_one(tmp_path):
    program = tmp_path / "model"
    program.write_text("")
    program.chmod(0o755 | stat.S_ISUID)
    assert nothing.drops_the_environment([str(program)]) == (
        f"{program} runs with other rights than yours (setuid), which no library is loaded before"
    )


def test_the_reason_is_in_the_json_too(fake):
    fake.run("run", "-q", "--json", "s.json", "--", "true")
    summary = json.loads((fake.work / "s.json").read_text())
    assert summary["why_no_dataset"] == NO_CALL
    assert summary["unmatched_rules"] == []


def test_rules_that_match_no_dataset_are_named(fake):
    fake.tell(
        datasets=[dataset("/out/wrfout_d01")],
        rules=[
            rule("wrfuot_*", "advectio.yaml:4"),
            rule("wrfout_*"),
            rule("/other/*", "advectio.yaml:9"),
            rule("x", capture="false"),
        ],
    )
    done = fake.run("run", "--json", "s.json", "--", "true")
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1] == (
        'advectio: no dataset matched "wrfuot_*" (advectio.yaml:4), "/other/*" (advectio.yaml:9)'
    )
    assert json.loads((fake.work / "s.json").read_text())["unmatched_rules"] == [
        {"match": "wrfuot_*", "origin": "advectio.yaml:4"},
        {"match": "/other/*", "origin": "advectio.yaml:9"},
    ]
    assert fake.run("run", "-q", "--", "true").stderr == ""


def named(key, name, found, origin="advectio.yaml:4"):
    return {"key": key, "name": name, "origin": origin, "found": found}


def test_names_that_no_dataset_has_are_named(fake):
    fake.tell(
        datasets=[dataset()],
        config_names=[
            named("round", "T", True),
            named("round", "NOPE", False),
            named("round", "Q*", False, "advectio.yaml:9"),
            named("chunks", "tim", False),
        ],
    )
    done = fake.run("run", "--json", "s.json", "--", "true")
    assert done.stderr.splitlines()[-2:] == [
        'advectio: round: no dataset has a floating-point variable "NOPE" (advectio.yaml:4), "Q*" (advectio.yaml:9)',
        'advectio: chunks: no dataset has a dimension "tim" (advectio.yaml:4)',
    ]
    assert [n["name"] for n in json.loads((fake.work / "s.json").read_text())["config_names"] if not n["found"]] == [
        "NOPE", "Q*", "tim",
    ]  # fmt: skip
    assert fake.run("run", "-q", "--", "true").stderr == ""


def test_after_a_restart_nothing_is_said_to_match_no_dataset(fake):
    """The new server knows nothing of the datasets that were complete before."""
    fake.tell(
        die=1, datasets=[dataset()], rules=[rule("wrfuot_*"), rule("wrfout_*")], config_names=[named("round", "NOPE", False)]
    )
    done = fake.run("run", "--json", "s.json", "--", "sleep", "2")
    assert "1 server restart (files that were complete before are not in the table)" in done.stderr, done.stderr
    assert "no dataset" not in done.stderr
    summary = json.loads((fake.work / "s.json").read_text())
    assert (summary["unmatched_rules"], summary["config_names"]) == ([], [])


def unreadable(match="wrfout_*", origin="advectio.yaml:3", codec="zstd", programs=("netcdf",)):
    return {"match": match, "origin": origin, "codec": codec, "programs": list(programs)}


def test_a_codec_that_a_reader_cannot_read_is_named_in_the_summary_in_check_and_in_explain(fake):
    said = (
        'zstd of "wrfout_*" (advectio.yaml:3) cannot be read by this machine\'s netCDF (ncdump, NCO, CDO), h5py; deflate can '
        "(readers.programs names who reads the files)"
    )
    fake.tell(
        datasets=[dataset()],
        rules=[rule("wrfout_*", codec="zstd"), rule("wrfrst_*", "advectio.yaml:5", codec="zstd")],
        not_readable=[unreadable(programs=("netcdf", "h5py")), unreadable("wrfrst_*", "advectio.yaml:5")],
    )
    done = fake.run("run", "--json", "s.json", "--", "true")
    assert [line for line in done.stderr.splitlines() if "cannot be read" in line] == [f"advectio: warning: {said}"]
    assert [entry["match"] for entry in json.loads((fake.work / "s.json").read_text())["not_readable"]] == ["wrfout_*"]
    check = fake.run("check")
    assert f"! {said}\n" in check.stdout and "wrfrst_*" in check.stdout and check.returncode == 0
    assert f"! {said}\n" in fake.run("config", "explain").stdout


@pytest.mark.parametrize(
    ("about", "values", "followed"),
    [
        ({}, [rule("*", "c:2", codec="zstd"), rule("*", "c:3", shuffle="bit")], {"c:2", "c:3"}),
        ({}, [rule("*", "c:2", codec="zstd"), rule("wrf*", "c:3", codec="deflate")], {"c:3"}),
        ({}, [rule("*", "c:2", codec="zstd"), rule("other*", "c:3", codec="deflate")], {"c:2"}),
        ({"format": "64-bit offset"}, [rule("*", "c:2", codec="zstd"), rule("*", "c:3", outputs="[…]")], {"c:3"}),
        ({"tiles": 4}, [rule("wrfout_*_????", "c:2", codec="zstd", join="true")], {"c:2"}),
        ({"output_of": "/out/a"}, [rule("*", "c:2", codec="zstd")], set()),
    ],
)
def test_a_codec_counts_where_its_rule_is_the_last_to_name_one(about, values, followed):
    wanted = [unreadable(r["match"], r["origin"]) for r in values]
    found = rules.not_readable({"datasets": values, "not_readable": wanted}, {"datasets": [dataset(**about)]})
    assert {entry["origin"] for entry in found} == followed


def test_check_holds_the_config_against_files_of_before(fake):
    fake.tell(
        like={"unmatched_rules": [{"match": "wrfuot_*", "origin": "c:2"}], "config_names": [named("round", "NOPE", False)]}
    )
    done = fake.run("check", "--like", "a.nc", "--like", "b.nc")
    assert done.returncode == 0
    assert '! no file of --like matches "wrfuot_*" (c:2)\n' in done.stdout
    assert '! round: none of the files of --like has a floating-point variable "NOPE" (advectio.yaml:4)\n' in done.stdout
    fake.tell(like={"unmatched_rules": [], "config_names": [named("round", "T", True)]})
    assert "✓ rules: each fits 1 file of --like, with all its names\n" in fake.run("check", "--like", "a.nc").stdout


def test_a_rule_for_tiles_is_not_said_to_match_nothing():
    one = dataset("/out/wrfout_d01", tiles=4)
    assert rules.unmatched({"datasets": [rule("wrfout_*_????", join="true")]}, {"datasets": [one]}) == []


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("wrfout_*", "/out/wrfout_d01", True),
        ("out", "/out/wrfout_d01", False),
        ("/out/*", "/out/wrfout_d01", True),
        ("*/wrf*", "/out/deep/wrfout_d01", True),
        ("wrf[!o]*", "/out/wrfrst_d01", True),
        ("wrf[^o]*", "/out/wrfout_d01", False),
        (r"a\*b", "/out/a*b", True),
        (r"a\*b", "/out/axb", False),
        ("[[:alpha:]]*", "/out/1", False),
    ],
)
def test_patterns_fit_as_in_the_server(pattern, path, fits):
    assert rules.matches(pattern, path) is fits


def test_a_rank_says_it_too(fake):
    done = fake.run("exec", "true", env={"PMIX_NAMESPACE": f"nothing{os.getpid()}"})
    assert why(done) == NO_CALL
