-- Tensors on devices in Lua: made there, moved, shown, and what of their elements the host can reach.
local mf = require "moonferry"
local gpu = require "gpu"
local helper = require "helper"
local refuses = helper.refuses

local D, PINNED = gpu.name, gpu.pinned

local MATRIX = { { 1, 2, 3 }, { 4, 5, 6 } }

-- Every place that memory can be in here.
local function places()
  local list = { "cpu", PINNED, D }
  list[#list + 1] = gpu.managed
  list[#list + 1] = gpu.second
  return list
end

gpu.describe("a tensor on a device", function()
  it("is made by every constructor", function()
    for _, place in ipairs(places()) do
      local on = { device = place }
      local e = mf.empty({ 2, 3 }, "int32", on)
      assert.are.equal(place, e.device)
      assert.are.same({ 2, 3 }, e.shape)
      assert.are.same({ { 0, 0, 0 }, { 0, 0, 0 } }, mf.zeros({ 2, 3 }, "float64", on):tolist())
      assert.are.same({ 1, 1 }, mf.ones(2, "int8", on):tolist())
      assert.are.same({ -2, -2, -2 }, mf.full(3, -2, "int16", on):tolist())
      assert.are.same({ 0.5 }, mf.full(1, 0.5, "float16", on):tolist())
      assert.are.same(MATRIX, mf.tensor(MATRIX, "float32", on):tolist())
      assert.are.same({ 5, -3 }, mf.tensor({ 5, -3 }, "int4", { device = place, padded = true }):tolist())
      assert.are.equal(7, mf.tensor(7, "uint64", on):tolist())
      assert.are.same({}, mf.zeros(0, "float32", on):tolist())
    end
    refuses("tensor: options: unknown option", mf.tensor, MATRIX, "float32", { place = D })
    refuses("device is", mf.tensor, MATRIX, "float32", { device = "nowhere" })
    refuses("tensor: value", mf.tensor, { 1, "x" }, "float32", { device = D })
  end)

  it("is refused where there is no such device", function()
    for _, make in ipairs { mf.empty, mf.zeros, mf.ones } do
      local t, message, code = make(2, "float32", { device = gpu.kind .. ":77" })
      assert.is_nil(t)
      assert.are.equal(mf.EDEVICE, code)
      assert.is_truthy(message:find("77", 1, true))
    end
    local t, message, code = mf.tensor(MATRIX, "float32", { device = gpu.kind .. ":77" })
    assert.is_nil(t)
    assert.are.equal(mf.EDEVICE, code)
    assert.is_truthy(message:find("77", 1, true))
  end)

  it("goes from anywhere to anywhere", function()
    for _, from in ipairs(places()) do
      for _, to in ipairs(places()) do
        for _, copy in ipairs { "nil", "true" } do
          local t = mf.tensor(MATRIX, "float32", { device = from })
          local v = t:view(mf.all, { nil, nil, -1 })
          local u = v:to(to, { copy = copy == "true" or nil })
          t:close()
          v:close()
          assert.are.equal(to, u.device)
          assert.are.same({ { 3, 2, 1 }, { 6, 5, 4 } }, u:tolist())
          u:close()
        end
      end
    end
  end)

  it("is itself, or the same memory, where no copy is asked for", function()
    local t = mf.tensor(MATRIX, "float32", { device = D })
    local same, copy = t:to(D), t:to(D, { copy = true })
    assert.is_true(same._dl.data == t._dl.data)
    assert.is_false(copy._dl.data == t._dl.data)
    assert.is_true(t:to(D, { copy = false })._dl.data == t._dl.data)
    t:close()
    assert.are.same(MATRIX, same:tolist())
    refuses("to: ", same.to, same, "cpu", { copy = false })
    local pinned = mf.tensor(MATRIX, "float32", { device = PINNED })
    local relabelled = pinned:to("cpu", { copy = false })
    assert.are.equal("cpu", relabelled.device)
    relabelled:put(0, 0, 10)
    assert.are.equal(10, pinned:get(0, 0))
    refuses("to: ", pinned.to, pinned, D, { copy = false })
    if gpu.managed then
      local managed = mf.tensor(MATRIX, "float32", { device = gpu.managed })
      local on_gpu = managed:to(D, { copy = false })
      assert.are.equal(D, on_gpu.device)
      assert.is_true(on_gpu._dl.data == managed._dl.data)
      refuses("t:to(\"cpu\")", on_gpu.ptr, on_gpu)
      assert.are.same(MATRIX, on_gpu:tolist())
    end
  end)

  it("refuses to go where it is told nonsense", function()
    local t = mf.tensor(MATRIX, "float32", { device = D })
    refuses("to: device", t.to, t)
    refuses("to: device", t.to, t, 5)
    refuses("to: device", t.to, t, "nowhere")
    refuses("to: options", t.to, t, "cpu", true)
    refuses("to: options", t.to, t, "cpu", mf.default_stream(D))
    refuses("to: options: unknown option", t.to, t, "cpu", { strem = 1 })
    refuses("to: copy", t.to, t, "cpu", { copy = 1 })
    refuses("to: stream: expected a stream", t.to, t, "cpu", { stream = 1 })
    refuses("to: stream: expected a stream", t.to, t, "cpu", { stream = "no_order" })
    if gpu.second then
      refuses("cannot order memory on " .. D, t.to, t, D, { stream = mf.stream(gpu.second), copy = true })
      refuses("cannot order memory on " .. D, t.acquire, t, mf.stream(gpu.second), "read")
    end
    local nothing, _, code = t:to(gpu.kind .. ":77")
    assert.is_nil(nothing)
    assert.are.equal(mf.EDEVICE, code)
    t:close()
    refuses("tensor closed", function()
      t:to("cpu")
    end)
  end)

  it("moves on the stream that is given", function()
    gpu.seeds(function(seed)
      local s, other = mf.stream(D), mf.stream(D)
      local t = mf.full({ 8, 8 }, seed, "int32")
      local a = t:to(D, { stream = s })
      local b = a:to(D, { stream = other, copy = true })
      local c = b:permute_dims():to(PINNED, { stream = s })
      local d = b:to("cpu", { stream = s })
      assert.are.equal(seed, c:get(7, 0))
      assert.are.equal(seed, d:get(0, 7))
      assert.is_true(d:equal(t) and c:to("cpu"):equal(t))
      mf.scope(function()
        for _ = 1, 3 do
          local e = mf.with_stream(other, b.copy, b)
          assert.is_true(mf.with_stream(s, e.to, e, "cpu"):equal(t))
        end
      end)
    end)
  end)

  it("is copied and filled across devices, whatever the layout", function()
    local list = places()
    for _, from in ipairs(list) do
      for _, to in ipairs(list) do
        local src = mf.tensor(MATRIX, "int32", { device = from }):permute_dims()
        local dst = mf.zeros({ 3, 4 }, "int32", { device = to })
        assert.is_true(dst:view(mf.all, { 1, 3 }):copy(src) ~= nil)
        assert.are.same({ { 0, 1, 4, 0 }, { 0, 2, 5, 0 }, { 0, 3, 6, 0 } }, dst:tolist())
        dst:view(mf.all, { nil, nil, 2 }):fill(9)
        assert.are.same({ { 9, 1, 9, 0 }, { 9, 2, 9, 0 }, { 9, 3, 9, 0 } }, dst:tolist())
      end
    end
    local t = mf.zeros(3, "int32", { device = D })
    refuses("copy", t.copy, t, mf.zeros(4, "int32"))
    refuses("fill", t.fill, t:as_readonly(), 1)
  end)

  it("is shown with its values, which are copied once", function()
    local t = mf.tensor(MATRIX, "float32", { device = D })
    assert.are.equal("mf.tensor<float32[2,3] " .. D .. ">\n[[1., 2., 3.],\n [4., 5., 6.]]", tostring(t))
    local v = t:view(1, { nil, nil, 2 })
    assert.are.equal("mf.tensor<float32[2] " .. D .. " strides=[2]>\n[4., 6.]", tostring(v))
    assert.are.same({ 4, 6 }, v:tolist())
    assert.is_truthy(tostring(mf.zeros({ 50, 50 }, "int8", { device = D })):find("...", 1, true))
    local tensors = mf.ledger().tensors
    t:tolist()
    tostring(t)
    assert.are.equal(tensors, mf.ledger().tensors)
    if gpu.sim then
      local calls = {}
      for i, size in ipairs { 2, 200 } do
        local u = mf.zeros(size, "int8", { device = D })
        tostring(u)
        local before = gpu.calls(nil)
        tostring(u)
        calls[i] = gpu.calls(nil) - before
      end
      assert.are.equal(calls[1], calls[2])
    end
  end)

  it("does not let the host touch its elements, and says what to do", function()
    local t = mf.tensor(MATRIX, "float32", { device = D })
    local advice = "the elements are on " .. D .. ", where the host cannot reach them; t:to(\"cpu\") copies them"
    refuses(advice, t.row, t, 0)
    refuses(advice, t.rows, t)
    refuses(advice, t.ptr, t)
    refuses(advice, t.at, t, 0, 0)
    refuses(advice, t.set, t, 0, 0, 1)
  end)

  it("gives and takes single elements, which alone are copied", function()
    local t = mf.tensor(MATRIX, "float32", { device = D })
    assert.are.equal(6, t:get(1, -1))
    t:put(1, 2, 7.5)
    assert.are.equal(7.5, t:get(1, 2))
    assert.are.same({ { 1, 2, 3 }, { 4, 5, 7.5 } }, t:tolist())
    refuses("get: index 2 is out of range for axis 0 of extent 2", t.get, t, 2, 0)
    refuses("range", t.put, t, 0, 3, 1)
    refuses("read-only", t:as_readonly().put, t:as_readonly(), 0, 0, 1)
    local half = mf.zeros({ 1, 1, 1, 1 }, "float16", { device = D })
    half:put(0, 0, 0, 0, 1.5)
    assert.are.equal(1.5, half:get(0, 0, 0, 0))
    local nibbles = mf.zeros({ 5 }, "int4", { device = D })
    nibbles:put(2, -3)
    assert.are.same({ 0, 0, -3, 0, 0 }, nibbles:tolist())
  end)

  it("is converted and compared where it is", function()
    local host = mf.tensor({ { 1, 2.5, -3 }, { 0, 1e9, 6 } }, "float64")
    local t = host:to(D)
    for _, name in ipairs { "float32", "float16", "bfloat16", "int8", "uint8", "int64", "bool", "complex64" } do
      local converted = t:astype(name)
      assert.are.equal(D, converted.device)
      assert.is_true(converted:equal(host:astype(name)), name)
      assert.is_true(converted:equal(host:astype(name):to(D)), name)
    end
    assert.is_false(t:equal(mf.zeros({ 2, 3 }, "float64", { device = D })))
    assert.is_false(t:equal(t:astype("float32")))
  end)
end)

-- What makes a GPU write the memory of `t`, on a stream of its own, so that the host has something to wait for.
local function busy(t, value)
  local s = mf.stream(D)
  assert(t:acquire(s, "write"))
  gpu.driver.fill(gpu.address(t), value, t.nbytes, s.handle)
end

gpu.describe("pinned and managed memory", function()
  local READERS = {
    ptr = function(t)
      return t:ptr()[5]
    end,
    row = function(t)
      return t:row(1)[2]
    end,
    rows = function(t)
      local sum = 0
      for _, row in t:rows() do
        sum = sum + row[2]
      end
      return sum / 2
    end,
    at = function(t)
      return t:at(1, 2)
    end,
    get = function(t)
      return t:get(1, 2)
    end,
    tolist = function(t)
      return t:tolist()[2][3]
    end,
    tostring = function(t)
      return tonumber(tostring(t):match("(%d+)%]%]$"))
    end,
  }

  for name, reader in pairs(READERS) do
    it("is read by " .. name .. " after the host has waited, each time", function()
      for _, place in ipairs { PINNED, gpu.managed } do
        gpu.seeds(function(seed)
          local t = mf.zeros({ 2, 3 }, "uint8", { device = place })
          local label = t:to("cpu"):view(mf.ellipsis)
          for turn = 1, 3 do
            busy(t, seed + turn)
            assert.are.equal(seed + turn, reader(t))
            gpu.host_uses(t._dl.data, 6, false)
            busy(t, seed + turn + 100)
            assert.are.equal(seed + turn + 100, reader(label))
          end
          label:close()
          t:close()
        end)
      end
    end)
  end

  it("is used on another GPU's stream, also on one that has a name", function()
    if not gpu.second then
      return
    end
    for _, place in ipairs { PINNED, gpu.managed } do
      local t, s = mf.zeros(6, "uint8", { device = place }), mf.stream(gpu.second)
      local named = { mf.default_stream(gpu.second), mf.per_thread_stream(gpu.second), mf.default_stream(D) }
      for _, on in ipairs { s, unpack(named) } do
        assert.is_true(rawequal(t, t:acquire(on, "write")))
        assert.is_true(rawequal(t, t:record(on, "write")))
      end
      t:close()
      s:close()
    end
  end)

  it("waits for the GPU whose stream has the name", function()
    if not gpu.second then
      return
    end
    for _, place in ipairs { PINNED, gpu.managed } do
      gpu.seeds(function(seed)
        local t, there = mf.full(6, seed, "uint8", { device = place }), mf.default_stream(gpu.second)
        local src = mf.full(6, seed + 1, "uint8", { device = gpu.second })
        t:acquire(there, "write")
        t:record(there, "write")
        mf.with_stream(there, t.copy, t, src)
        t:acquire("host", "read")
        assert.are.equal(seed + 1, t:ptr()[0])
        src:close()
        t:close()
      end)
    end
  end)

  it("is written after the host has waited for readers", function()
    for _, place in ipairs { PINNED, gpu.managed } do
      gpu.seeds(function(seed)
        local t = mf.full(6, seed, "uint8", { device = place })
        local writers = {
          function()
            t:ptr()[0] = 200
          end,
          function()
            t:set(0, 201)
          end,
          function()
            t:put(0, 202)
          end,
        }
        for turn, write in ipairs(writers) do
          local u = t:to(D, { copy = true })
          write()
          gpu.host_uses(t._dl.data, 6, true)
          assert.are.equal(turn == 1 and seed or 198 + turn, u:tolist()[1])
          assert.are.equal(199 + turn, t:get(0))
          u:close()
        end
        t:close()
      end)
    end
  end)

  it("may be read by the host and a GPU at once if it is read-only", function()
    if not gpu.simulated() then
      return
    end
    local t = mf.full(6, 3, "uint8", { device = PINNED }):as_readonly()
    local s = mf.stream(D)
    local u = t:to(D, { copy = true, stream = s })
    assert.are.equal(3, t:ptr()[0])
    gpu.host_uses(t._dl.data, 6, false)
    assert.is_false(s:query())
    assert.are.equal(3, u:tolist()[1])
    refuses("read-only", t.put, t, 0, 1)
  end)

  it("has loops that compile", function()
    if not jit.status() then
      return
    end
    local t = mf.ones({ 300, 4 }, "float32", { device = PINNED })
    local stops, aborts = 0, {}
    local function watch(what, _, _, _, code)
      stops = stops + (what == "stop" and 1 or 0)
      aborts[#aborts + 1] = what == "abort" and code or nil
    end
    local sum = 0
    jit.flush()
    jit.attach(watch, "trace")
    for i = 0, 299 do
      sum = sum + t:row(i)[3]
    end
    for i = 0, 299 do
      sum = sum + t:at(i, 1)
    end
    for _, row in t:rows() do
      sum = sum + row[0]
    end
    jit.attach(watch)
    assert.are.equal(900, sum)
    assert.is_true(stops >= 3, stops .. " traces; aborts: " .. table.concat(aborts, " "))
  end)

  it("is refused once it was taken back", function()
    local t = mf.zeros(8, "uint8", { device = PINNED })
    local w = mf.wrap(t:ptr(), 8, "uint8", { device = PINNED, owner = false })
    assert.are.equal(0, w:get(0))
    w:invalidate()
    refuses("taken back", w.ptr, w)
    refuses("taken back", w.get, w, 0)
    w:close()
    t:close()
  end)
end)
