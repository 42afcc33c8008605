-- Dtypes as Lua sees them: one record for each, with its name and the C type of its elements.
--
-- Invariant: a DLDataType has one record per process and module copy, so records compare by identity. C
-- types are written out by name, never parametrised, because LuaJIT specialises on each. Must not know:
-- tensors, memory.
local ffi = require "ffi"
local bit = require "bit"
local C = require "moonferry.lib"
local errors = require "moonferry.errors"
local hint = require "moonferry.hint"
local numbers = require "moonferry.numbers"

local band, floor = bit.band, math.floor
local misuse, show = errors.misuse, errors.show

---@class moonferry.dtype
---@field name string
---@field kind "bool"|"int"|"int64"|"uint64"|"float"|"complex"|"opaque" what its elements are to Lua
---@field plain boolean a C type holds its elements as they are
---@field pointer? ffi.ctype* pointer to an element; raw bits where there is no such C type
---@field constant? ffi.ctype* the same, read-only
---@field read function|false reads an element of a dtype that is no number of Lua's with all bits
---@field padded? ffi.ctype* pointer to an element of a sub-byte dtype that is padded to bytes
---@field lowest? number of an integer dtype
---@field highest? number

local dtype = {}

local C_TYPES = {
  bool = "bool", int8 = "int8_t", int16 = "int16_t", int32 = "int32_t", int64 = "int64_t",
  uint8 = "uint8_t", uint16 = "uint16_t", uint32 = "uint32_t", uint64 = "uint64_t",
  float32 = "float", float64 = "double", complex64 = "complex float", complex128 = "complex double",
}
local RAW = { [8] = "uint8_t", [16] = "uint16_t", [32] = "uint32_t", [64] = "uint64_t" }
local INT, UINT, FLOAT, HANDLE, COMPLEX, BOOL = 0, 1, 2, 3, 5, 6

-- What a slip of the finger was meant to be, and what others call it.
local USUAL = {
  bool = true, int8 = true, int16 = true, int32 = true, int64 = true, uint8 = true, uint16 = true, uint32 = true,
  uint64 = true, float16 = true, bfloat16 = true, float32 = true, float64 = true, complex64 = true, complex128 = true,
  int4 = true, uint4 = true, float8_e4m3fn = true, float8_e5m2 = true, float8_e8m0fnu = true, float4_e2m1fn = true,
}
local ELSEWHERE = {
  float = "float32", single = "float32", double = "float64", half = "float16", int = "int32", long = "int64",
  byte = "uint8", char = "int8", short = "int16", boolean = "bool", complex = "complex128", f2 = "float16",
  f4 = "float32", f8 = "float64", i1 = "int8", i2 = "int16", i4 = "int32", i8 = "int64", u1 = "uint8", u2 = "uint16",
  u4 = "uint32", u8 = "uint64", ["unsigned char"] = "uint8",
}

-- LuaJIT takes a number from memory with the bits that it has there, and keeps values of other types in bits of NaNs:
-- one that no arithmetic gives, such as an integer that is read as a float, would be a table at any address. So its
-- bits are looked at before. (A signalling NaN becomes another one by arithmetic.) `p` points to float or double.
local NAN = 0 / 0
local words_t = ffi.typeof "const int32_t *"
local HIGH = ffi.abi "le" and 1 or 0
local NO_SIGN, INFINITY32, INFINITY64 = 0x7fffffff, 0x7f800000, 0x7ff00000

local function float_at(p, i)
  if band(ffi.cast(words_t, p)[i], NO_SIGN) > INFINITY32 then
    return NAN
  end
  return p[i]
end

local function double_at(p, i)
  if band(ffi.cast(words_t, p)[2 * i + HIGH], NO_SIGN) > INFINITY64 then
    return NAN
  end
  return p[i]
end

local function complex_at(parts, real_at, p, i)
  local q = ffi.cast(parts, p)
  return real_at(q, 2 * i), real_at(q, 2 * i + 1)
end

local complex64, complex128 = ffi.typeof "complex float", ffi.typeof "complex"
local floats, doubles = ffi.typeof "const float *", ffi.typeof "const double *"

-- What reads an element of these dtypes, as C's type has it.
local READ = { float32 = float_at, float64 = double_at }

function READ.complex64(p, i)
  return complex64(complex_at(floats, float_at, p, i))
end

function READ.complex128(p, i)
  return complex128(complex_at(doubles, double_at, p, i))
end

local by_name, by_key = {}, {}
local NAME_NBYTES = 64
local new_dtype, new_name = ffi.typeof "DLDataType[1]", ffi.typeof "char[?]"

local function kind_of(code, bits)
  if code == HANDLE then
    return "opaque"
  elseif code == INT or code == UINT then
    return bits < 64 and "int" or bits > 64 and "opaque" or code == INT and "int64" or "uint64"
  end
  return code == COMPLEX and "complex" or code == BOOL and "bool" or "float"
end

local function new_record(d)
  local text = new_name(NAME_NBYTES)
  C.mf_dtype_format(d, text, NAME_NBYTES, nil) -- a dtype that has come so far has a name
  local code, bits, lanes = d.code, d.bits, d.lanes
  local name = ffi.string(text)
  local record = { name = name, kind = kind_of(code, bits), plain = C_TYPES[name] ~= nil }
  local ctype = C_TYPES[name] or RAW[bits * lanes]
  if ctype then
    record.pointer, record.constant = ffi.typeof(ctype .. " *"), ffi.typeof("const " .. ctype .. " *")
  elseif bits * lanes < 8 then
    record.padded = ffi.typeof("uint8_t *")
  end
  record.read = READ[name] or false
  if record.kind == "int" then
    record.lowest = code == INT and -2 ^ (bits - 1) or 0
    record.highest = code == INT and 2 ^ (bits - 1) - 1 or 2 ^ bits - 1
  end
  return record
end

--- The record of a DLDataType.
---@param d ffi.cdata*
---@return moonferry.dtype
function dtype.of(d)
  local key = d.code + d.bits * 0x100 + d.lanes * 0x10000
  local record = by_key[key]
  if not record then
    record = new_record(d)
    by_key[key] = record
    by_name[record.name] = { d.code, d.bits, d.lanes }
  end
  return record
end

local function meant(name)
  local near = ELSEWHERE[name] or hint.nearest(name, USUAL)
  return near and ("; did you mean \"%s\"?"):format(near) or ""
end

-- Whether a library has such numbers. Another width, int23 or float33, is rather a slip.
local function is_common(d)
  if d.code == INT or d.code == UINT then
    return d.bits <= 8 or d.bits == 16 or d.bits == 32 or d.bits == 64
  end
  return d.code ~= FLOAT or d.bits == 16 or d.bits == 32 or d.bits == 64
end

--- Reads a dtype's name into a DLDataType; nil means float32. What is no dtype's name raises, and so does an integer or
--- a float of a width that no library has, but for the dtype of a tensor that there was.
---@param name? string
---@param into ffi.cdata*
function dtype.parse(name, into)
  name = name == nil and "float32" or name
  local known = by_name[name]
  if not known then
    if type(name) ~= "string" or name:find("%z") then
      misuse("dtype: expected a name such as \"float32\", got %s%s", show(name),
        type(name) == "table" and "; options are the argument after it" or "")
    end
    local parsed, err = new_dtype(), errors.place()
    if not errors.passed(C.mf_dtype_parse(name, parsed[0], err), err) then
      misuse("%s%s", errors.text(err), meant(name))
    elseif not is_common(parsed[0]) then
      misuse("dtype: no library has %s%s", show(name), meant(name))
    end
    known = { parsed[0].code, parsed[0].bits, parsed[0].lanes }
    by_name[name] = known
  end
  into.code, into.bits, into.lanes = known[1], known[2], known[3]
end

local ENCODE = {}

local function is_wide(value)
  return ffi.istype("int64_t", value) or ffi.istype("uint64_t", value)
end

function ENCODE.float(record, value, what)
  if type(value) == "number" then
    return value
  elseif is_wide(value) then
    return tonumber(value)
  end
  misuse("%s: dtype %s expects a number, got %s%s", what, record.name, show(value),
    type(value) == "boolean" and "; \"bool\" is the dtype of true and false" or "")
end

function ENCODE.int(record, value, what)
  local number = is_wide(value) and tonumber(value) or value
  if type(number) ~= "number" or number ~= floor(number) or number < record.lowest or number > record.highest then
    misuse("%s: dtype %s expects an integer in %.0f ... %.0f, got %s", what, record.name, record.lowest,
      record.highest, show(value))
  end
  return number
end

function ENCODE.int64(_, value, what)
  return numbers.integer(value, what)
end

function ENCODE.uint64(record, value, what)
  if ffi.istype("uint64_t", value) then
    return value
  end
  local number = numbers.integer(value, what)
  if number < 0 then
    misuse("%s: dtype %s expects an integer of at least 0, got %s", what, record.name, show(value))
  end
  return number
end

function ENCODE.bool(record, value, what)
  if value == true or value == 1 then
    return true
  elseif value == false or value == 0 then
    return false
  end
  misuse("%s: dtype %s expects true, false, 1 or 0, got %s", what, record.name, show(value))
end

function ENCODE.complex(record, value, what)
  if ffi.istype("complex", value) or ffi.istype("complex float", value) then
    return ffi.new("complex", value.re, value.im)
  elseif type(value) == "number" then
    return ffi.new("complex", value, 0)
  elseif type(value) == "table" and type(value[1]) == "number" and type(value[2]) == "number" then
    return ffi.new("complex", value[1], value[2])
  end
  misuse("%s: dtype %s expects a number, a complex or {re, im}, got %s", what, record.name, show(value))
end

function ENCODE.opaque(record, _, what)
  misuse("%s: dtype %s holds no numbers", what, record.name)
end

--- What to store for the Lua value `value`; one that the dtype cannot hold raises, naming `what`.
---@param record moonferry.dtype
---@param value any
---@param what string
function dtype.encode(record, value, what)
  return ENCODE[record.kind](record, value, what)
end

--- What Lua sees of the element `i` behind a typed pointer.
---@param record moonferry.dtype
---@param p ffi.cdata*
---@param i number|ffi.cdata*
---@return any
function dtype.load(record, p, i)
  local kind = record.kind
  if kind == "float" then
    return record.read(p, i)
  elseif kind == "int64" or kind == "uint64" then
    return numbers.narrow(p[i])
  elseif kind == "complex" then
    return complex128(record.read(p, i))
  end
  return p[i]
end

local SCALAR_KIND = {
  bool = C.MF_KIND_BOOL, int = C.MF_KIND_INT, int64 = C.MF_KIND_INT, uint64 = C.MF_KIND_UINT,
  float = C.MF_KIND_FLOAT, complex = C.MF_KIND_COMPLEX,
}

--- Writes a Lua value to an mf_scalar; one that the dtype cannot hold raises.
---@param record moonferry.dtype
---@param value any
---@param scalar ffi.cdata*
---@param what string
function dtype.to_scalar(record, value, scalar, what)
  local stored, kind = dtype.encode(record, value, what), record.kind
  scalar.kind, scalar.zero, scalar.imag = SCALAR_KIND[kind], 0, 0
  if kind == "float" then
    scalar.f = stored
  elseif kind == "complex" then
    scalar.f, scalar.imag = stored.re, stored.im
  elseif kind == "uint64" then
    scalar.u = stored
  else
    scalar.i = kind == "bool" and (stored and 1 or 0) or stored
  end
end

local scalar_t, FIRST = ffi.typeof "const double *", ffi.offsetof("mf_scalar", "f") / ffi.sizeof "double"

--- The Lua value of an mf_scalar, which is the whole object: a reference to one in an array would not keep the array,
--- and whoever ends with this call keeps nothing either. (So none of the calls below is a tail call.)
---@param scalar ffi.cdata*
function dtype.from_scalar(scalar)
  local kind = scalar.kind
  if kind == C.MF_KIND_FLOAT then
    local real = double_at(ffi.cast(scalar_t, scalar), FIRST)
    return real
  elseif kind == C.MF_KIND_COMPLEX then
    local q = ffi.cast(scalar_t, scalar)
    local re, im = double_at(q, FIRST), double_at(q, FIRST + 1)
    return ffi.new("complex", re, im)
  elseif kind == C.MF_KIND_BOOL then
    return scalar.i ~= 0
  end
  return numbers.narrow(kind == C.MF_KIND_UINT and scalar.u or scalar.i)
end

return dtype
