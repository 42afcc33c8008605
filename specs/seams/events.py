"""What can happen inside of a call: each is a function of the bench, with what it may bring about.

Responsible for the events, for the errors that the operation may raise because of each, and for what an event has to
clear away after the operation. Must not know where an event strikes, nor which operation it is in.
"""

import contextlib
import gc
import os
import signal
import sys
import threading
import weakref

import numpy as np
from bench import Index, noisy
from strike import is_in_threading

import moonferry as mf


class Struck(Exception):
    """What a callback raises."""


class StruckBase(BaseException):
    """The same, of the sort that `except Exception` lets through."""


class Event:
    """`act(bench)` happens inside of the call, `after(bench)` behind it. `raises`: this comes out of the call, or is
    told to sys.unraisablehook where no caller can be told. `allows`: errors that it may raise instead of giving its
    result, by type or by what they say. `takes`: what the operation worked on may be gone, and is made again. `needs`:
    "state" (of Python's), "limit" (a state whose memory is counted), "gpu"."""

    def __init__(self, act, *, raises=None, allows=(), after=None, takes=False, needs=None, changes=False):
        self.name, self.act, self.raises, self.after = act.__name__, act, raises, after
        self.allows, self.takes, self.needs, self.changes = allows, takes, needs, changes

    def applies(self, bench):
        has_state = bench.host is None
        met = {"state": has_state, "limit": has_state and bench.is_limited, "gpu": bench.device != "cpu"}
        return self.needs is None or met[self.needs]


EVENTS = {}


def event(**facts):
    def add(act):
        EVENTS[act.__name__] = Event(act, **facts)
        return act

    return add


def in_thread(function, *args):
    """Another thread does it while this one waits: so whoever holds something that it needs is seen to hang."""
    if is_in_threading():
        return
    wrong = []

    def work():
        try:
            function(*args)
        except BaseException as error:  # reported by whoever waits
            wrong.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if wrong:
        raise AssertionError(f"the event failed: {wrong[0]!r}") from wrong[0]


def begin(b, function, *args):
    """In a thread that goes on beside the operation, until `join`, which is what comes after such an event. What the
    function is given last, it sets when it has begun."""
    if is_in_threading():
        return
    begun = threading.Event()
    thread = threading.Thread(target=function, args=(*args, begun))
    b.kept.append(thread)
    thread.start()
    begun.wait()


def join(b):
    for thread in b.kept:
        thread.join()
    b.kept.clear()


# Calls


@event()
def calls_python(b):
    assert sorted([str(i) for i in range(20)], key=lambda s: -int(s))[0] == "19"


@event()
def calls_lua(b):
    assert b.call(5) == 5


@event()
def calls_another_state(b):
    lua = mf.Lua()
    assert lua.eval("(...)(3)", lua.eval("function(n) return n * 2 end")) == 6


@event()
def calls_the_library(b):
    t = mf.ones((3, 2))
    u = mf.from_dlpack(np.from_dlpack(t)).T
    assert u.copy().tolist() == [[1.0] * 3] * 2


@event()
def calls_the_library_in_lua(b):
    b.helpers["uses_the_library"]()


@event()
def reads_the_same_tensors(b):
    for t in (b.t, b.h):
        assert t.to("cpu").tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert mf.from_dlpack(b.t.__dlpack__(max_version=(1, 3))).shape == (2, 3)


@event()
def repeats_the_operation(b):
    b.operation(b)


# Errors


@event(raises=Struck)
def raises(b):
    raise Struck("by an event")


@event(raises=StruckBase)
def raises_base(b):
    raise StruckBase("by an event")


@event(raises=mf.LuaError)
def raises_a_lua_error(b):
    b.helpers["fails"]()


@event()
def an_error_is_caught(b):
    try:
        b.helpers["fails"]()
    except mf.LuaError:
        pass
    try:
        mf.zeros(-1)
    except ValueError:
        pass


@event(raises=KeyboardInterrupt)
def ctrl_c(b):
    os.kill(os.getpid(), signal.SIGINT)


@event(allows=(mf.LuaInterrupt,), needs="state")
def interrupts(b):
    b.lua.interrupt()


def handled(number, frame):
    noisy()
    gc.collect()


@event()
def a_signal_is_handled(b):
    signal.signal(signal.SIGUSR1, handled)
    os.kill(os.getpid(), signal.SIGUSR1)


# Collections and last references


@event()
def collects_python(b):
    made = [noisy()]
    made.append(made)
    del made
    gc.collect()


@event()
def collects_lua(b):
    b.helpers["collects"]()


@event()
def a_lua_finalizer_runs(b):
    b.helpers["finalizes"](lambda: b.call(1))


@event()
def a_python_finalizer_runs(b):
    seen = []
    owner = noisy()
    finalizer = weakref.finalize(owner, lambda: seen.append(b.call(1)))
    try:
        t = mf.from_dlpack(owner)
    except BaseException:
        finalizer.detach()  # or it runs with the error's traceback, when there may be nothing left to call
        raise
    del owner
    del t
    assert seen == [1]


CLOSED = (mf.LuaError, ValueError, TypeError, AttributeError, RuntimeError)


@event(takes=True)
def drops_the_tensors(b):
    b.t = b.u = b.h = b.w = b.one = b.a = None
    b.helpers["drops"]()
    gc.collect()


@event(takes=True, allows=CLOSED)
def closes_the_tensors_in_lua(b):
    b.helpers["closes"]()


@event(takes=True, allows=CLOSED)
def closes_the_tensors(b):
    for t in (b.t, b.u, b.h, b.w, b.one):
        with contextlib.suppress(BufferError, AttributeError):  # a buffer is out, or another event has taken it
            t.close()


@event(takes=True, allows=CLOSED)
def another_thread_closes_the_tensors(b):
    in_thread(closes_the_tensors, b)


@event(takes=True, needs="state")
def drops_the_state(b):
    b.lua = b.helpers = b.ops = b.call = b.table = None
    gc.collect()


@event(takes=True)
def another_thread_drops_everything(b):
    in_thread(drops_the_tensors, b)


@event(takes=True, needs="state")
def another_thread_drops_the_state(b):
    in_thread(drops_the_state, b)


GONE = "this Lua state was closed"


def close_state(b, lua):
    """Whether it could be closed, which is refused while a call into it runs. What the bench has of it stays, for the
    operation to find it closed; but for the helpers, which are for the campaign."""
    try:
        lua.close()
    except RuntimeError as error:
        if not str(error).startswith("close: "):
            raise
        return False
    b.is_closed = True
    if b.host is None:
        b.helpers = b.ops = None
    return True


@event(takes=True, allows=(GONE,))
def closes_the_state(b):
    if b.lua is not None:
        close_state(b, b.lua)


@event(takes=True, allows=(GONE,))
def another_thread_closes_the_state(b):
    in_thread(closes_the_state, b)


@event(takes=True, allows=(GONE,), after=join)
def another_thread_closes_the_state_when_it_may(b):
    """Between two calls into it, or as soon as the last one has returned."""
    if b.lua is None:
        return
    sys.setswitchinterval(1e-5)

    def work(lua, begun):
        while not close_state(b, lua):
            begun.set()
        begun.set()

    begin(b, work, b.lua)


@event(needs="gpu")
def drops_a_stream(b):
    s = mf.Stream(b.device)
    with s:
        mf.zeros((4,), device=b.device)
    del s


# Memory


def no_fault(b):
    mf._core._fault_arm(-1, False)


@event(allows=(MemoryError, mf.LuaError), after=no_fault)
def no_memory(b):
    mf._core._fault_arm(0, False)


@event(allows=(MemoryError, mf.LuaError), after=no_fault)
def no_memory_a_little_later(b):
    mf._core._fault_arm(2, False)


@event(allows=(MemoryError, mf.LuaError), after=no_fault)
def no_memory_from_now_on(b):
    mf._core._fault_arm(0, True)


def no_limit(b):
    if b.lua is not None and not b.is_closed:
        b.lua.set_max_memory(0)


@event(allows=(MemoryError,), after=no_limit, needs="limit")
def the_state_reaches_its_limit(b):
    b.lua.set_max_memory(1, total=True)


@event(allows=(MemoryError,), after=no_limit, needs="limit")
def the_state_comes_near_its_limit(b):
    b.lua.set_max_memory(b.lua.get_memory_used(total=True) + 400, total=True)


def no_pool_limit(b):
    mf.pool_limit(b.device, 0)


@event(allows=(MemoryError, mf.LuaError), after=no_pool_limit, needs="gpu")
def the_pool_reaches_its_limit(b):
    mf.pool_limit(b.device, 1)


# Other threads


@event()
def another_thread_trims(b):
    in_thread(mf.trim)


@event()
def another_thread_uses_the_state(b):
    in_thread(lambda: b.call(7))


@event()
def another_thread_exports_and_imports(b):
    def work():
        for _ in range(3):
            assert mf.from_dlpack(b.t.__dlpack__()).shape == (2, 3)
            np.from_dlpack(b.h)

    in_thread(work)


@event(after=join)
def another_thread_waits_for_the_state(b):
    """It has the state when the call wants it back, or asks for it as soon as the call lets it go."""

    def work(begun):
        begun.set()
        for _ in range(3):
            b.helpers["works"](50)

    begin(b, work)


@event()
def another_thread_collects(b):
    in_thread(gc.collect)
    in_thread(b.helpers["collects"])


def child(b):
    signal.alarm(200)
    assert b.call(3) == 3
    assert mf.Lua().eval("1") == 1
    assert np.from_dlpack(mf.ones((2,))).sum() == 2
    b.t = b.u = b.h = b.w = None
    b.helpers["drops"]()
    gc.collect()


@event()
def forks(b):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            child(b)
            status = 0
        except BaseException as error:
            os.write(2, f"the child of the event: {error!r}\n".encode())
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0, "the forked child failed"


# What arguments are made of


@event(changes=True, allows=(ValueError, IndexError, TypeError, RuntimeError, mf.LuaError, KeyError))
def arguments_change(b):
    for values in b.lists:
        values.clear()
    Index(3)
    b.helpers["changes"]()
