"""The memory rows of the benchmark, each in a process of its own.

memory.py live          bytes that an import takes beyond what its producer allocated
memory.py resident N    KiB by which N exchanges grew the process after the first 10^5
"""

import os
import sys
from pathlib import Path

import numpy as np

import moonferry as mf

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from allocated import allocated  # noqa: E402


def live(n=20_000):
    """The producer's struct and its capsule exist before the import, so they are not counted."""
    if os.environ.get("PYTHONMALLOC") != "malloc":
        sys.exit("memory.py live: run it with PYTHONMALLOC=malloc")
    array = np.zeros((4, 4), np.float32)
    capsules = [array.__dlpack__(max_version=(1, 3)) for _ in range(n)]
    held = [None] * n
    held[0] = mf.from_dlpack(capsules[0])
    before = allocated()
    for i in range(1, n):
        held[i] = mf.from_dlpack(capsules[i])
    print((allocated() - before) / (n - 1))


def resident_kib():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 1024


def resident(n):
    """One exchange: an array in from NumPy and out to NumPy again."""
    array = np.zeros((4, 4), np.float32)
    first = 100_000
    step = max(first, n // 10)
    done, start = 0, None
    while done < n:
        count = first if start is None else min(step, n - done)
        for _ in range(count):
            np.from_dlpack(mf.from_dlpack(array))
        done += count
        if start is None:
            start = resident_kib()
        print(f"bench: {done} exchanges, {resident_kib():.0f} KiB resident", file=sys.stderr, flush=True)
    print(resident_kib() - start)


if __name__ == "__main__":
    live() if sys.argv[1] == "live" else resident(int(sys.argv[2]))
