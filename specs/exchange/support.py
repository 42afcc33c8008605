"""What the matrix needs in Python: patterns of bytes, memory by its address, many rounds and the clock.

Responsible for what Lua cannot do for every library alike. Must not know any library but NumPy (and ml_dtypes, which
only names dtypes), and nothing of Moonferry but that it counts what is alive.
"""

import ctypes
import importlib
import importlib.util
import os
import re
import sys
import timeit
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import allocated  # noqa: E402

ml_dtypes = importlib.import_module("ml_dtypes") if importlib.util.find_spec("ml_dtypes") else None

# Not a number (quiet, signalling, negative), infinities, zeros, the smallest and the largest, as bits.
SPECIALS = {
    "float16": (0x7E00, 0x7C01, 0xFE00, 0x7C00, 0xFC00, 0x8000, 1, 0x7BFF),
    "bfloat16": (0x7FC0, 0x7F81, 0xFFC0, 0x7F80, 0xFF80, 0x8000, 1, 0x7F7F),
    "float32": (0x7FC00000, 0x7F800001, 0xFFC00000, 0x7F800000, 0xFF800000, 0x80000000, 1, 0x7F7FFFFF),
    "float64": (0x7FF8 << 48, (0x7FF0 << 48) + 1, 0xFFF8 << 48, 0x7FF0 << 48, 0xFFF0 << 48, 1 << 63, 1, 0x7FEF << 48),
}


def numpy_dtype(name):
    """NumPy's dtype, or ml_dtypes' where NumPy has none."""
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


def itemsize(name):
    """Bytes of an element: the first number in the dtype's name says how many bits it has."""
    return 1 if name == "bool" else int(re.findall(r"\d+", name)[0]) // 8


def pattern(name, shape):
    """Bytes for an array of that dtype: specials first, then all 256 bytes or noise. Always the same ones."""
    size = itemsize(name)
    count = int(np.prod(shape, dtype=np.int64))
    if name == "bool":
        return (np.arange(count) % 3 == 0).astype(np.uint8)
    if size == 1:
        return np.arange(count).astype(np.uint8)
    raw = np.random.default_rng(7).integers(0, 256, count * size, dtype=np.uint8)
    part = {"complex64": "float32", "complex128": "float64"}.get(name, name)
    if part in SPECIALS:
        width = itemsize(part)
        special = np.array(SPECIALS[part], dtype=f"uint{8 * width}").view(np.uint8)[: raw.size]
        raw[: special.size] = special
    return raw


def typed(raw, name, shape):
    """The bytes as a NumPy array of their own; None where there is no such dtype."""
    try:
        return raw.copy().view(numpy_dtype(name)).reshape(shape)
    except (TypeError, AttributeError):
        return None


def among(a, names):
    """The array itself if its dtype is one of these: some libraries silently take others for something else."""
    if a.dtype.name not in names.split():
        raise TypeError(f"{a.dtype} is not among {names}")
    return a


def as_bytes(a):
    """What the elements are, in C's order."""
    return np.ascontiguousarray(a).tobytes()


def peek(pointer, shape, strides, size):
    """The elements of `size` bytes that lie there, in C's order, whoever owns them. Strides count elements."""
    shape, low, high = tuple(shape), 0, 0
    if 0 in shape:
        return b""
    for extent, step in zip(shape, strides):
        low, high = min(low, low + (extent - 1) * step), max(high, high + (extent - 1) * step)
    memory = (ctypes.c_char * ((high - low + 1) * size)).from_address(pointer + low * size)
    flat = np.frombuffer(memory, f"V{size}")
    steps = tuple(step * size for step in strides)
    return np.lib.stride_tricks.as_strided(flat[-low:], shape, steps).tobytes()


def poke(pointer, value, count):
    """Writes a float32 so many times into memory, behind its owner's back."""
    ctypes.memmove(pointer, np.full(count, value, "float32").tobytes(), 4 * count)


def spacers(size, attempt):
    """Memory from both of Python's allocators, for whoever keeps it: what is allocated next then lies at an address
    that divides otherwise than the last one did."""
    return [np.empty(size + 16 * attempt, np.uint8), *(bytes(size) for _ in range(attempt % 5))]


def put(target, source):
    """Copies bytes into something that has a buffer; returns it."""
    memoryview(target).cast("B")[: len(source)] = source
    return target


def lock(a):
    a.flags.writeable = False
    return a


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def in_use():
    """Bytes of malloc, blocks of Python's own allocator, resident bytes."""
    allocated.collect()
    return allocated.allocated(), sys.getallocatedblocks(), resident()


def rounds(give, take, x, count, ledger):
    """Gives x and takes it `count` times, again if something has grown. Returns how many bytes of malloc and blocks of
    Python's each round leaves, by how many resident bytes the process grows, and how many more references to x and how
    much more of Moonferry's there are."""
    for _ in range(count // 10):
        take(give(x))
    allocated.collect()
    references, before = sys.getrefcount(x), tuple(ledger())
    grown = [sys.maxsize] * 3
    for _ in range(3):  # a library may fill a cache of its own once; a leak grows each time
        start = in_use()
        for _ in range(count):
            take(give(x))
        grown = [min(least, now - then) for least, now, then in zip(grown, in_use(), start)]
        if grown[0] < 1 << 10 and grown[1] < 100 and grown[2] < 1 << 16:
            break
    alive = sum(abs(now - then) for now, then in zip(tuple(ledger()), before))
    return grown[0] / count, grown[1] / count, grown[2], sys.getrefcount(x) - references, alive


def nanoseconds(give, take, x):
    """The shortest time of one exchange."""
    timer = timeit.Timer(lambda: take(give(x)))
    number = max(1, round(0.003 / min(timer.repeat(5, 1))))
    return min(timer.repeat(15, number)) / number * 1e9
