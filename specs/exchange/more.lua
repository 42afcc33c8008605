-- The host's libraries that are tried with Moonferry alone: `make libraries`. Entries as in host.lua, whose first one,
-- Moonferry's own, is here as well.
--
-- Must not know: what is done with them (checks.lua), what follows from the traits (rule.py).

local NUMPY_VIEWS = { fortran = "x.T", sliced = "x[1:3, ::2]", negative = "x[::-1, ::-1]" }

local NUMBERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64"

return {
  require "host"[1],

  { name = "array-api-strict", module = "array_api_strict", env = "more",
    make = "array_api_strict.asarray(a)", take = "array_api_strict.from_dlpack(t)",
    bytes = "numpy.asarray(x).tobytes()", pointer = "x._array.ctypes.data",
    write = "x.__setitem__(Ellipsis, value)", views = NUMPY_VIEWS,
    lacks = { "float16", "bfloat16", "float8" } },

  { name = "Dr.Jit", module = "drjit.scalar", package = "drjit", env = "more",
    setup = [[
names = "bool int8 uint8 int32 uint32 int64 uint64 float16 float32 float64".split()
codes = "b i8 u8 i u i64 u64 f16 f f64".split()
kinds = {name: getattr(drjit.scalar, "TensorX" + code) for name, code in zip(names, codes)}
]],
    make = "kinds[dtype](a)", take = "kinds[dtype](t)", bytes = "x.numpy().tobytes()",
    note = "its scalar tensors; it copies on import",
    lacks = { "int16", "uint16", "complex", "bfloat16", "float8" },
    takes = { everything = "copied", fortran = "refused: Unable to initialize from an array",
      strided = "refused: Unable to initialize from an array" } },

  { name = "OpenVINO", module = "openvino", env = "more",
    make = "openvino.Tensor(a)", give = "moonferry.asarray(x.data)",
    take = "openvino.Tensor(numpy.asarray(t), shared_memory=True)",
    bytes = "x.data.tobytes()", pointer = "x.data.ctypes.data", write = "x.data.fill(value)",
    note = "through NumPy arrays: it has no DLPack",
    lacks = { "complex", "bfloat16", "float8" },
    takes = { readonly = "refused", fortran = "refused: pyopenvino", strided = "refused: pyopenvino" } },

  { name = "MLX", module = "mlx.core", package = "mlx", env = "more",
    make = "mlx.core.array(a)", take = "mlx.core.array(t)", bytes = "numpy.asarray(x).tobytes()",
    note = "its CPU build; its arrays cannot be written",
    limits = { float64 = "it makes float32 of it", complex128 = "it makes complex64 of it" },
    lacks = { "float8" },
    takes = { everything = "copied", bfloat16 = "refused: no attribute 'view'",
      negative = "refused: negative strides" } },

  { name = "Halide", module = "halide", env = "more",
    make = "halide.Buffer(a)", give = "moonferry.asarray(x)", take = "halide.Buffer(t)",
    bytes = "numpy.asarray(x).tobytes()", pointer = "numpy.asarray(x).ctypes.data", write = "x.fill(value)",
    note = "through the buffer protocol",
    lacks = { "uint64", "complex", "bfloat16", "float8" },
    takes = { readonly = "refused: the tensor is read-only" } },

  { name = "pandas", module = "pandas", env = "more",
    make = "pandas.Series(a.reshape(-1), copy=False)", give = "moonferry.asarray(x).reshape(shape)",
    take = "pandas.Series(t.reshape(t.size))", bytes = "x.to_numpy().tobytes()",
    pointer = "x.to_numpy().ctypes.data",
    note = "one axis, a Series; it copies before it writes, so it exports read-only memory",
    gives = { readonly = "always" },
    takes = { fortran = "refused: the elements do not lie", zero = "refused: the elements do not lie" } },

  { name = "Polars", module = "polars", env = "more",
    make = "polars.Series(support.among(a, 'bool float16 " .. NUMBERS .. "').reshape(-1))",
    give = "moonferry.asarray(x).reshape(shape)", take = "polars.Series(t.reshape(t.size))",
    bytes = "x.to_numpy().tobytes()",
    note = "one axis, a Series, through Arrow's PyCapsules; its bools are single bits",
    lacks = { "complex", "bfloat16", "float8" },
    gives = { readonly = "always" },
    takes = { fortran = "refused: the elements do not lie", zero = "refused: the elements do not lie",
      sliced = "copied", negative = "copied" } },

  { name = "Awkward", module = "awkward", env = "more",
    make = "awkward.from_numpy(a)", give = "moonferry.asarray(x)", take = "awkward.from_dlpack(t)",
    bytes = "awkward.to_numpy(x).tobytes()", pointer = "awkward.to_numpy(x).ctypes.data",
    note = "its arrays cannot be written and have at least one axis",
    lacks = { "bfloat16", "float8" },
    gives = { scalar = "refused: Encountered a scalar" }, takes = { scalar = "refused: Encountered a scalar" } },

  { name = "xarray", module = "xarray", env = "more",
    make = "xarray.DataArray(a)", give = "moonferry.asarray(x)", take = "xarray.DataArray(t)",
    bytes = "x.to_numpy().tobytes()", pointer = "x.to_numpy().ctypes.data",
    write = "x.__setitem__(Ellipsis, value)", views = NUMPY_VIEWS,
    note = "wraps NumPy arrays" },

  { name = "VTK", module = "vtkmodules.util.numpy_support", package = "vtk", env = "more",
    setup = "from vtkmodules.util.numpy_support import numpy_to_vtk, vtk_to_numpy",
    make = "numpy_to_vtk(support.among(a, '" .. NUMBERS .. "'), deep=True)",
    give = "moonferry.asarray(x).reshape(shape)", take = "numpy_to_vtk(t)",
    bytes = "vtk_to_numpy(x).tobytes()", pointer = "vtk_to_numpy(x).ctypes.data", write = "x.Fill(value)",
    note = "at most two axes",
    lacks = { "bool", "float16", "complex", "bfloat16", "float8" },
    gives = { ["rank 12"] = "refused: Only arrays of dimensionality 2" },
    takes = { readonly = "lost", fortran = "copied", strided = "copied",
      ["rank 12"] = "refused: Only arrays of dimensionality 2" } },

  { name = "Pillow", module = "PIL.Image", package = "pillow", env = "more",
    setup = [[
def share(image):
    if 0 in image.size:
        raise ValueError("Pillow's __arrow_c_array__ ends the process where there are no pixels")
    return moonferry.from_arrow(image)
]],
    make = "PIL.Image.fromarray(support.among(a, 'uint8 int32 float32')).copy()",
    give = "share(x).reshape(shape)", take = "PIL.Image.fromarray(t)", bytes = "x.tobytes()",
    pointer = "share(x).data_ptr",
    note = "two axes; exports through Arrow's PyCapsules, imports uint8 without a copy and other dtypes with one",
    lacks = { "bool", "int8", "int16", "uint16", "uint32", "int64", "uint64", "float16", "float64", "complex",
      "bfloat16", "float8" },
    gives = { readonly = "always", empty = "refused: no pixels", scalar = "refused: tuple index",
      ["rank 12"] = "refused: Cannot handle this data type" },
    takes = { everything = "copied", scalar = "refused: tuple index",
      ["rank 12"] = "refused: Cannot handle this data type" } },

  { name = "cffi", module = "cffi", env = "more",
    setup = "ffi = cffi.FFI()\ndef make(raw):\n    made = ffi.new('uint8_t[]', len(raw))\n"
      .. "    ffi.buffer(made)[:] = raw.tobytes()\n    return made",
    make = "make(raw)", give = "moonferry.frombuffer(ffi.buffer(x), dtype).reshape(shape)",
    take = "ffi.from_buffer('uint8_t[]', t, require_writable=True)", bytes = "bytes(ffi.buffer(x))",
    pointer = "int(ffi.cast('uintptr_t', x))",
    write = "support.put(ffi.buffer(x), numpy.full(len(x) // 4, value, 'float32').tobytes())",
    note = "bytes; the program names the dtype to Moonferry",
    takes = { readonly = "refused: the tensor is read-only", bfloat16 = "refused: PEP 3118 has no format",
      float8 = "refused: PEP 3118 has no format", fortran = "refused: the tensor is not contiguous",
      strided = "refused: the tensor is not contiguous" } },

  { name = "ctypes", module = "ctypes",
    make = "(ctypes.c_char * len(raw)).from_buffer_copy(raw)",
    give = "moonferry.frombuffer(x, dtype).reshape(shape)",
    take = "(ctypes.c_char * t.nbytes).from_buffer(t.reshape(t.size).reinterpret('uint8'))", bytes = "bytes(x)",
    pointer = "ctypes.addressof(x)",
    write = "support.put(x, numpy.full(len(x) // 4, value, 'float32').tobytes())",
    note = "bytes; the program names the dtype to Moonferry",
    takes = { readonly = "refused", fortran = "refused: the elements do not lie", strided = "refused" } },
}
