-- What somebody types who comes from another library or counts from 1, and what must be said: the thing, the value and
-- what to write instead. Nothing of it may go on in silence.
local ffi = require "ffi"
local mf = require "moonferry"
local helper = require "helper"

-- Each case: what is typed, then the texts that the one error must contain. `t` is int32, 2 x 3.
local ASSIGNMENTS = {
  { "t[0] = 7", "t:put", "t:set", "got [0]" },
  { "t[{ 0, 1 }] = 7", "t:put" },
  { "t.shape = { 6 }", "shape cannot be set", "t:reshape" },
  { "t.strides = { 1 }", "strides cannot be set", "t:permute" },
  { "t.dtype = 'int8'", "dtype cannot be set", "t:cast" },
  { "t.device = 'cuda:0'", "device cannot be set", "t:to" },
  { "t.readonly = true", "readonly cannot be set", "t:as_readonly" },
  { "t.numel = 99", "numel cannot be set" },
  { "t.get = print", "get is a method" },
  { "t.label = 'mask'", "no field \"label\"" },
}

local READS = {
  { "return t[0]", "not indexed with []", "t:get", "got [0]" },
  { "return t[1][2]", "not indexed with []", "got [1]" },
  { "return t[{ 0, 1 }]", "not indexed with []", "a table" },
  { "return t.size", "no field \"size\"", "t.numel" },
  { "return t.T", "no field \"T\"", "t:permute()" },
  { "return t.length", "no field \"length\"", "t.numel" },
  { "return t:astype 'int8'", "no field \"astype\"", "t:cast" },
  { "return t:tolist()", "no field \"tolist\"", "t:totable" },
  { "return t:item()", "no field \"item\"", "t:get" },
  { "return t:clone()", "no field \"clone\"", "t:copy" },
  { "return t:numpy()", "no field \"numpy\"", "moonferry.python" },
  { "return t:cpu()", "no field \"cpu\"", "t:to \"cpu\"" },
  { "return t.shap", "no field \"shap\"", "t.shape" },
  { "return t:reshap(6)", "no field \"reshap\"", "t:reshape" },
  { "return t:bradcast(6)", "no field \"bradcast\"", "t:broadcast" },
  { "return t.wholly_unlike", "no field \"wholly_unlike\"" },
}

local function run(typed)
  local chunk = assert(loadstring(typed, "=specs/lua/mistakes_spec.lua"))
  local t = mf.tensor({ { 1, 2, 3 }, { 4, 5, 6 } }, "int32")
  local before = tostring(t)
  setfenv(chunk, setmetatable({ mf = mf, ffi = ffi, t = t }, { __index = _G }))
  local ok, message = pcall(chunk)
  assert.are.equal(before, tostring(t), "the tensor has changed")
  t:close()
  return ok, message
end

local function each_is_refused(cases)
  for _, case in ipairs(cases) do
    it(("names what is wrong with `%s`"):format(case[1]), function()
      local ok, message = run(case[1])
      assert.is_false(ok, "no error")
      assert.is_truthy(message:match("^specs/lua/mistakes_spec.lua:1: "), message)
      for i = 2, #case do
        assert.is_truthy(message:find(case[i], 1, true), ("%q does not contain %q"):format(message, case[i]))
      end
    end)
  end
end

describe("assignment to a tensor", function()
  after_each(helper.nothing_left)
  each_is_refused(ASSIGNMENTS)
end)

describe("reading what a tensor does not have", function()
  after_each(helper.nothing_left)
  each_is_refused(READS)

  it("suggests nothing where nothing is near", function()
    local _, message = run "return t.wholly_unlike"
    assert.is_nil(message:find("t.", 1, true) or message:find("t:", 1, true), message)
  end)

  it("is told by #, pairs and ipairs where this LuaJIT asks", function()
    local t = mf.zeros({ 2, 3 })
    local meta = getmetatable(t)
    helper.refuses("t.numel", meta.__len, t)
    helper.refuses("t:rows()", meta.__pairs, t)
    helper.refuses("t:rows()", meta.__ipairs, t)
  end)
end)
