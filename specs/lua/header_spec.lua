-- moonferry_lua.h: tensors between a program in C and the Lua state that it embeds.
local process = require "process"

local PROGRAM = os.getenv "MOONFERRY_BUILD" .. "/specs/lua_header"

describe("moonferry_lua.h", function()
  it("hands tensors over and takes them, and refuses what is none", function()
    local status, text = process.shell(PROGRAM)
    local refused = "error: bad argument #1 to 'sum' (an open Moonferry tensor is expected)\n"
    assert.are.equal("5\t15\t9\t6\n6\n" .. refused:rep(3) .. "1 2 2 0\n1 0\n",
      (text:gsub("error: %[string[^\n]*%]:1: ", "error: ")))
    assert.are.equal(0, status)
  end)

  it("gives back what Lua had no memory to finalize", function()
    local code = [[local mf = require "moonferry" collectgarbage "stop" for i = 1, 9 do mf.zeros(3) end]]
    local status, text = process.shell(("%s '%s' poor"):format(PROGRAM, code))
    assert.are.same({ 0, "9\n0\n0\n" }, { status, text })
  end)

  it("closes a state that has no Moonferry, or whose package.loaded is none", function()
    for _, code in ipairs { "print(1)", "print(1) package.loaded[\"moonferry.finalizer\"] = 5",
      "print(1) package.loaded[\"moonferry.finalizer\"] = setmetatable({}, { __index = error })" } do
      local status, text = process.shell(("%s '%s'"):format(PROGRAM, code))
      assert.are.same({ 0, "1\n0\n" }, { status, text })
    end
  end)
end)
