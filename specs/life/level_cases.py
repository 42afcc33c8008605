"""Endings of a level of an engine (engine.c), a Lua state that its thread closes while Python goes on; as in cases.py.

A thread of Python's may be in a function of the level then, may fork or leave the process there, and Lua finalizes what
that function still uses."""

from cases import RESTS, Case

# One object of each kind that Lua finalizes, and so many tensors that some are finalized before whatever else is.
USES = """
local mf, ffi = require "moonferry", require "ffi"
local tensors, objects, files = {}, {}, {}
local function make()
  for i = 1, 32 do
    tensors[#tensors + 1] = mf.full({ 1000 }, i, "float64")
    objects[#objects + 1] = py.list { i }
    files[#files + 1] = io.tmpfile()
  end
end
local function used()
  local sum = 0
  for i, t in ipairs(tensors) do
    files[i]:write(t:get(999))
    sum = sum + t:get(999) + objects[i][0] + files[i]:seek("end")
    t:close()
  end
  return sum
end
make()
"""

# Python's: a thread that is in the level's function f waits there; what follows is still in wait().
WAIT = (
    RESTS
    + """
inside = threading.Event()
def wait():
    inside.set()
    rests()  # until the end of the level, or lua_close, waits for this thread
"""
)
WORK = """
def work():
    print("the function", int(f(wait)), flush=True)
thread = threading.Thread(target=work)
thread.start()
inside.wait()
"""

CASES = [
    Case(
        "a level has ended, and Python calls its function",
        "engine",
        """
local py = require "moonferry.python"
state [==[
require("moonferry.python").main.f = function(x) return x + 1 end
]==]
py.exec [[
for _ in range(2):
    try:
        f(1)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
]]
""",
        "RuntimeError this Lua state was closed\n" * 2,
    ),
    Case(
        "a level ends while its Lua has views of the engine's memory",
        "engine",
        """
local mf, ffi = require "moonferry", require "ffi"
local levels = {
  "x = np.from_dlpack(t)",
  "x = np.from_dlpack(t) x:sum() y = x:reshape(64) f = function() return x end py.main.f = f",
  "py.exec 'def g(t):\\\\n  x = numpy.from_dlpack(t)\\\\n  raise ValueError' ok, e = pcall(py.main.g, t)",
  "turn = coroutine.wrap(function() py.scope(function() x = np.from_dlpack(t) coroutine.yield() end) end) turn()",
}
for _, level in ipairs(levels) do
  local memory = ffi.new "float[64]"
  local t = mf.wrap(memory, { 8, 8 }, "float32")
  state(([[
local ffi, mf, C = require "ffi", require "moonferry", require "moonferry.lib"
py = require "moonferry.python"
np = py.import "numpy"
py.main.numpy = np
t = mf.from_handle(C.mf_tensor_retain(ffi.cast("mf_tensor *", %.0f)))
]]):format(tonumber(ffi.cast("intptr_t", t.handle))) .. level)
  print(t:invalidate())
  t:close()
end
print "done"
""",
        "false\n" * 4 + "done\n",
    ),
    Case(
        "a level ends while a thread of Python is inside of its function",
        "engine",
        """
local level = [==[
local py = require "moonferry.python"
"""
        + USES
        + """
py.main.f = function(wait)
  make()
  wait()
  return used()
end
py.exec [[
"""
        + WAIT
        + """
closed = threading.Event()
def work():
    print("the function", int(f(wait)), flush=True)
    closed.wait()
thread = threading.Thread(target=work)
thread.start()
inside.wait()
]]
]==]
local py = require "moonferry.python"
for _ = 1, 2 do
  state(level)
  py.main.closed:set()
  py.main.thread:join()
end
py.import("gc").collect()
print(py.eval "sum(getattr(o, '__name__', '') == 'is_waited_for' for o in __import__('gc').get_objects())")
local left = require("moonferry").ledger()
print(left.tensors, left.storages, left.bytes)
print "done"
""",
        "the function 2222\n" * 2 + "0\n0\t0\t0\ndone\n",
    ),
    *(
        Case(
            "a level ends while a thread of Python is inside of its function, for longer than one look takes",
            host,
            """
state [==[
local py = require "moonferry.python"
py.main.f = function(wait) return wait() + 1 end
py.exec [[
import threading
inside, leaves = threading.Event(), threading.Event()
class Seen(threading.Thread):
    looks = 0
    @property
    def daemon(self):
        self.looks += inside.is_set()
        if self.looks == 3:
            leaves.set()
        return False
def wait():
    inside.set()
    leaves.wait()
    return 4
def work():
    print("the function", int(f(wait)), flush=True)
thread = Seen(target=work)
thread.start()
inside.wait()
]]
]==]
local py = require "moonferry.python"
if not py.main.leaves:is_set() then
  print "nobody waited"
  io.stdout:flush()
  py.import("os")._exit(1)
end
print "done"
""",
            "the function 5\ndone\n",
        )
        for host in ("engine", "linked engine")
    ),
    *(
        Case(
            "a level ends while a thread that nobody can ask about is inside of its function",
            host,
            """
local py = require "moonferry.python"
local sum, list = py.builtins.sum, py.list { 1, 1 }
state [==[
local py = require "moonferry.python"
py.main.f = function(wait) wait() print "it is back" end
py.exec [[
import sys, threading
sys.unraisablehook = lambda told: print("told", told.exc_value, flush=True)
inside, leaves = threading.Event(), threading.Event()
class Apart(threading.Thread):
    @property
    def daemon(self):
        if inside.is_set():
            raise RuntimeError("this thread is not for others to wait for")
        return False
def wait():
    inside.set()
    leaves.wait()
thread = Apart(target=f, args=(wait,))
thread.start()
inside.wait()
]]
]==]
print(pcall(sum, list)) -- which looks for an exception at the end of the list
py.main.leaves:set()
io.stdout:flush()
py.import("os")._exit(0)
""",
            "told this thread is not for others to wait for\ntrue\t2\n",
        )
        for host in ("engine", "linked engine")
    ),
    Case(
        "mf_lua_close ends a level while a thread of Python uses objects with finalizers of the level's own",
        "linked engine",
        """
state [==[
local py, ffi = require "moonferry.python", require "ffi"
local objects = {}
for i = 1, 64 do
  objects[i] = ffi.gc(ffi.new("double[1]", i), function(object) object[0] = -1000 end)
end
py.main.f = function(wait)
  wait()
  local sum = 0
  for _, object in ipairs(objects) do sum = sum + object[0] end
  return sum
end
py.exec [[
"""
        + WAIT
        + WORK
        + """
]]
]==]
require("moonferry.python").main.thread:join()
print "done"
""",
        "the function 2080\ndone\n",
    ),
    Case(
        "a level ends while a daemon thread of Python runs its function",
        "engine",
        """
state [==[
local py = require "moonferry.python"
py.main.f = function(wait, descriptor)
  local pipe = io.open("/proc/self/fd/" .. descriptor, "w")
  wait()
  pipe:write("x")
  pipe:close()
  local length = 0
  for i = 1, 3e6 do length = length + #tostring(i) end
  return length
end
py.exec [[
"""
        + WAIT
        + """
reader, writer = os.pipe()
def work():
    print("the function", int(f(wait, writer)), flush=True)
thread = threading.Thread(target=work, daemon=True)
thread.start()
inside.wait()
threading.Thread(target=os.read, args=(reader, 1)).start()
]]
]==]
require("moonferry.python").main.thread:join()
thread [[
require("moonferry.python").op.add(1, 1)
set "called"
]]
await "called"
print "done"
""",
        "the function 19888896\ndone\n",
    ),
    Case(
        "a level ends while daemon threads of Python are inside of its function, and come to it",
        "engine",
        """
state [==[
local py = require "moonferry.python"
py.main.f = function(wait)
  wait()
  print "a daemon thread is back in the level"
end
py.main.g = function() print "a daemon thread has come into the level" end
py.exec [[
"""
        + RESTS
        + """
inside, ends, leaves = threading.Event(), threading.Event(), threading.Event()
nested = []
def call_g():
    try:
        g()
    except RuntimeError as error:
        print(error, flush=True)
def wait():
    inside.set()
    ends.wait()
    call_g()
    leaves.set()
def end_of_level():
    ends.set()
    leaves.wait()
    rests(thread.native_id)
    other = threading.Thread(target=call_g)
    other.start()
    other.join()
thread = threading.Thread(target=f, args=(wait,), daemon=True)
thread.start()
inside.wait()
]]
getmetatable(newproxy(true)).__gc = function() py.main.end_of_level() end
]==]
print "done"
""",
        "this Lua state was closed\n" * 2 + "done\n",
    ),
    *(
        Case(
            "a level ends while threads of Python are inside of its function, and come to it",
            host,
            """
state [==[
local py = require "moonferry.python"
"""
            + USES
            + """
py.main.f = function(wait)
  wait()
  return used()
end
py.main.g = used
py.main.h = function(x) return x + 1 end
py.exec [[
def call_g():
    try:
        print("the other function", g(), flush=True)
    except RuntimeError as error:
        print(error, flush=True)
"""
            + WAIT
            + """
    print("the thread itself goes on", h(1), flush=True)
    other = threading.Thread(target=call_g)
    other.start()
    other.join()
"""
            + WORK
            + """
]]
]==]
require("moonferry.python").main.thread:join()
print "done"
""",
            "the thread itself goes on 2\nthis Lua state was closed\nthe function 1111\ndone\n",
        )
        for host in ("engine", "linked engine")
    ),
    *(
        Case(
            "Ctrl-C while lua_close waits for a thread of Python",
            host,
            """
local py = require "moonferry.python"
py.main.f = function(wait) wait() end
py.exec [[
import signal
"""
            + WAIT
            + """
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait()
threading.Thread(target=f, args=(wait,)).start()
inside.wait()
]]
io.write "done\\n" io.flush()
""",
            "done\n",
            -2,
        )
        for host in ("lua", "linked engine")
    ),
    *(
        Case(
            "a fork while lua_close waits for a thread of Python",
            host,
            """
local py = require "moonferry.python"
py.main.f = function(wait) return wait() + 1 end
py.main.g = function(x) return x + 1 end
py.exec [[
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # since 3.12 of each fork beside threads
"""
            + WAIT
            + """
    child = os.fork()
    if child == 0:
        os._exit(g(5))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
def work():
    print("the child ended with", f(wait) - 1, flush=True)
threading.Thread(target=work).start()
inside.wait()
]]
""",
            "the child ended with 6\n",
        )
        for host in ("lua", "linked engine")
    ),
    Case(
        "a thread of Python forks, and ends in the child",
        "lua",
        """
py.main.f = function(fork) return fork() end
py.exec [[
import os, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # since 3.12 of each fork beside threads
def fork():
    child = os.fork()
    if child == 0:
        return "the thread goes on in the child"
    return "the child ended with %d" % os.waitpid(child, 0)[1]
def work():
    print(f(fork), flush=True)
thread = threading.Thread(target=work)
thread.start()
thread.join()
]]
""",
        "the thread goes on in the child\nthe child ended with 0\n",
    ),
    Case(
        "a thread forks by Python's os.fork, and the child calls Python again",
        "engine",
        """
state "require('moonferry.python').op.add(1, 1)"
thread [[
local py = require "moonferry.python"
py.import("warnings").simplefilter("ignore") -- since 3.12 of each fork beside threads
local os_ = py.import "os"
local child = os_.fork()
if child == 0 then
  local sum = py.op.add(1, 2)
  os_._exit(py.op.add(sum, 4))
end
print(os_.waitstatus_to_exitcode(os_.waitpid(child, 0)[1])) io.flush()
]]
join()
""",
        "7\n",
    ),
    *(
        Case(
            "exit from another thread while a level's end waits for a thread of Python",
            host,
            """
thread [==[
await "rests"
leave(3)
]==]
state [==[
local py = require "moonferry.python"
py.main.f = function(wait) wait() end
py.main.set = set
py.exec [[
"""
            + WAIT
            + """
    print("leaves", flush=True)
    set("rests")
    leaves.wait()
leaves = threading.Event()
threading._register_atexit(leaves.set)  # before Python waits for its threads
threading.Thread(target=f, args=(wait,)).start()
inside.wait()
]]
]==]
await "never"
""",
            "leaves\n",
            3,
        )
        for host in ("engine", "linked engine")
    ),
]
