-- Deleters of a device's memory that call Lua: they become due when queued work is done, in whichever call notices
-- that, and run below no compiled Lua.
local gpu = require "gpu"
local helper = require "helper"

-- What makes them due, or runs them, for memory whose last tensor was closed while work was queued. `s` is the stream
-- of that work, `own` a tensor of our own.
local CALLS = {
  synchronize = [[mf.synchronize(D)]],
  ["a stream's synchronize"] = [[s:synchronize()]],
  trim = [[gpu.driver.synchronize(s.handle) mf.trim(D)]],
  query = [[gpu.driver.synchronize(s.handle) s:query() own:as_readonly():close()]],
  fill = [[gpu.driver.synchronize(s.handle) own:fill(1) own:as_readonly():close()]],
  copy = [[gpu.driver.synchronize(s.handle) own:copy():close()]],
  ["a transfer"] = [[gpu.driver.synchronize(s.handle) own:to("cpu"):close()]],
  acquire = [[gpu.driver.synchronize(s.handle) own:acquire(s, "read") own:as_readonly():close()]],
  ["an export"] = [[
    gpu.driver.synchronize(s.handle)
    local m = own:to_dlpack { stream = s }
    m.deleter(m)
    own:as_readonly():close()]],
  ["the pool's figures"] = [[gpu.driver.synchronize(s.handle) mf.pool_stats(D) own:as_readonly():close()]],
}

local PROGRAM = [[
local ffi = require "ffi"
local mf = require "moonferry"
local gpu = require "gpu"
local helper = require "helper"
local D, N, ROUNDS, NBYTES = gpu.name, 60, 6, 256
gpu.driver.begin(0)
local count, seen, notes = 0, {}, {}
helper.calls(function(i)
  assert(not seen[i], "a second time")
  seen[i], count = true, count + 1
  for k = 1, 5 do notes[(i + k) %% 50 + 1] = { i, tostring(i) } end
  mf.zeros(3):view({ 1 }):close()
end)
local ptr = gpu.driver.alloc(NBYTES)
local s = mf.stream(D)
local own = mf.zeros(NBYTES, "uint8", { device = D })
local function import(i)
  local m = helper.managed_calling(i, {
    data = ffi.cast("void *", ffi.cast("intptr_t", ptr)), device_type = gpu.kind == "cuda" and 2 or 10,
    code = 1, bits = 8, shape = { NBYTES }, strides = { 1 },
  })
  local t = mf.from_dlpack(m)
  mf.with_stream(s, t.fill, t, i %% 100)
  t:close()
end
local function drop(first, last)
  for i = first, last do
    if i > 0 then import(i) end
    %s
  end
end
drop(-N, 0)
for round = 0, ROUNDS - 1 do drop(round * N + 1, (round + 1) * N) end
own:close()
s:close()
jit.flush()
for _ = 1, 3 do collectgarbage() end
mf.synchronize(D)
mf.trim(D)
gpu.driver.free(ptr)
gpu.driver.finish(0)
print(("%%d of %%d, %%d failed"):format(count, N * ROUNDS, helper.support.support_failures()))
]]

gpu.describe("a device's foreign memory", function()
  for name, call in pairs(CALLS) do
    for mode, option in pairs { compiled = "-Ohotloop=3 -Ohotexit=2", interpreted = "-joff" } do
      it(("has a deleter that calls Lua, due in %s, %s"):format(name, mode), function()
        local output, code = helper.luajit(PROGRAM:format(call), option)
        assert.are.equal("360 of 360, 0 failed\n", output)
        assert.are.equal(0, code)
      end)
    end
  end
end)
