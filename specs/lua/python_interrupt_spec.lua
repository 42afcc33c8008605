-- Ctrl-C in a process whose Lua hosts Python: which handler it comes to, and what it raises.
local process = require "process"

local run, runs, shell, prelude = process.run, process.runs, process.shell, process.PRELUDE

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

  -- What a script in Lua is ended with after a later handler than ours, which passes the signal on, and then `code`.
  local function passed_on(code)
    return runs(prelude .. signals .. [[
py.exec "import faulthandler, os; faulthandler.register(signal.SIGINT, open(os.devnull, 'w'), chain=True)"
py.import "wave"
]] .. code .. [[

print((select(2, pcall(function()
  ffi.C.raise(2)
  for _ = 1, 1e7 do end
end)):gsub("^.*: ", "")))
]], "", "luajit -joff")
  end

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

  it("is the host's also where the host had none before, and asyncio has run", function()
    local status = run(prelude .. signals .. [[
ffi.C.signal(2, ffi.C._exit)
py.import("asyncio").run(py.eval "__import__('asyncio').sleep(0)")
ffi.C.raise(2)
os.exit(1)
]], "", process.ENGINE)
    assert.are.equal(2, status)
  end)

  it("is the host's once where a later handler passes it on", function()
    assert.are.equal("interrupted!\n", passed_on "")
  end)

  it("raises KeyboardInterrupt in Python code also after a script that can be interrupted", function()
    local text = runs(prelude .. signals .. [[
py.exec "import moonferry; moonferry.Lua(interruptible=True).execute('x = 1')"
print(select(2, pcall(py.exec, "send(2)")).type)
]])
    assert.are.equal("KeyboardInterrupt\n", text)
  end)

  it("is the host's also after a later handler that passed it on has gone", function()
    assert.are.equal("interrupted!\n", passed_on [[py.exec "faulthandler.unregister(signal.SIGINT)"]])
  end)

  it("comes once to a handler that sets itself again each time", function()
    local text = runs(prelude .. signals .. [[
py.exec "import faulthandler, tempfile; said = tempfile.TemporaryFile()"
local function set()
  py.exec "faulthandler.unregister(signal.SIGINT), faulthandler.register(signal.SIGINT, said, chain=True)"
end
local function interrupted()
  local _, why = pcall(function()
    ffi.C.raise(2)
    for _ = 1, 1e7 do end
  end)
  return (why:gsub("^.*: ", ""))
end
for _, name in ipairs { "wave", "colorsys", "fractions" } do
  set()
  py.import(name)
  assert(interrupted() == "interrupted!" and interrupted() == "interrupted!")
end
py.exec "said.seek(0); print(said.read().count(b'most recent call first'), flush=True)"
set()
print(interrupted()) -- nothing has looked at which handler there is
]], "", "luajit -joff")
    assert.are.equal("6\ninterrupted!\n", text)
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
local _, text = pcall(function() while true do end end)
local ffi = require "ffi"
ffi.cdef "void *signal(int, void *);"
assert(ffi.C.signal(2, nil) == nil) -- a second Ctrl-C would end the program
error(text, 0)
]], "-joff")
    assert.are.equal(1, status, text)
    assert.matches("interrupted!", text)
  end)
end)
