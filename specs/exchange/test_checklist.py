"""What NumPy, PyTorch and CuPy check of their own DLPack, and where the same is checked of Moonferry's.

Where a row names this file, the spec is below: a point that no other file had.

| their point | whose | here |
| --- | --- | --- |
| a dropped capsule gives back what it held, for each version asked | NumPy, CuPy | python/test_capsule |
| a dropped import lets the source go, by the count of references | NumPy | this file |
| a capsule that dies while an exception is in flight leaves that alone | NumPy | python/test_capsule |
| a capsule is taken once; a taken one's destructor frees nothing | CuPy | python/test_capsule |
| stream: no number, not of the device, 0, 1, 2, -1, handles | all | python/test_dlpack, gpu/test_stream_values |
| max_version: none, 0.x, 1.0, a later minor, a later major | all | python/test_dlpack |
| copy: true, false, none, nonsense; on the way out and in | all | python/test_dlpack, test_producer, gpu/test_matrix |
| dl_device: own, the CPU, one that is not there, nonsense | all | python/test_dlpack, gpu/test_matrix |
| a copy made by the consumer where the producer cannot | PyTorch | python/test_producer, gpu/test_matrix |
| a device given by name | NumPy | python/test_dlpack |
| every dtype, by old and new producers | all | python/test_numpy, test_torch, test_jax; the matrix |
| bfloat16, float8, float4 | PyTorch, CuPy | python/test_torch, test_numpy; the matrix |
| dates, text, objects, structs, swapped bytes | NumPy | python/test_numpy |
| strides that are no multiple of the element | NumPy | this file |
| rows, columns, transposes, diagonals | NumPy, PyTorch | python/test_numpy, test_torch; the matrix |
| each rank from 0 up | NumPy | this file |
| one axis of extent 1 with a stride of any size | NumPy, PyTorch | this file |
| read-only out: refused by the old struct, flagged by the new | NumPy | python/test_dlpack |
| writable in: by the new struct, and by the old | NumPy | python/test_numpy, test_producer |
| the device of an array, its copy and its view | NumPy | python/test_dlpack, this file |
| memory is shared: a write on one side is seen on the other | PyTorch | python/test_numpy, test_torch; the matrix |
| a wrapper with the two methods alone makes an array of any maker | PyTorch | this file |
| gradients, conjugates, sparse tensors | PyTorch | python/test_torch |
| the free functions to_dlpack and from_dlpack | PyTorch, CuPy | exchange/test_old_producers |
| the exchange table: name, version, five slots, each in use | PyTorch | python/test_table, test_capi |
| default, side and two streams: bytes and order | PyTorch, CuPy | python/gpu/test_stream_values, test_peers |
| the consumer asks for its own stream by number | PyTorch | python/gpu/test_matrix |
| another device than the current one | PyTorch, CuPy | gpu/context_spec.c: taken, the caller's stays current |
| device memory to the host: copy true, false, none | CuPy | python/gpu/test_matrix |
| managed and pinned memory | CuPy | python/gpu/test_matrix, test_cuda_array |
| freed device memory goes back to the pool after the consumer | CuPy | python/gpu/test_peers, test_tensor |
| registered dtypes; scalars with the methods | NumPy 2.5, 2.6 | not in the NumPy that is pinned |
"""

import sys

import numpy as np
import pytest

import moonferry as mf


@pytest.mark.parametrize("copy", [None, True])
def test_a_dropped_import_lets_its_source_go(copy):
    a = np.arange(5)
    before = sys.getrefcount(a)
    t = mf.from_dlpack(a, copy=copy)
    view = t[1:]
    assert sys.getrefcount(a) == before + (copy is None)
    del t
    assert sys.getrefcount(a) == before + (copy is None)
    del view
    assert sys.getrefcount(a) == before


@pytest.mark.parametrize("version", [None, (0, 0), (1, 0), (100, 3)])
def test_a_consumer_that_goes_lets_our_memory_go(version):
    t = mf.ones((5,))
    capsule = t.__dlpack__(max_version=version)
    del t
    assert mf.ledger().tensors == 1
    del capsule
    assert mf.ledger().tensors == 0


def test_strides_that_are_no_multiple_of_the_element_are_refused_by_name_or_copied():
    table = np.zeros(5, dtype=[("i", "<i4"), ("c", "i1")])
    table["i"] = range(5)
    with pytest.raises(BufferError, match="strides"):
        mf.from_dlpack(table["i"])
    with pytest.raises(mf.ExchangeError, match="strides which are a multiple of itemsize"):
        mf.asarray(table["i"], copy=False)
    with pytest.raises(mf.ExchangeError, match="the buffer's strides are no multiple of its items"):
        mf.asarray(memoryview(table["i"]), copy=False)


@pytest.mark.parametrize("rank", range(65))
def test_each_rank_goes_both_ways(rank):
    shape = (1,) * rank
    a = np.full(shape, 7.0)
    assert mf.from_dlpack(a).shape == shape and mf.from_dlpack(a).reshape(1).tolist() == [7]
    assert np.from_dlpack(mf.full(shape, 7)).shape == shape


@pytest.mark.parametrize("stride", [4, 8, -8, 1 << 40, 0])
def test_the_stride_of_an_axis_of_one_does_not_matter(stride):
    memory = np.arange(100.0)
    a = np.ndarray((10, 5, 1), "f8", memory, strides=(8, 80, stride))
    t = mf.from_dlpack(a)
    assert t.data_ptr == memory.ctypes.data and t.tolist() == a.tolist()
    assert np.from_dlpack(t).tolist() == a.tolist()


def test_the_stride_of_an_axis_of_one_is_kept_between_libraries():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed for this Python")
    x = torch.arange(16.0)[::3][:1]
    t = mf.from_dlpack(x)
    assert t.strides == x.stride() == mf.into(torch.Tensor, t).stride() == torch.from_dlpack(t).stride() == (3,)


def test_the_device_of_an_array_its_copy_and_its_view():
    t = mf.ones((5,))
    assert {x.__dlpack_device__() for x in (t, t.copy(), t[::2], mf.from_dlpack(np.arange(5)))} == {(1, 0)}


class TwoMethods:
    """An array behind its two methods: no buffer, no sequence, no interface, no table."""

    def __init__(self, array):
        self.array, self.asked = array, 0

    def __dlpack__(self, **more):
        self.asked += 1
        return self.array.__dlpack__(**more)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("make", [mf.from_dlpack, mf.asarray, mf.tensor], ids=lambda make: make.__name__)
def test_the_two_methods_are_enough_for_every_maker(make):
    wrapped = TwoMethods(np.arange(6.0).reshape(2, 3))
    assert make(wrapped).tolist() == [[0, 1, 2], [3, 4, 5]] and wrapped.asked == 1
    t = mf.zeros((2, 3))
    t[...] = wrapped
    assert t.tolist() == [[0, 1, 2], [3, 4, 5]]
