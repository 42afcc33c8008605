-- Calls of C that may run foreign code: deleters and release callbacks, which may call Lua through Python or from C.
--
-- Invariant: no compiled Lua is below foreign code, because LuaJIT does not survive a call of Lua from there. So no
-- other file calls a function that moonferry.h names for callbacks, and what compiled code releases becomes due first.
-- Must not know: what is released.
local C = require "moonferry.lib"

local foreign = {}

local gsub, select = string.gsub, select

local function run_due()
  C.mf_releases_run()
end

jit.off(run_due)

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

jit.off(foreign.call)

return foreign
