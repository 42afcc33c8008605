"""Eight threads that do the same at once: create, export, import, view, drop, and work in Lua states.

With the GIL these are short; without it (`make test-nogil`) they are what the module and the bridge promise there, with
more rounds and under ThreadSanitizer. What goes wrong there is seldom an exception: it is a crash, or a report.
"""

import gc
import os
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import moonferry as mf

THREADS = 8
ROUNDS = int(os.environ.get("MOONFERRY_SPEC_ROUNDS", "60"))


def all_at_once(work, rounds=ROUNDS):
    """Calls work(thread, round) on eight threads that begin together; raises the first error."""
    errors = []
    start = threading.Barrier(THREADS)

    def run(thread):
        try:
            start.wait()
            for round_ in range(rounds):
                work(thread, round_)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.fixture
def array():
    return np.arange(24, dtype="float32").reshape(4, 6)


def test_importing_moonferry_leaves_the_gil_as_it_was(free_threaded):
    enabled = getattr(sys, "_is_gil_enabled", lambda: True)()
    assert enabled == (not free_threaded or os.environ.get("PYTHON_GIL") == "1")


def test_round_trips(array):
    def work(_, __):
        t = mf.from_dlpack(array)
        assert np.from_dlpack(t)[3, 5] == 23
        turned = mf.from_dlpack(t.T.__dlpack__(max_version=(1, 3)))
        assert turned.shape == (6, 4) and turned[5, 3] == 23
        assert memoryview(t)[3, 5] == 23

    all_at_once(work)


# Each of these makes something that a process makes only once. Eight threads begin each one together, and no lock puts
# them in order.
THE_FIRST_OF_EACH = """
import threading
import time
import numpy as np
import moonferry as mf

array = np.arange(6, dtype="float32")

def refuse(call, error):
    try:
        call()
    except error:
        return
    raise AssertionError("not refused")

def lua():
    state = mf.Lua()
    state.globals().tensor = mf.from_dlpack(array)
    assert state.eval("tensor.shape[1]") == 6
    refuse(lambda: state.execute("error {}"), mf.LuaError)
    assert list(state.table(1, 2).values()) == [1, 2] and "Lua" in repr(state)

FIRSTS = [
    lambda: mf.from_dlpack(array),
    lambda: np.from_dlpack(mf.zeros(3)),
    lambda: memoryview(mf.zeros(3, "float32")),
    lambda: (str(mf.ones(3).dtype), str(mf.ones(3).device), mf.ones(3).flags, repr(mf.ones(3))),
    lambda: mf.asarray([[1, 2], [3, 4]]).T.copy().tolist(),
    lambda: mf.zeros(4)[1:3][0],
    lambda: refuse(lambda: mf.zeros((2, -1)), ValueError),
    lambda: refuse(lambda: mf.zeros(2, "float7"), (TypeError, ValueError)),
    lambda: refuse(lambda: mf.zeros(2)[5], IndexError),
    lambda: refuse(lambda: mf.from_dlpack(3), AttributeError),
    lambda: refuse(lambda: mf.zeros(3, device="cuda:77"), Exception),
    lambda: mf.Ring((4,), "float32", 2).close(),
    lua,
]
arrived = [[] for _ in FIRSTS]
errors = []

def work():
    try:
        for first, here in zip(FIRSTS, arrived):
            here.append(1)
            while len(here) < 8 and not errors:
                time.sleep(0)
            first()
    except BaseException as error:
        errors.append(error)
        raise

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not errors
"""


def test_the_first_of_each_on_eight_threads():
    for _ in range(max(1, ROUNDS // 40)):
        done = subprocess.run([sys.executable, "-c", THE_FIRST_OF_EACH], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr


def test_one_tensor_for_all(array):
    shared = mf.from_dlpack(array)

    def work(thread, round_):
        assert shared[1:3][1, 1] == 13
        assert np.from_dlpack(shared)[1, 1] == 7
        assert mf.from_dlpack(shared.__dlpack__())[1, 1] == 7
        version = (1, round_ % 4)
        assert mf.from_dlpack(shared.__dlpack__(max_version=version, copy=None))[1, 1] == 7
        assert mf.from_dlpack(shared.__dlpack__(stream=None, max_version=version))[1, 1] == 7
        assert (str(shared.dtype), str(shared.device), shared.strides) == ("float32", "cpu", (6, 1))
        assert weakref.ref(shared)() is shared
        with memoryview(shared) as view:
            assert view.shape == (4, 6)
        if thread == 0:
            shared[0, 0] = round_

    all_at_once(work)


def test_the_names_of_dtypes_are_the_same_objects_everywhere():
    names = [f"int{bits}" for bits in range(1, 40)] + ["float32", "bfloat16", "complex64", "bool"]
    seen = [{} for _ in range(THREADS)]

    def work(thread, round_):
        name = names[round_ % len(names)]
        t = mf.empty((2, 3), mf.DType(name))
        assert str(t.dtype) == name
        seen[thread].setdefault(name, set()).add(id(t.dtype))
        assert t.device is mf.empty(1).device

    all_at_once(work, len(names))
    for name in names:
        assert len(set.union(*(found[name] for found in seen))) == 1


class Producer:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_producers_whose_types_come_change_and_go(array):
    changing = type("Changing", (Producer,), {})

    def work(thread, round_):
        made = type(f"Producer{round_ % 50}", (Producer,), {})
        assert mf.from_dlpack(made(array))[1, 1] == 7
        assert mf.from_dlpack(changing(array))[1, 1] == 7
        assert mf.from_dlpack(array)[1, 1] == 7
        if thread == 0:
            changing.__dlpack__ = lambda self, **options: self.array.__dlpack__(**options)
        if round_ % 50 == 0:
            gc.collect()

    all_at_once(work)


def test_one_capsule_is_consumed_once(array):
    start = [mf.from_dlpack(array).__dlpack__(max_version=(1, 3)) for _ in range(ROUNDS)]
    taken = [0] * THREADS

    def work(thread, round_):
        try:
            assert mf.from_dlpack(start[round_])[1, 1] == 7
            taken[thread] += 1
        except mf.ExchangeError as error:
            assert "consumed before" in str(error)

    all_at_once(work)
    assert sum(taken) == ROUNDS


def test_lists_that_change_while_they_are_read():
    rows = [[1, 2, 3] for _ in range(4)]

    def work(thread, round_):
        if thread == 0:
            rows[round_ % 4] = [round_] * 3
            rows.append(rows.pop())
            return
        try:
            assert mf.tensor(rows, "int64").shape[1:] == (3,)
        except ValueError as error:
            assert "ragged" in str(error)

    all_at_once(work)


def test_tensors_that_are_dropped_by_another_thread(array):
    box = [mf.from_dlpack(array)] * 4

    def work(_, round_):
        t = box[round_ % 4]
        box[round_ % 4] = mf.from_dlpack(array.copy()) if round_ % 2 else mf.zeros((4, 6))
        assert t.shape == (4, 6) and np.from_dlpack(t).shape == (4, 6)

    all_at_once(work)
    box.clear()


def test_tensors_that_are_closed_meanwhile(array):
    tensors = [mf.from_dlpack(array.copy()) for _ in range(ROUNDS)]

    def work(thread, round_):
        t = tensors[round_]
        uses = [
            t.close,
            lambda: np.from_dlpack(t)[1, 1],
            lambda: mf.from_dlpack(t)[1, 1],
            lambda: memoryview(t).tolist(),
            lambda: (t[1, 1], t.shape, len(t), t.T[1, 1], t.dtype),
            lambda: mf.from_dlpack(t.__dlpack__(max_version=(1, 3)))[1, 1],
            lambda: mf.into(mf.Tensor, t)[1, 1],
            lambda: (t.copy()[1, 1], t.tolist(), repr(t)),
        ]
        try:
            uses[thread]()
        except (ValueError, BufferError) as error:
            assert "closed" in str(error) or "buffer" in str(error)

    all_at_once(work)
    for t in tensors:
        t.close()


def test_a_ring_that_is_closed_meanwhile():
    rings = [mf.Ring((4,), "float32", 2) for _ in range(ROUNDS)]

    def work(thread, round_):
        ring = rings[round_]
        try:
            if thread == 0:
                ring.begin(timeout=0)
                ring.publish()
            elif thread == 1:
                ring.latest()
            elif thread == 2:
                ring.into(np.ndarray)
            elif thread == 3:
                ring.close()
            else:
                repr(ring)
                assert len(ring.slots) == 2
        except (ValueError, TimeoutError):
            pass

    all_at_once(work)
    for ring in rings:
        ring.close()


def test_a_lua_state_for_each():
    def work(thread, round_):
        lua = mf.Lua()
        assert lua.eval("(function(n) local s = 0 for i = 1, n do s = s + i end return s end)(1000)") == 500500
        table = lua.table(1, 2, thread=thread)
        assert sorted(table.values()) == sorted([1, 2, thread])
        seen = []
        lua.globals().call = seen.append
        lua.execute("for i = 1, 10 do call(i) end")
        assert seen == list(range(1, 11))
        lua.close()

    all_at_once(work, max(1, ROUNDS // 10))


def test_one_lua_state_for_all(array, lua):
    count = lua.eval("function(f, n) local s = 0 for i = 1, n do s = s + f(i) end return s end")
    fields = lua.execute("shared = {} for i = 1, 50 do shared[i] = i end shared.name = 'x' return shared")
    size = lua.eval("function(t) return #t.shape end")
    shared = mf.from_dlpack(array)

    def work(thread, round_):
        assert count(lambda i: i * 2, 10) == 110
        assert fields[1 + round_ % 50] == 1 + round_ % 50
        fields.name = "x" if round_ % 2 else "y"
        assert fields.name in ("x", "y")
        assert len(list(fields)) == 51
        assert size(shared) == 2
        assert lua.table(shared)[1][1, 1] == 7

    all_at_once(work, max(1, ROUNDS // 4))


def test_scopes_on_all_threads(array, lua):
    """With `with` in Python, and with `mf.scope` in a Lua state that all share, each of which closes what it made."""
    scoped = lua.execute("""
        local mf = require "moonferry"
        return function(array, call)
          return mf.scope(function()
            local t = array:copy()
            call(t)
            return t:get(1, 1)
          end)
        end""")

    def work(_, __):
        seen = []
        assert scoped(mf.from_dlpack(array), lambda t: seen.append(t.shape)) == 7
        assert seen == [(4, 6)]
        with mf.from_dlpack(array) as t:
            assert t[1, 1] == 7
        assert t.closed

    all_at_once(work, max(1, ROUNDS // 10))


def test_one_iterator_for_all(lua):
    values = lua.execute("local t = {} for i = 1, 400 do t[i] = i end return t").values()
    seen = [[] for _ in range(THREADS)]

    def work(thread, _):
        for value in values:
            seen[thread].append(value)

    all_at_once(work, 1)
    assert sorted(sum(seen, [])) == list(range(1, 401))


def test_lua_states_that_are_closed_and_dropped_by_others():
    states = [mf.Lua() for _ in range(max(1, ROUNDS // 10))]
    functions = [state.eval("function(f) return f(1) end") for state in states]

    def work(thread, round_):
        try:
            if thread == 0:
                states[round_].close()
            else:
                assert functions[round_](lambda n: n + 1) == 2
        except RuntimeError:
            pass

    all_at_once(work, len(states))
    for state in states:
        state.close()


def test_python_objects_that_lua_lets_go(lua):
    made = lua.eval("function(make, n) for i = 1, n do local x = make(i) end collectgarbage() end")

    def work(thread, round_):
        alive = []

        class Thing:
            pass

        def make(_):
            thing = Thing()
            alive.append(weakref.ref(thing))
            return thing

        made(make, 20)

    all_at_once(work, max(1, ROUNDS // 10))
