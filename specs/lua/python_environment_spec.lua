-- PYTHON* variables: a hosted Python takes each as `python3 -c` does.
--
-- Both look at themselves (observe.py) with the same variable set, and must say the same. What `python3 -c` says must
-- also change with the variable, or the comparison would show nothing.
local process = require "process"

local python = os.getenv "MOONFERRY_PYTHON" or ".venv/bin/python"
local observer = "specs/lua/observe.py"

local function ask_python(code)
  return (select(2, process.shell(("%s -c '%s'"):format(python, code))):gsub("\n$", ""))
end

local version = tonumber(ask_python "import sys; print(sys.version_info[1])")
local gil = ask_python "import sysconfig; print(sysconfig.get_config_var(\"Py_GIL_DISABLED\") or 0)" == "0"

-- A folder that serves as PYTHONHOME, with the standard library under two names.
local home = os.tmpname()
os.remove(home)
local library = ask_python "import os; print(os.path.dirname(os.path.dirname(os.__file__)))"
process.shell(("mkdir %s && ln -s %s %s/lib && ln -s %s %s/lib64x"):format(home, library, home, library, home))

-- Values that change what is seen. "only": the first version of Python 3 in which they do; "until": the last;
-- "without_gil": only in a build without the GIL; "beside": what is set anyway.
local VARIABLES = {
  { "PYTHONASYNCIODEBUG", "1" },
  { "PYTHONBREAKPOINT", "0", "os.getcwd" },
  { "PYTHONDEBUG", "1", "3" },
  { "PYTHONDEVMODE", "1" },
  { "PYTHONDONTWRITEBYTECODE", "1" },
  { "PYTHONFAULTHANDLER", "1" },
  { "PYTHONHASHSEED", "0", "42", "4294967295" },
  { "PYTHONHOME", home },
  { "PYTHONINSPECT", "1" },
  { "PYTHONINTMAXSTRDIGITS", "0", "5000" },
  { "PYTHONIOENCODING", "latin-1:replace", ":backslashreplace" },
  { "PYTHONMALLOC", gil and "malloc" or "mimalloc_debug", "debug" },
  -- Without the GIL they are printed at an interpreter's end alone, which a hosted one does not come to.
  { "PYTHONMALLOCSTATS", gil and "1" or nil },
  { "PYTHONNODEBUGRANGES", "1", only = 11 },
  { "PYTHONNOUSERSITE", "1" },
  { "PYTHONOPTIMIZE", "1", "2" },
  { "PYTHONPATH", "/one:/two" },
  { "PYTHONPERFSUPPORT", "1", only = 12 },
  { "PYTHONPLATLIBDIR", "lib64x", beside = "PYTHONHOME=" .. home },
  { "PYTHONPROFILEIMPORTTIME", "1" },
  { "PYTHONPYCACHEPREFIX", "/tmp/pycache" },
  { "PYTHONSAFEPATH", "1", only = 11 },
  { "PYTHONTRACEMALLOC", "1", "3" },
  { "PYTHONUNBUFFERED", "1" },
  { "PYTHONUSERBASE", "/user" },
  { "PYTHONUTF8", "1", ["until"] = 14 },
  { "PYTHONUTF8", "0", beside = "LC_ALL=C" },
  { "PYTHONVERBOSE", "1" },
  { "PYTHONWARNDEFAULTENCODING", "1", only = 10 },
  { "PYTHONWARNINGS", "error,ignore::ImportWarning" },
  { "PYTHON_COLORS", "1", only = 13 },
  { "PYTHON_CONTEXT_AWARE_WARNINGS", "1", only = 14 },
  { "PYTHON_CPU_COUNT", "17", only = 13 },
  { "PYTHON_DISABLE_REMOTE_DEBUG", "1", only = 14 },
  { "PYTHON_GIL", "1", without_gil = true },
  { "PYTHON_FROZEN_MODULES", "off", only = 13 },
  { "PYTHON_PERF_JIT_SUPPORT", "1", only = 13 },
  { "PYTHON_THREAD_INHERIT_CONTEXT", "1", only = 14 },
}

-- What shows nothing in a program of an ordinary build on Linux: prompts, other systems, debug builds.
local SILENT = {
  { "PYTHONCASEOK", "1" },
  { "PYTHONEXECUTABLE", "/nowhere/python" },
  { "PYTHONSTARTUP", "/nowhere/startup.py" },
  { "PYTHON_BASIC_REPL", "1" },
  { "PYTHON_HISTORY", "/nowhere/history" },
  { "PYTHON_LAZY_IMPORTS", "normal" },
}

-- The locale is the host's; docs/lua-hosts-python.md says so. The other parser is 3.9's alone.
local NOT_OURS = { PYTHONCOERCECLOCALE = true, PYTHONOLDPARSER = true }

-- Runs a command with a variable, and with no other one of Python's.
local function with(variable, command)
  local clean = [[env $(env | sed -n 's/^\(PYTHON[A-Z0-9_]*\)=.*/-u \1/p') LC_ALL=C.UTF-8 ]]
  return process.shell(("%s %s %s </dev/null"):format(clean, variable or "", command))
end

-- What the command saw with the variable, and what it printed for it.
local function seen(command, variable)
  local _, text = with(variable, command)
  local line = text:match "OBSERVED ([^\n]*)"
  if not line then
    error(("%s said nothing of itself:\n%s"):format(command, text), 2)
  end
  local marks = {}
  for _, mark in ipairs { "import time:", "arenas" } do
    table.insert(marks, mark .. (text:find(mark, 1, true) and " printed" or " not printed"))
  end
  return line .. "; " .. table.concat(marks, "; ")
end

-- The parts in which two observations are not the same.
local function difference(one, other)
  local parts, found = {}, {}
  for part in (one .. "; "):gmatch "(.-); " do
    table.insert(parts, part)
  end
  for part in (other .. "; "):gmatch "(.-); " do
    local expected = table.remove(parts, 1)
    if part ~= expected then
      table.insert(found, ("%s\n  and not: %s"):format(part, expected))
    end
  end
  return table.concat(found, "\n")
end

local by_python = ("%s %s"):format(python, observer)

local hosted_script = os.tmpname()
process.write_file(hosted_script, ([[
local ffi = require "ffi"
ffi.cdef "char *setlocale(int category, const char *name);"
ffi.C.setlocale(0, "") -- LC_CTYPE, as python3 does; the host's locale is the host's
local py = require "moonferry.python"
py.exec(io.open(%q):read "*a")
]]):format(observer))
local by_lua = "luajit " .. hosted_script

-- What python3 says with the variable, and whether Lua's Python says the same; "beside": what is set for both, and for
-- the python3 that must say something else.
local function check(variable, must_change, beside)
  variable = ("%s %s"):format(beside or "", variable or "")
  local expected = seen(by_python, variable)
  assert.are.equal("", difference(expected, seen(by_lua, variable)))
  if must_change then
    assert.are_not.equal("", difference(seen(by_python, beside), expected))
  end
end

describe("a hosted Python", function()
  -- A host that has chosen no locale has C, whatever the environment says.
  it("leaves the host's locale as it is, and reads UTF-8 in C", function()
    local script = os.tmpname()
    process.write_file(script, [[
local ffi = require "ffi"
ffi.cdef "char *setlocale(int category, const char *name);"
if arg[1] then assert(ffi.C.setlocale(0, arg[1]) ~= nil) end
local before = ffi.string(ffi.C.setlocale(0, nil))
local py = require "moonferry.python"
py.exec "import sys, os, locale, io"
-- CPython 3.15 is in UTF-8 mode wherever nobody says otherwise.
local mode = arg[1] and "int(sys.flags.utf8_mode and sys.version_info < (3, 15))" or "sys.flags.utf8_mode"
local text = py.eval("(" .. mode .. ", sys.getfilesystemencoding(), io.TextIOWrapper(io.BytesIO()).encoding)")
local name = py.eval "os.fsdecode(b'\\xc3\\xa4') == chr(228)"
print(before, ffi.string(ffi.C.setlocale(0, nil)), text[0], text[1]:lower(), text[2]:lower(), name)
]])
    for words, expected in pairs {
      [""] = "C\tC\t1\tutf-8\tutf-8\ttrue",
      ["C.UTF-8"] = "C.UTF-8\tC.UTF-8\t0\tutf-8\tutf-8\ttrue",
    } do
      local _, text = with(nil, ("luajit %s %s"):format(script, words))
      assert.are.equal(expected, text:gsub("%s+$", ""))
    end
    os.remove(script)
  end)

  it("is as python3 where no variable is set", function()
    check(nil, false)
    check("LC_ALL=C", true)
  end)

  for _, entry in ipairs(VARIABLES) do
    for i = 2, #entry do
      local variable = entry[1] .. "='" .. entry[i] .. "'"
      it("takes " .. variable, function()
        local changes = version >= (entry.only or 9) and version <= (entry["until"] or version)
        check(variable, changes and not (entry.without_gil and gil), entry.beside)
      end)
    end
    it("takes an empty " .. entry[1] .. " as none", function()
      check(entry[1] .. "=", false, entry.beside)
    end)
  end

  for _, entry in ipairs(SILENT) do
    it(("is the same with %s=%s"):format(entry[1], entry[2]), function()
      check(entry[1] .. "=" .. entry[2], false)
    end)
  end

  it("has been tried with every variable that this Python documents", function()
    local known = setmetatable({}, { __index = NOT_OURS })
    for _, list in ipairs { VARIABLES, SILENT } do
      for _, entry in ipairs(list) do
        known[entry[1]] = true
      end
    end
    local _, help = with(nil, python .. " --help-env")
    if not help:find("PYTHONPATH", 1, true) then -- before CPython 3.11
      _, help = with(nil, python .. " --help")
    end
    local count = 0
    for name in help:gmatch "%f[%w_]PYTHON[%u%d_]+" do
      count = count + 1
      assert.is_true(known[name], name .. " is not in the list")
    end
    assert.is_true(count > 12)
  end)

  it("has a random hash where it is asked for one", function()
    local hash = [[luajit -e 'print(require("moonferry.python").eval "hash(chr(97) * 50)")']]
    local first = select(2, with("PYTHONHASHSEED=random", hash))
    local second = select(2, with("PYTHONHASHSEED=random", hash))
    assert.matches("^%-?%d", first)
    assert.are_not.equal(first, second)
  end)
end)

describe("a value that python3 refuses", function()
  local REFUSED = {
    PYTHONHASHSEED = { "4294967296", "-1", "x", "1.5" },
    PYTHONINTMAXSTRDIGITS = { "5", "-1", "x" },
    PYTHONTRACEMALLOC = { "-1", "x" },
    PYTHONUTF8 = { "2", "x" },
  }
  for name, values in pairs(REFUSED) do
    for _, value in ipairs(values) do
      it(("is refused: %s=%s"):format(name, value), function()
        local variable = name .. "=" .. value
        assert.are_not.equal(0, (with(variable, python .. " -c pass")))
        local script = [[local py, why = require("moonferry.python").start(); print(py, why)]]
        local status, said = with(variable, ("luajit -e '%s'"):format(script))
        assert.are.equal(0, status, said)
        assert.matches("^nil\t.*" .. name, said)
      end)
    end
  end
end)
