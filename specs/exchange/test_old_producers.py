"""Producers of other times and other tastes: those of producers.py, which Lua takes too, and the free functions of
libraries as they are installed. specs/python/test_producer.py has what a producer is asked, and how often."""

import gc
import importlib
import importlib.util

import numpy as np
import producers
import pytest

import dlpack_abi as abi
import moonferry as mf

# What only from_dlpack takes for an array.
ONLY_FROM_DLPACK = ["a capsule, legacy", "a capsule, versioned", "nothing at all"]


@pytest.mark.parametrize("take", [mf.from_dlpack, mf.asarray, mf.tensor], ids=["from_dlpack", "asarray", "tensor"])
@pytest.mark.parametrize("name", producers.KINDS)
def test_each_gets_what_it_should(name, take):
    kind = producers.KINDS[name]
    if name in ONLY_FROM_DLPACK and take is not mf.from_dlpack:
        kind = kind._replace(error="an array, a number")
    source, made = kind.make()
    if kind.error is None:
        t = take(source)
        assert t.tolist() == [[0, 1, 2], [3, 4, 5]] and (t.dtype, t.device, t.readonly) == ("float32", "cpu", False)
        del t
    else:
        with pytest.raises(BaseException, match=kind.error):
            take(source)
    del source
    gc.collect()
    assert made is None or made.deletes == kind.deletes


# Module of the functions, and how a library's array is made. TensorFlow's and MXNet's are what the matrix goes through.
FREE = {
    "torch.utils.dlpack": lambda a: importlib.import_module("torch").from_numpy(a),
    "paddle.utils.dlpack": lambda a: importlib.import_module("paddle").to_tensor(a),
}


@pytest.mark.parametrize("name", FREE)
@pytest.mark.parametrize("version", [None, (1, 3)])
def test_free_functions_of_libraries(name, version):
    """A capsule of each library's own function goes to Moonferry, and one of Moonferry's to its counterpart."""
    library = name.split(".")[0]
    if not importlib.util.find_spec(library):
        pytest.skip(f"{library} is not installed for this Python")
    functions = importlib.import_module(name)
    a = np.arange(6, dtype="float32").reshape(2, 3)
    x = FREE[name](a)
    t = mf.from_dlpack(functions.to_dlpack(x))
    assert t.data_ptr == x.data_ptr() and t.tolist() == a.tolist()
    t = mf.asarray(a).copy()
    y = functions.from_dlpack(t.__dlpack__(max_version=version))
    assert y.data_ptr() == t.data_ptr and y.tolist() == a.tolist()


class OldNumpy(np.ndarray):
    """NumPy before 2: no keywords, and a TypeError for what is read-only."""

    def __dlpack__(self, stream=None):
        if not self.flags.writeable:
            raise TypeError("NumPy currently only supports dlpack for writeable arrays")
        return super().__dlpack__(stream=stream)


def test_a_read_only_array_of_numpy_1_comes_by_its_buffer():
    a = np.arange(6.0).reshape(2, 3).view(OldNumpy)
    assert mf.from_dlpack(a).data_ptr == mf.asarray(a).data_ptr == a.ctypes.data
    a.flags.writeable = False
    t = mf.asarray(a)
    assert t.readonly and t.data_ptr == a.ctypes.data and t.tolist() == a.tolist()
    with pytest.raises(TypeError, match="only supports dlpack for writeable"):
        mf.from_dlpack(a)


@pytest.mark.parametrize("versioned", [False, True])
def test_a_bare_capsule_is_taken_once(versioned):
    producer = abi.Producer(versioned=versioned)
    capsule = producer.capsule()
    t = mf.from_dlpack(capsule)
    with pytest.raises(mf.ExchangeError, match="the capsule was consumed before"):
        mf.from_dlpack(capsule)
    assert producer.deletes == 0
    del t
    assert producer.deletes == 1


class Subclass(np.ndarray):
    """A subclass that gives something else than its base would."""

    def __dlpack__(self, **more):
        return np.asarray(self)[:1].__dlpack__(**more)


def test_a_subclass_that_overrides_the_method_is_asked_and_not_its_base():
    a = np.arange(3.0).view(Subclass)
    assert mf.from_dlpack(a).tolist() == [0.0]
    assert mf.asarray(a).tolist() == [0.0]


def test_a_producer_that_changes_its_mind_is_where_its_memory_is():
    """What the struct says counts, not what was said before it."""

    class Fickle:
        count = 0

        def __dlpack_device__(self):
            Fickle.count += 1
            return (1, 0) if Fickle.count % 2 else (2, 0)

        def __dlpack__(self, **_):
            return abi.Producer().capsule()

    for asked in range(1, 5):
        assert mf.from_dlpack(Fickle()).device == "cpu" and Fickle.count == asked
