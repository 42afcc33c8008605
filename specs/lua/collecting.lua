-- Lua's own memory, overwritten where Lua gives it back, so that whoever still uses it is seen; and given back as soon
-- as can be. Must not know: what uses it.
local build = os.getenv "MOONFERRY_BUILD" or "build/dev"
local overwrites = assert(package.loadlib(build .. "/specs/lua_support.so", "support_overwrites"))

local collecting = { overwrites = overwrites }

--- Calls a function of the arguments, interpreted, with a full collection behind each instruction, or each `stride` of
--- them. Gives its result and how many collections there were.
function collecting.call(stride, fn, ...)
  local count = 0
  local compiles = jit.status()
  jit.off()
  overwrites(true)
  debug.sethook(function()
    count = count + 1
    collectgarbage()
  end, "", stride)
  local ok, result = pcall(fn, ...)
  debug.sethook()
  overwrites(false)
  if compiles then jit.on() end
  if not ok then error(result, 0) end
  return result, count
end

--- Calls it so often, compiled, while the collector never rests: compiled code is left wherever it has memory to give
--- back. Gives the last result.
function collecting.call_compiled(turns, fn, ...)
  jit.flush()
  jit.on()
  jit.opt.start("hotloop=3", "hotexit=2")
  overwrites(true)
  collectgarbage("setpause", 0)
  collectgarbage("setstepmul", 100000)
  local ok, result = true
  for _ = 1, turns do
    ok, result = pcall(fn, ...)
    if not ok then break end
  end
  collectgarbage("setpause", 200)
  collectgarbage("setstepmul", 200)
  overwrites(false)
  jit.opt.start("hotloop=56", "hotexit=10")
  if not ok then error(result, 0) end
  return result
end

return collecting
