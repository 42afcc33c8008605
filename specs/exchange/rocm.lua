-- ROCm's libraries in the matrix; cuda.lua says what an entry is.
local moonferry, numpy = require "ours"("rocm:0")

return {
  moonferry, numpy,

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
    seen = "(x.shape, tuple(s // x.dtype.itemsize for s in x.strides))",
    lacks = { "float8" }, takes = { readonly = "lost" } },
}
