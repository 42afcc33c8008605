"""A GPU as an object of Python's, and the functions that concern a whole device, where the driver fails."""

import contextlib
import functools
import gc
import os
import subprocess
import sys

import allocated
import pytest

import moonferry as mf


def test_a_gpu_is_one_object_which_is_made_once(gpu, device, monkeypatch):
    t, u = mf.zeros(2, device=device), mf.zeros(2, device=gpu.second)
    before = t.device, u.device
    monkeypatch.setattr("moonferry._dtype.Device", None)
    assert t.device is before[0] and u.device is before[1] and before[0] != before[1]


def test_a_device_takes_no_reference_that_it_does_not_give_back(gpu, device):
    t = mf.zeros(2, device=device)
    shared = t.device, sys.modules["moonferry._dtype"]
    assert allocated.blocks_left_by(lambda: t.device) < 20
    for thing in shared:
        assert allocated.left_by(lambda: t.device, gc.collect, 100, 3, functools.partial(sys.getrefcount, thing)) < 20


def test_memory_that_the_driver_does_not_know_is_on_no_device(gpu):
    for address in (0, mf.zeros(2).data_ptr):
        with pytest.raises(ValueError, match="data is .*, which the (CUDA driver|HIP runtime) does not know"):
            mf._core._device_of_pointer(gpu.kind, address)


CALLS = {
    "query": lambda s, other: s.query(),
    "wait": lambda s, other: s.wait(other),
    "synchronize": lambda s, other: s.synchronize(),
    "device": lambda s, other: mf.synchronize(str(s.device)),
}
NAMES = {"query": "StreamQuery", "wait": "StreamWaitEvent", "synchronize": "StreamSynchronize"}
OF_DEVICES = {"cuda": "cuCtxSynchronize", "rocm": "hipDeviceSynchronize"}


@pytest.mark.parametrize("what", CALLS)
def test_a_failing_driver_is_named(gpu, device, what):
    if not gpu.simulated:
        pytest.skip("only a simulated driver can be told to fail")
    s, other = mf.Stream(device), mf.Stream(device)
    memory = gpu.alloc(64)
    gpu.memset(memory, 5, 64, other.handle)
    name = ("cu" if gpu.kind == "cuda" else "hip") + NAMES[what] if what in NAMES else OF_DEVICES[gpu.kind]
    gpu.lib.sim_fail(f"{name}:999:on".encode())
    with pytest.raises(mf.DriverError, match=f"{name} answered 999") as caught:
        CALLS[what](s, other)
    assert (caught.value.call, caught.value.code) == (name, 999)
    gpu.reset()
    CALLS[what](s, other)
    mf.synchronize(device)
    gpu.free(memory)


def test_an_error_of_the_driver_leaves_no_object(gpu, device):
    if not gpu.simulated:
        pytest.skip("only a simulated driver can be told to fail")
    s = mf.Stream(device)
    gpu.lib.sim_fail(f"{'cu' if gpu.kind == 'cuda' else 'hip'}StreamQuery:4711:on".encode())

    def query():
        with contextlib.suppress(mf.DriverError):
            s.query()

    assert allocated.blocks_left_by(query) < 50
    gpu.reset()


class Indexed:
    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number


class Foreign:
    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle


def test_a_stream_may_be_a_number_an_index_or_an_object_with_one(gpu, device):
    """And is ordered after the one before it."""
    t, streams = mf.zeros(4, device=device), [mf.Stream(device) for _ in range(3)]
    for kind, stream in zip((int, Indexed, Foreign), streams):
        t.acquire(kind(stream.handle), write=True)
        gpu.memset(t.data_ptr, 5, 16, stream.handle)
        t.record(kind(stream.handle), write=True)
    assert bytes(memoryview(t.to("cpu"))) == b"\5" * 16
    with pytest.raises(ValueError, match="stream"):
        t.acquire(Indexed(-5))
    with pytest.raises(ValueError, match="stream"):
        t.acquire(Foreign(-5))


ALONE = """
import sys
import moonferry as mf
kind, number = sys.argv[1], int(sys.argv[2])
print(mf.Stream.wrap(number) == mf.Stream.default(kind))
"""


def test_with_one_gpu_a_name_is_its_stream(cuda):
    if not cuda.simulated:
        pytest.skip("only a simulated driver can have another count of devices")
    env = {**os.environ, "SIM_DEVICES": "1"}
    command = [sys.executable, "-c", ALONE, cuda.kind, str(cuda.default)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


@pytest.mark.parametrize("call", ["Init", "count"])
@pytest.mark.parametrize("status", [2, 999])
def test_a_driver_that_does_not_start_has_no_devices_and_says_why(gpu, call, status):
    if not gpu.simulated:
        pytest.skip("only a simulated driver can be told to fail")
    name = gpu.names["init" if call == "Init" else "count"]
    code = f"import moonferry as mf; print(mf.device_count({gpu.kind!r}), mf.device_reason({gpu.kind!r}))"
    env = {**os.environ, "SIM_FAIL": f"{name}:{status}:on"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.stdout.startswith("0 ") and f"{name} answered {status}" in done.stdout, done.stderr
