-- The operations of Lua's two interfaces, tensors and Python, each a function that gives the same each time; and what
-- events do in Lua. Called with the function that says that a point was reached; gives { operations, helpers }.
--
-- The same under either host. Must not know which event strikes, nor where.
local point = ...
local ffi = require "ffi"
local mf = require "moonferry"
local py = require "moonferry.python"
local np = py.import "numpy"
local builtins, bench = py.builtins, py.import "bench"

local helpers, operations = {}, {}
local device, mode = "cpu", "compiled"
local t, u -- the tensors that operations work on
local changing = {}

local function reach()
  point "foreign"
end

-- What events do

function helpers.set(wanted, where)
  mode, device = wanted, where
  jit.flush()
  if mode == "compiled" then
    jit.on()
    jit.opt.start("hotloop=3", "hotexit=2")
  else
    jit.off()
  end
end

function helpers.open(a, b)
  t, u = a, b
end

function helpers.same(...)
  return ...
end

function helpers.table()
  return setmetatable({ 1, 2, 3, name = "x" }, {})
end

function helpers.fails()
  error({ code = 7 })
end

function helpers.works(n)
  local sum = 0
  for i = 1, n do
    sum = sum + #tostring(i)
  end
  return sum
end

function helpers.uses_the_library()
  local a = mf.ones({ 3, 2 })
  local b = a:view(mf.all, 0):copy()
  assert(b:get(2) == 1)
  b:close()
  mf.scope(function()
    mf.from_dlpack(a:to_dlpack())
  end)
end

function helpers.collects()
  collectgarbage()
end

function helpers.finalizes(fn)
  local proxy = newproxy(true)
  getmetatable(proxy).__gc = function() fn() end
  proxy = nil -- luacheck: ignore 311
  collectgarbage()
  collectgarbage()
end

function helpers.drops()
  t, u = nil, nil
  collectgarbage()
  collectgarbage()
end

function helpers.closes()
  if t then t:close() end
  if u then u:close() end
end

function helpers.changes()
  for i in pairs(changing) do
    changing[i] = nil
  end
end

function helpers.close()
  t, u = nil, nil
  changing = {}
end

function helpers.settle()
  jit.flush()
  for _ = 1, 3 do
    collectgarbage()
    py.collect()
  end
end

function helpers.hook(every)
  if every > 0 then
    debug.sethook(function() point "lua" end, "", every)
  else
    debug.sethook()
  end
end

-- A proxy that comes again each time that it goes.
local again
local function renew()
  local proxy = newproxy(true)
  getmetatable(proxy).__gc = function()
    if again then
      renew()
      point "lua-gc"
    end
  end
end

function helpers.collect_always(on)
  again = on
  if on then
    collectgarbage("setpause", 0)
    collectgarbage("setstepmul", 100000)
    renew()
  else
    collectgarbage("setpause", 200)
    collectgarbage("setstepmul", 200)
  end
end

-- Runs an operation so often that it is compiled where that is on. It keeps `point`, because the finalizers above may
-- still run when all else is gone.
function helpers.run(name, count)
  local operation = point and operations[name]
  local result
  for _ = 1, count do
    result = operation()
  end
  return result
end

function helpers.names()
  local names = {}
  for name in pairs(operations) do
    names[#names + 1] = name
  end
  table.sort(names)
  return py.list(names)
end

-- What is public in Lua, as "mf.name", "t:name", "s:name", "py.name".
function helpers.public()
  local names = {}
  for name in pairs(mf) do names[#names + 1] = "mf." .. name end
  for name in pairs(require("moonferry.tensor").Tensor) do names[#names + 1] = "t:" .. name end
  for name in pairs(py) do names[#names + 1] = "py." .. name end
  return py.list(names)
end

local op = operations

local function plain(x)
  local made = x:to("cpu"):totable()
  return #made > 0 and type(made[1]) == "table" and table.concat(made[1], ",") or table.concat(made, ",")
end

op["mf.zeros"] = function() return plain(mf.zeros({ 2, 3 }, "float32", { device = device })) end
op["t:view"] = function() return plain(t:view(1)) end
op["t:close_of_foreign_memory"] = function()
  local made = py.tensor(bench.noisy())
  made:close()
  return true
end
op["py.call"] = function() return py.call(bench.Items(1), { 4 }) end
op["py.iter"] = function()
  local sum = 0
  for x in py.iter(bench.Items(1, 2, 3)) do
    sum = sum + x
  end
  return sum
end

return { operations = operations, helpers = helpers }
