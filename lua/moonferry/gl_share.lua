-- Buffers of OpenGL's as tensors of a GPU: registered with CUDA or HIP, mapped for the length of a function.
--
-- Responsible for: Context:share. Invariant: outside of `map` the buffer is OpenGL's, and no tensor over it is valid.
-- Must not know: how OpenGL's functions were found (gl.lua), nor the drivers' calls (C's mf_gl_buffer).
local ffi = require "ffi"
local C = require "moonferry.lib"
local create = require "moonferry.create"
local device = require "moonferry.device"
local errors = require "moonferry.errors"
local foreign = require "moonferry.foreign"
local picture = require "moonferry.gl_picture"
local finalizers = require "moonferry.finalizer"
local stream = require "moonferry.stream"
local tensor = require "moonferry.tensor"
local transfer = require "moonferry.transfer"

local misuse, show = errors.misuse, errors.show
local Context = picture.Context

local DEFAULT = require("moonferry.cdef").constants.MF_STREAM_DEFAULT
local COPY_READ = 0x8F36 -- the name of its binding, too
local FLAGS = { read = 1, discard = 2 } -- MF_GL_...
local share = { FLAGS = FLAGS }
local OPTIONS = { device = true, use = true, route = true }
local NO_WORDS = {}
local unmap_buffer = C.mf_gl_buffer_unmap
local new_buffer, new_tensor = ffi.typeof "mf_gl_buffer *[1]", ffi.typeof "mf_tensor *[1]"

---@class moonferry.gl.Shared
---@field route "mapped"|"copied" the GPU has the buffer itself, or its bytes go through the host
---@field reason string? why it has not
---@field in_use boolean whether something had a tensor of the last `map` when that was over: it must not be used
local Shared = {}
Shared.__index = Shared

-- The device that options of a share name, checked; nil and why there is none.
function share.device_of(name, what, opts, verb)
  picture.check_name(name, 1, what, verb)
  if type(opts) ~= "table" then
    misuse("%s: options: expected a table with a device, got %s", verb, show(opts))
  end
  local route, use = transfer.options(opts, OPTIONS, verb).route, opts.use
  if use ~= nil and not FLAGS[use] then
    misuse("%s: use: expected \"read\" or \"discard\", got %s", verb, show(use))
  elseif route ~= nil and route ~= "mapped" and route ~= "copied" then
    misuse("%s: route: expected \"mapped\" or \"copied\", got %s", verb, show(route))
  end
  local which = device.parsed(opts.device, verb .. ": device")
  if device.is_cpu(which[0].device_type) then
    misuse("%s: device is %s; expected a GPU, such as \"cuda:0\"", verb, show(opts.device))
  end
  local err = errors.place()
  local rc = C.mf_stream_check(which, DEFAULT, err)
  if not errors.passed(rc, err) then
    return errors.refused(verb, rc, err)
  end
  return which
end

-- The finalizer of a context's places: one, because what finalizer.of makes is never collected.
local function dropping(dropped)
  return finalizers.of(function(at)
    if at[0] ~= nil then
      dropped[#dropped + 1] = at
    end
  end)
end

--- A place for what C registers, of that type; C has it there, since a pointer would take memory, which Lua may not
--- have. Where it is dropped it joins the context's `_dropped`, because only the context's thread may ask the driver.
function share.place(context, new)
  context._drop = context._drop or dropping(context._dropped)
  return finalizers.arm(new(), context._drop)
end

-- The answers of a close that has closed nothing.
local AS_IT_WAS = { [C.MF_ECAPTURE] = true, [C.MF_EINVAL] = true }

-- As places.release: nothing of Lua's comes behind the call.
local function let_go(at, shared, close, pointer, err)
  at[0] = nil
  shared.handle = nil
  return close(pointer, err)
end

-- Closes what is registered in that place, the handle of `shared`. An error comes before that, or not at all.
local function give_back(at, shared)
  local close = ffi.istype(new_buffer, at) and C.mf_gl_buffer_close or C.mf_gl_texture_close
  local pointer, err = at[0], errors.place()
  local ok, rc = pcall(let_go, at, shared, close, pointer, err)
  if not ok or AS_IT_WAS[rc] then
    at[0] = pointer
    shared.handle = at
  end
  if not ok then
    error(rc, 0)
  end
  return rc, err
end

--- Closes what was dropped without close, if anything was.
function share.sweep(context)
  local dropped = context._dropped
  for i = #dropped, 1, -1 do
    local rc, err = give_back(dropped[i], {})
    errors.passed(0, err)
    if not AS_IT_WAS[rc] then
      table.remove(dropped, i)
    end
  end
end

--- The `close` of what is shared.
function share.close(shared)
  local at = shared.handle
  if not at then
    shared.handle = nil
    return true
  end
  local rc, err = give_back(at, shared)
  return errors.done("close", rc, err)
end

-- The buffer as the driver has registered it; nil and why not.
local function register(context, which, buffer, use)
  local out, err = share.place(context, new_buffer), errors.place()
  local rc = C.mf_gl_buffer_open(which, buffer, FLAGS[use] or 0, out, err)
  if not errors.passed(rc, err) then
    return nil, errors.text(err)
  end
  return out
end

--- Shares a buffer with a GPU. `use` says what the GPU does with it: "read" alone, or "discard" where it writes all of
--- it; else both. Where the driver cannot register it (its OpenGL is another GPU's, or none of its calls is there),
--- bytes are copied through the host, and `reason` says why. Close it before the buffer is deleted.
---@param buffer number OpenGL's name of it, or that of a ring (`ring.buffer`)
---@param opts { device: string, use: "read"|"discard"|nil, route: "mapped"|"copied"|nil }
---@return moonferry.gl.Shared?, string? message, number? code
function Context:share(buffer, opts)
  local which, message, code = share.device_of(buffer, "buffer", opts, "share")
  if not which then
    return nil, message, code
  end
  local shared = setmetatable({ context = self, buffer = buffer, device = opts.device, use = opts.use, in_use = false,
    _dl = which, _mapping = false, handle = false, route = "copied" }, Shared)
  if opts.route ~= "copied" then
    share.sweep(self)
    local handle, why = register(self, which, buffer, opts.use)
    if handle then
      shared.handle, shared.route = handle, "mapped"
    elseif opts.route == "mapped" then
      return nil, "share: " .. why, C.MF_EDEVICE
    else
      shared.reason = why
    end
  end
  return shared
end

-- Before the buffer goes back: whether somebody refers to its memory, who is refused from now on.
local function end_tensor(handle, in_use)
  C.mf_tensor_invalidate(handle, in_use, nil)
  if in_use[0] ~= 0 then -- it may be what Lua has not collected
    collectgarbage()
    foreign.run()
  end
end

local function call_with(out, in_use, fn)
  local t = tensor.keep(out[0])
  local ok, result = pcall(fn, t)
  t:close()
  end_tensor(out[0], in_use)
  if not ok then
    error(result, 0)
  end
  return result
end

-- What is needed to unmap the buffer is there before it is mapped: Lua may have no memory afterwards.
local function mapped(self, fn, number, like)
  local handle, out, in_use = self.handle[0], new_tensor(), self.context._int
  local err, unmapped = errors.place(), errors.place()
  local rc = C.mf_gl_buffer_map(handle, number, like, out, err)
  if rc ~= 0 then
    return errors.refused("map", rc, err)
  end
  local ok, result = pcall(call_with, out, in_use, fn)
  rc = unmap_buffer(handle, in_use, unmapped)
  self.in_use = in_use[0] ~= 0
  errors.passed(0, err)
  if not errors.passed(rc, unmapped) then
    misuse("map: %s", errors.text(unmapped))
  elseif not ok then
    error(result, 0)
  end
  return true, result
end

local function bytes_of(self, verb, t)
  local call = self.context.call
  while call.GetError() ~= 0 do end
  picture.with_buffer(self.context, COPY_READ, COPY_READ, self.buffer, function()
    call[verb](COPY_READ, 0, C.mf_tensor_nbytes(t._handle), t._dl.data)
  end)
  local failure = call.GetError()
  if failure ~= 0 then
    misuse("map: gl%s answered 0x%x for %d bytes", verb, failure, tonumber(C.mf_tensor_nbytes(t._handle)))
  end
end

local function copied(self, fn, on, shape, name)
  local host, message, code = create.zeros(shape, name)
  if not host then
    return nil, message, code
  end
  if self.use ~= "discard" then
    bytes_of(self, "GetBufferSubData", host) -- where that raises, Lua collects what is left
  end
  local t
  t, message, code = host:to(self.device, { stream = on })
  host:close()
  if not t then
    return nil, message, code
  end
  local ok, result = pcall(fn, t)
  local back = self.use == "read"
  if ok and not back then
    back, message, code = t:to("cpu")
    if back then
      bytes_of(self, "BufferSubData", back)
      back:close()
    end
  end
  t:close()
  if not ok then
    error(result, 0)
  elseif not back then
    return nil, message, code
  end
  return true, result
end

--- Calls `fn` with the buffer as a tensor of the GPU, which is ready on that stream (nil: the current one), compact and
--- from the buffer's first byte on. OpenGL must not use the buffer meanwhile; afterwards it is OpenGL's, for what it is
--- told next, behind all that used the tensor. The tensor and its views are invalid then, and say so. The host waits
--- for nothing where the route is "mapped". Returns true and what `fn` returned.
---@param on moonferry.Stream?
---@param shape number[]
---@param name string dtype
---@param fn fun(t: moonferry.Tensor): any
---@return true?, any result_or_message, number? code
function Shared:map(on, shape, name, fn)
  if self._mapping then
    misuse("map: the buffer is mapped already")
  elseif self.handle == nil then
    misuse("map: the shared buffer is closed")
  elseif type(fn) ~= "function" then
    misuse("map: expected a function, got %s", show(fn))
  end
  share.sweep(self.context)
  local like, extents = create.describe(shape, name)
  local number = stream.number_of(on, self._dl[0], "map: stream", NO_WORDS)
  like[0].shape = extents
  local by_route, a, b, c = mapped, number, like, nil
  if self.route ~= "mapped" then
    by_route, a, b, c = copied, on, shape, name
  end
  self._mapping = true -- from here to the call nothing takes memory
  local ok, done, result, code = pcall(by_route, self, fn, a, b, c)
  self._mapping = false
  if not ok then
    error(done, 0)
  end
  return done, result, code
end

--- Gives the buffer back to OpenGL alone. Where a capture that began in `map` goes on, it fails with ECAPTURE, and is
--- called again when that is over.
---@return true?, string? message, number? code
function Shared:close()
  if self._mapping then
    misuse("close: the buffer is mapped")
  end
  return share.close(self)
end

return share
