-- CUDA's libraries in the matrix. An entry says what a library is called and, in Python, how it does these things with
-- arrays of 64 bytes on device 0, each on a stream of the library's own:
--
--   stream(), handle(stream)     a new stream, and its handle as a number
--   make(value, stream)          an array of its own, filled on the stream
--   give(x, stream)              how Moonferry takes it, ordered behind what the library queued on that stream
--   take(t, stream)              how the library takes Moonferry's tensor, to work on it on that stream
--   fill(x, value, stream), read(x, stream)    work on that stream; read waits for that stream alone
--   pointer(x), seen(x)          where it lies, and shape and strides (in elements; nil: compact)
--
-- A library whose arrays cannot be written has no fill, and says so (gives.readonly).
--
-- What a library lacks and takes is said as in host.lua. Moonferry gives the same bytes under each dtype, so that a
-- library refuses those that it lacks.
--
-- One with `env` runs in an environment of its own (simulated.py), which has those of the table, too.
--
-- `driver` is the driver itself (specs/python/gpu/driver_abi.py): its memset and its copy stand in for kernels, which
-- a simulated driver does not run. Must not know: what is done with it all (device_checks.lua).
local BY_DRIVER = {
  fill = "driver.memset(POINTER, value, 64, HANDLE)",
  read = "driver.read(POINTER, 64, HANDLE)",
}

local function by_driver(verb, pointer, handle)
  return (BY_DRIVER[verb]:gsub("POINTER", pointer):gsub("HANDLE", handle))
end

local moonferry, numpy = require "ours"("cuda:0")

return {
  moonferry, numpy,

  { name = "cuda.core", module = "cuda.core", package = "cuda-core",
    setup = [[
from cuda.core import Buffer, Device
from cuda.core.utils import StridedMemoryView
device = Device(0)
device.set_current()

def make(value, stream):
    made = device.allocate(64, stream=stream)
    made.fill(value, stream=stream)
    return made

def give(x, stream):
    with moonferry.Stream.wrap(stream):
        return moonferry.from_dlpack(x).reinterpret("uint8")

def pointer(x):
    return int(x.handle) if isinstance(x, Buffer) else x.ptr
]],
    stream = "device.create_stream()", handle = "int(stream.handle)", make = "make(value, stream)",
    give = "give(x, stream)", take = "StridedMemoryView.from_dlpack(t, stream_ptr=int(stream.handle))",
    fill = by_driver("fill", "pointer(x)", "int(stream.handle)"),
    read = by_driver("read", "pointer(x)", "int(stream.handle)"),
    pointer = "pointer(x)", seen = "(x.shape, x.strides)",
    note = "its buffers know no stream, so the stream that wrote is current during the import" },

  { name = "Numba-CUDA", module = "numba.cuda", package = "numba-cuda",
    setup = [[
from numba import cuda
from numba.cuda.cudadrv.driver import device_memset

def make(value, stream):
    made = cuda.device_array(64, "uint8", stream=stream)
    device_memset(made, value, 64, stream)
    return made

def take(t, stream):
    with moonferry.Stream.wrap(stream, "cuda:0"):
        return cuda.as_cuda_array(t)

def read(x, stream):
    host = x.copy_to_host(stream=stream)
    stream.synchronize()
    return host.tobytes()
]],
    stream = "cuda.stream()", handle = "stream.handle.value", make = "make(value, stream)",
    give = "moonferry.from_dlpack(x)", take = "take(t, stream)", fill = "device_memset(x, value, 64, stream)",
    read = "read(x, stream)", pointer = "x.device_ctypes_pointer.value",
    seen = "(x.shape, tuple(s // x.dtype.itemsize for s in x.strides))",
    note = "through __cuda_array_interface__ in both directions; it waits on the host",
    lacks = { "bfloat16", "float8" }, takes = { readonly = "lost" } },

  { name = "Warp", module = "warp", package = "warp-lang",
    setup = [[
import warp
from cuda.core import Device
warp.config.quiet = True
device = Device(0)
device.set_current()
warp.init()

class Stream(warp.Stream):
    def __init__(self):
        self.core = device.create_stream()
        super().__init__("cuda:0", cuda_stream=int(self.core.handle))

def make(value, stream):
    memory = device.allocate(64, stream=stream.core)
    memory.fill(value, stream=stream.core)
    made = warp.array(ptr=int(memory.handle), dtype=warp.uint8, shape=(64,), device="cuda:0")
    made.memory = memory
    return made

def give(x, stream):
    with warp.ScopedStream(stream, sync_enter=False):
        return moonferry.from_dlpack(x)

def take(t, stream):
    with warp.ScopedStream(stream, sync_enter=False):
        return warp.from_dlpack(t)
]],
    stream = "Stream()", handle = "stream.cuda_stream", make = "make(value, stream)", give = "give(x, stream)",
    take = "take(t, stream)", fill = by_driver("fill", "x.ptr", "stream.cuda_stream"),
    read = by_driver("read", "x.ptr", "stream.cuda_stream"), pointer = "x.ptr",
    seen = "(x.shape, tuple(s // warp.types.type_size_in_bytes(x.dtype) for s in x.strides))",
    note = "over memory that cuda.core allocated, because its own allocator needs more than a simulated driver offers",
    lacks = { "complex", "float8" },
    takes = { readonly = "refused: the tensor is read-only, which this struct cannot say",
      scalar = "refused: list assignment index out of range",
      ["rank 12"] = "refused: the maximum number of dimensions is 4" } },

  { name = "PyTorch (CUDA)", module = "torch", env = "torch",
    setup = [[
import torch

def filled(x, value, stream):
    with torch.cuda.stream(stream):
        x.copy_(torch.full((64,), value, dtype=torch.uint8).pin_memory(), non_blocking=True)
    return x

def make(value, stream):
    with torch.cuda.stream(stream):
        made = torch.empty(64, dtype=torch.uint8, device="cuda")
    return filled(made, value, stream)

def give(x, stream):
    with torch.cuda.stream(stream):
        return moonferry.from_dlpack(x)

def take(t, stream):
    with torch.cuda.stream(stream):
        return moonferry.into(torch.Tensor, t)

def read(x, stream):
    with torch.cuda.stream(stream):
        return x.cpu().view(torch.uint8).numpy().tobytes()
]],
    stream = "torch.cuda.Stream()", handle = "stream.cuda_stream", make = "make(value, stream)",
    give = "give(x, stream)", take = "take(t, stream)", fill = "filled(x, value, stream)", read = "read(x, stream)",
    pointer = "x.data_ptr()", seen = "(tuple(x.shape), x.stride())",
    note = "unmodified, over a simulated CUDA runtime; copies replace its kernels, which no simulator can run",
    lacks = { "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz" },
    takes = { readonly = "lost", negative = "refused: cannot hold negative strides" } },

  { name = "JAX (CUDA)", module = "jax", env = "jax",
    setup = [[
import jax
jax.config.update("jax_enable_x64", True)

def make(value):
    return jax.device_put(numpy.full(64, value, "uint8"), jax.devices()[0])
]],
    stream = "None", handle = "0", make = "make(value)", give = "moonferry.from_dlpack(x)",
    take = "jax.dlpack.from_dlpack(t)", read = "numpy.asarray(x).tobytes()", pointer = "x.unsafe_buffer_pointer()",
    seen = "(x.shape, None)",
    note = "unmodified, over a simulated CUDA runtime; its copies alone, which it orders on a stream that nobody sees: "
      .. "no simulator runs what it compiles",
    gives = { readonly = "always" },
    takes = { readonly = "refused: the tensor is read-only, which this struct cannot say",
      strided = "refused: Only DLPack tensors with trivial (compact)" } },
}
