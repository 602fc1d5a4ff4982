"""``advectio exec``: one rank of a job, which becomes the model.

The ranks of one job on one node share one server. Under ``advectio run`` it is there; otherwise the first rank to take the
job's lock starts a keeper (keeper.py), which keeps the server until the last rank has gone. Every rank leaves an open
connection to the keeper behind when it becomes the model: the keeper knows from it, without any help of the model, how long
the job goes on.

Standard library only: this stands in front of every rank.
"""

import contextlib
import fcntl
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator

from advectio import commands, installation, places
from advectio.errors import AlreadySaid, UserError
from advectio.protocol import connect_in

USAGE = """\
Usage: advectio exec [--config FILE] [--] COMMAND…

Become COMMAND, one rank of a parallel job, with its output carried by Advectio:

    mpirun -n 64 advectio exec ./wrf.exe
    srun advectio exec --config advectio.yaml ./wrf.exe

The ranks of a job share one server per node. The first rank starts it, and it ends when the last rank has gone and all is
written; then advectio-summary.json is in the directory where the job was started. Under `advectio run` the server is the
one of that run.

  --config FILE   the config to use (default: $ADVECTIO_CONFIG, else ./advectio.yaml where there is one)
  --help          this text
"""

# Of one launch, in the order of how exactly they name it: two launches in one batch job are two runs.
_JOB_VARIABLES = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "SLURM_JOB_ID", "PMI_JOBID")


def main(arguments: list[str]) -> int:
    try:
        config, command = _parse(arguments)
        if not command:
            sys.stderr.write(USAGE)
            return 2
        become(command, config)
    except AlreadySaid as error:
        return error.exit_code
    except UserError as error:
        print(f"advectio: error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _parse(arguments: list[str]) -> tuple[str | None, list[str]]:
    config = None
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        if word in ("--help", "-h"):
            sys.stdout.write(USAGE)
            raise AlreadySaid(0)
        if word == "--config" and rest:
            config = rest.pop(0)
        elif word.startswith("--config="):
            config = word.partition("=")[2]
        else:
            raise UserError(f"exec: no such option: {word}. Put -- before the command: advectio exec -- ./wrf.exe {word} …")
    return config, rest


def become(command: list[str], config: str | None) -> None:
    """Does not return, except by UserError."""
    executable = commands.find(command[0], "exec")
    installed = installation.find()
    if not os.environ.get("ADVECTIO_RUN"):
        os.environ["ADVECTIO_RUN"] = join(installed, config, command)
    os.environ["LD_PRELOAD"] = installation.preload(installed, os.environ.get("LD_PRELOAD"))
    try:
        os.execv(executable, command)
    except OSError as error:
        raise commands.refused(command[0], error) from error


def job_id() -> str:
    """The same for all ranks of one launch on one node, and for no other launch that is under way."""
    for name in _JOB_VARIABLES:
        value = os.environ.get(name)
        if value:
            if name == "SLURM_JOB_ID":
                value += "." + os.environ.get("SLURM_STEP_ID", "batch")
            return re.sub(r"[^A-Za-z0-9.-]+", "-", f"{name.split('_')[0].lower()}-{value}")
    parent = os.getppid()
    return f"parent-{parent}-{_start_time(parent)}"


def _start_time(pid: int) -> str:
    """Numbers of processes are used again; together with the time of start they are not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return "0"


@contextlib.contextmanager
def locked(path: str) -> Iterator[int]:
    """Hold the lock file of a job. Its holder removes it at the end, so a lock got on a removed file is none."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            there = os.stat(path)
        except FileNotFoundError:
            os.close(fd)
            continue
        except BaseException:
            os.close(fd)
            raise
        mine = os.fstat(fd)
        if (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino):
            break
        os.close(fd)
    try:
        yield fd
    finally:
        os.close(fd)


def lock_path(job: str) -> str:
    parent = places.user_directory()
    places.make_private(parent)
    return os.path.join(parent, f".job-{job}")


def join(installed: installation.Installation, config: str | None, command: list[str]) -> str:
    """The run directory of this job on this node; started where it is not."""
    job = job_id()
    path = lock_path(job)
    with locked(path) as lock:
        run_directory = os.pread(lock, 4096, 0).decode()
        if run_directory and _attach(run_directory):
            return run_directory
        try:
            run_directory = _start_keeper(job, installed, config, command)
        except UserError:
            os.unlink(path)
            raise
        os.ftruncate(lock, 0)
        os.pwrite(lock, run_directory.encode(), 0)
        if not _attach(run_directory):
            raise UserError(f"the keeper of {run_directory} has gone")
        return run_directory


def _attach(run_directory: str) -> bool:
    """Leave a connection behind that lasts as long as this process, whatever it becomes."""
    try:
        link = connect_in(run_directory, "keeper", 10.0)
    except OSError:
        return False
    link.setblocking(True)
    os.set_inheritable(link.detach(), True)
    return True


def _start_keeper(job: str, installed: installation.Installation, config: str | None, command: list[str]) -> str:
    try:
        directory = os.getcwd()
    except FileNotFoundError:
        raise UserError("exec: the current directory has been removed; advectio-summary.json would be written there") from None
    request = {
        "job": job,
        "server": installed.server,
        "config": places.config_file(config),
        "directory": directory,
        "command": command,
    }
    # stderr stays ours: what the server has to say belongs to the job, and a launcher that waits for the end of its
    # ranks' stderr then waits for the last byte of output too.
    keeper = subprocess.Popen(
        [sys.executable, "-m", "advectio.keeper", json.dumps(request)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert keeper.stdout is not None
    with keeper.stdout as answer:
        line = answer.readline()
    if not line:
        code = keeper.wait()
        raise AlreadySaid(code if code > 0 else 2)
    return line.decode().rstrip("\n")
