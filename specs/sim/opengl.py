"""An OpenGL without a window, for programs that give its buffers to a GPU library: EGL through ctypes, Mesa will do."""

import ctypes

_egl = ctypes.CDLL("libEGL.so.1")
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
