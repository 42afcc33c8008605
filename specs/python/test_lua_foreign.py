"""Memory of Python's that a script releases, whose finalizers call that script: never below compiled Lua.

Each case is a process, because LuaJIT does not survive that.
"""

import itertools
import os
import subprocess
import sys

import pytest

from drawn import one_in

# Each makes an array after whose end gone(i) is called, a function of the same Lua state unless it says otherwise.
SOURCES = {
    "weakref.finalize": """
def make(i):
    array = np.zeros(16, dtype="float32")
    weakref.finalize(array, gone, i)
    return array
""",
    "__del__": """
class Noisy(np.ndarray):
    def __del__(self):
        gone(self.number)
def make(i):
    array = Noisy(16, dtype="float32")
    array.number = i
    return array
""",
    "__del__ that opens another state": """
class Noisy(np.ndarray):
    def __del__(self):
        gone(mf.Lua().eval(str(self.number)))
def make(i):
    array = Noisy(16, dtype="float32")
    array.number = i
    return array
""",
    "__del__ on a thread that the script waits for": """
class Noisy(np.ndarray):
    def __del__(self):
        thread = threading.Thread(target=lambda: mf.zeros(3))
        thread.start()
        thread.join()
        gone(self.number)
def make(i):
    array = Noisy(16, dtype="float32")
    array.number = i
    return array
""",
}

# Lua functions of a list of tensors, which give back each of them.
DROPS = {
    "close in a loop": "for i = 1, #list do list[i]:close() end",
    "close by a function that is compiled by itself": """
        local function drop(t) t:close() end
        for i = 1, #list do drop(list[i]) end""",
    "the deleter of an exported struct": """
        for i = 1, #list do
          local m = list[i]:to_dlpack()
          list[i]:close()
          m.deleter(m)
        end""",
    "the end of a scope": """
        mf.scope(function()
          for i = 1, #list do
            mf.from_dlpack(list[i]:to_dlpack())
            list[i]:close()
          end
        end)""",
    "the collector": """
        local t = mf.zeros(4)
        for i = 1, #list do list[i] = nil end
        for i = 1, 4000 do t:as_readonly():close() end""",
}

MODES = {"compiled": False, "interpreted": True}

PROGRAM = """
import gc, sys, threading, weakref
import numpy as np
import moonferry as mf
lua = mf.Lua()
lua.execute('''
  if ... then jit.off() else jit.opt.start("hotloop=3", "hotexit=2") end
  mf = require "moonferry"
  count, seen, notes = 0, {{}}, {{}}
  function gone(i)
    assert(not seen[i], "a second time")
    seen[i], count = true, count + 1
    for k = 1, 5 do notes[(i + k) % 50 + 1] = {{ i, tostring(i) }} end
    mf.zeros(3):view({{ 1 }}):close()
  end
  function drop(list)
    {drop}
  end
''', {interpreted})
gone, drop = lua.globals().gone, lua.globals().drop
{source}
for _ in range(3):
    drop(lua.table(*[mf.zeros(16) for i in range(100)]))
for turn in range(10):
    drop(lua.table(*[mf.from_dlpack(make(turn * 100 + i)) for i in range(100)]))
for _ in range(3):
    lua.gccollect()
    gc.collect()
lua.execute("mf.ledger()")
print(lua.globals().count, lua.eval("mf.zeros(2):tolist()[1]"))
"""


@pytest.mark.parametrize(("source", "drop", "interpreted"), one_in(3, itertools.product(SOURCES, DROPS, MODES)))
def test_finalizers_call_lua_after_the_release(source, drop, interpreted):
    program = PROGRAM.format(source=SOURCES[source], drop=DROPS[drop], interpreted=MODES[interpreted])
    command = [sys.executable, "-X", "faulthandler", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1000 0\n", "")


WAITING = """
import ctypes, threading
import dlpack_abi as abi, moonferry as mf

libc, semaphore = ctypes.CDLL(None), ctypes.create_string_buffer(64)
assert libc.sem_init(semaphore, 0, 0) == 0
producer = abi.Producer(versioned=False)
producer.struct.deleter = abi.address_of(abi.probe().probe_delete_waiting)
producer.struct.manager_ctx = ctypes.addressof(semaphore)
lua, begun = mf.Lua(), threading.Event()
drop = lua.eval("function(make, begun) local t = make() begun() %s end")

def post():
    begun.wait()
    libc.sem_post(semaphore)
    print("posted", flush=True)

threading.Thread(target=post).start()
drop(lambda: mf.from_dlpack(producer.capsule()), begun.set)
lua.gccollect()
lua.execute("require('moonferry').ledger()")
"""


@pytest.mark.parametrize("drop", ["t:close()", "t = nil collectgarbage() collectgarbage()"])
def test_other_python_threads_run_while_a_deleter_waits(drop):
    command = [sys.executable, "-X", "faulthandler", "-c", WAITING % drop]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=os.path.dirname(__file__))
    assert (done.returncode, done.stdout, done.stderr) == (0, "posted\n", "")
