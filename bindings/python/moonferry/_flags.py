"""The flags of a tensor: DLPack's bits, and what NumPy's arrays say under that name.

Responsible for `Tensor.flags`, which libraries written for NumPy's arrays ask for (XGBoost, soundfile). Must not know
how a tensor is made.
"""

from __future__ import annotations

from typing import NoReturn

_READ_ONLY = 1
_NAMES = ("c_contiguous", "f_contiguous", "aligned", "writeable", "owndata")
# NumPy's short names of them, which libraries ask for as items.
_SHORT = {
    **{"c": "c_contiguous", "contiguous": "c_contiguous", "f": "f_contiguous", "fortran": "f_contiguous"},
    **{"a": "aligned", "w": "writeable", "o": "owndata"},
}


def _are_packed(extents_and_strides):
    """Whether axes lie without gaps, the last of them fastest; those of one element may have any stride."""
    step = 1
    for extent, stride in reversed(extents_and_strides):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


class Flags(int):
    """DLPack's flag bits (1 read-only, 2 copied by its producer, 4 sub-byte elements padded), and as attributes and
    items the flags of NumPy's arrays: c_contiguous, f_contiguous, aligned, writeable, and owndata, which is False."""

    c_contiguous: bool
    f_contiguous: bool
    aligned: bool
    writeable: bool
    owndata: bool

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"flags.{name} of a tensor cannot be set; t.as_readonly() is a read-only view")

    def __setitem__(self, name: str, value: object) -> None:
        setattr(self, str(name).lower(), value)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"flags has no {name!r}; it has {', '.join(_NAMES)}")

    def __getitem__(self, name: str) -> bool:
        known = _SHORT.get(str(name).lower(), str(name).lower())
        if known not in _NAMES:
            raise KeyError(f"flags has no {name!r}; it has {', '.join(map(str.upper, _NAMES))}")
        return bool(getattr(self, known))


def flags_of(t, bits):
    """The Flags of a tensor whose DLPack bits these are."""
    axes = list(zip(t.shape, t.strides))
    number = t.dtype.bits // 8 // (2 if t.dtype.kind == "c" else 1)
    flags = Flags(bits)
    vars(flags).update(
        c_contiguous=t.size == 0 or _are_packed(axes),
        f_contiguous=t.size == 0 or _are_packed(axes[::-1]),
        aligned=t.data_ptr % max(number, 1) == 0,
        writeable=not bits & _READ_ONLY,
        owndata=False,
    )
    return flags
