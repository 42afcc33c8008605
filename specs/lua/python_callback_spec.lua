-- Lua functions, tables and coroutines in Python: who calls whom, on which thread, and what errors become on the way.
local mf = require "moonferry"
local process = require "process"
local py = require "moonferry.python"
local collect = require("hosted").collect

local builtins = py.builtins

-- The error of a call that must fail.
local function failure(f, ...)
  local ok, err = pcall(f, ...)
  assert.is_false(ok)
  return err
end

describe("a Lua function in Python", function()
  it("is a callable", function()
    local sorted = builtins.sorted({ 3, 1, 2 }, py.kw { key = function(x) return -x end })
    assert.are.equal("[3, 2, 1]", tostring(sorted))
    local map = builtins.map(function(a, b) return a .. b end, { "a", "b" }, { "x", "y" })
    assert.are.equal("['ax', 'by']", tostring(builtins.list(map)))
    local partial = py.import("functools").partial(function(...) return select("#", ...) end, 1, nil)
    assert.are.equal(4, partial(3, nil))
    assert.is_true(builtins.callable(print))
    local reduce = py.import("functools").reduce
    assert.are.equal(10, reduce(function(a, b) return a + b end, py.tuple { 1, 2, 3, 4 }))
  end)

  it("gives none, one or several results", function()
    py.exec "def results(f): return repr(f())"
    local results = py.main.results
    assert.are.equal("9007199254740992", results(function() return 2 ^ 53 end))
    assert.are.equal("9007199254740994.0", results(function() return 2 ^ 53 + 2 end))
    assert.are.equal("None", results(function() end))
    assert.are.equal("'a'", results(function() return "a" end))
    assert.are.equal("(1, None, [2])", results(function() return 1, nil, { 2 } end))
  end)

  it("is equal to itself, wherever it has been, and comes back as itself", function()
    py.exec "def pair(f, g): return f == g and hash(f) == hash(g), f"
    local function f() end
    local same, back = py.unpack(py.main.pair(f, f))
    assert.is_true(same)
    assert.are.equal(f, back)
    assert.is_false((py.unpack(py.main.pair(f, function() end))))
  end)

  it("answers what libraries ask of a function", function()
    py.exec "import copy, inspect"
    local function f(a, b) return a, b end
    assert.are.equal("(a, b, /, *_more)", tostring(py.main.inspect.signature(f)))
    assert.are.equal("(*_more)", tostring(py.main.inspect.signature(print)))
    assert.are.equal(f, py.main.copy.copy(f))
    assert.are.equal(f, py.main.copy.deepcopy { f }[0])
    -- What has __iter__ is a list of functions, not a function, to pandas among others.
    assert.is_false(py.is_instance(f, py.import("collections.abc").Iterable))
    assert.matches("TypeError", tostring(failure(builtins.iter, f)))
  end)

  it("is kept alive by Python, and let go when Python lets go", function()
    local gone = setmetatable({}, { __mode = "k" })
    py.exec "kept = []"
    do
      local function f() return 5 end
      gone[f] = true
      py.main.kept:append(f)
    end
    collect()
    assert.is_not_nil(next(gone))
    assert.are.equal(5, py.eval "kept[0]()")
    py.main.kept:clear()
    collect()
    assert.is_nil(next(gone))
  end)

  it("gets tensors and gives tensors", function()
    py.exec "def twice(f, t): return f(f(t)).tolist()"
    local t = mf.tensor({ 1, 2 }, "int32")
    local handed = {}
    local list = py.main.twice(function(x)
      assert.is_true(mf.is_tensor(x))
      handed[#handed + 1] = x
      return x
    end, t)
    assert.are.equal("[1, 2]", tostring(list))
    for _, x in ipairs(handed) do
      x:close()
    end
    t:close()
    collect()
  end)

  it("cannot yield across Python, and says so", function()
    local resume = coroutine.wrap(function()
      builtins.list(builtins.map(coroutine.yield, { 1 }))
    end)
    assert.matches("attempt to yield across C%-call boundary", tostring(failure(resume)))
  end)

  it("is a method of a class that it is put into", function()
    local class = builtins.type("Boat", py.tuple {}, py.dict {
      load = function(self, n) self.cargo = n return self end,
      __len__ = function(self) return self.cargo end,
      __getattr__ = function(_, name) return "no " .. name end,
      shared = builtins.staticmethod(function(...) return select("#", ...) end),
    })
    local boat = class()
    assert.are.equal(boat, boat:load(3))
    assert.are.equal(3, #boat)
    assert.are.equal("no crew", boat.crew)
    assert.are.equal(2, boat.shared(1, 2))
    assert.are.equal(4, #class.load(boat, 4))
    py.exec "def loaded(boat): return len(boat.load(7))"
    assert.are.equal(7, py.main.loaded(boat))
    boat.own = function(...) return select("#", ...) end
    assert.are.equal(1, boat.own(1))
  end)

  it("can be referred to weakly", function()
    local f = function() end
    py.exec "import weakref\ndef weak(f): return weakref.ref(f)() is f"
    assert.is_true(py.main.weak(f))
    assert.is_true(py.main.weak(coroutine.create(f)))
    assert.is_true(py.main.weak(py.sequence {}))
  end)

  it("may call Python, which calls Lua, to some depth", function()
    py.exec "def down(f, n): return f(n)"
    local function f(n)
      return n == 0 and "bottom" or py.main.down(f, n - 1)
    end
    assert.are.equal("bottom", f(50))
    local function forever()
      return py.main.down(forever, 0)
    end
    assert.matches("RecursionError: maximum recursion depth exceeded", tostring(failure(forever)))
    assert.are.equal(2, py.eval "1 + 1")
  end)
end)

describe("errors between the two", function()
  it("that are Python's stay the same exception through Lua", function()
    py.exec [[
def raising():
    raise original
def through(f):
    try:
        f()
    except BaseException as e:
        return e
original = KeyError("k")
]]
    local original = py.main.original
    local function raise() py.main.raising() end
    assert.is_true(py.op.is_(original, py.main.through(raise)))
    -- Caught and thrown again by Lua, as the error object and as the exception.
    assert.is_true(py.op.is_(original, py.main.through(function()
      error(failure(raise), 0)
    end)))
    assert.is_true(py.op.is_(original, py.main.through(function() error(original) end)))
    assert.is_true(py.op.is_(original, py.main.through(function() py.raise(original) end)))
    -- Out to Lua, through Python again.
    py.exec "def on(f): return f()"
    assert.is_true(original == failure(py.main.on, raise))
    local format = py.import("traceback").format_exception
    local trace = format(py.builtins.type(original), original, original.__traceback__)
    local text = py.object(""):join(trace) .. py.object(""):join(original.__notes__) -- printed by 3.11 and later
    assert.matches("in raising", text)
    assert.matches("in through", text)
    assert.matches("specs/lua/python_callback_spec.lua:%d+: in function", text)
  end)

  it("that are Lua's stay the same value through Python", function()
    py.exec [[
def run(f):
    return f()
def look(f):
    try:
        f()
    except Exception as e:
        return type(e).__name__ + ": " + str(e)
]]
    local own = { code = 5 }
    assert.are.equal(own, failure(py.main.run, function() error(own) end))
    assert.are.equal("plain", failure(py.main.run, function() error("plain", 0) end))
    assert.is_nil(failure(py.main.run, function() error() end))
    local text = py.main.look(function() error "with a place" end)
    assert.matches("^LuaError: specs/lua/python_callback_spec.lua:%d+: with a place\nstack traceback:", text)
  end)

  it("that are Lua's stay that value in a copy, but not in a pickle", function()
    py.exec "import copy, pickle\ndef run_as(f, change):\n  try: f()\n  except Exception as e: raise change(e)"
    local own, main = {}, py.main
    assert.are.equal(own, failure(main.run_as, function() error(own) end, main.copy.copy))
    assert.are.equal(own, failure(main.run_as, function() error(own) end, main.copy.deepcopy))
    local thrown = failure(main.run_as, function() error(own) end, py.eval "lambda e: pickle.loads(pickle.dumps(e))")
    assert.are.equal(py.None, thrown.value.value)
  end)

  it("go through several layers, and leave Python's own handling alone", function()
    py.exec [[
def guarded(f):
    try:
        return f()
    except ValueError as e:
        raise RuntimeError("wrapped") from e
    finally:
        done.append(1)
done = []
]]
    local err = failure(py.main.guarded, function()
      return py.main.guarded(function() py.raise(builtins.ValueError, "deep") end)
    end)
    assert.is_true(err:is "RuntimeError")
    assert.are.equal("deep", tostring(err.__cause__))
    assert.are.equal(2, #py.main.done)
    assert.matches("deep.*direct cause.*wrapped", err.traceback)
  end)
end)

describe("Lua tables in Python", function()
  it("are mappings that see each other's writes", function()
    local t = { a = 1, [5] = "five" }
    local m = py.mapping(t)
    assert.is_true(py.is_instance(m, py.import("collections.abc").MutableMapping))
    assert.is_true(py.op.is_(py.builtins.type(m), py.builtins.type(py.mapping {})))
    assert.are.equal(1, py.get(m, "a"))
    assert.are.equal("five", m[5])
    assert.are.equal(2, #m)
    t.b = 2
    assert.is_true(py.op.contains(m, "b"))
    py.set(m, "c", 3)
    assert.are.equal(3, t.c)
    py.delete(m, "a")
    assert.is_nil(t.a)
    assert.are.equal("none", m:get("a", "none"))
    assert.are.equal("KeyError", failure(py.get, m, "a").type)
    assert.are.equal("KeyError", failure(py.delete, m, "a").type)
    assert.are.equal("{'b': 2, 'c': 3, 5: 'five'}", tostring(py.eval("dict(sorted(m.items(), key=str))", { m = m })
      ):gsub("^{5: 'five', (.*)}$", "{%1, 5: 'five'}"))
    assert.are.equal("b c", py.eval("'{b} {c}'.format_map(dict(b='b', c='c'))", { m = m }))
    m:update(py.dict { z = 26 })
    assert.are.equal(26, t.z)
    assert.matches("^Mapping%(", tostring(m))
  end)

  it("are mappings in which None is a value like any other", function()
    local t = { a = py.None }
    local m = py.mapping(t)
    assert.are.equal(py.None, py.get(m, "a"))
    assert.is_true(py.op.contains(m, "a"))
    assert.are.equal("{'a': None}", tostring(builtins.dict(m)))
    assert.are.equal("Mapping({'a': None})", tostring(m))
    py.set(m, "b", py.None)
    assert.are.equal(py.None, t.b)
    assert.are.equal(py.None, m:setdefault("b", 5))
    assert.are.equal(py.None, m:pop("b"))
    assert.is_nil(t.b)
    py.delete(m, "a")
    assert.is_nil(next(t))
    assert.is_false(py.op.contains(m, "a"))
    assert.are.equal("KeyError", failure(py.get, m, "a").type)
    assert.is_true(m == py.dict {})
  end)

  it("are mappings of what their metatables give, too", function()
    local m = py.mapping(setmetatable({}, { __index = { inherited = 1 } }))
    assert.are.equal(1, py.get(m, "inherited"))
    assert.are.equal("KeyError", failure(py.get, m, "absent").type)
  end)

  it("are sequences and iterators in which None is a value like any other", function()
    local s = py.sequence { py.None, 1 }
    assert.are.equal("[None, 1]", tostring(builtins.list(s)))
    s:append(py.None)
    assert.are.equal(2, s:count(py.None))
    assert.are.equal("[(1, None), (2, 5)]", tostring(builtins.list(py.iterator(ipairs { py.None, 5 }))))
  end)

  it("are sequences that see each other's writes", function()
    local t = { "a", "b", "c" }
    local s = py.sequence(t)
    assert.is_true(py.is_instance(s, py.import("collections.abc").MutableSequence))
    assert.are.equal(3, #s)
    assert.are.equal("a", s[0])
    assert.are.equal("c", s[-1])
    assert.are.equal("['b', 'c']", tostring(s[py.slice(1, nil)]))
    t[4] = "d"
    assert.are.equal("['a', 'b', 'c', 'd']", tostring(builtins.list(s)))
    s[0] = "A"
    s:append("e")
    s:insert(1, "x")
    py.delete(s, -1)
    assert.are.same({ "A", "x", "b", "c", "d" }, t)
    assert.are.equal("IndexError", failure(function() return s[5] end).type)
    assert.are.equal("['A', 'b', 'c', 'd', 'x']", tostring(builtins.sorted(s)))
    py.import("random").Random(1):shuffle(s)
    assert.are.equal(5, #t)
    s:reverse()
    assert.is_true(s == builtins.list(s))
    assert.matches("^Sequence%(", tostring(s))
    assert.matches("takes a table", tostring(failure(py.sequence, 5)))
  end)

  it("with a metatable are objects", function()
    local Ship = {}
    Ship.__index = Ship
    function Ship:load(n)
      self.cargo = self.cargo + n
      return self.cargo
    end
    local ship = setmetatable({ cargo = 1 }, Ship)
    py.exec "def use(ship):\n    ship.load(ship, 4)\n    ship.name = 'ferry'\n    return ship.cargo"
    assert.are.equal(5, py.main.use(ship))
    assert.are.equal("ferry", ship.name)
  end)

  it("and their iterators, and coroutines, are Python iterators", function()
    assert.are.equal("[(1, 'a'), (2, 'b')]", tostring(builtins.list(py.iterator(ipairs { "a", "b" }))))
    assert.are.equal("['two', 'words']", tostring(builtins.list(py.iterator(("two words"):gmatch "%a+"))))
    local list = py.iterator(function(last, i)
      if i < last then
        return i + 1
      end
    end, 3, 0)
    assert.are.equal(6, builtins.sum(list))
    assert.are.equal("boom", failure(builtins.list, py.iterator(function() error("boom", 0) end)))
    local thread = coroutine.create(function()
      for i = 1, 3 do
        coroutine.yield(i * i)
      end
    end)
    assert.are.equal("[1, 4, 9]", tostring(builtins.list(thread)))
  end)
end)

describe("threads", function()
  it("of Python call Lua while Lua waits in Python", function()
    py.exec [[
import threading
def on_threads(f, n):
    results = [None] * n
    def work(i):
        for k in range(100):
            results[i] = f(i, k)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(n)]
    for t in threads: t.start()
    for t in threads: t.join()
    return results
]]
    local calls = 0
    local results = py.main.on_threads(function(i, k)
      calls = calls + 1
      return builtins.max(i, k)
    end, 4)
    assert.are.equal("[99, 99, 99, 99]", tostring(results))
    assert.are.equal(400, calls)
  end)

  it("started from Lua run a Lua function", function()
    local threading = py.import "threading"
    local seen = {}
    local threads = {}
    for i = 1, 3 do
      threads[i] = threading.Thread(py.kw { target = function(name)
        seen[#seen + 1] = name
      end, args = py.tuple { "t" .. i } })
      threads[i]:start()
    end
    for _, thread in ipairs(threads) do
      thread:join()
    end
    table.sort(seen)
    assert.are.same({ "t1", "t2", "t3" }, seen)
  end)

  it("whose Lua function fails do not take the program with them", function()
    py.exec [[
import threading
def failing(f):
    seen = []
    before, threading.excepthook = threading.excepthook, lambda args: seen.append(args.exc_value)
    t = threading.Thread(target=f)
    t.start()
    t.join()
    threading.excepthook = before
    return seen[0]
]]
    local seen = py.main.failing(function() error("in a thread", 0) end)
    assert.are.equal("in a thread", seen.value)
  end)

  it("run queues and pools with Lua on both ends", function()
    local futures = py.import "concurrent.futures"
    local total = py.with(futures.ThreadPoolExecutor(2), function(pool)
      local sum = 0
      for result in py.iter(pool:map(function(x) return x * x end, builtins.range(50))) do
        sum = sum + result
      end
      return sum
    end)
    assert.are.equal(40425, total)
  end)

  it("wait for Lua that runs on its own, and get their turn", function()
    py.exec [[
import threading
done = threading.Event()
def later(f):
    def work():
        f()
        done.set()
    threading.Thread(target=work).start()
]]
    local called = false
    py.main.later(function() called = true end)
    local x = 0
    for i = 1, 1e6 do
      x = x + i
    end
    py.main.done:wait(10)
    assert.is_true(called)
  end)
end)

describe("asyncio", function()
  it("runs Lua callbacks and awaits what they set", function()
    local asyncio = py.import "asyncio"
    local order = {}
    py.exec [[
import asyncio
async def main(callback):
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.call_soon(callback, "soon", future)
    loop.call_later(0.01, callback, "later", future)
    return await future, await loop.run_in_executor(None, callback, "executor", future)
]]
    local result = asyncio.run(py.main.main(function(name, future)
      order[#order + 1] = name
      if name == "later" then
        future:set_result "done"
      end
      return name
    end))
    assert.are.equal("('done', 'executor')", tostring(result))
    assert.are.same({ "soon", "later", "executor" }, order)
  end)
end)

describe("a Lua state that was closed", function()
  it("cannot be called any more, which is an exception and no crash", function()
    local text = process.runs [[
local py = require "moonferry.python"
py.exec "import atexit\ndef keep(f, t):\n    atexit.register(use, f, t)"
py.exec [=[
def use(f, t):
    for call in (f, lambda: t.x, lambda: len(t)):
        try:
            print("not closed:", call())
        except Exception as e:
            print(type(e).__name__, e)
]=]
py.main.keep(function() return 5 end, setmetatable({ x = 1 }, {}))
]]
    assert.are.equal(("RuntimeError this Lua state was closed\n"):rep(3), text)
  end)

  it("leaves threads of Python that wait for it with an exception", function()
    local text = process.runs [[
local py = require "moonferry.python"
py.exec [=[
import sys, threading, time
def start(f, marker):
    def work():
        while threading.main_thread().ident in sys._current_frames():  # until Lua goes on
            time.sleep(0.001)
        open(marker, "w").close()
        try:
            f()
        except Exception as e:
            print(type(e).__name__, e, flush=True)
    thread = threading.Thread(target=work)
    thread.start()
    return thread.native_id
]=]
local marker = os.tmpname()
os.remove(marker)
local task = py.main.start(function() print "it got in" end, marker)
while not io.open(marker) do end
os.remove(marker)
local asleep = 0
while asleep < 1000 do
  local stat = io.open(("/proc/self/task/%d/stat"):format(task)):read "*a"
  asleep = stat:match "^.*%) (.)" == "S" and asleep + 1 or 0
end
]]
    assert.are.equal("RuntimeError this Lua state was closed\n", text)
  end)
end)
