-- Scopes close what was made inside, however they end.
local mf = require "moonferry"
local helper = require "helper"
local scope = require "moonferry.scope"
local refuses = helper.refuses

local function live()
  return mf.ledger().tensors
end

describe("scope", function()
  after_each(helper.nothing_left)

  it("closes what was made inside and returns what the function returned", function()
    local inside
    local a, b, c = mf.scope(function()
      inside = mf.zeros(3)
      mf.from_dlpack(inside:view({ 1 }):to_dlpack())
      return 1, nil, 3
    end)
    assert.are.same({ 1, 3 }, { a, c })
    assert.is_nil(b)
    assert.are.equal(0, live())
    refuses("tensor closed", function()
      return inside.shape
    end)
  end)

  it("keeps what it is told to keep", function()
    local t = mf.scope(function(s)
      local whole = mf.tensor({ 1, 2, 3 })
      return s:keep(whole:view({ 1 }))
    end)
    assert.are.equal(1, live())
    assert.are.same({ 2, 3 }, t:tolist())
  end)

  it("closes on errors, which go on as they were", function()
    local failure = { "an object" }
    local ok, message = pcall(mf.scope, function()
      mf.zeros(3)
      error(failure)
    end)
    assert.is_false(ok)
    assert.are.equal(failure, message)
    assert.are.equal(0, live())
  end)

  it("leaves what is made while it closes to the scope around it", function()
    local made
    mf.scope(function()
      mf.scope(function()
        scope.register(setmetatable({}, { moonferry_open = true, __index = { close = function()
          made = mf.zeros(2)
        end } }))
      end)
      assert.are.equal(2, made.size)
    end)
    refuses("tensor closed", function()
      return made.size
    end)
  end)

  it("closes all the rest where something cannot be closed, and says so", function()
    local function cannot(text)
      local stuck = setmetatable({}, { moonferry_open = true, __index = { close = function() error(text, 0) end } })
      scope.register(stuck)
    end
    local function body(ending)
      return function()
        mf.zeros(1)
        cannot "the second"
        mf.zeros(2)
        cannot "the first"
        mf.zeros(3)
        return ending and error(ending, 0)
      end
    end
    assert.are.same({ false, "the first" }, { pcall(mf.scope, body()) })
    assert.are.equal(0, live())
    assert.are.same({ false, "of the function" }, { pcall(mf.scope, body "of the function") })
    assert.are.equal(0, live())
    assert.is_false(scope.active())
  end)

  it("nests: what an inner scope keeps belongs to the outer one", function()
    local outer_kept, inner_kept
    mf.scope(function(outer)
      mf.scope(function(inner)
        mf.zeros(1)
        inner_kept = inner:keep(mf.zeros(2))
        outer_kept = inner:keep(mf.zeros(3))
      end)
      assert.are.equal(2, live())
      outer:keep(outer_kept)
      mf.zeros(4)
      assert.are.equal(3, live())
    end)
    assert.are.equal(1, live())
    assert.are.same({ 3 }, outer_kept.shape)
    refuses("tensor closed", function()
      return inner_kept.shape
    end)
  end)

  it("leaves alone what was made before, or closed inside", function()
    local before = mf.zeros(1)
    mf.scope(function()
      mf.zeros(2):close()
      before:fill(2)
    end)
    assert.are.equal(2, before:get(0))
  end)

  it("belongs to its coroutine", function()
    local inside, outside
    local thread = coroutine.create(function()
      mf.scope(function()
        inside = mf.zeros(1)
        coroutine.yield()
        mf.zeros(2)
      end)
    end)
    assert(coroutine.resume(thread))
    outside = mf.zeros(3)
    assert(coroutine.resume(thread))
    assert.are.equal("dead", coroutine.status(thread))
    assert.are.equal(1, live())
    assert.are.same({ 3 }, outside.shape)
    assert.is_true(mf.is_tensor(inside))
  end)

  it("does not pile up tensors that were closed by hand", function()
    mf.scope(function()
      collectgarbage()
      local before = collectgarbage("count")
      for _ = 1, 20000 do
        mf.empty(1):close()
      end
      local kept = mf.zeros(1)
      collectgarbage()
      assert.is_true(collectgarbage("count") - before < 1500)
      assert.are.equal(0, kept:get(0))
    end)
  end)

  it("closes what is still open among very many that were closed by hand", function()
    collectgarbage()
    collectgarbage("stop")
    mf.scope(function()
      for i = 1, 9000 do
        local t = mf.empty(1)
        if i % 3 ~= 0 then
          t:close()
        end
      end
      assert.are.equal(3000, live())
    end)
    local left = live()
    collectgarbage("restart")
    assert.are.equal(0, left)
  end)

  it("has its place in its coroutine again after what is of no scope, and its errors", function()
    local function fail()
      assert.is_nil(scope.innermost[coroutine.running() or "main"])
      error("inside", 0)
    end
    mf.scope(function()
      local before = scope.innermost[coroutine.running() or "main"]
      assert.are.same({ 1, nil, 3 }, { scope.outside(function(...) return ... end, 1, nil, 3) })
      assert.are.same({ false, "inside" }, { pcall(scope.outside, fail) })
      assert.are.equal(before, scope.innermost[coroutine.running() or "main"])
      assert.is_true(scope.active())
    end)
    assert.is_false(scope.active())
    assert.are.same({ false, "out" }, { pcall(mf.scope, function() error("out", 0) end) })
    assert.is_false(scope.active())
  end)

  it("refuses what is no function and no tensor", function()
    refuses("expected a function, got nil", mf.scope)
    refuses("expected a function, got a table", mf.scope, {})
    local ended
    mf.scope(function(s)
      ended = s
      local closed = mf.zeros(1)
      closed:close()
      refuses("expected an open tensor", s.keep, s, 5)
      refuses("expected an open tensor", s.keep, s, closed)
      refuses("expected an open tensor", s.keep, s)
      refuses("expected an open tensor", s.keep, s, io.stdout)
    end)
    refuses("the scope has ended", ended.keep, ended, mf.zeros(1))
  end)
end)
