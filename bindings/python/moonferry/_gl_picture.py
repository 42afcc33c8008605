"""Pictures of OpenGL's as tensors: up to textures, and back without a stall.

Invariant: what is bound, and the pixel store, are as they were when a function returns. It must not know how OpenGL's
functions were found.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import moonferry
from moonferry._gl_calls import NAME_MAX, C, unwrap, whole

# What a tensor's elements are to OpenGL: format, type, dtype, and channels: with 0 an element is a whole pixel.
FORMATS: dict[str, tuple[int, int, str, int]] = {
    "r8": (0x1903, 0x1401, "uint8", 1),
    "rg8": (0x8227, 0x1401, "uint8", 2),
    "rgb8": (0x1907, 0x1401, "uint8", 3),
    "rgba8": (0x1908, 0x1401, "uint8", 4),
    "bgr8": (0x80E0, 0x1401, "uint8", 3),
    "bgra8": (0x80E1, 0x1401, "uint8", 4),
    "srgb8": (0x1907, 0x1401, "uint8", 3),
    "srgb8_alpha8": (0x1908, 0x1401, "uint8", 4),
    "r16f": (0x1903, 0x140B, "float16", 1),
    "rg16f": (0x8227, 0x140B, "float16", 2),
    "rgba16f": (0x1908, 0x140B, "float16", 4),
    "r32f": (0x1903, 0x1406, "float32", 1),
    "rg32f": (0x8227, 0x1406, "float32", 2),
    "rgb32f": (0x1907, 0x1406, "float32", 3),
    "rgba32f": (0x1908, 0x1406, "float32", 4),
    "rgb10_a2": (0x1908, 0x8368, "uint32", 0),
    "bgr10_a2": (0x80E1, 0x8368, "uint32", 0),
    "r11f_g11f_b10f": (0x1907, 0x8C3B, "uint32", 0),
}

# The target and binding of each buffer, and of the pixel store: row length, alignment, and what has to be 0.
UNPACK = (0x88EC, 0x88EF, 0x0CF2, 0x0CF5, (0x0CF0, 0x0CF1, 0x0CF3, 0x0CF4))
PACK = (0x88EB, 0x88ED, 0x0D02, 0x0D05, (0x0D00, 0x0D01, 0x0D03, 0x0D04))
_TEXTURE_2D, _TEXTURE_BINDING_2D = 0x0DE1, 0x8069
_GPUS = (2, 10)  # DLPack's cuda and rocm


@contextlib.contextmanager
def store(context: Any, of: Any, buffer: int, row_length: int) -> Iterator[None]:
    target, binding, length, alignment, others = of
    wanted = {length: row_length, alignment: 1, **dict.fromkeys(others, 0)}
    before = {name: context._integer(name) for name in wanted}
    with context._bound(target, binding, buffer):
        try:
            for name, value in wanted.items():
                context.call["PixelStorei"](name, value)
            yield
        finally:
            for name, value in before.items():
                context.call["PixelStorei"](name, value)


@contextlib.contextmanager
def bound(context: Any, texture: int) -> Iterator[None]:
    """The texture is the one that calls for 2D textures are about."""
    before = context._integer(_TEXTURE_BINDING_2D)
    try:
        context.call["BindTexture"](_TEXTURE_2D, texture)
        yield
    finally:
        context.call["BindTexture"](_TEXTURE_2D, before)


def _format(name: str) -> tuple[int, int, str, int]:
    if name not in FORMATS:
        raise ValueError(f'format is {name!r}; a name of gl.formats, such as "rgba8", expected')
    return FORMATS[name]


def _picture(t: moonferry.Tensor, format: tuple[int, int, str, int]) -> tuple[int, int, int, int]:
    """Height, width, elements of a pixel and from one row to the next."""
    _, _, dtype, channels = format
    if str(t.dtype) != dtype:
        raise ValueError(f"dtype is {t.dtype}; {dtype} expected")
    if t.ndim != (3 if channels else 2) or (channels and t.shape[2] != channels):
        raise ValueError(f"shape is {t.shape}; height x width{f' x {channels}' if channels else ''} expected")
    unit = max(channels, 1)
    if not ((t.shape[1] <= 1 or t.strides[1] == unit) and (channels <= 1 or t.strides[2] == 1)):
        raise ValueError(f"strides are {t.strides}; compact pixels in each row expected, as t.copy() has them")
    return t.shape[0], t.shape[1], unit, t.strides[0]


def upload(context: Any, texture: int, t: moonferry.Tensor, format: str, x: int, y: int) -> None:
    known = _format(format)
    if t.device.type in _GPUS:
        raise ValueError(f"t is on {t.device}; memory that the host can read expected, as t.to('cpu') has it")
    name, x, y = whole(texture, "texture", 0, NAME_MAX), whole(x, "x"), whole(y, "y")
    t = t[...]  # which nobody else can close while OpenGL reads
    height, width, unit, pitch = _picture(t, known)
    t.acquire("host", False)
    size, call = t.itemsize, context.call
    in_one = pitch >= width * unit and pitch % unit == 0 and pitch // unit < 1 << 31
    rows = height if in_one else 1
    with bound(context, name), store(context, UNPACK, 0, pitch // unit if rows > 1 else 0):
        for row in range(0, height, max(rows, 1)):
            data = t.data_ptr + row * pitch * size
            call["TexSubImage2D"](_TEXTURE_2D, 0, x, y + row, width, rows, known[0], known[1], data)


class Reader:
    """Pictures on their way back."""

    def __init__(self, context: Any, width: int, height: int, format: str, slots: int, route: str | None) -> None:
        self._format = _format(format)
        width, height = whole(width, "width", 1), whole(height, "height", 1)
        shape = (height, width, self._format[3]) if self._format[3] else (height, width)
        self._size, self._queued = (width, height), list[int]()
        self._came: int | None = None
        self.ring = context.ring(shape, self._format[2], target="pack", slots=slots, route=route)

    def read(self, x: int = 0, y: int = 0) -> None:
        """Queues a read of the frame buffer that is bound for reading, from pixel x, y on. The picture that latest gave
        stays as it is for as many more reads as there are slots but one."""
        x, y = whole(x, "x"), whole(y, "y")
        try:
            i = self._queue(x, y)
            self.ring.done(write=True)
        except BaseException:
            with contextlib.suppress(ValueError):  # no slot was begun, or it was given back
                self.ring.done(write=True)
            raise
        self._queued.append(i)

    def _queue(self, x: int, y: int) -> int:
        """Queues a read to a slot that is begun; gives its number."""
        ring, mapped = self.ring, self.ring.route == "mapped"
        t, i = ring.begin()
        if self._came == i:
            self._came = None
        to = i * ring._slot_nbytes if mapped else t.data_ptr
        with store(ring._context, PACK, ring.buffer if mapped else 0, 0):
            ring._context.call["ReadPixels"](x, y, *self._size, self._format[0], self._format[1], to)
        return i

    def latest(self) -> moonferry.Tensor | None:
        """The newest picture that has come, row 0 OpenGL's lowest; None before the first one. Never waits."""
        done = ctypes.c_int32()
        while self._queued:
            handle = unwrap(self.ring.slots[self._queued[0]])
            C.mf_tensor_fence_wait(handle, 1, 0, ctypes.byref(done), None)
            if not done.value:
                break
            self._came = self._queued[0]
            del self._queued[0]
        return None if self._came is None else self.ring.slots[self._came]

    def close(self) -> bool:
        """Ends it; see gl.Ring.close."""
        return self.ring.close()
