"""The C exchange table, ours called as a consumer calls it and others' called by us.

DLPack 1.3, `__dlpack_c_exchange_api__`. The six parts that PyTorch and tvm-ffi ask of a table are here in our
own words: the header, the allocator, the owning export, the round trip, the borrow, the stream.
"""

import builtins
import ctypes as c
import os
import subprocess
import sys

import numpy as np
import pytest

import dlpack_abi as abi
import moonferry as mf

NAME = b"dlpack_exchange_api"


def table_of(kind):
    capsule = kind.__dlpack_c_exchange_api__
    assert abi.capsule_name(capsule) == NAME
    return abi.DLPackExchangeAPI.from_address(abi.capsule_pointer(capsule))


TABLE = table_of(mf.Tensor)
allocate = abi.Allocator(TABLE.managed_tensor_allocator)
from_py = abi.FromPyObject(TABLE.managed_tensor_from_py_object_no_sync)
to_py = abi.ToPyObject(TABLE.managed_tensor_to_py_object_no_sync)
borrow = abi.FromPyObject(TABLE.dltensor_from_py_object_no_sync)
work_stream = abi.CurrentWorkStream(TABLE.current_work_stream)
Managed = abi.DLManagedTensorVersioned


def export(t):
    out = c.c_void_p(1)
    assert from_py(t, c.byref(out)) == 0
    return Managed.from_address(out.value)


def wrap(struct):
    """to_py gives a new reference; ctypes takes it over."""
    out = c.c_void_p(None)
    assert to_py(c.addressof(struct), c.byref(out)) == 0
    t = c.cast(out, c.py_object).value
    c.pythonapi.Py_DecRef(c.py_object(t))
    return t


def test_the_table_is_stamped_1_3_and_has_every_slot():
    assert (TABLE.header.version.major, TABLE.header.version.minor) == (1, 3)
    assert not TABLE.header.prev_api
    assert all(getattr(TABLE, name) for name, _ in abi.DLPackExchangeAPI._fields_[1:])


def test_the_table_lives_for_ever_and_is_found_on_the_type():
    first = abi.capsule_pointer(mf.Tensor.__dlpack_c_exchange_api__)
    assert abi.capsule_pointer(type(mf.zeros(1)).__dlpack_c_exchange_api__) == first
    assert "__dlpack_c_exchange_api__" in mf.Tensor.__dict__


def prototype(shape=(2, 3, 4), dtype=(2, 32, 1), device=(1, 0)):
    p = abi.Producer(shape, None, dtype)
    p.dl.data, p.dl.device = None, abi.DLDevice(*device)
    return p


class Errors:
    """A SetError callback that remembers what it was told."""

    def __init__(self):
        self.told = []
        self.callback = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p, c.c_char_p)(self.told_by)

    def told_by(self, context, kind, message):
        self.told.append((context, kind, message))


@pytest.mark.parametrize("with_callback", [False, True])
def test_the_allocator_makes_what_the_prototype_says(with_callback):
    errors, p, out = Errors(), prototype(), c.c_void_p()
    callback = c.cast(errors.callback, c.c_void_p) if with_callback else None
    assert allocate(c.addressof(p.dl), c.byref(out), None, callback) == 0 and errors.told == []
    made = Managed.from_address(out.value)
    assert (made.version.major, made.version.minor, made.flags) == (1, 3, 0)
    assert abi.extents(made.dl_tensor) == (2, 3, 4) and abi.strides(made.dl_tensor) == (12, 4, 1)
    assert made.dl_tensor.data and made.dl_tensor.data % 256 == 0 and made.dl_tensor.device.type == 1
    assert mf.ledger().storages == 1 and p.deletes == 0
    abi.call_deleter(made)


def test_the_allocator_needs_no_gil():
    p, out = prototype(), c.c_void_p()
    released = c.CFUNCTYPE(c.c_int, *[c.c_void_p] * 4)(TABLE.managed_tensor_allocator)
    assert released(c.addressof(p.dl), c.addressof(out), None, None) == 0
    abi.call_deleter(Managed.from_address(out.value))


@pytest.mark.parametrize(
    "change",
    [{"dtype": (99, 8, 1)}, {"dtype": (2, 0, 1)}, {"device": (2, 0)}, {"shape": (-1,)}, {"shape": (2**40, 2**40)}],
    ids=str,
)
def test_the_allocator_reports_each_failure_once_and_leaves_nothing(change):
    errors, p, out = Errors(), prototype(**change), c.c_void_p(1)
    assert allocate(c.addressof(p.dl), c.byref(out), 42, c.cast(errors.callback, c.c_void_p)) == -1
    ((context, kind, message),) = errors.told
    assert context == 42 and issubclass(getattr(builtins, kind.decode()), Exception) and message
    assert not out.value
    assert allocate(c.addressof(p.dl), c.byref(out), None, None) == -1 and not out.value


def test_the_allocator_says_memory_error_when_memory_ends():
    errors, p, out = Errors(), prototype(), c.c_void_p()
    mf._core._fault_arm(0, True)
    try:
        assert allocate(c.addressof(p.dl), c.byref(out), None, c.cast(errors.callback, c.c_void_p)) == -1
    finally:
        mf._core._fault_arm(-1, False)
    assert errors.told[0][1] == b"MemoryError" and not out.value


def test_the_owning_export():
    t = mf.tensor([[1, 2], [3, 4]], "int16")
    struct = export(t.T)
    data = t.data_ptr
    del t
    assert (struct.version.major, struct.version.minor, struct.flags) == (1, 3, 0)
    assert struct.dl_tensor.data == data and abi.strides(struct.dl_tensor) == (1, 2)
    assert struct.dl_tensor.byte_offset == 0 and mf.ledger().storages == 1
    abi.call_deleter(struct)


def test_the_round_trip_steals_the_struct():
    t = mf.tensor([1, 2, 3])
    back = wrap(export(t))
    assert type(back) is mf.Tensor and back.data_ptr == t.data_ptr and back.tolist() == [1, 2, 3]
    producer = abi.Producer(flags=abi.READ_ONLY)
    foreign = wrap(producer.struct)
    assert foreign.readonly and producer.deletes == 0
    del foreign
    assert producer.deletes == 1


@pytest.mark.parametrize(
    "field, value", [("ndim", 65), ("data", None), ("device", abi.DLDevice(2, 0)), ("shape", None)]
)
def test_a_struct_that_cannot_be_wrapped_is_never_deleted_twice(field, value):
    producer, out = abi.Producer(), c.c_void_p(1)
    setattr(producer.dl, field, value)
    with pytest.raises(mf.ExchangeError):
        to_py(c.addressof(producer.struct), c.byref(out))
    assert not out.value and producer.deletes <= 1


def test_a_deleter_in_python_leaves_the_error_alone():
    producer, out, ran = abi.Producer(), c.c_void_p(), []
    deleter = c.CFUNCTYPE(None, c.c_void_p)(lambda _: ran.append(sum([1, 2])))
    producer.struct.deleter, producer.dl.ndim = abi.address_of(deleter), 65
    with pytest.raises(mf.ExchangeError, match="ndim"):
        to_py(c.addressof(producer.struct), c.byref(out))
    assert ran == [3] and not out.value


def test_a_struct_of_another_major_is_not_read():
    producer, out = abi.Producer(), c.c_void_p()
    producer.struct.version.major, producer.dl.shape = 2, c.cast(8, c.POINTER(c.c_int64))
    with pytest.raises(mf.ExchangeError, match="version"):
        to_py(c.addressof(producer.struct), c.byref(out))
    assert producer.deletes <= 1


def test_the_borrow_fills_the_callers_struct_and_allocates_nothing():
    t = mf.tensor([[1, 2], [3, 4]])[:, 1:]
    before, out = mf.ledger(), abi.DLTensor()
    assert borrow(t, c.byref(out)) == 0
    assert out.data == t.data_ptr and abi.extents(out) == (2, 1) and abi.strides(out) == t.strides
    assert out.byte_offset == 0 and (out.device.type, out.dtype.code, out.dtype.bits) == (1, 0, 64)
    assert mf.ledger() == before


def test_the_borrow_cannot_say_read_only_and_so_refuses():
    t, out = mf.zeros((2,)).as_readonly(), abi.DLTensor()
    with pytest.raises(BufferError, match="read-only|readonly"):
        borrow(t, c.byref(out))
    struct = export(t)
    assert struct.flags == abi.READ_ONLY
    abi.call_deleter(struct)


@pytest.mark.parametrize("thing", [None, 3, object(), np.zeros(2), mf.Tensor], ids=repr)
def test_the_slots_take_tensors_only(thing):
    out, view = c.c_void_p(1), abi.DLTensor()
    with pytest.raises(TypeError, match="expected a moonferry.Tensor"):
        from_py(thing, c.byref(out))
    assert not out.value
    with pytest.raises(TypeError, match="expected a moonferry.Tensor"):
        borrow(thing, c.byref(view))


def test_the_stream_of_the_cpu_is_null():
    stream = c.c_void_p(5)
    assert work_stream(1, 0, c.byref(stream)) == 0 and stream.value is None


@pytest.mark.parametrize("device, why", [((2, 0), "no CUDA driver"), ((99, 0), "99, which DLPack 1.3 does not define")])
def test_the_stream_of_a_device_without_a_backend_is_an_error(device, why):
    with pytest.raises(BufferError, match=why):
        work_stream(*device, c.byref(c.c_void_p(5)))


def foreign(slot="probe_slot_gives", major=1, minor=3, previous=None, name=NAME, **members):
    """A type of another library whose table has the given owning slot."""
    probe = abi.probe()
    table = abi.DLPackExchangeAPI()
    table.header.version = abi.DLPackVersion(major, minor)
    if previous is not None:
        table.header.prev_api = c.pointer(previous.table.header)
    table.managed_tensor_from_py_object_no_sync = abi.address_of(getattr(probe, slot))
    members["__dlpack_c_exchange_api__"] = abi.capsule_new(c.addressof(table), name)
    return type("Foreign", (), {"table": table, "__slots__": (), **members})


def offer():
    producer = abi.Producer()
    abi.probe().probe_offer(c.addressof(producer.struct))
    return producer


def by_method(self, **kwargs):
    return abi.Producer((7,), (1,)).capsule()


METHODS = {"__dlpack__": by_method, "__dlpack_device__": lambda self: (1, 0)}


@pytest.mark.parametrize("methods", [{}, METHODS], ids=["table only", "table and methods"])
def test_a_producers_table_comes_before_its_methods(methods):
    producer = offer()
    t = mf.from_dlpack(foreign(**methods)())
    assert abi.probe().probe_calls() == 1 and t.shape == (2, 3) and producer.deletes == 0
    del t
    assert producer.deletes == 1


def test_subclasses_inherit_the_table():
    producer = offer()
    kind = type("Sub", (foreign(),), {})
    t = mf.from_dlpack(kind())
    assert t.shape == (2, 3)
    del t
    assert producer.deletes == 1


def test_a_struct_from_a_table_is_validated_too():
    producer = offer()
    producer.dl.ndim = 65
    with pytest.raises(mf.ExchangeError, match="ndim"):
        mf.from_dlpack(foreign()())
    # The slot gave it away and the import did not take it: it must be given back, once.
    assert producer.deletes == 1


def test_a_slot_that_raises_passes_its_exception_on():
    offer()
    with pytest.raises(BufferError, match="the slot refuses"):
        mf.from_dlpack(foreign("probe_slot_raises")())


@pytest.mark.parametrize("slot, error", [("has_no_memory", MemoryError), ("is_interrupted", KeyboardInterrupt)])
def test_after_what_no_method_can_mend_the_methods_are_not_asked(slot, error):
    offer()
    with pytest.raises(error, match="the slot refuses"):
        mf.from_dlpack(foreign(f"probe_slot_{slot}", **METHODS)())


def test_a_device_that_nobody_drives_is_refused_unless_another_one_was_asked_for():
    kind = foreign(**METHODS)
    work = abi.CurrentWorkStream(lambda device, index, out: 0)
    kind.table.current_work_stream = abi.address_of(work)
    producer = offer()
    producer.dl.device = abi.DLDevice(2, 0)
    with pytest.raises(mf.ExchangeError, match="device"):
        mf.from_dlpack(kind())
    assert producer.deletes == 1
    assert mf.from_dlpack(kind(), device="cpu").shape == (7,) and producer.deletes == 2


def test_a_struct_that_nobody_deletes_can_be_refused():
    producer = offer()
    producer.dl.ndim, producer.struct.deleter = 65, None
    with pytest.raises(mf.ExchangeError, match="ndim"):
        mf.from_dlpack(foreign()())


def lazy():
    """A type with PyTorch's three attributes, whose tensors have the negative bit set."""
    return foreign(requires_grad=False, is_conj=lambda self: False, is_neg=lambda self: True)


@pytest.mark.parametrize(
    "shape, strides, dtype",
    [((), None, (2, 32, 1)), ((1, 2), (3, 2), (2, 32, 1)), ((2,), (1,), (5, 64, 1)), ((2,), (2,), (4, 16, 1))],
)
def test_a_negative_bit_is_found_wherever_it_can_be(shape, strides, dtype):
    producer = abi.Producer(shape, strides, dtype)
    abi.probe().probe_offer(c.addressof(producer.struct))
    with pytest.raises(mf.ExchangeError, match="negative bit"):
        mf.from_dlpack(lazy()())
    assert producer.deletes == 1


@pytest.mark.parametrize(
    "slot, said", [("fails_silently", "failed without an exception"), ("gives_nothing", "no tensor")]
)
def test_a_slot_that_breaks_its_word_is_an_error(slot, said):
    offer()
    for more in ({}, METHODS):  # a silent failure is no refusal, after which the methods are asked
        with pytest.raises(mf.ExchangeError, match=f"the exchange table of 'Foreign' .*{said}"):
            mf.from_dlpack(foreign(f"probe_slot_{slot}", **more)())


def test_a_table_too_new_is_passed_over_for_an_older_one():
    producer = offer()
    older = foreign()
    newest = foreign("probe_slot_raises", major=3, previous=foreign("probe_slot_raises", major=2, previous=older))
    t = mf.from_dlpack(newest())
    assert t.shape == (2, 3)
    del t
    assert producer.deletes == 1


def test_a_table_too_new_without_an_older_one_leaves_the_methods():
    offer()
    assert mf.from_dlpack(foreign("probe_slot_raises", major=2, **METHODS)()).shape == (7,)
    assert abi.probe().probe_calls() == 0
    with pytest.raises(AttributeError, match="a 'Foreign' cannot be imported"):
        mf.from_dlpack(foreign("probe_slot_raises", major=2)())


def test_a_newer_minor_is_the_same_table():
    producer = offer()
    t = mf.from_dlpack(foreign(minor=99)())
    assert abi.probe().probe_calls() == 1
    del t
    assert producer.deletes == 1


def test_an_attribute_that_is_no_table_leaves_the_methods():
    offer()
    assert mf.from_dlpack(foreign(name=b"other", **METHODS)()).shape == (7,)
    for value in (None, 3, "text", object()):
        kind = type("Odd", (), {**METHODS, "__dlpack_c_exchange_api__": value})
        assert mf.from_dlpack(kind()).shape == (7,)


def test_a_table_without_the_owning_slot_leaves_the_methods():
    offer()
    kind = foreign(**METHODS)
    kind.table.managed_tensor_from_py_object_no_sync = None
    assert mf.from_dlpack(kind()).shape == (7,)


def test_the_instance_is_not_asked_for_the_table():
    class Plain:
        __dlpack__ = by_method
        __dlpack_device__ = METHODS["__dlpack_device__"]

        def __getattr__(self, name):
            raise AssertionError(f"the instance was asked for {name}")

    offer()
    assert mf.from_dlpack(Plain()).shape == (7,)


def test_copies_through_a_table():
    producer = offer()
    t = mf.from_dlpack(foreign()(), copy=True)
    assert t.data_ptr != producer.dl.data and producer.deletes == 1
    producer = offer()
    t = mf.from_dlpack(foreign()(), copy=False, device="cpu")
    assert t.data_ptr == producer.dl.data
    del t


def test_a_chain_of_tables_that_never_ends_is_given_up():
    source = """
import sys; sys.path.insert(0, %r)
import test_table as spec, moonferry as mf, ctypes as c
kind = spec.foreign("probe_slot_raises", major=2, **spec.METHODS)
kind.table.header.prev_api = c.pointer(kind.table.header)
assert mf.from_dlpack(kind()).shape == (7,)
"""
    abi.probe()
    done = subprocess.run(
        [sys.executable, "-c", source % os.path.dirname(os.path.abspath(__file__))],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr


def test_into_wants_a_type_with_a_table():
    with pytest.raises(AttributeError, match="'builtins.int' has no __dlpack_c_exchange_api__"):
        mf.into(int, mf.zeros((2,)))
    for kind in (None, 3):
        with pytest.raises(TypeError, match=f"cls must be an array class such as torch.Tensor, not {kind}"):
            mf.into(kind, mf.zeros((2,)))
    with pytest.raises(TypeError):
        mf.into(mf.Tensor, 3)


def test_into_its_own_type_shares_memory():
    t = mf.zeros((2,))
    assert mf.into(mf.Tensor, t).data_ptr == t.data_ptr


def test_into_a_table_without_the_slot_is_refused():
    with pytest.raises(AttributeError, match="__dlpack_c_exchange_api__"):
        mf.into(foreign(), mf.zeros((2,)))


@pytest.mark.parametrize("slot", ["refuses", "refuses_and_deletes", "refuses_and_deletes_twice"])
def test_who_refuses_may_have_deleted_or_not(slot):
    """DLPack does not say which; libraries differ."""
    t = mf.zeros((2,))
    before = mf.ledger()
    for _ in range(3):
        with pytest.raises(mf.ExchangeError, match="'Taker' did not take the tensor"):
            mf.into(abi.taker(f"probe_take_{slot}"), t)
    assert mf.ledger() == before


def test_who_refuses_may_delete_later():
    t, before = mf.zeros((2,)), mf.ledger()
    structs = []

    def refuse(struct, out):
        structs.append(Managed.from_address(struct))
        return -1

    slot, kind = abi.ToPyObject(refuse), abi.taker("probe_take_refuses")
    kind.table.managed_tensor_to_py_object_no_sync = abi.address_of(slot)
    for _ in range(50):
        with pytest.raises(mf.ExchangeError, match="did not take"):
            mf.into(kind, t)
    assert mf.ledger() == before
    for struct in structs:
        assert (struct.version.major, struct.version.minor) == (1, 3)
        abi.call_deleter(struct)
    assert mf.ledger() == before and t.tolist() == [0, 0]


def test_the_error_of_who_refuses_is_the_one_that_is_raised():
    with pytest.raises(BufferError, match="the slot refuses"):
        mf.into(abi.taker("probe_slot_raises"), mf.zeros((2,)))


@pytest.mark.filterwarnings("error")
def test_where_the_warning_is_an_error_nothing_is_left():
    kind = abi.taker("probe_take_refuses")
    kind.table.managed_tensor_to_py_object_no_sync = TABLE.managed_tensor_to_py_object_no_sync
    t = mf.zeros((2,)).as_readonly()
    before = mf.ledger()
    with pytest.raises(UserWarning, match="into: the tensor is read-only, which a 'Taker' does not know"):
        mf.into(kind, t)
    assert mf.ledger() == before


def test_who_takes_may_delete_at_once():
    t = mf.zeros((2,))
    before = mf.ledger()
    assert mf.into(abi.taker("probe_take_gives_and_deletes"), t) is None and mf.ledger() == before


def test_who_says_that_it_took_and_gives_nothing_did_not():
    t, before = mf.zeros((2,)), mf.ledger()
    nothing = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p)(lambda managed, out: 0)
    kind = abi.taker("probe_take_refuses")
    kind.table.managed_tensor_to_py_object_no_sync = c.cast(nothing, c.c_void_p).value
    with pytest.raises(mf.ExchangeError, match="'Taker' did not take the tensor"):
        mf.into(kind, t)
    assert mf.ledger().storages == before.storages


@pytest.mark.filterwarnings("error")
def test_a_tensor_of_ours_knows_what_is_read_only():
    assert mf.into(mf.Tensor, mf.zeros((2,)).as_readonly()).readonly
