"""Exchange with tvm-ffi: its functions take Moonferry tensors through the table and give them back."""

import numpy as np
import pytest

import moonferry as mf

DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16",
    "float32", "float64", "float8_e4m3fn", "float8_e5m2",
]  # fmt: skip


@pytest.fixture
def echo(tvm):
    return tvm.get_global_func("testing.echo")


@pytest.mark.parametrize("dtype", DTYPES)
def test_both_ways(tvm, dtype):
    t = mf.zeros((2, 3), dtype)
    x = tvm.from_dlpack(t)
    assert (
        tuple(x.shape) == (2, 3)
        and str(x.dtype) in (dtype, dtype.replace("bool", "bool"))
        and x.data_ptr() == t.data_ptr
    )
    back = mf.from_dlpack(x)
    assert back.dtype == dtype and back.data_ptr == t.data_ptr and back.shape == (2, 3)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (2, 3, 4)])
def test_shapes_cross_both_ways(tvm, shape):
    t = mf.ones(shape)
    back = mf.from_dlpack(tvm.from_dlpack(t))
    assert back.shape == shape and back.tolist() == t.tolist()


def test_layouts_cross(tvm):
    t = mf.asarray(np.arange(24).reshape(4, 6))
    for view in (t.T, t[:, ::2], t[1], t[::-1]):
        back = mf.from_dlpack(tvm.from_dlpack(view))
        assert back.strides == view.strides and back.data_ptr == view.data_ptr and back.tolist() == view.tolist()


def test_a_function_takes_a_tensor_and_gives_a_moonferry_tensor(echo):
    t = mf.tensor([1.0, 2.0, 3.0])
    back = echo(t)
    assert type(back) is mf.Tensor and back.data_ptr == t.data_ptr and back.tolist() == [1, 2, 3]
    t[0] = 9
    assert back[0] == 9


def test_a_function_takes_views(echo):
    t = mf.asarray(np.arange(24).reshape(4, 6))
    for view in (t.T, t[:, ::2], t[::-1], t[0:0], mf.tensor(5)):
        back = echo(view)
        assert back.shape == view.shape and back.strides == view.strides and back.tolist() == view.tolist()


def test_a_python_function_sees_the_tensor(tvm):
    seen = []
    function = tvm.convert(lambda x: seen.append((tuple(x.shape), str(x.dtype), x.data_ptr())))
    t = mf.zeros((2, 3), "int16")
    function(t)
    assert seen == [((2, 3), "int16", t.data_ptr)]


def test_read_only_tensors_are_taken_and_come_back_writable(echo):
    """tvm-ffi does not look at the flag."""
    t = mf.zeros((2,)).as_readonly()
    back = echo(t)
    assert back.data_ptr == t.data_ptr and back.tolist() == [0, 0] and not back.readonly


def test_the_owner_of_the_memory_changes_hands(tvm):
    x = tvm.from_dlpack(mf.tensor([1, 2, 3]))
    assert mf.ledger().storages == 1
    assert mf.from_dlpack(x).tolist() == [1, 2, 3]
    del x
    assert tuple(mf.ledger()) == (0, 0, 0, 0)


def test_through_every_hand(tvm, torch):
    x = torch.arange(6.0).reshape(2, 3)
    t = mf.from_dlpack(tvm.from_dlpack(mf.from_dlpack(x)))
    a = np.from_dlpack(t)
    assert a.ctypes.data == x.data_ptr() and a.tolist() == x.tolist()


def test_into_needs_no_table_where_the_library_has_from_dlpack(tvm):
    assert not hasattr(tvm.Tensor, "__dlpack_c_exchange_api__")
    made = mf.into(tvm.Tensor, mf.ones((2,)))
    assert isinstance(made, tvm.Tensor) and np.from_dlpack(made).tolist() == [1, 1]
