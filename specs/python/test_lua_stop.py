"""What ends a script: interrupts, Ctrl-C, time limits, memory limits."""

import os
import signal
import threading
import time

import pytest

import moonferry as mf

ENDLESS = {
    "loop": "while true do end",
    "caught": "while true do pcall(error, 'x') end",
    "caught around": "while true do pcall(function() while true do end end) end",
    "coroutine": "local co = coroutine.wrap(function() while true do end end) while true do pcall(co) end",
    "handler": "xpcall(function() while true do end end, function() while true do end end)",
    "garbage": "while true do local t = {} end",
}


@pytest.fixture(autouse=True)
def sigint_is_handled():
    """Whatever runs this in the background may have it ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def when_it_runs(function, *args):
    """A function for a script to call once it runs: another thread then does what is asked for."""
    runs = threading.Event()
    threading.Thread(target=lambda: runs.wait() and function(*args), daemon=True).start()
    return runs.set


# What a script begins with, so that it is ended while it runs.
NOW = "(...)() "


@pytest.fixture(scope="module")
def stoppable():
    return mf.Lua(interruptible=True)


@pytest.mark.parametrize("code", ENDLESS.values(), ids=ENDLESS)
def test_an_interruptible_script_can_be_ended_from_another_thread(stoppable, code):
    with pytest.raises(mf.LuaInterrupt):
        stoppable.execute(NOW + code, when_it_runs(stoppable.interrupt))
    assert stoppable.eval("1 + 1") == 2


def test_the_exception_can_be_chosen(stoppable):
    reason = KeyError("why")
    with pytest.raises(KeyError) as caught:
        stoppable.execute(NOW + "while true do end", when_it_runs(stoppable.interrupt, reason))
    assert caught.value is reason
    with pytest.raises(TypeError):
        stoppable.interrupt("text")


def test_nothing_is_interrupted_that_does_not_run(stoppable):
    stoppable.interrupt()
    assert stoppable.eval("1 + 1") == 2


def test_ctrl_c_ends_an_interruptible_script(stoppable):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        stoppable.execute(NOW + "while true do end", when_it_runs(os.kill, os.getpid(), signal.SIGINT))
    assert signal.getsignal(signal.SIGINT) is before
    assert stoppable.eval("1 + 1") == 2


def test_a_handler_of_ones_own_decides(stoppable):
    seen = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        stoppable.globals().pending = lambda: not seen
        code = "while true do for i = 1, 1000 do end if not pending() then break end end"
        stoppable.execute(NOW + code, when_it_runs(os.kill, os.getpid(), signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT]


def test_time_limit(stoppable):
    with pytest.raises(TimeoutError, match="0.05 s"):
        with stoppable.time_limit(0.05):
            stoppable.execute("while true do end")
    for enough in (60, float("inf"), 1e300):
        with stoppable.time_limit(enough):
            assert stoppable.eval("1 + 1") == 2
    with pytest.raises(RuntimeError, match="interruptible"):
        with mf.Lua().time_limit(1):
            pass


def test_a_time_limit_that_is_over_before_a_script_runs(stoppable):
    with pytest.raises(TimeoutError), stoppable.time_limit(0):
        time.sleep(0.01)
        stoppable.execute("while true do end")
    stoppable.execute("for i = 1, 1e5 do end")


@pytest.mark.parametrize("seconds", [-1, float("nan"), "1", None])
def test_what_is_no_time_limit(stoppable, seconds):
    with pytest.raises((TypeError, ValueError), match="seconds is"), stoppable.time_limit(seconds):
        pass


def test_an_interruptible_state_cannot_turn_the_compiler_on(stoppable):
    with pytest.raises(mf.LuaError, match="interruptible"):
        stoppable.execute("jit.on()")
    assert stoppable.eval("(jit.status())") is False


def test_any_state_ends_where_it_calls_python():
    lua = mf.Lua()
    ctrl_c = (os.kill, os.getpid(), signal.SIGINT)
    for reason, action in ((mf.LuaInterrupt, (lua.interrupt,)), (KeyboardInterrupt, ctrl_c)):
        with pytest.raises(reason):
            lua.execute("local now, f = ... now() while true do f() end", when_it_runs(*action), lambda: None)
    assert lua.eval("1 + 1") == 2


def runs_out(action):
    """Without keeping the exception, whose frames keep what the action had."""
    try:
        action()
    except mf.LuaMemoryError:
        return True
    return False


def test_max_memory_is_enforced():
    lua = mf.Lua(max_memory=1 << 20)
    for code in (
        "local t = {} for i = 1, 1e9 do t[i] = {i} end",
        "local s = 'x' while true do s = s .. s end",
        "return ('x'):rep(1e7)",
        "local t = {} while true do t[#t + 1] = coroutine.create(print) end",
    ):
        assert runs_out(lambda code=code: lua.execute(code))
        assert lua.eval("1 + 1") == 2
    for action in (
        lambda: lua.eval("#...", "y" * 2_000_000),
        lambda: lua.eval("(...)()", lambda: b"y" * 2_000_000),
        lambda: lua.table_from(range(10**6)),
        lambda: [lua.table() for _ in range(10**6)],
        lambda: lua.compile("x = 'y' " * 200_000),
    ):
        assert runs_out(action)
        assert lua.eval("1 + 1") == 2


def test_garbage_does_not_count_against_the_limit():
    lua = mf.Lua(max_memory=2 << 20)
    assert lua.execute("local n = 0 for i = 1, 100000 do n = n + #(('x'):rep(100) .. i) end return n") > 0


def test_the_limit_can_be_read_and_changed():
    lua = mf.Lua(max_memory=10_000)
    assert lua.get_max_memory() == 10_000 < lua.get_max_memory(total=True)
    lua.set_max_memory(1_000_000)
    lua.execute("a = ('a'):rep(50000)")
    assert lua.get_memory_used() >= 50_000 and lua.get_memory_used(total=True) > lua.get_memory_used()
    lua.set_max_memory(10_000)
    with pytest.raises(mf.LuaMemoryError):
        lua.eval("('b'):rep(100)")
    lua.set_max_memory(0)
    assert lua.get_max_memory() == 0
    lua.execute("b = ('a'):rep(5000000)")
    plain = mf.Lua()
    assert plain.get_max_memory() is None and plain.get_memory_used() is None
    with pytest.raises(RuntimeError):
        plain.set_max_memory(1)
