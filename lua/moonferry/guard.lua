-- A tensor for code that is not trusted, a mod's: elements by checked calls, and no way to a pointer, the handle or the
-- functions of tensors.
--
-- Invariant: nothing that a guarded tensor gives leads to its tensor. The environment of such code is the program's to
-- choose; whoever has `ffi` or `debug` there needs no tensor to read the process's memory. Must not know: elements.
local errors = require "moonferry.errors"
local tensor = require "moonferry.tensor"
local transfer = require "moonferry.transfer"

local OPTIONS = { readonly = true }
local tensors = setmetatable({}, { __mode = "k" }) -- by guarded tensor
local writable = setmetatable({}, { __mode = "k" })

local function tensor_of(guarded, name)
  local t = tensors[guarded]
  if t == nil then
    errors.misuse("%s: expected a guarded tensor, got %s", name, errors.show(guarded))
  end
  return t
end

local function writable_tensor_of(guarded, name)
  local t = tensor_of(guarded, name)
  if not writable[guarded] then
    errors.misuse("%s: this guarded tensor is for reading alone", name)
  end
  return t
end

local methods = {}

function methods.get(guarded, ...)
  return tensor_of(guarded, "get"):get(...)
end

-- What was written is of no interest to the caller: the tensor that `put` and `fill` return stays here.
function methods.put(guarded, ...)
  writable_tensor_of(guarded, "put"):put(...)
  return guarded
end

function methods.fill(guarded, value)
  writable_tensor_of(guarded, "fill"):fill(value)
  return guarded
end

local fields = {}

function fields.shape(t)
  return t.shape
end

function fields.dtype(t)
  return t.dtype
end

function fields.ndim(t)
  return t.ndim
end

local function index(guarded, name)
  local field = fields[name]
  if field then
    return field(tensor_of(guarded, name))
  elseif not methods[name] then
    errors.misuse("a guarded tensor has no %s; it has get, put, fill, shape, dtype and ndim", errors.show(name))
  end
  return methods[name]
end

-- A userdata, because a table could be written to; with a metatable that cannot be got at.
local pattern = newproxy(true)
do
  local mt = getmetatable(pattern)
  mt.__index = index
  mt.__metatable = "guarded tensor"
  function mt.__newindex(_, name)
    errors.misuse("a guarded tensor has no field %s to write to: put(...) writes an element", errors.show(name))
  end
  function mt.__eq()
    errors.misuse("two guarded tensors are not compared with == or ~=; g:get(...) gives their elements")
  end
  function mt.__tostring(guarded)
    local t = tensor_of(guarded, "tostring")
    return ("guarded tensor: %s, %s"):format(table.concat(fields.shape(t), " x "), t.dtype)
  end
end

---@class moonferry.Guarded
---@field shape number[] a copy
---@field dtype string
---@field ndim number
---@field get fun(self: moonferry.Guarded, ...: number): any as of a tensor
---@field put fun(self: moonferry.Guarded, ...: any): moonferry.Guarded coordinates and a value
---@field fill fun(self: moonferry.Guarded, value: any): moonferry.Guarded

--- Returns a tensor for code that you do not trust. It has only `g:get(...)`, `g:put(...)`, `g:fill(value)`, `g.shape`
--- (a copy), `g.dtype` and `g.ndim`, and checks every coordinate and value.
---@param t moonferry.Tensor
---@param options { readonly: boolean? }?
---@return moonferry.Guarded
return function(t, options)
  tensor.handle_for("guard", t)
  options = transfer.options(options, OPTIONS, "guard")
  if options.readonly ~= nil and type(options.readonly) ~= "boolean" then
    errors.misuse("guard: readonly: expected a boolean, got %s", errors.show(options.readonly))
  end
  local guarded = newproxy(pattern)
  tensors[guarded] = t
  writable[guarded] = not options.readonly
  return guarded
end
