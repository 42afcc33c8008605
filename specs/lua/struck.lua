-- Calls that are struck by an error at one instruction after another, as by a debug hook that ends a script.
local assert = require "luassert"

local struck = {}

local STRUCK = setmetatable({}, { __tostring = function() return "struck" end })

-- Whether the error came, and how the call ended.
local function at_instruction(at, call)
  local count = 0
  local function hook()
    count = count + 1
    if count == at then error(STRUCK, 0) end
  end
  local ok, result = pcall(function()
    debug.sethook(hook, "", 1)
    local result = call()
    debug.sethook()
    return result
  end)
  debug.sethook()
  return count >= at, ok, result
end

local function same(expected, result)
  return (pcall(assert.are.same, expected, result))
end

-- The instructions at which the error does not come out of the call although what the call gives is not as ever, and
-- how many there are in all. For interpreted code.
local function lost_by(call)
  local expected, lost, at, met = call(), {}, 0, true
  while met do
    at = at + 1
    local ok, result
    met, ok, result = at_instruction(at, call)
    if ok and not same(expected, result) or not ok and result ~= STRUCK then
      lost[#lost + 1] = at .. ": " .. tostring(result)
    end
  end
  return { unpack(lost, 1, 5) }, at
end

--- A spec of each of the calls; `it` is busted's.
function struck.specify(it, calls)
  for name, call in pairs(calls) do
    it("comes out of " .. name .. ", or is nothing", function()
      local lost, count = lost_by(call)
      assert.are.same({}, lost)
      assert.is_true(count > 10)
    end)
  end
end

--- What a refused call says: not that it was struck.
function struck.refused(...)
  local ok, message = pcall(...)
  if ok or message == STRUCK then error(message, 0) end
  return tostring(message)
end

return struck
