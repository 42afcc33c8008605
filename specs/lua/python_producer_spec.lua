-- Old and odd producers of Python's, through py.tensor: those of specs/exchange/producers.py, which Python takes too.
local mf = require "moonferry"
local py = require "moonferry.python"
local collect, has = require("hosted").collect, require("hosted").has

describe("py.tensor", function()
  if not has "numpy" then
    return pending "NumPy is not installed"
  end
  local path = py.import("sys").path
  for _, folder in ipairs { "specs/python", "specs/exchange" } do
    path:insert(0, folder)
  end
  local producers = py.import "producers"

  local function taken(source, kind)
    local ok, t = pcall(py.tensor, source)
    if kind.error ~= py.None then
      assert.is_false(ok)
      assert.is_truthy(tostring(t):find(kind.error, 1, true), tostring(t))
      return
    end
    assert.is_true(ok, tostring(t))
    assert.are.same({ { 0, 1, 2 }, { 3, 4, 5 } }, t:tolist())
    assert.are.equal("cpu", tostring(t.device))
    assert.is_false(t.readonly)
    t:close()
  end

  for name in py.iter(producers.KINDS) do
    it("and a producer with " .. name, function()
      collect()
      local before = mf.ledger()
      local kind = py.get(producers.KINDS, name)
      local source, made = py.unpack(kind.make())
      taken(source, kind)
      source = nil -- luacheck: ignore 311
      collect()
      if made ~= py.None then
        assert.are.equal(kind.deletes, made.deletes)
      end
      assert.are.same(before, mf.ledger())
    end)
  end
end)
