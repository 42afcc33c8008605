-- What lua-language-server says of a program that uses Moonferry: nothing, but for each line that ends with `-- wrong`.
-- Runs, too: specs/python/test_editor.py.
local ffi = require "ffi"
local mf = require "moonferry"

local function arrays()
  local t = mf.zeros({ 2, 3 }, "float32")
  for y, row in t:rows() do
    for x = 0, 2 do row[x] = 10 * y + x end
  end
  print(t:view(mf.all, { nil, nil, -1 }), t:get(1, -1), t:row(1)[2], t:at(1, 2), t:ptr()[0])
  print(t.shape[1], t.strides[1], t.ndim, t.size, t.nbytes, t.itemsize, t.dtype, t.device, t.readonly, t.is_contiguous)
  t:put(0, 0, 7)
  t:set(0, 1, 8)
  local u = t:permute_dims(1, 0):contiguous():reshape(6):astype "int8"
  u:copy(u):fill(1)
  u:expand_dims(0):squeeze(0):broadcast_to { 2, 6 }:as_readonly():diagonal():reinterpret "uint8"
  local v = mf.tensor({ 1, 2 }, "float64", { device = "cpu" })
  v:equal(mf.ones(2, "float64"))
  print(#v:tolist(), mf.full(1, 5):item(), mf.is_tensor(v), mf.empty(2).size)
  local wrapped = mf.wrap(ffi.new "float[4]", { 2, 2 }, "float32")
  local managed = assert(wrapped:to_dlpack())
  print(mf.from_dlpack(managed):get(1, 1), mf.threads(), mf.gc_limit(), mf.ledger().tensors, mf.version, mf.ENOMEM)
  for _, tensor in ipairs { t, u, v, wrapped } do tensor:close() end
end

local function more()
  local kept = mf.scope(function(s) return s:keep(mf.ones(2)) end)
  local guarded = mf.guard(kept, { readonly = true })
  print(guarded:get(0), guarded.shape[1], guarded.dtype, guarded.ndim, kept.flags)
  local ring = assert(mf.ring({ 2, 2 }, "float32", 3))
  local slot, index = ring:begin()
  if slot then
    slot:fill(index)
    ring:publish()
  end
  ring:close()
  local path = os.tmpname()
  assert(mf.save(path, mf.ones(3)))
  print(assert(mf.load(path)).size)
  os.remove(path)
  local one, two = mf.fields(ffi.new "char[64]", 2, { { "position", "float32", 3 }, { "color", "uint8", 4 } })
  print(one.position.size, two)
end

local function devices()
  if (mf.device_count "cuda" or 0) == 0 then
    return
  end
  local stream = assert(mf.stream "cuda:0")
  local g = assert(mf.with_stream(stream, function() return mf.zeros(2, "float32", { device = "cuda:0" }) end))
  local back = assert(g:to "cpu")
  g:acquire(stream, "read")
  g:record(stream)
  stream:wait(assert(mf.current_stream "cuda:0"))
  stream:synchronize()
  print(back.size, stream:query(), mf.pool_stats "cuda:0", mf.pool_limit("cuda:0", 0), mf.trim "cuda:0")
  stream:close()
end

local function python()
  local py = require "moonferry.python"
  local np = py.import "numpy"
  local t = py.tensor(np.linspace(0, 1, py.kw { num = 5 }))
  print(t.size, t:get(0), py.eval "1 + 1", py.list { 1 }, py.slice(1, 2))
end

local function mistakes()
  local t = mf.zeros({ 2, 3 }, "float32")
  print(t:transpose()) -- wrong
  print(t.numel) -- wrong
  print(t:gett(0)) -- wrong
  print(mf.zeroes(3)) -- wrong
  t:astype(3) -- wrong
  mf.zeros("a") -- wrong
  mf.zeros(2, 3) -- wrong
  t:equal(5) -- wrong
  t:squeeze("x") -- wrong
  mf.stream(0) -- wrong
  mf.save(t, "x.npy") -- wrong
end

arrays()
more()
devices()
return { python = python, mistakes = mistakes }
