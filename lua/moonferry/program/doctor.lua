-- `moonferry doctor`: what is there of all that Moonferry works with, and why not.
--
-- All that loads other people's code is asked in a process of its own, so that nothing found there ends this one.
-- The answer is a list of { key, value } where a value is a list again, printed as text or as JSON. Must not know: how
-- a process is run.
local ffi = require "ffi"
local interpreter = require "moonferry.interpreter"
local python = require "moonferry.program.python"
local show = require "moonferry.program.show"

local doctor = {}

local LIBRARIES = { "numpy", "torch", "jax.numpy", "tvm_ffi", "cupy", "cuda.core", "numba.cuda", "warp", "tensorflow",
  "paddle", "mlx.core", "dpctl.tensor", "array_api_strict", "pyarrow" }
local SECONDS = 90

local USAGE = [[
usage: moonferry doctor [--json] [--python PATH] [LIBRARY ...]

Begins with what works and what does not, and then says what was found: LuaJIT, Moonferry, Python and whether it can
have moonferry.Lua, drivers, and what array libraries offer of the exchange protocols.
LIBRARY ...: only these; else those of the known that are installed.
Exit status: 0; 1 if Moonferry itself or Python cannot be used.]]

-- Runs where a driver may crash: prints the facts of one kind of device as lines KEY<TAB>VALUE.
local DRIVER = [[
local kind, symbol = ...
local mf = require "moonferry"
local ffi = require "ffi"
local function say(key, value) print(key .. "\t" .. (tostring(value):gsub("%s+", " "))) end
local count, why = mf.device_count(kind)
say("devices", count or 0)
if why then say("reason", why) end
for line in io.lines "/proc/self/maps" do
  local path = line:match("(/[^ ]*/lib" .. (kind == "cuda" and "cuda" or "amdhip64") .. "%.so[^ /]*)$")
  if path then
    say("library", path)
    ffi.cdef("int " .. symbol .. "(int *version);")
    local version = ffi.new "int[1]"
    local ok, status = pcall(function() return ffi.load(path)[symbol](version) end)
    if ok and status == 0 then say("version", version[0]) end
    break
  end
end
]]

local MOONFERRY = [[
local mf = require "moonferry"
local lib = require "moonferry.lib"
local ffi = require "ffi"
print("version\t" .. mf.version)
print("build\t" .. ffi.string(lib.mf_build_id()))
for line in io.lines "/proc/self/maps" do
  local path = line:match("(/[^ ]*/libmoonferry%.so[^ /]*)$")
  if path then print("library\t" .. path) break end
end
]]

local HOSTED = [[
local py = require "moonferry.python"
print("version\t" .. py.eval("'.'.join(map(str, __import__('sys').version_info[:3]))"))
local ok, why = pcall(function() return py.import("moonferry").__version__ end)
print("moonferry\t" .. (ok and why or tostring(why):match("^[^\n]*")))
]]

local NUMBERS = { devices = true, version_number = true }

local function typed(key, value)
  if value == "true" or value == "false" then
    return value == "true"
  end
  return NUMBERS[key] and tonumber(value) or value
end

-- The lines KEY<TAB>VALUE of a process, and how it ended if that was not well.
local function ask(command)
  local output, status = doctor.run(SECONDS, unpack(command))
  local facts = {}
  for key, value in (output or ""):gmatch("([%w_]+)\t([^\n]*)\n") do
    facts[#facts + 1] = { key, typed(key, value) }
  end
  if #facts == 0 or status ~= 0 and not (#facts > 1 and status == 1) then
    local said = (output or ""):gsub("[%w_]+\t[^\n]*\n", ""):match("[^\n]+") or ""
    local how = status == nil and ("hung for %d s"):format(SECONDS) or status > 128 and ("died of signal %d"):format(
      status - 128) or ("ended with %d"):format(status)
    facts[#facts + 1] = { "failure", (how .. ": " .. said):sub(1, 300) }
  end
  return facts, status
end

local function ask_lua(code, ...)
  return ask { doctor.program, "-e", ("(function(...) %s end)(%s)"):format(code, doctor.listed(...)) }
end

---Lua source of string arguments.
function doctor.listed(...)
  local words = {}
  for i = 1, select("#", ...) do
    words[i] = ("%q"):format((select(i, ...)))
  end
  return table.concat(words, ", ")
end

local function about_luajit()
  return {
    { "version", jit.version }, { "jit", jit.status() }, { "gc64", ffi.abi "gc64" }, { "arch", jit.arch },
    { "os", jit.os },
  }
end

local function about_python(path)
  local command, reason = python.command(path, "probe", {})
  local facts = { { "executable", command[1] }, { "from", reason } }
  facts[#facts + 1] = { "lua", (ask((python.command(path, "lua", {})))) }
  local found, why = interpreter.find { python = command[1], from = reason }
  if not found then
    facts[#facts + 1] = { "hosted", false }
    facts[#facts + 1] = { "reason", why }
    return facts, false
  end
  facts[#facts + 1] = { "library", found.library }
  local hosted, status = ask_lua(("require('moonferry.python').start { python = %q } %s"):format(command[1], HOSTED))
  facts[#facts + 1] = { "hosted", status == 0 }
  for _, fact in ipairs(hosted) do
    facts[#facts + 1] = fact
  end
  return facts, status == 0
end

-- Without a Python nothing is known of its libraries.
local function about_libraries(path, names, python_answers)
  local facts = {}
  if not python_answers then
    return facts
  end
  for _, name in ipairs(names) do
    facts[#facts + 1] = { name, (ask((python.command(path, "probe", { name })))) }
  end
  return facts
end

local function value_of(facts, ...)
  local value = facts
  for i = 1, select("#", ...) do
    local list = value
    value = nil
    for _, fact in ipairs(type(list) == "table" and list or {}) do
      if fact[1] == select(i, ...) then
        value = fact[2]
      end
    end
  end
  return value
end

local function is_absent(library)
  local reason = tostring(value_of(library, "reason"))
  return reason:find "^ModuleNotFoundError" ~= nil or reason:find "no name of a module" ~= nil
    or reason:find "^AttributeError: module .* has no attribute" ~= nil
end

-- Whether Lua, Python and moonferry.Lua work.
local function said_of_languages(facts)
  local ours, python_facts = value_of(facts, "moonferry"), value_of(facts, "python")
  if not value_of(ours, "version") then
    return "not ok: Moonferry's library cannot be used: " .. tostring(value_of(ours, "failure"))
  elseif not value_of(python_facts, "hosted") then
    local why = value_of(python_facts, "reason") or value_of(python_facts, "failure")
    return "not ok: Lua works, Python cannot be used: " .. tostring(why)
  end
  local version, lua = tostring(value_of(python_facts, "version")), value_of(python_facts, "lua")
  if value_of(lua, "available") then
    return ("ok: Lua, Python %s and moonferry.Lua work"):format(version)
  end
  local why = value_of(lua, "reason") or value_of(lua, "failure") or "moonferry is not installed there"
  return ("ok: Lua and Python %s work; moonferry.Lua does not: %s"):format(version, tostring(why))
end

local function said_of_devices(facts)
  local found = {}
  for _, driver in ipairs(value_of(facts, "drivers")) do
    local count = value_of(driver[2], "devices") or 0
    found[#found + 1] = count > 0 and ("%d of %s"):format(count, driver[1]) or nil
  end
  return #found > 0 and "GPUs: " .. table.concat(found, ", ") or "GPUs: none; `drivers`, below, says why"
end

local function said_of_libraries(facts)
  local lists = { {}, {}, {} }
  for _, library in ipairs(value_of(facts, "libraries")) do
    local rank = value_of(library[2], "importable") == true and 1 or is_absent(library[2]) and 3 or 2
    table.insert(lists[rank], library[1])
  end
  local parts = {}
  for i, words in ipairs { "array libraries: ", "installed, and cannot be used: ", "not installed: " } do
    parts[#parts + 1] = #lists[i] > 0 and words .. table.concat(lists[i], ", ") or nil
  end
  return table.concat(parts, "\n")
end

---What a reader wants to know first, in a line for each thing.
---@param facts table
---@return string
function doctor.verdict(facts)
  local libraries = said_of_libraries(facts)
  return table.concat({ said_of_languages(facts), said_of_devices(facts), libraries ~= "" and libraries or nil }, "\n")
end

---Everything, as nested lists of { key, value }.
---@param path string? the Python to ask
---@param names string[] the libraries
---@return table facts, boolean good
function doctor.facts(path, names)
  local ours, status = ask_lua(MOONFERRY)
  local hosted, good = about_python(path)
  local python_answers = value_of(hosted, "library") ~= nil or value_of(hosted, "lua", "package") ~= nil
  return {
    { "program", { { "version", doctor.version }, { "path", doctor.program } } },
    { "luajit", about_luajit() },
    { "moonferry", ours },
    { "python", hosted },
    { "drivers", {
      { "cuda", (ask_lua(DRIVER, "cuda", "cuDriverGetVersion")) },
      { "rocm", (ask_lua(DRIVER, "rocm", "hipDriverGetVersion")) },
    } },
    { "libraries", about_libraries(path, names, python_answers) },
  }, good and status == 0
end

local function add_text(lines, facts, indent)
  local width = 0
  for _, fact in ipairs(facts) do
    width = type(fact[2]) ~= "table" and math.max(width, #fact[1]) or width
  end
  for _, fact in ipairs(facts) do
    local key, value = fact[1], fact[2]
    if type(value) == "table" then
      lines[#lines + 1] = indent .. key
      add_text(lines, value, indent .. "  ")
    else
      local shown = value == true and "yes" or value == false and "no" or tostring(value)
      local beside = "\n" .. indent .. (" "):rep(width + 2)
      lines[#lines + 1] = indent .. key .. (" "):rep(width + 2 - #key) .. shown:gsub("\n", beside)
    end
  end
end

-- Without those that are not installed: the verdict names them.
local function installed(facts)
  local kept = {}
  for i, part in ipairs(facts) do
    kept[i] = part
    if part[1] == "libraries" then
      kept[i] = { part[1], {} }
      for _, library in ipairs(part[2]) do
        table.insert(kept[i][2], not is_absent(library[2]) and library or nil)
      end
    end
  end
  return kept
end

---@param facts table
---@param all? boolean every known library was asked
---@return string
function doctor.text(facts, all)
  local lines = { doctor.verdict(facts), "" }
  add_text(lines, all and installed(facts) or facts, "")
  return table.concat(lines, "\n")
end

local function quoted(text)
  local escaped = show.utf8(text):gsub('[%c"\\]', function(c)
    return ("\\u%04x"):format(c:byte())
  end)
  return '"' .. escaped .. '"'
end

---@param facts table
---@param indent string?
---@return string
function doctor.json(facts, indent)
  indent = (indent or "") .. " "
  local parts = {}
  for i, fact in ipairs(facts) do
    local value = fact[2]
    local text = type(value) == "table" and doctor.json(value, indent) or type(value) == "string" and quoted(value)
    parts[i] = indent .. quoted(fact[1]) .. ": " .. (text or tostring(value))
  end
  if #parts == 0 then
    return "{}"
  end
  return "{\n" .. table.concat(parts, ",\n") .. "\n" .. indent:sub(2) .. "}"
end

---@param words string[]
---@param tools table run(seconds, command ...), program, version
---@return number status
function doctor.main(words, tools)
  doctor.run, doctor.program, doctor.version = tools.run, tools.program, tools.version
  local path, rest = python.option(words)
  local json, names = false, {}
  for _, word in ipairs(rest) do
    if word == "--help" or word == "-h" then
      print(USAGE)
      return 0
    elseif word == "--json" then
      json = true
    elseif word:match("^%-") then
      io.stderr:write(("moonferry doctor: there is no option '%s'\n%s\n"):format(word, USAGE:match("^[^\n]*")))
      return 2
    else
      names[#names + 1] = word
    end
  end
  local facts, good = doctor.facts(path, #names > 0 and names or LIBRARIES)
  if json then
    table.insert(facts, 1, { "ok", good })
    print(doctor.json(facts))
  else
    print(doctor.text(facts, #names == 0))
  end
  return good and 0 or 1
end

return doctor
