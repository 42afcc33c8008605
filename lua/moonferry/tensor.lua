-- The tensor as a Lua object: a table over one mf_tensor reference.
--
-- Responsible for: taking a reference into Lua, its fields, and giving it back, by close or by the garbage
-- collector. Invariant: a table with this metatable holds a live handle; close changes the metatable, so a
-- closed tensor cannot be used by mistake. Memory is kept by C's reference counts, never by Lua's order of
-- collection. Must not know: how elements are read, how views are described.
local ffi = require "ffi"
local bit = require "bit"
local finalizers = require "moonferry.finalizer"
local C = require "moonferry.lib"
local constants = require("moonferry.cdef").constants
local device = require "moonferry.device"
local dtype = require "moonferry.dtype"
local errors = require "moonferry.errors"
local foreign = require "moonferry.foreign"
local hint = require "moonferry.hint"
local owner = require "moonferry.owner"
local places = require "moonferry.place"
local pressure = require "moonferry.pressure"
local scope = require "moonferry.scope"

errors.attach(C)
local misuse = errors.misuse

---@class moonferry.Tensor
---@field shape number[] the extent of each axis; a new table each time
---@field strides number[] in elements; a new table each time
---@field dtype string such as "float32"
---@field device string such as "cpu" or "cuda:0"
---@field ndim number the number of axes
---@field nbytes number the bytes that the elements take in compact form
---@field itemsize number the bytes of one element, rounded up
---@field size number the number of elements
---@field readonly boolean whether the elements must not be written
---@field padded boolean whether each element narrower than a byte takes a whole byte
---@field flags number DLPack's flag bits: 1 read-only, 2 copied by the producer, 4 padded
---@field is_contiguous boolean whether the tensor is compact: in row-major order without gaps
---@field handle ffi.cdata* the mf_tensor *, owned by this object
local Tensor = {}
local Fields = {}

-- What describing a tensor costs beyond its elements, as the collector should see it.
local DESCRIPTION_NBYTES = 256

-- Without a result, for which LuaJIT would want memory when the reference has been taken.
pcall(ffi.cdef, 'void mf_lua_tensor_keep(mf_tensor *t) __asm__("mf_tensor_retain");')
-- Where C puts a new tensor.
local take_place, handle_at, handle_kept = places.handles("mf_tensor *[1]", C.mf_tensor_release, foreign.finalize,
  C.mf_lua_tensor_keep)

local release_later = C.mf_tensor_release_later

local meta, closed = { moonferry_open = true }, { moonferry_open = false }

-- What an object of this class may hold beside its fields and methods; nil where an owner took it out.
local PRIVATE = {
  _handle = true, _dl = true, _epoch = true, _p = true, _shared = true, _locked = true, _s = true,
  _n = true, _inner = true, _info = true, _mark = true, _read = true,
}

local function shown_key(key)
  return "[" .. errors.show(key) .. "]"
end

local function missing(key)
  if type(key) ~= "string" then
    misuse("a tensor is not indexed with [], got %s; use t:get, t:row or t:view, whose coordinates count from 0",
      shown_key(key))
  elseif not PRIVATE[key] then
    local instead = hint.of_tensor(key, Tensor, Fields)
    misuse("a tensor has no field %s%s", errors.show(key), instead and "; use " .. instead or "")
  end
end

function meta.__index(t, key)
  local method = Tensor[key]
  if method then
    return method
  end
  local field = Fields[key]
  if field then
    return field(t)
  end
  return missing(key)
end

-- What gives another tensor that differs in a field.
local INSTEAD = {
  shape = "t:reshape gives another view", strides = "t:permute_dims, t:view and t:broadcast_to give another view",
  dtype = "t:astype gives a converted copy, t:reinterpret another view", device = "t:to gives a tensor there",
  handle = "t:close() gives it back",
  readonly = "t:as_readonly gives another view",
}

function meta.__newindex(_, key)
  if type(key) ~= "string" then
    misuse("a tensor is not assigned to with [], got %s; use t:put, t:set or t:fill, or a row of t:rows()",
      shown_key(key))
  elseif Fields[key] then
    misuse("%s cannot be set%s", key, INSTEAD[key] and "; " .. INSTEAD[key] or "")
  elseif Tensor[key] then
    misuse("%s is a method of tensors and cannot be set", key)
  end
  misuse("a tensor has no field %s, and takes no others; a table with tensors as its keys can hold what is yours",
    errors.show(key))
end

-- LuaJIT asks these of a table only where it was built with the rules of Lua 5.2; elsewhere # gives 0, and ipairs
-- nothing.
function meta.__len()
  misuse("a tensor has no length; t.size is the number of its elements, t.shape[1] its first extent")
end

function meta.__pairs()
  misuse("a tensor is not iterated with pairs or ipairs; use t:rows(), or t:tolist()")
end

meta.__ipairs = meta.__pairs

-- Lua asks this where both sides are tensors and two objects, and never where one side is nil or a number.
function meta.__eq()
  misuse("two tensors are not compared with == or ~=; t:equal(u) compares their elements, and rawequal(t, u) says "
    .. "whether they are one object")
end

closed.__eq = meta.__eq

local function no_arithmetic()
  misuse("a tensor has no arithmetic and no order; a loop over t:rows() has, or NumPy by moonferry.python")
end

for _, operator in ipairs { "add", "sub", "mul", "div", "mod", "pow", "unm", "lt", "le" } do
  meta["__" .. operator] = no_arithmetic
end

function meta.__concat()
  misuse("a tensor is not joined to a text; tostring(t) is")
end

function meta.__call()
  misuse("a tensor is not called; t:get(...) gives an element, t:view(...) a part")
end

local function is_closed(verb)
  misuse("%stensor closed, by t:close() or at the end of mf.scope; s:keep(t) lets one out of a scope",
    verb and verb .. ": " or "")
end

function closed.__index(_, key)
  if key == "close" then
    return Tensor.close
  end
  is_closed(type(key) == "string" and key or nil)
end

function closed.__newindex()
  is_closed()
end

function closed.__tostring()
  return "mf.tensor<closed>"
end

local tensor = { Tensor = Tensor, meta = meta }

-- What the function at this level calls `value`.
local function name_of(value, level)
  local i = 0
  repeat
    i = i + 1
    local name, found = debug.getlocal(level + 1, i)
    if name and rawequal(found, value) and name:find "^%a" then
      return name
    end
  until not name
end

-- The method that was given `value`, and what for: "self" in t.get(0) for t:get(0).
local function method_of(value)
  for level = 3, 8 do
    local info = debug.getinfo(level, "f")
    local name = info and name_of(value, level)
    for verb, method in pairs(name and Tensor or {}) do
      if method == info.func then
        return verb, name
      end
    end
  end
end

local function remedy(value, verb, parameter)
  if parameter == "self" and not errors.is_python(value) then
    return ("; a method is called with a colon: t:%s(...)"):format(verb)
  end
  return type(value) == "table" and not getmetatable(value) and "; mf.tensor makes one of a table" or ""
end

local function refuse(value, verb, parameter)
  local place = verb and (parameter == "self" and verb .. ": " or ("%s: %s: "):format(verb, parameter)) or ""
  misuse("%sexpected a tensor, got %s%s", place, errors.show(value), remedy(value, verb, parameter))
end

local function no_tensor(value)
  if getmetatable(value) == closed then
    is_closed()
  end
  refuse(value, method_of(value))
end

--- The handle of an open tensor; anything else raises.
---@return ffi.cdata*
local function handle_of(t)
  if getmetatable(t) == meta then
    local handle = t._handle
    if handle ~= nil then
      return handle
    end
  end
  return no_tensor(t)
end
tensor.handle_of = handle_of

--- The same for the parameter `t` of a function that is no method of a tensor's.
---@param verb string the function's name
---@return ffi.cdata*
function tensor.handle_for(verb, t)
  if not tensor.is_tensor(t) then
    refuse(t, verb, "t")
  end
  return handle_of(t)
end

--- Returns whether `value` is a tensor, open or closed.
---@param value any
---@return boolean
function tensor.is_tensor(value)
  local mt = getmetatable(value)
  return mt == meta or mt == closed
end

--- A place for a C function's new tensor, which `take` takes from there.
tensor.place = take_place

-- Takes a handle, which has its finalizer, into Lua. nbytes: what it newly keeps alive beside itself. The private
-- fields that begin as false are filled by those that need them (element.lua).
local function adopt(handle, nbytes)
  local t = setmetatable({
    _handle = handle, _dl = C.mf_tensor_dltensor(handle),
    _epoch = false, _p = false, _shared = false, _locked = false, _s = false,
    _n = false, _inner = false, _info = false, _release_flag = false,
    _read = false,
  }, meta)
  if scope.active() then
    scope.register(t)
  end
  pressure.add(nbytes, DESCRIPTION_NBYTES)
  return t
end

--- The same of one whose memory Lua has not counted yet.
---@param handle ffi.cdata*
---@return moonferry.Tensor
local function adopt_counted(handle)
  return adopt(handle, tonumber(C.mf_tensor_nbytes(handle)))
end
tensor.adopt_armed = adopt_counted

--- Takes a reference of its own to a tensor that C holds, whose memory Lua has not counted yet.
---@param handle ffi.cdata*
---@return moonferry.Tensor
function tensor.keep(handle)
  return adopt_counted(handle_kept(handle))
end

--- Takes over one reference of an `mf_tensor *` that has no finalizer, to memory that Lua has not counted yet; where
--- Lua has no memory for that, the reference is given back. (Deleters that are due then come with a later release.)
---@param handle ffi.cdata*
---@return moonferry.Tensor
function tensor.adopt(handle)
  local ok, message = pcall(finalizers.arm, handle, foreign.finalize)
  if not ok then
    release_later(handle)
    error(message, 0)
  end
  return adopt_counted(handle)
end

--- The new tensor that C has put there.
---@param at ffi.cdata*
---@return moonferry.Tensor
function tensor.take(at)
  return adopt_counted(handle_at(at))
end

--- The same of one that was made of `t`, over the same memory or over new memory.
---@param at ffi.cdata*
---@param t moonferry.Tensor
---@return moonferry.Tensor
function tensor.take_from(at, t)
  local handle = handle_at(at)
  if C.mf_tensor_dltensor(handle).data == t._dl.data then
    return adopt(handle, 0)
  end
  return adopt_counted(handle)
end

--- Calls a C function that makes a view of `t` as its last output but one.
---@param verb string
---@param fn ffi.cdata*
---@param t moonferry.Tensor
---@return moonferry.Tensor, string? message, number? code
function tensor.view(verb, fn, t, ...)
  local handle, count, at, err = handle_of(t), select("#", ...), take_place(), errors.place()
  local a, b = ...
  local rc
  if count == 0 then
    rc = errors.call(fn, handle, at, err)
  elseif count == 1 then
    rc = errors.call(fn, handle, a, at, err)
  else
    rc = errors.call(fn, handle, a, b, at, err)
  end
  if not errors.passed(rc, err) then
    return errors.refused(verb, rc, err)
  end
  return adopt(handle_at(at), 0)
end

--- The dtype record, looked up once.
---@return moonferry.dtype
function tensor.info(t)
  handle_of(t)
  local info = t._info or dtype.of(t._dl.dtype)
  t._info = info
  return info
end

--- Closes the tensor, which drops its reference to the memory. The memory is released when its last tensor and export
--- are gone. A second call does nothing; any other use raises "tensor closed". Deleters of other libraries that are due
--- run during this call and may call Lua.
function Tensor:close()
  if getmetatable(self) == closed then
    return
  end
  local handle, release_flag = handle_of(self), self._release_flag
  setmetatable(self, closed)
  pressure.subtract(DESCRIPTION_NBYTES)
  self._handle, self._dl, self._p, self._shared, self._s, self._n = nil, nil, nil, nil, nil, nil
  self._inner, self._info = nil, nil
  if places.release(handle, release_later, foreign.finalize) ~= 0 then
    foreign.run()
  end
  if release_flag then
    owner.check(release_flag)
  end
end

local function close_after(t, ok, ...)
  t:close()
  if not ok then
    error((...), 0)
  end
  return ...
end

--- Returns what fn(t, ...) does, or raises what that raises. The tensor is closed in either case.
---@param t moonferry.Tensor
---@param fn fun(t: moonferry.Tensor, ...): any
function tensor.closing(t, fn, ...)
  return close_after(t, pcall(fn, t, ...))
end

local take_answer, leave_answer = places.of_answers "int32_t[1]"

--- Call this before an engine takes wrapped memory back. From then on this tensor, and every tensor that shares its
--- memory, raises an error instead of using the memory. Pointers that were taken earlier (`row`, `ptr`) cannot be
--- revoked.
---@return boolean in_use whether views or exports still refer to the memory
function Tensor:invalidate()
  local handle, at, err = handle_of(self), take_answer(), errors.place()
  local rc = C.mf_tensor_invalidate(handle, at, err)
  if not errors.passed(rc, err) then
    errors.refused("invalidate", rc, err)
  end
  self._p, self._shared = false, false
  local in_use = at[0] ~= 0
  leave_answer(at)
  return in_use
end

local function list_of(numbers, count)
  local list = {}
  for i = 1, count do
    list[i] = tonumber(numbers[i - 1])
  end
  return list
end

function Fields.shape(t)
  return list_of(t._dl.shape, t._dl.ndim)
end

function Fields.strides(t)
  return list_of(t._dl.strides, t._dl.ndim)
end

function Fields.ndim(t)
  return t._dl.ndim
end

function Fields.dtype(t)
  return tensor.info(t).name
end

function Fields.device(t)
  return device.format(t._dl.device)
end

function Fields.handle(t)
  return t._handle
end

function Fields.size(t)
  return tonumber(C.mf_tensor_size(t._handle))
end

function Fields.itemsize(t)
  local bits = tonumber(C.mf_dtype_bits(t._dl.dtype, C.mf_tensor_flags(t._handle)))
  return math.ceil(bits / 8)
end

function Fields.nbytes(t)
  return tonumber(C.mf_tensor_nbytes(t._handle))
end

function Fields.flags(t)
  return tonumber(C.mf_tensor_flags(t._handle))
end

function Fields.readonly(t)
  return bit.band(t.flags, constants.DLPACK_FLAG_BITMASK_READ_ONLY) ~= 0
end

function Fields.padded(t)
  return bit.band(t.flags, constants.DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED) ~= 0
end

function Fields.is_contiguous(t)
  return C.mf_tensor_is_contiguous(t._handle) ~= 0
end

return tensor
