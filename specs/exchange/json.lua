-- JSON of Lua's strings, numbers, booleans and tables; a table with [1] is a list.

local ESCAPES = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\t"] = "\\t", ["\r"] = "\\r" }

local function quoted(text)
  return '"' .. text:gsub('[%c"\\\127-\255]', function(byte)
    return ESCAPES[byte] or byte:byte() >= 127 and byte or ("\\u%04x"):format(byte:byte())
  end) .. '"'
end

local function json(value)
  if type(value) == "string" then
    return quoted(value)
  elseif type(value) ~= "table" then
    return tostring(value)
  end
  local parts = {}
  if value[1] ~= nil then
    for i, item in ipairs(value) do
      parts[i] = json(item)
    end
    return "[" .. table.concat(parts, ",") .. "]"
  end
  for key, item in pairs(value) do
    parts[#parts + 1] = quoted(tostring(key)) .. ":" .. json(item)
  end
  table.sort(parts)
  return "{" .. table.concat(parts, ",") .. "}"
end

return json
