-- Rings: some host memories in turn, so that one is written while others are still drawn.
--
-- Responsible for: mf.ring and what its methods do with C's mf_ring. Invariant: the tensors of the slots are made once,
-- and so are the views that another library has of them, so that a frame makes no object. Both are the ring's and of no
-- scope: a scope closes the ring. Must not know: whose queue a fence is of.
local ffi = require "ffi"
local finalizers = require "moonferry.finalizer"
local C = require "moonferry.lib"
local constants = require("moonferry.cdef").constants
local create = require "moonferry.create"
local errors = require "moonferry.errors"
local hint = require "moonferry.hint"
local numbers = require "moonferry.numbers"
local places = require "moonferry.place"
local scope = require "moonferry.scope"
local tensor = require "moonferry.tensor"

local misuse, show = errors.misuse, errors.show

---@class moonferry.Ring
---@field slots moonferry.Tensor[] the slots; slot number i is slots[i]
---@field handle ffi.cdata* the mf_ring *, for C or for another Lua state
local Ring = {}
local meta, closed = { moonferry_open = true }, { moonferry_open = false }

local ring = { Ring = Ring }

local take_number, leave_number = places.of_answers "int32_t[2]"
-- Without a result, for which LuaJIT would want memory when the reference has been taken.
pcall(ffi.cdef, 'void mf_lua_ring_keep(mf_ring *r) __asm__("mf_ring_retain");')

local new_handles = ffi.typeof "mf_tensor *[?]"
local FOREVER, SECOND = 0x7fffffffffffffffLL, 1e9

local release = C.mf_ring_release
local finalize = finalizers.of(release)
local take_place, handle_at, handle_kept = places.handles("mf_ring *[1]", release, finalize, C.mf_lua_ring_keep)

function closed.__index(_, key)
  if key == "close" then
    return Ring.close
  end
  misuse("%s: ring closed, by r:close() or at the end of mf.scope; s:keep(r) lets one out of a scope", tostring(key))
end

function closed.__newindex(_, key)
  closed.__index(nil, key)
end

function closed.__tostring()
  return "mf.ring<closed>"
end

-- The list of slots that a program gets is another one than the ring's own.
local function slots_of(r)
  r._list = r._list or { unpack(r._slots) }
  return r._list
end

local FIELDS = { slots = slots_of, handle = function(r)
  return r._handle
end }

function meta.__index(r, key)
  local found = Ring[key]
  if found then
    return found
  elseif FIELDS[key] then
    return FIELDS[key](r)
  end
  misuse("a ring has no field %s%s", show(key), hint.instead(key, "r", Ring, FIELDS))
end

function meta.__newindex(_, key)
  misuse("a ring has no field %s that can be set", show(key))
end

function meta.__len()
  misuse("a ring is not counted with #; use #r.slots")
end

function meta.__tostring(r)
  return ("mf.ring<%d slots of %s>"):format(#r._slots, tostring(r._slots[1]))
end

local function handle_of(r, verb)
  if getmetatable(r) ~= meta then
    misuse("%s: expected an open ring, got %s", verb, show(r))
  end
  return r._handle
end

-- The ring holds a reference to each slot; Lua's tensors are made of others.
local function tensors_of(handle)
  local slots = {}
  for i = 1, C.mf_ring_count(handle) do
    slots[i] = tensor.keep(C.mf_ring_slot(handle, i - 1))
  end
  return slots
end

local function adopt(handle)
  local slots = scope.outside(tensors_of, handle)
  local r = setmetatable({ _handle = handle, _slots = slots, _views = false, _list = false }, meta)
  if scope.active() then
    scope.register(r)
  end
  return r
end

--- A ring of tensors, each over a memory of its own.
---@param tensors moonferry.Tensor[]
---@return moonferry.Ring?, string? message, number? code
function ring.of(tensors)
  local handles, at, err = new_handles(math.max(#tensors, 1)), take_place(), errors.place()
  for i = 1, #tensors do
    handles[i - 1] = tensor.handle_of(tensors[i])
  end
  local rc = errors.call(C.mf_ring_create, handles, #tensors, at, err)
  if not errors.passed(rc, err) then
    return errors.refused("ring", rc, err)
  end
  return adopt(handle_at(at))
end

--- A ring of what make(1), make(2) and so on give, which is the ring's alone. None of it is left where there is no
--- ring.
---@param count number
---@param make fun(i: number): moonferry.Tensor?, string? message, number? code
---@return moonferry.Ring?, string? message, number? code
function ring.of_each(count, make)
  local made, r, message, code = {}, nil, nil, nil
  for i = 1, count do
    made[i], message, code = make(i)
    if not made[i] then
      break
    end
  end
  if #made == count then
    r, message, code = ring.of(made)
  end
  for _, t in ipairs(made) do
    t:close()
  end
  return r, message, code
end

--- How many slots a ring is to have, as an integer, 3 where nothing is said.
function ring.count(value, what)
  local count = numbers.integer(value or 3, what)
  if count < 1 or count > constants.MF_RING_MAX then
    misuse("%s: expected a number from 1 to %d, got %s", what, constants.MF_RING_MAX, show(value))
  end
  return tonumber(count)
end

--- Returns a ring: slots of host memory, of which one is written while others are still read. Its slots are new tensors
--- of zeros, or the tensors in a list.
---@param shape number[]|moonferry.Tensor[]
---@param name? string dtype, default "float32"
---@param count? number of slots, default 3
---@return moonferry.Ring?, string? message, number? code
function ring.create(shape, name, count, ...)
  if tensor.is_tensor(shape) then
    misuse("ring: expected a shape or a list of tensors, got a tensor; { t, u } makes a ring of two")
  elseif type(shape) == "table" and tensor.is_tensor(shape[1]) then
    if name ~= nil or count ~= nil then
      misuse("ring: a list of tensors has their dtype and their number; got %s beside it", show(name or count))
    end
    return ring.of(shape)
  elseif select("#", ...) > 0 then
    misuse("ring: expected a shape, a dtype and the number of slots, and got %s beside them", show((...)))
  end
  return ring.of_each(ring.count(count, "ring: slots"), function()
    return create.zeros(shape, name)
  end)
end

--- Returns the ring of an `mf_ring *` that a C program or another Lua state holds. It takes a reference of its own.
---@param handle ffi.cdata*
---@return moonferry.Ring
function ring.from_handle(handle)
  if not ffi.istype("mf_ring *", handle) or handle == nil then
    misuse("ring_from_handle: expected an mf_ring *, got %s", show(handle))
  end
  return adopt(handle_kept(handle))
end

local function nanoseconds(seconds, what)
  if seconds == nil then
    return FOREVER
  elseif type(seconds) ~= "number" or not (seconds >= 0 and seconds < 9e9) then
    misuse("%s: seconds: expected a number of at least 0, below 9e9 (nil has no limit), got %s", what, show(seconds))
  end
  return ffi.cast("int64_t", seconds * SECOND)
end

--- Returns the slot to write next and its number, from 1. Waits until that slot's fence is done, or for at most
--- `seconds`.
---@param seconds? number default: no limit
---@return moonferry.Tensor?, number|string number_or_message, number? code
function Ring:begin(seconds)
  local handle, at, time = handle_of(self, "begin"), take_number(), nanoseconds(seconds, "begin")
  local err, slots = errors.place(), self._slots -- which a fence that is asked may close
  local rc = C.mf_ring_begin(handle, time, at, err)
  if not errors.passed(rc, err) then
    return errors.refused("begin", rc, err)
  end
  local i = at[0] + 1
  leave_number(at)
  return slots[i], i
end

local fence_t, new_pointer = ffi.typeof "mf_fence", ffi.typeof "const mf_fence *[1]"

local function put(at, value)
  at[0] = value
end

-- A cdata of another type would be refused by LuaJIT, at a line of this file. (A pointer to nothing is nil to LuaJIT's
-- ==, whatever its type.)
local function is_fence(value)
  return ffi.istype(fence_t, value) or type(value) == "cdata" and errors.converts(put, new_pointer(), value)
end

local function check_fence(fence, use, what)
  if type(fence) ~= "nil" and not is_fence(fence) then
    misuse("%s: fence: expected an mf_fence, got %s", what, show(fence))
  elseif type(use) ~= "nil" and type(use) ~= "number" then
    misuse("%s: use: expected C.MF_READ or C.MF_WRITE, got %s", what, show(use))
  elseif use then
    numbers.small(use, what .. ": use")
  end
end

--- Ends the writing that `begin` started, and puts the slot at the end of the ring. The slot stays in use until `fence`
--- is done.
---@param fence? ffi.cdata* an mf_fence; nil frees the slot at once
---@param use? number what the work behind the fence does: 1 reads (default), 2 writes
---@return true?, string? message, number? code
function Ring:done(fence, use)
  local handle = handle_of(self, "done")
  check_fence(fence, use, "done")
  local err = errors.place()
  return errors.done("done", C.mf_ring_end(handle, fence, use or C.MF_READ, err), err)
end

--- Ends the writing that `begin` started, and makes the slot the one that `latest` returns.
---@return true?, string? message, number? code
function Ring:publish()
  local handle, err = handle_of(self, "publish"), errors.place()
  return errors.done("publish", C.mf_ring_publish(handle, err), err)
end

--- Returns the slot that was published last, its number, and whether it differs from the last call's; nil if no slot
--- was published. Never waits.
---@return moonferry.Tensor?, number? number, boolean? fresh
function Ring:latest()
  local handle, at, slots = handle_of(self, "latest"), take_number(), self._slots
  C.mf_ring_latest(handle, at, at + 1, nil)
  local i, fresh = at[0] + 1, at[1] ~= 0
  leave_number(at)
  if i == 0 then
    return nil
  end
  return slots[i], i, fresh
end

--- Keeps the reader's slot in use until `fence` is done.
---@param fence ffi.cdata* an mf_fence
---@param use? number as for `done`
---@return true?, string? message, number? code
function Ring:hold(fence, use)
  local handle = handle_of(self, "hold")
  check_fence(fence, use, "hold")
  local err = errors.place()
  return errors.done("hold", C.mf_ring_fence(handle, fence, use or C.MF_READ, err), err)
end

local function convert_all(slots, convert)
  local views = {}
  for i, t in ipairs(slots) do
    views[i] = convert(t)
  end
  return views
end

--- Returns a list with `convert`'s result for each slot. It is made by the ring's first call; later ones return the
--- same list, whatever function they are given, so that a frame imports nothing, and may write its function anew. No
--- scope closes the results: the list lives as long as the ring.
---@param convert fun(t: moonferry.Tensor): any such as Python's torch.from_dlpack
---@return any[]
function Ring:into(convert)
  handle_of(self, "into")
  if not self._views then
    if not hint.is_callable(convert) then
      misuse("into: convert: expected a function of a tensor, got %s", show(convert))
    end
    self._views = scope.outside(convert_all, self._slots, convert)
  end
  return self._views
end

--- Closes the ring and its slots. The memory is released when no view is left and all fences are done.
function Ring:close()
  if getmetatable(self) == closed then
    return
  end
  local handle, slots = handle_of(self, "close"), self._slots
  setmetatable(self, closed)
  self._handle, self._slots, self._views, self._list = nil, nil, nil, nil
  local ok, message = pcall(ring.give_back, handle)
  if not ok then
    finalizers.arm(handle, finalize)
    error(message, 0)
  end
  for _, t in ipairs(slots) do
    t:close()
  end
end

-- The last reference may run release callbacks. As places.release: nothing of Lua's comes behind the call.
function ring.give_back(handle)
  return release(finalizers.disarm(handle))
end

finalizers.interpret(ring.give_back)

return ring
