-- NumPy's .npy files: a tensor to a file and back, without Python.
--
-- Responsible for: the format's versions 1.0 to 3.0 on reading, 1.0 on writing. Invariant: a file that is not as the
-- format says gives `nil, message`, and no tensor; nothing of it is run as code. Must not know: devices' streams.
-- Source: NumPy's documentation, numpy.lib.format.
local ffi = require "ffi"
local create = require "moonferry.create"
local errors = require "moonferry.errors"
local tensor = require "moonferry.tensor"

local misuse, show = errors.misuse, errors.show

local npy = {}

local MAGIC, ARCHIVE = "\147NUMPY", "PK\3\4"
local CHUNK, ALIGNMENT, LONGEST_HEADER, LARGEST = 2 ^ 20, 64, 2 ^ 20, 2 ^ 62
local NATIVE = ffi.abi "le" and "<" or ">"

-- What the format calls a dtype, behind the sign of the byte order, and back.
local CODES = {
  bool = "b1", int8 = "i1", int16 = "i2", int32 = "i4", int64 = "i8", uint8 = "u1", uint16 = "u2", uint32 = "u4",
  uint64 = "u8", float16 = "f2", float32 = "f4", float64 = "f8", complex64 = "c8", complex128 = "c16",
}
local NAMES = {}
for name, code in pairs(CODES) do
  NAMES[code] = name
end

-- C would take a path to end at its first NUL, and write to another file.
local function check_path(path, verb, advice)
  if type(path) ~= "string" then
    misuse("%s: path: expected a string, got %s%s", verb, show(path), advice)
  elseif path:find "%z" then
    misuse("%s: path: expected a path without a NUL, got %s", verb, show(path))
  end
end

local function header_of(t)
  local code = CODES[t.dtype]
  if not code then
    misuse("save: NumPy's format has no dtype %s; t:astype or t:reinterpret gives one that it has", t.dtype)
  end
  local extents = {}
  for i, extent in ipairs(t.shape) do
    extents[i] = ("%.0f,"):format(extent)
  end
  local order = code:match("%d+$") == "1" and "|" or NATIVE
  local text = ("{'descr': '%s%s', 'fortran_order': False, 'shape': (%s), }"):format(order, code,
    table.concat(extents, " "))
  local before = #MAGIC + 4
  text = text .. (" "):rep(-(before + #text + 1) % ALIGNMENT) .. "\n"
  return MAGIC .. "\1\0" .. string.char(#text % 256, math.floor(#text / 256)) .. text
end

local function write_elements(file, t)
  local bytes, left = ffi.cast("const char *", t:ptr()), t.nbytes
  while left > 0 do
    local size = math.min(left, CHUNK)
    local ok, message = file:write(ffi.string(bytes, size))
    if not ok then
      return nil, message
    end
    bytes, left = bytes + size, left - size
  end
  return true
end

-- A compact tensor on the host with these elements, an object of its own.
local function compact_on_host(t)
  local host, message, code = t:to "cpu"
  if not host or host.is_contiguous then
    return host, message, code
  end
  return tensor.closing(host, host.copy)
end

--- Writes a tensor to a file in NumPy's format, which numpy.load reads. A GPU's memory is copied to the host once.
---@param path string
---@param t moonferry.Tensor
---@return true?, string? message, number? code
function npy.save(path, t)
  check_path(path, "save", "; the path comes first")
  tensor.handle_for("save", t)
  local header = header_of(t)
  local host, message, code = compact_on_host(t)
  if not host then
    return nil, message, code
  end
  local file, why = io.open(path, "wb")
  if not file then
    host:close()
    return nil, "save: " .. why
  end
  local ok
  ok, why = file:write(header)
  if ok and host.size > 0 then
    ok, why = write_elements(file, host)
  end
  host:close()
  local closed, late = file:close()
  if not (ok and closed) then
    return nil, ("save: %s: %s"):format(path, tostring(why or late))
  end
  return true
end

-- So many bytes; fewer where the file ends, nil and why not where the system cannot read it.
local function read(file, count)
  local part, failure = file:read(count)
  if failure then
    return nil, (failure:gsub("^.*: ", ""))
  end
  return part or ""
end

-- The first eight bytes, or nil and what is wrong.
local function read_magic(file)
  local head, failure = read(file, 8)
  if not head then
    return nil, failure
  elseif head:sub(1, 4) == ARCHIVE then
    return nil, "it is an archive, such as an .npz file; unpack the .npy files that are in it"
  elseif #head < 8 or head:sub(1, 6) ~= MAGIC then
    return nil, "it does not begin as NumPy's files do"
  elseif not ("\1\2\3"):find(head:sub(7, 7), 1, true) then
    return nil, ("its format version is %d; expected: 1, 2 or 3"):format(head:byte(7))
  end
  return head
end

-- The header as text, or nil and what is wrong.
local function read_header(file)
  local head, why = read_magic(file)
  if not head then
    return nil, why
  end
  local count = head:byte(7) == 1 and 2 or 4
  local digits
  digits, why = read(file, count)
  if not digits or #digits < count then
    return nil, why or "it ends before its header"
  end
  local size = 0
  for i = count, 1, -1 do
    size = size * 256 + digits:byte(i)
  end
  local text = ""
  if size > 0 and size <= LONGEST_HEADER then
    text, why = read(file, size)
  end
  if not text or #text < math.max(size, 1) then
    return nil, why or ("its header should have %.0f bytes"):format(size)
  end
  return text
end

-- The digits of each extent in a tuple of Python's; nil where it is none.
local function extents_of(inside)
  local extents, at = {}, 1
  while inside:find("%S", at) do
    local _, last, digits, comma = inside:find("^%s*(%d+)L?%s*(,?)", at)
    if not last or comma == "" and (#extents == 0 or inside:find("%S", last + 1)) then
      return nil
    end
    extents[#extents + 1], at = digits, last + 1
  end
  return extents
end

-- What the header says: a table in Python's notation of three entries, of which nothing is evaluated.
local function described(text)
  local descr = text:match("'descr'%s*:%s*'([^']*)'")
  local fortran = text:match("'fortran_order'%s*:%s*(%a+)")
  local extents = extents_of(text:match("'shape'%s*:%s*%(([%d%sL,]*)%)") or "none")
  if not descr then
    return nil, "its header names no dtype: its elements are records, or it is not as NumPy writes it"
  elseif fortran ~= "True" and fortran ~= "False" or not extents then
    local said = text:match("'shape'%s*:%s*(%b())") or "nothing"
    return nil, ("its header does not say what shape and fortran_order are: shape is %s"):format(said)
  end
  local shape = {}
  for _, digits in ipairs(extents) do
    shape[#shape + 1] = tonumber(digits)
    if shape[#shape] >= 2 ^ 53 then
      return nil, ("an extent of its shape is %s"):format(digits)
    end
  end
  local order, name = descr:sub(1, 1), NAMES[descr:sub(2)]
  if not name or not order:find "^[<>|=]" then
    return nil, ("its elements are '%s', which no tensor holds"):format(descr)
  elseif #shape > 64 then
    return nil, ("it has %d axes; at most 64 are possible"):format(#shape)
  end
  local swapped = (order == "<" or order == ">") and order ~= NATIVE and descr:sub(3) ~= "1"
  return { name = name, shape = shape, fortran = fortran == "True", swapped = swapped }
end

local function too_early(missing)
  return ("it ends %.0f byte%s too early"):format(missing, missing == 1 and "" or "s")
end

-- Whether the file has all elements, asked before there is memory for them; true where a file cannot tell its length.
local function has_all(file, what)
  local size = tonumber(CODES[what.name]:match "%d+$")
  local reach = size
  for _, extent in ipairs(what.shape) do
    size, reach = size * extent, reach * math.max(extent, 1)
  end
  local here = file:seek()
  local last = here and file:seek "end"
  if last and file:seek("set", here) and last - here < size then
    return nil, too_early(size - (last - here))
  elseif reach > LARGEST then -- what has no elements has strides, too
    return nil, "no memory holds its shape"
  end
  return true
end

local function read_elements(file, t)
  local bytes, left = ffi.cast("char *", t:ptr()), t.nbytes
  while left > 0 do
    local part, why = read(file, math.min(left, CHUNK))
    if not part or part == "" then
      return nil, why or too_early(left)
    end
    ffi.copy(bytes, part, #part)
    bytes, left = bytes + #part, left - #part
  end
  return true
end

-- Turns the bytes of each number round, in place. A complex number is two.
local function swap(t, name)
  local bytes, size = ffi.cast("uint8_t *", t:ptr()), t.nbytes / t.size / (name:match "^complex" and 2 or 1)
  for first = 0, t.nbytes - 1, size do
    for i = 0, size / 2 - 1 do
      local a, b = first + i, first + size - 1 - i
      bytes[a], bytes[b] = bytes[b], bytes[a]
    end
  end
end

local function reversed(list)
  local turned = {}
  for i = 1, #list do
    turned[i] = list[#list + 1 - i]
  end
  return turned
end

local function fill(file, t, what)
  local ok, why = true, nil
  if t.size > 0 then
    ok, why = read_elements(file, t)
  end
  if ok and what.swapped and t.size > 0 then
    swap(t, what.name)
  end
  return ok, why
end

local function load_from(file)
  local text, why = read_header(file)
  local what = nil
  if text then
    what, why = described(text)
  end
  local whole
  if what then
    whole, why = has_all(file, what)
  end
  if not whole then
    return nil, why
  end
  local t, message, code = create.empty(what.fortran and reversed(what.shape) or what.shape, what.name)
  if not t then
    return nil, message, code
  end
  local ok
  ok, why = fill(file, t, what)
  if not ok then
    t:close()
    return nil, why
  elseif not what.fortran or #what.shape < 2 then
    return t
  end
  return tensor.closing(t, t.permute_dims)
end

--- Reads a file in NumPy's format into a new tensor on the host. Fortran order is kept, as strides; a foreign byte
--- order is converted. Of a file with Python objects or records, and of one that is none of NumPy's, it returns nil and
--- what is wrong with it.
---@param path string
---@return moonferry.Tensor?, string? message, number? code
function npy.load(path)
  check_path(path, "load", "")
  local file, why = io.open(path, "rb")
  if not file then
    return nil, "load: " .. why
  end
  local ok, t, message, code = pcall(load_from, file)
  file:close()
  if not ok then
    error(t, 0)
  elseif not t then
    return nil, ("load: %s: %s"):format(path, message), code
  end
  return t
end

return npy
