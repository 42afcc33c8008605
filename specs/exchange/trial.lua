-- How a check is run, whichever it is: what it says of a cell is gathered, and one that breaks is a fault of the cell.
local py = require "moonferry.python"

local trial = {}

--- What either language has dropped is gone afterwards.
function trial.collect()
  for _ = 1, 2 do
    collectgarbage()
    py.collect()
    py.import("gc").collect()
  end
end

--- The line of an error that says what is the matter, without the place in Lua, and without a function in C++: the
--- first, or where a traceback stands before the exception, as in MXNet's and PaddlePaddle's errors, the last
--- line that names an error.
function trial.reason(message)
  local text = tostring(message):gsub("%s+$", "")
  if text:find("Traceback", 1, true) then
    local named
    for line in text:gmatch "[^\n]+" do
      named = line:match "^%s*([%w_.]*Error: .*)$" or named
    end
    text = named or text:match "[^\n]*$"
  end
  local first = (text:match("^[^\n]*") or text):gsub("^%S+%.lua:%d+: ", ""):gsub("/%S+%.cc:%d+ .-%) ", "", 1)
  return #first > 240 and first:sub(1, 237) .. "..." or first
end

--- What the check saw (nil if it broke), a list of faults, and which of the arrays lay at odd addresses.
function trial.run(check, A, B)
  local cell = { faults = {}, unaligned = {} }
  function cell.fault(...)
    cell.faults[#cell.faults + 1] = string.format(...)
  end
  local ok, seen = pcall(check, cell, A, B)
  if not ok then
    cell.fault("the check itself: %s", tostring(seen))
  end
  return ok and seen or nil, cell.faults, cell.unaligned
end

return trial
