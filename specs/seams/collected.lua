-- Each operation of Lua's, with Lua's memory overwritten where it is given back: once interpreted, with a full
-- collection behind each few of its instructions, and some times compiled, with a collector that never rests. Prints
-- what gives something else then, and how many operations there were.
local device, stride = arg[1], tonumber(arg[2])
local folder = arg[0]:match "^(.*)/" or "."
package.path = folder .. "/../lua/?.lua;" .. package.path
local collecting = require "collecting"
local mf = require "moonferry"
local py = require "moonferry.python"
py.start()

local TURNS = 12

local function nothing() end

local made = assert(loadfile(folder .. "/every_operation.lua"))(folder, nothing, print)
made.helpers.set("interpreted", device)

local function shown(value)
  return type(value) == "table" and #value or tostring(value)
end

local function judge(name, expected, ok, given)
  if not ok or shown(given) ~= expected then
    print(("%s gives %s, not %s"):format(name, shown(given), expected))
  end
end

local number = 0
for name, operation in pairs(made.operations) do
  local t = mf.tensor({ { 0, 1, 2 }, { 3, 4, 5 } }, "float32"):to(device, { copy = true })
  made.helpers.open(t, mf.zeros({ 2, 3 }, "float32", { device = device }))
  operation()
  local expected = shown(operation())
  judge(name, expected, pcall(collecting.call, stride, operation))
  judge(name .. ", compiled,", expected, pcall(collecting.call_compiled, TURNS, operation))
  jit.off()
  number = number + 1
end
print(number .. " operations")
made.helpers.close()
made.helpers.settle()
