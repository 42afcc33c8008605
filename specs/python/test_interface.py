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
THERE = {"shape": (2,), "data": (4096, False)}
EXTENTS, WORDS = "a tuple of integers from 0 to 2**63 - 1 expected", "an address and a bool expected"
WRONG = [  # what is described, and what is said
    ({**PAIR, "shape": (3,)}, "bytes 0 to 12 are outside the buffer of 8"),
    ({**PAIR, "offset": 4}, "bytes 0 to 8 are outside the buffer of 4"),
    ({**PAIR, "strides": (-4,)}, "bytes -4 to 4 are outside the buffer of 8"),
    ({**PAIR, "strides": (8,)}, "bytes 0 to 12 are outside the buffer of 8"),
    ({**PAIR, "shape": (2**62, 2**62)}, "are outside the buffer of 8"),
    ({**PAIR, "mask": object()}, "a mask cannot be exchanged"),
    *(({**PAIR, "typestr": text}, f"typestr is {text!r}; the type string of a dtype, such as '<f4', expected")
      for text in ("|V4", "zz", "", "<M8", "<f²", "<f" + 5000 * "9", "<f-4", 5, None, b"", ["<f4"])),
    *(({**PAIR, "offset": x}, f"offset is {x!r}; an integer from 0 to 8, the bytes of the buffer, expected")
      for x in (-4, 9, 2**70, "1", 1.0, True)),
    *(({**PAIR, "shape": x}, f"shape is {x!r}; {EXTENTS}")
      for x in (None, 2, "ab", (-1,), (1.5,), (True,), (2**63,), (None,), {2})),
    *(({**PAIR, "strides": x}, f"strides is {x!r}; None or a tuple of 1 integers of 64 bits expected")
      for x in (4, (None,), (4, 4), (), ("4",), (2**63,))),
    ({**PAIR, "strides": (6,)}, "strides is (6,); multiples of 4, the bytes of an element, expected"),
    *(({**THERE, "data": x}, f"data is {x!r}; {WORDS}")
      for x in ((8,), (), ("x", False), (-1, False), (2**64, False), (1.5, False), (8, False, 1), [True, False])),
    *(({**THERE, "data": x}, f"data is {x!r}; an address, since there are elements, expected")
      for x in ((0, False), (None, True))),
    *(({**PAIR, "data": x}, f"data is {x!r}; an address and a bool, or an object with the buffer protocol, expected")
      for x in (None, 4096, "memory")),
    ({"data": bytes(8)}, f"shape is None; {EXTENTS}"), ({"shape": (2,)}, "data is None; an address"),
    ({**THERE, "shape": (2**62, 2**62)}, "shape"), ({**THERE, "shape": (1,) * 65}, "shape has 65 axes"),
    ({**THERE, "data": (2**64 - 4, False)}, "leave the address space"),
]  # fmt: skip


@pytest.mark.parametrize("interface, said", WRONG, ids=[f"{i}" for i in range(len(WRONG))])
def test_a_wrong_description_is_refused_by_the_field_that_is_wrong(interface, said):
    with pytest.raises(mf.ExchangeError) as raised:
        mf.asarray(Described(**{"typestr": "<f4", **interface}))
    text = str(raised.value)
    assert text.startswith("__array_interface__: ") and said in text, text
    assert text.endswith(" (from a test_interface.Described)") or "outside the buffer" in text, text


def test_integers_of_any_kind_are_taken():
    a = np.arange(6, dtype="int16")
    shape, step = (np.int64(3),), (np.int32(4),)
    t = mf.asarray(Described(shape=list(shape), typestr="<i2", strides=step, data=[np.uint64(a.ctypes.data), False]))
    assert t.tolist() == [0, 2, 4]


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
    t, references = mf.tensor([1, 2], "int16"), sys.getrefcount(core)
    made = t.__mlx_array__()
    assert type(made) is np.ndarray and made.ctypes.data == t.data_ptr
    assert sys.getrefcount(core) == references
    monkeypatch.setitem(sys.modules, "mlx.core", None)
    with pytest.raises(ImportError, match="mlx"):
        t.__mlx_array__()
