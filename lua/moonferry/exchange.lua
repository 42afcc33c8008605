-- DLPack in and out, as raw cdata, so that any other LuaJIT library can exchange with this one.
--
-- Invariant: a struct that is refused is untouched and still its owner's; one that is given out is the
-- taker's to delete, once, from compiled Lua too: its deleter calls no foreign code. Must not know: layouts, elements,
-- Python.
local ffi = require "ffi"
local C = require "moonferry.lib"
local constants = require("moonferry.cdef").constants
local device = require "moonferry.device"
local errors = require "moonferry.errors"
local places = require "moonferry.place"
local stream = require "moonferry.stream"
local tensor = require "moonferry.tensor"
local transfer = require "moonferry.transfer"

local misuse = errors.misuse
local handle_of = tensor.handle_of
---@class moonferry.Tensor
local Tensor = tensor.Tensor

local exchange = {}

local versioned_t = ffi.typeof("DLManagedTensorVersioned *")
local legacy_t = ffi.typeof("DLManagedTensor *")
local handle_t = ffi.typeof("mf_tensor *")

local TO_OPTIONS = { stream = true, device = true, copy = true }
local WORDS = { no_order = true, host = true, number = true }

-- Where nothing is said, memory that the host can read is made ready for it too, whoever the consumer is.
local function export_to(t, fn, at, opts)
  local handle = handle_of(t)
  opts = transfer.options(opts, TO_OPTIONS, "to_dlpack")
  local request = transfer.request(t, opts.device, opts, WORDS, "to_dlpack")
  if opts.stream == nil and device.on_host(request[0].device.device_type) then
    request[0].stream = constants.MF_STREAM_HOST
  end
  local err = errors.place()
  return errors.done("to_dlpack", errors.call(fn, handle, request, at, err), err)
end

-- The verb that gives out structs of one kind. One that nobody took is deleted with the place.
local function exporter(ctype, plain, requested, delete_later)
  local take, leave = places.of(ctype, function(at)
    local managed = at[0]
    if managed ~= nil then
      delete_later(managed)
      managed.deleter(managed)
    end
  end)
  return function(self, opts)
    local handle, at = handle_of(self), take()
    local ok, message, code
    if opts ~= nil or C.mf_tensor_is_ordered(handle) ~= 0 then
      ok, message, code = export_to(self, requested, at, opts)
    else
      local err = errors.place()
      ok, message, code = errors.done("to_dlpack", errors.call(plain, handle, at, err), err)
    end
    if not ok then
      return nil, message, code
    end
    local managed = at[0]
    delete_later(managed)
    leave(at)
    return managed
  end
end

---@class moonferry.ExportOptions
---@field stream? moonferry.Stream|"host"|"no_order"|number the consumer's stream, which waits for earlier work.
---  A number means what it means to `__dlpack__`; with "no_order" nothing waits. Default: the host for memory that the
---  host can read, otherwise the current stream
---@field device? string default: the tensor's own
---@field copy? boolean true: always copies; false: raises an error if a copy is needed; default: copies if needed

--- Returns a `DLManagedTensorVersioned *` (DLPack 1.3), which keeps the memory alive. The consumer must call
--- `m.deleter(m)` once, on any thread. Until then the memory counts as in use on the consumer's stream. If another
--- library owns the memory, it gets it back when the next tensor is closed or collected.
---@type fun(self: moonferry.Tensor, opts?: moonferry.ExportOptions): ffi.cdata*?, string? message, number? code
Tensor.to_dlpack = exporter("DLManagedTensorVersioned *[1]", function(handle, at, err)
  return C.mf_tensor_export(handle, 0, at, err)
end, C.mf_tensor_export_to, C.mf_export_delete_later)

--- Returns a `DLManagedTensor *`, the struct of DLPack before 1.0. That cannot say that memory is read-only, so a
--- read-only tensor raises an error.
---@type fun(self: moonferry.Tensor, opts?: moonferry.ExportOptions): ffi.cdata*?, string? message, number? code
Tensor.to_dlpack_legacy = exporter("DLManagedTensor *[1]", function(handle, at, err)
  return C.mf_tensor_export_legacy(handle, at, err)
end, C.mf_tensor_export_legacy_to, C.mf_export_delete_later_legacy)

local function import(fn, cdata)
  local at, err = tensor.place(), errors.place()
  local rc = errors.call(fn, cdata, at, err)
  if not errors.passed(rc, err) then
    return errors.refused("from_dlpack", rc, err)
  end
  return tensor.take(at)
end

local function refuse(given, verb, expected)
  local what = tensor.is_tensor(given) and "a tensor, which needs no import; t:copy() copies it"
    or errors.show(given) .. (type(given) == "table" and "; mf.tensor makes a tensor of one" or "")
  misuse("%s: expected %s that is not NULL, got %s", verb, expected, what)
end

local FROM_OPTIONS, NO_WORDS = { stream = true }, {}

-- C takes a device's memory to be ready on the current stream.
local function import_on(fn, cdata, opts)
  local s = transfer.options(opts, FROM_OPTIONS, "from_dlpack").stream
  if s == nil then
    return import(fn, cdata)
  end
  stream.number_of(s, cdata.dl_tensor.device, "from_dlpack: stream", NO_WORDS)
  return stream.run(s, import, fn, cdata)
end

---@class moonferry.ImportOptions
---@field stream? moonferry.Stream the stream on which the memory may be used at once; default: the current one

--- Imports a `DLManagedTensorVersioned *` or a `DLManagedTensor *` without a copy, and takes ownership of it. A
--- malformed one raises an error and stays the caller's. The deleter is called when nothing refers to the memory and
--- the work queued on it is done; that of a struct which this library exported is called at once, and the tensor then
--- shares the memory with the one that was exported.
---@param cdata ffi.cdata*
---@param opts? moonferry.ImportOptions
---@return moonferry.Tensor, string? message, number? code
function exchange.from_dlpack(cdata, opts)
  if type(cdata) == "cdata" and cdata ~= nil then
    if ffi.istype(versioned_t, cdata) then
      return import_on(C.mf_tensor_import, cdata, opts)
    elseif ffi.istype(legacy_t, cdata) then
      return import_on(C.mf_tensor_import_legacy, cdata, opts)
    end
  end
  refuse(cdata, "from_dlpack", "a DLManagedTensorVersioned * or a DLManagedTensor *")
end

--- Returns a tensor that takes over one reference of an `mf_tensor *`, which must have no finalizer. Where Lua has no
--- memory for it, the reference is given back.
---@param cdata ffi.cdata*
---@return moonferry.Tensor
function exchange.from_handle(cdata)
  if type(cdata) == "cdata" and cdata ~= nil and ffi.istype(handle_t, cdata) then
    return tensor.adopt(cdata)
  end
  refuse(cdata, "from_handle", "an mf_tensor *")
end

return exchange
