-- LUA_PATH="lua/?.lua;lua/?/init.lua;;" luajit examples/hosts.lua
local py = require "moonferry.python" -- CPython, in this process
local numpy, torch = py.import "numpy", py.import "torch"

local a = numpy.linspace(0, 1, 5, py.kw { dtype = "float32" })
local t = py.tensor(a) -- NumPy's memory as a tensor of Lua's
local p = t:ptr()
for i = 0, t.size - 1 do p[i] = p[i] * p[i] end
print(a, torch.from_dlpack(t):sum():item()) -- both libraries see what Lua wrote
