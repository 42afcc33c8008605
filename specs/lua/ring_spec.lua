-- Rings of slots and fields of interleaved records. OpenGL's own part is in gl_spec.lua.
local ffi = require "ffi"
local mf = require "moonferry"
local helper = require "helper"
local C, refuses = helper.C, helper.refuses

describe("a ring", function()
  after_each(helper.nothing_left)

  it("gives a list of slots that is the program's, and waits for no longer than there is time", function()
    local ring = assert(mf.ring({ 2 }, "float32", 2))
    ring.slots[1] = nil
    assert.is_truthy(ring:begin())
    for _, seconds in ipairs { -1, 9e9, 0 / 0, math.huge } do
      refuses("begin: seconds: expected a number of at least 0", ring.begin, ring, seconds)
    end
    ring:close()
  end)

  it("gives its slots in turn", function()
    local r = mf.ring({ 4, 2 }, "float32", 3)
    local seen = {}
    for frame = 1, 7 do
      local t, i = r:begin()
      assert.is_true(rawequal(t, r.slots[i]))
      t:fill(frame)
      seen[frame] = i
      assert.is_true(r:done())
    end
    assert.are.same({ 1, 2, 3, 1, 2, 3, 1 }, seen)
    assert.are.equal(7, r.slots[1]:get(0, 0))
    r:close()
    r:close()
    refuses("ring closed", function()
      return r.slots
    end)
  end)

  it("makes the views of its slots once", function()
    local r, calls = mf.ring({ 4 }, "float32", 2), 0
    local function convert(...)
      local t = ...
      calls = calls + 1
      assert.are.equal(1, select("#", ...)) -- a function of Python's would take the second for its own
      assert.are.equal(r.slots[calls], t)
      return t:ptr()
    end
    local views = r:into(convert)
    assert.are.equal(views, r:into(convert))
    assert.are.equal(views, r:into(tostring))
    assert.are.equal(2, calls)
    r:close()
  end)

  it("makes them by whatever can be called", function()
    local r = mf.ring({ 4 }, "float32", 1)
    refuses("into: convert: expected a function of a tensor, got a table", r.into, r, setmetatable({}, {}))
    local address = setmetatable({}, { __call = function(_, t) return t:ptr() end })
    assert.are.equal(r.slots[1]:ptr(), r:into(address)[1])
    r:close()
  end)

  it("may be read while work is behind a fence of which nothing else is said", function()
    local r = mf.ring({ 2 }, "float32", 2)
    local fence, reached = helper.fence()
    local written = r:begin()
    assert.is_true(r:done(fence))
    local read = r:begin()
    r:publish()
    assert.are.equal(read, r:latest())
    assert.is_true(r:hold(fence))
    for _, slot in ipairs { written, read } do
      assert.are.equal(0, slot:get(0))
      refuses("cannot be waited for on this thread", slot.put, slot, 0, 1)
    end
    reached[0] = 1
    r:close()
  end)

  -- The functions are Lua's here, which no compiled code may call.
  local function is_closed_by_its_fence(use, at)
    local r, fence, others = mf.ring({ 2 }, "float32", 3), ffi.new "mf_fence", {}
    local reached, hold, closed = false, r.hold, 0
    local function done(where)
      if reached and where == at then
        r:close()
        closed = closed + 1
      end
      return reached and 0 or 1
    end
    local wait = ffi.cast("int32_t (*)(void *, uint64_t, int64_t)", function() return done "wait" end)
    local drop = ffi.cast("void (*)(void *, uint64_t)", function() done "drop" end)
    fence.wait, fence.drop = wait, drop
    r:begin()
    r:publish()
    r:latest()
    assert.is_true(r:hold(fence, C.MF_WRITE))
    if use ~= "hold" then
      r:begin()
      r:publish()
    end
    if use == "begin" then -- the slot is given back, and cools
      r:latest()
    end
    reached = true
    for i = 1, use == "hold" and 40 or 0 do -- the first is asked when there is no more room
      local other
      other, others[i] = helper.fence()
      if not pcall(hold, r, other, C.MF_WRITE) then break end
    end
    if use ~= "hold" then
      local _, number = r[use](r, use == "begin" and 0 or nil)
      assert.is_true(number >= 1 and number <= 3)
    end
    assert.are.equal(1, closed)
    refuses("latest: ring closed", function() return r.latest end)
    for _, is_reached in ipairs(others) do is_reached[0] = 1 end
    helper.nothing_left()
    wait:free()
    drop:free()
  end

  it("may be closed by a fence that it asks", function()
    jit.off()
    jit.flush()
    for _, use in ipairs { "begin", "latest", "hold" } do
      is_closed_by_its_fence(use, "wait")
      is_closed_by_its_fence(use, "drop")
    end
    jit.on()
  end)

  -- An error between the last two steps of a tensor's `close` loses that tensor, which is not the question here.
  it("is released where an error of a debug hook ends its close", function()
    local close, at, met = mf.zeros(1).close, 0, true
    jit.off()
    while met do
      at, met = at + 1, false
      local r, count = mf.ring({ 2 }, "float32", 2), 0
      local function hook()
        count = count + 1
        if count >= at and debug.getinfo(2, "f").func ~= close then
          met = true
          debug.sethook()
          error "on purpose"
        end
      end
      pcall(function()
        debug.sethook(hook, "", 1)
        r:close()
        debug.sethook()
      end)
    end
    jit.on()
    assert.is_true(at > 10)
  end)

  it("is a mailbox between a writer and a reader", function()
    local r = mf.ring({ 1 }, "int32", 3)
    assert.is_nil(r:latest())
    for n = 1, 5 do
      local t = r:begin(0)
      t:put(0, n)
      r:publish()
    end
    local t, i, fresh = r:latest()
    assert.are.equal(5, t:get(0))
    assert.is_true(fresh)
    assert.are.same({ i, false }, { select(2, r:latest()) })
    r:close()
  end)

  it("says that no slot was free in time", function()
    local r = mf.ring({ 1 }, "int32", 1)
    r:begin()
    r:publish()
    r:latest()
    local t, message, code = r:begin(0)
    assert.is_nil(t)
    assert.matches("none of the 1 slots was free", message, 1, true)
    assert.are.equal(mf.ETIMEOUT, code)
    r:close()
  end)

  it("is shared through its handle", function()
    local r = mf.ring({ 1 }, "int32", 2)
    local other = mf.ring_from_handle(r.handle)
    r:begin():put(0, 9)
    r:publish()
    assert.are.equal(9, (other:latest()):get(0))
    r:close()
    assert.are.equal(9, (other:latest()):get(0))
    other:close()
  end)

  it("is left to the collector", function()
    mf.ring({ 1000 }, "float32", 4)
  end)

  it("leaves nothing to the collector where it is closed", function()
    local left = helper.left_by(function()
      local r = mf.ring({ 3 }, "float32", 64)
      assert.are.equal(64, #r.slots)
      r:close()
    end)
    assert.are.same(helper.NOTHING, left)
  end)

  it("makes no garbage in a frame", function()
    local r = mf.ring({ 16 }, "float32", 3)
    local function frames(n)
      for _ = 1, n do
        local t = r:begin(0)
        t:fill(1)
        r:done()
      end
    end
    frames(500)
    collectgarbage()
    collectgarbage("stop")
    local before = collectgarbage("count")
    frames(1000)
    local per_frame = (collectgarbage("count") - before) / 1000
    collectgarbage("restart")
    assert.is_true(per_frame < 1, per_frame .. " KiB a frame")
    r:close()
  end)

  it("ends with the scope that it was made in", function()
    local inside = mf.scope(function()
      local r = mf.ring({ 4 }, "float32", 3)
      r:into(function(t)
        return t:view({ 1 })
      end)
      return r
    end)
    refuses("ring closed", function()
      return inside.slots
    end)
    collectgarbage()
    assert.are.equal(0, mf.ledger().tensors)
  end)

  it("outlives the scope with all its slots where it is kept", function()
    local made = { mf.zeros(2), mf.zeros(2) }
    local r, views = mf.scope(function(s)
      local kept = s:keep(mf.ring(made))
      return kept, kept:into(function(t)
        return t:view({ 1 })
      end)
    end)
    local t, i = r:begin(0)
    t:fill(5)
    assert.are.equal(5, views[i]:get(0))
    r:done()
    r:close()
    for k = 1, 2 do
      views[k]:close()
      made[k]:close()
    end
  end)

  it("is not made where there is no memory, and leaves nothing to the collector then", function()
    local r = helper.scarce(function()
      assert(mf.ledger().tensors == 0)
      return mf.ring({ 4 }, "float32", 2)
    end)
    r:close()
  end)

  it("refuses misuse", function()
    local r = mf.ring({ 4 }, "float32", 2)
    refuses("no slot is being written", r.done, r)
    refuses("no slot is being written", r.publish, r)
    refuses("begin: seconds", r.begin, r, -1)
    refuses("begin: seconds", r.begin, r, "soon")
    refuses("begin: expected an open ring", r.begin, {})
    r:begin()
    refuses("a slot is being written", r.begin, r)
    for _, verb in ipairs { "done", "hold" } do
      refuses(verb .. ": fence: expected an mf_fence, got 3", r[verb], r, 3)
      refuses(verb .. ": use: expected C.MF_READ or C.MF_WRITE, got \"r\"", r[verb], r, nil, "r")
      refuses(verb .. ": fence: expected an mf_fence, got cdata<int>", r[verb], r, ffi.new "int")
      refuses(verb .. ": fence: expected an mf_fence, got 3LL", r[verb], r, 3LL)
      refuses(verb .. ": use: expected an integer of 32 bits, got 4294967297", r[verb], r, nil, 2 ^ 32 + 1)
      refuses(verb .. ": use: expected an integer, got 1.5", r[verb], r, nil, 1.5)
    end
    local fence, reached = helper.fence()
    reached[0] = 1
    assert.is_true(r:done(ffi.new("mf_fence[1]", { fence })))
    assert.is_truthy(r:begin())
    assert.is_true(r:done(ffi.cast("void *", 0)))
    local into = r.into
    r:close()
    refuses("into: expected an open ring", into, r, print)
    local t = mf.zeros(4)
    refuses("views of one memory", mf.ring, { t, t:view({ 1 }) })
    refuses("ring: slots", mf.ring, { 4 }, "float32", "three")
    for _, slots in ipairs { 0, -1, 65, 2 ^ 52 } do
      refuses("ring: slots: expected a number from 1 to 64, got", mf.ring, { 4 }, "float32", slots)
    end
    refuses("ring_from_handle", mf.ring_from_handle, 7)
    collectgarbage()
    assert.are.equal(1, reached[0]) -- C has only its address
  end)
end)

describe("a view that was there before its memory's first fence", function()
  after_each(helper.nothing_left)

  local function elements(t)
    return {
      get = function() return t:get(1, 0) end,
      put = function() return t:put(1, 0, 7) end,
      at = function() return t:at(1, 0) end,
      set = function() return t:set(1, 0, 7) end,
      row = function() return t:row(1) end,
      rows = function() return t:rows() end,
      ptr = function() return t:ptr() end,
    }
  end

  for _, name in ipairs { "get", "put", "at", "set", "row", "rows", "ptr" } do
    it("waits for it in " .. name, function()
      local t = mf.zeros({ 3, 2 })
      local v = t:view({ 0, 2 })
      local fence, reached = helper.fence()
      local use = elements(v)[name]
      for _ = 1, 100 do
        use()
      end
      assert.are.equal(0, C.mf_tensor_fence(t.handle, fence, C.MF_WRITE, nil))
      refuses("cannot be waited for on this thread", use)
      local late = t:view({ 0, 2 })
      refuses("cannot be waited for on this thread", elements(late)[name])
      reached[0] = 1
      use()
      use()
      late:close()
      v:close()
      t:close()
    end)
  end

  it("waits for it in a compiled loop", function()
    local t = mf.zeros(1000)
    local fence, reached = helper.fence()
    local seen = 0
    local function loop()
      for i = 0, 999 do
        if i == 500 and reached[0] == 0 then
          C.mf_tensor_fence(t.handle, fence, C.MF_WRITE, nil)
        end
        t:set(i, i)
        seen = i
      end
    end
    reached[0] = 1
    for _ = 1, 10 do
      loop()
    end
    reached[0] = 0
    refuses("cannot be waited for on this thread", loop)
    assert.are.equal(499, seen)
    reached[0] = 1
    t:close()
  end)

  it("waits for it in to_dlpack", function()
    local t = mf.zeros({ 3, 2 })
    local v = t:view({ 0, 2 })
    local fence, reached = helper.fence()
    C.mf_tensor_fence(t.handle, fence, C.MF_WRITE, nil)
    refuses("cannot be waited for on this thread", v.to_dlpack, v)
    reached[0] = 1
    mf.from_dlpack(v:to_dlpack()):close()
    v:close()
    t:close()
  end)
end)

describe("fields", function()
  after_each(helper.nothing_left)

  local VERTEX = { { "position", "float32", 2 }, { "color", "uint8", 4 }, { "size", "float32" } }

  it("are strided tensors over the records of C", function()
    pcall(ffi.cdef, "typedef struct { float position[2]; uint8_t color[4]; float size; } spec_vertex;")
    local vertices = ffi.new("spec_vertex[5]")
    local v, stride = mf.fields(vertices, 5, VERTEX)
    assert.are.equal(ffi.sizeof "spec_vertex", stride)
    assert.are.same({ 5, 2 }, v.position.shape)
    assert.are.same({ 4, 1 }, v.position.strides)
    assert.are.same({ 5, 4 }, v.color.shape)
    assert.are.same({ 5 }, v.size.shape)
    v.position:put(3, 1, 2.5)
    v.color:fill(9)
    v.size:put(4, 7)
    assert.are.equal(2.5, vertices[3].position[1])
    assert.are.equal(9, vertices[4].color[3])
    assert.are.equal(7, vertices[4].size)
    assert.are.equal(0, vertices[3].size)
    for _, t in pairs(v) do
      t:close()
    end
  end)

  it("are placed as a C compiler places them", function()
    pcall(ffi.cdef, "typedef struct { uint8_t a; double b; uint16_t c; uint8_t d; } spec_record;")
    local list = { { "a", "uint8" }, { "b", "float64" }, { "c", "uint16" }, { "d", "uint8" } }
    local records = ffi.new("spec_record[3]")
    local v, stride = mf.fields(records, 3, list)
    assert.are.equal(ffi.sizeof "spec_record", stride)
    for i = 0, 2 do
      v.a:put(i, i + 1)
      v.b:put(i, i + 0.5)
      v.c:put(i, 1000 + i)
      v.d:put(i, 20 + i)
    end
    for i = 0, 2 do
      local r = records[i]
      assert.are.same({ i + 1, i + 0.5, 1000 + i, 20 + i }, { r.a, r.b, r.c, r.d })
    end
    for _, t in pairs(v) do
      t:close()
    end
  end)

  it("of a slot share its memory", function()
    local r = mf.ring({ 10, 16 }, "uint8", 2)
    local views = r:into(function(t)
      return mf.fields(t, VERTEX)
    end)
    local t, i = r:begin()
    views[i].size:fill(3)
    assert.are.equal(0x40, t:get(9, 15)) -- 3.0 is 0x40400000
    r:done()
    for _, v in ipairs(views) do
      for _, field in pairs(v) do
        field:close()
      end
    end
    r:close()
  end)

  it("may be of no records, and of records with room behind them", function()
    local records = ffi.new("uint8_t[64]")
    local v, stride = mf.fields(records, 0, VERTEX)
    assert.are.same({ { 0 }, 16 }, { v.size.shape, stride })
    local wide, apart = mf.fields(records, 2, VERTEX, { stride = 32 })
    assert.are.same({ { 8 }, 32 }, { wide.size.strides, apart })
    for _, fields in ipairs { v, wide } do
      for _, t in pairs(fields) do
        t:close()
      end
    end
  end)

  it("leave none where memory ends at a later one, before anything is collected", function()
    local t = mf.zeros({ 4, 16 }, "uint8")
    local before = mf.ledger()
    local v = helper.scarce(function()
      local made, message, code = mf.fields(t, VERTEX)
      assert.are.equal(before.tensors + (made and 3 or 0), mf.ledger().tensors)
      return made, message, code
    end)
    for _, field in pairs(v) do
      field:close()
    end
    t:close()
  end)

  it("refuse what is no layout", function()
    local t = mf.zeros({ 4, 16 }, "uint8")
    refuses("fields: expected a list", mf.fields, t, {})
    refuses("fields: field 1: dtype: expected a string, got nil", mf.fields, t, { { "a" } })
    refuses("the name \"a\" is field 1's", mf.fields, t, { { "a", "uint8" }, { "a", "uint8" } })
    refuses("narrower than a byte", mf.fields, t, { { "a", "int4" } })
    refuses("offset: expected a multiple of 4", mf.fields, t, { { "a", "float32", 1, offset = 2 } })
    refuses("stride: expected a multiple of 4 of at least 20", mf.fields, t, { { "a", "float32", 5 } })
    refuses("fields: field 2: expected { name, dtype, count }, got nil", mf.fields, t,
      { { "a", "uint8" }, nil, { "c", "uint8" } })
    refuses("fields: expected a list of { name, dtype, count }, got the key \"stride\"", mf.fields, t,
      { { "a", "uint8" }, stride = 8 })
    refuses("fields: expected a list of { name, dtype, count }, got the key 0.5", mf.fields, t,
      { { "a", "uint8" }, [0.5] = { "b", "uint8" } })
    refuses("fields: field 1: expected { name, dtype, count, offset = bytes }, got the key \"ofset\"", mf.fields, t,
      { { "a", "uint8", ofset = 4 } })
    refuses("expected a list alone, got a table beside it", mf.fields, t, { { "a", "uint8" } }, { stride = 8 })
    local bytes = ffi.new "uint8_t[64]"
    for _, wrong in ipairs { "cpu", 3, t } do
      refuses("fields: options: expected a table", mf.fields, bytes, 4, { { "a", "uint8" } }, wrong)
    end
    local f = mf.zeros({ 4, 16 })
    refuses("fields: expected a uint8 tensor of rank 2", mf.fields, f, VERTEX)
    t:close()
    f:close()
  end)
end)
