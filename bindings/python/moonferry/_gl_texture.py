"""Textures of OpenGL's and tensors of a GPU: copies on a stream, by CUDA's or HIP's arrays.

Invariant: the texture is OpenGL's before and after each call. It must not know how OpenGL's functions were found.
"""

from __future__ import annotations

import ctypes
from typing import Any

import moonferry
from moonferry import _gl_picture as picture
from moonferry._gl_calls import C, Error, Registration, shared_device, stream_number, sweep, unwrap, whole

_TEXTURE_2D = 0x0DE1
_WIDTH, _HEIGHT, _INTERNAL_FORMAT = 0x1000, 0x1001, 0x1003

# What the host's route can copy, by OpenGL's sized names: names of gl.formats.
_FORMATS = {
    0x8229: "r8",
    0x822B: "rg8",
    0x8058: "rgba8",
    0x822D: "r16f",
    0x822F: "rg16f",
    0x881A: "rgba16f",
    0x822E: "r32f",
    0x8230: "rg32f",
    0x8814: "rgba32f",
}


class SharedTexture:
    """A texture of OpenGL's to which a GPU's tensors are copied, and from which. route: "mapped": the GPU does that
    itself, or "copied": the pixels go through the host; reason: why."""

    def __init__(self, context: Any, texture: int, device: str, use: str | None, route: str | None) -> None:
        self._which = shared_device(texture, "texture", device, use, route)
        self._context, self._texture, self._use, self._device = context, texture, use, device
        self._registered = Registration("texture", context._dropped)
        self.reason: str | None = None
        if route != "copied":
            sweep(context._dropped)
            self.reason = self._registered.open(self._which, texture, use)
            if self.reason is not None and route == "mapped":
                raise RuntimeError(self.reason)
        self.route = "mapped" if self._registered else "copied"

    def upload(self, t: moonferry.Tensor, stream: moonferry.Stream | None = None, *, x: int = 0, y: int = 0) -> None:
        """The elements of t, height x width x channels (or height x width of one channel) in the texture's own dtype
        and order of channels, to level 0 of the texture, from pixel x, y on. Row 0 is OpenGL's lowest; strides may be
        any. Behind what OpenGL was told before and what used t, on that stream (None: the current one); what OpenGL is
        told next comes after it. The host waits for nothing where the route is "mapped". Raises TypeError for another
        dtype, ValueError for a part that is not there, a texture that is shared for reading, and once it is closed."""
        self._check("read", "shared for reading; use='discard', or none, expected")
        if self.route == "mapped":
            self._by_driver(C.mf_gl_texture_upload, t, stream, x, y)
        else:
            self._upload_by_host(t, x, y)

    def download(self, t: moonferry.Tensor, stream: moonferry.Stream | None = None, *, x: int = 0, y: int = 0) -> None:
        """The other way, from the texture to t. The host waits where t is in its own memory. Raises as upload, for a
        texture that is shared for discarding what it has, and for a read-only t."""
        self._check("discard", "shared for discarding what it has; use='read', or none, expected")
        if self.route == "mapped":
            self._by_driver(C.mf_gl_texture_download, t, stream, x, y)
        elif stream is None:
            self._download_by_host(t, x, y)
        else:
            with stream:
                self._download_by_host(t, x, y)

    def close(self) -> None:
        """Gives the texture back to OpenGL alone."""
        try:
            self._registered.close()
        finally:
            self.route = "mapped" if self._registered else "closed"

    def _check(self, against: str, why: str) -> None:
        if self.route == "closed":
            raise ValueError("the shared texture is closed")
        if self._use == against:
            raise ValueError(f"the texture is {why}")
        sweep(self._context._dropped)

    def _by_driver(self, call: Any, t: moonferry.Tensor, stream: moonferry.Stream | None, x: int, y: int) -> None:
        x, y = whole(x, "x"), whole(y, "y")
        error, number = Error(), stream_number(stream, self._which)
        error.check(call(self._registered.handle, unwrap(t), x, y, number, ctypes.byref(error)))

    def _level(self, what: int) -> int:
        out = ctypes.c_int32()
        self._context.call["GetTexLevelParameteriv"](_TEXTURE_2D, 0, what, ctypes.byref(out))
        return out.value

    def _form(self, t: moonferry.Tensor, x: int, y: int) -> tuple[str, int, int]:
        """The name of its format, width and height, with the texture bound; and whether t fits."""
        x, y = whole(x, "x"), whole(y, "y")
        internal = self._level(_INTERNAL_FORMAT)
        if internal not in _FORMATS:
            expected = "one of gl.formats with 1, 2 or 4 channels expected"
            raise ValueError(f"the texture has OpenGL's format {internal:#x}; {expected}")
        width, height = self._level(_WIDTH), self._level(_HEIGHT)
        if t.ndim < 2 or min(x, y) < 0 or x + t.shape[1] > width or y + t.shape[0] > height:
            raise ValueError(f"{t.shape} from {x}, {y} on do not fit in the texture's {width} by {height}")
        return _FORMATS[internal], width, height

    def _upload_by_host(self, t: moonferry.Tensor, x: int, y: int) -> None:
        host = t.to("cpu", copy=True)
        with picture.bound(self._context, self._texture):
            name, _, _ = self._form(host, x, y)
            self._context.upload(self._texture, host if host.ndim > 2 else host.expand_dims(2), name, x, y)

    def _download_by_host(self, t: moonferry.Tensor, x: int, y: int) -> None:
        with picture.bound(self._context, self._texture):
            name, width, height = self._form(t, x, y)
            format, kind, dtype, channels = picture.FORMATS[name]
            host = moonferry.empty((height, width, channels), moonferry.DType(dtype))
            with picture.store(self._context, picture.PACK, 0, 0):
                self._context.call["GetTexImage"](_TEXTURE_2D, 0, format, kind, host.data_ptr)
        part = host[y : y + t.shape[0], x : x + t.shape[1]]
        t.copy(part.squeeze(2) if t.ndim == 2 and channels == 1 else part)
