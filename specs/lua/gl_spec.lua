-- OpenGL memory as tensors, on the OpenGL that EGL gives without a window (Mesa's llvmpipe will do). Each pixel is
-- checked.
local ffi = require "ffi"
local mf = require "moonferry"
local gl = require "moonferry.gl"
local helper = require "helper"
local refuses = helper.refuses

ffi.cdef [[
void *eglGetPlatformDisplay(unsigned platform, void *native, const intptr_t *attributes);
unsigned eglInitialize(void *display, int *major, int *minor);
unsigned eglBindAPI(unsigned api);
unsigned eglChooseConfig(void *display, const int *attributes, void **configs, int size, int *count);
void *eglCreateContext(void *display, void *config, void *share, const int *attributes);
unsigned eglMakeCurrent(void *display, void *draw, void *read, void *context);
void *eglGetCurrentContext(void);
void *eglGetProcAddress(const char *name);
]]
local EGL = ffi.load "libEGL.so.1"
local SURFACELESS, OPENGL_API = 0x31DD, 0x30A2
local display = EGL.eglGetPlatformDisplay(SURFACELESS, nil, nil)
assert(EGL.eglInitialize(display, nil, nil) ~= 0, "eglInitialize")
assert(EGL.eglBindAPI(OPENGL_API) ~= 0)
local config, count = ffi.new "void *[1]", ffi.new "int[1]"
assert(EGL.eglChooseConfig(display, ffi.new("int[3]", 0x3040, 8, 0x3038), config, 1, count) ~= 0)
local egl_context = EGL.eglCreateContext(display, config[0], nil,
  ffi.new("int[7]", 0x3098, 4, 0x30FB, 5, 0x30FD, 1, 0x3038))
assert(egl_context ~= nil, "no OpenGL 4.5")
local function make_current(on)
  assert(EGL.eglMakeCurrent(display, nil, nil, on and egl_context or nil) ~= 0)
end
make_current(true)

local function fn(name, signature)
  return ffi.cast(signature, EGL.eglGetProcAddress("gl" .. name))
end
local G = {
  GenTextures = fn("GenTextures", "void (*)(int, unsigned *)"),
  DeleteTextures = fn("DeleteTextures", "void (*)(int, const unsigned *)"),
  BindTexture = fn("BindTexture", "void (*)(unsigned, unsigned)"),
  TexStorage2D = fn("TexStorage2D", "void (*)(unsigned, int, unsigned, int, int)"),
  GenFramebuffers = fn("GenFramebuffers", "void (*)(int, unsigned *)"),
  BindFramebuffer = fn("BindFramebuffer", "void (*)(unsigned, unsigned)"),
  FramebufferTexture2D = fn("FramebufferTexture2D", "void (*)(unsigned, unsigned, unsigned, unsigned, int)"),
  CreateShader = fn("CreateShader", "unsigned (*)(unsigned)"),
  ShaderSource = fn("ShaderSource", "void (*)(unsigned, int, const char *const *, const int *)"),
  CompileShader = fn("CompileShader", "void (*)(unsigned)"),
  CreateProgram = fn("CreateProgram", "unsigned (*)(void)"),
  AttachShader = fn("AttachShader", "void (*)(unsigned, unsigned)"),
  LinkProgram = fn("LinkProgram", "void (*)(unsigned)"), UseProgram = fn("UseProgram", "void (*)(unsigned)"),
  GenVertexArrays = fn("GenVertexArrays", "void (*)(int, unsigned *)"),
  BindVertexArray = fn("BindVertexArray", "void (*)(unsigned)"),
  BindBuffer = fn("BindBuffer", "void (*)(unsigned, unsigned)"),
  VertexAttribPointer = fn("VertexAttribPointer",
    "void (*)(unsigned, int, unsigned, unsigned char, int, const void *)"),
  EnableVertexAttribArray = fn("EnableVertexAttribArray", "void (*)(unsigned)"),
  DrawArrays = fn("DrawArrays", "void (*)(unsigned, int, int)"),
  ClearColor = fn("ClearColor", "void (*)(float, float, float, float)"), Clear = fn("Clear", "void (*)(unsigned)"),
  Viewport = fn("Viewport", "void (*)(int, int, int, int)"), GetError = fn("GetError", "unsigned (*)(void)"),
  GetIntegerv = fn("GetIntegerv", "void (*)(unsigned, int *)"),
  PixelStorei = fn("PixelStorei", "void (*)(unsigned, int)"),
}

local W, H = 32, 16
local TEXTURE, COLOR_BUFFER = 0x0DE1, 0x4000

-- A frame buffer over a texture of that internal format.
local function target(internal)
  local names = ffi.new "unsigned[2]"
  G.GenTextures(1, names)
  G.BindTexture(TEXTURE, names[0])
  G.TexStorage2D(TEXTURE, 1, internal, W, H)
  G.GenFramebuffers(1, names + 1)
  G.BindFramebuffer(0x8D40, names[1])
  G.FramebufferTexture2D(0x8D40, 0x8CE0, TEXTURE, names[0], 0)
  G.Viewport(0, 0, W, H)
  return names[0]
end

local function shader(kind, text)
  local name = G.CreateShader(kind)
  G.ShaderSource(name, 1, ffi.new("const char *[1]", { text }), nil)
  G.CompileShader(name)
  return name
end

-- A point at a pixel's middle, in a colour: x, y, red, green of each vertex.
local function points_program()
  local program = G.CreateProgram()
  G.AttachShader(program, shader(0x8B31, "#version 450\nlayout(location=0) in vec4 v; out vec2 c;\n"
    .. "void main() { gl_Position = vec4(v.xy, 0, 1); c = v.zw; }"))
  G.AttachShader(program, shader(0x8B30, "#version 450\nin vec2 c; out vec4 o; void main() { o = vec4(c, 0, 1); }"))
  G.LinkProgram(program)
  local array = ffi.new "unsigned[1]"
  G.GenVertexArrays(1, array)
  G.BindVertexArray(array[0])
  return program
end

local function draw_points(program, buffer, offset, n)
  G.ClearColor(0, 0, 0, 0)
  G.Clear(COLOR_BUFFER)
  G.UseProgram(program)
  G.BindBuffer(0x8892, buffer)
  G.VertexAttribPointer(0, 4, 0x1406, 0, 16, ffi.cast("void *", offset))
  G.EnableVertexAttribArray(0)
  G.DrawArrays(0, 0, n)
end

-- One vertex a pixel, whose colour says the pixel and the frame.
local function expected(frame, x, y)
  return (x * 7 + frame * 3) % 256, (y * 11 + frame * 5) % 256
end

local function write_vertices(t, frame)
  for i, row in t:rows() do
    local x, y = i % W, math.floor(i / W)
    local red, green = expected(frame, x, y)
    row[0], row[1], row[2], row[3] = (2 * x + 1) / W - 1, (2 * y + 1) / H - 1, red / 255, green / 255
  end
end

local function check_frame(picture, frame)
  for y = 0, H - 1 do
    for x = 0, W - 1 do
      local red, green = expected(frame, x, y)
      if picture:get(y, x, 0) ~= red or picture:get(y, x, 1) ~= green then
        error(("pixel %d, %d of frame %d: expected %d %d, got %d %d"):format(x, y, frame, red, green,
          tonumber(picture:get(y, x, 0)), tonumber(picture:get(y, x, 1))))
      end
    end
  end
end

describe("moonferry.gl", function()
  it("brings all that tensors can, also where nothing else was loaded", function()
    assert.are.same({ "true\n", 0 }, { helper.luajit [[
      require "moonferry.gl"
      local Tensor = require("moonferry.tensor").Tensor
      print(Tensor.fill ~= nil and Tensor.get ~= nil)
    ]] })
  end)
end)

describe("moonferry.gl", function()
  local context
  before_each(function()
    make_current(true)
    context = assert(gl.open "egl")
  end)
  after_each(function()
    make_current(true)
    assert.are.equal(0, G.GetError())
    context:finish()
    context = nil
    helper.nothing_left()
  end)

  for _, route in ipairs { "mapped", "copied" } do
    it("draws what is in a ring's slots, " .. route, function()
      target(0x8058)
      local program = points_program()
      local ring = assert(context:ring({ W * H, 4 }, "float32", { slots = 3, route = route }))
      assert.are.equal(route, ring.route)
      local reader = assert(context:reader(W, H, "rgba8", { route = route }))
      for frame = 1, 40 do
        local t = ring:begin()
        write_vertices(t, frame)
        local buffer, offset = ring:submit()
        draw_points(program, buffer, offset, W * H)
        assert(ring:done())
        assert(reader:read())
        context.call.Finish()
        check_frame(reader:latest(), frame)
      end
      assert.is_true(ring:close())
      assert.is_true(reader:close())
    end)
  end

  for _, route in ipairs { "mapped", "copied" } do
    it("draws what a worker has published, " .. route, function()
      target(0x8058)
      local program = points_program()
      local ring = assert(context:ring({ W * H, 4 }, "float32", { slots = 4, route = route }))
      local worker = mf.ring_from_handle(ring.handle)
      local reader = assert(context:reader(W, H, "rgba8", { route = route }))
      assert.is_nil(ring:latest())
      refuses("latest gave no slot yet", ring.hold, ring)
      local taken = {}
      for frame = 1, 20 do
        local t, at = worker:begin()
        assert.is_nil(taken[at]) -- not the one that is drawn
        write_vertices(t, frame)
        worker:publish()
        local _, i, fresh = ring:latest()
        assert.is_true(fresh)
        local buffer, offset = ring:submit(i)
        draw_points(program, buffer, offset, W * H)
        assert(ring:hold())
        taken = { [i] = true }
        assert(reader:read())
        context.call.Finish()
        check_frame(reader:latest(), frame)
      end
      refuses("the slot that latest gave, 4, got 9", ring.submit, ring, 9)
      refuses("no slot was begun; g:begin() gives one", ring.submit, ring)
      worker:close()
      assert.is_true(ring:close())
      assert.is_true(reader:close())
    end)
  end

  it("makes the views of its slots once, in whatever scope", function()
    local ring = mf.scope(function()
      return assert(context:ring({ 2 }, "float32", { slots = 2 }))
    end)
    local calls = 0
    local function convert(t)
      calls = calls + 1
      return t:ptr()
    end
    local views = ring:into(convert)
    assert.are.equal(views, ring:into(convert))
    assert.are.equal(2, calls)
    local t, i = ring:begin()
    views[i][1] = 4
    assert.are.equal(4, t:get(1))
    ring:done()
    assert.is_true(ring:close())
  end)

  it("says why a route was not taken", function()
    rawset(context, "buffer_storage", "OpenGL 3.3 has no GL_ARB_buffer_storage")
    local ring = assert(context:ring({ 4 }))
    assert.are.same({ "copied", context.buffer_storage }, { ring.route, ring.reason })
    local none, message, code = context:ring({ 4 }, "float32", { route = "mapped" })
    assert.is_nil(none)
    assert.is_truthy(ring:close())
    assert.are.equal(mf.EDEVICE, code)
    assert.matches("GL_ARB_buffer_storage", message, 1, true)
  end)

  it("keeps the mapping while a view is alive", function()
    local ring = assert(context:ring({ 4 }, "float32"))
    local views = { ring.slots[2]:view({ 1 }), ring.slots[3]:view({ 1 }) }
    for _, view in ipairs(views) do
      assert.is_false(ring:close())
      refuses("taken back", views[2].get, views[2], 0)
      view:close()
    end
    assert.is_true(ring:close())
    assert.is_true(ring:close())
  end)

  it("makes uses wait for what is drawn, on the context's thread alone", function()
    local t = mf.zeros(4)
    assert(context:fence_tensor(t))
    make_current(false)
    local failed = select(2, pcall(t.put, t, 0, 1))
    assert.matches("cannot be waited for on this thread", failed, 1, true)
    assert.are.equal(0, t:get(0)) -- it is only read there
    make_current(true)
    t:put(0, 1)
    t:close()
  end)

  it("lets go of what an ended context was drawing", function()
    local t = mf.zeros(4)
    assert(context:fence_tensor(t))
    make_current(false)
    t:close()
    collectgarbage()
    make_current(true)
  end)

  it("takes pictures of every row distance and direction", function()
    local texture = target(0x8058)
    local reader = assert(context:reader(W, H))
    local all = mf.zeros({ H, W + 5, 4 }, "uint8")
    for i = 0, all.size - 1 do
      all:ptr()[i] = i % 251
    end
    local function check(t)
      assert(context:upload(texture, t, "rgba8"))
      assert(reader:read())
      context.call.Finish()
      assert.is_true(reader:latest():equal(t))
    end
    local padded = all:view(mf.all, { 2, W + 2 })
    check(padded)
    check(padded:view({ nil, nil, -1 }))
    check(padded:copy())
    local stores = ffi.new "int[1]"
    G.PixelStorei(0x0CF5, 8)
    G.PixelStorei(0x0CF4, 1)
    all:view(mf.all, { 4 }):fill(5) -- another picture than before
    check(padded)
    G.GetIntegerv(0x0CF5, stores)
    assert.are.equal(8, stores[0])
    G.GetIntegerv(0x0CF4, stores)
    assert.are.equal(1, stores[0])
    G.PixelStorei(0x0CF5, 4)
    G.PixelStorei(0x0CF4, 0)
    assert.is_true(reader:close())
  end)

  it("takes rows that lie further apart than OpenGL counts one by one", function()
    local far, taken = 2 ^ 31, {}
    local bytes = ffi.new "uint8_t[1]"
    local t = mf.wrap(ffi.cast("uint8_t *", bytes), { 2, 1, 1 }, "uint8", { strides = { far, 1, 1 }, owner = bytes })
    local real = context.call.TexSubImage2D
    context.call.TexSubImage2D = function(_, _, _, y, _, rows, _, _, data) -- nothing is at row 1
      taken[#taken + 1] = { y, rows, tonumber(ffi.cast("intptr_t", data) - ffi.cast("intptr_t", bytes)) }
    end
    assert(context:upload(0, t, "r8"))
    context.call.TexSubImage2D = real
    assert.are.same({ { 0, 1, 0 }, { 1, 1, far } }, taken)
    t:close()
  end)

  it("reads a picture to its end, although a finalizer closes it meanwhile", function()
    local texture, t = target(0x8814), mf.full({ H, W, 4 }, 1)
    local reader = assert(context:reader(W, H, "rgba32f"))
    local send = context.call.TexSubImage2D
    context.call.TexSubImage2D = function(...)
      t:close()
      mf.zeros({ H, W, 4 }):close() -- which has the memory that is free
      send(...)
    end
    assert(context:upload(texture, t, "rgba32f"))
    context.call.TexSubImage2D = send
    assert(reader:read())
    context.call.Finish()
    assert.are.equal(1, reader:latest():at(H - 1, W - 1, 3))
    assert.is_true(reader:close())
  end)

  for format, case in pairs {
    bgra8 = { 0x8058, 4 }, rgb8 = { 0x8051, 3 }, r8 = { 0x8229, 1 }, rgba16f = { 0x881A, 4 }, rgba32f = { 0x8814, 4 },
    rgb10_a2 = { 0x8059, 0 }, srgb8_alpha8 = { 0x8C43, 4 },
  } do
    it("takes and gives back " .. format, function()
      local texture = target(case[1])
      local reader = assert(context:reader(W, H, format))
      local name = gl.formats[format][3]
      local t = mf.zeros(case[2] > 0 and { H, W, case[2] } or { H, W }, name)
      for i = 0, t.size - 1 do -- exact in each format: whole elements, and floats of a short mantissa
        if format == "rgba16f" then
          t:ptr()[i] = 0x3C00 + (i % 16) * 64
        else
          t:ptr()[i] = format == "rgba32f" and (i % 16) / 16 or format == "rgb10_a2" and i * 2654435 % 2 ^ 32 or i % 251
        end
      end
      assert(context:upload(texture, t, format))
      assert(reader:read())
      context.call.Finish()
      assert.is_true(reader:latest():equal(t))
      assert.is_true(reader:close())
    end)
  end

  it("makes a buffer of a tensor's own memory, where the extension is", function()
    local t = mf.zeros({ W * H, 4 })
    local pinned, message, code = context:pinned(t)
    if context.pinned_memory then
      assert.are.same({ nil, mf.EDEVICE }, { pinned, code })
      assert.matches("GL_AMD_pinned_memory", message, 1, true)
    else
      assert(pinned, message)
      target(0x8058)
      local program, reader = points_program(), assert(context:reader(W, H))
      for frame = 1, 10 do
        write_vertices(t, frame)
        draw_points(program, pinned.buffer, 0, W * H)
        assert(context:fence_tensor(t))
        assert(reader:read())
        context.call.Finish()
        check_frame(reader:latest(), frame)
      end
      assert.is_true(reader:close())
      pinned:close()
    end
    t:close()
  end)

  it("refuses misuse", function()
    local probe = mf.zeros(2)
    refuses("gl.open: expected", gl.open, "vulkan")
    refuses("gl.open: getproc and current expected", gl.open, {})
    refuses("gl.ring: target", context.ring, context, { 4 }, "float32", { target = "picture" })
    refuses("gl.ring: route", context.ring, context, { 4 }, "float32", { route = "shortest" })
    refuses("gl.ring: options: unknown option \"slot\"", context.ring, context, { 4 }, "float32", { slot = 2 })
    refuses("gl.ring: options: expected a table, got 3", context.ring, context, { 4 }, "float32", 3)
    refuses("a method is called with a colon: gl:ring(...)", context.ring, { 4 })
    refuses("pinned: t: expected a tensor, got 3", context.pinned, context, 3)
    refuses("fence_tensor: t: expected a tensor, got nil", context.fence_tensor, context)
    for _, typed in ipairs { { context, "rign", "use gl:ring" }, { gl, "opne", "use gl.open" } } do
      refuses(typed[3], function()
        return typed[1][typed[2]]
      end)
    end
    refuses("reader: format", context.reader, context, 1, 1, "rgb7")
    refuses("reader: width: expected an integer, got nil", context.reader, context)
    refuses("reader: expected a width and a height of at least 1, got 3 and 0", context.reader, context, 3, 0)
    refuses("reader: options: unknown option \"slot\"", context.reader, context, 1, 1, "rgba8", { slot = 2 })
    refuses("expected C.MF_READ or C.MF_WRITE, got \"read\"", context.fence_tensor, context, probe, "read")
    for verb, what in pairs { share = "buffer", share_texture = "texture" } do
      refuses(verb .. ": device is \"cpu\"; expected a GPU, such as \"cuda:0\"", context[verb], context, 1,
        { device = "cpu", route = "copied" })
      refuses(("%s: %s: expected OpenGL's number of a %s, got nil"):format(verb, what, what), context[verb], context)
      refuses(verb .. ": options: unknown option \"for\"", context[verb], context, 1, { ["for"] = "read" })
    end
    refuses("a context of OpenGL's has no field \"rings\" that can be set", function()
      context.rings = {}
    end)
    probe:close()
    local t = mf.zeros({ 4, 4, 4 })
    refuses("upload: dtype: expected uint8, got float32", context.upload, context, 1, t, "rgba8")
    refuses("upload: shape", context.upload, context, 1, t, "rgb32f")
    local turned = t:permute_dims(1, 0, 2)
    refuses("upload: strides", context.upload, context, 1, turned, "rgba32f")
    local floats = "rgba32f"
    refuses("upload: texture: expected OpenGL's number", context.upload, context, 2 ^ 32 + 1, t, floats)
    refuses("upload: x: expected an integer", context.upload, context, 1, t, floats, 2 ^ 32)
    refuses("upload: y: expected an integer", context.upload, context, 1, t, floats, 0, 0.5)
    refuses("pinned: expected a compact tensor", context.pinned, context, turned)
    local reader = assert(context:reader(1, 1))
    refuses("read: x: expected an integer", reader.read, reader, 2 ^ 32)
    refuses("read: y: expected an integer", reader.read, reader, 0, 0.5)
    assert.is_true(reader:close())
    local ring = context:ring({ 4 })
    refuses("submit: no slot was begun", ring.submit, ring)
    assert(ring:begin())
    refuses("done: use: expected C.MF_READ or C.MF_WRITE, got \"write\"", ring.done, ring, "write")
    assert(ring.ring:publish() and ring:latest())
    refuses("hold: use: expected C.MF_READ or C.MF_WRITE, got \"read\"", ring.hold, ring, "read")
    refuses("a ring has no field \"slots\" that can be set", function()
      ring.slots = {}
    end)
    assert.is_true(ring:close())
    make_current(false)
    local none, message, code = gl.open "egl"
    assert.is_nil(none)
    assert.are.equal("gl.open: no context of OpenGL is current in egl", message)
    assert.are.equal(mf.EDEVICE, code)
    none, message = gl.open()
    assert.is_nil(none)
    assert.are.equal("gl.open: no context of OpenGL is current in SDL, GLFW or EGL", message)
    turned:close()
    t:close()
  end)
end)
