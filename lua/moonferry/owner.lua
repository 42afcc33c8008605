-- Keeps Lua objects alive for as long as C uses their memory.
--
-- A tensor over wrapped memory can outlive its Lua object: a view, an export or a Python tensor may hold the
-- memory. So the owner stays in `held` until C has called the release callback. Lua must not be called back
-- from C (the last reference may go on any thread), so the callback is a C function that leaves a mark, and
-- the marks are looked at here now and then. Invariant: an owner is dropped only after its mark was left, and by one
-- call at a time: a finalizer that comes in between leaves them for later. Must not know: tensors.
local ffi = require "ffi"
local C = require "moonferry.lib"

local owner = {}

local SWEEP_FROM = 64

local held = {} -- mark -> owner
local count, sweep_at = 0, SWEEP_FROM
local busy = false

pcall(ffi.cdef, "void *malloc(size_t nbytes); void free(void *ptr);")

owner.release = C.mf_release_mark

-- Named here, because LuaJIT makes an object of a C function where one is named first, and a finalizer may have no
-- memory for that.
local malloc, free = ffi.C.malloc, ffi.C.free

local function is_left(mark)
  return mark[0] ~= 0
end

local function drop(mark)
  held[mark] = nil
  count = count - 1
  free(mark)
end

--- Drops every owner whose memory C is done with. (No pairs: where it is compiled and left inside of a finalizer, the
--- LuaJIT of 2022-03 goes in and out of it for ever.)
function owner.sweep()
  if busy then
    return
  end
  busy = true
  local mark = next(held)
  while mark ~= nil do
    local following = next(held, mark)
    if is_left(mark) then
      drop(mark)
    end
    mark = following
  end
  busy, sweep_at = false, math.max(SWEEP_FROM, 2 * count)
end

--- Holds `object` until C releases the memory; gives the context for `owner.release`, or nil without memory.
--- The mark comes from malloc, because C may write it after this Lua state is gone.
---@return ffi.cdata*?
function owner.hold(object)
  if count >= sweep_at then
    owner.sweep()
  end
  local memory = malloc(ffi.sizeof("int32_t"))
  if memory == nil then
    return nil
  end
  local mark = ffi.cast("int32_t *", memory)
  mark[0] = 0
  held[mark] = object
  count = count + 1
  return mark
end

-- When the state closes, its tensors are released first; then the marks that they left are freed.
owner.last = newproxy(true)
getmetatable(owner.last).__gc = owner.sweep

--- Drops this owner if C is done with its memory.
function owner.check(mark)
  if busy then
    return
  end
  busy = true
  if held[mark] ~= nil and is_left(mark) then
    drop(mark)
  end
  busy = false
end

--- Takes back `hold` where the memory was not wrapped after all.
function owner.forget(mark)
  mark[0] = 1
  owner.check(mark)
end

return owner
