"""Named fields of interleaved records, such as the vertices of a mesh: each a strided tensor over the same memory.

Invariant: a field is a view of the bytes that were given, so that it lives, waits and is taken back with them. It must
not know what the fields are for.
"""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple, cast

from moonferry._core import Tensor, empty, frombuffer
from moonferry._dtype import DType


class _Field(NamedTuple):
    name: str
    dtype: DType
    size: int
    offset: int
    shape: tuple[int, ...]

    @property
    def end(self) -> int:
        return self.offset + self.size * math.prod(self.shape)


def _size_of(dtype: DType, where: str) -> int:
    bits = dtype.bits * dtype.lanes
    if bits % 8:
        raise ValueError(f"{where}: {dtype} is narrower than a byte")
    return bits // 8


def _count(value: Any, where: str) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"{where} must be an integer, not {value!r}") from None
    if count < 0:
        raise ValueError(f"{where} is {count}; at least 0 expected")
    return count


def _listed(layout: Any) -> list[_Field]:
    """The fields of a list, each at the next byte that its dtype may stand at, as a C compiler would place it."""
    fields: list[_Field] = []
    after = 0
    for i, entry in enumerate(layout):
        where = f"field {i}"
        if not isinstance(entry, (tuple, list)) or len(entry) not in (2, 3) or not isinstance(entry[0], str):
            raise TypeError(f"{where} is {entry!r}; (name, dtype) or (name, dtype, count) expected")
        # A name is taken as every dtype parameter takes it: DType itself would take one of any width.
        dtype = empty(0, cast(Any, entry[1])).dtype if type(entry[1]) is str else DType(entry[1])
        size = _size_of(dtype, where)
        shape = (_count(entry[2], f"{where}: count"),) if len(entry) == 3 else ()
        fields.append(_Field(entry[0], dtype, size, -(-after // size) * size, shape))
        after = fields[-1].end
    return fields


def _of_numpy(layout: Any) -> list[_Field]:
    """The fields of a structured dtype of NumPy's, which says where each is."""
    fields = []
    for name in layout.names:
        kind, offset = layout.fields[name][:2]
        dtype = DType(kind.base)
        fields.append(_Field(name, dtype, _size_of(dtype, f"field {name!r}"), offset, kind.shape))
    return fields


def _check(fields: list[_Field], stride: int) -> None:
    known: dict[str, int] = {}
    for i, field in enumerate(fields):
        if field.name in known:
            raise ValueError(f"field {i}: the name {field.name!r} is field {known[field.name]}'s")
        if field.offset % field.size or stride % field.size:
            raise ValueError(
                f"field {i}: {field.dtype} at byte {field.offset} of records of {stride} bytes; multiples of "
                f"{field.size} expected"
            )
        if field.end > stride:
            raise ValueError(f"stride is {stride}; at least {field.end}, the end of field {i}, expected")
        known[field.name] = i


def _records(base: Any, stride: int) -> Tensor:
    """A uint8 tensor with a record in each row."""
    if isinstance(base, Tensor) and base.ndim == 2:
        if base.dtype != "uint8" or base.shape[1] != stride:
            raise ValueError(f"base is {base.dtype} of shape {base.shape}; uint8 with rows of {stride} bytes expected")
        return base
    if isinstance(base, Tensor):
        raw = base
    else:
        try:
            raw = frombuffer(base)
        except TypeError:
            kind = type(base).__name__
            raise TypeError(f"base must be a uint8 tensor or have the buffer protocol, not '{kind}'") from None
    if raw.dtype != "uint8" or raw.ndim != 1:
        raise ValueError(f"base is {raw.dtype} of shape {raw.shape}; uint8 of rank 1 or 2 expected")
    if raw.shape[0] % stride:
        raise ValueError(f"base has {raw.shape[0]} bytes; a multiple of {stride}, the bytes of a record, expected")
    return raw.reshape(raw.shape[0] // stride, stride)


def fields(base: Any, layout: Any, stride: int | None = None) -> dict[str, Tensor]:
    """Returns a dict of strided tensors, one for each named field of records such as vertices.

        v = fields(memory, [("position", "float32", 2), ("color", "uint8", 4), ("size", "float32")])
        v["position"][:, 0]

    base: a uint8 tensor, either with one record in each row or with one axis; or an object with the buffer protocol.
    Its memory is shared and kept alive.
    layout: a list of (name, dtype), for a field of shape (n,), and (name, dtype, count), for one of shape (n, count),
    with the offsets that a C compiler would choose; or a NumPy structured dtype.
    stride: the bytes from one record to the next; by default the size of a record.
    Raises ValueError if layout does not describe such records or does not fit base; TypeError; BufferError.
    """
    numpys = getattr(layout, "names", None) is not None and getattr(layout, "fields", None) is not None
    if not numpys and not isinstance(layout, (list, tuple)):
        raise TypeError(f"layout is {layout!r}; a list of (name, dtype, count) or a structured dtype expected")
    parsed = _of_numpy(layout) if numpys else _listed(layout)
    if not parsed:
        raise ValueError("layout is empty; at least one field expected")
    if not any(math.prod(field.shape) for field in parsed):
        raise ValueError("each field of layout has a count of 0; a record has at least one element")
    largest = max(field.size for field in parsed)
    default = layout.itemsize if numpys else -(-max(field.end for field in parsed) // largest) * largest
    given = default if stride is None else _count(stride, "stride")
    _check(parsed, given)
    records = _records(base, given)
    made = {}
    for field in parsed:
        part = records[:, field.offset : field.end].reinterpret(field.dtype)
        made[field.name] = part.reshape(records.shape[0], *field.shape) if len(field.shape) != 1 else part
    return made
