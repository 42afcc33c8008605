-- LUA_PATH="lua/?.lua;lua/?/init.lua;;" luajit examples/rows.lua
local mf = require "moonferry"

-- Distance to the middle, through typed pointers: this loop is compiled and runs at C's speed.
local picture = mf.zeros({ 16, 64 }, "float32")
for y, row in picture:rows() do
  for x = 0, 63 do
    row[x] = math.sqrt((x / 2 - 16) ^ 2 + (2 * (y - 8)) ^ 2)
  end
end

-- Every fourth row from the last one up, every eighth column: a view of the same memory, no copy.
print(picture:view({ nil, nil, -4 }, { nil, nil, 8 }))

-- Coordinates count from 0, and from -1 at the end. `get` is checked and says what is wrong.
print(picture:get(8, 32), picture:get(-1, -1))
print(select(2, pcall(picture.get, picture, 99, 0)))

-- A ring, from an 8-bit copy.
for _, row in picture:astype("uint8"):rows() do
  local line = {}
  for x = 0, 63 do
    line[x + 1] = (row[x] > 8 and row[x] < 13) and "#" or "."
  end
  print(table.concat(line))
end
