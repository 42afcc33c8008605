"""A function of C's that has filled its part of Lua's stack calls Python, and that calls Lua: whatever Lua needs there
has to be allocated, which may fail, and a failure outside of a protected call would jump over Python's frames.
"""

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, moonferry as mf
from moonferry import _lua

C = ctypes.PyDLL(_lua.__file__)
MINSTACK, GLOBALSINDEX = 20, -10002
lua = mf.Lua(max_memory=0)
answer, table = lua.eval("function() return 5 end"), lua.table(5)
came, left, said = 0, 0, set()

def ask():
    return ASK

@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
def fill(L):
    global came, left
    came += 1
    dropped = lua.table()
    for _ in range(MINSTACK):
        C.lua_pushnil(ctypes.c_void_p(L))
    lua.set_max_memory(1, total=True)
    try:
        del dropped
        said.add(ask())
    except mf.LuaMemoryError:
        said.add("no memory")
    finally:
        lua.set_max_memory(0)
    left += 1
    return 0

# To a stack that does not run anybody may push.
suspended = lua.execute("suspended = coroutine.create(print) return tostring(suspended)")
stack = ctypes.c_void_p(int(suspended.split()[1], 16))
C.lua_pushcclosure(stack, fill, 0)
C.lua_setfield(stack, GLOBALSINDEX, b"fill")
for count in range(300):
    lua.execute("fill(unpack({}, 1, ...))", count)
print(came, left, sorted(said, key=str))
"""


@pytest.mark.parametrize("ask", ["answer()", "table[1]"])
def test_python_asks_lua_where_the_stack_is_full(ask):
    command = [sys.executable, "-X", "faulthandler", "-c", PROGRAM.replace("ASK", ask)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("300 300 ['no memory']\n", "", 0)
