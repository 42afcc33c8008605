"""A coroutine of Lua's as a Python generator: its throw and close, and what is left of one that could not go on."""

import contextlib
import gc
import itertools
import sys
import weakref

import pytest

import moonferry as mf


class Thing:
    pass


CATCHER = """function()
    local ok, err = pcall(wait, 1)
    local more = coroutine.yield(ok)
    return "end", more
end"""


WAIT = "function wait(...) local x = coroutine.yield(...) return x end"


@pytest.fixture(params=[{}, {"interruptible": True}], ids=str)
def lua(request):
    state = mf.Lua(**request.param)
    state.execute(WAIT)
    return state


def test_throw_raises_where_the_coroutine_waits(lua):
    thread = lua.eval(CATCHER).coroutine()
    assert next(thread) == 1
    assert thread.throw(KeyError("k")) is False
    assert thread.send(7) == ("end", 7)
    with pytest.raises(StopIteration):
        thread.send(None)


def test_throw_lets_an_exception_out_that_nobody_catches(lua):
    thread = lua.eval("function() local x = coroutine.yield(1) coroutine.yield(x) end").coroutine()
    assert next(thread) == 1
    error = KeyError("k")
    with pytest.raises(KeyError) as caught:
        thread.throw(error)
    assert caught.value is error and not thread
    assert list(thread) == []


def test_lua_sees_the_exception_itself(lua):
    seen = []
    thread = lua.eval("function(seen) local _, err = pcall(wait) seen(err) end").coroutine(seen.append)
    next(thread)
    error = KeyError("k")
    with pytest.raises(StopIteration):
        thread.throw(error)
    assert seen == [error]


def test_throw_of_a_class_and_of_what_is_no_exception(lua):
    thread = lua.eval("function() coroutine.yield(1) end").coroutine()
    with pytest.raises(TypeError, match="an exception or its class expected, got 3"):
        thread.throw(3)
    assert next(thread) == 1
    with pytest.raises(ZeroDivisionError):
        thread.throw(ZeroDivisionError)


def error_of(lua, code):
    with pytest.raises(mf.LuaError) as caught:
        lua.execute(code)
    return caught.value


def test_throw_into_one_that_has_not_begun_or_has_ended(lua):
    ran = []
    thread = lua.eval("function(ran) ran(1) end").coroutine(ran.append)
    for error in (KeyError("k"), mf.LuaError("l"), error_of(lua, "error {}"), KeyError("k")):
        with pytest.raises(type(error)) as caught:
            thread.throw(error)
        assert caught.value is error and not thread and not ran


def test_throw_into_one_that_waits_in_its_last_instruction(lua):
    thread = lua.eval("function() return coroutine.yield(1) end").coroutine()
    assert next(thread) == 1
    with pytest.raises(KeyError):
        thread.throw(KeyError("k"))
    bare = lua.eval("coroutine.yield").coroutine(5)
    assert next(bare) == 5
    with pytest.raises(KeyError):
        bare.throw(KeyError("k"))
    assert not bare
    assert lua.eval("1 + 1") == 2


def test_throw_runs_through_a_message_handler_and_leaves_a_hook_of_the_scripts(lua):
    lua.execute("hits = 0; function hook() hits = hits + 1 end")
    thread = lua.eval(
        "function() local _, m = xpcall(wait, function(e) return 'handled ' .. tostring(e) end) coroutine.yield(m) end"
    ).coroutine()
    next(thread)
    if not lua._interruptible:
        lua.execute("debug.sethook(hook, '', 1)")
    assert "handled" in thread.throw(KeyError("k"))
    if not lua._interruptible:
        lua.execute("local before = hits; local x = 1; x = x + 1; assert(hits > before, hits); debug.sethook()")
    assert lua.eval("(function() local s = 0 for i = 1, 1000 do s = s + i end return s end)()") == 500500


NO_HOOKS = "a debug hook or a finalizer of this state has called this; the coroutine waits as before"


def coroutine_ended_by_inside(lua):
    """A coroutine that waits, and what is said to each try of `inside`, a global of Lua's, to end it."""
    thread = lua.eval("function() coroutine.yield(1) went_on = true coroutine.yield(2) end").coroutine()
    assert next(thread) == 1
    refused = []

    def inside():
        for end in thread.close, lambda: thread.throw(KeyError("thrown")):
            with pytest.raises(mf.LuaError) as told:
                end()
            refused.append(str(told.value).splitlines()[0])

    lua.globals().inside = inside
    return thread, refused


def test_throw_inside_of_a_debug_hook_is_refused():
    """The library's own hook, which would raise, runs in none, so that the coroutine would go on."""
    lua = mf.Lua()
    thread, refused = coroutine_ended_by_inside(lua)
    lua.execute("debug.sethook(function() debug.sethook() inside() end, '', 1) local x = 1")
    assert refused == [NO_HOOKS, NO_HOOKS] and lua.globals().went_on is None
    thread.close()
    assert lua.globals().went_on is None and list(thread) == []


def test_throw_inside_of_a_finalizer_is_refused():
    """LuaJIT cannot drop compiled code there. What was to be raised is not kept by the state."""
    lua = mf.Lua()
    thread, refused = coroutine_ended_by_inside(lua)
    lua.execute("""
        function finalize() getmetatable(newproxy(true)).__gc = function() inside() end collectgarbage() end
        function kept() local n = 0 for _ in pairs(debug.getregistry()) do n = n + 1 end return n end
        finalize()""")
    before = lua.globals().kept()
    for _ in range(20):
        lua.globals().finalize()
    assert set(refused) == {NO_HOOKS} and len(refused) == 42 and lua.globals().went_on is None
    assert lua.globals().kept() < before + 20
    thread.close()
    assert lua.globals().went_on is None and list(thread) == []


def test_throw_while_it_runs_is_refused(lua):
    thread = lua.eval("function(f) f() coroutine.yield(1) end").coroutine(lambda: thread.throw(KeyError("k")))
    with pytest.raises(mf.LuaError, match="running"):
        next(thread)


def test_a_compiled_loop_that_yields_is_thrown_out_of(lua):
    thread = lua.eval("function() local n = 0 while true do n = n + 1 coroutine.yield(n) end end").coroutine()
    for expected in range(1, 500):
        assert next(thread) == expected
    with pytest.raises(KeyError):
        thread.throw(KeyError("k"))
    assert not thread


def test_close_ends_a_coroutine(lua):
    thread = lua.eval("function() coroutine.yield(1) coroutine.yield(2) end").coroutine()
    assert next(thread) == 1
    assert thread.close() is None
    assert not thread and list(thread) == []
    thread.close()
    fresh = lua.eval("function(x) error(x) end").coroutine(Thing())
    fresh.close()
    assert not fresh and list(fresh) == []


def test_close_runs_what_catches_and_raises_what_comes_of_it(lua):
    ran = []
    cleans = lua.eval("function(ran) local ok, e = pcall(wait, 1) ran(ok) error(e, 0) end").coroutine(ran.append)
    next(cleans)
    cleans.close()
    assert ran == [False] and not cleans
    returns = lua.eval("function() pcall(wait, 1) return 5 end").coroutine()
    next(returns)
    returns.close()
    assert not returns
    stays = lua.eval(CATCHER).coroutine()
    next(stays)
    with pytest.raises(RuntimeError, match="the coroutine caught GeneratorExit and went on"):
        stays.close()
    assert stays.send(3) == ("end", 3)
    fails = lua.eval("function() pcall(wait, 1) error('mine', 0) end").coroutine()
    next(fails)
    with pytest.raises(mf.LuaError, match="mine"):
        fails.close()


# What a coroutine does before an exception is thrown into it, and what throw raises then.
ENDS = {
    "catches it": ("function() pcall(wait) end", StopIteration),
    "waits in its last instruction": ("function() return coroutine.yield() end", KeyError),
    "does not catch it": ("function() wait() end", KeyError),
    "has ended": ("function() end", KeyError),
    "has a hook that runs": ("function() wait() end", mf.LuaError),
}


@pytest.mark.parametrize("end", ENDS)
def test_throw_keeps_nothing(end):
    code, raised = ENDS[end]
    lua, gone, kept = mf.Lua(), [], []
    lua.execute(WAIT)
    f = lua.eval(code)
    in_hook = lua.eval("function(f) debug.sethook(function() debug.sethook() f() end, '', 1) local x = 1 end")

    def once():
        error, thread = KeyError("k"), f.coroutine()
        thing = error.thing = Thing()
        gone.append(weakref.ref(thing))
        kept.append(thread)
        next(thread, None)

        def throw():
            with pytest.raises(raised):
                thread.throw(error)

        if raised is mf.LuaError:
            in_hook(throw)
        else:
            throw()

    for _ in range(20):
        once()
    lua.gccollect()
    lua.eval("1")
    gc.collect()
    assert len(gone) == 20 and [r for r in gone if r() is not None] == []


YIELDS_NEW = "function() pcall(wait) coroutine.yield(new()) end"


@pytest.mark.parametrize("code", [YIELDS_NEW, "function() coroutine.yield() end"], ids=["goes on", "ends"])
def test_close_keeps_nothing(lua, code):
    f, gone = lua.eval(code), []

    def new():
        thing = Thing()
        gone.append(weakref.ref(thing))
        return thing

    lua.globals().new = new
    for _ in range(20):
        thread = f.coroutine()
        next(thread)
        with contextlib.suppress(RuntimeError):
            thread.close()
    del thread
    lua.gccollect()
    lua.eval("1")
    gc.collect()
    assert len(gone) == (20 if code is YIELDS_NEW else 0) and [thing for thing in gone if thing() is not None] == []
    assert [each for each in gc.get_objects() if type(each) is GeneratorExit] == []


def test_throw_of_a_class_that_makes_no_exception(lua):
    class Odd(Exception):
        def __new__(cls):
            made = Thing()
            gone.append(weakref.ref(made))
            return made

    class Fails(Exception):
        def __init__(self):
            raise LookupError("mine")

    gone = []
    thread = lua.eval("function() coroutine.yield(1) end").coroutine()
    with pytest.raises(TypeError, match=r"throw: <class '.*Odd'>\(\) gave no exception"):
        thread.throw(Odd)
    assert [made() for made in gone] == [None]
    with pytest.raises(LookupError, match="mine"):
        thread.throw(Fails)
    assert next(thread) == 1


def test_one_that_throw_ends_at_its_beginning_drops_what_it_was_to_begin_with(lua):
    thing = Thing()
    gone, thread = weakref.ref(thing), lua.eval("coroutine.yield").coroutine(thing)
    del thing
    with pytest.raises(KeyError):
        thread.throw(KeyError("k"))
    assert gone() is None and not thread
    with pytest.raises(StopIteration):
        thread.send(5)


def test_more_values_than_lua_has_room_for_are_refused_and_it_goes_on(lua):
    thread = lua.eval("function() coroutine.yield(unpack({}, 1, 7990)) coroutine.yield(2) end").coroutine()
    with pytest.raises(mf.LuaError, match="too many values"):
        next(thread)
    assert next(thread) == 2


def test_one_that_catches_an_interrupt_and_yields_is_interrupted():
    lua = mf.Lua()
    thread = lua.eval("function(f) coroutine.yield(pcall(f)) end").coroutine(lambda: lua.interrupt(KeyError("why")))
    with pytest.raises(KeyError, match="why"):
        next(thread)


def test_one_that_ends_while_what_it_is_sent_crosses_is_not_resumed(lua):
    thread = lua.eval("function() coroutine.yield(1) return 2 end").coroutine()
    assert next(thread) == 1
    lua.set_overflow_handler(lambda number: next(thread))
    with pytest.raises(mf.LuaError, match="cannot resume this coroutine"):
        thread.send(2**70)
    assert not thread


@pytest.mark.parametrize("resume", [next, lambda thread: thread.send(None)], ids=["next", "send"])
def test_one_that_could_not_begin_still_has_what_it_was_made_with(lua, resume):
    thread = lua.eval("function(...) coroutine.yield(...) end").coroutine("first", 2**70)
    for _ in range(2):
        with pytest.raises(OverflowError):
            resume(thread)
    lua.set_overflow_handler(float)
    assert resume(thread) == ("first", 2.0**70)


def test_one_for_whose_beginning_there_was_no_memory_begins_with_what_it_was_made_with():
    lua = mf.Lua(max_memory=0)
    thread = lua.eval("function(text) coroutine.yield(#text) end").coroutine("x" * 1_000_000)
    lua.set_max_memory(200_000)
    with pytest.raises(mf.LuaMemoryError):
        next(thread)
    lua.set_max_memory(0)
    assert next(thread) == 1_000_000


def test_one_that_is_resumed_while_it_is_to_begin_begins_once(lua):
    seen = []

    def resume(number):
        lua.set_overflow_handler(float)
        seen.append(next(thread))
        return 0

    lua.set_overflow_handler(resume)
    thread = lua.eval("function(...) coroutine.yield(...) coroutine.yield(2) end").coroutine(1, 2**70)
    with pytest.raises(mf.LuaError, match="cannot resume this coroutine"):
        next(thread)
    assert seen == [(1, 2.0**70)] and next(thread) == 2


def test_one_that_begins_with_what_refers_to_it_is_collected():
    """CPython's collector cannot make a super object let go."""
    kept = object()
    before, link = sys.getrefcount(kept), super.__new__(super)
    thread = mf.Lua().eval("function() end").coroutine(link, kept)
    super.__init__(link, type(thread), thread)
    del thread, link
    gc.collect()
    assert sys.getrefcount(kept) == before


DROPPED = """function(drop, come_and_go)
    local kept = { 1 }
    drop()
    come_and_go()
    coroutine.wrap(function() for _ = 1, 3 do collectgarbage() end end)()
    coroutine.yield(kept[1])
end"""


def test_one_that_python_drops_while_it_runs_goes_on(lua):
    """islice drops what it goes through where that fails, as one does that is asked again while it runs."""

    def drop():
        with pytest.raises(mf.LuaError, match="running"):
            next(values)

    values = itertools.islice(lua.eval(DROPPED).coroutine(drop, lambda: None), 1)
    assert next(values) == 1


@pytest.mark.parametrize("begun", [False, True], ids=["begins", "goes on"])
def test_one_that_had_no_memory_for_what_it_gets_is_dead_for_lua_too(begun):
    lua, ends = mf.Lua(max_memory=0), set()
    f = lua.eval("function() coroutine.yield() coroutine.yield() end")
    for more in range(0, 30000, 500):
        thread = lua.globals().made = f.coroutine(*(() if begun else range(300)))
        if begun:
            next(thread)
        lua.gccollect()
        lua.set_max_memory(lua.get_memory_used() + more)
        try:
            thread.send(tuple(range(300)) if begun else None)
            end = "begun"
        except MemoryError:
            end = "refused"
        lua.set_max_memory(0)
        assert lua.eval("coroutine.status(made)") == ("suspended" if thread else "dead")
        if not thread:
            other = lua.globals().made
            assert lua.eval("(coroutine.resume(made))") is False and not other
            with pytest.raises(StopIteration):
                next(other)
            with pytest.raises(KeyError):
                other.throw(KeyError)
            other.close()
        ends.add((end, bool(thread)))
    assert ends == {("refused", True), ("refused", False), ("begun", True)}


def test_a_coroutine_stays_until_it_has_waited_again_whoever_lets_go_of_it_meanwhile(on_encode):
    """itertools lets go of an iterator that fails inside of its own step; another then has its memory."""
    count = mf.Lua(encoding="x-held").eval("function() for i = 1, 3 do coroutine.yield(i) end end")
    steps, others = itertools.islice(count.coroutine("first", "second"), 10), []

    def fail():
        raise KeyboardInterrupt

    def step_inside():
        with pytest.raises(KeyboardInterrupt):
            next(steps)
        others.extend(count.coroutine(None) for _ in range(20))

    on_encode.update(first=step_inside, second=fail)
    assert next(steps) == 1 and list(steps) == []
    assert [list(other) for other in others] == [[1, 2, 3]] * 20
