-- The key specs again where LuaJIT works differently: interpreted only, and compiling almost at once; and
-- the main things without busted.
local helper = require "helper"

local KEY = { "create", "view", "element", "bulk", "exchange", "scope", "format" }
local MODES = { "-joff", "-Ohotloop=2 -Ohotexit=1" }

local function busted(name, options)
  local program = ([[
    arg = { [0] = "busted", "--ignore-lua", "-o", "TAP", "specs/lua/%s_spec.lua" }
    require "busted.runner" { standalone = false }
  ]]):format(name)
  return helper.luajit(program, options)
end

for _, options in ipairs(MODES) do
  describe("luajit " .. options, function()
    for _, name in ipairs(KEY) do
      it("passes " .. name .. "_spec", function()
        local output, code = busted(name, options)
        assert.is_nil(output:match("not ok[^\n]*"), output)
        assert.is_truthy(output:match("1%.%.%d+"), output)
        assert.are.equal(0, code, output)
      end)
    end
  end)
end

describe("luajit without busted", function()
  for _, options in ipairs { "", "-joff", "-Ohotloop=2" } do
    it(("runs the main things %s"):format(options), function()
      local output, code = helper.luajit('dofile "specs/lua/plain.lua"', options)
      assert.are.equal("plain: all is well\n", output)
      assert.are.equal(0, code)
    end)
  end
end)
