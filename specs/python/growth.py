"""Calls that must leave nothing behind, each many times: prints the bytes that each has left, as JSON.

A program of its own (test_memory.py), because the count is exact only in a process that began with allocated.EXACT.
Its arguments are the names of the calls; without any it prints all names, and which library each needs.
"""

import copy
import gc
import importlib
import inspect
import json
import pickle
import sys
from pathlib import Path

import numpy as np

import moonferry as mf
from growth_objects import (
    LEFT_OPEN,
    READ,
    Always,
    Half,
    Manager,
    Named,
    Odd,
    Sizeless,
    Taker,
    Unprintable,
    Whole,
    closed_tensor,
    cycle,
    entered_twice,
    fresh,
    given_to_takers,
    on_a_new_thread,
    raising,
    refused,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import allocated  # noqa: E402

t, a = mf.zeros((4, 3), "float64"), np.zeros((4, 3))
many_axes = np.zeros((1,) * 30)
lua = mf.Lua()
call_back = lua.eval("function(f, x) return f(x) end")
fails = lua.eval("function() error('no') end")
table, hashed, long_table = lua.table(1, 2, 3), lua.table(a=1, b=2), lua.table_from(list(range(300)))


def began(step="coroutine.yield(1)"):
    coroutine = lua.eval(f"function() while true do {step} end end").coroutine()
    next(coroutine)
    return coroutine


def library(name):
    """Imported when it is first asked for, so that what is not measured is not loaded."""
    return importlib.import_module(name)


class Old:
    """A producer from before the keywords; where it is told, it fails at first."""

    def __init__(self, fails=None):
        self.fails = fails

    def __dlpack__(self, stream=None):
        if self.fails:
            raise self.fails
        return t.__dlpack__()

    def __dlpack_device__(self):
        return tuple(map(int, "10"))


def called(function, arguments):
    """A call with arguments that are made anew each time."""
    return lambda: function(*(make() for make in arguments))


def in_lua(code, *arguments):
    """Code of moonferry.Lua's, compiled once."""
    return called(lua.eval(f"function(...) {code} end"), arguments)


hosting = mf.Lua()
hosting.execute('mf = require "moonferry" py = require "moonferry.python"')


def in_hosting(code, *arguments):
    """Code of moonferry.python's, which is there too where Python hosts Lua."""
    return called(hosting.eval(f"function(...) {code} end"), arguments)


def other_state(code="return 1", *arguments, **options):
    return lambda: mf.Lua(**options).eval(f"function(...) {code} end")(*(make() for make in arguments))


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
    "views": lambda: (t.T[1:, None].expand_dims(0), t.permute_dims([1, 0])),
    "into": lambda: mf.into(mf.Tensor, t),
    "asarray": lambda: np.asarray(t),
    "attributes": lambda: (t.shape, t.strides, t.dtype, t.device, t.nbytes),
    "assignment": lambda: t.__setitem__(0, a[0]),
    "values": lambda: (t.tolist(), t[0, 0], mf.zeros(999)[int("900")]),
    "nested values": lambda: mf.tensor([[1, 2], [3, 4]], "int8"),
    "pickle": lambda: pickle.loads(pickle.dumps(t, 5)),
    "text": lambda: (repr(t), str(t)),
    "refused import": lambda: (refused(mf.from_dlpack, 3), refused(mf.from_dlpack, cuda())),
    "refused export": lambda: (refused(t.__dlpack__, dl_device=(2, 0)), refused(t.__dlpack__, 1)),
    "refused shape and index": lambda: (refused(t.reshape, (5, 5)), refused(t.__getitem__, (9, 9))),
    "refused nested values": lambda: (refused(mf.tensor, [[1, 2], [3]]), refused(mf.tensor, json.loads(deep))),
    "refused buffer and taker": lambda: (refused(mf.frombuffer, b"123", "float64"), given_to_takers(t)),
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
    "a Lua state that wraps": other_state("x = require'moonferry'.wrap(require'ffi'.new('char[4]'), 4, 'int8')"),
    "a Lua state that is in itself": lambda: [s.globals().__setitem__("x", [s]) for s in [mf.Lua()]],
    "a Lua state that two threads were in": lambda: entered_twice(mf.Lua()),
    "a Lua state in which a scope was left open": other_state(LEFT_OPEN),
    "floats and bytes to Lua and back": lambda: call_back(lambda x: bytes(3000), call_back(lambda x: x / 3, 0.1)),
    "an error of a class that is new": lambda: refused(call_back, raising(fresh()), t),
    "an error that Lua reads": in_lua(READ, lambda: raising(fresh()("no"))),
    "an error that cannot be printed": in_lua(READ, lambda: raising(Unprintable())),
    "an error whose notes are none": lambda: refused(call_back, raising(type("E", (Exception,), {"__notes__": 1})), t),
    "an error of Lua's that is a table": lambda: refused(lua.eval("function() error({}) end")),
    "an error of Lua's that is no text": lambda: refused(lua.eval("function() error('\\255') end")),
    "an error of Lua's in a method of its own": lambda: refused(
        lua.eval("function() error(setmetatable({}, { __tostring = function() error 'no' end })) end")
    ),
    "an error of Lua's through Python": in_lua("return pcall(...)", lambda: lua.eval("function() error {} end")),
    "text of Lua's through Python": in_lua("return pcall(...)", lambda: lua.eval("function() error(('x'):rep(9)) end")),
    "text that Lua cannot read": lambda: refused(lua.execute, "this is ("),
    "a signature": lambda: inspect.signature(lua.eval("function(a, a, \u2192) end")),
    "a copy of a function": lambda: copy.deepcopy(fails),
    "fields": lambda: (
        table[1],
        hashed.a,
        hashed.nothing,
        hashed["b"],
        len(table),
        1 in table,
        table == hashed,
        table != 3,
        hash(table),
        repr(table),
        str(table),
        bool(table),
    ),
    "fields of new names": lambda: (setattr(hashed, "a", object()), getattr(hashed, f"n{id(object()) % 7}")),
    "refused fields": lambda: (
        refused(len, fails),
        refused(fails.__getattr__, "x"),
        refused(iter, fails),
        refused(table.__getitem__, slice(1)),
    ),
    "a length that is none": lambda: refused(
        len,
        lua.eval(
            "(function() local u = newproxy(true) getmetatable(u).__len = function() return -1 end return u end)()"
        ),
    ),
    "items": lambda: (list(table.items()), list(hashed.items()), list(hashed.values()), list(table)),
    "items that are objects": lambda: list(lua.table(object(), [], object()).items()),
    "tables": lambda: (lua.table_from({"a": [1], 2: object()}), lua.table(object(), x=object())),
    "a coroutine that is thrown a class": lambda: refused(began().throw, fresh()),
    "a coroutine that is thrown what makes none": lambda: refused(
        began().throw, type("E", (Exception,), {"__new__": lambda cls: [5]})
    ),
    "a coroutine that goes on": lambda: refused(began("pcall(function() coroutine.yield({}) end)").close),
    "a coroutine that is made in Lua": lambda: list(lua.eval("coroutine.create(function() coroutine.yield({}) end)")()),
    "arguments of Lua's": in_lua("return (...)(python.args { {}, 2, name = {} })", lambda: lambda *a, **k: [a, k]),
    "arguments that are wrong": in_lua("return pcall(python.args, { [1.5] = 1 })"),
    "getters": in_lua("local o = ... return python.as_attrgetter(o).fresh, python.as_itemgetter(o)[{}]", Odd),
    "a function of Python's": in_lua("return python.as_function(...)(1)", lambda: lambda x: [x]),
    "methods": in_lua("local o = python.as_attrgetter(...) return o:__len__(), o.__len__()", Odd),
    "fields of an object": in_lua("local o = python.as_attrgetter(...) o.field = {} return o.field, o.fresh", Odd),
    "fields that an object lacks": in_lua("return pcall(function(o) return python.as_attrgetter(o).no end, ...)", Odd),
    "operators": in_lua("local o = ... return o + 1, #o, o .. 'x', tostring(o), pcall(function() return -o end)", Odd),
    "loops": in_lua(
        "for x in python.iter(...) do end for i, x in python.enumerate(...) do end "
        "for a, b in python.iterex(...) do end",
        lambda: [(object(), [i]) for i in range(3)],
    ),
    "a loop that fails": in_lua(
        "return pcall(function(l) for x in python.iter(l) do end end, ...)", lambda: map(raising(fresh()), [1])
    ),
    "a call of a new thread": lambda: on_a_new_thread(lua.eval, "1"),
    "an int that no number holds": in_lua("return pcall(...)", lambda: lambda: 2**300),
    "an array that is asked for a name": in_lua("return pcall(function(a) return a.rows end, ...)", lambda: a),
    "an array": in_lua("return python.tensor(...)", lambda: a),
    "a tensor of Lua's": in_lua("return (require 'moonferry').zeros(3)"),
    "a tensor that is closed": lambda: refused(call_back, lambda x: x, closed_tensor()),
    "a state's text": lambda: (lua.compile("return 1"), lua.globals(), lua.lua_implementation),
    "a state that converts tuples": other_state(
        "return (...)()", lambda: lambda: (1, [2]), unpack_returned_tuples=True
    ),
    "a state with a filter": other_state(
        "return pcall(function(o) o.x = 1 return o.x, o.y end, ...)", Taker, attribute_filter=lambda o, n, s: str(n)
    ),
    "a state with handlers": other_state(
        "local o = ... o.x = 1 return o.x", Taker, attribute_handlers=(lambda o, n: [n], lambda o, n, v: [v])
    ),
    "a state with an overflow handler": other_state(
        "return (...)()", lambda: lambda: 2**80, overflow_handler=lambda x: [x]
    ),
    "a state with another encoding": other_state("return (...)(('\\228'):rep(9))", lambda: str, encoding="latin-1"),
    "a state without an encoding": other_state("return (...)('a')", lambda: lambda x: x, encoding=None),
    "a state of little memory": lambda: refused(mf.Lua(max_memory=20000).eval, "string.rep('x', 1e6)"),
    "a state that is refused": lambda: (refused(mf.Lua, encoding="no such"), refused(mf.Lua, max_memory=-1)),
    "a sandbox": other_state("return pcall(...)", lambda: raising(fresh()), sandbox=True),
    "hosted: values": in_hosting(
        "return py.list { {}, 1 }, py.tuple { {} }, py.dict { a = {} }, py.bytes 'x', "
        "py.float(1), py.int(2), py.number(3), py.object(4)"
    ),
    "hosted: code": in_hosting("return py.eval('[x]', { x = {} }), py.exec('y = [1]', {}), py.import 'math'"),
    "hosted: items": in_hosting("local d = py.dict {} py.set(d, 'a', {}) py.get(d, 'a') py.delete(d, 'a') return #d"),
    "hosted: refused items": in_hosting("local d = py.dict {} return pcall(py.get, d, 'a'), pcall(py.delete, d, 'a')"),
    "hosted: loops": in_hosting(
        "for x in py.iter(...) do end for a, b in py.each(...) do end return py.unpack(...)",
        lambda: [(object(), [i]) for i in range(3)],
    ),
    "hosted: items of a mapping": in_hosting("for k, v in py.items(...) do end", lambda: {"a": object(), 2: []}),
    "hosted: calls": in_hosting(
        "local f = ... return py.call(f, { {} }, { x = {} }), f(1, py.kw { y = {} }), py.call(f)",
        lambda: lambda *a, **k: [a, k],
    ),
    "hosted: a manager": in_hosting(
        "local m = ... py.with(m, function(x) return x end) "
        "return pcall(py.with, m, function() error {} end), pcall(py.with, 1, print)",
        lambda: Manager(),
    ),
    "hosted: errors": in_hosting(READ, lambda: raising(fresh()("no"))),
    "hosted: raise": in_hosting("return pcall(py.raise, (...), 'x'), pcall(py.raise, (...)('y'))", fresh),
    "hosted: close": in_hosting("local o = ... local m = o.fresh py.close(m) py.close(o)", Odd),
    "hosted: methods": in_hosting("local o = py.list {} o:append(o.copy) local c = o.copy return c(o)"),
    "hosted: a scope": in_hosting("return py.scope(function(s) py.list {} return s:keep(py.list { 1 }) end)"),
    "hosted: a scope that fails": in_hosting(
        "local f = ... return pcall(py.scope, function(s) py.list {} f() end)", lambda: raising(fresh())
    ),
    "hosted: live": in_hosting("return py.mapping { a = 1 }, py.sequence { 1 }, py.iterator(function() end)"),
    "hosted: tensors": in_hosting("return py.tensor(...), py.object(mf.zeros(3)).shape", lambda: a),
    "hosted: 64 bits": in_hosting("return py.int64(3), py.uint64(4), pcall(py.int64, (...))", lambda: "no"),
    "old producers": lambda: (
        mf.from_dlpack(Old()),
        refused(mf.from_dlpack, Old(TypeError("no"))),
        refused(mf.from_dlpack, Old(fresh()())),
        mf.from_dlpack(Old(), device="cpu", copy=True),
    ),
    "Arrow": lambda: (
        flat.__arrow_c_array__(),
        flat.__arrow_c_schema__(),
        t.__arrow_c_array__(),
        truth.__arrow_c_array__(),
        t.T.__arrow_c_device_array__(),
        refused(mf.zeros(()).__arrow_c_array__),
    ),
    "numbers": lambda: (
        float(one),
        int(one),
        bool(one),
        complex(one),
        one.item(),
        refused(float, t),
        [0] * int(whole),
        refused(whole.fill, 2**40),
        refused(whole.fill, 1j),
        refused(whole.fill, float("nan")),
    ),
    "numbers of others": lambda: (mf.full((2,), np.float32(3)), one.fill(np.float64(2)), mf.tensor(np.int8(1))),
    "dtypes": lambda: (
        mf.zeros(1, np.dtype("int8")),
        t.astype("float32"),
        refused(t.astype, "no"),
        refused(mf.zeros, 1, 5),
    ),
    "shapes": lambda: (
        mf.zeros([2, 3]),
        refused(mf.zeros, [[2]]),
        refused(mf.zeros, 2 ** int("70")),
        t.broadcast_to((2, 4, 3)),
        refused(t.reshape, 1, 2, 3, no=1),
    ),
    "devices": lambda: (
        t.device,
        mf.zeros(1, device=Named()),
        refused(mf.zeros, 1, device="no"),
        refused(t.to, 5),
        refused(mf.zeros, 1, device="float32"),
        t.to("cpu"),
        t.to("cpu", copy=True),
    ),
    "a copy that is watched": lambda: (
        t.copy(progress=lambda *_: object()),
        t.copy(a, progress=lambda *_: object()),
        refused(t.copy, progress=raising(fresh())),
    ),
    "equality": lambda: (mf.equal(t, a), mf.equal(t, t.T), refused(mf.equal, t, "no"), refused(mf.equal, 1, 2)),
    "assignments": lambda: (
        t.__setitem__(slice(2), [[1, 2, 3]] * 2),
        t.__setitem__(0, [[1, 2, 3]]),
        refused(t.__setitem__, 0, [1, 2]),
        refused(t.__setitem__, (9, 9), 1),
    ),
    "a ring": lambda: (
        lambda ring: (
            ring.slots,
            ring.begin(),
            ring.publish(),
            ring.latest(),
            ring.into(np.asarray),
            repr(ring),
            mf.Ring.from_handle(ring.handle),
        )
    )(mf.Ring((4,))),
    "a ring of tensors": lambda: mf.Ring([mf.zeros(2), mf.zeros(2)]),
    "a ring that is refused": lambda: (
        refused(mf.Ring, [mf.zeros(2), 1]),
        refused(mf.Ring, (4,), slots=0),
        refused(mf.Ring, [t, t]),
        refused(mf.Ring((1,)).into, raising(fresh())),
        refused(mf.Ring((1,)).done, 5),
    ),
    "buffers": lambda: (
        mf.asarray(odd_strides),
        refused(mf.frombuffer, b"abc", "int8", 9),
        bytes(t),
        np.asarray(t.T),
        refused(memoryview, mf.zeros(3, "bfloat16")),
        mf.wrap(t.data_ptr, (2,), "float64", owner=object()),
    ),
    "interfaces": lambda: (mf.asarray(Interface()), t.__array_interface__, refused(lambda: t.__cuda_array_interface__)),
    "read-only": lambda: (
        t.as_readonly(),
        refused(t.as_readonly().__dlpack__),
        t.as_readonly().__dlpack__(max_version=(1, 3)),
    ),
    "a table that can be called": lambda: lua.eval("setmetatable({}, { __call = function(_, x) return x end })")([1]),
    "an error of Lua's back in Lua": in_lua("return pcall(...)", lambda: lambda: fails()),
    "an error of Lua's back in Lua, nil": in_lua("return pcall(...)", lambda: lambda: lua.eval("error")(None)),
    "an error of Lua's back in Lua, a table": in_lua(
        "return pcall(...)", lambda: lambda: lua.eval("error")(lua.table())
    ),
    "a function in a class": lambda: [type("C", (), {"f": fails}).f for _ in range(5)],
    "a length above what is cached": lambda: len(long_table),
    "a coroutine that begins with something": lambda: next(lua.eval("coroutine.yield").coroutine([1], object())),
    "a coroutine that is thrown something at first": lambda: refused(
        lua.eval("function() end").coroutine([1], object()).throw, ValueError
    ),
    "a coroutine that is its own argument": lambda: cycle(lua.eval("function() end").coroutine),
    "arguments that are in themselves": lambda: cycle(lua.eval("function(x) return python.args { x, name = x } end")),
    "a view that is in itself": lambda: (cycle(mf.luajit.as_attrgetter), mf.luajit.as_itemgetter(object())),
    "names that nobody used before": in_lua(
        "local o = python.as_attrgetter(...) "
        "for i = 1, 9 do pcall(function() return o[('n%09d'):format(math.random(1e9) - 1)] end) end",
        Odd,
    ),
    "a state that knows names": lambda: [lua_state.globals()[name] for lua_state in [mf.Lua()] for name in ["xyz"] * 5],
    "a field that is a float": in_lua("local o = python.as_attrgetter(...) for _ = 1, 3 do local _ = o.ratio end", Odd),
    "an array as an object": lambda: call_back(lambda x: x, np.zeros(100)),
    "an object that has no size": lambda: call_back(lambda x: x, Sizeless()),
    "hosted: a manager and an exception": in_hosting(
        "return pcall(py.with, ...)", lambda: Manager(), lambda: raising(fresh())
    ),
    "hosted: an error of Lua's, nil": in_hosting("return pcall(py.eval 'lambda f: f()', function() error() end)"),
    "a producer that always fails": lambda: (refused(mf.from_dlpack, Always()), refused(mf.asarray, Always())),
    "what is refused": lambda: (refused(mf.from_dlpack, Old(), copy=False), refused(mf.zeros, 1, 2, 3, 4, 5)),
    "keywords of an export": lambda: (t.__dlpack__(copy=True), t.__dlpack_device__(), t.__dlpack__(dl_device=(1, 0))),
    "numbers of odd objects": lambda: (one.fill(Half()), mf.ones(1).fill(Whole()), refused(whole.fill, Whole())),
    "tensors of their own": lambda: (mf.zeros(5).tolist(), mf.zeros(3).to("cpu"), float(mf.ones(1)), mf.equal(a, t)),
    "memory that is refused": lambda: (
        refused(mf.wrap, t.data_ptr, (-1,), "int8", owner=object()),
        refused(mf.frombuffer, 5),
        refused(mf.tensor, [300], "int8"),
        refused(mf.ones, 3, "float32x4"),  # made, but not filled
    ),
    "a list that Lua takes for an array": in_lua("return python.tensor(...)", lambda: [1.5, 2.5]),
    "a ring without a free slot": lambda: [
        (r.begin(), r.publish(), r.latest(), refused(r.begin, 0.001)) for r in ring()
    ],
    "torch through the table": lambda: mf.into(library("torch").Tensor, mf.from_dlpack(library("torch").zeros(4))),
    "torch through the method": lambda: library("torch").from_dlpack(t),
    "tvm through the table": lambda: library("tvm_ffi").get_global_func("testing.echo")(t),
}


def ring():
    with mf.Ring(2, "float32", 1) as made:
        yield made


flat, truth, one, whole = mf.zeros(6, "float32"), mf.zeros(9, "bool"), mf.ones((1, 1)), mf.tensor(3, "int8")
cuda, deep = type("Cuda", (), {"__cuda_array_interface__": {}}), "[" * 70 + "]" * 70
odd_strides = np.zeros(5, np.dtype([("a", "i4"), ("b", "i1")]))["a"]


class Interface:
    __array_interface__ = property(lambda self: a.__array_interface__)


# A library, or a bound of its own.
NEEDS = {"torch through the table": "torch", "torch through the method": "torch", "tvm through the table": "tvm"}
NEEDS["a call of a new thread"] = "a bound"


def fill_caches():
    """The bridge keeps as many references as Lua ever had at once, and some names: have many."""
    lua.eval("function(make) local all = {} for i = 1, 20000 do all[i] = make() end end")(object)
    for _ in range(3000):
        CALLS["names that nobody used before"]()


def settle():
    """Each language may hold what keeps something of the other."""
    for _ in range(2):
        allocated.collect()
        for state in (lua, hosting):
            state.execute("collectgarbage() collectgarbage()")
    allocated.collect()


# A free reference is a number there.
COUNT = """function()
  local count = 0
  for _, value in pairs(debug.getregistry()) do
    count = count + (type(value) ~= "number" and 1 or 0)
  end
  return count
end"""
in_registry = lua.eval(COUNT), hosting.eval(COUNT)
VALUES = [lua, table, hashed, fails, began(), iter(table), lua.eval("coroutine.create(function() end)"), t, t.dtype]
KINDS = [inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL, mf.LuaError, mf.LuaSyntaxError, mf.Ring]
MODULES = [library(f"moonferry.{name}") for name in ("_convert", "_flags", "_format", "_dtype")]
SHARED = [
    *MODULES,
    t.dtype,
    t.__dlpack_device__(),
    np.dtype("float32"),
    library("moonferry._dtype").resolve(np.dtype("int8")),
    lua,
    hosting,
    fails,
    *(None, NotImplemented, type, TypeError, "a", "\n", "fresh", inspect),
    *KINDS,
    *map(type, VALUES),
]


def references():
    """In Lua's registries, whose memory is not malloc's, and to what all calls share, which are no bytes."""
    return sum(count() for count in in_registry) + sum(map(sys.getrefcount, SHARED))


def left_by(once):
    """The bytes that calls leave, and the references."""
    once()  # which may import what it needs
    settle()
    before = references()
    nbytes = allocated.left_by(once, settle)
    return nbytes + abs(references() - before)


def main(names):
    if not names:
        print(json.dumps({name: NEEDS.get(name) for name in CALLS}))
        return
    fill_caches()
    gc.collect()
    gc.freeze()  # what the imports have made need not be walked each time
    print(json.dumps({name: left_by(CALLS[name]) for name in names}))


if __name__ == "__main__":
    main(sys.argv[1:])
