-- OpenGL memory as tensors: rings of slots in buffers that stay mapped, pictures up to textures and back without a
-- stall.
--
-- Responsible for: contexts, what they can do, and their end; their methods stand in the files beside this one.
-- Invariant: what is bound, and the pixel store, are as they were when a function returns; all of this is for the
-- thread on which the context is current. Must not know: what is drawn.
require "moonferry" -- what tensors can is in its parts
local ffi = require "ffi"
local C = require "moonferry.lib"
local calls = require "moonferry.gl_calls"
local errors = require "moonferry.errors"
local fences = require "moonferry.gl_fence"
local foreign = require "moonferry.foreign"
local hint = require "moonferry.hint"
local picture = require "moonferry.gl_picture"
local finalizers, places = require "moonferry.finalizer", require "moonferry.place"
require "moonferry.gl_ring"
local share = require "moonferry.gl_share"
require "moonferry.gl_texture"

local misuse, show = errors.misuse, errors.show

local gl = { formats = picture.formats }

-- Numbers of OpenGL 4.6.
local MAJOR, MINOR, NUM_EXTENSIONS, EXTENSIONS = 0x821B, 0x821C, 0x821D, 0x1F03

---@class moonferry.gl.Context
---@field buffer_storage string? why buffers cannot stay mapped
---@field pinned_memory string? why memory of the program's cannot be a buffer
local Context = picture.Context
Context.__index = Context

function Context.__newindex(_, key)
  misuse("a context of OpenGL's has no field %s that can be set", show(key))
end

local release = C.mf_gl_release
local take_place, handle_at = places.handles("mf_gl *[1]", release, finalizers.of(release))

local integer = picture.integer

local function has_extension(self, name)
  if not self.call.GetStringi then
    return false
  end
  for i = 0, integer(self, NUM_EXTENSIONS) - 1 do
    if ffi.string(self.call.GetStringi(EXTENSIONS, i)) == name then
      return true
    end
  end
  return false
end

local function ask_routes(self)
  local version = integer(self, MAJOR) * 10 + integer(self, MINOR)
  if not self.call.BufferStorage or not (version >= 44 or has_extension(self, "GL_ARB_buffer_storage")) then
    local why = ("OpenGL %d.%d has no GL_ARB_buffer_storage"):format(version / 10, version % 10)
    rawset(self, "buffer_storage", why)
  end
  if not has_extension(self, "GL_AMD_pinned_memory") then
    rawset(self, "pinned_memory", "there is no GL_AMD_pinned_memory")
  end
end

--- The context that is current on this thread: of SDL, GLFW or EGL ("sdl", "glfw", "egl"; the first that has one, where
--- nothing is said), or of anything else that finds functions: `{ getproc = function(name) -> pointer, current = a C
--- function without arguments that returns the current context }`. LÖVE's is SDL's.
---@param from? string|{ getproc: function, current: ffi.cdata* }
---@return moonferry.gl.Context?, string? message, number? code
function gl.open(from)
  local library, message, code = from, nil, nil
  if type(from) ~= "table" then
    library, message, code = calls.find_library(from)
  elseif from.getproc == nil or from.current == nil then
    misuse("gl.open: getproc and current expected, got %s and %s", show(from.getproc), show(from.current))
  elseif type(from.current) ~= "cdata" then -- C calls it, also where no Lua can run
    misuse("gl.open: current: expected a C function, got %s", show(from.current))
  end
  if not library then
    return nil, message, code
  end
  local call
  call, message, code = calls.load_functions(library.getproc)
  if not call then
    return nil, message, code
  end
  local own, at = ffi.new("mf_gl_calls"), take_place()
  own.fence_sync = ffi.cast("void *(*)(uint32_t, uint32_t)", library.getproc("glFenceSync"))
  own.client_wait_sync = ffi.cast("uint32_t (*)(void *, uint32_t, uint64_t)", library.getproc("glClientWaitSync"))
  own.delete_sync = ffi.cast("void (*)(void *)", library.getproc("glDeleteSync"))
  own.current_context = ffi.cast("void *(*)(void)", library.current)
  local err = errors.place()
  local rc = C.mf_gl_create(own, at, err)
  if not errors.passed(rc, err) then
    return errors.refused("gl.open", rc, err)
  end
  local self = setmetatable({
    call = call, handle = handle_at(at), _int = ffi.new("int32_t[1]"), _fence = ffi.new("mf_fence"), _refused = false,
    _dropped = {}, _drop = false,
  }, Context)
  ask_routes(self)
  return self
end

--- Before the context is destroyed: waits for what was drawn, after which no fence of it keeps anybody waiting, and
--- closes what was shared and dropped.
function Context:finish()
  fences.drop_refused(self)
  collectgarbage()
  share.sweep(self)
  self.call.Finish()
  C.mf_gl_end(self.handle)
  foreign.run()
end

hint.guard(gl, "moonferry.gl", "gl.", errors)
hint.guard(Context, "a context of OpenGL's", "gl:", errors, { buffer_storage = true, pinned_memory = true })

return gl
