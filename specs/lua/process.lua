-- Programs that specs run in a process of their own: what is specified is how they start and end.
local process = {}

-- How a script begins that hosts Python, and the program that is an engine with such scripts.
process.PRELUDE = 'local py = require "moonferry.python"\n'
process.ENGINE = (os.getenv "MOONFERRY_BUILD" or "build/dev") .. "/specs/life_engine"

function process.write_file(path, text)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
end

function process.read_file(path)
  local file = assert(io.open(path))
  local text = file:read("*a")
  file:close()
  return text
end

-- The exit status of a command. With Lua 5.2's functions os.execute says whether it ended well, how, and its status.
local function execute(command)
  local status, how, code = os.execute(command)
  if type(status) == "number" then
    return status / 256
  end
  return how == "exit" and code or 128 + code
end

-- Runs a command; returns its exit status and what it printed.
function process.shell(command)
  local output = os.tmpname()
  local status = execute(("{ %s\n} >%s 2>&1"):format(command, output))
  local text = process.read_file(output)
  os.remove(output)
  return status, text
end

-- Runs a script in a process of its own, by luajit if nothing else is said.
function process.run(script, environment, program, arguments)
  local path = os.tmpname()
  process.write_file(path, script)
  local command = ("%s %s %s %s"):format(environment or "", program or "luajit", path, arguments or "")
  local status, text = process.shell(command)
  os.remove(path)
  return status, text
end

-- The same for a program that must end well; returns what it printed.
function process.runs(...)
  local status, text = process.run(...)
  if status ~= 0 then
    error(("it ended with %d:\n%s"):format(status, text), 2)
  end
  return text
end

return process
