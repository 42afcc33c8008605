-- Devices: their names, how many there are, waiting for them, and the memory that they keep.
--
-- Invariant: a name is read by C alone, so that every part of Moonferry knows the same ones; what is no name
-- raises, a device that this machine lacks is refused. Must not know: tensors, streams.
local ffi = require "ffi"
local C = require "moonferry.lib"
local errors = require "moonferry.errors"
local foreign = require "moonferry.foreign"
local numbers = require "moonferry.numbers"
local places = require "moonferry.place"

local misuse, show = errors.misuse, errors.show

local device = {}

local CPU = 1
local PINNED_OR_MANAGED = { [3] = true, [11] = true, [13] = true } -- cuda_host, rocm_host, cuda_managed
local DRIVERS = { [2] = "cuda", [3] = "cuda", [13] = "cuda", [10] = "rocm", [11] = "rocm" }

local NAME_NBYTES = 64

local new_device = ffi.typeof "DLDevice[1]"
local take_name, leave_name = places.of_answers "char[64]"
local take_count, leave_count = places.of_answers "int32_t[1]"
local new_stats = ffi.typeof "mf_pool_stats[1]"

--- Whether memory has the name of the host's own.
---@param device_type number
---@return boolean
function device.is_cpu(device_type)
  return device_type == CPU
end

--- Whether memory of this DLDeviceType is no GPU's own, so that the host can read it; managed memory of a driver that
--- does not share it is found out by mf_tensor_acquire.
---@param device_type number
---@return boolean
function device.on_host(device_type)
  return device_type == CPU or PINNED_OR_MANAGED[device_type] == true
end

--- Whether it is memory that the host and any GPU of one driver can reach.
---@param device_type number
---@return boolean
function device.is_shared(device_type)
  return PINNED_OR_MANAGED[device_type] == true
end

--- Which driver the device belongs to; nil for the cpu and what has no backend.
---@param device_type number
---@return string?
function device.driver(device_type)
  return DRIVERS[device_type]
end

--- Reads a name such as "cuda:0" into a DLDevice; anything else raises, naming `what`.
---@param name any
---@param into ffi.cdata*
---@param what string
function device.parse(name, into, what)
  if type(name) ~= "string" or name:find "%z" then -- at which it would end for C
    misuse("%s: expected a name such as \"cpu\", got %s", what, show(name))
  end
  local err = errors.place()
  if not errors.passed(C.mf_device_parse(name, into, err), err) then
    -- What C says begins with the argument's name in it.
    misuse("%s%s", what:gsub("%a+$", ""), errors.text(err))
  end
end

--- The same into a new DLDevice[1].
---@param name any
---@param what string
---@return ffi.cdata*
function device.parsed(name, what)
  local parsed = new_device()
  device.parse(name, parsed[0], what)
  return parsed
end

--- The name of a DLDevice.
---@param dl ffi.cdata*
---@return string
function device.format(dl)
  local at, err = take_name(), errors.place()
  if not errors.passed(C.mf_device_format(dl, at, NAME_NBYTES, err), err) then
    misuse("device: %s", errors.text(err))
  end
  local name = ffi.string(at)
  leave_name(at)
  return name
end

--- Returns the number of devices of a kind: "cuda", "rocm" or "cpu". If there are none, returns nil and the reason.
---@param kind string
---@return number?, string? message, number? code
function device.count(kind)
  if type(kind) ~= "string" or kind:find(":", 1, true) then
    misuse("device_count: type: expected a name such as \"cuda\", got %s", show(kind))
  end
  local first, at, err = device.parsed(kind, "device_count: type"), take_count(), errors.place()
  local rc = C.mf_device_count(first[0].device_type, at, err)
  if not errors.passed(rc, err) then
    return errors.refused("device_count", rc, err)
  end
  local count = at[0]
  leave_count(at)
  return count
end

--- Waits until all work on the device is done, whoever queued it.
---@param name string the device, such as "cuda:0"
---@return true?, string? message, number? code
function device.synchronize(name)
  local which, err = device.parsed(name, "synchronize: device"), errors.place()
  return errors.done("synchronize", foreign.call(C.mf_device_synchronize, which, err), err)
end

---@class moonferry.Pool
---@field used_bytes number held by tensors
---@field cached_bytes number kept for the next ones
---@field limit_bytes number the limit of both together; 0: none
---@field deferred number released memories that wait for queued work
---@field hits number allocations that the cache served
---@field misses number allocations that called the driver

--- Returns how much memory of a device Moonferry holds.
---@param name string a GPU, or pinned or managed memory
---@return moonferry.Pool?, string? message, number? code
function device.pool_stats(name)
  local which, stats, err = device.parsed(name, "pool_stats: device"), new_stats(), errors.place()
  local rc = C.mf_pool_read(which, stats, err)
  if not errors.passed(rc, err) then
    return errors.refused("pool_stats", rc, err)
  end
  local s = stats[0]
  return {
    used_bytes = tonumber(s.used_bytes), cached_bytes = tonumber(s.cached_bytes), limit_bytes = tonumber(s.limit_bytes),
    deferred = tonumber(s.deferred), hits = tonumber(s.hits), misses = tonumber(s.misses),
  }
end

--- Limits how many bytes of a device's memory tensors and cache may use together. An allocation beyond that returns
--- nil, a message and ENOMEM.
---@param name string the device, such as "cuda:0"
---@param nbytes number 0: no limit
---@return true?, string? message, number? code
function device.limit(name, nbytes)
  local which, err = device.parsed(name, "pool_limit: device"), errors.place()
  local rc = C.mf_pool_limit(which, numbers.integer(nbytes, "pool_limit: nbytes"), err)
  return errors.done("pool_limit", rc, err)
end

--- Returns a device's unused memory, streams and events to the driver, without waiting for any work.
---@param name string the device, such as "cuda:0"
---@return true?, string? message, number? code
function device.trim(name)
  local which, err = device.parsed(name, "trim: device"), errors.place()
  return errors.done("trim", foreign.call(C.mf_pool_trim, which, err), err)
end

return device
