-- Whatever Lua asks of Python code, that may wait for a thread which calls Lua: the bridge leaves Lua to it meanwhile.
local helper = require "helper"

local PRELUDE = [[
local mf = require "moonferry"
local py = require "moonferry.python"
py.import("sys").path:insert(0, "specs/lua")
local main = py.import "waiting"
main.ping = function() return 7 end
local o = main.Probe()
]]

local CODE = {
  attribute = "return o.name",
  ["attribute set"] = "o.name = 1",
  ["item and its kin"] = "o[1] = o[1] py.set(o, 'a', py.get(o, 'a')) py.delete(o, 'a')",
  call = "return o(1, py.kw { a = 2 })",
  ["call with a mapping"] = "return py.call(main.visit, { 1 }) and py.call(py.builtins.dict, nil, o)",
  ["tostring, length"] = "return tostring(o), #o, o .. 'x'",
  operators = "return o + 1, 1 - o, o * o, o / 2, o % 2, o ^ 2, -o, o == main.Probe(), o < o, o <= o",
  iter = "for x in py.iter(o) do end",
  each = "for a in py.each(o) do end",
  ["each of tuples"] = "for a, b in py.each { main.Tuple { 1, 2 } } do end",
  items = "for k, v in py.items(o) do end",
  unpack = "return py.unpack(o)",
  numbers = "return py.float(o), py.int(o), py.number(o), py.int64(o)",
  with = "py.with(o, function() end) pcall(py.with, o, function() error 'x' end)",
  dict = "return py.dict { [o] = 1 }",
  ["dict with a key like another one"] = [[
    local d = {}
    for letter in ("abcdefghijklmnopqrstuvwxyz"):gmatch "." do
      d[letter], d[main.Like(letter)] = 1, 2
    end
    return py.dict(d)]],
  keys = "local d = {} d[o] = 2 main.visit(d)",
  ["eval in a scope"] = "return py.eval('1', main.Scope())",
  ["with what is no manager"] = "pcall(py.with, main.Unnamed(), print)",
  raise = "pcall(py.raise, main.Wrong, 'x')",
  ["raise while an error is handled"] = [[
    main.handling(function() pcall(py.raise, main.chained()) end)]],
  ["an error's earlier traceback"] = "local again = main.thrown_again() local before = main.count pcall(again) "
    .. "assert(main.count == before + 1)",
  ["an error's fields"] = "local _, e = pcall(main.fail) return e.type, e.message, e.traceback, tostring(e), e.class",
  ["an error's kind"] = "local _, e = pcall(main.fail) return e:is(main.Wrong), e:is 'Wrong', e:is 'ValueError'",
  ["is_instance"] = "return py.is_instance(1, main.Wrong)",
  ["what weighs something"] = "return main.Weighed()",
  close = "py.close(main.Probe())",
  collect = "do local p = main.Probe() p = nil end collectgarbage() collectgarbage() py.collect()",
  ["what goes at the next call"] = "do local p = main.Probe() end collectgarbage() collectgarbage() py.eval '1'",
  ["what is closed while it runs"] = [[
    local last
    last = main.Last(function() py.close(last) end)
    last() ]],
  ["memory of Python's"] = [[
    local array = main.noisy()
    local t = py.tensor(array)
    py.close(array)
    local before = main.count
    t:close()
    assert(main.count == before + 1)]],
  ["memory of Python's, collected"] = [[
    local array = main.noisy()
    local t = py.tensor(array)
    py.close(array)
    local before = main.count
    t = nil
    collectgarbage()
    collectgarbage()
    mf.ledger()
    assert(main.count == before + 1)]],
}

describe("Python code that waits for a caller of Lua:", function()
  after_each(helper.nothing_left)

  for name, code in pairs(CODE) do
    it(name, function()
      local program = PRELUDE .. "local before = main.count;\n(function()\n" .. code
        .. "\nend)();\nassert(main.count > before, 'nothing was reached')\nprint 'done'\no = nil\nos.exit(0)"
      local output, exit = helper.luajit(program)
      assert.are.equal("done\n", output)
      assert.are.equal(0, exit)
    end)
  end
end)
