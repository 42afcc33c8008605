-- What tostring shows.
local ffi = require "ffi"
local mf = require "moonferry"
local helper = require "helper"

describe("tostring", function()
  after_each(helper.nothing_left)

  it("describes and shows values, aligned", function()
    assert.are.equal("mf.tensor<int32[2,3] cpu>\n[[  1,  -2,   3],\n [400,   5,   6]]",
      tostring(mf.tensor({ { 1, -2, 3 }, { 400, 5, 6 } }, "int32")))
    assert.are.equal("mf.tensor<float32[3] cpu>\n[ 1., 0.5, nan]", tostring(mf.tensor({ 1, 0.5, 0 / 0 })))
    assert.are.equal("mf.tensor<float32[3] cpu>\n[ 1., -2., 1.5]", tostring(mf.tensor { 0.99999994, -2.0000002, 1.5 }))
    assert.are.equal("mf.tensor<float64[3] cpu>\n[  inf,  -inf, 1e+20]",
      tostring(mf.tensor({ 1 / 0, -1 / 0, 1e20 }, "float64")))
    assert.are.equal("mf.tensor<float64[3] cpu>\n[99999999.,     1e+08,        1.]",
      tostring(mf.tensor({ 99999999, 1e8, 1 }, "float64")))
    assert.are.equal("mf.tensor<bool[2] cpu>\n[ true, false]", tostring(mf.tensor({ true, false }, "bool")))
    assert.are.equal("mf.tensor<complex64[2] cpu>\n[1.+2.j, 0.-1.j]",
      tostring(mf.tensor({ mf.complex(1, 2), mf.complex(0, -1) }, "complex64")))
    assert.are.equal("mf.tensor<uint64[1] cpu>\n[18446744073709551615]",
      tostring(mf.tensor({ 0xffffffffffffffffULL }, "uint64")))
  end)

  it("shows every rank", function()
    assert.are.equal("mf.tensor<int8[] cpu>\n5", tostring(mf.tensor(5, "int8")))
    assert.are.equal("mf.tensor<int8[2,1,2] cpu>\n[[[1, 2]],\n\n [[3, 4]]]",
      tostring(mf.tensor({ { { 1, 2 } }, { { 3, 4 } } }, "int8")))
    assert.are.equal("mf.tensor<int8[0] cpu>\n[]", tostring(mf.zeros(0, "int8")))
  end)

  it("says what is particular", function()
    local t = mf.zeros({ 2, 2 }, "int8")
    assert.is_truthy(tostring(t:permute_dims()):find("strides=[1,2]", 1, true))
    assert.is_truthy(tostring(t:as_readonly()):find("cpu readonly>", 1, true))
  end)

  it("summarises large tensors", function()
    local t = mf.zeros(2000, "int16")
    for i = 0, 1999 do
      t:set(i, i)
    end
    assert.are.equal("mf.tensor<int16[2000] cpu>\n[   0,    1,    2, ..., 1997, 1998, 1999]", tostring(t))
    local text = tostring(mf.ones({ 100, 4, 100 }, "uint8"))
    assert.is_truthy(text:find("[1, 1, 1, ..., 1, 1, 1]", 1, true))
    assert.are.equal(6 * 4, select(2, text:gsub("1, 1, 1, %.%.%., 1, 1, 1", "")))
    local row = "[1, 1, 1, ..., 1, 1, 1]"
    assert.are.equal("mf.tensor<uint8[6,167] cpu>\n[" .. (row .. ",\n "):rep(5) .. row .. "]",
      tostring(mf.ones({ 6, 167 }, "uint8")))
    assert.are.equal("mf.tensor<uint8[7,143] cpu>\n[" .. (row .. ",\n "):rep(3) .. "...,\n " .. (row .. ",\n "):rep(2)
      .. row .. "]", tostring(mf.ones({ 7, 143 }, "uint8")))
    assert.are.equal("mf.tensor<uint8[1000] cpu>\n[" .. ("1, "):rep(999) .. "1]", tostring(mf.ones(1000, "uint8")))
  end)

  it("describes what cannot be read", function()
    assert.are.equal("mf.tensor<handle64[2] cpu>", tostring(mf.empty(2, "handle64")))
    assert.are.equal("mf.tensor<float32x4[1] cpu>", tostring(mf.empty(1, "float32x4")))
    local t = mf.wrap(ffi.new("float[1]"), 1)
    t:invalidate()
    assert.are.equal("mf.tensor<float32[1] cpu memory taken back>", tostring(t))
    local ring, fence, reached = mf.ring({ 1 }, "float32", 1), helper.fence()
    local slot = ring:begin()
    ring:done(fence, 2)
    assert.are.equal("mf.tensor<float32[1] cpu>", tostring(slot)) -- the fence cannot be waited for here
    reached[0] = 1
    assert.are.equal("mf.tensor<float32[1] cpu>\n[0.]", tostring(slot))
    ring:close()
  end)
end)
