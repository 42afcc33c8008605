-- OpenGL's functions, found through whatever the program has: SDL, GLFW, EGL, or a function of its own.
--
-- Responsible for: the libraries that have a current context, and the functions' signatures. Must not know: what the
-- functions are called for.
local ffi = require "ffi"
local C = require "moonferry.lib"
local errors = require "moonferry.errors"

local misuse, show = errors.misuse, errors.show

local calls = {}

local SIGNATURES = {
  GetError = "uint32_t (*)(void)", GetIntegerv = "void (*)(uint32_t, int32_t *)",
  GetStringi = "const char *(*)(uint32_t, uint32_t)",
  GenBuffers = "void (*)(int32_t, uint32_t *)", DeleteBuffers = "void (*)(int32_t, const uint32_t *)",
  BindBuffer = "void (*)(uint32_t, uint32_t)", BufferData = "void (*)(uint32_t, intptr_t, const void *, uint32_t)",
  BufferSubData = "void (*)(uint32_t, intptr_t, intptr_t, const void *)",
  GetBufferSubData = "void (*)(uint32_t, intptr_t, intptr_t, void *)",
  BufferStorage = "void (*)(uint32_t, intptr_t, const void *, uint32_t)",
  MapBufferRange = "void *(*)(uint32_t, intptr_t, intptr_t, uint32_t)", UnmapBuffer = "uint8_t (*)(uint32_t)",
  PixelStorei = "void (*)(uint32_t, int32_t)", BindTexture = "void (*)(uint32_t, uint32_t)",
  TexSubImage2D = "void (*)(uint32_t, int32_t, int32_t, int32_t, int32_t, int32_t, uint32_t, uint32_t, const void *)",
  GetTexLevelParameteriv = "void (*)(uint32_t, int32_t, uint32_t, int32_t *)",
  GetTexImage = "void (*)(uint32_t, int32_t, uint32_t, uint32_t, void *)",
  ReadPixels = "void (*)(int32_t, int32_t, int32_t, int32_t, uint32_t, uint32_t, void *)",
  Finish = "void (*)(void)",
}
local OPTIONAL = { GetStringi = true, BufferStorage = true, GetTexLevelParameteriv = true, GetTexImage = true }

-- Where the usual libraries have their functions: the file, the resolver, the current context.
local LIBRARIES = {
  { "sdl", "libSDL2-2.0.so.0", "SDL_GL_GetProcAddress", "SDL_GL_GetCurrentContext" },
  { "glfw", "libglfw.so.3", "glfwGetProcAddress", "glfwGetCurrentContext" },
  { "egl", "libEGL.so.1", "eglGetProcAddress", "eglGetCurrentContext" },
}

-- Declared under a name of ours, so that a program which declares SDL or EGL itself is not in the way.
local function symbol(library, name, kind)
  local alias = "mf_symbol_" .. name
  pcall(ffi.cdef, kind:format(alias) .. (" __asm__(%q);"):format(name))
  local found, value = pcall(function()
    return library[alias]
  end)
  return found and value or nil
end

local function open_library(entry)
  local loaded, library = pcall(ffi.load, entry[2])
  if not loaded then
    return nil
  end
  local resolve = symbol(library, entry[3], "void *%s(const char *name)")
  local current = symbol(library, entry[4], "void *%s(void)")
  return resolve and current and { getproc = resolve, current = ffi.cast("void *(*)(void)", current) }
end

--- The library that has a current context, or the one that was named; nil and why not.
function calls.find_library(name)
  local known = false
  for _, entry in ipairs(LIBRARIES) do
    if name == nil or name == entry[1] then
      known = true
      local found = open_library(entry)
      if found and found.current() ~= nil then
        return found
      end
    end
  end
  if not known then
    misuse("gl.open: expected \"sdl\", \"glfw\", \"egl\" or a table with getproc and current, got %s", show(name))
  end
  return nil, "gl.open: no context of OpenGL is current in " .. (name or "SDL, GLFW or EGL"), C.MF_EDEVICE
end

function calls.load_functions(getproc)
  local call = {}
  for name, signature in pairs(SIGNATURES) do
    local pointer = getproc("gl" .. name)
    if pointer ~= nil then
      call[name] = ffi.cast(signature, pointer)
    elseif not OPTIONAL[name] then
      return nil, "gl.open: there is no gl" .. name, C.MF_EDEVICE
    end
  end
  return call
end

return calls
