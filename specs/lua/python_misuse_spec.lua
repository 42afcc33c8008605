-- Everything of moonferry.python is called with anything: errors are fine, a crash is not.
local process = require "process"

-- Each program has its seed, so that a failure can be had again.
local PROGRAM = [[
local py = require "moonferry.python"
local ffi = require "ffi"
local mf = require "moonferry"
py.exec [=[
class Evil:
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *a, **k: a
    def __eq__(self, other): raise ValueError
    __hash__ = object.__hash__
    def __len__(self): return -1
    def __str__(self): return 5
    def __iter__(self): return 7
    def __enter__(self): raise KeyError
    def __exit__(self, *a): raise OSError
import io, sys
sys.stdout = io.StringIO()
]=]
math.randomseed(%d)
local _, fault = pcall(py.eval, "1/0")
local closed, tensor = py.list {}, mf.zeros(2)
py.close(closed)
tensor:close()
local COUNT = 33
local function values()
  return { nil, true, -1, 2 ^ 60, 0 / 0, "", "x", "\255", "__class__", {}, { 1, 2 }, { a = 1 }, setmetatable({}, {}),
    print, function(...) return ... end, function() error {} end, coroutine.create(print), io.stdout, 5LL,
    ffi.new "int[2]", py.None, py.builtins, py.list { 1, 2 }, py.dict { a = 1 }, py.main.Evil(), fault,
    closed, tensor, py.kw { a = 1 }, py.builtins.ValueError, py.builtins.int, py.eval "2**70", py.iter { 1 } }
end
local targets = {}
local function add(name, functions, left_out)
  for key, f in pairs(functions) do
    if type(f) == "function" and not left_out[key] then
      targets[#targets + 1] = { name .. key, f }
    end
  end
end
add("py.", py, { start = true })
add("object ", debug.getmetatable(py.list {}), { __gc = true })
add("error ", debug.getmetatable(fault), { __gc = true })
table.sort(targets, function(a, b) return a[1] < b[1] end)
local chosen, failed = values(), 0
for i = 1, 3000 do
  local target, arguments, count = targets[math.random(#targets)], {}, math.random(0, 4)
  for k = 1, count do
    arguments[k] = chosen[math.random(COUNT)]
  end
  local ok, err = pcall(target[2], unpack(arguments, 1, count))
  if not ok then
    failed = failed + 1
    assert(pcall(tostring, err), target[1])
  end
  if i %% 200 == 0 then
    collectgarbage()
    local fresh, new = pcall(values)
    chosen = fresh and new or chosen
  end
end
assert(failed > 1000 and failed < 3000)
print "survived"
]]

describe("moonferry.python", function()
  for seed = 1, 3 do
    it("survives calls of anything with anything, seed " .. seed, function()
      local text = process.runs(PROGRAM:format(seed), "", "luajit", "</dev/null")
      assert.matches("survived\n$", text)
    end)
  end
end)
