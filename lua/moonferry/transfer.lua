-- Tensors and streams: to another device, and the order between one's own work and Moonferry's.
--
-- Responsible for: turning a device, a stream and `copy` into an mf_request. Invariant: a stream that goes to C
-- is one of the device that C takes it for. Must not know: how elements are read, what a consumer does.
local ffi = require "ffi"
local C = require "moonferry.lib"
local device = require "moonferry.device"
local errors = require "moonferry.errors"
local stream = require "moonferry.stream"
local tensor = require "moonferry.tensor"

local misuse, show = errors.misuse, errors.show
---@class moonferry.Tensor
local Tensor, handle_of = tensor.Tensor, tensor.handle_of

local transfer = {}

local new_request = ffi.typeof "mf_request[1]"
local USES = { read = C.MF_READ, write = C.MF_WRITE }

local function copy_of(value, verb)
  if value == nil then
    return C.MF_COPY_IF_NEEDED
  elseif type(value) ~= "boolean" then
    misuse("%s: copy: expected true, false or nil, got %s", verb, show(value))
  end
  return value and C.MF_COPY_ALWAYS or C.MF_COPY_NEVER
end

--- Checks an options table. (Without pairs, as in owner.lua.)
---@param opts any
---@param allowed table<string, boolean>
---@param verb string
---@return table
function transfer.options(opts, allowed, verb)
  if opts == nil then
    return {}
  elseif type(opts) ~= "table" or tensor.is_tensor(opts) or stream.is_stream(opts) then
    local such = type(opts) == "string" and allowed.device
    misuse("%s: options: expected a table%s, got %s", verb, such and (" such as { device = %q }"):format(opts) or "",
      show(opts))
  end
  local key = next(opts)
  while key ~= nil do
    if not allowed[key] then
      misuse("%s: options: unknown option %s", verb, show(key))
    end
    key = next(opts, key)
  end
  return opts
end

--- A new request for what is asked of `t`. Where the target has no streams, the stream is one of the
--- memory that `t` is in now.
---@param t moonferry.Tensor
---@param name? string the target device; nil: where the tensor is
---@param opts { copy: boolean?, stream: any? }
---@param words table<string, boolean> what else than a stream may be given
---@return ffi.cdata*
function transfer.request(t, name, opts, words, verb)
  local request = new_request()
  local r, source = request[0], t._dl.device
  if name == nil then
    r.device = source
  else
    device.parse(name, r.device, verb .. ": device")
  end
  local target = device.driver(r.device.device_type) and r.device or source
  r.copy, r.zero = copy_of(opts.copy, verb), 0
  r.stream = stream.number_of(opts.stream, target, verb .. ": stream", words)
  return request
end

local TO_OPTIONS, NO_WORDS = { copy = true, stream = true }, {}

---@class moonferry.ToOptions
---@field copy? boolean true: always copies; false: raises an error if a copy is needed; default: copies if needed
---@field stream? moonferry.Stream the stream that makes the copy; default: the current one

--- Returns the tensor on another device: a view if the memory is already there or both devices reach it, otherwise a
--- compact copy. The result is a new object, which is closed by itself. A copy to the cpu is complete on return; a copy
--- from the cpu waits only until the host's memory has been read.
---@param name string the device
---@param opts? moonferry.ToOptions
---@return moonferry.Tensor?, string? message, number? code
function Tensor:to(name, opts)
  local handle = handle_of(self)
  if name == nil then
    misuse("to: device: expected a name such as \"cpu\", got nil")
  end
  opts = transfer.options(opts, TO_OPTIONS, "to")
  local asked = transfer.request(self, name, opts, NO_WORDS, "to")
  local place, err = tensor.place(), errors.place()
  local rc = errors.call(C.mf_tensor_to, handle, asked, place, err)
  if not errors.passed(rc, err) then
    return errors.refused("to", rc, err)
  end
  return tensor.take_from(place, self)
end

local function use_of(use, verb)
  local known = USES[use]
  if not known then
    misuse("%s: use: expected \"read\" or \"write\", got %s", verb, show(use))
  end
  return known
end

local function ordered(t, verb, fn, s, use, words)
  local handle = handle_of(t)
  local number = stream.number_of(s, t._dl.device, verb .. ": stream", words)
  local known, err = use_of(use, verb), errors.place()
  return errors.done(verb, fn(handle, number, known, err), err, t)
end

local HOST_WORD = { host = true }

--- Call this before you queue work of your own on the tensor's memory. The stream `s` then waits until it may use the
--- memory; later uses of the memory, and its release, wait for the work that is on `s` by then. Returns the tensor.
---@param s moonferry.Stream|"host"|nil nil: the current stream; "host": the host itself waits
---@param use "read"|"write" what your work does with the memory
---@return moonferry.Tensor?, string? message, number? code
function Tensor:acquire(s, use)
  return ordered(self, "acquire", C.mf_tensor_acquire, s, use, HOST_WORD)
end

--- As `acquire`, but the stream does not wait. Call this after you have queued work that uses the memory. Returns the
--- tensor.
---@param s moonferry.Stream? default the current one
---@param use "read"|"write" what your work does with the memory
---@return moonferry.Tensor?, string? message, number? code
function Tensor:record(s, use)
  return ordered(self, "record", C.mf_tensor_record, s, use, NO_WORDS)
end

return transfer
