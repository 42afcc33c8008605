-- Keeps Lua objects alive for as long as C uses their memory.
--
-- A tensor over wrapped memory can outlive its Lua object: a view, an export or a Python tensor may hold the
-- memory. So the owner stays in `held` until C has called the release callback. Lua must not be called back
-- from C (the last reference may go on any thread), so the callback is a C function that sets a flag, and
-- the flags are read here now and then. Invariant: an owner is dropped only after its flag was set, and by one
-- call at a time: a finalizer that comes in between leaves the others for later. Must not know: tensors.
local ffi = require "ffi"
local finalizers = require "moonferry.finalizer"
local C = require "moonferry.lib"
local places = require "moonferry.place"

local owner = {}

local SWEEP_FROM = 64
local FLAG_NBYTES, ALIGNMENT = ffi.sizeof("int32_t"), ffi.sizeof("void *")

local held = {} -- flag -> owner
local count, sweep_at = 0, SWEEP_FROM
local busy = false

pcall(ffi.cdef, "void free(void *ptr);")
pcall(ffi.cdef, "void *malloc(size_t nbytes);")
pcall(ffi.cdef, 'int mf_lua_memalign(int32_t **out, size_t alignment, size_t nbytes) __asm__("posix_memalign");')

owner.release = C.mf_release_mark

-- Named here, because LuaJIT makes an object of a C function where one is named first, and a finalizer may have no
-- memory for that.
local free = ffi.C.free

-- Puts a new flag there. (Windows has no function that does, and LuaJIT may have no memory for a pointer that is
-- returned.)
local allocate
if ffi.os == "Windows" then
  function allocate(at)
    at[0] = ffi.C.malloc(FLAG_NBYTES)
    return at[0] ~= nil
  end
else
  local memalign = ffi.C.mf_lua_memalign
  function allocate(at)
    return memalign(at, ALIGNMENT, FLAG_NBYTES) == 0
  end
end

-- A flag that is not held yet, because Lua had no memory for that, is freed with its object; one that is held is C's.
local take_place, flag_at = places.handles("int32_t *[1]", free, finalizers.of(function(flag)
  if held[flag] == nil then
    free(flag)
  end
end))

local function is_set(flag)
  return flag[0] ~= 0
end

local function drop(flag)
  held[flag] = nil
  count = count - 1
  free(finalizers.disarm(flag))
end

--- Drops every owner whose memory C is done with. (No pairs: where it is compiled and left inside of a finalizer, the
--- LuaJIT of 2022-03 goes in and out of it for ever.)
function owner.sweep()
  if busy then
    return
  end
  busy = true
  local flag = next(held)
  while flag ~= nil do
    local following = next(held, flag)
    if is_set(flag) then
      drop(flag)
    end
    flag = following
  end
  busy, sweep_at = false, math.max(SWEEP_FROM, 2 * count)
end

--- Holds `object` until C releases the memory; gives the context for `owner.release`, or nil without memory.
--- The flag comes from malloc, because C may write it after this Lua state is gone.
---@return ffi.cdata*?
function owner.hold(object)
  if count >= sweep_at then
    owner.sweep()
  end
  local at = take_place()
  if not allocate(at) then
    return nil
  end
  local flag = flag_at(at)
  flag[0] = 0
  held[flag] = object
  count = count + 1
  return flag
end

-- When the state closes, its tensors are released first; then the flags that they set are freed.
finalizers.at_end(owner.sweep)

--- Drops this owner if C is done with its memory.
function owner.check(flag)
  if busy then
    return
  end
  busy = true
  if held[flag] ~= nil and is_set(flag) then
    drop(flag)
  end
  busy = false
end

--- Takes back `hold` where the memory was not wrapped after all.
function owner.forget(flag)
  flag[0] = 1
  owner.check(flag)
end

return owner
