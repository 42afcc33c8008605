-- Finalizers that lose nothing: one that had no memory is called again, and what Lua finalizes when it closes is given
-- back behind all that may use it.
--
-- Lua finalizes FFI objects in any order when it closes, before userdata, whose finalizers may use what these had. So
-- what would be given back then waits, where somebody has said that Lua closes, or where no function of Lua's is below
-- the finalizer: that is so at Lua's end, and where a program in C has Lua collect. Must not know: what is given back.
local ffi = require "ffi"

local finalizer = {}

-- LuaJIT keeps a module whose file has failed as one that is being loaded, for ever. It marks that by a number, and by
-- a userdata in earlier versions; no module of ours is either.
local function forget_unfinished()
  for name, module in pairs(package.loaded) do
    local kind = type(module)
    if (kind == "number" or kind == "userdata") and tostring(name):find "^moonferry" then
      package.loaded[name] = nil
    end
  end
end

--- Keeps the function out of LuaJIT's compiler. LuaJIT refuses that in a finalizer, so the file that asks for it cannot
--- be loaded there, but it can be later.
---@param fn function
function finalizer.interpret(fn)
  local ok, message = pcall(jit.off, fn)
  if not ok then
    forget_unfinished()
    error(("a finalizer cannot load a module of moonferry (%s); require it before"):format(tostring(message)), 0)
  end
end

local gc, getmetatable, newproxy, pcall = ffi.gc, getmetatable, newproxy, pcall
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
function finalizer.at_end(call)
  endings[call] = true
end

-- What is called when somebody says that Lua closes next: whoever waits for others that use it. Weak, as above.
local beginnings = setmetatable({}, { __mode = "k" })

--- When Lua is about to close, and whoever closes it says so, `call` is called before anything was finalized.
---@param call fun()
function finalizer.at_begin(call)
  beginnings[call] = true
end

--- Lua is closing.
function finalizer.close_begins()
  closing = true
end

--- Lua closes next (mf_lua_close, os.exit).
function finalizer.close_follows()
  for begin in pairs(beginnings) do
    pcall(begin)
  end
  closing = true
end

-- As moonferry_lua.h has it for C. A program may have done anything to the table of modules.
local function say_that_close_follows()
  package.loaded["moonferry.finalizer"].close_follows()
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
---@param finalize fun(object: T) by finalizer.of
---@return T
function finalizer.arm(object, finalize)
  if closing and can_wait then -- then Lua takes no finalizer any more
    put_off(object, finishes[finalize])
  end
  return gc(object, finalize)
end

--- Takes the object's finalizer away. As `arm`, nothing of Lua's comes behind that.
---@generic T: ffi.cdata*
---@param object T
---@return T
function finalizer.disarm(object)
  if closing then
    given_back = given_back or {}
    given_back[object] = true
    if waiting ~= nil then
      waiting[object] = nil
    end
  end
  return gc(object, nil)
end

--- A finalizer that calls `give_back`, which can fail for nothing but memory and only before it has given back: then
--- the collector calls it again in its next cycle. That the object has a finalizer again takes no memory, because
--- LuaJIT keeps its slot in the table of finalizers.
---@param give_back fun(object: ffi.cdata*)|ffi.cdata* a function of Lua's or C's
---@return fun(object: ffi.cdata*)
function finalizer.of(give_back)
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
    finalizer.interpret(give_back)
  end
  finalizer.interpret(finish)
  finalizer.interpret(finalize)
  return finalize
end

finalizer.interpret(give_back_waiting)
finalizer.interpret(wait)
finalizer.interpret(put_off)

-- Lua finalizes this when it is closed, and before only where nothing can use this module any more.
finalizer.last = gc(ffi.new "char[1]", finalizer.close_begins)

return finalizer
