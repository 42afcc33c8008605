-- Textures of OpenGL's and tensors of a GPU: the same pixels by both routes, any strides, any part.
local ffi = require "ffi"
local mf = require "moonferry"
local gpu = require "gpu"
local helper = require "helper"
local opengl = require "opengl"
local refuses = helper.refuses

local W, H = 31, 9
-- Of each sized format: OpenGL's format and type, our dtype and channels.
local FORMATS = {
  { "r8", 0x8229, 0x1903, 0x1401, "uint8", 1 }, { "rg8", 0x822B, 0x8227, 0x1401, "uint8", 2 },
  { "rgba8", 0x8058, 0x1908, 0x1401, "uint8", 4 }, { "r16f", 0x822D, 0x1903, 0x140B, "float16", 1 },
  { "rg16f", 0x822F, 0x8227, 0x140B, "float16", 2 }, { "rgba16f", 0x881A, 0x1908, 0x140B, "float16", 4 },
  { "r32f", 0x822E, 0x1903, 0x1406, "float32", 1 }, { "rgba32f", 0x8814, 0x1908, 0x1406, "float32", 4 },
}
local SIZES = { uint8 = 1, float16 = 2, float32 = 4 }

gpu.describe("a shared texture", function()
  local gl = require "moonferry.gl"
  local context

  local function specify(name, fn)
    it(name, function()
      if not opengl.is_here then
        return pending "needs EGL (libegl1)"
      end
      opengl.open()
      context = assert(gl.open "egl")
      fn()
      context:finish()
      context = nil
    end)
  end

  local function zeros(format)
    local nbytes = W * H * format[6] * SIZES[format[5]]
    return opengl.texture(format[2], W, H, format[3], format[4], ffi.new("char[?]", nbytes)), nbytes
  end

  local function pixels(texture, format, nbytes)
    return opengl.read_texture(texture, format[3], format[4], nbytes)
  end

  local function shape(format)
    return format[6] == 1 and { H, W } or { H, W, format[6] }
  end

  specify("that is dropped is given back by the context's next call", function()
    if not gpu.simulated() then
      return
    end
    local texture = zeros(FORMATS[1])
    local shared = assert(context:share_texture(texture, { device = gpu.name }))
    assert(context:share_texture(texture, { device = gpu.name }))
    collectgarbage()
    collectgarbage()
    assert.are.equal(2, gpu.registered "Image")
    local t = mf.zeros({ H, W }, "uint8", { device = gpu.name })
    assert(shared:upload(t))
    assert.are.equal(1, gpu.registered "Image")
    assert(shared:close())
    assert.are.equal(0, gpu.registered "Image")
    t:close()
    assert(context:share_texture(texture, { device = gpu.name }))
    collectgarbage()
    collectgarbage()
    shared = assert(context:share_texture(texture, { device = gpu.name }))
    assert.are.equal(1, gpu.registered "Image")
    assert(shared:close())
    opengl.delete_texture(texture)
  end)

  specify("says where memory ends", function()
    for _, format in ipairs { FORMATS[1], FORMATS[3] } do
      local texture = zeros(format)
      local shared = assert(context:share_texture(texture, { device = gpu.name, route = "copied" }))
      local t, host = mf.ones(shape(format), format[5], { device = gpu.name }), mf.empty(shape(format), format[5])
      local bind = context.call.BindTexture
      function context.call.BindTexture(...)
        helper.use_up(t) -- of what the copy to the host has left, which would do for a view of it
        return bind(...)
      end
      helper.scarce(function() return shared:upload(t) end, t)
      context.call.BindTexture = bind
      t:fill(0)
      helper.scarce(function() return shared:download(t) end, t)
      host:copy(t)
      assert.are.equal(1, host:view(H - 1, W - 1):reshape(-1):get(0))
      assert(shared:close())
      t:close()
      host:close()
      opengl.delete_texture(texture)
    end
  end)

  for _, route in ipairs { "mapped", "copied" } do
    for _, format in ipairs(FORMATS) do
      specify(format[1] .. " goes up and down, " .. route, function()
        local texture, nbytes = zeros(format)
        local shared = assert(context:share_texture(texture, { device = gpu.name, route = route }))
        assert.are.equal(route, shared.route)
        local s = mf.stream(gpu.name)
        local host = assert(mf.empty(shape(format), format[5]))
        for i = 0, nbytes - 1 do
          ffi.cast("uint8_t *", host:ptr())[i] = i % 113
        end
        local sent = ffi.string(host:ptr(), nbytes)
        local t = host:to(gpu.name)
        assert(shared:upload(t, s))
        assert.are.equal(sent, pixels(texture, format, nbytes))
        host:fill(0)
        t:fill(0)
        assert(shared:download(t, s))
        host:copy(t)
        assert.are.equal(sent, ffi.string(host:ptr(), nbytes))
        host:fill(0)
        assert(shared:download(host))
        assert.are.equal(sent, ffi.string(host:ptr(), nbytes))
        assert(shared:close())
        assert(shared:close())
        t:close()
        host:close()
        s:close()
        assert.are.equal(0, opengl.delete_texture(texture))
      end)
    end

    specify("takes a part, upside down, " .. route, function()
      local format = FORMATS[3]
      local texture, nbytes = zeros(format)
      local shared = assert(context:share_texture(texture, { device = gpu.name, route = route }))
      local rows = assert(mf.tensor({ { { 1, 1, 1, 1 } }, { { 2, 2, 2, 2 } } }, "uint8"))
      local t = rows:to(gpu.name)
      assert(shared:upload(t:view({ nil, nil, -1 }), nil, W - 1, H - 2))
      local seen = pixels(texture, format, nbytes)
      assert.are.equal(2, seen:byte(((H - 2) * W + W - 1) * 4 + 1))
      assert.are.equal(1, seen:byte(nbytes))
      assert.are.equal(0, seen:byte((H - 1) * W * 4 - 4))
      t:fill(9)
      assert(shared:download(t, nil, W - 1, H - 2))
      local host = t:to "cpu"
      assert.are.same({ { { 2, 2, 2, 2 } }, { { 1, 1, 1, 1 } } }, host:tolist())
      refuses("do not fit", shared.upload, shared, t, nil, W, 0)
      refuses("do not fit", shared.download, shared, t, nil, 0, H - 1)
      refuses("do not fit", shared.upload, shared, t, nil, -1, 0)
      assert(shared:close())
      refuses("is closed", shared.upload, shared, t)
      for _, each in ipairs { rows, t, host } do
        each:close()
      end
      assert.are.equal(0, opengl.delete_texture(texture))
    end)

    specify("leaves nothing to the collector, " .. route, function()
      for _, format in ipairs { FORMATS[1], FORMATS[3] } do
        local texture = zeros(format)
        local shared = assert(context:share_texture(texture, { device = gpu.name, route = route }))
        local t = assert(mf.zeros(shape(format), "uint8", { device = gpu.name }))
        local function both_ways()
          assert(shared:upload(t))
          assert(shared:download(t))
        end
        both_ways()
        assert.are.same(helper.NOTHING, helper.left_by(both_ways, gpu.settle))
        assert(shared:close())
        t:close()
        assert.are.equal(0, opengl.delete_texture(texture))
      end
    end)

    specify("is used as was said, " .. route, function()
      local texture = zeros(FORMATS[3])
      local reads = assert(context:share_texture(texture, { device = gpu.name, route = route, use = "read" }))
      local writes = assert(context:share_texture(texture, { device = gpu.name, route = route, use = "discard" }))
      local t = assert(mf.zeros({ H, W, 4 }, "uint8"))
      refuses("shared for reading", reads.upload, reads, t)
      refuses("shared for discarding", writes.download, writes, t)
      assert(reads:download(t))
      assert(writes:upload(t))
      assert(reads:close())
      assert(writes:close())
      t:close()
      assert.are.equal(0, opengl.delete_texture(texture))
    end)
  end

  specify("says why the pixels go through the host", function()
    if gpu.sim then
      gpu.sim.sim_fail((gpu.kind == "cuda" and "cu" or "hip") .. "GraphicsGLRegisterImage@1:999:once")
      local texture, nbytes = zeros(FORMATS[3])
      local shared = assert(context:share_texture(texture, { device = gpu.name }))
      assert.are.equal("copied", shared.route)
      assert.matches("GraphicsGLRegisterImage", shared.reason, 1, true)
      local t = assert(mf.full({ H, W, 4 }, 7, "uint8"))
      assert(shared:upload(t))
      assert.are.equal(("\7"):rep(nbytes), pixels(texture, FORMATS[3], nbytes))
      assert(shared:close())
      t:close()
      gpu.sim.sim_reset()
      assert.are.equal(0, opengl.delete_texture(texture))
    end
  end)

  specify("refuses misuse", function()
    local texture = zeros(FORMATS[3])
    local srgb = opengl.texture(0x8C43, W, H, 0x1908, 0x1401, ffi.new("char[?]", W * H * 4))
    refuses("share_texture: options", context.share_texture, context, texture)
    refuses("share_texture: use", context.share_texture, context, texture, { device = gpu.name, use = "both" })
    refuses("share_texture: route", context.share_texture, context, texture, { device = gpu.name, route = "short" })
    if gpu.sim then -- NVIDIA's driver takes it
      local none, message, code = context:share_texture(srgb, { device = gpu.name, route = "mapped" })
      assert.is_nil(none)
      assert.matches("GraphicsGLRegisterImage", message, 1, true)
      assert.are.equal(mf.EDEVICE, code)
    end
    local odd = assert(context:share_texture(srgb, { device = gpu.name, route = "copied" }))
    local t, halves = assert(mf.zeros({ H, W, 4 }, "uint8")), assert(mf.zeros({ H, W, 4 }, "float16"))
    refuses("OpenGL's format 0x8c43", odd.upload, odd, t)
    refuses("upload: x: expected an integer, got 0.5", odd.upload, odd, t, nil, 0.5)
    local shared = assert(context:share_texture(texture, { device = gpu.name }))
    refuses("dtype is float16; the texture's uint8 expected", shared.upload, shared, halves)
    refuses("download: y: expected an integer of 32 bits, got 4294967296", shared.download, shared, t, nil, 0, 2 ^ 32)
    assert(odd:close())
    assert(shared:close())
    t:close()
    halves:close()
    assert.are.equal(0, opengl.delete_texture(texture))
    assert.are.equal(0, opengl.delete_texture(srgb))
  end)
end)
