"""What a call does to a capture that goes on meanwhile, as CUDA's driver was seen to answer (captures_measured.txt).

The documentation is silent about many of these, and Moonferry relies on all of them, so the simulated driver is held
to the real one's answers, and the real one to what it answered then. Each row is a call, each column a mode of the
capture without and with the thread in relaxed mode: what the call answers, whether the capture goes on (1) or is broken
(2), and what its end answers.
"""

import ctypes as c
from pathlib import Path

import pytest

BLOCKING, NON_BLOCKING, NO_TIMING, RELAXED = 0, 1, 2, 2
LEGACY, PER_THREAD = c.c_void_p(1), c.c_void_p(2)
NBYTES, BIG = 4096, 256 << 20
ROWS = [
    line.split()
    for line in Path(__file__).with_name("captures_measured.txt").read_text().splitlines()
    if line[0] != "#"
]
COLUMNS = [(mode, relaxed) for mode in range(3) for relaxed in (False, True)]


class Calls:
    """The driver's calls on a captured stream (`own`), one whose work is not done (`busy`), one whose is (`done`)."""

    def __init__(self, gpu, flags):
        self.lib, self.made, self.gpu = gpu.lib, [], gpu
        self.own, self.busy, self.done = (self.stream(f) for f in (flags, NON_BLOCKING, NON_BLOCKING))
        self.before, self.later, self.past = self.event(), self.event(), self.event()
        self.pool, self.memory, self.pinned = c.c_void_p(), c.c_uint64(), c.c_void_p()
        self.must("cuDeviceGetDefaultMemPool", c.byref(self.pool), 0)
        self.must("cuMemAlloc_v2", c.byref(self.memory), c.c_size_t(NBYTES if gpu.simulated else BIG))
        self.must("cuMemHostAlloc", c.byref(self.pinned), c.c_size_t(NBYTES), 0)
        self.must("cuEventRecord", self.past, self.done)
        self.must("cuStreamSynchronize", self.done)
        for stream, event in ((self.busy, self.later), (self.own, self.before)):
            for _ in range(1 if gpu.simulated else 50):
                self.memset(stream, NBYTES if gpu.simulated else BIG)
            self.must("cuEventRecord", event, stream)

    def must(self, name, *args):
        assert getattr(self.lib, name)(*args) == 0, name

    def ask(self, name, *args):
        return str(getattr(self.lib, name)(*args))

    def stream(self, flags):
        made = c.c_void_p()
        self.must("cuStreamCreate", c.byref(made), flags)
        self.made.append(("cuStreamDestroy_v2", made))
        return made

    def event(self):
        made = c.c_void_p()
        self.must("cuEventCreate", c.byref(made), NO_TIMING)
        self.made.append(("cuEventDestroy_v2", made))
        return made

    def memset(self, stream, nbytes=64):
        return self.ask("cuMemsetD8Async", self.memory, c.c_ubyte(1), c.c_size_t(nbytes), stream)

    def status(self, stream, name="cuStreamIsCapturing", *more):
        status = c.c_int()
        return f"{self.ask(name, stream, c.byref(status), *more)}/{status.value}"

    def info(self, stream):
        number = c.c_uint64()
        return self.status(stream, "cuStreamGetCaptureInfo_v2", c.byref(number), None, None, None)

    def id(self, stream):
        return self.ask("cuStreamGetId", stream, c.byref(c.c_ulonglong()))

    def context(self, stream):
        return self.ask("cuStreamGetCtx", stream, c.byref(c.c_void_p()))

    def both(self, make, end, made, *args, place=None):
        """What making answers, and what ending what was made does."""
        answer = self.ask(make, c.byref(made), *args)
        return answer + "/" + (self.ask(end, made, *(place or ())) if answer == "0" else "-")

    def end(self):
        self.must("cuCtxSynchronize")
        for name, handle in reversed(self.made):
            self.must(name, handle)
        self.must("cuMemFree_v2", self.memory)
        self.must("cuMemFreeHost", self.pinned)


SIZE = c.c_size_t(NBYTES)
CALLS = {
    "nothing": lambda k: "0",
    "event-query-busy": lambda k: k.ask("cuEventQuery", k.later),
    "event-query-own": lambda k: k.ask("cuEventQuery", k.before),
    "event-query-done": lambda k: k.ask("cuEventQuery", k.past),
    "stream-query-busy": lambda k: k.ask("cuStreamQuery", k.busy),
    "stream-query-done": lambda k: k.ask("cuStreamQuery", k.done),
    "stream-query-legacy": lambda k: k.ask("cuStreamQuery", LEGACY),
    "stream-query-per-thread": lambda k: k.ask("cuStreamQuery", PER_THREAD),
    "id-own": lambda k: k.id(k.own),
    "id-other": lambda k: k.id(k.busy),
    "id-legacy": lambda k: k.id(LEGACY),
    "context-own": lambda k: k.context(k.own),
    "context-other": lambda k: k.context(k.busy),
    "info-other": lambda k: k.info(k.busy),
    "info-legacy": lambda k: k.info(LEGACY),
    "capturing-legacy": lambda k: k.status(LEGACY),
    "info-per-thread": lambda k: k.info(PER_THREAD),
    "event-new": lambda k: k.both("cuEventCreate", "cuEventDestroy_v2", c.c_void_p(), NO_TIMING),
    "record-other": lambda k: k.ask("cuEventRecord", k.past, k.busy),
    "record-legacy": lambda k: k.ask("cuEventRecord", k.past, LEGACY),
    "record-per-thread": lambda k: k.ask("cuEventRecord", k.past, PER_THREAD),
    "wait-other": lambda k: k.ask("cuStreamWaitEvent", k.done, k.later, 0),
    "wait-own": lambda k: k.ask("cuStreamWaitEvent", k.own, k.later, 0),
    "alloc-other": lambda k: k.both("cuMemAllocAsync", "cuMemFreeAsync", c.c_uint64(), SIZE, k.done, place=[k.done]),
    "alloc": lambda k: k.both("cuMemAlloc_v2", "cuMemFree_v2", c.c_uint64(), SIZE),
    "alloc-pinned": lambda k: k.both("cuMemHostAlloc", "cuMemFreeHost", c.c_void_p(), SIZE, 0),
    "stream-new": lambda k: k.both("cuStreamCreate", "cuStreamDestroy_v2", c.c_void_p(), NON_BLOCKING),
    "pool-trim": lambda k: k.ask("cuMemPoolTrimTo", k.pool, c.c_size_t(0)),
    "pointer": lambda k: k.ask("cuPointerGetAttribute", c.byref(c.c_int()), 9, k.memory),
    "memory-info": lambda k: k.ask("cuMemGetInfo_v2", c.byref(c.c_size_t()), c.byref(c.c_size_t())),
    "event-synchronize": lambda k: k.ask("cuEventSynchronize", k.later),
    "stream-synchronize": lambda k: k.ask("cuStreamSynchronize", k.busy),
    "copy-other": lambda k: k.ask("cuMemcpyHtoDAsync_v2", k.memory, k.pinned, c.c_size_t(64), k.done),
    "memset-legacy": lambda k: k.memset(LEGACY),
    "memset-per-thread": lambda k: k.memset(PER_THREAD),
    "context-synchronize": lambda k: k.ask("cuCtxSynchronize"),
}


def during(gpu, flags, call, mode, relaxed):
    k, to, graph = Calls(gpu, flags), c.c_int(RELAXED), c.c_void_p()
    k.must("cuStreamBeginCapture_v2", k.own, mode)
    if relaxed:
        k.must("cuThreadExchangeStreamCaptureMode", c.byref(to))
    answer = CALLS[call](k)
    if relaxed:
        k.must("cuThreadExchangeStreamCaptureMode", c.byref(to))
    status = k.status(k.own).split("/")[1]
    end = k.ask("cuStreamEndCapture", k.own, c.byref(graph))
    if graph:
        k.must("cuGraphDestroy", graph)
    k.end()
    return f"{answer}:{status}:{end}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row[:2]))
def test_a_call_beside_a_capture(cuda, row):
    kind, call, *expected = row
    flags = {"blocking": BLOCKING, "non-blocking": NON_BLOCKING}[kind]
    assert [during(cuda, flags, call, *column) for column in COLUMNS] == expected
    cuda.reset()  # the simulator reports each capture that was broken, as it should


def test_each_call_was_measured():
    assert {row[1] for row in ROWS} == set(CALLS) and len(ROWS) == 2 * len(CALLS)
