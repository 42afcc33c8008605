-- Finds and loads the one libmoonferry of this process.
--
-- Responsible for: declaring the C API to LuaJIT, and for Lua and Python in one process sharing one copy of
-- the library, whichever came first. Invariant: what it returns was built from the moonferry.h that cdef.lua
-- was generated from, and is never unloaded. Must not know: tensors.
local loaded, ffi = pcall(require, "ffi")
if not loaded or type(jit) ~= "table" then
  error("moonferry needs LuaJIT with its FFI; this is " .. _VERSION, 0)
end
local cdef = require "moonferry.cdef"

-- busted runs modules again in one process, and another library may have declared DLPack before us.
for _, part in ipairs(cdef.parts) do
  if not pcall(ffi.typeof, part[1]) then
    ffi.cdef(part[2])
  end
end

local NOW = 2
local NOLOAD = ({ Linux = 4, OSX = 0x10 })[ffi.os]
local NAMES = ({
  OSX = { "@rpath/libmoonferry.0.dylib", "libmoonferry.0.dylib" },
  Windows = { "moonferry.dll" },
})[ffi.os] or { "libmoonferry.so.0" }
local FILE = NAMES[#NAMES]
local BUILD = ffi.os == "Windows" and "build/windows" or "build/dev"

-- The name under which the library is in this process already, or nil. Each hit counts a reference that is
-- never given back: that pins the library, because finalizers of tensors may run after every Lua module.
local function resident()
  if ffi.os == "Windows" then -- where the library pins itself
    pcall(ffi.cdef, "void *GetModuleHandleA(const char *name);")
    return ffi.C.GetModuleHandleA(FILE) ~= nil and FILE or nil
  end
  if not NOLOAD then
    return nil
  end
  pcall(ffi.cdef, "void *dlopen(const char *filename, int flags);")
  for _, name in ipairs(NAMES) do
    local ok, handle = pcall(function()
      return ffi.C.dlopen(name, NOW + NOLOAD)
    end)
    if ok and handle ~= nil then
      return name
    end
  end
end

-- Every place to look, in order, as { path, where it comes from }.
local function candidates()
  local here = debug.getinfo(1, "S").source:match("^@(.*[/\\])") or "./"
  local root = here:match("^(.*[/\\])[^/\\]+[/\\][^/\\]+[/\\]$") or here .. "../../"
  if here:match("^[^/\\]+[/\\][^/\\]+[/\\]$") then
    root = "./"
  end
  local given = os.getenv("MOONFERRY_LIBRARY")
  if given and given ~= "" then
    return { { given, "MOONFERRY_LIBRARY" } }
  end
  local places = {
    { root .. FILE, "beside the Lua files" },
    { root .. BUILD .. "/python/moonferry/" .. FILE, "the build directory" },
    { FILE, "the system's library path" },
  }
  local rock = package.searchpath(FILE, (package.cpath:gsub("%?%.so", "?")), "")
  if rock then
    table.insert(places, 3, { rock, "package.cpath" })
  end
  return places
end

local REMEDY = [[

Either of these mends it: pip install . in the source tree, and on LUA_PATH what Python's moonferry.get_lua_path() says;
make build in the source tree, for its own Lua files; MOONFERRY_LIBRARY, set to the file of the library.]]

local function open()
  local name = resident()
  if name then
    return ffi.load(name), name
  end
  local tried = {}
  for _, candidate in ipairs(candidates()) do
    local path, origin = candidate[1], candidate[2]
    if ffi.os == "Windows" then -- LoadLibraryEx wants backslashes
      path = path:gsub("/", "\\")
    end
    local ok, result = pcall(ffi.load, path)
    if ok then
      resident()
      return result, path
    end
    tried[#tried + 1] = ("  %s (%s): %s"):format(path, origin, tostring(result))
  end
  error("moonferry cannot load its C library. Tried:\n" .. table.concat(tried, "\n") .. REMEDY, 0)
end

local C, path = open()

local function check_build()
  local ok, id = pcall(function()
    return ffi.string(C.mf_build_id())
  end)
  if not ok then
    error(("moonferry: %s is not a Moonferry library: %s"):format(path, tostring(id)), 0)
  end
  if id:match("^(%x+)%-") ~= cdef.header_hash then
    error(("moonferry: %s was built from another moonferry.h (build %s) than these Lua files (header %s). "
      .. "In the source tree: make build, or lua/generate_cdef.py after an edit of the header."):format(
      path, id, cdef.header_hash), 0)
  end
end

check_build()

return C
