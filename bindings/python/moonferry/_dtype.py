"""Dtypes and devices as Python sees them: strings that know their numbers.

Responsible for turning whatever other libraries call a dtype into one of ours. Invariant: one name, one
object, so that `is` works as well as `==`. It must not know about tensors.
"""

from __future__ import annotations

import sys
from typing import Any

from moonferry import _core

_dtypes: dict[str, DType] = {}
_devices: dict[str, Device] = {}


class DType(str):
    """An element type of DLPack 1.3: equal to its name, such as "float32".

    `code`, `bits`, `lanes` are DLDataType's numbers, `itemsize` is the bytes of one element (rounded up
    for a dtype narrower than a byte). DType(x) accepts what every dtype parameter does: a name, a dtype
    of NumPy, PyTorch, JAX or ml_dtypes, a NumPy scalar type, or float, int, bool, complex.
    Raises TypeError for anything else.
    """

    __slots__ = ("code", "bits", "lanes", "itemsize")

    code: int
    bits: int
    lanes: int
    itemsize: int

    def __new__(cls, dtype: Any) -> DType:
        if type(dtype) is cls:
            return dtype
        name = dtype if isinstance(dtype, str) else _name_of(dtype)
        known = _dtypes.get(name)
        if known is None:
            known = cls._make(name)
        return known

    @classmethod
    def _make(cls, name: str) -> DType:
        code, bits, lanes, itemsize = _core._dtype_parse(str(name))
        self = str.__new__(cls, name)
        for attribute, value in zip(cls.__slots__, (code, bits, lanes, itemsize)):
            object.__setattr__(self, attribute, value)
        return _dtypes.setdefault(str(name), self)

    def __setattr__(self, name, value):
        raise AttributeError(f"a DType cannot be changed: {name}")

    def __reduce__(self):
        return DType, (str(self),)

    def __repr__(self):
        return f"moonferry.DType({str(self)!r})"


class Device(str):
    """Where memory is: equal to its usual name, such as "cpu", "cuda:0", "rocm:1" or "cuda_host:0" for pinned memory.

    Device(x) accepts what every device parameter does: a name ("cuda" is "cuda:0"), a pair of DLPack's numbers, a
    device of PyTorch. `type` and `id` are DLDevice's numbers. Whether the device exists is not asked. Raises
    ValueError for what is none.
    """

    __slots__ = ("type", "id")

    type: int
    id: int

    def __new__(cls, device: Any) -> Device:
        known = _devices.get(device) if isinstance(device, str) else None
        if known is None:
            known = cls._make(device)
        return known

    @classmethod
    def _make(cls, device: Any) -> Device:
        kind, index, name = _core._device_parse(device)
        self = _devices.get(name)
        if self is None:
            self = str.__new__(cls, name)
            object.__setattr__(self, "type", kind)
            object.__setattr__(self, "id", index)
            self = _devices.setdefault(name, self)
        return self

    def __setattr__(self, name, value):
        raise AttributeError(f"a Device cannot be changed: {name}")

    def __reduce__(self):
        return Device, (str(self),)

    def __repr__(self):
        return f"moonferry.Device({str(self)!r})"


_PYTHON = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}

# PyTorch's names for what DLPack calls otherwise.
_TORCH = {"float4_e2m1fn_x2": "float4_e2m1fnx2"}


def _name_of(dtype):
    """The name of a dtype object of any library, not yet checked to be one of ours."""
    if isinstance(dtype, type) and dtype in _PYTHON:
        return _PYTHON[dtype]
    if type(dtype).__module__ == "torch":
        name = str(dtype).rpartition(".")[2]
        return _TORCH.get(name, name)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name = _numpy_name(numpy, dtype)
        if name is not None:
            return name
    raise TypeError(f"{dtype!r} is no dtype: a name, or a dtype of an array library, is needed")


def _numpy_name(numpy, dtype):
    if not isinstance(dtype, numpy.dtype):
        inner = getattr(dtype, "dtype", None)
        if isinstance(inner, numpy.dtype):
            dtype = inner
        elif isinstance(dtype, type) and issubclass(dtype, numpy.generic):
            dtype = numpy.dtype(dtype)
        else:
            return None
    if not dtype.isnative:
        raise TypeError(f"dtype {dtype.str} has its bytes in the other order; only native order is held")
    return dtype.name


def resolve(dtype: Any) -> DType:
    """The DType of anything that a dtype parameter accepts. Raises TypeError."""
    return DType(dtype)
