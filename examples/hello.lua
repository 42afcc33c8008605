-- moonferry examples/hello.lua
local mf = require "moonferry"
local t = mf.zeros({ 2, 3 }, "float32")
for y, row in t:rows() do -- a typed pointer for each row: this loop is compiled and runs at C's speed
  for x = 0, 2 do row[x] = 10 * y + x end
end
print(t:view(mf.all, { nil, nil, -1 })) -- the columns in reverse order: a view of the same memory
print(t:get(1, -1)) -- checked; coordinates count from 0, and from -1 at the end
