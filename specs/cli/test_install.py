"""What `cmake --install` gives: the program at its place, with all that it needs, and no variable set."""

import os
import shutil
import subprocess
import sys

import pytest
from programs import BUILD

USE = """
local mf = require "moonferry"
local t = mf.tensor({ { 1, 2 }, { 3, 4 } }, "float32")
local py = require "moonferry.python"
local a = py.import "numpy".from_dlpack(t)
a:fill(7)
print(t:get(1, 0), py.import "moonferry".__file__, package.searchpath("moonferry", package.path))
"""


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    where = tmp_path_factory.mktemp("prefix")
    command = ["cmake", "--install", str(BUILD), "--prefix", str(where)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return where


def run(prefix, *words, cwd, **rest):
    drop = ("LUA_", "MOONFERRY_", "PYTHON", "VIRTUAL_ENV", "LD_LIBRARY")
    env = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
    return subprocess.run([prefix / "bin" / "moonferry", *words], env={**env, "PYTHONDONTWRITEBYTECODE": "1"},
                          cwd=cwd, capture_output=True, text=True, timeout=600, **rest)  # fmt: skip


@pytest.fixture
def here(tmp_path):
    """A working folder with an environment in it, as a person has one."""
    (tmp_path / ".venv").symlink_to(os.path.dirname(os.path.dirname(sys.executable)))
    return tmp_path


def test_it_runs_lua_and_hosts_python(prefix, here):
    done = run(prefix, "-e", USE, cwd=here)
    package = prefix.resolve() / "lib" / "moonferry"
    assert done.stdout == f"7\t{package}/__init__.py\t{package}/lua/moonferry/init.lua\n", done.stderr


def test_its_subcommands(prefix, here):
    assert run(prefix, "sim", "--", "true", cwd=here).returncode == 0
    done = run(prefix, "check", "--rule", "takes-moonferry", "numpy", cwd=here)
    assert done.returncode == 0 and "1 holds" in done.stdout, done.stdout + done.stderr
    done = run(prefix, "doctor", "numpy", cwd=here)
    assert done.returncode == 0 and f"{prefix.resolve()}/lib/moonferry/libmoonferry.so.0" in done.stdout, done.stdout


def test_python_and_luajit_find_it_by_one_variable_each(prefix, here):
    program = (
        "import moonferry; print(moonferry.__file__, moonferry.Lua().eval('require(\"moonferry\").ones({2}):get(1)'))"
    )
    sanitizer = {k: os.environ[k] for k in ("LD_PRELOAD", "ASAN_OPTIONS") if k in os.environ}
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{prefix}/lib", "PYTHONDONTWRITEBYTECODE": "1", **sanitizer}
    done = subprocess.run([sys.executable, "-c", program], env=env, cwd=here, capture_output=True, text=True)
    assert done.stdout == f"{prefix}/lib/moonferry/__init__.py 1\n", done.stderr
    lua = f"{prefix}/lib/moonferry/lua"
    env = {"PATH": os.environ["PATH"], "LUA_PATH": f"{lua}/?.lua;{lua}/?/init.lua;;", "PYTHONDONTWRITEBYTECODE": "1"}
    env.update(sanitizer)
    done = subprocess.run(["luajit", "-e", USE], env=env, cwd=here, capture_output=True, text=True)
    assert done.stdout.startswith("7\t") and f"{lua}/moonferry/init.lua" in done.stdout, done.stderr


def test_it_can_be_moved(prefix, here):
    moved = here / "moved"
    shutil.copytree(prefix, moved, symlinks=True)
    done = run(moved, "-e", USE, cwd=here)
    assert f"{moved.resolve()}/lib/moonferry/lua" in done.stdout, done.stderr


def test_the_notice_is_there(prefix):
    assert "Mike Pall" in (prefix / "lib" / "moonferry" / "bin" / "moonferry.NOTICE").read_text()


def test_without_its_lua_files(prefix, tmp_path):
    alone = tmp_path / "bin"
    alone.mkdir()
    shutil.copy(prefix / "lib" / "moonferry" / "bin" / "moonferry", alone)
    done = run(tmp_path, "-e", "print(1)", cwd=tmp_path)
    assert done.stdout == "1\n"
    done = run(tmp_path, "-l", "moonferry", cwd=tmp_path)
    assert done.returncode == 1 and "module 'moonferry' not found" in done.stderr
    done = run(tmp_path, "-i", cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert done.returncode == 1 and "moonferry.program.repl" in done.stderr
