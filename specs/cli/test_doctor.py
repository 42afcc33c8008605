"""`moonferry doctor`: what it finds, and that nothing there ends it."""

import json
import os
import re
import subprocess
import sys

from programs import MOONFERRY, PACKAGE


def doctor(folder, *words, **settings):
    drop = ("LUA_", "MOONFERRY_", "PYTHON", "VIRTUAL_ENV", "SIM_", "LD_LIBRARY")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
    env = {**clean, "HOME": str(folder), "MOONFERRY_PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "1", **settings}
    return subprocess.run([MOONFERRY, "doctor", *words], env=env, cwd=folder, capture_output=True, text=True,
                          timeout=600)  # fmt: skip


def facts(folder, *words, **settings):
    done = doctor(folder, "--json", *words, **settings)
    assert done.stderr == ""
    return json.loads(done.stdout), done.returncode


def test_what_is_found(tmp_path):
    found, status = facts(tmp_path, "numpy", "torch")
    assert status == 0
    assert found["luajit"]["version"].startswith("LuaJIT 2.1")
    assert (found["luajit"]["jit"], found["luajit"]["gc64"]) == (True, True)
    assert found["moonferry"]["library"].startswith(str(PACKAGE.parent))
    assert found["python"]["executable"] == sys.executable and found["python"]["from"] == "MOONFERRY_PYTHON"
    assert found["python"]["hosted"] is True and "libpython" in found["python"]["library"]
    assert found["python"]["moonferry"] == found["program"]["version"] == found["moonferry"]["version"]
    lua = found["python"]["lua"]
    assert lua["available"] is True and lua["version"].startswith("LuaJIT 2.1") and "libluajit" in lua["library"]
    numpy, torch = found["libraries"]["numpy"], found["libraries"]["torch"]
    assert (numpy["dlpack_default"], numpy["dlpack_max_version_1_3"]) == ("legacy", "1.0")
    assert numpy["exchange_table"] == "no"
    assert (numpy["array_interface"], numpy["buffer"], numpy["cuda_array_interface"]) == (True, True, False)
    assert torch["exchange_table"].startswith("1.")
    assert list(found) == ["ok", "program", "luajit", "moonferry", "python", "drivers", "libraries"] and found["ok"]


def test_the_text_says_the_same(tmp_path):
    done = doctor(tmp_path, "numpy")
    assert done.returncode == 0
    assert "\n  numpy\n    importable " in done.stdout and "exchange_table          no\n" in done.stdout


def test_it_begins_with_a_verdict(tmp_path):
    (tmp_path / "broken.py").write_text("raise RuntimeError('no good')")
    lines = doctor(tmp_path, "numpy", "broken", "missing").stdout.splitlines()
    assert re.fullmatch(r"ok: Lua, Python 3\.\d+\.\d+ and moonferry\.Lua work", lines[0])
    assert lines[1].startswith("GPUs: none; `drivers`")
    assert lines[2:6] == [
        "array libraries: numpy", "installed, and cannot be used: broken", "not installed: missing", "",
    ]  # fmt: skip
    simulated = doctor(tmp_path, "numpy", LD_LIBRARY_PATH=str(PACKAGE / "sim" / "cuda"))
    assert simulated.stdout.splitlines()[1] == "GPUs: 2 of cuda"
    without = doctor(tmp_path, "numpy", MOONFERRY_PYTHON="/no/such/python")
    assert re.match("not ok: Lua works, Python cannot be used: .*/no/such/python", without.stdout)
    elsewhere = doctor(tmp_path, "numpy", MOONFERRY_LIBRARY="/no/such/library")
    assert elsewhere.returncode == 1 and re.match("not ok: Moonferry's library cannot be used: .*", elsewhere.stdout)


def test_of_the_known_libraries_those_are_shown_that_are_installed(tmp_path):
    said, _, shown = doctor(tmp_path).stdout.partition("\nlibraries\n")
    [absent] = re.findall("^not installed: (.*)$", said, re.MULTILINE)
    assert "numpy" not in absent and "  numpy\n    importable " in shown
    for name in absent.split(", "):
        assert f"  {name}\n" not in shown


def test_drivers(tmp_path):
    found, _ = facts(tmp_path, "none", LD_LIBRARY_PATH=str(PACKAGE / "sim" / "cuda"))
    cuda, rocm = found["drivers"]["cuda"], found["drivers"]["rocm"]
    assert cuda["devices"] == 2 and cuda["library"].endswith("sim/cuda/libcuda.so.1") and int(cuda["version"]) > 11000
    assert rocm["devices"] == 0 and "libamdhip64" in rocm["reason"]


MODULES = {
    "crashes": "import os; os.write(1, b'last words \\xff\\n'); os.abort()",
    "exits": "import sys; sys.exit(3)",
    "raises": "raise RuntimeError('no good\\nsecond line')",
    "prints": "print('importable\\tmaybe')",
    "silent": "import os; os._exit(0)",
    "bare": "float32 = 1; asarray = lambda *a, **k: object()",
}


def test_nothing_that_is_found_ends_it(tmp_path):
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text + "\n")
    found, status = facts(tmp_path, *MODULES, "missing")
    assert status == 0
    libraries = found["libraries"]
    assert "signal 6" in libraries["crashes"]["failure"] and "last words \\255" in libraries["crashes"]["failure"]
    assert libraries["exits"]["reason"] == "SystemExit: 3"
    assert libraries["raises"]["reason"] == "RuntimeError: no good"
    assert "ended with 0" in libraries["silent"]["failure"]
    assert libraries["bare"]["dlpack"] is False and libraries["bare"]["exchange_table"] == "no"
    assert libraries["missing"] == {"importable": False, "reason": "ModuleNotFoundError: No module named 'missing'"}


def test_without_python(tmp_path):
    found, status = facts(tmp_path, "numpy", MOONFERRY_PYTHON="/no/such/python")
    assert status == 1
    assert found["python"]["hosted"] is False and "/no/such/python" in found["python"]["reason"]
    assert not found["libraries"] and "failure" in found["python"]["lua"]
    said = doctor(tmp_path, "--python", "/no/such/python", "numpy").stdout
    assert "cannot use /no/such/python (from --python): it does not answer" in said
    assert "cannot be used: numpy" not in said


def test_a_name_of_no_module_is_not_installed(tmp_path):
    for name in ("", "../x", "numpy.nothing"):
        assert f"not installed: {name}\n" in doctor(tmp_path, name).stdout


def test_options(tmp_path):
    done = doctor(tmp_path, "--python", "/no/such/python", "--json", "numpy")
    assert json.loads(done.stdout)["python"]["from"] == "--python"
    assert doctor(tmp_path, "--nothing").returncode == 2
    assert doctor(tmp_path, "--help").stdout.startswith("usage: moonferry doctor")
