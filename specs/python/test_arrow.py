"""Apache Arrow's PyCapsule interface, out and in: structs read as the standard has them. specs/exchange/test_arrow.py
has pyarrow, polars and duckdb."""

import ctypes
import gc

import numpy as np
import pytest

import dlpack_abi as abi
import moonferry as mf
from moonferry import _arrow

FORMATS = {"int8": "c", "int16": "s", "int32": "i", "int64": "l", "uint8": "C", "uint16": "S", "uint32": "I",
           "uint64": "L", "float16": "e", "float32": "f", "float64": "g"}  # fmt: skip


def structs(t):
    schema, array = t.__arrow_c_array__()
    return (schema, array, _arrow._struct_in(schema, _arrow._Schema, b"arrow_schema"),
            _arrow._struct_in(array, _arrow._Array, b"arrow_array"))  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_left():
    gc.collect()
    before = mf.ledger()
    yield
    gc.collect()
    assert mf.ledger() == before


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_tensor_with_one_axis_is_a_primitive_array_over_its_memory(dtype):
    t = mf.asarray(np.arange(5).astype(dtype))
    _held, _kept, schema, array = structs(t)
    assert schema.format.decode() == FORMATS[dtype] and schema.n_children == 0 and schema.flags == 2
    assert (array.length, array.null_count, array.offset, array.n_buffers, array.n_children) == (5, 0, 0, 2, 0)
    assert array.buffers[0] is None and array.buffers[1] == t.data_ptr


def test_each_further_axis_is_a_list_of_fixed_size():
    t = mf.tensor([[[1, 2], [3, 4], [5, 6]]] * 4, "int16")
    _held, _kept, schema, array = structs(t)
    formats, lengths, names = [], [], []
    for _ in range(3):
        formats.append(schema.format.decode())
        names.append(ctypes.string_at(schema.name).decode())
        lengths.append(array.length)
        last = array
        if schema.n_children:
            assert array.n_buffers == 1 and array.n_children == 1
            schema, array = schema.children[0].contents, array.children[0].contents
    assert formats == ["+w:3", "+w:2", "s"] and lengths == [4, 12, 24] and names == ["", "item", "item"]
    assert last.buffers[1] == t.data_ptr


@pytest.mark.parametrize(
    "make",
    [
        lambda: mf.tensor([1, 2, 3], "int32"), lambda: mf.tensor([[1.5, 2], [3, 4]], "float64"),
        lambda: mf.tensor([1, 2, 3, 4])[::-2], lambda: mf.tensor([[1, 2], [3, 4]]).T, lambda: mf.zeros((0,)),
        lambda: mf.zeros((3, 0)), lambda: mf.zeros((0, 4, 2), "uint8"), lambda: mf.tensor([True, False, True]),
        lambda: mf.tensor([[True] * 9, [False, True] * 4 + [True]]), lambda: mf.zeros((1,)).broadcast_to((4, 1)),
    ],
)  # fmt: skip
def test_out_and_in_again(make):
    t = make()
    u = mf.from_arrow(t)
    assert (u.shape, u.dtype, u.tolist()) == (t.shape, t.dtype, t.tolist())
    if t.dtype != "bool":
        assert u.readonly and (u.data_ptr == t.data_ptr or not t.is_contiguous or not t.size)
    del t
    gc.collect()
    assert u.tolist() == make().tolist()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: mf.zeros(()), "has an axis"), (lambda: mf.zeros(2, "bfloat16"), "bfloat16"),
        (lambda: mf.zeros(2, "complex64"), "complex64"), (lambda: mf.zeros(2, "int4"), "int4"),
        (lambda: mf.zeros(2, "float8_e5m2"), "float8_e5m2"), (lambda: mf.zeros(2, "float32x4"), "float32x4"),
        (lambda: mf.zeros((1, 1, 0)).broadcast_to((2**62, 2, 0)), "2\\*\\*63"),
        (lambda: mf.zeros((1, 1, 0)).broadcast_to((2**40, 2**40, 0)), "2\\*\\*63"),
    ],
)  # fmt: skip
def test_what_arrow_has_no_type_for_is_refused(make, said):
    for call in (mf.Tensor.__arrow_c_array__, mf.Tensor.__arrow_c_schema__, mf.Tensor.__arrow_c_device_array__):
        with pytest.raises(mf.ExchangeError, match=said):
            call(make())


@pytest.mark.parametrize(
    ("shape", "lengths"),
    [((2**62, 1, 0), [2**62, 2**62, 0]), ((2**31, 2**31, 0), [2**31, 2**62, 0]), ((0, 2**40, 2**40), [0, 0, 0])],
)
def test_lists_without_elements_are_counted_as_far_as_numbers_go(shape, lengths):
    _held, _kept, _schema, array = structs(mf.zeros(tuple(min(n, 1) for n in shape)).broadcast_to(shape))
    child = array.children[0].contents
    assert [array.length, child.length, child.children[0].contents.length] == lengths


def test_the_memory_lives_until_the_last_part_that_was_moved_is_released():
    t = mf.tensor([[1, 2], [3, 4]], "int32")
    _schema, capsule, _, array = structs(t)
    child = array.children[0].contents
    moved = _arrow._Array.from_buffer_copy(child)
    child.release = ctypes.cast(None, _arrow._RELEASE)
    before = mf.ledger()
    del t, _schema, array, child, capsule
    gc.collect()
    assert mf.ledger().storages == before.storages
    assert (ctypes.c_int32 * 4).from_address(moved.buffers[1])[:] == [1, 2, 3, 4]
    moved.release(ctypes.addressof(moved))
    assert not moved.release


def test_a_type_that_was_moved_out_of_another_is_released_by_itself():
    _schema, _array, schema, _ = structs(mf.zeros((2, 2)))
    child = schema.children[0].contents
    moved = _arrow._Schema.from_buffer_copy(child)
    child.release = ctypes.cast(None, _arrow._RELEASE)
    schema.release(ctypes.addressof(schema))
    assert moved.format == b"f" and not schema.release
    moved.release(ctypes.addressof(moved))
    assert not moved.release


def test_bits_of_memory_that_was_used_before():
    """Of each size that the bits may have, what was there goes."""
    for n in range(1, 40):
        used = [mf.full((n,), 255, "uint8") for _ in range(20)]
        del used
        assert not any(mf.from_arrow(mf.zeros((8 * n,), "bool")).tolist())


def test_a_capsule_that_goes_while_an_exception_is_on_its_way_leaves_that_alone():
    """The memory's deleter is Python code, which would meet it."""
    lender = abi.Lender()
    with pytest.raises(ValueError, match="mine"):
        print(mf.from_dlpack(lender).__arrow_c_array__(), lender.fails())
    assert lender.deletes == 1


def test_a_consumer_that_releases_leaves_nothing_to_the_capsule():
    t = mf.zeros((2, 2))
    _schema, _capsule, schema, array = structs(t)
    array.release(ctypes.addressof(array))
    schema.release(ctypes.addressof(schema))
    assert not array.release and not schema.release


def test_the_device_array_says_where_it_is():
    schema, capsule = mf.tensor([1, 2]).__arrow_c_device_array__(None, more=None)
    address = _arrow._address(capsule, b"arrow_device_array") + ctypes.sizeof(_arrow._Array)
    assert ctypes.c_int64.from_address(address).value == -1
    assert ctypes.c_int32.from_address(address + 8).value == 1
    assert ctypes.c_void_p.from_address(address + 16).value is None
    with pytest.raises(NotImplementedError, match="stream"):
        mf.zeros(2).__arrow_c_device_array__(stream=3)


class Given:
    """Another library's array, with some of its fields set."""

    def __init__(self, t, format=None, **fields):
        self.t, self.format, self.fields = t, format, fields

    def __arrow_c_array__(self, requested_schema=None):
        schema, array, s, a = structs(self.t)
        for name, value in self.fields.items():
            setattr(a, name, value)
        if "data" in self.fields:
            a.buffers[1] = self.fields["data"]
        if self.format:
            s.format = self.format
        if "validity" in self.fields:
            self.bits = ctypes.create_string_buffer(self.fields["validity"])
            a.buffers[0] = ctypes.addressof(self.bits)
        return schema, array


def test_an_offset_and_a_part_are_taken():
    t = mf.from_arrow(Given(mf.tensor([0, 1, 2, 3, 4], "int16"), offset=2, length=2))
    assert t.tolist() == [2, 3]
    assert mf.from_arrow(Given(mf.tensor([True, False] * 8), offset=3, length=10)).tolist() == [False, True] * 5


def test_nulls_are_refused_and_a_bitmap_without_nulls_is_not():
    t = mf.tensor([1, 2, 3], "int8")
    assert mf.from_arrow(Given(t, validity=b"\x07", null_count=-1)).tolist() == [1, 2, 3]
    with pytest.raises(mf.ExchangeError, match="1 nulls in a .*Given"):
        mf.from_arrow(Given(t, validity=b"\x05", null_count=-1))
    with pytest.raises(mf.ExchangeError, match="2 nulls"):
        mf.asarray(Given(t, validity=b"\x02", null_count=2))


@pytest.mark.parametrize(("text", "said"), [(b"u", "'u'"), (b"+s", "one column"), (b"tdD", "'tdD'"), (b"n", "'n'")])
def test_what_is_no_number_is_refused(text, said):
    with pytest.raises(mf.ExchangeError, match=said):
        mf.from_arrow(Given(mf.zeros(2), format=text))


NO_ADDRESSES = ctypes.POINTER(ctypes.c_void_p)()


@pytest.mark.parametrize(
    ("shape", "dtype", "fields", "said"),
    [
        ((3,), "int8", {"length": -1}, "length is -1; at least 0"),
        ((3,), "int8", {"offset": -1}, "offset is -1; at least 0"),
        ((3,), "bool", {"offset": -1}, "offset is -1; at least 0"),
        ((3,), "int8", {"n_buffers": 1}, "n_buffers is 1; 2 for format 'c'"),
        ((3,), "int8", {"buffers": NO_ADDRESSES}, "buffers is None; 2 addresses"),
        ((3,), "int8", {"data": None}, r"buffers\[1\] is None; an address"),
        ((3,), "int8", {"data": None, "offset": 4096}, r"buffers\[1\] is None; an address"),
        ((3,), "bool", {"data": None}, r"buffers\[1\] is None; an address"),
        ((3,), "int32", {"offset": 2**63 - 1}, r"\(offset, length\) is \(9223372036854775807, 3\); a range of memory"),
        ((3,), "int8", {"length": 2**63 - 1}, r"\(offset, length\) is \(0, 9223372036854775807\); a range of memory"),
        ((3,), "bool", {"length": 2**63 - 1}, r"\(offset, length\) is \(0, 9223372036854775807\); a range of memory"),
        ((3,), "int8", {"format": b"\xff"}, r"format '\\\\xff', which is no dtype"),
        ((2, 3), "int8", {"format": b"+w:three"}, "format is '.w:three'; '.w:' and a size"),
        ((2, 3), "int8", {"format": b"+w:-3"}, "format is '.w:-3'; '.w:' and a size"),
        ((2, 3), "int8", {"format": b"+w:" + b"9" * 20}, "'.w:' and a size"),
        ((3,), "int8", {"format": b"+w:3"}, "the schema's n_children is 0; 1 for a list"),
        ((2, 3), "int8", {"n_children": 2}, "the array's n_children is 2; 1 for a list"),
        ((2, 3), "int8", {"children": ctypes.POINTER(ctypes.POINTER(_arrow._Array))()}, "the array's children is None"),
        ((2, 3), "int8", {"length": 3}, "the length of a list's items is 6; at least 9"),
        ((2, 3), "int8", {"offset": 1}, "the length of a list's items is 6; at least 9"),
    ],
)  # fmt: skip
def test_a_field_that_is_wrong_is_refused_by_its_name(shape, dtype, fields, said):
    with pytest.raises(mf.ExchangeError, match=f"from_arrow: .*{said}"):
        mf.from_arrow(Given(mf.zeros(shape, dtype), **fields))


def test_a_type_without_a_format_and_a_list_of_itself_are_refused():
    schema, array, s, a = structs(mf.zeros((1, 1)))
    child, s.children[0] = s.children[0], ctypes.pointer(s)
    items, a.children[0] = a.children[0], ctypes.pointer(a)
    with pytest.raises(mf.ExchangeError, match="the rank is 65; at most 64"):
        _arrow._layout(s, a, "list")
    s.children[0], a.children[0], s.format = child, items, None
    with pytest.raises(mf.ExchangeError, match="format is None; a string"):
        _arrow._layout(s, a, "list")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda: 5, "__arrow_c_array__.. is 5; a tuple of two capsules"), (lambda: (1,), "is .1,.; a tuple of two"),
        (lambda: (5, 6), "gave 5; a capsule 'arrow_schema'"),
        (lambda: mf.zeros(2).__arrow_c_array__()[::-1], "gave <capsule .*; a capsule 'arrow_schema'"),
    ],
)  # fmt: skip
def test_what_is_no_pair_of_arrows_capsules_is_refused(given, said):
    class Odd:
        def __arrow_c_array__(self, requested_schema=None):
            return given()

    with pytest.raises(mf.ExchangeError, match=said):
        mf.from_arrow(Odd())


def test_copies_are_made_as_asked():
    t = mf.tensor([1, 2, 3])
    copied = mf.from_arrow(t, copy=True)
    assert not copied.readonly and copied.data_ptr != t.data_ptr and mf.from_arrow(t, copy=False).readonly
    with pytest.raises(mf.ExchangeError, match="bits"):
        mf.from_arrow(mf.tensor([True]), copy=False)
    with pytest.raises(TypeError, match="neither __arrow_c_array__ nor"):
        mf.from_arrow([1, 2])
    assert not mf.asarray(Given(t), copy=True).readonly and mf.asarray(Given(t)).data_ptr == t.data_ptr


class Kept:
    """A producer that gives the same capsules each time."""

    def __init__(self, t):
        self.capsules = t.__arrow_c_array__()

    def __arrow_c_array__(self, requested_schema=None):
        return self.capsules


def test_a_capsule_is_consumed_once():
    """Whoever is given it later would release the memory of our tensor."""
    kept = Kept(mf.tensor([1, 2, 3], "int32"))
    schema, array = kept.capsules
    t = mf.from_arrow(kept)
    assert not _arrow._struct_in(schema, _arrow._Schema, b"arrow_schema").release
    assert not _arrow._struct_in(array, _arrow._Array, b"arrow_array").release
    with pytest.raises(mf.ExchangeError, match="the arrow_schema of a .*Kept was consumed before"):
        mf.from_arrow(kept)
    del kept, schema, array
    gc.collect()
    assert t.tolist() == [1, 2, 3]


def test_an_array_that_another_library_consumed_is_not_read():
    kept = Kept(mf.tensor([1, 2, 3], "int32"))
    array = _arrow._struct_in(kept.capsules[1], _arrow._Array, b"arrow_array")
    array.release(ctypes.addressof(array))
    with pytest.raises(mf.ExchangeError, match="the arrow_array of a .*Kept was consumed before"):
        mf.asarray(kept)


def test_nulls_of_items_that_are_not_taken_do_not_count():
    """A part of an array of lists says so by the list's offset and length alone; its items are all there."""
    schema, array, _, a = structs(mf.tensor([[1, 2], [3, 4], [5, 6], [7, 8]], "int8"))
    items = a.children[0].contents
    bits = ctypes.create_string_buffer(b"\x7e")
    items.buffers[0], items.null_count = ctypes.addressof(bits), 2
    a.offset, a.length = 1, 2

    class Part:
        def __arrow_c_array__(self, requested_schema=None):
            return schema, array

    assert mf.from_arrow(Part()).tolist() == [[3, 4], [5, 6]]


def test_nulls_of_a_part_that_was_taken_count():
    schema, array, _, a = structs(mf.tensor([[1, 2], [3, 4], [5, 6], [7, 8]], "int8"))
    items = a.children[0].contents
    bits = ctypes.create_string_buffer(b"\xe7")
    items.buffers[0], items.null_count = ctypes.addressof(bits), -1
    a.offset, a.length = 1, 2

    class Part:
        def __arrow_c_array__(self, requested_schema=None):
            return schema, array

    with pytest.raises(mf.ExchangeError, match="2 nulls"):
        mf.from_arrow(Part())


class Streamed:
    """Another library's stream of arrays."""

    def __init__(self, *tensors):
        kinds = dict(_arrow._Stream._fields_)
        self.schema, self.left, self.released = tensors[0].__arrow_c_array__()[0], [*tensors], 0
        self.stream = _arrow._Stream(
            kinds["get_schema"](self.give_schema), kinds["get_next"](self.give_next), release=kinds["release"](self.end)
        )

    @staticmethod
    def move(source, out):
        ctypes.memmove(out, ctypes.byref(source), ctypes.sizeof(source))
        source.release = _arrow._RELEASE()
        return 0

    def give_schema(self, _stream, out):
        return self.move(_arrow._struct_in(self.schema, _arrow._Schema, b"arrow_schema"), out)

    def give_next(self, _stream, out):
        if not self.left:
            return 0
        _held, _kept, _, array = structs(self.left.pop(0))
        return self.move(array, out)

    def end(self, address):
        _arrow._Stream.from_address(address).release = _arrow._RELEASE()
        self.released += 1

    def __arrow_c_stream__(self, requested_schema=None):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(self.stream), b"arrow_array_stream", None)


def test_a_stream_is_taken_once_and_released():
    given = Streamed(mf.zeros(0, "int16"), mf.tensor([1, 2], "int16"))
    t = mf.from_arrow(given)
    assert t.dtype == "int16" and t.tolist() == [1, 2] and given.released == 1 and not given.left
    with pytest.raises(mf.ExchangeError, match="the arrow_array_stream of a .*Streamed was consumed before"):
        mf.from_arrow(given)
    several = Streamed(mf.ones(2), mf.ones(1))
    with pytest.raises(mf.ExchangeError, match="2 chunks"):
        mf.from_arrow(several)
    assert several.released == 1 and given.released == 1


class Fails(Streamed):
    """A stream that fails behind what it has written, and has released that again."""

    def __init__(self, *tensors, fails):
        super().__init__(*tensors)
        self.fails, self.reason = fails, ctypes.create_string_buffer(b"the disk is full")
        kind = dict(_arrow._Stream._fields_)["get_last_error"]
        self.last_error = kind(lambda stream: ctypes.addressof(self.reason))
        self.stream.get_last_error = self.last_error

    def undone(self, out):
        release = ctypes.cast(out.contents.release, ctypes.c_void_p).value
        out.contents.release(ctypes.addressof(out.contents))
        out.contents.release = _arrow._RELEASE(release)
        return 5

    def give_schema(self, stream, out):
        status = super().give_schema(stream, out)
        return self.undone(out) if self.fails == "type" else status

    def give_next(self, stream, out):
        status = super().give_next(stream, out)
        return self.undone(out) if self.fails == "array" and not self.left else status


@pytest.mark.parametrize("fails", ["type", "array"])
def test_what_a_call_of_a_stream_leaves_that_fails_is_nobodys(fails):
    """Arrow says nothing of the struct then, so that it is not released either."""
    given = Fails(mf.zeros(1), mf.zeros((2, 2)), fails=fails)
    with pytest.raises(mf.ExchangeError, match="the disk is full"):
        mf.from_arrow(given)
    assert given.released == 1


@pytest.mark.parametrize("arguments", [(), (None,), (None, 3), (None, -1), (None, "1"), (None, 0, 0)], ids=repr)
def test_what_takes_structs_over_knows_three_kinds_of_them(arguments):
    with pytest.raises(TypeError):
        mf._core._arrow_taken(*arguments)


CAPSULES = {
    "of a type": lambda: mf.zeros((2, 2)).__arrow_c_schema__(),
    "of an array": lambda: mf.zeros((2, 2)).__arrow_c_array__()[1],
    "of an array of a device": lambda: mf.zeros((2, 2)).__arrow_c_device_array__()[1],
    "of a type that came in": lambda: mf._core._arrow_taken(mf.zeros(2).__arrow_c_schema__(), 0),
    "of an array that came in": lambda: mf._core._arrow_taken(mf.zeros(2).__arrow_c_array__()[1], 1),
    "of a stream that came in": lambda: mf._core._arrow_taken(Streamed(mf.zeros(2)).__arrow_c_stream__(), 2),
}


@pytest.mark.parametrize("name", [b"used", None])
@pytest.mark.parametrize("make", CAPSULES.values(), ids=CAPSULES)
def test_a_capsule_of_another_name_still_gives_back_what_it_has(make, name):
    """Arrow's structs say themselves whether they were taken out, not the name of their capsule."""
    set_name = ctypes.pythonapi.PyCapsule_SetName
    set_name.argtypes = (ctypes.py_object, ctypes.c_char_p)
    for _ in range(3):
        capsule = make()
        set_name(capsule, name)
        del capsule
