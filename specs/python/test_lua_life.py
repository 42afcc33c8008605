"""Who outlives whom: cycles through both heaps, states that go first, processes that end."""

import gc
import os
import subprocess
import sys
import weakref

import pytest

import moonferry as mf


class Thing:
    pass


def test_lua_values_keep_their_state():
    table = mf.Lua().eval("{1, 2, 3}")
    gc.collect()
    assert table[1] == 1 and list(table.values()) == [1, 2, 3]


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


def make_cycle_through_options():
    lua = mf.Lua(attribute_handlers=(lambda o, n: lua.eval("1"), None), overflow_handler=lambda n: lua)
    return weakref.ref(lua)


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


@pytest.mark.parametrize(
    "make",
    [
        make_cycle_of_state_and_function,
        make_cycle_of_object_and_table,
        make_cycle_through_options,
        make_cycle_of_iterators_and_coroutines,
    ],
)
def test_cycles_go_together_with_their_state(make):
    gone = make()
    gc.collect()
    assert gone() is None


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


def test_lua_finalizers_run_when_the_state_is_closed():
    seen = []
    lua = mf.Lua()
    lua.execute("local f = ... p = newproxy(true) getmetatable(p).__gc = function() pcall(f, 1) end", seen.append)
    del lua
    gc.collect()
    assert seen in ([], [1])


def test_nogc_and_gccollect():
    lua = mf.Lua()
    with lua.nogc():
        before = lua.eval("collectgarbage('count')")
        lua.execute("for i = 1, 20000 do kept = {} end")
        assert lua.eval("collectgarbage('count')") > before + 500
    lua.gccollect()
    assert lua.eval("collectgarbage('count')") < before + 500


def run(code, **environment):
    command = [sys.executable, "-X", "faulthandler", "-c", code]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120)


ENDINGS = {
    "alive": "lua = moonferry.Lua(); t = lua.eval('{}'); lua.globals().f = lambda: lua",
    "exception": "import atexit; lua = moonferry.Lua(); atexit.register(lambda: lua.eval('1'))",
    "daemon": "import threading; lua = moonferry.Lua(); "
    "threading.Thread(target=lua.execute, args=('while true do end',), daemon=True).start()",
    "daemon in a callback": "import threading, time; lua = moonferry.Lua(); "
    "run = ('local f = ... while true do f() end', lambda: None); "
    "threading.Thread(target=lua.execute, args=run, daemon=True).start(); "
    "time.sleep(0.05)",
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


def test_importing_moonferry_needs_no_luajit():
    done = run(
        "import moonferry, sys; assert 'moonferry._lua' not in sys.modules; moonferry.zeros((2,)); "
        "assert not any('luajit' in line for line in open('/proc/self/maps'))"
    )
    assert done.returncode == 0, done.stderr
