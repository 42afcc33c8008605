-- Buffers of OpenGL's as tensors of a GPU: the same bytes by both routes, valid inside of the function alone.
local ffi = require "ffi"
local mf = require "moonferry"
local gpu = require "gpu"
local helper = require "helper"
local opengl = require "opengl"
local refuses = helper.refuses

local N = 16384
local values = ffi.new("float[?]", N)
for i = 0, N - 1 do
  values[i] = i
end

gpu.describe("a shared buffer", function()
  local gl = require "moonferry.gl"
  local context, buffer

  -- A spec with a context and a buffer, which are gone before it is looked whether anything is left.
  local function specify(name, fn)
    it(name, function()
      if not opengl.is_here then
        return pending "needs EGL (libegl1)"
      end
      opengl.open()
      context = assert(gl.open "egl")
      buffer = opengl.buffer(values, 4 * N)
      fn()
      assert.are.equal(0, opengl.delete(buffer))
      context:finish()
      context = nil
    end)
  end

  local function held(i)
    return ffi.cast("const float *", opengl.read(buffer, 4 * N))[i]
  end

  specify("is the way into OpenGL, which reads no GPU's tensor as a picture", function()
    local t = mf.zeros({ 2, 2, 4 }, "uint8", { device = gpu.name })
    refuses("upload: device: expected memory that the host can read, got " .. t.device, context.upload, context, 1, t,
      "rgba8")
    t:close()
  end)

  for _, route in ipairs { "mapped", "copied" } do
    specify("says where memory ends, " .. route, function()
      for _, use in ipairs { "read", "discard", false } do
        local shared = assert(context:share(buffer, { device = gpu.name, route = route, use = use or nil }))
        local got, other = {}, mf.zeros(1)
        helper.scarce(function()
          return shared:map(nil, { N }, "float32", function(t)
            got[#got + 1] = t.device
          end)
        end, other)
        other:close()
        assert.are.equal(gpu.name, got[#got])
        assert(shared:close())
      end
    end)

    specify("is read and written by the GPU, " .. route, function()
      local shared = assert(context:share(buffer, { device = gpu.name, route = route }))
      assert.are.equal(route, shared.route)
      local s = mf.stream(gpu.name)
      for round = 1, 5 do
        local done, got = shared:map(s, { 128, N / 128 }, "float32", function(t)
          assert.are.equal(gpu.name, t.device)
          local host = t:to "cpu"
          local first = host:get(1, 0)
          t:view({ 0, 64 }):fill(round)
          host:close()
          return first
        end)
        assert.is_true(done)
        assert.are.equal(round == 1 and 128 or round - 1, got)
        assert.are.same({ round, N - 1 }, { held(0), held(N - 1) })
      end
      assert.is_false(shared.in_use)
      assert(shared:close())
      assert(shared:close())
      s:close()
    end)
  end

  specify("orders what it is used on with the mapping and with OpenGL", function()
    local shared = assert(context:share(buffer, { device = gpu.name, use = "discard" }))
    local s, other = mf.stream(gpu.name), mf.stream(gpu.name)
    for seed = 0, gpu.SEEDS - 1 do
      if gpu.sim then
        gpu.sim.sim_seed(seed)
      end
      assert(shared:map(s, { N }, "float32", function(t)
        mf.with_stream(other, t.fill, t, seed)
      end))
      assert.are.same({ seed, seed }, { held(0), held(N - 1) })
    end
    assert(shared:close())
    s:close()
    other:close()
  end)

  specify("is over after the function, and says so", function()
    local shared = assert(context:share(buffer, { device = gpu.name }))
    local kept, view
    assert(shared:map(nil, { N }, "float32", function(t)
      kept, view = t, t:view({ 0, 4 })
    end))
    assert.is_true(shared.in_use)
    refuses("tensor closed", function()
      return kept.shape
    end)
    refuses("taken back", view.fill, view, 1)
    view:close()
    assert(shared:map(nil, { N }, "float32", function(t)
      t:view({ 0, 4 }) -- not kept, and not collected either
    end))
    assert.is_false(shared.in_use)
    assert(shared:close())
  end)

  specify("leaves nothing in Lua when it is closed", function()
    local function share_often()
      for _ = 1, 500 do
        assert(assert(context:share(buffer, { device = gpu.name, route = "mapped" })):close())
      end
      collectgarbage()
      collectgarbage()
      return collectgarbage "count"
    end
    jit.off(share_often, true)
    share_often()
    local before = share_often()
    assert.is_true(share_often() < before + 32)
  end)

  specify("goes back to OpenGL when the function raises", function()
    local shared = assert(context:share(buffer, { device = gpu.name }))
    local failed = select(2, pcall(shared.map, shared, nil, { N }, "float32", function(t)
      t:fill(7)
      refuses("mapped already", shared.map, shared, nil, { N }, "float32", print)
      refuses("is mapped", shared.close, shared)
      error("on purpose", 0)
    end))
    assert.are.equal("on purpose", failed)
    assert.are.equal(7, held(3))
    assert(shared:close())
    refuses("is closed", shared.map, shared, nil, { N }, "float32", print)
  end)

  specify("stays mapped while a capture that began inside goes on", function()
    local shared = assert(context:share(buffer, { device = gpu.name }))
    local s = mf.stream(gpu.name)
    refuses("being captured", shared.map, shared, s, { N }, "float32", function(t)
      t:fill(8)
      gpu.driver.capture(s.handle)
    end)
    local done, message, code = shared:close()
    assert.is_nil(done)
    assert.matches("being captured", message, 1, true)
    assert.are.equal(mf.ECAPTURE, code)
    assert.are.equal(0, gpu.driver.end_capture(s.handle))
    assert(shared:close())
    assert.are.equal(8, held(3))
    s:close()
  end)

  specify("is read alone where that is said", function()
    local shared = assert(context:share(buffer, { device = gpu.name, use = "read" }))
    assert(shared:map(nil, { N }, "float32", function(t)
      assert.is_true(t.readonly)
      refuses("read-only", t.fill, t, 1)
      local host = t:to "cpu"
      assert.are.equal(5, host:get(5))
      host:close()
    end))
    assert(shared:close())
  end)

  specify("that is dropped is the driver's until the context is used again, whose thread alone may ask that", function()
    if not gpu.simulated() then
      return
    end
    local function drop(n)
      for _ = 1, n do
        assert.are.equal("mapped", assert(context:share(buffer, { device = gpu.name })).route)
      end
      collectgarbage()
      collectgarbage()
    end
    local function used() end
    drop(2)
    assert.are.equal(2, gpu.registered "Buffer")
    local shared = assert(context:share(buffer, { device = gpu.name }))
    assert.are.equal(1, gpu.registered "Buffer")
    drop(1)
    assert.are.equal(2, gpu.registered "Buffer")
    assert(shared:map(nil, { N }, "float32", used))
    assert.are.equal(1, gpu.registered "Buffer")
    assert(shared:close())
    drop(1)
    assert.are.equal(1, gpu.registered "Buffer")
    context:finish()
    assert.are.equal(0, gpu.registered "Buffer")
  end)

  specify("that is dropped while a stream is captured is given back afterwards", function()
    if not gpu.simulated() then
      return
    end
    local s = mf.stream(gpu.name)
    refuses("being captured", function()
      local shared = assert(context:share(buffer, { device = gpu.name }))
      shared:map(s, { N }, "float32", function()
        gpu.driver.capture(s.handle)
      end)
    end)
    collectgarbage()
    collectgarbage()
    local shared = assert(context:share(buffer, { device = gpu.name }))
    assert.are.equal(2, gpu.registered "Buffer")
    assert.are.equal(0, gpu.driver.end_capture(s.handle))
    assert(shared:map(nil, { N }, "float32", function() end))
    assert.are.same({ 1, 0 }, { gpu.registered "Buffer", #context._dropped })
    assert(shared:close())
    s:close()
  end)

  specify("that was closed is not closed once more, whoever has its place", function()
    for _ = 1, 20 do
      assert(context:share(buffer, { device = gpu.name })):close()
      local next_one = assert(context:share(buffer, { device = gpu.name }))
      collectgarbage()
      collectgarbage()
      assert(next_one:map(nil, { N }, "float32", function(t)
        t:fill(3)
      end))
      assert(next_one:close())
    end
    assert.are.equal(3, held(7))
  end)

  specify("goes back with what was forgotten where the context ends", function()
    if not gpu.simulated() then
      return
    end
    collectgarbage "stop"
    assert(context:share(buffer, { device = gpu.name }))
    context:finish()
    collectgarbage "restart"
    assert.are.equal(0, gpu.registered "Buffer")
  end)

  for _, route in ipairs { "mapped", "copied" } do
    specify("leaves nothing to the collector, " .. route, function()
      local shared = assert(context:share(buffer, { device = gpu.name, route = route }))
      assert(shared:map(nil, { N }, "float32", function() end))
      local left = helper.left_by(function()
        assert(shared:map(nil, { N }, "float32", function() end))
        pcall(shared.map, shared, nil, { N }, "float32", error)
      end, gpu.settle)
      assert.are.same(helper.NOTHING, left)
      assert(shared:close())
    end)
  end

  specify("is not written where the function raises before its bytes went back through the host", function()
    local shared = assert(context:share(buffer, { device = gpu.name, route = "copied" }))
    assert.are.same({ false, "on purpose" }, { pcall(shared.map, shared, nil, { N }, "float32", function(t)
      t:fill(7)
      error("on purpose", 0)
    end) })
    assert.are.equal(3, held(3))
    assert(shared:close())
  end)

  specify("says why the bytes go through the host", function()
    if gpu.sim then
      gpu.sim.sim_fail((gpu.kind == "cuda" and "cu" or "hip") .. "GraphicsGLRegisterBuffer@1:999:once")
      local shared = assert(context:share(buffer, { device = gpu.name }))
      assert.are.equal("copied", shared.route)
      assert.matches("GraphicsGLRegisterBuffer", shared.reason, 1, true)
      assert(shared:map(nil, { N }, "float32", function(t)
        t:fill(2)
      end))
      assert.are.equal(2, held(9))
      assert(shared:close())
      gpu.sim.sim_reset()
    end
  end)

  specify("refuses misuse", function()
    refuses("share: options", context.share, context, buffer)
    for _, name in ipairs { 0, -1, 1.5, 0.5, "1", 2 ^ 32, 1 / 0, 0 / 0 } do
      refuses("share: buffer: expected OpenGL's number of a buffer, got", context.share, context, name, {})
    end
    refuses("share: use", context.share, context, buffer, { device = gpu.name, use = "both" })
    refuses("share: route", context.share, context, buffer, { device = gpu.name, route = "short" })
    refuses("share: device", context.share, context, buffer, { device = "cpu" })
    local shared = assert(context:share(buffer, { device = gpu.name }))
    refuses("do not fit", shared.map, shared, nil, { N + 1 }, "float32", print)
    local through_host = assert(context:share(buffer, { device = gpu.name, route = "copied" }))
    refuses("glGetBufferSubData answered 0x501", through_host.map, through_host, nil, { N + 1 }, "float32", print)
    assert(through_host:close())
    refuses("map: expected a function", shared.map, shared, nil, { N }, "float32")
    assert(shared:close())
  end)
end)
