-- Makes the garbage collector run before memory runs out.
--
-- LuaJIT's collector counts a tensor as some hundred bytes, whatever it holds. So the bytes that tensors
-- bring are counted here, and when they pass a limit since the last collection, everything is collected.
-- The limit grows where collecting helps little, so that a program with much live data is not slowed down.
-- Invariant: nothing here runs in a finalizer. Must not know: what a tensor is.
local ffi = require "ffi"
local C = require "moonferry.lib"
local owner = require "moonferry.owner"

local GROWTH = 1.4 -- of the limit, where more than SURVIVORS of the bytes outlive a collection
local SURVIVORS = 0.8

local pressure = {}

local new_ledger = ffi.typeof "mf_ledger"
local limit = 256 * 2 ^ 20
local added = 0

local function live()
  local ledger = new_ledger()
  C.mf_ledger_read(ledger)
  return tonumber(ledger.bytes)
end

local function relieve()
  local before = live()
  collectgarbage()
  owner.sweep()
  added = 0
  if live() > SURVIVORS * before then
    limit = limit * GROWTH
  end
end

--- Counts bytes that a new tensor keeps alive; collects when they are too many.
---@param nbytes number
function pressure.add(nbytes)
  added = added + nbytes
  if added > limit then
    relieve()
  end
end

--- Takes back what `add` counted, for a tensor that was closed by hand.
---@param nbytes number
function pressure.subtract(nbytes)
  added = added > nbytes and added - nbytes or 0
end

--- The limit in bytes; sets it first if one is given.
---@param nbytes? number
---@return number
function pressure.limit(nbytes)
  if nbytes then
    limit = nbytes
    added = added > limit and limit or added
  end
  return limit
end

return pressure
