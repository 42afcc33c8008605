-- Which Python the subcommands `check` and `doctor` use, and the words that run a part of the package there.
--
-- It is the interpreter that moonferry.python would host, but here it is only run, so that it needs no libpython. Must
-- not know: what the parts do.
local interpreter = require "moonferry.interpreter"

local python = {}

-- The folder that holds lua/moonferry/program and, beside lua, the Python files.
local PACKAGE = debug.getinfo(1, "S").source:match("^@(.*)/lua/moonferry/program/[^/]*$") or "."

---Takes `--python PATH` out of the words.
---@param words string[]
---@return string? path, string[] rest
function python.option(words)
  local path, rest, i = nil, {}, 1
  while i <= #words do
    local given = words[i]:match("^%-%-python=(.*)$")
    if given or (words[i] == "--python" and words[i + 1]) then
      path = given or words[i + 1]
      i = given and i or i + 1
    else
      rest[#rest + 1] = words[i]
    end
    i = i + 1
  end
  return path, rest
end

---The command that runs a part of the package.
---@param path string? the interpreter; else the one that would be hosted
---@param part string
---@param words string[]
---@return string[] command, string reason why that interpreter
function python.command(path, part, words)
  local executable, reason = interpreter.choose { python = path }
  local command = { executable, PACKAGE .. "/_tool.py", part }
  for _, word in ipairs(words) do
    command[#command + 1] = word
  end
  return command, path and "--python" or reason
end

---What `moonferry check` runs in its place.
---@param words string[]
---@return string[]
function python.check(words)
  local path, rest = python.option(words)
  return (python.command(path, "run", rest))
end

return python
