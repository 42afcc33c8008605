-- Every allocation made to fail in turn, from Lua: no crash, nothing lost, `nil, message, code` at the end.
local ffi = require "ffi"
local mf = require "moonferry"
local helper = require "helper"
local owners = require "moonferry.owner"

local C = helper.C

-- What malloc has given out, where glibc's says so.
ffi.cdef [[
typedef struct { size_t unasked[7], uordblks, fordblks, keepcost; } spec_mallinfo;
spec_mallinfo mallinfo2(void);
]]
local function allocated()
  local ok, info = pcall(function() return ffi.C.mallinfo2() end)
  return ok and tonumber(info.uordblks) or 0
end

local RECORD = { { "position", "float32", 2 }, { "normal", "int16" } }

-- Each makes or does something with `t` (2 x 3 floats) that allocates; what it returns is closed here.
local CALLS = {
  empty = function() return mf.empty({ 2, 3 }) end,
  zeros = function() return mf.zeros({ 2, 3 }, "int8") end,
  ones = function() return mf.ones(4) end,
  full = function() return mf.full({ 2 }, 7, "int4") end,
  tensor = function() return mf.tensor({ { 1, 2 }, { 3, 4 } }) end,
  tensor_without_c_type = function() return mf.tensor({ { 1, 2 }, { 3, 4 } }, "float16") end,
  wrap = function() return mf.wrap(ffi.new("float[4]"), { 2, 2 }) end,
  wrap_without_owner = function(_, array) return mf.wrap(array, { 2, 2 }, "float32", { owner = false }) end,
  view = function(t) return t:view(1, { 0, 2 }) end,
  permute_dims = function(t) return t:permute_dims() end,
  reshape = function(t) return t:reshape(-1) end,
  broadcast_to = function(t) return t:broadcast_to({ 4, 2, 3 }) end,
  squeeze = function(t) return t:squeeze() end,
  expand_dims = function(t) return t:expand_dims(0) end,
  diagonal = function(t) return t:diagonal() end,
  reinterpret = function(t) return t:reinterpret("uint8") end,
  as_readonly = function(t) return t:as_readonly() end,
  copy = function(t) return t:copy() end,
  copy_with_overlap = function(t) return t:view(mf.all, { 1 }):copy(t:view(mf.all, { 0, 2 })) end,
  astype = function(t) return t:astype("float16") end,
  to_dlpack = function(t) return t:to_dlpack() end,
  to_dlpack_legacy = function(t) return t:to_dlpack_legacy() end,
  fields = function(_, array) return mf.fields(ffi.cast("char *", array), 1, RECORD, { owner = false }) end,
  fields_of_a_tensor = function() return mf.fields(mf.zeros({ 2, 12 }, "uint8"), RECORD) end,
}

local function dispose(result)
  if mf.is_tensor(result) then
    result:close()
  elseif type(result) == "table" then
    for _, t in pairs(result) do t:close() end
  elseif result ~= nil then
    result.deleter(result)
  end
end

local function same_elements(t)
  return t:get(0, 0) == 1 and t:get(1, 2) == 6
end

-- Fails allocation `nth` (and, if sticky, all later ones). Returns whether there were so many.
local function attempt(call, t, array, nth, sticky)
  collectgarbage()
  collectgarbage()
  local before = mf.ledger()
  C.mf_fault_arm(nth, sticky)
  local ok, result, message, code = pcall(call, t, array)
  local hits = C.mf_fault_hits()
  C.mf_fault_arm(-1, 0)
  if ok and result then
    dispose(result)
  elseif ok then
    assert.is_string(message)
    assert.are.equal(mf.ENOMEM, code)
  else
    -- A chain of calls inside the case that met nil, in this file.
    assert.matches("^[^:]*memory_spec.lua:%d+: .*nil", tostring(result))
  end
  collectgarbage()
  collectgarbage()
  assert.are.same(before, mf.ledger())
  return hits > 0, ok and result ~= nil
end

describe("failing allocations", function()
  after_each(helper.nothing_left)

  for name, call in pairs(CALLS) do
    it("are survived by " .. name, function()
      for _, sticky in ipairs { 0, 1 } do
        local t = mf.tensor({ { 1, 2, 3 }, { 4, 5, 6 } })
        local array = ffi.new("float[4]")
        local nth, more = 0, true
        while more do
          local succeeded
          more, succeeded = attempt(call, t, array, nth, sticky)
          -- One failure alone is made good by collecting and trying again.
          assert.are.equal(sticky == 0 or not more, succeeded)
          if name ~= "copy_with_overlap" then
            assert.is_true(same_elements(t))
          end
          nth = nth + 1
        end
        assert.is_true(nth > 1, "nothing was allocated")
        assert.is_true(t:copy():equal(t))
      end
    end)
  end

  it("leave an imported struct to its owner", function()
    for _, make in ipairs { helper.managed, helper.managed_legacy } do
      local m, count = make()
      C.mf_fault_arm(0, 1)
      local t, message, code = mf.from_dlpack(m)
      C.mf_fault_arm(-1, 0)
      assert.is_nil(t)
      assert.is_string(message)
      assert.are.equal(mf.ENOMEM, code)
      assert.are.equal(0, count[0])
      C.mf_fault_arm(0, 0)
      t = mf.from_dlpack(m)
      C.mf_fault_arm(-1, 0)
      t:close()
      assert.are.equal(1, count[0])
    end
  end)

  it("collect garbage before they are reported", function()
    do
      mf.empty(1000)
    end
    C.mf_fault_arm(0, 1)
    local t = mf.empty(1000)
    C.mf_fault_arm(-1, 0)
    assert.is_nil(t)
    assert.are.equal(0, mf.ledger().tensors)
  end)

  it("let go of owners that C lets go of, soon and to the last byte", function()
    local memory, held = ffi.new "float[1]", setmetatable({}, { __mode = "v" })
    local function wrap_many(n)
      for _ = 1, n do
        local object = {}
        held[#held + 1] = object
        local t = assert(mf.wrap(memory, { 1 }, "float32", { owner = object }))
        local m = t:to_dlpack()
        t:close()
        m.deleter(m) -- on any thread, and without a word to Lua
      end
    end
    wrap_many(1000)
    collectgarbage()
    collectgarbage()
    local alive = 0
    for _ in pairs(held) do
      alive = alive + 1
    end
    assert.is_true(alive <= 130, alive .. " owners are alive")
    local before = allocated()
    wrap_many(20000)
    assert.is_true(allocated() - before < 100000, allocated() - before .. " bytes more")
  end)

  -- Wraps memory under an owner of its own and lets go of it where Lua does not hear of that.
  local function wrap_and_release(watch)
    local object = {}
    watch[#watch + 1] = object
    local t = mf.wrap(ffi.new "float[1]", 1, "float32", { owner = object })
    local m = t:to_dlpack()
    t:close()
    m.deleter(m)
  end

  -- Calls fn while another function is called between two instructions of it, once; says whether there were so many.
  local function with_between(at, between, fn)
    local count = 0
    debug.sethook(function()
      count = count + 1
      if count == at then
        between()
      end
    end, "", 1)
    fn()
    debug.sethook()
    return count > at
  end

  it("drop an owner once, whatever comes between", function()
    local watch, at, more = setmetatable({}, { __mode = "v" }), 0, true
    jit.off()
    jit.flush()
    while more do
      at = at + 1
      wrap_and_release(watch)
      more = with_between(at, owners.sweep, owners.sweep)
      local t = mf.wrap(ffi.new "float[1]", 1)
      with_between(at, owners.sweep, function() t:close() end)
      local another = mf.wrap(ffi.new "float[1]", 1)
      wrap_and_release(watch)
      with_between(at, function() another:close() end, owners.sweep)
      owners.sweep()
    end
    jit.on()
    assert.is_true(at > 20)
    collectgarbage()
    assert.is_nil(next(watch))
  end)

  it("look for them ever more rarely where many stay", function()
    local sweep, sweeps, keep = owners.sweep, 0, {}
    function owners.sweep()
      sweeps = sweeps + 1
      sweep()
    end
    for i = 1, 3000 do
      keep[i] = mf.wrap(ffi.new "float[1]", 1)
    end
    owners.sweep = sweep
    for i = 1, 3000 do
      keep[i]:close()
    end
    assert.is_true(sweeps <= 6, sweeps .. " times")
  end)

  it("do not touch an owner that was to be held", function()
    local watch = setmetatable({}, { __mode = "v" })
    do
      local owner = {}
      watch[1] = owner
      C.mf_fault_arm(0, 1)
      assert.is_nil((mf.wrap(ffi.new("float[1]"), 1, "float32", { owner = owner })))
      C.mf_fault_arm(-1, 0)
    end
    collectgarbage()
    assert.is_nil(watch[1])
  end)
end)

describe("the garbage collector", function()
  local limit = mf.gc_limit()
  after_each(function()
    mf.gc_limit(limit)
    helper.nothing_left()
  end)

  it("runs when many bytes were made", function()
    mf.gc_limit(2 ^ 20)
    collectgarbage("stop")
    local most = 0
    for _ = 1, 400 do
      mf.empty(2 ^ 15, "uint8")
      most = math.max(most, mf.ledger().bytes)
    end
    collectgarbage("restart")
    assert.is_true(most < 3 * 2 ^ 20, most .. " bytes were alive at once")
    assert.are.equal(2 ^ 20, mf.gc_limit())
  end)

  it("runs for imported and for wrapped memory, and for views without end", function()
    mf.gc_limit(2 ^ 18)
    collectgarbage("stop")
    local t = mf.empty(2 ^ 14, "uint8")
    local most = 0
    for _ = 1, 100 do
      mf.from_dlpack(t:to_dlpack())
      most = math.max(most, mf.ledger().tensors)
    end
    for _ = 1, 3000 do
      t:view(0)
      most = math.max(most, mf.ledger().tensors)
    end
    assert.is_true(most < 2000, most .. " tensors were alive at once")
    local most_bytes = 0
    for _ = 1, 100 do
      t:to("cpu", { copy = true })
      most_bytes = math.max(most_bytes, mf.ledger().bytes)
    end
    collectgarbage("restart")
    assert.is_true(most_bytes < 2 ^ 20, most_bytes .. " bytes were alive at once")
  end)

  it("does not run for tensors that are closed by hand", function()
    mf.gc_limit(2 ^ 16)
    mf.empty(2 ^ 17, "uint8"):close() -- what earlier specs made is collected here
    local watch = setmetatable({ {} }, { __mode = "v" })
    collectgarbage("stop")
    for _ = 1, 1000 do
      mf.empty(2 ^ 15, "uint8"):close()
    end
    local survived = watch[1] ~= nil
    collectgarbage("restart")
    assert.is_true(survived)
  end)

  it("lets go of the owners of what it has collected", function()
    local watch = setmetatable({}, { __mode = "v" })
    do
      local object = {}
      watch[1] = object
      mf.wrap(ffi.new "float[1]", 1, "float32", { owner = object })
    end
    mf.gc_limit(2 ^ 20)
    mf.empty(2 ^ 21, "uint8"):close()
    collectgarbage()
    assert.is_nil(watch[1])
  end)

  it("runs more rarely where much stays alive", function()
    mf.gc_limit(2 ^ 16)
    local keep = {}
    for i = 1, 100 do
      keep[i] = mf.empty(2 ^ 12, "uint8")
    end
    assert.is_true(mf.gc_limit() > 2 ^ 16)
    assert.are.equal(100, #keep)
  end)

  it("has a limit that comes back when less stays alive", function()
    mf.gc_limit(2 ^ 16)
    local kept = mf.empty(2 ^ 20, "uint8")
    assert.is_true(mf.gc_limit() >= 2 ^ 18)
    kept:close()
    for _ = 1, 40 do
      mf.empty(2 ^ 16, "uint8")
    end
    assert.are.equal(2 ^ 16, mf.gc_limit())
  end)

  it("does not run for memory that comes in again and again", function()
    mf.gc_limit(2 ^ 20)
    mf.empty(2 ^ 21, "uint8"):close() -- what earlier specs made is collected here
    local t, watch = mf.empty(2 ^ 19, "uint8"), setmetatable({ {} }, { __mode = "v" })
    collectgarbage("stop")
    for _ = 1, 1000 do
      mf.from_dlpack(t:to_dlpack())
    end
    local survived, at_last = watch[1] ~= nil, mf.gc_limit()
    for _ = 1, 4000 do -- their descriptions count all the same
      mf.from_dlpack(t:to_dlpack())
    end
    local most = mf.ledger().tensors
    collectgarbage("restart")
    assert.are.same({ true, 2 ^ 20 }, { survived, at_last })
    assert.is_true(most < 5000, most .. " tensors were alive at once")
    t:close()
  end)

  it("has a limit that can be set", function()
    assert.are.equal(0, mf.gc_limit(0))
    assert.are.equal(12345, mf.gc_limit(12345))
    assert.are.equal(12345, mf.gc_limit())
    for _, bad in ipairs { -1, 0.5, 0 / 0, 1 / 0, "x", {} } do
      helper.refuses("gc_limit: nbytes", mf.gc_limit, bad)
    end
  end)
end)

describe("os.exit", function()
  it("ends the process as LuaJIT's own does, whatever became of the modules", function()
    for _, done in ipairs {
      { "os.exit()", 0 }, { "os.exit(3)", 3 }, { "os.exit(true, true)", 0 }, { "os.exit(false, true)", 1 },
      { "os.exit(nil, true)", 0 }, { "os.exit(4, 1)", 4 },
      { "package.loaded['moonferry.finalizer'] = nil os.exit(5, true)", 5 }, { "package = 7 os.exit(6, true)", 6 },
    } do
      assert.are.same({ "", done[2] }, { helper.luajit("require 'moonferry' " .. done[1]) })
    end
  end)

  it("calls all that begins an end, whatever each of it raises", function()
    local program = [[
      require "moonferry"
      kept = {}
      for i = 1, 8 do
        kept[i] = function() print "called" error "nobody hears of it" end
        require("moonferry.finalizer").at_begin(kept[i])
      end
      os.exit(3, true)]]
    assert.are.same({ ("called\n"):rep(8), 3 }, { helper.luajit(program) })
  end)

  it("of somebody else's is left to him", function()
    local program = [[local own = function() end os.exit = own require "moonferry" print(os.exit == own)]]
    assert.are.same({ "true\n", 0 }, { helper.luajit(program) })
  end)
end)
