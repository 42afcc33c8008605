-- Memory that crosses into and out of another LuaJIT library as a DLPack struct, without a copy.
--
--     LUA_PATH="lua/?.lua;lua/?/init.lua;;" luajit examples/exchange.lua
local ffi = require "ffi"
local mf = require "moonferry"

-- An engine's memory, here an FFI array, seen as a tensor. The array stays alive as long as it is used.
local samples = ffi.new("int16_t[8]", 0, 10, 20, 30, 40, 50, 60, 70)
local stereo = mf.wrap(samples, { 4, 2 }, "int16")
local left = stereo:view(mf.all, 0)

-- What another library would get: a DLManagedTensorVersioned *, which it must delete once.
local managed = left:to_dlpack()
print(("DLPack %d.%d, %d samples, stride %d"):format(managed.version.major, managed.version.minor,
  tonumber(managed.dl_tensor.shape[0]), tonumber(managed.dl_tensor.strides[0])))

-- And back in: this takes the struct over, so nobody else has to delete it.
local again = mf.from_dlpack(managed)
again:put(2, -1)
print("written through the import, read from the array:", samples[4])

-- Everything that a scope makes is closed at its end, except what it keeps.
local sum = mf.scope(function(s)
  local wide = again:astype("float64")
  local total = s:keep(mf.zeros({}, "float64"))
  for i = 0, wide.size - 1 do
    total:put(total:get() + wide:get(i))
  end
  return total
end)
print(sum)

for _, t in ipairs { stereo, left, again, sum } do
  t:close()
end
print("alive at the end:", mf.ledger().tensors)
