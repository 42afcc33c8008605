-- What a correct program can meet on a device, as nil, message, code: a driver that fails, and a graph being captured.
-- After each refusal nothing is lost, and the next operation works.
local mf = require "moonferry"
local gpu = require "gpu"
local helper = require "helper"

local D, driver = gpu.name, gpu.driver

local CODES = { [mf.EDRIVER] = true, [mf.ENOMEM] = true, [mf.EDEVICE] = true, [mf.ECAPTURE] = true }
-- CUDA's "launch failed" and HIP's; "out of memory" is 2 for both.
local STATUSES = { 719, 2 }

local function keep(state, name, result, ...)
  state[name] = result
  return result, ...
end

-- Every operation once; each is given what the ones before made, if they did.
local function steps(state)
  return {
    function()
      return keep(state, "s", mf.stream(D))
    end,
    function()
      return keep(state, "t", mf.tensor({ 1, 2, 3, 4 }, "int32", { device = D }))
    end,
    function()
      if state.t and state.s then
        return keep(state, "u", mf.with_stream(state.s, state.t.copy, state.t))
      end
    end,
    function()
      if state.u then
        return state.u:view({ nil, nil, 2 }):fill(9)
      end
    end,
    function()
      if state.u then
        return state.u:acquire(state.s, "write")
      end
    end,
    function()
      if state.u then
        return keep(state, "p", state.u:to(gpu.pinned))
      end
    end,
    function()
      if state.t then
        return state.t:tolist()
      end
    end,
    function()
      if state.t then
        return state.t:view({ 1, 2 }):item()
      end
    end,
    function()
      if state.t then
        return state.t:equal(state.t)
      end
    end,
    function()
      if state.s then
        return state.s:wait(mf.default_stream(D))
      end
    end,
    function()
      if state.s then
        return state.s:synchronize()
      end
    end,
    function()
      if state.t and state.s then
        return keep(state, "m", state.t:to_dlpack { stream = state.s })
      end
    end,
    function()
      return mf.synchronize(D)
    end,
  }
end

local function close_all(state)
  if state.m then
    state.m.deleter(state.m)
  end
  for _, name in ipairs { "t", "u", "p", "s" } do
    if state[name] then
      state[name]:close()
    end
  end
end

local function counted(ok, ...)
  return ok, select("#", ...), ...
end

-- Takes the steps; gives how many were refused. Whatever a step says must say why; one that cannot be taken says
-- nothing.
local function run()
  local state, refused = {}, 0
  for _, step in ipairs(steps(state)) do
    local ok, count, result, message, code = counted(pcall(step))
    if not ok then
      assert.is_truthy(tostring(result):find("answered", 1, true), result)
      refused = refused + 1
    elseif count > 0 and result == nil then
      assert.is_true(CODES[code], message)
      refused = refused + 1
    end
  end
  close_all(state)
  return refused
end

gpu.describe("a driver that fails", function()
  for _, status in ipairs(STATUSES) do
    it(("with %d in any one call is reported, and nothing is lost"):format(status), function()
      if not gpu.simulated() then
        return
      end
      assert.are.equal(0, run())
      gpu.sim.sim_reset()
      run()
      local calls = gpu.calls(nil)
      local reported = 0
      for n = 1, calls do
        gpu.sim.sim_reset()
        assert.are.equal(0, gpu.sim.sim_fail(("*@%d:%d:once"):format(n, status)))
        reported = reported + (run() > 0 and 1 or 0)
        gpu.sim.sim_reset()
        assert.are.equal(0, run(), "after call " .. n)
      end
      assert.is_true(reported > calls / 10, reported .. " of " .. calls)
    end)
  end

  it("gives no tensor that it could not fill, and nothing is left of it", function()
    if not gpu.simulated() then
      return
    end
    local before = mf.ledger()
    gpu.sim.sim_fail(gpu.kind == "cuda" and "cuMemsetD8Async:999:on" or "hipMemsetD8Async:999:on")
    for _, make in ipairs { mf.zeros, mf.ones, function(...) return mf.full({ 64 }, 3, select(2, ...)) end } do
      local t, message, code = make({ 64 }, "uint8", { device = D })
      assert.is_nil(t)
      assert.matches("answered 999", message)
      assert.are.equal(mf.EDRIVER, code)
      assert.are.equal(before.tensors, mf.ledger().tensors)
    end
    gpu.sim.sim_reset()
    mf.synchronize(D)
  end)

  it("has no copy on the host left where elements are no numbers", function()
    local t = mf.empty({ 2 }, "float32x4", { device = D })
    local before = mf.ledger()
    assert.is_false(pcall(t.tolist, t))
    assert.are.same(before, mf.ledger())
    t:close()
    t = mf.zeros({ 2 }, "int8", { device = D })
    assert.are.equal(1, select("#", t:tolist()))
    t:close()
  end)

  it("names the call and the driver's own code", function()
    if not gpu.simulated() then
      return
    end
    local s = mf.stream(D)
    local name = gpu.kind == "cuda" and "cuStreamSynchronize" or "hipStreamSynchronize"
    gpu.sim.sim_fail(name .. ":719")
    local nothing, message, code = s:synchronize()
    assert.is_nil(nothing)
    assert.are.equal(mf.EDRIVER, code)
    assert.is_truthy(message:find("synchronize: " .. name .. " answered 719", 1, true), message)
    assert.is_true(s:synchronize())
  end)
end)

gpu.describe("a stream that is being captured", function()
  local theirs, wrapped

  local function begin()
    theirs = driver.stream()
    wrapped = mf.wrap_stream(D, theirs)
  end

  local function finish()
    collectgarbage()
    wrapped:close()
    driver.destroy(theirs)
  end

  it("takes part in what can be captured", function()
    begin()
    local t = mf.with_stream(wrapped, mf.zeros, 64, "int32", { device = D })
    wrapped:synchronize()
    driver.capture(theirs)
    assert.is_true(rawequal(t, mf.with_stream(wrapped, t.fill, t, 5)))
    assert.are.equal(0, driver.end_capture(theirs))
    t:close()
    finish()
  end)

  it("refuses what cannot be", function()
    begin()
    local t = mf.with_stream(wrapped, mf.zeros, 64, "int32", { device = D })
    -- One for each use: to refuse it, the driver is asked whether the other stream is done, and next time it is.
    local mine, busy = {}, {}
    for i = 1, 4 do
      mine[i] = mf.stream(D)
      busy[i] = mf.with_stream(mine[i], mf.ones, 64, "int32", { device = D })
    end
    wrapped:synchronize()
    gpu.keep_busy(mine)
    driver.capture(theirs)
    local refused = {
      { wrapped:synchronize() }, { wrapped:query() }, { mf.with_stream(wrapped, t.tolist, t) },
      { mf.with_stream(wrapped, t.to, t, "cpu") }, { wrapped:wait(mine[1]) },
      { mf.with_stream(wrapped, t.copy, busy[2], t) }, { busy[3]:acquire(wrapped, "read") },
      { busy[4]:to_dlpack { stream = wrapped } },
    }
    local shown = mf.with_stream(wrapped, tostring, t)
    assert.are.equal(0, driver.end_capture(theirs))
    for i, answer in ipairs(refused) do
      assert.are.same({ i, nil, mf.ECAPTURE }, { i, answer[1], answer[3] })
      assert.is_truthy(answer[2]:find("captur", 1, true), answer[2])
    end
    assert.are.equal("mf.tensor<int32[64] " .. D .. ">", shown)
    assert.are.equal(1, busy[4]:tolist()[64])
    assert.are.equal(0, mf.with_stream(wrapped, t.tolist, t)[64])
    t:close()
    finish()
  end)
end)

describe("a device that this machine lacks", function()
  it("is refused with the reason by everything that names it", function()
    local environment = "MOONFERRY_CUDA_LIBRARY=/nowhere/libcuda.so MOONFERRY_HIP_LIBRARY=/nowhere/libamdhip64.so"
    local output, code = helper.luajit([[
      local mf = require "moonferry"
      local function check(name, result, message, code)
        assert(result == nil and code == mf.EDEVICE, name)
        assert(message:find("/nowhere/lib", 1, true), message)
      end
      local t = mf.tensor { 1, 2 }
      for _, kind in ipairs { "cuda", "rocm" } do
        check("device_count", mf.device_count(kind))
        for _, verb in ipairs { "stream", "default_stream", "per_thread_stream", "current_stream", "synchronize",
          "pool_stats", "trim" } do
          check(verb, mf[verb](kind .. ":0"))
        end
        check("pool_limit", mf.pool_limit(kind, 5))
        for _, name in ipairs { kind, kind .. "_host" } do
          check("zeros", mf.zeros(3, "int8", { device = name }))
          check("tensor", mf.tensor({ 1, 2 }, "int8", { device = name }))
          check("to", t:to(name))
          check("to_dlpack", t:to_dlpack { device = name })
        end
      end
      t:close()
      assert(mf.ledger().tensors == 0)
      print "all is well"
    ]], "", environment)
    assert.are.equal("all is well\n", output)
    assert.are.equal(0, code)
  end)
end)
