"""asarray and its promises: copy=False never copies, other byte orders are swapped where a copy is allowed."""

import contextlib
import ctypes
import gc
import sys
import types
import weakref

import numpy as np
import pytest

import moonferry as mf

SWAPPED = {"<": ">", ">": "<"}["<" if sys.byteorder == "little" else ">"]


class Told:
    """An object with nothing but __array__, which writes down what it is asked."""

    def __init__(self, array, obeys=True):
        self.array, self.asked, self.obeys = array, [], obeys

    def __array__(self, dtype=None, copy=None):
        self.asked.append(copy)
        if copy is False and not self.obeys:
            raise ValueError("this is computed anew")
        return self.array.copy() if copy else self.array


class Old:
    """As objects before NumPy 2: its __array__ cannot be told whether to copy."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None):
        return self.array


def test_what_array_is_asked_for_is_what_asarray_was():
    x = Told(np.arange(3.0))
    shared, copied, never = mf.asarray(x), mf.asarray(x, copy=True), mf.asarray(x, copy=False)
    assert x.asked == [None, True, False]
    assert shared.data_ptr == never.data_ptr == x.array.ctypes.data != copied.data_ptr
    assert copied.tolist() == [0, 1, 2]


class Lazy(Old):
    """As PyTorch's tensors: __dlpack__ gives some of them and says why it does not give the others."""

    def __init__(self, array, why):
        super().__init__(array)
        self.why = why

    def __dlpack__(self, **keywords):
        raise self.why()  # a new one each time: it keeps the frames that it passed

    def __dlpack_device__(self):
        return 1, 0


@pytest.mark.parametrize(
    ("why", "said"),
    [
        (lambda: BufferError("it needs a gradient, use detach()"), "it needs a gradient, use detach()"),
        (lambda: mf.ExchangeError("from_dlpack: its resolve_neg() can"), "its resolve_neg() can"),
        (lambda: mf.ExchangeError("from_dlpack: copy=False, but it gave a copy"), "it gave a copy"),
        (BufferError, f"__array__ of a {__name__}.Lazy cannot be told not to copy"),
    ],
)
def test_why_dlpack_refused_is_said_where_array_cannot_be_told_not_to_copy(why, said):
    x = Lazy(np.arange(3.0), why)
    with pytest.raises(mf.ExchangeError) as refused:
        mf.asarray(x, copy=False)
    assert str(refused.value) == f"asarray: copy=False, but {said}"
    del refused
    assert mf.asarray(x).tolist() == mf.asarray(x, copy=True).tolist() == [0, 1, 2]


class Refuses(Lazy):
    """As PyTorch's quantised tensors: __array__ gives nothing either."""

    def __array__(self, *args):
        raise self.array


@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("kind", [TypeError, ValueError, RuntimeError, BufferError])
def test_the_reasons_of_dlpack_and_of_array_are_both_said(kind, copy):
    x = Refuses(kind("has no numbers"), lambda: mf.ExchangeError("from_dlpack: it is quantised"))
    of = f"(from a {__name__}.Refuses)"
    with pytest.raises(mf.ExchangeError) as refused:
        mf.asarray(x, copy=copy)
    assert str(refused.value) == f"asarray: it is quantised; __array__: has no numbers {of}"
    assert refused.value.__cause__ is x.array
    with pytest.raises(mf.ExchangeError) as refused:
        mf.asarray(Refuses(kind(), BufferError), copy=copy)
    assert str(refused.value) == f"asarray: BufferError(); __array__: {kind.__name__}() {of}"


@pytest.mark.parametrize("kind", [MemoryError, KeyboardInterrupt, AttributeError])
def test_what_is_no_refusal_of_array_is_raised(kind):
    error = kind("mine")
    with pytest.raises(kind, match="mine") as raised:
        mf.asarray(Refuses(error, BufferError))
    assert raised.value is error


def test_the_error_of_array_is_the_only_one_without_dlpack():
    class Alone:
        def __array__(self, *args):
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="^mine$"):
        mf.asarray(Alone())


def test_an_array_that_would_copy_is_refused():
    before = mf.ledger()
    with pytest.raises(mf.ExchangeError, match="copy=False, but this is computed anew"):
        mf.asarray(Told(np.arange(3.0), obeys=False), copy=False)
    with pytest.raises(mf.ExchangeError, match=r"Old.* cannot be told not to copy"):
        mf.asarray(Old(np.arange(3.0)), copy=False)
    assert mf.ledger() == before
    old = Old(np.arange(3.0))
    made = mf.asarray(old, copy=True)
    assert made.tolist() == [0, 1, 2] and not made.readonly and made.data_ptr != old.array.ctypes.data


def test_narrow_elements_with_strides_are_not_copied_behind_ones_back():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a = np.arange(16).astype(ml_dtypes.uint4).reshape(4, 4)
    assert mf.asarray(a, copy=False).data_ptr == a.ctypes.data
    with pytest.raises(mf.ExchangeError, match="copy=False, but elements of uint4"):
        mf.asarray(a[:, ::2], copy=False)
    assert mf.asarray(a[:, ::2]).tolist() == [[0, 2], [4, 6], [8, 10], [12, 14]]


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"])
def test_narrow_elements_go_out_as_they_came_in(name):
    """Where each lies in a byte of its own, which is how ml_dtypes keeps them; without a copy, in every layout."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a = (np.arange(12) % 2).astype(getattr(ml_dtypes, name)).reshape(3, 4)
    t = mf.asarray(a)
    for view, same in ((t, a), (t.T, a.T), (t[::-1, ::2], a[::-1, ::2]), (t[1, 2:3], a[1, 2:3])):
        out = np.asarray(view)
        assert out.dtype == a.dtype and out.ctypes.data == view.data_ptr == same.ctypes.data
        assert (out == same).all() and out.strides == same.strides
    t.numpy()[0, 0] = 1
    assert a[0, 0] == 1
    assert not np.asarray(t.as_readonly()).flags.writeable
    assert (np.asarray(t, "float32") == a.astype("float32")).all()


def test_packed_elements_are_refused_with_a_remedy():
    with pytest.raises(TypeError, match=r'NumPy has no dtype for int4; astype\("int8"\)'):
        np.asarray(mf.zeros(4, "int4"))
    assert np.asarray(mf.zeros(4, "int4").astype("int8")).tolist() == [0] * 4


@pytest.mark.parametrize("dtype", ["i2", "u4", "i8", "f2", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("index", [np.s_[:], np.s_[::-1], np.s_[:, ::2], np.s_[1], np.s_[:, :0], np.s_[0, 0]])
def test_the_other_byte_order_is_swapped_in_a_copy(dtype, index):
    native = (np.arange(12).reshape(3, 4) - 5).astype(dtype)
    if native.dtype.kind == "c":
        native.imag = np.arange(12).reshape(3, 4) * 2
    a, expected = native.astype(SWAPPED + dtype)[index], native[index]
    a = np.asarray(a, SWAPPED + dtype)
    for made in (mf.asarray(a), mf.asarray(a, copy=True), mf.tensor(a), mf.asarray(memoryview(a))):
        assert made.dtype == expected.dtype.name and made.shape == expected.shape
        assert made.tolist() == expected.tolist() and not made.readonly
    assert mf.asarray(a, "float64" if a.dtype.kind != "c" else "complex128").tolist() == expected.tolist()
    t = mf.zeros(expected.shape, expected.dtype)
    t[...] = a
    assert t.tolist() == expected.tolist()
    with pytest.raises(mf.ExchangeError, match="native byte order"):
        mf.asarray(a, copy=False)


def test_a_described_array_of_the_other_byte_order_is_swapped_in_a_copy():
    native = np.arange(6, dtype="u2").reshape(2, 3)
    a = native.astype(SWAPPED + "u2").T

    class Described:
        __array_interface__ = a.__array_interface__

    assert mf.asarray(Described()).tolist() == native.T.tolist()
    with pytest.raises(mf.ExchangeError, match="copy=False, but the bytes of '.u2' are in the other order"):
        mf.asarray(Described(), copy=False)


def test_ctypes_of_the_other_byte_order():
    swapped = ctypes.c_int32.__ctype_be__ if sys.byteorder == "little" else ctypes.c_int32.__ctype_le__
    assert mf.asarray((swapped * 3)(1, -2, 3)).tolist() == [1, -2, 3]


def test_a_mask_without_masked_elements_is_none():
    assert mf.asarray(np.ma.masked_array([1.0, 2.0], mask=[0, 0])).tolist() == [1, 2]
    assert mf.from_dlpack(np.ma.masked_array([1.0, 2.0], mask=[0, 0])).tolist() == [1, 2]
    unmasked = np.ma.masked_array([1.0, 2.0])
    assert mf.from_dlpack(unmasked, copy=False).data_ptr == unmasked.ctypes.data


class Refusing:
    """An array that no __dlpack__ gives."""

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **asked):
        raise BufferError("not so")

    def __array__(self, dtype=None, copy=None):
        return np.arange(3.0)


@pytest.mark.parametrize("make, taken", [
    (Refusing, [None, False]), (lambda: np.array(["a"]), []), (lambda: np.zeros(2, ">f4"), [None])
])  # fmt: skip
@pytest.mark.parametrize("copy", [None, False])
def test_what_was_refused_is_not_kept(make, taken, copy):
    """An error's traceback has the frames that had the array; that of a refusal after which another way led on, too."""
    before, x = mf.ledger(), make()
    gone = weakref.ref(x)
    gc.disable()
    try:
        with contextlib.nullcontext() if copy in taken else pytest.raises(mf.ExchangeError):
            mf.asarray(x, copy=copy)
        del x
        assert gone() is None and mf.ledger() == before
    finally:
        gc.enable()


class Elsewhere:
    """Memory that its producer gives only where it is asked to put it on the cpu."""

    def __init__(self):
        self.array, self.asked = np.arange(3.0), []

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        self.asked.append(dl_device)
        if dl_device is None:
            raise BufferError("not on the cpu")
        return self.array.__dlpack__()


def test_the_device_is_what_a_producer_is_asked_for():
    x = Elsewhere()
    assert mf.asarray(x, device="cpu").tolist() == [0, 1, 2]
    assert x.asked == [None, (1, 0)]
    with pytest.raises(BufferError, match="not on the cpu"):
        mf.asarray(x)


def test_dtypes_are_described_as_numpy_describes_its():
    for name in ("bool", "int8", "uint16", "int64", "float16", "float32", "float64", "complex64", "complex128"):
        dtype, numpys = mf.DType(name), np.dtype(name)
        said = (dtype.name, dtype.kind, dtype.itemsize, dtype.byteorder)
        assert said == (numpys.name, numpys.kind, numpys.itemsize, numpys.byteorder) and type(dtype.name) is str
    assert (mf.bfloat16.kind, mf.bfloat16.byteorder, mf.float8_e5m2.kind, mf.int4.kind) == ("f", "=", "f", "i")


def test_the_size_in_memory_counts_the_elements():
    t, empty = mf.zeros((1000, 250), "float64"), sys.getsizeof(mf.zeros((0,)))
    assert 0 < empty < 500
    for x in (t, t[::2], t.T, mf.from_dlpack(np.zeros((10, 10))), mf.zeros((), "int8")):
        assert sys.getsizeof(x) == empty + x.nbytes
    wide = mf.zeros((1, 250)).broadcast_to((10**9, 250))
    assert sys.getsizeof(wide) == sys.getsizeof(wide[:2]) == empty + 1000
    t.close()
    assert sys.getsizeof(t) == empty


class Lender:
    """An array of another library's, which writes down whether it is asked for a copy."""

    def __init__(self, array):
        self.array, self.asked = array, []

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, *, copy=None, **more):
        self.asked.append(copy)
        return self.array.__dlpack__(copy=copy, **more)


def test_tensor_with_a_dtype_asks_for_no_copy_that_it_makes_itself():
    for dtype, asked in ((None, True), ("float64", None)):
        lender = Lender(mf.tensor([0, 1, 2]))  # NumPy's knows copy from 2.1 on
        t = mf.tensor(lender, dtype)
        assert lender.asked == [asked] and t.tolist() == [0, 1, 2]
        lender.array[0] = 9
        assert t.tolist() == [0, 1, 2]


def test_an_array_that_was_not_copied_is_not_copied_here_either():
    swapped = np.arange(3, dtype=f"{SWAPPED}i4")
    assert mf.asarray(Told(swapped)).tolist() == [0, 1, 2]
    with pytest.raises(mf.ExchangeError, match="order"):
        mf.asarray(Told(swapped), copy=False)


class Turned:
    """An array that is made anew, with its axes turned, whenever somebody asks for it."""

    def __array__(self, dtype=None, copy=None):
        return np.arange(6.0).reshape(2, 3).T


@pytest.mark.parametrize(
    "array",
    [np.ones((2, 3), order="F"), np.broadcast_to(np.arange(3.0), (4, 2, 3)), Turned()],
    ids=["columns", "repeated", "turned"],
)
def test_tensor_is_compact_however_the_copy_lies(array):
    t = mf.tensor(array)
    assert t.is_contiguous and not t.readonly and t.tolist() == np.asarray(array).tolist()


def test_an_array_that_was_copied_is_not_copied_again():
    class Given:
        def __array__(self, dtype=None, copy=None):
            self.made = np.arange(3)
            return self.made

    given = Given()
    assert mf.asarray(given, copy=True).data_ptr == given.made.ctypes.data
    assert mf.tensor(given).data_ptr == given.made.ctypes.data


class NAType:
    """What pandas calls a value that is missing."""


@pytest.mark.parametrize(
    "fields",
    [
        {"columns": [1], "items": [1, 2]}, {"columns": [1], "items": lambda self: [1, (2, 3, 4)]}, {"iter_columns": 5},
        {"itercolumns": None}, {"null_count": "unknown"}, {"null_count": np.array([1, 0])},
        {"dtype": types.SimpleNamespace(na_value=NAType())},
    ],
    ids=repr,
)  # fmt: skip
def test_what_only_has_the_names_of_a_tables_columns_is_an_array(fields):
    made = type("Made", (), {"__array__": lambda self, dtype=None, copy=None: np.arange(3.0), **fields})()
    assert mf.asarray(made).tolist() == [0, 1, 2]


def test_a_table_by_any_name_is_asked_for_nulls():
    column = types.SimpleNamespace(null_count=np.int64(2))
    table = {"columns": 1, "items": lambda self: [("a", column)] * 2}
    made = type("Made", (), {"__array__": lambda self: 1 / 0, **table})()
    with pytest.raises(mf.ExchangeError, match="4 nulls in a .*Made"):
        mf.asarray(made)


def test_an_array_of_itself_is_none():
    """It was asked again and again, until Python had no stack left."""
    made = type("Made", (), {"__array__": lambda self, dtype=None, copy=None: self})()
    for copy in (None, True, False):
        with pytest.raises(TypeError, match="__array__ of a .*Made gave itself, which is no array"):
            mf.asarray(made, copy=copy)


@pytest.mark.parametrize("cls", [mf.Tensor, np.ndarray, type("Made", (), {"__cuda_array_interface__": {}})])
def test_a_class_of_arrays_is_none(cls):
    with pytest.raises(TypeError, match="not from a 'type'"):
        mf.asarray(cls)
