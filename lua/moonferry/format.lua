-- How a tensor is shown: a line that describes it, then its values as NumPy shows them.
--
-- Invariant: never fails for an open tensor; what cannot be read is described only. Must not know: memory.
local ffi = require "ffi"
local C = require "moonferry.lib"
local device = require "moonferry.device"
local errors = require "moonferry.errors"
local numbers = require "moonferry.numbers"
local tensor = require "moonferry.tensor"

local new_scalar = ffi.typeof "mf_scalar"

local THRESHOLD = 1000 -- more elements than this are summarised
local EDGE = 3         -- elements shown at each end of a summarised axis

local ELLIPSIS = "..."

local function header(t)
  local line = ("mf.tensor<%s[%s] %s"):format(t.dtype, table.concat(t.shape, ","), t.device)
  if not t.is_contiguous then
    line = line .. " strides=[" .. table.concat(t.strides, ",") .. "]"
  end
  if t.readonly then
    line = line .. " readonly"
  end
  return line .. ">"
end

local function real(value)
  if value == math.floor(value) and math.abs(value) < 1e8 then
    return ("%.0f."):format(value)
  elseif value ~= value then
    return "nan"
  end
  local text = ("%.5g"):format(value)
  return text:find "^-?%d+$" and text .. "." or text -- as the whole number that it is rounded to
end

local function show(value, kind)
  if kind == "complex" then
    local imag = real(value.im)
    return real(value.re) .. (imag:sub(1, 1) == "-" and "" or "+") .. imag .. "j"
  elseif kind == "float" then
    return real(value)
  elseif type(value) == "cdata" then
    return (tostring(value):gsub("U?LL$", ""))
  elseif type(value) == "number" then
    return ("%.0f"):format(value)
  end
  return tostring(value)
end

-- The coordinates of one axis that are shown; false stands for those left out.
local function shown(extent, summarise)
  local list, cut = {}, summarise and extent > 2 * EDGE
  for i = 0, (cut and EDGE or extent) - 1 do
    list[i + 1] = i
  end
  if cut then
    list[EDGE + 1] = false
    for i = extent - EDGE, extent - 1 do
      list[#list + 1] = i
    end
  end
  return list
end

local function texts(state, axis)
  local t = state.tensor
  if axis > #state.shape then
    local text = show(t:get(unpack(state.at, 1, axis - 1)), state.kind)
    state.width = math.max(state.width, #text)
    return text
  end
  local list = {}
  for i, coordinate in ipairs(shown(state.shape[axis], state.summarise)) do
    state.at[axis] = coordinate
    list[i] = coordinate and texts(state, axis + 1) or ELLIPSIS
  end
  return list
end

local function pad(text, width)
  return text == ELLIPSIS and text or (" "):rep(width - #text) .. text
end

local function join(list, width, depth, ndim)
  if type(list) ~= "table" then
    return pad(list, width)
  end
  local parts = {}
  for i, item in ipairs(list) do
    parts[i] = type(item) == "table" and join(item, width, depth + 1, ndim) or pad(item, width)
  end
  local between = depth == ndim and ", " or "," .. ("\n"):rep(ndim - depth) .. (" "):rep(depth)
  return "[" .. table.concat(parts, between) .. "]"
end

local function host_values(t)
  local shape = t.shape
  local state = {
    tensor = t, shape = shape, at = {}, width = 0, kind = tensor.info(t).kind, summarise = t.size > THRESHOLD,
  }
  return join(texts(state, 1), state.width, 1, #shape)
end

-- Whether the elements can be read, as the first one tells: their dtype, and their memory at this time.
local function is_readable(t)
  if t.size == 0 then
    return true
  end
  local err = errors.place()
  if not errors.passed(C.mf_tensor_get(t._handle, numbers.int64s(t.ndim), t.ndim, new_scalar(), err), err) then
    errors.text(err)
    return false
  end
  return true
end

local function values(t)
  if device.is_cpu(t._dl.device.device_type) then
    return host_values(t)
  end
  local host = t:to("cpu")
  return host and tensor.closing(host, host_values)
end

--- The description, and the values where they can be read: a GPU's are copied to the host once, as a whole.
function tensor.meta.__tostring(t)
  local line = header(t)
  if C.mf_tensor_is_valid(t._handle) == 0 then
    return line:sub(1, -2) .. " memory taken back>"
  end
  local text = is_readable(t) and values(t)
  return text and line .. "\n" .. text or line
end
