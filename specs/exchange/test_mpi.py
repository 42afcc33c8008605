"""mpi4py with two real ranks; what they do is in mpi_ranks.py."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKS = [
    "send, receive",
    "dtypes that MPI has not",
    "all-reduce",
    "scatter, gather",
    "strided, by a derived datatype",
    "strided: refused, and its copy sent",
    "read-only: sent, and not received into",
    "one memory for both ranks",
    "1000 messages, nothing left",
]


@pytest.fixture(scope="module")
def said():
    pytest.importorskip("mpi4py", reason="mpi4py is not installed for this Python")
    beside = Path(sys.executable).parent / "mpiexec"
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        pytest.skip("there is no mpiexec")
    program = Path(__file__).with_name("mpi_ranks.py")
    command = [mpiexec, "-n", "2", sys.executable, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("check", CHECKS)
def test_two_ranks(said, check):
    assert f"ok {check}\n" in said


def test_no_check_is_left_out(said):
    assert said.count("ok ") == len(CHECKS)
