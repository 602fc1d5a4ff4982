"""Several nodes: which they are, how their servers are started, and how the ranks on all of them learn of the run.

The servers are made up (fake_advectiod.py). Where it is there, Open MPI starts them: on simulated nodes, and on nodes whose ssh
is a script that runs the command here, with the environment that a login would have.
"""

import json
import os
import re
import shutil
import signal
import socket
import sys

import pytest
from advectio import launching, nodes
from advectio.errors import UserError
from advectio.nodes import Launch, Nodes
from advectio.server import Server
from fake_installation import dataset, until

HERE = socket.gethostname()
needs_open_mpi = pytest.mark.skipif(
    not any(launching.is_open_mpi(name) for name in ("mpirun.openmpi", "mpirun")), reason="there is no Open MPI"
)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_simulated_nodes_are_named_by_what_they_are():
    assert nodes.simulated("4,4,0") == Nodes(("n0", "n1", "io"), 1, (4, 4, 0))
    assert nodes.simulated("4,4,0").variable == "n0:4,n1:4,io:0"
    assert nodes.simulated("2,0,0").variable == "n0:2,io0:0,io1:0"
    assert nodes.simulated("3").variable == "n0:3"


@pytest.mark.parametrize("text", ["", "a", "4,-1", "0,4", "0", "4;4"])
def test_simulated_nodes_that_cannot_be_are_refused(text):
    with pytest.raises(UserError, match="--simulate-nodes"):
        nodes.simulated(text)


def test_this_machine_is_the_first_node():
    assert nodes.named(f"other,{HERE},third,other", 1) == Nodes((HERE, "other", "third"), 1)
    assert nodes.named(f"other,{HERE}.some.domain", 0).hosts[0] == f"{HERE}.some.domain"
    with pytest.raises(UserError, match=r"this machine .* is none of the nodes"):
        nodes.named("other,third", 0)
    with pytest.raises(UserError, match="would be an I/O node"):
        nodes.named(f"other,{HERE}", 1)
    with pytest.raises(UserError, match="none would be left for the model"):
        nodes.named(f"{HERE},other", 2)


@pytest.mark.parametrize(
    ("command", "hosts"),
    [
        ("mpirun -n 4 ./model", None),
        ("mpirun -H a:2,b:2 -n 4 ./model", ["a", "b"]),
        ("mpirun --mca btl tcp,self --host a --map-by node --host b,a ./model", ["a", "b"]),
        ("mpiexec.hydra -hosts a,b,c -ppn 2 ./model", ["a", "b", "c"]),
        ("mpirun -n 1 ./one : --host a,b -n 2 ./two", ["a", "b"]),
        ("mpirun -n 4 ./model --host a,b -f x", None),
        ("mpirun --host +n0,+n1 ./model", None),
        ("env A=1 /usr/bin/mpirun.openmpi --host=a,b ./model", ["a", "b"]),
        ("./job.sh a,b", None),
    ],
)
def test_hosts_are_read_from_the_options_of_an_mpirun(command, hosts):
    launch = Launch.of(command.split())
    assert (launch.hosts if launch else None) == hosts


@pytest.mark.parametrize("option", ["-hostfile", "--hostfile", "-machinefile", "-f"])
def test_hosts_are_read_from_the_file_that_an_mpirun_is_given(tmp_path, option):
    (tmp_path / "hosts").write_text("# nodes\na slots=4\n\nb:8\n  c  \na\n")
    launch = Launch.of(["mpirun", option, str(tmp_path / "hosts"), "-n", "4", "./model"])
    assert launch is not None
    assert launch.hosts == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("version", "quiet"),
    [("mpirun (Open MPI) 4.1.4", ["--quiet"]), ("mpirun (Open MPI) 5.0.7", []), ("prterun (PRRTE) 3.0.8", [])],
)
def test_an_mpirun_that_knows_no_quiet_is_not_told_it(tmp_path, version, quiet):
    mpirun = tmp_path / "mpirun"
    mpirun.write_text(f"#!/bin/sh\necho '{version}'\n")
    mpirun.chmod(0o755)
    words = launching.Job(str(mpirun), Nodes(("a", "b"))).prefix({})
    assert words[1 : words.index("--host")] == quiet


def test_the_batch_systems_are_asked(tmp_path, monkeypatch):
    assert nodes.of_batch_system({}) == ("", None)
    (tmp_path / "nodes").write_text("a\na\nb\nb\n")
    assert nodes.of_batch_system({"PBS_NODEFILE": str(tmp_path / "nodes")}) == ("PBS_NODEFILE", ["a", "b"])
    assert nodes.of_batch_system({"LSB_HOSTS": "a a b"}) == ("LSB_HOSTS", ["a", "b"])
    scontrol = tmp_path / "scontrol"
    scontrol.write_text('#!/bin/sh\n[ "$*" = "show hostnames n[1-2]" ] && printf "n1\\nn2\\n"\n')
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert nodes.of_batch_system({"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_NUM_NODES": "2"}) == ("Slurm", ["n1", "n2"])
    assert nodes.of_batch_system({"SLURM_JOB_NODELIST": "n1", "SLURM_JOB_NUM_NODES": "1"}) == ("Slurm", ["n1"])
    with pytest.raises(UserError, match=r"scontrol show hostnames n\[1-3\]"):
        nodes.of_batch_system({"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_NUM_NODES": "3"})


def test_what_a_launcher_or_a_step_says_of_itself_does_not_reach_the_servers():
    user = {
        "OMPI_MCA_btl": "tcp,self",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "PATH": "/bin",
        "PMIX_MCA_gds": "hash",
    }
    of_a_rank = {
        "OMPI_COMM_WORLD_RANK": "0", "OMPI_UNIVERSE_SIZE": "4", "OMPI_MCA_ess": "^singleton", "OMPI_MCA_orte_hnp_uri": "x",
        "OMPI_MCA_mca_base_env_list": "A", "PMIX_RANK": "0", "PMI_RANK": "0", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1",
        "SLURM_CPU_BIND": "x", "SLURM_EXPORT_ENV": "NONE", "OMPI_MCA_rmaps_base_mapping_policy": "core",
    }  # fmt: skip
    given = launching.Job("mpirun", Nodes(("a", "b"))).environment(user | of_a_rank, "/dev/shm/run")
    assert {name: given[name] for name in user} == user
    assert not set(of_a_rank) & set(given)


def test_one_server_is_started_on_each_node():
    words = launching.Job("/none/mpirun", Nodes(("a", "b"), 1)).prefix(
        {"HDF5_PLUGIN_PATH": "x", "HOME": "/", "ADVECTIO_RUN": "x"}
    )
    assert " ".join(words) == (
        "/none/mpirun --quiet --host a:1,b:1 -n 2 --map-by ppr:1:node --bind-to none -x HDF5_PLUGIN_PATH"
    )


@pytest.mark.parametrize(("version", "args"), [("slurm 22.05.8", "-A x --overlap"), ("slurm 19.05.1", None)])
def test_within_slurm_the_servers_step_leaves_the_nodes_to_the_model(tmp_path, monkeypatch, version, args):
    srun = tmp_path / "srun"
    srun.write_text(f"#!/bin/sh\necho {version}\n")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    job = launching.Job("mpirun", Nodes(("a", "b")))
    given = {"SLURM_JOB_ID": "7"} | ({"OMPI_MCA_plm_slurm_args": "-A x"} if args else {})
    assert job.additions(given).get("OMPI_MCA_plm_slurm_args") == args


@pytest.fixture
def open_mpi(tmp_path) -> str:
    """As far as its version goes."""
    path = tmp_path / "mpirun"
    path.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n")
    path.chmod(0o755)
    return str(path)


NAMES = ["ADVECTIO_RUN", "LD_PRELOAD"]


def told(command: list[str], environment: dict[str, str] | None = None):
    environment = environment or {}
    command, warning = launching.tell_all_ranks(command, Nodes(("a", "b")), environment, NAMES)
    return command, environment.get(launching.ENV_LIST), warning


def test_open_mpi_is_told_by_its_list_of_variables(open_mpi):
    command = [open_mpi, "-n", "4", "./model", "-x", "3"]
    assert told(command) == (command, "ADVECTIO_RUN;LD_PRELOAD", None)
    assert told(command, {launching.ENV_LIST: "A=1;LD_PRELOAD=x"})[1] == "A=1;ADVECTIO_RUN;LD_PRELOAD"
    own = {launching.ENV_LIST: "A,B", "OMPI_MCA_mca_base_env_list_delimiter": ","}
    assert told(command, own)[1] == "A,B,ADVECTIO_RUN,LD_PRELOAD"


def test_open_mpi_which_refuses_the_list_beside_x_is_told_by_x(open_mpi):
    command = [open_mpi, "-x", "A", "-n", "1", "./model", ":", "-n", "2", "./other"]
    ours = ["-x", "ADVECTIO_RUN", "-x", "LD_PRELOAD"]
    expected = [open_mpi, *ours, "-x", "A", "-n", "1", "./model", ":", *ours, "-n", "2", "./other"]
    assert told(command) == (expected, None, None)


def test_what_passes_everything_is_told_nothing(tmp_path):
    hydra = tmp_path / "mpiexec"
    hydra.write_text("#!/bin/sh\necho HYDRA build details\n")
    hydra.chmod(0o755)
    assert told([str(hydra), "-n", "4", "./model"]) == ([str(hydra), "-n", "4", "./model"], None, None)
    assert told(["srun", "-n", "4", "./model"], {"SLURM_JOB_ID": "7"}) == (["srun", "-n", "4", "./model"], None, None)
    _, _, warning = told([str(hydra), "-genvnone", "-n", "4", "./model"])
    assert "ADVECTIO_RUN, LD_PRELOAD must be among them" in warning


@pytest.mark.parametrize(
    ("command", "environment"),
    [
        ("srun --export=NONE ./model", {}),
        ("srun --export HOME,PATH ./model", {}),
        ("srun ./model", {"SLURM_EXPORT_ENV": "NONE"}),
        ("./job.sh", {"SLURM_EXPORT_ENV": "NONE"}),
    ],
)
def test_an_srun_that_passes_nothing_is_warned_of(command, environment):
    assert "--export" in told(command.split(), environment | {"SLURM_JOB_ID": "7"})[2]
    assert told(["srun", "--export=ALL,A=1", "./model"], environment | {"SLURM_JOB_ID": "7"})[2] is None


def test_a_script_whose_mpirun_has_x_is_not_made_to_fail(tmp_path):
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\nmpirun -n 4 \\\n  -x OMP_NUM_THREADS ./model\n")
    _, variables, warning = told([str(script)])
    assert variables is None
    assert "-x ADVECTIO_RUN -x LD_PRELOAD" in warning
    script.write_text("#!/bin/sh\nmpirun -x OMP_NUM_THREADS -x ADVECTIO_RUN -x LD_PRELOAD ./model\n")
    assert told([str(script)]) == ([str(script)], None, None)
    script.write_text("#!/bin/sh\nset -x\nmpirun -n 4 ./model\n")
    assert told([str(script)]) == ([str(script)], "ADVECTIO_RUN;LD_PRELOAD", None)


def test_this_machine_is_no_io_node_where_nodes_are_only_found(monkeypatch, tmp_path):
    (tmp_path / "hosts").write_text(f"a\n{HERE}\n")
    monkeypatch.setenv("PBS_NODEFILE", str(tmp_path / "hosts"))
    assert nodes.found(["./wrf.exe"], 1) == Nodes((HERE, "a"), 1)


# With servers.

# In one write: lines of several ranks do not mix then.
SHOW = (
    "import os; e = os.environ; os.write(1, f\"{e['ADVECTIO_RUN']} {e.get('ADVECTIO_NODES')} {e['LD_PRELOAD']}\\n\".encode())"
)


@pytest.fixture
def several(fake):
    fake.add_program("advectiod_mpi")
    return fake


@needs_open_mpi
def test_simulated_nodes_have_a_server_each(several):
    several.tell(datasets=[dataset(node="n1")])
    done = several.run("run", "--simulate-nodes", "2,2,0", "--json", "s.json", "--", *python(SHOW))
    assert done.returncode == 0, done.stderr
    run_directory, variable, preload = done.stdout.split()
    assert variable == "n0:2,n1:2,io:0"
    assert preload.endswith("libadvectio_netcdf.so")
    assert several.events[-2:] == ["drain", "end 0"]
    started = sorted(several.events[:-2])
    assert [e.partition(":")[0] for e in started[:2]] == ["node 1 of 3", "node 2 of 3"]
    assert all("ADVECTIO_NODES=n0:2,n1:2,io:0" in e for e in started[:2])
    assert started[2].startswith(f"serve --run-dir {run_directory} --directory {several.work} --config {run_directory}/")
    assert started[2].endswith("--io-nodes 1")
    assert "3 servers: n0, n1, io (the last 1 dedicated to output)\n" in done.stderr
    summary = json.loads((several.work / "s.json").read_text())
    assert [n["name"] for n in summary["nodes"]] == ["n0", "n1", "io"]
    assert summary["io_nodes"] == 1
    assert summary["datasets"][0]["node"] == "n1"
    assert several.run_directories == []


def without_words_of_prterun(stderr: str) -> str:
    """Open MPI 5 tells in a frame of dashes that a process has ended, and has no option that forbids it."""
    return re.sub(r"^-{70,}\nprterun (?:detected|noticed) .*?\n-{70,}\n", "", stderr, flags=re.DOTALL | re.MULTILINE)


@needs_open_mpi
def test_when_one_server_dies_all_are_started_again(several):
    several.tell(die=1)
    done = several.run("run", "--simulate-nodes", "1,1", "--json", "s.json", "--", "sleep", "3")
    assert done.returncode == 0, done.stderr
    assert "one of the servers died (signal 9, SIGKILL); all are restarted (1 of at most 5 times)" in done.stderr
    assert len(without_words_of_prterun(done.stderr).splitlines()) == 2, "mpirun says nothing of it"
    assert sum(e.startswith("serve") for e in several.events) == 2
    assert sum(e.startswith("node 1 of 2") for e in several.events) == 2
    assert json.loads((several.work / "s.json").read_text())["server"]["restarts"] == 1


def test_servers_that_hang_when_they_are_started_again_are_ended(several, monkeypatch, capfd):
    """Open MPI's mpirun hangs, deaf to SIGTERM, when one of its processes is killed while it starts (4.1.4: 2 of 60)."""
    starts = several.directory / "starts"
    mpirun = several.directory / "mpirun"
    several.add_script(
        mpirun,
        f"""if [ "$1" = --version ]; then echo "mpirun (Open MPI) 4.1.4"; exit; fi
echo started >>{starts}
if [ "$(wc -l <{starts})" = 2 ]; then trap '' TERM; while :; do sleep 0.1; done; fi
until [ "$1" = {several.prefix}/bin/advectiod_mpi ]; do shift; done
exec "$@\"""",
    )
    monkeypatch.setattr("advectio.server.START_TIMEOUT_S", 1.0)
    monkeypatch.setenv("FAKE_ADVECTIOD", several.env["FAKE_ADVECTIOD"])
    several.tell(die=1)
    run_directory = several.work / "run"
    job = launching.Job(str(mpirun), nodes.simulated("1"))
    server = Server(str(several.prefix / "bin" / "advectiod_mpi"), str(run_directory), None, str(several.work), 5, job)
    server.start()

    def watched() -> bool:
        server.watch()
        return server.restarts == 2

    until(watched, "the servers were started a third time")
    final = server.drain(lambda _: True)
    assert final is not None
    assert final["final"]
    assert server.wait(10.0) == 0
    assert len(starts.read_text().splitlines()) == 3
    assert (
        "the servers do not answer, 1 s after they were started again; all are restarted (2 of at most 5 times)"
        in capfd.readouterr().err
    )


@needs_open_mpi
def test_servers_that_refuse_say_it_themselves_and_nothing_is_left(several):
    several.tell(refuse="advectiod_mpi: error: the stage is not usable")
    done = several.run("run", "--simulate-nodes", "1,1", "--", "touch", "started")
    assert done.returncode == 2
    assert without_words_of_prterun(done.stderr) == "advectiod_mpi: error: the stage is not usable\n"
    assert not (several.work / "started").exists()
    assert several.run_directories == []


@needs_open_mpi
def test_status_finds_the_servers_of_simulated_nodes(several):
    command = several.command("status")
    done = several.run("run", "--quiet", "--simulate-nodes", "1,1", "--", *command)
    assert "n1: server 1001, backlog 5.00 MB of 1 GiB" in done.stdout
    as_json = several.run("run", "--quiet", "--simulate-nodes", "1,1", "--", *command, "--json")
    assert len(json.loads(as_json.stdout)["nodes"]) == 2


@needs_open_mpi
def test_servers_whose_supervisor_is_killed_are_told(several):
    process = several.start("run", "--simulate-nodes", "1,1", "--", "sleep", "3")
    until(lambda: list(several.stage.glob("advectio-*/*/n0/socket")), "the socket")
    process.kill()
    process.wait(30)
    several.wait_for_event(f"signal {int(signal.SIGUSR1)}")


@needs_open_mpi
def test_what_servers_could_not_finish_is_kept_and_recovered_by_as_many(several):
    several.run("run", "--quiet", "--json", "s.json", "--", "true")
    final = json.loads((several.work / "s.json").read_text())
    several.tell(exit=1, datasets=[dataset(state="failed", error="No space left on device")])
    done = several.run("run", "--simulate-nodes", "1,1,0", "--", "true")
    assert done.returncode == 3, done.stderr
    (left,) = several.run_directories
    assert f"`advectio recover {left}` finishes it" in done.stderr
    assert json.loads((left / "servers.json").read_text())["simulated"] == [1, 1, 0]
    several.tell(recover=final)
    assert several.run("recover", "--dry-run", "--json", left).returncode == 0
    looked = [e for e in several.events if e.startswith("inspect")]
    assert looked == [f"inspect {left}/{name} --progress" for name in ("n0", "n1", "io")]
    done = several.run("recover", left)
    assert done.returncode == 0, done.stderr
    assert f"recover {left} --config {left}/advectio.yaml --json --io-nodes 1" in several.events
    assert {f"node {i}: recover {left}" for i in (1, 2)} <= set(several.events)
    assert several.run_directories == []


@pytest.fixture
def two_hosts(several):
    """This machine, and another one that is this machine too."""
    several.add_script(
        several.directory / "ssh",
        'while [ "${1#-}" != "$1" ]; do shift; done\n'
        f'echo "ssh $1" >> {several.directory}/ssh.log; shift\n'
        f'exec env -i HOME="$HOME" PATH="$PATH" FAKE_ADVECTIOD={several.env["FAKE_ADVECTIOD"]} '
        'OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 sh -c "$*"',
    )
    several.env |= {
        "OMPI_MCA_plm_rsh_agent": str(several.directory / "ssh"), "PRTE_MCA_plm_ssh_agent": str(several.directory / "ssh"),
        "HDF5_X": "yes",
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }  # fmt: skip
    return several


@needs_open_mpi
def test_nodes_have_a_server_each_and_all_ranks_learn_of_the_run(two_hosts):
    two_hosts.tell(datasets=[dataset()])
    mpirun = shutil.which("mpirun.openmpi") or "mpirun"
    hosts = ["--host", f"{HERE}:1,another:1"]
    for more in ([], ["-x", "HOME"]):
        model = [mpirun, *more, *hosts, "-n", "2", "--map-by", "ppr:1:node", "--bind-to", "none", *python(SHOW)]
        done = two_hosts.run("run", "--", *model)
        assert done.returncode == 0, done.stderr
        assert "2 servers" in done.stderr
        first, second = done.stdout.splitlines()
        assert first == second
        assert first.startswith(str(two_hosts.stage))
        assert first.endswith("libadvectio_netcdf.so")
    told = [e for e in two_hosts.events if e.startswith("node 1 of 2")]
    assert told == ["node 1 of 2: ADVECTIO_NODES=- HDF5_X=yes"] * 2
    assert (two_hosts.directory / "ssh.log").read_text().count("ssh another") == 4
    assert [p.name for p in two_hosts.work.iterdir() if p.name.startswith(".advectio")] == [], "the copy of the config is gone"


@needs_open_mpi
def test_the_config_of_a_run_on_several_nodes_is_where_all_can_read_it(two_hosts):
    done = two_hosts.run("run", "--nodes", f"another,{HERE}", "--", "sh", "-c", "echo nonsense > advectio.yaml; ls -A")
    assert done.returncode == 0, done.stderr
    (copy,) = [line for line in done.stdout.splitlines() if line.startswith(".advectio-")]
    assert any(e.endswith(f"--config {two_hosts.work}/{copy} --io-nodes 0") for e in two_hosts.events)


def test_one_node_is_served_as_ever(several):
    for options, env in ((["--nodes", HERE], {}), ([], {"SLURM_JOB_NODELIST": HERE, "SLURM_JOB_NUM_NODES": "1"})):
        done = several.run("run", *options, "--", "true", env=env)
        assert done.returncode == 0, done.stderr
    assert not any("--io-nodes" in e for e in several.events)


def test_nodes_that_were_only_found_may_stay_without_server(fake):
    done = fake.run("run", "--", "echo", "model", env={"LSB_HOSTS": f"{HERE} other"})
    assert (done.returncode, done.stdout) == (0, "model\n")
    assert "advectiod_mpi, which serves several nodes, is not there" in done.stderr
    done = fake.run("run", "--", "echo", "model", env={"LSB_HOSTS": "one other"})
    assert done.returncode == 0
    assert "is none of the nodes (LSB_HOSTS: one, other); only this node has a server" in done.stderr


def test_nodes_that_were_asked_for_must_be_possible(fake):
    done = fake.run("run", "--nodes", f"{HERE},other", "--", "touch", "started")
    assert done.returncode == 2
    assert done.stderr.startswith("advectio: error: advectiod_mpi, which serves several nodes, is not there")
    fake.add_program("advectiod_mpi")
    done = fake.run("run", "--nodes", f"{HERE},other", "--", "touch", "started", env={"ADVECTIO_MPIRUN": "/bin/true"})
    assert "ADVECTIO_MPIRUN is /bin/true, which is not an mpirun of Open MPI" in done.stderr
    done = fake.run("run", "--io-nodes", "1", "--", "touch", "started")
    assert "--io-nodes needs several nodes" in done.stderr
    done = fake.run("run", "--nodes", "a,b", "--simulate-nodes", "1,1", "--", "touch", "started")
    assert "exclude each other" in done.stderr
    assert not (fake.work / "started").exists()
    assert fake.events == []


@needs_open_mpi
def test_servers_that_cannot_be_started_are_told_with_a_way_to_see_why(several):
    env = {"OMPI_MCA_plm_rsh_agent": "/bin/false", "PRTE_MCA_plm_ssh_agent": "/bin/false"}
    done = several.run("run", "--nodes", f"{HERE},other", "--", "touch", "started", env=env)
    assert done.returncode == 2
    assert "one of the servers ended while starting" in done.stderr
    assert f"--host {HERE}:1,other:1 -n 2 --map-by ppr:1:node --bind-to none hostname" in done.stderr
    assert not (several.work / "started").exists()
    assert several.run_directories == []


@needs_open_mpi
def test_within_slurm_the_nodes_of_the_job_are_served(several):
    bin = several.directory / "slurm"
    several.add_script(bin / "scontrol", f"echo {HERE}; echo other")
    several.add_script(bin / "srun", "echo slurm 22.05")
    several.add_script(
        bin / "mpirun.openmpi",
        'if [ "$1" = --version ]; then echo "mpirun.openmpi (OpenRTE) 4.1.4"; exit; fi\n'
        f'echo "$OMPI_MCA_plm_slurm_args|${{SLURM_STEP_ID-none}}|$*" > {several.directory}/said\n'
        'while [ "${1%advectiod_mpi}" = "$1" ]; do shift; done; exec "$@"',
    )
    env = {
        "PATH": f"{bin}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0",
        "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_NUM_NODES": "2",
    }  # fmt: skip
    done = several.run("run", "--", "env", env=env)
    assert done.returncode == 0, done.stderr
    said = (several.directory / "said").read_text()
    assert said.startswith(f"--overlap|none|--quiet --host {HERE}:1,other:1 -n 2 --map-by ppr:1:node --bind-to none")
    assert launching.ENV_LIST not in done.stdout, "srun passes everything"


@needs_open_mpi
def test_env_tells_how_servers_are_started_by_hand(several):
    done = several.run("env", "--run-dir", "/dev/shm/x", "--nodes", f"{HERE},other")
    assert "export OMPI_MCA_mca_base_env_list='LD_PRELOAD;ADVECTIO_RUN;ADVECTIO_SERVERS'\n" in done.stdout
    command = next(line for line in done.stdout.splitlines() if "advectiod_mpi" in line)
    assert command.startswith("#   ")
    assert command.endswith(f"--exit-when-idle 60 --config {several.work}/advectio.yaml &")
    assert f"--host {HERE}:1,other:1 -n 2" in command
    done = several.run("env", "--run-dir", "/dev/shm/x", "--simulate-nodes", "2,0")
    assert "export ADVECTIO_NODES=n0:2,io:0\n" in done.stdout


def findings(done, level):
    return [f["what"] for f in json.loads(done.stdout)["findings"] if f["level"] == level]


@needs_open_mpi
def test_check_says_what_several_nodes_mean(several):
    asked = ("check", "--nodes", "4", "--io-nodes", "1", "--ranks", "90", "--frame-bytes", "100MB", "--json")
    done = several.run(*asked)
    assert any(w.startswith("4 nodes: a server on each, 1 of them without ranks of the model") for w in findings(done, "ok"))
    assert any(w.startswith("ranks: 30 on this node") for w in findings(done, "ok"))
    assert any(w.startswith("network: up to 100 MB of a frame") for w in findings(done, "ok"))
    (several.prefix / "bin" / "advectiod_mpi").unlink()
    missing = next(w for w in findings(several.run(*asked), "warning") if w.startswith("advectiod_mpi"))
    assert "is left to its library" in missing
    done = several.run("check", "--nodes", "2", "--io-nodes", "2", "--json")
    assert findings(done, "error") == ["2 I/O nodes of 2 nodes leave none for the model"]
