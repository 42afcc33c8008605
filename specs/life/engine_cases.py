"""The endings of an engine with threads (engine.c) that hosts LuaJIT, and that Python; as in cases.py."""

from cases import Case

LUA_RESTS = """
local function rests(task) -- waits until that thread has slept for a while, as RESTS of cases.py in Python
  local times = 0
  while times < 1000 do
    local file = io.open("/proc/self/task/" .. task .. "/stat")
    times = file:read():match "%) S" and times + 1 or 0
    file:close()
  end
end
"""

IMPORTS_TORCH = """
thread [=[
local py = require "moonferry.python"
py.main.set = function() set "inside" end
py.exec [[
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "%s": set()
sys.meta_path.insert(0, Finder())
import torch
]]
]=]
await "inside"
print "done"
"""

# A library's exit function comes behind Python's.
LOADS = """
thread [=[
require("moonferry.python").exec [[
import atexit, ctypes, os, time
atexit.register(print, "Python ended", flush=True)
def load():
    ctypes.CDLL(os.environ["MOONFERRY_BUILD"] + "/specs/life_library.so")
%s
]]
%s
]=]
join()
"""

# The first line starts a thread of ours, which is at rest where the process forks: in the child, GCC 12's ASan leaves
# its allocator's locks as they are, and a thread that has just begun may hold one.
LOADS_IN_CHILD = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # since 3.12 of each fork beside threads
ctypes.CDLL(None)
time.sleep(0.2)
pid = os.fork()
if pid == 0:
    os.environ["LEAVES"] = "now"
    load()
print("child", os.waitpid(pid, 0)[1], flush=True)
"""

# The engine waits for its threads at exit.
ASKS_LATE = """
join_at_exit()
thread [=[
local py = require "moonferry.python"
py.exec [[
import atexit, ctypes
%s
atexit.register(print, "Python ended", flush=True)
]]
set "ready"
await "exit"
print(pcall(py.import, "os"))
]=]
await "ready"
"""

# LÖVE without a window, which quits when a thread of its own says so.
LOVE_CONF = """
function love.conf(t)
  for name in pairs(t.modules) do t.modules[name] = false end
  t.modules.event, t.modules.thread, t.modules.data = true, true, true
end
"""

LOVE = """
local code = [=[
local channel = love.thread.getChannel "said"
%s
]=]
function love.load()
  love.thread.newThread(code):start()
end
function love.update()
  love.thread.getChannel("said"):demand()
  print "done"
  love.event.quit()
end
"""

CASES = [
    Case(
        "LÖVE quits after a thread of its own has used Python",
        "love",
        LOVE % 'require("moonferry.python").import "threading" channel:push "ended"',
    ),
    Case(
        "LÖVE quits while a thread of its own waits in Python",
        "love",
        LOVE
        % """
local py = require "moonferry.python"
py.main.push = function() channel:push "inside" end
py.exec "import logging, threading; push(); threading.Event().wait()"
""",
    ),
    Case(
        "LÖVE quits while a thread of its own imports PyTorch",
        "love",
        LOVE
        % """
local py = require "moonferry.python"
channel:push "starting"
py.import "torch"
""",
    ),
    Case(
        "Python was first used on a thread that has ended",
        "engine",
        """
thread [[ require("moonferry.python").import "threading" ]]
join()
print "done"
""",
    ),
    Case(
        "a thread that was the first to import threading has ended",
        "engine",
        """
require("moonferry.python").start()
thread [[ require("moonferry.python").import "threading" ]]
join()
print "done"
""",
    ),
    Case(
        "a thread that was the first to import threading waits in Python",
        "engine",
        """
require("moonferry.python").start()
thread [[
local py = require "moonferry.python"
py.main.set = function() set "inside" end
py.exec "import threading; set(); threading.Event().wait()"
]]
await "inside"
print "done"
""",
    ),
    Case(
        "a thread of Python waits for a main thread that never used Python",
        "engine",
        """
thread [=[
require("moonferry.python").exec [[
import threading
def work():
    threading.main_thread().join()
    print("the main thread ended", flush=True)
threading.Thread(target=work).start()
]]
]=]
join()
print "done" io.stdout:flush()
""",
        "done\nthe main thread ended\n",
    ),
    *(
        Case(f"main leaves while a thread imports PyTorch, which is at {module}", host, IMPORTS_TORCH % module)
        for module in ("torch._C", "torch.nn")
        for host in ("engine", "linked engine")
    ),
    *(
        Case(
            f"{who} leaves the process right after it has loaded a library",
            host,
            LOADS % how,
            "Python ended\nthe library ended\n",
            status=3,
        )
        for who, how in (
            ("a thread", ("load()", "leave(3)")),
            ("Python code on a thread", ("libc = ctypes.CDLL(None)\nload()\nlibc.exit(3)", "")),
        )
        for host in ("engine", "linked engine")
    ),
    *(
        Case(
            "a thread forks, and the child leaves while it loads a library",
            host,
            LOADS % (LOADS_IN_CHILD, ""),
            "Python ended\nthe library ended\nchild 0\nPython ended\n",
        )
        for host in ("engine", "linked engine")
    ),
    *(
        Case(
            f"a thread asks for Python after its end, which {end}",
            "engine",
            ASKS_LATE % code,
            "Python ended\nfalse\tPython has ended in this process\n",
            status,
        )
        for end, code, status in (
            ("exit brings", "", 0),
            ("an exit function of Python's breaks off", "atexit.register(ctypes.CDLL(None).exit, 3)", 3),
        )
    ),
    Case(
        "py.finish lets no thread in while Python's exit functions run, but for what these call",
        "engine",
        """
local py = require "moonferry.python"
py.main.meanwhile = function() set "closed" await "asked" print(py.eval "2") end
py.exec "import atexit; atexit.register(meanwhile)"
thread [=[
local py = require "moonferry.python"
print(py.eval "1")
set "ready"
await "closed"
print(pcall(py.eval, "1"))
set "asked"
]=]
await "ready"
print(py.finish())
join()
""",
        "1\nfalse\tPython has ended in this process\n2\ntrue\n",
        0,
    ),
    Case(
        "py.finish leaves behind a thread that is inside of a function of Lua's, whose state ends",
        "engine",
        """
local py = require "moonferry.python"
py.main.f = function(wait) wait() end
py.exec [[
import threading
inside, for_ever = threading.Event(), threading.Event()
def wait():
    inside.set()
    for_ever.wait()
threading.Thread(target=f, args=(wait,)).start()
inside.wait()
]]
print(py.finish { wait = 0 })
print "done"
""",
        "nil\tpy.finish: 1 thread had not ended after 0 seconds\ndone\n",
    ),
    Case(
        "a thread closes its state after py.finish",
        "engine",
        """
thread [[
x = require("moonferry.python").list { 1 }
set "ready"
await "closing"
]]
await "ready"
py = require "moonferry.python"
assert(py.finish { wait = 60 })
local keep = newproxy(true)
getmetatable(keep).__gc = function() set "closing" join() print "done" end
""",
    ),
    Case(
        "a thread ends Python by py.finish, and then main leaves",
        "engine",
        """
thread [=[
local py = require "moonferry.python"
py.exec [[
import atexit, threading
atexit.register(print, "an exit function", flush=True)
threading.Thread(target=print, args=("a thread",), kwargs={"flush": True}).start()
]]
assert(py.finish { wait = 60 } == true)
assert(py.finish() == true)
print(pcall(py.import, "os"))
print "done"
io.stdout:flush()
]=]
join()
""",
        "a thread\nan exit function\nfalse\tPython has ended in this process\ndone\n",
    ),
    Case(
        "py.finish leaves behind a thread that is inside of Python, and two threads of Python",
        "engine",
        """
thread [=[
local py = require "moonferry.python"
py.main.set = function() set "inside" end
py.exec [[
import threading
for_ever = threading.Event()
for _ in range(2):
    threading.Thread(target=for_ever.wait).start()
set()
for_ever.wait()
]]
]=]
await "inside"
local py = require "moonferry.python"
print(py.finish { wait = 0.05 })
print "done"
""",
        "nil\tpy.finish: 3 threads had not ended after 0.05 seconds\ndone\n",
    ),
    Case(
        "py.finish leaves behind a thread that is inside of Python, after the wall clock was set back",
        "engine",
        """
thread [=[
local py = require "moonferry.python"
py.main.set = function() set "inside" end
py.exec "import threading; set(); threading.Event().wait()"
]=]
await "inside"
local py = require "moonferry.python"
print(py.finish { wait = 0.05 })
print "done"
""",
        "nil\tpy.finish: 1 thread had not ended after 0.05 seconds\ndone\n",
        preload="life_clock.so",
    ),
    Case(
        "threads call Python all the time when py.finish ends it",
        "engine",
        """
for i = 1, 4 do
  thread([[
local py = require "moonferry.python"
local add = py.op.add
]] .. ("set 'calling %d'\\n"):format(i) .. [[
while true do
  local ok, sum = pcall(add, 1, 2)
  if not ok then break end
  if sum ~= 3 then print("1 + 2 is", sum) end
end
]])
end
for i = 1, 4 do await("calling " .. i) end
local py = require "moonferry.python"
for _ = 1, 100 do py.op.add(1, 2) end
print(py.finish { wait = 60 })
join()
print "done"
""",
        "true\ndone\n",
    ),
    Case(
        "py.finish waits for a thread that is inside of Python",
        "engine",
        """
thread [=[
local py = require "moonferry.python"
py.main.set = function() set "inside" end
py.main.await = function() await "leaving" end
py.exec "set(); await_ = globals()['await']; await_(); import json; print('out', flush=True)"
]=]
await "inside"
local py = require "moonferry.python"
py.exec "import threading"
thread [=["""
        + LUA_RESTS
        + """
rests(io.open("/proc/self/stat"):read():match "%d+") -- the main thread, in py.finish
set "leaving"
]=]
print(py.finish { wait = 60 })
join()
print "done"
""",
        "out\ntrue\ndone\n",
    ),
    Case(
        "a fork while another thread is inside of Python, and the child ends Python by py.finish",
        "engine",
        """
thread [=[
local py = require "moonferry.python"
py.main.set = function() set "inside" end
py.main.wait = function() await "leaving" end
py.exec "set(); wait()"
]=]
await "inside"
local py = require "moonferry.python"
py.import("warnings").simplefilter("ignore") -- since 3.12 of each fork beside threads
local os_ = py.import "os"
local child = os_.fork()
if child == 0 then
  print(py.finish { wait = 0.05 })
  os.exit(0)
end
print("the child ended with", os_.waitpid(child, 0)[1])
set "leaving"
join()
""",
        "true\nthe child ended with\t0\n",
    ),
    Case(
        "a fork in a call of Python's, and py.finish of the child leaves behind a thread that is inside of Python",
        "engine",
        """
local py = require "moonferry.python"
py.import("warnings").simplefilter("ignore") -- since 3.12 of each fork beside threads
local os_ = py.import "os"
local child = os_.fork()
if child == 0 then
  thread [=[
local py = require "moonferry.python"
py.main.set = function() set "inside" end
py.exec "import threading; set(); threading.Event().wait()"
]=]
  await "inside"
  print(py.finish { wait = 0.05 })
  os.exit(0)
end
print("the child ended with", os_.waitpid(child, 0)[1])
""",
        "nil\tpy.finish: 1 thread had not ended after 0.05 seconds\nthe child ended with\t0\n",
    ),
    Case(
        "a fork on a thread of Python's, and another thread of the child ends Python by py.finish",
        "engine",
        """
local py = require "moonferry.python"
py.import("warnings").simplefilter("ignore") -- since 3.12 of each fork beside threads
local os_ = py.import "os"
py.main.f = function()
  local child = os_.fork()
  if child == 0 then
    thread [[print(require("moonferry.python").finish { wait = 0.05 })]]
    join()
    os.exit(0)
  end
  print("the child ended with", os_.waitpid(child, 0)[1])
end
py.exec [[
import threading
thread = threading.Thread(target=f)
thread.start()
thread.join()
]]
""",
        "true\nthe child ended with\t0\n",
    ),
    Case(
        "a fork, and a thread calls a function of a state that the child has made, which is busy",
        "engine",
        """
local os = require("moonferry.python").import "os"
local child = os.fork()
if child == 0 then
  state [==["""
        + LUA_RESTS
        + """
local py = require "moonferry.python"
py.main.f = function(x) return x + 1 end
py.exec [[
import os, threading
reader, writer = os.pipe()
def work():
    os.read(reader, 1)
    print("the function", int(f(4)), flush=True)
thread = threading.Thread(target=work)
thread.start()
]]
local pipe = io.open(("/proc/self/fd/%d"):format(py.main.writer), "w")
local thread = py.main.thread.native_id
pipe:write "x" -- Lua runs from here on
pipe:close()
rests(thread)
py.main.thread:join()
]==]
  os._exit(3)
end
print("the child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
        "the function 5\nthe child ended with\t3\n",
    ),
]
