-- Order in Lua: work that is queued by hand, announced by acquire and record; and the mistakes that the simulator must
-- find, so that its silence means something.
local mf = require "moonferry"
local gpu = require "gpu"

local D, driver = gpu.name, gpu.driver
local NBYTES = gpu.NBYTES
local streams, finish, bytes_of, on = gpu.streams, gpu.finish, gpu.bytes_of, gpu.on

gpu.describe("memory of ours", function()
  it("is ordered by acquire and record for work that is queued by hand", function()
    gpu.seeds(function(seed)
      local mine, theirs, wrapped = streams()
      local t = mf.with_stream(mine, mf.zeros, NBYTES, "uint8", { device = D })
      assert.is_true(rawequal(t, t:acquire(wrapped, "write")))
      driver.fill(gpu.address(t), seed, NBYTES, theirs)
      assert.are.equal(seed, on(mine, t, "tolist")[NBYTES])
      local copy = driver.alloc(NBYTES)
      wrapped:wait(mine)
      driver.copy(copy, gpu.address(t), NBYTES, theirs)
      assert.is_true(rawequal(t, t:record(wrapped, "read")))
      on(mine, t, "fill", 77)
      assert.are.equal(77, on(mine, t, "tolist")[1])
      assert.are.equal(seed, bytes_of(copy, theirs))
      assert.is_true(rawequal(t, t:acquire("host", "read")))
      assert.is_true(rawequal(t, on(mine, t, "acquire", nil, "write")))
      t:close()
      driver.free(copy)
      finish(theirs, wrapped)
    end)
  end)
end)

gpu.describe("the simulator reports", function()
  local function reports(name, body)
    it(name, function()
      if not gpu.simulated() then
        return
      end
      local caught = 0
      gpu.seeds(function()
        local mine, theirs, wrapped = streams()
        local other = driver.alloc(NBYTES)
        body(mine, theirs, wrapped, other)
        finish(theirs, wrapped)
        driver.free(other)
        caught = caught + (gpu.take_races() > 0 and 1 or 0)
      end)
      assert.are.equal(gpu.SEEDS + 1, caught)
    end)
  end

  reports("a consumer that asked for no order and does not wait", function(mine, theirs, _, other)
    local t = mf.with_stream(mine, mf.full, NBYTES, 1, "uint8", { device = D })
    local m = t:to_dlpack { stream = "no_order" }
    driver.copy(other, gpu.address(t), NBYTES, theirs)
    driver.synchronize(theirs)
    m.deleter(m)
    t:close()
  end)

  reports("a consumer that takes the memory for another stream than its own", function(mine, theirs, _, other)
    local t = mf.with_stream(mine, mf.full, NBYTES, 1, "uint8", { device = D })
    local m = t:to_dlpack { stream = mf.per_thread_stream(D) }
    driver.copy(other, gpu.address(t), NBYTES, theirs)
    driver.synchronize(theirs)
    m.deleter(m)
    t:close()
  end)

  reports("a producer that names another stream than its own", function(mine, theirs, _, other)
    driver.fill(other, 1, NBYTES, theirs)
    local t = mf.wrap(other, NBYTES, "uint8", { device = D, stream = mine })
    on(mine, t, "fill", 2)
    t:close()
  end)

  reports("work of which Moonferry is not told", function(mine, theirs, wrapped)
    local t = mf.with_stream(mine, mf.full, NBYTES, 1, "uint8", { device = D })
    wrapped:wait(mine)
    driver.fill(gpu.address(t), 2, NBYTES, theirs)
    on(mine, t, "fill", 3)
    driver.synchronize(theirs)
    t:close()
  end)
end)
