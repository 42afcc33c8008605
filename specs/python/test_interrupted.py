"""Ctrl-C at any place inside of Moonferry's own Python code: nothing is lost, and what was at work can be used as
before. What is OpenGL's is in test_gl_interrupted.py."""

import gc
import pickle
import threading

import numpy as np
import pytest

import moonferry as mf
from interrupted import at_each_place

GARBAGE = "local s for i = 1, 1e5 do s = i .. 'x' end return collectgarbage 'count'"


def test_luas_collector_goes_on():
    lua = mf.Lua()
    most = 2 * lua.execute(GARBAGE)

    def call():
        with lua.nogc():
            pass

    for place in at_each_place(call):
        assert lua.execute(GARBAGE) < most, place


def test_a_time_limit_ends_with_its_block():
    lua = mf.Lua(interruptible=True)

    def call():
        with lua.time_limit(0.001):
            pass

    for place in at_each_place(call):
        for thread in threading.enumerate():
            if thread is not threading.main_thread():
                thread.join(20)
                assert not thread.is_alive(), place
        assert lua.execute("local n = 0 for i = 1, 1e5 do n = n + i end return n") == 5000050000


@pytest.mark.parametrize(
    "call",
    [
        lambda lua, t: mf.asarray(t.numpy(), "int16").tolist(),
        lambda lua, t: mf.asarray(np.ma.array([1.0, 2.0]).data, copy=True),
        lambda lua, t: (repr(t), t.tobytes(), t.dtype, t.device),
        lambda lua, t: pickle.loads(pickle.dumps(t, 5)),
        lambda lua, t: mf.wrap(t.data_ptr, (3,), owner=t).tolist(),
        lambda lua, t: mf.into(np.ndarray, t).sum(),
        lambda lua, t: mf.fields(t.numpy(), [("a", "float32", 2)])["a"].shape,
        lambda lua, t: lua.table_from([1, {"x": t}, [2, 3]], recursive=True)[2].x,
        lambda lua, t: lua.eval("(...).size", t),
        lambda lua, t: mf.Lua(sandbox=True).eval("(...).name", threading.main_thread()),
    ],
)
def test_no_memory_is_lost(call):
    lua, t = mf.Lua(), mf.zeros((3, 4))
    call(lua, t)
    count = 0
    for _ in range(3):
        lua.gccollect()
        gc.collect()
    before = mf.ledger()
    for place in at_each_place(lambda: call(lua, t)):
        lua.gccollect()
        lua.gccollect()
        gc.collect()
        assert mf.ledger() == before, place
        count += 1
    assert count > 0
