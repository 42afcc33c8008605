"""Views: the same memory under another description, with NumPy as the oracle."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import moonferry as mf

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


def numbered(shape, dtype="int64"):
    return np.arange(int(np.prod(shape, dtype=int)), dtype=dtype).reshape(shape)


def is_the_same_view(t, a):
    assert t.shape == a.shape and t.tolist() == a.tolist()
    if a.size:
        assert t.data_ptr == a.ctypes.data


@given(SHAPES, st.randoms(use_true_random=False))
def test_permute_is_transpose(shape, random):
    a = numbered(shape)
    t = mf.asarray(a)
    axes = list(range(a.ndim))
    random.shuffle(axes)
    signed = [axis - a.ndim if random.random() < 0.5 else axis for axis in axes]
    is_the_same_view(t.permute_dims(*signed), a.transpose(axes))
    is_the_same_view(t.permute_dims(signed), a.transpose(axes))
    is_the_same_view(t.T, a.T)
    is_the_same_view(t.permute_dims(), a.T)
    is_the_same_view(t.permute_dims(None), a.T)


@pytest.mark.parametrize(
    "axes, error, text",
    [((0,), ValueError, "axes has 1 entry"), ((0, 0), ValueError, "named before"), ((0, 2), IndexError, "axis is 2"),
     ((0, 1, 2), ValueError, "3 entries"), ((-3, 0), IndexError, "axis is -3"), (("a", 0), TypeError, "not 'str'"),
     ((0.5, 1), TypeError, "not 'float'"), ((2**40, 0), IndexError, f"axis is {2**40}")],
)  # fmt: skip
def test_permute_wants_each_axis_once(axes, error, text):
    with pytest.raises(error, match=text):
        mf.zeros((2, 3)).permute_dims(*axes)


def test_permute_takes_as_many_axes_as_a_tensor_has_at_most():
    shape = (2,) + (1,) * 63
    axes = tuple(range(63, -1, -1))
    for arguments in (axes, (list(axes),)):
        assert mf.zeros(shape).permute_dims(*arguments).shape == shape[::-1]
    with pytest.raises(ValueError, match="65 axes given, at most 64 are possible"):
        mf.zeros(shape).permute_dims(*axes, 0)


@given(
    st.sampled_from([(12,), (3, 4), (2, 6), (2, 3, 2), (1, 12, 1), (-1,), (-1, 4), (2, -1, 2), (3, 2, 2, 1)]),
    st.booleans(),
)
def test_reshape_is_numpys(shape, as_tuple):
    a = numbered((4, 3))
    t = mf.asarray(a)
    is_the_same_view(t.reshape(shape) if as_tuple else t.reshape(*shape), a.reshape(shape))


@pytest.mark.parametrize(
    "shape, error, text",
    [((5,), ValueError, "holds 5 elements; 12"), ((-1, 5), ValueError, "a multiple of 5 elements; 12"),
     ((-1, -1), ValueError, "shape.1. is -1"), ((-2, 6), ValueError, "shape.0. is -2"),
     ((2**62, 4), OverflowError, "leaves int64_t"), ((12, 0), ValueError, "holds 0 elements; 12")],
)  # fmt: skip
def test_reshape_keeps_the_count(shape, error, text):
    with pytest.raises(error, match=text):
        mf.zeros((3, 4)).reshape(shape)


def test_reshape_of_empty_and_scalar():
    assert mf.zeros((0, 3)).reshape(3, 0).shape == (3, 0)
    assert mf.tensor(5).reshape(1, 1).tolist() == [[5]]
    assert mf.tensor([5]).reshape(()).tolist() == 5
    with pytest.raises(ValueError):
        mf.zeros((0, 3)).reshape(0, -1)


def test_reshape_never_copies_and_says_what_helps():
    t = mf.zeros((3, 4)).T
    with pytest.raises(ValueError, match=r"copy\(\)"):
        t.reshape(12)
    assert t.copy().reshape(12).shape == (12,)
    assert mf.zeros((4, 6))[:, ::2].reshape(2, 2, 3).shape == (2, 2, 3)


@given(SHAPES, SHAPES)
def test_broadcast_is_numpys(shape, target):
    a = numbered(shape)
    t = mf.asarray(a)
    try:
        expected = np.broadcast_to(a, target)
    except ValueError:
        with pytest.raises(ValueError):
            t.broadcast_to(target)
        return
    got = t.broadcast_to(target)
    is_the_same_view(got, expected)
    repeats = any(n > 1 and s == 0 for n, s in zip(expected.shape, expected.strides)) and expected.size
    assert got.readonly or not repeats


def test_a_shape_is_an_integer_or_whatever_has_several():
    class Digits(int):
        def __len__(self):
            return 2

    t = mf.zeros((1, 1))
    for shape in ((2, 3), [2, 3], np.array([2, 3]), mf.tensor([2, 3]), range(2, 4)):
        assert t.broadcast_to(shape).shape == (2, 3)
    assert mf.zeros(1).broadcast_to(Digits(3)).shape == (3,)
    for wrong in ("23", b"\x02\x03", {2, 3}):
        said = f"shape must be an integer or a sequence of integers, not '{type(wrong).__name__}'"
        with pytest.raises(TypeError, match=f"^{said}$"):
            t.broadcast_to(wrong)


def test_what_is_repeated_is_read_only():
    t = mf.zeros((1, 3)).broadcast_to((2, 3))
    assert t.readonly and t.strides[0] == 0
    with pytest.raises(ValueError):
        t[0, 0] = 1


@given(SHAPES)
def test_squeeze_and_expand_are_numpys(shape):
    a = numbered(shape)
    t = mf.asarray(a)
    is_the_same_view(t.squeeze(), a.squeeze())
    is_the_same_view(t.squeeze(axis=None), a.squeeze())
    for axis in range(a.ndim):
        if a.shape[axis] == 1:
            is_the_same_view(t.squeeze(axis), a.squeeze(axis))
            is_the_same_view(t.squeeze((axis - a.ndim,)), a.squeeze(axis))
        else:
            with pytest.raises(ValueError):
                t.squeeze(axis)
    for axis in range(-a.ndim - 1, a.ndim + 1):
        is_the_same_view(t.expand_dims(axis), np.expand_dims(a, axis))


@pytest.mark.parametrize("none", [(), []])
def test_squeezing_no_axis_is_a_view_too(none):
    t = mf.ones((1, 2))
    with t.squeeze(none) as view:
        assert view.shape == (1, 2) and view.data_ptr == t.data_ptr
    assert view.closed and t.tolist() == [[1, 1]]


@pytest.mark.parametrize("axis", [2, -3, 1001, 2**31 - 2, -(2**31) + 1, 2**31, -(2**31) - 1, 2**40, -(2**63) + 1])
def test_axes_out_of_range_are_refused(axis):
    t = mf.zeros((1, 1))
    beyond = axis + (1 if axis > 0 else -1)
    few, more = ("-2 to 1", "-3 to 2") if -(2**31) < axis < 2**31 - 1 else ("at most 64 axes",) * 2
    with pytest.raises(IndexError, match=f"axis is {axis}; .*{few}"):
        t.squeeze(axis)
    with pytest.raises(IndexError, match=f"axis is {beyond}; .*{more}"):
        t.expand_dims(beyond)
    with pytest.raises(IndexError, match=f"axis is {axis}; .*{few}"):
        t.diagonal(0, axis, 0)


@given(hnp.array_shapes(min_dims=2, max_dims=4, min_side=0, max_side=4), st.integers(-5, 5), st.data())
def test_diagonal_is_numpys(shape, offset, data):
    a = numbered(shape)
    first = data.draw(st.integers(0, a.ndim - 1))
    second = data.draw(st.integers(0, a.ndim - 1).filter(lambda axis: axis != first))
    got = mf.asarray(a).diagonal(offset, first, second - a.ndim)
    expected = a.diagonal(offset, first, second)
    assert got.shape == expected.shape and got.tolist() == expected.tolist()


def test_diagonal_wants_two_axes():
    with pytest.raises(IndexError, match="axis is 1; -1 to 0 expected"):
        mf.zeros((3,)).diagonal()
    with pytest.raises(ValueError, match="named before|twice|both"):
        mf.zeros((3, 3)).diagonal(0, 1, 1)
    assert mf.tensor([[1, 2], [3, 4]]).diagonal().tolist() == [1, 4]


@pytest.mark.parametrize("source", ["uint8", "int16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("target", ["int8", "uint16", "int32", "uint64", "complex64", "bool", "float16"])
def test_reinterpret_is_numpys_view(source, target):
    a = numbered((3, 16), source)
    is_the_same_view(mf.asarray(a).reinterpret(target), a.view(target)) if target != "bool" else None
    assert mf.asarray(a).reinterpret(target).nbytes == a.nbytes


def test_reinterpret_wants_a_compact_last_axis():
    t = mf.zeros((4, 4), "int32")
    assert t[:, ::2].reinterpret("float32").shape == (4, 2)
    with pytest.raises(ValueError, match="need a compact last axis"):
        t.T.reinterpret("int8")
    with pytest.raises(ValueError, match="a last axis of 24 bits does not divide"):
        mf.zeros((3,), "uint8").reinterpret("int16")


def test_as_readonly_is_the_same_memory():
    t = mf.zeros((2,))
    r = t.as_readonly()
    t[0] = 5
    assert r.readonly and r.flags & 1 and not t.readonly and r.data_ptr == t.data_ptr and r[0] == 5
    for view in (r[0:1], r.T, r.reshape(2, 1), r.broadcast_to((3, 2)), r.expand_dims(0), r.reinterpret("int32")):
        assert view.readonly
    assert not r.copy().readonly


def test_views_share_one_storage():
    t = mf.zeros((4, 4))
    views = [
        t[1:],
        t.T,
        t.reshape(16),
        t.diagonal(),
        t.expand_dims(0),
        t.squeeze(),
        t.broadcast_to((2, 4, 4)),
        t.as_readonly(),
    ]
    assert mf.ledger().storages == 1 and mf.ledger().tensors >= 9 - 1
    t[...] = 3
    assert all(set(np.asarray(view).ravel().tolist()) == {3.0} for view in views)


def test_contiguity_is_numpys():
    a = numbered((4, 6))
    for index in (np.s_[:], np.s_[1:], np.s_[:, 1:], np.s_[::2], np.s_[1:2, ::2], np.s_[0:0, ::3], np.s_[:, 0:1]):
        assert mf.asarray(a)[index].is_contiguous == a[index].flags.c_contiguous
    assert not mf.asarray(a).T.is_contiguous and mf.asarray(a)[:, 0:1].T.is_contiguous is False


@pytest.mark.parametrize("index", [np.s_[:], np.s_[::-1], np.s_[:, ::2], np.s_[1], np.s_[:, :0], np.s_[0:1, 1:2]])
def test_reshape_copies_only_where_it_may(index):
    a = np.arange(12, dtype="int32").reshape(3, 4)[index]
    t = mf.from_dlpack(a)
    for array, tensor in ((a, t), (a.T, t.T)):
        flat = array.ravel().tolist()
        one, own = tensor.reshape(array.size, copy=None), tensor.reshape([array.size], copy=True)
        assert one.tolist() == own.tolist() == flat
        is_view = np.shares_memory(array, array.reshape(-1)) or array.size == 0
        assert (one.data_ptr == tensor.data_ptr or array.size == 0) == is_view
        assert own.data_ptr != tensor.data_ptr or array.size == 0
        if not is_view:
            for refused in ({}, {"copy": False}):
                with pytest.raises(ValueError, match="copy"):
                    tensor.reshape(-1, **refused)
    with pytest.raises(TypeError, match="order"):
        t.reshape(-1, order="C")
    with pytest.raises(TypeError, match="copy"):
        t.reshape(-1, copy=2)


def test_contiguous_copies_what_is_not_compact():
    t = mf.tensor([[1, 2, 3], [4, 5, 6]])
    assert t.contiguous() is t
    made = t.T.contiguous()
    assert (made.tolist(), made.strides) == ([[1, 4], [2, 5], [3, 6]], (2, 1))
    made[0, 0] = 9
    assert t[0, 0] == 1
