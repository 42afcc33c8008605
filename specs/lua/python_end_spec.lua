-- How a hosted Python, a script and a program of C's end where one of them is still at work: threads of Python's that
-- are inside, what a program has finalized by itself, a child that another thread than main has forked.
local helper = require "helper"
local process = require "process"

after_each(helper.nothing_left_by_either)

local prelude, engine = process.PRELUDE, process.ENGINE

describe("the end of a Lua state", function()
  for place, leave in pairs {
    ["at the script's end"] = "work()",
    ["on a thread that is older"] = "py.main.run(function() work() os.exit(0, true) end)",
  } do
    it("waits for the call that a thread of Python's has there, " .. place, function()
      local text = process.runs(prelude .. [[
local ffi = require "ffi"
goes_on = ffi.new "char[1]" -- which Lua sets without letting the thread in
py.main.address = tonumber(ffi.cast("intptr_t", goes_on))
py.exec "import ctypes, threading, time\ninside = threading.Event(); goes_on = ctypes.c_char.from_address(address)"
py.exec "def wait():\n    inside.set()\n    while goes_on.value == b'\\0': pass\n    time.sleep(0.1)"
py.exec "def begin(call):\n    threading.Thread(target=call).start()\n    inside.wait()"
py.exec "def run(call):\n    thread = threading.Thread(target=call)\n    thread.start()\n    thread.join()"
local function work()
  py.main.begin(function()
    py.main.wait()
    print "the thread comes out"
  end)
  print "the end"
  goes_on[0] = 1
end
]] .. leave)
      assert.are.equal("the end\nthe thread comes out\n", text)
    end)
  end
end)

-- Threads of Python's that are no daemons, and one that an exit function waits for; each comes to Lua when main leaves.
local COMERS = [[
py.exec [=[
import threading
leaves = threading.Event()
threading._register_atexit(leaves.set) # runs before any thread is waited for
def begin(call, daemon=False):
    def come():
        leaves.wait()
        call()
    thread = threading.Thread(target=come, daemon=daemon)
    thread.start()
    return thread
def run(call):
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
]=]
py.main.begin(function() print(py.builtins.str "a thread has come") end)
]]

describe("os.exit", function()
  for place, leave in pairs {
    ["in a script"] = "leave()",
    ["in a function that Python calls"] = "py.eval 'lambda f: f()' (leave)",
    ["in a coroutine"] = "coroutine.wrap(leave)()",
    ["on a thread of Python's"] = "py.main.run(leave)",
  } do
    it("waits for threads of Python's that come to Lua, " .. place, function()
      local text = process.runs(prelude .. COMERS .. "local function leave() print 'leaves' os.exit(0) end " .. leave)
      assert.are.equal("leaves\na thread has come\n", text)
    end)
  end

  it("lets threads come to Lua for which an exit function waits", function()
    local text = process.runs(prelude .. COMERS .. [[
local daemon = py.main.begin(function() print "a daemon has come" end, true)
py.import "atexit".register(daemon.join)
py.import "atexit".register(function() print "a function of Lua's" end)
os.exit(0)
]])
    local lines = {}
    for line in text:gmatch "[^\n]+" do
      lines[#lines + 1] = line
    end
    table.sort(lines)
    assert.are.same({ "a daemon has come", "a function of Lua's", "a thread has come" }, lines)
  end)

  it("lets Lua that an exit function calls go into Python, where no other Lua may any more", function()
    local text = process.runs(prelude .. [[
py.import "atexit".register(function() print(pcall(py.eval, "1 + 1")) end)
print(py.finish())
]])
    assert.are.equal("true\t2\ntrue\n", text)
  end)
end)

describe("mf_guest_collect and mf_guest_finish", function()
  it("lets Python's threads run when it is done", function()
    local text = process.runs(prelude .. [[
py.exec [=[
import os, threading
reader, writer = os.pipe()
given = threading.Event()
class Given:
    def __del__(self): given.set()
def work():
    given.wait()
    os.write(writer, b"a thread\n")
threading.Thread(target=work, daemon=True).start()
]=]
local pipe, object = io.open(("/proc/self/fd/%d"):format(py.main.reader)), py.main.Given()
object = nil
collectgarbage() collectgarbage()
assert(require("moonferry.lib").mf_guest_collect(nil) == 0)
print(pipe:read())
]])
    assert.are.equal("a thread\n", text)
  end)

  it("do nothing where a program has finalized Python by itself", function()
    local text = process.runs(prelude .. [[
local C, ffi = require "moonferry.lib", require "ffi"
ffi.cdef "int PyGILState_Ensure(void); int Py_FinalizeEx(void);"
local dropped = py.list { 1 }
ffi.C.PyGILState_Ensure()
ffi.C.Py_FinalizeEx()
dropped = nil
collectgarbage() collectgarbage()
print(C.mf_guest_collect(nil), C.mf_guest_finish(0, nil, nil))
]])
    assert.are.equal("0\t0\n", text)
  end)
end)

describe("main, which leaves while another thread ends Python,", function()
  it("waits until py.finish is done", function()
    local text = process.runs(prelude .. [==[
local reader, writer = py.unpack(py.import("os").pipe())
py.main.writer = writer
py.exec [[
import atexit, os, time
def at_exit():
    os.write(writer, b"x")
    times = 0
    while times < 10:  # until main has slept for a while, which waits for this
        time.sleep(0.001)
        state = open("/proc/self/stat").read().rpartition(")")[2].split()[0]
        times = times + 1 if state == "S" else 0
    print("an exit function", flush=True)
atexit.register(at_exit)
]]
thread "require('moonferry.python').finish { wait = 60 }"
io.open("/proc/self/fd/" .. reader):read(1)
]==], "", engine)
    assert.are.equal("an exit function\n", text)
  end)

  it("does not wait where that thread has called exit, which may wait for main", function()
    local status, text = process.run([==[
join_at_exit()
thread [=[
local py = require "moonferry.python"
local reader, writer = py.unpack(py.import("os").pipe())
thread([[
await "main leaves"
local times = 0
while times < 1000 do -- until main has slept for a while
  local file = io.open "/proc/self/stat"
  times = file:read():match "%) S" and times + 1 or 0
  file:close()
end
]] .. ("io.open('/proc/self/fd/%d', 'w'):write 'x'"):format(writer))
py.main.reader, py.main.set = reader, set
py.exec [[
import atexit, ctypes
def at_exit():
    set("inside")
    ctypes.PyDLL(None).read(reader, ctypes.create_string_buffer(1), 1)  # which keeps the GIL
    print("Python ended", flush=True)
atexit.register(at_exit)
]]
leave(3)
]=]
await "inside"
set "main leaves"
]==], "", engine)
    assert.are.equal("Python ended\n", text)
    assert.are.equal(3, status)
  end)
end)

describe("Python's end", function()
  it("comes before that of what its modules have made, where main does not tell of its own", function()
    for _, last in ipairs { "", "os.exit(0)", "py.import 'wave' leave(0)" } do
      local text = process.runs([==[
io.stdout:setvbuf "no"
thread [=[
local py = require "moonferry.python"
py.exec "import atexit, ctypes; atexit.register(print, 'Python ended', flush=True)"
py.exec "libc, text = ctypes.CDLL(None), ctypes.create_string_buffer(b'an object ended')"
collectgarbage() collectgarbage()
py.exec "libc.__cxa_atexit(libc.puts, text, None)"
]==] .. last .. "\n]=]\njoin()", "", engine)
      assert.are.equal("Python ended\nan object ended\n", text)
    end
  end)

  it("comes before that of a library that was loaded for an extension module", function()
    local status, text = process.run([==[
thread [=[
local py = require "moonferry.python"
py.exec [[
import atexit, importlib.machinery, importlib.util, os
atexit.register(print, "Python ended", flush=True)
path = os.environ["MOONFERRY_BUILD"] + "/specs/life_library.so"
loader = importlib.machinery.ExtensionFileLoader("life_library", path)
try:
    importlib.util.module_from_spec(importlib.util.spec_from_loader("life_library", loader))
except ImportError:
    pass  # it is loaded, and no module
]]
leave(3)
]=]
join()
]==], "MOONFERRY_BUILD=" .. (os.getenv "MOONFERRY_BUILD" or "build/dev"), engine)
    assert.are.equal("Python ended\nthe library ended\n", text)
    assert.are.equal(3, status)
  end)

  it("runs what is to run at exit where Lua has come no further than Python's start", function()
    local _, made = process.shell "mktemp -d"
    local folder = made:match "%S+"
    process.write_file(folder .. "/sitecustomize.py", "import atexit; atexit.register(print, 'bye', flush=True)\n")
    local status, text = process.run([==[
thread [=[
local facts = require("moonferry.interpreter").load {}
assert(require("moonferry.bridge").load().start(facts.executable))
leave(3)
]=]
join()
]==], "PYTHONPATH=" .. folder .. ":$PYTHONPATH", engine)
    process.shell("rm -r " .. folder)
    assert.are.equal("bye\n", text)
    assert.are.equal(3, status)
  end)

  -- In Python: a library whose constructor registers an exit function, and what Python does at its own end.
  local LIBRARY = [[
import atexit, ctypes, os, sys, threading
atexit.register(print, "Python ended", flush=True)
libc, text = ctypes.CDLL(None), ctypes.create_string_buffer(b"the library ended")
register, puts = libc.__cxa_atexit, libc.puts
]]

  -- What a program prints that leaves while a library, which is being loaded, has registered an exit function; and its
  -- status. Another thread does `meanwhile`, indented, behind the event of the loading.
  local function leaves_while_loading(meanwhile)
    return process.run(([==[
io.stdout:setvbuf "no"
thread [=[
local py = require "moonferry.python"
py.exec [[
]==] .. LIBRARY .. [==[
loads, goes_on = threading.Event(), threading.Event()
def load():
    sys.audit("ctypes.dlopen", "a library")
    loads.set()
    goes_on.wait()
    register(puts, text, None)  # by its constructor
def work():
    loads.wait()
MEANWHILE
threading.Thread(target=work, daemon=True).start()
]]
py.main.load()
leave(3)
]=]
join()
]==]):gsub("MEANWHILE", meanwhile), "", engine)
  end

  for what, meanwhile in pairs {
    ["whatever other threads do"] = [[
    sys.audit("another thread's event")
    goes_on.set()]],
    ["although another thread has loaded one"] = [[
    sys.audit("ctypes.dlopen", "another library")
    sys.audit("it is loaded")
    goes_on.set()
    threading.Event().wait()]],
    ["and another thread loads one, too"] = [[
    sys.audit("ctypes.dlopen", "another library")
    goes_on.set()
    threading.Event().wait()]],
  } do
    it("comes before that of a library that is being loaded, " .. what, function()
      local status, text = leaves_while_loading(meanwhile)
      assert.are.equal("Python ended\nthe library ended\n", text)
      assert.are.equal(3, status)
    end)
  end

  it("registers nothing more where nothing is loaded", function()
    local _, text = process.run([==[
local py = require "moonferry.python"
py.exec [[
import ctypes, sys
class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "abcdefghij"]
mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = Mallinfo2
def held_by(count):
    before = mallinfo2().h  # uordblks
    for _ in range(count):
        sys.audit("an event")
    return mallinfo2().h - before
held_by(1)
print(held_by(5000) < 5000)  # an exit function takes 32 bytes
]]
]==])
    assert.are.equal("True\n", text)
  end)

  it("comes before that of a library with whose loading a thread has ended", function()
    local status, text = process.run([==[
io.stdout:setvbuf "no"
local py = require "moonferry.python"
thread [=[
local py = require "moonferry.python"
py.exec [[
]==] .. LIBRARY .. [==[
def load():
    sys.audit("ctypes.dlopen", "a library")
    register(puts, text, None)  # by its constructor
def load_and_end():
    loader = threading.Thread(target=load)
    loader.start()
    while str(loader.native_id) in os.listdir("/proc/self/task"):
        pass
]]
py.main.load_and_end()
leave(3)
]=]
join()
]==], "", engine)
    assert.are.equal("Python ended\nthe library ended\n", text)
    assert.are.equal(3, status)
  end)
end)

describe("a child that another thread than main has forked", function()
  it("goes on with Python when that thread has ended", function()
    local text = process.runs([==[
thread [=[
local py = require "moonferry.python"
py.exec [[
import os, threading, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # since 3.12 of each fork beside threads
def go_on():
    while open("/proc/self/stat").read().rpartition(")")[2].split()[0] != "Z":  # until the main thread has ended
        time.sleep(0.001)
    print("the child goes on", flush=True)
    os._exit(7)
pid = os.fork()
if pid == 0:
    threading.Thread(target=go_on, daemon=True).start()
else:
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
]]
]=]
join()
]==], "", engine)
    assert.are.equal("the child goes on\n7\n", text)
  end)

  it("loads libraries, as often as it likes", function()
    local text = process.runs([==[
thread [=[
require("moonferry.python").exec [[
import ctypes, os, sys, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # since 3.12 of each fork beside threads
def load_often():
    for _ in range(20):
        ctypes.CDLL(None)
        sys.audit("another event")
        task, = set(os.listdir("/proc/self/task")) - {str(os.getpid()), str(threading.get_native_id())}
        state = ""
        while state != "S":  # until our thread waits for the next one
            state = open(f"/proc/self/task/{task}/stat").read().rpartition(")")[2].split()[0]
load_often()
pid = os.fork()
if pid == 0:
    load_often()
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
]]
]=]
join()
]==], "", engine)
    assert.are.equal("7\n", text)
  end)
end)

describe("a Lua function that a thread of Python's is in when the script ends", function()
  it("has all that it uses until it has returned, while nobody else gets in", function()
    local text = process.runs [==[
local mf, py = require "moonferry", require "moonferry.python"
py.exec [[
import threading
inside, let_go = threading.Event(), threading.Event()
def work(function):
    print(function(), flush=True)
def knock(function):
    try:
        while True:
            function()
    except RuntimeError as error:
        print(error, flush=True)
    let_go.set()
def start(function, another):
    threading.Thread(target=work, args=[function]).start()
    inside.wait()
    threading.Thread(target=knock, args=[another], daemon=True).start()
]]
local inside, let_go, t = py.main.inside, py.main.let_go, mf.full({ 100000 }, 3, "float64")
py.main.start(function()
  inside:set()
  let_go:wait()
  return t:get(99999)
end, function() end)
]==]
    assert.are.equal("this Lua state was closed\n3\n", text)
  end)
end)
