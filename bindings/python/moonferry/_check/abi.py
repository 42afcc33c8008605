"""DLPack 1.3's structs in ctypes, capsules, and producers made by hand that count what is done to them.

Invariant: what a capsule made here points to lives until the process ends, so that no mistake of a consumer can touch
freed memory of ours. Must not know: any library, any rule.
"""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

READ_ONLY, IS_COPIED, PADDED = 1, 2, 4
CPU = 1


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32)]


class Legacy(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("version", Version),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


class Table(ctypes.Structure):
    _fields_ = [
        ("version", Version),
        ("previous", ctypes.c_void_p),
        ("allocator", ctypes.c_void_p),
        ("managed_from_py", ctypes.c_void_p),
        ("managed_to_py", ctypes.c_void_p),
        ("dltensor_from_py", ctypes.c_void_p),
        ("current_work_stream", ctypes.c_void_p),
    ]


_api = ctypes.pythonapi
DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_capsule_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
    ("PyCapsule_New", _api)
)
_capsule_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", _api))
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(("PyCapsule_SetName", _api))

# Everything that a struct of ours points to, for ever; capsules keep the pointers of their names.
_kept: list[Any] = []
_names = {n: ctypes.create_string_buffer(n) for n in (b"dltensor", b"dltensor_versioned")}
_used = {n: ctypes.create_string_buffer(b"used_" + n) for n in _names}


def name_of(capsule: Any) -> bytes:
    return bytes(_capsule_name(capsule) or b"")


def address_of(capsule: Any) -> int:
    return int(_capsule_pointer(capsule, name_of(capsule)))


class Managed:
    """What a capsule of a library holds, read; `release` takes it over first, as a consumer does."""

    def __init__(self, capsule: Any):
        self.name = name_of(capsule)
        if self.name not in _names:
            raise ValueError(f"the capsule is named {self.name!r}")
        self.capsule = capsule
        self.struct: Any = (Versioned if b"versioned" in self.name else Legacy).from_address(address_of(capsule))
        self.address = address_of(capsule)

    @property
    def versioned(self) -> bool:
        return isinstance(self.struct, Versioned)

    @property
    def flags(self) -> int:
        return int(self.struct.flags) if self.versioned else 0

    @property
    def tensor(self) -> Any:
        return self.struct.tensor

    @property
    def pointer(self) -> int:
        return first_element(self.tensor)

    def take(self) -> None:
        """From now on the capsule's destructor must leave the struct alone."""
        _set_name(self.capsule, ctypes.addressof(_used[self.name]))
        self.capsule = None

    def release_taken(self) -> None:
        if self.struct.deleter:
            DELETER(self.struct.deleter)(self.address)

    def release(self) -> None:
        self.take()
        self.release_taken()


def first_element(tensor: Any) -> int:
    return int(tensor.data or 0) + int(tensor.byte_offset)


def shape_of(tensor: Any) -> tuple[int, ...]:
    return tuple(tensor.shape[i] for i in range(tensor.ndim))


def strides_of(tensor: Any) -> tuple[int, ...]:
    """In elements; NULL is compact row-major."""
    if tensor.strides:
        return tuple(tensor.strides[i] for i in range(tensor.ndim))
    return compact(shape_of(tensor))


def compact(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def dtype_of(tensor: Any) -> tuple[int, int, int]:
    return tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes


def elements(tensor: Any) -> bytes:
    """The elements in row-major order, each in whole bytes; those smaller than a byte as they are packed."""
    if tensor.dtype.bits * tensor.dtype.lanes % 8 != 0:
        count = 1
        for extent in shape_of(tensor):
            count *= extent
        return ctypes.string_at(first_element(tensor), (count * tensor.dtype.bits * tensor.dtype.lanes + 7) // 8)
    size = (tensor.dtype.bits * tensor.dtype.lanes + 7) // 8
    base, strides = first_element(tensor), strides_of(tensor)
    spans = [range(n) for n in shape_of(tensor)]
    at = (base + size * sum(i * s for i, s in zip(index, strides)) for index in itertools.product(*spans))
    return b"".join(ctypes.string_at(a, size) for a in at)


class Foreign:
    """A producer that no library knows, over memory of its own, which notes what it was asked and what was deleted.

    `strides` are in elements, `start` is the first element's index in `data`. `wrong` are fields set after all others.
    """

    def __init__(self, data: bytes, shape: tuple[int, ...], dtype: tuple[int, int, int], **options: Any):
        self.size = (dtype[1] * dtype[2] + 7) // 8
        self.memory = ctypes.create_string_buffer(len(data) + 512)
        self.base = (ctypes.addressof(self.memory) + 255) // 256 * 256
        ctypes.memmove(self.base, data, len(data))
        self.shape, self.dtype = shape, dtype
        self.strides = options.pop("strides", compact(shape))
        self.start = options.pop("start", 0)
        self.versioned = options.pop("versioned", True)
        self.flags = options.pop("flags", 0)
        self.version = options.pop("version", (1, 3))
        self.device = options.pop("device", (CPU, 0))
        self.null_deleter = options.pop("null_deleter", False)
        self.null_data = options.pop("null_data", False)
        self.by_offset = options.pop("by_offset", False)
        self.wrong = options.pop("wrong", {})
        self.answer = options.pop("answer", None)
        assert not options, options
        self.deleted = 0
        self.asked: list[dict[str, Any]] = []
        self.last: Any = None  # the capsule that was given last
        self.gave_versioned = False
        _kept.append(self)

    def fill(self, tensor: Any) -> None:
        extents = (ctypes.c_int64 * max(1, len(self.shape)))(*self.shape)
        steps = (ctypes.c_int64 * max(1, len(self.shape)))(*(self.strides or ()))
        _kept.append((extents, steps))
        offset = self.start * self.size
        tensor.data = None if self.null_data else self.base + (0 if self.by_offset else offset)
        tensor.byte_offset = offset if self.by_offset else 0
        tensor.device = Device(*self.device)
        tensor.ndim = len(self.shape)
        tensor.dtype = DataType(*self.dtype)
        pointer = ctypes.POINTER(ctypes.c_int64)
        tensor.shape = ctypes.cast(extents, pointer) if self.shape else None
        tensor.strides = ctypes.cast(steps, pointer) if self.shape and self.strides is not None else None
        for name, value in self.wrong.items():
            setattr(tensor, name, value)

    def managed(self, versioned: bool) -> Any:
        struct: Any = Versioned() if versioned else Legacy()
        if versioned:
            struct.version, struct.flags = Version(*self.version), self.flags

        @DELETER
        def delete(_: int) -> None:
            self.deleted += 1

        struct.deleter = None if self.null_deleter else ctypes.cast(delete, ctypes.c_void_p)
        self.fill(struct.tensor)
        _kept.append((struct, delete))
        return struct

    def capsule(self, versioned: bool | None = None) -> Any:
        versioned = self.versioned if versioned is None else versioned
        name = b"dltensor_versioned" if versioned else b"dltensor"
        # Without a destructor: it would be Python code that runs while a consumer's exception is in flight.
        self.last = _capsule_new(ctypes.addressof(self.managed(versioned)), ctypes.addressof(_names[name]), None)
        self.gave_versioned |= versioned
        return self.last

    def copied(self) -> Any:
        other = Foreign(self.bytes(), self.shape, self.dtype, flags=IS_COPIED, versioned=self.versioned)
        return other.__dlpack__(max_version=self.asked[-1]["max_version"])

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        self.asked.append({"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy})
        if self.answer is not None:
            return self.answer(self)
        if dl_device not in (None, self.device):
            raise BufferError(f"dl_device is {dl_device!r}; expected: {self.device!r}")
        if copy:
            return self.copied()
        return self.capsule(self.versioned and max_version is not None and max_version[0] >= 1)

    def __dlpack_device__(self):
        return self.device

    def bytes(self) -> bytes:
        """The elements as they are now."""
        tensor = Tensor()
        self.fill(tensor)
        return elements(tensor)
