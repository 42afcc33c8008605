-- CPython inside a LuaJIT process.
--
--   local py = require "moonferry.python"; local np = py.import "numpy"
--   local a = np.linspace(0, 1, py.kw{num = 5, dtype = "float32"})
--   print(a:sum(), a.shape[0], py.tensor(a))
--
-- Python starts with the first use of anything below but py.start and py.kw. What crosses:
--
--   Lua -> Python                                      Python -> Lua
--   nil                     None                       None       py.None, which is not nil
--   boolean                 bool                       bool       boolean
--   number, whole, <= 2^53  int                        int        number up to 2^53 in size, else an object
--   any other number        float                      float      number
--   string, UTF-8           str                        str        string
--   py.bytes(string)        bytes                      bytes      string
--   int64_t, uint64_t       int                        moonferry.Tensor   tensor, same memory
--   tensor                  moonferry.Tensor           anything else      a Python object
--   table of 1 ... n        list, also inside; py.sequence(table) is a live one
--   table of other keys     dict, also inside; py.mapping(table) is a live one
--   function                a callable                 the same function
--   coroutine               an iterator                the same coroutine
--   table with a metatable  an object that stands for it; so are other userdata and FFI values
--   stream                  moonferry.Stream (py.stream makes a stream of that, and of any other library's)
--
-- Streams cross as values: a stream of Lua's must stay open as long as Python uses it. Both languages have the same
-- current stream, because it is the thread's.
--
-- A Python object o: o.name and o.name = v are attributes, o[0] and o[0] = v items (for keys that are strings or
-- several: py.get, py.set, py.delete). f(a, py.kw{b = 1}) calls; o:method(a) and, unless a is o, o.method(a) call a
-- method. #o, tostring(o) and o .. text call len and str; + - * / % ^ == < <= are Python's operators (^ is **), and
-- py.op has the others. Instances of subclasses (numpy.float64 is one of float) stay objects; py.number converts them.
--
-- A Python exception is a Lua error with the fields type, message and traceback; e:is("ValueError") asks for a class.
-- The GIL is held only inside calls. Objects that Lua has collected are released at the next call into Python;
-- py.close releases one at once. docs/lua-hosts-python.md is the guide.
--
-- Invariant: one interpreter and one libmoonferry per process. Must not know: how values are converted.
local mf = require "moonferry" -- first: it says what to do where there is no LuaJIT
local ffi = require "ffi"
local beside = require "moonferry.beside"
local crossing = require "moonferry.crossing"
local errors, hint = require "moonferry.errors", require "moonferry.hint"
local interpreter = require "moonferry.interpreter"
local finalizers, scopes = require "moonferry.finalizer", require "moonferry.scope"
local views = require "moonferry.views"

local py = {}

local keywords = {}

local known = crossing.describer(function(name)
  return py.import(name)
end)

-- Tells the bridge what a value is whose nature C cannot see.
local function describe(value)
  if getmetatable(value) == keywords then
    error("py.kw makes keyword arguments, which come last in a call", 0)
  end
  return known(value)
end

local function prepare(options)
  local facts, message = interpreter.load(options)
  if not facts then
    return nil, message
  end
  local bridge, fault = require("moonferry.bridge").load()
  if not bridge then
    return nil, fault
  end
  local started, why = bridge.start(facts.executable)
  if started == nil then
    return nil, why
  end
  return bridge, started
end

-- sys.argv is what Lua's `arg` is, and modules are looked for beside the script, as for a Python script. `luajit -e`
-- has an `arg` as well, but nothing before its 0.
local function give_arguments()
  local sys, fsdecode = py.import "sys", py.import("os").fsdecode
  local words = rawget(_G, "arg")
  if type(words) ~= "table" or type(words[0]) ~= "string" then
    return
  end
  local list = py.list {}
  for i = 0, #words do
    list:append(fsdecode(py.bytes(tostring(words[i]))))
  end
  sys.argv = list
  if words[-1] and not py.builtins.getattr(sys.flags, "safe_path", false) then
    local path = py.import "os.path"
    sys.path:insert(0, path.dirname(path.realpath(list[0])))
  end
end

local started = false

-- The functions of the bridge, once Python runs.
local verbs = {}

local function nothing() end

local function start(options)
  local bridge, fresh = prepare(options or {})
  if not bridge then
    return nil, fresh
  end
  local last = ffi.gc(ffi.new "char[1]", function(object)
    bridge.close_begins(object, finalizers.close_begins)
  end)
  for name, verb in pairs(bridge.open(describe, crossing.adopt, crossing.box, keywords, scopes.innermost, last)) do
    verbs[name] = verb
    if rawget(py, name) then
      py[name] = verb
    end
  end
  py.None = verbs.None
  crossing.through(verbs.release)
  verbs.ended = bridge.ended
  -- Weak, because what `last` calls when it is finalized reaches this. C keeps it until another bridge replaces it.
  local weak = setmetatable({ last = last }, { __mode = "v" })
  function verbs.await_others()
    bridge.close_begins(weak.last, nothing)
  end
  finalizers.at_begin(verbs.await_others)
  -- os.exit leaves without closing this state, which is when the bridge gets ready for the end.
  local exit = os.exit
  os.exit = function(...) -- luacheck: ignore 122
    bridge.arm()
    return exit(...)
  end
  scopes.attach(verbs)
  started = true
  py.builtins = py.import "builtins"
  py.main = py.import "__main__"
  py.op = py.import "operator"
  if fresh then
    give_arguments()
    beside.offer(py)
  end
  return py
end

--- Starts Python, which the first use of this module also does. If this process already runs an interpreter, that one
--- is used. Otherwise it is the first of these: `python` (a path), the virtual environment `venv`, MOONFERRY_PYTHON,
--- VIRTUAL_ENV, `.venv` in the working directory or beside these Lua files, the environment that they are installed in,
--- `python3` on the PATH.
---@param options { python: string?, venv: string? }?
---@return table? py
---@return string? message why Python cannot be had here
function py.start(options)
  if started then
    if options then
      error("py.start: Python runs already, options come too late", 2)
    end
    return py
  end
  return scopes.outside(start, options)
end

local function started_or_error()
  if not started then
    local ok, message = py.start()
    if not ok then
      errors.misuse("%s", message)
    end
  end
end

-- A function of the bridge, which starts Python when it is called first and is then replaced.
local function lazily(name)
  return function(...)
    started_or_error()
    return py[name](...)
  end
end

-- py.None, py.builtins, py.main (the module __main__) and py.op (the module operator: every operator that Lua has not,
-- as a function) are values, so looking at them is their first use.
local VALUES = { None = true, builtins = true, main = true, op = true }
setmetatable(py, {
  __index = function(_, name)
    if not VALUES[name] then
      errors.misuse("moonferry.python has no %s; %s", errors.show(name), hint.of_python(name, py))
    end
    started_or_error()
    return rawget(py, name)
  end,
})

--- Marks a table, or a Python mapping, as keyword arguments. It must be the last argument of a call. A table that has a
--- metatable keeps that: its fields are copied.
---@param arguments table<string, any>
function py.kw(arguments)
  if type(arguments) ~= "table" and type(arguments) ~= "userdata" then
    errors.misuse("py.kw: expected a table such as { dtype = \"int8\" } or a mapping, got %s", errors.show(arguments))
  elseif type(arguments) == "userdata" then
    local fields = {}
    for key, value in py.items(arguments) do
      fields[key] = value
    end
    arguments = fields
  end
  return setmetatable(views.fields(arguments, keywords), keywords)
end

--- Imports a module. A dotted name returns the submodule: py.import "matplotlib.pyplot".
---@type fun(name: string): any
py.import = lazily "import"

-- What `from name import attribute` gives where the module has no such attribute: a submodule, or Python's error.
local function submodule(name, attribute)
  local ok, module = pcall(py.import, name .. "." .. attribute)
  if ok then
    return module
  elseif not errors.is_python(module) or not module:is("ModuleNotFoundError") then
    error(module, 0)
  end
  py.raise(py.builtins.ImportError, ("cannot import name '%s' from '%s'"):format(attribute, name))
end

--- Python's `from module import a, b`: local array, zeros = py.from("numpy", "array", "zeros"). A name may also be a
--- submodule.
---@param name string
---@param ... string
---@return any ...
function py.from(name, ...)
  local module, found, count = py.import(name), {}, hint.at_least_one("py.from", errors, ...)
  for i = 1, count do
    local attribute = select(i, ...)
    -- Through py.call, because the module may be builtins itself, and hasattr its method.
    if py.call(py.builtins.hasattr, { module, attribute }) then
      found[i] = module[attribute]
    else
      found[i] = submodule(name, attribute)
    end
  end
  return unpack(found, 1, count)
end

-- The code's scope: a Lua table is copied into a dict, which comes as the second result.
local function scope_of(scope)
  if type(scope) ~= "table" then
    return scope
  end
  local dict = py.dict(scope)
  return dict, dict
end

--- Returns the value of a Python expression. Names are looked up in `locals` (a mapping or a Lua table), then in
--- `scope` (a dict, a module or a Lua table; by default __main__).
---@param code string
---@param scope any?
---@param locals any?
---@return any
function py.eval(code, scope, locals)
  started_or_error()
  return verbs.evaluate(code, (scope_of(scope)), (scope_of(locals)))
end

-- Brings what the code has assigned back into the Lua table that its scope was copied from.
local function bring_back(scope, dict)
  for name, value in py.items(dict) do
    if name ~= "__builtins__" then
      scope[name] = value
    end
  end
end

--- Runs Python statements; names are looked up as by py.eval. Assignments change `locals` if it is given, otherwise
--- `scope`, even if that is a Lua table.
---@param code string
---@param scope any?
---@param locals any?
function py.exec(code, scope, locals)
  started_or_error()
  local globals, from_globals = scope_of(scope)
  local inner, from_locals = scope_of(locals)
  verbs.execute(code, globals, inner)
  if from_globals then
    bring_back(scope, from_globals)
  end
  if from_locals then
    bring_back(locals, from_locals)
  end
end

--- Returns a Python list of the table's elements 1 ... n. `n` is needed if there are nils, which become None.
---@type fun(elements: table, n: integer?): any
py.list = lazily "list"
--- Returns a Python tuple of the table's elements 1 ... n. `n` is needed if there are nils, which become None.
---@type fun(elements: table, n: integer?): any
py.tuple = lazily "tuple"

--- Returns a Python dict of the table's keys and values.
---@type fun(fields: table): any
py.dict = lazily "dict"

--- Returns a Python mapping over a table, without a copy: either language sees what the other writes. (A table that is
--- passed as an argument is copied.)
---@param fields table
function py.mapping(fields)
  started_or_error()
  return views.mapping(py, verbs.live(fields))
end

--- Returns a Python sequence over a table's elements 1 ... n, without a copy. Python counts them from 0.
---@param elements table
function py.sequence(elements)
  started_or_error()
  return views.sequence(py, verbs.live(elements), elements)
end

--- Returns a Python iterator over what a Lua `for` would visit: py.iterator(ipairs(t)), py.iterator(text:gmatch "%a+").
--- Several values become a tuple. A coroutine can be passed to Python directly: there it is an iterator.
---@param step function
---@param state any
---@param control any
function py.iterator(step, state, control)
  if not hint.is_callable(step) then
    errors.misuse("py.iterator: expected a function, as pairs(t) gives one, got %s", errors.show(step))
  end
  started_or_error()
  return views.iterator(py, step, state, control)
end

--- Returns a Python bytes object with the bytes of a Lua string.
---@type fun(text: string): any
py.bytes = lazily "bytes"

--- Returns a Python float that stays a Python object: the argument py.float(2) is 2.0, while 2 would be an int.
---@type fun(value: any): any
py.float = lazily "float"
--- Returns a Python int that stays a Python object.
---@type fun(value: any): any
py.int = lazily "int"

--- Converts a value to Python and returns it as a Python object, even if it would become a Lua value:
--- py.object("text"):upper().
---@type fun(value: any): any
py.object = lazily "object"

--- Returns float(object) as a Lua number, for instance of a NumPy scalar.
---@type fun(object: any): number
py.number = lazily "number"

local new_int64, new_uint64 = ffi.typeof "int64_t[1]", ffi.typeof "uint64_t[1]"

--- Returns a Python integer as an int64_t. Raises Python's OverflowError if it does not fit.
---@param object any
---@return ffi.cdata*
function py.int64(object)
  started_or_error()
  local into = new_int64()
  verbs.integer(object, into, false)
  return into[0]
end

--- Returns a Python integer as a uint64_t. Raises Python's OverflowError if it does not fit.
---@param object any
---@return ffi.cdata*
function py.uint64(object)
  started_or_error()
  local into = new_uint64()
  verbs.integer(object, into, true)
  return into[0]
end

--- Returns o[key]. Several keys are passed as a tuple, as in Python's o[i, j].
---@type fun(object: any, ...: any): any
py.get = lazily "get"

--- Sets o[key] = value. The value is the last argument, after one key or several.
---@type fun(object: any, ...: any)
py.set = lazily "set"

--- Deletes o[key], with one key or several.
---@type fun(object: any, ...: any)
py.delete = lazily "delete"

--- Returns a Python slice: py.slice(stop), py.slice(start, stop) or py.slice(start, stop, step). nil stands for an
--- omitted value; py.slice() is `:`.
---@param ... any
function py.slice(...)
  if select("#", ...) == 0 then
    return py.builtins.slice(nil)
  end
  return py.builtins.slice(...)
end

--- Calls f(*positional, **keywords) with a table or any iterable, and a table or any mapping. Either may be nil.
---@type fun(f: any, positional: any?, keywords: any?): any
py.call = lazily "call"

--- Iterates over any iterable: for item in py.iter(object) do ... end
---@type fun(object: any): function, any
py.iter = lazily "iter"

--- As py.iter, but unpacks items that are tuples: for a, b in py.each(pairs_of_things) do ... end
---@type fun(object: any): function, any
py.each = lazily "each"

--- Iterates over a mapping: for key, value in py.items(dict) do ... end
---@type fun(object: any): function, any
py.items = lazily "items"

--- Iterates with a counter, which starts at 0 or at `first`: for i, item in py.enumerate(object) do ... end
---@param object any
---@param first? integer
function py.enumerate(object, first)
  return py.each(py.builtins.enumerate(object, first or 0))
end

--- Iterates over several iterables together: for a, b in py.zip(objects, others) do ... end
---@param ... any
function py.zip(...)
  return py.each(py.builtins.zip(...))
end

--- Returns the elements of an iterable as several values: local height, width = py.unpack(a.shape).
---@type fun(object: any): ...
py.unpack = lazily "unpack"

-- What the body gave, once the manager was left.
local function left(entered, ok, ...)
  if verbs.leave(entered, ok, (...)) then
    return
  elseif not ok then
    error((...), 0)
  end
  return ...
end

--- Python's `with manager as value: body`. Returns what body(value) returns, or nothing if the manager suppressed an
--- error. The manager gets a Lua error as an exception.
---@param manager any
---@param body fun(value: any): ...
function py.with(manager, body)
  hint.callable("py.with", body, errors)
  started_or_error()
  local entered, ok, value = verbs.enter(manager)
  if not ok then
    return left(entered, false, value)
  end
  return left(entered, pcall(body, value))
end

--- Raises a Python exception: an exception object, or a class with arguments.
---@type fun(exception: any, ...: any)
py.raise = lazily "raise"

--- Returns isinstance(value, class), for one class or several.
---@param value any
---@param ... any
---@return boolean
function py.is_instance(value, ...)
  return py.call(py.builtins.isinstance, py.tuple({ value, py.tuple({ ... }, select("#", ...)) }, 2))
end

--- As mf.scope: calls `fn` with a scope. At the end, every Python object that this coroutine got during the call is
--- released (bound methods and caught errors, too), and every tensor and stream is closed, unless it was given to
--- s:keep.
---@param fn fun(s: moonferry.Scope): ...
---@return ...
function py.scope(fn)
  started_or_error()
  return mf.scope(fn)
end

--- Releases a Python object and the methods that were read from it. Using them later is an error.
---@type fun(object: any)
py.close = lazily "close"

--- Releases the Python objects that Lua has already collected. Otherwise the next call into Python does that.
---@type fun()
py.collect = lazily "collect"

--- Returns whether a value is a Python object.
---@type fun(value: any): boolean
py.is = lazily "is"

-- py.tensor, py.stream, py.into; py.finish, py.settle, py.preload.
require "moonferry.borrowed"(py)
require("moonferry.life")(py, verbs)

return py
