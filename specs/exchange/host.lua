-- The host's libraries in the matrix. An entry says what a library is called and, in Python, how to make an array and
-- read it:
--
--   name, module, env    how it is called, imported, and in which environment it lies (a file in environments/)
--   make(a, raw, dtype, shape)   an array of its own: of NumPy's array a (nil if NumPy lacks the dtype), or of raw, its
--                        bytes as a flat array of uint8
--   give(x, dtype, shape)  how Moonferry takes the array; left out: moonferry.from_dlpack(x)
--   take(t, dtype)       how the library takes Moonferry's tensor
--   bytes(x, dtype)      its elements as bytes in C's order, read by the library itself
--   pointer(x)           where it says that they lie (may be left out)
--   write(x, value)      sets all of a float32 array to a number by its own means; left out: nothing there can be
--   lock(x)              the same array, read-only
--   views                its own expressions for layouts; left out: Moonferry makes them of the array's memory
--   limits               what it is not asked for, and why: layouts and dtypes that it would take for something else
--   grows                with which sink the process grows by the library's own doing, and why
--   setup                Python statements that run first
--   version              an expression; left out: what pip says of `package`, or of the module
--   note                 what a reader of the table should know
--
-- And what it does with other people's memory. rule.py derives each word of a cell from the traits of its two ends, and
-- an entry says only what is odd about the library.
--
--   lacks                dtypes, or groups of them ("complex", "float8"), of which it cannot make an array
--   gives, takes         a trait of the library as the source of a tensor and as its sink, under the name of
--                          a dtype or a group, a layout of checks.lua or "strided" (sliced, negative, zero), for
--                          takes also "everything";
--                          readonly: arrays that must not be written; writable: those that may be;
--                          unaligned: memory at an address that is no multiple of 64
--                        The trait is one of
--                          "kept"          as it is, with no copy; so is all of which an entry says nothing
--                          "copied"        takes: it makes a copy of its own
--                          "refused", "refused: TEXT"    with an error that contains the text
--                          "lost"          takes.readonly: it writes what must not be written
--                          "locked"        takes.writable: it marks them as read-only
--                          "always"        gives.readonly: all its arrays are read-only, and say so
--                          "never"         gives.unaligned: its memory always begins at a multiple of 64
--                          "compact"       gives a layout: its own view is a compact array already
--                          "writable"      gives.zero: its own view is not marked read-only
--                          "uint8"         gives.bool: under that name
--                          "unreadable: TEXT"    takes a dtype: the array is made, but its elements cannot be read
--   falls_back           whether it asks for a struct of before DLPack 1.0 where it cannot use a versioned one; its
--                        error is then about the older
--   brings               traits that another library has in this one's environment: name -> takes
--
-- Must not know: what is done with them (checks.lua), what follows from the traits (rule.py).

local NUMPY_VIEWS = { fortran = "x.T", sliced = "x[1:3, ::2]", negative = "x[::-1, ::-1]",
  zero = "numpy.broadcast_to(x[:, :1], (4, 6))" }

-- The bytes of a tensor of any dtype, compact.
local FLAT = "def flat(t): return memoryview(t.copy().reshape(t.size).reinterpret('uint8'))"

-- How Moonferry refuses to give a read-only tensor to a library that asks for a struct of before DLPack 1.0.
local LEGACY = "refused: the tensor is read-only, which this struct cannot say"

-- Names of dtypes, for codes of the struct module.
local CODES = "codes = dict(zip("

return {
  { name = "Moonferry", module = "moonferry",
    make = "moonferry.frombuffer(raw).copy().reinterpret(dtype).reshape(shape)",
    give = "x[...]", take = "t[...]",
    bytes = "support.peek(x.data_ptr, x.shape, x.strides, x.dtype.itemsize)",
    pointer = "x.data_ptr", write = "x.fill(value)", lock = "x.as_readonly()",
    note = "its own tensors; each step makes a view",
    gives = { unaligned = "never" } },

  { name = "NumPy", module = "numpy",
    make = "a", give = "moonferry.asarray(x)",
    take = "numpy.from_dlpack(t) if hasattr(numpy, dtype) else numpy.asarray(t)",
    bytes = "x.tobytes()", pointer = "x.ctypes.data", write = "x.fill(value)", lock = "support.lock(x)",
    views = NUMPY_VIEWS,
    note = "through from_dlpack; ml_dtypes' dtypes through asarray, in both directions" },

  { name = "PyTorch", module = "torch", env = "host",
    make = "torch.from_numpy(raw).clone().view(getattr(torch, dtype)).reshape(shape) if len(raw) else "
      .. "torch.empty(shape, dtype=getattr(torch, dtype))",
    take = "moonferry.into(torch.Tensor, t)",
    bytes = "x.contiguous().flatten().view(torch.uint8).numpy().tobytes()",
    pointer = "x.data_ptr()", write = "x.fill_(value)",
    views = { fortran = "x.T", sliced = "x[1:3, ::2]", zero = "x[:, :1].expand(4, 6)" },
    note = "through its exchange table; its own from_dlpack crashes on negative strides, which into() refuses",
    lacks = { "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz" },
    gives = { unaligned = "never", zero = "writable" },
    takes = { readonly = "lost", negative = "refused: cannot hold negative strides" } },

  { name = "tvm-ffi", module = "tvm_ffi", env = "host",
    make = "tvm_ffi.from_dlpack(moonferry.frombuffer(raw.copy()).reinterpret(dtype).reshape(shape))",
    take = "tvm_ffi.from_dlpack(t)",
    bytes = "support.peek(x.data_ptr(), x.shape, x.strides, support.itemsize(dtype))",
    pointer = "x.data_ptr()", write = "numpy.from_dlpack(x).fill(value)",
    note = "cannot allocate, so its arrays begin as NumPy's memory",
    takes = { readonly = "lost" } },

  { name = "JAX", module = "jax", env = "host", setup = "import jax.numpy; jax.config.update('jax_enable_x64', True)",
    make = "jax.numpy.array(a)", take = "jax.numpy.from_dlpack(t)",
    bytes = "numpy.asarray(x).tobytes()", pointer = "x.unsafe_buffer_pointer()",
    note = "its arrays cannot be written; compact strides and aligned memory only", lock = "x",
    gives = { readonly = "always", unaligned = "never" },
    takes = { unaligned = "copied",
      strided = "refused: Only DLPack tensors with trivial (compact)" } },

  { name = "TVM", module = "tvm", package = "apache-tvm", env = "host",
    make = "tvm.runtime.empty(shape, dtype).copyfrom(a)", take = "tvm.runtime.from_dlpack(t)",
    bytes = "support.peek(x.data_ptr(), x.shape, x.strides, support.itemsize(dtype))",
    pointer = "x.data_ptr()", write = "x.copyfrom(numpy.full(x.shape, value, 'float32'))",
    lacks = { "complex" }, falls_back = true,
    gives = { unaligned = "never" },
    takes = { readonly = "lost", unaligned = "refused: FromDLPack: Data is not aligned to 64 bytes", complex = "kept",
      fortran = "refused: FromDLPack: ", strided = "refused: FromDLPack: " } },

  { name = "PaddlePaddle", module = "paddle", package = "paddlepaddle", env = "host",
    make = "paddle.to_tensor(raw).view(getattr(paddle, dtype)).reshape(shape) if len(raw) else "
      .. "paddle.empty(shape, dtype)",
    take = "moonferry.into(paddle.Tensor, t)",
    bytes = "x.contiguous().numpy().tobytes()", pointer = "x.data_ptr()", write = "x.fill_(value)",
    views = { fortran = "x.T", sliced = "x[1:3, ::2]", zero = "x[:, :1].expand([4, 6])" },
    lacks = { "uint16", "uint32", "uint64", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e3m4",
      "float8_e4m3", "float8_e8m0fnu" },
    gives = { unaligned = "never", zero = "compact", ["rank 12"] = "refused: Invalid dimension" },
    takes = { readonly = "lost", ["rank 12"] = "refused: Invalid dimension",
      uint16 = "kept", uint32 = "kept", uint64 = "kept" },
    note = "at most 9 axes" },

  { name = "Numba", module = "numba", env = "host",
    setup = "import jitted",
    make = "jitted.copy(a)", take = "jitted.same(numpy.asarray(t))", bytes = "jitted.elements(x, dtype)",
    pointer = "x.ctypes.data", write = "jitted.fill(x, value)",
    lock = "support.lock(x)", views = NUMPY_VIEWS,
    note = "compiled functions make, import, read and write the arrays",
    lacks = { "float16", "bfloat16", "float8" } },

  { name = "PyArrow Tensor", module = "pyarrow", env = "host",
    make = "pyarrow.Tensor.from_numpy(a)", give = "moonferry.asarray(x)",
    take = "pyarrow.Tensor.from_numpy(numpy.asarray(t))", bytes = "x.to_numpy().tobytes()",
    pointer = "x.to_numpy().ctypes.data", write = "x.to_numpy().fill(value)",
    lock = "pyarrow.Tensor.from_numpy(support.lock(x.to_numpy()))",
    note = "through the buffer protocol",
    lacks = { "complex", "bfloat16", "float8" },
    gives = { bool = "uint8" }, takes = { negative = "refused: Negative ndarray strides not supported" } },

  { name = "PyArrow Array", module = "pyarrow", env = "host",
    make = "pyarrow.array(a.reshape(-1))", give = "moonferry.from_dlpack(x).reshape(shape)",
    take = "pyarrow.Array.from_buffers(pyarrow.from_numpy_dtype(dtype), t.size, [None, pyarrow.py_buffer(t)])",
    bytes = "support.as_bytes(x.to_numpy())", pointer = "x.buffers()[1].address",
    limits = { fortran = "an Array has one axis", bool = "its bools are single bits" },
    note = "one axis; exports DLPack, imports buffers; its arrays cannot be written",
    lacks = { "complex", "bfloat16", "float8" },
    gives = { readonly = "always" }, takes = { strided = "refused: the tensor is not contiguous" } },

  { name = "array.array", module = "array",
    setup = CODES .. "'int8 uint8 int16 uint16 int32 uint32 int64 uint64 float32 float64'.split(), 'bBhHiIqQfd'))",
    make = "array.array(codes[dtype], raw.tobytes())", give = "moonferry.asarray(x).reshape(shape)",
    take = "array.array(codes[dtype], memoryview(t).tobytes())", bytes = "x.tobytes()", pointer = "x.buffer_info()[0]",
    write = "support.put(x, numpy.full(len(x), value, 'float32').tobytes())",
    note = "always owns its memory, so it copies on import",
    lacks = { "bool", "float16", "complex", "bfloat16", "float8" }, takes = { everything = "copied" } },

  { name = "memoryview", module = "builtins",
    setup = CODES .. "'bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float32 float64'.split(), "
      .. "'?bBhHiIqQfd'))",
    make = "memoryview(bytearray(raw)).cast(codes[dtype], shape)",
    give = "moonferry.asarray(x)", take = "memoryview(t)",
    bytes = "x.tobytes()", pointer = "numpy.asarray(x).ctypes.data", write = "numpy.asarray(x).fill(value)",
    lock = "x.toreadonly()", note = "over a bytearray",
    lacks = { "float16", "complex", "bfloat16", "float8" },
    gives = { empty = "refused: cannot cast view with zeros in shape" } },

  { name = "bytes", module = "builtins", setup = "class Bytes(bytes): pass\n" .. FLAT,
    make = "Bytes(raw)", give = "moonferry.frombuffer(x, dtype).reshape(shape)", take = "Bytes(flat(t))",
    bytes = "bytes(x)", pointer = "numpy.frombuffer(x, 'uint8').ctypes.data", lock = "x",
    note = "read-only; always owns its memory, so it copies on import; the program names the dtype to Moonferry",
    gives = { readonly = "always" }, takes = { everything = "copied" } },

  { name = "mmap", module = "mmap", setup = FLAT,
    make = "support.put(mmap.mmap(-1, len(raw)), raw.tobytes())",
    give = "moonferry.frombuffer(x, dtype).reshape(shape)",
    take = "support.put(mmap.mmap(-1, t.nbytes), flat(t))", bytes = "x[:]",
    pointer = "numpy.frombuffer(x, 'uint8').ctypes.data",
    write = "support.put(x, numpy.full(len(x) // 4, value, 'float32').tobytes())",
    note = "always owns its memory, so it copies on import; the program names the dtype to Moonferry",
    gives = { unaligned = "never", empty = "refused: Invalid argument" },
    takes = { everything = "copied", empty = "refused: Invalid argument" } },

  { name = "nanobind", module = "exchange_nanobind", package = "nanobind", env = "host",
    make = "exchange_nanobind.Array.make(raw.tobytes(), dtype, shape)", give = "moonferry.from_dlpack(x.array())",
    take = "exchange_nanobind.Array.take(t)", bytes = "x.bytes()", pointer = "x.pointer()", write = "x.fill(value)",
    note = "an extension that the specs build" },

  { name = "pybind11", module = "exchange_pybind11", package = "pybind11", env = "host",
    setup = CODES .. "'bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 complex64 "
    .. "complex128'.split(), '? b B h H i I q Q e f d Zf Zd'.split()))",
    make = "exchange_pybind11.Array.make(raw.tobytes(), codes[dtype], support.itemsize(dtype), shape)",
    give = "moonferry.asarray(x)", take = "exchange_pybind11.Array.take(t)", bytes = "x.bytes()",
    pointer = "x.pointer()", write = "x.fill(value)", note = "an extension that the specs build: buffers, no DLPack",
    lacks = { "bfloat16", "float8" } },

  { name = "mpi4py", module = "mpi4py.MPI", package = "mpi4py", env = "host", setup = "from mpi4py import MPI",
    make = "support.put(MPI.Alloc_mem(len(raw)), raw.tobytes())",
    give = "moonferry.frombuffer(x, dtype).reshape(shape)", take = "MPI.buffer.frombuffer(t, readonly=t.readonly)",
    bytes = "x.tobytes()", pointer = "x.address",
    write = "support.put(x, numpy.full(x.nbytes // 4, value, 'float32').tobytes())",
    lock = "x.toreadonly()", limits = { fortran = "it sends memory in its own order, and knows no shape" },
    grows = { mmap = "MPICH keeps 136 bytes for each mmap of the process, also without Moonferry" },
    note = "its memory and its view of buffers; messages between two ranks are listed below",
    takes = { sliced = "refused: buffer is not contiguous", zero = "refused: buffer is not contiguous",
      negative = "refused: strides item is negative" } },

  { name = "ONNX Runtime", module = "onnxruntime", env = "host",
    setup = [[
def make(a):
    made = onnxruntime.OrtValue.ortvalue_from_shape_and_type(a.shape, a.dtype.type)
    made.update_inplace(a)
    return made
]],
    make = "make(a)", give = "moonferry.from_dlpack(x).reinterpret(dtype)",
    take = "onnxruntime.OrtValue.from_dlpack(t)",
    bytes = "x.numpy().tobytes()", pointer = "x.data_ptr()",
    write = "x.update_inplace(numpy.full(x.shape(), value, 'float32'))",
    note = "compact arrays only; it exports bool as uint8 and refuses DLPack's bool",
    lacks = { "complex", "bfloat16", "float8" },
    gives = { unaligned = "never" },
    takes = { readonly = LEGACY, bool = "refused: Unsupported code 6",
      bfloat16 = "unreadable: No corresponding Numpy type",
      fortran = "refused: ORT only supports contiguous tensor",
      strided = "refused: ORT only supports contiguous tensor" } },

  { name = "TensorFlow", module = "tensorflow", package = "tensorflow-cpu", env = "tensorflow",
    make = "tensorflow.constant(a)", take = "tensorflow.experimental.dlpack.from_dlpack(t.__dlpack__())",
    bytes = "x.numpy().tobytes()", note = "only structs before DLPack 1.0; its tensors cannot be written",
    lacks = { "float8_e3m4", "float8_e4m3", "float8_e8m0fnu" },
    gives = { unaligned = "never", float8 = "refused: DT_FLOAT8" },
    takes = { readonly = LEGACY, float8 = "refused: Unsupported",
      fortran = "refused: Invalid strides array", strided = "refused: Invalid strides array" } },

  { name = "MXNet", module = "mxnet", env = "mxnet",
    make = "mxnet.nd.array(a, dtype=a.dtype)", give = "moonferry.from_dlpack(x.to_dlpack_for_write())",
    take = "mxnet.nd.from_dlpack(t.__dlpack__())", bytes = "x.asnumpy().tobytes()",
    write = "(x.__setitem__(slice(None), value), x.wait_to_read())",
    views = { fortran = "x.T" },
    note = "exchanges DLPack capsules only",
    lacks = { "int16", "uint16", "uint32", "uint64", "complex", "bfloat16", "float8" },
    gives = { unaligned = "never", fortran = "compact" },
    takes = { readonly = LEGACY, bool = "refused: Unknown DLDataType",
      fortran = "refused: only support compact tensor", strided = "refused: only support compact tensor",
      bfloat16 = "kept" },
    -- NumPy 1.23, which asks for structs of before DLPack 1.0 and marks what it takes as read-only.
    brings = { NumPy = { readonly = LEGACY, writable = "locked", bool = "refused: Unsupported dtype in DLTensor" } } },
}
