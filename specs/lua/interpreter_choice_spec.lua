-- Which interpreter a program hosts where several could be meant, and what is said of one that cannot be hosted. The
-- interpreters are scripts that answer as one would.
local process = require "process"

local BUILD = os.getenv "MOONFERRY_BUILD" or "build/dev"

-- An interpreter's answer, with other lines in place of some.
local function answer(lines)
  local facts = { version = "2.7", implementation = "cpython", executable = "/old" }
  local text = "moonferry-probe\n"
  for name, value in pairs(facts) do
    text = ("%s%s=%s\n"):format(text, name, lines[name] or value)
  end
  return text .. (lines.more or "")
end

describe("the interpreter of a program", function()
  local folder, library

  local function path(name)
    return folder .. "/" .. name
  end

  -- A program that prints what it is given.
  local function make(name, text)
    process.shell("mkdir -p " .. path(name):match "^(.*)/")
    process.write_file(path(name), ("#!/bin/sh\ncat <<'END'\n%sEND\n"):format(text or answer {}))
    process.shell("chmod +x " .. path(name))
    return path(name)
  end

  setup(function()
    local _, made = process.shell "mktemp -d"
    folder = made:match "%S+"
    local _, found = process.shell("realpath " .. BUILD .. "/python/moonferry/libmoonferry.so.0 lua")
    local lua
    library, lua = found:match "(%S+)\n(%S+)"
    for _, name in ipairs { "tree", "near", "env/lib/python3.12/site-packages/moonferry" } do
      process.shell(("mkdir -p %s && ln -s %s %s/lua"):format(path(name), lua, path(name)))
    end
    for _, name in ipairs { "venv", "near/.venv", "cwd/.venv", "env" } do
      make(name .. "/bin/python3")
      process.write_file(path(name .. "/pyvenv.cfg"), "")
    end
    make "bare/bin/python"
    make "path/python3"
    process.shell("mkdir -p " .. path "empty")
  end)
  teardown(function()
    process.shell("rm -r " .. folder)
  end)

  -- What a program says that has Moonferry's Lua files in `tree` and runs in the folder `cwd`.
  local function said(program, environment, tree, cwd)
    local command = [[cd %s && env -u VIRTUAL_ENV -u MOONFERRY_PYTHON -u LUA_INIT PATH="%s/path:$PATH"
      MOONFERRY_LIBRARY=%s LUA_PATH='%s/lua/?.lua;%s/lua/?/init.lua' %s]]
    local files = path(tree or "tree")
    return process.runs("local py = require 'moonferry.python'\n" .. program, command:gsub("%s*\n%s*", " "):format(
      path(cwd or "empty"), folder, library, files, files, environment or ""))
  end

  local function refusal(options, ...)
    return said(("print(select(2, py.start(%s)))"):format(options), ...)
  end

  -- Which one it asks, and why, in the order in which they come before each other: each case has what those below it
  -- have, too.
  local CHOICES = {
    { "PYTHON", "py.start{python=...}", "{ python = '@PYTHON', venv = '@bare' }" },
    { "bare/bin/python", "py.start{venv=...}", "{ venv = '@bare' }" },
    { "venv/bin/python3", "py.start{venv=...}", "{ venv = '@venv' }" },
    { "VARIABLE", "MOONFERRY_PYTHON", "", "MOONFERRY_PYTHON=@VARIABLE VIRTUAL_ENV=@venv", "near", "cwd" },
    { "venv/bin/python3", "VIRTUAL_ENV", "", "MOONFERRY_PYTHON= VIRTUAL_ENV=@venv", "near", "cwd" },
    { "bare/bin/python", "VIRTUAL_ENV", "", "VIRTUAL_ENV=@bare", "near", "cwd" },
    { ".venv/bin/python3", ".venv of the working directory", "", "VIRTUAL_ENV=", "near", "cwd" },
    { "near/.venv/bin/python3", ".venv beside Moonferry's Lua files", "", "", "near" },
    { "env/bin/python3", "the environment that Moonferry is installed in", "", "",
      "env/lib/python3.12/site-packages/moonferry" },
    { "python3", "PATH", "" },
  }
  for _, case in ipairs(CHOICES) do
    local which, why, options, environment, tree, cwd = unpack(case, 1, 6)
    it(("is %s (%s)"):format(which, why), function()
      make "PYTHON"
      make "VARIABLE"
      local function placed(text)
        return (text or ""):gsub("@", folder .. "/")
      end
      local name = (which == "python3" or which:sub(1, 1) == ".") and which or path(which)
      assert.are.equal(("moonferry.python cannot use %s (from %s): it is Python 2.7, and 3.9 or later is needed\n")
        :format(name, why), refusal((placed(options)), (placed(environment)), tree, cwd))
    end)
  end

  local REFUSED = {
    { "what does not answer", "", "it does not answer\n" },
    { "what answers something else", "no such thing\n", "it does not answer:\nno such thing\n" },
    { "another implementation", answer { implementation = "pypy", version = "3.11" },
      "it is pypy, and CPython is needed\n" },
    { "Python 3.8", answer { version = "3.8" }, "it is Python 3.8, and 3.9 or later is needed\n" },
    { "one without its shared library", answer { version = "3.9", more = "absent=/one/a.so\nabsent=/two/b.so\n" },
      "its libpython was not found. Looked for:\n  /one/a.so\n  /two/b.so\nCPython can be hosted only by" },
  }
  for _, case in ipairs(REFUSED) do
    it("is refused if it is " .. case[1], function()
      local name = make("refused", case[2])
      local text = refusal("", "MOONFERRY_PYTHON=" .. name)
      local expected = ("moonferry.python cannot use %s (from MOONFERRY_PYTHON): %s"):format(name, case[3])
      assert.are.equal(expected, text:sub(1, #expected))
    end)
  end

  it("is refused if the process has loaded another Python's library, which does not run", function()
    local python = os.getenv "MOONFERRY_PYTHON" or ".venv/bin/python"
    local facts = assert(require("moonferry.interpreter").find { python = python })
    local other = make("other", answer { version = "3.99", executable = "/other", more = "library=/other.so\n" })
    local text = said(("anchor = require('ffi').load(%q)\nprint(select(2, py.start()))"):format(facts.library),
      "MOONFERRY_PYTHON=" .. other)
    local refused = "moonferry.python cannot use /other, which is Python 3.99: this process has loaded libpython %s\n"
    assert.are.equal(refused:format(facts.version), text)
  end)

  it("is missed at the line of the program, whatever is called first", function()
    local text = said([[
local mf = require "moonferry"
local here = debug.getinfo(1, "S").short_src
for name, call in pairs {
  import = function() return (py.import "os") end, builtins = function() return (py.builtins) end,
  eval = function() return (py.eval "1") end, exec = function() return (py.exec "1") end,
  list = function() return (py.list {}) end, mapping = function() return (py.mapping {}) end,
  tensor = function() return (py.tensor {}) end, stream = function() return (py.stream {}) end,
  into = function() return (py.into({}, mf.zeros(1))) end,
} do
  local _, message = pcall(mf.scope, call)
  local place = message:match "^(.-):%d+: moonferry.python cannot use "
  if place ~= here then print(name, message) end
end
]], "MOONFERRY_PYTHON=" .. make "old")
    assert.are.equal("", text)
  end)

  it("is looked for without a file that stays open", function()
    local text = said [[
collectgarbage "stop"
os.execute "ls /proc/$PPID/fd | wc -l"
for _, options in ipairs { {}, { venv = "../venv" }, { venv = "../bare" } } do
  assert(not py.start(options))
end
os.execute "ls /proc/$PPID/fd | wc -l"
]]
    assert.matches("^(%d+)\n%1\n$", text)
  end)
end)
