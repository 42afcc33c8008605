-- CPython inside LuaJIT: what crosses, what raises, and who keeps what alive.
local ffi = require "ffi"
local mf = require "moonferry"
local py = require "moonferry.python"
local collect = require("hosted").collect

-- The error of a call that must fail.
local function failure(f, ...)
  local ok, message = pcall(f, ...)
  assert.is_false(ok)
  return tostring(message)
end

describe("moonferry.python", function()
  local before

  before_each(function()
    collect()
    before = mf.ledger()
  end)

  after_each(function()
    collect()
    assert.are.same(before, mf.ledger())
  end)

  describe("values", function()
    local identity, describe_value

    setup(function()
      py.exec [[
def identity(x):
    return x
def describe_value(x):
    return type(x).__name__ + " " + repr(x)
]]
      identity, describe_value = py.main.identity, py.main.describe_value
    end)

    it("go to Python as its own types", function()
      assert.are.equal("NoneType None", describe_value(nil))
      assert.are.equal("NoneType None", describe_value(py.None))
      assert.are.equal("bool True", describe_value(true))
      assert.are.equal("int 3", describe_value(3))
      assert.are.equal("int -9007199254740992", describe_value(-2 ^ 53))
      assert.are.equal("float 1.8014398509481984e+16", describe_value(2 ^ 54))
      assert.are.equal("float 0.5", describe_value(0.5))
      assert.are.equal("float -0.0", describe_value(tonumber "-0")) -- on aarch64 LuaJIT reads -0.0 as 0
      assert.are.equal("float inf", describe_value(math.huge))
      assert.are.equal("float nan", describe_value(0 / 0))
      assert.are.equal("str 'fähre\\x00'", describe_value("fähre\0"))
    end)

    it("of the FFI go by what they are", function()
      assert.are.equal("int -9223372036854775808", describe_value(-2LL ^ 63))
      assert.are.equal("int 18446744073709551615", describe_value(0xffffffffffffffffULL))
      assert.are.equal("complex (1-2j)", describe_value(ffi.new("complex", 1, -2)))
      assert.are.equal("complex (1-2j)", describe_value(ffi.new("complex float", 1, -2)))
      assert.are.equal("int 7", describe_value(ffi.new("int32_t", 7)))
      local two = ffi.new("int[2]")
      assert.are.equal(two, identity(two))
      assert.matches("^LuaObject <Lua cdata at", describe_value(ffi.cast("void *", 1)))
    end)

    it("come back as Lua's own", function()
      assert.are.equal(py.None, identity(nil))
      assert.is_false(identity(false))
      assert.are.equal(-12, identity(-12))
      assert.are.equal(2.5, identity(2.5))
      assert.are.equal("fähre\0", identity("fähre\0"))
      assert.are.equal("\255\0\1", identity(py.bytes("\255\0\1")))
      assert.are.equal(2 ^ 53, py.eval "2**53")
    end)

    it("that Lua cannot hold exactly stay objects", function()
      for _, code in ipairs { "2**53 + 1", "2**70", "'\\udc80'", "__import__('http').HTTPStatus.OK" } do
        local object = py.eval(code)
        assert.is_true(py.is(object), code)
        assert.is_true(py.builtins.isinstance(object, py.builtins.object))
      end
      assert.are.equal("1180591620717411303424", tostring(py.eval "2**70"))
    end)

    it("that are strings must be UTF-8, or be bytes", function()
      assert.matches("UnicodeDecodeError", failure(identity, "\255"))
      local odd = py.eval "type('Odd', (), {'__str__': lambda self: '\\udc80'})()"
      assert.matches("not UTF%-8", failure(tostring, odd))
      local safe = py.eval "type('Safe', (), {'__str__': lambda self: type('Text', (str,), {})('a\\u00fc')})()"
      assert.are.same({ "aü", "aü!" }, { tostring(safe), safe .. "!" })
    end)

    it("that are tables become lists, and what is not a list must be named", function()
      assert.are.equal("list [1, 'a', [True, []], None]", describe_value { 1, "a", { true, {} }, py.None })
      assert.are.equal("dict {'a': [{'b': 1}]}", describe_value { a = { { b = 1 } } })
      assert.are.equal("dict {True: 1}", describe_value { [true] = 1 })
      assert.are.equal("list []", describe_value {})
      assert.matches("py.dict", failure(identity, { 1, 2, a = 1 }))
      assert.matches("py.dict", failure(identity, { 1, [3] = 3 }))
      for _, key in ipairs { -1, 0, 0.5, 1.5, 5 } do -- as many keys as Lua says elements
        local hole = { nil, "b" }
        hole[key] = "x"
        assert.matches("a list with holes", failure(identity, hole))
      end
      local loop = {}
      loop[1] = loop
      assert.matches("contains itself", failure(identity, loop))
      assert.matches("contains itself", failure(py.list, loop))
    end)

    it("that are tables may be nested to a depth, which is the same for lists, dicts and both", function()
      py.exec [[
def depth(x):
    return 1 + max((depth(y) for y in (x if isinstance(x, list) else x.values())), default=0)
]]
      local size = py.main.depth
      local function nested(depth, ...)
        local keys, t = { ... }, {}
        for i = 1, depth - 1 do
          t = { [keys[i % #keys + 1]] = t }
        end
        return t
      end
      for name, keys in pairs { list = { 1 }, dict = { "a" }, both = { 1, "a" } } do
        assert.are.equal(80, size(nested(80, unpack(keys))), name)
        assert.matches("nested more than 80 deep", failure(size, nested(81, unpack(keys))), name)
        assert.matches("nested more than 80 deep", failure(size, nested(5000, unpack(keys))), name)
      end
      -- What was refused, or lies beside, does not count.
      local beside = {}
      for i = 1, 200 do
        beside[i] = nested(70, "a")
      end
      assert.are.equal(71, size(beside))
    end)

    it("that have no counterpart come back as themselves", function()
      local object, thread = setmetatable({}, {}), coroutine.create(print)
      for _, value in ipairs { print, thread, io.stdout, object } do
        assert.are.equal(value, identity(value))
      end
      assert.matches("^LuaFunction <Lua function at", describe_value(print))
      assert.matches("^LuaThread <Lua thread at", describe_value(thread))
      assert.matches("^LuaObject <Lua userdata at", describe_value(io.stdout))
      assert.matches("^LuaTable <Lua table at", describe_value(object))
    end)

    it("are made on request", function()
      assert.are.equal("[1, None, 'x']", tostring(py.list({ 1, nil, "x" }, 3)))
      assert.are.equal("(1, None)", tostring(py.tuple({ 1 }, 2)))
      assert.are.equal("()", tostring(py.tuple {}))
      assert.are.equal("{'a': [1]}", tostring(py.dict { a = { 1 } }))
      assert.are.equal("float 2.0", describe_value(py.float(2)))
      assert.are.equal("int 2", describe_value(py.int(2.9)))
      assert.are.equal("ABC", py.object("abc"):upper())
      assert.are.equal(2.5, py.number(py.import("fractions").Fraction(5, 2)))
      assert.matches("py.list takes a table", failure(py.list, 1))
      assert.matches("py.dict takes a table", failure(py.dict, "x"))
      assert.matches("py.bytes takes a string", failure(py.bytes, 1))
      assert.matches("count of elements", failure(py.list, {}, -1))
      assert.matches("count of elements", failure(py.list, {}, 0 / 0))
    end)
  end)

  describe("objects", function()
    setup(function()
      py.exec [[
class Ship:
    name = "ferry"
    cargo = None
    def load(self, *args, **kw):
        return (args, tuple(sorted(kw.items())))
    def same(self, other):
        return other is self
]]
    end)

    it("have attributes, and None is not a missing one", function()
      local ship = py.main.Ship()
      assert.are.equal("ferry", ship.name)
      assert.are.equal(py.None, ship.cargo)
      assert.matches("AttributeError", failure(function() return ship.mast end))
      ship.name = "boat"
      assert.are.equal("boat", ship.name)
      ship.name = nil
      assert.are.equal(py.None, ship.name)
    end)

    it("are called with positional and keyword arguments", function()
      local ship = py.main.Ship()
      assert.are.equal("((1, 'b', None), ())", tostring(ship:load(1, "b", nil)))
      assert.are.equal("((), (('at', 5), ('by', None)))", tostring(ship:load(py.kw { at = 5, by = py.None })))
      assert.are.equal("((1,), (('at', 'x'),))", tostring(ship:load(1, py.kw { at = "x" })))
      assert.matches("keyword must be a string", failure(ship.load, ship, py.kw { 1 }))
      assert.matches("which come last", failure(ship.load, ship, py.kw {}, 1))
      for _, locked in ipairs { false, "locked" } do
        local settings = setmetatable({ at = 7 }, { __index = { far = "away" }, __metatable = locked or nil })
        assert.are.equal("((), (('at', 7),))", tostring(ship:load(py.kw(settings))))
        assert.are.equal("away", settings.far)
        assert.matches("Lua table", tostring(ship:load(settings)))
      end
      assert.matches("TypeError", failure(ship))
    end)

    it("take methods with a colon, and a dot where the argument is another object", function()
      local ship, other = py.main.Ship(), py.main.Ship()
      assert.is_true(ship:same(ship))
      assert.is_false(ship:same(other))
      assert.is_false(ship.same(other))
      local load = ship.load
      assert.are.equal("((2,), ())", tostring(load(2)))
    end)

    it("have items", function()
      local list = py.list { "a", "b", "c" }
      assert.are.equal("a", list[0])
      assert.are.equal("c", list[-1])
      list[1] = "B"
      assert.are.equal("['a', 'B', 'c']", tostring(list))
      assert.matches("IndexError", failure(function() return list[3] end))
      local dict = py.dict { x = 1 }
      assert.are.equal(1, py.get(dict, "x"))
      py.set(dict, "y", 2, "deep")
      assert.are.equal("deep", py.get(dict, "y", 2))
      assert.matches("KeyError", failure(py.get, dict, "z"))
      assert.matches("key is missing", failure(py.get, dict))
      assert.are.equal("B", py.get(list, py.builtins.slice(1, 2))[0])
    end)

    it("have length, text, equality and concatenation", function()
      local list = py.list { 1, 2 }
      assert.are.equal(2, #list)
      assert.are.equal("[1, 2]", tostring(list))
      assert.are.equal("got [1, 2]!", "got " .. list .. "!")
      assert.is_true(list == py.list { 1, 2 })
      assert.is_false(list == py.list { 1 })
      assert.matches("TypeError", failure(function() return #py.object(1) end))
    end)

    it("are iterated over and unpacked", function()
      local seen = {}
      for item in py.iter(py.list { 1, py.None, "x" }) do
        seen[#seen + 1] = item
      end
      assert.are.same({ 1, py.None, "x" }, seen)
      assert.are.same({ 3, 4 }, { py.unpack(py.tuple { 3, 4 }) })
      assert.matches("TypeError", failure(py.iter, 5))
      py.exec "def broken():\n    yield 1\n    raise RuntimeError('in the middle')"
      assert.matches("in the middle", failure(function()
        for _ in py.iter(py.main.broken()) do end
      end))
    end)

    it("are refused after py.close, which may be called twice at most by mistake", function()
      local ship = py.main.Ship()
      py.close(ship)
      assert.matches("was closed", failure(function() return ship.name end))
      assert.matches("was closed", failure(py.builtins.repr, ship))
      assert.is_true(py.is(ship))
      py.close(py.None)
      assert.are.equal("None", tostring(py.None))
      assert.is_true(rawequal(py.None, py.object(nil)))
      assert.is_true(rawequal(py.None, py.object(py.None)))
    end)

    it("hide their metatable", function()
      assert.are.equal("python object", getmetatable(py.builtins))
    end)
  end)

  describe("code", function()
    it("is evaluated and run in a scope", function()
      local scope = py.dict { x = 20 }
      assert.are.equal(42, py.eval("x * 2 + 2", scope))
      py.exec("y = x + 1", scope)
      assert.are.equal(21, py.get(scope, "y"))
      py.exec "in_main = 5"
      assert.are.equal(5, py.main.in_main)
      assert.are.equal(5, py.eval("in_main", py.main))
      assert.matches("SyntaxError", failure(py.exec, "def"))
      assert.matches("code as a string", failure(py.eval, 5))
      assert.matches("module's name", failure(py.import, 5))
      assert.matches("ModuleNotFoundError: No module named 'moonferry_absent'", failure(py.import, "moonferry_absent"))
    end)

    it("is imported by its dotted name", function()
      assert.are.equal(py.import("os").path, py.import "os.path")
    end)
  end)

  describe("exceptions", function()
    it("say where in Lua, what, and the whole traceback", function()
      py.exec [[
class Leak(Exception):
    pass
def inner():
    raise Leak("below the waterline")
def outer():
    try:
        inner()
    except Leak as e:
        raise ValueError("sinking") from e
]]
      local message = failure(function() py.main.outer() end)
      assert.matches("^specs/lua/python_spec.lua:%d+: ValueError: sinking\nTraceback", message)
      assert.matches("in inner", message)
      assert.matches("Leak: below the waterline", message)
      assert.matches("direct cause", message)
      assert.matches("ValueError: sinking$", message)
    end)

    it("leave nothing pending, and no reference behind", function()
      py.exec "class Token: pass\nimport sys\ntoken = Token()"
      local count = py.main.sys.getrefcount
      local token = py.main.token
      local at_first = count(token)
      for _ = 1, 100 do
        for _, case in ipairs {
          { "UnicodeDecodeError", py.list, { token, "\255" } },
          { "UnicodeDecodeError", py.dict, { a = token, b = "\255" } },
          { "TypeError", py.builtins.int, token }, { "UnicodeDecodeError", py.builtins.print, token, "\255" },
        } do
          assert.are.equal(case[1], select(2, pcall(unpack(case, 2))).type)
        end
      end
      collect()
      assert.are.equal(at_first, count(token))
      assert.are.equal(1, py.eval "1")
    end)

    it("whose own text fails are still reported", function()
      py.exec "class Mute(Exception):\n    def __str__(self): raise RuntimeError('no')\ndef mute(): raise Mute()"
      assert.matches("Mute", failure(function() py.main.mute() end))
    end)
  end)

  describe("the collector", function()
    it("gives objects back at the next call into Python", function()
      py.exec [[
import weakref
class Thing:
    pass
alive = weakref.WeakSet()
def thing():
    t = Thing()
    alive.add(t)
    return t
]]
      local function count()
        return #py.main.alive
      end
      do
        local things = {}
        for i = 1, 50 do
          things[i] = py.main.thing()
        end
        assert.are.equal(#things, count())
      end
      collectgarbage()
      collectgarbage()
      assert.are.equal(0, count())
    end)

    it("gives back what a function was read from, as soon as the function goes", function()
      py.exec [[
import weakref
class Owner:
    pass
owners = weakref.WeakSet()
def owner():
    o = Owner()
    o.call = lambda: 5
    owners.add(o)
    return o
]]
      local function use()
        local call = py.main.owner().call
        collect()
        assert.are.same({ 5, 1 }, { call(), #py.main.owners })
      end
      use()
      collect()
      assert.are.equal(0, #py.main.owners)
    end)

    it("runs before large objects fill the memory", function()
      py.exec [[
import weakref
class Array:
    nbytes = 64 << 20
arrays = weakref.WeakSet()
most = 0
def array():
    global most
    a = Array()
    arrays.add(a)
    most = max(most, len(arrays))
    return a
]]
      local array, kept = py.main.array, mf.zeros(1000)
      for _ = 1, 500 do
        array()
      end
      assert.is_true(py.main.most <= 8, ("%d alive"):format(py.main.most))
      kept:close()
      -- One object is one weight, however often it comes to Lua, as what was given as `out` comes back from each call.
      local same, collected = array(), false
      collect()
      py.main.same = same
      getmetatable(newproxy(true)).__gc = function()
        collected = true
      end
      collectgarbage "stop"
      for _ = 1, 500 do
        assert.is_true(py.main.same == same)
      end
      collectgarbage "restart"
      assert.is_false(collected)
      py.exec "class Odd:\n    nbytes = property(lambda self: 1 / 0)\nclass Odder:\n    nbytes = 'many'"
      assert.is_true(py.is(py.main.Odd()) and py.is(py.main.Odder()))
    end)

    it("leaves nothing of an object that another finalizer finds after its own", function()
      local own, ended = 0, 0
      local function pair(i, first)
        local object = first and py.eval("[" .. i .. "]")
        local proxy = newproxy(true)
        object = object or py.eval("[" .. i .. "]")
        getmetatable(proxy).__gc = function()
          py.eval "[0]" -- what was dropped is given back, and its place taken
          local is_there, text = pcall(tostring, object)
          assert(text == "[" .. i .. "]" or not is_there and text:find "was closed", text)
          own, ended = own + (is_there and 1 or 0), ended + (is_there and 0 or 1)
        end
      end
      for i = 1, 100 do
        pair(i, i % 2 == 0)
      end
      collect()
      assert.are.same({ 50, 50 }, { own, ended })
    end)

    it("may run a Python finalizer that calls whatever it likes", function()
      py.exec [[
import sys
class Loud:
    def __del__(self):
        import gc
        gc.collect()
        raise ValueError("unraisable")
sys.unraisablehook = lambda _: None
]]
      local loud = py.main.Loud()
      py.close(loud)
      assert.are.equal(2, py.eval "1 + 1")
      py.exec "sys.unraisablehook = sys.__unraisablehook__"
    end)
  end)

  describe("coroutines", function()
    it("call Python, and see its errors, as any Lua code does", function()
      local resume = coroutine.wrap(function()
        for item in py.iter(py.list { 1, 2 }) do
          coroutine.yield(item)
        end
        coroutine.yield((pcall(py.eval, "1/0")))
        py.eval "1/0"
      end)
      assert.are.same({ 1, 2, false }, { resume(), resume(), resume() })
      assert.matches("ZeroDivisionError", failure(resume))
    end)
  end)

  describe("threads", function()
    it("of Python run while Lua loops", function()
      py.exec [[
import threading, time
ticks = 0
stop = threading.Event()
def tick():
    global ticks
    while not stop.is_set():
        ticks += 1
        time.sleep(0.001)
thread = threading.Thread(target=tick)
thread.start()
]]
      local first = py.main.ticks
      local until_then, x = os.clock() + 0.3, 0
      while os.clock() < until_then do
        x = x + 1
      end
      local last = py.main.ticks
      py.main.stop:set()
      py.main.thread:join()
      assert.is_true(last - first > 20, ("%d ticks"):format(last - first))
    end)
  end)
end)
