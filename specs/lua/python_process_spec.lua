-- What a hosted Python knows of its process: arguments, the script's folder, Ctrl-C.
local process = require "process"
local py = require "moonferry.python"

local run, runs, shell, prelude = process.run, process.runs, process.shell, process.PRELUDE

describe("a hosted Python", function()
  it("has the script's arguments, and finds modules beside the script", function()
    local folder = os.tmpname()
    os.remove(folder)
    shell("mkdir " .. folder)
    process.write_file(folder .. "/beside_me.py", "value = 5\n")
    process.write_file(folder .. "/script.lua", prelude .. [[
print(py.import("sys").argv, py.import("beside_me").value)
]])
    local command = ("%s %s/script.lua one 'two words' $'\\xff'"):format("luajit", folder)
    local status, text = shell("bash -c " .. ("%q"):format(command):gsub("%$", "\\$"))
    assert.are.equal(0, status, text)
    assert.are.equal(("['%s/script.lua', 'one', 'two words', '\\udcff']\t5\n"):format(folder), text)
    local _, refused = shell(("cd /; PYTHONSAFEPATH=1 luajit %s/script.lua"):format(folder))
    local safe = py.import("sys").version_info >= py.tuple { 3, 11 } -- older ones do not know the variable
    assert.matches(safe and "No module named 'beside_me'" or "\t5\n$", refused)
    local _, found = shell(("cd /; PYTHONSAFEPATH= luajit %s/script.lua"):format(folder))
    assert.matches("\t5\n$", found)
    shell("rm -r " .. folder)
  end)

  it("has no arguments where Lua has none", function()
    local _, text = shell([[luajit -e 'arg = nil; print(require("moonferry.python").import("sys").argv)']])
    assert.are.equal("['']\n", text)
  end)

  it("makes Lua states that load C modules, as its host does", function()
    local lua = py.import("moonferry").Lua(py.kw { c_modules = true })
    local library = (os.getenv "MOONFERRY_BUILD" or "build/dev") .. "/specs/lua_support.so"
    local found = lua:execute("return type(package.loadlib(...))", library, "support_calls")
    assert.are.equal("function", found)
  end)
end)

describe("what Python runs while it is started", function()
  it("may have Lua states of its own, which use Python", function()
    local _, made = shell "mktemp -d"
    local folder = made:match "%S+"
    process.write_file(folder .. "/sitecustomize.py", [[
import threading
import moonferry
def work(): print(moonferry.Lua().eval("require('moonferry.python').eval('1 + 1')"), flush=True)
work()
thread = threading.Thread(target=work)
thread.start()
thread.join()
]])
    local text = runs(prelude .. "print(py.eval '2 + 1')", "PYTHONPATH=" .. folder .. ":$PYTHONPATH timeout 100")
    shell("rm -r " .. folder)
    assert.are.equal("2\n2\n3\n", text)
  end)
end)

describe("Ctrl-C", function()
  -- Runs a script that says when it is ready, where Ctrl-C shall meet it, interrupts it then, and gives its status and
  -- what it printed. The numbers only keep a script that fails from running for ever.
  local function interrupted(script, options)
    local path, out = os.tmpname(), os.tmpname()
    process.write_file(path, prelude .. "local function ready() print 'ready'; io.stdout:flush() end\n" .. [[
py.exec "import time\ndef ready(): print('ready', flush=True)"
]] .. script)
    local status, text = shell(([[
luajit %s %s >%s 2>&1 &
for i in $(seq 2400); do grep -q ready %s && break; sleep 0.05; done
kill -INT $!
for i in $(seq 2400); do kill -0 $! 2>/dev/null || break; sleep 0.05; done
kill -KILL $! 2>/dev/null
wait $!
s=$?
cat %s
exit $s]]):format(options or "", path, out, out, out))
    os.remove(path)
    os.remove(out)
    return status, text
  end

  it("raises KeyboardInterrupt in Python code, which Lua can catch", function()
    local status, text = interrupted [[
py.exec "def wait():\n    ready()\n    while True: pass"
local ok, err = pcall(py.main.wait)
print(ok, err.type)
os.exit(err:is "KeyboardInterrupt" and 7 or 1, true)
]]
    assert.are.equal(7, status, text)
    assert.matches("false\tKeyboardInterrupt", text)
  end)

  it("ends a program that waits in Python and does not catch it", function()
    local status, text = interrupted [[
py.exec "def wait():\n    ready()\n    time.sleep(600)"
py.main.wait()
]]
    assert.are.equal(1, status, text)
    assert.matches("KeyboardInterrupt", text)
  end)

  it("ends a program that waits in a system call which would begin anew", function()
    local status, text = interrupted [[
py.exec "import os\ndef wait():\n    ready()\n    os.read(os.pipe()[0], 1)"
py.main.wait()
]]
    assert.are.equal(1, status, text)
    assert.matches("KeyboardInterrupt", text)
  end)

  -- C's raise and signal: Ctrl-C comes at this place, and what the host does then is known.
  local signals = [[
local ffi = require "ffi"
ffi.cdef "typedef void (*handler)(int); handler signal(int, handler); int raise(int); void _exit(int);"
py.exec "import ctypes, signal; send = getattr(ctypes.CDLL(None), 'raise')"
]]

  it("that comes while no Python code runs is an error of the next call", function()
    local text = runs(prelude .. signals .. [[
local add = py.op.add
local ok, failed = pcall(py.main.send, 2)
print(ok, failed)
local _, err = pcall(add, 1, 2)
print(err.type, add(1, 2))
]])
    assert.are.equal("true\t0\nKeyboardInterrupt\t3\n", text)
  end)

  it("that comes while no Python code runs is an error of whatever calls Python next, too", function()
    local text = runs(prelude .. signals .. [[
local one, list = py.object(1), py.list { 1 }
local ways = {
  function() return one + 1 end, function() return -one end, function() return one < one end,
  function() return py.iter(list) end, function() return py.object "x" end, function() return list[0] end,
  function() list[0] = 2 end, function() return list.append end, function() py.main.list = list end,
  function() return #list end, function() return py.list {} end, function() return py.tuple {} end,
  function() return py.dict {} end, function() return py.bytes "x" end,
}
for _, way in ipairs(ways) do
  assert(pcall(py.main.send, 2))
  io.write(select(2, pcall(way)).type, " ")
end
]])
    assert.are.equal(("KeyboardInterrupt "):rep(14), text)
  end)

  it("that comes too late for the code of a context manager's body is the body's error", function()
    local text = runs(prelude .. signals .. [[
py.exec "import contextlib, threading; lock, other = threading.Lock(), threading.Lock()"
local main = py.main
local function interrupted() return main.send(2) end
local _, err = pcall(py.with, main.lock, interrupted)
print(err.type, err.traceback:find "in interrupt" ~= nil, main.lock:locked())
_, err = pcall(py.with, main.other, function() interrupted() error("no", 0) end)
print(err.type, main.other:locked(), err.__context__)
print(select("#", py.with(main.contextlib.suppress(py.builtins.KeyboardInterrupt), interrupted)), py.op.add(1, 2))
]])
    assert.are.equal("KeyboardInterrupt\ttrue\tfalse\nKeyboardInterrupt\tfalse\tno\n0\t3\n", text)
  end)

  it("is the host's in a Lua function that Python calls", function()
    local text = runs(prelude .. signals .. [[
py.main.f = function()
  ffi.C.raise(2)
  for _ = 1, 1e7 do end
end
print((select(2, pcall(py.eval, "f()")):gsub("^.*: ", "")))
]], "", "luajit -joff")
    assert.are.equal("interrupted!\n", text)
  end)

  it("is a handler's that the host has set since Python began", function()
    local status, text = run(prelude .. signals .. [[
ffi.C.signal(2, ffi.C._exit)
py.import "wave"
ffi.C.raise(2)
]])
    assert.are.equal(2, status, text)
  end)

  it("is such a handler's, too, where that wants to know more of the signal", function()
    local status, text = run(prelude .. signals .. [[
ffi.cdef "struct sigaction { void (*handler)(int); long mask[16]; int flags; void *restorer; };"
ffi.cdef "int sigaction(int, const struct sigaction *, struct sigaction *);"
local SA_SIGINFO, SA_NODEFER, SA_ONSTACK, SIGUSR1 = 4, 0x40000000, 0x08000000, 10
local flags, blocked = SA_SIGINFO + SA_NODEFER + SA_ONSTACK, 2 ^ (SIGUSR1 - 1)
local now = ffi.new("struct sigaction", { handler = ffi.C._exit, mask = { blocked }, flags = flags })
ffi.C.sigaction(2, now, nil)
py.import "wave"
print(select(2, pcall(py.exec, "send(2)")).type)
ffi.C.sigaction(2, nil, now)
print(tonumber(now.mask[0]) == blocked, bit.band(now.flags, flags) == flags)
io.stdout:flush()
ffi.C.raise(2)
]])
    assert.are.equal("KeyboardInterrupt\ntrue\ttrue\n", text)
    assert.are.equal(2, status, text)
  end)

  it("is a handler's that Python code has set, whatever it imports then", function()
    local text = runs(prelude .. signals .. [[
py.exec "signal.signal(signal.SIGINT, lambda *which: print('here', flush=True))"
py.import "wave"
py.exec "send(signal.SIGINT)"
]])
    assert.are.equal("here\n", text)
  end)

  it("stays the system's where nobody has a handler, whatever Python imports", function()
    local text = runs(prelude .. signals .. [[
print(ffi.C.signal(2, nil) == nil, py.import("signal").SIGINT)
print(ffi.C.signal(2, nil) == nil)
]], "", process.ENGINE)
    assert.matches("^true\t.*\ntrue\n$", text)
  end)

  it("is such a handler's also where the host had none before", function()
    local text = runs(prelude .. signals .. [[
py.exec "signal.signal(signal.SIGINT, lambda *which: print('here', flush=True))"
py.import "wave"
py.exec "send(signal.SIGINT)"
]], "", process.ENGINE)
    assert.are.equal("here\n", text)
  end)

  it("is the host's once where a later handler passes it on", function()
    local text = runs(prelude .. signals .. [[
py.exec "import faulthandler, os; faulthandler.register(signal.SIGINT, open(os.devnull, 'w'), chain=True)"
py.import "wave"
print((select(2, pcall(function()
  ffi.C.raise(2)
  for _ = 1, 1e7 do end
end)):gsub("^.*: ", "")))
]], "", "luajit -joff")
    assert.are.equal("interrupted!\n", text)
  end)

  it("waits for the main thread where another one asks first", function()
    local text = runs(prelude .. signals .. [[
ffi.cdef "int sched_yield(void);"
local flag, one = ffi.new "volatile char[1]", py.object(1)
py.main.address = tonumber(ffi.cast("intptr_t", flag))
py.exec [=[
import threading, moonferry
flag = ctypes.c_char.from_address(address)
add = moonferry.Lua().eval("function(one) return one + one end")
class One:
    def __add__(self, other): return 2
def work(one):
    while flag.value != b"\1": pass
    add(one)
    flag.value = b"\2"
def begin(): threading.Thread(target=work, args=[One()]).start()
]=]
local send = py.main.send
py.main.begin()
assert(pcall(send, 2))
flag[0] = 1
while flag[0] ~= 2 do ffi.C.sched_yield() end
print(select(2, pcall(function() return one + 1 end)).type)
]])
    assert.are.equal("KeyboardInterrupt\n", text)
  end)

  it("stays the main thread's where another one imports a module", function()
    local text = runs([[
local ffi = require "ffi"
ffi.cdef "typedef void (*handler)(int); handler signal(int, handler); void _exit(int);"
ffi.C.signal(2, ffi.C._exit)
thread "require('moonferry.python').import 'json'"
join()
print(ffi.C.signal(2, nil) == ffi.cast("handler", ffi.C._exit))
]], "", process.ENGINE)
    assert.are.equal("true\n", text)
  end)

  it("stays the host's where Python began on another thread", function()
    local text = runs([[
local ffi = require "ffi"
ffi.cdef "typedef void (*handler)(int); handler signal(int, handler); void _exit(int);"
thread "require('moonferry.python').start()"
join()
ffi.C.signal(2, ffi.C._exit)
local py = require "moonferry.python"
print(py.import("json").dumps(1), ffi.C.signal(2, nil) == ffi.cast("handler", ffi.C._exit))
]], "", process.ENGINE)
    assert.are.equal("1\ttrue\n", text)
  end)

  it("stays the host's while Python cannot have a handler, which is no error", function()
    local text = runs([[
local ffi = require "ffi"
ffi.cdef "typedef void (*handler)(int); handler signal(int, handler); void _exit(int);"
local py = require "moonferry.python"
py.exec "import sys, _signal; sys.modules['_signal'] = None"
local list, handler = py.list { 1 }, ffi.cast("handler", ffi.C._exit)
ffi.C.signal(2, handler)
py.import "wave"
print(tostring(list), ffi.C.signal(2, handler) == handler)
py.exec "sys.modules['_signal'] = _signal"
py.import "wave"
print(tostring(list), ffi.C.signal(2, nil) == handler)
]], "", process.ENGINE)
    assert.are.equal("[1]\ttrue\n[1]\tfalse\n", text)
  end)

  it("stops a script of a moonferry.Lua that Python made, if that is interruptible", function()
    local status, text = interrupted [[
local lua = py.import("moonferry").Lua(py.kw { interruptible = true })
py.main.ready = ready
py.exec "def say():\n    ready()"
local ok, err = pcall(function()
  lua:execute("local say = ... say() while true do pcall(function() while true do end end) end", py.main.say)
end)
print(ok, err.type)
ready()
os.exit(err:is "KeyboardInterrupt" and 7 or 1, true)
]]
    assert.are.equal(7, status, text)
    assert.matches("false\tKeyboardInterrupt", text)
  end)

  it("stops Lua code as it did before Python was started", function()
    local status, text = interrupted([[
py.import("asyncio").run(py.eval "__import__('asyncio').sleep(0)")
ready()
while true do end
]], "-joff")
    assert.are.equal(1, status, text)
    assert.matches("interrupted!", text)
  end)
end)

describe("a program that Python code wants to end", function()
  it("gets SystemExit as an error that it can look at", function()
    local text = runs(prelude .. [[
local ok, err = pcall(py.import("sys").exit, 3)
print(ok, err.type, err.code)
]])
    assert.are.equal("false\tSystemExit\t3\n", text)
    assert.are.equal(1, (run(prelude .. 'py.import("sys").exit(3)')))
  end)
end)

describe("an engine that embeds LuaJIT", function()
  local hosts = os.getenv "MOONFERRY_SPEC_HOSTS" or (os.getenv "MOONFERRY_BUILD" or "build/dev") .. "/specs"

  -- Each frame calls Python, which calls Lua; the engine closes its state and starts another one.
  local script = prelude .. [[
local np = py.import "numpy"
local state, seen = np.zeros(4), 0
local function update(x)
  seen = seen + 1
  return x + 1
end
py.exec "total = globals().get('total', 0)"
function frame(i)
  state = py.builtins.list(py.builtins.map(update, state))
  py.main.total = py.main.total + 1
  if i == 99 then
    print(level, py.number(state[3]), seen, py.main.total, py.import("sys").argv)
    io.stdout:flush()
  end
end
]]

  local function hosted(program, plugin)
    local path = hosts .. "/" .. program
    local file = io.open(path)
    if not file then
      return nil, pending(program .. " was not built: LuaJIT's static library is not installed")
    end
    file:close()
    local with = path .. (plugin and " " .. hosts .. "/" .. plugin or "")
    return with
  end

  for name, way in pairs {
    ["statically"] = { "lua_host_static" },
    ["dynamically"] = { "lua_host_shared" },
    ["in a plugin of its own"] = { "lua_host_loader", "lua_host_plugin.so" },
  } do
    it(name .. " hosts Python like any Lua", function()
      local program = hosted(unpack(way))
      if program then
        assert.are.equal("1\t100\t400\t100\t['']\n2\t100\t400\t200\t['']\n", runs(script, "", program))
      end
    end)
  end

  it("and does not export it is told how to", function()
    local program = hosted "lua_host_closed"
    if program then
      local status, text = run(script, "", program)
      assert.are.equal(1, status)
      assert.matches("undefined symbol: lua_.*export%-dynamic", text)
    end
  end)

  it("keeps its own way with Ctrl-C", function()
    if os.getenv "MOONFERRY_SPEC_EMULATED" then
      return pending "QEMU catches each signal itself, which /proc says"
    end
    local program = hosted "lua_host_shared"
    local text = runs(prelude .. [[
py.import "signal"
py.import "asyncio"
for line in io.lines "/proc/self/status" do
  local caught = line:match "^SigCgt:%s*%x+(%x)$"
  if caught then
    print(bit.band(tonumber(caught, 16), 2))
  end
end
function frame() end
]], "", program)
    assert.are.equal("0\n0\n", text)
  end)
end)

describe("a Lua that Python hosts", function()
  it("has the same interpreter, the same objects and the same tensors in moonferry.python", function()
    local text = runs([[
import os
import moonferry
lua = moonferry.Lua()
lua.globals().path = os.environ["LUA_PATH"]
lua.execute("package.path = path .. ';' .. package.path; py = require 'moonferry.python'")
class Thing:
    x = 5
thing, mine = Thing(), moonferry.full((2,), 7, "int32")
lua.globals().thing = thing
print(lua.execute("return py.main.thing.x, py.is(thing), py.builtins.type(thing) == py.main.Thing"))
print(lua.execute("return py.builtins.sorted({ 3, 1, 2 }, py.kw { key = function(x) return -x end })"))
print(lua.execute("return py.main.mine:get(1)"), lua.eval("function(t) return py.main.mine end")(mine).tolist())
try:
    lua.execute("py.raise(py.main.KeyError or py.builtins.KeyError, 'k')")
except AttributeError as e:
    print(type(e).__name__, e)
try:
    lua.execute("py.raise(py.builtins.KeyError, 'k')")
except KeyError as e:
    print(type(e).__name__, e)
print(lua.execute("return select(2, pcall(py.eval, '1/0')).type"))
print(lua.execute("""
local n = 0
local thread = py.import("threading").Thread(py.kw { target = function() n = n + 1 end })
thread:start()
thread:join()
return n, py.import("sys").argv[0]
""")[0])
]], "MOONFERRY_PYTHON=/nowhere", py.import("sys").executable)
    assert.are.equal([[
(5, True, True)
[3, 2, 1]
7 [7, 7]
AttributeError module '__main__' has no attribute 'KeyError'
KeyError 'k'
ZeroDivisionError
1
]], text)
  end)
end)

describe("a Lua that hosts Python", function()
  it("raises an error where calls nest to the end of the C stack", function()
    local status, text = process.run([[
local add, levels = require("moonferry.python").op.add, 0
local function deeper()
  local ok, why = pcall(add, 1, 1)
  if not ok then return why end
  levels = levels + 1
  local _, answer = coroutine.resume(coroutine.create(deeper))
  return answer
end
print(deeper(), levels > 1000)
print(add(1, 1))
]])
    assert.are.equal("C stack overflow\ttrue\n2\n", text)
    assert.are.equal(0, status)
  end)
end)
