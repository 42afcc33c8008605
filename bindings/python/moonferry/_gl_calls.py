"""What moonferry.gl calls: OpenGL's functions, found through the library that has a current context, and libmoonferry's
for buffers that are shared with a GPU.

Invariant: an exception, such as that of Ctrl-C, may come behind any call; what a call has made has an owner before it.
It must not know what is drawn.
"""

from __future__ import annotations

import ctypes
import operator
import warnings
from ctypes import POINTER, byref, c_char, c_char_p, c_int32, c_int64, c_ssize_t, c_uint8, c_uint32, c_uint64, c_void_p
from typing import Any

import moonferry
from moonferry import _core

_EINVAL, _ENOMEM, _EDTYPE, _EDEVICE, _EDRIVER, _ECAPTURE = -1, -2, -7, -9, -11, -12
NAME_MAX = 2**32 - 1  # of a buffer or a texture
_CURRENT, _DEFAULT, _CPU, _CUDA, _ROCM = 0, 1, 1, 2, 10


class Error(ctypes.Structure):
    _fields_ = [("status", c_int32), ("driver_code", c_int32), ("call", c_char_p), ("message", c_char * 240)]

    def text(self) -> str:
        return self.message.decode("utf-8", "replace")

    def check(self, status: int) -> None:
        """Raises what a failed function of libmoonferry's says."""
        if status == 0:
            return
        if status == _EDRIVER:
            error: Any = moonferry.DriverError(self.text())
            error.call, error.code = (self.call or b"").decode(), self.driver_code
            raise error
        known = {_ENOMEM: MemoryError, _EDTYPE: TypeError, _EDEVICE: RuntimeError, _ECAPTURE: RuntimeError}
        raise known.get(status, ValueError)(self.text())


class Device(ctypes.Structure):
    _fields_ = [("device_type", c_int32), ("device_id", c_int32)]


class DType(ctypes.Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device", Device),
        ("ndim", c_int32),
        ("dtype", DType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class _Table(ctypes.Structure):
    """moonferry_python.h: mf_python_api."""

    _fields_ = [
        ("version", c_uint32),
        ("size", c_uint32),
        ("build_id", c_char_p),
        ("wrap", c_void_p),
        ("unwrap", ctypes.PYFUNCTYPE(c_void_p, ctypes.py_object)),
    ]


class _Calls(ctypes.Structure):
    _fields_ = [(name, c_void_p) for name in ("fence_sync", "client_wait_sync", "delete_sync", "current_context")]


C = ctypes.CDLL(_core.__file__)  # libmoonferry's functions are found through what is linked with it
_python = ctypes.pythonapi
releases_run = ctypes.PyDLL(_core.__file__).mf_releases_run  # with the GIL, as every release from Python
releases_run.restype, releases_run.argtypes = None, []
for _name, _result, _types in (
    ("mf_gl_create", c_int32, [POINTER(_Calls), POINTER(c_void_p), POINTER(Error)]),
    ("mf_gl_release", None, [c_void_p]),
    ("mf_gl_end", None, [c_void_p]),
    ("mf_gl_buffer_open", c_int32, [POINTER(Device), c_uint32, c_uint32, POINTER(c_void_p), POINTER(Error)]),
    ("mf_gl_buffer_map", c_int32, [c_void_p, c_int64, POINTER(DLTensor), POINTER(c_void_p), POINTER(Error)]),
    ("mf_gl_buffer_unmap", c_int32, [c_void_p, POINTER(c_int32), POINTER(Error)]),
    ("mf_gl_buffer_close", c_int32, [c_void_p, POINTER(Error)]),
    ("mf_gl_texture_open", c_int32, [POINTER(Device), c_uint32, c_uint32, c_uint32, POINTER(c_void_p), POINTER(Error)]),
    ("mf_gl_texture_upload", c_int32, [c_void_p, c_void_p, c_int64, c_int64, c_int64, POINTER(Error)]),
    ("mf_gl_texture_download", c_int32, [c_void_p, c_void_p, c_int64, c_int64, c_int64, POINTER(Error)]),
    ("mf_gl_texture_close", c_int32, [c_void_p, POINTER(Error)]),
    ("mf_device_parse", c_int32, [c_char_p, POINTER(Device), POINTER(Error)]),
    ("mf_stream_check", c_int32, [POINTER(Device), c_int64, POINTER(Error)]),
    ("mf_dtype_parse", c_int32, [c_char_p, POINTER(DType), POINTER(Error)]),
    ("mf_tensor_fence_wait", c_int32, [c_void_p, c_int32, c_int64, POINTER(c_int32), POINTER(Error)]),
    ("mf_tensor_invalidate", c_int32, [c_void_p, POINTER(c_int32), POINTER(Error)]),
    ("mf_ring_slot", c_void_p, [c_void_p, c_int32]),
):
    getattr(C, _name).restype, getattr(C, _name).argtypes = _result, _types
_python.PyCapsule_GetPointer.restype = c_void_p
_python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, c_char_p]
unwrap = _Table.from_address(_python.PyCapsule_GetPointer(_core._C_API, b"moonferry._C_API")).unwrap


_I, _U, _N, _P = c_int32, c_uint32, c_ssize_t, c_void_p
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "GetError": (_U,),
    "GetIntegerv": (None, _U, POINTER(_I)),
    "GetStringi": (c_char_p, _U, _U),
    "GenBuffers": (None, _I, POINTER(_U)),
    "DeleteBuffers": (None, _I, POINTER(_U)),
    "BindBuffer": (None, _U, _U),
    "BufferData": (None, _U, _N, _P, _U),
    "BufferSubData": (None, _U, _N, _N, _P),
    "GetBufferSubData": (None, _U, _N, _N, _P),
    "BufferStorage": (None, _U, _N, _P, _U),
    "MapBufferRange": (_P, _U, _N, _N, _U),
    "UnmapBuffer": (c_uint8, _U),
    "PixelStorei": (None, _U, _I),
    "BindTexture": (None, _U, _U),
    "GetTexLevelParameteriv": (None, _U, _I, _U, POINTER(_I)),
    "GetTexImage": (None, _U, _I, _U, _U, _P),
    "TexSubImage2D": (None, _U, _I, _I, _I, _I, _I, _U, _U, _P),
    "ReadPixels": (None, _I, _I, _I, _I, _U, _U, _P),
    "Finish": (None,),
}
_OPTIONAL = {"GetStringi", "BufferStorage", "GetTexLevelParameteriv", "GetTexImage"}

_LIBRARIES = {
    "sdl": ("libSDL2-2.0.so.0", "SDL_GL_GetProcAddress", "SDL_GL_GetCurrentContext"),
    "glfw": ("libglfw.so.3", "glfwGetProcAddress", "glfwGetCurrentContext"),
    "egl": ("libEGL.so.1", "eglGetProcAddress", "eglGetCurrentContext"),
}


def _open_library(name: str) -> tuple[Any, Any] | None:
    file, getproc, current = _LIBRARIES[name]
    try:
        library = ctypes.CDLL(file)
        resolve, context = getattr(library, getproc), getattr(library, current)
    except (OSError, AttributeError):
        return None
    resolve.restype, resolve.argtypes, context.restype = _P, [c_char_p], _P
    return resolve, context


def find_library(name: str | None) -> tuple[Any, Any]:
    """The resolver and the question for the current context, of the library that has one, or that was named."""
    if name is not None and name not in _LIBRARIES:
        raise ValueError(f'library is {name!r}; "sdl", "glfw", "egl" or a pair of functions expected')
    for each in _LIBRARIES if name is None else [name]:
        found = _open_library(each)
        if found is not None and found[1]():
            return found
    raise RuntimeError(f"no context of OpenGL is current in {name or 'SDL, GLFW or EGL'}")


def load_functions(getproc: Any) -> dict[str, Any]:
    calls = {}
    for name, signature in _SIGNATURES.items():
        address = getproc(f"gl{name}".encode())
        if address:
            calls[name] = ctypes.CFUNCTYPE(*signature)(address)
        elif name not in _OPTIONAL:
            raise RuntimeError(f"there is no gl{name}")
    return calls


def create_gl(getproc: Any, current: Any, out: c_void_p) -> None:
    """Makes libmoonferry's part of the context, its fences, which is out's."""
    address = ctypes.cast(current, c_void_p).value
    calls = _Calls(getproc(b"glFenceSync"), getproc(b"glClientWaitSync"), getproc(b"glDeleteSync"), address)
    error = Error()
    error.check(C.mf_gl_create(byref(calls), byref(out), byref(error)))


def describe(shape: Any, dtype: Any) -> tuple[DLTensor, Any]:
    """A description but for data and device, and the extents that it points to."""
    try:
        given = tuple(shape)
    except TypeError:  # one extent
        given = (shape,)
    extents = [whole(extent, "an extent of shape", -(2**63), 2**63 - 1) for extent in given]
    array = (c_int64 * max(len(extents), 1))(*extents)
    like, error = DLTensor(ndim=len(extents), shape=array), Error()
    name = str(moonferry.empty(0, dtype).dtype)
    error.check(C.mf_dtype_parse(name.encode(), byref(like.dtype), byref(error)))
    return like, array


def whole(value: Any, what: str, least: int = -(2**31), most: int = 2**31 - 1) -> int:
    """An integer that OpenGL's functions take as it is; of a larger one ctypes would give them the low bits."""
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise TypeError(f"{what} is {value!r}; an integer expected")
    number = operator.index(value)
    if not least <= number <= most:
        raise ValueError(f"{what} is {number}; {least} to {most} expected")
    return number


def check_route(route: str | None) -> None:
    """Refuses what is no route."""
    if route not in (None, "mapped", "copied"):
        raise ValueError(f"route is {route!r}; 'mapped', 'copied' or None expected")


def shared_device(number: object, what: str, device: str, use: str | None, route: str | None) -> Device:
    """The device that is to share a buffer or a texture of OpenGL's; checks the other arguments, too."""
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= NAME_MAX:
        raise ValueError(f"{what} is {number!r}; OpenGL's number of a {what} expected")
    if use not in (None, "read", "discard"):
        raise ValueError(f"use is {use!r}; 'read', 'discard' or None expected")
    check_route(route)
    if not isinstance(device, str):
        raise TypeError(f"device must be a name such as 'cuda:0', not {device!r}")
    which, error = Device(), Error()
    error.check(C.mf_device_parse(device.encode(), byref(which), byref(error)))
    if which.device_type == _CPU:
        raise ValueError(f"device is {device!r}; a GPU, such as 'cuda:0', expected")
    error.check(C.mf_stream_check(byref(which), _DEFAULT, byref(error)))
    return which


_OPEN = {"buffer": C.mf_gl_buffer_open, "texture": C.mf_gl_texture_open}
_CLOSE = {"buffer": C.mf_gl_buffer_close, "texture": C.mf_gl_texture_close}
_AS_IT_WAS = (_EINVAL, _ECAPTURE)  # the answers of a close that has closed nothing


class Registration:
    """A buffer or a texture that a GPU's driver knows until close. It is false where there is none. Where it is dropped
    without close it joins the context's list, for sweep: only the context's thread may ask the driver."""

    handle = c_void_p()  # as long as an exception may come into __init__

    def __init__(self, what: str, dropped: list[tuple[str, c_void_p]]) -> None:
        self._what, self.handle, self._dropped = what, c_void_p(), dropped

    def open(self, which: Device, name: int, use: str | None) -> str | None:
        """Registers it, or says why the driver does not."""
        flags, error = {"read": 1, "discard": 2}.get(use or "", 0), Error()
        target = () if self._what == "buffer" else (0,)
        status = _OPEN[self._what](byref(which), name, *target, flags, byref(self.handle), byref(error))
        return None if status == 0 else error.text()

    def __bool__(self) -> bool:
        return bool(self.handle)

    def close(self) -> None:
        error, none, close = Error(), c_void_p(), _CLOSE[self._what]
        answer = byref(error)
        if not self.handle:
            return
        handle, self.handle = self.handle, none  # no exception comes between this and the call
        try:
            close(handle, answer)
        finally:
            if error.status in _AS_IT_WAS:
                self.handle = handle
        error.check(error.status)

    def __del__(self) -> None:
        if self.handle:
            self._dropped.append((self._what, self.handle))
            text = f"a {self._what} of OpenGL's that was shared with a GPU was not closed"
            warnings.warn(text, ResourceWarning, stacklevel=2)


def sweep(dropped: list[tuple[str, c_void_p]]) -> None:
    """Closes what was dropped. Meanwhile the list may grow at its end."""
    for _ in range(len(dropped)):
        error, (what, handle) = Error(), dropped[0]
        close, answer = _CLOSE[what], byref(error)
        del dropped[0]  # no exception comes between this and the call
        try:
            close(handle, answer)
        finally:
            if error.status in _AS_IT_WAS:
                dropped.append((what, handle))


def stream_number(stream: moonferry.Stream | None, which: Device) -> int:
    """What libmoonferry calls the stream of that device; None: the current one."""
    if stream is None:
        return _CURRENT
    if not isinstance(stream, moonferry.Stream):
        raise TypeError(f"stream is {stream!r}; a moonferry.Stream or None expected")
    asked, own = (which.device_type, which.device_id), (stream.device.type, stream.device.id)
    if which.device_type in (_CUDA, _ROCM) and asked != own:
        raise ValueError(f"stream is one of {stream.device}; one of {moonferry.Device(asked)} expected")
    return _DEFAULT if stream.handle == 0 and which.device_type == _ROCM else stream.handle
