-- What works on all elements at once; the work is C's.
--
-- Invariant: a method that fails leaves no half-made tensor behind. Must not know: layouts.
local ffi = require "ffi"
local C = require "moonferry.lib"
local create = require "moonferry.create"
local dtype = require "moonferry.dtype"
local errors = require "moonferry.errors"
local places = require "moonferry.place"
local tensor = require "moonferry.tensor"

---@class moonferry.Tensor
local Tensor, handle_of = tensor.Tensor, tensor.handle_of

local new_scalar = ffi.typeof "mf_scalar"
local take_answer, leave_answer = places.of_answers "int32_t[1]"

--- Sets every element to `value`, which the dtype must be able to hold, as for `put`. Returns the tensor.
---@param value any
---@return moonferry.Tensor
function Tensor:fill(value)
  local scalar = new_scalar()
  dtype.to_scalar(tensor.info(self), value, scalar, "fill: value")
  local err = errors.place()
  local rc = C.mf_tensor_fill(self._handle, scalar, err)
  return errors.done("fill", rc, err, self)
end

local function clone(t)
  local handle, place, err = handle_of(t), tensor.place(), errors.place()
  local rc = errors.call(C.mf_tensor_clone, handle, place, err)
  if not errors.passed(rc, err) then
    return errors.refused("copy", rc, err)
  end
  return tensor.take(place)
end

local new_position = ffi.typeof "int64_t[1]"

-- Nothing is held while `progress` runs: it may raise, yield or close either tensor.
local function copy_in_parts(dst, src, progress)
  local at, total = new_position(), tonumber(C.mf_tensor_size(handle_of(dst)))
  repeat
    local to, from, err = handle_of(dst), handle_of(src), errors.place()
    local rc = errors.call(C.mf_tensor_copy_part, to, from, at, err)
    if not errors.passed(rc, err) then
      return errors.refused("copy", rc, err)
    end
    local done = tonumber(at[0])
    if progress(done, total) == false then
      return nil, ("copy: progress ended it after %d of %d elements"):format(done, total)
    end
  until done == total
  return dst
end

--- Without `src`, returns a new compact copy. With `src`, a tensor of the same shape and dtype and any layout, copies
--- its elements into this tensor and returns this tensor. `src` may overlap this tensor unless `progress` is given.
---@param src? moonferry.Tensor
---@param progress? fun(done: number, total: number): boolean? called every 16 MiB or so, in elements; false ends it
---@return moonferry.Tensor, string? message, number? code
function Tensor:copy(...)
  local src, progress = ...
  local to = handle_of(self)
  if select("#", ...) == 0 then
    return clone(self)
  end
  local from, err = handle_of(src), errors.place()
  if progress ~= nil then
    if type(progress) ~= "function" then
      errors.misuse("copy: progress: expected a function, got " .. type(progress))
    end
    return copy_in_parts(self, src, progress)
  end
  return errors.done("copy", errors.call(C.mf_tensor_copy, to, from, err), err, self)
end

--- Returns a compact tensor with these elements: a view of this one if it is compact, otherwise a copy.
---@return moonferry.Tensor, string? message, number? code
function Tensor:contiguous()
  if C.mf_tensor_is_contiguous(handle_of(self)) ~= 0 then
    return self:view()
  end
  return clone(self)
end

--- Returns a new compact tensor with the elements converted. Conversions to floats round to nearest, from floats to
--- integers they truncate and saturate (NaN becomes 0), from integers to integers they keep the low bits, to bool
--- anything but 0 becomes true. A GPU's elements are converted on the GPU's stream.
---@param name string the dtype
---@return moonferry.Tensor, string? message, number? code
function Tensor:astype(name, ...)
  handle_of(self)
  if name == nil then
    errors.misuse("astype: expected a dtype, got nil")
  elseif select("#", ...) > 0 then
    errors.misuse("astype: expected one dtype, and got %s beside it", errors.show((...)))
  end
  local t, message, code = create.alike(self, name)
  if not t then
    return nil, message, code
  end
  local err = errors.place()
  local rc = errors.call(C.mf_tensor_astype, t._handle, self._handle, err)
  if errors.passed(rc, err) then
    return t
  end
  t:close()
  return errors.refused("astype", rc, err)
end

--- Returns whether shape, dtype and all elements are equal. NaN differs from itself. `t == u` raises an error for two
--- tensors, because it would compare the objects; `rawequal(t, u)` does that.
---@param other moonferry.Tensor
---@return boolean, string? message, number? code
function Tensor:equal(other)
  local a, b, at, err = handle_of(self), handle_of(other), take_answer(), errors.place()
  local rc = errors.call(C.mf_tensor_equal, a, b, at, err)
  if not errors.passed(rc, err) then
    return errors.refused("equal", rc, err)
  end
  local equal = at[0] ~= 0
  leave_answer(at)
  return equal
end

return Tensor
