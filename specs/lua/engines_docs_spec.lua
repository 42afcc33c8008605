-- docs/engines.md: every block of Lua on the page runs, with OpenGL where it needs that, and prints what the page says;
-- its blocks of C are one program, which is compiled and runs. Vulkan and interop with CUDA have specs of their own.
local ffi = require "ffi"
local mf = require "moonferry"
local py = require "moonferry.python"
local helper = require "helper"
local page = require "page"
local process = require "process"

local PAGE = "docs/engines.md"

-- What the program has beside the page's blocks: the engine.
local BEFORE = [[
#include <lualib.h>
#include <moonferry_lua.h>
#include <stdio.h>
#include <stdlib.h>
static int released;
static void on_release(void *engine) { (void)engine; released++; }
static int fail(const char *message) { fprintf(stderr, "%s\n", message); return 1; }
int main(void) {
  enum { count = 1000 };
  float *vertices = malloc(count * 4 * sizeof *vertices);
  void *engine = NULL;
  mf_error err;
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
]]
local BETWEEN = [[
  if (luaL_dostring(L, "vertices:fill(2)") != 0) return fail(lua_tostring(L, -1));
  printf("%g\n", (double)vertices[4 * count - 1]);
]]
local AFTER = [[
  printf("%d %d\n", in_use, released);
  return 0;
}
]]

-- The blocks of a language, without those that need a driver which is not here.
local function examples(language)
  local kept = {}
  for _, example in ipairs(page.examples(PAGE, language)) do
    if example.section ~= "Vulkan" and example.section ~= "CUDA interop" then
      kept[#kept + 1] = example
    end
  end
  return kept
end

local function compile(text, path)
  local package = os.getenv "MOONFERRY_BUILD" .. "/python/moonferry"
  process.write_file(path .. ".c", text)
  local command = "cc -std=c11 -Wall -Wextra -Werror -I %s/include %s.c -o %s $(pkg-config --cflags --libs luajit)"
    .. " -L %s -lmoonferry -Wl,-rpath,%s"
  local status, said = process.shell(command:format(package, path, path, package, package))
  assert.are.equal("", said)
  assert.are.equal(0, status)
end

describe(PAGE, function()
  local found = examples "lua"
  local np = py.import "numpy"

  after_each(helper.nothing_left_by_either)

  it("has examples", function()
    assert.is_true(#found >= 6)
  end)

  for _, example in ipairs(found) do
    it("says what the Lua from line " .. example.line .. " on prints", function()
      if example.code:find("py.finish", 1, true) then
        local program = 'local py = require "moonferry.python"\npy.import "numpy"\n' .. example.code
        return assert.are.same({ example.output, 0 }, { helper.luajit(program) })
      elseif example.code:find("moonferry.gl", 1, true) then
        require("egl").open()
      end
      local drawn = {}
      local function draw(buffer, offset)
        drawn[#drawn + 1] = buffer > 0 and offset
      end
      local names = { py = py, mf = mf, ffi = ffi, np = np, draw = draw }
      assert.are.equal(example.output, page.printed(PAGE, example, names))
    end)
  end

  it("has a program in C that compiles, runs and leaves nothing", function()
    if os.getenv "LD_PRELOAD" then
      return pending "a sanitizer stands before the compiler"
    end
    local blocks, path = examples "c", os.tmpname()
    assert.are.equal(2, #blocks)
    compile(BEFORE .. blocks[1].code .. BETWEEN .. blocks[2].code .. AFTER, path)
    local status, text = process.shell(path)
    os.remove(path)
    os.remove(path .. ".c")
    assert.are.equal("2\n0 1\n", text)
    assert.are.equal(0, status)
  end)
end)
