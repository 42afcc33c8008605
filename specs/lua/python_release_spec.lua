-- That memory can be taken back: after py.close, a scope's end and lua_close nothing of Python has a view of it that
-- only Lua had asked for.
local ffi = require "ffi"
local helper = require "helper"
local process = require "process"
local mf = require "moonferry"
local py = require "moonferry.python"
local np = py.import "numpy"
local refuses = helper.refuses

local CLOSED = "this Python object was closed: it is a deleted python object"

py.exec [[
import numpy
def fails(tensor):
    view = numpy.from_dlpack(tensor)
    raise ValueError(view.shape)
]]
local fails = py.main.fails

before_each(function()
  collectgarbage()
  collectgarbage()
  collectgarbage "stop"
end)

after_each(function()
  collectgarbage "restart"
  helper.nothing_left_by_either()
end)

-- Whether anybody still has memory that `body` got as a tensor, once that has returned.
local function is_in_use(body)
  local memory = ffi.new "float[64]"
  local t = mf.wrap(memory, { 8, 8 }, "float32")
  body(t)
  local in_use = t:invalidate()
  t:close()
  return in_use
end

describe("py.close", function()
  it("lets go of an object whose methods were called", function()
    assert.is_false(is_in_use(function(t)
      local x = np.asarray(t)
      x:fill(1)
      x:fill(2)
      local read = { x.fill, x.sum, x.fill, x.max }
      py.close(read[2])
      py.close(x)
      for _, method in ipairs(read) do
        refuses(CLOSED, function() method(3) end)
      end
    end))
  end)

  it("leaves alone what a method gave, and the same object elsewhere", function()
    assert.is_true(is_in_use(function(t)
      local x = np.asarray(t)
      local view = x:reshape(64)
      local again = py.tuple({ x })[0]
      local fill = again.fill
      py.close(x)
      assert.are.equal(64, #view)
      fill(4)
      assert.are.equal(4, again:min():item())
    end))
  end)

  it("lets go of an error with its traceback", function()
    assert.is_false(is_in_use(function(t)
      local ok, err = pcall(fails, t)
      assert.is_false(ok)
      py.close(err)
    end))
  end)

  it("may come twice, and while the object is used", function()
    local x = np.zeros(3)
    local fill = x.fill
    py.main.close = function() py.close(x) end
    py.exec "def close_and_give(f): close(); return 5"
    assert.are.equal(5, py.main.close_and_give(fill))
    refuses(CLOSED, function() py.close(x) end)
    refuses(CLOSED, function() fill(1) end)
    py.main.close, py.main.close_and_give = nil, nil
  end)
end)

describe("a scope", function()
  local function lets_go(name, body)
    it("lets go of " .. name, function()
      for _, scope in ipairs { py.scope, mf.scope } do
        assert.is_false(is_in_use(function(t)
          scope(function(s) body(t, s) end)
        end))
      end
    end)
  end

  lets_go("views and methods", function(t)
    local x = np.asarray(t)
    x:fill(1)
    x:reshape(64):fill(2)
    assert.are.equal(64, #x.T:reshape(64))
  end)
  lets_go("errors that were caught in it", function(t)
    assert.is_false((pcall(fails, t)))
  end)
  lets_go("errors that have left a scope inside", function(t)
    assert.is_false((pcall(mf.scope, function() fails(t) end)))
  end)
  lets_go("what iterators and items gave", function(t)
    for row in py.iter(np.asarray(t)) do
      row:fill(1)
    end
  end)
  lets_go("what a scope inside has kept", function(t)
    local x = mf.scope(function(s) return s:keep(np.asarray(t)) end)
    x:fill(3)
  end)

  it("keeps what it is told to, and what was there before", function()
    local before = np.zeros(3)
    local kept, lost = py.scope(function(s) return s:keep(np.ones(2)), np.ones(2) end)
    assert.are.equal(2, #kept)
    assert.are.equal(3, #before)
    refuses(CLOSED, function() return #lost end)
    assert.matches(CLOSED, select(2, pcall(py.scope, function(s) s:keep(lost) end)))
  end)

  it("leaves alone what a scope inside keeps, but was there before", function()
    local before = np.zeros(3)
    py.scope(function()
      mf.scope(function(s) s:keep(before) end)
    end)
    assert.are.equal(3, #before)
  end)

  it("lets an error through as it was", function()
    local ok, err = pcall(py.scope, function() fails(mf.zeros({ 2 }, "float32")) end)
    assert.is_false(ok)
    assert.are.equal("ValueError", err.type)
    py.close(err)
  end)

  it("has closed what a function then gives Python, or raises there", function()
    local lost, err
    py.scope(function()
      lost = py.list {}
      err = select(2, pcall(fails, mf.zeros({ 2 }, "float32")))
    end)
    py.exec "def call(f):\n    return f()"
    local call = py.main.call
    assert.matches(CLOSED, tostring(select(2, pcall(call, function() return lost end))))
    assert.is_false((pcall(call, function() error(err) end)))
    assert.are.equal(3, call(function() return 3 end))
  end)

  it("is its coroutine's own", function()
    local other
    local thread = coroutine.create(function()
      other = np.zeros(4)
      coroutine.yield()
      assert.are.equal(4, #other)
    end)
    py.scope(function()
      assert(coroutine.resume(thread))
    end)
    assert(coroutine.resume(thread))
    local inner
    thread = coroutine.create(function()
      py.scope(function()
        inner = np.zeros(5)
        coroutine.yield()
      end)
    end)
    assert(coroutine.resume(thread))
    local outside = np.zeros(6)
    assert.are.equal(5, #inner)
    assert(coroutine.resume(thread))
    refuses(CLOSED, function() return #inner end)
    assert.are.equal(6, #outside)
  end)

  it("does not close what the library keeps for itself", function()
    assert.are.equal("3.0\t2\t{1: 5}\tNone\n", process.runs [[
local mf, py = require "moonferry", require "moonferry.python"
py.scope(function()
  local a = py.import("numpy").ones(3)
  py.tensor(a)
  py.into(py.import("moonferry").Tensor, mf.zeros({ 1 }, "float32"))
  py.sequence { 1 }
  assert(py.main and py.op and py.builtins)
end)
local a = py.import("numpy").ones(3)
print(py.tensor(a):get(0) + 2 .. ".0", #py.sequence { 1, 2 }, py.builtins.dict(py.mapping { [1] = 5 }), py.None)
]])
  end)

  it("may be left open by a coroutine that nobody resumes", function()
    for _ = 1, 100 do
      local thread = coroutine.create(function()
        py.scope(function()
          np.zeros(10)
          coroutine.yield()
        end)
      end)
      assert(coroutine.resume(thread))
    end
    collectgarbage()
    collectgarbage()
    py.collect()
  end)
end)

-- Scopes within scopes in which objects and their methods are made, kept, closed and dropped by chance, beside a list
-- of what each of them then is.
describe("scopes of all kinds", function()
  local random = math.random
  local known, depth

  local function made(object, owner)
    known[#known + 1] = { object = object, of = depth, owner = owner, open = true }
  end

  local function open_ones(wanted)
    local found = {}
    for _, one in ipairs(known) do
      if one.open and one.object and wanted(one) then found[#found + 1] = one end
    end
    return found[1] and found[random(#found)]
  end

  -- Its methods are closed with it.
  local function close(one)
    py.close(one.object)
    for _, other in ipairs(known) do
      other.open = other.open and other ~= one and other.owner ~= one
    end
  end

  local function is_object(one) return not one.is_method end
  local function any() return true end
  local function is_here(one) return one.of == depth end

  local step = {
    function() made(py.list { #known }) end,
    function()
      local owner = open_ones(is_object)
      if owner then
        made(owner.object.append, owner)
        known[#known].is_method = true
      end
    end,
    function(s)
      local one = open_ones(is_here)
      if one then
        s:keep(one.object)
        one.of = depth - 1
      end
    end,
    function()
      local one = open_ones(any)
      if one then close(one) end
    end,
    function()
      local one = open_ones(any)
      if not one then return end
      one.object = nil
      for _, other in ipairs(known) do
        if other.owner == one then other.owner = nil end
      end
      collectgarbage()
      collectgarbage()
    end,
  }

  local function scope()
    depth = depth + 1
    py.scope(function(s)
      for _ = 1, random(8) do
        if depth < 4 and random(4) == 1 then scope() else step[random(#step)](s) end
      end
    end)
    for _, one in ipairs(known) do
      if one.open and one.of == depth then
        one.open = false
        for _, other in ipairs(known) do
          if other.owner == one then other.owner = nil end
        end
      end
    end
    depth = depth - 1
  end

  it("close what was made in them, was not kept and is not closed yet", function()
    local seed = tonumber(os.getenv "MOONFERRY_SPEC_SEED" or 0)
    math.randomseed(seed)
    for round = 1, 300 do
      known, depth = {}, 0
      scope()
      for number, one in ipairs(known) do
        local is_open = one.object and (pcall(tostring, one.object))
        if one.object and is_open ~= one.open then
          error(("seed %d, round %d: %d of %d is %s"):format(seed, round, number, #known,
            one.open and "gone" or "left"))
        end
        if is_open then close(one) end
      end
    end
  end)
end)

describe("objects that weigh something", function()
  it("are let go of in any order, however many there are", function()
    py.exec "import weakref\nclass Weight:\n    nbytes = 8\nweights = weakref.WeakSet()"
    local weight, weights, living, random = py.main.Weight, py.main.weights, {}, math.random
    math.randomseed(tonumber(os.getenv "MOONFERRY_SPEC_SEED" or 0))
    for _ = 1, 6000 do
      if #living < 1000 and random(5) > 2 then
        living[#living + 1] = weight()
        weights:add(living[#living])
      elseif #living > 0 then
        local at = random(#living)
        if random(2) == 1 then py.close(living[at]) end
        living[at] = living[#living]
        living[#living] = nil
      end
    end
    collectgarbage()
    collectgarbage()
    assert.are.equal(#living, #weights)
    for _, one in ipairs(living) do py.close(one) end
    assert.are.equal(0, #weights)
    py.main.Weight, py.main.weights = nil, nil
  end)

  it("weigh nothing once they are closed", function()
    py.exec "class Weight:\n    nbytes = 64 << 20"
    local weight, collected = py.main.Weight, false
    getmetatable(newproxy(true)).__gc = function() collected = true end
    collectgarbage "stop"
    for _ = 1, 20 do py.close(weight()) end
    local early = collected
    for _ = 1, 20 do weight() end
    collectgarbage "restart"
    assert.are.same({ false, true }, { early, collected })
  end)

  it("have fewer and fewer collections where most of them stay", function()
    py.exec "class Weight:\n    nbytes = 64 << 20"
    local weight, living, collections = py.main.Weight, {}, 0
    local function count_next()
      getmetatable(newproxy(true)).__gc = function()
        collections = collections + 1
        count_next()
      end
    end
    count_next()
    for i = 1, 2000 do
      living[i] = weight()
    end
    assert.is_true(collections > 5 and collections < 40, ("%d collections"):format(collections))
    for _, one in ipairs(living) do py.close(one) end
    py.main.Weight = nil
  end)
end)

-- What counts exactly: allocated.EXACT, as a shell takes it.
local function exactly()
  py.import("sys").path:insert(0, "specs")
  return py.eval [["".join(f"{name}={value} " for name, value in __import__("allocated").EXACT.items())]]
end

describe("a call from Lua itself, below no Python code,", function()
  it("leaves no reference to what it is made of in Python", function()
    py.exec [[
class Kept(Exception):
    def __enter__(self):
        pass
    def __exit__(self, *error):
        pass
KEPT = [Kept, Kept.__enter__, Kept.__exit__, Kept(), eval, __import__("builtins"), __import__("__main__")]
KEPT += [importlib := __import__("importlib"), importlib.import_module]
def counts():
    from sys import getrefcount
    return ",".join(str(getrefcount(kept)) for kept in KEPT)
]]
    local main = py.main
    local kept, before = main.KEPT[3]
    for round = 1, 2 do
      for _ = 1, round == 1 and 1 or 20 do
        py.eval "1"
        py.import "sys"
        py.with(kept, function() end)
        pcall(py.with, kept, py.raise, main.KEPT[0])
        pcall(py.raise, kept)
      end
      collectgarbage()
      collectgarbage()
      py.collect()
      py.import("gc").collect()
      before = before or main.counts()
    end
    assert.are.equal(before, main.counts())
  end)

  it("leaves nothing behind", function()
    local text = process.runs([[
local py = require "moonferry.python"
local mf = require "moonferry"
local sys = py.import "sys"
sys.path:insert(0, "specs")
local allocated = py.import "allocated"
py.exec "class Fresh(ValueError): pass\nclass Odd:\n    def __getattr__(self, name):\n        return [name]"
py.exec "def fails(x): raise type('New', (Fresh,), {})(x)\ndef call(f, *a): return f(*a)"
py.exec "class Answers:\n    def __enter__(self): pass\n    def __exit__(self, *error): return [error]"
py.exec "import contextlib\n@contextlib.contextmanager\ndef manager():\n    yield [1]"
local main, builtins = py.main, py.builtins
local CALLS = {
  ["an error that needs no frame"] = function() pcall(builtins.len, 5) end,
  ["an error that needs one"] = function() pcall(builtins.locals) end,
  ["an error of a function"] = function()
    local _, e = pcall(main.fails, "no")
    return e.type, e.message, e.traceback, e.class, e.value, tostring(e), e:is "Fresh"
  end,
  ["an error through both"] = function() pcall(main.call, function() main.fails "no" end) end,
  ["an error of Lua's through both"] = function() pcall(main.call, function() error {} end) end,
  ["a nil through both"] = function() pcall(main.call, error) end,
  ["attributes and methods"] = function() local o = main.Odd() return o.x, py.list({}):copy(), #py.list { 1 } end,
  ["callbacks"] = function() main.call(function(x) return x end, py.list {}) main.call(tostring, 1) end,
  ["managers"] = function()
    py.with(main.manager(), function(x) return x end)
    pcall(py.with, main.manager(), function() main.fails "no" end)
    pcall(py.with, main.manager(), error, "text")
    py.with(main.Answers(), function() end)
  end,
  ["code"] = function()
    py.eval("x", { x = 1 }, { y = 2 }) py.exec("z = 1", {}, {}) py.eval(("1" .. (" "):rep(90))) py.eval("1", main)
  end,
  ["sequences and numbers"] = function()
    py.list { {} } py.tuple { {} } py.tuple({}, 2) py.dict { a = {} } py.bytes(("."):rep(90))
    builtins.len { {}, { a = 1 } }
    py.int(5) py.float(5) py.number(py.float(5)) py.int64(py.int(2 ^ 40)) py.uint64(py.int(2 ^ 40))
    pcall(py.uint64, py.int(-1)) pcall(py.int64, "no")
  end,
  ["keys of several"] = function()
    local d = py.dict {}
    pcall(py.set, d, {}, 1) py.set(d, 1, 2, {}) py.get(d, 1, 2) py.delete(d, 1, 2)
    pcall(py.get, d, py.tuple {}) d[1] = {}
  end,
  ["names that nobody else has"] = function()
    count = (count or 0) + 1
    local o, name = main.Odd(), ("name %d"):format(count):rep(9)
    o[name] = name
    return o[name], o["another " .. name]
  end,
  ["keywords"] = function()
    builtins.dict(py.kw { a = {} }) py.call(builtins.dict, {}, { a = {} })
    py.call(builtins.dict, nil, py.dict { a = 1 })
    py.call(builtins.list, py.list { py.list {} }) pcall(py.call, builtins.dict, nil, py.list { 5 })
  end,
  ["what is unpacked"] = function()
    py.unpack(py.tuple { {}, {} })
    for _, v in py.items(py.dict { a = {} }) do builtins.len(v) end
    for _, v in py.each(py.list { py.tuple { 1, {} } }) do builtins.len(v) end
  end,
  ["what is raised"] = function()
    pcall(py.raise, builtins.ValueError, {}) pcall(py.raise, builtins.ValueError("x")) pcall(py.raise, 5)
  end,
  ["imports"] = function() py.import "json" pcall(py.import, "no_such_module") end,
  ["loops"] = function() for x in py.iter(builtins.range(3)) do builtins.str(x) end end,
  ["scopes"] = function() py.scope(function(s) py.list {} return s:keep(py.list { {} }) end) end,
  ["what is closed"] = function() local o = main.Odd() py.close(o.x) py.close(o) end,
  ["tensors"] = function() return py.object(mf.zeros(3)).shape, main.call(function(t) return t end, mf.zeros(2)) end,
}
local function settle()
  collectgarbage() collectgarbage() py.collect()
  allocated.collect()
  collectgarbage() collectgarbage() py.collect()
  allocated.collect()
end
for name, call in pairs(CALLS) do
  local least, before = math.huge, 0
  for batch = 0, 3 do
    for _ = 1, 200 do call() end
    settle()
    local now = allocated.allocated() + 16 * sys.getrefcount(builtins.SystemError)
    least, before = batch > 0 and math.min(least, now - before) or least, now
  end
  if least >= 200 * 8 then print(name, least) end -- no object is as small as 8 bytes
end
]], exactly())
    assert.are.equal("", text)
  end)
end)
