"""The dicts by which arrays describe themselves, NumPy's and CUDA's, read field by field.

Responsible for what both have: shape, strides, typestr, mask, and data that is an address. Invariant: a field that is
wrong is refused by its name, with what it is, what it should be and whose it is. Must not know of buffers and streams.
"""

from __future__ import annotations

import math
import operator
from typing import Any

from moonferry import _core, _typestr
from moonferry._core import ExchangeError

_LEAST, _MOST = -(2**63), 2**63 - 1


def integer(value: Any, least: int = _LEAST, most: int = _MOST) -> int | None:
    """An integer of any kind in this range; None for anything else, a bool among it."""
    if type(value) is not int:
        try:
            value = None if isinstance(value, bool) else operator.index(value)
        except TypeError:
            return None
    return value if value is not None and least <= value <= most else None


def _integers(values: Any, least: int = _LEAST) -> tuple[int, ...] | None:
    found = [integer(value, least) for value in values] if isinstance(values, (tuple, list)) else [None]
    return None if None in found else tuple(found)  # type: ignore[arg-type]


class Interface:
    def __init__(self, name: str, fields: dict[str, Any], whose: str) -> None:
        """name: that of the attribute. whose: what class of object has it."""
        self.name, self.get, self._whose = name, fields.get, whose

    def refusal(self, field: str, expected: str) -> ExchangeError:
        return ExchangeError(f"{self.name}: {field} is {self.get(field)!r}; {expected} expected (from a {self._whose})")

    def refuse_mask(self) -> None:
        if self.get("mask") is not None:
            raise ExchangeError(f"{self.name}: a mask cannot be exchanged (from a {self._whose})")

    def shape(self) -> tuple[int, ...]:
        shape = _integers(self.get("shape"), 0)
        if shape is None:
            raise self.refusal("shape", "a tuple of integers from 0 to 2**63 - 1")
        return shape

    def typestr(self) -> tuple[str, Any]:
        """Its text and its dtype."""
        given = self.get("typestr")
        text = _typestr.text_of(given) if isinstance(given, (str, bytes)) else ""
        dtype = _typestr.dtype_of(text)
        if dtype is None:
            raise self.refusal("typestr", "the type string of a dtype, such as '<f4',")
        return text, dtype

    def strides(self, shape: tuple[int, ...], itemsize: int) -> tuple[int, ...] | None:
        """In elements; the dict has them in bytes."""
        if self.get("strides") is None:
            return None
        strides = _integers(self.get("strides"))
        if strides is None or len(strides) != len(shape):
            raise self.refusal("strides", f"None or a tuple of {len(shape)} integers of 64 bits")
        if any(extent > 1 and step % itemsize for step, extent in zip(strides, shape)):
            raise self.refusal("strides", f"multiples of {itemsize}, the bytes of an element,")
        return tuple(step // itemsize for step in strides)

    def address(self, shape: tuple[int, ...]) -> tuple[int, bool]:
        """Where the elements are, and whether they are read-only."""
        data = self.get("data")
        if not isinstance(data, (tuple, list)) or len(data) != 2:
            raise self.refusal("data", "an address and a bool")
        address = integer(data[0] or 0, 0, 2**64 - 1)
        if address is None:
            raise self.refusal("data", "an address and a bool")
        if address == 0 and 0 not in shape:
            raise self.refusal("data", "an address, since there are elements,")
        return address, bool(data[1])

    def check_extent(self, nbytes: int, shape: tuple[int, ...], strides: tuple[int, ...] | None, itemsize: int) -> None:
        """A buffer has an end, unlike an address: what the dict describes must lie inside."""
        if 0 in shape:
            return
        if strides is None:
            first, last = 0, itemsize * math.prod(shape)
        else:
            reach = [(extent - 1) * step * itemsize for extent, step in zip(shape, strides)]
            first = sum(step for step in reach if step < 0)
            last = sum(step for step in reach if step > 0) + itemsize
        if first < 0 or last > nbytes:
            raise ExchangeError(f"{self.name}: bytes {first} to {last} are outside the buffer of {nbytes}")

    def wrapped(self, address: int, *rest: Any) -> Any:
        """A tensor over the memory that the dict describes, with what _wrap_pointer takes."""
        try:
            return _core._wrap_pointer(address, *rest)
        except (ValueError, OverflowError) as error:
            raise ExchangeError(f"{self.name}: {error} (from a {self._whose})") from None
