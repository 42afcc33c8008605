"""The table of `make bench-copy`: copies and casts of host memory by Moonferry, NumPy and PyTorch, one thread each;
and by as many threads of Moonferry's as it uses by itself, where a row is large enough for them.

Each row is one pair of layouts; whoever can do it takes turns, and the least of the rounds counts, so that a slow
spell of the machine meets all. The floor of a row is a contiguous copy (memmove) of as many bytes as the row reads and
writes; it takes its turn with the rest. Beside it: Moonferry's plain walk, which moves one element at a time.

Writes build/bench/copy.json; with --publish also docs/copy.md and docs/copy.png.
"""

import argparse
import ctypes
import json
import os
import sys
import threading
import timeit
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / os.environ.get("MOONFERRY_BENCH_BUILD", "bench")
sys.path[:0] = [str(BUILD / "python"), str(Path(__file__).parent)]

import copies_report  # noqa: E402
import copies_sweep  # noqa: E402
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from turns import least  # noqa: E402

import moonferry as mf  # noqa: E402

LIBRARY = ctypes.CDLL(str(BUILD / "python" / "moonferry" / "libmoonferry.so.0"))
# Below, Moonferry starts no threads.
SHARED_FROM = 2 << 20
TORCH = {"bfloat16": torch.bfloat16, "float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}
# What NumPy has no dtype for goes to Moonferry as bytes with another name.
FOREIGN = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}


OTHERS = [mf.zeros((SHARED_FROM,), "uint8") for _ in range(2)]
# How many threads a statement takes, and a copy that starts them: of other memory, which leaves a row's own as cold as
# its peers find it.
THREADS = {"t": LIBRARY.mf_threads_set, "w": lambda: OTHERS[0].copy(OTHERS[1])}


def permuted(*axes):
    return lambda a: a.transpose(axes)


def repeated(*shape):
    return lambda a: np.broadcast_to(a, shape)


def at(*index):
    return lambda a: a[index]


def same(a):
    return a


class Case:
    """A source of this shape and dtype, seen through ${view}, to a compact array of the dtype ${to}."""

    def __init__(self, family, name, shape, dtype, view=same, to=None):
        self.family, self.name, self.dtype, self.to = family, name, dtype, to or dtype
        rng = np.random.default_rng(1)
        values = rng.integers(0, 200, shape)
        self.src = view(array(values, dtype))
        self.dst = array(np.ones(self.src.shape, "uint8"), self.to)

    def nbytes(self):
        """What is read and written; what several elements share is read once."""
        read = 1
        for extent, stride in zip(self.src.shape, self.src.strides):
            read *= extent if stride else 1
        return read * self.src.itemsize + self.dst.nbytes

    def statements(self):
        """{who: (statement, names)} of all that can do it."""
        ours = {
            "d": as_moonferry(self.dst, self.to),
            "s": as_moonferry(self.src, self.dtype),
            **THREADS,
        }
        half = max(1, self.nbytes() // 2)
        floor = {"f": ctypes.memmove, "d": bytes_of(half), "s": bytes_of(half), "n": half}
        plain = {**ours, "use": LIBRARY.mf_simd_set, "set": LIBRARY.mf_simd()}
        found = {
            "moonferry": ("d.copy(s)", ours, "t(1, None)"),
            "memmove": ("f(d, s, n)", floor),
            "numpy": ("f(d, s, casting='unsafe')", {"f": np.copyto, "d": self.dst, "s": self.src}),
        }
        if self.dst.nbytes >= SHARED_FROM:
            found["threads"] = ("d.copy(s)", ours, "t(0, None)\nw()")
        if self.family != "cast":  # which takes seconds, one element at a time
            found["plain walk"] = ("use(b'plain', None)\nd.copy(s)\nuse(set, None)", plain, "t(1, None)")
        try:
            theirs = {"d": as_torch(self.dst, self.to), "s": as_torch(self.src, self.dtype)}
            found["torch"] = ("d.copy_(s)", theirs)
        except ValueError:  # PyTorch has no negative strides
            pass
        return found


class Fill(Case):
    """All elements of the destination become one number."""

    def nbytes(self):
        return self.dst.nbytes

    def statements(self):
        ours = {"d": as_moonferry(self.dst, self.to), **THREADS}
        half = max(1, self.nbytes() // 2)
        found = {
            "moonferry": ("d.fill(3)", ours, "t(1, None)"),
            "memmove": ("f(d, s, n)", {"f": ctypes.memmove, "d": bytes_of(half), "s": bytes_of(half), "n": half}),
            "numpy": ("d.fill(3)", {"d": self.dst}),
            "torch": ("d.fill_(3)", {"d": as_torch(self.dst, self.to)}),
        }
        if self.dst.nbytes >= SHARED_FROM:
            found["threads"] = ("d.fill(3)", ours, "t(0, None)\nw()")
        return found


class Equal(Case):
    """Whether the source and the destination, whose elements are equal, are; memmove copies half of what both have."""

    def statements(self):
        np.copyto(self.dst, self.src)
        ours = {"e": mf.equal, "d": as_moonferry(self.dst, self.to), "s": as_moonferry(self.src, self.dtype)}
        ours.update(THREADS)
        theirs = {"e": torch.equal, "d": as_torch(self.dst, self.to), "s": as_torch(self.src, self.dtype)}
        half = max(1, self.nbytes() // 2)
        found = {
            "moonferry": ("e(d, s)", ours, "t(1, None)"),
            "memmove": ("f(d, s, n)", {"f": ctypes.memmove, "d": bytes_of(half), "s": bytes_of(half), "n": half}),
            "numpy": ("e(d, s)", {"e": np.array_equal, "d": self.dst, "s": self.src}),
            "torch": ("e(d, s)", theirs),
        }
        if self.dst.nbytes >= SHARED_FROM:
            found["threads"] = ("e(d, s)", ours, "t(0, None)\nw()")
        return found


PACKED = {"uint4": 2, "uint1": 8}  # elements of a byte


class Packed(Case):
    """From or to elements of less than a byte, which NumPy has in bytes alone: it takes them apart or together by what
    it has for bits. PyTorch has nothing for either."""

    def __init__(self, family, name, shape, dtype, view=same, to=None):
        self.family, self.name, self.dtype, self.to = family, name, dtype, to
        self.src, self.dst = (np.ones(shape[0] // PACKED.get(one, 1), "uint8" if one in PACKED else one)
                              for one in (dtype, to))  # fmt: skip

    def statements(self):
        ours = {"d": mf.empty(self.elements(self.dst, self.to), self.to), **THREADS}
        ours["s"] = mf.empty(self.elements(self.src, self.dtype), self.dtype)
        ours["s"].fill(1)
        half = max(1, self.nbytes() // 2)
        return {
            "moonferry": ("d.copy(s)", ours, "t(1, None)"),
            "threads": ("d.copy(s)", ours, "t(0, None)\nw()"),
            "memmove": ("f(d, s, n)", {"f": ctypes.memmove, "d": bytes_of(half), "s": bytes_of(half), "n": half}),
            "numpy": (BY_BITS[self.dtype, self.to], {"np": np, "d": self.dst, "s": self.src}),
        }

    @staticmethod
    def elements(a, dtype):
        return (a.size * PACKED.get(dtype, 1),)


BY_BITS = {
    ("uint4", "uint8"): "np.bitwise_and(s, 15, out=d[::2]); np.right_shift(s, 4, out=d[1::2])",
    ("uint4", "float32"): "d[::2] = s & 15; d[1::2] = s >> 4",
    ("uint8", "uint4"): "np.bitwise_or(s[::2], s[1::2] << 4, out=d)",
    ("uint1", "uint8"): "d[:] = np.unpackbits(s, bitorder='little')",
    ("uint8", "uint1"): "d[:] = np.packbits(s, bitorder='little')",
}


def array(values, dtype):
    return values.astype(getattr(ml_dtypes, dtype) if dtype in FOREIGN else dtype)


def bytes_of(n):
    """The address of n bytes that live as long as the program."""
    kept = np.ones(n, "uint8")
    KEPT.append(kept)
    return kept.ctypes.data


KEPT = []


def as_moonferry(a, dtype):
    if dtype in FOREIGN:
        return mf.from_dlpack(a.view(FOREIGN[dtype])).reinterpret(dtype)
    return mf.from_dlpack(a)


def as_torch(a, dtype):
    if dtype in FOREIGN:
        return torch.from_numpy(a.view(FOREIGN[dtype])).view(TORCH[dtype])
    return torch.from_numpy(a)


WHOLE, BACK, SECOND, THIRD = (slice(None, None, step) for step in (1, -1, 2, 3))
CROP = slice(501, 3501)


def layout_cases():
    swapped = permuted(1, 0)
    yield "transpose", "4096 x 4096 float32", (4096, 4096), "float32", swapped
    yield "transpose", "4096 x 4096 uint8", (4096, 4096), "uint8", swapped
    yield "transpose", "2048 x 2048 float64", (2048, 2048), "float64", swapped
    yield "transpose", "4096 x 4096 float16", (4096, 4096), "float16", swapped
    yield "transpose", "3001 x 1999 float32", (3001, 1999), "float32", swapped
    yield "transpose", "3001 x 1999 uint8", (3001, 1999), "uint8", swapped
    yield "transpose", "1000 x 1500 complex128", (1000, 1500), "complex128", swapped
    yield "transpose", "256 x 256 float32", (256, 256), "float32", swapped
    yield "transpose", "16 x 16 float32", (16, 16), "float32", swapped
    yield "picture", "HWC to CHW, 2160 x 3840 x 3 uint8", (2160, 3840, 3), "uint8", permuted(2, 0, 1)
    yield "picture", "CHW to HWC, 3 x 2160 x 3840 uint8", (3, 2160, 3840), "uint8", permuted(1, 2, 0)
    yield "picture", "HWC to CHW, 1080 x 1920 x 3 float32", (1080, 1920, 3), "float32", permuted(2, 0, 1)
    yield "picture", "CHW to HWC, 2 x 1000 x 1001 uint8", (2, 1000, 1001), "uint8", permuted(1, 2, 0)
    planes = lambda a: a[..., :3].transpose(2, 0, 1)  # noqa: E731
    yield "picture", "RGBA to RGB planes, 1080 x 1920", (1080, 1920, 4), "uint8", planes
    yield "picture", "RGB to BGR, 2160 x 3840 x 3 uint8", (2160, 3840, 3), "uint8", at(WHOLE, WHOLE, BACK)
    yield "permute", "64^4 float32, reversed", (64, 64, 64, 64), "float32", permuted(3, 2, 1, 0)
    six = (16, 12, 16, 12, 16, 12)
    yield "permute", "six axes, the last stays, float32", six, "float32", permuted(0, 3, 1, 4, 2, 5)
    yield "permute", "six axes, none stays, float32", six, "float32", permuted(5, 2, 4, 1, 3, 0)
    yield "permute", "32 x 128 x 16 x 64 float32, heads", (32, 128, 16, 64), "float32", permuted(0, 2, 1, 3)
    eight = (8, 7, 6, 5, 9, 4, 3, 11)
    yield "permute", "eight axes, int16", eight, "int16", permuted(7, 1, 5, 3, 6, 2, 4, 0)
    yield "mirror", "columns, 4096 x 4096 float32", (4096, 4096), "float32", at(WHOLE, BACK)
    yield "mirror", "columns, 4096 x 4096 uint8", (4096, 4096), "uint8", at(WHOLE, BACK)
    yield "mirror", "columns, 2160 x 3840 x 3 uint8", (2160, 3840, 3), "uint8", at(WHOLE, BACK)
    yield "mirror", "rows, 4096 x 4096 float32", (4096, 4096), "float32", at(BACK)
    yield "slice", "crop 3000 x 3000 of 4096 x 4096 float32", (4096, 4096), "float32", at(CROP, CROP)
    yield "slice", "every second column, 4096 x 4096 float32", (4096, 4096), "float32", at(WHOLE, SECOND)
    yield "slice", "every second element of 2^25 uint8", (1 << 25,), "uint8", at(SECOND)
    yield "slice", "every third row and column, float64", (3000, 3000), "float64", at(THIRD, THIRD)
    yield "broadcast", "a row to 4096 x 4096 float32", (1, 4096), "float32", repeated(4096, 4096)
    yield "broadcast", "a column to 4096 x 4096 float32", (4096, 1), "float32", repeated(4096, 4096)
    yield "broadcast", "a pixel to 2160 x 3840 x 3 uint8", (1, 1, 3), "uint8", repeated(2160, 3840, 3)
    yield "compact", "64 MiB", (1 << 24,), "float32", same
    yield "compact", "64 bytes", (16,), "float32", same
    yield "small", "4 x 4 float32, transposed", (4, 4), "float32", swapped
    yield "small", "8 x 3 uint8, transposed", (8, 3), "uint8", swapped
    yield "small", "64 bytes, every second float32", (32,), "float32", at(SECOND)
    yield "small", "2 x 3 x 4 x 5 float64, reversed", (2, 3, 4, 5), "float64", permuted(3, 2, 1, 0)


def cast_cases():
    n = 1 << 24
    for source, target in (
        ("uint8", "float32"), ("float32", "uint8"), ("float32", "float16"), ("float16", "float32"),
        ("float32", "bfloat16"), ("bfloat16", "float32"), ("float32", "float8_e4m3fn"), ("float8_e4m3fn", "float32"),
        ("float16", "float8_e5m2"), ("int32", "float32"), ("float32", "int32"), ("int64", "float32"),
        ("float32", "int64"),
        ("float64", "float32"), ("float32", "float64"), ("float64", "float16"), ("int16", "uint8"), ("int64", "int32"),
        ("uint8", "float16"), ("float16", "bfloat16"), ("bool", "float32"), ("float32", "bool"), ("int32", "int64"),
    ):  # fmt: skip
        yield "cast", f"{source} to {target}", (n,), source, same, target
    yield "cast", "HWC uint8 to CHW float32, 2160 x 3840 x 3", (2160, 3840, 3), "uint8", permuted(2, 0, 1), "float32"
    yield "cast", "CHW float32 to HWC uint8, 3 x 2160 x 3840", (3, 2160, 3840), "float32", permuted(1, 2, 0), "uint8"
    yield "cast", "float32 to float16, 4096 x 4096, transposed", (4096, 4096), "float32", permuted(1, 0), "float16"
    yield "cast", "uint8 to float32, 16 elements", (16,), "uint8", same, "float32"


def other_cases():
    n = 1 << 24
    yield Fill, "fill", "float32, 64 MiB", (n,), "float32"
    yield Fill, "fill", "uint8, 16 elements", (16,), "uint8"
    yield Equal, "equal", "float32, 64 MiB", (n,), "float32"
    yield Equal, "equal", "uint8, 16 MiB", (n,), "uint8"
    yield Equal, "equal", "float16, 32 MiB", (n,), "float16"
    yield Equal, "equal", "4096 x 4096 float32, one transposed", (4096, 4096), "float32", permuted(1, 0)
    yield Equal, "equal", "float32, 16 elements", (16,), "float32"
    for source, target in BY_BITS:
        yield Packed, "packed", f"{source} to {target}", (n,), source, same, target


def all_cases():
    for arguments in (*layout_cases(), *cast_cases()):
        yield Case, *arguments
    yield from other_cases()


def measure(case, rounds):
    best = least(case.statements(), rounds, fewest=1)
    floor = best["memmove"]
    peers = [best[name] for name in ("numpy", "torch") if name in best]
    return {
        "family": case.family,
        "name": case.name,
        "nbytes": case.nbytes(),
        "ns": best,
        "of_peer": best["moonferry"] / min(peers),
        "share": floor / best["moonferry"],
    }


def sweep(seed, count, rounds, only):
    """Prints each row whose peer was faster by a fifth and more, and how many there are of each kind. ${only}: the rows
    with this text in their name, all of which are printed."""
    ratios = []
    for case in copies_sweep.random_cases(seed, count, lambda dtype: array(np.ones(1), dtype).itemsize):
        if only not in case[0]:
            continue
        row = measure(Case("cast" if case[2] != case[4] else "copy", *case), rounds)
        KEPT.clear()
        ratios.append(row["of_peer"])
        if only or row["of_peer"] > 1.2:
            print(copies_report.line(row), flush=True)
    ratios.sort()
    behind, much = (sum(ratio > limit for ratio in ratios) for limit in (1.0, 1.2))
    print(f"seed {seed}: of {len(ratios)} rows {behind} behind the best peer, {much} by more than a fifth; "
          f"median {ratios[len(ratios) // 2]:.2f}, worst {ratios[-1]:.2f}")  # fmt: skip


def bus(threads, rounds=20):
    """How many times as fast as one thread so many are, of which each copies its part of 64 MiB by memmove."""
    size = 64 << 20
    to, source = bytes_of(size), bytes_of(size)
    begin, end = threading.Barrier(threads + 1), threading.Barrier(threads + 1)

    def copy(first, part):
        for _ in range(rounds):
            begin.wait()
            ctypes.memmove(to + first, source + first, part)
            end.wait()

    def whole():
        begin.wait()
        end.wait()

    workers = [threading.Thread(target=copy, args=(i * (size // threads), size // threads)) for i in range(threads)]
    for worker in workers:
        worker.start()
    together = min(timeit.repeat(whole, number=1, repeat=rounds))
    for worker in workers:
        worker.join()
    alone = min(timeit.repeat(lambda: ctypes.memmove(to, source, size), number=1, repeat=rounds))
    return alone / together


def load():
    """Whether the machine had other work: figures from a busy one are worse for whoever needs the caches."""
    alone = os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR)
    prior = ", but this ran before all of it, with real-time priority" if alone else ""
    return f"The load was {os.getloadavg()[2]:.1f} in the last quarter of an hour, on {os.cpu_count()} cores{prior}."


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--only", default="", help="rows with this text in their family or name")
    parser.add_argument("--publish", action="store_true", help="also write docs/copy.md and docs/copy.png")
    parser.add_argument("--sweep", type=int, metavar="SEED", help="100 random rows; slow ones are told")
    options = parser.parse_args()
    torch.set_num_threads(1)
    LIBRARY.mf_simd.restype = ctypes.c_char_p
    LIBRARY.mf_threads_set(0, None)
    threads = LIBRARY.mf_threads()
    if options.sweep is not None:
        sweep(options.sweep, 100, options.rounds, options.only)
        return
    rows = []
    for kind, family, name, *arguments in all_cases():
        if options.only in f"{family} {name}":
            rows.append(measure(kind(family, name, *arguments), options.rounds))
            KEPT.clear()
            print(copies_report.line(rows[-1]), flush=True)
    result = {
        "machine": copies_report.machine(),
        "simd": LIBRARY.mf_simd().decode(),
        "load": load(),
        "threads": threads,
        "bus": bus(threads),
    }
    result["rows"] = rows
    (BUILD / "copy.json").write_text(json.dumps(result, indent=1) + "\n")
    if options.publish:
        copies_report.publish(result, ROOT)


if __name__ == "__main__":
    main()
