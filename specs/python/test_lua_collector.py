"""Lua's collector, as Python stops it and lets it go on; and where it must not run."""

import contextlib
import threading

import pytest

import moonferry as mf


def test_nogc_and_gccollect():
    lua = mf.Lua()
    with lua.nogc():
        before = lua.eval("collectgarbage('count')")
        lua.execute("for i = 1, 20000 do kept = {} end")
        assert lua.eval("collectgarbage('count')") > before + 500
    lua.gccollect()
    assert lua.eval("collectgarbage('count')") < before + 500


COUNTED = """
jit.off()
local collected = 0
function mark() getmetatable(newproxy(true)).__gc = function() collected = collected + 1 end end
function count() for i = 1, 2e5 do local t = { i } end return collected end
"""


def test_the_collector_stands_still_until_the_last_block_ends():
    lua = mf.Lua()
    lua.execute(COUNTED)
    mark, count = lua.globals().mark, lua.globals().count
    first, second = lua.nogc(), lua.nogc()
    with first:
        with second:
            mark()
        assert count() == 0  # nested
        second = lua.nogc()
        second.__enter__()
    assert count() == 0  # overlapping
    second.__exit__(None, None, None)
    assert count() == 1


def test_the_collector_stands_still_again_behind_a_collection():
    lua = mf.Lua()
    lua.execute(COUNTED)
    mark, count = lua.globals().mark, lua.globals().count
    with lua.nogc():
        mark()
        lua.gccollect()
        mark()
        assert count() == 1


def test_the_collector_stands_still_for_what_python_objects_weigh():
    class Heavy:
        nbytes = 1 << 40

    lua = mf.Lua()
    lua.execute(COUNTED)
    mark, count, take = lua.globals().mark, lua.globals().count, lua.eval("function() end")
    with lua.nogc():
        mark()
        for _ in range(3):
            take(Heavy())
        assert count() == 0
    take(Heavy())
    assert count() == 1


def test_the_collector_stands_still_again_when_memory_has_ended():
    lua = mf.Lua(max_memory=2_000_000)
    lua.execute(COUNTED.replace("2e5", "1e4"))  # so that it fits below the limit
    mark, count = lua.globals().mark, lua.globals().count
    with lua.nogc():
        mark()
        with pytest.raises(mf.LuaMemoryError):
            lua.execute("local t = {} while true do t[#t + 1] = {} end")
        assert count() == 1
        mark()
        assert count() == 1


RENEWED = """
local finalized = ...
local function renew()
  getmetatable(newproxy(true)).__gc = function()
    renew()
    finalized()
  end
end
collectgarbage("setpause", 0)
collectgarbage("setstepmul", 10000)
for i = 1, 50 do renew() end
"""

STACKS = """
local count = 0
for _, value in pairs(debug.getregistry()) do
  if type(value) == "thread" then count = count + 1 end
end
return count
"""


@contextlib.contextmanager
def inside(lua, count):
    """So many threads are inside of calls into Lua, each on a stack of its own."""
    call = lua.eval("function(f) return f() end")
    came, leave, results = threading.Semaphore(0), threading.Event(), []

    def stay():
        came.release()
        return leave.wait(60)

    threads = [threading.Thread(target=lambda: results.append(call(stay)), daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
        assert came.acquire(timeout=60)
    yield
    leave.set()
    for thread in threads:
        thread.join(60)
    assert results == [True] * count


def test_a_finalizer_may_wait_for_a_thread_that_needs_a_stack_of_its_own():
    """Where a stack is made for one thread, no finalizer runs in which another thread may need one, too."""
    lua = mf.Lua()
    same = lua.eval("function(x) return x end")
    waits, results = [], []

    def finalized():
        if waits or not is_on:
            return
        waits.append(True)
        thread = threading.Thread(target=lambda: results.append(same(7)), daemon=True)
        thread.start()
        thread.join(60)
        waits.clear()

    is_on = False
    lua.globals().finalized = finalized  # or it is finalized with those that call it
    lua.execute(RENEWED, finalized)
    is_on = True
    with inside(lua, 60):
        pass
    is_on = False
    assert len(results) > 10 and set(results) == {7}
    # One of them is on the main stack; one more is for finalizers, and one for making the others.
    assert lua.execute(STACKS) <= 61


def test_an_error_that_finalizers_keep_from_being_told_is_no_lack_of_memory():
    lua = mf.Lua()
    lua.execute(RENEWED, lua.eval("function() if fails then error('of a finalizer', 0) end end"))
    told = []
    lua.execute("fails = true")
    for i in range(100):
        try:
            lua.eval(f"'{i}' .. (...)", i)
        except mf.LuaError as error:
            told.append(error)
    assert any("cannot be told" in str(error) for error in told)
    assert all("of a finalizer" in str(error) and type(error) is mf.LuaError for error in told)


def test_a_new_stack_leaves_the_collector_as_it_was():
    lua = mf.Lua()
    lua.execute(COUNTED + "collectgarbage('stop') mark()")
    count = lua.globals().count
    with inside(lua, 3):
        assert count() == 0
    lua.execute("collectgarbage('restart')")
    with inside(lua, 6):
        assert count() == 1
