"""CPython's memory that ends inside of the bridge: each allocation of an operation fails in turn."""

import ctypes
import functools
import gc
import itertools
import os
import subprocess
import sys

import pytest

import moonferry as mf
import scarce
from scarce import allocated

# Those that give Lua several objects collect first, so that what is kept for the next one grows no more.
DEFINED = """
function wide(f) return f(1152921504606846976LL) end
function add(a, b) return a + b end
function same(...) return ... end
function call(f, x) return f(x) end
function boom() error("x") end
function inside(x) local ok, e = pcall(x) return ok end
function pair(first, other) return { first, x = other } end
function long(last) local list = {} for i = 1, 258 do list[i] = 1 end list[259] = last return list end
function packs(f)
  collectgarbage()
  return f("text", python.args { 2.5, x = {}, a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7 }, python.args { y = 5 })
end
function moves(o)
  collectgarbage()
  o = python.as_attrgetter(o)
  return o:move(2), o.move(3), o.move(python.args { o, 4 })
end
function stores(o)
  collectgarbage()
  o.field, o[("long"):rep(20)] = {}, 7
  return o.field, o[("long"):rep(20)], tostring(o)
end
function loops(o)
  collectgarbage()
  local sum = 0
  for x in python.iter(o) do sum = sum + x end
  for i, x in python.enumerate(o) do sum = sum + i + x end
  for a in python.iterex(o) do sum = sum + a end
  return sum
end
function yields(...) coroutine.yield(...) end
py = require "moonferry.python"
for _ = 1, 1000 do py.list {} end -- what stands for an object of Python's is used again, and is at hand from here on
collectgarbage()
function copied() return tostring(py.list { 1.5, "text", { a = { 2 ^ 60 } } }) end
function looped()
  for _ in py.each(py.list { py.tuple { 1, 2 }, "text" }) do end
  return py.unpack(py.list { 1, 2 })
end
function scoped() return py.scope(function(s) py.list {} return s:keep(py.list { 1 }) end) end
values = {1, 2, 3, x = 5}
callable = setmetatable({}, {__call = function(self, x) return x end})
"""


# Made once: from 3.12 on CPython frees memory twice where a new function has no memory.
def packed(x):
    return [x]


def takes(*args, **kwargs):
    return args, kwargs


class Point:
    def move(self, by):
        return by + 300


def has_moved(got):
    assert got == (302, 303, 304)


def has_arguments(got):
    args, kwargs = got
    assert args == ("text", 2.5) and kwargs.keys() == set("abcdefgxy") and kwargs["y"] == 5


def has_gone_round(total):
    assert total == 3 * 700 + 1


def is_beyond(call, n):
    try:
        call(n)
    except OverflowError as error:
        assert "of -1 bits" not in str(error)
        return
    raise AssertionError(f"{n} went through")


def failing():
    {}["x"]


OPERATIONS = {
    "a call": lambda g: g.add(1, 2),
    "a call of a table": lambda g: g["callable"](1),
    "a text": lambda g: g.same("text" * 10),
    "bytes": lambda g: g.same(b"bytes" * 10),
    "a tensor": lambda g: g.same(g.tensor),
    "tensors, where the memory of no dead one is at hand": lambda g: with_none_at_hand(g),
    "an object": lambda g: g.same(object()),
    "a list": lambda g: g.same([1, 2]),
    "several results": lambda g: g.same(1, "a", None, True),
    "a call back": lambda g: g.call(packed, 5),
    "a call back that calls": lambda g: g.call(g.one_more, 5),
    "a call back with an integer of the FFI": lambda g: g.wide(packed),
    "a call back that fails": lambda g: g.inside(failing),
    "a field": lambda g: g["values"].x,
    "an item": lambda g: g["values"][1],
    "a length": lambda g: len(g["values"]),
    "the keys": lambda g: list(g["values"]),
    "the items": lambda g: list(g["values"].items()),
    "the items with tensors": lambda g: list(g.pair(mf.zeros(2), mf.zeros(2)).items()),
    "the last items of a long list": lambda g: list(g.long(mf.zeros(2)).items()),
    "the values with tensors": lambda g: list(g.pair(mf.zeros(2), mf.zeros(2)).values()),
    "results with tensors": lambda g: g.same(mf.zeros(2), mf.zeros(2)),
    "a coroutine with tensors": lambda g: list(g.yields.coroutine(mf.zeros(2))),
    "a new field": lambda g: g["values"].__setitem__("q", 7),
    "an error": lambda g: error_of(g.boom),
    "an error of Lua's back in Lua": lambda g: g.inside(g.fails),
    "arguments that are packed": lambda g: has_arguments(g.packs(takes)),
    "methods": lambda g: has_moved(g.moves(g.point)),
    "fields of an object": lambda g: g.stores(Point()),
    "items of an object": lambda g: g.stores({}),
    "loops": lambda g: has_gone_round(g.loops([300, 400])),
    "views": lambda g: (g.same(mf.as_attrgetter([])), g.same(mf.as_itemgetter([]))),
    "an int that no number holds": lambda g: is_beyond(g.same, 2**300),
    "arguments that a table means": lambda g: has_arguments(g.unpacked(g.meant)),
    "an expression": lambda g: g.state.eval("{...}", 1, 2, 3),
    "a chunk": lambda g: g.state.execute("return 5"),
    "a syntax error": lambda g: error_of(g.state.execute, "x x"),
    "a function": lambda g: g.state.eval("function(x) return x end")(3),
    "a new tensor": lambda g: g.state.execute("return require('moonferry').zeros({2, 2})"),
    "copies of moonferry.python": lambda g: g.copied(),
    "loops of moonferry.python": lambda g: g.looped(),
    "a scope of moonferry.python": lambda g: g.scoped(),
    "another state": lambda g: mf.Lua().eval("1"),
    "a name that is read again in another state": lambda g: [
        *map(mf.Lua().eval("{name = 7}").__getitem__, ["name"] * 3)
    ],
    "a state with options": lambda g: has_its_options(
        mf.Lua(encoding="latin-1", source_encoding="utf-8", interruptible=True, max_memory=10**6)
    ),
}


def with_none_at_hand(g):
    held, tensor = list(map(mf.empty, [0] * 20)), mf.zeros(2)  # no comprehension: CPython loses its list
    return g.same(tensor), g.same(tensor), g.state.execute("return require('moonferry').zeros({2})"), len(held)


def has_its_options(state):
    assert state.eval("'\\228'") == "\xe4" and state.get_max_memory() == 10**6


def error_of(call, *arguments):
    try:
        call(*arguments)
    except mf.LuaError as error:
        return str(error)


class Names:
    """The globals of a state, by attribute; and what else an operation needs."""

    def __init__(self):
        self.state = mf.Lua()
        self.state.execute(DEFINED)
        self.globals, self.point = self.state.globals(), Point()
        self.tensor = mf.zeros((2, 3))
        self.unpacked, self.meant = (
            mf.unpacks_lua_table(takes),
            self.state.table("text", 2.5, **dict.fromkeys("abcdefgxy", 5)),
        )
        self.one_more = lambda x: self.add(x, 1)
        self.fails = lambda: self.boom()

    def __getitem__(self, name):
        return self.globals[name]

    def __getattr__(self, name):
        return self.globals[name]

    def collect(self):
        for _ in range(3):
            self.state.gccollect()
            gc.collect()


def scarce_calls():
    """For scarce.py: the operations, each with the errors that say that it had no memory; and what collects garbage."""
    g = Names()

    def settle():
        g.collect()
        scarce.allocated.collect()

    return {name: (functools.partial(operation, g), MemoryError) for name, operation in OPERATIONS.items()}, settle


def operate_without_memory():
    from _testcapi import remove_mem_hooks, set_nomemory

    g = Names()
    for name, operation in OPERATIONS.items():
        operation(g)
        g.collect()
        before, nth = mf.ledger(), -1
        while True:
            nth += 1
            set_nomemory(nth, nth + 1)
            try:
                operation(g)
                break
            except MemoryError:
                continue
            finally:
                remove_mem_hooks()
        g.collect()
        assert mf.ledger() == before, name
        assert g.add(1, 2) == 3, name
        print(name, nth)


def printed_by(function, env=None):
    """What a function of this file prints in a process of its own."""
    command = [sys.executable, "-X", "faulthandler", "-c", f"import test_lua_fault as t; t.{function.__name__}()"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=os.path.dirname(__file__), timeout=300, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_each_allocation_of_cpython_s_fails_in_turn():
    pytest.importorskip("_testcapi")
    assert len(printed_by(operate_without_memory).splitlines()) == len(OPERATIONS)


# Other versions of CPython lose frames of its own.
WHOSE = ["modules", "runtime", *(["cpython"] if sys.version_info[:2] == (3, 11) else [])]


@pytest.mark.parametrize("whose", WHOSE)
def test_what_fails_leaves_nothing(whose):
    """Each allocation many times, the runtime's, CPython's and what the module asks malloc for: counted to the byte."""
    if whose == "cpython":
        pytest.importorskip("_testcapi")
    assert scarce.left("test_lua_fault", whose) == {name: {} for name in OPERATIONS}


def iterate_without_memory():
    """The texts of a list, with their indices, of which those above 256 are new objects. Calls of which the same
    allocation fails leave less than an object each."""
    from _testcapi import remove_mem_hooks, set_nomemory

    g, rounds = Names(), 30
    texts = g.state.eval("(function() local t = {} for i = 1, 260 do t[i] = 'the text ' .. i end return t end)()")

    def iterate():
        set_nomemory(nth, nth + 1)
        try:
            for _ in texts.items():
                pass
        except MemoryError:
            pass
        finally:
            remove_mem_hooks()

    for nth in (*range(0, 250, 25), *range(250, 270)):
        assert allocated.blocks_left_by(iterate, g.collect, rounds) < rounds // 2, nth


def test_an_iteration_that_has_no_memory_leaves_no_object():
    pytest.importorskip("_testcapi")
    printed_by(iterate_without_memory)


def step_without_memory():
    """A step whose pair has no memory, with an index above 256 and a text, which are new objects."""
    from _testcapi import remove_mem_hooks, set_nomemory

    g, rounds, failed = Names(), 30, set()
    texts = g.state.eval("(function() local t = {} for i = 1, 260 do t[i] = 'the text ' .. i end return t end)()")

    def step():
        items = texts.items()
        all(itertools.islice(items, 258))
        held = [(n, n) for n in range(3000)]  # so many that CPython has no dead pair at hand
        set_nomemory(nth)  # two arguments would be a pair, which is dead then
        try:
            next(items)
        except MemoryError:
            failed.add(nth)
        finally:
            remove_mem_hooks()
        held.clear()

    for nth in range(3):
        assert allocated.blocks_left_by(step, g.collect, rounds) < rounds // 2, nth
    assert failed == {0, 1, 2}


def test_a_step_that_has_no_memory_leaves_no_object():
    pytest.importorskip("_testcapi")
    printed_by(step_without_memory)


COUNT = """function()
  local count = 0
  for _, value in pairs(debug.getregistry()) do count = count + (type(value) ~= "number" and 1 or 0) end
  return count
end"""


def hold_without_memory():
    """Objects of Lua values that Python has no memory for, each kind many times."""
    from _testcapi import remove_mem_hooks, set_nomemory

    g = Names()
    count = g.state.eval(COUNT)
    for kind in ("{}", "function() end", "newproxy()", "coroutine.create(print)", "coroutine.create(yields)"):
        make, failed = g.state.eval(f"function() return {kind} end"), 0
        make()
        g.collect()
        before = count()
        for nth in range(8):
            for _ in range(20):
                set_nomemory(nth, nth + 1)
                try:
                    make()
                except MemoryError:
                    failed += 1
                finally:
                    remove_mem_hooks()
        g.collect()
        assert failed >= 20 and count() == before, (kind, failed, count(), before)


def test_a_value_that_python_has_no_memory_for_is_lua_garbage():
    pytest.importorskip("_testcapi")
    printed_by(hold_without_memory)


IMPORT_FAILED = 7


def import_without_memory():
    """Each allocation of the first import fails, in a fork of its own; the next import goes well."""
    import importlib.machinery
    from _testcapi import remove_mem_hooks, set_nomemory

    from moonferry import _hint, _options, _sandbox  # noqa: F401  which the forks need not import

    place = importlib.machinery.PathFinder.find_spec("moonferry._lua", mf.__path__)
    make, nth, well, status = sys.modules["_imp"].create_dynamic, -1, 0, 0
    gc.freeze()
    while well <= scarce.WELL:
        nth += 1
        if (child := os.fork()) == 0:
            try:
                set_nomemory(nth, nth + 1)
                try:
                    make(place)
                except (MemoryError, ImportError):
                    status = IMPORT_FAILED
                except SystemError as error:  # CPython makes a type without a word of what it lacked
                    assert "failed without raising an exception" in str(error)
                    status = IMPORT_FAILED
                finally:
                    remove_mem_hooks()
                if status == IMPORT_FAILED:
                    assert all(hasattr(module, "implementation") for module in of_name(place.name))  # the last name
                    uses_what_is_imported()
            except BaseException as error:
                print(nth, repr(error), file=sys.stderr, flush=True)
                status = 1
            os._exit(status)
        status = os.waitpid(child, 0)[1]
        assert status in (0, IMPORT_FAILED << 8), (nth, status)
        well = well + 1 if status == 0 else 0
    print(nth)


def of_name(name):
    """The modules that are there. CPython may keep one that is whole, which it could not note."""
    gc.collect()
    return [thing for thing in gc.get_objects() if type(thing) is type(gc) and thing.__name__ == name]


def uses_what_is_imported():
    lua = mf.Lua()
    table = lua.table(1, 2, keys=5)
    assert list(table.keys()) == [1, 2, "keys"] and table["keys"] == 5
    assert lua.eval("function(x) return x end")(7) == 7
    assert list(lua.eval("function(x) coroutine.yield(x) end").coroutine(7)) == [7]
    for code, kind in {"error {}": mf.LuaError, "x x": mf.LuaSyntaxError, "(...)()": KeyError}.items():
        try:
            lua.execute(code, {}.popitem)
        except kind as error:
            assert type(error) is kind
    from moonferry import _lua

    for kind in (_lua.LuaTable, _lua.LuaFunction, _lua.LuaCoroutineFunction, _lua.LuaThread):
        assert kind.__mro__[1:] == (_lua.LuaObject, object), kind
    assert _lua.LuaFunction.__iter__ is None and not hasattr(_lua.LuaError("x"), "no_such_field")
    error = _lua.LuaMemoryError("x")
    assert (error.value, error.traceback, error.message, isinstance(error, MemoryError)) == (None, None, None, True)


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="this CPython crashes where it has no memory for a type")
def test_an_import_that_had_no_memory_is_made_good_by_the_next():
    pytest.importorskip("_testcapi")
    assert int(printed_by(import_without_memory)) > 100


def open_without_memory():
    """Whichever allocation of a state's own fails, there is no state."""
    library, nth, opened = ctypes.CDLL(None), -1, False
    while not opened:
        nth += 1
        library.scarce_arm(nth)
        try:
            opened = mf.Lua(encoding="latin-1", interruptible=True, max_memory=10**6).eval("true")
        except MemoryError:
            opened = False
        failed = library.scarce_failed()
        library.scarce_arm(-1)
        assert opened == (failed == 0), nth
    print(nth)


def test_a_state_is_whole_or_was_never_there():
    assert int(printed_by(open_without_memory, scarce.preloaded())) > 3


LOADS = """
for name in pairs(package.loaded) do
  if name:match "^moonferry" then package.loaded[name] = nil end
end
for round = 1, 2 do -- memory that is used again, and is not all zeros
  local texts = {}
  for i = 1, 3000 do texts[i] = ("\\255"):rep(i % 128) .. i end
  texts = nil
  collectgarbage()
end
jit.off()
arm()
require "moonferry.python".list {}
"""


def load_without_memory():
    library, lua = ctypes.CDLL(None), mf.Lua()
    nth, failed = -1, 1
    while failed:
        nth += 1
        lua.globals().arm = functools.partial(library.scarce_arm, nth)
        try:
            lua.execute(LOADS)
        except (MemoryError, mf.LuaError) as error:
            assert "memory" in str(error)
        failed = library.scarce_failed()
        library.scarce_arm(-1)
        for _ in range(3):
            lua.gccollect()
            gc.collect()
    print(nth)


def test_a_bridge_is_whole_or_was_never_there():
    assert int(printed_by(load_without_memory, scarce.preloaded())) > 0


@pytest.mark.parametrize("use", ["a call", "a field"])
def test_wherever_luas_stack_ends_without_memory_the_answer_is_right_or_refused(use):
    lua = mf.Lua(max_memory=0)
    function, table, got = lua.eval("function() return 7 end"), lua.table(name=7), set()
    caller = lua.eval("function(f, n) local t = {} for i = 1, n do t[i] = i end return (f(unpack(t))) end")

    def ask(*arguments):
        lua.set_max_memory(1, total=True)
        try:
            return function() if use == "a call" else table.name
        except MemoryError:
            return "refused"
        finally:
            lua.set_max_memory(0)

    for count in range(300):
        got.add(caller(ask, count))
    assert got == {7, "refused"}
