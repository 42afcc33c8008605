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
  { "t.handle = nil", "handle cannot be set", "t:close()" },
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
  { "return t:sum()", "no field \"sum\"", "t:rows()", "py.import \"numpy\".sum(t)", "moonferry.python" },
  { "return t:matmul(t)", "no field \"matmul\"", "numpy" },
  { "return t:save 'x.npy'", "no field \"save\"", "mf.save(path, t)" },
}

-- Tables with holes, which Lua takes to end at one of them, and indices, which count from 1 in a list.
local LISTS = {
  { "local _ = mf.tensor { 1, nil, 3 }", "value[2]", "got nil", "holes" },
  { "local _ = mf.tensor { { 1, 2 }, { 1, 2, nil, 4 } }", "value[2]" },
  { "local _ = mf.tensor { x = 1 }", "counts from 1", "\"x\"" },
  { "local _ = mf.tensor { [0] = 1, 2, 3 }", "value: expected a list that counts from 1, got the key 0" },
  { "local _ = mf.tensor { { 1, 2 }, { 1, 2, x = 3 } }", "value[2]: expected a list that counts from 1", "\"x\"" },
  { "local _ = mf.tensor { 1, 2, dtype = 'int8' }", "got the key \"dtype\"" },
  { "local _ = mf.tensor { 1, 2, n = 3 }", "got the key \"n\"" },
  { "local _ = mf.tensor { t, t }", "value[1] is a tensor", "t:view(i):copy(u)" },
  { "local _ = mf.tensor(ffi.new 'int[3]')", "expected nested tables, got cdata<int [3]>", "mf.wrap" },
  { "local _ = mf.zeros { 2, 3, dtype = 'int8' }", "shape: ", "got the key \"dtype\"", "arguments after it" },
  { "local _ = mf.zeros { [0] = 2, 3 }", "shape: expected a list that counts from 1, got the key 0" },
  { "local _ = mf.zeros { [1] = 2, [3] = 3 }", "shape[2]", "got nil", "holes" },
  { "local _ = t:permute_dims { [1] = 0, [3] = 1 }", "axes[2]", "got nil", "holes" },
  { "local _ = mf.zeros { 2, -1 }", "shape[2] is -1" },
  { "local _ = t:broadcast_to { 4, 3 }", "shape[1] is 4" },
  { "local _ = t:permute_dims(0, 0)", "axes[2] is 0" },
  { "local _ = mf.zeros { 2.5 }", "shape[1]: expected an integer, got 2.5" },
  { "local _ = mf.zeros(0 / 0)", "expected an integer, got " },
  { "local _ = mf.zeros(2 ^ 60)", "of at most 2^53", "2LL^60" },
  { "local _ = mf.zeros(-2 ^ 53)", "shape[1] is -9007199254740992" },
  { "local _ = t:squeeze(-2 ^ 31)", "squeeze: axis is -2147483648" },
  { "local _ = t:squeeze(2 ^ 31)", "axes[1]: expected an integer of 32 bits, got 2147483648" },
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
  { "local _ = mf.zeros(2, 'float32\\0x')", "dtype: expected a name such as \"float32\"" },
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
  { "local _ = mf.wrap(ffi.cast('float *', 5), 3)", "wrap: pointer is 0x5, which is no address" },
  { "local _ = mf.wrap(t, 3)", "wrap: pointer: expected a pointer", "got a tensor", "t:view" },
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
  { "local _ = t:equal(print)", "equal: other: expected a tensor, got a function" },
  { "local _ = t:equal(coroutine.create(print))", "equal: other: expected a tensor, got a thread" },
  { "local _ = t:equal(io.stdout)", "equal: other: expected a tensor, got a userdata" },
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
  { "local _ = mf.sum(t)", "no \"sum\"", "numpy" },
  { "local _ = mf.load_npy 'x.npy'", "no \"load_npy\"", "mf.load" },
  { "local _ = mf.zeros_like(t)", "no \"zeros_like\"", "mf.zeros(t.shape, t.dtype" },
  { "local _ = mf.stack { t }", "no \"stack\"", "NumPy" },
  { "local _ = mf[1]", "moonferry has no 1" },
  { "mf.thread = 4", "moonferry has no \"thread\" to set", "mf.threads" },
  { "mf[1] = t", "moonferry has no 1 to set" },
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
  { "local _ = t:get(2, 0)", "get: index 2 is out of range for axis 0 of extent 2" },
  { "local _ = t:get(0, -4)", "get: index -4 is out of range for axis 1 of extent 3" },
  { "local _ = t:get(0)", "get: expected 2 coordinates, got 1" },
  { "local _ = t:get(0, 0, 0)", "get: expected 2 coordinates, got 3" },
  { "local _ = t:get(0, 0.5)", "coordinate", "0.5" },
  { "local _ = t:get(0, 'x')", "coordinate", "\"x\"" },
  { "t:put(0, 0, 2 ^ 40)", "put: dtype int32 expects an integer in -2147483648 ... 2147483647" },
  { "t:put(0, 0, 0.5)", "put: dtype int32 expects an integer", "0.5" },
  { "t:put(0, 0, 'x')", "put: dtype int32 expects", "\"x\"" },
  { "t:put(0, 0)", "put: expected 2 coordinates and a value, got 2 arguments" },
  { "t:fill 'x'", "fill", "\"x\"" },
  { "t:fill(('x'):rep(40))", "got \"" .. ("x"):rep(40) .. "\"" },
  { "t:fill(('x'):rep(41))", "got \"" .. ("x"):rep(40) .. "...\"" },
  { "t:fill(2 ^ 40)", "fill", "int32" },
  { "t:as_readonly():fill(1)", "read-only", "a copy" },
  { "t:copy(mf.zeros({ 4 }, 'int32'))", "copy: ", "src" },
  { "local _ = t:reshape(4)", "reshape: the new shape holds 4 elements; 6 expected" },
  { "local _ = t:reshape()", "reshape: the new shape holds 1 element; 6 expected" },
  { "local _ = t:reshape(-1, -1)", "reshape: shape[2] is -1" },
  { "local _ = t:permute_dims(1, 0):reshape(6)", "reshape", "copy()" },
  { "local _ = t:squeeze(0)", "squeeze: axis 0 has extent 2; 1 expected" },
  { "local _ = t:expand_dims(5)", "expand_dims: axis is 5", "-3 to 2" },
  { "local _ = t:diagonal(0, 0, 0)", "diagonal: axes" },
  { "local _ = t:reinterpret 'complex128'", "reinterpret", "128 bits" },
  { "local _ = t:view(mf.all, { 0, 2 }):reinterpret 'int64'", "reinterpret: strides[1] is 3 elements of 32 bits" },
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
  { "local _ = mf.from_dlpack(t)", "from_dlpack", "got a tensor, which needs no import" },
  { "local _ = mf.from_dlpack { 1, 2 }", "from_dlpack", "got a table", "mf.tensor" },
  { "local _ = mf.wrap { 1, 2 }", "wrap: pointer: expected a pointer", "got a table", "mf.tensor" },
  { "local _ = mf.wrap('abc', 3)", "wrap: pointer: expected a pointer", "\"abc\"" },
  { "local _ = t:broadcast_to(3, 3)", "broadcast_to: expected one shape, such as { 4, 3 }, got 2 arguments" },
  { "local _ = t:get(0, 0, 'x', 1)", "get: expected 2 coordinates, got 4" },
  { "local _ = t:view(0, 0, 0)", "view: 3 indices; at most 2, one for each axis" },
  { "local _ = t:astype()", "astype: expected a dtype, got nil" },
  { "local _ = t:astype('int8', { copy = false })", "astype: expected one dtype, and got a table beside it" },
  { "local _ = mf.threads(-5)", "threads: n is -5; 0 to 64 expected" },
  { "local _ = mf.threads(2 ^ 40)", "threads: n: expected an integer of 32 bits, got 1099511627776" },
  { "local _ = mf.device_count 'CUDA'", "device_count: device is \"CUDA\"" },
  { "mf.scope(function(s) s:kep(t) end)", "a scope has no \"kep\"", "s:keep" },
  { "return require 'moonferry.external'.semaphor", "no \"semaphor\"", "use external.semaphore" },
  { "local _ = mf.device_count 'gpu'", "device_count: ", "\"gpu\"", "\"cuda:0\"", "\"rocm:0\"" },
  { "local _ = mf.synchronize 'x'", "synchronize: device is \"x\"; a name such as" },
  { "local _ = mf.complex 'x'", "complex: re: expected a number, got \"x\"" },
  { "local _ = mf.complex(1, false)", "complex: im: expected a number, got false" },
  { "local _ = mf.complex(require('ffi').new 'int *')", "complex: re: expected a number, got cdata<int *>: NULL" },
  { "local _ = mf.complex(1, {})", "complex: im: expected a number, got a table" },
  { "local _ = mf.device_count(3)", "device_count: type: expected a name", "got 3" },
  { "local _ = mf.save(t, 'x.npy')", "save: path: expected a string, got a table", "the path comes first" },
  { "local _ = mf.save 'x.npy'", "save: t: expected a tensor, got nil" },
  { "local _ = mf.load(3)", "load: path: expected a string, got 3" },
}

-- `bytes` is uint8, 2 x 8: two records.
local FIELDS = {
  { "local _ = mf.fields { 1, 2 }", "fields: base: expected a uint8 tensor or a pointer, got a table" },
  { "local _ = mf.fields(3, 3, { { 'a', 'float32' } })", "fields: pointer: expected a pointer", "got 3" },
  { "local _ = mf.fields(eight, 'x', {})", "fields: n, the number of records: expected an integer, got \"x\"" },
  { "local _ = mf.fields(eight, 3, { { 'a', 'float32' } })", "fields: shape: ", "bytes 0 to 12", "of 8 bytes" },
  { "local _ = mf.fields(eight, 2, { { 'a', 'float32' } }, { foo = 3 })", "fields: options", "\"foo\"" },
  { "local _ = mf.fields(t, { { 'a', 'float32' } })", "fields: expected a uint8 tensor of rank 2", "got int32" },
  { "local _ = mf.fields(bytes, {})", "fields: expected a list of { name, dtype, count }" },
  { "local _ = mf.fields(bytes, { a = 'float32' })", "fields: expected a list of { name, dtype, count }" },
  { "local _ = mf.fields(bytes, { 'a' })", "fields: field 1: expected { name, dtype, count }, got \"a\"" },
  { "local _ = mf.fields(bytes, { { 'a' } })", "fields: field 1: dtype: expected a string, got nil" },
  { "local _ = mf.fields(bytes, { { 3, 'int8' } })", "fields: field 1: name: expected a string, got 3" },
  { "local _ = mf.fields(bytes, { { 'a', 'float33' } })", "\"float33\"", "\"float32\"" },
  { "local _ = mf.fields(bytes, { { 'a', 'int8', -1 } })", "fields: field 1: count: ", "at least 0, got -1" },
  { "local _ = mf.fields(bytes, { { 'a', 'int8', 1, 4 } })", "field 1: ", "a fourth entry, 4", "offset = 4" },
  { "local _ = mf.fields(bytes, { { 'a', 'int8' }, { 'a', 'int8' } })", "field 2: the name \"a\" is field 1's" },
  { "local _ = mf.fields(bytes, { { 'a', 'float32', offset = 2 } })", "field 1: offset: ", "multiple of 4", "got 2" },
}

-- `r` is a ring of two slots.
local RINGS = {
  { "r:done() r = nil", "done: no slot is being written; begin one first" },
  { "r:publish() r = nil", "publish: no slot is being written; begin one first" },
  { "r:begin() r:begin()", "begin: a slot is being written; give it back or publish it first" },
  { "r:begin() r:done(3)", "done: fence: expected an mf_fence, got 3" },
  { "r:done(require('ffi').new 'int *')", "done: fence: expected an mf_fence, got cdata<int *>: NULL" },
  { "r:done(nil, false)", "done: use: expected C.MF_READ or C.MF_WRITE, got false" },
  { "r:done(nil, require('ffi').new 'int *')", "done: use: expected C.MF_READ or C.MF_WRITE, got cdata<int *>: NULL" },
  { "r:begin() r:done(nil, 'write')", "done: use: expected C.MF_READ or C.MF_WRITE, got \"write\"" },
  { "r:hold() r = nil", "hold: the reader has no slot; take the latest one first" },
  { "local _ = r:begin 'x'", "begin: seconds: expected a number of at least 0, below 9e9" },
  { "r.done()", "done: expected an open ring, got nil" },
  { "local _ = r:into(3)", "into: convert: expected a function of a tensor, got 3" },
  { "local _ = r:into(newproxy(true))", "into: convert: expected a function of a tensor, got a userdata" },
  { "local _ = r:into {}", "into: convert: expected a function of a tensor, got a table" },
  { "return r.length", "a ring has no field \"length\"" },
  { "return r:pubish()", "a ring has no field \"pubish\"", "r:publish" },
  { "return r.slot", "a ring has no field \"slot\"", "r.slots" },
  { "r.size = 3", "a ring has no field \"size\" that can be set" },
  { "r.slots = 3", "a ring has no field \"slots\" that can be set" },
  { "r.handle = nil", "a ring has no field \"handle\" that can be set" },
  { "local _ = mf.ring({ 2 }, 'float32', 3, { pages = true })", "ring: ", "got a table beside them" },
  { "r:close() r:begin()", "begin: ring closed, by r:close()", "s:keep(r)" },
  { "r:close() r.size = 3", "ring closed" },
  { "local _ = mf.ring({ 2 }, 'float32', 65)", "ring: slots: expected a number from 1 to 64, got 65" },
  { "local _ = mf.ring({ 2 }, 'float32', 'x')", "ring: slots: expected an integer, got \"x\"" },
  { "local _ = mf.ring({ t }, 'int8')", "ring: a list of tensors", "\"int8\"" },
  { "local _ = mf.ring { t, t }", "ring: slots[0] and slots[1] are views of one memory" },
  { "local _ = mf.ring(t)", "ring: expected a shape or a list of tensors, got a tensor", "{ t, u }" },
  { "local _ = mf.ring_from_handle(0)", "ring_from_handle: expected an mf_ring *, got 0" },
}

local GUARDS = {
  { "local _ = mf.guard(t, { readnly = true })", "guard: options: unknown option \"readnly\"" },
  { "local _ = mf.guard(t, { readonly = 'yes' })", "guard: readonly: expected a boolean, got \"yes\"" },
  { "local _ = mf.guard(t, 'readonly')", "guard: options: expected a table, got \"readonly\"" },
  { "return mf.guard(t).size", "a guarded tensor has no \"size\"", "get, put, fill, shape, dtype and ndim" },
  { "return mf.guard(t):ptr()", "a guarded tensor has no \"ptr\"" },
  { "return mf.guard(t)[0]", "a guarded tensor has no 0" },
}

local function run(typed)
  local chunk = assert(loadstring(typed, "=specs/lua/mistakes_spec.lua"))
  local t = mf.tensor({ { 1, 2, 3 }, { 4, 5, 6 } }, "int32")
  local before = tostring(t)
  local r, bytes, eight = mf.ring(2), mf.zeros({ 2, 8 }, "uint8"), ffi.new "uint8_t[8]"
  setfenv(chunk, setmetatable({ mf = mf, ffi = ffi, t = t, r = r, bytes = bytes, eight = eight }, { __index = _G }))
  local ok, message = pcall(chunk)
  assert.are.equal(before, tostring(t), "the tensor has changed")
  t:close()
  r:close()
  bytes:close()
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

describe("a layout of fields", function()
  after_each(helper.nothing_left)
  each_is_refused(FIELDS)
end)

describe("a ring", function()
  after_each(helper.nothing_left)
  each_is_refused(RINGS)

  it("gives a list of its slots, which is the program's", function()
    local r = mf.ring(2)
    local first = r.slots[1]
    assert.is_true(#r.slots == 3 and r.slots == r.slots)
    r.slots[1] = "mine"
    local t, i = r:begin()
    assert.is_true(t == first and i == 1 and tostring(r):find("float32", 1, true) ~= nil)
    helper.refuses("#r.slots", getmetatable(r).__len, r)
    r:close()
  end)
end)

describe("a guarded tensor", function()
  after_each(helper.nothing_left)
  each_is_refused(GUARDS)
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
