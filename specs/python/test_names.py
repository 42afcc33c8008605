"""What NumPy's and PyTorch's users type first: numpy(), tobytes(), contiguous(), itemsize, wrap."""

import ctypes
import gc
import types
import weakref

import numpy as np
import pytest

import moonferry as mf


def test_numpy_shares_the_memory():
    t = mf.tensor([[1, 2], [3, 4]], "int32")
    a = t.T.numpy()
    a[0, 1] = 7
    assert type(a) is np.ndarray and t.tolist() == [[1, 2], [7, 4]] and a.ctypes.data == t.data_ptr
    assert not t.as_readonly().numpy().flags.writeable


@pytest.mark.parametrize("dtype", ["int16", "float64", "complex64", "bool", "float8_e5m2"])
@pytest.mark.parametrize("index", [np.s_[:], np.s_[::-1], np.s_[:, ::2], np.s_[1], np.s_[:, :0], np.s_[0:1, 1]])
def test_tobytes_is_numpys(dtype, index):
    a = np.arange(12).reshape(3, 4).astype("uint8" if dtype.startswith("float8") else dtype)
    t = mf.from_dlpack(a)
    t = t.reinterpret(dtype) if dtype.startswith("float8") else t
    assert t[index].tobytes() == a[index].tobytes()
    assert t.itemsize == a.itemsize == t.dtype.itemsize


def test_contiguous_copies_only_where_it_must():
    t = mf.tensor([[1, 2], [3, 4]])
    assert t.contiguous() is t
    turned = t.T.contiguous()
    assert turned.is_contiguous and turned.tolist() == [[1, 3], [2, 4]] and turned.data_ptr != t.data_ptr


def test_wrap_takes_an_address_and_keeps_its_owner():
    before = mf.ledger()
    a = np.arange(6, dtype="float32")
    gone = weakref.ref(a)
    t = mf.wrap(a.ctypes.data, (2, 3), owner=a)
    u = mf.wrap(a.ctypes.data + 20, 3, "float32", strides=(-2,), owner=a, readonly=True)
    t[0, 1] = 9
    assert a[1] == 9 and u.tolist() == [5, 3, 9] and u.readonly and not t.readonly
    del a
    gc.collect()
    assert gone() is not None and t.tolist() == [[0, 9, 2], [3, 4, 5]]
    del t, u
    assert gone() is None and mf.ledger() == before


def test_wrap_takes_what_is_of_ctypes():
    array = (ctypes.c_int16 * 4)(1, 2, 3, 4)
    t = mf.wrap(array, (2, 2), "int16")
    t[1, 1] = -1
    assert array[3] == -1
    assert mf.wrap(ctypes.cast(array, ctypes.POINTER(ctypes.c_int16)), 2, "int16").tolist() == [1, 2]
    assert mf.wrap(ctypes.byref(array), 2, "int16").tolist() == [1, 2]
    assert mf.wrap(ctypes.cast(array, ctypes.c_char_p), 2, "int16").tolist() == [1, 2]


def test_wrap_takes_what_an_object_is_for_ctypes():
    array = (ctypes.c_int16 * 2)(1, 2)
    t = mf.wrap(types.SimpleNamespace(_as_parameter_=types.SimpleNamespace(_as_parameter_=array)), 2, "int16")
    del array
    assert t.tolist() == [1, 2]
    with pytest.raises(TypeError, match=r"must be an address or of ctypes, not a builtins\.float"):
        mf.wrap(types.SimpleNamespace(_as_parameter_=0.5), 2)
    with pytest.raises(TypeError, match=r"must be an address or of ctypes, not a ctypes\.c_short"):
        mf.wrap(ctypes.c_short(5), 2)


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        (("x", 2), TypeError, "pointer must be an address or of ctypes, not a builtins.str"),
        ((None, 2), ValueError, "pointer is None, which is NULL"),
        ((4096, (-1,)), ValueError, "shape"),
        ((4096, 2, "int23"), TypeError, "int23"),
        ((b"xy", 2), TypeError, "pointer must be an address"),
        ((-8, 2), (ValueError, OverflowError), "address|data|negative|unsigned"),
        ((2**70, 2), ValueError, "no address"),
    ],
)
def test_wrap_says_what_is_wrong(arguments, kind, said):
    before = mf.ledger()
    with pytest.raises(kind, match=said):
        mf.wrap(*arguments)
    assert mf.ledger() == before
