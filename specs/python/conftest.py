"""What every Python spec shares: the ledger at zero, and libraries that may be absent.

A spec that needs a library takes it as a fixture (`torch`, `jax`, `tvm`, `ml_dtypes`); that skips it with a
reason where the library is not installed and marks it, so that `-m "not torch"` deselects without importing.
MOONFERRY_SPEC_LEAVE_OUT="jax: why" skips those of one library with that reason.

A spec that draws examples runs twice: under a seed of its own, which never changes, and under MOONFERRY_SPEC_SEED,
which specs/run sets to another number for each commit.
"""

import codecs
import gc
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import hypothesis
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.configuration import set_hypothesis_home_dir

import moonferry as mf
from garbage import leave_out_what_is_loaded

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of allocated.py

# A shell that starts the specs in the background has them, and all that they start, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

LIBRARIES = {"torch": "torch", "jax": "jax", "tvm": "tvm_ffi", "ml_dtypes": "ml_dtypes"}

EMULATED = "MOONFERRY_SPEC_EMULATED" in os.environ  # by QEMU, which takes ten times as long

if EMULATED:
    # Whatever a spec allows the programs that it starts, they have ten times as long.
    communicate, wait = subprocess.Popen.communicate, subprocess.Popen.wait
    longer = lambda seconds: None if seconds is None else 10 * seconds  # noqa: E731
    subprocess.Popen.communicate = lambda self, input=None, timeout=None: communicate(self, input, longer(timeout))
    subprocess.Popen.wait = lambda self, timeout=None: wait(self, longer(timeout))

# Hypothesis keeps tables of its own; nothing is written into the tree.
set_hypothesis_home_dir(os.path.join(tempfile.gettempdir(), "moonferry-hypothesis"))
settings.register_profile(
    "moonferry",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=10 if EMULATED else 60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("moonferry")


@pytest.fixture
def lua():
    """A state whose garbage is gone when the ledger is read."""
    state = mf.Lua()
    yield state
    for _ in range(3):
        state.gccollect()


@pytest.fixture(scope="session")
def free_threaded():
    """Whether this CPython was built without the GIL."""
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


@pytest.fixture
def classes_stay(free_threaded):
    """CPython 3.13 without the GIL lets no class go once there has been a second thread."""
    return free_threaded and sys.version_info < (3, 14)


def pytest_configure(config):
    for mark, module in LIBRARIES.items():
        config.addinivalue_line("markers", f"{mark}: needs the module {module}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    left_out, _, why = os.environ.get("MOONFERRY_SPEC_LEAVE_OUT", "").partition(": ")
    for item in items:
        for mark in LIBRARIES:
            if mark in item.fixturenames:
                item.add_marker(mark)
                if mark == left_out:
                    item.add_marker(pytest.mark.skip(reason=why))


def pytest_generate_tests(metafunc):
    if hypothesis.is_hypothesis_test(metafunc.function):
        metafunc.parametrize("examples", ["fixed", "moving"], indirect=True)


@pytest.fixture(autouse=True)
def examples(request):
    """Which examples a spec of Hypothesis's gets: `fixed` derives them from the spec itself, as the profile says."""
    if getattr(request, "param", "fixed") == "moving":
        hypothesis.seed(int(os.environ.get("MOONFERRY_SPEC_SEED", "1")))(request.function)
    elif hypothesis.is_hypothesis_test(request.function):
        hypothesis.seed(None)(request.function)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.when == "call":
        item.spec_passed = report.passed


def forget_failures():
    """Where a spec failed, pytest keeps its traceback, and that keeps its tensors."""
    for name in ("last_traceback", "last_value", "last_exc"):
        if hasattr(sys, name):
            delattr(sys, name)
    gc.collect()


@pytest.fixture(autouse=True)
def ledger_is_unchanged(request):
    """Whatever a spec made is gone at its end."""
    leave_out_what_is_loaded()
    if any(mf.ledger()):
        forget_failures()
    before = mf.ledger()
    yield
    if getattr(request.node, "spec_passed", False) and mf.ledger() != before:
        gc.collect()
        assert mf.ledger() == before


@pytest.fixture(scope="session", autouse=True)
def ledger_starts_at_zero():
    assert tuple(mf.ledger()) == (0, 0, 0, 0)


def library(module):
    return pytest.importorskip(module, reason=f"{module} is not installed for this Python")


@pytest.fixture(scope="session")
def torch():
    return library("torch")


@pytest.fixture(scope="session")
def jax():
    return library("jax")


@pytest.fixture(scope="session")
def tvm():
    return library("tvm_ffi")


@pytest.fixture(scope="session")
def ml_dtypes():
    return library("ml_dtypes")


@pytest.fixture
def on_encode():
    """What is called as soon as a string gets to Lua in the encoding x-held: by the string, once."""
    calls = {}

    def encode(text, errors="strict"):
        calls.pop(text, bool)()
        return text.encode(), len(text)

    codec = codecs.CodecInfo(encode, codecs.getdecoder("utf-8"), name="x-held")
    search = {"x_held": codec, "x-held": codec}.get  # 3.15: as it is
    codecs.register(search)
    yield calls
    if hasattr(codecs, "unregister"):  # before 3.10 an encoding stays for good
        codecs.unregister(search)
