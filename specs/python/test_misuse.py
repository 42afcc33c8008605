"""Every function and method with arguments that make no sense: an exception, no crash, nothing left."""

import pickle

import numpy as np
import pytest

import dlpack_abi as abi
import moonferry as mf
from moonferry import _convert

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
ODD = [
    (), (1,), (None,), ("x",), (b"x",), (1.5,), (float("nan"),), (2**70,), (-(2**70),), ((1,),), ([[]],), ({},),
    (object(),), (type,), (1, 1), (None, None), (1, 1, 1, 1, 1), ((None,) * 200,), ((1,) * 65,),
    (slice(None, None, 0),),
    ([[[[]]]],), ("float32",), ((2,), "int8"), ((2,), "int8", None), (b"x", "int8", -5, 9), ("cpu", -1), (True, False),
    (np.zeros(3), np.zeros(4)), (np.array("text"),), (...,),
]  # fmt: skip
SAFE = (
    TypeError,
    ValueError,
    IndexError,
    OverflowError,
    NotImplementedError,
    AttributeError,
    MemoryError,
    BufferError,
    KeyError,
    RecursionError,
    ImportError,  # __mlx_array__, without MLX
)
METHODS = [
    name for name in dir(mf.Tensor) if callable(getattr(mf.Tensor, name)) and name not in ("__class__", "__init__")
]
FUNCTIONS = [name for name in mf.__all__ if callable(getattr(mf, name))]


def attempt(call, *arguments):
    try:
        call(*arguments)
    except SAFE as error:
        assert str(error) or isinstance(error, (KeyError, IndexError, AttributeError))


@pytest.mark.parametrize("name", METHODS)
def test_methods(name):
    method = getattr(mf.Tensor, name)
    for arguments in ODD:
        attempt(method, *arguments)
        for t in (mf.zeros((2, 3)), mf.tensor(1), mf.zeros((0,), "int4"), mf.zeros((2,), "float32x4")):
            attempt(method, t, *arguments)
            attempt(method, t, t, *arguments)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    function = getattr(mf, name)
    for arguments in ODD:
        attempt(function, *arguments)
        attempt(function, mf.zeros((2,)), *arguments)
        attempt(function, mf.Tensor, *arguments)


@pytest.mark.parametrize(
    "word", ["dtype", "device", "copy", "stream", "max_version", "axis", "offset", "count", "bogus", "é"]
)
def test_keywords(word):
    t = mf.zeros((2, 3))
    calls = [getattr(mf, name) for name in FUNCTIONS]
    calls += [getattr(t, name) for name in METHODS if name not in ("__new__", "__init_subclass__", "__subclasshook__")]
    for call in calls:
        for value, *_ in filter(None, ODD):
            attempt(lambda call=call, value=value: call(**{word: value}))
            attempt(lambda call=call, value=value: call((2,), **{word: value}))
    del calls, call, t


@pytest.mark.parametrize(
    "arguments, error, text",
    [
        ((b"1234", (100,), "float32", False), ValueError, "4 bytes given for a tensor of 400"),
        ((b"1234", (-1,), "float32", False), ValueError, "shape.0. is -1"),
        ((b"1234", (2**62, 4), "float32", False), OverflowError, "leave the range of int64_t"),
        ((b"12", (3,), "int4", True), ValueError, "2 bytes given for a tensor of 3"),
        ((b"1234", ("a",), "float32", False), TypeError, "must be an integer, not 'str'"),
        ((b"1234", (1,), "nope", False), TypeError, "no dtype 'nope'"), ((3, (1,), "float32", False), TypeError, "int"),
        ((b"1234", None, "float32", False), TypeError, "not 'NoneType'"),
    ],
)  # fmt: skip
def test_a_forged_pickle_is_refused(arguments, error, text):
    with pytest.raises(error, match=text):
        _convert.rebuild_shared(*arguments)
    with pytest.raises(error, match=text):
        _convert.rebuild_copied(*arguments, False)


def test_a_pickle_that_was_cut_short_is_refused():
    data = pickle.dumps(mf.ones((100,)), 5)
    for end in range(0, len(data) - 1, 7):
        with pytest.raises(pickle.UnpicklingError if end else EOFError):
            pickle.loads(data[:end])


def test_capsules_of_other_libraries_are_refused():
    import datetime

    for capsule in (mf._C_API, mf.Tensor.__dlpack_c_exchange_api__, datetime.datetime_CAPI):
        with pytest.raises(ValueError, match="capsule"):
            mf.from_dlpack(capsule)
    assert abi.capsule_name(mf._C_API) == b"moonferry._C_API"


def test_readonly_is_a_truth_value():
    with pytest.raises(ValueError, match="truth value"):
        mf.wrap(1 << 20, 3, "int8", owner=object(), readonly=np.zeros(2))
