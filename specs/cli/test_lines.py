"""`moonferry sim`: the lines of Python that made the calls which it reports."""

import ctypes
import re
import sys

import pytest

RACE = "race()\nend()\n"


def line_of(program, text):
    lines = program.read_text().splitlines()
    return f"{program}:{next(i for i, line in enumerate(lines, 1) if text in line)} in "


def test_the_lines_of_python_that_made_the_calls_are_named(sim):
    program = sim.script(RACE)
    done = sim("--", sys.executable, program)
    first, then, made = (
        re.search(rf"^  {word} .*$", done.stderr, re.MULTILINE)[0] for word in ("first", "then", "made")
    )
    # The call is made by a helper, ok(); that is the innermost line which is no library's.
    assert " at " + line_of(program, "status = getattr") + "ok from " in first
    assert " at " + line_of(program, "status = getattr") + "ok from " in then
    assert " at " + line_of(program, "status = getattr") + "ok from " in made
    done = sim("--lines", "0", "--", sys.executable, program)
    assert str(program) + ":" not in done.stderr


# The main thread waits, and runs no line of Python, from before the first call until after the last.
WORKER = """
import ctypes, threading
drv = ctypes.CDLL("libcuda.so.1")
context, memory, streams = ctypes.c_void_p(), ctypes.c_uint64(), [ctypes.c_void_p(), ctypes.c_void_p()]
size = ctypes.c_size_t(64)
def work():
    drv.cuInit(0)
    drv.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    drv.cuCtxPushCurrent_v2(context)
    drv.cuMemAlloc_v2(ctypes.byref(memory), size)
    for stream in streams:
        drv.cuStreamCreate(ctypes.byref(stream), 1)
        drv.cuMemsetD8Async(memory, 1, size, stream)
    drv.cuCtxSynchronize()
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


def test_a_worker_threads_first_calls_have_lines(sim):
    if not hasattr(ctypes.pythonapi, "_Py_DumpTraceback"):
        pytest.skip("this Python shows no thread's traceback before its main thread has run")
    program = sim.script("", head=WORKER)
    done = sim("--no-ledger", "--", sys.executable, program)
    first, then, made = (re.search(rf"^  {w} .*$", done.stderr, re.MULTILINE)[0] for w in ("first", "then", "made"))
    assert " at " + line_of(program, "cuMemsetD8Async") + "work from " in first
    assert " at " + line_of(program, "cuMemsetD8Async") + "work from " in then
    assert " at " + line_of(program, "cuMemAlloc_v2") + "work from " in made


def test_lines_of_libraries_are_passed_over(sim):
    library = sim.folder / "site-packages"
    library.mkdir()
    (library / "exchange.py").write_text(sim.script("").read_text())
    program = sim.script("import exchange\nexchange.race()\nexchange.end()\n", head="")
    done = sim("--", sys.executable, program, env={"PYTHONPATH": str(library)})
    assert done.stderr.count(f" at {program}:2 in <module> from ") == 3, done.stderr
