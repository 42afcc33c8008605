-- What an engine wants of the Python in its process beside calls: that it ends when it is told to, that its collector
-- keeps out of the frames, and that a library is loaded without a frame that waits for it.
--
-- Part of moonferry.python. Must not know: how values cross.
local ffi = require "ffi"
local mf = require "moonferry"
local errors = require "moonferry.errors"
local scope = require "moonferry.scope"
local C = require "moonferry.lib"

local WAIT, WAIT_MAX = 10, 86400

local late_type, error_type = ffi.typeof "int32_t[1]", ffi.typeof "mf_error"

-- Where another Lua state has brought Python in, and this one has not used it.
local function finish_of_others(milliseconds)
  local late, fault = late_type(), error_type()
  if C.mf_guest_finish(milliseconds, late, fault) ~= 0 then
    errors.misuse("py.finish: %s", ffi.string(fault.message))
  end
  return late[0]
end

-- Loads what `names` says, one after another, on a thread of Python's. Where the count goes needs no GIL to be read.
local PRELOAD = [[
def preload(names, count, errors):
    import importlib, threading
    count = memoryview(count)
    def work():
        with count:
            for name in names:
                try:
                    importlib.import_module(name)
                except BaseException as error:
                    errors[name] = error
                count[0] += 1
    thread = threading.Thread(target=work, name="moonferry.preload", daemon=True)
    thread.start()
    return thread
]]

---@class moonferry.Preload
---@field total integer
local Preload = {}
Preload.__index = Preload

---How many of `total` modules were tried so far. Needs no GIL, so it may be asked in each frame.
---@return integer
function Preload:count()
  return self._count[0]
end

---Whether all were tried; likewise.
---@return boolean
function Preload:done()
  return self:count() == self.total
end

---Waits until all were tried.
---@return table<string, any> errors the exception of each module that could not be imported, by its name
function Preload:wait()
  self._thread:join()
  return self:errors()
end

---What could not be imported so far.
---@return table<string, any>
function Preload:errors()
  local found = {}
  for name, exception in self._py.items(self._errors) do
    found[name] = exception
  end
  return found
end

local function preload(py, names)
  local counts = mf.zeros({ 1 }, "int32")
  local failures, made = py.dict {}, py.dict {}
  py.exec(PRELOAD, made)
  local thread = py.get(made, "preload")(py.list(names), counts, failures)
  return setmetatable({ total = #names, _count = counts:ptr(), _counts = counts, _errors = failures, _thread = thread,
    _py = py }, Preload)
end

return function(py, verbs)
  ---Ends Python now, so that the end of the process has nothing left to do: an engine calls it before it leaves. No
  ---thread gets into Python from here on; those inside have `wait` seconds (10 unless told) to come out, and so have
  ---Python's own threads that are no daemons; then Python's exit functions run, on this thread. Whoever has not come
  ---out is left behind. In every Lua state a call into Python is an error afterwards.
  ---@param options { wait: number? }?
  ---@return true? ended all came out in time
  ---@return string? message how many did not
  function py.finish(options)
    local wait = options and options.wait or WAIT
    if type(wait) ~= "number" or not (wait >= 0 and wait <= WAIT_MAX) then
      errors.misuse("py.finish: wait is %s; seconds from 0 to %d are expected", errors.show(wait), WAIT_MAX)
    end
    local milliseconds, late = math.ceil(wait * 1000), 0
    if not verbs.ended then
      late = finish_of_others(milliseconds)
    elseif not verbs.ended() then
      late = verbs.finish_within(milliseconds)
    end
    if late > 0 then
      return nil, ("py.finish: %d threads had not ended after %g seconds"):format(late, wait)
    end
    return true
  end

  ---Collects Python's garbage and has its collector leave alone, from now on, all that is alive: what libraries have
  ---made while they loaded. A full collection of that takes a tenth of a second with PyTorch, in some later frame.
  ---@return integer frozen how many objects the collector looks at no more
  function py.settle()
    local gc = py.import "gc"
    gc.collect()
    gc.freeze()
    return gc.get_freeze_count()
  end

  ---Imports modules on a thread of Python's, in their order: local loading = py.preload { "numpy", "torch" }. Python
  ---itself is slow meanwhile for whoever calls it; loading:done() is not.
  ---@param names string[]
  ---@return moonferry.Preload
  function py.preload(names)
    if type(names) ~= "table" or #names == 0 then
      errors.misuse("py.preload: a list of modules' names is expected, not %s", errors.show(names))
    end
    for _, name in ipairs(names) do
      if type(name) ~= "string" then
        errors.misuse("py.preload: a module's name is %s; a string is expected", errors.show(name))
      end
    end
    return scope.outside(preload, py, names)
  end
end
