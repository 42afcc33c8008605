"""Values seen from Python: tolist, item, conversions to numbers, repr."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import moonferry as mf

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "float16", "float32", "float64", "complex64", "complex128"]  # fmt: skip


def arrays(dtypes=DTYPES, **shape):
    shape = {"min_dims": 0, "max_dims": 3, "min_side": 0, "max_side": 4, **shape}
    return st.sampled_from(dtypes).flatmap(lambda d: hnp.arrays(d, hnp.array_shapes(**shape)))


def same(a, b):
    return np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True)


@given(arrays())
def test_tolist_gives_pythons_own_numbers(a):
    got, expected = mf.asarray(a).tolist(), a.tolist()
    assert repr(got) == repr(expected)


@given(arrays(max_dims=2))
def test_tolist_reads_through_strides(a):
    t = mf.asarray(a)
    assert repr(t.T.tolist()) == repr(a.T.tolist())
    if a.ndim:
        assert repr(t[::-1].tolist()) == repr(a[::-1].tolist())


@pytest.mark.parametrize("dtype", DTYPES)
def test_item_and_conversions(dtype):
    t = mf.tensor([[1]], dtype)
    a = np.array([[1]], dtype)
    assert t.item() == a.item() and type(t.item()) is type(a.item())
    assert bool(t) is True and complex(t) == 1
    if "complex" not in dtype:
        assert float(t) == 1.0 and int(t) == 1


def test_item_wants_one_element():
    for shape in ((2,), (0,), (1, 2)):
        t = mf.zeros(shape)
        for convert in (mf.Tensor.item, float, int, bool, complex):
            error = ValueError if convert in (mf.Tensor.item, bool) else TypeError
            with pytest.raises(error, match=f"only a tensor of one element is a number; this one has {t.size}"):
                convert(t)


def test_only_integer_tensors_are_indices():
    assert [10, 20, 30][mf.tensor(1)] == 20
    assert [10, 20, 30][mf.tensor(2, "uint8")] == 30
    for t in (mf.tensor(1.0), mf.zeros((2,), "int64"), mf.tensor(1j)):
        with pytest.raises(TypeError):
            [10, 20, 30][t]


def test_complex_does_not_become_real():
    with pytest.raises(TypeError):
        float(mf.tensor(1j))
    with pytest.raises(TypeError):
        int(mf.tensor(1j))
    assert complex(mf.tensor(1 + 2j)) == 1 + 2j


def test_int_of_nan_and_infinity_is_pythons_error():
    with pytest.raises(ValueError):
        int(mf.tensor(math.nan))
    with pytest.raises(OverflowError):
        int(mf.tensor(math.inf))
    assert int(mf.tensor(-2.7)) == -2


def test_narrow_floats_read_exactly():
    t = mf.tensor([1.0, -0.5, 448.0, 0.001953125], "float8_e4m3fn")
    assert t.tolist() == [1.0, -0.5, 448.0, 0.001953125]
    assert mf.tensor([1.0, 3.0, -6.0], "float4_e2m1fn").tolist() == [1.0, 3.0, -6.0]
    assert mf.tensor([1.0, 2.0**-126], "bfloat16").tolist() == [1.0, 2.0**-126]


def test_narrow_integers_read_exactly():
    assert mf.tensor([-8, 7, -1, 3], "int4").tolist() == [-8, 7, -1, 3]
    assert mf.tensor([0, 3, 2, 1, 1], "uint2").tolist() == [0, 3, 2, 1, 1]


def test_values_without_arithmetic_are_refused_clearly():
    t = mf.zeros((2,), "float32x4")
    with pytest.raises(TypeError, match="dtype is float32x4, whose elements are no numbers"):
        t.tolist()
    for convert in (mf.Tensor.item, float, int, bool, complex):
        with pytest.raises(TypeError, match="dtype is float32x4, whose elements are no numbers"):
            convert(t[:1])
    assert "float32x4" in repr(t)


def numbers_of(text):
    """The part of a repr between its outermost brackets, without layout."""
    return "".join(text[text.index("[") : text.rindex("]") + 1].split())


@given(arrays(["bool", "int8", "int64", "uint64"], min_dims=1, min_side=1))
def test_repr_shows_integers_as_numpy_shows_them(a):
    assert numbers_of(repr(mf.asarray(a))) == numbers_of(np.array2string(a, separator=", "))


@pytest.mark.parametrize(
    "values",
    [
        [1.0, 2.5, -3.25], [0.1, 0.2, 0.3], [1e10, 1e-10], [1.0, 1e16], [math.nan, math.inf, -math.inf, 1.5],
        [0.0, -0.0], [[1.5, 2.0], [3.25, 4.0]], [100000.0, 0.5], [1 / 3, 2 / 3], [1e300, 1e-300], [123456789.0],
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_repr_shows_floats_as_numpy_shows_them(values, dtype):
    with np.errstate(over="ignore"):
        a = np.array(values, dtype)
    assert numbers_of(repr(mf.asarray(a))) == numbers_of(np.array2string(a, separator=", "))


@pytest.mark.parametrize("values", [[1 + 2j, -0.5j], [1e10 + 1j], [complex(math.nan, math.inf)]])
def test_repr_shows_complex_as_numpy_shows_them(values):
    a = np.array(values)
    assert numbers_of(repr(mf.asarray(a))) == numbers_of(np.array2string(a, separator=", "))


def test_repr_names_what_the_values_do_not_say():
    text = repr(mf.zeros((2, 3), "int16"))
    assert "int16" in text and "[0, 0, 0]" in text
    assert "(0, 3)" in repr(mf.zeros((0, 3))) and "float32" in repr(mf.zeros((0, 3)))
    assert "7" in repr(mf.tensor(7))


def test_repr_of_many_elements_is_short():
    text = repr(mf.zeros((1000, 1000)))
    assert "..." in text and len(text) < 2000
    t = mf.asarray(np.arange(10000))
    assert numbers_of(repr(t)) == numbers_of(np.array2string(np.arange(10000), separator=", "))


@pytest.mark.parametrize(
    ("dtype", "values"), [("int4", range(-8, 8)), ("uint1", range(2)), ("float6_e2m3fn", range(8))]
)
def test_repr_of_many_elements_that_share_bytes_is_short(dtype, values):
    """Those at the end begin within a byte, where no view can begin."""
    for shape in ((1501,), (501, 3), (3, 501), (15, 11, 9)):
        numbers = np.resize(np.array(values, "float32"), shape)
        shown = mf.asarray(numbers).astype("int8" if "int" in dtype else "float32")
        body, of_shown = (repr(t).partition(" dtype=")[0] for t in (shown.astype(mf.DType(dtype)), shown))
        assert body.split() == of_shown.split() and "..." in body


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float8_e5m2", "float6_e2m3fn", "int4", "handle64", "float32x2", "complex32"]
)
def test_repr_works_for_every_dtype(dtype):
    assert dtype in repr(mf.zeros((3,), dtype))
    assert str(mf.zeros((3,), dtype))


def test_equality_operator_does_not_pretend_to_compare_contents():
    t = mf.zeros((2,))
    same_one = t
    assert t == same_one and hash(t) == hash(same_one)
    with pytest.raises(TypeError, match="equal"):
        _ = t == mf.zeros((2,))


def test_tensors_have_no_weak_spot_for_attributes():
    assert not hasattr(mf.zeros((1,)), "__dict__")
