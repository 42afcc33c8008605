-- All operations of Lua's, for a program of Lua's. Called with the folder of this file, and with what operations.lua is
-- called with; gives what that gives.
local folder, point, tell = ...
local py = require "moonferry.python"

-- Where the Python modules are that they use.
local path = py.import("sys").path
for _, of in ipairs { "", "/../python", "/../python/gpu" } do
  path:insert(0, folder .. of)
end

local function load(name, ...)
  local file = assert(io.open(folder .. "/" .. name))
  local text = file:read "*a"
  file:close()
  return assert(loadstring(text, "=" .. name))(...)
end

local made = load("operations.lua", point, tell)
load("python_operations.lua", made.shared)
load("engine_operations.lua", made.shared)
return made
