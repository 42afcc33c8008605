-- shared.lua: the script of examples/shared: NumPy paints a quarter of a picture into memory of Vulkan's. Each frame
-- writes it in place: nothing here is copied to Vulkan or to OpenGL.
local py = require "moonferry.python"
local np = py.import "numpy"

local HALF, SIZE = 256, 512
local bytes = np.from_dlpack(memory)
local quarter = bytes[py.slice(0, HALF * HALF * 4)].reshape(HALF, HALF, 4)
local whole = bytes[py.slice(HALF * HALF * 4, nil)].reshape(SIZE, SIZE, 4)

-- From the middle of the picture, which is the quarter's far corner.
local axis = (HALF - 0.5 - np.arange(HALF)) / HALF
local x, y = axis.reshape(1, HALF), axis.reshape(HALF, 1)
local radius, angle = np.sqrt(x * x + y * y), np.arctan2(y, x)
local channels = np.moveaxis(quarter, 2, 0)
channels[3] = 255

-- Petals that turn, over rings that run outwards.
function paint(time)
  local petals = np.cos(6 * angle + 3 * np.sin(4 * radius - time))
  local rings = np.sin(16 * radius - 3 * time + 2 * petals)
  for channel = 0, 2 do
    local light = 0.5 + 0.5 * np.cos(2.4 * rings + 1.9 * channel + 3 * radius)
    local level = 255 * light * np.clip(1.35 - radius, 0, 1)
    np.copyto(channels[channel], level, py.kw { casting = "unsafe" })
  end
end

-- What Vulkan should have made of it, and what OpenGL of that.
function compare(pixels)
  local row = np.concatenate(py.list { quarter, np.flip(quarter, 1) }, 1)
  local expected = np.concatenate(py.list { row, np.flip(row, 0) }, 0)
  assert(np.array_equal(whole, expected), "Vulkan has not mirrored what NumPy painted")
  local at = 2 * np.arange(SIZE) - 511
  local outside = np.add.outer(at * at, at * at):__gt__(500 * 500)
  local drawn = np.where(outside.reshape(SIZE, SIZE, 1), np.right_shift(expected, 2), expected)
  assert(np.array_equal(np.from_dlpack(pixels), drawn), "OpenGL has not drawn what Vulkan mirrored")
end
