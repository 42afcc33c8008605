-- Writes the table of libraries as JSON, for whoever starts the cells: luajit list.lua TABLE
package.path = (arg[0]:match("^(.*)/[^/]*$") or ".") .. "/?.lua;" .. package.path
local json = require "json"

local found = {}
for i, entry in ipairs(require(arg[1])) do
  found[i] = { name = entry.name, env = entry.env or "", module = entry.module, note = entry.note or "",
    host = entry.host ~= nil, writes = entry.write ~= nil, lacks = entry.lacks or {}, gives = entry.gives or {},
    takes = entry.takes or {}, falls_back = entry.falls_back or false, brings = entry.brings or {},
    limits = entry.limits or {}, grows = entry.grows or {} }
end
print(json(found))
