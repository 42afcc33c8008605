"""`Stream`: a value, a context, somebody else's stream under another name."""

import gc
import os
import pathlib
import subprocess
import sys
import threading
import weakref

import pytest

import moonferry as mf
from conftest import gives_a_destroyed_handle


class Foreign:
    """Anything with the CUDA stream protocol."""

    def __init__(self, handle, version=0):
        self.pair = (version, handle)

    def __cuda_stream__(self):
        return self.pair


def test_a_new_stream_is_a_handle_of_its_device(gpu, device):
    s = mf.Stream(device)
    assert s.device == device and s.handle > 2 and s.__cuda_stream__() == (0, s.handle)
    assert s.query() is True
    s.synchronize()


def test_the_named_streams_have_the_drivers_numbers(gpu, device):
    assert mf.Stream.default(device).handle == gpu.default
    assert mf.Stream.per_thread(device).handle == 2
    assert mf.Stream.default(device).__cuda_stream__() == (0, gpu.default)


def test_streams_are_equal_by_value(gpu, device):
    s = mf.Stream(device)
    same = mf.Stream.wrap(s.handle, device)
    assert s == same and not s != same and hash(s) == hash(same) and s is not same
    assert s != mf.Stream(device) and s != mf.Stream.default(device) and s != s.handle
    assert mf.Stream.default(device) != mf.Stream.per_thread(device)
    if gpu.count > 1:
        assert mf.Stream.default(device) != mf.Stream.default(gpu.second)
    assert len({s, same, mf.Stream.default(device), mf.Stream.default(device)}) == 2
    with pytest.raises(TypeError):
        s < same  # noqa: B015


def test_repr_says_how_to_get_it_again(gpu, device):
    s = mf.Stream(device)
    for stream in (s, mf.Stream.default(device), mf.Stream.per_thread(device)):
        assert eval(repr(stream), {"moonferry": mf}) == stream


def test_a_stream_cannot_be_changed_or_derived(gpu, device):
    s = mf.Stream(device)
    for name in ("device", "handle", "other"):
        with pytest.raises(AttributeError):
            setattr(s, name, 1)
    with pytest.raises(TypeError):
        type("Mine", (mf.Stream,), {})


@pytest.mark.parametrize("name", ["cpu", "cuda:99", "rocm:99", "nothing", (2, 99), (99, 0)])
def test_a_device_without_streams_is_refused(gpu, name):
    for make in (mf.Stream, mf.Stream.default, mf.current_stream):
        with pytest.raises(ValueError):
            make(name)


def test_a_stream_needs_a_device(gpu):
    for make in (mf.Stream, mf.Stream.default):
        with pytest.raises(TypeError, match="device"):
            make(None)
    with pytest.raises(TypeError):
        mf.Stream()


def test_pinned_memory_uses_the_streams_of_the_gpu(gpu, device):
    assert mf.Stream.default(f"{gpu.kind}_host").device == device
    assert mf.current_stream(f"{gpu.kind}_host") == mf.current_stream(device)


def test_with_makes_it_current_and_nests(gpu, device):
    s, t = mf.Stream(device), mf.Stream(device)
    before = mf.current_stream(device)
    with s as entered:
        assert entered is s and mf.current_stream(device) is s
        with t:
            assert mf.current_stream(device) is t
            with s, s:
                assert mf.current_stream(device) is s
            assert mf.current_stream(device) is t
        assert mf.current_stream(device) is s
    assert mf.current_stream(device) == before == mf.Stream.default(device)


def test_with_restores_on_exceptions(gpu, device):
    with pytest.raises(KeyError), mf.Stream(device):
        raise KeyError
    assert mf.current_stream(device) == mf.Stream.default(device)


def test_with_concerns_one_device(gpu, device):
    other = gpu.second
    with mf.Stream(device), mf.Stream(other) as t:
        assert mf.current_stream(other) is t
    with mf.Stream(device):
        assert mf.current_stream(other) == mf.Stream.default(other)


def entered(stream):
    with stream:
        yield


def test_blocks_may_end_in_another_order(gpu, device):
    """As those of generators do, which end when somebody drops them."""
    before = mf.current_stream(device)
    a, b, c = mf.Stream(device), mf.Stream(device), mf.Stream(device)
    blocks = [entered(a), entered(b), entered(c)]
    for block in blocks:
        next(block)
    blocks[1].close()
    assert mf.current_stream(device) is c
    blocks[0].close()
    del a, b
    assert mf.current_stream(device) is c
    blocks[2].close()
    assert mf.current_stream(device) == before


def test_a_block_of_another_gpu_is_not_the_one_inside(gpu, device):
    there = mf.Stream(gpu.second)
    first, second = entered(mf.Stream(device)), entered(there)
    next(first)
    next(second)
    first.close()
    assert mf.current_stream(device) == mf.Stream.default(device) and mf.current_stream(gpu.second) is there
    second.close()
    assert mf.current_stream(gpu.second) == mf.Stream.default(gpu.second)


def test_the_same_name_on_two_gpus_is_two_streams(gpu, device):
    with mf.Stream.per_thread(device), mf.Stream.per_thread(gpu.second):
        assert mf.current_stream(device) == mf.Stream.per_thread(device)
        assert mf.current_stream(gpu.second) == mf.Stream.per_thread(gpu.second)


def test_uses_of_a_stream_leave_it_the_references_that_were_there(gpu, device):
    s, other, t = mf.Stream(device), mf.Stream(device), mf.zeros((4,), device=device)
    uses = [
        lambda: mf.current_stream(device),
        lambda: (s.__enter__(), s.__exit__(None, None, None)),
        lambda: (t.acquire(s), t.record(s), t.acquire(other)),
        lambda: (s.wait(other), other.wait(s), s.wait(s)),
        lambda: (s == other, hash(s), repr(s), s.device, s.handle, s.query()),
        lambda: mf.Stream.wrap(s, device),
    ]
    seen = [s, other, t, type(s), t.device]
    gc.collect()  # other specs' streams, whose end would count
    with s:
        for use in uses:
            use()
            before = [sys.getrefcount(x) for x in seen]
            for _ in range(20):
                use()
            assert [sys.getrefcount(x) for x in seen] == before


def test_a_block_that_goes_on_keeps_its_stream(gpu, device):
    """The one around it ends first; then it ends where another stream is current."""
    inner, other, before = mf.Stream(device), mf.Stream(device), mf.current_stream(device)
    block = entered(inner)
    with other:
        next(block)
    assert mf.current_stream(device) is inner
    with other:
        block.close()
        assert mf.current_stream(device) is other
    assert mf.current_stream(device) == before


def test_a_stream_that_is_gone_does_not_come_back(gpu, device):
    gives_a_destroyed_handle(gpu)
    raw, inner = gpu.stream(), mf.Stream(device)
    outer = mf.Stream.wrap(raw, device)
    outer.__enter__()
    inner.__enter__()
    gpu.destroy(raw)
    with pytest.raises(ValueError):
        inner.__exit__()
    assert mf.current_stream(device) == mf.Stream.default(device)
    outer.__exit__()
    gpu.reset()


def test_a_stream_that_is_gone_is_not_made_current(gpu, device):
    gives_a_destroyed_handle(gpu)
    raw = gpu.stream()
    gone, before = mf.Stream.wrap(raw, device), mf.current_stream(device)
    gpu.destroy(raw)
    with pytest.raises(ValueError, match="stream"):
        gone.__enter__()
    assert mf.current_stream(device) == before
    with pytest.raises(RuntimeError, match="not made current"):
        gone.__exit__(None, None, None)
    gpu.reset()


def test_exit_without_enter_is_an_error(gpu, device):
    with pytest.raises(RuntimeError, match="not made current"):
        mf.Stream(device).__exit__(None, None, None)
    with mf.Stream(device) as s:
        with pytest.raises(RuntimeError, match="not made current"):
            mf.Stream(device).__exit__(None, None, None)
        assert mf.current_stream(device) is s


def test_the_current_stream_is_kept_alive(gpu, device):
    s = mf.Stream(device)
    alive = weakref.ref(s)
    s.__enter__()
    del s
    gc.collect()
    current = mf.current_stream(device)
    assert alive() is current
    current.__exit__()


def test_each_thread_has_its_own_current_stream(gpu, device):
    s, seen = mf.Stream(device), {}
    barrier = threading.Barrier(4)

    def work(i):
        gpu.make_current(0)
        seen[i, "first"] = mf.current_stream(device)
        with mf.Stream(device) as mine:
            barrier.wait()
            t = mf.full((64,), i, "int32", device=device)
            seen[i, "own"] = mf.current_stream(device) is mine
            seen[i] = t.tolist() == [i] * 64
            barrier.wait()

    with s:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert mf.current_stream(device) is s
    assert all(seen[i, "first"] == mf.Stream.default(device) and seen[i, "own"] and seen[i] for i in range(4))


def test_wrap_takes_a_foreign_handle(gpu, device):
    raw = gpu.stream()
    s = mf.Stream.wrap(raw, device)
    assert s.handle == raw and s.device == device
    assert mf.Stream.wrap(raw) == s
    with s:
        t = mf.full((16,), 3, "uint8", device=device)
    assert gpu.read(t.data_ptr, 16, raw) == b"\3" * 16
    del t, s
    mf.synchronize(device)
    gpu.destroy(raw)


def test_wrap_keeps_the_object_alive(gpu, device):
    raw = gpu.stream()
    owner = Foreign(raw)
    alive = weakref.ref(owner)
    s = mf.Stream.wrap(owner, device)
    del owner
    gc.collect()
    assert alive() is not None and s.handle == raw
    del s
    gc.collect()
    assert alive() is None
    gpu.destroy(raw)


def test_a_cycle_through_a_wrapped_stream_is_collected(gpu, device):
    raw = gpu.stream()
    owner = Foreign(raw)
    owner.stream = mf.Stream.wrap(owner, device)
    alive = weakref.ref(owner)
    del owner
    gc.collect()
    assert alive() is None
    gpu.destroy(raw)


def test_wrap_takes_our_own_streams_and_the_null_handle(gpu, device):
    s = mf.Stream(device)
    assert mf.Stream.wrap(s, device) == s
    assert mf.Stream.wrap(Foreign(0), device) == mf.Stream.default(device)
    assert mf.Stream.wrap(Foreign(2), device) == mf.Stream.per_thread(device)


def test_another_object_for_a_stream_of_ours_does_not_give_it_back(gpu, device):
    s = mf.Stream(device)
    for other in (lambda: mf.Stream.wrap(s.handle, device), lambda: mf.Stream.wrap(s, device)):
        assert other() == s
        with s:
            assert mf.full((4,), 7, "uint8", device=device).tolist() == [7] * 4
    gc.collect()
    assert mf.Stream(device) != s


def test_a_collection_while_it_dies_leaves_it_alone(gpu, device):
    told, s = [], mf.Stream(device)
    gone = weakref.ref(s, lambda _: told.append(gc.collect()))
    del s
    assert len(told) == 1 and gone() is None


def test_wrap_takes_the_attribute_too(gpu, device):
    s = mf.Stream(device)
    holder = type("Holder", (), {"__cuda_stream__": (0, s.handle)})()
    assert mf.Stream.wrap(holder, device) == s


@pytest.mark.parametrize("pair", [(1, 5), (0,), (0, "x"), 5, None, (0, 1, 2), (0, 1 << 70), (1 << 70, 5)], ids=repr)
def test_wrap_refuses_another_protocol(gpu, device, pair):
    wrong = type("Wrong", (), {"__cuda_stream__": lambda self: pair})()
    with pytest.raises(TypeError, match="__cuda_stream__"):
        mf.Stream.wrap(wrong, device)


@pytest.mark.parametrize("kind", [lambda fail: fail, property])
def test_wrap_lets_exceptions_out(gpu, device, kind):
    def fail(self):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        mf.Stream.wrap(type("Wrong", (), {"__cuda_stream__": kind(fail)})(), device)


@pytest.mark.parametrize("value", ["1", 1.5, True, None, object()], ids=repr)
def test_wrap_refuses_what_is_no_stream(gpu, device, value):
    with pytest.raises(TypeError):
        mf.Stream.wrap(value, device)


@pytest.mark.parametrize("value", [-1, -2, 1 << 70])
def test_wrap_refuses_numbers_that_are_no_stream(gpu, device, value):
    with pytest.raises(ValueError):
        mf.Stream.wrap(value, device)


def test_wrap_refuses_a_destroyed_stream(gpu, device):
    gives_a_destroyed_handle(gpu)
    raw = gpu.stream()
    gpu.destroy(raw)
    with pytest.raises(ValueError):
        mf.Stream.wrap(raw, device)
    gpu.reset()


def test_wrap_refuses_a_stream_of_another_device(gpu, device):
    raw = gpu.stream()
    with pytest.raises(ValueError):
        mf.Stream.wrap(raw, gpu.second)
    gpu.destroy(raw)


def test_wrap_cannot_tell_whose_a_name_is(gpu, device):
    assert gpu.second  # with one GPU there is only one that it can be
    for name in (1, 2, Foreign(0), Foreign(1)):
        with pytest.raises(ValueError, match="which device .* is a stream of cannot be told"):
            mf.Stream.wrap(name)
    with pytest.raises(ValueError, match="stream is 0, which is no handle of a stream"):
        mf.Stream.wrap(0)


def test_wait_orders_two_streams(gpu, device, seed):
    s, t = mf.Stream(device), gpu.stream()
    memory = gpu.alloc(64)
    gpu.memset(memory, 5, 64, t)
    s.wait(mf.Stream.wrap(t, device))
    assert gpu.read(memory, 64, s.handle) == b"\5" * 64
    gpu.memset(memory, 6, 64, s.handle)
    mf.Stream.wrap(t, device).wait(s.handle)
    assert gpu.read(memory, 64, t) == b"\6" * 64
    gpu.free(memory)
    gpu.destroy(t)


def test_wait_takes_streams_of_the_other_device_and_objects(gpu, device, seed):
    s, far = mf.Stream(device), mf.Stream(gpu.second)
    memory = gpu.alloc(64)
    gpu.memset(memory, 5, 64, s.handle)
    far.wait(s)
    s.wait(far)
    s.wait(Foreign(s.handle))
    assert gpu.read(memory, 64, s.handle) == b"\5" * 64
    gpu.free(memory)


@pytest.mark.parametrize("value", [None, "x", 1.5, True], ids=repr)
def test_wait_refuses_what_is_no_stream(gpu, device, value):
    with pytest.raises(TypeError):
        mf.Stream(device).wait(value)


@pytest.mark.parametrize("home, on", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("made", [mf.Stream.default, mf.Stream.per_thread, mf.Stream], ids=["default", "own", "new"])
def test_memory_of_the_host_is_used_on_a_stream_of_any_device(gpu, seed, made, on, home):
    gpu.make_current(home)
    t = mf.zeros((64,), "uint8", device=f"{gpu.kind}_host")
    gpu.make_current(on)
    s = made(f"{gpu.kind}:{on}")
    t.acquire(s, write=True)
    gpu.memset(t.data_ptr, 3, 64, s.handle)
    gpu.make_current(0)
    t.acquire("host")
    assert t.tolist() == [3] * 64
    assert t.to("cpu", stream=s, copy=True).tolist() == [3] * 64


OTHERS = {
    "cuda": ("rocm", "MOONFERRY_HIP_LIBRARY", "hip/libamdhip64.so.7"),
    "rocm": ("cuda", "MOONFERRY_CUDA_LIBRARY", "cuda/libcuda.so.1"),
}


BESIDE_ANOTHER = """
import sys
import moonferry as mf
here, there = sys.argv[1:]
theirs = mf.Stream(there)
for use in (mf.zeros(4, device=here).acquire, lambda stream: mf.Stream.wrap(mf.Stream("rocm:0").handle)):
    try:
        use(theirs)
    except ValueError as refused:
        print(refused)
"""


@pytest.mark.parametrize("count", ["1", "2"])
def test_a_stream_of_another_driver_is_refused(gpu, device, count):
    kind, variable, library = OTHERS[gpu.kind]
    path = pathlib.Path(mf._core.__file__).parent / "sim" / library
    if not gpu.simulated or not path.exists():
        pytest.skip("the other driver is not simulated")
    command = [sys.executable, "-c", BESIDE_ANOTHER, device, f"{kind}:0"]
    env = {**os.environ, variable: str(path), "SIM_DEVICES": count}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    refused, unknown = done.stdout.splitlines()
    assert refused.startswith("stream is ") and refused.endswith(f"'{kind}:0'), but one of {device} is needed")
    assert unknown.startswith("which device ") and "cannot be told; name it" in unknown


def test_query_and_synchronize_see_queued_work(gpu, device):
    s = mf.Stream(device)
    memory = gpu.alloc(64)
    gpu.memset(memory, 5, 64, s.handle)
    assert not gpu.simulated or s.query() is False
    s.synchronize()
    assert s.query() is True
    gpu.free(memory)


def test_a_stream_goes_back_when_it_dies_and_comes_again(gpu, device):
    if not gpu.simulated:
        pytest.skip("only a simulated driver counts its calls")
    mf.Stream(device)
    gpu.reset()
    for _ in range(5):
        mf.Stream(device)
    assert gpu.calls(gpu.names["create"], "cuStreamCreateWithPriority", gpu.names["destroy"]) == 0


def test_work_of_a_stream_that_died_is_done(gpu, device, seed):
    s = mf.Stream(device)
    with s:
        t = mf.full((64,), 9, "uint8", device=device)
    del s
    assert t.tolist() == [9] * 64


def test_a_stream_of_lua_s_leaves_the_module_the_references_that_were_there(device):
    """Each state imports the module to name the stream's class."""

    def use():
        lua = mf.Lua()
        assert isinstance(lua.execute("return require 'moonferry'.stream(...)", device), mf.Stream)
        lua.close()

    use()
    gc.collect()
    before = sys.getrefcount(mf)
    for _ in range(20):
        use()
    gc.collect()
    assert sys.getrefcount(mf) == before
