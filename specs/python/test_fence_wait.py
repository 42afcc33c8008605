"""What waits for a fence: it lets other threads run Python meanwhile, who may be what it waits for, and close what it
waits for."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import moonferry as mf
from test_ring import Point

WAITS = {
    "item": lambda t: t.item(),
    "float": float,
    "tolist": lambda t: t.tolist(),
    "repr": repr,
    "getitem": lambda t: t[0],
    "setitem": lambda t: t.__setitem__(0, 2),
    "assign": lambda t: t.__setitem__(slice(None), 2),
    "fill": lambda t: t.fill(2),
    "copy": lambda t: t.copy(),
    "copy from": lambda t: mf.zeros(1).copy(t),
    "astype": lambda t: t.astype("int8"),
    "reshape": lambda t: t.reshape(1, 1, copy=True),
    "equal": lambda t: mf.equal(t, mf.zeros(1)),
    "tobytes": lambda t: t.tobytes(),
    "memoryview": memoryview,
    "to": lambda t: t.to("cpu", copy=True),
    "acquire": lambda t: t.acquire("host"),
    "legacy": lambda t: t.__dlpack__(),
    "versioned": lambda t: t.__dlpack__(max_version=(1, 3)),
    "copied": lambda t: t.__dlpack__(copy=True),
    "numpy": np.from_dlpack,
    "table": lambda t: mf.into(mf.Tensor, t),
    "arrow": lambda t: t.__arrow_c_array__(),
}

# The fence is C alone, as one should be, and waits for as long as it takes. Nobody takes the GIL from a thread that
# does not give it up.
CHILD = """
import ctypes as c, sys, threading
import moonferry as mf
from test_fence_wait import WAITS
from test_ring import Fence

libc, kinds, semaphore = c.CDLL(None), dict(Fence._fields_), c.create_string_buffer(64)
fence = Fence(c.addressof(semaphore), 0, c.cast(libc.sem_wait, kinds["wait"]), kinds["drop"](0))
new = c.pythonapi.PyCapsule_New
new.restype, new.argtypes = c.py_object, [c.c_void_p, c.c_char_p, c.c_void_p]
libc.sem_init(semaphore, 0, 0)
sys.setswitchinterval(1000)
for name, call in WAITS.items():
    call(mf.zeros(1))  # so that what it imports is there
    t, begins = mf.zeros(1), threading.Event()
    mf._core._tensor_fence(t, new(c.addressof(fence), b"mf_fence", None), True)
    print(name, flush=True)
    waiter = threading.Thread(target=lambda: (begins.set(), call(t)))
    waiter.start()
    begins.wait()
    libc.sem_post(semaphore)
    waiter.join()
print("done")
"""


def test_a_wait_for_a_fence_lets_other_threads_run():
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    child = subprocess.run([sys.executable, "-c", CHILD], env=env, capture_output=True, text=True, timeout=100)
    assert child.stdout.split("\n")[-2:] == ["done", ""], child.stdout + child.stderr


@pytest.mark.parametrize("name", sorted(set(WAITS) - {"memoryview", "numpy"}))
def test_a_tensor_that_is_closed_in_a_wait_for_its_fence_stays_for_that(name):
    before, point, t, told = mf.ledger(), Point(), mf.zeros(1), []
    mf._core._tensor_fence(t, point.capsule, True)
    waiter = threading.Thread(target=lambda t, told: told.append(WAITS[name](t)), args=(t, told))
    waiter.start()
    assert point.asked.wait(60)
    # A buffer of it may be out meanwhile.
    if name != "tobytes":
        t.close()
    point.reached.set()
    waiter.join(60)
    assert len(told) == 1 and point.dropped == 1
    del told, t, waiter
    assert mf.ledger() == before
