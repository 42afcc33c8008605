"""What somebody types who comes from another library, and what must be said: the thing, the value and the remedy."""

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


@pytest.mark.parametrize(
    "make", [mf.tensor, lambda x: x[0, 0], list, lambda x: 2.0, lambda x: 2j, lambda x: x.tolist()]
)
def test_a_comparison_that_would_say_nothing_of_contents_is_refused(make):
    t = mf.tensor([[1, 2], [3, 4]])
    other = make(t)
    for compare in (lambda: t == other, lambda: t != other, lambda: other == t, lambda: other in t):
        with pytest.raises(TypeError, match=r"(moonferry.equal.*np.asarray|does not compare)"):
            compare()


def test_a_tensor_is_itself_and_no_other_kind_of_thing():
    t, u = mf.zeros(2), mf.zeros(2)
    assert t == t and not t != t and t != None and not t == "x"  # noqa: E711
    assert {t: 1, u: 2}[u] == 2 and hash(t) != hash(u) and t in [t]
    assert (t == np.zeros(2)).all()


def test_equal_takes_any_array():
    t = mf.tensor([1.0, 2.0])
    assert mf.equal(t, np.array([1.0, 2.0])) and mf.equal([1.0, 2.0], t) and not mf.equal(t, np.array([1.0, 3.0]))
    for arguments in ((), (t,), (t, t, t), ([1], [1])):
        with pytest.raises(TypeError, match=r"equal\(\) takes two tensors"):
            mf.equal(*arguments)
    with pytest.raises(TypeError):
        mf.equal(t, object())


def test_into_takes_a_class_with_from_dlpack_beside_it():
    t = mf.tensor([[1.0, 2.0], [3.0, 4.0]])
    made = mf.into(np.ndarray, t.T)
    assert type(made) is np.ndarray and made.ctypes.data == t.data_ptr and made.tolist() == [[1, 3], [2, 4]]
    with pytest.raises(TypeError, match="numpy.from_dlpack gave a numpy.ndarray, not a numpy.float64"):
        mf.into(np.float64, t)
    with pytest.raises(AttributeError, match="has no __dlpack_c_exchange_api__.*and builtins has no from_dlpack"):
        mf.into(dict, t)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "got 0 arguments"),
        ((np, mf.zeros), "cls must be an array class .*not <module 'numpy'"),
        (("numpy", mf.zeros), "cls must be an array class .*not 'numpy'"),
        ((np.ndarray, np.zeros(1)), "t must be a moonferry.Tensor, not 'numpy.ndarray'; moonferry.from_dlpack"),
    ],
)
def test_into_says_what_was_given(arguments, said):
    with pytest.raises(TypeError, match=said):
        mf.into(*[mf.zeros(1) if argument is mf.zeros else argument for argument in arguments])
