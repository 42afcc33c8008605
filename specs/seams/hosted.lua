-- The campaign in a process that Lua hosts: its state is the one whose operations are struck.
local py = require "moonferry.python"
py.start()
local folder = arg[0]:match "^(.*)/" or "."
local strike = py.import "strike"

local function load(name, ...)
  local file = assert(io.open(folder .. "/" .. name))
  local text = file:read "*a"
  file:close()
  return assert(loadstring(text, "=" .. name))(...)
end

local made = load("operations.lua", strike.point, strike.tell)
load("python_operations.lua", made.shared)
load("engine_operations.lua", made.shared)
assert(package.loadlib(py.import("bench").SUPPORT, "support_overwrites"))(true)
local host = py.tuple { py.object(made.helpers), py.object(made.operations) }
io.stdout:flush()
os.exit(py.import("campaign").main("lua", host))
