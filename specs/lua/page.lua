-- The examples of a page of docs/: its blocks of a language, each with what the page says that it prints.
--
-- Must not know: what an example needs beside the names that it is given.
local page = {}

local function read(path)
  local file = assert(io.open(path))
  local text = file:read "*a"
  file:close()
  return text
end

--- The blocks of a language in their order, with the text block behind each as its output.
---@param path string
---@param wanted string such as "lua"
---@return { code: string, line: number, output: string, section: string }[] section: the heading above
function page.examples(path, wanted)
  local found, line, section = {}, 1, nil
  local language, lines
  for row in read(path):gmatch "([^\n]*)\n" do
    if language and row == "```" then
      local block = table.concat(lines, "\n") .. "\n"
      if language == wanted then
        found[#found + 1] = { code = block, line = line - #lines, output = "", section = section }
      elseif language == "text" and #found > 0 then
        found[#found].output = block
      end
      language = nil
    elseif language then
      lines[#lines + 1] = row
    elseif row:match "^```%l+$" then
      language, lines = row:match "%l+", {}
    else
      section = row:match "^## (.*)$" or section
    end
    line = line + 1
  end
  return found
end

--- Runs an example of Lua; returns what it prints.
---@param path string
---@param example { code: string }
---@param names table<string, any> what it finds beside the globals
---@return string
function page.printed(path, example, names)
  local out = {}
  local environment = setmetatable({
    print = function(...)
      local words = {}
      for i = 1, select("#", ...) do
        words[i] = tostring((select(i, ...)))
      end
      out[#out + 1] = table.concat(words, "\t") .. "\n"
    end,
    io = setmetatable({
      write = function(...)
        for i = 1, select("#", ...) do
          out[#out + 1] = tostring((select(i, ...)))
        end
      end,
    }, { __index = io }),
  }, {
    __index = function(_, name)
      local value = names[name]
      if value == nil then
        return _G[name]
      end
      return value
    end,
  })
  setfenv(assert(loadstring(example.code, "=" .. path)), environment)()
  return table.concat(out)
end

return page
