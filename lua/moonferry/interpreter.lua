-- Finds a Python interpreter and brings its libpython into this process.
--
-- Responsible for: which interpreter, which shared library is its own, and the library's symbols being
-- global, because Python's extension modules are not linked with it but look there. Invariant: a process
-- never gets a second libpython. Must not know: Moonferry's objects; how the interpreter is started.
local ffi = require "ffi"

local interpreter = {}

-- Runs in the interpreter itself, in any Python that may turn up, so its syntax is older than what we accept.
local PROBE = [[
import os, sys, sysconfig
var = sysconfig.get_config_var
version = "%d.%d" % sys.version_info[:2]
plain = "libpython%s%s" % (version, getattr(sys, "abiflags", ""))
names = [var("INSTSONAME"), var("LDLIBRARY"), plain + ".so.1.0", plain + ".so", plain + ".dylib"]
names = [n for n in names if n and not n.endswith(".a")]
dirs = [var("LIBDIR"), os.path.join(sys.prefix, "lib"), var("LIBPL"), var("PYTHONFRAMEWORKPREFIX")]
if var("MULTIARCH"):
    dirs[1:1] = [os.path.join(d, var("MULTIARCH")) for d in dirs[:2] if d]
paths = [os.path.join(d, n) for d in dirs if d for n in names]
print("moonferry-probe")
print("version=" + version)
print("implementation=" + getattr(getattr(sys, "implementation", None), "name", "cpython"))
print("executable=" + sys.executable)
for path in sorted(set(paths), key=paths.index):
    print(("library=" if os.path.isfile(path) else "absent=") + path)
]]

local function quoted(text)
  return "'" .. text:gsub("'", [['\'']]) .. "'"
end

-- What the interpreter says of itself, or nil and what it printed instead. -S: nothing that it would import
-- at start-up matters to the answer.
local function probe(executable)
  local pipe = assert(io.popen(("%s -S -c %s 2>&1"):format(quoted(executable), quoted(PROBE))))
  local output = pipe:read("*a")
  pipe:close()
  local facts = { absent = {}, asked = executable }
  local answer = output:match("moonferry%-probe\n(.*)")
  for key, value in (answer or ""):gmatch("(%l+)=([^\n]*)\n") do
    if key == "absent" then
      table.insert(facts.absent, value)
    else
      facts[key] = facts[key] or value
    end
  end
  if not facts.executable then
    return nil, (output:gsub("%s+$", ""))
  end
  return facts
end

local function exists(path)
  local file = io.open(path)
  return file and file:close()
end

local function in_venv(directory)
  local python3 = directory .. "/bin/python3"
  return exists(python3) and python3 or directory .. "/bin/python"
end

-- The directory that lua/moonferry lies in, as a source tree has it.
local TREE = debug.getinfo(1, "S").source:match("^@(.*)lua/moonferry/[^/]*$") or "./"

-- The environment whose site-packages it lies in, as a wheel has it.
local INSTALLED = TREE:match("^(.*)/lib/python3%.%d+t?/site%-packages/moonferry/$")

---The interpreter to use, and why that one; whether it answers has not been asked.
---@param options { python: string?, venv: string? }
---@return string executable, string reason
function interpreter.choose(options)
  local function set(name)
    local value = os.getenv(name)
    return value ~= "" and value or nil
  end
  if options.python then
    return options.python, options.from or "py.start{python=...}"
  elseif options.venv then
    return in_venv(options.venv), "py.start{venv=...}"
  elseif set "MOONFERRY_PYTHON" then
    return set "MOONFERRY_PYTHON", "MOONFERRY_PYTHON"
  elseif set "VIRTUAL_ENV" then
    return in_venv(set "VIRTUAL_ENV"), "VIRTUAL_ENV"
  elseif exists(".venv/pyvenv.cfg") then
    return in_venv(".venv"), ".venv of the working directory"
  elseif exists(TREE .. ".venv/pyvenv.cfg") then
    return in_venv(TREE .. ".venv"), ".venv beside Moonferry's Lua files"
  elseif INSTALLED and exists(INSTALLED .. "/bin/python3") then
    return INSTALLED .. "/bin/python3", "the environment that Moonferry is installed in"
  end
  return "python3", "PATH"
end

-- What keeps this interpreter from running here, or nil.
local function objection(facts)
  local major, minor = facts.version:match("^(%d+)%.(%d+)$")
  if facts.implementation ~= "cpython" then
    return "it is " .. facts.implementation .. ", and CPython is needed"
  elseif tonumber(major) ~= 3 or tonumber(minor) < 9 then
    return "it is Python " .. facts.version .. ", and 3.9 or later is needed"
  end
end

local ADVICE = [[
CPython can be hosted only by its shared library, and this interpreter was built without one, or it is in a
package of its own. On Debian and Ubuntu: apt-get install libpython%s. With pyenv:
PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install %s. Or set MOONFERRY_PYTHON to another interpreter.]]

---Asks the interpreter that should be used about itself.
---@param options { python: string?, venv: string?, from: string? } `from` says who named `python`
---@return table? facts version, executable, library
---@return string? message why there is none
function interpreter.find(options)
  local executable, reason = interpreter.choose(options)
  local facts, output = probe(executable)
  local function refuse(text)
    return nil, ("moonferry.python cannot use %s (from %s): %s"):format(executable, reason, text)
  end
  if not facts then
    return refuse("it does not answer" .. (output ~= "" and ":\n" .. output or ""))
  end
  local fault = objection(facts)
  if fault then
    return refuse(fault)
  end
  if not facts.library then
    local looked = table.concat(facts.absent, "\n  ")
    return refuse(("its libpython was not found. Looked for:\n  %s\n%s"):format(
      looked, ADVICE:format(facts.version, facts.version)))
  end
  return facts
end

pcall(ffi.cdef, "int Py_IsInitialized(void);")
pcall(ffi.cdef, "const char *Py_GetVersion(void);")

-- Whether an interpreter runs; nil if there is no libpython that everybody sees.
local function running()
  local found, initialised = pcall(function()
    return ffi.C.Py_IsInitialized()
  end)
  if found then
    return initialised ~= 0
  end
end

---The path of a library that this process has loaded, by a pattern for its name.
---@param name string
---@return string?
function interpreter.resident(name)
  local maps = io.open("/proc/self/maps")
  if not maps then
    return nil
  end
  local text = maps:read("*a")
  maps:close()
  return text:match("(/[^\n]*/" .. name .. "[^/\n]*)\n")
end

-- The libpython of this process, made global if somebody loaded it for himself alone: whether it runs, or nil.
local function present()
  local state = running()
  local path = state == nil and interpreter.resident "libpython3%.%d+[^/\n]*%.so"
  if path then
    interpreter.handle = ffi.load(path, true)
    state = running()
  end
  return state
end

---Brings an interpreter's libpython into the global scope of this process, unless one is there already. The
---bridge sees to it that it stays.
---@param options { python: string?, venv: string? }
---@return table? facts of the interpreter that is to be started; empty if one runs already
---@return string? message
function interpreter.load(options)
  local state = present()
  if state then
    return {}
  end
  local facts, message = interpreter.find(options)
  if not facts then
    return nil, message
  elseif state == nil then
    interpreter.handle = ffi.load(facts.library, true)
    return facts
  end
  local version = ffi.string(ffi.C.Py_GetVersion()):match("^%d+%.%d+")
  if version ~= facts.version then
    return nil, ("moonferry.python cannot use %s, which is Python %s: this process has loaded libpython %s")
      :format(facts.executable, facts.version, version)
  end
  return facts
end

return interpreter
