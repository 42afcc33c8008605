"""An OpenGL without a window, for programs that give its buffers to a GPU library: EGL through ctypes, Mesa will do."""

import ctypes

try:
    _egl = ctypes.CDLL("libEGL.so.1")
except OSError as none:
    raise ImportError(str(none)) from None
_p, _u, _i, _n = ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_ssize_t
_egl.eglGetPlatformDisplay.restype = _egl.eglCreateContext.restype = _egl.eglGetProcAddress.restype = _p
SURFACELESS, OPENGL_API, ARRAY_BUFFER, DYNAMIC_DRAW = 0x31DD, 0x30A2, 0x8892, 0x88E8


def _gl(name, *types, result=None):
    return ctypes.CFUNCTYPE(result, *types)(_egl.eglGetProcAddress(name.encode()))


def open_context():
    """A context of OpenGL 4.5, current on this thread."""
    display = _p(_egl.eglGetPlatformDisplay(SURFACELESS, None, None))
    assert _egl.eglInitialize(display, None, None)
    assert _egl.eglBindAPI(OPENGL_API)
    version = (_i * 7)(0x3098, 4, 0x30FB, 5, 0x30FD, 1, 0x3038)
    context = _egl.eglCreateContext(display, None, None, version)
    assert context and _egl.eglMakeCurrent(display, None, None, _p(context))


def buffer_of(data):
    """A buffer with these bytes."""
    name = _u()
    _gl("glGenBuffers", _i, _p)(1, ctypes.byref(name))
    _gl("glBindBuffer", _u, _u)(ARRAY_BUFFER, name)
    _gl("glBufferData", _u, _n, ctypes.c_char_p, _u)(ARRAY_BUFFER, len(data), data, DYNAMIC_DRAW)
    return name.value


def read(name, nbytes):
    """The bytes of a buffer, as OpenGL has them."""
    out = ctypes.create_string_buffer(nbytes)
    _gl("glBindBuffer", _u, _u)(ARRAY_BUFFER, name)
    _gl("glGetBufferSubData", _u, _n, _n, _p)(ARRAY_BUFFER, 0, nbytes, out)
    assert _gl("glGetError", result=_u)() == 0
    return out.raw


TEXTURE_2D = 0x0DE1


def _bind_texture(name):
    _gl("glBindTexture", _u, _u)(TEXTURE_2D, name)
    for store in (0x0CF5, 0x0D05):  # rows follow each other
        _gl("glPixelStorei", _u, _i)(store, 1)


def texture_of(internal, width, height, format, kind, data):
    """A texture of a sized format with these pixels, which are of OpenGL's format and kind."""
    name = _u()
    _gl("glGenTextures", _i, _p)(1, ctypes.byref(name))
    _bind_texture(name.value)
    _gl("glTexStorage2D", _u, _i, _u, _i, _i)(TEXTURE_2D, 1, internal, width, height)
    _gl("glTexSubImage2D", _u, _i, _i, _i, _i, _i, _u, _u, ctypes.c_char_p)(
        TEXTURE_2D, 0, 0, 0, width, height, format, kind, data
    )
    return name.value


def read_texture(name, format, kind, nbytes):
    """The bytes of its pixels, as OpenGL has them."""
    out = ctypes.create_string_buffer(nbytes)
    _bind_texture(name)
    _gl("glGetTexImage", _u, _i, _u, _u, _p)(TEXTURE_2D, 0, format, kind, out)
    assert _gl("glGetError", result=_u)() == 0
    return out.raw


def delete_texture(name):
    _gl("glDeleteTextures", _i, _p)(1, ctypes.byref(_u(name)))


# Each target that a buffer is bound to, with the name of its binding; and the pixel store.
BINDINGS = {0x8892: 0x8894, 0x8F36: 0x8F36, 0x88EB: 0x88ED, 0x88EC: 0x88EF}
STORE = [0x0CF0, 0x0CF1, 0x0CF2, 0x0CF3, 0x0CF4, 0x0CF5, 0x0D00, 0x0D01, 0x0D02, 0x0D03, 0x0D04, 0x0D05]
TEXTURE_BINDING_2D = 0x8069


def set_state(buffer=0, texture=0):
    """Binds them wherever they can be bound, and gives the pixel store values that nobody else wants; without a buffer
    those that OpenGL begins with. Forgets errors."""
    while _gl("glGetError", result=_u)():
        pass
    for target in BINDINGS:
        _gl("glBindBuffer", _u, _u)(target, buffer)
    for name in STORE:
        first = 4 if name in (0x0CF5, 0x0D05) else 0
        _gl("glPixelStorei", _u, _i)(name, 1 if buffer else first)
    _gl("glBindTexture", _u, _u)(TEXTURE_2D, texture)


def state():
    """What is bound, and the pixel store."""
    found = {}
    for name in [*BINDINGS.values(), *STORE, TEXTURE_BINDING_2D]:
        value = _i()
        _gl("glGetIntegerv", _u, _p)(name, ctypes.byref(value))
        found[name] = value.value
    return found
