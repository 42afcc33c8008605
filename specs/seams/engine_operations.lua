-- The operations that are for engines: rings, fields, guarded tensors, copies in parts, scopes with Python in them;
-- each a function that gives the same each time. Called with what operations.lua shares, into whose table it enters
-- them. Must not know which event strikes, nor where.
local shared = ...
local ffi = require "ffi"
local mf = require "moonferry"
local py = require "moonferry.python"
local bench = py.import "bench"
local op, plain, reach, tensor, ok = shared.op, shared.plain, shared.reach, shared.tensor, shared.ok

-- A tensor to a file in NumPy's format, and what `then_do` gives for the path.
local function saved(then_do)
  local path = os.tmpname()
  local done, message = mf.save(path, tensor())
  local given, why
  if ok(done, message) then
    given, why = then_do(path)
  end
  os.remove(path)
  return ok(given, why)
end
op["mf.save"] = function() return saved(function() return true end) end
op["mf.load"] = function() return plain(saved(mf.load)) end
op["t:contiguous"] = function() return plain(ok(tensor():permute_dims(1, 0):contiguous())) end
op["t:item"] = function() return ok(ok(tensor():view({ 0, 1 }, { 0, 1 })):item()) end
op["t:copy-progress"] = function()
  local n, on, told = 17 * 2 ^ 20, { device = tensor().device }, {} -- bytes, which are two parts
  local a, zeros = ok(mf.empty(n, "uint8", on)), ok(mf.zeros(n, "uint8", on))
  ok(a:copy(zeros, function(done)
    reach()
    told[#told + 1] = tostring(done)
  end))
  told[#told + 1] = plain(ok(a:view { n - 1, n }))
  a:close()
  zeros:close()
  return table.concat(told, ",")
end
op["mf.ring"] = function()
  local ring = ok(mf.ring({ 2, 2 }, "float32", 2))
  local slot = ok(ring:begin(0))
  slot:fill(3)
  reach()
  ok(ring:publish())
  local text = plain(ok(ring:latest()))
  ring:close()
  return text
end
op["mf.ring_from_handle"] = function()
  local ring = ok(mf.ring({ 3 }, "int8", 2))
  local other = mf.ring_from_handle(ring.handle)
  ring:close()
  local text = plain(other.slots[2])
  other:close()
  return text
end
op["mf.fields"] = function()
  local memory = ffi.new("uint8_t[48]")
  local fields = ok(mf.fields(memory, 4, { { "at", "float32", 2 }, { "color", "uint8", 4 } }, { owner = memory }))
  fields.at:fill(2)
  return plain(fields.at) .. plain(fields.color)
end
op["mf.guard"] = function()
  local made = ok(mf.zeros({ 2, 2 }))
  local guarded = mf.guard(made)
  guarded:put(0, 1, 4)
  return guarded:get(0, 1) + guarded:get(1, 1)
end
op["py.scope"] = function()
  return py.scope(function()
    local items = bench.Items(1)
    reach()
    return #items(plain(tensor()))
  end)
end
