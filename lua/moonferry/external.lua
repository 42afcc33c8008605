-- What another graphics API, such as Vulkan, has exported as file descriptors: its memory as tensors of a GPU, and its
-- semaphores, for which streams wait and which they signal.
--
-- Invariant: a descriptor is the library's once a function has returned what it made, and the caller's after a refusal
-- or an error, such as that of a Lua without memory. Must not know: which API it came from.
local ffi = require "ffi"
local finalizers = require "moonferry.finalizer"
local C = require "moonferry.lib"
local create = require "moonferry.create"
local device = require "moonferry.device"
local errors = require "moonferry.errors"
local hint = require "moonferry.hint"
local numbers = require "moonferry.numbers"
local places = require "moonferry.place"
local stream = require "moonferry.stream"
local tensor = require "moonferry.tensor"
local transfer = require "moonferry.transfer"

local misuse, show = errors.misuse, errors.show

local BINARY = 1 -- MF_SEMAPHORE_BINARY
local NO_WORDS = {}
local MEMORY_OPTIONS = { device = true, nbytes = true, byte_offset = true }
local SEMAPHORE_OPTIONS = { device = true, binary = true }
local release = C.mf_semaphore_release
local finalize = finalizers.of(release)
local take_place, handle_at = places.handles("mf_semaphore *[1]", release, finalize)
local uint64_t = ffi.typeof "uint64_t"

local external = {}

local duplicate, close
if ffi.os ~= "Windows" then
  pcall(ffi.cdef, 'int mf_lua_dup(int fd) __asm__("dup"); int mf_lua_close(int fd) __asm__("close");')
  duplicate, close = ffi.C.mf_lua_dup, ffi.C.mf_lua_close
end

-- C takes over a copy, because Lua may have no memory for what C made of it. Where there is no copy, the descriptor
-- itself: C says what is wrong with that.
local function copy_of(fd)
  local copy = duplicate and duplicate(fd) or -1
  return copy >= 0 and copy or fd
end

-- Of a descriptor and its copy C has the other one. This needs no memory.
local function close_one(fd, other)
  if fd ~= other then
    close(fd)
  end
end

local function count_of(value, what)
  local number = ffi.istype(uint64_t, value) and value or numbers.integer(value, what)
  if number < 0 then
    misuse("%s: expected 0 or more, got %s", what, show(value))
  end
  return number
end

---@class moonferry.external.MemoryOptions
---@field device string
---@field nbytes number as it was allocated there
---@field byte_offset? number where the tensor begins, default 0

--- A compact tensor of a GPU over memory that another API exported as an opaque file descriptor, which is the library's
--- then. What that API's queue still does there is waited for before, or by a semaphore.
---@param fd number
---@param shape number[]
---@param name string dtype
---@param opts moonferry.external.MemoryOptions
---@return moonferry.Tensor?, string? message, number? code
function external.tensor(fd, shape, name, opts)
  if opts == nil then
    misuse("external.tensor: options: expected a table with device and nbytes, got nil")
  end
  opts = transfer.options(opts, MEMORY_OPTIONS, "external.tensor")
  local nbytes = count_of(opts.nbytes, "external.tensor: nbytes")
  local like, extents = create.describe(shape, name, opts.device)
  like[0].byte_offset = count_of(opts.byte_offset or 0, "external.tensor: byte_offset")
  like[0].shape = extents
  local number = numbers.small(fd, "external.tensor: fd")
  local place, err = tensor.place(), errors.place()
  local copy = copy_of(number)
  local rc = C.mf_tensor_from_fd(like, copy, nbytes, place, err)
  if not errors.passed(rc, err) then
    close_one(copy, number)
    return errors.refused("external.tensor", rc, err)
  end
  local t = tensor.take(place)
  close_one(number, copy)
  return t
end

---@class moonferry.external.Semaphore
---@field device string
local Semaphore = {}
Semaphore.__index = Semaphore

--- A semaphore that another API exported as an opaque file descriptor, which is the library's then: a timeline, or with
--- `binary` one that is signalled or not. `nil, message, code` where the driver has none: then the host waits instead.
---@param fd number
---@param opts { device: string, binary: boolean? }
---@return moonferry.external.Semaphore?, string? message, number? code
function external.semaphore(fd, opts)
  if opts == nil then
    misuse("external.semaphore: options: expected a table with a device, got nil")
  end
  opts = transfer.options(opts, SEMAPHORE_OPTIONS, "external.semaphore")
  local which, at, err = device.parsed(opts.device, "external.semaphore: device"), take_place(), errors.place()
  local number = numbers.small(fd, "external.semaphore: fd")
  local copy = copy_of(number)
  local rc = C.mf_semaphore_from_fd(which, copy, opts.binary and BINARY or 0, at, err)
  if not errors.passed(rc, err) then
    close_one(copy, number)
    return errors.refused("external.semaphore", rc, err)
  end
  local semaphore = setmetatable({ device = opts.device, _dl = which, handle = handle_at(at) }, Semaphore)
  close_one(number, copy)
  return semaphore
end

local function queue(self, verb, call, on, value)
  if not self.handle then
    misuse("%s: the semaphore is closed", verb)
  end
  local number = stream.number_of(on, self._dl[0], verb .. ": stream", NO_WORDS)
  local err = errors.place()
  return errors.done(verb, call(self.handle, number, count_of(value or 0, verb .. ": value"), err), err)
end

--- What is queued on that stream (nil: the current one) from now on comes after the semaphore has `value` or more; a
--- binary one has none. The host waits for nothing. `t:record(on, "write")` says so of a tensor, so that other streams
--- wait for this one.
---@param on moonferry.Stream?
---@param value number?
---@return true?, string? message, number? code
function Semaphore:wait(on, value)
  return queue(self, "wait", C.mf_semaphore_wait, on, value)
end

--- The semaphore gets `value` when all that the stream has queued until now is done. `t:acquire(on, "write")` makes the
--- stream wait for what others do with a tensor, before.
---@param on moonferry.Stream?
---@param value number?
---@return true?, string? message, number? code
function Semaphore:signal(on, value)
  return queue(self, "signal", C.mf_semaphore_signal, on, value)
end

--- Gives it back to the driver, behind what was queued with it.
function Semaphore:close()
  local handle = self.handle
  if handle then
    self.handle = nil
    places.release(handle, release, finalize)
  end
end

hint.guard(external, "moonferry.external", "external.", errors)

return external
