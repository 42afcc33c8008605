-- Ray from Lua: LuaJIT makes an array, an actor in another process sums it, LuaJIT reads what the store holds.
--
--     LUA_PATH="lua/?.lua;lua/?/init.lua;;" luajit examples/distributed/with_ray.lua        (pip install ray)
local mf = require "moonferry"
local py = require "moonferry.python"
local ray = py.import "ray"

ray.init(py.kw { num_cpus = 1, include_dashboard = false, logging_level = "ERROR" })
local python = py.dict {}
py.exec([[
import ray

@ray.remote
class Reader:
    def sum(self, t):
        return float(t.numpy().sum()), t.readonly
]], python)

local t = mf.full({ 1000, 1000 }, 0.5, "float32")
local stored = ray.put(t)
local seen = py.tensor(ray.get(stored))
local again = py.tensor(ray.get(stored))
print("put: " .. (seen:ptr() == t:ptr() and "not copied" or "copied"))
print("get: " .. (seen:ptr() == again:ptr() and "not copied" or "copied"))
print("read-only", seen.readonly, seen:get(999, 999))

local reader = py.get(python, "Reader").remote()
local total, readonly = py.unpack(ray.get(reader.sum.remote(stored)))
print("the actor's sum", total, readonly)

t:close()
seen:close()
again:close()
py.collect()
print(("driver, at its end: %d tensors"):format(mf.ledger().tensors))
ray.shutdown()
