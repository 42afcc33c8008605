"""Python's collector, which must not run in the midst of the bridge's own code, and is the program's elsewhere."""

import gc
import operator
import subprocess
import sys
import threading
import weakref

import pytest

import moonferry as mf
from moonferry import _lua

CONVERSIONS = {
    "arguments of a Python function": lambda lua: lua.eval("function(f) return f(1, 2, 3) end")(lambda *a: a),
    "several results": lambda lua: lua.eval("function() return 1, 2, 3 end")(),
    "a table": lambda lua: lua.eval("{1, 2}"),
    "a function": lambda lua: lua.eval("print"),
    "an error": lambda lua: lua.eval("pcall(error, {})"),
    "an object's call": lambda lua: lua.eval("function(c) return c(1, 2) end")(complex),
    "the pairs of a table": lambda lua: list(lua.table_from({"a": 1, "b": 2}).items()),
}


@pytest.fixture
def collects_at_once():
    """A collection comes with the first object that is made, or the next."""
    before = gc.get_threshold()
    callbacks = list(gc.callbacks)
    gc.set_threshold(1, 10000, 10000)
    yield
    gc.callbacks[:] = callbacks
    gc.set_threshold(*before)


def on_another_thread(function):
    results = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    thread.start()
    thread.join(20)
    return [*results]  # those that came in time


@pytest.mark.parametrize("what", CONVERSIONS)
@pytest.mark.parametrize("how", ["one goes at its end", "one goes at its beginning", "all go", "all go at its end"])
def test_a_program_may_change_the_list_of_callbacks_while_python_collects(collects_at_once, what, how):
    """CPython goes through the list by number, so that the callback behind one that goes is passed over."""
    lua, seen = mf.Lua(), []

    def changes(phase, info):
        if how.endswith("at its end") != (phase == "stop"):
            return
        seen.append(phase)
        if how.startswith("all"):
            gc.callbacks.clear()
        else:
            gc.callbacks.remove(changes)

    for count in range(40):
        if changes not in gc.callbacks:
            gc.callbacks.insert(0, changes)
        gc.set_threshold(1 + count % 7, 10000, 10000)
        CONVERSIONS[what](lua)
    assert seen
    assert len(on_another_thread(gc.collect)) == 1
    assert on_another_thread(lambda: lua.eval("1 + 1")) == [2]
    gc.collect()
    lua.close()


@pytest.mark.parametrize("what", CONVERSIONS)
def test_what_the_collector_runs_may_wait_for_a_thread_that_uses_the_state(collects_at_once, what):
    lua = mf.Lua()
    work, results = lua.eval("function(x) return x + 1 end"), []

    def waits(phase, info):
        if phase == "start" and [] not in results:
            results.append(on_another_thread(lambda: work(1)))

    gc.callbacks.append(waits)
    for _ in range(10):
        CONVERSIONS[what](lua)
    gc.callbacks.remove(waits)
    assert results == [[2]] * len(results)
    assert results or sys.version_info >= (3, 12)  # later ones collect between instructions of Python code alone


def test_a_collection_that_comes_with_the_error_of_a_call_for_which_lua_has_no_memory_finds_the_state_free():
    lua, results = mf.Lua(max_memory=10**7), []
    work = lua.eval("function() return 1 end")

    class Waits:
        def __del__(self):
            _lua.set_limit(lua, 10**8)
            results.append(on_another_thread(work))

    def calls():
        before = gc.get_threshold()
        gc.disable()
        garbage = Waits()
        garbage.itself = garbage
        del garbage
        gc.set_threshold(1, 10000, 10000)
        try:
            raise KeyError  # what is raised while another is handled is an object at once
        except KeyError:
            gc.enable()
            try:
                work()
            except mf.LuaMemoryError:
                return "refused"
        finally:
            gc.set_threshold(*before)

    def callback():
        _lua.set_limit(lua, 1)
        assert on_another_thread(calls) == ["refused"]  # because a stack would have to be made
        _lua.set_limit(lua, 10**8)

    lua.eval("function(f) f() end")(callback)
    gc.collect()
    assert results == [[1]]


CALLS = {
    "a call of Lua": lambda lua, call: call(),
    "a call of Python": lambda lua, call: lua.eval("function(f) return f() end")(call),
    "a call of Lua's by Python by Lua": lambda lua, call: lua.eval("function(f) return f() end")(
        lambda: lua.eval("function(f) return f() end")(call)
    ),
    "an error": lambda lua, call: lua.eval("function(f) return (pcall(function() f() error{} end)) end")(call),
    "an error of Python's": lambda lua, call: lua.eval("function(f, g) f() return (pcall(g)) end")(call, lambda: 1 / 0),
    "a coroutine": lambda lua, call: next(lua.eval("function(f) f() coroutine.yield(1) end").coroutine(call)),
    "another thread": lambda lua, call: lua.eval("function(f, g) g(f) end")(call, on_another_thread),
}


@pytest.mark.parametrize("what", CALLS)
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("after", [True, False])
def test_the_collector_is_as_the_program_has_it(what, before, after):
    lua, seen = mf.Lua(), []

    def call():
        seen.append(gc.isenabled())
        (gc.enable if after else gc.disable)()
        seen.append(gc.isenabled())

    (gc.enable if before else gc.disable)()
    try:
        CALLS[what](lua, call)
        assert seen == [before, after] and gc.isenabled() == after
    finally:
        gc.enable()


def test_a_call_leaves_no_references_to_what_says_how_the_collector_is():
    lua = mf.Lua()
    work = lua.eval("function(f) for i = 1, 5000 do f(i) end return {} end")
    work(abs)
    before = [sys.getrefcount(value) for value in (True, False, None)]
    work(abs)
    after = [sys.getrefcount(value) for value in (True, False, None)]
    assert all(abs(now - then) < 1000 for now, then in zip(after, before)), (before, after)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="a collection runs no more where an object is made")
def test_garbage_that_is_made_in_the_bridge_alone_is_collected():
    """Each function becomes an object of Python's, and nothing that is called makes one."""
    lua = mf.Lua()
    garbage = type("Garbage", (list,), {})()
    garbage.append(garbage)
    gone = weakref.ref(garbage)
    work = lua.eval("function(f) for i = 1, 20000 do f(print, print) end end")
    before = gc.get_threshold()
    gc.disable()
    del garbage
    gc.set_threshold(100, 1, 1)
    gc.enable()
    try:
        work(operator.is_)
    finally:
        gc.set_threshold(*before)
    assert gone() is None


def test_the_collector_is_on_for_threads_that_take_turns():
    lua, off = mf.Lua(), []
    work = lua.eval("function(f) for i = 1, 200 do f(i, {}) end return 1, 2 end")

    def look(*arguments):
        if not gc.isenabled():
            off.append(arguments)

    threads = [threading.Thread(target=work, args=[look]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert off == [] and gc.isenabled()


@pytest.mark.parametrize("name", ["disable", "enable", "isenabled"])
@pytest.mark.parametrize("by", ["lambda: None", "missing"])
def test_a_program_may_have_put_another_function_in_the_place_of_the_module_s(name, by):
    change = f"del gc.{name}" if by == "missing" else f"gc.{name} = {by}"
    code = f"import gc\n{change}\nimport moonferry\nprint(moonferry.Lua().eval('function(f) return f(1, 2) end')(max))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("2\n", "", 0)
