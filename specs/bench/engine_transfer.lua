-- A picture of 4k from a tensor to OpenGL, for `make bench-engine`: what the engine's thread pays to hand it over and
-- to draw it, from a buffer that stays mapped and through glBufferSubData. A shader reads the buffer.
--
--   luajit engine_transfer.lua FRAMES     prints the figures
--
-- Times are CPU time of this thread, without the filling of the tensor. Must not know: what else is measured.
local ffi = require "ffi"
local gl = require "moonferry.gl"

ffi.cdef [[
typedef struct { long s, ns; } bench_timespec;
int clock_gettime(int clock, bench_timespec *out);
]]
local FRAMES, W, H = tonumber(arg[1]), 3840, 2160
local THREAD_CPUTIME, clock = 3, ffi.new "bench_timespec"
local function now()
  ffi.C.clock_gettime(THREAD_CPUTIME, clock)
  return tonumber(clock.s) * 1e9 + tonumber(clock.ns)
end

local fn = require("egl").open()
local CreateShader, ShaderSource = fn("CreateShader", "unsigned (*)(unsigned)"),
  fn("ShaderSource", "void (*)(unsigned, int, const char *const *, const int *)")
local CompileShader, AttachShader = fn("CompileShader", "void (*)(unsigned)"),
  fn("AttachShader", "void (*)(unsigned, unsigned)")
local BindBufferRange = fn("BindBufferRange", "void (*)(unsigned, unsigned, unsigned, intptr_t, intptr_t)")
local DrawArrays, Finish = fn("DrawArrays", "void (*)(unsigned, int, int)"), fn("Finish", "void (*)(void)")
local ReadPixels = fn("ReadPixels", "void (*)(int, int, int, int, unsigned, unsigned, void *)")

local function attach(program, kind, text)
  local shader = CreateShader(kind)
  ShaderSource(shader, 1, ffi.new("const char *[1]", { text }), nil)
  CompileShader(shader)
  AttachShader(program, shader)
end

local function prepare()
  local names = ffi.new "unsigned[3]"
  local program = fn("CreateProgram", "unsigned (*)(void)")()
  attach(program, 0x8B31, "#version 450\nvoid main() {\n"
    .. "gl_Position = vec4(gl_VertexID == 1 ? 3 : -1, gl_VertexID == 2 ? 3 : -1, 0, 1); }")
  attach(program, 0x8B30, "#version 450\nlayout(std430, binding = 0) buffer Picture { uint pixels[]; };\nout vec4 o;\n"
    .. "void main() { o = unpackUnorm4x8(pixels[int(gl_FragCoord.y) * 3840 + int(gl_FragCoord.x)]); }")
  fn("LinkProgram", "void (*)(unsigned)")(program)
  fn("UseProgram", "void (*)(unsigned)")(program)
  fn("GenVertexArrays", "void (*)(int, unsigned *)")(1, names)
  fn("BindVertexArray", "void (*)(unsigned)")(names[0])
  fn("GenTextures", "void (*)(int, unsigned *)")(1, names + 1)
  fn("BindTexture", "void (*)(unsigned, unsigned)")(0x0DE1, names[1])
  fn("TexStorage2D", "void (*)(unsigned, int, unsigned, int, int)")(0x0DE1, 1, 0x8058, W, H)
  fn("GenFramebuffers", "void (*)(int, unsigned *)")(1, names + 2)
  fn("BindFramebuffer", "void (*)(unsigned, unsigned)")(0x8D40, names[2])
  fn("FramebufferTexture2D", "void (*)(unsigned, unsigned, unsigned, unsigned, int)")(0x8D40, 0x8CE0, 0x0DE1, names[1],
    0)
  fn("Viewport", "void (*)(int, int, int, int)")(0, 0, W, H)
end

-- The middle one of the times to hand over and draw a picture; each picture is looked at.
local function measure(context, route)
  local ring = assert(context:ring({ H, W, 4 }, "uint8", { target = "storage", route = route }))
  local took, pixel = {}, ffi.new "uint8_t[4]"
  for frame = 1, FRAMES do
    ring:begin():fill(frame)
    local before = now()
    local buffer, offset = ring:submit()
    BindBufferRange(0x90D2, 0, buffer, offset, W * H * 4)
    DrawArrays(4, 0, 3)
    ring:done()
    took[frame] = now() - before
    ReadPixels(W - 1, H - 1, 1, 1, 0x1908, 0x1401, pixel)
    assert(pixel[0] == frame, "another picture was drawn")
  end
  Finish()
  assert(ring:close())
  table.sort(took)
  return took[math.ceil(FRAMES / 2)]
end

prepare()
local context = assert(gl.open "egl")
local mapped, copied = measure(context, "mapped"), measure(context, "copied")
context:finish()
print(("mapped=%d copied=%d"):format(mapped, copied))
