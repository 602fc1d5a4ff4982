"""Fixtures of the tests of the command line."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_installation import Fake

# In the background of a shell without job control everything that is started here would ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def library(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("library") / "libadvectio_netcdf.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(path), "-x", "c", os.devnull], check=True)
    return path


@pytest.fixture
def fake(tmp_path, library) -> Iterator[Fake]:
    made = Fake(tmp_path, library)
    yield made
    made.clean()
