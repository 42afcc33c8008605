"""The type strings of array interfaces, such as "<f4": what they mean, and which one a dtype has.

Responsible for both array interfaces, NumPy's and CUDA's. Must not know of tensors, nor of what is done where the bytes
are in the other order.
"""

import functools
import sys

from moonferry._dtype import DType

LITTLE = sys.byteorder == "little"

# Kind of a NumPy type string -> code of a DLDataType.
_KINDS = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}

# The widths that each code has in a type string, in bits.
_WIDTHS = {0: (8, 16, 32, 64), 1: (8, 16, 32, 64), 2: (16, 32, 64), 5: (64, 128), 6: (8,)}


def text_of(typestr):
    """The text of one; some libraries, Mitsuba among them, give bytes, which NumPy takes, too."""
    return typestr.decode("ascii", "replace") if isinstance(typestr, bytes) else typestr


def is_swapped(text):
    """Whether an array interface's type string means the other byte order."""
    return text[:1] == (">" if LITTLE else "<") and text[2:] != "1"


@functools.lru_cache(64)
def dtype_of(text):
    """The DType of an array interface's type string, in this machine's byte order; None where there is none."""
    order, kind, digits = text[:1], text[1:2], text[2:]
    known = {str(bits // 8): bits for bits in _WIDTHS.get(_KINDS.get(kind, -1), ())}
    if order not in ("<", ">", "|", "=") or digits not in known:
        return None
    names = {"i": "int", "u": "uint", "f": "float", "c": "complex"}
    return DType("bool" if kind == "b" else f"{names[kind]}{known[digits]}")


def of(dtype, what):
    """The reverse. AttributeError where there is none, because then the interface is what is missing."""
    kinds = {code: kind for kind, code in _KINDS.items()}
    if dtype.lanes != 1 or dtype.bits not in _WIDTHS.get(dtype.code, ()):
        raise AttributeError(f"{what} has no type string for {dtype}")
    order = "|" if dtype.itemsize == 1 else "<" if LITTLE else ">"
    return f"{order}{kinds[dtype.code]}{dtype.itemsize}"
