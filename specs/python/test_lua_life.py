"""Who outlives whom: cycles through both heaps, states that go first, processes that end."""

import collections
import ctypes
import gc
import os
import subprocess
import sys
import weakref

import pytest

import moonferry as mf


class Thing:
    pass


class Held:
    nbytes = 1e6  # which the bridge weighs

    def __call__(self, *values):
        return self


def test_lua_values_keep_their_state():
    table = mf.Lua().eval("{1, 2, 3}")
    gc.collect()
    assert table[1] == 1 and list(table.values()) == [1, 2, 3]


DYING = {
    "a table": lambda: mf.Lua().eval("{}"),
    "a function": lambda: mf.Lua().eval("print"),
    "a coroutine": lambda: mf.Lua().eval("coroutine.yield").coroutine(1),
    "another value": lambda: mf.Lua().eval("newproxy()"),
    "a state": mf.Lua,
    "a ring": lambda: mf.Ring(3),
    "a tensor": lambda: mf.zeros(3),
}


@pytest.mark.parametrize("name", DYING)
def test_a_collection_while_it_dies_leaves_it_alone(name):
    """A weak reference's callback runs where the object is half gone."""
    told = []
    dying = DYING[name]()
    kept = weakref.ref(dying, lambda _: told.append(gc.collect()))
    del dying
    gc.collect()
    assert len(told) == 1 and kept() is None


def test_a_collection_while_an_iterator_dies_leaves_it_alone():
    table = mf.Lua().eval("{ 1, 2 }")
    gone = weakref.ref(table, lambda _: gc.collect())
    iterator = iter(table)
    next(iterator)
    del table
    del iterator
    gc.collect()
    assert gone() is None


def test_a_state_goes_with_its_last_value():
    lua = mf.Lua()
    gone = weakref.ref(lua)
    table = lua.eval("{}")
    del lua
    gc.collect()
    assert gone() is not None
    del table
    assert gone() is None


def test_lua_keeps_python_objects_and_lets_them_go():
    lua = mf.Lua()
    thing = Thing()
    gone = weakref.ref(thing)
    lua.globals().thing = thing
    del thing
    gc.collect()
    assert gone() is lua.globals().thing
    lua.globals().thing = None
    lua.gccollect()
    gc.collect()
    assert gone() is None


def test_lua_lets_go_of_the_only_value_that_python_has_dropped():
    lua = mf.Lua()
    lua.execute("weak = setmetatable({ debug.getinfo(1, 'f').func }, { __mode = 'v' })")
    lua.gccollect()
    assert lua.eval("weak[1]") is None


@pytest.mark.parametrize("fails", [False, True])
def test_objects_go_though_lua_never_calls_python(fails):
    """What Lua's collector has dropped goes with the next call into Lua; none here calls back."""
    lua = mf.Lua()
    call = lua.eval("function(x, fails) if fails then error(x) end end")
    kept = set()

    class Given(Exception):
        def __init__(self):
            kept.add(id(self))

        def __del__(self):
            kept.discard(id(self))

    def give():
        try:
            call(Given(), fails)
        except Given as error:
            error.__traceback__ = None

    for _ in range(100):
        give()
        lua.execute("collectgarbage() collectgarbage()")
        give()
        assert len(kept) <= 3


def make_cycle_of_state_and_function():
    lua = mf.Lua()
    lua.globals().f = lambda: lua.eval("1")
    return weakref.ref(lua)


def make_cycle_of_object_and_table():
    lua = mf.Lua()
    thing = Thing()
    thing.table = lua.table(thing)
    return weakref.ref(thing)


def make_cycle_through(**options):
    """Of each option that is True, in a pair too, a handler that has the state."""
    handler = Held()
    given = {name: tuple(h and handler for h in o) if type(o) is tuple else handler for name, o in options.items()}
    handler.lua = mf.Lua(**given)
    return weakref.ref(handler.lua)


def make_cycle_of_iterators_and_coroutines():
    lua = mf.Lua()
    thing = Thing()
    table = lua.table(thing, lua)
    thing.iterator = iter(table.values())
    next(thing.iterator)
    thing.coroutine = lua.eval("function(x) coroutine.yield(x) end").coroutine(thing)
    next(thing.coroutine)
    thing.waiting = lua.eval("function(x) coroutine.yield(x) end").coroutine(thing)
    return weakref.ref(thing)


def make_cycle_of_method_and_its_object():
    lua = mf.Lua()
    thing = sys.modules["a_thing"] = Thing()
    thing.lua, thing.method = lua, lambda: thing
    lua.execute("local thing = require('moonferry.python').import 'a_thing' method = thing.method")
    del sys.modules["a_thing"]
    return weakref.ref(thing)


def count_alive():
    """Weak references say nothing of what the collector has met and could not free: they are cleared before."""
    return collections.Counter(type(o) for o in gc.get_objects() if type(o) in (Thing, mf.Lua))


@pytest.mark.parametrize(
    "make",
    [
        make_cycle_of_state_and_function,
        make_cycle_of_object_and_table,
        lambda: make_cycle_through(attribute_filter=True),
        lambda: make_cycle_through(attribute_handlers=(True, None)),
        lambda: make_cycle_through(attribute_handlers=(None, True)),
        lambda: make_cycle_through(overflow_handler=True),
        make_cycle_of_iterators_and_coroutines,
        make_cycle_of_method_and_its_object,
    ],
)
def test_cycles_go_together_with_their_state(make):
    gc.collect()
    before = count_alive()
    gone = make()
    assert count_alive() != before
    gc.collect()
    assert gone() is None
    assert count_alive() == before


def test_a_state_in_a_cycle_gives_back_each_reference_once(monkeypatch):
    held = {name: Held() for name in ("filter", "getter", "setter", "overflow", "value", "source", "method")}
    held["source"].method = held["method"]
    monkeypatch.setitem(sys.modules, "a_source", held["source"])

    def make(**options):
        lua = mf.Lua(overflow_handler=held["overflow"], **options)
        lua.globals().value, lua.globals().itself = held["value"], Thing()
        lua.globals().itself.lua = lua
        lua.execute("method = require('moonferry.python').import('a_source').method")
        lua.globals().many = lua.table(*[Thing() for _ in range(1000)])

    def count():
        gc.collect()
        return [sys.getrefcount(object) for object in held.values()]

    before, nones = count(), sys.getrefcount(None)
    make(attribute_filter=held["filter"])
    make(attribute_handlers=(held["getter"], held["setter"]))
    assert count() == before
    assert abs(sys.getrefcount(None) - nones) < 500


def test_a_finalizer_may_use_the_state_that_goes():
    seen = []

    class Last:
        def __del__(self):
            seen.append(self.lua.eval("1 + 1"))

    last = Last()
    last.lua = mf.Lua()
    last.lua.globals().last = last
    del last
    gc.collect()
    gc.collect()
    assert seen == [2]


def test_finalizers_of_a_state_that_goes_fill_another():
    """What they give to the new state takes the places of what they were of the old one, one by one, and perhaps its
    memory. The new state's own cycles still go, and nothing goes before."""
    keep, gone = [], []

    class Last:
        def __del__(self):
            if not keep:
                keep.append(mf.Lua())
            for _ in range(2):
                thing = Thing()
                thing.lua = keep[0]
                gone.append(weakref.ref(thing))
                keep[0].globals()[len(gone)] = thing

    lua = mf.Lua()
    lua.execute("kept = {...}", *[Last() for _ in range(6)])
    del lua
    gc.collect()
    assert len(gone) == 12
    for number in range(1, 12, 2):
        keep[0].globals()[number] = None
    keep[0].gccollect()
    assert keep[0].eval("1") == 1
    assert [of() is None for of in gone] == [True, False] * 6
    keep.clear()
    gc.collect()
    assert [of() for of in gone] == [None] * 12


def test_a_method_keeps_its_object_no_longer_than_itself():
    lua = mf.Lua()
    thing = Thing()
    thing.method = lambda: 5
    gone = weakref.ref(thing)
    lua.execute("local thing = ... method = thing.method", thing)
    del thing
    gc.collect()
    lua.execute("method = nil")
    lua.gccollect()
    assert lua.eval("1") == 1
    assert gone() is None


def test_lua_finalizers_run_when_the_state_is_closed_and_cannot_call_python():
    called, said = [], ctypes.create_string_buffer(100)
    lua = mf.Lua()
    finalizer = """
        local f, address = ...
        local ffi = require "ffi"
        p = newproxy(true)
        getmetatable(p).__gc = function()
          local _, message = pcall(f, 1)
          ffi.copy(ffi.cast("char *", address), tostring(message))
        end"""
    lua.execute(finalizer, called.append, ctypes.addressof(said))
    del lua
    gc.collect()
    assert (called, said.value) == ([], b"this Lua state is being closed")


def run(code, **environment):
    command = [sys.executable, "-X", "faulthandler", "-c", code]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120)


ENDINGS = {
    "alive": "lua = moonferry.Lua(); t = lua.eval('{}'); lua.globals().f = lambda: lua",
    "exception": "import atexit; lua = moonferry.Lua(); atexit.register(lambda: lua.eval('1'))",
    "daemon": "import threading; lua = moonferry.Lua(); inside = threading.Event(); "
    "run = ('(...)() while true do end', inside.set); "
    "threading.Thread(target=lua.execute, args=run, daemon=True).start(); inside.wait()",
    "daemon in a callback": "import threading; lua = moonferry.Lua(); inside = threading.Event(); "
    "run = ('local f = ... while true do f() end', inside.set); "
    "threading.Thread(target=lua.execute, args=run, daemon=True).start(); inside.wait()",
    "os._exit": "import os; lua = moonferry.Lua(); os._exit(0)",
    "os.exit of Lua": "lua = moonferry.Lua(); lua.execute('os.exit(0)')",
    "fork": "import os; lua = moonferry.Lua(); pid = os.fork()\n"
    "assert lua.eval('1 + 1') == 2\nif pid: os.waitpid(pid, 0)",
    "tensor": "lua = moonferry.Lua(); t = lua.execute('return require(\"moonferry\").zeros({3})')",
}


@pytest.mark.parametrize("code", ENDINGS.values(), ids=ENDINGS)
def test_a_process_ends_well(code):
    done = run("import moonferry\n" + code)
    assert done.returncode == 0, done.stderr


# Each drops the last reference to a state inside of it: in its own iterator, call, coroutine, callback, error.
LAST = {
    "iteration of a table": "assert [k for k in mf.Lua().table(1, 2)] == [1, 2]",
    "iteration of an empty table": "assert list(mf.Lua().table()) == []",
    "keys": "assert list(mf.Lua().table(a=1).keys()) == ['a']",
    "values": "assert list(mf.Lua().table(a=1).values()) == [1]",
    "items": "assert dict(mf.Lua().table(1, 2).items()) == {1: 1, 2: 2}",
    "an iterator that a function returns": """
def numbers():
    return iter(mf.Lua().eval("{10, 20, x = 30}").values())
assert sorted(numbers()) == [10, 20, 30]""",
    "an iterator that fails": """
class Bad:
    pass
items = iter(mf.Lua(encoding="ascii").eval("{string.char(255)}").values())
try:
    next(items)
except UnicodeDecodeError:
    pass
del items""",
    "a call": "assert mf.Lua().eval('function() return 1, {} end')()[0] == 1",
    "a call of which nothing is kept": "mf.Lua().execute('return {}, print, coroutine.create(print)')",
    "a call that fails": """
try:
    mf.Lua().eval("function() error {} end")()
except mf.LuaError:
    pass""",
    "a coroutine": """
count = mf.Lua().eval("function() for i = 1, 3 do coroutine.yield(i) end end").coroutine()
assert list(count) == [1, 2, 3]
del count
assert list(mf.Lua().eval("function() coroutine.yield(1) end").coroutine()) == [1]""",
    "an iterator that what Lua has dropped ends before its step": """
items = [iter(mf.Lua().table(a=1, b=2).items())]
class Ends:
    def __del__(self): ended.extend(items.pop())
ended, other = [], mf.Lua()
other.globals().held = Ends()
other.execute("held = nil collectgarbage() collectgarbage()")
assert ended == [] and next(items[0], None) is None and len(ended) == 2""",
    "a coroutine that fails": """
try:
    list(mf.Lua().eval("function() coroutine.yield(1) error 'x' end").coroutine())
except mf.LuaError:
    pass""",
    "a callback that forgets its caller": """
keep = [mf.Lua()]
keep.append(keep[0].eval("function(f) f() return 5 end"))
def forget():
    keep.clear()
    gc.collect()
assert keep[1](forget) == 5""",
    "a callback that forgets the coroutine that it runs in": """
keep = [mf.Lua().eval("function(f) f() collectgarbage() coroutine.yield(7) end").coroutine(lambda: forget())]
def forget():
    keep.clear()
    gc.collect()
    mf.Lua().gccollect()
class Next:
    def __init__(self, of): self.of = of
    def __iter__(self): return self
    def __next__(self): return next(self.of.pop())
assert next(iter(keep.copy()[0])) == 7""",
    "a callback that forgets it and raises": """
keep = [mf.Lua()]
keep.append(keep[0].eval("function(f) f() end"))
def forget():
    keep.clear()
    gc.collect()
    raise KeyError
try:
    keep[1](forget)
except KeyError:
    pass""",
    "an attribute that forgets it": """
keep = [mf.Lua()]
keep.append(keep[0].eval("function(o) local v = o.forget return v, o.forget end"))
class Thing:
    @property
    def forget(self):
        keep.clear()
        gc.collect()
        return 9
assert keep[1](Thing()) == (9, 9)""",
    "an iterable that forgets it": """
keep = [mf.Lua()]
keep.append(keep[0].eval("function(x) local n = 0 for v in python.iter(x) do n = n + v end return n end"))
def items():
    yield 1
    keep.clear()
    gc.collect()
    yield 2
assert keep[1](items()) == 3""",
    "an object that Lua drops at its end": """
seen = []
class Noisy:
    def __del__(self): seen.append(mf.Lua().eval("1"))
mf.Lua().execute("x = ...", Noisy())
gc.collect()
assert seen == [1]""",
    "a finalizer of Lua's that calls Python": """
seen = []
mf.Lua().execute("local f = ... p = newproxy(true) getmetatable(p).__gc = function() pcall(f, 1) end", seen.append)
gc.collect()
assert seen in ([], [1])""",
    "an exception that is pending while it goes": """
class Noisy:
    def __del__(self): [].pop
try:
    lua = mf.Lua()
    lua.globals().x = Noisy()
    f = lua.eval("function() error 'on purpose' end")
    del lua
    (lambda g: g())(f)
except mf.LuaError as error:
    assert "on purpose" in str(error)
    del f, error
gc.collect()""",
    "the error handler": """
keep = [mf.Lua()]
keep.append(keep[0].eval("function(f) return xpcall(error, function(e) return f(e) end) end"))
def forget(*args):
    keep.clear()
    gc.collect()
    return "seen"
assert keep[1](forget) == (False, "seen")""",
    "a handler of a signal that takes itself away": """
import os, signal
def away():
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)  # CPython itself holds no reference on the handler that it calls
    gc.collect()
    return 1
code = "function(f) return function() local t = {} for i = 1, 1000 do t[i] = {i} end f() end end"
signal.signal(signal.SIGUSR1, mf.Lua().eval(code)(away))
os.kill(os.getpid(), signal.SIGUSR1)
assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL""",
    "a thread that is inside when the main one forgets it": """
inside, go = threading.Event(), threading.Event()
keep = [mf.Lua()]
keep.append(keep[0].eval("function(f) f() local t = {} for i = 1, 1000 do t[i] = {i} end return #t end"))
got = []
def callback():
    inside.set()
    go.wait()
thread = threading.Thread(target=lambda f: got.append(f(callback)), args=(keep[1],))
thread.start()
inside.wait()
keep.clear()
gc.collect()
go.set()
thread.join()
assert got == [1000]""",
}


@pytest.mark.parametrize("code", LAST.values(), ids=LAST)
def test_a_state_may_go_inside_of_itself(code):
    begin = "import gc, threading\nimport moonferry as mf\n"
    done = run(begin + code + "\ngc.collect()\nassert not any(mf.ledger())\nprint('done')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_importing_moonferry_needs_no_luajit():
    done = run(
        "import moonferry, sys; assert 'moonferry._lua' not in sys.modules; moonferry.zeros((2,)); "
        "assert not any('luajit' in line for line in open('/proc/self/maps'))"
    )
    assert done.returncode == 0, done.stderr
