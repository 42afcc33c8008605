"""Memory over many exchanges: the process does not grow. The benchmark does the same at greater length."""

import ctypes
import gc
import pickle

import numpy as np
import pytest

import moonferry as mf

PAGE = 4096
pytestmark = pytest.mark.skipif(
    hasattr(ctypes.CDLL(None), "__asan_init"), reason="AddressSanitizer keeps freed memory, so the process grows"
)


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * PAGE


def grows_by(once, warm=2000, rounds=20000):
    """The bytes that the process gains over many calls after it has settled."""
    for _ in range(warm):
        once()
    gc.collect()
    before = resident()
    for _ in range(rounds):
        once()
    gc.collect()
    return resident() - before


LIMIT = 1 << 20


def refused():
    try:
        mf.from_dlpack(3)
    except (AttributeError, TypeError):
        pass


def refused_export(t):
    try:
        t.__dlpack__(dl_device=(2, 0))
    except BufferError:
        pass


MANY_AXES = np.zeros((1,) * 30)
CALLS = {
    "export": lambda t, a: t.__dlpack__(max_version=(1, 3)),
    "legacy export": lambda t, a: t.__dlpack__(),
    "own import": lambda t, a: mf.from_dlpack(t),
    "import of a capsule": lambda t, a: mf.from_dlpack(t.__dlpack__(max_version=(1, 3))),
    "import from NumPy": lambda t, a: mf.from_dlpack(a),
    "export to NumPy": lambda t, a: np.from_dlpack(t),
    "copying import": lambda t, a: mf.from_dlpack(a, copy=True),
    "memoryview": lambda t, a: memoryview(t),
    "memoryview of many axes": lambda t, a: memoryview(mf.asarray(MANY_AXES)),
    "buffer import": lambda t, a: mf.asarray(memoryview(a)),
    "views": lambda t, a: t.T[1:, None].expand(0),
    "into": lambda t, a: mf.into(mf.Tensor, t),
    "asarray": lambda t, a: np.asarray(t),
    "attributes": lambda t, a: (t.shape, t.strides, t.dtype, t.device, t.nbytes),
    "assignment": lambda t, a: t.__setitem__(0, a[0]),
    "values": lambda t, a: (t.tolist(), t[0, 0]),
    "pickle": lambda t, a: pickle.loads(pickle.dumps(t, 5)),
    "refused import": lambda t, a: refused(),
    "refused export": lambda t, a: refused_export(t),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_process_does_not_grow(name):
    t, a = mf.zeros((4, 3), "float64"), np.zeros((4, 3))
    call = CALLS[name]
    slow = name in ("pickle", "assignment", "values", "copying import")
    assert grows_by(lambda: call(t, a), rounds=4000 if slow else 20000) < LIMIT


def test_a_hundred_thousand_exchanges_leave_the_size_where_it_was():
    t, a = mf.zeros((4, 3)), np.zeros((4, 3))
    assert grows_by(lambda: (np.from_dlpack(t), mf.from_dlpack(a)), warm=5000, rounds=50000) < LIMIT


def test_torch_through_the_table_does_not_grow(torch):
    t, x = mf.zeros((4, 3)), torch.zeros(4, 3)
    assert grows_by(lambda: (mf.from_dlpack(x), mf.into(torch.Tensor, t), torch.from_dlpack(t)), rounds=10000) < LIMIT


def test_tvm_through_the_table_does_not_grow(tvm):
    echo, t = tvm.get_global_func("testing.echo"), mf.zeros((4, 3))
    assert grows_by(lambda: echo(t), rounds=10000) < LIMIT


def test_an_import_adds_little_to_what_the_producer_holds():
    a = np.zeros((4, 3))
    base = mf.ledger()
    kept = [mf.from_dlpack(a) for _ in range(1000)]
    assert mf.ledger().storages - base.storages == 1000
    before = resident()
    kept += [mf.from_dlpack(a) for _ in range(20000)]
    # NumPy's own capsule and struct are in this number too; the benchmark tells them apart.
    assert (resident() - before) / 20000 < 256 + 400
    kept.clear()
