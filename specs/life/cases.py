"""The ways in which a process that has both languages can end, and what must be seen each time.

Each case is a whole program, of the language that hosts; docs/life.md has the same table for readers, and a spec
compares the two. What a program prints is all that it may print, on both outputs together.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """One ending. `host` is the language that the process began with, or the program: engine.c, which has Lua states on
    several threads, and is linked with libmoonferry where it says so."""

    name: str
    host: str
    program: str
    says: str = "done\n"
    status: int = 0
    preload: str = ""  # a library of specs/life


LUA = """
local mf = require "moonferry"
local py = require "moonferry.python"
"""

PYTHON = """
import atexit, gc, os, sys, threading, warnings
import moonferry as mf
"""

RESTS = """
import os, threading, time
def rests(task=os.getpid()):
    times = 0
    while times < 10:  # until that thread has slept for a while
        time.sleep(0.001)
        state = open(f"/proc/self/task/{task}/stat").read().rpartition(")")[2].split()[0]
        times = times + 1 if state == "S" else 0
"""

CASES = [
    # LuaJIT hosts Python.
    Case("lua_close with Python objects alive", "lua", 'held = py.list { py.dict { a = 1 } } print "done"'),
    Case(
        "lua_close with a Lua function and a Lua table alive in Python",
        "lua",
        """
py.main.f = function(x) return x end
py.main.t = py.object({1, 2})
print "done"
""",
    ),
    Case(
        "os.exit without closing the state",
        "lua",
        'held = py.import "json" py.exec "import atexit; atexit.register(print, \'bye\', flush=True)" print "done" '
        "io.stdout:flush() os.exit(0)",
        "done\nbye\n",
    ),
    Case(
        "os.exit with closing the state",
        "lua",
        'held = py.import "json" py.exec "import atexit; atexit.register(print, \'bye\', flush=True)" print "done" '
        "io.stdout:flush() os.exit(0, true)",
        "done\nbye\n",
    ),
    Case("os.exit with a status", "lua", 'held = py.import "json" print "done" os.exit(3)', status=3),
    Case(
        "os.exit inside a Lua function that Python calls",
        "lua",
        'print "done" io.stdout:flush() py.builtins.map(function() os.exit(4) end, {1}):__next__()',
        status=4,
    ),
    Case("os._exit from Lua", "lua", 'print "done" io.stdout:flush() py.import("os")._exit(5)', status=5),
    Case(
        "sys.exit from Lua is an error that Lua can catch",
        "lua",
        'local ok, why = pcall(py.import("sys").exit, 3) print(ok, (tostring(why):match "SystemExit")) print "done"',
        "false\tSystemExit\ndone\n",
    ),
    Case(
        "a daemon thread of Python runs on",
        "lua",
        """
py.exec [[
import threading, time
def spin():
    while True:
        sum(range(1000))
threading.Thread(target=spin, daemon=True).start()
]]
print "done"
""",
    ),
    Case(
        "a daemon thread of Python that calls a Lua function runs on",
        "lua",
        """
py.main.f = function(x) return x + 1 end
py.exec [[
import threading, time
started = threading.Event()
def spin():
    while True:
        try:
            f(1)
        except Exception:
            time.sleep(0.001)
        started.set()
threading.Thread(target=spin, daemon=True).start()
]]
py.main.started:wait()
print "done"
""",
    ),
    Case(
        "a thread that comes back into a Lua that was closed stays outside, without the GIL",
        "lua",
        """
py.main.f = function(wait) wait() end
py.exec [[
import atexit, threading, time
inside, go = threading.Event(), threading.Event()
def wait():
    inside.set()
    go.wait()
@atexit.register
def at_exit():
    go.set()
    for _ in range(20):
        time.sleep(0.001)
    print("the exit function ended", flush=True)
threading.Thread(target=f, args=(wait,), daemon=True).start()
inside.wait()
]]
print "done" io.stdout:flush()
""",
        "done\nthe exit function ended\n",
    ),
    Case(
        "a thread of Python that is no daemon is waited for",
        "lua",
        """
py.exec [[
import threading, time
def work():
    while threading.main_thread().is_alive():  # until Python's end has begun
        time.sleep(0.001)
    print("the thread ended", flush=True)
threading.Thread(target=work).start()
]]
print "done" io.stdout:flush()
""",
        "done\nthe thread ended\n",
    ),
    Case(
        "a thread of Python that is no daemon is inside of a Lua function",
        "lua",
        """
local inside = 0
py.main.f = function(wait)
  inside = 1
  wait()
  local t = {}
  for i = 1, 1000 do t[i] = { tostring(i) } end
  return #t
end
py.exec [[
"""
        + RESTS
        + """
inside, ending = threading.Event(), threading.Event()
def wait():
    inside.set()
    ending.wait()
    rests()  # until the end of the main thread waits for this one
def work():
    print("the function gave", f(wait), flush=True)
threading.Thread(target=work).start()
inside.wait()
]]
print "done" io.stdout:flush()
py.main.ending:set()
""",
        "done\nthe function gave 1000\n",
    ),
    Case(
        "a daemon thread of Python is inside of a Lua function",
        "lua",
        """
py.main.f = function(wait) while true do wait() end end
py.exec [[
import threading, time
inside = threading.Event()
def wait():
    inside.set()
    time.sleep(0.01)
threading.Thread(target=lambda: f(wait), daemon=True).start()
inside.wait()
]]
print "done"
""",
    ),
    Case(
        "a Lua finalizer drops the last reference to a Python object",
        "lua",
        """
py.exec "class Noisy:\\n    def __del__(self): print('gone', flush=True)"
do
  local object = py.main.Noisy()
  local guard = newproxy(true)
  getmetatable(guard).__gc = function() object = nil end
end
collectgarbage() collectgarbage() collectgarbage()
py.collect()
print "done"
""",
        "gone\ndone\n",
    ),
    Case(
        "a Lua finalizer calls Python while the state closes",
        "lua",
        """
guard = newproxy(true)
local builtins = py.builtins
getmetatable(guard).__gc = function() pcall(function() return builtins.len { 1 } end) end
print "done"
""",
    ),
    Case(
        "a tensor of Lua's outlives the Lua state in NumPy",
        "lua",
        """
local np = py.import "numpy"
py.main.a = np.from_dlpack(mf.zeros({ 3 }, "float32"))
py.exec "import atexit; atexit.register(lambda: print(a.sum(), flush=True))"
print "done" io.stdout:flush()
""",
        "done\n0.0\n",
    ),
    Case(
        "a tensor over NumPy's memory is alive in Lua",
        "lua",
        'local np = py.import "numpy" held = py.tensor(np.arange(4.0)) print(held:get(3)) print "done"',
        "3\ndone\n",
    ),
    Case(
        "a fork, and the child leaves by os._exit",
        "lua",
        """
held = py.list { 1 }
local os_ = py.import "os"
local pid = os_.fork()
if pid == 0 then os_._exit(0) end
local got, status = py.unpack(os_.waitpid(pid, 0))
print(got == pid, status)
print "done"
""",
        "true\t0\ndone\n",
    ),
    Case(
        "a fork, and the child ends as the parent does",
        "lua",
        """
held = py.list { 1 }
py.main.f = function() return 1 end
local os_ = py.import "os"
local pid = os_.fork()
if pid ~= 0 then
  local got, status = py.unpack(os_.waitpid(pid, 0))
  print(got == pid, status)
  print "done"
end
""",
        "true\t0\ndone\n",
    ),
    Case(
        "an error ends the script",
        "lua",
        'held = py.list { 1 } print "done" io.stdout:flush() error {}',
        "done\nluajit: (error object is not a string)\n",
        status=1,
    ),
    Case(
        "py.finish inside of a call of Python's is refused",
        "lua",
        "local ok, why = pcall(py.builtins.list, py.builtins.map(function() py.finish() end, { 1 })) "
        'print(ok, (why:gsub("^.*:%d+: ", ""))) print "done"',
        "false\tPython cannot be ended from inside of one of its calls\ndone\n",
    ),
    # Python hosts LuaJIT.
    Case("a state that a module holds", "python", "lua = mf.Lua(); lua.execute('x = 1'); print('done')"),
    Case(
        "Lua functions, tables and coroutines that a module holds",
        "python",
        """
lua = mf.Lua()
f, t = lua.eval("function(x) return x end"), lua.table(1, 2)
c = lua.eval("coroutine.create(function() coroutine.yield(1) end)")
print("done")
""",
    ),
    Case(
        "Lua objects outlive the name of their state",
        "python",
        "f = mf.Lua().eval('function(x) return x + 1 end'); gc.collect(); print(f(1)); print('done')",
        "2\ndone\n",
    ),
    Case(
        "Python objects that a Lua state holds",
        "python",
        """
class Noisy:
    def __del__(self): print("gone", flush=True)
lua = mf.Lua()
lua.globals().held = Noisy()
print("done", flush=True)
del lua
gc.collect()
""",
        "done\ngone\n",
    ),
    Case(
        "a cycle through both heaps",
        "python",
        """
lua = mf.Lua()
class Cycle: pass
c = Cycle()
c.t = lua.table()
c.t.back = c
del c
print("done")
""",
    ),
    Case(
        "Lua objects that sys holds when Python ends",
        "python",
        "lua = mf.Lua(); sys.kept = (lua, lua.table(1), lua.eval('function() end')); print('done')",
    ),
    Case(
        "a Lua function among the atexit functions",
        "python",
        "lua = mf.Lua(); atexit.register(lua.eval('function() print \"done\" io.stdout:flush() end'))",
    ),
    Case(
        "an object whose __del__ calls Lua while Python ends",
        "python",
        """
class Late:
    def __init__(self): self.f = mf.Lua().eval("function() return 1 end")
    def __del__(self):
        try: self.f()
        except Exception: pass
sys.kept = Late()
print("done")
""",
    ),
    Case(
        "a Lua finalizer that calls Python while Python ends",
        "python",
        """
lua = mf.Lua()
lua.execute('''
local len = python.builtins.len
guard = newproxy(true)
getmetatable(guard).__gc = function() pcall(len, "x") end
''')
print("done")
""",
    ),
    Case(
        "os._exit with everything alive",
        "python",
        "lua = mf.Lua(); f = lua.eval('function() end'); print('done', flush=True); os._exit(5)",
        status=5,
    ),
    Case(
        "sys.exit in a function that Lua calls",
        "python",
        "print('done', flush=True); mf.Lua().eval('function(f) f(3) end')(sys.exit)",
        status=3,
    ),
    Case(
        "a daemon thread runs Lua when Python ends",
        "python",
        """
def spin(started):
    lua = mf.Lua()
    f = lua.eval("function(n) local s = 0 for i = 1, n do s = s + i end return s end")
    started.set()
    while True: f(10000)
started = threading.Event()
threading.Thread(target=spin, args=(started,), daemon=True).start()
started.wait()
print("done")
""",
    ),
    Case(
        "a daemon thread is inside an endless Lua loop when Python ends",
        "python",
        """
def spin(started):
    mf.Lua().eval("function(set) set() while true do end end")(started.set)
started = threading.Event()
threading.Thread(target=spin, args=(started,), daemon=True).start()
started.wait()
print("done")
""",
    ),
    Case(
        "a daemon thread calls Python from Lua when Python ends",
        "python",
        """
def spin(started):
    mf.Lua().eval("function(set, f) set() while true do f(1) end end")(started.set, abs)
started = threading.Event()
threading.Thread(target=spin, args=(started,), daemon=True).start()
started.wait()
print("done")
""",
    ),
    Case(
        "a thread that is no daemon runs Lua to its end",
        "python",
        """
def work():
    print(mf.Lua().eval("1 + 1"), flush=True)
threading.Thread(target=work).start()
""",
        "2\n",
    ),
    Case(
        "a tensor of Lua's outlives its state",
        "python",
        """
lua = mf.Lua()
t = lua.execute('return require("moonferry").ones({ 3 }, "float32")')
del lua
gc.collect()
print(t.tolist())
print("done")
""",
        "[1.0, 1.0, 1.0]\ndone\n",
    ),
    Case(
        "a tensor of Python's is alive in Lua",
        "python",
        "lua = mf.Lua(); lua.globals().held = mf.zeros((3,)); print('done')",
    ),
    Case(
        "a fork, and the child uses the state that it inherited",
        "python",
        """
lua = mf.Lua()
f = lua.eval("function(x) return x + 1 end")
pid = os.fork()
if pid == 0: sys.exit(f(1) - 2)
print(os.waitpid(pid, 0)[1])
print("done")
""",
        "0\ndone\n",
    ),
    Case(
        "a fork while another thread runs Lua",
        "python",
        """
def spin(started):
    f = lua.eval("function(n) local s = 0 for i = 1, n do s = s + i end return s end")
    started.set()
    while True: f(1000)
lua = mf.Lua()
started = threading.Event()
threading.Thread(target=spin, args=(started,), daemon=True).start()
started.wait()
warnings.simplefilter("ignore", DeprecationWarning)  # from CPython 3.12 on each such fork gives one
pid = os.fork()
if pid == 0: os._exit(0 if mf.Lua().eval("1") == 1 else 1)
print(os.waitpid(pid, 0)[1])
print("done")
""",
        "0\ndone\n",
    ),
    Case(
        "os.exit in a hosted script ends the process as sys.exit does",
        "python",
        "atexit.register(print, 'bye', flush=True); print('done', flush=True); mf.Lua().execute('os.exit(4)')",
        "done\nbye\n",
        status=4,
    ),
]
