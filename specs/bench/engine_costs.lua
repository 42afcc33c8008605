-- What the single things of docs/engines.md cost, for `make bench-engine`: CPU time of this thread, the least of some
-- rounds. Prints a line for each: its name, a tab, nanoseconds. Must not know: what else is measured.
local ffi = require "ffi"
local mf = require "moonferry"
local py = require "moonferry.python"

ffi.cdef "typedef struct { long s, ns; } bench_timespec; int clock_gettime(int clock, bench_timespec *out);"
local THREAD_CPUTIME, ROUNDS, CALLS, clock = 3, 15, 2000, ffi.new "bench_timespec"
local function now()
  ffi.C.clock_gettime(THREAD_CPUTIME, clock)
  return tonumber(clock.s) * 1e9 + tonumber(clock.ns)
end

local np = py.import "numpy"
local memory, records = ffi.new "float[80000]", ffi.new "uint8_t[320000]"
local t = mf.wrap(memory, { 20000, 4 })
local ring, mailbox = mf.ring { 20000, 4 }, mf.ring({ 20000, 4 }, "float32", 4)
local view, guarded = np.from_dlpack(t), mf.guard(t)
local item = view.item
local VERTEX = { { "position", "float32", 2 }, { "color", "uint8", 4 }, { "size", "float32" } }

local COSTS = {
  { "`mf.wrap` of the engine's memory, and `close`", function()
    mf.wrap(memory, { 20000, 4 }):close()
  end },
  { "`np.from_dlpack(t)`, and `py.close`", function()
    py.close(np.from_dlpack(t))
  end },
  { "a call of a bound method of a view", function()
    item(0)
  end },
  { "`view:method()`", function()
    view:item(0)
  end },
  { "`mf.fields` of three, and their `close`", function()
    for _, field in pairs((mf.fields(records, 20000, VERTEX))) do
      field:close()
    end
  end },
  { "`ring:begin()` and `ring:done()`", function()
    ring:begin()
    ring:done()
  end },
  { "`ring:begin()`, `ring:publish()` and `ring:latest()`", function()
    mailbox:begin()
    mailbox:publish()
    mailbox:latest()
  end },
  { "`py.scope` around one import of a view", function()
    py.scope(function()
      np.from_dlpack(t)
    end)
  end },
  { "`get` of a guarded tensor", function()
    guarded:get(7, 1)
  end },
}

for _, cost in ipairs(COSTS) do
  local name, fn, least = cost[1], cost[2], math.huge
  for _ = 1, ROUNDS do
    local before = now()
    for _ = 1, CALLS do
      fn()
    end
    least = math.min(least, (now() - before) / CALLS)
  end
  print(("%s\t%d"):format(name, least))
end
