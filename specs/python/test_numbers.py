"""Which Python numbers become elements of which dtype, by every way there is, and which are refused."""

import math

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
