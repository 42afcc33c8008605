-- The main things once without busted, which wraps parts of the FFI: run by modes_spec.lua.
local ffi = require "ffi"
local mf = require "moonferry"

local function refused(fn, ...)
  local ok, message = pcall(fn, ...)
  assert(not ok and type(message) == "string", "no error")
  return message
end

for name, value in pairs { bool = true, int8 = -128, uint16 = 65535, int32 = -2 ^ 31, float16 = 0.5, bfloat16 = -2,
  float32 = 1.25, float64 = 1e300, int4 = -8 } do
  local t = mf.full({ 2, 3 }, value, name)
  assert(t.dtype == name and t:get(1, 2) == value and t:copy():equal(t))
  t:put(-1, -1, value)
  local u = mf.from_dlpack(t:to_dlpack())
  t:close()
  assert(u:get(0, 0) == value and #tostring(u) > 20)
  u:close()
end

local t = mf.zeros({ 50, 40 }, "float32")
for y, row in t:rows() do
  for x = 0, 39 do
    row[x] = x * y
  end
end
local sum = 0
for y = 0, 49 do
  local row = t:row(y)
  for x = 0, 39 do
    assert(row[x] == t:at(y, x) and row[x] == t:get(y, x))
    sum = sum + row[x]
  end
end
assert(sum == 49 * 25 * 39 * 20)
assert(t:permute_dims():copy():permute_dims():equal(t))
assert(t:view({ nil, nil, -1 }, mf.all):get(0, 1) == 49)
assert(refused(t.get, t, 50, 0):find("index 50 is out of range for axis 0 of extent 50", 1, true))
assert(mf.scope(function(s)
  return s:keep(t:astype("float64"))
end):get(2, 3) == 6)

local wrapped = mf.wrap(ffi.new("double[3]", 1, 2, 3), 3, "float64")
collectgarbage()
assert(wrapped:get(2) == 3)
wrapped:close()
assert(refused(function()
  return wrapped.shape
end):find("tensor closed", 1, true))

for _ = 1, 2000 do
  local m = t:to_dlpack()
  m.deleter(m)
  mf.from_dlpack(t:to_dlpack()):close()
end
t:close()
collectgarbage()
collectgarbage()
local ledger = mf.ledger()
assert(ledger.tensors == 0 and ledger.storages == 0 and ledger.bytes == 0 and ledger.blocks == 0)
print "plain: all is well"
