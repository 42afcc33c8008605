"""The C exchange table on devices: ours as a consumer calls it, and somebody else's called by us.

DLPack 1.3, C exchange API: memory that goes through a table is ready on the stream that its owner works on.
"""

import ctypes as c
import gc

import pytest

import dlpack_abi as abi
import moonferry as mf
from conftest import gives_a_destroyed_handle

Managed = abi.DLManagedTensorVersioned


@pytest.fixture(scope="module")
def table():
    return abi.DLPackExchangeAPI.from_address(abi.capsule_pointer(mf.Tensor.__dlpack_c_exchange_api__))


def numbers(gpu, place="device"):
    return {
        "device": (2 if gpu.kind == "cuda" else 10, 0),
        "second": (2 if gpu.kind == "cuda" else 10, 1),
        "host": (3 if gpu.kind == "cuda" else 11, 0),
    }[place]


def work_stream(table, device):
    out = c.c_void_p(5)
    rc = abi.CurrentWorkStream(table.current_work_stream)(*device, c.byref(out))
    return rc, out.value


def export(table, t):
    out = c.c_void_p()
    assert abi.FromPyObject(table.managed_tensor_from_py_object_no_sync)(t, c.byref(out)) == 0
    return Managed.from_address(out.value)


# Ours.


def test_the_work_stream_is_our_current_one(gpu, device, table):
    native = 1 if gpu.kind == "cuda" else None
    assert work_stream(table, numbers(gpu)) == (0, native)
    assert work_stream(table, numbers(gpu, "host")) == (0, native)
    with mf.Stream(device) as s:
        assert work_stream(table, numbers(gpu)) == (0, s.handle)
        if gpu.count > 1:
            assert work_stream(table, numbers(gpu, "second")) == (0, native)
        with mf.Stream.per_thread(device):
            assert work_stream(table, numbers(gpu)) == (0, 2)
    assert work_stream(table, (1, 0)) == (0, None)


@pytest.mark.parametrize("device", [(2, 99), (10, 99), (4, 0), (99, 0), (2, -1)])
def test_a_device_that_is_not_there_has_none(gpu, table, device):
    with pytest.raises(mf.ExchangeError, match="current_work_stream"):
        work_stream(table, device)


def test_what_is_exported_is_ready_there(gpu, device, table, seed):
    with mf.Stream(device) as producer:
        t = mf.full((64,), 5, "uint8", device=device)
    with mf.Stream(device) as s:
        struct = export(table, t)
        assert gpu.read(struct.dl_tensor.data, 64, s.handle) == b"\5" * 64
        gpu.memset(struct.dl_tensor.data, 6, 64, s.handle)
        abi.call_deleter(struct)
    with producer:
        assert t.tolist() == [6] * 64


def test_what_is_borrowed_is_ready_there(gpu, device, table, seed):
    with mf.Stream(device) as producer:
        t = mf.full((64,), 5, "uint8", device=device)
    borrow = abi.FromPyObject(table.dltensor_from_py_object_no_sync)
    view = abi.DLTensor()
    with mf.Stream(device) as s:
        assert borrow(t, c.byref(view)) == 0
        assert gpu.read(view.data, 64, s.handle) == b"\5" * 64
        gpu.memset(view.data, 6, 64, s.handle)
    with producer:
        assert t.tolist() == [6] * 64
    with pytest.raises(mf.ExchangeError):
        borrow(t.as_readonly(), c.byref(view))


def test_pinned_memory_is_ready_for_the_host(gpu, table, seed):
    t = mf.zeros((64,), "uint8", device=f"{gpu.kind}_host")
    s = mf.Stream(gpu.kind)
    t.acquire(s, write=True)
    gpu.memset(t.data_ptr, 5, 64, s.handle)
    struct = export(table, t)
    assert c.string_at(struct.dl_tensor.data, 64) == b"\5" * 64
    abi.call_deleter(struct)


def test_pinned_memory_that_is_borrowed_is_ready_for_the_host(gpu, table, seed):
    t, s = mf.zeros((64,), "uint8", device=f"{gpu.kind}_host"), mf.Stream(gpu.kind)
    t.acquire(s, write=True)
    gpu.memset(t.data_ptr, 5, 64, s.handle)
    view = abi.DLTensor()
    assert abi.FromPyObject(table.dltensor_from_py_object_no_sync)(t, c.byref(view)) == 0
    assert c.string_at(view.data, 64) == b"\5" * 64


def test_pinned_memory_that_the_host_cannot_wait_for_is_refused(gpu, device, table):
    t, out, stream = mf.zeros((64,), "uint8", device=f"{gpu.kind}_host"), c.c_void_p(5), gpu.stream()

    def work():
        t.fill(2)
        with pytest.raises(mf.ExchangeError, match="__dlpack_c_exchange_api__: .*is being captured"):
            abi.FromPyObject(table.managed_tensor_from_py_object_no_sync)(t, c.byref(out))

    with mf.Stream.wrap(stream, device):
        t.fill(1)
        assert gpu.captured(stream, work) >= 1
    assert out.value is None and t.tolist() == [1] * 64
    gpu.destroy(stream)


@pytest.mark.parametrize("readonly", [False, True])
def test_pinned_memory_waits_for_readers_where_the_host_may_write(gpu, device, table, readonly):
    t, s, there = (
        mf.full((64,), 1, "uint8", device=f"{gpu.kind}_host"),
        mf.Stream(device),
        mf.empty((64,), "uint8", device=device),
    )
    with s:
        there.copy(t)
    struct = export(table, t.as_readonly() if readonly else t)
    assert s.query() == (not readonly) or (readonly and not gpu.simulated)
    if not readonly:
        c.memset(struct.dl_tensor.data, 2, 64)
    assert there.tolist() == [1] * 64
    abi.call_deleter(struct)


def test_what_was_borrowed_stays_as_long_as_the_object_lives(gpu, device, table):
    before = mf.ledger()
    t, view = mf.zeros((64,), "uint8", device=device), abi.DLTensor()
    assert abi.FromPyObject(table.dltensor_from_py_object_no_sync)(t, c.byref(view)) == 0
    t.close()
    assert t.closed and mf.ledger().bytes == before.bytes + 64
    del t
    assert mf.ledger() == before


def test_what_was_exported_can_be_closed(gpu, device, table):
    before = mf.ledger()
    t = mf.zeros((64,), "uint8", device=device)
    abi.call_deleter(export(table, t))
    t.close()
    assert mf.ledger() == before


def test_the_allocator_gives_memory_of_a_device(gpu, device, table, seed):
    prototype = abi.Producer((64,), None, (1, 8, 1))
    prototype.dl.data, prototype.dl.device = None, abi.DLDevice(*numbers(gpu))
    out = c.c_void_p()
    with mf.Stream(device) as s:
        assert abi.Allocator(table.managed_tensor_allocator)(c.addressof(prototype.dl), c.byref(out), None, None) == 0
        struct = Managed.from_address(out.value)
        gpu.memset(struct.dl_tensor.data, 6, 64, s.handle)
        made = c.c_void_p()
        assert abi.ToPyObject(table.managed_tensor_to_py_object_no_sync)(out.value, c.byref(made)) == 0
    t = c.cast(made, c.py_object).value
    c.pythonapi.Py_DecRef(c.py_object(t))
    with mf.Stream(device):
        assert t.device == device and t.tolist() == [6] * 64


# Somebody else's.


class Library:
    """Another library with a table: its memory, its stream, and what it was given."""

    def __init__(self, gpu, stream, refuses=False):
        self.gpu, self.stream, self.given, self.refuses = gpu, stream, None, refuses
        self.memory = gpu.alloc(64)
        self.producer = abi.Producer((64,), (1,), (1, 8, 1))
        self.producer.dl.data, self.producer.dl.device = self.memory, abi.DLDevice(*numbers(gpu))
        self.slots = [abi.FromPyObject(self.from_py), abi.CurrentWorkStream(self.work), abi.ToPyObject(self.to_py)]
        self.table = abi.DLPackExchangeAPI()
        self.table.header.version = abi.DLPackVersion(1, 3)
        self.table.managed_tensor_from_py_object_no_sync = abi.address_of(self.slots[0])
        self.table.current_work_stream = abi.address_of(self.slots[1])
        self.table.managed_tensor_to_py_object_no_sync = abi.address_of(self.slots[2])
        capsule = abi.capsule_new(c.addressof(self.table), b"dlpack_exchange_api")
        self.array = type("Array", (), {"__dlpack_c_exchange_api__": capsule})

    def from_py(self, obj, out):
        c.c_void_p.from_address(out).value = c.addressof(self.producer.struct)
        return 0

    def work(self, kind, index, out):
        c.c_void_p.from_address(out).value = self.stream
        return 0

    def to_py(self, struct, out):
        if self.refuses:
            return -1
        self.given = Managed.from_address(struct)
        none = c.py_object(None)
        c.pythonapi.Py_IncRef(none)
        c.c_void_p.from_address(out).value = id(None)
        return 0


@pytest.fixture
def theirs(gpu):
    made = []

    def make(stream, **keywords):
        made.append(Library(gpu, stream, **keywords))
        return made[-1]

    yield make
    gc.collect()
    mf.synchronize(gpu.kind)
    for one in made:
        gpu.free(one.memory)


@pytest.fixture(params=["handle", "default", "null"])
def their_stream(gpu, request):
    """(what the table says, the stream that it means)"""
    handle = gpu.stream()
    yield {"handle": (handle, handle), "default": (gpu.default, gpu.default), "null": (None, gpu.default)}[
        request.param
    ]
    mf.synchronize(gpu.kind)
    gpu.destroy(handle)


def test_what_comes_in_is_behind_their_work(gpu, device, theirs, their_stream, seed):
    library = theirs(their_stream[0])
    gpu.memset(library.memory, 5, 64, their_stream[1])
    with mf.Stream(device):
        t = mf.from_dlpack(library.array())
        assert mf.current_stream(device) != mf.Stream.default(device)
        assert t.copy().tolist() == [5] * 64
    assert t.data_ptr == library.memory and library.producer.deletes == 0
    del t
    mf.synchronize(device)
    assert library.producer.deletes == 1


def test_what_comes_in_can_go_to_the_host_at_once(gpu, device, theirs, their_stream, seed):
    library = theirs(their_stream[0])
    gpu.memset(library.memory, 5, 64, their_stream[1])
    assert mf.from_dlpack(library.array(), device="cpu").tolist() == [5] * 64
    with pytest.raises(mf.ExchangeError):
        mf.from_dlpack(library.array(), device="cpu", copy=False)


def test_into_makes_their_stream_wait(gpu, device, theirs, their_stream, seed):
    library = theirs(their_stream[0])
    with mf.Stream(device) as ours:
        t = mf.full((64,), 5, "uint8", device=device)
        mf.into(library.array, t)
    assert gpu.read(library.given.dl_tensor.data, 64, their_stream[1]) == b"\5" * 64
    gpu.memset(library.given.dl_tensor.data, 6, 64, their_stream[1])
    abi.call_deleter(library.given)
    with ours:
        assert t.tolist() == [6] * 64


def test_into_a_library_that_does_not_say_where_it_works_is_ready_on_our_stream(gpu, device, theirs, seed):
    library = theirs(gpu.default)
    library.table.current_work_stream = None
    producer, s = mf.Stream(device), mf.Stream(device)
    with producer:
        t = mf.full((64,), 5, "uint8", device=device)
    with s:
        mf.into(library.array, t)
        assert gpu.read(library.given.dl_tensor.data, 64, s.handle) == b"\5" * 64
        abi.call_deleter(library.given)


def test_into_a_library_that_refuses_gives_everything_back(gpu, device, theirs):
    library = theirs(gpu.default, refuses=True)
    t = mf.zeros((64,), "uint8", device=device)
    with pytest.raises(mf.ExchangeError, match="did not take"):
        mf.into(library.array, t)


def test_a_table_without_a_work_stream_leaves_the_methods(gpu, device, theirs):
    library = theirs(gpu.default)
    library.table.current_work_stream = None
    with pytest.raises(AttributeError, match="__dlpack__"):
        mf.from_dlpack(library.array())
    assert library.producer.deletes == 1


def test_a_work_stream_that_cannot_be_leaves_the_methods(gpu, device, theirs):
    library = theirs(-5)
    with pytest.raises(AttributeError, match="__dlpack__"):
        mf.from_dlpack(library.array())
    asked = []
    library.array.__dlpack_device__ = lambda self: numbers(gpu)
    library.array.__dlpack__ = lambda self, **keywords: asked.append(keywords) or mf.ones(3).__dlpack__()
    assert mf.from_dlpack(library.array()).tolist() == [1, 1, 1] and library.producer.deletes == 2
    assert asked == [{"max_version": (1, 3), "stream": gpu.default}]


def test_a_work_stream_that_is_none_is_refused(gpu, device, theirs):
    gives_a_destroyed_handle(gpu)
    gone = gpu.stream()
    gpu.destroy(gone)
    library = theirs(gone)
    with pytest.raises(ValueError):
        mf.from_dlpack(library.array())
    assert library.producer.deletes == 1
    gpu.reset()


@pytest.mark.parametrize("what, error", [("has_no_memory", MemoryError), ("is_interrupted", KeyboardInterrupt)])
def test_what_a_work_stream_raises_that_no_method_can_mend_is_raised(gpu, device, theirs, what, error):
    library = theirs(gpu.default)
    library.table.current_work_stream = abi.address_of(getattr(abi.probe(), f"probe_work_{what}"))
    library.array.__dlpack_device__ = lambda self: numbers(gpu)
    library.array.__dlpack__ = lambda self, **keywords: mf.ones(3).__dlpack__()
    with pytest.raises(error, match="the slot refuses"):
        mf.from_dlpack(library.array())
    assert library.producer.deletes == 1


def test_a_work_stream_that_fails_silently_is_an_error_of_into(gpu, device, theirs):
    library = theirs(gpu.default)
    library.slots.append(abi.CurrentWorkStream(lambda *arguments: -1))
    library.table.current_work_stream = abi.address_of(library.slots[-1])
    with pytest.raises(mf.ExchangeError, match="into: 'Array' does not say on which stream it works"):
        mf.into(library.array, mf.zeros(3, device=device))
    assert library.given is None
