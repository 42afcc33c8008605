-- A pond in LÖVE: NumPy moves the water in the game's own picture, the mouse makes waves, and waves carry the leaf.
-- Bring it into the ring, as often as you can in a minute. Escape ends.
--
--   love examples/love                        plays
--   love examples/love FRAMES PICTURE DATA    moves the mouse by itself; writes the screen and the picture's bytes
local ffi = require "ffi"
local mf = require "moonferry"
local py = require "moonferry.python"

local W, H, CELL, LEAF, RING, MINUTE = 200, 150, 4, 4, 9, 60
local frames, shot, bytes, frame = nil, nil, nil, 0
local picture, image, pond, height, leaf, ring, score, left

local function new_ring()
  ring = { x = love.math.random(20, W - 20), y = love.math.random(20, H - 20) }
end

function love.load(arguments)
  frames, shot, bytes = tonumber(arguments[1]), arguments[2], arguments[3]
  love.math.setRandomSeed(frames or os.time())
  picture = love.image.newImageData(W, H)
  image = love.graphics.newImage(picture)
  image:setFilter("nearest", "nearest")

  -- LÖVE's memory as an array of NumPy's, and NumPy's as a tensor here: neither is copied.
  local pixels = mf.wrap(ffi.cast("uint8_t *", picture:getFFIPointer()), { H, W, 4 }, "uint8", { owner = picture })
  py.import("sys").path:insert(0, love.filesystem.getSource())
  pond = py.import("pond").Pond(py.import("numpy").from_dlpack(pixels))
  height = py.tensor(pond.height)
  py.settle()
  leaf, score, left = { x = W / 2, y = H / 2, vx = 0, vy = 0 }, 0, MINUTE
  new_ring()
end

-- Where the water falls away, the leaf goes.
local function move_leaf()
  local x, y = math.floor(leaf.x), math.floor(leaf.y)
  leaf.vx = 0.97 * leaf.vx - 0.25 * (height:get(y, x + 1) - height:get(y, x - 1))
  leaf.vy = 0.97 * leaf.vy - 0.25 * (height:get(y + 1, x) - height:get(y - 1, x))
  leaf.x = math.min(math.max(leaf.x + leaf.vx, 1), W - 2)
  leaf.y = math.min(math.max(leaf.y + leaf.vy, 1), H - 2)
  if left > 0 and (leaf.x - ring.x) ^ 2 + (leaf.y - ring.y) ^ 2 < RING ^ 2 then
    score = score + 1
    new_ring()
  end
end

function love.mousemoved(x, y, dx, dy)
  if not frames then
    pond:push(x / CELL, y / CELL, math.min(math.sqrt(dx * dx + dy * dy), 30) / 12)
  end
end

function love.update(dt)
  frame, left = frame + 1, math.max(left - dt, 0)
  if frames then
    pond:push(W / 2 + 60 * math.cos(frame / 20), H / 2 + 40 * math.sin(frame / 13), 0.5)
  end
  for _ = 1, 2 do
    pond:step()
    move_leaf()
  end
  pond:paint()
  image:replacePixels(picture)
end

local function write(path, data)
  local file = assert(io.open(path, "wb"))
  file:write(data:getString())
  file:close()
end

function love.draw()
  love.graphics.setColor(1, 1, 1)
  love.graphics.draw(image, 0, 0, 0, CELL)
  love.graphics.setColor(1, 0.85, 0.3)
  love.graphics.setLineWidth(3)
  love.graphics.circle("line", ring.x * CELL, ring.y * CELL, RING * CELL)
  love.graphics.setColor(0.3, 0.75, 0.25)
  love.graphics.ellipse("fill", leaf.x * CELL, leaf.y * CELL, LEAF * CELL, LEAF * CELL * 0.6)
  love.graphics.setColor(1, 1, 1)
  love.graphics.print(("%d rings, %d s left"):format(score, math.ceil(left)), 10, 10)
  if frame == frames then
    print(("%d frames, %d rings, the leaf at %.6f %.6f, the ring at %d %d"):format(frame, score, leaf.x, leaf.y,
      ring.x, ring.y))
    love.graphics.captureScreenshot(function(screen)
      write(shot, screen:encode "png")
      write(bytes, picture)
      love.event.quit()
    end)
  end
end

function love.keypressed(key)
  if key == "escape" then
    love.event.quit()
  end
end
