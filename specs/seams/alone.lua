-- Each operation of Lua's while two threads of Python's run. One calls into the same state as often as it can: it gets
-- its turn inside of calls into Python alone, never once one has returned. The other only counts, and goes on counting
-- while Lua code runs, which has not got the GIL. Ends in an error that names the operations for which this does not
-- hold, or that give something else then; prints how many operations there were.
local device = arg[1]
local folder = arg[0]:match "^(.*)/" or "."
local mf = require "moonferry"
local py = require "moonferry.python"
py.start()

local COUNTS = 20
local PATIENCE = 60 -- seconds

local made = assert(loadfile(folder .. "/every_operation.lua"))(folder, function() end, print)
made.helpers.set("interpreted", device)

local calls = 0
py.main.call = function()
  calls = calls + 1
end
py.main.counted = mf.zeros({ 1 }, "int64")
local counted = py.main.counted:ptr()
py.exec [[
import gc, threading, time
import numpy
gc.set_threshold(1, 10000, 10000)
ends, numbers = threading.Event(), numpy.from_dlpack(counted)
def work():
    while not ends.is_set():
        call()
def count():
    while not ends.is_set():
        numbers[0] += 1
        time.sleep(1e-5)
threads = [threading.Thread(target=work), threading.Thread(target=count)]
]]

-- How often the one has called, and the other counted, while Lua code runs: until the other has had so many turns that
-- the one had some, too. Lua's collector rests meanwhile: a deleter of Python's is a call into Python.
local function turns_of_others()
  collectgarbage "stop"
  local before, from, till = calls, counted[0], os.time() + PATIENCE
  while counted[0] - from < COUNTS and os.time() < till do end
  collectgarbage "restart"
  return calls - before, tonumber(counted[0] - from)
end

local function shown(value)
  return type(value) == "table" and #value or tostring(value)
end

local operations = made.operations
-- Where the bridge itself drops an exception.
operations["an error without a text"] = function()
  py.exec "class Unprintable(Exception):\n    def __str__(self): raise ValueError"
  local _, e = pcall(py.raise, py.main.Unprintable, 1)
  return #tostring(e), e.message
end

local number, expected, wrong = 0, {}, {}
local function open()
  local t = mf.tensor({ { 0, 1, 2 }, { 3, 4, 5 } }, "float32"):to(device, { copy = true })
  made.helpers.open(t, mf.zeros({ 2, 3 }, "float32", { device = device }))
end

for name, operation in pairs(operations) do
  open()
  operation()
  expected[name] = shown(operation())
  number = number + 1
end
for thread in py.iter(py.main.threads) do
  thread:start()
end
for name, operation in pairs(operations) do
  open()
  local ok, given = pcall(operation)
  local others, counts = turns_of_others()
  if not ok or shown(given) ~= expected[name] then
    table.insert(wrong, ("%s gives %s, not %s"):format(name, shown(given), expected[name]))
  elseif others > 0 then
    table.insert(wrong, ("%s: another thread called %d times while Lua code ran here"):format(name, others))
  elseif counts < COUNTS then
    table.insert(wrong, name .. ": threads of Python's wait while Lua code runs here")
  end
end
assert(calls > number, "the thread hardly had a turn")
py.main.ends:set()
for thread in py.iter(py.main.threads) do
  thread:join()
end
assert(#wrong == 0, table.concat(wrong, "\n"))
print(number .. " operations")
made.helpers.close()
made.helpers.settle()
