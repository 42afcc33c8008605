"""Memory that ends: every public function and method with each of its allocations failing in turn.

The Nth allocation of the runtime fails, once and from then on. The call then raises MemoryError, or does
without the memory; nothing is lost, and the same call succeeds afterwards. Allocations are Moonferry's own:
Python's are CPython's business.
"""

import ctypes
import functools
import gc
import os
import pickle
import subprocess
import sys
import types

import numpy as np
import pytest

import dlpack_abi as abi
import moonferry as mf
import scarce


def fixture_tensors():
    t = mf.asarray(np.arange(24.0).reshape(4, 6))
    return t, mf.zeros((4, 6), "float64"), mf.tensor(3)


def pickled():
    return pickle.dumps(mf.ones((3,)), 5)


def refused(call, *arguments, error=mf.ExchangeError):
    """The call is; where there is no memory for what the message tells, that is the error."""
    try:
        call(*arguments)
    except error as raised:
        assert "NULL" not in str(raised)
        return
    raise AssertionError("it was not refused")


def ignore(*arguments):
    pass


def ring_of_a_handle():
    ring = mf.Ring(2)
    return mf.Ring.from_handle(ring.handle)


TAKES, REFUSES = abi.taker("probe_take_gives_and_deletes"), abi.taker("probe_take_refuses_and_deletes")
PICKLED = pickled()
UNALIGNED = memoryview(np.zeros(5, np.dtype([("a", "i4"), ("b", "i1")]))["a"])
ARRAY = np.arange(6.0).reshape(2, 3)
# Who asks is told by the globals of the caller.
asked_by_jax = types.FunctionType((lambda t: t.__dlpack__()).__code__, {"__name__": "jax.dlpack"})
CALLS = {
    "threads": lambda t, u, s: mf.threads(),
    "empty": lambda t, u, s: mf.empty((2, 3)),
    "zeros": lambda t, u, s: mf.zeros((2, 3)),
    "ones": lambda t, u, s: mf.ones((2, 3), "float64"),
    "full": lambda t, u, s: mf.full((2, 3), 4),
    "tensor of numbers": lambda t, u, s: mf.tensor([[1, 2], [3, 4]]),
    "tensor of a number": lambda t, u, s: mf.tensor(3.5),
    "tensor of an array": lambda t, u, s: mf.tensor(ARRAY),
    "tensor of a tensor": lambda t, u, s: mf.tensor(t, "int32"),
    "asarray of an array": lambda t, u, s: mf.asarray(ARRAY),
    "asarray with a cast": lambda t, u, s: mf.asarray(ARRAY, "int8"),
    "asarray of a buffer": lambda t, u, s: mf.asarray(memoryview(b"abc")),
    "asarray of a buffer that cannot be shared": lambda t, u, s: mf.asarray(UNALIGNED),
    "frombuffer": lambda t, u, s: mf.frombuffer(b"abcdefgh", "int32"),
    "from_dlpack of a tensor": lambda t, u, s: mf.from_dlpack(t),
    "from_dlpack of an array": lambda t, u, s: mf.from_dlpack(ARRAY),
    "from_dlpack with a copy": lambda t, u, s: mf.from_dlpack(ARRAY, copy=True),
    "from_dlpack of a capsule": lambda t, u, s: mf.from_dlpack(t.__dlpack__(max_version=(1, 3))),
    "from_dlpack of a legacy capsule": lambda t, u, s: mf.from_dlpack(t.__dlpack__()),
    "__dlpack__": lambda t, u, s: t.__dlpack__(max_version=(1, 3)),
    "__dlpack__ legacy": lambda t, u, s: t.__dlpack__(),
    "__dlpack__ of what JAX may only read": lambda t, u, s: asked_by_jax(t.as_readonly()),
    "__dlpack__ with a copy": lambda t, u, s: t.__dlpack__(max_version=(1, 3), copy=True),
    "__dlpack__ legacy with a copy": lambda t, u, s: t.__dlpack__(copy=True),
    "into": lambda t, u, s: mf.into(mf.Tensor, t),
    "into who deletes at once": lambda t, u, s: mf.into(TAKES, t),
    "into who refuses and deletes": lambda t, u, s: refused(mf.into, REFUSES, t),
    "__arrow_c_array__": lambda t, u, s: t.__arrow_c_array__(),
    "__arrow_c_array__ of a view": lambda t, u, s: t.T.__arrow_c_array__(),
    "__arrow_c_array__ of truth values": lambda t, u, s: mf.ones((3, 3), "bool").__arrow_c_array__(),
    "__arrow_c_schema__": lambda t, u, s: t.__arrow_c_schema__(),
    "fields": lambda t, u, s: mf.fields(bytearray(36), [("a", "float32", 2), ("b", "int16")]),
    "Ring": lambda t, u, s: mf.Ring((2, 3), "int16", 2),
    "Ring of tensors": lambda t, u, s: mf.Ring([mf.zeros(2), mf.zeros(2)]),
    "Ring from a handle": lambda t, u, s: ring_of_a_handle(),
    "Ring into": lambda t, u, s: mf.Ring(2).into(np.ndarray),
    "numpy": lambda t, u, s: t.numpy(),
    "tobytes of a view": lambda t, u, s: t.T.tobytes(),
    "contiguous": lambda t, u, s: t.T.contiguous(),
    "from_arrow": lambda t, u, s: mf.from_arrow(mf.ones((4,))),
    "wrap": lambda t, u, s: mf.wrap((ctypes.c_float * 4)(), (4,), "float32"),
    "index": lambda t, u, s: t[1],
    "slice": lambda t, u, s: t[1:, ::2],
    "element": lambda t, u, s: t[1, 2],
    "set an element": lambda t, u, s: u.__setitem__((1, 2), 3),
    "fill a view": lambda t, u, s: u.__setitem__(slice(1, 2), 3),
    "set from a tensor": lambda t, u, s: u.__setitem__(..., t),
    "set from an overlap": lambda t, u, s: u.__setitem__(slice(1, None), u[:-1]),
    "set from a list": lambda t, u, s: u.__setitem__(0, [1, 2, 3, 4, 5, 6]),
    "set from an array": lambda t, u, s: u.__setitem__(slice(0, 2), np.ones((2, 6), "int8")),
    "set from leading axes": lambda t, u, s: u.__setitem__(slice(1, 3), t[None, :1]),
    "set from what does not fit": lambda t, u, s: refused(u.__setitem__, 0, t[0, :3], error=ValueError),
    "iterate": lambda t, u, s: list(t),
    "T": lambda t, u, s: t.T,
    "permute": lambda t, u, s: t.permute_dims(1, 0),
    "reshape": lambda t, u, s: t.reshape(24),
    "reshape, a copy": lambda t, u, s: t.T.reshape(-1, copy=None),
    "close": lambda t, u, s: t.T.close(),
    "broadcast": lambda t, u, s: t.broadcast_to((2, 4, 6)),
    "squeeze": lambda t, u, s: t[:1].squeeze(0),
    "expand": lambda t, u, s: t.expand_dims(0),
    "diagonal": lambda t, u, s: t.diagonal(),
    "reinterpret": lambda t, u, s: t.reinterpret("uint8"),
    "as_readonly": lambda t, u, s: t.as_readonly(),
    "fill": lambda t, u, s: u.fill(3),
    "fill with a number that does not fit": lambda t, u, s: refused(s.fill, 2**63, error=OverflowError),
    "fill with a complex number": lambda t, u, s: refused(s.fill, 1j, error=TypeError),
    "copy": lambda t, u, s: t.copy(),
    "copy with progress": lambda t, u, s: t.copy(progress=ignore),
    "copy into": lambda t, u, s: u.copy(t),
    "copy into with progress": lambda t, u, s: u.copy(t, progress=ignore),
    "copy into with a cast": lambda t, u, s: u.copy(np.ones((4, 6), "int16")),
    "astype": lambda t, u, s: t.astype("float32"),
    "tolist": lambda t, u, s: t.T.tolist(),
    "item": lambda t, u, s: s.item(),
    "float": lambda t, u, s: float(s),
    "int": lambda t, u, s: int(s),
    "bool": lambda t, u, s: bool(s),
    "complex": lambda t, u, s: complex(s),
    "as an index": lambda t, u, s: "abcdef"[s],
    "repr": lambda t, u, s: repr(t),
    "equal": lambda t, u, s: mf.equal(t, u),
    "memoryview": lambda t, u, s: memoryview(t).tolist(),
    "__array__": lambda t, u, s: np.asarray(t),
    "__array__ with a cast": lambda t, u, s: np.asarray(t, "int8"),
    "__array_interface__": lambda t, u, s: t.__array_interface__,
    "to": lambda t, u, s: t.to("cpu", copy=True),
    "acquire": lambda t, u, s: t.acquire("host", True),
    "record": lambda t, u, s: t.record(None, True),
    "pickle": lambda t, u, s: pickle.dumps(t, 5),
    "pickle out of band": lambda t, u, s: pickle.dumps(t, 5, buffer_callback=lambda buffer: None),
    "pickle protocol 2": lambda t, u, s: pickle.dumps(t.T, 2),
    "unpickle": lambda t, u, s: pickle.loads(PICKLED),
    "shape and strides": lambda t, u, s: (t.shape, t.strides, t.dtype, t.device, t.flags),
    "a shape whose numbers are made": lambda t, u, s: t.broadcast_to((300, 400, 4, 6)).shape,
    "np.from_dlpack": lambda t, u, s: np.from_dlpack(t),
}


@pytest.mark.parametrize("sticky", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("name", CALLS)
def test_each_allocation_fails_in_turn(name, sticky):
    t, u, s = fixture_tensors()
    call, before = CALLS[name], mf.ledger()
    for nth in range(100):
        mf._core._fault_arm(nth, sticky)
        refused = False
        try:
            call(t, u, s)
        except MemoryError:
            refused = True
        finally:
            hits = mf._core._fault_hits()
            mf._core._fault_arm(-1, False)
        assert mf.ledger() == before and (hits > 0 or not refused)
        if hits == 0:
            break
    else:
        raise AssertionError("the call never came to its end")
    call(t, u, s)
    assert mf.ledger() == before and t.tolist() == np.arange(24.0).reshape(4, 6).tolist()


@pytest.mark.parametrize("versioned", [False, True])
def test_a_struct_that_could_not_be_taken_stays_the_producers(versioned):
    for nth in range(20):
        producer = abi.Producer(versioned=versioned)
        capsule = producer.capsule()
        mf._core._fault_arm(nth, False)
        try:
            t = mf.from_dlpack(capsule)
        except MemoryError:
            assert abi.capsule_name(capsule) == producer.name and producer.deletes == 0
            del capsule
            assert producer.deletes == 1
            continue
        finally:
            mf._core._fault_arm(-1, False)
        assert nth > 0
        del t
        assert producer.deletes == 1
        return
    raise AssertionError("the import never came to its end")


# CPython 3.11 loses an object of its own where one of these fails, or says something else.
LEFT_TO_CPYTHON = {"pickle", "pickle out of band", "pickle protocol 2", "unpickle"}
# From 3.12 on it frees memory twice where a function that it makes within a call has no memory, as a generator has one.
if sys.version_info >= (3, 12):
    LEFT_TO_CPYTHON.add("fields")
OF_OTHERS = {"numpy": NotImplementedError, "from_arrow": ctypes.ArgumentError}


def scarce_calls():
    """For scarce.py: the calls, each with the errors that say that it had no memory; and what collects garbage."""
    arguments = fixture_tensors()
    return {
        name: (functools.partial(call, *arguments), (MemoryError, OF_OTHERS.get(name, MemoryError)))
        for name, call in CALLS.items()
        if name not in LEFT_TO_CPYTHON
    }, scarce.allocated.collect


def call_without_memory(name):
    """Each allocation of CPython's fails in turn; of the call, and of a deleter that follows."""
    from _testcapi import remove_mem_hooks, set_nomemory

    call, arguments = CALLS[name], fixture_tensors()
    call(*arguments)
    gc.collect()
    before = mf.ledger()
    for nth in range(1000):
        set_nomemory(nth, nth + 1)
        try:
            call(*arguments)
        except (MemoryError, OF_OTHERS.get(name, MemoryError)):
            continue
        finally:
            remove_mem_hooks()
        gc.collect()
        assert mf.ledger() == before, name
        return
    raise AssertionError("the call never came to its end")


# CPython 3.11 loses objects where a generator has no memory, as those that these calls make. Other versions lose more,
# and free some twice.
LEAKS_OF_CPYTHON = {"repr", "wrap"}


def test_each_allocation_of_cpython_s_fails_in_turn():
    pytest.importorskip("_testcapi")
    left_out = LEFT_TO_CPYTHON | (LEAKS_OF_CPYTHON if sys.version_info >= (3, 12) else set())
    names = [name for name in CALLS if name not in left_out]
    script = f"import test_fault\nfor name in {names}: test_fault.call_without_memory(name)"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=os.path.dirname(__file__))


WHOSE = ["modules", "runtime", *(["cpython"] if sys.version_info[:2] == (3, 11) else [])]


@pytest.mark.parametrize("whose", WHOSE)
def test_what_fails_leaves_nothing(whose):
    """Each allocation many times, the runtime's, CPython's and what the module asks malloc for: counted to the byte."""
    if whose == "cpython":
        pytest.importorskip("_testcapi")
    left = scarce.left("test_fault", whose)
    assert left.keys() == CALLS.keys() - LEFT_TO_CPYTHON
    assert {name: places for name, places in left.items() if places and name not in LEAKS_OF_CPYTHON} == {}


def test_a_deleter_of_python_s_does_not_meet_the_error_of_the_import():
    for nth in range(20):
        lender = abi.Lender()
        mf._core._fault_arm(nth, False)
        try:
            t = mf.from_dlpack(lender)
        except MemoryError:
            assert lender.deletes == 1
            continue
        finally:
            mf._core._fault_arm(-1, False)
        assert nth > 0 and lender.deletes == 0
        del t
        assert lender.deletes == 1
        return
    raise AssertionError("the import never came to its end")


def test_a_deleter_of_python_s_does_not_meet_the_error_of_the_object():
    """The object of a view that holds the memory alone."""
    testing = pytest.importorskip("_testcapi")
    lender, none_at_hand = abi.Lender(), [mf.empty(0) for _ in range(200)]
    capsule = lender.__dlpack__()
    with pytest.raises(MemoryError):
        testing.set_nomemory(0, 1)
        mf.from_dlpack(capsule)
    testing.remove_mem_hooks()
    assert lender.deletes == 1 and none_at_hand


def test_a_buffer_that_could_not_be_wrapped_is_released():
    for nth in range(5):
        data, failed = bytearray(8), False
        mf._core._fault_arm(nth, True)
        try:
            mf.frombuffer(data)
        except MemoryError:
            failed = True
        finally:
            mf._core._fault_arm(-1, False)
        data.append(1)
        if not failed:
            assert nth > 0
            return
    raise AssertionError("the call never came to its end")


# What concerns a device as a whole has specs in gpu/.
DEVICES = {"current_stream", "device_count", "device_reason", "from_cuda_array", "pool_limit", "pool_stats"}
DEVICES |= {"stream_none", "synchronize", "trim"}


def names_called():
    """The names of all attributes and globals that the calls above use."""
    return {name for call in CALLS.values() for name in call.__code__.co_names}


def test_every_public_name_is_in_the_loop():
    """A method or a function that is added without a call above is named here."""
    methods = {name for name in dir(mf.Tensor) if not name.startswith("_") and callable(getattr(mf.Tensor, name))}
    functions = {name for name in mf.__all__ if callable(getattr(mf, name)) and not isinstance(getattr(mf, name), type)}
    functions -= {name for name in functions if isinstance(getattr(mf, name), mf.DType)}
    quiet = {"ledger", "get_include", "get_lua_path", *DEVICES}
    assert (methods | functions) - quiet - names_called() == set()
