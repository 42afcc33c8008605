-- What the bridge to Python needs from Lua: to tell what a value is whose nature C cannot see, and to make a tensor of
-- a handle.
--
-- Used by both directions: by moonferry.python, and by the states that Python hosts. Must not know which of them asks.
local ffi = require "ffi"
local mf = require "moonferry"
local constants = require("moonferry.cdef").constants
local finalizers = require "moonferry.finalizer"
local foreign = require "moonferry.foreign"
local places = require "moonferry.place"
local scope = require "moonferry.scope"
local tensor = require "moonferry.tensor"

local crossing = {}

local handle_type = ffi.typeof("mf_tensor *")
local int64_type = ffi.typeof("int64_t")
local uint64_type = ffi.typeof("uint64_t")
local complex_type = ffi.typeof("complex")
local complex64_type = ffi.typeof("complex float")

-- These numbers are the MF__IS_... of bindings/bridge/convert.h.
local IS_UNKNOWN, IS_TENSOR, IS_INT64, IS_UINT64, IS_COMPLEX, IS_NUMBER, IS_OBJECT = 0, 1, 2, 3, 4, 5, 6

-- Takes the function by which the bridge runs the deleters that are due.
crossing.through = foreign.through

-- Through which handles go to Lua.
crossing.box = ffi.new("mf_tensor *[1]")

local function move(box, handle)
  box[0] = nil
  return finalizers.arm(handle, foreign.finalize)
end

-- Makes a tensor of the reference that the bridge put into the box. The box is emptied where the reference can get its
-- finalizer without memory: until then it is the bridge's to give back.
function crossing.adopt()
  local box = crossing.box
  local handle = places.prepare(box[0])
  local ok, message = pcall(move, box, handle)
  if not ok then
    move(box, handle)
    error(message, 0)
  end
  return tensor.adopt_armed(handle)
end

-- A moonferry.Stream of the same value.
local function stream_object(s, class)
  local place = s._place
  if place.stream == constants.MF_STREAM_DEFAULT then
    return class.default(s.device)
  elseif place.stream == constants.MF_STREAM_PER_THREAD then
    return class.per_thread(s.device)
  end
  return class.wrap(place.stream, s.device)
end

-- The function that tells the bridge what a value is; `import` gives a Python module as a Python object of that bridge.
function crossing.describer(import)
  local stream_class
  return function(value)
    if mf.is_tensor(value) then
      local handle = value._handle
      if not ffi.istype(handle_type, handle) or handle == nil then
        error("a tensor that is none cannot be passed to Python", 0)
      end
      return IS_TENSOR, handle
    elseif mf.is_stream(value) then
      stream_class = stream_class or scope.outside(function()
        return import("moonferry").Stream
      end)
      return IS_OBJECT, stream_object(value, stream_class)
    elseif ffi.istype(int64_type, value) then
      return IS_INT64, value
    elseif ffi.istype(uint64_type, value) then
      return IS_UINT64, value
    elseif ffi.istype(complex_type, value) then
      return IS_COMPLEX, value
    elseif ffi.istype(complex64_type, value) then
      return IS_COMPLEX, complex_type(value.re, value.im)
    end
    local number = type(value) == "cdata" and tonumber(value)
    if number then
      return IS_NUMBER, number
    end
    return IS_UNKNOWN
  end
end

return crossing
