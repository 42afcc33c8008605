"""Which Python numbers become elements of which dtype, by every way there is, and which are refused."""

import collections
import ctypes
import math
import sys

import numpy as np
import pytest

import moonferry as mf

FOREIGN = [  # a number, the dtype that cannot hold it, the limits that are named
    (300, "uint8", "0 to 255"),
    (-1, "uint8", "0 to 255"),
    (300.0, "uint8", "0 to 255"),
    (256.5, "uint8", "0 to 255"),
    (-1.0, "uint64", "0 to 18446744073709551615"),
    (2.0**64, "uint64", "0 to 18446744073709551615"),
    (2**63, "int64", "-9223372036854775808 to 9223372036854775807"),
    (2.0**63, "int64", "-9223372036854775808 to 9223372036854775807"),
    (2**40, "int32", "-2147483648 to 2147483647"),
    (-(2**40), "int32", "-2147483648 to 2147483647"),
    (math.inf, "int16", "-32768 to 32767"),
    (-math.inf, "int64", "-9223372036854775808 to 9223372036854775807"),
    (8, "int4", "-8 to 7"),
    (4, "uint2", "0 to 3"),
]
FITTING = [
    (255, "uint8", 255), (255.9, "uint8", 255), (-0.9, "uint8", 0), (-128, "int8", -128), (-128.9, "int8", -128),
    (2**64 - 1, "uint64", 2**64 - 1), (-(2**63), "int64", -(2**63)), (-(2.0**63), "int64", -(2**63)),
    (True, "int8", 1), (-8, "int4", -8), (7, "int4", 7), (2.0**63, "uint64", 2**63), (5, "bool", True),
]  # fmt: skip


def ways(value, dtype):
    """Each way by which one number becomes elements of a dtype; each gives a tensor of it."""

    def into(key, put):
        t = mf.zeros((2, 4), dtype)
        t[key] = put
        return t[1, 1]

    def fill():
        t = mf.zeros((2, 4), dtype)
        t.fill(value)
        return t[1, 1]

    yield lambda: mf.tensor([value], dtype)[0]
    yield lambda: mf.tensor(value, dtype)[()]
    yield lambda: mf.asarray([[value]], dtype)[0, 0]
    yield lambda: mf.full((1,), value, dtype)[0]
    yield lambda: into((1, 1), value)
    yield lambda: into(1, value)
    yield lambda: into(..., value)
    yield lambda: into(..., [value] * 4)
    yield lambda: into(..., [(value,), [value]])
    yield fill


@pytest.mark.parametrize(("value", "dtype", "limits"), FOREIGN)
def test_a_number_that_does_not_fit_is_an_overflow_error(value, dtype, limits):
    before = mf.ledger()
    for way in ways(value, dtype):
        with pytest.raises(OverflowError) as refused:
            way()
        said = str(refused.value)
        assert dtype in said and limits in said and "astype" in said
        assert repr(value) in said
    del refused
    assert mf.ledger() == before


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "complex128"])
@pytest.mark.parametrize("value", [2**70, -(2**100)])
def test_an_int_of_more_than_64_bits_is_a_float(value, dtype):
    """As NumPy has it; where no such float is, OverflowError."""
    for way in ways(value, dtype):
        assert way() == float(value)
        assert repr(way()) == repr(mf.full((1,), float(value), dtype)[0])
    for way in ways(10**400, dtype):
        with pytest.raises(OverflowError, match="float"):
            way()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64", "int4"])
def test_nan_is_no_integer(dtype):
    for way in ways(math.nan, dtype):
        with pytest.raises(ValueError, match=f"nan .*{dtype}"):
            way()


@pytest.mark.parametrize(("value", "dtype", "expected"), FITTING)
def test_a_number_that_fits_is_stored_without_its_fraction(value, dtype, expected):
    for way in ways(value, dtype):
        assert way() == expected


def test_a_refused_number_leaves_the_tensor_as_it_was():
    t = mf.tensor([1, 2, 3], "uint8")
    for key, value in ((0, 300), (..., -1), (slice(2), [7, 256])):
        with pytest.raises(OverflowError):
            t[key] = value
        assert t.tolist() == [1, 2, 3]


def test_a_range_is_checked_and_an_array_is_cast():
    t = mf.zeros((2,), "uint8")
    with pytest.raises(OverflowError):
        t[:] = range(255, 257)
    t[:] = np.array([256, 257])
    assert t.tolist() == [0, 1] == mf.tensor([256, 257]).astype("uint8").tolist()


@pytest.mark.parametrize(("kind", "dtype"), [(int, "int64"), (float, "float64"), (complex, "complex128")])
def test_a_number_of_pythons_is_asked_for_nothing(kind, dtype):
    number = type("Number", (kind,), {"dtype": "int8", "item": lambda self: 4, "__getitem__": lambda self, i: 5})(3)
    t = mf.full(2, number)
    assert (t.dtype, t.tolist()) == (dtype, [3, 3])
    t[:] = 0
    t[:] = number
    assert t.tolist() == [3, 3]


@pytest.mark.parametrize(("value", "error"), [(300, OverflowError), (math.nan, ValueError), (1j, TypeError)])
def test_a_refused_number_leaves_the_references_of_the_dtype(value, error):
    t = mf.zeros(1, "int8")
    dtype = t.dtype
    before = sys.getrefcount(dtype)
    for _ in range(9):
        with pytest.raises(error):
            t.fill(value)
    assert sys.getrefcount(dtype) == before


@pytest.mark.parametrize("dtype", ["float32x4", "int65"])
@pytest.mark.parametrize("value", [1, -5, 0.5])
def test_what_is_no_number_is_filled_with_nothing_but_zero(value, dtype):
    before, dtype = mf.ledger(), mf.DType(dtype)
    with pytest.raises(TypeError, match=f"dtype is {dtype}, whose elements are no numbers"):
        mf.full(3, value, dtype)
    assert mf.ledger() == before
    t = mf.full(3, 0, dtype)
    assert t.tobytes() == bytes(t.nbytes)


def test_a_single_byte_of_what_is_no_number_is_zero():
    for t in [mf.full(1, 255, "uint8") for _ in range(64)]:
        t.close()
    assert {t.tobytes() for t in [mf.zeros(1, "int4x2") for _ in range(64)]} == {bytes(1)}


def test_a_number_that_is_too_large_is_written_as_it_writes_itself():
    number = type("Number", (int,), {"__str__": lambda self: "so much"})(2**70)
    with pytest.raises(OverflowError, match="an element is so much, which does not fit in 64 bits"):
        mf.full(1, number)


def test_a_text_is_no_number_even_if_it_becomes_a_float():
    text = type("Text", (str,), {"__float__": lambda self: 3.0})("3")
    for take in (mf.zeros(1).fill, lambda value: mf.full(1, value)):
        with pytest.raises(TypeError, match="an element must be a number, not 'Text'$"):
            take(text)


LIST = "; list\\(\\) of it is taken where lists are"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "an element must be a number, not 'NoneType'"),
        ("ab", "an element must be a number, not 'str'"),
        ([1], "an element must be a number, not 'list'"),
        ({1}, f"an element must be a number, not 'set'{LIST}"),
        (iter([1]), f"an element must be a number, not 'list_iterator'{LIST}"),
        (type("Named", (), {"item": lambda self: "one"})(), "item\\(\\) of 'Named' gave a 'str', not a number"),
    ],
)
def test_what_is_no_number_is_named(value, said):
    with pytest.raises(TypeError, match=f"^{said}$"):
        mf.zeros(1).fill(value)


FLOAT = {"__float__": lambda self: 5.0}


@pytest.mark.parametrize(
    "number",
    [
        *(type("Number", (kind,), {"__getitem__": lambda self, i: 5})(3) for kind in (int, float, complex)),
        type("Float", (), FLOAT)(),
        type("Index", (), {"__index__": lambda self: 5})(),
    ],
)
def test_a_number_is_no_array_whose_copy_is_watched(number):
    with pytest.raises(TypeError, match="takes an array, not a number"):
        mf.zeros(2).copy(number, progress=print)


ELEMENTS = np.array([1.0, 2.0])
INTERFACE = {"__array_interface__": ELEMENTS.__array_interface__}


@pytest.mark.parametrize(
    ("elements", "expected"),
    [
        (type("Queue", (collections.deque,), FLOAT)([1, 2]), [1, 2]),
        (type("Mapping", (dict,), {**FLOAT, **INTERFACE})(), [1, 2]),
        (type("Buffer", (ctypes.c_float,), FLOAT)(3), [3, 3]),
    ],
)
def test_what_has_elements_is_no_number_even_if_it_becomes_a_float(elements, expected):
    t = mf.zeros(2)
    t[:] = elements
    assert t.tolist() == expected
