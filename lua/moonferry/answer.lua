-- Where C puts what it answers: memory that one call has for itself until it has read the answer.
--
-- Lua code can come between any two instructions of a call of the library and call the library itself: a finalizer, a
-- metamethod, a debug hook. Memory that such calls shared would give one call the other's answer. Invariant: what is
-- taken is not taken again before it is given back. What is never given back, because the call failed, is garbage, and
-- the next call makes a new one. Must not know: what is answered.
local ffi = require "ffi"

local answer = {}

--- Two functions: the first takes a cdata that nobody else has, the second gives it back.
---@param make fun(): ffi.cdata*
---@return fun(): ffi.cdata* take
---@return fun(into: ffi.cdata*) give
function answer.made_by(make)
  local spare

  -- The order counts: a call that comes between the first two lines takes the same, and is done with it when this one
  -- goes on.
  local function take()
    local into = spare
    spare = nil
    return into or make()
  end

  local function give(into)
    spare = into
  end
  return take, give
end

--- The same for a C type.
---@param ctype string
---@return fun(): ffi.cdata* take
---@return fun(into: ffi.cdata*) give
function answer.of(ctype)
  return answer.made_by(ffi.typeof(ctype))
end

return answer
