"""What ends a script: interrupts, Ctrl-C, time limits, memory limits."""

import gc
import itertools
import os
import signal
import sys
import threading
import time
import weakref

import pytest

import moonferry as mf
from drawn import one_in

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


OWNERS = """
local n = ...
local mf, ffi = require "moonferry", require "ffi"
ffi.cdef "int raise(int)"
debug.sethook(function() debug.sethook() ffi.C.raise(2) end, "", n)
local a = mf.zeros({ 2, 3 })
local b, c = a:reshape({ 6 }), a:astype("int32")
assert(a:equal(a))
b:close()
mf.scope(function() a:permute_dims({ 1, 0 }) end)
debug.sethook()
"""


def test_an_interrupt_leaves_each_tensor_one_owner():
    lua, before, n, ended = mf.Lua(interruptible=True), mf.ledger(), 0, True
    lua.execute(OWNERS, 10**9)
    while ended:
        n += 1
        try:
            lua.execute(OWNERS, n)
            ended = False
        except KeyboardInterrupt:
            pass
        lua.execute("collectgarbage() collectgarbage()")
        assert mf.ledger() == before, n
    assert n > 200


def test_a_script_does_not_call_itself_ours_to_go_on(stoppable):
    name = "@" + os.path.join(os.path.dirname(mf.__file__), "lua", "moonferry", "x.lua")
    with pytest.raises(mf.LuaInterrupt):
        code = f"assert(loadstring('while true do pcall(function() while true do end end) end', '{name}'))()"
        stoppable.execute(NOW + code, when_it_runs(stoppable.interrupt))


# Each ends in a call that catches the error which ended the script, so that no instruction comes after it. `catch()`
# gives false and that error.
LAST_CALLS = {
    "a call": lambda lua, f: f(),
    "a call of many values": lambda lua, f: f("x" * 100, *range(50)),
    "a call of a table": lambda lua, f: lua.eval("setmetatable({}, {__call = function(t, f) return f() end})")(f),
    "a coroutine": lambda lua, f: next(f.coroutine()),
    "a generator": lambda lua, f: list(f.coroutine()),
    "a field": lambda lua, f: lua.eval("setmetatable({}, {__index = ...})", f)["x"],
    "a name": lambda lua, f: lua.eval("setmetatable({}, {__index = ...})", f).x,
    "a field that is set": lambda lua, f: lua.eval("setmetatable({}, {__newindex = ...})", f).__setitem__("x", 1),
    "a text": lambda lua, f: str(lua.eval("setmetatable({}, {__tostring = ...})", f)),
    "the text of an error": lambda lua, f: lua.execute("error(setmetatable({}, {__tostring = ...}))", f),
    "a length": lambda lua, f: len(lua.execute("local p = newproxy(true) getmetatable(p).__len = ... return p", f)),
    "a call from Python that Lua called": lambda lua, f: lua.eval("(...)()", f),
    "a call that Python makes for Lua": lambda lua, f: lua.execute("local f = ... return f()", lambda: f()),
}

CATCH = {
    "pcall": "return pcall(endless)",
    "xpcall": "return xpcall(endless, print)",
    "resume": "return coroutine.resume(coroutine.create(endless))",
    "inside of another": "return pcall(pcall, endless)",
}


@pytest.mark.parametrize("catch", CATCH)
@pytest.mark.parametrize("last", LAST_CALLS)
def test_a_script_cannot_catch_its_end_in_its_last_call(stoppable, last, catch):
    now = when_it_runs(stoppable.interrupt, KeyError("why"))
    code = f"local now = ... local function endless() now() while true do end end return function() {CATCH[catch]} end"
    function = stoppable.execute(code, now)
    with pytest.raises(KeyError, match="why"):
        LAST_CALLS[last](stoppable, function)
    assert stoppable.eval("1 + 1") == 2


def test_an_overflow_handler_cannot_catch_it_either():
    lua = mf.Lua(interruptible=True, overflow_handler=lambda n: handler())
    now = when_it_runs(lua.interrupt, KeyError("why"))
    handler = lua.execute(
        "local now = ... return function() return pcall(function() now() while true do end end) end", now
    )
    with pytest.raises(KeyError, match="why"):
        lua.table(1)[1] = 2**70
    assert lua.eval("1 + 1") == 2


def test_ctrl_c_cannot_be_caught_in_the_last_call(stoppable):
    now = when_it_runs(os.kill, os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        stoppable.execute("local now = ... return pcall(function() now() while true do end end)", now)
    assert stoppable.eval("1 + 1") == 2


def test_the_exception_can_be_chosen(stoppable):
    reason = KeyError("why")
    with pytest.raises(KeyError) as caught:
        stoppable.execute(NOW + "while true do end", when_it_runs(stoppable.interrupt, reason))
    assert caught.value is reason
    with pytest.raises(TypeError):
        stoppable.interrupt("text")


def test_the_first_reason_counts(stoppable):
    def ask_twice():
        stoppable.interrupt(KeyError("first"))
        stoppable.interrupt(KeyError("second"))

    with pytest.raises(KeyError, match="first"):
        stoppable.execute("local f = ... f() while true do end", ask_twice)


def test_every_thread_in_the_state_is_interrupted(stoppable):
    inside, go, ended = threading.Event(), threading.Event(), []

    def other():
        try:
            stoppable.execute("local inside, go = ... inside() go() return 1", inside.set, go.wait)
        except KeyError as error:
            ended.append(str(error))

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait()
    with pytest.raises(KeyError, match="both"):
        stoppable.execute("(...)()", lambda: stoppable.interrupt(KeyError("both")))
    go.set()
    thread.join()
    assert ended == ["'both'"]


def test_the_error_of_a_call_that_is_ended_stays_as_it_is(stoppable):
    """Lua's traceback is a note of an exception that comes out of Lua; this one does not."""
    own = ValueError("own")

    def fails():
        stoppable.interrupt(KeyError("ends"))
        raise own

    with pytest.raises(KeyError, match="ends"):
        stoppable.execute("(...)()", fails)
    assert not hasattr(own, "__notes__")


def test_nothing_is_interrupted_that_does_not_run(stoppable):
    count = stoppable.eval("function(n) local s = 0 for i = 1, n do s = s + 1 end return s end")
    stoppable.interrupt()
    assert stoppable.eval("1 + 1") == 2
    stoppable.interrupt()
    assert count(1_000_000) == 1_000_000


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


def test_a_time_limit_ends_where_an_exception_comes_into_its_end(stoppable):
    """As a signal's may, at each call of Python code that is made there."""
    before, n, came = set(threading.enumerate()), 0, True

    def profile(frame, event, arg):
        nonlocal left
        # Before 3.11 what is raised as a generator goes on does not come into its frame, as a signal's exception does.
        goes_on = frame.f_code.co_name == "time_limit" and sys.version_info < (3, 11)
        left -= event == "call" and not goes_on
        if left == 0:
            sys.setprofile(None)
            raise KeyboardInterrupt

    while came:
        n += 1
        try:
            with stoppable.time_limit(1000):
                left = n
                sys.setprofile(profile)
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        came = left <= 0
        for thread in set(threading.enumerate()) - before:
            thread.join(10)
            assert not thread.is_alive(), n
    assert n > 1


def test_time_limit(stoppable):
    with pytest.raises(TimeoutError, match="0.05 s"):
        with stoppable.time_limit(0.05):
            stoppable.execute("while true do end")
    with pytest.raises(TimeoutError, match="0.05 s"):
        with stoppable.time_limit(0.05):
            stoppable.execute("return pcall(function() while true do end end)")
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
    is_number = isinstance(seconds, (int, float))
    error, text = (ValueError, "at least 0 expected") if is_number else (TypeError, "a number expected")
    with pytest.raises(error, match=f"seconds is .*; {text}"), stoppable.time_limit(seconds):
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


def nearly_full(**options):
    """A state whose memory is all but used, of values that live."""
    lua = mf.Lua(max_memory=1_000_000, **options)
    lua.execute("hog = {} for i = 1, 1010 do hog[i] = ('%d'):format(i):rep(300) end")
    assert lua.get_memory_used() > 900_000
    return lua


def test_near_the_limit_a_call_gives_what_it_gives():
    lua = nearly_full()
    functions = {
        lua.eval("function() return 1 end"): 1,
        lua.eval("function() end"): None,
        lua.eval("function() return 1, 2, 3 end"): (1, 2, 3),
        lua.eval("function() return 'x', nil end"): ("x", None),
    }
    for f, wanted in functions.items():
        for _ in range(200):
            lua.globals()  # an object that Python drops
            assert f() == wanted
    key = lua.eval("function(x) return -x end")
    assert sorted([1, 3, 2], key=key) == [3, 2, 1]
    table = lua.eval("{1, 2, x = 3}")
    lua.globals()
    assert sorted(map(str, table.keys())) == ["1", "2", "x"]
    lua.globals()
    assert next(lua.eval("function() coroutine.yield(5) end").coroutine()) == 5


def test_near_the_limit_not_every_call_is_a_collection():
    lua = nearly_full()
    lua.execute(
        "collections = 0 "
        "local function watch() local p = newproxy(true) "
        "getmetatable(p).__gc = function() collections = collections + 1 watch() end end watch()"
    )
    f = lua.eval("function() return {} end")
    before = lua.globals().collections
    for _ in range(1000):
        f()
    assert 0 < lua.globals().collections - before < 250


def test_near_the_limit_nothing_is_collected_where_python_has_dropped_nothing():
    lua = mf.Lua(max_memory=1_000_000)
    fill = lua.execute(
        "return function() hog = {} for i = 1, 1010 do hog[i] = ('%d'):format(i):rep(300) end "
        "getmetatable(newproxy(true)).__gc = function() collected = true end end"
    )
    empty = lua.eval("function() hog, collected = nil, nil end")
    collected = lua.eval("function() return collected end")
    fill()
    empty()
    dropped = [lua.globals() for _ in range(5)]
    del dropped
    collected()  # after a collection, which has made room
    assert lua.get_memory_used() < 200_000
    empty()
    fill()
    assert lua.get_memory_used() > 900_000
    assert [collected() for _ in range(5)] == [None] * 5


def test_what_python_drops_makes_room():
    lua = mf.Lua(max_memory=1_000_000)
    f = lua.eval("function() return {('x'):rep(400000)} end")
    for _ in range(50):
        assert len(f()[1]) == 400_000


HOG = """
local n, least = ...
local keep, count = {}, 0
for i = 1, 4096 do keep[i] = false end
local rep, pcall, unpack = string.rep, pcall, unpack
local t = {}
for i = 1, n do t[i] = i end
return function()
  for size = 16, least, -1 do
    while count < 4096 do
      local ok, s = pcall(rep, "x" .. count, 2 ^ size / 4)
      if not ok then break end
      count = count + 1
      keep[count] = s
    end
  end
  return unpack(t)
end
"""


@pytest.mark.parametrize(("count", "least"), one_in(4, itertools.product([18, 22, 30, 66, 500], [5, 6, 7, 8, 9])))
def test_results_that_find_no_memory_are_an_error(count, least):
    lua = mf.Lua(sandbox=True, max_memory=700_000)
    hog = lua.execute(HOG, count, least)
    assert runs_out(hog)
    log = []

    def callback():
        log.append("in")
        try:
            return hog()
        finally:
            log.append("out")

    outer = lua.eval("function(f) return (pcall(f)) end")
    lua.set_max_memory(2_000_000)
    lua.set_max_memory(lua.get_memory_used() + 300)
    runs_out(lambda: outer(callback))
    assert log in (["in", "out"], [])
    lua.set_max_memory(0)
    assert sum(hog()) == count * (count + 1) // 2


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


def test_a_time_limit_that_ctrl_c_breaks_off_keeps_no_state(monkeypatch):
    """`threading` keeps a thread that was about to start when a signal's exception came."""

    def broken_off(*args, **kwargs):
        raise KeyboardInterrupt

    for name in ("_start_new_thread", "_start_joinable_thread"):  # the second from CPython 3.13 on
        monkeypatch.setattr(threading, name, broken_off, raising=False)
    lua = mf.Lua(interruptible=True)
    state = weakref.ref(lua)
    with pytest.raises(KeyboardInterrupt), lua.time_limit(100):
        pass
    monkeypatch.undo()
    del lua
    gc.collect()
    assert state() is None
