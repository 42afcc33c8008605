"""`__cuda_array_interface__`, versions 2 and 3, both ways."""

import gc
import weakref

import pytest

import moonferry as mf
from conftest import gives_a_destroyed_handle, library


class Array:
    """Somebody else's array: memory, and a dict that a spec may change."""

    def __init__(self, gpu, nbytes=64, **changes):
        self.gpu, self.memory = gpu, gpu.alloc(max(nbytes, 1))
        self.interface = {
            "shape": (nbytes // 4,),
            "typestr": "<i4",
            "data": (self.memory, False),
            "version": 3,
            "strides": None,
            "stream": 1,
        }
        self.interface.update(changes)
        self.interface = {key: value for key, value in self.interface.items() if value is not Ellipsis}

    @property
    def __cuda_array_interface__(self):
        return self.interface

    def free(self):
        self.gpu.free(self.memory)


@pytest.fixture
def array(cuda):
    made = []

    def make(*args, **changes):
        made.append(Array(cuda, *args, **changes))
        return made[-1]

    yield make
    gc.collect()
    mf.synchronize("cuda:0")
    for one in made:
        one.free()


# Out.


def test_version_3(cuda):
    t = mf.zeros((2, 3), "float32", device="cuda:0")
    assert t.__cuda_array_interface__ == {
        "version": 3,
        "shape": (2, 3),
        "typestr": "<f4",
        "data": (t.data_ptr, False),
        "strides": None,
        "stream": 1,
    }
    assert t.T.__cuda_array_interface__["strides"] == (4, 12)
    assert t.as_readonly().__cuda_array_interface__["data"] == (t.data_ptr, True)
    assert t[:0].__cuda_array_interface__["data"] == (0, False)


def test_who_has_the_address_has_the_memory_as_long_as_the_object_lives(cuda):
    before = mf.ledger()
    t = mf.zeros(64, "uint8", device="cuda:0")
    address = t.__cuda_array_interface__["data"][0]
    t.close()
    assert address and mf.ledger().bytes == before.bytes + 64
    del t
    assert mf.ledger() == before


@pytest.mark.parametrize("device", ["cuda_host", "cuda_managed"])
def test_memory_that_cuda_can_use(cuda, device):
    t = mf.zeros((2,), device=device)
    assert t.__cuda_array_interface__["data"] == (t.data_ptr, False)


def test_memory_that_cuda_cannot_use(gpu):
    for t in [mf.zeros((2,))] + ([mf.zeros((2,), device="rocm:0")] if gpu.kind == "rocm" else []):
        assert not hasattr(t, "__cuda_array_interface__")
        with pytest.raises(AttributeError, match="CUDA cannot use"):
            t.__cuda_array_interface__  # noqa: B018


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float4_e2m1fn", "handle64", "float32x2"])
def test_dtypes_without_a_type_string(cuda, dtype):
    with pytest.raises(AttributeError, match=dtype):
        mf.zeros((2,), dtype, device="cuda:0").__cuda_array_interface__  # noqa: B018


def test_the_stream_is_the_current_one_and_sees_what_was_written(cuda, seed):
    s, producer = mf.Stream("cuda:0"), mf.Stream("cuda:0")
    with producer:
        t = mf.full((64,), 5, "uint8", device="cuda:0")
    with s:
        interface = t.__cuda_array_interface__
    assert interface["stream"] == s.handle
    assert cuda.read(interface["data"][0], 64, s.handle) == b"\5" * 64
    cuda.memset(interface["data"][0], 6, 64, s.handle)
    with producer:
        assert t.tolist() == [6] * 64
    with mf.Stream.per_thread("cuda:0"):
        assert t.__cuda_array_interface__["stream"] == 2


def test_version_2_names_no_stream_and_waits(cuda, seed, monkeypatch):
    monkeypatch.setenv("MOONFERRY_CUDA_ARRAY_INTERFACE", "2")
    s = mf.Stream("cuda:0")
    with s:
        t = mf.full((64,), 5, "uint8", device="cuda:0")
    interface = t.__cuda_array_interface__
    assert interface["version"] == 2 and "stream" not in interface and s.query()
    cuda.memset(interface["data"][0], 6, 64, 1)
    with s:
        assert t.tolist() == [6] * 64
    monkeypatch.setenv("MOONFERRY_CUDA_ARRAY_INTERFACE", "4")
    with pytest.raises(RuntimeError, match="MOONFERRY_CUDA_ARRAY_INTERFACE"):
        t.__cuda_array_interface__  # noqa: B018


# In.


def test_an_array_comes_in_with_everything(cuda, array):
    a = array(shape=(2, 4), strides=(32, 8), data=(0, True))
    a.interface["data"] = (a.memory, True)
    t = mf.from_cuda_array(a)
    assert t.shape == (2, 4) and t.strides == (8, 2) and t.dtype == "int32" and t.device == "cuda:0"
    assert t.readonly and t.data_ptr == a.memory


@pytest.mark.parametrize("take", [mf.from_cuda_array, mf.asarray, mf.from_dlpack, mf.tensor])
def test_every_way_in_takes_an_object_that_has_nothing_else(cuda, array, take, seed):
    a = array(64, typestr="|u1", shape=(64,))
    cuda.memset(a.memory, 7, 64, 1)
    t = take(a)
    assert t.tolist() == [7] * 64 and (t.data_ptr == a.memory) is (take is not mf.tensor)


@pytest.mark.parametrize("stream", [1, 2, "handle"])
def test_work_on_the_stream_that_is_named_comes_first(cuda, array, seed, stream):
    s = mf.Stream("cuda:0")
    number = s.handle if stream == "handle" else stream
    a = array(64, typestr="|u1", shape=(64,), stream=number)
    cuda.memset(a.memory, 7, 64, number)
    with mf.Stream("cuda:0"):
        assert mf.from_cuda_array(a).copy().tolist() == [7] * 64
    mine = mf.Stream("cuda:0")
    cuda.memset(a.memory, 8, 64, number)
    t = mf.from_cuda_array(a, stream=mine)
    assert cuda.read(t.data_ptr, 64, mine.handle) == b"\x08" * 64


@pytest.mark.parametrize("how", ["argument", "environment"])
@pytest.mark.reports("race")
def test_order_can_be_turned_off(cuda, array, how, monkeypatch):
    s = mf.Stream("cuda:0")
    a = array(64, typestr="|u1", shape=(64,), stream=s.handle)
    cuda.memset(a.memory, 7, 64, s.handle)
    if how == "environment":
        monkeypatch.setenv("MOONFERRY_CUDA_ARRAY_INTERFACE_SYNC", "0")
    with mf.Stream("cuda:0"):
        mf.from_cuda_array(a, sync=how != "argument").copy()
    mf.synchronize("cuda:0")


@pytest.mark.parametrize("changes", [{"version": 2, "stream": ...}, {"stream": None}, {"stream": ...}], ids=repr)
def test_without_a_stream_there_is_nothing_to_wait_for(cuda, array, changes):
    assert mf.from_cuda_array(array(64, **changes)).shape == (16,)


def test_later_versions_are_taken_by_what_is_known_of_them(cuda, array):
    assert mf.from_cuda_array(array(64, version=4, news="?")).shape == (16,)


def test_no_elements_and_no_pointer(cuda, array):
    for interface in ({"shape": (0, 3), "data": (0, False)}, {"shape": (0,), "data": (None, False)}):
        t = mf.from_cuda_array(array(64, **interface))
        assert t.size == 0 and t.device == "cuda:0" and t.tolist() == []


def test_pinned_memory_is_what_the_driver_says_it_is(cuda, array):
    pinned = mf.zeros((4,), "int32", device="cuda_host")
    a = array(64, shape=(4,), data=(pinned.data_ptr, False))
    assert mf.from_cuda_array(a).device == mf.Device("cuda_host")


WRONG = {
    "a mask": ({"mask": object()}, "mask"),
    "big-endian": ({"typestr": ">i4"}, "typestr"),
    "no dtype": ({"typestr": "<V4"}, "typestr"),
    "a wide float": ({"typestr": "<f16"}, "typestr"),
    "an odd width": ({"typestr": "<i3"}, "typestr"),
    "no typestr": ({"typestr": ...}, "typestr"),
    "stream 0": ({"stream": 0}, "stream"),
    "a negative stream": ({"stream": -1}, "stream"),
    "a stream that is a bool": ({"stream": True}, "stream"),
    "a stream that is text": ({"stream": "1"}, "stream"),
    "a stream that no handle can be": ({"stream": 1 << 70}, "__cuda_array_interface__: stream"),
    "a negative extent": ({"shape": (-1,)}, "shape"),
    "an extent that is a float": ({"shape": (1.5,)}, "shape"),
    "no shape": ({"shape": ...}, "shape"),
    "strides between elements": ({"strides": (3,)}, "stride"),
    "too many strides": ({"strides": (4, 4)}, "strides"),
    "strides that are a number": ({"strides": 4}, "strides"),
    "a stride that is a float": ({"strides": (4.0,)}, "strides"),
    "a stride that is text": ({"strides": ("4",)}, "strides"),
    "no data": ({"data": ...}, "data"),
    "a null pointer": ({"data": (0, False)}, "data"),
    "a negative pointer": ({"data": (-8, False)}, "data"),
    "a pointer of 65 bits": ({"data": (1 << 64, False)}, "data"),
    "a pointer alone": ({"data": 4096}, "data"),
    "a pointer of the host's": ({"data": (4096, False)}, "data is 0x1000"),
    "version 1": ({"version": 1}, "version"),
    "no version": ({"version": ...}, "version"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(cuda, array, name):
    changes, word = WRONG[name]
    a = array(64, **changes)
    for take in (mf.from_cuda_array, mf.from_dlpack, mf.asarray):
        with pytest.raises(mf.ExchangeError, match=word):
            take(a)


def test_an_object_without_it(cuda):
    with pytest.raises(AttributeError, match="__cuda_array_interface__"):
        mf.from_cuda_array(object())
    with pytest.raises(mf.ExchangeError, match="not a dict"):
        mf.from_cuda_array(type("Wrong", (), {"__cuda_array_interface__": 5})())


def test_a_destroyed_stream_is_refused(cuda, array):
    gives_a_destroyed_handle(cuda)
    gone = cuda.stream()
    cuda.destroy(gone)
    with pytest.raises(mf.ExchangeError, match="__cuda_array_interface__: stream"):
        mf.from_cuda_array(array(64, stream=gone))
    cuda.reset()


def test_the_exporter_lives_until_the_work_is_done(cuda, array):
    a = Array(cuda, 64)
    alive, memory = weakref.ref(a), a.memory
    with mf.Stream("cuda:0"):
        t = mf.from_cuda_array(a)
        del a
        gc.collect()
        assert alive() is not None
        t.fill(3)
    view = t[1:]
    del t
    gc.collect()
    assert alive() is not None
    del view
    mf.synchronize("cuda:0")
    assert alive() is None
    cuda.free(memory)


# Numba, whose document it is.


@pytest.fixture
def numba(cuda):
    library("numba")
    return library("numba.cuda")


def test_numba_takes_ours(cuda, numba, seed):
    with mf.Stream("cuda:0"):
        t = mf.full((64,), 5, "int32", device="cuda:0")
        theirs = numba.as_cuda_array(t)
        assert theirs.copy_to_host().tolist() == [5] * 64
    assert theirs.shape == (64,) and str(theirs.dtype) == "int32"
    del theirs


def test_we_take_numbas(cuda, numba, seed):
    import numpy as np

    stream = numba.stream()
    theirs = numba.to_device(np.arange(64, dtype="float32"), stream=stream)
    with mf.Stream("cuda:0"):
        t = mf.from_cuda_array(theirs)
        assert t.tolist() == list(range(64)) and t.dtype == "float32"
        assert mf.asarray(theirs).copy().tolist() == t.tolist()
    t.fill(2)
    mf.synchronize("cuda:0")
    assert theirs.copy_to_host().tolist() == [2] * 64
    assert mf.from_cuda_array(theirs[::2]).strides == (2,)
    del t, theirs
    mf.synchronize("cuda:0")
    mf.trim()


def test_numbas_streams_are_streams(cuda, numba):
    theirs = numba.stream()
    if not hasattr(theirs, "__cuda_stream__"):
        pytest.skip("this Numba's streams have no __cuda_stream__")
    s = mf.Stream.wrap(theirs)
    assert s.device == "cuda:0"
    with s:
        assert mf.full((4,), 3, device=s.device).tolist() == [3.0] * 4
    del s
    mf.trim()


def test_who_gets_the_dict_may_write_and_waits_for_whoever_reads(cuda, seed, monkeypatch):
    for version in ("3", "2"):
        monkeypatch.setenv("MOONFERRY_CUDA_ARRAY_INTERFACE", version)
        t = mf.full((64,), 5, "uint8", device="cuda:0")
        into, writer = mf.zeros((64,), "uint8", device="cuda:0"), mf.Stream("cuda:0")
        with mf.Stream("cuda:0"):
            into[...] = t
        with writer:
            address = t.__cuda_array_interface__["data"][0]
        cuda.memset(address, 6, 64, writer.handle if version == "3" else 1)
        assert into.tolist() == [5] * 64
        mf.synchronize("cuda:0")


def test_a_stream_may_wait_for_what_is_read_only(cuda, array, seed):
    a = array(64, typestr="|u1", shape=(64,))
    a.interface["data"] = (a.memory, True)
    cuda.memset(a.memory, 5, 64, 1)
    mine = mf.Stream("cuda:0")
    t = mf.from_cuda_array(a, stream=mine)
    assert t.readonly and cuda.read(t.data_ptr, 64, mine.handle) == b"\5" * 64
