-- One cell of the matrix: luajit pair.lua LIBRARY LIBRARY OUTPUT [CHECK ...]
--
-- MATRIX_TABLE: the table that has both (host, more, cuda or rocm; host when left out). MATRIX_FAR: the command of a
-- process that has the second library, where this one cannot. MATRIX_ROUNDS: rounds on devices, 10000 when left out.
-- Responsible for: running the checks one by one and writing a line of JSON before and after each, so that whoever
-- started this process knows what ran when a library ended it. Must not know: libraries, or what is checked.
local directory = arg[0]:match("^(.*)/[^/]*$") or "."
package.path = directory .. "/?.lua;" .. package.path

local json = require "json"
local library = require "library"
local py = require "moonferry.python"
local trial = require "trial"

local from, to, output = arg[1], arg[2], assert(io.open(arg[3], "a"))
local far = os.getenv "MATRIX_FAR"
local kind = os.getenv "MATRIX_TABLE" or "host"

local function say(fields)
  output:write(json(fields), "\n")
  output:flush()
end

local function open_host()
  local entries = require(kind)
  local checks = require(far and "far_checks" or "checks")
  local A = library.open(library.find(entries, from), library.HOST)
  local sink = library.find(entries, to)
  return checks, A, far and checks.open(sink, far) or library.open(sink, library.HOST)
end

local function open_device()
  local entries, checks = require(kind), require "device_checks"
  local more = { driver = py.import("driver_abi").Driver(kind) }
  local A = library.open(library.find(entries, from), library.DEVICE, more)
  local B = library.open(library.find(entries, to), library.DEVICE, more)
  checks.start(more.driver)
  return checks, A, B
end

local function run(checks, name, A, B)
  say { begin = name }
  local seen, faults, unaligned = trial.run(checks[name], A, B)
  say { done = name, seen = seen or {}, faults = #faults > 0 and faults or nil, unaligned = unaligned }
end

say { begin = "import" }
local is_device = kind == "cuda" or kind == "rocm"
local checks, A, B = (is_device and open_device or open_host)()
py.import("gc").freeze() -- a collection then looks at what the checks made, not at all that the libraries are made of
say { done = "import", seen = { [from] = A.version, [to] = B.version } }
for _, name in ipairs { select(4, unpack(arg)) } do
  run(checks, name, A, B)
end
if far then
  B.close()
end
say { finished = true }
os.exit(0)
