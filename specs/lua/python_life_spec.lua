-- What an engine wants of a hosted Python beside calls: py.settle, py.preload, py.finish's refusals.
local helper = require "helper"
local process = require "process"
local py = require "moonferry.python"

after_each(helper.nothing_left_by_either)

local prelude, engine = process.PRELUDE, process.ENGINE

describe("py.settle", function()
  it("collects, and has the collector leave alone what is alive", function()
    local status, text = process.run(prelude .. [[
py.exec "class Node: pass\nnode = Node(); node.itself = node\nimport weakref; ref = weakref.ref(node); del node"
local before = py.import("gc").get_freeze_count()
local frozen = py.settle()
print(frozen - before > 1000, frozen == py.import("gc").get_freeze_count(), py.main.ref())
]]) -- CPython 3.12 begins with some that are left alone
    assert.are.equal("true\ttrue\tNone\n", text)
    assert.are.equal(0, status)
  end)
end)

describe("py.preload", function()
  it("imports on a thread of Python's, and counts without the GIL", function()
    local status, text = process.run(prelude .. [[
local loading = py.preload { "json", "no_such_module", "wave" }
local first = loading:count()
print(loading.total, first >= 0 and first <= 3)
local errors = loading:wait()
print(loading:count(), loading:done(), tostring(errors.no_such_module))
print(errors.json, py.import("sys").modules.__contains__("wave"))
]])
    assert.are.equal("3\ttrue\n3\ttrue\tNo module named 'no_such_module'\nnil\ttrue\n", text)
    assert.are.equal(0, status)
  end)

  it("is not done while a module is being loaded", function()
    py.exec [[
import sys, types, threading
going_on = threading.Event()
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "slow_module":
            going_on.wait()
            raise ImportError("it was slow")
sys.meta_path.insert(0, Slow())
]]
    local loading = py.preload { "slow_module" }
    assert.is_false(loading:done())
    assert.are.equal(0, loading:count())
    py.main.going_on:set()
    assert.matches("it was slow", tostring(loading:wait().slow_module))
    assert.is_true(loading:done())
    py.exec "sys.meta_path.pop(0)"
  end)

  it("says what it takes", function()
    assert.has_error(function() py.preload {} end, "py.preload: a list of modules' names is expected, not a table")
  end)
end)

describe("py.finish", function()
  it("leaves what other libraries lent to be given back without Python", function()
    local output = helper.luajit [[
local helper = require "helper"
local mf, py = require "moonferry", require "moonferry.python"
local struct, count = helper.managed()
local t = mf.from_dlpack(struct)
print(py.eval "1", py.finish { wait = 20 })
t:close()
print(count[0])
]]
    assert.are.equal("1\ttrue\n1\n", output)
  end)

  it("says what it takes", function()
    for shown, wait in pairs { ['"soon"'] = "soon", ["-1"] = -1, ["nan"] = 0 / 0, ["1000000000"] = 1e9 } do
      helper.refuses("py.finish: wait is " .. shown .. "; seconds from 0 to 86400 are expected", function()
        py.finish { wait = wait }
      end)
    end
  end)

  it("is the end: what is dropped later runs no Python code, whoever collects", function()
    local text = process.runs [[
local ffi = require "ffi"
local py = require "moonferry.python"
py.exec "class Loud:\n    def __del__(self): print('too late', flush=True)"
local loud = py.main.Loud()
py.finish()
loud = nil
collectgarbage() collectgarbage()
print(ffi.load(os.getenv "MOONFERRY_LIBRARY").mf_guest_collect(nil), pcall(py.collect))
]]
    assert.are.equal("0\tfalse\tPython has ended in this process\n", text)
  end)

  it("leaves scopes as they were: those that are open end, and new ones begin", function()
    local text = process.runs [[
local mf = require "moonferry"
local py = require "moonferry.python"
py.import "os"
print(mf.scope(function(s)
  py.eval "object()"
  local kept = s:keep(mf.zeros(3))
  mf.zeros(4)
  py.finish()
  return kept.size, mf.scope(function() mf.zeros(5) return mf.ledger().tensors end)
end))
print(mf.ledger().tensors, mf.scope(function() mf.zeros(6) return 7 end), mf.ledger().tensors)
print(pcall(py.scope, function() error("as it was", 0) end))
]]
    assert.are.equal("3\t3\n1\t7\t1\nfalse\tas it was\n", text)
  end)

  it("keeps no other thread from Python's end that asks for it meanwhile", function()
    local text = process.runs([==[
local path = os.tmpname()
os.remove(path)
thread("path = '" .. path .. "'" .. [=[
local py = require "moonferry.python"
py.main.path = path
py.exec [[
import threading, time
def main_sleeps():
    return open("/proc/self/stat").read().rpartition(")")[2].split()[0] == "S"
def work():
    while "moonferry.finish" not in [thread.name for thread in threading.enumerate()]:
        time.sleep(0.001)
    open(path, "w").close()
    rests = 0
    while rests < 10:  # until the main thread waits for its turn
        time.sleep(0.001)
        rests = rests + 1 if main_sleeps() else 0
threading.Thread(target=work).start()
]]
py.exec "import atexit; atexit.register(lambda: open(path + '.ended', 'w').close())"
assert(py.finish { wait = 60 })
]=])
local file
repeat file = io.open(path) until file
file:close()
os.remove(path)
print(require("moonferry.lib").mf_guest_finish(0, nil, nil), os.remove(path .. ".ended"))
join()
]==], "", engine)
    assert.are.equal("0\ttrue\n", text)
  end)

  it("is refused inside of its calls, on any thread, whoever asks, and without a place for the reason", function()
    local text = process.runs [[
local C = require "moonferry.lib"
local py = require "moonferry.python"
py.exec "import threading\ndef call(f): f()\ndef on_thread(f): t = threading.Thread(target=f); t.start(); t.join()"
local fault = require("ffi").new "mf_error"
local function ask() print(C.mf_guest_finish(0, nil, nil) == C.MF_EINVAL, C.mf_guest_finish(0, nil, fault)) end
py.main.call(ask)
py.main.on_thread(ask)
py.main.call(function() print((select(2, pcall(py.finish)):gsub("^.*%d: ", ""))) end)
print(fault.status == C.MF_EINVAL, py.finish { wait = 60 })
]]
    local refused = "Python cannot be ended from inside of one of its calls"
    assert.are.equal(("true\t-1\n"):rep(2) .. refused .. "\ntrue\ttrue\n", text)
  end)

  it("has begun where an exit function asks for it", function()
    local text = process.runs [[
local py = require "moonferry.python"
py.exec "import atexit, ctypes, os; library = ctypes.CDLL(os.environ['MOONFERRY_LIBRARY'])"
py.exec "atexit.register(lambda: print(library.mf_guest_finish(0, None, None), flush=True))"
]]
    assert.are.equal("0\n", text)
  end)
end)

describe("py.finish, as the end of the process,", function()
  -- A program may have taken much away, as sandboxes do.
  for before, last in pairs {
    [""] = "",
    [" where builtins has neither exec nor __import__"] = "import builtins; del builtins.exec, builtins.__import__",
    [" where sys.modules has forgotten those"] = "import sys; del sys.modules['atexit']",
  } do
    it("waits for threads before exit functions run" .. before, function()
      local version = py.import("sys").version_info
      if last:find "modules" and version < py.tuple { 3, 10 } then
        return pending "CPython 3.9 keeps exit functions with the module"
      end
      local text = process.runs([[
local py = require "moonferry.python"
py.exec "import atexit, threading; atexit.register(print, 'an exit function', flush=True)"
py.exec "def work():\n    threading.main_thread().join()\n    print('a thread', flush=True)"
py.exec "threading.Thread(target=work).start()"
py.exec "]] .. last .. '"')
      assert.are.equal("a thread\nan exit function\n", text)
    end)
  end

  it("writes what Python's files still hold", function()
    for _, stream in ipairs { "stdout", "stderr" } do
      for _, last in ipairs { "", "os.exit(0)", "assert(py.finish())" } do
        local code = 'local py = require "moonferry.python" py.import("sys").%s:write "no line yet"\n%s'
        assert.are.equal("no line yet", (process.runs(code:format(stream, last), "PYTHONUNBUFFERED=")))
      end
    end
  end)

  -- To the main thread, which blocks signals while it starts the one that is looked for: another might get it.
  local INTERRUPTED = prelude .. [[
py.exec [=[
import signal, threading, time
main = threading.get_ident()
def work():
    while "moonferry.finish" not in [thread.name for thread in threading.enumerate()]:
        time.sleep(0.001)
    signal.pthread_kill(main, signal.SIGINT)
threading.Thread(target=work, daemon=True).start()
%s
]=]
print(py.finish { wait = 60 })
]]

  for what, told in pairs {
    ["for _ in range(2): threading.Thread(target=threading.Event().wait).start()"] = "2 threads",
    ["threading._register_atexit(threading.Event().wait)"] = "1 thread", -- the one that waits
  } do
    it("says who has not ended where Ctrl-C ends the waiting, of " .. told, function()
      local text = process.runs(INTERRUPTED:format(what))
      local ends = "Exception ignored in: <module 'threading' .*\nKeyboardInterrupt.*\nnil\tpy.finish: %s had not ended"
      assert.matches((ends .. " after 60 seconds\n$"):format(told), text)
    end)
  end

  it("counts the waiting itself where what comes before threads has not ended", function()
    local code = 'py.exec "import threading\\nthreading._register_atexit(threading.Event().wait)"'
    local text = process.runs(prelude .. code .. " print(py.finish { wait = 0.05 })")
    assert.are.equal("nil\tpy.finish: 1 thread had not ended after 0.05 seconds\n", text)
  end)

  it("tells of exit functions that it cannot run", function()
    local text = process.runs(prelude .. [[py.exec "import sys; sys.modules['atexit'] = None"]])
    assert.matches("ModuleNotFoundError: import of atexit halted", text)
    text = process.runs(prelude .. [[py.exec "import atexit; atexit._run_exitfuncs = None"]])
    assert.matches("Exception ignored in: <module 'atexit' %(built%-in%)>\n.*TypeError", text)
  end)

  it("tells of what Python's output could not be written, as python3 does", function()
    local function said(code)
      return (select(2, process.run(prelude .. code, "PYTHONUNBUFFERED=", "luajit", ">/dev/full")))
    end
    local lost = said [[py.exec "print(1)"]]
    assert.matches("<_io.TextIOWrapper name='<stdout>'.*\nOSError: %[Errno 28%] No space left", lost)
    for _, code in ipairs {
      "sys.stdout.close()", "del sys.stdout", "sys.stdout = None",
      "sys.stderr.close()", "del sys.stderr", "sys.stderr = None",
      "class Shut: closed = True\nsys.stdout = Shut()", "class Plain: flush = bytes\nsys.stdout = Plain()",
      "class Words: write = print\nsys.stderr = Words()",
    } do
      assert.are.equal("", said(("py.exec %q"):format("import sys\n" .. code)))
    end
  end)

  it("drops all that it has asked for", function()
    local text = process.runs(prelude .. [[
py.exec [=[
import os, sys
class Loud:
    def __init__(self, name): self.name = name
    def __del__(self): os.write(1, self.name)
    def __bool__(self): return False
    closed = property(lambda self: Loud(b"whether it is closed\n"))
    def flush(self):
        sys.stdout = None
        return Loud(b"what writing it gave\n")
    def _run_exitfuncs(self):
        del sys.modules["atexit"]
        return Loud(b"what exit functions gave\n")
sys.stdout, sys.modules["atexit"] = Loud(b"the file\n"), Loud(b"their module\n")
]=] ]])
    local exit = "what exit functions gave\ntheir module\n"
    assert.are.equal(exit .. "whether it is closed\nwhat writing it gave\nthe file\n", text)
  end)

  it("gives back what Lua has dropped, before exit functions run and after them", function()
    local text = process.runs [[
local py = require "moonferry.python"
py.exec "import atexit\nclass Loud:\n    def __del__(self): print(self.name, flush=True)"
local first, second = py.main.Loud(), py.main.Loud()
first.name, second.name = "first", "second"
py.main.atexit.register(function()
  io.stdout:write "exit\n"
  io.stdout:flush()
  second = nil
  collectgarbage() collectgarbage()
end)
py.main.atexit.register(py.builtins.print, "Python's", py.kw { flush = true }) -- which is called before that
first = nil
collectgarbage() collectgarbage()
os.exit(0)
]]
    assert.are.equal("first\nPython's\nexit\nsecond\n", text)
  end)

  it("leaves Python to whoever started it", function()
    local status, text = process.shell(("%s -c %s"):format(os.getenv "MOONFERRY_PYTHON", [["
import moonferry
print(moonferry.Lua().execute('''
local py = require \"moonferry.python\"
py.import \"os\"
return tostring(select(2, pcall(py.finish)))
'''))"]]))
    assert.matches("was not started by Lua in this process", text)
    assert.are.equal(0, status)
  end)
end)

describe("a library that Python loads", function()
  local count = [==[
local py = require "moonferry.python"
py.exec [[
import ctypes, os
def threads():
    ctypes.CDLL(None)
    return len(os.listdir("/proc/self/task"))
%s
]]
]==]
  local counts = count:format "print({threads() for _ in range(20)}, flush=True)"

  it("costs one thread of ours, however many there are, where main does not tell of its end", function()
    assert.are.equal("{3}\n", process.runs("thread [=[" .. counts .. "]=] join()", "", engine))
  end)

  it("leaves signals to the program's threads", function()
    local text = process.runs([==[
local ffi = require "ffi"
ffi.cdef "int sigaddset(void *, int); int pthread_sigmask(int, const void *, void *);"
thread [=[
local py = require "moonferry.python"
py.main.await_main = function() set "loaded" await "blocked" end
py.exec [[
import ctypes, os, signal
ctypes.CDLL(None)
print(signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]))
await_main()
os.kill(os.getpid(), signal.SIGUSR1)
print(signal.sigwait([signal.SIGUSR1]) == signal.SIGUSR1, flush=True)
]]
]=]
await "loaded"
local SIG_BLOCK, SIGUSR1, only = 0, 10, ffi.new "long[16]"
ffi.C.sigaddset(only, SIGUSR1)
ffi.C.pthread_sigmask(SIG_BLOCK, only, nil)
set "blocked"
join()
]==], "", engine)
    assert.are.equal("set()\nTrue\n", text)
  end)

  -- An exit function is registered each time that our thread wakes, and each takes memory for good.
  it("costs little, however long nothing is heard from Python then", function()
    local text = process.runs([==[
thread [=[
require("moonferry.python").exec [[
import ctypes, os, re, sys, threading, time
task, = set(os.listdir("/proc/self/task")) - {str(os.getpid()), str(threading.get_native_id())}
status = os.open(f"/proc/self/task/{task}/status", os.O_RDONLY)
def waits(find=re.compile(rb"\nvoluntary_ctxt_switches:\s*(\d+)").search, read=os.pread):
    return int(find(read(status, 8192, 0))[1])
now, before = time.monotonic, waits()
end = now() + 1
ctypes.CDLL(None)
while now() < end or waits() == before:
    pass
print(waits() - before < 150, flush=True)
ctypes.CDLL(None)
sys.audit("the library is there")
before, end = waits(), now() + 0.2
while now() < end:
    sys.audit("another event")
print(waits() - before < 5, flush=True)
]]
]=]
join()
]==], "", engine)
    assert.are.equal("True\nTrue\n", text)
  end)

  it("costs none where main tells of its end", function()
    assert.are.equal("{1}\n", process.runs(counts))
    assert.are.equal("{2}\n", process.runs("thread [=[" .. counts .. "]=] join()", "", engine .. "_linked"))
    assert.are.equal("{1}\n", process.runs("thread [[ require 'moonferry' ]] join()" .. counts, "", engine))
  end)

  it("costs none in a child that main has forked", function()
    local text = process.runs(count:format [[
pid = os.fork()
if pid == 0:
    print(threads(), flush=True)
    os._exit(0)
os.waitpid(pid, 0)]])
    assert.are.equal("1\n", text)
  end)

  it("costs one in a child that another thread has forked, also where main has forked before", function()
    local text = process.runs(count:format [[
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # since 3.12 of each fork beside threads
def fork():
    pid = os.fork()
    if pid == 0:
        print(threads(), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)]] .. [==[
py.main.fork()
thread "require('moonferry.python').main.fork()"
join()
]==], "", engine)
    assert.are.equal("1\n2\n", text)
  end)
end)

describe("Python's end", function()
  -- puts stands for the destructor of an object that is thread_local in C++.
  it("comes before that of what its modules have made on the main thread", function()
    for _, last in ipairs { "", "os.exit(0)", "py.import 'wave' ffi.C.exit(0)" } do
      local text = process.runs([[
local ffi = require "ffi"
ffi.cdef "void exit(int);"
io.stdout:setvbuf "no"
local py = require "moonferry.python"
py.exec "import atexit, ctypes; atexit.register(print, 'Python ended', flush=True)"
py.exec "libc, text = ctypes.CDLL(None), ctypes.create_string_buffer(b'an object ended')"
py.exec "libc.__cxa_thread_atexit_impl(libc.puts, text, None)"
]] .. last)
      assert.are.equal("Python ended\nan object ended\n", text)
    end
  end)

  it("has begun for scopes when the door is closed", function()
    local path = os.tmpname()
    os.remove(path)
    local text = process.runs(([==[
thread [=[
local mf, py = require "moonferry", require "moonferry.python"
py.start()
set "ready"
while pcall(py.eval, "1") do end
print(pcall(mf.scope, function() return mf.zeros(3).size end))
io.stdout:flush()
io.open("%s", "w"):close()
]=]
await "ready"
local py = require "moonferry.python"
py.exec [[
import os, threading, time
def work():
    while not os.path.exists("%s"):
        time.sleep(0.001)
threading.Thread(target=work).start()
]]
print(py.finish { wait = 60 })
join()
]==]):format(path, path), "", engine)
    os.remove(path)
    assert.are.equal("true\t3\ntrue\n", text)
  end)
end)

describe("mf_guest_collect", function()
  it("gives back what Lua has dropped", function()
    local text = process.runs(prelude .. [[
py.exec "class Loud:\n    def __del__(self): print('gone', flush=True)"
local loud = py.main.Loud()
loud = nil
collectgarbage() collectgarbage()
print(require("moonferry.lib").mf_guest_collect(nil))
io.stdout:flush()
]])
    assert.are.equal("gone\n0\n", text)
  end)
end)

describe("a hosted Python", function()
  it("goes on after the Lua state that brought it, which closes the libraries that it has loaded", function()
    local text = process.runs([==[
thread [[
require("moonferry.python").start()
]]
join()
thread [[
local py = require "moonferry.python"
py.exec "import colorsys"
print(py.eval "colorsys.rgb_to_hls(0, 0, 0)")
]]
join()
print(require("moonferry.python").eval "1 + 1")
]==], "", engine)
    assert.are.equal("(0.0, 0.0, 0.0)\n2\n", text)
  end)
end)
