-- NumPy's files: what Lua writes NumPy reads, what NumPy writes Lua reads, and what is no such file is told so.
local mf = require "moonferry"
local py = require "moonferry.python"
local helper = require "helper"
local process = require "process"

local np = py.import "numpy"
local path

before_each(function()
  path = os.tmpname()
end)

after_each(function()
  os.remove(path)
  helper.nothing_left()
end)

local DTYPES = { "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
  "float64", "complex64", "complex128" }

-- Whether NumPy has the same there.
local function numpy_agrees(t)
  local a = np.load(path)
  assert.are.equal(t.dtype, a.dtype.name)
  local as = np.asarray(t)
  assert.is_true(np.array_equal(a, as))
  assert.are.equal(py.builtins.str(as.shape), py.builtins.str(a.shape))
  py.close(a, as)
end

describe("mf.save and mf.load", function()
  for _, dtype in ipairs(DTYPES) do
    it("pass " .. dtype .. " through NumPy", function()
      mf.scope(function()
        local t = mf.tensor({ { 0, 1, 2 }, { 3, 4, 5 } }, "float64"):astype(dtype)
        for _, x in ipairs { t, t:permute_dims(), t:view({ nil, nil, -1 }, { 1, 2 }), t:view(0), t:view(0, 1),
          t:view({ 0, 0 }) } do
          assert.is_true(mf.save(path, x))
          numpy_agrees(x)
          local back = assert(mf.load(path))
          assert.are.equal(dtype, back.dtype)
          assert.are.same(x.shape, back.shape)
          assert.is_true(back:equal(x))
        end
      end)
      py.settle()
    end)
  end

  it("takes Fortran's order, other byte orders and later versions", function()
    local code = [[
def write(path, kind):
    import numpy as np
    a = (np.arange(24).reshape(2, 3, 4) * 257).astype(kind)
    with open(path, "wb") as file:
        if kind == "<i4":
            np.lib.format.write_array(file, a, version=(2, 0))
        else:
            np.save(file, np.asfortranarray(a))
    return a.astype(np.dtype(kind).newbyteorder("="))
]]
    local names = py.dict {}
    py.builtins.exec(code, names)
    for _, kind in ipairs { "<f8", ">f8", ">i2", "<i4", ">c8", ">u8", ">f2" } do
      mf.scope(function()
        local expected = names:get("write")(path, kind)
        local t = assert(mf.load(path))
        assert.is_true(t:equal(assert(py.tensor(expected))), kind)
        assert.are.same({ 2, 3, 4 }, t.shape)
      end)
    end
    py.settle()
  end)

  local function of_header(text, rest)
    return "\147NUMPY\1\0" .. string.char(#text % 256, math.floor(#text / 256)) .. text .. (rest or "")
  end

  local PLAIN = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }\n"
  local WRONG = {
    { "", "does not begin" }, { "\147NUMPY", "does not begin" }, { ("x"):rep(100), "does not begin" },
    { "\147NUMPY\9\0\1\0 ", "format version is 9" }, { "\147NUMPY\1\0\255\255{}", "header should have 65535 bytes" },
    { "\147NUMPY\2\0\255\255\255\255{}", "header should have 4294967295 bytes" },
    { of_header "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n", "'|O'" },
    { of_header "{'descr': '<U3', 'fortran_order': False, 'shape': (1,), }\n", "'<U3'" },
    { of_header "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }\n", "records" },
    { of_header "{'descr': '<f4', 'shape': (1,), }\n", "fortran_order" },
    { of_header "{'descr': '<f4', 'fortran_order': False, 'shape': (os.exit(),), }\n", "shape" },
    { of_header(PLAIN:format "3,", "12345678"), "ends 4 bytes too early" },
    { of_header(PLAIN:format "2,", "1234567"), "ends 1 byte too early" },
    { of_header(PLAIN:format "99999999999999,", "12345678"), "ends 399999999999988 bytes too early" },
    { of_header(PLAIN:format "4294967296, 4294967296", "12345678"), "bytes too early" },
    { of_header(PLAIN:format "-2,", "12345678"), "shape is (-2,)" },
    { "PK\3\4" .. ("x"):rep(100), "an archive, such as an .npz file" },
    { of_header(PLAIN:format "99999999999999999999,"), "99999999999999999999" },
    { of_header(PLAIN:format(("1, "):rep(65))), "65 axes" },
    { of_header(PLAIN:format "9223372036854775808, 1"), "9223372036854775808" },
    { of_header(PLAIN:format "9007199254740991, 9007199254740991, 0"), "no memory holds its shape" },
    { of_header(PLAIN:format "2305843009213693953, 0"), "2305843009213693953" },
    { of_header(PLAIN:format "3", ("x"):rep(12)), "shape is (3)" },
    { of_header(PLAIN:format "3 4,", ("x"):rep(48)), "shape is (3 4,)" },
    { of_header(PLAIN:format "3, 4 5", ("x"):rep(240)), "shape is (3, 4 5)" },
    { of_header(PLAIN:format "3,,4", ("x"):rep(48)), "shape is (3,,4)" },
    { of_header(PLAIN:format ",", ("x"):rep(4)), "shape is (,)" },
    { of_header(PLAIN:format "L", ("x"):rep(4)), "shape is (L)" },
    { of_header(PLAIN:format "1LL,", ("x"):rep(4)), "shape is (1LL,)" },
    { "\147NUMPY\1\0\118", "it ends before its header" }, { "\147NUMPY\2\0\118\0\0", "it ends before its header" },
    { "\147NUMPY\0\0\118\0", "format version is 0" },
  }

  for i, case in ipairs(WRONG) do
    it(("tells what is wrong with a file (%d: %s)"):format(i, case[2]), function()
      process.write_file(path, case[1])
      local t, message = mf.load(path)
      assert.is_nil(t)
      assert.is_truthy(message:find(path, 1, true) and message:find(case[2], 1, true), message)
    end)
  end

  -- A file with this text in the place of NumPy's description, and these bytes behind it.
  local function written(version, text, data)
    local file = assert(io.open(path, "wb"))
    local digits = version == 1 and 2 or 4
    text = text .. (" "):rep(-(8 + digits + #text + 1) % 64) .. "\n"
    local size = ""
    for k = 0, digits - 1 do
      size = size .. string.char(math.floor(#text / 256 ^ k) % 256)
    end
    file:write("\147NUMPY", string.char(version, 0), size, text, data)
    file:close()
  end

  it("writes what NumPy does: a type of one byte has no order, and the elements begin at a multiple of 64", function()
    for dtype, descr in pairs { int8 = "'|i1'", bool = "'|b1'", float32 = "'<f4'" } do
      local t = mf.zeros({ 3 }, dtype)
      assert.is_true(mf.save(path, t))
      local file = assert(io.open(path, "rb"))
      local text = file:read "*a"
      file:close()
      assert.is_truthy(text:find(descr, 1, true), dtype)
      assert.are.equal(0, (#text - t.nbytes) % 64)
      assert.are.equal("\n", text:sub(-t.nbytes - 1, -t.nbytes - 1))
      t:close()
    end
  end)

  it("reads each version, Fortran's order of two axes, 64 axes and the machine's own order", function()
    local function read(version, descr, fortran, shape, data)
      written(version, ("{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }"):format(descr, fortran, shape), data)
      local t, message = mf.load(path)
      local values = t and t:tolist()
      if t then
        t:close()
      end
      return values, message
    end
    for version = 1, 3 do
      assert.are.same({ 1, 2 }, (read(version, "|u1", "False", "2,", "\1\2")))
    end
    assert.is_nil((read(4, "|u1", "False", "2,", "\1\2")))
    assert.are.same({ { 1, 3, 5 }, { 2, 4, 6 } }, (read(1, "|u1", "True", "2, 3", "\1\2\3\4\5\6")))
    assert.are.same({ 1, 2 }, (read(1, "=u2", "False", "2,", "\1\0\2\0")))
    assert.is_table((read(1, "|u1", "False", ("1, "):rep(64), "\1")))
    assert.is_nil((read(1, "|u1", "False", ("1, "):rep(65), "\1")))
  end)

  it("leaves nothing where it fails, before anything is collected", function()
    local t = mf.zeros { 4, 6 }
    local turned = t:permute_dims()
    local before = mf.ledger()
    local full, why = mf.save("/dev/full", turned)
    assert.is_nil(full)
    assert.matches("No space left", why)
    assert.are.same(before, mf.ledger())
    assert.is_nil((mf.save("/nowhere/at/all", turned)))
    assert.are.same(before, mf.ledger())
    assert.is_true(mf.save(path, turned))
    assert.are.same(before, mf.ledger())
    written(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "1234567")
    local function files()
      local pipe = assert(io.popen("ls /proc/" .. io.open("/proc/self/stat"):read():match "%d+" .. "/fd | wc -l"))
      local count = tonumber(pipe:read())
      pipe:close()
      return count
    end
    collectgarbage()
    local open = files()
    collectgarbage "stop"
    for _ = 1, 20 do
      assert.is_nil((mf.load(path)))
    end
    local now = files()
    collectgarbage "restart"
    assert.is_true(now < open + 10, now - open)
    assert.are.same(before, mf.ledger())
    t:close()
    turned:close()
  end)

  it("tells what the system says of a file that cannot be read to its end", function()
    local t, open = mf.zeros(2), io.open
    assert(mf.save(path, t))
    t:close()
    for nth = 1, 4 do -- what begins it, the header's size, the header, the elements
      io.open = function(...) -- luacheck: ignore 122
        local file, reads, broken = assert(open(...)), 0, {}
        function broken.read(_, count)
          reads = reads + 1
          if reads == nth then
            return nil, "Input/output error", 5
          end
          return file:read(count)
        end
        function broken.seek(_, ...)
          return file:seek(...)
        end
        function broken.close()
          return file:close()
        end
        return broken
      end
      local none, message = mf.load(path)
      io.open = open -- luacheck: ignore 122
      assert.is_nil(none)
      assert.are.equal(("load: %s: Input/output error"):format(path), message)
    end
  end)

  it("tells what cannot be opened, and what is misuse", function()
    local t, message = mf.load("/no/such/file.npy")
    assert.is_nil(t)
    assert.is_truthy(message:find("/no/such/file.npy", 1, true), message)
    assert.are.equal("load: /: Is a directory", select(2, mf.load "/"))
    process.write_file(path, of_header(PLAIN:format "4503599627370496, 4503599627370496"))
    local pipe = os.tmpname() -- which cannot tell its length
    os.remove(pipe)
    os.execute(("mkfifo %s; cat %s > %s &"):format(pipe, path, pipe))
    assert.are.equal(("load: %s: no memory holds its shape"):format(pipe), select(2, mf.load(pipe)))
    os.remove(pipe)
    mf.scope(function()
      local saved, why = mf.save("/no/such/folder/x.npy", mf.zeros(2))
      assert.is_nil(saved)
      assert.is_truthy(why:find("/no/such/folder", 1, true), why)
      helper.refuses("path: expected a string, got 3", mf.load, 3)
      helper.refuses("load: path: expected a path without a NUL", mf.load, "/no/such/file\0.npy")
      helper.refuses("save: path: expected a path without a NUL", mf.save, "/no/such/file\0.npy", mf.zeros(2))
      helper.refuses("path: expected a string, got a table", mf.save, mf.zeros(2), path)
      helper.refuses("has no dtype bfloat16", mf.save, path, mf.zeros(2, "bfloat16"))
      helper.refuses("expected a tensor, got a table", mf.save, path, { 1, 2 })
    end)
  end)
end)
