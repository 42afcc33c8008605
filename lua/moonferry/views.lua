-- Lua tables and iterators in Python's own shapes: what py.mapping, py.sequence and py.iterator make.
--
-- Written in Python, because a class of collections.abc is what a library asks for; here as a string, because the
-- interpreter that is hosted need not have the moonferry package. Invariant: a view copies nothing, so that either side
-- sees what the other writes. Must not know: how values cross; the bridge gives it live tables and functions.
local SOURCE = [[
from collections.abc import MutableMapping, MutableSequence
from operator import index as integer


class Mapping(MutableMapping):
    """A Lua table as a mapping of all its keys."""

    def __init__(self, table):
        self._table = table

    def __getitem__(self, key):
        value = self._table[key]
        if value is None and key not in self._table:
            raise KeyError(key)
        return value

    def __setitem__(self, key, value):
        self._table[key] = value

    def __delitem__(self, key):
        self[key]
        del self._table[key]

    def __iter__(self):
        return iter(self._table.keys())

    def __len__(self):
        return sum(1 for _ in self._table.keys())

    def __repr__(self):
        return f"Mapping({dict(self)})"


class Sequence(MutableSequence):
    """Elements 1 ... n of a Lua table as a sequence; as everywhere in Python, the first is 0."""

    def __init__(self, table, length, insert, remove):
        self._table, self._length, self._insert, self._remove = table, length, insert, remove

    def _at(self, index):
        count = self._length()
        place = integer(index)
        if place < 0:
            place += count
        if not 0 <= place < count:
            raise IndexError(f"index {index} is out of range for {count} elements of a Lua table")
        return place + 1

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self._table[self._at(index)]

    def __setitem__(self, index, value):
        if isinstance(index, slice):
            self._replace(range(*index.indices(len(self))), list(value))
        else:
            self._table[self._at(index)] = value

    def _replace(self, places, values):
        count = min(len(places), len(values))
        if places.step != 1 and len(places) != len(values):
            raise ValueError(f"{len(places)} elements at a step of {places.step} cannot become {len(values)}")
        for place, value in zip(places, values):
            self._table[place + 1] = value
        for place in places[count:]:
            self._remove(places[count] + 1)
        for i in range(count, len(values)):
            self._insert(places.start + i + 1, values[i])

    def __delitem__(self, index):
        if isinstance(index, slice):
            for place in sorted(range(*index.indices(len(self))), reverse=True):
                self._remove(place + 1)
        else:
            self._remove(self._at(index))

    def __len__(self):
        return self._length()

    def insert(self, index, value):
        start = slice(index, None).indices(len(self))[0]
        self._insert(start + 1, value)

    def __eq__(self, other):
        return list(self) == other

    def __repr__(self):
        return f"Sequence({list(self)})"


def iterate(step):
    while True:
        values = step()
        if values is None:
            return
        yield values if len(values) > 1 else values[0]
]]

local errors = require "moonferry.errors"
local outside = require("moonferry.scope").outside

local views = {}

--- The table itself where it may have the metatable `mark`, else another one with its fields.
---@param arguments table
---@param mark table
---@return table
function views.fields(arguments, mark)
  local mt = getmetatable(arguments)
  if mt == nil or mt == mark then
    return arguments
  elseif type(mt) == "table" and rawget(mt, "moonferry_open") ~= nil then
    errors.misuse("py.kw: expected a table such as { dtype = \"int8\" } or a mapping, got a tensor, stream or ring")
  end
  local fields = {}
  for key, value in next, arguments do
    fields[key] = value
  end
  return fields
end

local function made_code(py)
  views.scope = views.scope or py.dict { __name__ = "moonferry.views" }
  if not views.ready then
    py.exec(SOURCE, views.scope)
    views.ready = true
  end
  return views.scope
end

local function code(py)
  return outside(made_code, py)
end

---@param py table the module moonferry.python
---@param live any the table as a Python object that stands for it
function views.mapping(py, live)
  return py.get(code(py), "Mapping")(live)
end

---@param py table
---@param live any
---@param elements table
function views.sequence(py, live, elements)
  local function length()
    return #elements
  end
  local function insert(position, value)
    table.insert(elements, position, value)
  end
  local function remove(position)
    table.remove(elements, position)
  end
  return py.get(code(py), "Sequence")(live, length, insert, remove)
end

-- What a step of a Lua iterator gives: a tuple of its values, or None at the end.
local function packed(py, ...)
  if (...) ~= nil then
    return py.tuple({ ... }, select("#", ...))
  end
end

---@param py table
---@param step function
---@param state any
---@param control any
function views.iterator(py, step, state, control)
  local function advance(...)
    control = ...
    return packed(py, ...)
  end
  return py.get(code(py), "iterate")(function()
    return advance(step(state, control))
  end)
end

return views
