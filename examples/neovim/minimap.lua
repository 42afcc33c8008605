-- minimap.lua: a map of the whole text beside it, in Neovim. Lua writes the characters' kinds into a tensor, NumPy
-- makes braille of it for a floating window, and a coloured picture for a file; nothing is copied between the two.
--
--   nvim -c 'luafile examples/neovim/minimap.lua' FILE     or: make neovim FILE=...
--   :Minimap                shows or updates the window
--   :MinimapWrite PATH      writes the picture (PPM)
local mf = require "moonferry"
local py = require "moonferry.python"
local np = py.import "numpy"

local WIDTH = 120 -- columns of text; two of them and four lines are one character of braille
local COLOURS = np.array({ { 24, 26, 33 }, { 122, 162, 247 }, { 255, 158, 100 }, { 158, 206, 106 } },
  py.kw { dtype = "uint8" })
local DOTS = np.array({ { 1, 8 }, { 2, 16 }, { 4, 32 }, { 64, 128 } }) -- braille's bits, by line and column

-- 0 for blanks, 1 for letters, 2 for digits, 3 for all else; four lines at a time.
local function kinds(lines)
  local t = mf.zeros({ math.max(math.ceil(#lines / 4), 1) * 4, WIDTH }, "uint8")
  for y, row in t:rows() do
    local line = lines[y + 1] or ""
    for x = 0, math.min(#line, WIDTH) - 1 do
      local byte = line:byte(x + 1)
      local letter = byte >= 65 and byte <= 90 or byte >= 97 and byte <= 122 or byte >= 128
      row[x] = byte <= 32 and 0 or letter and 1 or (byte >= 48 and byte <= 57) and 2 or 3
    end
  end
  return t
end

-- A line of the window for each four lines of the text.
local function braille(text)
  local cells = np.minimum(np.from_dlpack(text), 1):reshape(-1, 4, WIDTH / 2, 2):transpose(0, 2, 1, 3)
  local codes, lines = py.tensor((cells * DOTS):sum(py.kw { axis = py.tuple { 2, 3 }, dtype = "int32" })), {}
  for _, row in codes:rows() do
    local characters = {}
    for x = 0, WIDTH / 2 - 1 do -- U+2800 and on, in UTF-8
      characters[x + 1] = string.char(0xE2, 0xA0 + math.floor(row[x] / 64), 0x80 + row[x] % 64)
    end
    lines[#lines + 1] = table.concat(characters)
  end
  codes:close()
  return lines
end

local window, buffer

local function show()
  local text = kinds(vim.api.nvim_buf_get_lines(0, 0, -1, false))
  local lines = py.scope(function() return braille(text) end)
  text:close()
  buffer = buffer or vim.api.nvim_create_buf(false, true)
  vim.api.nvim_buf_set_lines(buffer, 0, -1, false, lines)
  if not window or not vim.api.nvim_win_is_valid(window) then
    window = vim.api.nvim_open_win(buffer, false, { relative = "editor", anchor = "NE", row = 0, col = vim.o.columns,
      width = WIDTH / 2, height = math.max(math.min(#lines, vim.o.lines - 3), 1), style = "minimal" })
  end
end

local function write(path)
  local text = kinds(vim.api.nvim_buf_get_lines(0, 0, -1, false))
  local size = text.shape
  local pixels = py.scope(function()
    return np.take(COLOURS, np.from_dlpack(text), py.kw { axis = 0 }):tobytes()
  end)
  text:close()
  local file = assert(io.open(path, "wb"))
  file:write(("P6\n%d %d\n255\n"):format(size[2], size[1]), pixels)
  file:close()
end

vim.api.nvim_create_user_command("Minimap", show, {})
vim.api.nvim_create_user_command("MinimapWrite", function(told) write(told.args) end, { nargs = 1, complete = "file" })
