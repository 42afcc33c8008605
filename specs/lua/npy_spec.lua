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
  }

  for i, case in ipairs(WRONG) do
    it(("tells what is wrong with a file (%d: %s)"):format(i, case[2]), function()
      process.write_file(path, case[1])
      local t, message = mf.load(path)
      assert.is_nil(t)
      assert.is_truthy(message:find(path, 1, true) and message:find(case[2], 1, true), message)
    end)
  end

  it("tells what cannot be opened, and what is misuse", function()
    local t, message = mf.load("/no/such/file.npy")
    assert.is_nil(t)
    assert.is_truthy(message:find("/no/such/file.npy", 1, true), message)
    assert.are.equal("load: /: Is a directory", select(2, mf.load "/"))
    mf.scope(function()
      local saved, why = mf.save("/no/such/folder/x.npy", mf.zeros(2))
      assert.is_nil(saved)
      assert.is_truthy(why:find("/no/such/folder", 1, true), why)
      helper.refuses("path: expected a string, got 3", mf.load, 3)
      helper.refuses("path: expected a string, got a table", mf.save, mf.zeros(2), path)
      helper.refuses("has no dtype bfloat16", mf.save, path, mf.zeros(2, "bfloat16"))
      helper.refuses("expected a tensor, got a table", mf.save, path, { 1, 2 })
    end)
  end)
end)
