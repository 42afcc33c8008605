-- The checked mode, for development: row, rows, at and set look whether their coordinates are in range.
--
-- Loaded where the environment has MOONFERRY_CHECKED=1. Invariant: what a right program does, it does as without this
-- mode, only slower: a row is a table that reads and writes within its bounds, and no pointer. `ptr` stays a pointer,
-- because C takes it. Must not know: memory.
local errors = require "moonferry.errors"
local numbers = require "moonferry.numbers"
local tensor = require "moonferry.tensor"

local misuse, show = errors.misuse, errors.show
---@class moonferry.Tensor
local Tensor, handle_of = tensor.Tensor, tensor.handle_of

-- The parts of a row: its pointer, its number of elements, and the tensor, whose memory it keeps.
local POINTER, COUNT, OF = {}, {}, {}

local meta = {}

local function index_of(row, k)
  local index = numbers.integer(k, "row: coordinate")
  if index < 0 or index >= row[COUNT] then
    misuse("row: coordinate %s is outside 0 ... %d", show(k), row[COUNT] - 1)
  end
  handle_of(row[OF])
  return index
end

function meta.__index(row, k)
  local index = index_of(row, k)
  local read = tensor.info(row[OF]).read
  if read then
    local value = read(row[POINTER], index)
    return value
  end
  return row[POINTER][index]
end

function meta.__newindex(row, k, value)
  local index = index_of(row, k)
  if row[OF].readonly then
    misuse("row: the tensor is read-only")
  end
  row[POINTER][index] = value
end

function meta.__len()
  misuse("row: a row has no length; t.shape has the extents")
end

function meta.__tostring(row)
  return ("mf.row<%d elements, checked>"):format(row[COUNT])
end

local function no_pointer()
  misuse("row: a checked row (MOONFERRY_CHECKED=1) is no pointer to calculate with; t:ptr() is one")
end

meta.__add, meta.__sub, meta.__concat = no_pointer, no_pointer, no_pointer

local function new_row(t, pointer, count)
  return setmetatable({ [POINTER] = pointer, [COUNT] = count, [OF] = t }, meta)
end

local function check(t, verb, count, ...)
  local shape = t.shape
  if select("#", ...) < count then
    misuse("%s: expected %d coordinates, got %d", verb, count, select("#", ...))
  end
  for axis = 1, count do
    local given = (select(axis, ...))
    local x = numbers.integer(given, ("%s: coordinate %d"):format(verb, axis - 1))
    if x < 0 or x >= shape[axis] then
      misuse("%s: coordinate %d is %s, outside 0 ... %d", verb, axis - 1, show(given), shape[axis] - 1)
    end
  end
end

-- How many elements lie behind the first `given` axes.
local function elements(t, given)
  local shape, count = t.shape, 1
  for axis = given + 1, #shape do
    count = count * shape[axis]
  end
  return count
end

local row, rows, at, set = Tensor.row, Tensor.rows, Tensor.at, Tensor.set

function Tensor:row(...)
  local given = select("#", ...)
  check(self, "row", math.min(given, self.ndim), ...)
  return new_row(self, row(self, ...), elements(self, given))
end

function Tensor:rows()
  local step, _, first = rows(self)
  local count = elements(self, 1)
  return function(t, i)
    local next_i, pointer = step(t, i)
    if next_i then
      return next_i, new_row(t, pointer, count)
    end
  end, self, first
end

function Tensor:at(...)
  check(self, "at", self.ndim, ...)
  return at(self, ...)
end

function Tensor:set(...)
  if select("#", ...) ~= self.ndim + 1 then
    misuse("set: expected %d coordinates and a value, got %d arguments", self.ndim, select("#", ...))
  end
  check(self, "set", self.ndim, ...)
  return set(self, ...)
end
