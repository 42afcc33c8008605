-- moonferry.python loaded again and again in one Lua state, as busted does for each of its files.
local helper = require "helper"

local PRELUDE = [[
local function load()
  for name in pairs(package.loaded) do
    if name:match "^moonferry" then package.loaded[name] = nil end
  end
  return require "moonferry.python", require "moonferry"
end
]]

local function runs(program)
  local output, code = helper.luajit(PRELUDE .. program)
  assert.are.equal(0, code, output)
  return output
end

describe("moonferry.python, loaded again", function()
  after_each(helper.nothing_left)

  it("works each time, and so do those that were loaded before", function()
    runs [[
local all = {}
for i = 1, 20 do
  local py, mf = load()
  local t = mf.full({ 2, 3 }, i)
  all[i] = { py = py, mf = mf, t = t, object = py.list { i, i }, f = py.eval("lambda x: x") }
  py.main["f" .. i] = function(x) return x + i end
  assert(py.op.add(1, i) == i + 1)
end
for i, one in ipairs(all) do
  assert(#one.object == 2 and one.py.is(one.object))
  assert(one.py.main["f" .. i](1) == 1 + i)
  local back = one.f(one.t)
  assert(one.mf.is_tensor(back) and back:tolist()[2][3] == i)
  local ok, e = pcall(one.py.eval, "1 / 0")
  assert(not ok and e:is "ZeroDivisionError")
  assert(one.py.get(one.py.builtins.dict(one.py.kw { a = 5 }), "a") == 5)
end
]]
  end)

  it("makes objects that the others know", function()
    local output = runs [[
local one, two = load(), load()
local list = one.list { 1, 2 }
assert(two.is(list) and two.builtins.len(list) == 2)
one.main.f = function() return "one" end
two.main.g = two.main.f
assert(two.main.g() == "one" and two.main.f == one.main.f)
local ok, e = pcall(one.raise, two.builtins.KeyError, "k")
assert(not ok and e:is(two.builtins.KeyError))
print "done"
]]
    assert.are.equal("done\n", output)
  end)

  it("closes what was made in its own scopes", function()
    runs [[
local one, two = load(), load()
for _, py in ipairs { one, two, one } do -- each starts where it is used first
  local kept
  py.scope(function()
    kept = py.list { 1 }
    assert(#kept == 1)
  end)
  local ok, message = pcall(function() return #kept end)
  assert(not ok and tostring(message):find "closed", message)
end
]]
  end)

  it("has a place of its own where a finalizer loads another while this one is being made", function()
    local output = runs [[
jit.off()
local py = load()
py.list {}
local open = require("moonferry.bridge").load().open
local function bridge()
  return open(print, print, print, {}, function() end, newproxy())
end
for _ = 1, 100 do bridge() end -- theirs are the next places
collectgarbage()
py.collect()
local all, under_way = {}, true
local function arm()
  getmetatable(newproxy(true)).__gc = function()
    if under_way then
      all[#all + 1] = bridge()
      arm()
    end
  end
end
local pause, multiplier = collectgarbage("setpause", 0), collectgarbage("setstepmul", 0) -- with each allocation
collectgarbage()
arm()
all[#all + 1] = bridge()
collectgarbage("setpause", pause)
collectgarbage("setstepmul", multiplier)
under_way = false
for _, verbs in ipairs(all) do
  local list = verbs.evaluate "[1]"
  assert(verbs.is(list) and tostring(list) == "[1]")
end
print(#all)
]]
    assert.is_true(tonumber(output) > 10, output)
  end)

  it("takes nothing for a Python object whose metatable lies where one was that is gone", function()
    local output = runs [[
jit.off()
local kept, all, places = load(), {}, {}
for i = 1, 60 do
  all[i] = load()
  places[tostring(debug.getmetatable(all[i].list {}))] = true
  places[tostring(debug.getmetatable(select(2, pcall(all[i].eval, "1 / 0"))))] = true
end
load()
local found, size = 0, 0
repeat -- with other sizes between the metatables each time, until some lie there
  size, all = size + 8, {}
  for _ = 1, 2 do
    kept.collect()
    collectgarbage()
  end
  for i = 1, 20000 do
    local proxy = newproxy(true)
    all[i] = { proxy, (" "):rep(size + math.random(8)) .. i }
    if places[tostring(getmetatable(proxy))] then
      found = found + 1
      assert(not kept.is(proxy))
    end
  end
until found > 10 or size > 800
print(found)
]]
    assert.is_true(tonumber(output) > 0, output)
  end)

  it("leaves its place to none while Python has one of its functions", function()
    local output = runs [[
jit.off()
local kept = load()
do
  local py = load()
  py.main.f = function() error "why" end
end
for i = 1, 10 do
  load().eval "1"
  kept.collect()
  collectgarbage()
  collectgarbage()
end
kept.exec [=[
try:
    f()
except Exception as error:
    print(type(error).__name__, error)
]=]
]]
    assert.matches("LuaError .*: why", output)
  end)

  it("goes on when one that it has replaced is collected", function()
    local output = runs [[
jit.off()
local mf = require "moonferry"
require("moonferry.python").list {}
package.loaded["moonferry.python"] = nil
local py = require "moonferry.python"
py.main.f = function() return "another thread goes on" end
for _ = 1, 3 do
  py.collect()
  collectgarbage()
end
py.exec [=[
import threading
thread = threading.Thread(target=lambda: print(f(), flush=True))
thread.start()
thread.join()
]=]
mf.zeros(3)
collectgarbage()
print(mf.ledger().tensors)
]]
    assert.are.equal("another thread goes on\n0\n", output)
  end)

  it("takes the place of the one before in Lua's registry", function()
    runs [[
local function places()
  local n = 0
  for _ in pairs(debug.getregistry()) do n = n + 1 end
  return n
end
load().eval "1"
local before = places()
for _ = 1, 10 do load().eval "1" end
assert(places() == before, places() .. " places, " .. before .. " before")
]]
  end)

  it("ends where a script runs the finalizer of the state", function()
    local output = runs [[
local py = load()
py.list {}
local state = debug.getregistry()["moonferry.state"]
for _ = 1, 2 do debug.getmetatable(state).__gc(state) end
print(pcall(py.eval, "1"))
]]
    assert.matches("^false\t.*closed", output)
  end)

  it("costs nothing once nobody has it any more", function()
    local output = runs [[
jit.off() -- compiled code keeps the functions that it names
local function once(i)
  local py, mf = load()
  py.main.f = function(x) return x end
  assert(py.main.f(i) == i)
  assert(py.eval("lambda t: t")(mf.full({ 2 }, i)):get(1) == i)
  local t = py.main.f(py.dict { a = py.list { 1 } })
  assert(#t == 1)
  py.main.f = nil
  py.exec "import gc; gc.collect()"
  py.collect()
  collectgarbage()
end
local function size()
  for _ = 1, 4 do
    collectgarbage()
    collectgarbage()
    local py = load()
    py.collect()
    py = nil
  end
  for name in pairs(package.loaded) do
    if name:match "^moonferry" then package.loaded[name] = nil end
  end
  collectgarbage()
  collectgarbage()
  return collectgarbage "count"
end
local function registered()
  local count = 0
  for _ in pairs(debug.getregistry()) do count = count + 1 end
  return count
end
for i = 1, 10 do once(i) end
local before, known = size(), registered()
for i = 1, 40 do once(i) end
local grown = size() - before
-- What the collector has not found yet when the next one is loaded may take a place or two more; each load takes two
-- entries.
local entries = registered() - known
print(grown < 300 and entries < 10 and "done" or grown .. " KB and " .. entries .. " entries in the registry")
]]
    assert.are.equal("done\n", output)
  end)
end)
