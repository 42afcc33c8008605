"""Apache Arrow's device interface: a GPU's memory as Arrow describes it, ready for whoever gets it."""

import ctypes

import pytest

import moonferry as mf
from moonferry import _arrow


@pytest.fixture(params=["cuda:0", "cuda:1", "cuda_host", "cuda_managed", "rocm:0", "rocm:1", "rocm_host"])
def place(gpu, request):
    if not request.param.startswith(gpu.kind):
        pytest.skip(f"{request.param} is not this driver's")
    device = gpu.second if request.param.endswith(":1") else request.param
    gpu.make_current(mf.Device(device).id)
    yield device
    gpu.make_current(0)


def given(t):
    """The capsules, the array, and (device_id, device_type, sync_event) behind it."""
    schema, capsule = t.__arrow_c_device_array__()
    address = _arrow._address(capsule, b"arrow_device_array")
    behind = address + ctypes.sizeof(_arrow._Array)
    where = (ctypes.c_int64.from_address(behind).value, ctypes.c_int32.from_address(behind + 8).value,
             ctypes.c_void_p.from_address(behind + 16).value)  # fmt: skip
    return (schema, capsule), _arrow._Array.from_address(address), where


def test_elements_are_given_where_they_are(gpu, place, seed):
    t = mf.tensor([1, 2, 3], "uint8", device=place)
    capsules, array, (number, kind, event) = given(t)
    assert (kind, number) == t.__dlpack_device__() and event is None
    assert array.buffers[1] == t.data_ptr and gpu.read_beside(array.buffers[1], 3) == b"\1\2\3"
    del capsules


def test_what_is_not_compact_is_ready_too(gpu, place, seed):
    t = mf.tensor([[1, 2, 3], [4, 5, 6]], "uint8", device=place).T
    capsules, array, _ = given(t)
    child = array.children[0].contents
    assert (array.length, child.length) == (3, 6) and gpu.read_beside(child.buffers[1], 6) == b"\1\4\2\5\3\6"
    del capsules


@pytest.mark.parametrize("values", [[True], [False, True, True] * 3, [[True, False], [False, True]]], ids=repr)
def test_bits_of_truth_values_are_where_these_are(gpu, place, seed, values):
    t = mf.tensor(values, "bool", device=place)
    flat = t.reshape(-1).tolist()
    expected = sum(bit << at for at, bit in enumerate(flat)).to_bytes((len(flat) + 7) // 8, "little")
    capsules, array, (number, kind, _) = given(t)
    assert (kind, number) == t.__dlpack_device__()
    last = array.children[0].contents if t.ndim > 1 else array
    assert gpu.read_beside(last.buffers[1], len(expected)) == expected
    del capsules


def test_bits_of_truth_values_are_behind_what_was_queued(gpu, device, place, seed):
    with mf.Stream(device) as s:
        t, true = mf.zeros(64, "bool", device=place), mf.ones(64, "bool", device=device)
        gpu.busy(s.handle)
        t.copy(true)
    capsules, array, _ = given(t)
    assert gpu.read_beside(array.buffers[1], 8) == b"\xff" * 8
    del capsules


def test_truth_values_for_whose_bits_memory_ends(gpu, device):
    """Each allocation of the runtime's fails in turn."""
    for t in (mf.ones(64, "bool", device=device), mf.ones((8, 8), "bool", device=device)):
        for nth in range(100):
            mf._core._fault_arm(nth, False)
            try:
                capsules, array, _ = given(t)
            except MemoryError:
                continue
            finally:
                mf._core._fault_arm(-1, False)
            break
        assert nth > 3 and array.length == t.shape[0]
        del capsules


def test_what_a_capture_forbids_is_refused(gpu, device):
    t, stream = mf.full(64, 1, "int8", device=device), gpu.stream()

    def work():
        t.fill(2)
        with pytest.raises(mf.ExchangeError, match="__arrow_c_array__: .*is being captured"):
            t.__arrow_c_device_array__()

    mf.synchronize(device)
    with mf.Stream.wrap(stream, device):
        assert gpu.captured(stream, work) == 1
    assert t.tolist() == [1] * 64
    gpu.destroy(stream)


def test_the_host_s_interface_refuses_what_the_host_cannot_read(gpu, place):
    t = mf.tensor([1, 2], device=place)
    if place.startswith(f"{gpu.kind}:"):
        with pytest.raises(mf.ExchangeError, match=r'not on the host; to\("cpu"\) copies'):
            t.__arrow_c_array__()
    else:
        assert mf.from_arrow(t).tolist() == [1, 2]
