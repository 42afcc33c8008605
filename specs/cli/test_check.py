"""`moonferry check`: what it says of libraries that keep the rules, of some that do not, and of known ones."""

import json
import os
import subprocess
import sys

import pytest
from programs import MOONFERRY, PACKAGE

# A library that keeps no more than it must: NumPy's arrays under other names, and what each spec adds.
GOOD = """
import numpy as np
from numpy import asarray, broadcast_to, ones, zeros, from_dlpack
from numpy import float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool_, complex64
"""

WRAPPED = """
import ctypes
import numpy as np

float32 = np.float32

class Array:
    def __init__(self, inner):
        self.inner = inner
    def __dlpack_device__(self):
        return DEVICE
    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        EXPORT

def asarray(values, dtype=None):
    return Array(np.asarray(values, dtype=dtype))

def from_dlpack(x, copy=None, device=None):
    return Array(np.from_dlpack(x, copy=copy))
"""
PLAIN = "return self.inner.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)"


def check(folder, *words):
    drop = ("LUA_", "MOONFERRY_", "PYTHON", "VIRTUAL_ENV")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
    env = {**clean, "HOME": str(folder), "MOONFERRY_PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([MOONFERRY, "check", *words], env=env, cwd=folder, capture_output=True, text=True,
                          timeout=600)  # fmt: skip


def results(folder, *words):
    done = check(folder, "--json", *words)
    found = json.loads(done.stdout)
    return {r["rule"]: r for r in found["rules"]}, found, done.returncode


def bad(rules):
    return {name: r["result"] for name, r in rules.items() if r["result"] not in ("holds", "not offered")}


def library(folder, text, export=PLAIN, device="(1, 0)"):
    (folder / "mine.py").write_text(text.replace("EXPORT", export).replace("DEVICE", device))
    return "mine"


def test_moonferry_keeps_every_rule(tmp_path):
    rules, found, status = results(tmp_path, "moonferry")
    assert (bad(rules), status) == ({}, 0)
    assert found["counts"]["holds"] > 95 and found["array"] == "moonferry.Tensor"
    offered = [name for name, r in rules.items() if r["result"] == "not offered"]
    assert set(offered) <= {"zero-strides", "read-only", "read-only-legacy", "array-interface"}, offered


def test_numpy(tmp_path):
    rules, found, status = results(tmp_path, "numpy")
    assert bad(rules) == {"size-0-null": "broken", "refusal-kind": "broken"}
    assert status == 0, "both are what should be, not what must be"
    assert rules["table-capsule"]["result"] == rules["dtype-bfloat16"]["result"] == "not offered"
    assert "moonferry" not in rules["takes-moonferry"]["seen"], "Moonferry's tensors were tried"
    assert rules["takes-moonferry"]["result"] == rules["given-to-moonferry"]["result"] == "holds"
    assert check(tmp_path, "--strict", "--rule", "size-0-null", "numpy").returncode == 1
    assert all(r["standard"] and r["text"] and r["level"] in ("must", "should", "may") for r in rules.values())


NAMED = """
import numpy as np

class Array:
    def __init__(self, inner):
        self.inner, self.dtype = inner, inner.dtype.name
    def __dlpack_device__(self):
        return (1, 0)
    def __dlpack__(self, **keywords):
        return self.inner.__dlpack__(**keywords)

def array(values, dtype="float64"):
    assert isinstance(dtype, KIND), dtype
    return Array(np.array(values, dtype=dtype))

def from_dlpack(x, **keywords):
    return Array(np.from_dlpack(x, **keywords))
"""


@pytest.mark.parametrize("kind", ["str", "np.dtype"])
def test_a_library_without_dtypes_is_asked_by_name_or_by_numpys(tmp_path, kind):
    rules, found, _ = results(tmp_path, library(tmp_path, NAMED.replace("KIND", kind)))
    assert found["array"] == "mine.Array"
    assert rules["contents"]["result"] == rules["dtype-float64"]["result"] == rules["dtype-int8"]["result"] == "holds"


def test_a_library_that_cannot_be_asked_is_told_of_make(tmp_path):
    for text in ("x = 1", "def asarray(x, dtype): raise ValueError('no')", "def array(x): return x"):
        done = check(tmp_path, library(tmp_path, text))
        assert done.returncode == 2 and "--make 'xp.empty(shape, dtype)'" in done.stderr, done.stderr


def test_what_is_broken_is_what_is_shown(tmp_path):
    done = check(tmp_path, "numpy")
    lines = [line for line in done.stdout.splitlines()[2:] if line and not line.startswith(" ")]
    assert [line.split()[:3] for line in lines[:-1]] == [["refusal-kind", "should", "BROKEN"],
                                                         ["size-0-null", "should", "BROKEN"]]  # fmt: skip
    assert " hold, 2 broken, " in lines[-1] and "(--all shows each rule)" in lines[-1]
    every = check(tmp_path, "--all", "numpy").stdout.splitlines()
    assert len(every) > 80 and any(line.split()[:3] == ["contents", "must", "holds"] for line in every)


def test_a_reader_of_the_list_may_leave(tmp_path):
    command = f"{MOONFERRY} check --list | head -n 1"
    env = {**os.environ, "MOONFERRY_PYTHON": sys.executable}
    done = subprocess.run(["bash", "-c", command], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.count("\n") == 1 and done.stderr == "" and done.returncode == 0


@pytest.mark.parametrize("words", ["--all", "--json"])
def test_a_reader_of_the_results_may_leave(tmp_path, words):
    """Before the first line is written, in a pipe that has no reader from the start."""
    reading, writing = os.pipe()
    os.close(reading)
    env = {**os.environ, "MOONFERRY_PYTHON": sys.executable}
    done = subprocess.run([MOONFERRY, "check", words, "--rule", "strides", "numpy"], env=env, cwd=tmp_path,
                          stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60)  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (2, "")


def test_one_s_own_module_in_the_working_folder(tmp_path):
    rules, found, status = results(tmp_path, library(tmp_path, GOOD))
    assert (bad(rules), status) == ({"size-0-null": "broken", "refusal-kind": "broken"}, 0)
    assert found["module"] == "mine"


BROKEN = [
    ("return self.inner.__dlpack__()", "versioned", "the capsule is a legacy one"),
    ("return self.inner.__dlpack__(max_version=(1, 0))", "legacy", "the capsule is versioned"),
    ("if copy: copy = None\n        " + PLAIN, "copy-true", "the memory is the same"),
    ("if copy is False: copy = True\n        " + PLAIN, "copy-false", "different memory"),
    ("dl_device = None\n        " + PLAIN, "dl-device-unknown", "was accepted"),
    ("stream = None\n        " + PLAIN, "stream-number", "was accepted"),
    ("if copy is None: copy = True\n        " + PLAIN, "flags", "IS_COPIED is set"),
    ("self.inner = np.zeros_like(self.inner)\n        " + PLAIN, "contents", "the elements are others"),
    ("self.inner = self.inner.astype('float64')\n        " + PLAIN, "dtype-float32", "is exported as code"),
    ("import os\n        os.abort()", "contents", "signal SIGABRT"),
    ("ctypes.string_at(1)", "contents", "signal SIGSEGV"),
    ("import os\n        os._exit(0)", "contents", "exit status 0"),
    ("import time\n        time.sleep(60)", "contents", "did not end within 1 s"),
    ("raise ValueError('mine')", "contents", "ValueError: mine"),
    ("return 42", "contents", "PyCapsule"),
]


@pytest.mark.parametrize("export, rule, seen", BROKEN)
def test_each_breach_is_found(tmp_path, export, rule, seen):
    name = library(tmp_path, WRAPPED, export)
    rules, _, status = results(tmp_path, "--rule", rule, "--seconds", "1", name)
    found = rules[rule]
    expected = "crashed" if "signal" in seen or "exit" in seen else "hung" if "did not end" in seen else "broken"
    assert (found["result"], seen in found["seen"]) == (expected, True), found
    assert status == int(found["level"] == "must" or expected != "broken")


# Its capsules have a destructor that is a Python function, as Warp's: it loses an exception that is on its way.
FORGETFUL = """
import ctypes
import numpy as np

float32 = np.float32
DESTRUCTOR = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
forget = DESTRUCTOR(lambda capsule: ctypes.pythonapi.PyErr_Clear())
set_destructor = ctypes.pythonapi.PyCapsule_SetDestructor
set_destructor.argtypes = [ctypes.py_object, DESTRUCTOR]

class Array:
    def __init__(self, inner):
        self.inner = inner
    def __dlpack_device__(self):
        return 1, 0
    def __dlpack__(self, *, stream=None):
        capsule = self.inner.__dlpack__()
        set_destructor(capsule, forget)
        return capsule

def asarray(values, dtype=None):
    return Array(np.asarray(values, dtype=dtype))
"""


@pytest.mark.parametrize("rule, keyword", [("copy-true", "copy"), ("copy-legacy", "copy"), ("copy-false", "copy"),
                                           ("dl-device-own", "dl_device")])  # fmt: skip
def test_a_refusal_is_shown_though_a_capsule_s_destructor_loses_exceptions(tmp_path, rule, keyword):
    rules, _, _ = results(tmp_path, "--rule", rule, library(tmp_path, FORGETFUL))
    assert rules[rule]["result"] == "broken"
    assert rules[rule]["seen"].startswith("raised TypeError") and repr(keyword) in rules[rule]["seen"]


def test_a_device_that_is_not_the_capsules(tmp_path):
    rules, _, status = results(tmp_path, "--rule", "device-agrees", "--rule", "device",
                               library(tmp_path, WRAPPED, device="(2, 0)"))  # fmt: skip
    assert rules["device-agrees"]["seen"] == "__dlpack_device__ says (2, 0), the capsule (1, 0)"
    assert rules["device"]["result"] == "holds"
    assert status == 1


IMPORTS = """
import numpy as np, ctypes
from numpy import asarray, float32

def from_dlpack(x, **keywords):
    capsule = x.__dlpack__(max_version=(1, 0))
    IMPORT
    return array
"""


@pytest.mark.parametrize(
    "code, rule, seen",
    [
        ("array = np.from_dlpack(x).copy()", "from-copy-false", "it was copied"),
        ("array = np.from_dlpack(x)\n    np.from_dlpack(x)", "deletes-once", "it was called"),
        ("array = np.asarray([[0, 1, 2], [3, 4, 5]], dtype='float32')", "renames", "the capsule is named"),
        ("array = np.zeros((2, 3), 'float32')", "from-dlpack", "the elements are others"),
    ],
)
def test_breaches_of_a_consumer(tmp_path, code, rule, seen):
    rules, _, _ = results(tmp_path, "--rule", rule, library(tmp_path, IMPORTS.replace("IMPORT", code)))
    assert rules[rule]["result"] == "broken" and seen in rules[rule]["seen"], rules[rule]


@pytest.mark.parametrize(
    "text, why",
    [
        ("raise RuntimeError('no')", "RuntimeError: no"),
        ("import os; os.abort()", "importing it ended the process"),
        ("x = 1", "mine has no from_dlpack"),
        ("float32 = 1\ndef asarray(*a, **k): raise ValueError('none')", "no array can be made: ValueError: none"),
        ("float32 = 1\ndef asarray(*a, **k): return []", "its builtins.list has no __dlpack__, and mine has no"),
    ],
)
def test_what_cannot_be_checked(tmp_path, text, why):
    done = check(tmp_path, library(tmp_path, text))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"mine cannot be checked: {why}" in done.stderr


def test_a_library_whose_import_hangs(tmp_path):
    done = check(tmp_path, "--import-seconds", "0.5", library(tmp_path, "import time; time.sleep(600)"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "mine cannot be checked: importing it did not end within 0.5 s" in done.stderr


# Ends the process that runs the rules, after the fork in which an array was made and one rule's.
ENDS = """
import os
forks = []

def after():
    forks.append(None)
    if len(forks) == 3:
        os._exit(3)

os.register_at_fork(after_in_parent=after)
"""


def test_a_library_that_ends_the_process_that_runs_the_rules(tmp_path):
    """Each rule that is left has a process of its own."""
    names = ["contents", "strides", "flags", "device"]
    rules, _, status = results(tmp_path, *(f"--rule={name}" for name in names), library(tmp_path, GOOD + ENDS))
    assert [rules[name]["result"] for name in names] == ["holds"] * 4 and status == 0


def test_make(tmp_path):
    name = library(tmp_path, WRAPPED.replace("def asarray", "def build"))
    assert check(tmp_path, "--rule", "contents", name).returncode == 0, "made by from_dlpack"
    rules, _, _ = results(tmp_path, "--make", "xp.build([[0, 1, 2], [3, 4, 5]])", "--rule", "size-0", name)
    assert rules["size-0"]["seen"] == "--make does not use `shape`"
    make = "xp.build(__import__('numpy').zeros(shape, dtype))"
    rules, _, status = results(tmp_path, "--make", make, "--rule", "size-0", "--rule", "contents", name)
    assert (bad(rules), status) == ({}, 0)


def test_words(tmp_path):
    assert check(tmp_path).returncode == 2
    done = check(tmp_path, "--rule", "nonsense", "numpy")
    assert done.returncode == 2 and "there is no rule 'nonsense'" in done.stderr
    for option in ("--seconds", "--import-seconds"):
        for seconds in ("0", "-1", "x", "inf", "nan", "1e300", "1000001"):
            done = check(tmp_path, option, seconds, "numpy")
            assert done.returncode == 2 and f"argument {option}: " in done.stderr and seconds in done.stderr
    for module in ("./numpy.py", "numpy/fft", ""):
        done = check(tmp_path, module)
        assert done.returncode == 2 and f"{module!r} is no name of a module, as import takes it" in done.stderr
    done = check(tmp_path, "--make", "3", "numpy")
    assert done.returncode == 2 and "what was made is of the class int, which is no array; --make" in done.stderr
    done = check(tmp_path, "--list")
    assert done.returncode == 0 and len(done.stdout.splitlines()) > 100
    assert all(line.count("  ") for line in done.stdout.splitlines())
    assert "usage: moonferry check" in check(tmp_path, "--help").stdout
    done = check(tmp_path, "--python", "/no/such/python", "numpy")
    assert done.returncode == 2 and "cannot run '/no/such/python'" in done.stderr


def test_the_table(tmp_path):
    done = check(tmp_path, "--all", "numpy")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("numpy ") and lines[0].endswith("arrays are numpy.ndarray")
    assert any(line.split()[:3] == ["contents", "must", "holds"] for line in lines)
    assert lines[-1].startswith("numpy: ") and " hold, 2 broken, " in lines[-1]
    assert max(map(len, lines)) <= 120


# What is known of these versions, each seen by hand as well; a new version may mend it.
KNOWN = {
    "torch": {"takes-negative": "crashed", "refuses-overflow": "crashed", "takes-read-only": "broken",
              "copy-flag": "broken", "refuses-no-producer": "broken"},
    "jax.numpy": {"versioned": "broken", "version-newer": "broken", "asks-version": "broken", "read-only": "broken",
                  "null-deleter": "crashed", "from-copy-true": "broken"},
    "tvm_ffi": {"from-copy-true": "broken", "from-device": "broken", "copy-true": "broken",
                "dl-device-unknown": "broken", "version-older": "broken", "asks-version": "broken"},
}  # fmt: skip


@pytest.mark.parametrize("module", ["jax.numpy", "tvm_ffi"])  # PyTorch's are below
def test_known_findings(tmp_path, module):
    rules, _, status = results(tmp_path, *(f"--rule={name}" for name in (*KNOWN[module], "contents")), module)
    assert bad(rules) == KNOWN[module]
    assert status == 1


def test_the_whole_of_torch(tmp_path):
    rules, found, _ = results(tmp_path, "torch")
    assert bad(rules) == KNOWN["torch"]
    tables = [name for name in rules if name.startswith("table-")]
    assert len(tables) == 9 and all(rules[name]["result"] == "holds" for name in tables)
    assert rules["dtype-float8_e4m3fn"]["result"] == "holds"


def test_a_fault_of_the_check_is_no_finding(tmp_path):
    tool = PACKAGE / "_tool.py"
    done = subprocess.run([sys.executable, tool, "nonsense"], capture_output=True, text=True)
    assert done.returncode == 2 and "moonferry_check.nonsense" in done.stderr


def test_the_package_needs_no_extension(tmp_path):
    """In a Python that has neither Moonferry nor the extension for it."""
    tool = PACKAGE / "_tool.py"
    code = "import sys, runpy; sys.modules['moonferry'] = None; sys.argv[1:] = ['run', '--list']; runpy.run_path"
    done = subprocess.run([sys.executable, "-S", "-c", f"{code}({str(tool)!r}, run_name='__main__')"],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
