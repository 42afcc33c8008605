"""Pickling: every protocol, and protocol 5 without a copy of the elements."""

import copy
import pickle

import numpy as np
import pytest

import moonferry as mf

DTYPES = ["bool", "int8", "uint64", "float16", "bfloat16", "float32", "complex128", "float8_e4m3fn", "int4",
          "float32x4", "handle64"]  # fmt: skip


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_survives_every_protocol(dtype, protocol):
    t = mf.zeros((3, 4), dtype)
    if dtype in ("int8", "uint64", "float32", "float16", "bfloat16", "complex128", "int4"):
        t[...] = np.arange(12).reshape(3, 4) % 7
    back = pickle.loads(pickle.dumps(t, protocol))
    assert type(back) is mf.Tensor and back.dtype == t.dtype and mf.equal(back, t) and not back.readonly


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (2, 3, 4)])
def test_every_shape_survives(shape, protocol):
    t = mf.full(shape, 5, "int32")
    back = pickle.loads(pickle.dumps(t, protocol))
    assert back.shape == shape and mf.equal(back, t)


@pytest.mark.parametrize(
    "dtype, first, count, expected",
    [("int4", 2, 3, b"\xff\x0f"), ("uint1", 8, 9, b"\xff\x01"), ("float6_e2m3fn", 4, 3, b"\xff\xff\x03")],
)
def test_elements_that_end_within_a_byte_take_no_other_bits_along(dtype, first, count, expected):
    """Those of the next element, of memory that was used before, and what somebody else has put there."""
    whole = mf.full((6,), 255, "uint8").reinterpret(dtype)
    part = whole[:count]
    for t in (part, part.as_readonly(), part.copy(), whole[first : first + count], mf.asarray(part, copy=True)):
        assert t.tobytes() == expected
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            data = pickle.dumps(t, protocol)
            assert data == pickle.dumps(t, protocol) and whole.tobytes() not in data
            back = pickle.loads(data)
            assert mf.equal(back, t) and back.tobytes() == expected and back.readonly == t.readonly
        buffers = []
        data = pickle.dumps(t, 5, buffer_callback=buffers.append)
        assert [bytes(b) for b in buffers] == [expected]
        assert mf.equal(pickle.loads(data, buffers=buffers), t)


def test_views_are_pickled_compact():
    t = mf.asarray(np.arange(10000.0).reshape(100, 100))
    for view in (t[:2, :3], t.T[1:3, ::7], t[::-1, 0], t[0, 0:1].broadcast_to((5,))):
        data = pickle.dumps(view, 5)
        assert len(data) < 2000 and mf.equal(pickle.loads(data), view)


def test_protocol_5_hands_the_memory_out():
    t = mf.asarray(np.arange(1000.0))
    buffers = []
    data = pickle.dumps(t, 5, buffer_callback=buffers.append)
    assert len(data) < 500 and len(buffers) == 1
    raw = buffers[0].raw()
    assert raw.nbytes == 8000 and np.frombuffer(raw, "uint8").ctypes.data == t.data_ptr
    back = pickle.loads(data, buffers=buffers)
    assert mf.equal(back, t) and back.data_ptr == t.data_ptr and not back.readonly
    raw.release()
    buffers.clear()


def test_a_read_only_buffer_gives_a_read_only_tensor():
    t = mf.ones((8,))
    buffers = []
    data = pickle.dumps(t, 5, buffer_callback=buffers.append)
    back = pickle.loads(data, buffers=[bytes(buffers[0].raw())])
    assert back.readonly and mf.equal(back, t)
    changeable = bytearray(buffers[0].raw())
    back = pickle.loads(data, buffers=[changeable])
    back[0] = 9
    assert not back.readonly and bytes(changeable[:4]) == np.float32(9).tobytes()
    buffers.clear()


def test_a_buffer_of_the_wrong_size_is_refused():
    data = pickle.dumps(mf.ones((8,)), 5, buffer_callback=lambda buffer: None)
    for wrong in (b"", bytes(31)):
        with pytest.raises(ValueError):
            pickle.loads(data, buffers=[wrong])


def test_read_only_survives_being_pickled_or_becomes_a_copy():
    back = pickle.loads(pickle.dumps(mf.ones((2,)).as_readonly(), 5))
    assert back.tolist() == [1.0, 1.0]


def test_copy_module_copies():
    t = mf.tensor([1, 2, 3])
    for made in (copy.copy(t), copy.deepcopy(t), copy.deepcopy([t])[0]):
        made[0] = 9
        assert t.tolist() == [1, 2, 3]


def test_protocols_before_2_work_or_say_why():
    for protocol in (0, 1):
        try:
            assert mf.equal(pickle.loads(pickle.dumps(mf.ones((2,)), protocol)), mf.ones((2,)))
        except (TypeError, ValueError, pickle.PicklingError) as error:
            assert "protocol" in str(error)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_axes_in_another_order_travel_without_a_copy(protocol):
    """As NumPy's arrays in Fortran's order do."""
    base = mf.asarray(np.arange(24.0).reshape(2, 3, 4))
    for view in (base.T, base.permute_dims(1, 0, 2), base.permute_dims(2, 0, 1), base[:, :1].T, base.as_readonly().T):
        back = pickle.loads(pickle.dumps(view, protocol))
        assert mf.equal(back, view) and back.shape == view.shape
        longer = [i for i, n in enumerate(view.shape) if n > 1]
        if view.size == 24:
            assert [back.strides[i] for i in longer] == [view.strides[i] for i in longer]


def test_axes_in_another_order_hand_their_memory_out():
    t = mf.asarray(np.arange(1000.0).reshape(10, 100)).T
    buffers = []
    data = pickle.dumps(t, 5, buffer_callback=buffers.append)
    assert np.frombuffer(buffers[0].raw(), "uint8").ctypes.data == t.data_ptr
    back = pickle.loads(data, buffers=buffers)
    assert back.data_ptr == t.data_ptr and back.strides == t.strides and mf.equal(back, t)
    buffers.clear()


def test_memory_that_runs_backwards_or_repeats_is_copied():
    t = mf.asarray(np.arange(6.0).reshape(2, 3))
    for view in (t[::-1], t.T[:, ::-1], t[:, :1].broadcast_to((2, 5)), t[::2], t[:, ::2].T):
        back = pickle.loads(pickle.dumps(view, 5))
        assert back.is_contiguous and mf.equal(back, view)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_read_only_part_stays_read_only(protocol):
    """Its elements are gathered in a copy, which may be written."""
    part = mf.tensor([[1, 2, 3], [4, 5, 6]])[:, ::2].as_readonly()
    back = pickle.loads(pickle.dumps(part, protocol))
    assert back.readonly and back.tolist() == [[1, 3], [4, 6]]
