"""DType and Device: strings that know their numbers."""

import copy
import enum
import gc
import pickle
import sys

import numpy as np
import pytest

import moonferry as mf

# name: (code, bits, itemsize), written out from DLPack 1.3 and not read from the library.
CODES = {
    "bool": (6, 8, 1), "int8": (0, 8, 1), "int16": (0, 16, 2), "int32": (0, 32, 4), "int64": (0, 64, 8),
    "uint8": (1, 8, 1), "uint16": (1, 16, 2), "uint32": (1, 32, 4), "uint64": (1, 64, 8),
    "float16": (2, 16, 2), "float32": (2, 32, 4), "float64": (2, 64, 8), "bfloat16": (4, 16, 2),
    "complex64": (5, 64, 8), "complex128": (5, 128, 16),
    "float8_e3m4": (7, 8, 1), "float8_e4m3": (8, 8, 1), "float8_e4m3b11fnuz": (9, 8, 1),
    "float8_e4m3fn": (10, 8, 1), "float8_e4m3fnuz": (11, 8, 1), "float8_e5m2": (12, 8, 1),
    "float8_e5m2fnuz": (13, 8, 1), "float8_e8m0fnu": (14, 8, 1),
}  # fmt: skip
SUBBYTE = {
    "float6_e2m3fn": (15, 6),
    "float6_e3m2fn": (16, 6),
    "float4_e2m1fn": (17, 4),
    "int4": (0, 4),
    "uint2": (1, 2),
}


@pytest.mark.parametrize("name", sorted(CODES))
def test_a_dtype_is_its_name_and_knows_its_numbers(name):
    d = mf.zeros((1,), name).dtype
    assert d == name and str(d) == name and isinstance(d, str) and isinstance(d, mf.DType)
    assert (d.code, d.bits, d.itemsize) == CODES[name] and d.lanes == 1
    assert getattr(mf, name) is d


@pytest.mark.parametrize("name", sorted(SUBBYTE))
def test_sub_byte_dtypes_are_packed(name):
    t = mf.zeros((5,), name)
    assert (t.dtype.code, t.dtype.bits, t.dtype.lanes) == (*SUBBYTE[name], 1)
    assert t.nbytes == (5 * t.dtype.bits + 7) // 8


def test_dtypes_are_interned():
    assert mf.zeros((1,), "int32").dtype is mf.ones((2,), np.int32).dtype
    assert mf.zeros((1,), "float32x4").dtype is mf.zeros((2,), "float32x4").dtype


def test_what_a_new_dtype_holds_of_its_class_is_itself():
    """The class and its module gain nothing else."""

    def held():
        gc.collect()
        count = sum(type(thing) is mf.DType for thing in gc.get_objects())
        return sys.getrefcount(mf.DType) - count, sys.getrefcount(sys.modules["moonferry._dtype"])

    before = held()
    assert [mf.zeros(1, f"float32x{n}").dtype.lanes for n in range(40, 48)] == list(range(40, 48))
    assert held() == before


def test_lanes_are_part_of_the_name():
    d = mf.empty((3,), "float32x4").dtype
    assert (d.code, d.bits, d.lanes, d.itemsize) == (2, 32, 4, 16)


@pytest.mark.parametrize(
    "given, name",
    [
        (float, "float64"), (int, "int64"), (bool, "bool"), (complex, "complex128"),
        (np.float32, "float32"), (np.dtype("uint16"), "uint16"), (np.bool_, "bool"), (np.intc, "int32"),
        (np.dtype("complex64"), "complex64"), ("int8", "int8"),
    ],
)  # fmt: skip
def test_a_dtype_is_given_in_many_ways(given, name):
    t = mf.empty((1,), given)
    assert t.dtype == name
    assert mf.empty((1,), t.dtype).dtype is t.dtype


class Kinds(str, enum.Enum):
    """Names, of which str() says something else."""

    USUAL = "float32"
    NUMPYS = "f4"
    RARE = "uint27"
    NONE = "float"[:4]


@pytest.mark.parametrize(
    "given, name",
    [
        (Kinds.USUAL, "float32"), (Kinds.NUMPYS, "float32"), (Kinds.RARE, "uint27"),
        (np.str_("f4"), "float32"), (np.str_("double"), "float64"), (np.str_("bool_"), "bool"),
        (np.str_("=i2"), "int16"),
    ],
)  # fmt: skip
def test_a_name_may_be_a_str_of_any_class(given, name):
    assert mf.DType(given) is mf.DType(name) and type(mf.DType(name)) is mf.DType
    assert mf.empty(1, given).dtype == mf.frombuffer(b"", given).dtype == name


@pytest.mark.parametrize("given", [Kinds.NONE, np.str_("floaty"), np.str_("int8\0")])
def test_a_str_of_any_class_that_is_no_name_is_refused(given):
    for read in (mf.DType, lambda name: mf.empty(1, name)):
        with pytest.raises(TypeError, match="there is no dtype"):
            read(given)


def test_torch_dtypes_are_taken(torch):
    for name in ("float32", "bfloat16", "int64", "bool", "complex64", "uint8", "float16", "float8_e5m2"):
        assert mf.empty((1,), getattr(torch, name)).dtype == name


def test_ml_dtypes_are_taken(ml_dtypes):
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "int4"):
        assert mf.empty((2,), getattr(ml_dtypes, name)).dtype == name
        assert mf.empty((2,), np.dtype(getattr(ml_dtypes, name))).dtype == name


@pytest.mark.parametrize(
    "given",
    [
        "",
        "float0",
        "float256",
        "bfloat",
        "float32x65536",
        "int8x0",
        "x4",
        "flöat32",
        "int8\0",
        "int8\ud800",
        3,
        None,
        object(),
        str,
        [1],
    ],
)
def test_what_is_no_dtype_is_refused(given):
    text = "there is no dtype" if isinstance(given, str) else "a dtype must be a name such as 'float32'"
    with pytest.raises(TypeError, match=text):
        mf.zeros((1,)).astype(None) if given is None else mf.empty((1,), given)


@pytest.mark.parametrize(
    "given", [np.dtype(">f4"), np.dtype("U3"), np.dtype("O"), np.dtype("M8[s]"), np.dtype([("a", "f4")])]
)
def test_numpy_dtypes_that_dlpack_lacks_are_refused(given):
    with pytest.raises(TypeError, match="has its bytes in the other order" if given == ">f4" else "there is no dtype"):
        mf.empty((1,), given)


def test_names_behave_as_strings():
    d = mf.float32
    assert {d: 1}["float32"] == 1 and hash(d) == hash("float32") and f"{d}" == "float32"
    assert copy.copy(d) == d and copy.deepcopy(d) == d
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        back = pickle.loads(pickle.dumps(d, protocol))
        assert back == d and back.bits == 32


def test_a_device_is_its_name():
    device = mf.zeros((1,)).device
    assert isinstance(device, mf.Device) and isinstance(device, str)
    assert device == "cpu" and (device.type, device.id) == (1, 0)
    assert pickle.loads(pickle.dumps(device)) == device


def test_a_class_of_ones_own_makes_no_dtype_and_no_device_of_its_own():
    """There is one object for a name; it was of the class that asked first."""

    class Kind(mf.DType):
        pass

    class Place(mf.Device):
        pass

    assert type(Kind("uint29")) is mf.DType and Kind("uint29") is mf.DType("uint29")
    assert type(Place("cuda:29")) is mf.Device and Place("cuda:29") is mf.Device("cuda:29")
