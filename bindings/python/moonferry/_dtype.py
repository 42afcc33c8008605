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
    """An element type of DLPack 1.3: a str such as "float32". It is equal to its name and to the dtypes of other
    libraries that DType turns into it: t.dtype == np.float32.

    DType(x) accepts what every dtype parameter accepts: a name (also NumPy's "f4" or "double"), a dtype of NumPy,
    PyTorch, JAX or ml_dtypes, a NumPy scalar type, or float, int, bool, complex. It also accepts names of any width,
    such as "int23". `code`, `bits` and `lanes` are the numbers of DLDataType; `itemsize` is the bytes of one element,
    rounded up.
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
        name = str.__str__(dtype) if isinstance(dtype, str) else _name_of(dtype)
        known = _dtypes.get(name)
        if known is None:
            known = cls._make(name)
        return known

    @staticmethod
    def _make(name: str) -> DType:
        try:
            code, bits, lanes, itemsize = _core._dtype_parse(name)
        except (TypeError, UnicodeEncodeError):
            return _named(name)
        self = str.__new__(DType, name)  # whatever class asked: it is what everybody is given
        for attribute, value in zip(DType.__slots__, (code, bits, lanes, itemsize)):
            object.__setattr__(self, attribute, value)
        return _dtypes.setdefault(name, self)

    @property
    def name(self) -> str:
        """str: the dtype's name."""
        return str.__str__(self)

    @property
    def kind(self) -> str:
        """str, as NumPy's: "b", "i", "u", "f" (every float, bfloat16 and the narrow ones included) or "c"; "V" for
        opaque handles.
        """
        return _KINDS.get(self.code, "f")

    @property
    def byteorder(self) -> str:
        """str, as NumPy's: "|" if an element takes one byte or less, otherwise "=", the machine's byte order."""
        return "|" if self.itemsize == 1 else "="

    def __eq__(self, other):
        if isinstance(other, str):
            return str.__eq__(self, other)
        try:
            return str.__eq__(self, DType(other))
        except TypeError:
            return NotImplemented

    def __ne__(self, other):
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    __hash__ = str.__hash__

    def _no_order(self, other):
        raise TypeError(
            f"dtypes have no order: {str(self)!r}, {str(other)!r}; compare their itemsize, or ask np.can_cast(a, b)"
        )

    __lt__ = __le__ = __gt__ = __ge__ = _no_order

    def __setattr__(self, name, value):
        raise AttributeError(f"a DType cannot be changed: {name}")

    def __reduce__(self):
        return DType, (str(self),)

    def __repr__(self):
        return f"moonferry.DType({str(self)!r})"


class Device(str):
    """The device that memory belongs to: a str such as "cpu", "cuda:0", "rocm:1" or, for pinned memory, "cuda_host:0".

    Device(x) accepts what every device parameter accepts: a name ("cuda" means "cuda:0"), a pair of DLPack's numbers,
    or a PyTorch device. It does not check whether the device exists. `type` and `id` are the numbers of DLDevice.
    Raises ValueError for another name and other numbers, TypeError for what is neither.
    """

    __slots__ = ("type", "id")

    type: int
    id: int

    def __new__(cls, device: Any, *more: Any) -> Device:
        if more:
            raise TypeError(f"Device takes one name, such as 'cuda:0', got {', '.join(map(repr, (device, *more)))}")
        known = _devices.get(device) if isinstance(device, str) else None
        if known is None:
            known = cls._make(device)
        return known

    @staticmethod
    def _make(device: Any) -> Device:
        kind, index, name = _core._device_parse(device)
        self = _devices.get(name)
        if self is None:
            self = str.__new__(Device, name)
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


# The kinds of DLDataType's codes that are no floats.
_KINDS = {0: "i", 1: "u", 3: "V", 5: "c", 6: "b"}

# What NumPy calls a dtype beside its name, without the sign of the byte order.
_NUMPY = {
    "?": "bool", "b1": "bool", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64", "u1": "uint8",
    "u2": "uint16", "u4": "uint32", "u8": "uint64", "f2": "float16", "f4": "float32", "f8": "float64",
    "c8": "complex64", "c16": "complex128", "half": "float16", "single": "float32", "double": "float64",
    "float": "float64", "int": "int64", "complex": "complex128", "bool_": "bool",
}  # fmt: skip
_NATIVE = "<" if sys.byteorder == "little" else ">"

# What a slip of the finger was meant to be.
_USUAL = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128", "int4", "uint4"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn"),
)


def _named(text: str) -> DType:
    """The dtype that NumPy calls so. Raises TypeError, with what was probably meant."""
    order, rest = text[:1], text[1:]
    alias = _NUMPY.get(rest if order and order in "=|" + _NATIVE else text)
    if alias is not None:
        return DType(alias)
    if order and order in "<>" and rest in _NUMPY:
        raise TypeError(f"dtype {text!r} has its bytes in the other order; {_NATIVE + rest!r} is this machine's")
    import difflib

    near = difflib.get_close_matches(text.lower(), _USUAL, 1)
    said = f"did you mean {near[0]!r}?" if near else "a name such as 'float32' is needed"
    try:
        _core._dtype_parse(text)
    except (TypeError, UnicodeEncodeError):
        raise TypeError(f"there is no dtype {text!r}; {said}") from None
    raise TypeError(f"no library has the dtype {text!r}; {said} (DType({text!r}) takes it as it is)")


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
    raise TypeError(
        f"a dtype must be a name such as 'float32', or a dtype of NumPy or another array library, got {dtype!r}"
    )


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
    """The DType of anything that a dtype parameter accepts. A plain str comes only if it is no usual name."""
    if type(dtype) is str:
        return _named(dtype)
    try:
        return DType(dtype)
    except TypeError as error:
        if not isinstance(dtype, int):
            raise
        raise TypeError(f"{error}; the extents of a shape go into a tuple: zeros((2, 3))") from None


# What to do with an array of NumPy's that holds no numbers of ours, by its dtype's kind.
_NO_NUMBERS = {
    **dict.fromkeys("OUST", "x.astype('float64') makes numbers of it"),
    **dict.fromkeys("Mm", "x.view('int64') has its numbers"),
    "V": "moonferry.fields takes one of records, x.view('uint8') has the bytes of any",
}


def remedy(dtype):
    """What an error says of an array that cannot be taken, of a dtype of any library's or of None."""
    if type(dtype).__module__ == "torch" and str(dtype).startswith(("torch.qu", "torch.qi")):
        return "; x.dequantize() has its numbers, x.int_repr() the integers that stand for them"
    if getattr(dtype, "kind", None) in ("f", "c") and dtype.itemsize > (16 if dtype.kind == "c" else 8):
        return f"; x.astype('{'float64' if dtype.kind == 'f' else 'complex128'}') rounds its numbers"
    if getattr(dtype, "isnative", None) is False and dtype.kind not in _NO_NUMBERS:
        return "; without copy=False a copy in this machine's order is made"
    text = _NO_NUMBERS.get(getattr(dtype, "kind", ""))
    return f"; {text}" if text else ""
