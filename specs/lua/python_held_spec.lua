-- What a call of Python's was given stays until that has returned, although Python may have Lua close or drop it
-- meanwhile; and the call lets Lua go on elsewhere.
local ffi = require "ffi"
local mf = require "moonferry"
local process = require "process"
local hosted = require "hosted"
local py = require "moonferry.python"
local main, builtins = py.main, py.builtins

-- Objects of C's, whose methods call Python code that does not hold them; what that has found is `seen`. Lua has the
-- only reference to each, and closes it from there.
py.exec [[
import array, functools, types, weakref

seen = []

class Watch:
    "Calls `close`, and notes whether the object of ${ref} has outlived that."
    def __init__(self):
        self.ref = None
    def look(self):
        close()
        seen.append(self.ref() is not None)
    def on(self, made):
        self.ref = weakref.ref(made)
        return made
    def __float__(self):
        self.look()
        return 1.5
    def __index__(self):
        self.look()
        return 0
    def __repr__(self):
        self.look()
        return "a watch"

def numbers(watch):
    return watch.on(array.array("d", [0.0, 2.0]))

def callable(watch):
    return watch.on(functools.partial(watch.look))

def method(watch):
    return watch.on(types.MethodType(id, watch))

def module(watch):
    made = types.ModuleType("made")
    made.__getattr__ = lambda name: watch.look()
    return watch.on(made)
]]

local USES = {
  { "an attribute is read", "module", function(o) return o.anything end },
  { "an item is read", "numbers", function(o, watch) return o[watch] end },
  { "an item is set", "numbers", function(o, watch) o[0] = watch end },
  { "it is called", "callable", function(o) return o() end },
  { "it is made a text", "method", function(o) return tostring(o) end },
  { "py.get reads an item", "numbers", function(o, watch) return py.get(o, watch) end },
  { "py.set sets one", "numbers", function(o, watch) py.set(o, 0, watch) end },
  { "py.delete deletes one", "numbers", function(o, watch) py.delete(o, watch) end },
  { "py.call calls it", "callable", function(o) return py.call(o) end },
}

describe("an object", function()
  before_each(function()
    main.seen:clear()
  end)

  for _, use in ipairs(USES) do
    it("that is closed while " .. use[1] .. " is there until then", function()
      local watch = main.Watch()
      local object = main[use[2]](watch)
      main.close = function() py.close(object) end
      pcall(use[3], object, watch)
      assert.are.equal("[True]", tostring(main.seen))
      assert.are.equal(py.None, watch.ref())
      main.close = py.None
    end)
  end

  it("of which a part was read that is no method leaves that alone when it is closed", function()
    local error_of = builtins.ValueError(1, 2)
    local arguments = error_of.args
    py.close(error_of)
    assert.are.equal(2, #arguments)
  end)
end)

describe("py.close", function()
  it("has closed an object before the methods that were read from it go, which may close it again", function()
    py.exec [[
class Handle:
    def __getattr__(self, name):
        return Method()

class Method:
    def __call__(self):
        pass
    def __del__(self):
        answers.append(again())

answers = []
]]
    local handle = main.Handle()
    local method = handle.anything
    main.again = function() return (pcall(py.close, handle)) end
    py.close(handle)
    assert.are.equal("[False]", tostring(main.answers))
    assert.is_false((pcall(method)))
    main.again = py.None
  end)
end)

describe("a failure", function()
  local FAILURES = {
    { "of an item that is set", "TypeError", function() py.set(py.tuple { 1 }, 0, 1) end },
    { "of an attribute that is set", "AttributeError", function() py.object(5.5).name = 1 end },
    { "of an item that is deleted", "TypeError", function() py.delete(py.tuple { 1 }, 0) end },
    { "of keywords that are no mapping", "AttributeError", function() py.call(builtins.dict, nil, py.list { 5 }) end },
    { "of a number that is too large", "OverflowError", function() py.int64(py.eval "2**63") end },
    { "of a number that is negative", "OverflowError", function() py.uint64(py.int(-1)) end },
    { "of a text that is no number", "ValueError", function() py.number "five" end },
    { "of an iterator", "ValueError", function() for _ in py.iter(py.eval "(int('x') for _ in [1])") do end end },
    { "of arguments that are no iterable", "TypeError", function() py.call(builtins.dict, 5) end },
    { "of what a manager's class has", "ValueError", function() py.with(main.Silent(), function() end) end },
    { "of a manager's answer", "ValueError", function() py.with(main.Undecided(), error) end },
    { "of what is unpacked", "TypeError", function() py.unpack(py.object(5.5)) end },
    { "of what items gives", "AttributeError", function() py.items(py.list {}) end },
  }
  setup(function()
    py.exec [[
class Kind(type):
    def __getattribute__(cls, name):
        if name == "__exit__":
            raise ValueError("silent")
        return super().__getattribute__(name)
class Silent(metaclass=Kind):
    def __enter__(self):
        pass
class Undecided:
    def __enter__(self):
        pass
    def __exit__(self, *error):
        return self
    def __bool__(self):
        raise ValueError("undecided")
]]
  end)

  for _, failure in ipairs(FAILURES) do
    it(failure[1] .. " is an error", function()
      local ok, err = pcall(failure[3])
      assert.is_false(ok)
      assert.are.equal(failure[2], err.type)
    end)
  end
end)

describe("a table of Lua's", function()
  it("becomes a dict without the state, which a key's hash may have others use", function()
    py.exec [[
import threading
class Key:
    def __hash__(self):
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        thread.join(10)
        self.answered = not thread.is_alive()
        return 1
]]
    main.answer = function() return 1 end
    local key = main.Key()
    assert.are.equal(1, #py.dict { [key] = 5 })
    assert.is_true(key.answered)
    main.answer = py.None
  end)

  it("becomes a list or a tuple of as many elements as are asked for", function()
    for count = 0, 3 do
      assert.are.equal(count, #py.list({ 1, 2 }, count))
      assert.are.equal(count, #py.tuple({ 1, 2 }, count))
    end
  end)

  it("becomes no dict where a key has no hash", function()
    local ok, err = pcall(py.dict, { [py.list {}] = 1 })
    assert.is_false(ok)
    assert.is_true(err:is "TypeError")
  end)

  it("becomes a dict of tensors, and a list of them", function()
    local t, u = mf.zeros(1), mf.zeros(2)
    assert.are.equal(3, #py.dict { a = t, b = u, c = t })
    assert.are.equal(3, #py.list { t, u, t })
    t:close()
    u:close()
    hosted.collect()
  end)
end)

describe("a text", function()
  it("that there is no memory for is an error that says so, not an object and not what is no UTF-8", function()
    if not hosted.has "_testcapi" then
      return pending "this CPython has no module that takes its memory away"
    end
    local testcapi = py.import "_testcapi"
    local take, give = testcapi.set_nomemory, testcapi.remove_mem_hooks
    py.exec "class Long:\n    n = 1000\n    text = property(str)\n    def __str__(self): return 'ü' * self.n"
    local object, text = main.Long(), ("ü"):rep(1000)
    local ways = { index = function() return object.text end, tostring = function() return tostring(object) end }
    for way, read in pairs(ways) do
      local refused, got = 0, nil
      for nth = 1, 100 do
        take(nth, nth + 1)
        local ok, value = pcall(read)
        give()
        if ok then
          got = value
          break
        end
        assert.are.equal("MemoryError", value.type, way)
        refused = refused + 1
      end
      assert.are.equal(text, got, way)
      assert.is_true(refused > 1, way)
    end
  end)
end)

describe("a text that is not UTF-8", function()
  it("is an object, after which nothing is pending", function()
    local chr, len, nothing = builtins.chr, builtins.len, py.tuple {}
    for _ = 1, 3 do -- the first of a type is asked what it weighs
      local text = chr(0xd800)
      for _ in py.iter(nothing) do -- whose end looks whether it is an error
        error "an item of nothing"
      end
      assert.are.equal(1, len(text))
    end
  end)
end)

describe("a value of Lua's that Python keeps", function()
  it("is read as itself, of whatever type it is", function()
    for _, value in ipairs { io.stdout, newproxy(true), coroutine.create(print), print, function() end } do
      main.kept = value
      assert.are.equal(value, main.kept)
    end
    main.kept = nil
  end)
end)

describe("scopes", function()
  it("of two coroutines end in any order", function()
    local objects = {}
    local function begin(name)
      return coroutine.wrap(function()
        py.scope(function()
          objects[name] = py.list { name }
          coroutine.yield()
        end)
      end)
    end
    for _, order in ipairs { { "a", "b" }, { "b", "a" } } do
      local ends = { a = begin "a", b = begin "b" }
      ends.a()
      ends.b()
      ends[order[1]]()
      assert.is_false((pcall(builtins.len, objects[order[1]])))
      assert.are.equal(1, builtins.len(objects[order[2]]))
      ends[order[2]]()
      assert.is_false((pcall(builtins.len, objects[order[2]])))
    end
  end)

  it("that have ended are found out, where a debugger calls their functions", function()
    local guests
    for i = 1, 20 do
      local name, value = debug.getupvalue(require("moonferry.scope").attach, i)
      guests = name == "guests" and value or guests
    end
    local ended, open, object = guests.scope_begin(), guests.scope_begin(), py.list { 1 }
    guests.scope_end(ended)
    for _, none in ipairs { ended, io.stdout, "text" } do
      guests.scope_end(none)
      guests.scope_keep(none, ended, object)
      guests.scope_keep(open, none, object)
    end
    guests.scope_end(open, ended, object)
    assert.are.equal(1, builtins.len(object))
  end)

  it("end once, though a script says of another that it is the one which ends", function()
    assert.are.equal("3\t3\n", process.runs(process.PRELUDE .. [=[
local mf = require "moonferry"
py.exec [[
class Dies:
    def __del__(self):
        dies()
]]
local ending, deaths, ended = nil, 0, 0
py.main.dies = function()
  deaths = deaths + 1
  mf.scope(function(inner) inner.guest = ending end)
  ended = ended + 1
end
mf.scope(function(outer)
  ending = outer.guest
  for _ = 1, 3 do py.main.Dies() end
end)
print(deaths, ended)
]=]))
  end)
end)

describe("an error of CPython's own", function()
  local function failure(...)
    local ok, err = pcall(...)
    assert.is_false(ok)
    return err
  end

  it("leaves nothing where it is told in place of CPython's", function()
    py.exec "import sys\ndef kept(): return sys.getrefcount(SystemError), sys.getallocatedblocks()"
    local rounds, before, after = 2000, nil, nil
    for _ = 1, 2 do
      for _ = 1, rounds do failure(builtins.vars) end
      hosted.collect()
      before, after = after, { py.unpack(py.main.kept()) }
    end
    assert.is_true(after[1] - before[1] < rounds / 2, "references of the class")
    assert.is_true(after[2] - before[2] < rounds / 2, "blocks of memory")
  end)

  it("leaves no other exception where there is no memory to look at it", function()
    if not hosted.has "_testcapi" then return pending "this Python has no _testcapi" end
    local testcapi, len = py.import "_testcapi", builtins.len
    local fail, succeed = testcapi.set_nomemory, testcapi.remove_mem_hooks
    local errors, seen = {}, {}
    for nth = 0, 20 do
      fail(nth, nth + 1) -- which an exception that is left makes fail
      errors[nth] = failure(len, 5)
      succeed()
    end
    for nth = 0, 20 do seen[errors[nth].type] = true end
    assert.is_true(seen.MemoryError and seen.TypeError)
  end)
end)

describe("Python code that C code of Lua's calls, which is no call of Python's", function()
  it("gives Lua nobody else's time where it calls Lua itself", function()
    py.exec [[
import ctypes, threading

def as_pointer(function):
    global kept # for as long as C may call it
    kept = ctypes.CFUNCTYPE(None)(function)
    return ctypes.cast(kept, ctypes.c_void_p).value

done = threading.Event()

def again_and_again(function):
    """Calls the function on a thread of its own, which wants Lua whenever it does not have it."""
    def run():
        while not done.is_set():
            function()
    thread = threading.Thread(target=run)
    thread.start()
    return thread
]]
    local called, others = 0, 0
    local address = main.as_pointer(function() called = called + 1 end)
    local thread = main.again_and_again(function() others = others + 1 end)
    local pointer = ffi.cast("void (*)(void)", ffi.cast("uintptr_t", address))
    local function call() pointer() end
    jit.off(call) -- LuaJIT cannot be called below compiled code
    while others == 0 do py.collect() end
    local before, n = others, 0
    call()
    for i = 1, 3e7 do
      n = n + i % 7
      if others ~= before then break end
    end
    assert.are.same({ 1, before }, { called, others })
    main.done.set()
    thread.join()
  end)
end)

-- In a process of its own, where nothing else of Lua's is left in Python.
describe("a Lua function that Python lets go of while it runs", function()
  local CALLED = process.PRELUDE .. [=[
py.exec [[
import functools, signal

class Partial(functools.partial):
    pass
def partial_of(function):
    globals()["partial"] = Partial(function)
def call_partial():
    return partial(1)
def forget_partial():
    partial.__setstate__((int, (), {}, None))

def handle_by(function):
    signal.signal(signal.SIGUSR1, function)
def call_handler():
    signal.raise_signal(signal.SIGUSR1)
def forget_handler():
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
]]
local main = py.main
local give, call, forget = main[GIVE], main[CALL], main[FORGET]
local function let_go()
  forget()
  for _ = 1, 5 do py.collect() end -- what Python has dropped is given back
end
local function run(f)
  give(f)
  f = nil
  collectgarbage()
  collectgarbage()
  local ok, result = pcall(call)
  print(ok, (tostring(result):gsub(".*: ", "")))
end
run(function() let_go() error "mine" end)
run(function() let_go() return { 1, { 2 } }, "two" end)
]=]
  local WAYS = { partial = "([1, [2]], 'two')", handler = "None" }

  for name, result in pairs(WAYS) do
    it("keeps what it was called by: " .. name, function()
      local names = { GIVE = name == "partial" and "partial_of" or "handle_by", CALL = "call_" .. name,
                      FORGET = "forget_" .. name }
      local script = CALLED:gsub("%[([GCF][A-Z]+)%]", function(key) return '["' .. names[key] .. '"]' end)
      assert.are.equal("false\tmine\ntrue\t" .. result .. "\n", process.runs(script))
    end)
  end
end)
