"""The two files of the bridge are one binary for every CPython from 3.9 on: they use its stable ABI of 3.9 alone.

There is no stable ABI without the GIL: there they are of one version of CPython, as the name of one of them says.
"""

import os
import re
import shutil
import subprocess
import sysconfig

import pytest

import dlpack_abi as abi
import moonferry as mf

PACKAGE = os.path.dirname(os.path.abspath(mf.__file__))
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
EXTENSION = "_lua" + (sysconfig.get_config_var("EXT_SUFFIX") if FREE_THREADED else ".abi3.so")
NAMES = (EXTENSION, "moonferry_bridge.so")
FILES = [os.path.join(PACKAGE, name) for name in NAMES if os.path.exists(os.path.join(PACKAGE, name))]
with_stable_abi = pytest.mark.skipif(FREE_THREADED, reason="there is no stable ABI without the GIL")


def symbols_of(path):
    """The names that a shared object takes from CPython."""
    listed = subprocess.run(["nm", "-D", "--undefined-only", path], capture_output=True, text=True, check=True).stdout
    return sorted(set(re.findall(r"\bU (_?Py\w+)", listed)))


def undeclared(names, tmp_path):
    """Those of the names that the limited API of 3.9 does not declare, as this CPython's headers have it."""
    lines = ["#define Py_LIMITED_API 0x03090000", "#define PY_SSIZE_T_CLEAN", "#include <Python.h>"]
    lines += ["const void *const used[] = {"]
    source = tmp_path / "used.c"
    source.write_text("\n".join([*lines, *(f"  (const void *)&{name}," for name in names), "};\n"]))
    command = [*abi.compiler(), "-fsyntax-only", "-fmax-errors=0", f"-I{sysconfig.get_path('include')}", str(source)]
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    said = subprocess.run(command, capture_output=True, text=True, env={**environment, "LC_ALL": "C"})
    missing = sorted(set(re.findall(r"'(\w+)' undeclared", said.stderr)))
    assert bool(missing) == bool(said.returncode), said.stderr
    return missing


@with_stable_abi
@pytest.mark.skipif(not FILES, reason="this build has no bridge: MOONFERRY_LUA is OFF")
@pytest.mark.skipif(shutil.which("nm") is None, reason="no nm to list symbols")
def test_every_symbol_is_in_the_stable_abi_of_3_9(tmp_path):
    names = sorted({name for path in FILES for name in symbols_of(path)})
    assert "PyObject_GetAttr" in names and len(names) > 100
    assert undeclared(names, tmp_path) == []


@with_stable_abi
def test_a_symbol_that_is_younger_is_noticed(tmp_path):
    assert undeclared(["PyObject_GetAttr", "PyUnicode_AsUTF8AndSize"], tmp_path) == ["PyUnicode_AsUTF8AndSize"]


@pytest.mark.skipif(not FILES, reason="this build has no bridge: MOONFERRY_LUA is OFF")
def test_the_module_has_the_name_of_its_abi():
    """A CPython without the GIL looks for no `.abi3.so`, and one with it must not find what was built for the other."""
    assert [name for name in os.listdir(PACKAGE) if name.startswith("_lua.") and name.endswith(".so")] == [EXTENSION]
