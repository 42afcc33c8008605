"""Tensors handed through many libraries: dtype, values, flags and address are followed at each hop."""

import faulthandler
import gc
import importlib
import importlib.util
import operator
import os
import threading
import time

import numpy as np
import pytest
import support
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import moonferry as mf

LONG = os.environ.get("MOONFERRY_SPEC_LONG") == "1"


def by_table(path):
    module, name = path.split(".")
    return lambda t: mf.into(getattr(importlib.import_module(module), name), t)


def by_function(path):
    return lambda t: importlib.import_module(path).from_dlpack(t)


def by_numpy(module, names):
    """A function of NumPy arrays that gives the library's own array over the same memory."""
    return lambda t: operator.attrgetter(names)(importlib.import_module(module))(np.asarray(t))


def by_array(module):
    """The array of our own extension."""
    return lambda t: importlib.import_module(module).Array.take(t)


def by_bytes(t):
    """mpi4py's view of memory knows neither dtype nor shape."""
    return importlib.import_module("mpi4py.MPI").buffer.frombuffer(t), t.dtype, t.shape


# Name -> module, how it takes a tensor, and how it is taken back. These can live in one process; TensorFlow and MXNet
# cannot, and are in the cells of the matrix alone.
HOPS = {
    "Moonferry": ("moonferry", lambda t: t[...], lambda x: x),
    "NumPy": ("numpy", np.from_dlpack, mf.from_dlpack),
    "NumPy's buffer": ("numpy", np.asarray, mf.asarray),
    "memoryview": ("builtins", memoryview, mf.asarray),
    "PyTorch": ("torch", by_table("torch.Tensor"), mf.from_dlpack),
    "tvm-ffi": ("tvm_ffi", by_function("tvm_ffi"), mf.from_dlpack),
    # By a capsule, which does not say whose it is: JAX's arrays come in read-only (test_jax.py), and stay so for
    # the rest of a chain.
    "JAX": ("jax", by_function("jax.numpy"), lambda x: mf.from_dlpack(x.__dlpack__())),
    "TVM": ("tvm", by_function("tvm.runtime"), mf.from_dlpack),
    "PaddlePaddle": ("paddle", by_table("paddle.Tensor"), mf.from_dlpack),
    "Numba": ("numba", by_numpy("jitted", "same"), mf.asarray),
    "PyArrow": ("pyarrow", by_numpy("pyarrow", "Tensor.from_numpy"), mf.asarray),
    "nanobind": ("exchange_nanobind", by_array("exchange_nanobind"), lambda x: mf.from_dlpack(x.array())),
    "pybind11": ("exchange_pybind11", by_array("exchange_pybind11"), mf.asarray),
    "mpi4py": ("mpi4py", by_bytes, lambda x: mf.frombuffer(x[0], x[1]).reshape(x[2])),
}
PRESENT = [name for name, (module, *_) in HOPS.items() if importlib.util.find_spec(module)]

# PaddlePaddle only begins a chain, with memory that is Moonferry's and that it has not taken already: it calls deleters
# under a lock of its own, and knows what it took by the address alone. Later in a chain threads would wait for ever, or
# one thread for itself (test_peers.py).
AFTER = [name for name in PRESENT if name != "PaddlePaddle"]
DTYPES = [
    "int8",
    "uint8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "bool",
]


@pytest.fixture(scope="module", autouse=True)
def wide_numbers():
    if "JAX" in PRESENT:
        importlib.import_module("jax").config.update("jax_enable_x64", True)


def can(name, dtype):
    """What a library has no way to take is no hop for it."""
    lacks = {
        "TVM": ("complex64", "complex128"),
        "Numba": ("float16",),
        "PyArrow": ("bool", "complex64", "complex128"),
    }
    return dtype not in lacks.get(name, ())


def hop(name, t):
    """t through one library: the tensor that comes back. The library's own array is dropped before."""
    _, take, give = HOPS[name]
    x = take(t)
    back = give(x)
    del x
    return back


@settings(
    max_examples=200 if LONG else 40,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(
    start=st.sampled_from(PRESENT),
    chain=st.lists(st.sampled_from(AFTER), min_size=19, max_size=19),
    dtype=st.sampled_from(DTYPES),
)
def test_twenty_hops(start, chain, dtype):
    raw = support.pattern(dtype, (8, 16))
    first = mf.frombuffer(bytearray(raw.tobytes())).copy().reinterpret(dtype).reshape(8, 16)
    t, place = first, first.data_ptr
    for name in [start, *chain]:
        if can(name, dtype):
            t = hop(name, t)
            assert (t.data_ptr, t.dtype, t.shape, t.readonly) == (place, dtype, (8, 16), False), name
            assert t.strides == (16, 1), name
    assert bytes(memoryview(t.reshape(-1).reinterpret("uint8"))) == raw.tobytes()
    del first
    assert t.data_ptr == place and bytes(memoryview(t.reshape(-1).reinterpret("uint8"))) == raw.tobytes()


KEEP_READ_ONLY = ["Moonferry", "NumPy", "NumPy's buffer", "memoryview"]


@settings(max_examples=40, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(chain=st.lists(st.sampled_from(KEEP_READ_ONLY), min_size=20, max_size=20))
def test_read_only_lasts_for_twenty_hops(chain):
    t = mf.asarray(np.arange(6.0)).as_readonly()
    place = t.data_ptr
    for name in chain:
        t = hop(name, t)
        assert t.readonly and t.data_ptr == place, name


@settings(max_examples=40, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    chain=st.lists(st.sampled_from(["Moonferry", "NumPy", "NumPy's buffer", "memoryview"]), min_size=20, max_size=20),
    key=st.sampled_from(["[::2, ::-1]", ".T", "[1:, 3]", "[::-1]", "[:, :0]", "[..., None]"]),
)
def test_a_layout_lasts_for_twenty_hops(chain, key):
    first = mf.asarray(np.arange(24.0).reshape(4, 6))
    t = eval("first" + key, {"first": first})
    wanted = (t.data_ptr, t.shape, t.strides, t.tolist())
    for name in chain:
        t = hop(name, t)
        assert (t.shape, t.tolist()) == (wanted[1], wanted[3]), name
        if t.size:
            assert (t.data_ptr, t.strides) == (wanted[0], wanted[2]), name


def test_a_million_hops_without_growth():
    quick = PRESENT if LONG else [name for name in PRESENT if name in ("NumPy", "tvm-ffi", "PyTorch", "Moonferry")]
    count = 1_000_000 if LONG else 100_000
    for name in quick:
        t = mf.ones((4, 6))
        take, give = HOPS[name][1:]
        seen = support.rounds(take, give, t, count // len(quick), mf.ledger)
        nbytes, blocks, pages, references, alive = seen
        assert nbytes < 8 and blocks < 0.1 and pages < 1 << 20 and references == 0 and alive == 0, (name, seen)


def test_all_libraries_at_once_from_eight_threads():
    """Each thread sends tensors of its own and one that all share, through libraries in an order of its own."""
    wrong, counts = [], [0] * 8

    def work(me, shared):
        rng = np.random.default_rng(me)
        try:
            while time.monotonic() < until:
                t = mf.full((8, 8), me, "float32")
                u = shared
                if "PaddlePaddle" in PRESENT:
                    t = hop("PaddlePaddle", t)
                for name in rng.permutation(AFTER):
                    t, u = hop(name, t), hop(name, u)
                counts[me] += 1
                assert t.tolist() == [[float(me)] * 8] * 8
                assert u.data_ptr == shared.data_ptr
        except BaseException as error:
            wrong.append(error)

    common = mf.asarray(np.arange(4096.0)).copy()  # aligned as JAX wants it, which copies otherwise
    for name in AFTER:  # imports, and what each does once, from this thread
        hop(name, common)
    until = time.monotonic() + (60 if LONG else 5)
    threads = [threading.Thread(target=work, args=(me, common), daemon=True) for me in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.1, until + 120 - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        faulthandler.dump_traceback(all_threads=True)
        pytest.fail("threads wait for each other: standard error says where")
    del common, threads, thread
    gc.collect()
    assert not wrong and min(counts) > 0, (wrong, counts)
