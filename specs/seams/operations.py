"""The operations of Python's interface, each a function of the bench that gives the same each time.

Responsible for the table of operations, under names whose first word is the public name that it stands for, and for the
public names that none stands for, with the reason. Must not know which event strikes, nor where.
"""

import copy
import pickle
import time

import numpy as np
from bench import Index, Interface, Items, Loan, Producer, noisy
from protocol_operations import LUA_PROTOCOLS, PROTOCOLS, RING

import moonferry as mf
from moonferry import luajit

FLOATS = "float32"


class HasStream:
    """Somebody else's stream."""

    def __init__(self, b):
        self.b = b

    def __cuda_stream__(self):
        return (0, self.b.s.handle)


def queried(stream):
    """A stream that is made may be one that was given back, with work."""
    stream.synchronize()
    return stream.query()


def shown(t):
    """A text says what was in the way of the elements."""
    text = repr(t)
    if "(<" in text and "no memory" in text:
        raise MemoryError(text)
    return text[:20]


def filled(b, change, of=None):
    """What a change makes of a tensor."""
    t = (b.t if of is None else of).copy()
    change(t)
    return t


def within(b):
    """What a block that closes its tensor makes of it."""
    with b.t.copy() as t:
        return t.to("cpu").tolist(), int(Index(1))


def watched(b):
    """A copy in two parts."""
    seen, dst = [], mf.empty((17 << 20,), "uint8", device=b.device)
    dst.copy(mf.zeros(dst.shape, "uint8", device=b.device), progress=lambda *told: seen.append(Index(told[0])))
    return [int(done) for done in seen], dst[-1:]


def on(b, function):
    with b.s:
        return function()


MAKE = {
    "empty": lambda b: mf.empty((2, Index(3)), device=b.device).shape,
    "zeros": lambda b: mf.zeros(b.list(2, Index(3)), FLOATS, device=b.device),
    "zeros-a_sequence": lambda b: mf.zeros(Items(2, 3)),
    "ones": lambda b: mf.ones(Index(3), "float64", device=b.device),
    "full": lambda b: mf.full((2, 3), Index(4), FLOATS, device=b.device),
    "full-a_tensor": lambda b: mf.full((2,), b.one, FLOATS),
    "tensor": lambda b: mf.tensor(b.list(b.list(Index(1), 2), (3, Index(4))), FLOATS),
    "tensor-of_memory": lambda b: mf.tensor(noisy()),
    "tensor-of_a_sequence": lambda b: mf.tensor([Items(1.0, 2.0), Items(3.0, 4.0)], FLOATS),
    "asarray": lambda b: mf.asarray(noisy()),
    "asarray-cast": lambda b: mf.asarray(noisy(), "int16"),
    "asarray-interface": lambda b: mf.asarray(Interface(noisy())),
    "asarray-producer": lambda b: mf.asarray(Producer(noisy())),
    "frombuffer": lambda b: mf.frombuffer(noisy(), FLOATS, Index(4), Index(8)),
    "from_dlpack": lambda b: mf.from_dlpack(Producer(noisy())),
    "from_dlpack-copy": lambda b: mf.from_dlpack(Producer(noisy()), copy=True),
    "from_dlpack-deleter": lambda b: mf.from_dlpack(Loan()),
    "from_dlpack-capsule": lambda b: mf.from_dlpack(b.t.__dlpack__(max_version=(1, 3))),
    "from_dlpack-legacy_capsule": lambda b: mf.from_dlpack(b.t.__dlpack__()),
    "from_dlpack-to_a_device": lambda b: mf.from_dlpack(Producer(noisy()), device=b.device),
    "from_arrow": lambda b: mf.from_arrow(b.h),
    "wrap": lambda b: mf.wrap(b.h.data_ptr, b.list(Index(1), 2), FLOATS, owner=b.h),
    "into": lambda b: mf.into(mf.Tensor, b.t),
    "equal": lambda b: mf.equal(b.t, b.t.copy()),
    "DType": lambda b: str(mf.DType("int8")),
    "Device": lambda b: str(b.t.device),
    "ledger": lambda b: len(mf.ledger()),
    "device_count": lambda b: mf.device_count("cuda") >= 0,
    "device_reason": lambda b: isinstance(mf.device_reason("rocm"), (str, type(None))),
    "stream_none": lambda b: mf.stream_none(),
    "threads": lambda b: mf.threads(Index(mf.threads())),
    "trim": lambda b: mf.trim(),
}

VIEWS = {
    "Tensor.__getitem__": lambda b: b.t[Index(0) :, :: Index(2)],
    "Tensor.__getitem__-element": lambda b: b.t[Index(1), Index(2)],
    "Tensor.__getitem__-new_axis": lambda b: b.t[None, ..., Index(1)],
    "Tensor.T": lambda b: b.t.T,
    "Tensor.numpy": lambda b: b.h.T.numpy().shape,
    "Tensor.tobytes": lambda b: b.t.T.tobytes(),
    "Tensor.contiguous": lambda b: b.t.T.contiguous(),
    "Tensor.permute_dims": lambda b: b.t.permute_dims(Index(1), Index(0)),
    "Tensor.reshape": lambda b: b.t.reshape(b.list(Index(3), Index(2))),
    "Tensor.reshape-copy": lambda b: b.t.T.reshape(Index(-1), copy=None),
    "Tensor.broadcast_to": lambda b: b.t.broadcast_to(b.list(2, Index(2), 3)),
    "Tensor.squeeze": lambda b: b.t[:1].squeeze(Index(0)),
    "Tensor.expand_dims": lambda b: b.t.expand_dims(Index(0)),
    "Tensor.diagonal": lambda b: b.t.diagonal(Index(0)),
    "Tensor.reinterpret": lambda b: b.t.reinterpret("uint8").shape,
    "Tensor.as_readonly": lambda b: b.t.as_readonly().readonly,
    "Tensor.attributes": lambda b: (b.t.shape, b.t.strides, b.t.ndim, b.t.nbytes, b.t.size, b.t.is_contiguous),
    "Tensor.__repr__": lambda b: shown(b.t),
    "Tensor.__len__": lambda b: len(b.t),
    "Tensor.__iter__": lambda b: [x for x in b.t],  # noqa: C416
    "Tensor.__copy__": lambda b: copy.copy(b.t),
    "Tensor.__reduce_ex__": lambda b: pickle.loads(pickle.dumps(b.h, 5)),
    "Tensor.__reduce_ex__-out_of_band": lambda b: len(pickle.dumps(b.h, 5, buffer_callback=Items())) > 0,
}

ELEMENTS = {
    "Tensor.__setitem__": lambda b: filled(b, lambda t: t.__setitem__((Index(1), Index(2)), Index(7))),
    "Tensor.__setitem__-a_list": lambda b: filled(b, lambda t: t.__setitem__(0, b.list(Index(7), 8, 9))),
    "Tensor.__setitem__-a_tensor": lambda b: filled(b, lambda t: t.__setitem__(..., b.u)),
    "Tensor.__setitem__-overlap": lambda b: filled(b, lambda t: t.__setitem__((slice(None), slice(1, 3)), t[:, :2])),
    "Tensor.__setitem__-memory": lambda b: filled(b, lambda t: t.__setitem__(..., noisy())),
    "Tensor.fill": lambda b: filled(b, lambda t: t.fill(Index(3))),
    "Tensor.copy": lambda b: b.t.copy(),
    "Tensor.copy-from": lambda b: filled(b, lambda t: t.copy(noisy())),
    "Tensor.copy-from_a_producer": lambda b: filled(b, lambda t: t.copy(Producer(noisy()))),
    "Tensor.copy-progress": watched,
    "Tensor.copy-progress_of_a_clone": lambda b: b.h.T.copy(progress=lambda *_: int(Index(1))),
    "Tensor.copy-cast": lambda b: filled(b, lambda t: t.copy(b.t.astype("int16"))),
    "Tensor.astype": lambda b: b.t.astype("int32"),
    "Tensor.tolist": lambda b: b.h.T.tolist(),
    "Tensor.item": lambda b: b.one.item(),
    "Tensor.close": lambda b: filled(b, lambda t: t[Index(0)].close()),
    "Tensor.close-the_last": lambda b: mf.from_dlpack(Loan()).close(),
    "Tensor.close-with": within,
    "Tensor.__float__": lambda b: (float(b.one), int(b.one), bool(b.one), complex(b.one)),
}

EXCHANGE = {
    "Tensor.to": lambda b: b.t.to(b.device, copy=True),
    "Tensor.to-host": lambda b: b.t.to("cpu"),
    "Tensor.to-device": lambda b: b.h.to(b.device),
    "Tensor.acquire": lambda b: b.t.acquire("host" if b.device == "cpu" else None, True),
    "Tensor.record": lambda b: b.t.record(None, True),
    "Tensor.__dlpack__": lambda b: type(b.t.__dlpack__(max_version=(1, 3))).__name__,
    "Tensor.__dlpack__-legacy": lambda b: type(b.t.__dlpack__()).__name__,
    "Tensor.__dlpack__-copy": lambda b: mf.from_dlpack(b.t.__dlpack__(max_version=(1, 3), copy=True)),
    "Tensor.__dlpack__-host": lambda b: np.from_dlpack(mf.from_dlpack(b.t.__dlpack__(dl_device=(1, 0)))),
    "Tensor.__dlpack__-stream": lambda b: type(b.t.__dlpack__(stream=None if b.device == "cpu" else -1)).__name__,
    "Tensor.__dlpack_device__": lambda b: b.t.__dlpack_device__()[1],
    "Tensor.__dlpack_c_exchange_api__": lambda b: type(mf.Tensor.__dlpack_c_exchange_api__).__name__,
    "Tensor.__array__": lambda b: np.asarray(b.h),
    "Tensor.__array__-cast": lambda b: np.asarray(b.h, "int8"),
    "Tensor.__array_interface__": lambda b: b.h.__array_interface__["shape"],
    "Tensor.buffer": lambda b: memoryview(b.h).tolist(),
    "Tensor.numpy": lambda b: np.from_dlpack(b.h),
    "Tensor.numpy-foreign": lambda b: np.from_dlpack(mf.from_dlpack(noisy())),
}

DEVICE = {
    "Stream": lambda b: queried(mf.Stream(b.device)),
    "Stream.default": lambda b: mf.Stream.default(b.device).handle,
    "Stream.per_thread": lambda b: mf.Stream.per_thread(b.device) == mf.Stream.per_thread(b.device),
    "Stream.wrap": lambda b: mf.Stream.wrap(b.s.handle, b.device) == b.s,
    "Stream.wrap-foreign": lambda b: mf.Stream.wrap(HasStream(b), b.device).device == b.s.device,
    "Stream.synchronize": lambda b: b.s.synchronize(),
    "Stream.wait": lambda b: b.s.wait(mf.Stream(b.device)),
    "Stream.__enter__": lambda b: on(b, lambda: b.t.copy()),
    "Stream.__enter__-to_host": lambda b: on(b, lambda: (b.t.to("cpu"), b.h.to(b.device))),
    "Stream.__enter__-release": lambda b: on(b, lambda: mf.zeros((100,), device=b.device).size),
    "current_stream": lambda b: mf.current_stream(b.device) == mf.Stream.default(b.device),
    "synchronize": lambda b: mf.synchronize(b.device),
    "pool_limit": lambda b: mf.pool_limit(b.device, 0),
    "pool_stats": lambda b: mf.pool_stats(b.device).limit_bytes >= 0,
    "trim-a_device": lambda b: mf.trim(b.device),
}


def stepped(thread):
    first = next(thread)
    return first, thread.send(5)


def waiting(b):
    """A coroutine that waits."""
    thread = b.lua.eval("function(o) o() coroutine.yield(1) coroutine.yield(2) end").coroutine(Items())
    next(thread)
    return thread


def comes_back_as_itself(lua, table):
    """An event may take the state and the table from the bench meanwhile."""
    return table == lua.eval("...", table)


def beside_no_hook(end):
    """While the campaign's own hook runs in another thread, nothing can be raised in a coroutine."""
    for _ in range(1000):
        try:
            return end()
        except mf.LuaError as error:
            if "a debug hook of this state is running" not in str(error):
                raise
            time.sleep(0.001)
    return end()


def thrown(b):
    thread = waiting(b)
    try:
        beside_no_hook(lambda: thread.throw(KeyError("thrown")))
    except KeyError as error:
        return str(error)


def closed(b):
    with mf.Lua() as lua:
        lua.globals().held = Items(1), b.t
        return lua.eval("1 + 1")


def nested(b):
    return b.lua.execute("local f, g = ... return pcall(f, g)", lambda g: g(3), lambda n: Index(n))


def with_filter(b):
    def allowed(obj, name, setting):
        obj.calm()
        return name

    lua = mf.Lua(attribute_filter=allowed)
    return lua.eval("(...).value", Calm(5))


class Calm:
    def __init__(self, value):
        self.value = value

    def calm(self):
        int(Index(1))


def overflowing(b):
    return mf.Lua(overflow_handler=lambda n: int(Index(5))).eval("...", 2**70)


def in_a_sandbox(b):
    lua = mf.Lua(sandbox=True)
    return lua.eval("(function(o) return o(2), pcall(function() return o._x end) end)(...)", Items(1))[0]


def limited(b):
    if b.mode != "interruptible":
        return 3
    with b.lua.time_limit(100):
        return b.lua.eval("1 + 2")


def without_collector(b):
    with b.lua.nogc():
        return b.lua.eval("#{{}, {}}")


def memory_of(b):
    if not b.is_limited:
        return b.lua.get_memory_used(), b.lua.get_max_memory()
    return b.lua.get_memory_used() > 0, b.lua.get_max_memory(), b.lua.set_max_memory(0)


def caught(b, code, *args):
    try:
        b.lua.execute(code, *args)
    except mf.LuaError as error:
        return error.message.splitlines()[0][:10], type(error.value).__name__


def raised(b):
    try:
        b.lua.execute("local f = ... f()", lambda: {}["key"])
    except KeyError as error:
        return str(error)


def unpacked(b):
    return b.lua.eval("(...){1, y = 2}", mf_unpacks)


@luajit.unpacks_lua_table
def mf_unpacks(x, y=0):
    return int(Index(x)) + y


class Method:
    @luajit.unpacks_lua_table_method
    def add(self, x, y=0):
        return int(Index(x)) + y


LUA = {
    "Lua": lambda b: mf.Lua().eval("1"),
    "Lua-options": lambda b: mf.Lua(encoding="latin-1", max_memory=0, unpack_returned_tuples=True).eval("'x'"),
    "Lua.close": closed,
    "Lua.sandbox": in_a_sandbox,
    "Lua.attribute_filter": with_filter,
    "Lua.eval": lambda b: b.lua.eval("1 + ...", Index(1)),
    "Lua.eval-a_tensor": lambda b: b.lua.eval("({...})[1]", b.t),
    "Lua.eval-a_new_tensor": lambda b: b.lua.eval("require('moonferry').zeros({2, 3})"),
    "Lua.eval-many": lambda b: b.lua.eval("1, 'two', {3}, ...", Items(4))[:2],
    "Lua.execute": lambda b: b.lua.execute("local o = ... return #o, tostring(o)", Items("x"))[0],
    "Lua.execute-attributes": lambda b: b.lua.execute(
        "local o = python.as_attrgetter(...) o.field = o.field return o.field", Items("x")),
    "Lua.execute-items": lambda b: b.lua.execute(
        "local o = python.as_itemgetter(...) o[0] = o[0] return o[0]", Items("x")),
    "Lua.execute-operators": lambda b: b.lua.execute("local o = ... return o + 1, o * 2, o == o, -1 + o", Index(3)),
    "Lua.execute-catches": nested,
    "Lua.execute-error": lambda b: caught(b, "error({code = 7})"),
    "Lua.execute-error_text": lambda b: caught(
        b, "error(setmetatable({}, {__tostring = function() return 'mine' end}))"),
    "Lua.execute-error_of_an_object": lambda b: caught(b, "error(...)", Items("x")),
    "Lua.execute-exception": raised,
    "Lua.compile": lambda b: b.lua.compile("local a = ... return a")(Items(1)).items_,
    "Lua.compile-syntax": lambda b: type(_syntax(b)).__name__,
    "Lua.require": lambda b: b.lua.require("string").rep("x", 3),
    "Lua.globals": lambda b: b.lua.globals().string.len("four"),
    "Lua.globals-set": lambda b: b.lua.globals().__setitem__("held", Items(1)),
    "Lua.table": lambda b: list(b.lua.table(1, Items(2), x=3).keys()),
    "Lua.table_from": lambda b: b.lua.table_from({"a": [1, {"b": Items(2)}]}, recursive=True).a[2].b.items_,
    "Lua.table_from-an_iterable": lambda b: list(b.lua.table_from(Items(1, 2, 3)).values()),
    "Lua.table_from-a_mapping": lambda b: sorted(b.lua.table_from({"a": Items(1), "b": 2}).keys()),
    "Lua.gccollect": lambda b: b.lua.gccollect(),
    "Lua.gccollect-objects": lambda b: b.lua.execute("local o = ... o = nil collectgarbage()", noisy()),
    "Lua.nogc": without_collector,
    "Lua.set_overflow_handler": lambda b: b.lua.set_overflow_handler(None),
    "Lua.overflow_handler": overflowing,
    "Lua.memory": memory_of,
    "Lua.time_limit": limited,
    "Lua.interrupt": lambda b: b.lua.interrupt(),
    "Lua.attributes": lambda b: (b.lua.lua_version, b.lua.lua_implementation),
    "lua_type": lambda b: luajit.lua_type(b.table),
    "sandbox_filter": lambda b: luajit.sandbox_filter([], "append", False),
    "as_attrgetter": lambda b: b.lua.eval("(...).field", luajit.as_attrgetter(Items(3))),
    "unpacks_lua_table": unpacked,
    "unpacks_lua_table_method": lambda b: b.lua.eval("(...){1, y = 2}", Method().add),
    "LuaTable": lambda b: (b.table[1], b.table.name, b.table.missing, len(b.table), "name" in b.table),
    "LuaTable-iterate": lambda b: sorted(map(str, b.table)),
    "LuaTable-items": lambda b: [list(map(str, pair)) for pair in b.table.items()],
    "LuaTable-metamethods": lambda b: _meta(b),
    "LuaTable-set": lambda b: (b.table.__setitem__("new", Items(1)), b.table.__delitem__("new"))[0],
    "LuaTable-tensor_fields": lambda b: in_a_field(b.helpers["table"](), b.t),
    "LuaTable-str": lambda b: str(b.table)[:4],
    "LuaFunction": lambda b: b.call(Items(1)).items_,
    "LuaFunction-keywords": lambda b: b.call(*[Index(i) for i in range(5)])[0].value,
    "LuaFunction-callback": lambda b: b.lua.eval("(...)(1, 2)", Items()),
    "LuaFunction-tuple": lambda b: b.lua.eval("(...)[1]", (1, Index(2))).value,
    "LuaThread": lambda b: list(
        b.lua.eval("function(o) for i = 1, 3 do coroutine.yield(o(i)) end end").coroutine(Items())),
    "LuaThread-send": lambda b: stepped(
        b.lua.eval("function(x) while true do x = coroutine.yield(x) end end").coroutine(1)),
    "LuaThread-throw": thrown,
    "LuaThread-close": lambda b: beside_no_hook(waiting(b).close),
    "LuaThread-dropped": lambda b: next(b.lua.eval("function(o) o() coroutine.yield(1) end").coroutine(Items())),
    "LuaObject": lambda b: b.lua.eval("newproxy()") is not None,
    "LuaObject-equal": lambda b: comes_back_as_itself(b.lua, b.table) if b.host is None else True,
    "Lua-iter": lambda b: b.lua.execute("local s = 0 for x in python.iter(...) do s = s + x end return s", Items(1, 2)),
    "Lua-iterex": lambda b: b.lua.execute(
        "local s = 0 for a, x in python.iterex(...) do s = s + x end return s", [(1, 2)]),
    "Lua-enumerate": lambda b: b.lua.execute(
        "local s = 0 for i, x in python.enumerate(...) do s = s + i * x end return s", Items(1, 2)),
    "Lua-python_eval": lambda b: b.lua.eval("python.eval('1 + 1')"),
    "Lua-python_tensor": lambda b: b.lua.eval("python.tensor(...):get(1, 2)", noisy()),
    "Lua-python_args": lambda b: b.lua.eval("(...)(1, python.args{x = 2})", Items()),
    "Lua-as_function": lambda b: b.lua.eval("python.as_function(...)(4)", Items()),
    "Lua-builtins": lambda b: b.lua.eval("python.builtins.len(...)", Items(1, 2)),
    "Lua-holds_tensors": lambda b: b.lua.execute("held = ... held = nil collectgarbage()", b.t.copy()),
    "Lua-scope": lambda b: b.lua.execute(
        "local mf, t = require 'moonferry', ... return mf.scope(function(s) return mf.zeros({2}):get(0) end)", b.t),
}  # fmt: skip


def in_a_field(table, t):
    table.x = t
    found = table.x
    del table.x
    return found


def _syntax(b):
    try:
        b.lua.compile("x = = 1")
    except mf.LuaSyntaxError as error:
        return error


META = """
local o = ...
local function ask(_, key) return o(key) end
return setmetatable({}, {__index = ask, __call = ask, __eq = function() return o(true) end})
"""


def _meta(b):
    table = b.lua.execute(META, Items())
    return table.anything, table(4), table == table


TENSORS = {**MAKE, **RING, **VIEWS, **ELEMENTS, **EXCHANGE, **PROTOCOLS}
TENSORS_IN_LUA = {"py.call-tensor", "py.into", "py.main", "py.numpy", "py.stream", "py.tensor"}
LUA = {**LUA, **LUA_PROTOCOLS}
PYTHON = {**TENSORS, **LUA}
PYTHON_ON_DEVICE = {**PYTHON, **DEVICE}

# They catch what an event raises, or show whether they have caught it.
CATCHES = {"Lua.execute-catches", "Lua.execute-error", "Lua.execute-error_text", "Lua.execute-error_of_an_object"}
CATCHES |= {
    "Lua.execute-exception",
    "Lua.sandbox",
    "Lua.memory",
    "Lua.eval-a_new_tensor",
    "mf.scope-error",
    "py.call-error",
    "py.call-lua_error",
}
CATCHES |= {"py.with-error", "py.raise", "t:invalidate", "mf.with_stream-error"}
CATCHES |= {"Lua.execute-strange_error", "LuaError"}
# They say what a tensor is, or that it is none any more.
ASK_WHETHER = {"Tensor.__repr__", "mf.is_tensor", "t:tostring", "lua_type", "LuaTable-tensor_fields", "t:close"}
# Tensors are Lua's in them.
LUA_HAS_TENSORS = {"Lua.eval-a_tensor", "Lua.eval-a_new_tensor", "Lua-python_tensor", "Lua-holds_tensors", "Lua-scope"}
LUA_HAS_TENSORS |= {"LuaTable-tensor_fields"}
# They have a struct between two calls that is nobody's yet: an error between these loses it (moonferry.h: the taker
# calls the deleter).
OWE = {"mf.from_dlpack", "mf.from_dlpack-legacy", "mf.from_dlpack-foreign", "mf.from_handle", "t:to_dlpack"}
OWE |= {"t:to_dlpack-options", "t:to_dlpack-foreign", "t:to_dlpack_legacy"}

# Public names that no operation stands for.
LEFT_OUT = {
    "Ledger, PoolStats": "what ledger and pool_stats return",
    "DriverError, ExchangeError, LuaError, LuaSyntaxError, LuaMemoryError, LuaInterrupt": "raised by others",
    "get_include, get_lua_path": "a path that was there before",
    "Ring.hold": "needs a fence, a C struct (specs/python/test_ring.py)",
    "LuaRuntime, LuaCoroutineFunction": "another name of Lua, and LuaFunction's methods",
    "LUA_VERSION, LUA_MAXINTEGER, LUA_MININTEGER": "numbers",
}


def uses_lua(name):
    """Whether an operation of Python's has anything to do with a state."""
    return name in LUA


def public_names():
    """Those of the package that are no dtypes, and of the classes."""
    names = {name for name in mf.__all__ if not isinstance(getattr(mf, name), mf.DType)} | set(luajit.__all__)
    for kind in (mf.Tensor, mf.Stream, mf.Lua, mf.Ring):
        names |= {f"{kind.__name__}.{n}" for n in vars(kind) if not n.startswith("_") and callable(getattr(kind, n))}
    return names


def without_operation():
    """The public names that the table lacks. `x_y` may stand in several operations: x_y, x_y-of_a_sort."""
    covered = {name.partition("-")[0] for name in PYTHON_ON_DEVICE}
    told = {name for names in LEFT_OUT for name in names.split(", ")}
    both = {"Lua.get_memory_used", "Lua.get_max_memory", "Lua.set_max_memory", "Stream.query", "as_itemgetter"}
    text = {"Lua.memory", "Stream", "Lua.execute"}
    return public_names() - covered - told - (both if text <= covered else set()) - {"Tensor"}
