-- Makes tensors: new memory, values from Lua tables, and memory that is somebody else's.
--
-- Invariant: what is returned owns exactly one reference; where something fails halfway, nothing is left.
-- Must not know: how exchange works.
local ffi = require "ffi"
local C = require "moonferry.lib"
local array = require "moonferry.array"
local constants = require("moonferry.cdef").constants
local device = require "moonferry.device"
local dtype = require "moonferry.dtype"
local errors = require "moonferry.errors"
local numbers = require "moonferry.numbers"
local owner = require "moonferry.owner"
local stream = require "moonferry.stream"
local tensor = require "moonferry.tensor"
local transfer = require "moonferry.transfer"

local misuse, show = errors.misuse, errors.show
local handle_of, options = tensor.handle_of, transfer.options

local create = {}

local CPU, PAGE = 1, 4096
local maxn = table.maxn
local MAX_DEPTH = constants.MF_MAX_NDIM
local new_like, new_scalar = ffi.typeof "DLTensor[1]", ffi.typeof "mf_scalar"
local new_const_pointer, new_pointer = ffi.typeof "const void *[1]", ffi.typeof "void *[1]"

local function set_device(like, name)
  if name == nil then
    like[0].device.device_type, like[0].device.device_id = CPU, 0
  else
    device.parse(name, like[0].device, "device")
  end
end

-- A new description, but for data, shape and strides; and the extents. It is told where they are when C is called: as
-- an address alone they would not be kept.
local function describe(shape, name, where_to)
  local like = new_like()
  local extents, ndim = numbers.shape(shape)
  dtype.parse(name, like[0].dtype)
  set_device(like, where_to)
  like[0].ndim = ndim
  return like, extents
end

--- A DLTensor[1] of that shape, dtype and device, and the array that its shape is to point to.
create.describe = describe

local function create_described(verb, flags, like, extents)
  local place, err = tensor.place(), errors.place()
  like[0].shape = extents
  local rc = errors.call(C.mf_tensor_create, like, flags, place, err)
  if not errors.passed(rc, err) then
    return errors.refused(verb, rc, err)
  end
  return tensor.take(place)
end

local EMPTY_OPTIONS = { device = true, padded = true, pages = true }

local function new(verb, shape, name, opts)
  opts = options(opts, EMPTY_OPTIONS, verb)
  local like, extents = describe(shape, name, opts.device)
  local padded = opts.padded and constants.DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED or 0
  return create_described(verb, padded + (opts.pages and constants.MF_CREATE_PAGES or 0), like, extents)
end

---@class moonferry.Options
---@field device? string default "cpu"; a GPU's memory is made and filled on the current stream
---@field padded? boolean whether each element narrower than a byte takes a whole byte
---@field pages? boolean whether host memory is allocated in whole pages, so that a graphics API can import it

--- Returns a new compact tensor. Its elements are not initialised.
---@param shape number[]|number
---@param name? string dtype, default "float32"
---@param opts? moonferry.Options
---@return moonferry.Tensor, string? message, number? code
function create.empty(shape, name, opts)
  return new("empty", shape, name, opts)
end

local function filled(verb, shape, value, name, opts)
  local t, message, code = new(verb, shape, name, opts)
  if not t then
    return nil, message, code
  end
  local scalar = new_scalar()
  local ok, failure = pcall(dtype.to_scalar, tensor.info(t), value, scalar, verb .. ": value")
  if not ok then
    t:close()
    error(failure, 0)
  end
  local err = errors.place()
  local rc = C.mf_tensor_fill(handle_of(t), scalar, err)
  if errors.passed(rc, err) then
    return t
  end
  t:close()
  return errors.refused(verb, rc, err)
end

--- Returns a new compact tensor with `value` in every element.
---@param shape number[]|number
---@param value any a value that `put` accepts
---@param name? string dtype, default "float32"
---@param opts? moonferry.Options
---@return moonferry.Tensor, string? message, number? code
function create.full(shape, value, name, opts)
  return filled("full", shape, value, name, opts)
end

--- Returns a new compact tensor with 0 in every element.
---@param shape number[]|number
---@param name? string dtype, default "float32"
---@param opts? moonferry.Options
---@return moonferry.Tensor, string? message, number? code
function create.zeros(shape, name, opts)
  return filled("zeros", shape, 0, name, opts)
end

--- Returns a new compact tensor with 1 in every element.
---@param shape number[]|number
---@param name? string dtype, default "float32"
---@param opts? moonferry.Options
---@return moonferry.Tensor, string? message, number? code
function create.ones(shape, name, opts)
  return filled("ones", shape, 1, name, opts)
end

local function shape_of(values)
  local shape, level = {}, values
  while type(level) == "table" do
    if #shape == MAX_DEPTH then
      misuse("tensor: nested deeper than %d tables", MAX_DEPTH)
    elseif tensor.is_tensor(level) then
      misuse("tensor: value%s is a tensor; mf.empty and t:view(i):copy(u) put tensors together", ("[1]"):rep(#shape))
    end
    shape[#shape + 1] = #level
    level = level[1]
  end
  return shape
end

local function where(path, axis)
  local parts = {}
  for i = 1, axis do
    parts[i] = "[" .. tostring(path[i]) .. "]"
  end
  return "tensor: value" .. table.concat(parts)
end

-- Where a table has a hole, Lua may take it to end there.
local function check_whole(values, path, axis)
  local last = maxn(values)
  for i = 1, last > #values and last or 0 do
    if values[i] == nil then
      misuse("%s[%d]: expected a value, got nil; a table has no holes", where(path, axis - 1), i)
    end
  end
  -- A list has nothing behind its last entry; where Lua keeps some entries elsewhere, each key is looked at.
  local more = values[0] ~= nil or next(values, last > 0 and last or nil) ~= nil
  local key = more and next(values) or nil
  while key ~= nil do
    if (type(key) ~= "number" or key < 1) and not (key == "n" and values.n == #values) then
      misuse("%s: expected a list that counts from 1, got the key %s", where(path, axis - 1), show(key))
    end
    key = next(values, key)
  end
end

-- Appends the leaves of nested tables to `flat`, checking that every table has the length that its level has.
local function flatten(values, shape, axis, path, flat)
  if axis > #shape then
    if type(values) == "table" or values == nil then
      misuse("%s: expected a value, got %s", where(path, axis - 1), show(values))
    end
    flat[#flat + 1] = values
    return
  elseif type(values) ~= "table" or tensor.is_tensor(values) then
    misuse("%s: expected a table of %d, got %s", where(path, axis - 1), shape[axis], show(values))
  elseif #values ~= shape[axis] then
    misuse("%s: expected %d entries, got %d", where(path, axis - 1), shape[axis], #values)
  end
  check_whole(values, path, axis)
  for i = 1, shape[axis] do
    path[axis] = i
    flatten(values[i], shape, axis + 1, path, flat)
  end
end

local function put_all(line, flat)
  for i = 1, #flat do
    line:put(i - 1, flat[i])
  end
end

local function store_all(t, flat)
  local info = tensor.info(t)
  if info.plain then
    local p = t:ptr()
    for i = 1, #flat do
      p[i - 1] = dtype.encode(info, flat[i], "tensor: value " .. i)
    end
    return true
  end
  local line, message, code = t:reshape(-1)
  if not line then
    return nil, message, code
  end
  tensor.closing(line, put_all, flat)
  return true
end

local function to_device(t, name)
  return tensor.closing(t, t.to, name, { copy = true })
end

--- Returns a new tensor with the values of nested tables, or with one value (ndim 0). `mf.complex(re, im)` makes
--- complex values. On a GPU the values are copied from host memory.
---@param values any
---@param name? string dtype, default "float32"
---@param opts? moonferry.Options
---@return moonferry.Tensor, string? message, number? code
function create.tensor(values, name, opts)
  opts = options(opts, EMPTY_OPTIONS, "tensor")
  set_device(new_like(), opts.device)
  if tensor.is_tensor(values) then
    misuse("tensor: expected nested tables, got a tensor; use t:copy() or t:astype(dtype)")
  elseif type(values) == "cdata" and array.is(values) then
    misuse("tensor: expected nested tables, got %s; mf.wrap makes a tensor of its memory", show(values))
  end
  local shape, flat = shape_of(values), {}
  flatten(values, shape, 1, {}, flat)
  local t, message, code = new("tensor", shape, name, { padded = opts.padded, pages = opts.pages })
  if not t then
    return nil, message, code
  end
  local ok, done, text, status = pcall(store_all, t, flat)
  if ok and done and opts.device ~= nil then
    return to_device(t, opts.device)
  elseif ok and done then
    return t
  end
  t:close()
  if not ok then
    error(done, 0)
  end
  return nil, text, status
end

local function put(at, cdata)
  at[0] = cdata
end

-- The address that a cdata points to, or that a number is on a device, and whether it may be written.
local function address_of(like, cdata)
  local const_pointer, pointer = new_const_pointer(), new_pointer()
  if like[0].device.device_type ~= CPU and (type(cdata) == "number" or type(cdata) == "cdata" and tonumber(cdata)) then
    local address = numbers.integer(cdata, "wrap: pointer")
    return ffi.cast("void *", ffi.cast("intptr_t", address)), true
  elseif type(cdata) ~= "cdata" or not errors.converts(put, const_pointer, cdata) then
    misuse("wrap: pointer: expected a pointer or an array cdata, got %s", show(cdata))
  end
  local writable = errors.converts(put, pointer, cdata)
  local number = tonumber(ffi.cast("uintptr_t", const_pointer[0]))
  if number > 0 and number < PAGE then -- no system has memory there
    misuse("wrap: pointer is 0x%x, which is no address", number)
  end
  return ffi.cast("void *", const_pointer[0]), writable
end

local NO_WORDS = {}
local WRAP_OPTIONS = {
  strides = true, owner = true, readonly = true, byte_offset = true, device = true, stream = true,
}

local function wrap_flags(opts, writable)
  if opts.readonly ~= nil and type(opts.readonly) ~= "boolean" then
    misuse("wrap: readonly: expected a boolean, got %s", show(opts.readonly))
  elseif not writable and opts.readonly == false then
    misuse("wrap: readonly: the pointer is to constant memory")
  end
  return (opts.readonly or not writable) and constants.DLPACK_FLAG_BITMASK_READ_ONLY or 0
end

local function wrap_layout(like, opts)
  local strides = nil
  if opts.strides ~= nil then
    if type(opts.strides) ~= "table" or tensor.is_tensor(opts.strides) then
      misuse("wrap: strides: expected a list of integers, got %s", show(opts.strides))
    end
    local count
    strides, count = numbers.list(opts.strides, numbers.integer, numbers.int64s, "wrap: strides")
    if count ~= like[0].ndim then
      misuse("wrap: strides: expected %d entries, got %d", like[0].ndim, count)
    end
  end
  local offset = numbers.integer(opts.byte_offset or 0, "wrap: byte_offset")
  if offset < 0 then
    misuse("wrap: byte_offset: expected an integer of at least 0, got %s", show(opts.byte_offset))
  end
  like[0].byte_offset = offset
  return strides
end

-- Nothing that can fail comes between holding the owner and the call. LuaJIT wants memory for a C function that is
-- looked up for the first time.
local c_wrap = C.mf_tensor_wrap
local function wrap_held(object, like, flags, at, err)
  local release_flag = nil
  if object ~= false then
    release_flag = owner.hold(object)
    if not release_flag then
      ffi.copy(err.message, "no memory for the owner's record")
      return C.MF_ENOMEM
    end
  end
  local rc = errors.call(c_wrap, like, flags, release_flag and owner.release or nil, release_flag, at, err)
  if rc ~= 0 and release_flag then
    owner.forget(release_flag)
  end
  return rc, release_flag
end

-- C takes a device's memory to be ready on the current stream.
local function wrap_described(flags, object, on, like, extents, strides)
  local at, err = tensor.place(), errors.place()
  like[0].shape, like[0].strides = extents, strides
  local rc, release_flag, code
  if on == nil then
    rc, release_flag = wrap_held(object, like, flags, at, err)
  else
    rc, release_flag, code = stream.run(on, wrap_held, object, like, flags, at, err)
    if not rc then
      return nil, release_flag, code
    end
  end
  if not errors.passed(rc, err) then
    return errors.refused("wrap", rc, err)
  end
  local t = tensor.take(at)
  t._release_flag = release_flag or false
  return t
end

---@class moonferry.WrapOptions
---@field strides? number[] in elements; default: compact
---@field owner? any kept alive as long as the memory is used; default: the pointer itself; false: nothing
---@field readonly? boolean default: true for a pointer to constant memory
---@field byte_offset? number default 0
---@field device? string default "cpu"
---@field stream? moonferry.Stream the stream on which a GPU's memory may be used at once; default: the current one

--- Returns a tensor over memory that somebody else owns, without a copy. Moonferry cannot check a pointer. An array is
--- checked: it must hold elements of the dtype, or bytes, and be as large as shape, strides and offset require. The
--- address of a device's memory may be an integer (CUDA's CUdeviceptr).
---@param cdata ffi.cdata*|number a pointer or an array
---@param shape number[]|number
---@param name? string dtype, default "float32"
---@param opts? moonferry.WrapOptions
---@return moonferry.Tensor, string? message, number? code
function create.wrap(cdata, shape, name, opts)
  opts = options(opts, WRAP_OPTIONS, "wrap")
  if type(cdata) ~= "cdata" and type(cdata) ~= "number" then
    local given, instead = show(cdata), type(cdata) == "table" and "; mf.tensor makes a tensor of one" or ""
    if tensor.is_tensor(cdata) then
      given, instead = "a tensor", "; t:view and t:reinterpret give its memory another shape or dtype"
    end
    misuse("wrap: pointer: expected a pointer or an array cdata, got %s%s", given, instead)
  end
  local like, extents = describe(shape, name, opts.device)
  local address, writable = address_of(like, cdata)
  local flags = wrap_flags(opts, writable)
  local strides = wrap_layout(like, opts)
  array.check(cdata, like[0], dtype.of(like[0].dtype), extents, strides)
  stream.number_of(opts.stream, like[0].device, "wrap: stream", NO_WORDS)
  like[0].data = address
  local object = opts.owner
  if object == nil then
    object = cdata
  end
  return wrap_described(flags, object, opts.stream, like, extents, strides)
end

--- A new tensor with this one's shape and device and another dtype, not initialised. For `cast`.
function create.alike(t, name)
  local like = new_like()
  like[0] = t._dl[0]
  dtype.parse(name, like[0].dtype)
  return create_described("astype", 0, like, t._dl.shape)
end

return create
