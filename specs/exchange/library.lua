-- A library of the matrix, made of its entry: functions that Lua calls instead of Python's expressions.
--
-- Must not know: any library, what is checked.
local py = require "moonferry.python"

local library = {}

-- What the expressions of an entry may name: of host.lua, and of the tables of devices.
library.HOST = {
  make = "a, raw, dtype, shape", give = "x, dtype, shape", take = "t, dtype", bytes = "x, dtype", pointer = "x",
  write = "x, value", lock = "x",
}
library.DEVICE = {
  stream = "", handle = "stream", make = "value, stream", give = "x, stream", take = "t, stream",
  fill = "x, value, stream", read = "x, stream", pointer = "x", seen = "x",
}

local DEFAULTS = { give = "moonferry.from_dlpack(x)" }

local function lambda(arguments, expression, scope)
  return py.eval(("lambda %s: (%s)"):format(arguments, expression), scope)
end

--- The entry of that name in a list of entries.
function library.find(entries, name)
  for _, entry in ipairs(entries) do
    if entry.name == name then
      return entry
    end
  end
  error("no library is called " .. tostring(name))
end

-- What the library calls its version: of a part of Python's own library it is Python's.
local function version_of(entry, scope)
  local name = entry.package or entry.module
  local known, version = pcall(py.import("importlib.metadata").version, name)
  if known then
    return version
  end
  return tostring(py.eval(("getattr(%s, '__version__', None) or ' '.join(('Python', platform.python_version()))")
    :format(entry.module), py.dict { [entry.module] = py.get(scope, entry.module), platform = py.import "platform" }))
end

--- Imports the library and compiles its expressions, which may name what `scope` has.
function library.open(entry, arguments, more)
  local scope = py.dict(more or {})
  for _, name in ipairs { "support", "moonferry", "numpy" } do
    py.set(scope, name, py.import(name))
  end
  py.exec(entry.before or "", scope)
  py.exec("import " .. entry.module, scope)
  py.exec(entry.setup or "", scope)
  local made = { name = entry.name, views = {}, host = entry.host }
  made.limits, made.grows = entry.limits or {}, entry.grows or {}
  made.version = version_of(entry, scope)
  for verb, names in pairs(arguments) do
    local expression = entry[verb] or DEFAULTS[verb]
    made[verb] = expression and lambda(names, expression, scope)
  end
  for layout, expression in pairs(entry.views or {}) do
    made.views[layout] = lambda("x", expression, scope)
  end
  return made
end

return library
