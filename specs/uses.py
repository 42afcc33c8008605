"""What one does first with an installed Moonferry: a list of commands, each of which must end with 0.

Used where a wheel was installed: specs/wheel in a fresh environment, specs/release/bare in a system that has nothing
else. Must not know: how it was built, or where the commands run.
"""

PYTHON = """
import moonferry, os, pathlib
assert str(pathlib.Path(moonferry.__file__)).startswith({env!r}), moonferry.__file__
t = moonferry.asarray([[1, 2], [3, 4]])
assert t.tolist() == [[1, 2], [3, 4]], t
assert os.path.exists(os.path.join(moonferry.get_include(), "moonferry.h"))
del t
assert tuple(moonferry.ledger()) == (0, 0, 0, 0), moonferry.ledger()
mapped = {{line.split()[-1] for line in open("/proc/self/maps") if "libmoonferry.so" in line}}
assert len(mapped) == 1 and mapped.pop().startswith({env!r})
"""
HOSTING = """
import moonferry
lua = moonferry.Lua()
t = moonferry.tensor([1.0, 2.0], "float32")
lua.eval("function(t) for i = 0, 1 do t:put(i, 10 * t:get(i)) end end")(t)
assert t.tolist() == [10, 20], t
"""
# A C module of Lua's finds LuaJIT's functions in the process; lua_newstate is not called, only looked for.
C_MODULES = """
import ctypes, moonferry
assert not hasattr(ctypes.CDLL(None), "lua_newstate")
moonferry.Lua(c_modules=True)
assert hasattr(ctypes.CDLL(None), "lua_newstate")
"""
LUA = """
local mf = require "moonferry"
local t = mf.tensor({{1, 2}, {3, 4}}, "float32")
assert(t:get(1, 0) == 3)
t:close()
assert(mf.ledger().tensors == 0)
"""
HOSTED = """
local py = require "moonferry.python"
local t = require "moonferry".ones({{ 2 }}, "float32")
local m = py.import "moonferry"
assert(m.__file__:sub(1, #"{env}") == "{env}", m.__file__)
assert(m.ledger().tensors == 1)
assert(py.import "sys".prefix == "{env}", py.import "sys".prefix)
"""
SIM = """
import ctypes
drv = ctypes.CDLL("libcuda.so")  # the name without a number
count = ctypes.c_int()
assert drv.cuInit(0) == 0 and drv.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value == 3
assert len({line.split()[-1] for line in open("/proc/self/maps") if "libcuda.so.1" in line}) == 1
"""


def commands(env):
    """Pairs of a name and a command for the environment in this folder, in which no variable need be set."""
    python, program = f"{env}/bin/python", f"{env}/bin/moonferry"
    return [
        ("Python uses it", [python, "-c", PYTHON.format(env=env)]),
        ("Python hosts Lua", [python, "-c", HOSTING]),
        ("C modules of Lua find LuaJIT", [python, "-c", C_MODULES]),
        ("moonferry sim runs a program", [program, "sim", "--devices", "3", "--", python, "-c", SIM]),
        ("moonferry runs Lua", [program, "-e", LUA]),
        # The interpreter is that of the environment that it was installed into.
        ("moonferry hosts Python", [program, "-e", HOSTED.format(env=env)]),
        ("moonferry check checks", [program, "check", "moonferry", "--rule", "contents", "--rule", "takes-moonferry"]),
        ("moonferry doctor finds all", [program, "doctor", "none"]),
        ("python -m moonferry runs Lua", [python, "-m", "moonferry", "-e", LUA]),
    ]
