-- Places where C puts what it answers and what it makes for Lua, until Lua holds it with a finalizer of its own.
--
-- Lua may have no memory for that, not even for its own stack, and an error of a debug hook may come between: what must
-- not be parted is called protected, and whoever caught an error there puts it right, which takes no memory. Another
-- call of the library can come between any two instructions of one (a finalizer's wherever compiled code is left, a
-- metamethod's, a hook's): it gets a place of its own. Invariant: no two calls have the same place; what nobody takes
-- from a place is given back with the place, and a finalizer that had no memory is called again; what Lua finalizes
-- when it closes is given back behind all that may use it. Must not know: what is in a place.
local ffi = require "ffi"

local place = {}

local error, gc, getmetatable, new, newproxy, pcall = error, ffi.gc, getmetatable, ffi.new, newproxy, pcall
local getfenv, pairs = getfenv, pairs

-- Whether Lua is closing: it has finalized all FFI objects then or is about to, in any order, and goes on to userdata.
-- Finalizers of those, and threads of Python's that the bridge waits for, may still use what they have.
local closing = false

-- object -> what gives it back: the objects that Lua has finalized because it was closing or seemed to be. nil if there
-- are none.
local waiting

-- object -> true: the objects that were given back while Lua was closing. Lua calls their finalizers all the same. nil
-- before the first.
local given_back

local finishes = {} -- a finalizer -> what gives back

-- What is called when Lua closes, after everything was given back. The table is weak because a finalizer must not reach
-- an object that has one: LuaJIT's table of finalizers would keep that for ever.
local endings = setmetatable({}, { __mode = "k" })

--- When Lua closes, `call` is called after everything was given back, if the caller's module is still there.
---@param call fun()
function place.at_end(call)
  endings[call] = true
end

-- What is called when somebody says that Lua closes next: whoever waits for others that use it. Weak, as above.
local beginnings = setmetatable({}, { __mode = "k" })

--- When Lua is about to close, and whoever closes it says so, `call` is called before anything was finalized.
---@param call fun()
function place.at_begin(call)
  beginnings[call] = true
end

--- Lua is closing.
function place.close_begins()
  closing = true
end

--- Lua closes next (mf_lua_close, os.exit).
function place.close_follows()
  for begin in pairs(beginnings) do
    pcall(begin)
  end
  closing = true
end

-- As moonferry_lua.h has it for C. A program may have done anything to the table of modules.
local function say_that_close_follows()
  package.loaded["moonferry.place"].close_follows()
end

-- LuaJIT's own os.exit closes Lua where its second argument says so. Another one is somebody's who knows better: it may
-- close nothing, as that of a state which Python hosts.
local exit = os.exit
if tostring(exit):find "builtin" then
  os.exit = function(status, close) -- luacheck: ignore 122
    if close then
      pcall(say_that_close_follows)
    end
    return exit(status, close)
  end
end

-- Where a finalizer finds in Lua's stack who has called it, behind pcall and itself. There is nobody if Lua is
-- closing, or if a program in C has Lua collect.
local CALLER = 3

-- A program may have taken this function away before; then all is given back where it is finalized.
local can_wait = getfenv ~= nil

local function give_back_waiting()
  local all = waiting
  waiting = nil
  for object, finish in pairs(all) do
    finish(object)
  end
  if closing then
    for ending in pairs(endings) do
      ending()
    end
  end
end

-- Finalizers of userdata may make more userdata, which LuaJIT finalizes next, ten times at most. Those of ours are the
-- last: they make another one each time, until the ninth gives back. Where Lua is not closing the next cycle does.
local TIMES = 8
local function wait(times)
  getmetatable(newproxy(true)).__gc = function()
    if not (closing and times > 0 and pcall(wait, times - 1)) then
      give_back_waiting()
    end
  end
end

local function put_off(object, finish)
  if waiting == nil then
    local made = {} -- first: there may be no memory for it
    wait(TIMES)
    waiting = made
  end
  waiting[object] = finish
end

--- Gives the object that finalizer. Nothing of Lua's comes behind that: an error comes before it, or not at all.
---@generic T: ffi.cdata*
---@param object T
---@param finalize fun(object: T) by place.finalizer
---@return T
function place.arm(object, finalize)
  if closing and can_wait then -- then Lua takes no finalizer any more
    put_off(object, finishes[finalize])
  end
  return gc(object, finalize)
end

local arm = place.arm

--- Takes the object's finalizer away. As `arm`, nothing of Lua's comes behind that.
---@generic T: ffi.cdata*
---@param object T
---@return T
function place.disarm(object)
  if closing then
    given_back = given_back or {}
    given_back[object] = true
    if waiting ~= nil then
      waiting[object] = nil
    end
  end
  return gc(object, nil)
end

local disarm = place.disarm

--- A finalizer that calls `give_back`, which can fail for nothing but memory and only before it has given back: then
--- the collector calls it again in its next cycle. That the object has a finalizer again takes no memory, because
--- LuaJIT keeps its slot in the table of finalizers.
---@param give_back fun(object: ffi.cdata*)|ffi.cdata* a function of Lua's or C's
---@return fun(object: ffi.cdata*)
function place.finalizer(give_back)
  local finalize

  local function finish(object)
    if not pcall(give_back, object) then
      gc(object, finalize)
    end
  end

  function finalize(object)
    local may_close = can_wait and (closing or not pcall(getfenv, CALLER))
    if not may_close then
      finish(object)
    elseif not (given_back and given_back[object] or pcall(put_off, object, finish)) then
      gc(object, finalize)
    end
  end

  finishes[finalize] = finish
  -- A finalizer is called from everywhere, compiled code among it.
  if type(give_back) == "function" then
    jit.off(give_back)
  end
  jit.off(finish)
  jit.off(finalize)
  return finalize
end

jit.off(give_back_waiting)
jit.off(wait)
jit.off(put_off)

-- Lua finalizes this when it is closed, and before only where nothing can use this module any more.
place.last = gc(new "char[1]", place.close_begins)

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
  local finalize = place.finalizer(give_back)
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
