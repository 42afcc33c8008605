-- Pictures of OpenGL's as tensors: up to textures, and back without a stall.
--
-- Invariant: what is bound, and the pixel store, are as they were when a function returns or raises: between a change
-- and the call of what needs it nothing takes memory. Must not know: how OpenGL's functions were found, nor how a
-- ring's slots lie in a buffer (gl.lua).
local ffi = require "ffi"
local C = require "moonferry.lib"
local errors = require "moonferry.errors"
local numbers = require "moonferry.numbers"
local places = require "moonferry.place"
local tensor = require "moonferry.tensor"
local transfer = require "moonferry.transfer"

local misuse, show = errors.misuse, errors.show

-- The class is gl.lua's, too.
local READER_OPTIONS = { slots = true, route = true }
local Context = {}
local picture = { Context = Context }

local new_int = ffi.typeof "int32_t[1]"

--- What glGetIntegerv says. Each answer has a place of its own: LuaJIT 2.1.0-beta3 may compile two questions into one
--- place so that both have the second answer.
function picture.integer(self, name)
  local answer = new_int()
  self.call.GetIntegerv(name, answer)
  return answer[0]
end

local integer = picture.integer

-- The pixel store that an upload or a read sets, with what it has to be.
local UNPACK = { target = 0x88EC, binding = 0x88EF, row_length = 0x0CF2, alignment = 0x0CF5,
  others = { 0x0CF0, 0x0CF1, 0x0CF3, 0x0CF4 } }
local PACK = { target = 0x88EB, binding = 0x88ED, row_length = 0x0D02, alignment = 0x0D05,
  others = { 0x0D00, 0x0D01, 0x0D03, 0x0D04 } }

local TEXTURE_2D, TEXTURE_BINDING_2D = 0x0DE1, 0x8069

--- What a tensor's elements are to OpenGL: format, type, dtype, and channels: with 0 an element is a whole pixel.
picture.formats = {
  r8 = { 0x1903, 0x1401, "uint8", 1 }, rg8 = { 0x8227, 0x1401, "uint8", 2 }, rgb8 = { 0x1907, 0x1401, "uint8", 3 },
  rgba8 = { 0x1908, 0x1401, "uint8", 4 }, bgr8 = { 0x80E0, 0x1401, "uint8", 3 }, bgra8 = { 0x80E1, 0x1401, "uint8", 4 },
  srgb8 = { 0x1907, 0x1401, "uint8", 3 }, srgb8_alpha8 = { 0x1908, 0x1401, "uint8", 4 },
  r16f = { 0x1903, 0x140B, "float16", 1 }, rg16f = { 0x8227, 0x140B, "float16", 2 },
  rgba16f = { 0x1908, 0x140B, "float16", 4 },
  r32f = { 0x1903, 0x1406, "float32", 1 }, rg32f = { 0x8227, 0x1406, "float32", 2 },
  rgb32f = { 0x1907, 0x1406, "float32", 3 }, rgba32f = { 0x1908, 0x1406, "float32", 4 },
  rgb10_a2 = { 0x1908, 0x8368, "uint32", 0 }, bgr10_a2 = { 0x80E1, 0x8368, "uint32", 0 },
  r11f_g11f_b10f = { 0x1907, 0x8C3B, "uint32", 0 },
}

-- The pixel store for rows that begin every so many pixels, and back to what it was.
local function with_store(self, store, row_length, fn)
  local set, others, before = self.call.PixelStorei, store.others, {}
  local length, alignment = integer(self, store.row_length), integer(self, store.alignment)
  for i = 1, #others do
    before[i] = integer(self, others[i])
  end
  for i = 1, #others do
    set(others[i], 0)
  end
  set(store.row_length, row_length)
  set(store.alignment, 1)
  local ok, failure = pcall(fn)
  set(store.row_length, length)
  set(store.alignment, alignment)
  for i = 1, #others do
    set(others[i], before[i])
  end
  if not ok then
    error(failure, 0)
  end
end

-- Calls fn with something bound, and binds what was bound before.
local function with_bound(self, bind, target, binding, name, fn)
  local before = integer(self, binding)
  bind(target, name)
  local ok, result = pcall(fn)
  bind(target, before)
  if not ok then
    error(result, 0)
  end
  return result
end

--- Calls fn with a buffer bound, and binds what was bound before. Returns what fn returned.
function picture.with_buffer(self, target, binding, buffer, fn)
  return with_bound(self, self.call.BindBuffer, target, binding, buffer, fn)
end

local with_buffer = picture.with_buffer

--- The same with a texture.
function picture.with_texture(self, texture, fn)
  return with_bound(self, self.call.BindTexture, TEXTURE_2D, TEXTURE_BINDING_2D, texture, fn)
end

--- Calls fn, which has OpenGL write pixels behind each other: to where it says itself, or into the buffer.
function picture.packed(self, buffer, fn)
  with_buffer(self, PACK.target, PACK.binding, buffer, function()
    with_store(self, PACK, 0, fn)
  end)
end

local function format_of(name, verb)
  local format = picture.formats[name]
  if not format then
    misuse("%s: format: expected a name of gl.formats, such as \"rgba8\", got %s", verb, show(name))
  end
  return format
end

local GPUS = { cuda = true, rocm = true }
local LARGEST_NAME = 2 ^ 32 - 1

--- Refuses what is no name of OpenGL's: its functions would be given the low bits of a larger number.
function picture.check_name(name, least, what, verb)
  if type(name) ~= "number" or name < least or name > LARGEST_NAME or name % 1 ~= 0 then
    misuse("%s: %s: expected OpenGL's number of a %s, got %s", verb, what, what, show(name))
  end
end

--- The pixel that something begins at, 0, 0 where nothing is said, by the same rule.
function picture.pixel(x, y, verb)
  return numbers.small(x or 0, verb .. ": x"), numbers.small(y or 0, verb .. ": y")
end

-- A picture's height, width, bytes of a pixel and from one row to the next; its pixels must be compact in a row, in
-- memory that the host reads.
local function picture_of(t, format, verb)
  local channels = format[4]
  local dl = t._dl
  if GPUS[t.device:match "^(%a+):"] then
    misuse("%s: device: expected memory that the host can read, got %s; t:to \"cpu\" has it", verb, t.device)
  elseif t.dtype ~= format[3] then
    misuse("%s: dtype: expected %s, got %s", verb, format[3], t.dtype)
  elseif dl.ndim ~= (channels > 0 and 3 or 2) or channels > 0 and tonumber(dl.shape[2]) ~= channels then
    misuse("%s: shape: expected height x width%s, got {%s}", verb, channels > 0 and " x " .. channels or "",
      table.concat(t.shape, ", "))
  end
  local unit = math.max(channels, 1)
  local compact = (tonumber(dl.shape[1]) <= 1 or tonumber(dl.strides[1]) == unit)
    and (channels <= 1 or tonumber(dl.strides[2]) == 1)
  if not compact then
    misuse("%s: strides: expected compact pixels in each row, got {%s}; t:copy() has them", verb,
      table.concat(t.strides, ", "))
  end
  return tonumber(dl.shape[0]), tonumber(dl.shape[1]), unit, tonumber(dl.strides[0])
end

--- The elements of `t` to a texture's image, from pixel x, y on. Rows may lie any number of elements apart, in either
--- direction: row 0 of `t` is OpenGL's lowest, so the view `t:view({ nil, nil, -1 })` puts a picture upright. Returns
--- when OpenGL has taken them.
---@param texture number OpenGL's name of a 2D texture with storage
---@param t moonferry.Tensor height x width x channels, or height x width of whole pixels
---@param format string of gl.formats
---@param x? number
---@param y? number
function Context:upload(texture, t, format, x, y)
  local known, call = format_of(format, "upload"), self.call
  local height, width, unit, pitch = picture_of(t, known, "upload")
  picture.check_name(texture, 0, "texture", "upload")
  x, y = picture.pixel(x, y, "upload")
  local kept, message, code = t:view {} -- which nobody else can close while OpenGL reads
  if not kept then
    return nil, message, code
  end
  local handle, err = tensor.handle_of(kept), errors.place()
  local rc = C.mf_tensor_acquire(handle, -2, C.MF_READ, err)
  if not errors.passed(rc, err) then
    local none, why, number = errors.refused("upload", rc, err)
    kept:close()
    return none, why, number
  end
  local data = ffi.cast("const uint8_t *", kept._dl.data)
  local size = tonumber(C.mf_dtype_bits(kept._dl.dtype, 0)) / 8
  local in_one = pitch >= width * unit and pitch % unit == 0 and pitch / unit < 2 ^ 31
  local rows = in_one and height or 1
  local function send()
    for row = 0, height - 1, math.max(rows, 1) do
      call.TexSubImage2D(TEXTURE_2D, 0, x, y + row, width, rows, known[1], known[2],
        data + row * pitch * size)
    end
  end
  picture.with_texture(self, texture, function()
    with_buffer(self, UNPACK.target, UNPACK.binding, 0, function()
      with_store(self, UNPACK, rows > 1 and pitch / unit or 0, send)
    end)
  end)
  kept:close()
  return true
end

---@class moonferry.gl.Reader
local Reader = {}
Reader.__index = Reader

--- Reads pictures back without a stall: `read` queues, `latest` gives the newest picture that has come.
---@param width number
---@param height number
---@param format? string of gl.formats, default "rgba8"
---@param opts? moonferry.gl.RingOptions slots, route
---@return moonferry.gl.Reader?, string? message, number? code
function Context:reader(width, height, format, opts)
  local known = format_of(format or "rgba8", "reader")
  if numbers.small(width, "reader: width") < 1 or numbers.small(height, "reader: height") < 1 then
    misuse("reader: expected a width and a height of at least 1, got %s and %s", show(width), show(height))
  end
  opts = transfer.options(opts, READER_OPTIONS, "reader")
  local shape = known[4] > 0 and { height, width, known[4] } or { height, width }
  local r, message, code = self:ring(shape, known[3], {
    target = "pack", slots = opts.slots, route = opts.route,
  })
  if not r then
    return nil, message, code
  end
  return setmetatable({ ring = r, width = width, height = height, format = known, queued = {}, came = false }, Reader)
end

-- Into the slot that was begun.
local function read_pixels(self, t, i, x, y)
  local r, context = self.ring, self.ring.context
  local mapped = r.route == "mapped"
  local to = mapped and ffi.cast("void *", (i - 1) * r.slot_nbytes) or t._dl.data
  picture.packed(context, mapped and r.buffer or 0, function()
    context.call.ReadPixels(x, y, self.width, self.height, self.format[1], self.format[2], to)
  end)
  if self.came == i then
    self.came = false
  end
  self.queued[#self.queued + 1] = i
  return r:done(C.MF_WRITE)
end

--- Queues a read of the frame buffer that is bound for reading, from pixel x, y on. The picture that `latest` gave
--- stays as it is for as many more reads as there are slots but one.
---@return true?, string? message, number? code
function Reader:read(x, y)
  x, y = picture.pixel(x, y, "read")
  places.room() -- between `begin` and what gives its slot back Lua's stack must not grow
  local t, i, code = self.ring:begin()
  if not t then
    return nil, i, code
  end
  local ok, done, message
  ok, done, message, code = pcall(read_pixels, self, t, i, x, y)
  if not ok then
    self.ring.ring:done() -- or no slot could be begun any more
    error(done, 0)
  end
  return done, message, code
end

--- The newest picture that has come, row 0 OpenGL's lowest; nil before the first one. Never waits.
---@return moonferry.Tensor?
function Reader:latest()
  local slots, at = self.ring.ring.slots, self.ring.context._int
  while self.queued[1] do
    C.mf_tensor_fence_wait(slots[self.queued[1]]._handle, C.MF_READ, 0, at, nil)
    if at[0] == 0 then
      break
    end
    self.came = table.remove(self.queued, 1)
  end
  return self.came and slots[self.came] or nil
end

--- Ends it; see the ring's.
function Reader:close()
  return self.ring:close()
end

return picture
