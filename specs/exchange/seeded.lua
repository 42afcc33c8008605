-- Libraries with one mistake each, and the check that must notice it: luajit seeded.lua
--
-- Run by test_seeded.py. A check that lets its mistake pass says nothing in the matrix either. Prints `ok NAME` for
-- each mistake that was found and for what must pass, and what was said instead for each that was not.
local directory = arg[0]:match("^(.*)/[^/]*$") or "."
package.path = directory .. "/?.lua;" .. package.path

local checks = require "checks"
local library = require "library"
local trial = require "trial"

-- What is in every entry: NumPy without a mistake.
local SOUND = {
  module = "numpy", make = "a", give = "moonferry.asarray(x)", take = "numpy.asarray(t)", bytes = "x.tobytes()",
  pointer = "x.ctypes.data", write = "x.fill(value)", lock = "support.lock(x)", setup = "kept = []",
}

local MISTAKES = {
  { name = "a sink that keeps what it took", check = "lifetime", says = "more %S+ alive",
    take = "(kept.append(numpy.asarray(t)), kept[-1])[1]" },
  { name = "a sink that keeps the 50th and those after", check = "lifetime", says = "of Moonferry's alive",
    take = "(kept.append(numpy.asarray(t) if len(kept) > 50 else 0), numpy.asarray(t))[1]" },
  { name = "a source that is held for ever", check = "lifetime", says = "%d+ references",
    give = "(kept.append(x), moonferry.asarray(x))[1]" },
  { name = "a sink that leaks malloc's smallest block", check = "lifetime", says = "%d+ bytes",
    setup = "import ctypes; leak = ctypes.CDLL(None).malloc",
    take = "(leak(ctypes.c_size_t(1)), numpy.asarray(t))[1]" },
  { name = "a sink that leaks Python's smallest object", check = "lifetime", says = "1.%d+ blocks in each",
    take = "(kept.append(float(t.ndim)), numpy.asarray(t))[1]" },
  { name = "a sink that leaks pages", check = "lifetime", says = "%d+ bytes of pages",
    setup = "import ctypes; mapped = ctypes.CDLL(None).mmap; mapped.restype = ctypes.c_void_p",
    take = "(ctypes.memset(mapped(None, ctypes.c_size_t(4096), 3, 34, -1, ctypes.c_size_t(0)), 1, 1), "
      .. "numpy.asarray(t))[1]" },
  { name = "a sink that does not hold its memory", check = "lifetime", says = "source dropped first",
    setup = "import ctypes; kept = []",
    take = "numpy.frombuffer((ctypes.c_float * 24).from_address(t.data_ptr), 'float32').reshape(t.shape)" },
  { name = "a sink that gives other bytes", check = "dtypes", says = "other bytes",
    take = "numpy.asarray(t) if t.dtype != 'int16' else numpy.asarray(t) + 1" },
  { name = "a sink that calls a NaN a NaN", check = "dtypes", says = "float32: other bytes",
    take = "numpy.nan_to_num(numpy.asarray(t), nan=numpy.nan) if t.dtype == 'float32' else numpy.asarray(t)" },
  { name = "a sink that copies and says that it does not", check = "sharing", says = "not seen by",
    setup = "kept = {}",
    take = "(lambda y: (kept.__setitem__(id(y), t.data_ptr), y)[1])(numpy.array(t, copy=True))",
    pointer = "kept.get(id(x), x.ctypes.data)" },
  { name = "a sink that shares and says that it does not", check = "sharing", says = "seen by",
    pointer = "x.ctypes.data + 1" },
  { name = "a source whose read-only is lost", check = "readonly", says = "came in writable",
    give = "moonferry.asarray(x if x.flags.writeable else x.copy())" },
  { name = "a sink that turns the axes", check = "layouts", says = "fortran",
    take = "numpy.ascontiguousarray(numpy.asarray(t)).T if t.ndim == 2 and t.strides[0] == 1 else numpy.asarray(t)" },
}

-- No mistake: a library that moves an array when its elements are read. Where it lay before is what counts.
local MOVES = {
  name = "NumPy", setup = "kept = {}", bytes = "(kept.__setitem__(id(x), x), x.tobytes())[1]",
  pointer = "x.ctypes.data + (id(x) in kept)",
}

local function opened(mistake)
  local entry = {}
  for _, each in ipairs { SOUND, mistake } do
    for key, value in pairs(each) do
      entry[key] = value
    end
  end
  return library.open(entry, library.HOST)
end

local function faults(check, A, B)
  local _, found = trial.run(checks[check], A, B)
  return table.concat(found, "; ")
end

local function print_moved()
  local moves = opened(MOVES)
  local seen, found = trial.run(checks.layouts, moves, moves)
  for layout, word in pairs(seen or {}) do
    if word ~= (layout == "empty" and "taken" or "zero-copy") then
      found[#found + 1] = layout .. ": " .. word
    end
  end
  print(#found == 0 and "ok moved when read, layouts" or "moved when read, layouts: " .. table.concat(found, "; "))
end

for _, name in ipairs { "sharing", "dtypes", "layouts", "readonly", "lifetime" } do
  local sound = opened { name = "NumPy" }
  local said = faults(name, sound, sound)
  print(said == "" and "ok no mistake, " .. name or ("no mistake, %s: %s"):format(name, said))
end
print_moved()
for _, mistake in ipairs(MISTAKES) do
  local sound, wrong = opened { name = "NumPy" }, opened(mistake)
  local said = mistake.give and faults(mistake.check, wrong, sound) or faults(mistake.check, sound, wrong)
  print(said:find(mistake.says) and "ok " .. mistake.name or ("%s: only '%s'"):format(mistake.name, said))
end
os.exit(0)
