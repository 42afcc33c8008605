-- CPython inside a LuaJIT process.
--
--   local py = require "moonferry.python"
--   local np = py.import "numpy"
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
-- Streams cross as values: what a stream was made by gives it back, so a stream of Lua's must stay open as long as
-- Python uses it. The current stream is one for both languages, because it is the thread's.
--
-- A Python object o: o.name and o.name = v are attributes, o[0] and o[0] = v items (py.get, py.set and py.delete take
-- keys that are strings or several), f(a, py.kw{b = 1}) calls, o:method(a) calls a method (and so does
-- o.method(a), unless a is o itself), #o, tostring(o) and o .. text are Python's len and str; + - * / % ^ and == < <=
-- are Python's operators (^ is **), py.op has the others. Instances of subclasses (numpy.float64 is one of float) stay
-- objects: py.number makes a number of them.
--
-- A Python exception is a Lua error with fields: e.type, e.message, e.traceback, e:is("ValueError"); tostring(e) is all
-- of it. While Lua runs, Python's threads run: the GIL is held only inside calls. Objects go when Lua has collected
-- them, at the next call into Python (Lua collects earlier where arrays are large); py.close lets one go at once.
-- Python's atexit functions run when the process exits. docs/lua-hosts-python.md shows all of it.
--
-- Invariant: one interpreter and one libmoonferry per process. Must not know: how values are converted.
local ffi = require "ffi"
local mf = require "moonferry"
local beside = require "moonferry.beside"
local crossing = require "moonferry.crossing"
local interpreter = require "moonferry.interpreter"
local scopes = require "moonferry.scope"
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

local function start(options)
  local bridge, fresh = prepare(options or {})
  if not bridge then
    return nil, fresh
  end
  for name, verb in pairs(bridge.open(describe, crossing.adopt, crossing.box, keywords, scopes.innermost)) do
    verbs[name] = verb
    if rawget(py, name) then
      py[name] = verb
    end
  end
  py.None = verbs.None
  crossing.through(verbs.release)
  verbs.ended = bridge.ended
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

---Starts Python. Optional: the first use does it too. Where an interpreter runs in this process already,
---that one is used. The interpreter is that of `python` (a path), else of the virtual environment `venv`,
---else of MOONFERRY_PYTHON, VIRTUAL_ENV, `.venv` in the working directory or beside these Lua files, the
---environment that they are installed in, or `python3` on the PATH.
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
      error(message, 3)
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
    if VALUES[name] then
      started_or_error()
      return rawget(py, name)
    end
  end,
})

---Marks a table as keyword arguments; it must be the last argument of a call. A Python mapping will do as well.
---@param arguments table<string, any>
function py.kw(arguments)
  if type(arguments) ~= "table" then
    local fields = {}
    for key, value in py.items(arguments) do
      fields[key] = value
    end
    arguments = fields
  end
  return setmetatable(arguments, keywords)
end

---The module of that name, dots included: py.import "matplotlib.pyplot" is pyplot.
---@type fun(name: string): any
py.import = lazily "import"

-- What `from name import attribute` gives where the module has no such attribute: a submodule, or Python's error.
local function submodule(name, attribute)
  local ok, module = pcall(py.import, name .. "." .. attribute)
  if ok then
    return module
  elseif not module:is("ModuleNotFoundError") then
    error(module, 0)
  end
  py.raise(py.builtins.ImportError, ("cannot import name '%s' from '%s'"):format(attribute, name))
end

---Python's `from module import a, b`: local array, zeros = py.from("numpy", "array", "zeros"). A name may also be that
---of a submodule.
---@param name string
---@param ... string
---@return any ...
function py.from(name, ...)
  local module, found, count = py.import(name), {}, select("#", ...)
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

---The value of a Python expression. Its names are those of `scope`, a dict, a module or a Lua table, or of __main__;
---`locals`, a dict, any mapping or a Lua table, comes before them.
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

---Runs Python statements, with names as those of py.eval. What they assign is in the innermost scope afterwards, also
---if that is a Lua table.
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

---A Python list, or tuple, of the table's elements 1 ... n; `n` counts nil, as None, at the end or between.
---@type fun(elements: table, n: integer?): any
py.list = lazily "list"
---@type fun(elements: table, n: integer?): any
py.tuple = lazily "tuple"

---A Python dict of all the table's keys and values.
---@type fun(fields: table): any
py.dict = lazily "dict"

---A table as a Python mapping, or elements 1 ... n of it as a Python sequence, which counts them from 0. Nothing is
---copied: either side sees what the other writes. Where a table is passed as it is, Python gets a copy.
---@param fields table
function py.mapping(fields)
  started_or_error()
  return views.mapping(py, verbs.live(fields))
end

---@param elements table
function py.sequence(elements)
  started_or_error()
  return views.sequence(py, verbs.live(elements), elements)
end

---A Python iterator of what a Lua `for` would loop over: py.iterator(ipairs(t)), py.iterator(text:gmatch "%a+").
---Several values are a tuple. A coroutine needs none of this: passed as it is, it is an iterator.
---@param step function
---@param state any
---@param control any
function py.iterator(step, state, control)
  started_or_error()
  return views.iterator(py, step, state, control)
end

---A bytes object of any Lua string.
---@type fun(text: string): any
py.bytes = lazily "bytes"

---A Python float, or int, that stays a Python object: py.float(2) is 2.0 where the number 2 would be an int.
---@type fun(value: any): any
py.float = lazily "float"
---@type fun(value: any): any
py.int = lazily "int"

---What the value is in Python, as a Python object even if it has a Lua value: py.object("text"):upper().
---@type fun(value: any): any
py.object = lazily "object"

---The Lua number that float() gives for the object, such as a NumPy scalar.
---@type fun(object: any): number
py.number = lazily "number"

local new_int64, new_uint64 = ffi.typeof "int64_t[1]", ffi.typeof "uint64_t[1]"

---The int64_t, or uint64_t, of an integer too large for a Lua number; Python's OverflowError if it is larger still.
---@param object any
function py.int64(object)
  started_or_error()
  local into = new_int64()
  verbs.integer(object, into, false)
  return into[0]
end

---@param object any
function py.uint64(object)
  started_or_error()
  local into = new_uint64()
  verbs.integer(object, into, true)
  return into[0]
end

---o[key]; several keys are a tuple, as in Python's o[i, j].
---@type fun(object: any, ...: any): any
py.get = lazily "get"

---o[key] = value: the value comes last, after one key or several.
---@type fun(object: any, ...: any)
py.set = lazily "set"

---del o[key], with one key or several.
---@type fun(object: any, ...: any)
py.delete = lazily "delete"

---Python's slice: py.slice(stop), py.slice(start, stop), py.slice(start, stop, step), with nil for what is left out;
---py.slice() is `:`.
---@param ... any
function py.slice(...)
  if select("#", ...) == 0 then
    return py.builtins.slice(nil)
  end
  return py.builtins.slice(...)
end

---f(*positional, **keywords): a table or anything that can be iterated over; a table or any mapping. Either may be nil.
---@type fun(f: any, positional: any?, keywords: any?): any
py.call = lazily "call"

---for item in py.iter(object) do ... end
---@type fun(object: any): function, any
py.iter = lazily "iter"

---The same, but an item that is a tuple comes as several values: for a, b in py.each(pairs_of_things) do ... end
---@type fun(object: any): function, any
py.each = lazily "each"

---for key, value in py.items(dict) do ... end
---@type fun(object: any): function, any
py.items = lazily "items"

---for i, item in py.enumerate(object) do ... end, with i from 0 or from `first`.
---@param object any
---@param first? integer
function py.enumerate(object, first)
  return py.each(py.builtins.enumerate(object, first or 0))
end

---for a, b in py.zip(objects, others) do ... end
---@param ... any
function py.zip(...)
  return py.each(py.builtins.zip(...))
end

---The elements of any iterable as several Lua values: local height, width = py.unpack(a.shape).
---@type fun(object: any): ...
py.unpack = lazily "unpack"

-- What the body gave, once the manager was left.
local function left(manager, exit, ok, ...)
  local dealt_with = verbs.leave(exit, manager, ok, (...))
  if ok then
    return ...
  elseif not dealt_with then
    error((...), 0)
  end
end

---Python's `with manager as value: body`: gives what body(value) gives, and nothing if the manager suppressed an error.
---A Lua error reaches the manager as an exception, and leaves py.with as it was.
---@param manager any
---@param body fun(value: any): ...
function py.with(manager, body)
  started_or_error()
  local value, exit = verbs.enter(manager)
  return left(manager, exit, pcall(body, value))
end

---Raises a Python exception, which is given ready-made or as its class and arguments.
---@type fun(exception: any, ...: any)
py.raise = lazily "raise"

---isinstance(value, class), for one class or several.
---@param value any
---@param ... any
---@return boolean
function py.is_instance(value, ...)
  return py.call(py.builtins.isinstance, py.tuple({ value, py.tuple({ ... }, select("#", ...)) }, 2))
end

---Calls fn with a scope, and lets go at its end of every Python object that this coroutine got meanwhile (methods that
---were called and errors that were caught among them), tensor and stream, but for what is given to s:keep: mf.scope.
---@param fn fun(s: moonferry.Scope): ...
---@return ...
function py.scope(fn)
  started_or_error()
  return mf.scope(fn)
end

---Lets go of a Python object now instead of when Lua collects it, and of the methods that were read from it. Their
---later use is an error.
---@type fun(object: any)
py.close = lazily "close"

---Gives back to Python what Lua has collected so far, which otherwise happens with the next call into Python.
---@type fun()
py.collect = lazily "collect"

---Whether a value is a Python object.
---@type fun(value: any): boolean
py.is = lazily "is"

local function moonferry_function(name, module)
  started_or_error()
  return scopes.outside(function()
    return py.import(module or "moonferry")[name]
  end)
end

local from_any
---Imports any array (of NumPy, PyTorch, JAX ...) as a tensor over the same memory, by DLPack; what has no DLPack (a
---column of pandas or polars, a picture of Pillow's, a buffer, a list or table of numbers) as moonferry.asarray does:
---over the same memory where that can be, else a copy.
---Keywords are those of Python's moonferry.from_dlpack: py.tensor(a, py.kw{copy = true}).
function py.tensor(object, ...)
  from_any = from_any or moonferry_function("_from_any", "moonferry._core")
  return from_any(object, ...)
end

local stream_class
---A stream of a Python object's: a moonferry.Stream, or whatever has __cuda_stream__ (of cuda.core, CuPy ...), which
---is kept alive as long as this stream's object. `device` says which GPU's it is; else the driver is asked.
---@param object any
---@param device? string
---@return moonferry.Stream?, string? message, number? code
function py.stream(object, device)
  stream_class = stream_class or moonferry_function "Stream"
  local found = stream_class.wrap(object, device)
  return mf.wrap_stream(tostring(found.device), ffi.cast("void *", ffi.cast("intptr_t", found.handle)), object)
end

-- py.finish, py.settle, py.preload.
require("moonferry.life")(py, verbs)

local into
---Hands a tensor to another library through the exchange table on its class: py.into(torch.Tensor, t).
function py.into(class, tensor)
  into = into or moonferry_function "into"
  return into(class, tensor)
end

return py
