-- The operations of Lua's two interfaces, tensors and Python, each a function that gives the same each time; and what
-- events do in Lua. Called with the function that says that a point was reached, and the one that is told of an error
-- that no caller sees; gives { operations, helpers }.
--
-- The same under either host. Must not know which event strikes, nor where.
local point, tell = ...
local ffi = require "ffi"
local mf = require "moonferry"
local py = require "moonferry.python"
local bench = py.import "bench"

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
  py.main.held = nil
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

-- A proxy that comes again each time that it goes, so often. LuaJIT 2.1.0-beta3 crashes where an error leaves a
-- finalizer that it runs at the exit of compiled code, so none does.
local MOST_FINALIZERS = 300
local again
local function renew()
  local proxy = newproxy(true)
  getmetatable(proxy).__gc = function()
    if again and again > 0 then
      again = again - 1
      renew()
      local fine, message = pcall(point, "lua-gc")
      if not fine then
        tell(message)
      end
    end
  end
end

function helpers.collect_always(on)
  again = on and MOST_FINALIZERS
  if on then
    collectgarbage("setpause", 100)
    collectgarbage("setstepmul", 1000)
    renew()
  else
    collectgarbage("setpause", 200)
    collectgarbage("setstepmul", 200)
  end
end

-- Runs an operation so often that it is compiled where that is on. It keeps `point` and `tell`, because the finalizers
-- above may still run when all else is gone.
function helpers.run(name, count)
  local operation = point and tell and operations[name]
  for _ = 2, count do
    operation()
  end
  return operation()
end

local op = operations

-- What a tensor holds, as text.
local function plain(x)
  local made = x:to("cpu"):tolist()
  if type(made) ~= "table" then return tostring(made) end
  return #made > 0 and type(made[1]) == "table" and table.concat(made[1], ",") or table.concat(made, ",")
end

-- A result that came, or the error that came instead.
local function ok(x, message)
  return x == nil and error(message, 2) or x
end

-- The tensor of a struct, which stays ours where it is refused.
local function imported(m)
  local made, message = mf.from_dlpack(m)
  if not made then m.deleter(m) end
  return ok(made, message)
end

local function on_device() return { device = device } end

-- A list that an event may empty, and whose elements are asked for where they are Lua's own.
local function list(...)
  changing = { ... }
  return changing
end

-- A table in Lua whose every use is foreign code.
local asked = setmetatable({}, {
  __index = function(_, key)
    reach()
    return key
  end,
  __call = function(_, x)
    reach()
    return x
  end,
  __tostring = function()
    reach()
    return "asked"
  end,
})

local function callback(x)
  reach()
  return x
end

local function foreign()
  return py.tensor(bench.noisy())
end

op["mf.empty"] = function() return ok(mf.empty({ 2, 3 }, "float32", on_device())).size end
op["mf.zeros"] = function() return plain(ok(mf.zeros(list(2, 3), "float32", on_device()))) end
op["mf.ones"] = function() return plain(ok(mf.ones(4, "float32", on_device()))) end
op["mf.full"] = function() return plain(ok(mf.full({ 2 }, 7, "int8", on_device()))) end
op["mf.tensor"] = function() return plain(ok(mf.tensor(list({ 1, 2 }, { 3, 4 }), "float32", on_device()))) end
op["mf.wrap"] = function() return plain(ok(mf.wrap(ffi.new("float[4]", 1, 2, 3, 4), { 2, 2 }))) end
op["mf.wrap-owner"] = function()
  local memory = ffi.new("float[4]", 1, 2, 3, 4)
  return plain(ok(mf.wrap(memory, { 2, 2 }, "float32", { owner = { memory, bench.Items(1) } })))
end
op["mf.from_dlpack"] = function() return plain(imported(ok(t:to_dlpack()))) end
op["mf.from_dlpack-legacy"] = function() return plain(imported(ok(t:to_dlpack_legacy()))) end
op["mf.from_dlpack-foreign"] = function()
  local made = foreign()
  local shared = imported(ok(made:to_dlpack()))
  made:close()
  local text = plain(shared)
  shared:close()
  return text
end
op["mf.from_handle"] = function()
  local made = ok(mf.zeros(2))
  local handle = ffi.gc(made._handle, nil)
  made._handle = nil
  return plain(mf.from_handle(handle))
end
op["mf.is_tensor"] = function() return mf.is_tensor(t) and not mf.is_stream(t) end
op["mf.scope"] = function()
  local kept = mf.scope(function(s)
    local a = ok(t:copy())
    reach()
    return s:keep(ok(a:view(1)))
  end)
  local text = plain(kept)
  kept:close()
  return text
end
op["mf.scope-foreign"] = function()
  return mf.scope(function()
    foreign()
    return foreign().size
  end)
end
op["mf.scope-error"] = function()
  local fine = pcall(mf.scope, function()
    foreign()
    error("x")
  end)
  return fine
end
op["mf.scope-coroutine"] = function()
  local thread = coroutine.wrap(function()
    return mf.scope(function()
      local a = ok(mf.zeros(3))
      coroutine.yield(a.size)
      reach()
      return a.size
    end)
  end)
  return thread() + thread()
end
op["mf.complex"] = function() return mf.complex(1, 2).im end
op["mf.ledger"] = function() return type(mf.ledger().tensors) end
op["mf.gc_limit"] = function() return mf.gc_limit() > 0 end
op["mf.trim"] = function() return device == "cpu" or ok(mf.trim(device)) end
op["mf.device_count"] = function() return mf.device_count("cuda") ~= false end
op["mf.threads"] = function() return mf.threads(mf.threads()) > 0 end
op["mf.stream_none"] = function() return mf.stream_none() end
op["mf.garbage"] = function()
  local made = foreign() -- luacheck: ignore 231
  made = nil -- luacheck: ignore 311
  collectgarbage()
  return mf.ledger() ~= nil
end

op["t:view"] = function() return plain(ok(t:view(1))) end
op["t:view-slice"] = function() return plain(ok(t:view(mf.all, list(0, 2)))) end
op["t:view-axes"] = function() return ok(t:view(mf.newaxis, mf.ellipsis, 1)).ndim end
op["t:permute_dims"] = function() return plain(ok(t:permute_dims(1, 0))) end
op["t:reshape"] = function() return plain(ok(t:reshape(-1))) end
op["t:broadcast_to"] = function() return ok(t:broadcast_to(list(2, 2, 3))).size end
op["t:squeeze"] = function() return plain(ok(t:view({ 0, 1 }):squeeze())) end
op["t:expand_dims"] = function() return ok(t:expand_dims(0)).ndim end
op["t:diagonal"] = function() return plain(ok(t:diagonal())) end
op["t:reinterpret"] = function() return ok(t:reinterpret("uint8")).size end
op["t:as_readonly"] = function() return t:as_readonly().readonly end
op["t:fields"] = function()
  return t.ndim + t.size + t.nbytes + #t.dtype + #t.shape + #t.strides + (t.is_contiguous and 1 or 0)
end
op["t:tostring"] = function() return tostring(t):sub(1, 9) end
op["t:fill"] = function()
  local a = ok(t:copy())
  ok(a:fill(3))
  return plain(a)
end
op["t:copy"] = function() return plain(ok(t:copy())) end
op["t:copy-from"] = function()
  local a = ok(mf.zeros({ 2, 3 }, "float32", on_device()))
  ok(a:copy(t))
  return plain(a)
end
op["t:copy-overlap"] = function()
  local a = ok(t:copy())
  ok(a:view(mf.all, { 1 }):copy(a:view(mf.all, { 0, 2 })))
  return plain(a)
end
op["t:copy-foreign"] = function()
  local made = foreign()
  local a = ok(made:copy())
  made:close()
  return plain(a)
end
op["t:astype"] = function() return plain(ok(t:astype("int16"))) end
op["t:equal"] = function() return ok(t:equal(ok(t:copy()))) end
op["t:tolist"] = function() return plain(t) end
op["t:to"] = function() return plain(ok(t:to(device, { copy = true }))) end
op["t:to-host"] = function() return plain(ok(t:to("cpu"))) end
op["t:acquire"] = function() return t:acquire("host", "write") ~= nil end
op["t:record"] = function() return t:record(nil, "write") ~= nil end
op["t:to_dlpack"] = function()
  local m = ok(t:to_dlpack())
  local ndim = m.dl_tensor.ndim
  m.deleter(m)
  return ndim
end
op["t:to_dlpack-options"] = function()
  local m = ok(t:to_dlpack { device = "cpu", copy = true, stream = "host" })
  return plain(imported(m))
end
op["t:to_dlpack-foreign"] = function()
  local made = foreign()
  local m = ok(made:to_dlpack())
  made:close()
  m.deleter(m)
  return mf.ledger().tensors >= 0
end
op["t:to_dlpack_legacy"] = function()
  local m = ok(t:to_dlpack_legacy())
  local ndim = m.dl_tensor.ndim
  m.deleter(m)
  return ndim
end
op["t:close"] = function()
  local a = ok(t:view(0))
  a:close()
  return mf.is_tensor(a)
end
op["t:close-foreign"] = function()
  foreign():close()
  return true
end
op["t:close-a_view"] = function()
  local made = foreign()
  local view = made:view(1)
  made:close()
  local text = plain(view)
  view:close()
  return text
end
op["t:invalidate"] = function()
  local a = ok(mf.wrap(ffi.new("float[2]"), 2))
  a:invalidate()
  return (pcall(a.get, a, 0))
end
op["t:get"] = function() return t:get(1, 2) end
op["t:put"] = function()
  local a = ok(t:copy())
  a:put(0, 1, 9)
  return plain(a)
end
op["t:at"] = function()
  local a = t:to("cpu", { copy = true })
  a:set(1, 2, a:at(0, 1))
  return a:at(1, 2)
end
op["t:rows"] = function()
  local sum = 0
  for y, row in t:to("cpu"):rows() do
    for x = 0, 2 do
      sum = sum + y * row[x]
    end
    reach()
  end
  return sum
end
op["t:row"] = function() return t:to("cpu"):row(1)[2] end
op["t:ptr"] = function() return t:to("cpu"):ptr()[1] end

local function on_stream(fn)
  return function()
    return mf.with_stream(ok(mf.stream(device)), fn)
  end
end

-- On a GPU alone.
local gpu = {}
gpu["mf.stream"] = function()
  local s = ok(mf.stream(device))
  s:synchronize()
  local done = s:query()
  s:close()
  return done
end
gpu["mf.with_stream"] = on_stream(function()
  reach()
  return plain(ok(t:copy()))
end)
gpu["mf.with_stream-error"] = function() return (pcall(on_stream(function() error "x" end))) end
gpu["mf.with_stream-coroutine"] = function()
  local run = coroutine.wrap(on_stream(function()
    coroutine.yield(1)
    reach()
    return ok(t:copy()).size
  end))
  return run() + run()
end
gpu["mf.default_stream"] = function() return mf.default_stream(device) == mf.current_stream(device) end
gpu["mf.per_thread_stream"] = function() return mf.is_stream(mf.per_thread_stream(device)) end
gpu["mf.wrap_stream"] = function()
  local s = ok(mf.stream(device))
  local same = mf.wrap_stream(device, s.handle, s) == s
  s:close()
  return same
end
gpu["mf.synchronize"] = function() return ok(mf.synchronize(device)) end
gpu["mf.pool_stats"] = function() return ok(mf.pool_stats(device)).limit_bytes >= 0 end
gpu["mf.pool_limit"] = function() return ok(mf.pool_limit(device, 0)) end
gpu["s:wait"] = function()
  local a, b = ok(mf.stream(device)), ok(mf.stream(device))
  a:wait(b)
  return ok(a:synchronize())
end
gpu["py.stream"] = function()
  local s = py.import("moonferry").Stream(device)
  return mf.is_stream(py.stream(s))
end

for name, operation in pairs(gpu) do
  op[name] = function()
    return device == "cpu" or operation()
  end
end

function helpers.names()
  local names = {}
  for name in pairs(operations) do
    if device ~= "cpu" or not gpu[name] then
      names[#names + 1] = name
    end
  end
  table.sort(names)
  return py.list(names)
end

-- The public names that no operation stands for.
function helpers.without_operation()
  local named, missing = { ["t:set"] = true, ["py.None"] = true, ["py.kw"] = true, ["py.builtins"] = true }, {}
  for _, name in ipairs { "all", "newaxis", "ellipsis", "ENOMEM", "EDEVICE", "EDRIVER", "ECAPTURE", "ETIMEOUT",
    "version", "is_stream", "current_stream" } do
    named["mf." .. name] = true -- values, and what others call
  end
  for _, name in ipairs { "int", "int64", "is", "finish", "settle", "preload" } do
    named["py." .. name] = true -- the last three: what a process does once
  end
  for name in pairs(operations) do
    named[name:match "^[^-]*"] = true
  end
  for prefix, names in pairs { ["mf."] = mf, ["t:"] = require("moonferry.tensor").Tensor, ["py."] = py } do
    for name in pairs(names) do
      if not named[prefix .. name] then
        missing[#missing + 1] = prefix .. name
      end
    end
  end
  return py.list(missing)
end

-- For the other file of operations.
local function tensors()
  return t
end

return {
  operations = operations, helpers = helpers,
  shared = {
    op = op, plain = plain, ok = ok, list = list, callback = callback, asked = asked, reach = reach, tensor = tensors,
  },
}
