-- ROCm's libraries in the matrix; cuda.lua says what an entry is.
return {
  { name = "Moonferry", module = "moonferry",
    setup = [[
def make(value, stream):
    with stream:
        return moonferry.full((64,), value, "uint8", device="rocm:0")

def fill(x, value, stream):
    with stream:
        x.fill(value)

def read(x, stream):
    with stream:
        return bytes(x.reinterpret("uint8").tolist())
]],
    stream = "moonferry.Stream('rocm:0')", handle = "stream.handle", make = "make(value, stream)",
    give = "x[...]", take = "t[...]", fill = "fill(x, value, stream)", read = "read(x, stream)", pointer = "x.data_ptr",
    seen = "(x.shape, x.strides)" },

  { name = "NumPy (host)", module = "numpy", host = "yes",
    setup = "def give(x):\n    return moonferry.from_dlpack(x).to('rocm:0')",
    stream = "None", handle = "0", make = "numpy.full(64, value, 'uint8')", give = "give(x)",
    take = "numpy.asarray(t.to('cpu'))", fill = "x.fill(value)", read = "x.tobytes()", pointer = "x.ctypes.data",
    seen = "(x.shape, tuple(s // x.itemsize for s in x.strides))",
    note = "the host: Moonferry copies when asked, by to()" },

  { name = "CuPy (ROCm)", module = "cupy", package = "cupy-rocm-7-0",
    before = "import os, sys; sys.setdlopenflags(os.RTLD_LAZY)",
    setup = [[
def make(value, stream):
    with stream:
        made = cupy.empty(64, "uint8")
        made.data.memset_async(value, 64, stream)
    return made

def give(x, stream):
    with stream:
        return moonferry.from_dlpack(x)

def take(t, stream):
    with stream:
        return cupy.from_dlpack(t)
]],
    stream = "cupy.cuda.Stream(non_blocking=True)", handle = "stream.ptr", make = "make(value, stream)",
    give = "give(x, stream)", take = "take(t, stream)", fill = "x.data.memset_async(value, 64, stream)",
    read = "x.get(stream=stream).tobytes()", pointer = "x.data.ptr",
    seen = "(x.shape, tuple(s // x.dtype.itemsize for s in x.strides))" },
}
