-- Buffers of OpenGL's whose memory tensors are over: rings of slots that stay mapped, and buffers of a tensor's own
-- memory.
--
-- Responsible for: Context:ring and pinned. Invariant: a mapped buffer is unmapped only when no tensor refers to it.
-- Must not know: what is drawn from a slot, nor whether a worker or the program itself writes it.
local ffi = require "ffi"
local C = require "moonferry.lib"
local create = require "moonferry.create"
local errors = require "moonferry.errors"
local fences = require "moonferry.gl_fence"
local foreign = require "moonferry.foreign"
local picture = require "moonferry.gl_picture"
local rings = require "moonferry.ring"
local scope = require "moonferry.scope"
local tensor = require "moonferry.tensor"
local transfer = require "moonferry.transfer"

local misuse, show = errors.misuse, errors.show
local integer, with_buffer = picture.integer, picture.with_buffer
local Context = picture.Context

-- Numbers of OpenGL 4.6, and of GL_AMD_pinned_memory.
local TARGETS = { vertex = 0x8892, index = 0x8893, unpack = 0x88EC, pack = 0x88EB, storage = 0x90D2, uniform = 0x8A11 }
local BINDINGS = {
  vertex = 0x8894, index = 0x8895, unpack = 0x88EF, pack = 0x88ED, storage = 0x90D3, uniform = 0x8A28,
}
local MAP_READ, MAP_WRITE, PERSISTENT, COHERENT = 0x1, 0x2, 0x40, 0x80
local PINNED = 0x9160
local STREAM_DRAW, STREAM_READ = 0x88E0, 0x88E1
local PAGE = 4096
local new_name = ffi.typeof "uint32_t[1]"

-- A new buffer is named in the fields `_name` and `buffer` of its owner, which says that there is one before there is:
-- to delete buffer 0 does nothing.
local function new_buffer(owner)
  owner.buffer = 0
  owner.context.call.GenBuffers(1, owner._name)
  owner.buffer = owner._name[0]
end

local function delete_buffer(owner)
  owner.context.call.DeleteBuffers(1, owner._name)
end

---@class moonferry.gl.Ring: moonferry.Ring
---@field route "mapped"|"copied" how what is written gets to OpenGL: it is there at once, or `submit` copies it
---@field reason string? why a better route was not taken
---@field buffer number OpenGL's name of the buffer that all slots are in
local GLRing = {}

-- The bytes from one slot to the next, in whole pages.
local function slot_nbytes(shape, name)
  local probe, message, code = create.empty(shape, name)
  if not probe then
    return nil, message, code
  end
  local nbytes = probe.nbytes
  probe:close()
  return math.ceil(math.max(nbytes, 1) / PAGE) * PAGE
end

-- What makes the slots as tensors over the buffer, which stays mapped; nil and what OpenGL has against that.
local function map_slots(r, shape, name)
  local call, flags = r.context.call, (r.reads and MAP_READ or 0) + MAP_WRITE + PERSISTENT + COHERENT
  local total = r.slot_nbytes * r.count
  local pointer = with_buffer(r.context, r.target, r.binding, r.buffer, function()
    call.BufferStorage(r.target, total, nil, flags)
    return call.MapBufferRange(r.target, 0, total, flags)
  end)
  if pointer == nil then
    return nil, ("glMapBufferRange failed (error 0x%x)"):format(call.GetError())
  end
  ffi.fill(pointer, total)
  return function(i)
    return create.wrap(ffi.cast("uint8_t *", pointer) + (i - 1) * r.slot_nbytes, shape, name, { owner = false })
  end
end

local function copied_slots(r, shape, name)
  with_buffer(r.context, r.target, r.binding, r.buffer, function()
    r.context.call.BufferData(r.target, r.slot_nbytes * r.count, nil, r.reads and STREAM_READ or STREAM_DRAW)
  end)
  return function()
    return create.zeros(shape, name)
  end
end

-- A ring over a buffer of its own, which `slots` makes room in and which goes again where there is no ring: then nil
-- and why, with a code where OpenGL is not why, or an error.
local function make_over(r, slots, shape, name)
  local ok, made, message, code = pcall(function()
    new_buffer(r)
    local make, reason = slots(r, shape, name)
    if not make then
      return nil, reason
    end
    return scope.outside(rings.of_each, r.count, make)
  end)
  if r.buffer and not (ok and made) then
    delete_buffer(r)
    r.buffer = false
  end
  if not ok then
    error(made, 0)
  end
  return made, message, code
end

local ring_meta = {}

-- A mapped ring has no reason not to be one.
function ring_meta.__index(r, key)
  local method = GLRing[key]
  if method or key == "reason" then
    return method
  end
  return r.ring[key]
end

function ring_meta.__newindex(_, key)
  misuse("a ring has no field %s that can be set", show(key))
end

local RING_OPTIONS = { slots = true, target = true, route = true }

local function ring_record(context, opts)
  local target = TARGETS[opts.target or "vertex"]
  if not target then
    misuse("gl.ring: target: expected \"vertex\", \"index\", \"storage\", \"uniform\", \"unpack\" or \"pack\", got %s",
      show(opts.target))
  elseif opts.route ~= nil and opts.route ~= "mapped" and opts.route ~= "copied" then
    misuse("gl.ring: route: expected \"mapped\" or \"copied\", got %s", show(opts.route))
  end
  return {
    context = context, target = target, binding = BINDINGS[opts.target or "vertex"], route = opts.route,
    count = rings.count(opts.slots, "gl.ring: slots"), reads = opts.target == "pack",
    at = false, seen = false, left = false, closed = false, buffer = false,
    _name = new_name(),
  }
end

---@class moonferry.gl.RingOptions
---@field slots? number default 3
---@field target? "vertex"|"index"|"storage"|"uniform"|"unpack"|"pack" default "vertex"
---@field route? "mapped"|"copied" the best that there is, where nothing is said

--- A ring whose slots lie in one buffer of OpenGL's that stays mapped, so that what is written is in the vertex buffer
--- already; where buffers cannot stay mapped, host memory that `submit` copies. In a frame: `begin`, write, `submit`,
--- draw, `done`. No scope ends it, because its buffer waits for those who still have views: `close` does.
---@param shape number[]
---@param name? string dtype, default "float32"
---@param opts? moonferry.gl.RingOptions
---@return moonferry.gl.Ring?, string? message, number? code
function Context:ring(shape, name, opts)
  if getmetatable(self) ~= Context then
    misuse("gl.ring: expected a context, got %s; a method is called with a colon: gl:ring(...)", show(self))
  end
  opts = transfer.options(opts, RING_OPTIONS, "gl.ring")
  local r = ring_record(self, opts)
  local nbytes, message, code = slot_nbytes(shape, name)
  if not nbytes then
    return nil, message, code
  end
  r.slot_nbytes = nbytes
  local made
  if r.route ~= "copied" then
    r.reason = self.buffer_storage
    if not r.reason then
      r.route = "mapped"
      made, r.reason, code = make_over(r, map_slots, shape, name)
    end
    if not made and (code or opts.route == "mapped") then
      return nil, code and r.reason or "gl.ring: " .. r.reason, code or C.MF_EDEVICE
    end
  end
  if not made then
    r.route = "copied"
    made, message, code = make_over(r, copied_slots, shape, name)
  end
  if not made then
    return nil, message, code
  end
  r.ring = made
  return setmetatable(r, ring_meta)
end

--- The slot to write next, and its number; see mf.ring.
function GLRing:begin(seconds)
  local t, i, code = self.ring:begin(seconds)
  self.at = t and i or false
  return t, i, code
end

--- The slot that a worker has published last, its number, and whether it is another one than the last time; see
--- mf.ring. The worker's own ring is `mf.ring_from_handle(ring.handle)`.
---@return moonferry.Tensor?, number?, boolean?
function GLRing:latest()
  local t, i, fresh = self.ring:latest()
  self.seen = i or false
  return t, i, fresh
end

--- What was written is OpenGL's to draw: returns the buffer's name and the byte at which the slot begins there: of the
--- one that was begun, or of `i`, which `latest` gave.
---@param i? number
---@return number buffer, number offset
function GLRing:submit(i)
  if i ~= nil and i ~= self.seen then
    misuse("submit: expected the slot that latest gave, %s, got %s", self.seen and show(self.seen) or "none", show(i))
  elseif i == nil and not self.at then
    misuse("submit: no slot was begun; g:begin() gives one")
  end
  local slot = i or self.at
  local offset, t = (slot - 1) * self.slot_nbytes, self.ring.slots[slot]
  if self.route == "copied" then
    local call, before = self.context.call, integer(self.context, self.binding)
    local nbytes, data = C.mf_tensor_nbytes(t._handle), t._dl.data
    call.BindBuffer(self.target, self.buffer)
    local ok, failure = pcall(call.BufferSubData, self.target, offset, nbytes, data)
    call.BindBuffer(self.target, before)
    if not ok then
      error(failure, 0)
    end
  end
  return self.buffer, offset
end

--- After the draw: the slot comes again when OpenGL has drawn it.
---@return true?, string? message, number? code
function GLRing:done(use)
  local how = fences.use_of(use, "done")
  if self.route == "copied" then
    self.at = false
    return self.ring:done()
  end
  local done, message, code = fences.hand_over(self.context, "done", C.mf_ring_end, self.ring.handle, how)
  self.at = not done and self.at
  return done, message, code
end

--- After a draw of the slot that `latest` gave: no worker writes it before OpenGL has drawn it.
---@return true?, string? message, number? code
function GLRing:hold(use)
  if not self.seen then
    misuse("hold: latest gave no slot yet; g:latest() gives one that was published")
  end
  local how = fences.use_of(use, "hold")
  if self.route == "copied" then
    return true
  end
  return fences.hand_over(self.context, "hold", C.mf_ring_fence, self.ring.handle, how)
end

--- What `convert` makes of each slot; see mf.ring.
---@param convert fun(t: moonferry.Tensor): any
---@return any[]
function GLRing:into(convert)
  return self.ring:into(convert)
end

-- The slots, closed ones too, as tensors of our own: what refers to their memory beside these is a view of somebody's.
local function kept_slots(r)
  local kept = {}
  for i = 1, #r.ring.slots do
    kept[i] = tensor.keep(C.mf_ring_slot(r.ring.handle, i - 1))
  end
  return kept
end

-- Whether somebody refers to the memory of a slot. Each refuses to be used from now on.
local function are_in_use(tensors)
  local found = false
  for _, t in ipairs(tensors) do
    found = t:invalidate() or found
  end
  return found
end

--- Ends the ring and its buffer. False while views of its tensors are alive: their memory refuses to be used from then
--- on, but the mapping stays for them; call it again when they are gone. True once the buffer is gone.
---@return boolean
function GLRing:close()
  if self.closed then
    return true
  end
  local context, mapped = self.context, self.route == "mapped"
  context.call.Finish()
  self.left = self.left or scope.outside(kept_slots, self)
  self.ring:close()
  collectgarbage()
  foreign.run()
  if mapped and are_in_use(self.left) then
    return false
  end
  while #self.left > 0 do
    table.remove(self.left):close()
  end
  if mapped then
    with_buffer(context, self.target, self.binding, self.buffer, function()
      context.call.UnmapBuffer(self.target)
    end)
  end
  delete_buffer(self)
  self.closed = true
  return true
end

-- Those that are open. Their memory is OpenGL's as well, also where the program has forgotten them.
local pins = {}

local function close_pinned(pinned)
  if pins[pinned] then
    pinned.context.call.Finish()
    delete_buffer(pinned)
    pinned.buffer = nil
    pins[pinned] = nil
    pinned._t:close()
  end
end

--- A buffer of OpenGL's over the memory of `t` itself (GL_AMD_pinned_memory): what is written to `t` is in the buffer.
--- The memory lives as long as the buffer; after a draw from it, `fence_tensor(t)` makes those who write wait.
---@param t moonferry.Tensor compact, in host memory
---@return { buffer: number, close: fun(self) }?, string? message, number? code
function Context:pinned(t)
  tensor.handle_for("pinned", t)
  if self.pinned_memory then
    return nil, "pinned: " .. self.pinned_memory, C.MF_EDEVICE
  elseif not t.is_contiguous or t.device ~= "cpu" then
    misuse("pinned: expected a compact tensor on the cpu, got one with strides {%s} on %s",
      table.concat(t.strides, ", "), t.device)
  end
  local call, nbytes, data = self.call, t.nbytes, t._dl.data
  local pinned = { context = self, buffer = false, _name = new_name(), _t = scope.outside(tensor.keep, t._handle),
    close = close_pinned }
  pins[pinned] = true
  new_buffer(pinned)
  while call.GetError() ~= 0 do end
  call.BindBuffer(PINNED, pinned.buffer)
  call.BufferData(PINNED, nbytes, data, STREAM_DRAW)
  call.BindBuffer(PINNED, 0)
  local failure = call.GetError()
  if failure ~= 0 then
    pinned:close()
    return nil, ("pinned: glBufferData answered 0x%x"):format(failure), C.MF_EDRIVER
  end
  return pinned
end
