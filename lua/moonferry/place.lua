-- Places where C puts what it makes for Lua, until Lua holds it with a finalizer of its own.
--
-- Lua may have no memory for that, an error of a debug hook may come between, and a call that comes while another one
-- has the place (a finalizer's, a metamethod's, a hook's) gets a place of its own. Invariant: what nobody takes from a
-- place is given back with the place, and a finalizer that had no memory is called again. Must not know: what is in a
-- place.
local ffi = require "ffi"

local place = {}

local gc, new, pcall = ffi.gc, ffi.new, pcall

--- A finalizer that calls `give_back`, which can fail for nothing but memory and only before it has given back: then
--- the collector calls it again in its next cycle. That the object has a finalizer again takes no memory, because
--- LuaJIT keeps its slot in the table of finalizers.
---@param give_back fun(object: ffi.cdata*)
---@return fun(object: ffi.cdata*)
function place.finalizer(give_back)
  local function finalize(object)
    if not pcall(give_back, object) then
      gc(object, finalize)
    end
  end
  -- A finalizer is called from everywhere, compiled code among it.
  jit.off(give_back)
  jit.off(finalize)
  return finalize
end

local function nothing() end

--- Gives the object a finalizer that does nothing. It can get another one then without memory, so that whoever had to
--- give back what it stands for can let go first: an error of a debug hook between the two loses it, and does not give
--- it back twice.
---@param object ffi.cdata*
---@return ffi.cdata*
function place.prepare(object)
  return gc(object, nothing)
end

--- Places of one type: a function that gives one, empty, and one that takes it back when it was emptied. A finalizer
--- must not know them: LuaJIT's table of finalizers would keep a place for ever that its own could reach.
---@param type string an array of one pointer
---@param give_back fun(place: ffi.cdata*)
function place.of(type, give_back)
  local finalize = place.finalizer(give_back)
  local free

  local function take()
    local taken = free or gc(new(type), finalize)
    free = nil
    return taken
  end

  local function leave(emptied)
    emptied[0] = nil
    free = emptied
  end

  return take, leave
end

return place
