-- A scope whose end was cut off; scope_spec.lua has all else, which needs no process of its own.
local process = require "process"

describe("a scope", function()
  it("that an error of a debug hook has left is not gone on with", function()
    assert.are.equal("0\t0\n", process.runs [[
local mf = require "moonferry"
local scope = require "moonferry.scope"
jit.off()
-- An error that meets `close` between its last two steps loses the tensor. That is not the question here.
local close = mf.zeros(1).close
local stale, kept = 0, 0
for n = 1, 200 do
  pcall(function()
    mf.scope(function()
      mf.zeros(1)
      local count = 0
      debug.sethook(function()
        count = count + 1
        if count >= n and debug.getinfo(2, "f").func ~= close then debug.sethook() error "stopped" end
      end, "", 1)
    end)
    debug.sethook()
  end)
  debug.sethook()
  collectgarbage()
  collectgarbage()
  stale = stale + (scope.innermost.main and 1 or 0)
  local before = mf.ledger().tensors
  for _ = 1, 3 do mf.zeros(2) end
  collectgarbage()
  collectgarbage()
  kept = kept + mf.ledger().tensors - before
end
print(stale, kept)
]])
  end)

  it("closes what was made in it and gives the outer one back, at whichever instruction such an error comes", function()
    assert.are.equal("0\t0\ttrue\n", process.runs [[
local mf = require "moonferry"
jit.off()
local at, struck, open, lost = 0, true, 0, 0
while struck do
  at, struck = at + 1, false
  local made, later
  local function strike()
    local count = 0
    debug.sethook(function()
      count = count + 1
      if count == at then
        struck = true
        debug.sethook()
        error "stopped"
      end
    end, "", 1)
    mf.scope(function() made = mf.zeros(1) end)
    debug.sethook()
  end
  mf.scope(function()
    pcall(strike)
    debug.sethook()
    open = open + (made and tostring(made) ~= "mf.tensor<closed>" and 1 or 0)
    collectgarbage()
    collectgarbage()
    later = mf.zeros(1)
  end)
  lost = lost + (tostring(later) ~= "mf.tensor<closed>" and 1 or 0)
end
print(open, lost, at > 200)
]])
  end)
end)
