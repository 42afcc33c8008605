"""The references that Python objects have after the library was given them: as many as before, in every way."""

import gc
import sys
import weakref

import numpy as np
import pytest

import moonferry as mf

TIMES = 20


class Producer:
    """A producer that is a tensor's, by whatever protocol it is asked."""

    def __init__(self, error=None):
        self.tensor = mf.zeros((2, 3))
        self.error = error

    def __dlpack__(self, **kwargs):
        if self.error:
            raise self.error("no")
        return self.tensor.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


class Old:
    """A producer from before the keywords."""

    def __init__(self):
        self.tensor = mf.zeros(3)

    def __dlpack__(self, stream=None):
        return self.tensor.__dlpack__()

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


class Interface:
    def __init__(self, array):
        self.array = array

    @property
    def __array_interface__(self):
        return self.array.__array_interface__


class Cuda:
    __cuda_array_interface__ = None


class Index:
    def __index__(self):
        return 1


class Named:
    """A device by its text."""

    def __str__(self):
        return "cpu"


def refused(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except Exception:
        return
    raise AssertionError("it was taken")


def used_capsule():
    capsule = mf.zeros(3).__dlpack__()
    mf.from_dlpack(capsule)
    return capsule


# What makes an object, and what is done with it and with a tensor, again and again.
WAYS = {
    "a producer": (Producer, lambda o, t: mf.from_dlpack(o)),
    "a producer that is copied": (Producer, lambda o, t: mf.from_dlpack(o, copy=True)),
    "a producer for a device": (Producer, lambda o, t: mf.from_dlpack(o, device="cpu")),
    "a producer by asarray": (Producer, lambda o, t: mf.asarray(o)),
    "a producer as a value": (Producer, lambda o, t: t.__setitem__(slice(None), o)),
    "a producer that refuses": (lambda: Producer(ValueError), lambda o, t: refused(mf.from_dlpack, o)),
    "a producer that lacks a buffer": (lambda: Producer(BufferError), lambda o, t: refused(mf.asarray, o)),
    "a producer beside a tensor": (Producer, lambda o, t: mf.equal(t, o)),
    "an old producer": (Old, lambda o, t: mf.from_dlpack(o)),
    "NumPy's array": (lambda: np.zeros((2, 3)), lambda o, t: (mf.from_dlpack(o), mf.asarray(o), mf.equal(t, o))),
    "NumPy's array that is read only": (
        lambda: np.broadcast_to(np.zeros(3), (2, 3)),
        lambda o, t: (mf.asarray(o), mf.asarray(o, copy=True)),
    ),
    "NumPy's scalar": (lambda: np.float64(3), lambda o, t: (t.fill(o), mf.full((2,), o), mf.tensor(o))),
    "an array with an interface": (lambda: Interface(np.zeros(3)), lambda o, t: mf.asarray(o)),
    "an array with CUDA's interface": (Cuda, lambda o, t: refused(mf.from_dlpack, o)),
    "no array": (object, lambda o, t: refused(mf.from_dlpack, o)),
    "whatever is an array": (lambda: [1, 2], lambda o, t: mf._core._from_any(o)),
    "a buffer": (lambda: bytearray(24), lambda o, t: (mf.frombuffer(o, "uint8"), mf.asarray(memoryview(o)))),
    "a buffer that is no layout of ours": (lambda: bytearray(7), lambda o, t: refused(mf.frombuffer, o, "float64")),
    "an index": (Index, lambda o, t: (t[o], t[o, o], t[o:])),
    "an index that is refused": (object, lambda o, t: (refused(t.__getitem__, o), refused(t.__setitem__, o, 1))),
    "a value that is refused": (object, lambda o, t: (refused(t.fill, o), refused(t.__setitem__, 0, o))),
    "values that are refused": (object, lambda o, t: refused(mf.tensor, [[1, o]])),
    "a shape": (Index, lambda o, t: (mf.zeros((o, o)), mf.zeros(o))),
    "a shape that is refused": (object, lambda o, t: refused(mf.zeros, (1, o))),
    "a dtype": (lambda: np.dtype("int16"), lambda o, t: (mf.zeros(1, o), t.astype(o))),
    "a dtype that is refused": (object, lambda o, t: refused(mf.zeros, 1, o)),
    "a device": (Named, lambda o, t: mf.zeros(1, device=o)),
    "a device of ours": (
        lambda: mf.zeros(1).device,
        lambda o, t: (mf.zeros(1, device=o), t.to(o), hash(o), o == "cpu"),
    ),
    "a device that is refused": (object, lambda o, t: refused(mf.zeros, 1, device=o)),
    "a stream that is refused": (object, lambda o, t: refused(t.__dlpack__, stream=o)),
    "a version that is refused": (object, lambda o, t: refused(t.__dlpack__, max_version=o)),
    "a version": (lambda: (1, 0), lambda o, t: t.__dlpack__(max_version=o)),
    "a progress function": (lambda: lambda *args: None, lambda o, t: t.copy(progress=o)),
    "a capsule that was used": (used_capsule, lambda o, t: refused(mf.from_dlpack, o)),
    "into what is none": (object, lambda o, t: refused(mf.into, o, t)),
    "a tensor": (
        lambda: mf.zeros((2, 3)),
        lambda o, t: (
            o.T,
            o[0],
            np.from_dlpack(o),
            np.asarray(o),
            memoryview(o),
            o.__dlpack__(max_version=(1, 3)),
            mf.from_dlpack(o),
            mf.asarray(o),
            o == o,
            repr(o),
            o.tolist(),
            mf.equal(o, t),
            o.copy(t),
            o.__array_interface__,
            iter(o),
            o.__dlpack_device__(),
            mf.into(np.ndarray, o),
            mf.into(mf.Tensor, o),
        ),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_way_leaves_the_references_that_were_there(way):
    make, use = WAYS[way]
    o, t = make(), mf.zeros((2, 3))
    for _ in range(3):
        use(o, t)
    methods = [value for value in vars(type(o)).values() if callable(value) or isinstance(value, property)]
    modules = [module for name, module in sys.modules.items() if name.startswith("moonferry")]
    seen = [o, type(o), t, mf.Tensor, type(t.device), mf.asarray, AttributeError, *methods, *modules]
    gc.collect()
    before = [sys.getrefcount(x) for x in seen]
    for _ in range(TIMES):
        use(o, t)
    gc.collect()
    assert [sys.getrefcount(x) for x in seen] == before


def test_where_an_error_came_from_is_let_go_with_it():
    class Device:
        def __str__(self):
            if not gone:
                local = Index()
                gone.append(weakref.ref(local))
                raise AttributeError("not yet")
            return "cpu"

    gone = []
    assert mf._core._from_any([1, 2], device=Device()).tolist() == [1, 2] and gone[0]() is None


@pytest.mark.parametrize("name", ["device", "dtype", "__dlpack_device__", "shape", "strides"])
def test_what_is_given_out_again_and_again_keeps_its_references(name):
    t = mf.zeros((2, 3))

    def get():
        got = getattr(t, name)
        return got() if callable(got) else got

    kept = get()
    before = [sys.getrefcount(x) for x in (kept, type(kept))]
    for _ in range(TIMES):
        get()
    assert [sys.getrefcount(x) for x in (kept, type(kept))] == before


def test_what_methods_call_keeps_its_references():
    t, convert = mf.zeros((2, 3)), sys.modules["moonferry._convert"]
    seen = [convert, convert.to_numpy, convert.to_bytes, convert.reduce_ex]
    before = [sys.getrefcount(x) for x in seen]
    for _ in range(TIMES):
        t.__array__(), t.numpy(), t.tobytes(), t.__reduce_ex__(5)
    gc.collect()
    assert [sys.getrefcount(x) for x in seen] == before


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="None has no references that count")
def test_none_keeps_its_references():
    o, small = Producer(), mf.zeros(2)
    before = sys.getrefcount(None)
    for _ in range(1000):
        small.fill(1)
        small[0] = 1
        small.__dlpack__(max_version=None, stream=None)
        mf.from_dlpack(o, device=None, copy=None)
        mf.asarray(small, dtype=None)
        with mf.zeros(1):
            pass
    assert abs(sys.getrefcount(None) - before) < 500
