"""Calls that must leave nothing behind, each many times: prints the bytes that each has left, as JSON.

A program of its own (test_memory.py), because the count is exact only in a process that began with allocated.EXACT.
Its arguments are the names of the calls; without any it prints all names, and which library each needs.
"""

import importlib
import json
import pickle
import sys
from pathlib import Path

import numpy as np

import moonferry as mf

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import allocated  # noqa: E402

t, a = mf.zeros((4, 3), "float64"), np.zeros((4, 3))
many_axes = np.zeros((1,) * 30)
lua = mf.Lua()
call_back = lua.eval("function(f, x) return f(x) end")
fails = lua.eval("function() error('no') end")


table, hashed = lua.table(1, 2, 3), lua.table(a=1, b=2)


def began():
    coroutine = lua.eval("function() while true do coroutine.yield(1) end end").coroutine()
    next(coroutine)
    return coroutine


def refused(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except Exception:
        return
    raise AssertionError("it was not refused")


def library(name):
    """Imported when it is first asked for, so that what is not measured is not loaded."""
    return importlib.import_module(name)


class Taker:
    """Not a taker at all."""


CALLS = {
    "export": lambda: t.__dlpack__(max_version=(1, 3)),
    "legacy export": lambda: t.__dlpack__(),
    "own import": lambda: mf.from_dlpack(t),
    "import of a capsule": lambda: mf.from_dlpack(t.__dlpack__(max_version=(1, 3))),
    "import of a legacy capsule": lambda: mf.from_dlpack(t.__dlpack__()),
    "import from NumPy": lambda: mf.from_dlpack(a),
    "export to NumPy": lambda: np.from_dlpack(t),
    "copying import": lambda: mf.from_dlpack(a, copy=True),
    "memoryview": lambda: memoryview(t),
    "memoryview of many axes": lambda: memoryview(mf.asarray(many_axes)),
    "buffer import": lambda: mf.asarray(memoryview(a)),
    "frombuffer": lambda: mf.frombuffer(b"12345678", "uint8"),
    "views": lambda: t.T[1:, None].expand_dims(0),
    "into": lambda: mf.into(mf.Tensor, t),
    "asarray": lambda: np.asarray(t),
    "attributes": lambda: (t.shape, t.strides, t.dtype, t.device, t.nbytes),
    "assignment": lambda: t.__setitem__(0, a[0]),
    "values": lambda: (t.tolist(), t[0, 0]),
    "nested values": lambda: mf.tensor([[1, 2], [3, 4]], "int8"),
    "pickle": lambda: pickle.loads(pickle.dumps(t, 5)),
    "text": lambda: (repr(t), str(t)),
    "refused import": lambda: refused(mf.from_dlpack, 3),
    "refused export": lambda: refused(t.__dlpack__, dl_device=(2, 0)),
    "refused shape": lambda: refused(t.reshape, (5, 5)),
    "refused index": lambda: refused(t.__getitem__, (9, 9)),
    "refused nested values": lambda: refused(mf.tensor, [[1, 2], [3]]),
    "refused buffer": lambda: refused(mf.frombuffer, b"123", "float64"),
    "refused taker": lambda: refused(mf.into, Taker, t),
    "a tensor to Lua and back": lambda: call_back(lambda x: x, t),
    "an object to Lua and back": lambda: call_back(lambda x: x, [1, "two", None]),
    "an error of Lua's": lambda: refused(fails),
    "an error of Python's through Lua": lambda: refused(call_back, lambda x: 1 / 0, t),
    "a table of Lua's": lambda: dict(lua.eval("{ a = 1, b = { 2, 3 } }")),
    "a coroutine of Lua's": lambda: list(lua.eval("function() coroutine.yield(1) end").coroutine()),
    "a coroutine that never began": lambda: lua.eval("function() end").coroutine([1], object()),
    "a coroutine that is closed": lambda: lua.eval("function(x) coroutine.yield(x) end").coroutine(object()).close(),
    "a coroutine that is sent a tuple": lambda: began().send((1, object())),
    "a coroutine that is sent an error": lambda: refused(began().throw, ValueError("no")),
    "an iteration that is left": lambda: (next(iter(table)), next(iter(table.items())), next(iter(hashed.values()))),
    "a Lua state": lambda: mf.Lua().eval("1 + 1"),
    "torch through the table": lambda: mf.into(library("torch").Tensor, mf.from_dlpack(library("torch").zeros(4))),
    "torch through the method": lambda: library("torch").from_dlpack(t),
    "tvm through the table": lambda: library("tvm_ffi").get_global_func("testing.echo")(t),
}
NEEDS = {"torch through the table": "torch", "torch through the method": "torch", "tvm through the table": "tvm"}


def fill_caches():
    """The bridge keeps as many references as Lua ever had at once, which depends on when Lua collects: have many."""
    lua.eval("function(make) local all = {} for i = 1, 20000 do all[i] = make() end end")(object)


def settle():
    """Each language may hold what keeps something of the other."""
    for _ in range(2):
        allocated.collect()
        lua.execute("collectgarbage() collectgarbage()")
    allocated.collect()


# A free reference is a number there.
references = lua.eval("""function()
  local count = 0
  for _, value in pairs(debug.getregistry()) do
    count = count + (type(value) ~= "number" and 1 or 0)
  end
  return count
end""")


def left_by(once):
    """The bytes that calls leave, and the references in Lua's registry, whose memory is not malloc's."""
    settle()
    before = references()
    nbytes = allocated.left_by(once, settle)
    return nbytes + max(0, references() - before)


def main(names):
    if not names:
        print(json.dumps({name: NEEDS.get(name) for name in CALLS}))
        return
    fill_caches()
    print(json.dumps({name: left_by(CALLS[name]) for name in names}))


if __name__ == "__main__":
    main(sys.argv[1:])
