-- Makes the garbage collector run before memory runs out.
--
-- LuaJIT's collector counts a tensor as some hundred bytes, whatever it holds. So the bytes that tensors
-- bring are counted here, and when they pass a limit since the last collection, everything is collected. Tensors that
-- share memory bring it once, however often it was counted: whether it is too much the ledger tells.
-- The limit is a part of what stays alive where that is more, so that a program with much live data is not slowed down.
-- Invariant: nothing here runs in a finalizer. Must not know: what a tensor is.
local ffi = require "ffi"
local C = require "moonferry.lib"
local owner = require "moonferry.owner"

local SHARE = 0.25 -- of what a collection leaves alive

local pressure = {}

local new_ledger = ffi.typeof "mf_ledger"
local wanted = 256 * 2 ^ 20
local limit = wanted
-- Bytes since the last collection: all that was counted, what of that is no element memory and was not closed, and what
-- was alive then.
local added, beside, settled = 0, 0, 0

local function live()
  local ledger = new_ledger()
  C.mf_ledger_read(ledger)
  return tonumber(ledger.bytes)
end

-- What has grown since the last collection. Where less is alive by now, that is what anything grows from.
local function grown()
  local now = live()
  settled = math.min(settled, now)
  return now - settled + beside
end

local function relieve()
  added = grown()
  if added <= limit then
    return
  end
  collectgarbage()
  owner.sweep()
  added, beside, settled = 0, 0, live()
  limit = math.max(wanted, SHARE * settled)
end

--- Counts bytes that a new tensor keeps alive; collects when they are too many.
---@param nbytes number of element memory
---@param more number of other memory
function pressure.add(nbytes, more)
  added, beside = added + nbytes + more, beside + more
  if added > limit then
    relieve()
  end
end

--- Takes back what `add` counted beside element memory, for a tensor that was closed by hand. That memory is in the
--- ledger no more.
---@param more number
function pressure.subtract(more)
  beside = math.max(beside - more, 0)
end

--- The limit in bytes; sets it first if one is given.
---@param nbytes? number
---@return number
function pressure.limit(nbytes)
  if nbytes then
    wanted, limit = nbytes, nbytes
    added = math.min(grown(), limit)
  end
  return limit
end

return pressure
