-- The programs of either_language.py in a process that Lua hosts; the arguments are that program's.
local py = require "moonferry.python"
py.start()
py.import("sys").path:insert(0, arg[0]:match "^(.*)/")
local language = py.import "either_language"

_G.python = { iter = py.iter, get = py.get }
local host = py.call(py.import("types").SimpleNamespace, {}, {
  environment = assert(loadstring(language.LOAD)),
  eval = function(text) return assert(loadstring("return " .. text))() end,
  tostring = tostring,
})
local faulty = language.main(tonumber(arg[1]), tonumber(arg[2]), function() return host end)
os.exit(faulty and 1 or 0)
