-- Named fields of interleaved records, such as the vertices of a mesh: each a strided tensor over the same memory.
--
-- Invariant: a field is a view of the bytes that were given, so that it lives, waits and is taken back with them. Must
-- not know: what the fields are for.
local ffi = require "ffi"
local dtype = require "moonferry.dtype"
local create = require "moonferry.create"
local errors = require "moonferry.errors"
local numbers = require "moonferry.numbers"
local tensor = require "moonferry.tensor"
local transfer = require "moonferry.transfer"
local view = require "moonferry.view"

local misuse, show = errors.misuse, errors.show

local fields = {}

local function positive(value, what)
  local n = tonumber(numbers.integer(value, what))
  if n < 0 then
    misuse("%s: expected an integer of at least 0, got %s", what, show(value))
  end
  return n
end

local new_dtype = ffi.typeof "DLDataType"

local function element_nbytes(name, what)
  local parsed = new_dtype()
  dtype.parse(name, parsed)
  local bits = parsed.bits * parsed.lanes
  if bits % 8 ~= 0 then
    misuse("%s: %s is narrower than a byte", what, name)
  end
  return bits / 8
end

-- A key that nobody reads is a slip: a field would be left out, or be somewhere else.
local function check_keys(list, allowed, count, what, expected)
  for key in pairs(list) do
    local is_place = type(key) == "number" and key >= 1 and key <= count and key % 1 == 0
    if not is_place and not allowed[key] then
      misuse("%s: expected %s, got the key %s", what, expected, show(key))
    end
  end
end

local FIELD_KEYS, NO_KEYS = { offset = true }, {}

-- One field: its name, dtype, how many elements, and at which byte of the record they begin.
local function parse_field(entry, i, after)
  local what = "fields: field " .. i
  if type(entry) ~= "table" then
    misuse("%s: expected { name, dtype, count }, got %s", what, show(entry))
  end
  for place, part in ipairs { "name", "dtype" } do
    if type(entry[place]) ~= "string" then
      misuse("%s: %s: expected a string, got %s", what, part, show(entry[place]))
    end
  end
  if entry[4] ~= nil then
    misuse("%s: expected { name, dtype, count }, got a fourth entry, %s; offset = %s gives it a place", what,
      show(entry[4]), show(entry[4]))
  end
  check_keys(entry, FIELD_KEYS, 3, what, "{ name, dtype, count, offset = bytes }")
  local size = element_nbytes(entry[2], what)
  local offset = entry.offset and positive(entry.offset, what .. ": offset") or math.ceil(after / size) * size
  if offset % size ~= 0 then
    misuse("%s: offset: expected a multiple of %d, the size of %s, got %d", what, size, entry[2], offset)
  end
  return {
    name = entry[1], dtype = entry[2], size = size, offset = offset,
    count = positive(entry[3] or 1, what .. ": count"), flat = entry[3] == nil,
  }
end

--- The layout that a list of fields describes: in the order of the list, each at the next byte that its dtype may stand
--- at, as a C compiler would place it, or at its own `offset`. The record ends at a multiple of its largest element.
---@param list { [1]: string, [2]: string, [3]: number?, offset: number? }[] name, dtype, count
---@param stride? number bytes from one record to the next
---@return table[] fields, number stride
function fields.layout(list, stride)
  if type(list) ~= "table" or #list == 0 then
    misuse("fields: expected a list of { name, dtype, count }, got %s", show(list))
  end
  local parsed, after, largest, known, count = {}, 0, 1, {}, table.maxn(list)
  check_keys(list, NO_KEYS, count, "fields", "a list of { name, dtype, count }")
  for i = 1, count do -- also behind a hole, which is no field
    local f = parse_field(list[i], i, after)
    if known[f.name] then
      misuse("fields: field %d: the name %q is field %d's", i, f.name, known[f.name])
    end
    parsed[i], known[f.name] = f, i
    after, largest = math.max(after, f.offset + f.size * f.count), math.max(largest, f.size)
  end
  local least = math.ceil(after / largest) * largest
  local given = stride and positive(stride, "fields: stride") or least
  if given < after or given % largest ~= 0 then
    misuse("fields: stride: expected a multiple of %d of at least %d, got %d", largest, after, given)
  end
  return parsed, given
end

local function field_of(bytes, f)
  local first, message, code = bytes:view(view.all, { f.offset, f.offset + f.size * f.count })
  if not first then
    return nil, message, code
  end
  local t
  t, message, code = tensor.closing(first, first.reinterpret, f.dtype)
  if not t or not f.flat then
    return t, message, code
  end
  return tensor.closing(t, t.view, view.all, 0)
end

local function split(bytes, parsed)
  local made = {}
  for _, f in ipairs(parsed) do
    local t, message, code = field_of(bytes, f)
    if not t then
      for _, other in pairs(made) do
        other:close()
      end
      return nil, message, code
    end
    made[f.name] = t
  end
  return made
end

-- What a call says that `fields` made, as words of fields' own: a message, or an error, which may be anything. `verb`
-- is the pattern of what it begins with, or of where the call's name stands in an error.
local function renamed(said, verb)
  return type(said) == "string" and said:gsub(verb, "fields: ", 1) or said
end

-- What `fields` returns of a table, or of why there is none.
local function answer(stride, made, message, code)
  if not made then
    return nil, renamed(message, "^%a+: "), code
  end
  return made, stride
end

local OPTIONS = { stride = true, strides = true, owner = true, readonly = true, byte_offset = true, device = true,
  stream = true }

--- Returns a table of strided tensors, one for each named field of records such as vertices, and the bytes from one
--- record to the next. A field with a count has the shape { n, count }, one without has { n }.
---
--- `mf.fields(t, list)` takes a uint8 tensor with one record in each row. `mf.fields(pointer, n, list, options)` takes
--- the options of `mf.wrap`, and `stride`, the bytes from one record to the next.
---
---     local v = mf.fields(pointer, 20000, { { "position", "float32", 2 }, { "color", "uint8", 4 } })
---     v.position:view(mf.all, 0)
---@return table<string, moonferry.Tensor>?, number|string stride_or_message, number? code
function fields.of(base, ...)
  if tensor.is_tensor(base) then
    local list, more = ...
    local shape = base.shape
    if more ~= nil then
      misuse("fields: a tensor has its rows as records; expected a list alone, got %s beside it", show(more))
    end
    if base.ndim ~= 2 or base.dtype ~= "uint8" then
      misuse("fields: expected a uint8 tensor of rank 2, a record in each row, got %s of rank %d",
        base.dtype, base.ndim)
    end
    local parsed, stride = fields.layout(list, shape[2])
    return answer(stride, split(base, parsed))
  end
  local n, list, opts = ...
  if type(base) ~= "cdata" and type(base) ~= "number" then
    misuse("fields: base: expected a uint8 tensor or a pointer, got %s", show(base))
  end
  positive(n, "fields: n, the number of records")
  opts = transfer.options(opts, OPTIONS, "fields")
  local words = {}
  for key, value in pairs(opts) do
    words[key] = value
  end
  words.stride = nil
  local parsed, stride = fields.layout(list, opts.stride)
  local ok, bytes, message, code = pcall(create.wrap, base, { n, stride }, "uint8", words)
  if not ok then
    error(renamed(bytes, "wrap: "), 0)
  elseif not bytes then
    return answer(stride, nil, message, code)
  end
  return answer(stride, tensor.closing(bytes, split, parsed))
end

return fields
