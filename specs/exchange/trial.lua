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

--- What the check saw (nil if it broke), and a list of faults.
function trial.run(check, A, B)
  local cell = { faults = {} }
  function cell.fault(...)
    cell.faults[#cell.faults + 1] = string.format(...)
  end
  local ok, seen = pcall(check, cell, A, B)
  if not ok then
    cell.fault("the check itself: %s", tostring(seen))
  end
  return ok and seen or nil, cell.faults
end

return trial
