"""A build that finds no LuaJIT: it fails and says what to do, instead of leaving half of the package out."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REMEDIES = (
    "LuaJIT's headers were not found",
    "apt-get install libluajit-5.1-dev",
    "CMAKE_ARGS=-DMOONFERRY_LUA=OFF pip ",
)


def run(folder, *command):
    """Without what pkg-config knows, and what a make around this says to make."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PKG_CONFIG", "CMAKE_", "PYTHON", "MAKE"))}
    env["PKG_CONFIG_LIBDIR"] = str(folder)
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=600)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def configure(folder, *options):
    options = (f"-DPython_EXECUTABLE={sys.executable}", *options)
    return run(folder, "cmake", "-S", str(ROOT), "-B", str(folder / "build"), *options)


@pytest.mark.parametrize("part", ["MOONFERRY_PYTHON", "MOONFERRY_CLI"])
def test_cmake_fails_and_says_what_to_do(tmp_path, part):
    others = {"MOONFERRY_PYTHON", "MOONFERRY_CLI"} - {part}
    status, said = configure(tmp_path, *(f"-D{other}=OFF" for other in others))
    assert status == 1 and all(remedy in said for remedy in REMEDIES), said


def test_pip_fails_and_says_what_to_do(tmp_path):
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-build-isolation", "--no-deps"]
    status, said = run(tmp_path, *pip, str(ROOT))
    assert status == 1 and all(remedy in said for remedy in REMEDIES), said
    assert not list(tmp_path.glob("*.whl"))


def test_a_build_without_lua_is_to_be_asked_for(tmp_path):
    status, said = configure(tmp_path, "-DMOONFERRY_LUA=OFF")
    assert status == 0, said
    targets = run(tmp_path, "cmake", "--build", "build", "--target", "help")[1]
    assert "_core" in targets and "moonferry_cli" in targets
    assert "moonferry_bridge" not in targets and "_lua" not in targets


def test_what_needs_no_lua_builds_without(tmp_path):
    status, said = configure(tmp_path, "-DMOONFERRY_PYTHON=OFF", "-DMOONFERRY_CLI=OFF")
    assert status == 0, said


# What an installation says that lacks LuaJIT.

BUILD = Path(os.environ.get("MOONFERRY_BUILD", ROOT / "build" / "dev"))
USE = "import moonferry; moonferry.ones(2); moonferry.Lua()"


@pytest.fixture
def package(tmp_path):
    """A copy of the built package."""
    return Path(shutil.copytree(BUILD / "python" / "moonferry", tmp_path / "moonferry"))


def needs_a_library_that_is_not_there(package):
    """As the loader says it where LuaJIT's package was removed."""
    folder = package.parent
    (folder / "stub.c").write_text("int stub;\n")
    for words in (
        ["stub.c", "-o", "libabsent.so.2"],
        ["stub.c", "-Wl,--no-as-needed", "libabsent.so.2", "-o", "lua.so"],
    ):
        subprocess.run(["cc", "-shared", "-fPIC", *words], cwd=folder, check=True)
    (folder / "libabsent.so.2").unlink()
    os.replace(folder / "lua.so", package / "_lua.abi3.so")


def is_left_out(package):
    (package / "_lua.abi3.so").unlink()


CASES = [
    (needs_a_library_that_is_not_there, ("libabsent.so.2", "apt-get install libluajit-5.1-2")),
    (is_left_out, ("MOONFERRY_LUA=OFF", "apt-get install libluajit-5.1-dev")),
]


@pytest.mark.parametrize("break_it, words", CASES)
def test_python_says_what_to_do(package, break_it, words):
    break_it(package)
    env = {**os.environ, "PYTHONPATH": str(package.parent)}
    done = subprocess.run([sys.executable, "-c", USE], env=env, capture_output=True, text=True)
    told = done.stderr.splitlines()[-1]
    assert told.startswith("ImportError: moonferry.Lua ") and all(word in told for word in words), done.stderr


@pytest.mark.parametrize("break_it, words", CASES)
def test_doctor_says_what_to_do(package, break_it, words):
    break_it(package)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LUA_", "MOONFERRY_", "PYTHON"))}
    command = [package / "bin" / "moonferry", "doctor", "--json", "--python", sys.executable, "json"]
    env["PYTHONPATH"] = str(package.parent)
    found = json.loads(subprocess.run(command, env=env, capture_output=True, text=True, cwd=package.parent).stdout)
    lua = found["python"]["lua"]
    assert lua["available"] is False and all(word in lua["reason"] for word in words), lua
    assert found["python"]["hosted"] is True
