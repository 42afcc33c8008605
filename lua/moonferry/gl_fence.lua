-- OpenGL's fences behind what was drawn, and how a tensor or a ring's slot gets one.
--
-- Responsible for: Context:fence and fence_tensor. Invariant: a fence is its new owner's, or dropped here, once. Must
-- not know: how OpenGL's fences are set and asked (C's mf_gl).
local C = require "moonferry.lib"
local errors = require "moonferry.errors"
local numbers = require "moonferry.numbers"
local picture = require "moonferry.gl_picture"
local tensor = require "moonferry.tensor"

local misuse, show = errors.misuse, errors.show
local Context = picture.Context

local fences = {}

-- The fence that somebody refused is ours to drop; where Lua has no memory to call it, later.
function fences.drop_refused(self)
  if self._refused then
    local fence = self._fence
    local drop, ctx, value = fence.drop, fence.ctx, fence.value
    self._refused = false
    drop(ctx, value)
  end
end

--- An mf_fence behind all that was drawn until now; the next call of this writes it anew.
---@return ffi.cdata*?, string? message, number? code
function Context:fence()
  fences.drop_refused(self)
  local err = errors.place()
  local rc = C.mf_gl_fence(self.handle, self._fence, err)
  if not errors.passed(rc, err) then
    return errors.refused("fence", rc, err)
  end
  return self._fence
end

--- What the work behind a fence does with the memory. Asked before there is a fence, which an error would lose.
function fences.use_of(use, verb)
  if use ~= nil and type(use) ~= "number" then
    misuse("%s: use: expected C.MF_READ or C.MF_WRITE, got %s", verb, show(use))
  end
  return numbers.small(use or C.MF_READ, verb .. ": use")
end

function fences.hand_over(self, verb, give, a, b)
  local fence, message, code = self:fence()
  if not fence then
    return nil, message, code
  end
  local err = errors.place() -- which the fence has left free: that takes no memory
  local rc = give(a, fence, b, err)
  self._refused = rc ~= 0
  fences.drop_refused(self)
  return errors.done(verb, rc, err)
end

--- The memory of `t` is in use by what was drawn until now: uses that must wait for that do. Pointers that were taken
--- before are not held up.
---@param t moonferry.Tensor
---@param use? number C.MF_READ, the default, or C.MF_WRITE
function Context:fence_tensor(t, use)
  local handle = tensor.handle_for("fence_tensor", t)
  return fences.hand_over(self, "fence_tensor", C.mf_tensor_fence, handle, fences.use_of(use, "fence_tensor"))
end

return fences
