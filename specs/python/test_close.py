"""Tensor.close and `with tensor:`: the object ends, and the memory with its last view, export or call."""

import copy
import ctypes
import gc
import inspect
import pickle
import sys
import threading
import weakref

import numpy as np
import pytest

import dlpack_abi as abi
import moonferry as mf
from test_capi import Api

SAID = "tensor is closed"
VERSION = (1, 3)


def closed(*args):
    t = mf.tensor(*args) if args else mf.tensor([[1, 2, 3], [4, 5, 6]], "int32")
    t.close()
    return t


# What is left of a closed tensor: its end, and what every object has.
STAYS = {"close", "closed", "__exit__", "__repr__", "__hash__", "__eq__", "__ne__", "__sizeof__", "__doc__"}
# Of object, or of the class: they do not ask the tensor.
OF_OBJECT = {
    "__class__", "__delattr__", "__dir__", "__format__", "__getattribute__", "__getstate__", "__init__", "__reduce__",
    "__init_subclass__", "__lt__", "__le__", "__gt__", "__ge__", "__new__", "__setattr__", "__str__",
    "__subclasshook__", "__module__", "__dlpack_c_exchange_api__", "__weaklistoffset__",
}  # fmt: skip
ARGUMENTS = {
    "__getitem__": (0,), "__setitem__": (0, 1), "__delitem__": (0,), "acquire": (), "astype": ("int8",),
    "broadcast_to": ((2, 3),), "copy": (), "expand_dims": (0,), "fill": (1,), "reinterpret": ("float32",),
    "reshape": (6,), "to": ("cpu",), "__reduce_ex__": (5,), "__buffer__": (0,), "__release_buffer__": None,
}  # fmt: skip
TWO = "add sub mul matmul truediv floordiv mod pow divmod and or xor lshift rshift".split()
ARGUMENTS |= {f"__{side}{name}__": (1,) for side in ("", "r") for name in TWO}


@pytest.mark.parametrize("name", sorted(set(dir(mf.Tensor)) - STAYS - OF_OBJECT))
def test_every_use_of_a_closed_tensor_says_that_it_is_closed(name):
    t, arguments = closed(), ARGUMENTS.get(name, ())
    if arguments is None:
        return
    with pytest.raises(TypeError if name == "__delitem__" else ValueError, match="deleted" if "del" in name else SAID):
        value = getattr(t, name)
        assert callable(value) and not inspect.isclass(value), f"{name} gave {value!r}"
        value(*arguments)


def from_table(t, slot):
    table = abi.DLPackExchangeAPI.from_address(abi.capsule_pointer(mf.Tensor.__dlpack_c_exchange_api__))
    place = abi.DLTensor()  # as large as a pointer, too
    assert abi.FromPyObject(getattr(table, slot))(t, ctypes.addressof(place)) == 0
    return place


FUNCTIONS = {
    "from_dlpack": lambda t: mf.from_dlpack(t),
    "from_dlpack, a copy": lambda t: mf.from_dlpack(t, copy=True),
    "asarray": lambda t: mf.asarray(t),
    "tensor": lambda t: mf.tensor(t),
    "equal": lambda t: mf.equal(t, t),
    "equal, second": lambda t: mf.equal(mf.zeros((2, 3), "int32"), t),
    "into": lambda t: mf.into(np.ndarray, t),
    "into, by the table": lambda t: mf.into(mf.Tensor, t),
    "copy from it": lambda t: mf.zeros((2, 3)).copy(t),
    "copy from it, with progress": lambda t: mf.zeros((2, 3)).copy(t, progress=print),
    "copy, with progress": lambda t: t.copy(progress=print),
    "assign it": lambda t: mf.zeros((2, 3)).__setitem__(..., t),
    "as an element": lambda t: mf.zeros(3).__setitem__(0, t),
    "as a fill": lambda t: mf.zeros(3).fill(t),
    "as an owner": lambda t: mf.wrap(1 << 20, 1, owner=t),
    "in a ring": lambda t: mf.Ring([t, t, t]),
    "as an owner's array": lambda t: mf.frombuffer(t),
    "memoryview": memoryview,
    "bytes": bytes,
    "len": len,
    "list": list,
    "float": float,
    "int": int,
    "bool": bool,
    "complex": complex,
    "index": lambda t: [1, 2][t],
    "in": lambda t: 1 in t,
    "np.asarray": np.asarray,
    "np.from_dlpack": np.from_dlpack,
    "pickle": lambda t: pickle.dumps(t, 5),
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    "raw bytes": lambda t: mf._core._raw_bytes(t),
    "from raw": lambda t: mf._core._from_raw(t, (2, 3), "int32", False),
    "with": lambda t: t.__enter__(),
    "set an attribute": lambda t: setattr(t, "shape", (3, 2)),
    "capi": lambda t: capi().unwrap(t),
    "capi, retained": lambda t: capi().retain(t),
    "the table's export": lambda t: from_table(t, "managed_tensor_from_py_object_no_sync"),
    "the table's borrow": lambda t: from_table(t, "dltensor_from_py_object_no_sync"),
}


def capi():
    return Api.from_address(abi.capsule_pointer(mf._C_API))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_that_takes_a_closed_tensor_says_so(name):
    before = mf.ledger()
    with pytest.raises(ValueError, match=SAID):
        FUNCTIONS[name](closed())
    assert mf.ledger() == before


def test_the_export_that_repeats_the_last_one_finds_the_tensor_closed():
    """It is read in a way of its own (test_dlpack.py)."""
    with mf.zeros(2) as t:
        t.__dlpack__(max_version=VERSION)
    with pytest.raises(ValueError, match="closed"):
        t.__dlpack__(max_version=VERSION)


def test_close_gives_the_memory_back_and_twice_is_fine():
    before = mf.ledger()
    t = mf.zeros(1000)
    assert not t.closed and mf.ledger() != before
    assert t.close() is None and t.closed and mf.ledger() == before
    t.close()
    assert t.closed


def test_a_with_block_closes():
    before = mf.ledger()
    with mf.zeros(1000) as t:
        assert t.size == 1000
    assert t.closed and mf.ledger() == before
    with pytest.raises(KeyError), mf.zeros(1000) as t:
        raise KeyError("x")
    assert t.closed and mf.ledger() == before
    with mf.zeros(1000) as t:
        t.close()


def test_what_is_left_of_a_closed_tensor():
    t, u = closed(), closed()
    assert repr(t) == str(t) == "moonferry.Tensor(closed)"
    assert t == t and not t != t and hash(t) == hash(t) and len({t, u}) == 2
    assert weakref.ref(t)() is t and sys.getsizeof(t) < 200


def test_views_and_consumers_keep_the_memory():
    before = mf.ledger()
    t = mf.tensor([[1, 2], [3, 4]], "int32")
    view, array, other = t.T, np.from_dlpack(t), mf.from_dlpack(t)
    t.close()
    other[0, 0] = 9
    assert view.tolist() == [[9, 3], [2, 4]] and array[0, 0] == 9
    del view, array, other
    assert mf.ledger() == before


def test_a_buffer_that_is_out_is_a_buffer_error():
    before = mf.ledger()
    t = mf.tensor([1, 2, 3], "uint8")
    buffers = [memoryview(t), memoryview(t)]
    for left in ("2 buffers of the tensor are out", "1 buffer of the tensor is out"):
        with pytest.raises(BufferError, match=f"{left}, of a memoryview or a NumPy array"):
            t.close()
        assert not t.closed and t.tolist() == [1, 2, 3]
        buffers.pop().release()
    t.close()
    assert mf.ledger() == before


def test_a_with_block_whose_end_is_refused_says_so():
    t = mf.zeros(3)
    with pytest.raises(BufferError, match="1 buffer"), t:
        held = t.numpy()
    assert not t.closed and held.sum() == 0


def test_a_refused_buffer_is_not_counted():
    t = mf.zeros(3).as_readonly()
    with pytest.raises(TypeError, match="not writable"):
        (ctypes.c_float * 3).from_buffer(t)
    t.close()


def test_memory_that_was_wrapped_goes_back_to_its_owner():
    class Owner:
        pass

    owner, a = Owner(), np.zeros(4, "float32")
    gone = weakref.ref(owner)
    t = mf.wrap(a.ctypes.data, 4, owner=owner)
    del owner
    assert gone() is not None
    t.close()
    assert gone() is None


def test_what_runs_inside_of_a_call_may_close_the_tensor():
    """A progress function, an __index__, a finalizer: the call goes on, and the memory goes when it ends."""
    before = mf.ledger()
    t, seen = mf.tensor([1.0, 2.0, 3.0]), []

    def progress(done, total):
        t.close()
        seen.append((t.closed, mf.ledger() != before))

    u = t.copy(progress=progress)
    assert u.tolist() == [1.0, 2.0, 3.0] and seen == [(True, True)]
    u.close()
    assert mf.ledger() == before


class Closes:
    """A number that closes a tensor when it is asked for."""

    def __init__(self, t, number):
        self.t, self.number = t, number

    def __index__(self):
        self.t.close()
        return self.number

    __float__ = __index__


CLOSING = {
    "t[i]": lambda t: t[Closes(t, 1)],
    "t[i:]": lambda t: t[Closes(t, 0) :],
    "t[0] = x": lambda t: t.__setitem__(0, Closes(t, 1)),
    "fill": lambda t: t.fill(Closes(t, 1)),
    "reshape": lambda t: t.reshape(Closes(t, 3)),
    "permute_dims": lambda t: t.permute_dims(Closes(t, 0)),
    "expand_dims": lambda t: t.expand_dims(Closes(t, 0)),
}


@pytest.mark.parametrize("name", CLOSING)
def test_an_argument_may_close_the_tensor(name):
    before = mf.ledger()
    t = mf.tensor([1.0, 2.0, 3.0])
    made = CLOSING[name](t)
    assert t.closed and (not isinstance(made, mf.Tensor) or made.size == 3)
    del t, made
    assert mf.ledger() == before


def test_a_collection_inside_of_an_attribute_may_close_the_tensor():
    """The tuples of shape and strides are allocated, which runs finalizers in older CPythons."""

    class Cycle:
        def __init__(self, t):
            self.t, self.me = t, self

        def __del__(self):
            self.t.close()

    before, thresholds = mf.ledger(), gc.get_threshold()
    gc.collect()
    try:
        for _ in range(200):
            t = mf.zeros((2, 3, 4, 5))
            Cycle(t)
            gc.set_threshold(1)
            shapes = []
            try:
                while len(shapes) < 50:
                    shapes.append([t.shape, t.strides, t.T])
            except ValueError as e:
                assert SAID in str(e)  # noqa: PT017
            gc.set_threshold(*thresholds)
            assert all(s[:2] == [(2, 3, 4, 5), (60, 20, 5, 1)] for s in shapes)
    finally:
        gc.set_threshold(*thresholds)
    del t, shapes
    gc.collect()
    assert mf.ledger() == before


WORK = {
    "copy": lambda t, u: t.copy(),
    "copy from": lambda t, u: u.copy(t),
    "cast": lambda t, u: t.astype("float64"),
    "assign": lambda t, u: u.__setitem__(..., t),
    "fill": lambda t, u: t.fill(3),
    "equal": lambda t, u: mf.equal(t, u),
    "to": lambda t, u: t.to("cpu", copy=True),
    "export a copy": lambda t, u: t.__dlpack__(copy=True),
    "progress": lambda t, u: t.copy(progress=lambda *_: None),
    "Arrow": lambda t, u: t.T.__arrow_c_array__(),
    "tobytes": lambda t, u: t.T.tobytes(),
}


@pytest.mark.parametrize("name", WORK)
def test_one_thread_may_close_what_others_work_with(name):
    """The calls that are inside go on; what comes later is refused."""
    before, failed = mf.ledger(), []

    def worker(t, u, begun):
        try:
            begun.wait()
            while True:
                WORK[name](t, u)
        except ValueError as e:
            if SAID not in str(e):
                failed.append(e)
        except BaseException as e:  # noqa: BLE001
            failed.append(e)

    for _ in range(3):
        t, u = mf.zeros((512, 256)), mf.zeros((512, 256))
        begun = threading.Barrier(4)
        threads = [threading.Thread(target=worker, args=(t, u, begun)) for _ in range(3)]
        for thread in threads:
            thread.start()
        begun.wait()
        WORK[name](t, u)
        while not t.closed:
            try:
                t.close()
            except BufferError:  # tobytes has one for a moment
                pass
        for thread in threads:
            thread.join()
    del t, u, threads
    gc.collect()
    assert not failed and mf.ledger() == before


def borrow(t):
    return from_table(t, "dltensor_from_py_object_no_sync").data


LENT = {
    "unwrap": lambda t: capi().unwrap(t),
    "the table's borrowed view": borrow,
    "__array_interface__": lambda t: t.__array_interface__["data"][0],
    "owner": lambda t: mf.wrap(t.data_ptr, 3, "int64", owner=t),
}


@pytest.mark.parametrize("name", LENT)
def test_what_was_promised_as_long_as_the_object_lives_stays(name):
    before = mf.ledger()
    t = mf.tensor([1, 2, 3])
    given = LENT[name](t)
    t.close()
    assert t.closed and mf.ledger().bytes != before.bytes
    if isinstance(given, mf.Tensor):
        assert given.tolist() == [1, 2, 3]
    del given
    with pytest.raises(ValueError, match=SAID):
        t.shape  # noqa: B018
    del t
    assert mf.ledger() == before


def test_an_owner_that_is_closed_keeps_its_memory():
    t, before = mf.tensor([1, 2, 3]), mf.ledger().storages
    wrapped = mf.wrap(t.data_ptr, 3, "int64", owner=t)
    t.close()
    assert mf.ledger().storages == before + 1 and wrapped.tolist() == [1, 2, 3]


def test_what_close_lets_go_finds_the_tensor_closed():
    """Its owner's finalizer runs inside of close."""

    class Owner:
        pass

    owner, memory, said = Owner(), mf.zeros(3), []
    t = mf.wrap(memory.data_ptr, 3, "float32", owner=owner)
    weakref.finalize(owner, lambda: said.append((t.closed, pytest.raises(ValueError, getattr, t, "shape"))))
    del owner
    t.close()
    assert said and said[0][0]


# What each call has used is free when the tensor is closed after it, though the object lives.
USED = {
    "an attribute": lambda t: (t.shape, t.flags, t.T, t.__arrow_c_array__()),
    "an export": lambda t: (t.__dlpack__(), t.__dlpack__(copy=True), np.from_dlpack(t), mf.into(mf.Tensor, t)),
    "into by a protocol": lambda t: mf.into(np.ndarray, t),
    "the table": lambda t: capi().retain and mf.from_dlpack(t),
    "a comparison": lambda t: (mf.equal(t, t), mf.equal(t, mf.zeros(3)), mf.equal(mf.zeros(3), t)),
    "a number": lambda t: (
        float(t[:1]),
        pytest.raises(TypeError, float, t),
        pytest.raises(ValueError, t.item),
        t[0],
        t[-1],
        t.tolist(),
        list(t),
        len(t),
    ),
    "an assignment": lambda t: (
        t.__setitem__(0, 1),
        t.__setitem__(slice(2), [1, 2]),
        mf.zeros(3).copy(t),
        t.copy(t.copy()),
    ),
    "a buffer": lambda t: (memoryview(t).release(), bytes(t), pickle.dumps(t)),
    "views": lambda t: (t.reshape(1, 3), t.to("cpu"), t.astype("int8"), t.reinterpret("uint8"), t.as_readonly()),
    "a ring": lambda t: mf.Ring([t]).close(),
}


@pytest.mark.parametrize("name", USED)
def test_no_call_stays_inside(name):
    before = mf.ledger()
    t = mf.tensor([1, 2, 3])
    USED[name](t)
    gc.collect()
    t.close()
    assert mf.ledger() == before
