"""Every value of `stream` on every kind of device: what `__dlpack__` takes it for, and what is ordered then.

Array API 2025.12, `__dlpack__`, `stream`.
"""

import pytest

import dlpack_abi as abi
import moonferry as mf
from conftest import gives_a_destroyed_handle

np = pytest.importorskip("numpy")

VERSIONED = {"max_version": (1, 3)}
GOOD, VALUE, TYPE = "good", ValueError, TypeError

# What a value means on memory of which kind. "handle" stands for a living stream's.
NUMBERS = ["None", "-1", "0", "1", "2", "handle", "-2", "-(1 << 40)", "1 << 63", "-(1 << 63)", "1 << 70"]
TABLE = {
    "cpu": [GOOD, GOOD, VALUE, VALUE, VALUE, VALUE, VALUE, VALUE, VALUE, VALUE, VALUE],
    "cuda": [GOOD, GOOD, VALUE, GOOD, GOOD, GOOD, VALUE, VALUE, VALUE, VALUE, VALUE],
    "cuda_host": [GOOD, GOOD, VALUE, GOOD, GOOD, GOOD, VALUE, VALUE, VALUE, VALUE, VALUE],
    "cuda_managed": [GOOD, GOOD, VALUE, GOOD, GOOD, GOOD, VALUE, VALUE, VALUE, VALUE, VALUE],
    "rocm": [GOOD, GOOD, GOOD, VALUE, VALUE, GOOD, VALUE, VALUE, VALUE, VALUE, VALUE],
    "rocm_host": [GOOD, GOOD, GOOD, VALUE, VALUE, GOOD, VALUE, VALUE, VALUE, VALUE, VALUE],
}
WRONG_TYPES = ["1", 1.5, True, False, (1,), b"", 1j, object(), np.float64(1), np.bool_(True)]
CELLS = [(kind, number, expected) for kind, row in TABLE.items() for number, expected in zip(NUMBERS, row)]


def of_this_driver(gpu, kind):
    if kind != "cpu" and not kind.startswith(gpu.kind):
        pytest.skip(f"{kind} is not this driver's")
    return kind


@pytest.fixture
def handle(gpu):
    made = gpu.stream()
    yield made
    mf.synchronize(gpu.kind)
    gpu.destroy(made)


@pytest.mark.parametrize("kind, number, expected", CELLS)
def test_each_value_means_what_the_array_api_says(gpu, handle, kind, number, expected):
    t = mf.zeros((4,), "uint8", device=of_this_driver(gpu, kind))
    stream = eval(number, {"handle": handle})
    if expected is GOOD:
        capsule = t.__dlpack__(stream=stream, **VERSIONED)
        assert abi.capsule_name(capsule) == abi.VERSIONED
        assert abi.capsule_name(t.__dlpack__(stream=stream)) == abi.LEGACY
        return
    for keywords in (VERSIONED, {}, {"copy": True}, {"copy": False}):
        with pytest.raises(expected, match="stream"):
            t.__dlpack__(stream=stream, **keywords)


@pytest.mark.parametrize("kind", TABLE)
@pytest.mark.parametrize("value", WRONG_TYPES, ids=repr)
def test_what_is_no_integer_is_a_type_error(gpu, kind, value):
    t = mf.zeros((4,), "uint8", device=of_this_driver(gpu, kind))
    with pytest.raises(TypeError, match="stream"):
        t.__dlpack__(stream=value, **VERSIONED)


@pytest.mark.parametrize("kind", TABLE)
def test_a_stream_object_is_no_integer(gpu, kind):
    t = mf.zeros((4,), "uint8", device=of_this_driver(gpu, kind))
    with pytest.raises(TypeError, match="Stream"):
        t.__dlpack__(stream=mf.Stream(gpu.kind), **VERSIONED)


@pytest.mark.parametrize("kind", TABLE)
def test_numpy_integers_are_integers(gpu, handle, kind):
    t = mf.zeros((4,), "uint8", device=of_this_driver(gpu, kind))
    t.__dlpack__(stream=np.int64(-1), **VERSIONED)
    for value in (np.int64(handle), np.int32(1 if gpu.kind == "cuda" else 0)):
        if kind == "cpu":
            with pytest.raises(ValueError):
                t.__dlpack__(stream=value, **VERSIONED)
        else:
            t.__dlpack__(stream=value, **VERSIONED)


def test_a_destroyed_handle_is_refused(gpu, device):
    gives_a_destroyed_handle(gpu)
    t = mf.zeros((4,), "uint8", device=device)
    gone = gpu.stream()
    gpu.destroy(gone)
    with pytest.raises(ValueError):
        t.__dlpack__(stream=gone, **VERSIONED)
    gpu.reset()


def test_a_handle_of_another_device_is_refused(gpu):
    t = mf.zeros((4,), "uint8", device=gpu.second)
    handle = gpu.stream()
    with pytest.raises(ValueError):
        t.__dlpack__(stream=handle, **VERSIONED)
    gpu.destroy(handle)


# What is ordered.


def written(gpu, device, value):
    """A tensor that was written on a stream of its own, and that stream."""
    producer = mf.Stream(device)
    with producer:
        t = mf.empty((256,), "uint8", device=device)
        t.fill(value)
    return t, producer


def consume(gpu, t, stream, native):
    """What a consumer reads on its stream, and that it may write and give back."""
    struct = abi.consume(t.__dlpack__(stream=stream, **VERSIONED))
    address = struct.dl_tensor.data
    seen = gpu.read(address, 256, native)
    gpu.memset(address, 77, 256, native)
    abi.call_deleter(struct)
    return seen


def streams(gpu, handle):
    named = [(None, gpu.default), (gpu.default, gpu.default), (handle, handle)]
    return named + ([(2, 2)] if gpu.kind == "cuda" else [])


@pytest.mark.parametrize("which", range(4))
def test_the_consumers_stream_sees_what_was_written(gpu, device, handle, seed, which):
    if which >= len(streams(gpu, handle)):
        pytest.skip("ROCm has no number for the per-thread stream")
    stream, native = streams(gpu, handle)[which]
    t, producer = written(gpu, device, 5)
    assert consume(gpu, t, stream, native) == b"\5" * 256
    with producer:
        assert t.tolist() == [77] * 256
        t.fill(6)
    assert t.tolist() == [6] * 256


def test_memory_released_while_a_consumer_uses_it_is_not_given_to_another(gpu, device, handle, seed):
    for value in range(6):
        t, producer = written(gpu, device, value)
        struct = abi.consume(t.__dlpack__(stream=handle, **VERSIONED))
        del t, producer
        gpu.memset(struct.dl_tensor.data, 200, 256, handle)
        abi.call_deleter(struct)


@pytest.mark.reports("race")
def test_a_consumer_that_was_given_no_order_is_on_its_own(gpu, device, handle):
    t, producer = written(gpu, device, 5)
    struct = abi.consume(t.__dlpack__(stream=-1, **VERSIONED))
    gpu.memset(struct.dl_tensor.data, 6, 256, handle)
    mf.synchronize(device)
    abi.call_deleter(struct)


@pytest.mark.parametrize("kind", ["cuda_host", "cuda_managed", "rocm_host"])
def test_none_is_the_host_for_memory_that_it_reads(gpu, kind, seed):
    t = mf.empty((256,), "uint8", device=of_this_driver(gpu, kind))
    producer = mf.Stream(gpu.kind)
    t.acquire(producer, write=True)
    gpu.memset(t.data_ptr, 9, 256, producer.handle)
    t.record(producer, write=True)
    struct = abi.consume(t.__dlpack__(**VERSIONED))
    import ctypes

    assert ctypes.string_at(struct.dl_tensor.data, 256) == b"\t" * 256
    abi.call_deleter(struct)


def test_the_host_never_waits_for_a_consumer_on_a_device(gpu, device, handle):
    if not gpu.simulated:
        pytest.skip("only a simulated driver counts its calls")
    t, producer = written(gpu, device, 5)
    waits = [f"{word}{name}" for word in ("cu", "hip") for name in ("StreamSynchronize", "CtxSynchronize")]
    waits += ["cuEventSynchronize", "hipEventSynchronize", "hipDeviceSynchronize"]
    before = gpu.calls(*waits)
    for stream in (None, gpu.default, handle, -1):
        t.__dlpack__(stream=stream, **VERSIONED)
    assert gpu.calls(*waits) == before


def test_one_record_and_one_wait_for_another_stream_and_none_for_the_same(gpu, device, handle):
    if not gpu.simulated:
        pytest.skip("only a simulated driver counts its calls")
    prefix = "cu" if gpu.kind == "cuda" else "hip"
    t, producer = written(gpu, device, 5)
    gpu.reset()
    kept = [t.__dlpack__(stream=producer.handle, **VERSIONED)]
    assert gpu.calls(f"{prefix}EventRecord", f"{prefix}StreamWaitEvent") == 0
    kept.append(t.__dlpack__(stream=handle, **VERSIONED))
    assert gpu.calls(f"{prefix}EventRecord") == 1 and gpu.calls(f"{prefix}StreamWaitEvent") == 1


# What None means is a setting.


@pytest.fixture
def none():
    before = mf.stream_none()
    yield mf.stream_none
    mf.stream_none(before)


def test_none_has_three_meanings(gpu, none):
    assert none() == "default"
    for mode in ("no_order", "refuse", "default"):
        assert none(mode) == mode and none() == mode
    for wrong in ("legacy", "", 1):
        with pytest.raises(ValueError, match="default, no_order, refuse"):
            none(wrong)
    assert none() == "default"


def test_none_can_be_refused(gpu, device, none):
    none("refuse")
    t = mf.zeros((4,), device=device)
    with pytest.raises(ValueError, match="stream"):
        t.__dlpack__(**VERSIONED)
    with pytest.raises(ValueError, match="stream"):
        t.__dlpack__(stream=None, **VERSIONED)
    t.__dlpack__(stream=gpu.default, **VERSIONED)
    mf.zeros((4,)).__dlpack__(**VERSIONED)
    mf.zeros((4,), device=f"{gpu.kind}_host").__dlpack__(**VERSIONED)


def test_none_can_mean_no_order(gpu, device, none):
    if not gpu.simulated:
        pytest.skip("only a simulated driver counts its calls")
    none("no_order")
    t, producer = written(gpu, device, 5)
    gpu.reset()
    t.__dlpack__(**VERSIONED)
    assert gpu.calls("cuStreamWaitEvent", "hipStreamWaitEvent") == 0


@pytest.mark.parametrize("value, expected", [("no_order", "no_order"), ("refuse", "refuse"), ("", "default")])
def test_the_environment_says_what_none_means(gpu, value, expected):
    import os
    import subprocess
    import sys

    program = "import moonferry; print(moonferry.stream_none())"
    environment = dict(os.environ, MOONFERRY_STREAM_NONE=value)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == expected, done.stderr


def test_a_wrong_environment_is_named(gpu):
    import os
    import subprocess
    import sys

    environment = dict(os.environ, MOONFERRY_STREAM_NONE="maybe")
    done = subprocess.run([sys.executable, "-c", "import moonferry"], env=environment, capture_output=True, text=True)
    assert done.returncode != 0 and "MOONFERRY_STREAM_NONE" in done.stderr and "maybe" in done.stderr


# A capture.


def test_an_export_to_the_captured_stream_becomes_part_of_the_graph(gpu, device):
    t = mf.zeros((256,), "uint8", device=device)
    handle = gpu.stream()
    s = mf.Stream.wrap(handle, device)
    with s:
        t.fill(1)
    mf.synchronize(device)
    with gpu.capture(handle):
        struct = abi.consume(t.__dlpack__(stream=handle, **VERSIONED))
        gpu.memset(struct.dl_tensor.data, 8, 256, handle)
    abi.call_deleter(struct)
    assert t.tolist() == [8] * 256
    del t, s
    mf.synchronize(device)
    mf.trim()
    gpu.destroy(handle)


def test_a_mixture_that_a_capture_forbids_is_an_exchange_error(gpu, device):
    t, producer = written(gpu, device, 4)
    t.acquire(producer, write=True)
    gpu.busy(producer.handle)
    handle = gpu.stream()
    with gpu.capture(handle):
        with pytest.raises(mf.ExchangeError, match="captur"):
            t.__dlpack__(stream=handle, **VERSIONED)
        with pytest.raises(RuntimeError, match="captur"):
            t.acquire(mf.Stream.wrap(handle, device))
    mf.synchronize(device)
    assert t.tolist() == [4] * 256
    gpu.destroy(handle)


def test_a_number_that_is_no_stream_is_another_error_than_a_device_that_is_none(gpu, device):
    t = mf.zeros(2, device=device)
    with pytest.raises(ValueError, match="stream") as error:
        t.__dlpack__(stream=-7, max_version=(1, 3))
    assert not isinstance(error.value, mf.ExchangeError)
    for stream in (None, 1):
        with pytest.raises(mf.ExchangeError, match="__dlpack__: dl_device cannot be reached"):
            t.__dlpack__(stream=stream, dl_device=(8, 0), max_version=(1, 3))
