"""Exchange with JAX on the CPU. Its arrays are immutable, and it asks for alignment."""

import gc

import numpy as np
import pytest

import moonferry as mf

DTYPES = ["bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "bfloat16", "float32", "complex64"]
NARROW = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz"]


@pytest.mark.parametrize("dtype", DTYPES + NARROW)
def test_from_jax(jax, dtype):
    x = jax.numpy.ones((2, 3), dtype)
    t = mf.from_dlpack(x)
    assert t.dtype == dtype and t.shape == (2, 3) and t.tolist() == np.asarray(x).tolist()
    assert t.data_ptr == x.unsafe_buffer_pointer()


@pytest.mark.parametrize("dtype", DTYPES + NARROW)
def test_to_jax(jax, dtype):
    t = mf.ones((2, 3), dtype)
    x = jax.dlpack.from_dlpack(t)
    assert str(x.dtype) == dtype and x.shape == (2, 3) and np.asarray(x).tolist() == t.tolist()
    assert x.unsafe_buffer_pointer() == t.data_ptr
    del x
    gc.collect()


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0), (2, 3, 4)])
def test_shapes_cross_both_ways(jax, shape):
    x = jax.numpy.ones(shape, "float32")
    assert mf.from_dlpack(x).tolist() == np.asarray(x).tolist()
    assert np.asarray(jax.numpy.from_dlpack(mf.ones(shape))).tolist() == np.asarray(x).tolist()


def test_layouts_that_jax_has_cross_without_a_copy(jax):
    t = mf.asarray(np.arange(24, dtype="float32").reshape(4, 6)).copy()
    x = jax.numpy.from_dlpack(t.T)
    assert np.asarray(x).tolist() == t.T.tolist()


def test_layouts_that_jax_has_not_are_refused(jax):
    t = mf.asarray(np.arange(24, dtype="float32").reshape(4, 6)).copy()
    for view in (t[:, ::2], t[::-1], t[1:, 1:]):
        with pytest.raises(RuntimeError, match="compact"):
            jax.numpy.from_dlpack(view)
        assert np.asarray(jax.numpy.from_dlpack(view.copy())).tolist() == view.tolist()


def test_unaligned_memory_is_copied_unless_that_is_forbidden(jax):
    t = mf.ones((17,))[1:]
    x = jax.numpy.from_dlpack(t)
    assert np.asarray(x).tolist() == [1] * 16 and x.unsafe_buffer_pointer() != t.data_ptr
    with pytest.raises(ValueError, match="requires a copy"):
        jax.numpy.from_dlpack(t, copy=False)


def test_copies_are_made_as_asked(jax):
    x = jax.numpy.ones((4,), "float32")
    assert mf.from_dlpack(x, copy=True).data_ptr != x.unsafe_buffer_pointer()
    assert mf.from_dlpack(x, copy=False).data_ptr == x.unsafe_buffer_pointer()


def test_a_deleted_array_is_refused_as_such(jax):
    x = jax.numpy.ones((4,), "float32")
    x.delete()
    for take in (mf.from_dlpack, mf.asarray):
        for options in ({}, {"copy": True}, {"copy": False}, {"device": "cpu"}):
            with pytest.raises(mf.ExchangeError, match=f"^{take.__name__}: the '.*ArrayImpl' was deleted"):
                take(x, **options)


def test_each_side_outlives_the_other(jax):
    assert mf.from_dlpack(jax.numpy.arange(100))[99] == 99
    x = jax.numpy.from_dlpack(mf.tensor([1.0, 2.0], "float32"))
    gc.collect()
    assert float(x[1]) == 2.0 and float((x + 1)[0]) == 2.0
    del x
    gc.collect()


def test_computed_arrays_come_in(jax):
    x = jax.jit(lambda v: v * 2)(jax.numpy.arange(4.0))
    assert mf.from_dlpack(x).tolist() == [0, 2, 4, 6]


def test_through_every_hand(jax, torch):
    a = mf.ones((64,))
    x = torch.from_dlpack(jax.numpy.from_dlpack(a))
    assert mf.from_dlpack(x).data_ptr == a.data_ptr


@pytest.mark.parametrize("dtype", [*DTYPES, "float8_e4m3fn"])
def test_jax_numpy_takes_a_tensor(jax, dtype):
    t = mf.ones((2, 3), dtype)
    x = jax.numpy.asarray(t)
    assert str(x.dtype) == dtype and x.shape == (2, 3) and np.asarray(x).tolist() == t.tolist()
    assert str(np.result_type(t)) == dtype and np.dtype(t) == x.dtype
    del x
    gc.collect()


def test_what_numpy_has_no_dtype_for_has_no_numpy_dtype():
    t = mf.empty((2,), "float32x4")
    assert not hasattr(t, "__numpy_dtype__")


def test_into_a_jax_array_is_jaxs_own_import(jax):
    t = mf.tensor([[1.0, 2.0], [3.0, 4.0]], "float32")
    for cls in (jax.Array, type(jax.numpy.zeros(1))):
        x = mf.into(cls, t)
        assert isinstance(x, jax.Array) and x.unsafe_buffer_pointer() == t.data_ptr
        del x
    gc.collect()


def test_jaxs_arrays_stay_immutable(jax):
    """Its struct does not say so, but its arrays never change."""
    x = jax.numpy.arange(4.0)
    for t in (mf.asarray(x), mf.from_dlpack(x), mf.asarray(x)[1:]):
        assert t.readonly
        with pytest.raises(ValueError, match="read-only"):
            t.fill(7)
    assert mf.from_dlpack(x).data_ptr == x.unsafe_buffer_pointer()
    for own in (mf.tensor(x), mf.from_dlpack(x, copy=True), mf.asarray(x).copy()):
        own.fill(7)
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_jax_takes_what_must_not_be_written(jax):
    """It asks for the struct that cannot say read-only, and is given it, because it never writes: a donated argument
    neither. Others are refused."""
    before = mf.ledger()
    t = mf.empty(1 << 16, pages=True)
    t.fill(1)
    x = jax.numpy.from_dlpack(t.as_readonly())
    assert x.unsafe_buffer_pointer() == t.data_ptr
    y = jax.jit(lambda v: v.at[0].set(9), donate_argnums=0)(x)
    assert float(y[0]) == 9 and t[0] == 1
    again = jax.numpy.from_dlpack(mf.from_dlpack(y))
    assert again.unsafe_buffer_pointer() == y.unsafe_buffer_pointer()
    with pytest.raises(BufferError, match="read-only"):
        t.as_readonly().__dlpack__()
    del t, x, y, again
    gc.collect()
    assert mf.ledger() == before
