-- One cell of the matrix: luajit pair.lua LIBRARY LIBRARY OUTPUT [CHECK ...]
--
-- Where MATRIX_FAR is set, it is the command of a process that has the second library, and the checks are far_checks.
-- Responsible for: running the checks one by one and writing a line of JSON before and after each, so that whoever
-- started this process knows what ran when a library ended it. Must not know: libraries, or what is checked.
local directory = arg[0]:match("^(.*)/[^/]*$") or "."
package.path = directory .. "/?.lua;" .. package.path

local json = require "json"
local library = require "library"
local far = os.getenv "MATRIX_FAR"
local checks = require(far and "far_checks" or "checks")

local from, to, output = arg[1], arg[2], assert(io.open(arg[3], "a"))

local function say(fields)
  output:write(json(fields), "\n")
  output:flush()
end

local function run(name, A, B)
  say { begin = name }
  local cell = { faults = {} }
  function cell.fault(...)
    cell.faults[#cell.faults + 1] = string.format(...)
  end
  local ok, seen = pcall(checks[name], cell, A, B)
  if not ok then
    cell.fault("the check itself: %s", tostring(seen))
  end
  say { done = name, seen = ok and seen or {}, faults = #cell.faults > 0 and cell.faults or nil }
end

say { begin = "import" }
local entries = require "host"
local A = library.open(library.find(entries, from))
local B = far and checks.open(to, far) or library.open(library.find(entries, to))
say { done = "import", seen = { [from] = A.version, [to] = B.version } }
for _, name in ipairs { select(4, unpack(arg)) } do
  run(name, A, B)
end
if far then
  B.close()
end
say { finished = true }
os.exit(0)
