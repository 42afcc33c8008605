-- Lua values as a person reads them at the prompt.
--
-- Responsible for: one text for any value, of a size that fits on a screen, tables with their fields, Python's objects
-- by repr. Invariant: it never raises an error and changes nothing, and what __tostring or repr raise is shown in their
-- place. Must not know: how a value came about.
local show = {}

-- Deeper tables, and fields and characters beyond these numbers, are only counted.
show.limits = { depth = 4, fields = 60, text = 4000, width = 100 }

local KEYWORDS = {}
for word in ([[and break do else elseif end false for function goto if in local nil not or repeat return then true
  until while]]):gmatch("%a+") do
  KEYWORDS[word] = true
end

local ESCAPES = { ["\n"] = "\\n", ["\t"] = "\\t", ["\r"] = "\\r", ['"'] = '\\"', ["\\"] = "\\\\" }

-- As many bytes from the beginning of a text as are shown, and how many are left. No character of UTF-8 is parted.
local function beginning(text)
  local most = show.limits.text
  local last = math.min(#text, most)
  while last > most - 3 and text:find("^[\128-\191]", last + 1) do
    last = last - 1
  end
  return text:sub(1, last), #text - last
end

local function cut(text)
  local shown, rest = beginning(text)
  return rest > 0 and ("%s ... (%d more bytes)"):format(shown, rest) or shown
end

local UTF8 = { "^[\194-\223][\128-\191]()", "^[\224-\239][\128-\191][\128-\191]()",
  "^[\240-\244][\128-\191][\128-\191][\128-\191]()" }

-- Bytes that are no ASCII: as they are where they are UTF-8, else escaped.
local function beyond_ascii(text)
  local parts, at = {}, 1
  while at <= #text do
    local behind
    for _, pattern in ipairs(UTF8) do
      behind = behind or text:sub(at, at + 3):match(pattern)
    end
    parts[#parts + 1] = behind and text:sub(at, at + behind - 2) or ("\\%03d"):format(text:byte(at))
    at = at + (behind or 2) - 1
  end
  return table.concat(parts)
end

---A text with what is no UTF-8 in it escaped.
---@param text string
---@return string
function show.utf8(text)
  return (text:gsub("[\128-\255]+", beyond_ascii))
end

---A string as Lua source, with UTF-8 as it is.
---@param text string
---@return string
function show.quoted(text)
  local shown, rest = beginning(text)
  shown = shown:gsub('[%c"\\]', function(c)
    return ESCAPES[c] or ("\\%03d"):format(c:byte())
  end)
  shown = show.utf8(shown)
  return rest > 0 and ('"%s" ... (%d more bytes)'):format(shown, rest) or '"' .. shown .. '"'
end

---Whether a string can be written as a name in Lua.
---@param text any
---@return boolean
function show.is_name(text)
  return type(text) == "string" and text:match("^[%a_][%w_]*$") ~= nil and not KEYWORDS[text]
end

-- The moonferry.python of this process if Python has been used; looking must not start it.
local function python()
  local py = package.loaded["moonferry.python"]
  return type(py) == "table" and rawget(py, "builtins") and py or nil
end

---Whether a value is a Python object; without Python nothing is.
---@param value any
---@return boolean
function show.is_python(value)
  local py = type(value) ~= "string" and python()
  local ok, is = pcall(function()
    return py and py.is(value)
  end)
  return ok and is or false
end

local function by_python(value)
  local ok, text = pcall(function()
    return python().call(python().builtins.repr, { value }) -- repr(builtins) would be the method builtins:repr()
  end)
  return ok and cut(tostring(text)) or ("<repr failed: %s>"):format(tostring(text):match("^[^\n]*"))
end

local function by_lua(value)
  local ok, text = pcall(tostring, value)
  return cut(ok and text or ("<__tostring failed: %s>"):format(tostring(text):match("^[^\n]*")))
end

local function of_function(value)
  local info = debug.getinfo(value, "S")
  if info.what == "C" then
    return tostring(value)
  end
  return ("%s (%s:%d)"):format(tostring(value), info.short_src, info.linedefined)
end

local MOST_SORTED = 10000
local RANKS = { number = 1, string = 2 }

local function before(a, b)
  local x, y = RANKS[type(a)] or 3, RANKS[type(b)] or 3
  if x ~= y then
    return x < y
  elseif x == 3 then
    return by_lua(a) < by_lua(b)
  end
  return a < b
end

-- Those that are no part of the array, and how many there are; of very many only some are looked at.
local function sorted_keys(t, from)
  local keys, count = {}, 0
  for key in next, t do
    if not (type(key) == "number" and key >= 1 and key < from and key % 1 == 0) then
      count = count + 1
      keys[math.min(count, MOST_SORTED)] = key
    end
  end
  table.sort(keys, before)
  return keys, count
end

-- The array part first, then the other fields by key; at most so many.
local function parts_of(t, inner)
  local parts, most = {}, show.limits.fields
  local n = 1
  while rawget(t, n) ~= nil do
    if n <= most then
      parts[n] = inner(rawget(t, n))
    end
    n = n + 1
  end
  local keys, count = sorted_keys(t, n)
  for _, key in ipairs(keys) do
    if #parts < most then
      parts[#parts + 1] = (show.is_name(key) and key or "[" .. inner(key) .. "]") .. " = " .. inner(rawget(t, key))
    end
  end
  local left = n - 1 + count - #parts
  if left > 0 then
    parts[#parts + 1] = ("... (%d more)"):format(left)
  end
  return parts
end

local function joined(parts, indent)
  local size, multiple = 4 + #indent, false
  for _, part in ipairs(parts) do
    size = size + #part + 2
    multiple = multiple or part:find("\n", 1, true)
  end
  if #parts == 0 then
    return "{}"
  elseif not multiple and size <= show.limits.width then
    return "{ " .. table.concat(parts, ", ") .. " }"
  end
  local inside = indent .. "  "
  return "{\n" .. inside .. table.concat(parts, ",\n" .. inside) .. "\n" .. indent .. "}"
end

local value_at

local function of_table(t, depth, path)
  if path[t] then
    return ("<%s, again>"):format(by_lua(t))
  elseif depth > show.limits.depth then
    return next(t) == nil and "{}" or "{ ... }"
  end
  path[t] = true
  local parts = parts_of(t, function(value)
    return value_at(value, depth + 1, path)
  end)
  path[t] = nil
  return joined(parts, ("  "):rep(depth - 1))
end

local function indented(text, depth)
  return depth > 1 and (text:gsub("\n", "\n" .. ("  "):rep(depth - 1))) or text
end

function value_at(value, depth, path)
  local kind = type(value)
  local meta = kind == "table" and debug.getmetatable(value)
  if kind == "string" then
    return show.quoted(value)
  elseif show.is_python(value) then
    return indented(by_python(value), depth)
  elseif kind == "table" and not (type(meta) == "table" and rawget(meta, "__tostring")) then
    return of_table(value, depth, path)
  elseif kind == "function" then
    return of_function(value)
  end
  return indented(by_lua(value), depth)
end

---The text of a value.
---@param value any
---@return string
function show.value(value)
  local ok, text = pcall(value_at, value, 1, {})
  return ok and text or by_lua(value)
end

return show
