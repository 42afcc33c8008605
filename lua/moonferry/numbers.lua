-- Checks what Lua passes where C wants an integer.
--
-- Invariant: what comes back from here fits an int64_t exactly. A Lua number above 2^53 is refused, because
-- such numbers no longer tell neighbouring integers apart. Must not know: tensors, dtypes.
local ffi = require "ffi"
local errors = require "moonferry.errors"

local floor = math.floor
local misuse, show = errors.misuse, errors.show

local numbers = {}

local EXACT = 2 ^ 53
local MAX_COUNT = 64
local INT64_MAX = 0x7fffffffffffffffULL
local int64_t, uint64_t = ffi.typeof("int64_t"), ffi.typeof("uint64_t")

--- `value` as a Lua number or an int64_t; anything that is no integer raises, naming `what`.
---@param value any
---@param what string
---@return number|ffi.cdata*
function numbers.integer(value, what)
  if type(value) == "number" then
    if value ~= floor(value) or value > EXACT or value < -EXACT then
      local exact = value ~= floor(value) or value - value ~= 0
      misuse("%s: expected an integer%s, got %s", what,
        exact and "" or " of at most 2^53 (a larger one is written as an int64_t: 2LL^60)", show(value))
    end
    return value
  elseif ffi.istype(int64_t, value) then
    return value
  elseif ffi.istype(uint64_t, value) then
    if value > INT64_MAX then
      misuse("%s: expected an integer below 2^63, got %s", what, show(value))
    end
    return ffi.cast(int64_t, value)
  end
  misuse("%s: expected an integer, got %s", what, show(value))
end

--- An axis or an offset: an integer that fits an int32_t, as a Lua number.
---@param value any
---@param what string
---@return number
function numbers.small(value, what)
  local number = tonumber(numbers.integer(value, what))
  if number < -2 ^ 31 or number >= 2 ^ 31 then
    misuse("%s: expected an integer of 32 bits, got %s", what, show(value))
  end
  return number
end

--- Integers as a C array, and how many. `values` is a table that counts from 1. The array is new each time: a finalizer
--- or a metamethod may make such a list while another one is on its way to C.
---@param values table
---@param check fun(value: any, what: string): any
---@param array ffi.ctype* of a variable length
---@param what string
---@return ffi.cdata*, number
function numbers.list(values, check, array, what)
  local count = #values
  if count > MAX_COUNT then
    misuse("%s: expected at most %d entries, got %d", what, MAX_COUNT, count)
  end
  -- Where a table has a hole, Lua may take it to end there. Holes of up to four entries are seen: LuaJIT does not
  -- compile next and table.maxn, and a look at each possible entry makes a reshape four times as slow.
  for i = count + 2, count + 5 do
    if values[i] ~= nil then
      misuse("%s[%d]: expected an integer, got nil; a list has no holes", what, count + 1)
    end
  end
  if count == 0 and next(values) ~= nil then
    misuse("%s: expected a list that counts from 1, got the key %s", what, show(next(values)))
  end
  local into = array(count)
  for i = 1, count do
    local value = values[i]
    if not (type(value) == "number" and value == floor(value) and value < 2 ^ 31 and value > -2 ^ 31) then
      value = check(value, ("%s[%d]"):format(what, i))
    end
    into[i - 1] = value
  end
  return into, count
end

--- What `numbers.list` makes.
numbers.int64s = ffi.typeof "int64_t[?]"

--- A shape: a list of extents, or one number for rank 1.
---@param shape table|number
---@param what? string
---@return ffi.cdata* extents, number ndim
function numbers.shape(shape, what)
  what = what or "shape"
  if type(shape) == "table" then
    if shape[0] ~= nil or shape.dtype ~= nil or shape.device ~= nil then
      misuse("%s: expected a list that counts from 1, got the key %s; the dtype and options are arguments after it",
        what, show(shape[0] ~= nil and 0 or shape.dtype ~= nil and "dtype" or "device"))
    end
    return numbers.list(shape, numbers.integer, numbers.int64s, what)
  elseif type(shape) == "number" or type(shape) == "cdata" then
    local extents = numbers.int64s(1)
    extents[0] = numbers.integer(shape, what)
    return extents, 1
  end
  misuse("%s: expected a list of integers or one integer, got %s", what, show(shape))
end

--- A 64-bit integer as a Lua number where that is exact, else as it is.
---@param value ffi.cdata*
---@return number|ffi.cdata*
function numbers.narrow(value)
  local number = tonumber(value)
  if number < EXACT and number > -EXACT then
    return number
  end
  return value
end

return numbers
