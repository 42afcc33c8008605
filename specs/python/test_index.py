"""Indexing, assignment and iteration, with NumPy as the oracle."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import moonferry as mf

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


def numbered(shape):
    return np.arange(int(np.prod(shape, dtype=int)), dtype="int64").reshape(shape)


def same_view(t, a, base):
    """The tensor is the view that NumPy makes: extents, values, memory and, where they matter, strides."""
    assert t.shape == a.shape and t.tolist() == a.tolist()
    if a.size:
        assert t.data_ptr - base[0] == a.ctypes.data - base[1]
        steps = [(s, b) for n, s, b in zip(a.shape, t.strides, a.strides) if n > 1]
        assert all(s * a.itemsize == b for s, b in steps)


@st.composite
def shapes_and_indices(draw):
    shape = draw(SHAPES)
    return shape, draw(hnp.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True, max_dims=6))


@given(shapes_and_indices())
def test_basic_indexing_is_numpys(case):
    shape, index = case
    a = numbered(shape)
    t = mf.asarray(a)
    expected = a[index]
    got = t[index]
    if isinstance(expected, np.ndarray):
        same_view(got, expected, (t.data_ptr, a.ctypes.data))
    else:
        assert got == expected and type(got) is int


@given(shapes_and_indices(), shapes_and_indices())
def test_views_of_views_are_numpys(first, second):
    a = numbered((3, 4, 2, 3))
    t = mf.asarray(a)
    for _, index in (first, second):
        try:
            expected = a[index]
        except IndexError:
            with pytest.raises(IndexError):
                t[index]
            return
        got = t[index]
        if not isinstance(expected, np.ndarray):
            assert got == expected
            return
        same_view(got, expected, (mf.asarray(a).data_ptr, a.ctypes.data))
        t, a = got, expected


@given(
    st.integers(0, 6),
    st.one_of(st.none(), st.integers(-9, 9), st.sampled_from([-(2**63), 2**63 - 1, 2**70, -(2**70)])),
    st.one_of(st.none(), st.integers(-9, 9), st.sampled_from([-(2**63), 2**63 - 1, 2**70, -(2**70)])),
    st.one_of(st.none(), st.integers(-4, 4).filter(bool), st.sampled_from([2**62, -(2**63) + 1, 2**70, -(2**70)])),
)
def test_slices_are_pythons(n, start, stop, step):
    assert mf.asarray(numbered((n,)))[start:stop:step].tolist() == list(range(n))[start:stop:step]


@pytest.mark.parametrize("index", [2, -3, (0, 3), (0, -4), (0, 0, 0), (..., 0, 0, 0), 2**63, -(2**64)])
def test_coordinates_out_of_range_raise_index_error(index):
    t = mf.zeros((2, 3))
    with pytest.raises(IndexError):
        t[index]
    with pytest.raises(IndexError):
        t[index] = 1


@pytest.mark.parametrize(
    "index", [1.0, "0", (0, 1.5), [0, 1], b"x", {}, object(), (..., ...), True, np.array([True, False])]
)
def test_other_indices_are_refused(index):
    t = mf.zeros((2, 3))
    error, text = IndexError, "an index must be an integer, a slice, ... or None"
    if isinstance(index, tuple) and index[1] is ...:
        error, text = ValueError, "second ellipsis"
    with pytest.raises(error, match=text):
        t[index]
    with pytest.raises(error, match=text):
        t[index] = 1
    assert t.tolist() == [[0] * 3] * 2


@pytest.mark.parametrize("index", [1.0, "0", b"x", object(), True])
def test_what_is_no_array_is_refused_without_a_word_of_arrays(index):
    with pytest.raises(IndexError, match=f"None, not '{type(index).__name__}'$"):
        mf.zeros((2, 3))[index]


@pytest.mark.parametrize(
    "index, error, text",
    [(slice(None, None, 0), ValueError, "step is 0"), (slice("a", None), TypeError, "integers or None, not 'str'"),
     (slice(None, 1.5), TypeError, "not 'float'"), ((0, slice(0, 1, 0)), ValueError, "step is 0")],
)  # fmt: skip
def test_bad_slices_are_refused(index, error, text):
    with pytest.raises(error, match=text):
        mf.zeros((2, 3))[index]


def test_anything_with_index_is_a_coordinate():
    class Two:
        def __index__(self):
            return 2

    class Digits(int):
        def __len__(self):
            return 1

    t = mf.asarray(numbered((4,)))
    assert t[Two()] == 2 and t[np.int8(3)] == 3 and t[Two() :].tolist() == [2, 3] and t[Digits(2)] == 2


@pytest.mark.parametrize("error", [KeyError, TypeError])
def test_an_index_that_raises_passes_its_exception_on(error):
    class Bad:
        def __index__(self):
            raise error("mine")

    t = mf.zeros((2, 2))
    for index in (Bad(), slice(Bad(), None), (0, Bad())):
        with pytest.raises(error, match="mine"):
            t[index]


def test_a_sequence_whose_index_raises_passes_its_exception_on():
    class Bad:
        def __index__(self):
            raise KeyError("mine")

        def __getitem__(self, i):
            raise IndexError(i)

    with pytest.raises(KeyError, match="mine"):
        mf.zeros(2)[Bad()]


def test_ellipsis_gives_a_view_and_a_full_index_a_number():
    t = mf.full((2, 2), 1.5, "float64")
    view = t[...]
    view[0, 0] = 4
    assert isinstance(view, mf.Tensor) and t[0, 0] == 4.0 and type(t[0, 0]) is float
    scalar = mf.tensor(3)
    assert isinstance(scalar[...], mf.Tensor) and scalar[()] == 3
    assert t[None].shape == (1, 2, 2) and t[:, None, 0].shape == (2, 1)


def test_an_element_that_is_no_number_is_a_view():
    t = mf.zeros(3, "float32x4")
    element = t[1]
    assert element.shape == () and element.dtype == "float32x4" and element.data_ptr == t.data_ptr + 16


@given(shapes_and_indices(), st.integers(-100, 100))
def test_setting_a_number_fills_as_numpy(case, value):
    shape, index = case
    a = numbered(shape)
    t = mf.tensor(a)
    a[index] = value
    t[index] = value
    assert t.tolist() == a.tolist()


@st.composite
def assignments(draw):
    shape, index = draw(shapes_and_indices())
    target = numbered(shape)[index].shape
    keep = draw(st.integers(0, len(target)))
    source = tuple(n if draw(st.booleans()) else 1 for n in target[keep:])
    return shape, index, source


@given(assignments(), st.sampled_from(["int64", "float32", "uint8", "bool"]))
def test_setting_an_array_broadcasts_and_casts_as_numpy(case, dtype):
    shape, index, source = case
    a = numbered(shape)
    t = mf.tensor(a)
    values = (numbered(source) % 7).astype(dtype)
    a[index] = values
    t[index] = mf.asarray(values)
    assert t.tolist() == a.tolist()


def test_setting_takes_anything_array_like():
    t = mf.zeros((2, 3), "int32")
    t[0] = [1, 2, 3]
    t[1] = np.array([4, 5, 6], "float64")
    assert t.tolist() == [[1, 2, 3], [4, 5, 6]]
    t[:, 0] = (7, 8)
    t[0, 1] = np.int64(9)
    t[0, 2] = mf.tensor(3.9)
    assert t.tolist() == [[7, 9, 3], [8, 5, 6]]


def test_axes_of_extent_one_that_lead_fall_away():
    t = mf.zeros((2, 3), "int32")
    t[0] = np.array([[[1, 2, 3]]])
    t[1, :2] = mf.tensor([[4]])
    t[1, 2] = mf.tensor([[5]])
    assert t.tolist() == [[1, 2, 3], [4, 4, 5]]
    with pytest.raises(ValueError, match=r"elements of shape \(2, 3\) do not broadcast to shape \(3,\)"):
        t[0] = mf.zeros((2, 3))
    assert t.tolist() == [[1, 2, 3], [4, 4, 5]]


def test_what_elements_came_from_gives_its_memory_back_when_it_is_closed():
    t, source = mf.zeros(2), mf.ones(2)
    t[...] = source
    source.close()
    assert mf.ledger().storages == 1 and t.tolist() == [1, 1]


def test_setting_from_itself_reads_first():
    a = numbered((6,))
    t = mf.tensor(a)
    t[1:] = t[:-1]
    assert t.tolist() == [0, 0, 1, 2, 3, 4]
    t = mf.tensor(a)
    t[...] = t[::-1]
    assert t.tolist() == [5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize(
    "value", [[1, 2], np.zeros((3, 2)), [[1, 2, 3], [4, 5, 6], [7, 8, 9]], "text", None, object(), 1j]
)
def test_values_that_do_not_fit_are_refused_and_nothing_is_written(value):
    t = mf.ones((2, 3))
    shaped = isinstance(value, (list, np.ndarray))
    with pytest.raises(ValueError if shaped else TypeError, match="broadcast" if shaped else "numbers|complex"):
        t[...] = value
    assert t.tolist() == [[1.0] * 3] * 2


def test_elements_cannot_be_deleted():
    with pytest.raises(TypeError, match="cannot be deleted"):
        del mf.zeros((2,))[0]


def test_a_read_only_tensor_cannot_be_set():
    t = mf.zeros((2,)).as_readonly()
    for index in (0, slice(None), ...):
        with pytest.raises(ValueError):
            t[index] = 1
    assert t.readonly and t[0:1].readonly and t.tolist() == [0, 0]


def test_len_and_iteration():
    a = numbered((3, 2))
    t = mf.asarray(a)
    assert len(t) == 3 and [row.tolist() for row in t] == a.tolist() and list(t[0]) == [0, 1]
    assert list(mf.zeros((0, 3))) == [] and len(mf.zeros((0, 3))) == 0
    for bad in (len, iter):
        with pytest.raises(TypeError):
            bad(mf.tensor(1))


def test_an_iterator_keeps_its_tensor_alive():
    rows = iter(mf.tensor([[1, 2], [3, 4]]))
    assert [row.tolist() for row in rows] == [[1, 2], [3, 4]]
    assert next(rows, None) is None


def test_a_view_keeps_the_memory_alive():
    view = mf.tensor([[1, 2], [3, 4]])[1]
    assert view.tolist() == [3, 4] and mf.ledger().storages == 1


def test_sub_byte_tensors_index_where_whole_bytes_begin():
    t = mf.tensor([1, 2, 3, 4, 5, 6], "uint4")
    assert t[2:].tolist() == [3, 4, 5, 6] and t[3] == 4
    with pytest.raises(ValueError):
        t[1:]


def test_an_index_with_too_many_items_is_refused_before_it_is_read():
    with pytest.raises(IndexError, match="an index has more than 129 items"):
        mf.zeros(2)[(None,) * 130]
