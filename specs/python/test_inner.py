"""What only the package's own Python calls in its C module, called wrongly: an exception, and the tensor that was given
can be closed."""

import pytest

import moonferry as mf

core = mf._core
COMPACT = "a contiguous Tensor that the host can read"


def compact():
    return mf.zeros((2, 3), "int32")


@pytest.mark.parametrize(
    "call, error, said",
    [
        (lambda t: core._raw_bytes(3), TypeError, COMPACT),
        (lambda t: core._raw_bytes(t.T), TypeError, COMPACT),
        (lambda t: core._from_raw(t), TypeError, "shape, dtype and padded"),
        (lambda t: core._from_raw(3, (2,), "int8", False), TypeError, COMPACT),
        (lambda t: core._from_raw(t.T, (6,), "int32", False), TypeError, COMPACT),
        (lambda t: core._from_raw(t, (5,), "int32", False), ValueError, "24 bytes given for a tensor of 20"),
        (lambda t: core._from_buffer(t), TypeError, "takes 2 arguments"),
        (lambda t: core._wrap_pointer(t), TypeError, "takes 6 or 7 arguments"),
        (lambda t: core._wrap_pointer("x", (2,), None, "int8", False, t), TypeError, "int"),
        (lambda t: core._wrap_pointer(1 << 70, (2,), None, "int8", False, t), OverflowError, "int"),
        (lambda t: core._wrap_pointer(t.data_ptr, (2, 3), (1,), "int8", False, t), ValueError, "each axis"),
        (lambda t: core._wrap_pointer(t.data_ptr, (2,), None, "int8", False, t, "x"), ValueError, "device"),
        (lambda t: core._from_nested([1]), TypeError, "takes 2 arguments"),
        (lambda t: core._pools_trim("1"), TypeError, "integer"),
        (lambda t: core._pools_trim(-1), ValueError, "wait_ms is -1; 0 or more expected"),
        (lambda t: core._stream_none(99), ValueError, "meaning is 99; 0 "),
        (lambda t: core._device_of_pointer("cpu", t.data_ptr), ValueError, "one of a GPU driver expected"),
        (lambda t: core._device_of_pointer("cuda"), TypeError, "takes 2 arguments"),
        (lambda t: core._device_of_pointer("cuda", "1"), TypeError, "integer"),
        (lambda t: core._gl_fence("1"), TypeError, "integer"),
        (lambda t: core._gl_fence(1 << 70), OverflowError, "int"),
        (lambda t: core._gl_fence(0), ValueError, "gl is NULL"),
        (lambda t: core._tensor_fence(t, None), TypeError, "takes 3 arguments"),
        (lambda t: core._tensor_fence(3, None, True), TypeError, "expected a moonferry.Tensor, not 'int'"),
        (lambda t: core._tensor_fence(t, 3, True), TypeError, "fence must be None or a capsule"),
        (lambda t: core._tensor_at("1"), TypeError, "integer"),
        (lambda t: core._tensor_at(1 << 70), OverflowError, "int"),
        (lambda t: core._tensor_at(0), ValueError, "handle is 0"),
    ],
)
def test_what_they_do_not_take_they_refuse(call, error, said):
    before = mf.ledger()
    t = compact()
    with pytest.raises(error, match=said):
        call(t)
    t.close()
    assert mf.ledger() == before


def test_what_is_no_tensor_is_not_touched():
    text = bytes(400)
    for call in (core._raw_bytes, lambda t: core._from_raw(t, (6,), "int32", False)):
        with pytest.raises(TypeError, match=COMPACT):
            call(text)
    assert text == bytes(400)


def test_bytes_of_the_wrong_layout_are_refused_and_their_tensor_can_be_closed():
    before = mf.ledger()
    for call in (core._raw_bytes, lambda t: core._from_raw(t, (6,), "int32", False)):
        t = compact()
        turned = t.T
        with pytest.raises(TypeError, match=COMPACT):
            call(turned)
        turned.close()
        t.close()
        assert mf.ledger() == before


def test_what_was_made_of_a_tensors_bytes_does_not_keep_it_from_being_closed():
    before = mf.ledger()
    for call in (core._raw_bytes, lambda t: core._from_raw(t, (6,), "int32", False)):
        t = compact()
        made = call(t)
        t.close()
        made.close()
        assert mf.ledger() == before
