"""The few driver calls that stand in for other people's kernels, and what a simulated driver can be asked.

Responsible for CUDA and HIP by ctypes under one set of names, so that a spec is written once. A memset on a stream
stands for a kernel that writes, a copy to the host for one that reads. On a real driver there is nothing to ask:
findings are then always empty.
"""

import contextlib
import ctypes as c
import os

import pytest

CUDA = {
    "library": "libcuda.so.1",
    "init": "cuInit",
    "count": "cuDeviceGetCount",
    "create": "cuStreamCreate",
    "destroy": "cuStreamDestroy_v2",
    "wait": "cuStreamSynchronize",
    "memset": "cuMemsetD8Async",
    "read": "cuMemcpyDtoHAsync_v2",
    "write": "cuMemcpyHtoDAsync_v2",
    "alloc": "cuMemAlloc_v2",
    "free": "cuMemFree_v2",
    "begin": "cuStreamBeginCapture_v2",
    "end": "cuStreamEndCapture",
    "instantiate": "cuGraphInstantiateWithFlags",
    "launch": "cuGraphLaunch",
    "nodes": "cuGraphGetNodes",
    "forget": "cuGraphDestroy",
    "forget_exec": "cuGraphExecDestroy",
    "host": "cuLaunchHostFunc",
}
HIP = {
    "library": "libamdhip64.so.7",
    "init": "hipInit",
    "count": "hipGetDeviceCount",
    "create": "hipStreamCreateWithFlags",
    "destroy": "hipStreamDestroy",
    "wait": "hipStreamSynchronize",
    "memset": "hipMemsetAsync",
    "read": "hipMemcpyDtoHAsync",
    "write": "hipMemcpyHtoDAsync",
    "alloc": "hipMalloc",
    "free": "hipFree",
    "begin": "hipStreamBeginCapture",
    "end": "hipStreamEndCapture",
    "instantiate": "hipGraphInstantiateWithFlags",
    "launch": "hipGraphLaunch",
    "nodes": "hipGraphGetNodes",
    "forget": "hipGraphDestroy",
    "forget_exec": "hipGraphExecDestroy",
    "host": "hipLaunchHostFunc",
}
SHIFT = int(os.environ.get("MOONFERRY_SPEC_SEED", "0"))
NON_BLOCKING = 1
GLOBAL, RELAXED = 0, 2


def count_of(kind):
    """How many devices the driver of that kind says there are, asked without Moonferry; 0 where there is no driver."""
    names = CUDA if kind == "cuda" else HIP
    try:
        lib = c.CDLL(names["library"])
    except OSError:
        return 0
    found = c.c_int()
    good = getattr(lib, names["init"])(0) == 0 and getattr(lib, names["count"])(c.byref(found)) == 0
    return found.value if good else 0


class Driver:
    """The driver of one kind of GPU ("cuda" or "rocm"), with device 0 current on the calling thread."""

    def __init__(self, kind):
        self.kind = kind
        self.names = CUDA if kind == "cuda" else HIP
        self.lib = c.CDLL(self.names["library"])
        self.simulated = hasattr(self.lib, "sim_findings")
        self.default = 1 if kind == "cuda" else 0
        self.scratch = None
        if self.simulated:
            self.lib.sim_findings.restype = self.lib.sim_calls.restype = c.c_uint64
            self.lib.sim_finding.restype = c.c_char_p
            self.lib.sim_finding.argtypes = [c.c_size_t]
        self.count = count_of(kind)
        self.make_current(0)

    @property
    def second(self):
        """The name of the second GPU; without one the spec is skipped."""
        if self.count < 2:
            pytest.skip("there is one GPU")
        return f"{self.kind}:1"

    def make_current(self, ordinal):
        assert ordinal == 0 or self.second
        if self.kind == "rocm":
            assert self.lib.hipSetDevice(ordinal) == 0
            return
        context = c.c_void_p()
        assert self.lib.cuInit(0) == 0
        assert self.lib.cuDevicePrimaryCtxRetain(c.byref(context), ordinal) == 0
        assert self.lib.cuCtxSetCurrent(context) == 0

    def current(self):
        """Which context (CUDA) or device (HIP) is the calling thread's."""
        now = c.c_void_p()
        call = self.lib.cuCtxGetCurrent if self.kind == "cuda" else self.lib.hipGetDevice
        assert call(c.byref(now)) == 0
        return now.value

    def call(self, name, *args):
        function = getattr(self.lib, self.names[name])
        status = function(*args)
        assert status == 0, f"{self.names[name]} answered {status}"

    def stream(self):
        """A stream of somebody else's; give it back with destroy."""
        made = c.c_void_p()
        self.call("create", c.byref(made), NON_BLOCKING)
        return made.value

    def destroy(self, stream):
        self.call("destroy", c.c_void_p(stream))

    def memset(self, address, value, nbytes, stream):
        if self.kind == "cuda":
            self.call("memset", c.c_uint64(address), c.c_uint8(value), c.c_size_t(nbytes), c.c_void_p(stream))
        else:
            self.call("memset", c.c_void_p(address), c.c_int(value), c.c_size_t(nbytes), c.c_void_p(stream))

    def read(self, address, nbytes, stream):
        """The bytes, as work on that stream sees them."""
        host = (c.c_uint8 * nbytes)()
        self.call("read", host, c.c_void_p(address), c.c_size_t(nbytes), c.c_void_p(stream))
        self.call("wait", c.c_void_p(stream))
        return bytes(host)

    def read_beside(self, address, nbytes):
        """The bytes, as a stream of somebody else's sees them that has waited for nobody."""
        theirs = self.stream()
        seen = self.read(address, nbytes, theirs)
        self.destroy(theirs)
        return seen

    def write(self, address, data, stream):
        """Puts bytes there, in the stream's turn, and waits."""
        self.call("write", c.c_void_p(address), data, c.c_size_t(len(data)), c.c_void_p(stream))
        self.call("wait", c.c_void_p(stream))

    def hold(self, stream):
        """Queues what ends when the function that is returned is called, by any thread. It needs no Python itself."""
        libc, semaphore = c.CDLL(None), c.create_string_buffer(64)
        assert libc.sem_init(semaphore, 0, 0) == 0
        self.call("host", c.c_void_p(stream), libc.sem_wait, semaphore)
        return lambda: libc.sem_post(semaphore)

    def busy(self, stream):
        """Keeps a stream at work for some milliseconds on a GPU. A simulated one is as late as it may be anyway."""
        if self.simulated:
            return
        nbytes = 256 << 20
        if self.scratch is None:
            self.scratch = self.alloc(nbytes)  # until the process ends
        for _ in range(60):
            self.memset(self.scratch, 0, nbytes, stream)

    def alloc(self, nbytes):
        made = c.c_void_p()
        self.call("alloc", c.byref(made), c.c_size_t(nbytes))
        return made.value

    def free(self, address):
        self.call("free", c.c_void_p(address))

    @contextlib.contextmanager
    def capture(self, stream):
        """The work queued in the block becomes a graph, which is launched on the same stream at its end."""
        graph, executable = c.c_void_p(), c.c_void_p()
        self.call("begin", c.c_void_p(stream), RELAXED)
        yield
        self.call("end", c.c_void_p(stream), c.byref(graph))
        self.call("instantiate", c.byref(executable), graph, c.c_uint64(0))
        self.call("launch", executable, c.c_void_p(stream))
        self.call("wait", c.c_void_p(stream))
        self.call("forget_exec", executable)
        self.call("forget", graph)

    def captured(self, stream, work):
        """How many nodes the graph has that comes of a capture of what `work` queues; the capture must stay valid."""
        graph, n = c.c_void_p(), c.c_size_t()
        self.call("begin", c.c_void_p(stream), GLOBAL)
        try:
            work()
        finally:
            self.call("end", c.c_void_p(stream), c.byref(graph))
        self.call("nodes", graph, None, c.byref(n))
        self.call("forget", graph)
        return n.value

    def calls(self, *names):
        return sum(self.lib.sim_calls(name.encode()) for name in names)

    def registered(self, what):
        """How often the driver registered an object of OpenGL's of this kind, "Buffer" or "Image", minus how often it
        gave one of any kind back."""
        begin = "cuGraphics" if self.kind == "cuda" else "hipGraphics"
        return self.calls(f"{begin}GLRegister{what}") - self.calls(f"{begin}UnregisterResource")

    def seed(self, number):
        """The order of queued work: 0 is as late as it may be, another number an order of its own in each commit."""
        if self.simulated:
            self.lib.sim_seed(c.c_uint64(number + SHIFT if number else 0))

    def reset(self):
        if self.simulated:
            self.lib.sim_reset()

    def findings(self):
        if not self.simulated:
            return []
        found, texts = self.lib.sim_findings(0), []
        while found and (text := self.lib.sim_finding(len(texts))):
            texts.append(text.decode())
        return texts
