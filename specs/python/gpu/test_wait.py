"""Waits for queued work: who else gets on meanwhile, and that what the host sees is what the work left.

Each operation runs while a function of the host is queued in front of the work, and that one ends when another thread
of Python has run. An operation that kept the GIL as it waits would wait for ever; that case is a process, so that it
has an end.
"""

import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

import moonferry as mf


def copied(t, **options):
    host = mf.zeros((64,), "uint8")
    host.copy(t, **options)
    return host.tolist()


def without_room(call):
    """What is refused for want of memory, after a wait for what might become free."""

    def refused(t):
        mf.empty((64,), "uint8", device=t.device).acquire(STREAM)  # and dropped
        mf.pool_limit(t.device, 1)
        try:
            with pytest.raises(MemoryError):
                call(t.broadcast_to((1 << 20, 64)))
        finally:
            mf.pool_limit(t.device, 0)
        return t.tolist()

    return refused


ON_DEVICE = {
    "to": lambda t: t.to("cpu").tolist(),
    "tolist": lambda t: t.tolist(),
    "tobytes": lambda t: list(t.tobytes()),
    "an element": lambda t: [t[0]] * 64,
    "a float": lambda t: [float(t[0])] * 64,
    "copy into the host's": copied,
    "copy with progress": lambda t: copied(t, progress=lambda done, total: None),
    "astype": lambda t: t.astype("int32").tolist(),
    "pickle": lambda t: pickle.loads(pickle.dumps(t)).tolist(),
    "__dlpack__": lambda t: np.from_dlpack(t.to("cpu")).tolist(),
    "__dlpack__ with a copy": lambda t: mf.from_dlpack(t, device="cpu", copy=True).tolist(),
    "__dlpack__ with a copy that has no room": without_room(
        lambda t: t.__dlpack__(copy=True, stream=STREAM.handle, max_version=(1, 3))
    ),
    "empty that has no room": without_room(lambda t: mf.empty(t.shape, t.dtype, device=t.device)),
    "copy that has no room": without_room(lambda t: t.copy()),
    "__dlpack__ for the host": lambda t: mf.from_dlpack(t.__dlpack__(dl_device=(1, 0), max_version=(1, 3))).tolist(),
    "equal": lambda t: [2] * 64 if not mf.equal(t, mf.ones((64,), "uint8", device=t.device)) else "equal",
    "repr": lambda t: [2] * 64 if repr(t).count("2") > 3 else repr(t),
    "acquire": lambda t: t.acquire("host") or t.tolist(),
    "__arrow_c_device_array__": lambda t: t.__arrow_c_device_array__() and [2 * STREAM.query()] * 64,
    "synchronize": lambda t: mf.synchronize(str(t.device).replace("_host", "")) or t.tolist(),
    "Stream.synchronize": lambda t: STREAM.synchronize() or t.tolist(),
}
ON_PINNED = {
    **ON_DEVICE,
    "asarray": lambda t: np.asarray(t).tolist(),
    "numpy": lambda t: t.numpy().tolist(),
    "memoryview": lambda t: memoryview(t).tolist(),
    "np.from_dlpack": lambda t: np.from_dlpack(t).tolist(),
    "a copied capsule": lambda t: mf.from_dlpack(t.__dlpack__(copy=True, max_version=(1, 3))).to("cpu").tolist(),
    "set an element": lambda t: t.__setitem__(0, 2) or t.tolist(),
    "fill": lambda t: t.fill(2) or t.tolist(),
    "copy from the host's": lambda t: t.copy(mf.full((64,), 2, "uint8")).tolist(),
}


def wait_for_each(driver):
    """All operations; each one's name is printed before it."""
    global STREAM
    device = f"{driver.kind}:0"
    STREAM = mf.Stream(device)
    for where, operations in ((device, ON_DEVICE), (f"{driver.kind}_host", ON_PINNED)):
        for name, operation in operations.items():
            t = mf.full((64,), 1, "uint8", device=where)
            print(name, where, flush=True)
            t.acquire(STREAM, write=True)
            let_go = driver.hold(STREAM.handle)
            driver.memset(t.data_ptr, 2, 64, STREAM.handle)
            other = threading.Timer(0.005, let_go)
            other.start()
            assert operation(t) == [2] * 64, name
            other.join()


def test_what_waits_for_a_device_lets_other_threads_of_python_run(gpu):
    here = os.path.dirname(__file__)
    script = f"import driver_abi, test_wait; test_wait.wait_for_each(driver_abi.Driver({gpu.kind!r}))"
    env = {**os.environ, "SIM_LEDGER": "off"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=here, env=env, capture_output=True, text=True, timeout=120
        )
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"the GIL is kept: {(error.stdout or b'').decode().splitlines()[-1:]}")
    assert done.returncode == 0, done.stdout[-200:] + done.stderr[-2000:]
    assert len(done.stdout.splitlines()) == len(ON_DEVICE) + len(ON_PINNED)


@pytest.mark.parametrize("layout", [slice(None), slice(None, None, 2)])
def test_the_bytes_of_pinned_memory(gpu, layout):
    t = mf.tensor(list(range(64)), "uint8").to(f"{gpu.kind}_host")
    assert t[layout].tobytes() == bytes(range(64))[layout]


@pytest.mark.parametrize("readonly", [False, True])
def test_who_may_write_waits_for_readers_and_who_only_reads_does_not(gpu, device, readonly):
    t = mf.full((64,), 1, "uint8", device=f"{gpu.kind}_host")
    s, there = mf.Stream(device), mf.empty((64,), "uint8", device=device)
    with s:
        there.copy(t)
    a = np.asarray(t.as_readonly() if readonly else t)
    assert s.query() == (not readonly) or (readonly and not gpu.simulated)
    if not readonly:
        a[:] = 2
    assert there.tolist() == [1] * 64
