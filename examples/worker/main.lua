-- A model on a worker thread while LÖVE keeps its rate: the worker paints with PyTorch into LÖVE's own pictures, and
-- the renderer, which never calls Python, draws whichever is the latest. Escape ends.
--
--   love examples/worker                 shows it
--   love examples/worker FRAMES DATA     so many frames, and five pictures at least; checks that no picture is torn,
--                                        and writes the last one's bytes
local ffi = require "ffi"
local mf = require "moonferry"

local SIZE, SLOTS = 256, 4 -- one is painted, one is the latest, one is drawn, and one is in reserve
local frames, path, frame, painted = nil, nil, 0, 0
local data, pictures, image, thread = {}, nil, nil, nil

function love.load(arguments)
  frames, path = tonumber(arguments[1]), arguments[2]
  local slots = {}
  for i = 1, SLOTS do
    data[i] = love.image.newImageData(SIZE, SIZE)
    local memory = ffi.cast("uint8_t *", data[i]:getFFIPointer())
    slots[i] = mf.wrap(memory, { SIZE, SIZE, 4 }, "uint8", { owner = data[i] })
  end
  pictures, image = mf.ring(slots), love.graphics.newImage(data[1])
  for i = 1, SLOTS do
    slots[i]:close() -- the ring has its own
  end
  thread = love.thread.newThread "worker.lua"
  thread:start(tonumber(ffi.cast("intptr_t", pictures.handle)), love.filesystem.getSource())
end

-- Every pixel of a whole picture has the same alpha.
local function check(picture)
  local first = picture:get(0, 0, 3)
  for y = 0, SIZE - 1 do
    local row = picture:row(y)
    for x = 0, SIZE - 1 do
      assert(row[4 * x + 3] == first, "a picture is torn")
    end
  end
end

function love.update()
  local picture, i, fresh = pictures:latest()
  frame = frame + 1
  if fresh then
    painted = painted + 1
    image:replacePixels(data[i])
  end
  if frames and picture then
    check(picture)
    if frame >= frames and painted >= 5 then
      local file = assert(io.open(path, "wb"))
      file:write(data[i]:getString())
      file:close()
      love.event.quit()
    end
  end
end

function love.draw()
  love.graphics.setBlendMode "none"
  love.graphics.draw(image, 0, 0, 0, 512 / SIZE)
  love.graphics.setBlendMode "alpha"
  love.graphics.circle("fill", 256 + 200 * math.cos(frame / 30), 256 + 200 * math.sin(frame / 30), 9)
  love.graphics.print(("%d pictures in %d frames"):format(painted, frame), 10, 10)
end

-- Before the pictures go, the worker has to be out of them.
function love.quit()
  love.thread.getChannel("to the worker"):push "end"
  thread:wait()
  assert(not thread:getError(), thread:getError())
  pictures:close()
  print(("more frames than pictures: %s; alive at the end: %d tensors"):format(tostring(frame > painted),
    mf.ledger().tensors))
end

function love.threaderror(_, message)
  error(message)
end

function love.keypressed(key)
  if key == "escape" then
    love.event.quit()
  end
end
