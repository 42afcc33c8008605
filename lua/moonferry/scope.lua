-- Scopes: tensors, streams, rings and Python objects made inside are closed at the end, whether that is a return or an
-- error.
--
-- Invariant: a scope belongs to the coroutine that opened it, so what another coroutine makes while this one is
-- suspended is not its business. Must not know: what a tensor, a stream or a ring is, beyond `close` and the mark
-- `moonferry_open` on the metatable of one that is open.
local errors = require "moonferry.errors"

local scope = {}

local MAIN = "main"
local PRUNE_FROM = 1024

---@class moonferry.Scope
local Scope = {}
local NO_METHODS = { made = true, kept = true, outer = true, prune_at = true, guest = true, ended = true,
  counted = true }

function Scope.__index(_, key)
  local found = rawget(Scope, key)
  if found == nil and not NO_METHODS[key] then
    errors.misuse("a scope has no %s; it has s:keep", errors.show(key))
  end
  return found
end

-- By coroutine.
local innermost = setmetatable({}, { __mode = "kv" })
local open = 0

--- For whoever has more to close than what is registered here: where it finds a coroutine's scope.
scope.innermost = innermost

-- Functions of moonferry.python, once Python runs: scope_begin, scope_keep, scope_end, `is` for its objects, and
-- `ended`: after Python's end none of the others can be called. A scope's part there is its field `guest`.
local guests

--- From here on scopes close these objects, too.
function scope.attach(verbs)
  guests = verbs
end

--- Whether any scope is open in any coroutine.
function scope.active()
  return open > 0
end

-- Forgets what was closed by hand, so that a long loop that closes its tensors does not pile them up.
local function prune(s)
  local made, live = s.made, 0
  for i = 1, #made do
    local t = made[i]
    made[i] = nil
    if getmetatable(t).moonferry_open then
      live = live + 1
      made[live] = t
    end
  end
  s.prune_at = math.max(PRUNE_FROM, 2 * live)
end

--- Enters a new tensor, stream or ring into the innermost scope of the running coroutine.
function scope.register(t)
  local s = innermost[coroutine.running() or MAIN]
  if s then
    if #s.made >= s.prune_at then
      prune(s)
    end
    s.made[#s.made + 1] = t
  end
end

--- Keeps a tensor, a stream or a ring open after the scope ends, and returns it. An enclosing scope, if any, will close
--- it.
---@generic T
---@param t T
---@return T
function Scope:keep(t)
  local mt = getmetatable(t)
  local is_guests = type(t) == "userdata" and guests ~= nil and guests.is(t)
  if not is_guests and not (type(mt) == "table" and mt.moonferry_open) then
    errors.misuse("keep: expected an open tensor, stream or ring, or a Python object, got %s", errors.show(t))
  elseif self.ended then
    errors.misuse("keep: the scope has ended")
  elseif is_guests then
    guests.scope_keep(self.guest, self.outer and self.outer.guest, t)
    return t
  end
  self.kept[t] = true
  return t
end

--- Lets `thread`, a new coroutine that runs part of the running one, take part in its innermost scope.
---@param thread thread
function scope.inherit(thread)
  innermost[thread] = innermost[coroutine.running() or MAIN]
end

--- Calls `fn` with nothing that it makes being of a scope: for what a module keeps.
function scope.outside(fn, ...)
  local thread = coroutine.running() or MAIN
  local s = innermost[thread]
  if not s then
    return fn(...)
  end
  local function back(ok, ...)
    innermost[thread] = s
    if not ok then
      error((...), 0)
    end
    return ...
  end
  innermost[thread] = nil
  return back(pcall(fn, ...))
end

local function close(t)
  t:close()
end

-- Closes what was made, the last first, and hands over what is kept. Returns the first error of a `close`.
local function close_all(s)
  local made, failure = s.made, nil
  for i = #made, 1, -1 do
    local t = made[i]
    if not s.kept[t] then
      local ok, message = pcall(close, t)
      if not ok then
        failure = failure or message
        pcall(close, t) -- where it was an error of a debug hook, there is no other
      end
    elseif s.outer then
      s.outer.made[#s.outer.made + 1] = t
    end
    made[i] = nil
  end
  return failure
end

-- The end of a scope. Called again, it goes on where an error of a debug hook has cut it off, or does nothing. Returns
-- the first error of a `close`.
local function wind_up(s, thread, ok, ...)
  innermost[thread] = s.outer
  if s.counted then
    s.counted = false
    open = open - 1
  end
  s.ended = true
  local failure = close_all(s)
  local guest = s.guest
  s.guest = nil -- another scope may get its address: a coroutine that goes on without this one has no part in that
  if guest and not guests.ended() then
    guests.scope_end(guest, s.outer and s.outer.guest, not ok and (...) or nil)
  end
  return failure
end

local function finish(s, thread, ok, ...)
  local failure = wind_up(s, thread, ok, ...)
  if not ok then
    error((...), 0)
  elseif failure then
    error(failure, 0)
  end
  return ...
end

local function begin(s, thread, fn)
  s.guest = guests and not guests.ended() and guests.scope_begin() or nil
  innermost[thread] = s
  open = open + 1
  s.counted = true
  return finish(s, thread, pcall(fn, s))
end

-- An error of a debug hook may come between any two instructions, also of the end.
local function left(s, thread, ok, ...)
  wind_up(s, thread, ok, ...)
  if not ok then
    error((...), 0)
  end
  return ...
end

--- Calls `fn` with a scope and returns what `fn` returns. At the end, also after an error, every tensor, stream and
--- ring that was made during the call is closed, unless it was given to `s:keep`. Once this state uses Python, every
--- Python object that it got during the call is released, too.
---@param fn fun(s: moonferry.Scope): ...
function scope.run(fn)
  if type(fn) ~= "function" then
    errors.misuse("scope: expected a function, got %s", errors.show(fn))
  end
  local thread = coroutine.running() or MAIN
  local s = setmetatable({ made = {}, kept = {}, outer = innermost[thread], prune_at = PRUNE_FROM }, Scope)
  return left(s, thread, pcall(begin, s, thread, fn))
end

return scope
