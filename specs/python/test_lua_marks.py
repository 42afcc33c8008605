"""Threads that take turns in a Lua state, in the midst of debug hooks and finalizers (__gc) that call Python.

While one of these runs, LuaJIT runs no hook in the whole state and compiles nothing, and what ends puts back what it
has found. Each thread has its own such mark all the same."""

import os
import signal
import sys
import threading

import pytest

import moonferry as mf
from test_lua_open import HERE, compiled, run_with

FINALIZER = "local p = newproxy(true) getmetatable(p).__gc = function() called() end p = nil collectgarbage()"
HOOK = "debug.sethook(function() debug.sethook() called() end, '', 1) local x = 1"
COUNT_HOOKS = """
    function count_hooks()
      local hits = 0
      debug.sethook(function() hits = hits + 1 end, '', 1)
      local x = 1
      x = x + 1
      debug.sethook()
      return hits
    end
"""
# The first trace of a state where all were flushed has the number 1.
COMPILES = """(function()
  local info = require('jit.util').traceinfo
  jit.flush()
  local sum = 0
  for i = 1, 1000 do sum = sum + i end
  return info(1) ~= nil
end)()"""


class Held:
    """A thread that runs ${code}, whose Lua function `called` does not come back from Python before `end`."""

    def __init__(self, lua, code):
        self.inside, self.may_end, self.ended = (threading.Event() for _ in range(3))

        def called():
            self.inside.set()
            assert self.may_end.wait(60)

        def run():
            lua.execute(code.replace("called", "called_by_held"))
            self.ended.set()

        lua.globals().called_by_held = called
        self.thread = threading.Thread(target=run)
        self.thread.start()
        assert self.inside.wait(60)

    def end(self):
        self.may_end.set()
        assert self.ended.wait(60)
        self.thread.join()


def has_hooks(lua):
    lua.execute(COUNT_HOOKS)
    return lua.globals().count_hooks() > 2


@pytest.mark.parametrize("first", [FINALIZER, HOOK])
@pytest.mark.parametrize("second", ["called() error('on purpose')", FINALIZER])
def test_hooks_run_and_loops_are_compiled_after_turns_that_did_not_nest(first, second):
    lua = mf.Lua()
    held = Held(lua, first)
    lua.globals().called = held.end
    try:
        lua.execute(second)
    except mf.LuaError as error:
        assert "on purpose" in str(error)
    assert has_hooks(lua) and lua.eval(COMPILES)


def test_a_script_is_interrupted_after_turns_that_did_not_nest():
    lua = mf.Lua(interruptible=True)
    held = Held(lua, FINALIZER)
    lua.globals().called = held.end
    lua.execute(FINALIZER)
    begun = mf.zeros(1)

    def stop():
        while begun[0] == 0:
            pass
        lua.interrupt(KeyError("on purpose"))

    stopper = threading.Thread(target=stop, daemon=True)
    stopper.start()
    with pytest.raises(KeyError, match="on purpose"):
        lua.execute(
            "local begun, t = ..., os.clock() begun:fill(1) while os.clock() - t < 20 do end ran_on = true", begun
        )
    stopper.join()
    assert lua.globals().ran_on is None


def test_an_interrupt_does_not_wait_until_a_finalizer_ends():
    lua, runs, goes_on = mf.Lua(interruptible=True), mf.zeros(1), mf.zeros(1)

    def stop():
        while runs[0] == 0:
            pass
        lua.interrupt()
        goes_on[0] = 1

    stopper = threading.Thread(target=stop, daemon=True)
    stopper.start()
    waits = """
        runs:fill(1)
        local t = os.clock()
        while goes_on:get(0) == 0 and os.clock() - t < 10 do end
        in_time = goes_on:get(0) == 1
    """
    with pytest.raises(mf.LuaInterrupt):
        code = "local runs, goes_on = ... " + FINALIZER.replace("called()", waits) + " while true do end"
        lua.execute(code, runs, goes_on)
    stopper.join()
    assert lua.globals().in_time


@pytest.mark.parametrize("code", [FINALIZER, HOOK])
def test_hooks_run_and_loops_are_compiled_beside_another_thread(code):
    lua = mf.Lua()
    held = Held(lua, code)
    assert has_hooks(lua) and lua.eval(COMPILES)
    held.end()
    assert has_hooks(lua) and lua.eval(COMPILES)


@pytest.mark.parametrize("code", [FINALIZER, HOOK])
def test_a_coroutine_is_thrown_into_beside_another_thread(code):
    lua = mf.Lua()
    thread = lua.eval("function() coroutine.yield(1) went_on = true coroutine.yield(2) end").coroutine()
    assert next(thread) == 1
    held = Held(lua, code)
    with pytest.raises(KeyError, match="thrown"):
        thread.throw(KeyError("thrown"))
    held.end()
    assert lua.globals().went_on is None and list(thread) == []


@pytest.mark.parametrize("code", [FINALIZER, HOOK])
def test_what_a_hook_or_a_finalizer_calls_by_way_of_python_has_no_hooks(code):
    """As Lua's manual has it of a hook; a hook that calls Python would call itself for ever."""
    lua = mf.Lua()
    lua.execute(COUNT_HOOKS)
    seen = []

    def called():
        other = threading.Thread(target=lambda: seen.append(lua.globals().count_hooks() > 2))
        seen.append(lua.globals().count_hooks())
        other.start()
        other.join()
        seen.append(lua.globals().count_hooks())

    lua.globals().called = called
    lua.execute(code)
    assert seen == [0, True, 0] and has_hooks(lua)


def test_the_hooks_of_what_a_hook_calls_are_off_after_an_error_there():
    lua = mf.Lua()
    lua.execute(COUNT_HOOKS)
    seen = []

    def called():
        with pytest.raises(mf.LuaError):
            lua.execute("error('on purpose')")
        seen.append(lua.globals().count_hooks())

    lua.globals().called = called
    lua.execute(HOOK)
    assert seen == [0] and has_hooks(lua)


@pytest.mark.parametrize("code", [FINALIZER, HOOK])
def test_a_child_that_is_forked_beside_another_threads_hook_has_hooks(code):
    lua = mf.Lua()
    held = Held(lua, code)
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            os._exit(0 if has_hooks(lua) and lua.eval(COMPILES) else 3)
        finally:
            os._exit(4)
    held.end()
    assert os.waitpid(pid, 0)[1] == 0


def test_coroutines_are_thrown_into_where_finalizers_leave_the_state_to_another_thread():
    """What is set for a throw is not there for that thread, which throws into another coroutine meanwhile."""
    lua = mf.Lua()
    waits = lua.eval("function() coroutine.yield(1) went_on = true coroutine.yield(2) end")

    def throw():
        thread = waits.coroutine()
        assert next(thread) == 1
        with pytest.raises(KeyError):
            thread.throw(KeyError("thrown"))
        lua.execute("local x = 1 x = x + 1")

    def called():
        other = threading.Thread(target=throw)
        other.start()
        other.join()

    lua.globals().called = called
    lua.execute("""
        collectgarbage("setpause", 0)
        collectgarbage("setstepmul", 1e6)
        local left, inside = 200, false
        local function leave_one()
          getmetatable(newproxy(true)).__gc = function()
            left = left - 1
            if left > 0 then leave_one() end
            if inside then return end
            inside = true
            called()
            inside = false
          end
        end
        leave_one()
    """)
    for _ in range(20):
        throw()
    assert lua.globals().went_on is None


@pytest.fixture(scope="module")
def other_marks():
    return compiled("other_marks")


WITHOUT_MARKS = f"""
import sys
sys.path.insert(0, {HERE!r})
from test_lua_marks import *

lua = mf.Lua(interruptible=True)
for code in HOOK, FINALIZER:
    thread = lua.eval("function() coroutine.yield(1) coroutine.yield(2) end").coroutine()
    held = Held(lua, code)
    seen = [next(thread), has_hooks(lua)]
    with pytest.raises(mf.LuaError):
        thread.throw(KeyError())
    held.end()
    print(*seen, next(thread), has_hooks(lua))
with pytest.raises(TimeoutError), lua.time_limit(0.01):
    lua.execute("while true do end")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD is Linux's")
@pytest.mark.parametrize("different", ["coroutine", "events", "hook", "finalizer", "left"])
def test_a_luajit_that_has_its_marks_elsewhere_keeps_them(other_marks, monkeypatch, different):
    """No other thread's hooks run then beside a hook or a finalizer, as LuaJIT has it."""
    monkeypatch.setenv("OTHER_MARKS", different)
    assert run_with(other_marks, WITHOUT_MARKS) == (0, "1 False 2 True\n" * 2)
