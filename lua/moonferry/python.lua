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
--   table of 1 ... n        list, also inside
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
local lib = require "moonferry.lib"
local constants = require("moonferry.cdef").constants
local interpreter = require "moonferry.interpreter"

local py = {}

local keywords = {}
local box = ffi.new("mf_tensor *[1]")
local handle_type = ffi.typeof("mf_tensor *")
local int64_type = ffi.typeof("int64_t")
local uint64_type = ffi.typeof("uint64_t")
local complex_type = ffi.typeof("complex")
local complex64_type = ffi.typeof("complex float")

-- These numbers are the MF__IS_... of bindings/bridge/bridge.h.
local IS_UNKNOWN, IS_TENSOR, IS_INT64, IS_UINT64, IS_COMPLEX, IS_NUMBER, IS_OBJECT = 0, 1, 2, 3, 4, 5, 6

local stream_class

-- A moonferry.Stream of the same value.
local function stream_object(s)
  local place = s._place
  stream_class = stream_class or py.import("moonferry").Stream
  if place.stream == constants.MF_STREAM_DEFAULT then
    return stream_class.default(s.device)
  elseif place.stream == constants.MF_STREAM_PER_THREAD then
    return stream_class.per_thread(s.device)
  end
  return stream_class.wrap(place.stream, s.device)
end

-- Tells the bridge what a value is whose nature C cannot see.
local function describe(value)
  if mf.is_tensor(value) then
    local handle = value.handle
    return ffi.istype(handle_type, handle) and handle ~= nil and IS_TENSOR or IS_UNKNOWN, handle
  elseif mf.is_stream(value) then
    return IS_OBJECT, stream_object(value)
  elseif ffi.istype(int64_type, value) then
    return IS_INT64, value
  elseif ffi.istype(uint64_type, value) then
    return IS_UINT64, value
  elseif ffi.istype(complex_type, value) then
    return IS_COMPLEX, value
  elseif ffi.istype(complex64_type, value) then
    return IS_COMPLEX, complex_type(value.re, value.im)
  end
  local number = type(value) == "cdata" and tonumber(value)
  if number then
    return IS_NUMBER, number
  end
  return IS_UNKNOWN
end

-- Makes a tensor of the reference that the bridge put into the box.
local function adopt()
  local handle = box[0]
  box[0] = nil
  return mf.from_handle(handle)
end

pcall(ffi.cdef, 'int mf_python_dladdr(const void *address, void *info) __asm__("dladdr");')

-- The bridge lies beside the library that this process uses, because both are of one build.
local function bridge_path()
  local info = ffi.new("const char *[4]")
  local found = ffi.C.mf_python_dladdr(ffi.cast("void *", lib.mf_build_id), info) ~= 0
  local directory = found and ffi.string(info[0]):match("^(.*/)[^/]*$")
  local path = directory and directory .. "moonferry_bridge.so"
  local file = path and io.open(path)
  if file then
    file:close()
    return path
  end
  local elsewhere = package.searchpath("moonferry_bridge", package.cpath)
  return elsewhere, not elsewhere and ("moonferry_bridge.so is neither beside libmoonferry (%s) nor on package.cpath")
    :format(directory or "?")
end

local function load_bridge()
  local path, message = bridge_path()
  if not path then
    return nil, message
  end
  local open, fault = package.loadlib(path, "luaopen_moonferry_bridge")
  if not open then
    return nil, fault
  end
  local ok, bridge = pcall(open)
  return ok and bridge or nil, not ok and bridge or nil
end

local function prepare(options)
  local facts, message = interpreter.load(options)
  if not facts then
    return nil, message
  end
  local bridge, fault = load_bridge()
  if not bridge then
    return nil, fault
  end
  local ok, why = bridge.start(facts.executable)
  return ok and bridge or nil, why
end

local started = false

-- The functions of the bridge, once Python runs.
local verbs = {}

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
  local bridge, message = prepare(options or {})
  if not bridge then
    return nil, message
  end
  for name, verb in pairs(bridge.open(describe, adopt, box, keywords)) do
    verbs[name] = verb
    if rawget(py, name) then
      py[name] = verb
    end
  end
  py.None = verbs.None
  -- os.exit leaves without closing this state, which is when the bridge gets ready for the end.
  local exit = os.exit
  os.exit = function(...) -- luacheck: ignore 122
    bridge.arm()
    return exit(...)
  end
  started = true
  py.builtins = py.import "builtins"
  py.main = py.import "__main__"
  py.op = py.import "operator"
  return py
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
    if py.builtins.hasattr(module, attribute) then
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

local int64_box, uint64_box = ffi.new("int64_t[1]"), ffi.new("uint64_t[1]")

---The int64_t, or uint64_t, of an integer too large for a Lua number; Python's OverflowError if it is larger still.
---@param object any
function py.int64(object)
  started_or_error()
  verbs.integer(object, int64_box, false)
  return int64_box[0]
end

---@param object any
function py.uint64(object)
  started_or_error()
  verbs.integer(object, uint64_box, true)
  return uint64_box[0]
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
  return py.builtins.isinstance(value, py.tuple({ ... }, select("#", ...)))
end

---Lets go of a Python object now instead of when Lua collects it. Its later use is an error.
---@type fun(object: any)
py.close = lazily "close"

---Gives back to Python what Lua has collected so far, which otherwise happens with the next call into
---Python; returns how many objects that were.
---@type fun(): integer
py.collect = lazily "collect"

---Whether a value is a Python object.
---@type fun(value: any): boolean
py.is = lazily "is"

local function moonferry_function(name)
  started_or_error()
  return py.import("moonferry")[name]
end

local from_dlpack
---Imports any object that speaks DLPack (NumPy, PyTorch, JAX ...) as a tensor over the same memory.
---Keywords are those of Python's moonferry.from_dlpack: py.tensor(a, py.kw{copy = true}).
function py.tensor(object, ...)
  from_dlpack = from_dlpack or moonferry_function "from_dlpack"
  return from_dlpack(object, ...)
end

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

local into
---Hands a tensor to another library through the exchange table on its class: py.into(torch.Tensor, t).
function py.into(class, tensor)
  into = into or moonferry_function "into"
  return into(class, tensor)
end

return py
