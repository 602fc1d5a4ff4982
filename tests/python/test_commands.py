"""The smaller commands: status, check, config, recover, env."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from fake_installation import dataset, survey_of_dataset, survey_of_journal


def test_version(fake):
    done = fake.run("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("advectio ")


def test_help_of_every_command_shows_an_example_or_says_what_to_do(fake):
    assert "advectio run -- mpirun" in fake.run("--help").stdout
    for command in ("run", "status", "check", "recover", "drain", "inspect", "join", "process", "env", "exec"):
        done = fake.run(command, "--help")
        assert done.returncode == 0
        assert f"advectio {command}" in done.stdout.replace("Usage: ", ""), command


def test_help_shows_examples_that_can_be_copied_and_no_types_of_flags(fake):
    lines = fake.run("run", "--help", env={"COLUMNS": "60"}).stdout.splitlines()
    at = lines.index("   advectio run --nodes a,b,c --io-nodes 1 -- mpirun -H a:32,b:32 ./wrf.exe")
    assert lines[at - 1] == "   # three nodes, one for output only"
    assert any(line.strip() == "Usage: advectio run [OPTIONS] -- COMMAND…" for line in lines), lines
    for command in ("run", "status", "check", "recover", "drain", "inspect", "join", "process", "env", "exec", "config"):
        assert not re.search(r"<bool>|<list\[|<str>|BOOLEAN", fake.run(command, "--help").stdout), command


def test_the_shell_completes_commands_and_options(fake):
    def completed(words: str, at: int) -> list[str]:
        asked = {"_ADVECTIO_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(at)}
        return fake.run(env=asked).stdout.split()

    assert completed("advectio insp", 1) == ["inspect"]
    assert completed("advectio recover --dry", 2) == ["--dry-run"]
    assert (
        "_ADVECTIO_COMPLETE"
        in fake.run("--show-completion", "bash", env={"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}).stdout
    )


def test_missing_programs_are_one_line_that_names_the_places(fake):
    done = fake.run("run", "--", "true", env={"ADVECTIO_PREFIX": "/no/where"})
    assert done.returncode == 2
    assert done.stderr == (
        "advectio: error: advectiod and libadvectio_netcdf.so are not there; looked in: /no/where "
        "(build them with `make build`, or set ADVECTIO_PREFIX)\n"
    )


def test_programs_are_found_in_a_build_directory(fake):
    build = fake.directory / "build"
    (build / "src/apps/advectiod").mkdir(parents=True)
    (build / "src/capture/netcdf").mkdir(parents=True)
    (fake.prefix / "bin/advectiod").rename(build / "src/apps/advectiod/advectiod")
    (fake.prefix / "lib/libadvectio_netcdf.so").rename(build / "src/capture/netcdf/libadvectio_netcdf.so")
    done = fake.run("run", "--", "true", env={"ADVECTIO_PREFIX": str(build)})
    assert done.returncode == 0, done.stderr


def test_status_shows_a_run_under_way(fake):
    fake.tell(datasets=[dataset(state="open")])
    command = fake.command("status")
    done = fake.run("run", "--quiet", "--", *command)
    assert "wrfout_d01" in done.stdout
    assert "backlog" in done.stdout
    as_json = fake.run("run", "--quiet", "--", *command, "--json")
    assert json.loads(as_json.stdout)["datasets"][0]["state"] == "open"


def test_status_without_a_run_named_finds_runs_staged_elsewhere(fake):
    command = fake.command("status", "--json")
    done = fake.run("run", "--quiet", "--", "env", "-u", "ADVECTIO_RUN", *command)
    assert any(r["run_dir"].startswith(str(fake.stage)) for r in json.loads(done.stdout)), done.stdout


def test_links_to_runs_that_are_over_do_not_pile_up(fake):
    parent = Path(f"/dev/shm/advectio-{os.getuid()}")
    parent.mkdir(mode=0o700, exist_ok=True)
    link = parent / f"over-{os.getpid()}"
    link.symlink_to(fake.directory / "gone")
    assert fake.run("run", "--", "true").returncode == 0
    assert not link.is_symlink()


def test_status_tells_of_a_run_directory_without_server(fake):
    left = fake.directory / "left"
    left.mkdir()
    (left / "control").touch()
    done = fake.run("status", left)
    assert done.returncode == 0
    assert f"`advectio recover {left}` finishes what is staged there" in done.stdout


def test_status_of_what_is_no_run_directory_fails(fake):
    done = fake.run("status", "/no/where")
    assert done.returncode == 1
    assert done.stderr.startswith("advectio: error: /no/where is not a run directory")
    for options in [], ["--json"]:
        done = fake.run("status", fake.work, *options)
        said = f"advectio: error: {fake.work} is not the run directory of a run (there is no control page)\n"
        assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


def findings(done, level):
    return [f["what"] for f in json.loads(done.stdout)["findings"] if f["level"] == level]


def test_check_passes_where_all_is_well(fake):
    done = fake.run("check", "--frame-bytes", "100MB", "--frame-interval", "10min", "--ranks", "4", "--json")
    assert findings(done, "error") == []
    assert done.returncode == 0
    assert any(w.startswith("frame: 100 MB; the stage holds 10") for w in findings(done, "ok"))


def test_check_finds_a_frame_that_does_not_fit(fake):
    done = fake.run("check", "--frame-bytes", "1.5GiB", "--json")
    assert done.returncode == 1
    assert findings(done, "error") == ["a frame of 1.5 GiB does not fit the stage (1 GiB)"]
    done = fake.run("check", "--frame-bytes", "900MB", "--json")
    assert done.returncode == 0
    assert "the stage (1 GiB) holds one frame of 900 MB, not two" in findings(done, "warning")


def test_check_finds_more_ranks_than_segments(fake):
    done = fake.run("check", "--ranks", "600", "--json")
    assert done.returncode == 1
    assert findings(done, "error")[0].startswith("600 writing ranks on this node each hold a segment of 2 MiB")


def test_check_tells_the_memory_that_a_node_needs(fake):
    done = fake.run("check", "--ranks", "64", "--frame-bytes", "120MB", "--json")
    memory = next(w for w in findings(done, "ok") if w.startswith("memory: "))
    assert memory.startswith("memory: about 456 MB of stage and up to 597 MB for the server"), memory
    done = fake.run("check", "--ranks", "4", "--frame-bytes", "120MB", "--json")
    assert any(w.startswith("memory: about 336 MB of stage") for w in findings(done, "ok")), "what is warm from the start"


def test_check_counts_the_ranks_of_a_node_and_says_what_several_nodes_mean(fake):
    done = fake.run("check", "--ranks", "64", "--nodes", "4", "--json")
    assert done.returncode == 0
    assert any(w.startswith("ranks: 16 on this node") for w in findings(done, "ok"))
    assert any("is left to its library" in w for w in findings(done, "warning"))
    done = fake.run("check", "--ranks", "3", "--nodes", "4", "--json")
    assert done.returncode == 1
    assert findings(done, "error") == ["3 ranks are fewer than 4 nodes"]


def test_check_finds_a_frame_that_is_larger_than_what_is_warm(fake):
    done = fake.run("check", "--frame-bytes", "300MB", "--json")
    assert "256 MiB of the stage are touched before the first frame of 300 MB comes" in findings(done, "warning")
    done = fake.run("check", "--frame-bytes", "250MB", "--json")
    assert not any("touched" in w for w in findings(done, "warning"))


def test_check_finds_a_bad_config(fake):
    (fake.work / "advectio.yaml").write_text("stage:\n  byte_max: 4GiB\n")
    done = fake.run("check")
    assert done.returncode == 1
    assert "✗ advectio.yaml:2: unknown key stage.byte_max" in done.stdout


def test_check_finds_an_output_directory_that_is_not_there(fake):
    done = fake.run("check", "--output", "/no/where", "--json")
    assert done.returncode == 1
    assert findings(done, "error") == ["output directory /no/where is not there"]


def test_check_finds_a_stage_that_is_not_there(fake):
    (fake.work / "advectio.yaml").write_text("stage:\n  directory: /no/where\n")
    done = fake.run("check", "--json")
    assert done.returncode == 1
    assert findings(done, "error") == ["advectio.yaml:2: stage.directory /no/where does not exist"]


def test_check_looks_at_where_output_spills(fake):
    (fake.work / "advectio.yaml").write_text("stage:\n  spill: /no/where\n")
    done = fake.run("check", "--json")
    assert done.returncode == 1
    assert findings(done, "error") == ["advectio.yaml:2: stage.spill /no/where does not exist"]
    (fake.work / "advectio.yaml").write_text("stage:\n  spill: /dev/shm\n")
    done = fake.run("check", "--json")
    assert "advectio.yaml:2: stage.spill /dev/shm is memory, which the stage could take as well" in findings(done, "warning")


def test_check_finds_a_library_that_cannot_be_loaded(fake):
    library = fake.prefix / "lib/libadvectio_netcdf.so"
    library.unlink()
    library.write_text("not a library")
    done = fake.run("check", "--json")
    assert done.returncode == 1
    assert "cannot be preloaded" in findings(done, "error")[0]


def test_check_refuses_a_size_without_unit(fake):
    done = fake.run("check", "--frame-bytes", "100")
    assert done.returncode == 2
    assert done.stderr.startswith("advectio: error: --frame-bytes: '100' is not understood; write e.g. 1.2GiB")


def test_explain_shows_value_and_origin(fake):
    done = fake.run("config", "explain")
    line = next(line for line in done.stdout.splitlines() if line.startswith("stage.directory"))
    assert str(fake.stage) in line
    assert "advectio.yaml:2" in line
    assert "default" in next(line for line in done.stdout.splitlines() if line.startswith("log.level"))
    assert json.loads(fake.run("config", "explain", "--json").stdout)["values"][0]["key"] == "stage.directory"


def test_example_is_printed(fake):
    assert fake.run("config", "example").stdout.startswith("stage:")


def final(**changes):
    return {
        "version": "0", "run_dir": "", "pid": 1, "uptime_s": 1.0, "final": True, "clean": True, "left": False,
        "server": {"threads": 1, "sprint_threads": 0, "sprint_s": 0.0, "memory_bytes": 1, "memory_peak_bytes": 1, "cpu_s": 0.0, "encode_cpu_s": 0.0,
                   "drain_max": None, "held_back_s": 0.0},
        "stage": {"directory": "", "bytes_max": 1, "bytes_allocated": 0, "bytes_allocated_peak": 0, "bytes_held": 0, "bytes_warm": 0, "backlog_bytes": 0,
                  "backlog_peak_bytes": 0, "spill_bytes_max": 0,
                  "spill_bytes": 0, "spilled_bytes": 0, "waits": 0, "wait_s": 0.0},
        "writers": [], "datasets": [dataset()], "config_names": [], "errors": [],
    } | changes  # fmt: skip


def test_recover_presents_what_was_done_and_returns_its_code(fake):
    left = fake.directory / "left"
    left.mkdir()
    fake.tell(recover=final(), inspect={"datasets": [survey_of_dataset(bytes_unsynced=500)]})
    done = fake.run("recover", left)
    assert done.returncode == 0
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("wrfout_d01"))
    assert re.split(r"  +", line) == ["wrfout_d01", "3", "1 → 3", "1 → 3", "2.00 kB", "finished"]
    assert "/out/wrfout_d01: dropped: 500 B put after the last sync, before the program ended" in done.stderr
    assert done.stderr.endswith(f"1 dataset complete; {left} is removed\n")
    assert fake.events == [f"inspect {left} --progress", f"recover {left} --json"]
    left.mkdir()
    fake.tell(recover=final(datasets=[dataset(state="failed", error="No space left on device")]), recover_exit=1)
    done = fake.run("recover", "--json", left)
    assert done.returncode == 1
    assert json.loads(done.stdout)["datasets"][0]["error"] == "No space left on device"
    assert json.loads(done.stdout)["recovered"][0]["state"] == "failed"


def test_recover_dry_run_tells_the_same_and_starts_no_recovery(fake):
    left = fake.directory / "left"
    left.mkdir()
    fake.tell(inspect={"datasets": [survey_of_dataset(bytes_unsynced=500)]})
    done = fake.run("recover", "--dry-run", left)
    assert done.returncode == 0
    assert "dropped: 500 B put after the last sync" in done.stderr
    (found,) = json.loads(fake.run("recover", "--dry-run", "--json", left).stdout)["recovered"]
    assert found["before"] == {"frames_synced": 3, "frames_visible": 1, "frames_durable": 1}
    assert found["after"] is None
    assert fake.events == [f"inspect {left} --progress"] * 2
    assert left.exists()


def test_recover_tells_who_still_writes(fake):
    left = fake.directory / "left"
    left.mkdir()
    journals = [survey_of_journal(alive=True)]
    fake.tell(recover=final(), inspect={"journals": journals, "datasets": [survey_of_dataset(bytes_unsynced=500)]})
    done = fake.run("recover", "--dry-run", left)
    assert "wrf.exe (4711) on localhost is still alive; `advectio recover` would wait until it has ended\n" in done.stderr
    assert "dropped" not in done.stderr
    told = json.loads(fake.run("recover", "--dry-run", "--json", left).stdout)
    assert told["alive"] == [{"pid": 4711, "host": "localhost", "rank": 0, "command": "./wrf.exe"}]
    assert "waiting for processes that still write: wrf.exe (4711) on localhost\n" in fake.run("recover", left).stderr


def test_a_dry_recovery_of_a_run_under_way_says_that_it_is(fake):
    left = fake.directory / "left"
    left.mkdir()
    fake.tell(inspect={"served": True, "server_pid": 77})
    done = fake.run("recover", "--dry-run", left)
    assert "the run is under way: process 77 serves it, and `advectio recover` would refuse it\n" in done.stderr


def test_recover_of_what_holds_nothing_any_more_says_so(fake):
    left = fake.directory / "left"
    left.mkdir()
    fake.tell(recover=final(datasets=[]))
    done = fake.run("recover", left)
    assert (done.returncode, done.stderr) == (0, f"advectio: nothing was left in {left}; it is removed\n")
    done = fake.run("recover", left)
    assert done.returncode == 4
    assert done.stderr.startswith(f"advectio: {left} is not there: nothing is left to be written")


def test_recover_uses_the_config_of_the_run(fake):
    left = fake.directory / "left"
    left.mkdir()
    (left / "advectio.yaml").write_text("log:\n  level: info\n")
    fake.tell(recover=final())
    assert fake.run("recover", left).returncode == 0
    assert fake.events[-1] == f"recover {left} --config {left}/advectio.yaml --json"


def test_recover_of_what_is_no_run_directory_is_one_line(fake):
    file = fake.directory / "file"
    file.touch()
    done = fake.run("recover", file)
    assert (done.returncode, done.stderr) == (2, f"advectio: error: {file} is not a directory\n")
    fake.tell(inspect_exit=2)
    done = fake.run("recover", fake.directory)
    assert (done.returncode, done.stderr) == (
        2,
        f"advectio: error: {fake.directory} is not the run directory of a run (there is no control page)\n",
    )


def test_inspect_shows_who_wrote_and_what_is_staged(fake):
    left = fake.directory / "left"
    left.mkdir()
    fake.tell(inspect={"journals": [survey_of_journal()], "datasets": [survey_of_dataset()]})
    done = fake.run("inspect", left)
    assert done.returncode == 0, done.stderr
    assert "no server" in done.stdout
    assert "1 create, 7 put, 3 sync" in done.stdout
    assert "1–11" in done.stdout
    assert json.loads(fake.run("inspect", "--json", left).stdout)["datasets"][0]["frames_staged"] == 2


def test_inspect_tells_of_damage_and_returns_1(fake):
    left = fake.directory / "left"
    left.mkdir()
    damage = {"segment": "00000000-s1", "byte": 8192, "reason": "00000000-s1 at byte 8192: the record header is damaged"}
    fake.tell(inspect={"journals": [survey_of_journal(damage=damage, payloads_wrong=1, payloads_checked=11)], "damaged": True})
    done = fake.run("inspect", "--verify", left)
    assert done.returncode == 1
    assert "damaged behind record 11: 00000000-s1 at byte 8192" in done.stdout
    assert "1 of 11 payloads are not what was written" in done.stdout
    assert fake.events == [f"inspect {left} --verify --progress"]


def test_inspect_does_not_take_a_process_of_another_host_for_ended(fake):
    left = fake.directory / "left"
    left.mkdir()
    fake.tell(inspect={"journals": [survey_of_journal(host="far-away")]})
    assert "not known from here" in fake.run("inspect", left).stdout
    assert json.loads(fake.run("inspect", "--json", left).stdout)["journals"][0]["alive"] is None


def test_inspect_lists_records_as_they_come(fake):
    left = fake.directory / "left"
    left.mkdir()
    record = {"journal": "0-1-x", "sequence": 5, "type": "put", "dataset": 1, "collective_index": 0, "flags": 0, "bytes": 77,
              "time_s": 0.25, "crc_ok": False}  # fmt: skip
    fake.tell(records=[record])
    lines = fake.run("inspect", "--records", left).stdout.splitlines()
    assert lines[0] == "0-1-x"
    assert lines[2].split() == ["5", "put", "1", "0", "77", "1970-01-01", "00:00:00.250", "CRC", "WRONG"]
    lines = fake.run("inspect", "--records", "--json", left).stdout.splitlines()
    assert json.loads(lines[0]) == {"record": record}
    assert json.loads(lines[1])["journals"] == []


def test_recover_of_a_stage_names_the_runs_in_it(fake):
    run = fake.stage / "advectio-7" / "run1"
    run.mkdir(parents=True)
    (run / "control").touch()
    fake.tell(inspect_exit=2)
    done = fake.run("inspect", run.parent)
    assert done.stderr == (
        f"advectio: error: {run.parent} is not the run directory of a run (there is no control page); runs that are there: {run}\n"
    )


def test_env_says_what_is_missing(fake):
    done = fake.run("env")
    assert done.returncode == 0
    assert done.stderr == (
        "advectio: warning: ADVECTIO_RUN is missing, and without it every call is passed on to netCDF: start the command by "
        "`advectio run`, or name a run with --run-dir DIR\n"
    )
    done = fake.run("env", "--run-dir", fake.directory / "none")
    assert f"no server answers in {fake.directory}/none, and without one every call is passed on to netCDF" in done.stderr
    assert (
        f"advectiod serve --run-dir {fake.directory}/none --exit-when-idle 60 --config {fake.work}/advectio.yaml &`"
        in done.stderr
    )
    inside = fake.run("run", "-q", "--", *fake.command("env"))
    assert inside.stderr == ""
    assert "export ADVECTIO_RUN=" in inside.stdout


def test_env_prints_lines_a_shell_can_evaluate(fake):
    done = fake.run("env", "--run-dir", fake.directory / "a b")
    script = f'{done.stdout}\nprintf \'%s|%s\' "$ADVECTIO_RUN" "$LD_PRELOAD"'
    shell = os.popen(f"unset LD_PRELOAD; {script}").read()
    assert shell == f"{fake.directory}/a b|{fake.prefix}/lib/libadvectio_netcdf.so"


def test_a_command_does_not_wait_for_the_imports_of_others():
    others = ("advectio.checking", "advectio.draining", "advectio.inspecting", "advectio.run", "advectio.watching", "elftools")
    code = f"import sys, advectio.cli; assert not set({others}) & set(sys.modules), sorted(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
