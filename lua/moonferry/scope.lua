-- Scopes: tensors made inside are closed at the end, whether the end is a return or an error.
--
-- Invariant: a scope belongs to the coroutine that opened it, so tensors that another coroutine makes while
-- this one is suspended are not its business. Must not know: what a tensor is, beyond `close`.
local errors = require "moonferry.errors"

local scope = {}

local MAIN = "main"
local PRUNE_FROM = 1024

---@class moonferry.Scope
local Scope = {}
Scope.__index = Scope

local innermost = setmetatable({}, { __mode = "k" }) -- by coroutine
local open = 0

--- Whether any scope is open in any coroutine.
function scope.active()
  return open > 0
end

-- Forgets what was closed by hand, so that a long loop that closes its tensors does not pile them up.
local function prune(s)
  local tensors, live = s.tensors, 0
  for i = 1, #tensors do
    local t = tensors[i]
    tensors[i] = nil
    if getmetatable(t).moonferry_tensor then
      live = live + 1
      tensors[live] = t
    end
  end
  s.prune_at = math.max(PRUNE_FROM, 2 * live)
end

--- Enters a new tensor into the innermost scope of the running coroutine.
function scope.register(t)
  local s = innermost[coroutine.running() or MAIN]
  if s then
    if #s.tensors >= s.prune_at then
      prune(s)
    end
    s.tensors[#s.tensors + 1] = t
  end
end

--- Lets a tensor outlive the scope; the enclosing scope, if any, closes it.
---@generic T
---@param t T
---@return T
function Scope:keep(t)
  local mt = getmetatable(t)
  if not (mt and mt.moonferry_tensor) then
    errors.misuse("keep: expected an open tensor, got %s", errors.show(t))
  elseif self.ended then
    errors.misuse("keep: the scope has ended")
  end
  self.kept[t] = true
  return t
end

local function finish(s, thread, ok, ...)
  innermost[thread] = s.outer
  open = open - 1
  s.ended = true
  for i = #s.tensors, 1, -1 do
    local t = s.tensors[i]
    if not s.kept[t] then
      t:close()
    elseif s.outer then
      s.outer.tensors[#s.outer.tensors + 1] = t
    end
  end
  if not ok then
    error((...), 0)
  end
  return ...
end

--- Calls `fn` with a scope, closes every tensor made during the call except those given to `s:keep`, and
--- returns what `fn` returned. An error closes them too and goes on unchanged.
---@param fn fun(s: moonferry.Scope): ...
function scope.run(fn)
  if type(fn) ~= "function" then
    errors.misuse("scope: expected a function, got %s", errors.show(fn))
  end
  local thread = coroutine.running() or MAIN
  local s = setmetatable({ tensors = {}, kept = {}, outer = innermost[thread], prune_at = PRUNE_FROM }, Scope)
  innermost[thread] = s
  open = open + 1
  return finish(s, thread, pcall(fn, s))
end

return scope
