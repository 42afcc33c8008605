-- The campaign in a process that Lua hosts: its state is the one whose operations are struck.
local py = require "moonferry.python"
py.start()
local folder = arg[0]:match "^(.*)/" or "."
local strike = py.import "strike"

local made = assert(loadfile(folder .. "/every_operation.lua"))(folder, strike.point, strike.tell)
assert(package.loadlib(py.import("bench").SUPPORT, "support_overwrites"))(true)
local host = py.tuple { py.object(made.helpers), py.object(made.operations) }
io.stdout:flush()
os.exit(py.import("campaign").main("lua", host))
