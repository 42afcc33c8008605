"""Memory over many exchanges: calls leave nothing behind, to the byte, and the process does not grow."""

import ctypes
import gc
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import allocated
import numpy as np
import pytest

import moonferry as mf

GROWTH = Path(__file__).with_name("growth.py")
PAGE = 4096
LIMIT = 1 << 20
ROUNDS = 200  # of left_by; the smallest block is larger than a byte
under_asan = hasattr(ctypes.CDLL(None), "__asan_init")


def growth(*names):
    done = subprocess.run([sys.executable, str(GROWTH), *names], env={**os.environ, **allocated.EXACT},
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


NEEDS = growth()
# CPython 3.12, and a later one without the GIL, keeps each name until its end.
KEPT = {"names that nobody used before"}
KEEPS_NAMES = sys.version_info[:2] == (3, 12) or sysconfig.get_config_var("Py_GIL_DISABLED")
PLAIN = [name for name, needed in NEEDS.items() if needed is None and not (KEEPS_NAMES and name in KEPT)]


@pytest.fixture(scope="module")
def left():
    """What each call has left, all of them in one process."""
    return growth(*PLAIN)


@pytest.mark.parametrize("name", PLAIN)
def test_a_call_leaves_nothing(left, name):
    assert left[name] < ROUNDS


@pytest.mark.parametrize("name", [name for name, needed in NEEDS.items() if needed == "torch"])
def test_torch_leaves_nothing(torch, name):
    assert growth(name)[name] < ROUNDS


def test_tvm_leaves_nothing(tvm):
    assert growth("tvm through the table")["tvm through the table"] < ROUNDS


def test_a_thread_leaves_nothing():
    """A thread itself takes a little more or less each time."""
    assert growth("a call of a new thread")["a call of a new thread"] < 32 * ROUNDS


def test_a_byte_that_each_call_leaves_is_seen():
    kept = []
    assert allocated.left_by(lambda: kept.append(bytearray(1))) > ROUNDS


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * PAGE


@pytest.mark.skipif(under_asan, reason="AddressSanitizer keeps freed memory, so the process grows")
def test_a_hundred_thousand_exchanges_leave_the_size_where_it_was():
    t, a = mf.zeros((4, 3)), np.zeros((4, 3))

    def exchange(count):
        for _ in range(count):
            np.from_dlpack(t)
            mf.from_dlpack(a)
        gc.collect()

    exchange(5000)
    before = resident()
    exchange(50000)
    assert resident() - before < LIMIT


@pytest.mark.skipif(under_asan, reason="AddressSanitizer keeps freed memory, so the process grows")
def test_an_import_adds_little_to_what_the_producer_holds():
    a = np.zeros((4, 3))
    base = mf.ledger()
    kept = [mf.from_dlpack(a) for _ in range(1000)]
    assert mf.ledger().storages - base.storages == 1000
    before = resident()
    kept += [mf.from_dlpack(a) for _ in range(20000)]
    # NumPy's own capsule and struct are in this number too; the benchmark tells them apart.
    assert (resident() - before) / 20000 < 256 + 400
    kept.clear()
