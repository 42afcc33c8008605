-- What somebody types who comes from another library or counts from 1, and what must be said: the thing, the value and
-- what to write instead. Nothing of it may go on in silence.
local ffi = require "ffi"
local mf = require "moonferry"
local helper = require "helper"

-- Each case: what is typed, then the texts that the one error must contain. `t` is int32, 2 x 3.
local ASSIGNMENTS = {
  { "t[0] = 7", "t:put", "t:set", "got [0]" },
  { "t[{ 0, 1 }] = 7", "t:put" },
  { "t.shape = { 6 }", "shape cannot be set", "t:reshape" },
  { "t.strides = { 1 }", "strides cannot be set", "t:permute_dims" },
  { "t.dtype = 'int8'", "dtype cannot be set", "t:astype" },
  { "t.device = 'cuda:0'", "device cannot be set", "t:to" },
  { "t.readonly = true", "readonly cannot be set", "t:as_readonly" },
  { "t.size = 99", "size cannot be set" },
  { "t.get = print", "get is a method" },
  { "t.label = 'mask'", "no field \"label\"" },
}

local READS = {
  { "return t[0]", "not indexed with []", "t:get", "got [0]" },
  { "return t[1][2]", "not indexed with []", "got [1]" },
  { "return t[{ 0, 1 }]", "not indexed with []", "a table" },
  { "return t.numel", "no field \"numel\"", "t.size" },
  { "return t:permute(1, 0)", "no field \"permute\"", "t:permute_dims" },
  { "return t:cast 'int8'", "no field \"cast\"", "t:astype" },
  { "return t:totable()", "no field \"totable\"", "t:tolist" },
  { "return t.T", "no field \"T\"", "t:permute_dims()" },
  { "return t.length", "no field \"length\"", "t.size" },
  { "local _ = t:item()", "item: expected a tensor of one element, got one of 6" },
  { "return t:clone()", "no field \"clone\"", "t:copy" },
  { "return t:numpy()", "no field \"numpy\"", "moonferry.python" },
  { "return t:cpu()", "no field \"cpu\"", "t:to \"cpu\"" },
  { "return t.shap", "no field \"shap\"", "t.shape" },
  { "return t:reshap(6)", "no field \"reshap\"", "t:reshape" },
  { "return t:bradcast_to(6)", "no field \"bradcast_to\"", "t:broadcast_to" },
  { "return t.wholly_unlike", "no field \"wholly_unlike\"" },
}

-- Tables with holes, which Lua takes to end at one of them, and indices, which count from 1 in a list.
local LISTS = {
  { "local _ = mf.tensor { 1, nil, 3 }", "value[2]", "got nil", "holes" },
  { "local _ = mf.tensor { { 1, 2 }, { 1, 2, nil, 4 } }", "value[2]" },
  { "local _ = mf.tensor { x = 1 }", "counts from 1", "\"x\"" },
  { "local _ = mf.zeros { [1] = 2, [3] = 3 }", "shape[2]", "got nil", "holes" },
  { "local _ = t:permute_dims { [1] = 0, [3] = 1 }", "axes[2]", "got nil", "holes" },
  { "local _ = mf.zeros { 2, -1 }", "shape[2] is -1" },
  { "local _ = t:broadcast_to { 4, 3 }", "shape[1] is 4" },
  { "local _ = t:permute_dims(0, 0)", "axes[2] is 0" },
  { "local _ = mf.zeros { 2.5 }", "shape[1]: expected an integer, got 2.5" },
  { "local _ = mf.zeros(0 / 0)", "expected an integer, got " },
  { "local _ = mf.zeros(2 ^ 60)", "of at most 2^53" },
}

local DTYPES = {
  { "local _ = mf.zeros(2, 'int23')", "no library has \"int23\"", "did you mean \"int32\"?" },
  { "local _ = mf.zeros(2, 'float33')", "no library has \"float33\"", "did you mean \"float32\"?" },
  { "local _ = t:astype 'uint61'", "no library has \"uint61\"", "did you mean \"uint16\"?" },
  { "local _ = mf.zeros(2, 'flaot32')", "flaot32", "did you mean \"float32\"?" },
  { "local _ = mf.zeros(2, 'float')", "\"float32\"?" },
  { "local _ = mf.zeros(2, 'double')", "\"float64\"?" },
  { "local _ = mf.zeros(2, 'f4')", "\"float32\"?" },
  { "local _ = mf.zeros(2, 'Float32')", "\"float32\"?" },
  { "local _ = mf.zeros(2, 'wholly_unlike')", "wholly_unlike" },
}

local ARRAYS = {
  { "local _ = mf.wrap(ffi.new 'float[4]', { 400 })", "bytes 0 to 1600", "of 16 bytes" },
  { "local _ = mf.wrap(ffi.new('float[?]', 4), 5)", "bytes 0 to 20", "of 16 bytes" },
  { "local _ = mf.wrap(ffi.new 'double[4]', 4)", "holds double", "float64", "got float32" },
  { "local _ = mf.wrap(ffi.new 'float[2][2]', { 2, 2 }, 'int32')", "holds float", "float32", "got int32" },
  { "local _ = mf.wrap(ffi.new 'int[4]', 4)", "holds int", "int32", "got float32" },
  { "local _ = mf.wrap(ffi.new 'const double[4]', 4)", "holds double" },
  { "local _ = mf.wrap(ffi.new 'float[4]', 2, nil, { strides = { 4 } })", "bytes 0 to 20" },
  { "local _ = mf.wrap(ffi.new 'float[4]', 2, nil, { strides = { -1 } })", "bytes -4 to 4" },
  { "local _ = mf.wrap(ffi.new 'float[4]', 4, nil, { byte_offset = 4 })", "bytes 4 to 20" },
  { "local _ = mf.wrap(ffi.new 'uint8_t[4]', 9, 'int4')", "bytes 0 to 5", "of 4 bytes" },
}

-- What is not a tensor, or not any more.
local NO_TENSORS = {
  { "local u = t:copy() u:close() local _ = u:get(0, 0)", "get: tensor closed", "t:close()", "s:keep(t)" },
  { "local u mf.scope(function() u = t:copy() end) return u.shape", "shape: tensor closed", "mf.scope", "s:keep(t)" },
  { "local u = t:copy() u:close() u.shape = 1", "tensor closed", "s:keep(t)" },
  { "local u = t:copy() u:close() local _ = t:equal(u)", "tensor closed", "s:keep(t)" },
  { "local _ = t.get(0, 0)", "get: expected a tensor, got 0", "with a colon", "t:get(" },
  { "t.fill(7)", "fill: expected a tensor, got 7", "t:fill(" },
  { "local _ = t.tolist()", "tolist: expected a tensor, got nil", "t:tolist(" },
  { "local _ = t:equal(7)", "equal: other: expected a tensor, got 7" },
  { "local _ = t:equal()", "equal: other: expected a tensor, got nil" },
  { "local _ = t:copy { 1, 2 }", "copy: src: expected a tensor, got a table", "mf.tensor makes one of a table" },
  { "t.copy()", "copy: expected a tensor, got nil", "t:copy(" },
}

local MODULE = {
  { "local _ = mf.array { 1 }", "moonferry has no \"array\"", "mf.tensor" },
  { "local _ = mf.arange(3)", "no \"arange\"", "mf.tensor of a table" },
  { "local _ = mf.zeroes(3)", "no \"zeroes\"", "mf.zeros" },
  { "local _ = mf.from_numpy(3)", "no \"from_numpy\"", "moonferry.python" },
  { "local _ = mf.frombuffer(3)", "no \"frombuffer\"", "mf.wrap" },
  { "local _ = mf.float32", "no \"float32\"", "the name" },
  { "local _ = mf.equal(t, t)", "no \"equal\"", "t:equal" },
  { "local _ = mf.wholly_unlike", "no \"wholly_unlike\"" },
  { "local _ = mf[1]", "moonferry has no 1" },
}

local OPERATORS = {
  { "local _ = t + 1", "no arithmetic", "t:rows()", "moonferry.python" },
  { "local _ = 2 * t", "no arithmetic" },
  { "local _ = t - t", "no arithmetic" },
  { "local _ = t / 2", "no arithmetic" },
  { "local _ = t % 2", "no arithmetic" },
  { "local _ = t ^ 2", "no arithmetic" },
  { "local _ = -t", "no arithmetic" },
  { "local _ = t < t", "no order" },
  { "local _ = t <= t", "no order" },
  { "local _ = 'a ' .. t", "tostring(t)" },
  { "local _ = t == mf.zeros(2)", "not compared with ==", "t:equal(u)", "rawequal(t, u)" },
  { "local _ = t ~= mf.zeros(2)", "not compared with ==", "t:equal(u)" },
  { "local u = mf.zeros(2) u:close() local _ = t == u", "not compared with ==" },
  { "local _ = mf.guard(t) == mf.guard(t)", "not compared with ==", "g:get" },
  { "local _ = t(0, 1)", "not called", "t:get" },
}

-- Coordinates, axes and extents: Lua's lists count from 1, coordinates and axes from 0.
local NUMBERS = {
  { "local _ = t:get(2, 0)", "get: coordinate 0 is 2", "0 ... 1" },
  { "local _ = t:get(0, -4)", "get: coordinate 1 is -4", "0 ... 2" },
  { "local _ = t:get(0)", "get: expected 2 coordinates, got 1" },
  { "local _ = t:get(0, 0, 0)", "get: expected 2 coordinates, got 3" },
  { "local _ = t:get(0, 0.5)", "coordinate", "0.5" },
  { "local _ = t:get(0, 'x')", "coordinate", "\"x\"" },
  { "t:put(0, 0, 2 ^ 40)", "put: dtype int32 expects an integer in -2147483648 ... 2147483647" },
  { "t:put(0, 0, 0.5)", "put: dtype int32 expects an integer", "0.5" },
  { "t:put(0, 0, 'x')", "put: dtype int32 expects", "\"x\"" },
  { "t:put(0, 0)", "put: expected 2 coordinates and a value, got 2 arguments" },
  { "t:fill 'x'", "fill", "\"x\"" },
  { "t:fill(2 ^ 40)", "fill", "int32" },
  { "t:as_readonly():fill(1)", "read-only", "a copy" },
  { "t:copy(mf.zeros({ 4 }, 'int32'))", "copy: ", "src" },
  { "local _ = t:reshape(4)", "reshape: the new shape holds 4 elements; 6 expected" },
  { "local _ = t:reshape(-1, -1)", "reshape: shape[2] is -1" },
  { "local _ = t:permute_dims(1, 0):reshape(6)", "reshape", "copy()" },
  { "local _ = t:squeeze(0)", "squeeze: axis 0 has extent 2; 1 expected" },
  { "local _ = t:expand_dims(5)", "expand_dims: axis is 5", "-3 to 2" },
  { "local _ = t:diagonal(0, 0, 0)", "diagonal: axes" },
  { "local _ = t:reinterpret 'complex128'", "reinterpret", "128 bits" },
  { "local _ = t:to 'gpu'", "to: device", "\"gpu\"", "\"cuda:0\"" },
  { "local _ = t:to 'float32'", "to: device", "\"float32\"" },
  { "local _ = mf.tensor { { 1, 2 }, { 3 } }", "value[2]: expected 2 entries, got 1" },
  { "local _ = mf.tensor 'abc'", "tensor", "\"abc\"" },
  { "local _ = mf.zeros()", "shape: expected a list of integers or one integer, got nil" },
  { "local _ = mf.zeros(2, 3)", "dtype: expected a name such as \"float32\", got 3" },
  { "local _ = mf.zeros(2, { device = 'cpu' })", "dtype: expected a name", "options are the argument after it" },
  { "local _ = mf.zeros(2, 'int8', 'cuda')", "options: expected a table such as { device = \"cuda\" }, got \"cuda\"" },
  { "local _ = t:to_dlpack 'cuda'", "to_dlpack: options: expected a table such as { device = \"cuda\" }" },
  { "local _ = mf.tensor { true, false }", "expects a number, got true", "\"bool\" is the dtype" },
  { "local _ = t:permute_dims(0, 'x')", "permute_dims: axes[2]: expected an integer, got \"x\"" },
  { "local _ = mf.from_dlpack {}", "from_dlpack: expected a DLManagedTensorVersioned *", "a table" },
  { "local _ = mf.from_dlpack(1)", "from_dlpack", "got 1" },
}

local function run(typed)
  local chunk = assert(loadstring(typed, "=specs/lua/mistakes_spec.lua"))
  local t = mf.tensor({ { 1, 2, 3 }, { 4, 5, 6 } }, "int32")
  local before = tostring(t)
  setfenv(chunk, setmetatable({ mf = mf, ffi = ffi, t = t }, { __index = _G }))
  local ok, message = pcall(chunk)
  assert.are.equal(before, tostring(t), "the tensor has changed")
  t:close()
  return ok, message
end

local function each_is_refused(cases)
  for _, case in ipairs(cases) do
    it(("names what is wrong with `%s`"):format(case[1]), function()
      local ok, message = run(case[1])
      assert.is_false(ok, "no error")
      assert.is_truthy(message:match("^specs/lua/mistakes_spec.lua:1: "), message)
      for i = 2, #case do
        assert.is_truthy(message:find(case[i], 1, true), ("%q does not contain %q"):format(message, case[i]))
      end
    end)
  end
end

describe("assignment to a tensor", function()
  after_each(helper.nothing_left)
  each_is_refused(ASSIGNMENTS)
end)

describe("a name of the module", function()
  after_each(helper.nothing_left)
  each_is_refused(MODULE)
end)

describe("an operator", function()
  after_each(helper.nothing_left)
  each_is_refused(OPERATORS)

  it("== of a tensor with itself or with what is no tensor compares the objects, as of every table", function()
    local t, u = mf.zeros(2), mf.zeros(2)
    local guarded = mf.guard(t)
    assert.is_true(t == t and t ~= nil and t ~= 0 and t ~= "t" and t ~= {} and t ~= guarded)
    assert.is_true(t ~= setmetatable({}, {}) and t ~= ffi.new "int[1]" and guarded == guarded and guarded ~= nil)
    assert.is_true(not rawequal(t, u) and t:equal(u))
    t:close()
    u:close()
    assert.is_true(t == t and t ~= nil)
  end)

  it("== raises in a compiled loop, too, and a tensor is a key of tables as before", function()
    local t, u = mf.zeros(2), mf.zeros(2)
    local by_tensor, counted = { [t] = 1, [u] = 2 }, 0
    for _ = 1, 300 do
      counted = counted + ((t == t and t ~= nil) and by_tensor[t] or 0)
    end
    assert.are.equal(300, counted)
    local ok, message = pcall(function()
      for i = 1, 300 do
        counted = counted + ((i < 290 and t or u) == t and 1 or 0)
      end
    end)
    assert.is_false(ok)
    assert.are.equal(589, counted)
    assert.is_truthy(message:find("rawequal", 1, true))
    t:close()
    u:close()
  end)
end)

describe("a number or another argument", function()
  after_each(helper.nothing_left)
  each_is_refused(NUMBERS)
end)

describe("a dtype's name", function()
  after_each(helper.nothing_left)
  each_is_refused(DTYPES)

  it("is that of a tensor that there was, whatever its width", function()
    local like, out = ffi.new "DLTensor", ffi.new "mf_tensor *[1]"
    local shape = ffi.new("int64_t[1]", 2)
    like.ndim, like.shape, like.dtype.code, like.dtype.bits, like.dtype.lanes = 1, shape, 0, 19, 1
    assert.are.equal(0, helper.C.mf_tensor_create(like, 0, out, nil))
    local t = mf.from_handle(out[0])
    local u = mf.empty(2, t.dtype)
    assert.are.equal("int19", u.dtype)
    t:close()
    u:close()
  end)
end)

describe("what is used as a tensor", function()
  after_each(helper.nothing_left)
  each_is_refused(NO_TENSORS)

  it("is no method's self where it is another argument", function()
    local _, message = run "local _ = t:equal(7)"
    assert.is_nil(message:find("colon", 1, true), message)
  end)
end)

describe("a list with a hole or a bad entry", function()
  after_each(helper.nothing_left)
  each_is_refused(LISTS)
end)

describe("an array that is wrapped", function()
  after_each(helper.nothing_left)
  each_is_refused(ARRAYS)

  it("is taken where its elements are there and can be such", function()
    for _, case in ipairs {
      { "float[4]", { 2, 2 } }, { "float[2][2]", 4 }, { "float[0]", 0 }, { "uint8_t[16]", 4, "float32" },
      { "char[2]", 4, "int4" }, { "uint16_t[3]", 3, "bfloat16" }, { "int[3]", 3, "uint32" },
      { "int64_t[1]", 1, "int64" }, { "long[2]", 2, "int64" }, { "complex float[1]", 1, "complex64" },
      { "bool[4]", 4, "bool" },
      { "struct { float x, y; }[2]", 4 }, { "float[4]", { 0, 1000 } },
    } do
      local t = mf.wrap(ffi.new(case[1]), case[2], case[3])
      assert.are.equal(case[3] or "float32", t.dtype)
      t:close()
    end
    local four = ffi.new "float[4]"
    mf.wrap(ffi.cast("double *", four), 2, "float64", { owner = four }):close()
    mf.wrap(four, 4, "float32", { strides = { -1 }, byte_offset = 12 }):close()
  end)
end)

describe("reading what a tensor does not have", function()
  after_each(helper.nothing_left)
  each_is_refused(READS)

  it("suggests nothing where nothing is near", function()
    local _, message = run "return t.wholly_unlike"
    assert.is_nil(message:find("t.", 1, true) or message:find("t:", 1, true), message)
  end)

  it("is told by #, pairs and ipairs where this LuaJIT asks", function()
    local t = mf.zeros({ 2, 3 })
    local meta = getmetatable(t)
    helper.refuses("t.size", meta.__len, t)
    helper.refuses("t:rows()", meta.__pairs, t)
    helper.refuses("t:rows()", meta.__ipairs, t)
  end)
end)
