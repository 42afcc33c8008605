-- What a Tab at the prompt stands for: names of Lua, fields of tables and objects, attributes in Python, modules.
--
-- Invariant: nothing that the line says is run: values are looked at, never called, though a table's __index or a
-- Python attribute may run code of its own. Must not know: how lines are edited.
local show = require "moonferry.program.show"

local complete = {}

local WORDS = {}
for word in ([[and break do else elseif end false for function goto if in local nil not or repeat return then true
  until while]]):gmatch("%a+") do
  WORDS[#WORDS + 1] = word
end

-- Internal names of the prompt that are nobody's business.
local HIDDEN = { __moonferry_keep = true, __moonferry_values = true }

local function index(value, key)
  local ok, found = pcall(function()
    return value[key]
  end)
  return ok and found or nil
end

local STEPS = {
  { "^[.:]([%a_][%w_]*)()", tostring },
  { "^%[(%d+)%]()", tonumber },
  { '^%["([^"\\]*)"%]()', tostring },
  { "^%['([^'\\]*)'%]()", tostring },
}

-- The value of a chain such as a.b[1].c, or nil.
local function value_of(chain, env)
  local name, at = chain:match("^([%a_][%w_]*)()")
  local value = name and index(env, name)
  while value ~= nil and at and at <= #chain do
    local rest, stepped = chain:sub(at), false
    for _, step in ipairs(STEPS) do
      local key, length = rest:match(step[1])
      if key then
        value, at, stepped = index(value, step[2](key)), at + length - 1, true
        break
      end
    end
    if not stepped then
      return nil
    end
  end
  return value
end

local function add_table(names, t)
  for key in next, t do
    if show.is_name(key) then
      names[key] = true
    end
  end
end

-- An __index function looks names up in tables that it holds on to.
local function add_upvalues(names, f)
  for i = 1, 60 do
    local name, value = debug.getupvalue(f, i)
    if name == nil then
      return
    elseif type(value) == "table" and value ~= _G and value ~= package.loaded then
      add_table(names, value)
    end
  end
end

local function add_lua(names, value)
  for _ = 1, 10 do
    local meta = debug.getmetatable(value)
    if type(value) == "table" then
      add_table(names, value)
    end
    local fallback = type(meta) == "table" and rawget(meta, "__index")
    if type(fallback) == "function" then
      return add_upvalues(names, fallback)
    elseif type(fallback) ~= "table" then
      return
    end
    value = fallback
  end
end

local function add_python(names, object)
  local py = package.loaded["moonferry.python"]
  for name in py.iter(py.call(py.builtins.dir, { object })) do -- dir(builtins) would be the method builtins:dir()
    names[name] = true
  end
end

local function fields_of(chain, env)
  local names = {}
  local value = value_of(chain, env)
  if value ~= nil then
    pcall(show.is_python(value) and add_python or add_lua, names, value)
  end
  return names
end

local function globals(env)
  local names = {}
  add_lua(names, env)
  add_table(names, _G)
  for _, word in ipairs(WORDS) do
    names[word] = true
  end
  return names
end

-- Modules, of which the name is being quoted: those of Lua that are loaded or announced, those that Python can find.
local function lua_modules()
  local names = {}
  for _, t in ipairs { package.loaded, package.preload } do
    for name in pairs(t) do
      names[name] = true
    end
  end
  return names
end

local function python_modules()
  local names = {}
  pcall(function()
    local py = require "moonferry.python"
    for name in py.iter(py.import("sys").builtin_module_names) do
      names[name] = true
    end
    for info in py.iter(py.import("pkgutil").iter_modules()) do
      names[info.name] = true
    end
  end)
  return names
end

local QUOTES = {
  { "%f[%w_]require%s*%(?%s*[\"']([%w_.]*)$", lua_modules },
  { "%f[%w_]py[.:]import%s*%(?%s*[\"']([%w_.]*)$", python_modules },
}

-- The names that may stand in a quote which is open at the end of the line, or nil, and what of it is there.
local function quoted(before)
  for _, quote in ipairs(QUOTES) do
    local partial = before:match(quote[1])
    if partial then
      return quote[2](), partial
    end
  end
end

local function matching(names, partial)
  local found = {}
  for name in pairs(names) do
    local private = name:sub(1, 1) == "_" and partial:sub(1, 1) ~= "_"
    if name:sub(1, #partial) == partial and not private and not HIDDEN[name] then
      found[#found + 1] = name
    end
  end
  table.sort(found)
  return found
end

local function common(found)
  local first, last = found[1], found[#found]
  local n = 0
  while n < #first and first:byte(n + 1) == last:byte(n + 1) do
    n = n + 1
  end
  return first:sub(1, n)
end

-- In columns, as ls has them; what would be more than a screen is counted.
local function listing(found)
  local most, width = 120, 2
  for i = 1, math.min(#found, most) do
    width = math.max(width, #found[i] + 2)
  end
  local per_line, lines, line = math.max(1, math.floor(78 / width)), {}, {}
  for i = 1, math.min(#found, most) do
    line[#line + 1] = found[i] .. (" "):rep(width - #found[i])
    if #line == per_line or i == math.min(#found, most) then
      lines[#lines + 1], line = table.concat(line):gsub("%s+$", ""), {}
    end
  end
  if #found > most then
    lines[#lines + 1] = ("... (%d more)"):format(#found - most)
  end
  return table.concat(lines, "\n")
end

---What the line up to the cursor may go on with.
---@param before string
---@param env table the globals
---@return string insert what all that fits has in common, beyond what is there
---@return string? listing if several fit and they have nothing more in common
function complete.line(before, env)
  local names, partial = quoted(before)
  local chain, field = before:match("([%a_][%w_.:%[%]\"']*)[.:]([%w_]*)$")
  if not names and chain then
    partial = field
    names = fields_of(chain, env)
  elseif not names then
    partial = before:match("[%a_][%w_]*$") or ""
    names = globals(env)
  end
  local found = matching(names, partial)
  if #found == 0 then
    return ""
  end
  local insert = common(found):sub(#partial + 1)
  return insert, insert == "" and #found > 1 and listing(found) or nil
end

return complete
