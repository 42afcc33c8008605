-- moonferry_lua.h: tensors between a program in C and the Lua state that it embeds.
local process = require "process"

describe("moonferry_lua.h", function()
  it("hands tensors over and takes them, and refuses what is none", function()
    local build = os.getenv "MOONFERRY_BUILD"
    local status, text = process.shell(build .. "/specs/lua_header")
    local refused = "error: bad argument #1 to 'sum' (an open Moonferry tensor is expected)\n"
    assert.are.equal("5\t15\t9\t6\n6\n" .. refused:rep(3) .. "1 2 2 0\n1 0\n",
      (text:gsub("error: %[string[^\n]*%]:1: ", "error: ")))
    assert.are.equal(0, status)
  end)
end)
