"""What JAX and Moonferry give each other on a simulated GPU; the argument says which case.

Responsible for saying "done" at its end. Must not know: how anything is checked.
"""

import sys

import jax
import numpy as np

import moonferry

N = 1 << 10
VALUES = np.arange(N, dtype="int32")


def given(value, device="cuda:0"):
    """A tensor that a stream of its own is about to fill."""
    with moonferry.Stream(device):
        t = moonferry.empty(N, "int32", device=device)
        t.fill(value)
    return t


def arrays():
    assert [d.platform for d in jax.devices()] == ["gpu", "gpu"]
    x = jax.device_put(VALUES, jax.devices()[0])
    y = jax.device_put(x, jax.devices()[1])
    assert (np.asarray(x) == VALUES).all() and (np.asarray(y) == VALUES).all()


def from_jax():
    for device in jax.devices():
        x = jax.device_put(VALUES, device)
        with moonferry.Stream(f"cuda:{device.id}"):
            t = moonferry.from_dlpack(x)
            assert t.device == f"cuda:{device.id}" and t.data_ptr == x.unsafe_buffer_pointer() and t.readonly
            assert t.tolist() == VALUES.tolist() and t.copy().tolist() == VALUES.tolist()


def to_jax():
    for device in jax.devices():
        t = given(7, f"cuda:{device.id}")
        for take in (jax.dlpack.from_dlpack, jax.numpy.from_dlpack, jax.numpy.asarray):
            x = take(t)
            assert x.devices() == {device} and x.unsafe_buffer_pointer() == t.data_ptr
            assert (np.asarray(x) == 7).all()


def there_and_back():
    x = jax.dlpack.from_dlpack(given(5))
    with moonferry.Stream("cuda:0"):
        t = moonferry.from_dlpack(x)
        assert t.tolist() == [5] * N
        u = t.copy()
        u.fill(6)
    assert (np.asarray(jax.dlpack.from_dlpack(u)) == 6).all()


def layouts():
    t = given(4).reshape(32, 32)
    x = jax.dlpack.from_dlpack(t.permute_dims())
    assert x.shape == (32, 32) and x.unsafe_buffer_pointer() == t.data_ptr
    try:
        jax.dlpack.from_dlpack(t[::2])
    except Exception as error:
        assert "trivial (compact)" in str(error)
    else:
        raise AssertionError("strides were taken")


class Unordered:
    """Gives its tensor to whoever asks, and has nobody wait for it."""

    def __init__(self, t):
        self.t = t

    def __dlpack__(self, **more):
        return self.t.__dlpack__(**{**more, "stream": -1})

    def __dlpack_device__(self):
        return self.t.__dlpack_device__()


def nobody_waits():
    np.asarray(jax.dlpack.from_dlpack(Unordered(given(9))))


def computed():
    x = jax.device_put(VALUES, jax.devices()[0])
    try:
        x + 1
    except jax.errors.JaxRuntimeError as error:
        assert "dnn_support != nullptr" in str(error)
    else:
        raise AssertionError("something was compiled")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    for each in ("cuda:0", "cuda:1"):
        moonferry.synchronize(each)
    print("done")
