"""How many bytes the process has allocated, exactly: malloc's own count, or AddressSanitizer's where that is malloc.

In a process that has EXACT in its environment from the start, calls that leave nothing behind leave the count where it
was, because Python's objects are malloc's, too, and no free block is kept for a thread. A CPython without the GIL has
an allocator of its own for them, of which it counts the blocks: each counts as a byte. Must not know what is counted.
"""

import array
import ctypes
import gc
import sys
import sysconfig

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
EXACT = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"} | ({} if FREE_THREADED else {"PYTHONMALLOC": "malloc"})


class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks".split()]
    _fields_ += [(name, ctypes.c_size_t) for name in "uordblks fordblks keepcost".split()]


def allocated():
    libc = ctypes.CDLL(None)
    if hasattr(libc, "__sanitizer_get_current_allocated_bytes"):
        libc.__sanitizer_get_current_allocated_bytes.restype = ctypes.c_size_t
        return libc.__sanitizer_get_current_allocated_bytes()
    libc.mallinfo2.restype = Mallinfo2
    now = libc.mallinfo2()
    return now.uordblks + now.hblkhd + (sys.getallocatedblocks() if FREE_THREADED else 0)


def collect():
    """Python's garbage goes, and its caches, which hold names that were looked up."""
    for name in ("_clear_internal_caches", "_clear_type_cache"):
        getattr(sys, name, int)()
    gc.collect()


def left_by(once, settle=collect, rounds=200, batches=4, count=allocated):
    """The bytes that so many calls leave behind: the least of several batches, because a table that grows once, ours or
    Python's, is no leak, and a leak is in each. `settle` collects what is garbage; `count` may count anything else."""
    counts = array.array("q", [0] * (batches + 1))
    for i in range(-1, batches):
        for _ in range(rounds):
            once()
        settle()
        counts[i + 1] = count()
    return min(after - before for before, after in zip(counts, counts[1:]))


def blocks_left_by(once, settle=gc.collect, rounds=100):
    """The objects of Python's that so many calls leave behind, give or take a few, in a process of any kind."""
    return left_by(once, settle, rounds, 3, sys.getallocatedblocks)
