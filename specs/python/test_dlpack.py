"""`__dlpack__` and `__dlpack_device__`: arguments, refusals, and what the structs hold.

Array API 2025.12 and DLPack 1.3, to the letter; the lifetime of capsules is in test_capsule.py.
"""

import ctypes as c
import enum
import re
import sys

import numpy as np
import pytest

import dlpack_abi as abi
import moonferry as mf

VERSIONED = {"max_version": (1, 3)}


class Kind(enum.IntEnum):
    CPU = 1
    CUDA = 2


def test_device_is_a_pair_of_numbers():
    kind, index = mf.zeros((2,)).__dlpack_device__()
    assert (kind, index) == (1, 0) and isinstance(kind, int) and type(index) is int
    with pytest.raises(TypeError):
        mf.zeros((2,)).__dlpack_device__(1)


def test_every_argument_is_keyword_only():
    t = mf.zeros((2,))
    with pytest.raises(TypeError):
        t.__dlpack__(None)
    with pytest.raises(TypeError):
        t.__dlpack__(streams=None)
    with pytest.raises(TypeError):
        t.__dlpack__(**{"max_version": (1, 3), "version": 1})
    version = (1, 3)
    for _ in range(3):
        t.__dlpack__(max_version=version)
        with pytest.raises(TypeError):
            t.__dlpack__(version, max_version=version)


@pytest.mark.parametrize("stream", [None, -1])
def test_streams_that_mean_nothing_on_the_cpu_are_accepted(stream):
    assert abi.capsule_name(mf.zeros((2,)).__dlpack__(stream=stream)) == abi.LEGACY


@pytest.mark.parametrize("stream", [0, 1, 2, 3, 1 << 40, -2, -(1 << 40), 1 << 70])
def test_streams_that_the_cpu_lacks_are_refused(stream):
    with pytest.raises(ValueError, match="stream"):
        mf.zeros((2,)).__dlpack__(stream=stream, **VERSIONED)


@pytest.mark.parametrize("stream", ["1", 1.0, (1,), object(), True, False, b"", 1j])
def test_streams_that_are_no_integers_are_type_errors(stream):
    with pytest.raises(TypeError, match="stream"):
        mf.zeros((2,)).__dlpack__(stream=stream, **VERSIONED)


@pytest.mark.parametrize("version", [None, (0, 0), (0, 8), (0, 99)])
def test_old_consumers_get_the_legacy_struct(version):
    assert abi.capsule_name(mf.zeros((2,)).__dlpack__(max_version=version)) == abi.LEGACY


@pytest.mark.parametrize("version", [(1, 0), (1, 1), (1, 3), (1, 99), (2, 0), (100, 3)])
def test_new_consumers_get_the_versioned_struct_stamped_1_3(version):
    capsule = mf.zeros((2,)).__dlpack__(max_version=version)
    assert abi.capsule_name(capsule) == abi.VERSIONED
    assert (abi.managed(capsule).version.major, abi.managed(capsule).version.minor) == (1, 3)


@pytest.mark.parametrize("version", [1, "1.3", (1,), (1, 3, 0), (), ("1", "3"), (1.0, 3.0), (None, None), {}, True])
def test_a_malformed_version_is_a_type_error(version):
    with pytest.raises(TypeError, match="max_version"):
        mf.zeros((2,)).__dlpack__(max_version=version)


def test_a_version_beyond_every_range_is_a_new_one_and_a_negative_one_a_type_error():
    assert abi.capsule_name(mf.zeros((2,)).__dlpack__(max_version=(1 << 70, 0))) == abi.VERSIONED
    for version in ((-1, 0), (1, -1), (-(1 << 70), 0)):
        with pytest.raises(TypeError, match="max_version must not be negative"):
            mf.zeros((2,)).__dlpack__(max_version=version)


@pytest.mark.parametrize("keywords", [{}, VERSIONED])
def test_a_capsule_that_goes_while_an_exception_is_on_its_way_leaves_that_alone(keywords):
    """The memory's deleter is Python code, which would meet it."""
    lender = abi.Lender()
    with pytest.raises(ValueError, match="mine"):
        print(mf.from_dlpack(lender).__dlpack__(**keywords), lender.fails())
    assert lender.deletes == 1


def test_memory_that_another_library_lets_go_while_an_exception_is_on_its_way_leaves_that_alone():
    """NumPy has the last reference to memory that a capsule owns, whose destructor is Python code."""
    lender = abi.Lender()
    t = mf.wrap(abi.c.addressof(lender.producer.memory), (4,), "uint8", owner=lender.__dlpack__(), readonly=False)
    taken = [np.from_dlpack(t)]
    del t
    with pytest.raises(ValueError, match="mine"):
        print(taken.pop(), lender.fails())
    assert lender.deletes == 1


def test_the_version_of_the_last_call_is_kept_and_no_other():
    class Version(tuple):
        pass

    def counts():
        return [sys.getrefcount(versions[n]) for n in range(3)]

    versions, kept = [tuple(range(1, 3)), tuple(range(1, 4)[::2]), Version((1, 3))], []
    before = counts()
    for i in range(3):
        for _ in range(3):
            mf.zeros(2).__dlpack__(max_version=versions[i])
        kept.append([now - then for now, then in zip(counts(), before)])
    assert kept == [[1, 0, 0], [0, 1, 0], [0, 1, 0]]


def test_who_asks_is_looked_up_and_let_go():
    """Where a consumer would end the process, or never writes, its module's name counts; code may have none."""
    backwards, readonly = mf.tensor([1, 2, 3])[::-1], mf.zeros(2).as_readonly()
    before = sys.getrefcount(__name__)
    for _ in range(50):
        backwards.__dlpack__(**VERSIONED)
    assert sys.getrefcount(__name__) == before
    exec("t.__dlpack__(max_version=(1, 3))", {"t": backwards})
    exec("t.__dlpack__()", {"__name__": "jax.of_a_spec", "t": readonly})
    padded = mf._core._from_raw(mf.zeros(2, "uint8"), (2,), "int4", True).as_readonly()
    with pytest.raises(mf.ExchangeError, match="padded to bytes"):
        exec("t.__dlpack__()", {"__name__": "jax.of_a_spec", "t": padded})
    del backwards, readonly, padded
    assert tuple(mf.ledger()) == (0, 0, 0, 0)


@pytest.mark.parametrize("device", [None, (1, 0), (Kind.CPU, 0)])
@pytest.mark.parametrize("copy", [None, False])
def test_own_device_is_a_view(device, copy):
    t = mf.zeros((2,))
    capsule = t.__dlpack__(dl_device=device, copy=copy, **VERSIONED)
    assert abi.managed(capsule).dl_tensor.data == t.data_ptr and abi.managed(capsule).flags == 0


@pytest.mark.parametrize(
    "device",
    [(2, 0), (Kind.CUDA, 0), (1, 1), (1, -1), (10, 0), (16, 0), (0, 0), (-1, 0), (99, 0), (1 << 40, 0), (1, 1 << 40)]
    + [((1 << 32) + 1, 0), (1, 1 << 32)],
)
@pytest.mark.parametrize("copy", [None, False, True])
def test_other_devices_are_buffer_errors(device, copy):
    is_one = 0 < device[0] < 1 << 31 and device[1] < 1 << 31
    said = "dl_device" if is_one else f"dl_device is {device!r}; a device type of DLPack and an id of 32 bits expected"
    with pytest.raises(BufferError, match=re.escape(said)) as caught:
        mf.zeros((2,)).__dlpack__(dl_device=device, copy=copy, **VERSIONED)
    assert isinstance(caught.value, mf.ExchangeError) and isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "number, what", [(99, "99, which DLPack 1.3 does not define"), (7, "7 (vulkan), which has no backend here")]
)
def test_a_device_type_of_no_backend_is_told_with_those_that_have_one(number, what):
    ours = "cpu, cuda, cuda_host, cuda_managed, rocm or rocm_host expected"
    with pytest.raises(mf.ExchangeError, match=re.escape(f"device.device_type is {what}; {ours}")):
        mf.zeros((2,)).__dlpack__(dl_device=(number, 0))


@pytest.mark.parametrize("device", [1, "cpu", (1,), (1, 0, 0), (), ("1", "0"), (1.0, 0), (1, None), {1: 0}])
def test_a_malformed_device_is_a_type_error(device):
    with pytest.raises(TypeError, match="dl_device"):
        mf.zeros((2,)).__dlpack__(dl_device=device)


@pytest.mark.parametrize("copy", ["yes", 1, 0, 2.0, object(), ()])
def test_copy_is_true_false_or_none(copy):
    with pytest.raises(TypeError, match="copy must be True, False or None"):
        mf.zeros((2,)).__dlpack__(copy=copy)


@pytest.mark.parametrize("version", [None, (1, 3)])
@pytest.mark.parametrize("device", [None, (1, 0)])
def test_copy_true_always_copies(version, device):
    t = mf.asarray(np.arange(12).reshape(3, 4))[:, ::-2].as_readonly()
    capsule = t.__dlpack__(copy=True, max_version=version, dl_device=device)
    struct = abi.managed(capsule)
    dl = struct.dl_tensor
    assert dl.data != t.data_ptr and abi.extents(dl) == (3, 2) and abi.strides(dl) == (2, 1)
    assert version is None or struct.flags == abi.IS_COPIED
    assert list((c.c_int64 * 6).from_address(dl.data)) == [3, 1, 7, 5, 11, 9]
    del t
    assert mf.ledger().storages == 1


@pytest.mark.parametrize("make_wrong", [{"stream": "x"}, {"max_version": 1}, {"dl_device": 1}, {"copy": "x"}])
def test_a_wrong_argument_is_found_whatever_the_others_say(make_wrong):
    good = {"stream": None, "max_version": (1, 3), "dl_device": (1, 0), "copy": True}
    [name] = make_wrong
    with pytest.raises(TypeError, match=f"{name} must be"):
        mf.zeros((2,)).__dlpack__(**{**good, **make_wrong})


def test_a_call_like_the_last_one_is_read_anew():
    t = mf.zeros((2,))
    version = (1, 3)

    def call(**changed):
        return ask(**{"device": None, "version": version, "copy": None, **changed})

    def ask(device, version, copy):
        # one tuple of names for all calls, as consumers written in C have
        return t.__dlpack__(dl_device=device, max_version=version, copy=copy)

    for _ in range(3):
        assert abi.managed(call()).flags == 0
        assert abi.managed(call(copy=True)).flags == abi.IS_COPIED
        assert abi.managed(call(version=(1, 0))).flags == 0
        assert abi.capsule_name(call(version=(0, 8))) == abi.LEGACY
        assert abi.capsule_name(call(version=None)) == abi.LEGACY
        assert abi.capsule_name(t.__dlpack__(stream=None, copy=None)) == abi.LEGACY
        with pytest.raises(BufferError, match="dl_device"):
            call(device=version, version=None)
        for device in (version, (99, 0)):
            with pytest.raises(BufferError, match="dl_device"):
                call(device=device)
        with pytest.raises(TypeError, match="max_version"):
            call(version=version[0])
        assert abi.managed(t.__dlpack__(copy=None, stream=None, max_version=version)).flags == 0
        with pytest.raises(TypeError, match="copy"):
            t.__dlpack__(copy=version, stream=None, max_version=version)
        with pytest.raises(TypeError, match="stream"):
            t.__dlpack__(copy=None, stream=version, max_version=None)


def test_a_call_like_the_last_one_with_the_keywords_in_another_order():
    t, version = mf.zeros((2,)), (1, 3)
    t.__dlpack__(max_version=version)

    def of_two(stream, max_version):
        return t.__dlpack__(stream=stream, max_version=max_version)

    def without(stream, copy):
        return t.__dlpack__(stream=stream, copy=copy)

    for _ in range(3):
        assert abi.capsule_name(of_two(None, version)) != abi.LEGACY
        with pytest.raises(TypeError, match="stream"):
            of_two(version, None)
        for _ in range(2):
            assert abi.capsule_name(without(None, None)) == abi.LEGACY


def test_read_only_never_leaves_through_a_struct_that_cannot_say_so():
    t = mf.zeros((2,)).as_readonly()
    for version in (None, (0, 8)):
        for copy in (None, False):
            with pytest.raises(BufferError, match="read-only|readonly"):
                t.__dlpack__(max_version=version, copy=copy)
    assert abi.managed(t.__dlpack__(**VERSIONED)).flags == abi.READ_ONLY
    assert abi.capsule_name(t.__dlpack__(copy=True)) == abi.LEGACY


SHAPES = [(), (1,), (0,), (3,), (2, 3), (2, 0, 3), (1, 1), (2, 3, 4)]
# name: (code, bits, lanes), written out from the standard.
TRIPLES = {
    "bool": (6, 8, 1), "int8": (0, 8, 1), "int64": (0, 64, 1), "uint16": (1, 16, 1), "float16": (2, 16, 1),
    "float32": (2, 32, 1), "float64": (2, 64, 1), "bfloat16": (4, 16, 1), "complex64": (5, 64, 1),
    "complex128": (5, 128, 1), "float8_e3m4": (7, 8, 1), "float8_e4m3": (8, 8, 1),
    "float8_e4m3b11fnuz": (9, 8, 1), "float8_e4m3fn": (10, 8, 1), "float8_e4m3fnuz": (11, 8, 1),
    "float8_e5m2": (12, 8, 1), "float8_e5m2fnuz": (13, 8, 1), "float8_e8m0fnu": (14, 8, 1),
    "float6_e2m3fn": (15, 6, 1), "float6_e3m2fn": (16, 6, 1), "float4_e2m1fn": (17, 4, 1), "int4": (0, 4, 1),
    "uint2": (1, 2, 1), "bool1": (6, 1, 1), "complex32": (5, 32, 1), "handle64": (3, 64, 1),
    "float32x4": (2, 32, 4), "float4_e2m1fnx2": (17, 4, 2),
}  # fmt: skip


@pytest.mark.parametrize("version", [None, (1, 3)])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_struct_describes_the_tensor(shape, version):
    t = mf.zeros(shape, "int16")
    capsule = t.__dlpack__(max_version=version)
    struct = abi.managed(capsule)
    dl = struct.dl_tensor
    assert dl.ndim == len(shape) and abi.extents(dl) == shape
    assert (dl.device.type, dl.device.id) == (1, 0) and dl.byte_offset == 0
    assert (dl.dtype.code, dl.dtype.bits, dl.dtype.lanes) == (0, 16, 1)
    assert bool(dl.strides) == bool(shape) and bool(dl.shape) == bool(shape)
    assert abi.strides(dl) == t.strides
    assert (dl.data or 0) == (t.data_ptr if t.size else 0)
    assert struct.deleter and (version is None or struct.flags == 0)


@pytest.mark.parametrize("name", sorted(TRIPLES))
@pytest.mark.parametrize("version", [None, (1, 3)])
def test_dtypes_leave_exactly(name, version):
    dtype = abi.managed(capsule := mf.zeros((4,), mf.DType(name)).__dlpack__(max_version=version)).dl_tensor.dtype
    assert (dtype.code, dtype.bits, dtype.lanes) == TRIPLES[name]
    del capsule


@pytest.mark.parametrize(
    "index", [np.s_[1:], np.s_[::-1], np.s_[:, 2], np.s_[::2, ::-3], np.s_[1, 1:2], np.s_[:, None, :0]]
)
def test_views_leave_with_offset_zero_and_their_own_strides(index):
    a = np.arange(35, dtype="float64").reshape(5, 7)
    view, expected = mf.asarray(a)[index], a[index]
    capsule = view.__dlpack__(**VERSIONED)
    dl = abi.managed(capsule).dl_tensor
    assert dl.byte_offset == 0 and abi.extents(dl) == expected.shape and abi.strides(dl) == view.strides
    if expected.size:
        assert dl.data == expected.ctypes.data
        assert all(s * 8 == b for n, s, b in zip(expected.shape, abi.strides(dl), expected.strides) if n > 1)


def test_a_broadcast_leaves_with_zero_strides_and_read_only():
    capsule = mf.zeros((3,)).broadcast_to((4, 3)).__dlpack__(**VERSIONED)
    struct = abi.managed(capsule)
    assert abi.strides(struct.dl_tensor) == (0, 1) and struct.flags == abi.READ_ONLY


def test_each_export_has_a_struct_of_its_own():
    t = mf.zeros((2,))
    capsules = [t.__dlpack__(**VERSIONED) for _ in range(5)]
    assert len({abi.capsule_pointer(capsule) for capsule in capsules}) == 5
    assert mf.ledger().storages == 1


def test_padded_sub_byte_tensors_keep_the_flag():
    producer = abi.Producer((3,), (1,), (0, 4, 1), flags=abi.SUBBYTE_PADDED)
    t = mf.from_dlpack(producer.capsule())
    assert t.flags == abi.SUBBYTE_PADDED and t.data_ptr == producer.dl.data
    capsule = t.__dlpack__(**VERSIONED)
    assert abi.managed(capsule).flags == abi.SUBBYTE_PADDED
    with pytest.raises(BufferError):
        t.__dlpack__()
    del t, capsule
    assert producer.deletes == 1


def test_the_copied_flag_of_an_import_does_not_go_out_again():
    producer = abi.Producer(flags=abi.IS_COPIED | abi.READ_ONLY)
    t = mf.from_dlpack(producer.capsule())
    assert t.flags == abi.IS_COPIED | abi.READ_ONLY and t.readonly
    capsule = t.__dlpack__(**VERSIONED)
    assert abi.managed(capsule).flags == abi.READ_ONLY
    del t, capsule
    assert producer.deletes == 1


@pytest.mark.parametrize("device", [None, "cpu", (1, 0), mf.zeros(()).device])
@pytest.mark.parametrize("copy", [None, False, True])
def test_from_dlpack_keeps_the_promise_of_copy(device, copy):
    t = mf.tensor([1.0, 2.0])
    back = mf.from_dlpack(t, device=device, copy=copy)
    assert back.tolist() == [1.0, 2.0] and (back.data_ptr == t.data_ptr) == (copy is not True)
    assert back.device == t.device


@pytest.mark.parametrize("device", ["cuda:0", "gpu", (2, 0), "cpu:1"])
def test_from_dlpack_refuses_devices_that_are_not_there(device):
    with pytest.raises(ValueError):
        mf.from_dlpack(mf.zeros((2,)), device=device)


@pytest.mark.parametrize("device, said", [(1.5, "not 1.5"), ((1,), r"not \(1,\)"), (5, "not 5")])
def test_from_dlpack_says_what_a_device_is(device, said):
    with pytest.raises(TypeError, match=f"device must be a name such as .*{said}"):
        mf.from_dlpack(mf.zeros((2,)), device=device)


@pytest.mark.parametrize("version", [None, (1, 3)])
def test_a_capsule_is_no_copy(version):
    t = mf.zeros((2,))
    assert mf.from_dlpack(t.__dlpack__(max_version=version), copy=False).data_ptr == t.data_ptr


def test_from_dlpack_takes_its_argument_by_position_only():
    t = mf.zeros((2,))
    with pytest.raises(TypeError):
        mf.from_dlpack(x=t)
    with pytest.raises(TypeError):
        mf.from_dlpack(t, None)
    with pytest.raises(TypeError):
        mf.from_dlpack(t, copy="yes")


@pytest.mark.parametrize("name", ["max_version", "dl_device"])
@pytest.mark.parametrize("pair", [(True, 0), (1, False), [1, 0], (1,)])
def test_a_pair_is_a_tuple_of_two_ints(name, pair):
    with pytest.raises(TypeError, match=f"{name} must be a tuple of two ints or None, not "):
        mf.zeros(2).__dlpack__(**{name: pair})
