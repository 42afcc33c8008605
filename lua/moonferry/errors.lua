-- How misuse is told from what the environment refuses.
--
-- Responsible for: raising misuse at the line of the caller, and giving back `nil, message, code` for what a correct
-- program can meet: no memory, no such device, a driver that fails, a graph being captured, a time that is over.
-- Invariant: an error never names a line of Moonferry's own files. Must not know: tensors.
local ffi = require "ffi"
local places = require "moonferry.place"

local errors = {}

-- Where our own files are; frames from there are skipped when an error is placed.
-- `require` joins folders with backslashes on Windows, and LUA_PATH has slashes there as well.
local here = (debug.getinfo(1, "S").source:match("^(.*[/\\])") or "@moonferry:"):gsub("\\", "/")

local function caller()
  local level = 3
  local info = debug.getinfo(level, "S")
  while info and (info.what == "C" or info.source:sub(1, #here):gsub("\\", "/") == here) do
    level = level + 1
    info = debug.getinfo(level, "S")
  end
  return info and level - 1 or 0
end

--- Raises an error that points at the first line outside Moonferry.
---@param format string
function errors.misuse(format, ...)
  error(format:format(...), caller())
end

--- How an offending value is shown in a message.
---@param value any
---@return string
function errors.show(value)
  local kind = type(value)
  if kind == "string" then
    return ("%q"):format(#value > 40 and value:sub(1, 40) .. "..." or value)
  elseif kind == "number" then
    return ("%.17g"):format(value)
  elseif errors.is_python(value) then
    return "a Python object; py.tensor(x) makes a tensor of a Python array (python.tensor(x) where Python hosts Lua)"
  elseif kind == "table" or kind == "function" or kind == "userdata" or kind == "thread" then
    return "a " .. kind
  end
  return tostring(value)
end

--- Whether `value` is an object of Python's, under either host.
---@param value any
---@return boolean
function errors.is_python(value)
  local shown = type(value) == "userdata" and getmetatable(value)
  return shown == "python object" or type(shown) == "table" and rawget(shown, "__name") == "python object"
end

-- How LuaJIT begins what it says of a value that is none of the type that it is to become.
local NO_CONVERSION = "cannot convert '"

--- Whether the FFI converts what `fn` gives it, and what fn returned. Another error than that it does not, such as that
--- there is no memory, is no answer and is raised on.
---@param fn function
---@return boolean
---@return any
function errors.converts(fn, ...)
  local ok, answer = pcall(fn, ...)
  if not ok and not (type(answer) == "string" and answer:find(NO_CONVERSION, 1, true)) then
    error(answer, 0)
  end
  return ok, answer
end

--- Attaches the library.
function errors.attach(C)
  local take, leave = places.of_answers "mf_error"
  local NOMEM = C.MF_ENOMEM
  local OF_THE_ENVIRONMENT = { [NOMEM] = true, [C.MF_EDEVICE] = true, [C.MF_EDRIVER] = true, [C.MF_ECAPTURE] = true,
    [C.MF_ETIMEOUT] = true }

  --- A place for what a C function says of its failure, as its last argument. `passed`, `refused` or `text` is next.
  ---@type fun(): ffi.cdata*
  errors.place = take

  --- Whether the call that had the place went well; the place is for other calls then.
  function errors.passed(rc, place)
    if rc ~= 0 then
      return false
    end
    leave(place)
    return true
  end

  --- What the failed call said.
  ---@return string
  function errors.text(place)
    local text = ffi.string(place.message)
    leave(place)
    return text
  end

  --- Calls a C function; where memory is short, collects all garbage and tries once more.
  function errors.call(fn, ...)
    local rc = fn(...)
    if rc == NOMEM then
      collectgarbage()
      rc = fn(...)
    end
    return rc
  end

  -- C counts from 0 what is a table in Lua.
  local LISTS = { shape = true, strides = true, axes = true }
  local function in_lua(name, index)
    return LISTS[name] and ("%s[%d]"):format(name, index + 1) or nil
  end

  --- What the public function `verb` returns for the failure `rc`: misuse raises.
  function errors.refused(verb, rc, place)
    local message = verb .. ": " .. errors.text(place):gsub("(%a+)%[(%d+)%]", in_lua)
    if not OF_THE_ENVIRONMENT[rc] then
      errors.misuse("%s", message)
    end
    return nil, message, rc
  end

  --- The same for a function that gives nothing but `result` (true when left out) where all is well.
  function errors.done(verb, rc, place, result)
    if not errors.passed(rc, place) then
      return errors.refused(verb, rc, place)
    end
    return result == nil or result
  end
end

return errors
