"""The buffer protocol both ways, `__array_interface__` and `__array__`."""

import array
import ctypes as c
import gc
import sys

import numpy as np
import pytest

import dlpack_abi as abi
import moonferry as mf

SIMPLE, WRITABLE, FORMAT, ND = 0, 1, 4, 8
STRIDES, INDIRECT = 0x10 | ND, 0x100 | 0x10 | ND
C_CONTIGUOUS, F_CONTIGUOUS, ANY_CONTIGUOUS = (flag | STRIDES for flag in (0x20, 0x40, 0x80))
FORMATS = {
    "bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I",
    "int64": np.dtype("int64").char, "uint64": np.dtype("uint64").char, "float16": "e", "float32": "f",
    "float64": "d", "complex64": "Zf",
    "complex128": "Zd",
}  # fmt: skip


@pytest.mark.parametrize("dtype", [name for name in FORMATS if name not in ("complex64", "complex128")])
def test_numpy_sees_its_own_type(dtype):
    """Not one that is only as wide: libraries look for the type, and refuse C's long long where it is not int64."""
    assert np.asarray(mf.zeros((2,), dtype)).dtype.char == np.dtype(dtype).char


class Buffer(c.Structure):
    _fields_ = [
        ("buf", c.c_void_p),
        ("obj", c.c_void_p),
        ("len", c.c_ssize_t),
        ("itemsize", c.c_ssize_t),
        ("readonly", c.c_int),
        ("ndim", c.c_int),
        ("format", c.c_char_p),
        ("shape", c.POINTER(c.c_ssize_t)),
        ("strides", c.POINTER(c.c_ssize_t)),
        ("suboffsets", c.POINTER(c.c_ssize_t)),
        ("internal", c.c_void_p),
    ]


def get(t, flags):
    """Of a struct in which something else was before."""
    view = Buffer()
    c.memset(c.byref(view), 0xA5, c.sizeof(view))
    assert c.pythonapi.PyObject_GetBuffer(c.py_object(t), c.byref(view), flags) == 0
    return view


def release(view):
    c.pythonapi.PyBuffer_Release(c.byref(view))
    assert not view.obj


BASE = np.arange(24, dtype="int16").reshape(4, 6)
LAYOUTS = {
    "compact": BASE,
    "transposed": BASE.T,
    "strided": BASE[:, ::2],
    "reversed": BASE[::-1],
    "one row": BASE[1:2],
    "one column": BASE[:, 2:3],
    "two by two": BASE[:2, :2],
    "one element": BASE[1:2, 3:4],
    "empty": BASE[:, :0],
    "rank 1": BASE[0],
    "rank 0": np.array(5, "int16"),
    "rank 3": BASE.reshape(2, 2, 6),
}


def fits(a, flags):
    c_order, f_order = a.flags.c_contiguous, a.flags.f_contiguous
    if flags & C_CONTIGUOUS == C_CONTIGUOUS and not c_order:
        return False
    if flags & F_CONTIGUOUS == F_CONTIGUOUS and not f_order:
        return False
    if flags & ANY_CONTIGUOUS == ANY_CONTIGUOUS and not (c_order or f_order):
        return False
    return c_order or flags & STRIDES == STRIDES


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("wish", [SIMPLE, ND, STRIDES, INDIRECT, C_CONTIGUOUS, F_CONTIGUOUS, ANY_CONTIGUOUS])
def test_every_combination_of_flags(layout, wish, readonly):
    a = LAYOUTS[layout]
    t = mf.asarray(a)
    t = t.as_readonly() if readonly else t
    for flags in (wish | extra for extra in (0, WRITABLE, FORMAT, WRITABLE | FORMAT)):
        if (flags & WRITABLE and readonly) or not fits(a, flags):
            with pytest.raises(BufferError):
                get(t, flags)
            continue
        view = get(t, flags)
        assert view.obj == id(t) and view.len == a.nbytes and view.itemsize == 2 and view.readonly == readonly
        assert not a.size or view.buf == a.ctypes.data
        assert view.format == (b"h" if flags & FORMAT else None) and not view.suboffsets
        assert bool(view.shape) == bool(flags & ND and a.ndim)
        assert bool(view.strides) == bool(flags & STRIDES == STRIDES and a.ndim)
        if flags & ND:
            assert view.ndim == a.ndim and tuple(view.shape[: a.ndim]) == a.shape if a.ndim else view.ndim == 0
        if flags & STRIDES == STRIDES and a.size:
            pairs = zip(a.shape, view.strides[: a.ndim] if a.ndim else (), a.strides)
            assert all(mine == its for n, mine, its in pairs if n > 1)
        release(view)


@pytest.mark.parametrize("dtype", FORMATS)
def test_formats_are_pep_3118s(dtype):
    t = mf.ones((2, 3), dtype)
    view = memoryview(t)
    assert view.format == FORMATS[dtype] and view.shape == (2, 3) and view.nbytes == t.nbytes
    assert np.asarray(view).dtype == np.dtype(dtype) and np.asarray(view).tolist() == t.tolist()


@pytest.mark.parametrize(
    "dtype",
    ["bfloat16", "float8_e4m3fn", "float6_e2m3fn", "float4_e2m1fn", "complex32", "int4", "float32x4", "handle64"],
)
def test_dtypes_without_a_format_are_buffer_errors(dtype):
    with pytest.raises(BufferError, match=dtype):
        memoryview(mf.zeros((4,), dtype))


def test_a_request_that_is_refused_names_no_owner():
    """As PEP 3118 demands: what the caller had there before would be given back."""
    with mf.zeros(2) as closed:
        pass
    for t, flags in ((closed, SIMPLE), (mf.zeros(2, "bfloat16"), SIMPLE), (mf.zeros(2).as_readonly(), WRITABLE)):
        view = Buffer(obj=id(closed))
        with pytest.raises((BufferError, ValueError), match="closed|bfloat16|read-only"):
            c.pythonapi.PyObject_GetBuffer(c.py_object(t), c.byref(view), flags)
        assert view.obj is None


def test_a_request_without_a_place_for_the_answer_is_refused():
    with pytest.raises(BufferError, match="without a place"):
        c.pythonapi.PyObject_GetBuffer(c.py_object(mf.zeros(2)), None, SIMPLE)


def test_what_has_no_order_says_how_it_can_be_asked_for():
    t = mf.asarray(LAYOUTS["strided"])
    for flags, said in ((SIMPLE, "asked for without strides"), (ANY_CONTIGUOUS, "is not contiguous$")):
        with pytest.raises(BufferError, match=said):
            get(t, flags)


def test_an_empty_buffer_has_an_address():
    """C code may give it to memcpy, which takes no NULL."""
    producer = abi.Producer((0,), (1,))
    producer.dl.data = None
    t = mf.from_dlpack(producer.capsule())
    assert t.data_ptr == 0
    view = get(t, STRIDES)
    assert view.buf and view.len == 0
    release(view)


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((1, 3), (2**62, 1)), ((1, 3), (-(2**63), 1)), ((0, 3), (2**61, 2**60)), ((2**62, 3, 0), (0, 0, 1))],
)
def test_numbers_that_describe_no_element_may_have_any_size(shape, strides):
    """UndefinedBehaviorSanitizer looks for what leaves the range in bytes or on the way to the number of elements."""
    t = mf.from_dlpack(abi.Producer(shape, strides).capsule())
    with memoryview(t) as view:
        assert view.shape == shape and view.nbytes == t.nbytes
        assert view.strides[-1] == 4 * strides[-1] or not t.size
    if t.size:
        assert np.asarray(t).tolist() == [[0, 0, 0]]


def test_a_view_holds_the_memory_until_it_is_released():
    t = mf.tensor([1, 2, 3])
    view = memoryview(t)
    del t
    assert view.tolist() == [1, 2, 3] and mf.ledger().storages == 1
    view.release()
    assert tuple(mf.ledger()) == (0, 0, 0, 0)


def test_several_views_are_released_one_by_one():
    t = mf.tensor([1, 2, 3])
    views = [get(t, flags) for flags in (SIMPLE, INDIRECT | FORMAT, C_CONTIGUOUS)]
    del t
    for view in views:
        assert mf.ledger().storages == 1
        release(view)
    assert mf.ledger().storages == 0


def test_writes_go_through():
    t = mf.zeros((2, 2), "int32")
    memoryview(t)[1, 0] = 7
    memoryview(t[:, 1])[0] = 3
    assert t.tolist() == [[0, 3], [7, 0]]
    with pytest.raises(TypeError):
        memoryview(t.as_readonly())[0, 0] = 1


def test_bytes_file_and_struct_like_consumers(tmp_path):
    t = mf.tensor([1, 2, 3], "uint8")
    assert bytes(t) == b"\x01\x02\x03" and bytearray(t) == b"\x01\x02\x03"
    (tmp_path / "file").write_bytes(t)
    with open(tmp_path / "file", "rb") as stream:
        assert stream.readinto(t[1:]) == 2
    assert t.tolist() == [1, 1, 2]


CODES = "bBhHiIlLqQfd"


@pytest.mark.parametrize("code", CODES)
def test_arrays_come_in(code):
    source = array.array(code, [1, 2, 3])
    t = mf.asarray(source)
    assert t.dtype == np.dtype(code).name and t.tolist() == [1, 2, 3] and t.data_ptr == source.buffer_info()[0]
    with pytest.raises(BufferError):
        source.append(4)
    del t
    source.append(4)


@pytest.mark.parametrize("kind", [c.c_int8, c.c_uint16, c.c_int32, c.c_int64, c.c_float, c.c_double, c.c_bool])
def test_ctypes_arrays_come_in(kind):
    source = ((kind * 3) * 2)()
    source[1][2] = 1
    t = mf.asarray(source)
    assert t.shape == (2, 3) and t.tolist() == [[0, 0, 0], [0, 0, 1]] and t.data_ptr == c.addressof(source)
    t[0, 0] = 1
    assert source[0][0] == 1
    del t


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("index", [np.s_[:], np.s_[::-1], np.s_[:, 1], np.s_[::2, ::-2], np.s_[0, 0], np.s_[:, :0]])
def test_memoryviews_come_in_with_their_strides(dtype, index):
    a = np.ones((4, 5), dtype)
    a[1, 1] = 0
    part = a[index] if isinstance(a[index], np.ndarray) else a[0:1, 0].reshape(())
    t = mf.asarray(memoryview(part))
    assert t.shape == part.shape and t.dtype == dtype and t.tolist() == part.tolist()
    assert not part.size or t.data_ptr == part.ctypes.data


def test_read_only_buffers_come_in_read_only():
    assert mf.asarray(memoryview(b"ab")).readonly
    assert not mf.asarray(memoryview(bytearray(b"ab"))).readonly


@pytest.mark.parametrize("dtype", ["U2", "S3", "M8[s]", [("a", "i4"), ("b", "f4")]], ids=str)
def test_formats_that_dlpack_lacks_are_refused(dtype):
    a = np.zeros(2, dtype)
    with pytest.raises(BufferError):
        mf.asarray(a)
    if a.dtype.kind != "M":  # NumPy gives no buffer of these
        with pytest.raises(BufferError, match="has no dtype"):
            mf.asarray(memoryview(a))


def test_strides_that_are_no_multiple_of_the_element_are_copied():
    a = np.zeros(4, [("x", "u1"), ("y", "f4")])["y"]
    a[...] = [1, 2, 3, 4]
    for source in (a, memoryview(a)):
        for make in (mf.asarray, mf.tensor):
            t = make(source)
            assert t.tolist() == [1, 2, 3, 4] and t.data_ptr != a.ctypes.data
            t.fill(9)
            assert a.tolist() == [1, 2, 3, 4]
    assert mf.asarray(memoryview(a[:2])).tolist() == [1, 2]


def test_a_buffer_is_released_exactly_once_when_the_last_user_goes():
    data = bytearray(8)
    t = mf.frombuffer(data)
    view, capsule = t[2:], t.__dlpack__()
    look = memoryview(view)
    del t, view, capsule
    with pytest.raises(BufferError):
        data.clear()
    look.release()
    gc.collect()
    data.clear()


def test_refused_buffers_are_released():
    data = bytearray(8)
    for arguments, error, text in (
        ({"dtype": "int64", "offset": 1}, ValueError, "7 bytes are no whole number"),
        ({"count": 99}, ValueError, "count 99 needs more than the 8 bytes"),
        ({"dtype": "nonsense"}, TypeError, "no dtype 'nonsense'"),
        ({"dtype": "float32x4"}, ValueError, "8 bytes are no whole number of elements of 16 bytes"),
    ):
        with pytest.raises(error, match=text):
            mf.frombuffer(data, **arguments)
    data.clear()


def test_a_buffer_without_axes_has_neither_shape_nor_strides():
    view = get(mf.tensor(5), STRIDES | FORMAT)
    assert view.ndim == 0 and not view.shape and not view.strides and not view.suboffsets
    release(view)


@pytest.mark.parametrize("dtype", FORMATS)
def test_array_interface_is_version_3(dtype):
    t = mf.ones((2, 3), dtype)
    for view, strides in ((t, (3, 1)), (t.T, (1, 3)), (t[:, ::2], (3, 2)), (t.as_readonly(), (3, 1))):
        d = view.__array_interface__
        assert d["version"] == 3 and d["shape"] == view.shape and d["typestr"] == np.dtype(dtype).str
        assert d["data"] == (view.data_ptr, view.readonly)
        size = np.dtype(dtype).itemsize
        got = d.get("strides")
        assert got == tuple(s * size for s in strides) or got is None and view.is_contiguous
    assert t.__array_interface__ is not t.__array_interface__


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "int4", "float32x2"])
def test_array_interface_has_no_name_for_other_dtypes(dtype):
    assert not hasattr(mf.zeros((2,), dtype), "__array_interface__")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_numpy_asarray_shares(layout):
    a = LAYOUTS[layout]
    t = mf.asarray(a)
    back = np.asarray(t)
    assert back.shape == a.shape and back.dtype == a.dtype and back.tolist() == a.tolist()
    assert not a.size or back.ctypes.data == a.ctypes.data
    assert not np.asarray(t.as_readonly()).flags.writeable


def test_the_array_method():
    t = mf.tensor([1.5, 2.5])
    assert t.__array__().ctypes.data == t.data_ptr
    assert t.__array__("int32").tolist() == [1, 2] and t.__array__(dtype=np.float32).dtype == np.float32
    assert t.__array__(copy=True).ctypes.data != t.data_ptr
    assert t.__array__(copy=False).ctypes.data == t.data_ptr
    with pytest.raises(ValueError):
        t.__array__("int32", copy=False)


def test_arrays_made_from_a_tensor_keep_it_alive():
    a = np.asarray(mf.tensor([1, 2, 3]))
    assert a.tolist() == [1, 2, 3] and mf.ledger().storages == 1


def test_ufuncs_and_reductions_take_tensors():
    t = mf.tensor([1.0, 2.0])
    assert np.add(t, 1).tolist() == [2.0, 3.0] and np.sum(t) == 3.0


def test_items_that_lie_no_whole_number_of_them_apart_are_copied_where_that_may_be():
    lying_apart = memoryview(np.array([(1, 2), (3, 4), (5, 6)], [("byte", "u1"), ("number", "=i4")])["number"])
    t = mf.asarray(lying_apart)
    assert t.tolist() == [2, 4, 6]
    assert t.strides == (1,)
    with pytest.raises(mf.ExchangeError, match="copy=False, but the buffer's strides are no multiple of its items"):
        mf.asarray(lying_apart, copy=False)
    assert mf.asarray(lying_apart[:2]).strides == (1,)
    assert mf.asarray(lying_apart[:1], copy=False).tolist() == [2], "one item lies apart from none"


@pytest.mark.parametrize("shape", [(2, 3), (2, 2, 3)])
def test_pointers_to_rows_are_copied(shape):
    _testbuffer = pytest.importorskip("_testbuffer")
    numbers = list(range(np.prod(shape)))
    rows = _testbuffer.ndarray(numbers, shape=list(shape), format="i", flags=_testbuffer.ND_PIL)
    assert memoryview(rows).suboffsets[0] == 0
    assert mf.asarray(rows).tolist() == np.reshape(numbers, shape).tolist()
    with pytest.raises(mf.ExchangeError, match="copy=False, but the buffer has pointers to its rows"):
        mf.asarray(rows, copy=False)


@pytest.mark.skipif(sys.byteorder != "little", reason="the formats are of the other order there")
@pytest.mark.parametrize("letters", [">b", "!B", "<h", "=h", ">h", "!h", ">i"])
def test_bytes_in_the_other_order_are_not_shared(letters):
    _testbuffer = pytest.importorskip("_testbuffer")
    numbers = _testbuffer.ndarray([1, 2], shape=[2], format=letters)
    assert mf.asarray(numbers).tolist() == [1, 2]
    if letters in (">h", "!h", ">i"):
        with pytest.raises(mf.ExchangeError, match=f"format '{letters}' .* has no dtype"):
            mf.asarray(numbers, copy=False)
    else:
        assert mf.asarray(numbers, copy=False).tolist() == [1, 2]
