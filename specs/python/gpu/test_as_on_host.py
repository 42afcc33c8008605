"""What a tensor of a device gives is what one of the host gives: any dtype, any layout, whatever takes elements out.

Arrow's arrays are read through the driver, on a stream that waits for nobody: what they point to must be the device's.
"""

import ctypes
import functools
import os
import pickle
import random
import re

import pytest

import moonferry as mf
from moonferry import _arrow

np = pytest.importorskip("numpy")

DTYPES = [
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32",
    "float64", "complex32", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "float6_e2m3fn",
    "int4", "uint1", "float32x4", "int8x3",
]  # fmt: skip
CASTS = ["bool", "uint8", "int32", "float16", "bfloat16", "float32", "complex64", "int4", "float4_e2m1fn"]
NAMES = re.compile(r"\b(cuda|rocm)\w*(:\d)?|\bcpu\b|\d+")  # of devices, and where memory is


def last_to_front(t):
    return t.permute_dims(t.ndim - 1, *range(t.ndim - 1))


VIEWS = {
    "turned": last_to_front, "reversed": lambda t: t[::-1], "every other": lambda t: t[..., ::2],
    "part": lambda t: t[1:], "one": lambda t: t[0, ...], "repeated": lambda t: t.broadcast_to((3, *t.shape)),
    "flat": lambda t: t.reshape(-1), "diagonal": lambda t: t.diagonal(), "bytes": lambda t: t.reinterpret("uint8"),
    "wider": lambda t: t.reinterpret("float32"), "new axis": lambda t: t.expand_dims(0),
}  # fmt: skip


def filled(t):
    u = t.copy()
    u.fill(1)
    return u.tobytes()


def stored_part(t):
    u = t.copy()
    u[1:2] = u[0:1]
    return u.tobytes()


def arrow(t, gpu):
    schema, capsule = t.__arrow_c_device_array__()
    name = _arrow._struct_in(schema, _arrow._Schema, b"arrow_schema").format
    array, lengths = _arrow._struct_in(capsule, _arrow._Array, b"arrow_device_array"), []
    while True:
        lengths.append(array.length)
        if array.n_children == 0:
            break
        array = array.children[0].contents
    nbytes = (array.length + 7) // 8 if t.dtype == "bool" else array.length * t.itemsize
    if nbytes == 0 or t.device == "cpu":
        return name, lengths, ctypes.string_at(array.buffers[1], nbytes) if nbytes else b""
    gpu.make_current(t.device.id)
    seen = gpu.read_beside(array.buffers[1], nbytes)
    gpu.make_current(0)
    return name, lengths, seen


def cast(name, t, gpu):
    return t.astype(name).tobytes()


TAKEN = {
    "layout": lambda t, gpu: (t.shape, t.strides, t.nbytes, t.is_contiguous),
    "list": lambda t, gpu: repr(t.tolist()),
    "bytes": lambda t, gpu: t.tobytes(),
    "copy": lambda t, gpu: (t.copy().tobytes(), t.contiguous().strides),
    "pickle": lambda t, gpu: pickle.loads(pickle.dumps(t)).tobytes(),
    "part": lambda t, gpu: stored_part(t),
    "filled": lambda t, gpu: filled(t),
    "equal": lambda t, gpu: (mf.equal(t, t.copy()), mf.equal(t, t.astype("float32"))),
    "number": lambda t, gpu: repr(t.item()),
    "capsule": lambda t, gpu: mf.from_dlpack(t, device="cpu", copy=True).tobytes(),
    "arrow": arrow,
    **{f"as {name}": functools.partial(cast, name) for name in CASTS},
}  # fmt: skip


def answer(data, dtype, shape, views, take, device, gpu):
    """What it gives, or what it says to that."""
    nbytes = mf.empty(shape, dtype).nbytes
    raw = np.resize(np.frombuffer(data, "uint8"), nbytes)
    try:
        raw = mf.asarray(raw & 1 if dtype == "bool" else raw)
        t = mf._core._from_raw(raw, shape, mf.DType(dtype), False).to(device)
        for view in views:
            t = VIEWS[view](t)
        return TAKEN[take](t, gpu)
    except (TypeError, ValueError, IndexError, BufferError) as error:
        return type(error).__name__, NAMES.sub("#", str(error))


def draw(rng):
    """A case: data, dtype, shape and views."""
    shape = tuple(rng.choice([0, 1, 2, 3, 8, 17]) for _ in range(rng.randint(0, 3)))
    views = [rng.choice(list(VIEWS)) for _ in range(rng.randint(0, 3))]
    return rng.randbytes(rng.randint(1, 32)), rng.choice(["bool", "bool", *DTYPES]), shape, views


@pytest.mark.parametrize("seed", [1, int(os.environ.get("MOONFERRY_SPEC_SEED", "2"))], ids=["fixed", "moving"])
@pytest.mark.parametrize("take", TAKEN)
def test_what_it_gives(gpu, take, seed):
    places = [f"{gpu.kind}:{ordinal}" for ordinal in range(min(gpu.count, 2))]
    places += ["cuda_host", "cuda_managed"] if gpu.kind == "cuda" else ["rocm_host"]
    rng = random.Random(f"{seed} {take}")
    for _ in range(40):
        case = draw(rng)
        expected = answer(*case, take, "cpu", gpu)
        for place in places:
            assert answer(*case, take, place, gpu) == expected, (place, case)
