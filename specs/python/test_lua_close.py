"""Lua.close and `with moonferry.Lua()`."""

import gc
import sys
import threading
import time
import weakref

import pytest

import moonferry as mf

CLOSED = "this Lua state was closed"


class Thing:
    pass


def closed(**options):
    """A closed state, and what it had made."""
    lua = mf.Lua(**options)
    made = {
        "table": lua.eval("{1, 2, x = 3}"),
        "function": lua.eval("function(x) return x end"),
        "coroutine": lua.eval("coroutine.wrap(function() coroutine.yield(1) end)"),
        "thread": lua.eval("function() coroutine.yield(1) end").coroutine(),
        "begun": lua.eval("function() coroutine.yield(1) coroutine.yield(2) end").coroutine(),
        "globals": lua.globals(),
        "userdata": lua.eval("newproxy()"),
    }
    assert next(made["begun"]) == 1
    lua.close()
    return lua, made


USES = {
    "eval": lambda lua, made: lua.eval("1"),
    "execute": lambda lua, made: lua.execute("x = 1"),
    "compile": lambda lua, made: lua.compile("x = 1"),
    "require": lambda lua, made: lua.require("string"),
    "globals": lambda lua, made: lua.globals(),
    "table of": lambda lua, made: lua.table(1, 2),
    "collect": lambda lua, made: lua.gccollect(),
    "overflow": lambda lua, made: lua.set_overflow_handler(None),
    "get memory": lambda lua, made: lua.get_memory_used(),
    "set memory": lambda lua, made: lua.set_max_memory(1 << 20),
    "get": lambda lua, made: made["table"]["x"],
    "get attribute": lambda lua, made: made["table"].x,
    "set": lambda lua, made: made["table"].__setitem__("x", 1),
    "set attribute": lambda lua, made: setattr(made["table"], "x", 1),
    "delete": lambda lua, made: made["table"].__delitem__("x"),
    "length": lambda lua, made: len(made["table"]),
    "contains": lambda lua, made: "x" in made["table"],
    "iterate": lambda lua, made: list(made["table"]),
    "items": lambda lua, made: list(made["table"].items()),
    "call": lambda lua, made: made["function"](1),
    "call of a wrapper": lambda lua, made: made["coroutine"](),
    "start": lambda lua, made: made["function"].coroutine(1),
    "next": lambda lua, made: next(made["thread"]),
    "send": lambda lua, made: made["begun"].send(1),
    "throw": lambda lua, made: made["begun"].throw(KeyError("x")),
    "global": lambda lua, made: made["globals"].print,
}


@pytest.mark.parametrize("options", [{}, {"max_memory": 1 << 22}, {"interruptible": True}], ids=str)
@pytest.mark.parametrize("name", USES)
def test_what_a_closed_state_made_raises(name, options):
    lua, made = closed(**options)
    with pytest.raises(RuntimeError, match=CLOSED):
        USES[name](lua, made)


def test_what_asks_nothing_of_a_closed_state_still_works():
    lua, made = closed(interruptible=True)
    assert lua.lua_version == (5, 1) and mf.lua_type(made["table"]) == "table"
    lua.interrupt()  # a watchdog may come late
    made["thread"].close()
    made["begun"].close()
    for value in [lua, *made.values()]:
        assert repr(value) and hash(value) is not None and value == value
    lua.close()
    lua.close()
    del lua, made, value
    gc.collect()


def test_with_closes_at_the_end_and_after_an_exception():
    with mf.Lua() as lua:
        assert lua.eval("1 + 1") == 2
        lua.close()
    with pytest.raises(KeyError), mf.Lua() as other:
        raise KeyError
    for state in (lua, other):
        with pytest.raises(RuntimeError, match=CLOSED):
            state.eval("1")


def test_a_closed_state_gives_back_what_it_held_while_others_keep_it():
    lua = mf.Lua()
    thing = Thing()
    gone = weakref.ref(thing)
    table = lua.table(thing=thing, tensor=mf.zeros(4))
    lua.execute("local t = ... ; p = newproxy(true); getmetatable(p).__gc = function() t.ran = true end", table)
    del thing
    lua.close()
    gc.collect()
    assert gone() is None
    assert mf.ledger().tensors == 0
    with pytest.raises(RuntimeError, match=CLOSED):
        _ = table.thing


def test_tensors_that_came_from_it_stay():
    with mf.Lua() as lua:
        t = lua.eval("require('moonferry').tensor { 1, 2, 3 }")
    assert t.tolist() == [1, 2, 3]


def test_finalizers_that_use_the_state_find_it_closed():
    seen = []

    class Late:
        def __init__(self, lua):
            self.lua = lua

        def __del__(self):
            try:
                self.lua.eval("1")
            except RuntimeError as error:
                seen.append(str(error))
            self.lua.close()

    lua = mf.Lua()
    lua.globals().late = Late(lua)
    lua.close()
    assert seen and CLOSED in seen[0]


def test_from_inside_of_its_own_call_it_is_refused():
    lua = mf.Lua()
    with pytest.raises(RuntimeError, match="called from inside of a call into this Lua state"):
        lua.execute("local close = ... ; close()", lua.close)
    assert lua.eval("1 + 1") == 2
    outer = mf.Lua()
    outer.execute("local close = ... ; close()", lua.close)
    with pytest.raises(RuntimeError, match=CLOSED):
        lua.eval("1")


def test_while_another_thread_is_inside_it_is_refused():
    lua = mf.Lua()
    inside, leave = threading.Event(), threading.Event()

    def wait():
        inside.set()
        assert leave.wait(60)

    thread = threading.Thread(target=lua.eval("function(wait) wait() return 1 end"), args=(wait,))
    thread.start()
    assert inside.wait(60)
    try:
        with pytest.raises(RuntimeError, match=r"1 call\(s\) into this Lua state run on other threads"):
            lua.close()
        with pytest.raises(RuntimeError, match=r"1 call\(s\) into this Lua state run on other threads"):
            lua.execute("local close = ... ; close()", lua.close)  # its own call is none of another thread's
        assert lua.eval("2") == 2
    finally:
        leave.set()
        thread.join()
    lua.close()


def test_while_another_thread_runs_lua_code_it_is_refused_at_once():
    lua, running = mf.Lua(interruptible=True), threading.Event()

    def work():
        with pytest.raises(mf.LuaInterrupt):
            lua.execute("local running = ... running() while true do end", running.set)

    thread = threading.Thread(target=work)
    thread.start()
    assert running.wait(60)
    try:
        with pytest.raises(RuntimeError, match=r"1 call\(s\) into this Lua state run on other threads"):
            lua.close()
    finally:
        lua.interrupt()
        thread.join()
    lua.close()


def test_threads_that_race_with_it_compute_or_raise():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            lua, refused, wrong = mf.Lua(), [], []
            work = lua.eval("function(f) local s = 0 for i = 1, 50 do s = s + f(i) end return s end")

            def run(work=work, refused=refused, wrong=wrong):
                for _ in range(40):
                    try:
                        if work(int) != 1275:
                            wrong.append(1)
                    except RuntimeError as error:
                        refused.append(str(error))

            threads = [threading.Thread(target=run) for _ in range(3)]
            for thread in threads:
                thread.start()
            while True:
                try:
                    lua.close()
                    break
                except RuntimeError as error:
                    assert "run on other threads" in str(error)
                    time.sleep(0)
            for thread in threads:
                thread.join(60)
            assert not wrong and all(CLOSED in text for text in refused)
    finally:
        sys.setswitchinterval(interval)


BUSY = "local flags, i, s = ... flags:put(i, 1) local t = os.clock() while os.clock() - t < s do end"


def test_a_call_that_waits_in_line_behind_it_finds_the_state_closed():
    """The main thread is inside, the second one waits for it, and the close for the second; then the third comes."""
    lua, flags, said = mf.Lua(), mf.zeros(2), []
    busy = lua.compile(BUSY)  # so that each call goes in once

    def second():
        while flags[0] == 0:
            time.sleep(0.001)
        busy(flags, 1, 0.3)

    def third():
        while flags[1] == 0:
            time.sleep(0.001)
        try:
            said.append(lua.eval("1"))
        except RuntimeError as error:
            said.append(str(error))

    threads = [threading.Thread(target=target, daemon=True) for target in (second, third)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.2)  # between its call and its close the main thread goes on alone
    try:
        for thread in threads:
            thread.start()
        busy(flags, 0, 0.4)
        lua.close()
    finally:
        sys.setswitchinterval(interval)
    for thread in threads:
        thread.join(60)
    assert len(said) == 1 and CLOSED in said[0]
