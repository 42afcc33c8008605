-- Runs specs without busted, whose own C modules are not to be had for every platform: specs/cross does, elsewhere
-- busted runs them.
--
--     luajit specs/lua/alone.lua FILE ...
--
-- Responsible for: what a spec file finds in busted (describe, it, setup, teardown, before_each, after_each, finally,
-- pending, luassert's assert) with busted's meaning and order. Prints a line for each test, then "alone: N passed, N
-- failed, N pending"; ends with 1 if one failed or none ran. Must not know: what a spec is of.
assert = require "luassert"

local passed, failed, left_out = 0, 0, 0
local PENDING = {}
local block -- the one that is being filled or run: { name, parent, tests, before, after, first, last }
local afterwards -- what finally() was given in the test that runs

function describe(name, body)
  local inner = { name = name, parent = block, items = {}, before = {}, after = {}, first = {}, last = {} }
  block.items[#block.items + 1] = inner
  block = inner
  body()
  block = inner.parent
end

function it(name, body)
  block.items[#block.items + 1] = { name = name, body = body }
end

for name, list in pairs { before_each = "before", after_each = "after", setup = "first", teardown = "last" } do
  _G[name] = function(fn)
    table.insert(block[list], fn)
  end
end

function finally(fn)
  afterwards = fn
end

function pending(why)
  error(setmetatable({ why = why }, PENDING), 0)
end

-- What went wrong, as text; nil for a test that called pending.
local function trace(problem)
  if getmetatable(problem) == PENDING then
    return problem
  end
  return debug.traceback(tostring(problem), 2)
end

local function attempt(list)
  for _, fn in ipairs(list) do
    local ok, problem = xpcall(fn, trace)
    if not ok then
      return problem
    end
  end
end

-- From the outermost block to this one, or back.
local function hooks(of, list, outwards)
  local found = {}
  while of do
    for i = #of[list], 1, -1 do
      table.insert(found, outwards and #found + 1 or 1, of[list][i])
    end
    of = of.parent
  end
  return found
end

local function run_test(of, name, test)
  afterwards = nil
  local problem = attempt(hooks(of, "before")) or attempt { test.body }
  problem = attempt { afterwards } or problem
  problem = attempt(hooks(of, "after", true)) or problem
  if problem == nil then
    passed = passed + 1
    print("ok - " .. name)
  elseif getmetatable(problem) == PENDING then
    left_out = left_out + 1
    print("pending - " .. name .. ": " .. tostring(problem.why))
  else
    failed = failed + 1
    print("not ok - " .. name .. "\n" .. problem)
  end
end

local function run(of, prefix)
  local problem = attempt(of.first)
  for _, item in ipairs(problem and {} or of.items) do
    local name = prefix .. " " .. item.name
    if item.body then
      run_test(of, name, item)
    else
      run(item, name)
    end
  end
  problem = attempt(of.last) or problem
  if problem then
    failed = failed + 1
    print("not ok - " .. prefix .. ", around its tests\n" .. tostring(problem))
  end
end

for _, file in ipairs(arg) do
  block = { name = file, items = {}, before = {}, after = {}, first = {}, last = {} }
  local root = block
  local problem = attempt { function()
    assert(loadfile(file))()
  end }
  if problem then
    failed = failed + 1
    print("not ok - " .. file .. "\n" .. tostring(problem))
  else
    run(root, file)
  end
end
print(("alone: %d passed, %d failed, %d pending"):format(passed, failed, left_out))
os.exit((failed > 0 or passed == 0) and 1 or 0)
