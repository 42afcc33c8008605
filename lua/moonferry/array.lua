-- What LuaJIT knows of an array that somebody wraps: how long it is, and what its elements are.
--
-- Invariant: a pointer is trusted, because nothing is known of it; an array is not. Must not know: tensors.
local ffi = require "ffi"
local errors = require "moonferry.errors"

local misuse = errors.misuse

local array = {}

-- The kinds of C's number types, as LuaJIT writes them, and the dtypes that they hold. A byte may hold anything.
local KINDS = {
  { "float", "float32" }, { "double", "float64" }, { "complex float", "complex64" }, { "complex", "complex128" },
  { "short", "int16" }, { "unsigned short", "uint16" }, { "int", "int32" }, { "unsigned int", "uint32" },
  { "int64_t", "int64" }, { "uint64_t", "uint64" },
}
local NAMES = {}
for _, kind in ipairs(KINDS) do
  NAMES[tostring(ffi.typeof(kind[1])):match "^ctype<(.*)>$"] = kind[2]
end

local function is_integer(name)
  return name:match "^u?int%d+$" ~= nil
end

-- In the type of a pointer to an array that comes in parentheses before the array: int (*)[4].
local POINTER_TO_ARRAY = "^cdata<[^%[]*%(%*[^%[]*%)%["

-- The text of an array's element type, or nil for what is no array. A row of an array is a reference: int (&)[4].
local function element_of(cdata)
  local text = tostring(cdata)
  local element = not text:find(POINTER_TO_ARRAY) and text:gsub(" ?%(&%)", ""):match "^cdata<(.-) ?%[[%d?]*%]"
  return element and element:gsub("^const ", "") or nil
end

--- Whether the cdata is an array or a pointer.
---@param cdata ffi.cdata*
---@return boolean
function array.is(cdata)
  local text = tostring(cdata)
  return element_of(cdata) ~= nil or text:find(POINTER_TO_ARRAY) ~= nil or text:find "^cdata<.*[*&]>" ~= nil
end

-- Integers of one width stand for each other, and for what C has no type for.
local function check_element(element, info, bits)
  local holds = NAMES[element]
  if holds == nil or holds == info.name then
    return
  end
  if is_integer(holds) and (is_integer(info.name) or not info.plain) and tonumber(holds:match "%d+") == bits then
    return
  end
  misuse("wrap: dtype: the array holds %s, which is %s; got %s (a pointer, by ffi.cast, may point to anything)",
    element, holds, info.name)
end

-- The least and the greatest place of an element, in elements; none where there are no elements.
local function reach(extents, strides, ndim)
  local low, high, compact = 0, 0, 1
  for axis = ndim - 1, 0, -1 do
    local extent = tonumber(extents[axis])
    if extent <= 0 then
      return nil
    end
    local far = (extent - 1) * (strides and tonumber(strides[axis]) or compact)
    low, high, compact = low + math.min(far, 0), high + math.max(far, 0), compact * extent
  end
  return low, high
end

--- Raises unless the array holds such elements, and all of them. Anything else than an array passes.
---@param cdata ffi.cdata*
---@param like ffi.cdata* a DLTensor, of which dtype, ndim and byte_offset count
---@param info moonferry.dtype
---@param extents ffi.cdata*
---@param strides? ffi.cdata* in elements
function array.check(cdata, like, info, extents, strides)
  local element = type(cdata) == "cdata" and element_of(cdata)
  if not element then
    return
  end
  local bits = like.dtype.bits * like.dtype.lanes
  check_element(element, info, bits)
  local low, high = reach(extents, strides, like.ndim)
  if not low then
    return
  end
  local offset, nbytes = tonumber(like.byte_offset), ffi.sizeof(cdata)
  local first, last = offset + math.floor(low * bits / 8), offset + math.ceil((high + 1) * bits / 8)
  if first < 0 or last > nbytes then
    misuse("wrap: shape: the elements take bytes %.0f to %.0f of an array of %.0f bytes", first, last, nbytes)
  end
end

return array
