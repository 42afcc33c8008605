-- Finding the one library, each case in a process of its own.
local helper = require "helper"

local BUILD = os.getenv("MOONFERRY_BUILD") or "build/dev"
local LIBRARY = BUILD .. "/python/moonferry/libmoonferry.so.0"
local PRINT = 'print(require("moonferry").version)'

local function sh(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read("*a")
  pipe:close()
  return (text:gsub("%s+$", ""))
end

local function absolute(path)
  return sh("realpath " .. path)
end

describe("the library", function()
  local elsewhere

  setup(function()
    elsewhere = sh("mktemp -d")
    sh(("mkdir -p %s/moonferry/lua && cp -r lua/moonferry %s/moonferry/lua/"):format(elsewhere, elsewhere))
  end)
  teardown(function()
    sh("rm -r " .. elsewhere)
  end)

  -- Lua files outside the source tree, with no variable set but LUA_PATH and those given.
  local function run(program, variables)
    local environment = ("env -u MOONFERRY_LIBRARY LUA_PATH='%s/moonferry/lua/?.lua;%s/moonferry/lua/?/init.lua' %s")
      :format(elsewhere, elsewhere, variables or "")
    return helper.luajit(program, "", environment)
  end

  it("is found beside the Lua files, as a wheel lays them out", function()
    sh(("cp %s %s/moonferry/libmoonferry.so.0"):format(LIBRARY, elsewhere))
    local output, code = run(PRINT)
    sh(("rm %s/moonferry/libmoonferry.so.0"):format(elsewhere))
    assert.are.equal(0, code, output)
    assert.is_truthy(output:match("^%d+%.%d+%.%d+\n$"), output)
  end)

  it("is found in the build directory", function()
    local output, code = helper.luajit(PRINT, "", "env -u MOONFERRY_LIBRARY LUA_PATH='lua/?.lua;lua/?/init.lua'")
    assert.are.equal(0, code, output)
    output, code = helper.luajit(PRINT, "", ("env -u MOONFERRY_LIBRARY LUA_PATH='%s/?.lua;%s/?/init.lua'"):format(
      absolute "lua", absolute "lua"))
    assert.are.equal(0, code, output)
  end)

  it("is found beside Lua files that are a link in the working directory", function()
    sh(("mkdir %s/linked && ln -s %s/moonferry/lua %s/linked/lua"):format(elsewhere, elsewhere, elsewhere))
    sh(("cp %s %s/linked/libmoonferry.so.0"):format(LIBRARY, elsewhere))
    local output, code = helper.luajit(PRINT, "", ("cd %s/linked && env -u MOONFERRY_LIBRARY "
      .. "LUA_PATH='lua/?.lua;lua/?/init.lua' LUA_CPATH='/nowhere/?.so'"):format(elsewhere))
    assert.are.equal(0, code, output)
  end)

  it("is found on package.cpath, as luarocks lays it out", function()
    sh(("mkdir %s/rocks && cp %s %s/rocks/libmoonferry.so.0"):format(elsewhere, LIBRARY, elsewhere))
    local output, code = run(PRINT, ("LUA_CPATH='/nowhere/?.so;%s/rocks/?.so'"):format(elsewhere))
    assert.are.equal(0, code, output)
    local found = [[require "moonferry"
      for line in io.lines "/proc/self/maps" do
        if line:find("libmoonferry", 1, true) then print(line:match "(/.*)") break end
      end]]
    output = run(found, ("LUA_CPATH='/nowhere/?.so;%s/rocks/?.so'"):format(elsewhere))
    assert.are.equal(elsewhere .. "/rocks/libmoonferry.so.0\n", output)
  end)

  it("is the one that MOONFERRY_LIBRARY names", function()
    local output, code = run(PRINT, "MOONFERRY_LIBRARY=" .. absolute(LIBRARY))
    assert.are.equal(0, code, output)
  end)

  it("is the one that is loaded already, whatever else is said", function()
    local program = ("require('ffi').load(%q)\n%s"):format(absolute(LIBRARY), PRINT)
    local output, code = run(program, "MOONFERRY_LIBRARY=/nowhere/lib.so")
    assert.are.equal(0, code, output)
  end)

  it("says what was tried where there is none", function()
    local output, code = run(PRINT)
    assert.are.equal(1, code)
    assert.is_truthy(output:find("cannot load its C library", 1, true), output)
    assert.is_truthy(output:find(elsewhere .. "/moonferry/libmoonferry.so.0 (beside the Lua files)", 1, true), output)
    assert.is_truthy(output:find("(the build directory)", 1, true), output)
    assert.is_truthy(output:find("(the system's library path)", 1, true), output)
    assert.is_nil(output:find("package.cpath", 1, true), output)
    for _, remedy in ipairs { "pip install .", "moonferry.get_lua_path()", "make build", "MOONFERRY_LIBRARY" } do
      assert.is_truthy(output:find(remedy, 1, true), output)
    end
    output = run(PRINT, "MOONFERRY_LIBRARY=/nowhere/lib.so")
    assert.is_truthy(output:find("/nowhere/lib.so (MOONFERRY_LIBRARY): ", 1, true), output)
    assert.is_nil(output:find("build directory", 1, true), output)
  end)

  it("is refused if it is another library or another build", function()
    local output, code = run(PRINT, "MOONFERRY_LIBRARY=" .. absolute(BUILD .. "/specs/lua_support.so"))
    assert.are.equal(1, code)
    assert.is_truthy(output:find("is not a Moonferry library", 1, true), output)
    local program = 'require("moonferry.cdef").header_hash = "0123456789abcdef"\n' .. PRINT
    output, code = run(program, "MOONFERRY_LIBRARY=" .. absolute(LIBRARY))
    assert.are.equal(1, code)
    assert.is_truthy(output:find("built from another moonferry.h", 1, true), output)
    assert.is_truthy(output:find("0123456789abcdef", 1, true), output)
  end)

  -- What PUC-Lua has not is taken away.
  for _, name in ipairs { "moonferry", "moonferry.python", "moonferry.gl" } do
    it("is refused in a sentence where there is no LuaJIT, by " .. name, function()
      local program = [[
        for _, module in ipairs { "ffi", "jit", "bit" } do
          package.loaded[module], package.preload[module], _G[module] = nil, nil, nil
        end
        print(select(2, pcall(require, %q)))
      ]]
      local output = run(program:format(name), "MOONFERRY_LIBRARY=" .. absolute(LIBRARY))
      assert.are.equal("moonferry needs LuaJIT with its FFI; this is Lua 5.1\n", output)
    end)
  end

  it("can be required again in one process, and after another library's DLPack", function()
    local program = [[
      require("ffi").cdef "typedef struct { uint8_t code; uint8_t bits; uint16_t lanes; } DLDataType;"
      local mf = require "moonferry"
      for name in pairs(package.loaded) do
        if name:match "^moonferry" then package.loaded[name] = nil end
      end
      local again = require "moonferry"
      assert(mf ~= again)
      local t = again.from_dlpack(mf.tensor({ 1, 2 }):to_dlpack())
      assert(t:get(1) == 2)
      t:close()
      collectgarbage()
      assert(again.ledger().tensors == 0)
    ]]
    local output, code = run(program, "MOONFERRY_LIBRARY=" .. absolute(LIBRARY))
    assert.are.equal(0, code, output)
  end)

  it("gives back what Lua collects where the program has taken getfenv away", function()
    local program = [[
      getfenv = nil
      local mf = require "moonferry"
      for _ = 1, 100 do mf.zeros({ 3 }, "int8") end
      collectgarbage()
      collectgarbage()
      assert(mf.ledger().tensors == 0)
    ]]
    local output, code = run(program, "MOONFERRY_LIBRARY=" .. absolute(LIBRARY))
    assert.are.equal(0, code, output)
  end)

  it("outlives every tensor, also those alive when the state closes", function()
    local program = [[
      local mf = require "moonferry"
      keep = {}
      for i = 1, 1000 do
        keep[i] = mf.zeros(i)
        keep[-i] = mf.wrap(require("ffi").new("float[4]"), 4)
        keep["m" .. i] = keep[-i]:to_dlpack()
        require("ffi").gc(keep["m" .. i], function(m) m.deleter(m) end)
      end
      mf, package.loaded["moonferry"], package.loaded["moonferry.lib"] = nil, nil, nil
      collectgarbage()
    ]]
    local output, code = run(program, "MOONFERRY_LIBRARY=" .. absolute(LIBRARY))
    assert.are.equal(0, code, output)
  end)

  it("outlives the state that loaded it, as what it exported does", function()
    local program = [[
      local ffi = require "ffi"
      ffi.cdef [=[
        void *luaL_newstate(void); void luaL_openlibs(void *L); int luaL_loadstring(void *L, const char *text);
        int lua_pcall(void *L, int given, int wanted, int handler); double lua_tonumber(void *L, int index);
        void lua_close(void *L);
        typedef struct exported { uint32_t version[2]; void *ctx; void (*deleter)(struct exported *); } exported;
      ]=]
      local L = ffi.C.luaL_newstate()
      ffi.C.luaL_openlibs(L)
      assert(ffi.C.luaL_loadstring(L, [=[
        local exported = require("moonferry").ones(3):to_dlpack()
        return tonumber(require("ffi").cast("intptr_t", exported))
      ]=]) == 0 and ffi.C.lua_pcall(L, 0, 1, 0) == 0)
      local exported = ffi.cast("exported *", ffi.C.lua_tonumber(L, -1))
      ffi.C.lua_close(L)
      exported.deleter(exported)
    ]]
    local output, code = run(program, "MOONFERRY_LIBRARY=" .. absolute(LIBRARY))
    assert.are.equal(0, code, output)
  end)

  -- LuaJIT refuses jit.off there.
  it("is not loaded by a finalizer, but can be later", function()
    for _, before in ipairs { "", 'require "moonferry"' } do
      local name = before == "" and "moonferry" or "moonferry.gl"
      local output, code = run(([[%s
        local object, told = newproxy(true), nil
        getmetatable(object).__gc = function()
          told = select(2, pcall(require, %q))
        end
        object = nil
        collectgarbage()
        print(told)
        print(require(%q) == require(%q), require("moonferry").zeros(2):get(1))
      ]]):format(before, name, name, name), "MOONFERRY_LIBRARY=" .. absolute(LIBRARY))
      assert.are.equal(0, code, output)
      assert.are.equal("a finalizer cannot load a module of moonferry (bad action while in __gc metamethod); require "
        .. "it before\ntrue\t0\n", output)
    end
  end)
end)
