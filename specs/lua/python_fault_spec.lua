-- Python exceptions as Lua errors, Lua errors in Python's context managers.
local hosted = require "hosted"
local py = require "moonferry.python"
local builtins = py.builtins

-- The error of a call that must fail.
local function failure(f, ...)
  local ok, err = pcall(f, ...)
  assert.is_false(ok)
  return err
end

describe("a Python exception in Lua", function()
  setup(function()
    py.exec [[
class Leak(ValueError):
    def __init__(self, where, depth):
        super().__init__("leak in " + where)
        self.depth = depth
        self.type = "own"
def inner():
    raise Leak("the hull", 3)
def outer():
    inner()
]]
  end)

  local function raised()
    return failure(function() py.main.outer() end)
  end

  it("has type, message, traceback and its own attributes", function()
    local err = raised()
    assert.are.equal("Leak", err.type)
    assert.are.equal("leak in the hull", err.message)
    assert.are.equal(3, err.depth)
    assert.are.equal("own", err.value.type)
    assert.are.equal(py.main.Leak, err.class)
    assert.matches("^specs/lua/python_fault_spec.lua:%d+: $", err.where)
    assert.are.equal("json.decoder.JSONDecodeError", failure(py.import("json").loads, "{").type)
    assert.matches("AttributeError", tostring(failure(function() return err.absent end)))
    assert.matches("fields have names", tostring(failure(function() return err[1] end)))
  end)

  it("shows Python's stack and Lua's", function()
    local trace = raised().traceback
    assert.matches("^Traceback %(most recent call last%):", trace)
    assert.matches("in outer", trace)
    assert.matches("in inner", trace)
    assert.matches("Leak: leak in the hull\nstack traceback:\n", trace)
    assert.matches("specs/lua/python_fault_spec.lua:%d+: in function", trace)
    local err = failure(py.raise, py.builtins.KeyError, "k")
    assert.matches("^KeyError: 'k'\nstack traceback:\n", err.traceback)
  end)

  it("tells the program's line, also where Moonferry's own Lua files lie between", function()
    local line = debug.getinfo(1).currentline
    local ok, err = pcall(function()
      py.exec "1 / 0"
    end)
    assert.is_false(ok)
    assert.matches("python_fault_spec.lua:" .. line + 2 .. ": $", err.where)
    line = debug.getinfo(1).currentline
    ok, err = pcall(function()
      local _ = py.stream(5) -- by way of a pcall of Moonferry's
    end)
    assert.is_false(ok)
    assert.matches("python_fault_spec.lua:" .. line + 2 .. ": $", err.where)
    ok, err = pcall(function()
      local _ = py.preload { "os", nil, nil, "sys" }
    end)
    assert.is_false(ok)
    assert.matches("python_fault_spec.lua:" .. line + 7 .. ": ", err)
  end)

  it("tells the line of a text that names one of Moonferry's own files", function()
    local code = "local py = ...\nlocal result\nresult = py.eval '1 / 0' -- moonferry/python.lua"
    local places = { [code] = '%[string "local py = ......"%]', ["@moonferry/python.lua.old"] = "moonferry/.*" }
    for name, place in pairs(places) do
      assert.matches("^" .. place .. ":3: $", failure(assert(loadstring(code, name)), py).where)
    end
  end)

  it("is text where text is wanted", function()
    local err = raised()
    assert.matches("^specs/lua/python_fault_spec.lua:%d+: Leak: leak in the hull\nTraceback", tostring(err))
    assert.are.equal("<" .. tostring(err) .. ">", "<" .. err .. ">")
  end)

  it("says of what class it is, by the class or by a name", function()
    local err, b = raised(), py.builtins
    assert.is_true(err:is(py.main.Leak))
    assert.is_true(err:is(b.ValueError))
    assert.is_true(err:is(b.KeyError, b.ValueError))
    assert.is_true(err:is(py.tuple { b.KeyError, b.ValueError }))
    assert.is_true(err:is "ValueError")
    assert.is_true(err:is("KeyError", "Exception"))
    assert.is_false(err:is(b.KeyError))
    assert.is_false(err:is "KeyError")
    assert.is_false(err:is())
    assert.is_true(failure(py.import("json").loads, "{"):is "json.decoder.JSONDecodeError")
    local others = {}
    for i = 1, 1000 do others[i] = i % 2 == 0 and b.KeyError or "KeyError" end
    assert.is_false(err:is(unpack(others)))
    assert.is_true(py.is_instance(err, b.ValueError))
    assert.is_true(py.is_instance(err, b.KeyError, b.ValueError))
    assert.is_false(py.is_instance(5, b.str))
    assert.is_true(py.is_instance(b, py.import("types").ModuleType))
    assert.is_true(py.is_instance(nil, b.type(py.None)))
    assert.matches("TypeError", tostring(failure(err.is, err, 5)))
    assert.matches("the error of a Python exception is expected, not a number$", failure(err.is, 5))
  end)

  it("says of what class it is where a metaclass tells its bases", function()
    py.exec "class Meta(type): __mro__ = property(lambda cls: cls.told)"
    py.exec "class Told(Exception, metaclass=Meta): told = [KeyError]"
    local err = failure(py.raise, py.main.Told)
    assert.is_true(err:is "KeyError")
    assert.is_false(err:is "Told")
    py.main.Told.told = py.tuple {}
    assert.is_false(err:is "Told")
    py.main.Told.told = 5
    assert.matches("TypeError: 'int' object is not iterable", tostring(failure(err.is, err, "Told")))
  end)

  it("has Python's traceback and, on lines of its own, Lua's", function()
    local err = raised()
    assert.matches("^Traceback .*\nLeak: leak in the hull\nstack traceback:\n", err.traceback)
    assert.are.equal(tostring(err), debug.getmetatable(err).__tostring(err, "more"))
    assert.matches("an exception's fields have names$", failure(function() return err[5] end))
  end)

  it("is named where its text fails, and still traced", function()
    py.exec "class Mute(Exception):\n    def __str__(self): raise KeyError"
    py.exec "def mute(): raise Mute"
    local err = failure(py.main.mute)
    assert.matches("^Mute\nTraceback ", tostring(err))
    assert.matches("%d: Mute$", tostring(failure(function() py.raise(py.main.Mute) end)))
    assert.matches("^Traceback ", err.traceback)
  end)

  it("is the exception itself wherever it is passed", function()
    py.exec "caught = []\ndef keep(e):\n    caught.append(e)\n    return e"
    local err = raised()
    local back = py.main.keep(err)
    assert.is_true(py.op.is_(back, err))
    assert.is_true(back == err)
    assert.is_true(err == err.value)
    assert.is_true(py.is(err))
    assert.are.equal(err, failure(error, err))
    py.main.caught:clear()
  end)

  it("is raised from Lua", function()
    local b = py.builtins
    local err = failure(py.raise, b.ValueError, "no good")
    assert.is_true(err:is(b.ValueError))
    assert.are.equal("no good", err.message)
    assert.matches("^specs/lua/python_fault_spec.lua:%d+: ValueError: no good$", tostring(failure(function()
      py.raise(b.ValueError("no good"))
    end)))
    local again = failure(py.raise, err)
    assert.is_true(again == err)
    assert.matches("takes a Python exception", failure(py.raise, "text"))
    assert.matches("takes a Python exception", failure(py.raise, b.int))
    assert.matches("Mute\n", tostring(failure(function()
      py.exec "class Mute(Exception):\n    __str__ = None\nraise Mute"
    end)) .. "\n")
  end)

  it("ends a program with its text and its traceback", function()
    local process = require "process"
    local status, text = process.run 'require("moonferry.python").exec "def f():\\n    1/0\\nf()"'
    assert.are.equal(1, status)
    assert.matches("ZeroDivisionError: division by zero\nTraceback", text)
    assert.matches("in f\n", text)
    assert.matches("stack traceback:", text)
  end)

  it("has functions that refuse what is no such error, and ignore what is too much", function()
    local events = debug.getmetatable(raised())
    for _, name in ipairs { "__tostring", "__index", "is" } do
      assert.matches("error of a Python exception is expected", tostring(failure(events[name], builtins, "type")))
      assert.matches("error of a Python exception is expected", tostring(failure(events[name])))
    end
    local err = raised()
    assert.are.equal(tostring(err), events.__tostring(err, builtins, {}))
  end)

  it("shows the top of a stack that is very deep", function()
    local function down(n)
      if n == 0 then py.eval "1 / 0" end
      return 1 + down(n - 1)
    end
    local trace = failure(down, 2000).traceback
    assert.matches("ZeroDivisionError", trace)
    assert.matches("python_fault_spec.lua:%d+:.*%.%.%.$", trace)
    local _, lines = trace:match("stack traceback:(.*)"):gsub("\n\t[^\n]+:%d+:", "")
    assert.are.equal(10, lines)
    assert.matches("python_fault_spec.lua:" .. debug.getinfo(down, "S").linedefined + 1 .. ":", trace)
    assert.matches("python_fault_spec.lua:" .. debug.getinfo(down, "S").linedefined + 2 .. ":", trace)
  end)

  it("says so where Python cannot print its traceback", function()
    local err = raised()
    py.exec "import sys, traceback\nsys.modules['traceback'] = None"
    local text = err.traceback
    py.exec "sys.modules['traceback'] = traceback"
    assert.matches("^%(its traceback cannot be printed%)\nstack traceback:\n", text)
  end)

  it("is what it is, also where it says what CPython says of a frame that is missing", function()
    local b = py.builtins
    for _, text in ipairs { "frame does not exist", "globals and locals cannot be NULL" } do
      for _, class in ipairs { b.ValueError, b.RuntimeError } do
        local err = failure(py.raise, class, text)
        assert.are.equal(class, err.class)
        assert.are.equal(text, err.message)
      end
    end
    py.exec "def told(error, text): raise error(text)"
    for _, class in ipairs { b.SystemError, b.TypeError } do
      assert.are.equal("frame does exist", failure(py.raise, class, "frame does exist").message)
      assert.are.equal("frame does not exist", failure(py.main.told, class, "frame does not exist").message)
    end
    py.exec "class Unprintable:\n    def __str__(self):\n        1 / 0\nunprintable = TypeError(Unprintable())"
    local err
    local function fail()
      err = failure(py.raise, py.main.unprintable)
      return 5
    end
    assert.are.equal(5, b.next(b.map(fail, b.range(1))))
    assert.is_true(err == py.main.unprintable)
    assert.are.equal("(its message cannot be printed)", err.message)
  end)

  it("is not asked for its text before somebody wants that", function()
    py.exec "class Asked:\n    times = 0\n    def __str__(self):\n        Asked.times += 1\n        return 'asked'"
    local Asked = py.main.Asked
    for _, class in ipairs { py.builtins.TypeError, py.builtins.SystemError } do
      local err = failure(py.raise, class(Asked()))
      assert.are.equal(0, Asked.times)
      assert.are.equal("asked", err.message)
      assert.are.equal(class, failure(py.raise, class("frame does not exist", 1)).class)
      Asked.times = 0
    end
  end)

  it("may come from a message handler, which LuaJIT calls for it again", function()
    local ok, err = xpcall(error, function() return py.eval "1 / 0" end)
    assert.is_false(ok)
    assert.is_not_nil(err)
    ok = xpcall(error, function() return (select(2, pcall(py.eval, "1 / 0"))) end)
    assert.is_false(ok)
    assert.are.equal(2, py.eval "1 + 1")
  end)

  it("keeps what it holds no longer than Lua keeps it", function()
    py.exec [[
import gc, weakref
class Token:
    pass
def failing():
    token = Token()
    global seen
    seen = weakref.ref(token)
    raise ValueError
]]
    failure(function() py.main.failing() end)
    collectgarbage()
    collectgarbage()
    py.collect()
    py.main.gc.collect()
    assert.are.equal(py.None, py.main.seen())
  end)
end)

describe("py.with", function()
  local log

  setup(function()
    py.exec [[
class Manager:
    def __init__(self, answer=None):
        self.answer = answer
        self.log = []
    def __enter__(self):
        self.log.append("enter")
        return "value"
    def __exit__(self, kind, value, trace):
        import sys
        self.log.append(kind.__name__ if kind else None)
        self.seen = value
        assert sys.exc_info()[1] is value
        assert trace is (value.__traceback__ if value else None)
        return self.answer
]]
  end)

  before_each(function()
    log = nil
  end)

  it("enters, gives what the body gives, and leaves", function()
    local manager = py.main.Manager(true)
    local results = { py.with(manager, function(value)
      log = value
      return 1, nil, 3
    end) }
    assert.are.equal("value", log)
    assert.are.equal(1, results[1])
    assert.are.equal(3, results[3])
    assert.are.equal("['enter', None]", tostring(manager.log))
  end)

  it("shows the manager the exception, which goes on unless it is suppressed", function()
    local manager = py.main.Manager()
    local err = failure(py.with, manager, function() py.eval "1/0" end)
    assert.is_true(err:is "ZeroDivisionError")
    assert.are.equal("['enter', 'ZeroDivisionError']", tostring(manager.log))
    assert.is_true(py.op.is_(manager.seen, err))
    assert.are.equal(0, select("#", py.with(py.main.Manager(true), function() py.eval "1/0" end)))
    assert.are.equal(0, select("#", py.with(py.import("contextlib").suppress(py.builtins.ZeroDivisionError), function()
      py.eval "1/0"
    end)))
  end)

  it("shows the manager a Lua error as an exception, and passes it on as it was", function()
    local manager, own = py.main.Manager(), { "own error" }
    assert.are.equal(own, failure(py.with, manager, function() error(own) end))
    assert.are.equal("LuaError", py.builtins.type(manager.seen).__name__)
    assert.are.equal(own, manager.seen.value)
    assert.matches("on purpose", failure(py.with, manager, function() error "on purpose" end))
    assert.matches("on purpose", tostring(manager.seen))
  end)

  it("works with files, with generators, and across yields", function()
    local path = os.tmpname()
    py.with(py.builtins.open(path, "w"), function(file)
      file:write("Fähre\n")
    end)
    assert.are.equal("Fähre\n", io.open(path):read "*a")
    os.remove(path)
    py.exec [[
from contextlib import contextmanager
steps = []
@contextmanager
def managed():
    steps.append("before")
    try:
        yield 5
    except KeyError as e:
        steps.append("caught")
        raise ValueError("new") from e
    finally:
        steps.append("after")
]]
    local err = failure(py.with, py.main.managed(), function() py.raise(py.builtins.KeyError, "k") end)
    assert.are.equal("ValueError", err.type)
    assert.is_true(py.is_instance(err.__cause__, py.builtins.KeyError))
    local resume = coroutine.wrap(function()
      return py.with(py.main.managed(), function(value)
        return coroutine.yield(value)
      end)
    end)
    assert.are.equal(5, resume())
    assert.are.equal("back", resume "back")
    assert.are.equal("['before', 'caught', 'after', 'before', 'after']", tostring(py.main.steps))
  end)

  it("leaves a manager whose value Lua cannot have", function()
    py.exec [[
class Closed(Manager):
    def __enter__(self):
        import moonferry
        super().__enter__()
        tensor = moonferry.zeros(1)
        tensor.close()
        return tensor
]]
    local manager = py.main.Closed()
    local err = failure(py.with, manager, function() log = "a body" end)
    assert.is_true(err:is "ValueError")
    assert.matches("the tensor is closed", err.message)
    assert.are.equal("['enter', 'ValueError']", tostring(manager.log))
    assert.are.equal(0, select("#", py.with(py.main.Closed(true), function() log = "a body" end)))
    assert.is_nil(log)
  end)

  it("gives back the error that is being handled", function()
    py.exec [[
def handling(call):
    import sys
    try:
        raise KeyError("first")
    except KeyError as error:
        call()
        return sys.exc_info()[1] is error
]]
    assert.is_true(py.main.handling(function()
      failure(py.with, py.main.Manager(), error)
      failure(py.with, py.main.Manager(), function() py.eval "1/0" end)
    end))
    failure(py.with, py.main.Manager(), error)
    assert.are.equal("(None, None, None)", tostring(py.import("sys").exc_info()))
  end)

  it("does not ask a manager whether it has dealt with an error where there was none", function()
    py.exec [[
class Undecided(Manager):
    class Answer:
        def __bool__(self):
            raise ValueError("undecided")
    def __exit__(self, *error):
        return self.Answer()
]]
    assert.are.equal(5, py.with(py.main.Undecided(), function() return 5 end))
  end)

  it("leaves a manager that its body closes, and keeps none that was left", function()
    py.main.weakref = py.import "weakref"
    for _, body in ipairs { function() end, error } do
      local manager = py.main.Manager()
      local events, alive = manager.log, py.main.weakref.ref(manager)
      pcall(py.with, manager, function()
        py.close(manager)
        body()
      end)
      assert.are.equal(body == error and "LuaError" or py.None, events[1])
      assert.are.equal(py.None, alive())
    end
  end)

  it("leaves a manager where there is no memory to make an exception of an error", function()
    if not hosted.has "_testcapi" then return pending "this Python has no _testcapi" end
    py.exec [[
from _testcapi import remove_mem_hooks, set_nomemory
class Counted:
    inside = entered = 0
    def __enter__(self):
        self.inside += 1
        self.entered += 1
    def __exit__(self, kind, value, trace):
        self.inside -= 1
]]
    local manager, main = py.main.Counted(), py.main
    local fail, succeed = main.set_nomemory, main.remove_mem_hooks
    for nth = 0, 40 do
      fail(nth, nth + 1)
      local ok = pcall(py.with, manager, error)
      succeed()
      assert.is_false(ok)
      assert.are.equal(0, manager.inside, nth)
    end
    assert.is_true(manager.entered > 20)
  end)

  it("leaves a manager by what its class had at first, though it has another one by then", function()
    py.exec [[
import gc, weakref
class Other:
    pass
def turncoat():
    class Method:
        def __get__(self, manager, cls):
            made.pop().__class__ = Other
            del cls
            gc.collect()
            return lambda manager: "entered"
    class First:
        __enter__ = Method()
        def __exit__(self, *error):
            left.append(type(self).__name__)
    made = [First()]
    return made[0]
left = []
]]
    assert.are.equal("entered", py.with(py.main.turncoat(), function(value) return value end))
    assert.are.equal("['Other']", tostring(py.main.left))
  end)

  it("refuses what is no context manager, of whatever name", function()
    py.exec [[
class Nameless(type):
    def __repr__(cls):
        raise ValueError("nameless")
class Nothing(metaclass=Nameless):
    pass
]]
    failure(py.with, py.main.Nothing(), print) -- CPython 3.11.2 forgets the words
    assert.matches("TypeError: py.with takes a context manager", tostring(failure(py.with, py.list {}, print)))
  end)
end)
