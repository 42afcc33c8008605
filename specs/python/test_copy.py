"""copy, astype, fill and equal: elements from one place to another."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import moonferry as mf

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
DTYPES = ["bool", *INTEGERS, *FLOATS, *COMPLEX]


def arrays(dtypes=DTYPES):
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    return st.sampled_from(dtypes).flatmap(lambda d: hnp.arrays(d, shapes))


def as_numpy(t):
    return np.array(t.tolist(), dtype=str(t.dtype)).reshape(t.shape)


def identical(a, b):
    return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


@given(arrays())
def test_copy_is_new_compact_and_writable(a):
    source = a.T
    t = mf.asarray(source).as_readonly().copy()
    assert t.is_contiguous and not t.readonly and t.flags == 0
    assert identical(as_numpy(t), source)
    assert not a.size or t.data_ptr != a.ctypes.data


@given(arrays())
def test_copy_into_takes_any_layout(a):
    target = mf.zeros(a.T.shape[::-1], a.dtype).T
    assert target.copy(mf.asarray(a).T) is target
    assert identical(as_numpy(target), a.T)


def test_copy_into_takes_array_likes_and_casts():
    t = mf.zeros((2, 2), "int32")
    t.copy(np.array([[1.9, 2], [3, 4]]))
    assert t.tolist() == [[1, 2], [3, 4]]


def test_copy_into_refuses_what_does_not_fit():
    t = mf.zeros((2, 2))
    with pytest.raises(ValueError, match=r"elements of shape \(3, 3\) do not broadcast to shape \(2, 2\)"):
        t.copy(np.zeros((3, 3)))
    for source in ("x", object()):
        with pytest.raises(TypeError, match=f"not from a '{type(source).__name__}'"):
            t.copy(source)
    with pytest.raises(ValueError, match="read-only"):
        t.as_readonly().copy(t)
    assert t.tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("step", [1, -1, 2])
@pytest.mark.parametrize("shift", [-3, -1, 1, 3])
def test_overlapping_copies_read_first(step, shift):
    a = np.arange(20)
    t = mf.tensor(a)
    source, target = (slice(4, 14), slice(4 + shift, 14 + shift))
    a[target] = a[source][::step][: len(a[target][::1])] if step != 2 else np.repeat(a[source][::2], 2)
    if step == 2:
        t[target] = np.repeat(np.arange(20)[source][::2], 2)
    else:
        t[target] = t[source][::step]
    assert t.tolist() == a.tolist()


def castable(a, dtype):
    """NumPy defines the cast, and it is the one the header documents."""
    dtype = np.dtype(dtype)
    if a.dtype.kind == "c":
        return dtype.kind == "c"
    if a.dtype.kind == "f" and dtype.kind in "iu":
        info = np.iinfo(dtype)
        whole = np.trunc(a.astype("float64"))
        return bool(np.isfinite(whole).all() and (whole >= info.min).all() and (whole < float(info.max)).all())
    return True


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_astype_is_numpys_where_numpy_defines_it(source, target):
    values = [
        0,
        1,
        2,
        3.7,
        5,
        100,
        127,
        -0.9,
        -1,
        -128,
        200,
        255,
        1000,
        32767,
        -32768,
        65535,
        2**31 - 1,
        -(2**31),
        2**32,
    ]
    fits = [v for v in values if source not in INTEGERS or np.iinfo(source).min <= int(v) <= np.iinfo(source).max]
    with np.errstate(all="ignore"):
        a = np.array(fits).astype(source)
    a = a[[castable(a[i : i + 1], target) for i in range(len(a))]]
    assert len(a) or source in COMPLEX
    if len(a):
        with np.errstate(all="ignore"):
            expected = a.astype(target)
        assert identical(as_numpy(mf.asarray(a).astype(target)), expected)


@given(arrays(), st.sampled_from(DTYPES))
def test_astype_of_any_values(a, dtype):
    if not castable(a, dtype):
        return
    with np.errstate(all="ignore"):
        expected = a.astype(dtype)
    got = mf.asarray(a).astype(dtype)
    assert got.dtype == dtype and got.shape == a.shape
    assert identical(as_numpy(got), expected)


@pytest.mark.parametrize("source", COMPLEX)
@pytest.mark.parametrize("target", ["bool", *INTEGERS, *FLOATS])
def test_complex_to_real_is_refused(source, target):
    with pytest.raises(TypeError):
        mf.zeros((2,), source).astype(target)


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", INTEGERS)
def test_float_to_integer_saturates_and_nan_is_zero(source, target):
    info = np.iinfo(target)
    values = mf.tensor([math.nan, math.inf, -math.inf, 60000.0, -60000.0, -0.9, 1.9], source)
    low, high = max(info.min, -60000), min(info.max, 60000)
    assert values.astype(target).tolist() == [0, info.max, info.min, high, low, 0, 1]


@pytest.mark.parametrize("target", INTEGERS)
def test_the_edges_of_integers_saturate(target):
    info = np.iinfo(target)
    t = mf.tensor([float(info.max) * 2 + 1, float(info.max) + 1, float(info.min) * 2 - 1], "float64")
    assert t.astype(target).tolist() == [info.max, info.max, info.min]


@given(arrays(["int64", "uint64"]), st.sampled_from(INTEGERS))
def test_integer_to_integer_keeps_the_low_bits(a, target):
    assert identical(as_numpy(mf.asarray(a).astype(target)), a.astype(target))


def test_integers_round_once_on_the_way_to_a_float():
    # Through float64 first, these would round twice and end elsewhere.
    values = [2**63 - 1, 2**53 + 1, 2**62 + 2**38 + 1, 16777217, -(2**62 + 2**38 + 1)]
    a = np.array(values)
    assert mf.asarray(a).astype("float32").tolist() == a.astype("float32").tolist()
    assert mf.asarray(a).astype("float64").tolist() == a.astype("float64").tolist()
    halves = np.array([65519, 65520, 2049, 2051, 4098 + 1])
    with np.errstate(over="ignore"):
        assert mf.asarray(halves).astype("float16").tolist() == halves.astype("float16").tolist()


def test_not_zero_is_true():
    t = mf.tensor([0.0, -0.0, 1e-300, math.nan, math.inf])
    assert t.astype("bool").tolist() == [False, False, True, True, True]
    assert mf.tensor([True, False]).astype("complex64").tolist() == [1 + 0j, 0j]


NARROW = [
    "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e3m4", "float8_e4m3",
    "float8_e4m3b11fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn",
]  # fmt: skip


def spread():
    rng = np.random.default_rng(7)
    values = np.concatenate([rng.normal(size=400) * 10.0 ** rng.integers(-6, 7, 400), np.arange(-40, 41) / 8])
    return values.astype("float32")


@pytest.mark.parametrize("name", NARROW)
def test_narrow_floats_round_as_ml_dtypes(ml_dtypes, name):
    if not hasattr(ml_dtypes, name):
        pytest.skip(f"this ml_dtypes has no {name}")
    a = spread()
    limit = float(ml_dtypes.finfo(getattr(ml_dtypes, name)).max)
    a = a[np.abs(a) <= limit]
    if name == "float8_e8m0fnu":
        a = a[a > 2.0**-100]
    expected = a.astype(getattr(ml_dtypes, name)).astype("float32")
    got = mf.asarray(a).astype(name).astype("float32")
    assert identical(as_numpy(got), expected)


@pytest.mark.parametrize(
    "name, big",
    [("float16", math.inf), ("bfloat16", math.inf), ("float8_e5m2", math.inf), ("float8_e4m3", math.inf),
     ("float8_e4m3fn", math.nan), ("float8_e4m3fnuz", math.nan), ("float8_e5m2fnuz", math.nan),
     ("float6_e2m3fn", 7.5), ("float6_e3m2fn", 28.0), ("float4_e2m1fn", 6.0)],
)  # fmt: skip
def test_too_large_becomes_what_the_header_says(name, big):
    got = mf.tensor([3.0e38 * 10, 1e300], "float64").astype(name).tolist()
    assert got == [big, big] or all(math.isnan(x) for x in got) and math.isnan(big)


def test_astype_of_the_same_dtype():
    t = mf.zeros((2,))
    assert t.astype("float32").data_ptr != t.data_ptr
    assert t.astype("float32", copy=False).data_ptr == t.data_ptr
    with pytest.raises(TypeError):
        t.astype("float32", False)


@pytest.mark.parametrize("dtype", ["handle64", "float32x4", mf.DType("float24")])
def test_casts_without_arithmetic_are_refused(dtype):
    with pytest.raises(TypeError):
        mf.zeros((2,), dtype).astype("float32")
    with pytest.raises(TypeError):
        mf.zeros((2,)).astype(dtype)
    assert mf.equal(mf.zeros((2,), dtype).copy(), mf.zeros((2,), dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [0, 1, True, 2.75])
def test_fill_is_numpys(dtype, value):
    t, a = mf.zeros((3, 4), dtype)[:, ::2], np.zeros((3, 2), dtype)
    t.fill(value)
    a.fill(value)
    assert identical(as_numpy(t), a)


def test_fill_refuses_what_is_no_number():
    t = mf.zeros((1,), "uint8")
    for bad in ("x", None, [1, 2]):
        with pytest.raises(TypeError, match=f"an element must be a number, not '{type(bad).__name__}'"):
            t.fill(bad)
    with pytest.raises(TypeError, match="a complex number, 1j, does not convert to uint8"):
        t.fill(1j)
    with pytest.raises(ValueError, match="read-only"):
        t.as_readonly().fill(1)
    assert t.tolist() == [0]


@given(arrays())
def test_equal_compares_shape_dtype_and_numbers(a):
    t = mf.asarray(a)
    assert mf.equal(t, mf.tensor(a.copy())) == bool(np.array_equal(a, a))
    assert mf.equal(t.T, mf.asarray(a.T.copy())) == bool(np.array_equal(a, a))


def test_equal_is_strict_about_description():
    one = mf.ones((2, 3))
    assert mf.equal(one, one.copy()) is True
    for other in (mf.ones((3, 2)), mf.ones((2, 3), "float64"), mf.ones((2, 3, 1)), mf.zeros((2, 3))):
        assert mf.equal(one, other) is False
    assert mf.equal(mf.tensor([0.0]), mf.tensor([-0.0]))
    assert not mf.equal(mf.tensor([math.nan]), mf.tensor([math.nan]))
    with pytest.raises(TypeError):
        mf.equal(one, 3.5j and "x")


def test_progress_is_told_and_may_end_a_copy():
    a = mf.asarray(np.full((40, 1024, 1024), 7, "uint8"))
    b = mf.zeros(a.shape, dtype="uint8")
    seen = []
    assert b.copy(a, progress=lambda *so_far: seen.append(so_far)) is b
    total = 40 * 1024 * 1024
    assert len(seen) > 1 and seen[-1] == (total, total) and all(n == total for _, n in seen)
    assert mf.equal(a, b)

    class Enough(Exception):
        pass

    def enough(done, total):
        raise Enough(done)

    b.fill(0)
    with pytest.raises(Enough) as raised:
        b.copy(a, progress=enough)
    assert raised.value.args == (seen[0][0],)
    assert (b[0, 0, 0], b[-1, -1, -1]) == (7, 0)
    assert mf.equal(a.T.copy(progress=lambda *_: None), a.T)
    assert b.copy([[7.0]], progress=lambda *_: None)[39, 0, 0] == 7


def test_progress_is_checked():
    t = mf.zeros(3)
    with pytest.raises(TypeError, match="progress must be a callable or None"):
        t.copy(t, progress=5)
    with pytest.raises(TypeError, match="not a number"):
        t.copy(5, progress=print)
    with pytest.raises(ValueError, match="reach into the same memory"):
        t.copy(t, progress=print)


def test_the_number_of_threads_is_said_and_set():
    before = mf.threads()
    try:
        assert mf.threads(3) == 3 == mf.threads() == mf.threads(None)
        for wrong in (-1, 65, 2**40, -(2**40)):
            with pytest.raises(ValueError, match="0 to 64 expected"):
                mf.threads(wrong)
        with pytest.raises(TypeError):
            mf.threads("two")
        with pytest.raises(TypeError, match="one number at most"):
            mf.threads(1, 2)
        assert mf.threads() == 3
        assert mf.threads(0) >= 1
    finally:
        mf.threads(before)


def test_elements_that_are_no_numbers_are_copied_as_they_are():
    t, bits = mf.zeros(2, "handle64"), mf.full(2, 7, "int64")
    assert t.copy(bits.reinterpret("handle64")) is t and t.reinterpret("int64").tolist() == [7, 7]


def test_astype_without_a_copy_is_the_tensor_where_the_dtype_is_the_same():
    t = mf.tensor([1, 2], "int16")
    assert t.astype("int16", copy=False) is t
    assert [t.astype(name, copy=False).dtype for name in ("uint16", "int8")] == ["uint16", "int8"]


def test_parts_of_bytes_are_copied_between_packed_and_padded_elements():
    padded = mf._core._from_raw(mf.zeros(2, "uint8"), (2,), "int4", True)
    assert padded.copy(mf.tensor([1, -2], "int4")).tolist() == [1, -2]
    assert mf.zeros(2, "int4").copy(padded).tolist() == [1, -2]
    made = [padded.copy(), padded.copy(progress=lambda *done: None), padded.to("cpu", copy=True)]
    assert [(t.flags, t.tolist()) for t in made] == [(padded.flags, [1, -2])] * 3
