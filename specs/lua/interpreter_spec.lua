-- The interpreter that a process hosts: which one, how many, from its start to the end of the process.
local ffi = require "ffi"
local process = require "process"
local py = require "moonferry.python"

local shell, run, runs = process.shell, process.run, process.runs
local read_file, write_file, prelude = process.read_file, process.write_file, process.PRELUDE

describe("a process that hosts Python", function()
  it("ends well with objects alive, twenty times", function()
    for _ = 1, 20 do
      runs(prelude .. [[
py.exec "class Thing:\n    pass"
things = {}
for i = 1, 100 do things[i] = py.main.Thing() end
loop = py.list {}
loop:append(loop)
held = require("moonferry").zeros(4)
py.main.kept = py.list { held }
]])
    end
  end)

  it("ends well by os.exit, with and without closing the state", function()
    -- A state that is not closed leaves its objects alive, which is no leak to report under ASan.
    local status = run(prelude .. "x = py.list {1}\nos.exit(3)", "ASAN_OPTIONS=detect_leaks=0")
    assert.are.equal(3, status)
    status = run(prelude .. "x = py.list {1}\nos.exit(4, true)")
    assert.are.equal(4, status)
  end)

  it("runs Python's exit functions before C++ destroys what they need, as JAX's do", function()
    if py.import("importlib.util").find_spec("jax") == py.None then
      return pending "JAX is not installed"
    elseif (os.getenv "LD_PRELOAD" or ""):find "asan" then
      return pending "XLA under ASan takes minutes and reports its own; it runs in build/dev"
    end
    local script = prelude .. 'print(py.import("jax.numpy").ones(4):sum())\n'
    assert.are.equal("4.0\n", runs(script))
    assert.are.equal("4.0\n", runs(script .. "os.exit(0)"))
  end)

  it("runs Python's exit functions, waits for its threads and flushes what it printed", function()
    local text = runs(prelude .. [[
py.exec "import atexit, threading, time\natexit.register(lambda: print('at exit'))"
py.exec [=[
def late():
    while threading.main_thread().is_alive():  # until Python's end has begun
        time.sleep(0.001)
    print("from the thread")
threading.Thread(target=late).start()
]=]
py.builtins.print("no newline yet", py.kw { ["end"] = "\n" })
]])
    assert.are.equal("no newline yet\nfrom the thread\nat exit\n", text)
  end)

  it("ends well while a daemon thread of Python runs on", function()
    runs(prelude .. [[
py.exec [=[
import threading
def spin():
    while True:
        pass
threading.Thread(target=spin, daemon=True).start()
]=]
]])
  end)

  it("says an uncaught exception and fails", function()
    local status, text = run(prelude .. "py.eval '1/0'")
    assert.are.equal(1, status)
    assert.matches("ZeroDivisionError: division by zero", text)
    assert.matches("Traceback", text)
  end)

  it("uses the interpreter that it is given, its virtual environment included", function()
    local prefix = py.import("sys").prefix
    local text = runs(prelude .. ("assert(py.start { python = %q })\nprint(py.import('sys').prefix)"):format(
      py.import("sys").executable), "MOONFERRY_PYTHON=/nowhere")
    assert.are.equal(prefix .. "\n", text)
  end)

  it("says what is wrong with an interpreter that cannot be used", function()
    local text = runs(prelude .. 'print(select(2, py.start { python = "/nowhere/python3" }))')
    assert.matches("cannot use /nowhere/python3 %(from py.start{python=...}%)", text)
    text = runs(prelude .. 'print(pcall(py.import, "os"))', "MOONFERRY_PYTHON=/bin/false")
    assert.matches("cannot use /bin/false %(from MOONFERRY_PYTHON%)", text)
  end)

  it("uses a libpython that was loaded privately, and no other one", function()
    local facts = assert(require("moonferry.interpreter").find { python = py.import("sys").executable })
    local private = ("anchor = require('ffi').load(%q)\n"):format(facts.library) .. prelude
    local text = runs(private .. [[
py.import "ctypes"
local seen = {}
for line in io.lines("/proc/self/maps") do
  local path = line:match("(/%S*libpython3%.%d%S*)")
  if path and not seen[path] then seen[path] = true; print(path) end
end
]])
    assert.are.equal(1, select(2, text:gsub("\n", "")), text)
    local _, found = shell "ls ~/.pyenv/versions/*/bin/python3"
    for path in found:gmatch("[^\n]*bin/python3") do
      local other = require("moonferry.interpreter").find { python = path }
      if other and other.version ~= facts.version then
        text = runs(private .. "print(select(2, py.start()))", "MOONFERRY_PYTHON=" .. path)
        assert.matches("this process has loaded libpython " .. facts.version, text, 1, true)
      end
    end
  end)

  it("refuses options that come too late", function()
    local text = runs(prelude .. 'py.import "os"\nassert(py.start())\nprint(pcall(py.start, {}))')
    assert.matches("too late", text)
  end)

  it("serves every CPython from 3.9 to 3.14 that the machine has", function()
    local _, found = shell "ls ~/.pyenv/versions/*/bin/python3 /usr/bin/python3 /usr/local/bin/python3 2>/dev/null"
    local served = 0
    for path in found:gmatch("[^\n]+") do
      local _, version = shell(path .. [[ -c 'import sys; print("%d.%02d" % sys.version_info[:2])']])
      version = version:match("^%d%.%d%d") or ""
      if version >= "3.09" and version < "3.15" then
        served = served + 1
        local text = runs(prelude .. [[
for _, name in ipairs { "ctypes", "_decimal", "json" } do py.import(name) end
print(pcall(py.eval, "1/0"))
print(py.eval("'%d.%02d' % __import__('sys').version_info[:2]"), py.list { 1, "a" }:pop())
]], "PYTHONPATH= MOONFERRY_PYTHON=" .. path)
        assert.matches("ZeroDivisionError", text)
        assert.matches("\n" .. version:gsub("%.", "%%.") .. "\ta\n$", text)
      end
    end
    if served == 0 then
      return pending "there is no CPython 3.9 ... 3.14 but the one that runs this"
    end
  end)

  it("hosts a virtual environment of Debian's interpreter, which is linked statically", function()
    local venv = os.tmpname()
    os.remove(venv)
    local status, text = shell("/usr/bin/python3 -m venv --without-pip " .. venv)
    if status ~= 0 then
      return pending("/usr/bin/python3 -m venv does not work: " .. text)
    end
    local script = prelude .. 'assert(py.start(%s))\npy.import "ctypes"\nprint(py.import("sys").prefix)'
    status, text = run(script:format(("{ venv = %q }"):format(venv)), "MOONFERRY_PYTHON=/nowhere PYTHONPATH=")
    local _, by_variable = run(script:format(""), "MOONFERRY_PYTHON= PYTHONPATH= VIRTUAL_ENV=" .. venv)
    shell("rm -rf " .. venv)
    if text:find("its libpython was not found", 1, true) then
      return pending("/usr/bin/python3 has no libpython here: " .. text:match("[^\n]*"))
    end
    assert.are.equal(0, status, text)
    assert.are.equal(venv .. "\n", text)
    assert.are.equal(venv .. "\n", by_variable)
  end)

  local count_libraries = [[
local files, count = {}, 0
for line in io.lines("/proc/self/maps") do
  local path = line:match("(/%S*libmoonferry%S*)")
  if path and not files[path] then files[path], count = true, count + 1 end
end
print(count .. " libmoonferry")
io.stdout:flush() -- Python keeps its own buffer, and either may be written first
]]

  it("has one libmoonferry if Lua came first", function()
    local text = runs('require "moonferry"\n' .. prelude .. 'py.import "moonferry"\n' .. count_libraries)
    assert.are.equal("1 libmoonferry\n", text)
  end)

  -- Python is the host here: interpreter, library and extension are there before Lua is.
  local python_first = [[
import ctypes, gc, sys, threading
import moonferry
lua = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
lua.luaL_newstate.restype = ctypes.c_void_p
lua.lua_tolstring.restype = ctypes.c_char_p
mine = moonferry.full((3,), 5, "float32")
def run(code):
    L = ctypes.c_void_p(lua.luaL_newstate())
    lua.luaL_openlibs(L)
    if lua.luaL_loadstring(L, code.encode()) or lua.lua_pcall(L, 0, 0, 0):
        print(lua.lua_tolstring(L, -1, None).decode())
    lua.lua_close(L)
]]

  -- Runs Python code in which `run(code)` runs the Lua code in a state of its own.
  local function runs_python_first(code, script)
    for _, library in ipairs { "libluajit-5.1.so.2", "libluajit-5.1.so" } do
      if pcall(ffi.load, library) then
        local text = python_first .. 'code = r"""\n' .. prelude .. code .. '"""\n' .. script
        -- CPython ends as it likes: what it leaves is not ours, and LeakSanitizer at times dies of its threads.
        local environment = 'ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0"'
        return runs(text, environment, py.import("sys").executable, library)
      end
    end
    return nil, pending "LuaJIT's shared library is not installed"
  end

  it("has one libmoonferry and one interpreter if Python came first", function()
    local text = runs_python_first([[
local mine = py.main.mine
assert(mine:get(1) == 5)
mine:put(1, 7)
mine:close()
]] .. count_libraries, "run(code)\nprint(mine.tolist())")
    if text then
      assert.are.equal("1 libmoonferry\n[5.0, 7.0, 5.0]\n", text)
    end
  end)

  it("lets several Lua states on several threads call Python at once", function()
    local text = runs_python_first([[
for i = 1, 2000 do
  local list = py.list { i, py.main.mine }
  local tensor = list:pop()
  assert(tensor:get(0) == 5 and list[0] == i)
  tensor:close()
end
]], [[
threads = [threading.Thread(target=run, args=(code,)) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
del mine
run('require("moonferry.python").collect()')
gc.collect()
print(moonferry.ledger().tensors)
]])
    if text then
      assert.are.equal("0\n", text)
    end
  end)

  it("finds the bridge and the package beside the library that a link leads to, or says what is missing", function()
    local _, made = shell("mktemp -d")
    local copy = made:match "%S+" .. "/"
    local _, found = shell(("realpath %s/python/moonferry"):format(os.getenv "MOONFERRY_BUILD" or "build/dev"))
    local folder = found:match "%S+"
    local library = folder .. "/libmoonferry.so.0"
    local environment = ("MOONFERRY_LIBRARY=%slibmoonferry.so.0"):format(copy)
    shell(("ln -s $(realpath %s) %s"):format(library, copy))
    shell(("mkdir -p %sother/moonferry && touch %sother/moonferry/__init__.py"):format(copy, copy))
    local other = ("PYTHONPATH=%sother "):format(copy)
    local file = runs(prelude .. 'print(py.import("moonferry").__file__)', other .. environment)
    assert.are.equal(folder .. "/__init__.py\n", file)
    shell(("rm %slibmoonferry.so.0 && cp %s %s"):format(copy, library, copy))
    local text = runs(prelude .. "print(select(2, py.start()))", environment)
    shell("rm -r " .. copy)
    assert.matches("^moonferry_bridge.so is neither beside libmoonferry %(" .. copy:gsub("%p", "%%%0")
      .. "%) nor on package.cpath.\n", text)
  end)

  it("leaves the bridge's file closed", function()
    local text = runs('collectgarbage "stop"\n' .. prelude
      .. 'assert(py.start())\nos.execute "ls -l /proc/$PPID/fd | grep -c moonferry_bridge"')
    assert.are.equal("0\n", text)
  end)

  it("refuses a bridge that was built for another kind of CPython", function()
    local library = (os.getenv "MOONFERRY_BUILD" or "build/dev") .. "/specs/other_python.so"
    local environment = ("LD_PRELOAD='%s %s' OTHER_PYTHON='3.99.0 free-threading build (of another day)'")
    local text = runs(prelude .. "print(select(2, py.start()))",
      environment:format(os.getenv "LD_PRELOAD" or "", library))
    assert.matches("^moonferry_bridge was built for a [^;]*CPython[^;]*, but this process has CPython 3.99.0 "
      .. "free%-threading build %(of another day%); install Moonferry there\n$", text)
  end)

  it("refuses a bridge of another build than its libmoonferry", function()
    local id = ffi.string(require("moonferry.lib").mf_build_id())
    local other = id:match("^%x+%-") .. ("0"):rep(16)
    local library
    for line in io.lines("/proc/self/maps") do
      library = library or line:match("(/%S*/libmoonferry%S*)")
    end
    local folder = library:match("^(.*/)")
    local copy = os.tmpname()
    os.remove(copy)
    shell(("mkdir %s && cp %smoonferry_bridge.so %s/"):format(copy, folder, copy))
    local changed, count = read_file(library):gsub(id:gsub("%-", "%%-"), other)
    assert.are.equal(1, count)
    write_file(copy .. "/libmoonferry.so.0", changed)
    local _, text = run(prelude .. 'print(pcall(py.import, "os"))',
      ("MOONFERRY_LIBRARY=%s/libmoonferry.so.0"):format(copy))
    shell("rm -rf " .. copy)
    assert.matches("moonferry_bridge was built with libmoonferry " .. id:gsub("%-", "%%-"), text)
    assert.matches("but the process has " .. other:gsub("%-", "%%-"), text)
  end)
end)
