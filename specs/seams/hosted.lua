-- The campaign in a process that Lua hosts: its state is the one whose operations are struck.
local py = require "moonferry.python"
py.start()
local folder = arg[0]:match "^(.*)/" or "."
local strike = py.import "strike"
local file = assert(io.open(folder .. "/operations.lua"))
local text = file:read "*a"
file:close()
local made = assert(loadstring(text, "=operations.lua"))(strike.point, strike.tell)
local host = py.tuple { py.object(made.helpers), py.object(made.operations) }
io.stdout:flush()
os.exit(py.import("campaign").main("lua", host))
