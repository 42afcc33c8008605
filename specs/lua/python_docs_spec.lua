-- docs/lua-hosts-python.md: every block of Lua on the page runs, and prints what the page says.
local py = require "moonferry.python"

local PAGE = "docs/lua-hosts-python.md"

local function read(path)
  local file = assert(io.open(path))
  local text = file:read "*a"
  file:close()
  return text
end

-- The blocks of Lua with what the page says that they print.
local function examples(text)
  local found, line = {}, 1
  local language, lines
  for row in text:gmatch "([^\n]*)\n" do
    if language and row == "```" then
      local block = table.concat(lines, "\n") .. "\n"
      if language == "lua" then
        found[#found + 1] = { code = block, line = line - #lines, output = "" }
      elseif language == "text" then
        found[#found].output = block
      end
      language = nil
    elseif language then
      lines[#lines + 1] = row
    elseif row:match "^```%l+$" then
      language, lines = row:match "%l+", {}
    end
    line = line + 1
  end
  return found
end

local function printed(example)
  local out = {}
  local environment = setmetatable({
    py = py,
    mf = require "moonferry",
    print = function(...)
      local words = {}
      for i = 1, select("#", ...) do
        words[i] = tostring((select(i, ...)))
      end
      out[#out + 1] = table.concat(words, "\t") .. "\n"
    end,
  }, { __index = _G })
  setfenv(assert(loadstring(example.code, "=" .. PAGE)), environment)()
  return table.concat(out)
end

describe(PAGE, function()
  local found = examples(read(PAGE))

  it("has examples", function()
    assert.is_true(#found >= 9)
  end)

  for _, example in ipairs(found) do
    it("says what the Lua from line " .. example.line .. " on prints", function()
      local library = example.code:match 'py%.import "(torch)"'
      if library and py.import("importlib.util").find_spec(library) == py.None then
        return pending(library .. " is not installed")
      end
      assert.are.equal(example.output, printed(example))
    end)
  end
end)
