-- NULL where the C API needs a pointer: MF_EINVAL and the argument's name, for each argument of each public function.
-- What the functions are is read from cdef.lua, which is made of the header, so that a new one is asked, too.
local ffi = require "ffi"
local helper = require "helper"

local C = helper.C

-- Where NULL means something, which the header says of each.
local optional = {
  ["mf_tensor_wrap.release"] = true, ["mf_tensor_wrap.ctx"] = true, ["mf_tensor_invalidate.in_use"] = true,
  ["mf_tensor_fence.fence"] = true, ["mf_ring_end.fence"] = true, ["mf_ring_latest.fresh"] = true,
  ["mf_stream_swap.old"] = true, ["mf_gl_buffer_unmap.in_use"] = true, ["mf_gl_buffer_close.b"] = true,
  ["mf_gl_texture_close.texture"] = true,
  ["mf_guest_finish.late"] = true, ["mf_guest_set.guest"] = true, ["mf_allocator_set.fn"] = true,
  ["mf_allocator_set.ctx"] = true, ["mf_device_of_pointer.ptr"] = true,
}
-- Looked at behind the tensor, or the ring, because what they must be depends on it.
local behind = {
  ["mf_tensor_index.items"] = true, ["mf_tensor_permute_dims.axes"] = true, ["mf_tensor_squeeze.axes"] = true,
  ["mf_tensor_reshape.shape"] = true, ["mf_tensor_broadcast_to.shape"] = true, ["mf_tensor_get.coords"] = true,
  ["mf_tensor_put.coords"] = true, ["mf_ring_fence.fence"] = true,
}

local function split(parameter)
  local array, at = parameter:match "^(.-)(%w+)%[%d*%]$"
  if array then return array .. "*", at end
  return parameter:match "^(.-)([%w_]+)$"
end

--- Each function of the header: name -> result type and parameters.
local function functions()
  local all, count = {}, 0
  local file = assert(io.open "lua/moonferry/cdef.lua")
  local text = file:read("*a"):gsub("%s+", " ")
  file:close()
  for before, name, list in text:gmatch "([%w_ %*]-)(mf_[%w_]+)%(([^()]*)%);" do
    local parameters = {}
    for parameter in list:gmatch "[^,]+" do
      local kind, called = split(parameter:match "^%s*(.-)%s*$")
      if called ~= "void" then parameters[#parameters + 1] = { kind = kind, name = called } end
    end
    all[name] = { result = before:match "^%s*(.-)%s*$", parameters = parameters }
    count = count + 1
  end
  return all, count
end

local memory = ffi.new("int64_t[?]", 512) -- where what points somewhere points to: never looked at
local function is_pointer(parameter)
  return parameter.kind:find("*", 1, true) ~= nil or parameter.name == "release" or parameter.name == "fn"
end

local function is_needed(name, parameter)
  local key = name .. "." .. parameter.name
  return is_pointer(parameter) and parameter.name ~= "err" and not optional[key] and not behind[key]
end

--- Calls ${name} with NULL for the parameter ${missing}, or for each if that is nil.
local function call(name, of, missing, err)
  local values, n = {}, #of.parameters
  ffi.fill(memory, ffi.sizeof(memory), 0x55)
  for i, parameter in ipairs(of.parameters) do
    if not is_pointer(parameter) then
      values[i] = 0
    elseif parameter.name == "err" then
      values[i] = err
    elseif parameter ~= missing and missing ~= nil then
      values[i] = ffi.cast(parameter.kind, memory)
    end
  end
  return C[name](unpack(values, 1, n))
end

describe("NULL", function()
  local all, count = functions()

  it("is looked for in every function of the header", function()
    local named = 0
    for line in io.lines "runtime/include/moonferry.h" do
      local name = line:match "^MF_API .-(mf_[%w_]+)%("
      if name then
        assert.is_truthy(all[name], name)
        named = named + 1
      end
    end
    assert.are.equal(named, count)
    assert.is_true(named > 90)
  end)

  it("is MF_EINVAL, and the argument is named, where a pointer is needed", function()
    local err, asked = ffi.new "mf_error", 0
    for name, of in pairs(all) do
      for _, parameter in ipairs(of.parameters) do
        if of.result == "int" and is_needed(name, parameter) then
          err.status = 0
          assert.are.equal(C.MF_EINVAL, call(name, of, parameter, err), name .. ": " .. parameter.name)
          local says = ffi.string(err.message)
          assert.is_truthy(says:find("^" .. parameter.name .. " is NULL; .+ expected$"), name .. ": " .. says)
          assert.are.equal(name, ffi.string(err.call))
          assert.are.equal(C.MF_EINVAL, call(name, of, parameter, nil))
          asked = asked + 1
        end
      end
    end
    assert.is_true(asked > 100, asked .. " arguments")
  end)

  it("leaves NULL in the place for an object", function()
    local err = ffi.new "mf_error"
    for name, of in pairs(all) do
      local place
      for _, parameter in ipairs(of.parameters) do
        place = place or (parameter.kind:find "^[%w_]+ %*%*$" and parameter)
      end
      for _, parameter in ipairs(of.parameters) do
        if place and parameter ~= place and is_needed(name, parameter) then
          call(name, of, parameter, err)
          assert.is_true(memory[0] == 0, name .. ": " .. parameter.name)
        end
      end
    end
  end)

  it("is nothing, or 0, where there is no status", function()
    for name, of in pairs(all) do
      local takes = false
      for _, parameter in ipairs(of.parameters) do takes = takes or is_needed(name, parameter) end
      if takes and of.result ~= "int" and name ~= "mf_tensor_release_later" then
        local got = call(name, of, nil, nil)
        assert.is_true(got == nil or got == 0, name .. " gave " .. tostring(got))
      end
    end
    assert.is_true(C.mf_tensor_release_later(nil) >= 0)
  end)

  it("is refused with a count that is not 0, and allowed with one that is", function()
    local err, out = ffi.new "mf_error", ffi.new "mf_tensor *[1]"
    local like = ffi.new "DLTensor"
    local shape, value = ffi.new("int64_t[2]", 2, 3), ffi.new "mf_scalar"
    like.ndim, like.shape, like.dtype.code, like.dtype.bits, like.dtype.lanes = 2, shape, 2, 32, 1
    assert.are.equal(0, C.mf_tensor_create(like, 0, out, err))
    local t, scalar = out[0], ffi.new "mf_tensor *[1]"
    local function refused(name, status)
      assert.are.equal(C.MF_EINVAL, status)
      assert.are.equal(name, (ffi.string(err.message):match "^(%w+) is NULL, with n%w+ 2$"), ffi.string(err.message))
      assert.is_true(out[0] == nil)
    end
    refused("items", C.mf_tensor_index(t, nil, 2, out, err))
    refused("axes", C.mf_tensor_permute_dims(t, nil, 2, out, err))
    refused("axes", C.mf_tensor_squeeze(t, nil, 2, out, err))
    refused("shape", C.mf_tensor_reshape(t, nil, 2, out, err))
    refused("shape", C.mf_tensor_broadcast_to(t, nil, 2, out, err))
    refused("coords", C.mf_tensor_get(t, nil, 2, value, err))
    refused("coords", C.mf_tensor_put(t, nil, 2, value, err))
    like.ndim, like.shape = 0, nil
    assert.are.equal(0, C.mf_tensor_create(like, 0, scalar, err))
    value.kind, value.f = 3, 7
    assert.are.equal(0, C.mf_tensor_put(scalar[0], nil, 0, value, err))
    assert.are.equal(0, C.mf_tensor_get(scalar[0], nil, 0, value, err))
    assert.are.equal(7, value.f)
    assert.are.equal(0, C.mf_tensor_index(t, nil, 0, out, err))
    for _, made in ipairs { t, scalar[0], out[0] } do C.mf_tensor_release(made) end
    helper.nothing_left()
  end)

  it("is a fence that none of a ring's functions but mf_ring_end takes", function()
    local ring = require("moonferry").ring({ 4 }, "uint8", 2)
    local err, slot, fence = ffi.new "mf_error", ffi.new "int32_t[1]", nil
    assert.are.equal(0, C.mf_ring_begin(ring.handle, 0, slot, err))
    assert.are.equal(0, C.mf_ring_publish(ring.handle, err))
    assert.are.equal(0, C.mf_ring_latest(ring.handle, slot, nil, err))
    assert.are.equal(C.MF_EINVAL, C.mf_ring_fence(ring.handle, fence, 1, err))
    assert.are.equal("fence is NULL; a fence expected", ffi.string(err.message))
    ring:close()
    helper.nothing_left()
  end)
end)
