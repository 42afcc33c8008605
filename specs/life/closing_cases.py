"""Endings of one of the languages that the other one notices; as in cases.py."""

from cases import RESTS, Case
from level_cases import WAIT, WORK

# Finalizers of a level, one made by the other, which use what Lua has finalized by then.
FINALIZERS = """
local mf = require "moonferry"
local function use_at_end(i, times)
  local t, r = mf.full({ 1000 }, i, "float64"), mf.ring({ 4 }, "float32", 2)
  getmetatable(newproxy(true)).__gc = function()
    local v, slot = t:view({ 1, 3 }):copy(), r:begin(0)
    r:publish()
    sum, count = (sum or 0) + t:get(999) + v:get(1) + slot.size, (count or 0) + 1
    if count %% 10 == 0 then print(sum) io.flush() end
    if times > 0 then use_at_end(i, times - 1) end
    if i %% 2 == 0 then t:close() end
    if i %% 3 == 0 then r:close() end
    kept = t
  end
end
for i = 1, 10 do use_at_end(i, %d) end
"""
PYTHON_ERRORS = """
local ffi = require "ffi"
ffi.cdef [[
int PyGILState_Ensure(void); void PyGILState_Release(int);
void *PyEval_SaveThread(void); void PyEval_RestoreThread(void *);
void PyErr_SetString(void *, const char *); int PyErr_ExceptionMatches(void *); void PyErr_Clear(void);
void *PyExc_KeyError;
]]
"""
# Objects of the program's own, whose finalizers close tensors and rings: LuaJIT calls these in any order.
CLOSERS = """
local mf, ffi = require "moonferry", require "ffi"
closers, left = {}, 200
for i = 1, left do
  local t, r = mf.full({ 1000 }, i, "float64"), mf.ring({ 4 }, "float32", 2)
  closers[i] = ffi.gc(ffi.new "char[1]", function()
    t:close()
    r:close()
    left = left - 1
    if left == 0 then print "closed" io.flush() end
  end)
end
"""
# A thread of Python's comes into Lua while the process ends there, and sees whether its hooks run.
LEAVING = """
local py = require "moonferry.python"
py.exec [[
import threading
go = threading.Event()
def call():
    go.wait()
    print("hooks", has_hooks(), flush=True)
threading.Thread(target=call).start()
]]
function py.main.has_hooks()
  local hits = 0
  debug.sethook(function() hits = hits + 1 end, "", 1)
  local x = 1
  x = x + 1
  debug.sethook()
  return hits > 2
end
local function leave()
  py.main.go:set()
  os.exit(3)
end
"""
LEFT = """
local left = require("moonferry").ledger()
print(left.tensors, left.storages, left.bytes)
"""

CASES = [
    Case(
        "finalizers of Lua's use tensors when its state ends",
        "engine",
        f"state [==[{FINALIZERS % 0}]==]{LEFT}",
        "150\n0\t0\t0\n",
    ),
    Case(
        "finalizers of Lua's that make others use tensors when its state ends",
        "engine",
        f"state [==[{FINALIZERS % 3}]==]{LEFT}",
        "150\n300\n450\n600\n0\t0\t0\n",
    ),
    Case(
        "finalizers of Lua's use tensors when its state ends, beside Python",
        "engine",
        f"state [==[require('moonferry.python').op.add(1, 1) {FINALIZERS % 1}]==]{LEFT}",
        "150\n300\n0\t0\t0\n",
    ),
    *(
        Case(
            f"finalizers of {whose} when Python closes its state",
            "python",
            f"""
lua = mf.Lua()
lua.execute('''{program}''')
lua.close()
print(mf.ledger().tensors, mf.ledger().storages, mf.ledger().bytes)
""",
            f"{printed}\n0 0 0\n",
        )
        for whose, program, printed in (
            ("Lua's use tensors", FINALIZERS % 1, "150\n300"),
            ("a program's FFI objects close tensors", CLOSERS, "closed"),
        )
    ),
    *(
        Case(
            f"finalizers of a program's FFI objects close tensors when {who} ends its state{beside}",
            host,
            f"{before}{uses_python}{CLOSERS}{after}",
            f"closed\n{left}",
        )
        for beside, uses_python in (("", ""), (", beside Python", "require('moonferry.python').op.add(1, 1) "))
        for who, host, before, after, left in (
            ("mf_lua_close", "linked engine", "state [==[", f"]==]{LEFT}", "0\t0\t0\n"),
            ("os.exit", "engine", "", "os.exit(0, true)", ""),
        )
    ),
    Case(
        "a daemon thread calls a Lua function after py.finish",
        "lua",
        """
py.main.f = function() return 1 end
py.exec [[
import os, threading
reader, writer = os.pipe()
answers, answer = os.pipe()
def work():
    os.read(reader, 1)
    try:
        f()
    except RuntimeError as error:
        os.write(answer, f"{error}\\n".encode())
threading.Thread(target=work, daemon=True).start()
]]
local function open(name, mode) return assert(io.open(("/proc/self/fd/%d"):format(py.main[name]), mode)) end
local tell, answers = open("writer", "w"), open("answers", "r")
assert(py.finish { wait = 60 })
tell:write "x"
tell:close()
print(answers:read())
print "done"
""",
        "Python has ended in this process\ndone\n",
    ),
    Case(
        "Lua finalizes Python by a function of C's",
        "lua",
        """
local ffi = require "ffi"
local add = py.op.add
ffi.cdef "int PyGILState_Ensure(void); int Py_FinalizeEx(void);"
ffi.C.PyGILState_Ensure()
print(ffi.C.Py_FinalizeEx())
print(pcall(add, 1, 1))
print "done"
""",
        "0\nfalse\tPython is not running (any more)\ndone\n",
    ),
    Case(
        "an engine has Lua collect where no Lua runs",
        "engine",
        f"""
state [==[
local mf, py = require "moonferry", require "moonferry.python"
py.op.add(1, 1)
local function make(count)
  for _ = 1, count do mf.zeros({{ 10 }}, "float32") end
end
make(10)
function collected(times)
  print(times, mf.ledger().tensors)
  io.flush()
  make(5)
end
]==]{LEFT}
""",
        "1\t10\n2\t5\n0\t0\t0\n",
    ),
    Case(
        "levels end one after the other beside a Python that goes on",
        "engine",
        """
for _ = 1, 3 do
  state [[require("moonferry.python").eval "1"]]
end
local py = require "moonferry.python"
py.import("gc").collect()
print(py.eval "sum(type(o).__name__ == 'State' for o in __import__('gc').get_objects())", "state is left")
""",
        "1\tstate is left\n",
    ),
    Case(
        "os.exit with closing the state inside a Lua function that Python calls",
        "lua",
        """
py.exec [[
import atexit
class Held:
    def __del__(self):
        print("given back", flush=True)
atexit.register(print, "bye", flush=True)
held = Held()
]]
held = py.main.held
py.exec "del held"
print "done"
io.stdout:flush()
py.builtins.map(function() os.exit(4, true) end, {1}):__next__()
""",
        "done\ngiven back\nbye\n",
        status=4,
    ),
    Case(
        "os.exit leaves behind a daemon of Python's that runs Lua by then",
        "lua",
        """
py.main.f = function() py.main.inside.set() while true do end end
py.exec [[
import atexit, threading
inside, leaving = threading.Event(), threading.Event()
def comes():
    leaving.wait()
    f()
threading.Thread(target=comes, daemon=True).start()
def awaits():
    leaving.set()
    inside.wait()
    print("done", flush=True)
atexit.register(awaits)
]]
os.exit(0)
""",
        "done\n",
    ),
    Case(
        "os.exit waits for a thread of Python's, which waits for the Lua of another thread",
        "engine",
        """
local py = require "moonferry.python"
py.main.set = function() set "comes" end
py.exec [=["""
        + RESTS
        + """
leaving = threading.Event()
def comes():
    leaving.wait()
    rests()  # until the end of the main thread waits for this one
    set()
    f()
thread = threading.Thread(target=comes)
]=]
thread [=[
local py = require "moonferry.python"
local busy = true
py.main.f = function() print(busy and "two at once" or "done") end
py.main.thread.start()
set "leaves"
await "comes"
local t = os.clock()
while os.clock() - t < 0.2 do end
busy = false
pcall(function() py.main.thread.join() end) -- Python may have ended by then
]=]
await "leaves"
py.main.leaving.set()
os.exit(0)
""",
        "done\n",
    ),
    Case(
        "os.exit with closing the state inside a Lua function that a thread of Python's calls",
        "lua",
        """
local function leave() os.exit(4, true) end
py.exec "import threading"
print "done"
io.stdout:flush()
local thread = py.eval "threading.Thread"(py.kw { target = leave })
thread:start()
thread:join()
""",
        status=4,
    ),
    Case(
        "finalizers of both languages run while os.exit closes the state inside a Lua function that Python calls",
        "lua",
        """
py.exec [[
import gc
class Held:
    def __del__(self):
        gc.collect()
        print("Python", flush=True)
held = Held()
]]
held = py.main.held
py.exec "del held"
getmetatable(newproxy(true)).__gc = function() py.builtins.print("Lua", py.kw { flush = true }) end
py.builtins.map(function() os.exit(4, true) end, {1}):__next__()
""",
        "Lua\nPython\n",
        status=4,
    ),
    Case(
        "a debug hook of Lua's ends the process while a thread of Python calls Lua",
        "lua",
        LEAVING + 'debug.sethook(function() debug.sethook() leave() end, "", 1)',
        "hooks True\n",
        3,
    ),
    Case(
        "a finalizer of Lua's ends the process while a thread of Python calls Lua",
        "lua",
        LEAVING + "getmetatable(newproxy(true)).__gc = leave collectgarbage()",
        "hooks True\n",
        3,
    ),
    Case(
        "a signal comes while main waits for a state, after the wall clock was set back",
        "python",
        """
import ctypes, signal
lua, flags = mf.Lua(interruptible=True), (ctypes.c_int * 2)()
code = "local p = require('ffi').cast('volatile int *', ...) p[0] = 1 while p[1] == 0 do end"
thread = threading.Thread(target=lambda: lua.execute(code, ctypes.addressof(flags)))
thread.start()
while not flags[0]:
    pass
def leave(signal, frame):
    raise RuntimeError("left")
signal.signal(signal.SIGALRM, leave)
try:
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    lua.eval("1")
except RuntimeError as error:
    print(error)
flags[1] = 1
thread.join()
print("done")
""",
        "left\ndone\n",
        preload="life_clock.so",
    ),
    *(
        Case(
            "a signal's exception while lua_close waits for a thread of Python",
            host,
            """
local py = require "moonferry.python"
py.main.f = function(wait) wait() end
py.exec [[
import signal, sys
def enough(number, frame):
    raise TimeoutError("enough")
signal.signal(signal.SIGALRM, enough)
sys.unraisablehook = lambda told: print("told", repr(told.exc_value), flush=True)
"""
            + WAIT
            + """
    os.kill(os.getpid(), signal.SIGALRM)
    python_ends.wait()
    rests()  # until the end of Python waits for this thread, which cannot come back to Lua
    print("the thread has ended", flush=True)
    os._exit(0)
python_ends = threading.Event()
threading._register_atexit(python_ends.set)  # which comes before any thread is waited for
threading.Thread(target=f, args=(wait,)).start()
inside.wait()
]]
io.write "done\\n" io.flush()
""",
            "done\ntold TimeoutError('enough')\nthe thread has ended\n",
        )
        for host in ("lua", "linked engine")
    ),
    *(
        Case(
            "lua_close waits for a thread of Python while an exception is pending",
            host,
            PYTHON_ERRORS
            + """
local py = require "moonferry.python"
py.main.close_level = function()
  state [==["""
            + PYTHON_ERRORS
            + """
local py = require "moonferry.python"
py.main.f = function(wait) wait() return 1 end
py.exec [[
"""
            + WAIT
            + WORK
            + """
]]
local gil = ffi.C.PyGILState_Ensure()
ffi.C.PyErr_SetString(ffi.C.PyExc_KeyError, "pending")
ffi.C.PyGILState_Release(gil)
]==]
  local gil = ffi.C.PyGILState_Ensure()
  print("still pending", ffi.C.PyErr_ExceptionMatches(ffi.C.PyExc_KeyError))
  ffi.C.PyErr_Clear()
  ffi.C.PyGILState_Release(gil)
end
py.exec "close_level()"
""",
            "the function 1\nstill pending\t1\n",
        )
        for host in ("engine", "linked engine")
    ),
    *(
        Case(
            "os.exit while an exception is pending",
            host,
            PYTHON_ERRORS
            + """
local py = require "moonferry.python"
py.main.leave = function()
  local gil = ffi.C.PyGILState_Ensure()
  ffi.C.PyErr_SetString(ffi.C.PyExc_KeyError, "pending")
  ffi.C.PyGILState_Release(gil)
  os.exit(3)
end
py.exec [[
import atexit
"""
            + RESTS
            + """
def work():
    rests()  # until the end of the process waits for this thread
    print("a thread", flush=True)
threading.Thread(target=work).start()
atexit.register(print, "an exit function", flush=True)
leave()
]]
""",
            "a thread\nan exit function\n",
            3,
        )
        for host in ("lua", "linked engine")
    ),
    Case(
        "py.finish while an exception is pending",
        "lua",
        PYTHON_ERRORS
        + """
py.exec "pass"
local gil = ffi.C.PyGILState_Ensure()
ffi.C.PyErr_SetString(ffi.C.PyExc_KeyError, "pending")
local thread = ffi.C.PyEval_SaveThread()
print(py.finish { wait = 60 })
ffi.C.PyEval_RestoreThread(thread)
print("still pending", ffi.C.PyErr_ExceptionMatches(ffi.C.PyExc_KeyError))
ffi.C.PyErr_Clear()
ffi.C.PyGILState_Release(gil)
""",
        "true\nstill pending\t1\n",
    ),
]
