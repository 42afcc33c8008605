"""Calls with streams and devices that must leave nothing behind, as growth.py has those of the host.

A program of its own (test_device_memory.py). Its first argument is the kind of device, the others are the names of the
calls; without those it prints all names. No call here makes a stream: a simulator keeps what it needs to tell of a
handle that is used after its end.
"""

import json
import sys
import threading
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import moonferry as mf  # noqa: E402
from growth import allocated, refused  # noqa: E402

KIND = sys.argv[1]
s, other = mf.Stream(KIND), mf.Stream(KIND)
pinned, host = mf.zeros((4, 3), device=f"{KIND}_host"), np.zeros((4, 3), "float32")
there = mf.zeros((4, 3), device=KIND)
VERSIONED = {"max_version": (1, 3)}


class Theirs:
    """A stream of another library, whose handle is a new number each time."""

    def __cuda_stream__(self):
        return 0, s.handle


class Wrong:
    def __cuda_stream__(self):
        return 1, s.handle


theirs, wrong = Theirs(), Wrong()


def current():
    with s:
        return mf.current_stream(KIND)


def on_a_thread():
    """No call of the driver's, because a simulator keeps what it knows of a thread."""
    thread = threading.Thread(target=mf.current_stream, args=(KIND,))
    thread.start()
    thread.join()


CALLS = {
    "export on a number": lambda: there.__dlpack__(stream=s.handle, **VERSIONED),
    "legacy export on a number": lambda: there.__dlpack__(stream=s.handle),
    "export and import": lambda: mf.from_dlpack(there),
    "refused number": lambda: refused(there.__dlpack__, stream=1 << 80),
    "refused type": lambda: refused(there.__dlpack__, stream="1"),
    "wrapped number": lambda: mf.Stream.wrap(s.handle, KIND),
    "wrapped number of any device": lambda: mf.Stream.wrap(s.handle),
    "wrapped object": lambda: mf.Stream.wrap(theirs),
    "refused object": lambda: refused(mf.Stream.wrap, wrong),
    "refused handle": lambda: refused(mf.Stream.wrap, -5, KIND),
    "named streams": lambda: (mf.Stream.default(KIND), mf.Stream.per_thread(KIND)),
    "attributes": lambda: (s.device, s.handle, repr(s), s.__cuda_stream__(), s == other),
    "waits": lambda: (s.wait(other), s.wait(theirs), s.query(), s.synchronize(), mf.synchronize(KIND)),
    "refused wait": lambda: refused(s.wait, object()),
    "current stream": current,
    "current stream of a thread": on_a_thread,
    "acquired": lambda: there.acquire(theirs),
    "recorded": lambda: there.record(s),
    "copies": lambda: (there.copy(pinned), pinned.copy(there), there.to("cpu"), mf.asarray(host, device=KIND)),
    "fills": lambda: there.fill(1),
    "devices": lambda: (mf.device_count(KIND), mf.device_reason(KIND), mf.Device(KIND), there.device),
    "pools": lambda: (mf.pool_stats(KIND), mf.trim()),
    "refused device": lambda: refused(mf.zeros, 4, device=f"{KIND}:99"),
    "host values": lambda: pinned.tolist(),
}


def settle():
    """Twice, for what waits until queued work is done."""
    for _ in range(2):
        mf.synchronize(KIND)
        allocated.collect()


def main(names):
    print(json.dumps({name: allocated.left_by(CALLS[name], settle) for name in names} if names else list(CALLS)))


if __name__ == "__main__":
    main(sys.argv[2:])
