"""Memory of calls with streams and devices: they leave nothing behind, to the byte, nor where Python has no memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import allocated
import pytest

GROWTH = Path(__file__).with_name("device_growth.py")
ROUNDS = 200  # of left_by; the smallest block is larger than a byte


def test_calls_leave_nothing(the_driver):
    def growth(*names):
        done = subprocess.run([sys.executable, str(GROWTH), the_driver.kind, *names], capture_output=True, text=True,
                              env={**os.environ, **allocated.EXACT})  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    left = growth(*growth())
    assert len(left) > 20
    assert {name: nbytes for name, nbytes in left.items() if nbytes >= ROUNDS} == {}


WITHOUT_MEMORY = """
import ctypes, gc, sys
from _testcapi import remove_mem_hooks, set_nomemory
from driver_abi import Driver
import moonferry as mf

driver = Driver(sys.argv[1])
driver.lib.sim_left.restype = ctypes.c_int64

def streams():
    gc.collect()
    mf.trim()
    return driver.lib.sim_left(b"streams")

mf.Stream(driver.kind)
before = streams()
for failed in range(100):
    set_nomemory(failed, failed + 1)
    try:
        mf.Stream(driver.kind)
    except MemoryError:
        continue
    finally:
        remove_mem_hooks()
    break
assert 0 < failed < 99 and streams() == before, (failed, streams(), before)
"""


def test_a_stream_without_an_object_is_given_back(the_driver):
    pytest.importorskip("_testcapi")
    if not the_driver.simulated:
        pytest.skip("only a simulator says what is left")
    done = subprocess.run([sys.executable, "-c", WITHOUT_MEMORY, the_driver.kind], cwd=GROWTH.parent, text=True,
                          capture_output=True, env={**os.environ, "SIM_LEDGER": "off"})  # fmt: skip
    assert done.returncode == 0, done.stderr


BLOCKS = """
import sys
from _testcapi import remove_mem_hooks, set_nomemory
import moonferry as mf

s, before = mf.Stream(sys.argv[1]), mf.current_stream(sys.argv[1])
for failed in range(100):
    set_nomemory(failed, failed + 1)
    try:
        s.__enter__()
    except MemoryError:
        began = False
    else:
        began = True
    finally:
        remove_mem_hooks()
    assert mf.current_stream(sys.argv[1]) == (s if began else before), failed
    if began:
        break
assert 0 < failed < 99
s.__exit__()
"""


def test_a_block_that_has_no_memory_does_not_begin(the_driver):
    pytest.importorskip("_testcapi")
    done = subprocess.run([sys.executable, "-c", BLOCKS, the_driver.kind], text=True, capture_output=True,
                          env={**os.environ, "SIM_LEDGER": "off"})  # fmt: skip
    assert done.returncode == 0, done.stderr


REFERENCES = """
import sys
import moonferry as mf
cpu, there = (mf.zeros(1, device=name).device for name in ("cpu", sys.argv[1]))
print(sys.getrefcount(cpu) - sys.getrefcount(there))
"""


def test_the_device_of_the_cpu_is_held_by_the_module_and_by_its_table(the_driver):
    """Others are held by the table alone."""
    done = subprocess.run([sys.executable, "-c", REFERENCES, the_driver.kind], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
