-- The prompt of the `moonferry` program: what a chunk is, what is kept of it, and where the history lies.
--
-- repl.c calls open once, then next, and show with what the chunk gave. Chunks run with globals of their own, a table
-- before _G, which keeps what was local at the end of a chunk: a `local` that was typed is there in the next line.
-- Assignments to other names reach _G as ever. What was typed is not compiled, unless -jon asked for it, because
-- compiled loops look for no Ctrl-C; functions of modules are compiled as ever. Must not know: how lines are edited.
local ffi = require "ffi"
local complete = require "moonferry.program.complete"
local show = require "moonferry.program.show"

local repl = {}

local HISTORY = { kept = 1000, most = 2000 }
local env = setmetatable({}, { __index = _G, __newindex = _G })

pcall(ffi.cdef, "int mkdir(const char *path, unsigned int mode);")
pcall(ffi.cdef, "unsigned int umask(unsigned int mask);")

-- Called at the end of a chunk: what is local there stays, as a field of the globals.
local function keep()
  for i = 1, 250 do
    local name, value = debug.getlocal(2, i)
    if name == nil then
      return
    elseif name:match("^[%a_]") then
      rawset(env, name, value)
    end
  end
end

local function values(...)
  return ...
end

-- Not as `return f()`, which would be gone from the traceback while f runs.
local function load_expression(text)
  local plain, message = loadstring("return " .. text, "=stdin")
  if not plain then
    return nil, message
  end
  -- An error is said to be where the bracket is. It is in a line of its own only where a comment ends the text.
  local call = "return __moonferry_values(" .. text
  return loadstring(call .. ")", "=stdin") or loadstring(call .. "\n)", "=stdin") or plain
end

local function load_chunk(text)
  local whole, message = loadstring(text, "=stdin")
  if not whole then
    return nil, message
  end
  return loadstring(text .. "\n__moonferry_keep()", "=stdin") or whole
end

-- Whether more lines may make it right.
local function is_incomplete(message)
  return message:match("'<eof>'$") ~= nil or message:match("unfinished long string") ~= nil
    or message:match("unfinished long comment") ~= nil
end

---The function that a text stands for; an expression stands for its values.
---@param text string
---@return function?, string? message
---@return boolean? incomplete more lines may make it right
function repl.compile(text)
  local expression = text:match("^%s*=(.*)$") or text
  local chunk, message = load_expression(expression)
  local incomplete = not chunk and is_incomplete(message)
  if not chunk and expression == text then
    chunk, message = load_chunk(text)
  end
  if not chunk then
    return nil, message, incomplete or is_incomplete(message)
  end
  setfenv(chunk, env)
  if not repl.compiled then
    jit.off(chunk, true)
  end
  return chunk
end

-- The file, or nil where there is no home; MOONFERRY_HISTORY names another, or none if it is empty.
local function history_path()
  local chosen, state, home = os.getenv "MOONFERRY_HISTORY", os.getenv "XDG_STATE_HOME", os.getenv "HOME"
  if chosen then
    return chosen ~= "" and chosen or nil
  elseif state and state:match("^/") then
    return state .. "/moonferry/history"
  end
  return home and home:match("^/") and home .. "/.local/state/moonferry/history" or nil
end

local function make_folders(path)
  for slash in path:gmatch("()/") do
    if slash > 1 then
      ffi.C.mkdir(path:sub(1, slash - 1), 448) -- 0700
    end
  end
end

-- Opens the file; one that is made here is nobody else's to read. One that is there keeps its mode: it may be
-- /dev/null.
local function open_history(mode)
  local before = ffi.C.umask(63) -- 0077
  local file = io.open(repl.history, mode)
  ffi.C.umask(before)
  return file
end

local function load_history()
  local file, lines = io.open(repl.history), {}
  if not file then
    return make_folders(repl.history)
  end
  local ok, why = pcall(function()
    for line in file:lines() do
      lines[#lines + 1] = line
    end
  end)
  file:close()
  if not ok then
    io.stderr:write(("(no history: %s: %s)\n"):format(repl.history, why))
  end
  local first = math.max(1, #lines - HISTORY.kept + 1)
  for i = first, #lines do
    repl.remember(lines[i])
  end
  local rewritten = #lines > HISTORY.most and open_history "w"
  if rewritten then
    rewritten:write(table.concat(lines, "\n", first), "\n")
    rewritten:close()
  end
end

-- Line by line and at once: nothing is lost in a crash, and several prompts share one file.
local function remember(line)
  if not line:match("%S") or line == repl.last then
    return
  end
  repl.last = line
  repl.remember(line)
  local file = repl.history and repl.editing and open_history "a"
  if file then
    file:write(line, "\n")
    file:close()
  end
end

local function offer(name, module)
  local ok, found = pcall(require, module)
  if ok then
    rawset(env, name, found)
  else
    io.stderr:write(("(no %s: %s)\n"):format(name, tostring(found):match("^[^\n]*")))
  end
end

---@param tools table line, remember: C functions; editing, compiled, version
function repl.open(tools)
  repl.line, repl.remember, repl.editing, repl.compiled = tools.line, tools.remember, tools.editing, tools.compiled
  rawset(env, "__moonferry_keep", keep)
  rawset(env, "__moonferry_values", values)
  print(("moonferry %s, %s, JIT %s; Tab completes, quit ends, help says more"):format(tools.version, jit.version,
    not jit.status() and "off" or repl.compiled and "on" or "on, but not for what is typed here (-jon)"))
  offer("mf", "moonferry")
  offer("py", "moonferry.python")
  print('mf is require "moonferry", py is require "moonferry.python"')
  repl.history = history_path()
  if repl.editing and repl.history then
    load_history()
  end
end

local HELP = [[
1 + 1               an expression shows its values; "= 1 + 1" and "return 1 + 1" do, too
x = 1; local y = 2  a statement; locals stay
mf.zeros { 2, 3 }   mf is require "moonferry": tensors
py.import "numpy"   py is require "moonferry.python": Python's modules
Tab completes names and fields, an unfinished line goes on in the next, Ctrl-C ends what runs or clears the line.
quit or Ctrl-D ends the prompt. The shell has "moonferry --help".]]

-- A word that is typed alone and means something here, unless the program has a variable of that name. An __index of
-- _G's is not asked: it may raise an error for names that it does not know.
local function said_alone(line)
  local word = line:match("^%s*(%S+)%s*$")
  word = word and word:gsub("%(%)$", "")
  return word and (word == "?" or rawget(env, word) == nil and rawget(_G, word) == nil) and word
end

-- What a line is to the prompt itself: "end", "help", which is given here, or nil.
local function command(line)
  local word = said_alone(line)
  if word == "quit" or word == "exit" then
    return "end"
  elseif word == "help" or word == "?" then
    print(HELP)
    return "help"
  end
end

-- The chunk of the lines, or nil and whether more lines may complete it.
local function chunk_of(lines)
  local chunk, message, incomplete = repl.compile(table.concat(lines, "\n"))
  if not chunk and not incomplete then
    io.stderr:write(message, "\n")
  end
  return chunk, incomplete
end

---Reads the next chunk; nil at the end of the input.
---@return function?
function repl.next()
  local lines = {}
  while true do
    local line = repl.line(#lines == 0 and "> " or ">> ")
    local told = line and #lines == 0 and command(line)
    if line == nil or told == "end" then
      return nil
    elseif line == false then
      lines = {}
    elseif not told and (#lines > 0 or line:match("%S")) then
      remember(line)
      lines[#lines + 1] = line
      local chunk, incomplete = chunk_of(lines)
      if chunk then
        return chunk
      end
      lines = incomplete and lines or {}
    end
  end
end

---Prints values: on one line if they fit, else below one another.
function repl.show(...)
  local texts, multiple = {}, false
  for i = 1, select("#", ...) do
    texts[i] = show.value((select(i, ...)))
    multiple = multiple or texts[i]:find("\n", 1, true) ~= nil
  end
  print(table.concat(texts, multiple and "\n" or "\t"))
end

---@param before string the line up to the cursor
---@return string insert, string? listing
function repl.complete(before)
  return complete.line(before, env)
end

return repl
