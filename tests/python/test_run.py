"""`advectio run`: what the command sees, what it gives back, and what is done when something dies."""

import json
import os
import pty
import re
import shlex
import signal
import stat
import subprocess
import sys
import time

import pytest
from advectio.server import Server, ended_how
from fake_installation import dataset, until

STAGE_MISSING = (
    "advectio: error: advectio.yaml:2: stage.directory /no/where does not exist; make it, or name another directory\n"
)
SHOW_ENV = "import os; print(os.environ['ADVECTIO_RUN']); print(os.environ['LD_PRELOAD'])"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_the_command_gets_a_run_directory_and_the_library(fake):
    done = fake.run("run", "--", *python(SHOW_ENV + "; print(oct(os.stat(os.environ['ADVECTIO_RUN']).st_mode & 0o777))"))
    assert done.returncode == 0, done.stderr
    run_directory, preload, mode = done.stdout.splitlines()
    assert run_directory.startswith(f"{fake.stage}/advectio-{os.getuid()}/")
    assert preload == str(fake.prefix / "lib" / "libadvectio_netcdf.so")
    assert mode == "0o700"
    assert fake.events[0].startswith(f"serve --run-dir {run_directory} --directory {fake.work} --config {run_directory}/")
    assert fake.events[1:] == ["drain", "end 0"]
    assert fake.run_directories == []


def test_what_was_preloaded_stays_preloaded_and_nothing_is_preloaded_twice(fake):
    other = fake.prefix / "lib" / "libother.so"
    other.symlink_to((fake.prefix / "lib" / "libadvectio_netcdf.so").resolve())
    ours = str(fake.prefix / "lib" / "libadvectio_netcdf.so")
    done = fake.run("run", "--", *python(SHOW_ENV), env={"LD_PRELOAD": f"{ours}:{other}"})
    assert done.stdout.splitlines()[1] == f"{ours}:{other}"


def test_a_sanitizer_that_is_preloaded_stays_the_first(fake):
    """It refuses to come later."""
    asan = fake.prefix / "lib" / "libasan.so.8"
    asan.symlink_to((fake.prefix / "lib" / "libadvectio_netcdf.so").resolve())
    ours = str(fake.prefix / "lib" / "libadvectio_netcdf.so")
    done = fake.run("run", "--", *python(SHOW_ENV), env={"LD_PRELOAD": f"{ours}:{asan}"})
    assert done.stdout.splitlines()[1] == f"{asan}:{ours}"


def test_stdout_is_the_commands_alone(fake):
    fake.tell(datasets=[dataset()])
    done = fake.run("run", "--verbose", "--", "echo", "model says")
    assert done.stdout == "model says\n"
    assert "1 dataset, complete" in done.stderr


def test_the_commands_exit_code_is_returned(fake):
    assert fake.run("run", "--", "sh", "-c", "exit 7").returncode == 7
    done = fake.run("run", "--", "sh", "-c", "kill -9 $$")
    assert done.returncode == 128 + 9
    assert "SIGKILL" in done.stderr
    assert fake.events.count("drain") == 2, "what was synced is completed all the same"


def test_an_exit_code_that_is_no_signal_is_not_called_one(fake):
    for code in (128, 193, 255):
        done = fake.run("run", "--", "sh", "-c", f"exit {code}")
        assert done.returncode == code
        assert done.stderr == f"advectio: no dataset was captured: the command failed (exit code {code})\n"


def test_an_exit_code_that_stands_for_a_signal_is_said_to_be_an_exit_code(fake):
    done = fake.run("run", "--", "sh", "-c", "exit 143")
    assert done.returncode == 143
    assert "advectio: warning: sh has ended with exit code 143, which stands for SIGTERM; completing" in done.stderr


def test_a_command_that_a_signal_has_ended_is_said_to_be(fake):
    for number, name in ((15, "SIGTERM"), (40, "signal 40")):
        done = fake.run("run", "--", *python(f"import os; os.kill(os.getpid(), {number})"))
        assert done.returncode == 128 + number
        assert f"was ended by {name}; completing what it has synced" in done.stderr


def test_an_exit_code_of_a_launcher_is_not_taken_for_a_signal_of_its_program(fake):
    """Open MPI has 132 where the program is not there."""
    fake.add_script(fake.work / "mpirun", "exit 132")
    (fake.work / "model").symlink_to("/bin/true")
    done = fake.run("run", "--", "./mpirun", "-n", "2", "./model")
    assert done.stderr == (
        "advectio: warning: ./mpirun has ended with exit code 132; completing what it has synced\n"
        "advectio: no dataset was captured: the command failed (exit code 132)\n"
    )
    done = fake.run("run", "--", "./mpirun", "-n", "2", "-x", "A", "./wrf.exe", ":", "-n", "1", "./model", "-a")
    assert "the command failed (exit code 132): ./wrf.exe: command not found\n" in done.stderr
    done = fake.run("run", "--", "./mpirun", "--wdir", "elsewhere", "./wrf.exe")
    assert "the command failed (exit code 132)\n" in done.stderr


@pytest.mark.parametrize("closed", ["2>&-", "0<&- >&- 2>&-"])
def test_a_run_whose_streams_are_closed_runs(fake, closed):
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", *fake.command("run", "--json", "s.json", "--", "touch", "started")]
    done = subprocess.run(shell, env=fake.env, cwd=fake.work, timeout=60, check=False)
    assert done.returncode == 0
    assert (fake.work / "started").exists()
    assert json.loads((fake.work / "s.json").read_text())["exit_code"] == 0
    assert fake.run_directories == []


def test_a_run_in_a_directory_that_was_removed_runs(fake):
    gone = fake.work / "gone"
    show = "import os; print(os.readlink('/proc/self/cwd'))"

    def run(*options) -> subprocess.CompletedProcess:
        gone.mkdir()
        words = ["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", *fake.command("run", *options, "--", *python(show))]
        return subprocess.run(
            words, env=fake.env, cwd=gone, timeout=60, capture_output=True, text=True, check=False
        )  # fmt: skip

    done = run("-c", fake.work / "advectio.yaml")
    assert (done.returncode, done.stdout) == (0, f"{gone} (deleted)\n"), done.stderr
    done = run("--json", "s.json")
    assert (done.returncode, done.stderr) == (
        2, "advectio: error: s.json: the current directory has been removed; give an absolute name\n"
    )  # fmt: skip


def test_files_that_may_not_be_as_large_as_one_of_the_stage_are_found_before_the_run(fake):
    limited = ["bash", "-c", 'ulimit -f 100; exec "$@"', "bash", *fake.command("run", "--", "touch", "started")]
    done = subprocess.run(limited, env=fake.env, cwd=fake.work, timeout=60, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "advectio: error: no file may grow beyond 102 kB (ulimit -f), and a file of the stage has 2.10 MB; ulimit -f unlimited "
        "permits it\n"
    )
    assert not (fake.work / "started").exists()
    assert fake.run_directories == []


def test_how_a_launched_server_has_ended():
    assert ended_how(255, launched=True) == "exit code 255"
    assert ended_how(137, launched=True) == "signal 9, SIGKILL"
    assert ended_how(137) == "exit code 137"
    assert ended_how(-9) == "signal 9, SIGKILL"
    assert ended_how(-40) == "signal 40"


def test_options_of_the_command_are_the_commands(fake):
    done = fake.run("run", "echo", "--json", "--help")
    assert done.stdout == "--json --help\n"


def test_a_command_that_is_not_there_is_127_and_starts_nothing(fake):
    done = fake.run("run", "--", "no-such-model")
    assert done.returncode == 127
    assert done.stderr == "advectio: error: no-such-model: command not found\n"
    assert fake.events == []


def test_a_whole_command_in_quotes_is_said_to_be_one(fake):
    done = fake.run("run", "--", "mpirun -n 2 ./wrf.exe")
    assert done.returncode == 127
    assert done.stderr == (
        "advectio: error: mpirun -n 2 ./wrf.exe: command not found; remove the quotes: advectio run -- mpirun -n 2 ./wrf.exe\n"
    )


def test_options_of_a_launcher_that_is_left_out_are_said_to_belong_behind_it(fake):
    done = fake.run("run", "-n", "4", "./wrf.exe", env={"COLUMNS": "200"})
    assert done.returncode == 2
    assert "No such option: -n. Put -- before the command, and its own options behind it: advectio run -- " in done.stderr
    assert "Possible options: --config" in fake.run("run", "--confg", "a.yaml", "true", env={"COLUMNS": "200"}).stderr


def test_a_run_inside_a_run_is_said_to_be(fake):
    done = fake.run("run", "--", *fake.command("run", "--", "true"))
    assert done.returncode == 0
    inner, outer = done.stderr.splitlines()[0], done.stderr.splitlines()[-1]
    assert re.fullmatch(
        r"advectio: warning: this run is inside another run of Advectio \(/\S+\); output goes to this one, "
        "the other gets none of it",
        inner,
    )
    assert re.fullmatch(
        r"advectio: no dataset was captured: a run inside this one took the output \(/\S+\); one `advectio run` is enough",
        outer,
    )
    assert fake.run_directories == []


def test_a_cap_that_is_larger_than_what_is_free_is_said_before_the_command_starts(fake):
    space = os.statvfs(fake.stage)
    free, size = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
    between = (free + size) // 2
    fake.tell(here={"stage_bytes_max": between, "memory_bytes": size})
    done = fake.run("run", "-q", "--", "true")
    assert done.returncode == 0
    assert re.fullmatch(
        rf"advectio: warning: stage.bytes_max is \S+ \wB, but only \S+ \wB are free in {fake.stage}; "
        "the stage is full when they are used up: make it smaller, or free space there\n",
        done.stderr,
    )


@pytest.mark.parametrize("run_dir", [False, True])
def test_a_cap_that_is_larger_than_all_there_is_is_refused_by_run_as_by_check(fake, run_dir):
    fake.tell(here={"stage_bytes_max": 900 << 40}, numbers={"stage.bytes_max": 900 << 40})
    options = ["--run-dir", fake.directory / "run"] if run_dir else []
    place = fake.directory if run_dir else fake.stage
    done = fake.run("run", *options, "--", "touch", "started")
    assert done.returncode == 2
    said = rf"stage.bytes_max is 900 TiB, but {place} has only \S+ \wB"
    advice = "make it smaller, or set stage.directory to a larger disk"
    assert re.fullmatch(f"advectio: error: {said}; {advice}\n", done.stderr)
    assert not (fake.work / "started").exists()
    if not run_dir:
        (found,) = (f for f in json.loads(fake.run("check", "--json").stdout)["findings"] if f["level"] == "error")
        assert re.fullmatch(said, found["what"])
        assert found["advice"] == advice


def test_a_cap_that_is_found_by_itself_is_found_anew_where_the_run_directory_is_elsewhere(fake):
    fake.tell(here={"stage_bytes_max": 900 << 40})
    done = fake.run("run", "-q", "--run-dir", fake.directory / "run", "--", "true")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_command_that_cannot_be_executed_is_126(fake):
    (fake.work / "model").write_text("x")
    done = fake.run("run", "--", "./model")
    assert done.returncode == 126
    assert done.stderr == "advectio: error: ./model cannot be executed (permission); chmod +x ./model permits it\n"


def test_a_rank_that_starts_a_run_of_its_own_is_told_where_the_launcher_stands(fake):
    """Only the first one says it."""
    for names in (("PMI_RANK", "PMI_SIZE"), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")):
        for values, said in (("0", "4"), True), (("1", "4"), False), (("0", "1"), False):
            done = fake.run("run", "--", "true", env=dict(zip(names, values, strict=True)))
            assert done.returncode == 0
            assert ("advectio: warning: each of 4 ranks starts a run of its own" in done.stderr) == said, done.stderr


def test_a_bad_config_is_one_line_and_the_command_does_not_start(fake):
    (fake.work / "advectio.yaml").write_text("stage:\n  byte_max: 4GiB\n")
    done = fake.run("run", "--", "touch", "started")
    assert done.returncode == 2
    assert done.stderr == "advectio: error: advectio.yaml:2: unknown key stage.byte_max; did you mean ...?\n"
    assert not (fake.work / "started").exists()


def test_a_config_that_is_not_there_is_one_line(fake):
    done = fake.run("run", "-c", "nowhere.yaml", "--", "true")
    assert (done.returncode, done.stderr) == (2, "advectio: error: config nowhere.yaml: No such file or directory\n")


def test_a_stage_that_is_not_there_is_one_line(fake):
    (fake.work / "advectio.yaml").write_text("stage:\n  directory: /no/where\n")
    done = fake.run("run", "--", "touch", "started")
    assert (done.returncode, done.stderr) == (2, STAGE_MISSING)
    assert not (fake.work / "started").exists()


def test_a_stage_in_which_nothing_can_be_made_is_one_line_with_its_place_in_the_config(fake):
    (fake.work / "advectio.yaml").write_text("stage:\n  directory: /proc\n")
    done = fake.run("run", "--", "touch", "started")
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"advectio: error: advectio.yaml:2: stage.directory /proc: cannot make /proc/advectio-{os.getuid()}: "
    )
    assert not (fake.work / "started").exists()


def test_a_server_that_refuses_says_it_itself_and_nothing_is_left(fake):
    fake.tell(refuse="advectiod: error: the stage is not usable")
    done = fake.run("run", "--", "touch", "started")
    assert (done.returncode, done.stderr) == (2, "advectiod: error: the stage is not usable\n")
    assert not (fake.work / "started").exists()
    assert fake.run_directories == []


def test_a_server_that_dies_before_it_is_ready_is_one_line_and_nothing_is_left(fake):
    fake.tell(die_starting=True)
    done = fake.run("run", "--", "touch", "started")
    assert (done.returncode, done.stderr) == (2, "advectio: error: the server ended while starting (signal 9, SIGKILL)\n")
    assert not (fake.work / "started").exists()
    assert fake.run_directories == []


def test_a_run_directory_in_use_is_refused(fake):
    used = fake.directory / "mine"
    used.mkdir()
    used.chmod(0o755)
    (used / "journals").mkdir()
    done = fake.run("run", "--run-dir", used, "--", "true")
    assert done.returncode == 2
    assert (
        done.stderr
        == f"advectio: error: --run-dir {used} is not empty: it holds journals, which is no run of Advectio; name a "
        "directory that is not there yet\n"
    )
    assert stat.S_IMODE(used.stat().st_mode) == 0o755, "what is not ours keeps its mode"
    (used / "control").touch()
    done = fake.run("run", "--run-dir", used, "--", "true")
    assert (
        f"--run-dir {used} is not empty: another run has left its stage there, and `advectio recover {used}` finishes it"
    ) in done.stderr
    inside = fake.run("run", "--", "sh", "-c", f'{" ".join(fake.command("run"))} --run-dir "$ADVECTIO_RUN" -- true')
    assert inside.returncode == 2
    assert re.search(r"is not empty: another run uses it, served by process \d+; name a directory that is", inside.stderr)


def test_a_run_directory_deeper_than_a_sockets_path_may_be_works(fake):
    deep = fake.directory / ("d" * 60) / ("e" * 60) / "run"
    done = fake.run("run", "--run-dir", deep, "--", "true")
    assert done.returncode == 0, done.stderr


def test_a_directory_in_shared_memory_that_is_not_ours_alone_is_closed(fake):
    parent = fake.stage / f"advectio-{os.getuid()}"
    parent.mkdir(mode=0o777)
    parent.chmod(0o777)
    assert fake.run("run", "--", "true").returncode == 0
    assert stat.S_IMODE(parent.stat().st_mode) == 0o700


def test_a_server_that_dies_is_restarted(fake):
    fake.tell(die=2, datasets=[dataset()])
    done = fake.run("run", "--json", "s.json", "--", "sleep", "1.5")
    assert done.returncode == 0, done.stderr
    assert "the server died (signal 9, SIGKILL); restarted (1 of at most 5 times)" in done.stderr
    assert "restarted (2 of at most 5 times)" in done.stderr
    summary = json.loads((fake.work / "s.json").read_text())
    assert summary["server"]["restarts"] == 2


def test_a_server_that_dies_while_draining_is_restarted_and_asked_again(fake):
    fake.tell(die_draining=1)
    done = fake.run("run", "--", "true")
    assert done.returncode == 0, done.stderr
    assert fake.events.count("drain") == 2
    assert "restarted (1 of at most 5 times)" in done.stderr


def test_a_server_that_is_killed_when_all_is_written_has_lost_nothing(fake):
    fake.tell(datasets=[dataset()], die_at_end=True)
    done = fake.run("run", "--json", "s.json", "--", "true")
    assert done.returncode == 0 and "error" not in done.stderr, done.stderr
    assert not os.path.exists(json.loads((fake.work / "s.json").read_text())["run_dir"])


def test_a_server_that_is_killed_and_has_not_said_that_all_is_written_has_not_finished(fake):
    fake.tell(datasets=[dataset()], die_at_end=True, exit=1)
    done = fake.run("run", "--json", "s.json", "--", "true")
    assert done.returncode == 3 and "could not be finished (exit code -9)" in done.stderr, done.stderr
    assert os.path.exists(json.loads((fake.work / "s.json").read_text())["run_dir"])


def test_a_server_that_has_answered_and_ended_meanwhile_has_not_died(fake, monkeypatch):
    fake.tell(drain_s=0.3)
    monkeypatch.setenv("FAKE_ADVECTIOD", fake.env["FAKE_ADVECTIOD"])
    run_directory = fake.work / "run"
    run_directory.mkdir()
    server = Server(str(fake.prefix / "bin" / "advectiod"), str(run_directory), None, str(fake.work), 5)
    server.start()

    def busy_elsewhere(_) -> bool:
        time.sleep(0.6)
        return True

    final = server.drain(busy_elsewhere)
    assert final is not None
    assert final["final"]
    assert server.restarts == 0
    assert server.wait(10.0) == 0


def test_a_server_that_keeps_dying_is_given_up_and_the_model_goes_on(fake):
    (fake.work / "advectio.yaml").write_text(f"stage:\n  directory: {fake.stage}\nserver:\n  restarts_max: 1\n")
    fake.tell(die=9)
    done = fake.run("run", "--", "sh", "-c", "sleep 1.2; touch finished")
    assert (fake.work / "finished").exists()
    assert done.returncode == 3
    (left,) = fake.run_directories
    first, last = (line for line in done.stderr.splitlines() if line.startswith("advectio: error"))
    assert first == (
        "advectio: error: the server died (signal 9, SIGKILL); not started again: server.restarts_max is 1. No output is "
        f"written any more; what is staged stays in {left}, and `advectio recover {left}` finishes it"
    )
    assert last == (
        "advectio: error: the server was not there any more when the command ended; "
        f"`advectio recover {left}` writes what is staged"
    )


def test_a_restarted_server_sees_the_config_the_run_began_with(fake):
    fake.tell(die=1)
    done = fake.run("run", "--", "sh", "-c", "echo nonsense > advectio.yaml; sleep 0.8")
    assert done.returncode == 0, done.stderr
    config = next(e for e in fake.events if e.startswith("serve")).rpartition("--config ")[2]
    assert all(e.endswith(config) for e in fake.events if e.startswith("serve"))
    assert config != str(fake.work / "advectio.yaml")


def test_a_dataset_that_failed_makes_the_exit_code_3_and_tells_how_to_recover(fake):
    fake.tell(exit=1, datasets=[dataset(), dataset("/full/wrfrst_d01", "failed", "No space left on device")])
    done = fake.run("run", "--", "true")
    assert done.returncode == 3
    (left,) = fake.run_directories
    assert (
        f"advectio: error: 1 of 2 datasets could not be finished (/full/wrfrst_d01: No space left on device); what is staged "
        f"is in {left}, and `advectio recover {left}` finishes it once the cause is gone\n"
    ) in done.stderr


def test_the_commands_own_failure_counts_more_than_a_dataset(fake):
    fake.tell(exit=1, datasets=[dataset(state="failed", error="No space left on device")])
    assert fake.run("run", "--", "false").returncode == 1


def test_the_json_has_the_command_and_its_exit_code(fake):
    fake.tell(datasets=[dataset()])
    done = fake.run("run", "--quiet", "--json", "s.json", "--", "sh", "-c", "echo first; exit 4")
    assert (done.returncode, done.stdout, done.stderr) == (4, "first\n", "")
    summary = json.loads((fake.work / "s.json").read_text())
    assert summary["command"] == ["sh", "-c", "echo first; exit 4"]
    assert summary["exit_code"] == 4
    assert summary["datasets"][0]["path"] == "/out/wrfout_d01"


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "out.txt"])
def test_json_never_shares_stdout_with_the_command(fake, name):
    with (fake.work / "out.txt").open("w") as out:
        done = subprocess.run(
            fake.command("run", "--json", name, "--", "touch", "started"), env=fake.env, cwd=fake.work, stdout=out,
            stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (
        2, f"advectio: error: --json {name}: stdout is the command's; name a file, e.g. --json summary.json\n"
    )  # fmt: skip
    assert not (fake.work / "started").exists()


def test_json_to_a_directory_that_is_not_there_is_found_before_the_run(fake):
    done = fake.run("run", "--json", "no/where.json", "--", "touch", "started")
    assert done.returncode == 2
    assert not (fake.work / "started").exists()


def test_a_signal_is_passed_on_and_the_drain_still_happens(fake):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        code = "import signal,sys,time\nsignal.signal(%d, lambda *_: sys.exit(42))\nprint('up', flush=True)\ntime.sleep(60)"
        process = fake.start("run", "--", *python(code % number))
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        process.communicate(timeout=30)
        assert process.returncode == 42
        assert fake.events[-2:] == ["drain", "end 0"]


def test_ctrl_c_on_a_terminal_reaches_the_command_once_and_not_the_server(fake):
    code = (
        "import signal,sys,time\nn=[0]\ndef h(*_):\n n[0]+=1\nsignal.signal(2,h)\nprint('up',flush=True)\n"
        "t=time.time()\nwhile time.time()<t+1.5: time.sleep(0.05)\nprint('got',n[0],flush=True)"
    )
    leader, follower = pty.openpty()

    def take_terminal():
        os.setsid()
        import fcntl
        import termios

        fcntl.ioctl(follower, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        fake.command("run", "--quiet", "--", *python(code)), env=fake.env, cwd=fake.work, stdin=follower, stdout=follower,
        stderr=follower, preexec_fn=take_terminal,
    )  # fmt: skip
    os.close(follower)
    seen = b""
    sent = False
    while True:
        try:
            seen += os.read(leader, 1024)
        except OSError:
            break
        if b"up" in seen and not sent:
            sent = True
            os.write(leader, b"\x03")
    assert process.wait(30) == 0
    assert b"got 1" in seen
    assert not any(e.startswith("signal 2") for e in fake.events)


def test_a_file_that_the_library_has_written_on_is_said_to_be(fake):
    """A program opens it again for writing when the server has completed it."""
    for name, size in (("header.nc", 1500), ("appended.nc", 3000), ("whole.nc", 1000), ("anew.nc", 2000)):
        (fake.work / name).write_bytes(bytes(size))
    nothing = {"frames_synced": 0, "bytes_put": 0}
    fake.tell(
        datasets=[
            dataset(str(fake.work / "header.nc"), bytes_written=1000, **nothing),
            dataset(str(fake.work / "appended.nc"), bytes_written=1000),
            dataset(str(fake.work / "whole.nc"), bytes_written=1000),
            dataset(str(fake.work / "anew.nc"), bytes_written=1000, **nothing),
            dataset(str(fake.work / "anew.nc"), bytes_written=2000),
            dataset(str(fake.work / "removed.nc"), bytes_written=1000, **nothing),
        ]
    )
    done = fake.run("run", "--json", "s.json", "--", "true")
    rows = {line.split()[0]: line for line in done.stderr.splitlines() if ".nc " in line}
    assert [name for name, line in rows.items() if "written by the library" in line] == ["header.nc"]
    assert done.stderr.splitlines()[-1] == (
        "advectio: 2 files have grown by 2.50 kB after completion (header.nc, appended.nc): the library wrote that, as it does "
        "where a program opens a file again for writing, and where a dataset cannot be carried"
    )
    listed = json.loads((fake.work / "s.json").read_text())["datasets"]
    assert [d.get("bytes_by_library") for d in listed] == [500, 2000, None, None, None, None]


def test_what_was_complete_before_a_restart_is_not_said_to_be_missing(fake):
    fake.tell(die_draining=1)
    done = fake.run("run", "--json", "s.json", "--", "sh", "-c", "cat $ADVECTIO_RUN/capture.conf")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == (
        "advectio: no dataset was captured since the server was restarted; a new server does not list files that were complete before"
    )
    why = json.loads((fake.work / "s.json").read_text())["why_no_dataset"]
    assert why == "since the server was restarted; a new server does not list files that were complete before"


def test_a_server_that_ends_at_the_request_of_another_has_lost_nothing(fake):
    code = (
        "import os\nfrom advectio.protocol import Connection\nrun = os.environ['ADVECTIO_RUN']\n"
        "with Connection(run) as server: server.send({'do': 'drain'}); server.receive()\n"
        "import time\nwhile os.path.exists(run): time.sleep(0.01)\n"
    )
    done = fake.run("run", "--", *python(code))
    assert done.returncode == 3
    assert done.stderr == (
        "advectio: error: the server has ended at somebody else's request; all that was staged by then is in its files\n"
    )


UNTIL_TOLD = """
import os, signal, sys, time
signal.signal(signal.SIGCONT, lambda *_: print('continued', flush=True))
print('up', os.getpid(), flush=True)
while not os.path.exists('told'): time.sleep(0.01)
"""


def state_of(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as stat_:
        return stat_.read().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("who", ["the command line", "its process group"])
def test_a_run_that_is_suspended_and_goes_on_ends_as_always(fake, who):
    """For longer than it waits for a signal at a time. Python's sigtimedwait then gives a signal that nobody has sent."""
    process = fake.start("run", "--", *python(UNTIL_TOLD), start_new_session=True)
    model = int(process.stdout.readline().split()[1])
    send = process.send_signal if who == "the command line" else lambda number: os.killpg(process.pid, number)
    for _ in range(3):
        send(signal.SIGSTOP)
        until(lambda: state_of(process.pid) == "T", "the stop")
        time.sleep(0.6)
        send(signal.SIGCONT)
        until(lambda: state_of(process.pid) != "T" and state_of(model) != "T", "the end of the stop")
        while process.stdout.readline() != "continued\n":
            pass
        assert process.poll() is None, process.stderr.read()
    (fake.work / "told").touch()
    process.communicate(timeout=30)
    assert process.returncode == 0
    assert fake.events[-2:] == ["drain", "end 0"]


def test_a_stop_from_a_batch_system_stops_the_command_too(fake):
    """It sends SIGTSTP to the process that it has started."""
    run = fake.start("run", "--", *python(UNTIL_TOLD), preexec_fn=os.setpgrp)
    model = int(run.stdout.readline().split()[1])
    run.send_signal(signal.SIGTSTP)
    until(lambda: state_of(run.pid) == "T" and state_of(model) == "T", "both to stop")
    run.send_signal(signal.SIGCONT)
    assert run.stdout.readline() == "continued\n"
    (fake.work / "told").touch()
    run.communicate(timeout=30)
    assert run.returncode == 0
    assert fake.events[-2:] == ["drain", "end 0"]


def test_ctrl_z_in_a_shell_stops_the_command_and_fg_lets_it_go_on(fake):
    leader, follower = pty.openpty()

    def take_terminal():
        os.setsid()
        import fcntl
        import termios

        fcntl.ioctl(follower, termios.TIOCSCTTY, 0)

    shell = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"], env=fake.env | {"PS1": ""}, cwd=fake.work, stdin=follower, stdout=follower,
        stderr=follower, preexec_fn=take_terminal,
    )  # fmt: skip
    os.close(follower)
    seen = ""

    def read_until(pattern: str) -> re.Match:
        nonlocal seen
        while not (found := re.search(pattern, seen)):
            seen += os.read(leader, 4096).decode(errors="replace")
        seen = seen[found.end() :]
        return found

    (fake.work / "model.py").write_text(UNTIL_TOLD)
    os.write(leader, f"{shlex.join(fake.command('run', '-q', '--', sys.executable, 'model.py'))}; echo code $?\n".encode())
    model = int(read_until(r"up (\d+)")[1])
    os.write(leader, b"\x1a")
    read_until("Stopped")
    until(lambda: state_of(model) == "T", "the command to stop")
    os.write(leader, b"fg\n")
    read_until("continued")
    (fake.work / "told").touch()
    fake.wait_for_event("end 0")
    os.write(leader, b"exit\n")
    shell.wait(30)
    os.close(leader)


def test_interrupting_the_drain_twice_leaves_the_server_to_finish(fake):
    fake.tell(drain_s=4.0, datasets=[dataset()])
    process = fake.start("run", "--", "true")
    fake.wait_for_event("drain")
    process.send_signal(signal.SIGINT)
    assert "once more to stop waiting" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(3.5) == 130
    assert "not waiting any longer" in process.stderr.readline()
    fake.wait_for_event("end 0")
    assert "signal 1" in fake.events, "it is told that its supervisor has gone"


def test_a_server_whose_supervisor_is_killed_is_told(fake):
    process = fake.start("run", "--", "sleep", "20")
    fake.wait_for_event("serve")
    until(lambda: fake.run_directories and (fake.run_directories[0] / "socket").exists(), "the socket")
    server = json.loads(fake.run("status", "--json", fake.run_directories[0]).stdout)["pid"]
    process.kill()
    process.wait(30)
    fake.wait_for_event("signal 1")
    os.kill(server, signal.SIGKILL)


def test_a_dataset_without_a_frame_has_no_times(fake):
    fake.tell(datasets=[dataset(frames_synced=0, stall_s=None, to_visible_s=None, to_durable_s={"median": None, "max": None})])
    done = fake.run("run", "--", "true")
    assert done.returncode == 0, done.stderr
    assert "–" in done.stderr


def test_many_datasets_are_grouped_by_date(fake):
    fake.tell(datasets=[dataset(f"/out/wrfout_d0{d}_2005-08-28_{h:02}:00:00") for d in (1, 2) for h in range(20)])
    done = fake.run("run", "--", "true")
    assert "wrfout_d01_*" in done.stderr
    assert "wrfout_d02_*" in done.stderr
    assert "05-08-28" not in done.stderr
    assert "40 datasets" in done.stderr
    everything = fake.run("run", "--verbose", "--", "true")
    assert "wrfout_d02_2005-08-28_19:00:00" in everything.stderr
