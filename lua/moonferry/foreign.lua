-- Calls of C that may run foreign code: deleters and release callbacks, which may call Lua through Python or from C.
--
-- Invariant: no compiled Lua is below foreign code, because LuaJIT does not survive a call of Lua from there. So no
-- other file calls a function that moonferry.h names for callbacks, and what compiled code releases becomes due first.
-- Where Python is in the process too, what is due runs by way of the bridge, which gives up this Lua state meanwhile: a
-- finalizer may wait for a thread that uses it. Must not know: what is released, Python.
local C = require "moonferry.lib"
local finalizers = require "moonferry.finalizer"

local foreign = {}

local gsub, pcall, select = string.gsub, pcall, select

-- LuaJIT makes an object of a C function where one is named first. A finalizer may have no memory for that, so what
-- finalizers call is named here.
local release_later, releases_run = C.mf_tensor_release_later, C.mf_releases_run

local function run_due()
  releases_run()
end

finalizers.interpret(run_due)

--- From now on calls a C function of the bridge for that.
---@param run function
function foreign.through(run)
  run_due = run
end

--- The finalizer of a tensor's handle, which needs no memory. An error of what is due comes when the handle was given
--- back, and is dropped.
foreign.finalize = finalizers.of(function(handle)
  if release_later(handle) ~= 0 then
    pcall(run_due)
  end
end)

--- Calls the deleters and callbacks that are due. Compiled code may call this: it ends before string.gsub, which LuaJIT
--- does not compile, and the interpreter goes on. (LuaJIT would begin another trace behind that call, but not where the
--- call's results are passed on.) A direct call of `run_due` would abort each attempt to compile the caller, and after
--- some of those LuaJIT never compiles it again, nor what calls it.
function foreign.run()
  return select("#", gsub(".", ".", run_due))
end

--- Calls a C function that may run foreign code, and waits or frees much, so that it need not be compiled.
---@param fn ffi.cdata*
function foreign.call(fn, ...)
  return fn(...)
end

finalizers.interpret(foreign.call)

return foreign
