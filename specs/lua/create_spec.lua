-- Making tensors, from nothing, from tables and over memory that is somebody else's.
local ffi = require "ffi"
local mf = require "moonferry"
local helper = require "helper"
local refuses = helper.refuses

describe("making tensors", function()
  after_each(helper.nothing_left)

  it("describes what was made", function()
    local t = mf.empty({ 2, 3, 4 }, "int16")
    assert.are.same({ 2, 3, 4 }, t.shape)
    assert.are.same({ 12, 4, 1 }, t.strides)
    assert.are.equal("int16", t.dtype)
    assert.are.equal("cpu", t.device)
    assert.are.equal(3, t.ndim)
    assert.are.equal(24, t.size)
    assert.are.equal(48, t.nbytes)
    assert.is_false(t.readonly)
    assert.is_true(t.is_contiguous)
    assert.is_true(ffi.istype("mf_tensor *", t.handle))
  end)

  it("counts what is alive", function()
    local t = mf.empty({ 2, 3 }, "int16")
    local ledger = mf.ledger()
    assert.are.same({ 1, 1, 12 }, { ledger.tensors, ledger.storages, ledger.bytes })
    assert.is_true(ledger.blocks > 0)
    t:close()
  end)

  it("gives a new table for shape and strides each time", function()
    local t = mf.empty({ 2, 3 })
    t.shape[1] = 99
    t.strides[1] = 99
    assert.are.same({ 2, 3 }, t.shape)
    assert.are.same({ 3, 1 }, t.strides)
  end)

  it("takes a number for rank 1, an empty table for rank 0, and float32 by default", function()
    assert.are.same({ 5 }, mf.empty(5).shape)
    assert.are.same({}, mf.empty({}).shape)
    assert.are.equal(1, mf.empty({}).size)
    assert.are.equal("float32", mf.empty(1).dtype)
    assert.are.same({ 3 }, mf.empty(3LL).shape)
    assert.are.same({ 2, 3 }, mf.empty({ 2ULL, 3LL }).shape)
  end)

  it("aligns memory to 256 bytes", function()
    for _ = 1, 20 do
      local t = mf.empty(3, "uint8")
      assert.are.equal(0, tonumber(ffi.cast("uintptr_t", t:ptr()) % 256))
    end
  end)

  it("fills with zeros, ones and any value", function()
    assert.are.same({ { 0, 0 }, { 0, 0 } }, mf.zeros({ 2, 2 }):tolist())
    assert.are.same({ 1, 1, 1 }, mf.ones(3, "int64"):tolist())
    assert.are.same({ 7, 7 }, mf.full(2, 7, "uint8"):tolist())
    assert.are.same({ true, true }, mf.full(2, true, "bool"):tolist())
    assert.are.same({ false }, mf.zeros(1, "bool"):tolist())
    assert.are.same({ true }, mf.ones(1, "bool"):tolist())
    assert.are.equal(2.5, mf.full({}, 2.5):tolist())
    local z = mf.full(1, mf.complex(1, -2), "complex128"):get(0)
    assert.are.same({ 1, -2 }, { z.re, z.im })
  end)

  it("makes tensors without elements", function()
    local t = mf.zeros({ 0, 3 })
    assert.are.equal(0, t.size)
    assert.are.same({}, t:tolist())
    assert.are.same({ { {}, {} } }, mf.zeros({ 1, 2, 0 }):tolist())
  end)

  it("reads nested tables", function()
    local t = mf.tensor({ { 1, 2, 3 }, { 4, 5, 6 } }, "float64")
    assert.are.same({ 2, 3 }, t.shape)
    assert.are.same({ { 1, 2, 3 }, { 4, 5, 6 } }, t:tolist())
    assert.are.equal("float32", mf.tensor({ 1 }).dtype)
    assert.are.same({}, mf.tensor(5).shape)
    assert.are.equal(5, mf.tensor(5):get())
    assert.are.same({ 0 }, mf.tensor({}).shape)
    assert.are.same({ 2, 0 }, mf.tensor({ {}, {} }).shape)
    assert.are.same({ { true, false } }, mf.tensor({ { true, false } }, "bool"):tolist())
    assert.are.same({ -8, 7 }, mf.tensor({ -8, 7 }, "int4"):tolist())
    assert.are.same({ 1.5, -2 }, mf.tensor({ 1.5, -2 }, "bfloat16"):tolist())
  end)

  it("refuses nested tables that are no tensor", function()
    refuses("value[2]: expected 2 entries, got 1", mf.tensor, { { 1, 2 }, { 3 } })
    refuses("value[2]: expected a table of 1", mf.tensor, { { 1 }, 2 })
    refuses("value[2]: expected a value, got a table", mf.tensor, { 1, { 2 } })
    refuses("value[2][1]: expected a table of 0, got 1", mf.tensor, { { {} }, { 1 } })
    refuses("value 1: dtype float32 expects a number", mf.tensor, { "1" })
    refuses("value 1: dtype int32 expects an integer", mf.tensor, { 1.5 }, "int32")
    refuses("expects an integer", mf.tensor, { 300 }, "int4")
    refuses("use t:copy()", mf.tensor, mf.zeros(2))
    local deep = {}
    deep[1] = deep
    refuses("nested deeper than 64", mf.tensor, deep)
  end)

  it("refuses shapes that are none", function()
    for _, bad in ipairs { 1.5, 0 / 0, 1 / 0, -1 / 0, 2 ^ 60, "3", true, print, { 1.5 }, { "2" }, { 0 / 0 }, { {} } } do
      refuses("shape", mf.empty, bad)
    end
    refuses("shape[1] is -1", mf.empty, { -1 })
    refuses("expected a list of integers", mf.empty, nil)
    refuses("counts from 1, got the key \"rows\"", mf.empty, { rows = 2 })
    local long = {}
    for i = 1, 65 do
      long[i] = 1
    end
    refuses("at most 64 entries, got 65", mf.empty, long)
  end)

  it("refuses sizes that overflow", function()
    refuses("empty: ", mf.empty, { 2 ^ 31, 2 ^ 31, 2 ^ 31 })
    refuses("empty: ", mf.empty, { 2 ^ 53, 2 ^ 10 }, "int8")
    refuses("empty: ", mf.empty, { 0x7fffffffffffffffLL }, "float64")
    refuses("expected an integer below 2^63", mf.empty, { 0xffffffffffffffffULL })
  end)

  it("refuses dtypes, devices and options that are none", function()
    refuses("\"flot\"", mf.empty, 1, "flot")
    refuses("dtype: expected a name", mf.empty, 1, 32)
    refuses("dtype: expected a name", mf.empty, 1, "float32\0x")
    refuses("toaster", mf.empty, 1, "int8", { device = "toaster" })
    refuses("device: expected a name", mf.empty, 1, "int8", { device = 1 })
    refuses("device: expected a name such as \"cpu\", got \"cpu\\0:0\"", mf.empty, 1, "int8", { device = "cpu\0:0" })
    refuses("unknown option \"dtype\"", mf.empty, 1, "int8", { dtype = "int8" })
    refuses("options: expected a table", mf.empty, 1, "int8", "cpu")
    refuses("options: expected a table", mf.empty, 1, "int8", mf.zeros(1))
  end)

  it("returns nil, message, code for a device that is not there", function()
    local t, message, code = mf.empty(1, "int8", { device = "cuda:0" })
    assert.is_nil(t)
    assert.is_truthy(message:find("cuda", 1, true))
    assert.are.equal(mf.EDEVICE, code)
  end)

  it("takes whole pages when asked", function()
    for _, make in ipairs { mf.empty, mf.zeros, mf.ones } do
      for _ = 1, 8 do
        local t = make({ 3, 7 }, "int16", { pages = true })
        assert.are.equal(0, tonumber(ffi.cast("uintptr_t", t:ptr())) % 4096)
        assert.are.equal(42, t.nbytes)
        t:close()
      end
    end
    local t = mf.tensor({ 1, 2 }, "float32", { pages = true })
    assert.are.equal(0, tonumber(ffi.cast("uintptr_t", t:ptr())) % 4096)
  end)

  it("pads sub-byte dtypes to bytes when asked", function()
    assert.are.equal(2, mf.zeros(4, "int4").nbytes)
    local t = mf.zeros(4, "int4", { padded = true })
    assert.are.equal(4, t.nbytes)
    t:put(2, -3)
    assert.are.same({ 0, 0, -3, 0 }, t:tolist())
  end)
end)

describe("wrap", function()
  after_each(helper.nothing_left)

  it("knows a row of an array as an array, and a pointer to an array as a pointer", function()
    local rows = ffi.new("int32_t[3][4]", { { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, { 9, 10, 11, 12 } })
    local row, pointer = rows[1], rows + 0
    assert.are.same({ 5, 6, 7, 8 }, mf.wrap(row, 4, "int32", { owner = rows }):tolist())
    refuses("the elements take bytes 0 to 20 of an array of 16 bytes", mf.wrap, row, 5, "int32")
    refuses("dtype: the array holds int, which is int32; got float32", mf.wrap, row, 4, "float32")
    assert.are.same({ 1, 2, 3, 4, 5 }, mf.wrap(pointer, 5, "int32", { owner = rows }):tolist())
    local pointers = ffi.new("int32_t (*[2])[4]")
    refuses("of an array of 16 bytes", mf.wrap, pointers, 3, "uint64")
    refuses("mf.wrap makes a tensor of its memory", mf.tensor, pointer)
  end)

  it("makes a tensor over an array, without a copy", function()
    local array = ffi.new("float[6]", 1, 2, 3, 4, 5, 6)
    local t = mf.wrap(array, { 2, 3 })
    assert.are.same({ { 1, 2, 3 }, { 4, 5, 6 } }, t:tolist())
    array[4] = 50
    assert.are.equal(50, t:get(1, 1))
    t:put(0, 0, -1)
    assert.are.equal(-1, array[0])
  end)

  it("takes strides and a byte offset", function()
    local array = ffi.new("int16_t[8]", 0, 1, 2, 3, 4, 5, 6, 7)
    local t = mf.wrap(array, { 3 }, "int16", { strides = { 2 }, byte_offset = 2 })
    assert.are.same({ 1, 3, 5 }, t:tolist())
    assert.are.same({ 7, 6, 5 }, mf.wrap(array, 3, "int16", { strides = { -1 }, byte_offset = 14 }):tolist())
  end)

  it("is read-only on request, and over memory that C calls const", function()
    local array = ffi.new("float[2]")
    assert.is_false(mf.wrap(array, 2).readonly)
    assert.is_true(mf.wrap(array, 2, "float32", { readonly = true }).readonly)
    local constant = ffi.cast("const float *", array)
    assert.is_true(mf.wrap(constant, 2, "float32", { owner = array }).readonly)
    refuses("constant memory", mf.wrap, constant, 2, "float32", { readonly = false })
  end)

  it("keeps the owner until the last view and export are gone", function()
    local watch = setmetatable({}, { __mode = "v" })
    local array = ffi.new("float[4]")
    do
      local owner = { array }
      watch[1] = owner
    end
    local t = mf.wrap(array, 4, "float32", { owner = watch[1] })
    local v = t:view { 1, 3 }
    local m = v:to_dlpack()
    t:close()
    v:close()
    collectgarbage()
    assert.is_truthy(watch[1])
    m.deleter(m)
    mf.ledger()
    collectgarbage()
    assert.is_nil(watch[1])
  end)

  it("takes table.pack's count for what it is, and one 64-bit number", function()
    assert.are.same({ 1, 2 }, mf.tensor({ 1, 2, n = 2 }):tolist())
    helper.refuses("expected a list that counts from 1, got the key \"n\"", mf.tensor, { 1, 2, n = 3 })
    helper.refuses("expected a list that counts from 1, got the key \"x\"", mf.tensor, { 1, 2, n = 2, x = 1 })
    assert.are.equal(5, mf.tensor(5LL, "float64"):item())
  end)

  it("takes shapes of up to 64 axes", function()
    local shape = {}
    for axis = 1, 64 do
      shape[axis] = 1
    end
    assert.are.equal(64, mf.zeros(shape).ndim)
    shape[65] = 1
    helper.refuses("shape: expected at most 64 entries, got 65", mf.zeros, shape)
  end)

  it("takes the first page for no address, and what follows for one", function()
    local array = ffi.typeof "int8_t *"
    helper.refuses("pointer is 0xfff, which is no address", mf.wrap, ffi.cast(array, 4095), 1, "int8")
    local t = mf.wrap(ffi.cast(array, 4096), 1, "int8", { owner = false })
    assert.are.equal(ffi.cast(array, 4096), t:ptr())
    t:close()
  end)

  it("says that there is no memory for the owner's record", function()
    local owner, memory = require "moonferry.owner", ffi.new("int8_t[4]")
    local hold = owner.hold
    owner.hold = function() end
    local t, message, code = mf.wrap(memory, 4, "int8")
    owner.hold = hold
    assert.is_nil(t)
    assert.are.equal("wrap: no memory for the owner's record", message)
    assert.are.equal(mf.ENOMEM, code)
  end)

  it("names the device that there is none of before it makes anything", function()
    helper.refuses(": device: expected a name such as", mf.tensor, { {} }, "nothing", { device = 5 })
  end)

  it("leaves nothing where a value is refused, before anything is collected", function()
    local before = mf.ledger()
    for _, call in ipairs {
      function() mf.full({ 1000 }, "many") end, function() mf.full({ 4 }, {}, "int8") end,
      function() mf.full({ 4 }, 300, "int8") end, function() mf.tensor({ 1, 2, "many" }) end,
      function() mf.tensor({ 1, 300 }, "int4") end,
    } do
      assert.is_false(pcall(call))
      assert.are.same(before, mf.ledger())
    end
  end)

  it("drops the owner at once when the tensor is closed and nothing else uses the memory", function()
    local watch = setmetatable({}, { __mode = "v" })
    local t
    do
      local owner = {}
      watch[1] = owner
      t = mf.wrap(ffi.new("float[4]"), 4, "float32", { owner = owner })
    end
    collectgarbage()
    assert.is_truthy(watch[1])
    t:close()
    collectgarbage()
    assert.is_nil(watch[1])
  end)

  it("keeps the pointer itself by default, with its finalizer", function()
    local count = ffi.new("int32_t[1]")
    local t = mf.wrap(ffi.gc(ffi.cast("int32_t *", count), helper.support.support_release), 1, "int32")
    collectgarbage()
    collectgarbage()
    assert.are.equal(0, t:get(0))
    t:close()
    collectgarbage()
    collectgarbage()
    assert.are.equal(1, count[0])
  end)

  it("keeps nothing for owner = false", function()
    local watch = setmetatable({ ffi.new("float[1]") }, { __mode = "v" })
    local t = mf.wrap(watch[1], 1, "float32", { owner = false })
    collectgarbage()
    assert.is_nil(watch[1])
    t:close()
  end)

  it("survives thousands of owners", function()
    for i = 1, 5000 do
      mf.wrap(ffi.new("int32_t[1]", i), 1, "int32"):close()
      if i % 3 == 0 then
        mf.wrap(ffi.new("int32_t[1]", i), 1, "int32")
      end
    end
  end)

  it("refuses what is no pointer", function()
    for _, bad in ipairs { 1, "text", {}, print, true, io.stdout, ffi.new("int64_t", 5) } do
      refuses("wrap: pointer: expected a pointer or an array", mf.wrap, bad, 1)
    end
    refuses("wrap: pointer", mf.wrap, nil, 1)
    refuses("data is NULL", mf.wrap, ffi.cast("float *", nil), 1)
  end)

  it("refuses options that do not fit", function()
    local array = ffi.new("float[4]")
    refuses("strides: expected 1 entries, got 2", mf.wrap, array, 4, "float32", { strides = { 1, 1 } })
    refuses("strides: expected a list", mf.wrap, array, 4, "float32", { strides = 1 })
    refuses("strides[1]: expected an integer", mf.wrap, array, 4, "float32", { strides = { 0.5 } })
    refuses("byte_offset: expected an integer of at least 0", mf.wrap, array, 4, "float32", { byte_offset = -4 })
    refuses("byte_offset: expected an integer", mf.wrap, array, 4, "float32", { byte_offset = 0 / 0 })
    refuses("readonly: expected a boolean", mf.wrap, array, 4, "float32", { readonly = 1 })
    refuses("unknown option \"stride\"", mf.wrap, array, 4, "float32", { stride = { 1 } })
    refuses("wrap: ", mf.wrap, array, { 2 ^ 52, 2 ^ 52 })
  end)

  it("is taken back with invalidate", function()
    local array = ffi.new("float[4]", 1, 2, 3, 4)
    local t = mf.wrap(array, 4)
    local v = t:view { 0, 2 }
    assert.are.equal(2, v:get(1))
    assert.is_true(t:invalidate())
    refuses("taken back", v.get, v, 1)
    refuses("taken back", t.put, t, 1, 5)
    refuses("taken back", t.row, t)
    refuses("taken back", t.tolist, t)
    refuses("copy: ", t.copy, t)
    refuses("fill: ", t.fill, t, 1)
    refuses("to_dlpack: ", t.to_dlpack, t)
    refuses("view: ", t.view, t, 0)
    assert.is_truthy(tostring(v):find("taken back", 1, true))
    v:close()
    assert.is_false(t:invalidate())
    assert.are.equal(2, array[1])
    refuses("invalidate: ", function()
      mf.zeros(1):invalidate()
    end)
  end)
end)
