-- The checks of a cell whose second library runs in another process (far.lua), reached through shared memory: A's
-- array is copied into it once, in any layout, and from there on both processes have the same bytes.
--
-- Must not know: any library.
local py = require "moonferry.python"
local checks = require "checks"
local trial = require "trial"

local SIZE = 2 ^ 20
local SHAPE, try = checks.SHAPE, checks.try

local far = {}

-- The library at the other end: what it was told to take, and what it answers.
function far.open(entry, command)
  local name = entry.name
  local shared = py.import("multiprocessing.shared_memory").SharedMemory(py.kw { create = true, size = SIZE })
  local subprocess = py.import "subprocess"
  local child = subprocess.Popen(("%s '%s' %s"):format(command, name, shared.name),
    py.kw { shell = true, stdin = subprocess.PIPE, stdout = subprocess.PIPE, text = true })
  local loads = py.import("json").loads
  local B = { name = name, limits = entry.limits or {} }

  local function answer()
    while true do
      local line = child.stdout:readline()
      if line == "" then
        error(name .. "'s process ended", 0)
      elseif line:match "^matrix: " then
        return loads(line:match "^matrix: (.*)$")
      end
    end
  end

  function B.ask(...)
    child.stdin:write(table.concat({ ... }, " ") .. "\n")
    child.stdin:flush()
    local said = answer()
    if said:get "error" ~= py.None then
      error(py.get(said, "error"), 0)
    end
    return said
  end

  --- Moonferry's tensor in the shared memory.
  function B.room(dtype, shape)
    local count = 1
    for _, extent in ipairs(shape) do
      count = count * extent
    end
    return py.import("moonferry").frombuffer(shared.buf, dtype, count):reshape(shape), count
  end

  --- Copies t into the shared memory, gives it to the library as what it is, and returns the tensor there.
  function B.take(t)
    local dtype = tostring(t.dtype)
    local room, count = B.room(dtype, t.shape)
    room:copy(t)
    B.ask("take", dtype, count, unpack(t.shape))
    return room
  end

  function B.sees(bytes)
    local hash = py.import("hashlib").sha256(py.bytes(bytes)):hexdigest()
    return py.get(B.ask "bytes", "bytes") == hash
  end

  function B.close()
    child.stdin:close()
    child:wait()
    trial.collect()
    shared:close()
    shared:unlink()
  end

  B.version = py.get(answer(), "version")
  return B
end

local function bytes_of(value)
  return py.import("numpy").full(24, value, "float32"):tobytes()
end

--- One copy into shared memory; then what one process writes the other sees, unless B copies.
function far.sharing(cell, A, B)
  local t, why = checks.source(A, "float32", SHAPE)
  if not t then
    return { kind = "refused", by = A.name, why = why }
  end
  local room, refused = try(B.take, t)
  if not room then
    return { kind = "refused", by = B.name, why = refused }
  end
  room:fill(6)
  local words = { B.sees(bytes_of(6)) and "Moonferry here" or "Moonferry here (not seen)" }
  if py.get(B.ask "write", "wrote") then
    words[2] = room:get(0, 0) == 5 and B.name or B.name .. " (not seen)"
    if (words[2] == B.name) ~= (words[1] == "Moonferry here") then
      cell.fault("written: %s, %s", words[1], words[2])
    end
  end
  B.ask "drop"
  return { kind = "second process", written = table.concat(words, ", ") }
end

-- What became of a dtype at the other end; nil for other bits.
local function arrived(B, room, refused, bytes)
  if not room then
    return ("Moonferry -> %s: %s"):format(B.name, refused)
  end
  local answered, right = pcall(B.sees, bytes)
  if not answered then -- it takes a dtype whose elements it cannot show
    return ("%s: %s"):format(B.name, right)
  end
  return right and "same bits" or nil
end

--- Every dtype that both take, bit for bit.
function far.dtypes(cell, A, B)
  local seen = {}
  for _, dtype in ipairs(checks.DTYPES) do
    local t, _, x, bytes = checks.source(A, dtype, checks.MANY)
    if t and x ~= "none" and not (A.limits[dtype] or B.limits[dtype]) then
      local room, refused = try(B.take, t)
      seen[dtype] = arrived(B, room, refused, bytes)
      if not seen[dtype] then
        cell.fault("%s: other bits", dtype)
      end
      B.ask "drop"
    end
  end
  return seen
end

--- Layouts: the copy into shared memory makes them compact.
function far.layouts(cell, A, B)
  local seen = {}
  for _, layout in ipairs(checks.LAYOUTS) do
    local t, why, wanted = checks.laid_out(cell, A, layout)
    local room, refused
    if t then
      room, refused = try(B.take, t)
    end
    seen[layout[1]] = not t and A.name .. ": " .. why or room and "copied into shared memory" or "refused: " .. refused
    if room and not B.sees(wanted) then
      cell.fault("%s: other bytes", layout[1])
    end
    B.ask "drop"
  end
  return seen
end

--- What lies in shared memory is a copy, which both may write.
function far.readonly()
  return { word = "a copy" }
end

--- The source goes first, then the sink; neither process keeps anything.
function far.lifetime(cell, A, B)
  trial.collect()
  local before = py.get(B.ask "drop", "alive") -- Numba keeps arguments of functions that it could not compile
  local t, why, x, bytes = checks.source(A, "float32", SHAPE) -- luacheck: ignore 231
  local room = t and try(B.take, t)
  if not room then
    return { word = "nothing to see", why = why }
  end
  x = nil -- luacheck: ignore 311
  t:close()
  room:close()
  trial.collect()
  if not B.sees(bytes) then
    cell.fault("lifetime: the source went first and the bytes with it")
  end
  local alive = py.get(B.ask "drop", "alive")
  if alive ~= before then
    cell.fault("lifetime: %d more tensors alive in %s's process", alive - before, B.name)
  end
  return { word = "nothing left", rounds = 1 }
end

--- Nanoseconds from an array of A to one of B, the question and the answer through pipes included.
function far.time(_, A, B)
  local t = checks.source(A, "float32", SHAPE)
  if not t or not try(B.take, t) then
    return {}
  end
  local clock, best = py.import("time").perf_counter, math.huge
  for _ = 1, 200 do
    local begun = clock()
    local u = B.take(t)
    best = math.min(best, (clock() - begun) * 1e9)
    u:close()
  end
  return { lua = math.floor(best + 0.5) }
end

return far
