-- Writes the table of libraries as JSON, for whoever starts the cells: luajit list.lua TABLE
package.path = (arg[0]:match("^(.*)/[^/]*$") or ".") .. "/?.lua;" .. package.path
local json = require "json"

local found = {}
for i, entry in ipairs(require(arg[1])) do
  found[i] = { name = entry.name, env = entry.env or "", module = entry.module, note = entry.note or "" }
end
print(json(found))
