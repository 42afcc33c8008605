"""moonferry.Lua among Python's threads: the GIL, one lock per state, no deadlock."""

import ctypes
import signal
import sys
import threading
import time

import pytest

import moonferry as mf

LOOP = "function(n) local s = 0.0 for i = 1, n do s = s + math.sin(i) end return s end"


def run_all(targets):
    errors = []

    def guarded(target):
        try:
            target()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(t,), daemon=True) for t in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(t.is_alive() for t in threads), "deadlock"
    assert errors == []


def test_python_runs_while_lua_runs():
    loop = mf.Lua().eval(LOOP)
    ticks = []
    done = threading.Event()

    def tick():
        while not done.wait(0.001):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.monotonic()
    while len([t for t in ticks if t > start]) < 5 and time.monotonic() < start + 20:
        start = time.monotonic() if not ticks else start
        loop(2_000_000)
    done.set()
    thread.join()
    assert len(ticks) >= 5


def test_eight_threads_share_one_state():
    lua = mf.Lua()
    lua.execute("count = 0")
    lua.execute("function each(f, n) local s = 0 for i = 1, n do s = s + f(i) end count = count + 1 return s end")
    each = lua.globals().each

    def work(k):
        for i in range(60):
            assert each(lambda x: x * k, 10) == 55 * k
            assert list(lua.table(k, i).values()) == [k, i]
            assert list(lua.eval("function(n) for i = 1, n do coroutine.yield(i) end end").coroutine(3)) == [1, 2, 3]
            with pytest.raises(mf.LuaError) as caught:
                lua.execute("error{...}", i)
            assert caught.value.value[1] == i

    run_all([lambda k=k: work(k) for k in range(1, 9)])
    assert lua.eval("count") == 8 * 60


def test_states_of_their_own_in_threads():
    def work():
        lua = mf.Lua()
        for i in range(50):
            assert lua.eval("(...)(1)", lambda x, i=i: x + i) == i + 1

    run_all([work] * 6)


def test_two_states_are_inside_lua_at_the_same_time():
    """Each loop ends only once it has seen the other one run, through memory that both have; neither calls Python."""
    meet = """
        local mine, other = ...
        local jit = require "jit"
        local function wait(row)
          for round = 1, 2e9 do
            row[mine] = row[mine] + 1
            if row[other] > 100 and row[mine] > 100 then return round end
          end
        end
        jit.off(wait)
        return function(t) return wait(t:row(0)) end
    """
    board = mf.zeros((1, 2), "float64")
    rounds = [None, None]

    def run(mine):
        rounds[mine] = states[mine](board)

    states = [mf.Lua().execute(meet, mine, 1 - mine) for mine in range(2)]
    threads = [threading.Thread(target=run, args=(mine,)) for mine in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(rounds)
    states.clear()


def test_each_thread_that_is_inside_has_a_stack_of_its_own():
    lua = mf.Lua()
    call = lua.eval("function(wait, x) local mine = { x } wait() return mine[1] end")
    barrier, given = threading.Barrier(48, timeout=20), []
    for _ in range(2):
        run_all([lambda x=x: given.append(call(barrier.wait, x) == x) for x in range(48)])
    assert given == [True] * 96
    lua.close()


def test_a_callback_may_wait_for_a_thread_that_uses_the_same_state():
    lua = mf.Lua()
    answers = []

    def wait():
        thread = threading.Thread(target=lambda: answers.append(lua.eval("6 * 7")))
        thread.start()
        thread.join(20)
        assert not thread.is_alive()

    lua.execute("(...)()", wait)
    assert answers == [42]


def test_a_callback_that_has_looked_into_a_table_may_wait_for_a_thread_that_uses_the_state():
    """The look takes the lock for a moment."""
    lua = mf.Lua()
    names = lua.globals()

    def look_and_wait():
        assert names.absent is None
        run_all([lambda: lua.eval("1")])

    lua.execute("(...)()", look_and_wait)


def test_two_threads_that_wait_for_each_other_inside_of_lua():
    lua = mf.Lua()
    call = lua.eval("function(f) return f() end")
    barrier = threading.Barrier(2, timeout=20)

    def meet():
        barrier.wait()
        lua.eval("{}")
        barrier.wait()
        return lua.eval("1")

    run_all([lambda: call(meet)] * 2)


class Left(Exception):
    """What a handler of signals raises in the main thread, which waits in line then."""


@pytest.fixture
def signals():
    before = signal.getsignal(signal.SIGALRM)
    yield
    signal.signal(signal.SIGALRM, before)


def held():
    """A state that another thread is inside of until it is let go; and what starts threads that wait for it."""
    lua, began, over = mf.Lua(), mf.zeros(1), mf.zeros(1)
    threads, got = [], []

    def start(work):
        threads.append(threading.Thread(target=work, daemon=True))
        threads[-1].start()

    def let_go():
        over[0] = 1
        for thread in threads:
            thread.join(20)
        assert not any(t.is_alive() for t in threads), "deadlock"
        return got

    hold = "local began, over = ... began:fill(1) while over:get(0) == 0 do end"
    start(lambda: lua.execute(hold, began, over))
    while began[0] == 0:
        pass
    return lua, lambda: start(lambda: got.append(lua.eval("1"))), let_go


@pytest.mark.parametrize("before, behind", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_who_leaves_the_line_leaves_the_others_in_it(signals, before, behind):
    lua, wait_in_line, let_go = held()
    left = [behind]

    def handler(*_):
        if not left:
            raise Left
        for _ in range(left.pop()):
            wait_in_line()
        signal.setitimer(signal.ITIMER_REAL, 0.02)

    for _ in range(before):
        wait_in_line()
    signal.signal(signal.SIGALRM, handler)
    with pytest.raises(Left):
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        lua.eval("2")
    wait_in_line()
    assert let_go() == [1] * (before + behind + 1)
    assert lua.eval("3") == 3


def test_who_leaves_when_its_turn_has_come_passes_it_on(signals):
    lua, wait_in_line, let_go = held()

    def handler(*_):
        let_go()
        raise Left

    signal.signal(signal.SIGALRM, handler)
    with pytest.raises(Left):
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        lua.eval("2")
    wait_in_line()
    assert let_go() == [1]
    assert lua.eval("3") == 3


@pytest.fixture
def no_switch():
    """A thread keeps the GIL until it gives it up."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(60)
    yield
    sys.setswitchinterval(before)


def test_who_comes_back_gets_in_after_those_in_line(no_switch):
    """The other thread has the GIL from before it sets ${ready} until it waits in line."""
    lua, began, ready = mf.Lua(), threading.Event(), mf.zeros(1)
    names, enter = lua.globals(), lua.eval("function() order = order .. '2' end")

    def other():
        began.wait()
        ready[0] = 1
        enter()

    thread = threading.Thread(target=other, daemon=True)
    thread.start()
    lua.execute("local began, ready = ... began() while ready:get(0) == 0 do end order = '1'", began.set, ready)
    assert names.order == "12"
    thread.join(20)
    assert not thread.is_alive()


def test_a_thread_for_which_there_is_no_memory():
    """It comes while another is inside, and needs a stack of its own; as soon as there is memory it gets one, however
    often it came."""
    lua = mf.Lua(max_memory=0)
    got = []

    def come(times):
        for _ in range(times):
            try:
                got.append(lua.eval("1"))
            except MemoryError:
                got.append(None)

    def callback():
        lua.set_max_memory(1, total=True)
        run_all([lambda: come(5000)])
        lua.set_max_memory(0)
        run_all([lambda: come(1)])

    lua.eval("function(f) f() end")(callback)
    assert got == [None] * 5000 + [1]


def test_who_looks_at_a_python_object_keeps_the_state():
    """Another thread comes in when the script gives the state up, which such a look does not."""
    lua = mf.Lua()
    flags = mf.zeros(2)

    def come():
        while flags[0] == 0:
            pass
        lua.execute("(...):put(1, 1)", flags)

    thread = threading.Thread(target=come)
    thread.start()
    alone = lua.execute(
        """
local flags, object = ...
python.as_attrgetter(object)
flags:put(0, 1)
local spins = 0
while flags:get(1) == 0 and spins < 2e7 do spins = spins + 1 end
return flags:get(1) == 0
""",
        flags,
        object(),
    )
    thread.join()
    assert alone and flags[1] == 1


def test_a_call_below_lua_is_part_of_the_coroutine_that_called_out():
    """So a scope that is open there is the call's as well."""
    lua = mf.Lua()
    running = lua.eval("function() return (coroutine.running()) end")
    is_main = lua.eval("function() local thread, main = coroutine.running() return thread == nil or main end")
    assert lua.eval("function(f) return f() end")(lambda: is_main()) is True
    same = lua.eval("function(f) return coroutine.wrap(function() return f() == coroutine.running() end)() end")
    assert same(lambda: running()) is True
    tensor = lua.eval("function(f) local t require('moonferry').scope(function() t = f() end) return tostring(t) end")
    assert tensor(lambda: lua.eval("require('moonferry').zeros(1)")) == "mf.tensor<closed>"


def test_references_may_be_dropped_on_any_thread():
    lua = mf.Lua()
    box = [lua.eval("{}"), lua.eval("print"), iter(lua.table(1, 2))]
    next(box[2])
    thread = threading.Thread(target=box.clear)
    lua.execute("start, join = ... start() join()", thread.start, thread.join)
    assert not thread.is_alive()
    before = lua.eval("collectgarbage('collect'), collectgarbage('count')")[1]
    for _ in range(2000):
        lua.eval("{}")
    assert lua.eval("collectgarbage('collect'), collectgarbage('count')")[1] < before + 50


def test_a_script_that_gives_objects_back_leaves_the_state_to_other_threads():
    """The lock is given up while they go, and counts as it did before when they are gone."""
    lua = mf.Lua()
    lua.execute("local make, call = ... make() collectgarbage() collectgarbage() call()", object, lambda: None)
    run_all([lambda: lua.eval("1")])


def test_an_iterator_is_shared_by_threads():
    lua = mf.Lua()
    values = iter(lua.table_from(range(1000)).values())
    found = []
    run_all([lambda: found.extend(values)] * 4)
    assert sorted(found) == list(range(1000))


def test_what_an_exception_that_takes_no_notes_leaves_may_wait_for_a_thread_that_uses_the_state():
    lua, stuck = mf.Lua(), []

    class Waiting(Exception):
        def __del__(self):
            thread = threading.Thread(target=lambda: lua.eval("1"), daemon=True)
            thread.start()
            thread.join(20)
            stuck.append(thread.is_alive())

    class Refusing(Exception):
        def __setattr__(self, name, value):
            raise Waiting

    def fails():
        raise Refusing

    with pytest.raises(Refusing):
        lua.eval("function(f) f() end")(fails)
    assert stuck == [False]


def test_a_state_that_an_exception_has_crossed_is_free_for_other_threads():
    """Also when this one has looked into a table since."""
    lua, used = mf.Lua(), []
    table = lua.table(5)
    with pytest.raises(ZeroDivisionError):
        lua.execute("local r = (...)(1, 0) return r", divmod)
    assert table[1] == 5
    thread = threading.Thread(target=lambda: used.append(lua.eval("1")), daemon=True)
    thread.start()
    thread.join(20)
    assert used == [1]


def test_python_threads_go_on_while_an_overflow_handler_runs_lua_code():
    lua, t, crossing = mf.Lua(), mf.zeros(1), threading.Event()
    lua.execute("t = ... jit.off()", t)
    lua.set_overflow_handler(lua.eval("function() for _ = 1, 1e7 do if t:get(0) == 1 then return 'seen' end end end"))

    def write():
        crossing.wait()
        t[0] = 1

    def large():
        crossing.set()
        return 2**80

    thread = threading.Thread(target=write)
    thread.start()
    assert lua.eval("(...)()", large) == "seen"
    thread.join()


class Gate:
    """Once it is armed, another thread is in the state before its field is read or its next item is there."""

    def __init__(self, lua):
        self.flags, self.armed = (ctypes.c_int32 * 3)(), False
        self.thread = threading.Thread(target=lambda: lua.execute(STAYS, ctypes.addressof(self.flags)))

    def arm(self):
        self.armed = True

    @property
    def field(self):
        if self.armed:
            self.thread.start()
            while self.flags[0] == 0:
                time.sleep(0.001)
        return 1

    def __iter__(self):
        return self

    def __next__(self):
        return self.field


FLAGS = "local flags = require('ffi').cast('volatile int32_t *', (...)) "
# It stays so long that another thread that does not wait for it gets that far.
STAYS = FLAGS + "flags[0] = 1 for i = 1, 2e7 do if flags[2] ~= 0 then break end end flags[1] = 1"


@pytest.mark.parametrize("read", ["x = gate.field", "step(iterator)"])
def test_lua_goes_on_after_the_thread_that_came_meanwhile(read):
    lua = mf.Lua()
    gate = Gate(lua)
    code = (
        FLAGS + "local _, gate, arm = ... local step, iterator = python.iter(gate) local x = gate.field step(iterator) "
    )
    lua.execute(code + f"arm() {read} flags[2] = 1 + flags[1]", ctypes.addressof(gate.flags), gate, gate.arm)
    gate.thread.join()
    assert list(gate.flags) == [1, 1, 2]
