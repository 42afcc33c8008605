-- Streams: in which order a device does what was queued on it, and which of them is current on this thread.
--
-- Responsible for: new streams and giving them back, named ones, others' handles, and with_stream. Invariant: a
-- table with this metatable names a stream that is not closed; close changes the metatable. A stream that is
-- current, or will be again, cannot be closed. Must not know: tensors.
local ffi = require "ffi"
local finalizers = require "moonferry.finalizer"
local C = require "moonferry.lib"
local constants = require("moonferry.cdef").constants
local device = require "moonferry.device"
local errors = require "moonferry.errors"
local foreign = require "moonferry.foreign"
local hint = require "moonferry.hint"
local numbers = require "moonferry.numbers"
local places = require "moonferry.place"
local scope = require "moonferry.scope"

local misuse, show = errors.misuse, errors.show

local CPU, ROCM = 1, 10
local DEFAULT, PER_THREAD = constants.MF_STREAM_DEFAULT, constants.MF_STREAM_PER_THREAD
local NAMES = { [DEFAULT] = "default", [PER_THREAD] = "per thread" }

---@class moonferry.Stream
---@field device string the GPU, such as "cuda:0"
---@field handle ffi.cdata* the driver's handle (CUstream, hipStream_t), as a `void *`
local Stream = {}

local Fields = {}
local meta, closed = { moonferry_open = true }, { moonferry_open = false }

local stream = { Stream = Stream }

local place_type = ffi.typeof("struct { DLDevice device; int64_t stream; }")
local pointer_type, integer_type = ffi.typeof("void *"), ffi.typeof("intptr_t")
local take_number, leave_number = places.of_answers "int64_t[1]"
local take_answer, leave_answer = places.of_answers "int32_t[1]"

function meta.__index(s, key)
  local method = Stream[key]
  if method then
    return method
  end
  local field = Fields[key]
  if field then
    return field(s)
  end
  misuse("a stream has no field %s%s", show(key), hint.instead(key, "s", Stream, Fields))
end

function meta.__newindex(_, key)
  misuse("a stream has no field %s that can be set", show(key))
end

function closed.__index(_, key)
  if key == "close" then
    return Stream.close
  end
  misuse("stream closed")
end

function closed.__newindex()
  misuse("stream closed")
end

function closed.__tostring()
  return "mf.stream<closed>"
end

function meta.__eq(a, b)
  local p, q = a._place, b._place
  return p.stream == q.stream and p.device.device_type == q.device.device_type
    and p.device.device_id == q.device.device_id
end

function meta.__tostring(s)
  local name = NAMES[tonumber(s._place.stream)]
  return ("mf.stream<%s %s>"):format(s.device, name or ("0x%x"):format(tonumber(s._place.stream)))
end

function Fields.device(s)
  return device.format(s._place.device)
end

-- A driver takes 1 and 2 for its named streams, but a runtime of ROCm may not know the first.
function Fields.handle(s)
  local place = s._place
  if place.device.device_type == ROCM and place.stream == DEFAULT then
    return pointer_type()
  end
  return ffi.cast(pointer_type, ffi.cast(integer_type, place.stream))
end

--- Returns whether `value` is a stream, open or closed.
---@param value any
---@return boolean
function stream.is_stream(value)
  local mt = getmetatable(value)
  return mt == meta or mt == closed
end

-- The device and the number of an open stream; anything else raises.
local function place_of(value, what)
  local mt = getmetatable(value)
  if mt == meta then
    return value._place
  elseif mt == closed then
    misuse("%s: stream closed", what)
  end
  misuse("%s: expected a stream, got %s", what, show(value))
end

-- Those that are alive by handle, so that the current stream is found as the object that it came from.
local living = setmetatable({}, { __mode = "v" })

local function key_of(place)
  return ("%d:%d:%d"):format(place.device.device_type, place.device.device_id, tonumber(place.stream))
end

local function new(place, owned, owner)
  local s = setmetatable({ _place = place, _owned = owned, _owner = owner or false, _entered = 0 }, meta)
  living[key_of(place)] = s
  return s
end

-- The mf_stream that C has put there.
local function number_at(at)
  local number = at[0]
  leave_number(at)
  return number
end

-- Where C puts a new stream: its place has a finalizer before.
local NONE = 0
local char_pointer, stream_pointer = ffi.typeof("char *"), ffi.typeof("int64_t *")
local STREAM_NBYTES = ffi.offsetof(place_type, "stream")

-- LuaJIT needs memory to look up a function of C's for the first time, which there may not be when this one is called.
local destroy = C.mf_stream_destroy

-- As places.release: nothing of Lua's comes behind the call.
local function let_go(place, on, handle)
  place.stream = NONE
  return destroy(on, handle, nil)
end

finalizers.interpret(let_go)

-- Once for each stream, and not at all where there is no memory for the arguments: then it is there still.
local function give_back(place)
  local on, handle = place.device, place.stream
  if handle ~= NONE then
    local ok, message = pcall(let_go, place, on, handle)
    if not ok then
      place.stream = handle
      error(message, 0)
    end
  end
end

local finalize = finalizers.of(give_back)

--- Returns a new stream, which does not wait for the default stream. `close`, the end of the scope or the garbage
--- collector releases it; work that is queued on it goes on.
---@param name string a GPU, such as "cuda:0"
---@return moonferry.Stream?, string? message, number? code
function stream.create(name)
  local which = device.parsed(name, "stream: device")
  local place = finalizers.arm(place_type(which[0], NONE), finalize)
  local out = ffi.cast(stream_pointer, ffi.cast(char_pointer, place) + STREAM_NBYTES)
  local err = errors.place()
  local rc = errors.call(C.mf_stream_create, which, out, err)
  if not errors.passed(rc, err) then
    return errors.refused("stream", rc, err)
  end
  local s = new(place, true)
  if scope.active() then
    scope.register(s)
  end
  return s
end

-- A stream that nobody has to give back, if the device has it.
local function existing(verb, which, number, owner)
  local err = errors.place()
  local rc = C.mf_stream_check(which, number, err)
  if not errors.passed(rc, err) then
    return errors.refused(verb, rc, err)
  end
  return new(place_type(which[0], number), false, owner)
end

--- Returns a device's default stream (CUDA's legacy one), which is the current one at first.
---@param name string the device, such as "cuda:0"
---@return moonferry.Stream?, string? message, number? code
function stream.default(name)
  return existing("default_stream", device.parsed(name, "default_stream: device"), DEFAULT)
end

--- Returns a device's per-thread default stream: each thread that uses it uses its own stream.
---@param name string the device, such as "cuda:0"
---@return moonferry.Stream?, string? message, number? code
function stream.per_thread(name)
  return existing("per_thread_stream", device.parsed(name, "per_thread_stream: device"), PER_THREAD)
end

-- A pointer is the driver's own handle, and NULL its default stream.
local function of_pointer(handle)
  local ok, address = errors.converts(ffi.cast, integer_type, handle)
  if not ok then
    misuse("wrap_stream: handle: expected a pointer or an integer, got %s", show(handle))
  end
  return address == 0 and DEFAULT or ffi.cast("int64_t", address)
end

-- The mf_stream of an integer, which means what it means to __dlpack__ for the device; `what` begins an error.
local function from_number(dl, integer, what)
  local at, err = take_number(), errors.place()
  if not errors.passed(C.mf_stream_from_number(dl, integer, at, err), err) then
    misuse("%s: %s", what, errors.text(err))
  end
  return number_at(at)
end

local function of_integer(which, handle)
  local given = numbers.integer(handle, "wrap_stream: handle")
  if given < 0 then
    misuse("wrap_stream: handle: expected a stream's handle, got %s", show(handle))
  end
  return from_number(which, given, "wrap_stream")
end

--- Returns a stream object for another library's stream. The stream must live while it is current, and until the memory
--- that it used is released. A pointer is the driver's own handle (CUstream, hipStream_t). An integer means what it
--- means to `__dlpack__`: on CUDA 1 is the default stream and 2 the per-thread one, on ROCm 0 is the default one.
---@param name string the device
---@param handle number|ffi.cdata*
---@param owner? any kept alive as long as the object
---@return moonferry.Stream?, string? message, number? code
function stream.wrap(name, handle, owner)
  local which = device.parsed(name, "wrap_stream: device")
  if type(handle) == "cdata" and tonumber(handle) == nil then
    return existing("wrap_stream", which, of_pointer(handle), owner)
  end
  return existing("wrap_stream", which, of_integer(which, handle), owner)
end

--- Returns this thread's current stream of a device. Work is queued on it unless a call names another stream.
---@param name string the device, such as "cuda:0"
---@return moonferry.Stream?, string? message, number? code
function stream.current(name)
  local which, at, err = device.parsed(name, "current_stream: device"), take_number(), errors.place()
  local rc = C.mf_stream_current(which, at, err)
  if not errors.passed(rc, err) then
    return errors.refused("current_stream", rc, err)
  end
  local place = place_type(which[0], number_at(at))
  return living[key_of(place)] or new(place, false)
end

--- Releases the stream if `mf.stream` made it. A second call does nothing; any other use raises "stream closed".
function Stream:close()
  if getmetatable(self) == closed then
    return
  end
  local place = place_of(self, "close")
  if self._entered > 0 then
    misuse("close: the stream is current, or will be again when with_stream returns")
  end
  local key = key_of(place)
  if self._owned then
    give_back(place)
  end
  if rawequal(living[key], self) then
    living[key] = nil
  end
  self._place, self._owner = nil, nil
  setmetatable(self, closed)
end

--- Waits until all work queued on the stream is done.
---@return true?, string? message, number? code
function Stream:synchronize()
  local place, err = place_of(self, "synchronize"), errors.place()
  return errors.done("synchronize", foreign.call(C.mf_stream_synchronize, place.device, place.stream, err), err)
end

--- Returns whether all work queued on the stream is done. Does not wait.
---@return boolean?, string? message, number? code
function Stream:query()
  local place = place_of(self, "query")
  local at, err = take_answer(), errors.place()
  local rc = C.mf_stream_query(place.device, place.stream, at, err)
  if not errors.passed(rc, err) then
    return errors.refused("query", rc, err)
  end
  local done = at[0] ~= 0
  leave_answer(at)
  return done
end

--- Makes work that is queued on this stream from now on wait for the work that was queued on `other` until now. The
--- host does not wait.
---@param other moonferry.Stream
---@return moonferry.Stream?, string? message, number? code
function Stream:wait(other)
  local place, before = place_of(self, "wait"), place_of(other, "wait: other")
  local err = errors.place()
  local rc = C.mf_stream_wait(place.device, place.stream, before.device, before.stream, err)
  return errors.done("wait", rc, err, self)
end

-- LuaJIT wants memory for a C function that is looked up for the first time, for a field that is a struct and for an
-- integer of 64 bits. So `leave`, which must not fail, uses none of them.
local swap, halves_type = C.mf_stream_swap, ffi.typeof("int32_t *")
local LOW, HIGH, TWO_TO_32 = ffi.abi("be") and 1 or 0, ffi.abi("be") and 0 or 1, 2 ^ 32

-- What C puts in the place for the stream before where it has entered none: no stream that was current has that number.
local NOT_ENTERED = constants.MF_STREAM_CURRENT

-- All that entering and leaving `s` takes. C's own answer tells whether it was entered: an error of a debug hook may
-- come between any two instructions of Lua's.
local function entry_of(s)
  local place, at = place_of(s, "with_stream"), take_number()
  local halves = ffi.cast(halves_type, at)
  at[0] = NOT_ENTERED
  return { s = s, at = at, halves = halves, on = place.device, number = place.stream, entered = s._entered }
end

-- Calls fn with the stream current, or says why that cannot be.
local function within(entry, fn, ...)
  local err = errors.place()
  local rc = swap(entry.on, entry.number, entry.at, err)
  if not errors.passed(rc, err) then
    return errors.refused("with_stream", rc, err)
  end
  entry.s._entered = entry.entered + 1
  return fn(...)
end

-- Once, where it was entered. What was current before may be gone by now; the default stream is never.
local function leave(entry)
  local halves, on = entry.halves, entry.on
  local before = halves[HIGH] * TWO_TO_32 + halves[LOW] % TWO_TO_32
  if before == NOT_ENTERED then
    return
  end
  entry.s._entered = entry.entered
  local gone = swap(on, before, nil, nil) ~= 0
  if gone then
    swap(on, DEFAULT, nil, nil)
  end
  entry.at[0] = NOT_ENTERED
  local err = gone and errors.place()
  if gone and not errors.passed(swap(on, before, nil, err), err) then
    misuse("with_stream: the stream that was current before cannot be again: %s", errors.text(err))
  end
end

local function result(ok, ...)
  if not ok then
    error((...), 0)
  end
  return ...
end

local function finish(entry, ...)
  leave(entry)
  return result(...)
end

local function enter_and_leave(entry, ...)
  return finish(entry, pcall(within, entry, ...))
end

-- An error of a debug hook may have come while it was left.
local function left(entry, ...)
  leave(entry)
  leave_number(entry.at)
  return result(...)
end

--- with_stream for a function that never yields.
function stream.run(s, fn, ...)
  local entry = entry_of(s)
  return left(entry, pcall(enter_and_leave, entry, fn, ...))
end

local resume_within

-- After a turn of the coroutine that runs fn: yields what it yielded, with the stream before current meanwhile. `ok` is
-- nil where the stream could not be entered.
local function after_turn(s, thread, ok, ...)
  if not ok then
    error((...), 0)
  elseif coroutine.status(thread) == "dead" then
    return ...
  end
  return resume_within(s, thread, coroutine.yield(...))
end

function resume_within(s, thread, ...)
  return after_turn(s, thread, stream.run(s, coroutine.resume, thread, ...))
end

local function after_first_turn(s, thread, ok, ...)
  if ok == nil then
    return nil, ...
  end
  return after_turn(s, thread, ok, ...)
end

-- In a coroutine, fn may yield. Other coroutines must not find its stream current then, so it runs in one of its
-- own, which is entered and left with each turn.
local function run_in_coroutine(s, fn, ...)
  local thread = coroutine.create(type(fn) == "function" and fn or function(...)
    return fn(...)
  end)
  scope.inherit(thread)
  return after_first_turn(s, thread, stream.run(s, coroutine.resume, thread, ...))
end

--- Calls `fn` with the other arguments while `s` is this thread's current stream of its device, and returns what `fn`
--- returns. The previous stream is current again afterwards, also after an error, and while `fn` is suspended in a
--- coroutine.
---@param s moonferry.Stream
---@param fn fun(...): ...
---@return ...
function stream.with(s, fn, ...)
  if not hint.is_callable(fn) then
    misuse("with_stream: expected a function, got %s", show(fn))
  end
  local thread, is_main = coroutine.running()
  if not thread or is_main then
    return stream.run(s, fn, ...)
  end
  return run_in_coroutine(s, fn, ...)
end

local MEANINGS = { default = C.MF_NONE_DEFAULT, no_order = C.MF_NONE_NO_ORDER, refuse = C.MF_NONE_REFUSE }
local MEANING_NAMES = {
  [C.MF_NONE_DEFAULT] = "default", [C.MF_NONE_NO_ORDER] = "no_order", [C.MF_NONE_REFUSE] = "refuse",
}

--- Sets what `__dlpack__(stream=None)` means for GPU memory, in the whole process, and returns the setting: "default"
--- is the default stream, "no_order" orders nothing, "refuse" raises an error. Without an argument nothing is changed.
---@param meaning? "default"|"no_order"|"refuse"
---@return "default"|"no_order"|"refuse"
function stream.none(meaning)
  if meaning ~= nil then
    local known = MEANINGS[meaning]
    if not known then
      misuse("stream_none: expected \"default\", \"no_order\" or \"refuse\", got %s", show(meaning))
    end
    C.mf_stream_none_set(known, nil)
  end
  return MEANING_NAMES[tonumber(C.mf_stream_none())]
end

-- The streams that a device's work may be on: its own, or any of its driver's where all of them reach the memory.
local function check_reach(place, dl, what)
  local theirs, ours = place.device, dl.device_type
  local anywhere = device.is_shared(ours)
  if device.driver(theirs.device_type) ~= device.driver(ours) or not anywhere and theirs.device_id ~= dl.device_id then
    misuse("%s: a stream of %s cannot order memory on %s", what, device.format(theirs), device.format(dl))
  end
end

local WORDS = { no_order = constants.MF_STREAM_NO_ORDER, host = constants.MF_STREAM_HOST }

-- The mf_stream that `value` means for memory on the device `dl`: a stream, one of the words in `allowed`, or a
-- number as in `__dlpack__` where allowed.number; nil is the current stream.
---@param value any
---@param dl ffi.cdata*
---@param what string
---@param allowed table<string, boolean>
function stream.number_of(value, dl, what, allowed)
  if value == nil then
    return constants.MF_STREAM_CURRENT
  elseif allowed[value] then
    return WORDS[value]
  elseif allowed.number and (type(value) == "number" or type(value) == "cdata") then
    return from_number(dl, numbers.integer(value, what), what)
  end
  local place = place_of(value, what)
  if dl.device_type ~= CPU then
    check_reach(place, dl, what)
  end
  -- Where any GPU's will do, a name has to say of which: MF_STREAM_OF.
  if device.is_shared(dl.device_type) and NAMES[tonumber(place.stream)] then
    return -4096LL - 4 * place.device.device_id - place.stream
  end
  return place.stream
end

return stream
