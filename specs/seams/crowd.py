"""A crowd: threads that each do one thing after the other, drawn from all that this library can do, with the same
tensors, Lua states and memories, all at once. The campaign puts one event into one call; here everything meets.

    python specs/seams/crowd.py SEED SECONDS [OPERATION ...]

What must hold: each element is what was written there last; no exception but those that a closed tensor, a limit or a
stray exception explains; in the end the ledger is at zero. The simulator looks for races and leaks meanwhile. The seed
draws the operations of each thread, not how the threads meet: a failure comes back often, not always.
"""

import contextlib
import ctypes
import faulthandler
import gc
import itertools
import os
import random
import signal
import sys
import threading
import time
import traceback
import weakref

import numpy as np

import moonferry as mf

THREADS = 3
KEPT = 12  # tensors, so few that threads often have the same one
SELDOM = {"fork": 0.02, "collect": 0.2, "replace_state": 0.2, "throw": 0.5, "trim": 0.5}
SHAPES = [(7,), (64,), (33, 5), (128, 129), (3, 4, 5), (1 << 16,), (1,)]
EXPLAINED = {
    "ValueError": ("the tensor is closed", "forked after"),
    "BufferError": ("of the tensor is out", "of the tensor are out"),
    "MemoryError": ("no memory for",),
    "LuaError": ("no memory for", "tensor closed", "tensor was closed", "Stray"),
    "RuntimeError": ("run on other threads", "Lua state was closed"),
    "ExchangeError": ("read-only",),
    "IndexError": ("one for each axis",),
    "Stray": ("",),
}

KIND = os.environ.get("MOONFERRY_SPEC_DEVICE")
GPUS = [f"{KIND}:{i}" for i in range(mf.device_count(KIND))] if KIND else []
POOLS = GPUS + ([f"{KIND}_host"] if KIND else []) + (["cuda_managed"] if KIND == "cuda" else [])
SPACES = ["cpu", *POOLS]

OPERATIONS = {}
LOCK = threading.RLock()  # a finalizer may want it inside
problems, counts, states, threads = [], {}, [], []
constant, written, tables = [], [], []
values = itertools.count(1)


class Stray(Exception):
    """What one thread raises in another one, wherever that is."""


class Wrong(Exception):
    """Elements that are not what was written."""


class Known:
    """A tensor whose elements all have one value. Where it is written, one thread at a time does so."""

    def __init__(self, tensor, value):
        self.tensor, self.value, self.lock = tensor, value, threading.Lock()


class Producer:
    """An array of some library of which nothing is known."""

    def __init__(self, tensor, **how):
        self.capsule, self.device = tensor.__dlpack__(**how), tensor.__dlpack_device__()

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return self.device


def operation(function):
    OPERATIONS[function.__name__] = function
    return function


def on_gpus(function):
    return operation(function) if GPUS else function


def new_value():
    return float(next(values))


def full(draw, value, device=None):
    return mf.full(draw.choice(SHAPES), value, "float32", device=device or draw.choice(SPACES))


def check(tensor, value):
    found = tensor.to("cpu", copy=True).numpy()
    if not (found == value).all():
        raise Wrong(f"{value} expected on {tensor.device}, {found.ravel()[:8]} found")


def keep(draw, tensor, value):
    """Tensors that are never written; what falls out is closed or dropped."""
    with LOCK:
        constant.append(Known(tensor, value))
        old = constant.pop(draw.randrange(len(constant))) if len(constant) > KEPT else None
    if old is not None and draw.random() < 0.5:
        with contextlib.suppress(BufferError):
            old.tensor.close()


def some(draw):
    with LOCK:
        return draw.choice(constant) if constant else Known(mf.zeros(3), 0.0)


# Tensors that nobody writes


@operation
def make(draw):
    value = new_value()
    keep(draw, full(draw, value), value)


@operation
def move(draw):
    known = some(draw)
    keep(draw, known.tensor.to(draw.choice(SPACES), copy=draw.choice([None, True])), known.value)


@operation
def look(draw):
    known = some(draw)
    check(known.tensor, known.value)


@operation
def view(draw):
    known = some(draw)
    t = known.tensor
    ways = [lambda: t.T, lambda: t.expand_dims(0), t.squeeze, lambda: t[::-1], t.contiguous, t.as_readonly]
    ways.append(lambda: t.astype("float64").astype("float32"))
    keep(draw, draw.choice(ways)(), known.value)


@operation
def copy(draw):
    known = some(draw)
    to = mf.zeros(known.tensor.shape, device=draw.choice(SPACES))
    to.copy(known.tensor)
    keep(draw, to, known.value)


@operation
def exchange(draw):
    known = some(draw)
    producer = Producer(known.tensor, **draw.choice([{}, {"max_version": (1, 1)}]))
    if draw.random() < 0.7:
        keep(draw, mf.from_dlpack(producer), known.value)


@operation
def take_numpy(draw):
    """An array whose end calls this library."""
    value = new_value()
    array = np.full(draw.choice(SHAPES), value, "float32")
    weakref.finalize(array, at_the_end, draw.randrange(1 << 30)).atexit = False
    tensor = draw.choice([mf.asarray, mf.from_dlpack])(array)
    keep(draw, tensor.to(draw.choice(SPACES), copy=True) if draw.random() < 0.5 else tensor, value)


def at_the_end(number):
    draw = random.Random(number)
    names = ["trim", "collect", "make_and_look", *(["synchronize"] if GPUS else []), *(["call_lua"] if states else [])]
    attempt(draw.choice(names), draw)


@operation
def make_and_look(draw):
    value = new_value()
    with full(draw, value) as tensor:
        check(tensor, value)


@operation
def hold_a_buffer(draw):
    tensor = some(draw).tensor
    if str(tensor.device) == "cpu":
        with memoryview(tensor):
            time.sleep(0)


@operation
def close(draw):
    some(draw).tensor.close()


# Tensors that are written, by one thread at a time, on any stream


def write(draw, known):
    """Nothing is known of the elements while they are written, nor where that has failed."""
    tensor, value = known.tensor, new_value()
    known.value = None
    how = draw.randrange(5)
    if how == 0:
        tensor.fill(value)
    elif how == 1:
        tensor.copy(mf.full(tensor.shape, value, "float32", device=draw.choice(SPACES)))
    elif how == 2:
        tensor.T.copy(mf.full(tensor.T.shape, value, "float32", device=draw.choice(SPACES)))
    elif how == 3:
        mf.from_dlpack(Producer(tensor, max_version=(1, 1))).fill(value)
    else:
        draw.choice(states).execute("local t, v = ... ; assert(t:fill(v))", tensor, value)
    known.value = value


def read(draw, known):
    how = draw.randrange(3)
    if known.value is None:
        return
    if how == 0:
        check(known.tensor, known.value)
    elif how == 1:
        check(known.tensor[:1], known.value)
    else:
        keep(draw, known.tensor.to(draw.choice(SPACES), copy=True), known.value)


@operation
def use_written(draw):
    fresh = [Known(full(draw, 0.0), 0.0)] if len(written) < 6 else []
    with LOCK:
        written.extend(fresh)
        index = draw.randrange(len(written))
        known = written.pop(index) if draw.random() < 0.05 else written[index]
    stream = mf.Stream(draw.choice(GPUS)) if GPUS and draw.random() < 0.7 else contextlib.nullcontext()
    with known.lock, stream:
        draw.choice([read, write])(draw, known)


# Streams and pools


@on_gpus
def use_stream(draw):
    with mf.Stream(draw.choice(GPUS)) as stream:
        value = new_value()
        tensor = full(draw, value, str(stream.device))
        keep(draw, tensor.to(draw.choice(SPACES), copy=True), value)
        keep(draw, tensor, value)
        if draw.random() < 0.3:
            stream.synchronize()


@on_gpus
def acquire(draw):
    tensor = some(draw).tensor
    if str(tensor.device) in GPUS:
        stream = mf.Stream(tensor.device)
        tensor.acquire(stream)
        tensor.record(stream)
        stream.synchronize()


@on_gpus
def limit(draw):
    pool = draw.choice(POOLS)
    mf.pool_limit(pool, draw.choice([1, 1 << 16, 1 << 20]))
    try:
        time.sleep(0.001)
    finally:
        mf.pool_limit(pool, 0)


@on_gpus
def synchronize(draw):
    mf.synchronize(draw.choice(GPUS))


@operation
def trim(draw):
    mf.trim(draw.choice([None, *POOLS]))


@operation
def stats(draw):
    mf.ledger()
    for pool in POOLS:
        mf.pool_stats(pool)


# Lua

CALLS_BACK = """local tensor, look = ...
local step = coroutine.wrap(function(t) while true do look(t) t = coroutine.yield(t) end end)
for i = 1, 3 do tensor = step(tensor) end"""


@operation
def call_lua(draw):
    lua, known = draw.choice(states), some(draw)
    how = draw.randrange(6)
    if how == 0:
        lua.execute(CALLS_BACK, known.tensor, lambda tensor: check(tensor, known.value))
    elif how == 1:
        moved = lua.execute("local u = assert((...):to 'cpu') collectgarbage() return u", known.tensor)
        keep(draw, moved, known.value)
    elif how == 2:
        lua.execute("kept = kept or {} local t, i = ... kept[i] = t", known.tensor, draw.randrange(20))
    elif how == 3:
        lua.execute("local mf = require 'moonferry' for i = 1, 60 do mf.zeros({10}):close() end")
    elif how == 4:
        lua.gccollect()
    else:
        lua.execute("kept = nil")


@operation
def keep_in_table(draw):
    known = some(draw)
    table = draw.choice(states).eval("{...}", known.tensor)
    check(table[1], known.value)
    tables.append(table)
    if len(tables) > 30:
        tables.clear()


@operation
def replace_state(draw):
    index = draw.randrange(len(states))
    old, states[index] = states[index], mf.Lua(interruptible=draw.random() < 0.3)
    if draw.random() < 0.5:
        old.close()


# The process


@operation
def collect(draw):
    gc.collect(draw.randrange(3))


@operation
def go_through_ring(draw):
    value = new_value()
    ring = mf.Ring([mf.full((100,), value) for _ in range(3)])
    for _ in range(4):
        ring.begin(timeout=60)
        ring.publish()
        check(ring.latest()[0], value)
    ring.close()


@operation
def fork(draw):
    """A child has the host's memory and a Lua state, and no device. No exception is thrown into both."""
    with LOCK:
        time.sleep(0)  # raises what was thrown before
        child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(120)
        os._exit(in_child())
    status = os.waitpid(child, 0)[1]
    if status != 0:
        problems.append(f"a child ended with {status}")


def in_child():
    try:
        check(mf.full((100,), 3.0), 3.0)
        assert mf.Lua().eval("1 + 1") == 2
        for gpu in GPUS:
            try:
                mf.full((3,), 1.0, device=gpu)
                return 7
            except ValueError as error:
                assert "forked" in str(error), error
        return 0
    except BaseException:
        traceback.print_exc()
        return 8


@operation
def throw(draw):
    target = draw.choice(threads).ident or 0
    with LOCK:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(target), ctypes.py_object(Stray))


# The crowd


def is_explained(error):
    said = EXPLAINED.get(type(error).__name__)
    return said is not None and any(text in str(error) for text in said)


def attempt(name, draw):
    try:
        OPERATIONS[name](draw)
        counts[name] = counts.get(name, 0) + 1
    except BaseException as error:
        if not is_explained(error):
            problems.append(f"{name}: " + "".join(traceback.format_exception(error)))


def go_on(draw, names, end):
    weights = [SELDOM.get(name, 1) for name in names]
    while time.monotonic() < end and not problems:
        attempt(*draw.choices(names, weights), draw)


def run(seed, names, end):
    draw = random.Random(seed)
    while time.monotonic() < end and not problems:
        try:
            go_on(draw, names, end)
        except Stray:
            pass


def finish():
    """Everything ends, and everything is given back."""
    for known in constant + written:
        known.tensor.close()
    for lua in states:
        lua.close()
    known = lua = None
    for kept in (constant, written, tables, states, threads):
        kept.clear()
    for _ in range(3):
        gc.collect()
    for gpu in GPUS:
        mf.synchronize(gpu)
    mf.trim()


def main(seed, seconds, *names):
    """Whether all went well."""
    sys.setswitchinterval(1e-5)
    faulthandler.enable()
    faulthandler.dump_traceback_later(float(seconds) + 300, exit=True)
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
    sys.unraisablehook = lambda told: is_explained(told.exc_value) or problems.append(repr(told))
    states.extend(mf.Lua(interruptible=i == 0) for i in range(3))
    names, end = names or sorted(OPERATIONS), time.monotonic() + float(seconds)
    for i in range(THREADS):
        threads.append(threading.Thread(target=run, args=(f"{seed}.{i}", names, end)))
    for thread in threads:
        thread.start()
    for thread in list(threads):
        thread.join()
    signal.setitimer(signal.ITIMER_REAL, 0)
    thread = None
    finish()
    if any(mf.ledger()):
        problems.append(f"left over: {mf.ledger()}")
    print(*problems[:5], sep="\n")
    print(f"{sum(counts.values())} operations of {len(counts)} kinds" if not problems else "the crowd failed")
    return not problems


if __name__ == "__main__":
    sys.exit(0 if main(*sys.argv[1:]) else 1)
