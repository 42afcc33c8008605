-- Elements: typed pointers for loops, checked access for everything else.
--
-- Responsible for: `row`, `rows`, `ptr`, `at`, `set` (unchecked: coordinates out of range and what is done through a
-- kept pointer are the caller's to avoid) and `get`, `put` (checked).
-- Invariant: only memory that the host can read is touched, and pinned or managed memory only after the host has
-- waited for what a GPU still does there, or another queue that has fences there. Such a pointer is good until the next
-- operation on that memory, so it is not kept: each call of a method waits again, which costs little where there is
-- nothing to wait for. One to memory without streams and fences is kept (`_p`) until some memory gets its first fence
-- or is taken back (`_epoch`). Must not know: how tensors are made.
--
-- Address arithmetic is done in int64_t when the JIT compiles it, and in Lua numbers when it does not:
-- either is several times faster than the other in its own case.
local ffi = require "ffi"
local C = require "moonferry.lib"
local constants = require("moonferry.cdef").constants
local device = require "moonferry.device"
local dtype = require "moonferry.dtype"
local errors = require "moonferry.errors"
local numbers = require "moonferry.numbers"
local tensor = require "moonferry.tensor"

local floor = math.floor
local misuse = errors.misuse
---@class moonferry.Tensor
local Tensor, handle_of, info_of = tensor.Tensor, tensor.handle_of, tensor.info

local EXACT = 2 ^ 53
local THE_HOST, READ, WRITE = constants.MF_STREAM_HOST, C.MF_READ, C.MF_WRITE
local COMPILES = jit.status()

local new_scalar = ffi.typeof "mf_scalar"
local epoch = C.mf_fence_epoch()

-- Extents or strides in the form that is fast here; both count from 0.
local function axes_of(array, ndim)
  if COMPILES then
    return array
  end
  local list = {}
  for axis = 0, ndim - 1 do
    list[axis] = tonumber(array[axis])
  end
  return list
end

local function strides(t)
  t._s = axes_of(t._dl.strides, t._dl.ndim)
  return t._s
end

local function extents(t)
  t._n = axes_of(t._dl.shape, t._dl.ndim)
  return t._n
end

local function check_valid(t)
  if C.mf_tensor_is_valid(t._handle) == 0 then
    misuse("the memory of this tensor was taken back (MF_ECLOSED)")
  end
end

local function check_memory(t)
  if not device.on_host(t._dl.device.device_type) then
    misuse("the elements are on %s, where the host cannot reach them; t:to(\"cpu\") copies them", t.device)
  end
  check_valid(t)
end

local function wait(t, use)
  local err = errors.place()
  if not errors.passed(C.mf_tensor_acquire(t._handle, THE_HOST, use, err), err) then
    misuse("%s", errors.text(err))
  end
end

local function typed_pointer(t)
  handle_of(t)
  check_memory(t)
  local info = info_of(t)
  local ctype = info.pointer
  t._locked = t.readonly
  if info.padded and t.padded then
    ctype = info.padded
  elseif t._locked then
    ctype = info.constant
  end
  if not ctype then
    misuse("dtype %s has no C type to point to; use get and put", info.name)
  end
  t._read = info.read
  return ffi.cast(ctype, t._dl.data)
end

-- The typed pointer to element 0; pointer to constant for a read-only tensor. use is MF_READ or MF_WRITE.
local function pointer(t, use)
  local p, now = t._shared or t._p, epoch[0]
  if not p then
    p = typed_pointer(t)
  else
    check_valid(t)
  end
  if C.mf_tensor_is_ordered(t._handle) == 0 then
    t._p, t._epoch = p, now
    return p
  end
  t._p, t._shared = false, p
  wait(t, t._locked and READ or use)
  return p
end

-- How many leading coordinates it takes until what is left is compact row-major.
local function inner(t)
  local dl, expected = t._dl, 1
  local axis = dl.ndim
  while axis > 0 and (dl.strides[axis - 1] == expected or dl.shape[axis - 1] == 1) do
    axis = axis - 1
    expected = expected * dl.shape[axis]
  end
  t._inner = C.mf_tensor_size(t._handle) == 0 and 0 or axis
  return t._inner
end

local function check_compact(t, given)
  if given < (t._inner or inner(t)) then
    misuse("row: the axes after the first %d are not compact; use t:copy() first, or at", given)
  elseif given > t._dl.ndim then
    misuse("row: %d coordinates for %d axes", given, t._dl.ndim)
  end
end

--- Returns a typed pointer to the elements that the leading coordinates select: with all coordinates but the last, to
--- one row. The remaining axes must be compact, so that `pointer[k]` visits them in order. Coordinates are not checked.
--- For a dtype without a C type (float16, float8 ...) the pointer is to unsigned integers of its size.
---@param a? number the first leading coordinate
---@param b? number
---@param c? number
---@param ... number
---@return ffi.cdata*
function Tensor:row(a, b, c, ...)
  local p = self._epoch == epoch[0] and self._p or pointer(self, WRITE)
  local s = self._s or strides(self)
  if b == nil then
    if a == nil then
      check_compact(self, 0)
      return p
    end
    check_compact(self, 1)
    return p + a * s[0]
  elseif c == nil then
    check_compact(self, 2)
    return p + (a * s[0] + b * s[1])
  end
  local rest = { ... }
  check_compact(self, 3 + #rest)
  p = p + (a * s[0] + b * s[1] + c * s[2])
  for i = 1, #rest do
    p = p + rest[i] * s[2 + i]
  end
  return p
end

-- In the middle of a loop: for memory whose pointer is not kept, and where some memory got a fence or was taken back.
local function pointer_on_the_way(t)
  if t._shared then
    check_valid(t)
    return t._shared
  end
  return pointer(t, WRITE)
end

local function next_row(t, i)
  i = i + 1
  if i < t._n[0] then
    return i, (t._epoch == epoch[0] and t._p or pointer_on_the_way(t)) + i * t._s[0]
  end
end

--- Iterates over the first axis: in `for i, row in t:rows() do`, `row` is the typed pointer of `t:row(i)`.
---@return fun(t: moonferry.Tensor, i: number): number?, ffi.cdata*
---@return moonferry.Tensor
---@return number
function Tensor:rows()
  handle_of(self)
  if self._epoch ~= epoch[0] then
    pointer(self, WRITE)
  end
  if self._dl.ndim == 0 then
    misuse("rows: a tensor of rank 0 has no rows")
  end
  check_compact(self, 1)
  if not self._s then
    strides(self)
  end
  if not self._n then
    extents(self)
  end
  return next_row, self, -1
end

--- Returns a typed pointer to the first element. Raises an error unless the tensor is compact.
---@return ffi.cdata*
function Tensor:ptr()
  if C.mf_tensor_is_contiguous(handle_of(self)) == 0 then
    misuse("ptr: the tensor is not contiguous; use t:copy() first, or rows")
  end
  return self._epoch == epoch[0] and self._p or pointer(self, WRITE)
end

local function far(t, first, ...)
  local s, index = t._s, first
  for axis = 4, t._dl.ndim - 1 do
    index = index + select(axis - 3, ...) * s[axis]
  end
  return index
end

--- Returns the element at these coordinates as C reads it: 64-bit integers are cdata, and a dtype without a C type
--- gives its raw bits. Nothing is checked.
---@param a? number
---@param b? number
---@param c? number
---@param d? number
---@param ... number
---@return any
function Tensor:at(a, b, c, d, ...)
  local p = self._epoch == epoch[0] and self._p or pointer(self, READ)
  local s, read = self._s or strides(self), self._read
  local ndim, index = self._dl.ndim, 0
  if ndim == 1 then
    index = a * s[0]
  elseif ndim == 2 then
    index = a * s[0] + b * s[1]
  elseif ndim == 3 then
    index = a * s[0] + b * s[1] + c * s[2]
  elseif ndim > 3 then
    index = far(self, a * s[0] + b * s[1] + c * s[2] + d * s[3], ...)
  end
  if read then
    local value = read(p, index)
    return value
  end
  return p[index]
end

--- Sets the element at these coordinates; the value is the last argument and is converted as C does. Nothing is
--- checked.
---@param a any a coordinate, or the value
---@param b? any
---@param c? any
---@param d? any
---@param ... any
function Tensor:set(a, b, c, d, ...)
  local p = self._epoch == epoch[0] and self._p or pointer(self, WRITE)
  local s = self._s or strides(self)
  local ndim = self._dl.ndim
  if ndim == 1 then
    p[a * s[0]] = b
  elseif ndim == 2 then
    p[a * s[0] + b * s[1]] = c
  elseif ndim == 3 then
    p[a * s[0] + b * s[1] + c * s[2]] = d
  elseif ndim == 0 then
    p[0] = a
  else
    p[far(self, a * s[0] + b * s[1] + c * s[2] + d * s[3], ...)] = select(ndim - 3, ...)
  end
end

local function is_integer(x)
  return type(x) == "number" and x == floor(x) and x <= EXACT and x >= -EXACT
end

-- A checked coordinate, counted from the front.
local function coordinate(t, verb, axis, x)
  if not is_integer(x) then
    x = numbers.integer(x, ("%s: coordinate %d"):format(verb, axis))
  end
  local extent = t._n[axis]
  if x >= 0 and x < extent then
    return x
  elseif x < 0 and x + extent >= 0 then
    return x + extent
  end
  local digits = tostring(ffi.cast("int64_t", x)):match "^-?%d+"
  misuse("%s: index %s is out of range for axis %d of extent %d", verb, digits, axis, tonumber(extent))
end

-- The checked place of an element of at most three axes, counted in elements.
local function place(t, verb, ndim, a, b, c)
  local s = t._s or strides(t)
  if not t._n then
    extents(t)
  end
  if ndim == 1 then
    return coordinate(t, verb, 0, a) * s[0]
  elseif ndim == 2 then
    return coordinate(t, verb, 0, a) * s[0] + coordinate(t, verb, 1, b) * s[1]
  elseif ndim == 3 then
    return coordinate(t, verb, 0, a) * s[0] + coordinate(t, verb, 1, b) * s[1] + coordinate(t, verb, 2, c) * s[2]
  end
  return 0
end

local function coordinates(verb, list, count)
  local coords = numbers.int64s(count)
  for i = 1, count do
    coords[i - 1] = numbers.integer(list[i], ("%s: coordinate %d"):format(verb, i - 1))
  end
  return coords
end

-- Whether the elements are where only C reaches them, one at a time.
local function is_far(t)
  return not device.on_host(t._dl.device.device_type)
end

local function get_by_c(t, count, ...)
  local coords, scalar, err = coordinates("get", { ... }, count), new_scalar(), errors.place()
  if not errors.passed(C.mf_tensor_get(t._handle, coords, count, scalar, err), err) then
    misuse("get: %s", errors.text(err))
  end
  return dtype.from_scalar(scalar)
end

--- Returns the element at these coordinates, checked; negative ones count from the end. A 64-bit integer is a Lua
--- number below 2^53, otherwise 64-bit cdata; a complex one is LuaJIT's `complex` (fields `re` and `im`). From a GPU's
--- memory the element is copied, and the host waits.
---@param ... number the coordinates
---@return any
function Tensor:get(...)
  local handle, count = handle_of(self), select("#", ...)
  local info, ndim = self._info or info_of(self), self._dl.ndim
  if count ~= ndim then
    misuse("get: expected %d coordinates, got %d", ndim, count)
  elseif not info.plain or ndim > 3 then
    return get_by_c(self, count, ...)
  elseif C.mf_tensor_is_valid(handle) == 0 then
    check_valid(self)
  elseif self._epoch ~= epoch[0] and is_far(self) then
    return get_by_c(self, count, ...)
  end
  local p = self._epoch == epoch[0] and self._p or pointer(self, READ)
  local value = dtype.load(info, p, place(self, "get", ndim, ...)) -- no tail call, which would not keep the memory
  return value
end

local function put_by_c(t, info, count, ...)
  local list = { ... }
  local coords, scalar = coordinates("put", list, count), new_scalar()
  dtype.to_scalar(info, list[count + 1], scalar, "put")
  local err = errors.place()
  if not errors.passed(C.mf_tensor_put(t._handle, coords, count, scalar, err), err) then
    misuse("put: %s", errors.text(err))
  end
end

-- The argument behind the coordinates of at most three axes.
local function value_behind(ndim, a, b, c, d)
  if ndim == 1 then
    return b
  elseif ndim == 2 then
    return c
  elseif ndim == 3 then
    return d
  end
  return a
end

--- Sets the element at these coordinates, checked; the value is the last argument. An integer dtype accepts integers in
--- its range, bool accepts true, false, 1 and 0; `astype` converts other values. To a GPU's memory the element is
--- copied.
---@param ... any the coordinates, then the value
function Tensor:put(...)
  local handle, count = handle_of(self), select("#", ...)
  local info, ndim = self._info or info_of(self), self._dl.ndim
  if count ~= ndim + 1 then
    misuse("put: expected %d coordinates and a value, got %d arguments", ndim, count)
  elseif not info.plain or ndim > 3 or (self._epoch ~= epoch[0] and is_far(self)) then
    return put_by_c(self, info, count - 1, ...)
  elseif C.mf_tensor_is_valid(handle) == 0 then
    check_valid(self)
  end
  local p = self._epoch == epoch[0] and self._p or pointer(self, WRITE)
  if self._locked then
    return put_by_c(self, info, count - 1, ...)
  end
  p[place(self, "put", ndim, ...)] = dtype.encode(info, value_behind(ndim, ...), "put")
end

--- Returns the only element, as `get` does.
---@return any|nil, string? message, number? code
function Tensor:item()
  handle_of(self)
  if self.size ~= 1 then
    misuse("item: expected a tensor of one element, got one of %.0f", self.size)
  end
  local value, message, code = self:tolist()
  if value == nil then
    return nil, message, code
  end
  while type(value) == "table" do
    value = value[1]
  end
  return value
end

local function nested(t, prefix, axis)
  if axis > t._dl.ndim then
    return t:get(unpack(prefix, 1, axis - 1))
  end
  local list = {}
  for i = 1, tonumber(t._dl.shape[axis - 1]) do
    prefix[axis] = i - 1
    list[i] = nested(t, prefix, axis + 1)
  end
  return list
end

--- Returns the elements as nested tables, each as `get` returns it, or a plain value for ndim 0. A GPU's memory is
--- copied to the host once.
---@return table|any|nil, string? message, number? code
function Tensor:tolist()
  handle_of(self)
  if device.is_cpu(self._dl.device.device_type) then
    check_memory(self)
    return nested(self, {}, 1)
  end
  local host, message, code = self:to("cpu")
  if not host then
    return nil, message, code
  end
  return tensor.closing(host, nested, {}, 1)
end

return Tensor
