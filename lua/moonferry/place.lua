-- Places where C puts what it answers and what it makes for Lua, until Lua holds it with a finalizer of its own.
--
-- Lua may have no memory for that, not even for its own stack, and an error of a debug hook may come between: what must
-- not be parted is called protected, and whoever caught an error there puts it right, which takes no memory. Another
-- call of the library can come between any two instructions of one (a finalizer's wherever compiled code is left, a
-- metamethod's, a hook's): it gets a place of its own. Invariant: no two calls have the same place; what nobody takes
-- from a place is given back with the place. Must not know: what is in a place.
local ffi = require "ffi"
local finalizers = require "moonferry.finalizer"

local place = {}

local error, gc, new, pcall = error, ffi.gc, ffi.new, pcall
local arm, disarm = finalizers.arm, finalizers.disarm

local function nothing() end

--- Makes Lua's stack as large as a few calls from the caller's level want it, the last one of C: between taking a
--- reference and putting it into its place Lua's stack must not grow, because there may be no memory for that.
place.room = assert(loadstring("local " .. ("_, "):rep(119) .. "_", "=room"))

--- Gives the object a finalizer that does nothing. It can get another one then without memory, so that whoever had to
--- give back what it stands for can let go first.
---@param object ffi.cdata*
---@return ffi.cdata*
function place.prepare(object)
  return gc(object, nothing)
end

-- A call of C's in the last place has nothing of Lua's behind it: an error comes before it, or not at all.
local function let_go(handle, give_back)
  return give_back(disarm(handle))
end

--- Takes the object's finalizer away and calls the C function `give_back` with it, which runs no foreign code. Where an
--- error comes before that, the object has its finalizer again.
---@param handle ffi.cdata*
---@param give_back ffi.cdata*
---@param finalize function|ffi.cdata*
---@return any answer
function place.release(handle, give_back, finalize)
  local ok, answer = pcall(let_go, handle, give_back)
  if not ok then
    arm(handle, finalize)
    error(answer, 0)
  end
  return answer
end

-- Two functions: one takes an object that no other call has, made anew or returned by an earlier call, and one returns
-- it. An object that a call does not return, because it failed, is garbage.
local function reusable(make)
  local free

  -- The order counts: a call that comes between the first two lines takes the same, and is done with it when this one
  -- goes on.
  local function take()
    local taken = free
    free = nil
    return taken or make()
  end

  local function leave(taken)
    free = taken
  end

  return take, leave
end

--- Places of one type: a function that gives one, empty, and one that takes it back, to be emptied. A finalizer must
--- not know them: LuaJIT's table of finalizers would keep a place for ever that its own could reach.
---@param type string an array of one pointer
---@param give_back fun(place: ffi.cdata*)
---@return fun(): ffi.cdata* take
---@return fun(at: ffi.cdata*) leave
function place.of(type, give_back)
  local finalize = finalizers.of(give_back)
  local take, leave = reusable(function()
    return arm(new(type), finalize)
  end)
  return take, function(at)
    at[0] = nil
    leave(at)
  end
end

--- Handles of one type, which C puts into places: a function that gives a place, one that takes the handle from there
--- into Lua, with its finalizer, and one that takes a reference of its own to what C holds. Until the handle has its
--- finalizer, the place gives it back. What C can return is asked for in a place instead, because LuaJIT wants memory
--- for a pointer that was returned when it is Lua's already.
---@param type string an array of one pointer
---@param give_back fun(handle: ffi.cdata*) of what nobody took from its place
---@param finalize fun(handle: ffi.cdata*)|ffi.cdata*
---@param retain? ffi.cdata* a C function without a result
---@return fun(): ffi.cdata* take
---@return fun(at: ffi.cdata*): ffi.cdata* own
---@return fun(handle: ffi.cdata*): ffi.cdata* keep
function place.handles(type, give_back, finalize, retain)
  local take, leave = place.of(type, function(at)
    give_back(at[0])
  end)
  local function move(at, handle)
    leave(at)
    return arm(handle, finalize)
  end

  local function own(at)
    local handle = place.prepare(at[0])
    local ok, message = pcall(move, at, handle)
    if not ok then
      at[0] = nil
      arm(handle, finalize)
      error(message, 0)
    end
    return handle
  end

  local function claim(at, handle)
    at[0] = handle
    return retain(handle)
  end

  return take, own, function(handle)
    local at = take()
    local ok, message = pcall(claim, at, handle)
    if not ok then
      at[0] = nil
      error(message, 0)
    end
    return own(at)
  end
end

--- The same for answers that nobody has to give back, such as a number or a text.
---@param type string an array
---@return fun(): ffi.cdata* take
---@return fun(at: ffi.cdata*) leave
function place.of_answers(type)
  return reusable(ffi.typeof(type))
end

return place
