-- A context of OpenGL's without a window, from EGL (Mesa's llvmpipe will do), for the specs and the benchmark.
local ffi = require "ffi"

-- Under names of ours, so that who declares EGL itself is not in the way.
ffi.cdef [[
void *egl_display(unsigned platform, void *native, const intptr_t *attributes) __asm__("eglGetPlatformDisplay");
unsigned egl_initialize(void *display, int *major, int *minor) __asm__("eglInitialize");
unsigned egl_bind(unsigned api) __asm__("eglBindAPI");
unsigned egl_choose(void *display, const int *attributes, void **configs, int size, int *count)
  __asm__("eglChooseConfig");
void *egl_create(void *display, void *config, void *share, const int *attributes) __asm__("eglCreateContext");
unsigned egl_make_current(void *display, void *draw, void *read, void *context) __asm__("eglMakeCurrent");
void *egl_address(const char *name) __asm__("eglGetProcAddress");
]]
local SURFACELESS, OPENGL_API = 0x31DD, 0x30A2

local egl = {}
local library -- as long as this module, because it goes with its last reference, and OpenGL with it

--- Makes a context of OpenGL 4.5 current on this thread; returns a function that finds OpenGL's functions.
---@return fun(name: string, signature: string): ffi.cdata*
function egl.open()
  library = library or ffi.load "libEGL.so.1"
  local display = library.egl_display(SURFACELESS, nil, nil)
  assert(library.egl_initialize(display, nil, nil) ~= 0 and library.egl_bind(OPENGL_API) ~= 0, "eglInitialize")
  local config, count = ffi.new "void *[1]", ffi.new "int[1]"
  assert(library.egl_choose(display, ffi.new("int[3]", 0x3040, 8, 0x3038), config, 1, count) ~= 0, "eglChooseConfig")
  local context = library.egl_create(display, config[0], nil,
    ffi.new("int[7]", 0x3098, 4, 0x30FB, 5, 0x30FD, 1, 0x3038)) -- a core context of version 4.5
  assert(context ~= nil and library.egl_make_current(display, nil, nil, context) ~= 0, "no OpenGL 4.5")
  return function(name, signature)
    return ffi.cast(signature, library.egl_address("gl" .. name))
  end
end

return egl
