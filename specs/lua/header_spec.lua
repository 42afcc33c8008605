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

  -- LuaJIT calls these finalizers and Moonferry's own in any order.
  it("closes a state whose finalizers close tensors and rings", function()
    local code = [[
      local mf, ffi = require "moonferry", require "ffi"
      closers, left = {}, 200
      for i = 1, left do
        local t, r = mf.full({ 1000 }, i), mf.ring({ 4 }, "float32", 2)
        closers[i] = ffi.gc(ffi.new "char[1]", function()
          t:close()
          r:close()
          left = left - 1
          if left == 0 then print "closed" io.flush() end
        end)
      end]]
    for _, before in ipairs { "", "require('moonferry.python').op.add(1, 1) " } do
      local status, text = process.shell(("%s/specs/lua_header '%s'"):format(os.getenv "MOONFERRY_BUILD",
        before:gsub("'", "\"") .. code))
      assert.are.same({ 0, "closed\n0\n" }, { status, text })
    end
  end)

  it("closes a state that has no Moonferry, or whose package.loaded is none", function()
    for _, code in ipairs { "print(1)", "print(1) package.loaded[\"moonferry.place\"] = 5",
      "print(1) package.loaded[\"moonferry.place\"] = setmetatable({}, { __index = error })" } do
      local status, text = process.shell(("%s/specs/lua_header '%s'"):format(os.getenv "MOONFERRY_BUILD", code))
      assert.are.same({ 0, "1\n0\n" }, { status, text })
    end
  end)
end)
