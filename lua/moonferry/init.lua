--- Moonferry for LuaJIT: strided tensors that LuaJIT reads and writes at C's speed, and that other libraries can share.
---
--- Coordinates and axes count from 0, negative ones from the end. Every Lua table counts from 1: `t.shape[1]` is the
--- first extent.
---
--- Misuse raises an error at the caller's line. What can fail in a correct program (no memory, no such device, a
--- driver's error, a graph that is being captured) returns `nil, message, code` instead; such functions show `string?
--- message, number? code` among their results.
---
--- `row`, `rows`, `ptr`, `at` and `set` are for loops and check nothing: `row[4]` of a row of four elements reads
--- memory outside the tensor. MOONFERRY_CHECKED=1 in the environment makes all of them but `ptr` check; that is slow
--- and meant for development. `#t`, `pairs(t)` and `ipairs(t)` do not see the elements (in a LuaJIT built with Lua
--- 5.2's functions they raise an error): use `t.size` and `t:rows()`.
---
--- A NaN may have any bits: an integer that is read as a float, or what a file of unknown origin has. `get`, `at`,
--- `item` and `tolist` give NaN for each. The pointers of `row`, `rows` and `ptr` are LuaJIT's own, and LuaJIT may take
--- such bits for a value of another type, at an address that is none: do not read such elements through them.
---
---     local mf = require "moonferry"
---     local t = mf.zeros({ 480, 640 }, "float32")
---     for y, row in t:rows() do
---       for x = 0, 639 do row[x] = x * y end
---     end
---
--- Work on a GPU is queued on the device's current stream. A use of memory on another stream waits, on the device, for
--- the earlier uses:
---
---     local s = mf.stream "cuda:0"
---     local g = mf.with_stream(s, t.to, t, "cuda:0")
---     local m = g:to_dlpack { stream = other }
local C = require "moonferry.lib" -- first: it says what to do where there is no LuaJIT
local ffi = require "ffi"
local device = require "moonferry.device"
local tensor = require "moonferry.tensor"
local create = require "moonferry.create"
local exchange = require "moonferry.exchange"
local sentinels = require "moonferry.view"
local numbers = require "moonferry.numbers"
local errors = require "moonferry.errors"
local hint = require "moonferry.hint"
local foreign = require "moonferry.foreign"
local owner = require "moonferry.owner"
local npy = require "moonferry.npy"
local pressure = require "moonferry.pressure"
local scope = require "moonferry.scope"
local fields = require "moonferry.fields"
local ring = require "moonferry.ring"
local stream = require "moonferry.stream"
require "moonferry.element"
require "moonferry.bulk"
require "moonferry.format"
local asked = os.getenv "MOONFERRY_THREADS"
if asked and asked ~= "" and not (asked:find "^%d+$" and tonumber(asked) >= 1 and tonumber(asked) <= 64) then
  error(("MOONFERRY_THREADS is %q; a number from 1 to 64 expected"):format(asked))
end

local checked = os.getenv "MOONFERRY_CHECKED"
if checked and checked ~= "" and checked ~= "0" then
  require "moonferry.checked"
end

---@class moonferry
---@field all table for `t:view`: keeps the whole axis
---@field newaxis table for `t:view`: inserts an axis of extent 1
---@field ellipsis table for `t:view`: keeps the axes that are left
---@field ENOMEM number the code for "no memory"
---@field EDEVICE number the code for "no such device"
---@field EDRIVER number the code for "a driver call failed"
---@field ECAPTURE number the code for "a stream is being captured, and the graph cannot contain this"
---@field ETIMEOUT number the code for "the time limit passed"
---@field version string Moonferry's version
local mf = {
  empty = create.empty,
  zeros = create.zeros,
  ones = create.ones,
  full = create.full,
  tensor = create.tensor,
  wrap = create.wrap,
  from_dlpack = exchange.from_dlpack,
  from_handle = exchange.from_handle,
  load = npy.load,
  save = npy.save,
  is_tensor = tensor.is_tensor,
  scope = scope.run,
  fields = fields.of,
  ring = ring.create,
  ring_from_handle = ring.from_handle,
  stream = stream.create,
  default_stream = stream.default,
  per_thread_stream = stream.per_thread,
  wrap_stream = stream.wrap,
  current_stream = stream.current,
  with_stream = stream.with,
  stream_none = stream.none,
  is_stream = stream.is_stream,
  device_count = device.count,
  synchronize = device.synchronize,
  pool_stats = device.pool_stats,
  pool_limit = device.limit,
  trim = device.trim,
  guard = require "moonferry.guard",
  all = sentinels.all,
  newaxis = sentinels.newaxis,
  ellipsis = sentinels.ellipsis,
  ENOMEM = C.MF_ENOMEM,
  EDEVICE = C.MF_EDEVICE,
  EDRIVER = C.MF_EDRIVER,
  ECAPTURE = C.MF_ECAPTURE,
  ETIMEOUT = C.MF_ETIMEOUT,
  version = ffi.string(C.mf_version_string()),
}

local new_double = ffi.typeof "double"

local function part_of(value, name)
  if type(value) ~= "number" and not (type(value) == "cdata" and errors.converts(new_double, value)) then
    errors.misuse("complex: %s: expected a number, got %s", name, errors.show(value))
  end
  return value
end

--- Returns a complex number of LuaJIT's own type, with the fields `re` and `im`.
---@param re number
---@param im? number
---@return ffi.cdata*
function mf.complex(re, im)
  return ffi.new("complex", part_of(re, "re"), part_of(type(im) == "nil" and 0 or im, "im"))
end

local new_ledger = ffi.typeof "mf_ledger"

--- Returns how many tensors, storages, bytes of element memory and blocks of the allocator are alive in this process.
---@return { tensors: number, storages: number, bytes: number, blocks: number }
function mf.ledger()
  foreign.run()
  owner.sweep()
  local ledger = new_ledger()
  C.mf_ledger_read(ledger)
  return {
    tensors = tonumber(ledger.tensors), storages = tonumber(ledger.storages),
    bytes = tonumber(ledger.bytes), blocks = tonumber(ledger.blocks),
  }
end

--- Sets how many threads share one large copy, cast, fill or comparison in host memory, in the whole process, and
--- returns the number. The number includes the calling thread. 1 starts no threads; 0 restores the first setting:
--- `MOONFERRY_THREADS` in the environment, else the number of processors. Without an argument nothing is changed.
---@param n? number
---@return number
function mf.threads(n)
  if n ~= nil then
    local wanted, err = numbers.small(n, "threads: n"), errors.place()
    local rc = C.mf_threads_set(wanted, err)
    if not errors.passed(rc, err) then
      return errors.refused("threads", rc, err)
    end
  end
  return C.mf_threads()
end

--- Sets how many bytes of element memory new tensors may add before Lua's garbage is collected, and returns the limit.
--- It starts at 256 MiB, and is a quarter of the data that stays alive where that is more. Without an argument nothing
--- is changed.
---@param nbytes? number
---@return number
function mf.gc_limit(nbytes)
  if nbytes ~= nil then
    nbytes = tonumber(numbers.integer(nbytes, "gc_limit: nbytes"))
    if nbytes < 0 then
      errors.misuse("gc_limit: nbytes: expected an integer of at least 0, got %s", errors.show(nbytes))
    end
  end
  return pressure.limit(nbytes)
end

local function has_no(key, purpose)
  local instead = hint.of_module(key, mf)
  errors.misuse("moonferry has no %s%s%s", errors.show(key), purpose, instead and "; use " .. instead or "")
end

local meta = {}

function meta.__index(_, key)
  has_no(key, "")
end

-- A name that is new here would go unread: a slip of the finger, or a setting of another library.
function meta.__newindex(_, key)
  has_no(key, " to set")
end

setmetatable(mf, meta)

return mf
