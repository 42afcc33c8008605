-- What one cell of the device matrix is put through: array x of library A on a stream of A's, tensor t of Moonferry's
-- on another, array y of library B on a stream of B's, all on device 0, in every order that some seeds of a simulated
-- driver draw.
--
-- What checks return, and cell.faults, is as in checks.lua; a race that the simulated driver reports is a fault, too.
-- Must not know: any library.
local ffi = require "ffi"
local mf = require "moonferry"
local py = require "moonferry.python"
local trial = require "trial"

local device = {}

local D = os.getenv "MATRIX_DEVICE"
local NBYTES, SEEDS, ROUNDS = 64, 20, tonumber(os.getenv "MATRIX_ROUNDS") or 10000
local driver

--- The driver, once the libraries are imported; the simulator has nothing to report of before.
function device.start(found)
  driver = found
  driver:reset()
end

local function try(f, ...)
  local ok, value = pcall(f, ...)
  if ok then
    return value
  end
  return nil, (tostring(value):gsub("%s+$", ""):match("^[^\n]*")):sub(1, 240)
end

-- A stream of the library's. It must live as long as memory that was used on it, so it stays for good.
local kept = {}

local function stream_of(lib)
  kept[#kept + 1] = lib.stream()
  return kept[#kept]
end

local function collect()
  trial.collect()
  mf.synchronize(D)
end

local function races(cell, what)
  for text in py.iter(driver:findings()) do
    cell.fault("%s: %s", what, text:match "^[^\n]*")
  end
  driver:reset()
end

local function all(value)
  return string.rep(string.char(value), NBYTES)
end

local function expect(cell, what, library, array, stream, value)
  local seen = library.read(array, stream)
  if seen ~= all(value) then
    cell.fault("%s: byte 0x%02x, not 0x%02x", what, seen:byte() or 0, value)
  end
end

-- Puts bytes into memory that nobody may write, behind everybody's back, once all that is queued is done.
local function poke(t, bytes)
  mf.synchronize(D)
  driver:write(tonumber(ffi.cast("intptr_t", t._dl.data)), py.bytes(bytes), driver.default)
end

-- What becomes of t if B refuses it as it is.
local function on_request(cell, B, t, b, value, refused)
  local y, still = try(B.take, t:copy(), b)
  if y == nil then
    return { kind = "refused", by = B.name, why = refused, copy = still }
  end
  expect(cell, "copied on request", B, y, b, value)
  return { kind = "copied on request", by = B.name, why = refused }
end

-- From now on B gets copies.
local function take_copies(B)
  local take = B.take
  function B.take(t, stream)
    local copy = t:copy()
    local y = take(copy, stream)
    copy:close()
    return y
  end
  B.copies = true
end

-- One exchange there and back on three streams: A's, Moonferry's and B's.
local function exchange(cell, A, B, value)
  local a, b, ours = stream_of(A), stream_of(B), mf.stream(D)
  local x = A.make(value, a)
  local t, why = try(mf.with_stream, ours, A.give, x, a)
  if not t then
    return { kind = "refused", by = A.name, why = why }
  end
  local y, refused = try(mf.with_stream, ours, B.take, t, b)
  if y == nil then
    return mf.with_stream(ours, on_request, cell, B, t, b, value, refused)
  end
  expect(cell, "B reads", B, y, b, value)
  local shared = A.pointer(x) == B.pointer(y)
  if shared and B.fill and not t.readonly then
    B.fill(y, value + 100, b)
    expect(cell, "A reads what B wrote", A, mf.with_stream(ours, A.take, t, a), a, value + 100)
  end
  if t.readonly then
    poke(t, all(3))
    expect(cell, "A reads what nobody wrote", A, x, a, 3)
  else
    mf.with_stream(ours, t.fill, t, 3)
  end
  expect(cell, "B reads what was written since", B, mf.with_stream(ours, B.take, t, b), b, 3)
  x, y = nil, nil -- luacheck: ignore 311
  t:close()
  collect()
  ours:close()
  return { kind = shared and "zero-copy" or "copied", by = not shared and (A.host and A.name or B.name) or nil }
end

--- In every order of the queued work, and no race. Where B refuses, the later checks look at what B does with
--- Moonferry's copies.
function device.sharing(cell, A, B)
  local seen
  for seed = 0, SEEDS do
    driver:seed(seed)
    seen = exchange(cell, A, B, seed + 1)
    races(cell, "seed " .. seed)
    if #cell.faults > 0 then
      break
    end
  end
  driver:seed(0)
  if seen.kind == "copied on request" then
    take_copies(B)
  end
  return seen
end

-- A tensor of A's memory, ready on the stream `ours`.
local function source(A, ours)
  local stream = stream_of(A)
  return mf.with_stream(ours, A.give, A.make(9, stream), stream)
end

--- Every dtype under which Moonferry can give A's bytes, with patterns in them.
function device.dtypes(cell, A, B)
  local seen, ours = {}, mf.stream(D)
  for _, dtype in ipairs(require("checks").DTYPES) do
    local b = stream_of(B)
    local bytes = py.import("support").pattern(dtype, py.tuple { NBYTES / py.import("support").itemsize(dtype) })
    local t = source(A, ours)
    if t.readonly then
      poke(t, py.object(bytes):tobytes())
    else
      mf.with_stream(ours, t.copy, t, py.tensor(bytes))
    end
    local y, refused = try(mf.with_stream, ours, B.take, t:reinterpret(dtype), b)
    seen[dtype] = y == nil and "Moonferry -> " .. B.name .. ": " .. refused or "same bits"
    if y ~= nil and B.read(y, b) ~= py.object(bytes):tobytes() then
      cell.fault("%s: other bits", dtype)
    end
    t:close()
  end
  collect()
  races(cell, "dtypes")
  return seen
end

local LAYOUTS = {
  { "c", function(t) return t:reshape(8, 8) end },
  { "fortran", function(t) return t:reshape(8, 8):permute_dims() end },
  { "sliced", function(t) return t:reshape(8, 8):view({ 1, 5 }, { nil, nil, 2 }) end },
  { "negative", function(t) return t:reshape(8, 8):view { nil, nil, -1 } end },
  { "zero", function(t) return t:view({ 0, 1 }):broadcast_to { 8, 1 } end },
  { "empty", function(t) return t:view { 0, 0 } end },
  { "scalar", function(t) return t:view(0) end },
  { "rank 12", function(t) return t:reshape(1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2) end },
}

local function text(sequence)
  local parts = {}
  for i, item in ipairs(sequence) do
    parts[i] = tostring(item)
  end
  return table.concat(parts, ",")
end

-- How B sees a view of A's memory: the same place and the same shape, or what else.
local function seen_as(B, y, t, layout)
  local shape, strides = py.unpack(B.seen(y))
  shape = { py.unpack(shape) }
  if text(shape) ~= text(t.shape) then
    return "shape " .. text(shape)
  elseif B.copies then
    return layout == "empty" and "taken" or "copied by Moonferry"
  elseif strides ~= py.None and text { py.unpack(strides) } ~= text(t.strides) and not pcall(t.ptr, t) then
    return "copied by " .. B.name
  end
  return "zero-copy"
end

--- Layouts, as Moonferry's views of A's memory.
function device.layouts(cell, A, B)
  local seen, ours = {}, mf.stream(D)
  local t = source(A, ours)
  for _, layout in ipairs(LAYOUTS) do
    local name, view = layout[1], layout[2](t)
    local y, refused = try(mf.with_stream, ours, B.take, view, stream_of(B))
    if y ~= nil then
      seen[name] = (A.host or B.host) and "copied by Moonferry" or seen_as(B, y, view, name)
    else
      local again = try(mf.with_stream, ours, B.take, mf.with_stream(ours, view.copy, view), stream_of(B))
      seen[name] = ("refused: %s; Moonferry's copy: %s"):format(refused, again and "taken" or "refused")
    end
  end
  t:close()
  races(cell, "layouts")
  return seen
end

--- Whether B takes what it must not write, and still knows so when it gives it back.
function device.readonly(cell, A, B)
  local ours = mf.stream(D)
  local t = source(A, ours)
  local b = stream_of(B)
  local y, refused = try(mf.with_stream, ours, B.take, t:as_readonly(), b)
  if y == nil then
    return { word = "refused", why = refused }
  elseif B.host or B.copies then
    return { word = "a copy" }
  end
  local back = try(mf.with_stream, ours, B.give, y, b)
  races(cell, "read-only")
  return { word = not back and "taken" or back.readonly and "kept" or "lost by " .. B.name }
end

--- Who goes first does not matter, and many rounds leave nothing in Moonferry. That the process does not grow is looked
--- at on the host alone: a simulated driver remembers what it was told.
function device.lifetime(cell, A, B)
  collect()
  local before = mf.ledger()
  local a, b, ours = stream_of(A), stream_of(B), mf.stream(D)
  local x = A.make(4, a)
  local t = mf.with_stream(ours, A.give, x, a)
  local y, refused = try(mf.with_stream, ours, B.take, t, b)
  if y == nil then
    return { word = "nothing to see", why = refused }
  end
  x = nil -- luacheck: ignore 311
  t:close()
  collect()
  expect(cell, "the source went first", B, y, b, 4)
  y = nil -- luacheck: ignore 311
  x = A.make(6, a)
  for _ = 1, ROUNDS do
    local u = mf.with_stream(ours, A.give, x, a)
    mf.with_stream(ours, B.take, u, b)
    u:close()
  end
  collect()
  expect(cell, "the sinks went first", A, x, a, 6)
  x = nil -- luacheck: ignore 311
  collect()
  for what, count in pairs(mf.ledger()) do
    if count > before[what] then
      cell.fault("lifetime: %d more %s alive than before", count - before[what], what)
    end
  end
  races(cell, "lifetime")
  return { word = "nothing left", rounds = ROUNDS }
end

--- Nanoseconds from x to y with work for the simulated driver in between; of a GPU they say nothing.
function device.time(_, A, B)
  local a, b, ours = stream_of(A), stream_of(B), mf.stream(D)
  local x = A.make(4, a)
  local clock, best = py.import("time").perf_counter, math.huge
  for _ = 1, 200 do
    local begun = clock()
    local t = try(mf.with_stream, ours, A.give, x, a)
    if not t or try(mf.with_stream, ours, B.take, t, b) == nil then
      return {}
    end
    best = math.min(best, (clock() - begun) * 1e9)
    t:close()
  end
  return { lua = math.floor(best + 0.5) }
end

return device
