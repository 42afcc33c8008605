"""`__array_interface__` of others: arrays that only describe themselves, right and wrong."""

import ctypes as c
import sys
import types

import numpy as np
import pytest

import moonferry as mf


class Described:
    def __init__(self, **interface):
        self.__array_interface__ = {"version": 3, **interface}


def described(a, **changes):
    """A NumPy array that says no more of itself than its interface."""
    made = Described(**{**a.__array_interface__, **changes})
    made.keep = a
    return made


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint16", "int32", "uint64", "float16", "float32", "float64", "complex64", "complex128"]
)
@pytest.mark.parametrize("index", [np.s_[:], np.s_[::-1], np.s_[:, ::2], np.s_[1], np.s_[:, :0]])
def test_a_described_array_is_shared(dtype, index):
    a = np.arange(12).reshape(3, 4).astype(dtype)[index]
    t = mf.asarray(described(a))
    assert t.shape == a.shape and t.dtype == dtype and t.tolist() == a.tolist()
    assert not a.size or t.data_ptr == a.ctypes.data


def test_the_object_is_kept_alive_and_let_go():
    a = np.arange(3.0)
    x = described(a)
    t, references = mf.asarray(x), sys.getrefcount(x)
    del t
    assert sys.getrefcount(x) == references - 1


def test_read_only_is_kept():
    a = np.arange(3.0)
    a.flags.writeable = False
    assert mf.asarray(described(a)).readonly
    t = mf.asarray(described(np.zeros(2)))
    t[0] = 1
    assert not t.readonly


def test_data_may_be_a_buffer_with_an_offset():
    data = bytearray(np.arange(6, dtype="int32").tobytes())
    t = mf.asarray(Described(shape=(2, 2), typestr="<i4", data=data, offset=8))
    assert t.tolist() == [[2, 3], [4, 5]]
    t[0, 0] = 9
    assert np.frombuffer(data, "int32")[2] == 9
    assert mf.asarray(Described(shape=(2,), typestr="<i4", data=bytes(8))).readonly


def test_a_type_string_may_be_bytes():
    """As NumPy takes it, and Mitsuba gives it."""
    data = bytearray(8)
    t = mf.asarray(Described(shape=(2,), typestr=b"<f4", data=data))
    t.fill(1)
    assert t.dtype == "float32" and data[:4] == b"\0\0\x80?"
    assert mf.asarray(Described(shape=(2,), typestr=b">f4", data=b"\x3f\x80\0\0" * 2)).tolist() == [1, 1]
    for wrong in (b"zz", b"\xff\xff", b""):
        with pytest.raises(mf.ExchangeError, match="typestr"):
            mf.asarray(Described(shape=(2,), typestr=wrong, data=data))


PAIR = {"shape": (2,), "data": bytes(8)}
WRONG = {  # by exception: what is described, and what is said
    mf.ExchangeError: [
        ({**PAIR, "shape": (3,)}, "bytes 0 to 12 are outside the buffer of 8"),
        ({**PAIR, "offset": 4}, "bytes 0 to 8 are outside the buffer of 4"),
        ({**PAIR, "strides": (-4,)}, "bytes -4 to 4 are outside the buffer of 8"),
        ({**PAIR, "strides": (8,)}, "bytes 0 to 12 are outside the buffer of 8"),
        ({**PAIR, "shape": (2**62, 2**62)}, "are outside the buffer of 8"),
        ({**PAIR, "typestr": "|V4"}, "'.V4' has no dtype"), ({**PAIR, "typestr": "zz"}, "'zz' has no dtype"),
        ({**PAIR, "typestr": ""}, "'' has no dtype"), ({**PAIR, "typestr": "<M8"}, "'<M8' has no dtype"),
        ({**PAIR, "mask": object()}, "a mask cannot be exchanged"), ({**PAIR, "strides": (6,)}, "no multiple of 4"),
    ],
    ValueError: [
        ({**PAIR, "offset": -4}, "offset -4 is outside the buffer of 8 bytes"),
        ({"shape": (2, 2), "data": bytes(16), "strides": (8,)}, "strides must have one entry for each axis"),
        ({"shape": (-1,), "data": (4096, False)}, "shape.0. is -1"), ({**PAIR, "data": (0, False)}, "data is NULL"),
        ({**PAIR, "data": (8,)}, "not enough values"),
    ],
    OverflowError: [
        ({**PAIR, "offset": 2**70}, f"offset is {2**70}, which does not fit"),
        ({**PAIR, "data": (-1, False)}, "leave the address space"), ({**PAIR, "data": (2**64, False)}, "too large"),
    ],
    TypeError: [
        ({**PAIR, "strides": (None,)}, "NoneType"), ({**PAIR, "shape": None}, "NoneType"),
        ({**PAIR, "data": ("x", False)}, "an integer is required"), ({**PAIR, "data": None}, "bytes-like"),
        ({"shape": "ab", "data": (4096, False)}, "an extent of shape must be an integer"),
        ({**PAIR, "typestr": 5}, "'int' object is not"),
    ],
    KeyError: [({"data": bytes(8)}, "shape")],
}  # fmt: skip


@pytest.mark.parametrize(
    "error, interface, said", [(error, *case) for error, cases in WRONG.items() for case in cases], ids=str
)
def test_a_wrong_description_is_refused(error, interface, said):
    with pytest.raises(error, match=said) as raised:
        mf.asarray(Described(**{"typestr": "<f4", **interface}))
    assert raised.type is error


def test_interfaces_that_are_no_dictionaries_are_no_arrays():
    class Odd:
        __array_interface__ = 3

    with pytest.raises(TypeError, match="not from a 'Odd'"):
        mf.asarray(Odd())


def test_ctypes_pointers_can_be_described():
    memory = (c.c_int16 * 4)(1, 2, 3, 4)
    x = Described(shape=(2, 2), typestr="<i2", data=(c.addressof(memory), False), strides=(2, 4))
    t = mf.asarray(x)
    assert t.tolist() == [[1, 3], [2, 4]] and t.strides == (1, 2)


def test_mlx_is_given_its_own_array(monkeypatch):
    """mlx.core.array asks for __mlx_array__; for a dtype that NumPy has not it went on as with NumPy's arrays."""
    core = types.ModuleType("mlx.core")
    core.from_dlpack = np.from_dlpack
    monkeypatch.setitem(sys.modules, "mlx", types.ModuleType("mlx"))
    monkeypatch.setitem(sys.modules, "mlx.core", core)
    t = mf.tensor([1, 2], "int16")
    made = t.__mlx_array__()
    assert type(made) is np.ndarray and made.ctypes.data == t.data_ptr
    monkeypatch.setitem(sys.modules, "mlx.core", None)
    with pytest.raises(ImportError, match="mlx"):
        t.__mlx_array__()
