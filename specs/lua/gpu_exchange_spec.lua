-- Exchange with another library on the same driver, on two streams: the bytes are right under every seed, and the
-- simulator finds no unordered access.
local ffi = require "ffi"
local mf = require "moonferry"
local gpu = require "gpu"
local helper = require "helper"
local refuses = helper.refuses

local D, driver = gpu.name, gpu.driver
local NBYTES = gpu.NBYTES
local READ_ONLY, COPIED = 1, 2
local DEVICE_TYPE = gpu.kind == "cuda" and 2 or 10

local streams, finish, bytes_of, on = gpu.streams, gpu.finish, gpu.bytes_of, gpu.on

-- Their memory as a struct that counts its deletions.
local function their_struct(ptr, legacy, flags)
  return (legacy and helper.managed_legacy or helper.managed) {
    data = ffi.cast("void *", ffi.cast("intptr_t", ptr)), device_type = DEVICE_TYPE, code = 1, bits = 8,
    shape = { NBYTES }, strides = { 1 }, flags = flags,
  }
end

gpu.describe("memory of ours", function()
  -- Every form in which the consumer's stream can be said.
  local function forms(wrapped, theirs)
    return {
      wrapped, tonumber(ffi.cast("intptr_t", theirs)), ffi.cast("uint64_t", ffi.cast("intptr_t", theirs)),
    }
  end

  it("is read and written by a consumer on its stream, and then by us", function()
    gpu.seeds(function(seed)
      local mine, theirs, wrapped = streams()
      local copy = driver.alloc(NBYTES)
      for i, form in ipairs(forms(wrapped, theirs)) do
        for _, method in ipairs { "to_dlpack", "to_dlpack_legacy" } do
          local t = mf.with_stream(mine, mf.full, NBYTES, seed + i, "uint8", { device = D })
          local m = t[method](t, { stream = form })
          local ptr = ffi.cast("uint64_t", ffi.cast("intptr_t", m.dl_tensor.data))
          driver.copy(copy, ptr, NBYTES, theirs)
          driver.fill(ptr, 100 + i, NBYTES, theirs)
          m.deleter(m)
          assert.are.equal(100 + i, on(mine, t, "tolist")[NBYTES])
          assert.are.equal(seed + i, bytes_of(copy, theirs))
          t:close()
        end
      end
      driver.free(copy)
      finish(theirs, wrapped)
    end)
  end)

  it("is not used again before a consumer's work on it is done", function()
    gpu.seeds(function(seed)
      local mine, theirs, wrapped = streams()
      local copy = driver.alloc(NBYTES)
      local t = mf.with_stream(mine, mf.full, NBYTES, 50, "uint8", { device = D })
      local m = t:to_dlpack { stream = wrapped }
      t:close()
      driver.copy(copy, ffi.cast("uint64_t", ffi.cast("intptr_t", m.dl_tensor.data)), NBYTES, theirs)
      m.deleter(m)
      for i = 1, 4 do
        mf.with_stream(mine, mf.full, NBYTES, seed + i, "uint8", { device = D }):close()
      end
      assert.are.equal(50, bytes_of(copy, theirs))
      driver.free(copy)
      finish(theirs, wrapped)
    end)
  end)

  it("is copied, or moved, on the consumer's stream", function()
    gpu.seeds(function(seed)
      local mine, theirs, wrapped = streams()
      local host = mf.full(NBYTES, seed, "uint8")
      local m = host:to_dlpack { stream = wrapped, device = D }
      assert.are.equal(COPIED, tonumber(m.flags))
      local dl = m.dl_tensor
      assert.are.equal(DEVICE_TYPE, dl.device.device_type)
      driver.fill(ffi.cast("uint64_t", ffi.cast("intptr_t", dl.data)), 9, NBYTES / 2, theirs)
      m.deleter(m)
      local t = mf.with_stream(mine, mf.full, NBYTES, seed, "uint8", { device = D })
      local c = t:to_dlpack { stream = wrapped, copy = true }
      driver.fill(ffi.cast("uint64_t", ffi.cast("intptr_t", c.dl_tensor.data)), 9, NBYTES, theirs)
      c.deleter(c)
      assert.are.equal(seed, on(mine, t, "tolist")[1])
      local h = t:to_dlpack { device = "cpu", stream = mine }
      assert.are.equal(seed, ffi.cast("uint8_t *", h.dl_tensor.data)[NBYTES - 1])
      h.deleter(h)
      t:close()
      finish(theirs, wrapped)
    end)
  end)

  it("goes to the current stream, or to the host that can read it, if nothing is said", function()
    gpu.seeds(function(seed)
      local mine, theirs, wrapped = streams()
      local t = mf.with_stream(mine, mf.full, NBYTES, seed, "uint8", { device = D })
      local m = on(wrapped, t, "to_dlpack")
      driver.fill(gpu.address(t), seed + 1, NBYTES, theirs)
      m.deleter(m)
      local p = mf.with_stream(mine, t.to, t, gpu.pinned)
      local q = p:to_dlpack()
      assert.are.equal(seed + 1, ffi.cast("uint8_t *", q.dl_tensor.data)[NBYTES - 1])
      gpu.host_uses(q.dl_tensor.data, NBYTES, false)
      q.deleter(q)
      t:close()
      p:close()
      finish(theirs, wrapped)
    end)
  end)

  it("is given on no stream that makes no sense", function()
    local t = mf.full(NBYTES, 1, "uint8", { device = D })
    for _, bad in ipairs { -5, -2, 1.5, "1", "default", true, print, 2 ^ 60 } do
      refuses("to_dlpack: stream", t.to_dlpack, t, { stream = bad })
      refuses("to_dlpack: stream", t.to_dlpack_legacy, t, { stream = bad })
    end
    refuses("to_dlpack: stream", t.to_dlpack, t, { stream = gpu.kind == "cuda" and 0 or 1 })
    refuses("to_dlpack: options", t.to_dlpack, t, { strem = 1 })
    refuses("to_dlpack: options", t.to_dlpack, t, 1)
    refuses("to_dlpack: options: expected a table, got", t.to_dlpack, t, mf.default_stream(D))
    refuses("to_dlpack: copy", t.to_dlpack, t, { copy = "yes" })
    refuses("to_dlpack: device", t.to_dlpack, t, { device = "nowhere" })
    refuses("to_dlpack: ", t.to_dlpack, t, { device = "cpu", copy = false })
    refuses("acquire: use", t.acquire, t, nil, "readwrite")
    refuses("acquire: use", t.acquire, t)
    refuses("acquire: stream", t.acquire, t, "no_order", "read")
    refuses("record: stream", t.record, t, "host", "read")
    refuses("acquire", t.acquire, t:as_readonly(), nil, "write")
    local fine = t:to_dlpack { stream = gpu.kind == "cuda" and 2 or 0 }
    fine.deleter(fine)
    local nothing, _, code = t:to_dlpack { device = gpu.kind .. ":77" }
    assert.is_nil(nothing)
    assert.are.equal(mf.EDEVICE, code)
    t:close()
  end)
end)

gpu.describe("memory of theirs", function()
  it("is imported on the stream on which it is ready, and deleted when our work on it is done", function()
    gpu.seeds(function(seed)
      for _, legacy in ipairs { false, true } do
        local mine, theirs, wrapped = streams()
        local ptr = driver.alloc(NBYTES)
        driver.fill(ptr, seed, NBYTES, theirs)
        local m, count = their_struct(ptr, legacy)
        local t = mf.from_dlpack(m, { stream = wrapped })
        assert.are.equal(D, t.device)
        local copy = on(mine, t, "copy")
        on(mine, t, "fill", 9)
        t:close()
        assert.are.equal(seed, on(mine, copy, "tolist")[NBYTES])
        copy:close()
        finish(theirs, wrapped)
        assert.are.equal(1, count[0])
        driver.free(ptr)
      end
    end)
  end)

  it("counts as ready on the current stream if nothing is said", function()
    gpu.seeds(function(seed)
      local mine, theirs, wrapped = streams()
      local ptr = driver.alloc(NBYTES)
      driver.fill(ptr, seed, NBYTES, theirs)
      local t = mf.with_stream(wrapped, mf.from_dlpack, (their_struct(ptr, false, READ_ONLY)))
      assert.is_true(t.readonly)
      assert.are.equal(seed, on(mine, t, "tolist")[NBYTES])
      refuses("read-only", t.fill, t, 1)
      t:close()
      finish(theirs, wrapped)
      driver.free(ptr)
    end)
  end)

  it("is wrapped as an integer, a number or a pointer, and let go when our work on it is done", function()
    gpu.seeds(function(seed)
      local mine, theirs, wrapped = streams()
      local ptr = driver.alloc(NBYTES)
      for _, form in ipairs { ptr, tonumber(ptr), ffi.cast("void *", ffi.cast("intptr_t", ptr)) } do
        driver.fill(ptr, seed, NBYTES, theirs)
        local t = mf.wrap(form, NBYTES, "uint8", { device = D, stream = wrapped })
        local half = mf.with_stream(mine, t.view, t, { nil, nil, 2 })
        on(mine, half, "fill", 200)
        local values = on(mine, t, "tolist")
        assert.are.same({ 200, seed, 200, seed }, { values[1], values[2], values[NBYTES - 1], values[NBYTES] })
        t:close()
        half:close()
        wrapped:wait(mine)
      end
      finish(theirs, wrapped)
      driver.free(ptr)
    end)
  end)

  it("is refused where the driver knows better", function()
    local host = ffi.new("uint8_t[?]", NBYTES)
    refuses("wrap: ", mf.wrap, host, NBYTES, "uint8", { device = D })
    refuses("wrap: ", mf.wrap, 4096, NBYTES, "uint8", { device = D })
    refuses("wrap: pointer", mf.wrap, 4096, NBYTES, "uint8")
    refuses("wrap: pointer", mf.wrap, "x", NBYTES, "uint8", { device = D })
    refuses("wrap: pointer", mf.wrap, 1.5, NBYTES, "uint8", { device = D })
    local ptr = driver.alloc(NBYTES)
    if gpu.second then
      local wrong, message, code = mf.wrap(ptr, NBYTES, "uint8", { device = gpu.second })
      assert.is_nil(wrong)
      assert.are.equal(mf.EDEVICE, code)
      assert.is_truthy(message:find(D, 1, true) and message:find(gpu.second, 1, true))
      refuses("wrap: stream", mf.wrap, ptr, NBYTES, "uint8", { device = D, stream = mf.stream(gpu.second) })
      local m, count = their_struct(ptr)
      refuses("from_dlpack: stream", mf.from_dlpack, m, { stream = mf.stream(gpu.second) })
      assert.are.equal(0, count[0])
    end
    refuses("wrap: stream", mf.wrap, ptr, NBYTES, "uint8", { device = D, stream = 5 })
    local m, count = their_struct(ptr)
    m.dl_tensor.device.device_id = 77
    local nothing, _, code = mf.from_dlpack(m)
    assert.is_nil(nothing)
    assert.are.equal(mf.EDEVICE, code)
    assert.are.equal(0, count[0])
    driver.free(ptr)
  end)
end)
