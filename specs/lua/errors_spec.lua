-- Where an error points, and a campaign of bad arguments against every public function.
local ffi = require "ffi"
local mf = require "moonferry"
local helper = require "helper"

local HERE = "specs/lua/errors_spec.lua"

describe("misuse", function()
  after_each(helper.nothing_left)

  local function line_of(fn)
    local ok, message = pcall(fn)
    assert.is_false(ok)
    return tonumber(message:match(HERE .. ":(%d+): "))
  end

  it("is reported at the caller's line, however deep it is found", function()
    local t = mf.zeros({ 2, 2 })
    local first = debug.getinfo(1, "l").currentline
    assert.are.equal(first + 1, line_of(function() t:get(9, 9) end))
    assert.are.equal(first + 2, line_of(function() mf.full(2, 0.5, "int8") end))
    assert.are.equal(first + 3, line_of(function() mf.tensor({ { 1 }, { 1, 2 } }) end))
    assert.are.equal(first + 4, line_of(function() t:view({ 1, "x" }) end))
    assert.are.equal(first + 5, line_of(function() t:copy(mf.zeros(9)) end))
    assert.are.equal(first + 6, line_of(function() mf.empty(2, "nonsense") end))
    assert.are.equal(first + 7, line_of(function() t:reshape(7) end))
    assert.are.equal(first + 8, line_of(function() mf.wrap(5, 1) end))
    assert.are.equal(first + 9, line_of(function() mf.scope(5) end))
  end)
end)

-- Everything that Lua can pass and a careless program might.
local function bad_values()
  local closed = mf.zeros(1)
  closed:close()
  return {
    true, false, "", "float32", ("x"):rep(5000), "a\0b", 0.5, 0 / 0, 1 / 0, -1 / 0, -1, 2 ^ 31, 2 ^ 53, 2 ^ 60, -2 ^ 63,
    1e308, 5LL, -1LL, 0xffffffffffffffffULL, {}, { 1, 2, 3 }, { -1 }, { 0 / 0 }, { {} }, { "x" }, { x = 1 }, type,
    coroutine.create(type), io.stdout, ffi.new("float[4]"), ffi.new("void *"), ffi.new("mf_tensor *"),
    ffi.new("DLManagedTensor *"), ffi.new("complex", 1, 2), ffi.typeof("int"), mf, mf.all, mf.newaxis, mf.ellipsis,
    mf.zeros({ 2, 3 }), closed,
  }
end

-- Good arguments; each is replaced by each bad value in turn. Functions that take over C pointers are left
-- out where a bad value could be a good pointer.
local FUNCTIONS = {
  empty = { { 2, 3 }, "float32", {} }, zeros = { { 2, 3 }, "int8", {} }, ones = { 2, "bool", {} },
  full = { { 2 }, 1, "float32", {} }, tensor = { { 1, 2 }, "float32" },
  wrap = { ffi.new("float[8]"), { 2 }, "float32", {} },
  from_dlpack = { false }, from_handle = { false }, scope = { function() end }, is_tensor = { 1 },
}
local OTHER = {} -- stands for another tensor of 2 x 3
local METHODS = {
  view = { 0, { 0, 1 }, mf.all }, permute_dims = { 0, 1 }, reshape = { 3, 2 }, broadcast_to = { { 2, 3 } },
  squeeze = { 0 }, expand_dims = { 0 }, diagonal = { 0, 0, 1 }, reinterpret = { "int32" }, as_readonly = {},
  get = { 0, 0 }, put = { 0, 0, 1 }, contiguous = {},
  fill = { 1 }, copy = { OTHER }, astype = { "int8" }, equal = { OTHER }, tolist = {}, ptr = {},
  rows = {}, invalidate = {}, to_dlpack = {}, to_dlpack_legacy = {}, close = {},
}

local function dispose(result)
  if type(result) == "cdata" and pcall(function() return result.deleter end) then
    result.deleter(result)
  end
end

-- Returns a complaint, or nil if the call went well or failed as it should.
local function judge(name, ok, result, message, code)
  if not ok then
    if type(result) ~= "string" or not result:match("^" .. HERE .. ":%d+: ") then
      return name .. " raised " .. tostring(result)
    end
  elseif result == nil and code ~= nil and type(message) ~= "string" then
    return name .. " gave a code without a message"
  end
  dispose(result)
end

local function campaign(name, arguments, call)
  local complaints = {}
  for position = 0, #arguments do
    for number, bad in ipairs(bad_values()) do
      local list = { unpack(arguments) }
      list[position] = bad
      local label = ("%s, argument %d, value %d"):format(name, position, number)
      complaints[#complaints + 1] = judge(label, pcall(call, position, bad, list))
    end
    local list = { unpack(arguments) }
    list[position] = nil
    complaints[#complaints + 1] = judge(name .. ", argument missing", pcall(call, position, nil, list))
  end
  assert.are.same({}, complaints)
end

describe("bad arguments", function()
  after_each(helper.nothing_left)

  for name, arguments in pairs(FUNCTIONS) do
    it("do not break mf." .. name, function()
      campaign(name, arguments, function(position, _, list)
        if position == 0 then
          return nil
        end
        local a, b, c = mf[name](unpack(list, 1, #arguments))
        return a, b, c
      end)
    end)
  end

  for name, arguments in pairs(METHODS) do
    it("do not break t:" .. name, function()
      local method = mf.zeros(1)[name]
      campaign(name, arguments, function(position, bad, list)
        local t = mf.full({ 2, 3 }, 5)
        local receiver = t
        if position == 0 then
          receiver = bad
        end
        list[1] = list[1] == OTHER and mf.zeros({ 2, 3 }) or list[1]
        local a, b, c = method(receiver, unpack(list, 1, #arguments))
        return a, b, c
      end)
    end)
  end
end)
