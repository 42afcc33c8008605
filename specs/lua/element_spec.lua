-- Rows, pointers and single elements, and what a closed tensor refuses.
local ffi = require "ffi"
local mf = require "moonferry"
local helper = require "helper"
local refuses = helper.refuses

local LOWEST = -0x7fffffffffffffffLL - 1
local HIGHEST = 0x7fffffffffffffffLL
local LARGEST = 0xffffffffffffffffULL

describe("rows", function()
  after_each(helper.nothing_left)

  it("are typed pointers", function()
    local t = mf.tensor({ { 1, 2, 3 }, { 4, 5, 6 } }, "float32")
    local row = t:row(1)
    assert.is_true(ffi.istype("float *", row))
    assert.are.equal(6, row[2])
    row[0] = 40
    assert.are.equal(40, t:get(1, 0))
  end)

  it("begin where the leading coordinates say; what is left must be compact", function()
    local t = mf.empty({ 2, 3, 4 }, "int32")
    local p = t:ptr()
    for i = 0, 23 do
      p[i] = i
    end
    assert.are.equal(0, t:row()[0])
    assert.are.equal(23, t:row(1)[11])
    assert.are.equal(22, t:row(1, 2)[2])
    assert.are.equal(22, t:row(1, 2, 2)[0])
    local columns = t:view(mf.all, mf.all, { 0, 2 })
    assert.are.equal(21, columns:row(1, 2)[1])
    refuses("not compact", columns.row, columns, 1)
    refuses("not compact", columns.rows, columns)
    local transposed = t:permute_dims()
    refuses("not compact", transposed.row, transposed)
    refuses("not compact", transposed.row, transposed, 0, 0)
    assert.are.equal(t:get(1, 2, 3), transposed:row(3, 2, 1)[0])
    refuses("4 coordinates for 3 axes", t.row, t, 0, 0, 0, 0)
  end)

  it("reach any rank", function()
    local t = mf.zeros({ 2, 2, 2, 2, 2, 3 }, "int16")
    t:put(1, 0, 1, 1, 0, 2, 7)
    assert.are.equal(7, t:row(1, 0, 1, 1, 0)[2])
    assert.are.equal(7, t:at(1, 0, 1, 1, 0, 2))
    assert.are.equal(7, t:get(-1, 0, 1, 1, 0, -1))
    t:set(1, 1, 1, 1, 1, 1, 9)
    assert.are.equal(9, t:get(1, 1, 1, 1, 1, 1))
  end)

  it("follow any stride of the first axis", function()
    local t = mf.tensor({ { 1, 2 }, { 3, 4 }, { 5, 6 } }, "int8"):view({ nil, nil, -2 })
    local seen = {}
    for i, row in t:rows() do
      seen[i + 1] = { row[0], row[1] }
    end
    assert.are.same({ { 5, 6 }, { 1, 2 } }, seen)
    for i, row in t:view(0):broadcast_to({ 2, 2 }):rows() do
      seen[i + 1] = row[1]
    end
    assert.are.same({ 6, 6 }, seen)
  end)

  it("iterate nothing where there is nothing", function()
    for _ in mf.zeros({ 0, 3 }):rows() do
      error("a row")
    end
    local count = 0
    for _ in mf.zeros({ 3, 0 }):rows() do
      count = count + 1
    end
    assert.are.equal(3, count)
    refuses("rank 0", mf.zeros({}).rows, mf.zeros({}))
  end)

  it("are pointers to raw bits where C has no such type", function()
    assert.are.equal(0x3c00, mf.ones(1, "float16"):row()[0])
    assert.are.equal(0x3f80, mf.ones(1, "bfloat16"):ptr()[0])
    assert.are.equal(0x38, mf.ones(1, "float8_e4m3fn"):at(0))
    assert.are.equal(15, mf.full(1, -1, "int4", { padded = true }):ptr()[0] % 16)
    refuses("dtype int4 has no C type", mf.zeros(2, "int4").row, mf.zeros(2, "int4"))
    refuses("has no C type", mf.empty(2, "float32x4").ptr, mf.empty(2, "float32x4"))
  end)
end)

describe("ptr", function()
  after_each(helper.nothing_left)

  it("walks contiguous tensors", function()
    local t = mf.tensor({ { 1, 2 }, { 3, 4 } })
    assert.are.equal(4, t:ptr()[3])
    refuses("not contiguous", t.ptr, t:permute_dims())
  end)
end)

describe("at and set", function()
  after_each(helper.nothing_left)

  it("reach every rank", function()
    local scalar = mf.full({}, 3)
    assert.are.equal(3, scalar:at())
    scalar:set(4)
    assert.are.equal(4, scalar:at())
    local t = mf.zeros({ 3 }, "int16")
    t:set(2, -7)
    assert.are.equal(-7, t:at(2))
    local m = mf.zeros({ 2, 3 }):permute_dims()
    m:set(2, 1, 6)
    assert.are.equal(6, m:at(2, 1))
    local c = mf.zeros({ 2, 2, 2 }, "bool")
    c:set(0, 1, 1, true)
    assert.is_true(c:at(0, 1, 1))
  end)

  it("keep 64-bit integers", function()
    local t = mf.zeros(1, "int64")
    t:set(0, LOWEST)
    assert.is_true(t:at(0) == LOWEST)
  end)
end)

describe("get and put", function()
  after_each(helper.nothing_left)

  it("hold for every rank and negative coordinates", function()
    local t = mf.zeros({ 2, 3 }, "int32")
    t:put(-1, -2, 5)
    assert.are.equal(5, t:get(1, 1))
    t:put(-2, -3, 4)
    assert.are.equal(4, t:get(0, 0))
    assert.are.equal(5, t:get(1LL, -2LL))
    local s = mf.zeros({})
    s:put(1.5)
    assert.are.equal(1.5, s:get())
    local v = mf.zeros({ 2, 2, 2 }, "uint8")
    v:put(1, 0, -1, 255)
    assert.are.equal(255, v:get(1, 0, 1))
  end)

  it("refuse coordinates that are out of range or no integers", function()
    local t = mf.zeros({ 2, 3 })
    for _, bad in ipairs { 2, -3, 2 ^ 31, -2 ^ 31, 2 ^ 53, 5LL, HIGHEST, LOWEST } do
      local digits = tostring(ffi.cast("int64_t", bad)):match "-?%d+"
      local said = ("index %s is out of range for axis 0 of extent 2"):format(digits)
      refuses("get: " .. said, t.get, t, bad, 0)
      refuses("put: " .. said, t.put, t, bad, 0, 1)
    end
    for _, bad in ipairs { 0.5, 0 / 0, 1 / 0, -1 / 0, 2 ^ 60, "0", true, {}, print, LARGEST, ffi.new("float[1]") } do
      refuses("coordinate 1: expected an integer", t.get, t, 0, bad)
      refuses("coordinate 1: expected an integer", t.put, t, 0, bad, 1)
    end
    refuses("coordinate 0: expected an integer", t.get, t, nil, 0)
    local none = mf.zeros({ 0, 3 })
    refuses("get: index 0 is out of range for axis 0 of extent 0", none.get, none, 0, 0)
    refuses("put: index 0 is out of range for axis 0 of extent 0", none.put, none, 0, 0, 1)
    local deep = mf.zeros({ 1, 1, 1, 2 })
    refuses("get: index 2 is out of range for axis 3 of extent 2", deep.get, deep, 0, 0, 0, 2)
    refuses("put: index -2 is out of range for axis 2 of extent 1", deep.put, deep, 0, 0, -2, 0, 7)
    refuses("coordinate 3: expected an integer", deep.put, deep, 0, 0, 0, 0 / 0, 1)
  end)

  it("refuse a wrong number of coordinates", function()
    local t = mf.zeros({ 2, 3 })
    refuses("expected 2 coordinates, got 1", t.get, t, 0)
    refuses("expected 2 coordinates, got 3", t.get, t, 0, 0, 0)
    refuses("expected 2 coordinates and a value, got 2 arguments", t.put, t, 0, 0)
    refuses("expected 2 coordinates and a value, got 4 arguments", t.put, t, 0, 0, 0, 1)
  end)

  it("hold the limits of every integer dtype, and refuse what is beyond", function()
    for bits = 8, 32, 8 do
      if bits ~= 24 then
        local s, u = mf.zeros(1, "int" .. bits), mf.zeros(1, "uint" .. bits)
        for _, value in ipairs { -2 ^ (bits - 1), 2 ^ (bits - 1) - 1, 0 } do
          s:put(0, value)
          assert.are.equal(value, s:get(0))
        end
        u:put(0, 2 ^ bits - 1)
        assert.are.equal(2 ^ bits - 1, u:get(0))
        for _, bad in ipairs { -2 ^ (bits - 1) - 1, 2 ^ (bits - 1), 0.5, 0 / 0, 1 / 0, HIGHEST, "1", true } do
          refuses("expects an integer", s.put, s, 0, bad)
        end
        refuses("expects an integer", u.put, u, 0, -1)
        refuses("expects an integer", u.put, u, 0, 2 ^ bits)
      end
    end
    for name, limits in pairs { int4 = { -8, 7 }, uint4 = { 0, 15 }, uint2 = { 0, 3 }, int1 = { -1, 0 } } do
      local t = mf.zeros(3, name)
      for _, value in ipairs(limits) do
        t:put(1, value)
        assert.are.same({ 0, value, 0 }, t:tolist())
      end
      refuses("expects an integer", t.put, t, 0, limits[1] - 1)
      refuses("expects an integer", t.put, t, 0, limits[2] + 1)
    end
  end)

  it("give 64-bit integers as numbers below 2^53, else as cdata", function()
    local s, u = mf.zeros(1, "int64"), mf.zeros(1, "uint64")
    for _, value in ipairs { 0, -1, 2 ^ 53 - 1, -2 ^ 53 + 1 } do
      s:put(0, value)
      assert.are.equal("number", type(s:get(0)))
      assert.are.equal(value, s:get(0))
    end
    for _, value in ipairs { LOWEST, HIGHEST, 0x20000000000001LL, -0x20000000000001LL } do
      s:put(0, value)
      assert.is_true(ffi.istype("int64_t", s:get(0)))
      assert.is_true(s:get(0) == value)
    end
    u:put(0, LARGEST)
    assert.is_true(ffi.istype("uint64_t", u:get(0)) and u:get(0) == LARGEST)
    u:put(0, 7LL)
    assert.are.equal(7, u:get(0))
    s:put(0, 0x7fffffffffffffffULL)
    assert.is_true(s:get(0) == HIGHEST)
    refuses("expected an integer", s.put, s, 0, 2 ^ 60)
    refuses("expected an integer", s.put, s, 0, 0 / 0)
    refuses("below 2^63", s.put, s, 0, LARGEST)
    refuses("at least 0", u.put, u, 0, -1)
    refuses("at least 0", u.put, u, 0, -1LL)
  end)

  it("hold floats of every width", function()
    for _, name in ipairs { "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2",
      "float6_e2m3fn", "float4_e2m1fn" } do
      local t = mf.zeros(2, name)
      t:put(1, -1.5)
      assert.are.same({ 0, -1.5 }, t:tolist())
      t:put(0, 2LL)
      assert.are.equal(2, t:get(0))
      refuses("expects a number", t.put, t, 0, "1")
      refuses("expects a number", t.put, t, 0, true)
      refuses("expects a number", t.put, t, 0, nil)
    end
    local t = mf.zeros(1, "float16")
    t:put(0, 1 / 0)
    assert.are.equal(1 / 0, t:get(0))
    t:put(0, 0 / 0)
    assert.is_true(t:get(0) ~= t:get(0))
  end)

  it("hold bool", function()
    for _, name in ipairs { "bool", "bool1" } do
      local t = mf.zeros(4, name)
      t:put(1, true)
      t:put(2, 1)
      t:put(3, 0)
      assert.are.same({ false, true, true, false }, t:tolist())
      refuses("expects true, false, 1 or 0", t.put, t, 0, 2)
      refuses("expects true, false, 1 or 0", t.put, t, 0, "true")
    end
  end)

  it("hold complex as LuaJIT's complex", function()
    for _, name in ipairs { "complex64", "complex128", "complex32" } do
      local t = mf.zeros(3, name)
      t:put(0, mf.complex(1.5, -2))
      t:put(1, { 3, 4 })
      t:put(2, 5)
      local z = t:get(0)
      assert.is_true(ffi.istype("complex", z))
      assert.are.same({ 1.5, -2 }, { z.re, z.im })
      assert.are.equal(4, t:get(1).im)
      assert.are.same({ 5, 0 }, { t:get(2).re, t:get(2).im })
      refuses("expects a number, a complex or {re, im}", t.put, t, 0, "1+2i")
      refuses("expects a number, a complex or {re, im}", t.put, t, 0, { 1 })
    end
    assert.are.equal(4, mf.full(1, { 3, 4 }, "complex64"):at(0).im)
  end)

  it("refuse dtypes without numbers", function()
    local h = mf.empty(1, "handle64")
    refuses("holds no numbers", h.put, h, 0, 1)
    refuses("get: ", h.get, h, 0)
    local v = mf.empty(1, "float32x4")
    refuses("put: ", v.put, v, 0, 1)
    refuses("get: ", v.get, v, 0)
  end)
end)

describe("item", function()
  after_each(helper.nothing_left)

  it("gives the only element of any rank", function()
    assert.are.equal(7, mf.full({ 1, 1, 1 }, 7, "int8"):item())
  end)
end)

-- By dtype: integers whose bits are NaNs that no arithmetic gives. LuaJIT would take each, or what its arithmetic makes
-- of it, for nil. (Others it would take for tables at addresses that are none.)
local ODD = {
  float16 = { uint16 = { 0xffff, 0x7fff } }, bfloat16 = { uint16 = { 0xffff, 0x7fff } },
  float32 = { uint32 = { 0xffffffff, 0x7fffffff, 0xffbfffff } },
  float64 = { uint64 = { LARGEST, HIGHEST, 0xfff7ffffffffffffULL } },
}
local SAME = { float32 = true, float64 = true } -- what `at` gives as it is

local function check_nan(value)
  assert.are.equal("number", type(value))
  assert.is_true(value ~= value)
  assert.are.equal("number", type(-value))
  assert.are.equal("number", type(value + 1))
end

local function check_odd(t)
  for _ = 1, 100 do
    check_nan(t:get(0))
    if SAME[t.dtype] then
      check_nan(t:at(0))
    end
  end
  check_nan(t:item())
  check_nan(t:tolist()[1])
  assert.is_truthy(tostring(t):find("nan", 1, true))
end

describe("a NaN of any bits", function()
  after_each(helper.nothing_left)

  it("is a number", function()
    for name, integers in pairs(ODD) do
      local integer, patterns = next(integers)
      for _, pattern in ipairs(patterns) do
        local bits = mf.full(1, pattern, integer)
        local t = bits:reinterpret(name)
        check_odd(t)
        t:close()
        bits:close()
      end
    end
  end)

  it("is one in a complex number, too", function()
    for name, integers in pairs { complex64 = ODD.float32, complex128 = ODD.float64 } do
      local integer, patterns = next(integers)
      local bits = mf.full(2, patterns[1], integer)
      local t = bits:reinterpret(name)
      for _, value in ipairs { t:get(0), t:at(0), t:reshape():get() } do
        check_nan(value.re)
        check_nan(value.im)
      end
    end
  end)

  it("is none where the bits are a number's", function()
    for name, size in pairs { float32 = 24, float64 = 53 } do
      local most = (2 - 2 ^ (1 - size)) * 2 ^ (size == 24 and 127 or 1023)
      local t = mf.tensor({ -1 / 0, 1 / 0, most, -most, -0.5, 0 }, name)
      assert.are.same({ -1 / 0, 1 / 0, most, -most, -0.5, 0 }, t:tolist())
      assert.are.equal(t:get(2), t:at(2))
    end
  end)
end)

-- The methods that touch the memory of a tensor of one element, with what they are given.
local CHECKED = { get = { 0 }, put = { 0, 5 }, item = {}, tolist = {} }
local UNCHECKED = { row = { 0 }, rows = {}, ptr = {}, at = { 0 }, set = { 0, 5 } }

describe("a tensor whose memory was taken back", function()
  after_each(helper.nothing_left)

  it("says so, also where its elements were read before", function()
    for name, arguments in pairs(CHECKED) do
      for _, dtype in ipairs { "float32", "bfloat16" } do
        local memory = ffi.new "uint8_t[4]"
        local t = mf.wrap(memory, 1, dtype)
        local view = t:view()
        view:put(0, 1)
        local before = ffi.string(memory, 4)
        t:invalidate()
        refuses("taken back", view[name], view, unpack(arguments))
        assert.are.equal(before, ffi.string(memory, 4))
        view:close()
        t:close()
      end
    end
    for name, arguments in pairs(UNCHECKED) do
      local t = mf.wrap(ffi.new "float[2]", { 2, 1 })
      local view = t:view(mf.all, 0)
      view[name](view, unpack(arguments))
      t:invalidate()
      refuses("taken back", view[name], view, unpack(arguments))
      view:close()
      t:close()
    end
    for _, who in ipairs { 1, 2 } do
      local t = mf.wrap(ffi.new "float[2]", { 2, 1 })
      local views = { t, t:view() }
      refuses("the memory of this tensor was taken back", function()
        for _ in views[who]:rows() do
          t:invalidate()
        end
      end)
      views[2]:close()
      t:close()
    end
    local none = mf.wrap(ffi.new "float[1]", 0)
    none:invalidate()
    refuses("the memory of this tensor was taken back", none.tolist, none)
    none:close()
  end)
end)

describe("a tensor whose memory gets a fence", function()
  after_each(helper.nothing_left)

  it("is not touched before the fence is reached, whatever was read before", function()
    for _, methods in ipairs { CHECKED, UNCHECKED } do
      for name, arguments in pairs(methods) do
        local t = mf.full(1, 7)
        assert.are.equal(7, t:get(0))
        local ring, fence, reached = mf.ring { t }, helper.fence()
        ring:begin()
        ring:done(fence, 2)
        for _ = 1, 2 do
          refuses("cannot be waited for on this thread", t[name], t, unpack(arguments))
        end
        reached[0] = 1
        assert.are.equal(7, t:get(0))
        ring:close()
        t:close()
      end
    end
  end)
end)

describe("a tensor", function()
  after_each(helper.nothing_left)

  it("refuses []", function()
    local t = mf.zeros(3)
    refuses("not indexed with []", function()
      return t[0]
    end)
    refuses("no field \"nonsense\"", function()
      return t.nonsense
    end)
  end)

  it("is told from everything else", function()
    local t = mf.zeros(1)
    assert.is_true(mf.is_tensor(t))
    t:close()
    assert.is_true(mf.is_tensor(t))
    for _, other in ipairs { {}, 1, "x", print, ffi.new("int[1]") } do
      assert.is_false(mf.is_tensor(other))
    end
    assert.is_false(mf.is_tensor(nil))
  end)

  it("can be closed twice, and then refuses everything else", function()
    local t = mf.zeros({ 2, 2 })
    local get, put, row, at, copy = t.get, t.put, t.row, t.at, t.copy
    t:close()
    t:close()
    assert.are.equal(0, mf.ledger().tensors)
    refuses("tensor closed", function()
      return t.shape
    end)
    refuses("tensor closed", function()
      t.anything = 1
    end)
    for _, method in ipairs { get, put, row, at, copy } do
      refuses("tensor closed", method, t, 0, 0, 0)
    end
    refuses("tensor closed", mf.zeros({ 2, 2 }).copy, mf.zeros({ 2, 2 }), t)
    assert.are.equal("mf.tensor<closed>", tostring(t))
  end)

  it("stops an iteration when it is closed inside", function()
    local t = mf.zeros({ 5, 2 })
    refuses("tensor closed", function()
      for _ in t:rows() do
        t:close()
      end
    end)
  end)

  it("is not mistaken for another table", function()
    local t = mf.zeros(1)
    for _, other in ipairs { {}, { _handle = 1 }, 5, "x", ffi.new("int[1]") } do
      refuses("expected a tensor", t.get, other, 0)
      refuses("expected a tensor", t.close, other)
      refuses("expected a tensor", t.equal, t, other)
      refuses("rows: expected a tensor", t.rows, other)
      refuses("item: expected a tensor", t.item, other)
      refuses("tolist: expected a tensor", t.tolist, other)
    end
    for _, name in ipairs { "row", "at", "set" } do
      refuses(name .. ": expected a tensor, got a table", t[name], {}, 0, 0)
    end
    t._handle = nil
    refuses("expected a tensor", t.get, t, 0)
    refuses("expected a tensor", t.fill, t, 0)
  end)
end)
