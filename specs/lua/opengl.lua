-- An OpenGL without a window, for the specs of devices: EGL's surfaceless platform, which Mesa has, and buffers.
local ffi = require "ffi"

pcall(ffi.cdef, [[
void *eglGetPlatformDisplay(unsigned platform, void *native, const intptr_t *attributes);
unsigned eglInitialize(void *display, int *major, int *minor);
unsigned eglBindAPI(unsigned api);
void *eglCreateContext(void *display, void *config, void *share, const int *attributes);
unsigned eglMakeCurrent(void *display, void *draw, void *read, void *context);
void *eglGetProcAddress(const char *name);
]])

local opengl = {}
local SURFACELESS, OPENGL_API, ARRAY, DYNAMIC = 0x31DD, 0x30A2, 0x8892, 0x88E8
local EGL, display, context

--- Makes a context of OpenGL 4.5 current; the first call opens it.
function opengl.open()
  if not context then
    EGL = ffi.load "libEGL.so.1"
    display = EGL.eglGetPlatformDisplay(SURFACELESS, nil, nil)
    assert(EGL.eglInitialize(display, nil, nil) ~= 0 and EGL.eglBindAPI(OPENGL_API) ~= 0)
    context = EGL.eglCreateContext(display, nil, nil, ffi.new("int[7]", 0x3098, 4, 0x30FB, 5, 0x30FD, 1, 0x3038))
    assert(context ~= nil, "no OpenGL 4.5")
  end
  assert(EGL.eglMakeCurrent(display, nil, nil, context) ~= 0)
end

local function fn(name, signature)
  return ffi.cast(signature, EGL.eglGetProcAddress("gl" .. name))
end

--- A buffer with a copy of the bytes at a pointer.
function opengl.buffer(bytes, nbytes)
  local name = ffi.new "unsigned[1]"
  fn("GenBuffers", "void (*)(int, unsigned *)")(1, name)
  fn("BindBuffer", "void (*)(unsigned, unsigned)")(ARRAY, name[0])
  fn("BufferData", "void (*)(unsigned, intptr_t, const void *, unsigned)")(ARRAY, nbytes, bytes, DYNAMIC)
  return name[0]
end

--- The bytes of a buffer.
function opengl.read(name, nbytes)
  local out = ffi.new("char[?]", nbytes)
  fn("BindBuffer", "void (*)(unsigned, unsigned)")(ARRAY, name)
  fn("GetBufferSubData", "void (*)(unsigned, intptr_t, intptr_t, void *)")(ARRAY, 0, nbytes, out)
  return ffi.string(out, nbytes)
end

function opengl.delete(name)
  fn("DeleteBuffers", "void (*)(int, const unsigned *)")(1, ffi.new("unsigned[1]", name))
  return fn("GetError", "unsigned (*)(void)")()
end

return opengl
