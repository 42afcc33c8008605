"""moonferry.wrap: a tensor over host memory that somebody else owns, by its address.

Invariant: an address is trusted, because nothing is known of it; an array of ctypes is not. It must not know where the
address came from.
"""

from __future__ import annotations

import contextlib
import operator
import sys
from typing import Any, NoReturn

from moonferry import _core, _typestr
from moonferry._convert import describe
from moonferry._core import Tensor
from moonferry._dtype import DType

_PAGE = 4096  # no system has memory below it

# What the formats of C's numbers are, bytes apart, which hold anything; ctypes says how wide each is.
_KINDS = {**dict.fromkeys("hilq", "int"), **dict.fromkeys("HILQ", "uint"), "f": "float", "d": "float"}
# The dtypes that C has no integer for.
_FLOATS = ("float32", "float64", "complex64")


def _refuse(pointer: Any) -> NoReturn:
    given = f"a {describe(pointer)}; asarray shares arrays and buffers"
    raise TypeError(f"wrap: pointer must be an address or of ctypes, not {given}") from None


def _address_of(pointer: Any) -> int:
    """The address in a number, in a pointer or an array of ctypes, or in what else has one as its parameter."""
    if isinstance(pointer, int) and not isinstance(pointer, bool):
        return pointer
    if pointer is None:
        return 0
    import ctypes

    # ctypes takes whatever comes when an object is asked what it is for an answer, Ctrl-C too: cast makes an error of
    # its own of that, and from_param of CPython 3.13 forgets it. So ctypes is given what it made itself.
    made_by_ctypes: Any = (ctypes.c_void_p.__mro__[-2], type(ctypes.byref(ctypes.c_int())))  # its base, and references
    if not isinstance(pointer, made_by_ctypes):
        inner = getattr(pointer, "_as_parameter_", pointer)
        return _refuse(pointer) if inner is pointer else _address_of(inner)
    try:
        parameter = ctypes.c_void_p.from_param(pointer)
        with contextlib.suppress(ctypes.ArgumentError):  # that of a char pointer
            return ctypes.cast(parameter, ctypes.c_void_p).value or 0
        return ctypes.cast(pointer, ctypes.c_void_p).value or 0
    except (TypeError, ctypes.ArgumentError):
        _refuse(pointer)


def _plain(value: Any) -> Any:
    """An integer of any library's as one of Python's, so that what is checked is what the tensor has; anything else as
    it is, for _core to refuse."""
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        return value
    return int.__int__(operator.index(value))


def _integers(value: Any, what: str) -> tuple[Any, ...]:
    try:
        items = tuple(value)
    except TypeError:
        if what != "shape" or not hasattr(type(value), "__index__"):
            raise TypeError(f"wrap: {what} must be a sequence of integers, not {value!r}") from None
        items = (value,)
    return tuple(map(_plain, items))


def _check_element(array: Any, dtype: DType) -> None:
    """Integers of one width stand for each other, and for what C has no type for."""
    with memoryview(array) as memory:
        kind, bits = _KINDS.get(memory.format.lstrip("<>=@")), 8 * memory.itemsize
        swapped = bits > 8 and _typestr.is_swapped(memory.format)
    if kind is None:
        return
    if swapped:
        instead = "asarray makes a copy in this machine's order"
        raise TypeError(f"wrap: pointer: the array holds {kind}{bits} with the bytes in the other order; {instead}")
    holds = DType(f"{kind}{bits}")
    as_bits = holds.kind in "iu" and holds.bits == dtype.bits and dtype not in _FLOATS
    if holds == dtype or as_bits:
        return
    instead = "a pointer, by ctypes.cast, may point to anything"
    raise TypeError(f"wrap: dtype: the array holds {holds}, and dtype is {dtype} ({instead})")


def _check_extent(array: Any, shape: tuple[Any, ...], strides: tuple[Any, ...] | None, dtype: DType) -> None:
    import ctypes

    if 0 in shape or not all(isinstance(n, int) for n in (*shape, *(strides or ()))) or min(shape, default=1) < 0:
        return
    if strides is None or len(strides) != len(shape):
        first, last = 0, 1
        for extent in shape:
            last *= extent
    else:
        reach = [(extent - 1) * step for extent, step in zip(shape, strides)]
        first, last = sum(step for step in reach if step < 0), sum(step for step in reach if step > 0) + 1
    bits = dtype.bits * dtype.lanes
    size, low, high = ctypes.sizeof(array), first * bits // 8, -(-last * bits // 8)
    if low < 0 or high > size:
        raise ValueError(f"wrap: shape: the elements take bytes {low} to {high} of an array of {size} bytes")


def wrap(
    pointer: Any,
    shape: Any,
    dtype: Any = "float32",
    *,
    strides: Any = None,
    owner: Any = None,
    readonly: bool = False,
) -> Tensor:
    """Returns a Tensor over host memory that somebody else owns, without a copy. from_cuda_array does this for a GPU's
    memory.

    pointer: an address, or a ctypes pointer or array. Moonferry cannot check an address or a pointer. An array must
    hold elements of the dtype, or bytes, and be as large as shape and strides require.
    strides: in elements; None means compact.
    owner: an object that is kept alive as long as the memory is used; None keeps pointer itself.
    Raises TypeError or ValueError.
    """
    address = _address_of(pointer)
    extents = _integers(shape, "shape")
    steps = None if strides is None else _integers(strides, "strides")
    if not address and 0 not in extents:
        raise ValueError(f"wrap: pointer is {pointer!r}, which is NULL; an address expected")
    if address and not _PAGE <= address < 1 << 64:
        raise ValueError(f"wrap: pointer is {pointer!r}, which is no address")
    ctypes = sys.modules.get("ctypes")
    if ctypes is not None and isinstance(pointer, ctypes.Array):
        _check_element(pointer, DType(dtype))
        _check_extent(pointer, extents, steps, DType(dtype))
    return _core._wrap_pointer(address, extents, steps, dtype, readonly, pointer if owner is None else owner)
