-- Python's operators, items, calls and code from Lua.
local ffi = require "ffi"
local py = require "moonferry.python"

-- The error of a call that must fail.
local function failure(f, ...)
  local ok, err = pcall(f, ...)
  assert.is_false(ok)
  return err
end

local function text(f, ...)
  return tostring(failure(f, ...))
end

describe("operators of Python objects", function()
  local F

  setup(function()
    F = py.import("fractions").Fraction
  end)

  it("calculate with objects and with Lua values on either side", function()
    local half, third = F(1, 2), F(1, 3)
    assert.are.equal("5/6", tostring(half + third))
    assert.are.equal("1/6", tostring(half - third))
    assert.are.equal("1/6", tostring(half * third))
    assert.are.equal("3/2", tostring(half / third))
    assert.are.equal("1/6", tostring(half % third))
    assert.are.equal("1/4", tostring(half ^ 2))
    assert.are.equal("-1/2", tostring(-half))
    assert.are.equal("3/2", tostring(1 + half))
    assert.are.equal("1/2", tostring(1 - half))
    assert.are.equal("4", tostring(2 / half))
    assert.are.equal("1/4", tostring(half * F(2, 4)))
    assert.are.equal(2 ^ 0.5, 2 ^ half)
    assert.are.equal("abab", py.object("ab") * 2)
    assert.are.equal("ab7", py.object("ab%d") % 7)
    assert.are.equal("xab", "x" + py.object("ab"))
    assert.matches("TypeError: unsupported operand", text(function() return half + {} end))
    assert.matches("ZeroDivisionError", text(function() return half / 0 end))
  end)

  it("keep big integers exact", function()
    local big = py.eval "2**60"
    assert.are.equal("1152921504606846977", tostring(big + 1))
    assert.are.equal("1152921504606846975", tostring(big - 1LL))
    assert.are.equal(1, (big + 1) % big)
    assert.are.equal(2 ^ 60, py.number(big))
    assert.are.equal(1152921504606846977LL, py.int64(big + 1))
    assert.are.equal(18446744073709551615ULL, py.uint64(py.eval "2**64 - 1"))
    assert.are.equal(-5LL, py.int64(-5))
    assert.is_true(ffi.istype("int64_t", py.int64(py.builtins.True)))
    assert.matches("OverflowError", text(py.int64, py.eval "2**63"))
    assert.matches("OverflowError", text(py.uint64, -1))
    assert.matches("TypeError", text(py.int64, py.list {}))
  end)

  it("compare objects, and the module operator compares everything else", function()
    assert.is_true(F(1, 2) < F(2, 3))
    assert.is_false(F(1, 2) > F(2, 3))
    assert.is_true(F(1, 2) <= F(2, 4))
    assert.is_true(F(1, 2) >= F(2, 4))
    assert.is_true(F(1, 2) == F(2, 4))
    assert.is_true(F(1, 2) ~= F(2, 3))
    assert.is_true(py.op.lt(F(1, 2), 1))
    assert.is_true(py.op.eq(F(4, 2), 2))
    -- With Lua 5.2's functions LuaJIT asks the metatable of either operand, else only one that both have.
    local asks_either = pcall(function()
      return setmetatable({}, { __lt = function() return true end }) < 1
    end)
    local ok, answer = pcall(function() return F(1, 2) < 1 end)
    assert.are.equal(asks_either, ok)
    if asks_either then
      assert.is_true(answer)
    else
      assert.matches("attempt to compare", answer)
    end
    assert.matches("TypeError: '<' not supported", text(function() return py.list {} < F(1, 2) end))
    local np = py.import "numpy"
    local less = py.op.lt(np.arange(3), np.array { 1, 1, 1 })
    assert.are.equal("[ True False False]", tostring(less))
    assert.matches("ambiguous", text(function() return np.arange(3) == np.arange(3) end))
  end)

  it("that Lua has not are functions of py.op", function()
    local op = py.op
    local set = py.builtins.set
    assert.are.equal(3, op.floordiv(7, 2))
    local array = py.import("numpy").array
    assert.are.equal(11, op.matmul(array { 1, 2 }, array { 3, 4 }):item())
    assert.are.equal("{2}", tostring(op.and_(set { 1, 2 }, set { 2, 3 })))
    assert.are.equal(7, op.or_(5, 2))
    assert.are.equal(6, op.xor(5, 3))
    assert.are.equal(-6, op.invert(5))
    assert.are.equal(20, op.lshift(5, 2))
    assert.are.equal(1, op.rshift(5, 2))
    assert.is_true(op.contains(py.list { 1, 2 }, 2))
    assert.is_true(op.not_(op.contains("Fähre", "boat")))
    local list = py.list {}
    assert.is_true(op.is_(list, list))
    assert.is_true(op.is_not(list, py.list {}))
    assert.is_false(op.truth(list))
    assert.are.equal("[1]", tostring(op.iadd(list, py.list { 1 })))
    assert.are.equal(1, #list)
    assert.are.equal("9007199254740993", tostring(#py.eval "range(2**53 + 1)"))
    assert.are.equal(5, py.builtins.abs(-5))
    assert.are.same({ 3, 1 }, { py.unpack(py.builtins.divmod(7, 2)) })
  end)
end)

describe("items", function()
  it("are sliced", function()
    local list = py.list { "a", "b", "c", "d" }
    assert.are.equal("['a', 'b']", tostring(list[py.slice(2)]))
    assert.are.equal("['b', 'c']", tostring(list[py.slice(1, 3)]))
    assert.are.equal("['d', 'c', 'b', 'a']", tostring(list[py.slice(nil, nil, -1)]))
    assert.are.equal("['c', 'd']", tostring(list[py.slice(2, nil)]))
    list[py.slice(1, 3)] = { "x" }
    assert.are.equal("['a', 'x', 'd']", tostring(list))
    local a = py.import("numpy").arange(12):reshape(3, 4)
    assert.are.equal("[1 5 9]", tostring(py.get(a, py.slice(), 1)))
    py.set(a, 0, py.slice(nil, 2), 7)
    assert.are.equal("[7 7 2 3]", tostring(a[0]))
  end)

  it("are deleted", function()
    local dict = py.dict { a = 1, b = 2 }
    py.delete(dict, "a")
    assert.are.equal("{'b': 2}", tostring(dict))
    local list = py.list { 1, 2, 3 }
    py.delete(list, 0)
    py.delete(list, py.slice(1, nil))
    assert.are.equal("[2]", tostring(list))
    assert.matches("KeyError", text(py.delete, dict, "a"))
    assert.matches("key is missing", text(py.delete, dict))
  end)

  it("of a sequence over a table are set and deleted as a list's", function()
    local function same(act)
      local t, list = { 1, 2, 3, 4, 5, 6 }, py.list { 1, 2, 3, 4, 5, 6 }
      local s = py.sequence(t)
      local ok, message = pcall(act, s)
      assert.are.equal(ok, pcall(act, list))
      assert.are.equal(tostring(list), tostring(py.builtins.list(s)))
      assert.are.equal(#list, #t)
      return message
    end
    for _, bounds in ipairs { { 1, 3 }, { 4, 1 }, { -2 }, { nil, nil, 2 }, { nil, nil, -1 },
      { 9, 20 } } do
      local part = py.slice(bounds[1], bounds[2], bounds[3])
      same(function(s) py.delete(s, part) end)
      for _, values in ipairs { {}, { 7 }, { 7, 8 }, { 7, 8, 9 }, { 6, 5, 4, 3, 2, 1 } } do
        same(function(s) py.set(s, part, values) end)
      end
      same(function(s) py.set(s, part, s) end)
    end
    assert.are.equal("ValueError", same(function(s) py.set(s, py.slice(0, 6, 2), { 1 }) end).type)
    for _, key in ipairs { 1.5, "x", py.None } do
      assert.are.equal("TypeError", same(function(s) py.set(s, key, 0) end).type)
      assert.are.equal("TypeError", same(function(s) return py.get(s, key) end).type)
      assert.are.equal("TypeError", same(function(s) py.delete(s, key) end).type)
    end
  end)
end)

describe("calls", function()
  it("unpack both kinds of arguments", function()
    py.exec "def show(*args, **kw):\n    return repr((args, dict(sorted(kw.items()))))"
    local show = py.main.show
    assert.are.equal("((), {})", py.call(show))
    assert.are.equal("((1, 2), {'a': 3})", py.call(show, { 1, 2 }, { a = 3 }))
    assert.are.equal("((0, 1), {'b': 4})", py.call(show, py.builtins.range(2), py.dict { b = 4 }))
    assert.are.equal("((), {'b': 4})", py.call(show, nil, py.dict { b = 4 }))
    assert.are.equal("((1,), {'c': None})", show(1, py.kw(py.dict { c = py.None })))
    assert.matches("TypeError", text(py.call, show, 5))
    assert.matches("keyword must be a string", text(py.call, show, {}, { 1 }))
  end)
end)

describe("from", function()
  it("gives several names of a module, submodules included", function()
    local sep, path, join = py.from("os", "sep", "path", "getcwd")
    assert.are.equal("/", sep)
    assert.are.equal(py.import "os.path", path)
    assert.is_true(py.builtins.callable(join))
    assert.are.equal(6, (py.from("builtins", "sum")) { 1, 2, 3 })
    local mime = py.from("email", "mime")
    assert.are.equal("email.mime", mime.__name__)
    local err = failure(py.from, "os", "sep", "nothing")
    assert.is_true(err:is "ImportError")
    assert.are.equal("cannot import name 'nothing' from 'os'", err.message)
    assert.matches("ModuleNotFoundError", text(py.from, "moonferry_absent", "x"))
  end)
end)

describe("code", function()
  it("has names of a Lua table, and leaves its own there", function()
    assert.are.equal(42, py.eval("x * y", { x = 6, y = 7 }))
    local scope = { x = 20 }
    py.exec("y = x + 1\ndef f(a):\n    return a + y", scope)
    assert.are.equal(21, scope.y)
    assert.are.equal(22, scope.f(1))
    assert.is_nil(scope.__builtins__)
  end)

  it("has locals before its globals", function()
    local globals, locals = py.dict { x = 1, z = 5 }, { x = 2 }
    assert.are.equal(7, py.eval("x + z", globals, locals))
    py.exec("w = x + z", globals, locals)
    assert.are.equal(7, locals.w)
    assert.is_false(py.op.contains(globals, "w"))
    assert.are.equal(3, py.eval("len(s)", nil, { s = "abc" }))
    assert.are.equal(py.import("math").pi, py.eval("pi", py.import "math"))
  end)
end)

describe("loops", function()
  it("get tuples as several values", function()
    local seen = {}
    for i, item in py.enumerate { "a", "b" } do
      seen[#seen + 1] = i .. item
    end
    for i, item in py.enumerate(py.tuple { "c" }, 5) do
      seen[#seen + 1] = i .. item
    end
    for a, b in py.zip({ 1, 2 }, py.builtins.iter { py.None, 4 }) do
      seen[#seen + 1] = tostring(a) .. tostring(b)
    end
    for key, value in py.items(py.dict { k = "v" }) do
      seen[#seen + 1] = key .. value
    end
    for single in py.each(py.list { 7, py.list { 1 } }) do
      seen[#seen + 1] = tostring(single)
    end
    assert.are.same({ "0a", "1b", "5c", "1None", "24", "kv", "7", "[1]" }, seen)
  end)

  it("refuse what they cannot hand over", function()
    local step = py.iter {}
    assert.matches("iterator is expected", text(step, py.list {}))
    assert.matches("empty tuple", text(function()
      for _ in py.each(py.list { py.tuple {} }) do end
    end))
    assert.matches("AttributeError", text(py.items, py.list {}))
    assert.matches("too many values", text(py.unpack, py.builtins.range(8000)))
    assert.matches("too many values", text(function()
      for _ in py.each(py.list { py.builtins.tuple(py.builtins.range(8000)) }) do end
    end))
  end)

  it("of Lua that call Python often need no more memory", function()
    local add, F = py.op.add, py.import("fractions").Fraction
    local function run(count)
      local sum, fraction = 0, F(0)
      for i = 1, count do
        sum = add(sum, i)
        if i % 100 == 0 then
          fraction = fraction + 1
        end
      end
      return sum, fraction
    end
    local sum, fraction = run(100000)
    assert.are.equal(5000050000, sum)
    assert.is_true(fraction == F(1000))
    collectgarbage()
    local before = collectgarbage "count"
    run(100000)
    collectgarbage()
    assert.is_true(collectgarbage "count" < before + 64)
  end)
end)
