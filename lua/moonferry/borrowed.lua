-- Arrays and streams of Python's libraries in Lua, and Lua's tensors as arrays of theirs: over the same memory, through
-- DLPack, by the functions of Python's moonferry.
--
-- Part of moonferry.python. Must not know: how values cross.
local ffi = require "ffi"
local mf = require "moonferry"
local scopes = require "moonferry.scope"

return function(py)
  local function moonferry_function(name, module)
    return scopes.outside(function() return py.import(module or "moonferry")[name] end)
  end

  local from_any, stream_class, into
  ---Imports an array (NumPy, PyTorch, JAX ...) as a tensor over the same memory, through DLPack. Anything else (a
  ---pandas or polars column, a Pillow picture, a buffer, a list of numbers) is imported as by moonferry.asarray, which
  ---copies it if it cannot share it. Keywords are those of Python's moonferry.from_dlpack:
  ---py.tensor(a, py.kw{copy = true}).
  function py.tensor(object, ...)
    from_any = from_any or moonferry_function("_from_any", "moonferry._core")
    return from_any(object, ...)
  end

  ---Returns a stream for a Python object: a moonferry.Stream, or any object with __cuda_stream__ (cuda.core, CuPy ...).
  ---That is kept alive until the stream is closed, also past the end of a scope and past py.close.
  ---@param object any
  ---@param device? string the stream's GPU; by default the driver is asked
  ---@return moonferry.Stream?, string? message, number? code
  function py.stream(object, device)
    stream_class = stream_class or moonferry_function "Stream"
    local found = scopes.outside(stream_class.wrap, object, device) -- which keeps the object
    return mf.wrap_stream(tostring(found.device), ffi.cast("void *", ffi.cast("intptr_t", found.handle)), found)
  end

  ---Passes a tensor to another library as an array of its own type, which shares the memory: py.into(torch.Tensor, t).
  function py.into(class, tensor)
    into = into or moonferry_function "into"
    return into(class, tensor)
  end
end
