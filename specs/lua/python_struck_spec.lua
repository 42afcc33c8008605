-- As struck_spec, for what Lua asks of the Python that it hosts.
local assert = require "luassert"
local mf = require "moonferry"
local py = require "moonferry.python"
local struck = require "struck"

local refused = struck.refused

local function text(value)
  return tostring(value)
end

local numbers, made
local CALLS = {
  import = function() return text(py.import "math") end,
  ["import of what is not there"] = function() return refused(py.import, "no_such_module") end,
  from = function() return text(py.from("math", "floor")) end,
  ["from, of a submodule"] = function() return text(py.from("importlib", "util")) end,
  ["from, of what is not there"] = function() return refused(py.from, "math", "nothing") end,
  eval = function() return py.eval("a + 1", { a = 2 }) end,
  exec = function() local scope = { a = 2 } py.exec("b = a + 1", scope) return scope end,
  list = function() return text(py.list { 1, 2, py.list { 3 } }) end,
  dict = function() return text(py.dict { a = 1 }) end,
  mapping = function() return py.builtins.len(py.mapping(made)) end,
  iter = function() local n = 0 for x in py.iter(numbers) do n = n + x end return n end,
  items = function() local n = 0 for _, x in py.items(py.dict { a = 1 }) do n = n + x end return n end,
  enumerate = function() local n = 0 for i, x in py.enumerate(numbers) do n = n + i * x end return n end,
  zip = function() local n = 0 for a, b in py.zip(numbers, numbers) do n = n + a * b end return n end,
  unpack = function() return { py.unpack(numbers) } end,
  slice = function() return text(numbers[py.slice(1, 2)]) end,
  call = function() return text(py.builtins.sorted(numbers, py.kw { reverse = true })) end,
  ["a callback"] = function() return text(py.builtins.list(py.builtins.map(function(x) return x + 1 end, numbers))) end,
  ["a callback that fails"] = function()
    return refused(function() return py.builtins.list(py.builtins.map(function() error "mine" end, numbers)) end)
  end,
  with = function() return py.with(py.import("contextlib").nullcontext(3), function(value) return value + 1 end) end,
  ["with, of what is none"] = function() return refused(py.with, 3, function() end) end,
  is_instance = function() return py.is_instance(numbers, py.builtins.list) end,
  scope = function() return py.scope(function() return py.builtins.len(py.list { 1 }) end) end,
  int64 = function() return text(py.int64(py.int(7))) end,
  tensor = function() return py.tensor(py.import("array").array("f", numbers)):tolist() end,
  ["a tensor to Python"] = function() return text(py.builtins.list(mf.ones(2))) end,
}

describe("an error between any two instructions, of what Python is asked,", function()
  setup(function()
    jit.off()
    numbers, made = py.list { 1, 2, 3 }, { a = 1 }
  end)
  teardown(jit.on)

  struck.specify(it, CALLS)

  it("comes out of from as it is, if it is none of Python's", function()
    local import = py.import
    py.import = function(name) return name:find "[.]" and error("not enough memory", 0) or import(name) end
    local ok, message = pcall(py.from, "importlib", "no_such_module")
    py.import = import
    assert.is_false(ok)
    assert.are.equal("not enough memory", message)
  end)
end)
