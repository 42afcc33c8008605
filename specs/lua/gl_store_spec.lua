-- The pixel store of a program, which uploads change and put back, also where they are compiled.
local ffi = require "ffi"
local mf = require "moonferry"
local opengl = require "opengl"

local W, H = 31, 9
local UNPACK = {
  UNPACK_ROW_LENGTH = { 0x0CF2, 40 }, UNPACK_ALIGNMENT = { 0x0CF5, 2 }, UNPACK_SKIP_ROWS = { 0x0CF3, 3 },
  UNPACK_SKIP_PIXELS = { 0x0CF4, 4 }, UNPACK_SWAP_BYTES = { 0x0CF0, 1 }, UNPACK_LSB_FIRST = { 0x0CF1, 1 },
}

describe("the pixel store", function()
  local gl = require "moonferry.gl"

  after_each(function()
    jit.opt.start(3, "hotloop=56", "hotexit=10")
    jit.flush()
  end)

  for hot = 1, 12 do
    it("is as the program has set it after each upload, compiled after " .. hot .. " turns", function()
      jit.flush()
      jit.opt.start("hotloop=" .. hot, "hotexit=2")
      opengl.open()
      local context, int = assert(gl.open "egl"), ffi.new "int32_t[1]"
      local call = context.call
      local texture = opengl.texture(0x8058, W, H, 0x1908, 0x1401, ffi.new("char[?]", W * H * 4))
      local t = mf.full({ H, W, 4 }, 7, "uint8")
      for _, field in pairs(UNPACK) do
        call.PixelStorei(field[1], field[2])
      end
      for _ = 1, 30 do
        assert(context:upload(texture, t, "rgba8"))
        for name, field in pairs(UNPACK) do
          call.GetIntegerv(field[1], int)
          assert.are.equal(field[2], int[0], name)
        end
      end
      for name, field in pairs(UNPACK) do
        call.PixelStorei(field[1], name == "UNPACK_ALIGNMENT" and 4 or 0)
      end
      t:close()
      context:finish()
      assert.are.equal(0, opengl.delete_texture(texture))
    end)
  end
end)
