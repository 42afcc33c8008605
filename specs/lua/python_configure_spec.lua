-- What CPython 3.14 and later are told when Lua starts them, and what is said where they refuse it. A library stands
-- for their way to be started (init_config.c), so that any CPython does; python_environment_spec.lua asks the real one.
local process = require "process"

local python = os.getenv "MOONFERRY_PYTHON" or ".venv/bin/python"
local specs = (os.getenv "MOONFERRY_BUILD" or "build/dev") .. "/specs"

local function ask_python(what)
  return (select(2, process.shell(([["%s" -c 'import sys; print(%s)']]):format(python, what))):gsub("\n$", ""))
end

-- A python3 that does not look at the environment, so that what is wrong there is the start's to refuse.
local blind = os.tmpname()
process.write_file(blind, ('#!/bin/sh\nunset LD_PRELOAD\nexec "%s" -E "$@"\n'):format(python))
process.shell("chmod +x " .. blind)
teardown(function() os.remove(blind) end)

-- Runs a script where no variable of Python's is set but these.
local function run(variables, script, locale)
  local clean = [[env $(env | sed -n 's/^\(PYTHON[A-Z0-9_]*\)=.*/-u \1/p') ]]
  local preload = table.concat({ os.getenv "LD_PRELOAD" or "", specs .. "/init_config.so",
    variables:find "OTHER_PYTHON" and specs .. "/other_python.so" or "" }, " ")
  local set = ("LD_PRELOAD='%s' MOONFERRY_PYTHON=%s %s"):format(preload, blind, variables)
  return process.run([[
local ffi = require "ffi"
ffi.cdef "char *setlocale(int category, const char *name);"
ffi.C.setlocale(0, "]] .. (locale or "C") .. [[")
local py = require "moonferry.python"
]] .. script, clean .. set)
end

-- What it is told where it takes everything.
local function told(variables, locale)
  local status, text = run(variables, "py.start() print(py.eval '6 * 7')", locale)
  assert.are.equal(0, status, text)
  local lines, rest = text:match "^(.*)freed\n(.*)$"
  assert.are.equal("42\n", rest, text)
  local options = {}
  for name, value in lines:gmatch "([%w_]+)=([^\n]*)\n" do
    options[name] = value
  end
  return options
end

-- Why it is not started, and what it had been told by then.
local function refused(variables)
  local status, text = run(variables, "print(py.start())")
  assert.are.equal(0, status, text)
  local before, why = text:match "^(.-)nil\t(.*)\n$"
  return why, before
end

local ALWAYS = {
  isolated = "0", use_environment = "1", user_site_directory = "1", safe_path = "0", site_import = "1",
  configure_locale = "0", install_signal_handlers = "0", pathconfig_warnings = "1", utf8_mode = "1",
  program_name = ask_python "sys.executable",
}

-- What a variable adds to that, or takes its place; nothing if it counts as unset.
local VARIABLES = {
  { "", {} },
  { "PYTHONUTF8=0", { utf8_mode = "0" } },
  { "PYTHONUTF8=1", {} },
  { "PYTHONHASHSEED=", {} },
  { "PYTHONHASHSEED=random", {} },
  { "PYTHONHASHSEED=0", { use_hash_seed = "1", hash_seed = "0" } },
  { "PYTHONHASHSEED=4294967295", { use_hash_seed = "1", hash_seed = "4294967295" } },
  { "PYTHONINTMAXSTRDIGITS=2147483647", { int_max_str_digits = "2147483647" } },
  { "PYTHONTRACEMALLOC=3", { tracemalloc = "3" } },
  { "PYTHONDEVMODE=1", { dev_mode = "1" } },
  { "PYTHONDEVMODE=", {} },
  { "PYTHONPERFSUPPORT=1", { perf_profiling = "1" } },
  { "PYTHONPERFSUPPORT=0", {} },
  { "PYTHON_PERF_JIT_SUPPORT=1", { perf_profiling = "2" } },
  { "PYTHON_PERF_JIT_SUPPORT=0", {} },
  { "PYTHONPERFSUPPORT=1 PYTHON_PERF_JIT_SUPPORT=1", { perf_profiling = "2" } },
}

describe("a CPython that Lua starts as 3.14 wants it", function()
  for _, entry in ipairs(VARIABLES) do
    it("is told what python3 takes from the environment: " .. entry[1], function()
      local expected = {}
      for _, options in ipairs { ALWAYS, entry[2] } do
        for name, value in pairs(options) do
          expected[name] = value
        end
      end
      assert.are.same(expected, told(entry[1]))
    end)
  end

  it("is in UTF-8 mode where the host's locale is C", function()
    assert.are.equal("1", told("LC_ALL=C.UTF-8", "C").utf8_mode)
    assert.are.equal("1", told("LC_ALL=C.UTF-8", "POSIX").utf8_mode)
    assert.are.equal(ask_python "int(sys.version_info >= (3, 15))", told("", "C.UTF-8").utf8_mode)
    assert.are.equal("1", told("PYTHONUTF8=1", "C.UTF-8").utf8_mode)
    if ask_python '"free-threading" in sys.version' == "False" then -- of which the bridge takes its own version alone
      for version, mode in pairs { ["3.14.9"] = "0", ["3.15.0"] = "1" } do
        assert.are.equal(mode, told("OTHER_PYTHON=" .. version, "C.UTF-8").utf8_mode)
      end
    end
  end)

  it("is told nothing of an option that it does not have", function()
    for _, option in ipairs { "pathconfig_warnings", "hash_seed" } do
      local options = told("PYTHONHASHSEED=7 INIT_LACKS=" .. option)
      assert.is_nil(options[option])
      assert.are.equal("1", options.use_hash_seed)
    end
  end)
end)

describe("a CPython that does not start", function()
  it("says which variable has no such number", function()
    for name, numbers in pairs {
      PYTHONHASHSEED = { "4294967295", "4294967296" },
      PYTHONINTMAXSTRDIGITS = { "2147483647", "2147483648" },
      PYTHONTRACEMALLOC = { "2147483647", "2147483648" },
    } do
      for _, value in ipairs { "x", "1.5", "-1", "5x", "99999999999999999999", numbers[2] } do
        local words = '%s is "%s"; an integer from 0 to %s is expected'
        assert.are.equal(words:format(name, value, numbers[1]), (refused(name .. "=" .. value)))
      end
    end
    assert.are.equal('PYTHONTRACEMALLOC is "random"; an integer from 0 to 2147483647 is expected',
      (refused "PYTHONTRACEMALLOC=random"))
    assert.matches("an integer from 0 to 2147483647 is expected",
      (refused "PYTHONTRACEMALLOC=-18446744073709551615")) -- which is 1 in 64 bits
  end)

  it("says why, or that it does not say, whatever it refuses, and gives back what it was told", function()
    local all = "PYTHONHASHSEED=1 PYTHONINTMAXSTRDIGITS=0 PYTHONTRACEMALLOC=1 PYTHONDEVMODE=1 PYTHONPERFSUPPORT=1 "
    for _, option in ipairs {
      "isolated", "pathconfig_warnings", "utf8_mode", "use_hash_seed", "hash_seed", "int_max_str_digits", "tracemalloc",
      "dev_mode", "perf_profiling", "program_name", "run",
    } do
      local why, before = refused(all .. "INIT_SAYS='no such thing' INIT_REFUSES=" .. option)
      assert.are.equal("no such thing", why, option)
      assert.matches((option == "run" and "program_name" or option) .. "=[^\n]*\nfreed\n$", before)
    end
    assert.are.equal("CPython does not say why", (refused "INIT_SAYS= INIT_REFUSES=run"))
    assert.are.equal("no", (refused "PYTHON_PERF_JIT_SUPPORT=1 INIT_SAYS=no INIT_REFUSES=perf_profiling"))
  end)

  it("says so where there is no memory for what it would be told", function()
    local why, before = refused "INIT_REFUSES=create"
    assert.are.equal("not enough memory", why)
    assert.are.equal("", before)
  end)
end)
