-- What one cell of the matrix is put through: an array x of library A, tensor t of Moonferry's, array y of library B.
--
-- A check returns what it saw, as a table of words for the report. What must never be, whatever the libraries can and
-- cannot do, is an entry in cell.faults: other bytes, a flag lost by Moonferry, a leak. cell.unaligned has the names of
-- the arrays that lay at an address that is no multiple of 64: that is chance, and rule.py asks for it. Must not know:
-- any library.
local mf = require "moonferry"
local py = require "moonferry.python"
local ffi = require "ffi"
local trial = require "trial"

local checks = {}

local SHAPE = { 4, 6 }
local ROUNDS = 10000
-- What a round may leave: less than any block has, so that one in each round is seen. And what pages a library may
-- map that malloc does not know of.
local BYTES, BLOCKS, PAGES = 8, 0.1, 2 ^ 20
local ALIGNMENT, ATTEMPTS = 64, 64

checks.DTYPES = {
  "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32",
  "float64", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e4m3fnuz",
  "float8_e5m2fnuz", "float8_e3m4", "float8_e4m3", "float8_e8m0fnu",
}

-- The shape in which dtypes are tried: every byte occurs, and no allocator keeps such blocks at equal distances.
checks.MANY = { 4, 132 }

-- Each layout: the shape of the array that it is a view of, and how Moonferry and NumPy make it of that.
checks.LAYOUTS = {
  { "c", SHAPE, function(t) return t end, "a" },
  { "fortran", SHAPE, function(t) return t:permute_dims() end, "a.T" },
  { "sliced", SHAPE, function(t) return t:view({ 1, 3 }, { nil, nil, 2 }) end, "a[1:3, ::2]" },
  { "negative", SHAPE, function(t) return t:view({ nil, nil, -1 }, { nil, nil, -1 }) end, "a[::-1, ::-1]" },
  { "zero", SHAPE, function(t) return t:view(mf.all, { 0, 1 }):broadcast_to(SHAPE) end,
    "numpy.broadcast_to(a[:, :1], (4, 6))" },
  { "empty", { 0, 3 }, function(t) return t end, "a" },
  { "scalar", {}, function(t) return t end, "a" },
  { "rank 12", { 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 3 }, function(t) return t end, "a" },
}

local function try(f, ...)
  local ok, value = pcall(f, ...)
  if ok then
    return value
  end
  return nil, trial.reason(value)
end

local function make(library, dtype, shape)
  local support, extents = py.import "support", py.tuple(shape)
  local raw = support.pattern(dtype, extents)
  local x, why = try(library.make, support.typed(raw, dtype, extents), raw:copy(), dtype, extents)
  return x, why, py.object(raw)
end

local function address(t)
  return tonumber(ffi.cast("intptr_t", t._dl.data))
end

-- Notes that an array lies where some libraries take none; of a dtype or a layout, or which of two.
local function note_address(cell, name, t)
  if address(t) % ALIGNMENT ~= 0 then
    cell.unaligned[#cell.unaligned + 1] = name
  end
end

-- x of `library`, t of it, and the bytes of both; or nil and what is in the way.
local function first_source(library, dtype, shape)
  local x, why, raw = make(library, dtype, shape)
  if x == nil then
    return nil, why, "none"
  end
  local t, refused = try(library.give, x, dtype, py.tuple(shape))
  return t, refused, x, raw:tobytes()
end

-- The same, of memory that is aligned to 64 bytes, or that is not: some libraries take no other, and which of the two
-- an allocator returns is chance. Where many attempts bring only the one kind, it is that.
local function source(library, dtype, shape, unaligned)
  local before = {} -- luacheck: ignore 241 (kept, so that the next lies elsewhere)
  for attempt = 1, ATTEMPTS do
    local t, why, x, bytes = first_source(library, dtype, shape)
    if not t or attempt == ATTEMPTS or (address(t) % ALIGNMENT ~= 0) == (unaligned or false) then
      return t, why, x, bytes
    end
    t:close()
    before[attempt] = { x, py.import("support").spacers(#bytes, attempt) }
  end
end

-- A Python tuple of a shape of Lua's or of a library's.
local function tuple(shape)
  return type(shape) == "table" and py.tuple(shape) or py.builtins.tuple(shape)
end

-- Where an array lies: as its library says, else as Moonferry sees it.
local function place(library, array, dtype, shape)
  local pointer = library.pointer and try(library.pointer, array)
  if pointer then
    return tonumber(pointer)
  end
  local t = try(library.give, array, dtype, tuple(shape))
  return t and address(t)
end

local function same(cell, what, wanted, library, array, dtype)
  local seen, why = try(library.bytes, array, dtype)
  if seen ~= wanted then
    cell.fault("%s: %s", what, why or "other bytes than were put in")
  end
  return seen == wanted
end

-- What becomes of t if B refuses it as it is.
local function on_request(cell, B, t, bytes, refused)
  local y, still = try(B.take, t:copy(), "float32")
  if y == nil then
    return { kind = "refused", by = B.name, why = refused, copy = still }
  end
  same(cell, "copied on request", bytes, B, y, "float32")
  return { kind = "copied on request", by = B.name, why = refused }
end

--- Whether memory is shared, by its address and by writing on each side and reading on the other. Where B refuses, the
--- later checks look at what B does with Moonferry's copies.
function checks.sharing(cell, A, B)
  local from = { source(A, "float32", SHAPE) }
  if from[1] then
    note_address(cell, "first", from[1])
  end
  local seen = checks.shared(cell, A, B, from)
  local t, why, x, bytes = source(A, "float32", SHAPE, true)
  if t and address(t) % ALIGNMENT ~= 0 then
    note_address(cell, "second", t)
    local other = checks.shared(cell, A, B, { t, why, x, bytes })
    seen.unaligned = other.kind ~= seen.kind and other or nil
  end
  if seen.kind == "copied on request" then
    B.take, B.copies = py.eval("lambda t, dtype: take(t.copy(), dtype)", py.dict { take = B.take }), true
  end
  return seen
end

-- The same for what `source` returned.
function checks.shared(cell, A, B, from)
  local t, why, x, bytes = unpack(from, 1, 4)
  if not t then
    return { kind = "refused", by = A.name, why = why }
  end
  local y, refused = try(B.take, t, "float32")
  if y == nil then
    return on_request(cell, B, t, bytes, refused)
  end
  local at = { place(A, x, "float32", SHAPE), address(t), place(B, y, "float32", SHAPE) }
  local first, second = at[1] == at[2], at[2] == at[3]
  local shared = first and second
  return {
    kind = shared and "zero-copy" or "copied",
    by = not first and A.name or not second and B.name or nil,
    written = checks.written(cell, { A, x }, { B, y }, t, shared),
  }
end

-- One side writes 5, Moonferry writes 6, the other side writes 7; what does each see? A side is a library and its
-- array. Where nobody may write, the 6 is put into the memory behind everybody's back: equal addresses alone prove
-- little. Returns who wrote and was seen.
function checks.written(cell, source_side, sink_side, t, shared)
  local words = {}
  local function look(who, value, library, array)
    local sees = library.bytes(array, "float32") == py.import("numpy").full(24, value, "float32"):tobytes()
    words[#words + 1] = who .. (sees and "" or " (not seen)")
    if sees ~= shared then
      cell.fault("written by %s: %s by %s, though the addresses are %s", who, sees and "seen" or "not seen",
        library.name, shared and "the same" or "different")
    end
  end
  local function write(value, from, to)
    local library, array = from[1], from[2]
    if library.write and try(function() library.write(array, value) return true end) then
      look(library.name, value, to[1], to[2])
    end
  end
  write(5, source_side, sink_side)
  if shared then
    local who = t.readonly and "nobody" or "Moonferry"
    if t.readonly then
      py.import("support").poke(address(t), 6, 24)
    else
      t:fill(6)
    end
    look(who, 6, source_side[1], source_side[2])
    look(who, 6, sink_side[1], sink_side[2])
  end
  write(7, sink_side, source_side)
  return table.concat(words, ", ")
end

--- Every dtype that both have, bit for bit.
function checks.dtypes(cell, A, B)
  local seen = {}
  for _, dtype in ipairs(checks.DTYPES) do
    local t, why, x, bytes = source(A, dtype, checks.MANY)
    local both = x ~= "none" and not (A.limits[dtype] or B.limits[dtype]) and make(B, dtype, SHAPE) ~= nil
    if both and not t then
      seen[dtype] = A.name .. " -> Moonferry: " .. why
    elseif both then
      note_address(cell, dtype, t)
      local y, refused = try(B.take, t, dtype)
      if y == nil then
        seen[dtype] = "Moonferry -> " .. B.name .. ": " .. refused
      else
        seen[dtype] = same(cell, dtype, bytes, B, y, dtype) and "same bits" or "other bits"
      end
    end
  end
  return seen
end

-- The tensor of that layout, who copied it (false: nobody) and its bytes: A's own view where it makes one, else
-- Moonferry's view of A's memory.
local function laid_out(cell, A, layout)
  local name, shape, view, numpys = unpack(layout)
  local t, why, x, bytes = source(A, "float32", shape)
  if not t then
    return nil, why
  end
  local numpy = py.import "numpy"
  local array = numpy.frombuffer(py.bytes(bytes), "uint32"):reshape(py.tuple(shape))
  local wanted = py.import("support").as_bytes(py.eval(numpys, py.dict { a = array, numpy = numpy }))
  local theirs = A.views[name] and try(A.views[name], x)
  local made = theirs and try(A.give, theirs, "float32", theirs.shape)
  if made then
    local at = place(A, theirs, "float32", theirs.shape) -- before it is read: PaddlePaddle's contiguous() moves it
    same(cell, name .. " of " .. A.name, wanted, A, theirs, "float32")
    return made, at ~= address(made) and A.name, wanted
  end
  return view(t), place(A, x, "float32", shape) ~= address(t) and A.name, wanted
end

local function taken(cell, B, t, name, wanted)
  local y, why
  if B.limits[name] and not pcall(t.ptr, t) then
    why = B.limits[name]
  else
    y, why = try(B.take, t, "float32")
  end
  if y == nil then
    return nil, why
  end
  local shared = place(B, y, "float32", t.shape) == address(t) -- before it is read, which may move it
  same(cell, name, wanted, B, y, "float32")
  if name == "empty" then
    return "taken"
  end
  return shared and "zero-copy" or "copied by " .. (B.copies and "Moonferry" or B.name)
end

--- Layouts: taken as they are, copied, or refused, and then whether Moonferry's own copy is taken.
function checks.layouts(cell, A, B)
  local seen = {}
  for _, layout in ipairs(checks.LAYOUTS) do
    local name = layout[1]
    local t, why, wanted = laid_out(cell, A, layout)
    if not t then
      seen[name] = A.name .. ": " .. why
    else
      note_address(cell, name, t)
      local word, refused = taken(cell, B, t, name, wanted)
      seen[name] = word == "zero-copy" and why and "copied by " .. why or word
      if not word then
        local again, still = taken(cell, B, t:copy(), name .. ", a copy", wanted)
        seen[name] = ("refused: %s; Moonferry's copy: %s"):format(refused, again and "taken" or still)
      end
    end
  end
  return seen
end

--- Whether what must not be written stays so.
function checks.readonly(cell, A, B)
  local t, why, x, bytes = source(A, "float32", SHAPE)
  if not t then
    return { word = "refused", why = why }
  end
  local locked = A.lock and try(A.lock, x)
  if locked then
    t = A.give(locked, "float32", py.tuple(SHAPE))
    if not t.readonly then
      cell.fault("read-only: %s's array came in writable", A.name)
    end
  else
    t = t:as_readonly()
  end
  local y, refused = try(B.take, t, "float32")
  if y == nil then
    return { word = "refused", why = refused }
  elseif not B.write then
    return { word = "nothing writes there" }
  end
  local wrote, error_text = try(function() B.write(y, 5) return true end)
  local changed = A.bytes(locked or x, "float32") ~= bytes
  return { word = changed and "lost by " .. B.name or wrote and "a copy" or "kept", why = error_text }
end

-- Arrays with other bytes, held by the caller: what was freed too early is given out again, and is not what it was.
local function refill(A, B)
  local kept = {}
  for i = 1, 64, 3 do
    kept[i], kept[i + 1], kept[i + 2] = make(A, "int32", SHAPE), make(B, "int32", SHAPE), mf.full(SHAPE, i, "int32")
  end
  return kept
end

--- Who goes first does not matter, nothing is left, and many rounds leave nothing either.
function checks.lifetime(cell, A, B)
  trial.collect()
  local before = mf.ledger()
  for _, first in ipairs { "source", "sink" } do
    local t, why, x, bytes = source(A, "float32", SHAPE)
    local y = t and try(B.take, t, "float32")
    if not y then
      return { word = "nothing to see", why = why }
    end
    if first == "source" then
      x = nil -- luacheck: ignore 311
      t:close()
      trial.collect()
      local _ = refill(A, B)
      same(cell, "lifetime: source dropped first", bytes, B, y, "float32")
    else
      y = nil -- luacheck: ignore 311
      t:close()
      trial.collect()
      local _ = refill(A, B)
      same(cell, "lifetime: sink dropped first", bytes, A, x, "float32")
    end
  end
  trial.collect()
  for what, count in pairs(mf.ledger()) do
    if count ~= before[what] then
      cell.fault("lifetime: %d more %s alive than before", count - before[what], what)
    end
  end
  return checks.rounds(cell, A, B)
end

-- The two functions in Python that give and take a float32 array of that shape.
local function hands(A, B, shape)
  local scope = py.dict { give = A.give, take = B.take, shape = py.tuple(shape) }
  return py.eval("lambda x: give(x, 'float32', shape)", scope), py.eval("lambda t: take(t, 'float32')", scope)
end

function checks.rounds(cell, A, B)
  local give, take = hands(A, B, SHAPE)
  local t, _, x = source(A, "float32", SHAPE)
  t:close()
  local ledger = py.import("moonferry").ledger
  local seen = py.import("support").rounds(give, take, x, ROUNDS, ledger)
  local bytes, blocks, pages, references, alive = py.unpack(seen)
  local grows = bytes > BYTES or blocks > BLOCKS or pages > PAGES
  if references ~= 0 or alive ~= 0 or (grows and not A.grows[B.name]) then
    cell.fault("%d rounds: %.1f bytes and %.2f blocks in each, %d bytes of pages; %d references, %d of Moonferry's "
      .. "alive", ROUNDS, bytes, blocks, pages, references, alive)
  end
  return { word = grows and A.grows[B.name] or "nothing left", rounds = ROUNDS }
end

--- Nanoseconds from an array of A to one of B, each call made by Python, and by Lua.
function checks.time(_, A, B)
  local give, take = hands(A, B, SHAPE)
  local t, _, x = source(A, "float32", SHAPE)
  if not t or not try(function() t:close() return take(give(x)) end) then
    return {}
  end
  local inside = py.import("support").nanoseconds(give, take, x)
  local clock, best = py.import("time").perf_counter, math.huge
  for _ = 1, 7 do
    local begun = clock()
    for _ = 1, 200 do
      local given = give(x)
      take(given)
      given:close()
    end
    best = math.min(best, (clock() - begun) / 200 * 1e9)
  end
  return { python = math.floor(inside + 0.5), lua = math.floor(best + 0.5) }
end

checks.SHAPE, checks.try, checks.source, checks.laid_out = SHAPE, try, source, laid_out

return checks
