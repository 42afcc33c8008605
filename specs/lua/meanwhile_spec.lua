-- Calls of this library that come while another one is under way in the same state: from a finalizer, which LuaJIT
-- calls wherever compiled code is left, or from a debug hook. Neither changes what the other one does. And a collection
-- that comes there: it takes nothing away that a call still needs.
local ffi = require "ffi"
local collecting = require "collecting"
local helper = require "helper"
local mf = require "moonferry"

-- One instruction in so many, and of a long function so many in all, fewer where AddressSanitizer makes each slow;
-- others with each seed.
local EVERY = os.getenv "MOONFERRY_SPEC_EVERY"
local SLOW = os.getenv "ASAN_OPTIONS" or os.getenv "MOONFERRY_SPEC_EMULATED"
local STRIDE, PLACES = EVERY and 1 or SLOW and 7 or 3, EVERY and math.huge or SLOW and 400 or 1000
local SEED = tonumber(os.getenv "MOONFERRY_SPEC_SEED") or 0

-- What the calls say of what is wrong.
local function said(...)
  local texts = {}
  for i, call in ipairs { ... } do
    local ok, result, message = pcall(call[1], unpack(call, 2, table.maxn(call)))
    texts[i] = ok and tostring(message) or result
  end
  return table.concat(texts, "\n")
end

local function described(t)
  local first = t:get(unpack({ 0, 0, 0, 0 }, 1, t.ndim))
  local text = ("%s %s %s %s"):format(table.concat(t.shape, ","), t.dtype, t.device, tostring(first))
  t:close()
  return text
end

-- Calls of each kind, with what each gives as text; `n` makes them differ.
local CALLS = {
  full = function(n)
    return described(mf.full({ n + 1, 2 }, n, "int32", { device = "cpu", padded = false }))
  end,
  tensor = function(n)
    return described(mf.tensor({ { n, n + 1 }, { 2, 3 } }, "int16"))
  end,
  wrap = function(n)
    return described(mf.wrap(ffi.new("double[6]", n, 1, 2, 3, 4, 5), { 3, 2 }, "float64", { strides = { 1, 3 } }))
  end,
  view = function(n)
    local t = mf.full({ 3, n + 2 }, n, "float64")
    local text = described(t:view({ 0, 2 }, n)) .. described(t:permute_dims(1, 0)) .. described(t:reshape(-1))
    return text .. described(t:broadcast_to { 2, 3, n + 2 }) .. described(t)
  end,
  cast = function(n)
    local t = mf.full({ n + 1 }, n, n % 2 == 0 and "uint8" or "int64")
    local text = described(t:astype(n % 2 == 0 and "float32" or "float64"))
    return text .. described(t:copy()) .. described(t:to("cpu", { copy = true })) .. described(t)
  end,
  equal = function(n)
    local a, b = mf.full({ 2 }, 1, "int8"), mf.full({ 2 }, n % 2, "int8")
    local equal = a:equal(b)
    a:close()
    b:close()
    return tostring(equal)
  end,
  elements = function(n)
    local text = ""
    for _, dtype in ipairs { "int64", "uint64", "complex128", "float16", "bool", "int4", "float32" } do
      local t = mf.zeros({ 1, 2, 1, n + 1 }, dtype)
      t:put(0, 1, 0, n, 1)
      local last = mf.full({}, 1, dtype)
      text = ("%s %s %s"):format(text, tostring(t:get(0, 1, 0, n)), tostring(last:item()))
      last:close()
      t:close()
    end
    return text
  end,
  export = function(n)
    local t = mf.full({ n + 1 }, n, "float32")
    local text = described(mf.from_dlpack(t:to_dlpack())) .. described(mf.from_dlpack(t:to_dlpack_legacy()))
    return text .. described(t)
  end,
  invalidate = function(n)
    local t = mf.wrap(ffi.new("float[8]"), { n + 1 }, "float32")
    local view = n % 2 == 0 and t:view(0)
    local in_use = t:invalidate()
    t:close()
    if view then
      view:close()
    end
    return tostring(in_use)
  end,
  misuse = function(n)
    local t, other, far = mf.full({ n + 1, 2 }, 1, "int8"), mf.zeros({ n + 7 }, "int8"), mf.zeros({ 1, 1, 1, n })
    local locked = t:as_readonly()
    local text = said({ mf.zeros, n, "nonsense" .. n }, { mf.zeros, n, "int8", { device = "nowhere:" .. n } },
      { t.reshape, t, n + 9 }, { t.copy, t, other }, { far.get, far, 0, 0, 0, n + 5 },
      { far.put, far, 0, 0, 0, n + 5, 1 }, { locked.fill, locked, n }, { t.invalidate, t },
      { t.broadcast_to, t, { n + 3 } }, { t.reinterpret, t, "uint4x" .. n })
    for _, each in ipairs { t, other, far, locked } do
      each:close()
    end
    return text
  end,
  refusal = function(n)
    local t = mf.zeros({ n }, "int8")
    local gpu = n % 2 == 0 and "cuda:" .. n or "rocm:" .. n
    local text = said({ mf.zeros, n, "int8", { device = gpu } }, { t.to, t, gpu }, { mf.pool_stats, gpu },
      { mf.trim, gpu }, { mf.synchronize, gpu }, { mf.pool_limit, gpu, n }, { mf.stream, gpu },
      { mf.current_stream, gpu }, { mf.default_stream, gpu }, { t.to_dlpack, t, { device = gpu } })
    t:close()
    return text
  end,
  device = function(n)
    local _, message = mf.device_count(n % 2 == 0 and "cpu" or "vulkan")
    return tostring(mf.device_count "cpu") .. tostring(message) .. tostring(mf.stream_none())
  end,
}

-- What `call(n)` gives, and how many instructions it takes, if `meanwhile` runs after `at` of them (if at all).
local function with_a_call_inside(call, n, at, meanwhile)
  local count = 0
  debug.sethook(function()
    count = count + 1
    if count == at then
      debug.sethook()
      meanwhile()
      debug.sethook(function()
        count = count + 1
      end, "", 1)
    end
  end, "", 1)
  local ok, text = pcall(call, n)
  debug.sethook()
  assert.is_true(ok, text)
  return text, count
end

-- What call(1) gives, and at which stride its instructions are tried. What was compiled before is forgotten: a loop of
-- it would be no instruction in one run and thousands in another.
local function interpreted(call)
  jit.flush()
  local expected = call(1)
  local _, count = with_a_call_inside(call, 1)
  return expected, math.max(STRIDE, math.ceil(count / PLACES))
end

-- Prints what another shape, dtype or error than the wanted one came out as.
local FINALIZERS = [[
local mf = require "moonferry"
local unwanted, count = newproxy(true), 0
getmetatable(unwanted).__gc = function()
  count = count + 1
  local t = mf.full({ 7, 7, 7 }, 3, "int8")
  t:view({ 0, 1, 1 }, 1, mf.all):close()
  t:permute_dims(2, 0, 1):close()
  mf.tensor({ 5, 5, 5, 5, 5 }, "int16"):close()
  pcall(t.reshape, t, 5)
  t:close()
end
local base = mf.zeros({ 4, 5, 6 }, "float64")
local function check(wanted, make, ...)
  newproxy(unwanted)
  local ok, t = pcall(make, ...)
  local got = ok and table.concat(t.shape, ",") .. " " .. t.dtype or t:match("permute_dims: .*") or t
  if got ~= wanted then print(wanted .. " was wanted: " .. got) end
end
for i = 1, 3000 do
  check("2,3 float32", mf.zeros, { 2, 3 }, "float32", { device = "cpu" })
  check("2,3 int64", mf.full, { 2, 3 }, i, "int64")
  check("2,5,3 float64", base.view, base, { 1, 3 }, mf.all, { 0, 6, 2 })
  check("5,6,4 float64", base.permute_dims, base, 1, 2, 0)
  check("10,12 float64", base.reshape, base, 10, 12)
  check("2,4,5,6 float64", base.broadcast_to, base, { 2, 4, 5, 6 })
  check("2,2 int32", mf.tensor, { { 1, 2 }, { 3, 4 } }, "int32")
  check("4,5,6 float32", base.astype, base, "float32")
  check("permute_dims: axis is " .. i + 3 .. "; -3 to 2 expected", base.permute_dims, base, 0, i + 3, 1)
end
print(count > 10000 and "done" or count)
]]

-- Tables of options of many kinds, compiled anew in each turn, half of them in finalizers.
local OPTIONS = [[
local mf = require "moonferry"
local function once(opts) mf.zeros({ 1 }, "int8", opts):close() end
local unwanted = newproxy(true)
getmetatable(unwanted).__gc = function()
  for _ = 1, 10 do
    once {}
    once { device = "cpu" }
    once { padded = true, device = "cpu" }
  end
end
for _ = 1, 40 do
  jit.flush()
  for _ = 1, 1000 do
    newproxy(unwanted)
    once { device = "cpu" }
  end
end
print "done"
]]

describe("a call of the library that comes inside of another one", function()
  after_each(helper.nothing_left)

  local names = {}
  for name in pairs(CALLS) do
    names[#names + 1] = name
  end
  table.sort(names)

  for _, name in ipairs(names) do
    it("changes nothing, whichever instruction of " .. name .. " it comes after", function()
      local wanted, inside = {}, {}
      for _, other in ipairs(names) do
        wanted[other] = CALLS[other](4)
      end
      local function meanwhile()
        for _, other in ipairs(names) do
          inside[other] = CALLS[other](4)
        end
      end
      jit.off()
      finally(jit.on)
      local expected, stride = interpreted(CALLS[name])
      local at, count = 1 + SEED % stride - stride
      repeat
        at = at + stride
        local text
        text, count = with_a_call_inside(CALLS[name], 1, at, meanwhile)
        assert.are.equal(expected, text)
        if at <= count then
          assert.are.same(wanted, inside)
        end
      until at > count
      assert.is_true(count > 50)
    end)
  end

  for _, name in ipairs(names) do
    it("and a collection behind each instruction of " .. name .. " takes nothing that it needs", function()
      jit.off()
      finally(jit.on)
      local expected, stride = interpreted(CALLS[name])
      local text, count = collecting.call(stride, CALLS[name], 1)
      assert.are.equal(expected, text)
      assert.is_true(count * stride > 50)
    end)
  end

  for name, how in pairs { compiled = "-jon", interpreted = "-joff" } do
    it("from a finalizer changes no shape, dtype or error, " .. name, function()
      local output, code = helper.luajit(FINALIZERS, how)
      assert.are.equal(0, code, output)
      assert.are.equal("done\n", output)
    end)
  end

  it("from a finalizer ends, whatever options it has", function()
    local output, code = helper.luajit(OPTIONS)
    assert.are.equal(0, code, output)
    assert.are.equal("done\n", output)
  end)
end)
