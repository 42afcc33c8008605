-- The verbs that give another view of the same memory.
--
-- Responsible for: turning Lua's arguments into what mf_tensor_index and its siblings take. Invariant: no
-- element is touched here. Must not know: dtypes' values, lifetimes.
local ffi = require "ffi"
local C = require "moonferry.lib"
local dtype = require "moonferry.dtype"
local errors = require "moonferry.errors"
local numbers = require "moonferry.numbers"
local tensor = require "moonferry.tensor"

local misuse, show = errors.misuse, errors.show
---@class moonferry.Tensor
local Tensor, view = tensor.Tensor, tensor.view

local sentinels = {}

local function sentinel(name)
  return setmetatable({}, {
    __tostring = function()
      return "mf." .. name
    end,
  })
end

sentinels.all, sentinels.newaxis, sentinels.ellipsis = sentinel "all", sentinel "newaxis", sentinel "ellipsis"

local MAX_ITEMS = 128
local NONE = -0x7fffffffffffffffLL - 1
local new_items, new_dtype = ffi.typeof "mf_index[?]", ffi.typeof "DLDataType[1]"
local int32s = ffi.typeof "int32_t[?]"

local KINDS = {
  [sentinels.all] = C.MF_INDEX_SLICE,
  [sentinels.newaxis] = C.MF_INDEX_NEWAXIS,
  [sentinels.ellipsis] = C.MF_INDEX_ELLIPSIS,
}

local function bound(value, what)
  if value == nil then
    return NONE
  end
  value = numbers.integer(value, what)
  return value == NONE and NONE + 1 or value
end

-- What someone may write who thinks of another library.
local NO_SLICE_KEYS = { 0, 4, "start", "stop", "step" }

local function set_slice(item, slice, what)
  for _, key in ipairs(NO_SLICE_KEYS) do
    if slice[key] ~= nil then
      misuse("%s: a slice is {start, stop, step}; got the key %s", what, show(key))
    end
  end
  item.kind = C.MF_INDEX_SLICE
  item.start = bound(slice[1], what .. ": start")
  item.stop = bound(slice[2], what .. ": stop")
  item.step = bound(slice[3], what .. ": step")
end

local function set_item(item, value, what)
  item.zero, item.start, item.stop, item.step = 0, NONE, NONE, NONE
  local kind = KINDS[value]
  if kind then
    item.kind = kind
  elseif type(value) == "table" and not tensor.is_tensor(value) then
    set_slice(item, value, what)
  elseif value == nil then
    misuse("%s: nil selects nothing; use mf.all for a whole axis", what)
  else
    item.kind, item.start = C.MF_INDEX_AT, numbers.integer(value, what)
  end
end

--- Returns a view, by one item for each axis: a number selects one index and drops the axis; `{start, stop, step}` is a
--- half-open slice, of which any entry may be nil; `mf.all` keeps the axis; `mf.newaxis` inserts an axis; `mf.ellipsis`
--- stands for the axes that are left. Trailing axes without an item are kept.
---@param ... number|table
---@return moonferry.Tensor, string? message, number? code
function Tensor:view(...)
  local count = select("#", ...)
  if count > MAX_ITEMS then
    misuse("view: expected at most %d items, got %d", MAX_ITEMS, count)
  end
  local list, items = { ... }, new_items(count)
  for i = 1, count do
    set_item(items[i - 1], list[i], "view: item " .. i)
  end
  return view("view", C.mf_tensor_index, self, items, count)
end

-- Axes given as numbers or as one table.
local function axes_of(verb, first, ...)
  if type(first) == "table" and select("#", ...) == 0 then
    return numbers.list(first, numbers.small, int32s, verb .. ": axes")
  end
  return numbers.list({ first, ... }, numbers.small, int32s, verb .. ": axes")
end

--- Returns a view whose axis i is axis `axes[i]` of this tensor; without arguments, the axes are reversed.
---@param ... number|number[] the axes
---@return moonferry.Tensor, string? message, number? code
function Tensor:permute_dims(...)
  local axes, count = axes_of("permute_dims", ...)
  return view("permute_dims", C.mf_tensor_permute_dims, self, count > 0 and axes or nil, count)
end

--- Returns a view with the same elements, in row-major order, in another shape; one extent may be -1. Raises an error
--- if that needs a copy.
---@param first number|number[] the shape, or its first extent
---@param ... number
---@return moonferry.Tensor, string? message, number? code
function Tensor:reshape(first, ...)
  local shape = type(first) == "table" and select("#", ...) == 0 and first or { first, ... }
  local extents, ndim = numbers.shape(shape, "reshape: shape")
  return view("reshape", C.mf_tensor_reshape, self, extents, ndim)
end

--- Returns a view of `shape` that repeats elements by strides of 0. It is read-only if it repeats elements.
---@param shape number[]|number
---@param ... any refused: a shape of several extents is one list
---@return moonferry.Tensor, string? message, number? code
function Tensor:broadcast_to(shape, ...)
  if select("#", ...) > 0 then
    misuse("broadcast_to: expected one shape, such as { 4, 3 }, got %d arguments", select("#", ...) + 1)
  end
  local extents, ndim = numbers.shape(shape, "broadcast_to: shape")
  return view("broadcast_to", C.mf_tensor_broadcast_to, self, extents, ndim)
end

--- Returns a view without the given axes, which must have extent 1; without arguments, every axis of extent 1 is
--- dropped.
---@param ... number|number[] the axes
---@return moonferry.Tensor, string? message, number? code
function Tensor:squeeze(...)
  local axes, count = axes_of("squeeze", ...)
  return view("squeeze", C.mf_tensor_squeeze, self, count > 0 and axes or nil, count)
end

--- Returns a view with a new axis of extent 1 at `axis`.
---@param axis number
---@return moonferry.Tensor, string? message, number? code
function Tensor:expand_dims(axis)
  return view("expand_dims", C.mf_tensor_expand_dims, self, numbers.small(axis, "expand_dims: axis"))
end

--- Returns a view of the diagonal of the planes that two axes span, as a new last axis.
---@param offset? number 0: the main diagonal; positive: above it; negative: below it
---@param axis1? number default 0
---@param axis2? number default 1
---@return moonferry.Tensor, string? message, number? code
function Tensor:diagonal(offset, axis1, axis2)
  local axes = int32s(2)
  axes[0] = numbers.small(axis1 or 0, "diagonal: axis1")
  axes[1] = numbers.small(axis2 or 1, "diagonal: axis2")
  return view("diagonal", C.mf_tensor_diagonal, self, numbers.integer(offset or 0, "diagonal: offset"), axes)
end

--- Returns a view of the same bytes as another dtype. If the element size changes, the last axis must be compact, and
--- its extent changes accordingly.
---@param name string the dtype
---@return moonferry.Tensor, string? message, number? code
function Tensor:reinterpret(name)
  if name == nil then
    misuse("reinterpret: expected a dtype, got nil")
  end
  local one_dtype = new_dtype()
  dtype.parse(name, one_dtype[0])
  return view("reinterpret", C.mf_tensor_reinterpret, self, one_dtype)
end

--- Returns a read-only view.
---@return moonferry.Tensor, string? message, number? code
function Tensor:as_readonly()
  return view("as_readonly", C.mf_tensor_as_readonly, self)
end

return sentinels
