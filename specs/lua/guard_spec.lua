-- mf.guard: a tensor for code that is not trusted.
local helper = require "helper"
local mf = require "moonferry"
local refuses = helper.refuses

after_each(helper.nothing_left)

describe("a guarded tensor", function()
  it("reads and writes the tensor's elements, checked", function()
    local t = mf.zeros({ 2, 3 }, "float32")
    local g = mf.guard(t)
    assert.are.equal(g, g:put(1, 2, 7))
    assert.are.equal(7, t:get(1, 2))
    assert.are.equal(7, g:get(-1, -1))
    g:fill(4)
    assert.are.equal(4, t:get(0, 0))
    assert.are.same({ 2, 3 }, g.shape)
    assert.are.equal("float32", g.dtype)
    assert.are.equal(2, g.ndim)
    assert.are.equal("guarded tensor: 2 x 3, float32", tostring(g))
    for said, wrong in pairs {
      ["index 2 is out of range for axis 0 of extent 2"] = { 2, 0 },
      ["index 3 is out of range for axis 1 of extent 3"] = { 0, 3 },
      ["expected 2 coordinates, got 1"] = { 0 }, ["expected 2 coordinates, got 3"] = { 0, 0, 0 },
      ["coordinate 0: expected an integer, got 0.5"] = { 0.5, 0 },
      ['coordinate 0: expected an integer, got "a"'] = { "a", 0 },
    } do
      refuses("get: " .. said, function() g:get(unpack(wrong)) end)
    end
    for said, wrong in pairs {
      ["index 2 is out of range for axis 0 of extent 2"] = { 2, 0, 1 },
      ["index -4 is out of range for axis 1 of extent 3"] = { 0, -4, 1 },
      ["expected 2 coordinates and a value, got 2 arguments"] = { 0, 0 },
      ['dtype float32 expects a number, got "a"'] = { 0, 0, "a" },
      ["dtype float32 expects a number, got a table"] = { 0, 0, {} },
    } do
      refuses("put: " .. said, function() g:put(unpack(wrong)) end)
    end
    assert.are.same({ { 4, 4, 4 }, { 4, 4, 4 } }, t:tolist())
    t:close()
    refuses("get: tensor closed", function() g:get(0, 0) end)
    refuses("put: tensor closed", function() g:put(0, 0, 1) end)
  end)

  it("leads to nothing else", function()
    local t = mf.zeros({ 2 }, "float32")
    local g = mf.guard(t)
    for _, name in ipairs { "ptr", "handle", "rows", "view", "close", "_dl", "invalidate", 1 } do
      local shown = type(name) == "string" and '"' .. name .. '"' or name
      refuses("a guarded tensor has no " .. shown .. "; it has", function() return g[name] end)
    end
    assert.are.equal("guarded tensor", getmetatable(g))
    refuses("table expected, got userdata", function() setmetatable(g, {}) end)
    assert.has_error(function() g.get = 5 end,
      'a guarded tensor has no field "get" to write to: put(...) writes an element')
    g.shape[1] = 100
    assert.are.same({ 2 }, g.shape)
    assert.has_error(function() g.get(t, 0) end, "get: expected a guarded tensor, got a table")
    assert.has_error(function() g.get(newproxy(true), 0) end, "get: expected a guarded tensor, got a userdata")
    t:close()
  end)

  it("may be for reading alone", function()
    local t = mf.ones({ 2 }, "float32")
    local g = mf.guard(t, { readonly = true })
    assert.are.equal(1, g:get(1))
    assert.has_error(function() g:put(1, 5) end, "put: this guarded tensor is for reading alone")
    assert.has_error(function() g:fill(5) end, "fill: this guarded tensor is for reading alone")
    assert.are.equal(1, t:get(1))
    t:close()
  end)

  it("is of a tensor", function()
    local said = "guard: t: expected a tensor, got a table; mf.tensor makes one of a table"
    assert.has_error(function() mf.guard {} end, said)
  end)
end)
