"""Making tensors: empty, zeros, ones, full, tensor, asarray, frombuffer."""

import array
import collections
import gc
import mmap
import os
import subprocess
import sys

import numpy as np
import pytest

import moonferry as mf

NUMERIC = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip
SHAPES = [(), (0,), (1,), (5,), (2, 3), (2, 0, 3), (1, 1, 1), (2, 3, 4, 5)]


@pytest.mark.parametrize("dtype", NUMERIC)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_new_tensor_is_described_as_numpy_describes_it(shape, dtype):
    t, a = mf.zeros(shape, dtype), np.zeros(shape, dtype)
    assert t.shape == a.shape and t.dtype == dtype and t.ndim == a.ndim
    assert t.size == a.size and t.nbytes == a.nbytes
    assert t.dtype.itemsize == a.dtype.itemsize
    assert t.is_contiguous and not t.readonly and t.flags == 0
    if a.size:
        assert t.strides == tuple(s // a.itemsize for s in a.strides)
    assert len(t.strides) == a.ndim
    assert t.tolist() == a.tolist()


@pytest.mark.parametrize("make", [mf.empty, mf.zeros, mf.ones])
def test_the_default_dtype_is_float32_on_the_cpu(make):
    t = make((2,))
    assert t.dtype == "float32" and t.device == "cpu" and t.device.type == 1 and t.device.id == 0


@pytest.mark.parametrize("dtype", NUMERIC)
def test_ones_and_full_fill(dtype):
    assert mf.ones((2, 2), dtype).tolist() == np.ones((2, 2), dtype).tolist()
    assert mf.full((3,), 1, dtype).tolist() == np.full((3,), 1, dtype).tolist()


@pytest.mark.parametrize("value", [True, 7, -1.5, 2 + 3j, 3j])
def test_full_infers_the_dtype_from_the_value(value):
    t = mf.full((2,), value)
    assert t.dtype == np.full((2,), value).dtype.name and t.tolist() == [value] * 2


@pytest.mark.parametrize(("name", "value", "dtype"), [("__index__", 7, "int64"), ("__float__", 2.5, "float64")])
def test_full_takes_a_number_that_has_no_dtype(name, value, dtype):
    t = mf.full((2,), type("Number", (), {name: lambda self: value})())
    assert (t.dtype, t.tolist()) == (dtype, [value] * 2)


def test_a_shape_may_be_one_integer():
    assert mf.empty(4).shape == (4,)
    assert mf.zeros(np.int64(3)).shape == (3,)


@pytest.mark.parametrize("make", [np.array, mf.tensor, np.int8])
def test_an_extent_may_be_an_array_without_axes(make):
    extent = make(3)
    for shape in (extent, (extent,), [extent]):
        assert mf.zeros(shape).shape == mf.zeros(3).reshape(shape).shape == (3,)
    assert mf.zeros((extent, extent)).shape == (3, 3)
    with pytest.raises(TypeError, match="an extent of shape must be an integer, not 'list'"):
        mf.zeros([[3]])


def test_memory_is_aligned_to_256_bytes():
    assert all(mf.empty((n,), "uint8").data_ptr % 256 == 0 for n in (1, 3, 1000, 5000))


@pytest.mark.parametrize(
    "shape, error",
    [
        ((-1,), ValueError),
        ((2**62, 2**62), (ValueError, OverflowError)),
        ((2**64,), (ValueError, OverflowError)),
        ((1,) * 65, ValueError),
        ("ab", TypeError),
        ((1.5,), TypeError),
        (None, TypeError),
        (("2",), TypeError),
    ],
)
def test_a_shape_that_cannot_be_is_refused(shape, error):
    for make in (mf.empty, mf.zeros, mf.ones):
        with pytest.raises(error):
            make(shape)
    with pytest.raises(error):
        mf.full(shape, 0)


def test_a_shape_with_too_many_axes_is_refused_before_it_is_read():
    for make in (lambda: mf.zeros((1,) * 65), lambda: mf.zeros(1).reshape(*(1,) * 65)):
        with pytest.raises(ValueError, match="shape has 65 axes, at most 64 are possible"):
            make()


def test_more_memory_than_there_is_raises_memory_error():
    with pytest.raises(MemoryError, match="no memory for"):
        mf.empty((2**58,), "uint8")
    with pytest.raises(OverflowError, match="leave the range of int64_t"):
        mf.empty((2**62,), "uint8")


@pytest.mark.parametrize("device", [None, "cpu", mf.zeros(1).device])
def test_a_device_is_given_by_name(device):
    assert mf.empty((1,), device=device).device == "cpu"


@pytest.mark.parametrize(
    "device, error", [("gpu", ValueError), ("cuda:0", ValueError), ("cpu:1", ValueError), (3.5, TypeError)]
)
def test_a_device_that_is_not_there_is_refused(device, error):
    with pytest.raises(error):
        mf.empty((1,), device=device)


@pytest.mark.parametrize(
    "values",
    [
        True, 3, -2.5, 1j, [], [1, 2, 3], [1.5, 2], [True, False], [1j, 2], [[1, 2], [3, 4]],
        [[[1], [2]], [[3], [4]]], [[], []], (1, 2), [(1, 2), [3, 4]], [True, 2], [1, 2.5, 3j],
        range(5), [range(2), range(2, 4)],
    ],
)  # fmt: skip
def test_tensor_infers_shape_and_dtype_as_numpy(values):
    t, a = mf.tensor(values), np.array(values)
    assert t.shape == a.shape and t.dtype == a.dtype.name and t.tolist() == a.tolist()


@pytest.mark.parametrize("dtype", NUMERIC)
def test_tensor_takes_a_dtype(dtype):
    t = mf.tensor([[0, 1], [2, 3]], dtype)
    assert t.dtype == dtype and t.tolist() == np.array([[0, 1], [2, 3]], dtype).tolist()


def test_tensor_takes_extreme_integers():
    assert mf.tensor([2**63 - 1, -(2**63)]).tolist() == [2**63 - 1, -(2**63)]
    assert mf.tensor([2**64 - 1], "uint64").tolist() == [2**64 - 1]
    with pytest.raises(OverflowError):
        mf.tensor([2**64])
    with pytest.raises(OverflowError):
        mf.tensor([-(2**63) - 1])


@pytest.mark.parametrize("values", [[[1, 2], [3]], [1, [2]], [[1], 2], [[[1]], [[1, 2]]]])
def test_ragged_values_are_refused(values):
    with pytest.raises(ValueError):
        mf.tensor(values)


@pytest.mark.parametrize("values", ["text", [b"x"], None, {}, {1: 2}, [None], ["1"], object(), [object()], {1, 2}])
def test_values_that_are_no_numbers_are_refused(values):
    with pytest.raises(TypeError, match="(an element must be|an array,) a number"):
        mf.tensor(values)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, RuntimeError])
@pytest.mark.parametrize(
    "place", [lambda odd: odd, lambda odd: [[1, 2], odd], lambda odd: [odd, [1]], lambda odd: [odd]]
)
def test_what_a_length_raises_is_what_is_raised(place, error):
    class Odd:
        def __len__(self):
            raise raised

        def __getitem__(self, i):
            return 1

    raised = error("of the length")
    with pytest.raises(error) as caught:
        mf.tensor(place(Odd()))
    assert caught.value is raised


def test_a_list_that_contains_itself_is_refused():
    loop = []
    loop.append(loop)
    with pytest.raises(ValueError, match="nested more than 64 deep"):
        mf.tensor(loop)
    loop.clear()


def test_a_list_that_gets_shorter_while_it_is_read(free_threaded):
    """It is refused; without the GIL each list is read at once, before any element of it."""
    values = [0] * 8

    class Shrink:
        def __float__(self):
            values.clear()
            return 1.0

        def __index__(self):
            values.clear()
            return 1

    values[3] = Shrink()
    if free_threaded:
        assert mf.tensor(values, "float64").tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
        return
    with pytest.raises(ValueError, match="not every element has length 8"):
        mf.tensor(values, "float64")


def test_tensor_copies_and_asarray_shares():
    a = np.arange(6.0).reshape(2, 3)
    copied, shared = mf.tensor(a), mf.asarray(a)
    assert copied.data_ptr != a.ctypes.data and shared.data_ptr == a.ctypes.data
    a[0, 0] = 9
    assert copied[0, 0] == 0 and shared[0, 0] == 9
    t = mf.zeros((2,))
    assert mf.tensor(t).data_ptr != t.data_ptr and mf.asarray(t).data_ptr == t.data_ptr


def test_tensor_and_asarray_take_strided_sources():
    a = np.arange(24).reshape(4, 6)[::-2, 1::2]
    assert mf.tensor(a).tolist() == a.tolist() and mf.asarray(a).tolist() == a.tolist()
    assert mf.tensor(a).is_contiguous


def test_asarray_casts_only_where_it_must():
    a = np.arange(3, dtype="int32")
    assert mf.asarray(a, "int32").data_ptr == a.ctypes.data
    f = mf.asarray(a, "float64")
    assert f.dtype == "float64" and f.tolist() == [0.0, 1.0, 2.0]


def test_asarray_copy_is_a_promise():
    a = np.arange(3.0)
    assert mf.asarray(a, copy=True).data_ptr != a.ctypes.data
    assert mf.asarray(a, copy=False).data_ptr == a.ctypes.data
    with pytest.raises(ValueError):
        mf.asarray(a, "int32", copy=False)
    with pytest.raises(ValueError):
        mf.asarray([1, 2], copy=False)


def test_asarray_takes_lists_and_buffers():
    assert mf.asarray([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    data = bytearray(b"abc")
    t = mf.asarray(memoryview(data))
    assert t.dtype == "uint8" and t.tolist() == [97, 98, 99]
    t[0] = 65
    assert data == b"Abc"
    del t


def test_frombuffer_shares_and_keeps_the_buffer_alive():
    data = bytearray(range(16))
    t = mf.frombuffer(data)
    assert t.dtype == "uint8" and t.tolist() == list(range(16)) and not t.readonly
    t[3] = 99
    assert data[3] == 99
    with pytest.raises(BufferError):
        data.append(1)
    del t
    data.append(1)


def test_frombuffer_of_constant_bytes_is_read_only():
    t = mf.frombuffer(b"\x01\x02")
    assert t.readonly and t.tolist() == [1, 2]
    with pytest.raises(ValueError):
        t[0] = 1


@pytest.mark.parametrize(
    "arguments", [{}, {"dtype": "int16"}, {"dtype": "<f4" and "float32", "count": 2}, {"count": 3, "offset": 5},
                  {"dtype": "int32", "offset": 4}, {"dtype": "uint8", "count": 0}]
)  # fmt: skip
def test_frombuffer_reads_as_numpy_reads(arguments):
    data = bytes(range(16))
    t = mf.frombuffer(data, **arguments)
    expected = np.frombuffer(data, **{"dtype": "uint8", **arguments})
    assert t.dtype == expected.dtype.name and t.tolist() == expected.tolist()


@pytest.mark.parametrize(
    "arguments, text",
    [({"dtype": "int32", "offset": 3}, "13 bytes are no whole number"), ({"count": 17}, "count 17 needs more"),
     ({"offset": 17}, "offset 17 is outside"), ({"offset": -1}, "offset -1 is outside"),
     ({"count": -2}, "-1 or more, not -2"), ({"dtype": "float64", "count": 3}, "count 3 needs more"),
     ({"count": 2**62, "dtype": "int64"}, f"count {2**62} needs more"),
     ({"offset": 2**63 - 1}, f"offset {2**63 - 1} is outside")],
)  # fmt: skip
def test_frombuffer_refuses_what_the_buffer_does_not_hold(arguments, text):
    with pytest.raises(ValueError, match=text):
        mf.frombuffer(bytes(16), **arguments)


def test_frombuffer_wants_a_contiguous_buffer_object():
    with pytest.raises(TypeError):
        mf.frombuffer(3)
    with pytest.raises(BufferError):
        mf.frombuffer(memoryview(bytes(8))[::2])
    assert mf.frombuffer(array.array("d", [1.0, 2.0]), "float64").tolist() == [1.0, 2.0]


def test_a_tensor_is_not_made_by_its_class_and_has_no_subclasses():
    with pytest.raises(TypeError):
        mf.Tensor()
    with pytest.raises(TypeError):
        type("Sub", (mf.Tensor,), {})


@pytest.mark.parametrize(
    "call", [lambda: mf.empty(), lambda: mf.full((1,)), lambda: mf.zeros((1,), bogus=1), lambda: mf.from_dlpack()]
)
def test_missing_and_unknown_arguments_are_refused(call):
    with pytest.raises(TypeError):
        call()


def test_attributes_cannot_be_set():
    t = mf.zeros((2,))
    for name in ("shape", "strides", "dtype", "device", "data_ptr", "new_name"):
        with pytest.raises(AttributeError, match=name):
            setattr(t, name, 1)
    assert (t.shape, t.strides, t.dtype, t.device) == ((2,), (1,), "float32", "cpu")


@pytest.mark.parametrize("make", [mf.empty, mf.zeros, mf.ones, lambda *a, **k: mf.full(a[0], 3, *a[1:], **k)])
def test_memory_in_whole_pages(make):
    made = [make((3, 7), "int16", pages=True) for _ in range(8)]
    assert {t.data_ptr % mmap.PAGESIZE for t in made} == {0}
    assert [t.nbytes for t in made] == [42] * 8
    assert {t.data_ptr % mmap.PAGESIZE for t in [make((3, 7), pages=False) for _ in range(8)]} != {0}


# What is freed under it is no object any more where PYTHONMALLOC=debug is set, which a process has from its start.
SHORT_LIVED = """
import moonferry as mf

class Leaving:
    "Takes itself out of its list when it is first looked at."
    def __init__(self, of): self.of = of
    @property
    def item(self):
        self.of[0] = 2.0
        raise AttributeError
    def __float__(self): return 2.0

class Anew:
    "Its rows are made for whoever asks."
    def __len__(self): return 2
    def __getitem__(self, i):
        if i > 1: raise IndexError
        return [i, i + 1]

values = []
values.append(Leaving(values))
assert mf.tensor(values).tolist() == [2.0]
assert mf.tensor(Anew()).tolist() == [[0, 1], [1, 2]]
for _ in range(10):
    assert mf.zeros(2).device == "cpu"
"""


def test_elements_that_nobody_else_holds():
    environment = {**os.environ, "PYTHONMALLOC": "debug"}
    done = subprocess.run([sys.executable, "-c", SHORT_LIVED], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


class Rows:
    """A sequence that is no list."""

    def __init__(self, *rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def nested(depth, leaf):
    return leaf if depth == 0 else [nested(depth - 1, leaf)]


@pytest.mark.parametrize(
    ("elements", "error"),
    [
        ([[1.5, 2.5], [3.5, 4.5]], None),
        (Rows([1.5, 2.5], Rows(3.5, 4.5)), None),
        (([], []), None),
        (nested(64, 1.5), None),
        (nested(65, 1.5), "sequences are nested more than 64 deep"),
        ([[1.5, 2.5], [3.5]], "ragged: at depth 1 not every element has length 2"),
        ([[1.5], 2.5], "ragged: at depth 1"),
        ([1.5, [2.5]], "ragged: a sequence where depth 1 has numbers"),
        ([[1.5, "two"]], "not from|'str'"),
        ([-1, 2**64 - 1], "both negative numbers and numbers above"),
    ],
)
def test_sequences_are_given_back(elements, error):
    objects, found = [], [elements]
    while found:
        objects.append(found.pop())
        items = objects[-1]
        found.extend(items.rows if isinstance(items, Rows) else items if isinstance(items, (list, tuple)) else ())
    del items
    before = [sys.getrefcount(each) for each in objects]
    for _ in range(3):
        if error is None:
            mf.tensor(elements).close()
            continue
        with pytest.raises((ValueError, TypeError, OverflowError), match=error):
            mf.tensor(elements)
    gc.collect()
    assert [sys.getrefcount(each) for each in objects] == before


def test_the_largest_integers_have_the_dtype_that_holds_them():
    assert mf.tensor([-1, 2**63 - 1]).dtype == "int64"
    assert mf.tensor([0, 2**63 - 1]).dtype == "int64"
    assert mf.tensor([0, 2**63]).dtype == "uint64"


class Broken:
    """A sequence whose length, or whose items, nobody can know."""

    def __init__(self, has_length):
        self.has_length = has_length

    def __len__(self):
        return 1 if self.has_length else 1 // 0

    def __getitem__(self, i):
        return 1 // 0


@pytest.mark.parametrize("elements", [Broken(True), Broken(False), [1.5, Broken(False)], [[1.5], Broken(True)]])
def test_an_error_of_a_sequence_is_what_is_raised(elements):
    with pytest.raises(ZeroDivisionError):
        mf.tensor(elements)


class Shortens:
    """A number that takes what stands behind it out of its list when it is read."""

    def __init__(self, elements):
        self.elements = elements

    def __float__(self):
        del self.elements[self.elements.index(self) + 1 :]
        return 1.5


def test_a_sequence_that_ends_where_the_next_element_would_be_is_ragged(free_threaded):
    elements = [0.5]
    elements += [Shortens(elements), 2.5]
    if free_threaded:  # where a list may change at any time, it is read as it was at first
        assert mf.tensor(elements, "float64").tolist() == [0.5, 1.5, 2.5]
        return
    with pytest.raises(ValueError, match="ragged: at depth 0 not every element has length 3"):
        mf.tensor(elements, "float64")


@pytest.mark.parametrize("value, dtype", [(3, "int64"), (2**63 - 1, "int64"), (2**63, "uint64")])
def test_elements_of_an_unsigned_dtype_are_as_other_numbers(value, dtype):
    assert mf.tensor([mf.full((), value, "uint64"), 0]).dtype == dtype
    assert mf.tensor([mf.full((), 3, "uint64"), -1]).tolist() == [3, -1]


class Scalar:
    def item(self):
        return 5


@pytest.mark.parametrize("elements, expected", [(collections.deque([1, 2]), [1, 2]), (Scalar(), 5), ([Scalar()], [5])])
def test_what_has_an_order_is_a_sequence_and_what_has_an_item_is_a_number(elements, expected):
    assert mf.tensor(elements).tolist() == expected


@pytest.mark.parametrize("elements", [[b"ab"], [bytearray(b"ab")], ["ab"]], ids=repr)
def test_texts_and_bytes_are_no_sequences(elements):
    with pytest.raises(TypeError, match=f"an element must be a number, not '{type(elements[0]).__name__}'$"):
        mf.tensor(elements)


def test_a_text_alone_is_no_list_of_numbers():
    with pytest.raises(TypeError, match="not from a 'str'$"):
        mf.tensor("12")


@pytest.mark.parametrize("value, dtype", [(1j, "bool"), (1, "float32x4")])
def test_what_a_dtype_does_not_take_is_an_error(value, dtype):
    with pytest.raises(TypeError, match="not complex|no numbers"):
        mf.tensor([value], dtype)
