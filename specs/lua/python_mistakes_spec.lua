-- What somebody types wrongly at moonferry.python, and what must be said: the thing, the value and what to write
-- instead.
local mf = require "moonferry"
local py = require "moonferry.python"

local CASES = {
  { "return py.foo", "moonferry.python has no \"foo\"", "py.import \"foo\"", "py.builtins.foo" },
  { "return py.imprt 'numpy'", "moonferry.python has no \"imprt\"", "py.import" },
  { "return py[1]", "moonferry.python has no 1" },
  { "return py.kw(5)", "py.kw: expected a table such as { dtype = \"int8\" }", "a mapping", "got 5" },
  { "return py.kw()", "py.kw: expected a table", "got nil" },
  { "return py.iterator(5)", "py.iterator: expected a function", "got 5" },
  { "return py.iterator {}", "py.iterator: expected a function", "got a table" },
  { "return py.kw(mf.zeros(3))", "py.kw: expected a table", "got a tensor, stream or ring" },
  { "return py.dict(mf.zeros(3))", "py.dict takes a table of values, got a tensor, stream or ring" },
  { "return py.dict(mf.ring({ 2 }))", "py.dict takes a table of values, got a tensor, stream or ring" },
  { "return py.list(mf.zeros(3))", "py.list takes a table of values, got a tensor" },
  { "return py.tuple(mf.zeros(3), 3)", "py.tuple takes a table of values, got a tensor" },
  { "local t = mf.zeros(3) t:close() return py.list(t)", "py.list takes a table of values, got a tensor" },
  { "return py.mapping(mf.zeros(3))", "takes a table of values, got a tensor" },
  { "return py.sequence(mf.zeros(3))", "takes a table of values, got a tensor" },
  { "return py.call(py.builtins.dict, {}, mf.zeros(3))", "py.call takes a table of values, got a tensor" },
  { "return py.exec('x = 1', mf.zeros(3))", "takes a table of values, got a tensor" },
  { "return py.builtins.dict(py.kw { 1 })", "a keyword must be a string, got number" },
  { "return py.import()", "py.import takes the module's name, got no value" },
  { "return py.import(py.builtins)", "py.import takes the module's name, got userdata" },
  { "return py.import 'no_such_module'", "ModuleNotFoundError", "no_such_module" },
  { "return py.from('math', 'sine')", "ImportError", "cannot import name 'sine' from 'math'" },
  { "return py.list { 1, nil, 3 }", "a list with holes", "py.None", "py.list(t, n)" },
  { "return py.list { 1, 2, nil, 4 }", "a list with holes" },
  -- As many numbers are keys as Lua says that there are, and one of them is no place.
  { "return py.list { [0] = 5, 1, 2, nil, 4 }", "a list with holes", "py.dict" },
  { "return py.builtins.repr { [2.5] = 5, 1, 2, nil, 4 }", "a list with holes", "py.dict" },
  { "return py.list({}, 2 ^ 31)", "the count of elements must be 0 ... 2^31-1" },
  { "return py.list({}, 0 / 0)", "the count of elements must be 0 ... 2^31-1" },
  { "return py.list({ 1, 2 }, 'x')", "the count of elements must be 0 ... 2^31-1" },
  { "return py.list({ 1, 2 }, {})", "the count of elements must be 0 ... 2^31-1" },
  { "return py.tuple({ 1, 2 }, 1.5)", "the count of elements must be 0 ... 2^31-1" },
  { "return py.tuple({ 1, 2 }, -1)", "the count of elements must be 0 ... 2^31-1" },
  { "return py.tuple { 1, nil, 3 }", "a list with holes", "py.None" },
  { "return py.list { 1, a = 2 }", "keys both of 1 ... n and others", "py.dict" },
  { "return py.list { a = 2 }", "a list is expected", "py.dict" },
  { "return py.list(3)", "py.list takes a table, got number" },
  { "return py.tuple()", "py.tuple takes a table, got n" },
  { "return py.dict 'x'", "py.dict takes a table, got string" },
  { "return py.mapping(3)", "py.mapping", "takes a table, got number" },
  { "return py.bytes {}", "py.bytes takes a string, got table" },
  { "return py.from 'math'", "py.from takes the module's name and then the names to import from it" },
  { "return py.with(py.builtins.object())", "py.with: expected a function of the value, got nil" },
  { "return py.with(py.builtins.object(), 3)", "py.with: expected a function of the value, got 3" },
  { "return py.scope_begin", "moonferry.python has no \"scope_begin\"" },
  { "return py.finish(3)", "py.finish: options: expected a table, got 3" },
  { "return py.finish { wat = 1 }", "py.finish: options: unknown option \"wat\"" },
  { "return py.preload({ 'json' }).dne", "what py.preload returns has no \"dne\"", "use loading:done" },
  { "return py.with(3, print)", "py.with takes a context manager", "<class 'int'> has no __enter__" },
  { "return py.with(py.eval \"type('Half', (), {'__enter__': id})()\", print)", "has no __exit__" },
  { "return py.call(py.builtins.dict, nil, { 1 })", "a keyword must be a string, got number" },
  { "return py.raise(5)", "py.raise takes a Python exception, or its class and arguments" },
  { "return py.raise(py.eval \"type('Odd', (Exception,), {'__new__': id})\")", "py.raise takes a Python exception" },
  { "return py.with(py.builtins.object(), print)", "a context manager", "<class 'object'> has no __enter__" },
  { "return py.eval(3)", "py.eval takes Python code as a string, got number" },
  { "return py.exec()", "py.exec takes Python code as a string, got n" },
  { "return py.dict { [true] = 1, [1] = 2 }", "two keys of a table are equal in Python" },
  { "return py.builtins.len { a = 1, [py.object 'a'] = 2 }", "two keys of a table are equal in Python" },
  { "return py.get(py.dict {})", "a key is missing" },
  { "return py.set(py.dict {}, 1)", "a key is missing" },
  { "return py.delete(py.dict {})", "a key is missing" },
  { "return py.builtins.nothing", "AttributeError", "'builtins'", "'nothing'" },
  { "return py.builtins.exec 'x = 1'", "no Python function calls here", "py.exec", "py.main" },
  { "return py.builtins.eval '1 + 1'", "no Python function calls here", "py.eval" },
  { "return py.builtins.vars()", "no Python function calls here", "py.main" },
  { "return py.builtins.dir()", "no Python function calls here", "py.main" },
  { "return py.tensor('abc')", "an array, a number or nested sequences of numbers, not from a 'str'" },
  { "return py.into('torch', t)", "cls must be an array class such as torch.Tensor, not 'torch'" },
  { "return py.into(py.builtins.list, t)", "'builtins.list'", "t.tolist()" },
  { "return mf.from_dlpack(py.list { 1 })", "a Python object", "py.tensor(x)" },
  { "return mf.tensor(py.list { 1 })", "a Python object", "py.tensor(x)" },
  { "return t:copy(py.list { 1 })", "a Python object", "py.tensor(x)" },
}

describe("a mistake at moonferry.python", function()
  for _, case in ipairs(CASES) do
    it(("is named with its remedy: `%s`"):format(case[1]), function()
      local t = mf.zeros(2)
      local chunk = assert(loadstring(case[1], "=typed"))
      local ok, failure = pcall(setfenv(chunk, setmetatable({ mf = mf, py = py, t = t }, { __index = _G })))
      t:close()
      assert.is_false(ok, "no error")
      for i = 2, #case do
        assert.is_truthy(tostring(failure):find(case[i], 1, true), ("%q lacks %q"):format(tostring(failure), case[i]))
      end
    end)
  end

  -- Since 3.14 these two are for such callers, too.
  for _, name in ipairs { "globals", "locals" } do
    it("is named with its remedy, or has an answer of Python's: " .. name, function()
      local ok, answer = pcall(py.builtins[name])
      if py.import("sys").version_info:__ge__(py.tuple { 3, 14 }) then
        assert.is_true(ok and answer == py.None, tostring(answer))
      else
        assert.is_false(ok, "no error")
        for _, text in ipairs { "no Python function calls here", "py.main" } do
          assert.is_truthy(tostring(answer):find(text, 1, true), tostring(answer))
        end
      end
    end)
  end

  it("is none where a value is asked for that Python's start makes", function()
    assert.is_truthy(py.builtins and py.main and py.op and py.None)
  end)
end)
