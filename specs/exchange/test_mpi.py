"""mpi4py with two real ranks, from Python and from Lua; what they do is in mpi_ranks.py and mpi_ranks.lua."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PYTHON = [
    "send, receive",
    "dtypes that MPI has not",
    "all-reduce",
    "scatter, gather",
    "strided, by a derived datatype",
    "a datatype of one's own",
    "a request keeps the memory",
    "a reduction takes a compact message",
    "read-only and broadcast views: sent, and not received into",
    "strided: refused, and its copy sent",
    "read-only: sent, and not received into",
    "one memory for both ranks",
    "2000 messages, nothing left",
]
LUA = [
    "send, receive",
    "all-reduce",
    "scatter",
    "strided, by a derived datatype",
    "strided: refused, and its copy sent",
    "nothing left",
]


def ranks(*program):
    """What two ranks of a program print."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed for this Python")
    beside = Path(sys.executable).parent / "mpiexec"
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        pytest.skip("there is no mpiexec")
    lua = f"{HERE.parent.parent}/lua/?.lua;{HERE.parent.parent}/lua/?/init.lua;;"
    environment = {**os.environ, "LUA_PATH": lua, "MOONFERRY_PYTHON": sys.executable, "PYTHONUNBUFFERED": ""}
    command = [mpiexec, "-n", "2", *map(str, program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def said():
    return {"Python": ranks(sys.executable, HERE / "mpi_ranks.py"), "Lua": ranks("luajit", HERE / "mpi_ranks.lua")}


@pytest.mark.parametrize("language, check", [*(("Python", name) for name in PYTHON), *(("Lua", name) for name in LUA)])
def test_two_ranks(said, language, check):
    assert f"ok {check}\n" in said[language]


def test_no_check_is_left_out(said):
    assert {language: text.count("ok ") for language, text in said.items()} == {"Python": len(PYTHON), "Lua": len(LUA)}
