-- Streams in Lua: made, named, taken from others, current for the length of a call, and given back.
local ffi = require "ffi"
local mf = require "moonferry"
local gpu = require "gpu"
local helper = require "helper"
local C, refuses = helper.C, helper.refuses

local D = gpu.name

pcall(ffi.cdef, "struct spec_stream;")

gpu.describe("a stream", function()
  it("is made, used and closed", function()
    local s = mf.stream(D)
    assert.are.equal(D, s.device)
    assert.is_true(ffi.istype("void *", s.handle))
    assert.is_true(s.handle ~= nil)
    assert.is_true(s:query())
    assert.is_true(s:synchronize())
    assert.is_true(mf.is_stream(s))
    assert.is_truthy(tostring(s):find("^mf%.stream<" .. D .. " 0x%x+>$"))
    refuses("a stream has no field \"sync\"", function() return s.sync end)
    refuses("; use s:synchronize", function() return s.sychronize end)
    refuses("; use s.device", function() return s.devise end)
    refuses("a stream has no field \"device\" that can be set", function() s.device = "cuda:9" end)
    assert.are.equal(D, s.device)
    s:close()
    s:close()
    assert.are.equal("mf.stream<closed>", tostring(s))
    assert.is_true(mf.is_stream(s))
  end)

  it("is the driver's next one again once it was given back", function()
    local s = mf.stream(D)
    local handle = s.handle
    s:close()
    assert.is_true(mf.stream(D).handle == handle)
  end)

  it("that was closed is not given back again by the collector, whoever has its handle then", function()
    mf.stream(D):close()
    local next_one = mf.stream(D)
    collectgarbage()
    collectgarbage()
    local another = mf.stream(D)
    assert.is_false(next_one.handle == another.handle)
    next_one:close()
    another:close()
  end)

  it("refuses every use once it is closed", function()
    local s, other = mf.stream(D), mf.stream(D)
    local methods = { synchronize = s.synchronize, query = s.query, wait = s.wait }
    s:close()
    for _, method in pairs(methods) do
      refuses("stream closed", method, s, other)
    end
    refuses("stream closed", other.wait, other, s)
    refuses("stream closed", mf.with_stream, s, print)
    refuses("stream closed", function()
      return s.handle
    end)
    refuses("stream closed", function()
      s.name = 1
    end)
    local t = mf.zeros(2, "int8", { device = D })
    refuses("stream closed", t.acquire, t, s, "read")
    refuses("stream closed", t.to, t, "cpu", { stream = s })
    refuses("stream closed", t.to_dlpack, t, { stream = s })
  end)

  it("is given back by the collector and by a scope", function()
    for _ = 1, 50 do
      assert(mf.stream(D))
    end
    local kept = mf.scope(function(scope)
      for _ = 1, 50 do
        assert(mf.stream(D))
      end
      return scope:keep(mf.stream(D))
    end)
    assert.is_true(kept:query())
    local early
    refuses("out", mf.scope, function()
      early = mf.stream(D)
      error "out"
    end)
    assert.are.equal("mf.stream<closed>", tostring(early))
  end)

  it("has a name of its own where it has one", function()
    local default, mine = mf.default_stream(D), mf.per_thread_stream(D)
    assert.is_truthy(tostring(default):find("default", 1, true))
    assert.is_truthy(tostring(mine):find("per thread", 1, true))
    assert.is_true(default == mf.default_stream(D))
    assert.is_false(default == mine)
    assert.is_true(default == mf.current_stream(D))
    assert.are.equal(gpu.kind == "cuda" and 1 or 0, tonumber(ffi.cast("intptr_t", default.handle)))
    assert.are.equal(2, tonumber(ffi.cast("intptr_t", mine.handle)))
    for _, named in ipairs { default, mine } do
      assert.is_true(mf.wrap_stream(D, named.handle) == named)
    end
    default:close()
    assert.is_true(mf.default_stream(D):synchronize())
    assert.is_true(mf.wrap_stream(D, ffi.cast("void *", 0)) == mf.default_stream(D))
  end)

  it("of another library is used under its handle, in any form", function()
    local theirs = gpu.driver.stream()
    local number = tonumber(ffi.cast("intptr_t", theirs))
    for _, form in ipairs { theirs, number, ffi.cast("uint64_t", number), ffi.cast("int64_t", number),
      ffi.cast("struct spec_stream *", theirs), ffi.cast("uintptr_t", number) } do
      local s = mf.wrap_stream(D, form)
      assert.is_true(s.handle == theirs)
      s:close()
    end
    local owner = setmetatable({}, { __mode = "k" })
    local s
    do
      local object = {}
      owner[object] = true
      s = mf.wrap_stream(D, theirs, object)
    end
    collectgarbage()
    assert.is_not_nil(next(owner))
    assert.is_true(s:synchronize())
    s:close()
    collectgarbage()
    assert.is_nil(next(owner))
    gpu.driver.destroy(theirs)
  end)

  it("of Moonferry's own is given back by who made it, whoever else has its handle", function()
    local on, made, before = ffi.new("DLDevice[1]"), ffi.new "int64_t[1]", ffi.new "int64_t[1]"
    assert(C.mf_device_parse(D, on, nil) == 0 and C.mf_stream_create(on[0], made, nil) == 0)
    assert(C.mf_stream_swap(on[0], made[0], before, nil) == 0)
    mf.current_stream(D):close()
    mf.wrap_stream(D, ffi.cast("void *", made[0])):close()
    assert(C.mf_stream_swap(on[0], before[0], nil, nil) == 0)
    assert.are.equal(0, C.mf_stream_destroy(on[0], made[0], nil))
  end)

  it("that cannot be one is refused", function()
    for _, bad in ipairs { -1, -5, 1.5, "1", {}, true, print, 2 ^ 60 } do
      refuses("wrap_stream", mf.wrap_stream, D, bad)
    end
    refuses("wrap_stream", mf.wrap_stream, D)
    if gpu.kind == "cuda" then
      refuses("wrap_stream: stream is 0", mf.wrap_stream, D, 0)
    else
      assert.is_true(mf.wrap_stream(D, 0) == mf.default_stream(D))
      refuses("wrap_stream", mf.wrap_stream, D, 1)
    end
    refuses("wrap_stream: handle: expected a pointer or an integer, got", mf.wrap_stream, D,
      ffi.new "struct { int x; }")
    refuses("wrap_stream: device", mf.wrap_stream, "nowhere", 16)
    refuses("stream: device", mf.stream, "nowhere")
    refuses("stream: device", mf.stream)
    refuses("stream", mf.stream, "cpu")
    refuses("wait: other: expected a stream, got nil", mf.stream(D).wait, mf.stream(D))
    local s, message, code = mf.stream(gpu.kind .. ":99")
    assert.is_nil(s)
    assert.are.equal(mf.EDEVICE, code)
    assert.is_truthy(message:find("99", 1, true))
  end)

  it("waits for another, which the host does not", function()
    gpu.seeds(function(seed)
      local a, b = mf.stream(D), mf.stream(D)
      local p, q = gpu.driver.alloc(64), gpu.driver.alloc(64)
      gpu.driver.fill(p, seed + 1, 64, a.handle)
      assert.is_true(b:wait(a) == b)
      gpu.driver.copy(q, p, 64, b.handle)
      b:synchronize()
      local seen = mf.wrap(q, 64, "uint8", { device = D, stream = b })
      assert.are.equal(seed + 1, seen:tolist()[64])
      seen:close()
      assert.is_true(mf.synchronize(D))
      gpu.driver.free(p)
      gpu.driver.free(q)
      a:close()
      b:close()
    end)
  end)
end)

gpu.describe("with_stream", function()
  it("makes the stream current, and returns what the function returns", function()
    local s, before = mf.stream(D), mf.current_stream(D)
    local function body(...)
      assert.is_true(rawequal(s, mf.current_stream(D)))
      return select("#", ...), ...
    end
    assert.are.same({ 3, 1, nil, 3 }, { mf.with_stream(s, body, 1, nil, 3) })
    assert.is_true(mf.current_stream(D) == before)
    assert.are.equal(0, select("#", mf.with_stream(s, function() end)))
  end)

  it("runs it in the coroutine that calls, where that is none", function()
    local program = ([[
      local mf = require "moonferry"
      local function running() return tostring(coroutine.running()) end
      print(mf.with_stream(mf.default_stream "%s", running) == running())
    ]]):format(D)
    assert.are.same({ "true\n", 0 }, { helper.luajit(program) })
  end)

  it("nests, and leaves other devices alone", function()
    local a, b = mf.stream(D), mf.stream(D)
    mf.with_stream(a, function()
      mf.with_stream(b, function()
        assert.is_true(mf.current_stream(D) == b)
        refuses("close: the stream is current", a.close, a)
        refuses("close: the stream is current", b.close, b)
      end)
      assert.is_true(mf.current_stream(D) == a)
      b:close()
      if gpu.second then
        assert.is_true(mf.current_stream(gpu.second) == mf.default_stream(gpu.second))
      end
    end)
    a:close()
  end)

  it("finds the current stream, whichever of its objects were closed", function()
    local s = mf.stream(D)
    mf.wrap_stream(D, s.handle):close()
    mf.with_stream(s, function()
      assert.is_true(mf.current_stream(D) == s)
    end)
  end)

  it("finds the object that is current after another one of its handle was closed", function()
    local theirs = gpu.driver.stream()
    local first, second = mf.wrap_stream(D, theirs), mf.wrap_stream(D, theirs)
    first:close()
    mf.with_stream(second, function()
      assert.is_true(rawequal(mf.current_stream(D), second))
    end)
    second:close()
    gpu.driver.destroy(theirs)
  end)

  it("leaves the default stream current where the one before is gone", function()
    if not gpu.simulated() then
      return
    end
    local theirs = gpu.driver.stream()
    local before, inner = mf.wrap_stream(D, theirs), mf.stream(D)
    mf.with_stream(before, function()
      refuses("with_stream: the stream that was current before cannot be again", mf.with_stream, inner,
        gpu.driver.destroy, theirs)
      assert.is_true(mf.current_stream(D) == mf.default_stream(D))
    end)
    mf.with_stream(inner, function() -- one that is gone is not entered, and nothing is left
      mf.wrap_stream(D, D:find "^cuda" and 1 or 0)
      refuses("no living stream", mf.with_stream, before, print)
      assert.is_true(mf.current_stream(D) == inner)
    end)
    inner:close()
    assert.is_true(gpu.sim.sim_findings(gpu.MISUSE) > 0)
    gpu.sim.sim_reset() -- the driver was asked about a stream that is gone
  end)

  it("restores the stream before after an error, which goes on as it was", function()
    local s, what = mf.stream(D), {}
    local ok, raised = pcall(mf.with_stream, s, function()
      error(what)
    end)
    assert.is_false(ok)
    assert.is_true(rawequal(what, raised))
    assert.is_true(mf.current_stream(D) == mf.default_stream(D))
    s:close()
  end)

  it("is left while its function is suspended, and entered again", function()
    local s, default = mf.stream(D), mf.default_stream(D)
    local step = coroutine.wrap(function(...)
      return "end", mf.with_stream(s, function(a, b)
        assert.is_true(mf.current_stream(D) == s)
        local c = coroutine.yield(a + b)
        assert.is_true(mf.current_stream(D) == s)
        local d = coroutine.yield(a + b + c)
        assert.is_true(mf.current_stream(D) == s)
        return d, nil, a
      end, ...)
    end)
    assert.are.equal(3, step(1, 2))
    assert.is_true(mf.current_stream(D) == default)
    assert.are.equal(6, step(3))
    assert.is_true(mf.current_stream(D) == default)
    assert.are.same({ n = 4, "end", 4, nil, 1 }, { n = 4, step(4) })
    assert.is_true(mf.current_stream(D) == default)
  end)

  it("is left at whichever instruction an error of a debug hook comes", function()
    local compiles, default = jit.status(), assert(mf.default_stream(D))
    local ways = { mf.with_stream, function(...)
      return coroutine.wrap(mf.with_stream)(...)
    end }
    finally(function()
      debug.sethook()
      if compiles then
        jit.on()
      end
    end)
    jit.off()
    jit.flush()
    for _, way in ipairs(ways) do
      local at, struck = 0, true
      while struck do
        at, struck = at + 1, false
        local s, count = assert(mf.stream(D)), 0
        pcall(function()
          debug.sethook(function()
            count = count + 1
            struck = count == at
            if struck then
              debug.sethook()
              error("struck", 0)
            end
          end, "", 1)
          way(s, mf.current_stream, D)
          debug.sethook()
        end)
        debug.sethook()
        assert.is_true(mf.current_stream(D) == default, "at instruction " .. at)
        s:close()
      end
      assert.is_true(at > 50)
    end
  end)

  it("is left for good when the coroutine is given up, or fails", function()
    local s = mf.stream(D)
    local forgotten = coroutine.wrap(function()
      mf.with_stream(s, coroutine.yield)
    end)
    forgotten()
    s:close()
    assert.is_true(mf.current_stream(D) == mf.default_stream(D))
    refuses("stream closed", forgotten)
    local t = mf.stream(D)
    local failing = coroutine.create(function()
      mf.with_stream(t, error, "inside", 0)
    end)
    assert.are.same({ false, "inside" }, { coroutine.resume(failing) })
    assert.is_true(mf.current_stream(D) == mf.default_stream(D))
    t:close()
  end)

  it("leaves the coroutine in its scope", function()
    local s = mf.stream(D)
    local made
    coroutine.wrap(function()
      mf.scope(function()
        mf.with_stream(s, function()
          made = mf.zeros(2, "int8", { device = D })
        end)
      end)
    end)()
    refuses("tensor closed", function()
      return made.shape
    end)
  end)

  it("that is current where the scope that made it ends stays open, and nothing else", function()
    local s, before, behind
    local thread = coroutine.create(function()
      mf.scope(function()
        before, s, behind = mf.zeros(1), mf.stream(D), mf.zeros(1)
        coroutine.yield()
      end)
    end)
    assert(coroutine.resume(thread))
    assert.matches("the stream is current", select(2, mf.with_stream(s, coroutine.resume, thread)))
    assert.is_false(pcall(function() return before.shape end))
    assert.is_false(pcall(function() return behind.shape end))
    s:close()
  end)

  it("refuses what is no stream and no function", function()
    refuses("with_stream: expected a stream, got", mf.with_stream, 5, print)
    refuses("with_stream: expected a function, got nil", mf.with_stream, mf.stream(D))
  end)

  it("queues on that stream what is told no other", function()
    if not gpu.simulated() then
      return
    end
    local s = mf.stream(D)
    local t = mf.with_stream(s, mf.full, 1000, 7, "int32", { device = D })
    assert.is_true(mf.default_stream(D):synchronize())
    assert.is_false(s:query())
    assert.are.equal(7, mf.with_stream(s, t.tolist, t)[1000])
    t:close()
  end)
end)

gpu.describe("a device", function()
  it("is counted, waited for and read", function()
    assert.are.equal(gpu.count, mf.device_count(gpu.kind))
    assert.are.equal(1, mf.device_count "cpu")
    refuses("device_count: type", mf.device_count, "cuda:0")
    refuses("device_count: type", mf.device_count, 2)
    refuses("device_count: device", mf.device_count, "nothing")
    local t = mf.zeros(1000, "float32", { device = D })
    local pool = mf.pool_stats(D)
    assert.is_true(pool.used_bytes >= 4000)
    t:close()
    assert.is_true(mf.synchronize(D))
    assert.is_true(mf.pool_stats(D).cached_bytes >= 4000)
    local again = mf.empty(1000, "float32", { device = D })
    assert.are.equal(pool.hits + 1, mf.pool_stats(D).hits)
    again:close()
    assert.is_true(mf.trim(D))
    assert.are.equal(0, mf.pool_stats(D).cached_bytes)
    for _, verb in ipairs { "pool_stats", "trim", "synchronize" } do
      refuses(verb .. ": device", mf[verb], "nowhere")
      refuses(verb .. ": device", mf[verb])
      local nothing, _, code = mf[verb](gpu.kind .. ":99")
      assert.is_nil(nothing)
      assert.are.equal(mf.EDEVICE, code)
    end
  end)

  it("keeps to the limit of its memory", function()
    assert.is_true(mf.pool_limit(D, 2 ^ 20))
    assert.are.equal(2 ^ 20, mf.pool_stats(D).limit_bytes)
    local t, message, code = mf.empty(2 ^ 21, "int8", { device = D })
    assert.is_nil(t)
    assert.are.equal(mf.ENOMEM, code)
    assert.is_truthy(message:find("empty: ", 1, true))
    -- What garbage holds is collected before an allocation is refused.
    for _ = 1, 10 do
      assert(mf.empty(600 * 1024, "int8", { device = D }))
    end
    assert.is_true(mf.pool_limit(D, 0))
    refuses("pool_limit", mf.pool_limit, D, -1)
    refuses("pool_limit: nbytes", mf.pool_limit, D, "x")
  end)
end)

gpu.describe("stream_none", function()
  it("says and sets what None means", function()
    assert.are.equal("default", mf.stream_none())
    for _, meaning in ipairs { "no_order", "refuse", "default" } do
      assert.are.equal(meaning, mf.stream_none(meaning))
      assert.are.equal(meaning, mf.stream_none())
    end
    refuses("stream_none", mf.stream_none, "other")
  end)
end)
