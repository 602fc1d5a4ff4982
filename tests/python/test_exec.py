"""`advectio exec`: ranks of one job share one server, and it ends with the last of them."""

import json
import os
import signal
import socket
import subprocess
import sys

import pytest
from advectio.keeper import has_other_nodes
from fake_installation import dataset, until


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


RUN_DIRECTORY = "import os,time; print(os.environ['ADVECTIO_RUN'], os.getpid()); time.sleep(0.5)"


def start_ranks(fake, number, code=RUN_DIRECTORY, **env):
    return [
        subprocess.Popen(
            fake.command("exec", "--", *python(code)), env=fake.env | env, cwd=fake.work, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )
        for _ in range(number)
    ]  # fmt: skip


def test_the_ranks_of_a_job_share_one_server_which_ends_with_them(fake):
    fake.tell(datasets=[dataset()])
    ranks = start_ranks(fake, 6, PMIX_NAMESPACE=f"job{id(fake)}")
    said = [r.communicate(timeout=60) for r in ranks]
    assert [r.returncode for r in ranks] == [0] * 6, said
    assert len({out.split()[0] for out, _ in said}) == 1
    assert [int(out.split()[1]) for out, _ in said] == [r.pid for r in ranks], "each becomes the model"
    assert len([e for e in fake.events if e.startswith("serve")]) == 1
    fake.wait_for_event("end 0")
    until(lambda: (fake.work / "advectio-summary.json").exists() and not fake.run_directories, "the summary")
    assert json.loads((fake.work / "advectio-summary.json").read_text())["final"] is True


@pytest.mark.parametrize(
    ("launcher", "several"),
    [
        ({"MPI_LOCALNRANKS": "2", "PMI_SIZE": "4"}, True),
        ({"MPI_LOCALNRANKS": "2", "PMI_SIZE": "2"}, False),
        ({"SLURM_NNODES": "2"}, True),
    ],
)
def test_the_summary_of_a_job_on_several_nodes_has_the_name_of_its_node(fake, launcher, several):
    fake.tell(datasets=[dataset()])
    (rank,) = start_ranks(fake, 1, "pass", PMIX_NAMESPACE=f"nodes{id(fake)}", **launcher)
    rank.communicate(timeout=60)
    fake.wait_for_event("end 0")
    until(lambda: not fake.run_directories, "the end of the keeper")
    name = f"advectio-summary.{socket.gethostname()}.json" if several else "advectio-summary.json"
    assert [path.name for path in fake.work.glob("advectio-summary*")] == [name]


def test_every_launcher_tells_whether_its_job_has_other_nodes():
    several = ({"OMPI_MCA_orte_num_nodes": "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_SIZE": "4"})
    one = ({}, {"SLURM_NNODES": "1"}, {"SLURM_NNODES": ""}, {"OMPI_COMM_WORLD_LOCAL_SIZE": "4", "OMPI_COMM_WORLD_SIZE": "4"})
    assert all(has_other_nodes(environment) for environment in several)
    assert not any(has_other_nodes(environment) for environment in one)


def test_the_server_stays_as_long_as_one_rank_does(fake):
    job = f"long{id(fake)}"
    (slow,) = start_ranks(fake, 1, "import time; print('up', flush=True); time.sleep(2.5)", PMIX_NAMESPACE=job)
    assert slow.stdout.readline() == "up\n"
    (quick,) = start_ranks(fake, 1, "pass", PMIX_NAMESPACE=job)
    quick.wait(30)
    try:
        slow.wait(1.2)
        raise AssertionError("the slow rank should still be there")
    except subprocess.TimeoutExpired:
        assert "drain" not in fake.events
    slow.communicate(timeout=30)
    fake.wait_for_event("end 0")
    assert len([e for e in fake.events if e.startswith("serve")]) == 1


def test_signals_to_every_process_of_a_job_do_not_end_what_keeps_its_server(fake):
    """A batch system warns a job by SIGUSR1. After SIGTERM it ends with the ranks, and the summary is there."""
    fake.tell(datasets=[dataset()])
    ignores = "import os,signal,time; signal.signal(10, signal.SIG_IGN); print('up', flush=True)\nwhile not os.path.exists('told'): time.sleep(0.01)"
    (rank,) = start_ranks(fake, 1, ignores, PMIX_NAMESPACE=f"told{id(fake)}")
    assert rank.stdout.readline() == "up\n"
    with open(f"/proc/{rank.pid}/task/{rank.pid}/children") as children:
        (keeper,) = (int(pid) for pid in children.read().split())
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        os.kill(keeper, number)
    (fake.work / "told").touch()
    rank.communicate(timeout=30)
    until(lambda: (fake.work / "advectio-summary.json").exists() and not fake.run_directories, "the summary")


def test_two_jobs_are_two_servers(fake):
    ranks = start_ranks(fake, 1, PMIX_NAMESPACE=f"a{id(fake)}") + start_ranks(fake, 1, PMIX_NAMESPACE=f"b{id(fake)}")
    directories = {r.communicate(timeout=60)[0].split()[0] for r in ranks}
    assert len(directories) == 2


def test_the_same_launch_again_after_the_first_is_a_new_server(fake):
    job = f"again{id(fake)}"
    first = start_ranks(fake, 1, "pass", PMIX_NAMESPACE=job)[0].communicate(timeout=60)
    fake.wait_for_event("end 0")
    second = start_ranks(fake, 1, "pass", PMIX_NAMESPACE=job)[0].communicate(timeout=60)
    assert (first[0], second[0]) == ("", "")
    assert len([e for e in fake.events if e.startswith("serve")]) == 2


def test_under_advectio_run_the_server_is_the_one_of_the_run(fake):
    inner = fake.command("exec", *python("import os; print(os.environ['ADVECTIO_RUN'], os.environ['LD_PRELOAD'])"))
    done = fake.run("run", "--", *inner)
    assert done.returncode == 0, done.stderr
    directory, preload = done.stdout.split()
    assert fake.events[0].startswith(f"serve --run-dir {directory} ")
    assert preload.count("libadvectio_netcdf.so") == 1
    assert len([e for e in fake.events if e.startswith("serve")]) == 1


def test_a_bad_config_is_one_line_and_the_model_does_not_start(fake):
    (fake.work / "advectio.yaml").write_text("stage:\n  byte_max: 4GiB\n")
    done = fake.run("exec", "touch", "started", env={"PMIX_NAMESPACE": f"bad{id(fake)}"})
    assert done.returncode == 2
    assert done.stderr == "advectio: error: advectio.yaml:2: unknown key stage.byte_max; did you mean ...?\n"
    assert not (fake.work / "started").exists()


def test_a_directory_that_was_removed_is_one_line_and_the_model_does_not_start(fake):
    gone = fake.work / "gone"
    gone.mkdir()
    script = 'rmdir "$PWD" && exec "$@"'
    result = subprocess.run(
        ["sh", "-c", script, "sh", *fake.command("exec", "--", *python("print('up')"))],
        env=fake.env, cwd=gone, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    assert result.stderr.startswith("advectio: error: exec: the current directory has been removed")
    assert len(result.stderr.splitlines()) == 1, result.stderr


def test_a_model_that_is_not_there_is_127(fake):
    done = fake.run("exec", "--", "no-such-model", env={"ADVECTIO_RUN": "/nowhere"})
    assert (done.returncode, done.stderr) == (127, "advectio: error: no-such-model: command not found\n")


def test_a_failed_dataset_is_said_on_the_jobs_stderr(fake):
    fake.tell(exit=1, datasets=[dataset(state="failed", error="No space left on device")])
    done = fake.run("exec", "true", env={"PMIX_NAMESPACE": f"full{id(fake)}"})
    assert "1 of 1 datasets could not be finished" in done.stderr
    assert "advectio recover" in done.stderr


def test_the_path_of_a_rank_imports_nothing_heavy(fake):
    code = (
        "import sys; sys.argv[1:] = ['exec', '--help']\nfrom advectio.__main__ import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(sorted(m for m in ('typer', 'rich', 'click', 'numpy', 'asyncio') if m in sys.modules))"
    )
    done = subprocess.run(python(code), env=fake.env, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_way_to_a_run_imports_nothing_heavy(fake):
    code = (
        "import sys; sys.argv[1:] = ['run', '--quiet', '--', 'true']\nfrom advectio.__main__ import main\n"
        "try: main()\nexcept SystemExit as end: assert not end.code\n"
        "heavy = ('typer', 'rich', 'click', 'dataclasses', 'importlib.metadata', 'shutil', 'tempfile', 'statistics')\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run(python(code), env=fake.env, cwd=fake.work, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_importing_the_package_starts_nothing(fake):
    code = "import sys, advectio; print(sorted(m for m in sys.modules if m.startswith('advectio')))"
    done = subprocess.run(python(code), env=fake.env, capture_output=True, text=True, check=True)
    assert done.stdout == "['advectio']\n"
