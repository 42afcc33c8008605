-- Textures of OpenGL's and tensors of a GPU: copies on a stream, by CUDA's or HIP's arrays.
--
-- Responsible for: Context:share_texture. Invariant: the texture is OpenGL's before and after each call. Must not know:
-- how OpenGL's functions were found (gl_calls.lua), nor the drivers' calls (C's mf_gl_texture).
local ffi = require "ffi"
local C = require "moonferry.lib"
local create = require "moonferry.create"
local errors = require "moonferry.errors"
local picture = require "moonferry.gl_picture"
local share = require "moonferry.gl_share"
local stream = require "moonferry.stream"
local tensor = require "moonferry.tensor"

local misuse = errors.misuse
local Context = picture.Context

local TEXTURE_2D = 0x0DE1
local WIDTH, HEIGHT, INTERNAL_FORMAT = 0x1000, 0x1001, 0x1003
local NO_WORDS = {}
local new_texture, new_integer = ffi.typeof "mf_gl_texture *[1]", ffi.typeof "int32_t[1]"

-- What the host's route can copy, by OpenGL's sized names: names of gl.formats.
local FORMATS = {
  [0x8229] = "r8", [0x822B] = "rg8", [0x8058] = "rgba8", [0x822D] = "r16f", [0x822F] = "rg16f", [0x881A] = "rgba16f",
  [0x822E] = "r32f", [0x8230] = "rg32f", [0x8814] = "rgba32f",
}

---@class moonferry.gl.SharedTexture
---@field route "mapped"|"copied" the GPU copies to the texture itself, or its pixels go through the host
---@field reason string? why they do
local SharedTexture = {}
SharedTexture.__index = SharedTexture

-- The texture as the driver has registered it, as in gl_share.lua; nil and why not.
local function register(context, which, texture, use)
  local out, err = share.place(context, new_texture), errors.place()
  local rc = C.mf_gl_texture_open(which, texture, 0, share.FLAGS[use] or 0, out, err)
  if not errors.passed(rc, err) then
    return nil, errors.text(err)
  end
  return out
end

--- Shares a 2D texture with a GPU, whose tensors are then copied to it and from it on a stream. Its storage has one,
--- two or four channels of 8, 16 or 32 bits ("r8" to "rgba32f" of gl.formats, and OpenGL's integer formats). `use` is
--- "read" where the GPU only reads it, or "discard" where each upload writes all of it. Where the driver cannot
--- register it, pixels are copied through the host, and `reason` says why. Close it before the texture is deleted.
---@param texture number OpenGL's name of it
---@param opts { device: string, use: "read"|"discard"|nil, route: "mapped"|"copied"|nil }
---@return moonferry.gl.SharedTexture?, string? message, number? code
function Context:share_texture(texture, opts)
  local which, message, code = share.device_of(texture, "texture", opts, "share_texture")
  if not which then
    return nil, message, code
  end
  local shared = setmetatable({ context = self, texture = texture, device = opts.device, use = opts.use, _dl = which,
    handle = false, route = "copied" }, SharedTexture)
  if opts.route ~= "copied" then
    share.sweep(self)
    local handle, why = register(self, which, texture, opts.use)
    if handle then
      shared.handle, shared.route = handle, "mapped"
    elseif opts.route == "mapped" then
      return nil, "share_texture: " .. why, C.MF_EDEVICE
    else
      shared.reason = why
    end
  end
  return shared
end

-- Each answer has a place of its own: LuaJIT may read one where it is compared, behind the next question.
local function level(self, what)
  local answer = new_integer()
  self.context.call.GetTexLevelParameteriv(TEXTURE_2D, 0, what, answer)
  return answer[0]
end

-- With the texture bound: its format's name, width and height.
local function form(self, verb)
  local internal = level(self, INTERNAL_FORMAT)
  local name = FORMATS[internal]
  if not name then
    misuse("%s: the texture has OpenGL's format 0x%x; one of gl.formats with 1, 2 or 4 channels expected", verb,
      internal)
  end
  return name, level(self, WIDTH), level(self, HEIGHT)
end

local function check_fit(verb, t, x, y, width, height)
  local dl = t._dl
  local inside = dl.ndim >= 2 and x >= 0 and y >= 0 and x + tonumber(dl.shape[1]) <= width
    and y + tonumber(dl.shape[0]) <= height
  if not inside then
    misuse("%s: {%s} from %d, %d on do not fit in the texture's %d by %d", verb, table.concat(t.shape, ", "), x, y,
      width, height)
  end
end

-- A picture of one channel as the formats have it.
local function with_channel(t)
  if t.ndim == 2 then
    return t:expand_dims(2)
  end
  return t:view()
end

local function upload_by_host(self, t, x, y)
  local host, message, code = t:to("cpu", { copy = true })
  if not host then
    return nil, message, code
  end
  local done
  picture.with_texture(self.context, self.texture, function()
    local name, width, height = form(self, "upload")
    check_fit("upload", host, x, y, width, height)
    local view
    view, message, code = with_channel(host)
    if view then
      done, message, code = self.context:upload(self.texture, view, name, x, y)
      view:close()
    end
  end)
  host:close()
  if not done then
    return nil, message, code
  end
  return true
end

-- OpenGL gives a whole image.
local function whole_image(self, name, width, height)
  local context, known = self.context, picture.formats[name]
  local host, message, code = create.empty({ height, width, known[4] }, known[3])
  if not host then
    return nil, message, code
  end
  picture.packed(context, 0, function()
    context.call.GetTexImage(TEXTURE_2D, 0, known[1], known[2], host._dl.data)
  end)
  return host
end

local function download_by_host(self, t, x, y)
  local host, message, code
  picture.with_texture(self.context, self.texture, function()
    local name, width, height = form(self, "download")
    check_fit("download", t, x, y, width, height)
    host, message, code = whole_image(self, name, width, height)
  end)
  if not host then
    return nil, message, code
  end
  local rows, columns = t.shape[1], t.shape[2]
  local part, flat, copied
  part, message, code = host:view({ y, y + rows }, { x, x + columns })
  flat = part
  if part and t.ndim == 2 and host.shape[3] == 1 then
    flat, message, code = part:squeeze(2)
  end
  if flat then
    copied, message, code = t:copy(flat)
    flat:close()
  end
  if part then
    part:close()
  end
  host:close()
  if not copied then
    return nil, message, code
  end
  return true
end

-- Each way: what it is called, by the driver and by the host.
local UP = { "upload", C.mf_gl_texture_upload, upload_by_host }
local DOWN = { "download", C.mf_gl_texture_download, download_by_host }

local function transfer(self, way, t, on, x, y)
  local verb, by_driver, by_host = way[1], way[2], way[3]
  local handle = tensor.handle_of(t)
  if self.handle == nil then
    misuse("%s: the shared texture is closed", verb)
  end
  share.sweep(self.context)
  x, y = picture.pixel(x, y, verb)
  local number = stream.number_of(on, self._dl[0], verb .. ": stream", NO_WORDS)
  if self.handle then
    local err = errors.place()
    return errors.done(verb, errors.call(by_driver, self.handle[0], handle, x, y, number, err), err)
  elseif on then
    return stream.run(on, by_host, self, t, x, y)
  end
  return by_host(self, t, x, y)
end

--- The elements of `t`, height x width x channels (or height x width of one channel) in the texture's own dtype and
--- order of channels, to level 0 of the texture, from pixel x, y on. Row 0 is OpenGL's lowest; strides may be any.
--- Queued on that stream (nil: the current one), behind what OpenGL was told before and what used `t`; what OpenGL is
--- told next comes after it. The host waits for nothing where the route is "mapped".
---@param t moonferry.Tensor
---@param on? moonferry.Stream
---@param x? number
---@param y? number
---@return true?, string? message, number? code
function SharedTexture:upload(t, on, x, y)
  if self.use == "read" then
    misuse("upload: the texture is shared for reading; use \"discard\", or none, expected")
  end
  return transfer(self, UP, t, on, x, y)
end

--- The other way, from the texture to `t`. The host waits where `t` is in its own memory.
---@param t moonferry.Tensor
---@param on? moonferry.Stream
---@param x? number
---@param y? number
---@return true?, string? message, number? code
function SharedTexture:download(t, on, x, y)
  if self.use == "discard" then
    misuse("download: the texture is shared for discarding what it has; use \"read\", or none, expected")
  end
  return transfer(self, DOWN, t, on, x, y)
end

--- Gives the texture back to OpenGL alone.
---@return true?, string? message, number? code
function SharedTexture:close()
  return share.close(self)
end

return SharedTexture
