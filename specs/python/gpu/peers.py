"""Other people's GPU libraries under one set of names, so that an exchange is written once for all of them.

Responsible for: arrays of bytes, streams, and the two ways of an exchange, each as the library's users write it. Where
kernels do not run (a simulated driver), the driver's memset stands in for one. A peer that is not here, or not for this
driver, is a skip with the reason. It must not know what a spec expects.
"""

import contextlib
import os
import sys

import pytest

import moonferry as mf
from conftest import library


class Peer:
    """What all have in common; `gpu` is the driver."""

    streams = True  # whether it lets its users choose a stream

    def __init__(self, gpu):
        self.gpu, self.device = gpu, f"{gpu.kind}:0"
        self.made = []
        self.start()

    def start(self):
        """Finds the library, and that it has a device."""

    def stream(self):
        """A new one of the library's; it lives until the spec is over, as memory that was used on it wants."""
        self.made.append(self.new_stream())
        return self.made[-1]

    def wrap(self, stream):
        return mf.Stream.wrap(self.handle(stream), self.device)

    def settle(self):
        """What it keeps for later goes back."""

    def give(self, array, stream):
        """Theirs to Moonferry, as a user of both writes it."""
        with self.on(stream):
            return mf.from_dlpack(array)


class PyTorch(Peer):
    name = "torch"

    def start(self):
        self.lib = library("torch")
        if self.gpu.kind != "cuda" or not self.lib.cuda.is_available():
            pytest.skip(f"this PyTorch ({self.lib.__version__}) finds no {self.gpu.kind} device")

    def new_stream(self):
        return self.lib.cuda.Stream()

    def handle(self, stream):
        return stream.cuda_stream

    def on(self, stream):
        return self.lib.cuda.stream(stream)

    def full(self, count, value, stream):
        with self.on(stream):
            array = self.lib.empty(count, dtype=self.lib.uint8, device="cuda")
        self.fill(array, value, stream)
        return array

    def fill(self, array, value, stream):
        with self.on(stream):
            if self.gpu.simulated:
                values = self.lib.full((array.numel(),), value, dtype=self.lib.uint8)
                array.copy_(values.pin_memory(), non_blocking=True)
            else:
                array.fill_(value)

    def copy(self, array, stream):
        with self.on(stream):
            return array.clone()

    def take(self, t, stream):
        with self.on(stream):
            return self.lib.from_dlpack(t)

    def read(self, array, stream):
        with self.on(stream):
            return array.cpu().numpy().tobytes()

    def settle(self):
        self.lib.cuda.empty_cache()


class CuPy(Peer):
    name = "cupy"

    def start(self):
        # CuPy for ROCm names functions of libraries that are empty where the runtime is simulated.
        before = sys.getdlopenflags()
        sys.setdlopenflags(os.RTLD_LAZY)
        try:
            self.lib = library("cupy")
        finally:
            sys.setdlopenflags(before)
        if self.lib.cuda.runtime.is_hip != (self.gpu.kind == "rocm"):
            pytest.skip(f"this CuPy is not for {self.gpu.kind}")

    def new_stream(self):
        return self.lib.cuda.Stream(non_blocking=True)

    def handle(self, stream):
        return stream.ptr

    def on(self, stream):
        return stream

    def full(self, count, value, stream):
        with stream:
            array = self.lib.empty((count,), "uint8")
        self.fill(array, value, stream)
        return array

    def fill(self, array, value, stream):
        with stream:
            if self.gpu.simulated:
                array.data.memset_async(value, array.nbytes, stream)
            else:
                array[...] = value

    def copy(self, array, stream):
        with stream:
            copied = self.lib.empty_like(array)
            self.lib.copyto(copied, array)
            return copied

    def take(self, t, stream):
        with stream:
            return self.lib.from_dlpack(t)

    def read(self, array, stream):
        return array.get(stream=stream).tobytes()

    def settle(self):
        self.lib.get_default_memory_pool().free_all_blocks()


class Numba(Peer):
    """By the CUDA array interface; a stream that it makes current does not exist, so each call names one."""

    name = "numba"

    def start(self):
        if self.gpu.kind != "cuda":
            pytest.skip("Numba knows CUDA only")
        library("numba")
        self.lib = library("numba.cuda")
        self.kernel = None if self.gpu.simulated else self.lib.jit(set_all)
        if self.kernel is not None:
            try:
                self.kernel[1, 1](self.lib.device_array((1,), "uint8"), 0)
            except AttributeError as wants:  # what a later NumPy has no more
                pytest.skip(f"this Numba does not compile beside this NumPy: {wants}")

    def new_stream(self):
        return self.lib.stream()

    def handle(self, stream):
        return int(stream.handle.value if hasattr(stream.handle, "value") else stream.handle)

    def on(self, stream):
        return contextlib.nullcontext()

    def full(self, count, value, stream):
        array = self.lib.device_array((count,), "uint8", stream=stream)
        self.fill(array, value, stream)
        return array

    def fill(self, array, value, stream):
        if self.kernel is None:
            address = array.__cuda_array_interface__["data"][0]
            self.gpu.memset(address, value, array.size, self.handle(stream))
        else:
            self.kernel[(array.size + 255) // 256, 256, stream](array, value)

    def copy(self, array, stream):
        copied = self.lib.device_array(array.shape, "uint8", stream=stream)
        copied.copy_to_device(array, stream=stream)
        return copied

    def take(self, t, stream):
        with self.wrap(stream):
            return self.lib.as_cuda_array(t)

    def give(self, array, stream):
        return mf.from_cuda_array(array)

    def read(self, array, stream):
        host = array.copy_to_host(stream=stream)
        stream.synchronize()
        return host.tobytes()


def set_all(array, value):
    """The kernel of Numba's."""
    from numba import cuda

    i = cuda.grid(1)
    if i < array.size:
        array[i] = value


class Jax(Peer):
    """It has one stream for each device, and nobody sees it."""

    name = "jax"
    streams = False

    def start(self):
        if self.gpu.simulated:
            pytest.skip("JAX fills arrays by compiled code, which no simulator runs; specs/sim/jax has its copies")
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        self.lib = library("jax")
        kinds = {device.platform for device in self.lib.devices()}
        if self.gpu.kind != "cuda" or "gpu" not in kinds:
            pytest.skip(f"this JAX ({self.lib.__version__}) has only {', '.join(sorted(kinds))}")

    def new_stream(self):
        return None

    def on(self, stream):
        return contextlib.nullcontext()

    def full(self, count, value, stream):
        return self.lib.numpy.full((count,), value, dtype="uint8")

    def copy(self, array, stream):
        return array.copy()

    def take(self, t, stream):
        return self.lib.dlpack.from_dlpack(t)

    def read(self, array, stream):
        import numpy as np

        return np.asarray(array).tobytes()


PEERS = [PyTorch, CuPy, Numba, Jax]
