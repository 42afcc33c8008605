-- DLPack structs out and in, right ones and wrong ones, each deleted exactly once.
local ffi = require "ffi"
local mf = require "moonferry"
local helper = require "helper"
local refuses = helper.refuses

local READ_ONLY, COPIED, PADDED = 1, 2, 4

describe("to_dlpack", function()
  after_each(helper.nothing_left)

  it("gives a struct of DLPack 1.3 over the same memory", function()
    local t = mf.tensor({ { 1, 2 }, { 3, 4 }, { 5, 6 } }, "int32")
    local m = t:view({ nil, nil, 2 }):to_dlpack()
    assert.is_true(ffi.istype("DLManagedTensorVersioned *", m))
    assert.are.same({ 1, 3 }, { m.version.major, m.version.minor })
    local d = m.dl_tensor
    assert.are.same({ 2, 0, 32, 1 }, { d.ndim, d.dtype.code, d.dtype.bits, d.dtype.lanes })
    assert.are.same({ 1, 0 }, { d.device.device_type, d.device.device_id })
    assert.are.same({ 2, 2 }, { tonumber(d.shape[0]), tonumber(d.shape[1]) })
    assert.are.same({ 4, 1 }, { tonumber(d.strides[0]), tonumber(d.strides[1]) })
    assert.is_true(d.byte_offset == 0 and m.flags == 0)
    assert.is_true(ffi.cast("void *", t:ptr()) == d.data)
    t:close()
    collectgarbage()
    assert.are.equal(5, ffi.cast("int32_t *", d.data)[4])
    m.deleter(m)
  end)

  it("keeps flags", function()
    local m = mf.zeros(2, "int4", { padded = true }):as_readonly():to_dlpack()
    assert.are.equal(READ_ONLY + PADDED, tonumber(m.flags))
    m.deleter(m)
  end)

  it("may be deleted on any thread", function()
    local t = mf.zeros(3)
    local m = t:to_dlpack()
    t:close()
    helper.on_thread(m.deleter, m)
  end)

  it("gives the older struct where it can say all there is to say", function()
    local t = mf.tensor({ 1, 2 })
    local m = t:to_dlpack_legacy()
    assert.is_true(ffi.istype("DLManagedTensor *", m))
    assert.are.equal(2, ffi.cast("float *", m.dl_tensor.data)[1])
    m.deleter(m)
    refuses("to_dlpack", t.to_dlpack_legacy, t:as_readonly())
    refuses("to_dlpack", t.to_dlpack_legacy, mf.zeros(1, "int4", { padded = true }))
  end)
end)

describe("from_dlpack", function()
  after_each(helper.nothing_left)

  it("is deleted by the next count of what is alive where another thread was the last to let go", function()
    local m, count = helper.managed()
    local t = mf.from_dlpack(m)
    local handle = helper.C.mf_tensor_retain(t.handle)
    t:close()
    helper.on_thread(helper.C.mf_tensor_release_later, handle)
    assert.are.equal(0, count[0])
    assert.are.equal(0, mf.ledger().storages)
    assert.are.equal(1, count[0])
  end)

  it("takes both structs, without a copy, and deletes each once", function()
    for _, make in ipairs { helper.managed, helper.managed_legacy } do
      local m, count, anchor = make()
      local t = mf.from_dlpack(m)
      assert.are.same({ { 1, 2, 3 }, { 4, 5, 6 } }, t:tolist())
      anchor.data[5] = 60
      assert.are.equal(60, t:get(1, 2))
      local v, e = t:view(0), t:to_dlpack()
      t:close()
      v:close()
      assert.are.equal(0, count[0])
      e.deleter(e)
      assert.are.equal(0, count[0])
      mf.zeros(1):close()
      assert.are.equal(1, count[0])
    end
  end)

  it("deletes when the garbage collector finds the tensor", function()
    local m, count = helper.managed()
    mf.from_dlpack(m)
    collectgarbage()
    collectgarbage()
    assert.are.equal(1, count[0])
  end)

  it("takes a struct without a deleter", function()
    local m, count = helper.managed()
    m.deleter = nil
    mf.from_dlpack(m):close()
    assert.are.equal(0, count[0])
  end)

  it("keeps flags, strides, offsets and dtypes", function()
    local lent = helper.managed { flags = READ_ONLY + COPIED, strides = { 1, 2 }, byte_offset = 4, shape = { 2, 2 } }
    local t = mf.from_dlpack(lent) -- whose memory goes with that struct
    assert.are.same({ { 2, 4 }, { 3, 5 } }, t:tolist())
    assert.is_true(t.readonly)
    assert.are.equal(READ_ONLY + COPIED, t.flags)
    assert.are.same({ 1, 2 }, t.strides)
    for name, d in pairs { ["float8_e5m2"] = { 12, 8, 1 }, ["int7"] = { 0, 7, 1 }, ["bfloat16x2"] = { 4, 16, 2 },
      ["bool1"] = { 6, 1, 1 }, ["float4_e2m1fn"] = { 17, 4, 1 } } do
      local m = helper.managed { code = d[1], bits = d[2], lanes = d[3], shape = { 1, 1 }, strides = false }
      local u = mf.from_dlpack(m)
      assert.are.equal(name, u.dtype)
      local e = u:to_dlpack()
      assert.are.same(d, { e.dl_tensor.dtype.code, e.dl_tensor.dtype.bits, e.dl_tensor.dtype.lanes })
      e.deleter(e)
    end
  end)

  it("goes round through its own export", function()
    local t = mf.tensor({ 1, 2, 3 })
    local u = mf.from_dlpack(t:to_dlpack())
    local w = mf.from_dlpack(t:to_dlpack_legacy())
    t:close()
    assert.are.same({ 1, 2, 3 }, u:tolist())
    assert.is_true(u:equal(w))
  end)

  it("refuses malformed structs and leaves them to their owner", function()
    local devices = { -- what the environment may have: nil, message, code
      ["device.device_type is 0"] = { device_type = 0 }, ["device.device_type is 99"] = { device_type = 99 },
      ["device is cuda (device_type 2)"] = { device_type = 2 }, ["device is cpu:1; a device_id"] = { device_id = 1 },
    }
    local faults = {
      ["version.major is 2; 1 expected"] = { major = 2 }, ["version.major is 0; 1 expected"] = { major = 0 },
      ["dtype.code is 18"] = { code = 18 }, ["dtype.code is 255"] = { code = 255 }, ["dtype.bits is 0"] = { bits = 0 },
      ["dtype.lanes is 0"] = { lanes = 0 }, ["dtype.bits is 8; float4_e2m1fn has 4"] = { code = 17, bits = 8 },
      ["dtype.bits is 4; float6_e2m3fn has 6"] = { code = 15, bits = 4 }, ["ndim is -1; 0 to 64"] = { ndim = -1 },
      ["ndim is 65; 0 to 64 expected"] = { ndim = 65 }, ["shape[1] is -1; at least 0"] = { shape = { -1, 3 } },
      ["the element count leaves the range"] = { shape = { 2 ^ 40, 2 ^ 40 }, strides = { 0, 0 } },
      ["elements of 32 bits leave the range of int64_t"] = { shape = { 2 ^ 31, 2 ^ 31 } },
      ["their bytes leave int64_t"] = { strides = { 2 ^ 62, 1 } },
      ["the reach leaves int64_t"] = { strides = { 0x7fffffffffffffffLL, 1 } },
      ["data + byte_offset leaves the address space"] = { byte_offset = 0xffffffffffffffffULL },
    }
    local function try(fields, call)
      local m, count, anchor = helper.managed(fields)
      local before = ffi.string(anchor.box, ffi.sizeof(anchor.box))
      call(m)
      assert.are.equal(before, ffi.string(anchor.box, ffi.sizeof(anchor.box)))
      assert.are.equal(0, count[0])
      assert.are.equal(0, mf.ledger().tensors)
    end
    for said, fields in pairs(faults) do
      try(fields, function(m) refuses(said, mf.from_dlpack, m) end)
    end
    for said, fields in pairs(devices) do
      try(fields, function(m)
        local t, message, code = mf.from_dlpack(m)
        assert.are.same({ nil, mf.EDEVICE }, { t, code })
        assert.is_truthy(message:find(said, 1, true), message)
      end)
    end
    for _, field in ipairs { "data", "shape" } do
      local m, count = helper.managed()
      m.dl_tensor[field] = nil
      refuses(field, mf.from_dlpack, m)
      assert.are.equal(0, count[0])
    end
  end)

  it("refuses what is no struct", function()
    local expected = "expected a DLManagedTensorVersioned * or a DLManagedTensor *"
    for _, bad in ipairs { 1, "x", {}, true, print, ffi.new("int[1]"), ffi.new("void *"), ffi.new("DLTensor"), 5LL,
      ffi.new("DLManagedTensorVersioned"), ffi.new("DLManagedTensor *"), mf.zeros(1) } do
      refuses(expected, mf.from_dlpack, bad)
    end
    refuses(expected, mf.from_dlpack)
  end)
end)

describe("from_handle", function()
  after_each(helper.nothing_left)

  it("takes one reference over", function()
    local t = mf.tensor({ 1, 2 })
    local u = mf.from_handle(helper.C.mf_tensor_retain(t.handle))
    t:close()
    assert.are.same({ 1, 2 }, u:tolist())
    u:close()
    assert.are.equal(0, mf.ledger().tensors)
  end)

  it("refuses what is no handle", function()
    for _, bad in ipairs { 1, "x", {}, ffi.new("mf_tensor *"), ffi.new("void *"), ffi.new("int[1]"), mf.zeros(1) } do
      refuses("expected an mf_tensor *", mf.from_handle, bad)
    end
  end)
end)
