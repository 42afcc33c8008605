"""Exchange with NumPy, both ways and without a copy.

NumPy before 2.1 neither takes `max_version` nor knows read-only structs; what that forbids is said where it
matters.
"""

import pickle
import sys

import numpy as np
import pytest

import moonferry as mf

DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip
OLD = tuple(map(int, np.__version__.split(".")[:2])) < (2, 1)
needs_max_version = pytest.mark.skipif(OLD, reason=f"NumPy {np.__version__} does not speak DLPack 1.0")
BASE = np.arange(60).reshape(3, 4, 5)
VIEWS = {
    "compact": np.s_[:],
    "transposed": "T",
    "strided": np.s_[:, ::2, 1::3],
    "reversed": np.s_[::-1, :, ::-2],
    "one axis": np.s_[1, :, 2],
    "new axis": np.s_[:, None, 1:2],
    "no elements": np.s_[:, :0],
}


def view_of(x, name):
    return x.T if VIEWS[name] == "T" else x[VIEWS[name]]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("view", VIEWS)
def test_from_numpy(dtype, view):
    a = view_of(BASE.astype(dtype), view)
    t = mf.from_dlpack(a)
    assert t.shape == a.shape and t.dtype == dtype and t.tolist() == a.tolist() and t.device == "cpu"
    if a.size:
        assert t.data_ptr == a.ctypes.data
        assert all(s * a.itemsize == b for n, s, b in zip(a.shape, t.strides, a.strides) if n > 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("view", VIEWS)
def test_to_numpy(dtype, view):
    t = view_of(mf.tensor(BASE.astype(dtype)), view) if VIEWS[view] != "T" else mf.tensor(BASE.astype(dtype)).T
    a = np.from_dlpack(t)
    assert a.shape == t.shape and a.dtype == np.dtype(dtype) and a.tolist() == t.tolist()
    if a.size:
        assert a.ctypes.data == t.data_ptr


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (0,), (0, 3), (3, 0, 2), (1,) * 32])
def test_small_shapes_cross_both_ways(shape):
    a = np.full(shape, 7.5)
    t = mf.from_dlpack(a)
    back = np.from_dlpack(t)
    assert t.shape == shape and back.shape == shape and back.tolist() == a.tolist() == t.tolist()
    assert np.from_dlpack(mf.full(shape, 7.5, "float64")).tolist() == a.tolist()


def test_writes_are_seen_both_ways():
    a = np.zeros((2, 2))
    t = mf.from_dlpack(a)
    a[0, 0], t[1, 1] = 1, 2
    assert t.tolist() == a.tolist() == [[1, 0], [0, 2]]


@needs_max_version
def test_numpy_sees_what_is_written_to_a_tensor():
    t = mf.zeros((2,))
    a = np.from_dlpack(t)
    t[0], a[1] = 3, 4
    assert a.tolist() == t.tolist() == [3, 4] and a.flags.writeable


@needs_max_version
def test_read_only_crosses_both_ways():
    a = np.arange(3.0)
    a.flags.writeable = False
    t = mf.from_dlpack(a)
    assert t.readonly and t.flags & 1
    with pytest.raises(ValueError):
        t[0] = 1
    back = np.from_dlpack(mf.zeros((2,)).as_readonly())
    assert not back.flags.writeable
    assert not mf.from_dlpack(a, copy=True).readonly


FLAGS = ("c_contiguous", "f_contiguous", "aligned", "writeable", "owndata")


@pytest.mark.parametrize(
    "a",
    [
        *(np.zeros((4, 6)), np.zeros((4, 6)).T, np.zeros((4, 6))[::2, 1:], np.zeros((4, 1, 6))[:, :, ::-1]),
        *(np.zeros(()), np.zeros((0, 3)), np.zeros((1, 5))[:, ::2], np.zeros((5, 1))[::2], np.zeros((1, 1))),
        *(np.broadcast_to(np.zeros(3), (2, 3)), np.zeros(3, "complex64"), np.zeros(3, "bool")),
        *(np.frombuffer(bytearray(33), "u1")[1:].view(kind) for kind in ("float64", "complex128", "int16", "int8")),
    ],
    ids=lambda a: f"{a.dtype}{a.shape}",
)
def test_flags_have_what_numpys_have(a):
    t = mf.asarray(a)
    seen = np.asarray(t)  # without a copy, and so a view of its memory
    assert seen.ctypes.data == t.data_ptr
    for name in FLAGS:
        assert getattr(t.flags, name) is t.flags[name.upper()] is getattr(seen.flags, name), name
    assert t.flags == (1 if t.readonly else 0)


def test_flags_are_dlpacks_bits_and_have_no_other_names():
    t = mf.zeros(3)
    assert t.as_readonly().flags == 1 and isinstance(t.flags, int)
    assert not mf.zeros(3, "float4_e2m1fn").flags.owndata and mf.zeros(3, "float4_e2m1fn").flags.aligned
    with pytest.raises(KeyError, match="flags has no 'CONTIGUES'; it has C_CONTIGUOUS, F_CONTIGUOUS"):
        t.flags["CONTIGUES"]
    with pytest.raises(AttributeError):
        _ = t.flags.contigues
    with pytest.raises(AttributeError, match="flags.writeable of a tensor cannot be set; t.as_readonly"):
        t.flags.writeable = False
    with pytest.raises(AttributeError, match="flags.writeable of a tensor cannot be set"):
        t.flags["WRITEABLE"] = False


@needs_max_version
@pytest.mark.parametrize("copy", [None, False, True])
def test_numpy_asks_for_a_copy_or_none(copy):
    t = mf.tensor([1.0, 2.0])
    a = np.from_dlpack(t, copy=copy)
    assert a.tolist() == [1.0, 2.0] and (a.ctypes.data == t.data_ptr) == (copy is not True)
    assert np.from_dlpack(t, device="cpu", copy=copy).tolist() == [1.0, 2.0]
    back = mf.from_dlpack(a, copy=copy)
    assert (back.data_ptr == a.ctypes.data) == (copy is not True) and back.tolist() == [1.0, 2.0]


def test_copies_of_numpy_arrays_on_any_numpy():
    a = np.arange(4.0)
    t = mf.from_dlpack(a, copy=True)
    assert t.data_ptr != a.ctypes.data and t.tolist() == a.tolist() and not t.readonly


def test_each_side_outlives_the_other():
    assert mf.from_dlpack(np.arange(1000.0))[999] == 999.0
    a = np.from_dlpack(mf.asarray(list(range(1000))))
    assert a[999] == 999 and mf.ledger().storages == 1


def test_unaligned_arrays_come_in():
    raw = np.zeros(33, "uint8")
    a = raw[1:].view("float64")
    a[:] = [1.5, 2.5, 3.5, 4.5]
    t = mf.from_dlpack(a)
    assert t.data_ptr % 8 == a.ctypes.data % 8 and t.tolist() == a.tolist()
    t[0] = 9.5
    assert a[0] == 9.5 and mf.equal(t, t.copy())


@pytest.mark.parametrize("dtype", ["U3", "S2", "M8[s]", "m8[s]", "O", [("a", "f4")], ">i4", ">f8"], ids=str)
def test_dtypes_that_numpy_cannot_export_are_buffer_errors(dtype):
    with pytest.raises(BufferError):
        mf.from_dlpack(np.zeros(2, dtype))


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4", "float32x2", "complex32", "handle64"])
def test_dtypes_that_numpy_lacks_are_its_refusal_and_nothing_is_lost(dtype):
    t = mf.zeros((4,), dtype)
    refusal = BufferError if np.lib.NumpyVersion(np.__version__) >= "2.5.0" else RuntimeError
    with pytest.raises(refusal, match="Unsupported (dtype|lanes) in DLTensor"):
        np.from_dlpack(t)
    assert t.tobytes() == bytes(t.nbytes)


def test_ml_dtypes_arrays_come_in(ml_dtypes):
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e8m0fnu"):
        a = np.array([1.0, 2.0, 0.5]).astype(getattr(ml_dtypes, name))
        t = mf.asarray(a)
        assert t.dtype == name and t.tolist() == [1.0, 2.0, 0.5]
        assert mf.tensor(a).tolist() == [1.0, 2.0, 0.5]


def test_numpy_scalars_are_numbers():
    assert mf.tensor(np.float32(1.5)).tolist() == 1.5
    assert mf.full((2,), np.int16(3)).tolist() == [3, 3]
    assert mf.tensor([np.float64(1), np.float64(2)]).dtype == "float64"


def test_subclasses_come_in():
    class Sub(np.ndarray):
        pass

    a = np.arange(3.0).view(Sub)
    assert mf.from_dlpack(a).data_ptr == a.ctypes.data


def test_memory_maps_come_in(tmp_path):
    a = np.memmap(tmp_path / "file", dtype="int32", mode="w+", shape=(4,))
    t = mf.from_dlpack(a)
    t[1] = 7
    a.flush()
    assert np.fromfile(tmp_path / "file", "int32").tolist() == [0, 7, 0, 0]


def test_numpy_arrays_pickled_around_a_tensor():
    t = mf.asarray(np.arange(3.0))
    assert pickle.loads(pickle.dumps([np.arange(2), t]))[1].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "dtype, nbytes", [("bool", 1), ("int4", 1), ("int16", 2), ("float64", 8), ("complex128", 16), ("float32x4", 16)]
)
def test_an_item_takes_so_many_bytes(dtype, nbytes):
    assert mf.empty((2, 3), dtype).itemsize == nbytes


@pytest.mark.parametrize("dtype", ["bool", "int16", "float32", "complex128"])
def test_a_tensor_has_numpys_dtype(dtype):
    assert mf.empty(2, dtype).__numpy_dtype__ == np.dtype(dtype)


def test_what_flags_looks_up_is_let_go():
    t = mf.zeros(2)
    module = sys.modules[type(t.flags).__module__]
    before = sys.getrefcount(module)
    for _ in range(10):
        assert t.flags == 0
    assert sys.getrefcount(module) == before
