-- Deleters and finalizers that call Lua, through Python or from C, wherever the last reference to their memory goes:
-- each runs once, and never below compiled Lua, which LuaJIT does not survive.
local helper = require "helper"

-- What memory is of: each makes a tensor, after whose end gone(i) is called.
local SOURCES = {
  ["weakref.finalize"] = [[
    local finalize = py.import("weakref").finalize
    function make(i)
      local array = np.zeros(16)
      finalize(array, gone, i)
      local t = py.tensor(array)
      py.close(array)
      return t
    end]],
  ["__del__"] = [[
    py.main.gone = gone
    py.exec "import numpy\nclass Noisy(numpy.ndarray):\n  def __del__(self): gone(self.number)"
    function make(i)
      local array = py.main.Noisy({ 16 })
      array.number = i
      local t = py.tensor(array)
      py.close(array)
      return t
    end]],
  ["a release callback in C"] = [[
    helper.calls(gone)
    function make(i)
      return helper.wrapped_calling(i)
    end]],
  ["a deleter in C"] = [[
    helper.calls(gone)
    function make(i)
      return mf.from_dlpack(helper.managed_calling(i))
    end]],
}

-- Where the last reference goes. Each drops N tensors; what it may leave to a later call is gone after `settle`.
local DROPS = {
  ["close in a loop"] = [[
    local list = made()
    for i = 1, N do list[i]:close() end]],
  ["close of a view after its tensor"] = [[
    local list = made()
    for i = 1, N do
      local view = list[i]:as_readonly()
      list[i]:close()
      view:close()
    end]],
  ["close by a function that is compiled by itself"] = [[
    local list = made()
    local function drop(t) t:close() end
    for i = 1, N do drop(list[i]) end]],
  ["close in a coroutine"] = [[
    local list = made()
    local drop = coroutine.wrap(function()
      for i = 1, N do
        list[i]:close()
        if i % 10 == 0 then coroutine.yield() end
      end
      return true
    end)
    while not drop() do end]],
  ["close of a ring after its slots"] = [[
    local list = made()
    for i = 1, N do
      local ring = mf.ring { list[i] }
      ring.slots[1]:close()
      list[i]:close()
      ring:close()
    end]],
  ["the end of a scope"] = [[
    for _ = 1, 10 do
      mf.scope(function() for _ = 1, N / 10 do next_one() end end)
    end]],
  ["a scope that an error ends"] = [[
    for _ = 1, N do pcall(mf.scope, function() next_one() error "on purpose" end) end]],
  ["what closes a tensor behind a call, which fails or does not"] = [[
    local closing = require("moonferry.tensor").closing
    local list, errors = made(), 0
    local function use(t, i)
      if i % 2 == 0 then error("on purpose", 0) end
      return i, t.ndim
    end
    for i = 1, N do
      local ok, answer = pcall(closing, list[i], use, i)
      assert(answer == (ok and i or "on purpose"))
      errors = errors + (ok and 0 or 1)
    end
    assert(errors == N / 2)]],
  ["the deleter of an exported struct"] = [[
    local list = made()
    for i = 1, N do
      local m = list[i]:to_dlpack()
      list[i]:close()
      m.deleter(m)
    end]],
  ["the deleter of an exported legacy struct"] = [[
    local list = made()
    for i = 1, N do
      local m = list[i]:to_dlpack_legacy()
      list[i]:close()
      m.deleter(m)
    end]],
  ["an exported struct that comes back"] = [[
    local list = made()
    for i = 1, N do
      local back = mf.from_dlpack(list[i]:to_dlpack())
      list[i]:close()
      back:close()
    end]],
  ["an import that fails"] = [[
    local list = made()
    for i = 1, N do
      local m = list[i]:to_dlpack()
      list[i]:close()
      m.version.major = 9
      assert(not pcall(mf.from_dlpack, m))
      m.deleter(m)
    end]],
  ["the collector, between other things"] = [[
    made()
    local t = mf.zeros(4)
    for i = 1, 40 * N do
      local view = t:as_readonly()
      if i % 7 == 0 then view:close() end
    end
    t:close()]],
  ["the collector, of places that nobody took from, between other things"] = [[
    local list, place = made(), require("moonferry.tensor").place
    for i = 1, N do
      local at = place()
      at[0] = list[i].handle
      helper.C.mf_tensor_retain(at[0])
      list[i]:close()
    end
    local t = mf.zeros(4)
    for i = 1, 40 * N do
      local view = t:as_readonly()
      if i % 7 == 0 then view:close() end
    end
    t:close()]],
  ["a collection that missing memory asks for"] = [[
    made()
    for _ = 1, 5 do
      helper.C.mf_fault_arm(0, 0)
      mf.zeros(4):close()
      helper.C.mf_fault_arm(-1, 0)
    end]],
}

local PROGRAM = [[
local mf = require "moonferry"
local helper = require "helper"
local WITH_PYTHON = %s
local py = WITH_PYTHON and require "moonferry.python"
local np = py and py.import "numpy"
local N, ROUNDS = 100, 12
local count, seen, notes, make = 0, {}, {}
local function gone(i)
  count = count + 1
  assert(not seen[i], "a second time")
  seen[i] = true
  for k = 1, 5 do notes[(i + k) %% 50 + 1] = { i, tostring(i) } end
  mf.zeros(3):view({ 1 }):close()
end
do
%s
end
-- First of our own memory, so that the loops below are compiled before foreign code runs in them.
local made_so_far, own_memory = 0, true
local function next_one()
  if own_memory then return mf.zeros(4) end
  made_so_far = made_so_far + 1
  return make(made_so_far)
end
local function made()
  local list = {}
  for i = 1, N do list[i] = next_one() end
  return list
end
local function settle()
  for _ = 1, 3 do
    collectgarbage()
    if py then py.collect() end
    mf.zeros(1):close()
  end
end
local function drop()
%s
end
for _ = 1, 3 do drop() end
own_memory = false
for _ = 1, ROUNDS do drop() end
jit.flush()
settle()
local own = 0
for i = 1, 200 do
  local t = mf.zeros({ 2, 3 })
  own = own + t.size
  t:close()
end
assert(own == 1200)
local left = mf.ledger()
print(("%%d of %%d, %%d failed, %%d left"):format(count, N * ROUNDS, helper.support.support_failures(), left.storages))
]]

-- A function that calls Lua at last, when the loop would long have been compiled.
local LATE = [[
local ffi, foreign = require "ffi", require "moonferry.foreign"
ffi.cdef "void qsort(void *base, size_t n, size_t size, int (*compare)(const void *, const void *));"
local calls, counts, numbers = 0, {}, ffi.new "int[2]"
local compare = ffi.cast("int (*)(const void *, const void *)", function()
  calls = calls + 1
  return 0
end)
local qsort = ffi.C.qsort
for i = 1, 400 do counts[i] = i < 400 and 1 or 2 end
for i = 1, 400 do foreign.call(qsort, numbers, counts[i], 4, compare) end
print(calls > 0)
]]

-- A finalizer that fails, while an error of the call's own is on its way.
local FAILS = [[
local py = require "moonferry.python"
local closing, finalize = require("moonferry.tensor").closing, py.import("weakref").finalize
local np, sys, told = py.import "numpy", py.import "sys", {}
sys.unraisablehook = function(u) told[#told + 1] = tostring(u.exc_value) end
local function own()
  local array = np.zeros(4)
  finalize(array, function() error("the finalizer's", 0) end)
  local t = py.tensor(array)
  py.close(array)
  return t
end
for i = 1, 50 do
  local t = own()
  local ok, message = pcall(closing, t, function() error("the call's", 0) end)
  assert(not ok and message == "the call's" and tostring(t):find "closed", message)
  local answer = closing(own(), tostring)
  assert(answer:find "tensor", answer)
end
print(#told, told[1]:match "^[^\n]*")
]]

describe("foreign code that calls Lua:", function()
  it("may do so for the first time in any call", function()
    local output, code = helper.luajit(LATE, "-Ohotloop=3")
    assert.are.equal("true\n", output)
    assert.are.equal(0, code)
  end)

  it("may fail while an error of the call's own is on its way", function()
    local output, code = helper.luajit(FAILS)
    assert.are.equal("100\tthe finalizer's\n", output)
    assert.are.equal(0, code)
  end)

  after_each(helper.nothing_left)

  local is_drawn = helper.one_in(os.getenv "ASAN_OPTIONS" and 3 or 2)

  local function case(source, maker, drop, dropper, mode, option)
    it(("%s, by %s, %s"):format(source, drop, mode), function()
      local program = PROGRAM:format(maker:find "py%." and "true" or "false", maker, dropper)
      local output, code = helper.luajit(program, option)
      assert.are.equal("1200 of 1200, 0 failed, 0 left\n", output)
      assert.are.equal(0, code)
    end)
  end

  for source, maker in pairs(SOURCES) do
    for drop, dropper in pairs(DROPS) do
      for mode, option in pairs { compiled = "-Ohotloop=3 -Ohotexit=2", interpreted = "-joff" } do
        if is_drawn() then case(source, maker, drop, dropper, mode, option) end
      end
    end
  end
end)
