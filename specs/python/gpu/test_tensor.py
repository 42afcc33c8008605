"""Tensors of a device: making them, taking them to the host, and what is refused there."""

import copy
import io
import os
import pickle
import re
import subprocess
import sys
import threading

import pytest

import moonferry as mf

np = pytest.importorskip("numpy")


@pytest.fixture(params=["cuda:0", "cuda:1", "cuda_host", "cuda_managed", "rocm:0", "rocm_host"])
def place(gpu, request):
    if not request.param.startswith(gpu.kind):
        pytest.skip(f"{request.param} is not this driver's")
    return gpu.second if request.param.endswith(":1") else request.param


def far_away(gpu):
    """A GPU's memory, where the host cannot go."""
    return mf.tensor([[1, 2, 3], [4, 5, 6]], "int32", device=gpu.kind)


def test_counts_and_reasons(gpu):
    # gpu.count is what the driver says itself.
    assert mf.device_count(gpu.kind) == gpu.count >= 1 and mf.device_reason(gpu.kind) is None
    other = "rocm" if gpu.kind == "cuda" else "cuda"
    if mf.device_count(other) == 0:
        found = r"there is no \w+ driver here: |(hip|cu)Init answered \d+: "  # none, or one without a GPU of its own
        assert re.match(rf"device is {other} \(device_type \d+\): ({found})", mf.device_reason(other))
    assert mf.device_count("cpu") == 1 and mf.device_reason("cpu") is None
    for ask in (mf.device_count, mf.device_reason):
        with pytest.raises(ValueError, match="nothing"):
            ask("nothing")


def test_a_message_of_mpi_is_of_the_hosts_memory(gpu):
    from moonferry import mpi

    for make in (mpi.message, mpi.datatype):
        with pytest.raises(mf.ExchangeError, match=rf"the tensor is on {gpu.kind}:0; .*to\('cpu'\) copies"):
            make(far_away(gpu))


def test_makers(place):
    assert mf.empty((2, 3), device=place).device == mf.Device(place)
    assert mf.zeros((2,), "int8", device=place).tolist() == [0, 0]
    assert mf.ones((2,), "float64", device=place).tolist() == [1.0, 1.0]
    assert mf.full((2,), 1 + 2j, device=place).tolist() == [1 + 2j, 1 + 2j]
    assert mf.tensor([1, 2], device=place).tolist() == [1, 2]
    assert mf.tensor(np.arange(3.0), "int16", device=place).tolist() == [0, 1, 2]
    assert mf.asarray([1, 2], device=place).device == mf.Device(place)
    assert mf.zeros((3,), "float4_e2m1fn", device=place).nbytes == 2
    assert mf.zeros((0, 4), device=place).tolist() == []
    assert mf.zeros((2,), "handle64", device=place).device == mf.Device(place)


def test_the_size_of_an_object_is_that_of_what_the_host_sees(gpu, device):
    empty = sys.getsizeof(mf.zeros(0))
    assert sys.getsizeof(mf.zeros(1000, device=device)) == empty
    assert sys.getsizeof(mf.zeros(1000, device=f"{gpu.kind}_host")) == empty + 4000


def test_zeros_of_what_is_no_number_leave_nothing_where_the_host_has_no_memory(place):
    before = mf.ledger()
    for nth in range(20):
        mf.full((64,), 255, "uint8", device=place).close()  # whose memory is used again
        mf._core._fault_arm(nth, False)
        try:
            t = mf.zeros((8,), "handle64", device=place)
        except MemoryError:
            assert mf.ledger() == before
            continue
        finally:
            mf._core._fault_arm(-1, False)
        assert nth > 0 and t.tobytes() == bytes(64)
        return
    raise AssertionError("the call never came to its end")


def test_asarray_moves_as_copy_allows(place):
    a = np.arange(4)
    assert mf.asarray(a, device=place).tolist() == [0, 1, 2, 3]
    with pytest.raises(mf.ExchangeError):
        mf.asarray(a, device=place, copy=False)
    t = mf.zeros((2,), device=place)
    assert mf.asarray(t) is t and mf.asarray(t, device=place) is t and mf.asarray(t, device=place, copy=False) is t
    assert mf.asarray(t, copy=True).data_ptr != t.data_ptr != mf.asarray(t, device=place, copy=True).data_ptr
    assert mf.asarray(t, "int8", device="cpu").tolist() == [0, 0]
    assert mf.tensor(t).device == t.device and mf.tensor(t, device="cpu").device == "cpu"


def test_the_device_can_be_given_in_many_ways(gpu, device):
    number = 2 if gpu.kind == "cuda" else 10
    torch_like = type("device", (), {"__str__": lambda self: device})()
    for way in (device, gpu.kind, (number, 0), mf.Device(device), torch_like):
        assert mf.zeros((1,), device=way).device == device
        assert mf.Device(way) is mf.Device(device)
    assert mf.zeros((1,), device=device).device is mf.zeros((1,), device=device).device
    assert (mf.Device(device).type, mf.Device(device).id) == (number, 0)
    assert mf.zeros((1,), device=device).__dlpack_device__() == (number, 0)


def test_reading_to_the_host(place):
    t = mf.tensor([[1, 2, 3], [4, 5, 6]], "int32", device=place)
    assert t.tolist() == [[1, 2, 3], [4, 5, 6]] and t.T.tolist() == [[1, 4], [2, 5], [3, 6]]
    assert t[1:, ::2].tolist() == [[4, 6]] and t[::-1].tolist() == [[4, 5, 6], [1, 2, 3]]
    one = t[1, 2:]
    assert one.item() == int(one) == float(one) == complex(one) == 6 and bool(one)
    assert t.to("cpu").tolist() == t.tolist()
    assert [3, 4, 5][mf.tensor(1, device=place)] == 4


def test_views_copies_and_assignments(place):
    t = mf.zeros((3, 4), "int16", device=place)
    t[1].fill(5)
    t[:, 1:2] = 7
    t[2] = [1, 2, 3, 4]
    t[0] = t[2]
    assert t.tolist() == [[1, 2, 3, 4], [5, 7, 5, 5], [1, 2, 3, 4]]
    assert t.copy().tolist() == t.tolist() and t.copy().data_ptr != t.data_ptr
    u = mf.zeros((3, 4), "int16", device=place)
    assert u.copy(t) is u and u.tolist() == t.tolist()
    t[1] = np.array([1.6, 2.0, 3.0, -1.0])
    assert t[1].tolist() == [1, 2, 3, -1]
    host = mf.zeros((3, 4), "float32")
    assert host.copy(t).tolist() == t.tolist()
    assert t.reshape(12).reinterpret("uint8").shape == (24,)
    assert t.as_readonly().readonly
    with pytest.raises(ValueError):
        t.as_readonly().fill(1)


def test_elements_of_a_gpu_are_read_written_converted_and_compared(gpu):
    far = far_away(gpu)
    host = far.to("cpu")
    assert far[0, 1] == host[0, 1] and far[-1, -1] == host[-1, -1]
    assert list(far[0]) == list(host[0])
    far[1, 2] = host[1, 2] = 41
    assert mf.equal(far, host) and mf.equal(far, far.copy()) and not mf.equal(far, mf.zeros((2, 3), "int32"))
    for dtype in ("float64", "float16", "bfloat16", "bool", "uint8", "complex64", "float8_e4m3fn", "float8_e8m0fnu"):
        there = far.astype(dtype)
        assert there.device == far.device and there.dtype == dtype
        assert there.tobytes() == host.astype(dtype).tobytes(), dtype
    for target in (mf.zeros((2, 3), device=far.device), mf.zeros((2, 3))):
        assert target.copy(far).tolist() == host.tolist()
    with pytest.raises(TypeError, match="complex"):
        far.astype("complex64").astype("float32")
    with pytest.raises(IndexError):
        far[2, 0]
    with pytest.raises(ValueError, match="read-only"):
        far.as_readonly()[0, 0] = 1


def test_elements_of_a_gpu_are_refused_with_the_way_out(gpu):
    far = far_away(gpu)
    with pytest.raises(BufferError, match=r'to\("cpu"\)'):
        memoryview(far)
    with pytest.raises(AttributeError, match=r'to\("cpu"\)'):
        far.__array_interface__  # noqa: B018
    for convert in (np.asarray, np.array, lambda t: t.__array__()):
        with pytest.raises(TypeError, match=r'to\("cpu"\)'):
            convert(far)
    assert far.astype("int32", copy=False) is far
    with pytest.raises((BufferError, RuntimeError)):  # as the NumPy says it
        np.from_dlpack(far)
    assert np.from_dlpack(far, device="cpu").tolist() == far.tolist()
    assert len(far) == 2 and far[0].shape == (3,)


def test_elements_that_the_host_can_read(gpu, place, seed):
    if "_" not in place:
        pytest.skip("this is about pinned and managed memory")
    t = mf.zeros((2, 3), "uint8", device=place)
    s = mf.Stream(gpu.kind)
    for value, look in enumerate(
        [
            lambda: t[1, 2],
            lambda: memoryview(t)[1, 2],
            lambda: np.asarray(t)[1, 2],
            lambda: np.from_dlpack(t)[1, 2] if "managed" not in place else t[1, 2],
            lambda: t.to("cpu")[1, 2],
            lambda: t.tolist()[1][2],
        ],
        1,
    ):
        t.acquire(s, write=True)
        gpu.memset(t.data_ptr, value, 6, s.handle)
        assert look() == value
    t[0, 1] = 99
    assert gpu.read(t.data_ptr, 6, s.handle)[1] == 99


@pytest.mark.parametrize(
    "look",
    [
        lambda t: t[5],
        lambda t: memoryview(t)[5],
        lambda t: np.asarray(t)[5],
        lambda t: np.from_dlpack(t)[5],
        lambda t: t.tolist()[5],
        lambda t: t.copy()[5],
        lambda t: t.__array_interface__ and np.frombuffer(t, "uint8")[5],
        lambda t: mf.asarray(t)[5],
        lambda t: pickle.loads(pickle.dumps(t))[5],
        lambda t: pickle.loads(pickle.dumps(t, 5), buffers=None)[5],
        lambda t: in_lua("(...):get(5)", t),
        lambda t: in_lua("(...):row()[5]", t),
        lambda t: in_lua("(...):tolist()[6]", t),
        lambda t: in_lua("tonumber(tostring(...):match('(%d+)%.?%]$'))", t),
    ],
)
@pytest.mark.parametrize("kind", ["cuda_host", "cuda_managed", "rocm_host"])
def test_what_is_called_the_cpus_waits_as_the_memory_does(gpu, kind, look, seed):
    if kind.partition("_")[0] != gpu.kind:
        pytest.skip(f"{kind} is not this driver's")
    t = mf.zeros((64,), "uint8", device=kind)
    host, s = t.to("cpu"), mf.Stream(gpu.kind)
    assert (host.device.type, host.data_ptr) == (1, t.data_ptr)
    t.acquire(s, write=True)
    gpu.memset(t.data_ptr, 7, 64, s.handle)
    assert look(host) == 7


def in_lua(code, t):
    return mf.Lua().eval(code, t)


# Where host and device may not use managed memory at once, its elements are reached by a copy or not at all.
EXCLUSIVE = """
import gc, pickle
import moonferry as mf, numpy as np

WHERE = "the elements are on cuda_managed:0"
def refused(use, *errors):
    try:
        use()
    except errors as error:
        assert WHERE in str(error), error
    else:
        raise AssertionError("not refused")

t, lua = mf.zeros((4,), "float32", device="cuda_managed"), mf.Lua()
other, s = mf.full((4,), 1, "int32"), mf.Stream("cuda")
with s:
    t.fill(3)
    refused(lambda: np.frombuffer(t), mf.ExchangeError)
    assert t[0] == 3 and list(t) == [3] * 4 and mf.equal(t, t) and t.astype("int32").tolist() == [3] * 4
    assert t.copy(other).tolist() == [1] * 4
    t[2] = 7
    assert float(t[2]) == 7
    t.fill(3)
    for use in (lambda: memoryview(t), lambda: np.asarray(t), lambda: t.__array_interface__):
        refused(use, mf.ExchangeError)
    refused(lambda: t.acquire("host"), ValueError)
    for code in "(...):get(0)", "(...):set(2, 1)", "(...):put(2, 1)", "(...):row()[1]", "(...):ptr()":
        refused(lambda: lua.eval(code, t), mf.LuaError)
    three = [3.0] * 4
    assert t.tolist() == t.to("cpu").tolist() == np.from_dlpack(t, device="cpu").tolist() == three
    assert t.to("cpu").data_ptr != t.data_ptr and "3., 3." in repr(t) + lua.eval("tostring(...)", t)
    assert pickle.loads(pickle.dumps(t)).tolist() == three == list(lua.eval("(...):tolist()", t).values())
    assert t.to("cuda:0").data_ptr == t.data_ptr
    t[:] = 4
    assert t.copy().tolist() == t.to("cuda_host").tolist() == [4.0] * 4
del t, s, lua
gc.collect()
mf.trim("cuda:0")
print("done")
"""


def test_managed_memory_that_is_one_side_s_at_a_time(gpu):
    if gpu.kind != "cuda" or not gpu.simulated:
        pytest.skip("this is CUDA's alone" if gpu.simulated else "a real driver cannot be told")
    environment = dict(os.environ, SIM_MANAGED="exclusive", SIM_EXIT="3")
    done = subprocess.run(
        [sys.executable, "-c", EXCLUSIVE], env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_repr_names_the_device_and_copies_little(gpu, device):
    t = mf.tensor([1, 2], "int32", device=device)
    assert repr(t) == f"moonferry.Tensor([1, 2], dtype=int32, device={device})"
    big = mf.zeros((1000, 1000), "int8", device=device)
    host = repr(big.to("cpu"))
    text = repr(big)
    assert text.replace(f", device={device}", "") == host and "..." in text
    assert repr(mf.zeros((0,), device=device)) == f"moonferry.Tensor([], dtype=float32, device={device})"


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_pickles_come_back_where_they_were(place, protocol):
    t = mf.tensor([[1, 2, 3], [4, 5, 6]], "int32", device=place)
    back = pickle.loads(pickle.dumps(t, protocol))
    assert back.device == t.device and back.tolist() == t.tolist() and not back.readonly
    assert pickle.loads(pickle.dumps(t.T, protocol)).tolist() == t.T.tolist()
    assert copy.deepcopy(t).device == t.device
    kept = pickle.loads(pickle.dumps(t.as_readonly(), protocol))
    assert kept.device == t.device and kept.readonly and kept.tolist() == t.tolist()


def test_a_pickle_of_a_device_that_is_not_there_comes_back_on_the_cpu(gpu, device):
    text = pickle.dumps(mf.tensor([1, 2], "int32", device=device), 2)
    there = io.BytesIO(text.replace(device.encode(), device[:-1].encode() + b"9"))
    back = pickle.load(there)
    assert back.device == "cpu" and back.tolist() == [1, 2]


def test_pools_keep_and_give_back(gpu, device):
    mf.zeros((1000,), "uint8", device=device)
    mf.synchronize(device)
    before = mf.pool_stats(device)
    assert before.used_bytes == 0 and before.cached_bytes >= 1000 and before.limit_bytes == 0 and before.deferred == 0
    t = mf.empty((1000,), "uint8", device=device)
    now = mf.pool_stats(device)
    assert now.hits == before.hits + 1 and now.used_bytes >= 1000
    del t
    mf.synchronize(device)
    mf.trim(device)
    assert mf.pool_stats(device).cached_bytes == 0
    mf.trim()
    for ask in (mf.pool_stats, mf.trim):
        with pytest.raises(ValueError):
            ask(f"{gpu.kind}:99")


def test_a_pool_can_be_limited(gpu, device):
    mf.trim(device)
    mf.pool_limit(device, 1 << 20)
    assert mf.pool_stats(device).limit_bytes == 1 << 20
    try:
        with pytest.raises(MemoryError):
            mf.empty((1 << 21,), "uint8", device=device)
    finally:
        mf.pool_limit(device, 0)
    mf.empty((1 << 21,), "uint8", device=device)
    with pytest.raises(ValueError):
        mf.pool_limit(device, -1)
    with pytest.raises(TypeError):
        mf.pool_limit(device)


def test_a_failing_driver_is_named(gpu, device):
    if not gpu.simulated:
        pytest.skip("only a simulated driver can be told to fail")
    mf.trim(device)
    mf.Stream(device)
    name, code = ("cuMemsetD8Async", 999) if gpu.kind == "cuda" else ("hipMemsetD8Async", 999)
    t = mf.empty((64,), "uint8", device=device)
    gpu.lib.sim_fail(f"{name}:{code}:on".encode())
    with pytest.raises(mf.DriverError, match=f"{name} answered {code}") as caught:
        t.fill(3)
    assert isinstance(caught.value, RuntimeError) and (caught.value.call, caught.value.code) == (name, code)
    gpu.reset()
    t.fill(4)
    assert t.tolist() == [4] * 64


# What a call asks of the driver, without its prefix.
ASKED = {
    "equal": ("MemcpyAsync", lambda t: mf.equal(t, t)),
    "copy": ("MemcpyAsync", lambda t: t.copy()),
    "copy from": ("MemcpyAsync", lambda t: t.copy(t)),
    "copy with progress": ("MemcpyAsync", lambda t: t.copy(progress=print)),
    "an element": ("MemcpyAsync", lambda t: t[1, 2]),
    "an element that is set": ("MemcpyAsync", lambda t: t.__setitem__((1, 2), 5)),
    "the only element": ("MemcpyAsync", lambda t: t[:1, :1].item()),
    "tobytes": ("MemcpyAsync", lambda t: t.tobytes()),
    "zeros": ("MemcpyAsync", lambda t: mf.zeros(2, "handle64", device=t.device)),
    "ones": ("MemsetD8Async", lambda t: mf.ones(2, "uint8", device=t.device)),
    "astype": ("LaunchKernel", lambda t: t.astype("int32")),
    "contiguous": ("LaunchKernel", lambda t: t.T.contiguous()),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_driver_that_fails_in_a_call_is_a_driver_error(gpu, device, name):
    if not gpu.simulated:
        pytest.skip("only a simulated driver can be told to fail")
    asked, call = ASKED[name]
    asked = f"cu{asked}" if gpu.kind == "cuda" else f"hip{asked.replace('Launch', 'ModuleLaunch')}"
    t = mf.zeros((4, 4), "uint8", device=device)
    before = mf.ledger()
    gpu.lib.sim_fail(f"{asked}:999:on".encode())
    with pytest.raises(mf.DriverError, match=f"{asked} answered 999"):
        call(t)
    gpu.reset()
    assert mf.ledger() == before and t.tolist() == [[0] * 4] * 4


def test_a_failing_driver_in_an_exchange_is_a_driver_error(gpu, device):
    if not gpu.simulated:
        pytest.skip("only a simulated driver can be told to fail")
    prefix = "cu" if gpu.kind == "cuda" else "hip"
    s = mf.Stream(device)
    with s:
        t = mf.zeros((64,), "uint8", device=device)
    other = mf.Stream(device)
    gpu.lib.sim_fail(f"{prefix}StreamWaitEvent:999:on".encode())
    with pytest.raises(mf.DriverError, match="__dlpack__: .*StreamWaitEvent answered 999"):
        t.__dlpack__(stream=other.handle, max_version=(1, 3))
    gpu.reset()
    t.__dlpack__(stream=other.handle, max_version=(1, 3))


CLOSED_WORK = {
    "copy": lambda t, u: t.copy(),
    "copy from": lambda t, u: u.copy(t),
    "fill": lambda t, u: t.fill(3),
    "to the host": lambda t, u: t.to("cpu"),
    "from the host": lambda t, u: u.to(t.device, copy=True),
    "export to the host": lambda t, u: t.__dlpack__(dl_device=(1, 0)),
    "acquire": lambda t, u: t.acquire("host"),
    "tolist": lambda t, u: t[:8].tolist(),
}


@pytest.mark.parametrize("name", CLOSED_WORK)
def test_one_thread_may_close_what_another_works_with(place, name):
    """The wait for a device gives up the interpreter's lock, and the tensor may be closed there."""
    with mf.zeros((64, 64), device=place) as t, mf.zeros((64, 64)) as u:
        wrong, begun = [], threading.Event()

        def work(t=t, u=u, begun=begun, wrong=wrong):
            try:
                while True:
                    CLOSED_WORK[name](t, u)
                    begun.set()
            except ValueError as e:
                wrong.extend([] if "tensor is closed" in str(e) else [e])
            except BaseException as e:
                wrong.append(e)
            begun.set()

        thread = threading.Thread(target=work)
        thread.start()
        begun.wait()
    u.close()
    thread.join()
    assert not wrong and t.closed


def test_a_closed_tensor_gives_its_block_back_and_what_uses_its_address_keeps_it(gpu):
    blocks = mf.ledger().blocks
    far_away(gpu).close()
    assert mf.ledger().blocks == blocks
    t = far_away(gpu)
    if gpu.kind == "cuda":
        assert t.__cuda_array_interface__["data"][0] == t.data_ptr
        held = mf.ledger().blocks
        t.close()
        assert mf.ledger().blocks == held
        del t
        assert mf.ledger().blocks == blocks


def test_the_bytes_of_what_the_host_cannot_read_are_not_given(device):
    t = mf.full(4, 1, "int32", device=device)
    for call in (mf._core._raw_bytes, lambda t: mf._core._from_raw(t, (16,), "int8", False)):
        with pytest.raises(TypeError, match="a contiguous Tensor that the host can read"):
            call(t)
    t.close()
