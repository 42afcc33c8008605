"""Exchange with PyTorch, through its exchange table and through the methods."""

import numpy as np
import pytest

import dlpack_abi as abi
import moonferry as mf

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16",
    "float32", "float64", "complex64", "complex128", "complex32", "float8_e4m3fn", "float8_e5m2",
    "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
]  # fmt: skip


def zeros(torch, dtype, shape=(2, 3)):
    return torch.zeros(shape, dtype=torch.uint8).to(getattr(torch, dtype))


@pytest.fixture
def calls(torch, monkeypatch):
    """Counts Python-level exports of torch tensors: none happens where the table is used."""
    seen = []
    original = torch.Tensor.__dlpack__

    def counting(self, *args, **kwargs):
        seen.append(kwargs)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "__dlpack__", counting)
    return seen


@pytest.mark.parametrize("dtype", DTYPES)
def test_from_torch(torch, dtype, calls):
    x = zeros(torch, dtype)
    t = mf.from_dlpack(x)
    assert t.dtype == dtype and t.shape == (2, 3) and t.strides == (3, 1) and t.data_ptr == x.data_ptr()
    assert calls == []


@pytest.mark.parametrize("dtype", DTYPES)
def test_to_torch(torch, dtype):
    t = mf.zeros((2, 3), dtype)
    for x in (torch.from_dlpack(t), mf.into(torch.Tensor, t), torch.utils.dlpack.from_dlpack(t.__dlpack__())):
        assert x.dtype == getattr(torch, dtype) and tuple(x.shape) == (2, 3) and x.stride() == (3, 1)
        assert x.data_ptr() == t.data_ptr


def test_two_halves_of_a_byte_cross(torch):
    x = torch.zeros(6, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    t = mf.from_dlpack(x)
    assert (t.dtype.code, t.dtype.bits, t.dtype.lanes) == (17, 4, 2) and t.nbytes == 6
    back = torch.from_dlpack(t)
    assert back.dtype == x.dtype and back.data_ptr() == x.data_ptr()


def test_writes_are_seen_both_ways(torch):
    x = torch.zeros(2, 2)
    t = mf.from_dlpack(x)
    t[0, 1], x[1, 0] = 5, 6
    assert x.tolist() == t.tolist() == [[0, 5], [6, 0]]
    u = mf.zeros((2,))
    y = mf.into(torch.Tensor, u)
    u[0], y[1] = 1, 2
    assert y.tolist() == u.tolist() == [1, 2]


def test_subclasses_use_the_table_too(torch):
    class Sub(torch.Tensor):
        asked = 0

        def __dlpack__(self, **kwargs):
            Sub.asked += 1
            return super().__dlpack__(**kwargs)

    x = torch.arange(3.0).as_subclass(Sub)
    assert mf.from_dlpack(x).data_ptr == x.data_ptr() and Sub.asked == 0
    p = torch.nn.Parameter(torch.zeros(2), requires_grad=False)
    assert mf.from_dlpack(p).data_ptr == p.data_ptr()


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (1, 1, 1), (2, 3, 4, 5)])
def test_shapes_cross_both_ways(torch, shape):
    x = torch.ones(shape)
    t = mf.from_dlpack(x)
    assert t.shape == shape and t.tolist() == x.tolist()
    for back in (torch.from_dlpack(t), mf.into(torch.Tensor, t)):
        assert tuple(back.shape) == shape and back.tolist() == x.tolist()


def test_layouts_cross_both_ways(torch):
    x = torch.arange(60).reshape(3, 4, 5)
    for view in (x.permute(2, 0, 1), x[:, ::2], x[1:, 1:, 1], x[:, :1].expand(3, 4, 5), x.mT):
        t = mf.from_dlpack(view)
        assert t.strides == view.stride() and t.data_ptr == view.data_ptr() and t.tolist() == view.tolist()
    t = mf.asarray(np.arange(60).reshape(3, 4, 5))
    for view in (t.T, t[:, ::2], t[1:, 1:, 1], t[:, None]):
        for back in (torch.from_dlpack(view), mf.into(torch.Tensor, view)):
            assert back.stride() == view.strides and back.data_ptr() == view.data_ptr
            assert back.tolist() == view.tolist()


def test_negative_strides_are_refused_and_nothing_crashes(torch):
    # PyTorch's own code ends the process on them. Who else asks gets them.
    t = mf.tensor([1.0, 2.0, 3.0])[::-1]
    for _ in range(3):
        with pytest.raises(mf.ExchangeError, match=r"stride is negative.*copy\(\)"):
            torch.from_dlpack(t)
        assert np.from_dlpack(t).tolist() == [3.0, 2.0, 1.0]
    for turned in (mf.asarray(np.arange(6).reshape(2, 3))[:, ::-1].T, t[:2].copy()[::-1]):
        with pytest.raises(mf.ExchangeError, match="stride is negative"):
            torch.from_dlpack(turned)
    repeated = t[1:2].broadcast_to((3, 1))
    assert repeated.strides == (0, -1) and torch.from_dlpack(repeated).tolist() == [[2.0]] * 3
    assert torch.from_dlpack(t, copy=True).tolist() == [3.0, 2.0, 1.0]
    assert torch.from_dlpack(t.copy()).tolist() == [3.0, 2.0, 1.0]
    assert torch.from_dlpack(t[1:2]).tolist() == [2.0]
    with pytest.raises(mf.ExchangeError, match=r"negative strides.*copy\(\)"):
        mf.into(torch.Tensor, t)
    with pytest.raises(mf.ExchangeError, match=r"axis 0 has -1"):
        mf.into(torch.Tensor, t[1:])
    assert mf.into(torch.Tensor, t.copy()).tolist() == [3.0, 2.0, 1.0]
    assert mf.into(torch.Tensor, t[1:2]).tolist() == [2.0]
    assert mf.into(torch.Tensor, repeated).tolist() == [[2.0]] * 3


def test_unaligned_memory_crosses(torch):
    raw = bytearray(17)
    t = mf.frombuffer(raw, "float32", count=4, offset=1)
    t[...] = [1, 2, 3, 4]
    x = torch.from_dlpack(t)
    assert x.data_ptr() == t.data_ptr and x.tolist() == [1, 2, 3, 4]
    assert mf.from_dlpack(x).data_ptr == t.data_ptr


def test_tensors_whose_bits_say_another_value_are_refused(torch):
    x = torch.tensor([1 + 2j, 3 - 4j])
    with pytest.raises(BufferError, match="conjugate bit"):
        mf.from_dlpack(x.conj())
    with pytest.raises(BufferError, match="negative bit"):
        mf.from_dlpack(x.conj().imag)
    view = torch.view_as_real(x).T
    assert mf.from_dlpack(view).tolist() == view.tolist() == [[1, 3], [2, -4]]


def test_tensors_that_need_a_gradient_are_refused(torch):
    x = torch.ones(3, requires_grad=True)
    for view in (x, x * 2):
        with pytest.raises(BufferError, match="require gradient"):
            mf.from_dlpack(view)
    assert mf.from_dlpack(x.detach()).data_ptr == x.data_ptr()


@pytest.mark.parametrize("copy", [None, False, True])
@pytest.mark.parametrize("name", ["quint8", "qint8", "qint32"])
@pytest.mark.filterwarnings("ignore")  # PyTorch is about to drop them
def test_quantised_tensors_are_refused_with_what_has_their_numbers(torch, name, copy):
    x = torch.quantize_per_tensor(torch.ones(3), 0.5, 0, getattr(torch, name))
    with pytest.raises(mf.ExchangeError, match=r"types are not supported.*; x\.dequantize\(\) has its numbers"):
        mf.asarray(x, copy=copy)
    assert mf.asarray(x.dequantize()).tolist() == [1, 1, 1] and mf.asarray(x.int_repr()).tolist() == [2, 2, 2]


def test_a_tensor_of_numbers_has_no_such_remedy(torch):
    with pytest.raises(mf.ExchangeError, match=r"use tensor\.detach\(\)$"):
        mf.asarray(torch.ones(3, requires_grad=True), copy=False)


def test_tensors_without_strided_memory_are_refused(torch):
    with pytest.raises(BufferError, match="layout"):
        mf.from_dlpack(torch.eye(3).to_sparse())
    with pytest.raises(ValueError, match="meta"):
        mf.from_dlpack(torch.zeros(2, device="meta"))


@pytest.mark.filterwarnings("ignore:into. the tensor is read-only")
def test_read_only_is_said_and_pytorch_does_not_look(torch):
    """What PyTorch does with the flag is PyTorch's; a struct that cannot carry it is not made."""
    gives = (torch.from_dlpack, lambda t: mf.into(torch.Tensor, t))
    for value, give in enumerate(gives, 1):
        t = mf.zeros((2,)).as_readonly()
        assert abi.managed(t.__dlpack__(max_version=(1, 3))).flags == abi.READ_ONLY
        x = give(t)
        x.fill_(value)
        assert x.data_ptr() == t.data_ptr and t.tolist() == [value] * 2
    with pytest.raises(BufferError, match="read-only"):
        torch.utils.dlpack.from_dlpack(t.__dlpack__())


@pytest.mark.parametrize("copy", [None, False, True])
def test_copies_are_made_as_asked(torch, copy):
    x = torch.ones(3)
    t = mf.from_dlpack(x, copy=copy)
    assert (t.data_ptr == x.data_ptr()) == (copy is not True) and t.tolist() == [1, 1, 1]
    u = mf.ones((3,))
    y = torch.from_dlpack(u, copy=copy)
    assert (y.data_ptr() == u.data_ptr) == (copy is not True) and y.tolist() == [1, 1, 1]


def test_each_side_outlives_the_other(torch):
    assert mf.from_dlpack(torch.arange(100))[99] == 99
    x = mf.into(torch.Tensor, mf.tensor([1, 2, 3]))
    assert x.tolist() == [1, 2, 3] and mf.ledger().storages == 1
    y = x[1:]
    del x
    assert y.tolist() == [2, 3] and mf.ledger().storages == 1


def test_storage_returns_when_torch_lets_go(torch):
    x = torch.from_dlpack(mf.zeros((1000,)))
    assert mf.ledger().bytes == 4000
    del x
    assert tuple(mf.ledger()) == (0, 0, 0, 0)


def test_as_tensor_and_functions_of_torch_take_tensors(torch):
    t = mf.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert torch.as_tensor(t).tolist() == t.tolist()
    x = torch.nn.functional.relu(torch.from_dlpack(t) - 2)
    assert mf.from_dlpack(x).tolist() == [[0, 0], [1, 2]]


def test_asarray_and_assignment_take_torch_tensors(torch):
    x = torch.arange(4, dtype=torch.bfloat16)
    assert mf.asarray(x).data_ptr == x.data_ptr() and mf.tensor(x).tolist() == [0, 1, 2, 3]
    t = mf.zeros((2, 4))
    t[1] = x
    assert t.tolist() == [[0] * 4, [0, 1, 2, 3]]


def test_refused_exports_leave_nothing_behind(torch):
    for dtype in ("int4", "float6_e2m3fn", "handle64", "float32x4", "int24"):
        t = mf.zeros((4,), mf.DType(dtype))
        for give, error in ((torch.from_dlpack, BufferError), (lambda t: mf.into(torch.Tensor, t), RuntimeError)):
            with pytest.raises(error, match="Unsupported|does not support"):
                give(t)
