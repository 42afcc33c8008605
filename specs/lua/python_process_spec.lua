-- What a hosted Python knows of its process: arguments, the script's folder.
local process = require "process"
local py = require "moonferry.python"

local run, runs, shell, prelude = process.run, process.runs, process.shell, process.PRELUDE

describe("a hosted Python", function()
  it("has the script's arguments, and finds modules beside the script", function()
    local folder = os.tmpname()
    os.remove(folder)
    shell("mkdir " .. folder)
    process.write_file(folder .. "/beside_me.py", "value = 5\n")
    process.write_file(folder .. "/script.lua", prelude .. [[
print(py.import("sys").argv, py.import("beside_me").value)
]])
    local command = ("%s %s/script.lua one 'two words' $'\\xff'"):format("luajit", folder)
    local status, text = shell("bash -c " .. ("%q"):format(command):gsub("%$", "\\$"))
    assert.are.equal(0, status, text)
    assert.are.equal(("['%s/script.lua', 'one', 'two words', '\\udcff']\t5\n"):format(folder), text)
    local _, refused = shell(("cd /; PYTHONSAFEPATH=1 luajit %s/script.lua"):format(folder))
    local safe = py.import("sys").version_info >= py.tuple { 3, 11 } -- older ones do not know the variable
    assert.matches(safe and "No module named 'beside_me'" or "\t5\n$", refused)
    local _, found = shell(("cd /; PYTHONSAFEPATH= luajit %s/script.lua"):format(folder))
    assert.matches("\t5\n$", found)
    shell("rm -r " .. folder)
  end)

  it("has no arguments where Lua has none", function()
    local _, text = shell([[luajit -e 'arg = nil; print(require("moonferry.python").import("sys").argv)']])
    assert.are.equal("['']\n", text)
  end)

  it("makes Lua states that load C modules, as its host does", function()
    local lua = py.import("moonferry").Lua(py.kw { c_modules = true })
    local library = (os.getenv "MOONFERRY_BUILD" or "build/dev") .. "/specs/lua_support.so"
    local found = lua:execute("return type(package.loadlib(...))", library, "support_calls")
    assert.are.equal("function", found)
  end)
end)

describe("what Python runs while it is started", function()
  it("may have Lua states of its own, which use Python", function()
    local _, made = shell "mktemp -d"
    local folder = made:match "%S+"
    process.write_file(folder .. "/sitecustomize.py", [[
import threading
import moonferry
def work(): print(moonferry.Lua().eval("require('moonferry.python').eval('1 + 1')"), flush=True)
work()
thread = threading.Thread(target=work)
thread.start()
thread.join()
]])
    local text = runs(prelude .. "print(py.eval '2 + 1')", "PYTHONPATH=" .. folder .. ":$PYTHONPATH timeout 100")
    shell("rm -r " .. folder)
    assert.are.equal("2\n2\n3\n", text)
  end)
end)

describe("the first tensor that goes to Python", function()
  it("may be closed by what its import of the package runs", function()
    local text = runs(prelude .. [[
local mf = require "moonferry"
py.exec [=[
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "moonferry" and found:
            found.pop()()
found = []
sys.meta_path.insert(0, Finder())
]=]
local t = mf.zeros(3)
py.main.found:append(function() t:close() end)
print(pcall(py.builtins.repr, t))
print(py.builtins.repr(mf.zeros(1)))
]])
    assert.matches("^false\t[^\n]*the tensor was closed while it went to Python\n", text)
    assert.matches("\nmoonferry.Tensor%([^\n]*float32%)\n$", text)
  end)
end)

describe("a program that Python code wants to end", function()
  it("gets SystemExit as an error that it can look at", function()
    local text = runs(prelude .. [[
local ok, err = pcall(py.import("sys").exit, 3)
print(ok, err.type, err.code)
]])
    assert.are.equal("false\tSystemExit\t3\n", text)
    assert.are.equal(1, (run(prelude .. 'py.import("sys").exit(3)')))
  end)
end)

describe("an engine that embeds LuaJIT", function()
  local hosts = os.getenv "MOONFERRY_SPEC_HOSTS" or (os.getenv "MOONFERRY_BUILD" or "build/dev") .. "/specs"

  -- Each frame calls Python, which calls Lua; the engine closes its state and starts another one.
  local script = prelude .. [[
local np = py.import "numpy"
local state, seen = np.zeros(4), 0
local function update(x)
  seen = seen + 1
  return x + 1
end
py.exec "total = globals().get('total', 0)"
function frame(i)
  state = py.builtins.list(py.builtins.map(update, state))
  py.main.total = py.main.total + 1
  if i == 99 then
    print(level, py.number(state[3]), seen, py.main.total, py.import("sys").argv)
    io.stdout:flush()
  end
end
]]

  local function hosted(program, plugin)
    local path = hosts .. "/" .. program
    local file = io.open(path)
    if not file then
      return nil, pending(program .. " was not built: LuaJIT's static library is not installed")
    end
    file:close()
    local with = path .. (plugin and " " .. hosts .. "/" .. plugin or "")
    return with
  end

  for name, way in pairs {
    ["statically"] = { "lua_host_static" },
    ["dynamically"] = { "lua_host_shared" },
    ["in a plugin of its own"] = { "lua_host_loader", "lua_host_plugin.so" },
  } do
    it(name .. " hosts Python like any Lua", function()
      local program = hosted(unpack(way))
      if program then
        assert.are.equal("1\t100\t400\t100\t['']\n2\t100\t400\t200\t['']\n", runs(script, "", program))
      end
    end)
  end

  it("and does not export it is told how to", function()
    local program = hosted "lua_host_closed"
    if program then
      local status, text = run(script, "", program)
      assert.are.equal(1, status)
      assert.matches("undefined symbol: lua_.*export%-dynamic", text)
    end
  end)

  it("keeps its own way with Ctrl-C", function()
    if os.getenv "MOONFERRY_SPEC_EMULATED" then
      return pending "QEMU catches each signal itself, which /proc says"
    end
    local program = hosted "lua_host_shared"
    local text = runs(prelude .. [[
py.import "signal"
py.import "asyncio"
for line in io.lines "/proc/self/status" do
  local caught = line:match "^SigCgt:%s*%x+(%x)$"
  if caught then
    print(bit.band(tonumber(caught, 16), 2))
  end
end
function frame() end
]], "", program)
    assert.are.equal("0\n0\n", text)
  end)
end)

describe("a Lua that Python hosts", function()
  it("has the same interpreter, the same objects and the same tensors in moonferry.python", function()
    local text = runs([[
import os
import moonferry
lua = moonferry.Lua()
lua.globals().path = os.environ["LUA_PATH"]
lua.execute("package.path = path .. ';' .. package.path; py = require 'moonferry.python'")
class Thing:
    x = 5
thing, mine = Thing(), moonferry.full((2,), 7, "int32")
lua.globals().thing = thing
print(lua.execute("return py.main.thing.x, py.is(thing), py.builtins.type(thing) == py.main.Thing"))
print(lua.execute("return py.builtins.sorted({ 3, 1, 2 }, py.kw { key = function(x) return -x end })"))
print(lua.execute("return py.main.mine:get(1)"), lua.eval("function(t) return py.main.mine end")(mine).tolist())
try:
    lua.execute("py.raise(py.main.KeyError or py.builtins.KeyError, 'k')")
except AttributeError as e:
    print(type(e).__name__, e)
try:
    lua.execute("py.raise(py.builtins.KeyError, 'k')")
except KeyError as e:
    print(type(e).__name__, e)
print(lua.execute("return select(2, pcall(py.eval, '1/0')).type"))
print(lua.execute("""
local n = 0
local thread = py.import("threading").Thread(py.kw { target = function() n = n + 1 end })
thread:start()
thread:join()
return n, py.import("sys").argv[0]
""")[0])
]], "MOONFERRY_PYTHON=/nowhere", py.import("sys").executable)
    assert.are.equal([[
(5, True, True)
[3, 2, 1]
7 [7, 7]
AttributeError module '__main__' has no attribute 'KeyError'
KeyError 'k'
ZeroDivisionError
1
]], text)
  end)
end)

describe("a Lua that hosts Python", function()
  it("raises an error where calls nest to the end of the C stack", function()
    local status, text = process.run([[
local add, levels = require("moonferry.python").op.add, 0
local function deeper()
  local ok, why = pcall(add, 1, 1)
  if not ok then return why end
  levels = levels + 1
  local _, answer = coroutine.resume(coroutine.create(deeper))
  return answer
end
print(deeper(), levels > 1000)
print(add(1, 1))
]])
    assert.are.equal("C stack overflow\ttrue\n2\n", text)
    assert.are.equal(0, status)
  end)
end)
