-- What an engine wants of the Python in its process beside calls: that it ends when it is told to, that its collector
-- keeps out of the frames, and that a library is loaded without a frame that waits for it.
--
-- Part of moonferry.python. Must not know: how values cross.
local ffi = require "ffi"
local mf = require "moonferry"
local errors = require "moonferry.errors"
local hint = require "moonferry.hint"
local scope = require "moonferry.scope"
local transfer = require "moonferry.transfer"
local C = require "moonferry.lib"

local FINISH_OPTIONS = { wait = true }
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
local preload_meta = { __index = Preload }

--- Returns how many of the `total` modules were tried so far. It needs no GIL, so each frame may call it.
---@return integer
function Preload:count()
  return self._count[0]
end

--- Returns whether all modules were tried. It needs no GIL.
---@return boolean
function Preload:done()
  return self:count() == self.total
end

--- Waits until all modules were tried.
---@return table<string, any> errors the exceptions of modules that could not be imported, by the module's name
function Preload:wait()
  self._thread:join()
  return self:errors()
end

--- Returns the exceptions of the modules that could not be imported so far.
---@return table<string, any> errors by the module's name
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
    _py = py }, preload_meta)
end

hint.guard(Preload, "what py.preload returns", "loading:", errors)

return function(py, verbs)
  ---Ends Python before the process exits. From now on no thread can enter Python, and a call into it is an error in
  ---every Lua state. Threads inside Python, and Python's own threads that are not daemons, have `wait` seconds (default
  ---10) to come out; then Python's exit functions run on this thread. Threads that are still inside are left behind.
  ---@param options { wait: number? }?
  ---@return true? ended whether all threads came out in time
  ---@return string? message how many did not
  function py.finish(options)
    local wait = transfer.options(options, FINISH_OPTIONS, "py.finish").wait or WAIT
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
      return nil, ("py.finish: %d thread%s had not ended after %g seconds"):format(late, late == 1 and "" or "s", wait)
    end
    return true
  end

  ---Runs Python's garbage collector, and excludes all objects that are alive from later collections. Call it after
  ---loading: otherwise some later frame pays for a full collection, which takes a tenth of a second with PyTorch.
  ---@return integer frozen how many objects are excluded
  function py.settle()
    local gc = py.import "gc"
    gc.collect()
    gc.freeze()
    return gc.get_freeze_count()
  end

  ---Imports modules in their order on a Python thread: local loading = py.preload { "numpy", "torch" }. The result has
  ---`total`, count(), done(), wait() and errors(). done() never waits; other calls into Python are slow meanwhile.
  ---@param names string[]
  ---@return moonferry.Preload
  function py.preload(names)
    if type(names) ~= "table" or #names == 0 then
      errors.misuse("py.preload: a list of modules' names is expected, not %s", errors.show(names))
    end
    for i = 1, #names do
      local name = names[i]
      if type(name) ~= "string" then
        errors.misuse("py.preload: a module's name is %s; a string is expected", errors.show(name))
      end
    end
    return scope.outside(preload, py, names)
  end
end
