-- An error that may come between any two instructions, as that of a debug hook which ends a script does, is not taken
-- for an answer: it comes out of the call, or the call gives what it always gives.
local ffi = require "ffi"
local mf = require "moonferry"
local helper = require "helper"
local struck = require "struck"

local refused = struck.refused

local floats = ffi.new("float[6]", 1, 2, 3, 4, 5, 6)

local function of(t)
  local values = t:tolist()
  return { values, tostring(t.dtype), t.readonly, t.device, t.shape }
end

local t, u -- of each spec
local CALLS = {
  wrap = function() return of(mf.wrap(floats, { 2, 3 }, "float32")) end,
  ["wrap of what may not be written"] = function()
    return of(mf.wrap(ffi.cast("const float *", floats), { 2, 3 }, "float32", { owner = floats }))
  end,
  ["wrap of what is no pointer"] = function() return refused(mf.wrap, {}, { 2 }, "float32") end,
  fields = function()
    return of(mf.fields(ffi.cast("void *", floats), 2, { { "a", "float32" } }, { stride = 12 }).a)
  end,
  ["fields of what is none"] = function()
    return refused(mf.fields, ffi.cast("void *", 16), 2, { { "a", "float32" } })
  end,
  tensor = function() return of(mf.tensor({ { 1, 2 }, { 3, 4 } }, "int16")) end,
  ["tensor of what is none"] = function() return refused(mf.tensor, { { 1 }, { 2, 3 } }) end,
  full = function() return of(mf.full({ 2 }, 3, "float64")) end,
  ["full of what does not fit"] = function() return refused(mf.full, { 2 }, 300, "int8") end,
  zeros = function() return of(mf.zeros({ 2, 2 }, "float64")) end,
  astype = function() return of(t:astype "int8") end,
  copy = function() return of(t:copy()) end,
  ["copy into"] = function() u:copy(t) return of(u) end,
  view = function() return of(t:view(1)) end,
  permute_dims = function() return of(t:permute_dims()) end,
  put = function() u:put(1, 1, 9) return of(u) end,
  get = function() return t:get(1, 0) end,
  text = function() return tostring(t) end,
  ["a scope"] = function() return mf.scope(function() return mf.zeros(2):get(1) end) end,
  ring = function()
    local r = mf.ring({ 2 }, "float32", 2)
    local slot = of((r:begin()))
    r:done()
    r:close()
    return slot
  end,
}

describe("an error between any two instructions", function()
  setup(jit.off)
  teardown(jit.on)

  before_each(function()
    t, u = mf.tensor { { 1, 2 }, { 3, 4 } }, mf.zeros { 2, 2 }
  end)

  after_each(function()
    t, u = nil, nil
    helper.nothing_left()
  end)

  struck.specify(it, CALLS)
end)
