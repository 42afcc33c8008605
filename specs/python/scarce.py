"""Calls whose memory ends: each allocation of each call fails in turn, many times; what that leaves behind.

A program of its own, because bytes are counted exactly only in a process that began with allocated.EXACT. Its
arguments: the spec whose scarce_calls() gives the calls, and whose allocations fail: "cpython" (set_nomemory),
"runtime" (mf_fault_arm) or "modules" (what Moonferry's modules ask malloc for, with scarce.c loaded before all else).
It prints JSON: of each call the bytes that a failure has left, by the number of the allocation that failed.
"""

import ctypes
import functools
import gc
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dlpack_abi

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import allocated  # noqa: E402

ROUNDS, SMALLEST = 20, 16  # no block of malloc's is smaller
PLACES = 1000  # no call has as many allocations
# A call may do without what it cannot have, so that the first that goes well need not be the end.
WELL = 20


def preloaded():
    """The environment of a process that has scarce.c before all else."""
    if any(hasattr(ctypes.CDLL(None), name) for name in ("__asan_init", "__tsan_init")):
        pytest.skip("a sanitizer stands before malloc")
    library = dlpack_abi.compile_shared(str(HERE / "scarce.c"), "scarce.so", libraries=["-ldl"])
    return {**os.environ, "LD_PRELOAD": library}


def left(spec, kind):
    """What the program says: of each call of the spec, what its failures leave."""
    env = {**(preloaded() if kind == "modules" else os.environ), **allocated.EXACT}
    command = [sys.executable, "-X", "faulthandler", str(HERE / "scarce.py"), spec, kind]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def cpython(nth):
    from _testcapi import remove_mem_hooks, set_nomemory

    return (lambda: set_nomemory(nth, nth + 1)), remove_mem_hooks


def runtime(nth):
    from moonferry import _core

    return (lambda: _core._fault_arm(nth, False)), (lambda: _core._fault_arm(-1, False))


def modules(nth):
    library = ctypes.CDLL(None)
    return (lambda: library.scarce_arm(nth)), (lambda: library.scarce_arm(-1))


def is_of_cpython(error):
    """CPython's own functions lose an exception where the frame of a call has no memory."""
    return "error return without exception set" in str(error) or str(error).startswith("<function ")


def attempt(call, begin, end, errors):
    """Whether the call went well."""
    begin()
    try:
        call()
    except errors:
        return False
    except SystemError as error:
        if is_of_cpython(error):
            return False
        raise
    finally:
        end()
    return True


def left_by(call, kind, settle, errors):
    import moonferry as mf

    found, well = {}, 0
    call()
    settle()
    before = mf.ledger()
    for nth in range(PLACES):
        once = functools.partial(attempt, call, *kind(nth), errors)
        nbytes = allocated.left_by(once, settle, ROUNDS, 3)
        assert mf.ledger() == before, nth
        if nbytes >= SMALLEST * ROUNDS:
            found[nth] = nbytes // ROUNDS
        well = well + 1 if once() else 0
        if well > WELL:
            call()
            return found
    raise AssertionError("the call never came to its end")


def main(spec, kind):
    calls, settle = importlib.import_module(spec).scarce_calls()
    for call, _ in calls.values():
        call()
    gc.collect()
    gc.freeze()  # what the imports have made need not be walked each time
    print(json.dumps({name: left_by(call, globals()[kind], settle, errors) for name, (call, errors) in calls.items()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
