"""Arrays of Apache Arrow that come in: one column of pyarrow, polars, pandas or duckdb.

Responsible for reading the structs of Arrow's C data interface. Invariant: the memory is shared and read-only, as
Arrow's arrays are, and an array is released once, with the last tensor over it. Going out is arrow.c's. Must not know
whose array it is.
"""

from __future__ import annotations

import ctypes
import math
from ctypes import c_int64, c_void_p

from moonferry import _core
from moonferry._core import ExchangeError
from moonferry._dtype import DType

_DTYPES = {
    **{"c": "int8", "s": "int16", "i": "int32", "l": "int64", "C": "uint8", "S": "uint16", "I": "uint32"},
    **{"L": "uint64", "e": "float16", "f": "float32", "g": "float64", "b": "bool"},
}


class _Schema(ctypes.Structure):
    pass


class _Array(ctypes.Structure):
    pass


_MOST_AXES = 64  # of a tensor
_MEMORY, _MOST_BITS = 1 << 64, 1 << 60  # no address, and no array, is as large

_RELEASE = ctypes.CFUNCTYPE(None, c_void_p)
_Schema._fields_ = [
    ("format", ctypes.c_char_p), ("name", c_void_p), ("metadata", c_void_p), ("flags", c_int64),
    ("n_children", c_int64), ("children", ctypes.POINTER(ctypes.POINTER(_Schema))), ("dictionary", c_void_p),
    ("release", _RELEASE), ("private_data", c_void_p),
]  # fmt: skip
_Array._fields_ = [
    ("length", c_int64), ("null_count", c_int64), ("offset", c_int64), ("n_buffers", c_int64), ("n_children", c_int64),
    ("buffers", ctypes.POINTER(c_void_p)), ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
    ("dictionary", c_void_p), ("release", _RELEASE), ("private_data", c_void_p),
]  # fmt: skip


class _Stream(ctypes.Structure):
    _fields_ = [
        ("get_schema", ctypes.CFUNCTYPE(ctypes.c_int, c_void_p, ctypes.POINTER(_Schema))),
        ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, c_void_p, ctypes.POINTER(_Array))),
        ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_char_p, c_void_p)),
        ("release", _RELEASE),
        ("private_data", c_void_p),
    ]


_address = ctypes.pythonapi.PyCapsule_GetPointer
_address.restype, _address.argtypes = c_void_p, (ctypes.py_object, ctypes.c_char_p)


# The structs that come in, in the order in which _core counts them.
_NAMES = {_Schema: b"arrow_schema", _Array: b"arrow_array", _Stream: b"arrow_array_stream"}


def _struct_in(capsule, kind, name):
    return kind.from_address(_address(capsule, name))


def _owned(capsule, kind):
    """The struct in a capsule of ours, which releases it and goes with it."""
    struct = _struct_in(capsule, kind, _NAMES[kind])
    struct.capsule = capsule
    return struct


def _room_for(kind):
    return _owned(_core._arrow_taken(None, [*_NAMES].index(kind)), kind)


def _taken(capsule, kind, what):
    """What a capsule has, moved out: whoever is given the same capsule later finds that it was released."""
    name = _NAMES[kind].decode()
    try:
        moved = _core._arrow_taken(capsule, [*_NAMES].index(kind))
    except ValueError:
        raise ExchangeError(f"from_arrow: a {what} gave {capsule!r}; a capsule {name!r} expected") from None
    if moved is None:
        raise ExchangeError(f"from_arrow: the {name} of a {what} was consumed before")
    return _owned(moved, kind)


def _chunk_of(stream, obj):
    """The schema and the only chunk of a stream."""

    def call(function, into):
        if function(ctypes.byref(stream), ctypes.byref(into)) != 0:
            into.release = _RELEASE()  # whatever the failed call has left there, nobody gave it
            said = stream.get_last_error(ctypes.byref(stream))
            raise ExchangeError(
                f"from_arrow: {(said or b'it gives no reason').decode(errors='replace')} ({_name(obj)})"
            )
        return into

    schema = call(stream.get_schema, _room_for(_Schema))
    chunks: list[_Array] = []
    while not chunks or chunks[-1].release:
        chunks.append(call(stream.get_next, _room_for(_Array)))
    filled = [c for c in chunks[:-1] if c.length > 0] or chunks[:-1][:1]
    if len(filled) != 1:
        raise ExchangeError(
            f"from_arrow: {len(filled)} chunks in a {_name(obj)}; one array of them is needed, as of rechunk()"
        )
    return schema, filled[0]


def _name(obj):
    return f"{type(obj).__module__}.{type(obj).__qualname__}"


def _expect(true, field, value, expected, what):
    """A field that is wrong is refused by its name."""
    if not true:
        raise ExchangeError(f"from_arrow: {field} is {value!r}; {expected} expected (from a {what})")


def _capsules(given, what):
    pair = isinstance(given, tuple) and len(given) == 2
    _expect(pair, "__arrow_c_array__()", given, "a tuple of two capsules", what)
    return given


def _address_in(array, i, first, count, bits, what):
    """Where the element ${first} of a buffer begins, or the byte that has it; of no elements NULL."""
    if count == 0:
        return 0
    address = array.buffers[i] or 0
    _expect(address, f"buffers[{i}]", None, "an address, since there are elements,", what)
    inside = address + (first + count) * bits // 8 < _MEMORY and count * bits < _MOST_BITS
    _expect(inside, "(offset, length)", (array.offset, array.length), "a range of memory", what)
    return address + first * bits // 8


def _bits(array, i, first, count, what):
    """The bytes that have ${count} bits of a buffer, from bit ${first} on."""
    address, size = _address_in(array, i, first, count, 1, what), (first % 8 + count + 7) // 8
    return _core._wrap_pointer(address, (size,), None, "uint8", True, None).tobytes() if count else b""


def _refuse_nulls(array, first, count, what):
    """A validity bitmap may be there without a null, and how many there are may not have been counted (-1). Of a list's
    items, only those count that are taken."""
    if array.null_count == 0 or array.n_buffers < 1 or not array.buffers[0] or count == 0:
        return
    valid = int.from_bytes(_bits(array, 0, first, count, what), "little") >> first % 8 & ((1 << count) - 1)
    nulls = count - bin(valid).count("1")
    if nulls:
        raise ExchangeError(f"from_arrow: {nulls} nulls in a {what}; a tensor has none: fill or drop them first")


def _format_of(schema, what):
    _expect(schema.format is not None, "format", None, "a string", what)
    return schema.format.decode(errors="backslashreplace")


def _check_array(array, what):
    for field in ("length", "offset"):
        value = getattr(array, field)
        _expect(value >= 0, field, value, "at least 0", what)
    _expect(array.n_buffers < 1 or array.buffers, "buffers", None, f"{array.n_buffers} addresses", what)


def _items(schema, array, end, what):
    """The only child of a list of fixed size, which has all items before ${end}."""
    for struct, name in ((schema, "the schema's"), (array, "the array's")):
        _expect(struct.n_children == 1, f"{name} n_children", struct.n_children, "1 for a list", what)
        _expect(struct.children and struct.children[0], f"{name} children", None, "one child", what)
    schema, array = schema.children[0].contents, array.children[0].contents
    _check_array(array, what)
    _expect(array.length >= end, "the length of a list's items", array.length, f"at least {end}", what)
    return schema, array


def _layout(schema, array, what):
    """The format of the elements, the array that has them, the shape, and which element is the first."""
    _check_array(array, what)
    shape, first, count = [array.length], array.offset, array.length
    while True:
        if schema.dictionary or array.dictionary:
            raise ExchangeError(f"from_arrow: a {what} is encoded by a dictionary; cast it to the type of its values")
        text = _format_of(schema, what)
        _refuse_nulls(array, first, count, what)
        if not text.startswith("+w:"):
            return text, array, shape, first
        digits = text[3:]
        _expect(digits.isascii() and digits.isdigit() and len(digits) < 20, "format", text, "'+w:' and a size", what)
        extent = int(digits)
        _expect(len(shape) < _MOST_AXES, "the rank", len(shape) + 1, f"at most {_MOST_AXES}", what)
        schema, array = _items(schema, array, (first + count) * extent if count else 0, what)
        shape.append(extent)
        first, count = first * extent + array.offset, count * extent


_BITS = [bytes(byte >> bit & 1 for bit in range(8)) for byte in range(256)]


def _unpacked(array, first, count, what):
    """Truth values, which Arrow keeps as bits, in a byte each."""
    values = b"".join(map(_BITS.__getitem__, _bits(array, 1, first, count, what)))[first % 8 : first % 8 + count]
    return _core.frombuffer(bytearray(values)).reinterpret("bool")


def read(obj, copy):
    """moonferry.from_arrow."""
    what = _name(obj)
    if hasattr(obj, "__arrow_c_array__"):
        schema_capsule, capsule = _capsules(obj.__arrow_c_array__(), what)
        schema = _taken(schema_capsule, _Schema, what)
        array = _taken(capsule, _Array, what)
    elif hasattr(obj, "__arrow_c_stream__"):
        stream = _taken(obj.__arrow_c_stream__(), _Stream, what)
        schema, array = _chunk_of(stream, obj)
    else:
        raise TypeError(f"from_arrow: a {what} has neither __arrow_c_array__ nor __arrow_c_stream__")
    text, leaf, shape, first = _layout(schema, array, what)
    name = _DTYPES.get(text)
    if name is None:
        kind = "a table; give one column of it" if text == "+s" else f"of Arrow's format {text!r}, which is no dtype"
        raise ExchangeError(f"from_arrow: a {what} is {kind}")
    _expect(leaf.n_buffers >= 2, "n_buffers", leaf.n_buffers, f"2 for format {text!r}", what)
    count = math.prod(shape)
    if name == "bool":
        if copy is False:
            raise ExchangeError("from_arrow: copy=False, but truth values of Arrow are bits, and are copied")
        return _unpacked(leaf, first, count, what).reshape(shape)
    dtype = DType(name)
    start = _address_in(leaf, 1, first, count, dtype.bits, what)
    try:
        made = _core._wrap_pointer(start, tuple(shape), None, dtype, True, array.capsule)
    except (ValueError, OverflowError) as error:
        raise ExchangeError(f"from_arrow: {error} (from a {what})") from None
    return made.copy() if copy else made
