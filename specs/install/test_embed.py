"""Programs in C against what `cmake --install` gives, and with the source tree as a part of their own: examples/embed,
the README's line for a compiler, and an engine that hosts Lua and Python."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MOONFERRY_BUILD", ROOT / "build" / "dev"))
SAID = "Moonferry 0.1.0: 255, released: 1\n"
DROP = ("LUA_", "MOONFERRY_", "PYTHON", "VIRTUAL_ENV", "LD_", "PKG_CONFIG", "CMAKE_")


def run(command, cwd, **settings):
    """What a program prints, started as from a shell in which nothing is set but the settings."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(DROP)}
    done = subprocess.run(command, cwd=cwd, env={**env, **settings}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """What was installed, at another place than it was installed to."""
    where = tmp_path_factory.mktemp("installed")
    run(["cmake", "--install", BUILD, "--prefix", where / "first"], where)
    return (where / "first").rename(where / "moved")


@pytest.fixture
def embed(tmp_path):
    """A copy of examples/embed, which has nothing of the source tree above it."""
    return Path(shutil.copytree(ROOT / "examples" / "embed", tmp_path / "embed"))


def configure(folder, *options):
    return run(["cmake", "-S", folder, "-B", folder / "build", "-DCMAKE_BUILD_TYPE=Debug", *options], folder)


def build_and_run(folder):
    run(["cmake", "--build", folder / "build", "--parallel", "2"], folder)
    return run([folder / "build" / "brighten"], folder)


def test_find_package(prefix, embed):
    configure(embed / "cmake", f"-DCMAKE_PREFIX_PATH={prefix}")
    assert build_and_run(embed / "cmake") == SAID


def test_find_package_of_a_version_that_is_not_there(prefix, embed):
    project = embed / "cmake" / "CMakeLists.txt"
    project.write_text(project.read_text().replace("Moonferry 0.1", "Moonferry 0.2"))
    with pytest.raises(AssertionError, match=r"(?s)compatible with requested\s+version \"0.2\".*version: 0.1.0"):
        configure(embed / "cmake", f"-DCMAKE_PREFIX_PATH={prefix}")


def test_pkg_config(prefix, embed):
    settings = {"PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig"}
    run(["make"], embed / "pkg-config", **settings)
    assert run(["./brighten"], embed / "pkg-config") == SAID
    assert run(["pkg-config", "--modversion", "moonferry"], embed, **settings) == "0.1.0\n"
    found = Path(run(["pkg-config", "--variable=lua_folder", "moonferry"], embed, **settings).strip())
    assert (found / "moonferry" / "init.lua").resolve() == prefix / "lib/moonferry/lua/moonferry/init.lua"


# What a project that has Moonferry inside of it must not find changed, in the folder above it.
KEPT = """
set(CMAKE_INSTALL_RPATH /its/own)
get_cmake_property(before CACHE_VARIABLES)
add_subdirectory(${MOONFERRY_SOURCE} moonferry)
get_cmake_property(after CACHE_VARIABLES)
list(REMOVE_ITEM after ${before})
list(FILTER after EXCLUDE REGEX "^_|^(CMAKE|MOONFERRY|moonferry)_|^FIND_PACKAGE_MESSAGE_")
get_directory_property(targets DIRECTORY ${MOONFERRY_SOURCE} BUILDSYSTEM_TARGETS)
message(STATUS "rpath ${CMAKE_INSTALL_RPATH}, type '${CMAKE_BUILD_TYPE}', targets ${targets}, in the cache: ${after}.")
install(TARGETS brighten)
"""


def test_add_subdirectory(embed):
    project = embed / "subdirectory" / "CMakeLists.txt"
    added = "add_subdirectory(${MOONFERRY_SOURCE} moonferry)\n"
    before, after = project.read_text().split(added)
    project.write_text(before + KEPT.replace("install(TARGETS brighten)\n", "") + after + "install(TARGETS brighten)\n")
    said = configure(embed / "subdirectory", f"-DMOONFERRY_SOURCE={ROOT}", "-DMOONFERRY_LTO=OFF", "-DCMAKE_BUILD_TYPE=")
    assert "rpath /its/own, type '', targets moonferry, in the cache: ." in said
    assert build_and_run(embed / "subdirectory") == SAID
    run(["cmake", "--install", embed / "subdirectory" / "build", "--prefix", embed / "there"], embed)
    assert [path.name for path in (embed / "there").rglob("*") if path.is_file()] == ["brighten"]


def test_the_compile_line_of_the_readme(prefix, tmp_path):
    [(line, name)] = re.findall(r"^ +(cc examples/(\w+)\.c .*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    run(["sh", "-ec", line], tmp_path, PKG_CONFIG_PATH=f"{prefix}/lib/pkgconfig")
    assert run([f"./{name}"], tmp_path, LD_LIBRARY_PATH=f"{prefix}/lib") != ""


ENGINE = """
#include <lualib.h>
#include <moonferry_lua.h>
#include <stdio.h>
int main(int count, char **words) {
  mf_tensor *t;
  DLTensor like = {.ndim = 1, .shape = (int64_t[]){3}, .dtype = {kDLFloat, 32, 1}};
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  if (count != 2 || mf_tensor_create(&like, 0, &t, NULL) != MF_OK) return 2;
  if (mf_lua_push(L, t) != 0) return puts(lua_tostring(L, -1)), 3;
  lua_setglobal(L, "t");
  if (luaL_dostring(L, words[1])) return puts(lua_tostring(L, -1)), 4;
  lua_close(L);
  mf_tensor_release(t);
  mf_ledger alive;
  mf_ledger_read(&alive);
  return printf("%d alive\\n", (int)alive.tensors) < 0;
}
"""
HOST = """
local py = require "moonferry.python"
py.import("numpy").from_dlpack(t):fill(7)
print(t:get(2), py.import("moonferry").__file__)
"""


def test_an_engine_that_hosts_lua_and_python(prefix, tmp_path):
    """The library is that of the links in lib/; what lies beside the file itself is found all the same."""
    (tmp_path / "engine.c").write_text(ENGINE)
    paths = {"PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig:{os.environ.get('PKG_CONFIG_PATH', '')}"}
    line = "cc -Wall -Werror engine.c $(pkg-config --cflags --libs moonferry luajit) -o engine"
    run(["sh", "-ec", line], tmp_path, **paths)
    folder = run(["pkg-config", "--variable=lua_folder", "moonferry"], tmp_path, **paths).strip()
    settings = {"LUA_PATH": f"{folder}/?.lua;{folder}/?/init.lua", "MOONFERRY_PYTHON": sys.executable}
    said = run(["./engine", HOST], tmp_path, LD_LIBRARY_PATH=f"{prefix}/lib", **settings)
    assert said == f"7\t{prefix.resolve()}/lib/moonferry/__init__.py\n0 alive\n"
