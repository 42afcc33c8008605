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

local opengl = { is_here = pcall(ffi.load, "libEGL.so.1") }
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

local TEXTURE_2D = 0x0DE1

local function bind_texture(name)
  fn("BindTexture", "void (*)(unsigned, unsigned)")(TEXTURE_2D, name)
  fn("PixelStorei", "void (*)(unsigned, int)")(0x0CF5, 1)
  fn("PixelStorei", "void (*)(unsigned, int)")(0x0D05, 1)
end

--- A texture of a sized format with these pixels, which are of OpenGL's format and type.
function opengl.texture(internal, width, height, format, kind, bytes)
  local name = ffi.new "unsigned[1]"
  fn("GenTextures", "void (*)(int, unsigned *)")(1, name)
  bind_texture(name[0])
  fn("TexStorage2D", "void (*)(unsigned, int, unsigned, int, int)")(TEXTURE_2D, 1, internal, width, height)
  fn("TexSubImage2D", "void (*)(unsigned, int, int, int, int, int, unsigned, unsigned, const void *)")(TEXTURE_2D, 0, 0,
    0, width, height, format, kind, bytes)
  return name[0]
end

--- The bytes of its pixels.
function opengl.read_texture(name, format, kind, nbytes)
  local out = ffi.new("char[?]", nbytes)
  bind_texture(name)
  fn("GetTexImage", "void (*)(unsigned, int, unsigned, unsigned, void *)")(TEXTURE_2D, 0, format, kind, out)
  return ffi.string(out, nbytes)
end

function opengl.delete_texture(name)
  fn("DeleteTextures", "void (*)(int, const unsigned *)")(1, ffi.new("unsigned[1]", name))
  return fn("GetError", "unsigned (*)(void)")()
end

return opengl
