-- docs/lua-hosts-python.md: every block of Lua on the page runs, and prints what the page says.
local mf = require "moonferry"
local py = require "moonferry.python"
local page = require "page"

local PAGE = "docs/lua-hosts-python.md"

describe(PAGE, function()
  local found = page.examples(PAGE, "lua")

  it("has examples", function()
    assert.is_true(#found >= 9)
  end)

  for _, example in ipairs(found) do
    it("says what the Lua from line " .. example.line .. " on prints", function()
      local library = example.code:match 'py%.import "(torch)"'
      if library and py.import("importlib.util").find_spec(library) == py.None then
        return pending(library .. " is not installed")
      end
      assert.are.equal(example.output, page.printed(PAGE, example, { py = py, mf = mf }))
    end)
  end
end)
