"""Memory that its engine took back: every use from Python raises, none touches it.

An engine wraps memory in C and hands the tensor to Python (here by ctypes and the C-API capsule), then calls
mf_tensor_invalidate.
"""

import copy
import ctypes as c
import os
import pickle

import numpy as np
import pytest

import dlpack_abi as abi
import moonferry as mf
from test_capi import Api


def closed():
    library = c.CDLL(os.path.join(os.path.dirname(mf._core.__file__), "libmoonferry.so.0"))
    api = Api.from_address(abi.capsule_pointer(mf._C_API))
    memory, handle, in_use = abi.Producer((2, 3), (3, 1)), c.c_void_p(), c.c_int32()
    wrapped = library.mf_tensor_wrap(c.byref(memory.dl), c.c_uint64(0), None, None, c.byref(handle), None)
    assert wrapped == 0
    t = api.wrap(handle)
    assert t.tolist() == [[0.0] * 3] * 2
    assert library.mf_tensor_invalidate(handle, c.byref(in_use), None) == 0
    memory.dl.data = None
    return t


USES = {
    "tolist": lambda t: t.tolist(),
    "item": lambda t: t[0, 0],
    "index": lambda t: t[0],
    "slice": lambda t: t[...],
    "set": lambda t: t.__setitem__((0, 0), 1),
    "set from itself": lambda t: t.__setitem__(..., t),
    "fill": lambda t: t.fill(1),
    "copy": lambda t: t.copy(),
    "copy into": lambda t: t.copy(mf.zeros((2, 3))),
    "copy from": lambda t: mf.zeros((2, 3)).copy(t),
    "astype": lambda t: t.astype("int32"),
    "T": lambda t: t.T,
    "permute": lambda t: t.permute_dims(1, 0),
    "reshape": lambda t: t.reshape(6),
    "broadcast": lambda t: t.broadcast_to((2, 2, 3)),
    "expand": lambda t: t.expand_dims(0),
    "squeeze": lambda t: t.squeeze(),
    "diagonal": lambda t: t.diagonal(),
    "reinterpret": lambda t: t.reinterpret("int32"),
    "as_readonly": lambda t: t.as_readonly(),
    "iterate": lambda t: list(t),
    "equal": lambda t: mf.equal(t, t),
    "export": lambda t: t.__dlpack__(max_version=(1, 3)),
    "legacy export": lambda t: t.__dlpack__(),
    "export of a copy": lambda t: t.__dlpack__(max_version=(1, 3), copy=True),
    "import": lambda t: mf.from_dlpack(t),
    "into": lambda t: mf.into(mf.Tensor, t),
    "tensor": lambda t: mf.tensor(t),
    "memoryview": lambda t: memoryview(t),
    "bytes": lambda t: bytes(t),
    "asarray": lambda t: np.asarray(t),
    "numpy": lambda t: t.numpy(),
    "tobytes": lambda t: t.tobytes(),
    "NumPy": lambda t: np.from_dlpack(t),
    "__array_interface__": lambda t: t.__array_interface__,
    "pickle": lambda t: pickle.dumps(t),
    "deepcopy": lambda t: copy.deepcopy(t),
}


# What gives the memory to somebody else, or takes it over.
EXCHANGES = (
    "export", "legacy export", "export of a copy", "import", "into", "memoryview", "bytes", "asarray", "numpy", "NumPy",
    "__array_interface__",
)  # fmt: skip


@pytest.mark.parametrize("name", USES)
def test_every_use_of_closed_memory_raises(name):
    t = closed()
    with pytest.raises(
        ValueError, match="memory (that )?was taken back (by its owner|.mf_tensor_invalidate.)"
    ) as raised:
        USES[name](t)
    assert (raised.type is mf.ExchangeError) == (name in EXCHANGES)


def test_what_touches_no_memory_still_works():
    t = closed()
    assert t.shape == (2, 3) and t.dtype == "float32" and len(t) == 2
    assert "float32" in repr(t)
