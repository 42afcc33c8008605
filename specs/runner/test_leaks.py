"""specs/leaks.py: a leak of ours is found among those of others, whichever way Python called us."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

import pytest

SPECS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(SPECS))
import leaks  # noqa: E402

SOURCE = f"{leaks.ROOT}/runtime/src/core/storage.c:27"
REPORT = """
==7==ERROR: LeakSanitizer: detected memory leaks

Direct leak of 424 byte(s) in 1 object(s) allocated from:
    #0 0x7f29 in __interceptor_malloc ../../../../src/libsanitizer/asan/asan_malloc_linux.cpp:69
{frames}

SUMMARY: AddressSanitizer: 424 byte(s) leaked in 1 allocation(s).
"""

# Drops the only handle of a tensor.
PLANTED = """
import ctypes, os
runtime = ctypes.CDLL(os.environ["MOONFERRY_LIBRARY"])
class Like(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32),
                ("dtype", ctypes.c_uint8 * 4), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("byte_offset", ctypes.c_uint64)]
def leak():
    shape, out = (ctypes.c_int64 * 1)(5), ctypes.c_void_p()
    like = Like(None, (1, 0), 1, (2, 32, 1, 0), ctypes.addressof(shape), None, 0)
    assert runtime.mf_tensor_create(ctypes.byref(like), ctypes.c_uint64(0), ctypes.byref(out), None) == 0
for _ in range(int(os.environ["LEAKS"])):
    leak()
"""


def found(*frames):
    return leaks.of_ours(REPORT.format(frames="\n".join(f"    #{i + 1} 0x7f29 {f}" for i, f in enumerate(frames))))


def test_who_allocates_tells_whose_it_is():
    ours, theirs = f"in storage_new {SOURCE}", "in PyTuple_New Objects/tupleobject.c:75"
    assert found(ours, theirs)
    assert found("in mf__alloc_any /elsewhere/alloc.c:137", ours)
    assert found("in PyMem_Malloc Objects/obmalloc.c:618", ours)
    assert not found(theirs, ours)
    assert not found("in storage_new /somebody/else/storage.c:27", ours)
    assert not found("(/usr/lib/libffi.so.8+0x6f79)", ours)


def test_what_only_a_leaked_block_holds_is_its_holder_s():
    text = REPORT.format(frames=f"    #1 0x7f29 in storage_new {SOURCE}")
    assert leaks.of_ours(text) and not leaks.of_ours(text.replace("Direct", "Indirect"))


def test_an_error_that_is_no_leak_is_a_finding(tmp_path):
    (tmp_path / "report.1").write_text("==1==ERROR: AddressSanitizer: heap-use-after-free on address 0x1\n")
    (tmp_path / "report.2").write_text("==2==WARNING: AddressSanitizer failed to allocate 0x20000000000190 bytes\n")
    assert [name for name, _ in leaks.findings(tmp_path)] == ["report.1"]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_planted_leak_is_found(count):
    loader = importlib.machinery.SourceFileLoader("specs_run", str(SPECS / "run"))
    run = importlib.util.module_from_spec(importlib.util.spec_from_loader("specs_run", loader))
    loader.exec_module(run)

    def planted(preset, more):
        env = {**run.tests_of(preset, "python.test_")[0].env, **more, "LEAKS": str(count)}
        code, text = run.run_program([run.PYTHON, "-c", PLANTED], env)
        assert code == 0, text
        return run.Result()

    failures = run.beside_others(planted).failures
    assert len(failures) == (count > 0), failures
    assert not count or f"in {count} object(s)" in failures[0][1] and "storage_new" in failures[0][1]
