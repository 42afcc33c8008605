-- Finds the C module that carries values between this Lua state and Python, and loads it.
--
-- Invariant: it is of the same build as the library that this process uses, because it lies beside it. Must not know:
-- how Python starts, or what crosses.
local ffi = require "ffi"
local beside = require "moonferry.beside"
local interpreter = require "moonferry.interpreter"

local bridge = {}

local ABSENT = [[moonferry_bridge.so is neither beside libmoonferry (%s) nor on package.cpath.
Moonferry's Python package has it: pip install, and on LUA_PATH what moonferry.get_lua_path() says there.]]

-- Where Python hosts this state, its own module moonferry._lua holds the bridge.
local function find()
  local folder = beside.folder()
  local hosting = interpreter.resident "_lua%.[%w_-]+%.so"
  if folder and hosting and hosting:match("^(.*/)[^/]*$") == folder then
    return hosting
  end
  local path = folder and folder .. "moonferry_bridge.so"
  local file = path and io.open(path)
  if file then
    file:close()
    return path
  end
  local elsewhere = package.searchpath("moonferry_bridge", package.cpath)
  return elsewhere, not elsewhere and ABSENT:format(folder or "?")
end

local ADVICE = [[%s
A C module finds Lua's functions in the program that runs Lua, but this program keeps its LuaJIT to itself: it has to
be linked with -Wl,--export-dynamic (CMake: ENABLE_EXPORTS), or with LuaJIT's shared library.]]

-- Where Lua came with a plugin that nobody else sees, its library can still be shown to all.
local function load(path)
  local open, fault = package.loadlib(path, "luaopen_moonferry_bridge")
  if open or not fault:find "undefined symbol: lua" then
    return open, fault
  end
  local library = interpreter.resident "libluajit[^/\n]*%.so"
  if not library then
    return nil, ADVICE:format(fault)
  end
  bridge.anchor = ffi.load(library, true)
  return package.loadlib(path, "luaopen_moonferry_bridge")
end

---The functions of the C module.
---@return table?
---@return string? message why there are none
function bridge.load()
  local path, message = find()
  if not path then
    return nil, message
  end
  local open, fault = load(path)
  if not open then
    return nil, fault
  end
  local ok, module = pcall(open)
  return ok and module or nil, not ok and module or nil
end

return bridge
