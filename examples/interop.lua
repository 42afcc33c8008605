-- LUA_PATH="lua/?.lua;lua/?/init.lua;;" luajit examples/interop.lua
-- A test of exchange between array libraries, as one writes it in Lua: each gives its array to each, through Moonferry.
local py = require "moonferry.python"
local numpy, torch, jax, moonferry = py.import "numpy", py.import "torch", py.import "jax.numpy", py.import "moonferry"
local memoryview = py.builtins.memoryview

-- A library: how it makes an array out of NumPy's, how it takes a tensor, and how it writes. JAX's are constants,
-- which nobody may write into.
local libraries = {
  { name = "NumPy", make = numpy.copy, take = numpy.from_dlpack, write = function(x) x:fill(7) end },
  { name = "PyTorch", make = torch.tensor, take = function(t) return moonferry.into(torch.Tensor, t) end,
    write = function(x) x:fill_(7) end },
  { name = "JAX", make = jax.array, take = jax.from_dlpack, constant = true },
  { name = "memoryview", make = function(a) return memoryview(a:copy()) end, take = memoryview },
}

local values = numpy.arange(24, py.kw { dtype = "float32" }):reshape(4, 6)

for _, from in ipairs(libraries) do
  for _, to in ipairs(libraries) do
    local cell = from.name .. " -> " .. to.name
    local x = from.make(values)
    local t = moonferry.asarray(x)
    local y = to.take(t)
    local back = moonferry.asarray(y)
    assert(back:equal(moonferry.asarray(values)), cell .. ": other values")

    local shared = back:ptr() == t:ptr()
    assert(t.readonly == (from.constant or false), cell .. ": may be written, or may not, unlike what it is of")
    if shared and to.write and not from.constant then
      to.write(y)
      assert(t:get(3, 5) == 7, cell .. ": one address, and a write that is not seen")
    end
    print(("%-25s %s"):format(cell, shared and "zero-copy" or "copied"))
  end
end
